/* quantization_config and quant_state as texts: what of them we understand, and what transformers wants to read. */
#include "model/bnb.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- config.json ---- */

static hr_status read_4bit(const hri_json *config, uint32_t *kind, hr_error *error) {
  const char *type = "fp4"; /* BitsAndBytesConfig's defaults */
  bool nested = false, nf4;
  HRI_TRY(hri_json_opt_string(config, "bnb_4bit_quant_type", &type, error));
  HRI_TRY(hri_json_opt_bool(config, "bnb_4bit_use_double_quant", &nested, error));
  nf4 = strcmp(type, "nf4") == 0;
  if (!nf4 && strcmp(type, "fp4") != 0) {
    hri_json field = hri_json_member(config, "bnb_4bit_quant_type");
    return hri_json_fail(&field, error, "\"nf4\" or \"fp4\"");
  }
  if (nf4) *kind = nested ? HRI_QUANTIZATION_NF4_DQ : HRI_QUANTIZATION_NF4;
  else *kind = nested ? HRI_QUANTIZATION_FP4_DQ : HRI_QUANTIZATION_FP4;
  return HR_OK;
}

hr_status hri_bnb_config_read(const hri_json *root, uint32_t *kind, hr_error *error) {
  hri_json config;
  const char *method = "";
  bool four = false, eight = false, kept = false;
  *kind = HRI_QUANTIZATION_NONE;
  if (!hri_json_has(root, "quantization_config")) return HR_OK;
  HRI_TRY(hri_json_get_object(root, "quantization_config", &config, error));
  HRI_TRY(hri_json_opt_string(&config, "quant_method", &method, error));
  HRI_TRY(hri_json_opt_bool(&config, "load_in_4bit", &four, error));
  HRI_TRY(hri_json_opt_bool(&config, "load_in_8bit", &eight, error));
  HRI_TRY(hri_json_opt_bool(&config, "llm_int8_has_fp16_weight", &kept, error));
  if (*method && strcmp(method, "bitsandbytes") != 0) {
    hri_fail(error, HR_ERROR_INPUT, "%s: field %s.quant_method is \"%.40s\": not supported", root->file, config.path,
             method);
    return hri_hint(error, HR_ERROR_INPUT, "use the unquantized model, or one quantized by bitsandbytes");
  }
  if (four == eight) return hri_json_fail(&config, error, "of bitsandbytes with one of load_in_4bit and load_in_8bit");
  if (four) return read_4bit(&config, kind, error);
  if (kept) {
    hri_fail(error, HR_ERROR_INPUT, "%s: field %s.llm_int8_has_fp16_weight is true: not supported", root->file,
             config.path);
    return hri_hint(error, HR_ERROR_INPUT, "use the unquantized model");
  }
  *kind = HRI_QUANTIZATION_INT8;
  return HR_OK;
}

static const char *torch_name(hri_file_dtype dtype) {
  return dtype == HRI_FILE_BF16 ? "bfloat16" : dtype == HRI_FILE_F16 ? "float16" : "float32";
}

/* null stands for the head alone, which a list must name. */
static void put_plain(hri_json_writer *writer, const hr_model *model) {
  uint8_t any = 0;
  for (uint32_t l = 0; l < model->layer_count; l++) any |= model->plain[l];
  if (!any) {
    hri_json_put_null(writer);
    return;
  }
  hri_json_begin_array(writer);
  hri_json_put_string(writer, "lm_head");
  for (uint32_t l = 0; l < model->layer_count; l++)
    for (int k = 0; k < HR_MODULE_COUNT; k++) {
      char name[96];
      if ((model->plain[l] >> k & 1) && hri_module_name(model, (hr_module)k, (int32_t)l, name))
        hri_json_put_string(writer, name);
    }
  hri_json_end_array(writer);
}

