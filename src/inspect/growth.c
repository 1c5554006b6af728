/* What outlives its step: allocations of one stack (of one size, where there are no stacks) that were made within the
 * steps and still live at the failure that is looked at, or at the last allocation (what goes after it goes with the
 * program, or with the exception that ended it; a program that catches one may give up then what it kept). What a step
 * always leaves behind until the next (gradients, outputs) is only there from the last two steps, so only what older
 * steps left tells a leak, and of those two no more counts than one of them left. Kinds: a leak goes on to the end; what
 * settled grew and stopped; a one-off came in a single step. A leak need not come in every step: what is kept at regular
 * distances (each epoch, each hundredth step, each fold) is one too, but for the newest, which the program may be working
 * with. What was kept for as long and went again counts against it: a window of the last N, or what is written out from
 * time to time, has had its size before. A window that has just filled shows in that one goes for each that comes.
 *
 * And what is made anew in every step, each time larger, in the place of the one before: nothing is older than a step
 * then, and all the same it grows (torch.cat of all that was seen). Outputs of longer and longer batches look like it;
 * but with those all else of the step grows too, so the peaks of the steps may grow by no more than this, twice (the old
 * one and the new one live side by side). */
#include "inspect/inside.h"

#include <stdlib.h>
#include <string.h>

typedef struct survivor {
  uint64_t key, bytes, life;
  uint32_t step, gone; /* the step it went in; step_count: it is kept */
} survivor;

static int survivor_order(const void *a, const void *b) {
  const survivor *x = a, *y = b;
  if (x->key != y->key) return x->key < y->key ? -1 : 1;
  return (x->life > y->life) - (x->life < y->life);
}

/* What is judged: the steps that began up to an instant, and what is live there. */
typedef struct span {
  const hri_inside *in;
  uint64_t until; /* an event; HRI_NEVER: the trace's end */
  uint32_t steps;
} span;

static span find_span(const hri_inside *in) {
  const hr_inspection *p = &in->public;
  span s = {in, in->work_end, 0};
  if (hri_failure_at(p)) s.until = p->at_event;
  while (s.steps < p->step_count && p->steps[s.steps].first_event <= s.until) s.steps++;
  return s;
}

static bool is_kept(const span *s, const hri_life *life) {
  const uint64_t gone = hri_life_gone(life);
  return gone == HRI_NEVER || (s->until != HRI_NEVER && gone > s->until);
}

/* Which lives that were made in a step count. */
typedef bool choice(const span *s, const hri_life *life, uint32_t step);

/* To the end, or through a whole step at least. */
static bool is_left(const span *s, const hri_life *life, uint32_t step) {
  return is_kept(s, life) ||
         (step + 1 < s->steps && hri_life_gone(life) > hri_step_end(&s->in->public.steps[step + 1]));
}

/* There behind the end of its step, be it for a moment. */
static bool is_carried(const span *s, const hri_life *life, uint32_t step) {
  return life->stack && hri_life_gone(life) > hri_step_end(&s->in->public.steps[step]);
}

/* How many there are; rows NULL: only that. */
static uint64_t collect(const span *s, choice *counts, survivor *rows) {
  const hri_inside *in = s->in;
  const hr_inspection *p = &in->public;
  uint64_t count = 0;
  uint32_t step = 0;
  for (uint64_t k = in->lives->before_count; k < in->lives->count; k++) {
    const hri_life *life = &in->lives->lives[k];
    while (step < s->steps && life->alloc >= hri_step_end(&p->steps[step])) step++;
    if (step == s->steps || life->alloc > s->until) break;
    if (life->alloc < p->steps[step].first_event || !counts(s, life, step)) continue;
    if (rows)
      rows[count] = (survivor){life->stack ? in->stacks[life->stack].plain : (uint64_t)1 << 63 | life->size, life->size,
                               k, step, is_kept(s, life) ? s->steps : hri_step_of(p, hri_life_gone(life))};
    count++;
  }
  return count;
}

/* What a step changes in what is kept of one key. */
typedef struct turn {
  uint32_t step;
  int64_t bytes, held, gone; /* gone: of those that went in it, how many */
} turn;

