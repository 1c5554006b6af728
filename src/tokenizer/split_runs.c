/* Regexes that are alternatives of runs, matched without PCRE2: nearly all patterns of pre-tokenizers.
 *
 *   alternative    elements one after another; the first alternative that matches wins, at the leftmost place
 *   element        a character or class with ? * + {n} {n,} {n,m}, greedy or possessive (?+ *+ ++); or, of one
 *                  character ahead, (?=class) and (?!class)
 *   class          [...] of characters, ranges, \s \d \p{general category} and positive classes, or its complement
 *   group          (?:..|..) and (?i:..|..) of elements, at the end of an alternative and behind single characters:
 *                  is read as so many alternatives
 *
 * Everything else, and all errors, are left to PCRE2 (split_regex.c), which means the same by these patterns: the tests
 * compare both on random patterns and texts. What is gained: the first byte says which alternatives are tried, and a
 * run over ASCII costs one look into a table for each byte.
 *
 * A run gives back one character at a time until what is behind it matches. An alternative has at most one long run
 * before its last element that does so, and few ways in which short ones do, hence one try is linear in the bytes it
 * looks at. */
#include <string.h>

#include "tokenizer/split_internal.h"
#include "tokenizer/unicode.h"

enum {
  CLASSES_MAX = 64,
  RANGES_MAX = 24,
  ELEMENTS_MAX = 192,
  ALTERNATIVES_MAX = 32,
  TIMES_MAX = 1000, /* of {n,m} */
  NEST_MAX = 4,
  FEW = 4,      /* characters that a short run may give back */
  WAYS_MAX = 64 /* of short runs together */
};
#define UNBOUNDED UINT32_MAX

typedef struct char_class {
  uint8_t ascii[256]; /* 1: in the class; 0 for all bytes of longer characters, which ends a run over ASCII */
  uint32_t set;       /* of categories, for characters beyond ASCII */
  uint32_t range_count;
  struct {
    uint32_t first, last;
  } ranges[RANGES_MAX]; /* beyond ASCII */
  bool negated;         /* set and ranges are what is not in it */
} char_class;

typedef enum element_kind { RUN = 0, AHEAD, NOT_AHEAD } element_kind;

typedef struct element {
  uint32_t class, least, most; /* AHEAD and NOT_AHEAD: the class alone */
  element_kind kind;
  bool keeps; /* possessive */
} element;

struct hri_split_runs {
  uint32_t first[256]; /* by first byte: bits of the alternatives that may match */
  uint32_t class_count, element_count, alternative_count;
  struct {
    uint32_t begin, end;
  } alternatives[ALTERNATIVES_MAX];
  element elements[ELEMENTS_MAX];
  char_class classes[CLASSES_MAX];
};

/* ---- reading: false stands for "not one of these" ---- */

typedef struct reader {
  const char *at, *end;
  hri_split_runs *runs;
  bool fold;     /* within (?i:..) */
  uint32_t nest; /* classes within classes */
} reader;

static int peek(const reader *r, ptrdiff_t ahead) { return r->end - r->at > ahead ? (uint8_t)r->at[ahead] : -1; }

static bool next_is(const reader *r, const char *word) {
  size_t length = strlen(word);
  return (size_t)(r->end - r->at) >= length && memcmp(r->at, word, length) == 0;
}

static bool add_range(char_class *to, uint32_t first, uint32_t last) {
  for (uint32_t point = first; point <= last && point < 0x80; point++) to->ascii[point] = 1;
  if (last < 0x80) return true;
  if (to->range_count == RANGES_MAX) return false;
  to->ranges[to->range_count].first = first < 0x80 ? 0x80 : first;
  to->ranges[to->range_count++].last = last;
  return true;
}

/* Ignoring case, K is also the sign of Kelvin, and s the long s. */
static bool add_point(const reader *r, char_class *to, uint32_t point) {
  const uint32_t lower = point | 0x20;
  if (r->fold && point >= 0x80) return false;
  if (!r->fold || lower < 'a' || lower > 'z') return add_range(to, point, point);
  to->ascii[lower] = to->ascii[lower ^ 0x20] = 1;
  if (lower == 'k') return add_range(to, 0x212A, 0x212A);
  if (lower == 's') return add_range(to, 0x17F, 0x17F);
  return true;
}

