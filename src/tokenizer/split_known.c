/* The patterns of the large families, matched by hand.
 *
 *   gpt2   's|'t|'re|'ve|'m|'ll|'d| ?L+| ?N+| ?[^\s L N]+|\s+(?!\S)|\s+
 *   llama3 (?i:'s|..|'d)|[^\r\n L N]?L+|N{1,3}| ?[^\s L N]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+      (cl100k; qwen2: N
 *   alone) o200k  [^\r\n L N]?A*B+(?i:'s|..|'d)?|[^\r\n L N]?A+B*(?i:..)?|N{1,3}| ?[^\s L
 *          N]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+ with A = Lu Lt Lm Lo M and B = Ll Lm Lo M
 *          (tekken: N alone, no contractions)
 *
 * A regex engine tries the alternatives one by one at each position; here the class of the first characters decides.
 * ASCII goes through a table of bytes, everything else through the category tables. Each character is looked at a small
 * constant number of times, so that a megabyte of anything takes linear time. Checks beyond the contract (valid UTF-8)
 * are only those that keep reads within the text. */
#include <string.h>

#include "tokenizer/split_internal.h"
#include "tokenizer/unicode.h"

/* Classes of characters, as bits. */
enum {
  LETTER = 1,
  NUMBER = 2,
  SPACE = 4,    /* \p{L}, \p{N}, \s */
  OTHER = 8,    /* [^\s\p{L}\p{N}] */
  NEWLINE = 16, /* [\r\n] */
  UPPER = 32,
  LOWER = 64 /* A and B of o200k */
};

/* 0 for the bytes of longer sequences, which ends every run over ASCII. */
#define UP LETTER | UPPER
#define LO LETTER | LOWER
/* clang-format off */
static const uint8_t byte_class[256] = {
    8, 8, 8, 8, 8, 8, 8, 8, 8, SPACE, SPACE | NEWLINE, SPACE, SPACE, SPACE | NEWLINE, 8, 8,
    8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8,
    SPACE, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8,
    NUMBER, NUMBER, NUMBER, NUMBER, NUMBER, NUMBER, NUMBER, NUMBER, NUMBER, NUMBER, 8, 8, 8, 8, 8, 8,
    8, UP, UP, UP, UP, UP, UP, UP, UP, UP, UP, UP, UP, UP, UP, UP,
    UP, UP, UP, UP, UP, UP, UP, UP, UP, UP, UP, 8, 8, 8, 8, 8,
    8, LO, LO, LO, LO, LO, LO, LO, LO, LO, LO, LO, LO, LO, LO, LO,
    LO, LO, LO, LO, LO, LO, LO, LO, LO, LO, LO, 8, 8, 8, 8, 8};
#undef UP
#undef LO

static const uint8_t category_class[HRI_CATEGORY_COUNT] = {
    [HRI_CATEGORY_LU] = LETTER | UPPER, [HRI_CATEGORY_LL] = LETTER | LOWER, [HRI_CATEGORY_LT] = LETTER | UPPER,
    [HRI_CATEGORY_LM] = LETTER | UPPER | LOWER, [HRI_CATEGORY_LO] = LETTER | UPPER | LOWER,
    [HRI_CATEGORY_MN] = OTHER | UPPER | LOWER, [HRI_CATEGORY_MC] = OTHER | UPPER | LOWER,
    [HRI_CATEGORY_ME] = OTHER | UPPER | LOWER,
    [HRI_CATEGORY_ND] = NUMBER, [HRI_CATEGORY_NL] = NUMBER, [HRI_CATEGORY_NO] = NUMBER,
    [HRI_CATEGORY_PC] = OTHER, [HRI_CATEGORY_PD] = OTHER, [HRI_CATEGORY_PS] = OTHER, [HRI_CATEGORY_PE] = OTHER,
    [HRI_CATEGORY_PI] = OTHER, [HRI_CATEGORY_PF] = OTHER, [HRI_CATEGORY_PO] = OTHER, [HRI_CATEGORY_SM] = OTHER,
    [HRI_CATEGORY_SC] = OTHER, [HRI_CATEGORY_SK] = OTHER, [HRI_CATEGORY_SO] = OTHER,
    [HRI_CATEGORY_ZS] = SPACE, [HRI_CATEGORY_ZL] = SPACE, [HRI_CATEGORY_ZP] = SPACE, [HRI_CATEGORY_CONTROL_SPACE] = SPACE,
    [HRI_CATEGORY_CC] = OTHER, [HRI_CATEGORY_CF] = OTHER, [HRI_CATEGORY_CS] = OTHER, [HRI_CATEGORY_CO] = OTHER,
    [HRI_CATEGORY_CN] = OTHER};

