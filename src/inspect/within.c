/* Growth within a step, or where there are no steps: passes of a model that follow each other in evaluation or
 * generation, and leave something behind each.
 *
 * The window is what comes after the last whole training step, up to the last failure. Its passes are told by the first
 * stack of the place that calls the model: in one pass it comes once, however many layers follow. The program around
 * the call must allocate as often (a batch, a token), or be named as evaluation or generation; else what looks like
 * passes could be layers that a program calls one by one.
 *
 * What a pass leaves behind counts from the first to the last but two: the one at hand has its activations, and a
 * variable may hold what the one before gave. Where several tensors of the model's inside stay, or a third of all that
 * it makes, it is the graph; where few do, it is outputs. What a backward freed in whole steps before is the graph too,
 * of a step that has more passes than most of those had.
 *
 * A cache is another pattern: a stack whose tensors get larger and larger, each in the place of one that goes. Outside
 * the model's call it is outputs that are joined, where it comes with each pass, or a table that is enlarged. */
#include "inspect/inside.h"

#include <stdlib.h>
#include <string.h>

enum {
  LEAST_PASSES = 4,
  LEAST_SIZES = 8,
  GRAPH_STACKS = 3,
  MOST_A_PASS = 8,
  MOST_THREADS = 8,
  LEAST_WENT = 3,
  MANY_CALLS = 32,
  MOST_BARE = 64
};

typedef struct made {
  uint64_t life;
  uint32_t stack; /* plain */
} made;

typedef struct window {
  hri_inside *in;
  uint64_t from, to;          /* events */
  HRI_ARRAY(made) rows;       /* lives that were made in it, by stack and time */
  HRI_ARRAY(made) largest;    /* ... of one stack, the largest of each pass */
  HRI_ARRAY(uint64_t) passes; /* events at which they begin */
  HRI_ARRAY(hr_growth) found;
  uint64_t *next; /* of each life; see link_lives */
  uint32_t site, graph_stacks;
  uint64_t graph_made, graph_kept;  /* tensors of the passes that count, inside the model */
  uint64_t weights, made_in_calls;  /* tensors that are there when the first pass begins, and of the model's calls */
  bool has_backward, side_by_side;  /* side_by_side: threads have their passes at once */
  bool may_be_layers, keeps_inputs; /* of the passes; see are_passes, find_growth */
} window;

static const hri_life *made_life(const window *w, const made *row) { return &w->in->lives->lives[row->life]; }
static const hri_life *life_of(const window *w, size_t row) { return made_life(w, &w->rows.items[row]); }

static int made_order(const void *a, const void *b) {
  const made *x = a, *y = b;
  if (x->stack != y->stack) return x->stack < y->stack ? -1 : 1;
  return (x->life > y->life) - (x->life < y->life);
}

/* Steps that are mere repetition may be the passes themselves. */
static void find_window(window *w) {
  const hr_inspection *p = &w->in->public;
  w->to = p->oom_count ? p->ooms[p->oom_count - 1].event : w->in->work_end == HRI_NEVER ? 0 : w->in->work_end + 1;
  w->from = 0;
  if (hri_steps_repeat(p)) return;
  for (uint32_t k = 0; k < p->step_count; k++) {
    uint64_t end = p->steps[k].first_event + p->steps[k].event_count;
    if (end <= w->to && end < w->in->lives->event_count) w->from = end;
  }
}

static bool list_rows(window *w) {
  const hri_lives *l = w->in->lives;
  for (uint64_t k = l->before_count; k < l->count && l->lives[k].alloc < w->to; k++)
    if (l->lives[k].alloc >= w->from && !hri_array_push(&w->rows, ((made){k, w->in->stacks[l->lives[k].stack].plain})))
      return false;
  if (w->rows.count) qsort(w->rows.items, w->rows.count, sizeof *w->rows.items, made_order);
  return true;
}

/* One past the last row of the stack that begins at `from`. */
static size_t stack_end(const window *w, size_t from) {
  size_t end = from;
  while (end < w->rows.count && w->rows.items[end].stack == w->rows.items[from].stack) end++;
  return end;
}

static bool is_kept(const window *w, const hri_life *life) {
  const uint64_t gone = hri_life_gone(life);
  return gone == HRI_NEVER || gone > w->to || (w->in->work_end != HRI_NEVER && gone > w->in->work_end);
}

/* ---- passes ---- */

/* The place of a model's call that the window ends with. A library's workspace is made once: it tells where a model is called if
 * nothing else does. */
static void find_site(window *w) {
  uint64_t last = 0;
  for (size_t k = 0; k < w->rows.count; k++) {
    const hri_stack_info *stack = &w->in->stacks[w->rows.items[k].stack];
    const bool workspace = stack->marks & HRI_MARK_WORKSPACE;
    if (!stack->site || stack->stage == HR_STAGE_BACKWARD || w->rows.items[k].life < last) continue;
    if (workspace && w->site) continue;
    if (!workspace) last = w->rows.items[k].life;
    w->site = stack->site;
  }
}