static void add_set(char_class *to, uint32_t set) {
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
static bool read_escape(reader *r, char_class *to, bool *complement) {
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

static bool read_point(reader *r, uint32_t *point) {
  bool valid;
  r->at += hri_utf8_decode(r->at, (size_t)(r->end - r->at), point, &valid);
  return valid;
}

/* One member of a class: a character, a range, an escape, a positive class within. */
static bool read_members(reader *r, char_class *to);
static bool read_member(reader *r, char_class *to) {
  uint32_t first, last;
  bool complement;
  if (peek(r, 0) < 0 || next_is(r, "&&") || next_is(r, "[:") || next_is(r, "[^")) return false;
  if (peek(r, 0) == '[') return r->at++, r->nest++ < NEST_MAX && read_members(r, to);
  if (peek(r, 0) == '\\')
    return read_escape(r, to, &complement) && !complement && !(next_is(r, "-") && peek(r, 1) != ']');
  if (!read_point(r, &first)) return false;
  if (peek(r, 0) != '-' || peek(r, 1) == ']') return add_point(r, to, first);
  r->at++;
  if (first == '-' || peek(r, 0) < 0 || strchr("[\\-&", peek(r, 0)) || !read_point(r, &last)) return false;
  if (last < first || r->fold || (peek(r, 0) == '-' && peek(r, 1) != ']')) return false;
  return add_range(to, first, last);
}

/* What follows "[", or "[^", up to the closing bracket. */
static bool read_members(reader *r, char_class *to) {
  if (peek(r, 0) == ']') return false;
  while (peek(r, 0) != ']')
    if (!read_member(r, to)) return false;
  r->at++;
  r->nest -= r->nest > 0;
  return true;
}

static void negate(char_class *to) {
  to->negated = !to->negated;
  for (uint32_t point = 0; point < 0x80; point++) to->ascii[point] ^= 1;
}

/* A character or class outside of brackets: its number among the classes. */
static bool read_class(reader *r, uint32_t *number) {
  hri_split_runs *runs = r->runs;
  char_class *made = &runs->classes[runs->class_count];
  uint32_t point;
  bool complement = false, fine;
  if (runs->class_count == CLASSES_MAX || peek(r, 0) < 0 || strchr("()|*+?{}.^$]", peek(r, 0))) return false;
  memset(made, 0, sizeof *made);
  if (peek(r, 0) == '\\') {
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
static bool read_interval(reader *r, element *to) {
  r->at++;
  if (!read_number(r, &to->least)) return false;
  to->most = to->least;
  if (peek(r, 0) == ',') {
    r->at++;
    to->most = UNBOUNDED;
    if (peek(r, 0) != '}' && !read_number(r, &to->most)) return false;
  }
  if (peek(r, 0) != '}' || to->most < to->least || to->most == 0) return false;
  r->at++;
  return peek(r, 0) != '+' && peek(r, 0) != '?';
}

static bool read_times(reader *r, element *to) {
  const int c = peek(r, 0);
  if (c == '{') {
    if (!read_interval(r, to)) return false;
  } else if (c == '?' || c == '*' || c == '+') {
    to->least = c == '+';
    to->most = c == '?' ? 1 : UNBOUNDED;
    r->at++;
    if (peek(r, 0) == '?') return false;
    to->keeps = peek(r, 0) == '+';
    if (to->keeps) r->at++;
  }
  return peek(r, 0) < 0 || !strchr("?*+{", peek(r, 0));
}

static bool put_element(hri_split_runs *runs, const element *made) {
  if (runs->element_count == ELEMENTS_MAX) return false;
  runs->elements[runs->element_count++] = *made;
  return true;
}

static bool read_element(reader *r) {
  const bool ahead = next_is(r, "(?="), not_ahead = next_is(r, "(?!");
  element made = {.least = 1, .most = 1, .kind = ahead ? AHEAD : not_ahead ? NOT_AHEAD : RUN};
  if (made.kind != RUN) r->at += 3;
  if (!read_class(r, &made.class)) return false;
  if (made.kind == RUN) return read_times(r, &made) && put_element(r->runs, &made);
  if (peek(r, 0) != ')') return false;
  r->at++;
  return (peek(r, 0) < 0 || !strchr("?*+{", peek(r, 0))) && put_element(r->runs, &made);
}

/* ---- alternatives ---- */

/* Whether no character is in both; false when that is not plain. */
static bool apart(const char_class *a, const char_class *b) {
  const uint32_t in_a = a->negated ? ~a->set : a->set, in_b = b->negated ? ~b->set : b->set;
  for (uint32_t byte = 0; byte < 0x80; byte++)
    if (a->ascii[byte] && b->ascii[byte]) return false;
  return a->range_count == 0 && b->range_count == 0 && (in_a & in_b) == 0;
}

/* What a run could give back begins nothing where the next element takes other characters: it is possessive then. */
static void keep_what_is_apart(hri_split_runs *runs, uint32_t begin, uint32_t end) {
  for (uint32_t i = begin; i + 1 < end; i++) {
    element *e = &runs->elements[i];
    const element *next = e + 1;
    if (e->kind == RUN && next->kind == RUN && next->least > 0 &&
        apart(&runs->classes[e->class], &runs->classes[next->class]))
      e->keeps = true;
  }
}

/* The alternative that ends here: it takes a character at least, and gives back from one long run at most. */
static bool put_alternative(hri_split_runs *runs, uint32_t begin) {
  const uint32_t end = runs->element_count;
  uint32_t least = 0, giving = 0, ways = 1;
  keep_what_is_apart(runs, begin, end);
  for (uint32_t i = begin; i < end; i++) {
    const element *e = &runs->elements[i];
    if (e->kind != RUN) continue;
    least += e->least;
    if (e->keeps || i + 1 == end) continue;
    if (e->most - e->least > FEW) giving++;
    else ways *= e->most - e->least + 1;
    if (ways > WAYS_MAX) return false;
  }
  if (least == 0 || giving > 1 || runs->alternative_count == ALTERNATIVES_MAX) return false;
  runs->alternatives[runs->alternative_count].begin = begin;
  runs->alternatives[runs->alternative_count++].end = end;
  return true;
}

/* A group behind the elements from `begin` on, which are single characters: with each of its alternatives they are
 * one. */
static bool read_group(reader *r, uint32_t begin) {
  hri_split_runs *runs = r->runs;
  const uint32_t before = runs->element_count - begin;
  for (uint32_t i = begin; i < runs->element_count; i++)
    if (runs->elements[i].kind != RUN || runs->elements[i].least != 1 || runs->elements[i].most != 1) return false;
  r->fold = next_is(r, "(?i:");
  r->at += r->fold ? 4 : 3;
  for (;;) {
    while (peek(r, 0) != '|' && peek(r, 0) != ')')
      if (peek(r, 0) == '(' || !read_element(r)) return false;
    if (runs->element_count == begin + before || !put_alternative(runs, begin)) return false;
    if (*r->at++ == ')') break;
    const uint32_t copied = begin;
    begin = runs->element_count;
    for (uint32_t i = 0; i < before; i++)
      if (!put_element(runs, &runs->elements[copied + i])) return false;
  }
  r->fold = false;
  return peek(r, 0) < 0 || peek(r, 0) == '|';
}

static bool read_alternatives(reader *r) {
  for (;; r->at++) {
    const uint32_t begin = r->runs->element_count;
    bool grouped = false;
    while (peek(r, 0) >= 0 && peek(r, 0) != '|') {
      grouped = next_is(r, "(?:") || next_is(r, "(?i:");
      if (grouped ? !read_group(r, begin) : !read_element(r)) return false;
    }
    if (!grouped && !put_alternative(r->runs, begin)) return false;
    if (peek(r, 0) < 0) return true;
  }
}

/* Whether an alternative may match where this byte stands. */
static bool may_begin(const hri_split_runs *runs, uint32_t alternative, uint8_t byte) {
  if (byte >= 0x80) return true;
  for (uint32_t i = runs->alternatives[alternative].begin; i < runs->alternatives[alternative].end; i++) {
    const element *e = &runs->elements[i];
    if (e->kind != RUN || runs->classes[e->class].ascii[byte]) return true;
    if (e->least > 0) return false;
  }
  return true;
}

hr_status hri_runs_compile(const char *pattern, size_t bytes, hri_split_runs **runs, hr_error *error) {
  reader r = {.at = pattern, .end = pattern + bytes};
  *runs = NULL;
  if (bytes == 0) return HR_OK;
  r.runs = hri_alloc_zero(1, sizeof *r.runs);
  if (!r.runs) return hri_fail_memory(error, sizeof *r.runs, "a regex");
  if (!read_alternatives(&r)) {
    hri_free(r.runs);
    return HR_OK;
  }
  for (uint32_t byte = 0; byte < 256; byte++)
    for (uint32_t i = 0; i < r.runs->alternative_count; i++)
      if (may_begin(r.runs, i, (uint8_t)byte)) r.runs->first[byte] |= 1u << i;
  *runs = r.runs;
  return HR_OK;
}

/* ---- matching ---- */

static bool beyond_ascii(const char_class *in, uint32_t point) {
  bool found = (hri_unicode_set(point) & in->set) != 0;
  for (uint32_t i = 0; !found && i < in->range_count; i++)
    found = point >= in->ranges[i].first && point <= in->ranges[i].last;
  return found != in->negated;
}

/* Behind the character at *p when it is in the class, else NULL; p < end. */
static inline const uint8_t *one(const char_class *in, const uint8_t *p) {
  if (*p < 0x80) return in->ascii[*p] ? p + 1 : NULL;
  return beyond_ascii(in, hri_utf8_next(&p)) ? p : NULL;
}

/* Behind as many characters of the class as there are, at most `most`. */
static inline const uint8_t *take(const char_class *in, const uint8_t *p, const uint8_t *end, uint32_t most) {
  const uint8_t *next;
  if (most == UNBOUNDED) {
    for (;;) {
      while (p < end && in->ascii[*p]) p++;
      if (p == end || *p < 0x80 || !(next = one(in, p))) return p;
      p = next;
    }
  }
  for (; most > 0 && p < end && (next = one(in, p)); most--) p = next;
  return p;
}

/* The end of a match of the elements e .. last at p, NULL when there is none. As deep as an alternative has
 * elements. */
static const uint8_t *match(const hri_split_runs *runs, const element *e, const element *last, const uint8_t *p,
                            const uint8_t *end) {
  for (; e < last; e++) {
    const char_class *in = &runs->classes[e->class];
    const uint8_t *floor = p;
    if (e->kind != RUN) {
      if ((p < end && one(in, p)) != (e->kind == AHEAD)) return NULL;
      continue;
    }
    for (uint32_t i = 0; i < e->least; i++)
      if (floor == end || !(floor = one(in, floor))) return NULL;
    p = e->most > e->least ? take(in, floor, end, e->most == UNBOUNDED ? UNBOUNDED : e->most - e->least) : floor;
    if (p == floor || e->keeps || e + 1 == last) continue; /* nothing to give back */
    for (;;) {
      const uint8_t *found = match(runs, e + 1, last, p, end);
      if (found || p == floor) return found;
      do p--;
      while ((*p & 0xC0) == 0x80);
    }
  }
  return p;
}

/* The first match from p on: its begin, and *behind; `end` when there is none. */
static const uint8_t *find(const hri_split_runs *runs, const uint8_t *p, const uint8_t *end, const uint8_t **behind) {
  for (; p < end; p++) {
    while (runs->first[*p] == 0)
      if (++p == end) return *behind = end; /* only ASCII can be so */
    for (uint32_t left = runs->first[*p]; left != 0; left &= left - 1) {
      const uint32_t i = (uint32_t)__builtin_ctz(left);
      *behind =
          match(runs, runs->elements + runs->alternatives[i].begin, runs->elements + runs->alternatives[i].end, p, end);
      if (*behind) return p;
    }
    while (p + 1 < end && (p[1] & 0xC0) == 0x80) p++;
  }
  *behind = end;
  return end;
}

bool hri_runs_match(const hri_split_runs *runs, const char *text, uint32_t bytes, uint32_t start,
                    hri_split_piece *found) {
  const uint8_t *base = (const uint8_t *)text, *behind, *begin;
  if (start >= bytes) return false;
  begin = find(runs, base + start, base + bytes, &behind);
  *found = (hri_split_piece){(uint32_t)(begin - base), (uint32_t)(behind - base)};
  return begin < base + bytes;
}

uint32_t hri_runs_fill(const hri_split_runs *runs, const char *text, uint32_t bytes, uint32_t *at,
                       hri_split_piece *pieces, uint32_t capacity) {
  const uint8_t *base = (const uint8_t *)text, *end = base + bytes, *p = base + *at, *behind;
  uint32_t count = 0;
  while (count < capacity && p < end) {
    const uint8_t *begin = find(runs, p, end, &behind);
    if (begin > p) { /* the gap; without room for the match, that is found again */
      pieces[count++] = (hri_split_piece){(uint32_t)(p - base), (uint32_t)(begin - base)};
      p = begin;
    }
    if (p == end || count == capacity) break;
    pieces[count++] = (hri_split_piece){(uint32_t)(p - base), (uint32_t)(behind - base)};
    p = behind;
  }
  *at = (uint32_t)(p - base);
  return count;
}
