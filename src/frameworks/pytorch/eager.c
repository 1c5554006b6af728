/* Tensors, the graph and the engine (eager.h). */
#include "frameworks/pytorch/eager.h"

#include <assert.h>
#include <string.h>

#include "frameworks/pytorch/device.h"

/* ---- the process ---- */

void hri_torch_init(hri_torch *torch) {
  memset(torch, 0, sizeof *torch);
  torch->grad_mode = true;
  torch->label = (hri_torch_label){.op = "", .module = "", .layer = -1};
  torch->label_index = UINT32_MAX;
  if (!hri_array_push(&torch->storages, (hri_torch_storage){0})) torch->failed = true; /* number 0 is no storage */
}

void hri_torch_deinit(hri_torch *torch) {
  for (hri_frame *frame = torch->frames, *after; frame; frame = after) {
    after = frame->after;
    frame->calls->release(frame);
  }
  for (size_t i = 0; i < torch->blocks.count; i++) hri_free(torch->blocks.items[i]);
  hri_array_free(&torch->requests);
  hri_array_free(&torch->labels);
  hri_array_free(&torch->marks);
  hri_array_free(&torch->storages);
  hri_array_free(&torch->spare_tensors);
  hri_array_free(&torch->spare_fns);
  hri_array_free(&torch->casts);
  hri_array_free(&torch->blocks);
}

void hri_torch_at(hri_torch *torch, const char *module, int32_t layer) {
  if (module) torch->label.module = module;
  if (layer >= -1) torch->label.layer = layer;
  torch->label_index = UINT32_MAX;
}

static void name_op(hri_torch *torch, const char *op) {
  if (torch->label.op == op) return;
  torch->label.op = op;
  torch->label_index = UINT32_MAX;
}

void hri_torch_on_stream(hri_torch *torch, uint8_t stream) {
  torch->label.stream = stream;
  torch->label_index = UINT32_MAX;
}

void hri_torch_phase_begin(hri_torch *torch, hri_torch_phase phase) {
  hri_torch_mark mark = {torch->requests.count, torch->step, phase};
  torch->label.phase = (uint8_t)phase;
  torch->label_index = UINT32_MAX;
  if (!hri_array_push(&torch->marks, mark)) torch->failed = true;
}

/* Tensors and functions come from blocks that live as long as the process: they hold pointers to each other, and a list
 * of spare ones makes taking one as cheap as counting. */
enum { BLOCK_ITEMS = 256 };

static void *take_block(hri_torch *torch, uint64_t bytes) {
  void *block = hri_alloc_zero(BLOCK_ITEMS, bytes);
  if (!block || !hri_array_push(&torch->blocks, block)) {
    hri_free(block);
    torch->failed = true;
    return NULL;
  }
  return block;
}

static hri_ten *take_tensor(hri_torch *torch) {
  if (torch->spare_tensors.count == 0) {
    hri_ten *items = take_block(torch, sizeof *items);
    if (!items || !hri_array_reserve(&torch->spare_tensors, BLOCK_ITEMS)) return torch->failed = true, NULL;
    for (int i = 0; i < BLOCK_ITEMS; i++) torch->spare_tensors.items[torch->spare_tensors.count++] = &items[i];
  }
  hri_ten *tensor = torch->spare_tensors.items[--torch->spare_tensors.count];
  memset(tensor, 0, sizeof *tensor);
  tensor->refs = 1;
  return tensor;
}

static hri_fn *take_fn(hri_torch *torch) {
  if (torch->spare_fns.count == 0) {
    hri_fn *items = take_block(torch, sizeof *items);
    if (!items || !hri_array_reserve(&torch->spare_fns, BLOCK_ITEMS)) return torch->failed = true, NULL;
    for (int i = 0; i < BLOCK_ITEMS; i++) torch->spare_fns.items[torch->spare_fns.count++] = &items[i];
  }
  hri_fn *fn = torch->spare_fns.items[--torch->spare_fns.count];
  memset(fn, 0, sizeof *fn);
  fn->refs = 1;
  return fn;
}

