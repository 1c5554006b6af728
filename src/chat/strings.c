/* The methods of str. Positions count code points; searching works on bytes, which is the same thing in UTF-8. */
#include <string.h>

#include "chat/run.h"
#include "chat/unicode.h"

static hr_status need_text(hri_run *run, hri_value value, const char *what) {
  if (value.kind == HRI_STRING) return HR_OK;
  if (value.kind == HRI_UNDEFINED) return hri_fail_undefined(run, value);
  return hri_run_fail(run, "%s must be str, not %s", what, hri_type_name(value));
}

static hr_status need_integer(hri_run *run, hri_value value, int64_t fallback, int64_t *out) {
  *out = fallback;
  if (value.kind == HRI_ABSENT || value.kind == HRI_NONE || hri_as_integer(value, out)) return HR_OK;
  return hri_run_fail(run, "'%s' object cannot be interpreted as an integer", hri_type_name(value));
}

/* The part of a text between two positions, negative ones counted from the end; false when it begins behind the end. */
static hr_status part(hri_run *run, hri_value text, const hri_value *bounds, hri_value *out, int64_t *begin,
                      bool *valid) {
  int64_t length, first, last;
  size_t from, to;
  HRI_TRY(hri_length(run, text, &length));
  HRI_TRY(need_integer(run, bounds[0], 0, &first));
  HRI_TRY(need_integer(run, bounds[1], length, &last));
  if (first < 0) first = first < -length ? 0 : first + length;
  if (last < 0) last = last < -length ? 0 : last + length;
  if (last > length) last = length;
  *begin = first;
  *valid = first <= last;
  if (!*valid) {
    *out = hri_chars("", 0);
    return HR_OK;
  }
  from = hri_code_offset(text.as.chars, text.count, (uint64_t)first);
  to = hri_code_offset(text.as.chars, text.count, (uint64_t)last);
  *out = hri_chars(text.as.chars + from, to - from);
  return HR_OK;
}

static const char *find_first(hri_value text, hri_value what) {
  return what.count == 0 ? text.as.chars : memmem(text.as.chars, text.count, what.as.chars, what.count);
}

/* From the end; each place where the first byte fits may cost a comparison. */
static hr_status find_last(hri_run *run, hri_value text, hri_value what, const char **out) {
  uint64_t work = 0;
  size_t at;
  *out = NULL;
  if (what.count > text.count) return HR_OK;
  for (at = text.count - what.count + 1; at-- > 0;) {
    if ((at & 0xFFF) == 0 || work > 0xFFFF) {
      HRI_TRY(hri_run_steps(run, 64 + work / 64));
      work = 0;
    }
    if (what.count > 0 && text.as.chars[at] != *what.as.chars) continue;
    work += what.count;
    if (what.count > 0 && memcmp(text.as.chars + at, what.as.chars, what.count) != 0) continue;
    *out = text.as.chars + at;
    break;
  }
  return hri_run_steps(run, work / 64);
}

static hr_status find_in(hri_run *run, hri_value self, const hri_value *values, bool last, bool must, hri_value *out) {
  hri_value inside;
  const char *found = NULL;
  int64_t begin;
  bool valid;
  HRI_TRY(need_text(run, values[0], "argument 1"));
  HRI_TRY(part(run, self, values + 1, &inside, &begin, &valid));
  HRI_TRY(hri_run_steps(run, 1 + inside.count / 64));
  if (valid && last) HRI_TRY(find_last(run, inside, values[0], &found));
  else if (valid) found = find_first(inside, values[0]);
  if (!found && must) return hri_run_fail(run, "substring not found");
  *out = hri_int(found ? begin + (int64_t)hri_count_codes(inside.as.chars, (size_t)(found - inside.as.chars)) : -1);
  return HR_OK;
}

static hr_status str_find(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  return find_in(run, self, values, false, false, out);
}
static hr_status str_rfind(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  return find_in(run, self, values, true, false, out);
}
static hr_status str_index(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  return find_in(run, self, values, false, true, out);
}
static hr_status str_rindex(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  return find_in(run, self, values, true, true, out);
}

