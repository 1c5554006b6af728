/* Cosines and sines of the rotary embedding. */
#ifndef HRI_OPS_POINTWISE_ROPE_TABLE_H
#define HRI_OPS_POINTWISE_ROPE_TABLE_H

#include <stdint.h>

#include "team/team.h"

/* Fills cosines and sines [positions, pairs], both times `factor`. inverse: the inverse frequency of each pair, rounded
 * to fp32 by who made it (model/rope.h), because the angle is an fp32 product. Once per job: libm in double. */
void hri_rope_table(const double *inverse, int64_t pairs, double factor, int64_t positions, float *cosines,
                    float *sines, hri_team *team);

#endif
