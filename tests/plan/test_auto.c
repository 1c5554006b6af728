/* --auto against brute force: of small models every legal combination of recomputation (each layer's level, groups of
 * layers), rows of a micro-step, loss chunk, place of the update and packing of weights is planned. Budgets are the needs
 * of those that nothing is faster and smaller than, exactly, a byte less, and a byte more than the smallest: none that fits
 * may be faster per token than the fastest that --auto finds, and --auto refuses exactly where none fits; what it takes
 * is that one, or needs 1 % less and is at most 0.1 % slower. None at all is faster or smaller than the bounds that it
 * tells. The same for drawn jobs, some of them with drawn rates of a CPU, measured or seen. And against what the list of
 * fixes says of larger models.
 *
 * HEADROOM_TEST_QUICK: every fifth job. HEADROOM_AUTO_JOB=N: only that one. HEADROOM_TEST_SEED=N: only the job that N
 * draws. HEADROOM_AUTO_DRAWN=N: so many drawn jobs, and nothing else. */
#include <math.h>
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

#define DICE_STREAM 7
#include "support/dice.h"

#define LLAMA(layers)                                                                                                  \
  "custom:family=llama,layers=" layers ",hidden=64,heads=4,kv-heads=2,mlp=172,vocab=256,positions=256"
#define GPT2(layers) "custom:family=gpt2,layers=" layers ",hidden=64,heads=2,vocab=512,positions=256"
#define WIDE "custom:family=gpt2,layers=2,hidden=64,heads=4,vocab=8192,positions=128"
#define DEEP(layers) "custom:family=llama,layers=" layers ",hidden=32,heads=2,kv-heads=1,mlp=64,vocab=256,positions=256"

typedef struct one {
  const char *model, *device, *options;
} one;

static const one jobs[] = {
    {LLAMA("2"), "rtx-3090", "--seq 64 --micro-batch 4"},
    {LLAMA("2"), "rtx-3090", "--seq 64 --micro-batch 6"},
    {LLAMA("2"), "rtx-3090", "--seq 64 --micro-batch 4 --clip 0"},
    {LLAMA("2"), "rtx-3090", "--seq 128 --micro-batch 3 --clip 0 --precision bf16"},
    {LLAMA("2"), "rtx-3090", "--seq 128 --micro-batch 2 --precision bf16-pure --moments bf16 --clip 0"},
    {LLAMA("2"), "h100", "--seq 32 --batch-tokens 192"},
    {LLAMA("2"), "h100", "--seq 48 --batch-tokens 384 --clip 0"},
    {LLAMA("2"), "t4", "--seq 100 --micro-batch 5 --precision fp16 --clip 0"},
    {LLAMA("2"), "rtx-4090", "--seq 64 --micro-batch 4 --optimizer sgd"},
    {LLAMA("2"), "rtx-4090", "--seq 64 --micro-batch 4 --loss-chunk 32"},
    {LLAMA("2"), "rtx-4090", "--seq 64 --micro-batch 4 --recompute block"},
    {LLAMA("2"), "rtx-4090", "--seq 64 --micro-batch 4 --accumulate 2"},
    {LLAMA("2"), "rtx-4090", "--seq 64 --micro-batch 2 --update in-backward --clip 0"},
    {GPT2("2"), "rtx-3090", "--seq 128 --micro-batch 4"},
    {GPT2("2"), "rtx-3090", "--seq 96 --micro-batch 2 --attention materialized --clip 0"},
    {GPT2("2"), "mi300x", "--seq 128 --micro-batch 4 --optimizer momentum --clip 0"},
    {GPT2("2"), "rtx-3090", "--seq 64 --micro-batch 2 --check"},
    {WIDE, "rtx-3090", "--seq 64 --micro-batch 4"},
    {WIDE, "rtx-3090", "--seq 128 --micro-batch 2 --clip 0 --optimizer sgd"},
    {WIDE, "h100", "--seq 64 --micro-batch 4 --precision bf16 --clip 0"},
    {WIDE, "h100", "--seq 60 --batch-tokens 240 --optimizer adamw8bit"},
    {LLAMA("3"), "rtx-3090", "--seq 64 --micro-batch 2"},
    {LLAMA("3"), "rtx-3090", "--seq 128 --micro-batch 2 --clip 0"},
    {LLAMA("3"), "rtx-3090", "--seq 128 --micro-batch 3 --optimizer sgd"},
    {GPT2("3"), "rtx-3090", "--seq 64 --micro-batch 2 --precision bf16"},
    {GPT2("3"), "h100", "--seq 64 --batch-tokens 128 --clip 0"},
    {DEEP("4"), "rtx-3090", "--seq 128 --micro-batch 1 --clip 0 --loss-chunk 64"},
    {DEEP("4"), "rtx-3090", "--seq 64 --micro-batch 2 --loss-chunk off --optimizer sgd"},
    {GPT2("4"), "h100", "--seq 128 --micro-batch 1 --loss-chunk off"},
    {DEEP("5"), "rtx-3090", "--seq 128 --micro-batch 1 --loss-chunk off --optimizer sgd"},
    {DEEP("5"), "h100", "--seq 256 --micro-batch 1 --loss-chunk 64 --precision bf16"},
    {LLAMA("2"), "cpu", "--threads 1 --seq 64 --micro-batch 2 --clip 0"},
    {GPT2("2"), "cpu", "--threads 1 --seq 64 --micro-batch 2 --precision bf16"},
    {WIDE, "cpu", "--threads 2 --seq 64 --micro-batch 2"},
    {WIDE, "seen", "--threads 1 --seq 128 --micro-batch 4"},
    {LLAMA("2"), "seen", "--threads 1 --seq 96 --micro-batch 2 --clip 0"},
    {GPT2("2"), "seen", "--threads 1 --seq 128 --micro-batch 2 --precision bf16"},
    /* many levels fit by their live bytes, and their placements do not */
    {"custom:family=granite,layers=5,hidden=80,heads=4,mlp=223,vocab=9006,positions=258,kv-heads=2", "mi300x",
     "--seq 52 --micro-batch 1 --loss-chunk 321"},
    {"custom:family=olmo2,layers=5,hidden=168,heads=4,mlp=23,vocab=481,positions=910", "mi300x",
     "--seq 167 --micro-batch 2 --accumulate 2 --optimizer sgd --precision fp16 --loss-chunk 369"},
    /* scratch of the loss is not linear in its chunk, and less of it where operands are packed */
    {"custom:family=smollm3,layers=3,hidden=88,heads=2,mlp=251,vocab=3744,positions=361,tied", "cpu",
     "--seq 230 --threads 2 --micro-batch 5 --precision fp32 --recompute selective"},
    {"custom:family=gemma2,layers=1,hidden=18,heads=1,mlp=681,vocab=16539,positions=1321", "cpu",
     "--seq 212 --threads 3 --batch-tokens 636 --precision fp32"},
    {"custom:family=smollm3,layers=1,hidden=170,heads=5,mlp=75,vocab=9722,positions=1964", "cpu",
     "--seq 510 --threads 1 --micro-batch 12 --precision bf16-pure"},
};
enum { JOBS = sizeof jobs / sizeof *jobs, BUDGETS = 24 };

