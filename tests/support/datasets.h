/* Data sets that open, and those that are refused with a status, words of the message and of its hint; a refusal leaves no
 * memory behind. Include <cmocka.h> first. */
#ifndef HRI_TEST_DATASETS_H
#define HRI_TEST_DATASETS_H

#include <string.h>

#include "base/mem.h"
#include "data/dataset.h"

static inline hri_dataset *open_ok(const hri_dataset_options *options) {
  hri_dataset *dataset = NULL;
  hr_error error = {0};
  if (hri_dataset_open(options, &dataset, &error) != HR_OK) fail_msg("%s", error.message);
  assert_non_null(dataset);
  return dataset;
}

static inline void open_fails_with(const hri_dataset_options *options, hr_status status, const char *message,
                                   const char *hint) {
  hri_dataset *dataset = NULL;
  hr_error error = {0};
  const uint64_t live = hri_mem_live_bytes();
  if (hri_dataset_open(options, &dataset, &error) != status || error.code != status ||
      !strstr(error.message, message) || !strstr(error.hint, hint))
    fail_msg("wanted %s '%s' '%s', got %s '%s' '%s'", hr_status_name(status), message, hint, hr_status_name(error.code),
             error.message, error.hint);
  assert_null(dataset);
  assert_int_equal(hri_mem_live_bytes(), live);
}

/* By the input. */
static inline void open_fails(const hri_dataset_options *options, const char *message, const char *hint) {
  open_fails_with(options, HR_ERROR_INPUT, message, hint);
}

#endif
