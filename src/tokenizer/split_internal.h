/* What the ways of matching share; see split.h. */
#ifndef HRI_TOKENIZER_SPLIT_INTERNAL_H
#define HRI_TOKENIZER_SPLIT_INTERNAL_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/text.h"
#include "tokenizer/split.h"

/* Writes the next pieces of valid UTF-8 from *at on, at most `capacity`; every byte belongs to a piece, but for the white
 * space between words. Moves *at. */
typedef uint32_t hri_split_filler(const char *text, uint32_t bytes, uint32_t *at, hri_split_piece *pieces,
                                  uint32_t capacity);

/* The known patterns as tokenizer.json files spell them. */
#define HRI_PATTERN_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define HRI_PATTERN_PREFIX "[^\\r\\n\\p{L}\\p{N}]?"
#define HRI_PATTERN_A "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define HRI_PATTERN_B "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define HRI_PATTERN_REST_LLAMA3 "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define HRI_PATTERN_REST_O200K "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define HRI_PATTERN_GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define HRI_PATTERN_LLAMA3 HRI_PATTERN_CONTRACTIONS "|" HRI_PATTERN_PREFIX "\\p{L}+|\\p{N}{1,3}" HRI_PATTERN_REST_LLAMA3
#define HRI_PATTERN_QWEN2 HRI_PATTERN_CONTRACTIONS "|" HRI_PATTERN_PREFIX "\\p{L}+|\\p{N}" HRI_PATTERN_REST_LLAMA3
#define HRI_PATTERN_O200K                                                                                              \
  HRI_PATTERN_PREFIX HRI_PATTERN_A "*" HRI_PATTERN_B "+" HRI_PATTERN_CONTRACTIONS                                      \
                                   "?|" HRI_PATTERN_PREFIX HRI_PATTERN_A "+" HRI_PATTERN_B                             \
                                   "*" HRI_PATTERN_CONTRACTIONS "?|\\p{N}{1,3}" HRI_PATTERN_REST_O200K
#define HRI_PATTERN_TEKKEN                                                                                             \
  HRI_PATTERN_PREFIX HRI_PATTERN_A "*" HRI_PATTERN_B "+|" HRI_PATTERN_PREFIX HRI_PATTERN_A "+" HRI_PATTERN_B           \
                                   "*|\\p{N}" HRI_PATTERN_REST_O200K

/* A pattern with code of its own (split_known.c). */
typedef struct hri_split_known {
  const char *name, *pattern;
  hri_split_filler *fill;
} hri_split_known;

extern const hri_split_known hri_split_words;                                   /* of BertPreTokenizer; no pattern */
const hri_split_known *hri_split_known_find(const char *pattern, size_t bytes); /* NULL when it is none */
const hri_split_known *hri_split_known_named(const char *name);

typedef enum hri_split_kind { HRI_SPLIT_KNOWN = 0, HRI_SPLIT_LITERAL, HRI_SPLIT_CLASS, HRI_SPLIT_REGEX } hri_split_kind;

typedef struct hri_split_runs hri_split_runs;

enum { HRI_SPLIT_OUTSIDE = 0, HRI_SPLIT_LOOK = 1 };

struct hri_splitter {
  hri_split_kind kind;
  hri_split_behavior behavior;
  bool invert;
  const hri_split_known *known;
  char *literal; /* of this length; an empty one matches between all characters */
  size_t literal_bytes;
  bool (*is_in)(uint32_t point);
  uint8_t ascii[256];   /* by byte, for classes: HRI_SPLIT_OUTSIDE needs no further look */
  bool ascii_in[128];   /* the same for ASCII, looked up */
  hri_split_runs *runs; /* of HRI_SPLIT_REGEX; without it PCRE2 matches */
  pcre2_code *code;
  bool jit;
};

/* split_states.c: a regex that is alternatives of runs of characters; *runs is NULL (and the status HR_OK) for others.
 * Freed by hri_free. */
hr_status hri_runs_compile(const char *pattern, size_t bytes, hri_split_runs **runs, hr_error *error);
/* The first match from `start` on. INPUT where a pattern looks ahead in vain again and again (\S+x without any x). */
hr_status hri_runs_match(hri_split *split, uint32_t start, hri_split_piece *match, bool *found, hr_error *error);
/* The next matches and gaps, as hri_split_next for ISOLATED. */
hr_status hri_runs_fill(hri_split *split, hri_split_piece *pieces, uint32_t capacity, uint32_t *count, hr_error *error);

/* split_regex.c: memory of PCRE2 from hri_alloc (NULL when it is refused). */
pcre2_general_context *hri_regex_memory(void);
/* Compiles into splitter->code; destroys it; finds the next match from `start` on. */
hr_status hri_regex_compile(const char *pattern, size_t bytes, hri_splitter *splitter, hr_error *error);
void hri_regex_destroy(hri_splitter *splitter);
hr_status hri_regex_match(hri_split *split, uint32_t start, hri_split_piece *match, bool *found, hr_error *error);
hr_status hri_regex_prepare(hri_split *split, hr_error *error); /* match data */
void hri_regex_end(hri_split *split);

/* Bytes ahead that a match sees at first; tests make it small. */
extern uint32_t hri_regex_window;
/* Fails with INPUT: what was looked at for nothing is too much; a text of much of it takes the square of its bytes. */
hr_status hri_regex_fail_vain(const hri_split *split, uint32_t at, hr_error *error);

/* split_translate.c: writes the PCRE2 pattern that means what Oniguruma takes `pattern` for. */
hr_status hri_regex_translate(const char *pattern, size_t bytes, hri_text *out, hr_error *error);
/* Fails with INPUT about a pattern: "regex PATTERN: WHAT at byte AT". */
hr_status hri_regex_fail(const char *pattern, size_t bytes, size_t at, const char *what, hr_error *error);

#endif
