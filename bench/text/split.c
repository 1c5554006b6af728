/* Nanoseconds per byte of the splitters and of the normalizers before them.
 *
 *   bench_split [FILE [rounds, default 7]]     FILE: the text (a mixture made here unless given)
 *
 * For each known pattern: the code written for it beside PCRE2 on the same text, in turns, median of the rounds; on
 * English, on code, on text without ASCII, and on FILE alone when there is one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "tokenizer/normalize.h"
#include "tokenizer/split.h"

enum { BYTES = 4 << 20, ROUNDS_MAX = 99 };

typedef struct text {
  const char *name;
  char *bytes;
  uint64_t count;
} text;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); /* this machine may have other work */
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(hr_status status, const hr_error *error) {
  if (status == HR_OK) return;
  (void)fprintf(stderr, "bench_split: %s\n", error->message);
  exit(1);
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

/* Words of a list in random order, so that branches cannot be learned by heart. */
static text make_text(const char *name, const char *const *words, uint32_t count) {
  text made = {name, malloc(BYTES + 64), 0};
  uint64_t state = 1;
  if (!made.bytes) exit(1);
  while (made.count < BYTES) {
    const char *word;
    state = state * 6364136223846793005u + 1442695040888963407u;
    word = words[(state >> 33) % count];
    memcpy(made.bytes + made.count, word, strlen(word));
    made.count += strlen(word);
  }
  return made;
}

static text english(void) {
  static const char *const words[] = {" the",      " of",          " and",      " a",     " to",     " in",
                                      " is",       " that",        " it",       " was",   " for",    " memory",
                                      " training", " model",       " language", " would", ", and",   ". The",
                                      ".\n\n",     " don't",       " it's",     " 1984",  " (which", ")",
                                      " however,", " information", " people",   " first", "; but",   " between",
                                      " years",    " \"quoted",    "\"",        " I",     " states"};
  return make_text("English", words, sizeof words / sizeof *words);
}
static text code(void) {
  static const char *const words[] = {"for (",    "int i",    " = 0",     "; ",        "i < n",   "++) {\n    ",
                                      "return",   " x->y",    "[i]",      " += ",      "0x1F",    ";\n",
                                      "  if (",   "count",    " == ",     "HR_OK",     ") ",      "}\n",
                                      "\t",       "// why\n", "static ",  "uint32_t ", "name_of", "(a, b)",
                                      "        ", " != NULL", "\"%s\\n\""};
  return make_text("code", words, sizeof words / sizeof *words);
}
static text beyond_ascii(void) {
  static const char *const words[] = {" \xD0\xBF\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82",
                                      " \xD0\xBC\xD0\xB8\xD1\x80",
                                      ", ",
                                      "\xE4\xBD\xA0\xE5\xA5\xBD\xEF\xBC\x8C",
                                      "\xE4\xB8\x96\xE7\x95\x8C\xE3\x80\x82",
                                      "\xE3\x81\x93\xE3\x82\x93\xE3\x81\xAB\xE3\x81\xA1\xE3\x81\xAF",
                                      " \xED\x95\x9C\xEA\xB5\xAD\xEC\x96\xB4",
                                      " caf\xC3\xA9",
                                      " \xE0\xA4\xB9\xE0\xA4\xBF\xE0\xA4\xA8\xE0\xA5\x8D\xE0\xA4\xA6\xE0\xA5\x80",
                                      " \xD9\x85\xD8\xB1\xD8\xAD\xD8\xA8\xD8\xA7",
                                      "\xF0\x9F\x98\x80",
                                      ".\n",
                                      " \xCE\xBB\xCF\x8C\xCE\xB3\xCE\xBF\xCF\x82",
                                      " na\xC3\xAFve"};
  return make_text("beyond ASCII", words, sizeof words / sizeof *words);
}

/* Seconds of one walk; *pieces of them. */
static double walk(hri_split *split, const hri_splitter *splitter, const text *on, uint64_t *pieces) {
  hri_split_piece some[256];
  uint32_t count;
  double begin = now();
  hr_error error;
  *pieces = 0;
  check(hri_split_begin(split, splitter, on->bytes, on->count, &error), &error);
  do {
    check(hri_split_next(split, some, 256, &count, &error), &error);
    *pieces += count;
  } while (count > 0);
  return now() - begin;
}

static double normalize(const hri_normalizer *normalizer, hri_normal *normal, const text *on) {
  double begin = now();
  hr_error error;
  check(hri_normal_begin(normal, on->bytes, on->count, false, &error), &error);
  check(hri_normalizer_apply(normalizer, normal, &error), &error);
  return now() - begin;
}

static double median(double *seconds, uint32_t rounds, uint64_t bytes) {
  qsort(seconds, rounds, sizeof *seconds, compare);
  return seconds[rounds / 2] / (double)bytes * 1e9;
}

static void time_pattern(const char *name, const text *on, uint32_t rounds) {
  const char *pattern = hri_split_pattern_named(name);
  double own[ROUNDS_MAX], other[ROUNDS_MAX];
  hri_splitter *known, *engine;
  hri_split split = {0};
  uint64_t pieces = 0;
  char wrapped[512];
  hr_error error;
  (void)snprintf(wrapped, sizeof wrapped, "(?:%s){1}", pattern);
  check(hri_splitter_create_regex(pattern, strlen(pattern), HRI_SPLIT_ISOLATED, false, &known, &error), &error);
  check(hri_splitter_create_regex(wrapped, strlen(wrapped), HRI_SPLIT_ISOLATED, false, &engine, &error), &error);
  for (uint32_t i = 0; i < rounds; i++) {
    own[i] = walk(&split, known, on, &pieces);
    other[i] = walk(&split, engine, on, &pieces);
  }
  (void)printf("%-13s %-7s %5.2f ns/byte   %s %6.2f ns/byte   %.1f bytes per piece\n", on->name, name,
               median(own, rounds, on->count), hri_splitter_about(engine), median(other, rounds, on->count),
               (double)on->count / (double)pieces);
  hri_split_end(&split);
  hri_splitter_destroy(known);
  hri_splitter_destroy(engine);
}

static void time_normalizers(const text *on, uint32_t rounds) {
  double forms[ROUNDS_MAX], blanks[ROUNDS_MAX];
  hri_normalizer *nfc, *llama2;
  hri_normal normal = {0};
  hr_error error;
  check(hri_normalizer_create(&nfc, &error), &error);
  check(hri_normalizer_add(nfc, HRI_NORMALIZE_NFC, &error), &error);
  check(hri_normalizer_create(&llama2, &error), &error);
  check(hri_normalizer_add_prepend(llama2, "\xE2\x96\x81", 3, &error), &error);
  check(hri_normalizer_add_replace(llama2, " ", 1, true, "\xE2\x96\x81", 3, &error), &error);
  for (uint32_t i = 0; i < rounds; i++) {
    forms[i] = normalize(nfc, &normal, on);
    blanks[i] = normalize(llama2, &normal, on);
  }
  (void)printf("%-13s NFC     %5.2f ns/byte   Prepend and Replace %.2f ns/byte\n", on->name,
               median(forms, rounds, on->count), median(blanks, rounds, on->count));
  hri_normal_deinit(&normal);
  hri_normalizer_destroy(nfc);
  hri_normalizer_destroy(llama2);
}

int main(int count, char **words) {
  static const char *const names[] = {"gpt2", "llama3", "qwen2", "o200k"};
  uint32_t rounds = count > 2 ? (uint32_t)atoi(words[2]) : 7, texts = 3;
  text on[3] = {english(), code(), beyond_ascii()};
  hr_error error;
  if (rounds < 1 || rounds > ROUNDS_MAX) return 2;
  if (count > 1 && strcmp(words[1], "-") != 0) {
    texts = 1;
    free(on[0].bytes);
    on[0].name = "file";
    check(hri_file_read(words[1], (uint64_t)1 << 31, &on[0].bytes, &on[0].count, &error), &error);
  }
  for (uint32_t t = 0; t < texts; t++) {
    for (uint32_t n = 0; n < sizeof names / sizeof *names; n++) time_pattern(names[n], &on[t], rounds);
    time_normalizers(&on[t], rounds);
  }
  for (uint32_t t = 0; t < 3; t++)
    if (t > 0 || texts > 1) free(on[t].bytes);
    else hri_free(on[t].bytes);
  return 0;
}
