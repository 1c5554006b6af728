/* What ops need of a CPU, without its kernels: the types that each takes, scratch, packed operands, fixed bytes. The
 * CPU backend and the plan of a described CPU both answer from here, so the two cannot differ. */
#include "ops/demand.h"

#include <assert.h>
#include <string.h>

#include "ops/attention/scratch.h"
#include "ops/rules.h"
#include "ops/scratch.h"

/* ---- which nodes ---- */

/* What the adapters (backend/cpu/adapters.c) make of each operand, a letter each: r fp32, bf16 or fp16, all r of a node
 * the same; x likewise, but that fp32 may stand beside a narrow one; m fp32 or bf16, all m the same (moments); g fp32 or bf16 by itself; f fp32, b bf16,
 * l low halves of fp32, h fp16, d fp64, i int32, c the control
 * block, u and k bytes, a fp32 or bytes; * bytes of any type. Guards and scratch stand behind and are not looked at. */
/* clang-format off */
static const char *const types[HRI_OP_COUNT] = {
    [HRI_OP_EMBED] = "irirr", [HRI_OP_EMBED_BACKWARD] = "irf",
    [HRI_OP_LINEAR] = "xxfx", [HRI_OP_LINEAR_DX] = "xxx", [HRI_OP_LINEAR_DW] = "xxx", [HRI_OP_PACK] = "rr", [HRI_OP_BIAS_GRADIENT] = "rf",
    [HRI_OP_LINEAR_DX_ACTIVATION] = "rrrr", [HRI_OP_LINEAR_DW_BIAS] = "rrff",
    [HRI_OP_NORM] = "rffrrrf", [HRI_OP_NORM_BACKWARD] = "rrffrrff", [HRI_OP_HEAD_NORM] = "rffrf", [HRI_OP_HEAD_NORM_BACKWARD] = "rrfffrff",
    [HRI_OP_DORA_BEGIN] = "xf", [HRI_OP_DORA_LENGTHS] = "xfffffff", [HRI_OP_DORA] = "rfffr", [HRI_OP_DORA_BACKWARD] = "rrffrf",
    [HRI_OP_ADD] = "rrr", [HRI_OP_SCALE] = "rr", [HRI_OP_DROPOUT] = "rcr", [HRI_OP_NOISE] = "rcr",
    [HRI_OP_ACTIVATION] = "rr", [HRI_OP_ACTIVATION_BACKWARD] = "rrr",
    [HRI_OP_GLU] = "rr", [HRI_OP_GLU_BACKWARD] = "rrr", [HRI_OP_ROPE] = "rifr", [HRI_OP_ROPE_TABLE] = "f", [HRI_OP_SOFTCAP] = "rr",
    [HRI_OP_ATTENTION] = "rirfc", [HRI_OP_ATTENTION_BACKWARD] = "rrrfirc",
    [HRI_OP_ATTENTION_FULL] = "rirrc", [HRI_OP_ATTENTION_FULL_BACKWARD] = "rrrirc", [HRI_OP_ATTENTION_CACHED] = "rrrcr",
    [HRI_OP_CROSS_ENTROPY] = "ricrf", [HRI_OP_LOSS_SUM] = "fc",
    [HRI_OP_SQUARE_NORM] = "gd", [HRI_OP_CLIP] = "dc", [HRI_OP_FOUND_INF] = "ddd", [HRI_OP_ADVANCE] = "c", [HRI_OP_LOSS_SCALE] = "c",
    [HRI_OP_ZERO] = "*", [HRI_OP_COPY] = "**", [HRI_OP_ACCUMULATE] = "xx", [HRI_OP_CAST] = "xx", [HRI_OP_SPLIT] = "fbl", [HRI_OP_JOIN] = "blf", [HRI_OP_SELECT] = "*c*", [HRI_OP_LAST_ROW] = "*c*",
    [HRI_OP_QUANTIZE] = "xuaf", [HRI_OP_DEQUANTIZE] = "uafx",
    [HRI_OP_FILL] = "*", [HRI_OP_SINK] = "x",
};
/* clang-format on */

