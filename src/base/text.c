#include "base/text.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/number.h"

size_t hri_control_bytes(const char *text, size_t bytes) {
  const unsigned char first = bytes > 0 ? (unsigned char)text[0] : ' ', second = bytes > 1 ? (unsigned char)text[1] : 0;
  if (first < 32 || first == 127) return 1;
  return first == 0xC2 && second >= 0x80 && second < 0xA0 ? 2 : 0;
}

void hri_plain_text(char *text, const char *but) {
  for (size_t left = strlen(text), step; left > 0; text += step, left -= step) {
    const size_t control = strchr(but, *text) ? 0 : hri_control_bytes(text, left);
    step = control ? control : 1;
    memset(text, '?', control);
  }
}

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

void hri_text_add_args(hri_text *text, const char *format, va_list args) {
  va_list again;
  char small[512];
  int count;
  va_copy(again, args);
  count = hri_vsnprintf(small, sizeof small, format, args);
  if (count >= 0 && (size_t)count < sizeof small) {
    hri_text_add_bytes(text, small, (size_t)count);
  } else if (count >= 0 && text_reserve(text, (size_t)count)) {
    (void)hri_vsnprintf(text->chars + text->length, (size_t)count + 1, format, again);
    text->length += (size_t)count;
  }
  va_end(again);
}

void hri_text_add(hri_text *text, const char *format, ...) {
  va_list args;
  va_start(args, format);
  hri_text_add_args(text, format, args);
  va_end(args);
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
  if (unit == 0) (void)snprintf(out, 32, "%llu B", (unsigned long long)bytes);
  else (void)hri_snprintf(out, 32, "%.2f %s", value, units[unit]);
  return out;
}

/* Edit distance with insert, delete, replace and swapped neighbours; words are short option and model names. */
uint32_t hri_word_distance(const char *a, const char *b) {
  uint32_t rows[3][HRI_WORD_MAX + 1] = {{0}}, *before = rows[0], *last = rows[1], *now = rows[2], *swap;
  size_t n = strlen(a), m = strlen(b);
  if (n > HRI_WORD_MAX || m > HRI_WORD_MAX) return HRI_WORD_MAX;
  for (uint32_t j = 0; j <= m; j++) last[j] = j;
  for (uint32_t i = 1; i <= n; i++) {
    now[0] = i;
    for (uint32_t j = 1; j <= m; j++) {
      uint32_t least = last[j - 1] + (a[i - 1] != b[j - 1]);
      if (last[j] + 1 < least) least = last[j] + 1;
      if (now[j - 1] + 1 < least) least = now[j - 1] + 1;
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < least)
        least = before[j - 2] + 1;
      now[j] = least;
    }
    swap = before;
    before = last;
    last = now;
    now = swap;
  }
  return last[m];
}

const char *hri_nearest(const char *word, const char *const *names, size_t count) {
  const char *best = NULL;
  size_t i, best_distance = strlen(word) / 3 + 2;
  for (i = 0; i < count; i++) {
    size_t distance = hri_word_distance(word, names[i]);
    if (distance < best_distance) {
      best_distance = distance;
      best = names[i];
    }
  }
  return best;
}
