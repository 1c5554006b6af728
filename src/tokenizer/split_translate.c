/* Rewrites a regex in Oniguruma's Ruby syntax, as the reference reads it, into one that means the same to PCRE2.
 *
 * What differs and is rewritten:
 *   \s \S \w \W \d \D \h \H \v    other sets (\s of PCRE2 has U+180E, \w lacks marks, \h and \v are blanks there)
 *   \p{..}                        names; scripts are Script, not Script_Extensions; and characters that are newer than
 *                                 the Unicode version of the PCRE2 at hand are added by our tables, so that it does not
 *                                 matter
 *   [a[b]] [a&&b] [[:alpha:]]     nested classes and intersections, which PCRE2 would take as plain characters
 *   (?m)                          is (?s); and ^ $ are always those of lines (PCRE2_MULTILINE)
 *   a(?i)b|c                      the option reaches over the alternatives: a(?i:b|c)
 *   a{2}+ a{2}? a{,2}             repeat a repeat, an option, and {0,2}
 *   \uHHHH \xHH
 * Each class becomes one PCRE2 class where it can, else a group of classes with lookaheads that takes one character.
 * Not rewritten: folding of one character to several ((?i)ss does not match U+00DF). */
#include <pthread.h>
#include <string.h>

#include "tokenizer/split_internal.h"
#include "tokenizer/unicode.h"

enum { DEPTH_MAX = 64, NEST_MAX = 16, PATTERN_MAX_BYTES = 1 << 20 };

typedef struct group {
  size_t begin;     /* of its "(" in the output */
  uint32_t closers; /* options without a colon that were opened in it */
} group;

typedef struct translator {
  const char *pattern;
  size_t bytes, at;
  hri_text *out;
  size_t atom; /* where the last atom begins in the output */
  bool has_atom;
  group groups[DEPTH_MAX];
  uint32_t depth, nest;
  hr_error *error;
} translator;

/* Members of a class that is being read: what fits into one PCRE2 class, and further expressions for one character. */
typedef struct members {
  hri_text simple, others;
} members;

static hr_status fail(const translator *t, size_t at, const char *what) {
  return hri_regex_fail(t->pattern, t->bytes, at, what, t->error);
}
static int peek(const translator *t, size_t ahead) {
  return t->bytes - t->at > ahead ? (uint8_t)t->pattern[t->at + ahead] : -1;
}
static bool next_is(const translator *t, const char *word) {
  size_t length = strlen(word);
  return t->bytes - t->at >= length && memcmp(t->pattern + t->at, word, length) == 0;
}

/* ---- characters that PCRE2's tables do not know yet ---- */

enum { FRESH_MAX = 2048 };

/* The same for every pattern, so they are looked for once in a process; constant from then on. */
static struct {
  pthread_mutex_t lock;
  bool known;
  uint32_t count;
  struct {
    uint32_t first, last;
  } ranges[FRESH_MAX];
} fresh = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void add_point(uint32_t point) {
  if (fresh.count > 0 && fresh.ranges[fresh.count - 1].last == point - 1) fresh.ranges[fresh.count - 1].last = point;
  else if (fresh.count < FRESH_MAX) {
    fresh.ranges[fresh.count].first = fresh.ranges[fresh.count].last = point;
    fresh.count++;
  }
}

/* Adds those of text[0, bytes) that match `unassigned`. */
static void add_unassigned(pcre2_code *unassigned, pcre2_match_data *data, const char *text, size_t bytes) {
  size_t start = 0;
  while (start < bytes &&
         pcre2_match(unassigned, (PCRE2_SPTR)text, bytes, start, PCRE2_NO_UTF_CHECK, data, NULL) >= 0) {
    const size_t *vector = pcre2_get_ovector_pointer(data);
    for (size_t at = vector[0]; at < vector[1];) {
      uint32_t point;
      bool valid;
      at += hri_utf8_decode(text + at, vector[1] - at, &point, &valid);
      add_point(point);
    }
    start = vector[1];
  }
}

static void scan_tables(pcre2_code *unassigned, pcre2_match_data *data) {
  char text[4096];
  size_t bytes = 0;
  const uint32_t skip = 1u << HRI_CATEGORY_CN | 1u << HRI_CATEGORY_CS | 1u << HRI_CATEGORY_CO;
  for (uint32_t point = 0x80; point < HRI_UNICODE_END; point++) {
    if (hri_unicode_set(point) & skip) continue;
    bytes += hri_utf8_encode(point, text + bytes);
    if (bytes <= sizeof text - 4) continue;
    add_unassigned(unassigned, data, text, bytes);
    bytes = 0;
  }
  add_unassigned(unassigned, data, text, bytes);
}

