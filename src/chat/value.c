#include "chat/value.h"

#include <math.h>
#include <string.h>

#include "chat/run.h"
#include "chat/unicode.h"

hri_value hri_cstring(const char *text) { return hri_chars(text, strlen(text)); }

bool hri_value_is(hri_value text, const char *chars) {
  size_t bytes = strlen(chars);
  return text.kind == HRI_STRING && text.count == bytes && memcmp(text.as.chars, chars, bytes) == 0;
}

const char *hri_type_name(hri_value value) {
  static const char *const names[] = {"absent",    "Undefined", "NoneType",    "bool",      "int",
                                      "float",     "str",       "list",        "tuple",     "range",
                                      "dict view", "generator", "dict",        "Namespace", "Macro",
                                      "method",    "function",  "LoopContext", "Cycler",    "Joiner"};
  return names[value.kind];
}

bool hri_as_integer(hri_value value, int64_t *integer) {
  if (value.kind == HRI_BOOL) *integer = value.as.truth;
  else if (value.kind == HRI_INT) *integer = value.as.integer;
  else return false;
  return true;
}

/* ---- Making values ---- */

hr_status hri_take(hri_run *run, uint64_t bytes, void **memory) {
  *memory = hri_pool_alloc(&run->pool, bytes);
  if (*memory) return HR_OK;
  return run->pool.exhausted ? hri_run_limit(run, "memory")
                             : hri_fail_memory(run->error, bytes, "rendering a chat template");
}

hr_status hri_text_value(hri_run *run, const char *chars, size_t count, hri_value *out) {
  void *copy;
  HRI_TRY(hri_run_steps(run, count / 64));
  HRI_TRY(hri_take(run, count, &copy));
  if (count > 0) memcpy(copy, chars, count);
  *out = hri_chars(copy, count);
  return HR_OK;
}

hr_status hri_text_take(hri_run *run, hri_text *text, hri_value *out) {
  hr_status status = hri_run_text(run, text);
  if (status == HR_OK) status = hri_text_value(run, hri_text_get(text), text->length, out);
  hri_text_deinit(text);
  return status;
}

hr_status hri_items_new(hri_run *run, hri_kind kind, uint64_t count, hri_value *out) {
  hri_items *items;
  void *memory;
  uint64_t i;
  HRI_TRY(hri_run_steps(run, count));
  if (count > HRI_LIMIT_MEMORY / sizeof *items->at) return hri_run_limit(run, "memory");
  HRI_TRY(hri_take(run, sizeof *items + count * sizeof *items->at, &memory));
  items = memory;
  *items = (hri_items){.at = (hri_value *)(items + 1), .count = (uint32_t)count};
  for (i = 0; i < count; i++) items->at[i] = hri_none();
  *out = (hri_value){.kind = (uint8_t)kind, .as.items = items};
  return HR_OK;
}

/* The slot of a text that ends in reserve with room for `more` bytes; NULL when there is none. */
static hri_tail *find_tail(hri_run *run, const char *end, uint32_t more) {
  uint32_t i;
  for (i = 0; i < HRI_TAILS; i++)
    if (run->tails[i].end == end && run->tails[i].room >= more) return &run->tails[i];
  return NULL;
}

/* left + right. A long result gets as much again in reserve, and what is added to it later goes there: s = s + x, again
 * and again, is linear. The longer text shares its bytes with the shorter one, which stays what it was. */
hr_status hri_concat(hri_run *run, hri_value left, hri_value right, hri_value *out) {
  uint64_t bytes = (uint64_t)left.count + right.count, reserve = bytes >= HRI_TAIL_FROM ? bytes : 0;
  hri_tail *tail = left.count >= HRI_TAIL_FROM ? find_tail(run, left.as.chars + left.count, right.count) : NULL;
  void *memory;
  HRI_TRY(hri_run_steps(run, 1 + right.count / 64));
  if (bytes > HRI_LIMIT_MEMORY) return hri_run_limit(run, "memory");
  if (tail) {
    if (right.count > 0) memcpy((char *)(uintptr_t)tail->end, right.as.chars, right.count);
    tail->end += right.count;
    tail->room -= right.count;
    *out = hri_chars(left.as.chars, bytes);
    return HR_OK;
  }
  HRI_TRY(hri_run_steps(run, left.count / 64));
  HRI_TRY(hri_take(run, bytes + reserve, &memory));
  if (left.count > 0) memcpy(memory, left.as.chars, left.count);
  if (right.count > 0) memcpy((char *)memory + left.count, right.as.chars, right.count);
  *out = hri_chars(memory, bytes);
  if (reserve) run->tails[run->next_tail++ % HRI_TAILS] = (hri_tail){(char *)memory + bytes, reserve};
  return HR_OK;
}

