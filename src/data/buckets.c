/* Length buckets: a few row lengths to which unpacked rows are padded. */
#include "data/source.h"

enum { CELLS = 64, ROWS = 256 };

hr_status hri_dataset_row_length(const hri_dataset *dataset, uint64_t row, uint64_t *length, hr_error *error) {
  hri_row entry;
  if (row >= dataset->index.row_count)
    return hri_fail(error, HR_ERROR_INTERNAL, "row %llu of %llu rows of data", (unsigned long long)row, (unsigned long long)dataset->index.row_count);
  HRI_TRY(hri_row_index_rows(&dataset->index, row, &entry, 1, error));
  *length = entry.tokens;
  return HR_OK;
}

/* Rows per cell of a 64th of the sequence, lengths rounded up; the longest row. */
static hr_status count_rows(const hri_dataset *dataset, uint32_t step, uint64_t cells[CELLS + 1], uint32_t *longest, hr_error *error) {
  hri_row rows[ROWS];
  uint64_t count = dataset->index.row_count;
  for (uint64_t first = 0; first < count; first += ROWS) {
    size_t part = count - first < ROWS ? (size_t)(count - first) : ROWS;
    HRI_TRY(hri_row_index_rows(&dataset->index, first, rows, part, error));
    for (size_t i = 0; i < part; i++) {
      cells[(rows[i].tokens + step - 1) / step]++;
      if (rows[i].tokens > *longest) *longest = rows[i].tokens;
    }
  }
  return HR_OK;
}

/* Dynamic programming over the last cell and the number of buckets: cost[b][c] is the least padded size of rows in cells up to c
 * with b buckets, the last of which ends at c. */
static uint32_t choose(const uint64_t cells[CELLS + 1], uint32_t last, uint32_t most, uint32_t ends[CELLS]) {
  double cost[CELLS + 1][CELLS + 1];
  uint32_t from[CELLS + 1][CELLS + 1], best = 1, at;
  uint64_t below[CELLS + 2] = {0}; /* rows in cells before c */
  for (uint32_t c = 0; c <= last; c++) below[c + 1] = below[c] + cells[c];
  for (uint32_t b = 1; b <= most; b++) {
    for (uint32_t c = 1; c <= last; c++) {
      cost[b][c] = b == 1 ? (double)below[c + 1] * c : 1e300;
      from[b][c] = 0;
      for (uint32_t before = 1; b > 1 && before < c; before++) {
        double sum = cost[b - 1][before] + (double)(below[c + 1] - below[before + 1]) * c;
        if (sum < cost[b][c]) {
          cost[b][c] = sum;
          from[b][c] = before;
        }
      }
    }
    if (cost[b][last] < cost[best][last]) best = b;
  }
  at = last;
  for (uint32_t b = best; b > 0; b--) {
    ends[b - 1] = at;
    at = from[b][at];
  }
  return best;
}

hr_status hri_dataset_buckets(const hri_dataset *dataset, uint32_t most, uint32_t *lengths, uint32_t *count, hr_error *error) {
  uint32_t step = (dataset->sequence + CELLS - 1) / CELLS, longest = 0, last;
  uint64_t cells[CELLS + 1] = {0};
  HRI_TRY(count_rows(dataset, step, cells, &longest, error));
  last = (longest + step - 1) / step;
  *count = choose(cells, last, most < CELLS ? most : CELLS, lengths);
  for (uint32_t i = 0; i + 1 < *count; i++) lengths[i] *= step;
  lengths[*count - 1] = longest;
  return HR_OK;
}
