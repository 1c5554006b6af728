/* Training steps in a trace, by the first of these that gives at least two: labels of ours ("step 7" in a stack),
 * annotations that come again and again ("ProfilerStep#7"; of "Optimizer.step#AdamW.step", which PyTorch itself
 * writes, the ends), the ends of optimizer runs (from stacks), an allocation of one size, or of one place in the program,
 * that comes at regular distances, the passes of a model where nothing is trained.
 * What stands before the first and behind the last boundary belongs to no step, but for a last one that an annotation
 * began, or that has a quarter of the usual events. */
#include "inspect/inside.h"
#include "inspect/shortage.h"

#include <stdlib.h>
#include <string.h>

typedef HRI_ARRAY(uint64_t) marks; /* events at which a step begins; the last one ends the last step */

/* ---- annotations ---- */

static uint64_t event_at(const hri_lives *l, int64_t time_us) {
  uint64_t low = 0, high = l->event_count;
  while (low < high) {
    uint64_t middle = low + (high - low) / 2;
    if (l->events[middle].time_us < time_us) low = middle + 1;
    else high = middle;
  }
  return low;
}

/* Names are the same up to the number at their end: "step 7", "ProfilerStep#7". */
static size_t stem(const char *name) {
  const size_t all = strnlen(name, HRI_NAME_BYTES);
  size_t count = all;
  while (count && name[count - 1] >= '0' && name[count - 1] <= '9') count--;
  return count ? count : all;
}

/* PyTorch annotates each call of an optimizer: the short span at a step's end. */
static bool is_optimizer_step(const char *name) { return strncmp(name, "Optimizer.step#", 15) == 0; }
static bool is_zero_grad(const char *name) { return strncmp(name, "Optimizer.zero_grad#", 20) == 0; }

/* ... and each batch that a data loader gives, in evaluation as in training, whose time is that of reading files. */
static bool is_batch(const char *name) { return strncmp(name, "enumerate(DataLoader)#", 22) == 0; }

/* A name, up to the number at its end, and what it covers. */
typedef struct covering {
  const char *name; /* as it comes first */
  uint64_t count;
  int64_t open;
  double covered; /* times may be anything */
} covering;

typedef struct named {
  const char *name;
  size_t stem;
  uint32_t string, order; /* order: of the names, as they come first */
} named;

typedef HRI_ARRAY(named) name_list;

static int stem_order(const void *a, const void *b) {
  const named *x = a, *y = b;
  const int apart = strncmp(x->name, y->name, x->stem < y->stem ? x->stem : y->stem);
  if (apart) return apart;
  if (x->stem != y->stem) return x->stem < y->stem ? -1 : 1;
  return (x->order > y->order) - (x->order < y->order);
}

static bool is_of_device(const hr_annotation *a, int32_t device) {
  return a->device < 0 || device < 0 || a->device == device;
}

/* Numbers the names of a device's annotations: `row_of` has for each string, once it is met, the place of the first name with its
 * stem, plus one. A file may have as many names as annotations. */
static bool number_names(const hr_snapshot *s, int32_t device, uint32_t *row_of, uint32_t *count) {
  name_list names = {0};
  bool ok = true;
  for (uint64_t k = 0; ok && k < s->annotation_count; k++) {
    const uint32_t string = s->annotations[k].name;
    const char *name = hr_snapshot_string(s, string);
    if (!is_of_device(&s->annotations[k], device) || row_of[string]) continue;
    row_of[string] = (uint32_t)names.count + 1;
    ok = hri_array_push(&names, ((named){name, stem(name), string, (uint32_t)names.count}));
  }
  *count = (uint32_t)names.count;
  if (names.count) qsort(names.items, names.count, sizeof *names.items, stem_order);
  for (size_t k = 1; k < names.count; k++) {
    const named *before = &names.items[k - 1], *now = &names.items[k];
    if (now->stem == before->stem && strncmp(now->name, before->name, now->stem) == 0)
      row_of[now->string] = row_of[before->string];
  }
  hri_array_free(&names);
  return ok;
}

