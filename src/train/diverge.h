/* Which weight or state of a session is the first that is not finite. */
#ifndef HRI_TRAIN_DIVERGE_H
#define HRI_TRAIN_DIVERGE_H

#include "train/session.h"

/* "layers.3.mlp.fc (exp_avg) at element 17" into out; false: all are finite. Looks at masters where there are whole ones;
 * reads all of them, once. */
bool hri_first_nonfinite(const hri_session *session, char *out, uint64_t out_bytes);

/* What fp16 cannot hold becomes infinite when it is rounded: INPUT, naming the weight, where a session that was loaded
 * holds such a copy. */
hr_status hri_check_fp16(const hri_session *session, hr_error *error);

#endif
