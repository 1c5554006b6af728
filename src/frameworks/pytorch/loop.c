/* A training (loop.h): loading, then steps of forward, loss, backward, clipping, optimizer, zero_grad, each in its phase, and an evaluation. What the
 * optimizers hold and make stands here; what modules do is in module.c. */
#include "frameworks/pytorch/loop.h"

#include <string.h>

#include "frameworks/pytorch/adafactor.h"
#include "frameworks/pytorch/aten.h"
#include "frameworks/pytorch/autocast.h"
#include "frameworks/pytorch/torchtune.h"

enum { BLOCK_MASK = 9 };

typedef struct loop {
  hri_torch *t;
  const hri_torch_job *job;
  hri_module module;
  hri_module_batch batch;
  hri_ten *loss, *logits;
  hri_module_cache *cache;               /* of `outputs` */
  hri_ten *tr_loss, *grad_norm;          /* of the Trainer */
  hri_ten *mask[BLOCK_MASK];             /* of packed rows */
  hri_ten *tokens, *running, *logged[2]; /* of a recipe: num_tokens, running_loss, and what was logged of both */
  hri_ten *maps[2];
  hri_ten **first, **second, **third; /* optimizer states of each parameter */
  bool stepped;
  hri_ten **spare;   /* for lists that an optimizer makes */
  hri_ten **trained; /* what the optimizer steps on: parameters, or this rank's parts of them */
  hri_ddp ddp;
  uint32_t trained_count;
  hri_fsdp fsdp;
  hri_zero zero;
  hri_zero3 zero3;
} loop;

static hri_ten *like(loop *r, const char *op, const hri_ten *parameter) {
  return hri_ten_like(r->t, op, parameter, parameter->type);
}

static hri_ten *scalar_of(loop *r, const char *op, hri_ten_type type, uint64_t count) {
  return hri_ten_flat(r->t, op, type, count);
}

static hri_ten *scalar(loop *r, const char *op, uint64_t count) { return scalar_of(r, op, HRI_F32, count); }

/* ---- the optimizer (torch/optim/adamw.py, sgd.py, and _foreach functions) ---- */

static bool adam(const loop *r) { return r->job->optimizer <= HRI_TORCH_ADAMW_LOOP; }

static hri_ten *parameter(const loop *r, uint32_t i) { return r->trained[i]; }

static bool steps_on(const loop *r, uint32_t i) { return parameter(r, i)->grad != NULL; }

/* _init_group: states appear in the first step, or are loaded. The counter is on the device for the fused kernel alone. */
static void make_states(loop *r, hri_ten **counters, bool loaded) {
  for (uint32_t i = 0; i < r->trained_count; i++) {
    if (loaded ? !parameter(r, i)->requires_grad : !steps_on(r, i)) continue;
    if (r->job->optimizer == HRI_TORCH_ADAMW_FUSED) counters[i] = scalar(r, "zeros", 1);
    r->first[i] = like(r, "zeros_like", parameter(r, i));
    r->second[i] = like(r, "zeros_like", parameter(r, i));
    hri_ten_role(r->t, r->first[i], HR_ROLE_OPTIMIZER_STATE);
    hri_ten_role(r->t, r->second[i], HR_ROLE_OPTIMIZER_STATE);
  }
}

/* get_state_buffer: paged optimizers keep states of 100,000 elements and more in managed memory, which the caching allocator does not
 * give out; scales stay on the device. */
static bool paged(const loop *r, uint64_t count) {
  enum { LEAST = 100000 };
  return r->job->paged && count >= LEAST;
}

/* bitsandbytes/optim/optimizer.py: two maps of 256 values for all that have codes; tensors of 4,096 elements or more have codes and, of each
 * 256, a scale; the others fp32. */
static void make_8bit_states(loop *r) {
  enum { LEAST = 4096, BLOCK = 256, MAP = 256 };
  bool mapped = false;
  for (uint32_t i = 0; i < r->trained_count; i++) {
    hri_ten *p = parameter(r, i), **states[] = {&r->first[i], &r->second[i]};
    uint64_t count = hri_ten_count(p);
    bool whole = r->job->sharing < HRI_TORCH_ZERO; /* what is stepped on is parameters, or a part of each */
    bool embedding =
        whole && (r->module.parameters[i] == r->module.embed || r->module.parameters[i] == r->module.positions);
    bool codes = count >= LEAST && !(r->job->wide_embeddings && embedding);
    if (!steps_on(r, i)) continue;
    for (int k = 0; k < 2 && codes && !mapped; k++) r->maps[k] = scalar(r, "qmap", MAP);
    mapped = mapped || codes;
    r->t->meta = paged(r, count); /* pages of the host's */
    for (int k = 0; k < 2; k++) *states[k] = hri_ten_like(r->t, "zeros_like", p, codes ? HRI_U8 : HRI_F32);
    r->t->meta = false;
    for (int k = 0; k < 2 && codes; k++) /* scales live as long as the codes: they are their base */
      (*states[k])->base = scalar(r, "absmax", (count + BLOCK - 1) / BLOCK);
    for (int k = 0; k < 2; k++) {
      hri_ten_role(r->t, *states[k], HR_ROLE_OPTIMIZER_STATE);
      if (codes) hri_ten_role(r->t, (*states[k])->base, HR_ROLE_OPTIMIZER_STATE);
    }
  }
}

