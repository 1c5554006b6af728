/* Mixed precision: which storages of a forward job become bf16, or fp16, before anything is derived from them.
 *
 * Matrices and activations become narrow, but for what is wide (adapters and their low ranks); vectors (norm weights, biases), statistics, losses and the gradients of weights
 * stay fp32, and so does all arithmetic. With masters each trainable matrix has an fp32 master weight, which the
 * optimizer updates: in fp16 whole, beside the rounded copy that the products read; in bf16 in two halves, of which the
 * products read the high one as it stands (hri_split), so that nothing is held twice. Without, the update rounds stochastically, and a gradient
 * that one product writes once may be bf16: nothing is added to it. Later passes take their types from here. */
#include <assert.h>
#include <string.h>

#include "pass/pass.h"

static void mark_wide(const hri_job *job, bool *wide) {
  for (size_t s = 0; s < job->storages.count; s++) wide[s] = job->storages.items[s].wide;
  for (size_t n = 0; n < job->nodes.count; n++) {
    const hri_node *node = &job->nodes.items[n];
    const hri_rule *rule = hri_rule_get(node->op);
    for (uint32_t i = 0; i < node->operand_count; i++)
      if ((rule->wide >> i & 1) && hri_operands(job, node)[i].tensor != HRI_NONE)
        wide[job->tensors.items[hri_operands(job, node)[i].tensor].value] = true;
  }
}

/* Adds the times that nodes of the training program read each parameter, and whether one that is no product does. */
static void count_readers(const hri_job *job, uint32_t *readers, bool *other) {
  const hri_program *p = &job->programs[HRI_STEP];
  for (size_t at = 0; at < p->order.count; at++) {
    const hri_node *node = &job->nodes.items[p->order.items[at]];
    for (uint32_t i = 0; i < node->operand_count; i++) {
      hri_operand o = hri_operands(job, node)[i];
      if (o.tensor == HRI_NONE || o.access != HRI_READ) continue;
      readers[job->tensors.items[o.tensor].value]++;
      if (hri_rule_get(node->op)->product != HRI_PRODUCT_FORWARD || i != 1)
        other[job->tensors.items[o.tensor].value] = true;
    }
  }
}

static hri_id make_master(hri_job *job, const hri_param_range *range, hri_dtype narrow) {
  const hri_param *param = &job->params.items[range->param];
  hri_tensor weight = job->tensors.items[range->weight];
  hri_storage storage = job->storages.items[weight.storage];
  hri_place place = {.scope = storage.scope,
                     .tier = storage.tier,
                     .role = HRI_ROLE_MASTER_WEIGHT,
                     .layer = param->layer,
                     .unit = param->unit};
  return hri_tensor_new(job, place, hri_name(job, "%s.master", hri_name_get(job, param->key)),
                        narrow == HRI_BF16 ? HRI_F32_LOW : HRI_F32, weight.rank, weight.dims, weight.stored);
}

/* What is narrowed at all: adapters stay fp32. */
static bool is_matrix(const hri_job *job, const hri_param *param) {
  const hri_tensor *weight = &job->tensors.items[param->weight];
  return weight->rank == 2 && !job->storages.items[weight->value].wide;
}

static void mark_states(const hri_job *job, const hri_param_range *range, bool *narrow) {
  const hri_optimizer *row = hri_optimizer_get(job->parts.items[range->part_begin].state_kind);
  for (uint32_t k = 0; k < row->tensor_count; k++)
    if (row->tensors[k].narrow) narrow[job->tensors.items[range->state[k]].value] = true;
}

/* Weights, gradients and states. */
static void mark_parameters(hri_job *job, const hri_precision_options *o, const uint32_t *readers, const bool *other,
                            bool *narrow) {
  for (size_t p = 0; p < job->params.count && !job->failed; p++) {
    const hri_param *param = &job->params.items[p];
    hri_id weight = job->tensors.items[param->weight].value;
    uint32_t uses = readers[weight] + (param->weight == o->head ? o->head_chunks : 0);
    if (!is_matrix(job, param)) continue;
    narrow[weight] = true;
    for (uint32_t r = 0; o->small_gradients && uses == 1 && !other[weight] && r < param->run_count; r++)
      narrow[job->tensors.items[job->runs.items[param->run_begin + r].gradient].value] = true;
    for (uint32_t r = 0; o->small_moments && r < param->range_count; r++)
      if (job->ranges.items[param->range_begin + r].gradient != HRI_NONE)
        mark_states(job, &job->ranges.items[param->range_begin + r], narrow);
  }
}

static void mark_activations(const hri_job *job, const bool *wide, bool *narrow) {
  for (size_t t = 0; t < job->tensors.count; t++) {
    const hri_tensor *tensor = &job->tensors.items[t];
    uint8_t role = job->storages.items[tensor->storage].role;
    bool transient = job->storages.items[tensor->storage].transient; /* a dequantized weight */
    if (tensor->dtype == HRI_F32 && (role == HRI_ROLE_ACTIVATION || role == HRI_ROLE_CACHE || transient) &&
        !wide[tensor->value])
      narrow[tensor->value] = true;
  }
}

static void apply(hri_job *job, const bool *narrow, size_t values, hri_dtype dtype) {
  for (size_t t = 0; t < job->tensors.count; t++) {
    hri_tensor *tensor = &job->tensors.items[t];
    if (tensor->value >= values || !narrow[tensor->value]) continue;
    assert(tensor->dtype == HRI_F32); /* each is halved once */
    tensor->dtype = (uint8_t)dtype;
    tensor->offset /= 2;
    tensor->value_offset /= 2;
  }
  for (size_t s = 0; s < values; s++)
    if (narrow[s]) job->storages.items[s].bytes /= 2;
}

hr_status hri_pass_precision(hri_job *job, const hri_precision_options *options, hr_error *error) {
  size_t values = job->storages.count;
  bool *wide = hri_alloc_zero(values, sizeof *wide), *narrow = hri_alloc_zero(values, sizeof *narrow),
       *other = hri_alloc_zero(values, sizeof *other);
  uint32_t *readers = hri_alloc_zero(values, sizeof *readers);
  hr_status status = HR_OK;
  assert(options->narrow == HRI_BF16 || options->narrow == HRI_F16);
  job->current_pass = HRI_PASS_PRECISION;
  if (!wide || !narrow || !other || !readers) {
    status = hri_fail_memory(error, values * 7, "the precision pass");
    goto out;
  }
  mark_wide(job, wide);
  count_readers(job, readers, other);
  mark_parameters(job, options, readers, other, narrow);
  mark_activations(job, wide, narrow);
  apply(job, narrow, values, options->narrow);
  for (size_t r = 0; options->masters && r < job->ranges.count && !job->failed; r++) {
    const hri_param_range range = job->ranges.items[r];
    if (range.gradient != HRI_NONE && is_matrix(job, &job->params.items[range.param]))
      job->ranges.items[r].master = make_master(job, &range, options->narrow);
  }
  status = hri_job_ok(job, error);
out:
  hri_free(wide);
  hri_free(narrow);
  hri_free(other);
  hri_free(readers);
  return status;
}
