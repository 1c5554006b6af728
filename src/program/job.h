/* The representation: programs as data.
 *
 *   program   an ordered list of nodes; no loops, branches, nested programs or data-dependent sizes
 *   node      one instruction: an op, operands, attributes, labels, waits
 *   operand   a tensor and how the node touches it
 *   tensor    a typed view of a storage
 *   storage   a byte range with one life: the unit of placement
 *   job       the set of programs, with one storage table
 *
 * (The public hr_job is a job in words; hri_job is what it compiles to.)
 *
 * Values. Every storage starts as the home of exactly one SSA value. Passes that merge storages (inplace, layout) keep
 * the value of each tensor, so that the check can still tell whether a read sees what its producer wrote.
 *
 * Identity. Node, tensor and storage ids are indices that never change; passes rewrite the issue order of a program
 * (`order`) and leave dead nodes behind. A pass may not call a kernel or the executor. */
#ifndef HRI_PROGRAM_JOB_H
#define HRI_PROGRAM_JOB_H

#include <assert.h>

#include "base/mem.h"
#include "base/real.h"

#define HRI_NONE 0xFFFFFFFFu /* no tensor, node, storage, unit, name */
enum {
  HRI_MAX_RANK = 5,
  HRI_STORAGE_ALIGN = 256,
  HRI_SEGMENT_ALIGN_ELEMENTS = 256,
  HRI_VOCABULARY_ALIGN = 64,
  HRI_STATE_TENSORS = 4
};

/* Types of elements. Those from U4 on are blocks: so many elements in so many bytes (a block scale may be among them),
 * in rows of whole blocks. Quantized weights are several plain tensors (codes, scales, offsets) or one tensor of blocks
 * as GGUF files have them; there is no compound tensor: a segment carries what belongs together, and one op reads
 * it. */
typedef enum hri_dtype {
  HRI_F32 = 0,
  HRI_BF16,
  HRI_F16,
  HRI_F64,
  HRI_I32,
  HRI_I64,
  HRI_U8,
  HRI_I8,
  HRI_F32_LOW, /* the low halves of fp32 numbers whose high ones stand, rounded, in a bf16 tensor (hri_split) */
  HRI_U4,      /* codes of 4 bits, two in a byte, the even element in the low half */
  HRI_Q4_0,    /* and the next ones: GGUF's blocks */
  HRI_Q4_1,
  HRI_Q5_0,
  HRI_Q5_1,
  HRI_Q8_0,
  HRI_Q4_K,
  HRI_Q5_K,
  HRI_Q6_K,
  HRI_Q2_K,
  HRI_Q3_K,
  HRI_IQ4_NL,
  HRI_IQ4_XS,
  HRI_DTYPE_COUNT
} hri_dtype;
typedef enum hri_tier { HRI_DEVICE = 0, HRI_HOST, HRI_DISK, HRI_TIER_COUNT } hri_tier;

typedef enum hri_role {
  HRI_ROLE_WEIGHT = 0,
  HRI_ROLE_MASTER_WEIGHT,
  HRI_ROLE_GRADIENT,
  HRI_ROLE_OPTIMIZER_STATE,
  HRI_ROLE_ACTIVATION,
  HRI_ROLE_LOGITS,
  HRI_ROLE_WORKSPACE,
  HRI_ROLE_INPUT,
  HRI_ROLE_QUANTIZATION,
  HRI_ROLE_COMMUNICATION,
  HRI_ROLE_CACHE,
  HRI_ROLE_CONTROL,
  HRI_ROLE_COUNT
} hri_role;

/* Programs in the order of the virtual timeline on which a job is placed. */
typedef enum hri_program_kind {
  HRI_LOAD = 0,
  HRI_BEGIN,
  HRI_MICRO,
  HRI_UPDATE,
  HRI_STEP,
  HRI_EVALUATE,
  HRI_PREFILL,
  HRI_DECODE,
  HRI_SAVE,
  HRI_PROGRAM_COUNT
} hri_program_kind;
#define HRI_IN(kind) (1u << (kind))

typedef enum hri_lane {
  HRI_COMPUTE = 0,
  HRI_COPY_IN,
  HRI_COPY_OUT,
  HRI_COMMUNICATION_LANE,
  HRI_DISK_LANE,
  HRI_HOST_LANE,
  HRI_LANE_COUNT
} hri_lane;

