/* What each allocation holds: as the file states it, else inferred.
 *
 * With stacks: the marks of its stack decide, together with whether it outlived the run of its stage (a run:
 * consecutive
 * events of one stage; forward and loss are one). A program's own tensors, made in no module, engine or optimizer, are
 * told by when they are freed. Without stacks: the instants of most live bytes within each step divide it - what was
 * made before and freed after is an activation, what was made after and outlives the step is a gradient, what lived
 * through at least one whole step to the end is persistent, the rest temporary. docs/inspect.md has the table. */
#include "inspect/inside.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[HRI_CATEGORY_COUNT] = {"unknown",    "parameter", "gradient",  "optimizer_state",
                                                      "activation", "temporary", "input",     "communication",
                                                      "workspace",  "kv_cache",  "persistent"};

#define CUBLAS_WORKSPACE_BYTES 8519680

/* ---- with stacks ---- */

static bool one_run(uint8_t a, uint8_t b) {
  if (a == HR_STAGE_LOSS) a = HR_STAGE_FORWARD;
  if (b == HR_STAGE_LOSS) b = HR_STAGE_FORWARD;
  return a == b;
}

/* A run of one stage: events before `end`. It is cut where a failure, or the program's end, came before the next stage:
 * then nothing tells what would have become of what is live. */
typedef struct run {
  uint64_t end;
  bool cut;
} run;

static run run_from(const hri_inside *in, uint64_t from) {
  const hri_lives *l = in->lives;
  uint64_t end = from;
  while (end < l->event_count && one_run(in->stages[end], in->stages[from]) && l->events[end].action != HR_TRACE_OOM)
    end++;
  if (end == l->event_count) return (run){in->work_end, true};
  return (run){end, l->events[end].action == HR_TRACE_OOM};
}

static bool is_recomputed(const hri_stack_info *stack) {
  return stack->stage == HR_STAGE_BACKWARD && stack->marks & HRI_MARK_FORWARD && !(stack->marks & HRI_MARK_ACCUMULATE);
}

/* The same of recomputation: up to the next allocation of backward proper. */
static run recomputation_from(const hri_inside *in, uint64_t from) {
  const hri_lives *l = in->lives;
  uint64_t end = from;
  for (; end < l->event_count && l->events[end].action != HR_TRACE_OOM; end++)
    if (l->events[end].action == HR_TRACE_ALLOC && !is_recomputed(&in->stacks[l->events[end].stack]))
      return (run){end, false};
  return end == l->event_count ? (run){in->work_end, true} : (run){end, true};
}

typedef struct fate {
  hr_stage stage, freed_in;
  unsigned marks;
  bool outlives;  /* it is live after its stage's run */
  bool at_end;    /* it is live where its stage's run was cut */
  bool never;     /* the program does not free it */
  bool last_step; /* made after the optimizer's last but the one that the trace may end with */
  bool borrowed;  /* its own stack tells no stage: the stage is that of the events around it */
  bool recomputed;
} fate;

static hri_category by_marks(const fate *f) {
  if (f->marks & HRI_MARK_WORKSPACE) return HRI_WORKSPACE;
  if (f->marks & HRI_MARK_CACHE) return HRI_KV_CACHE;
  if (f->marks & HRI_MARK_COMMUNICATION) return HRI_COMMUNICATION;
  if (f->marks & HRI_MARK_STATE) return f->outlives || f->at_end ? HRI_OPTIMIZER_STATE : HRI_TEMPORARY;
  if (f->marks & HRI_MARK_ACCUMULATE) return HRI_GRADIENT;
  return HRI_UNKNOWN;
}

/* A program's own tensors, made outside of modules, engine and optimizer: only their lives tell. */
static hri_category by_surroundings(const fate *f) {
  bool in_forward = f->stage == HR_STAGE_FORWARD || f->stage == HR_STAGE_LOSS;
  if (in_forward && f->at_end) return HRI_ACTIVATION;
  if (f->never) return f->last_step && f->stage != HR_STAGE_BACKWARD ? HRI_INPUT : HRI_UNKNOWN;
  if (!f->outlives) return HRI_TEMPORARY;
  if (f->freed_in == HR_STAGE_BACKWARD) return HRI_ACTIVATION;
  if (in_forward) return HRI_ACTIVATION;
  return f->stage == HR_STAGE_BACKWARD ? HRI_UNKNOWN : HRI_INPUT; /* between two steps: made for the next one */
}

