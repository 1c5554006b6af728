/* Double quantization: absmax of a part less its mean, in codes of 8 bits. Scalar and compiled once, so its sums and
 * products round alike on every level: one entry stands for 64 weights.
 *
 * Bits are those of bitsandbytes on a CPU:
 *   - the mean is torch's: sums in fp32 over 8 lanes, 4 vectors side by side, cascaded over levels (ATen, native/cpu/
 *     SumKernel.cpp at AVX2, which torch also uses on AVX-512 machines), in one thread. torch splits more than 32,768
 *     entries over its threads, so there its own last bit depends on their number; ours is that of one thread.
 *   - a code is looked up among 65,536 steps of [-1, 1] (csrc/cpu_ops.cpp), so beside a midpoint of the map it may be
 *     the neighbour of the nearest one. CUDA takes the nearest; both decode the same. */
#ifndef HRI_OPS_QUANT_NESTED_H
#define HRI_OPS_QUANT_NESTED_H

#include <stdint.h>

#include "team/team.h"

float hri_quant_mean(const float *x, int64_t n);

/* codes[n] and nested[blocks of 256, then the mean] from absmax[n] >= 0, which is overwritten with its distance from
 * the mean. A mean that is not finite is all that is written. */
void hri_quant_nest(uint8_t *codes, float *nested, float *absmax, int64_t n, hri_team *team);

/* to[0 .. count) = the absmax of entries [first, first + count) of a part. */
void hri_quant_unnest(float *to, const uint8_t *codes, const float *nested, float offset, int64_t first, int64_t count);

#endif
