#include "base/text.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool text_reserve(hri_text *text, size_t more) {
  size_t want = text->length + more + 1;
  if (text->failed) return false;
  if (!hri_array_reserve_((void **)&text->chars, &text->capacity, want, 1)) text->failed = true;
  return !text->failed;
}

void hri_text_add_bytes(hri_text *text, const char *bytes, size_t count) {
  if (!text_reserve(text, count)) return;
  memcpy(text->chars + text->length, bytes, count);
  text->length += count;
  text->chars[text->length] = 0;
}

void hri_text_add(hri_text *text, const char *format, ...) {
  va_list args;
  char small[512];
  int count;
  va_start(args, format);
  count = vsnprintf(small, sizeof small, format, args);
  va_end(args);
  if (count < 0) return;
  if ((size_t)count < sizeof small) {
    hri_text_add_bytes(text, small, (size_t)count);
    return;
  }
  if (!text_reserve(text, (size_t)count)) return;
  va_start(args, format);
  (void)vsnprintf(text->chars + text->length, (size_t)count + 1, format, args);
  va_end(args);
  text->length += (size_t)count;
}

void hri_text_deinit(hri_text *text) {
  hri_free(text->chars);
  memset(text, 0, sizeof *text);
}

char *hri_size_text(uint64_t bytes, char out[32]) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = (double)bytes;
  size_t unit = 0;
  while (value >= 1023.995 && unit + 1 < sizeof units / sizeof *units) {
    value /= 1024;
    unit++;
  }
  if (unit == 0)
    (void)snprintf(out, 32, "%llu B", (unsigned long long)bytes);
  else
    (void)snprintf(out, 32, "%.2f %s", value, units[unit]);
  return out;
}

/* Edit distance with insert, delete, replace; words are short option and model names. */
static size_t edit_distance(const char *a, const char *b) {
  size_t row[64], i, j, n = strlen(a), m = strlen(b);
  if (n >= 63 || m >= 63) return 64;
  for (j = 0; j <= m; j++) row[j] = j;
  for (i = 1; i <= n; i++) {
    size_t diagonal = row[0];
    row[0] = i;
    for (j = 1; j <= m; j++) {
      size_t replace = diagonal + (a[i - 1] != b[j - 1]), best = row[j] + 1;
      diagonal = row[j];
      if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
      row[j] = replace < best ? replace : best;
    }
  }
  return row[m];
}

const char *hri_nearest(const char *word, const char *const *names, size_t count) {
  const char *best = NULL;
  size_t i, best_distance = strlen(word) / 3 + 2;
  for (i = 0; i < count; i++) {
    size_t distance = edit_distance(word, names[i]);
    if (distance < best_distance) {
      best_distance = distance;
      best = names[i];
    }
  }
  return best;
}
