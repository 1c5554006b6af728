/* What the failing step would have asked for next: nobody recorded it, but the last whole step before it shows it.
 *
 * Requests are aligned by stack: the n-th of a stack in the failing step is the n-th of that stack in the whole one. So
 * the failed request has its place there, what comes behind that place is the rest, and what the rest frees is found
 * again among the failing step's own blocks (and those of the step before it). Sizes are those of the failing step: a
 * size that the pairs before the place show is taken as they show it, one that the model had before its first step
 * stays, and others grow by what the pairs grew by together.
 *
 * A kernel asks for room of its own by the shape that it is given (sums of many rows, sorts), which a smaller step does not
 * show: where this one is more than twice as large, or already asked for what the whole one has no counterpart of, the
 * rest is only the least that follows. */
#include "replay/rest.h"

#include <stdlib.h>
#include <string.h>

#include "inspect/inside.h"

enum { STEPS_TRIED = 4 };

/* ---- the requests of a step, by stack ---- */

typedef struct spot {
  uint32_t stack, nth;
  uint64_t event, life; /* life: HRI_NEVER for a request that failed */
} spot;

typedef HRI_ARRAY(spot) spots;

static int by_stack(const void *a, const void *b) {
  const spot *x = a, *y = b;
  if (x->stack != y->stack) return x->stack < y->stack ? -1 : 1;
  return (x->event > y->event) - (x->event < y->event);
}

/* The first life that was made at `event` or later. */
static uint64_t life_from(const hri_lives *l, uint64_t event) {
  uint64_t low = l->before_count, high = l->count;
  while (low < high) {
    uint64_t middle = low + (high - low) / 2;
    if (l->lives[middle].alloc < event) low = middle + 1;
    else high = middle;
  }
  return low;
}

/* All requests of [from, to), by stack and time. */
static bool list_spots(const hri_inside *in, const hri_lives *l, uint64_t from, uint64_t to, spots *list) {
  uint64_t life = life_from(l, from);
  for (uint64_t k = from; k < to; k++) {
    const hr_trace_event *e = &l->events[k];
    spot s = {.stack = in->stacks[e->stack].plain, .event = k, .life = HRI_NEVER};
    bool made = life < l->count && l->lives[life].alloc == k;
    if (made) s.life = life++;
    if ((made || e->action == HR_TRACE_OOM) && !hri_array_push(list, s)) return false;
  }
  if (list->count) qsort(list->items, list->count, sizeof *list->items, by_stack);
  for (size_t k = 1; k < list->count; k++)
    if (list->items[k].stack == list->items[k - 1].stack) list->items[k].nth = list->items[k - 1].nth + 1;
  return true;
}

static int by_place(const void *a, const void *b) {
  const spot *x = a, *y = b;
  if (x->stack != y->stack) return x->stack < y->stack ? -1 : 1;
  return (x->nth > y->nth) - (x->nth < y->nth);
}

static const spot *spot_at(const spots *list, uint32_t stack, uint32_t nth) {
  const spot wanted = {.stack = stack, .nth = nth};
  return list->count ? bsearch(&wanted, list->items, list->count, sizeof wanted, by_place) : NULL;
}

/* The same request in another step. */
static const spot *counterpart(const hri_inside *in, const hri_lives *l, const spots *from, const spots *to,
                               uint64_t life) {
  const spot wanted = {.stack = in->stacks[l->lives[life].stack].plain, .event = l->lives[life].alloc};
  const spot *here = from->count ? bsearch(&wanted, from->items, from->count, sizeof wanted, by_stack) : NULL;
  return here ? spot_at(to, here->stack, here->nth) : NULL;
}

/* ---- sizes ---- */

typedef struct pair {
  uint64_t then, now; /* in the whole step, in the failing one */
} pair;

typedef struct sizes {
  HRI_ARRAY(pair) pairs;    /* by `then`, then the largest `now` first */
  HRI_ARRAY(uint64_t) kept; /* sizes of what was made before the first step, sorted */
  double growth;
} sizes;

