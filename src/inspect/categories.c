/* What each allocation holds: as the file states it, else inferred.
 *
 * With stacks: the marks of its stack decide, together with whether it outlived the run of its stage (a run: consecutive
 * events of one stage; forward and loss are one). Without: the instants of most live bytes within each step divide it - what
 * was made before and freed after is an activation, what was made after and outlives the step is a gradient, what lived
 * through the whole trace is persistent, the rest temporary. docs/inspect.md has the table. */
#include "inspect/inside.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[HRI_CATEGORY_COUNT] = {"unknown", "parameter",     "gradient",  "optimizer_state", "activation", "temporary",
                                                      "input",   "communication", "workspace", "kv_cache",        "persistent"};

/* ---- with stacks ---- */

static bool one_run(uint8_t a, uint8_t b) {
  if (a == HR_STAGE_LOSS) a = HR_STAGE_FORWARD;
  if (b == HR_STAGE_LOSS) b = HR_STAGE_FORWARD;
  return a == b;
}

typedef struct fate {
  hr_stage stage;
  unsigned marks;
  bool outlives;  /* it is live after its stage's run */
  bool at_end;    /* its stage's run is the trace's last, and it lives: nothing tells what would have become of it */
  bool never;     /* it is live at the end */
  bool borrowed;  /* its own stack tells no stage: the stage is that of the events around it */
} fate;

static hri_category by_marks(const fate *f) {
  if (f->marks & HRI_MARK_WORKSPACE) return HRI_WORKSPACE;
  if (f->marks & HRI_MARK_CACHE) return HRI_KV_CACHE;
  if (f->marks & HRI_MARK_COMMUNICATION) return HRI_COMMUNICATION;
  if (f->marks & HRI_MARK_STATE) return f->outlives || f->at_end ? HRI_OPTIMIZER_STATE : HRI_TEMPORARY;
  if (f->marks & HRI_MARK_ACCUMULATE) return HRI_GRADIENT;
  return HRI_UNKNOWN;
}

static hri_category by_stage(const fate *f) {
  switch (f->stage) {
  case HR_STAGE_OPTIMIZER: return f->outlives ? HRI_OPTIMIZER_STATE : HRI_TEMPORARY;
  case HR_STAGE_BACKWARD:
    if (f->marks & HRI_MARK_FORWARD) return HRI_ACTIVATION; /* recomputed */
    return f->outlives ? HRI_GRADIENT : HRI_TEMPORARY;
  case HR_STAGE_FORWARD:
  case HR_STAGE_LOSS:
    if (f->borrowed && f->never) return HRI_UNKNOWN; /* a program's own tensor, not one that backward frees */
    return f->outlives || f->at_end ? HRI_ACTIVATION : HRI_TEMPORARY;
  case HR_STAGE_INIT: return f->outlives || f->at_end ? HRI_PARAMETER : HRI_TEMPORARY;
  case HR_STAGE_DATA: return HRI_INPUT;
  case HR_STAGE_COMMUNICATION: return HRI_COMMUNICATION;
  case HR_STAGE_EVALUATION:
  case HR_STAGE_GENERATION: return f->never ? HRI_UNKNOWN : HRI_TEMPORARY;
  case HR_STAGE_CHECKPOINT: return HRI_TEMPORARY;
  default: return HRI_UNKNOWN;
  }
}

typedef struct sizes {
  uint64_t *items, count;
} sizes;

