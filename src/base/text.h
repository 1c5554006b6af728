/* A growable text with a sticky failure flag; sizes and near misses for messages. */
#ifndef HRI_BASE_TEXT_H
#define HRI_BASE_TEXT_H

#include <stdarg.h>

#include "base/mem.h"

typedef struct hri_text hri_text;
struct hri_text {
  char *chars; /* NUL-terminated once anything was added; NULL when empty */
  size_t length, capacity;
  bool failed; /* memory was refused at some point; the text is incomplete */
};

void hri_text_add(hri_text *text, const char *format, ...) HRI_PRINTF(2, 3);
void hri_text_add_args(hri_text *text, const char *format, va_list args) HRI_PRINTF(2, 0);
void hri_text_add_bytes(hri_text *text, const char *bytes, size_t count);
void hri_text_deinit(hri_text *text);
/* The characters, "" when empty. */
static inline const char *hri_text_get(const hri_text *text) { return text->chars ? text->chars : ""; }

/* Bytes of the control character at the beginning of a text, of which `bytes` are there: of those below U+0020 and of U+007F
 * to U+009F, which steer terminals too. 0: it begins with none. */
size_t hri_control_bytes(const char *text, size_t bytes);
/* Words of files come from anywhere: what would steer a terminal becomes '?', but for the characters in `but`. */
void hri_plain_text(char *text, const char *but);

/* "1.50 GiB" into `out` (at least 32 bytes); returns out. */
char *hri_size_text(uint64_t bytes, char out[32]);
enum { HRI_WORD_MAX = 48 };
/* Edits that make one word of the other: insert, delete, replace, swap neighbours. HRI_WORD_MAX when one of them is
 * longer than that. */
uint32_t hri_word_distance(const char *a, const char *b);
/* The nearest of `names` (count) to `word` by edit distance, or NULL if none is near. */
const char *hri_nearest(const char *word, const char *const *names, size_t count);

/* The name that somebody may have meant: begin with what was written, offer names, ask for the best (nearest.c). */
typedef struct hri_near {
  const char *word, *best;
  uint32_t distance;
} hri_near;
void hri_near_begin(hri_near *search, const char *word);
void hri_near_offer(hri_near *search, const char *candidate);
const char *hri_near_end(const hri_near *search); /* NULL: none is near enough to be a slip of the fingers */

#endif