/* A CPU of which training saw every second class, each from half to twice as slow as it is assumed. */
static void draw_seen(hr_device *d, uint64_t seed, uint32_t threads) {
  d->rates = (hr_device_rates){.seen = true, .threads = threads, .node_seconds = 1e-6};
  for (size_t k = 0; k < HR_RATE_ENTRIES; k++) {
    uint32_t drawn[4];
    double share, ratio;
    hri_philox(seed, 0, k, drawn);
    share = hri_uniform(drawn[0], drawn[1]);
    ratio = exp2(2 * hri_uniform(drawn[2], drawn[3]) - 1);
    if (share < 0.5) continue;
    d->rates.taken[k] = 1e-3 * share;
    d->rates.assumed[k] = d->rates.taken[k] / ratio;
  }
}

static hr_job job_of(const one *o) {
  const bool seen = strcmp(o->device, "seen") == 0;
  hr_error e = {0};
  hr_job job;
  hr_job_init(&job);
  if (hr_device_find(seen ? "cpu" : o->device, &job.device, &e) != HR_OK) fail_msg("%s", e.message);
  if (seen) draw_seen(&job.device, 7, 1);
  if (hr_model_open(o->model, &job.model, &e) != HR_OK || hr_job_set_options(&job, o->options, &e) != HR_OK)
    fail_msg("%s %s: %s", o->model, o->options, e.message);
  if (!job.device.usable_bytes) job.device.usable_bytes = UINT64_C(1) << 40; /* a CPU that is described says none */
  if (hr_job_finish(&job, &e) != HR_OK) fail_msg("%s %s: %s", o->model, o->options, e.message);
  return job;
}

static double per_token(const hr_plan *plan) { return plan->info.step_seconds / (double)plan->info.tokens_per_step; }

/* ---- every combination ---- */

typedef struct point {
  uint64_t need;
  double seconds;
  char options[HR_FIELD_TEXT_BYTES / 32];
} point;

typedef struct every {
  const hr_job *asked;
  hr_plan *lender;
  HRI_ARRAY(point) points;
} every;

static void plan_one(every *all, const hr_job *changed) {
  hr_error e = {0};
  hr_job job = *changed;
  hr_plan *plan;
  point p;
  if (hr_job_finish(&job, &e) != HR_OK) return;
  if (hri_plan_draft(&job, all->lender, &plan, &e) != HR_OK) return;
  assert_int_equal(hri_plan_place(plan, &e), HR_OK);
  p.need = hri_plan_need(plan);
  p.seconds = per_token(plan);
  hr_job_options(all->asked, &job, p.options, sizeof p.options);
  assert_true(hri_array_push(&all->points, p));
  hr_plan_destroy(plan);
}

static void every_recompute(every *all, hr_job *job) {
  const uint32_t layers = job->model.layer_count;
  uint32_t mixtures = 1;
  if ((job->given & HR_GIVEN_RECOMPUTE) || job->purpose != HR_PURPOSE_TRAIN) {
    plan_one(all, job);
    return;
  }
  for (uint32_t l = 0; l < layers; l++) mixtures *= HR_LEVEL_COUNT;
  for (uint32_t index = 0; index < mixtures; index++) {
    job->recompute = (hr_recompute){.kind = HR_RECOMPUTE_LEVELS, .level_count = layers};
    for (uint32_t l = 0, rest = index; l < layers; l++, rest /= HR_LEVEL_COUNT)
      job->recompute.levels[l] = (uint8_t)(rest % HR_LEVEL_COUNT);
    plan_one(all, job);
  }
  for (uint32_t k = 2; k <= layers; k++) {
    job->recompute = (hr_recompute){.kind = HR_RECOMPUTE_EVERY, .every = k};
    plan_one(all, job);
  }
}

static void every_chunk(every *all, hr_job *job) {
  const uint64_t rows = (uint64_t)job->micro_batch * job->sequence_length;
  const uint64_t given = job->given;
  every_recompute(all, job);
  if ((given & HR_GIVEN_LOSS_CHUNK) || job->purpose == HR_PURPOSE_GENERATE) return;
  job->given |= HR_GIVEN_LOSS_CHUNK;
  for (uint32_t chunk = 16; chunk < rows; chunk *= 2) {
    job->loss_chunk = chunk;
    every_recompute(all, job);
  }
  job->loss_chunk = HR_LOSS_CHUNK_AUTO;
  job->given = given;
}

