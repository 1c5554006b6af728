/* What stood in the way of a failed request: the amounts and the tests that inspect's headline and the explainer share, so
 * that both say the same of one snapshot. docs/inspect.md lists the headlines, docs/explain.md the causes.
 *
 * At the failing request: R reserved, F free on the device, N asked of the driver, C cached in the default pools, P free in
 * private pools; of a request of a private pool C is what that pool has free for it, P all else that is cached. */
#ifndef HRI_INSPECT_SHORTAGE_H
#define HRI_INSPECT_SHORTAGE_H

#include <headroom/alloc.h>
#include <headroom/inspect.h>

typedef struct hri_shortage {
  const hr_inspection *in;
  const hr_oom_event *oom;  /* the failure at the instant, else the last one; NULL: none is recorded */
  uint64_t request, need;   /* rounded to blocks; N, at least the request */
  uint64_t reserved, live;  /* R; live is what blocks take that nobody else can use: pending ones too */
  uint64_t device_free;     /* F, 0 where it is not known */
  uint64_t cached;          /* C */
  uint64_t pools_free;      /* P */
  uint64_t unasked;         /* of live: what blocks have beyond what was asked for, by settings that keep them whole */
  uint64_t growing;         /* bytes left behind by what grows to the end of the trace */
  const hr_growth *largest; /* of that; NULL: nothing grows */
  bool knows_free;
  hr_alloc_config settings; /* as recorded */
} hri_shortage;

hri_shortage hri_shortage_of(const hr_inspection *in);

/* Whether frees are recorded and no allocation: skip_actions left them out, or there were none. What was live at an instant before the
 * last, the peak with it, is then not known. */
bool hri_lacks_allocs(const hr_inspection *in);

/* The share of the device that the recorded settings allow; 0 when they state none. */
double hri_stated_fraction(const hri_shortage *s);
/* How many of the recorded failures came with enough free on the device for what they asked of it: two do not come by a
 * passing shortage. */
uint32_t hri_failures_with_room(const hri_shortage *s);
/* With enough free on the device: whether anything in the recording says that a limit below its memory refused it. */
bool hri_short_by_limit(const hri_shortage *s);

/* Bytes that this allocator held before and that neither it nor the device has now, where they would have been enough. */
uint64_t hri_short_by_loss(const hri_shortage *s);
/* Private pools hold what is missing, or most of what is free. */
bool hri_short_by_pools(const hri_shortage *s);
/* Without what steps or passes leave behind there would be room. */
bool hri_short_by_growth(const hri_shortage *s);
/* The most that was live before the failure and went well: in the whole steps before it and what came before them. The step
 * that failed, which without steps is all of the recording, counts only where it had a tenth of the memory more than it
 * needed then: close to its peak it is still growing. */
uint64_t hri_live_before(const hri_shortage *s);
/* Whether pieces are the cause and not just the last straw of a device that fills up. 0: no, or too little to say; 1: likely;
 * 2: a replay that meets the request makes it certain. */
int hri_short_by_pieces(const hri_shortage *s);
/* Whether blocks that the recorded settings keep whole (max_split_size) or round up (roundup_power2_divisions) hold what is
 * missing, beyond what was asked for, with as much to spare as pieces need: and this is no step that needs more than those
 * before. Whether other settings would do without is a replay's to say. */
bool hri_short_by_blocks(const hri_shortage *s);
/* The recorded setting that makes them larger, by its name. */
const char *hri_larger_blocks_by(const hri_shortage *s);
/* Whether each step before left and needed about what the second did. A leak that comes from many places is no
 * stack's. */
bool hri_steps_are_even(const hri_shortage *s);

#endif