/* Of the names that begin at least twice, the one that covers most time; enclosing ones win over what they enclose. Batches
 * are steps only where no optimizer's are known: those of evaluation are passes of its last one. An optimizer's may be a single one:
 * it ends the first step, and so begins the second. NULL: none. */
static const char *choose_name(const covering *rows, uint32_t count) {
  const covering *best = NULL;
  bool trains = false;
  for (uint32_t k = 0; k < count; k++) trains |= rows[k].count >= 2 && is_optimizer_step(rows[k].name);
  for (uint32_t k = 0; k < count; k++) {
    if (rows[k].count < 2) continue;
    if (strncmp(rows[k].name, "ProfilerStep#", 13) == 0) return rows[k].name;
    if (is_zero_grad(rows[k].name) || (trains && is_batch(rows[k].name))) continue;
    if (!best || rows[k].covered > best->covered) best = &rows[k];
  }
  for (uint32_t k = 0; k < count && !best; k++) /* one step, and the next one failed */
    if (rows[k].name && is_optimizer_step(rows[k].name)) best = &rows[k];
  return best ? best->name : NULL;
}

/* False: memory was refused. */
static bool find_name(const hr_snapshot *s, int32_t device, const char **name) {
  uint32_t *row_of = hri_alloc_zero(s->string_count, sizeof *row_of), count = 0;
  covering *rows = row_of && number_names(s, device, row_of, &count) ? hri_alloc_zero(count, sizeof *rows) : NULL;
  for (uint64_t k = 0; rows && k < s->annotation_count; k++) {
    const hr_annotation *a = &s->annotations[k];
    covering *row;
    if (!is_of_device(a, device)) continue;
    row = &rows[row_of[a->name] - 1];
    if (!row->name) row->name = hr_snapshot_string(s, a->name), row->open = a->time_us;
    if (a->end) row->covered += (double)a->time_us - (double)row->open;
    else row->count++, row->open = a->time_us;
  }
  *name = rows ? choose_name(rows, count) : NULL;
  hri_free(rows);
  hri_free(row_of);
  return rows != NULL;
}

/* Before the first end of an optimizer there is a step too, from its batch or forward on. */
static bool begin_first(const hri_inside *in, marks *found) {
  uint64_t end = found->count ? found->items[0] : 0;
  for (uint64_t k = 0; in->has_stacks && k < end; k++) {
    const hr_trace_event *e = &in->lives->events[k];
    uint8_t own = in->stacks[e->stack].stage;
    if (e->action != HR_TRACE_ALLOC || own == HR_STAGE_INIT || own == HR_STAGE_UNKNOWN) continue;
    if (own == HR_STAGE_OPTIMIZER) return true; /* the rest of one */
    if (!hri_array_push(found, 0)) return false;
    memmove(found->items + 1, found->items, (found->count - 1) * sizeof *found->items);
    found->items[0] = k;
    return true;
  }
  return true;
}

uint64_t hri_optimizer_end(const hri_inside *in, const hr_annotation *a) {
  const bool here = a->device < 0 || in->public.device < 0 || a->device == in->public.device;
  if (!in->lives->event_count || !(in->lives->events[0].flags & HR_EVENT_HAS_TIME)) return HRI_NEVER;
  if (!a->end || !here || !is_optimizer_step(hr_snapshot_string(in->public.snapshot, a->name))) return HRI_NEVER;
  return event_at(in->lives, a->time_us);
}

/* Where the program calls the optimizer that allocated last between two events; 0: none did, or no stack tells. */
static uint32_t caller_of_optimizer(const hri_inside *in, uint64_t from, uint64_t to) {
  for (uint64_t k = to; k-- > from;)
    if (in->stages[k] == HR_STAGE_OPTIMIZER && in->lives->events[k].action == HR_TRACE_ALLOC)
      return in->stacks[in->lives->events[k].stack].own_frame;
  return 0;
}