static bool find_points(void) {
  int code = 0;
  size_t at = 0;
  pcre2_general_context *general = hri_regex_memory();
  pcre2_compile_context *context = general ? pcre2_compile_context_create(general) : NULL;
  pcre2_match_data *data = general ? pcre2_match_data_create(1, general) : NULL;
  pcre2_code *unassigned = NULL;
  if (context && data)
    unassigned =
        pcre2_compile((PCRE2_SPTR) "\\p{Cn}+", PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code, &at, context);
  if (unassigned) {
    (void)pcre2_jit_compile(unassigned, PCRE2_JIT_COMPLETE);
    scan_tables(unassigned, data);
  }
  fresh.known = unassigned != NULL;
  pcre2_code_free(unassigned);
  pcre2_match_data_free(data);
  pcre2_compile_context_free(context);
  pcre2_general_context_free(general);
  return fresh.known;
}

static hr_status find_fresh(const translator *t) {
  bool known;
  (void)pthread_mutex_lock(&fresh.lock);
  known = fresh.known || find_points();
  (void)pthread_mutex_unlock(&fresh.lock);
  return known ? HR_OK : hri_fail_memory(t->error, sizeof fresh, "the tables of a regex");
}

/* Appends those of a set of categories as members of a class. */
static void add_fresh(uint32_t set, hri_text *out) {
  for (uint32_t i = 0; set != 0 && i < fresh.count; i++) {
    uint32_t point = fresh.ranges[i].first;
    while (point <= fresh.ranges[i].last) {
      uint32_t first = point;
      while (point <= fresh.ranges[i].last && (hri_unicode_set(point) & set) != 0) point++;
      if (point > first) hri_text_add(out, "\\x{%x}-\\x{%x}", first, point - 1);
      else point++;
    }
  }
}

/* Appends the ASCII of a set of categories as members of a class, which has them already: PCRE2 looks up in a bitmap
 * first, and then asks for properties one by one. Upper case alone stays a property, which ignores (?i). */
static void add_ascii(uint32_t set, hri_text *out) {
  const uint32_t cased = HRI_SET_LU | HRI_SET_LL;
  if ((set & cased) != cased) set &= ~cased;
  for (uint32_t point = 0; set != 0 && point < 0x80; point++) {
    uint32_t first = point;
    while (point < 0x80 && (hri_unicode_set(point) & set) != 0) point++;
    if (point > first) hri_text_add(out, "\\x{%x}-\\x{%x}", first, point - 1);
  }
}

/* ---- sets ---- */

#define SPACES "\\x{9}-\\x{d} \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
/* What Oniguruma counts to words beside categories: letters in circles and squares; and, but not within brackets, the
 * superscripts and fractions of Latin-1. */
#define WORD_SYMBOLS "\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"
#define BARE_WORD_SYMBOLS "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"

typedef struct named_set {
  const char *name;    /* lower case, without blanks, '-' and '_' */
  const char *members; /* of a PCRE2 class */
  uint32_t categories; /* the set whose newer characters are added */
} named_set;

