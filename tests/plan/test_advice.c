/* Advice is doubted: of jobs that nobody had in mind every line of the list of fixes, and what --auto takes, is planned again
 * by its own words; the list is ordered and a front; --auto is no slower than any line of it, in a larger budget no slower
 * than in a smaller one, and where it finds nothing, the need that it names is a budget that holds something. Of some
 * jobs a combination is named that --auto once missed.
 *
 * HEADROOM_TEST_QUICK: a tenth of the drawn jobs. HEADROOM_TEST_SEED=N: only the job that N draws. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <headroom/field.h>

#include "base/mem.h"
#include "base/rng.h"
#include "plan/plan.h"

#define DICE_STREAM 11
#include "support/dice.h"

enum { TEXT = 1024 };

typedef struct question {
  const char *model, *device, *options;
  hr_purpose purpose;
  uint64_t budget;
  const char *better; /* a combination that fits: --auto finds it, or something as fast; NULL */
} question;

/* What the jobs of a question borrow. */
static char words[1 << 16];
static size_t words_used;

static void question_text(const question *q, char out[TEXT]) {
  (void)snprintf(out, TEXT, "%s --device %s %s --budget %lluB", q->model, q->device, q->options,
                 (unsigned long long)q->budget);
}

#define FAIL(q, ...)                                                                                                   \
  do {                                                                                                                 \
    char text_[TEXT], why_[2 * TEXT];                                                                                  \
    question_text(q, text_);                                                                                           \
    (void)snprintf(why_, sizeof why_, __VA_ARGS__);                                                                    \
    fail_msg("%s: %s", text_, why_);                                                                                   \
  } while (0)