/* The class of a character above U+007F; *at moves behind it. */
static uint8_t class_beyond(const uint8_t **at, const uint8_t *end) {
  const uint8_t *p = *at;
  uint32_t point;
  if (end - p < (*p < 0xE0 ? 2 : *p < 0xF0 ? 3 : 4)) {
    *at = p + 1;
    return OTHER;
  }
  point = hri_utf8_next(at);
  return point < HRI_UNICODE_END ? category_class[hri_unicode_category(point)] : OTHER;
}

/* The class at *at, which is before `end`; *at moves behind the character. */
static inline uint8_t class_next(const uint8_t **at, const uint8_t *end) {
  uint8_t byte = **at;
  if (byte >= 0x80) return class_beyond(at, end);
  ++*at;
  return byte_class[byte];
}

/* The end of the longest run of characters that have a bit of `mask`. */
static inline const uint8_t *run(const uint8_t *p, const uint8_t *end, uint8_t mask) {
  for (;;) {
    while (p < end && (byte_class[*p] & mask) != 0) p++;
    if (p == end || *p < 0x80) return p;
    do {
      const uint8_t *next = p;
      if ((class_beyond(&next, end) & mask) == 0) return p;
      p = next;
    } while (p < end && *p >= 0x80);
  }
}

/* The end of the contraction that begins with the apostrophe at `p`, or `p` when there is none. Ignoring case, 's' is also
 * U+017F. */
static const uint8_t *contraction(const uint8_t *p, const uint8_t *end, bool ignore_case) {
  uint8_t one, two, fold = ignore_case ? 0x20 : 0;
  if (end - p < 2) return p;
  one = p[1] | (byte_class[p[1]] & LETTER ? fold : 0);
  if (one == 's' || one == 't' || one == 'm' || one == 'd') return p + 2;
  if (end - p < 3) return p;
  if (ignore_case && p[1] == 0xC5 && p[2] == 0xBF) return p + 3;
  two = p[2] | (byte_class[p[2]] & LETTER ? fold : 0);
  if (two == 'e' ? one == 'r' || one == 'v' : two == 'l' && one == 'l') return p + 3;
  return p;
}

/* A run of whitespace at `p`: \s+(?!\S)|\s+, with \s*[\r\n]+ before it when `newlines`. The last character is left to what
 * follows, unless it is alone or at the end. */
static const uint8_t *whitespace(const uint8_t *p, const uint8_t *end, bool newlines) {
  const uint8_t *at = p, *last = p, *after_newline = NULL;
  while (at < end) {
    const uint8_t *next = at;
    uint8_t found = class_next(&next, end);
    if ((found & SPACE) == 0) break;
    if (found & NEWLINE) after_newline = next;
    last = at;
    at = next;
  }
  if (newlines && after_newline) return after_newline;
  return at == end || last == p ? at : last;
}

static inline const uint8_t *numbers(const uint8_t *p, const uint8_t *end, uint32_t most) {
  for (uint32_t i = 0; i < most && p < end; i++) {
    const uint8_t *next = p;
    if ((class_next(&next, end) & NUMBER) == 0) break;
    p = next;
  }
  return p;
}

/* ---- GPT-2 ---- */

