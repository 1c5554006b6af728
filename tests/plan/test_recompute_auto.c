/* --recompute auto: the tables it works from, the optimum against every mixture of levels, monotony, time. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <headroom/plan.h>

#include "base/mem.h"
#include "base/rng.h"
#include "plan/plan.h"
#include "search/search.h"
#include "support/cpu_seconds.h"

enum { MAX_ALL = 625 }; /* 5^4 */

static uint64_t need(const hr_plan *plan) {
  const hr_tier_plan *t = &hr_plan_get(plan)->tiers[HR_TIER_DEVICE];
  return t->reserved_bytes + t->fixed_bytes;
}

static uint64_t most(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Every budget, or with HEADROOM_TEST_QUICK some. */
static uint32_t stride(void) { return getenv("HEADROOM_TEST_QUICK") ? 5 : 1; }

typedef struct shape {
  const char *model, *device;
  uint32_t sequence, micro_batch, accumulate;
  hr_optimizer optimizer;
  hr_update update;
  hr_attention attention;
  hr_precision precision;
} shape;

static const shape shapes[] = {
    {"custom:family=llama,layers=2,hidden=64,heads=4,kv-heads=2,mlp=172,vocab=256,positions=256", "rtx-3090", 64, 2, 1,
     HR_OPTIMIZER_ADAMW, HR_UPDATE_AFTER, HR_ATTENTION_FLASH, HR_PRECISION_BF16},
    {"custom:family=llama,layers=3,hidden=64,heads=4,kv-heads=2,mlp=172,vocab=256,positions=256", "rtx-3090", 128, 4, 1,
     HR_OPTIMIZER_ADAMW, HR_UPDATE_IN_BACKWARD, HR_ATTENTION_FLASH, HR_PRECISION_FP32},
    {"custom:family=llama,layers=4,hidden=64,heads=4,kv-heads=2,mlp=172,vocab=256,positions=256", "rtx-3090", 128, 4, 1,
     HR_OPTIMIZER_SGD, HR_UPDATE_AFTER, HR_ATTENTION_FLASH, HR_PRECISION_FP32},
    {"custom:family=gpt2,layers=4,hidden=64,heads=4,vocab=512,positions=128", "rtx-3090", 128, 4, 2, HR_OPTIMIZER_ADAMW,
     HR_UPDATE_AFTER, HR_ATTENTION_FLASH, HR_PRECISION_FP32},
    {"custom:family=gpt2,layers=3,hidden=128,heads=4,vocab=256,positions=128", "rtx-3090", 128, 2, 1, HR_OPTIMIZER_SGD,
     HR_UPDATE_IN_BACKWARD, HR_ATTENTION_MATERIALIZED, HR_PRECISION_BF16_PURE},
    {"custom:family=gpt2,layers=3,hidden=64,heads=2,vocab=256,positions=64", "cpu", 64, 8, 1, HR_OPTIMIZER_MOMENTUM,
     HR_UPDATE_AFTER, HR_ATTENTION_FLASH, HR_PRECISION_FP32},
    {"custom:family=llama,layers=4,hidden=256,heads=4,kv-heads=4,mlp=688,vocab=256,positions=64", "rtx-3090", 32, 1, 1,
     HR_OPTIMIZER_ADAMW, HR_UPDATE_AFTER, HR_ATTENTION_FLASH, HR_PRECISION_FP32},
    /* most is live at the loss, whatever the levels; with operands packed where bytes are free */
    {"custom:family=gpt2,layers=3,hidden=768,heads=12,vocab=16384,positions=1024", "cpu", 1024, 2, 1,
     HR_OPTIMIZER_ADAMW, HR_UPDATE_IN_BACKWARD, HR_ATTENTION_FLASH, HR_PRECISION_FP32},
    {"custom:family=gpt2,layers=3,hidden=768,heads=12,vocab=16384,positions=1024", "rtx-3090", 1024, 2, 1,
     HR_OPTIMIZER_ADAMW, HR_UPDATE_IN_BACKWARD, HR_ATTENTION_FLASH, HR_PRECISION_FP32},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void make_job(const shape *s, hr_job *job) {
  hr_error e = {0};
  hr_job_init(job);
  if (hr_model_open(s->model, &job->model, &e) != HR_OK || hr_device_find(s->device, &job->device, &e) != HR_OK)
    fail_msg("%s", e.message);
  job->sequence_length = s->sequence;
  job->micro_batch = s->micro_batch;
  job->accumulate = s->accumulate;
  job->optimizer = s->optimizer;
  job->update = s->update;
  job->attention = s->attention;
  job->precision = s->precision;
  job->threads = 1;
  job->recompute.kind = HR_RECOMPUTE_AUTO;
  if (hr_job_finish(job, &e) != HR_OK) fail_msg("%s: %s", s->model, e.message);
}

static hr_plan *plan_of(const hr_job *base, const uint8_t *levels) {
  hr_error e = {0};
  hr_plan *plan = NULL;
  hr_job job = *base;
  job.recompute = (hr_recompute){.kind = HR_RECOMPUTE_LEVELS, .level_count = job.model.layer_count};
  memcpy(job.recompute.levels, levels, job.model.layer_count);
  if (hr_plan_create(&job, &plan, &e) != HR_OK) fail_msg("%s", e.message);
  return plan;
}

/* The index-th mixture in counting order. */
static void mixture(uint32_t index, uint32_t layers, uint8_t *levels) {
  for (uint32_t l = 0; l < layers; l++, index /= HR_LEVEL_COUNT) levels[l] = (uint8_t)(index % HR_LEVEL_COUNT);
}

static uint32_t mixtures(uint32_t layers) { return layers == 0 ? 1 : HR_LEVEL_COUNT * mixtures(layers - 1); }

/* ---- what the search rests on: layers of different plans may be exchanged ---- */

static void test_tables_predict_every_mixture(void **state) {
  (void)state;
  for (size_t n = 0; n < SHAPES; n++) {
    hr_plan_layers *tables = calloc(HR_LEVEL_COUNT, sizeof *tables);
    hr_error e = {0};
    hr_job job;
    uint32_t layers;
    make_job(&shapes[n], &job);
    job.weight_packing = HR_WEIGHT_PACKING_OFF; /* what automatic packing does to a layer depends on all others */
    layers = job.model.layer_count;
    for (uint8_t level = 0; level < HR_LEVEL_COUNT; level++) {
      uint8_t same[4];
      hr_plan *plan;
      memset(same, level, sizeof same);
      plan = plan_of(&job, same);
      assert_int_equal(hr_plan_layers_get(plan, &tables[level], &e), HR_OK);
      hr_plan_destroy(plan);
    }
    for (uint32_t index = 0; index < mixtures(layers); index++) {
      uint8_t levels[4];
      uint64_t saved = 0, live = 0, bound;
      double seconds = tables[0].outside_seconds;
      hr_plan *plan;
      mixture(index, layers, levels);
      plan = plan_of(&job, levels);
      for (uint32_t l = 0; l < layers; l++) {
        const hr_plan_layers *t = &tables[levels[l]];
        uint64_t below = 0;
        for (uint32_t k = 0; k < l; k++) below += t->layers[k].saved_bytes;
        live = most(live, saved + most(t->layers[l].forward_bytes, t->layers[l].backward_bytes) - below);
        saved += t->layers[l].saved_bytes;
        seconds += t->layers[l].seconds;
      }
      {
        const hr_plan_layers *last = &tables[levels[layers - 1]]; /* its level decides whose the last residual is */
        uint64_t kept = 0;
        for (uint32_t k = 0; k < layers; k++) kept += last->layers[k].saved_bytes;
        live = most(most(live, tables[0].outside_bytes), saved + last->between_bytes - kept);
      }
      /* Exact but for a small node that the schedule pass moves over the border of two layers. */
      bound = hr_plan_get(plan)->tiers[HR_TIER_DEVICE].lower_bound_bytes;
      if (live < bound || live > bound + bound / 5000)
        fail_msg("shape %zu, mixture %u: %llu live bytes by the tables, %llu in the plan", n, index,
                 (unsigned long long)live, (unsigned long long)bound);
      assert_true(fabs(seconds / hr_plan_get(plan)->step_seconds - 1) < 1e-9);
      hr_plan_destroy(plan);
    }
    free(tables);
  }
}

/* ---- the optimum ---- */

typedef struct every {
  uint64_t need[MAX_ALL];
  double seconds[MAX_ALL];
  uint32_t count;
} every;

static void plan_every(const hr_job *job, every *all) {
  all->count = mixtures(job->model.layer_count);
  for (uint32_t index = 0; index < all->count; index++) {
    uint8_t levels[4];
    hr_plan *plan;
    mixture(index, job->model.layer_count, levels);
    plan = plan_of(job, levels);
    all->need[index] = need(plan);
    all->seconds[index] = hr_plan_get(plan)->step_seconds;
    hr_plan_destroy(plan);
  }
}

static void against_every(const char *where, hr_job job, const every *all, uint64_t budget) {
  double best = INFINITY, slack = job.device.packs ? 0.01 : 1e-9; /* automatic packing depends on all layers together */
  uint64_t least = UINT64_MAX;
  hr_error e = {0};
  hr_plan *plan = NULL;
  for (uint32_t k = 0; k < all->count; k++) {
    if (all->need[k] <= budget && all->seconds[k] < best) best = all->seconds[k];
    if (all->need[k] < least) least = all->need[k];
  }
  job.budget_bytes = budget;
  if (hr_plan_recompute(&job, &plan, NULL, &e) != HR_OK) fail_msg("%s", e.message);
  if (isinf(best)) {
    if (hr_plan_get(plan)->fits || need(plan) > least + least / 100)
      fail_msg("%s: nothing fits %llu; the least is %llu, %llu was found", where, (unsigned long long)budget,
               (unsigned long long)least, (unsigned long long)need(plan));
  } else if (!hr_plan_get(plan)->fits || hr_plan_get(plan)->step_seconds > best * (1 + slack)) {
    char text[256];
    fail_msg("%s, budget %llu: %.9g s with %s, best %.9g s", where, (unsigned long long)budget,
             hr_plan_get(plan)->step_seconds,
             hr_recompute_text(&job.recompute, job.model.layer_count, text, sizeof text), best);
  }
  assert_int_equal(job.recompute.kind, HR_RECOMPUTE_LEVELS);
  hr_plan_destroy(plan);
}

static int by_bytes(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x < y ? -1 : x > y;
}

/* Budgets: needs that occur, exactly and one granule below, over their whole range. */
static void test_equals_brute_force(void **state) {
  enum { BUDGETS = 12 };
  (void)state;
  for (size_t n = 0; n < SHAPES; n++) {
    every *all = malloc(sizeof *all), *sorted = malloc(sizeof *sorted);
    char where[64];
    hr_job job;
    make_job(&shapes[n], &job);
    plan_every(&job, all);
    *sorted = *all;
    qsort(sorted->need, sorted->count, sizeof *sorted->need, by_bytes);
    (void)snprintf(where, sizeof where, "shape %zu", n);
    for (uint32_t k = 0; k < BUDGETS; k += stride()) {
      uint64_t budget = sorted->need[(uint64_t)k * (sorted->count - 1) / (BUDGETS - 1)];
      against_every(where, job, all, budget);
      against_every(where, job, all, budget - 4096);
    }
    free(all);
    free(sorted);
  }
}

/* Nine layers are too many to plan every mixture, and more than the last step of the search lists: what the dynamic
 * program finds is held against all 1953125 by the tables, less what a placement may need beyond the live bytes. */
static void test_equals_every_table_entry(void **state) {
  static const shape nine = {"custom:family=gpt2,layers=9,hidden=256,heads=4,vocab=256,positions=256",
                             "rtx-3090",
                             128,
                             4,
                             1,
                             HR_OPTIMIZER_ADAMW,
                             HR_UPDATE_AFTER,
                             HR_ATTENTION_FLASH,
                             HR_PRECISION_FP32};
  enum { LAYERS = 9, BUDGETS = 4, PAGE = 2 << 20 /* of the card's memory */ };
  static const double gap = 0.002;
  hr_plan_layers *tables = calloc(HR_LEVEL_COUNT, sizeof *tables);
  uint64_t kept = 0, fixed = 0, high = 0, low = UINT64_MAX;
  hr_error e = {0};
  hr_job job;
  (void)state;
  make_job(&nine, &job);
  for (uint8_t level = 0; level < HR_LEVEL_COUNT; level++) {
    uint8_t same[LAYERS];
    hr_plan *plan;
    memset(same, level, sizeof same);
    plan = plan_of(&job, same);
    assert_int_equal(hr_plan_layers_get(plan, &tables[level], &e), HR_OK);
    fixed = hr_plan_get(plan)->tiers[HR_TIER_DEVICE].fixed_bytes;
    high = most(high, need(plan));
    if (need(plan) < low) low = need(plan);
    hr_plan_destroy(plan);
  }
  for (uint32_t l = 0; l < LAYERS; l++) kept += tables[0].layers[l].saved_bytes;
  for (uint64_t b = 1; b <= BUDGETS; b++) {
    uint64_t budget = low + (high - low) * b / (BUDGETS + 1),
             room = (uint64_t)((double)((budget - fixed) / PAGE * PAGE) * (1 - gap));
    double best = INFINITY;
    hr_plan *plan = NULL;
    for (uint32_t index = 0; index < mixtures(LAYERS); index++) {
      uint8_t levels[LAYERS];
      uint64_t live = 0, saved = 0, below[HR_LEVEL_COUNT] = {0};
      double seconds = tables[0].outside_seconds;
      mixture(index, LAYERS, levels);
      for (uint32_t l = 0; l < LAYERS; l++) {
        const hr_layer_share *share = &tables[levels[l]].layers[l];
        live = most(live, saved + most(share->forward_bytes, share->backward_bytes) - below[levels[l]]);
        saved += share->saved_bytes;
        seconds += share->seconds;
        for (int level = 0; level < HR_LEVEL_COUNT; level++) below[level] += tables[level].layers[l].saved_bytes;
      }
      if (most(most(live, tables[0].outside_bytes), saved + tables[0].between_bytes - kept) <= room && seconds < best)
        best = seconds;
    }
    job.budget_bytes = budget;
    assert_int_equal(hr_plan_recompute(&job, &plan, NULL, &e), HR_OK);
    assert_true(hr_plan_get(plan)->fits && isfinite(best));
    assert_true(hr_plan_get(plan)->step_seconds <= best * (1 + 1e-9));
    hr_plan_destroy(plan);
  }
  free(tables);
}

/* ---- larger models ---- */

static hr_job preset_job(const char *model, const char *device, uint32_t sequence, uint32_t micro_batch,
                         hr_update update) {
  hr_error e = {0};
  hr_job job;
  hr_job_init(&job);
  if (hr_model_open(model, &job.model, &e) != HR_OK || hr_device_find(device, &job.device, &e) != HR_OK)
    fail_msg("%s", e.message);
  job.sequence_length = sequence;
  job.micro_batch = micro_batch;
  job.update = update;
  job.threads = 1;
  job.recompute.kind = HR_RECOMPUTE_AUTO;
  if (hr_job_finish(&job, &e) != HR_OK) fail_msg("%s", e.message);
  return job;
}

static uint64_t need_of_level(const hr_job *job, uint8_t level) {
  uint8_t levels[HR_MAX_LAYERS];
  hr_plan *plan;
  uint64_t bytes;
  memset(levels, level, sizeof levels);
  plan = plan_of(job, levels);
  bytes = need(plan);
  hr_plan_destroy(plan);
  return bytes;
}

static void test_more_budget_is_never_slower(void **state) {
  static const struct {
    const char *model, *device;
    uint32_t sequence, micro_batch;
    hr_update update;
  } jobs[] = {{"gpt2-124m", "rtx-3090", 1024, 4, HR_UPDATE_AFTER},
              {"smollm2-135m", "rtx-3090", 512, 4, HR_UPDATE_IN_BACKWARD}};
  enum { BUDGETS = 24 };
  (void)state;
  for (size_t n = 0; n < sizeof jobs / sizeof *jobs; n++) {
    hr_job base = preset_job(jobs[n].model, jobs[n].device, jobs[n].sequence, jobs[n].micro_batch, jobs[n].update);
    uint64_t high = need_of_level(&base, HR_LEVEL_KEEP), low = need_of_level(&base, HR_LEVEL_BLOCK);
    double before = INFINITY;
    bool fitted = false;
    low -= low / 50;
    for (uint64_t k = 0; k < BUDGETS; k += stride()) {
      hr_job job = base;
      hr_error e = {0};
      hr_plan *plan = NULL;
      job.budget_bytes = low + (high - low) * k / (BUDGETS - 1);
      assert_int_equal(hr_plan_recompute(&job, &plan, NULL, &e), HR_OK);
      assert_true(hr_plan_get(plan)->fits || !fitted);
      if (hr_plan_get(plan)->fits) {
        assert_true(need(plan) <= job.budget_bytes);
        assert_true(hr_plan_get(plan)->step_seconds <= before * (1 + 1e-12));
        before = hr_plan_get(plan)->step_seconds;
        fitted = true;
      }
      hr_plan_destroy(plan);
    }
    assert_true(fitted);
  }
}

/* What is between the same level everywhere is used: the time lies on or below the line between its neighbours. */
static void test_beats_the_same_level_everywhere(void **state) {
  hr_job job = preset_job("llama-2-7b", "h100", 2048, 2, HR_UPDATE_IN_BACKWARD);
  uint64_t cheap = need_of_level(&job, HR_LEVEL_CHEAP), keep = need_of_level(&job, HR_LEVEL_KEEP);
  uint8_t same[HR_MAX_LAYERS];
  hr_error e = {0};
  hr_plan *plan = NULL, *slow, *fast;
  (void)state;
  memset(same, HR_LEVEL_CHEAP, sizeof same);
  slow = plan_of(&job, same);
  memset(same, HR_LEVEL_KEEP, sizeof same);
  fast = plan_of(&job, same);
  job.budget_bytes = cheap + (keep - cheap) / 2;
  assert_int_equal(hr_plan_recompute(&job, &plan, NULL, &e), HR_OK);
  assert_true(hr_plan_get(plan)->fits);
  assert_true(hr_plan_get(plan)->step_seconds <
              (0.55 * hr_plan_get(slow)->step_seconds + 0.45 * hr_plan_get(fast)->step_seconds));
  hr_plan_destroy(plan);
  hr_plan_destroy(slow);
  hr_plan_destroy(fast);
}

/* 80 layers; the bound of a second is said for a machine that does nothing else and an optimised build, hence the
 * room. */
static void test_eighty_layers(void **state) {
  hr_job job = preset_job("llama-2-70b", "cpu", 4096, 4, HR_UPDATE_IN_BACKWARD);
  uint64_t cheap = need_of_level(&job, HR_LEVEL_CHEAP), block = need_of_level(&job, HR_LEVEL_BLOCK);
  double begin = cpu_seconds(), taken;
  hr_error e = {0};
  hr_plan *plan = NULL;
  (void)state;
  job.budget_bytes = block + (cheap - block) / 2;
  assert_int_equal(hr_plan_recompute(&job, &plan, NULL, &e), HR_OK);
  taken = cpu_seconds() - begin;
  print_message("80 layers took %.2f s of CPU time\n", taken);
  assert_true(hr_plan_get(plan)->fits);
  assert_true(job.budget_bytes - need(plan) < (cheap - block) / 50); /* the budget is used */
  assert_true(taken < 10);
  hr_plan_destroy(plan);
}

/* ---- against what another search found ---- */

static void draw_row(uint32_t *count, double *row, uint32_t entries, double most) {
  for (uint32_t k = 0; k < entries; k++) {
    uint32_t drawn[4];
    hri_philox(5, 0, (*count)++, drawn);
    row[k] = most * (0.1 + 0.9 * hri_uniform(drawn[0], drawn[1]));
  }
}

static void draw_measured(hr_device *device, uint32_t threads) {
  hr_device_rates *r = &device->rates;
  uint32_t count = 0;
  r->threads = threads;
  r->node_seconds = 1e-6;
  for (uint32_t type = 0; type < HR_RATE_TYPES; type++) {
    hr_rate_tables *t = &r->tables[type];
    for (uint32_t kind = 0; kind < HR_PRODUCT_KINDS; kind++)
      for (uint32_t side = 0; side < HR_PRODUCT_SIDES; side++)
        draw_row(&count, t->product_flops[kind][side], HR_PRODUCT_SIZES, 4e11);
    for (uint32_t kind = 0; kind < HR_ATTENTION_KINDS; kind++)
      draw_row(&count, t->attention_flops[kind], HR_ATTENTION_SIZES, 1e11);
    for (uint32_t kind = 0; kind < HR_STREAM_COUNT; kind++)
      draw_row(&count, t->stream_bytes[kind], HR_STREAM_SIZES, 1e11);
  }
}

/* What is chosen with nobody to beat is found as well where somebody is to be beaten who is slower by little: what cannot
 * beat him on the way there does not end the search. Nothing is tried one by one, which few real depths can afford. */
static void test_a_slower_rival_hides_nothing(void **state) {
  static const shape asked[] = {{"gemma-3-1b", "h100", 512, 4, 1, HR_OPTIMIZER_ADAMW, HR_UPDATE_AFTER,
                                 HR_ATTENTION_FLASH, HR_PRECISION_BF16_PURE},
                                {"gpt2-124m", "rtx-3090", 1024, 8, 1, HR_OPTIMIZER_ADAMW, HR_UPDATE_AFTER,
                                 HR_ATTENTION_FLASH, HR_PRECISION_FP32},
                                {"gpt2-124m", "cpu", 512, 8, 1, HR_OPTIMIZER_ADAMW, HR_UPDATE_AFTER, HR_ATTENTION_FLASH,
                                 HR_PRECISION_FP32}};
  static const double slower[] = {1 + 1e-9, 1.0005, 1.002, 1.005};
  enum { BUDGETS = 20, RIVALS = sizeof slower / sizeof *slower };
  uint32_t compared = 0;
  (void)state;
  for (size_t n = 0; n < sizeof asked / sizeof *asked; n++) {
    uint64_t high, low;
    hr_job job;
    make_job(&asked[n], &job);
    high = need_of_level(&job, HR_LEVEL_KEEP);
    low = need_of_level(&job, HR_LEVEL_BLOCK);
    for (uint64_t k = 0; k < BUDGETS; k += stride()) {
      uint64_t left = 0;
      const hri_rival nobody = hri_nobody(&left);
      hr_error e = {0};
      hri_choice alone, choice;
      job.budget_bytes = low + (high - low) * (2 * k + 1) / (2 * BUDGETS);
      assert_int_equal(hri_choose_levels(&job, NULL, &nobody, &alone, NULL, &e), HR_OK);
      for (size_t r = 0; r < RIVALS && alone.fits; r++) {
        const hri_rival rival = {alone.step_seconds * slower[r], 0, &left};
        assert_int_equal(hri_choose_levels(&job, NULL, &rival, &choice, NULL, &e), HR_OK);
        if (choice.beaten || !choice.fits || choice.step_seconds > alone.step_seconds * (1 + 1e-9))
          fail_msg("%s on %s in %llu: %.9g s, and against %.9g s %s", asked[n].model, asked[n].device,
                   (unsigned long long)job.budget_bytes, alone.step_seconds, rival.step_seconds,
                   choice.beaten || !choice.fits ? "nothing" : "more");
        compared++;
      }
    }
  }
  assert_true(compared >= 20);
}

/* By measured rates of which any size and packing may be the fastest, many mixtures may be faster than to keep all, and
 * are planned one by one while the allowance lasts: one for all numbers of rows, not one for each of 30. */
static void test_rows_share_an_allowance(void **state) {
  const uint32_t rows = 720;
  hr_job one, all;
  hr_error e = {0};
  double begin, alone, together;
  (void)state;
  hr_job_init(&one);
  assert_int_equal(hr_model_open("custom:family=granite,layers=5,hidden=80,heads=4,kv-heads=2,mlp=223,vocab=9006,"
                                 "positions=258",
                                 &one.model, &e),
                   HR_OK);
  assert_int_equal(hr_device_find("cpu", &one.device, &e), HR_OK);
  draw_measured(&one.device, 2);
  one.device.usable_bytes = UINT64_C(1) << 30;
  one.sequence_length = 52;
  one.micro_batch = 1;
  one.accumulate = rows;
  one.loss_chunk = 321;
  one.given = HR_GIVEN_LOSS_CHUNK | HR_GIVEN_BATCH_TOKENS;
  one.threads = 2;
  one.recompute.kind = HR_RECOMPUTE_AUTO;
  all = one;
  all.rows_choice = HR_ROWS_OPEN;
  assert_int_equal(hr_job_finish(&one, &e), HR_OK);
  if (hr_job_finish(&all, &e) != HR_OK) fail_msg("%s", e.message);
  begin = cpu_seconds();
  assert_int_equal(hr_plan_recompute(&one, NULL, NULL, &e), HR_OK);
  alone = cpu_seconds() - begin;
  if (hr_plan_rows(&all, NULL, &e) != HR_OK) fail_msg("%s", e.message);
  together = cpu_seconds() - begin - alone;
  print_message("one number of rows took %.2f s of CPU time, all of them %.2f s\n", alone, together);
  assert_true((uint64_t)all.micro_batch * all.accumulate == rows && all.rows_choice == HR_ROWS_CHOSEN);
  assert_true(together < 6 * alone + 0.2);
}

/* ---- the frontier ---- */

static void test_frontier(void **state) {
  hr_job base = preset_job("gpt2-124m", "rtx-3090", 1024, 8, HR_UPDATE_AFTER);
  uint64_t high = need_of_level(&base, HR_LEVEL_KEEP);
  (void)state;
  for (int fits_all = 0; fits_all < 2; fits_all++) {
    hr_job job = base, plain = base;
    hr_frontier f;
    hr_error e = {0};
    uint32_t chosen = 0;
    job.budget_bytes = plain.budget_bytes = fits_all ? high : high - high / 3;
    assert_int_equal(hr_plan_recompute(&job, NULL, &f, &e), HR_OK);
    assert_int_equal(hr_plan_recompute(&plain, NULL, NULL, &e), HR_OK); /* looking at it changes nothing */
    assert_memory_equal(job.recompute.levels, plain.recompute.levels, job.model.layer_count);
    assert_true(f.count >= 5 && f.count <= HR_MAX_FRONTIER);
    for (uint32_t k = 0; k < f.count; k++) {
      const hr_frontier_point *p = &f.points[k];
      hr_plan *plan = plan_of(&job, p->recompute.levels);
      assert_true(need(plan) == p->need_bytes && hr_plan_get(plan)->step_seconds == p->step_seconds &&
                  hr_plan_get(plan)->fits == p->fits);
      hr_plan_destroy(plan);
      if (k > 0) assert_true(p->need_bytes > p[-1].need_bytes && p->step_seconds < p[-1].step_seconds);
      if (p->chosen) assert_memory_equal(p->recompute.levels, job.recompute.levels, job.model.layer_count);
      else if (p->fits) assert_true(p->step_seconds > 0);
      chosen += p->chosen;
    }
    assert_int_equal(chosen, 1);
    assert_true(f.points[f.count - 1].need_bytes == high); /* the least time: nothing is made again */
    assert_true(f.points[f.count - 1].chosen == (fits_all == 1));
  }
}

/* ---- around it ---- */

static void test_unresolved_is_refused(void **state) {
  hr_job job = preset_job("gpt2-124m", "rtx-3090", 128, 1, HR_UPDATE_AFTER);
  hr_error e = {0};
  hr_plan *plan = NULL;
  (void)state;
  assert_int_equal(hr_plan_create(&job, &plan, &e), HR_ERROR_USAGE);
  assert_non_null(strstr(e.message, "--recompute auto"));
  assert_non_null(strstr(e.hint, "hr_plan_recompute"));
  job.purpose = HR_PURPOSE_EVALUATE; /* has no backward: the value does not matter, and there is nothing to choose */
  assert_int_equal(hr_plan_create(&job, &plan, &e), HR_OK);
  hr_plan_destroy(plan);
  assert_int_equal(hr_plan_recompute(&job, NULL, NULL, &e), HR_ERROR_USAGE);
}

static void test_selective_is_cheap_everywhere(void **state) {
  hr_job job = preset_job("gpt2-124m", "rtx-3090", 512, 2, HR_UPDATE_AFTER);
  hr_error e = {0};
  hr_plan *plan = NULL;
  (void)state;
  assert_int_equal(hr_recompute_parse("selective", &job.recompute, &e), HR_OK);
  assert_int_equal(hr_plan_create(&job, &plan, &e), HR_OK);
  assert_true(need(plan) == need_of_level(&job, HR_LEVEL_CHEAP));
  assert_true(need(plan) < need_of_level(&job, HR_LEVEL_KEEP));
  hr_plan_destroy(plan);
}

/* --auto takes chosen levels, the fixes offer them: where no uniform level uses the budget up. */
static void test_search_uses_levels(void **state) {
  hr_job job = preset_job("gpt2-124m", "rtx-3090", 1024, 8, HR_UPDATE_AFTER), automatic;
  uint64_t mlp = need_of_level(&job, HR_LEVEL_MLP), cheap = need_of_level(&job, HR_LEVEL_CHEAP);
  hr_fix *fixes = calloc(HR_MAX_FIXES, sizeof *fixes);
  uint32_t count, found = 0;
  hr_error e = {0};
  hr_plan *plan = NULL;
  (void)state;
  job.recompute.kind = HR_RECOMPUTE_NONE;
  job.budget_bytes = mlp + (cheap - mlp) / 2;
  job.given = HR_GIVEN_MICRO_BATCH | HR_GIVEN_LOSS_CHUNK;
  automatic = job;
  assert_int_equal(hr_plan_fixes(&job, fixes, &count, &e), HR_OK);
  for (uint32_t k = 0; k < count; k++) {
    if (strncmp(fixes[k].options, "--recompute levels:", 19) != 0 || !strchr(fixes[k].options, ',')) continue;
    assert_true(fixes[k].fits && fixes[k].need_bytes > mlp);
    found++;
  }
  assert_int_equal(found, 1);
  assert_int_equal(hr_plan_auto(&automatic, &plan, NULL, &e), HR_OK);
  assert_int_equal(automatic.recompute.kind, HR_RECOMPUTE_LEVELS);
  assert_true(hr_plan_get(plan)->fits && need(plan) > mlp);
  hr_plan_destroy(plan);
  free(fixes);
}

/* Every allocation fails in turn: MEMORY, the job untouched, nothing lost (the leak checker counts). */
static void test_allocation_failures(void **state) {
  uint64_t live = hri_mem_live_bytes(), n;
  (void)state;
  for (n = 1;; n += 1 + n / 8) {
    hr_job job, before;
    hr_error e = {0};
    hr_plan *plan = NULL;
    hr_frontier f;
    hr_status status;
    make_job(&shapes[0], &job);
    before = job;
    hri_mem_fail_after(n);
    status = hr_plan_recompute(&job, &plan, &f, &e);
    hri_mem_fail_after(0);
    hr_plan_destroy(plan);
    assert_true(hri_mem_live_bytes() == live);
    if (status == HR_OK) break;
    assert_int_equal(status, HR_ERROR_MEMORY);
    assert_memory_equal(&job, &before, sizeof job);
  }
  assert_true(n > 100);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_tables_predict_every_mixture),
      cmocka_unit_test(test_equals_brute_force),
      cmocka_unit_test(test_equals_every_table_entry),
      cmocka_unit_test(test_more_budget_is_never_slower),
      cmocka_unit_test(test_beats_the_same_level_everywhere),
      cmocka_unit_test(test_eighty_layers),
      cmocka_unit_test(test_a_slower_rival_hides_nothing),
      cmocka_unit_test(test_rows_share_an_allowance),
      cmocka_unit_test(test_frontier),
      cmocka_unit_test(test_unresolved_is_refused),
      cmocka_unit_test(test_selective_is_cheap_everywhere),
      cmocka_unit_test(test_search_uses_levels),
      cmocka_unit_test(test_allocation_failures),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
