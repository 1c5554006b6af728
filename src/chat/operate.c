/* Arithmetic, concatenation, indices and slices. */
#include <math.h>
#include <string.h>

#include "chat/run.h"
#include "chat/unicode.h"

static const char *const symbols[] = {"+",  "-", "*",  "/", "//", "%",  "**",    "==",
                                      "!=", "<", "<=", ">", ">=", "in", "not in"};

static hr_status too_large(hri_run *run) { return hri_run_unsupported(run, "an integer beyond 64 bits"); }

static hr_status bad_operands(hri_run *run, hri_operator operator, hri_value left, hri_value right) {
  if (left.kind == HRI_UNDEFINED) return hri_fail_undefined(run, left);
  if (right.kind == HRI_UNDEFINED) return hri_fail_undefined(run, right);
  return hri_run_fail(run, "unsupported operand type(s) for %s: '%s' and '%s'", symbols[operator], hri_type_name(left),
                      hri_type_name(right));
}

static bool as_number(hri_value value, double *out) {
  int64_t integer;
  if (value.kind == HRI_FLOAT) *out = value.as.real;
  else if (hri_as_integer(value, &integer)) *out = (double)integer;
  else return false;
  return true;
}

/* Rounds down, as Python does; the divisor is not 0. */
static int64_t floor_divide(int64_t a, int64_t b) {
  int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

static int64_t floor_modulo(int64_t a, int64_t b) {
  int64_t rest = b == -1 ? 0 : a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

static hr_status integer_power(hri_run *run, int64_t base, int64_t exponent, hri_value *out) {
  int64_t result = 1;
  if (exponent < 0) {
    if (base == 0) return hri_run_fail(run, "0.0 cannot be raised to a negative power");
    *out = hri_float(pow((double)base, (double)exponent));
    return HR_OK;
  }
  while (exponent > 0) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) return too_large(run);
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return too_large(run);
  }
  *out = hri_int(result);
  return HR_OK;
}

/* True division is exact to the last bit as long as both sides are exact as doubles. */
static hr_status integer_divide(hri_run *run, int64_t a, int64_t b, hri_value *out) {
  const int64_t exact = (int64_t)1 << 53;
  if (a > exact || a < -exact || b > exact || b < -exact)
    return hri_run_unsupported(run, "division of integers beyond 2**53");
  *out = hri_float((double)a / (double)b);
  return HR_OK;
}

static hr_status integers(hri_run *run, hri_operator operator, int64_t a, int64_t b, hri_value *out) {
  int64_t result;
  bool overflow;
  if ((operator == HRI_DIVIDE || operator == HRI_FLOOR_DIVIDE || operator == HRI_MODULO) && b == 0)
    return hri_run_fail(run, operator == HRI_DIVIDE ? "division by zero" : "integer division or modulo by zero");
  switch (operator) {
  case HRI_ADD: overflow = __builtin_add_overflow(a, b, &result); break;
  case HRI_SUBTRACT: overflow = __builtin_sub_overflow(a, b, &result); break;
  case HRI_MULTIPLY: overflow = __builtin_mul_overflow(a, b, &result); break;
  case HRI_DIVIDE: return integer_divide(run, a, b, out);
  case HRI_FLOOR_DIVIDE:
    overflow = a == INT64_MIN && b == -1;
    result = overflow ? 0 : floor_divide(a, b);
    break;
  case HRI_MODULO:
    overflow = false;
    result = floor_modulo(a, b);
    break;
  default: return integer_power(run, a, b, out);
  }
  if (overflow) return too_large(run);
  *out = hri_int(result);
  return HR_OK;
}

static double float_modulo(double a, double b) {
  double rest = fmod(a, b);
  if (rest != 0) return (rest < 0) != (b < 0) ? rest + b : rest;
  return copysign(0.0, b);
}

/* As Python does it: from the remainder, so that the two agree. */
static double float_floor_divide(double a, double b) {
  double rest = fmod(a, b), quotient = (a - rest) / b, down;
  if (rest != 0 && (rest < 0) != (b < 0)) quotient -= 1;
  if (quotient == 0) return copysign(0.0, a / b);
  down = floor(quotient);
  return quotient - down > 0.5 ? down + 1 : down;
}

static hr_status float_power(hri_run *run, double a, double b, hri_value *out) {
  double result;
  if (a == 0 && b < 0) return hri_run_fail(run, "0.0 cannot be raised to a negative power");
  if (a < 0 && isfinite(a) && isfinite(b) && b != floor(b)) return hri_run_unsupported(run, "complex numbers");
  result = pow(a, b);
  if (isinf(result) && isfinite(a) && isfinite(b)) return hri_run_fail(run, "result too large for a float");
  *out = hri_float(result);
  return HR_OK;
}

