/* Growth of which the recording lost most: a ring that holds fewer steps than growth is told by, or a few of the steps that left
 * something, but whose last state has the stacks of what is live.
 *
 * What lives from before the ring began and is live at the failure outlived each end of an optimizer that the ring holds: it is
 * left over from earlier steps. Weights and states are, too; but where tensors of one stack are, and the steps at hand made
 * another of that stack which is live as well, the program keeps one with each step. What one step made of that stack may be
 * there until the next is through (a variable that holds its outputs), so it must be more than that. A window of the last N gives
 * its oldest back for each: then a line of the program's own, in no module's call, freed one of such a size.
 *
 * A snapshot that was taken behind the exception has no stacks of what fell with it. There a list shows in how it goes: one after
 * the other, all of a size; and since a data set that was loaded before goes like that too, a tensor of that size must have
 * outlived the end of a step within the ring. A ring that ends within the step behind that end holds none: there the row must be
 * of a size that this step makes as well, an eighth of what is live, and by far the longest of its size, for what belongs to a
 * model's weights goes in rows that are alike: weights, gradients and each of the states. */
#include "inspect/inside.h"

#include <stdlib.h>

enum { LEAST_STEPS = 4, LEAST_OLDER = 4, LEAST_IN_ROW = 8, LONGER_ROW = 4 };

typedef struct keeper {
  uint64_t made, bytes; /* within the ring, and live at the failure */
  uint64_t size, life,
      same; /* of the largest of them, and how many have its size: a line may make a batch and its labels */
  uint64_t older, older_bytes;
  uint64_t early, early_bytes; /* of what was made: before the ring's first step begins */
  uint64_t least, largest;     /* the sizes of both */
  uint64_t ends, asked, most;  /* asked for since the optimizer's `ends`th end; the most between two of them */
  bool outlived;               /* one of them an optimizer's end within the ring */
  bool only_size;              /* those from before have its size, and nothing says that it made them */
} keeper;

typedef struct row_of_frees {
  uint64_t size, count, life; /* the last one */
} row_of_frees;

typedef struct step_of_free {
  size_t step, next; /* next: the first behind it, in the order of sizes, that went in another step */
} step_of_free;

typedef struct look {
  hri_inside *in;
  uint64_t until, live_bytes;     /* the failure, and what is live then */
  uint64_t first;                 /* event at which the steps begin that were told */
  HRI_ARRAY(uint64_t) end_events; /* the ends of optimizers before it, or of passes */
  keeper *keepers;                /* by plain stack */
  uint32_t *gives, queries;       /* gives: of each step, the last of so many queries that met it; see goes_by_turns */
  HRI_ARRAY(row_of_frees) rows, given, turned;
  HRI_ARRAY(step_of_free) given_in; /* of each of `given` */
} look;