/* `first`: the type of the first operand of the same letter. */
static bool type_fits(char letter, uint8_t dtype, uint8_t first) {
  switch (letter) {
  case 'r': return hri_dtype_is_real(dtype) && dtype == first;
  case 'x': return hri_dtype_is_real(dtype);
  case 'm': return (dtype == HRI_F32 || dtype == HRI_BF16) && dtype == first;
  case 'g': return dtype == HRI_F32 || dtype == HRI_BF16;
  case 'f': return dtype == HRI_F32;
  case 'b': return dtype == HRI_BF16;
  case 'l': return dtype == HRI_F32_LOW;
  case 'h': return dtype == HRI_F16;
  case 'd': return dtype == HRI_F64;
  case 'i': return dtype == HRI_I32;
  case 'c':
  case 'k':
  case 'u': return dtype == HRI_U8;
  case 'a': return dtype == HRI_F32 || dtype == HRI_U8;
  default: return true;
  }
}

/* g, control, w, the tensors of the state, what stands beside w: states that may be narrow are all of one type, others what the row
 * says, which the op's rule has checked. */
static const char *types_of_update(const hri_job *job, const hri_node *node, char out[HRI_MAX_OPERANDS]) {
  const hri_optimizer *row = hri_optimizer_get(hri_optimizer_of(node->op));
  const hri_tensor *w = &job->tensors.items[hri_operands(job, node)[2].tensor];
  uint32_t at = 3;
  memcpy(out, "gcg", 3);
  for (uint32_t k = 0; k < row->tensor_count; k++) out[at++] = row->tensors[k].narrow ? 'm' : '*';
  out[at] = w->dtype == HRI_BF16 ? 'l' : 'h';
  out[at + 1] = 0;
  return out;
}

/* What FILL and SINK move: reals, or the codes of a state that has some. */
static const char *types_of_move(const hri_job *job, const hri_node *node) {
  const hri_param_range *range = &job->ranges.items[node->attr.i[0]];
  const hri_optimizer *row = hri_optimizer_get(job->parts.items[range->part_begin].state_kind);
  bool codes;
  if (node->attr.i[1] >= HRI_MOVED_CODES)
    return node->attr.i[1] == HRI_MOVED_ABSMAX ? "a" : node->attr.i[1] == HRI_MOVED_CODES ? "u" : "f";
  codes = node->attr.i[1] >= HRI_MOVED_STATE && row->tensors[node->attr.i[1] - HRI_MOVED_STATE].dtype == HRI_U8;
  return codes ? "k" : "x";
}

hr_status hri_demand_check(const char *backend, const hri_job *job, const hri_node *node, hr_error *error) {
  char update[HRI_MAX_OPERANDS];
  const char *letters = hri_optimizer_of(node->op) == HRI_NONE ? types[node->op] : types_of_update(job, node, update);
  int first[2] = {-1, -1}; /* dtypes that stand for r and for m */
  int narrow = -1;         /* of x */
  if (node->op == HRI_OP_FILL || node->op == HRI_OP_SINK) letters = types_of_move(job, node);
  if (!letters)
    return hri_fail(error, HR_ERROR_UNSUPPORTED, "the %s backend has no kernel for %s", backend, hri_op_name(node->op));
  for (uint32_t i = 0; letters[i] && i < node->operand_count; i++) {
    hri_id id = hri_operands(job, node)[i].tensor;
    const hri_tensor *t;
    int *same = &first[letters[i] == 'm'];
    if (id == HRI_NONE) continue;
    t = &job->tensors.items[id];
    if (*same < 0 && (letters[i] == 'r' || letters[i] == 'm')) *same = t->dtype;
    if (letters[i] == 'x' && narrow < 0 && t->dtype != HRI_F32) narrow = t->dtype;
    if (!type_fits(letters[i], t->dtype, (uint8_t)*same) ||
        (letters[i] == 'x' && t->dtype != HRI_F32 && t->dtype != narrow))
      return hri_fail(error, HR_ERROR_UNSUPPORTED,
                      "the %s backend has no kernel for %s with operand %u (%s) of type %s", backend,
                      hri_op_name(node->op), i, hri_name_get(job, t->key), hri_dtype_name((hri_dtype)t->dtype));
  }
  return HR_OK;
}

/* ---- nodes as kernels are given them ---- */

/* Of an operand that hri_demand_check let pass as a real. */
static hri_real type_of(const hri_tensor *t) { return hri_dtype_real(t->dtype); }
static bool present(const hri_job *job, const hri_node *node, uint32_t index) {
  return index < node->operand_count && hri_operands(job, node)[index].tensor != HRI_NONE;
}
static const hri_tensor *tensor(const hri_job *job, const hri_node *node, uint32_t index) {
  return &job->tensors.items[hri_operands(job, node)[index].tensor];
}