enum { MOST_OPTIMIZERS = 8, LEAST_ROUNDS = 4 };

/* After how many of them the callers come again, all the time; 0: they do not, or one of them is not known. */
static size_t round_of(const uint32_t *caller, size_t count) {
  for (size_t k = 0; k < count; k++)
    if (caller[k] == 0) return 0;
  for (size_t round = 1; round <= MOST_OPTIMIZERS && round * LEAST_ROUNDS <= count; round++) {
    size_t k = round;
    while (k < count && caller[k] == caller[k - round]) k++;
    if (k == count) return round;
  }
  return 0;
}

/* A generator's optimizer and its critic's end two steps of one round: of optimizers that several places of the program call in
 * turns only the end of the last one ends a step. What ended before the first event, which a ring overwrote, is a mark there and
 * tells no caller. */
static bool join_rounds(const hri_inside *in, marks *found) {
  const size_t before = found->count && found->items[0] == 0, count = found->count - before;
  uint32_t *caller = count ? hri_alloc(count * sizeof *caller) : NULL;
  uint64_t *ends = found->items + before;
  size_t round, kept = 0;
  if (count == 0) return true;
  if (!caller) return false;
  for (size_t k = 0; k < count; k++) caller[k] = caller_of_optimizer(in, k ? ends[k - 1] : 0, ends[k]);
  round = round_of(caller, count);
  hri_free(caller);
  if (round < 2) return true;
  for (size_t k = round - 1; k < count; k += round) ends[kept++] = ends[k];
  found->count = before + kept;
  return true;
}

/* What follows the last end of an optimizer is a step only if it has a step's events: not the cleaning up, nor a pass
 * of evaluation that hardly began. Behind a single step a failure is enough. */
static bool add_ends(const hri_inside *in, marks *found) {
  const hr_inspection *p = &in->public;
  uint64_t usual, left;
  if ((in->has_stacks && !join_rounds(in, found)) || !begin_first(in, found)) return false;
  if (found->count < 2) return found->count == 0 || hri_array_push(found, in->lives->event_count);
  usual = (found->items[found->count - 1] - found->items[0]) / (found->count - 1);
  left = in->work_end == HRI_NEVER || in->work_end < found->items[found->count - 1]
             ? 0
             : in->work_end - found->items[found->count - 1];
  if (found->count == 2 && p->oom_count && p->ooms[p->oom_count - 1].event > found->items[1]) usual = 0;
  return left < usual / 4 || hri_array_push(found, in->lives->event_count);
}

static bool from_annotations(hri_inside *in, marks *found) {
  const hr_snapshot *s = in->public.snapshot;
  const char *name = NULL;
  bool by_end;
  if (s->annotation_count && !find_name(s, in->public.device, &name)) return false;
  by_end = name && is_optimizer_step(name);
  if (!name || !in->lives->event_count || !(in->lives->events[0].flags & HR_EVENT_HAS_TIME)) return true;
  for (uint64_t k = 0; k < s->annotation_count; k++) {
    const hr_annotation *a = &s->annotations[k];
    const char *other = hr_snapshot_string(s, a->name);
    uint64_t at;
    if (a->end != by_end || stem(other) != stem(name) || strncmp(other, name, stem(name)) != 0) continue;
    at = event_at(in->lives, a->time_us);
    if (found->count && found->items[found->count - 1] >= at) found->items[found->count - 1] = at;
    else if (!hri_array_push(found, at)) return false;
  }
  if (by_end) return add_ends(in, found);
  return found->count == 0 || found->items[found->count - 1] >= in->lives->event_count ||
         hri_array_push(found, in->lives->event_count);
}

/* ---- labels ---- */

