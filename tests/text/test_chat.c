/* Chat templates: what the evaluator makes of recorded templates, byte for byte; where templates are found; what is
 * refused, and how; limits, refused memory, threads. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include <headroom/chat.h>

#include "base/json.h"
#include "chat/presets.h"
#include "chat/render.h"
#include "formats/gguf.h"
#include "support/cpu_seconds.h"
#include "support/scratch.h"

static const char hello[] = "[{\"role\": \"user\", \"content\": \"Hi\"}]";

/* Parses and renders; frees the template. */
static hr_status render(const char *template, const char *json, bool prompt, hr_rendered *out, hr_error *error) {
  hri_template *parsed = NULL;
  hr_status status = hri_template_parse("t.jinja", template, strlen(template), &parsed, error);
  if (status == HR_OK) status = hri_chat_render_json(parsed, NULL, 0, json, strlen(json), prompt, out, error);
  hri_template_free(parsed);
  return status;
}

static void assert_renders(const char *template, const char *json, const char *wanted) {
  hr_rendered out = {0};
  hr_error error = {0};
  if (render(template, json, false, &out, &error) != HR_OK) fail_msg("%s: %s", template, error.message);
  assert_string_equal(out.text, wanted);
  assert_true(out.bytes == strlen(wanted));
  hr_rendered_deinit(&out);
}

static void assert_refused(const char *template, const char *json, const char *part) {
  hr_rendered out = {0};
  hr_error error = {0};
  uint64_t live = hri_mem_live_bytes();
  if (render(template, json, false, &out, &error) != HR_ERROR_INPUT)
    fail_msg("%.60s was not refused as input: %s", template, error.message);
  assert_null(out.text);
  assert_says(&error, part);
  assert_true(error.hint[0]);
  assert_true(hri_mem_live_bytes() == live);
}

/* ---- Recorded vectors ---- */

static char *conversation(const json_t *variables, const json_t *messages, const json_t *own) {
  json_t *whole = json_copy((json_t *)(uintptr_t)(own ? own : variables));
  hri_text text = {0};
  hri_json_writer writer = hri_json_writer_init(&text, 0);
  if (!json_object_get(whole, "messages")) json_object_set(whole, "messages", (json_t *)(uintptr_t)messages);
  hri_json_put_tree(&writer, whole);
  json_decref(whole);
  assert_false(text.failed);
  return text.chars;
}

static void compare(const char *name, const json_t *vector, const hr_rendered *out) {
  const json_t *spans = json_object_get(vector, "spans");
  size_t i;
  if (strcmp(out->text, json_string_value(json_object_get(vector, "text"))) != 0)
    fail_msg("%s\ngives  '%s'\nwanted '%s'", name, out->text, json_string_value(json_object_get(vector, "text")));
  assert_true(out->bytes == strlen(out->text));
  if (out->generated_count != json_array_size(spans))
    fail_msg("%s: %d spans, not %d", name, (int)out->generated_count, (int)json_array_size(spans));
  for (i = 0; i < json_array_size(spans); i++) {
    const json_t *span = json_array_get(spans, i);
    assert_true(out->generated[i].begin == (uint64_t)json_integer_value(json_array_get(span, 0)));
    assert_true(out->generated[i].end == (uint64_t)json_integer_value(json_array_get(span, 1)));
  }
}

static void run_vector(const json_t *root, const json_t *vector) {
  const char *preset = json_string_value(json_object_get(vector, "preset")),
             *says = json_string_value(json_object_get(vector, "unsupported"));
  const char *name = preset ? preset : json_string_value(json_object_get(vector, "template"));
  char *json = conversation(json_object_get(root, "variables"), json_object_get(root, "messages"),
                            json_object_get(vector, "conversation"));
  bool prompt = json_is_true(json_object_get(vector, "prompt"));
  hr_rendered out = {0};
  hr_error error = {0};
  hr_chat *chat = NULL;
  hr_status status;
  if (preset) {
    assert_int_equal(hr_chat_open(preset, NULL, &chat, &error), HR_OK);
    status = hr_chat_render(chat, json, strlen(json), prompt, &out, &error);
    hr_chat_close(chat);
  } else {
    status = render(name, json, prompt, &out, &error);
  }
  if (says || json_object_get(vector, "error")) {
    if (status != HR_ERROR_INPUT)
      fail_msg("%s should be refused, gives '%s'", name, out.text ? out.text : error.message);
    if (says) assert_says(&error, says);
    if (says) assert_says(&error, "not supported");
    if (!preset) assert_says(&error, "t.jinja: line ");
  } else {
    if (status != HR_OK) fail_msg("%s: %s", name, error.message);
    compare(name, vector, &out);
  }
  hr_rendered_deinit(&out);
  hri_free(json);
}

