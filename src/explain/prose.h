/* Whether a failure is told of or spoken of, by the words around its phrase. A program's line is built in one of few ways, of
 * which the signs of voice.h tell; people's sentences are not: "still OOMs at step 3", "I met CUDA out of memory", "to avoid
 * OOM". So the words of a sentence are weighed themselves, each by where it stands, with the signs beside them; and for a
 * sentence and a line that nothing shows to be a program's also the words of the text on both sides: a page that explains an error to
 * whoever comes to it speaks otherwise than who has met it. The weights are fitted to labelled texts (tests/explain/fit_prose.py;
 * docs/explain-measured.md says to which). */
#ifndef HRI_EXPLAIN_PROSE_H
#define HRI_EXPLAIN_PROSE_H

#include "explain/voice.h"

/* A word, or two, as the table names them: a letter that says where they stand (prose.c), a blank, the words. */
typedef struct hri_prose_word {
  const char *key;
  int weight;
} hri_prose_word;

/* The table, and the weights of the signs in a sentence: made by tests/explain/fit_prose.py, prose_words.c. */
extern const hri_prose_word hri_prose_words[];
extern const size_t hri_prose_word_count;
extern const int hri_prose_bias, hri_prose_signs[HRI_SIGN_COUNT];

/* Whether the phrase text[from, to) with these signs stands in a sentence, and nothing of a program's is beside it. */
bool hri_prose_is_sentence(const hri_oom_place *place, size_t from, size_t to, uint64_t signs);
/* Whether the text around a phrase with these signs counts: not where a program's line tells of itself. */
bool hri_prose_is_on_page(uint64_t signs, bool in_sentence);
/* What signs and words come to: told where it is above 0. Of a line that is no sentence the signs weigh as voice.h says. */
int hri_prose_weigh(const hri_voice_heard *heard);
/* Calls see() with each key of the sentence and the text around it, which may come more than once: for who fits the weights. */
void hri_prose_each(const hri_voice_heard *heard, void (*see)(void *context, const char *key), void *context);

#endif