static void every_update(every *all, hr_job *job) {
  const hr_update before = job->update;
  every_chunk(all, job);
  if (before == HR_UPDATE_IN_BACKWARD || (job->given & HR_GIVEN_UPDATE) || job->accumulate > 1 || job->clip > 0 ||
      job->precision == HR_PRECISION_FP16)
    return;
  job->update = HR_UPDATE_IN_BACKWARD;
  every_chunk(all, job);
  job->update = before;
}

static void every_packing(every *all, hr_job *job) {
  const hr_weight_packing asked = job->weight_packing;
  if (!job->device.packs || (job->given & HR_GIVEN_WEIGHT_PACKING)) {
    every_update(all, job);
    return;
  }
  for (uint32_t packing = 0; packing <= HR_WEIGHT_PACKING_PERSISTENT; packing++) {
    job->weight_packing = (hr_weight_packing)packing;
    every_update(all, job);
  }
  job->weight_packing = asked;
}

static void every_combination(every *all, hr_job job) {
  const uint32_t rows = job.micro_batch * job.accumulate,
                 most = job.given & HR_GIVEN_MICRO_BATCH ? job.micro_batch : rows;
  if (!(job.given & HR_GIVEN_LOSS_CHUNK)) job.loss_chunk = HR_LOSS_CHUNK_AUTO;
  for (uint32_t k = 1; k <= most; k++) {
    if (most % k || ((job.given & HR_GIVEN_ACCUMULATE) && k != all->asked->micro_batch)) continue;
    job.micro_batch = k;
    if (job.purpose == HR_PURPOSE_TRAIN) job.accumulate = rows / k;
    every_packing(all, &job);
  }
}

/* ---- what is taken ---- */

typedef struct verdict {
  uint32_t budgets, fitted, worse, missed;
} verdict;

/* A need that is told to be the smallest is known, and hardly above the smallest of all. */
static const double ABOVE_SMALLEST = 0.001;

/* Bounds are never above a plan, and what is taken is the fastest or as fast and smaller. */
static void check_told(const hr_auto *found, const hr_plan *plan) {
  const double taken = per_token(plan);
  assert_true(found->token_seconds > taken * (1 - 1e-9) && found->token_seconds < taken * (1 + 1e-9));
  assert_true(found->fastest_token_seconds <= found->token_seconds);
  assert_true(found->token_seconds <= found->fastest_token_seconds * 1.001);
  assert_true(found->bound_token_seconds <= found->fastest_token_seconds * (1 + 1e-9));
  assert_true(found->bound_bytes <= hri_plan_need(plan));
  assert_int_equal(found->smallest_bytes, 0);
}

static void below_every(const every *all, const hr_auto *found) {
  for (size_t k = 0; k < all->points.count; k++) {
    const point *p = &all->points.items[k];
    if (found->bound_token_seconds > p->seconds * (1 + 1e-9) || found->bound_bytes > p->need)
      fail_msg("bounds of %.9g s and %llu bytes, and %s takes %.9g and needs %llu", found->bound_token_seconds,
               (unsigned long long)found->bound_bytes, p->options, p->seconds, (unsigned long long)p->need);
  }
}

static void against_every(const every *all, uint64_t budget, verdict *seen) {
  const point *best = NULL;
  hr_job job = *all->asked;
  hr_error e = {0};
  hr_plan *plan = NULL;
  hr_auto found;
  hr_status status;
  char text[HR_FIELD_TEXT_BYTES] = "";
  for (size_t k = 0; k < all->points.count; k++) {
    const point *p = &all->points.items[k];
    if (p->need <= budget && (!best || p->seconds < best->seconds)) best = p;
  }
  job.budget_bytes = budget;
  job.given |= HR_GIVEN_BUDGET;
  status = hr_plan_auto(&job, &plan, &found, &e);
  if (status != HR_OK && status != HR_ERROR_BUDGET)
    fail_msg("%s %s: %s", job.model.name, hr_job_options(all->asked, &job, text, sizeof text), e.message);
  below_every(all, &found);
  if (status == HR_OK) check_told(&found, plan);
  else assert_int_equal(found.smallest_bytes, e.requested_bytes);
  if (!best && (double)found.smallest_bytes > (double)all->points.items[0].need * (1 + ABOVE_SMALLEST))
    fail_msg("%s: the smallest need is said to be %llu, %s needs %llu", job.model.name,
             (unsigned long long)found.smallest_bytes, all->points.items[0].options,
             (unsigned long long)all->points.items[0].need);
  seen->budgets++;
  seen->fitted += best != NULL;
  if (status == HR_OK) {
    assert_true(plan->info.fits && hri_plan_need(plan) <= budget);
    assert_true(job.purpose == HR_PURPOSE_EVALUATE || (uint64_t)job.micro_batch * job.accumulate ==
                                                          (uint64_t)all->asked->micro_batch * all->asked->accumulate);
    hr_job_options(all->asked, &job, text, sizeof text);
  }
  if (best && status != HR_OK) {
    seen->missed++;
    print_message("  %llu: missed %s, which needs %llu; the smallest is said to need %llu\n",
                  (unsigned long long)budget, best->options, (unsigned long long)best->need,
                  (unsigned long long)e.requested_bytes);
  } else if (best && found.fastest_token_seconds > best->seconds * (1 + 1e-9)) {
    seen->worse++;
    print_message("  %llu: %.6g s with %s; %.6g s with %s\n", (unsigned long long)budget, per_token(plan), text,
                  best->seconds, best->options);
  }
  hr_plan_destroy(plan);
}

