/* Text runs up to the next "{{", "{%" or "{#"; in between stands a small language. What makes it intricate is white
 * space: a '-' inside a tag eats all of it on that side; without '+', a block or comment tag alone on its line eats the
 * blanks before it (lstrip_blocks) and the newline behind it (trim_blocks). Print tags eat nothing by themselves.
 * Source: pallets/jinja, src/jinja2/lexer.py of 3.1. */
#include "chat/lex.h"

#include <ctype.h>
#include <string.h>

#include "chat/numbers.h"
#include "chat/unicode.h"

enum { LEX_NESTING = 256 };

typedef struct lexer {
  hri_template *template;
  const char *text;
  uint32_t end, at;
  bool line_starting;     /* what was matched last ended with a newline */
  char open[LEX_NESTING]; /* brackets to be closed */
  uint32_t open_count;
  hri_tokens *tokens;
  hr_error *error;
} lexer;

static hr_status push(lexer *lex, hri_token token) {
  return hri_array_push(lex->tokens, token) ? HR_OK : hri_fail_memory(lex->error, sizeof token, "tokens of a template");
}

static bool looking_at(const lexer *lex, uint32_t at, const char *text) {
  size_t length = strlen(text);
  return lex->end - at >= length && memcmp(lex->text + at, text, length) == 0;
}

static uint32_t skip_space(const lexer *lex, uint32_t at) {
  while (at < lex->end) {
    size_t bytes;
    if (!hri_is_space(hri_decode(lex->text + at, &bytes))) break;
    at += (uint32_t)bytes;
  }
  return at;
}

/* Where [begin, end) ends without the blanks at its end. */
static uint32_t strip_right(const lexer *lex, uint32_t begin, uint32_t end) {
  while (end > begin) {
    size_t bytes;
    if (!hri_is_space(hri_decode_back(lex->text + end, &bytes))) break;
    end -= (uint32_t)bytes;
  }
  return end;
}

/* Text before a tag with the sign '-', '+' or none. */
static hr_status push_data(lexer *lex, uint32_t begin, uint32_t end, char sign, bool block) {
  hri_token token = {.kind = HRI_TOKEN_DATA, .at = begin};
  if (sign == '-') {
    end = strip_right(lex, begin, end);
  } else if (sign != '+' && block) {
    uint32_t line = end;
    while (line > begin && lex->text[line - 1] != '\n') line--;
    if ((line > begin || lex->line_starting) && skip_space(lex, line) >= end) end = line;
  }
  token.bytes = end - begin;
  return token.bytes > 0 ? push(lex, token) : HR_OK;
}

/* The end of a block or comment tag at `at`: "-%}" with the white space behind it, "+%}", or "%}" with one newline
 * behind it.
 * 0 when there is none. */
static uint32_t tag_end(const lexer *lex, uint32_t at, const char *close) {
  if (at < lex->end && lex->text[at] == '-' && looking_at(lex, at + 1, close)) return skip_space(lex, at + 3);
  if (at < lex->end && lex->text[at] == '+' && looking_at(lex, at + 1, close)) return at + 3;
  if (!looking_at(lex, at, close)) return 0;
  return at + 2 < lex->end && lex->text[at + 2] == '\n' ? at + 3 : at + 2;
}

static void moved(lexer *lex, uint32_t to) {
  lex->at = to;
  lex->line_starting = to > 0 && lex->text[to - 1] == '\n';
}

static hr_status lex_comment(lexer *lex, uint32_t begin) {
  uint32_t at;
  for (at = lex->at; at < lex->end; at++) {
    uint32_t end = tag_end(lex, at, "#}");
    if (end == 0) continue;
    moved(lex, end);
    return HR_OK;
  }
  return hri_template_fail(lex->template, begin, lex->error, "the comment that begins here has no end '#}'");
}

/* At "{%" and perhaps a sign: the end of "raw %}", or 0. The newline behind it stays. */
static uint32_t raw_begin(const lexer *lex, uint32_t at) {
  at = skip_space(lex, at);
  if (!looking_at(lex, at, "raw")) return 0;
  at = skip_space(lex, at + 3);
  if (looking_at(lex, at, "-%}")) return skip_space(lex, at + 3);
  return looking_at(lex, at, "%}") ? at + 2 : 0;
}

