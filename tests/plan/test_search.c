/* What the search compares is what the full compile says: drafts of 1,000 random candidates against whole plans, to the
 * bit.
 * The seed of a failure is printed; HEADROOM_TEST_SEED repeats it. */
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
#include "search/search.h"
#include "support/random_lora.h"

#define DICE_STREAM 3
#include "support/dice.h"

static const char *const models[] = {"micro-gpt2-bytes", "micro-llama-bytes", "tiny-llama-bytes", "gpt2-124m",
                                     "smollm2-135m",     "qwen3-0.6b",        "gemma3-1b",        "llama-2-7b"};
static const char *const devices[] = {"cpu", "rtx-4090", "t4", "h100", "mi300x"};
enum { MODELS = sizeof models / sizeof *models, DEVICES = sizeof devices / sizeof *devices };

static uint32_t roll_of(void *d, uint32_t below) { return roll(d, below); }

/* False when the options exclude each other. */
static bool random_job(dice *d, hr_job *job) {
  hr_error e = {0};
  hr_job_init(job);
  if (hr_model_open(models[roll(d, roll(d, 8) ? MODELS - 1 : MODELS)], &job->model, &e) != HR_OK) return false;
  assert_int_equal(hr_device_find(devices[roll(d, DEVICES)], &job->device, &e), HR_OK);
  job->threads = 1 + roll(d, 2);
  job->budget_bytes = UINT64_C(1) << (26 + roll(d, 10));
  if (!job->device.usable_now && job->budget_bytes > job->device.usable_bytes) job->budget_bytes = 0;
  job->sequence_length = 16 * (1 + roll(d, 64));
  job->micro_batch = 1 + roll(d, 8);
  job->accumulate = roll(d, 3) ? 1 : 2 + roll(d, 3);
  job->attention = (hr_attention)(roll(d, 5) == 0);
  job->optimizer = (hr_optimizer)roll(d, HR_OPTIMIZER_COUNT);
  job->clip = roll(d, 2) ? 1.0 : 0;
  job->precision = (hr_precision)roll(d, job->device.flops_tf32 > 0 ? 5 : 4);
  if (job->precision == HR_PRECISION_BF16_PURE) job->moments = (hr_moments)roll(d, 2);
  job->weight_packing = (hr_weight_packing)roll(d, 4);
  job->packing = roll(d, 4) ? job->packing : HR_PACKING_OFF;
  job->check = roll(d, 6) == 0;
  job->with_generation = roll(d, 4) == 0;
  if (roll(d, 3) == 0) {
    static char words[512];
    random_lora(&job->model, roll_of, d, words);
    job->lora = words;
  }
  job->purpose = roll(d, 8) ? HR_PURPOSE_TRAIN : roll(d, 2) ? HR_PURPOSE_EVALUATE : HR_PURPOSE_GENERATE;
  return hr_job_finish(job, &e) == HR_OK;
}

static hri_change random_change(dice *d) {
  static const unsigned algorithms[] = {0,
                                        0,
                                        0,
                                        HRI_CHANGE_IN_BACKWARD,
                                        HRI_CHANGE_SGD,
                                        HRI_CHANGE_SGD | HRI_CHANGE_IN_BACKWARD,
                                        HRI_CHANGE_BF16,
                                        HRI_CHANGE_HALF_SEQUENCE,
                                        HRI_CHANGE_LORA,
                                        HRI_CHANGE_LORA | HRI_CHANGE_NF4,
                                        HRI_CHANGE_LORA | HRI_CHANGE_INT8 | HRI_CHANGE_BF16,
                                        HRI_CHANGE_NF4};
  return (hri_change){.levels = (hri_levels)roll(d, HRI_LEVELS_AUTO),
                      .split = 1u << roll(d, 3),
                      .chunk = roll(d, 3) ? 0 : 128u << roll(d, 4),
                      .algorithm = algorithms[roll(d, sizeof algorithms / sizeof *algorithms)]};
}

typedef struct census {
  uint32_t compared, trained, adapted, above_bound, refused_by_bound, refused_by_placement, known;
} census;

