/* Data sets of rows of tokens, in bounded memory.
 *
 * Opening reads every file once and makes a list of documents; packing makes rows of them. Bytes and token bins stay
 * where they are and are read in place; what had to be tokenized or parsed, the documents and the rows go to temporary
 * files that have no name (deleted when the data set is destroyed or the process ends), or to a cache that the next run
 * finds again.
 * The heap holds a few fixed buffers, one record of JSON with its tokens, and some words per file. docs/data.md
 * describes the formats. */
#ifndef HRI_DATA_DATASET_H
#define HRI_DATA_DATASET_H

#include <stdbool.h>
#include <stdint.h>

#include <headroom/data.h>
#include <headroom/status.h>
#include <headroom/tokenizer.h>

#include "base/rng.h"

enum { HRI_LABEL_IGNORED = -100 };

typedef struct hri_dataset hri_dataset;

typedef struct hri_dataset_options {
  const char *const *paths; /* files, or directories: their data files in the order of their names */
  uint32_t path_count;
  hr_data_format format;
  const char *separator; /* plain text: documents end here (its bytes are dropped); NULL: each file is one document */
  uint32_t sequence;     /* tokens per row */
  uint64_t vocabulary;   /* ids are below this */
  int32_t eos_token;     /* behind each text document if it is in [0, vocabulary); -1: none */
  hr_packing packing;
  hr_truncate truncate;
  hr_loss_scope loss;
  bool skip_bad;
  const hr_tokenizer *tokenizer; /* NULL: bytes are tokens. Used while opening */
  const char *lacking; /* a model's directory that says of which class its tokenizer is and has none: text is refused */
  const char *chat;    /* chat template: preset, file, or model directory; NULL: there is none */
  bool chat_given;     /* a person named it: Alpaca rows use it as well */
  uint64_t identity;   /* of tokenizer and template: what they make of a text */
  const char *cache_directory; /* of the temporary files; NULL: TMPDIR, else /tmp */
  const char *store_directory; /* tokenized data is kept here and found again; NULL: it is not */
  bool keep_later; /* nothing is made or written in store_directory, which is looked into; hri_dataset_keep does that */
  void (*on_note)(
      void *context,
      const char *note); /* what takes time while opening: another process makes the same entry; may be NULL */
  void *note_context;
  bool (*should_stop)(void *context); /* asked while files are read; true: INTERRUPTED. May be NULL */
  void *stop_context;
} hri_dataset_options;

/* Reads the files. Nothing of `options` is kept. USAGE: options; INPUT: a file's content, with file, line, field, value
 * and remedy, also when there is no token or no label that counts; IO: reading, or writing the temporary files. */
hr_status hri_dataset_open(const hri_dataset_options *options, hri_dataset **dataset, hr_error *error);
void hri_dataset_destroy(hri_dataset *dataset); /* NULL is fine */

/* Writes what was tokenized into a store, which is made when missing, and goes on reading from there: the space in the
 * temporary files is free then. Nothing happens when it came from a store, or was kept, or needs none (text and bins
 * read in place). For one process's own store: what several share is named at opening, where others wait. After IO or
 * MEMORY no entry stands, and the data set is as usable as before. */
hr_status hri_dataset_keep(hri_dataset *dataset, const char *store_directory, hr_error *error);

/* Takes back what hri_dataset_keep of this process wrote into `store_directory`, for a run that does not begin after
 * all. */
void hri_dataset_forget(const hri_dataset *dataset, const char *store_directory);

/* Holds back the documents that `share` (above 0, below 1) and the seed choose by their content (split.c): *held has
 * rows of them alone, and lives no longer than `dataset`, which keeps the rest and has another hash from then on. USAGE
 * when one side would have nothing to predict. */
hr_status hri_dataset_split(hri_dataset *dataset, double share, uint64_t seed, hri_dataset **held, hr_error *error);
/* Whether some file of `a` is one of `b` too: by its name, a link, or a copy of the same bytes (of one above 64 MiB,
 * wherever it was looked at). Their paths are borrowed. */
bool hri_dataset_shares(const hri_dataset *a, const hri_dataset *b, const char **path_of_a, const char **path_of_b);
/* Whether all files are rows (JSON, JSONL), and none is text or tokens in a bin. */
bool hri_dataset_is_rows(const hri_dataset *dataset);
/* True if words of some file became tokens here, and each byte one, for want of a tokenizer. */
bool hri_dataset_is_bytes(const hri_dataset *dataset);

uint64_t hri_dataset_row_count(const hri_dataset *dataset);
uint64_t hri_dataset_token_count(const hri_dataset *dataset); /* in rows: without padding, with end tokens */
uint64_t hri_dataset_label_count(const hri_dataset *dataset); /* targets that count; the sum of all rows' `counted` */
uint64_t hri_dataset_document_count(const hri_dataset *dataset); /* without empty ones */
uint64_t hri_dataset_broken_count(const hri_dataset *dataset);   /* rows that were passed over (skip_bad) */
/* Depends on the bytes of all files in order, and on what decides the rows; not on names. For resume checks. */
uint64_t hri_dataset_hash(const hri_dataset *dataset);
/* Parts of it: the bytes of the files and what each was taken for; tokenizer and chat template. */
uint64_t hri_dataset_content_hash(const hri_dataset *dataset);
uint64_t hri_dataset_words_hash(const hri_dataset *dataset);
uint64_t hri_dataset_disk_bytes(const hri_dataset *dataset); /* written to temporary files */
/* What was read, in words for people, and what was ignored in it; one line. Borrowed. */
const char *hri_dataset_note(const hri_dataset *dataset);

/* Fills row `row`: arrays of `sequence` elements each. A document cut by the end of the row goes on in another row as
 * if it began there. For the token at t, in a document (or the piece of one in this row) whose first token is at s:
 *   ids[t]; positions[t] = t - s; doc_start[t] = s;
 *   targets[t] = label of t+1 if it is in the same document and row, else -100; labels of -100 stay.
 * Padding at the end is a document of its own with id 0 and target -100. *counted (may be NULL): targets that are not
 * -100. Allocates nothing. One caller at a time. INPUT when a file read in place changed since it was opened. */
hr_status hri_dataset_row(hri_dataset *dataset, uint64_t row, int32_t *ids, int32_t *targets, int32_t *positions,
                          int32_t *doc_start, uint64_t *counted, hr_error *error);

/* Tokens of a row without its padding. */
hr_status hri_dataset_row_length(const hri_dataset *dataset, uint64_t row, uint64_t *length, hr_error *error);
/* The row that is the k-th of an epoch, 0 <= k < count. */
static inline uint64_t hri_dataset_order(uint64_t count, uint64_t seed, bool shuffle, uint64_t epoch, uint64_t k) {
  return shuffle ? hri_permute(k, count, seed, epoch) : k;
}

#endif
