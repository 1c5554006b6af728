/* Splitters and normalizers on any pattern and any text: "PATTERN NUL TEXT". Pieces must be in order and, with nothing
 * removed, cover the text; the code written for a known pattern, and that for runs, must agree with PCRE2; normal forms
 * must stay as they are when they are made again. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/normalize.h"
#include "tokenizer/split.h"
#include "tokenizer/unicode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
  if (!holds) abort();
}

/* The pieces in order, no more than `room`; false when matching ran into its limits. */
static bool split_all(const hri_splitter *splitter, const char *text, size_t bytes, bool covers,
                      hri_split_piece *pieces, size_t room, size_t *count) {
  hri_split split = {0};
  uint32_t more = 1, at = 0;
  hr_error error;
  bool fine = hri_split_begin(&split, splitter, text, bytes, &error) == HR_OK;
  *count = 0;
  while (fine && more > 0) {
    hri_split_piece some[3];
    fine = hri_split_next(&split, some, 3, &more, &error) == HR_OK;
    for (uint32_t i = 0; fine && i < more; i++) {
      require(some[i].begin < some[i].end && some[i].begin >= at && some[i].end <= bytes &&
              (!covers || some[i].begin == at));
      at = some[i].end;
      if (*count < room) pieces[*count] = some[i];
      ++*count;
    }
  }
  require(!fine || !covers || at == bytes);
  require(fine || (error.code == HR_ERROR_INPUT && error.message[0]));
  hri_split_end(&split);
  return fine;
}

/* What is matched as runs must be what PCRE2 matches, which alone takes named groups. */
static void try_runs(const hri_splitter *runs, const char *pattern, size_t pattern_bytes, const char *text,
                     size_t bytes) {
  hri_split_piece own[256], other[256];
  size_t own_count, other_count;
  hri_splitter *engine;
  char wrapped[2048];
  hr_error error;
  int length = snprintf(wrapped, sizeof wrapped, "(?<all>%.*s)", (int)pattern_bytes, pattern);
  if (strcmp(hri_splitter_about(runs), "runs") != 0 || hri_utf8_valid(text, bytes) != bytes) return;
  require(hri_splitter_create_regex(wrapped, (size_t)length, HRI_SPLIT_ISOLATED, false, &engine, &error) == HR_OK);
  require(split_all(runs, text, bytes, true, own, 256, &own_count));
  if (split_all(engine, text, bytes, true, other, 256, &other_count))
    require(own_count == other_count && memcmp(own, other, (own_count < 256 ? own_count : 256) * sizeof *own) == 0);
  hri_splitter_destroy(engine);
}

static void try_pattern(const char *pattern, size_t pattern_bytes, const char *text, size_t bytes) {
  for (uint32_t behavior = 0; behavior <= HRI_SPLIT_CONTIGUOUS; behavior++) {
    hri_splitter *splitter;
    hr_error error;
    size_t count;
    if (hri_splitter_create_regex(pattern, pattern_bytes, (hri_split_behavior)behavior, behavior % 2 == 1, &splitter,
                                  &error) != HR_OK) {
      require(error.code == HR_ERROR_INPUT && error.message[0] && !splitter);
      return;
    }
    (void)split_all(splitter, text, bytes, behavior != HRI_SPLIT_REMOVED, NULL, 0, &count);
    if (behavior == HRI_SPLIT_ISOLATED) try_runs(splitter, pattern, pattern_bytes, text, bytes);
    hri_splitter_destroy(splitter);
  }
}

/* Splitters of the known patterns, by hand and through PCRE2; made once. */
static void try_known(const char *text, size_t bytes) {
  static const char *const names[] = {"gpt2", "llama3", "qwen2", "o200k", "tekken"};
  static hri_splitter *known[5], *engines[5];
  for (uint32_t n = 0; n < 5; n++) {
    const char *pattern = hri_split_pattern_named(names[n]);
    char wrapped[512];
    hri_split_piece own[256], other[256];
    hr_error error;
    size_t own_count, other_count;
    int length = snprintf(wrapped, sizeof wrapped, "(?:%s)", pattern);
    if (!known[n]) {
      require(hri_splitter_create_regex(pattern, strlen(pattern), HRI_SPLIT_ISOLATED, false, &known[n], &error) ==
              HR_OK);
      require(hri_splitter_create_regex(wrapped, (size_t)length, HRI_SPLIT_ISOLATED, false, &engines[n], &error) ==
              HR_OK);
    }
    require(split_all(known[n], text, bytes, true, own, 256, &own_count));
    if (hri_utf8_valid(text, bytes) != bytes) continue;
    require(split_all(engines[n], text, bytes, true, other, 256, &other_count));
    require(own_count == other_count && memcmp(own, other, (own_count < 256 ? own_count : 256) * sizeof *own) == 0);
  }
}

static void try_forms(const char *text, size_t bytes) {
  hri_normal normal = {0}, again = {0};
  hr_error error;
  for (uint32_t kind = 0; kind <= HRI_NORMALIZE_STRIP_ACCENTS; kind++) {
    hri_normalizer *normalizer;
    require(hri_normalizer_create(&normalizer, &error) == HR_OK &&
            hri_normalizer_add(normalizer, (hri_normalize_kind)kind, &error) == HR_OK);
    require(hri_normal_begin(&normal, text, bytes, true, &error) == HR_OK &&
            hri_normalizer_apply(normalizer, &normal, &error) == HR_OK);
    require(hri_utf8_valid(normal.text, normal.bytes) == normal.bytes);
    for (uint64_t i = 0; normal.spans && i < normal.bytes; i++)
      require(normal.spans[i].begin <= normal.spans[i].end && normal.spans[i].end <= bytes);
    require(hri_normal_begin(&again, normal.text, normal.bytes, false, &error) == HR_OK &&
            hri_normalizer_apply(normalizer, &again, &error) == HR_OK);
    require(kind > HRI_NORMALIZE_NFKD ||
            (again.bytes == normal.bytes && memcmp(again.text, normal.text, again.bytes) == 0));
    hri_normalizer_destroy(normalizer);
  }
  hri_normal_deinit(&normal);
  hri_normal_deinit(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const char *bytes = (const char *)data, *end = size > 0 ? memchr(bytes, 0, size) : NULL;
  size_t pattern = end ? (size_t)(end - bytes) : 0, text = end ? pattern + 1 : 0;
  if (size > 2000) return 0;
  if (pattern > 0) try_pattern(bytes, pattern, bytes + text, size - text);
  try_known(bytes + text, size - text);
  try_forms(bytes + text, size - text);
  return 0;
}