static int by_then(const void *a, const void *b) {
  const pair *x = a, *y = b;
  if (x->then != y->then) return x->then < y->then ? -1 : 1;
  return (x->now < y->now) - (x->now > y->now);
}

static int by_number(const void *a, const void *b) {
  const uint64_t *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

/* The failed request tells as much as those that were met: of a step that fails in its first layer it is all that is known. */
static bool learn_sizes(const hri_lives *l, const spots *then, const spots *now, uint64_t place, uint64_t first_step,
                        sizes *z) {
  double sum[2] = {0, 0};
  for (size_t k = 0; k < then->count; k++) {
    const spot *a = &then->items[k], *b = a->event <= place ? spot_at(now, a->stack, a->nth) : NULL;
    pair p;
    if (!b || a->life == HRI_NEVER || (b->life == HRI_NEVER && a->event < place)) continue;
    p = (pair){l->lives[a->life].size, b->life == HRI_NEVER ? l->events[b->event].size : l->lives[b->life].size};
    sum[0] += (double)p.then;
    sum[1] += (double)p.now;
    if (!hri_array_push(&z->pairs, p)) return false;
  }
  for (uint64_t k = 0; k < l->count && (k < l->before_count || l->lives[k].alloc < first_step); k++)
    if (!hri_array_push(&z->kept, l->lives[k].size)) return false;
  if (z->pairs.count) qsort(z->pairs.items, z->pairs.count, sizeof *z->pairs.items, by_then);
  if (z->kept.count) qsort(z->kept.items, z->kept.count, sizeof *z->kept.items, by_number);
  z->growth = sum[0] > 0 && sum[1] > sum[0] ? sum[1] / sum[0] : 1;
  return true;
}

static uint64_t size_now(const sizes *z, uint64_t then) {
  size_t low = 0, high = z->pairs.count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (z->pairs.items[middle].then < then) low = middle + 1;
    else high = middle;
  }
  if (low < z->pairs.count && z->pairs.items[low].then == then) return z->pairs.items[low].now;
  if (z->kept.count && bsearch(&then, z->kept.items, z->kept.count, sizeof then, by_number)) return then;
  return (double)then * z->growth < (double)HRI_ABSURD_BYTES ? (uint64_t)((double)then * z->growth) : then;
}

/* ---- the rest ---- */

typedef struct finder {
  const hri_recording *recording;
  const hri_inside *in;
  const hri_lives *l;
  uint64_t failed;         /* the out-of-memory event */
  uint64_t begin;          /* of the failing step */
  spots now, before_now;   /* requests of the failing step, and of the one before it */
  spots then, before_then; /* ... of the whole step that is tried */
  uint64_t place;          /* where the failed request stands in it */
} finder;

static uint32_t pool_of(const finder *f, uint64_t event) {
  return f->recording->event_pool ? f->recording->event_pool[event] : 0;
}

/* Where the failing step begins, and how many whole steps are before it. */
static uint32_t find_begin(finder *f) {
  const hr_inspection *p = &f->in->public;
  uint32_t whole = 0;
  f->begin = 0;
  while (whole < p->step_count && hri_step_end(&p->steps[whole]) <= f->failed)
    f->begin = hri_step_end(&p->steps[whole++]);
  if (whole < p->step_count && p->steps[whole].first_event <= f->failed && p->steps[whole].first_event > f->begin)
    f->begin = p->steps[whole].first_event;
  return whole;
}

/* Whether the failed request has a place in this step, after about as many requests as here. */
static bool find_place(finder *f) {
  const spot *here = NULL, *there;
  uint64_t before_here = 0, before_there = 0, apart;
  for (size_t k = 0; k < f->now.count; k++) {
    if (f->now.items[k].event == f->failed) here = &f->now.items[k];
    before_here += f->now.items[k].event < f->failed;
  }
  there = here ? spot_at(&f->then, here->stack, here->nth) : NULL;
  if (!there || there->life == HRI_NEVER) return false;
  f->place = there->event;
  for (size_t k = 0; k < f->then.count; k++) before_there += f->then.items[k].event < f->place;
  apart = before_here > before_there ? before_here - before_there : before_there - before_here;
  return apart <= 2 + before_there / 10;
}