static void expect_same(uint64_t seed, const hr_plan *draft, const hr_plan *whole, census *seen) {
  const hr_plan_info *a = &draft->info, *b = &whole->info;
  bool same = memcmp(&a->step_seconds, &b->step_seconds, sizeof a->step_seconds) == 0 &&
              memcmp(a->lane_seconds, b->lane_seconds, sizeof a->lane_seconds) == 0 && a->node_count == b->node_count &&
              a->plan_bytes == b->plan_bytes && a->budget_bytes == b->budget_bytes;
  for (int tier = 0; tier < HR_TIER_COUNT; tier++) {
    same = same && a->tiers[tier].lower_bound_bytes == b->tiers[tier].lower_bound_bytes &&
           a->tiers[tier].fixed_bytes == b->tiers[tier].fixed_bytes;
    same = same && a->tiers[tier].reserved_bytes <= b->tiers[tier].reserved_bytes;
  }
  if (!same || (b->fits && !a->fits))
    fail_msg("seed %llu: %s on %s: draft %llu bytes %.17g s, plan %llu bytes %.17g s", (unsigned long long)seed,
             whole->spec.model.name, whole->spec.device.name, (unsigned long long)a->tiers[0].lower_bound_bytes,
             a->step_seconds, (unsigned long long)b->tiers[0].lower_bound_bytes, b->step_seconds);
  seen->compared++;
  seen->trained += whole->spec.purpose == HR_PURPOSE_TRAIN;
  seen->adapted += whole->spec.model.lora.rank > 0;
  seen->above_bound += b->tiers[0].peak_bytes > b->tiers[0].lower_bound_bytes;
  seen->refused_by_bound += !a->fits;
  seen->refused_by_placement += a->fits && !b->fits;
}

static void compare_one(uint64_t seed, census *seen) {
  dice d = {seed, 0};
  hri_change change;
  hr_plan *lender, *draft, *whole;
  hr_error e = {0};
  hr_job base, job;
  if (!random_job(&d, &base) || hri_plan_draft(&base, NULL, &lender, &e) != HR_OK) return;
  for (int k = 0; k < 4; k++) { /* candidates of one job share a backend and memory, as in a search */
    size_t solved = lender->solved.entries.count;
    uint64_t least;
    job = base;
    change = random_change(&d);
    if (job.purpose != HR_PURPOSE_TRAIN)
      change = (hri_change){.split = 1, .algorithm = change.algorithm & HRI_CHANGE_QUANTIZE};
    if (!hri_change_apply(&change, &job)) continue;
    hri_mem_keep(true);
    if (hri_plan_draft(&job, lender, &draft, &e) == HR_OK) {
      if (hr_plan_create(&job, &whole, &e) != HR_OK) fail_msg("seed %llu: %s", (unsigned long long)seed, e.message);
      expect_same(seed, draft, whole, seen);
      least = hri_plan_need(draft);
      assert_int_equal(hri_plan_place(draft, &e), HR_OK);
      seen->known += lender->solved.entries.count < solved + whole->info.program_count; /* some stood there already */
      assert_int_equal(hri_plan_need(draft), hri_plan_need(whole));
      assert_int_equal(draft->info.fits, whole->info.fits);
      assert_true(least <= hri_plan_need(draft));
      assert_memory_equal(draft->placement.offsets, whole->placement.offsets,
                          whole->job.storages.count * sizeof *whole->placement.offsets);
      hr_plan_destroy(draft);
      hr_plan_destroy(whole);
    }
    hri_mem_keep(false);
  }
  hr_plan_destroy(lender);
}

static void drafts_are_exact(void **state) {
  const char *one = getenv("HEADROOM_TEST_SEED");
  const uint32_t wanted = getenv("HEADROOM_TEST_QUICK") ? 200 : 1000;
  uint64_t before = hri_mem_live_bytes();
  census seen = {0};
  (void)state;
  if (one) {
    compare_one(strtoull(one, NULL, 0), &seen);
    return;
  }
  for (uint64_t seed = 1; seen.compared < wanted; seed++) compare_one(seed, &seen);
  print_message(
      "%u candidates, %u of them trainings, %u with adapters; %u placed above their bound; refused by the bound %u, by placement alone %u; some programs known %u\n",
      seen.compared, seen.trained, seen.adapted, seen.above_bound, seen.refused_by_bound, seen.refused_by_placement,
      seen.known);
  assert_true(seen.adapted > wanted / 5 && seen.trained > wanted / 2 && seen.above_bound > wanted / 20 &&
              seen.refused_by_bound > wanted / 20 && seen.known > wanted / 4);
  assert_int_equal(hri_mem_live_bytes(), before);
}

