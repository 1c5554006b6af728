/* The filters of Jinja, with the tojson of transformers.
 *
 * What Python gives as a generator is an HRI_ITERATOR here: it can be gone through once, has no length and is always
 * true. Its elements are made at once rather than when they are asked for. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/numbers.h"
#include "chat/run.h"
#include "chat/unicode.h"

static bool given(hri_value value) { return value.kind != HRI_ABSENT && value.kind != HRI_NONE; }
static bool asked(hri_value value) { return value.kind != HRI_ABSENT && hri_truth(value); }

/* soft_str: a text stays what it is, marked safe or not. */
static hr_status as_text(hri_run *run, hri_value value, hri_value *out) { return hri_str(run, value, out); }

static hr_status need_integer(hri_run *run, hri_value value, int64_t fallback, int64_t *out) {
  *out = fallback;
  if (value.kind == HRI_ABSENT || hri_as_integer(value, out)) return HR_OK;
  return hri_run_fail(run, "'%s' object cannot be interpreted as an integer", hri_type_name(value));
}

static hri_value lacking(const char *message) {
  return (
      hri_value){.kind = HRI_UNDEFINED, .flag = HRI_LACK_TEXT, .count = (uint32_t)strlen(message), .as.chars = message};
}

/* ---- Attributes of elements ---- */

/* One part of "a.b.0": a number is an index. */
static hr_status element_part(hri_run *run, hri_value item, const char *part, size_t bytes, hri_value *out) {
  size_t i = 0;
  int64_t index;
  HRI_TRY(hri_run_steps(run, 1 + bytes / 16));
  while (i < bytes && part[i] >= '0' && part[i] <= '9') i++;
  if (bytes == 0 || i < bytes) return hri_element(run, item, hri_chars(part, bytes), out);
  if (hri_parse_integer(part, bytes, 10, &index) != HRI_PARSED)
    return hri_run_unsupported(run, "an integer beyond 64 bits");
  return hri_element(run, item, hri_int(index), out);
}

/* What `attribute` (absent, None, a text with dots, or an index) selects of an element; `fallback` in place of what is
 * undefined, when it is given. */
static hr_status select_attribute(hri_run *run, hri_value item, hri_value attribute, hri_value fallback,
                                  hri_value *out) {
  const char *at, *end;
  *out = item;
  if (!given(attribute)) return HR_OK;
  if (attribute.kind != HRI_STRING) {
    HRI_TRY(hri_element(run, item, attribute, out));
    if (given(fallback) && out->kind == HRI_UNDEFINED) *out = fallback;
    return HR_OK;
  }
  at = attribute.as.chars;
  end = at + attribute.count;
  for (;;) {
    const char *dot = at < end ? memchr(at, '.', (size_t)(end - at)) : NULL, *stop = dot ? dot : end;
    HRI_TRY(element_part(run, *out, at, (size_t)(stop - at), out));
    if (given(fallback) && out->kind == HRI_UNDEFINED) *out = fallback;
    if (!dot) return HR_OK;
    at = dot + 1;
  }
}

static hr_status fold_case(hri_run *run, hri_value value, bool sensitive, hri_value *out) {
  *out = value;
  return sensitive || value.kind != HRI_STRING ? HR_OK : hri_lower(run, value, out);
}

static hr_status sort_key(hri_run *run, hri_value item, hri_value attribute, hri_value fallback, bool sensitive,
                          hri_value *out) {
  hri_value value;
  HRI_TRY(select_attribute(run, item, attribute, fallback, &value));
  return fold_case(run, value, sensitive, out);
}

/* The key of the filter sort: a list, one for each of "a,b.c". */
static hr_status sort_keys(hri_run *run, hri_value item, hri_value attribute, bool sensitive, hri_value *out) {
  const char *at, *end;
  hri_value keys;
  uint32_t count = 1, i;
  if (attribute.kind != HRI_STRING) return sort_key(run, item, attribute, hri_none(), sensitive, out);
  for (i = 0; i < attribute.count; i++) count += attribute.as.chars[i] == ',';
  HRI_TRY(hri_items_new(run, HRI_LIST, count, &keys));
  at = attribute.as.chars;
  end = at + attribute.count;
  for (i = 0; i < count; i++) {
    const char *comma = at < end ? memchr(at, ',', (size_t)(end - at)) : NULL, *stop = comma ? comma : end;
    HRI_TRY(sort_key(run, item, hri_chars(at, (size_t)(stop - at)), hri_none(), sensitive, &keys.as.items->at[i]));
    at = stop + 1;
  }
  *out = keys;
  return HR_OK;
}

typedef hri_pair keyed;

/* Stable, by merging; `reverse` keeps the order of equal elements too. */
static hr_status merge_sort(hri_run *run, keyed *items, keyed *space, uint32_t count, bool reverse) {
  uint32_t middle = count / 2, left = 0, right = middle, i;
  if (count < 2) return HR_OK;
  HRI_TRY(merge_sort(run, items, space, middle, reverse));
  HRI_TRY(merge_sort(run, items + middle, space, count - middle, reverse));
  for (i = 0; i < count; i++) {
    int order = 0;
    bool take_right = left == middle;
    if (left < middle && right < count) {
      HRI_TRY(hri_order(run, items[right].key, items[left].key, "<", &order));
      take_right = reverse ? order == 1 : order == -1;
    }
    space[i] = take_right ? items[right++] : items[left++];
  }
  memcpy(items, space, count * sizeof *items);
  return HR_OK;
}

