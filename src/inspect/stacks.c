/* What stacks say. A frame is recognised by its function's name and its file; each frame is judged once, each stack is
 * then a walk over its frames, innermost first. Since PyTorch 2.1 C++ frames stand in front of the Python frames that
 * led to them ("??" or a source file of C++ as file); with stacks="python" there are none.
 *
 * The stage is that of the innermost of backward, optimizer and module call - but for a module call inside backward,
 * which is recomputation (checkpointing), and so part of it. A closure that the optimizer calls (Lightning) is forward
 * and backward by this rule, though optimizer.step stands outside. */
#include "inspect/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* ---- frames ---- */

/* `file` is a part of the file's path; `name` is the function's name, or what it begins with ("name*"), or a part of it
 * ("*name"). NULL: any. */
typedef struct rule {
  const char *file, *name;
  unsigned marks;
} rule;

static const rule rules[] = {
    /* autograd */
    {NULL, "*run_backward", HRI_MARK_BACKWARD},
    {NULL, "backward", HRI_MARK_BACKWARD},
    {"torch/autograd/__init__.py", "grad", HRI_MARK_BACKWARD},
    {NULL, "*torch::autograd::Engine::", HRI_MARK_BACKWARD | HRI_MARK_ENGINE},
    {NULL, "*torch::autograd::python::PythonEngine::", HRI_MARK_BACKWARD | HRI_MARK_ENGINE},
    {NULL, "*torch::autograd::AccumulateGrad", HRI_MARK_BACKWARD | HRI_MARK_ENGINE | HRI_MARK_ACCUMULATE},
    {NULL, "*torch::autograd::InputBuffer", HRI_MARK_BACKWARD | HRI_MARK_ENGINE},
    {NULL, "autograd::engine::evaluate_function*", HRI_MARK_BACKWARD | HRI_MARK_ENGINE}, /* in traces of the profiler */
    {NULL, "Optimizer.step#*", HRI_MARK_OPTIMIZER},
    {"torch/utils/checkpoint.py", "unpack_hook", HRI_MARK_BACKWARD},
    {"torch/utils/checkpoint.py", "recompute_fn", HRI_MARK_BACKWARD},
    {"deepspeed/runtime/", "backward*", HRI_MARK_BACKWARD},
    {"megatron/", "backward_step*", HRI_MARK_BACKWARD},
    {"torch/distributed/pipelining/", "backward*", HRI_MARK_BACKWARD},
    /* optimizers */
    {"torch/optim/", "_init_group", HRI_MARK_OPTIMIZER | HRI_MARK_STATE},
    {"/optim", "load_state_dict", HRI_MARK_INIT | HRI_MARK_STATE},
    {"/optim", "init_state*", HRI_MARK_OPTIMIZER | HRI_MARK_STATE},
    {"/optim", "get_state_buffer", HRI_MARK_OPTIMIZER | HRI_MARK_STATE},
    {"deepspeed/", "initialize_optimizer_states", HRI_MARK_OPTIMIZER | HRI_MARK_STATE},
    {"torch/optim/", "step", HRI_MARK_OPTIMIZER},
    {"torch/optim/", "*_tensor_*", HRI_MARK_OPTIMIZER},
    {"optim", "step", HRI_MARK_OPTIMIZER},
    {"optim", "update_step", HRI_MARK_OPTIMIZER},
    {"deepspeed/runtime/", "step", HRI_MARK_OPTIMIZER},
    {"deepspeed/runtime/", "_take_model_step", HRI_MARK_OPTIMIZER},
    {"adam", "step", HRI_MARK_OPTIMIZER},
    {NULL, "*clip_grad_norm", HRI_MARK_OPTIMIZER},
    {"torch/amp/grad_scaler.py", "step", HRI_MARK_OPTIMIZER},
    {"torch/amp/grad_scaler.py", "*unscale_", HRI_MARK_OPTIMIZER},
    {"torch/cuda/amp/grad_scaler.py", "*unscale_", HRI_MARK_OPTIMIZER},
    {NULL, "*_fused_adam", HRI_MARK_OPTIMIZER},
    /* modules */
    {"torch/nn/modules/module.py", "_call_impl", HRI_MARK_FORWARD},
    {"torch/nn/modules/module.py", "_wrapped_call_impl", HRI_MARK_FORWARD},
    {"torch/nn/modules/module.py", "_slow_forward", HRI_MARK_FORWARD},
    {NULL, "forward", HRI_MARK_FORWARD},
    {NULL, "nn.Module: *", HRI_MARK_FORWARD},
    {"torch/_functorch/", "*runtime_wrapper", HRI_MARK_FORWARD},
    {"megatron/", "forward_step", HRI_MARK_FORWARD},
    {"torch/nn/functional.py", "*cross_entropy", HRI_MARK_LOSS},
    {"torch/nn/functional.py", "*_loss", HRI_MARK_LOSS},
    {"torch/nn/modules/loss.py", NULL, HRI_MARK_LOSS},
    {"transformers/loss/", NULL, HRI_MARK_LOSS},
    {"liger_kernel/", "*cross_entropy", HRI_MARK_LOSS},
    {NULL, "*cross_entropy_loss", HRI_MARK_LOSS},
    {NULL, "*nll_loss", HRI_MARK_LOSS},
    /* building and loading */
    {NULL, "__init__", HRI_MARK_INIT},
    {NULL, "from_pretrained", HRI_MARK_INIT},
    {NULL, "*load_state_dict", HRI_MARK_INIT},
    {NULL, "_load_pretrained_model", HRI_MARK_INIT},
    {NULL, "_load_parameter_into_model", HRI_MARK_INIT},
    {"torch/nn/modules/module.py", "_apply", HRI_MARK_INIT},
    {"torch/nn/modules/module.py", "to", HRI_MARK_INIT},
    {"torch/nn/modules/module.py", "cuda", HRI_MARK_INIT},
    {"torch/nn/modules/module.py", "to_empty", HRI_MARK_INIT},
    {"torch/nn/modules/", "reset_parameters", HRI_MARK_INIT},
    {"torch/nn/init.py", NULL, HRI_MARK_INIT},
    {NULL, "_init_weights", HRI_MARK_INIT},
    {"safetensors/", "load_file", HRI_MARK_INIT},
    {"torch/serialization.py", "*load", HRI_MARK_INIT},
    {"accelerate/utils/modeling.py", NULL, HRI_MARK_INIT},
    {"accelerate/big_modeling.py", NULL, HRI_MARK_INIT},
    {"bitsandbytes/nn/modules.py", "to", HRI_MARK_INIT},
    {"torch/distributed/fsdp/_init_utils.py", NULL, HRI_MARK_INIT},
    {"deepspeed/__init__.py", "initialize", HRI_MARK_INIT},
    /* data */
    {"torch/utils/data/", NULL, HRI_MARK_DATA},
    {NULL, "*_prepare_input", HRI_MARK_DATA},
    {NULL, "send_to_device", HRI_MARK_DATA},
    {NULL, "move_data_to_device", HRI_MARK_DATA},
    {NULL, "batch_to_device", HRI_MARK_DATA},
    {NULL, "get_batch", HRI_MARK_DATA},
    {NULL, "*collate", HRI_MARK_DATA},
    /* communication */
    {NULL, "*c10d::", HRI_MARK_COMMUNICATION},
    {NULL, "*ProcessGroupNCCL", HRI_MARK_COMMUNICATION},
    {NULL, "nccl*", HRI_MARK_COMMUNICATION},
    {"torch/distributed/distributed_c10d.py", NULL, HRI_MARK_COMMUNICATION},
    {"torch/distributed/_functional_collectives.py", NULL, HRI_MARK_COMMUNICATION},
    {"torch/distributed/fsdp/", "*all_gather", HRI_MARK_COMMUNICATION},
    {"torch/distributed/fsdp/", "*unshard", HRI_MARK_COMMUNICATION},
    {"torch/distributed/fsdp/", "*reduce_scatter", HRI_MARK_COMMUNICATION},
    {"torch/distributed/fsdp/", "*reduce_grad", HRI_MARK_COMMUNICATION},
    {"torch/distributed/fsdp/", "*alloc_storage", HRI_MARK_COMMUNICATION},
    {"deepspeed/runtime/", "*allgather", HRI_MARK_COMMUNICATION},
    {"deepspeed/runtime/", "*all_gather", HRI_MARK_COMMUNICATION},
    {"deepspeed/runtime/", "*reduce", HRI_MARK_COMMUNICATION},
    {"deepspeed/comm/", NULL, HRI_MARK_COMMUNICATION},
    {"megatron/core/distributed/", NULL, HRI_MARK_COMMUNICATION},
    /* workspaces of libraries */
    {NULL, "*CUDABlasWorkspace", HRI_MARK_WORKSPACE},
    {NULL, "*CUDABlasHandle", HRI_MARK_WORKSPACE},
    {NULL, "*cublasLtWorkspace", HRI_MARK_WORKSPACE},
    {NULL, "*CUDABlasLtWorkspace", HRI_MARK_WORKSPACE},
    {NULL, "*getNewWorkspace", HRI_MARK_WORKSPACE},
    /* what else a program does */
    {NULL, "evaluate", HRI_MARK_EVALUATION},
    {NULL, "evaluation_loop", HRI_MARK_EVALUATION},
    {NULL, "prediction_step", HRI_MARK_EVALUATION},
    {NULL, "validate", HRI_MARK_EVALUATION},
    {NULL, "validation_step", HRI_MARK_EVALUATION},
    {NULL, "eval_step", HRI_MARK_EVALUATION},
    {NULL, "*_validation", HRI_MARK_EVALUATION},
    {"transformers/generation/", NULL, HRI_MARK_GENERATION},
    {NULL, "generate", HRI_MARK_GENERATION},
    {"transformers/cache_utils.py", NULL, HRI_MARK_CACHE},
    {"torch/serialization.py", "*save", HRI_MARK_CHECKPOINT},
    {"torch/distributed/checkpoint/", NULL, HRI_MARK_CHECKPOINT},
    {NULL, "save_pretrained", HRI_MARK_CHECKPOINT},
    {NULL, "*save_checkpoint", HRI_MARK_CHECKPOINT},
};

