/* Runs of characters as a table of states: one look into it for each character.
 *
 * A place is an element of an alternative and how often it was taken already. A state is the list of places that a
 * backtracking matcher would still try, in its order: taking one character more before going on, an earlier alternative
 * before a later one. What comes behind a place that matches here is dropped, so that of all matches the one is left which
 * backtracking finds first; in a state whose list is empty it is known.
 *
 * A step is chosen by the character ahead. It says both whether a match ends before that character and which state is
 * behind it; so (?=x), (?!x) and possessive runs, which end where they could go on no more, cost nothing of their own.
 * The end of a text counts as a character of no class.
 *
 * Characters are the same where they are in the same classes: patterns know a dozen or two of these kinds. ASCII has a
 * table by byte, other characters one by category for each stretch between the borders of ranges.
 *
 * States are made ahead, once; patterns with more of them than is worth it (as [ab]{0,9}a[ab]{9}) go through PCRE2. */
#include <stdlib.h>
#include <string.h>

#include "tokenizer/split_runs.h"
#include "tokenizer/unicode.h"

enum {
  KINDS_MAX = 64,
  BORDERS_MAX = 96,
  PLACES_MAX = 1024,
  STATES_MAX = 512,
  LISTED_MAX = 1 << 16, /* places of all states together */
  VAIN_MIN = 1 << 20,   /* bytes that may be looked at for nothing, and as many for each byte of a text */
  VAIN_EACH = 16,
  DEAD = 0,
  MATCH_BEFORE = 1 /* in a step: a match ends before the character; above it where the row of the state begins */
};

struct hri_split_runs {
  uint8_t ascii[128]; /* kind by byte */
  uint8_t skip[256];  /* 1: nothing begins with this byte */
  bool skip_ascii;    /* ... with no byte of ASCII */
  uint32_t kinds;     /* with the end of the text, the last */
  uint32_t start;     /* where the row of the first state begins; DEAD has the first row */
  uint32_t border_count;
  uint32_t borders[BORDERS_MAX]; /* sorted; where ranges begin, and behind their last characters */
  uint8_t beyond[BORDERS_MAX + 1][HRI_CATEGORY_COUNT];
  uint32_t steps[]; /* by state and kind */
};

/* ---- kinds of characters ---- */

typedef struct kinds {
  uint64_t masks[KINDS_MAX]; /* of classes */
  uint32_t count;
} kinds;

/* The kind of characters that are in these classes; KINDS_MAX when there are too many. */
static uint8_t kind_of(kinds *k, uint64_t mask) {
  for (uint32_t i = 0; i < k->count; i++)
    if (k->masks[i] == mask) return (uint8_t)i;
  if (k->count == KINDS_MAX) return KINDS_MAX;
  k->masks[k->count] = mask;
  return (uint8_t)k->count++;
}

static int compare(const void *a, const void *b) {
  const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return x < y ? -1 : x > y;
}

static bool find_borders(const hri_run_pattern *pattern, hri_split_runs *to) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < pattern->class_count; i++) {
    const hri_run_class *in = &pattern->classes[i];
    if (to->border_count + 2 * in->range_count > BORDERS_MAX) return false;
    for (uint32_t k = 0; k < in->range_count; k++) {
      to->borders[to->border_count++] = in->ranges[k].first;
      to->borders[to->border_count++] = in->ranges[k].last + 1;
    }
  }
  qsort(to->borders, to->border_count, sizeof *to->borders, compare);
  for (uint32_t i = 0; i < to->border_count; i++)
    if (count == 0 || to->borders[i] != to->borders[count - 1]) to->borders[count++] = to->borders[i];
  to->border_count = count;
  return true;
}

/* The classes of characters of a category from `point` to the next border. */
static uint64_t classes_beyond(const hri_run_pattern *pattern, uint32_t point, uint32_t category) {
  uint64_t mask = 0;
  for (uint32_t i = 0; i < pattern->class_count; i++) {
    const hri_run_class *in = &pattern->classes[i];
    bool found = (in->set >> category & 1) != 0;
    for (uint32_t k = 0; k < in->range_count; k++)
      found = found || (point >= in->ranges[k].first && point <= in->ranges[k].last);
    if (found != in->negated) mask |= (uint64_t)1 << i;
  }
  return mask;
}