/* exp_avg_sq.sqrt() of all parameters of a type at once, which is divided and added to in place; those in 16 bits first, whose list goes
 * when the next is there. */
static void foreach_adam(loop *r, hri_ten **temporary) {
  uint32_t count = r->trained_count;
  for (int wide = 0; wide < 2; wide++)
    for (uint32_t i = 0; i < count; i++)
      if (steps_on(r, i) && (parameter(r, i)->type == HRI_F32) == wide)
        temporary[i] = like(r, "_foreach_sqrt", parameter(r, i));
  for (int wide = 0; wide < 2; wide++)
    for (uint32_t i = count; i-- > 0;)
      if ((parameter(r, i)->type == HRI_F32) == wide) hri_ten_set(r->t, &temporary[i], NULL); /* as lists go */
}

/* (exp_avg_sq.sqrt() / bias_correction2_sqrt).add_(eps), one parameter after the other. */
static void loop_adam(loop *r) {
  for (uint32_t i = 0; i < r->trained_count; i++) {
    if (!steps_on(r, i)) continue;
    hri_ten *root = like(r, "sqrt", parameter(r, i)), *denominator = like(r, "div", parameter(r, i));
    hri_ten_drop(r->t, root);
    hri_ten_drop(r->t, denominator);
  }
}

/* SGD's first step with momentum clones the gradients into its buffers. */
static void momentum(loop *r) {
  if (r->stepped) return;
  for (uint32_t i = 0; i < r->trained_count; i++)
    if (steps_on(r, i)) r->first[i] = like(r, "clone", parameter(r, i));
}

/* Parts on the host are clipped and stepped on there. */
static bool on_host(const loop *r) {
  if (r->job->sharing == HRI_TORCH_ZERO) return r->job->zero.offload;
  if (r->job->sharing == HRI_TORCH_ZERO3) return r->job->zero3.offload;
  return r->job->sharing == HRI_TORCH_FSDP2 && r->job->fsdp.offload;
}

static void adafactor(loop *r) {
  hri_adafactor a = {r->module.parameters, r->first, r->second, r->third, r->module.parameter_count};
  if (r->job->optimizer == HRI_TORCH_ADAFACTOR) hri_adafactor_step(r->t, &a);
  if (r->job->optimizer == HRI_TORCH_ADAFACTOR_TORCH) hri_adafactor_step_of_torch(r->t, &a);
}

/* optimizer.step() of all that has a gradient. */
static void take_step(loop *r, hri_ten **spare) {
  hri_torch_at(r->t, "optimizer", -1);
  if (adam(r) && !r->stepped) make_states(r, spare, false);
  if (r->job->optimizer == HRI_TORCH_ADAMW_8BIT && !r->stepped) make_8bit_states(r);
  if (r->job->optimizer == HRI_TORCH_ADAMW) foreach_adam(r, spare);
  if (r->job->optimizer == HRI_TORCH_ADAMW_LOOP) loop_adam(r);
  if (r->job->optimizer == HRI_TORCH_SGD_MOMENTUM) momentum(r);
  adafactor(r);
  r->stepped = true;
}

static void optimize(loop *r, hri_ten **spare) {
  hri_torch_phase_begin(r->t, HRI_TORCH_OPTIMIZER);
  if (!on_host(r)) take_step(r, spare);
}

/* Trainer._load_from_checkpoint and _load_optimizer_and_scheduler: weights are copied out of the host's memory, PEFT brings its own to the
 * device first; then the states, a parameter after the other. */
static void resume(loop *r, hri_ten **loaded, hri_ten **counters) {
  uint32_t count = r->job->model->lora.rank ? r->module.parameter_count : 0;
  hri_torch_at(r->t, "load_adapter", -1);
  for (uint32_t i = 0; i < count; i++)
    if (parameter(r, i)->requires_grad) loaded[i] = like(r, "_to_copy", parameter(r, i));
  for (uint32_t i = 0; i < count; i++) hri_ten_set(r->t, &loaded[i], NULL);
  hri_torch_at(r->t, "optimizer", -1);
  make_states(r, counters, true);
  r->stepped = true;
}

