/* The signs of each place of a text that is weighed (explain/voice.h), for fit_voice.py, which fits the weights to them, and
 * the words of its sentences (explain/prose.h), for fit_prose.py.
 *
 *   explain_signs --names     the name of each sign, the first bit first
 *   explain_signs <LIST       a line for each file that LIST names, one a line: "+" where a failure is reported whatever
 *                             the weights are, else "-"; then each different set of signs of a line, in hexadecimal: those
 *                             of sentences weigh in prose.c
 *   explain_signs --keys      the same, and before it a line for each place: "line" or "sentence", the signs, and
 *                             its keys, with tabs between
 *
 * No place counts as a report here, so that all of them are met. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <headroom/explain.h>

#include "explain/prose.h"

enum { MOST_PLACES = 4096, LONGEST_PATH = 4096, CHUNK = 65536 };

static bool with_keys;

static void print_key(void *context, const char *key) {
  (void)context;
  (void)printf("\t%s", key);
}

typedef struct heard {
  uint64_t signs[MOST_PLACES];
  size_t count;
} heard;

static bool listen(void *context, const hri_voice_heard *place) {
  heard *h = context;
  const uint64_t signs = hri_voice_pairs(place->signs);
  if (with_keys) {
    (void)printf("%s\t%" PRIx64, place->in_sentence ? "sentence" : "line", signs);
    hri_prose_each(place, print_key, NULL);
    (void)printf("\n");
  }
  if (place->in_sentence) return false; /* which voice.c does not weigh */
  for (size_t i = 0; i < h->count; i++)
    if (h->signs[i] == signs) return false;
  if (h->count < MOST_PLACES) h->signs[h->count++] = signs;
  return false;
}

static int fail(const char *what, const char *path) {
  (void)fprintf(stderr, "explain_signs: %s: %s\n", path, what);
  return EXIT_FAILURE;
}

static hr_status read_text(FILE *file, hr_explainer *explainer, hr_error *error) {
  static char bytes[CHUNK];
  size_t count;
  while ((count = fread(bytes, 1, sizeof bytes, file)) > 0) {
    hr_status status = hr_explainer_feed(explainer, bytes, count, error);
    if (status != HR_OK) return status;
  }
  return HR_OK;
}

static int print_signs(const char *path) {
  static heard places;
  const hri_voice_ear ear = {listen, &places};
  hr_explainer *explainer = NULL;
  hr_explanation *explanation = NULL;
  hr_error error = {0};
  hr_status status;
  FILE *file = fopen(path, "rb");
  if (!file) return fail("cannot be opened", path);
  places.count = 0;
  status = hr_explainer_create(NULL, &explainer, &error);
  if (status == HR_OK) {
    hri_explainer_lend_ear(explainer, &ear);
    status = read_text(file, explainer, &error);
  }
  if (status == HR_OK) status = hr_explainer_end(explainer, &explanation, &error);
  (void)fclose(file);
  hr_explainer_destroy(explainer);
  if (status != HR_OK) return fail(error.message, path);
  (void)printf("%c", explanation->failure_count ? '+' : '-');
  for (size_t i = 0; i < places.count; i++) (void)printf(" %" PRIx64, places.signs[i]);
  (void)printf("\n");
  hr_explanation_destroy(explanation);
  return EXIT_SUCCESS;
}

int main(int argc, char **argv) {
  char path[LONGEST_PATH];
  if (argc == 2 && strcmp(argv[1], "--names") == 0) {
    for (int i = 0; i < HRI_SIGN_COUNT; i++) (void)printf("%s\n", hri_voice_sign_name((hri_sign)i));
    return EXIT_SUCCESS;
  }
  with_keys = argc == 2 && strcmp(argv[1], "--keys") == 0;
  if (argc > 1 && !with_keys)
    return fail("unknown argument: --names, --keys, or the names of files on standard input", argv[1]);
  while (fgets(path, sizeof path, stdin)) {
    path[strcspn(path, "\n")] = 0;
    if (print_signs(path) != EXIT_SUCCESS) return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
