/* Regular expressions over short names (src/base/automaton.h): what Python 3.11's re.fullmatch says of the same expressions and
 * texts, recorded here as text; what is refused; and that time does not grow with what an expression repeats. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/automaton.h"

static const char *const texts[] = {"model.layers.0.self_attn.q_proj",
                                    "model.layers.11.mlp.down_proj",
                                    "transformer.h.2.attn.c_attn",
                                    "a",
                                    "ab",
                                    "aab",
                                    "b.",
                                    "",
                                    "a{",
                                    "a{x}",
                                    "]",
                                    "x\ny",
                                    "aaa"};
enum { TEXTS = sizeof texts / sizeof *texts };

static hri_automaton pattern;

/* A digit for each text. */
static void as_python(void **state) {
  static const struct {
    const char *expression, *matches;
  } all[] = {
      {".*\\.(q|v)_proj", "1000000000000"},
      {"(.*\\.)?(q_proj)$", "1000000000000"},
      {"^(?!.*mlp).*proj$", "1000000000000"},
      {"(.*\\.)?(^model.layers.0.self_attn.q_proj)$", "1000000000000"},
      {"\\bmodel\\.layers\\.[\\d]{1,}\\.(?:self_attn|mlp)\\.(?:(?:q_proj|down_proj))", "1100000000000"},
      {"((a*)*)*b", "0000110000000"},
      {"(a|b|)*", "0001110100001"},
      {"a{2}|a{,1}b", "0000100000000"},
      {"a{", "0000000010000"},
      {"a{x}", "0000000001000"},
      {"[]a]+", "0001000000101"},
      {"[^]a]", "0000000000000"},
      {"(?P<n>a)b", "0000100000000"},
      {"", "0000000100000"},
      {"a||b", "0001000100000"},
      {".", "0001000000100"},
      {"x\\sy", "0000000000010"},
      {"[a-c\\d]+?", "0001110000001"},
      {"a\\b.*", "0001000011000"},
      {"\\w+\\B\\w", "0000110000001"},
      {"\\Aab\\Z", "0000100000000"},
      {"(?=a)a.", "0000100010000"},
      {"a{2,}", "0000000000001"},
      {".*?(?:language|layers).*?(?:q_proj|c_attn).*?", "1000000000000"},
  };
  (void)state;
  for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
    const char *fault = hri_automaton_compile(&pattern, all[k].expression);
    if (fault) fail_msg("%s: %s", all[k].expression, fault);
    for (size_t t = 0; t < TEXTS; t++)
      if (hri_automaton_matches(&pattern, texts[t]) != (all[k].matches[t] == '1'))
        fail_msg("'%s' and '%s': otherwise than Python", all[k].expression, texts[t]);
  }
}

static void refused(void **state) {
  static const char *const bad[] = {"a{3,1}", "(a",      "a)",    "[a",      "*a",     "a**",
                                    "\\1",    "\\",      "a*+",   "(?<=a)b", "(?i)a",  "^*",
                                    "\\b+",   "a{2}{2}", "[b-a]", "\\q",     "a{999}", "(?=.*(?=.*a)b)"};
  (void)state;
  for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
    if (!hri_automaton_compile(&pattern, bad[k])) fail_msg("took '%s'", bad[k]);
}

/* States and sets are limited; the limit is met by name, not by writing beyond it. */
static void too_large(void **state) {
  (void)state;
  assert_non_null(hri_automaton_compile(&pattern, "(abcdefgh){256}"));
  assert_non_null(hri_automaton_compile(&pattern, "((a{99}){99}){99}"));
  assert_non_null(hri_automaton_compile(&pattern, "((((((((((((((((((((((((((((((((((((((((a"));
}

/* What a backtracking matcher takes longer than the universe for. */
static void in_time(void **state) {
  (void)state;
  assert_null(hri_automaton_compile(&pattern, "(a*)*(a|a)*(a?){60}b"));
  assert_false(
      hri_automaton_matches(&pattern, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(as_python), cmocka_unit_test(refused),
                                     cmocka_unit_test(too_large), cmocka_unit_test(in_time)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