/* The words of a change are the options that make it. */
static void changes_have_words(void **state) {
  hr_error e = {0};
  hr_job base, job;
  char text[HR_FIX_TEXT_BYTES];
  hri_change change = {.levels = HRI_LEVELS_MLP, .split = 4, .chunk = 512};
  (void)state;
  hr_job_init(&base);
  assert_int_equal(hr_model_open("gpt2-124m", &base.model, &e), HR_OK);
  assert_int_equal(hr_device_find("h100", &base.device, &e), HR_OK);
  base.micro_batch = 8;
  assert_int_equal(hr_job_finish(&base, &e), HR_OK);
  job = base;
  assert_true(hri_change_apply(&change, &job));
  hri_change_text(&change, &base, &job, text);
  assert_string_equal(text, "--recompute levels:mlp --micro-batch 2 --accumulate 4 --loss-chunk 512");
  change = (hri_change){.levels = HRI_LEVELS_AUTO, .split = 1, .algorithm = HRI_CHANGE_SGD | HRI_CHANGE_IN_BACKWARD};
  job = base;
  assert_true(hri_change_apply(&change, &job));
  assert_int_equal(job.recompute.kind, HR_RECOMPUTE_AUTO);
  hri_change_text(&change, &base, &job, text);
  assert_string_equal(text, "--recompute auto --optimizer sgd --update in-backward --clip 0");
  job.recompute = (hr_recompute){.kind = HR_RECOMPUTE_LEVELS, .level_count = 12}; /* chosen: one for each layer */
  memset(job.recompute.levels + 1, HR_LEVEL_CHEAP, 11);
  hri_change_text(&change, &base, &job, text);
  assert_string_equal(text, "--recompute levels:keep,cheap*11 --optimizer sgd --update in-backward --clip 0");
}

static hr_job job_of(const char *model, const char *device, hr_purpose purpose, const char *lora, const char *options) {
  hr_error e = {0};
  hr_job job;
  hr_job_init(&job);
  job.purpose = purpose;
  job.lora = lora;
  if (hr_model_open(model, &job.model, &e) != HR_OK || hr_device_find(device, &job.device, &e) != HR_OK ||
      hr_job_set_options(&job, options, &e) != HR_OK || hr_job_finish(&job, &e) != HR_OK)
    fail_msg("%s %s: %s", model, options, e.message);
  return job;
}

static void adapters_have_words(void **state) {
  const hri_change adapters = {.split = 1, .algorithm = HRI_CHANGE_LORA},
                   both = {.split = 1, .algorithm = HRI_CHANGE_LORA | HRI_CHANGE_NF4},
                   nf4 = {.split = 1, .algorithm = HRI_CHANGE_NF4}, int8 = {.split = 1, .algorithm = HRI_CHANGE_INT8};
  const hr_job base = job_of("smollm2-135m", "h100", HR_PURPOSE_TRAIN, NULL, "");
  char text[HR_FIX_TEXT_BYTES];
  hr_job job = base, again;
  (void)state;
  assert_int_equal(hri_change_parts(&both), 1);
  assert_true(hri_change_apply(&both, &job));
  assert_int_equal(job.model.lora.rank, 16);
  assert_int_equal(job.quantize, HR_QUANTIZE_NF4_DQ);
  hri_change_text(&both, &base, &job, text);
  assert_string_equal(text, "--lora r=16,alpha=32 --quantize nf4+dq");
  assert_int_equal(hr_job_effect(&base, &job), HR_EFFECT_ALGORITHM);
  again = job;
  assert_false(hri_change_apply(&adapters, &again)); /* it has some */
  assert_false(hri_change_apply(&int8, &again));     /* it is quantized */
  job = base;
  assert_false(hri_change_apply(&nf4, &job)); /* all of its weights are trained */
  assert_true(hri_change_apply(&adapters, &job));
  again = job;
  assert_true(hri_change_apply(&int8, &again));
  hri_change_text(&int8, &job, &again, text);
  assert_string_equal(text, "--quantize int8");
  assert_int_equal(hr_job_effect(&job, &again), HR_EFFECT_NUMERICS);
  job = job_of("smollm2-135m", "h100", HR_PURPOSE_GENERATE, NULL, "");
  assert_false(hri_change_apply(&adapters, &job));
  assert_true(hri_change_apply(&nf4, &job));
}

