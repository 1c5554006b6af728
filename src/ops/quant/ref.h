/* Readable references of one part, in fp32: codes, scales and dequantized values have defined bits, so these are not
 * held to a tolerance and have no double version. */
#ifndef HRI_OPS_QUANT_REF_H
#define HRI_OPS_QUANT_REF_H

#include <stdint.h>

/* One part of rows * columns finite elements (int8: below 65520 in size); sizes as hri_quant_layout_make says for it
 * alone. `absmax` is of bytes with dq, else of fp32; without dq nested and scratch are NULL, with it scratch takes an entry per
 * block. */
void hri_ref_quantize(uint32_t kind, const float *w, int64_t rows, int64_t columns, uint8_t *codes, void *absmax,
                      float *nested, float *scratch);
void hri_ref_dequantize(uint32_t kind, const uint8_t *codes, const void *absmax, const float *nested, int64_t rows,
                        int64_t columns, float *w);

#endif
