/* Documents, pieces and rows.
 *
 * Reading makes a list of documents: where the tokens of each are. Packing (data/pack.h) makes pieces of them, each at
 * most a row long, and says which pieces share a row. All three are lists in spools, since there can be millions. */
#ifndef HRI_DATA_ROWS_H
#define HRI_DATA_ROWS_H

#include "data/spool.h"

enum {
  HRI_DOCUMENT_END =
      1 << 0, /* its last token is the end token, which is not where the others are (text read in place) */
  HRI_DOCUMENT_LABELS = 1 << 1,  /* the label store has its labels */
  HRI_DOCUMENT_ROW = 1 << 2,     /* begins a row that somebody else packed */
  HRI_DOCUMENT_SAME_ROW = 1 << 3 /* goes on in that row */
};

typedef struct hri_document {
  uint64_t place;  /* of its first token: an element of its file if that is read in place, else of the token store */
  uint64_t length; /* tokens, with the end token; never 0 */
  uint32_t source; /* index of its file */
  uint32_t flags;
  uint64_t line; /* where it began in its file; 0: not known */
} hri_document;

/* A part of a document, in one row. */
typedef struct hri_piece {
  uint64_t place;
  uint32_t count;  /* tokens, with the end token */
  uint32_t source; /* HRI_PIECE_* | index */
} hri_piece;

#define HRI_PIECE_END (1u << 31)
#define HRI_PIECE_LABELS (1u << 30)
#define HRI_PIECE_SOURCE (HRI_PIECE_LABELS - 1)

/* Tokens [skip, skip + count) of a document. */
hri_piece hri_piece_of(const hri_document *document, uint64_t skip, uint64_t count);

typedef struct hri_row {
  uint64_t first_piece;
  uint32_t tokens, labels; /* filled; targets that count */
} hri_row;

typedef struct hri_row_index {
  hri_spool pieces, rows; /* rows has one more at the end after sealing */
  uint64_t piece_count, row_count, token_count, label_count;
  hri_row row; /* while building: the row that is being filled */
  bool open;
} hri_row_index;

hri_row_index hri_row_index_init(const char *directory);
void hri_row_index_deinit(hri_row_index *index);

/* Building: what follows goes into a new row. */
hr_status hri_row_index_break(hri_row_index *index, hr_error *error);
/* Puts a piece with `labels` counted targets into the current row; the caller knows that it fits. */
hr_status hri_row_index_put(hri_row_index *index, const hri_piece *piece, uint32_t labels, hr_error *error);
hr_status hri_row_index_seal(hri_row_index *index, hr_error *error);

/* After sealing: `count` entries from `first`; the row behind the last holds the number of pieces. */
hr_status hri_row_index_pieces(const hri_row_index *index, uint64_t first, hri_piece *pieces, size_t count,
                               hr_error *error);
hr_status hri_row_index_rows(const hri_row_index *index, uint64_t first, hri_row *rows, size_t count, hr_error *error);

#endif