static int event_order(const void *a, const void *b) {
  const uint64_t *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

static bool add_annotated_ends(look *w) {
  const hr_snapshot *s = w->in->public.snapshot;
  size_t different = 0;
  for (uint64_t k = 0; k < s->annotation_count; k++) {
    const uint64_t at = hri_optimizer_end(w->in, &s->annotations[k]);
    if (at > 0 && at < w->until && !hri_array_push(&w->end_events, at)) return false;
  }
  if (w->end_events.count) qsort(w->end_events.items, w->end_events.count, sizeof *w->end_events.items, event_order);
  for (size_t k = 0; k < w->end_events.count; k++)
    if (k == 0 || w->end_events.items[k] > w->end_events.items[different - 1])
      w->end_events.items[different++] = w->end_events.items[k];
  w->end_events.count = different;
  return true;
}

/* Where the ring ends within its first run of an optimizer, the beginning of that stands for it: the step's backward is through. An
 * optimizer that allocates nothing is known by its annotations. */
static bool find_ends(look *w) {
  const hri_inside *in = w->in;
  bool inside = in->lives->event_count && in->stages[0] == HR_STAGE_OPTIMIZER;
  uint64_t begin = HRI_NEVER;
  for (uint64_t k = 0; k < in->lives->event_count && k < w->until; k++) {
    const bool now = in->stages[k] == HR_STAGE_OPTIMIZER;
    if (inside && !now && !hri_array_push(&w->end_events, k)) return false;
    if (!inside && now) begin = k;
    inside = now;
  }
  if (w->end_events.count) return true;
  if (begin != HRI_NEVER) return hri_array_push(&w->end_events, begin);
  return add_annotated_ends(w);
}

static bool is_live(const look *w, const hri_life *life) { return hri_life_gone(life) > w->until; }

/* What a program's own lines or a model's forward make: gradients, states and workspaces are there for good by design. */
static bool may_pile_up(const hri_stack_info *stack) {
  return stack->stage != HR_STAGE_BACKWARD && stack->stage != HR_STAGE_OPTIMIZER && stack->stage != HR_STAGE_INIT &&
         !(stack->marks & (HRI_MARK_WORKSPACE | HRI_MARK_ACCUMULATE | HRI_MARK_COMMUNICATION));
}

static void note_size(keeper *of, uint64_t size) {
  if (of->largest == 0 || size < of->least) of->least = size;
  if (size > of->largest) of->largest = size;
}

/* How many are asked for between two ends of the optimizer. */
static void note_asked(keeper *of, uint64_t ends) {
  if (of->ends != ends) of->ends = ends, of->asked = 0;
  if (++of->asked > of->most) of->most = of->asked;
}

static void note_largest(keeper *of, uint64_t index, const hri_life *life, uint64_t last_end) {
  if (life->size < of->size) return;
  if (life->size > of->size) of->size = life->size, of->same = 0, of->outlived = false;
  of->same++;
  of->life = index;
  of->outlived |= life->alloc < last_end;
}

static void note_lives(look *w) {
  const hri_lives *l = w->in->lives;
  const uint64_t last_end = w->end_events.items[w->end_events.count - 1];
  size_t ends = 0;
  for (uint64_t k = 0; k < l->count; k++) {
    const hri_life *life = &l->lives[k];
    keeper *of = &w->keepers[w->in->stacks[life->stack].plain];
    if (is_live(w, life) && (k < l->before_count || life->alloc < w->until)) w->live_bytes += life->size;
    if (!life->stack || !may_pile_up(&w->in->stacks[life->stack])) continue;
    if (k >= l->before_count && life->alloc < w->until) {
      while (ends < w->end_events.count && life->alloc >= w->end_events.items[ends]) ends++;
      note_asked(of, ends);
    }
    if (!is_live(w, life)) continue;
    if (k < l->before_count || life->alloc < w->until) note_size(of, life->size);
    if (k < l->before_count) {
      of->older++;
      of->older_bytes += life->size;
    } else if (life->alloc < w->until) {
      of->made++;
      of->bytes += life->size;
      note_largest(of, k, life, last_end);
      if (life->alloc < w->first) of->early++, of->early_bytes += life->size;
    }
  }
}

/* By size; of one size the longest row first. */
static int size_order(const void *a, const void *b) {
  const row_of_frees *x = a, *y = b;
  if (x->size != y->size) return x->size < y->size ? -1 : 1;
  return (x->count < y->count) - (x->count > y->count);
}

/* What fell with the program, in rows of one size; those that the ring's steps made stand among them uncounted. */
static bool list_rows(look *w) {
  const hri_lives *l = w->in->lives;
  row_of_frees row = {0};
  for (uint64_t k = 0; k < l->freed_count; k++) {
    const hri_life *life = &l->lives[l->freed[k]];
    if (life->request <= w->until) continue;
    const bool older = l->freed[k] < l->before_count && !life->stack;
    if (life->size == row.size) {
      row.count += older;
      if (older) row.life = l->freed[k];
      continue;
    }
    if (row.count && !hri_array_push(&w->rows, row)) return false;
    row = (row_of_frees){life->size, older, l->freed[k]};
  }
  if (row.count && !hri_array_push(&w->rows, row)) return false;
  if (w->rows.count) qsort(w->rows.items, w->rows.count, sizeof *w->rows.items, size_order);
  return true;
}

/* How many of the ends are not behind an event. */
static size_t ends_until(const look *w, uint64_t event) {
  size_t low = 0, high = w->end_events.count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (w->end_events.items[middle] <= event) low = middle + 1;
    else high = middle;
  }
  return low;
}