/* _foreach_norm of the gradients of a type: partial sums of every chunk, then a norm of each tensor. Their number. */
static uint32_t norms_of(loop *r, bool wide, hri_ten **norms, hri_ten_type *type) {
  enum { CHUNK = 65536 };
  uint32_t count = 0;
  uint64_t chunks = 0;
  hri_ten *partial;
  for (uint32_t i = 0; i < r->trained_count; i++) {
    uint64_t of_this = (hri_ten_count(parameter(r, i)) + CHUNK - 1) / CHUNK;
    if (!steps_on(r, i) || (parameter(r, i)->type == HRI_F32) != wide) continue;
    *type = parameter(r, i)->type;
    count++;
    if (of_this > chunks) chunks = of_this;
  }
  if (count == 0) return 0;
  partial = scalar(r, "_foreach_norm", count * chunks);
  for (uint32_t i = 0; i < count; i++) norms[i] = scalar_of(r, "_foreach_norm", *type, 1);
  hri_ten_drop(r->t, partial);
  return count;
}

/* clip_grad_norm_: norms of all tensors stacked, the total; then the coefficient, by which gradients are multiplied in place. */
static void clip(loop *r, hri_ten **norms) {
  hri_torch *t = r->t;
  hri_ten_type type = HRI_F32;
  uint32_t count;
  hri_ten *stacked, *total, *small[4];
  hri_torch_phase_begin(t, HRI_TORCH_CLIP);
  if (on_host(r)) return;
  hri_torch_at(t, "clip_grad_norm_", -1);
  count = norms_of(r, false, norms, &type);
  count += norms_of(r, true, norms + count, &type); /* both: the stack is in fp32 */
  stacked = scalar_of(r, "cat", type, count);
  total = scalar_of(r, "linalg_vector_norm", type, 1);
  hri_ten_drop(t, stacked);
  for (uint32_t i = count; i-- > 0;) hri_ten_set(t, &norms[i], NULL);
  small[0] = scalar_of(r, "add", type, 1);
  small[1] = scalar_of(r, "reciprocal", type, 1);
  small[2] = scalar_of(r, "mul", type, 1);
  hri_ten_drop(t, small[1]);
  hri_ten_drop(t, small[0]);
  small[3] = scalar_of(r, "clamp", type, 1);
  hri_ten_drop(t, small[2]);
  hri_ten_drop(t, small[3]);
  if (r->job->trainer || r->job->recipe.runs) hri_ten_set(t, &r->grad_norm, total); /* logged at the end of the step */
  else hri_ten_drop(t, total);
}

static void zero_grad(loop *r) {
  hri_torch_phase_begin(r->t, HRI_TORCH_ZERO_GRAD);
  for (uint32_t i = 0; i < r->trained_count; i++) hri_ten_set(r->t, &parameter(r, i)->grad, NULL);
}

/* ---- a step ---- */

static hri_module_batch load_batch(loop *r, uint64_t rows) {
  hri_ten_shape shape = hri_ten_shape_of(2, rows, r->job->tokens, 0, 0);
  hri_module_batch batch = {.padded = r->job->padded};
  hri_torch_at(r->t, "batch", -1);
  batch.ids = hri_ten_make(r->t, "to", HRI_I64, shape);
  if (r->job->mask && !r->job->packed) batch.mask = hri_ten_make(r->t, "to", HRI_I64, shape);
  batch.labels = hri_ten_make(r->t, "to", HRI_I64, shape);
  if (r->job->packed) batch.positions = hri_ten_make(r->t, "to", HRI_I64, shape);
  hri_ten *all[] = {batch.ids, batch.mask, batch.labels, batch.positions};
  for (int i = 0; i < 4; i++) hri_ten_role(r->t, all[i], HR_ROLE_INPUT);
  return batch;
}

static void drop_batch(loop *r, hri_module_batch *batch) {
  hri_ten_set(r->t, &batch->ids, NULL);
  hri_ten_set(r->t, &batch->mask, NULL);
  hri_ten_set(r->t, &batch->labels, NULL);
  hri_ten_set(r->t, &batch->positions, NULL);
  hri_ten_set(r->t, &batch->items, NULL);
}

/* accelerate's gather of a number, and the sum of what came. Takes it. */
static hri_ten *of_all_ranks(loop *r, hri_ten *number) {
  hri_ten *copy = hri_ten_like(r->t, "clone", number, number->type),
          *all = scalar_of(r, "all_gather", HRI_I64, r->job->ranks), *sum;
  hri_ten_drop(r->t, copy);
  sum = scalar_of(r, "sum", HRI_I64, 1);
  hri_ten_drop(r->t, all);
  hri_ten_drop(r->t, number);
  return sum;
}