static int by_need(const void *a, const void *b) {
  const point *x = a, *y = b;
  if (x->need != y->need) return x->need < y->need ? -1 : 1;
  return x->seconds < y->seconds ? -1 : x->seconds > y->seconds;
}

/* The points that no other is smaller and faster than move to the front, the smallest first. Returns their number. */
static size_t keep_front(every *all) {
  size_t count = 0;
  point *p = all->points.items;
  qsort(p, all->points.count, sizeof *p, by_need);
  for (size_t k = 0; k < all->points.count; k++)
    if (count == 0 || p[k].seconds < p[count - 1].seconds) p[count++] = p[k];
  all->points.count = count;
  return count;
}

/* The smallest need is the one that is named, whatever the budget is below it. */
static void against_smallest(const every *all, verdict *seen) {
  const uint64_t least = all->points.items[0].need;
  against_every(all, least / 2, seen);
  against_every(all, least - 1, seen);
  against_every(all, least, seen);
  against_every(all, least + 1, seen);
}

/* The asked job in its budgets. Returns how many plans there are. */
static size_t against_brute_force(hr_job *asked, const char *what, verdict *seen) {
  enum { PLACES = (BUDGETS - 4) / 2 };
  every all = {.asked = asked};
  hr_job first = *asked;
  const verdict before = *seen;
  hr_error e = {0};
  size_t planned, front;
  if (first.rows_choice == HR_ROWS_OPEN) first.rows_choice = HR_ROWS_CHOSEN;
  if (hri_plan_draft(&first, NULL, &all.lender, &e) != HR_OK) return 0;
  hri_mem_keep(true);
  every_combination(&all, first);
  hri_mem_keep(false);
  planned = all.points.count;
  front = keep_front(&all);
  if (front) against_smallest(&all, seen);
  for (size_t k = 1; k < front && k <= PLACES;
       k++) { /* the larger ones are closer together, for there are more of them */
    const uint64_t budget = all.points.items[front <= PLACES ? k : (front - 1) * k * k / PLACES / PLACES].need;
    against_every(&all, budget, seen);
    against_every(&all, budget - 1, seen);
  }
  if (seen->worse + seen->missed > before.worse + before.missed)
    print_message("%s: worse %u, missed %u of %u\n", what, seen->worse - before.worse, seen->missed - before.missed,
                  seen->budgets - before.budgets);
  hri_array_free(&all.points);
  hr_plan_destroy(all.lender);
  return planned;
}

static void equals_brute_force(void **state) {
  const char *only = getenv("HEADROOM_AUTO_JOB");
  const uint32_t stride = getenv("HEADROOM_TEST_QUICK") ? 5 : 1;
  verdict seen = {0};
  uint64_t planned = 0;
  (void)state;
  for (uint32_t n = only ? (uint32_t)atoi(only) : 0; n < JOBS; n += stride) {
    hr_job asked = job_of(&jobs[n]);
    char what[256];
    (void)snprintf(what, sizeof what, "job %u: %s %s", n, jobs[n].model, jobs[n].options);
    asked.budget_bytes = asked.device.usable_bytes;
    planned += against_brute_force(&asked, what, &seen);
    if (only) break;
  }
  print_message("%llu plans, %u budgets, %u of them hold something: worse %u, missed %u\n", (unsigned long long)planned,
                seen.budgets, seen.fitted, seen.worse, seen.missed);
  assert_int_equal(seen.worse + seen.missed, 0);
}

/* ---- drawn jobs ---- */

static void draw_row(dice *d, double *row, uint32_t count, double most) {
  for (uint32_t k = 0; k < count; k++) row[k] = roll(d, 8) ? most * (double)(10 + roll(d, 90)) / 100 : 0;
}

/* As a probe of a busy machine might leave them: whatever size is the fastest, and some not measured. */
static void draw_rates(dice *d, hr_device *device, uint32_t threads) {
  hr_device_rates *r = &device->rates;
  r->threads = threads;
  r->node_seconds = 1e-9 * roll(d, 2000);
  for (uint32_t type = 0; type < HR_RATE_TYPES; type++) {
    hr_rate_tables *t = &r->tables[type];
    for (uint32_t kind = 0; kind < HR_PRODUCT_KINDS; kind++)
      for (uint32_t side = 0; side < HR_PRODUCT_SIDES; side++)
        draw_row(d, t->product_flops[kind][side], HR_PRODUCT_SIZES, 4e11);
    for (uint32_t kind = 0; kind < HR_ATTENTION_KINDS; kind++)
      draw_row(d, t->attention_flops[kind], HR_ATTENTION_SIZES, 1e11);
    for (uint32_t kind = 0; kind < HR_STREAM_COUNT; kind++) draw_row(d, t->stream_bytes[kind], HR_STREAM_SIZES, 1e11);
  }
}

typedef struct drawn {
  char model[256], options[512], what[1024];
  const char *device;
  hr_purpose purpose;
} drawn_job;