static hr_status str_count(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  hri_value inside;
  int64_t begin, count = 0;
  bool valid;
  HRI_TRY(need_text(run, values[0], "argument 1"));
  HRI_TRY(part(run, self, values + 1, &inside, &begin, &valid));
  HRI_TRY(hri_run_steps(run, 1 + inside.count / 16));
  if (valid && values[0].count == 0) {
    count = (int64_t)hri_count_codes(inside.as.chars, inside.count) + 1;
  } else if (valid) {
    const char *at;
    while ((at = find_first(inside, values[0]))) {
      size_t skipped = (size_t)(at - inside.as.chars) + values[0].count;
      inside = hri_chars(inside.as.chars + skipped, inside.count - skipped);
      count++;
    }
  }
  *out = hri_int(count);
  return HR_OK;
}

/* Costs a step for 64 bytes of the affix. */
static bool affix(hri_value text, hri_value affix_text, bool end) {
  if (affix_text.count > text.count) return false;
  return affix_text.count == 0 ||
         memcmp(text.as.chars + (end ? text.count - affix_text.count : 0), affix_text.as.chars, affix_text.count) == 0;
}

static hr_status starts_or_ends(hri_run *run, hri_value self, const hri_value *values, bool end, hri_value *out) {
  hri_value inside;
  int64_t begin;
  uint32_t i;
  bool valid, result = false;
  HRI_TRY(part(run, self, values + 1, &inside, &begin, &valid));
  if (values[0].kind == HRI_TUPLE) {
    for (i = 0; i < values[0].as.items->count; i++) {
      HRI_TRY(need_text(run, values[0].as.items->at[i], "each affix"));
      HRI_TRY(hri_run_steps(run, 1 + values[0].as.items->at[i].count / 64));
      result |= affix(inside, values[0].as.items->at[i], end);
    }
  } else {
    HRI_TRY(need_text(run, values[0], end ? "endswith first arg" : "startswith first arg"));
    HRI_TRY(hri_run_steps(run, 1 + values[0].count / 64));
    result = affix(inside, values[0], end);
  }
  *out = hri_bool(valid && result);
  return HR_OK;
}

static hr_status str_startswith(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  return starts_or_ends(run, self, values, false, out);
}
static hr_status str_endswith(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  return starts_or_ends(run, self, values, true, out);
}

static hr_status remove_affix(hri_run *run, hri_value self, hri_value affix_text, bool end, hri_value *out) {
  HRI_TRY(need_text(run, affix_text, "argument 1"));
  HRI_TRY(hri_run_steps(run, 1 + affix_text.count / 64));
  *out = self;
  if (!affix(self, affix_text, end)) return HR_OK;
  out->count -= affix_text.count;
  if (!end) out->as.chars += affix_text.count;
  return HR_OK;
}

static hr_status str_removeprefix(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  return remove_affix(run, self, values[0], false, out);
}
static hr_status str_removesuffix(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  return remove_affix(run, self, values[0], true, out);
}

/* ---- Stripping ---- */

static bool in_set(uint32_t code, hri_value set) {
  size_t i, bytes;
  if (set.kind != HRI_STRING) return hri_is_space(code);
  for (i = 0; i < set.count; i += bytes)
    if (hri_decode(set.as.chars + i, &bytes) == code) return true;
  return false;
}

hr_status hri_strip(hri_run *run, hri_value self, hri_value set, bool left, bool right, hri_value *out) {
  uint64_t each = set.kind == HRI_STRING ? set.count / 8 : 0;
  size_t bytes;
  if (set.kind != HRI_ABSENT && set.kind != HRI_NONE) HRI_TRY(need_text(run, set, "strip arg"));
  *out = self;
  while (left && out->count > 0 && in_set(hri_decode(out->as.chars, &bytes), set)) {
    out->as.chars += bytes;
    out->count -= (uint32_t)bytes;
    HRI_TRY(hri_run_steps(run, each));
  }
  while (right && out->count > 0 && in_set(hri_decode_back(out->as.chars + out->count, &bytes), set)) {
    out->count -= (uint32_t)bytes;
    HRI_TRY(hri_run_steps(run, each));
  }
  return hri_run_steps(run, 1 + 2 * each + (self.count - out->count) / 8);
}

