/* Cosines and sines of the rotary embedding. */
#ifndef HRI_OPS_POINTWISE_ROPE_TABLE_H
#define HRI_OPS_POINTWISE_ROPE_TABLE_H

#include <stdint.h>

#include <headroom/model.h>

/* Inverse frequency of pair `pair` (0 <= pair < head_size / 2), with the scaling of `rope`, rounded as transformers
 * rounds it (modeling_rope_utils.py computes in fp32). */
float hri_rope_inverse_frequency(const hr_rope *rope, int64_t head_size, int64_t pair);

/* Fills cosines and sines [positions, head_size / 2]. Once per job: libm in double, of the fp32 angle. */
void hri_rope_table(const hr_rope *rope, int64_t head_size, int64_t positions, float *cosines, float *sines,
                    int threads);

#endif
