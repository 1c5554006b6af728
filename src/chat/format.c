/* `format % value` and str.format, with Python's mini-languages for fields. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "chat/numbers.h"
#include "chat/run.h"
#include "chat/unicode.h"

enum { FORMAT_WIDTH = 10000, FORMAT_PRECISION = 100 };

/* A NUL, which a text may hold, is in no set. */
static bool among(const char *set, char c) { return c && strchr(set, c); }

typedef struct spec {
  const char *fill; /* one character */
  size_t fill_bytes;
  char align;   /* '<', '>', '^', '=' or 0 */
  bool implied; /* the '=' of a width that begins with 0: of numbers alone */
  char sign;    /* '+', ' ', '-' or 0 */
  bool alternate;
  char grouping;            /* ',', '_' or 0 */
  int64_t width, precision; /* -1: none */
  char type;                /* 0: none */
} spec;

/* `body` behind `lead` (sign and prefix), filled up to the width. */
static hr_status add_padded(hri_run *run, hri_text *text, const spec *s, hri_value lead, hri_value body, char usual) {
  int64_t length = (int64_t)(lead.count + hri_count_codes(body.as.chars, body.count)),
          room = s->width > length ? s->width - length : 0;
  char align = s->align ? s->align : usual;
  int64_t before = align == '>' ? room : align == '^' ? room / 2 : 0, inside = align == '=' ? room : 0, i;
  HRI_TRY(hri_run_steps(run, 1 + (uint64_t)room));
  for (i = 0; i < before; i++) hri_text_add_bytes(text, s->fill, s->fill_bytes);
  hri_text_add_bytes(text, lead.as.chars, lead.count);
  for (i = 0; i < inside; i++) hri_text_add_bytes(text, s->fill, s->fill_bytes);
  hri_text_add_bytes(text, body.as.chars, body.count);
  for (i = before + inside; i < room; i++) hri_text_add_bytes(text, s->fill, s->fill_bytes);
  return hri_run_text(run, text);
}

/* Marks between groups of `each` digits of the whole part of "1234567.89". */
static size_t group_digits(const char *digits, size_t count, char mark, size_t each, char *out) {
  size_t whole = each == 3 ? strcspn(digits, ".eE%") : count, length = 0, i; /* 4: hexadecimal digits and the like */
  for (i = 0; i < count; i++) {
    if (mark && i > 0 && i < whole && (whole - i) % each == 0) out[length++] = mark;
    out[length++] = digits[i];
  }
  out[length] = 0;
  return length;
}

static hr_status add_number(hri_run *run, hri_text *text, const spec *s, bool negative, const char *prefix,
                            const char *digits) {
  char lead[8], grouped[2 * (FORMAT_PRECISION + 400)];
  size_t lead_count, count;
  (void)snprintf(lead, sizeof lead, "%s%s", negative ? "-" : s->sign == '+' ? "+" : s->sign == ' ' ? " " : "", prefix);
  lead_count = strlen(lead);
  if (s->grouping && s->align == '=' && *s->fill == '0' && s->width > 0)
    return hri_run_unsupported(run, "a format with groups of digits behind zeros");
  count = group_digits(digits, strlen(digits), s->grouping, among("boxX", s->type) ? 4 : 3, grouped);
  return add_padded(run, text, s, hri_chars(lead, lead_count), hri_chars(grouped, count), '>');
}