typedef HRI_ARRAY(turn) turn_list;

typedef struct judging {
  const span *span;
  bool scattered; /* long lives here and there */
  turn_list *
      turns; /* of the key at hand, in the order of steps: only steps that change something, for keys are as many as steps */
  bool *failed; /* memory for them was refused */
} judging;

static int turn_order(const void *a, const void *b) {
  const turn *x = a, *y = b;
  return (x->step > y->step) - (x->step < y->step);
}

/* False: memory was refused. */
static bool list_turns(const judging *j, const survivor *rows, uint64_t count) {
  turn_list *list = j->turns;
  size_t kept = 0;
  list->count = 0;
  if (!hri_array_reserve(list, 2 * count)) {
    *j->failed = true;
    return false;
  }
  for (uint64_t k = 0; k < count; k++) {
    const int64_t bytes = (int64_t)rows[k].bytes;
    list->items[list->count++] = (turn){rows[k].step, bytes, 1, 0};
    if (rows[k].gone < j->span->steps) list->items[list->count++] = (turn){rows[k].gone, -bytes, -1, 1};
  }
  qsort(list->items, list->count, sizeof *list->items, turn_order);
  for (size_t k = 1; k < list->count; k++) {
    turn *last = &list->items[kept], *next = &list->items[k];
    if (next->step == last->step) last->bytes += next->bytes, last->held += next->held, last->gone += next->gone;
    else list->items[++kept] = *next;
  }
  list->count = kept + 1; /* a key has a row at least */
  return true;
}

/* The steps that left something which is kept. */
typedef struct grown_steps {
  uint32_t count, late, half[2], first, last, shortest, longest; /* distances from one to the next */
} grown_steps;

static void note_step(grown_steps *g, uint32_t step, uint32_t steps) {
  if (g->count && step == g->last) return;
  if (g->count) {
    uint32_t distance = step - g->last;
    if (g->count == 1 || distance < g->shortest) g->shortest = distance;
    if (distance > g->longest) g->longest = distance;
  } else g->first = step;
  g->last = step;
  g->count++;
  g->half[step >= steps / 2]++;
  g->late += step + 2 < steps && step >= steps - steps / 3 - 2;
}

/* Three or more, more than a step apart, and as far from each other as from the end at most. */
static bool is_regular(const grown_steps *g, uint32_t steps) {
  return g->count >= 3 && g->shortest > 1 && g->longest - g->shortest <= 1 + g->shortest / 8 &&
         steps - 1 - g->last <= g->longest;
}

enum { LEAST_GONE = 3 };

/* Bytes of a step beyond the most that any before it made; rows are in the order of time. */
static uint64_t made_beyond(const survivor *rows, uint64_t count, uint32_t step) {
  uint64_t most = 0, sum = 0;
  for (uint64_t k = 0; k < count; k++) {
    sum = k && rows[k].step == rows[k - 1].step ? sum + rows[k].bytes : rows[k].bytes;
    if (rows[k].step < step && sum > most) most = sum;
  }
  return count && rows[count - 1].step == step && sum > most ? sum - most : 0;
}

/* Whether what is kept at the end was there before, by what was kept then and has gone since: nine tenths of the bytes
 * before the last third of the steps; or, in the last third, as many, of which three have gone since (sizes differ, so
 * as many need not be as much). What the step at hand made beyond any step before is not kept yet: it may fail because
 * that is large. As many that are larger and larger (`rising`) are more. */
