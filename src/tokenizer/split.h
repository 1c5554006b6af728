/* Splitting text into the pieces that a tokenizer works on.
 *
 * A splitter is a pattern and what happens to its matches. The patterns of the large families (GPT-2, Llama-3 =
 * cl100k, Qwen, o200k, Tekken) are recognised by their text and matched by code written for them; literals and
 * character classes are searched directly; regexes that are alternatives of runs of characters are matched by
 * split_runs.c and split_states.c; every other regex goes through PCRE2, rewritten so that it means what Oniguruma (the engine of the reference, Ruby
 * syntax) takes it for. See split_translate.c for that rewriting.
 *
 * Text is valid UTF-8 (normalize.h repairs it), at most 4 GiB - 1. A splitter is immutable: any number of threads may
 * run it, each with an hri_split of its own. */
#ifndef HRI_TOKENIZER_SPLIT_H
#define HRI_TOKENIZER_SPLIT_H

#include "base/mem.h"

/* What becomes of matches ("delimiters"); for "the-final--countdown" and "-":                    */
typedef enum hri_split_behavior {
  HRI_SPLIT_REMOVED = 0,          /* the | final | countdown */
  HRI_SPLIT_ISOLATED,             /* the | - | final | - | - | countdown */
  HRI_SPLIT_MERGED_WITH_PREVIOUS, /* the- | final- | - | countdown */
  HRI_SPLIT_MERGED_WITH_NEXT,     /* the | -final | - | -countdown */
  HRI_SPLIT_CONTIGUOUS            /* the | - | final | -- | countdown */
} hri_split_behavior;

/* Character classes with a meaning of their own in tokenizer.json; each character is a match of its own. */
typedef enum hri_split_class {
  HRI_SPLIT_SPACES = 0,  /* WhitespaceSplit (with REMOVED) */
  HRI_SPLIT_DIGITS,      /* Digits: ISOLATED when individual_digits, else CONTIGUOUS */
  HRI_SPLIT_PUNCTUATION, /* Punctuation */
  HRI_SPLIT_WORDS        /* Whitespace: \w of Rust's regex, CONTIGUOUS, behind SPACES */
} hri_split_class;

typedef struct hri_splitter hri_splitter;

/* Names of behaviors as tokenizer.json spells them ("MergedWithPrevious"); false for others. */
bool hri_split_behavior_parse(const char *name, hri_split_behavior *behavior);

/* `invert` swaps matches and what lies between them. The pattern is copied. INPUT for a pattern that cannot be taken:
 * the message holds the pattern, what is wrong and the position; the caller adds the file and field. */
hr_status hri_splitter_create_regex(const char *pattern, size_t bytes, hri_split_behavior behavior, bool invert,
                                    hri_splitter **splitter, hr_error *error);
hr_status hri_splitter_create_literal(const char *literal, size_t bytes, hri_split_behavior behavior, bool invert,
                                      hri_splitter **splitter, hr_error *error);
hr_status hri_splitter_create_class(hri_split_class which, hri_split_behavior behavior, bool invert,
                                    hri_splitter **splitter, hr_error *error);
/* The regex of ByteLevel (GPT-2), ISOLATED; and the known patterns by name: "gpt2", "llama3" (= "cl100k"), "qwen2",
 * "o200k", "tekken". NULL pattern when the name is none of them. */
hr_status hri_splitter_create_byte_level(hri_splitter **splitter, hr_error *error);
/* BertPreTokenizer: white space goes, punctuation stands alone. */
hr_status hri_splitter_create_words(hri_splitter **splitter, hr_error *error);
const char *hri_split_pattern_named(const char *name);
void hri_splitter_destroy(hri_splitter *splitter); /* NULL is fine */

/* How it matches, for people: "gpt2", "llama3", "qwen2", "o200k", "tekken", "bert", "literal", "class", "runs",
 * "PCRE2 with JIT", "PCRE2". */
const char *hri_splitter_about(const hri_splitter *splitter);

typedef struct hri_split_piece {
  uint32_t begin, end; /* bytes [begin, end) of the text; never empty */
} hri_split_piece;

typedef struct hri_split_memory hri_split_memory;

/* A walk over the pieces of one text. Start from {0}, begin it as often as wanted (also with other splitters: what it
 * allocated is kept for the next text), end it once. Fields are the walk's own. */
typedef struct hri_split {
  const hri_splitter *splitter;
  const char *text;
  uint32_t bytes;
  uint32_t given;        /* end of what was given out, matches and gaps */
  uint32_t search;       /* the next match is looked for from here */
  uint32_t last_end;     /* end of the last match, UINT32_MAX before the first */
  uint64_t vain;         /* bytes that were looked at for nothing (split_states.c, split_regex.c) */
  hri_split_piece match; /* a match found already, to be given after the gap before it */
  hri_split_piece held;  /* a piece that may still grow, by the behavior */
  bool has_match, has_held, held_is_match, done;
  hri_split_memory *memory; /* match data of PCRE2 */
} hri_split;

hr_status hri_split_begin(hri_split *split, const hri_splitter *splitter, const char *text, uint64_t bytes,
                          hr_error *error);
/* The next pieces in order, at most `capacity` (> 0); *count == 0 once there are no more. INPUT when a regex runs into
 * its limits (a pattern with catastrophic backtracking). */
hr_status hri_split_next(hri_split *split, hri_split_piece *pieces, uint32_t capacity, uint32_t *count,
                         hr_error *error);
void hri_split_end(hri_split *split);

/* The plain matches without any behavior, empty ones too: *found is false at the end. Used by Replace. */
hr_status hri_split_next_match(hri_split *split, hri_split_piece *match, bool *found, hr_error *error);

#endif