typedef struct offer {
  const char *options, *lora, *quantize;
} offer;

/* What is offered was planned: whoever gives those options gets those bytes. Changes of the algorithm stand behind. */
static void expect_offered(const hr_job *base, const offer *wanted, uint32_t count) {
  hr_fix *fixes = calloc(HR_MAX_FIXES, sizeof *fixes);
  uint32_t found = 0, listed = HR_MAX_FIXES;
  bool changed = false;
  hr_error e = {0};
  assert_non_null(fixes);
  if (hr_plan_fixes(base, fixes, &listed, &e) != HR_OK) fail_msg("%s", e.message);
  for (uint32_t i = 0; i < listed; i++) {
    assert_int_equal(hr_job_effect(base, &fixes[i].job) > HR_EFFECT_ROUNDING, fixes[i].changes_algorithm);
    assert_true(!fixes[i].fits || fixes[i].changes_algorithm >= changed);
    changed = changed || (fixes[i].fits && fixes[i].changes_algorithm);
    for (uint32_t k = 0; k < count; k++) {
      hr_job job = *base;
      hr_plan *plan;
      if (strcmp(fixes[i].options, wanted[k].options) != 0) continue;
      found++;
      if (!wanted[k].lora && !wanted[k].quantize)
        assert_int_equal(hr_job_set_options(&job, wanted[k].options, &e), HR_OK);
      if (wanted[k].lora) assert_int_equal(hr_job_set(&job, "lora", wanted[k].lora, &e), HR_OK);
      if (wanted[k].quantize) assert_int_equal(hr_job_set(&job, "quantize", wanted[k].quantize, &e), HR_OK);
      assert_int_equal(hr_job_finish(&job, &e), HR_OK);
      assert_int_equal(hr_plan_create(&job, &plan, &e), HR_OK);
      assert_int_equal(hri_plan_need(plan), fixes[i].need_bytes);
      assert_int_equal(plan->info.fits, fixes[i].fits);
      hr_plan_destroy(plan);
    }
  }
  if (found != count) {
    for (uint32_t i = 0; i < listed; i++) print_message("%s%s\n", fixes[i].fits ? "" : "(no) ", fixes[i].options);
    fail_msg("%u of %u are offered", found, count);
  }
  free(fixes);
}

static void adapters_and_quantization_are_offered(void **state) {
  static const offer of_training[] = {{"--lora r=16,alpha=32", "r=16,alpha=32", NULL},
                                      {"--lora r=16,alpha=32 --quantize nf4+dq", "r=16,alpha=32", "nf4+dq"},
                                      {"--lora r=16,alpha=32 --quantize int8", "r=16,alpha=32", "int8"}},
                     frozen[] = {{"--quantize nf4+dq", NULL, "nf4+dq"}, {"--quantize int8", NULL, "int8"}};
  static const char small[] = "--seq 256 --budget 2GiB";
  hr_job job = job_of("qwen3-0.6b", "rtx-2060", HR_PURPOSE_TRAIN, NULL, "--seq 256");
  (void)state;
  expect_offered(&job, of_training, 3);
  job = job_of("qwen3-0.6b", "rtx-2060", HR_PURPOSE_TRAIN, "r=8", small);
  expect_offered(&job, frozen, 2);
  job = job_of("qwen3-0.6b", "rtx-2060", HR_PURPOSE_EVALUATE, NULL, small);
  expect_offered(&job, frozen, 2);
  job = job_of("qwen3-0.6b", "rtx-2060", HR_PURPOSE_GENERATE, NULL, small);
  expect_offered(&job, frozen, 2);
}

