/* What a snapshot's failure is judged by: the sums at the failing request, what was live, and what replay proved. */
#ifndef HRI_EXPLAIN_EVIDENCE_H
#define HRI_EXPLAIN_EVIDENCE_H

#include "explain/message.h"
#include "inspect/shortage.h"

typedef struct hri_oom_facts {
  const hr_oom_evidence *evidence;
  const hr_inspection *i;
  const hr_oom_event *oom; /* NULL: no failure is recorded */
  uint64_t request, need;  /* rounded to blocks; what the driver is asked for */
  uint64_t total, device_free, reserved, live, returnable, cached, pools_free;
  uint64_t leak_bytes;
  const hr_growth *leak; /* the largest */
  bool knows_free;
  hri_shortage shortage; /* what all of this but the total is taken from */
} hri_oom_facts;

hri_oom_facts hri_oom_facts_of(const hr_oom_evidence *evidence);
/* Figures and shares of the failure. */
void hri_oom_fill(hr_oom_failure *f, const hri_oom_facts *k);
static inline void hri_oom_set(hr_oom_failure *f, hr_oom_figure figure, hr_oom_state state, uint64_t bytes) {
  f->figures[figure] = (hr_oom_value){state, bytes, 0};
}

/* A stack in the words of hr_inspect_stack_text, "linear < model.py:42 train_step". */
void hri_oom_stack_text(const hr_snapshot *s, uint32_t stack, char *out, size_t capacity);
/* Lines about what was live: the largest categories, the largest stack. */
void hri_oom_note_live(hr_oom_failure *f, const hri_oom_facts *k);

/* Whether the replay can say anything about other settings; how many carry the failed request; and the advice and
 * lines that follow, for a judged failure. */
bool hri_oom_can_prove(const hri_oom_facts *k);
uint32_t hri_oom_carried_count(const hri_oom_facts *k);
/* Whether one of them carries the rest of the failing step as well. */
bool hri_oom_step_carried(const hri_oom_facts *k);
/* ... or carries at least what a whole step before shows of the rest, though this one is not like it. */
bool hri_oom_rest_is_met(const hri_oom_facts *k);
/* Whether each that carries the request fails at what a whole step before shows of the rest: more is lacking than pieces. */
bool hri_oom_rest_fails(const hri_oom_facts *k);
void hri_oom_add_proofs(hr_oom_failure *f, const hri_oom_facts *k);

#endif