/* A ring of events begins within a pass: its first whole one comes behind what the program allocates first around the model. */
static uint64_t first_whole(const window *w) {
  uint64_t first = HRI_NEVER;
  if (w->in->public.began_empty || w->from) return 0;
  for (size_t k = 0; k < w->rows.count; k++) {
    const made *row = &w->rows.items[k];
    const hri_stack_info *stack = &w->in->stacks[row->stack];
    if (row->stack && !stack->site && (stack->stage == HR_STAGE_UNKNOWN || stack->stage == HR_STAGE_DATA) &&
        row->life < first)
      first = row->life;
  }
  return first == HRI_NEVER ? 0 : first;
}

/* Each pass begins with the place's first stack from a life on. */
static bool list_passes(window *w, uint64_t from) {
  uint64_t first = HRI_NEVER;
  size_t begin = 0, end = 0;
  for (size_t k = 0, next; k < w->rows.count; k = next) {
    const hri_stack_info *stack = &w->in->stacks[w->rows.items[k].stack];
    next = stack_end(w, k);
    if (stack->site != w->site || stack->stage == HR_STAGE_BACKWARD || stack->marks & HRI_MARK_WORKSPACE) continue;
    while (k < next && w->rows.items[k].life < from) k++;
    if (k == next || w->rows.items[k].life >= first) continue;
    first = w->rows.items[k].life;
    begin = k;
    end = next;
  }
  w->passes.count = 0;
  for (size_t k = begin; k < end; k++)
    if (!hri_array_push(&w->passes, life_of(w, k)->alloc)) return false;
  return true;
}

/* Tensors that are there when the first pass begins or are loaded later, and what is made within the model's call. */
static void count_weights(window *w) {
  const hri_lives *l = w->in->lives;
  const uint64_t first = w->passes.count ? w->passes.items[0] : 0;
  w->weights = w->made_in_calls = 0;
  for (uint64_t k = 0; k < l->count && (k < l->before_count || l->lives[k].alloc < w->to); k++) {
    const hri_stack_info *stack = &w->in->stacks[l->lives[k].stack];
    const bool before = k < l->before_count || l->lives[k].alloc < first;
    w->weights += before ? hri_life_gone(&l->lives[k]) > first : stack->stage == HR_STAGE_INIT;
    w->made_in_calls += !before && stack->site == w->site;
  }
}

static bool find_passes(window *w) {
  find_site(w);
  if (!w->site) return true;
  if (!list_passes(w, first_whole(w)) || (w->passes.count < LEAST_PASSES && !list_passes(w, 0))) return false;
  count_weights(w);
  return true;
}

/* The pass in which an event lies, by bisection; the number of passes before the first. */
static size_t pass_of(const window *w, uint64_t event) {
  size_t low = 0, high = w->passes.count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (w->passes.items[middle] <= event) low = middle + 1;
    else high = middle;
  }
  return low ? low - 1 : w->passes.count;
}

/* Threads that serve at once have their passes side by side: then as many rows come as passes begin, the n-th of them not far
 * from the n-th pass, though not one within each. Of few passes that would say nothing. */
static bool is_near(size_t a, size_t b, size_t each) { return (a > b ? a - b : b - a) <= MOST_THREADS * each; }

static bool keeps_pace(const window *w, const made *rows, size_t row_count) {
  const size_t count = w->passes.count;
  if (count < 4 * MOST_THREADS || !is_near(row_count, count, 1)) return false;
  for (size_t k = 0; k < row_count; k++) {
    const size_t pass = pass_of(w, made_life(w, &rows[k])->alloc);
    if (!is_near(pass == count ? 0 : pass + 1, k, 1)) return false;
  }
  return true;
}

/* Whether each of these rows is in a pass of its own. */
static bool is_exact(const window *w, const made *rows, size_t row_count) {
  for (size_t k = 1; k < row_count; k++)
    if (pass_of(w, made_life(w, &rows[k])->alloc) == pass_of(w, made_life(w, &rows[k - 1])->alloc)) return false;
  return true;
}

/* Whether these rows come once a pass, and in all of them but `without`, or so many times in each: what a line makes of a
 * batch and of its labels has one stack. */
static bool comes_each_pass(const window *w, const made *rows, size_t row_count, size_t without) {
  const size_t count = w->passes.count, each = count ? (row_count + count / 2) / count : 0;
  size_t last = count + 1, of_last = 0, met = 0;
  if (each == 0 || each > MOST_A_PASS || row_count + each * without < each * count) return false;
  if (row_count > each * (count + 1))
    return keeps_pace(w, rows, row_count); /* several threads failed behind their batches */
  for (size_t k = 0; k < row_count; k++) {
    const size_t pass = pass_of(w, made_life(w, &rows[k])->alloc);
    of_last = pass == last ? of_last + 1 : 1;
    met += of_last == each;
    last = pass;
  }
  return met + without + 1 > count || keeps_pace(w, rows, row_count);
}

/* A first stack that comes several times in a pass (layers of one line, a cell's two products) begins it only once: where
 * something outside the model's call allocates once for every so many of its allocations, never more and never fewer, or, of
 * threads side by side, at that pace: so does what comes twice in each pass too. 0: these rows tell no such number. */