/* ---- storages ---- */

static uint32_t label_now(hri_torch *torch) {
  if (torch->label_index == UINT32_MAX) {
    torch->label_index = (uint32_t)torch->labels.count;
    if (!hri_array_push(&torch->labels, torch->label)) torch->failed = true, torch->label_index = 0;
  }
  return torch->label_index;
}

/* What is made in a phase and never called anything else. */
static hr_role usual_role(uint8_t phase) {
  static const uint8_t roles[HRI_TORCH_PHASES] = {HR_ROLE_WEIGHT,     HR_ROLE_ACTIVATION, HR_ROLE_LOGITS,
                                                  HR_ROLE_ACTIVATION, HR_ROLE_WORKSPACE,  HR_ROLE_WORKSPACE,
                                                  HR_ROLE_WORKSPACE,  HR_ROLE_ACTIVATION};
  return (hr_role)roles[phase];
}

void hri_ten_role(hri_torch *torch, const hri_ten *tensor, hr_role role) {
  if (tensor && tensor->storage && !torch->failed) torch->storages.items[tensor->storage].role = (uint8_t)role;
}

static uint32_t begin_storage(hri_torch *torch, uint64_t bytes) {
  uint32_t storage = (uint32_t)torch->storages.count;
  hri_torch_request request = {bytes, storage, label_now(torch)};
  hri_torch_storage begun = {1, (uint8_t)usual_role(torch->label.phase)};
  if (bytes == 0 || torch->stopped || torch->meta || torch->failed) return 0;
  if (bytes > HRI_TORCH_MOST_BYTES) torch->beyond = true;
  if (!hri_array_push(&torch->storages, begun) || !hri_array_push(&torch->requests, request))
    return torch->failed = true, 0;
  return storage;
}

static void leave_storage(hri_torch *torch, uint32_t storage) {
  hri_torch_request request = {0, storage, 0};
  if (storage == 0) return;
  assert(torch->storages.items[storage].refs > 0);
  if (--torch->storages.items[storage].refs == 0 && !hri_array_push(&torch->requests, request)) torch->failed = true;
}

void hri_torch_empty_cache(hri_torch *torch) {
  if (!hri_array_push(&torch->requests, (hri_torch_request){0})) torch->failed = true;
}

/* ---- tensors ---- */

uint64_t hri_ten_type_bytes(hri_ten_type type) {
  static const uint8_t bytes[] = {4, 2, 2, 8, 4, 1, 1};
  return bytes[type];
}

/* Never more than COUNTED: what is as large belongs to no run that anybody is told of (begin_storage), and sums and
 * quotients of it stay in range. */
uint64_t hri_ten_count(const hri_ten *tensor) {
  static const uint64_t COUNTED = UINT64_C(1) << 60;
  uint64_t count = 1;
  for (uint32_t i = 0; i < tensor->shape.rank; i++)
    if (!hri_mul(count, tensor->shape.dims[i], &count) || count > COUNTED) return COUNTED;
  return count;
}

uint64_t hri_ten_bytes(const hri_ten *tensor) {
  uint64_t bytes;
  return hri_mul(hri_ten_count(tensor), hri_ten_type_bytes(tensor->type), &bytes) ? bytes : UINT64_MAX;
}

hri_ten_shape hri_ten_shape_of(uint32_t rank, uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  return (hri_ten_shape){.rank = rank, .dims = {a, b, c, d}};
}

/* What stands for a tensor when memory for the lists ran out: nobody reads the result of such a run. It has a last dimension,
 * as all that ops are given, which they write and divide by. */
static hri_ten *no_tensor(void) {
  static _Thread_local hri_ten none;
  none = (hri_ten){.refs = UINT32_MAX / 2, .shape = hri_ten_shape_of(2, 1, 1, 0, 0)};
  return &none;
}

hri_ten *hri_ten_make(hri_torch *torch, const char *op, hri_ten_type type, hri_ten_shape shape) {
  hri_ten *tensor = torch->failed ? NULL : take_tensor(torch);
  if (!tensor) return no_tensor();
  name_op(torch, op);
  tensor->type = type;
  tensor->shape = shape;
  tensor->storage = begin_storage(torch, hri_ten_bytes(tensor));
  return tensor;
}