/* Other states than AdamW's or Lion's: fewer bytes, another algorithm. */
static void optimizers_with_less_are_offered(void **state) {
  static const offer of_adamw[] = {{"--optimizer adamw8bit", NULL, NULL}, {"--optimizer adafactor", NULL, NULL}},
                     of_lion[] = {{"--optimizer lion8bit", NULL, NULL}};
  hr_job job = job_of("llama-3.2-1b", "h100", HR_PURPOSE_TRAIN, NULL, "--seq 1024 --budget 20GiB");
  (void)state;
  expect_offered(&job, of_adamw, 2);
  job = job_of("llama-3.2-1b", "h100", HR_PURPOSE_TRAIN, NULL, "--seq 1024 --budget 20GiB --optimizer lion");
  expect_offered(&job, of_lion, 1);
}

/* What makes another training saves something for it: under adapters an update in the backward saves nothing. */
static void no_change_is_for_nothing(void **state) {
  static const double least = 0.01;
  static const struct {
    const char *model, *device, *lora, *options;
  } given[] = {{"llama-2-7b", "rtx-4090", "r=16", "--seq 4096"},
               {"llama-3.2-1b", "rtx-4090", "r=16", "--seq 8192 --micro-batch 2 --quantize nf4+dq --budget 12GiB"},
               {"gpt2-124m", "rtx-3060", NULL, "--seq 1024 --micro-batch 48"}};
  hr_fix *fixes = calloc(HR_MAX_FIXES, sizeof *fixes);
  (void)state;
  assert_non_null(fixes);
  for (size_t n = 0; n < sizeof given / sizeof *given; n++) {
    hr_job job = job_of(given[n].model, given[n].device, HR_PURPOSE_TRAIN, given[n].lora, given[n].options);
    uint32_t count = HR_MAX_FIXES, fitting = 0;
    hr_error e = {0};
    assert_int_equal(hr_plan_fixes(&job, fixes, &count, &e), HR_OK);
    for (uint32_t i = 0; i < count; i++) {
      const hr_fix *f = &fixes[i];
      fitting += f->fits;
      for (uint32_t k = 0; f->fits && f->changes_algorithm && k < count; k++) {
        const hr_fix *g = &fixes[k];
        if (g->fits && !g->changes_algorithm && (double)f->need_bytes > (1 - least) * (double)g->need_bytes &&
            f->token_seconds > (1 - least) * g->token_seconds)
          fail_msg("%s: %s saves nothing that %s does not", given[n].model, f->options, g->options);
      }
    }
    assert_true(fitting > 2);
  }
  free(fixes);
}

/* bf16 is what a device takes that has it; from there on there is bf16 without masters to offer. */
static void nothing_is_offered_that_a_device_lacks(void **state) {
  const hri_change bf16 = {.split = 1, .algorithm = HRI_CHANGE_BF16},
                   both = {.split = 1, .algorithm = HRI_CHANGE_LORA | HRI_CHANGE_BF16},
                   pure = {.split = 1, .algorithm = HRI_CHANGE_BF16_PURE};
  hr_job old = job_of("smollm2-135m", "rtx-2060", HR_PURPOSE_TRAIN, NULL, ""), again = old;
  hr_job new = job_of("smollm2-135m", "rtx-3050-6", HR_PURPOSE_TRAIN, NULL, "");
  (void)state;
  assert_false(hri_change_apply(&bf16, &old));
  assert_false(hri_change_apply(&both, &again));
  assert_int_equal(old.precision, HR_PRECISION_FP32);
  assert_int_equal(new.precision, HR_PRECISION_BF16);
  assert_false(hri_change_apply(&pure, &old));
  assert_false(hri_change_apply(&bf16, &new));
  assert_true(hri_change_apply(&pure, &new));
  new = job_of("smollm2-135m", "rtx-3050-6", HR_PURPOSE_TRAIN, NULL, "--precision bf16");
  assert_false(hri_change_apply(&pure, &new)); /* that was asked for */
}

