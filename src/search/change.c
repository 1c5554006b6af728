/* Changes of a job, as values. What they are called is in which fields the job differs (hr_job_options). */
#include <stdio.h>
#include <string.h>

#include <headroom/field.h>

#include "job/job.h"
#include "model/gguf.h"
#include "search/search.h"

/* What each choice of levels is. */
static const hr_recompute levels[HRI_LEVELS_COUNT] = {
    [HRI_LEVELS_SELECTIVE] = {.kind = HR_RECOMPUTE_SELECTIVE},
    [HRI_LEVELS_MLP] = {.kind = HR_RECOMPUTE_LEVELS, .levels = {HR_LEVEL_MLP}, .level_count = 1},
    [HRI_LEVELS_ATTENTION] = {.kind = HR_RECOMPUTE_LEVELS, .levels = {HR_LEVEL_ATTENTION}, .level_count = 1},
    [HRI_LEVELS_BLOCK] = {.kind = HR_RECOMPUTE_BLOCK},
    [HRI_LEVELS_SQRT] = {.kind = HR_RECOMPUTE_SQRT},
    [HRI_LEVELS_AUTO] = {.kind = HR_RECOMPUTE_AUTO},
};

uint32_t hri_change_parts(const hri_change *c) {
  const bool both = (c->algorithm & HRI_CHANGE_LORA) && (c->algorithm & HRI_CHANGE_QUANTIZE),
             narrow = (c->algorithm & HRI_CHANGE_MOMENTS) && (c->algorithm & HRI_CHANGE_BF16_PURE);
  return (c->levels != HRI_LEVELS_KEPT) + (c->every > 0) + (c->split > 1) + (c->micro_batch > 0) + (c->chunk > 0) +
         (c->packing > 0) + c->in_backward + (uint32_t)__builtin_popcount(c->algorithm) - both - narrow;
}

/* ---- levels ---- */

static uint8_t level_at(const hr_recompute *r, uint32_t layer) {
  if (r->level_count == 0) return HR_LEVEL_KEEP;
  return r->levels[layer < r->level_count ? layer : r->level_count - 1]; /* the last repeats */
}

/* LEVELS that are the same everywhere may be a kind of their own. */
static hr_recompute_kind kind_of(const hr_recompute *r, uint32_t layers) {
  if (r->kind != HR_RECOMPUTE_LEVELS) return r->kind;
  for (uint32_t l = 1; l < layers; l++)
    if (level_at(r, l) != level_at(r, 0)) return r->kind;
  return level_at(r, 0) == HR_LEVEL_KEEP    ? HR_RECOMPUTE_NONE
         : level_at(r, 0) == HR_LEVEL_BLOCK ? HR_RECOMPUTE_BLOCK
                                            : r->kind;
}

static bool same_levels(const hr_recompute *a, const hr_recompute *b, uint32_t layers) {
  if (kind_of(a, layers) != kind_of(b, layers)) return false;
  if (kind_of(a, layers) == HR_RECOMPUTE_EVERY) return a->every == b->every;
  for (uint32_t l = 0; kind_of(a, layers) == HR_RECOMPUTE_LEVELS && l < layers; l++)
    if (level_at(a, l) != level_at(b, l)) return false;
  return true;
}

/* ---- applying ---- */

static void free_chunk(hr_job *job) {
  if (!(job->given & HR_GIVEN_LOSS_CHUNK)) job->loss_chunk = HR_LOSS_CHUNK_AUTO;
}

/* What the job borrows, and a person would write. */
static const char offered_lora[] = "r=16,alpha=32";

/* Weights that are trained cannot be quantized, so that a training needs adapters for it: the job's own, or offered
 * ones. */