typedef enum hri_phase {
  HRI_PHASE_LOAD = 0,
  HRI_PHASE_FORWARD,
  HRI_PHASE_LOSS,
  HRI_PHASE_BACKWARD,
  HRI_PHASE_OPTIMIZER,
  HRI_PHASE_EVALUATE,
  HRI_PHASE_GENERATE,
  HRI_PHASE_SAVE,
  HRI_PHASE_COUNT
} hri_phase;

/* ADD accumulates into what is there (or what another program left); UPDATE reads and rewrites; SCRATCH is undefined
 * before and after. A value has one producer that WRITEs it; an ADD is a further one (a LoRA's share of a result). Into
 * an activation all ADDs come before its first reader, so that whoever reads it sees all of it (rule 1). */
typedef enum hri_access {
  HRI_READ = 0,
  HRI_WRITE,
  HRI_ADD,
  HRI_UPDATE_ACCESS,
  HRI_SCRATCH,
  HRI_ACCESS_COUNT
} hri_access;

typedef enum hri_layout { HRI_PLAIN = 0, HRI_PACKED } hri_layout;

typedef uint32_t hri_id;

typedef struct hri_storage {
  uint64_t bytes;
  uint32_t align;
  uint8_t tier, role;
  uint16_t scope;  /* HRI_IN(..) of the programs that carry it; 0 = local */
  uint8_t program; /* the one program of a local storage */
  bool dead;       /* merged into another storage by a pass */
  bool wide;       /* its value stays fp32 in every precision */
  bool transient;  /* its value is made again before each use and dies behind it, at every level of recomputation */
  int32_t layer;   /* label; -1 none */
  uint32_t unit, segment; /* HRI_NONE when it belongs to none */
  uint32_t key;           /* stable name: offset into job->names */
} hri_storage;

/* A view shows its storage's bytes in rows of stored[rank - 1] elements: one behind the other, or, with a stride, so
 * many elements apart (a column view: q of a fused qkv). That is the only stride there is. */
typedef struct hri_tensor {
  hri_id storage;
  hri_id value;          /* the SSA value that it shows (the storage it was born in) */
  uint64_t offset;       /* bytes into the storage */
  uint64_t value_offset; /* bytes into the value */
  uint8_t dtype, rank, layout;
  uint32_t key;                        /* name */
  uint64_t dims[HRI_MAX_RANK];         /* logical */
  uint64_t stored[HRI_MAX_RANK];       /* with padding */
  uint64_t stride;                     /* elements from row to row of a column view; 0: contiguous in `stored` */
  uint32_t member_begin, member_count; /* a group: the tensors that it stands for, in job->members; count 0: itself */
} hri_tensor;

/* Operands stand at the positions that program/ops.h fixes per op; an absent optional one holds HRI_NONE. */
typedef struct hri_operand {
  hri_id tensor;
  uint8_t access;
} hri_operand;

typedef struct hri_wait {
  uint8_t lane;
  hri_id node;
} hri_wait;

/* Attributes: their meaning is fixed per op (program/ops.h). Nothing that changes from step to step stands here. */
typedef struct hri_attr {
  int64_t i[8];
  double f[5];
} hri_attr;

typedef struct hri_node {
  uint16_t op;
  uint8_t lane, phase, program, pass;
  int32_t layer;
  uint32_t unit;
  uint32_t operand_begin, operand_count;
  uint32_t wait_begin, wait_count;
  hri_id origin; /* the node that this one recomputes; HRI_NONE */
  uint32_t site; /* RNG and label identity; a clone shares its origin's */
  hri_attr attr;
} hri_node;

/* Parameters, from the whole to what a node acts on.
 *
 *   param    one tensor of the programs: a fused weight is one product. Its weight is contiguous, whatever its parts
 *   are part     a tensor of the model's files: rows of a parameter (q, k, v of qkv; gate, up; biases too). The
 *            smallest thing that is trained, adapted, quantized or decayed alone, or has states of its own
 *   range    parts of a parameter side by side with equal properties, whose states lie in one piece. A part whose kind
 *            of state has blocks is a range alone, so that no block crosses it
 *   run      the trainable rows of a parameter side by side: one gradient tensor each, and nothing for frozen rows
 *   segment  the ranges of one unit with equal properties and types: a storage for each thing that they have. Updates,
 *            norms, transfers, sharding and offload act on (segment, ranges)
 *
 * By default the parts of a parameter are equal: it has one range and one run, which are all of it. */
