/* Data files of every format. The first two bytes of the input choose the job: packing, skip_bad, loss and truncation;
 * format
 * and row length. The rest is the file. What is accepted must give consistent rows, whose counted labels and tokens add
 * up to what the data set says; what is not must be refused with the file's name and a remedy. Nothing may leak. */
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "data/dataset.h"
#include "rows.h"

enum { ROW = 24 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const char *paths[1] = {path};
  uint8_t first = size > 0 ? data[0] : 0, second = size > 1 ? data[1] : 0;
  hri_dataset_options options = {.paths = paths,
                                 .path_count = 1,
                                 .sequence = 1 + second / HR_DATA_FORMAT_COUNT % ROW,
                                 .vocabulary = 1000,
                                 .eos_token = 300,
                                 .chat = "chatml",
                                 .packing = (hr_packing)(first % 3),
                                 .skip_bad = first & 4,
                                 .loss = (hr_loss_scope)(first >> 3 & 3),
                                 .truncate = (hr_truncate)(first >> 5 & 3),
                                 .format = (hr_data_format)(second % HR_DATA_FORMAT_COUNT)};
  uint64_t live = hri_mem_live_bytes(), labels = 0, tokens = 0, row;
  hri_dataset *dataset = NULL;
  hr_error error = {0};
  write_input(data + (size > 2 ? 2 : size), size > 2 ? size - 2 : 0);
  if (hri_dataset_open(&options, &dataset, &error) == HR_OK) {
    uint64_t rows = hri_dataset_row_count(dataset);
    require(rows > 0 && (options.skip_bad || hri_dataset_broken_count(dataset) == 0));
    for (row = 0; row < rows; row++) check_row(dataset, row, &options, &labels, &tokens);
    require(labels > 0 && labels == hri_dataset_label_count(dataset) && tokens == hri_dataset_token_count(dataset));
  } else {
    require(error.code == HR_ERROR_INPUT && strncmp(error.message, path, strlen(path)) == 0 && error.hint[0]);
  }
  hri_dataset_destroy(dataset);
  require(hri_mem_live_bytes() == live);
  return 0;
}