#define ND (1u << HRI_CATEGORY_ND)
#define WORD_SET (HRI_SET_L | HRI_SET_M | ND | 1u << HRI_CATEGORY_NL | 1u << HRI_CATEGORY_PC)
#define WORD "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}" WORD_SYMBOLS
static const named_set bare_word = {"word", WORD BARE_WORD_SYMBOLS, WORD_SET};
static const named_set sets[] = {
    /* classes with a letter, and those of [[:name:]], which \p{name} takes too */
    {"space", SPACES, 0},
    {"whitespace", SPACES, 0},
    {"word", WORD, WORD_SET},
    {"digit", "\\p{Nd}", ND},
    {"xdigit", "0-9A-Fa-f", 0},
    {"asciihexdigit", "0-9A-Fa-f", 0},
    {"alpha", "\\p{Alphabetic}", HRI_SET_L},
    {"alnum", "\\p{Alphabetic}\\p{Nd}", HRI_SET_L | ND},
    {"upper", "\\p{Uppercase}", HRI_SET_LU},
    {"lower", "\\p{Lowercase}", HRI_SET_LL},
    {"punct", "\\p{P}\\p{S}", HRI_SET_P | HRI_SET_S},
    {"cntrl", "\\p{Cc}", 0},
    {"blank", "\\x{9}\\p{Zs}", 0},
    {"ascii", "\\x{0}-\\x{7f}", 0},
    {"any", "\\x{0}-\\x{10ffff}", 0},
    {"alphabetic", "\\p{Alphabetic}", HRI_SET_L},
    {"uppercase", "\\p{Uppercase}", HRI_SET_LU},
    {"lowercase", "\\p{Lowercase}", HRI_SET_LL},
    /* general categories */
    {"l", "\\p{L}", HRI_SET_L},
    {"letter", "\\p{L}", HRI_SET_L},
    {"lu", "\\p{Lu}", HRI_SET_LU},
    {"uppercaseletter", "\\p{Lu}", HRI_SET_LU},
    {"ll", "\\p{Ll}", HRI_SET_LL},
    {"lowercaseletter", "\\p{Ll}", HRI_SET_LL},
    {"lt", "\\p{Lt}", HRI_SET_LT},
    {"titlecaseletter", "\\p{Lt}", HRI_SET_LT},
    {"lm", "\\p{Lm}", HRI_SET_LM},
    {"modifierletter", "\\p{Lm}", HRI_SET_LM},
    {"lo", "\\p{Lo}", HRI_SET_LO},
    {"otherletter", "\\p{Lo}", HRI_SET_LO},
    {"m", "\\p{M}", HRI_SET_M},
    {"mark", "\\p{M}", HRI_SET_M},
    {"combiningmark", "\\p{M}", HRI_SET_M},
    {"mn", "\\p{Mn}", 1u << HRI_CATEGORY_MN},
    {"nonspacingmark", "\\p{Mn}", 1u << HRI_CATEGORY_MN},
    {"mc", "\\p{Mc}", 1u << HRI_CATEGORY_MC},
    {"spacingmark", "\\p{Mc}", 1u << HRI_CATEGORY_MC},
    {"me", "\\p{Me}", 1u << HRI_CATEGORY_ME},
    {"enclosingmark", "\\p{Me}", 1u << HRI_CATEGORY_ME},
    {"n", "\\p{N}", HRI_SET_N},
    {"number", "\\p{N}", HRI_SET_N},
    {"nd", "\\p{Nd}", ND},
    {"decimalnumber", "\\p{Nd}", ND},
    {"nl", "\\p{Nl}", 1u << HRI_CATEGORY_NL},
    {"letternumber", "\\p{Nl}", 1u << HRI_CATEGORY_NL},
    {"no", "\\p{No}", 1u << HRI_CATEGORY_NO},
    {"othernumber", "\\p{No}", 1u << HRI_CATEGORY_NO},
    {"p", "\\p{P}", HRI_SET_P},
    {"punctuation", "\\p{P}", HRI_SET_P},
    {"pc", "\\p{Pc}", 1u << HRI_CATEGORY_PC},
    {"connectorpunctuation", "\\p{Pc}", 1u << HRI_CATEGORY_PC},
    {"pd", "\\p{Pd}", 1u << HRI_CATEGORY_PD},
    {"dashpunctuation", "\\p{Pd}", 1u << HRI_CATEGORY_PD},
    {"ps", "\\p{Ps}", 1u << HRI_CATEGORY_PS},
    {"openpunctuation", "\\p{Ps}", 1u << HRI_CATEGORY_PS},
    {"pe", "\\p{Pe}", 1u << HRI_CATEGORY_PE},
    {"closepunctuation", "\\p{Pe}", 1u << HRI_CATEGORY_PE},
    {"pi", "\\p{Pi}", 1u << HRI_CATEGORY_PI},
    {"initialpunctuation", "\\p{Pi}", 1u << HRI_CATEGORY_PI},
    {"pf", "\\p{Pf}", 1u << HRI_CATEGORY_PF},
    {"finalpunctuation", "\\p{Pf}", 1u << HRI_CATEGORY_PF},
    {"po", "\\p{Po}", 1u << HRI_CATEGORY_PO},
    {"otherpunctuation", "\\p{Po}", 1u << HRI_CATEGORY_PO},
    {"s", "\\p{S}", HRI_SET_S},
    {"symbol", "\\p{S}", HRI_SET_S},
    {"sm", "\\p{Sm}", 1u << HRI_CATEGORY_SM},
    {"mathsymbol", "\\p{Sm}", 1u << HRI_CATEGORY_SM},
    {"sc", "\\p{Sc}", 1u << HRI_CATEGORY_SC},
    {"currencysymbol", "\\p{Sc}", 1u << HRI_CATEGORY_SC},
    {"sk", "\\p{Sk}", 1u << HRI_CATEGORY_SK},
    {"modifiersymbol", "\\p{Sk}", 1u << HRI_CATEGORY_SK},
    {"so", "\\p{So}", 1u << HRI_CATEGORY_SO},
    {"othersymbol", "\\p{So}", 1u << HRI_CATEGORY_SO},
    {"z", "\\p{Z}", 0},
    {"separator", "\\p{Z}", 0},
    {"zs", "\\p{Zs}", 0},
    {"spaceseparator", "\\p{Zs}", 0},
    {"zl", "\\p{Zl}", 0},
    {"lineseparator", "\\p{Zl}", 0},
    {"zp", "\\p{Zp}", 0},
    {"paragraphseparator", "\\p{Zp}", 0},
    {"cc", "\\p{Cc}", 0},
    {"control", "\\p{Cc}", 0},
    {"cf", "\\p{Cf}", 1u << HRI_CATEGORY_CF},
    {"format", "\\p{Cf}", 1u << HRI_CATEGORY_CF},
    {"co", "\\p{Co}", 0},
    {"privateuse", "\\p{Co}", 0},
};
/* \p{name} that PCRE2 takes as it stands; every other name is a script. */
static const char *const binary_properties[] = {"emoji",
                                                "emojipresentation",
                                                "emojimodifier",
                                                "emojimodifierbase",
                                                "emojicomponent",
                                                "extendedpictographic",
                                                "ideographic",
                                                "unifiedideograph",
                                                "idstart",
                                                "idcontinue",
                                                "xidstart",
                                                "xidcontinue",
                                                "math",
                                                "dash",
                                                "hexdigit",
                                                "diacritic",
                                                "extender",
                                                "variationselector",
                                                "regionalindicator",
                                                "cased",
                                                "caseignorable",
                                                "quotationmark",
                                                "joincontrol",
                                                "defaultignorablecodepoint"};