static size_t starts_a_pass(const window *w, size_t from, size_t to, bool side_by_side) {
  const size_t count = w->passes.count, rows = to - from, pace = (count + rows / 2) / rows;
  size_t each = 0, last = count;
  bool exact = true, paced = rows >= 4 * MOST_THREADS && pace > 0;
  for (size_t k = from; k < to; k++) {
    const size_t at = pass_of(w, life_of(w, k)->alloc), past = at == count ? 0 : at + 1;
    if (k == from + 1) each = past - last;
    if (k > from && past - last != each) exact = false;
    if (!is_near(past, (k - from) * pace, pace)) paced = false;
    last = past;
  }
  if (!side_by_side) return exact && count - last <= each ? each : 0;
  return paced && is_near(count, rows * pace, pace) ? pace : 0;
}

/* How many allocations of the first stack make a pass, by the stack outside the model's call that comes most often, whose
 * first row is *row. 0: no stack tells it. */
static size_t in_a_pass(const window *w, bool side_by_side, size_t *row) {
  size_t best = 0, count = 0;
  for (size_t k = 0, next; k < w->rows.count; k = next) {
    const uint32_t stack = w->rows.items[k].stack;
    size_t each;
    next = stack_end(w, k);
    if (!stack || w->in->stacks[stack].site || next - k < LEAST_PASSES || next - k <= count) continue;
    if ((each = starts_a_pass(w, k, next, side_by_side)) == 0) continue;
    best = each;
    *row = k;
    count = next - k;
  }
  return best;
}

static void thin_passes(window *w) {
  size_t row = 0, each = in_a_pass(w, false, &row), kept = 0;
  if (each == 0) w->side_by_side = (each = in_a_pass(w, true, &row)) > 0;
  if (each < 2) return;
  {
    size_t at = pass_of(w, life_of(w, row)->alloc);
    for (at = at == w->passes.count ? 0 : at + 1; at < w->passes.count; at += each)
      w->passes.items[kept++] = w->passes.items[at];
    w->passes.count = kept;
  }
}

/* Whether an operation has a word, as it stands between its underscores: "to" is in "to_dtype", and not in "vector_norm". */
static bool has_word(const char *operation, const char *word) {
  const size_t length = strlen(word);
  for (const char *at = operation; (at = strstr(at, word)); at++)
    if ((at == operation || at[-1] == '_' || at[-1] == '.') && (!at[length] || at[length] == '_' || at[length] == '.'))
      return true;
  return false;
}

/* Whether a stack around the model brings something from outside: what a program computes there may be of the layer before, added to
 * what it took. */
static bool brings(const window *w, uint32_t stack) {
  static const char *const ways[] = {"to",   "copy",   "empty",  "zeros",   "ones",      "full",
                                     "rand", "arange", "randn",  "randint", "randperm",  "tensor",
                                     "lift", "index",  "gather", "select",  "embedding", "pin_memory"};
  const uint8_t stage = w->in->stacks[stack].stage;
  char operation[HRI_OPERATION_BYTES];
  if (stage != HR_STAGE_UNKNOWN) return stage != HR_STAGE_INIT;
  hri_stack_operation(w->in->public.snapshot, stack, operation);
  for (size_t k = 0; k < sizeof ways / sizeof *ways; k++)
    if (has_word(operation, ways[k])) return true;
  return !operation[0];
}

/* Whether the rows of a stack are made around the model, and not around layers that a program calls one by one: these have weights of their
 * own, so where there are more calls than weights, or each makes half as many tensors as there are, they are calls of one model. */
static bool are_around(const window *w, size_t from, size_t to) {
  const uint32_t stack = w->rows.items[from].stack;
  const bool same = to - from > w->weights || 2 * w->made_in_calls >= w->weights * w->passes.count;
  return stack && !w->in->stacks[stack].site && (same || brings(w, stack));
}

/* Whether that is said by more than how many tensors each call makes, which a layer with one weight and much to compute makes too. */
static bool are_surely_around(const window *w, size_t from, size_t to) {
  return to - from > w->weights || brings(w, w->rows.items[from].stack);
}

/* Whether something outside the model's call allocates once a pass, or the stacks say what the program does. What is loaded for each
 * call is the weights of layers that the program calls one by one. */
static bool are_passes(window *w) {
  bool passes = false;
  w->may_be_layers = false;
  if (w->passes.count < LEAST_PASSES) return false;
  for (size_t k = 0, next; k < w->rows.count; k = next) {
    const hri_stack_info *stack = &w->in->stacks[w->rows.items[k].stack];
    next = stack_end(w, k);
    if (stack->marks & (HRI_MARK_EVALUATION | HRI_MARK_GENERATION)) return true;
    if (!are_around(w, k, next) || !comes_each_pass(w, &w->rows.items[k], next - k, 1)) continue;
    passes = true;
    if (are_surely_around(w, k, next)) return true;
  }
  w->may_be_layers = passes;
  return passes;
}

/* Whether the rows of a stack around the model are batches: as many as threads side by side may hold are there in the end, and each
 * comes with an allocation of the model's first stack or more, be it a few threads' batches later. */
static bool are_batches(const window *w, size_t from, size_t to) {
  size_t kept = 0, begun = 0;
  if (!are_around(w, from, to)) return false;
  if (to - from < 4 * MOST_THREADS || to - from > w->passes.count) return false;
  for (size_t k = from; k < to; k++) {
    kept += is_kept(w, life_of(w, k));
    begun = pass_of(w, life_of(w, k)->alloc);
    begun = begun == w->passes.count ? 0 : begun + 1;
    if (kept > MOST_THREADS || begun + MOST_THREADS < k - from) return false;
  }
  return w->passes.count - begun <= MOST_THREADS * MOST_A_PASS;
}

