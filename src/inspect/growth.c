/* What outlives its step: allocations of one stack (of one size, where there are no stacks) that were made within the
 * steps and still live at the last allocation (what goes after it goes with the program, or with the exception that
 * ended it). What a step always leaves behind until the next (gradients, outputs) is only there from the last two
 * steps, so only what older steps left counts. Kinds: a leak goes on to the end; what settled grew and stopped; a
 * one-off came in a single step.
 *
 * And what is made anew in every step, each time larger, in the place of the one before: nothing is older than a step
 * then, and all the same it grows (torch.cat of all that was seen). Outputs of longer and longer batches look like it;
 * but with those all else of the step grows too, so the peaks of the steps may grow by no more than this, twice (the old
 * one and the new one live side by side). */
#include "inspect/inside.h"

#include <stdlib.h>

typedef struct survivor {
  uint64_t key, bytes, life;
  uint32_t step;
} survivor;

static int survivor_order(const void *a, const void *b) {
  const survivor *x = a, *y = b;
  if (x->key != y->key) return x->key < y->key ? -1 : 1;
  return (x->life > y->life) - (x->life < y->life);
}

static uint64_t step_end(const hr_inspection *p, uint32_t step) {
  return p->steps[step].first_event + p->steps[step].event_count;
}

/* Which lives that were made in a step count. */
typedef bool choice(const hri_inside *in, const hri_life *life, uint32_t step);

static bool is_kept(const hri_inside *in, const hri_life *life, uint32_t step) {
  (void)step;
  return hri_life_kept(in, life);
}

/* There behind the end of its step, be it for a moment. */
static bool is_carried(const hri_inside *in, const hri_life *life, uint32_t step) {
  return life->stack && life->end > step_end(&in->public, step);
}

/* How many there are; rows NULL: only that. */
static uint64_t collect(const hri_inside *in, choice *counts, survivor *rows) {
  const hr_inspection *p = &in->public;
  uint64_t count = 0;
  uint32_t step = 0;
  for (uint64_t k = in->lives->before_count; k < in->lives->count; k++) {
    const hri_life *life = &in->lives->lives[k];
    while (step < p->step_count && life->alloc >= step_end(p, step)) step++;
    if (step == p->step_count) break;
    if (life->alloc < p->steps[step].first_event || !counts(in, life, step)) continue;
    if (rows)
      rows[count] =
          (survivor){life->stack ? in->stacks[life->stack].plain : (uint64_t)1 << 63 | life->size, life->size, k, step};
    count++;
  }
  return count;
}

/* `rows` are of one key, in the order of time. False when nothing is older than the last two steps. */
static bool judge(const hri_inside *in, const survivor *rows, uint64_t count, hr_growth *g) {
  uint32_t steps = in->public.step_count, late = 0, half[2] = {0, 0}, last = UINT32_MAX, first = rows[0].step;
  uint64_t after_two = 0, old_bytes = 0;
  *g = (hr_growth){.stack = in->lives->lives[rows[0].life].stack,
                   .category = in->public.life_category[rows[0].life],
                   .steps_seen = steps};
  for (uint64_t k = 0; k < count; k++) {
    g->bytes += rows[k].bytes;
    g->count++;
    if (rows[k].step >= 2) after_two += rows[k].bytes;
    if (rows[k].step + 2 < steps) old_bytes += rows[k].bytes;
    if (rows[k].step == last) continue;
    last = rows[k].step;
    g->steps_grown++;
    half[last >= steps / 2]++;
    late += last + 2 < steps && last >= steps - steps / 3 - 2;
  }
  g->bytes_per_step = last >= 2 ? (double)after_two / (last - 1) : 0; /* the trace's last step may have been cut off */
  if (!old_bytes || steps < 4) return false;
  if (g->steps_grown == 1) g->kind = HR_GROWTH_ONCE;
  else if (!late) g->kind = HR_GROWTH_SETTLED;
  else if (g->steps_grown < 3 || g->steps_grown * 4 < last - first) return false; /* long lives here and there */
  else g->kind = half[1] * 2 >= half[0] || first >= steps / 2 ? HR_GROWTH_LEAK : HR_GROWTH_SETTLED;
  return true;
}