static bool name_fits(const char *pattern, const char *name) {
  size_t count = strlen(pattern);
  char part[64];
  if (pattern[0] != '*' && pattern[count - 1] != '*') return strcmp(pattern, name) == 0;
  if (pattern[0] != '*') return strncmp(pattern, name, count - 1) == 0;
  count -= pattern[count - 1] == '*' ? 2 : 1;
  memcpy(part, pattern + 1, count);
  part[count] = 0;
  return strstr(name, part) != NULL;
}

/* A frame's file, function and line, the texts cut to HRI_NAME_BYTES. A profiler's frames have all three in the name,
 * "torch/optim/adam.py(347): step", and the file "none". */
typedef struct view {
  const char *file, *name;
  uint32_t line;
  char held[HRI_NAME_BYTES], held_name[HRI_NAME_BYTES];
} view;

/* The text, or its beginning copied into `held`. */
static const char *bounded(const char *text, char held[HRI_NAME_BYTES]) {
  if (strnlen(text, HRI_NAME_BYTES) < HRI_NAME_BYTES) return text;
  memcpy(held, text, HRI_NAME_BYTES - 1);
  held[HRI_NAME_BYTES - 1] = 0;
  return held;
}

static void view_frame(const hr_snapshot *s, const hr_frame *frame, view *v) {
  const char *mark, *open;
  size_t count;
  v->file = bounded(hr_snapshot_string(s, frame->file), v->held);
  v->name = bounded(hr_snapshot_string(s, frame->name), v->held_name);
  v->line = frame->line;
  if (strcmp(v->file, "none") != 0) return;
  v->file = "";
  mark = strstr(v->name, "): ");
  if (!mark) return;
  for (open = mark; open > v->name && open[-1] >= '0' && open[-1] <= '9';) open--;
  if (open == mark || open == v->name || open[-1] != '(') return;
  count = (size_t)(open - 1 - v->name);
  if (count >= sizeof v->held) return;
  memcpy(v->held, v->name, count);
  v->held[count] = 0;
  v->file = v->held;
  v->line = (uint32_t)strtoul(open, NULL, 10);
  v->name = mark + 3;
}

