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

#include "base/rng.h"
#include "support/gguf_model.h"
#include "support/random_lora.h"
#include "support/scratch.h"

typedef struct dice {
  uint64_t seed, count;
} dice;

static uint32_t roll(dice *d, uint32_t sides) {
  uint32_t w[4];
  hri_philox(d->seed, 11, d->count++, w);
  return w[0] % sides;
}
static uint32_t roll_of(void *d, uint32_t below) { return roll(d, below); }

static const char *work, *data;

typedef struct census {
  uint32_t ran, narrow, accumulated, dropped, checked, other_updates, adapted, quantized, kept, frozen, blocks;
} census;

static void random_model(dice *d, hr_model *m) {
  hr_error e = {0};
  uint32_t heads = 1 + roll(d, 2), group = 1 + roll(d, 2);
  assert_int_equal(random_family(m, roll_of, d, &e), HR_OK);
  m->layer_count = 1 + roll(d, 3);
  m->head_size = 2 * (1 + roll(d, 4));
  m->head_count = heads * group;
  m->kv_head_count = m->family == HR_FAMILY_GPT2 ? m->head_count : heads;
  m->hidden_size = random_hidden_is_heads(m) ? m->head_count * m->head_size : 2 + roll(d, 30);
  m->mlp_size = roll(d, 4) ? 1 + roll(d, 40) : 256 + roll(d, 200); /* the larger ones have states of 8 bits */
  m->vocabulary_size = 257;
  m->max_positions = 64;
  m->tied_embeddings = m->family == HR_FAMILY_GPT2 || roll(d, 2);
  random_variations(m, roll_of, d);
  m->pad_token = -1;
}

/* How a job is run, which changes no bit. */
static void random_way(dice *d, hr_job *job) {
  job->threads = 1 + roll(d, 3);
  job->recompute = (hr_recompute){.kind = (hr_recompute_kind)roll(d, 5)};
  job->recompute.every = 1 + roll(d, job->model.layer_count);
  job->recompute.level_count = 1 + roll(d, job->model.layer_count);
  for (uint32_t l = 0; l < job->recompute.level_count; l++) job->recompute.levels[l] = (uint8_t)roll(d, HR_LEVEL_COUNT);
  job->weight_packing = (hr_weight_packing)roll(d, 4);
  job->update = job->clip == 0 && job->accumulate == 1 && job->on_nonfinite == HR_ON_NONFINITE_STOP &&
                        job->precision != HR_PRECISION_FP16 && roll(d, 2)
                    ? HR_UPDATE_IN_BACKWARD
                    : HR_UPDATE_AFTER;
  job->check = roll(d, 4) == 0;
}

/* A type whose blocks fill the rows. */
static uint32_t random_type(void *context, const hri_param_spec *spec, uint32_t k) {
  uint32_t type;
  (void)k;
  do type = gguf_block_types[roll(context, GGUF_BLOCK_TYPES)];
  while (spec->dims[1] % hri_ggml_block(type) != 0);
  return type;
}

