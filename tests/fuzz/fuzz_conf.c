/* Allocator settings from any text: refused with a reason, or read within PyTorch's limits; and what was read must
 * survive being printed. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <headroom/alloc.h>

#include "base/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
  if (!holds) abort();
}

static void check_limits(const hr_alloc_config *c) {
  require(c->large_segment_bytes > UINT64_C(10) << 20 && c->large_segment_bytes % (1 << 20) == 0);
  require(c->max_split_bytes == UINT64_MAX ||
          (c->max_split_bytes >= c->large_segment_bytes && c->max_split_bytes % (1 << 20) == 0));
  require(c->max_non_split_rounding_bytes >= c->large_segment_bytes);
  require(c->garbage_collection_threshold >= 0 && c->garbage_collection_threshold < 1);
  require(c->memory_fraction >= 0 && c->memory_fraction <= 1);
  for (int k = 0; k < HR_ALLOC_DIVISION_COUNT; k++)
    require((c->roundup_power2_divisions[k] & (c->roundup_power2_divisions[k] - 1)) == 0);
  require(c->pinned_num_register_threads >= 1 && c->pinned_num_register_threads <= 128);
  require(c->expandable_reserve_fraction >= 0 &&
          (c->expandable_reserve_fraction == 0 || c->expandable_reserve_bytes == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const uint64_t live = hri_mem_live_bytes();
  hr_alloc_config config = hr_alloc_config_default(), again = config;
  hr_error error = {0};
  char *text = malloc(size + 1), printed[2048], reprinted[2048];
  require(text != NULL);
  if (size) memcpy(text, data, size);
  text[size] = 0;
  if (hr_alloc_config_parse(text, &config, &error) == HR_OK) {
    int length = hr_alloc_config_print(&config, printed, sizeof printed);
    check_limits(&config);
    require(length >= 0 && length < (int)sizeof printed);
    require(hr_alloc_config_parse(printed, &again, &error) == HR_OK);
    require(hr_alloc_config_print(&again, reprinted, sizeof reprinted) == length && strcmp(printed, reprinted) == 0);
  } else {
    require(error.code == HR_ERROR_USAGE && error.message[0]);
    require(memcmp(&config, &again, sizeof config) == 0);
  }
  free(text);
  require(hri_mem_live_bytes() == live);
  return 0;
}