static hr_status lex_raw(lexer *lex, uint32_t begin) {
  uint32_t at, from = lex->at;
  for (at = from; at < lex->end; at++) {
    uint32_t inside, end;
    char sign = 0;
    if (!looking_at(lex, at, "{%")) continue;
    inside = at + 2;
    if (inside < lex->end && (lex->text[inside] == '-' || lex->text[inside] == '+')) sign = lex->text[inside++];
    inside = skip_space(lex, inside);
    if (!looking_at(lex, inside, "endraw")) continue;
    end = tag_end(lex, skip_space(lex, inside + 6), "%}");
    if (end == 0) continue;
    HRI_TRY(push_data(lex, from, at, sign, true));
    moved(lex, end);
    return HR_OK;
  }
  return hri_template_fail(lex->template, begin, lex->error, "the raw block that begins here has no '{%% endraw %%}'");
}

/* ---- Inside a tag ---- */

static uint32_t hex_digits(const char *at, uint32_t wanted, uint32_t left, bool *fine) {
  uint32_t i, code = 0;
  *fine = left >= wanted;
  for (i = 0; i < wanted && *fine; i++) {
    int c = tolower((unsigned char)at[i]);
    if (!isxdigit(c)) *fine = false;
    else code = code << 4 | (uint32_t)(c <= '9' ? c - '0' : c - 'a' + 10);
  }
  return code;
}