/* --auto takes what keeps the mathematics, and refuses rather than take anything else. */
static void auto_never_takes_another_training(void **state) {
  static const struct {
    const char *lora, *options;
  } given[] = {{NULL, "--seq 256 --micro-batch 4"},
               {"r=8", "--seq 256 --micro-batch 4"},
               {"r=8", "--seq 256 --micro-batch 2 --quantize nf4"}};
  uint32_t taken = 0, refused = 0, changed = 0;
  (void)state;
  for (size_t k = 0; k < sizeof given / sizeof *given; k++)
    for (uint64_t budget = UINT64_C(1) << 27; budget <= UINT64_C(1) << 33; budget *= 2) {
      const hr_job base = job_of("smollm2-135m", "h100", HR_PURPOSE_TRAIN, given[k].lora, given[k].options);
      hr_job job = base;
      hr_error e = {0};
      hr_status status;
      job.budget_bytes = budget + (UINT64_C(500) << 20); /* and the device's fixed bytes */
      job.given |= HR_GIVEN_BUDGET;
      status = hr_plan_auto(&job, NULL, NULL, &e);
      refused += status == HR_ERROR_BUDGET;
      taken += status == HR_OK;
      if (status != HR_OK) continue;
      assert_ptr_equal(job.lora, base.lora);
      assert_int_equal(job.model.lora.rank, base.model.lora.rank);
      assert_int_equal(job.quantize, base.quantize);
      assert_int_equal(job.optimizer, base.optimizer);
      assert_int_equal(job.precision, base.precision);
      assert_int_equal(job.sequence_length, base.sequence_length);
      changed += job.micro_batch != base.micro_batch || job.recompute.kind != base.recompute.kind;
    }
  assert_true(taken > 3 && refused > 3 && changed > 1);
}

/* A job borrows its texts: they are not set from a buffer that ends with the call. */
static void texts_are_not_set_among_options(void **state) {
  hr_job job = job_of("smollm2-135m", "h100", HR_PURPOSE_TRAIN, NULL, ""), before = job;
  hr_error e = {0};
  (void)state;
  assert_int_equal(hr_job_set_options(&job, "--seq 64 --lora r=8", &e), HR_ERROR_USAGE);
  assert_non_null(strstr(e.message, "--lora"));
  assert_non_null(strstr(e.hint, "hr_job_set"));
  assert_memory_equal(&job, &before, sizeof job);
}

static void a_change_that_changes_nothing_is_none(void **state) {
  static const hr_recompute same[] = {{.kind = HR_RECOMPUTE_BLOCK},
                                      {.kind = HR_RECOMPUTE_LEVELS, .levels = {HR_LEVEL_BLOCK}, .level_count = 1}};
  const hri_change block = {.levels = HRI_LEVELS_BLOCK, .split = 1}, split = {.split = 3};
  hr_error e = {0};
  hr_job base, job;
  (void)state;
  hr_job_init(&base);
  assert_int_equal(hr_model_open("gpt2-124m", &base.model, &e), HR_OK);
  assert_int_equal(hr_device_find("h100", &base.device, &e), HR_OK);
  base.micro_batch = 4;
  assert_int_equal(hr_job_finish(&base, &e), HR_OK);
  for (size_t k = 0; k < sizeof same / sizeof *same; k++) {
    job = base;
    job.recompute = same[k];
    assert_false(hri_change_apply(&block, &job));
  }
  job = base;
  assert_false(hri_change_apply(&split, &job)); /* 4 rows do not go in 3 */
  assert_true(hri_change_apply(&block, &job));
}

/* Splitting a micro-batch keeps the rows of a step: where so many micro-steps are not possible, there is no such
 * change. */