static hr_status add_float_spec(hri_run *run, hri_text *text, const spec *s, double value) {
  char digits[FORMAT_PRECISION + 400];
  char type = s->type == 'F' ? 'f' : s->type;
  int precision = s->precision < 0 ? 6 : (int)s->precision;
  if (type == '%') {
    value *= 100;
    type = 'f';
  }
  if (isnan(value)) (void)snprintf(digits, sizeof digits, "nan");
  else if (!among("eEfgG", type)) return hri_run_fail(run, "unknown format code '%c' for a float", s->type);
  else if (type == 'e')
    (void)hri_snprintf(digits, sizeof digits, s->alternate ? "%#.*e" : "%.*e", precision, fabs(value));
  else if (type == 'E')
    (void)hri_snprintf(digits, sizeof digits, s->alternate ? "%#.*E" : "%.*E", precision, fabs(value));
  else if (type == 'f')
    (void)hri_snprintf(digits, sizeof digits, s->alternate ? "%#.*f" : "%.*f", precision, fabs(value));
  else if (type == 'g')
    (void)hri_snprintf(digits, sizeof digits, s->alternate ? "%#.*g" : "%.*g", precision, fabs(value));
  else (void)hri_snprintf(digits, sizeof digits, s->alternate ? "%#.*G" : "%.*G", precision, fabs(value));
  if (s->type == '%') (void)snprintf(digits + strlen(digits), 2, "%%");
  return add_number(run, text, s, !isnan(value) && signbit(value), "", digits);
}

