/* One part of a quantized weight, as its kernels take it. */
#ifndef HRI_OPS_QUANT_PART_CUH
#define HRI_OPS_QUANT_PART_CUH

#include "ops/cuda.h"
#include "ops/elements.cuh"

struct quant_part_args {
  void *w; /* the part's first element, as all that follows */
  uint8_t *codes;
  void *absmax;
  float *nested; /* NULL without dq */
  int64_t first, elements, columns, code_bytes, absmax_count, nested_count;
  uint8_t type;            /* of blocks that are kept */
  unsigned long long *bad; /* quantizing: ~0 less the least element without a code, or 0 */
};

inline quant_part_args quant_part_of(const hri_quant_args *a, uint32_t k) {
  const hri_quant_part *p = &a->layout->part[k];
  bool nested = a->nested != nullptr;
  return {(unsigned char *)a->w + p->first * hri_real_bytes(a->real),
          a->codes + p->codes,
          a->absmax ? (unsigned char *)a->absmax + p->absmax * (nested ? 1 : sizeof(float)) : nullptr,
          nested ? a->nested + p->nested : nullptr,
          (int64_t)p->first,
          (int64_t)p->elements,
          (int64_t)p->columns,
          (int64_t)p->code_bytes,
          (int64_t)p->absmax_count,
          (int64_t)p->nested_count,
          p->type,
          nullptr};
}

int hri_cuda_dequantize_kept(const quant_part_args *part, hri_real real, void *stream);

#endif
