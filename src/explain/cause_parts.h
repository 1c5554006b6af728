/* What the judges of messages with figures pass to each other; cause.h is what judge.c calls. */
#ifndef HRI_EXPLAIN_CAUSE_PARTS_H
#define HRI_EXPLAIN_CAUSE_PARTS_H

#include "explain/cause.h"

/* ---- cause_owners.c, whose hri_oom_divide is in cause.h ---- */

/* Finds this process among those that the text lists, and sums the others: both become figures. Once, before all
 * else. */
void hri_oom_find_owners(hri_oom_message *message);

/* The figures as bytes, 0 where one is not known. */
typedef struct hri_oom_ledger {
  uint64_t total, free, requested, allocated, unallocated, reserved, mine, others, pools;
  /* How far the printed figures can be off: all of those above down to `allocated` and `pools`, and what one comparison holds against
   * another: a request against what is free, a request and what is live, without and with it, against the total. */
  uint64_t slack, fit_slack, live_slack, held_slack, request_slack;
  bool knows_requested, knows_total, knows_free, knows_allocated, knows_unallocated, knows_mine;
} hri_oom_ledger;

hri_oom_ledger hri_oom_ledger_of(const hr_oom_value *figures);

/* Each judge below answers whether the failure is judged, the cause or that the text cannot tell. Where it is not,
 * lines that say why may have been written, and the next judge is asked. */

/* ---- cause_cap.c ---- */

bool hri_oom_judge_cap(hr_oom_failure *f, const hri_oom_ledger *l);
/* Whether a cap may have refused it as well, within the rounding of what is held and requested. */
bool hri_oom_is_cap_close(const hr_oom_failure *f, const hri_oom_ledger *l);

/* ---- cause_held.c ---- */

/* Other processes that are listed. */
bool hri_oom_judge_others(hri_oom_message *m, const hri_oom_ledger *l);
/* Private pools. */
bool hri_oom_judge_pools(hr_oom_failure *f, const hri_oom_ledger *l);
/* What this process has past the allocator, and what neither it nor a listed process has. */
bool hri_oom_judge_outside(hr_oom_failure *f, const hri_oom_ledger *l);
/* What no figure names, where this process's own is not printed: much of it is no context of its own. */
bool hri_oom_judge_gap(hr_oom_failure *f, const hri_oom_ledger *l);
/* The most that context and libraries of one process take on a device with so many bytes. */
uint64_t hri_oom_context_most(uint64_t total);

#endif
