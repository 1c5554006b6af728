/* Each case of tests/explain/cases as it looks in a system's log, a container's, a runner's of jobs, a page's source, from
 * Windows and from PowerShell, coloured, copied from a terminal: what carried the text changes nothing
 * of what is read, neither of a failure nor of a text that is none. Then below what people paste before a message. */
#include "explain/cases.h"

enum { MOST = 64 * 1024 };

typedef struct carrier {
  const char *name, *before, *behind; /* each line */
  const char *first, *last;           /* the text */
  bool is_log; /* a time says that each line is a log's, which decides where the words alone do not */
} carrier;

static const carrier carriers[] = {
    {"syslog", "May  1 10:11:12 host7 train[4242]: ", "", "", "", false},
    {"the journal, with ISO times", "2024-05-01T10:11:12+0200 host7 python3[4242]: ", "", "", "", false},
    {"a container's runtime", "2024-05-01T10:11:12.123456789Z stderr F ", "", "", "", true},
    {"a container's runtime, of which the times were asked for", "2024-05-01T10:11:12.123456789Z ", "", "", "", true},
    {"a runner of jobs", "2024-05-01T10:11:12.1234567Z ", "", "", "", true},
    {"a runner of jobs, with its steps", "train\tRun training\t2024-05-01T10:11:12.1234567Z ", "", "", "", true},
    {"a builder of images", "#12 45.123 ", "", "", "", true},
    {"a launcher", "stderr: ", "", "", "", false},
    {"Windows", "", "\r", "", "", false},
    {"a terminal's copy", "", "      ", "", "", false},
    {"colours", "\x1b[31m", "\x1b[0m", "", "", false},
    {"colours of more kinds, as tput ends them", "\x1b[38:5:196m\x1b[38;2;1;2;3m", "\x1b(B\x1b[m\x1b[0 q", "", "",
     false},
    {"colours written out", "\\u001b[38;2;255;255;255m", "\\u001b[0m\\u001b[K", "", "", false},
    {"a terminal's titles and links", "\x1b]0;title\a\x1b]8;;file:///a.py\x1b\\",
     "\x1b]8;;\x1b\\\x1b"
     "7",
     "", "", false},
    {"what nobody sees", "\xef\xbb\xbf\xe2\x80\x8b", "\a\xc2\xad\xe2\x81\xa0", "", "", false},
    {"a page's source", "", "", "<pre><code class=\"text\">", "</code></pre>\n", false},
    {"a mark of UTF-8", "", "", "\xef\xbb\xbf", "", false},
};

static void put(char *to, size_t *at, const char *text, size_t count) {
  assert_true(*at + count < MOST);
  memcpy(to + *at, text, count);
  *at += count;
}

static size_t carry(const carrier *c, const char *text, char *to) {
  size_t at = 0;
  put(to, &at, c->first, strlen(c->first));
  for (const char *end; *text; text = *end ? end + 1 : end) {
    end = text + strcspn(text, "\n");
    put(to, &at, c->before, strlen(c->before));
    put(to, &at, text, (size_t)(end - text));
    put(to, &at, c->behind, strlen(c->behind));
    put(to, &at, "\n", 1);
  }
  put(to, &at, c->last, strlen(c->last));
  return at;
}

/* As PowerShell writes it: little-endian, with its mark. */
static size_t to_utf16(const char *text, char *to) {
  size_t at = 0;
  put(to, &at, "\xff\xfe", 2);
  for (const unsigned char *s = (const unsigned char *)text; *s;) {
    uint32_t point = *s, more = point < 0x80 ? 0 : point < 0xe0 ? 1 : point < 0xf0 ? 2 : 3, unit;
    if (more) point &= 0x3fu >> more;
    for (s++; more > 0; more--) point = point << 6 | (*s++ & 0x3fu);
    for (int half = point < 0x10000; half < 2; half++) {
      unit = point < 0x10000 ? point
             : half == 0     ? 0xd800 + ((point - 0x10000) >> 10)
                             : 0xdc00 + ((point - 0x10000) & 0x3ff);
      put(to, &at, (char[]){(char)(unit & 0xff), (char)(unit >> 8)}, 2);
    }
  }
  return at;
}