static inline const uint8_t *gpt2_piece(const uint8_t *p, const uint8_t *end) {
  const uint8_t *next = p;
  uint8_t found;
  if (*p == '\'') {
    const uint8_t *behind = contraction(p, end, false);
    if (behind != p) return behind;
  }
  if (*p == ' ' && end - p > 1) next = p + 1;
  found = class_next(&next, end);
  if (found & LETTER) return run(next, end, LETTER);
  if (found & OTHER) return run(next, end, OTHER);
  if (found & NUMBER) return run(next, end, NUMBER);
  return whitespace(p, end, false);
}

/* ---- Llama-3 and Qwen ---- */

static inline const uint8_t *llama3_piece(const uint8_t *p, const uint8_t *end, uint32_t most_numbers) {
  const uint8_t *next = p, *second;
  uint8_t found, follows;
  if (*p == '\'') {
    const uint8_t *behind = contraction(p, end, true);
    if (behind != p) return behind;
  }
  found = class_next(&next, end);
  if (found & LETTER) return run(next, end, LETTER);
  if (found & NUMBER) return numbers(next, end, most_numbers - 1);
  second = next;
  follows = next < end ? class_next(&second, end) : 0;
  if ((found & NEWLINE) == 0 && (follows & LETTER) != 0) return run(second, end, LETTER);
  if (found & OTHER || (*p == ' ' && (follows & OTHER) != 0)) return run(run(next, end, OTHER), end, NEWLINE);
  return whitespace(p, end, true);
}

/* ---- o200k ---- */

/* A*B+ from `p`, else A+ (the A*B+ of the other alternative cannot match then, nor a B behind it): the end, or `p`. With
 * backtracking, B+ gets the last character of the run that is in both classes when no lower case follows.
 * *by_first says that it was A*B+. */
static const uint8_t *mixed_letters(const uint8_t *p, const uint8_t *end, bool *by_first) {
  const uint8_t *both = NULL;
  *by_first = true;
  while (p < end) {
    const uint8_t *next = p;
    uint8_t found = class_next(&next, end);
    if ((found & UPPER) == 0) {
      if (found & LOWER) return run(next, end, LOWER);
      break;
    }
    if (found & LOWER) both = next;
    p = next;
  }
  if (both) return both;
  *by_first = false;
  return p;
}

/* The word at `p`, with one character before it that is no letter, number or newline; `p` when there is none. `first` is
 * the class of *p and `next` lies behind it. */
static const uint8_t *o200k_word(const uint8_t *p, const uint8_t *next, const uint8_t *end, uint8_t first) {
  const uint8_t *behind;
  bool by_first;
  if (first & LETTER) return mixed_letters(p, end, &by_first);
  if (first & (NUMBER | NEWLINE)) return p;
  behind = mixed_letters(next, end, &by_first);
  if (by_first) return behind;
  if (first & UPPER) return mixed_letters(p, end, &by_first); /* a mark, which is no prefix then but the word's begin */
  return behind != next ? behind : p;
}

static inline const uint8_t *o200k_piece(const uint8_t *p, const uint8_t *end, uint32_t most_numbers, bool contractions) {
  const uint8_t *next = p, *second, *behind;
  uint8_t found = class_next(&next, end), follows;
  if (found & NUMBER) return numbers(next, end, most_numbers - 1);
  behind = o200k_word(p, next, end, found);
  if (behind != p) return contractions && behind < end && *behind == '\'' ? contraction(behind, end, true) : behind;
  second = next;
  follows = next < end ? class_next(&second, end) : 0;
  if (found & OTHER || (*p == ' ' && (follows & OTHER) != 0)) {
    next = run(next, end, OTHER);
    while (next < end && (*next == '\r' || *next == '\n' || *next == '/')) next++;
    return next;
  }
  return whitespace(p, end, true);
}

/* ---- the table ---- */