static hr_status floats(hri_run *run, hri_operator operator, double a, double b, hri_value *out) {
  if ((operator == HRI_DIVIDE || operator == HRI_FLOOR_DIVIDE || operator == HRI_MODULO) && b == 0)
    return hri_run_fail(run, "float division or modulo by zero");
  switch (operator) {
  case HRI_ADD: *out = hri_float(a + b); return HR_OK;
  case HRI_SUBTRACT: *out = hri_float(a - b); return HR_OK;
  case HRI_MULTIPLY: *out = hri_float(a * b); return HR_OK;
  case HRI_DIVIDE: *out = hri_float(a / b); return HR_OK;
  case HRI_FLOOR_DIVIDE: *out = hri_float(float_floor_divide(a, b)); return HR_OK;
  case HRI_MODULO: *out = hri_float(float_modulo(a, b)); return HR_OK;
  default: return float_power(run, a, b, out);
  }
}

/* A text that is marked safe escapes what it is joined with, and the result is safe. */
static hr_status add_texts(hri_run *run, hri_value left, hri_value right, hri_value *out) {
  bool safe = left.flag || right.flag;
  if (safe && !left.flag) HRI_TRY(hri_escape(run, left, &left));
  if (safe && !right.flag) HRI_TRY(hri_escape(run, right, &right));
  HRI_TRY(hri_concat(run, left, right, out));
  out->flag = safe;
  return HR_OK;
}

static hr_status add_items(hri_run *run, hri_value left, hri_value right, hri_value *out) {
  const hri_items *l = left.as.items, *r = right.as.items;
  HRI_TRY(hri_items_new(run, (hri_kind)left.kind, (uint64_t)l->count + r->count, out));
  if (l->count > 0) memcpy(out->as.items->at, l->at, l->count * sizeof *l->at);
  if (r->count > 0) memcpy(out->as.items->at + l->count, r->at, r->count * sizeof *r->at);
  return HR_OK;
}

static hr_status repeat(hri_run *run, hri_value value, int64_t times, hri_value *out) {
  uint64_t each = value.kind == HRI_STRING ? value.count : value.as.items->count, total, i;
  void *memory;
  if (times < 0) times = 0;
  if (!hri_mul(each, (uint64_t)times, &total) || total > HRI_LIMIT_MEMORY) return hri_run_limit(run, "memory");
  if (each == 0) times = 0;
  if (value.kind != HRI_STRING) {
    HRI_TRY(hri_items_new(run, (hri_kind)value.kind, total, out));
    for (i = 0; i < (uint64_t)times; i++)
      memcpy(out->as.items->at + i * each, value.as.items->at, each * sizeof(hri_value));
    return HR_OK;
  }
  HRI_TRY(hri_run_steps(run, (uint64_t)times + total / 64));
  HRI_TRY(hri_take(run, total, &memory));
  for (i = 0; i < (uint64_t)times; i++) memcpy((char *)memory + i * each, value.as.chars, each);
  *out = hri_chars(memory, total);
  out->flag = value.flag;
  return HR_OK;
}

static bool repeatable(hri_value value) {
  return value.kind == HRI_STRING || value.kind == HRI_LIST || value.kind == HRI_TUPLE;
}

hr_status hri_binary(hri_run *run, hri_operator operator, hri_value left, hri_value right, hri_value *out) {
  int64_t a, b;
  double x, y;
  HRI_TRY(hri_run_steps(run, 1));
  if (hri_as_integer(left, &a) && hri_as_integer(right, &b)) return integers(run, operator, a, b, out);
  if (as_number(left, &x) && as_number(right, &y)) return floats(run, operator, x, y, out);
  if (operator == HRI_MODULO && left.kind == HRI_STRING) return hri_percent(run, left, right, out);
  if (operator == HRI_ADD && left.kind == HRI_STRING && right.kind == HRI_STRING)
    return add_texts(run, left, right, out);
  if (operator == HRI_ADD && left.kind == right.kind && (left.kind == HRI_LIST || left.kind == HRI_TUPLE))
    return add_items(run, left, right, out);
  if (operator == HRI_MULTIPLY && repeatable(left) && hri_as_integer(right, &b)) return repeat(run, left, b, out);
  if (operator == HRI_MULTIPLY && repeatable(right) && hri_as_integer(left, &a)) return repeat(run, right, a, out);
  return bad_operands(run, operator, left, right);
}

/* ---- Indices ---- */

static hr_status text_at(hri_value text, int64_t index, bool *found, hri_value *out) {
  size_t begin, bytes;
  if (index < 0) index += (int64_t)hri_count_codes(text.as.chars, text.count);
  *found = false;
  if (index < 0) return HR_OK;
  begin = hri_code_offset(text.as.chars, text.count, (uint64_t)index);
  if (begin >= text.count) return HR_OK;
  (void)hri_decode(text.as.chars + begin, &bytes);
  *out = hri_chars(text.as.chars + begin, bytes);
  out->flag = text.flag;
  *found = true;
  return HR_OK;
}