static hr_status keyed_new(hri_run *run, uint32_t count, keyed **out) {
  void *memory;
  HRI_TRY(hri_take(run, ((uint64_t)count + 1) * sizeof **out, &memory));
  *out = memory;
  return HR_OK;
}

hr_status hri_sort_pairs(hri_run *run, hri_pair *items, uint32_t count, bool reverse) {
  keyed *space;
  HRI_TRY(keyed_new(run, count, &space));
  return merge_sort(run, items, space, count, reverse);
}

static hr_status keyed_values(hri_run *run, const keyed *items, uint32_t count, hri_kind kind, hri_value *out) {
  uint32_t i;
  HRI_TRY(hri_items_new(run, kind, count, out));
  for (i = 0; i < count; i++) out->as.items->at[i] = items[i].value;
  return HR_OK;
}

static hr_status filter_sort(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  hri_value *at;
  keyed *items;
  uint32_t count, i;
  HRI_TRY(hri_iterate(run, self, &at, &count));
  HRI_TRY(keyed_new(run, count, &items));
  for (i = 0; i < count; i++) {
    items[i].value = at[i];
    HRI_TRY(sort_keys(run, at[i], values[2], asked(values[1]), &items[i].key));
  }
  HRI_TRY(hri_sort_pairs(run, items, count, asked(values[0])));
  return keyed_values(run, items, count, HRI_LIST, out);
}

static hr_status filter_dictsort(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  bool by_value = values[1].kind != HRI_ABSENT && hri_value_is(values[1], "value");
  hri_value view;
  keyed *items;
  uint32_t count, i;
  if (values[1].kind != HRI_ABSENT && !by_value && !hri_value_is(values[1], "key"))
    return hri_run_fail(run, "you can only sort by either \"key\" or \"value\"");
  if (self.kind == HRI_UNDEFINED) return hri_fail_undefined(run, self);
  if (self.kind != HRI_DICT) return hri_run_fail(run, "'%s' object has no attribute 'items'", hri_type_name(self));
  HRI_TRY(hri_dict_view(run, self.as.dict, HRI_VIEW_ITEMS, &view));
  count = view.as.items->count;
  HRI_TRY(keyed_new(run, count, &items));
  for (i = 0; i < count; i++) {
    items[i].value = view.as.items->at[i];
    HRI_TRY(fold_case(run, items[i].value.as.items->at[by_value], asked(values[0]), &items[i].key));
  }
  HRI_TRY(hri_sort_pairs(run, items, count, asked(values[2])));
  return keyed_values(run, items, count, HRI_LIST, out);
}

/* Sorted by key, then one tuple (key, elements) for each run of equal keys; shown is the key as it was written. */
static hr_status filter_groupby(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  bool sensitive = asked(values[2]);
  hri_value *at, group;
  keyed *items, *groups;
  uint32_t count, group_count = 0, i, j;
  HRI_TRY(hri_iterate(run, self, &at, &count));
  HRI_TRY(keyed_new(run, count, &items));
  for (i = 0; i < count; i++) {
    items[i].value = at[i];
    HRI_TRY(sort_key(run, at[i], values[0], values[1], sensitive, &items[i].key));
  }
  HRI_TRY(hri_sort_pairs(run, items, count, false));
  HRI_TRY(keyed_new(run, count, &groups));
  for (i = 0; i < count; i = j) {
    bool equal = true;
    for (j = i + 1; j < count; j++) {
      HRI_TRY(hri_equals(run, items[i].key, items[j].key, &equal));
      if (!equal) break;
    }
    HRI_TRY(hri_items_new(run, HRI_TUPLE, 2, &group));
    group.flag = 1;
    group.as.items->at[0] = items[i].key;
    if (!sensitive) HRI_TRY(select_attribute(run, items[i].value, values[0], values[1], &group.as.items->at[0]));
    HRI_TRY(keyed_values(run, items + i, j - i, HRI_LIST, &group.as.items->at[1]));
    groups[group_count++].value = group;
  }
  return keyed_values(run, groups, group_count, HRI_LIST, out);
}

static hr_status filter_unique(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  hri_value *at, *found, key;
  hri_dict *seen;
  keyed *kept;
  uint32_t count, kept_count = 0, i;
  HRI_TRY(hri_iterate(run, self, &at, &count));
  HRI_TRY(hri_dict_new(run, 0, &seen));
  HRI_TRY(keyed_new(run, count, &kept));
  for (i = 0; i < count; i++) {
    HRI_TRY(sort_key(run, at[i], values[1], hri_none(), asked(values[0]), &key));
    if (!hri_hashable(key)) return hri_run_fail(run, "unhashable type: '%s'", hri_type_name(key));
    HRI_TRY(hri_dict_look(run, seen, key, &found));
    if (found) continue;
    HRI_TRY(hri_dict_put(run, seen, key, hri_none()));
    kept[kept_count++].value = at[i];
  }
  return keyed_values(run, kept, kept_count, HRI_ITERATOR, out);
}