/* One escape behind its backslash at text[at], before `end`; returns the bytes it took, 0 when it is malformed. */
static uint32_t unescape(const char *text, uint32_t at, uint32_t end, hri_text *out) {
  static const char simple[] = "\\'\"abfnrtv", means[] = "\\'\"\a\b\f\n\r\t\v";
  char c = text[at], bytes[4];
  const char *found = c ? strchr(simple, c) : NULL;
  uint32_t code = 0, length = 1;
  if (c == '\n') return 1;
  if (found) {
    hri_text_add_bytes(out, means + (found - simple), 1);
    return 1;
  }
  if (c >= '0' && c <= '7') {
    for (length = 0; length < 3 && at + length < end && text[at + length] >= '0' && text[at + length] <= '7'; length++)
      code = code * 8 + (uint32_t)(text[at + length] - '0');
  } else if (c == 'x' || c == 'u' || c == 'U') {
    bool fine;
    uint32_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
    code = hex_digits(text + at + 1, digits, end - at - 1, &fine);
    if (!fine || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return 0;
    length = digits + 1;
  } else if (c == 'N') {
    return 0;
  } else { /* the backslash stays */
    hri_text_add_bytes(out, "\\", 1);
    return UINT32_MAX;
  }
  hri_text_add_bytes(out, bytes, hri_encode(code, bytes));
  return length;
}

static hr_status keep_text(lexer *lex, hri_text *text, hri_value *out) {
  char *copy = text->failed ? NULL : hri_pool_alloc(&lex->template->pool, text->length + 1);
  if (copy) {
    if (text->length > 0) memcpy(copy, text->chars, text->length);
    copy[text->length] = 0;
    *out = hri_chars(copy, text->length);
  }
  hri_text_deinit(text);
  return copy ? HR_OK : hri_fail_memory(lex->error, text->length, "a string of a template");
}

static hr_status lex_string(lexer *lex) {
  const char *text = lex->text;
  char quote = text[lex->at];
  uint32_t begin = lex->at, at = begin + 1, end = at;
  hri_text out = {0};
  hri_token token = {.kind = HRI_TOKEN_STRING, .at = begin};
  while (end < lex->end && text[end] != quote) end += text[end] == '\\' ? 2 : 1;
  if (end >= lex->end)
    return hri_template_fail(lex->template, begin, lex->error, "the string that begins here has no end");
  while (at < end) {
    uint32_t plain = at, taken;
    while (at < end && text[at] != '\\') at++;
    hri_text_add_bytes(&out, text + plain, at - plain);
    if (at >= end) break;
    taken = unescape(text, at + 1, end, &out);
    if (taken == 0) {
      hri_text_deinit(&out);
      return hri_template_fail(lex->template, at, lex->error,
                               "the escape '\\%c' in this string is malformed or not supported", text[at + 1]);
    }
    at += taken == UINT32_MAX ? 1 : taken + 1;
  }
  HRI_TRY(keep_text(lex, &out, &token.value));
  token.bytes = end + 1 - begin;
  moved(lex, end + 1);
  return push(lex, token);
}

/* Digits with single '_' between them. */
static uint32_t skip_digits(const lexer *lex, uint32_t at) {
  while (at < lex->end && (isdigit((unsigned char)lex->text[at]) ||
                           (lex->text[at] == '_' && at + 1 < lex->end && isdigit((unsigned char)lex->text[at + 1]))))
    at++;
  return at;
}

/* Where a float that begins at lex->at ends; 0 when none does. */
static uint32_t float_end(const lexer *lex) {
  uint32_t at = skip_digits(lex, lex->at), exponent;
  bool is_float = false;
  if (lex->at > 0 && lex->text[lex->at - 1] == '.') return 0;
  if (at + 1 < lex->end && lex->text[at] == '.' && isdigit((unsigned char)lex->text[at + 1])) {
    at = skip_digits(lex, at + 1);
    is_float = true;
  }
  if (at < lex->end && (lex->text[at] == 'e' || lex->text[at] == 'E')) {
    exponent = at + 1;
    if (exponent < lex->end && (lex->text[exponent] == '+' || lex->text[exponent] == '-')) exponent++;
    if (exponent < lex->end && isdigit((unsigned char)lex->text[exponent])) {
      at = skip_digits(lex, exponent);
      is_float = true;
    }
  }
  return is_float ? at : 0;
}

static bool is_digit_of(char c, uint32_t base) {
  return base == 16 ? isxdigit((unsigned char)c) : c >= '0' && c < (char)('0' + base);
}

/* Where an integer ends, and its base. "012" is cut behind the zeros, as Jinja does. */
static uint32_t integer_end(const lexer *lex, uint32_t *base) {
  const char *text = lex->text;
  uint32_t at = lex->at, from;
  char prefix = at + 1 < lex->end ? (char)tolower((unsigned char)text[at + 1]) : 0;
  *base = 10;
  if (text[at] == '0') {
    *base = prefix == 'b' ? 2 : prefix == 'o' ? 8 : prefix == 'x' ? 16 : 10;
    from = *base == 10 ? at : at + 2;
    for (at = from; at < lex->end; at++) {
      char c = text[at] == '_' && at + 1 < lex->end ? text[at + 1] : text[at];
      if (*base == 10 ? c != '0' : !is_digit_of(c, *base)) break;
    }
    if (at > from) return at;
    *base = 10;
    return lex->at + 1;
  }
  return skip_digits(lex, at);
}

static hr_status lex_number(lexer *lex) {
  char digits[400];
  uint32_t begin = lex->at, base = 10, end = float_end(lex), i, length = 0;
  hri_token token = {.kind = end ? HRI_TOKEN_FLOAT : HRI_TOKEN_INTEGER, .at = begin};
  bool fine = true;
  if (end == 0) end = integer_end(lex, &base);
  if (end - begin >= sizeof digits)
    return hri_template_fail(lex->template, begin, lex->error, "the number that begins here is too long");
  for (i = begin + (base == 10 ? 0 : 2); i < end; i++)
    if (lex->text[i] != '_') digits[length++] = lex->text[i];
  digits[length] = 0;
  if (token.kind == HRI_TOKEN_FLOAT) {
    token.value.kind = HRI_FLOAT;
    fine = hri_parse_float(digits, length, &token.value.as.real);
  } else {
    int64_t value = 0;
    for (i = 0; i < length && fine; i++) {
      int c = tolower((unsigned char)digits[i]), digit = c <= '9' ? c - '0' : c - 'a' + 10;
      fine = !__builtin_mul_overflow(value, (int64_t)base, &value) &&
             !__builtin_add_overflow(value, (int64_t)digit, &value);
    }
    token.value = hri_int(value);
  }
  if (!fine)
    return hri_template_fail(lex->template, begin, lex->error,
                             "the number that begins here is beyond 64 bits, which is not supported");
  token.bytes = end - begin;
  moved(lex, end);
  return push(lex, token);
}

static bool name_code(uint32_t code) { return code == '_' || (code < 0x80 ? isalnum((int)code) : hri_is_alnum(code)); }

static hr_status lex_name(lexer *lex) {
  hri_token token = {.kind = HRI_TOKEN_NAME, .at = lex->at};
  uint32_t at = lex->at;
  while (at < lex->end) {
    size_t bytes;
    if (!name_code(hri_decode(lex->text + at, &bytes))) break;
    at += (uint32_t)bytes;
  }
  token.bytes = at - lex->at;
  token.value = hri_chars(lex->text + lex->at, token.bytes);
  moved(lex, at);
  return push(lex, token);
}

static hr_status balance(lexer *lex, char c) {
  char wanted;
  if (c == '(' || c == '[' || c == '{') {
    if (lex->open_count == LEX_NESTING)
      return hri_template_fail(lex->template, lex->at, lex->error, "brackets are nested deeper than %d", LEX_NESTING);
    lex->open[lex->open_count++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    return HR_OK;
  }
  if (c != ')' && c != ']' && c != '}') return HR_OK;
  if (lex->open_count == 0) return hri_template_fail(lex->template, lex->at, lex->error, "unexpected '%c'", c);
  wanted = lex->open[--lex->open_count];
  if (wanted != c)
    return hri_template_fail(lex->template, lex->at, lex->error, "unexpected '%c', expected '%c'", c, wanted);
  return HR_OK;
}

static hr_status lex_operator(lexer *lex) {
  static const char *const pairs[] = {"//", "**", "==", "!=", ">=", "<="};
  hri_token token = {.kind = HRI_TOKEN_OPERATOR, .at = lex->at, .bytes = 1, .code = (unsigned char)lex->text[lex->at]};
  size_t i;
  for (i = 0; i < sizeof pairs / sizeof *pairs; i++)
    if (looking_at(lex, lex->at, pairs[i])) {
      token.bytes = 2;
      token.code = (uint32_t)pairs[i][0] << 8 | (uint32_t)pairs[i][1];
    }
  if (token.bytes == 1 && !strchr("+-/*%~[](){}><=.:|,;", (int)token.code))
    return hri_template_fail(lex->template, lex->at, lex->error, "unexpected character '%c'", (int)token.code);
  HRI_TRY(balance(lex, lex->text[lex->at]));
  moved(lex, lex->at + token.bytes);
  return push(lex, token);
}

/* The end of a tag at this place; 0 when there is none. */
static uint32_t ends_here(const lexer *lex, bool block) {
  if (lex->open_count > 0) return 0;
  if (block) return tag_end(lex, lex->at, "%}");
  if (looking_at(lex, lex->at, "-}}")) return skip_space(lex, lex->at + 3);
  return looking_at(lex, lex->at, "}}") ? lex->at + 2 : 0;
}

static hr_status lex_tag(lexer *lex, uint32_t begin, bool block) {
  lex->open_count = 0;
  while (lex->at < lex->end) {
    size_t bytes;
    uint32_t end = ends_here(lex, block), code;
    if (end > 0) {
      hri_token token = {.kind = block ? HRI_TOKEN_BLOCK_END : HRI_TOKEN_PRINT_END, .at = lex->at, .bytes = 2};
      moved(lex, end);
      return push(lex, token);
    }
    code = hri_decode(lex->text + lex->at, &bytes);
    if (hri_is_space(code)) moved(lex, skip_space(lex, lex->at));
    else if (code < 0x80 && isdigit((int)code)) HRI_TRY(lex_number(lex));
    else if (name_code(code)) HRI_TRY(lex_name(lex));
    else if (code == '\'' || code == '"') HRI_TRY(lex_string(lex));
    else if (code >= 0x80)
      return hri_template_fail(lex->template, lex->at, lex->error, "unexpected character '%.*s'", (int)bytes,
                               lex->text + lex->at);
    else HRI_TRY(lex_operator(lex));
  }
  return hri_template_fail(lex->template, begin, lex->error, "the tag that begins here has no end '%s'",
                           block ? "%}" : "}}");
}

/* The next "{{", "{%" or "{#" at or behind `at`; the end when there is none. */
static uint32_t next_tag(const lexer *lex, uint32_t at) {
  while (at + 1 < lex->end) {
    const char *found = memchr(lex->text + at, '{', lex->end - 1 - at);
    if (!found) break;
    at = (uint32_t)(found - lex->text);
    if (found[1] == '{' || found[1] == '%' || found[1] == '#') return at;
    at++;
  }
  return lex->end;
}

static hr_status lex_next(lexer *lex) {
  uint32_t from = lex->at, begin = next_tag(lex, from), inside, raw;
  hri_token token = {.at = begin, .bytes = 2};
  char kind, sign = 0;
  if (begin == lex->end) {
    token = (hri_token){.kind = HRI_TOKEN_DATA, .at = from, .bytes = lex->end - from};
    lex->at = lex->end;
    return push(lex, token);
  }
  kind = lex->text[begin + 1];
  inside = begin + 2;
  if (inside < lex->end && (lex->text[inside] == '-' || lex->text[inside] == '+')) sign = lex->text[inside++];
  HRI_TRY(push_data(lex, from, begin, sign, kind != '{'));
  raw = kind == '%' ? raw_begin(lex, inside) : 0;
  moved(lex, raw ? raw : inside);
  if (kind == '#') return lex_comment(lex, begin);
  if (raw) return lex_raw(lex, begin);
  token.kind = kind == '%' ? HRI_TOKEN_BLOCK_BEGIN : HRI_TOKEN_PRINT_BEGIN;
  HRI_TRY(push(lex, token));
  return lex_tag(lex, begin, kind == '%');
}

hr_status hri_lex(hri_template *template, hri_tokens *tokens, hr_error *error) {
  lexer lex = {.template = template,
               .text = template->source,
               .end = template->bytes,
               .line_starting = true,
               .tokens = tokens,
               .error = error};
  hri_token end = {.kind = HRI_TOKEN_END, .at = template->bytes};
  while (lex.at < lex.end) HRI_TRY(lex_next(&lex));
  return push(&lex, end);
}