static hr_status str_strip(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  return hri_strip(run, self, values[0], true, true, out);
}
static hr_status str_lstrip(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  return hri_strip(run, self, values[0], true, false, out);
}
static hr_status str_rstrip(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  return hri_strip(run, self, values[0], false, true, out);
}

/* ---- Splitting ---- */

typedef HRI_ARRAY(hri_value) value_list;

static hr_status push_part(hri_run *run, value_list *list, hri_value self, const char *begin, const char *end) {
  hri_value text = hri_chars(begin, (size_t)(end - begin));
  text.flag = self.flag;
  HRI_TRY(hri_run_steps(run, 1));
  if (list->count >= HRI_LIMIT_MEMORY / sizeof text) return hri_run_limit(run, "memory");
  return hri_array_push(list, text) ? HR_OK : hri_fail_memory(run->error, sizeof text, "parts of a text");
}

/* The list as a value, in the other order when it was made from the end; releases it. */
static hr_status take_list(hri_run *run, hr_status status, value_list *list, bool reversed, hri_value *out) {
  size_t i;
  if (status == HR_OK) status = hri_items_new(run, HRI_LIST, list->count, out);
  for (i = 0; i < list->count && status == HR_OK; i++)
    out->as.items->at[reversed ? list->count - 1 - i : i] = list->items[i];
  hri_array_free(list);
  return status;
}

static hr_status split_spaces(hri_run *run, hri_value self, int64_t limit, value_list *list) {
  const char *at = self.as.chars, *end = at + self.count, *word;
  size_t bytes = 0;
  for (;;) {
    while (at < end && hri_is_space(hri_decode(at, &bytes))) at += bytes;
    if (at >= end) return HR_OK;
    word = at;
    if (limit-- == 0) return push_part(run, list, self, word, end); /* the rest, with the blanks at its end */
    while (at < end && !hri_is_space(hri_decode(at, &bytes))) at += bytes;
    HRI_TRY(push_part(run, list, self, word, at));
  }
}

static hr_status rsplit_spaces(hri_run *run, hri_value self, int64_t limit, value_list *list) {
  const char *begin = self.as.chars, *at = begin + self.count, *word;
  size_t bytes = 0;
  for (;;) {
    while (at > begin && hri_is_space(hri_decode_back(at, &bytes))) at -= bytes;
    if (at <= begin) return HR_OK;
    word = at;
    if (limit-- == 0) return push_part(run, list, self, begin, word);
    while (at > begin && !hri_is_space(hri_decode_back(at, &bytes))) at -= bytes;
    HRI_TRY(push_part(run, list, self, at, word));
  }
}

static hr_status split_at(hri_run *run, hri_value self, hri_value separator, int64_t limit, value_list *list) {
  hri_value rest = self;
  const char *at;
  while (limit-- != 0 && (at = find_first(rest, separator))) {
    size_t skipped = (size_t)(at - rest.as.chars) + separator.count;
    HRI_TRY(push_part(run, list, self, rest.as.chars, at));
    rest = hri_chars(rest.as.chars + skipped, rest.count - skipped);
  }
  return push_part(run, list, self, rest.as.chars, rest.as.chars + rest.count);
}

static hr_status rsplit_at(hri_run *run, hri_value self, hri_value separator, int64_t limit, value_list *list) {
  hri_value rest = self;
  const char *at;
  while (limit-- != 0) {
    HRI_TRY(find_last(run, rest, separator, &at));
    if (!at) break;
    HRI_TRY(push_part(run, list, self, at + separator.count, rest.as.chars + rest.count));
    rest = hri_chars(rest.as.chars, (size_t)(at - rest.as.chars));
  }
  return push_part(run, list, self, rest.as.chars, rest.as.chars + rest.count);
}