static bool from_labels(hri_inside *in, marks *found) {
  uint32_t step = 0;
  for (uint64_t k = 0; k < in->lives->event_count; k++) {
    uint32_t own = in->lives->events[k].action == HR_TRACE_ALLOC ? in->stacks[in->lives->events[k].stack].step : 0;
    if (own <= step) continue;
    step = own;
    if (!hri_array_push(found, k)) return false;
  }
  return found->count == 0 || hri_array_push(found, in->lives->event_count);
}

/* ---- optimizer runs ---- */

static bool from_optimizer(hri_inside *in, marks *found) {
  bool inside = false;
  if (!in->has_stacks) return true;
  for (uint64_t k = 0; k < in->lives->event_count; k++) {
    bool now = in->stages[k] == HR_STAGE_OPTIMIZER;
    if (inside && !now && !hri_array_push(found, k)) return false;
    inside = now;
  }
  return add_ends(in, found);
}

/* ---- repetition ---- */

enum {
  LEAST_REPEATS = 3,
  CLASSES = 4096,
  LEAST_EVENTS = 8,
  LEAST_LIVES = 4,
  LOOP_LIVES = 2,
  LOOP_REPEATS = 32,
  CASTS_LOOKED_AT = 64
};

typedef struct repeat {
  uint64_t key, count, last, first, shortest, longest;
} repeat;

/* One row per key (a table that keeps the first keys it meets: what repeats is met early). */
static void note_repeat(repeat *rows, uint64_t key, uint64_t place) {
  uint64_t at = (key * 0x9e3779b97f4a7c15u >> 32) % CLASSES;
  repeat *r;
  for (uint32_t tries = 0; rows[at].count && rows[at].key != key; at = (at + 1) % CLASSES)
    if (++tries == 16) return;
  r = &rows[at];
  if (r->count) {
    uint64_t distance = place - r->last;
    if (r->count == 1 || distance < r->shortest) r->shortest = distance;
    if (r->count == 1 || distance > r->longest) r->longest = distance;
  } else r->first = place;
  r->key = key;
  r->last = place;
  r->count++;
}

/* What repeats, and in what its distances are counted. */
typedef struct repetition {
  uint64_t (*key)(const hri_inside *in, const hri_life *life); /* 0: it does not count */
  bool by_lives;                                               /* else by events */
  uint64_t least, slack;                                       /* of distances; slack: beside a twentieth */
  uint64_t repeats;                                            /* at least */
} repetition;

static uint64_t size_of(const hri_inside *in, const hri_life *life) {
  (void)in;
  return life->size;
}

/* Of the program around its model, or without one. What repeats within a model's call, or while it is built, are its
 * layers. */
static uint64_t place_of(const hri_inside *in, const hri_life *life) {
  const hri_stack_info *stack = &in->stacks[life->stack];
  const bool around = !stack->site && (stack->stage == HR_STAGE_UNKNOWN || stack->stage == HR_STAGE_DATA);
  return around ? stack->plain : 0;
}

/* The key with the longest regular distance: layers repeat within a step, but with a jump at its end. */
static bool find_repetition(const hri_inside *in, const repetition *how, marks *found) {
  const hri_lives *l = in->lives;
  const uint64_t all = how->by_lives ? l->count : l->event_count;
  repeat *rows = hri_alloc_zero(CLASSES, sizeof *rows), *best = NULL;
  bool ok = rows != NULL;
  for (uint64_t k = l->before_count; ok && k < l->count; k++)
    if (how->key(in, &l->lives[k]))
      note_repeat(rows, how->key(in, &l->lives[k]), how->by_lives ? k : l->lives[k].alloc);
  for (uint32_t k = 0; ok && k < CLASSES; k++) {
    repeat *r = &rows[k];
    if (r->count < how->repeats || r->shortest < how->least) continue;
    if (r->longest - r->shortest > r->shortest / 20 + how->slack) continue;
    if (all - r->last > 2 * r->longest || r->first > 4 * r->longest) continue;
    if (!best || r->shortest > best->shortest || (r->shortest == best->shortest && r->first < best->first)) best = r;
  }
  for (uint64_t k = l->before_count; best && ok && k < l->count; k++)
    if (how->key(in, &l->lives[k]) == best->key) ok = hri_array_push(found, l->lives[k].alloc);
  if (best && ok) ok = hri_array_push(found, l->event_count);
  hri_free(rows);
  return ok;
}