static const named_set *find_set(const char *name) {
  for (uint32_t i = 0; i < sizeof sets / sizeof *sets; i++)
    if (strcmp(sets[i].name, name) == 0) return &sets[i];
  return NULL;
}

/* Adds a set, or its complement, to a class. */
static hr_status add_set(translator *t, const named_set *set, bool negate, members *to) {
  HRI_TRY(find_fresh(t));
  if (negate) {
    hri_text_add(&to->others, "|[^");
    add_ascii(set->categories, &to->others);
    hri_text_add(&to->others, "%s", set->members);
    add_fresh(set->categories, &to->others);
    hri_text_add(&to->others, "]");
  } else {
    add_ascii(set->categories, &to->simple);
    hri_text_add(&to->simple, "%s", set->members);
    add_fresh(set->categories, &to->simple);
  }
  return HR_OK;
}

/* At the name behind "\p" or "\P". */
static hr_status read_property(translator *t, bool negate, members *to) {
  size_t begin = t->at, used = 0;
  char name[64];
  const named_set *set;
  if (peek(t, 0) != '{') return fail(t, begin, "a property without braces");
  t->at++;
  if (peek(t, 0) == '^') {
    negate = !negate;
    t->at++;
  }
  for (; peek(t, 0) != '}'; t->at++) {
    int c = peek(t, 0);
    if (c < 0 || used + 1 == sizeof name) return fail(t, begin, "a property without an end");
    if (c >= 'A' && c <= 'Z') c |= 0x20;
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) name[used++] = (char)c;
    else if (c != ' ' && c != '-' && c != '_') return fail(t, t->at, "an unknown property");
  }
  t->at++;
  name[used] = 0;
  set = find_set(name);
  if (set) return add_set(t, set, negate, to);
  for (uint32_t i = 0; i < sizeof binary_properties / sizeof *binary_properties; i++)
    if (strcmp(name, binary_properties[i]) == 0) {
      hri_text_add(&to->simple, "\\%c{%s}", negate ? 'P' : 'p', name);
      return HR_OK;
    }
  hri_text_add(&to->simple, "\\%c{sc:%s}", negate ? 'P' : 'p', name);
  return HR_OK;
}

/* ---- characters ---- */

