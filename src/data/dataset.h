/* Data sets of rows of tokens, in bounded memory.
 *
 * Opening reads every file once: documents are found (text) or token ids checked (JSONL) and rows are cut. Text stays
 * where it is and is read in place; JSONL's tokens, the documents and the rows go to temporary files that have no name
 * (deleted when the data set is destroyed or the process ends). The heap holds a few fixed buffers (under 0.5 MiB) and
 * some words per file, whatever the size of the data. The formats are described in docs/data.md. */
#ifndef HRI_DATA_DATASET_H
#define HRI_DATA_DATASET_H

#include <stdbool.h>
#include <stdint.h>

#include <headroom/status.h>

#include "base/rng.h"

enum { HRI_LABEL_IGNORED = -100 };

typedef struct hri_dataset hri_dataset;

typedef struct hri_dataset_options {
  const char *const *paths;    /* *.jsonl and *.json-lines: token ids; anything else: text */
  uint32_t path_count;
  const char *separator;       /* text: documents end here (its bytes are dropped); NULL: each file is one document */
  uint32_t sequence;           /* tokens per row */
  uint64_t vocabulary;         /* ids are below this */
  int32_t eos_token;           /* put behind each text document if it is in [0, vocabulary); -1: none */
  bool packing;                /* documents follow each other in a row; else each starts a row */
  const char *cache_directory; /* of the temporary files; NULL: TMPDIR, else /tmp */
} hri_dataset_options;

/* Reads the files. Nothing of `options` is kept. USAGE: options; INPUT: a file's content, with file, line, field, value
 * and remedy, also when there is no token or no label that counts; IO: reading, or writing the temporary files. */
hr_status hri_dataset_open(const hri_dataset_options *options, hri_dataset **dataset, hr_error *error);
void hri_dataset_destroy(hri_dataset *dataset); /* NULL is fine */

uint64_t hri_dataset_row_count(const hri_dataset *dataset);
uint64_t hri_dataset_token_count(const hri_dataset *dataset);    /* without padding, with end tokens */
uint64_t hri_dataset_label_count(const hri_dataset *dataset);    /* targets that count; the sum of all rows' `counted` */
uint64_t hri_dataset_document_count(const hri_dataset *dataset); /* without empty ones */
/* Depends on the bytes of all files in order, and on what decides the rows; not on names. For resume checks. */
uint64_t hri_dataset_hash(const hri_dataset *dataset);
uint64_t hri_dataset_disk_bytes(const hri_dataset *dataset);     /* written to temporary files */
/* What was read, in words for people, and what was ignored in it; one line. Borrowed. */
const char *hri_dataset_note(const hri_dataset *dataset);

/* Fills row `row`: arrays of `sequence` elements each. A document cut by the end of the row goes on in the next row as if
 * it began there. For the token at t, in a document (or the piece of one in this row) whose first token is at s:
 *   ids[t]; positions[t] = t - s; doc_start[t] = s;
 *   targets[t] = label of t+1 if it is in the same document and row, else -100; labels of -100 stay.
 * Padding at the end is a document of its own with id 0 and target -100. *counted (may be NULL): targets that are not
 * -100. Allocates nothing. One caller at a time. INPUT when a text file changed since it was opened. */
hr_status hri_dataset_row(hri_dataset *dataset, uint64_t row, int32_t *ids, int32_t *targets, int32_t *positions,
                          int32_t *doc_start, uint64_t *counted, hr_error *error);

/* Tokens of row `row` without the padding at its end. */
hr_status hri_dataset_row_length(const hri_dataset *dataset, uint64_t row, uint64_t *length, hr_error *error);

/* The row that is the k-th of an epoch, 0 <= k < count. */
static inline uint64_t hri_dataset_order(uint64_t count, uint64_t seed, bool shuffle, uint64_t epoch, uint64_t k) {
  return shuffle ? hri_permute(k, count, seed, epoch) : k;
}

#endif
