/* Quantized weights: the kinds, what each tensor of the model's files takes in each, and the values that codes stand
 * for. Pure: rules, kernels, plans and readers and writers of files all ask here, so none can differ.
 *
 * A kind is what hri_part.quantization says. All but "keep" are as bitsandbytes quantizes the tensor of one part (q, k,
 * v; gate, up) alone, and in its byte order, so that its files are byte copies:
 *
 *   4-bit     the part's elements, flattened row by row, in blocks of 64; rows that are no multiple of 64 run on. Two
 *             codes in a byte, the first element in the high half; the other half of a last odd byte is the code of 0.
 *             absmax: the largest |w| of each block, fp32
 *   +dq       absmax less its mean over the part in blocks of 256, each entry a code of the signed dynamic map (8 bits).
 *             nested: the largest of each such block, fp32, and behind the last of a part that mean ("offset")
 *   int8      a code (two's complement) per element; absmax: the largest |w| of each row, fp32 ("SCB")
 *
 * w = value[code] * absmax; with dq absmax = map[code] * nested + offset; int8 w = code * absmax * (1/127), each
 * operation rounded to fp32 and the result to the weight's type. (bitsandbytes: functional.py, backends/default/ops.py,
 * csrc/cpu_ops.cpp, of 0.50.)
 *
 *   keep      the blocks of the part's tensor in a GGUF file, row by row in our order of rows; each part in a type of its
 *             own (hri_dtype: GGUF's blocks, or fp32, bf16, fp16), whose blocks hold their scales. No absmax. w is what
 *             formats/quant.h makes of them, rounded to the weight's type
 *
 * Parts lie one behind the other in codes, absmax and nested as their rows do in the weight, with nothing between. */
#ifndef HRI_PROGRAM_QUANTIZATION_H
#define HRI_PROGRAM_QUANTIZATION_H

#include <stdbool.h>
#include <stdint.h>

#include "program/job.h"

typedef enum hri_quantization {
  HRI_QUANTIZATION_NONE = 0,
  HRI_QUANTIZATION_NF4,
  HRI_QUANTIZATION_FP4,
  HRI_QUANTIZATION_NF4_DQ,
  HRI_QUANTIZATION_FP4_DQ,
  HRI_QUANTIZATION_INT8,
  HRI_QUANTIZATION_KEEP,
  HRI_QUANTIZATION_COUNT
} hri_quantization;

enum {
  HRI_QUANT_BLOCK = 64,         /* elements of a 4-bit block */
  HRI_QUANT_NESTED_BLOCK = 256, /* entries of absmax in a block of double quantization */
  HRI_QUANT_PARTS = 3,          /* most parts of a weight: q, k, v */
  HRI_QUANT_VALUES = 16,
  HRI_QUANT_MAP = 256
};

/* What one part has, and where: offsets in bytes of codes and in entries of absmax and nested. */
typedef struct hri_quant_part {
  uint64_t first, elements; /* of the weight, flattened */
  uint64_t rows, columns;
  uint8_t type; /* hri_dtype of its blocks; HRI_U8: one of bitsandbytes' kinds */
  uint64_t codes, code_bytes;
  uint64_t absmax, absmax_count;
  uint64_t nested, nested_count; /* count without the offset, which stands at nested + nested_count; 0 without dq */
} hri_quant_part;

typedef struct hri_quant_layout {
  uint32_t part_count;
  hri_quant_part part[HRI_QUANT_PARTS];
  uint64_t code_bytes;   /* all parts; codes are a tensor of bytes (HRI_U8) */
  uint64_t absmax_count; /* entries of hri_quant_absmax_dtype; 0 of blocks that are kept */
  uint64_t nested_count; /* fp32, the offsets counted; 0 without dq */
  uint64_t bytes;        /* of the three together */
} hri_quant_layout;

/* The layout of a weight of `columns` columns whose parts have rows[0], rows[1], ... rows, and blocks of types[0],
 * types[1], ... where they are kept (else `types` is NULL). False when there is no such kind, no part or too many, an
 * empty part, a type that is not kept or whose blocks do not fill rows, or 64 bits cannot count it; *out is undefined
 * then. */
bool hri_quant_layout_make(uint32_t kind, const uint64_t *rows, const uint8_t *types, uint32_t part_count,
                           uint64_t columns, hri_quant_layout *out);

/* Whether blocks of a type can be kept: GGUF's, fp32, bf16, fp16. */
bool hri_quant_keeps(uint8_t dtype);

/* The layout that a QUANTIZE or DEQUANTIZE node says: i0 the kind, i1 to i3 rows of its parts, 0 behind the last, i4 to
 * i6 the types of blocks that are kept. */
bool hri_quant_layout_of(const hri_attr *attr, uint64_t columns, hri_quant_layout *out);
/* Scratch of a QUANTIZE node: with dq the fp32 absmax of its largest part, else nothing. */
uint64_t hri_quant_scratch_bytes(uint32_t kind, const hri_quant_layout *layout);

static inline bool hri_quant_is_4bit(uint32_t kind) {
  return kind >= HRI_QUANTIZATION_NF4 && kind <= HRI_QUANTIZATION_FP4_DQ;
}
static inline bool hri_quant_is_double(uint32_t kind) {
  return kind == HRI_QUANTIZATION_NF4_DQ || kind == HRI_QUANTIZATION_FP4_DQ;
}
static inline bool hri_quant_is_nf4(uint32_t kind) {
  return kind == HRI_QUANTIZATION_NF4 || kind == HRI_QUANTIZATION_NF4_DQ;
}
/* HRI_U8 with dq, else HRI_F32. */
static inline hri_dtype hri_quant_absmax_dtype(uint32_t kind) { return hri_quant_is_double(kind) ? HRI_U8 : HRI_F32; }

/* "none", "nf4", "fp4", "nf4+dq", "fp4+dq", "int8", "keep"; "unknown" for others. */
const char *hri_quantization_name(uint32_t kind);
/* False when `text` names no kind. */
bool hri_quantization_parse(const char *text, hri_quantization *kind);

/* ---- values ---- */

/* The values of a 4-bit kind by code, as in `quant_map` of files: NF4 ascending; FP4 3 bits of which the 4th is the
 * sign (both zeros are +0). */
const float *hri_quant_values(uint32_t kind);
/* The 15 bounds between the values in ascending order, half way in fp32: rank = number of bounds below v. */
const float *hri_quant_bounds(uint32_t kind);
/* The code of each rank: itself in NF4. In FP4 zero and the least below it have code 0, the least above it code 8. */
const uint8_t *hri_quant_order(uint32_t kind);
/* The signed dynamic map of 8 bits, ascending: 127 negative values, 0 at 127, 127 positive ones, 1. */
const float *hri_quant_map(void);

#endif