/* Frames of our own snapshots: "headroom", or "headroom/phase" and the like. */
static bool is_ours(const char *file) { return strncmp(file, "headroom", 8) == 0 && (!file[8] || file[8] == '/'); }

static bool ends_with(const char *text, const char *end) {
  size_t n = strlen(text), m = strlen(end);
  return n >= m && strcmp(text + n - m, end) == 0;
}

static bool is_library(const char *file, const char *name) {
  static const char *const parts[] = {"site-packages/torch/",
                                      "dist-packages/torch/",
                                      "torch/nn/",
                                      "torch/optim/",
                                      "torch/autograd/",
                                      "torch/_",
                                      "torch/utils/",
                                      "torch/amp/",
                                      "torch/cuda/",
                                      "torch/distributed/",
                                      "torch/csrc/",
                                      "aten/src/",
                                      "c10/",
                                      "lib/python3",
                                      "torch/functional.py",
                                      "torch/storage.py",
                                      "torch/serialization.py",
                                      "contextlib.py",
                                      "functools.py",
                                      "threading.py",
                                      "runpy.py",
                                      "<frozen "};
  if (strstr(file, "site-packages/") && !strstr(file, "site-packages/torch/")) return false;
  for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
    if (strstr(file, parts[k])) return true;
  if (!file[0] || strcmp(file, "??") == 0 || strstr(name, "::")) return true;
  if (strstr(file, ".so") || strstr(file, "bin/python")) return true;
  return ends_with(file, ".cpp") || ends_with(file, ".h") || ends_with(file, ".c") || ends_with(file, ".cu") ||
         ends_with(file, ".S");
}