/* Models of several depths that threads call from one line: the first stack comes no whole number of times in a pass. Then what
 * the program makes most often for the calls begins the passes. */
static bool begin_with_batches(window *w) {
  size_t best = 0, count = 0;
  for (size_t k = 0, next; k < w->rows.count; k = next) {
    next = stack_end(w, k);
    if (next - k <= count || !are_batches(w, k, next)) continue;
    best = k;
    count = next - k;
  }
  for (size_t k = 0; k < count; k++) w->passes.items[k] = life_of(w, best + k)->alloc;
  if (count) w->passes.count = count;
  w->side_by_side |= count > 0;
  return count > 0;
}

/* Whether what the program makes for each pass comes at the pace of the passes, and nothing of it once in each: then threads have
 * theirs side by side. */
static bool are_side_by_side(const window *w) {
  bool paced = false;
  for (size_t k = 0, next; k < w->rows.count; k = next) {
    next = stack_end(w, k);
    if (w->rows.items[k].stack == 0 || w->in->stacks[w->rows.items[k].stack].site) continue;
    if (!keeps_pace(w, &w->rows.items[k], next - k)) continue;
    if (is_exact(w, &w->rows.items[k], next - k)) return false;
    paced = true;
  }
  return paced;
}

/* Whether three of these rows that are as large as those that are kept went again, later than the passes that threads have at hand:
 * then the last N are kept. One or two a thread may have held for long. */
static bool some_went(const window *w, size_t from, size_t to, size_t old) {
  uint64_t least = UINT64_MAX, most = 0, went = 0;
  for (size_t k = from; k < to; k++) {
    const hri_life *life = life_of(w, k);
    if (!is_kept(w, life) || pass_of(w, life->alloc) >= old) continue;
    if (life->size < least) least = life->size;
    if (life->size > most) most = life->size;
  }
  for (size_t k = from; k < to; k++) {
    const hri_life *life = life_of(w, k);
    if (is_kept(w, life) || pass_of(w, life->alloc) >= old || life->size < least || life->size > most) continue;
    went += pass_of(w, hri_life_gone(life)) > pass_of(w, life->alloc) + MOST_THREADS;
  }
  return went >= LEAST_WENT;
}

/* Whether the steps show that as many of a stack go as come: over the passes it is no other. */
static bool is_full_window(const window *w, uint32_t stack) {
  const hr_inspection *p = &w->in->public;
  const hri_stack_info *stacks = w->in->stacks;
  for (uint32_t k = 0; stack && k < p->growth_count; k++)
    if (p->growth[k].kind == HR_GROWTH_SETTLED && p->growth[k].gives_back &&
        stacks[p->growth[k].stack].plain == stacks[stack].plain)
      return true;
  return false;
}

static bool add_kept(window *w, size_t from, size_t to) {
  const hri_stack_info *stack = &w->in->stacks[w->rows.items[from].stack];
  size_t old = w->passes.count - 2, last = w->passes.count;
  hr_growth g = {.kind = HR_GROWTH_OUTPUTS, .steps_seen = (uint32_t)w->passes.count};
  uint64_t bytes = 0;
  bool paced = old >= 4 * MOST_THREADS; /* those that are kept come with the passes, be it side by side */
  for (size_t k = from; k < to; k++) {
    const hri_life *life = life_of(w, k);
    size_t pass = pass_of(w, life->alloc);
    if (pass < old && stack->site == w->site) w->graph_made++;
    if (pass >= old || !is_kept(w, life)) continue;
    if (stack->site == w->site) w->graph_kept++;
    paced = paced && is_near(pass, g.count, 1);
    g.bytes += life->size;
    g.count++;
    if (life->size > bytes) {
      bytes = life->size;
      g.stack = life->stack;
      g.category = w->in->public.life_category[w->rows.items[k].life];
    }
    g.steps_grown += pass != last;
    last = pass;
  }
  /* Of threads each has a pass at hand, which has left nothing yet: not two of them, but as many as there are. */
  if ((w->side_by_side || g.count > g.steps_grown) && paced && is_near(g.count, old, 1) &&
      !some_went(w, from, to, old)) {
    g.steps_grown = (uint32_t)(g.count < old ? g.count : old);
    g.steps_seen = g.steps_grown + 2;
  }
  if (g.steps_grown < 2 || g.steps_grown * 4 < old * 3 || is_full_window(w, g.stack)) return true;
  g.bytes_per_step = (double)g.bytes / (double)old;
  if (stack->site == w->site) w->graph_stacks++;
  return hri_array_push(&w->found, g);
}

/* ---- caches ---- */

/* Where the last run of sizes that only rise begins, and the largest size before it: each sequence that is generated
 * begins small again, and what had that size before and went well is no growth. */
static size_t last_rise(const window *w, const made *rows, size_t count, uint64_t *before) {
  size_t begin = 0;
  *before = 0;
  for (size_t k = 1; k < count; k++) {
    const uint64_t one_before = made_life(w, &rows[k - 1])->size;
    if (made_life(w, &rows[k])->size >= one_before) continue;
    if (one_before > *before) *before = one_before;
    begin = k;
  }
  return begin;
}

