/* Random jobs, run: with adapters beside plain and quantized weights and blocks of GGUF files, of all weights, of some;
 * every optimizer and what else changes the mathematics. Each is planned, refused with a budget of one byte less than its
 * need, and run with exactly that, in check mode now and then; what is reserved is what was planned. Then the same job in
 * another way (team, recomputation, packing of weights, update in the backward) leaves the same files.
 *
 * HEADROOM_TEST_JOBS=n: so many (40; 16 where HEADROOM_TEST_QUICK is set). HEADROOM_TEST_SEED=s: the one of that seed,
 * which a failure names. (Rules and placements of random jobs: tests/plan/test_program.c.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <headroom/train.h>

#include "support/random_job.h"

static const char *work, *data;

typedef struct census {
  uint32_t ran, narrow, accumulated, dropped, checked, other_updates, adapted, quantized, kept, frozen, blocks;
} census;

static hr_status train(const hr_job *asked, uint64_t budget, const char *out, hr_run_result *result, hr_error *error) {
  hr_run_options options;
  hr_job job = *asked;
  hr_status status;
  hr_run_options_init(&options);
  options.data_paths = &data;
  options.data_path_count = 1;
  options.out_directory = out;
  job.budget_bytes = budget;
  status = hr_job_finish(&job, error);
  return status == HR_OK ? hr_train(&job, &options, result, error) : status;
}

static uint64_t need_of(uint64_t seed, const hr_job *asked) {
  hr_job job = *asked;
  hr_plan *plan = NULL;
  hr_error error = {0};
  uint64_t need;
  if (hr_job_finish(&job, &error) != HR_OK || hr_plan_create(&job, &plan, &error) != HR_OK)
    fail_msg("seed %llu: %s", (unsigned long long)seed, error.message);
  need = hr_plan_get(plan)->tiers[HR_TIER_DEVICE].reserved_bytes + hr_plan_get(plan)->tiers[HR_TIER_DEVICE].fixed_bytes;
  hr_plan_destroy(plan);
  return need;
}

/* Runs with what it needs, and not with a byte less. */
static void run_exactly(uint64_t seed, const hr_job *job, const char *out) {
  hr_error error = {0};
  hr_run_result result;
  uint64_t need = need_of(seed, job);
  hr_status less = train(job, need - 1, out, &result, &error);
  if (less != HR_ERROR_BUDGET || exists(out))
    fail_msg("seed %llu: %llu bytes, one less than the need, gave status %d: %s", (unsigned long long)seed,
             (unsigned long long)(need - 1), (int)less, error.message);
  if (train(job, need, out, &result, &error) != HR_OK)
    fail_msg("seed %llu: %s", (unsigned long long)seed, error.message);
  assert_int_equal(result.planned_bytes[HR_TIER_DEVICE], result.reserved_bytes[HR_TIER_DEVICE]);
}

static void one_seed(uint64_t seed, census *seen) {
  const char *first = path_of("%s/first", work), *second = path_of("%s/second", work);
  dice d = {seed, 0, work};
  char words[512];
  const char *weights;
  hr_job job, other;
  random_job(&d, &job, words);
  weights = job.lora ? "final/adapter_model.safetensors" : "final/model.safetensors";
  other = job;
  random_way(&d, &other);
  run_exactly(seed, &job, first);
  run_exactly(seed, &other, second);
  {
    size_t a = 0, b = 0;
    char *x = get_file(path_of("%s/%s", first, weights), &a), *y = get_file(path_of("%s/%s", second, weights), &b);
    if (!x || !y || a != b || memcmp(x, y, a) != 0)
      fail_msg("seed %llu, %s: run in another way, other weights", (unsigned long long)seed, words);
    free(x);
    free(y);
  }
  scratch_remove(first);
  scratch_remove(second);
  seen->ran += 2;
  seen->narrow += job.precision != HR_PRECISION_FP32;
  seen->accumulated += job.accumulate > 1;
  seen->dropped += job.dropout != 0 || strstr(words, "dropout") != NULL;
  seen->adapted += job.lora != NULL;
  seen->quantized += job.quantize != HR_QUANTIZE_NONE;
  seen->kept += job.quantize == HR_QUANTIZE_KEEP;
  seen->frozen += job.freeze || job.train_only;
  seen->blocks += strstr(hr_optimizer_name(job.optimizer), "8bit") != NULL;
  seen->checked += job.check || other.check;
  seen->other_updates += job.update != other.update;
}

static void random_jobs_run_as_planned(void **state) {
  const char *one = getenv("HEADROOM_TEST_SEED"), *many = getenv("HEADROOM_TEST_JOBS");
  uint64_t count = many ? strtoull(many, NULL, 10) : quick() ? 16 : 40;
  census seen = {0};
  (void)state;
  if (one) {
    one_seed(strtoull(one, NULL, 10), &seen);
    return;
  }
  for (uint64_t seed = 1; seed <= count; seed++) one_seed(seed, &seen);
  one_seed(102, &seen); /* no layer of it turns by positions */
  print_message(
      "%u runs: %u jobs narrow, %u accumulate, %u with dropout, %u checked, %u with updates in both places, "
      "%u adapters, %u beside quantized weights, %u of them kept blocks, %u with frozen weights, %u optimizers of 8 bits\n",
      seen.ran, seen.narrow, seen.accumulated, seen.dropped, seen.checked, seen.other_updates, seen.adapted,
      seen.quantized, seen.kept, seen.frozen, seen.blocks);
  assert_true(seen.narrow > 0 && seen.accumulated > 0 && seen.dropped > 0 && seen.checked > 0);
  assert_true(seen.adapted > 0 && seen.quantized > 0 && seen.frozen > 0 && seen.blocks > 0);
  assert_true(quick() || (seen.kept > 0 && seen.other_updates > 0));
}

static int set_up(void **state) {
  (void)state;
  work = scratch_make("random");
  data = strdup(path_of("%s/data.txt", work));
  put_words(data, 3000, 1);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  scratch_remove(work);
  free((void *)(uintptr_t)data);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(random_jobs_run_as_planned)};
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
