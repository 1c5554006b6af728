/* Element types as weight files name them, and conversions of the 16-bit floats.
 *
 * Source of names, sizes and order: huggingface/safetensors, safetensors/src/tensor.rs (Dtype). */
#ifndef HRI_FORMATS_DTYPE_H
#define HRI_FORMATS_DTYPE_H

#include "base/mem.h"

/* In the order by which safetensors sorts tensors (rising "alignment"). */
typedef enum hri_file_dtype {
  HRI_FILE_BOOL = 0,
  HRI_FILE_F4,
  HRI_FILE_F6_E2M3,
  HRI_FILE_F6_E3M2,
  HRI_FILE_U8,
  HRI_FILE_I8,
  HRI_FILE_F8_E5M2,
  HRI_FILE_F8_E4M3,
  HRI_FILE_F8_E8M0,
  HRI_FILE_F8_E4M3FNUZ,
  HRI_FILE_F8_E5M2FNUZ,
  HRI_FILE_I16,
  HRI_FILE_U16,
  HRI_FILE_F16,
  HRI_FILE_BF16,
  HRI_FILE_I32,
  HRI_FILE_U32,
  HRI_FILE_F32,
  HRI_FILE_C64,
  HRI_FILE_F64,
  HRI_FILE_I64,
  HRI_FILE_U64,
  HRI_FILE_DTYPE_COUNT
} hri_file_dtype;

const char *hri_file_dtype_name(hri_file_dtype dtype);              /* "BF16" */
uint32_t hri_file_dtype_bits(hri_file_dtype dtype);                 /* 4..64 */
bool hri_file_dtype_parse(const char *name, hri_file_dtype *dtype); /* false when unknown; names are in capitals */

/* Elements in a shape (1 for rank 0), and the bytes they take. False when a product overflows 64 bits (taken from left
 * to right, as the reference does) or, for bytes, when sub-byte elements do not fill whole bytes. */
bool hri_file_elements(uint32_t rank, const uint64_t *shape, uint64_t *elements);
bool hri_file_bytes(hri_file_dtype dtype, uint64_t elements, uint64_t *bytes);

/* Conversions of `count` elements; `to` and `from` do not overlap. 16-bit to 32-bit is exact; 32-bit to 16-bit rounds
 * to nearest, ties to even, overflows to infinity and makes subnormals. NaNs stay NaN, become quiet, and keep their
 * sign and the upper bits of their payload. Independent of flush-to-zero modes; the rounding mode must be the
 * default. */
void hri_f32_from_bf16(float *to, const uint16_t *from, uint64_t count);
void hri_f32_from_f16(float *to, const uint16_t *from, uint64_t count);
void hri_bf16_from_f32(uint16_t *to, const float *from, uint64_t count);
void hri_f16_from_f32(uint16_t *to, const float *from, uint64_t count);

/* From or to F32 for the dtypes that weights come in: F32, BF16, F16, F64 (rounded once). False for others. `to` and
 * `from` are aligned for their types. */
bool hri_file_to_f32(hri_file_dtype dtype, float *to, const void *from, uint64_t count);
bool hri_file_from_f32(hri_file_dtype dtype, void *to, const float *from, uint64_t count);

#endif
