/* Names that people mistype: edit distance with swapped neighbours (headroom/field.h). */
#include <headroom/field.h>

#include <string.h>

enum { WORD_MAX = 48 };

static unsigned least(unsigned a, unsigned b) { return a < b ? a : b; }

static unsigned edit_distance(const char *a, const char *b) {
  unsigned rows[3][WORD_MAX + 1], *before = rows[0], *last = rows[1], *now = rows[2], *swap;
  size_t a_length = strlen(a), b_length = strlen(b);
  if (a_length > WORD_MAX || b_length > WORD_MAX) return WORD_MAX;
  memset(rows, 0, sizeof rows);
  for (unsigned j = 0; j <= b_length; j++) last[j] = j;
  for (unsigned i = 1; i <= a_length; i++) {
    now[0] = i;
    for (unsigned j = 1; j <= b_length; j++) {
      unsigned cost = a[i - 1] != b[j - 1];
      now[j] = least(least(last[j] + 1, now[j - 1] + 1), last[j - 1] + cost);
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) now[j] = least(now[j], before[j - 2] + 1);
    }
    swap = before;
    before = last;
    last = now;
    now = swap;
  }
  return last[b_length];
}

void hr_nearest_begin(hr_nearest *search, const char *word) {
  search->word = word;
  search->best = NULL;
  search->distance = WORD_MAX;
}

void hr_nearest_offer(hr_nearest *search, const char *candidate) {
  unsigned distance = edit_distance(search->word, candidate);
  size_t length = strlen(search->word);
  /* A word cut short ("micro" for micro-batch, "eval" for evaluate) is as near as a small slip. */
  if (length >= 3 && strncmp(search->word, candidate, length) == 0 && distance > 1) distance = 1;
  if (distance >= search->distance) return;
  search->distance = distance;
  search->best = candidate;
}

const char *hr_nearest_end(const hr_nearest *search) {
  size_t length = strlen(search->word);
  unsigned allowed = length < 2 ? 0 : length <= 4 ? 1 : length <= 8 ? 2 : (unsigned)length / 3;
  return search->distance <= allowed ? search->best : NULL;
}