/* (labels != -100).sum() */
static hri_ten *count_labels(loop *r, const hri_ten *labels) {
  hri_ten *counts = hri_ten_like(r->t, "ne", labels, HRI_BOOL), *sum = scalar_of(r, "sum", HRI_I64, 1);
  hri_ten_drop(r->t, hri_ten_like(r->t, "_to_copy", labels, HRI_I64));
  hri_ten_drop(r->t, counts);
  return sum;
}

/* Trainer._get_num_items_in_batch: labels that count, as a share of devices. */
static hri_ten *count_items(loop *r, const hri_ten *labels) {
  hri_ten *sum = count_labels(r, labels), *added, *items;
  added = scalar_of(r, "add", HRI_I64, 1);
  hri_ten_drop(r->t, sum);
  if (r->job->ranks > 1) added = of_all_ranks(r, added);
  items = scalar(r, "div", 1);
  hri_ten_drop(r->t, added);
  return items;
}

static void next_batch(loop *r, uint64_t rows) {
  hri_module_batch batch = load_batch(r, rows);
  drop_batch(r, &r->batch);
  if (r->job->trainer && !r->job->counts_tokens) batch.items = count_items(r, batch.labels);
  r->batch = batch;
}

/* model(**inputs) under autocast; accelerate then makes what it gives fp32 (convert_outputs_to_fp32). */
static hri_module_output forward(loop *r) {
  hri_module_output out;
  bool ddp = r->job->sharing == HRI_TORCH_DDP && r->t->grad_mode; /* the Trainer evaluates the model within */
  hri_ten *counted[2] = {NULL}; /* variables of AxolotlTrainer.compute_loss: tokens that count, and all */
  if (r->job->counts_tokens && r->t->grad_mode) {
    counted[0] = count_labels(r, r->batch.labels);
    counted[1] = scalar_of(r, "to", HRI_I64, 1);
  }
  if (ddp) hri_ddp_before_forward(r->t, &r->ddp);
  if (r->job->sharing == HRI_TORCH_ZERO3) hri_zero3_before_forward(r->t, &r->zero3);
  r->t->autocast = r->job->autocast;
  out = hri_module_forward(r->t, &r->module, &r->batch);
  r->t->autocast = HRI_F32;
  hri_autocast_exit(r->t);
  if (r->job->trainer && r->job->autocast != HRI_F32 && out.logits)
    hri_ten_set(r->t, &out.logits, hri_aten_to(r->t, out.logits, HRI_F32));
  if (ddp) hri_ddp_after_forward(r->t, &r->ddp, &out);
  if (r->job->sharing == HRI_TORCH_FSDP2) hri_fsdp_after_forward(r->t, &r->fsdp, &out);
  for (int k = 0; k < 2; k++) hri_ten_drop(r->t, counted[k]);
  return out;
}

/* What loss.backward() is called on: of a plain loop the loss, divided and bound anew; of the Trainer another one, which accelerate
 * divides, beside that which training_step returns. */
static hri_ten *for_backward(loop *r, hri_ten *loss) {
  hri_ten *scaled, *divided;
  if (!r->job->trainer) return r->job->scaler ? hri_aten_mul_scalar(r->t, loss) : hri_ten_keep(loss);
  divided = hri_aten_div_scalar(r->t, loss);
  scaled = r->job->scaler ? hri_aten_mul_scalar(r->t, divided) : hri_ten_keep(divided); /* scaler.scale(loss) */
  hri_ten_drop(r->t, divided);
  return scaled;
}

/* `batch`, `outputs` and `loss` are variables of the loop: they hold what they held until the new is there, of the Trainer (whose
 * tr_loss_step is set when the backward is done) to the end. */
