/* Tokenizing speed on one core: bench_tokenizer MODEL FILE [ROUNDS [CHUNK]]. FILE is one document, or documents of at
 * most CHUNK bytes that end with a line. Prints MB per second of processor time, tokens and the peak of memory;
 * bench/tokenizer.py compares with the `tokenizers` package.
 *
 * bench_tokenizer MODEL --ids: texts in hexadecimal from standard input, one a line; for each a line with its ids as
 * plain text, and their offsets, for tests/parity/check_tokenizers.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <headroom/tokenizer.h>

#include "base/file.h"

enum { MOST_ROUNDS = 101 };

static double now(void) {
  struct timespec time;
  (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int compare(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return a < b ? -1 : a > b;
}

static int fail(const hr_error *error) {
  (void)fprintf(stderr, "%s\n", error->message);
  return 1;
}

/* Bytes of the document that begins at `at`: whole lines, as many as fit. */
static uint64_t document_bytes(const char *text, uint64_t bytes, uint64_t at, uint64_t chunk) {
  uint64_t length = bytes - at < chunk ? bytes - at : chunk;
  const char *end = length < bytes - at ? memrchr(text + at, '\n', length) : NULL;
  return end ? (uint64_t)(end + 1 - (text + at)) : length;
}

/* Processor seconds for all documents. */
static double encode_all(const hr_tokenizer *tokenizer, const char *text, uint64_t bytes, uint64_t chunk,
                         hr_tokens *tokens, uint64_t *token_count) {
  double begin = now();
  *token_count = 0;
  for (uint64_t at = 0, length; at < bytes; at += length) {
    hr_error error;
    length = document_bytes(text, bytes, at, chunk);
    if (hr_tokenizer_encode(tokenizer, text + at, length, 0, tokens, &error) != HR_OK) exit(fail(&error));
    *token_count += tokens->count;
  }
  return now() - begin;
}

/* ---- ids for a comparison ---- */

/* The value of a hexadecimal digit, above 15 for what is none. */
static unsigned digit(char c) {
  return c >= '0' && c <= '9' ? (unsigned)(c - '0') : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a' + 10) : 16;
}

/* A line of hexadecimal digits to the bytes it stands for, in place. Texts have megabytes, so that sscanf, which measures
 * its text in each call, would take hours. */
static uint64_t unhex(char *line) {
  uint64_t count = 0;
  for (; digit(line[2 * count]) < 16 && digit(line[2 * count + 1]) < 16; count++)
    line[count] = (char)(digit(line[2 * count]) << 4 | digit(line[2 * count + 1]));
  return count;
}

static int print_ids(const hr_tokenizer *tokenizer) {
  hr_tokens tokens = {0};
  size_t capacity = 0;
  char *line = NULL;
  hr_error error;
  while (getline(&line, &capacity, stdin) > 0) {
    uint64_t bytes = unhex(line);
    if (hr_tokenizer_encode(tokenizer, line, bytes, HR_ENCODE_PLAIN | HR_ENCODE_OFFSETS, &tokens, &error) != HR_OK)
      return fail(&error);
    for (uint64_t i = 0; i < tokens.count; i++) (void)printf("%s%d", i ? " " : "", tokens.ids[i]);
    (void)printf(";");
    for (uint64_t i = 0; i < tokens.count; i++) (void)printf("%s%u %u", i ? " " : "", tokens.begin[i], tokens.end[i]);
    (void)printf("\n");
    if (hr_tokenizer_encode(tokenizer, line, bytes, HR_ENCODE_PLAIN, &tokens, &error) != HR_OK) return fail(&error);
    for (uint64_t i = 0; i < tokens.count; i++) (void)printf("%s%d", i ? " " : "", tokens.ids[i]);
    (void)printf("\n");
  }
  free(line);
  hr_tokens_deinit(&tokens);
  return 0;
}

int main(int count, char **words) {
  double seconds[MOST_ROUNDS], begin = now(), open_seconds, decode_seconds;
  int rounds = count > 3 ? atoi(words[3]) : 9;
  hr_tokenizer *tokenizer;
  hr_tokens tokens = {0};
  hr_error error = {0};
  char *text, *decoded;
  uint64_t bytes, back, chunk = count > 4 ? strtoull(words[4], NULL, 10) : UINT32_MAX - 1, token_count = 0;
  if (count < 3 || rounds < 1 || rounds > MOST_ROUNDS || chunk == 0) {
    (void)fprintf(stderr, "usage: bench_tokenizer MODEL FILE [ROUNDS, at most %d, [CHUNK]], or MODEL --ids\n",
                  MOST_ROUNDS);
    return 2;
  }
  if (hr_tokenizer_open(words[1], &tokenizer, &error) != HR_OK) return fail(&error);
  open_seconds = now() - begin;
  if (strcmp(words[2], "--ids") == 0) return print_ids(tokenizer);
  if (hri_file_read(words[2], (uint64_t)1 << 31, &text, &bytes, &error) != HR_OK) return fail(&error);
  for (int i = 0; i < rounds; i++) seconds[i] = encode_all(tokenizer, text, bytes, chunk, &tokens, &token_count);
  if (hr_tokenizer_encode(tokenizer, text, bytes, 0, &tokens, &error) != HR_OK) return fail(&error);
  begin = now();
  if (hr_tokenizer_decode(tokenizer, tokens.ids, tokens.count, 0, &decoded, &back, &error) != HR_OK)
    return fail(&error);
  decode_seconds = now() - begin;
  qsort(seconds, (size_t)rounds, sizeof *seconds, compare);
  (void)printf("%s\n%llu bytes, %llu tokens, %.3f bytes per token\n", hr_tokenizer_about(tokenizer),
               (unsigned long long)bytes, (unsigned long long)token_count,
               token_count ? (double)bytes / (double)token_count : 0.0);
  (void)printf(
      "encode: best %.1f MB/s, median %.1f MB/s of %d; decode: %.1f MB/s; open: %.1f ms; peak %.1f MiB of heap\n",
      1e-6 * (double)bytes / seconds[0], 1e-6 * (double)bytes / seconds[rounds / 2], rounds,
      1e-6 * (double)back / decode_seconds, 1e3 * open_seconds, (double)hri_mem_peak_bytes() / 1048576);
  hr_free(decoded);
  hri_free(text);
  hr_tokens_deinit(&tokens);
  hr_tokenizer_close(tokenizer);
  return 0;
}