static bool find_kinds(const hri_run_pattern *pattern, hri_split_runs *to, kinds *k) {
  bool fit = find_borders(pattern, to);
  for (uint32_t point = 0; point < 0x80 && fit; point++) {
    uint64_t mask = 0;
    for (uint32_t i = 0; i < pattern->class_count; i++) mask |= (uint64_t)pattern->classes[i].ascii[point] << i;
    to->ascii[point] = kind_of(k, mask);
    fit = to->ascii[point] < KINDS_MAX;
  }
  for (uint32_t i = 0; i <= to->border_count && fit; i++)
    for (uint32_t category = 0; category < HRI_CATEGORY_COUNT && fit; category++) {
      to->beyond[i][category] = kind_of(k, classes_beyond(pattern, i ? to->borders[i - 1] : 0x80, category));
      fit = to->beyond[i][category] < KINDS_MAX;
    }
  to->kinds = k->count + 1;
  return fit;
}

/* ---- states ---- */

typedef struct state {
  uint32_t begin, count; /* among `listed` */
} state;

typedef struct builder {
  const hri_run_pattern *pattern;
  kinds kinds;
  uint32_t first[HRI_RUNS_ELEMENTS + 1]; /* place of an element that was not taken yet */
  uint8_t seen[PLACES_MAX];              /* in the step at hand: 1 looked at, 2 among its places */
  uint16_t next[PLACES_MAX];             /* the places behind the character */
  uint32_t next_count;
  HRI_ARRAY(uint16_t) listed;
  HRI_ARRAY(state) states;
  HRI_ARRAY(uint32_t) steps; /* numbers of states first, twice, with MATCH_BEFORE */
  bool refused;              /* memory was */
} builder;

/* Of a run without end it is all the same how often it was taken above `least`. */
static uint32_t times_told_apart(const hri_run_element *e) {
  if (e->kind != HRI_RUN) return 0;
  return e->most == HRI_RUNS_UNBOUNDED ? e->least : e->most;
}

static bool number_places(builder *b) {
  const hri_run_pattern *pattern = b->pattern;
  for (uint32_t i = 0; i < pattern->element_count; i++) {
    b->first[i + 1] = b->first[i] + times_told_apart(&pattern->elements[i]) + 1;
    if (b->first[i + 1] > PLACES_MAX) return false;
  }
  return true;
}

static void put_next(builder *b, uint32_t place) {
  if (b->seen[place] & 2) return;
  b->seen[place] |= 2;
  b->next[b->next_count++] = (uint16_t)place;
}

/* What can be done at a place before a character of these classes (`mask`): taking it, going on to the next element, or
 * both in this order; alternatives one after another. True when the pattern is at its end. */
static bool follow(builder *b, uint32_t element, uint32_t times, uint64_t mask) {
  while (element != HRI_RUNS_END) {
    const hri_run_element *e = &b->pattern->elements[element];
    const bool in = (mask >> e->class & 1) != 0, takes = e->kind == HRI_RUN && in && times < e->most;
    const uint32_t place = b->first[element] + times;
    if (b->seen[place] & 1) return false; /* tried before, with what is behind it */
    b->seen[place] |= 1;
    if (takes) put_next(b, place + (times < times_told_apart(e)));
    if (e->kind == HRI_RUN && (times < e->least || (takes && e->keeps))) return false;
    if (e->kind == HRI_RUN_AHEAD && !in) return false;
    if (e->kind == HRI_RUN_NOT_AHEAD && in) return false;
    element = e->after;
    if (e->kind == HRI_RUN_EITHER) {
      if (follow(b, e->after, 0, mask)) return true; /* as deep as a pattern has groups and alternatives */
      if (e->other == HRI_RUNS_END) return false;
      element = e->other;
    }
    times = 0;
  }
  return true;
}

static uint32_t element_of(const builder *b, uint32_t place) {
  uint32_t low = 0, high = b->pattern->element_count;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    if (b->first[middle] <= place) low = middle;
    else high = middle;
  }
  return low;
}