/* What is looked at in steps: all that they make, or within a model's call, by bytes or by number. */
typedef enum end_of { OF_ALL, OF_CALLS, OF_EACH } end_of;

/* Whether half of the bytes that are made in the steps, all or within a model's call only, or two thirds of these tensors, go by the
 * end of the next one. Layers of a forward that a program calls one by one keep theirs for its backward, and those of a model that loads
 * keep all. */
static bool comes_to_ends(const hri_inside *in, const marks *found, end_of of) {
  const hri_lives *l = in->lives;
  uint64_t made = 0, gone = 0;
  size_t step = 0;
  for (uint64_t k = l->before_count; k < l->count; k++) {
    const hri_life *life = &l->lives[k];
    while (step + 1 < found->count && life->alloc >= found->items[step + 1]) step++;
    if (step + 3 >= found->count) break; /* the last two have not come to their ends */
    if (life->alloc < found->items[step] || (of != OF_ALL && !in->stacks[life->stack].site)) continue;
    made += of == OF_EACH ? 1 : life->size;
    if (life->end != HRI_NEVER && life->end < found->items[step + 2]) gone += of == OF_EACH ? 1 : life->size;
  }
  return made > 0 && (of == OF_EACH ? gone * 3 >= made * 2 : gone >= made / 2);
}

/* Whether most of what repeats was made within a model's call or its backward, or while a model was loaded, and so may be its layers'.
 * Without stacks nothing tells. */
static bool may_be_layers(const hri_inside *in, const marks *found) {
  size_t within = 0;
  for (size_t k = 0; k + 1 < found->count; k++) {
    const hri_stack_info *stack = &in->stacks[in->lives->events[found->items[k]].stack];
    within += stack->site != 0 || stack->stage == HR_STAGE_BACKWARD || stack->stage == HR_STAGE_INIT;
  }
  return 2 * within >= found->count;
}

/* Where a step asks for memory: in a model's call (or for its weights right before it), in a backward, elsewhere. */
enum { IN_CALL = 1, IN_BACKWARD = 2, ELSEWHERE = 4 };

static unsigned part_of_step(const hri_inside *in, const hri_life *life) {
  const hri_stack_info *stack = &in->stacks[life->stack];
  if (hri_life_stage(in, life) == HR_STAGE_BACKWARD) return IN_BACKWARD;
  return stack->site || stack->stage == HR_STAGE_INIT ? IN_CALL : ELSEWHERE;
}

/* Whether most of the steps have a batch, an optimizer, or a forward and a backward: layers follow each other within one call, or one
 * backward, however much of what they make goes again. */
static bool are_more_than_layers(const hri_inside *in, const marks *found) {
  const hri_lives *l = in->lives;
  size_t step = 0, more = 0;
  unsigned parts = 0;
  for (uint64_t k = l->before_count; k < l->count && l->lives[k].alloc < found->items[found->count - 1]; k++) {
    if (l->lives[k].alloc < found->items[0]) continue;
    while (l->lives[k].alloc >= found->items[step + 1]) {
      more += parts >= (IN_CALL | IN_BACKWARD);
      parts = 0;
      step++;
    }
    parts |= part_of_step(in, &l->lives[k]);
  }
  more += parts >= (IN_CALL | IN_BACKWARD);
  return 2 * more >= found->count - 1;
}

/* Whether the program was still in such steps when it asked for memory last: a step before has that place too. A loop that
 * loads shards ends before anything fails. */