/* ---- Dicts ---- */

static uint32_t hash(hri_value text) { /* FNV-1a */
  uint32_t value = 2166136261u, i;
  for (i = 0; i < text.count; i++) value = (value ^ (unsigned char)text.as.chars[i]) * 16777619u;
  return value;
}

hr_status hri_dict_new(hri_run *run, uint32_t capacity, hri_dict **out) {
  void *memory;
  if (capacity >= HRI_DICT_HASHED) capacity = HRI_DICT_HASHED - 1; /* more make slots as they come */
  HRI_TRY(hri_take(run, sizeof **out + (uint64_t)capacity * sizeof(hri_pair), &memory));
  *out = memory;
  **out = (hri_dict){.pairs = (hri_pair *)(*out + 1), .capacity = capacity};
  return HR_OK;
}

static hri_value *find(const hri_dict *dict, hri_value key, uint64_t *probes) {
  uint32_t i;
  if (dict->slots && key.kind == HRI_STRING) {
    for (i = hash(key) & (dict->slot_count - 1); dict->slots[i]; i = (i + 1) & (dict->slot_count - 1), ++*probes)
      if (hri_equal(dict->pairs[dict->slots[i] - 1].key, key)) return &dict->pairs[dict->slots[i] - 1].value;
    return NULL;
  }
  for (i = 0; i < dict->count; i++)
    if (hri_equal(dict->pairs[i].key, key)) return &dict->pairs[i].value;
  return NULL;
}

hri_value *hri_dict_find(const hri_dict *dict, hri_value key) {
  uint64_t probes = 0;
  return find(dict, key, &probes);
}

/* What looking for a key may cost: a text is hashed or compared, anything else is compared with each key. */
static uint64_t look_steps(const hri_dict *dict, hri_value key) {
  return key.kind == HRI_STRING ? key.count / 16 : dict->count / 8;
}

hr_status hri_dict_look(hri_run *run, const hri_dict *dict, hri_value key, hri_value **out) {
  uint64_t probes = 0; /* many, where keys were made to have one hash */
  *out = NULL;
  HRI_TRY(hri_run_steps(run, look_steps(dict, key)));
  *out = find(dict, key, &probes);
  return hri_run_steps(run, probes / 2);
}

hri_value *hri_dict_named(const hri_dict *dict, const char *key) { return hri_dict_find(dict, hri_cstring(key)); }

static void index_pair(hri_dict *dict, uint32_t pair) {
  uint32_t i;
  if (dict->pairs[pair].key.kind != HRI_STRING) return;
  for (i = hash(dict->pairs[pair].key) & (dict->slot_count - 1); dict->slots[i];) i = (i + 1) & (dict->slot_count - 1);
  dict->slots[i] = pair + 1;
}

static hr_status dict_grow(hri_run *run, hri_dict *dict) {
  uint32_t capacity = dict->capacity < 8 ? 8 : dict->capacity * 2, i;
  void *memory;
  if (capacity > HRI_LIMIT_MEMORY / sizeof(hri_pair)) return hri_run_limit(run, "memory");
  HRI_TRY(hri_take(run, (uint64_t)capacity * sizeof(hri_pair), &memory));
  if (dict->count > 0) memcpy(memory, dict->pairs, dict->count * sizeof(hri_pair));
  dict->pairs = memory;
  dict->capacity = capacity;
  if (capacity < HRI_DICT_HASHED) return HR_OK;
  for (dict->slot_count = 32; dict->slot_count < capacity * 2;) dict->slot_count *= 2;
  HRI_TRY(hri_take(run, (uint64_t)dict->slot_count * sizeof *dict->slots, &memory));
  dict->slots = memory;
  memset(dict->slots, 0, (size_t)dict->slot_count * sizeof *dict->slots);
  for (i = 0; i < dict->count; i++) index_pair(dict, i);
  return HR_OK;
}