static hr_status extreme(hri_run *run, hri_value self, const hri_value *values, int wanted, hri_value *out) {
  hri_value *at, best, key;
  uint32_t count, i;
  int order;
  HRI_TRY(hri_iterate(run, self, &at, &count));
  *out = lacking("no aggregated item, sequence was empty");
  for (i = 0; i < count; i++) {
    HRI_TRY(sort_key(run, at[i], values[1], hri_none(), asked(values[0]), &key));
    if (i > 0) HRI_TRY(hri_order(run, key, best, wanted < 0 ? "<" : ">", &order));
    if (i > 0 && order != wanted) continue;
    best = key;
    *out = at[i];
  }
  return HR_OK;
}

static hr_status filter_min(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  return extreme(run, self, values, -1, out);
}
static hr_status filter_max(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  return extreme(run, self, values, 1, out);
}

static hr_status filter_sum(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  hri_value *at, item;
  uint32_t count, i;
  HRI_TRY(hri_iterate(run, self, &at, &count));
  *out = values[1].kind == HRI_ABSENT ? hri_int(0) : values[1];
  if (out->kind == HRI_STRING) return hri_run_fail(run, "sum() can't sum strings [use ''.join(seq) instead]");
  for (i = 0; i < count; i++) {
    HRI_TRY(select_attribute(run, at[i], values[0], hri_none(), &item));
    HRI_TRY(hri_binary(run, HRI_ADD, *out, item, out));
  }
  return HR_OK;
}

/* ---- map, select and reject ---- */

static hr_status filter_map(hri_run *run, hri_value self, const hri_arguments *arguments, hri_value *out) {
  hri_value *at, attribute = {0}, fallback = {0};
  hri_arguments rest = *arguments;
  uint32_t count = 0, i;
  if (rest.count > 0) rest.at++, rest.count--;
  for (i = 0; i < arguments->named_count && arguments->count == 0; i++) {
    hri_value name = arguments->named[i].name;
    if (hri_value_is(name, "attribute")) attribute = arguments->named[i].value;
    else if (hri_value_is(name, "default")) fallback = arguments->named[i].value;
    else return hri_run_fail(run, "map got an unexpected keyword argument '%.*s'", (int)name.count, name.as.chars);
  }
  if (hri_truth(self)) HRI_TRY(hri_iterate(run, self, &at, &count));
  if (count > 0 && arguments->count == 0 && attribute.kind == HRI_ABSENT)
    return hri_run_fail(run, "map requires a filter argument");
  HRI_TRY(hri_items_new(run, HRI_ITERATOR, count, out));
  for (i = 0; i < count; i++) {
    hri_value *made = &out->as.items->at[i];
    HRI_TRY(arguments->count ? hri_filter_apply(run, arguments->at[0], at[i], &rest, made)
                             : select_attribute(run, at[i], attribute, fallback, made));
  }
  return HR_OK;
}

static hr_status choose(hri_run *run, hri_value self, const hri_arguments *arguments, bool by_attribute, bool wanted,
                        hri_value *out) {
  uint32_t used = by_attribute, count = 0, kept = 0, i;
  hri_value *at, subject;
  hri_arguments rest;
  bool passes;
  if (hri_truth(self)) HRI_TRY(hri_iterate(run, self, &at, &count));
  HRI_TRY(hri_items_new(run, HRI_ITERATOR, count, out));
  if (count > 0 && arguments->count < used) return hri_run_fail(run, "missing parameter for attribute name");
  rest = *arguments;
  if (rest.count > used) rest.at += used + 1, rest.count -= used + 1;
  for (i = 0; i < count; i++) {
    subject = at[i];
    if (by_attribute) HRI_TRY(select_attribute(run, at[i], arguments->at[0], hri_none(), &subject));
    if (arguments->count > used) HRI_TRY(hri_test_apply(run, arguments->at[used], subject, &rest, &passes));
    else passes = hri_truth(subject);
    if (passes == wanted) out->as.items->at[kept++] = at[i];
  }
  out->as.items->count = kept;
  return HR_OK;
}

static hr_status filter_select(hri_run *run, hri_value self, const hri_arguments *arguments, hri_value *out) {
  return choose(run, self, arguments, false, true, out);
}
static hr_status filter_reject(hri_run *run, hri_value self, const hri_arguments *arguments, hri_value *out) {
  return choose(run, self, arguments, false, false, out);
}
static hr_status filter_selectattr(hri_run *run, hri_value self, const hri_arguments *arguments, hri_value *out) {
  return choose(run, self, arguments, true, true, out);
}
static hr_status filter_rejectattr(hri_run *run, hri_value self, const hri_arguments *arguments, hri_value *out) {
  return choose(run, self, arguments, true, false, out);
}

/* ---- Sequences ---- */

static hr_status filter_length(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  int64_t length;
  (void)values;
  HRI_TRY(hri_length(run, self, &length));
  *out = hri_int(length);
  return HR_OK;
}

