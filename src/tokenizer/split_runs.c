/* Regexes that are alternatives of runs, matched without PCRE2: nearly all patterns of pre-tokenizers.
 *
 *   alternative    elements one after another; the first alternative that matches wins, at the leftmost place
 *   element        a character or class with ? * + {n} {n,} {n,m}, greedy or possessive (?+ *+ ++); or, of one
 *                  character ahead, (?=class) and (?!class)
 *   class          [...] of characters, ranges, \s \d \uHHHH \p{general category} and positive classes, or its complement
 *   group          (?:..|..) and (?i:..|..) of elements and groups, once, or at most once (?)
 *
 * They are read here; split_states.c makes a table of states of them. Everything else, and all errors, are left to PCRE2
 * (split_regex.c), which means the same by these patterns: the tests compare both on random patterns and texts. */
#include "tokenizer/split_runs.h"

#include <string.h>

#include "tokenizer/unicode.h"

enum { TIMES_MAX = 1000 /* of {n,m} */, NEST_MAX = 4, GROUPS_MAX = 8 /* within each other */ };

/* ---- reading: false stands for "not one of these" ---- */

typedef struct reader {
  const char *at, *end;
  hri_run_pattern *runs;
  bool fold;     /* within (?i:..) */
  uint32_t nest; /* classes within classes */
  uint32_t groups;
} reader;

static int peek(const reader *r, ptrdiff_t ahead) { return r->end - r->at > ahead ? (uint8_t)r->at[ahead] : -1; }

static bool next_is(const reader *r, const char *word) {
  size_t length = strlen(word);
  return (size_t)(r->end - r->at) >= length && memcmp(r->at, word, length) == 0;
}

static bool add_range(hri_run_class *to, uint32_t first, uint32_t last) {
  for (uint32_t point = first; point <= last && point < 0x80; point++) to->ascii[point] = 1;
  if (last < 0x80) return true;
  if (to->range_count == HRI_RUNS_RANGES) return false;
  to->ranges[to->range_count].first = first < 0x80 ? 0x80 : first;
  to->ranges[to->range_count++].last = last;
  return true;
}

/* Ignoring case, K is also the sign of Kelvin, and s the long s. */
static bool add_point(const reader *r, hri_run_class *to, uint32_t point) {
  const uint32_t lower = point | 0x20;
  if (r->fold && point >= 0x80) return false;
  if (!r->fold || lower < 'a' || lower > 'z') return add_range(to, point, point);
  to->ascii[lower] = to->ascii[lower ^ 0x20] = 1;
  if (lower == 'k') return add_range(to, 0x212A, 0x212A);
  if (lower == 's') return add_range(to, 0x17F, 0x17F);
  return true;
}

static void add_set(hri_run_class *to, uint32_t set) {
  to->set |= set;
  for (uint32_t point = 0; point < 0x80; point++)
    if (hri_unicode_set(point) & set) to->ascii[point] = 1;
}

/* The set of \p{name}: a general category by its letters; 0 for others. */
static uint32_t set_named(const char *name, size_t bytes) {
  static const char two[] = "LuLlLtLmLoMnMcMeNdNlNoPcPdPsPePiPfPoSmScSkSoZsZlZp";
  uint32_t set = 0;
  for (uint32_t i = 0; two[2 * i]; i++)
    if (two[2 * i] == name[0] && (bytes == 1 || (bytes == 2 && two[2 * i + 1] == name[1]))) set |= 1u << i;
  return set;
}