static hri_category by_stage(const fate *f) {
  switch (f->stage) {
  case HR_STAGE_OPTIMIZER: return f->outlives ? HRI_OPTIMIZER_STATE : HRI_TEMPORARY;
  case HR_STAGE_BACKWARD:
    if (f->recomputed) return f->outlives || f->at_end ? HRI_ACTIVATION : HRI_TEMPORARY;
    return f->outlives ? HRI_GRADIENT : HRI_TEMPORARY;
  case HR_STAGE_FORWARD:
  case HR_STAGE_LOSS: return f->outlives || f->at_end ? HRI_ACTIVATION : HRI_TEMPORARY;
  case HR_STAGE_INIT: return f->outlives || f->at_end ? HRI_PARAMETER : HRI_TEMPORARY;
  case HR_STAGE_DATA: return HRI_INPUT;
  case HR_STAGE_COMMUNICATION: return HRI_COMMUNICATION;
  case HR_STAGE_EVALUATION:
  case HR_STAGE_GENERATION: return f->never ? HRI_UNKNOWN : HRI_TEMPORARY;
  case HR_STAGE_CHECKPOINT: return HRI_TEMPORARY;
  default: return HRI_UNKNOWN;
  }
}

static hri_category category_of(const hri_life *life, const fate *f) {
  hri_category marked = by_marks(f);
  if (life->alloc == HRI_NEVER && !life->stack) return f->never ? HRI_PERSISTENT : HRI_UNKNOWN;
  /* cuBLAS takes this much per handle and stream unless CUBLAS_WORKSPACE_CONFIG says otherwise: 2 x 4 MiB + 8 x 16
   * KiB. */
  if (life->size == CUBLAS_WORKSPACE_BYTES) return HRI_WORKSPACE;
  if (marked) return marked;
  return f->borrowed ? by_surroundings(f) : by_stage(f);
}

/* Where the step begins in which the trace ends. */
static uint64_t last_step_begin(const hri_inside *in) {
  const hri_lives *l = in->lives;
  bool other = false;
  for (uint64_t k = l->event_count; k > 0; k--) {
    uint8_t own =
        l->events[k - 1].action == HR_TRACE_ALLOC ? in->stacks[l->events[k - 1].stack].stage : HR_STAGE_UNKNOWN;
    if (own == HR_STAGE_OPTIMIZER && other) return k;
    if (own && own != HR_STAGE_OPTIMIZER) other = true;
  }
  return 0;
}

static fate fate_of(const hri_inside *in, const hri_life *life, run around, uint64_t last_step) {
  const hri_stack_info *stack = &in->stacks[life->stack];
  fate f = {.stage = hri_life_stage(in, life), .marks = stack->marks, .never = hri_life_kept(in, life)};
  f.borrowed = stack->stage == HR_STAGE_UNKNOWN;
  f.recomputed = is_recomputed(stack);
  f.last_step = f.borrowed && life->alloc != HRI_NEVER && life->alloc >= last_step;
  f.freed_in = hri_stage_at(in, life->end);
  /* Of the beginning of the trace, that is: its stage was over, as far as anybody knows. */
  f.outlives = life->alloc == HRI_NEVER || (!around.cut && life->end > around.end);
  f.at_end = life->alloc != HRI_NEVER && around.cut && life->end > around.end;
  return f;
}

/* ---- gradients where backward was cut ---- */

/* A size that parameters have, and how many of them have a gradient in the backward that ends at `run_end`. */
typedef struct size_row {
  uint64_t size;
  uint32_t count, given;
  uint64_t run_end;
} size_row;

typedef HRI_ARRAY(size_row) size_table;
typedef struct undecided {
  uint64_t life, run_end;
} undecided;
typedef HRI_ARRAY(undecided) undecided_list;

static int size_order(const void *a, const void *b) {
  const size_row *x = a, *y = b;
  return (x->size > y->size) - (x->size < y->size);
}

static bool list_parameter_sizes(const hri_inside *in, size_table *table) {
  size_t kept = 0;
  for (uint64_t k = 0; k < in->lives->count; k++)
    if (in->public.life_category[k] == HRI_PARAMETER &&
        !hri_array_push(table, ((size_row){in->lives->lives[k].size, 1, 0, 0})))
      return false;
  if (!table->count) return true;
  qsort(table->items, table->count, sizeof *table->items, size_order);
  for (size_t k = 1; k < table->count; k++) {
    if (table->items[k].size == table->items[kept].size) table->items[kept].count++;
    else table->items[++kept] = table->items[k];
  }
  table->count = kept + 1;
  return true;
}