/* Code that came with no package: the user's own. */
static bool is_own(const view *v) {
  return !is_library(v->file, v->name) && !strstr(v->file, "site-packages/") && !strstr(v->file, "dist-packages/");
}

/* Of frames, beside the marks: the user's own code, and Python of anybody's, or ours. */
enum { FRAME_OWN = 1 << 16, FRAME_PYTHON = 1 << 17 };

static unsigned frame_marks(const hr_snapshot *s, const hr_frame *frame) {
  unsigned marks = 0;
  view v;
  view_frame(s, frame, &v);
  for (size_t k = 0; k < sizeof rules / sizeof *rules && !is_ours(v.file); k++)
    if ((!rules[k].file || strstr(v.file, rules[k].file)) && (!rules[k].name || name_fits(rules[k].name, v.name)))
      marks |= rules[k].marks;
  if (!is_ours(v.file) && !ends_with(v.file, ".py") && v.file[0] != '<') marks |= HRI_MARK_NATIVE;
  if (is_ours(v.file) || ends_with(v.file, ".py")) marks |= FRAME_PYTHON;
  if (is_own(&v)) marks |= FRAME_OWN;
  return marks;
}

/* ---- stacks ---- */

enum { TURNS = HRI_MARK_BACKWARD | HRI_MARK_OPTIMIZER | HRI_MARK_FORWARD };

/* `turns`: the marks of TURNS in the order in which they come, innermost first, each once. */
static hr_stage stage_of(unsigned all, const unsigned turns[3], unsigned turn_count) {
  unsigned first = turn_count ? turns[0] : 0, second = turn_count > 1 ? turns[1] : 0;
  if (all & HRI_MARK_CHECKPOINT) return HR_STAGE_CHECKPOINT;
  if (first & HRI_MARK_BACKWARD) return HR_STAGE_BACKWARD;
  if (first & HRI_MARK_OPTIMIZER) return HR_STAGE_OPTIMIZER;
  if (second & HRI_MARK_BACKWARD) return HR_STAGE_BACKWARD; /* recomputation */
  if (all & HRI_MARK_GENERATION) return HR_STAGE_GENERATION;
  if (all & HRI_MARK_EVALUATION) return HR_STAGE_EVALUATION;
  if (all & HRI_MARK_LOSS) return HR_STAGE_LOSS;
  if (all & HRI_MARK_FORWARD) return HR_STAGE_FORWARD;
  if (all & HRI_MARK_INIT) return HR_STAGE_INIT;
  if (all & HRI_MARK_DATA) return HR_STAGE_DATA;
  if (all & HRI_MARK_COMMUNICATION) return HR_STAGE_COMMUNICATION;
  return HR_STAGE_UNKNOWN;
}

