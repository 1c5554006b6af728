/* The loss head, unrolled over chunks of tokens.
 *
 * Logits are the largest tensor of a small model's step (M x V). Per chunk: logits = h W^T, cross entropy in place
 * turns them into d-logits, then dh = d-logits W and dW += d-logits^T h; the chunk's logits die before the next chunk
 * is made. dh comes first: a packed W can then lie where dW is written next.
 * The gradients are emitted in the loss phase; autodiff starts from dh. Without a gradient (evaluation) only the losses
 * are made. A single chunk is the unchunked head: there is one implementation. */
#include "pass/pass.h"

static hri_id make(hri_job *job, hri_emit emit, hri_role role, hri_dtype dtype, const char *name, uint64_t rows,
                   uint64_t columns, uint64_t stored_columns, uint16_t scope) {
  uint64_t dims[2] = {rows, columns}, stored[2] = {rows, stored_columns};
  hri_place place = {.program = emit.program,
                     .scope = scope,
                     .tier = HRI_DEVICE,
                     .role = (uint8_t)role,
                     .layer = -1,
                     .unit = emit.unit};
  return hri_tensor_new(job, place, hri_name(job, "%s", name), dtype, columns ? 2 : 1, dims, stored);
}

static hri_emit head_emit(uint8_t program, uint32_t unit, hri_phase phase) {
  return (hri_emit){.program = program,
                    .lane = HRI_COMPUTE,
                    .phase = (uint8_t)phase,
                    .layer = -1,
                    .unit = unit,
                    .site = 1u << 24,
                    .origin = HRI_NONE};
}

static uint32_t param_of(const hri_job *job, hri_id weight) {
  for (uint32_t p = 0; p < job->params.count; p++)
    if (job->params.items[p].weight == weight) return p;
  return HRI_NONE;
}

/* Where the gradient of a parameter of the head goes, HRI_NONE without one. */
static hri_id gradient_of(const hri_job *job, hri_id weight, bool with_gradient) {
  uint32_t param = weight == HRI_NONE || !with_gradient ? HRI_NONE : param_of(job, weight);
  if (param == HRI_NONE || !job->params.items[param].trainable) return HRI_NONE;
  return job->runs.items[job->params.items[param].run_begin].gradient;
}