static hr_status split(hri_run *run, hri_value self, const hri_value *values, bool back, hri_value *out) {
  value_list list = {0};
  hr_status status;
  int64_t limit;
  HRI_TRY(need_integer(run, values[1], -1, &limit));
  if (limit < 0) limit = -1;
  HRI_TRY(hri_run_steps(run, 1 + self.count / 16));
  if (values[0].kind == HRI_ABSENT || values[0].kind == HRI_NONE) {
    status = back ? rsplit_spaces(run, self, limit, &list) : split_spaces(run, self, limit, &list);
  } else {
    HRI_TRY(need_text(run, values[0], "the separator"));
    if (values[0].count == 0) return hri_run_fail(run, "empty separator");
    status = back ? rsplit_at(run, self, values[0], limit, &list) : split_at(run, self, values[0], limit, &list);
  }
  return take_list(run, status, &list, back, out);
}

static hr_status str_split(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  return split(run, self, values, false, out);
}
static hr_status str_rsplit(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  return split(run, self, values, true, out);
}

hr_status hri_split_lines(hri_run *run, hri_value self, bool keep, hri_value *out) {
  const char *at = self.as.chars, *end = at + self.count, *line = at;
  value_list list = {0};
  hr_status status = hri_run_steps(run, 1 + self.count / 16);
  size_t bytes;
  while (at < end && status == HR_OK) {
    uint32_t code = hri_decode(at, &bytes);
    const char *stop = at;
    at += bytes;
    if (!hri_is_line_end(code)) continue;
    if (code == '\r' && at < end && *at == '\n') at++;
    status = push_part(run, &list, self, line, keep ? at : stop);
    line = at;
  }
  if (line < end && status == HR_OK) status = push_part(run, &list, self, line, end);
  return take_list(run, status, &list, false, out);
}

static hr_status str_splitlines(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  return hri_split_lines(run, self, values[0].kind != HRI_ABSENT && hri_truth(values[0]), out);
}

static hr_status partition(hri_run *run, hri_value self, hri_value separator, bool back, hri_value *out) {
  const char *found;
  hri_value *at, empty = hri_chars("", 0);
  HRI_TRY(need_text(run, separator, "the separator"));
  if (separator.count == 0) return hri_run_fail(run, "empty separator");
  HRI_TRY(hri_run_steps(run, 1 + self.count / 16));
  if (back) HRI_TRY(find_last(run, self, separator, &found));
  else found = find_first(self, separator);
  HRI_TRY(hri_items_new(run, HRI_TUPLE, 3, out));
  at = out->as.items->at;
  at[0] = back ? empty : self;
  at[1] = empty;
  at[2] = back ? self : empty;
  if (!found) return HR_OK;
  at[0] = hri_chars(self.as.chars, (size_t)(found - self.as.chars));
  at[1] = separator;
  at[2] = hri_chars(found + separator.count, self.count - at[0].count - separator.count);
  return HR_OK;
}

static hr_status str_partition(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  return partition(run, self, values[0], false, out);
}
static hr_status str_rpartition(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  return partition(run, self, values[0], true, out);
}

/* ---- Building ---- */

hr_status hri_join(hri_run *run, hri_value separator, const hri_value *at, uint32_t count, hri_value *out) {
  hri_text text = {0};
  hr_status status = HR_OK;
  uint32_t i;
  for (i = 0; i < count && status == HR_OK; i++) {
    if (i > 0) hri_text_add_bytes(&text, separator.as.chars, separator.count);
    status = hri_add_str(run, &text, at[i]);
  }
  if (status == HR_OK) return hri_text_take(run, &text, out);
  hri_text_deinit(&text);
  return status;
}

static hr_status str_join(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  hri_value *at;
  uint32_t count, i;
  if (!hri_iterable(values[0])) return hri_run_fail(run, "can only join an iterable");
  HRI_TRY(hri_iterate(run, values[0], &at, &count));
  for (i = 0; i < count; i++)
    if (at[i].kind != HRI_STRING)
      return hri_run_fail(run, "sequence item %u: expected str instance, %s found", i, hri_type_name(at[i]));
  return hri_join(run, self, at, count, out);
}