static hr_status read_hex(translator *t, size_t begin, size_t least, size_t most, uint32_t *point) {
  size_t digits = 0;
  *point = 0;
  while (digits < most) {
    int c = peek(t, 0), lower = c | 0x20;
    if (c >= '0' && c <= '9') *point = *point << 4 | (uint32_t)(c - '0');
    else if (lower >= 'a' && lower <= 'f') *point = *point << 4 | (uint32_t)(lower - 'a' + 10);
    else break;
    digits++;
    t->at++;
  }
  if (digits < least || *point >= HRI_UNICODE_END || (*point & 0xFFFFF800u) == 0xD800)
    return fail(t, begin, "no character number");
  return HR_OK;
}

/* The character of an escape that stands for one; t->at is behind the letter `c`. */
static hr_status read_escaped_char(translator *t, int c, uint32_t *point) {
  static const char letters[] = "tnrfaev", values[] = "\t\n\r\f\a\x1b\v";
  const char *found = c > 0 ? strchr(letters, c) : NULL;
  size_t begin = t->at - 1;
  if (found) return *point = (uint8_t)values[found - letters], HR_OK;
  if (c == 'u') return read_hex(t, begin, 4, 4, point);
  if (c == 'x' && peek(t, 0) == '{') {
    t->at++;
    HRI_TRY(read_hex(t, begin, 1, 8, point));
    if (peek(t, 0) != '}') return fail(t, begin, "no character number");
    t->at++;
    return HR_OK;
  }
  if (c == 'x') {
    HRI_TRY(read_hex(t, begin, 1, 2, point));
    return *point < 0x80 ? HR_OK : fail(t, begin, "a byte that is no character");
  }
  if (c == 'C' || c == 'M' || c == 'c' || (c >= '0' && c <= '9'))
    return fail(t, begin, "an escape that is not supported");
  if (c < 0x80) return *point = (uint32_t)c, HR_OK;
  {
    bool valid;
    t->at--;
    t->at += hri_utf8_decode(t->pattern + t->at, t->bytes - t->at, point, &valid);
  }
  return HR_OK;
}

/* Reads "\" and what follows as a set if it is one; `bare`: outside of brackets. */
static hr_status read_escaped_set(translator *t, bool bare, members *to, bool *is_set) {
  static const char letters[] = "sSwWdDhH";
  static const char *const names[] = {"space", "word", "digit", "xdigit"};
  int c = peek(t, 1);
  const char *found = c > 0 ? strchr(letters, c) : NULL;
  *is_set = true;
  if (found) {
    t->at += 2;
    return add_set(t, bare && (c | 0x20) == 'w' ? &bare_word : find_set(names[(found - letters) / 2]),
                   (found - letters) % 2 == 1, to);
  }
  if (c == 'p' || c == 'P') {
    t->at += 2;
    return read_property(t, c == 'P', to);
  }
  *is_set = false;
  return HR_OK;
}

/* ---- classes ---- */

static hr_status read_class(translator *t, hri_text *out);

/* Reads one character of a class, plain or escaped. */
static hr_status read_class_char(translator *t, uint32_t *point) {
  bool valid;
  int c = peek(t, 0);
  if (c == '\\') {
    c = peek(t, 1);
    if (c < 0) return fail(t, t->at, "an escape without a character");
    t->at += 2;
    if (c == 'b') return *point = '\b', HR_OK;
    return read_escaped_char(t, c, point);
  }
  t->at += hri_utf8_decode(t->pattern + t->at, t->bytes - t->at, point, &valid);
  return HR_OK;
}

/* "[:alpha:]" or "[:^alpha:]" at the cursor. */
static hr_status read_posix(translator *t, members *to) {
  const char *begin = t->pattern + t->at + 2, *end = memmem(begin, t->bytes - t->at - 2, ":]", 2);
  bool negate = end && begin < end && *begin == '^';
  char name[16] = {0};
  const named_set *set = NULL;
  if (negate) begin++;
  if (end && end - begin < (ptrdiff_t)sizeof name) {
    memcpy(name, begin, (size_t)(end - begin));
    set = find_set(name);
  }
  if (!set) return fail(t, t->at, "an unknown class");
  t->at = (size_t)(end + 2 - t->pattern);
  return add_set(t, set, negate, to);
}

