/* What the steps of a run tell about this machine, where no probe was made: rates by class of node, for later plans.
 *
 * Nothing is run for it: the nodes that train are timed anyway. Steps are taken together to rounds of at least a fifth of
 * a second, and the first ROUNDS in a row that agree within a tenth, on a machine that did nothing else meanwhile, are
 * what counts. A round's measure is the time of its nodes over what they were assumed to take, so that steps of shorter
 * rows may be among them. Memory is taken when the watch begins (46 KiB), none later. */
#ifndef HRI_TRAIN_RATES_H
#define HRI_TRAIN_RATES_H

#include "plan/plan.h"

typedef struct hri_rate_watch hri_rate_watch;

typedef enum hri_rate_state {
  HRI_RATES_WATCHING = 0,
  HRI_RATES_KNOWN,   /* they tell no more than the plan knew */
  HRI_RATES_NEW,     /* to be stored */
  HRI_RATES_UNSTEADY /* the machine was busy for MOST rounds; what was seen is dropped */
} hri_rate_state;

/* NULL for a plan that has nothing to learn: of a device that is no CPU of this machine, or whose probe is stored. The
 * plan must outlive the watch. */
hr_status hri_rate_watch_begin(const hr_plan *plan, hri_rate_watch **watch, hr_error *error);
void hri_rate_watch_end(hri_rate_watch *watch); /* NULL is fine */

/* A node that ran; from after_node. */
void hri_rate_watch_node(hri_rate_watch *watch, const hri_job *job, hri_id node, double seconds);
/* A step that took so long has ended; nodes from here on are of no step until the next one begins. True once: now the
 * state is another. */
void hri_rate_watch_begin_step(hri_rate_watch *watch);
bool hri_rate_watch_end_step(hri_rate_watch *watch, double seconds);

hri_rate_state hri_rate_watch_state(const hri_rate_watch *watch);
/* Seconds of a step in the rounds that count; and by how much, as a share, rounds differed that do not. */
double hri_rate_watch_step_seconds(const hri_rate_watch *watch);
double hri_rate_watch_spread(const hri_rate_watch *watch);
/* With NEW: what to store, as long as the watch lives. */
const hr_device_rates *hri_rate_watch_rates(const hri_rate_watch *watch);

#endif
