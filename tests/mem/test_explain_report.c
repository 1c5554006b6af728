/* Failures of speakers that nobody has met (tests/explain/cases/reports.txt; that each is judged right, test_explain_speakers.c
 * says): one failure each, the same behind prefixes; messages cut within a word or a number. */
#include "explain/cases.h"

#define CERTAIN HR_OOM_CERTAIN
#define COUNT(list) (sizeof(list) / sizeof *(list))

#define explain explain_text

static char cases[EXPLAIN_CASE_BYTES];

static bool is_near(const hr_oom_value *v, double bytes) {
  double apart = (double)v->bytes - bytes;
  if (bytes == 0) return v->state != HR_OOM_READ || v->bytes == 0;
  return v->state == HR_OOM_READ && apart <= bytes * 1e-6 + 2 && -apart <= bytes * 1e-6 + 2;
}

/* Each is one failure, whatever is repeated in it. */
static void count_one(const explain_case *c, void *context) {
  hr_explanation *e = explain(c->text);
  size_t *wrong = context;
  if (e->failure_count != 1) print_message("%u failures: %s\n", e->failure_count, c->text);
  *wrong += e->failure_count != 1;
  hr_explanation_destroy(e);
}

static void test_reports_are_one(void **state) {
  size_t wrong = 0;
  (void)state;
  assert_true(each_case("reports", cases, count_one, &wrong) > 80);
  assert_int_equal(wrong, 0);
}

/* The same lines behind what loggers, ranks and editors put before them, and in a UTF-8 log of other languages. */
static void check_prefixes(const explain_case *c, void *context) {
  static const char *const prefixes[] = {"[rank3]: ", "2024-05-01 12:00:00,123 ", "\xe2\x9d\x8c ", "gpu-node-3: "};
  char text[2048];
  (void)context;
  for (size_t p = 0; p < COUNT(prefixes); p++) {
    hr_explanation *e;
    (void)snprintf(text, sizeof text, "%s%s", prefixes[p], c->text);
    e = explain(text);
    if (e->failure_count && e->failures[e->primary].certainty == CERTAIN) {
      const char *cause = hr_oom_cause_name(e->failures[e->primary].cause);
      if (strncmp(c->head, cause, strlen(cause)) != 0) print_message("%s, not %s: %s\n", cause, c->head, text);
      assert_memory_equal(c->head, cause, strlen(cause));
    }
    hr_explanation_destroy(e);
  }
}

static void test_reports_behind_prefixes(void **state) {
  (void)state;
  assert_true(each_case("reports", cases, check_prefixes, NULL) > 80);
}

/* Whatever is cut off in front or behind: no figure is read that the whole does not have, and none is certain of
 * another cause than the whole. */
static void test_cuts(void **state) {
  static const char *const wholes[] = {
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 23.65 GiB "
      "of which 31.06 MiB is free. Including non-PyTorch memory, this process has 23.61 GiB memory in use. Of the "
      "allocated memory 22.87 GiB is allocated by PyTorch, and 158.23 MiB is reserved by PyTorch but unallocated.",
      "RuntimeError: CUDA out of memory. Tried to allocate 384.00 MiB (GPU 0; 11.78 GiB total capacity; 10.91 GiB already "
      "allocated; 125.31 MiB free; 11.07 GiB reserved in total by PyTorch)"};
  (void)state;
  for (size_t w = 0; w < COUNT(wholes); w++) {
    size_t count = strlen(wholes[w]);
    hr_explanation *whole = explain(wholes[w]);
    for (size_t cut = 1; cut < 2 * count; cut++) {
      size_t from = cut < count ? cut : 0, to = cut < count ? count : 2 * count - cut;
      hr_explanation *e;
      hr_error error;
      assert_int_equal(hr_explain_text(wholes[w] + from, to - from, NULL, &e, &error), HR_OK);
      for (uint32_t i = 0; i < e->failure_count; i++) {
        const hr_oom_failure *f = &e->failures[i];
        for (int v = 0; v < HR_OOM_FIGURE_COUNT; v++)
          if (f->figures[v].state == HR_OOM_READ) {
            if (f->figures[v].bytes != whole->failures[0].figures[v].bytes)
              print_message("%s: %.*s\n", hr_oom_figure_name((hr_oom_figure)v), (int)(to - from), wholes[w] + from);
            assert_int_equal(f->figures[v].bytes, whole->failures[0].figures[v].bytes);
          }
        assert_true(f->certainty != CERTAIN || f->cause == whole->failures[0].cause);
      }
      if (to - from > count * 2 / 3) assert_int_equal(e->failure_count, 1);
      hr_explanation_destroy(e);
    }
    hr_explanation_destroy(whole);
  }
}