/* Results that are joined grow by as much with each pass. What is made half as large again each time is a buffer that fills
 * up, and its last copy holds little of most passes. */
static bool grows_evenly(const window *w, const made *rows, size_t begin, size_t count) {
  const uint64_t first = made_life(w, &rows[begin])->size, last = made_life(w, &rows[count - 1])->size;
  const uint64_t middle = made_life(w, &rows[begin + (count - begin) / 2])->size, grown = last - first;
  return middle >= first && (middle - first) * 4 >= grown && (middle - first) * 4 <= grown * 3;
}

/* Of lives in the order in which they went, how many did until an event: by request, else by end. */
static uint64_t went_until(const hri_lives *l, bool by_request, uint64_t event) {
  const uint64_t *indexes = by_request ? l->freed : l->ended;
  uint64_t low = 0, high = by_request ? l->freed_count : l->ended_count;
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2, life = indexes[middle];
    if ((by_request ? l->lives[life].request : l->lives[life].end) <= event) low = middle + 1;
    else high = middle;
  }
  return low;
}

/* The oldest life in whose place this one came: freed between its making and `until`, smaller, but by `most` bytes at most. Its own
 * index: none. Those of which only the end is recorded have no request. */
static uint64_t place_of(const hri_lives *l, uint64_t life, uint64_t until, uint64_t most) {
  const hri_life *by = &l->lives[life];
  uint64_t oldest = life;
  for (int by_request = 0; by_request < 2 && until > by->alloc; by_request++) {
    const uint64_t *indexes = by_request ? l->freed : l->ended, end = went_until(l, by_request, until - 1);
    for (uint64_t k = went_until(l, by_request, by->alloc); k < end; k++) {
      const hri_life *old = &l->lives[indexes[k]];
      const bool counts = by_request || old->request == HRI_NEVER;
      if (counts && indexes[k] < oldest && old->size < by->size && old->size + most >= by->size) oldest = indexes[k];
    }
  }
  return oldest;
}

enum {
  MOST_PLACES = 64, /* tokens between two texts of a conversation, which lines of their own add */
  MOST_TOKENS = 32  /* that one of these lines adds at once: more is a text that another cache was for */
};

/* For each life the next one of the same stack, plus one; 0: none. False: memory was refused. */
static bool link_lives(window *w) {
  const hri_lives *l = w->in->lives;
  uint64_t *first = w->next ? NULL : hri_alloc_zero(w->in->public.snapshot->stack_count, sizeof *first);
  if (w->next) return true;
  w->next = first ? hri_alloc_zero(l->count, sizeof *w->next) : NULL;
  for (uint64_t k = l->count; w->next && k-- > 0;) {
    w->next[k] = first[l->lives[k].stack];
    first[l->lives[k].stack] = k + 1;
  }
  hri_free(first);
  return w->next != NULL;
}

/* Where the second next life of the same stack is made: a line may join keys and values before it lets either go, but not the next
 * layer's; while those of another text go when all of this one's are there. */
static uint64_t next_layer(const window *w, uint64_t life) {
  const uint64_t next = w->next[life], second = next ? w->next[next - 1] : 0;
  return second ? w->in->lives->lives[second - 1].alloc : w->to;
}

/* Whether the first of them took the place of one that is from before the recording, be it by a few of other lines: a ring of
 * events holds the last tokens of a long text. */
static bool rose_before(const window *w, const made *rows, double bytes_per_token) {
  const hri_lives *l = w->in->lives;
  uint64_t life = rows->life;
  for (int n = 0; n < MOST_PLACES && l->before_count; n++) {
    const uint64_t old = place_of(l, life, next_layer(w, life), (uint64_t)(MOST_TOKENS * bytes_per_token));
    if (old == life) return false;
    if (old < l->before_count) return true;
    life = old;
  }
  return false;
}

/* Larger and larger tensors of one stack, of which only the last few are there: what they grew by since the first, and with
 * what that had where it grew before the recording began. */
static bool add_cache(window *w, const made *rows, size_t count) {
  uint64_t before;
  const size_t begin = last_rise(w, rows, count, &before);
  uint32_t sizes = 1, kept = 0;
  const hri_life *first = made_life(w, &rows[begin]), *last = made_life(w, &rows[count - 1]);
  hr_growth g = {.kind = HR_GROWTH_CACHE, .stack = last->stack};
  /* What the program around the model joins, pass by pass, is no cache of the model's; nor are those results that are
   * made anew from time to time. The first pass has nothing to join, the last may have failed at it, and what a line
   * calls first may have other frames of C++ once. */
  if (w->site && last->size > first->size && !w->in->stacks[rows->stack].site)
    g.kind = comes_each_pass(w, rows, count, 1 + w->passes.count / 8) && grows_evenly(w, rows, begin, count)
                 ? HR_GROWTH_OUTPUTS
                 : HR_GROWTH_LARGER;
  for (size_t k = begin; k < count; k++) {
    const hri_life *life = made_life(w, &rows[k]);
    if (k > begin) sizes += life->size > made_life(w, &rows[k - 1])->size;
    if (!is_kept(w, life)) continue;
    kept++;
    g.bytes += life->size - first->size;
  }
  /* All but the last of each layer are gone, and it is no tensor that a pass takes and gives back. */
  if (sizes < LEAST_SIZES || last->size <= before || kept == 0 || kept * (sizes - 1) > 2 * (count - begin) || !g.bytes)
    return true;
  g.count = kept;
  g.category = w->in->public.life_category[rows[count - 1].life];
  g.steps_seen = sizes;
  g.steps_grown = sizes - 1;
  g.bytes_per_step = (double)g.bytes / g.steps_grown;
  if (begin == 0 && w->in->lives->before_count && !link_lives(w)) return false;
  if (begin == 0 && rose_before(w, rows, g.bytes_per_step / kept)) g.bytes += kept * first->size;
  return hri_array_push(&w->found, g);
}