static bool goes_on(const hri_inside *in, const marks *found) {
  const hri_lives *l = in->lives;
  uint32_t last;
  if (in->work_end == HRI_NEVER) return false;
  last = in->stacks[l->events[in->work_end].stack].plain;
  for (uint64_t k = l->before_count; k < l->count && l->lives[k].alloc < found->items[found->count - 2]; k++)
    if (l->lives[k].alloc >= found->items[0] && in->stacks[l->lives[k].stack].plain == last) return true;
  return false;
}

/* Whether a model is called in the trace, or anything is trained. */
static bool has_model(const hri_inside *in) {
  const hri_lives *l = in->lives;
  for (uint64_t k = l->before_count; k < l->count; k++) {
    const hr_stage stage = hri_life_stage(in, &l->lives[k]);
    if (in->stacks[l->lives[k].stack].site || stage == HR_STAGE_BACKWARD || stage == HR_STAGE_OPTIMIZER) return true;
  }
  return false;
}

/* Whether of what each step makes something goes by the end of the next one, be it small: a list that only gets longer is no
 * loop that works, but data that is loaded. */
static bool turns_over(const hri_inside *in, const marks *found) {
  const hri_lives *l = in->lives;
  size_t step = 0, last = found->count, turned = 0;
  for (uint64_t k = l->before_count; k < l->count; k++) {
    const hri_life *life = &l->lives[k];
    while (step + 1 < found->count && life->alloc >= found->items[step + 1]) step++;
    if (step + 3 >= found->count) break;
    if (life->alloc < found->items[step] || life->end == HRI_NEVER || life->end >= found->items[step + 2]) continue;
    turned += step != last;
    last = step;
  }
  return turned + 3 >= found->count - found->count / 8;
}

/* Whether one has as many elements as the other may have, in another dtype. */
static bool is_other_dtype(uint64_t a, uint64_t b) {
  const uint64_t most = a > b ? a : b, least = a > b ? b : a;
  return least && (most == 2 * least || most == 4 * least || most == 8 * least);
}

/* What a stack's operation says; as many lives have one stack, each is looked at once. */
enum { NOT_LOOKED_AT = 0, NAMES_NONE, NAMES_CAST, NAMES_OTHER };

static uint8_t names_cast(const hr_snapshot *s, uint32_t stack) {
  char operation[HRI_OPERATION_BYTES];
  hri_stack_operation(s, stack, operation);
  if (!operation[0]) return NAMES_NONE;
  return strcmp(operation, "to_dtype") == 0 ? NAMES_CAST : NAMES_OTHER;
}

static bool is_cast(const hri_inside *in, uint64_t life, uint8_t *names) {
  const hri_lives *l = in->lives;
  const hri_life *made = &l->lives[life], *before = life > l->before_count ? made - 1 : NULL;
  if (names[made->stack] == NOT_LOOKED_AT) names[made->stack] = names_cast(in->public.snapshot, made->stack);
  if (names[made->stack] != NAMES_NONE) return names[made->stack] == NAMES_CAST;
  return before && before->end != HRI_NEVER && made->end > before->end && is_other_dtype(before->size, made->size);
}

/* Whether the rounds cast: one dtype to another, or, where no stack names the operations, a tensor that is kept from one that goes and
 * is an eighth to eight times as large. So data and weights are loaded, and what they keep is a pile. False: memory was refused. */
static bool find_casts(const hri_inside *in, const marks *found, bool *casts) {
  const hri_lives *l = in->lives;
  uint8_t *names = hri_alloc_zero(in->public.snapshot->stack_count, sizeof *names);
  const size_t looked = found->count - 1 < CASTS_LOOKED_AT ? found->count - 1 : CASTS_LOOKED_AT;
  size_t step = 0, last = found->count, count = 0;
  for (uint64_t k = l->before_count; names && k < l->count && l->lives[k].alloc < found->items[looked]; k++) {
    if (l->lives[k].alloc < found->items[0]) continue;
    while (l->lives[k].alloc >= found->items[step + 1]) step++;
    if (step == last || !is_cast(in, k, names)) continue;
    count++;
    last = step;
  }
  *casts = 2 * count >= looked;
  hri_free(names);
  return names != NULL;
}