static bool apply_frozen(unsigned algorithm, hr_job *job) {
  const bool trains = job->purpose == HR_PURPOSE_TRAIN;
  if (algorithm & HRI_CHANGE_LORA) {
    if (!trains || job->lora || job->adapter || job->model.lora.rank) return false;
    job->lora = offered_lora;
  }
  if (algorithm & HRI_CHANGE_QUANTIZE) {
    if (job->quantize != HR_QUANTIZE_NONE || (trains && !job->lora && !job->model.lora.rank)) return false;
    if ((algorithm & HRI_CHANGE_KEEP) && !hri_gguf_typed(&job->model)) return false;
    job->quantize = algorithm & HRI_CHANGE_NF4    ? HR_QUANTIZE_NF4_DQ
                    : algorithm & HRI_CHANGE_INT8 ? HR_QUANTIZE_INT8
                                                  : HR_QUANTIZE_KEEP;
  }
  return true;
}

unsigned hri_change_narrow(const hr_job *job) {
  return job->device.flops_fp16 > 0 && job->device.flops_bf16 <= 0 ? HRI_CHANGE_FP16 : HRI_CHANGE_BF16;
}

/* Rows of half the length. A step whose tokens were given keeps them, by more micro-steps, as --batch-tokens will have it
 * beside the new --seq. */
static bool apply_shorter_rows(hr_job *job) {
  const uint64_t tokens = (uint64_t)job->sequence_length * job->micro_batch * job->accumulate;
  if (job->sequence_length < 128) return false;
  job->sequence_length /= 2;
  free_chunk(job);
  if (job->given & HR_GIVEN_BATCH_TOKENS) {
    const uint64_t each = (uint64_t)job->sequence_length * job->micro_batch, most = hr_field_find("accumulate")->most;
    if ((job->given & HR_GIVEN_ACCUMULATE) || tokens % each || tokens / each > most) return false;
    job->accumulate = (uint32_t)(tokens / each);
  }
  return true;
}

static bool apply_algorithm(unsigned algorithm, hr_job *job) {
  if (!apply_frozen(algorithm, job)) return false;
  if (algorithm & (HRI_CHANGE_SGD | HRI_CHANGE_MOMENTUM)) {
    hr_optimizer wanted = algorithm & HRI_CHANGE_SGD ? HR_OPTIMIZER_SGD : HR_OPTIMIZER_MOMENTUM;
    if (job->optimizer == HR_OPTIMIZER_SGD || job->optimizer == wanted) return false;
    if (wanted == HR_OPTIMIZER_MOMENTUM && job->optimizer != HR_OPTIMIZER_ADAMW) return false; /* saves nothing */
    job->optimizer = wanted;
  }
  if (algorithm & HRI_CHANGE_8BIT) {
    if (job->optimizer != HR_OPTIMIZER_ADAMW && job->optimizer != HR_OPTIMIZER_LION) return false;
    job->optimizer = job->optimizer == HR_OPTIMIZER_ADAMW ? HR_OPTIMIZER_ADAMW8BIT : HR_OPTIMIZER_LION8BIT;
  }
  if (algorithm & HRI_CHANGE_ADAFACTOR) {
    if (job->optimizer != HR_OPTIMIZER_ADAMW) return false;
    job->optimizer = HR_OPTIMIZER_ADAFACTOR;
  }
  if (algorithm & HRI_CHANGE_IN_BACKWARD) {
    if (job->update == HR_UPDATE_IN_BACKWARD || job->accumulate > 1) return false;
    job->update = HR_UPDATE_IN_BACKWARD;
    job->on_nonfinite = HR_ON_NONFINITE_STOP;
    job->clip = 0;
    job->given |= HR_GIVEN_CLIP;
  }
  if (algorithm & (HRI_CHANGE_BF16 | HRI_CHANGE_BF16_PURE | HRI_CHANGE_FP16)) {
    const bool older = hri_change_narrow(job) == HRI_CHANGE_FP16;
    const bool halved = job->precision == HR_PRECISION_BF16; /* by default, on a GPU */
    if ((job->precision != HR_PRECISION_FP32 && !halved) || (job->given & HR_GIVEN_PRECISION)) return false;
    if (halved && !(algorithm & HRI_CHANGE_BF16_PURE)) return false;
    if (older != ((algorithm & HRI_CHANGE_FP16) != 0)) return false;
    job->precision = older                         ? HR_PRECISION_FP16
                     : algorithm & HRI_CHANGE_BF16 ? HR_PRECISION_BF16
                                                   : HR_PRECISION_BF16_PURE;
  }
  if (algorithm & HRI_CHANGE_MOMENTS) {
    if (job->precision != HR_PRECISION_BF16_PURE || job->moments == HR_MOMENTS_BF16) return false;
    job->moments = HR_MOMENTS_BF16;
  }
  return !(algorithm & HRI_CHANGE_HALF_SEQUENCE) || apply_shorter_rows(job);
}