hri_gemm_shape hri_demand_product(const hri_job *job, const hri_node *node, uint32_t team) {
  const hri_operand *o = hri_operands(job, node);
  const hri_tensor *a = &job->tensors.items[o[0].tensor], *b = &job->tensors.items[o[1].tensor];
  const hri_tensor *c = &job->tensors.items[o[node->op == HRI_OP_LINEAR ? 3 : 2].tensor];
  hri_gemm_shape s;
  memset(&s, 0, sizeof s);
  s.type = type_of(a);
  s.mixed = type_of(b) != s.type;
  s.other = s.mixed ? type_of(b) : HRI_REAL_F32;
  s.out = type_of(c);
  s.a_stride = (int64_t)a->stride;
  s.b_stride = (int64_t)b->stride;
  s.c_stride = (int64_t)c->stride;
  s.packed = b->layout == HRI_PACKED;
  s.threads = (int)team;
  s.m = (int64_t)hri_rows(a);
  switch (node->op) {
  case HRI_OP_LINEAR:
    s.kind = HRI_GEMM_FORWARD;
    s.n = (int64_t)hri_rows(b);
    s.k = (int64_t)hri_columns(b);
    s.bias = o[2].tensor != HRI_NONE;
    s.accumulate = o[3].access == HRI_ADD;
    break;
  case HRI_OP_LINEAR_DX:
    s.kind = HRI_GEMM_DX;
    s.n = (int64_t)hri_rows(b);
    s.k = (int64_t)hri_columns(b);
    s.accumulate = o[2].access == HRI_ADD;
    s.in_blocks = node->attr.i[0] != 0;
    break;
  default:
    s.kind = HRI_GEMM_DW;
    s.n = (int64_t)hri_columns(a);
    s.k = (int64_t)hri_columns(b);
    s.accumulate = o[2].access == HRI_ADD;
    break;
  }
  return s;
}

hri_gemm_shape hri_demand_pack(const hri_job *job, const hri_node *node, uint32_t team) {
  const hri_tensor *b = &job->tensors.items[hri_operands(job, node)[0].tensor];
  hri_gemm_shape s;
  memset(&s, 0, sizeof s);
  s.kind = (hri_gemm_kind)node->attr.i[0];
  s.type = type_of(b);
  s.m = node->attr.i[1];
  s.n = s.kind == HRI_GEMM_DW ? 1 : (int64_t)hri_rows(b);
  s.k = (int64_t)hri_columns(b);
  s.packed = true;
  s.in_blocks = node->attr.i[2] != 0;
  s.threads = (int)team;
  return s;
}

/* Operand 0 is qkv or dy, which has its type. Whose mask dropout takes is known when it runs. */
hri_attention_shape hri_demand_attention(const hri_job *job, const hri_node *node) {
  const int64_t *i = node->attr.i;
  return (hri_attention_shape){.batch = i[0],
                               .sequence = i[1],
                               .heads = i[2],
                               .kv_heads = i[3],
                               .head_dim = i[4],
                               .window = i[5],
                               .softcap = node->attr.f[1],
                               .dropout = node->attr.f[2],
                               .real = type_of(tensor(job, node, 0))};
}

hri_attention_cache_shape hri_demand_cache(const hri_job *job, const hri_node *node) {
  const int64_t *i = node->attr.i;
  return (hri_attention_cache_shape){.batch = i[0],
                                     .rows = i[1],
                                     .capacity = i[6],
                                     .heads = i[2],
                                     .kv_heads = i[3],
                                     .head_dim = i[4],
                                     .window = i[5],
                                     .softcap = node->attr.f[1],
                                     .real = type_of(tensor(job, node, 0))};
}

/* The op's rule has checked that there is one. */
hri_quant_layout hri_demand_quantized(const hri_job *job, const hri_node *node) {
  hri_quant_layout layout;
  uint64_t width = hri_columns(tensor(job, node, node->op == HRI_OP_QUANTIZE ? 0 : 3));
  if (!hri_quant_layout_of(&node->attr, width, &layout)) assert(false);
  return layout;
}

/* ---- scratch ---- */