/* A part that the end of the text cut within its words is read where the words tell it from the others. */
static void test_cut_words(void **state) {
  hr_explanation *e =
      explain("CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 7.75 GiB total capacity; 7.25 GiB alre...");
  (void)state;
  assert_true(is_near(&e->failures[0].figures[HR_OOM_ALLOCATED], 7.25 * 1073741824.0));
  assert_int_equal(e->failures[0].cause, HR_OOM_TOO_BIG);
  hr_explanation_destroy(e);
  e = explain(
      "of memory. Tried to allocate 2.00 GiB (GPU 0; 7.75 GiB total capacity; 7.25 GiB already allocated; 64.00 MiB fr");
  assert_true(is_near(&e->failures[0].figures[HR_OOM_FREE], 67108864.0));
  hr_explanation_destroy(e);
  e = explain(
      "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 11.91 GiB total capacity; 500.00 MiB already allocated; 15.00 MiB "
      "free; 520.00 MiB reserved in to\nthe run ended; see the log for more of it\n");
  assert_true(is_near(&e->failures[0].figures[HR_OOM_RESERVED], 520 * 1048576.0));
  assert_int_equal(e->failures[0].cause, HR_OOM_OTHER_PROCESS);
  hr_explanation_destroy(e);
  e = explain(
      "5 GiB total capacity; 6.50 GiB already allocated; 64.00 MiB free; 7.25 GiB reserved in total by PyTorch)");
  assert_int_equal(e->failure_count, 1);
  assert_int_equal(e->failures[0].figures[HR_OOM_TOTAL].state, HR_OOM_ABSENT);
  hr_explanation_destroy(e);
}

/* What a report says again in other words, before or behind the message that says more, is one failure. */
static void test_one_failure_once(void **state) {
  static const char *const texts[] =
      {"engine: failed to allocate the KV cache on GPU 0\nRuntimeError: CUDA error: out of memory\n",
       "RuntimeError: CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 8.00 GiB total capacity; 5.00 GiB already "
       "allocated; 0.50 GiB free; 7.40 GiB reserved in total by PyTorch)\nserver: ERROR: memory allocation failed\n"};
  (void)state;
  for (size_t i = 0; i < COUNT(texts); i++) {
    hr_explanation *e = explain(texts[i]);
    assert_int_equal(e->failure_count, 1);
    assert_non_null(strstr(e->failures[0].source, "pytorch"));
    hr_explanation_destroy(e);
  }
}

/* What was asked for tells two failures of unknown speakers apart; the same size in other words is the same one. */
static void test_other_requests(void **state) {
  static const char first[] =
      "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 7.79 GiB total capacity; 5.20 GiB "
      "already allocated; 1.00 GiB free; 5.30 GiB reserved in total by PyTorch)\n";
  static const struct {
    const char *line;
    uint32_t failures;
  } behind[] = {{"server: ERROR: failed to allocate 2147483648 bytes\n", 1},
                {"server: ERROR: failed to allocate 2048 MiB\n", 1},
                {"ERROR: could not allocate 3.5 GB of system memory for the shuffle buffer\n", 2}};
  (void)state;
  for (size_t i = 0; i < COUNT(behind); i++) {
    char text[1024];
    hr_explanation *e;
    (void)snprintf(text, sizeof text, "%s%s", first, behind[i].line);
    e = explain(text);
    assert_int_equal(e->failure_count, behind[i].failures);
    if (e->failure_count > 1) assert_int_equal(e->failures[1].cause, HR_OOM_HOST_MEMORY);
    assert_int_equal(e->primary, 0);
    hr_explanation_destroy(e);
  }
}