hr_status hri_index(hri_run *run, hri_value object, int64_t index, bool *found, hri_value *out) {
  *found = false;
  if (object.kind == HRI_STRING) {
    HRI_TRY(hri_run_steps(run, object.count / 64));
    return text_at(object, index, found, out);
  }
  if (object.kind != HRI_LIST && object.kind != HRI_TUPLE && object.kind != HRI_RANGE) return HR_OK;
  if (index < 0) index += object.as.items->count;
  if (index < 0 || index >= object.as.items->count) return HR_OK;
  *out = object.as.items->at[index];
  *found = true;
  return HR_OK;
}

static hr_status slice_part(hri_run *run, hri_value part, int64_t fallback, int64_t *out) {
  *out = fallback;
  if (part.kind == HRI_NONE || part.kind == HRI_ABSENT || hri_as_integer(part, out)) return HR_OK;
  if (part.kind == HRI_UNDEFINED) return hri_fail_undefined(run, part);
  return hri_run_fail(run, "slice indices must be integers or None, not %s", hri_type_name(part));
}

/* Where a slice of a sequence of `length` begins, and how many elements it has (PySlice_AdjustIndices). */
static int64_t slice_count(int64_t length, int64_t *start, int64_t stop, int64_t step) {
  int64_t low = step < 0 ? -1 : 0, high = step < 0 ? length - 1 : length;
  uint64_t stride = step < 0 ? 0 - (uint64_t)step : (uint64_t)step, span;
  if (*start < 0) *start += length;
  if (*start < low) *start = low;
  if (*start > high) *start = high;
  if (stop < 0) stop += length;
  if (stop < low) stop = low;
  if (stop > high) stop = high;
  if (step < 0 ? stop >= *start : *start >= stop) return 0;
  span = (uint64_t)(step < 0 ? *start - stop : stop - *start);
  return (int64_t)((span - 1) / stride + 1);
}

static hr_status slice_items(hri_run *run, hri_value object, int64_t start, int64_t count, int64_t step,
                             hri_value *out) {
  const hri_items *from = object.as.items;
  hri_items *to;
  int64_t i;
  HRI_TRY(hri_items_new(run, (hri_kind)object.kind, (uint64_t)count, out));
  to = out->as.items;
  for (i = 0; i < count; i++) to->at[i] = from->at[start + i * step];
  if (object.kind != HRI_RANGE) return HR_OK;
  if (__builtin_mul_overflow(start, from->step, &to->start) ||
      __builtin_add_overflow(to->start, from->start, &to->start) ||
      __builtin_mul_overflow(from->step, step, &to->step) || __builtin_mul_overflow(count, to->step, &to->stop) ||
      __builtin_add_overflow(to->stop, to->start, &to->stop))
    return too_large(run);
  return HR_OK;
}

static hr_status slice_text(hri_run *run, hri_value text, int64_t start, int64_t count, int64_t step, hri_value *out) {
  hri_text made = {0};
  size_t at = hri_code_offset(text.as.chars, text.count, (uint64_t)start), bytes;
  int64_t i, skip;
  HRI_TRY(hri_run_steps(run, text.count / 32 + 1));
  if (step == 1) { /* a part of the same characters */
    size_t end = at + hri_code_offset(text.as.chars + at, text.count - at, (uint64_t)count);
    *out = hri_chars(text.as.chars + at, end - at);
    out->flag = text.flag;
    return HR_OK;
  }
  for (i = 0; i < count; i++) {
    (void)hri_decode(text.as.chars + at, &bytes);
    hri_text_add_bytes(&made, text.as.chars + at, bytes);
    if (i + 1 == count) break;
    for (skip = 0; skip < step; skip++) (void)hri_decode(text.as.chars + at, &bytes), at += bytes;
    for (skip = 0; skip > step; skip--) (void)hri_decode_back(text.as.chars + at, &bytes), at -= bytes;
  }
  HRI_TRY(hri_text_take(run, &made, out));
  out->flag = text.flag;
  return HR_OK;
}

hr_status hri_slice(hri_run *run, hri_value object, hri_value first, hri_value last, hri_value stride, hri_value *out) {
  int64_t start, stop, step, length, count;
  bool text = object.kind == HRI_STRING;
  if (object.kind == HRI_UNDEFINED) return hri_fail_undefined(run, object);
  if (!text && object.kind != HRI_LIST && object.kind != HRI_TUPLE && object.kind != HRI_RANGE)
    return hri_run_fail(run, "'%s' object cannot be sliced", hri_type_name(object));
  HRI_TRY(slice_part(run, stride, 1, &step));
  if (step == 0) return hri_run_fail(run, "slice step cannot be zero");
  HRI_TRY(slice_part(run, first, step < 0 ? INT64_MAX : 0, &start));
  HRI_TRY(slice_part(run, last, step < 0 ? INT64_MIN : INT64_MAX, &stop));
  HRI_TRY(hri_length(run, object, &length));
  if (stop == INT64_MIN) stop = -length - 1;
  if (start < -length) start = -length - 1;
  if (stop < -length) stop = -length - 1;
  count = slice_count(length, &start, stop, step);
  return text ? slice_text(run, object, start, count, step, out) : slice_items(run, object, start, count, step, out);
}
