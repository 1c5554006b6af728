/* When each node of a program runs, as predicted: a list schedule.
 *
 * Lanes work side by side, each through its nodes in issue order; a node begins when its lane is free and everything
 * that it waits for has ended:
 *
 *   begin(node) = max(end of the lane's node before it, end of each node that it waits for),  end = begin + seconds
 *
 * That is what an executor with a queue per lane does, so a wait costs what it costs there: a copy that is started
 * early enough is hidden behind the compute lane, one that is started late is not. All lanes join at the end of a
 * program.
 * A program of one lane takes the sum of its nodes. (src/pass/schedule.c is something else: it chooses an issue
 * order.) */
#ifndef HRI_PLAN_TIMING_H
#define HRI_PLAN_TIMING_H

#include "program/job.h"

typedef struct hri_timing {
  uint32_t count;                      /* positions of the program */
  double *seconds;                     /* per position: how long the node takes */
  double *begin, *end;                 /* per position */
  double lane_seconds[HRI_LANE_COUNT]; /* each lane at work; less than the whole where it waits */
  double from, until;                  /* begin of the program; end of its last node (`from` when it has none) */
  uint32_t *critical;      /* positions in order of time: each begins where the one before ends, the first at */
  uint32_t critical_count; /* `from`, the last ends at `until`; making one of them faster may shorten the program */
} hri_timing;

/* `seconds`: of each position of the program, copied; `from`: when it begins. Linear in nodes and waits. INTERNAL when
 * a node waits for one that is not issued before it. */
hr_status hri_timing_make(const hri_job *job, uint8_t program, const double *seconds, double from, hri_timing *timing,
                          hr_error *error);
void hri_timing_deinit(hri_timing *timing);

#endif