/* Behind as many failures as are kept one that says more takes the room of one that says least; all are counted. */
static void test_more_than_are_kept(void **state) {
  enum { OTHERS = 80, LINES_BETWEEN = 45 };
  static char text[OTHERS * (64 + 2 * LINES_BETWEEN) + 1024];
  size_t count = 0;
  hr_explanation *e;
  (void)state;
  for (unsigned k = 1; k <= OTHERS; k++) {
    count += (size_t)snprintf(text + count, sizeof text - count, "pool: failed to allocate %u bytes\n", k << 21);
    for (unsigned l = 0; l < LINES_BETWEEN; l++) count += (size_t)snprintf(text + count, sizeof text - count, "x\n");
  }
  (void)snprintf(
      text + count, sizeof text - count,
      "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 7.79 GiB total capacity; 5.20 GiB already allocated; 1.00 GiB free; "
      "5.30 GiB reserved in total by PyTorch)\n");
  e = explain(text);
  assert_int_equal(e->failure_count, HR_OOM_MAX_FAILURES);
  assert_int_equal(e->more, OTHERS + 1 - HR_OOM_MAX_FAILURES);
  assert_int_equal(e->primary, HR_OOM_MAX_FAILURES - 1);
  assert_string_equal(e->failures[e->primary].source, "pytorch-cuda");
  for (uint32_t i = 1; i < e->failure_count; i++) assert_true(e->failures[i].line > e->failures[i - 1].line);
  hr_explanation_destroy(e);
}

/* The allocator writes a line when the device refuses, and another where it does so again behind what was returned of the cache. A
 * run near the device's edge writes many such pairs, for requests that were then served; the message that ended it is what there is to
 * explain, behind one of them and behind more than are kept. Where it has the request of the last pair they are one failure. */
static void test_requests_that_were_served(void **state) {
  enum { MANY = 12000 }; /* more than messages are read of any other kind */
  static const uint32_t pairs[] = {1, 2, 3 * HR_OOM_MAX_FAILURES, MANY};
  static char text[2 * (MANY + 4) * 160];
  (void)state;
  for (size_t i = 0; i < 2 * COUNT(pairs); i++) {
    const uint32_t last = pairs[i / 2];
    const bool same = i % 2 == 0; /* the last is the request that the message tells of */
    size_t count = 0;
    const hr_oom_failure *f;
    hr_explanation *e;
    for (uint32_t k = 0; k < 2 * last; k++)
      count += (size_t)snprintf(
          text + count, sizeof text - count,
          "[W1128 CUDACachingAllocator.cpp:3934] memory allocation failed with OOM on device 0 while trying to allocate %u bytes (free: "
          "%u, total: 419430400).\n",
          ((last - k / 2 - 1) % 300 + (same ? 20 : 21)) << 20, (k % 2 + 1) << 20);
    (void)snprintf(
        text + count, sizeof text - count,
        "saved oom-rank0.pickle\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total "
        "capacity of 400.00 MiB of which 2.00 MiB is free. Of the allocated memory 388.43 MiB is allocated by PyTorch, and 9.57 "
        "MiB is reserved by PyTorch but unallocated.\n");
    e = explain(text);
    f = &e->failures[e->primary];
    assert_int_equal(f->cause, HR_OOM_TOO_BIG);
    assert_int_equal(f->line, 2 * last + 2);
    assert_int_equal(f->figures[HR_OOM_REQUESTED].bytes, 20 << 20);
    if (last < HR_OOM_MAX_FAILURES) assert_int_equal(e->failure_count, last + !same);
    else assert_int_equal(e->failure_count, HR_OOM_MAX_FAILURES);
    uint32_t told = 0; /* none of the refused requests is lost, and none is a message beyond */
    for (uint32_t k = 0; k < e->failure_count; k++) {
      assert_int_equal(e->failures[k].asked_again, k != e->primary);
      if (k != e->primary) told += (uint32_t)e->failures[k].repeats + 1;
    }
    assert_true(told >= (last < 300 ? last - same : 299));
    assert_int_equal(e->more, 0);
    hr_explanation_destroy(e);
  }
}

/* Where the failures of many ranks leave room for none of the requests that were served, each of both is counted all the same. */
static void test_served_requests_find_no_room(void **state) {
  enum { SERVED = 40, RANKS = HR_OOM_MAX_FAILURES };
  static char text[(SERVED + RANKS) * 400];
  size_t count = 0;
  uint64_t told = 0;
  hr_explanation *e;
  (void)state;
  for (unsigned k = 0; k < SERVED; k++)
    count += (size_t)snprintf(
        text + count, sizeof text - count,
        "[W1128 CUDACachingAllocator.cpp:3934] memory allocation failed with OOM on device 0 while trying to allocate %u bytes (free: "
        "1048576, total: 84987084800).\n",
        (k + 1) << 21);
  for (unsigned rank = 0; rank < RANKS; rank++)
    count += (size_t)snprintf(
        text + count, sizeof text - count,
        "[rank%u]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate %u.00 GiB. GPU %u has a total capacity of 79.15 GiB "
        "of which 1.06 GiB is free. Of the allocated memory 60.00 GiB is allocated by PyTorch, and 500.00 MiB is reserved by PyTorch "
        "but unallocated.\n",
        rank, rank + 2, rank % 8);
  e = explain(text);
  for (uint32_t i = 0; i < e->failure_count; i++) told += e->failures[i].repeats + 1;
  assert_int_equal(told + e->more, SERVED + RANKS);
  hr_explanation_destroy(e);
}