static void test_vectors(void **state) {
  hri_json root;
  hr_error error = {0};
  json_t *vectors;
  size_t i;
  uint64_t live;
  (void)state;
  if (hri_json_read(HR_TEST_DATA "/chat/vectors.json", 64 << 20, &root, &error) != HR_OK) fail_msg("%s", error.message);
  vectors = json_object_get(root.value, "vectors");
  assert_true(json_array_size(vectors) > 1000);
  live = hri_mem_live_bytes();
  for (i = 0; i < json_array_size(vectors); i++) run_vector(root.value, json_array_get(vectors, i));
  assert_true(hri_mem_live_bytes() == live);
  hri_json_deinit(&root);
}

/* ---- Errors ---- */

static const struct {
  const char *template, *says;
} refused[] = {
    {"a\nb {{ x", "t.jinja: line 2, column 3: the tag that begins here has no end '}}'"},
    {"\xC3\xA9\xC3\xA9{{ ! }}", "line 1, column 6: unexpected character '!'"},
    {"{% if t %}", "the template ends where '{% elif %}' is missing"},
    {"x\n\n{% include 'a' %}", "line 3, column 4: the statement 'include' is not supported"},
    {"{% import 'a' as b %}", "the statement 'import' is not supported"},
    {"{% extends 'a' %}", "the statement 'extends' is not supported"},
    {"{% from 'a' import b %}", "the statement 'from' is not supported"},
    {"{% block b %}{% endblock %}", "the statement 'block' is not supported"},
    {"{% wibble %}", "unknown statement 'wibble'"},
    {"{{ 1 | urlize }}", "line 1, column 8: the filter 'urlize' is not supported"},
    {"{% if false %}{{ 1 | random }}{% endif %}", "the filter 'random' is not supported"},
    {"{{ messages | nope }}", "no filter named 'nope'"},
    {"{{ messages is nope }}", "no test named 'nope'"},
    {"{{ missing.x }}", "line 1, column 11: 'missing' is undefined"},
    {"{{ messages[0].nope.x }}", "'dict object' has no attribute 'nope'"},
    {"{{ messages[7].x }}", "'list object' has no element 7"},
    {"{{ messages.append(1) }}", "access to attribute 'append' of 'list' object is unsafe"},
    {"{{ raise_exception('no such role') }}", "the template refuses this conversation: no such role"},
    {"{{ messages[0].content + 1 }}", "line 1, column 24: unsupported operand type(s) for +: 'str' and 'int'"},
    {"{{ 9223372036854775807 + 1 }}", "an integer beyond 64 bits is not supported"},
    {"{{ -9223372036854775807 - 2 }}", "an integer beyond 64 bits is not supported"},
    {"{{ 9223372036854775808 }}", "beyond 64 bits"},
    {"{% break %}", "'break' stands outside of a loop"},
    {"{{ 'a\\ud800' }}", "the escape '\\u' in this string is malformed or not supported"},
};

static void test_refused(void **state) {
  size_t i;
  (void)state;
  for (i = 0; i < sizeof refused / sizeof *refused; i++) assert_refused(refused[i].template, hello, refused[i].says);
}

static void test_bad_source(void **state) {
  hri_template *template = NULL;
  hr_error error = {0};
  char *large = calloc(1, HRI_TEMPLATE_MAX_BYTES + 1);
  (void)state;
  assert_int_equal(hri_template_parse("t", "ab\xFF", 3, &template, &error), HR_ERROR_INPUT);
  assert_says(&error, "byte 2 of the chat template, 0xff, is not UTF-8");
  assert_int_equal(hri_template_parse("t", "a\0b", 3, &template, &error), HR_ERROR_INPUT);
  assert_says(&error, "byte 1 of the chat template, 0x00");
  assert_int_equal(hri_template_parse("t", large, HRI_TEMPLATE_MAX_BYTES + 1, &template, &error), HR_ERROR_INPUT);
  assert_says(&error, "4194305 bytes");
  assert_null(template);
  free(large);
}

/* ---- Absurd templates ---- */

