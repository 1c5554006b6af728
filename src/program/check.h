/* The rules that every job obeys (architecture.md section 3), checked after each pass in tests and once before any
 * run. */
#ifndef HRI_PROGRAM_CHECK_H
#define HRI_PROGRAM_CHECK_H

#include "program/ops.h"

/* Happens-before of one program: vector clocks over the lanes. */
typedef struct hri_clocks {
  uint32_t count;
  uint32_t (*clock)[HRI_LANE_COUNT]; /* per position: how many nodes of each lane happened before or are it */
  uint32_t *sequence;                /* per position: 1-based number within its lane */
  const hri_job *job;
  const hri_program *program;
} hri_clocks;
hr_status hri_clocks_init(hri_clocks *clocks, const hri_job *job, uint8_t program, hr_error *error);
void hri_clocks_deinit(hri_clocks *clocks);
/* Whether the node at position a happens before the one at b (a != b). */
bool hri_happens_before(const hri_clocks *clocks, uint32_t a, uint32_t b);

/* INTERNAL with the rule, program, node and tensor when the job breaks one. */
hr_status hri_job_check(const hri_job *job, hr_error *error);

/* Text and JSON dump of a job for people and for comparison; stable across runs. */
struct hri_text;
hr_status hri_job_print(const hri_job *job, bool json, const uint64_t *offsets, struct hri_text *out, hr_error *error);

#endif
