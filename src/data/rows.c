#include "data/rows.h"

hri_piece hri_piece_of(const hri_document *d, uint64_t skip, uint64_t count) {
  hri_piece piece = {.place = d->place + skip, .count = (uint32_t)count, .source = d->source};
  if (d->flags & HRI_DOCUMENT_END && skip + count == d->length) piece.source |= HRI_PIECE_END;
  if (d->flags & HRI_DOCUMENT_LABELS) piece.source |= HRI_PIECE_LABELS;
  return piece;
}

hri_row_index hri_row_index_init(const char *directory) {
  hri_row_index index = {.pieces = hri_spool_init(directory), .rows = hri_spool_init(directory)};
  return index;
}

void hri_row_index_deinit(hri_row_index *index) {
  hri_spool_deinit(&index->pieces);
  hri_spool_deinit(&index->rows);
}

hr_status hri_row_index_break(hri_row_index *index, hr_error *error) {
  if (!index->open) return HR_OK;
  index->open = false;
  index->row_count++;
  return hri_spool_put(&index->rows, &index->row, sizeof index->row, error);
}

hr_status hri_row_index_put(hri_row_index *index, const hri_piece *piece, uint32_t labels, hr_error *error) {
  if (!index->open) index->row = (hri_row){.first_piece = index->piece_count};
  index->open = true;
  index->row.tokens += piece->count;
  index->row.labels += labels;
  index->piece_count++;
  index->token_count += piece->count;
  index->label_count += labels;
  return hri_spool_put(&index->pieces, piece, sizeof *piece, error);
}

hr_status hri_row_index_seal(hri_row_index *index, hr_error *error) {
  hri_row last = {0};
  HRI_TRY(hri_row_index_break(index, error));
  last.first_piece = index->piece_count;
  return hri_spool_put(&index->rows, &last, sizeof last, error);
}

hr_status hri_row_index_pieces(const hri_row_index *index, uint64_t first, hri_piece *pieces, size_t count,
                               hr_error *error) {
  return hri_spool_read(&index->pieces, first * sizeof *pieces, pieces, count * sizeof *pieces, error);
}

hr_status hri_row_index_rows(const hri_row_index *index, uint64_t first, hri_row *rows, size_t count, hr_error *error) {
  return hri_spool_read(&index->rows, first * sizeof *rows, rows, count * sizeof *rows, error);
}
