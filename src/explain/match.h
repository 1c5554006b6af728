/* Words in a normalised text: whole ones, parts of names, the ends of sentences, how many there are. */
#ifndef HRI_EXPLAIN_MATCH_H
#define HRI_EXPLAIN_MATCH_H

#include "explain/message.h"

#define HRI_COUNT(list) (sizeof(list) / sizeof *(list))

static inline bool hri_is_digit(char c) { return c >= '0' && c <= '9'; }
static inline bool hri_is_letter(char c) { return c >= 'a' && c <= 'z'; }
static inline bool hri_is_name(char c) { return hri_is_letter(c) || hri_is_digit(c) || c == '_'; }

/* How many bytes of text[at, to) are a letter of the Latin script with a sign, as French, Polish or Vietnamese have them; 0: none. U+00C0
 * to U+024F but for the signs of multiplication and division, U+0300 to U+036F beside a letter, U+1E00 to U+1EFF. */
size_t hri_latin_at(const char *text, size_t at, size_t to);

/* Below, `words` is one word or several, parted by "|". */
/* Where one of them stands in text[from, to) with no letter of the Latin script, digit or "_" beside it; `to` when none does. */
size_t hri_match_whole(const char *text, size_t from, size_t to, const char *words);
/* Whether one stands there whole, or as a part of another word. */
bool hri_match_any(const char *text, size_t from, size_t to, const char *words);
bool hri_match_part(const char *text, size_t from, size_t to, const char *words);
/* Where the first of them begins, a part of another word or not; `to` when there is none. */
size_t hri_match_first(const char *text, size_t from, size_t to, const char *words);
/* Whether `word` is one of them. */
bool hri_is_one_of(const char *word, const char *words);
/* Whether one stands right at text[at]; where the longest ends, or `at`. */
bool hri_match_at(const char *text, size_t at, size_t to, const char *words);
size_t hri_match_next(const char *text, size_t at, size_t to, const char *words);
/* Whether text[from, to) ends with one; where the longest begins that ends there and is a whole word, or `to`. */
bool hri_match_end(const char *text, size_t from, size_t to, const char *words);
size_t hri_match_last(const char *text, size_t from, size_t to, const char *words);
/* Whether one begins before text[seam] and ends behind it. */
bool hri_match_over(const char *text, size_t seam, size_t to, const char *words);

/* `at`, moved before the blanks that end there. */
size_t hri_skip_back(const char *text, size_t from, size_t at);

/* Whether a sentence ends at text[at]: "2.5 gib" and "a.b" do not end one. */
bool hri_ends_sentence(const char *text, size_t at, size_t to);
size_t hri_sentence_start(const char *text, size_t from, size_t at);
size_t hri_sentence_end(const char *text, size_t at, size_t to);

/* How many words of a sentence stand in text[from, to): letters alone, between blanks. */
unsigned hri_count_words(const char *text, size_t from, size_t to);

#endif