static int size_order(const void *a, const void *b) {
  const uint64_t *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

/* Sizes of parameters: a gradient has that of its parameter, which decides when a trace ends within backward. */
static bool parameter_sizes(const hri_inside *in, sizes *found) {
  const uint16_t *category = in->public.life_category;
  uint64_t count = 0;
  for (uint64_t k = 0; k < in->lives->count; k++) count += category[k] == HRI_PARAMETER;
  found->items = hri_alloc((size_t)(count + 1) * sizeof *found->items);
  if (!found->items) return false;
  for (uint64_t k = 0; k < in->lives->count; k++)
    if (category[k] == HRI_PARAMETER) found->items[found->count++] = in->lives->lives[k].size;
  if (found->count) qsort(found->items, (size_t)found->count, sizeof *found->items, size_order);
  return true;
}

static fate fate_of(const hri_inside *in, const hri_life *life, uint64_t run_end) {
  fate f = {hri_life_stage(in, life), in->stacks[life->stack].marks, false, false, life->end == HRI_NEVER,
            in->stacks[life->stack].stage == HR_STAGE_UNKNOWN};
  uint64_t last = in->lives->event_count;
  if (life->alloc == HRI_NEVER) {
    f.outlives = true; /* of the beginning of the trace, that is: its stage was over, as far as anybody knows */
    return f;
  }
  f.outlives = run_end < last && (f.never || life->end > run_end);
  f.at_end = f.never && run_end >= last;
  return f;
}

static hr_status from_stacks(hri_inside *in, hr_error *error) {
  const hri_lives *l = in->lives;
  uint16_t *category = in->public.life_category;
  uint64_t run_end = 0; /* first event of the next stage */
  sizes known = {0};
  for (uint64_t k = 0; k < l->count; k++) {
    const hri_life *life = &l->lives[k];
    fate f;
    if (life->alloc != HRI_NEVER && run_end <= life->alloc)
      for (run_end = life->alloc; run_end < l->event_count && one_run(in->stages[run_end], in->stages[life->alloc]);) run_end++;
    f = fate_of(in, life, run_end);
    if (life->alloc == HRI_NEVER && !life->stack) category[k] = f.never ? HRI_PERSISTENT : HRI_UNKNOWN;
    else if (!(category[k] = (uint16_t)by_marks(&f))) category[k] = (uint16_t)by_stage(&f);
  }
  if (!parameter_sizes(in, &known)) return hri_fail_memory(error, known.count * 8, "the sizes of parameters");
  for (uint64_t k = l->before_count; k < l->count && known.count; k++) {
    const hri_life *life = &l->lives[k];
    if (category[k] == HRI_TEMPORARY && life->end == HRI_NEVER && hri_life_stage(in, life) == HR_STAGE_BACKWARD &&
        bsearch(&life->size, known.items, (size_t)known.count, sizeof life->size, size_order))
      category[k] = HRI_GRADIENT;
  }
  hri_free(known.items);
  return HR_OK;
}

/* ---- without stacks ---- */

/* The event of most live bytes in each step, or the trace's. */
typedef struct tops {
  const hri_inside *in;
  uint64_t *events, *bytes, *ends;
  uint64_t count, at;
} tops;

static void find_top(void *context, const hri_level *level) {
  tops *t = context;
  while (t->at + 1 < t->count && level->event >= t->ends[t->at]) t->at++;
  if (level->live_bytes > t->bytes[t->at]) t->bytes[t->at] = level->live_bytes, t->events[t->at] = level->event;
}

static hri_category by_life(const tops *t, const hri_life *life) {
  uint64_t low = 0, high = t->count - 1, top, end;
  if (life->alloc == HRI_NEVER) return life->end == HRI_NEVER ? HRI_PERSISTENT : HRI_UNKNOWN;
  while (low < high) {
    uint64_t middle = low + (high - low) / 2;
    if (t->ends[middle] <= life->alloc) low = middle + 1;
    else high = middle;
  }
  top = t->events[low];
  end = t->ends[low];
  if (life->alloc <= top) return life->end > top ? HRI_ACTIVATION : HRI_TEMPORARY;
  return life->end == HRI_NEVER || life->end >= end ? HRI_GRADIENT : HRI_TEMPORARY;
}

static hr_status from_lives(hri_inside *in, hr_error *error) {
  const hr_inspection *p = &in->public;
  uint64_t count = p->step_count ? p->step_count : 1;
  tops t = {.in = in, .count = count};
  t.events = hri_alloc_zero((size_t)count * 3, sizeof *t.events);
  if (!t.events) return hri_fail_memory(error, count * 24, "the peaks of steps");
  t.bytes = t.events + count;
  t.ends = t.bytes + count;
  for (uint64_t k = 0; k < count; k++)
    t.ends[k] = p->step_count ? p->steps[k].first_event + p->steps[k].event_count : in->lives->event_count;
  hri_lives_walk(in->lives, find_top, &t);
  for (uint64_t k = 0; k < in->lives->count; k++) p->life_category[k] = (uint16_t)by_life(&t, &in->lives->lives[k]);
  hri_free(t.events);
  return HR_OK;
}

/* ---- as stated ---- */

static hr_status list_names(hr_inspection *p, bool stated, hr_error *error) {
  const hr_snapshot *s = p->snapshot;
  p->category_count = stated ? s->category_count : HRI_CATEGORY_COUNT;
  p->categories = hri_alloc_zero(p->category_count, sizeof *p->categories);
  if (!p->categories) return hri_fail_memory(error, p->category_count * sizeof *p->categories, "the names of categories");
  for (uint32_t k = 0; k < p->category_count; k++)
    p->categories[k] = !stated ? names[k] : k ? hr_snapshot_category(s, (uint16_t)k) : names[HRI_UNKNOWN];
  return HR_OK;
}

hr_status hri_categories_find(hri_inside *in, bool exact_only, hr_error *error) {
  hr_inspection *p = &in->public;
  bool stated = p->snapshot->categories_stated || exact_only;
  p->life_count = in->lives->count;
  HRI_TRY(list_names(p, stated, error));
  p->life_category = hri_alloc_zero((size_t)p->life_count + 1, sizeof *p->life_category);
  if (!p->life_category) return hri_fail_memory(error, p->life_count * 2, "the categories of allocations");
  if (stated) {
    for (uint64_t k = 0; k < p->life_count; k++) p->life_category[k] = in->lives->lives[k].category;
    return HR_OK;
  }
  p->categories_inferred = true;
  return in->has_stacks ? from_stacks(in, error) : from_lives(in, error);
}