/* ---- larger each step ---- */

enum { LEAST_LARGER = 6 };

/* One a step, replaced in the next, larger each time, by about as much in both halves, and nearly all that the peaks of
 * the steps grow by. */
static bool judge_larger(const hri_inside *in, const survivor *rows, uint64_t count, hr_growth *g) {
  const hr_inspection *p = &in->public;
  const survivor *first = rows, *last = rows + (count - 1), *middle = rows + count / 2;
  uint64_t grown, half, peak, before, kept = 0;
  uint32_t not_larger = 0;
  if (count < LEAST_LARGER || last->bytes <= first->bytes || last->step + 3 < p->step_count) return false;
  if (last->step - first->step + 1 > count + count / 8) return false; /* in nearly every step */
  for (uint64_t k = 1; k < count; k++) {
    if (rows[k].step == rows[k - 1].step) return false;
    not_larger += rows[k].bytes <= rows[k - 1].bytes;
    kept += hri_life_kept(in, &in->lives->lives[rows[k - 1].life]);
  }
  grown = last->bytes - first->bytes;
  half = middle->bytes > first->bytes ? middle->bytes - first->bytes : 0;
  peak = p->steps[last->step].peak_live_bytes;
  before = p->steps[first->step + 1].peak_live_bytes; /* its first step may be the trace's, without all states */
  if (not_larger * 10 > count || kept > 1 || half * 4 < grown || half * 4 > grown * 3) return false;
  if (peak <= before || peak - before > 2 * grown + grown / 4) return false;
  *g = (hr_growth){.kind = HR_GROWTH_LARGER,
                   .stack = in->lives->lives[last->life].stack,
                   .category = p->life_category[last->life],
                   .bytes = grown,
                   .count = 1,
                   .bytes_per_step = (double)grown / (last->step - first->step),
                   .steps_grown = (uint32_t)count - 1 - not_larger,
                   .steps_seen = last->step - first->step};
  return true;
}

const char *hr_growth_name(hr_growth_kind kind) {
  static const char *const names[] = {"leak", "settled", "one-off", "larger", "kept graph", "kept outputs", "cache"};
  return (unsigned)kind <= HR_GROWTH_CACHE ? names[kind] : "leak";
}

static int growth_order(const void *a, const void *b) {
  const hr_growth *x = a, *y = b;
  if (hr_growth_goes_on(x->kind) != hr_growth_goes_on(y->kind)) return hr_growth_goes_on(x->kind) ? -1 : 1;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return (x->stack > y->stack) - (x->stack < y->stack);
}

typedef bool judgement(const hri_inside *in, const survivor *rows, uint64_t count, hr_growth *g);

/* Adds what `judges` finds in the rows of each key; p->growth has room for it. */
static void judge_keys(hri_inside *in, survivor *rows, uint64_t count, judgement *judges) {
  hr_inspection *p = &in->public;
  uint64_t from = 0;
  qsort(rows, (size_t)count, sizeof *rows, survivor_order);
  for (uint64_t k = 1; k <= count; k++) {
    if (k < count && rows[k].key == rows[from].key) continue;
    p->growth_count += judges(in, rows + from, k - from, &p->growth[p->growth_count]);
    from = k;
  }
}

hr_status hri_growth_find(hri_inside *in, hr_error *error) {
  hr_inspection *p = &in->public;
  uint64_t kept, carried;
  survivor *rows;
  if (p->step_count < 4) return HR_OK;
  kept = collect(in, is_kept, NULL);
  carried = collect(in, is_carried, NULL);
  rows = hri_alloc((size_t)((kept > carried ? kept : carried) + 1) * sizeof *rows);
  p->growth = hri_alloc((size_t)(kept + carried / LEAST_LARGER + 1) * sizeof *p->growth);
  if (!rows || !p->growth) {
    hri_free(rows);
    return hri_fail_memory(error, (kept + carried) * sizeof *rows, "what outlives its step");
  }
  judge_keys(in, rows, collect(in, is_kept, rows), judge);
  judge_keys(in, rows, collect(in, is_carried, rows), judge_larger);
  hri_free(rows);
  qsort(p->growth, p->growth_count, sizeof *p->growth, growth_order);
  return HR_OK;
}
