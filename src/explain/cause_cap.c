/* A cap on what the allocator may take, below what the device has: what it comes to with what is held and requested.
 *
 * The neighbours may rely on this: a cap is certain only where the device would have had the memory; and where one is
 * printed and is not the cause, a line says so before the next judge is asked. */
#include "explain/cause_parts.h"

/* Whether what is cached is much, and enough for the request if it were in one piece. */
static bool could_serve_cached(const hri_oom_ledger *l) {
  return l->unallocated >= l->requested && l->unallocated >= l->reserved / 4;
}

/* Whether only the cap can have refused it. What is cached would have served a request as well if it were not in
 * pieces; where the text does not say how much that is, what is allocated must have come close to the cap. */
static bool is_cap_alone(const hr_oom_failure *f, const hri_oom_ledger *l, uint64_t have, uint64_t slack) {
  uint64_t cap = f->figures[HR_OOM_ALLOWED].bytes;
  if (!l->knows_free || l->free < l->requested + l->fit_slack) return false;
  if (l->reserved == 0) return have + l->requested >= cap - cap / 10;
  return !could_serve_cached(l) && have + l->requested > cap + slack;
}

/* A cap that is printed, and how far it was used. */
typedef struct limit {
  hr_oom_failure *f;
  const hri_oom_ledger *l;
  uint64_t cap, have; /* what counts against it: what is reserved, or allocated where no more is printed */
  uint64_t slack;     /* of cap + have + requested */
  const char *held;   /* what `have` is */
} limit;

static limit limit_of(hr_oom_failure *f, const hri_oom_ledger *l) {
  const bool reserves = l->reserved > 0;
  const hr_oom_value *v = f->figures;
  limit c = {.f = f, .l = l, .cap = v[HR_OOM_ALLOWED].bytes};
  c.have = reserves ? l->reserved : l->allocated;
  c.held = reserves ? "reserved" : "allocated";
  c.slack = v[HR_OOM_ALLOWED].slack_bytes + v[HR_OOM_REQUESTED].slack_bytes +
            v[reserves ? HR_OOM_RESERVED : HR_OOM_ALLOCATED].slack_bytes;
  return c;
}

/* The request alone is above the cap, whatever was held. */
static bool judge_request(const limit *c) {
  const hri_oom_ledger *l = c->l;
  const hr_oom_value *v = c->f->figures;
  if (!l->knows_requested || !l->knows_free || l->free < l->requested + l->fit_slack || c->cap >= l->total ||
      l->requested <= c->cap + v[HR_OOM_ALLOWED].slack_bytes + v[HR_OOM_REQUESTED].slack_bytes)
    return false;
  hri_oom_line(c->f, "requested %s > allowed %s, whatever was held before; the device itself had %s free",
               HRI_OOM_SIZE(l->requested), HRI_OOM_SIZE(c->cap), HRI_OOM_SIZE(l->free));
  hri_oom_say(c->f, HR_OOM_CAP, HR_OOM_CERTAIN, "a cap of %s refused it, with %s free on the device",
              HRI_OOM_SIZE(c->cap), HRI_OOM_SIZE(l->free));
  return true;
}

/* What is held and requested comes to the cap, but for the rounding. */
static bool judge_reached(const limit *c) {
  const hri_oom_ledger *l = c->l;
  hri_oom_line(c->f, "%s %s + requested %s reach the cap of %s within the rounding of the figures: it may be the cause",
               c->held, HRI_OOM_SIZE(c->have), HRI_OOM_SIZE(l->requested), HRI_OOM_SIZE(c->cap));
  if (!l->knows_free || l->free < l->requested) return false;
  hri_oom_say(c->f, HR_OOM_CAP, HR_OOM_LIKELY, "a cap of %s refused it", HRI_OOM_SIZE(c->cap));
  return true;
}

