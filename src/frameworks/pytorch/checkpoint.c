/* torch.utils.checkpoint, reentrant and not (checkpoint.h): a region runs without what it would save, and again when its backward
 * needs that. The graph calls in through hri_frame's functions; module.c opens regions. */
#include "frameworks/pytorch/checkpoint.h"

#include <assert.h>

#include "frameworks/pytorch/autocast.h"

typedef struct held_frame {
  hri_frame frame; /* first: what the graph holds */
  hri_region *region;
  void *context;
  uint32_t index;                          /* of the region, for its caller */
  hri_ten *input, *arguments[HRI_FN_HELD]; /* kept: all that the region needs to run again */
  uint32_t holders;                        /* saved tensors that functions still may ask for */
  uint32_t made;                           /* of them, counted while the region runs again */
  bool remade;
  hri_ten_type autocast;
  HRI_ARRAY(hri_ten *) tensors; /* by index; NULL: not made, or taken */
  HRI_ARRAY(bool) gone;         /* likewise: nobody can ask for it any more, as its graph was dropped */
} held_frame;

static held_frame *held(hri_frame *frame) { return (held_frame *)(void *)frame; }

static void frame_release(hri_frame *of) {
  held_frame *frame = held(of);
  hri_array_free(&frame->tensors);
  hri_array_free(&frame->gone);
  hri_free(frame);
}

static void frame_destroy(hri_torch *torch, held_frame *frame) {
  hri_frame *before = frame->frame.before, *after = frame->frame.after;
  if (before) before->after = after; /* first: what is dropped below may end another frame */
  else torch->frames = after;
  if (after) after->before = before;
  hri_ten_drop(torch, frame->input);
  for (int i = 0; i < HRI_FN_HELD; i++) hri_ten_drop(torch, frame->arguments[i]);
  for (size_t i = 0; i < frame->tensors.count; i++) hri_ten_drop(torch, frame->tensors.items[i]);
  frame_release(&frame->frame);
}

static uint32_t frame_pack(hri_torch *torch, hri_frame *of) {
  held_frame *frame = held(of);
  if (!hri_array_push(&frame->tensors, NULL) || !hri_array_push(&frame->gone, false)) torch->failed = true;
  frame->holders++;
  return (uint32_t)frame->tensors.count - 1;
}

/* The early stop: behind the last saved tensor nothing runs. */
static void frame_remade(hri_torch *torch, hri_frame *of, hri_ten *tensor) {
  held_frame *frame = held(of);
  if (frame->made >= frame->tensors.count) return;
  if (frame->made < frame->gone.count && !frame->gone.items[frame->made])
    frame->tensors.items[frame->made] = hri_ten_keep(tensor);
  frame->made++;
  if (frame->made == frame->tensors.count) torch->stopped = true;
}

static void make_again(hri_torch *torch, held_frame *frame) {
  hri_frame *packing = torch->packing, *remaking = torch->remaking;
  hri_torch_label label = torch->label;
  hri_ten_type autocast = torch->autocast;
  bool grad_mode = torch->grad_mode;
  hri_ten *input, *output;
  frame->remade = true;
  torch->packing = NULL;
  torch->remaking = &frame->frame;
  torch->grad_mode = true;
  torch->autocast = frame->autocast;
  /* The input enters as it was, with its place in the outer graph, as the closure's arguments do */
  input = hri_ten_keep(frame->input);
  output = frame->region(torch, input, frame->context, frame->index);
  torch->stopped = false;
  if (autocast == HRI_F32) hri_autocast_exit(torch);
  hri_ten_drop(torch, output);
  hri_ten_drop(torch, input);
  torch->packing = packing;
  torch->remaking = remaking;
  torch->grad_mode = grad_mode;
  torch->autocast = autocast;
  torch->label = label;
  torch->label_index = UINT32_MAX;
}

static hri_ten *frame_unpack(hri_torch *torch, hri_frame *of, uint32_t index) {
  held_frame *frame = held(of);
  hri_ten *tensor;
  if (!frame->remade) make_again(torch, frame);
  assert(torch->failed || frame->tensors.items[index]); /* each is asked for once */
  tensor = frame->tensors.items[index];
  frame->tensors.items[index] = NULL;
  return tensor;
}