/* Docker's objects, one a line; `spaced` as tools that read and write them do. */
static size_t to_objects(const char *text, bool spaced, char *to) {
  static const char *const begin[] = {"{\"log\":\"", "{\"log\": \""};
  static const char *const end_of[] = {"\\n\",\"stream\":\"stderr\",\"time\":\"2024-05-01T10:11:12.1Z\"}\n",
                                       "\\n\", \"stream\": \"stderr\", \"time\": \"2024-05-01T10:11:12.1Z\"}\n"};
  size_t at = 0;
  for (const char *end; *text; text = *end ? end + 1 : end) {
    end = text + strcspn(text, "\n");
    put(to, &at, begin[spaced], strlen(begin[spaced]));
    for (const char *s = text; s < end; s++) {
      const char *code = *s == '<'    ? "\\u003c"
                         : *s == '>'  ? "\\u003e"
                         : *s == '&'  ? "\\u0026"
                         : *s == '\t' ? "\\t"
                                      : NULL;
      if (*s == '"' || *s == '\\') put(to, &at, "\\", 1);
      put(to, &at, code ? code : s, code ? strlen(code) : 1);
    }
    put(to, &at, end_of[spaced], strlen(end_of[spaced]));
  }
  return at;
}

/* A page that writes signs, and some letters, by their numbers. */
static size_t to_numbers(const char *text, char *to) {
  size_t at = 0;
  for (char number[8]; *text; text++) {
    const bool numbered = strchr("'<>&o", *text) != NULL;
    (void)snprintf(number, sizeof number, *text == 'o' ? "&#x%x;" : "&#%d;", (int)*text);
    put(to, &at, numbered ? number : text, numbered ? strlen(number) : 1);
  }
  return at;
}

/* With the number of each line, as an editor or a viewer shows it. */
static size_t to_numbered(const char *text, const char *before, const char *behind, char *to) {
  char number[24];
  size_t at = 0;
  unsigned line = 0;
  for (const char *end; *text; text = *end ? end + 1 : end) {
    end = text + strcspn(text, "\n");
    put(to, &at, number, (size_t)snprintf(number, sizeof number, "%s%u%s", before, ++line, behind));
    put(to, &at, text, (size_t)(end - text));
    put(to, &at, "\n", 1);
  }
  return at;
}

/* As an address carries it. */
static size_t to_address(const char *text, char *to) {
  size_t at = 0;
  for (char sign[4]; *text; text++)
    if (strchr(" %:|()\"'<>", *text))
      put(to, &at, sign, (size_t)snprintf(sign, sizeof sign, "%%%02X", (unsigned)*text));
    else put(to, &at, text, 1);
  return at;
}

/* With blanks that do not break, as pages and word processors set them. */
static size_t to_unbroken(const char *text, char *to) {
  size_t at = 0;
  for (; *text; text++)
    if (*text == ' ') put(to, &at, "\xc2\xa0", 2);
    else put(to, &at, text, 1);
  return at;
}

static hr_explanation *explain(const char *text, size_t count) {
  hr_explanation *e;
  assert_int_equal(hr_explain_text(text, count, NULL, &e, NULL), HR_OK);
  return e;
}

static bool same(const hr_explanation *a, const hr_explanation *b) {
  const hr_oom_failure *f, *g;
  if (a->failure_count == 0 || b->failure_count == 0) return a->failure_count == b->failure_count;
  f = &a->failures[a->primary];
  g = &b->failures[b->primary];
  if (f->cause != g->cause || f->certainty != g->certainty || strcmp(f->source, g->source) != 0) return false;
  for (int k = 0; k < HR_OOM_FIGURE_COUNT; k++)
    if (f->figures[k].state != g->figures[k].state || f->figures[k].bytes != g->figures[k].bytes) return false;
  return true;
}

/* What is read is that of the text as it is, or, where its carrier makes a log of it, that of a log. */
static void check_either(const char *name, const hr_explanation *plain, const hr_explanation *log, const char *text,
                         size_t count, size_t *wrong) {
  hr_explanation *e = explain(text, count);
  if (!same(plain, e) && !same(log, e)) {
    print_message("%s changes what is read: %s, not %s, of\n%.*s\n", name,
                  e->failure_count ? e->failures[e->primary].verdict : "nothing",
                  plain->failure_count ? plain->failures[plain->primary].verdict : "nothing", (int)count, text);
    ++*wrong;
  }
  hr_explanation_destroy(e);
}

static void check(const char *name, const hr_explanation *plain, const char *text, size_t count, size_t *wrong) {
  check_either(name, plain, plain, text, count, wrong);
}