/* It stays below the cap; what is cached counts against it as well, and how much that is may not be printed. */
static bool judge_below(const limit *c) {
  const hri_oom_ledger *l = c->l;
  if (!l->knows_unallocated && l->reserved == 0 && l->knows_free && l->free >= l->requested + l->fit_slack &&
      c->cap < l->total) {
    hri_oom_line(c->f, "a cap of %s is printed, and the device had %s free; what is cached of it is not in the text",
                 HRI_OOM_SIZE(c->cap), HRI_OOM_SIZE(l->free));
    hri_oom_say(c->f, HR_OOM_CAP, is_cap_alone(c->f, l, c->have, c->slack) ? HR_OOM_CERTAIN : HR_OOM_LIKELY,
                "a cap of %s refused it, with what is cached", HRI_OOM_SIZE(c->cap));
    return true;
  }
  hri_oom_line(c->f, "a cap of %s is printed but is not the cause: %s %s + requested %s stay below it",
               HRI_OOM_SIZE(c->cap), c->held, HRI_OOM_SIZE(c->have), HRI_OOM_SIZE(l->requested));
  return false;
}

/* Why the cap is not certain, though it was exceeded. */
static void say_doubt(const limit *c) {
  const hri_oom_ledger *l = c->l;
  if (!l->knows_free) hri_oom_line(c->f, "how much the device had free is not in the text");
  else if (l->free < l->requested)
    hri_oom_line(c->f, "without the cap the device would not have had the memory either");
  else if (could_serve_cached(l))
    hri_oom_line(c->f, "but %s are reserved and unallocated: in one piece they would have served it",
                 HRI_OOM_SIZE(l->unallocated));
  else
    hri_oom_line(c->f, "the device itself had %s free; the figures are rounded, so this is close",
                 HRI_OOM_SIZE(l->free));
}

static bool judge_exceeded(const limit *c) {
  const hri_oom_ledger *l = c->l;
  hri_oom_line(c->f, "%s %s + requested %s = %s > allowed %s", c->held, HRI_OOM_SIZE(c->have),
               HRI_OOM_SIZE(l->requested), HRI_OOM_SIZE(c->have + l->requested), HRI_OOM_SIZE(c->cap));
  if (l->knows_total && c->cap >= l->total) return false;
  if (is_cap_alone(c->f, l, c->have, c->slack)) {
    hri_oom_line(c->f, "the device itself had %s free", HRI_OOM_SIZE(l->free));
    hri_oom_say(c->f, HR_OOM_CAP, HR_OOM_CERTAIN, "a cap of %s refused it, with %s free on the device",
                HRI_OOM_SIZE(c->cap), HRI_OOM_SIZE(l->free));
  } else {
    say_doubt(c);
    hri_oom_say(c->f, HR_OOM_CAP, HR_OOM_LIKELY, "a cap of %s refused it", HRI_OOM_SIZE(c->cap));
  }
  return true;
}

bool hri_oom_judge_cap(hr_oom_failure *f, const hri_oom_ledger *l) {
  const limit c = limit_of(f, l);
  if (!hri_oom_known(&f->figures[HR_OOM_ALLOWED])) return false;
  if (judge_request(&c)) return true;
  if (!l->knows_allocated && l->reserved == 0) {
    hri_oom_line(f, "a cap of %s is printed; what was held of it is not in the text", HRI_OOM_SIZE(c.cap));
    return false;
  }
  if (c.have + l->requested > c.cap) return judge_exceeded(&c);
  return c.have + l->requested + c.slack > c.cap ? judge_reached(&c) : judge_below(&c);
}

bool hri_oom_is_cap_close(const hr_oom_failure *f, const hri_oom_ledger *l) {
  const hr_oom_value *v = f->figures, *cap = &v[HR_OOM_ALLOWED];
  const uint64_t slack = cap->slack_bytes + v[HR_OOM_REQUESTED].slack_bytes + v[HR_OOM_RESERVED].slack_bytes;
  return cap->state == HR_OOM_NOT_KNOWN || (hri_oom_known(cap) && l->reserved + l->requested + slack >= cap->bytes);
}