/* A function that fills pieces by `PIECE`, in which p and end are known. */
#define FILLER(name, PIECE)                                                                                             \
  static uint32_t name(const char *text, uint32_t bytes, uint32_t *at, hri_split_piece *pieces, uint32_t capacity) {          \
    const uint8_t *base = (const uint8_t *)text, *end = base + bytes, *p = base + *at;                                  \
    uint32_t count = 0;                                                                                                 \
    while (count < capacity && p < end) {                                                                               \
      const uint8_t *behind = PIECE;                                                                                    \
      pieces[count++] = (hri_split_piece){(uint32_t)(p - base), (uint32_t)(behind - base)};                                   \
      p = behind;                                                                                                       \
    }                                                                                                                   \
    *at = (uint32_t)(p - base);                                                                                         \
    return count;                                                                                                       \
  }
FILLER(fill_gpt2, gpt2_piece(p, end))
FILLER(fill_llama3, llama3_piece(p, end, 3))
FILLER(fill_qwen2, llama3_piece(p, end, 1))
FILLER(fill_o200k, o200k_piece(p, end, 3, true))
FILLER(fill_tekken, o200k_piece(p, end, 1, false))

/* ---- BertPreTokenizer ---- */

enum { WORD = 0, BLANK = 1, MARK = 2 };

/* By the tables of the reference's classes (split.h). */
static uint8_t bert_class(const char *text, uint32_t at, uint32_t bytes, uint32_t *width) {
  uint32_t point;
  bool valid;
  *width = (uint32_t)hri_utf8_decode(text + at, bytes - at, &point, &valid);
  return hri_unicode_is_space(point) ? BLANK : hri_unicode_is_punctuation(point) ? MARK : WORD;
}

static uint32_t fill_bert(const char *text, uint32_t bytes, uint32_t *at, hri_split_piece *pieces, uint32_t capacity) {
  uint32_t count = 0, begin = *at, p = begin;
  while (p < bytes && count < capacity) {
    uint8_t c = (uint8_t)text[p], found;
    uint32_t width = 1;
    if (c < 0x80 && (byte_class[c] & (LETTER | NUMBER))) {
      p++;
      continue;
    }
    found = bert_class(text, p, bytes, &width);
    if (found == WORD) {
      p += width;
      continue;
    }
    if (p > begin) { /* the word ends here; what ends it is looked at again */
      pieces[count++] = (hri_split_piece){begin, p};
      begin = p;
      continue;
    }
    p += width;
    if (found == MARK) pieces[count++] = (hri_split_piece){begin, p};
    begin = p;
  }
  if (p == bytes && p > begin && count < capacity) {
    pieces[count++] = (hri_split_piece){begin, p};
    begin = p;
  }
  *at = begin;
  return count;
}

const hri_split_known hri_split_words = {"bert", "", fill_bert};

/* The first of a name is how tokenizer.json files spell it. */
static const hri_split_known known[] = {
    {"gpt2", HRI_PATTERN_GPT2, fill_gpt2},
    {"gpt2", "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", fill_gpt2},
    {"llama3", HRI_PATTERN_LLAMA3, fill_llama3},
    {"llama3", "'(?i:[sdmt]|ll|ve|re)|" HRI_PATTERN_PREFIX "\\p{L}+|\\p{N}{1,3}" HRI_PATTERN_REST_LLAMA3, fill_llama3},
    {"qwen2", HRI_PATTERN_QWEN2, fill_qwen2},
    {"o200k", HRI_PATTERN_O200K, fill_o200k},
    {"tekken", HRI_PATTERN_TEKKEN, fill_tekken},
};
/* clang-format on */
enum { KNOWN_COUNT = sizeof known / sizeof *known };

const hri_split_known *hri_split_known_find(const char *pattern, size_t bytes) {
  for (uint32_t i = 0; i < KNOWN_COUNT; i++)
    if (strlen(known[i].pattern) == bytes && memcmp(known[i].pattern, pattern, bytes) == 0) return &known[i];
  return NULL;
}

const hri_split_known *hri_split_known_named(const char *name) {
  if (strcmp(name, "cl100k") == 0) name = "llama3";
  for (uint32_t i = 0; i < KNOWN_COUNT; i++)
    if (strcmp(known[i].name, name) == 0) return &known[i];
  return NULL;
}