static hr_status filter_first(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  hri_value *at;
  uint32_t count;
  (void)values;
  if (self.kind == HRI_ITERATOR) { /* takes one element only */
    hri_items *items = self.as.items;
    *out = items->next < items->count ? items->at[items->next++] : lacking("no first item, sequence was empty");
    return HR_OK;
  }
  if (self.kind == HRI_STRING) {
    bool found;
    HRI_TRY(hri_index(run, self, 0, &found, out));
    if (!found) *out = lacking("no first item, sequence was empty");
    out->flag = found ? 0 : out->flag;
    return HR_OK;
  }
  HRI_TRY(hri_iterate(run, self, &at, &count));
  *out = count ? at[0] : lacking("no first item, sequence was empty");
  return HR_OK;
}

static hr_status filter_last(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  hri_value *at;
  uint32_t count;
  (void)values;
  if (self.kind == HRI_ITERATOR || self.kind == HRI_LOOP)
    return hri_run_fail(run, "'%s' object is not reversible", hri_type_name(self));
  HRI_TRY(hri_iterate(run, self, &at, &count));
  *out = count ? at[count - 1] : lacking("no last item, sequence was empty");
  return HR_OK;
}

static hr_status filter_list(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  hri_value *at;
  uint32_t count;
  (void)values;
  HRI_TRY(hri_iterate(run, self, &at, &count));
  HRI_TRY(hri_items_new(run, HRI_LIST, count, out));
  if (count > 0) memcpy(out->as.items->at, at, count * sizeof *at);
  return HR_OK;
}

static hr_status filter_items(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  (void)values;
  if (self.kind == HRI_UNDEFINED) return hri_items_new(run, HRI_ITERATOR, 0, out);
  if (self.kind != HRI_DICT) return hri_run_fail(run, "can only get item pairs from a mapping");
  HRI_TRY(hri_dict_view(run, self.as.dict, HRI_VIEW_ITEMS, out));
  out->kind = HRI_ITERATOR;
  out->flag = 0;
  return HR_OK;
}

static hr_status filter_reverse(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  hri_value *at;
  uint32_t count, i;
  (void)values;
  if (self.kind == HRI_STRING) return hri_slice(run, self, hri_none(), hri_none(), hri_int(-1), out);
  if (!hri_iterable(self)) return hri_run_fail(run, "argument must be iterable");
  HRI_TRY(hri_iterate(run, self, &at, &count));
  HRI_TRY(hri_items_new(run, self.kind == HRI_ITERATOR ? HRI_LIST : HRI_ITERATOR, count, out));
  for (i = 0; i < count; i++) out->as.items->at[i] = at[count - 1 - i];
  return HR_OK;
}

/* Elements [from, to), filled up to `room` with `fill`. */
static hr_status part_list(hri_run *run, const hri_value *at, uint32_t from, uint32_t to, uint64_t room, hri_value fill,
                           hri_value *out) {
  uint64_t i;
  HRI_TRY(hri_items_new(run, HRI_LIST, room, out));
  for (i = 0; i < room; i++) out->as.items->at[i] = from + i < to ? at[from + i] : fill;
  return HR_OK;
}

static hr_status filter_batch(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  hri_value *at;
  int64_t size;
  uint32_t count, each, i;
  HRI_TRY(need_integer(run, values[0], 0, &size));
  HRI_TRY(hri_iterate(run, self, &at, &count));
  each = size <= 0 || size > count ? count : (uint32_t)size; /* Python never closes a batch of 0 */
  HRI_TRY(hri_items_new(run, HRI_ITERATOR, each ? (count + each - 1) / each : 0, out));
  for (i = 0; i < out->as.items->count; i++) {
    uint32_t from = i * each, to = from + each < count ? from + each : count;
    HRI_TRY(part_list(run, at, from, to, given(values[1]) && size > to - from ? (uint64_t)size : to - from, values[1],
                      &out->as.items->at[i]));
  }
  if (size == 0 && count > 0) return hri_run_unsupported(run, "a batch of 0");
  return HR_OK;
}

static hr_status filter_slice(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  hri_value *at;
  int64_t slices, i;
  uint32_t count, from = 0;
  HRI_TRY(need_integer(run, values[0], 0, &slices));
  HRI_TRY(hri_iterate(run, self, &at, &count));
  if (slices == 0) return hri_run_fail(run, "integer division or modulo by zero");
  if (slices > HRI_LIMIT_RANGE) return hri_run_limit(run, "memory");
  HRI_TRY(hri_items_new(run, HRI_ITERATOR, slices < 0 ? 0 : (uint64_t)slices, out));
  for (i = 0; i < slices; i++) {
    uint32_t size = count / (uint32_t)slices + (i < count % slices);
    bool fill = given(values[1]) && i >= count % slices;
    HRI_TRY(part_list(run, at, from, from + size, (uint64_t)size + fill, values[1], &out->as.items->at[i]));
    from += size;
  }
  return HR_OK;
}

static hr_status filter_join(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  hri_value *at, *parts, separator = hri_chars("", 0), list;
  uint32_t count, i;
  if (values[0].kind != HRI_ABSENT) HRI_TRY(hri_str(run, values[0], &separator));
  HRI_TRY(hri_iterate(run, self, &at, &count));
  parts = at;
  if (given(values[1])) {
    HRI_TRY(hri_items_new(run, HRI_LIST, count, &list));
    parts = list.as.items->at;
    for (i = 0; i < count; i++) HRI_TRY(select_attribute(run, at[i], values[1], hri_none(), &parts[i]));
  }
  return hri_join(run, separator, parts, count, out);
}