/* The model with sizes that hold blocks, in a file of random ones. NONE: what the family varied has no word in GGUF. */
static hr_quantize random_blocks(dice *d, hr_model *model) {
  const char *path = path_of("%s/model.gguf", work);
  bool gemma = model->family == HR_FAMILY_GEMMA2 || model->family == HR_FAMILY_GEMMA3;
  hr_model m = *model, usual;
  hr_error e = {0};
  hri_family_defaults(&usual, m.family);
  usual.layer_count = m.layer_count;
  hri_family_rope_layers(&usual, HRI_ROPE_INTERVAL);
  m.head_size = 32 << roll(d, 2);
  m.hidden_size =
      random_hidden_is_heads(&m) || m.family == HR_FAMILY_PHI3 ? m.head_count * m.head_size : 32u << roll(d, 4);
  m.mlp_size = 32u << roll(d, 4);
  if (!m.learned_positions) m.rotary_size = m.head_size;
  m.activation = usual.activation;
  memcpy(m.no_rope, usual.no_rope, sizeof m.no_rope);
  if (m.family == HR_FAMILY_SMOLLM3) memset(m.sliding, 0, sizeof m.sliding), m.sliding_window = 0;
  m.rope = (hr_rope){.theta = 50, .factor = 1};
  if (m.has_local_rope) m.local_rope = m.rope;
  if (gemma || m.family == HR_FAMILY_GEMMA || m.family == HR_FAMILY_QWEN3 || m.family == HR_FAMILY_OLMO2)
    m.qkv_bias = m.attention_output_bias = false; /* GGUF has none of theirs */
  if (hri_family_in(&m, HRI_ALL_GEMMA)) m.embedding_scale = sqrt((double)m.hidden_size);
  if (!gemma) m.attention_scale = 1 / sqrt((double)m.head_size);
  (void)remove(path);
  if (gguf_model_write(path, &m, d->seed, random_type, d, &e) != HR_OK || hr_model_open(path, &m, &e) != HR_OK)
    return HR_QUANTIZE_NONE;
  *model = m;
  return HR_QUANTIZE_KEEP;
}

/* What is trained: adapters (beside quantized weights, every other time), everything, or what --freeze leaves. */
static void random_trained(dice *d, hr_job *job, char words[512]) {
  static const char *const parts[] = {"embed", "norms", "layers.0", "*.mlp.*", "embed,norms", "layers.0,*.mlp.*"};
  if (roll(d, 4)) {
    job->quantize = roll(d, 2) ? (hr_quantize)(1 + roll(d, HR_QUANTIZE_KEEP)) : HR_QUANTIZE_NONE;
    if (job->quantize == HR_QUANTIZE_KEEP) job->quantize = random_blocks(d, &job->model);
    random_lora(&job->model, roll_of, d, words);
    job->lora = words;
    return;
  }
  (void)snprintf(words, 512, "%s", parts[roll(d, sizeof parts / sizeof *parts)]);
  if (roll(d, 3) == 0) job->freeze = words;
  else if (roll(d, 2)) job->train_only = words;
}

static void random_mathematics(dice *d, hr_job *job) {
  job->optimizer = (hr_optimizer)roll(d, HR_OPTIMIZER_COUNT);
  job->states_8bit = (hr_states_8bit)roll(d, 2);
  job->weight_decay = roll(d, 2) ? 0.1 : 0;
  job->precision = (hr_precision)roll(d, 4);
  if (job->precision == HR_PRECISION_BF16_PURE && roll(d, 2)) job->moments = HR_MOMENTS_BF16;
  job->dropout = roll(d, 3) ? 0 : 0.1 * (1 + roll(d, 5));
  job->label_smoothing = roll(d, 3) ? 0 : 0.1;
  job->neftune_alpha = roll(d, 3) ? 0 : 5;
  job->packing = (hr_packing)roll(d, 3);
}

static void random_job(dice *d, hr_job *job, char words[512]) {
  hr_error e = {0};
  hr_job_init(job);
  random_model(d, &job->model);
  assert_int_equal(hr_device_find("cpu", &job->device, &e), HR_OK);
  job->budget_bytes = UINT64_C(1) << 30;
  job->sequence_length = 2 + roll(d, 30);
  job->micro_batch = 1 + roll(d, 3);
  job->accumulate = roll(d, 2) ? 1 : 2 + roll(d, 2);
  job->steps = 2;
  job->learning_rate = 1e-2;
  job->clip = roll(d, 2) ? 1.0 : 0;
  job->given = HR_GIVEN_CLIP;
  job->attention = (hr_attention)(roll(d, 4) == 0);
  job->loss_chunk = roll(d, 2) ? HR_LOSS_CHUNK_OFF : 16 + roll(d, 20);
  job->on_nonfinite = (hr_on_nonfinite)(roll(d, 4) == 0);
  random_mathematics(d, job);
  random_trained(d, job, words);
  random_way(d, job);
}

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
  dice d = {seed, 0};
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
  seen->dropped += job.dropout > 0 || strstr(words, "dropout") != NULL;
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