static const struct {
  const char *template, *says;
} absurd[] = {
    {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "the limit on depth is met"},
    {"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "the limit on depth is met"},
    {"{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}", "the limit on depth is met"},
    {"{% set ns = namespace(x=[]) %}{% for i in range(2000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson }}",
     "the limit on depth is met"},
    {"{% set ns = namespace(x=[], y=[]) %}{% for i in range(64) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
     "the limit on steps is met"},
    {"{% set ns = namespace(x=[]) %}{% for i in range(64) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
     "the limit on"},
    {"{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}", "the limit on"},
    {"{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
     "the limit on memory is met"},
    {"{{ 'x' * 1000000000 }}", "the limit on memory is met"},
    {"{{ [1] * 1000000000 }}", "the limit on"},
    {"{{ 'a'.center(1000000000000) }}", "the limit on memory is met"},
    {"{{ 'a' | indent(1000000000) }}", "the limit on memory is met"},
    {"{{ ('b' * 1000000).replace('', 'c' * 1000000) }}", "the limit on memory is met"},
    {"{{ range(100001) }}", "the range has 100001 elements, more than 100000"},
    {"{{ range(-9223372036854775807, 9223372036854775807) }}", "elements, more than 100000"},
    {"{{ '%99999d' % 1 }}", "a format wider than 10000"},
    {"{{ '{:99999}'.format(1) }}", "a format wider than 10000"},
    {"{{ [1] | tojson(indent=2000) }}", "an indent of more than 1000"},
    {"{{ ('a' * 1000000).strip('b' * 1000000 ~ 'a') }}", "the limit on steps is met"},
    {"{{ ('a' * 4000000).rpartition('a' * 2000000 ~ 'b') }}", "the limit on steps is met"},
    {"{{ ('a' * 4000000).rfind('b' ~ 'a' * 2000000 ~ 'b') }}{{ ('a' * 4000000).rsplit('a' * 2000000 ~ 'b') }}",
     "the limit on steps is met"},
    {"{% set a = 'a' * 20000000 %}{% set b = 'a' * 20000000 %}{% for i in range(100000) %}{% set c = a == b %}{% endfor %}",
     "the limit on steps is met"},
    {"{% set a = 'a' * 20000000 %}{% set b = 'a' * 20000000 %}{% for i in range(100000) %}{% set c = a < b %}{% endfor %}",
     "the limit on steps is met"},
    {"{% set a = 'a' * 20000000 %}{% set b = 'a' * 19000000 ~ 'b' %}{% for i in range(100000) %}{% set c = a.removeprefix(b) %}{% endfor %}",
     "the limit on steps is met"},
    {"{% set t = ('b' * 100,) * 1000000 %}{% for i in range(100000) %}{% set c = 'bb'.startswith(t) %}{% endfor %}",
     "the limit on steps is met"},
    {"{% set a = 'a' * 20000000 %}{% set d = {} %}{% for i in range(100000) %}{% set c = d[a], d.get(a), a in d %}{% endfor %}",
     "the limit on steps is met"},
    {"{% set a = '1' * 2000000 ~ 'x' %}{% for i in range(100000) %}{% set c = a | int, a | float %}{% endfor %}",
     "the limit on steps is met"},
    {"{{ ('a ' * 10000 * 3000).split() | length }}", "the limit on memory is met"},
    {"{{ '%*d' % (-9223372036854775807 - 1, 1) }}", "a format wider than 10000"},
    {"{{ range(4611686018427387904, 9223372036854775807, 4611686018427387904)[5:] }}", "an integer beyond 64 bits"},
};

static char *repeated(const char *before, const char *part, size_t times, const char *after) {
  hri_text text = {0};
  hri_text_add(&text, "%s", before);
  while (times-- > 0) hri_text_add(&text, "%s", part);
  hri_text_add(&text, "%s", after);
  assert_false(text.failed);
  return text.chars;
}

static void test_limits(void **state) {
  static const char *const deep[][4] =
      {{"{{ ", "(", "1", "deeper than 300"},       {"{{ ", "[", "", "deeper than 300"},
       {"{{ ", "not ", "1 }}", "deeper than 300"}, {"{{ ", "-", "1 }}", "deeper than 300"},
       {"", "{% if t %}", "", "deeper than 300"},  {"{{ a", ".b", " }}", "too long"},
       {"{{ 1", " + 1", " }}", "too long"},        {"{{ 1", " | e", " }}", "too long"},
       {"{{ 1", " if 1", " }}", "too long"},       {"{{ 1", " and 1", " }}", "too long"},
       {"{% set ", "(", "", "deeper than 300"},    {"{{ 1 is in ", "{1:", "", "deeper than"}};
  size_t i;
  (void)state;
  for (i = 0; i < sizeof absurd / sizeof *absurd; i++) assert_refused(absurd[i].template, hello, absurd[i].says);
  for (i = 0; i < sizeof deep / sizeof *deep; i++) {
    char *template = repeated(deep[i][0], deep[i][1], 5000, deep[i][2]);
    hr_error error = {0};
    hr_rendered out = {0};
    assert_int_equal(render(template, hello, false, &out, &error), HR_ERROR_INPUT);
    if (!strstr(error.message, deep[i][3]) && !strstr(error.message, "brackets are nested deeper"))
      fail_msg("%zu: %s", i, error.message);
    hri_free(template);
  }
}

/* A chain of `elif` is no nesting, however long, nor is an `if` alone in `else`. */
static void test_long_chains(void **state) {
  static const char *const links[] = {"{% elif n == 2 %}b",
                                      "{% elif n == -1 %}{% for x in [1] %}{% break %}{% endfor %}"};
  (void)state;
  for (size_t k = 0; k < 2; k++) {
    char *chain =
             repeated("{% set n = 1 %}{% if n == 0 %}a", links[k], 20000, "{% elif n == 1 %}c{% else %}d{% endif %}e"),
         *none = repeated("{% set n = 7 %}{% if n == 0 %}a", links[k], 20000,
                          "{% else %}{% if n == 7 %}d{% endif %}{% endif %}e");
    assert_renders(chain, hello, "ce");
    assert_renders(none, hello, "de");
    hri_free(chain);
    hri_free(none);
  }
}

/* Many names, in the template and in what it is given, take no quadratic time. */
static void test_many_names(void **state) {
  static const char once[] = "{% for i in range(3) %}{% set n = namespace(**big) %}{{ n.k7 }}{% endfor %}";
  hri_text text = {0};
  hr_rendered out = {0};
  hr_error error = {0};
  double begin = cpu_seconds();
  int i;
  (void)state;
  for (i = 0; i < 300000; i++) hri_text_add(&text, "{{a%d}}", i);
  assert_refused(hri_text_get(&text), hello, "more than 2000 names");
  hri_text_deinit(&text);
  hri_text_add(&text, "{\"messages\": %s, \"big\": {\"k0\": 0", hello);
  for (i = 1; i < 60000; i++) hri_text_add(&text, ", \"k%d\": %d", i, i);
  hri_text_add(&text, "}}");
  if (render(once, hri_text_get(&text), false, &out, &error) != HR_OK) fail_msg("%s", error.message);
  assert_string_equal(out.text, "777");
  hr_rendered_deinit(&out);
  if (render("{{ (big | tojson(sort_keys=true))[:40] }}", hri_text_get(&text), false, &out, &error) != HR_OK)
    fail_msg("%s", error.message); /* the limit on steps, when keys were inserted one by one */
  assert_string_equal(out.text, "{\"k0\": 0, \"k1\": 1, \"k10\": 10, \"k100\": 10");
  assert_true(cpu_seconds() - begin < 20); /* half a second; minutes when each name was compared with all others */
  hr_rendered_deinit(&out);
  hri_text_deinit(&text);
}

/* A template that looks back from each message, as Gemma's does, through a thousand turns: two million rounds, whose scopes
 * are one. What a macro or a loop keeps stays. */
static void test_many_rounds(void **state) {
  static const char back[] = "{% for m in messages %}{% for j in range(loop.index0) %}{% if messages[j].role == 'x' %}y"
                             "{% endif %}{% endfor %}{% endfor %}ok";
  hri_text text = {0};
  hr_rendered out = {0};
  hr_error error = {0};
  (void)state;
  hri_text_add(&text, "[{\"role\": \"user\", \"content\": \"Hi\"}");
  for (int i = 1; i < 2000; i++) hri_text_add(&text, ", {\"role\": \"user\", \"content\": \"%d\"}", i);
  hri_text_add(&text, "]");
  if (render(back, hri_text_get(&text), false, &out, &error) != HR_OK) fail_msg("%s", error.message);
  assert_string_equal(out.text, "ok");
  hr_rendered_deinit(&out);
  hri_text_deinit(&text);
  assert_renders(
      "{% set ns = namespace(l=[]) %}{% for i in range(3) %}{% set x = i * 2 %}{% macro q() %}{{ x }}{% endmacro %}"
      "{% set ns.l = ns.l + [q] %}{% endfor %}{% for q in ns.l %}{{ q() }}{% endfor %}",
      hello, "024");
  assert_renders(
      "{% for i in range(3) %}{{ x is defined }}{% set x = i %}{{ x }}{% for j in range(2) if j < x %}{{ j }}{% set x = 9 %}"
      "{% endfor %}{{ x }};{% endfor %}",
      hello, "False00;False101;False2012;");
}

/* FNV-1a to its lowest 20 bits, which depend on no others. */
static uint32_t low_hash(uint32_t state, const char *text) {
  for (; *text; text++) state = ((state ^ (unsigned char)*text) * 16777619u) & 0xFFFFF;
  return state;
}

/* Keys that all have one hash: each step of a chain offers two parts that lead to the same state. */
static void test_colliding_keys(void **state) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  static char part[1 << 20][4];
  char chain[16][2][4];
  uint32_t at = 2166136261u & 0xFFFFF, links, i;
  hri_text text = {0};
  (void)state;
  for (links = 0; links < 16; links++) {
    memset(part, 0, sizeof part);
    for (i = 0;; i++) {
      char made[4] = {letters[i % 52], letters[i / 52 % 52], letters[i / 2704 % 52], 0};
      uint32_t next = low_hash(at, made);
      assert_true(i < 140608);
      if (part[next][0]) {
        memcpy(chain[links][0], part[next], 4);
        memcpy(chain[links][1], made, 4);
        at = next;
        break;
      }
      memcpy(part[next], made, 4);
    }
  }
  hri_text_add(&text, "{\"messages\": %s, \"big\": {", hello);
  for (i = 0; i < 60000; i++) {
    hri_text_add(&text, "%s\"", i ? ", " : "");
    for (links = 0; links < 16; links++) hri_text_add(&text, "%s", chain[links][i >> links & 1]);
    hri_text_add(&text, "\": 1");
  }
  hri_text_add(&text, "}}");
  assert_refused("{{ big | length }}", hri_text_get(&text), "the limit on steps is met");
  hri_text_deinit(&text);
}