/* A word of a wrapped line may end with the line; a copy that fills lines up loses the mark of that. */
static void visit(const explain_case *c, void *context) {
  static char text[MOST];
  static const carrier dated = {"a time", "2024-05-01 10:11:12 ", "", "", "", true};
  hr_explanation *plain = explain(c->text, strlen(c->text)), *log = explain(text, carry(&dated, c->text, text));
  for (size_t i = 0; i < sizeof carriers / sizeof *carriers; i++)
    check_either(carriers[i].name, plain, carriers[i].is_log ? log : plain, text, carry(&carriers[i], c->text, text),
                 context);
  check("UTF-16", plain, text, to_utf16(c->text, text), context);
  check("a container's objects", plain, text, to_objects(c->text, false, text), context);
  check("a container's objects with blanks", plain, text, to_objects(c->text, true, text), context);
  check("an editor's numbers", plain, text, to_numbered(c->text, "   ", "\t", text), context);
  if (c->text[0] != ' ' && c->text[0] != '\t') /* "1:  x" may be a rank's */
    check("grep's numbers", plain, text, to_numbered(c->text, "", ":", text), context);
  check("a viewer's numbers before a bar", plain, text, to_numbered(c->text, " ", " | ", text), context);
  if (strchr(c->text, ' ') && strcspn(c->text, "\n") + 1 >= strlen(c->text)) /* one line of several words */
    check("an address", plain, text, to_address(c->text, text), context);
  check("blanks that do not break", plain, text, to_unbroken(c->text, text), context);
  check("a page's numbers", plain, text, to_numbers(c->text, text), context);
  hr_explanation_destroy(plain);
  hr_explanation_destroy(log);
}

/* ---- what stands before ---- */

static const char *const contexts[] =
    {"Hi,\n\n",
     "(venv) user@host:~/work$ python train.py --batch-size 32 --fp16\n",
     "$ CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node=2 train.py \\\n    --model gpt2 \\\n    --batch 8\n",
     "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\nexport OMP_NUM_THREADS=4\n",
     "Namespace(batch_size=32, lr=0.001, model='gpt2', fp16=True)\n",
     "GPT2LMHeadModel(\n  (transformer): GPT2Model(\n    (wte): Embedding(50257, 768)\n  )\n)\n",
     "lib/data.py:557: UserWarning: This DataLoader will create 8 workers\n  warnings.warn(_create_warning_msg(\n",
     "My code:\n```python\nmodel = Model()\nfor x in loader:\n    loss = model(x)\n```\nThe error:\n",
     ">>> x = torch.zeros(1 << 40).cuda()\n",
     "In [3]: x = torch.zeros(1 << 40)\n",
     "+---------+---------+\n| GPU 0   | 23 GiB  |\n+---------+---------+\n",
     "- OS: Ubuntu 22.04\n- Python: 3.10\n- GPU: RTX 4090\n\n",
     "{'batch_size': 32, 'lr': 0.001}\n",
     "model: gpt2\ntrainer:\n  max_steps: 1000\n",
     "- [x] I have searched\n- [ ] This is a question\n\n### What happened?\n\n"};

typedef struct tally {
  size_t failures, lost[sizeof contexts / sizeof *contexts];
} tally;

static void visit_behind(const explain_case *c, void *context) {
  static char text[MOST];
  tally *t = context;
  hr_explanation *plain;
  if (strcmp(c->head, "no") == 0) return;
  plain = explain(c->text, strlen(c->text));
  t->failures++;
  for (size_t i = 0; i < sizeof contexts / sizeof *contexts; i++) {
    hr_explanation *e;
    size_t at = 0;
    put(text, &at, contexts[i], strlen(contexts[i]));
    put(text, &at, c->text, strlen(c->text));
    e = explain(text, at);
    t->lost[i] += plain->failure_count > 0 && e->failure_count == 0;
    hr_explanation_destroy(e);
  }
  hr_explanation_destroy(plain);
}

static const char *const files[] = {"caps",    "devices", "families", "frameworks", "hosts",  "named",
                                    "numbers", "parts",   "reports",  "silent",     "source", "speakers",
                                    "survey",  "survey2", "survey3",  "talk"};

/* What people paste before a message hides it in no more than one of a hundred: titles, which are such as the first line
 * alone. */
static void test_contexts(void **state) {
  static char buffer[EXPLAIN_CASE_BYTES];
  tally t = {0};
  (void)state;
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) (void)each_case(files[i], buffer, visit_behind, &t);
  assert_true(t.failures > 900);
  for (size_t i = 0; i < sizeof contexts / sizeof *contexts; i++) {
    if (t.lost[i] > t.failures / 100) print_message("%zu of %zu lost behind\n%s\n", t.lost[i], t.failures, contexts[i]);
    assert_true(t.lost[i] <= t.failures / 100);
  }
}

static void test_carriers(void **state) {
  static char buffer[EXPLAIN_CASE_BYTES];
  size_t wrong = 0, cases = 0;
  (void)state;
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) cases += each_case(files[i], buffer, visit, &wrong);
  assert_true(cases > 1700);
  assert_int_equal(wrong, 0);
}