hri_ten *hri_ten_like(hri_torch *torch, const char *op, const hri_ten *tensor, hri_ten_type type) {
  return hri_ten_make(torch, op, type, tensor->shape);
}

hri_ten *hri_ten_flat(hri_torch *torch, const char *op, hri_ten_type type, uint64_t count) {
  return hri_ten_make(torch, op, type, hri_ten_shape_of(1, count, 0, 0, 0));
}

hri_ten *hri_ten_view(hri_torch *torch, hri_ten *tensor, hri_ten_shape shape) {
  hri_ten *view = torch->failed ? NULL : take_tensor(torch);
  if (!view) return no_tensor();
  view->type = tensor->type;
  view->shape = shape;
  view->storage = tensor->storage;
  if (view->storage) torch->storages.items[view->storage].refs++;
  return view;
}

hri_ten *hri_ten_view_in_backward(hri_torch *torch, hri_ten *tensor, hri_ten_shape shape) {
  hri_ten *view = hri_ten_view(torch, tensor, shape);
  if (!torch->failed) view->base = hri_ten_keep(tensor->base ? tensor->base : tensor);
  return view;
}

void hri_ten_materialize(hri_torch *torch, const char *op, hri_ten *tensor) {
  assert(tensor->storage == 0);
  name_op(torch, op);
  tensor->storage = begin_storage(torch, hri_ten_bytes(tensor));
}

void hri_ten_give_bytes(hri_torch *torch, const char *op, hri_ten *tensor, uint64_t bytes) {
  if (torch->failed) return;
  assert(tensor->storage == 0);
  name_op(torch, op);
  tensor->storage = begin_storage(torch, bytes);
}

void hri_ten_take_bytes(hri_torch *torch, hri_ten *tensor) {
  if (torch->failed) return;
  leave_storage(torch, tensor->storage);
  tensor->storage = 0;
}

void hri_ten_show(hri_torch *torch, hri_ten *tensor, const hri_ten *other) {
  if (torch->failed) return;
  leave_storage(torch, tensor->storage);
  tensor->storage = other->storage;
  if (tensor->storage) torch->storages.items[tensor->storage].refs++;
}

void hri_ten_retype(hri_torch *torch, hri_ten *tensor, hri_ten_type type) {
  uint32_t before = tensor->storage;
  if (tensor->type == type || torch->failed) return;
  tensor->type = type;
  tensor->storage = 0;
  hri_ten_materialize(torch, "_to_copy", tensor);
  leave_storage(torch, before);
}

hri_ten *hri_ten_parameter(hri_torch *torch, hri_ten_type type, hri_ten_shape shape, bool requires_grad) {
  hri_ten *tensor = hri_ten_make(torch, "parameter", type, shape);
  tensor->parameter = true;
  tensor->requires_grad = requires_grad;
  return tensor;
}

hri_ten *hri_ten_keep(hri_ten *tensor) {
  if (tensor) tensor->refs++;
  return tensor;
}

static void drop_fn(hri_torch *torch, hri_fn *fn);

void hri_ten_drop(hri_torch *torch, hri_ten *tensor) {
  if (!tensor || torch->failed) return;
  assert(tensor->refs > 0);
  if (--tensor->refs) return;
  if (tensor->grad)
    hri_ten_drop(torch, tensor->grad); /* release_resources: what autograd knows of it goes before its bytes */
  if (tensor->made_by) drop_fn(torch, tensor->made_by);
  leave_storage(torch, tensor->storage);
  if (tensor->base) hri_ten_drop(torch, tensor->base);
  if (!hri_array_push(&torch->spare_tensors, tensor)) torch->failed = true;
}

void hri_ten_set(hri_torch *torch, hri_ten **variable, hri_ten *value) {
  hri_ten *before = *variable;
  *variable = value;
  hri_ten_drop(torch, before);
}

/* ---- the graph ---- */

