/* What the targets that read data files share: the input as a file, and what must hold of a row of a data set that was accepted. */
#ifndef HR_FUZZ_ROWS_H
#define HR_FUZZ_ROWS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "data/dataset.h"

enum { MOST_TOKENS = 32 }; /* of a row */

static char path[1024]; /* of the input */

static void require(bool holds) {
  if (!holds) abort();
}

static void remove_file(void) { unlink(path); }

/* One file for all inputs; its name ends in .jsonl. */
static void write_input(const uint8_t *data, size_t size) {
  static int fd = -1;
  if (fd < 0) {
    const char *directory = getenv("TMPDIR");
    (void)snprintf(path, sizeof path, "%s/hr-fuzz-XXXXXX.jsonl", directory ? directory : "/tmp");
    fd = mkstemps(path, 6);
    require(fd >= 0 && atexit(remove_file) == 0);
  }
  require(ftruncate(fd, 0) == 0 && (size == 0 || pwrite(fd, data, size, 0) == (ssize_t)size));
}

/* Adds the row's labels that count, and its tokens. */
static void check_row(hri_dataset *dataset, uint64_t row, const hri_dataset_options *options, uint64_t *labels,
                      uint64_t *tokens) {
  int32_t ids[MOST_TOKENS], targets[MOST_TOKENS], positions[MOST_TOKENS], doc_start[MOST_TOKENS];
  int32_t sequence = (int32_t)options->sequence, vocabulary = (int32_t)options->vocabulary;
  uint64_t counted = 0, seen = 0, length = 0;
  hr_error error;
  require(options->sequence <= MOST_TOKENS);
  require(hri_dataset_row(dataset, row, ids, targets, positions, doc_start, &counted, &error) == HR_OK);
  require(hri_dataset_row_length(dataset, row, &length, &error) == HR_OK && length > 0 && length <= options->sequence);
  for (int32_t t = 0; t < sequence; t++) {
    bool begins = doc_start[t] == t, last = t + 1 == sequence || doc_start[t + 1] == t + 1;
    require(ids[t] >= 0 && ids[t] < vocabulary);
    require(targets[t] == -100 || (!last && targets[t] >= 0 && targets[t] < vocabulary && (uint64_t)t + 1 < length));
    require(positions[t] == t - doc_start[t] && positions[t] >= 0);
    require(begins || (t > 0 && doc_start[t] == doc_start[t - 1]));
    seen += targets[t] != -100;
  }
  require(counted == seen);
  *labels += counted;
  *tokens += length;
}

#endif