/* Our own snapshots name the phase in a frame of its own (headroom/alloc.h, hr_alloc_set_label). A pickle of one does
 * not say elsewhere that it is ours. */
static hr_stage stated_stage(const hr_snapshot *s, const hr_frame *frame) {
  const char *file = hr_snapshot_string(s, frame->file), *name = hr_snapshot_string(s, frame->name);
  if (strcmp(file, "headroom") != 0 && strcmp(file, "headroom/phase") != 0) return HR_STAGE_UNKNOWN;
  if (strcmp(name, "load") == 0) return HR_STAGE_INIT;
  for (int k = 1; k < HR_STAGE_COUNT; k++)
    if (strcmp(name, hr_stage_name((hr_stage)k)) == 0) return (hr_stage)k;
  return HR_STAGE_UNKNOWN;
}

static hri_stack_info read_stack(const hr_snapshot *s, const hr_stack *stack, const uint32_t *frame_mark) {
  unsigned all = 0, turns[3] = {0}, turn_count = 0, met = 0;
  hri_stack_info info = {0};
  bool calling = false; /* the frame that called the module is still to come */
  bool python = false;
  for (uint32_t k = 0; k < stack->count; k++) {
    uint32_t frame = s->stack_frames[stack->first + k];
    unsigned marks = frame_mark[frame], fresh = marks & TURNS & ~met;
    hr_stage stated = stated_stage(s, &s->frames[frame]);
    if (!python && marks & FRAME_PYTHON) info.own = marks & FRAME_OWN;
    python = python || marks & FRAME_PYTHON;
    if (!info.own_frame && marks & FRAME_OWN) info.own_frame = frame + 1;
    if (stated) info.stage = (uint8_t)stated; /* the outermost: a tensor may be called "loss" */
    /* What is built within a step is no building of the model. */
    if (marks & HRI_MARK_INIT && all & TURNS) marks &= ~(unsigned)HRI_MARK_INIT;
    all |= marks & ~(unsigned)HRI_MARK_NATIVE;
    met |= fresh;
    if (fresh) turns[turn_count++] = fresh;
    if (marks & HRI_MARK_FORWARD) info.site = 0, calling = true;
    else if (calling && !(marks & HRI_MARK_NATIVE)) info.site = frame + 1, calling = false;
  }
  if (met) all &= ~(unsigned)HRI_MARK_INIT;
  info.marks = (uint16_t)all;
  if (!info.stage) info.stage = (uint8_t)stage_of(all, turns, turn_count);
  return info;
}

bool hri_stack_is_own(const hr_snapshot *s, uint32_t stack) {
  const hr_stack *at = &s->stacks[stack];
  for (uint32_t k = 0; k < at->count; k++) {
    const unsigned marks = frame_marks(s, &s->frames[s->stack_frames[at->first + k]]);
    if (marks & FRAME_PYTHON) return marks & FRAME_OWN;
  }
  return false;
}

/* ---- steps in labels ---- */

/* "step 7" of a frame of ours (hr_alloc_set_label) makes stacks of different steps different: `plain` joins them
 * again. */
static uint32_t stated_step(const hr_snapshot *s, const hr_frame *frame) {
  const char *name = hr_snapshot_string(s, frame->name);
  if (strncmp(name, "step ", 5) != 0 || strcmp(hr_snapshot_string(s, frame->file), "headroom") != 0) return 0;
  return (uint32_t)strtoul(name + 5, NULL, 10);
}

static uint64_t plain_hash(const hr_snapshot *s, const hr_stack *stack) {
  uint64_t h = 0x9e3779b97f4a7c15u;
  for (uint32_t k = 0; k < stack->count; k++) {
    uint32_t frame = s->stack_frames[stack->first + k];
    if (stated_step(s, &s->frames[frame])) continue;
    h = (h ^ frame) * 0xff51afd7ed558ccdu;
    h ^= h >> 32;
  }
  return h;
}

typedef struct stepped {
  uint64_t hash;
  uint32_t stack;
} stepped;

static int stepped_order(const void *a, const void *b) {
  const stepped *x = a, *y = b;
  if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
  return (x->stack > y->stack) - (x->stack < y->stack);
}