static void release_saved(hri_torch *torch, hri_fn *fn) {
  for (uint32_t i = 0; i < fn->saved_count; i++) {
    if (fn->saved[i].tensor) hri_ten_drop(torch, fn->saved[i].tensor);
    if (fn->saved[i].frame) fn->saved[i].frame->calls->forget(torch, fn->saved[i].frame, fn->saved[i].index);
  }
  fn->saved_count = 0;
}

static void leave_leaf(hri_torch *torch, hri_fn *fn) {
  fn->leaf->accumulate = NULL;
  hri_ten_drop(torch, fn->leaf);
}

/* The last edge is followed in a loop and not by a call: a model is a chain of thousands of functions. */
static void drop_fn(hri_torch *torch, hri_fn *fn) {
  while (fn && --fn->refs == 0) {
    hri_fn *follow = NULL;
    release_saved(torch, fn);
    for (int i = 0; i < HRI_FN_HELD; i++) hri_ten_drop(torch, fn->held[i]);
    if (fn->leaf) leave_leaf(torch, fn);
    for (uint32_t i = 0; i < fn->edge_count; i++) {
      if (!fn->next[i]) continue;
      if (fn->next[i]->refs > 1) fn->next[i]->refs--;
      else if (follow) drop_fn(torch, fn->next[i]);
      else follow = fn->next[i];
    }
    if (!hri_array_push(&torch->spare_fns, fn)) torch->failed = true;
    fn = follow;
  }
}

/* torch/csrc/autograd/functions/accumulate_grad.h: the first gradient is taken over as it is where nobody else holds it,
 * else copied; later ones are added in place. */
static void accumulate(hri_torch *torch, hri_fn *fn, hri_ten *const *gradients, hri_ten **inputs) {
  hri_ten *leaf = fn->leaf, *gradient = gradients[0];
  (void)inputs;
  if (!gradient) return;
  if (!leaf->grad) {
    if (gradient->refs == 1 && !gradient->turned) leaf->grad = hri_ten_view(torch, gradient, leaf->shape);
    else leaf->grad = hri_ten_like(torch, "clone", gradient, leaf->type);
    hri_ten_role(torch, leaf->grad, HR_ROLE_GRADIENT);
  }
  if (torch->accumulated) torch->accumulated(torch, torch->accumulated_context, leaf);
}

/* It lives as long as a graph has it, and holds its leaf: an input that is no parameter (embeddings under
 * enable_input_require_grads) lives on with its gradient in the graph of the step before. */
static hri_fn *accumulator(hri_torch *torch, hri_ten *leaf) {
  if (!leaf->accumulate) {
    hri_fn *fn = take_fn(torch);
    if (!fn) return NULL;
    fn->refs = 0; /* its first edge comes now */
    fn->apply = accumulate;
    fn->sequence = UINT64_MAX;
    fn->leaf = hri_ten_keep(leaf);
    fn->result_count = 1;
    leaf->accumulate = fn;
  }
  return leaf->accumulate;
}

static bool tracks(const hri_ten *tensor) { return tensor && tensor->requires_grad; }

hri_fn *hri_fn_make(hri_torch *torch, hri_fn_apply *apply, hri_ten *const *inputs, uint32_t count) {
  bool any = false;
  hri_fn *fn;
  assert(count <= HRI_FN_EDGES);
  for (uint32_t i = 0; i < count; i++) any = any || tracks(inputs[i]);
  if (!any || !torch->grad_mode || torch->failed || torch->stopped || !(fn = take_fn(torch))) return NULL;
  fn->apply = apply;
  fn->sequence = torch->sequence++;
  fn->edge_count = count;
  fn->label = label_now(torch);
  for (uint32_t i = 0; i < count; i++) {
    hri_ten *input = inputs[i];
    if (!input) continue;
    fn->shapes[i] = input->shape;
    fn->types[i] = input->type;
    if (!tracks(input)) continue;
    fn->next[i] = input->made_by ? input->made_by : accumulator(torch, input);
    fn->next_output[i] = input->output;
    if (fn->next[i]) fn->next[i]->refs++;
  }
  return fn;
}

