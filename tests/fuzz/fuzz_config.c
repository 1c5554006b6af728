/* config.json on any bytes: a refusal names the file, leaves the model alone and leaks nothing; an accepted model
 * passes the check, has a sound table of parameters, and is the same after being written and read. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <headroom/model.h>

#include "base/mem.h"
#include "model/params.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
  if (!holds) abort();
}

static void check_params(const hr_model *model) {
  uint64_t total = 0;
  uint32_t count = hri_param_count(model);
  for (uint32_t p = 0; p < count; p++) {
    hri_param_spec spec;
    uint64_t row = 0;
    hri_param_get(model, p, &spec);
    for (uint32_t k = 0; k < spec.part_count; k++) row += spec.parts[k].rows;
    require(row == spec.dims[0] && spec.part_count > 0);
    total += spec.dims[0] * spec.dims[1];
  }
  require(total == hr_model_parameter_count(model));
}

static void check_written(const hr_model *model) {
  char *text = hr_model_config_text(model, "float32"), *again;
  hr_model back;
  require(text != NULL);
  require(hr_model_parse(text, strlen(text), "config.json", &back, NULL) == HR_OK);
  again = hr_model_config_text(&back, "float32");
  require(again != NULL && strcmp(text, again) == 0);
  require(hr_model_parameter_count(&back) == hr_model_parameter_count(model));
  require(back.attention_scale == model->attention_scale &&
          memcmp(&back.dropout, &model->dropout, sizeof back.dropout) == 0 && back.pad_token == model->pad_token);
  hr_free(again);
  hr_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  uint64_t live = hri_mem_live_bytes();
  hr_model model = {.layer_count = 77};
  hr_error error = {0};
  hr_status status = hr_model_parse((const char *)data, size, "config.json", &model, &error);
  if (status == HR_OK) {
    require(hr_model_check(&model, &error) == HR_OK);
    check_params(&model);
    check_written(&model);
  } else {
    require(status == HR_ERROR_INPUT && error.code == status && strncmp(error.message, "config.json", 11) == 0);
    require(model.layer_count == 77);
  }
  require(hri_mem_live_bytes() == live);
  return 0;
}
