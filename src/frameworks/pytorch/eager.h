/* Eager PyTorch without numbers: tensors that are only sizes, autograd's graph, and the requests that come of both.
 *
 * PyTorch makes a tensor when an op runs and gives its bytes back when the last reference goes: of Python's variables,
 * of autograd's saved tensors, of gradients on their way. Nothing plans it, so nothing but doing it in the same order
 * tells what is alive when. The rules of modules (module.c, attention.c, ...) therefore read like the Python that they follow,
 * and each reference that Python holds is held here: `hri_ten_keep` where a variable is bound, `hri_ten_drop` where it is
 * bound anew or its function returns.
 *
 * What comes out is a list of requests (hri_torch_request), in order: the framework's program. It goes through an
 * allocator with PyTorch's policy afterwards (replay.c), so that one list serves for any of its settings.
 *
 * A failure (no memory for the lists) is sticky: everything goes on as a no-op and hri_torch_failed tells.
 * Sources: pytorch/pytorch torch/csrc/autograd/{engine,input_buffer,functions/accumulate_grad}.{cpp,h},
 * tools/autograd/derivatives.yaml. */
#ifndef HRI_PYTORCH_EAGER_H
#define HRI_PYTORCH_EAGER_H

#include <stdbool.h>
#include <stdint.h>

#include <headroom/plan.h>

#include "base/mem.h"

typedef enum hri_ten_type { HRI_F32 = 0, HRI_BF16, HRI_F16, HRI_I64, HRI_I32, HRI_U8, HRI_BOOL } hri_ten_type;
/* Results: as many chunks as a head may have. */
enum { HRI_TEN_DIMS = 5, HRI_FN_EDGES = 8, HRI_FN_SAVED = 10, HRI_FN_HELD = 4, HRI_FN_RESULTS = 32 };

typedef struct hri_torch hri_torch;
typedef struct hri_ten hri_ten;
typedef struct hri_fn hri_fn;
typedef struct hri_aten_device hri_aten_device; /* device.h */

/* A request: the bytes of a storage that begins, or its end. `what` is what it is for. */
typedef struct hri_torch_label {
  const char *op;     /* static: the op that made it, "mm", "native_layer_norm", ... */
  const char *module; /* static: where, "self_attn.q_proj", "loss", ... */
  int32_t layer;      /* -1: of no layer */
  uint8_t phase;      /* hri_torch_phase */
  uint8_t stream;     /* that it is made on: 0 is the usual one */
} hri_torch_label;

typedef enum hri_torch_phase {
  HRI_TORCH_LOAD = 0,
  HRI_TORCH_FORWARD,
  HRI_TORCH_LOSS,
  HRI_TORCH_BACKWARD,
  HRI_TORCH_CLIP,
  HRI_TORCH_OPTIMIZER,
  HRI_TORCH_ZERO_GRAD,
  HRI_TORCH_EVALUATE, /* behind the last step; its losses are in it */
  HRI_TORCH_PHASES
} hri_torch_phase;

typedef struct hri_torch_request {
  uint64_t bytes;   /* 0: the storage ends */
  uint32_t storage; /* the same number at its begin and at its end; 0: torch.cuda.empty_cache() */
  uint32_t label;   /* of hri_torch.labels */
} hri_torch_request;

/* What a storage is for, for people: the words of plans. */
typedef struct hri_torch_storage {
  uint32_t refs;
  uint8_t role; /* hr_role */
} hri_torch_storage;

/* Where a step, a phase begins: an index into the requests. */
typedef struct hri_torch_mark {
  uint64_t request;
  uint32_t step; /* from 1; 0: before the first */
  hri_torch_phase phase;
} hri_torch_mark;

typedef struct hri_ten_shape {
  uint32_t rank;
  uint64_t dims[HRI_TEN_DIMS];
} hri_ten_shape;

struct hri_ten {
  uint32_t refs, storage; /* storage 0: no bytes of this device (scalars of Python, empty tensors) */
  hri_ten_type type;
  hri_ten_shape shape;
  bool requires_grad, parameter;
  bool turned;        /* a gradient whose elements lie in another order than its leaf's: that copies it */
  uint32_t place;     /* of a parameter: among those that its owner lists (ddp.h) */
  uint8_t stream;     /* of a leaf: that its gradients are added on */
  uint8_t output;     /* of `made_by`: which of its results */
  hri_fn *made_by;    /* grad_fn; NULL of leaves */
  hri_fn *accumulate; /* of a leaf: its AccumulateGrad, while a graph has one (no reference) */
  hri_ten *grad;      /* of a leaf */
  hri_ten *base;      /* of a view that a backward made: the tensor it shows, which lives as long */
  hri_ten *cast;      /* of a parameter under autocast: its copy in the cache */
};

/* A function of autograd's graph. `apply` gets the gradients of the results (borrowed; NULL: undefined) and sets those
 * of the inputs (new references; NULL: none). */