hri_id hri_pass_head(hri_job *job, uint8_t program, hri_id hidden, hri_id head, hri_id bias, hri_id targets,
                     uint64_t vocabulary, double softcap, double smoothing, uint32_t unit, bool with_gradient,
                     uint64_t chunk) {
  hri_emit emit = head_emit(program, unit, program == HRI_EVALUATE ? HRI_PHASE_EVALUATE : HRI_PHASE_LOSS);
  hri_attr attr = {.i = {(int64_t)vocabulary}, .f = {softcap, with_gradient ? smoothing : 0}};
  hri_attr in_blocks = {0};
  uint64_t rows, columns, padded;
  hri_id dhidden = HRI_NONE, losses, dw, db;
  hri_dtype dtype;
  job->current_pass = HRI_PASS_HEAD;
  if (job->failed) return HRI_NONE;
  rows = job->tensors.items[hidden].stored[0];
  columns = job->tensors.items[hidden].stored[1];
  dtype = (hri_dtype)job->tensors.items[hidden].dtype;
  padded = job->tensors.items[head].stored[0];
  in_blocks.i[0] = dtype == HRI_F32; /* a narrow dh is rounded by more than a chain can lose */
  losses = make(job, emit, HRI_ROLE_ACTIVATION, HRI_F32, "losses", rows, 0, 0, 0);
  if (job->failed) return HRI_NONE;
  job->tensors.items[losses].stored[0] = rows;
  if (with_gradient) dhidden = make(job, emit, HRI_ROLE_ACTIVATION, dtype, "hidden.grad", rows, columns, columns, 0);
  dw = gradient_of(job, head, with_gradient);
  db = gradient_of(job, bias, with_gradient);
  if (chunk == 0 || chunk > rows) chunk = rows;
  for (uint64_t begin = 0; begin < rows && !job->failed; begin += chunk) {
    uint64_t count = rows - begin < chunk ? rows - begin : chunk;
    hri_id h = hri_tensor_rows(job, hidden, begin, count), t = hri_tensor_rows(job, targets, begin, count),
           l = hri_tensor_rows(job, losses, begin, count);
    hri_id logits = make(job, emit, HRI_ROLE_LOGITS, dtype, "logits", count, vocabulary, padded, 0), dlogits = HRI_NONE;
    /* with accumulation `begin` zeroed the gradients: every chunk adds */
    hri_access access = begin == 0 && program != HRI_MICRO ? HRI_WRITE : HRI_ADD;
    hri_node_append(job, HRI_OP_LINEAR, emit, NULL, (hri_operand[]){HRI_R(h), HRI_R(head), HRI_R(bias), HRI_W(logits)},
                    4);
    if (with_gradient) dlogits = make(job, emit, HRI_ROLE_LOGITS, dtype, "logits.grad", count, vocabulary, padded, 0);
    hri_node_append(job, HRI_OP_CROSS_ENTROPY, emit, &attr,
                    (hri_operand[]){HRI_R(logits), HRI_R(t), HRI_R(job->control), {dlogits, HRI_WRITE}, HRI_W(l)}, 5);
    if (with_gradient)
      hri_node_append(job, HRI_OP_LINEAR_DX, emit, &in_blocks,
                      (hri_operand[]){HRI_R(dlogits), HRI_R(head), HRI_W(hri_tensor_rows(job, dhidden, begin, count))},
                      3);
    if (dw != HRI_NONE)
      hri_node_append(job, HRI_OP_LINEAR_DW, emit, NULL,
                      (hri_operand[]){HRI_R(dlogits), HRI_R(h), {dw, (uint8_t)access}}, 3);
    if (db != HRI_NONE)
      hri_node_append(job, HRI_OP_BIAS_GRADIENT, emit, NULL, (hri_operand[]){HRI_R(dlogits), {db, (uint8_t)access}}, 2);
  }
  hri_node_append(job, HRI_OP_LOSS_SUM, emit, NULL, (hri_operand[]){HRI_R(losses), HRI_U(job->control)}, 2);
  return dhidden;
}

hri_id hri_pass_last_logits(hri_job *job, uint8_t program, hri_id hidden, hri_id head, hri_id bias, uint64_t vocabulary,
                            double softcap, uint32_t unit) {
  hri_emit emit = head_emit(program, unit, HRI_PHASE_GENERATE);
  uint64_t columns, padded;
  hri_id row, logits, raw = HRI_NONE;
  job->current_pass = HRI_PASS_HEAD;
  if (job->failed) return HRI_NONE;
  columns = job->tensors.items[hidden].stored[1];
  padded = job->tensors.items[head].stored[0];
  row = make(job, emit, HRI_ROLE_ACTIVATION, (hri_dtype)job->tensors.items[hidden].dtype, "hidden.last", 1, columns,
             columns, 0);
  hri_node_append(job, HRI_OP_LAST_ROW, emit, NULL, (hri_operand[]){HRI_R(hidden), HRI_R(job->control), HRI_W(row)}, 3);
  /* carried, so that the host finds it after the program ended; fp32, which is what sampling reads */
  logits = make(job, emit, HRI_ROLE_LOGITS, HRI_F32, "logits", 1, vocabulary, padded, (uint16_t)HRI_IN(program));
  if (softcap > 0) raw = make(job, emit, HRI_ROLE_LOGITS, HRI_F32, "logits.raw", 1, vocabulary, padded, 0);
  hri_node_append(job, HRI_OP_LINEAR, emit, NULL,
                  (hri_operand[]){HRI_R(row), HRI_R(head), HRI_R(bias), HRI_W(raw == HRI_NONE ? logits : raw)}, 4);
  if (raw != HRI_NONE)
    hri_node_append(job, HRI_OP_SOFTCAP, emit, &(hri_attr){.f = {softcap}}, (hri_operand[]){HRI_R(raw), HRI_W(logits)},
                    2);
  return logits;
}
