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
  bool inverted;       /* the set is all but these */
} named_set;

#define ND (1u << HRI_CATEGORY_ND)
#define WORD_SET (HRI_SET_L | HRI_SET_M | ND | 1u << HRI_CATEGORY_NL | 1u << HRI_CATEGORY_PC)
#define WORD "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}" WORD_SYMBOLS
/* What the reference's Unicode has in these, and PCRE2's may not have yet. */
#define ALPHABETIC                                                                                                     \
  "\\p{Alphabetic}"                                                                                                    \
  "\\x{363}-\\x{36f}\\x{897}\\x{c04}\\x{cf3}\\x{f82}-\\x{f83}\\x{1dd3}-\\x{1de6}\\x{10d69}\\x{10efc}"                  \
  "\\x{11080}-\\x{11081}\\x{11241}\\x{113b8}-\\x{113c0}\\x{113c2}\\x{113c5}\\x{113c7}-\\x{113ca}"                      \
  "\\x{113cc}-\\x{113cd}\\x{11f00}-\\x{11f01}\\x{11f03}\\x{11f34}-\\x{11f3a}\\x{11f3e}-\\x{11f40}"                     \
  "\\x{1611e}-\\x{1612e}\\x{1e08f}"
#define LOWERCASE                                                                                                      \
  "\\p{Lowercase}"                                                                                                     \
  "\\x{10fc}\\x{a7f2}-\\x{a7f4}\\x{ab69}\\x{1e030}-\\x{1e06d}"
#define NEW_EMOJI                                                                                                      \
  "\\x{1f6dc}\\x{1fa75}-\\x{1fa77}\\x{1fa87}-\\x{1fa89}\\x{1fa8f}\\x{1faad}-\\x{1faaf}"                                \
  "\\x{1fabb}-\\x{1fabf}\\x{1fac6}\\x{1face}-\\x{1facf}\\x{1fada}-\\x{1fadc}\\x{1fadf}"                                \
  "\\x{1fae8}-\\x{1fae9}\\x{1faf7}-\\x{1faf8}"