static void micro_step(loop *r, bool last) {
  hri_torch *t = r->t;
  hri_module_output out;
  hri_ten *scaled;
  hri_torch_phase_begin(t, HRI_TORCH_FORWARD);
  next_batch(r, r->job->batch);
  r->ddp.exchanges = r->fsdp.exchanges = r->zero.boundary = r->zero3.boundary = last; /* the others: under no_sync() */
  out = forward(r);
  if (r->job->counts_tokens) hri_ten_set(t, &out.loss, hri_aten_div_scalar(t, out.loss)); /* training_step */
  else if (r->job->trainer && r->job->ranks > 1)                                          /* loss *= num_processes */
    hri_ten_set(t, &out.loss, hri_aten_mul_scalar_in_place(t, out.loss));
  hri_ten_set(t, &r->logits, NULL);
  hri_module_cache_drop(t, &r->module, &r->cache);
  if (!r->job->trainer) hri_ten_set(t, &r->loss, hri_ten_keep(out.loss));
  hri_torch_at(t, "loss", -1);
  if (r->job->accumulate > 1 && !r->job->trainer) {
    hri_ten_set(t, &out.loss, hri_aten_div_scalar(t, out.loss));
    hri_ten_set(t, &r->loss, hri_ten_keep(out.loss));
  }
  if (r->job->keeps_outputs) {
    r->logits = out.logits;
    r->cache = out.cache;
  } else {
    hri_ten_drop(t, out.logits);
    hri_module_cache_drop(t, &r->module, &out.cache);
  }
  hri_torch_phase_begin(t, HRI_TORCH_BACKWARD);
  scaled = for_backward(r, out.loss);
  hri_torch_backward(t, scaled, NULL);
  if (r->job->sharing == HRI_TORCH_FSDP2) hri_fsdp_after_backward(t, &r->fsdp);
  if (r->job->sharing == HRI_TORCH_ZERO) hri_zero_after_backward(t, &r->zero);
  if (r->job->sharing == HRI_TORCH_ZERO3) hri_zero3_after_backward(t, &r->zero3);
  hri_ten_drop(t, scaled);
  if (r->job->trainer) hri_ten_set(t, &r->loss, hri_ten_view(t, out.loss, out.loss->shape)); /* loss.detach() */
  hri_ten_drop(t, out.loss);
}

/* DeepSpeed's engine.step(), one group of parameters after the other. */
static void engine_step(loop *r, hri_ten **spare) {
  bool stepped = r->stepped;
  hri_torch_phase_begin(r->t, HRI_TORCH_OPTIMIZER);
  hri_zero_begin_step(r->t, &r->zero);
  for (uint32_t k = 0; k < r->zero.group_count && !on_host(r); k++) {
    hri_zero_before_group(r->t, &r->zero, &r->zero.groups[k]);
    r->stepped = stepped;
    optimize(r, spare);
    hri_zero_after_group(r->t, &r->zero, &r->zero.groups[k]);
  }
}

/* The same of stage 3. */
static void engine_step_by_groups(loop *r, hri_ten **spare) {
  bool stepped = r->stepped;
  hri_torch_phase_begin(r->t, HRI_TORCH_OPTIMIZER);
  hri_zero3_begin_step(r->t, &r->zero3);
  for (size_t k = 0; k < r->zero3.groups.count && !on_host(r); k++) {
    hri_zero3_group *group = &r->zero3.groups.items[k];
    hri_zero3_before_group(r->t, &r->zero3, group);
    r->stepped = stepped;
    optimize(r, spare);
    hri_zero3_after_group(r->t, group);
  }
  hri_zero3_end_step(r->t, &r->zero3);
}

/* Of many micro-steps the first, which makes the gradients, the last, and four or five between are run: the others ask for what those before them asked for
 * and find it cached. Some leave what they free in the other of two places, so that every second one finds the same: of an odd number an odd number is run
 * (of 360 jobs with 7 to 33 micro-steps, each run whole, none reserves otherwise; with six run of any number 36 did, by up to 12 %). */
static uint32_t micro_steps(const hri_torch_job *job) {
  enum { MOST = 7 };
  return job->accumulate <= MOST ? job->accumulate : MOST - 1 + job->accumulate % 2;
}

static void step(loop *r, hri_ten **spare) {
  const uint32_t count = micro_steps(r->job);
  r->t->step++;
  for (uint32_t k = 0; k < count; k++) micro_step(r, k + 1 == count);
  if (r->job->sharing == HRI_TORCH_ZERO) {
    engine_step(r, spare);
    return;
  }
  if (r->job->sharing == HRI_TORCH_ZERO3) {
    engine_step_by_groups(r, spare);
    return;
  }
  if (r->job->clip) clip(r, spare);
  optimize(r, spare);
  zero_grad(r);
}

/* ---- torchtune's recipes (recipes/full_finetune_single_device.py and lora_finetune_single_device.py of 0.6) ---- */