/* One element of a class: a set, a nested class, a character or a range. */
static hr_status read_element(translator *t, members *to) {
  uint32_t first, last;
  size_t begin = t->at;
  bool is_set = false;
  if (next_is(t, "[:")) return read_posix(t, to);
  if (peek(t, 0) == '[') {
    t->at++;
    hri_text_add(&to->others, "|");
    return read_class(t, &to->others);
  }
  if (peek(t, 0) == '\\') HRI_TRY(read_escaped_set(t, false, to, &is_set));
  if (is_set) return HR_OK;
  HRI_TRY(read_class_char(t, &first));
  last = first;
  if (peek(t, 0) == '-' && peek(t, 1) >= 0 && peek(t, 1) != ']' && !next_is(t, "-[") && !next_is(t, "-&&")) {
    members none = {{0}, {0}};
    size_t dash = t->at++;
    if (peek(t, 0) == '\\') HRI_TRY(read_escaped_set(t, false, &none, &is_set));
    hri_text_deinit(&none.simple);
    hri_text_deinit(&none.others);
    if (is_set) t->at = dash; /* [a-\d]: the dash stands for itself */
    else HRI_TRY(read_class_char(t, &last));
  }
  if (last < first) return fail(t, begin, "a range that runs backwards");
  hri_text_add(&to->simple, "\\x{%x}-\\x{%x}", first, last);
  return HR_OK;
}

/* The operands of && up to the closing bracket: an expression for a character that is in all of them. *plain tells that
 * it is one PCRE2 class, whose members are in `out` without brackets. */
static hr_status read_operands(translator *t, hri_text *out, bool *plain) {
  bool first = true, open = true;
  *plain = false;
  while (open) {
    members part = {{0}, {0}};
    hr_status status = HR_OK;
    size_t begin = t->at;
    while (status == HR_OK && !next_is(t, "&&") && (peek(t, 0) != ']' || (first && t->at == begin))) {
      if (peek(t, 0) < 0) status = fail(t, begin, "a class without an end");
      else status = read_element(t, &part);
    }
    open = status == HR_OK && next_is(t, "&&");
    if (status == HR_OK && t->at == begin) status = fail(t, begin, "an empty class");
    if (part.simple.failed || part.others.failed) status = hri_fail_memory(t->error, part.simple.length, "a regex");
    if (status == HR_OK) {
      const char *simple = hri_text_get(&part.simple), *others = hri_text_get(&part.others);
      *plain = first && !open && part.others.length == 0;
      if (*plain) hri_text_add(out, "%s", simple);
      else
        hri_text_add(out, "%s(?:%s%s%s%s)%s", open ? "(?=" : "", *simple ? "[" : "", simple, *simple ? "]" : "",
                     *simple ? others : others + 1, open ? ")" : "");
    }
    hri_text_deinit(&part.simple);
    hri_text_deinit(&part.others);
    HRI_TRY(status);
    t->at += open ? 2 : 1;
    first = false;
  }
  return HR_OK;
}

/* A class whose "[" was read; appends an expression for one character. */
static hr_status read_class(translator *t, hri_text *out) {
  hri_text inner = {0};
  bool negate = peek(t, 0) == '^', plain = false;
  hr_status status;
  if (t->nest == NEST_MAX) return fail(t, t->at, "classes nested too deeply");
  t->nest++;
  if (negate) t->at++;
  status = read_operands(t, &inner, &plain);
  t->nest--;
  if (status == HR_OK) {
    if (plain) hri_text_add(out, "[%s%s]", negate ? "^" : "", hri_text_get(&inner));
    else if (negate) hri_text_add(out, "(?:(?!%s)(?s:.))", hri_text_get(&inner));
    else hri_text_add(out, "(?:%s)", hri_text_get(&inner));
  }
  if (inner.failed) out->failed = true;
  hri_text_deinit(&inner);
  return status;
}

/* ---- groups, repeats and the rest ---- */

/* Members as an expression for one character. */
static void put_members(translator *t, const members *from) {
  if (from->others.length == 0) hri_text_add(t->out, "[%s]", hri_text_get(&from->simple));
  else hri_text_add(t->out, "(?:%s)", hri_text_get(&from->others) + 1);
  if (from->simple.failed || from->others.failed) t->out->failed = true;
}