hr_status hri_dict_put(hri_run *run, hri_dict *dict, hri_value key, hri_value value) {
  hri_value *found;
  HRI_TRY(hri_run_steps(run, 1));
  HRI_TRY(hri_dict_look(run, dict, key, &found));
  if (found) {
    *found = value;
    return HR_OK;
  }
  if (dict->count == dict->capacity) HRI_TRY(dict_grow(run, dict));
  dict->pairs[dict->count++] = (hri_pair){key, value};
  if (dict->slots) index_pair(dict, dict->count - 1);
  return HR_OK;
}

/* ---- Python's semantics ---- */

bool hri_truth(hri_value value) {
  switch ((hri_kind)value.kind) {
  case HRI_ABSENT:
  case HRI_UNDEFINED:
  case HRI_NONE: return false;
  case HRI_BOOL: return value.as.truth;
  case HRI_INT: return value.as.integer != 0;
  case HRI_FLOAT: return value.as.real != 0;
  case HRI_STRING: return value.count > 0;
  case HRI_LIST:
  case HRI_TUPLE:
  case HRI_RANGE:
  case HRI_VIEW: return value.as.items->count > 0;
  case HRI_DICT: return value.as.dict->count > 0;
  case HRI_LOOP:
  case HRI_ITERATOR:
  case HRI_NAMESPACE:
  case HRI_MACRO:
  case HRI_METHOD:
  case HRI_FUNCTION:
  case HRI_CYCLER:
  case HRI_JOINER: return true;
  }
  return false;
}

static bool is_number(hri_value value) {
  return value.kind == HRI_BOOL || value.kind == HRI_INT || value.kind == HRI_FLOAT;
}

/* -1, 0, 1, or 2 when one is no number. long double holds every int64 and every double. */
static int order_numbers(hri_value left, hri_value right) {
  int64_t l, r;
  long double a, b;
  if (hri_as_integer(left, &l)) {
    if (hri_as_integer(right, &r)) return l < r ? -1 : l > r;
    a = (long double)l;
  } else {
    a = left.as.real;
  }
  b = hri_as_integer(right, &r) ? (long double)r : (long double)right.as.real;
  if (isnan(a) || isnan(b)) return 2;
  return a < b ? -1 : a > b;
}

/* A comparison under way. Values may share parts, so that looking at all of them can take forever, and be nested
 * deep. */
typedef struct compare {
  uint64_t steps; /* left */
  uint32_t depth;
  bool parts; /* steps are parts of values, whatever their size */
  bool exceeded;
} compare;

static void spend(compare *c, uint64_t steps) {
  if (c->parts) return;
  if (steps > c->steps) c->exceeded = true;
  c->steps -= steps > c->steps ? c->steps : steps;
}

static bool same(compare *c, hri_value left, hri_value right);

static bool same_dicts(compare *c, const hri_dict *left, const hri_dict *right) {
  uint32_t i;
  if (left->count != right->count) return false;
  for (i = 0; i < left->count; i++) {
    const hri_value *other;
    uint64_t probes = 0;
    spend(c, look_steps(right, left->pairs[i].key));
    if (c->exceeded) return false;
    other = find(right, left->pairs[i].key, &probes);
    spend(c, probes / 2);
    if (!other || !same(c, left->pairs[i].value, *other)) return false;
  }
  return true;
}

static bool same_items(compare *c, const hri_items *left, const hri_items *right) {
  uint32_t i;
  if (left->count != right->count) return false;
  for (i = 0; i < left->count; i++)
    if (!same(c, left->at[i], right->at[i])) return false;
  return true;
}

static bool same_containers(compare *c, hri_value left, hri_value right) {
  bool views = left.kind == HRI_VIEW, result;
  if (left.as.other == right.as.other) return true;
  if (views && (left.flag != right.flag || left.flag == HRI_VIEW_VALUES)) return false;
  if (++c->depth > HRI_LIMIT_DEPTH) c->exceeded = true;
  result = !c->exceeded && (left.kind == HRI_DICT ? same_dicts(c, left.as.dict, right.as.dict)
                                                  : same_items(c, left.as.items, right.as.items));
  c->depth--;
  return result;
}