/* packed_block_causal_mask, in the data loader and not compiled: whole masks in truth values, and for the sums of their blocks in 64 bits. */
static void make_block_mask(loop *r, hri_ten *made[BLOCK_MASK]) {
  enum { BLOCK = 128 };
  hri_torch *t = r->t;
  uint64_t rows = r->job->batch, tokens = r->job->tokens, padded = hri_round_up(tokens, BLOCK), blocks = padded / BLOCK;
  hri_ten_shape whole = hri_ten_shape_of(3, rows, tokens, tokens, 0),
                wide = hri_ten_shape_of(3, rows, padded, padded, 0);
  hri_ten *causal, *same, *both, *filled, *sums;
  hri_torch_at(t, "block mask", -1);
  made[0] = hri_ten_make(t, "_to_copy", HRI_I64, hri_ten_shape_of(2, rows, tokens, 0, 0)); /* document_ids */
  causal = hri_ten_make(t, "ge", HRI_BOOL, hri_ten_shape_of(2, tokens, tokens, 0, 0));
  same = hri_ten_make(t, "eq", HRI_BOOL, whole);
  both = hri_ten_make(t, "bitwise_and", HRI_BOOL, whole);
  hri_ten_drop(t, causal);
  hri_ten_drop(t, same);
  filled = hri_ten_make(t, "constant_pad_nd", HRI_BOOL, wide);
  sums = hri_ten_make(t, "sum", HRI_I64, hri_ten_shape_of(3, rows, blocks, blocks, 0));
  hri_ten_drop(t, hri_ten_make(t, "_to_copy", HRI_I64, wide));
  hri_ten_drop(t, filled);
  hri_ten_drop(t, sums);
  for (int k = 1; k < BLOCK_MASK; k++) /* numbers of blocks and which, of rows and of columns, in part and in full */
    made[k] = hri_ten_make(t, "_to_copy", HRI_I32, hri_ten_shape_of(3, rows, blocks, k % 2 ? 1 : blocks, 0));
  hri_ten_drop(t, both);
}

/* batch_to_device and the labels that count: `batch` names the next one, still on the host but for its mask, when the last one goes. */
static void next_recipe_batch(loop *r) {
  hri_ten *counts, *mask[BLOCK_MASK] = {0};
  if (r->job->recipe.packed) make_block_mask(r, mask);
  drop_batch(r, &r->batch);
  for (int k = 0; k < BLOCK_MASK; k++) hri_ten_set(r->t, &r->mask[k], mask[k]);
  hri_torch_phase_begin(r->t, HRI_TORCH_FORWARD);
  r->batch = load_batch(r, r->job->batch);
  if (r->job->recipe.packed) r->batch.mask = hri_ten_like(r->t, "to", r->batch.ids, HRI_I64); /* input_pos */
  counts = hri_ten_like(r->t, "ne", r->batch.labels, HRI_BOOL);
  r->batch.items = scalar_of(r, "sum", HRI_I64, 1);
  hri_ten_drop(r->t, counts);
  if (!r->tokens) r->tokens = scalar_of(r, "add", HRI_I64, 1);
}

/* _loss_step: labels shifted by a column that is ignored, the loss; logits go before the backward. */
static hri_ten *recipe_loss(loop *r) {
  hri_torch *t = r->t;
  hri_tune_logits logits = hri_tune_forward(t, &r->module, r->batch.ids, r->job->recipe.chunks);
  hri_ten *labels, *loss;
  hri_torch_at(t, "labels", -1);
  labels = hri_ten_like(t, "cat", r->batch.labels, HRI_I64);
  hri_ten_set(t, &r->batch.labels, NULL);
  hri_torch_phase_begin(t, HRI_TORCH_LOSS);
  hri_torch_at(t, "loss", -1);
  loss = hri_tune_loss(t, &logits, labels, r->job->recipe.chunks);
  hri_tune_drop(t, &logits);
  hri_ten_drop(t, labels);
  return loss;
}

/* register_post_accumulate_grad_hook: the step of one parameter, and its gradient goes. */
static void step_in_backward(hri_torch *t, void *context, hri_ten *leaf) {
  loop *r = context;
  r->stepped = r->first[leaf->place] != NULL;
  take_step(r, r->spare);
  hri_ten_set(t, &leaf->grad, NULL);
}

static void recipe_micro_step(loop *r) {
  hri_torch *t = r->t;
  hri_ten *mean;
  next_recipe_batch(r);
  mean = recipe_loss(r);
  hri_ten_set(t, &r->loss, hri_aten_mul_scalar(t, mean)); /* times the labels that count */
  hri_ten_drop(t, mean);
  if (!r->running) r->running = scalar(r, "add", 1);
  hri_torch_phase_begin(t, HRI_TORCH_BACKWARD);
  hri_torch_backward(t, r->loss, NULL);
}

/* loss_to_log and tokens_per_second, which are variables until the next ones are there; what they are of begins anew. */
static void log_recipe_step(loop *r) {
  hri_torch_at(r->t, "log", -1);
  for (int k = 0; k < 2; k++) hri_ten_set(r->t, &r->logged[k], scalar(r, "div", 1));
  hri_ten_set(r->t, &r->running, NULL);
  hri_ten_set(r->t, &r->tokens, NULL);
}

