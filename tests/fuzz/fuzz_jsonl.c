/* The JSONL reader on any file. The first byte of the input chooses the job: rows of 1 to 16 tokens (its low four bits,
 * plus 1), packing (bit 4), vocabulary (bit 5: 300, else 7). What is accepted must give consistent rows, whose counted
 * labels and tokens add up to what the data set says; what is not must be refused with the file's name and a line. */
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "data/dataset.h"
#include "rows.h"

enum { ROW = 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const char *paths[1] = {path};
  uint8_t choice = size > 0 ? data[0] : 0;
  hri_dataset_options options = {.paths = paths, .path_count = 1, .sequence = 1 + choice % ROW, .eos_token = -1};
  uint64_t live = hri_mem_live_bytes(), labels = 0, sum = 0, row;
  hri_dataset *dataset = NULL;
  hr_error error = {0};
  options.packing = choice & 16 ? HR_PACKING_WRAPPED : HR_PACKING_OFF;
  options.vocabulary = choice & 32 ? 300 : 7;
  write_input(data + (size > 0), size > 0 ? size - 1 : 0);
  if (hri_dataset_open(&options, &dataset, &error) == HR_OK) {
    uint64_t rows = hri_dataset_row_count(dataset), tokens = hri_dataset_token_count(dataset);
    require(rows > 0 && tokens <= rows * options.sequence && hri_dataset_document_count(dataset) <= tokens);
    for (row = 0; row < rows; row++) check_row(dataset, row, &options, &labels, &sum);
    require(labels > 0 && labels == hri_dataset_label_count(dataset) && sum == tokens);
  } else {
    require(error.code == HR_ERROR_INPUT && strncmp(error.message, path, strlen(path)) == 0 && error.hint[0]);
  }
  hri_dataset_destroy(dataset);
  require(hri_mem_live_bytes() == live);
  return 0;
}