static void add(drawn_job *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(drawn_job *out, const char *format, ...) {
  const size_t used = strlen(out->options);
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(out->options + used, sizeof out->options - used, format, arguments);
  va_end(arguments);
}

static void draw_model(dice *d, drawn_job *out) {
  static const char *const families[] = {"llama",  "qwen2",   "qwen3",    "phi3",    "olmo2",   "gemma",
                                         "gemma2", "granite", "stablelm", "mistral", "smollm3", "gpt2"};
  const uint32_t heads = 1 + roll(d, 6), size = 2 * (4 + roll(d, 28)), layers = 1 + roll(d, 5);
  const char *family = families[roll(d, 12)];
  uint32_t groups = strcmp(family, "gpt2") == 0 ? heads : 1 + roll(d, heads);
  while (heads % groups) groups--;
  (void)snprintf(out->model, sizeof out->model,
                 "custom:family=%s,layers=%u,hidden=%u,heads=%u,kv-heads=%u,mlp=%u,vocab=%u,positions=%u%s", family,
                 layers, heads * size, heads, groups, 8 + roll(d, 700), 16 + roll(d, roll(d, 2) ? 700 : 20000),
                 600 + roll(d, 2000), roll(d, 4) ? "" : ",tied");
}

static void draw_training(dice *d, drawn_job *out, uint32_t seq, uint32_t rows) {
  static const char *const optimizers[] = {"adamw8bit", "sgd", "lion", "adafactor", "momentum"},
                           *const precisions[] = {"fp32", "bf16", "bf16-pure", "fp16"};
  const uint32_t how = roll(d, 6);
  if (how < 3) add(out, " --micro-batch %u", rows);
  else if (how < 5) add(out, " --batch-tokens %u%s", seq * rows, how == 3 ? " --micro-batch auto" : "");
  else add(out, " --micro-batch %u --accumulate %u", rows, 1 + roll(d, 4));
  if (roll(d, 3) == 0) add(out, " --clip 0");
  if (roll(d, 2)) add(out, " --optimizer %s", optimizers[roll(d, 5)]);
  if (roll(d, 2)) add(out, " --precision %s", precisions[roll(d, 4)]);
  if (roll(d, 8) == 0) add(out, " --recompute %s", roll(d, 2) ? "block" : "selective");
  if (roll(d, 4) == 0) add(out, " --loss-chunk %u", 16 + roll(d, 900));
  if (roll(d, 8) == 0) add(out, " --weight-packing %s", roll(d, 2) ? "off" : "auto");
  if (roll(d, 4) == 0) add(out, " --lora r=%u,alpha=8%s", 1 + roll(d, 32), roll(d, 2) ? "" : " --quantize nf4");
}

static void draw_job(dice *d, drawn_job *out) {
  static const char *const devices[] = {"rtx-3090", "h100", "t4", "mi300x", "cpu", "cpu", "cpu", "cpu", "cpu"};
  const uint32_t seq = 16 + roll(d, 500), rows = 1 + roll(d, 12);
  out->options[0] = 0;
  out->device = devices[roll(d, 9)];
  out->purpose = roll(d, 12) ? HR_PURPOSE_TRAIN : roll(d, 3) ? HR_PURPOSE_EVALUATE : HR_PURPOSE_GENERATE;
  draw_model(d, out);
  add(out, "--seq %u%s", seq, strcmp(out->device, "cpu") == 0 ? " --threads 2" : "");
  if (out->purpose == HR_PURPOSE_TRAIN) draw_training(d, out, seq, rows);
  else if (out->purpose == HR_PURPOSE_EVALUATE) add(out, " --micro-batch %u", rows);
}

/* How many plans brute force makes, or more. */
static uint64_t space_of(const hr_job *job) {
  const bool trains = job->purpose == HR_PURPOSE_TRAIN;
  uint64_t rows = (uint64_t)job->micro_batch * (trains ? job->accumulate : 1), ways = 1;
  for (uint32_t l = 0; trains && !(job->given & HR_GIVEN_RECOMPUTE) && l < job->model.layer_count; l++)
    ways *= HR_LEVEL_COUNT;
  if (job->device.packs && !(job->given & HR_GIVEN_WEIGHT_PACKING)) ways *= 1 + HR_WEIGHT_PACKING_PERSISTENT;
  if (job->clip <= 0) ways *= 2;
  if (!(job->given & HR_GIVEN_LOSS_CHUNK))
    for (uint64_t chunk = 16, chunks = ways; chunk < rows * job->sequence_length; chunk *= 2) ways += chunks;
  if (!(job->given & HR_GIVEN_ACCUMULATE))
    for (uint64_t k = 2, splits = ways; k <= rows; k++) ways += rows % k ? 0 : splits;
  return ways;
}

/* False: there is no such job, or its space is too large to plan all of it. */
static bool judge_drawn(uint64_t seed, verdict *seen, uint64_t *planned) {
  enum { SPACE = 5000 };
  dice d = {seed, 0};
  hr_error e = {0};
  drawn_job out;
  hr_job job;
  size_t plans;
  draw_job(&d, &out);
  hr_job_init(&job);
  job.purpose = out.purpose;
  if (hr_model_open(out.model, &job.model, &e) != HR_OK || hr_device_find(out.device, &job.device, &e) != HR_OK ||
      hr_job_set_options(&job, out.options, &e) != HR_OK)
    return false;
  if (job.device.packs && seed % 4 == 3) draw_seen(&job.device, seed, 2);
  else if (job.device.packs && seed % 4) draw_rates(&d, &job.device, 2);
  job.device.usable_bytes = UINT64_C(1) << 50;
  job.device.usable_now = false;
  if (hr_job_finish(&job, &e) != HR_OK || space_of(&job) > SPACE) return false;
  job.budget_bytes = job.device.usable_bytes;
  (void)snprintf(out.what, sizeof out.what, "seed %llu: %s --device %s %s", (unsigned long long)seed, out.model,
                 out.device, out.options);
  plans = against_brute_force(&job, out.what, seen);
  *planned += plans;
  return plans > 0;
}

static void drawn_jobs_equal_brute_force(void **state) {
  const char *one_seed = getenv("HEADROOM_TEST_SEED");
  const char *drawn = getenv("HEADROOM_AUTO_DRAWN");
  const uint32_t wanted = drawn ? (uint32_t)atoi(drawn) : getenv("HEADROOM_TEST_QUICK") ? 12 : 40;
  verdict seen = {0};
  uint64_t planned = 0;
  uint32_t judged = 0;
  (void)state;
  if (one_seed) (void)judge_drawn(strtoull(one_seed, NULL, 0), &seen, &planned);
  if (getenv("HEADROOM_AUTO_JOB")) return;
  for (uint64_t seed = 1; !one_seed && judged < wanted; seed++) judged += judge_drawn(seed, &seen, &planned);
  print_message("%u drawn jobs, %llu plans, %u budgets, %u of them hold something: worse %u, missed %u\n", judged,
                (unsigned long long)planned, seen.budgets, seen.fitted, seen.worse, seen.missed);
  assert_int_equal(seen.worse + seen.missed, 0);
}

/* ---- the list of fixes ---- */

static const one larger[] = {
    {"gpt2-124m", "rtx-3060", "--seq 1024 --micro-batch 32"},
    {"gpt2-124m", "rtx-4090", "--seq 1000 --micro-batch 12 --clip 0"},
    {"smollm2-135m", "rtx-3090", "--seq 2048 --micro-batch 6 --precision bf16"},
    {"qwen3-0.6b", "h100", "--seq 1024 --micro-batch 3"},
    {"gemma-3-1b", "h100", "--seq 512 --micro-batch 4 --precision bf16-pure"},
};

/* What is told fits and is as the list is ordered; what keeps the mathematics is no faster than what is taken. */
static void never_worse_than_a_fix(void **state) {
  enum { STEPS = 4 };
  hr_fix *fixes = calloc(HR_MAX_FIXES, sizeof *fixes);
  uint32_t compared = 0;
  (void)state;
  for (size_t n = 0; n < sizeof larger / sizeof *larger; n++) {
    const hr_job asked = job_of(&larger[n]);
    hr_error e = {0};
    hr_plan *plan;
    uint64_t most;
    assert_int_equal(hr_plan_create(&asked, &plan, &e), HR_OK);
    most = hri_plan_need(plan);
    hr_plan_destroy(plan);
    for (uint64_t k = 1; k <= STEPS; k++) {
      hr_job job = asked, taken;
      hr_auto found;
      uint32_t count = 0;
      job.budget_bytes = (most - (UINT64_C(500) << 20)) * k / (STEPS + 1) + (UINT64_C(500) << 20);
      job.given |= HR_GIVEN_BUDGET;
      if (job.budget_bytes > job.device.usable_bytes) continue;
      taken = job;
      assert_int_equal(hr_plan_fixes(&job, fixes, &count, &e), HR_OK);
      plan = NULL;
      if (hr_plan_auto(&taken, &plan, &found, &e) == HR_ERROR_INTERNAL) fail_msg("%s", e.message);
      for (uint32_t i = 0; i < count; i++) {
        const hr_fix *f = &fixes[i];
        if (!f->fits || f->changes_algorithm) continue;
        if (!plan) fail_msg("%s %s: --auto finds nothing, %s fits", larger[n].model, larger[n].options, f->options);
        if (found.fastest_token_seconds > f->token_seconds * (1 + 1e-9))
          fail_msg("%s %s: --auto finds %.9g s per token, %s %.9g", larger[n].model, larger[n].options,
                   found.fastest_token_seconds, f->options, f->token_seconds);
        compared++;
      }
      hr_plan_destroy(plan);
    }
  }
  assert_true(compared > 40);
  free(fixes);
}

/* Where nothing fits, no fix that keeps the mathematics needs less than what is told as the smallest need; but for the
 * tiny bit by which packing in free bytes can shrink the scratch of a peak. */
static void the_smallest_need_is_no_larger_than_a_fix(void **state) {
  static const one refused[] = {{"llama-3.2-1b", "cpu", "--seq 2048 --micro-batch 6 --accumulate 2 --threads 2"},
                                {"gpt2-124m", "cpu", "--seq 512 --micro-batch 6 --threads 2"},
                                {"qwen3-0.6b", "rtx-3060", "--seq 1024 --micro-batch 8 --accumulate 2"}};
  const double packing = 1e-5;
  hr_fix *fixes = calloc(HR_MAX_FIXES, sizeof *fixes);
  uint32_t compared = 0;
  (void)state;
  for (size_t n = 0; n < sizeof refused / sizeof *refused; n++) {
    const bool rows_stay = strstr(refused[n].options, "--accumulate") != NULL;
    hr_job job = job_of(&refused[n]), taken;
    hr_auto found;
    hr_error e = {0};
    uint32_t count = 0;
    job.budget_bytes = UINT64_C(600) << 20;
    job.given |= HR_GIVEN_BUDGET;
    taken = job;
    assert_int_equal(hr_plan_fixes(&job, fixes, &count, &e), HR_OK);
    assert_int_equal(hr_plan_auto(&taken, NULL, &found, &e), HR_ERROR_BUDGET);
    for (uint32_t i = 0; i < count; i++) {
      const hr_fix *f = &fixes[i];
      if (f->changes_algorithm || (rows_stay && strstr(f->options, "--micro-batch"))) continue;
      if ((double)found.smallest_bytes > (double)f->need_bytes * (1 + packing))
        fail_msg("%s %s: the smallest need is said to be %llu, %s needs %llu", refused[n].model, refused[n].options,
                 (unsigned long long)found.smallest_bytes, f->options, (unsigned long long)f->need_bytes);
      compared++;
    }
  }
  assert_true(compared >= 10);
  free(fixes);
}

/* ---- real depths ---- */

/* Levels in a few runs, or groups. */
static hr_recompute random_recompute(dice *d, uint32_t layers) {
  hr_recompute r = {.kind = HR_RECOMPUTE_LEVELS, .level_count = layers};
  uint8_t level = (uint8_t)roll(d, HR_LEVEL_COUNT);
  if (roll(d, 8) == 0) return (hr_recompute){.kind = HR_RECOMPUTE_EVERY, .every = 2 + roll(d, layers - 1)};
  for (uint32_t l = 0; l < layers; l++) {
    if (roll(d, 6) == 0) level = (uint8_t)roll(d, HR_LEVEL_COUNT);
    r.levels[l] = level;
  }
  return r;
}

/* Where a refusal of a job of many nodes names its smallest need, the same levels need no less in other packings and other
 * chunks together: there the plan itself may be a page smaller. */
static void the_smallest_need_is_no_larger_than_its_neighbours(void **state) {
  static const one deep[] = {{"smollm2-135m", "cpu", "--seq 2048 --micro-batch 1 --threads 2"},
                             {"gpt2-355m", "cpu", "--seq 512 --micro-batch 2 --threads 2"}};
  (void)state;
  for (size_t n = 0; n < sizeof deep / sizeof *deep; n++) {
    hr_job asked = job_of(&deep[n]), smallest;
    hr_auto found;
    hr_error e = {0};
    char *options, *end;
    uint64_t least = UINT64_MAX;
    asked.device.rates = (hr_device_rates){0};
    asked.budget_bytes = 1 << 20;
    asked.given |= HR_GIVEN_BUDGET;
    assert_int_equal(hr_job_finish(&asked, &e), HR_OK);
    smallest = asked;
    assert_int_equal(hr_plan_auto(&smallest, NULL, &found, &e), HR_ERROR_BUDGET);
    options = strstr(e.message, "(--");
    end = options ? strchr(options, ')') : NULL;
    if (!end) fail_msg("%s", e.message);
    *end = 0;
    assert_int_equal(hr_job_set_options(&smallest, options + 1, &e), HR_OK);
    for (uint32_t chunk = 32; chunk <= 4096; chunk *= 2)
      for (int packing = 0; packing <= HR_WEIGHT_PACKING_PERSISTENT; packing++) {
        hr_job job = smallest;
        hr_fit fit;
        job.loss_chunk = chunk;
        job.given |= HR_GIVEN_LOSS_CHUNK;
        job.weight_packing = (hr_weight_packing)packing;
        job.budget_bytes = job.device.usable_bytes; /* so that it is placed */
        if (hr_job_finish(&job, &e) != HR_OK) continue;
        assert_int_equal(hr_plan_fit(&job, &fit, &e), HR_OK);
        if (fit.fits && fit.need_bytes < least) least = fit.need_bytes;
      }
    if (least < found.smallest_bytes)
      fail_msg("%s: %llu said, %llu found", deep[n].model, (unsigned long long)found.smallest_bytes,
               (unsigned long long)least);
    assert_true(least == found.smallest_bytes);
  }
}

static bool random_combination(dice *d, hr_job *job) {
  hr_error e = {0};
  uint32_t split = 1 + roll(d, job->micro_batch);
  if (job->micro_batch % split) split = 1;
  job->micro_batch /= split;
  job->accumulate *= split;
  job->loss_chunk = roll(d, 2) ? HR_LOSS_CHUNK_AUTO : 128u << roll(d, 6);
  if (job->clip <= 0 && job->accumulate == 1 && roll(d, 2)) job->update = HR_UPDATE_IN_BACKWARD;
  if (job->device.packs) job->weight_packing = (hr_weight_packing)roll(d, 1 + HR_WEIGHT_PACKING_PERSISTENT);
  job->recompute = random_recompute(d, job->model.layer_count);
  return hr_job_finish(job, &e) == HR_OK;
}

/* Nothing that was drawn is faster and fits. Drafts decide but for those that might. */
static void no_random_combination_is_better(void **state) {
  enum { BUDGETS_EACH = 3 };
  static const one deep[] = {{"gpt2-124m", "rtx-3060", "--seq 1024 --micro-batch 12 --clip 0"},
                             {"smollm2-135m", "rtx-4090", "--seq 1024 --micro-batch 8"},
                             {"qwen3-0.6b", "h100", "--seq 2048 --micro-batch 4 --precision bf16 --clip 0"},
                             {"gpt2-124m", "cpu", "--seq 512 --micro-batch 8 --clip 0 --threads 2"}};
  enum { DEEP = sizeof deep / sizeof *deep };
  const char *one_seed = getenv("HEADROOM_TEST_SEED");
  const uint32_t draws = getenv("HEADROOM_TEST_QUICK") ? 200 : 10000 / (DEEP * BUDGETS_EACH) + 1;
  uint32_t drawn = 0, placed = 0;
  (void)state;
  for (size_t n = 0; n < DEEP; n++) {
    hr_job asked = job_of(&deep[n]);
    hr_error e = {0};
    hr_plan *lender;
    uint64_t most;
    if (asked.device.packs) draw_rates(&(dice){n, 0}, &asked.device, asked.threads);
    assert_int_equal(hri_plan_draft(&asked, NULL, &lender, &e), HR_OK);
    most = lender->info.tiers[HR_TIER_DEVICE].reserved_bytes;
    for (uint64_t k = 1; k <= BUDGETS_EACH; k++) {
      dice d = {one_seed ? strtoull(one_seed, NULL, 0) : 100 * n + k, 0};
      hr_job taken = asked;
      hr_auto found;
      hr_plan *plan = NULL;
      taken.budget_bytes = lender->info.tiers[HR_TIER_DEVICE].fixed_bytes + most * (1 + 2 * k) / 8;
      taken.given |= HR_GIVEN_BUDGET;
      if (taken.budget_bytes > taken.device.usable_bytes) taken.budget_bytes = taken.device.usable_bytes;
      if (hr_plan_auto(&taken, &plan, &found, &e) == HR_ERROR_INTERNAL) fail_msg("%s", e.message);
      hri_mem_keep(true);
      for (uint32_t i = 0; i < draws; i++) {
        hr_job job = asked;
        hr_plan *draft;
        if (!random_combination(&d, &job) || hri_plan_draft(&job, lender, &draft, &e) != HR_OK) continue;
        drawn++;
        assert_true(found.bound_token_seconds <= per_token(draft) * (1 + 1e-9));
        assert_true(found.bound_bytes <= hri_plan_need(draft));
        if (hri_plan_need(draft) <= taken.budget_bytes &&
            (!plan || per_token(draft) < found.fastest_token_seconds * (1 - 1e-9))) {
          char text[HR_FIELD_TEXT_BYTES];
          placed++;
          assert_int_equal(hri_plan_place(draft, &e), HR_OK);
          if (hri_plan_need(draft) <= taken.budget_bytes)
            fail_msg("seed %llu: %s in %llu: %.9g s per token with %s, %.9g taken", (unsigned long long)d.seed,
                     deep[n].model, (unsigned long long)taken.budget_bytes, per_token(draft),
                     hr_job_options(&asked, &job, text, sizeof text), plan ? per_token(plan) : INFINITY);
        }
        hr_plan_destroy(draft);
      }
      hri_mem_keep(false);
      hr_plan_destroy(plan);
    }
    hr_plan_destroy(lender);
  }
  print_message("%u combinations were drawn, %u had to be placed\n", drawn, placed);
  assert_true(drawn > draws);
}

/* Fixes stand by effect class, in a class by time per token; none is beaten in both by one that changes no more; each
 * is planned again by its job. */
static void fixes_are_a_front(void **state) {
  hr_fix *fixes = calloc(HR_MAX_FIXES, sizeof *fixes);
  (void)state;
  for (size_t n = 0; n < sizeof larger / sizeof *larger; n++) {
    hr_job job = job_of(&larger[n]);
    uint32_t count = 0, classes = 0;
    hr_error e = {0};
    job.budget_bytes = UINT64_C(6) << 30;
    job.given |= HR_GIVEN_BUDGET;
    assert_int_equal(hr_plan_fixes(&job, fixes, &count, &e), HR_OK);
    for (uint32_t i = 0; i < count; i++) {
      const hr_fix *f = &fixes[i];
      hr_plan *plan;
      assert_int_equal(f->effect_class, hr_job_effect(&job, &f->job));
      classes |= 1u << f->effect_class;
      if (i > 0 && f->fits && fixes[i - 1].fits)
        assert_true(fixes[i - 1].effect_class < f->effect_class ||
                    (fixes[i - 1].effect_class == f->effect_class && fixes[i - 1].token_seconds <= f->token_seconds));
      for (uint32_t k = 0; k < count && f->effect_class <= HR_EFFECT_ROUNDING; k++)
        if (k != i && fixes[k].fits == f->fits && fixes[k].effect_class <= f->effect_class &&
            fixes[k].need_bytes <= f->need_bytes && fixes[k].token_seconds <= f->token_seconds)
          fail_msg("%s: %s is beaten by %s", larger[n].model, f->options, fixes[k].options);
      assert_int_equal(hr_plan_create(&f->job, &plan, &e), HR_OK);
      assert_int_equal(hri_plan_need(plan), f->need_bytes);
      hr_plan_destroy(plan);
    }
    assert_true((classes & 3) == 3);
  }
  free(fixes);
}

static void combinations_are_offered(void **state) {
  static const char *const wanted[] = {"--recompute block --update in-backward --clip 0",
                                       "--precision bf16-pure --moments bf16"};
  const one o = {"llama-3.2-1b", "h100", "--seq 1024 --micro-batch 1"};
  hr_fix *fixes = calloc(HR_MAX_FIXES, sizeof *fixes);
  hr_job job = job_of(&o);
  hr_error e = {0};
  uint32_t count = 0;
  (void)state;
  job.budget_bytes = UINT64_C(20) << 30;
  job.given |= HR_GIVEN_BUDGET;
  assert_int_equal(hr_plan_fixes(&job, fixes, &count, &e), HR_OK);
  for (size_t w = 0; w < sizeof wanted / sizeof *wanted; w++) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++) found += strcmp(fixes[i].options, wanted[w]) == 0;
    if (found != 1) {
      for (uint32_t i = 0; i < count; i++) print_message("%s%s\n", fixes[i].fits ? "" : "(no) ", fixes[i].options);
      fail_msg("%s is offered %u times", wanted[w], found);
    }
  }
  free(fixes);
}

int main(void) {
  const struct CMUnitTest first[] = {cmocka_unit_test(equals_brute_force),
                                     cmocka_unit_test(drawn_jobs_equal_brute_force)},
                          drawn[] = {cmocka_unit_test(drawn_jobs_equal_brute_force)},
                          tests[] = {cmocka_unit_test(never_worse_than_a_fix),
                                     cmocka_unit_test(the_smallest_need_is_no_larger_than_a_fix),
                                     cmocka_unit_test(the_smallest_need_is_no_larger_than_its_neighbours),
                                     cmocka_unit_test(no_random_combination_is_better),
                                     cmocka_unit_test(fixes_are_a_front),
                                     cmocka_unit_test(combinations_are_offered)};
  const int failed = getenv("HEADROOM_AUTO_DRAWN") ? cmocka_run_group_tests(drawn, NULL, NULL)
                                                   : cmocka_run_group_tests(first, NULL, NULL);
  return getenv("HEADROOM_AUTO_JOB") || getenv("HEADROOM_AUTO_DRAWN")
             ? failed
             : failed + cmocka_run_group_tests(tests, NULL, NULL);
}
