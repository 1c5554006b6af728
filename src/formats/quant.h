/* Element types of GGUF tensors, and the conversions of their blocks to and from fp32.
 *
 * A row is stored as blocks: `block` elements in `bytes` bytes, with a scale (and a minimum) of their own. Layouts and
 * arithmetic: ggml-org/llama.cpp, ggml/src/ggml-common.h and ggml-quants.c; the values are those of that project's
 * Python package gguf (quants.py), bit for bit. */
#ifndef HRI_FORMATS_QUANT_H
#define HRI_FORMATS_QUANT_H

#include "base/mem.h"

/* The numbers are those of the files (ggml.h, enum ggml_type). */
typedef enum hri_ggml_type {
  HRI_GGML_F32 = 0,
  HRI_GGML_F16 = 1,
  HRI_GGML_Q4_0 = 2,
  HRI_GGML_Q4_1 = 3,
  HRI_GGML_Q5_0 = 6,
  HRI_GGML_Q5_1 = 7,
  HRI_GGML_Q8_0 = 8,
  HRI_GGML_Q2_K = 10,
  HRI_GGML_Q3_K = 11,
  HRI_GGML_Q4_K = 12,
  HRI_GGML_Q5_K = 13,
  HRI_GGML_Q6_K = 14,
  HRI_GGML_IQ4_NL = 20,
  HRI_GGML_IQ4_XS = 23,
  HRI_GGML_BF16 = 30
} hri_ggml_type;

/* True for every type that a file may have, also those that are not decoded here; then its sizes. */
bool hri_ggml_known(uint32_t type);
const char *hri_ggml_name(uint32_t type); /* "Q4_K"; "unknown" for others */
uint32_t hri_ggml_block(uint32_t type);   /* elements per block; 0 for unknown types */
uint32_t hri_ggml_block_bytes(uint32_t type);
/* Bytes of `elements` elements, a multiple of the block. False for unknown types, part blocks and on overflow. */
bool hri_ggml_bytes(uint32_t type, uint64_t elements, uint64_t *bytes);

/* Whether blocks of a type can be read as fp32, or be made from fp32 (F32, F16, BF16, Q8_0, Q6_K, Q5_K, Q5_1, Q5_0,
 * Q4_K, Q4_0). */
bool hri_ggml_decodes(uint32_t type);
bool hri_ggml_encodes(uint32_t type);

/* Blocks of `elements` elements (a multiple of the block) to fp32 and back. `from` and `to` do not overlap; blocks need
 * no alignment. Exact as described above; 16-bit floats as in formats/dtype.h. Blocks of Q4_K, Q5_K and Q6_K are those of
 * quantize_row_q4_K_ref and so on in ggml-quants.c, compiled without fused multiply-adds: the same on every
 * processor. A NaN, an infinity or a value beyond hri_ggml_reach spoils its block: look at the values first. False for
 * types that are not decoded (encoded). */
bool hri_ggml_to_f32(uint32_t type, float *to, const void *from, uint64_t elements);
bool hri_ggml_from_f32(uint32_t type, void *to, const float *from, uint64_t elements);
/* The least magnitude that such a type may not hold: its halves would become infinite. INFINITY where every finite value
 * is held. */
float hri_ggml_reach(uint32_t type);

#endif