/* The figures of two failures that stand beside each other stay apart. */
static void test_figures_stay_apart(void **state) {
  hr_explanation *e = explain(
      "server: CUBLAS_STATUS_NOT_INITIALIZED when calling cublasCreate(handle)\nor\nserver: CUDA out of memory. Tried to "
      "allocate 28.00 MiB (GPU 0; 3.75 GiB total capacity; 320.00 MiB already allocated; 91.00 MiB free; 334.00 MiB "
      "reserved in total by PyTorch)");
  (void)state;
  assert_int_equal(e->failure_count, 2);
  for (int v = 0; v < HR_OOM_FIGURE_COUNT; v++) assert_int_equal(e->failures[0].figures[v].state, HR_OOM_ABSENT);
  assert_int_equal(e->primary, 1);
  hr_explanation_destroy(e);
  e = explain(
      "GPU memory: allocated 12.5 GiB, free 3.0 GiB, total 24 GiB\nCUDA error: out of memory\nGPU memory: free 1.0 GiB\n");
  assert_int_equal(e->failure_count, 1);
  for (int v = 0; v < HR_OOM_FIGURE_COUNT; v++) assert_int_equal(e->failures[0].figures[v].state, HR_OOM_ABSENT);
  hr_explanation_destroy(e);
}

static const char *const cached[][8] =
    {{"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB.",
      "GPU 0 has a total capacity of 23.64 GiB of", "which 1.20 GiB is free. Including non-PyTorch memory, this",
      "process has 22.40 GiB memory in use. Of the allocated memory",
      "20.00 GiB is allocated by PyTorch, and 1.90 GiB is reserved by", "PyTorch but unallocated."},
     {"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB.",
      "GPU 1 has a total capacity of 39.39 GiB of", "which 1.10 GiB is free. Including non-PyTorch memory, this",
      "process has 38.00 GiB memory in use. Of the allocated memory",
      "33.00 GiB is allocated by PyTorch, and 4.50 GiB is reserved by", "PyTorch but unallocated."}};
static const char *const async[][8] =
    {{"torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)",
      "Currently allocated     : 20.00 GiB", "Requested               : 2.00 GiB",
      "Device limit            : 23.64 GiB", "Free (according to CUDA): 0 bytes",
      "PyTorch limit (set by user-supplied memory fraction)", "                        : 17179869184.00 GiB"},
     {"torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)",
      "Currently allocated     : 3.00 GiB", "Requested               : 5.00 GiB", "Device limit            : 11.00 GiB",
      "Free (according to CUDA): 1.00 GiB", "PyTorch limit (set by user-supplied memory fraction)",
      "                        : 17179869184.00 GiB"}};

/* Two messages line by line in turns, each line behind a prefix: by bit k of `order` the second one's k-th line comes first. */
static hr_explanation *alternate(const char *const messages[2][8], const char *const prefixes[2], unsigned order) {
  char text[4096] = "";
  size_t count = 0;
  for (unsigned k = 0; k < 8 && messages[0][k]; k++)
    for (unsigned half = 0; half < 2; half++) {
      const unsigned which = half ^ (order >> k & 1);
      count += (size_t)snprintf(text + count, sizeof text - count, "%s%s\n", prefixes[which], messages[which][k]);
    }
  return explain(text);
}

/* Whether each figure that was read is the one of a message whose request it is. */
static bool is_unmixed(const hr_oom_failure *f, const hr_explanation *const wholes[2]) {
  for (int w = 0; w < 2; w++) {
    bool same = true;
    for (int v = 0; v < HR_OOM_FIGURE_COUNT; v++)
      same &= f->figures[v].state != HR_OOM_READ || f->figures[v].bytes == wholes[w]->failures[0].figures[v].bytes;
    if (same) return true;
  }
  return false;
}

