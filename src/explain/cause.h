/* Judges of messages with figures, and of reports by unknown speakers. */
#ifndef HRI_EXPLAIN_CAUSE_H
#define HRI_EXPLAIN_CAUSE_H

#include "explain/message.h"

/* Each fills cause, certainty, candidates, verdict, arithmetic and shares. */
void hri_oom_judge_caching(hri_oom_message *message);
void hri_oom_judge_async(hri_oom_message *message);
void hri_oom_judge_mps(hri_oom_message *message);
void hri_oom_judge_report(hr_oom_failure *failure);

/* The device's bytes by owner; exactly the total. Nothing where the total is not known. */
void hri_oom_divide(hr_oom_failure *failure);

#endif
