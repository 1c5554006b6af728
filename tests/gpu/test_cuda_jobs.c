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
  if (!device->backend[0]) return hri_estimates_open(device, backend, error);
  return strcmp(device->backend, HRI_CUDA_NAME) == 0 ? soft_backend_open(device, backend, error)
                                                     : hri_cpu_open(device, threads, backend, error);
}
bool hri_backend_measured(hr_device *device, uint32_t threads) { return (void)device, (void)threads, false; }
hr_status hri_backend_store(const hr_device_rates *rates, char *path, uint32_t path_bytes, hr_error *error) {
  return (void)rates, (void)path, (void)path_bytes, hri_fail(error, HR_ERROR_UNSUPPORTED, "nothing is stored here");
}
bool hri_backend_finds(const char *name, hr_device *device, hr_status *status, hr_error *error) {
  (void)name, (void)device, (void)status, (void)error;
  return false;
}

/* Makes of the CPU's device that of the GPU. */
static void to_gpu(hr_device *device) {
  (void)snprintf(device->name, sizeof device->name, HRI_CUDA_NAME);
  (void)snprintf(device->backend, sizeof device->backend, HRI_CUDA_NAME);
  device->has_team = device->packs = false;
  device->flops_tf32 = 1e12; /* it has such products */
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

/* Where no card is, the same plan: each storage at the same place, of whose bytes a card takes whole pages. */
static void same_elsewhere(const hr_plan *here, const hr_job *job, const hri_compile_options *compile, uint64_t seed) {
  hr_job named = *job;
  hr_plan *there = NULL;
  hr_error error = {0};
  named.device.backend[0] = 0;
  named.device.compute_capability = HRI_CUDA_OLDEST;
  if (hri_plan_create(&named, compile, &there, &error) != HR_OK)
    fail_msg("seed %llu: %s", (unsigned long long)seed, error.message);
  assert_true(there->info.scratch_exact);
  assert_int_equal(here->job.storages.count, there->job.storages.count);
  for (size_t k = 0; k < here->job.storages.count; k++)
    if (here->placement.offsets[k] != there->placement.offsets[k] ||
        here->job.storages.items[k].bytes != there->job.storages.items[k].bytes)
      fail_msg("seed %llu: %s is elsewhere", (unsigned long long)seed,
               hri_name_get(&here->job, here->job.storages.items[k].key));
  for (int tier = 0; tier < HR_TIER_COUNT; tier++) {
    assert_int_equal(here->placement.peak_bytes[tier], there->placement.peak_bytes[tier]);
    assert_int_equal(there->info.tiers[tier].reserved_bytes,
                     hri_round_up(here->placement.peak_bytes[tier], HRI_CUDA_PAGE_BYTES));
    assert_int_equal(here->info.tiers[tier].fixed_bytes, there->info.tiers[tier].fixed_bytes);
  }
  hr_plan_destroy(there);
}

static void plan_seed(uint64_t seed, census *seen) {
  dice d = {seed, 0, work};
  hri_session s = {0};
  hri_compile_options compile = {0};
  char words[512];
  hr_error error = {0};
  hr_job job;
  random_job(&d, &job, words);
  random_purpose(&d, &job);
  if (roll(&d, 8) == 0) job.precision = HR_PRECISION_TF32, job.moments = HR_MOMENTS_FP32;
  compile.offload_bytes = roll(&d, 3) == 0, compile.offload_distance = 1;
  to_gpu(&job.device);
  if (hr_job_finish(&job, &error) != HR_OK || hri_session_plan(&s, &job, &compile, &error) != HR_OK)
    fail_msg("seed %llu: %s", (unsigned long long)seed, error.message);
  for (size_t n = 0; n < s.plan->job.nodes.count; n++) seen->ops[s.plan->job.nodes.items[n].op]++;
  seen->planned++;
  same_elsewhere(s.plan, &job, &compile, seed);
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
    if (!seen.ops[op] && op != HRI_OP_PACK) /* no product of a GPU reads a packed operand */
      fail_msg("no job of the %u has %s: draw more of them", seen.planned, hri_op_name(op));
}

/* Published models at their sizes: trained in bf16 where that is what people would do, tuned beside codes, asked. */
static void every_node_of_published_models_has_a_kernel(void **state) {
  (void)state;
  for (uint32_t k = 0; k < hr_model_preset_count(); k++)
    for (int way = 0; way < 3; way++) {
      hr_error error = {0};
      hr_plan *plan = NULL;
      hr_job job;
      hr_job_init(&job);
      must(hr_model_preset(hr_model_preset_name(k), &job.model, &error), &error);
      must(hr_device_find("cpu", &job.device, &error), &error);
      to_gpu(&job.device);
      job.budget_bytes = UINT64_C(1) << 50;
      job.precision = way == 0 ? HR_PRECISION_BF16_PURE : HR_PRECISION_BF16;
      if (way == 1) job.lora = "r=16,targets=all-linear", job.quantize = HR_QUANTIZE_NF4_DQ;
      if (way == 2) job.purpose = HR_PURPOSE_GENERATE, job.context_length = 256;
      job.sequence_length = 256;
      if (hr_job_finish(&job, &error) != HR_OK || hr_plan_create(&job, &plan, &error) != HR_OK)
        fail_msg("%s, way %d: %s", hr_model_preset_name(k), way, error.message);
      hr_plan_destroy(plan);
    }
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

static const char *data, *rows; /* text; ids below the vocabulary of the models of tests/gguf */

static left train(const hr_job *asked, bool on_gpu, const char *what) {
  const char *out = path_of("%s/out", work);
  hr_run_options options;
  hr_run_result result;
  hr_error error = {0};
  hr_job job = *asked;
  left to = {0};
  hr_run_options_init(&options);
  options.data_paths = job.model.vocabulary_size < 256 ? &rows : &data;
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
  double floor = job->precision == HR_PRECISION_FP32 ? 1e-6 : 1e-3, least = 50e-6 * job->learning_rate, far, limit;
  assert_int_equal(gpu.count, cpu.count);
  assert_int_equal(gpu.elements, cpu.elements);
  for (int k = 0; k < cpu.count; k++) {
    far = fabs(gpu.losses[k] - cpu.losses[k]);
    limit = times * fabs(other.losses[k] - cpu.losses[k]) + floor * fabs(cpu.losses[k]);
    if (!(far <= limit))
      fail_msg("%s: loss %d is %.9g, and %.9g on the CPU (%.2g apart, %.2g are allowed)", what, k, gpu.losses[k],
               cpu.losses[k], far, limit);
  }
  far = distance(&cpu, &gpu), limit = times * distance(&cpu, &other) + least;
  if (!(far <= limit)) fail_msg("%s: weights are %g apart (%g are allowed)", what, far, limit);
  free(cpu.values), free(other.values), free(gpu.values);
}

/* Lion goes by signs alone, and so does Adam's first step: of gradients in narrow types rounding decides some, each of which
 * is then a whole step. Momentum tells of the same gradients what they are. */
static void leave_signs(hr_job *job) {
  hr_optimizer o = job->optimizer;
  bool signs =
      o == HR_OPTIMIZER_ADAMW || o == HR_OPTIMIZER_ADAMW8BIT || o == HR_OPTIMIZER_LION || o == HR_OPTIMIZER_LION8BIT;
  if (signs && job->precision != HR_PRECISION_FP32) job->optimizer = HR_OPTIMIZER_MOMENTUM;
}

static void random_jobs_train_as_on_the_cpu(void **state) {
  const char *one = getenv("HEADROOM_TEST_SEED");
  uint64_t first = one ? strtoull(one, NULL, 10) : 1, count = one ? first : is_long() ? 200 : quick() ? 3 : 12;
  (void)state;
  for (uint64_t seed = first; seed <= count; seed++) {
    dice d = {seed, 0, work};
    char words[512], name[600];
    hr_job job;
    random_job(&d, &job, words);
    leave_signs(&job);
    (void)snprintf(name, sizeof name, "seed %llu, %s, %s", (unsigned long long)seed, hr_family_name(job.model.family),
                   words);
    compare(&job, 4, name);
  }
}

enum { CONTEXT = 64, ANSWER = 12, PROMPT = 45, KEPT = 40 }; /* of generation */

/* A model of tests/gguf, of the purpose. */
static hr_job job_on(const char *model, hr_purpose purpose) {
  hr_error error = {0};
  hr_job job;
  hr_job_init(&job);
  must(hr_model_open(path_of("%s/gguf/%s", HR_TEST_DATA, model), &job.model, &error), &error);
  must(hr_device_find("cpu", &job.device, &error), &error);
  job.purpose = purpose;
  job.precision = HR_PRECISION_FP32;
  job.threads = 1;
  job.given |= HR_GIVEN_THREADS;
  if (purpose == HR_PURPOSE_GENERATE) job.context_length = CONTEXT;
  return job;
}

/* ---- a named set: every family once, every option once ---- */

static const char *const family_models[] = {
    "custom:layers=2,hidden=16,heads=2,family=gpt2",     "custom:layers=2,hidden=16,heads=4,kv-heads=2,family=llama",
    "custom:layers=2,hidden=16,heads=2,family=mistral",  "custom:layers=2,hidden=16,heads=4,kv-heads=1,family=qwen2",
    "custom:layers=2,hidden=16,heads=2,family=qwen3",    "custom:layers=2,hidden=16,heads=2,family=phi3",
    "custom:layers=2,hidden=16,heads=2,family=gemma2",   "custom:layers=2,hidden=16,heads=2,family=gemma3_text",
    "custom:layers=2,hidden=16,heads=2,family=gemma",    "custom:layers=4,hidden=16,heads=2,family=smollm3",
    "custom:layers=2,hidden=16,heads=2,family=granite",  "custom:layers=2,hidden=16,heads=2,family=olmo2",
    "custom:layers=2,hidden=16,heads=2,family=stablelm", "custom:layers=2,hidden=16,heads=2,family=phi",
};
enum { FAMILY_MODELS = sizeof family_models / sizeof *family_models };

static hr_job small_job(const char *model) {
  hr_error error = {0};
  hr_job job;
  hr_job_init(&job);
  must(hr_model_open(model, &job.model, &error), &error);
  must(hr_device_find("cpu", &job.device, &error), &error);
  job.model.vocabulary_size = 257;
  job.model.max_positions = 64;
  job.model.pad_token = -1;
  job.model.mlp_size = 24;
  job.precision = HR_PRECISION_FP32;
  job.sequence_length = 12;
  job.micro_batch = 2;
  job.steps = 2;
  job.learning_rate = 1e-2;
  job.threads = 1;
  return job;
}

/* With the activation of its own, and with one of the others. */
static void families_train_as_on_the_cpu(void **state) {
  (void)state;
  for (size_t k = 0; k < FAMILY_MODELS; k++) {
    hr_job job = small_job(family_models[k]);
    hr_activation others[2] = {HR_ACTIVATION_GELU, HR_ACTIVATION_RELU};
    compare(&job, 4, family_models[k]);
    job.model.activation = others[job.model.family == HR_FAMILY_GEMMA ? 1 : k % 2];
    job.precision = k % 3 == 0 ? HR_PRECISION_BF16 : HR_PRECISION_FP32;
    compare(&job, 4, path_of("%s, another activation", family_models[k]));
  }
}

typedef struct option {
  const char *what, *lora, *freeze, *recompute;
  hr_precision precision;
  hr_quantize quantize;
  hr_optimizer optimizer;
  hr_attention attention;
  double dropout, smoothing, noise;
  uint32_t loss_chunk, accumulate, mlp;
  bool bf16_moments, check, skip;
} option;

static const option options_of_jobs[] = {
    {"adapters beside bf16", .lora = "r=4", .precision = HR_PRECISION_BF16},
    {"adapters with dropout beside fp16", .lora = "r=3,dropout=0.2,targets=all-linear", .precision = HR_PRECISION_FP16},
    {"adapters of many rows", .lora = "r=12,rslora,bias=all,init=gaussian", .precision = HR_PRECISION_BF16_PURE},
    {"adapters of much depth", .lora = "r=4,targets=all-linear", .precision = HR_PRECISION_BF16, .mlp = 600},
    {"DoRA beside bf16", .lora = "r=4,dora", .precision = HR_PRECISION_BF16},
    {"beside nf4", .lora = "r=4", .quantize = HR_QUANTIZE_NF4},
    {"beside nf4, scales quantized", .lora = "r=4", .quantize = HR_QUANTIZE_NF4_DQ, .precision = HR_PRECISION_BF16},
    {"beside fp4", .lora = "r=4", .quantize = HR_QUANTIZE_FP4, .recompute = "block"},
    {"beside fp4, scales quantized", .lora = "r=4", .quantize = HR_QUANTIZE_FP4_DQ, .check = true},
    {"beside int8", .lora = "r=4", .quantize = HR_QUANTIZE_INT8, .precision = HR_PRECISION_BF16},
    {"materialized attention", .attention = HR_ATTENTION_MATERIALIZED},
    {"materialized, dropped", .attention = HR_ATTENTION_MATERIALIZED, .dropout = 0.2, .precision = HR_PRECISION_BF16},
    {"dropout, smoothing, noise", .dropout = 0.2, .smoothing = 0.1, .noise = 5, .loss_chunk = 16, .accumulate = 2},
    {"moments in bf16", .precision = HR_PRECISION_BF16_PURE, .bf16_moments = true},
    {"frozen in part", .freeze = "embed,layers.0"},
    {"guards", .precision = HR_PRECISION_FP16, .optimizer = HR_OPTIMIZER_SGD},
    {"8 bits", .optimizer = HR_OPTIMIZER_LION8BIT, .skip = true},
};

static hr_job job_with(const option *o, const char *model) {
  hr_error error = {0};
  hr_job job = small_job(model);
  if (o->mlp) job.model.mlp_size = o->mlp;
  job.lora = o->lora;
  job.freeze = o->freeze;
  job.precision = o->precision;
  job.quantize = o->quantize;
  job.optimizer = o->optimizer;
  job.attention = o->attention;
  job.dropout = o->dropout;
  job.label_smoothing = o->smoothing;
  job.neftune_alpha = o->noise;
  job.loss_chunk = o->loss_chunk ? o->loss_chunk : HR_LOSS_CHUNK_OFF;
  job.accumulate = o->accumulate ? o->accumulate : 1;
  job.moments = o->bf16_moments ? HR_MOMENTS_BF16 : HR_MOMENTS_FP32;
  job.check = o->check;
  job.on_nonfinite = o->skip ? HR_ON_NONFINITE_SKIP : HR_ON_NONFINITE_STOP;
  if (o->recompute) must(hr_recompute_parse(o->recompute, &job.recompute, &error), &error);
  return job;
}

static void options_train_as_on_the_cpu(void **state) {
  (void)state;
  for (size_t k = 0; k < sizeof options_of_jobs / sizeof *options_of_jobs; k++) {
    hr_job job = job_with(&options_of_jobs[k], family_models[k % 2]);
    compare(&job, 4, options_of_jobs[k].what);
  }
}

/* ---- runs that sample, and that go on ---- */

typedef struct heard {
  char text[4096];
} heard;

static void on_event(void *context, const hr_event *event) {
  heard *h = context;
  size_t used = strlen(h->text);
  if (event->kind == HR_EVENT_SAMPLE) (void)snprintf(h->text + used, sizeof h->text - used, "%s\n", event->text);
}

static void run_to(hr_job job, bool on_gpu, uint64_t steps, const char *out, const char *resume, heard *h) {
  hr_run_options options;
  hr_run_result result;
  hr_error error = {0};
  hr_run_options_init(&options);
  options.data_paths = options.eval_paths = &data;
  options.data_path_count = options.eval_path_count = 1;
  options.eval_every = 2, options.eval_batches = 1, options.save_every = 2;
  options.out_directory = resume ? NULL : out;
  options.resume_directory = resume;
  options.sample_prompt = job.with_generation ? "memory is" : NULL;
  options.on_event = on_event, options.context = h;
  job.steps = steps;
  if (on_gpu) to_gpu(&job.device);
  must(hr_job_finish(&job, &error), &error);
  must(hr_train(&job, &options, &result, &error), &error);
  for (int tier = 0; tier < HR_TIER_COUNT; tier++)
    assert_int_equal(result.reserved_bytes[tier], result.planned_bytes[tier]);
}

/* What is said between steps by the programs of generation is what the CPU says. */
static void samples_are_the_cpu_s(void **state) {
  hr_job job = small_job(family_models[1]);
  heard cpu = {0}, gpu = {0};
  (void)state;
  job.with_generation = true;
  job.context_length = 64;
  run_to(job, false, 4, path_of("%s/sampled-cpu", work), NULL, &cpu);
  run_to(job, true, 4, path_of("%s/sampled-gpu", work), NULL, &gpu);
  assert_true(strlen(cpu.text) > 20);
  assert_string_equal(gpu.text, cpu.text);
}

/* Adapters beside codes, stopped half-way and gone on: the files of a run in one go. */
static void adapters_go_on(void **state) {
  hr_job job = small_job(family_models[1]);
  const char *whole = path_of("%s/whole", work), *cut = path_of("%s/cut", work);
  heard h = {0};
  (void)state;
  job.precision = HR_PRECISION_BF16;
  job.lora = "r=4,dropout=0.1";
  job.quantize = HR_QUANTIZE_NF4_DQ;
  job.schedule = HR_SCHEDULE_CONSTANT;
  run_to(job, true, 4, whole, NULL, &h);
  run_to(job, true, 2, cut, NULL, &h);
  run_to(job, true, 4, NULL, cut, &h);
  assert_same_file(path_of("%s/final/adapter_model.safetensors", whole),
                   path_of("%s/final/adapter_model.safetensors", cut));
}

/* Blocks as a file has them, in fp32 and bf16. */
static void blocks_train_as_on_the_cpu(void **state) {
  (void)state;
  for (int narrow = 0; narrow < 2; narrow++) {
    hr_job job = job_on("llama.gguf", HR_PURPOSE_TRAIN);
    job.quantize = HR_QUANTIZE_KEEP;
    job.lora = "r=4";
    job.precision = narrow ? HR_PRECISION_BF16 : HR_PRECISION_FP32;
    job.sequence_length = 16;
    job.steps = 2;
    job.learning_rate = 1e-2;
    compare(&job, 4, "beside blocks of a file");
  }
}

/* ---- generation ---- */

typedef struct answer {
  int32_t tokens[2 * ANSWER];
  uint32_t count;
} answer;

static void on_token(void *context, int32_t token) {
  answer *a = context;
  assert_true(a->count < 2 * ANSWER);
  a->tokens[a->count++] = token;
}

/* The likeliest tokens behind a prompt, and behind one that the cache holds the begin of. */
static answer answer_of(const hr_job *asked, bool on_gpu, const char *what) {
  hr_job job = *asked;
  hr_generator *g = NULL;
  hr_error error = {0};
  answer to = {0};
  int32_t ids[CONTEXT];
  if (on_gpu) to_gpu(&job.device);
  if (hr_job_finish(&job, &error) != HR_OK || hr_generator_open(&job, NULL, NULL, &g, &error) != HR_OK)
    fail_msg("%s%s: %s", what, on_gpu ? "" : ", on the CPU", error.message);
  for (int prompt = 0; prompt < 2; prompt++) {
    hr_generate_options options;
    hr_generate_result result;
    hr_generate_options_init(&options);
    for (int k = 0; k < PROMPT; k++)
      ids[k] = (k * k * 7 + k + 3 + (k >= KEPT ? prompt : 0)) % (int32_t)job.model.vocabulary_size;
    options.prompt_ids = ids, options.prompt_id_count = PROMPT;
    options.stop_ids = ids, options.stop_id_count = 0;
    options.max_tokens = ANSWER;
    options.temperature = 0;
    options.on_token = on_token, options.context = &to;
    must(hr_generator_run(g, &options, &result, &error), &error);
    assert_int_equal(result.kept_tokens, prompt ? KEPT : 0);
    for (int tier = 0; tier < HR_TIER_COUNT; tier++)
      assert_int_equal(result.reserved_bytes[tier], result.planned_bytes[tier]);
  }
  hr_generator_close(g);
  return to;
}

static void same_answer(const hr_job *job, const char *what) {
  answer cpu = answer_of(job, false, what), gpu = answer_of(job, true, what);
  assert_int_equal(cpu.count, 2 * ANSWER);
  assert_int_equal(gpu.count, cpu.count);
  for (uint32_t k = 0; k < cpu.count; k++)
    if (cpu.tokens[k] != gpu.tokens[k])
      fail_msg("%s: token %u is %d, and %d on the CPU", what, k, gpu.tokens[k], cpu.tokens[k]);
}

static void every_family_answers_as_on_the_cpu(void **state) {
  static const char *const files[] = {"gpt2",    "llama",  "mistral",  "qwen2", "qwen3",
                                      "phi3",    "gemma2", "gemma3",   "gemma", "smollm3",
                                      "granite", "olmo2",  "stablelm", "phi",   "stablelm-parallel"};
  (void)state;
  for (size_t k = 0; k < sizeof files / sizeof *files; k++) {
    hr_job job = job_on(files[k], HR_PURPOSE_GENERATE);
    same_answer(&job, files[k]);
  }
}

/* Blocks of files, codes that are made while it loads, narrow weights. */
static void every_kind_of_weight_answers_as_on_the_cpu(void **state) {
  static const struct {
    const char *model;
    hr_quantize quantize;
    hr_precision precision;
  } cases[] = {{"llama.gguf", HR_QUANTIZE_KEEP, HR_PRECISION_FP32}, {"llama", HR_QUANTIZE_NF4_DQ, HR_PRECISION_FP32},
               {"gpt2", HR_QUANTIZE_INT8, HR_PRECISION_FP32},       {"qwen3", HR_QUANTIZE_FP4, HR_PRECISION_FP32},
               {"llama", HR_QUANTIZE_NONE, HR_PRECISION_BF16},      {"gemma2", HR_QUANTIZE_NF4, HR_PRECISION_BF16}};
  (void)state;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    hr_job job = job_on(cases[k].model, HR_PURPOSE_GENERATE);
    job.quantize = cases[k].quantize;
    job.precision = cases[k].precision;
    same_answer(&job, path_of("%s, %s, %s", cases[k].model, hri_quantization_name((uint32_t)job.quantize),
                              hr_precision_name(job.precision)));
  }
}

/* ---- evaluation ---- */

static double evaluated(const hr_job *asked, bool on_gpu) {
  hr_run_options options;
  hr_run_result result;
  hr_error error = {0};
  hr_job job = *asked;
  hr_run_options_init(&options);
  options.data_paths = &rows;
  options.data_path_count = 1;
  options.eval_batches = 2;
  if (on_gpu) to_gpu(&job.device);
  must(hr_job_finish(&job, &error), &error);
  must(hr_evaluate(&job, &options, &result, &error), &error);
  assert_int_equal(result.planned_bytes[HR_TIER_DEVICE], result.reserved_bytes[HR_TIER_DEVICE]);
  return result.eval_loss;
}

static void evaluations_are_the_cpu_s(void **state) {
  static const struct {
    const char *model;
    hr_precision precision;
    hr_attention attention;
    double bound;
  } cases[] = {{"llama", HR_PRECISION_FP32, HR_ATTENTION_FLASH, 1e-6},
               {"gemma3", HR_PRECISION_BF16, HR_ATTENTION_FLASH, 1e-3},
               {"gpt2", HR_PRECISION_FP32, HR_ATTENTION_MATERIALIZED, 1e-6},
               {"llama.gguf", HR_PRECISION_FP32, HR_ATTENTION_FLASH, 1e-6}};
  (void)state;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    hr_job job = job_on(cases[k].model, HR_PURPOSE_EVALUATE);
    double cpu, gpu;
    job.sequence_length = 32;
    job.precision = cases[k].precision;
    job.attention = cases[k].attention;
    if (strstr(cases[k].model, ".gguf")) job.quantize = HR_QUANTIZE_KEEP;
    cpu = evaluated(&job, false), gpu = evaluated(&job, true);
    if (!(cpu > 1 && fabs(gpu - cpu) <= cases[k].bound * cpu))
      fail_msg("%s: the loss is %.9g, and %.9g on the CPU", cases[k].model, gpu, cpu);
  }
}