/* Lines of two processes that alternate behind prefixes that nobody knows: no figure of one beside one of the other, and nothing certain. */
static void test_lines_that_alternate(void **state) {
  static const char *const prefixes[][2] = {{"", ""}, {"P0: ", "P1: "}, {"[P0] ", "[P1] "}, {"<0> ", "<1> "}};
  (void)state;
  for (size_t kind = 0; kind < 2; kind++) {
    const char *const(*messages)[8] = kind == 0 ? cached : async;
    char text[2][2048] = {"", ""};
    const hr_explanation *wholes[2];
    for (int w = 0; w < 2; w++) {
      for (unsigned k = 0; k < 8 && messages[w][k]; k++) {
        const size_t count = strlen(text[w]);
        (void)snprintf(text[w] + count, sizeof text[w] - count, "%s\n", messages[w][k]);
      }
      wholes[w] = explain(text[w]);
      assert_int_equal(wholes[w]->failures[0].figures[HR_OOM_TOTAL].state, HR_OOM_READ);
    }
    for (size_t p = 0; p < COUNT(prefixes); p++)
      for (unsigned order = 0; order < 128; order++) {
        hr_explanation *e = alternate(messages, prefixes[p], order);
        assert_true(e->failure_count > 0);
        for (uint32_t i = 0; i < e->failure_count; i++) {
          assert_true(is_unmixed(&e->failures[i], wholes));
          assert_int_equal(e->failures[i].certainty, HR_OOM_UNDECIDABLE);
        }
        hr_explanation_destroy(e);
      }
    for (int w = 0; w < 2; w++) hr_explanation_destroy((hr_explanation *)wholes[w]);
  }
}

/* Of messages of several lines that follow each other each is a failure. */
static void test_messages_in_a_row(void **state) {
  char text[4096] = "";
  hr_explanation *e;
  (void)state;
  for (int w = 0; w < 2; w++)
    for (unsigned k = 0; k < 8 && async[w][k]; k++) {
      const size_t count = strlen(text);
      (void)snprintf(text + count, sizeof text - count, "%s\n", async[w][k]);
    }
  e = explain(text);
  assert_int_equal(e->failure_count, 2);
  assert_true(is_near(&e->failures[0].figures[HR_OOM_REQUESTED], 2 * 1073741824.0));
  assert_true(is_near(&e->failures[1].figures[HR_OOM_REQUESTED], 5 * 1073741824.0));
  assert_true(is_near(&e->failures[1].figures[HR_OOM_FREE], 1073741824.0));
  hr_explanation_destroy(e);
}

/* Rich's bars between the lines of a message are no part of it, as tqdm's are not; one that stands before it in its line hides nothing. */
static void test_heavy_bars(void **state) {
#define BAR                                                                                                            \
  "Epoch 1/9 \xe2\x94\x81\xe2\x94\x81\xe2\x94\x81\xe2\x95\xb8 12/400 0:00:03 \xe2\x80\xa2 0:01:36 12.31it/s train_loss: 0.51 "
  static const char *const texts[] = {
      "CUDA out of memory. Tried to allocate 1.00\n" BAR
      "\nGiB. GPU 0 has a total capacity of 10.00 GiB of which 1.00\n" BAR
      "\nMiB is free. Of the allocated memory 9.50 GiB is allocated by PyTorch, and 10.00 MiB is reserved by PyTorch but unallocated.\n",
      BAR
      "CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 10.00 GiB of which 1.00 MiB is free. Of the "
      "allocated memory 9.50 GiB is allocated by PyTorch, and 10.00 MiB is reserved by PyTorch but unallocated.\n"};
#undef BAR
  (void)state;
  for (size_t i = 0; i < COUNT(texts); i++) {
    hr_explanation *e = explain(texts[i]);
    assert_int_equal(e->failure_count, 1);
    assert_true(is_near(&e->failures[0].figures[HR_OOM_REQUESTED], 1073741824.0));
    assert_true(is_near(&e->failures[0].figures[HR_OOM_FREE], 1048576.0));
    hr_explanation_destroy(e);
  }
}

/* A report whose line has its request takes no figure of the lines below, which are another's. */
static void test_lines_below(void **state) {
  static const char *const reports[] = {"ERROR: could not allocate 3.5 GB of system memory for the shuffle buffer",
                                        "memory allocation of 34359738368 bytes failed",
                                        "Error: could not allocate 4 GiB of host memory"};
  static const char *const below[] = {"Used: 7296MB, available 816MB, red zone: 7372MB",
                                      "Job has gone over memory limit of 2048 megabytes",
                                      "16.00 GiB out of the 15.42 GiB total memory is cached"};
  (void)state;
  for (size_t i = 0; i < COUNT(reports); i++)
    for (size_t b = 0; b < COUNT(below); b++) {
      char text[512];
      hr_explanation *e;
      (void)snprintf(text, sizeof text, "%s\n%s\n", reports[i], below[b]);
      e = explain(text);
      assert_true(e->failure_count >= 1);
      for (int v = 0; v < HR_OOM_FIGURE_COUNT; v++)
        assert_int_equal(e->failures[0].figures[v].state, v == HR_OOM_REQUESTED ? HR_OOM_READ : HR_OOM_ABSENT);
      hr_explanation_destroy(e);
    }
}

