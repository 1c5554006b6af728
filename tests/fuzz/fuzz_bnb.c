/* What bitsandbytes writes in JSON, on any bytes: a quant_state that is accepted is written and read as itself; a
 * quantization_config that is accepted names a kind; neither leaks. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "model/bnb.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
  if (!holds) abort();
}

static void check_state(const char *bytes, size_t size) {
  hri_bnb_state state, back;
  hri_text text = {0};
  hr_error error;
  if (hri_bnb_state_read(bytes, size, "file", "tensor", &state, &error) != HR_OK) return;
  require(hri_quant_is_4bit(state.kind) && state.rows > 0 && state.columns > 0);
  hri_bnb_state_put(&text, &state);
  require(hri_bnb_state_read(text.chars, text.length, "file", "tensor", &back, NULL) == HR_OK);
  require(back.kind == state.kind && back.dtype == state.dtype && back.rows == state.rows &&
          back.columns == state.columns && back.offset == state.offset);
  hri_text_deinit(&text);
}

static void check_config(const char *bytes, size_t size) {
  hri_json root = {0};
  hr_error error;
  uint32_t kind;
  if (hri_json_parse(bytes, size, "config.json", &root, &error) != HR_OK) return;
  if (hri_bnb_config_read(&root, &kind, &error) == HR_OK) require(kind < HRI_QUANTIZATION_COUNT);
  hri_json_deinit(&root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  uint64_t live = hri_mem_live_bytes();
  check_state((const char *)data, size);
  check_config((const char *)data, size);
  require(hri_mem_live_bytes() == live);
  return 0;
}