static bool was_as_large(const judging *j, const survivor *rows, uint64_t count, uint64_t kept, bool rising) {
  const uint32_t steps = j->span->steps, late = steps - steps / 3 - 2; /* where the last third begins */
  const turn *turns = j->turns->items;
  const uint64_t beyond = made_beyond(rows, count, steps - 1);
  uint64_t at_hand = 0;
  int64_t to_go = 0, end, before = 0, many = 0, much = 0;
  bool found = false;
  for (uint64_t k = 0; k < count; k++) {
    to_go += rows[k].gone < steps;
    before += (rows[k].step + 1 < steps) - (rows[k].gone + 1 < steps);
    if (rows[k].step + 1 == steps) at_hand += rows[k].bytes;
  }
  end = (int64_t)count - to_go;
  kept -= beyond < kept ? beyond : kept;
  /* A step at hand that makes far more than any before may have taken its own before it gives back the oldest. */
  if (beyond * 2 >= at_hand && beyond && before < end) end = before;
  found = turns[0].step > late && end <= 0 && to_go >= LEAST_GONE && !rising;
  for (size_t k = 0; k < j->turns->count && turns[k].step + 2 < steps && !found; k++) {
    const bool last = k + 1 == j->turns->count;
    much += turns[k].bytes;
    many += turns[k].held;
    to_go -= turns[k].gone;
    if (turns[k].step < late) found = much > 0 && (uint64_t)much >= kept - kept / 10;
    /* Until the next turn nothing changes, and the last third may begin before it. */
    if (turns[k].step >= late || last || turns[k + 1].step > late)
      found |= many >= end && to_go >= LEAST_GONE && !rising;
  }
  return found;
}

enum { LEAST_TURNED = 2 };

/* Since the first of them went, each step gave back as many as it made or more, but for the step at hand, which may yet: how
 * many steps gave. 0: it is not so. A window of the last N, a cache of so many: when it is full it grows no more, and what it took
 * until then says nothing about the steps to come. */
static uint32_t steps_turned(const judging *j) {
  uint32_t turned = 0;
  size_t k = 0;
  while (k < j->turns->count && !j->turns->items[k].gone) k++;
  for (; k < j->turns->count; k++) {
    const turn *t = &j->turns->items[k];
    if (t->step + 1 < j->span->steps && t->held > 0) return 0;
    turned += t->gone > 0;
  }
  return turned;
}

enum { LAST_SUMS = 32, LEAST_SUMS = 4 };

/* Whether steps make more and more of it: of each two of the last ones, the step at hand aside, the later mostly did. As many are
 * more bytes then. Sizes in any order are so in half of the pairs. */
static bool is_rising(const judging *j, const survivor *rows, uint64_t count) {
  uint64_t sums[LAST_SUMS]; /* the newest first */
  uint32_t step = j->span->steps, found = 0, larger = 0;
  for (uint64_t k = count; k-- > 0;) {
    if (rows[k].step + 1 == j->span->steps) continue;
    if (rows[k].step != step && found == LAST_SUMS) break;
    if (rows[k].step != step) sums[found++] = 0;
    step = rows[k].step;
    sums[found - 1] += rows[k].bytes;
  }
  for (uint32_t a = 0; a < found; a++)
    for (uint32_t b = a + 1; b < found; b++) larger += sums[a] > sums[b];
  return found >= LEAST_SUMS && larger * 4 >= found * (found - 1) / 2 * 3;
}

/* Steps at whose end more was kept than before: a queue that gives its oldest back and takes two for each has nothing left
 * of its first half, and grew in every step. */
static uint32_t steps_risen(const judging *j) {
  uint32_t risen = 0;
  for (size_t k = 0; k < j->turns->count; k++)
    risen += j->turns->items[k].step < j->span->steps && j->turns->items[k].bytes > 0;
  return risen;
}

static hr_growth_kind kind_of(const grown_steps *g, bool regular) {
  if (g->count == 1) return HR_GROWTH_ONCE;
  if (!g->late && !regular) return HR_GROWTH_SETTLED;
  return g->half[1] * 2 >= g->half[0] || regular ? HR_GROWTH_LEAK : HR_GROWTH_SETTLED;
}

/* Left by few steps, which are far from each other. */
static bool is_scattered(const grown_steps *g, bool regular) {
  return g->count > 1 && !regular && g->late && (g->count < 3 || g->count * 4 < g->last - g->first);
}

typedef struct step_part {
  uint64_t bytes, count;
} step_part;

/* What the last two steps have of a stack beyond the most that an older one left: it is there until the next step, as the
 * gradients are that an operation makes beside what a hook keeps of its results. */