typedef struct hri_part {
  uint32_t param, key; /* name in the model's files; of the parameter in programs built from ops */
  uint64_t row, rows;  /* of the parameter's logical rows */
  bool trainable, decay;
  uint8_t state_kind, quantization; /* state_kind: a row of program/optimizer.h; of no meaning when frozen */
} hri_part;

typedef struct hri_param_range {
  uint32_t param, segment, part_begin, part_count;
  uint64_t row, rows;       /* of the parameter's stored rows: padding belongs to the last range */
  uint64_t first, elements; /* the same in elements */
  uint64_t offset;          /* of its states in the segment's, elements; a multiple of HRI_SEGMENT_ALIGN_ELEMENTS */
  hri_id weight, gradient;  /* tensors, row views of the parameter's and of its run's; gradient HRI_NONE when frozen */
  /* Tensors of its own; HRI_NONE when absent. Of a bf16 weight the low halves of its master. */
  hri_id master, state[HRI_STATE_TENSORS];
} hri_param_range;

typedef struct hri_param_run {
  uint64_t row, rows; /* of the parameter's stored rows */
  hri_id gradient;
} hri_param_run;

typedef struct hri_segment {
  uint32_t unit;
  int32_t layer;
  uint8_t dtype, quantization, state_kind;
  bool trainable, decay;
  uint64_t elements; /* of its ranges, each padded to HRI_SEGMENT_ALIGN_ELEMENTS */
  hri_id weight, gradient, master, state[HRI_STATE_TENSORS]; /* storages; HRI_NONE when absent */
  uint32_t range_begin, range_count;                         /* in job->laid_out */
} hri_segment;

typedef struct hri_param {
  uint32_t key, spec; /* name; index in the model's parameter table, HRI_NONE for programs built from ops */
  int32_t layer;
  uint32_t unit;  /* HRI_NONE: of no block, so that it is a segment alone */
  bool trainable; /* some of it is */
  uint8_t init;
  double init_std;
  uint64_t elements; /* stored */
  uint32_t site;
  hri_id weight;                /* tensor; of a quantized parameter only the load program has it */
  hri_id codes, absmax, nested; /* tensors of a quantized one (program/quantization.h); HRI_NONE */
  hri_attr quantized;           /* what its QUANTIZE and DEQUANTIZE nodes say */
  bool stored_quantized;        /* files hold codes, absmax, nested: no node has the weight */
  uint32_t part_begin, part_count, range_begin, range_count, run_begin, run_count;
} hri_param;

/* What a rotary table is made from: the inverse frequency of each pair, and a factor on cosines and sines. */
typedef struct hri_rope_source {
  double *inverse; /* [pairs] */
  uint32_t pairs;
  double factor;
} hri_rope_source;

/* A list of nodes in issue order. */
typedef HRI_ARRAY(hri_id) hri_order;

typedef struct hri_program {
  bool present;
  hri_order order; /* one legal execution */
} hri_program;

/* The control block: values that change from step to step. Host and programs share this struct; it is a storage. */
typedef struct hri_control {
  double learning_rate, inv_tokens, loss_scale, clip_norm;
  double loss_sum, grad_norm, clip_scale; /* written by programs; grad_norm by those that clip or skip */
  double found_inf; /* of this step: 1 when it is skipped, else 0; only programs with a guard write it */
  int64_t step, applied_steps, micro_index, row_base, growth_tracker;
  int64_t cache_length, row_count; /* generation: tokens in the cache; valid rows of this call */
  int64_t token;                   /* generation: the most likely next token */
  uint64_t seed;
} hri_control;

