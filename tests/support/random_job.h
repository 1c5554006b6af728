/* Random jobs on a small model of a random family: adapters beside plain and quantized weights and blocks of GGUF files, all
 * weights, some; every optimizer and what else changes the mathematics, and ways of running that change no bit. */
#ifndef HRI_TEST_RANDOM_JOB_H
#define HRI_TEST_RANDOM_JOB_H

#include <stdio.h>
#include <string.h>

#include <headroom/job.h>

#include "base/rng.h"
#include "support/gguf_model.h"
#include "support/random_lora.h"
#include "support/scratch.h"

typedef struct dice {
  uint64_t seed, count;
  const char *work; /* a folder for the file that a job's model may lie in */
} dice;

static inline uint32_t roll(dice *d, uint32_t sides) {
  uint32_t w[4];
  hri_philox(d->seed, 11, d->count++, w);
  return w[0] % sides;
}
static inline uint32_t roll_of(void *d, uint32_t below) { return roll(d, below); }

static inline void random_model(dice *d, hr_model *m) {
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
static inline void random_way(dice *d, hr_job *job) {
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
static inline uint32_t random_type(void *context, const hri_param_spec *spec, uint32_t k) {
  uint32_t type;
  (void)k;
  do type = gguf_block_types[roll(context, GGUF_BLOCK_TYPES)];
  while (spec->dims[1] % hri_ggml_block(type) != 0);
  return type;
}

/* The model with sizes that hold blocks, in a file of random ones. NONE: what the family varied has no word in GGUF. */
static inline hr_quantize random_blocks(dice *d, hr_model *model) {
  const char *path = path_of("%s/model.gguf", d->work);
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
static inline void random_trained(dice *d, hr_job *job, char words[512]) {
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

static inline void random_mathematics(dice *d, hr_job *job) {
  job->optimizer = (hr_optimizer)roll(d, HR_OPTIMIZER_COUNT);
  job->states_8bit = (hr_states_8bit)roll(d, 2);
  job->weight_decay = roll(d, 2) ? 0.1 : 0;
  job->precision = (hr_precision)roll(d, 4);
  if (job->precision == HR_PRECISION_BF16_PURE && roll(d, 2)) job->moments = HR_MOMENTS_BF16;
  job->dropout = roll(d, 3) ? 0 : 0.1 * (1 + roll(d, 5));
  if (roll(d, 6) == 0) {
    job->model.dropout.attention = 0.1 * roll(d, 5);
    job->model.dropout.residual = 0.1 * roll(d, 5);
    job->model.dropout.embedding = 0.1 * roll(d, 5);
    job->dropout = HR_DROPOUT_CONFIG;
  }
  job->label_smoothing = roll(d, 3) ? 0 : 0.1;
  job->neftune_alpha = roll(d, 3) ? 0 : 5;
  job->packing = (hr_packing)roll(d, 3);
}

static inline void random_job(dice *d, hr_job *job, char words[512]) {
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

#endif