static step_part beyond_older(const judging *j, const survivor *rows, uint64_t count) {
  const uint32_t steps = j->span->steps;
  step_part most = {0}, own = {0}, beyond = {0};
  uint32_t step = steps;
  for (uint64_t k = 0; k <= count; k++) {
    if (k < count && rows[k].gone < steps) continue;
    if (k == count || rows[k].step != step) {
      if (step + 2 < steps) {
        if (own.bytes > most.bytes) most.bytes = own.bytes;
        if (own.count > most.count) most.count = own.count;
      } else {
        if (own.bytes > most.bytes) beyond.bytes += own.bytes - most.bytes;
        if (own.count > most.count) beyond.count += own.count - most.count;
      }
      own = (step_part){0};
    }
    if (k == count) break;
    step = rows[k].step;
    own.bytes += rows[k].bytes;
    own.count++;
  }
  return beyond;
}

/* What has gone of a leak speaks against it. Once is no rule yet, and only takes away that it is certain. */
static void weigh_gone(const judging *j, const survivor *rows, uint64_t count, hr_growth *g) {
  const bool rising = is_rising(j, rows, count);
  const uint32_t turned = steps_turned(j), risen = steps_risen(j);
  g->gives_back = turned > 0;
  if (was_as_large(j, rows, count, g->bytes, rising) || (turned >= LEAST_TURNED && !rising))
    g->kind = HR_GROWTH_SETTLED;
  else if (risen > g->steps_grown) g->steps_grown = risen;
}

/* `rows` are of one key, in the order of time. False when nothing is older than the last two steps, and where they are
 * scattered and such are not asked for, or the other way round. */
static bool judge(const judging *j, survivor *rows, uint64_t count, hr_growth *g) {
  const hri_inside *in = j->span->in;
  const uint32_t steps = j->span->steps;
  uint64_t after_two = 0, old_bytes = 0, gone = 0, newest_bytes = 0, newest_count = 0;
  grown_steps grown = {0};
  bool regular;
  *g = (hr_growth){.steps_seen = steps};
  for (uint64_t k = 0; k < count; k++) {
    const survivor *row = &rows[k];
    if (row->gone < steps) {
      gone++;
      continue;
    }
    if (!g->count) {
      g->stack = in->lives->lives[row->life].stack;
      g->category = in->public.life_category[row->life];
    }
    if (!grown.count || row->step != grown.last) newest_bytes = newest_count = 0;
    note_step(&grown, row->step, steps);
    newest_bytes += row->bytes;
    newest_count++;
    g->bytes += row->bytes;
    g->count++;
    if (row->step >= 2) after_two += row->bytes;
    if (row->step + 2 < steps) old_bytes += row->bytes;
  }
  g->steps_grown = grown.count;
  /* the trace's last step may have been cut off */
  g->bytes_per_step = grown.count && grown.last >= 2 ? (double)after_two / (grown.last - 1) : 0;
  if (!old_bytes || steps < 4) return false;
  regular = is_regular(&grown, steps);
  g->kind = j->scattered ? HR_GROWTH_LEAK : kind_of(&grown, regular);
  if (is_scattered(&grown, regular) != j->scattered || (j->scattered && grown.count < 3)) return false;
  if (g->kind == HR_GROWTH_LEAK && gone) {
    if (!list_turns(j, rows, count)) return false;
    weigh_gone(j, rows, count, g);
  }
  if (g->kind == HR_GROWTH_LEAK && regular) {
    g->bytes -= newest_bytes;
    g->count -= newest_count;
  } else if (g->kind == HR_GROWTH_LEAK) {
    const step_part beyond = beyond_older(j, rows, count);
    g->bytes -= beyond.bytes;
    g->count -= beyond.count;
    if (grown.last >= 2) g->bytes_per_step -= (double)beyond.bytes / (grown.last - 1);
  }
  return true;
}

/* ---- larger each step ---- */

enum { LEAST_LARGER = 6 };

/* Of each step the largest: without C++ frames other results of the same line have the same stack. */
static uint64_t largest_of_steps(survivor *rows, uint64_t count) {
  uint64_t kept = 0;
  for (uint64_t k = 0; k < count; k++) {
    if (kept && rows[kept - 1].step == rows[k].step) {
      if (rows[k].bytes > rows[kept - 1].bytes) rows[kept - 1] = rows[k];
    } else rows[kept++] = rows[k];
  }
  return kept;
}