/* Gradients are scaled in place. */
static void recipe_step(loop *r, hri_ten **spare) {
  const uint32_t count = micro_steps(r->job);
  r->t->step++;
  for (uint32_t k = 0; k < count; k++) recipe_micro_step(r);
  if (!r->job->recipe.in_backward) {
    if (r->job->clip) clip(r, spare);
    optimize(r, spare);
    zero_grad(r);
  }
  log_recipe_step(r);
}

/* Where the recipe's setup ends. */
static void begin_recipe(loop *r) {
  hri_torch_at(r->t, "ignore_labels_cache", -1);
  (void)scalar_of(r, "full", HRI_I64, r->job->batch);
  if (!r->job->recipe.in_backward) return;
  r->t->accumulated = step_in_backward;
  r->t->accumulated_context = r;
}

/* ---- evaluation (transformers/trainer.py, evaluation_loop and prediction_step) ---- */

/* EvalLoopContainer.add: one tensor of all rows so far, made anew with each batch. */
static void keep_predictions(loop *r, hri_ten **kept, hri_ten *logits) {
  hri_torch_at(r->t, "predictions", -1);
  if (!*kept) *kept = hri_ten_keep(logits);
  else hri_ten_set(r->t, kept, hri_aten_cat_rows(r->t, *kept, logits));
  hri_ten_role(r->t, *kept, HR_ROLE_LOGITS);
}

static hri_ten *predict(loop *r) {
  hri_module_output out = forward(r);
  hri_ten_role(r->t, out.logits, HR_ROLE_LOGITS);
  hri_ten_drop(r->t, out.loss);
  hri_module_cache_drop(r->t, &r->module, &out.cache);
  return out.logits;
}

/* gather_for_metrics: those of all ranks, which take the place of this one's. */
static hri_ten *of_all(loop *r, hri_ten *logits) {
  hri_ten_shape shape = logits->shape;
  hri_ten *all;
  if (r->job->ranks <= 1) return logits;
  shape.dims[0] *= r->job->ranks;
  hri_torch_at(r->t, "predictions", -1);
  all = hri_ten_make(r->t, "all_gather", logits->type, shape);
  hri_ten_role(r->t, all, HR_ROLE_LOGITS);
  hri_ten_drop(r->t, logits);
  return all;
}

/* The loop's variable `logits` holds the last batch's beside what is kept of all, until the next are there. */
static void evaluate(loop *r) {
  const hri_torch_evaluation *e = &r->job->evaluation;
  const hri_dropout dropout = r->module.dropout;
  const double lora_dropout = r->module.lora_dropout;
  hri_ten *kept = NULL, *logits = NULL;
  hri_module_batch training = r->batch; /* a variable of the training's own function, which lives on */
  if (e->batches == 0) return;
  if (e->middle) r->batch = (hri_module_batch){0};
  hri_torch_phase_begin(r->t, HRI_TORCH_EVALUATE);
  r->t->grad_mode = false; /* and model.eval() */
  r->module.dropout = (hri_dropout){0};
  r->module.lora_dropout = 0;
  r->module.keeps_logits = e->metrics; /* else the Trainer says skip_logits */
  for (uint32_t k = 0; k < e->batches && !r->t->failed; k++) {
    next_batch(r, e->rows);
    hri_ten_set(r->t, &logits, predict(r));
    if (e->metrics && logits) {
      logits = of_all(r, logits);
      keep_predictions(r, &kept, logits);
    } else hri_ten_set(r->t, &logits, NULL);
    if (e->to_host == 0 || (k + 1) % e->to_host) continue;
    hri_ten_set(r->t, &kept, NULL);
    hri_ten_set(r->t, &logits, NULL);
    hri_torch_empty_cache(r->t);
  }
  hri_ten_drop(r->t, kept);
  hri_ten_drop(r->t, logits);
  drop_batch(r, &r->batch);
  if (e->middle) r->batch = training;
  r->t->grad_mode = true;
  r->module.keeps_logits = false;
  r->module.dropout = dropout;
  r->module.lora_dropout = lora_dropout;
}

static void count_parameters(loop *r) {
  for (uint32_t i = 0; i < r->module.parameter_count; i++) {
    const hri_ten *parameter = r->module.parameters[i];
    uint64_t count = hri_ten_count(parameter);
    r->t->parameter_count += count;
    if (parameter->requires_grad) r->t->trained_count += count;
  }
  for (uint32_t k = 0; k < r->module.packed_count && r->module.quantized != HRI_TORCH_INT8; k++) {
    const hri_torch_4bit *packed = &r->module.packed[k]; /* codes are fewer than what they stand for */
    r->t->parameter_count += packed->out * packed->in - hri_ten_count(packed->codes);
  }
}