typedef struct hri_job {
  HRI_ARRAY(hri_storage) storages;
  HRI_ARRAY(hri_tensor) tensors;
  HRI_ARRAY(hri_node) nodes;
  HRI_ARRAY(hri_operand) operands;
  HRI_ARRAY(hri_wait) waits;
  HRI_ARRAY(hri_segment) segments;
  HRI_ARRAY(hri_param) params;
  HRI_ARRAY(hri_part) parts;
  HRI_ARRAY(hri_param_range) ranges; /* in the order of parameters and rows */
  HRI_ARRAY(hri_param_run) runs;
  HRI_ARRAY(uint32_t) laid_out; /* ranges segment by segment */
  HRI_ARRAY(hri_id) members;    /* of groups */
  HRI_ARRAY(char) names;
  HRI_ARRAY(hri_rope_source) ropes; /* ROPE_TABLE nodes name them by index */
  hri_program programs[HRI_PROGRAM_COUNT];
  hri_id control;                                                    /* tensor of the control block */
  hri_id input_ids, input_targets, input_positions, input_doc_start; /* [accumulate, rows] of a step; HRI_NONE */
  hri_id eval_ids, eval_targets, eval_positions, eval_doc_start;     /* [rows] of an evaluation batch */
  hri_id generate_ids, generate_positions, generate_logits;          /* prefill chunk */
  hri_id decode_ids, decode_positions, decode_logits;
  uint32_t micro_rows; /* tokens of a micro-batch */
  uint32_t accumulate;
  uint32_t prefill_rows;
  uint32_t team;
  uint64_t workspace_bytes; /* that each product of a GPU's library may have; nothing else knows it */
  bool tf32;                /* products of fp32 operands go at the device's rate of tf32; nothing else knows it */
  char instruction_set[16];
  char libraries[64];
  uint8_t current_pass;
  bool failed;    /* a builder call failed: sticky, checked by hri_job_ok */
  bool too_large; /* and it was the bytes of a tensor, which 64 bits cannot count */
} hri_job;

void hri_job_init(hri_job *job);
void hri_job_deinit(hri_job *job);
/* HR_OK; MEMORY when a builder call could not get memory; USAGE when a tensor has more bytes than can be counted. */
hr_status hri_job_ok(const hri_job *job, hr_error *error);
/* USAGE unless all storages together can be counted: then no sum of sizes and no offset overflows, whatever is placed
 * where. */
hr_status hri_job_bytes_ok(const hri_job *job, hr_error *error);

/* ---- building (memory failures are sticky: the call returns HRI_NONE and job->failed is set) ---- */

uint32_t hri_name(hri_job *job, const char *format, ...) HRI_PRINTF(2, 3);
const char *hri_name_get(const hri_job *job, uint32_t key);

typedef struct hri_place {
  uint8_t program;
  uint16_t scope;
  uint8_t tier, role;
  int32_t layer;
  uint32_t unit;
} hri_place;

/* A storage with one tensor that fills it: a fresh SSA value. `stored` may be NULL (= dims). */
hri_id hri_tensor_new(hri_job *job, hri_place place, uint32_t key, hri_dtype dtype, uint32_t rank, const uint64_t *dims,
                      const uint64_t *stored);
/* Rows [begin, begin + count) of a tensor's leading dimension: a contiguous view. */
hri_id hri_tensor_rows(hri_job *job, hri_id tensor, uint64_t begin, uint64_t count);
/* Columns [begin, begin + count) of a tensor's rows: the same rows, `stride` apart. Whole blocks of a blocked type. */
hri_id hri_tensor_columns(hri_job *job, hri_id tensor, uint64_t begin, uint64_t count);
/* All bytes of a storage as elements of one type. */
hri_id hri_tensor_of_storage(hri_job *job, hri_id storage, hri_dtype dtype);

/* A group: one operand that stands for several tensors of one type in one storage, one behind the other with bytes
 * between them that are nobody's (the padding of a segment), or another's. A node touches its members and nothing else.
 * One member is
 * returned as it is. */
hri_id hri_tensor_group(hri_job *job, const hri_id *members, uint32_t count);

/* A view of one double of the control block. Who reads or writes a single field says so through such a view, so that it
 * is ordered behind the touchers of these 8 bytes and not behind everyone who touches the block. */
hri_id hri_control_double(hri_job *job, uint64_t offset, const char *name);
#define HRI_CONTROL_DOUBLE(job, field) hri_control_double(job, offsetof(hri_control, field), #field)

typedef struct hri_emit {
  uint8_t program, lane, phase;
  int32_t layer;
  uint32_t unit, site;
  hri_id origin;
} hri_emit;

/* A rotary source of `pairs` zero frequencies and factor 1, for the caller to fill; its index in job->ropes. */
uint32_t hri_job_add_rope(hri_job *job, uint32_t pairs);