static bool join_steps(const hr_snapshot *s, hri_stack_info *stacks) {
  HRI_ARRAY(stepped) rows = {0};
  bool ok = true;
  for (uint32_t k = 0; k < s->stack_count && ok; k++) {
    stacks[k].plain = k;
    for (uint32_t n = 0; n < s->stacks[k].count; n++) {
      uint32_t step = stated_step(s, &s->frames[s->stack_frames[s->stacks[k].first + n]]);
      if (step) stacks[k].step = step;
    }
    if (stacks[k].step) ok = hri_array_push(&rows, ((stepped){plain_hash(s, &s->stacks[k]), k}));
  }
  if (ok && rows.count) qsort(rows.items, rows.count, sizeof *rows.items, stepped_order);
  for (size_t k = 1; ok && k < rows.count; k++)
    if (rows.items[k].hash == rows.items[k - 1].hash)
      stacks[rows.items[k].stack].plain = stacks[rows.items[k - 1].stack].plain;
  hri_array_free(&rows);
  return ok;
}

hr_status hri_stacks_read(const hr_snapshot *s, hri_stack_info **stacks, hr_error *error) {
  uint32_t *marks = hri_alloc_zero((size_t)s->frame_count + 1, sizeof *marks);
  *stacks = hri_alloc_zero((size_t)s->stack_count + 1, sizeof **stacks);
  if (!marks || !*stacks) {
    hri_free(marks);
    return hri_fail_memory(error, s->stack_count * sizeof **stacks, "the stacks of a snapshot");
  }
  for (uint32_t k = 0; k < s->frame_count; k++) marks[k] = frame_marks(s, &s->frames[k]);
  for (uint32_t k = 0; k < s->stack_count; k++) (*stacks)[k] = read_stack(s, &s->stacks[k], marks);
  hri_free(marks);
  if (join_steps(s, *stacks)) return HR_OK;
  hri_free(*stacks);
  *stacks = NULL;
  return hri_fail_memory(error, s->stack_count * sizeof(stepped), "the stacks of a snapshot");
}

const char *hr_stage_name(hr_stage stage) {
  static const char *const names[HR_STAGE_COUNT] = {"unknown",  "init",          "forward",    "loss",
                                                    "backward", "optimizer",     "evaluation", "generation",
                                                    "data",     "communication", "checkpoint", "between steps"};
  return (unsigned)stage < HR_STAGE_COUNT ? names[stage] : "unknown";
}

/* ---- for people ---- */

/* "at::_ops::linear::call(at::Tensor const&...)" -> "linear"; NULL when the frame names no operation. */
static const char *operation_of(const char *name, size_t *count) {
  static const char *const before[] = {"at::_ops::", "at::native::", "torch::autograd::generated::", "at::"};
  for (size_t k = 0; k < sizeof before / sizeof *before; k++) {
    const char *at = strstr(name, before[k]);
    if (!at) continue;
    at += strlen(before[k]);
    *count = strcspn(at, "(<: ");
    /* Allocation itself is in every stack, and so is dispatch. */
    if (*count == 0 || *count > 40 || strncmp(at, "empty", 5) == 0 || strncmp(at, "detail", 6) == 0 ||
        strncmp(at, "impl", 4) == 0 || strncmp(at, "cuda", 4) == 0 || strncmp(at, "TensorIterator", 14) == 0 ||
        strncmp(at, "structured", 10) == 0 || strncmp(at, "CUDA", 4) == 0 || strncmp(at, "meta::", 6) == 0)
      return NULL;
    return at;
  }
  return NULL;
}

static const char *short_file(const char *file) {
  const char *last = strrchr(file, '/');
  return last ? last + 1 : file;
}

/* What PyTorch's own Python calls an operation: "cross_entropy", "nn.linear" of a module's forward (its file: the class
 * is not in a frame), "adam._init_group". Empty: nothing worth naming. */