typedef void hri_fn_apply(hri_torch *torch, hri_fn *fn, hri_ten *const *gradients, hri_ten **inputs);
/* What takes over the saved tensors of the functions that are made while it is packing, and gives each back when it is
 * asked for: a checkpointed region (checkpoint.c). The graph calls it through its own functions and knows no more of it. */
typedef struct hri_frame hri_frame;
typedef struct hri_frame_calls {
  uint32_t (*pack)(hri_torch *torch, hri_frame *frame); /* one more; its index */
  void (*remade)(hri_torch *torch, hri_frame *frame, hri_ten *tensor);
  hri_ten *(*unpack)(hri_torch *torch, hri_frame *frame, uint32_t index); /* a new reference */
  void (*forget)(hri_torch *torch, hri_frame *frame, uint32_t index);
  void (*release)(hri_frame *frame); /* its memory, where nobody asks any more (hri_torch_deinit) */
} hri_frame_calls;
struct hri_frame {
  const hri_frame_calls *calls;
  hri_frame *before, *after; /* of hri_torch.frames */
};
typedef struct hri_saved {
  hri_ten *tensor;  /* NULL where a frame makes it again */
  hri_frame *frame; /* NULL: kept */
  uint32_t index;   /* of the frame's saved tensors */
} hri_saved;
struct hri_fn {
  uint32_t refs;
  uint64_t sequence;
  hri_fn_apply *apply;
  hri_fn *next[HRI_FN_EDGES]; /* one edge for each input; NULL: needs no gradient */
  uint8_t next_output[HRI_FN_EDGES];
  uint32_t edge_count, saved_count, result_count;
  hri_saved saved[HRI_FN_SAVED];
  hri_ten_shape shapes[HRI_FN_EDGES]; /* of the inputs, which gradients are summed to */
  hri_ten_type types[HRI_FN_EDGES];   /* of the inputs, which gradients are cast to */
  hri_ten *leaf;                      /* AccumulateGrad: whose, a reference */
  uint64_t numbers[4];                /* what the op needs to know of itself */
  uint32_t label;
  hri_ten *held[HRI_FN_HELD]; /* what lives as long as the function, without being saved by it */
  void (*before)(hri_torch *torch,
                 void *context); /* tensor.register_hook on its result: called when the gradient is there; NULL: none */
  void *before_context;
  /* of one pass of the engine */
  uint32_t waiting;
  uint64_t pass;
  hri_ten *buffer[HRI_FN_RESULTS];
};

struct hri_torch {
  HRI_ARRAY(hri_torch_request) requests;
  HRI_ARRAY(hri_torch_label) labels;
  HRI_ARRAY(hri_torch_mark) marks;
  HRI_ARRAY(hri_torch_storage) storages;
  HRI_ARRAY(hri_ten *) spare_tensors;
  HRI_ARRAY(hri_fn *) spare_fns;
  HRI_ARRAY(void *) blocks; /* where tensors and functions lie */
  hri_torch_label label;    /* of what is made now */
  uint32_t label_index;     /* of `label` in `labels`; UINT32_MAX: not there yet */
  uint64_t sequence, pass;
  uint32_t step;
  bool grad_mode;    /* torch.is_grad_enabled() */
  uint32_t engines;  /* backwards that run, one within the other with reentrant checkpointing */
  bool meta;         /* what is made has no bytes yet (device "meta"): hri_ten_materialize gives it some */
  bool stopped;      /* a recomputation has all that it was for: what runs on is never executed in PyTorch */
  hri_frame *frames; /* all that are there */
  hri_frame *packing, *remaking; /* the frame whose forward runs; the one that is made again */
  hri_ten_type autocast;         /* HRI_F32: off */
  HRI_ARRAY(hri_ten *) casts;    /* parameters whose cast is cached */
  /* The hook behind AccumulateGrad, of whoever exchanges gradients with other ranks; NULL: none. */
  void (*accumulated)(hri_torch *torch, void *context, hri_ten *leaf);
  void *accumulated_context;
  uint64_t host_bytes;                     /* of parameters, or this rank's parts of them, that are kept on the host */
  uint64_t host_buffer_bytes;              /* beside them, their gradients and states: what is copied through */
  uint64_t parameter_count, trained_count; /* elements of the model's parameters, of those that train */
  bool failed;
  bool beyond;             /* a tensor is larger than HRI_TORCH_MOST_BYTES: what follows from it is not exact */
  hri_aten_device *device; /* what kernels ask for beyond their results; NULL: nothing */
};

/* Of a tensor, and of all that live at once. Beyond it addresses run out (alloc/hooks_fake.c), and PyTorch itself
 * refuses a request that is twice as large. */
static const uint64_t HRI_TORCH_MOST_BYTES = UINT64_C(1) << 59;

