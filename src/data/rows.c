#include "data/rows.h"

hri_row_index hri_row_index_init(uint32_t sequence, const char *directory) {
  hri_row_index index = {.documents = hri_spool_init(directory), .rows = hri_spool_init(directory), .sequence = sequence};
  hri_row_index_break(&index);
  return index;
}

void hri_row_index_deinit(hri_row_index *index) {
  hri_spool_deinit(&index->documents);
  hri_spool_deinit(&index->rows);
}

hr_status hri_row_index_begin_document(hri_row_index *index, uint64_t place, hr_error *error) {
  hri_document document = {.start = index->token_count, .place = place};
  index->document_count++;
  return hri_spool_put(&index->documents, &document, sizeof document, error);
}

hr_status hri_row_index_take(hri_row_index *index, uint64_t left, uint64_t *piece, hr_error *error) {
  uint64_t room;
  if (index->fill == index->sequence) {
    hri_row row = {.start = index->token_count, .document = index->document_count - 1};
    HRI_TRY(hri_spool_put(&index->rows, &row, sizeof row, error));
    index->row_count++;
    index->fill = 0;
  }
  room = index->sequence - index->fill;
  *piece = left < room ? left : room;
  index->fill += (uint32_t)*piece;
  index->token_count += *piece;
  return HR_OK;
}

hr_status hri_row_index_seal(hri_row_index *index, hr_error *error) {
  hri_document document = {.start = index->token_count};
  hri_row row = {.start = index->token_count, .document = index->document_count};
  HRI_TRY(hri_spool_put(&index->documents, &document, sizeof document, error));
  return hri_spool_put(&index->rows, &row, sizeof row, error);
}

hr_status hri_row_index_documents(const hri_row_index *index, uint64_t first, hri_document *documents, size_t count,
                                  hr_error *error) {
  return hri_spool_read(&index->documents, first * sizeof *documents, documents, count * sizeof *documents, error);
}

hr_status hri_row_index_rows(const hri_row_index *index, uint64_t first, hri_row *rows, size_t count, hr_error *error) {
  return hri_spool_read(&index->rows, first * sizeof *rows, rows, count * sizeof *rows, error);
}