/* Sizes first. A place is the better sign where sizes differ from batch to batch, and where a library's or a layer's
 * tensors have the size that the program's have; its distances are counted in allocations, for how many segments come
 * and go in between says nothing, and may differ by two, for the first pass also makes a library's workspaces. A loop without a
 * model may make as little as two tensors each time round, and keep the larger one; where nothing failed, it only may have loaded. */
static bool from_repetition(hri_inside *in, marks *found) {
  static const repetition by_size = {size_of, false, LEAST_EVENTS, 0, LEAST_REPEATS},
                          by_place = {place_of, true, LEAST_LIVES, 2, LEAST_REPEATS},
                          by_loop = {place_of, true, LOOP_LIVES, 2, LOOP_REPEATS};
  bool loads = false;
  if (!find_repetition(in, &by_size, found)) return false;
  if (found->count && may_be_layers(in, found) &&
      !(comes_to_ends(in, found, OF_ALL) && are_more_than_layers(in, found)))
    found->count = 0;
  if (found->count > 0) return true;
  if (!find_repetition(in, &by_place, found)) return false;
  if (found->count && (!comes_to_ends(in, found, OF_ALL) || !goes_on(in, found))) found->count = 0;
  if (found->count > 0 || !in->public.oom_count || has_model(in)) return true;
  if (!find_repetition(in, &by_loop, found)) return false;
  if (found->count && (!turns_over(in, found) || !goes_on(in, found))) found->count = 0;
  if (found->count && !find_casts(in, found, &loads)) return false;
  if (loads) found->count = 0;
  return true;
}

/* ---- passes ---- */

/* Requests of a server differ in all that repetition counts: batches, lengths, how many layers ask for room. What the program keeps
 * of some of them (a cache of each conversation) may be most of what they make; what the model makes goes. */
static bool from_passes(hri_inside *in, marks *found) {
  uint64_t *events;
  size_t count;
  bool bare, ok = hri_passes_list(in, &events, &count, &bare);
  for (uint64_t k = 0; count && k < in->lives->event_count; k++)
    if (in->stages[k] == HR_STAGE_BACKWARD || in->stages[k] == HR_STAGE_OPTIMIZER) count = 0;
  for (size_t k = 0; ok && k < count; k++) ok = hri_array_push(found, events[k]);
  if (ok && count) ok = hri_array_push(found, in->lives->event_count);
  hri_free(events);
  if (ok && found->count && !comes_to_ends(in, found, bare ? OF_EACH : OF_CALLS)) found->count = 0;
  return ok;
}

bool hri_steps_repeat(const hr_inspection *p) {
  return strcmp(p->steps_from, "repetition") == 0 || strcmp(p->steps_from, "passes") == 0;
}

/* ---- where an event is ---- */

uint32_t hri_step_of(const hr_inspection *p, uint64_t event) {
  uint32_t low = 0, high = p->step_count;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (hri_step_end(&p->steps[middle]) <= event) low = middle + 1;
    else high = middle;
  }
  return low;
}

const hr_oom_event *hri_failure_at(const hr_inspection *p) {
  for (uint32_t k = 0; k < p->oom_count; k++)
    if (p->ooms[k].event == p->at_event) return &p->ooms[k];
  return NULL;
}

/* ---- peaks ---- */

typedef struct peaks {
  hr_step_sums *steps;
  uint32_t count, at;
} peaks;