static const named_set bare_word = {"word", WORD BARE_WORD_SYMBOLS, WORD_SET, false};
/* Characters that PCRE2 has no category for yet are in none of Cn and C. */
#define VISIBLE "\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}\\p{Z}"
#define VISIBLE_SET (HRI_SET_L | HRI_SET_M | HRI_SET_N | HRI_SET_P | HRI_SET_S)
#define ASSIGNED VISIBLE "\\p{Cc}\\p{Cf}\\p{Co}\\p{Cs}"
#define ASSIGNED_SET (VISIBLE_SET | 1u << HRI_CATEGORY_CF)
static const named_set sets[] = {
    /* classes with a letter, and those of [[:name:]], which \p{name} takes too */
    {"space", SPACES, 0, false},
    {"whitespace", SPACES, 0, false},
    {"word", WORD, WORD_SET, false},
    {"digit", "\\p{Nd}", ND, false},
    {"xdigit", "0-9A-Fa-f", 0, false},
    {"asciihexdigit", "0-9A-Fa-f", 0, false},
    {"alpha", ALPHABETIC, HRI_SET_L, false},
    {"alnum", ALPHABETIC "\\p{Nd}", HRI_SET_L | ND, false},
    {"upper", "\\p{Uppercase}", HRI_SET_LU, false},
    {"lower", LOWERCASE, HRI_SET_LL, false},
    {"punct", "\\p{P}\\p{S}", HRI_SET_P | HRI_SET_S, false},
    {"cntrl", "\\p{Cc}", 0, false},
    {"blank", "\\x{9}\\p{Zs}", 0, false},
    {"ascii", "\\x{0}-\\x{7f}", 0, false},
    {"any", "\\x{0}-\\x{10ffff}", 0, false},
    {"alphabetic", ALPHABETIC, HRI_SET_L, false},
    {"uppercase", "\\p{Uppercase}", HRI_SET_LU, false},
    {"lowercase", LOWERCASE, HRI_SET_LL, false},
    /* general categories */
    {"l", "\\p{L}", HRI_SET_L, false},
    {"letter", "\\p{L}", HRI_SET_L, false},
    {"lu", "\\p{Lu}", HRI_SET_LU, false},
    {"uppercaseletter", "\\p{Lu}", HRI_SET_LU, false},
    {"ll", "\\p{Ll}", HRI_SET_LL, false},
    {"lowercaseletter", "\\p{Ll}", HRI_SET_LL, false},
    {"lt", "\\p{Lt}", HRI_SET_LT, false},
    {"titlecaseletter", "\\p{Lt}", HRI_SET_LT, false},
    {"lm", "\\p{Lm}", HRI_SET_LM, false},
    {"modifierletter", "\\p{Lm}", HRI_SET_LM, false},
    {"lo", "\\p{Lo}", HRI_SET_LO, false},
    {"otherletter", "\\p{Lo}", HRI_SET_LO, false},
    {"m", "\\p{M}", HRI_SET_M, false},
    {"mark", "\\p{M}", HRI_SET_M, false},
    {"combiningmark", "\\p{M}", HRI_SET_M, false},
    {"mn", "\\p{Mn}", 1u << HRI_CATEGORY_MN, false},
    {"nonspacingmark", "\\p{Mn}", 1u << HRI_CATEGORY_MN, false},
    {"mc", "\\p{Mc}", 1u << HRI_CATEGORY_MC, false},
    {"spacingmark", "\\p{Mc}", 1u << HRI_CATEGORY_MC, false},
    {"me", "\\p{Me}", 1u << HRI_CATEGORY_ME, false},
    {"enclosingmark", "\\p{Me}", 1u << HRI_CATEGORY_ME, false},
    {"n", "\\p{N}", HRI_SET_N, false},
    {"number", "\\p{N}", HRI_SET_N, false},
    {"nd", "\\p{Nd}", ND, false},
    {"decimalnumber", "\\p{Nd}", ND, false},
    {"nl", "\\p{Nl}", 1u << HRI_CATEGORY_NL, false},
    {"letternumber", "\\p{Nl}", 1u << HRI_CATEGORY_NL, false},
    {"no", "\\p{No}", 1u << HRI_CATEGORY_NO, false},
    {"othernumber", "\\p{No}", 1u << HRI_CATEGORY_NO, false},
    {"p", "\\p{P}", HRI_SET_P, false},
    {"punctuation", "\\p{P}", HRI_SET_P, false},
    {"pc", "\\p{Pc}", 1u << HRI_CATEGORY_PC, false},
    {"connectorpunctuation", "\\p{Pc}", 1u << HRI_CATEGORY_PC, false},
    {"pd", "\\p{Pd}", 1u << HRI_CATEGORY_PD, false},
    {"dashpunctuation", "\\p{Pd}", 1u << HRI_CATEGORY_PD, false},
    {"ps", "\\p{Ps}", 1u << HRI_CATEGORY_PS, false},
    {"openpunctuation", "\\p{Ps}", 1u << HRI_CATEGORY_PS, false},
    {"pe", "\\p{Pe}", 1u << HRI_CATEGORY_PE, false},
    {"closepunctuation", "\\p{Pe}", 1u << HRI_CATEGORY_PE, false},
    {"pi", "\\p{Pi}", 1u << HRI_CATEGORY_PI, false},
    {"initialpunctuation", "\\p{Pi}", 1u << HRI_CATEGORY_PI, false},
    {"pf", "\\p{Pf}", 1u << HRI_CATEGORY_PF, false},
    {"finalpunctuation", "\\p{Pf}", 1u << HRI_CATEGORY_PF, false},
    {"po", "\\p{Po}", 1u << HRI_CATEGORY_PO, false},
    {"otherpunctuation", "\\p{Po}", 1u << HRI_CATEGORY_PO, false},
    {"s", "\\p{S}", HRI_SET_S, false},
    {"symbol", "\\p{S}", HRI_SET_S, false},
    {"sm", "\\p{Sm}", 1u << HRI_CATEGORY_SM, false},
    {"mathsymbol", "\\p{Sm}", 1u << HRI_CATEGORY_SM, false},
    {"sc", "\\p{Sc}", 1u << HRI_CATEGORY_SC, false},
    {"currencysymbol", "\\p{Sc}", 1u << HRI_CATEGORY_SC, false},
    {"sk", "\\p{Sk}", 1u << HRI_CATEGORY_SK, false},
    {"modifiersymbol", "\\p{Sk}", 1u << HRI_CATEGORY_SK, false},
    {"so", "\\p{So}", 1u << HRI_CATEGORY_SO, false},
    {"othersymbol", "\\p{So}", 1u << HRI_CATEGORY_SO, false},
    {"z", "\\p{Z}", 0, false},
    {"separator", "\\p{Z}", 0, false},
    {"zs", "\\p{Zs}", 0, false},
    {"spaceseparator", "\\p{Zs}", 0, false},
    {"zl", "\\p{Zl}", 0, false},
    {"lineseparator", "\\p{Zl}", 0, false},
    {"zp", "\\p{Zp}", 0, false},
    {"paragraphseparator", "\\p{Zp}", 0, false},
    {"cc", "\\p{Cc}", 0, false},
    {"control", "\\p{Cc}", 0, false},
    {"cf", "\\p{Cf}", 1u << HRI_CATEGORY_CF, false},
    {"format", "\\p{Cf}", 1u << HRI_CATEGORY_CF, false},
    {"co", "\\p{Co}", 0, false},
    {"privateuse", "\\p{Co}", 0, false},
    {"cs", "\\p{Cs}", 0, false},
    {"surrogate", "\\p{Cs}", 0, false},
    {"emoji", "\\p{Emoji}" NEW_EMOJI, 0, false},
    {"emojipresentation", "\\p{Emoji_Presentation}" NEW_EMOJI, 0, false},
    /* scripts that patterns name, whole: PCRE2's lack what is newer than its Unicode */
    {"han",
     "\\x{2e80}-\\x{2e99}\\x{2e9b}-\\x{2ef3}\\x{2f00}-\\x{2fd5}\\x{3005}\\x{3007}\\x{3021}-\\x{3029}"
     "\\x{3038}-\\x{303b}\\x{3400}-\\x{4dbf}\\x{4e00}-\\x{9fff}\\x{f900}-\\x{fa6d}\\x{fa70}-\\x{fad9}"
     "\\x{16fe2}-\\x{16fe3}\\x{16ff0}-\\x{16ff1}\\x{20000}-\\x{2a6df}\\x{2a700}-\\x{2b739}"
     "\\x{2b740}-\\x{2b81d}\\x{2b820}-\\x{2cea1}\\x{2ceb0}-\\x{2ebe0}\\x{2ebf0}-\\x{2ee5d}"
     "\\x{2f800}-\\x{2fa1d}\\x{30000}-\\x{3134a}\\x{31350}-\\x{323af}",
     0, false},
    {"hiragana", "\\x{3041}-\\x{3096}\\x{309d}-\\x{309f}\\x{1b001}-\\x{1b11f}\\x{1b132}\\x{1b150}-\\x{1b152}\\x{1f200}",
     0, false},
    {"katakana",
     "\\x{30a1}-\\x{30fa}\\x{30fd}-\\x{30ff}\\x{31f0}-\\x{31ff}\\x{32d0}-\\x{32fe}\\x{3300}-\\x{3357}"
     "\\x{ff66}-\\x{ff6f}\\x{ff71}-\\x{ff9d}\\x{1aff0}-\\x{1aff3}\\x{1aff5}-\\x{1affb}"
     "\\x{1affd}-\\x{1affe}\\x{1b000}\\x{1b120}-\\x{1b122}\\x{1b155}\\x{1b164}-\\x{1b167}",
     0, false},
    {"latin",
     "\\x{41}-\\x{5a}\\x{61}-\\x{7a}\\x{aa}\\x{ba}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{2b8}"
     "\\x{2e0}-\\x{2e4}\\x{1d00}-\\x{1d25}\\x{1d2c}-\\x{1d5c}\\x{1d62}-\\x{1d65}\\x{1d6b}-\\x{1d77}"
     "\\x{1d79}-\\x{1dbe}\\x{1e00}-\\x{1eff}\\x{2071}\\x{207f}\\x{2090}-\\x{209c}\\x{212a}-\\x{212b}"
     "\\x{2132}\\x{214e}\\x{2160}-\\x{2188}\\x{2c60}-\\x{2c7f}\\x{a722}-\\x{a787}\\x{a78b}-\\x{a7cd}"
     "\\x{a7d0}-\\x{a7d1}\\x{a7d3}\\x{a7d5}-\\x{a7dc}\\x{a7f2}-\\x{a7ff}\\x{ab30}-\\x{ab5a}"
     "\\x{ab5c}-\\x{ab64}\\x{ab66}-\\x{ab69}\\x{fb00}-\\x{fb06}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}"
     "\\x{10780}-\\x{10785}\\x{10787}-\\x{107b0}\\x{107b2}-\\x{107ba}\\x{1df00}-\\x{1df1e}"
     "\\x{1df25}-\\x{1df2a}",
     0, false},
    {"cyrillic",
     "\\x{400}-\\x{484}\\x{487}-\\x{52f}\\x{1c80}-\\x{1c8a}\\x{1d2b}\\x{1d78}\\x{2de0}-\\x{2dff}"
     "\\x{a640}-\\x{a69f}\\x{fe2e}-\\x{fe2f}\\x{1e030}-\\x{1e06d}\\x{1e08f}",
     0, false},
    {"arabic",
     "\\x{600}-\\x{604}\\x{606}-\\x{60b}\\x{60d}-\\x{61a}\\x{61c}-\\x{61e}\\x{620}-\\x{63f}"
     "\\x{641}-\\x{64a}\\x{656}-\\x{66f}\\x{671}-\\x{6dc}\\x{6de}-\\x{6ff}\\x{750}-\\x{77f}"
     "\\x{870}-\\x{88e}\\x{890}-\\x{891}\\x{897}-\\x{8e1}\\x{8e3}-\\x{8ff}\\x{fb50}-\\x{fbc2}"
     "\\x{fbd3}-\\x{fd3d}\\x{fd40}-\\x{fd8f}\\x{fd92}-\\x{fdc7}\\x{fdcf}\\x{fdf0}-\\x{fdff}"
     "\\x{fe70}-\\x{fe74}\\x{fe76}-\\x{fefc}\\x{10e60}-\\x{10e7e}\\x{10ec2}-\\x{10ec4}"
     "\\x{10efc}-\\x{10eff}\\x{1ee00}-\\x{1ee03}\\x{1ee05}-\\x{1ee1f}\\x{1ee21}-\\x{1ee22}\\x{1ee24}"
     "\\x{1ee27}\\x{1ee29}-\\x{1ee32}\\x{1ee34}-\\x{1ee37}\\x{1ee39}\\x{1ee3b}\\x{1ee42}\\x{1ee47}"
     "\\x{1ee49}\\x{1ee4b}\\x{1ee4d}-\\x{1ee4f}\\x{1ee51}-\\x{1ee52}\\x{1ee54}\\x{1ee57}\\x{1ee59}"
     "\\x{1ee5b}\\x{1ee5d}\\x{1ee5f}\\x{1ee61}-\\x{1ee62}\\x{1ee64}\\x{1ee67}-\\x{1ee6a}"
     "\\x{1ee6c}-\\x{1ee72}\\x{1ee74}-\\x{1ee77}\\x{1ee79}-\\x{1ee7c}\\x{1ee7e}\\x{1ee80}-\\x{1ee89}"
     "\\x{1ee8b}-\\x{1ee9b}\\x{1eea1}-\\x{1eea3}\\x{1eea5}-\\x{1eea9}\\x{1eeab}-\\x{1eebb}"
     "\\x{1eef0}-\\x{1eef1}",
     0, false},
    {"devanagari", "\\x{900}-\\x{950}\\x{955}-\\x{963}\\x{966}-\\x{97f}\\x{a8e0}-\\x{a8ff}\\x{11b00}-\\x{11b09}", 0,
     false},
    {"lao",
     "\\x{e81}-\\x{e82}\\x{e84}\\x{e86}-\\x{e8a}\\x{e8c}-\\x{ea3}\\x{ea5}\\x{ea7}-\\x{ebd}"
     "\\x{ec0}-\\x{ec4}\\x{ec6}\\x{ec8}-\\x{ece}\\x{ed0}-\\x{ed9}\\x{edc}-\\x{edf}",
     0, false},
    {"myanmar", "\\x{1000}-\\x{109f}\\x{a9e0}-\\x{a9fe}\\x{aa60}-\\x{aa7f}\\x{116d0}-\\x{116e3}", 0, false},
    {"cn", ASSIGNED, ASSIGNED_SET, true},
    {"unassigned", ASSIGNED, ASSIGNED_SET, true},
    {"c", VISIBLE, VISIBLE_SET, true},
    {"other", VISIBLE, VISIBLE_SET, true},
};
/* \p{name} that PCRE2 takes as it stands; every other name is a script. */
static const char *const binary_properties[] = {"emojimodifier",
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
  if (negate != set->inverted) {
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
  if (c == '0') { /* octal, at most two digits more */
    *point = 0;
    for (uint32_t i = 0; i < 2 && peek(t, 0) >= '0' && peek(t, 0) <= '7'; i++, t->at++)
      *point = *point << 3 | (uint32_t)(peek(t, 0) - '0');
    return HR_OK;
  }
  if (c == 'C' || c == 'M' || c == 'c' || (c >= '1' && c <= '9'))
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
  if (c == 'X') return fail(t, t->at, "a cluster of characters, whose rules differ between versions of Unicode,");
  if (c == 'G') return fail(t, t->at, "the place where a search begins, which a window of a long text would move,");
  if (strchr("AzZRKN", c) || (c >= '1' && c <= '9')) {
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