void hri_torch_init(hri_torch *torch);
void hri_torch_deinit(hri_torch *torch);

/* Where what is made from here on is. NULL and -2 leave a part as it is. */
void hri_torch_at(hri_torch *torch, const char *module, int32_t layer);
/* with torch.cuda.stream(...): what is made from here on is made on it. */
void hri_torch_on_stream(hri_torch *torch, uint8_t stream);
/* From here on a phase (of the current step). */
void hri_torch_phase_begin(hri_torch *torch, hri_torch_phase phase);

/* torch.cuda.empty_cache() */
void hri_torch_empty_cache(hri_torch *torch);

/* ---- tensors ---- */

uint64_t hri_ten_type_bytes(hri_ten_type type);
uint64_t hri_ten_count(const hri_ten *tensor); /* elements */
uint64_t hri_ten_bytes(const hri_ten *tensor);
hri_ten_shape hri_ten_shape_of(uint32_t rank, uint64_t a, uint64_t b, uint64_t c, uint64_t d);

/* A new tensor with bytes of its own, reference count 1, no gradient. */
hri_ten *hri_ten_make(hri_torch *torch, const char *op, hri_ten_type type, hri_ten_shape shape);
hri_ten *hri_ten_like(hri_torch *torch, const char *op, const hri_ten *tensor, hri_ten_type type);
/* The same of one dimension. */
hri_ten *hri_ten_flat(hri_torch *torch, const char *op, hri_ten_type type, uint64_t count);
/* Another tensor over the same bytes, out of autograd's sight (detach). */
hri_ten *hri_ten_view(hri_torch *torch, hri_ten *tensor, hri_ten_shape shape);
/* The same as an op in a backward makes it: PyTorch's views hold their base also without gradient, so that nobody is the
 * only holder of such bytes, and a gradient that is a view is never added to in place. */
hri_ten *hri_ten_view_in_backward(hri_torch *torch, hri_ten *tensor, hri_ten_shape shape);
/* A tensor that was made without bytes gets them now. */
void hri_ten_materialize(hri_torch *torch, const char *op, hri_ten *tensor);
/* The same with more bytes than its shape takes (a view of a padded storage), and the way back: untyped_storage().resize_(0). Of tensors whose
 * storage nobody else holds. */
void hri_ten_give_bytes(hri_torch *torch, const char *op, hri_ten *tensor, uint64_t bytes);
void hri_ten_take_bytes(hri_torch *torch, hri_ten *tensor);
/* tensor.data = a view of other's bytes: the old ones go. */
void hri_ten_show(hri_torch *torch, hri_ten *tensor, const hri_ten *other);
/* tensor.data = tensor.data.to(type): the same tensor over other bytes; the old ones go when the new are there. */
void hri_ten_retype(hri_torch *torch, hri_ten *tensor, hri_ten_type type);
/* A parameter: a leaf that lives until it is dropped. */
hri_ten *hri_ten_parameter(hri_torch *torch, hri_ten_type type, hri_ten_shape shape, bool requires_grad);
/* What a tensor is for, where it is not what its phase says. */
void hri_ten_role(hri_torch *torch, const hri_ten *tensor, hr_role role);
hri_ten *hri_ten_keep(hri_ten *tensor); /* one reference more; NULL is fine */
void hri_ten_drop(hri_torch *torch, hri_ten *tensor);
/* Binds a variable anew: drops what it held, after the new value is there. */
void hri_ten_set(hri_torch *torch, hri_ten **variable, hri_ten *value);

/* ---- autograd ---- */

/* A function for an op over `inputs` (NULL entries: no tensor), or NULL where none needs a gradient. It holds the edges;
 * the op then saves what its backward reads, makes its result, and binds it. */
hri_fn *hri_fn_make(hri_torch *torch, hri_fn_apply *apply, hri_ten *const *inputs, uint32_t count);
/* The index-th input of the op needs a gradient. */
bool hri_fn_needs(const hri_fn *fn, uint32_t index);
void hri_fn_save(hri_torch *torch, hri_fn *fn, hri_ten *tensor); /* fn NULL: nothing */
/* A result that its own backward reads: as a tensor of its own over the same bytes, else it would hold itself. */
void hri_fn_save_result(hri_torch *torch, hri_fn *fn, hri_ten *result);
/* `result` is the function's next result, and comes back. fn NULL: nothing. Its reference of the maker goes over to the result. */
hri_ten *hri_fn_bind(hri_torch *torch, hri_fn *fn, hri_ten *result);
/* What was saved, in a backward: a new reference, made again where it was not kept. */
hri_ten *hri_fn_saved(hri_torch *torch, hri_fn *fn, uint32_t index);

/* loss.backward(): runs the graph behind `root`, whose gradient is ones, or `gradient` (taken). */
void hri_torch_backward(hri_torch *torch, hri_ten *root, hri_ten *gradient);

#endif