/* Whether it outlived an end of an optimizer within the ring. */
static bool outlives_an_end(const look *w, const hri_life *life) {
  const size_t next = ends_until(w, life->alloc);
  return next < w->end_events.count && hri_life_gone(life) >= w->end_events.items[next];
}

/* The sizes of which a line of the program's own gave one back that was there before: windows that move on. And of which it gave one
 * back that an earlier step of the ring made: a variable that holds its tensor until the next step does. A forward gives back what
 * it made; what was there before the ring, and went behind its first step, is a bank's within a module. */
static bool list_given(look *w) {
  const hri_lives *l = w->in->lives;
  for (uint64_t k = 0; k < l->count && (k < l->before_count || l->lives[k].alloc < w->until); k++) {
    const hri_life *life = &l->lives[k];
    if (is_live(w, life) || (k >= l->before_count && !outlives_an_end(w, life))) continue;
    const uint32_t by = l->events[hri_life_gone(life)].stack;
    const uint8_t stage = w->in->stacks[by].stage;
    const bool banked = k < l->before_count && w->end_events.count && hri_life_gone(life) > w->end_events.items[0];
    if (stage == HR_STAGE_BACKWARD || stage == HR_STAGE_OPTIMIZER || (stage == HR_STAGE_FORWARD && !banked)) continue;
    if (w->in->stacks[by].own &&
        !hri_array_push(k < l->before_count ? &w->given : &w->turned, ((row_of_frees){life->size, 1, k})))
      return false;
  }
  if (w->given.count) qsort(w->given.items, w->given.count, sizeof *w->given.items, size_order);
  if (w->turned.count) qsort(w->turned.items, w->turned.count, sizeof *w->turned.items, size_order);
  for (size_t k = 0; k < w->given.count; k++) {
    const hri_life *life = &l->lives[w->given.items[k].life];
    if (!hri_array_push(&w->given_in, ((step_of_free){ends_until(w, hri_life_gone(life)), k + 1}))) return false;
  }
  for (size_t k = w->given_in.count; k-- > 1;)
    if (w->given_in.items[k - 1].step == w->given_in.items[k].step)
      w->given_in.items[k - 1].next = w->given_in.items[k].next;
  return true;
}

/* Of rows in the order of sizes, how many are smaller. */
static size_t smaller_rows(const row_of_frees *rows, size_t count, uint64_t size) {
  size_t low = 0, high = count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (rows[middle].size < size) low = middle + 1;
    else high = middle;
  }
  return low;
}

static uint64_t count_sizes(const row_of_frees *rows, size_t count, uint64_t least, uint64_t most) {
  return smaller_rows(rows, count, most + 1) - smaller_rows(rows, count, least);
}

/* Whether they are given back as others are made, for half of these at least. What a window takes from batches of any length
 * differs from tensor to tensor, and one that goes may lie as far outside their sizes as they lie apart. What variables held of
 * the step before the ring goes like that too, once, and then what they held of the ring's steps, as often in each. */
static bool are_given_back(const look *w, const keeper *of) {
  const uint64_t apart = of->largest - of->least, least = of->least > apart ? of->least - apart : 0;
  const uint64_t given = count_sizes(w->given.items, w->given.count, least, of->largest + apart);
  const uint64_t turned = count_sizes(w->turned.items, w->turned.count, least, of->largest + apart);
  const uint64_t steps = w->end_events.count > 1 ? w->end_events.count - 1 : 1, held = (turned + steps - 1) / steps;
  return given > held && 2 * (given - held) >= of->made;
}