/* What a request got and holds at `event`. */
static uint64_t held_at(const hri_lives *l, const spot *request, uint64_t event) {
  const hri_life *life = request->life == HRI_NEVER ? NULL : &l->lives[request->life];
  return life && (life->end == HRI_NEVER || life->end > event) ? life->size : 0;
}

/* Whether the requests before the place that both steps make hold about as much here as there, in the sizes of each. A step
 * that keeps what the other one freed (layers that were frozen until now, a graph that nobody wanted) goes on in another
 * way. */
static bool holds_alike(const finder *f, const sizes *z) {
  double then = 0, now = 0;
  for (size_t k = 0; k < f->then.count; k++) {
    const spot *a = &f->then.items[k], *b = a->event < f->place ? spot_at(&f->now, a->stack, a->nth) : NULL;
    then += b ? (double)held_at(f->l, a, f->place) : 0;
    now += b ? (double)held_at(f->l, b, f->failed) : 0;
  }
  return now <= 1.25 * z->growth * then + (double)f->l->peak_live_bytes / 32;
}

/* Whether what the failing step asked for before the place has counterparts in the whole one, but for a hundredth of all that
 * is live, and is at most twice as large. */
static bool is_unlike(const finder *f, const sizes *z) {
  uint64_t alone = 0;
  for (size_t k = 0; k < f->now.count; k++) {
    const spot *here = &f->now.items[k], *there = spot_at(&f->then, here->stack, here->nth);
    if (here->event < f->failed && here->life != HRI_NEVER && (!there || there->event > f->place))
      alone += f->l->lives[here->life].size;
  }
  return z->growth > 2 || alone > f->l->peak_live_bytes / 100;
}

/* The block of the failing step that `life` of the whole one stands for, where it is still there; 0: none. */
static uint64_t block_for(const finder *f, uint64_t life) {
  const hri_life *old = &f->l->lives[life], *own;
  const spot *s;
  if (old->alloc == HRI_NEVER) own = old;
  else {
    s = counterpart(f->in, f->l, &f->then, &f->now, life);
    if (!s) s = counterpart(f->in, f->l, &f->before_then, &f->before_now, life);
    if (!s || s->life == HRI_NEVER) return 0;
    own = &f->l->lives[s->life];
  }
  return own->end == HRI_NEVER || own->end > f->failed ? own->addr : 0;
}

static bool list_ops(finder *f, uint64_t end, const sizes *z, hri_rest *rest) {
  const hri_lives *l = f->l;
  uint64_t made = life_from(l, f->place + 1), gone = 0, first_own = made;
  while (gone < l->ended_count && l->lives[l->ended[gone]].end <= f->place) gone++;
  for (uint64_t k = f->place + 1; k < end; k++) {
    for (; gone < l->ended_count && l->lives[l->ended[gone]].end == k; gone++) {
      uint64_t life = l->ended[gone];
      hri_rest_op op = {.free = true};
      if (l->lives[life].alloc == f->place) op.key = HRI_REST_FAILED;
      else if (l->lives[life].alloc != HRI_NEVER && life >= first_own) op.key = HRI_REST_KEY(life);
      else op.key = block_for(f, life);
      if (op.key && !hri_array_push(&rest->ops, op)) return false;
    }
    if (made == l->count || l->lives[made].alloc != k) continue;
    if (!hri_array_push(&rest->ops, ((hri_rest_op){HRI_REST_KEY(made), size_now(z, l->lives[made].size),
                                                   l->lives[made].stream, pool_of(f, k), false})))
      return false;
    made++;
  }
  return true;
}

/* Whether what was recorded after the failure are the same requests, in the same order, to the step's end. */
static bool goes_on(const finder *f, uint64_t end) {
  const hri_lives *l = f->l;
  uint64_t here = life_from(l, f->failed + 1), there = life_from(l, f->place + 1);
  if (there == l->count || l->lives[there].alloc >= end) return false; /* nothing is left to compare */
  for (; there < l->count && l->lives[there].alloc < end; here++, there++)
    if (here == l->count || f->in->stacks[l->lives[here].stack].plain != f->in->stacks[l->lives[there].stack].plain)
      return false;
  return true;
}