/* What a recorded vector does not show. The wanted texts are Python's. */
static void test_corners(void **state) {
  (void)state;
  assert_renders("{% for x in [1, 0, 2, 3] if x %}{{ loop | length }}{{ loop }}{% endfor %}", hello,
                 "3<LoopContext 1/3>3<LoopContext 2/3>3<LoopContext 3/3>");
  assert_renders("{{ '{:,.0E} {:_x} {:,} {:,.1f}'.format(10000000000.0, 0xabcdef, 1234567, 1234567.5e10) }}", hello,
                 "1E+10 ab_cdef 1,234,567 12,345,675,000,000,000.0");
  assert_renders("{{ 'a b c'.split(none, -9223372036854775807 - 1) }}{{ 'a,b'.rsplit(',', -9223372036854775807 - 1) }}",
                 hello, "['a', 'b', 'c']['a', 'b']");
  assert_renders(
      "{{ 'a b'.replace(' ', 'x', -9223372036854775807 - 1) }}{{ 'ab'.replace('', 'x', -9223372036854775807 - 1) }}",
      hello, "axbxaxbx");
  assert_renders(
      "{{ 'abcabc'.rfind('bc') }}{{ 'abc'.rfind('') }}{{ 'abc'.rfind('x') }}{{ 'a.b.c'.rpartition('.') }}{{ 'a..b.'.rsplit('.', 2) }}",
      hello, "43-1('a.b', '.', 'c')['a.', 'b', '']");
}