bool hri_fn_needs(const hri_fn *fn, uint32_t index) { return fn && fn->next[index]; }

void hri_fn_save(hri_torch *torch, hri_fn *fn, hri_ten *tensor) {
  if (!fn || torch->failed) return;
  assert(fn->saved_count < HRI_FN_SAVED);
  hri_saved *saved = &fn->saved[fn->saved_count++];
  *saved = (hri_saved){0};
  if (torch->packing && !torch->remaking) {
    saved->frame = torch->packing;
    saved->index = torch->packing->calls->pack(torch, torch->packing);
    return;
  }
  saved->tensor = hri_ten_keep(tensor);
  if (torch->remaking) torch->remaking->calls->remade(torch, torch->remaking, tensor);
}

void hri_fn_save_result(hri_torch *torch, hri_fn *fn, hri_ten *result) {
  hri_ten *alias;
  if (!fn) return;
  alias = hri_ten_view(torch, result, result->shape);
  hri_fn_save(torch, fn, alias);
  hri_ten_drop(torch, alias);
}

hri_ten *hri_fn_bind(hri_torch *torch, hri_fn *fn, hri_ten *result) {
  (void)torch;
  if (!fn) return result;
  result->requires_grad = true;
  result->made_by = fn;
  result->output = (uint8_t)fn->result_count;
  if (fn->result_count++) fn->refs++; /* the first result takes over the maker's reference */
  return result;
}

hri_ten *hri_fn_saved(hri_torch *torch, hri_fn *fn, uint32_t index) {
  hri_saved *saved = &fn->saved[index];
  assert(index < fn->saved_count);
  if (!saved->frame) return hri_ten_keep(saved->tensor);
  return saved->frame->calls->unpack(torch, saved->frame, saved->index);
}

/* ---- the engine ---- */

typedef HRI_ARRAY(hri_fn *) fn_list;

/* Functions made last run first; AccumulateGrad at once (engine.cpp, CompareNodeTaskTime). */
static void push_ready(hri_torch *torch, fn_list *heap, hri_fn *fn) {
  size_t at = heap->count;
  if (!hri_array_push(heap, fn)) {
    torch->failed = true;
    return;
  }
  for (; at > 0 && heap->items[(at - 1) / 2]->sequence < fn->sequence; at = (at - 1) / 2)
    heap->items[at] = heap->items[(at - 1) / 2];
  heap->items[at] = fn;
}

static hri_fn *pop_ready(fn_list *heap) {
  hri_fn *first = heap->items[0], *last = heap->items[--heap->count];
  size_t at = 0, child;
  for (; (child = 2 * at + 1) < heap->count; at = child) {
    if (child + 1 < heap->count && heap->items[child + 1]->sequence > heap->items[child]->sequence) child++;
    if (heap->items[child]->sequence <= last->sequence) break;
    heap->items[at] = heap->items[child];
  }
  if (heap->count) heap->items[at] = last;
  return first;
}

static void count_dependencies(hri_torch *torch, hri_fn *root, uint64_t pass) {
  fn_list stack = {0};
  root->pass = pass;
  root->waiting = 0;
  if (!hri_array_push(&stack, root)) torch->failed = true;
  while (stack.count) {
    hri_fn *fn = stack.items[--stack.count];
    for (uint32_t i = 0; i < fn->edge_count; i++) {
      hri_fn *next = fn->next[i];
      if (!next) continue;
      if (next->pass != pass) {
        next->pass = pass;
        next->waiting = 0;
        if (!hri_array_push(&stack, next)) torch->failed = true;
      }
      next->waiting++;
    }
  }
  hri_array_free(&stack);
}

/* input_buffer.cpp: a second gradient is added in place of the first where nobody else holds that, else into a new
 * tensor. Takes `gradient`. */