/* Whether the program later asks as much at the same place: then it did not learn from the failure to ask for less, or
 * no more. What one that did learn asks where nothing fails, is not recorded. */
static bool asks_again(const finder *f) {
  const hri_lives *l = f->l;
  const hr_trace_event *failed = &l->events[f->failed];
  const uint32_t stack = f->in->stacks[failed->stack].plain;
  for (uint64_t k = life_from(l, f->failed + 1); k < l->count; k++)
    if (f->in->stacks[l->lives[k].stack].plain == stack &&
        hri_round_request(&l->snapshot->settings, l->lives[k].size) >= failed->size)
      return true;
  return false;
}

static uint32_t age_of(const finder *f, const hri_life *life) {
  const hr_inspection *p = &f->in->public;
  return hri_step_of(p, life->end) - (life->alloc == HRI_NEVER ? 0 : hri_step_of(p, life->alloc));
}

typedef struct ages {
  uint32_t least, most; /* in steps, of what has gone; least > most: nothing has */
} ages;

/* Whether what earlier steps made goes after the failure at an age at which nothing of its place had gone before: as where
 * a program drops a cache because it failed, or keeps fewer batches ready from then on. */
static bool drops_what_was_kept(const finder *f, bool *dropped) {
  const hri_lives *l = f->l;
  const size_t stacks = (size_t)l->snapshot->stack_count + 1;
  ages *gone = hri_alloc(stacks * sizeof *gone);
  if (!gone) return false;
  for (size_t k = 0; k < stacks; k++) gone[k] = (ages){UINT32_MAX, 0};
  for (uint64_t k = 0; k < l->count; k++) {
    const hri_life *life = &l->lives[k];
    ages *of = &gone[f->in->stacks[life->stack].plain];
    const uint32_t age = life->end <= f->failed ? age_of(f, life) : 0;
    if (life->end > f->failed) continue;
    if (age < of->least) of->least = age;
    if (age > of->most) of->most = age;
  }
  *dropped = false;
  for (uint64_t k = 0; k < l->count && !*dropped; k++) {
    const hri_life *life = &l->lives[k];
    const ages *of = &gone[f->in->stacks[life->stack].plain];
    if (life->alloc != HRI_NEVER && life->alloc >= f->begin) break;
    if (life->end <= f->failed || hri_life_kept(f->in, life)) continue;
    *dropped = age_of(f, life) < of->least || age_of(f, life) > of->most;
  }
  hri_free(gone);
  return true;
}

/* Whether no step after the failing one comes to what those before it came to: then the program asks for less from then
 * on, a smaller batch for one. */
static bool needs_less_after(const finder *f) {
  const hr_inspection *p = &f->in->public;
  uint64_t before = 0, after = 0;
  bool any = false;
  for (uint32_t k = 0; k < p->step_count; k++) {
    const hr_step_sums *s = &p->steps[k];
    if (hri_step_end(s) <= f->failed && s->peak_live_bytes > before) before = s->peak_live_bytes;
    if (s->first_event <= f->failed) continue;
    any = true;
    if (s->peak_live_bytes > after) after = s->peak_live_bytes;
  }
  return any && after < before - before / 64;
}

/* Whether something of the failing step goes after fewer requests than its counterpart in the whole step. */
static bool drops_early(const finder *f, uint64_t end) {
  const hri_lives *l = f->l;
  for (size_t k = 0; k < f->now.count; k++) {
    const spot *here = &f->now.items[k], *there = spot_at(&f->then, here->stack, here->nth);
    const hri_life *own, *old;
    if (!there || here->life == HRI_NEVER || there->life == HRI_NEVER) continue;
    own = &l->lives[here->life];
    old = &l->lives[there->life];
    if (own->end <= f->failed || own->end == HRI_NEVER || old->end <= f->place) continue;
    if (life_from(l, own->end) - life_from(l, f->failed) <
        life_from(l, old->end < end ? old->end : end) - life_from(l, f->place + 1))
      return true;
  }
  return false;
}