/* Adding to a text again and again copies it once in a while only: 100,000 additions make 10 MB. */
static void test_growing_text(void **state) {
  hr_rendered out = {0};
  hr_error error = {0};
  (void)state;
  if (render(
          "{% set ns = namespace(s='') %}{% for i in range(100000) %}{% set ns.s = ns.s + 'x' * 100 %}{% endfor %}{{ ns.s | length }}",
          hello, false, &out, &error) != HR_OK)
    fail_msg("%s", error.message);
  assert_string_equal(out.text, "10000000");
  hr_rendered_deinit(&out);
}

/* ---- Conversations ---- */

static void test_conversations(void **state) {
  static const char *const bad[][2] = {
      {"{}", "the conversation: field 'messages' is missing"},
      {"[]", "an array of at least one message"},
      {"3", "the conversation must be an array of messages, found"},
      {"{\"messages\": {}}", "field 'messages' must be an array of messages"},
      {"[{}, 4]", "field '[1]' must be an object with role and content, found 4"},
      {"{\"messages\": [{}], \"tools\": {}}", "field 'tools' must be an array of objects, or null"},
      {"{\"messages\": [{}], \"tools\": [1]}", "field 'tools[0]' must be an object"},
      {"{\"messages\": [{}], \"documents\": \"x\"}", "field 'documents' must be an array of objects"},
      {"{\"messages\": [{}], \"add_generation_prompt\": true}", "field 'add_generation_prompt' must be left out"},
      {"[{\"role\": \"user\"", "the conversation: line 1, column 17"},
      {"[{\"role\": \"a\\u0000\"}]", "U+0000"},
  };
  size_t i;
  (void)state;
  for (i = 0; i < sizeof bad / sizeof *bad; i++) assert_refused("x", bad[i][0], bad[i][1]);
  /* null members of a message are dropped, deeper ones and other variables are not */
  assert_renders("{{ messages[0] }}{{ x is none }}",
                 "{\"messages\": [{\"role\": null, \"a\": {\"b\": null}}], \"x\": null}", "{'a': {'b': None}}True");
  assert_renders("{{ tools is none and documents is none }}{{ add_generation_prompt }}", hello, "TrueFalse");
  assert_renders("{{ tools }}", "{\"messages\": [{}], \"tools\": [{\"n\": 1.0}]}", "[{'n': 1.0}]");
  /* what the model thought, under every name */
  assert_renders("{{ messages[0] }}", "[{\"role\": \"assistant\", \"reasoning\": \"r\"}]",
                 "{'thinking': 'r', 'role': 'assistant', 'reasoning': 'r', 'reasoning_content': 'r'}");
  assert_renders("{{ messages[0] }}", "[{\"thinking\": \"t\", \"reasoning_content\": \"c\"}]",
                 "{'thinking': 't', 'reasoning_content': 'c'}");
  assert_renders("{{ messages[0] }}", "[{\"reasoning_content\": null, \"role\": \"x\"}]", "{'role': 'x'}");
}

