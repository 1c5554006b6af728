/* Names that people mistype: the nearest of what is offered. */
#include "base/text.h"

#include <string.h>

void hri_near_begin(hri_near *search, const char *word) {
  search->word = word;
  search->best = NULL;
  search->distance = HRI_WORD_MAX;
}

void hri_near_offer(hri_near *search, const char *candidate) {
  unsigned distance = hri_word_distance(search->word, candidate);
  size_t length = strlen(search->word);
  /* A word cut short ("micro" for micro-batch, "eval" for evaluate) is as near as a small slip. */
  if (length >= 3 && strncmp(search->word, candidate, length) == 0 && distance > 1) distance = 1;
  if (distance >= search->distance) return;
  search->distance = distance;
  search->best = candidate;
}

const char *hri_near_end(const hri_near *search) {
  size_t length = strlen(search->word);
  unsigned allowed = length < 2 ? 0 : length <= 4 ? 1 : length <= 8 ? 2 : (unsigned)length / 3;
  return search->distance <= allowed ? search->best : NULL;
}