/* Of int8 the 4-bit keys have their defaults, as transformers writes them too. */
void hri_bnb_config_put(hri_json_writer *writer, const hr_model *model, hri_file_dtype dtype) {
  uint32_t kind = (uint32_t)model->quantization;
  bool four = hri_quant_is_4bit(kind);
  assert(kind != HRI_QUANTIZATION_NONE && kind < HRI_QUANTIZATION_COUNT);
  hri_json_key(writer, "quantization_config");
  hri_json_begin_object(writer);
  hri_json_field_bool(writer, "_load_in_4bit", four);
  hri_json_field_bool(writer, "_load_in_8bit", !four);
  hri_json_field_string(writer, "bnb_4bit_compute_dtype", four ? torch_name(dtype) : "float32");
  hri_json_field_string(writer, "bnb_4bit_quant_storage", "uint8");
  hri_json_field_string(writer, "bnb_4bit_quant_type", hri_quant_is_nf4(kind) ? "nf4" : "fp4");
  hri_json_field_bool(writer, "bnb_4bit_use_double_quant", hri_quant_is_double(kind));
  hri_json_field_bool(writer, "llm_int8_enable_fp32_cpu_offload", false);
  hri_json_field_bool(writer, "llm_int8_has_fp16_weight", false);
  hri_json_key(writer, "llm_int8_skip_modules");
  put_plain(writer, model);
  hri_json_field_double(writer, "llm_int8_threshold", 6.0);
  hri_json_field_bool(writer, "load_in_4bit", four);
  hri_json_field_bool(writer, "load_in_8bit", !four);
  hri_json_field_string(writer, "quant_method", "bitsandbytes");
  hri_json_end_object(writer);
}

/* ---- names ---- */

#define STATE_NF4 ".quant_state.bitsandbytes__nf4"
#define STATE_FP4 ".quant_state.bitsandbytes__fp4"

/* Behind the weight's name. */
static const char *const behind[HRI_BNB_TENSORS] = {[HRI_BNB_WEIGHT] = "",
                                                    [HRI_BNB_ABSMAX] = ".absmax",
                                                    [HRI_BNB_MAP] = ".quant_map",
                                                    [HRI_BNB_NESTED_ABSMAX] = ".nested_absmax",
                                                    [HRI_BNB_NESTED_MAP] = ".nested_quant_map",
                                                    [HRI_BNB_STATE] = STATE_NF4};
/* In int8, in place of its last word. */
static const char *const in_place[HRI_BNB_TENSORS] =
    {[HRI_BNB_WEIGHT] = ".weight", [HRI_BNB_ABSMAX] = ".SCB", [HRI_BNB_MAP] = ".weight_format"};

static const char word[] = ".weight";

static bool ends_with(const char *name, size_t length, const char *end) {
  return length > strlen(end) && strcmp(name + length - strlen(end), end) == 0;
}

static bool join(char out[HRI_BNB_NAME_BYTES], const char *name, size_t length, const char *end) {
  if (length + strlen(end) >= HRI_BNB_NAME_BYTES) return false;
  memcpy(out, name, length);
  memcpy(out + length, end, strlen(end) + 1);
  return true;
}

bool hri_bnb_name(uint32_t kind, const char *weight, hri_bnb_tensor which, char out[HRI_BNB_NAME_BYTES]) {
  size_t length = strlen(weight);
  bool nested = which == HRI_BNB_NESTED_ABSMAX || which == HRI_BNB_NESTED_MAP;
  if (hri_quant_is_4bit(kind)) {
    if (nested && !hri_quant_is_double(kind)) return false;
    return join(out, weight, length, which == HRI_BNB_STATE && !hri_quant_is_nf4(kind) ? STATE_FP4 : behind[which]);
  }
  return in_place[which] && ends_with(weight, length, word) &&
         join(out, weight, length - strlen(word), in_place[which]);
}

bool hri_bnb_beside(const char *name, char weight[HRI_BNB_NAME_BYTES]) {
  static const char *const ends[] = {".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map",
                                     STATE_NF4, STATE_FP4,    ".SCB",           ".weight_format"};
  size_t length = strlen(name);
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
    if (ends_with(name, length, ends[i])) return join(weight, name, length - strlen(ends[i]), i < 6 ? "" : word);
  return false;
}

/* ---- the text of quant_state ---- */

static hr_status dtype_of(const hri_json *root, hri_file_dtype *dtype, hr_error *error) {
  static const hri_file_dtype kinds[] = {HRI_FILE_BF16, HRI_FILE_F16, HRI_FILE_F32};
  const char *name;
  hri_json field = hri_json_member(root, "dtype");
  HRI_TRY(hri_json_get_string(root, "dtype", &name, error));
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (strcmp(name, torch_name(kinds[i])) == 0) {
      *dtype = kinds[i];
      return HR_OK;
    }
  return hri_json_fail(&field, error, "\"bfloat16\", \"float16\" or \"float32\"");
}