static void test_many_keys(void **state) {
  hri_text json = {0};
  int i;
  (void)state;
  hri_text_add(&json, "{\"messages\": [{}], \"d\": {");
  for (i = 0; i < 1000; i++) hri_text_add(&json, "%s\"key %d\": %d", i ? ", " : "", i, i);
  hri_text_add(&json, "}}");
  assert_false(json.failed);
  assert_renders(
      "{{ d['key 999'] }} {{ d['key 16'] }} {{ d.get('key 1000') }} {{ d | length }} {{ dict(d, x=1)['key 31'] }}",
      json.chars, "999 16 None 1000 31");
  hri_text_deinit(&json);
}

/* The year changes while a test runs about never; both readings are tried. */
static void test_clock(void **state) {
  hr_rendered out = {0};
  hr_error error = {0};
  char before[32], after[32];
  time_t now = time(NULL);
  struct tm local;
  (void)state;
  assert_true(strftime(before, sizeof before, "%d %b %Y", localtime_r(&now, &local)) > 0);
  assert_int_equal(render("{{ strftime_now('%d %b %Y') }}", hello, false, &out, &error), HR_OK);
  now = time(NULL);
  assert_true(strftime(after, sizeof after, "%d %b %Y", localtime_r(&now, &local)) > 0);
  assert_true(strcmp(out.text, before) == 0 || strcmp(out.text, after) == 0);
  hr_rendered_deinit(&out);
  assert_int_equal(render("{{ strftime_now('%f')|length }}{{ strftime_now('%z%Z') }}", hello, false, &out, &error),
                   HR_OK);
  assert_string_equal(out.text, "6");
  hr_rendered_deinit(&out);
}

/* ---- Where templates are found ---- */

static void assert_opens(const char *source, const char *about, const char *wanted) {
  hr_chat *chat = NULL;
  hr_rendered out = {0};
  hr_error error = {0};
  if (hr_chat_open(source, NULL, &chat, &error) != HR_OK) fail_msg("%s: %s", source, error.message);
  assert_string_equal(hr_chat_about(chat), about);
  if (hr_chat_render(chat, hello, strlen(hello), false, &out, &error) != HR_OK) fail_msg("%s", error.message);
  assert_string_equal(out.text, wanted);
  hr_rendered_deinit(&out);
  hr_chat_close(chat);
}

static void assert_does_not_open(const char *source, const char *says, const char *hint) {
  hr_chat *chat = NULL;
  hr_error error = {0};
  uint64_t live = hri_mem_live_bytes();
  assert_int_equal(hr_chat_open(source, NULL, &chat, &error), HR_ERROR_INPUT);
  assert_null(chat);
  assert_says(&error, says);
  if (!strstr(error.hint, hint)) fail_msg("'%s' is not in the hint '%s'", hint, error.hint);
  assert_true(hri_mem_live_bytes() == live);
}

static void test_sources(void **state) {
  const char *root = scratch_make("chat"), *config = path_of("%s/tokenizer_config.json", root),
             *jinja = path_of("%s/chat_template.jinja", root);
  const char *about = path_of("%s, chat_template", config);
  (void)state;
  assert_does_not_open(root, "holds no chat template", "chatml");
  put_text(
      config,
      "{\"chat_template\": \"C {{ bos_token }}|{{ eos_token }}|{{ pad_token is defined }}|{{ unk_token }}\", \"bos_token\": \"<b>\","
      " \"eos_token\": {\"content\": \"<e>\", \"lstrip\": false}, \"pad_token\": null,"
      " \"model_max_length\": 1000000000000000019884624838656}");
  assert_opens(root, about, "C <b>|<e>|False|");
  put_text(path_of("%s/special_tokens_map.json", root), "{\"unk_token\": \"<u>\", \"bos_token\": \"other\"}");
  assert_opens(root, about, "C <b>|<e>|False|<u>");
  put_text(
      config,
      "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"R\"}, {\"name\": \"default\", \"template\": \"D\"}]}");
  assert_opens(root, about, "D");
  put_text(
      config,
      "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"R\"}, {\"name\": \"tool_use\", \"template\": \"T\"}]}");
  assert_does_not_open(root, "none of the chat templates is called 'default' (there are: rag, tool_use)", ".jinja");
  put_text(config, "{\"chat_template\": 5}");
  assert_does_not_open(root, "field 'chat_template' must be a string, or an array", "");
  put_text(config, "{\"chat_template\": \"x\", \"bos_token\": 5}");
  assert_does_not_open(root, "field 'bos_token' must be a string or an object with 'content'", "");
  put_text(config, "{\"chat_template\": \"{% if %}\"}");
  assert_does_not_open(root, "tokenizer_config.json, chat_template: line 1, column 7: expected an expression",
                       "preset");
  put_text(config, "{\"chat_template\": \"C\", \"bos_token\": \"<b>\"}");
  put_text(jinja, "J {{ bos_token }}\n");
  assert_opens(root, jinja, "J <b>");
  assert_opens(jinja, jinja, "J ");
  assert_does_not_open("no-such-thing", "'no-such-thing' is neither a preset nor a template file", "alpaca, chatml");
  scratch_remove(root);
}

