/* Where documents and rows begin.
 *
 * The tokens of a data set are numbered from 0 through all its documents. Documents follow each other without gaps, and
 * so do rows; a row has at most `sequence` tokens, and is padded if it has fewer. So one entry per document and one per
 * row say everything; both lists lie in spools, since there can be millions. */
#ifndef HRI_DATA_ROWS_H
#define HRI_DATA_ROWS_H

#include "data/spool.h"

typedef struct hri_document {
  uint64_t start; /* number of its first token */
  uint64_t place; /* where its tokens are in its source: a byte of the text file, or an element of the token store */
} hri_document;

typedef struct hri_row {
  uint64_t start;    /* number of its first token */
  uint64_t document; /* index of the document which holds that token */
} hri_row;

typedef struct hri_row_index {
  hri_spool documents, rows; /* of hri_document and hri_row, each with one more at the end after sealing */
  uint64_t token_count, document_count, row_count;
  uint32_t sequence;
  uint32_t fill;             /* tokens in the last row */
} hri_row_index;

hri_row_index hri_row_index_init(uint32_t sequence, const char *directory);
void hri_row_index_deinit(hri_row_index *index);

/* Building: begin a document, then take its pieces until none of its tokens (one at least) is left. */
hr_status hri_row_index_begin_document(hri_row_index *index, uint64_t place, hr_error *error);
/* Puts as many of `left` tokens as fit (*piece > 0) into the last row, or a new one if that is full. */
hr_status hri_row_index_take(hri_row_index *index, uint64_t left, uint64_t *piece, hr_error *error);
/* The next piece begins a new row. */
static inline void hri_row_index_break(hri_row_index *index) { index->fill = index->sequence; }
hr_status hri_row_index_seal(hri_row_index *index, hr_error *error);

/* After sealing: `count` entries from `first`; the entry behind the last holds the number of tokens. */
hr_status hri_row_index_documents(const hri_row_index *index, uint64_t first, hri_document *documents, size_t count,
                                  hr_error *error);
hr_status hri_row_index_rows(const hri_row_index *index, uint64_t first, hri_row *rows, size_t count, hr_error *error);

#endif