static bool same(compare *c, hri_value left, hri_value right) {
  if (c->steps == 0) c->exceeded = true;
  if (c->exceeded) return false;
  c->steps--;
  if (is_number(left) && is_number(right)) return order_numbers(left, right) == 0;
  if (left.kind != right.kind) return false;
  switch ((hri_kind)left.kind) {
  case HRI_ABSENT:
  case HRI_UNDEFINED:
  case HRI_NONE: return true;
  case HRI_STRING:
    if (left.count != right.count || left.count == 0) return left.count == right.count;
    spend(c, left.count / 64);
    return !c->exceeded && memcmp(left.as.chars, right.as.chars, left.count) == 0;
  case HRI_LIST:
  case HRI_TUPLE:
  case HRI_RANGE:
  case HRI_VIEW:
  case HRI_DICT: return same_containers(c, left, right);
  default: return left.as.other == right.as.other;
  }
}

bool hri_equal(hri_value left, hri_value right) {
  compare c = {.steps = HRI_LIMIT_DEPTH, .parts = true};
  return same(&c, left, right);
}

hr_status hri_equals(hri_run *run, hri_value left, hri_value right, bool *out) {
  compare c = {.steps = HRI_LIMIT_STEPS - run->steps};
  uint64_t before = c.steps;
  *out = same(&c, left, right);
  if (c.exceeded) return hri_run_limit(run, c.steps == 0 ? "steps" : "depth");
  return hri_run_steps(run, before - c.steps);
}

static bool hashable(hri_value value, uint32_t *steps) {
  uint32_t i;
  if (*steps == 0) return false;
  --*steps;
  if (value.kind == HRI_LIST || value.kind == HRI_DICT || (value.kind == HRI_VIEW && value.flag != HRI_VIEW_VALUES))
    return false;
  if (value.kind == HRI_TUPLE)
    for (i = 0; i < value.as.items->count; i++)
      if (!hashable(value.as.items->at[i], steps)) return false;
  return true;
}

bool hri_hashable(hri_value value) {
  uint32_t steps = HRI_LIMIT_DEPTH;
  return hashable(value, &steps);
}

static int order_texts(hri_value left, hri_value right) { /* the order of UTF-8 is that of code points */
  uint32_t shared = left.count < right.count ? left.count : right.count;
  int order = shared ? memcmp(left.as.chars, right.as.chars, shared) : 0;
  if (order != 0) return order < 0 ? -1 : 1;
  return left.count < right.count ? -1 : left.count > right.count;
}

static hr_status order_items(hri_run *run, hri_value left, hri_value right, const char *operator, int *out) {
  const hri_items *l = left.as.items, *r = right.as.items;
  uint32_t i;
  hr_status status;
  HRI_TRY(hri_run_steps(run, l->count));
  for (i = 0; i < l->count && i < r->count; i++) {
    bool equal;
    HRI_TRY(hri_equals(run, l->at[i], r->at[i], &equal));
    if (equal) continue;
    HRI_TRY(hri_run_deeper(run));
    status = hri_order(run, l->at[i], r->at[i], operator, out);
    run->depth--;
    return status;
  }
  *out = l->count < r->count ? -1 : l->count > r->count;
  return HR_OK;
}

hr_status hri_order(hri_run *run, hri_value left, hri_value right, const char *operator, int *out) {
  HRI_TRY(hri_run_steps(run, 1));
  if (left.kind == HRI_UNDEFINED) return hri_fail_undefined(run, left);
  if (right.kind == HRI_UNDEFINED) return hri_fail_undefined(run, right);
  if (is_number(left) && is_number(right)) {
    *out = order_numbers(left, right);
    return HR_OK;
  }
  if (left.kind == HRI_STRING && right.kind == HRI_STRING) {
    HRI_TRY(hri_run_steps(run, (left.count < right.count ? left.count : right.count) / 64));
    *out = order_texts(left, right);
    return HR_OK;
  }
  if (left.kind == right.kind && (left.kind == HRI_LIST || left.kind == HRI_TUPLE))
    return order_items(run, left, right, operator, out);
  return hri_run_fail(run, "'%s' is not supported between '%s' and '%s'", operator, hri_type_name(left),
                      hri_type_name(right));
}

static hr_status contains_item(hri_run *run, hri_items *items, uint32_t from, hri_value item, uint32_t *at) {
  HRI_TRY(hri_run_steps(run, items->count - from));
  for (*at = from; *at < items->count; ++*at) {
    bool equal;
    HRI_TRY(hri_equals(run, items->at[*at], item, &equal));
    if (equal) break;
  }
  return HR_OK;
}