static void add_to_buffer(hri_torch *torch, hri_ten **buffer, hri_ten *gradient) {
  hri_ten *old = *buffer;
  if (!gradient) return;
  if (!old) {
    *buffer = gradient;
    return;
  }
  bool alone = old->refs == 1 && (!old->storage || torch->storages.items[old->storage].refs == 1);
  if (!alone) {
    *buffer = hri_ten_like(torch, "add", old, old->type);
    hri_ten_drop(torch, old);
  }
  hri_ten_drop(torch, gradient);
}

static bool same_count(const hri_ten *tensor, const hri_ten_shape *shape) {
  hri_ten probe = {.shape = *shape};
  return hri_ten_count(tensor) == hri_ten_count(&probe);
}

/* The shape that a gradient is summed to, and how many elements make one of it. */
static hri_ten *summed(hri_torch *torch, const hri_ten *gradient, hri_ten_shape shape) {
  hri_ten probe = {.shape = shape};
  bool of_columns = shape.rank == gradient->shape.rank && shape.dims[shape.rank - 1] == 1;
  if (of_columns) return hri_ten_make(torch, "sum", gradient->type, shape); /* a warp for each row */
  return hri_ten_sum(torch, gradient->type, shape, hri_ten_count(gradient) / hri_ten_count(&probe));
}

/* engine.cpp, validate_outputs: a gradient is summed to the shape of its input and cast to its type. */
static void validate(hri_torch *torch, const hri_fn *fn, hri_ten **inputs) {
  for (uint32_t i = 0; i < fn->edge_count; i++) {
    if (!inputs[i] || !fn->next[i]) continue;
    if (!same_count(inputs[i], &fn->shapes[i])) hri_ten_set(torch, &inputs[i], summed(torch, inputs[i], fn->shapes[i]));
    if (inputs[i]->type != fn->types[i])
      hri_ten_set(torch, &inputs[i], hri_ten_like(torch, "to", inputs[i], fn->types[i]));
  }
}

static void run(hri_torch *torch, fn_list *ready, hri_fn *fn) {
  hri_ten *gradients[HRI_FN_RESULTS], *inputs[HRI_FN_EDGES] = {0};
  memcpy(gradients, fn->buffer, sizeof gradients);
  memset(fn->buffer, 0, sizeof fn->buffer);
  if (fn->before) fn->before(torch, fn->before_context);
  if (fn->sequence != UINT64_MAX) {
    torch->label.module = torch->labels.items[fn->label].module;
    torch->label.layer = torch->labels.items[fn->label].layer;
    torch->label_index = UINT32_MAX;
  }
  fn->apply(torch, fn, gradients, inputs);
  validate(torch, fn, inputs);
  for (int i = 0; i < HRI_FN_RESULTS; i++) hri_ten_drop(torch, gradients[i]);
  release_saved(torch, fn);
  for (uint32_t i = 0; i < fn->edge_count; i++) {
    hri_fn *next = fn->next[i];
    if (!next) {
      hri_ten_drop(torch, inputs[i]);
      continue;
    }
    if (next->leaf && next->leaf->stream) hri_torch_on_stream(torch, next->leaf->stream);
    add_to_buffer(torch, &next->buffer[fn->next_output[i]], inputs[i]);
    if (torch->label.stream) hri_torch_on_stream(torch, 0);
    assert(next->waiting > 0);
    if (--next->waiting == 0) push_ready(torch, ready, next);
  }
}

void hri_torch_backward(hri_torch *torch, hri_ten *root, hri_ten *gradient) {
  fn_list ready = {0};
  hri_fn *first = root->made_by;
  bool before = torch->grad_mode;
  if (!first || torch->failed) return;
  if (!gradient) gradient = hri_ten_like(torch, "ones_like", root, root->type);
  count_dependencies(torch, first, ++torch->pass);
  torch->grad_mode = false;
  first->buffer[root->output] = hri_ten_keep(gradient); /* Python holds it to the end */
  push_ready(torch, &ready, first);
  torch->engines++;
  while (ready.count && !torch->failed) run(torch, &ready, pop_ready(&ready));
  torch->engines--;
  torch->grad_mode = before;
  hri_ten_drop(torch, gradient);
  hri_array_free(&ready);
}
