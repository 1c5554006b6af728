/* What outlives its step: allocations of one stack (of one size, where there are no stacks) that were made within the
 * steps and still live at the last allocation (what goes after it goes with the program, or with the exception that
 * ended it). What a step always leaves behind until the next (gradients, outputs) is only there from the last two
 * steps, so only what older steps left counts. Kinds: a leak goes on to the end; what settled grew and stopped; a
 * one-off came in a single step. */
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

static uint64_t collect(const hri_inside *in, survivor *rows) {
  const hr_inspection *p = &in->public;
  uint64_t count = 0;
  uint32_t step = 0;
  for (uint64_t k = in->lives->before_count; k < in->lives->count; k++) {
    const hri_life *life = &in->lives->lives[k];
    while (step < p->step_count && life->alloc >= p->steps[step].first_event + p->steps[step].event_count) step++;
    if (step == p->step_count) break;
    if (!hri_life_kept(in, life) || life->alloc < p->steps[step].first_event) continue;
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

const char *hr_growth_name(hr_growth_kind kind) {
  static const char *const names[] = {"leak", "settled", "one-off", "kept graph", "kept outputs", "cache"};
  return (unsigned)kind <= HR_GROWTH_CACHE ? names[kind] : "leak";
}

static int growth_order(const void *a, const void *b) {
  const hr_growth *x = a, *y = b;
  if ((x->kind == HR_GROWTH_LEAK) != (y->kind == HR_GROWTH_LEAK)) return x->kind == HR_GROWTH_LEAK ? -1 : 1;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return (x->stack > y->stack) - (x->stack < y->stack);
}

hr_status hri_growth_find(hri_inside *in, hr_error *error) {
  hr_inspection *p = &in->public;
  uint64_t count, from = 0;
  survivor *rows;
  if (p->step_count < 4) return HR_OK;
  count = collect(in, NULL);
  rows = hri_alloc((size_t)(count + 1) * sizeof *rows);
  p->growth = hri_alloc((size_t)(count + 1) * sizeof *p->growth);
  if (!rows || !p->growth) {
    hri_free(rows);
    return hri_fail_memory(error, count * sizeof *rows, "what outlives its step");
  }
  (void)collect(in, rows);
  qsort(rows, (size_t)count, sizeof *rows, survivor_order);
  for (uint64_t k = 1; k <= count; k++) {
    if (k < count && rows[k].key == rows[from].key) continue;
    p->growth_count += judge(in, rows + from, k - from, &p->growth[p->growth_count]);
    from = k;
  }
  hri_free(rows);
  qsort(p->growth, p->growth_count, sizeof *p->growth, growth_order);
  return HR_OK;
}