/* "\" outside of classes. */
static hr_status read_escape(translator *t) {
  members set = {{0}, {0}};
  bool is_set = false;
  uint32_t point;
  int c = peek(t, 1);
  hr_status status;
  if (c < 0) return fail(t, t->at, "an escape without a character");
  status = read_escaped_set(t, true, &set, &is_set);
  if (status == HR_OK && is_set) put_members(t, &set);
  hri_text_deinit(&set.simple);
  hri_text_deinit(&set.others);
  if (status != HR_OK || is_set) return status;
  if (c == 'b' || c == 'B') {
    t->at += 2;
    HRI_TRY(find_fresh(t));
    /* a border: a word character on exactly one side; \B: on both or none */
    hri_text_add(t->out, c == 'b' ? "(?:(?<=[" : "(?!(?<=[");
    for (uint32_t side = 0; side < 4; side++) {
      static const char *const between[] = {"])(?![", "])|(?<![", "])(?=[", "]))"};
      hri_text_add(t->out, "%s", bare_word.members);
      add_fresh(WORD_SET, t->out);
      hri_text_add(t->out, "%s", between[side]);
    }
    return HR_OK;
  }
  if (strchr("AzZGRXKN", c) || (c >= '1' && c <= '9')) {
    t->at += 2;
    hri_text_add(t->out, "\\%c", c);
    return HR_OK;
  }
  if (c == 'k' || c == 'g') {
    const char *end = memchr(t->pattern + t->at, '>', t->bytes - t->at);
    if (peek(t, 2) != '<' || !end) return fail(t, t->at, "a reference without a name");
    hri_text_add_bytes(t->out, t->pattern + t->at, (size_t)(end + 1 - (t->pattern + t->at)));
    t->at = (size_t)(end + 1 - t->pattern);
    return HR_OK;
  }
  t->at += 2;
  if (c == 'O') return hri_text_add(t->out, "(?s:.)"), HR_OK;
  if (c == 'y' || c == 'Y') return fail(t, t->at - 2, "a border of text segments, which is not supported,");
  HRI_TRY(read_escaped_char(t, c, &point));
  hri_text_add(t->out, "\\x{%x}", point);
  return HR_OK;
}

/* "(?imx-imx)" and "(?imx-imx:": false when the group at the cursor is none of them. */
static hr_status read_options(translator *t, bool *done) {
  char letters[16];
  size_t used = 0, at = t->at + 2;
  *done = false;
  while (at < t->bytes && used + 1 < sizeof letters && t->pattern[at] && strchr("imx-", t->pattern[at])) {
    if (t->pattern[at] == 'x') return fail(t, at, "the option x, which is not supported,");
    letters[used++] = t->pattern[at] == 'm' ? 's' : t->pattern[at];
    at++;
  }
  letters[used] = 0;
  if (used == 0 || at == t->bytes || (t->pattern[at] != ')' && t->pattern[at] != ':')) return HR_OK;
  *done = true;
  if (t->pattern[at] == ')') {
    t->groups[t->depth].closers++;
    t->has_atom = false;
  } else {
    if (t->depth + 1 == DEPTH_MAX) return fail(t, t->at, "groups nested too deeply");
    t->groups[++t->depth] = (group){t->out->length, 0};
  }
  hri_text_add(t->out, "(?%s:", letters);
  t->at = at + 1;
  return HR_OK;
}

/* "(?<name>", the group is on the stack. */
static hr_status open_named(translator *t) {
  const char *begin = t->pattern + t->at, *end = memchr(begin, '>', t->bytes - t->at);
  if (!next_is(t, "(?<") || !end) return fail(t, t->at, "a kind of group that is not supported");
  hri_text_add_bytes(t->out, begin, (size_t)(end + 1 - begin));
  t->at += (size_t)(end + 1 - begin);
  return HR_OK;
}