/* A message that ends with its request takes no figure of the lines below, and hides no failure that stands there, nor does one with all its
 * figures. */
static void test_messages_end(void **state) {
  static const char request[] = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB";
  static const char whole[] =
      "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.79 GiB total capacity; 5.20 GiB already allocated; 4.00 "
      "MiB free; 5.30 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid "
      "fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF";
  static const char *const lines[] = {"Disk: 5.20 GiB free",
                                      "host RAM: 1.00 GiB total, 0.20 GiB free",
                                      "epoch summary: 3.10 GiB cached, 5.00 GiB free",
                                      "dataset: 1.00 GB total; ok",
                                      "limit: 10.00 GiB allowed; ok",
                                      "retry: 11.00 GiB already allocated",
                                      "GPU memory: 24.0 GiB total, 5.00 GiB free",
                                      "GPU 1: 24.0 GiB total, 5.00 GiB free"};
  static const struct {
    const char *line, *source;
  } failures[] = {
      {"slurmstepd: error: Detected 1 oom_kill event in StepId=12.batch. Some of the step tasks have been OOM Killed.",
       "slurm"},
      {"RuntimeError: [enforce fail at alloc_cpu.cpp:73] . DefaultCPUAllocator: not enough memory: you tried to allocate "
       "1200000 bytes.",
       "pytorch-cpu"},
      {"java.lang.OutOfMemoryError: Java heap space", "java"}};
  static const char mps[] =
      "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 14.9 GiB for an array with shape (200000, 10000)\nRuntimeError: MPS "
      "backend out of memory (MPS allocated: 17.90 GB, other allocations: 400.00 MB, max allowed: 18.13 GB). Tried to allocate 256.00 MB "
      "on private pool.";
  char text[2048];
  (void)state;
  for (size_t i = 0; i < COUNT(lines); i++) {
    hr_explanation *e;
    (void)snprintf(text, sizeof text, i % 2 ? "%s\nretrying\n%s\n" : "%s\n%s\n", request, lines[i]);
    e = explain(text);
    assert_int_equal(e->failure_count, 1);
    for (int v = 0; v < HR_OOM_FIGURE_COUNT; v++)
      assert_int_equal(e->failures[0].figures[v].state, v == HR_OOM_REQUESTED ? HR_OOM_READ : HR_OOM_ABSENT);
    hr_explanation_destroy(e);
  }
  for (size_t i = 0; i < COUNT(failures); i++)
    for (int w = 0; w < 2; w++) {
      hr_explanation *e;
      (void)snprintf(text, sizeof text, "%s\ncleaning up\n%s\n", w ? whole : request, failures[i].line);
      e = explain(text);
      assert_int_equal(e->failure_count, 2);
      assert_string_equal(e->failures[1].source, failures[i].source);
      assert_int_equal(e->failures[0].figures[HR_OOM_FREE].state, w ? HR_OOM_READ : HR_OOM_ABSENT);
      hr_explanation_destroy(e);
    }
  hr_explanation *e = explain(mps);
  assert_int_equal(e->failure_count, 2);
  assert_true(is_near(&e->failures[0].figures[HR_OOM_REQUESTED], 14.9 * 1073741824.0));
  assert_string_equal(e->failures[1].source, "pytorch-mps");
  hr_explanation_destroy(e);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_reports_are_one),
      cmocka_unit_test(test_reports_behind_prefixes),
      cmocka_unit_test(test_cuts),
      cmocka_unit_test(test_cut_words),
      cmocka_unit_test(test_one_failure_once),
      cmocka_unit_test(test_other_requests),
      cmocka_unit_test(test_more_than_are_kept),
      cmocka_unit_test(test_requests_that_were_served),
      cmocka_unit_test(test_served_requests_find_no_room),
      cmocka_unit_test(test_figures_stay_apart),
      cmocka_unit_test(test_lines_that_alternate),
      cmocka_unit_test(test_messages_in_a_row),
      cmocka_unit_test(test_messages_end),
      cmocka_unit_test(test_lines_below),
      cmocka_unit_test(test_heavy_bars),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
