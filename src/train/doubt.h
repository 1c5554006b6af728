/* What of a run is legal and hardly meant: said once before the first step, and done as asked. */
#ifndef HRI_TRAIN_DOUBT_H
#define HRI_TRAIN_DOUBT_H

#include "train/session.h"

/* Of what words became. */
void hri_doubt_words(const hri_session *session, const hri_dataset *data);
/* Of what is held back, in files of its own. */
void hri_doubt_held(const hri_session *session, const hri_dataset *data, const hri_dataset *held);
/* Of `steps` steps over `rows` rows. */
void hri_doubt_course(const hri_session *session, const hr_job *job, uint64_t rows, uint64_t steps);

#endif