static void test_gguf(void **state) {
  const char *root = scratch_make("chat-gguf"), *path = path_of("%s/m.gguf", root);
  hri_gguf_keys keys = {0};
  hri_gguf_writer *writer = NULL;
  hr_error error = {0};
  static const char template[] = "G {{ bos_token }}{{ eos_token }}{{ pad_token is defined }}";
  (void)state;
  hri_gguf_put_string(&keys, "tokenizer.chat_template", template, strlen(template));
  hri_gguf_put_array(&keys, "tokenizer.ggml.tokens", HRI_GGUF_STRING, 2);
  hri_gguf_add_string(&keys, "<b>", 3);
  hri_gguf_add_string(&keys, "<e>", 3);
  hri_gguf_put_u32(&keys, "tokenizer.ggml.bos_token_id", 0);
  hri_gguf_put_u32(&keys, "tokenizer.ggml.eos_token_id", 1);
  hri_gguf_put_u32(&keys, "tokenizer.ggml.padding_token_id", 7);
  (void)unlink(path); /* of a case before */
  if (hri_gguf_writer_open(path, &keys, NULL, 0, &writer, &error) != HR_OK ||
      hri_gguf_writer_finish(writer, &error) != HR_OK)
    fail_msg("%s", error.message);
  hri_gguf_keys_deinit(&keys);
  assert_opens(path, path_of("%s, tokenizer.chat_template", path), "G <b><e>False");
  keys = (hri_gguf_keys){0};
  hri_gguf_put_u32(&keys, "tokenizer.ggml.bos_token_id", 0);
  (void)unlink(path); /* of a case before */
  if (hri_gguf_writer_open(path, &keys, NULL, 0, &writer, &error) != HR_OK ||
      hri_gguf_writer_finish(writer, &error) != HR_OK)
    fail_msg("%s", error.message);
  hri_gguf_keys_deinit(&keys);
  assert_does_not_open(path, "holds no chat template (tokenizer.chat_template)", "chatml");
  scratch_remove(root);
}

/* A token whose bytes are no text, which the tokenizer has all the same, is not shown to a template. */
static void test_token_that_is_no_text(void **state) {
  const char *root = scratch_make("chat-bytes"), *path = path_of("%s/m.gguf", root);
  static const char template[] = "{{ bos_token is defined }} {{ eos_token | upper }}";
  hri_gguf_keys keys = {0};
  hri_gguf_writer *writer = NULL;
  hr_tokenizer *tokenizer = NULL;
  hr_chat *chat = NULL;
  hr_rendered out = {0};
  hr_error error = {0};
  (void)state;
  hri_gguf_put_string(&keys, "tokenizer.chat_template", template, strlen(template));
  hri_gguf_put_string(&keys, "tokenizer.ggml.model", "gpt2", 4);
  hri_gguf_put_array(&keys, "tokenizer.ggml.tokens", HRI_GGUF_STRING, 2);
  hri_gguf_add_string(&keys, "\xF0", 1);
  hri_gguf_add_string(&keys, "a", 1);
  hri_gguf_put_array(&keys, "tokenizer.ggml.merges", HRI_GGUF_STRING, 0);
  hri_gguf_put_u32(&keys, "tokenizer.ggml.bos_token_id", 0);
  hri_gguf_put_u32(&keys, "tokenizer.ggml.eos_token_id", 1);
  (void)unlink(path); /* of a case before */
  if (hri_gguf_writer_open(path, &keys, NULL, 0, &writer, &error) != HR_OK ||
      hri_gguf_writer_finish(writer, &error) != HR_OK)
    fail_msg("%s", error.message);
  hri_gguf_keys_deinit(&keys);
  if (hr_tokenizer_open(path, &tokenizer, &error) != HR_OK || hr_chat_open(path, tokenizer, &chat, &error) != HR_OK)
    fail_msg("%s", error.message);
  if (hr_chat_render(chat, hello, strlen(hello), false, &out, &error) != HR_OK) fail_msg("%s", error.message);
  assert_string_equal(out.text, "False A");
  hr_rendered_deinit(&out);
  hr_chat_close(chat);
  hr_tokenizer_close(tokenizer);
  scratch_remove(root);
}