/* ---- weights without a code ---- */

/* The model's files, which are bf16, with two elements of a weight so large that the sum of both is infinite. */
static void damage(const char *model, const char *folder, const char *name) {
  size_t config_bytes = 0, bytes = 0;
  char *config = get_file(path_of("%s/gguf/%s/config.json", HR_TEST_DATA, model), &config_bytes), *all;
  const char *path = path_of("%s/gguf/%s/model.safetensors", HR_TEST_DATA, model);
  const uint64_t elements[2] = {137, 650};
  const uint16_t large = 0x7F60;
  const hri_safetensor *t;
  hri_safetensors *file;
  hr_error error = {0};
  must(hri_safetensors_open(path, &file, &error), &error);
  assert_true(hri_safetensors_find(file, name) != HRI_SAFETENSORS_NONE);
  t = hri_safetensors_get(file, hri_safetensors_find(file, name));
  assert_int_equal(t->dtype, HRI_FILE_BF16);
  all = get_file(path, &bytes);
  for (int k = 0; k < 2; k++)
    memcpy(all + bytes - hri_safetensors_data_bytes(file) + t->begin + elements[k] * sizeof large, &large,
           sizeof large);
  hri_safetensors_close(file);
  assert_int_equal(mkdir(folder, 0755), 0);
  put_file(path_of("%s/config.json", folder), config, config_bytes);
  put_file(path_of("%s/model.safetensors", folder), all, bytes);
  free(config), free(all);
}