/* A gradient has the size of its parameter, and is older than what backward works with at the moment: so the oldest of
 * a size are the gradients, as many as there are parameters of it. */
static bool decide(hri_inside *in, const undecided_list *open) {
  size_table table = {0};
  bool ok = open->count == 0 || list_parameter_sizes(in, &table);
  for (size_t k = 0; ok && table.count && k < open->count; k++) {
    const undecided *u = &open->items[k];
    const size_row wanted = {.size = in->lives->lives[u->life].size};
    size_row *row = bsearch(&wanted, table.items, table.count, sizeof wanted, size_order);
    if (row && row->run_end != u->run_end) row->run_end = u->run_end, row->given = 0;
    if (!row || row->given == row->count) continue;
    row->given++;
    in->public.life_category[u->life] = HRI_GRADIENT;
  }
  hri_array_free(&table);
  return ok;
}

static hr_status from_stacks(hri_inside *in, hr_error *error) {
  const hri_lives *l = in->lives;
  uint16_t *category = in->public.life_category;
  run stage_run = {0}, again_run = {0};
  uint64_t stage_next = 0, again_next = 0; /* events from which on the runs no longer hold */
  uint64_t last_step = last_step_begin(in);
  undecided_list open = {0};
  bool ok = true;
  for (uint64_t k = 0; k < l->count && ok; k++) {
    const hri_life *life = &l->lives[k];
    bool made = life->alloc != HRI_NEVER, again = made && is_recomputed(&in->stacks[life->stack]);
    fate f;
    if (made && !again && stage_next <= life->alloc) stage_run = run_from(in, life->alloc), stage_next = stage_run.end;
    if (again && again_next <= life->alloc) again_run = recomputation_from(in, life->alloc), again_next = again_run.end;
    f = fate_of(in, life, again ? again_run : stage_run, last_step);
    category[k] = (uint16_t)category_of(life, &f);
    if (category[k] == HRI_TEMPORARY && f.at_end && f.stage == HR_STAGE_BACKWARD)
      ok = hri_array_push(&open, ((undecided){k, stage_run.end}));
  }
  ok = ok && decide(in, &open);
  hri_array_free(&open);
  return ok ? HR_OK : hri_fail_memory(error, l->count * sizeof(undecided), "the categories of allocations");
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
  if (life->alloc == HRI_NEVER) return hri_life_kept(t->in, life) ? HRI_PERSISTENT : HRI_UNKNOWN;
  while (low < high) {
    uint64_t middle = low + (high - low) / 2;
    if (t->ends[middle] <= life->alloc) low = middle + 1;
    else high = middle;
  }
  top = t->events[low];
  end = t->ends[low];
  if (low + 1 < t->count && hri_life_kept(t->in, life)) return HRI_PERSISTENT; /* through at least one whole step */
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

/* Stacks that show no module, engine or optimizer are of a program that does something else than training. */
static bool stacks_say_nothing(const hri_inside *in) {
  uint64_t allocs = 0, silent = 0;
  for (uint64_t k = 0; k < in->lives->event_count; k++)
    if (in->lives->events[k].action == HR_TRACE_ALLOC) allocs++, silent += in->lives->events[k].stack == 0;
  return silent < allocs - allocs / 4;
}

static hr_status from_presence(hri_inside *in) {
  for (uint64_t k = 0; k < in->lives->before_count; k++)
    if (hri_life_kept(in, &in->lives->lives[k])) in->public.life_category[k] = HRI_PERSISTENT;
  return HR_OK;
}

/* ---- as stated ---- */

static hr_status list_names(hr_inspection *p, bool stated, hr_error *error) {
  const hr_snapshot *s = p->snapshot;
  p->category_count = stated ? s->category_count : HRI_CATEGORY_COUNT;
  p->categories = hri_alloc_zero(p->category_count, sizeof *p->categories);
  if (!p->categories)
    return hri_fail_memory(error, p->category_count * sizeof *p->categories, "the names of categories");
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
  if (in->has_stacks) return from_stacks(in, error);
  return stacks_say_nothing(in) ? from_presence(in) : from_lives(in, error);
}