/* A "\" with what follows into a class; *complement: it is the complement of what was put there. */
static bool read_escape(reader *r, hri_run_class *to, bool *complement) {
  static const char letters[] = "tnrfv", values[] = "\t\n\r\f\v";
  const int c = peek(r, 1);
  const char *found = c > 0 ? strchr(letters, c) : NULL;
  *complement = c == 'S' || c == 'D' || c == 'P';
  if (c < 0 || c >= 0x80) return false;
  r->at += 2;
  if (found) return add_range(to, (uint8_t)values[found - letters], (uint8_t)values[found - letters]);
  if ((c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || c >= '{')
    return add_point(r, to, (uint32_t)c);
  if (r->fold) return false;
  if (c == 's' || c == 'S') return add_set(to, HRI_SET_SPACE), true;
  if (c == 'd' || c == 'D') return add_set(to, 1u << HRI_CATEGORY_ND), true;
  if ((c == 'p' || c == 'P') && peek(r, 0) == '{') {
    const char *name = r->at + 1, *close = memchr(name, '}', (size_t)(r->end - name));
    uint32_t set = close && close > name ? set_named(name, (size_t)(close - name)) : 0;
    if (set == 0) return false;
    r->at = close + 1;
    return add_set(to, set), true;
  }
  return false;
}

/* The four digits behind "\u". */
static bool read_number_of_point(reader *r, uint32_t *point) {
  *point = 0;
  r->at += 2;
  for (uint32_t i = 0; i < 4; i++, r->at++) {
    const int c = peek(r, 0);
    const bool digit = c >= '0' && c <= '9';
    if (!digit && !((c | 0x20) >= 'a' && (c | 0x20) <= 'f')) return false;
    *point = *point << 4 | (uint32_t)(digit ? c - '0' : (c | 0x20) - 'a' + 10);
  }
  return *point < 0xD800 || *point > 0xDFFF;
}

static bool read_point(reader *r, uint32_t *point) {
  bool valid;
  if (next_is(r, "\\u")) return read_number_of_point(r, point);
  r->at += hri_utf8_decode(r->at, (size_t)(r->end - r->at), point, &valid);
  return valid;
}

/* One member of a class: a character, a range, an escape, a positive class within. */
static bool read_members(reader *r, hri_run_class *to);
static bool read_member(reader *r, hri_run_class *to) {
  uint32_t first, last;
  bool complement;
  if (peek(r, 0) < 0 || next_is(r, "&&") || next_is(r, "[:") || next_is(r, "[^")) return false;
  if (peek(r, 0) == '[') return r->at++, r->nest++ < NEST_MAX && read_members(r, to);
  if (peek(r, 0) == '\\' && peek(r, 1) != 'u')
    return read_escape(r, to, &complement) && !complement && !(next_is(r, "-") && peek(r, 1) != ']');
  if (!read_point(r, &first)) return false;
  if (peek(r, 0) != '-' || peek(r, 1) == ']') return add_point(r, to, first);
  r->at++;
  if (first == '-' || peek(r, 0) < 0 || strchr("[-&", peek(r, 0))) return false;
  if ((peek(r, 0) == '\\' && peek(r, 1) != 'u') || !read_point(r, &last)) return false;
  if (last < first || r->fold || (peek(r, 0) == '-' && peek(r, 1) != ']')) return false;
  return add_range(to, first, last);
}

/* What follows "[", or "[^", up to the closing bracket. */
static bool read_members(reader *r, hri_run_class *to) {
  if (peek(r, 0) == ']') return false;
  while (peek(r, 0) != ']')
    if (!read_member(r, to)) return false;
  r->at++;
  r->nest -= r->nest > 0;
  return true;
}

static void negate(hri_run_class *to) {
  to->negated = !to->negated;
  for (uint32_t point = 0; point < 0x80; point++) to->ascii[point] ^= 1;
}

/* A character or class outside of brackets: its number among the classes. */
static bool read_class(reader *r, uint32_t *number) {
  hri_run_pattern *runs = r->runs;
  hri_run_class *made = &runs->classes[runs->class_count];
  uint32_t point;
  bool complement = false, fine;
  if (runs->class_count == HRI_RUNS_CLASSES || peek(r, 0) < 0 || strchr("()|*+?{}.^$]", peek(r, 0))) return false;
  memset(made, 0, sizeof *made);
  if (peek(r, 0) == '\\' && peek(r, 1) != 'u') {
    fine = read_escape(r, made, &complement);
  } else if (peek(r, 0) == '[') {
    complement = peek(r, 1) == '^';
    r->at += complement ? 2 : 1;
    fine = read_members(r, made);
  } else {
    fine = read_point(r, &point) && add_point(r, made, point);
  }
  if (!fine || (complement && r->fold)) return false;
  if (complement) negate(made);
  for (*number = 0; *number < runs->class_count; ++*number)
    if (memcmp(&runs->classes[*number], made, sizeof *made) == 0) return true;
  runs->class_count++;
  return true;
}

static bool read_number(reader *r, uint32_t *number) {
  const char *begin = r->at;
  *number = 0;
  for (; peek(r, 0) >= '0' && peek(r, 0) <= '9' && *number <= TIMES_MAX; r->at++)
    *number = 10 * *number + (uint32_t)(*r->at - '0');
  return r->at > begin && *number <= TIMES_MAX;
}

/* "{n}", "{n,}", "{n,m}"; what follows would repeat the repeat. */
static bool read_interval(reader *r, hri_run_element *to) {
  r->at++;
  if (!read_number(r, &to->least)) return false;
  to->most = to->least;
  if (peek(r, 0) == ',') {
    r->at++;
    to->most = HRI_RUNS_UNBOUNDED;
    if (peek(r, 0) != '}' && !read_number(r, &to->most)) return false;
  }
  if (peek(r, 0) != '}' || to->most < to->least || to->most == 0) return false;
  r->at++;
  return peek(r, 0) != '+' && peek(r, 0) != '?';
}

static bool read_times(reader *r, hri_run_element *to) {
  const int c = peek(r, 0);
  if (c == '{') {
    if (!read_interval(r, to)) return false;
  } else if (c == '?' || c == '*' || c == '+') {
    to->least = c == '+';
    to->most = c == '?' ? 1 : HRI_RUNS_UNBOUNDED;
    r->at++;
    if (peek(r, 0) == '?') return false;
    to->keeps = peek(r, 0) == '+';
    if (to->keeps) r->at++;
  }
  return peek(r, 0) < 0 || !strchr("?*+{", peek(r, 0));
}

static bool put_element(hri_run_pattern *runs, const hri_run_element *made) {
  if (runs->element_count == HRI_RUNS_ELEMENTS) return false;
  runs->elements[runs->element_count++] = *made;
  runs->elements[runs->element_count - 1].after = runs->element_count;
  return true;
}

static bool repeats(const reader *r) { return peek(r, 0) >= 0 && strchr("?*+{", peek(r, 0)); }

static bool read_element(reader *r, uint32_t *least) {
  const bool ahead = next_is(r, "(?="), not_ahead = next_is(r, "(?!");
  hri_run_element made = {.least = 1,
                          .most = 1,
                          .kind = ahead       ? HRI_RUN_AHEAD
                                  : not_ahead ? HRI_RUN_NOT_AHEAD
                                              : HRI_RUN};
  if (made.kind != HRI_RUN) r->at += 3;
  if (!read_class(r, &made.class)) return false;
  if (made.kind == HRI_RUN) {
    if (!read_times(r, &made)) return false;
    *least += made.least;
    return put_element(r->runs, &made);
  }
  if (peek(r, 0) != ')') return false;
  r->at++;
  return !repeats(r) && put_element(r->runs, &made);
}

/* ---- alternatives ---- */

/* Alternatives up to the end of the pattern or a closing parenthesis, and the fewest characters that one of them takes.
 * *last is the EITHER of the last. */
static bool read_group(reader *r, uint32_t *least);
static bool read_alternatives(reader *r, uint32_t *last, uint32_t *least) {
  static const hri_run_element either = {.kind = HRI_RUN_EITHER, .other = HRI_RUNS_END};
  *least = UINT32_MAX;
  *last = HRI_RUNS_END;
  for (;; r->at++) {
    const uint32_t begin = r->runs->element_count;
    uint32_t takes = 0;
    if (!put_element(r->runs, &either)) return false;
    if (*last != HRI_RUNS_END) r->runs->elements[*last].other = begin;
    *last = begin;
    while (peek(r, 0) >= 0 && peek(r, 0) != '|' && peek(r, 0) != ')')
      if (next_is(r, "(?:") || next_is(r, "(?i:") ? !read_group(r, &takes) : !read_element(r, &takes)) return false;
    if (r->runs->element_count == begin + 1) return false;
    *least = takes < *least ? takes : *least;
    if (peek(r, 0) != '|') return true;
  }
}

/* Behind each alternative of the group that begins with the element `first` and is at its end comes `after`. */
static void join(hri_run_pattern *runs, uint32_t first, uint32_t after) {
  for (uint32_t either = first, next; either != HRI_RUNS_END; either = next) {
    next = runs->elements[either].other;
    runs->elements[(next == HRI_RUNS_END ? runs->element_count : next) - 1].after = after;
  }
}

static bool read_group(reader *r, uint32_t *least) {
  static const hri_run_element joined = {.kind = HRI_RUN_JOIN};
  hri_run_pattern *runs = r->runs;
  const bool fold = r->fold;
  const uint32_t first = runs->element_count;
  uint32_t last, takes;
  r->fold = fold || next_is(r, "(?i:");
  r->at += next_is(r, "(?i:") ? 4 : 3;
  if (r->groups++ == GROUPS_MAX || !read_alternatives(r, &last, &takes) || peek(r, 0) != ')') return false;
  r->at++;
  r->groups--;
  r->fold = fold;
  join(runs, first, runs->element_count);
  if (peek(r, 0) == '?') {
    r->at++;
    takes = 0;
    runs->elements[last].other = runs->element_count;
  }
  *least += takes;
  return !repeats(r) && put_element(runs, &joined);
}

bool hri_runs_read(const char *pattern, size_t bytes, hri_run_pattern *to) {
  reader r = {.at = pattern, .end = pattern + bytes, .runs = to};
  uint32_t last, least;
  if (!read_alternatives(&r, &last, &least) || peek(&r, 0) >= 0 || least == 0) return false;
  join(to, 0, HRI_RUNS_END);
  return true;
}
