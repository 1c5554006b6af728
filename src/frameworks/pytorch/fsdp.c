/* Fully sharded parameters (fsdp.h): units, their gathering before they run, and what becomes of their gradients. The hooks that
 * fully_shard puts on modules are calls of hri_module_hooks here; those on tensors are functions of the graph. */
#include "frameworks/pytorch/fsdp.h"

#include <assert.h>
#include <string.h>

#include "frameworks/pytorch/aten.h"
#include "frameworks/pytorch/device.h"

/* Streams beside the usual one: their requests have memory of their own in the caching allocator. */
enum { COPY_IN = 1, REDUCE = 2, LOWER = 3 };

static hri_ten *flat(hri_torch *t, const char *op, hri_ten_type type, uint64_t elements) {
  hri_ten *tensor = hri_ten_flat(t, op, type, elements);
  hri_ten_role(t, tensor, HR_ROLE_COMMUNICATION);
  return tensor;
}

/* Parts are rows: as many as there are over all ranks, rounded up. */
static uint64_t part_elements(const hri_fsdp *f, uint32_t i) {
  const hri_ten *whole = f->module->parameters[i];
  uint64_t rows = whole->shape.dims[0], part = (rows + f->settings.ranks - 1) / f->settings.ranks;
  return hri_ten_count(whole) / rows * part;
}

/* What the kernels that copy many tensors at once are told (TensorShape.cu): numbers of 8 bytes on the device, one of them for each block of
 * threads. */
static void tell_kernel(hri_torch *t, const char *op, uint64_t numbers) {
  hri_ten_drop(t, flat(t, op, HRI_I64, numbers));
}