/* Of a place of the program around the model only the largest of each pass: what one line joins, predictions and labels, has
 * one stack. */
static bool add_joined(window *w, const made *rows, size_t count) {
  size_t last = w->passes.count;
  w->largest.count = 0;
  for (size_t k = 0; k < count; k++) {
    const size_t pass = pass_of(w, made_life(w, &rows[k])->alloc);
    if (pass == w->passes.count) continue;
    if (pass != last && !hri_array_push(&w->largest, rows[k])) return false;
    made *kept = &w->largest.items[w->largest.count - 1];
    if (made_life(w, &rows[k])->size > made_life(w, kept)->size) *kept = rows[k];
    last = pass;
  }
  return w->largest.count < 2 || w->largest.count == count || add_cache(w, w->largest.items, w->largest.count);
}

static bool is_graph(const window *w) {
  return w->graph_stacks >= GRAPH_STACKS || (w->graph_stacks > 1 && w->graph_kept * 3 >= w->graph_made);
}

static bool goes_in_backward(const window *w, const hri_life *life) {
  const uint64_t end = hri_life_gone(life);
  return end < w->from && w->in->stages[end] == HR_STAGE_BACKWARD;
}

/* What became of a stack's tensors in the whole steps before. */
typedef struct past {
  uint64_t count, first, one_before, two_before; /* of them; lives, the last two and 1 */
  bool in_backward, held; /* freed there; or elsewhere, but two of the stack were made while it lived */
} past;

static void note_past(const window *w, past *of, uint64_t life) {
  const hri_life *lives = w->in->lives->lives;
  const uint64_t old = of->two_before;
  if (old && lives[old - 1].end < w->from && lives[old - 1].end > lives[life].alloc) of->held = true;
  if (goes_in_backward(w, &lives[life])) of->in_backward = true;
  if (of->count++ == 0) of->first = life;
  of->two_before = of->one_before;
  of->one_before = life + 1;
}

static bool is_left(const hr_growth *g) { return g->kind == HR_GROWTH_GRAPH || g->kind == HR_GROWTH_OUTPUTS; }