/* The rows of a step stay the same; an evaluation has no steps, and its rows come in smaller batches. */
static bool apply_rows(uint32_t micro_batch, hr_job *job) {
  const bool trains = job->purpose == HR_PURPOSE_TRAIN;
  const uint64_t rows = (uint64_t)job->micro_batch * (trains ? job->accumulate : 1);
  if (micro_batch == 0 || micro_batch == job->micro_batch || rows % micro_batch) return false;
  if (trains) {
    if (rows / micro_batch > hr_field_find("accumulate")->most) return false;
    if (rows / micro_batch > 1 && job->update == HR_UPDATE_IN_BACKWARD) return false;
    job->accumulate = (uint32_t)(rows / micro_batch);
  }
  job->micro_batch = micro_batch;
  free_chunk(job);
  return true;
}

static bool apply_chunk(uint32_t chunk, hr_job *job) {
  const uint64_t rows = (uint64_t)job->micro_batch * job->sequence_length;
  if (job->loss_chunk == chunk) return false;
  if (chunk == HR_LOSS_CHUNK_OFF ? hri_loss_chunk(job) >= rows : rows <= chunk) return false;
  job->loss_chunk = chunk;
  job->given |= HR_GIVEN_LOSS_CHUNK; /* chosen, not what follows from the rows */
  return true;
}

/* Gradients that die early have the same bits as those that stay only where nothing waits for all of them. */
static bool apply_in_backward(hr_job *job) {
  if (job->purpose != HR_PURPOSE_TRAIN || job->update == HR_UPDATE_IN_BACKWARD || job->accumulate > 1 ||
      job->clip > 0 || job->on_nonfinite != HR_ON_NONFINITE_STOP || job->precision == HR_PRECISION_FP16)
    return false;
  job->update = HR_UPDATE_IN_BACKWARD;
  return true;
}

bool hri_change_apply(const hri_change *c, hr_job *job) {
  if (c->levels != HRI_LEVELS_KEPT) {
    if (same_levels(&job->recompute, &levels[c->levels], job->model.layer_count)) return false;
    job->recompute = levels[c->levels];
  }
  if (c->every) job->recompute = (hr_recompute){.kind = HR_RECOMPUTE_EVERY, .every = c->every};
  if (c->split > 1 && (job->micro_batch % c->split || !apply_rows(job->micro_batch / c->split, job))) return false;
  if (c->micro_batch && !apply_rows(c->micro_batch, job)) return false;
  if (c->chunk && !apply_chunk(c->chunk, job)) return false;
  if (c->packing) {
    if (job->weight_packing == (hr_weight_packing)(c->packing - 1)) return false;
    job->weight_packing = (hr_weight_packing)(c->packing - 1);
  }
  if (c->in_backward && !apply_in_backward(job)) return false;
  return apply_algorithm(c->algorithm, job) && hr_job_finish(job, NULL) == HR_OK;
}

/* ---- words ---- */

bool hri_change_text(const hri_change *c, const hr_job *base, const hr_job *changed, char out[HR_FIX_TEXT_BYTES]) {
  char text[HR_FIELD_TEXT_BYTES];
  hr_job_options(base, changed, text, sizeof text);
  if (strlen(text) >= HR_FIX_TEXT_BYTES &&
      c->levels == HRI_LEVELS_AUTO) { /* a level for each layer: auto says as much */
    hr_job asked = *changed;
    asked.recompute = levels[HRI_LEVELS_AUTO];
    hr_job_options(base, &asked, text, sizeof text);
  }
  (void)snprintf(out, HR_FIX_TEXT_BYTES, "%.*s", HR_FIX_TEXT_BYTES - 1, text);
  return strlen(text) < HR_FIX_TEXT_BYTES;
}