static uint64_t divided(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

/* Of a parameter: the type of its part, that in which it is gathered and used, and that in which its gradient is summed over ranks. Frozen weights
 * may have another than those that train. */
static hri_ten_type part_type(const hri_fsdp *f, uint32_t i) { return f->parts[i]->type; }
static hri_ten_type whole_type(const hri_fsdp *f, uint32_t i) { return f->module->parameters[i]->type; }
static hri_ten_type reduce_type(const hri_fsdp *f, uint32_t i) {
  return f->settings.mixed ? f->settings.reduce : whole_type(f, i);
}
static bool trains(const hri_fsdp *f, uint32_t i) { return f->parts[i]->requires_grad; }

static uint32_t trained_members(const hri_fsdp_unit *u) {
  uint32_t count = 0;
  for (uint32_t k = 0; k < u->count; k++) count += trains(u->fsdp, u->members[k]);
  return count;
}

enum { TILE = 2048 }; /* bytes that a block copies at a time */

static uint64_t tiles_gathered(const hri_fsdp_unit *u, uint64_t tile) {
  uint64_t tiles = 0;
  for (uint32_t k = 0; k < u->count; k++)
    tiles +=
        divided(part_elements(u->fsdp, u->members[k]) * hri_ten_type_bytes(whole_type(u->fsdp, u->members[k])), tile);
  return tiles;
}

static uint64_t tiles_reduced(const hri_fsdp_unit *u) {
  uint64_t tiles = 0;
  for (uint32_t k = 0; k < u->count; k++) {
    uint32_t i = u->members[k];
    if (trains(u->fsdp, i))
      tiles += divided(part_elements(u->fsdp, i) * hri_ten_type_bytes(reduce_type(u->fsdp, i)), TILE);
  }
  return tiles;
}

/* split_with_sizes_copy: blocks do more than one tile where there are more tiles than the device takes. */
static void tell_copy_out(hri_torch *t, const hri_fsdp_unit *u) {
  enum { BLOCK = 128 };
  uint64_t ranks = u->fsdp->settings.ranks, most = hri_aten_threads(t) / BLOCK * 2;
  uint64_t times = divided(tiles_gathered(u, TILE) * ranks, most), chunks = 1, each;
  while (chunks * chunks < times) chunks++;
  if (chunks > ranks && ranks) chunks = ranks;
  each = divided(times, chunks);
  tell_kernel(t, "split_with_sizes_copy", 4 * (uint64_t)u->count + 1 + tiles_gathered(u, TILE * each));
}

static void tell_copy_in(hri_torch *t, const hri_fsdp_unit *u) {
  tell_kernel(t, "chunk_cat", 6 * (uint64_t)trained_members(u) + 2 + tiles_reduced(u));
}

/* ---- gathering ---- */

/* Parts on the host come one by one and are cast one by one. */
static void gather_from_host(hri_torch *t, hri_fsdp_unit *u, hri_ten **inputs) {
  hri_fsdp *f = u->fsdp;
  for (uint32_t k = 0; k < u->count; k++) {
    uint32_t i = u->members[k];
    inputs[k] = flat(t, "to", part_type(f, i), part_elements(f, i));
    if (part_type(f, i) != whole_type(f, i))
      hri_ten_set(t, &inputs[k], flat(t, "_to_copy", whole_type(f, i), part_elements(f, i)));
  }
}

/* What is gathered, of this rank: elements of the one type of all members, else bytes. */
static hri_ten *input_of_gather(hri_torch *t, const hri_fsdp_unit *u, uint64_t times) {
  const hri_fsdp *f = u->fsdp;
  hri_ten_type type = whole_type(f, u->members[0]);
  uint64_t elements = 0, bytes = 0;
  bool same = true;
  for (uint32_t k = 0; k < u->count; k++) {
    uint32_t i = u->members[k];
    elements += part_elements(f, i);
    bytes += part_elements(f, i) * hri_ten_type_bytes(whole_type(f, i));
    same = same && whole_type(f, i) == type;
  }
  return same ? flat(t, "all_gather", type, elements * times) : flat(t, "all_gather", HRI_U8, bytes * times);
}

/* Parts that have another type than what is gathered are cast, into one tensor. */
static hri_ten *cast_parts(hri_torch *t, const hri_fsdp_unit *u) {
  const hri_fsdp *f = u->fsdp;
  uint64_t elements = 0;
  for (uint32_t k = 0; k < u->count; k++)
    if (part_type(f, u->members[k]) != whole_type(f, u->members[k])) elements += part_elements(f, u->members[k]);
  return elements ? flat(t, "all_gather_copy_in", f->settings.param, elements) : NULL;
}

/* FullyShardedDataParallel's unshard: the part is cast in a stream of its own, and gathered into what parameters will be views of. */
static void gather_flat(hri_torch *t, hri_fsdp_unit *u) {
  hri_fsdp *f = u->fsdp;
  hri_ten *cast = NULL;
  hri_torch_at(t, "FullyShardedDataParallel", -1);
  hri_torch_on_stream(t, LOWER);
  if (u->whole_type != u->type) cast = flat(t, "_use_low_precision_shard", u->whole_type, u->elements);
  hri_torch_on_stream(t, COPY_IN);
  u->gathered = flat(t, "all_gather", u->whole_type, u->elements * f->settings.ranks);
  hri_ten_drop(t, cast);
  hri_torch_on_stream(t, 0);
}

/* foreach_all_gather: parts are cast, all into one tensor; the gathered ones are another. */
static void gather(hri_torch *t, hri_fsdp_unit *u) {
  hri_fsdp *f = u->fsdp;
  hri_ten *cast = NULL, **inputs;
  if (u->whole || u->gathered) return;
  if (f->settings.flat) {
    gather_flat(t, u);
    return;
  }
  hri_torch_at(t, "fully_shard", -1);
  hri_torch_on_stream(t, COPY_IN);
  if (f->settings.offload) {
    inputs = hri_alloc_zero(u->count, sizeof(hri_ten *));
    if (!inputs) {
      t->failed = true;
      return;
    }
    gather_from_host(t, u, inputs);
    u->gathered = input_of_gather(t, u, f->settings.ranks);
    for (uint32_t k = 0; k < u->count; k++) hri_ten_drop(t, inputs[k]);
    hri_free(inputs);
  } else {
    cast = cast_parts(t, u);
    u->gathered = input_of_gather(t, u, f->settings.ranks);
    hri_ten_drop(t, cast);
  }
  hri_torch_on_stream(t, 0);
}

/* wait_for_unshard: each parameter gets bytes of its own, which what was gathered is copied to. In a forward that is kept for the next unit
 * to free, so that its copy can run beside the next gathering; Python holds it to the end of this function. */
static void wait_for(hri_torch *t, hri_fsdp_unit *u) {
  hri_fsdp *f = u->fsdp;
  if (!u->gathered) return;
  if (f->settings.flat) {
    for (uint32_t k = 0; k < u->count; k++) hri_ten_show(t, f->module->parameters[u->members[k]], u->gathered);
    hri_ten_role(t, u->gathered, HR_ROLE_WEIGHT);
    u->whole_flat = u->gathered;
    u->gathered = NULL;
    u->whole = true;
    return;
  }
  hri_torch_at(t, "fully_shard", -1);
  for (uint32_t k = 0; k < u->count; k++) {
    uint32_t i = u->members[k];
    hri_ten_give_bytes(t, "all_gather_copy_out", f->module->parameters[i],
                       part_elements(f, i) * f->settings.ranks * hri_ten_type_bytes(whole_type(f, i)));
    hri_ten_role(t, f->module->parameters[i], HR_ROLE_WEIGHT);
  }
  tell_copy_out(t, u);
  if (u->state == HRI_FSDP_FORWARD) hri_ten_set(t, &f->copied, u->gathered);
  else hri_ten_drop(t, u->gathered);
  u->gathered = NULL;
  u->whole = true;
}

static void give_back(hri_torch *t, hri_fsdp_unit *u) {
  if (!u->whole) return;
  for (uint32_t k = 0; k < u->count; k++) hri_ten_take_bytes(t, u->fsdp->module->parameters[u->members[k]]);
  hri_ten_set(t, &u->whole_flat, NULL);
  u->whole = false;
}

/* ---- gradients ---- */

/* Micro-steps that do not exchange keep whole gradients, in the type in which they are summed over ranks. */
static void keep_whole(hri_torch *t, hri_fsdp_unit *u) {
  hri_fsdp *f = u->fsdp;
  give_back(t, u);
  for (uint32_t k = 0; k < u->count; k++) {
    uint32_t i = u->members[k];
    hri_ten *whole = f->module->parameters[i];
    if (!whole->grad || whole->type == reduce_type(f, i)) continue; /* later ones are added to it where it is */
    if (!f->accumulated[i]) f->accumulated[i] = hri_ten_like(t, "to", whole->grad, reduce_type(f, i));
    hri_ten_set(t, &whole->grad, NULL);
  }
}

static void drop_gradients(hri_torch *t, hri_fsdp_unit *u) {
  for (uint32_t k = u->count; k-- > 0;) { /* as lists go */
    hri_ten_set(t, &u->fsdp->module->parameters[u->members[k]]->grad, NULL);
    hri_ten_set(t, &u->fsdp->accumulated[u->members[k]], NULL);
  }
}

/* Gradients of this rank's part are views of what came; on the host they take no bytes here. */
static void hand_out(hri_torch *t, hri_fsdp_unit *u, hri_ten *reduced) {
  hri_fsdp *f = u->fsdp;
  for (uint32_t k = 0; k < u->count; k++) {
    hri_ten *part = f->parts[u->members[k]];
    if (part->grad || !part->requires_grad) continue;
    t->meta = f->settings.offload;
    part->grad = f->settings.offload ? hri_ten_like(t, "to", part, part->type) : hri_ten_view(t, reduced, part->shape);
    t->meta = false;
    hri_ten_role(t, part->grad, HR_ROLE_GRADIENT);
  }
}

/* foreach_reduce of those that train. What the gradients are sent from is the usual stream's; what comes is that of the reduce-scatter. */
static void reduce(hri_torch *t, hri_fsdp_unit *u) {
  hri_fsdp *f = u->fsdp;
  hri_ten *sent, *reduced;
  hri_ten_type sum = HRI_F32, type = HRI_F32;
  uint64_t elements = 0;
  for (uint32_t k = 0; k < u->count; k++) {
    uint32_t i = u->members[k];
    if (!trains(f, i)) continue;
    elements += part_elements(f, i);
    sum = reduce_type(f, i);
    type = part_type(f, i);
  }
  sent = flat(t, "reduce_scatter_copy_in", sum, elements * f->settings.ranks);
  tell_copy_in(t, u);
  drop_gradients(t, u);
  hri_torch_on_stream(t, REDUCE);
  reduced = flat(t, "reduce_scatter", sum, elements);
  if (sum != type) hri_ten_set(t, &reduced, flat(t, "_to_copy", type, elements));
  hri_torch_on_stream(t, 0);
  hand_out(t, u, reduced);
  hri_ten_drop(t, reduced);
  f->sent = sent;
}

/* The gradients of all views are joined, in the stream of the gathering, before the parameters are given back; under no_sync() they stay so, and
 * later ones are added to them. */
static hri_ten *joined_gradients(hri_torch *t, hri_fsdp_unit *u) {
  hri_ten *joined;
  hri_torch_on_stream(t, COPY_IN);
  joined = flat(t, "cat", u->whole_type, u->total);
  hri_torch_on_stream(t, 0);
  if (!u->unsharded) return joined;
  hri_ten_drop(t, joined);
  joined = u->unsharded;
  u->unsharded = NULL;
  return joined;
}

static void keep_whole_flat(hri_torch *t, hri_fsdp_unit *u) {
  bool first = !u->unsharded;
  hri_ten *joined = joined_gradients(t, u);
  if (!u->fsdp->settings.keeps) give_back(t, u);
  drop_gradients(t, u);
  for (uint32_t k = 0; k < u->count && first; k++) /* _use_unsharded_grad_views: a .grad whose .data is then set */
    hri_ten_drop(t, hri_ten_like(t, "empty_like", u->fsdp->parts[u->members[k]], u->type));
  hri_ten_role(t, joined, HR_ROLE_GRADIENT);
  u->unsharded = joined;
}

/* What comes of them is a part. */
static void reduce_flat(hri_torch *t, hri_fsdp_unit *u) {
  hri_fsdp *f = u->fsdp;
  hri_ten *joined = joined_gradients(t, u), *wide, *padded, *reduced;
  hri_ten_type sum = f->settings.mixed ? f->settings.reduce : u->type;
  uint64_t all = u->elements * f->settings.ranks;
  hri_torch_on_stream(t, REDUCE);
  give_back(t, u);
  drop_gradients(t, u);
  wide = sum == u->whole_type ? hri_ten_keep(joined) : flat(t, "to", sum, u->total);
  padded = all == u->total ? hri_ten_keep(wide) : flat(t, "pad", sum, all);
  reduced = flat(t, "reduce_scatter", sum, u->elements);
  if (sum != u->type) hri_ten_set(t, &reduced, flat(t, "to", u->type, u->elements));
  hri_torch_on_stream(t, 0);
  hand_out(t, u, reduced);
  hri_ten_drop(t, reduced);
  hri_ten_drop(t, padded);
  hri_ten_drop(t, wide);
  hri_ten_drop(t, joined);
}

static bool has_gradients(const hri_fsdp_unit *u) {
  for (uint32_t k = 0; k < u->count; k++)
    if (u->fsdp->module->parameters[u->members[k]]->grad || u->fsdp->accumulated[u->members[k]]) return true;
  return false;
}

static void behind_backward(hri_torch *t, hri_fsdp_unit *u) {
  hri_fsdp *f = u->fsdp;
  u->state = HRI_FSDP_BEHIND;
  if (f->settings.flat) {
    hri_torch_at(t, "FullyShardedDataParallel", -1);
    if (has_gradients(u)) (f->exchanges ? reduce_flat : keep_whole_flat)(t, u);
    else if (f->exchanges || !f->settings.keeps) give_back(t, u);
    return;
  }
  hri_torch_at(t, "fully_shard", -1);
  for (uint32_t k = 0; k < u->count; k++) /* accumulate_unsharded_grad_if_needed */
    if (f->accumulated[u->members[k]]) hri_ten_set(t, &f->module->parameters[u->members[k]]->grad, NULL);
  if (!f->exchanges) {
    keep_whole(t, u);
    return;
  }
  give_back(t, u);
  hri_ten_set(t, &f->sent, NULL);
  if (has_gradients(u)) reduce(t, u);
}

static void behind_backward_fn(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  behind_backward(t, (hri_fsdp_unit *)(uintptr_t)fn->numbers[0]);
  in[0] = hri_ten_keep(g[0]);
}

/* BackwardPrefetch.BACKWARD_PRE: the one that ran before, if its result has such a hook. accelerate asks for none. */
static void prefetch_flat(hri_torch *t, const hri_fsdp_unit *u) {
  hri_fsdp *f = u->fsdp;
  hri_fsdp_unit *other = u->place > 0 ? f->order[u->place - 1] : NULL;
  if (other && other->hooked && !f->settings.by_accelerate) gather(t, other);
}

/* Views of a flat tensor that trains: what is frozen gets gradients as well, which the optimizer does not see. */
static bool trained_in(const hri_fsdp_unit *u) {
  for (uint32_t k = 0; k < u->count; k++)
    if (u->fsdp->module->parameters[u->members[k]]->requires_grad) return true;
  return false;
}

/* The hook on what a unit gave: it is gathered again, and the one that ran before it too. */
static void gather_again(hri_torch *t, hri_fsdp_unit *u) {
  hri_fsdp *f = u->fsdp;
  if (u->state == HRI_FSDP_BEFORE) return;
  u->state = HRI_FSDP_BEFORE;
  gather(t, u);
  wait_for(t, u);
  u->hooked = false;
  if (!u->ran) return;
  u->ran = false;
  if (f->settings.flat) prefetch_flat(t, u);
  else if (u->place > 0) gather(t, f->order[u->place - 1]);
}

/* Hooks of a tensor run as they were put on: that of the unit which gave it, then that of the one which reads it. */
static void before_backward(hri_torch *t, void *context) {
  hri_fsdp_unit *u = context;
  gather_again(t, u);
  if (u->reader) behind_backward(t, u->reader);
  u->reader = NULL;
}

/* _register_post_backward_reshard_only_hook: of a unit that trains nothing the hook is on its input, not on a gradient of its own. */
static bool hook_input(hri_fsdp_unit *u, const hri_ten *input) {
  if (!u->fsdp->settings.flat || trained_in(u) || !input->made_by || input->made_by->before != before_backward)
    return false;
  ((hri_fsdp_unit *)input->made_by->before_context)->reader = u;
  return true;
}

/* ---- the hooks of modules ---- */

/* accelerate looks for the last norm among the children of model.model, which PEFT puts one level lower: it stays with the model. gpt2's
 * transformer is found. */
static bool norm_is_hidden(const hri_fsdp *f) {
  const hr_model *model = f->module->model;
  return f->settings.by_accelerate && !f->settings.flat && model->lora.rank && model->family != HR_FAMILY_GPT2;
}

/* Of FullyShardedDataParallel beside PEFT each module of an adapter is a unit of its own. */
static hri_fsdp_unit *unit_of(hri_fsdp *f, int32_t module) {
  if (module <= HRI_MODULE_ADAPTER) return f->adapters ? f->adapters[HRI_MODULE_ADAPTER - module] : NULL;
  if (module >= 0) return &f->units[module];
  if (module == HRI_MODULE_WHOLE) return f->root;
  if (module == HRI_MODULE_NORM && norm_is_hidden(f)) return NULL;
  if (module == HRI_MODULE_EMBEDDING) return f->embedding ? f->embedding : f->module->head ? NULL : f->tail;
  return f->tail;
}

/* The lazy initialization of FullyShardedDataParallel makes each unit's flat tensor, with mixed precision also one in the weights' type, and gives
 * them back. */
static void begin_flat(hri_torch *t, hri_fsdp *f) {
  if (!f->settings.flat || f->begun) return;
  f->begun = true;
  hri_torch_at(t, "FullyShardedDataParallel", -1);
  for (uint32_t k = 0; k < f->unit_count; k++) {
    const hri_fsdp_unit *u = &f->units[(k + f->unit_count - 1) % f->unit_count]; /* the model's first */
    if (u->count == 0) continue;
    hri_ten_drop(t, flat(t, "init_flat_param_attributes", u->whole_type, u->elements * f->settings.ranks));
    if (u->whole_type == u->type) continue;
    hri_ten_drop(t, flat(t, "init_flat_param_attributes", u->type, u->elements * f->settings.ranks));
  }
}

/* cast_forward_inputs of a policy; the newer one has nothing to cast where all weights before were gathered in that type. */
static hri_ten *cast_input(hri_torch *t, const hri_fsdp *f, hri_ten *input) {
  if (!input || !f->settings.flat || !f->settings.mixed) return hri_ten_keep(input);
  return hri_aten_to(t, input, f->settings.param);
}

static hri_ten *enter(hri_torch *t, void *context, int32_t module, hri_ten *input) {
  hri_fsdp *f = context;
  hri_fsdp_unit *u = unit_of(f, module);
  bool first;
  hri_fn *fn;
  hri_ten *given, *passed;
  if (module == HRI_MODULE_WHOLE) begin_flat(t, f);
  if (!u || t->stopped) return hri_ten_keep(input);
  if (u->state == HRI_FSDP_BEFORE) { /* it runs again for its backward */
    gather(t, u);
    wait_for(t, u);
    return hri_ten_keep(input);
  }
  first = u->state != HRI_FSDP_FORWARD;
  u->state = HRI_FSDP_FORWARD;
  gather(t, u);
  wait_for(t, u);
  given = cast_input(t, f, input);
  if (first && given && hook_input(u, given)) return given;
  if (!first || !given || !(fn = hri_fn_make(t, behind_backward_fn, &given, 1))) return given;
  fn->numbers[0] = (uintptr_t)u;
  passed = hri_ten_view(t, given, given->shape);
  hri_fn_bind(t, fn, passed);
  hri_ten_drop(t, given);
  return passed;
}

/* Its place among those that ran, of a forward that a backward will follow. */
static void note_order(hri_torch *t, hri_fsdp_unit *u) {
  hri_fsdp *f = u->fsdp;
  if (t->label.phase == HRI_TORCH_EVALUATE) return;
  u->ran = true;
  u->place = f->order_count;
  f->order[f->order_count++] = u;
}

static void leave(hri_torch *t, void *context, int32_t module, hri_ten *output) {
  hri_fsdp *f = context;
  hri_fsdp_unit *u = unit_of(f, module);
  if (!u || t->stopped || u->state == HRI_FSDP_BEFORE) return;
  if (u == f->tail && module != HRI_MODULE_HEAD) return; /* not all of its modules ran */
  if (u->reshards) give_back(t, u);
  if (!t->engines) note_order(t, u); /* else it stands in a block that runs again */
  u->state = HRI_FSDP_IDLE;
  if (!t->grad_mode || !output || !output->made_by) return;
  u->hooked = true;
  output->made_by->before = before_backward;
  output->made_by->before_context = u;
}

void hri_fsdp_after_forward(hri_torch *t, hri_fsdp *f, hri_module_output *out) {
  hri_ten **results[] = {&out->loss, &out->logits};
  if (f->root) leave(t, f, HRI_MODULE_WHOLE, out->loss);
  hri_ten_set(t, &f->copied, NULL);
  hri_torch_at(t, "fully_shard", -1);
  for (int k = 0; k < 2 && f->settings.casts_output; k++)
    if (*results[k]) hri_ten_set(t, results[k], hri_aten_to(t, *results[k], f->settings.param));
}

/* Units whose input needs no gradient come last, in the order of modules: the model, embeddings, blocks, norm and head. */
static void finish(hri_torch *t, hri_fsdp_unit *u) {
  if (!u) return;
  if (u->state != HRI_FSDP_BEHIND) behind_backward(t, u);
  hri_ten_set(t, &u->gathered, NULL); /* ahead of a use that did not come */
  u->state = HRI_FSDP_IDLE;
  u->ran = u->hooked = false;
  u->reader = NULL;
}

void hri_fsdp_after_backward(hri_torch *t, hri_fsdp *f) {
  bool tied = !f->module->head;
  finish(t, f->root);
  finish(t, f->embedding);
  if (tied) finish(t, f->tail);
  for (uint32_t i = 0; i < f->layer_count; i++) finish(t, &f->units[i]);
  if (!tied) finish(t, f->tail);
  for (uint32_t i = 0; f->adapters && i < f->module->parameter_count; i++) finish(t, f->adapters[i]);
  f->order_count = 0;
  if (f->exchanges) hri_ten_set(t, &f->sent, NULL);
}

/* ---- units ---- */

static bool of_unit(const hri_fsdp *f, uint32_t i, const hri_fsdp_unit *u) {
  const hri_module *m = f->module;
  const hri_ten *p = m->parameters[i];
  if (p->type == HRI_U8) return false; /* codes of 4 bits as bytes: accelerate leaves them whole */
  if (f->adapters && f->adapters[i]) return f->adapters[i] == u;
  bool norm = (p == m->norm[0] || p == m->norm[1]) && !norm_is_hidden(f);
  bool embedding = p == m->embed, tail = norm || (m->head && p == m->head);
  if (u - f->units < (ptrdiff_t)f->layer_count) return m->layer_of[i] == (int32_t)(u - f->units);
  if (m->layer_of[i] >= 0) return false;
  if (!f->settings.by_accelerate || f->settings.flat) return u == f->root;
  if (m->head) return u == f->embedding ? embedding : u == f->tail ? tail : !embedding && !tail;
  return u == f->tail ? embedding || tail : !embedding && !tail;
}

static void list_members(hri_fsdp *f, hri_fsdp_unit *u) {
  u->members = f->members + f->member_count;
  for (uint32_t i = 0; i < f->module->parameter_count; i++) {
    if (!of_unit(f, i, u)) continue;
    u->members[u->count++] = i;
    u->elements += part_elements(f, i);
    u->total += hri_ten_count(f->module->parameters[i]);
    u->type = f->module->parameters[i]->type; /* of a flat tensor: one for all */
  }
  u->whole_type = f->settings.mixed ? f->settings.param : u->type;
  if (f->settings.flat) u->elements = divided(u->total, f->settings.ranks);
  f->member_count += u->count;
}

/* What is on the device already, as 4 bits are, stays where it is. */
static void bring(hri_torch *t, hri_ten *whole) {
  if (whole->storage == 0) hri_ten_materialize(t, "to", whole);
}

static void keep_on_host(hri_torch *t, hri_ten *part) {
  if (part->requires_grad) t->host_bytes += hri_ten_bytes(part);
  else t->host_buffer_bytes += hri_ten_bytes(part); /* no gradient, no states */
  hri_ten_take_bytes(t, part);                      /* .cpu() */
}

/* A unit's parameters come to the device whole; a part of each is copied; then the whole ones go. */
static void shard(hri_torch *t, hri_fsdp_unit *u) {
  hri_fsdp *f = u->fsdp;
  for (uint32_t k = 0; k < u->count; k++) {
    hri_ten *whole = f->module->parameters[u->members[k]];
    if (whole->storage && f->settings.by_accelerate) f->given[u->members[k]] = hri_ten_view(t, whole, whole->shape);
    bring(t, whole);
  }
  if (u == f->root) hri_module_place_buffers(t, f->module);
  for (uint32_t k = 0; k < u->count; k++) {
    uint32_t i = u->members[k];
    hri_ten *whole = f->module->parameters[i], *part;
    hri_ten_shape shape = whole->shape;
    shape.dims[0] = (shape.dims[0] + f->settings.ranks - 1) / f->settings.ranks;
    part = hri_ten_make(t, "new_zeros", whole->type, shape);
    part->parameter = true;
    part->requires_grad = whole->requires_grad;
    hri_ten_role(t, part, HR_ROLE_WEIGHT);
    if (f->settings.offload) keep_on_host(t, part);
    f->parts[i] = part;
  }
  for (uint32_t k = 0; k < u->count; k++) {
    hri_ten *whole = f->module->parameters[u->members[k]];
    hri_ten_take_bytes(t, whole);
    if (f->settings.mixed) whole->type = f->settings.param;
  }
}

/* sync_module_states: buffers, which are the root's, and weights of rank 0 go to all. */
static void send_states(hri_torch *t, const hri_fsdp_unit *u) {
  const hri_module *m = u->fsdp->module;
  hri_ten **tensors = hri_alloc_zero(u->count + HRI_MODULE_BUFFERS, sizeof(hri_ten *));
  if (!tensors) {
    t->failed = true;
    return;
  }
  uint32_t count = u == u->fsdp->root ? hri_module_buffers(m, tensors) : 0;
  for (uint32_t k = 0; k < u->count; k++) tensors[count++] = m->parameters[u->members[k]];
  hri_ddp_broadcast(t, tensors, count);
  hri_free(tensors);
}

/* FullyShardedDataParallel: parameters are joined, this rank's part of the flat tensor is cloned; what lies in it of each parameter is what the
 * optimizer steps on. */
static void shard_flat(hri_torch *t, hri_fsdp_unit *u) {
  hri_fsdp *f = u->fsdp;
  hri_ten *joined, *part;
  uint64_t at = 0;
  bool any = trained_in(u);
  if (u == f->root) hri_module_place_buffers(t, f->module);
  if (u->count == 0) return;
  for (uint32_t k = 0; k < u->count; k++) bring(t, f->module->parameters[u->members[k]]);
  if (f->settings.by_accelerate) send_states(t, u);
  joined = flat(t, "cat", u->type, u->total);
  part = flat(t, "clone", u->type, u->elements);
  hri_ten_role(t, part, HR_ROLE_WEIGHT);
  hri_ten_drop(t, joined);
  for (uint32_t k = 0; k < u->count; k++) {
    hri_ten *whole = f->module->parameters[u->members[k]], **own = &f->parts[u->members[k]];
    uint64_t count = hri_ten_count(whole), left = at < u->elements ? u->elements - at : 0;
    *own = hri_ten_view(t, part, hri_ten_shape_of(1, count < left ? count : left, 0, 0, 0));
    (*own)->parameter = true;
    (*own)->requires_grad = whole->requires_grad;
    at += count;
    hri_ten_take_bytes(t, whole);
    whole->requires_grad = any;
    whole->type = u->whole_type;
    whole->parameter = false; /* a view: autocast keeps no cast of it */
    whole->stream = COPY_IN;
  }
}

static hri_fsdp_unit *next_unit(hri_fsdp *f, bool reshards) {
  hri_fsdp_unit *u = &f->units[f->unit_count++];
  *u = (hri_fsdp_unit){.fsdp = f, .reshards = reshards};
  return u;
}

/* peft.utils.other.fsdp_auto_wrap_policy: modules without children whose weight trains. */
static void make_units_of_adapters(hri_torch *t, hri_fsdp *f) {
  const hri_module *m = f->module;
  if (m->model->lora.rank == 0 || !f->settings.by_accelerate) return;
  f->adapters = hri_alloc_zero(m->parameter_count, sizeof(hri_fsdp_unit *));
  if (!f->adapters) t->failed = true;
  for (uint32_t i = 0; i < m->parameter_count && f->adapters; i++)
    if (m->parameters[i]->requires_grad) f->adapters[i] = next_unit(f, !f->settings.keeps);
}

static void shard_unit(hri_torch *t, hri_fsdp_unit *u, int32_t layer) {
  hri_torch_at(t, "fully_shard", layer);
  (u->fsdp->settings.flat ? shard_flat : shard)(t, u);
}

static void shard_units(hri_torch *t, hri_fsdp *f) {
  for (uint32_t k = 0; k < f->layer_count; k++) {
    for (uint32_t i = 0; f->adapters && i < f->module->parameter_count; i++)
      if (f->adapters[i] && f->module->layer_of[i] == (int32_t)k) shard_unit(t, f->adapters[i], (int32_t)k);
    shard_unit(t, &f->units[k], (int32_t)k);
  }
  if (f->embedding) shard_unit(t, f->embedding, -1);
  if (f->tail) shard_unit(t, f->tail, -1);
  shard_unit(t, f->root, -1);
  for (uint32_t i = 0; i < f->module->parameter_count; i++) hri_ten_set(t, &f->given[i], NULL);
}

static void make_units(hri_torch *t, hri_fsdp *f) {
  bool more = f->settings.by_accelerate && !f->settings.flat;
  for (uint32_t i = 0; i < f->layer_count; i++) (void)next_unit(f, !f->settings.keeps);
  if (more && f->module->head) f->embedding = next_unit(f, !f->settings.keeps);
  if (more) f->tail = next_unit(f, false);
  if (f->settings.flat) make_units_of_adapters(t, f);
  f->root = next_unit(f, false);
  for (uint32_t k = 0; k < f->unit_count; k++) list_members(f, &f->units[k]);
  shard_units(t, f);
  if (f->root->count == 0) f->root = NULL;
}

void hri_fsdp_init(hri_torch *t, hri_fsdp *f, hri_module *module, const hri_fsdp_settings *settings) {
  static const hri_module_hooks hooks = {enter, leave};
  enum { OTHER_UNITS = 3 };
  *f = (hri_fsdp){.settings = *settings, .module = module, .exchanges = true};
  f->layer_count = module->model->layer_count;
  f->parts = hri_alloc_zero(module->parameter_count, sizeof *f->parts);
  f->accumulated = hri_alloc_zero(module->parameter_count, sizeof *f->accumulated);
  f->given = hri_alloc_zero(module->parameter_count, sizeof *f->given);
  f->members = hri_alloc_zero(module->parameter_count, sizeof *f->members);
  uint32_t most = f->layer_count + OTHER_UNITS + (settings->flat ? module->parameter_count : 0);
  f->units = hri_alloc_zero(most, sizeof *f->units);
  f->order = hri_alloc_zero(most, sizeof *f->order);
  if (!f->parts || !f->given || !f->accumulated || !f->members || !f->units || !f->order) {
    t->failed = true;
    return;
  }
  for (uint32_t i = 0; i < module->parameter_count; i++) module->parameters[i]->place = i;
  make_units(t, f);
  module->adapters_rest_wide = f->adapters != NULL;
  for (uint32_t i = 0; i < module->parameter_count; i++) /* of no unit: codes as bytes */
    if (!f->parts[i]) f->parts[i] = module->parameters[i];
  module->hooks = &hooks;
  module->hooks_context = f;
}

void hri_fsdp_deinit(hri_fsdp *f) {
  hri_free(f->parts);
  hri_free(f->given);
  hri_free(f->accumulated);
  hri_free(f->members);
  hri_free(f->units);
  hri_free(f->order);
  hri_free(f->adapters);
}