static void frame_forget(hri_torch *torch, hri_frame *of, uint32_t index) {
  held_frame *frame = held(of);
  hri_ten_drop(torch, frame->tensors.items[index]);
  frame->tensors.items[index] = NULL;
  if (index < frame->gone.count) frame->gone.items[index] = true;
  if (--frame->holders == 0) frame_destroy(torch, frame);
}

static hri_ten *without_reentry(hri_torch *torch, hri_region *region, void *context, uint32_t index, hri_ten *input,
                                hri_ten *const arguments[HRI_FN_HELD]) {
  static const hri_frame_calls calls = {frame_pack, frame_remade, frame_unpack, frame_forget, frame_release};
  hri_frame *outer = torch->packing;
  held_frame *frame = hri_alloc_zero(1, sizeof *frame);
  hri_ten *output;
  if (!frame) {
    torch->failed = true;
    return hri_ten_keep(input);
  }
  *frame = (held_frame){.frame = {&calls, NULL, torch->frames},
                        .region = region,
                        .context = context,
                        .index = index,
                        .input = hri_ten_keep(input),
                        .holders = 1,
                        .autocast = torch->autocast};
  if (torch->frames) torch->frames->before = &frame->frame;
  torch->frames = &frame->frame;
  for (int i = 0; i < HRI_FN_HELD; i++) frame->arguments[i] = hri_ten_keep(arguments[i]);
  torch->packing = &frame->frame;
  output = region(torch, input, context, index);
  torch->packing = outer;
  if (--frame->holders == 0) frame_destroy(torch, frame); /* nothing inside needs a gradient */
  return output;
}

/* CheckpointFunction: numbers[0] region, [1] context, [2] index. */
static void backward_reentrant(hri_torch *torch, hri_fn *fn, hri_ten *const *gradients, hri_ten **inputs) {
  hri_region *region = (hri_region *)(uintptr_t)fn->numbers[0];
  void *context = (void *)(uintptr_t)fn->numbers[1];
  hri_ten *saved = hri_fn_saved(torch, fn, 0), *leaf = hri_ten_view(torch, saved, saved->shape), *output;
  hri_ten_type autocast = torch->autocast;
  leaf->requires_grad = fn->next[0] != NULL;
  torch->grad_mode = true;
  torch->autocast = (hri_ten_type)fn->numbers[3];
  output = region(torch, leaf, context, (uint32_t)fn->numbers[2]);
  torch->autocast = autocast;
  if (autocast == HRI_F32) hri_autocast_exit(torch);
  hri_torch_backward(torch, output, hri_ten_keep(gradients[0]));
  torch->grad_mode = false;
  inputs[0] = hri_ten_keep(leaf->grad);
  hri_ten_drop(torch, output);
  hri_ten_drop(torch, leaf);
  hri_ten_drop(torch, saved);
}

static hri_ten *with_reentry(hri_torch *torch, hri_region *region, void *context, uint32_t index, hri_ten *input,
                             hri_ten *const arguments[HRI_FN_HELD]) {
  hri_fn *fn = hri_fn_make(torch, backward_reentrant, &input, 1);
  bool before = torch->grad_mode;
  hri_ten *output;
  if (fn) {
    fn->numbers[0] = (uintptr_t)region;
    fn->numbers[1] = (uintptr_t)context;
    fn->numbers[2] = index;
    fn->numbers[3] = torch->autocast;
    for (int i = 0; i < HRI_FN_HELD; i++) fn->held[i] = hri_ten_keep(arguments[i]);
    hri_fn_save(torch, fn, input);
  }
  torch->grad_mode = false;
  output = region(torch, input, context, index);
  torch->grad_mode = before;
  return hri_fn_bind(torch, fn, output);
}

hri_ten *hri_checkpoint(hri_torch *torch, bool reentrant, hri_region *region, void *context, uint32_t index,
                        hri_ten *input, hri_ten *const arguments[HRI_FN_HELD]) {
  if (!torch->grad_mode) return region(torch, input, context, index);
  return (reentrant ? with_reentry : without_reentry)(torch, region, context, index, input, arguments);
}