/* The number of the state with the places in b->next; STATES_MAX when there is no room for it. */
static uint32_t put_state(builder *b) {
  const state made = {(uint32_t)b->listed.count, b->next_count};
  for (uint32_t i = 0; i < b->states.count; i++) {
    const state *known = &b->states.items[i];
    if (known->count == made.count &&
        (made.count == 0 || memcmp(b->listed.items + known->begin, b->next, made.count * sizeof *b->next) == 0))
      return i;
  }
  if (b->states.count == STATES_MAX || b->listed.count + made.count > LISTED_MAX) return STATES_MAX;
  b->refused = !hri_array_reserve(&b->listed, b->listed.count + made.count) || !hri_array_push(&b->states, made);
  if (b->refused) return STATES_MAX;
  if (made.count) memcpy(b->listed.items + made.begin, b->next, made.count * sizeof *b->next);
  b->listed.count += made.count;
  return (uint32_t)b->states.count - 1;
}

static bool put_step(builder *b, uint32_t from, uint64_t mask) {
  const state at = b->states.items[from];
  bool matches = false;
  uint32_t to;
  memset(b->seen, 0, sizeof b->seen);
  b->next_count = 0;
  for (uint32_t i = 0; i < at.count && !matches; i++) {
    const uint32_t place = b->listed.items[at.begin + i], element = element_of(b, place);
    matches = follow(b, element, place - b->first[element], mask);
  }
  to = put_state(b);
  if (to == STATES_MAX) return false;
  b->refused = !hri_array_push(&b->steps, 2 * to | (matches ? MATCH_BEFORE : 0));
  return !b->refused;
}

/* All states from the two on that each table has: nothing to try, and the whole pattern. */
static bool find_states(builder *b) {
  if (!number_places(b) || put_state(b) != DEAD) return false;
  put_next(b, 0);
  if (put_state(b) == STATES_MAX) return false;
  for (uint32_t i = 0; i < b->states.count; i++) {
    for (uint32_t kind = 0; kind < b->kinds.count; kind++)
      if (!put_step(b, i, b->kinds.masks[kind])) return false;
    if (!put_step(b, i, 0)) return false; /* the end */
  }
  return true;
}

/* ---- the table ---- */

static void fill(const builder *b, hri_split_runs *to) {
  to->start = to->kinds;
  for (size_t i = 0; i < b->steps.count; i++)
    to->steps[i] = (b->steps.items[i] >> 1) * to->kinds << 1 | (b->steps.items[i] & MATCH_BEFORE);
  to->skip_ascii = true;
  for (uint32_t byte = 0; byte < 0x80; byte++) {
    to->skip[byte] = to->steps[to->start + to->ascii[byte]] >> 1 == DEAD;
    to->skip_ascii = to->skip_ascii && to->skip[byte];
  }
}

static hr_status build(builder *b, hri_split_runs *room, hri_split_runs **runs, hr_error *error) {
  if (!find_kinds(b->pattern, room, &b->kinds)) return HR_OK;
  if (find_states(b)) {
    const uint64_t bytes = sizeof **runs + b->steps.count * sizeof *(*runs)->steps;
    *runs = hri_alloc(bytes);
    if (!*runs) return hri_fail_memory(error, bytes, "a regex");
    memcpy(*runs, room, sizeof **runs);
    fill(b, *runs);
  }
  return b->refused ? hri_fail_memory(error, sizeof *b, "a regex") : HR_OK;
}

hr_status hri_runs_build(const hri_run_pattern *pattern, hri_split_runs **runs, hr_error *error) {
  builder *b = hri_alloc_zero(1, sizeof *b);
  hri_split_runs *room = hri_alloc_zero(1, sizeof *room);
  hr_status status = b && room ? HR_OK : hri_fail_memory(error, sizeof *b + sizeof *room, "a regex");
  *runs = NULL;
  if (status == HR_OK) {
    b->pattern = pattern;
    status = build(b, room, runs, error);
    hri_array_free(&b->listed);
    hri_array_free(&b->states);
    hri_array_free(&b->steps);
  }
  hri_free(room);
  hri_free(b);
  return status;
}

hr_status hri_runs_compile(const char *pattern, size_t bytes, hri_split_runs **runs, hr_error *error) {
  hri_run_pattern *read = hri_alloc_zero(1, sizeof *read);
  hr_status status = HR_OK;
  *runs = NULL;
  if (!read) return hri_fail_memory(error, sizeof *read, "a regex");
  if (hri_runs_read(pattern, bytes, read)) status = hri_runs_build(read, runs, error);
  hri_free(read);
  return status;
}