/* A line that is too long to be read as one comes in parts: wherever it is parted, no colour, sign or figure is cut in two. */
static void test_long_lines(void **state) {
  static const char *const forms[] = {
      "CUDA out of memory. Tried to allocate 3.00 \x1b[1;38;2;255;0;0mGiB\x1b[0m. GPU 0 has a total capacity of 23.64 GiB of which 1.20 "
      "\x1b[1mGiB\x1b[0m is free. Of the allocated memory 20.00 \\u001b[1mGiB\\u001b[0m is allocated by PyTorch, and 1.90 GiB is "
      "reserved by PyTorch but unallocated.\n",
      "CUDA out of memory. Tried to allocate 3.00&nbsp;GiB. GPU 0 has a total capacity of 23.64&#160;GiB of which 1.20 <span "
      "class=\"size\">GiB</span> is free. Of the allocated memory 20.00&#xa0;GiB is allocated by PyTorch, and "
      "1.90\xc2\xa0GiB is reserved by PyTorch but unallocated.\n",
      ("CUDA out of memory.\\nTried to allocate 3.00\\u00a0GiB.\\nGPU 0 has a total capacity of 23.64 GiB of\\nwhich 1.20 GiB is "
       "free. Of the\\nallocated memory 20.00 GiB is allocated by\\nPyTorch, and 1.90 GiB is reserved by PyTorch but unallocated.\n")};
  enum { LEAST = 3500, LAST = 4200 };
  static char text[MOST];
  (void)state;
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    hr_explanation *plain = explain(forms[i], strlen(forms[i]));
    size_t wrong = 0;
    assert_int_equal(plain->failures[0].figures[HR_OOM_UNALLOCATED].bytes, 2040109466);
    for (size_t count = LEAST; count < LAST; count++) {
      memset(text, 'z', count);
      text[count] = ' ';
      memcpy(text + count + 1, forms[i], strlen(forms[i]));
      check("what stands before in the line", plain, text, count + 1 + strlen(forms[i]), &wrong);
    }
    assert_int_equal(wrong, 0);
    hr_explanation_destroy(plain);
  }
}

/* Of a line that says one thing over and over no more is read than is worth it, whatever its length: a place costs as much as some
 * hundred bytes. Whole messages, which are as long as that themselves, are all read. */
static void test_repeated_line(void **state) {
  static const char *const words[] = {"code 137 ", "OOMKilled ", "exit code 137, ", "process was killed. "};
  static const char whole[] =
      "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 10.00 GiB total capacity; 1.00 GiB already allocated). ";
  enum { COUNT = 1 << 18, PART = 4096, MOST_OF_PART = 33, WHOLE = COUNT / (sizeof whole - 1) };
  static char text[COUNT];
  hr_explanation *e;
  (void)state;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    for (size_t at = 0; at < COUNT; at++) text[at] = words[i][at % strlen(words[i])];
    e = explain(text, COUNT);
    assert_true(e->failure_count > 0);
    assert_true(e->failures[0].repeats + e->more < (COUNT / PART + 1) * MOST_OF_PART);
    hr_explanation_destroy(e);
  }
  size_t at = 0; /* enough short ones hide no whole message behind them */
  while (at < 1024) at += (size_t)snprintf(text + at, COUNT - at, "worker %zu exited with code 137 ", at);
  memcpy(text + at, whole, sizeof whole - 1);
  e = explain(text, at + sizeof whole - 1);
  assert_int_equal(e->failures[e->primary].figures[HR_OOM_REQUESTED].bytes, 2ull << 30);
  hr_explanation_destroy(e);
  for (size_t i = 0; i < WHOLE; i++) memcpy(text + i * (sizeof whole - 1), whole, sizeof whole - 1);
  e = explain(text, WHOLE * (sizeof whole - 1));
  assert_int_equal(e->failure_count, 1);
  assert_int_equal(e->failures[0].repeats, WHOLE - 1);
  hr_explanation_destroy(e);
}

/* A number before a colon is a rank's as long as the lines before do not tell that it is theirs. */
static void test_ranks_numbers(void **state) {
  static const char message[] = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n";
  static const struct {
    const char *before;
    int32_t rank;
  } known[] = {{"1:\n2: ", 2}, {"1:start\n2: ", 2}, {"1:start\n2:  go\n3: ", -1}, {"1:start\n2:go\n3: ", -1}};
  (void)state;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    char text[256];
    (void)snprintf(text, sizeof text, "%s%s", known[i].before, message);
    hr_explanation *e = explain(text, strlen(text));
    assert_int_equal(e->failures[0].rank, known[i].rank);
    hr_explanation_destroy(e);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_carriers), cmocka_unit_test(test_contexts),
                                     cmocka_unit_test(test_long_lines), cmocka_unit_test(test_repeated_line),
                                     cmocka_unit_test(test_ranks_numbers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