/* Between all characters, and at both ends. */
static void replace_nothing(hri_text *text, hri_value self, hri_value new_text, int64_t limit) {
  size_t i = 0, bytes;
  while (limit != 0) {
    hri_text_add_bytes(text, new_text.as.chars, new_text.count);
    limit--;
    if (i >= self.count) return;
    (void)hri_decode(self.as.chars + i, &bytes);
    hri_text_add_bytes(text, self.as.chars + i, bytes);
    i += bytes;
  }
  hri_text_add_bytes(text, self.as.chars + i, self.count - i);
}

hr_status hri_replace(hri_run *run, hri_value self, hri_value old, hri_value new_text, int64_t limit, hri_value *out) {
  hri_text text = {0};
  hri_value rest = self;
  const char *at;
  hr_status status = HR_OK;
  if (limit < 0) limit = -1;
  HRI_TRY(hri_run_steps(run, 1 + self.count / (old.count == 0 ? 8 : 64)));
  if (old.count == 0) {
    if ((uint64_t)self.count * new_text.count > HRI_LIMIT_MEMORY) return hri_run_limit(run, "memory");
    replace_nothing(&text, self, new_text, limit);
    return hri_text_take(run, &text, out);
  }
  while (status == HR_OK && limit-- != 0 && (at = find_first(rest, old))) {
    size_t skipped = (size_t)(at - rest.as.chars) + old.count;
    hri_text_add_bytes(&text, rest.as.chars, (size_t)(at - rest.as.chars));
    hri_text_add_bytes(&text, new_text.as.chars, new_text.count);
    rest = hri_chars(rest.as.chars + skipped, rest.count - skipped);
    status = hri_run_steps(run, 1);
    if (status == HR_OK) status = hri_run_text(run, &text);
  }
  hri_text_add_bytes(&text, rest.as.chars, rest.count);
  if (status == HR_OK) return hri_text_take(run, &text, out);
  hri_text_deinit(&text);
  return status;
}

static hr_status str_replace(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  int64_t limit;
  HRI_TRY(need_text(run, values[0], "replace() argument 1"));
  HRI_TRY(need_text(run, values[1], "replace() argument 2"));
  HRI_TRY(need_integer(run, values[2], -1, &limit));
  return hri_replace(run, self, values[0], values[1], limit, out);
}

static hr_status pad(hri_run *run, hri_value self, hri_value fill, int64_t before, int64_t after, hri_value *out) {
  hri_text text = {0};
  int64_t i;
  if (before + after > HRI_LIMIT_MEMORY / 4) return hri_run_limit(run, "memory");
  HRI_TRY(hri_run_steps(run, (uint64_t)(before + after) + self.count / 64));
  for (i = 0; i < before; i++) hri_text_add_bytes(&text, fill.as.chars, fill.count);
  hri_text_add_bytes(&text, self.as.chars, self.count);
  for (i = 0; i < after; i++) hri_text_add_bytes(&text, fill.as.chars, fill.count);
  return hri_text_take(run, &text, out);
}

/* side: -1 the text at the left, 0 in the middle, 1 at the right. */
static hr_status justify(hri_run *run, hri_value self, const hri_value *values, int side, hri_value *out) {
  hri_value fill = values[1].kind == HRI_ABSENT ? hri_chars(" ", 1) : values[1];
  int64_t width, length, room, before;
  HRI_TRY(need_text(run, fill, "the fill character"));
  if (hri_count_codes(fill.as.chars, fill.count) != 1)
    return hri_run_fail(run, "the fill character must be exactly one character long");
  if (!hri_as_integer(values[0], &width))
    return hri_run_fail(run, "'%s' object cannot be interpreted as an integer", hri_type_name(values[0]));
  HRI_TRY(hri_length(run, self, &length));
  *out = self;
  if (width <= length) return HR_OK;
  if (width > HRI_LIMIT_MEMORY) return hri_run_limit(run, "memory");
  room = width - length;
  before = side < 0 ? 0 : side > 0 ? room : room / 2 + (room & width & 1); /* where CPython puts the odd blank */
  return pad(run, self, fill, before, room - before, out);
}

