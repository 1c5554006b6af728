/* --recompute auto: the tables it works from, the optimum against every mixture of levels, monotony, time. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include <headroom/plan.h>

enum { MAX_ALL = 625 }; /* 5^4 */

static uint64_t need(const hr_plan *plan) {
  const hr_tier_plan *t = &hr_plan_get(plan)->tiers[HR_TIER_DEVICE];
  return t->reserved_bytes + t->fixed_bytes;
}

static uint64_t most(uint64_t a, uint64_t b) { return a > b ? a : b; }

typedef struct shape {
  const char *model, *device;
  uint32_t sequence, micro_batch, accumulate;
  hr_optimizer optimizer;
  hr_update update;
  hr_attention attention;
} shape;

static const shape shapes[] = {
    {"custom:family=llama,layers=2,hidden=64,heads=4,kv-heads=2,mlp=172,vocab=256,positions=256", "rtx-3090", 64, 2, 1, HR_OPTIMIZER_ADAMW, HR_UPDATE_AFTER, HR_ATTENTION_FLASH},
    {"custom:family=llama,layers=3,hidden=64,heads=4,kv-heads=2,mlp=172,vocab=256,positions=256", "rtx-3090", 128, 4, 1, HR_OPTIMIZER_ADAMW, HR_UPDATE_IN_BACKWARD, HR_ATTENTION_FLASH},
    {"custom:family=llama,layers=4,hidden=64,heads=4,kv-heads=2,mlp=172,vocab=256,positions=256", "rtx-3090", 128, 4, 1, HR_OPTIMIZER_SGD, HR_UPDATE_AFTER, HR_ATTENTION_FLASH},
    {"custom:family=gpt2,layers=4,hidden=64,heads=4,vocab=512,positions=128", "rtx-3090", 128, 4, 2, HR_OPTIMIZER_ADAMW, HR_UPDATE_AFTER, HR_ATTENTION_FLASH},
    {"custom:family=gpt2,layers=3,hidden=128,heads=4,vocab=256,positions=128", "rtx-3090", 128, 2, 1, HR_OPTIMIZER_SGD, HR_UPDATE_IN_BACKWARD, HR_ATTENTION_MATERIALIZED},
    {"custom:family=gpt2,layers=3,hidden=64,heads=2,vocab=256,positions=64", "cpu", 64, 8, 1, HR_OPTIMIZER_MOMENTUM, HR_UPDATE_AFTER, HR_ATTENTION_FLASH},
    {"custom:family=llama,layers=4,hidden=256,heads=4,kv-heads=4,mlp=688,vocab=256,positions=64", "rtx-3090", 32, 1, 1, HR_OPTIMIZER_ADAMW, HR_UPDATE_AFTER, HR_ATTENTION_FLASH},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void make_job(const shape *s, hr_job *job) {
  hr_error e = {0};
  hr_job_init(job);
  if (hr_model_open(s->model, &job->model, &e) != HR_OK || hr_device_find(s->device, &job->device, &e) != HR_OK) fail_msg("%s", e.message);
  job->sequence_length = s->sequence;
  job->micro_batch = s->micro_batch;
  job->accumulate = s->accumulate;
  job->optimizer = s->optimizer;
  job->update = s->update;
  job->attention = s->attention;
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
      uint64_t saved = 0, live = 0;
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
        uint64_t kept = 0;
        for (uint32_t k = 0; k < layers; k++) kept += tables[0].layers[k].saved_bytes;
        live = most(most(live, tables[0].outside_bytes), saved + tables[0].between_bytes - kept);
      }
      if (live != hr_plan_get(plan)->tiers[HR_TIER_DEVICE].lower_bound_bytes)
        fail_msg("shape %zu, mixture %u: %llu live bytes by the tables, %llu in the plan", n, index, (unsigned long long)live,
                 (unsigned long long)hr_plan_get(plan)->tiers[HR_TIER_DEVICE].lower_bound_bytes);
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
  double best = INFINITY;
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
      fail_msg("%s: nothing fits %llu; the least is %llu, %llu was found", where, (unsigned long long)budget, (unsigned long long)least, (unsigned long long)need(plan));
  } else if (!hr_plan_get(plan)->fits || hr_plan_get(plan)->step_seconds > best * (1 + 1e-9)) {
    char text[256];
    fail_msg("%s, budget %llu: %.9g s with %s, best %.9g s", where, (unsigned long long)budget, hr_plan_get(plan)->step_seconds,
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
    for (uint32_t k = 0; k < BUDGETS; k++) {
      uint64_t budget = sorted->need[(uint64_t)k * (sorted->count - 1) / (BUDGETS - 1)];
      against_every(where, job, all, budget);
      against_every(where, job, all, budget - 4096);
    }
    free(all);
    free(sorted);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_tables_predict_every_mixture),
      cmocka_unit_test(test_equals_brute_force),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