hr_status hri_contains(hri_run *run, hri_value container, hri_value item, bool *out) {
  hri_value *found;
  uint32_t at;
  *out = false;
  switch ((hri_kind)container.kind) {
  case HRI_STRING:
    if (item.kind != HRI_STRING)
      return hri_run_fail(run, "'in <string>' requires string as left operand, not %s", hri_type_name(item));
    HRI_TRY(hri_run_steps(run, container.count / 64));
    *out = item.count == 0 || memmem(container.as.chars, container.count, item.as.chars, item.count) != NULL;
    return HR_OK;
  case HRI_DICT:
    if (!hri_hashable(item)) return hri_run_fail(run, "unhashable type: '%s'", hri_type_name(item));
    HRI_TRY(hri_dict_look(run, container.as.dict, item, &found));
    *out = found != NULL;
    return HR_OK;
  case HRI_ITERATOR: /* what was looked at is used up */
    HRI_TRY(contains_item(run, container.as.items, container.as.items->next, item, &at));
    *out = at < container.as.items->count;
    container.as.items->next = *out ? at + 1 : at;
    return HR_OK;
  case HRI_LIST:
  case HRI_TUPLE:
  case HRI_RANGE:
  case HRI_VIEW:
    HRI_TRY(contains_item(run, container.as.items, 0, item, &at));
    *out = at < container.as.items->count;
    return HR_OK;
  case HRI_UNDEFINED: return HR_OK;
  default: return hri_run_fail(run, "argument of type '%s' is not iterable", hri_type_name(container));
  }
}

hr_status hri_length(hri_run *run, hri_value value, int64_t *out) {
  switch ((hri_kind)value.kind) {
  case HRI_UNDEFINED: *out = 0; return HR_OK;
  case HRI_STRING:
    HRI_TRY(hri_run_steps(run, value.count / 64));
    *out = (int64_t)hri_count_codes(value.as.chars, value.count);
    return HR_OK;
  case HRI_LIST:
  case HRI_TUPLE:
  case HRI_RANGE:
  case HRI_VIEW: *out = value.as.items->count; return HR_OK;
  case HRI_DICT: *out = value.as.dict->count; return HR_OK;
  case HRI_LOOP:
    HRI_TRY(hri_loop_fill(run, value.as.other, UINT32_MAX));
    *out = ((hri_loop *)value.as.other)->count;
    return HR_OK;
  default: return hri_run_fail(run, "object of type '%s' has no len()", hri_type_name(value));
  }
}

bool hri_iterable(hri_value value) {
  return value.kind == HRI_UNDEFINED || value.kind == HRI_STRING || hri_is_items(value) || value.kind == HRI_DICT ||
         value.kind == HRI_LOOP;
}

static hr_status iterate_text(hri_run *run, hri_value text, hri_value **at, uint32_t *count) {
  hri_value list;
  uint32_t i = 0, item = 0;
  size_t bytes;
  HRI_TRY(hri_items_new(run, HRI_LIST, hri_count_codes(text.as.chars, text.count), &list));
  for (; i < text.count; i += (uint32_t)bytes) {
    (void)hri_decode(text.as.chars + i, &bytes);
    list.as.items->at[item++] = hri_chars(text.as.chars + i, bytes);
  }
  *at = list.as.items->at;
  *count = list.as.items->count;
  return HR_OK;
}

hr_status hri_iterate(hri_run *run, hri_value value, hri_value **at, uint32_t *count) {
  hri_value list;
  uint32_t i;
  *at = NULL;
  *count = 0;
  if (value.kind == HRI_UNDEFINED) return HR_OK;
  if (value.kind == HRI_STRING) return iterate_text(run, value, at, count);
  if (value.kind == HRI_DICT) {
    HRI_TRY(hri_items_new(run, HRI_LIST, value.as.dict->count, &list));
    for (i = 0; i < value.as.dict->count; i++) list.as.items->at[i] = value.as.dict->pairs[i].key;
    value = list;
  }
  if (value.kind == HRI_LOOP) return hri_run_unsupported(run, "going through 'loop' itself");
  if (!hri_is_items(value)) return hri_run_fail(run, "'%s' object is not iterable", hri_type_name(value));
  *at = value.as.items->at;
  *count = value.as.items->count;
  if (value.kind == HRI_ITERATOR) {
    *at += value.as.items->next;
    *count -= value.as.items->next;
    value.as.items->next = value.as.items->count;
  }
  return hri_run_steps(run, *count);
}