static hr_status str_ljust(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  return justify(run, self, values, -1, out);
}
static hr_status str_rjust(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  return justify(run, self, values, 1, out);
}
hr_status hri_center(hri_run *run, hri_value self, hri_value width, hri_value fill, hri_value *out) {
  hri_value values[2] = {width, fill};
  return justify(run, self, values, 0, out);
}
static hr_status str_center(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  return justify(run, self, values, 0, out);
}

static hr_status str_zfill(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  int64_t width, length;
  uint32_t sign = self.count > 0 && (*self.as.chars == '-' || *self.as.chars == '+');
  hri_value rest = hri_chars(self.as.chars + sign, self.count - sign);
  if (!hri_as_integer(values[0], &width))
    return hri_run_fail(run, "'%s' object cannot be interpreted as an integer", hri_type_name(values[0]));
  HRI_TRY(hri_length(run, self, &length));
  *out = self;
  if (width <= length) return HR_OK;
  if (width > HRI_LIMIT_MEMORY) return hri_run_limit(run, "memory");
  HRI_TRY(pad(run, rest, hri_chars("0", 1), width - length, 0, &rest));
  return hri_concat(run, hri_chars(self.as.chars, sign), rest, out);
}

/* ---- Case ---- */

typedef enum recase { RECASE_LOWER, RECASE_UPPER, RECASE_TITLE, RECASE_CAPITALIZE } recase;

static bool has_case(uint32_t code) { return hri_is_lower(code) || hri_is_upper(code) || hri_is_title(code); }

static void add_recased(hri_text *text, hri_value self, recase to) {
  size_t i, bytes = 0;
  bool inside = false;
  if (to == RECASE_CAPITALIZE && self.count > 0) hri_add_cased(text, hri_decode(self.as.chars, &bytes), HRI_TITLE);
  if (to == RECASE_LOWER || to == RECASE_CAPITALIZE) {
    hri_add_lower(text, self.as.chars, self.count, bytes, self.count);
    return;
  }
  for (i = 0; i < self.count; i += bytes) {
    uint32_t code = hri_decode(self.as.chars + i, &bytes);
    if (to == RECASE_TITLE && inside) hri_add_lower(text, self.as.chars, self.count, i, i + bytes);
    else hri_add_cased(text, code, to == RECASE_UPPER ? HRI_UPPER : HRI_TITLE);
    inside = has_case(code);
  }
}

static hr_status recased(hri_run *run, hri_value self, recase to, hri_value *out) {
  hri_text text = {0};
  uint8_t flag = self.flag;
  HRI_TRY(hri_run_steps(run, 1 + self.count / 4));
  add_recased(&text, self, to);
  HRI_TRY(hri_text_take(run, &text, out));
  out->flag = flag;
  return HR_OK;
}

hr_status hri_lower(hri_run *run, hri_value self, hri_value *out) { return recased(run, self, RECASE_LOWER, out); }
hr_status hri_upper(hri_run *run, hri_value self, hri_value *out) { return recased(run, self, RECASE_UPPER, out); }
hr_status hri_capitalize(hri_run *run, hri_value self, hri_value *out) {
  return recased(run, self, RECASE_CAPITALIZE, out);
}
static hr_status str_lower(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  (void)values;
  return hri_lower(run, self, out);
}
static hr_status str_upper(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  (void)values;
  return hri_upper(run, self, out);
}
static hr_status str_capitalize(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  (void)values;
  return hri_capitalize(run, self, out);
}
static hr_status str_title(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  (void)values;
  return recased(run, self, RECASE_TITLE, out);
}

/* ---- Questions ---- */

typedef bool predicate(uint32_t code);

static hr_status all_codes(hri_run *run, hri_value self, predicate *holds, bool empty, hri_value *out) {
  size_t i, bytes;
  bool result = self.count > 0 || empty;
  HRI_TRY(hri_run_steps(run, 1 + self.count / 8));
  for (i = 0; i < self.count && result; i += bytes) result = holds(hri_decode(self.as.chars + i, &bytes));
  *out = hri_bool(result);
  return HR_OK;
}