/* One a step, replaced in the next, larger each time, by about as much in both halves, and nearly all that the peaks of
 * the steps grow by. */
static bool judge_larger(const judging *j, survivor *rows, uint64_t all, hr_growth *g) {
  const hri_inside *in = j->span->in;
  const hr_inspection *p = &in->public;
  const uint64_t count = largest_of_steps(rows, all);
  const survivor *first = rows, *last = rows + (count - 1), *middle = rows + count / 2;
  uint64_t grown, half, peak, before, kept = 0;
  uint32_t not_larger = 0;
  if (count < LEAST_LARGER || last->bytes <= first->bytes || last->step + 3 < j->span->steps) return false;
  if (last->step - first->step + 1 > count + count / 8) return false; /* in nearly every step */
  for (uint64_t k = 1; k < count; k++) {
    not_larger += rows[k].bytes <= rows[k - 1].bytes;
    kept += is_kept(j->span, &in->lives->lives[rows[k - 1].life]);
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

typedef bool judgement(const judging *j, survivor *rows, uint64_t count, hr_growth *g);

/* Adds what `judges` finds in the rows of each key; p->growth has room for it. */
static void judge_keys(hri_inside *in, const judging *j, survivor *rows, uint64_t count, judgement *judges) {
  hr_inspection *p = &in->public;
  uint64_t from = 0;
  qsort(rows, (size_t)count, sizeof *rows, survivor_order);
  for (uint64_t k = 1; k <= count; k++) {
    if (k < count && rows[k].key == rows[from].key) continue;
    p->growth_count += judges(j, rows + from, k - from, &p->growth[p->growth_count]);
    from = k;
  }
}

/* Long lives here and there are growth only where they are, together, half of what is live in the end, by three steps or
 * more to a place: what a program keeps of some of its passes (a sample that it refused, with its traceback). */
static void judge_scattered(hri_inside *in, const judging *usual, survivor *rows, uint64_t count) {
  hr_inspection *p = &in->public;
  const hri_lives *l = in->lives;
  const span *s = usual->span;
  const uint32_t before = p->growth_count;
  uint64_t live = 0, bytes = 0;
  judge_keys(in, &(judging){s, true, usual->turns, usual->failed}, rows, count, judge);
  for (uint32_t k = before; k < p->growth_count; k++)
    if (hr_growth_goes_on(p->growth[k].kind)) bytes += p->growth[k].bytes;
  for (uint64_t k = 0; k < l->count && (k < l->before_count || l->lives[k].alloc <= s->until); k++)
    if (is_kept(s, &l->lives[k])) live += l->lives[k].size;
  if (bytes < live / 2) p->growth_count = before;
}

hr_status hri_growth_find(hri_inside *in, hr_error *error) {
  hr_inspection *p = &in->public;
  const span s = find_span(in);
  uint64_t left, carried, most;
  survivor *rows;
  turn_list turns = {0};
  bool failed;
  if (s.steps < 4) return HR_OK;
  left = collect(&s, is_left, NULL);
  carried = collect(&s, is_carried, NULL);
  most = left > carried ? left : carried;
  rows = hri_alloc((size_t)(most + 1) * sizeof *rows);
  p->growth = hri_alloc((size_t)(left + carried / LEAST_LARGER + 1) * sizeof *p->growth);
  failed = !rows || !p->growth;
  if (!failed) {
    const judging usual = {&s, false, &turns, &failed};
    const uint64_t count = collect(&s, is_left, rows);
    judge_keys(in, &usual, rows, count, judge);
    judge_scattered(in, &usual, rows, count);
    judge_keys(in, &usual, rows, collect(&s, is_carried, rows), judge_larger);
    qsort(p->growth, p->growth_count, sizeof *p->growth, growth_order);
  }
  hri_free(rows);
  hri_array_free(&turns);
  return failed ? hri_fail_memory(error, most * sizeof *rows, "what outlives its step") : HR_OK;
}