/* Appends a node to the pool only; the caller puts it into an order. */
hri_id hri_node_new(hri_job *job, uint16_t op, hri_emit emit, const hri_attr *attr, const hri_operand *operands,
                    uint32_t count);
/* ... and to the end of its program. */
hri_id hri_node_append(hri_job *job, uint16_t op, hri_emit emit, const hri_attr *attr, const hri_operand *operands,
                       uint32_t count);
void hri_order_push(hri_job *job, uint8_t program, hri_id node);
/* The list becomes the program's order; `order` is left empty. */
void hri_order_replace(hri_job *job, uint8_t program, hri_order *order);
/* Adds an operand or a wait to an existing node (the lists are moved to the end of their pools). */
void hri_node_add_operand(hri_job *job, hri_id node, hri_id tensor, hri_access access);
void hri_node_add_wait(hri_job *job, hri_id node, hri_id on);
/* A copy of a node with its own operand list. */
hri_id hri_node_clone(hri_job *job, hri_id node);

/* ---- reading ---- */

static inline hri_operand *hri_operands(const hri_job *job, const hri_node *node) {
  return job->operands.items + node->operand_begin;
}
/* index-th operand with this access, HRI_NONE if there is none. */
hri_id hri_operand_find(const hri_job *job, const hri_node *node, hri_access access, uint32_t index);
/* What kernels take as activations, weights, gradients and states (base/real.h): fp32, bf16, fp16. */
static inline bool hri_dtype_is_real(uint8_t dtype) {
  return dtype == HRI_F32 || dtype == HRI_BF16 || dtype == HRI_F16;
}
static inline hri_real hri_dtype_real(uint8_t dtype) {
  assert(hri_dtype_is_real(dtype));
  return dtype == HRI_BF16 ? HRI_REAL_BF16 : dtype == HRI_F16 ? HRI_REAL_F16 : HRI_REAL_F32;
}
uint64_t hri_dtype_bytes(hri_dtype dtype);                   /* of one element; not for types of blocks */
uint64_t hri_dtype_block(hri_dtype dtype);                   /* elements that go together: 1 but for types of blocks */
uint64_t hri_dtype_size(hri_dtype dtype, uint64_t elements); /* bytes of whole blocks of elements */
uint64_t hri_tensor_elements(const hri_tensor *tensor);      /* logical */
uint64_t hri_tensor_stored_elements(const hri_tensor *tensor); /* with padding */
uint64_t
hri_tensor_bytes(const hri_tensor *tensor); /* that it shows: what lies between rows of a column view does not count */
/* The tensors that an operand stands for: the members of a group, else itself. */
static inline uint32_t hri_piece_count(const hri_job *job, hri_id tensor) {
  return job->tensors.items[tensor].member_count ? job->tensors.items[tensor].member_count : 1;
}
static inline hri_id hri_piece(const hri_job *job, hri_id tensor, uint32_t k) {
  const hri_tensor *t = &job->tensors.items[tensor];
  return t->member_count ? job->members.items[t->member_begin + k] : tensor;
}
/* The trainable rows of a parameter with their gradients. */
static inline const hri_param_run *hri_param_runs(const hri_job *job, uint32_t param, uint32_t *count) {
  *count = job->params.items[param].run_count;
  return job->runs.items + job->params.items[param].run_begin;
}
/* All of a parameter whose parts are equal. */
const hri_param_range *hri_param_whole(const hri_job *job, const hri_param *param);
/* Elements of a range without padding. */
uint64_t hri_range_logical(const hri_job *job, const hri_param_range *range);
/* The tensor shows all of its value. */
bool hri_tensor_is_whole(const hri_job *job, const hri_tensor *tensor);
static inline bool hri_access_writes(hri_access access) { return access != HRI_READ; }
static inline bool hri_access_reads(hri_access access) {
  return access == HRI_READ || access == HRI_ADD || access == HRI_UPDATE_ACCESS;
}

const char *hri_dtype_name(hri_dtype dtype);
const char *hri_tier_name(hri_tier tier);
const char *hri_role_name(hri_role role);
const char *hri_program_name(hri_program_kind kind);
const char *hri_lane_name(hri_lane lane);
const char *hri_phase_name(hri_phase phase);
const char *hri_access_name(hri_access access);

#endif