/* ---- Texts ---- */

static hr_status filter_string(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  (void)values;
  return as_text(run, self, out);
}

static hr_status filter_safe(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  (void)values;
  HRI_TRY(as_text(run, self, out));
  out->flag = 1;
  return HR_OK;
}

hr_status hri_escape(hri_run *run, hri_value self, hri_value *out) {
  hri_text text = {0};
  hri_value plain;
  uint32_t i;
  HRI_TRY(as_text(run, self, &plain));
  if (!plain.flag) {
    for (i = 0; i < plain.count; i++) {
      char c = plain.as.chars[i];
      const char *entity = c == '&'    ? "&amp;"
                           : c == '<'  ? "&lt;"
                           : c == '>'  ? "&gt;"
                           : c == '\'' ? "&#39;"
                           : c == '"'  ? "&#34;"
                                       : NULL;
      hri_text_add_bytes(&text, entity ? entity : &c, entity ? strlen(entity) : 1);
    }
    HRI_TRY(hri_run_steps(run, plain.count / 8));
    HRI_TRY(hri_text_take(run, &text, &plain));
  }
  *out = plain;
  out->flag = 1;
  return HR_OK;
}

static hr_status filter_escape(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  (void)values;
  return hri_escape(run, self, out);
}

static hr_status filter_forceescape(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  (void)values;
  HRI_TRY(as_text(run, self, &self));
  self.flag = 0;
  return hri_escape(run, self, out);
}

static hr_status filter_trim(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  hri_value text;
  HRI_TRY(as_text(run, self, &text));
  return hri_strip(run, text, values[0], true, true, out);
}

static hr_status filter_upper(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  (void)values;
  HRI_TRY(as_text(run, self, &self));
  return hri_upper(run, self, out);
}

static hr_status filter_lower(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  (void)values;
  HRI_TRY(as_text(run, self, &self));
  return hri_lower(run, self, out);
}

static hr_status filter_capitalize(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  (void)values;
  HRI_TRY(as_text(run, self, &self));
  return hri_capitalize(run, self, out);
}

static bool word_border(uint32_t code) {
  return hri_is_space(code) || code == '-' || code == '(' || code == '{' || code == '[' || code == '<';
}

/* Words begin behind white space and some marks only, unlike those of str.title. */
static hr_status filter_title(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  hri_text text = {0};
  size_t i, word, bytes;
  (void)values;
  HRI_TRY(as_text(run, self, &self));
  HRI_TRY(hri_run_steps(run, 1 + self.count / 4));
  for (i = 0; i < self.count;) {
    uint32_t code = hri_decode(self.as.chars + i, &bytes);
    hri_add_cased(&text, code, HRI_UPPER);
    i += bytes;
    if (word_border(code)) continue;
    for (word = i; i < self.count && !word_border(hri_decode(self.as.chars + i, &bytes));) i += bytes;
    hri_add_lower(&text, self.as.chars + word, i - word, 0, i - word);
  }
  return hri_text_take(run, &text, out);
}

static hr_status filter_replace(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  hri_value text, old, new_text;
  int64_t limit = -1;
  HRI_TRY(hri_str(run, self, &text));
  HRI_TRY(hri_str(run, values[0], &old));
  HRI_TRY(hri_str(run, values[1], &new_text));
  if (given(values[2])) HRI_TRY(need_integer(run, values[2], -1, &limit));
  HRI_TRY(hri_replace(run, text, old, new_text, limit, out));
  out->flag = 0;
  return HR_OK;
}

static hr_status filter_center(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  HRI_TRY(as_text(run, self, &self));
  return hri_center(run, self, values[0].kind == HRI_ABSENT ? hri_int(80) : values[0], (hri_value){0}, out);
}

static hr_status add_indented(hri_run *run, hri_text *text, const hri_items *lines, hri_value blanks, bool first,
                              bool blank) {
  uint32_t i;
  if (first) hri_text_add_bytes(text, blanks.as.chars, blanks.count);
  for (i = 0; i < lines->count; i++) {
    hri_value line = lines->at[i];
    if (i > 0) hri_text_add_bytes(text, "\n", 1);
    if (i > 0 && (blank || line.count > 0)) hri_text_add_bytes(text, blanks.as.chars, blanks.count);
    hri_text_add_bytes(text, line.as.chars, line.count);
    HRI_TRY(hri_run_text(run, text));
  }
  return HR_OK;
}