static void keep_peak(void *context, const hri_level *level) {
  peaks *p = context;
  hr_step_sums *step;
  while (p->at < p->count && level->event >= p->steps[p->at].first_event + p->steps[p->at].event_count) p->at++;
  if (p->at == p->count || level->event < p->steps[p->at].first_event) return;
  step = &p->steps[p->at];
  if (level->live_bytes > step->peak_live_bytes) step->peak_live_bytes = level->live_bytes;
  step->end_live_bytes = level->live_bytes;
}

static int number_order(const void *a, const void *b) {
  const uint64_t *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

/* A step stands out when its peak is more than 15 % above the median and 10 % above its neighbours: steady growth is
 * none. */
static hr_status find_outlier(hr_inspection *p, hr_error *error) {
  uint64_t *sorted;
  uint32_t largest = 0;
  double peak;
  p->outlier_step = UINT64_MAX;
  if (p->step_count < 3) return HR_OK;
  sorted = hri_alloc(p->step_count * sizeof *sorted);
  if (!sorted) return hri_fail_memory(error, p->step_count * sizeof *sorted, "the peaks of steps");
  for (uint32_t k = 0; k < p->step_count; k++) {
    sorted[k] = p->steps[k].peak_live_bytes;
    if (sorted[k] > p->steps[largest].peak_live_bytes) largest = k;
  }
  qsort(sorted, p->step_count, sizeof *sorted, number_order);
  p->usual_peak_bytes = sorted[p->step_count / 2];
  hri_free(sorted);
  peak = (double)p->steps[largest].peak_live_bytes;
  if (peak <= 1.15 * (double)p->usual_peak_bytes) return HR_OK;
  if (largest > 0 && peak <= 1.1 * (double)p->steps[largest - 1].peak_live_bytes) return HR_OK;
  if (largest + 1 < p->step_count && peak <= 1.1 * (double)p->steps[largest + 1].peak_live_bytes) return HR_OK;
  p->outlier_step = largest;
  return HR_OK;
}

static hr_status make_steps(hri_inside *in, const marks *found, hr_error *error) {
  hr_inspection *p = &in->public;
  peaks keep;
  p->steps = hri_alloc_zero(found->count, sizeof *p->steps);
  if (!p->steps) return hri_fail_memory(error, found->count * sizeof *p->steps, "the steps of a trace");
  for (size_t k = 0; k + 1 < found->count; k++)
    if (found->items[k + 1] > found->items[k])
      p->steps[p->step_count++] = (hr_step_sums){found->items[k], found->items[k + 1] - found->items[k], 0, 0};
  keep = (peaks){p->steps, p->step_count, 0};
  hri_lives_walk(in->lives, keep_peak, &keep);
  return find_outlier(p, error);
}

hr_status hri_steps_find(hri_inside *in, hr_error *error) {
  static const struct {
    bool (*find)(hri_inside *in, marks *found);
    uint64_t least; /* events of a step on average */
    const char *name;
  } ways[] = {{from_labels, LEAST_EVENTS, "labels"},
              {from_annotations, LEAST_EVENTS, "annotations"},
              {from_optimizer, LEAST_EVENTS, "optimizer stacks"},
              {from_repetition, 0, "repetition"},
              {from_passes, LEAST_EVENTS, "passes"}};
  hr_status status = HR_OK;
  in->public.steps_from = "";
  in->public.outlier_step = UINT64_MAX;
  if (hri_lacks_allocs(&in->public)) return HR_OK; /* what a step needs is a sum of allocations */
  for (size_t k = 0; k < sizeof ways / sizeof *ways && in->public.step_count == 0 && status == HR_OK; k++) {
    marks found = {0};
    if (!ways[k].find(in, &found)) status = hri_fail_memory(error, found.count * 16, "the steps of a trace");
    else if (found.count >= 3 && (found.items[found.count - 1] - found.items[0]) / (found.count - 1) >= ways[k].least) {
      in->public.steps_from = ways[k].name;
      status = make_steps(in, &found, error);
    }
    hri_array_free(&found);
  }
  return status;
}