static hr_status add_integer_spec(hri_run *run, hri_text *text, const spec *s, int64_t value) {
  char digits[72];
  uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
  unsigned base = s->type == 'b' ? 2 : s->type == 'o' ? 8 : s->type == 'x' || s->type == 'X' ? 16 : 10;
  const char *prefix = !s->alternate || base == 10 ? ""
                       : base == 2                 ? "0b"
                       : base == 8                 ? "0o"
                       : s->type == 'x'            ? "0x"
                                                   : "0X";
  char *at = digits + sizeof digits - 1;
  *at = 0;
  do {
    *--at = (s->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[rest % base];
    rest /= base;
  } while (rest > 0);
  return add_number(run, text, s, value < 0, prefix, at);
}

static hr_status add_text_spec(hri_run *run, hri_text *text, const spec *s, hri_value value) {
  if (s->precision >= 0) value.count = (uint32_t)hri_code_offset(value.as.chars, value.count, (uint64_t)s->precision);
  return add_padded(run, text, s, hri_chars("", 0), value, '<');
}

static hr_status check_size(hri_run *run, const spec *s) {
  if (s->width <= FORMAT_WIDTH && s->precision <= FORMAT_PRECISION) return HR_OK;
  return hri_run_unsupported(run, "a format wider than %d or with more than %d decimals", FORMAT_WIDTH,
                             FORMAT_PRECISION);
}

/* ---- % ---- */

typedef struct percent {
  hri_run *run;
  hri_text *text;
  const char *at, *end;
  hri_value value; /* right of the % */
  bool mapping;
  uint32_t used; /* arguments */
} percent;

static hr_status next_argument(percent *p, hri_value *out) {
  uint32_t count = p->value.kind == HRI_TUPLE ? p->value.as.items->count : 1;
  if (p->used >= count) return hri_run_fail(p->run, "not enough arguments for format string");
  *out = p->value.kind == HRI_TUPLE ? p->value.as.items->at[p->used] : p->value;
  p->used++;
  return HR_OK;
}

/* %(name): an element of the mapping. */
static hr_status named_argument(percent *p, hri_value *out) {
  const char *name = ++p->at;
  int depth = 1;
  hri_value *found;
  for (; p->at < p->end; p->at++) {
    depth += (*p->at == '(') - (*p->at == ')');
    if (depth == 0) break;
  }
  if (p->at >= p->end) return hri_run_fail(p->run, "incomplete format key");
  if (p->value.kind != HRI_DICT) return hri_run_fail(p->run, "format requires a mapping");
  found = hri_dict_find(p->value.as.dict, hri_chars(name, (size_t)(p->at - name)));
  if (!found) return hri_run_fail(p->run, "the mapping has no key '%.*s'", (int)(p->at - name), name);
  *out = *found;
  p->at++;
  return HR_OK;
}

static hr_status percent_size(percent *p, int64_t *out) {
  hri_value argument;
  if (p->at < p->end && *p->at == '*') {
    p->at++;
    HRI_TRY(next_argument(p, &argument));
    return hri_as_integer(argument, out) ? HR_OK : hri_run_fail(p->run, "* wants int");
  }
  for (*out = 0; p->at < p->end && isdigit((unsigned char)*p->at) && *out <= FORMAT_WIDTH; p->at++)
    *out = *out * 10 + (*p->at - '0');
  return HR_OK;
}

static hr_status percent_integer(percent *p, spec *s, hri_value value) {
  int64_t integer;
  if (value.kind == HRI_UNDEFINED) return hri_fail_undefined(p->run, value);
  if (value.kind == HRI_FLOAT && among("diu", s->type)) {
    if (!(fabs(value.as.real) < 9223372036854775808.0)) return hri_run_unsupported(p->run, "an integer beyond 64 bits");
    value = hri_int((int64_t)value.as.real);
  }
  if (!hri_as_integer(value, &integer))
    return hri_run_fail(p->run, "%%%c format: a number is required, not %s", s->type, hri_type_name(value));
  if (s->precision >= 0) return hri_run_unsupported(p->run, "a precision for an integer");
  if (among("iu", s->type)) s->type = 'd';
  return add_integer_spec(p->run, p->text, s, integer);
}

static hr_status percent_text(percent *p, const spec *s, hri_value value) {
  hri_text shown = {0};
  hri_value text;
  hr_status status = s->type == 'r' ? hri_add_repr(p->run, &shown, value) : hri_add_str(p->run, &shown, value);
  if (status == HR_OK) status = hri_text_take(p->run, &shown, &text);
  hri_text_deinit(&shown);
  return status == HR_OK ? add_text_spec(p->run, p->text, s, text) : status;
}

static hr_status percent_value(percent *p, spec *s, hri_value value) {
  int64_t integer;
  if (among("diuxXo", s->type)) return percent_integer(p, s, value);
  if (s->type == 's' || s->type == 'r') {
    if (s->align == '=') s->align = '>';
    s->fill = " ";
    if (!s->align) s->align = '>';
    return percent_text(p, s, value);
  }
  if (among("eEfFgG", s->type)) {
    if (value.kind == HRI_UNDEFINED) return hri_fail_undefined(p->run, value);
    if (value.kind == HRI_FLOAT) return add_float_spec(p->run, p->text, s, value.as.real);
    if (hri_as_integer(value, &integer)) return add_float_spec(p->run, p->text, s, (double)integer);
    return hri_run_fail(p->run, "must be real number, not %s", hri_type_name(value));
  }
  if (s->type == 'c' || s->type == 'a') return hri_run_unsupported(p->run, "the format character '%c'", s->type);
  return hri_run_fail(p->run, "unsupported format character '%c'", s->type);
}

/* One conversion, behind its '%'. */
static hr_status percent_field(percent *p) {
  spec s = {.fill = " ", .fill_bytes = 1, .precision = -1};
  hri_value value = {0};
  if (p->at < p->end && *p->at == '(') HRI_TRY(named_argument(p, &value));
  for (; p->at < p->end && among("-+ #0", *p->at); p->at++) {
    if (*p->at == '-') s.align = '<';
    if (*p->at == '+' || (*p->at == ' ' && !s.sign)) s.sign = *p->at;
    if (*p->at == '#') s.alternate = true;
    if (*p->at == '0' && s.align != '<') s.align = '=', s.fill = "0";
  }
  if (s.align == '<') s.fill = " ";
  HRI_TRY(percent_size(p, &s.width));
  if (s.width < 0) s.align = '<', s.fill = " ", s.width = s.width < -FORMAT_WIDTH ? FORMAT_WIDTH + 1 : -s.width;
  if (p->at < p->end && *p->at == '.') {
    p->at++;
    HRI_TRY(percent_size(p, &s.precision));
    if (s.precision < 0) s.precision = 0;
  }
  while (p->at < p->end && among("hlL", *p->at)) p->at++;
  if (p->at >= p->end) return hri_run_fail(p->run, "incomplete format");
  s.type = *p->at++;
  HRI_TRY(check_size(p->run, &s));
  if (s.type == '%') {
    hri_text_add_bytes(p->text, "%", 1);
    return HR_OK;
  }
  if (value.kind == HRI_ABSENT) HRI_TRY(next_argument(p, &value));
  return percent_value(p, &s, value);
}

hr_status hri_percent(hri_run *run, hri_value format, hri_value value, hri_value *out) {
  hri_text text = {0};
  percent p = {.run = run, .text = &text, .at = format.as.chars, .end = format.as.chars + format.count, .value = value};
  hr_status status = HR_OK;
  if (format.flag) return hri_run_unsupported(run, "'%%' on a text marked safe");
  p.mapping =
      value.kind == HRI_DICT || value.kind == HRI_LIST || value.kind == HRI_RANGE || value.kind == HRI_UNDEFINED;
  while (p.at < p.end && status == HR_OK) {
    const char *next = memchr(p.at, '%', (size_t)(p.end - p.at));
    if (!next) next = p.end;
    hri_text_add_bytes(&text, p.at, (size_t)(next - p.at));
    p.at = next;
    if (next < p.end) {
      p.at++;
      status = percent_field(&p);
    }
  }
  if (status == HR_OK && !p.mapping && p.used < (value.kind == HRI_TUPLE ? value.as.items->count : 1))
    status = hri_run_fail(run, "not all arguments converted during string formatting");
  if (status == HR_OK) status = hri_text_take(run, &text, out);
  hri_text_deinit(&text);
  return status;
}

/* ---- str.format ---- */

typedef struct formatter {
  hri_run *run;
  hri_text *text;
  const char *at, *end;
  const hri_arguments *arguments;
  int64_t next;  /* of the fields without a number; -1 once one had a number */
  bool numbered; /* a field had none */
} formatter;

static bool align_char(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

static int64_t spec_digits(const char **at, const char *end) {
  int64_t value = 0;
  for (; *at < end && isdigit((unsigned char)**at) && value <= FORMAT_WIDTH; ++*at) value = value * 10 + (**at - '0');
  return value;
}

/* [[fill]align][sign][#][0][width][,][.precision][type] */
static hr_status parse_spec(hri_run *run, const char *at, const char *end, spec *out) {
  spec s = {.fill = " ", .fill_bytes = 1, .precision = -1};
  size_t bytes = 0;
  bool filled = false;
  if (at < end) (void)hri_decode(at, &bytes);
  if (at < end && at + bytes < end && align_char(at[bytes])) {
    s.fill = at;
    s.fill_bytes = bytes;
    s.align = at[bytes];
    at += bytes + 1;
    filled = true;
  } else if (at < end && align_char(*at)) {
    s.align = *at++;
  }
  if (at < end && among("+- ", *at)) s.sign = *at++;
  if (at < end && *at == '#') s.alternate = true, at++;
  if (at < end && *at == '0') {
    if (!s.align || !filled) s.fill = "0", s.fill_bytes = 1;
    if (!s.align) s.align = '=', s.implied = true;
    at++;
  }
  s.width = spec_digits(&at, end);
  if (at < end && among(",_", *at)) s.grouping = *at++;
  if (at < end && *at == '.') {
    at++;
    if (at >= end || !isdigit((unsigned char)*at)) return hri_run_fail(run, "format specifier missing precision");
    s.precision = spec_digits(&at, end);
  }
  if (at < end) s.type = *at++;
  if (at < end) return hri_run_fail(run, "invalid format specifier");
  *out = s;
  return check_size(run, &s);
}

static hr_status bad_code(hri_run *run, const spec *s, hri_value value) {
  if (s->type == 'n' || s->type == 'c') return hri_run_unsupported(run, "the format code '%c'", s->type);
  return hri_run_fail(run, "unknown format code '%c' for object of type '%s'", s->type ? s->type : ' ',
                      hri_type_name(value));
}

static hr_status format_number(formatter *f, spec *s, hri_value value) {
  hri_text shown = {0};
  hri_value text;
  int64_t integer;
  hr_status status;
  if (hri_as_integer(value, &integer)) {
    if (among("eEfFgG%", s->type)) return add_float_spec(f->run, f->text, s, (double)integer);
    if (s->type && !among("dboxX", s->type)) return bad_code(f->run, s, value);
    if (s->precision >= 0) return hri_run_fail(f->run, "precision not allowed in integer format specifier");
    if (!s->type) s->type = 'd';
    return add_integer_spec(f->run, f->text, s, integer);
  }
  if (s->type && !among("eEfFgG%", s->type)) return bad_code(f->run, s, value);
  if (s->type) return add_float_spec(f->run, f->text, s, value.as.real);
  if (s->precision >= 0 || s->grouping) return hri_run_unsupported(f->run, "a format with precision but no type");
  hri_add_float(&shown, fabs(value.as.real));
  status = hri_text_take(f->run, &shown, &text);
  if (status != HR_OK) return status;
  return add_padded(f->run, f->text, s,
                    signbit(value.as.real) ? hri_chars("-", 1)
                                           : hri_chars(s->sign == '+' ? "+" : " ", s->sign == '+' || s->sign == ' '),
                    text, '>');
}

static hr_status format_value(formatter *f, hri_value value, const char *at, const char *end) {
  spec s;
  if (at == end) return hri_add_str(f->run, f->text, value);
  if (memchr(at, '{', (size_t)(end - at))) return hri_run_unsupported(f->run, "a field inside a format specifier");
  HRI_TRY(parse_spec(f->run, at, end, &s));
  if (value.kind == HRI_INT || value.kind == HRI_BOOL || value.kind == HRI_FLOAT) return format_number(f, &s, value);
  if (value.kind != HRI_STRING)
    return hri_run_fail(f->run, "unsupported format string passed to %s.__format__", hri_type_name(value));
  if (s.implied) s.align = 0;
  if (s.sign || s.alternate || s.align == '=')
    return hri_run_fail(f->run, "%s not allowed in string format specifier",
                        s.sign        ? "Sign"
                        : s.alternate ? "Alternate form (#)"
                                      : "'=' alignment");
  if ((s.type && s.type != 's') || s.grouping) return bad_code(f->run, &s, value);
  return add_text_spec(f->run, f->text, &s, value);
}

static hr_status first_argument(formatter *f, const char *name, size_t bytes, hri_value *out) {
  int64_t index;
  uint32_t i;
  if (bytes == 0 || isdigit((unsigned char)*name)) {
    if (bytes == 0 ? f->next < 0 : f->numbered)
      return hri_run_fail(f->run, "cannot switch between automatic and manual field numbering");
    if (bytes > 0 && hri_parse_integer(name, bytes, 10, &index) != HRI_PARSED)
      return hri_run_fail(f->run, "invalid field name");
    if (bytes == 0) index = f->next++, f->numbered = true;
    else f->next = -1;
    if (index >= f->arguments->count)
      return hri_run_fail(f->run, "replacement index %lld out of range for positional args tuple", (long long)index);
    *out = f->arguments->at[index];
    return HR_OK;
  }
  for (i = 0; i < f->arguments->named_count; i++)
    if (hri_equal(f->arguments->named[i].name, hri_chars(name, bytes))) {
      *out = f->arguments->named[i].value;
      return HR_OK;
    }
  return hri_run_fail(f->run, "the format names '%.*s', which is not given", (int)(bytes < 100 ? bytes : 100), name);
}

/* name, then .attribute or [index] any number of times. */
static hr_status field_value(formatter *f, const char *at, const char *end, hri_value *out) {
  size_t length = 0;
  int64_t index;
  while (at + length < end && at[length] != '.' && at[length] != '[') length++;
  HRI_TRY(first_argument(f, at, length, out));
  at += length;
  while (at < end) {
    bool element = *at++ == '[';
    for (length = 0; at + length < end && (element ? at[length] != ']' : at[length] != '.' && at[length] != '[');)
      length++;
    if (length == 0 || (element && at + length == end)) return hri_run_fail(f->run, "empty attribute in format string");
    if (!element) HRI_TRY(hri_attribute(f->run, *out, at, length, out));
    else if (isdigit((unsigned char)*at) && hri_parse_integer(at, length, 10, &index) == HRI_PARSED)
      HRI_TRY(hri_element(f->run, *out, hri_int(index), out));
    else HRI_TRY(hri_element(f->run, *out, hri_chars(at, length), out));
    at += length + element;
  }
  return HR_OK;
}

/* One field, behind its '{'. */
static hr_status format_field(formatter *f) {
  const char *begin = f->at, *name_end, *spec_begin;
  hri_value value;
  char conversion = 0;
  int depth = 1;
  for (; f->at < f->end; f->at++) {
    depth += (*f->at == '{') - (*f->at == '}');
    if (depth == 0) break;
  }
  if (f->at >= f->end) return hri_run_fail(f->run, "expected '}' before end of string");
  for (name_end = begin; name_end < f->at && *name_end != '!' && *name_end != ':'; name_end++)
    if (*name_end == '[')
      while (name_end + 1 < f->at && *name_end != ']') name_end++;
  spec_begin = name_end;
  if (spec_begin < f->at && *spec_begin == '!') {
    if (f->at - spec_begin < 2) return hri_run_fail(f->run, "unmatched '{' in format spec");
    conversion = spec_begin[1];
    spec_begin += 2;
    if (spec_begin < f->at && *spec_begin != ':')
      return hri_run_fail(f->run, "expected ':' after conversion specifier");
  }
  if (spec_begin < f->at) spec_begin++;
  HRI_TRY(field_value(f, begin, name_end, &value));
  if (conversion == 'r') {
    hri_text shown = {0};
    hr_status status = hri_add_repr(f->run, &shown, value);
    if (status == HR_OK) status = hri_text_take(f->run, &shown, &value);
    hri_text_deinit(&shown);
    HRI_TRY(status);
  } else if (conversion == 's') {
    HRI_TRY(hri_str(f->run, value, &value));
  } else if (conversion) {
    return hri_run_unsupported(f->run, "the conversion '!%c'", conversion);
  }
  HRI_TRY(format_value(f, value, spec_begin, f->at));
  f->at++;
  return HR_OK;
}

static hr_status format_text(formatter *f) {
  while (f->at < f->end) {
    char c = *f->at++;
    bool doubled = f->at < f->end && *f->at == c;
    if (c != '{' && c != '}') hri_text_add_bytes(f->text, &c, 1);
    else if (doubled) hri_text_add_bytes(f->text, f->at++, 1);
    else if (c == '}') return hri_run_fail(f->run, "single '}' encountered in format string");
    else HRI_TRY(format_field(f));
  }
  return HR_OK;
}

hr_status hri_str_format(hri_run *run, hri_value format, const hri_arguments *arguments, hri_value *out) {
  hri_text text = {0};
  formatter f = {.run = run,
                 .text = &text,
                 .at = format.as.chars,
                 .end = format.as.chars + format.count,
                 .arguments = arguments};
  hr_status status;
  if (format.flag) return hri_run_unsupported(run, "format() of a text marked safe");
  status = format_text(&f);
  if (status == HR_OK) status = hri_text_take(run, &text, out);
  hri_text_deinit(&text);
  return status;
}
