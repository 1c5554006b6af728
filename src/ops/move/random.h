/* Random fills, counter-based. */
#ifndef HRI_OPS_MOVE_RANDOM_H
#define HRI_OPS_MOVE_RANDOM_H

#include <stdint.h>

#include "team/team.h"

/* y[i] = std * z(seed, stream, first + i), z standard normal: element i of a tensor has the same value whatever the
 * padding, the slice, the team, the instruction set and the compiler. */
/* The same evenly between -bound and bound (the ends excluded), 32 bits each. */
void hri_fill_uniform(float *y, int64_t n, double bound, uint64_t seed, uint64_t stream, int64_t first, hri_team *team);
void hri_fill_normal(float *y, int64_t n, double std, uint64_t seed, uint64_t stream, int64_t first, hri_team *team);

#endif