static hr_status filter_indent(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  hri_value blanks, lines, ended;
  hri_text text = {0};
  hr_status status;
  int64_t width = 4;
  if (self.kind == HRI_UNDEFINED) return hri_fail_undefined(run, self);
  if (self.kind != HRI_STRING) return hri_run_fail(run, "cannot indent a %s", hri_type_name(self));
  blanks = values[0];
  if (blanks.kind != HRI_STRING) {
    HRI_TRY(need_integer(run, values[0], 4, &width));
    HRI_TRY(hri_binary(run, HRI_MULTIPLY, hri_chars(" ", 1), hri_int(width), &blanks));
  }
  HRI_TRY(hri_concat(run, self, hri_chars("\n", 1), &ended)); /* so that "" has one line */
  HRI_TRY(hri_split_lines(run, ended, false, &lines));
  status = add_indented(run, &text, lines.as.items, blanks, asked(values[1]), asked(values[2]));
  if (status == HR_OK) status = hri_text_take(run, &text, out);
  hri_text_deinit(&text);
  return status;
}

static hr_status filter_truncate(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  hri_value end = values[2].kind == HRI_ABSENT ? hri_chars("...", 3) : values[2], cut;
  int64_t wanted, leeway = 5, length, end_length;
  uint32_t i;
  if (end.kind != HRI_STRING) return hri_run_fail(run, "truncate: the end must be str, not %s", hri_type_name(end));
  HRI_TRY(need_integer(run, values[0], 255, &wanted));
  if (given(values[3])) HRI_TRY(need_integer(run, values[3], 5, &leeway));
  HRI_TRY(hri_length(run, self, &length));
  HRI_TRY(hri_length(run, end, &end_length));
  if (wanted < end_length || leeway < 0)
    return hri_run_fail(run, "truncate: a length below that of the end, or a leeway below 0");
  *out = self;
  if (leeway > INT64_MAX - wanted || length <= wanted + leeway) return HR_OK; /* a short list passes, too */
  if (self.kind != HRI_STRING) return hri_run_fail(run, "truncate needs a text, not a %s", hri_type_name(self));
  HRI_TRY(hri_slice(run, self, hri_none(), hri_int(wanted - end_length), hri_none(), &cut));
  for (i = cut.count; i > 0 && !asked(values[1]) && cut.as.chars[i - 1] != ' ';) i--;
  if (i > 0 && !asked(values[1])) cut.count = i - 1;
  return hri_concat(run, cut, end, out);
}

static hr_status filter_wordcount(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  int64_t words = 0;
  bool inside = false;
  size_t i, bytes;
  (void)values;
  HRI_TRY(as_text(run, self, &self));
  HRI_TRY(hri_run_steps(run, 1 + self.count / 8));
  for (i = 0; i < self.count; i += bytes) {
    uint32_t code = hri_decode(self.as.chars + i, &bytes);
    bool word = code == '_' || hri_is_alnum(code);
    words += word && !inside;
    inside = word;
  }
  *out = hri_int(words);
  return HR_OK;
}

static hr_status filter_format(hri_run *run, hri_value self, const hri_arguments *arguments, hri_value *out) {
  hri_value text, value;
  hri_dict *dict;
  uint32_t i;
  HRI_TRY(as_text(run, self, &text));
  if (arguments->count > 0 && arguments->named_count > 0)
    return hri_run_fail(run, "format cannot take positional and keyword arguments at the same time");
  if (arguments->named_count == 0) {
    HRI_TRY(hri_items_new(run, HRI_TUPLE, arguments->count, &value));
    if (arguments->count > 0) memcpy(value.as.items->at, arguments->at, arguments->count * sizeof *arguments->at);
    return hri_percent(run, text, value, out);
  }
  HRI_TRY(hri_dict_new(run, arguments->named_count, &dict));
  for (i = 0; i < arguments->named_count; i++)
    HRI_TRY(hri_dict_put(run, dict, arguments->named[i].name, arguments->named[i].value));
  return hri_percent(run, text, (hri_value){.kind = HRI_DICT, .as.dict = dict}, out);
}

/* ---- tojson ---- */

static hr_status json_indent(hri_run *run, hri_value indent, hri_json_style *style) {
  int64_t width = 0;
  style->indented = true;
  style->indent = indent;
  if (indent.kind != HRI_STRING) {
    HRI_TRY(need_integer(run, indent, 0, &width));
    if (width > 1000) return hri_run_unsupported(run, "an indent of more than 1000");
    HRI_TRY(hri_binary(run, HRI_MULTIPLY, hri_chars(" ", 1), hri_int(width), &style->indent));
  }
  if (style->indent.count > 1000) return hri_run_unsupported(run, "an indent of more than 1000");
  style->item = hri_chars(",", 1);
  return HR_OK;
}

static hr_status filter_tojson(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  hri_json_style style = {.ascii = asked(values[0]),
                          .sorted = asked(values[3]),
                          .item = hri_chars(", ", 2),
                          .key = hri_chars(": ", 2)};
  hri_text text = {0};
  hri_value *at;
  uint32_t count;
  hr_status status;
  if (given(values[1])) HRI_TRY(json_indent(run, values[1], &style));
  if (given(values[2])) {
    HRI_TRY(hri_iterate(run, values[2], &at, &count));
    if (count != 2 || at[0].kind != HRI_STRING || at[1].kind != HRI_STRING)
      return hri_run_fail(run, "separators must be two texts");
    style.item = at[0];
    style.key = at[1];
  }
  status = hri_add_json(run, &text, self, &style);
  if (status == HR_OK) status = hri_text_take(run, &text, out);
  hri_text_deinit(&text);
  return status;
}

