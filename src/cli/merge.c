/* headroom merge: adapters into the weights of their model. */
#include <string.h>

#include <headroom/merge.h>

#include "cli/commands.h"
#include "cli/json.h"
#include "cli/text.h"

static void print_note(void *context, const char *text) {
  (void)context;
  (void)fprintf(stderr, "note: %s\n", text);
}

static const char *quantize_name(const cli_config *config, hr_quantize kind) {
  return option_get(option_at(config, &config->job.quantize))->words[kind];
}

static void print_result(const cli_config *config, const hr_merge_result *r) {
  const char *onto = r->quantize == HR_QUANTIZE_NONE ? "original" : quantize_name(config, r->quantize);
  json_writer json;
  if (!config->own.json) {
    (void)printf("%u of %u tensors merged%s%s, %.1f M parameters (%s), %s\n", r->merged_count, r->tensor_count,
                 r->quantize == HR_QUANTIZE_NONE ? "" : " onto what is left of them in ",
                 r->quantize == HR_QUANTIZE_NONE ? "" : onto, (double)r->parameter_count / 1e6, r->type,
                 SIZE_TEXT(r->data_bytes));
    return;
  }
  json_write_begin(&json, stdout);
  json_write_count(&json, "tensors", r->tensor_count);
  json_write_count(&json, "merged", r->merged_count);
  json_write_count(&json, "parameters", r->parameter_count);
  json_write_count(&json, "data_bytes", r->data_bytes);
  json_write_text(&json, "type", r->type);
  json_write_text(&json, "onto", onto);
  if (r->kept[0]) json_write_text(&json, "kept", r->kept);
  json_write_end(&json);
}

static hr_status missing(const char *what, hr_error *error) {
  hri_fail(error, HR_ERROR_USAGE, "%s is missing", what);
  return hri_hint(error, HR_ERROR_USAGE, "headroom merge MODEL ADAPTER --out DIR");
}

/* One for each adapter, or none at all. */
static hr_status take_weights(const cli_config *config, double *weights, hr_merge_options *options, hr_error *error) {
  uint32_t adapters = config->operand_count - 1,
           count = config->own.weights ? options_numbers(config->own.weights, weights, MAX_OPERANDS) : 0;
  if (!config->own.weights) return HR_OK;
  options->weights = weights;
  if (count == adapters) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE, "--weights has %u numbers, and %u adapters are named", count, adapters);
  return hri_hint(error, HR_ERROR_USAGE, "give each adapter one, in the order of their names");
}

hr_status command_merge(cli_config *config, hr_error *error) {
  double weights[MAX_OPERANDS];
  hr_merge_options options;
  hr_merge_result result;
  if (config->operand_count < 1) return missing("the model", error);
  if (config->operand_count < 2) return missing("the adapter", error);
  if (!config->run.out_directory) return missing("--out, where the model is written,", error);
  hr_merge_options_init(&options);
  HRI_TRY(take_weights(config, weights, &options, error));
  if (strcmp(config->own.type, "source") != 0) options.type = config->own.type;
  options.dequantized = strcmp(config->own.onto, "dequantized") == 0;
  options.quantize = config->job.quantize;
  options.replace = config->own.force;
  options.on_note = config->own.json ? NULL : print_note;
  HRI_TRY(hr_merge(config->operands[0], (const char *const *)config->operands + 1, config->operand_count - 1,
                   config->run.out_directory, &options, &result, error));
  print_result(config, &result);
  return HR_OK;
}