bool hri_torch_run(hri_torch *t, const hri_torch_job *job) {
  loop r = {.t = t, .job = job};
  hri_ten **spare = NULL, **masters = NULL;
  hri_torch_phase_begin(t, HRI_TORCH_LOAD);
  r.module.quantized = job->quantized;
  r.module.storage = job->storage == HRI_F32 ? HRI_U8 : job->storage;
  r.module.in_order = job->sharing >= HRI_TORCH_DDP && job->model->lora.rank;
  r.module.moves_late = job->sharing >= HRI_TORCH_FSDP2 && job->model->lora.rank;
  r.module.narrow_adapters = job->sharing >= HRI_TORCH_ZERO && !job->quantized;
  r.module.on_host = job->sharing == HRI_TORCH_FSDP2;
  r.module.prepared = job->prepared;
  r.module.loading = job->loading;
  r.module.wide_norms = job->wide_norms;
  r.module.wide_trained = job->wide_trained;
  r.module.empties_cache = job->empties_cache;
  r.module.adapted_input = job->adapted_input;
  r.module.checkpoints_trained = job->checkpoints_trained;
  r.module.version = job->version;
  r.module.use_cache = job->use_cache;
  r.module.fused_head = job->fused_head;
  r.module.liger = job->liger;
  r.module.packed_rows = job->recipe.packed;
  r.module.qkv_kernel = job->qkv_kernel;
  r.module.o_kernel = job->o_kernel;
  r.module.mlp_kernel = job->mlp_kernel;
  r.module.kernel_forced = job->kernel_forced;
  r.module.kernel = job->kernel;
  if (!(job->recipe.runs ? hri_tune_init(t, &r.module, job->model, job->weights)
                         : hri_module_init(t, &r.module, job->model, job->weights, &job->frozen)))
    goto out;
  count_parameters(&r);
  r.module.attention = job->attention;
  r.module.capability = job->capability;
  r.module.dropout = job->dropout;
  r.module.lora_dropout = job->model->lora.dropout;
  r.module.checkpoint = job->checkpoint;
  r.module.reentrant = job->reentrant;
  r.module.wrapped = job->wrapped;
  r.first = hri_alloc_zero(r.module.parameter_count, sizeof *r.first);
  r.second = hri_alloc_zero(r.module.parameter_count, sizeof *r.second);
  r.third = hri_alloc_zero(r.module.parameter_count, sizeof *r.third);
  r.spare = spare = hri_alloc_zero(r.module.parameter_count, sizeof *spare);
  if (!r.first || !r.second || !r.third || !spare) goto out;
  if (job->sharing == HRI_TORCH_DDP) hri_ddp_init(t, &r.ddp, &r.module, &job->ddp);
  if (job->sharing == HRI_TORCH_FSDP2) hri_fsdp_init(t, &r.fsdp, &r.module, &job->fsdp);
  if (job->sharing == HRI_TORCH_ZERO) hri_zero_init(t, &r.zero, &r.module, &job->zero, job->weights);
  r.trained = job->sharing == HRI_TORCH_FSDP2 ? r.fsdp.parts : r.module.parameters;
  r.trained_count = r.module.parameter_count;
  if (job->sharing >= HRI_TORCH_ZERO) {
    bool third = job->sharing == HRI_TORCH_ZERO3;
    if (third) hri_zero3_init(t, &r.zero3, &r.module, &job->zero3, job->weights);
    r.trained_count = third ? (uint32_t)r.zero3.groups.count : r.zero.group_count;
    r.trained = masters = hri_alloc_zero(r.trained_count + 1, sizeof(hri_ten *));
    if (!masters) goto out;
    for (uint32_t k = 0; k < r.trained_count; k++)
      masters[k] = third ? r.zero3.groups.items[k].master : r.zero.groups[k].master;
  }
  if (job->resumed && adam(&r)) resume(&r, r.third, spare);
  if (job->trainer) r.tr_loss = scalar(&r, "tr_loss", 1);
  if (job->recipe.runs) begin_recipe(&r);
  for (uint32_t k = 0; k < job->steps && !t->failed; k++) {
    (job->recipe.runs ? recipe_step : step)(&r, spare);
    if (job->evaluation.middle || k + 1 == job->steps) evaluate(&r);
  }
out:
  t->accumulated = NULL;
  if (!r.first || !r.second || !r.third || !spare || !r.trained) t->failed = true;
  hri_free(r.first);
  hri_free(r.second);
  hri_free(r.third);
  hri_free(r.cache);
  hri_free(spare);
  hri_ddp_deinit(&r.ddp);
  hri_fsdp_deinit(&r.fsdp);
  hri_zero_deinit(&r.zero);
  if (r.zero3.module) hri_zero3_deinit(&r.zero3);
  hri_free(masters);
  hri_module_deinit(&r.module);
  return !t->failed;
}