/* ---- Numbers ---- */

static hr_status filter_abs(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  int64_t integer;
  (void)values;
  if (self.kind == HRI_UNDEFINED) return hri_fail_undefined(run, self);
  if (hri_as_integer(self, &integer)) {
    if (integer == INT64_MIN) return hri_run_unsupported(run, "an integer beyond 64 bits");
    *out = hri_int(integer < 0 ? -integer : integer);
  } else if (self.kind == HRI_FLOAT) {
    *out = hri_float(fabs(self.as.real));
  } else {
    return hri_run_fail(run, "bad operand type for abs(): '%s'", hri_type_name(self));
  }
  return HR_OK;
}

static hr_status float_to_integer(hri_run *run, double real, hri_value *out) {
  if (!(real >= -9223372036854775808.0 && real < 9223372036854775808.0))
    return hri_run_unsupported(run, "an integer beyond 64 bits");
  *out = hri_int((int64_t)real);
  return HR_OK;
}

static hr_status filter_int(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  int64_t base, integer;
  double real;
  HRI_TRY(need_integer(run, values[1], 10, &base));
  *out = values[0].kind == HRI_ABSENT ? hri_int(0) : values[0];
  if (self.kind == HRI_UNDEFINED) return hri_fail_undefined(run, self);
  if (hri_as_integer(self, &integer)) return *out = hri_int(integer), HR_OK;
  if (self.kind == HRI_FLOAT && isinf(self.as.real))
    return hri_run_fail(run, "cannot convert float infinity to integer");
  if (self.kind == HRI_FLOAT) return isnan(self.as.real) ? HR_OK : float_to_integer(run, self.as.real, out);
  if (self.kind != HRI_STRING) return HR_OK;
  HRI_TRY(hri_run_steps(run, self.count / 8));
  switch (hri_parse_integer(self.as.chars, self.count, base, &integer)) {
  case HRI_PARSED: *out = hri_int(integer); return HR_OK;
  case HRI_TOO_LARGE: return hri_run_unsupported(run, "an integer beyond 64 bits");
  case HRI_NO_NUMBER: break;
  }
  if (!hri_parse_float(self.as.chars, self.count, &real) || !isfinite(real)) return HR_OK;
  return float_to_integer(run, real, out);
}

static hr_status filter_float(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  int64_t integer;
  double real;
  *out = values[0].kind == HRI_ABSENT ? hri_float(0) : values[0];
  if (self.kind == HRI_STRING) HRI_TRY(hri_run_steps(run, self.count / 8));
  if (self.kind == HRI_UNDEFINED) return hri_fail_undefined(run, self);
  if (hri_as_integer(self, &integer)) *out = hri_float((double)integer);
  else if (self.kind == HRI_FLOAT) *out = self;
  else if (self.kind == HRI_STRING && hri_parse_float(self.as.chars, self.count, &real)) *out = hri_float(real);
  return HR_OK;
}

/* round(): decimal, half to even, from the exact value of the double. */
static hr_status round_common(hri_run *run, hri_value self, int64_t digits, hri_value *out) {
  char text[700];
  int64_t integer;
  *out = self;
  if (digits < 0) return hri_run_unsupported(run, "rounding to tens");
  if (hri_as_integer(self, &integer)) return *out = hri_int(integer), HR_OK;
  if (!isfinite(self.as.real) || digits > 300) return HR_OK;
  (void)snprintf(text, sizeof text, "%.*f", (int)digits, self.as.real);
  *out = hri_float(strtod(text, NULL));
  return HR_OK;
}

static hr_status filter_round(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  bool up = values[1].kind != HRI_ABSENT && hri_value_is(values[1], "ceil"),
       down = values[1].kind != HRI_ABSENT && hri_value_is(values[1], "floor");
  int64_t digits, integer;
  double scale, scaled;
  if (values[1].kind != HRI_ABSENT && !up && !down && !hri_value_is(values[1], "common"))
    return hri_run_fail(run, "method must be common, ceil or floor");
  HRI_TRY(need_integer(run, values[0], 0, &digits));
  if (self.kind == HRI_UNDEFINED) return hri_fail_undefined(run, self);
  if (self.kind != HRI_FLOAT && !hri_as_integer(self, &integer))
    return hri_run_fail(run, "type %s doesn't define round", hri_type_name(self));
  if (!up && !down) return round_common(run, self, digits, out);
  if (digits < -15 || digits > 15) return hri_run_unsupported(run, "rounding to more than 15 digits");
  scale = pow(10, (double)digits);
  scaled = (self.kind == HRI_FLOAT ? self.as.real : (double)integer) * scale;
  if (!isfinite(scaled)) return hri_run_fail(run, "cannot convert float infinity or NaN to integer");
  *out = hri_float((up ? ceil(scaled) : floor(scaled)) / scale);
  return HR_OK;
}

static hr_status filter_default(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  (void)run;
  *out = self;
  if (self.kind == HRI_UNDEFINED || (asked(values[1]) && !hri_truth(self)))
    *out = values[0].kind == HRI_ABSENT ? hri_chars("", 0) : values[0];
  return HR_OK;
}