/* ---- matching ---- */

/* The kind of a character above U+007F; *at moves behind it. What is cut off at the end counts as unassigned. */
static uint8_t kind_beyond(const hri_split_runs *runs, const uint8_t **at, const uint8_t *end) {
  const uint8_t *p = *at;
  uint32_t point = HRI_UNICODE_END, stretch = 0;
  if (end - p < (*p < 0xE0 ? 2 : *p < 0xF0 ? 3 : 4)) *at = p + 1;
  else point = hri_utf8_next(at);
  while (stretch < runs->border_count && runs->borders[stretch] <= point) stretch++;
  return runs->beyond[stretch][point < HRI_UNICODE_END ? hri_unicode_category(point) : HRI_CATEGORY_CN];
}

/* The end of the match at p, *looked where that was known; NULL when there is none. p < end. In the midst of a run the
 * state stays the same: bytes are looked up side by side there, instead of one after another. */
static inline const uint8_t *match(const hri_split_runs *runs, const uint8_t *p, const uint8_t *end,
                                   const uint8_t **looked) {
  const uint32_t *row = runs->steps + runs->start;
  const uint8_t *found = NULL;
  for (;;) {
    const uint8_t *here = p;
    uint32_t kind, step;
    if (p == end) kind = runs->kinds - 1;
    else if (*p < 0x80) kind = runs->ascii[*p++];
    else kind = kind_beyond(runs, &p, end);
    step = row[kind];
    if (step >> 1 == (uint32_t)(row - runs->steps)) {
      while (p < end && *p < 0x80 && row[runs->ascii[*p]] == step) here = p++;
    }
    if (step & MATCH_BEFORE) found = here;
    if (step >> 1 == DEAD) return *looked = here, found;
    row = runs->steps + (step >> 1);
  }
}

/* Over what nothing begins with. */
static const uint8_t *skip(const hri_split_runs *runs, const uint8_t *p, const uint8_t *end) {
  uint64_t eight;
  while (runs->skip_ascii && end - p >= 8 && (memcpy(&eight, p, 8), (eight & 0x8080808080808080u) == 0)) p += 8;
  while (p < end && runs->skip[*p]) p++;
  return p;
}

/* The first match from `start` on; an empty one at the end of the text when there is none. */
static hr_status find(hri_split *split, uint32_t start, hri_split_piece *found, hr_error *error) {
  const hri_split_runs *runs = split->splitter->runs;
  const uint8_t *base = (const uint8_t *)split->text, *end = base + split->bytes, *p = base + start;
  while ((p = skip(runs, p, end)) < end) {
    const uint8_t *looked, *behind = match(runs, p, end, &looked);
    split->vain += (uint64_t)(looked - (behind ? behind : p));
    if (split->vain > VAIN_MIN + (uint64_t)split->bytes * VAIN_EACH)
      return hri_regex_fail_vain(split, (uint32_t)(p - base), error);
    if (behind) return *found = (hri_split_piece){(uint32_t)(p - base), (uint32_t)(behind - base)}, HR_OK;
    p++;
    while (p < end && (*p & 0xC0) == 0x80) p++;
  }
  *found = (hri_split_piece){split->bytes, split->bytes};
  return HR_OK;
}

hr_status hri_runs_match(hri_split *split, uint32_t start, hri_split_piece *match, bool *found, hr_error *error) {
  *found = false;
  if (start >= split->bytes) return HR_OK;
  HRI_TRY(find(split, start, match, error));
  *found = match->begin < split->bytes;
  return HR_OK;
}

hr_status hri_runs_fill(hri_split *split, hri_split_piece *pieces, uint32_t capacity, uint32_t *count,
                        hr_error *error) {
  uint32_t at = split->search;
  *count = 0;
  while (*count < capacity && at < split->bytes) {
    hri_split_piece found;
    HRI_TRY(find(split, at, &found, error));
    if (found.begin > at) { /* the gap; without room for the match, that is found again */
      pieces[(*count)++] = (hri_split_piece){at, found.begin};
      at = found.begin;
    }
    if (at == split->bytes || *count == capacity) break;
    pieces[(*count)++] = found;
    at = found.end;
  }
  split->search = at;
  return HR_OK;
}