static void a_split_keeps_the_rows_of_a_step(void **state) {
  hr_error e = {0};
  hr_job base, job;
  uint32_t applied = 0;
  (void)state;
  hr_job_init(&base);
  assert_int_equal(hr_model_open("gpt2-124m", &base.model, &e), HR_OK);
  assert_int_equal(hr_device_find("h100", &base.device, &e), HR_OK);
  base.sequence_length = 16;
  base.micro_batch = 8192;
  base.accumulate = (1u << 19) + 1; /* times 8192 it is 2^32 + 8192 */
  assert_int_equal(hr_job_finish(&base, &e), HR_OK);
  for (uint32_t accumulate = base.accumulate; accumulate; accumulate /= 8)
    for (uint32_t split = 2; split <= base.micro_batch; split *= 2) {
      job = base;
      job.accumulate = accumulate;
      if (!hri_change_apply(&(hri_change){.split = split}, &job)) continue;
      applied++;
      assert_int_equal((uint64_t)job.micro_batch * job.accumulate, (uint64_t)base.micro_batch * accumulate);
    }
  assert_true(applied > 20);
}

/* The largest sizes that a config.json may have come to more bytes than 2^64: that is said, and no sum wraps around to
 * a plan that needs less than its weights. */
static void no_sum_of_bytes_wraps_around(void **state) {
  hr_error e = {0};
  hr_plan *plan = NULL;
  hr_job job;
  (void)state;
  for (int attention = HR_ATTENTION_FLASH; attention <= HR_ATTENTION_MATERIALIZED; attention++) {
    hr_job_init(&job);
    assert_int_equal(hr_model_open("llama-2-7b", &job.model, &e), HR_OK);
    assert_int_equal(hr_device_find("mi300x", &job.device, &e), HR_OK);
    job.model.layer_count = 512;
    job.model.hidden_size = 1 << 20;
    job.model.mlp_size = 1 << 22;
    job.model.head_count = job.model.kv_head_count = 4096;
    job.model.head_size = job.model.rotary_size = 1360;
    job.model.attention_scale = 1 / sqrt(1360);
    job.sequence_length = 1 << 20;
    job.micro_batch = 2047;
    job.attention = (hr_attention)attention;
    if (hr_job_finish(&job, &e) != HR_OK) fail_msg("%s", e.message);
    assert_int_equal(hr_plan_create(&job, &plan, &e), HR_ERROR_USAGE);
    assert_non_null(strstr(e.message, "more bytes than"));
    assert_null(plan);
  }
}

/* A team is part of what a plan is exact for: a draft for another one does not plan with the lender's. */
static void a_draft_for_another_team_has_its_own_backend(void **state) {
  hr_job job;
  hr_plan *plan, *same, *other;
  hr_error error = {0};
  (void)state;
  hr_job_init(&job);
  assert_int_equal(hr_model_open("micro-llama-bytes", &job.model, &error), HR_OK);
  assert_int_equal(hr_device_find("rtx-3090", &job.device, &error), HR_OK);
  job.device.has_team = true;
  job.sequence_length = 32;
  job.threads = 1;
  assert_int_equal(hr_job_finish(&job, &error), HR_OK);
  assert_int_equal(hr_plan_create(&job, &plan, &error), HR_OK);
  plan->spec.device.has_team = true; /* whatever the device of the table says */
  assert_int_equal(hri_plan_draft(&job, plan, &same, &error), HR_OK);
  assert_ptr_equal(same->backend, plan->backend);
  job.threads = 3;
  assert_int_equal(hri_plan_draft(&job, plan, &other, &error), HR_OK);
  assert_ptr_not_equal(other->backend, plan->backend);
  hr_plan_destroy(other);
  hr_plan_destroy(same);
  hr_plan_destroy(plan);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(drafts_are_exact),
                                     cmocka_unit_test(changes_have_words),
                                     cmocka_unit_test(adapters_have_words),
                                     cmocka_unit_test(adapters_and_quantization_are_offered),
                                     cmocka_unit_test(optimizers_with_less_are_offered),
                                     cmocka_unit_test(no_change_is_for_nothing),
                                     cmocka_unit_test(nothing_is_offered_that_a_device_lacks),
                                     cmocka_unit_test(texts_are_not_set_among_options),
                                     cmocka_unit_test(auto_never_takes_another_training),
                                     cmocka_unit_test(a_change_that_changes_nothing_is_none),
                                     cmocka_unit_test(a_split_keeps_the_rows_of_a_step),
                                     cmocka_unit_test(no_sum_of_bytes_wraps_around),
                                     cmocka_unit_test(a_draft_for_another_team_has_its_own_backend)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