/* LLM.int8 goes through fp16; the mean of double quantization overflows. The others have codes for all that is finite. */
static void a_weight_without_a_code_is_told_as_on_the_cpu(void **state) {
  static const hr_quantize kinds[] = {HR_QUANTIZE_NF4_DQ, HR_QUANTIZE_FP4_DQ, HR_QUANTIZE_INT8};
  const char *folder = path_of("%s/damaged", work);
  hr_error cpu = {0}, gpu = {0}, error = {0};
  (void)state;
  damage("llama", folder, "model.layers.1.mlp.up_proj.weight");
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
    for (int narrow = 0; narrow < 2; narrow++) {
      hr_generator *g;
      hr_job job = job_on("llama", HR_PURPOSE_GENERATE), other;
      must(hr_model_open(folder, &job.model, &error), &error);
      job.quantize = kinds[k];
      job.precision = narrow ? HR_PRECISION_BF16 : HR_PRECISION_FP32;
      other = job;
      to_gpu(&other.device);
      must(hr_job_finish(&job, &error), &error);
      must(hr_job_finish(&other, &error), &error);
      assert_int_equal(hr_generator_open(&job, NULL, NULL, &g, &cpu), HR_ERROR_INPUT);
      assert_int_equal(hr_generator_open(&other, NULL, NULL, &g, &gpu), HR_ERROR_INPUT);
      if (!strstr(cpu.message, "has 2.97747e+38 at row ")) fail_msg("%s", cpu.message);
      assert_string_equal(gpu.message, cpu.message);
      assert_string_equal(gpu.hint, cpu.hint);
    }
}