/* Whether that happens in half of the steps at least, as a window moves on: what is given back at once was dropped. */
static bool goes_by_turns(look *w, const keeper *of) {
  const uint64_t apart = of->largest - of->least, least = of->least > apart ? of->least - apart : 0;
  const size_t end = smaller_rows(w->given.items, w->given.count, of->largest + apart + 1);
  size_t steps = 0;
  w->queries++;
  for (size_t k = smaller_rows(w->given.items, w->given.count, least); k < end && 2 * steps < w->end_events.count;
       k = w->given_in.items[k].next) {
    uint32_t *gives = &w->gives[w->given_in.items[k].step];
    steps += *gives != w->queries;
    *gives = w->queries;
  }
  return 2 * steps >= w->end_events.count;
}

/* Whether there is more from before than one step makes: of a ring without a whole step, by far. */
static bool outnumbers_a_step(const look *w, const keeper *of) {
  const uint64_t made = w->end_events.count > 1 || of->most < 2 ? of->most : LEAST_OLDER * of->most;
  return of->older >= LEAST_OLDER && of->older > made;
}

/* The longest row of its size, by far where none is said to have `outlived` a step; once: another stack's of this size it is not. A
 * whole step in the ring would have left one that did. */
static void take_row(look *w, keeper *of, bool outlived) {
  const size_t at = of->made && !of->older ? smaller_rows(w->rows.items, w->rows.count, of->size) : w->rows.count;
  row_of_frees *row = at < w->rows.count ? &w->rows.items[at] : NULL;
  const row_of_frees *next = row ? row + 1 : NULL;
  const bool alike = next && at + 1 < w->rows.count && next->size == of->size;
  if (!row || row->size != of->size || row->count < LEAST_IN_ROW || of->outlived != outlived) return;
  if (!outlived && w->end_events.count > 1) return;
  if (!outlived && ((alike && row->count < LONGER_ROW * next->count) || row->count * row->size < w->live_bytes / 8))
    return;
  of->older = row->count;
  of->older_bytes = row->count * row->size;
  of->only_size = !outlived;
  of->least = of->largest = of->size; /* its windows are of that size */
  of->made = of->same;
  of->bytes = of->same * of->size;
  if (!outlived) of->life = row->life;
  row->count = 0;
}

/* Where only the size is this stack's, what it made itself is none of it, and which line made them is not known. */
static hr_growth growth_of(const look *w, const keeper *of) {
  const uint64_t made = of->only_size ? 0 : of->made, bytes = of->only_size ? 0 : of->bytes;
  return (hr_growth){.kind = HR_GROWTH_LEAK,
                     .stack = w->in->lives->lives[of->life].stack,
                     .category = w->in->public.life_category[of->life],
                     .bytes = bytes + of->older_bytes,
                     .count = made + of->older,
                     .bytes_per_step = (double)bytes / (double)w->end_events.count,
                     .steps_grown = (uint32_t)w->end_events.count,
                     .steps_seen = (uint32_t)w->end_events.count,
                     .from_before = of->older};
}

/* Whether there is more of it from before than steps and windows explain. */
static bool piles_up(const look *w, const keeper *of) {
  return of->made && outnumbers_a_step(w, of) && !are_given_back(w, of);
}

static bool add_growth(look *w) {
  hr_inspection *p = &w->in->public;
  const uint32_t stacks = p->snapshot->stack_count;
  uint32_t count = 0;
  for (int outlived = 1; outlived >= 0; outlived--)
    for (uint32_t k = 0; k < stacks; k++) take_row(w, &w->keepers[k], outlived);
  for (uint32_t k = 0; k < stacks; k++) {
    if (!piles_up(w, &w->keepers[k])) w->keepers[k].made = 0;
    count += w->keepers[k].made > 0;
  }
  if (count == 0) return true;
  hri_free(p->growth);
  p->growth = hri_alloc(count * sizeof *p->growth);
  p->growth_count = 0;
  for (uint32_t k = 0; p->growth && k < stacks; k++)
    if (w->keepers[k].made) p->growth[p->growth_count++] = growth_of(w, &w->keepers[k]);
  return p->growth != NULL;
}