static void test_presets(void **state) {
  uint32_t i;
  (void)state;
  assert_true(hr_chat_preset_count() >= 10);
  assert_null(hr_chat_preset_name(hr_chat_preset_count()));
  for (i = 0; i < hr_chat_preset_count(); i++) {
    const char *name = hr_chat_preset_name(i);
    char about[64];
    hr_chat *chat = NULL;
    hr_rendered out = {0};
    hr_error error = {0};
    static const char chat_json[] =
        "[{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", \"content\": \"ANSWER\"}]";
    assert_non_null(strstr(hri_chat_preset_list(), name));
    (void)snprintf(about, sizeof about, "preset %s", name);
    assert_int_equal(hr_chat_open(name, NULL, &chat, &error), HR_OK);
    assert_string_equal(hr_chat_about(chat), about);
    assert_int_equal(hr_chat_render(chat, chat_json, strlen(chat_json), false, &out, &error), HR_OK);
    assert_true(out.has_generation && out.generated_count == 1);
    assert_int_equal(strncmp(out.text + out.generated[0].begin, "ANSWER", 6), 0);
    hr_rendered_deinit(&out);
    hr_chat_close(chat);
  }
}

/* ---- Refused memory, threads ---- */

static const char busy[] =
    "{% macro m(a, b=2) %}{{ a ~ b }}{{ caller() }}{% endmacro %}{% set ns = namespace(x=[]) %}{% for m in messages if m.role %}{% set ns.x = ns.x + [loop.last] %}"
    "{{ m | tojson(indent=2) }}{% generation %}{{ m.content | upper | replace('H', 'hh') }}{% endgeneration %}{{ '%5d|%s' % (3, m) }}{{ '{:>9}'.format('x') }}"
    "{% endfor %}{% call m(1) %}{{ 'a b c'.split() | sort(reverse=true) | join(',') }}{% endcall %}{{ ns.x }}{{ {'k': 1}.items() | list }}{{ 'a\nb' | indent }}"
    "{% filter title %}{{ messages | map(attribute='role') | list }}{% endfilter %}{% with a = 'x' %}{{ (a | e) + '<' }}{% endwith %}{{ 'a' 'b' }}";

static void test_memory_refused(void **state) {
  hr_rendered out = {0};
  hr_error error = {0};
  uint64_t nth;
  hr_status status = HR_ERROR_MEMORY;
  (void)state;
  for (nth = 1; status != HR_OK; nth++) {
    uint64_t live = hri_mem_live_bytes();
    hri_mem_fail_after(nth);
    status = render(busy, hello, false, &out, &error);
    hri_mem_fail_after(0);
    if (status == HR_OK) break;
    assert_int_equal(status, HR_ERROR_MEMORY);
    assert_true(hri_mem_live_bytes() == live);
    assert_true(nth < 20000);
  }
  assert_true(nth > 20);
  hr_rendered_deinit(&out);
  for (nth = 1, status = HR_ERROR_MEMORY; status != HR_OK; nth++) {
    uint64_t live = hri_mem_live_bytes();
    hr_chat *chat = NULL;
    hri_mem_fail_after(nth);
    status = hr_chat_open("llama3", NULL, &chat, &error);
    hri_mem_fail_after(0);
    hr_chat_close(chat);
    assert_true(status == HR_OK || status == HR_ERROR_MEMORY);
    assert_true(hri_mem_live_bytes() == live);
  }
}

static void *render_often(void *shared) {
  char *first = NULL;
  bool fine = true;
  int i;
  for (i = 0; i < 200 && fine; i++) {
    hr_rendered out = {0};
    hr_error error = {0};
    fine = hr_chat_render(shared, hello, strlen(hello), true, &out, &error) == HR_OK;
    if (fine && !first) first = strdup(out.text);
    fine = fine && first && strcmp(out.text, first) == 0;
    hr_rendered_deinit(&out);
  }
  free(first);
  return fine ? shared : NULL;
}

static void test_threads(void **state) {
  pthread_t threads[4];
  hr_chat *chat = NULL;
  hr_error error = {0};
  const char *root = scratch_make("chat-threads"), *path = path_of("%s/t.jinja", root);
  int i;
  (void)state;
  put_text(path, busy);
  assert_int_equal(hr_chat_open(path, NULL, &chat, &error), HR_OK);
  for (i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, render_often, chat), 0);
  for (i = 0; i < 4; i++) {
    void *result;
    assert_int_equal(pthread_join(threads[i], &result), 0);
    assert_ptr_equal(result, chat);
  }
  hr_chat_close(chat);
  scratch_remove(root);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_vectors),       cmocka_unit_test(test_refused),
      cmocka_unit_test(test_bad_source),    cmocka_unit_test(test_limits),
      cmocka_unit_test(test_growing_text),  cmocka_unit_test(test_many_rounds),
      cmocka_unit_test(test_long_chains),   cmocka_unit_test(test_many_names),
      cmocka_unit_test(test_corners),       cmocka_unit_test(test_colliding_keys),
      cmocka_unit_test(test_conversations), cmocka_unit_test(test_many_keys),
      cmocka_unit_test(test_clock),         cmocka_unit_test(test_sources),
      cmocka_unit_test(test_gguf),          cmocka_unit_test(test_token_that_is_no_text),
      cmocka_unit_test(test_presets),       cmocka_unit_test(test_memory_refused),
      cmocka_unit_test(test_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
