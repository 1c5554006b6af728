/* Whole jobs on the GPU in software: whatever a legal job holds has a kernel, and what a run leaves is what the CPU
 * leaves within rounding - adapters beside narrow and quantized weights, every family and activation, generation,
 * evaluation - in every order that streams allow.
 *
 * HEADROOM_TEST_LONG=1 (./dev gpu-soft): many more random jobs. HEADROOM_TEST_SEED=s: the one of that seed, which a
 * failure names. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <headroom/train.h>

#include "backend/cpu/cpu.h"
#include "formats/safetensors.h"
#include "gpu/soft_backend.h"
#include "support/random_job.h"
#include "train/session.h"

/* Stands in for src/backend/open.c. */
hr_status hri_backend_open(const hr_device *device, uint32_t threads, hri_backend **backend, hr_error *error) {
  return strcmp(device->backend, HRI_CUDA_NAME) == 0 ? soft_backend_open(device, backend, error)
                                                     : hri_cpu_open(device, threads, backend, error);
}
bool hri_backend_measured(hr_device *device, uint32_t threads) { return (void)device, (void)threads, false; }

/* Makes of the CPU's device that of the GPU. */
static void to_gpu(hr_device *device) {
  (void)snprintf(device->name, sizeof device->name, HRI_CUDA_NAME);
  (void)snprintf(device->backend, sizeof device->backend, HRI_CUDA_NAME);
  device->has_team = device->packs = false;
  device->library_workspace_bytes = 4 << 20;
}

static const char *work;

static void must(hr_status status, const hr_error *error) {
  if (status != HR_OK) fail_msg("%s: %s (%s)", hr_status_name(status), error->message, error->hint);
}
static bool is_long(void) { return getenv("HEADROOM_TEST_LONG") != NULL; }

/* ---- every node has a kernel ---- */

typedef struct census {
  uint32_t planned, ops[HRI_OP_COUNT];
} census;

/* Of any purpose; what others than training do not have is left away. */
static void random_purpose(dice *d, hr_job *job) {
  uint32_t purpose = roll(d, 4);
  if (purpose == 0) {
    job->purpose = roll(d, 2) ? HR_PURPOSE_GENERATE : HR_PURPOSE_EVALUATE;
    job->freeze = job->train_only = NULL;
    if (job->purpose == HR_PURPOSE_GENERATE) job->context_length = 16 + roll(d, 48);
  } else {
    job->with_generation = purpose == 1;
  }
}

static void plan_seed(uint64_t seed, census *seen) {
  dice d = {seed, 0, work};
  hri_session s = {0};
  char words[512];
  hr_error error = {0};
  hr_job job;
  random_job(&d, &job, words);
  random_purpose(&d, &job);
  to_gpu(&job.device);
  if (hr_job_finish(&job, &error) != HR_OK || hri_session_plan(&s, &job, NULL, &error) != HR_OK)
    fail_msg("seed %llu: %s", (unsigned long long)seed, error.message);
  for (size_t n = 0; n < s.plan->job.nodes.count; n++) seen->ops[s.plan->job.nodes.items[n].op]++;
  seen->planned++;
  hri_session_close(&s);
}

static void every_node_of_any_job_has_a_kernel(void **state) {
  const char *one = getenv("HEADROOM_TEST_SEED");
  uint64_t count = is_long() ? 2000 : 150;
  census seen = {0};
  (void)state;
  if (one) {
    plan_seed(strtoull(one, NULL, 10), &seen);
    return;
  }
  for (uint64_t seed = 1; seed <= count; seed++) plan_seed(seed, &seen);
  for (uint16_t op = 0; op < HRI_OP_COUNT; op++)
    if (!seen.ops[op]) print_message("no job of the %u has %s\n", seen.planned, hri_op_name(op));
}

/* ---- what runs leave ---- */

typedef struct left {
  double losses[64];
  int count;
  float *values; /* of the file of weights, all in fp32 */
  size_t elements;
} left;

static void read_losses(const char *directory, left *to) {
  char *text = get_file(path_of("%s/metrics.jsonl", directory), NULL), *at = text;
  assert_non_null(text);
  while ((at = strstr(at, "loss\":")) && to->count < 64) to->losses[to->count++] = strtod(at += 6, NULL);
  free(text);
}