hr_status hri_demand_scratch(const hri_demand *demand, const hri_job *job, const hri_node *node, uint64_t *bytes,
                             hr_error *error) {
  int team = (int)demand->team;
  hri_isa level = demand->machine.level;
  hri_attention_shape s;
  hri_attention_cache_shape cached;
  *bytes = 0;
  HRI_TRY(hri_demand_check("CPU", job, node, error));
  switch (node->op) {
  case HRI_OP_LINEAR:
  case HRI_OP_LINEAR_DX:
  case HRI_OP_LINEAR_DW: {
    hri_gemm_shape shape = hri_demand_product(job, node, demand->team);
    hri_gemm_decision how;
    HRI_TRY(hri_gemm_decide(&demand->machine, &shape, &how, error));
    assert(!shape.packed || how.packed_bytes); /* the pass packs what has a packed form */
    *bytes = how.scratch_bytes;
    return HR_OK;
  }
  case HRI_OP_BIAS_GRADIENT:
    *bytes = hri_bias_gradient_scratch_bytes((int64_t)hri_rows(tensor(job, node, 0)),
                                             (int64_t)hri_columns(tensor(job, node, 0)), team);
    break;
  case HRI_OP_NORM_BACKWARD:
    *bytes = hri_norm_backward_scratch_bytes((int64_t)hri_rows(tensor(job, node, 0)),
                                             (int64_t)hri_columns(tensor(job, node, 0)), present(job, node, 6),
                                             present(job, node, 7), team);
    break;
  case HRI_OP_HEAD_NORM_BACKWARD:
    *bytes = hri_head_norm_backward_scratch_bytes((int64_t)hri_rows(tensor(job, node, 0)), node->attr.i[2],
                                                  hri_head_norm_key_size(node), team);
    break;
  case HRI_OP_DORA:
  case HRI_OP_DORA_BACKWARD:
    *bytes = hri_dora_scratch_bytes((int64_t)hri_rows(tensor(job, node, 0)), (int64_t)hri_columns(tensor(job, node, 0)),
                                    node->op == HRI_OP_DORA_BACKWARD, team);
    break;
  case HRI_OP_ATTENTION:
    s = hri_demand_attention(job, node), *bytes = hri_attention_forward_scratch(level, &s, team);
    break;
  case HRI_OP_ATTENTION_BACKWARD:
    s = hri_demand_attention(job, node), *bytes = hri_attention_backward_scratch(level, &s, team);
    break;
  case HRI_OP_ATTENTION_FULL:
    s = hri_demand_attention(job, node), *bytes = hri_attention_materialized_scratch(level, &s, team);
    break;
  case HRI_OP_ATTENTION_FULL_BACKWARD:
    s = hri_demand_attention(job, node), *bytes = hri_attention_backward_scratch(level, &s, team);
    break;
  case HRI_OP_ATTENTION_CACHED:
    cached = hri_demand_cache(job, node), *bytes = hri_attention_cached_scratch(level, &cached, team);
    break;
  case HRI_OP_QUANTIZE: {
    hri_quant_layout layout = hri_demand_quantized(job, node);
    *bytes = hri_quant_scratch_bytes((uint32_t)node->attr.i[0], &layout);
    break;
  }
  default: break;
  }
  if (*bytes == UINT64_MAX)
    return hri_fail(error, HR_ERROR_USAGE, "the scratch of %s does not fit 64 bits", hri_op_name(node->op));
  return HR_OK;
}

hr_status hri_demand_packing(const hri_demand *demand, const hri_job *job, const hri_node *node, uint64_t *bytes,
                             bool *pays, hr_error *error) {
  hri_gemm_shape shape;
  hri_gemm_decision how;
  HRI_TRY(hri_demand_check("CPU", job, node, error));
  shape = hri_demand_product(job, node, demand->team);
  *pays = hri_gemm_packing_pays(&shape);
  *bytes = 0;
  if (!hri_gemm_is_plain(&shape)) return HR_OK;
  shape.packed = true;
  HRI_TRY(hri_gemm_decide(&demand->machine, &shape, &how, error));
  *bytes = how.packed_bytes;
  return HR_OK;
}

/* ---- while it runs ---- */

hr_status hri_demand_uncoded(const hri_job *job, const hri_node *node, uint64_t element, float value, hr_error *error) {
  const hri_tensor *w = tensor(job, node, 0);
  (void)hri_fail(error, HR_ERROR_INPUT, "weight %s has %g at row %llu, column %llu, which has no code in %s",
                 hri_name_get(job, w->key), (double)value, (unsigned long long)(element / hri_columns(w)),
                 (unsigned long long)(element % hri_columns(w)), hri_quantization_name((uint32_t)node->attr.i[0]));
  return hri_hint(error, HR_ERROR_INPUT, "look for a damaged file, or leave --quantize away");
}
