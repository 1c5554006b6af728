/* Passes: program in, program out. Their order is fixed (architecture.md section 3):
 *   build > [precision] > head > autodiff > [products of fuse] > layout > recompute > transient > update > [offload] > fuse > inplace >
 *   schedule > [pack] > workspace > check > place
 * A pass knows nothing of kernels or devices; what it needs of a backend (scratch sizes) comes through its contract,
 * backend/backend.h. */
#ifndef HRI_PASS_PASS_H
#define HRI_PASS_PASS_H

#include "backend/backend.h"
#include "program/ops.h"

/* Numbers of the passes as nodes record them ("the pass that made it"). */
typedef enum hri_pass {
  HRI_PASS_BUILD = 0,
  HRI_PASS_PRECISION,
  HRI_PASS_HEAD,
  HRI_PASS_AUTODIFF,
  HRI_PASS_LAYOUT,
  HRI_PASS_RECOMPUTE,
  HRI_PASS_TRANSIENT,
  HRI_PASS_UPDATE,
  HRI_PASS_OFFLOAD,
  HRI_PASS_FUSE,
  HRI_PASS_INPLACE,
  HRI_PASS_SCHEDULE,
  HRI_PASS_PACK,
  HRI_PASS_WORKSPACE,
  HRI_PASS_COUNT
} hri_pass;
const char *hri_pass_name(hri_pass pass);

typedef struct hri_precision_options {
  bool masters;         /* fp32 master weights; of bf16 weights their low halves */
  hri_dtype narrow;     /* what matrices and activations become: HRI_BF16, HRI_F16 */
  bool small_gradients; /* bf16 gradients where one product writes them once (needs a job without micro-steps) */
  bool small_moments;   /* bf16 optimizer states */
  hri_id head;          /* weight of the loss head, which no node reads yet */
  uint32_t head_chunks; /* and the chunks that will */
} hri_precision_options;
/* Makes matrices and activations narrow. */
hr_status hri_pass_precision(hri_job *job, const hri_precision_options *options, hr_error *error);

/* Loss head of one program, unrolled over chunks of `chunk` tokens: logits, cross entropy and, with a gradient,
 * d-logits, dW and d-hidden, all in the loss phase, so that only one chunk of logits ever lives. Returns the gradient
 * of `hidden` (HRI_NONE without gradient). bias: the head's, or HRI_NONE. softcap: the logits' (0: none); smoothing: of the labels, with a gradient
 * only (an evaluation's loss is not smoothed). */
hri_id hri_pass_head(hri_job *job, uint8_t program, hri_id hidden, hri_id head, hri_id bias, hri_id targets,
                     uint64_t vocabulary, double softcap, double smoothing, uint32_t unit, bool with_gradient,
                     uint64_t chunk);
/* Logits of the last valid row, for generation; returns the logits tensor [1, V]. */
hri_id hri_pass_last_logits(hri_job *job, uint8_t program, hri_id hidden, hri_id head, hri_id bias, uint64_t vocabulary,
                            double softcap, uint32_t unit);

/* Reverse mode over the forward nodes of `program`, starting from the gradient of `hidden`. */
hr_status hri_pass_autodiff(hri_job *job, uint8_t program, hri_id hidden, hri_id hidden_gradient, bool accumulate,
                            hr_error *error);

/* Gathers parameters into segments; gradients mirror them unless `gradients_apart` (updates inside the backward). */
hr_status hri_pass_layout(hri_job *job, bool gradients_apart, hr_error *error);

/* What of each layer is dropped and made again; `group` layers share one kept input (1 unless every:K). */
hr_status hri_pass_recompute(hri_job *job, uint8_t program, const uint8_t *levels, uint32_t layer_count, uint32_t group,
                             hr_error *error);

/* Values that are made again before each use, in every program. */
hr_status hri_pass_transient(hri_job *job, hr_error *error);

typedef struct hri_update_options {
  double numbers[HR_OPTIMIZER_COUNT][HRI_STATE_NUMBERS]; /* per kind of state, as its row lists them */
  double weight_decay;
  bool clip, in_backward;
  bool skip; /* a step whose loss or gradients are not finite changes nothing (not in_backward) */
  /* With skip: the loss scale grows after so many steps in a row that were not skipped, and backs off with each that
   * was; 0: it stays as it is. */
  uint32_t growth_interval;
} hri_update_options;
hr_status hri_pass_update(hri_job *job, const hri_update_options *options, hr_error *error);

/* Saved activations of at least `minimum_bytes` go to the host tier over the copy-out lane and come back over the
 * copy-in lane `distance` compute nodes ahead of their reader. */
hr_status hri_pass_offload(hri_job *job, uint8_t program, uint64_t minimum_bytes, uint32_t distance, hr_error *error);

/* Products of the backward of `program` with what a backend's `epilogues` compute with them; right behind the
 * differentiation. */
hr_status hri_pass_fuse_products(hri_job *job, uint8_t program, uint32_t epilogues, hr_error *error);
hr_status hri_pass_fuse(hri_job *job, hr_error *error);
hr_status hri_pass_inplace(hri_job *job, hr_error *error);
hr_status hri_pass_schedule(hri_job *job, hr_error *error);

typedef enum hri_pack_mode { HRI_PACK_AUTO = 0, HRI_PACK_TRANSIENT, HRI_PACK_PERSISTENT } hri_pack_mode;
hr_status hri_pass_pack(hri_job *job, const hri_backend *backend, hri_pack_mode mode, hr_error *error);

hr_status hri_pass_workspace(hri_job *job, const hri_backend *backend, hr_error *error);

/* ---- shared by passes ---- */

/* First and last position in the order of `program` at which each storage is touched; UINT32_MAX = never. Two arrays
 * of storages.count, owned by the caller (hri_free). */
hr_status hri_touch_range(const hri_job *job, uint8_t program, uint32_t **first, uint32_t **last, hr_error *error);
/* Points every tensor of storage `from` at storage `to` (+ add bytes); values stay. Applied by hri_merge_apply. */
typedef struct hri_merge {
  hri_id *to;
  uint64_t *add;
  size_t count;
} hri_merge;
hr_status hri_merge_init(hri_merge *merge, const hri_job *job, hr_error *error);
void hri_merge_set(hri_merge *merge, hri_id from, hri_id to, uint64_t add);
hri_id hri_merge_find(const hri_merge *merge, hri_id storage, uint64_t *add);
void hri_merge_apply(hri_merge *merge, hri_job *job);
void hri_merge_deinit(hri_merge *merge);

#endif