static void read_values(const char *path, left *to) {
  hri_safetensors *file;
  hr_error error = {0};
  must(hri_safetensors_open(path, &file, &error), &error);
  to->values = malloc(hri_safetensors_data_bytes(file));
  assert_non_null(to->values);
  for (uint32_t k = 0; k < hri_safetensors_count(file); k++) {
    const hri_safetensor *t = hri_safetensors_get(file, k);
    assert_int_equal(t->dtype, HRI_FILE_F32);
    must(hri_safetensors_read(file, k, 0, t->end - t->begin, to->values + to->elements, &error), &error);
    to->elements += (t->end - t->begin) / sizeof(float);
  }
  hri_safetensors_close(file);
}

static const char *data;

static left train(const hr_job *asked, bool on_gpu, const char *what) {
  const char *out = path_of("%s/out", work);
  hr_run_options options;
  hr_run_result result;
  hr_error error = {0};
  hr_job job = *asked;
  left to = {0};
  hr_run_options_init(&options);
  options.data_paths = &data;
  options.data_path_count = 1;
  options.out_directory = out;
  options.save_dtype = "f32";
  if (on_gpu) to_gpu(&job.device);
  if (hr_job_finish(&job, &error) != HR_OK || hr_train(&job, &options, &result, &error) != HR_OK)
    fail_msg("%s%s: %s", what, on_gpu ? "" : ", on the CPU", error.message);
  for (int tier = 0; tier < HR_TIER_COUNT; tier++)
    assert_int_equal(result.reserved_bytes[tier], result.planned_bytes[tier]);
  read_losses(out, &to);
  read_values(path_of("%s/final/%s", out, job.lora ? "adapter_model.safetensors" : "model.safetensors"), &to);
  scratch_remove(out);
  return to;
}

/* What rounding alone does to a job on the CPU: of another instruction level; in narrow types, against fp32. */
static left train_otherwise(const hr_job *asked, const char *what) {
  hr_job job = *asked;
  left to;
  if (job.precision == HR_PRECISION_FP32) (void)setenv("HEADROOM_ISA", "base", 1);
  job.precision = HR_PRECISION_FP32;
  job.moments = HR_MOMENTS_FP32;
  to = train(&job, false, what);
  (void)unsetenv("HEADROOM_ISA");
  return to;
}

static double distance(const left *a, const left *b) {
  double sum = 0;
  for (size_t k = 0; k < a->elements; k++)
    sum += ((double)a->values[k] - b->values[k]) * ((double)a->values[k] - b->values[k]);
  return sqrt(sum / (double)a->elements);
}

/* The GPU may be as far from the CPU as rounding alone carries it, `times` over. */
static void compare(const hr_job *job, double times, const char *what) {
  left cpu = train(job, false, what), other = train_otherwise(job, what), gpu = train(job, true, what);
  double floor = job->precision == HR_PRECISION_FP32 ? 1e-6 : 1e-3, far, limit;
  assert_int_equal(gpu.count, cpu.count);
  assert_int_equal(gpu.elements, cpu.elements);
  for (int k = 0; k < cpu.count; k++) {
    far = fabs(gpu.losses[k] - cpu.losses[k]);
    limit = times * fabs(other.losses[k] - cpu.losses[k]) + floor * fabs(cpu.losses[k]);
    if (!(far <= limit))
      fail_msg("%s: loss %d is %.9g, and %.9g on the CPU (%.2g apart, %.2g are allowed)", what, k, gpu.losses[k],
               cpu.losses[k], far, limit);
  }
  far = distance(&cpu, &gpu), limit = times * distance(&cpu, &other) + floor * job->learning_rate;
  if (!(far <= limit)) fail_msg("%s: weights are %g apart (%g are allowed)", what, far, limit);
  free(cpu.values), free(other.values), free(gpu.values);
}

static void random_jobs_train_as_on_the_cpu(void **state) {
  const char *one = getenv("HEADROOM_TEST_SEED");
  uint64_t first = one ? strtoull(one, NULL, 10) : 1, count = one ? first : is_long() ? 200 : 12;
  (void)state;
  for (uint64_t seed = first; seed <= count; seed++) {
    dice d = {seed, 0, work};
    char words[512], name[600];
    hr_job job;
    random_job(&d, &job, words);
    (void)snprintf(name, sizeof name, "seed %llu, %s, %s", (unsigned long long)seed, hr_family_name(job.model.family),
                   words);
    compare(&job, 4, name);
  }
}

static int set_up(void **state) {
  (void)state;
  work = scratch_make("jobs");
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
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_node_of_any_job_has_a_kernel),
                                     cmocka_unit_test(random_jobs_train_as_on_the_cpu)};
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