static hr_status shape_of(const hri_json *root, hri_bnb_state *state, hr_error *error) {
  hri_json shape;
  uint64_t dims[2];
  HRI_TRY(hri_json_get_array(root, "shape", &shape, error));
  if (hri_json_count(&shape) != 2) return hri_json_fail(&shape, error, "rows and columns");
  for (uint64_t i = 0; i < 2; i++) {
    hri_json dim = hri_json_item(&shape, i);
    if (!json_is_integer(dim.value) || json_integer_value(dim.value) < 1)
      return hri_json_fail(&dim, error, "a number of rows or columns");
    dims[i] = (uint64_t)json_integer_value(dim.value);
  }
  state->rows = dims[0], state->columns = dims[1];
  return HR_OK;
}

static hr_status nested_of(const hri_json *root, hri_bnb_state *state, bool *nested, hr_error *error) {
  const char *type;
  double offset;
  uint64_t block;
  hri_json field = hri_json_member(root, "nested_dtype");
  *nested = hri_json_has(root, "nested_blocksize");
  if (!*nested) return HR_OK;
  HRI_TRY(hri_json_get_u64(root, "nested_blocksize", HRI_QUANT_NESTED_BLOCK, HRI_QUANT_NESTED_BLOCK, &block, error));
  HRI_TRY(hri_json_get_string(root, "nested_dtype", &type, error));
  if (strcmp(type, "float32") != 0) return hri_json_fail(&field, error, "\"float32\"");
  HRI_TRY(hri_json_get_double(root, "nested_offset", &offset, error));
  state->offset = (float)offset;
  field = hri_json_member(root, "nested_offset");
  return isfinite(state->offset) ? HR_OK : hri_json_fail(&field, error, "a finite fp32");
}

static hr_status state_of(const hri_json *root, hri_bnb_state *state, hr_error *error) {
  const char *type;
  uint64_t block;
  bool nested;
  hri_json field = hri_json_member(root, "quant_type");
  HRI_TRY(hri_json_get_string(root, "quant_type", &type, error));
  HRI_TRY(hri_json_get_u64(root, "blocksize", HRI_QUANT_BLOCK, HRI_QUANT_BLOCK, &block, error));
  HRI_TRY(dtype_of(root, &state->dtype, error));
  HRI_TRY(shape_of(root, state, error));
  HRI_TRY(nested_of(root, state, &nested, error));
  if (strcmp(type, "nf4") == 0) state->kind = nested ? HRI_QUANTIZATION_NF4_DQ : HRI_QUANTIZATION_NF4;
  else if (strcmp(type, "fp4") == 0) state->kind = nested ? HRI_QUANTIZATION_FP4_DQ : HRI_QUANTIZATION_FP4;
  else return hri_json_fail(&field, error, "\"nf4\" or \"fp4\"");
  return HR_OK;
}

hr_status hri_bnb_state_read(const char *bytes, uint64_t count, const char *file, const char *tensor,
                             hri_bnb_state *state, hr_error *error) {
  hri_json root = {0};
  hri_text name = {0};
  hr_status status;
  memset(state, 0, sizeof *state);
  hri_text_add(&name, "%s: tensor %s", file, tensor);
  status = name.failed ? hri_fail_memory(error, 1, "a name") : hri_json_parse(bytes, count, name.chars, &root, error);
  if (status == HR_OK) status = state_of(&root, state, error);
  hri_json_deinit(&root);
  hri_text_deinit(&name);
  return status;
}

void hri_bnb_state_put(hri_text *text, const hri_bnb_state *state) {
  hri_json_writer number = hri_json_writer_init(text, 0);
  hri_text_add(text, "{\"quant_type\": \"%s\", \"blocksize\": %d, \"dtype\": \"%s\", \"shape\": [%llu, %llu]",
               hri_quant_is_nf4(state->kind) ? "nf4" : "fp4", HRI_QUANT_BLOCK, torch_name(state->dtype),
               (unsigned long long)state->rows, (unsigned long long)state->columns);
  if (hri_quant_is_double(state->kind)) {
    hri_text_add(text, ", \"nested_blocksize\": %d, \"nested_dtype\": \"float32\", \"nested_offset\": ",
                 HRI_QUANT_NESTED_BLOCK);
    hri_json_put_double(&number, (double)state->offset);
  }
  hri_text_add(text, "}");
}