static bool set_words(hr_job *job, const char *options, hr_error *error) {
  char own[TEXT], *rest = NULL;
  (void)snprintf(own, sizeof own, "%s", options);
  for (char *word = strtok_r(own, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
    const char *value = strtok_r(NULL, " ", &rest);
    const size_t bytes = value ? strlen(value) + 1 : 0;
    if (!value || strncmp(word, "--", 2) != 0) fail_msg("'%s' is not made of options and values", options);
    assert_true(words_used + bytes <= sizeof words);
    memcpy(words + words_used, value, bytes);
    if (hr_job_set(job, word + 2, words + words_used, error) != HR_OK) return false;
    words_used += bytes;
  }
  return true;
}

/* The job as it is asked for, with more words behind. Budgets are those of the question, whatever the device has. */
static bool ask(const question *q, const char *more, hr_job *job, hr_error *error) {
  hr_job_init(job);
  job->purpose = q->purpose;
  if (hr_model_open(q->model, &job->model, error) != HR_OK || hr_device_find(q->device, &job->device, error) != HR_OK)
    return false;
  job->device.usable_bytes = UINT64_C(1) << 50;
  job->device.usable_now = false;
  if (!set_words(job, q->options, error) || !set_words(job, more, error)) return false;
  job->budget_bytes = q->budget;
  job->given |= HR_GIVEN_BUDGET;
  return hr_job_finish(job, error) == HR_OK;
}

/* As `headroom plan` does it: what is open is chosen. */
static hr_status plan_asked(hr_job *job, hr_plan **plan, hr_error *error) {
  if (job->rows_choice == HR_ROWS_OPEN) return hr_plan_rows(job, plan, error);
  if (job->purpose == HR_PURPOSE_TRAIN && job->recompute.kind == HR_RECOMPUTE_AUTO)
    return hr_plan_recompute(job, plan, NULL, error);
  return hr_plan_create(job, plan, error);
}

static double per_token(const hr_plan *plan) { return plan->info.step_seconds / (double)plan->info.tokens_per_step; }

static void again(const question *q, const char *more, uint64_t need, double step_seconds) {
  hr_error e = {0};
  hr_plan *plan = NULL;
  hr_job job;
  if (!ask(q, more, &job, &e) || plan_asked(&job, &plan, &e) != HR_OK) FAIL(q, "%s is refused: %s", more, e.message);
  if (hri_plan_need(plan) != need || memcmp(&plan->info.step_seconds, &step_seconds, sizeof step_seconds) != 0)
    FAIL(q, "%s is said to need %llu and to take %.17g s, and needs %llu and takes %.17g", more,
         (unsigned long long)need, step_seconds, (unsigned long long)hri_plan_need(plan), plan->info.step_seconds);
  hr_plan_destroy(plan);
}

/* ---- what --auto says ---- */

typedef struct answer {
  bool found;
  hr_auto told;
} answer;

static answer ask_auto(const question *q) {
  char text[HR_FIELD_TEXT_BYTES];
  hr_error e = {0};
  hr_job asked, job;
  hr_plan *plan = NULL;
  hr_status status;
  answer a;
  if (!ask(q, "", &asked, &e)) FAIL(q, "%s", e.message);
  job = asked;
  status = hr_plan_auto(&job, &plan, &a.told, &e);
  if (status != HR_OK && status != HR_ERROR_BUDGET) FAIL(q, "%s", e.message);
  a.found = status == HR_OK;
  if (!a.found) {
    assert_true(a.told.smallest_bytes > q->budget && a.told.bound_bytes <= a.told.smallest_bytes);
    return a;
  }
  hr_job_options(&asked, &job, text, sizeof text);
  if (hri_plan_need(plan) > q->budget) FAIL(q, "%.500s does not fit", text);
  if (hr_job_effect(&asked, &job) > HR_EFFECT_ROUNDING) FAIL(q, "%.500s is another training", text);
  assert_true(a.told.bound_token_seconds <= a.told.fastest_token_seconds * (1 + 1e-9));
  again(q, text, hri_plan_need(plan), plan->info.step_seconds);
  hr_plan_destroy(plan);
  return a;
}

static void not_beaten(const question *q, const answer *a, const char *what, uint64_t need, double token_seconds) {
  if (!a->found)
    FAIL(q, "--auto says that %llu is the smallest need, and %s needs %llu", (unsigned long long)a->told.smallest_bytes,
         what, (unsigned long long)need);
  if (a->told.fastest_token_seconds > token_seconds * (1 + 1e-9))
    FAIL(q, "--auto takes %.9g s per token, %s %.9g", a->told.fastest_token_seconds, what, token_seconds);
}

static void check_better(const question *q, const answer *a) {
  hr_error e = {0};
  hr_plan *plan = NULL;
  hr_job job;
  if (!q->better) return;
  if (!ask(q, q->better, &job, &e) || hr_plan_create(&job, &plan, &e) != HR_OK) FAIL(q, "%s", e.message);
  assert_true(plan->info.fits);
  not_beaten(q, a, q->better, hri_plan_need(plan), per_token(plan));
  hr_plan_destroy(plan);
}

/* ---- the list ---- */

/* Whether a fix leaves alone what was given, as --auto does. */
static bool keeps_given(const hr_job *asked, const hr_fix *f) {
  const bool rows = strstr(f->options, "--micro-batch") != NULL;
  if (f->effect_class > HR_EFFECT_ROUNDING) return false;
  if ((asked->given & HR_GIVEN_RECOMPUTE) && strstr(f->options, "--recompute")) return false;
  if ((asked->given & HR_GIVEN_LOSS_CHUNK) && strstr(f->options, "--loss-chunk")) return false;
  if ((asked->given & HR_GIVEN_UPDATE) && strstr(f->options, "--update")) return false;
  return !(rows && (asked->given & HR_GIVEN_ACCUMULATE) && asked->purpose == HR_PURPOSE_TRAIN);
}

static void check_list(const question *q, const answer *a) {
  hr_fix *fixes = calloc(HR_MAX_FIXES, sizeof *fixes);
  hr_error e = {0};
  hr_plan *plan = NULL;
  hr_job job;
  uint32_t count = 0;
  assert_non_null(fixes);
  if (!ask(q, "", &job, &e) || plan_asked(&job, &plan, &e) != HR_OK) FAIL(q, "%s", e.message);
  job = plan->spec;
  hr_plan_destroy(plan);
  if (hr_plan_fixes(&job, fixes, &count, &e) != HR_OK) FAIL(q, "%s", e.message);
  for (uint32_t i = 0; i < count; i++) {
    const hr_fix *f = &fixes[i], *before = i ? &fixes[i - 1] : f;
    if (f->fits != (f->need_bytes <= q->budget))
      FAIL(q, "%s needs %llu", f->options, (unsigned long long)f->need_bytes);
    if (f->effect_class != (uint32_t)hr_job_effect(&job, &f->job)) FAIL(q, "the class of %s", f->options);
    if (f->fits > before->fits || (f->fits && f->effect_class < before->effect_class) ||
        (f->fits && f->effect_class == before->effect_class && f->token_seconds < before->token_seconds))
      FAIL(q, "%s stands behind %s", f->options, before->options);
    for (uint32_t k = 0; k < count; k++) {
      const hr_fix *g = &fixes[k];
      if (k != i && g->fits == f->fits && g->effect_class <= HR_EFFECT_ROUNDING && g->effect_class <= f->effect_class &&
          g->need_bytes <= f->need_bytes && g->token_seconds <= f->token_seconds)
        FAIL(q, "%s beats %s", g->options, f->options);
    }
    again(q, f->options, f->need_bytes, f->step_seconds);
    if (a && f->fits && keeps_given(&job, f)) not_beaten(q, a, f->options, f->need_bytes, f->token_seconds);
  }
  free(fixes);
}

/* ---- one job in three budgets ---- */

static void judge(const question *asked) {
  question q = *asked;
  hr_error e = {0};
  hr_job job;
  answer first, second;
  words_used = 0;
  if (!ask(&q, "", &job, &e)) FAIL(&q, "%s", e.message);
  if (job.rows_choice == HR_ROWS_OPEN && !(job.given & HR_GIVEN_BATCH_TOKENS)) { /* --auto refuses it */
    check_list(&q, NULL);
    return;
  }
  first = ask_auto(&q);
  check_better(&q, &first);
  check_list(&q, &first);
  q.budget = first.found ? q.budget + q.budget / 8 : first.told.smallest_bytes;
  second = ask_auto(&q);
  if (!second.found) FAIL(&q, "holds nothing, though a smaller budget does, or it was named as the smallest");
  if (first.found && second.told.fastest_token_seconds > first.told.fastest_token_seconds * (1 + 1e-9))
    FAIL(&q, "takes %.9g s per token, and in %llu it takes %.9g", second.told.fastest_token_seconds,
         (unsigned long long)asked->budget, first.told.fastest_token_seconds);
}

/* ---- what was found once ---- */

#define QWEN3                                                                                                          \
  "custom:family=qwen3,layers=3,hidden=208,heads=3,kv-heads=3,head-size=32,mlp=876,vocab=53603,positions=1923"
#define GRANITE                                                                                                        \
  "custom:family=granite,layers=4,hidden=232,heads=4,kv-heads=2,head-size=58,mlp=877,vocab=689,positions=2048,tied"
#define DEEP_GRANITE                                                                                                   \
  "custom:family=granite,layers=24,hidden=248,heads=2,kv-heads=2,head-size=28,mlp=678,vocab=7736,positions=3194"

#define FROZEN_GEMMA                                                                                                   \
  "custom:family=gemma,layers=11,hidden=408,heads=1,kv-heads=1,head-size=60,mlp=90,vocab=276,positions=3677,tied"

static const question known[] = {
    /* shorter rows in a step of so many tokens: more of them, or none where they do not divide it */
    {"gpt2-124m", "rtx-3050", "--seq 1024 --batch-tokens 61440", HR_PURPOSE_TRAIN, 3000000000, NULL},
    {"gpt2-124m", "cpu",
     "--seq 307 --batch-tokens 29472 --clip 0 --optimizer adamw8bit --freeze layers.0 --precision bf16-pure --threads 2",
     HR_PURPOSE_TRAIN, 1217323008, NULL},
    /* where nothing waits for gradients, an update in the backward changes nothing, and beats what does less */
    {"qwen3-0.6b", "rtx-4070", "--seq 16 --micro-batch 20 --clip 0 --optimizer lion", HR_PURPOSE_TRAIN, 1529662668,
     NULL},
    /* a chunk that was given for more rows than there are at first */
    {"gpt2-774m", "rtx-4060-ti-16", "--seq 256 --batch-tokens 512 --optimizer lion --precision fp32 --loss-chunk 796",
     HR_PURPOSE_TRAIN, 10634653696, NULL},
    /* auto says nothing of other rows */
    {"custom:family=gpt2,layers=2,hidden=144,heads=3,mlp=845,vocab=4506,positions=3830", "rtx-4060",
     "--seq 512 --micro-batch 64 --loss-chunk auto", HR_PURPOSE_TRAIN, 1022571315, NULL},
    /* a chunk that is as large as the one nobody gave for other rows */
    {QWEN3, "rtx-2080-ti", "--batch-tokens 768 --seq 128 --optimizer lion --precision bf16", HR_PURPOSE_TRAIN,
     863350784, NULL},
    /* levels and rows that were chosen are in every line */
    {"stablelm-2-1.6b", "l4", "--seq 32 --micro-batch 16 --optimizer sgd --recompute auto", HR_PURPOSE_TRAIN,
     3649400995, NULL},
    {"gpt2-124m", "rtx-4090", "--seq 256 --micro-batch auto", HR_PURPOSE_TRAIN, 1200000000, NULL},
    {"gpt2-124m", "rtx-4090", "--seq 256 --micro-batch auto --batch-tokens 4096 --recompute auto", HR_PURPOSE_TRAIN,
     1400000000, NULL},
    /* the placement of the fastest levels is too large, and so is that of all that are as tight */
    {"gpt2-774m", "rtx-4060-ti-16", "--seq 256 --batch-tokens 512 --optimizer lion --precision fp32 --loss-chunk 256",
     HR_PURPOSE_TRAIN, 9856614400,
     "--recompute levels:attention*8,block*20,cheap*2,keep*6 --micro-batch 2 --accumulate 1"},
    {"smollm2-1.7b", "rtx-4070-ti", "--seq 1186 --batch-tokens 2372 --precision tf32", HR_PURPOSE_TRAIN, 28246540288,
     "--recompute levels:attention*7,block*4,cheap*13 --micro-batch 2 --accumulate 1"},
    /* groups need less than any levels */
    {FROZEN_GEMMA, "rtx-a6000",
     "--seq 1024 --micro-batch 7 --clip 0 --update in-backward --optimizer momentum --neftune-alpha 5 --train-only head",
     HR_PURPOSE_TRAIN, 612368384, "--recompute every:2"},
    /* micro-steps of an evaluation say nothing of its rows */
    {GRANITE, "a100-80", "--seq 1478 --micro-batch 30 --accumulate 1 --precision fp32", HR_PURPOSE_EVALUATE, 800000000,
     "--micro-batch 10"},
    /* a step without micro-steps needs less than one with two */
    {"phi-2", "rtx-3060", "--seq 1024 --batch-tokens 49152 --clip 0 --precision bf16", HR_PURPOSE_TRAIN, 1049456803,
     NULL},
    /* small chunks of a large job */
    {DEEP_GRANITE, "rtx-2060-12", "--seq 2478 --micro-batch 96 --accumulate 1", HR_PURPOSE_TRAIN, 75806187520,
     "--loss-chunk 512"},
};

static void known_cases_hold(void **state) {
  (void)state;
  for (size_t k = 0; k < sizeof known / sizeof *known; k++) judge(&known[k]);
}

/* What needs least is the same whatever the budget is that does not hold it. */
static void the_smallest_need_is_one(void **state) {
  question q = {"phi-2",          "rtx-3060", "--seq 1024 --batch-tokens 49152 --clip 0 --precision bf16",
                HR_PURPOSE_TRAIN, 0,          NULL};
  uint64_t first;
  (void)state;
  words_used = 0;
  q.budget = 1049456803;
  first = ask_auto(&q).told.smallest_bytes;
  q.budget = 14703845703;
  assert_int_equal(first, ask_auto(&q).told.smallest_bytes);
}

#define WIDE_HEADS                                                                                                     \
  "custom:family=mistral,layers=7,hidden=16,heads=8,kv-heads=2,head-size=2,mlp=100,vocab=65,positions=64,tied"
#define NARROW_MLP "custom:family=qwen3,layers=5,hidden=24,heads=3,kv-heads=1,head-size=8,mlp=1,vocab=65,positions=64"
#define SHORT_LLAMA                                                                                                    \
  "custom:family=llama,layers=4,hidden=8,heads=4,kv-heads=1,head-size=8,mlp=32,vocab=17,positions=256,tied"
#define SHORT_OLMO "custom:family=olmo2,layers=7,hidden=4,heads=4,kv-heads=2,head-size=4,mlp=11,vocab=5003,positions=16"
#define SMALL_QWEN2                                                                                                    \
  "custom:family=qwen2,layers=7,hidden=96,heads=4,kv-heads=1,head-size=4,mlp=100,vocab=17,positions=1024"

/* Where nothing fits, the need that is named is the smallest: in a byte less nothing is found, nor a smaller one named. */
static void nothing_fits_in_less(void **state) {
  static const question tight[] = {
      {WIDE_HEADS, "cpu", "--seq 32 --optimizer lion --clip 0.5 --threads 3", HR_PURPOSE_TRAIN, 9098444, NULL},
      {NARROW_MLP, "cpu", "--precision bf16 --loss-chunk 100 --packing off --batch-tokens 3072 --threads 2",
       HR_PURPOSE_TRAIN, 9013905, NULL},
      {SHORT_LLAMA, "cpu", "--seq 2 --lora r=2,alpha=8,dropout=0.1 --batch-tokens 48 --threads 2", HR_PURPOSE_TRAIN,
       8708923, NULL},
      {SHORT_OLMO, "cpu", "--seq 2 --micro-batch 5 --loss-chunk 17 --optimizer momentum --accumulate 3 --threads 2",
       HR_PURPOSE_TRAIN, 9322496, NULL},
      {SMALL_QWEN2, "cpu",
       "--seq 16 --attention materialized --loss-chunk 100 --optimizer adamw8bit --label-smoothing 0.1 --batch-tokens "
       "32 --threads 3",
       HR_PURPOSE_TRAIN, 9635827, NULL},
  };
  (void)state;
  for (size_t k = 0; k < sizeof tight / sizeof *tight; k++) {
    question q = tight[k];
    answer a, less;
    words_used = 0;
    a = ask_auto(&q);
    if (a.found) FAIL(&q, "fits");
    q.budget = a.told.smallest_bytes;
    if (!ask_auto(&q).found) FAIL(&q, "was named as the smallest need, and holds nothing");
    q.budget--;
    less = ask_auto(&q);
    if (less.found || less.told.smallest_bytes != a.told.smallest_bytes)
      FAIL(&q, "holds something, or another need is named: %llu", (unsigned long long)less.told.smallest_bytes);
  }
}

/* ---- drawn jobs ---- */

typedef struct drawn {
  char model[TEXT / 4], device[64], options[TEXT / 2];
} drawn;

static void draw_model(dice *d, drawn *out) {
  static const char *const families[] = {"gpt2", "llama", "qwen2", "phi", "olmo2"};
  static const char *const presets[] = {"gpt2-124m", "smollm2-135m", "qwen3-0.6b", "micro-llama-bytes"};
  const uint32_t heads = 1 + roll(d, 4), size = 2 * (4 + roll(d, 28));
  if (roll(d, 3) == 0) {
    (void)snprintf(out->model, sizeof out->model, "%s", presets[roll(d, 4)]);
    return;
  }
  (void)snprintf(out->model, sizeof out->model,
                 "custom:family=%s,layers=%u,hidden=%u,heads=%u,mlp=%u,vocab=%u,positions=%u", families[roll(d, 5)],
                 1 + roll(d, 6), heads * size, heads, 8 + roll(d, 700), 16 + roll(d, roll(d, 2) ? 700 : 50000),
                 64 + roll(d, 2000));
}

static void add(drawn *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(drawn *out, const char *format, ...) {
  const size_t used = strlen(out->options);
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(out->options + used, sizeof out->options - used, format, arguments);
  va_end(arguments);
}

static void draw_job(dice *d, drawn *out, question *q) {
  static const char *const optimizers[] = {"adamw8bit", "sgd", "lion", "adafactor"},
                           *const precisions[] = {"fp32", "bf16", "bf16-pure", "fp16"},
                           *const recomputes[] = {"block", "every:2", "selective", "auto"},
                           *const packings[] = {"off", "transient", "persistent", "auto"};
  const uint32_t seq = 16 + roll(d, 600), rows = 1 + roll(d, 24);
  hr_device device;
  do assert_int_equal(hr_device_get(roll(d, hr_device_count()), &device, NULL), HR_OK);
  while (!device.name[0]);
  (void)snprintf(out->device, sizeof out->device, "%s", roll(d, 6) ? device.name : "cpu");
  out->options[0] = 0;
  draw_model(d, out);
  *q = (question){out->model, out->device, out->options, HR_PURPOSE_TRAIN, 0, NULL};
  if (roll(d, 8) == 0) q->purpose = roll(d, 2) ? HR_PURPOSE_EVALUATE : HR_PURPOSE_GENERATE;
  add(out, "--seq %u", seq);
  if (q->purpose != HR_PURPOSE_TRAIN) {
    if (q->purpose == HR_PURPOSE_EVALUATE) add(out, " --micro-batch %u", rows);
    return;
  }
  if (roll(d, 3)) add(out, " --micro-batch %u", rows);
  else add(out, " --batch-tokens %u", seq * rows);
  if (roll(d, 3) == 0) add(out, " --clip 0");
  if (roll(d, 2)) add(out, " --optimizer %s", optimizers[roll(d, 4)]);
  if (roll(d, 2)) add(out, " --precision %s", precisions[roll(d, 4)]);
  if (roll(d, 5) == 0) add(out, " --recompute %s", recomputes[roll(d, 4)]);
  if (roll(d, 4) == 0) add(out, " --loss-chunk %u", 16 + roll(d, 900));
  if (roll(d, 6) == 0) add(out, " --weight-packing %s", packings[roll(d, 4)]);
  if (roll(d, 6) == 0) add(out, " --lora r=%u,alpha=8", 1 + roll(d, 32));
}

/* False: there is no such job. */
static bool judge_drawn(uint64_t seed) {
  dice d = {seed, 0};
  hr_error e = {0};
  hr_plan *plan = NULL;
  hr_job job;
  drawn words_of;
  question q;
  draw_job(&d, &words_of, &q);
  q.budget = UINT64_C(1) << 49;
  words_used = 0;
  if (!ask(&q, "", &job, &e) || plan_asked(&job, &plan, &e) != HR_OK) return false;
  q.budget = plan->info.tiers[HR_TIER_DEVICE].fixed_bytes +
             plan->info.tiers[HR_TIER_DEVICE].reserved_bytes * (1 + roll(&d, 110)) / 100;
  hr_plan_destroy(plan);
  judge(&q);
  return true;
}

static void drawn_jobs_hold(void **state) {
  const char *one = getenv("HEADROOM_TEST_SEED");
  const uint32_t wanted = getenv("HEADROOM_TEST_QUICK") ? 30 : 300;
  const uint64_t before = hri_mem_live_bytes();
  uint32_t judged = 0;
  (void)state;
  if (one) {
    assert_true(judge_drawn(strtoull(one, NULL, 0)));
    return;
  }
  for (uint64_t seed = 1; judged < wanted; seed++) judged += judge_drawn(seed);
  assert_int_equal(hri_mem_live_bytes(), before);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(known_cases_hold), cmocka_unit_test(the_smallest_need_is_one),
                                     cmocka_unit_test(nothing_fits_in_less), cmocka_unit_test(drawn_jobs_hold)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