static void put_rows(const char *path) {
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  for (int row = 0; row < 6; row++) {
    (void)fprintf(file, "{\"input_ids\": [");
    for (int k = 0; k < 40; k++) (void)fprintf(file, "%s%d", k ? ", " : "", (k * k * 5 + 3 * k + row) % 31);
    (void)fprintf(file, "]}\n");
  }
  assert_int_equal(fclose(file), 0);
}

static int set_up(void **state) {
  (void)state;
  work = scratch_make("jobs");
  data = strdup(path_of("%s/data.txt", work));
  put_words(data, 3000, 1);
  rows = strdup(path_of("%s/rows.jsonl", work));
  put_rows(rows);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  scratch_remove(work);
  free((void *)(uintptr_t)data);
  free((void *)(uintptr_t)rows);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_node_of_any_job_has_a_kernel),
                                     cmocka_unit_test(every_node_of_published_models_has_a_kernel),
                                     cmocka_unit_test(random_jobs_train_as_on_the_cpu),
                                     cmocka_unit_test(families_train_as_on_the_cpu),
                                     cmocka_unit_test(options_train_as_on_the_cpu),
                                     cmocka_unit_test(blocks_train_as_on_the_cpu),
                                     cmocka_unit_test(samples_are_the_cpu_s),
                                     cmocka_unit_test(adapters_go_on),
                                     cmocka_unit_test(every_family_answers_as_on_the_cpu),
                                     cmocka_unit_test(every_kind_of_weight_answers_as_on_the_cpu),
                                     cmocka_unit_test(evaluations_are_the_cpu_s),
                                     cmocka_unit_test(a_weight_without_a_code_is_told_as_on_the_cpu)};
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