static hr_status filter_attr(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  bool found;
  if (values[0].kind != HRI_STRING)
    return hri_run_fail(run, "attribute name must be string, not '%s'", hri_type_name(values[0]));
  if (self.kind == HRI_UNDEFINED) return hri_fail_undefined(run, self);
  HRI_TRY(hri_method_find(run, self, values[0].as.chars, values[0].count, &found, out));
  if (!found)
    *out = (hri_value){.kind = HRI_UNDEFINED,
                       .flag = HRI_LACK_ATTRIBUTE,
                       .object = self.kind,
                       .count = values[0].count,
                       .as.chars = values[0].as.chars};
  return HR_OK;
}

/* ---- The table ---- */

static const hri_builtin filters[] = {
    {"tojson", "ensure_ascii=,indent=,separators=,sort_keys=", filter_tojson, NULL},
    {"trim", "chars=", filter_trim, NULL},
    {"length", "", filter_length, NULL},
    {"count", "", filter_length, NULL},
    {"items", "", filter_items, NULL},
    {"string", "", filter_string, NULL},
    {"safe", "", filter_safe, NULL},
    {"default", "default_value=,boolean=", filter_default, NULL},
    {"d", "default_value=,boolean=", filter_default, NULL},
    {"join", "d=,attribute=", filter_join, NULL},
    {"selectattr", NULL, NULL, filter_selectattr},
    {"rejectattr", NULL, NULL, filter_rejectattr},
    {"select", NULL, NULL, filter_select},
    {"reject", NULL, NULL, filter_reject},
    {"map", NULL, NULL, filter_map},
    {"first", "", filter_first, NULL},
    {"last", "", filter_last, NULL},
    {"list", "", filter_list, NULL},
    {"upper", "", filter_upper, NULL},
    {"lower", "", filter_lower, NULL},
    {"capitalize", "", filter_capitalize, NULL},
    {"title", "", filter_title, NULL},
    {"replace", "old,new,count=", filter_replace, NULL},
    {"int", "default=,base=", filter_int, NULL},
    {"float", "default=", filter_float, NULL},
    {"abs", "", filter_abs, NULL},
    {"round", "precision=,method=", filter_round, NULL},
    {"sort", "reverse=,case_sensitive=,attribute=", filter_sort, NULL},
    {"dictsort", "case_sensitive=,by=,reverse=", filter_dictsort, NULL},
    {"unique", "case_sensitive=,attribute=", filter_unique, NULL},
    {"groupby", "attribute,default=,case_sensitive=", filter_groupby, NULL},
    {"min", "case_sensitive=,attribute=", filter_min, NULL},
    {"max", "case_sensitive=,attribute=", filter_max, NULL},
    {"sum", "attribute=,start=", filter_sum, NULL},
    {"reverse", "", filter_reverse, NULL},
    {"batch", "linecount,fill_with=", filter_batch, NULL},
    {"slice", "slices,fill_with=", filter_slice, NULL},
    {"indent", "width=,first=,blank=", filter_indent, NULL},
    {"center", "width=", filter_center, NULL},
    {"truncate", "length=,killwords=,end=,leeway=", filter_truncate, NULL},
    {"wordcount", "", filter_wordcount, NULL},
    {"format", NULL, NULL, filter_format},
    {"escape", "", filter_escape, NULL},
    {"e", "", filter_escape, NULL},
    {"forceescape", "", filter_forceescape, NULL},
    {"attr", "name", filter_attr, NULL},
};

const hri_builtin *hri_filter_find(const char *name, size_t bytes) {
  size_t i;
  for (i = 0; i < sizeof filters / sizeof *filters; i++)
    if (strlen(filters[i].name) == bytes && memcmp(filters[i].name, name, bytes) == 0) return &filters[i];
  return NULL;
}

bool hri_filter_lacking(const char *name, size_t bytes) {
  static const char *const names[] = {"filesizeformat", "pprint", "random",   "striptags",
                                      "urlencode",      "urlize", "wordwrap", "xmlattr"};
  size_t i;
  for (i = 0; i < sizeof names / sizeof *names; i++)
    if (strlen(names[i]) == bytes && memcmp(names[i], name, bytes) == 0) return true;
  return false;
}

hr_status hri_filter_apply(hri_run *run, hri_value name, hri_value self, const hri_arguments *arguments,
                           hri_value *out) {
  const hri_builtin *filter = name.kind == HRI_STRING ? hri_filter_find(name.as.chars, name.count) : NULL;
  char what[48];
  hr_status status;
  if (name.kind != HRI_STRING)
    return hri_run_fail(run, "the name of a filter must be a text, not %s", hri_type_name(name));
  if (!filter && hri_filter_lacking(name.as.chars, name.count))
    return hri_run_unsupported(run, "the filter '%.*s'", (int)name.count, name.as.chars);
  if (!filter)
    return hri_run_fail(run, "no filter named '%.*s'", (int)(name.count < 100 ? name.count : 100), name.as.chars);
  (void)snprintf(what, sizeof what, "the filter '%s'", filter->name);
  HRI_TRY(hri_run_deeper(run));
  status = hri_builtin_call(run, what, filter, self, arguments, out);
  run->depth--;
  return status;
}