/* Where the ring's own steps or passes tell a leak, most of it may be from before them all the same; or it gives back what was there
 * before, and is a window. The many tensors of a graph fall in no rows. */
static void add_to_leaks(look *w, hr_growth *rows, size_t count) {
  for (size_t k = 0; k < count; k++) {
    hr_growth *g = &rows[k];
    keeper *of = &w->keepers[w->in->stacks[g->stack].plain];
    const bool left = g->kind == HR_GROWTH_LEAK || g->kind == HR_GROWTH_OUTPUTS || g->kind == HR_GROWTH_GRAPH;
    if (!left || !g->stack || !hr_growth_every_step(g)) continue;
    if (g->kind != HR_GROWTH_GRAPH) take_row(w, of, true);
    if (of->made && are_given_back(w, of) && goes_by_turns(w, of)) g->kind = HR_GROWTH_SETTLED;
    if (!piles_up(w, of)) continue;
    g->bytes += of->older_bytes + of->early_bytes;
    g->count += of->older + of->early;
    g->from_before = of->older;
  }
}

/* Of what the steps tell, as they were recorded, only leaks that each of them adds to are looked for further back. */
static bool has_leaks(const hr_inspection *p) {
  for (uint32_t k = 0; k < p->growth_count; k++)
    if (p->growth[k].kind == HR_GROWTH_LEAK && hr_growth_every_step(&p->growth[k])) return true;
  return false;
}

/* What all of it is told by, once the ends are known; false: memory was refused. */
static bool look_around(look *w) {
  w->keepers = hri_alloc_zero(w->in->public.snapshot->stack_count, sizeof *w->keepers);
  w->gives = hri_alloc_zero(w->end_events.count + 1, sizeof *w->gives);
  if (w->keepers) note_lives(w);
  return w->keepers && w->gives && list_rows(w) && list_given(w);
}

static void look_close(look *w) {
  hri_array_free(&w->end_events);
  hri_array_free(&w->rows);
  hri_array_free(&w->given);
  hri_array_free(&w->turned);
  hri_array_free(&w->given_in);
  hri_free(w->gives);
  hri_free(w->keepers);
}

hr_status hri_older_find(hri_inside *in, hr_error *error) {
  hr_inspection *p = &in->public;
  const bool leaks = has_leaks(p);
  look w = {.in = in, .until = hri_failure_at(p) ? p->at_event : in->work_end};
  bool ok;
  if (!in->has_stacks || p->began_empty || w.until == HRI_NEVER) return HR_OK;
  if (!leaks && (p->growth_count || p->step_count >= LEAST_STEPS)) return HR_OK;
  w.first = p->step_count ? p->steps[0].first_event : 0;
  ok = find_ends(&w);
  if (ok && w.end_events.count) {
    ok = look_around(&w);
    if (ok && leaks) add_to_leaks(&w, p->growth, p->growth_count);
    else if (ok) ok = add_growth(&w);
  }
  look_close(&w);
  return ok ? HR_OK
            : hri_fail_memory(error, p->snapshot->stack_count * sizeof *w.keepers, "what is older than the recording");
}

bool hri_older_add(hri_inside *in, uint64_t until, const uint64_t *passes, size_t pass_count, hr_growth *rows,
                   size_t count) {
  look w = {.in = in, .until = until, .first = pass_count ? passes[0] : 0};
  bool ok = true;
  if (in->public.began_empty || !in->has_stacks || pass_count == 0 || count == 0) return true;
  for (size_t k = 0; ok && k < pass_count; k++) ok = hri_array_push(&w.end_events, passes[k]);
  ok = ok && look_around(&w);
  if (ok) add_to_leaks(&w, rows, count);
  look_close(&w);
  return ok;
}