static hr_status open_group(translator *t) {
  static const char *const kinds[] = {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"};
  bool done = false;
  if (next_is(t, "(*")) return fail(t, t->at, "nothing to repeat");
  if (next_is(t, "(?#")) {
    const char *end = memchr(t->pattern + t->at, ')', t->bytes - t->at);
    if (!end) return fail(t, t->at, "a comment without an end");
    t->at = (size_t)(end + 1 - t->pattern);
    return HR_OK;
  }
  if (next_is(t, "(?")) HRI_TRY(read_options(t, &done));
  if (done) return HR_OK;
  if (t->depth + 1 == DEPTH_MAX) return fail(t, t->at, "groups nested too deeply");
  t->groups[++t->depth] = (group){t->out->length, 0};
  t->has_atom = false;
  if (!next_is(t, "(?")) {
    hri_text_add(t->out, "(");
    t->at++;
    return HR_OK;
  }
  for (uint32_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (!next_is(t, kinds[i])) continue;
    hri_text_add(t->out, "%s", kinds[i]);
    t->at += strlen(kinds[i]);
    return HR_OK;
  }
  return open_named(t);
}

static void close_options(translator *t) {
  for (; t->groups[t->depth].closers > 0; t->groups[t->depth].closers--) hri_text_add(t->out, ")");
}

static hr_status close_group(translator *t) {
  if (t->depth == 0) return fail(t, t->at, "a closing parenthesis without a group");
  close_options(t);
  hri_text_add(t->out, ")");
  t->atom = t->groups[t->depth--].begin;
  t->has_atom = true;
  t->at++;
  return HR_OK;
}

/* Puts what was written since `begin` into a group. */
static hr_status wrap(translator *t, size_t begin) {
  hri_text tail = {0};
  hr_status status = HR_OK;
  if (t->out->failed) return HR_OK;
  hri_text_add_bytes(&tail, t->out->chars + begin, t->out->length - begin);
  if (tail.failed) status = hri_fail_memory(t->error, t->out->length, "a regex");
  else {
    t->out->length = begin;
    hri_text_add(t->out, "(?:%s)", hri_text_get(&tail));
  }
  hri_text_deinit(&tail);
  return status;
}

/* "{2}", "{2,}", "{,2}", "{2,3}" at the cursor: their bytes, 0 when it is a plain brace. */
static size_t interval_bytes(const translator *t, bool *exact) {
  size_t i = 1, low = 0, high = 0;
  while (peek(t, i) >= '0' && peek(t, i) <= '9') i++, low++;
  *exact = peek(t, i) == '}';
  if (peek(t, i) == ',') {
    i++;
    while (peek(t, i) >= '0' && peek(t, i) <= '9') i++, high++;
  }
  return peek(t, i) == '}' && low + high > 0 ? i + 1 : 0;
}

static hr_status read_interval(translator *t, size_t bytes, bool exact) {
  int behind = peek(t, bytes);
  if (!t->has_atom) return fail(t, t->at, "nothing to repeat");
  hri_text_add(t->out, "{%s", peek(t, 1) == ',' ? "0" : "");
  hri_text_add_bytes(t->out, t->pattern + t->at + 1, bytes - 1);
  t->at += bytes;
  if (behind == '+' || (behind == '?' && exact)) return wrap(t, t->atom); /* what follows repeats the repeat */
  if (behind == '?') {
    hri_text_add(t->out, "?");
    t->at++;
  }
  return HR_OK;
}

static hr_status step(translator *t) {
  int c = peek(t, 0);
  size_t begin = t->out->length, interval = 0;
  bool exact = false, valid;
  uint32_t point;
  if (c == '(') return open_group(t);
  if (c == ')') return close_group(t);
  if (c == '{') interval = interval_bytes(t, &exact);
  if (interval > 0) return read_interval(t, interval, exact);
  if (c == '|' || c == '*' || c == '+' || c == '?') {
    hri_text_add(t->out, "%c", c);
    t->at++;
    if (c == '|') t->has_atom = false;
    return HR_OK;
  }
  t->atom = begin;
  t->has_atom = true;
  if (c == '\\') return read_escape(t);
  if (c == '[') {
    t->at++;
    return read_class(t, t->out);
  }
  if (c == '^' || c == '$' || c == '.') {
    hri_text_add(t->out, "%c", c);
    t->at++;
    return HR_OK;
  }
  t->at += hri_utf8_decode(t->pattern + t->at, t->bytes - t->at, &point, &valid);
  hri_text_add(t->out, "\\x{%x}", point);
  return HR_OK;
}

hr_status hri_regex_translate(const char *pattern, size_t bytes, hri_text *out, hr_error *error) {
  translator t = {.pattern = pattern, .bytes = bytes, .out = out, .error = error};
  hr_status status = HR_OK;
  if (bytes > PATTERN_MAX_BYTES)
    return hri_fail(error, HR_ERROR_INPUT, "a regex of %llu bytes is too long", (unsigned long long)bytes);
  if (hri_utf8_valid(pattern, bytes) != bytes) return fail(&t, hri_utf8_valid(pattern, bytes), "invalid UTF-8");
  while (status == HR_OK && t.at < bytes) status = step(&t);
  if (status == HR_OK && t.depth > 0) status = fail(&t, bytes, "a group without an end");
  if (status == HR_OK) close_options(&t);
  if (status == HR_OK && out->failed) status = hri_fail_memory(error, bytes, "a regex");
  return status;
}