/* There is a cased character, and none of another case. */
bool hri_all_cased(hri_value self, bool upper) {
  size_t i, bytes;
  bool found = false;
  for (i = 0; i < self.count; i += bytes) {
    uint32_t code = hri_decode(self.as.chars + i, &bytes);
    if (hri_is_title(code) || (upper ? hri_is_lower(code) : hri_is_upper(code))) return false;
    found |= upper ? hri_is_upper(code) : hri_is_lower(code);
  }
  return found;
}

static bool is_ascii(uint32_t code) { return code < 0x80; }

#define STR_QUESTION(name, holds, empty)                                                                               \
  static hr_status name(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {                       \
    (void)values;                                                                                                      \
    return all_codes(run, self, holds, empty, out);                                                                    \
  }
STR_QUESTION(str_isspace, hri_is_space, false)
STR_QUESTION(str_isalpha, hri_is_alpha, false)
STR_QUESTION(str_isalnum, hri_is_alnum, false)
STR_QUESTION(str_isdigit, hri_is_digit, false)
STR_QUESTION(str_isdecimal, hri_is_decimal, false)
STR_QUESTION(str_isprintable, hri_is_printable, true)
STR_QUESTION(str_isascii, is_ascii, true)

static hr_status cased_question(hri_run *run, hri_value self, bool upper, hri_value *out) {
  HRI_TRY(hri_run_steps(run, 1 + self.count / 8));
  *out = hri_bool(hri_all_cased(self, upper));
  return HR_OK;
}
static hr_status str_islower(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  (void)values;
  return cased_question(run, self, false, out);
}
static hr_status str_isupper(hri_run *run, hri_value self, const hri_value *values, hri_value *out) {
  (void)values;
  return cased_question(run, self, true, out);
}

const hri_builtin hri_str_methods[] = {
    {"strip", "/chars=", str_strip, NULL},
    {"lstrip", "/chars=", str_lstrip, NULL},
    {"rstrip", "/chars=", str_rstrip, NULL},
    {"split", "sep=,maxsplit=", str_split, NULL},
    {"rsplit", "sep=,maxsplit=", str_rsplit, NULL},
    {"splitlines", "keepends=", str_splitlines, NULL},
    {"startswith", "/prefix,start=,end=", str_startswith, NULL},
    {"endswith", "/suffix,start=,end=", str_endswith, NULL},
    {"replace", "/old,new,count=", str_replace, NULL},
    {"removeprefix", "/prefix", str_removeprefix, NULL},
    {"removesuffix", "/suffix", str_removesuffix, NULL},
    {"join", "/iterable", str_join, NULL},
    {"lower", "", str_lower, NULL},
    {"upper", "", str_upper, NULL},
    {"title", "", str_title, NULL},
    {"capitalize", "", str_capitalize, NULL},
    {"find", "/sub,start=,end=", str_find, NULL},
    {"rfind", "/sub,start=,end=", str_rfind, NULL},
    {"index", "/sub,start=,end=", str_index, NULL},
    {"rindex", "/sub,start=,end=", str_rindex, NULL},
    {"count", "/sub,start=,end=", str_count, NULL},
    {"partition", "/sep", str_partition, NULL},
    {"rpartition", "/sep", str_rpartition, NULL},
    {"ljust", "/width,fillchar=", str_ljust, NULL},
    {"rjust", "/width,fillchar=", str_rjust, NULL},
    {"center", "/width,fillchar=", str_center, NULL},
    {"zfill", "/width", str_zfill, NULL},
    {"format", NULL, NULL, hri_str_format},
    {"isspace", "", str_isspace, NULL},
    {"isalpha", "", str_isalpha, NULL},
    {"isalnum", "", str_isalnum, NULL},
    {"isdigit", "", str_isdigit, NULL},
    {"isdecimal", "", str_isdecimal, NULL},
    {"isprintable", "", str_isprintable, NULL},
    {"isascii", "", str_isascii, NULL},
    {"islower", "", str_islower, NULL},
    {"isupper", "", str_isupper, NULL},
    {NULL, NULL, NULL, NULL},
};