static void torch_call(const view *v, char text[HRI_OPERATION_BYTES]) {
  static const char *const plumbing[] = {"_call_impl",    "_wrapped_call_impl",
                                         "_slow_forward", "_apply",
                                         "convert",       "inner",
                                         "<lambda>"};
  const char *base = short_file(v->file);
  int stem = (int)strcspn(base, ".");
  text[0] = 0;
  if (stem > 40) return;
  if (strstr(v->file, "torch/nn/modules/module.py")) {
    for (size_t k = 0; k < sizeof plumbing / sizeof *plumbing; k++)
      if (strcmp(v->name, plumbing[k]) == 0) return;
    (void)snprintf(text, HRI_OPERATION_BYTES, "%.60s", v->name);
  } else if (strstr(v->file, "torch/nn/modules/")) {
    if (strcmp(v->name, "forward") == 0) (void)snprintf(text, HRI_OPERATION_BYTES, "nn.%.*s", stem, base);
    else (void)snprintf(text, HRI_OPERATION_BYTES, "nn.%.*s.%.40s", stem, base, v->name);
  } else if (strstr(v->file, "torch/optim/"))
    (void)snprintf(text, HRI_OPERATION_BYTES, "%.*s.%.40s", stem, base, v->name);
  else if (strstr(v->file, "torch/nn/functional.py") || strstr(v->file, "torch/functional.py") ||
           strstr(v->file, "torch/_tensor.py") || strstr(v->file, "torch/nn/init.py") ||
           strstr(v->file, "torch/nn/utils/") || strstr(v->file, "torch/autograd/"))
    (void)snprintf(text, HRI_OPERATION_BYTES, "%.60s", v->name);
}

typedef struct writing {
  char *text;
  size_t used, capacity;
} writing;

static void write_after(writing *w, const char *separator, const char *part, size_t count) {
  size_t room = w->capacity - 1 - w->used;
  if (w->used) {
    size_t length = strlen(separator), take = room < length ? room : length;
    memcpy(w->text + w->used, separator, take);
    w->used += take;
    room -= take;
  }
  if (count > room) count = room;
  while (count > 0 && count == room && ((unsigned char)part[count] & 0xC0) == 0x80) count--; /* no half characters */
  memcpy(w->text + w->used, part, count);
  w->used += count;
  w->text[w->used] = 0;
}

static void write_part(writing *w, const char *part, size_t count) { write_after(w, " < ", part, count); }

enum { FRAME_BYTES = 200, MOST_FRAMES = 8 };

static void frame_text(const view *v, char part[FRAME_BYTES]) {
  const char *file = short_file(v->file);
  if (file[0]) (void)snprintf(part, FRAME_BYTES, "%.80s:%u %.80s", file, v->line, v->name);
  else (void)snprintf(part, FRAME_BYTES, "%.120s", v->name);
}

static void write_frame(writing *w, const view *v) {
  char part[FRAME_BYTES];
  frame_text(v, part);
  write_part(w, part, strlen(part));
}

/* The operation that a library's frame names; empty: none worth naming. */
static void library_call(const view *v, char text[HRI_OPERATION_BYTES]) {
  static const char built_in[] = "<built-in method ";
  const char *name = v->name;
  size_t count = 0;
  if (strncmp(name, built_in, sizeof built_in - 1) == 0) {
    name += sizeof built_in - 1;
    count = strcspn(name, " ");
  } else if (!strstr(name, "::")) {
    torch_call(v, text);
    return;
  } else name = operation_of(name, &count);
  (void)snprintf(text, HRI_OPERATION_BYTES, "%.*s", name ? (int)(count < 60 ? count : 60) : 0, name ? name : "");
}

/* "layers.0.gate_up  linear, layer 0, forward": the tensor's name, then what else a label of ours tells. */
static void write_label(writing *w, const hr_snapshot *s, const hr_stack *at) {
  char held[HRI_NAME_BYTES];
  for (uint32_t k = 0; k < at->count; k++) {
    const char *name = bounded(hr_snapshot_string(s, s->frames[s->stack_frames[at->first + k]].name), held);
    write_after(w, k == 1 ? "  " : ", ", name, strlen(name));
  }
}

/* Of the frames before the program's own: the outermost of the C++ operators that were called one in the other
 * ("linear", not the "addmm" that it calls), else what the innermost of PyTorch's Python says. */