/* The failed request's block, had it been met, is freed after as many requests as in the whole step, which are those of
 * the recording. HRI_NEVER: it outlives that step, and when it goes is not known. */
static uint64_t freed_before(const finder *f, uint64_t end) {
  const hri_lives *l = f->l;
  const uint64_t place = life_from(l, f->place), here = life_from(l, f->failed + 1);
  const uint64_t freed = l->lives[place].end, more = freed < end ? life_from(l, freed) - place - 1 : 0;
  if (freed >= end) return HRI_NEVER;
  return here + more < l->count ? l->lives[here + more].alloc : l->event_count - 1;
}

static bool try_step(finder *f, uint32_t step, hri_rest *rest, bool *found) {
  const hr_step_sums *steps = f->in->public.steps, *s = &steps[step];
  sizes z = {.growth = 1};
  bool ok = list_spots(f->in, f->l, s->first_event, hri_step_end(s), &f->then);
  *found = ok && find_place(f);
  if (*found && step > 0)
    ok = list_spots(f->in, f->l, steps[step - 1].first_event, hri_step_end(&steps[step - 1]), &f->before_then);
  if (*found && ok) {
    ok = learn_sizes(f->l, &f->then, &f->now, f->place, steps[0].first_event, &z);
    *found = ok && holds_alike(f, &z);
  }
  if (*found && ok) {
    ok = list_ops(f, hri_step_end(s), &z, rest);
    rest->step = step + 1;
    rest->unlike = is_unlike(f, &z);
    rest->freed_before = freed_before(f, hri_step_end(s));
    rest->recorded = rest->freed_before != HRI_NEVER && goes_on(f, hri_step_end(s)) && asks_again(f) &&
                     !drops_early(f, hri_step_end(s)) && !needs_less_after(f);
    if (ok && rest->recorded) {
      bool dropped;
      ok = drops_what_was_kept(f, &dropped);
      rest->recorded = ok && !dropped;
    }
  }
  hri_array_free(&z.pairs);
  hri_array_free(&z.kept);
  hri_array_free(&f->then);
  hri_array_free(&f->before_then);
  return ok;
}

static bool find_all(finder *f, hri_rest *rest) {
  const hr_step_sums *steps = f->in->public.steps;
  uint32_t whole = find_begin(f);
  bool found = false, ok;
  const hr_step_sums *last;
  if (!whole) return true;
  last = &steps[whole - 1];
  ok = list_spots(f->in, f->l, f->begin, f->failed + 1, &f->now) &&
       list_spots(f->in, f->l, last->first_event, hri_step_end(last), &f->before_now);
  for (uint32_t k = 0; ok && !found && k < STEPS_TRIED && k < whole; k++) ok = try_step(f, whole - 1 - k, rest, &found);
  hri_array_free(&f->now);
  hri_array_free(&f->before_now);
  return ok;
}

hr_status hri_rest_find(const hri_recording *recording, hri_rest *rest, hr_error *error) {
  const hr_inspect_options how = {.trace = recording->lives->trace, .exact_only = true}; /* before the first event */
  finder f = {.recording = recording, .l = recording->lives, .failed = recording->oom_event};
  hr_inspection *inspection = NULL;
  bool ok = true;
  *rest = (hri_rest){0};
  if (!recording->oom_recorded) return HR_OK;
  HRI_TRY(hr_inspect(recording->lives->snapshot, &how, &inspection, error));
  f.in = (const hri_inside *)inspection;
  /* Without stacks nothing can be aligned; the autograd thread's requests go by their number. */
  if (f.l->events[f.failed].stack || f.in->silent_backward) ok = find_all(&f, rest);
  hr_inspection_destroy(inspection);
  if (ok) return HR_OK;
  hri_rest_deinit(rest);
  return hri_fail_memory(error, recording->lives->event_count * sizeof(spot), "the rest of a step");
}