static int number_order(const void *a, const void *b) {
  const uint64_t *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

static uint32_t first_stack(const window *w) {
  return w->passes.count ? w->in->stacks[w->in->lives->events[w->passes.items[0]].stack].plain : 0;
}

/* Whether the step at hand has more passes than the median of the whole ones before: with as many it only has not given back what
 * they keep, and its passes may be the layers of a model that the program calls one by one. A few of the steps before may have had an
 * evaluation like the one at hand. */
static bool has_more_passes(const window *w, bool *more) {
  const hri_lives *l = w->in->lives;
  const uint32_t steps = hri_step_of(&w->in->public, w->from - 1) + 1;
  uint64_t *of_step = hri_alloc_zero(steps, sizeof *of_step), now = 0;
  if (!of_step) return false;
  for (uint64_t k = l->before_count; k < l->count && l->lives[k].alloc < w->to; k++) {
    if (w->in->stacks[l->lives[k].stack].plain != first_stack(w)) continue;
    if (l->lives[k].alloc >= w->from) now++;
    else of_step[hri_step_of(&w->in->public, l->lives[k].alloc)]++;
  }
  qsort(of_step, steps, sizeof *of_step, number_order);
  *more = now > of_step[steps / 2];
  hri_free(of_step);
  return true;
}

/* Whether the program makes something for each pass and before the first of them, a batch, and did so in the steps before: then the
 * step at hand has more batches than those, and is no longer sequence. What it makes of each pass's results is none. */
static bool has_more_batches(const window *w, const past *rows) {
  const uint32_t first = first_stack(w);
  uint64_t calls = 0;
  for (size_t k = 0; k < w->rows.count; k++) calls += w->rows.items[k].stack == first;
  for (size_t k = 0, next; k < w->rows.count; k = next) {
    const uint32_t stack = w->rows.items[k].stack;
    const hri_stack_info *info = &w->in->stacks[stack];
    next = stack_end(w, k);
    if (!stack || info->site || (info->stage != HR_STAGE_UNKNOWN && info->stage != HR_STAGE_DATA)) continue;
    if (rows[stack].first > rows[first].first || !comes_each_pass(w, &w->rows.items[k], next - k, 1)) continue;
    const uint64_t usual = rows[stack].count * calls, here = (next - k) * rows[first].count;
    if (usual && (usual > here ? usual - here : here - usual) <= here / 8 + rows[first].count) return true; /* or one */
  }
  return false;
}

/* Marks what was kept by the passes of whole steps before too, and went again; it is growth where there are more of them now. */
static bool look_back(window *w) {
  const hri_lives *l = w->in->lives;
  past *rows = w->from && w->found.count ? hri_alloc_zero(w->in->public.snapshot->stack_count, sizeof *rows) : NULL;
  uint64_t again = 0, never = 0;
  bool more = false, batches;
  if (!w->from || !w->found.count) return true;
  if (!rows || !has_more_passes(w, &more)) {
    hri_free(rows);
    return false;
  }
  for (uint64_t k = l->before_count; k < l->count && l->lives[k].alloc < w->from; k++)
    note_past(w, &rows[w->in->stacks[l->lives[k].stack].plain], k);
  for (size_t k = 0; k < w->found.count; k++) {
    hr_growth *g = &w->found.items[k];
    const past *of = &rows[w->in->stacks[g->stack].plain];
    if (!is_left(g) || !g->stack) continue;
    g->freed_in_steps = of->in_backward || of->held;
    if (of->in_backward) g->kind = HR_GROWTH_GRAPH;
    if (g->freed_in_steps) again += g->bytes;
    else never += g->bytes;
  }
  for (size_t k = 0; k < w->found.count && again > never; k++) /* what has no stack is as most of it */
    w->found.items[k].freed_in_steps |= is_left(&w->found.items[k]) && !w->found.items[k].stack;
  batches = has_more_batches(w, rows);
  for (size_t k = 0; k < w->found.count; k++)
    w->found.items[k].more_batches = w->found.items[k].freed_in_steps && batches;
  if (!more) {
    size_t left = 0;
    for (size_t k = 0; k < w->found.count; k++)
      if (!w->found.items[k].freed_in_steps) w->found.items[left++] = w->found.items[k];
    w->found.count = left;
  }
  hri_free(rows);
  return true;
}

/* Several tensors of a model's inside for each pass are its graph more likely than its results; of threads side by side one more
 * or less says nothing. */
static bool is_inner(const window *w, const hr_growth *g) {
  return g->kind == HR_GROWTH_GRAPH || (g->kind == HR_GROWTH_OUTPUTS && w->in->stacks[g->stack].site == w->site &&
                                        g->count * 2 >= (uint64_t)g->steps_grown * 3);
}

/* Passes that keep their graph where no backward is recorded and no stack names evaluation: training may sum the losses of
 * many of them, or go through many calls in one, and come to its first backward behind the failure. A graph keeps a call's input beside
 * what it makes inside. */
static void doubt_graph(window *w) {
  bool named = w->has_backward, inner = w->may_be_layers;
  for (uint64_t k = 0; k < w->from && !named; k++) named = w->in->stages[k] == HR_STAGE_BACKWARD;
  for (size_t k = 0; k < w->rows.count && !named; k++)
    named = w->in->stacks[w->rows.items[k].stack].marks & (HRI_MARK_EVALUATION | HRI_MARK_GENERATION);
  for (size_t k = 0; k < w->found.count; k++)
    inner |= is_inner(w, &w->found.items[k]) ||
             (w->keeps_inputs && is_left(&w->found.items[k]) && w->in->stacks[w->found.items[k].stack].site == w->site);
  for (size_t k = 0; k < w->found.count; k++)
    w->found.items[k].may_train = !named && inner && is_left(&w->found.items[k]);
}

/* Backwards among the passes, and not behind the last of them, free what a forward saved, unless they are told to keep it. */
static void note_backwards(window *w) {
  const uint64_t last = w->passes.count ? w->passes.items[w->passes.count - 1] : 0;
  bool among = false;
  for (uint64_t k = w->from; k < last && w->has_backward && !among; k++)
    among = w->in->lives->events[k].action == HR_TRACE_ALLOC && w->in->stages[k] == HR_STAGE_BACKWARD;
  for (size_t k = 0; k < w->found.count; k++) w->found.items[k].among_backwards = among && is_left(&w->found.items[k]);
}

static bool find_growth(window *w) {
  bool passes;
  w->keeps_inputs = false;
  thin_passes(w);
  passes = are_passes(w) || begin_with_batches(w);
  w->side_by_side = passes && (w->side_by_side || are_side_by_side(w));
  for (size_t k = 0, next; k < w->rows.count; k = next) {
    size_t before = w->found.count;
    next = stack_end(w, k);
    const bool around = passes && w->site && !w->in->stacks[w->rows.items[k].stack].site;
    if (!w->has_backward && !add_cache(w, &w->rows.items[k], next - k)) return false; /* longer batches are none */
    if (!w->has_backward && around && w->found.count == before && !add_joined(w, &w->rows.items[k], next - k))
      return false;
    if (w->found.count > before || !passes) continue;
    if (!add_kept(w, k, next)) return false;
    /* Made before the first call, and then for each: what they are called with. */
    w->keeps_inputs |= around && w->found.count > before && life_of(w, k)->alloc < w->passes.items[0];
  }
  for (size_t k = 0; k < w->found.count; k++)
    if (w->found.items[k].kind == HR_GROWTH_OUTPUTS && is_graph(w)) w->found.items[k].kind = HR_GROWTH_GRAPH;
  if (!look_back(w)) return false;
  doubt_graph(w);
  note_backwards(w);
  return w->from || hri_older_add(w->in, w->to, w->passes.items, w->passes.count, w->found.items, w->found.count);
}

/* ---- together with what the steps tell ---- */

static int most_bytes(const void *a, const void *b) {
  const hr_growth *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return (x->stack > y->stack) - (x->stack < y->stack);
}

/* Before those of the steps; a repetition that was taken for steps has nothing more to say. */
static bool merge(window *w) {
  hr_inspection *p = &w->in->public;
  uint64_t live = w->in->lives->peak_live_bytes, bytes = 0;
  for (size_t k = 0; k < w->found.count; k++) bytes += w->found.items[k].bytes;
  if (w->found.count == 0 || bytes < live / 50) return true;
  qsort(w->found.items, w->found.count, sizeof *w->found.items, most_bytes);
  for (uint32_t k = 0; k < p->growth_count; k++) {
    if (hr_growth_goes_on(p->growth[k].kind) && hri_steps_repeat(p)) continue;
    if (!hri_array_push(&w->found, p->growth[k])) return false;
  }
  hri_free(p->growth);
  p->growth = w->found.items;
  p->growth_count = (uint32_t)w->found.count;
  w->found.items = NULL;
  w->found.count = 0;
  return true;
}

static bool is_a_pass(hr_stage stage) {
  return stage == HR_STAGE_FORWARD || stage == HR_STAGE_LOSS || stage == HR_STAGE_EVALUATION;
}

/* A pass that grows a cache, or leaves results without their graph, and that no backward follows, is none of training.
 * With the graph it may be training that sums the losses of many batches: its stage stays what its stacks say. */
static void name_stage(window *w) {
  hr_inspection *p = &w->in->public;
  hr_stage stage = HR_STAGE_EVALUATION;
  if (p->growth_count == 0 || p->growth[0].kind < HR_GROWTH_GRAPH) return;
  if (p->growth[0].kind == HR_GROWTH_CACHE) stage = HR_STAGE_GENERATION;
  if (w->has_backward || p->growth[0].kind == HR_GROWTH_GRAPH) return;
  for (uint32_t k = 0; k < p->oom_count; k++)
    if (p->ooms[k].event >= w->from && is_a_pass(p->ooms[k].stage)) p->ooms[k].stage = stage;
  if (p->at_event != UINT64_MAX && p->at_event >= w->from && p->at_event <= w->to && is_a_pass(p->at_stage))
    p->at_stage = stage;
}

/* How many rows make a pass, where what they are and how many tensors are made until the next comes again after so many all the time, but
 * for the first pass, which also makes a library's workspaces, and the last; 1: nothing tells. */
static size_t period_of(const made *rows, const hri_life *lives, size_t count) {
  for (size_t each = 1; each <= MOST_BARE; each++) {
    size_t k = 2 * each;
    while (k + each < count && lives[rows[k].life].size == lives[rows[k - each].life].size &&
           rows[k + 1].life - rows[k].life == rows[k + 1 - each].life - rows[k - each].life)
      k++;
    if (k > 2 * each && k + each >= count) return each;
  }
  return 1;
}

/* Calls that are passes because there are more of them, and many, than weights, with nothing around that tells how many of the first
 * stack's rows make one. */
static bool are_bare(window *w) {
  const size_t count = w->passes.count;
  const hri_lives *l = w->in->lives;
  size_t at = 0, each;
  for (uint64_t k = l->before_count; k < l->count && at < count; k++)
    if (l->lives[k].alloc == w->passes.items[at]) w->rows.items[at++] = (made){k, 0}; /* the first stack's, by time */
  each = period_of(w->rows.items, l->lives, at);
  for (at = 0; at * each < count; at++) w->passes.items[at] = w->passes.items[at * each];
  w->passes.count = at;
  return at >= MANY_CALLS && at > w->weights;
}

bool hri_passes_list(hri_inside *in, uint64_t **events, size_t *count, bool *bare) {
  window w = {.in = in};
  bool ok = true;
  *events = NULL;
  *count = 0;
  *bare = false;
  if (!in->has_stacks || !in->lives->event_count) return true;
  find_window(&w);
  ok = list_rows(&w) && find_passes(&w);
  if (ok) thin_passes(&w);
  *bare = ok && !are_passes(&w) && !begin_with_batches(&w);
  if (ok && (!*bare || are_bare(&w))) {
    *events = w.passes.items;
    *count = w.passes.count;
    w.passes.items = NULL;
  }
  hri_array_free(&w.rows);
  hri_array_free(&w.passes);
  return ok;
}

hr_status hri_within_find(hri_inside *in, hr_error *error) {
  window w = {.in = in};
  bool ok;
  if (!in->has_stacks || !in->lives->event_count) return HR_OK;
  find_window(&w);
  for (uint64_t k = w.from; k < w.to && !w.has_backward; k++) {
    const hr_trace_event *e = &in->lives->events[k];
    w.has_backward = e->action == HR_TRACE_ALLOC && in->stacks[e->stack].stage == HR_STAGE_BACKWARD;
  }
  ok = list_rows(&w) && find_passes(&w) && find_growth(&w) && merge(&w);
  if (ok) name_stage(&w);
  hri_array_free(&w.rows);
  hri_array_free(&w.largest);
  hri_array_free(&w.passes);
  hri_array_free(&w.found);
  hri_free(w.next);
  return ok ? HR_OK : hri_fail_memory(error, in->lives->count * sizeof(made), "what grows within a step");
}