static void find_operation(const hr_snapshot *s, const hr_stack *at, char operation[HRI_OPERATION_BYTES]) {
  bool python = false;
  view v;
  operation[0] = 0;
  for (uint32_t k = 0; k < at->count; k++) {
    char found[HRI_OPERATION_BYTES] = "";
    bool native;
    view_frame(s, &s->frames[s->stack_frames[at->first + k]], &v);
    if (!is_library(v.file, v.name)) return;
    native = strstr(v.name, "at::_ops::") || strstr(v.name, "torch::autograd::generated::");
    python = python || ends_with(v.file, ".py");
    if (operation[0] && (python || !native)) continue;
    library_call(&v, found);
    if (found[0]) memcpy(operation, found, sizeof found);
  }
}

void hri_stack_operation(const hr_snapshot *s, uint32_t stack, char operation[HRI_OPERATION_BYTES]) {
  find_operation(s, &s->stacks[stack], operation);
}

/* The operation, and of the frames that are neither PyTorch's nor the interpreter's the innermost ones; the last of
 * these is the innermost of the user's own where none of them would be. */
typedef struct brief {
  char operation[HRI_OPERATION_BYTES], frames[MOST_FRAMES][FRAME_BYTES];
  unsigned count, own; /* own: the innermost of the user's; count: none */
} brief;

static void find_frames(const hr_snapshot *s, const hr_stack *at, unsigned wanted, brief *b) {
  bool own = false;
  view v;
  b->count = b->own = 0;
  for (uint32_t k = 0; k < at->count && !(b->count == wanted && (own || wanted < 2)); k++) {
    view_frame(s, &s->frames[s->stack_frames[at->first + k]], &v);
    if (is_library(v.file, v.name) || (b->count == wanted && !is_own(&v))) continue;
    if (b->count == wanted) b->count--; /* it stands in place of the last */
    if (is_own(&v) && !own) b->own = b->count, own = true;
    frame_text(&v, b->frames[b->count++]);
  }
  if (!own) b->own = b->count;
}

static size_t brief_length(const brief *b, unsigned count) {
  size_t length = b->operation[0] ? strlen(b->operation) + 3 : 0;
  for (unsigned k = 0; k < count; k++) length += strlen(b->frames[k]) + 3;
  return length ? length - 3 : 0;
}

/* The user's own frame stands whatever the room: the packages' before it go, then the operation. What is behind it is
 * cut off like any text. */
static void fit_brief(brief *b, size_t room) {
  if (b->own == b->count) return;
  while (b->own > 0 && brief_length(b, b->own + 1) > room) {
    for (unsigned k = b->own; k < b->count; k++) memcpy(b->frames[k - 1], b->frames[k], FRAME_BYTES);
    b->own--;
    b->count--;
  }
  if (brief_length(b, 1) > room && strlen(b->frames[0]) <= room) b->operation[0] = 0;
}

static void describe(const hr_snapshot *s, uint32_t stack, unsigned frames, char *text, size_t capacity) {
  const hr_stack *at = &s->stacks[stack];
  writing w = {text, 0, capacity};
  brief b;
  view v;
  text[0] = 0;
  if (!at->count) write_part(&w, "(no stack)", 10);
  if (at->count && is_ours(hr_snapshot_string(s, s->frames[s->stack_frames[at->first]].file))) {
    write_label(&w, s, at);
    return;
  }
  find_operation(s, at, b.operation);
  find_frames(s, at, frames < MOST_FRAMES ? frames : MOST_FRAMES, &b);
  fit_brief(&b, capacity - 1);
  if (b.operation[0]) write_part(&w, b.operation, strlen(b.operation));
  for (unsigned k = 0; k < b.count; k++) write_part(&w, b.frames[k], strlen(b.frames[k]));
  if (w.used || !at->count) return;
  view_frame(s, &s->frames[s->stack_frames[at->first + at->count - 1]], &v);
  write_frame(&w, &v);
}

void hri_stack_text(const hr_snapshot *s, uint32_t stack, unsigned frames, char *text, size_t capacity) {
  describe(s, stack, frames, text, capacity);
  hri_plain_text(text, "");
}

void hr_inspect_stack_text(const hr_snapshot *s, uint32_t stack, char *text, size_t capacity) {
  hri_stack_text(s, stack, 2, text, capacity);
}
