/* headroom merge: adapters into the weights of their model. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <headroom/merge.h>

#include "base/file.h"
#include "cli/commands.h"
#include "cli/json.h"
#include "cli/output.h"
#include "cli/stop.h"
#include "cli/text.h"

static void print_note(void *context, const char *text) {
  (void)context;
  screen_say(stderr, STYLE_PLAIN, "note:", text);
}

static const char *quantize_name(const cli_config *config, hr_quantize kind) {
  return option_get(option_at(config, &config->job.quantize))->words[kind];
}

/* ---- the function that was trained, and that of the result, on given rows ---- */

typedef struct rows_result {
  bool known;
  double trained, merged;
  uint64_t tokens;
} rows_result;

/* Before a merge of minutes. */
static hr_status check_data(const cli_config *config, hr_error *error) {
  const void *const of_data[] = {&config->job.sequence_length, &config->job.precision, &config->job.threads,
                                 &config->run.data.chat_template};
  if (config->run.data_path_count == 0)
    return config_refuse_idle(config, of_data, sizeof of_data / sizeof *of_data,
                              "without --data: it is of the rows on which the loss is told",
                              "add --data PATH, or leave it out", error);
  for (uint32_t i = 0; i < config->run.data_path_count; i++)
    if (access(config->run.data_paths[i], R_OK) != 0)
      return hri_fail_errno(error, errno, "open", config->run.data_paths[i]);
  if (config->operand_count == 2 && !config->own.weights) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE,
           "--data compares with the function that was trained, and none was with these weights");
  return hri_hint(error, HR_ERROR_USAGE, "merge one adapter without --weights, or leave --data away");
}

static hr_status loss_of(const cli_config *config, const char *model, const char *adapter, hr_quantize kind,
                         double *loss, uint64_t *tokens, hr_error *error) {
  cli_config own = *config; /* texts and lists stay the first one's */
  hr_run_result result;
  memset(&result, 0, sizeof result);
  own.run.model_source = model;
  own.run.out_directory = NULL;
  own.job.adapter = adapter;
  own.job.quantize = kind == HR_QUANTIZE_KEEP ? HR_QUANTIZE_NONE : kind; /* a directory has no blocks to keep */
  HRI_TRY(config_job(&own, HR_PURPOSE_EVALUATE, error));
  HRI_TRY(hr_evaluate(&own.job, &own.run, &result, error));
  *loss = result.eval_loss;
  *tokens = result.eval_tokens;
  return HR_OK;
}

static hr_status compare(const cli_config *config, const hr_merge_result *merged, rows_result *rows, hr_error *error) {
  hr_status status;
  if (config->run.data_path_count == 0) return HR_OK;
  status =
      loss_of(config, config->operands[0], config->operands[1], merged->trained, &rows->trained, &rows->tokens, error);
  if (status == HR_OK)
    status = loss_of(config, config->run.out_directory, NULL, HR_QUANTIZE_NONE, &rows->merged, &rows->tokens, error);
  rows->known = status == HR_OK;
  return status == HR_OK ? status
                         : hri_context(error, status, "%s is written, but not compared: ", config->run.out_directory);
}

static void print_rows(const cli_config *config, const hr_merge_result *r, const rows_result *rows) {
  if (!rows->known) return;
  (void)printf("on %llu labels: loss %.6f as trained%s%s, %.6f merged, difference %+.6f\n",
               (unsigned long long)rows->tokens, rows->trained, r->trained == HR_QUANTIZE_NONE ? "" : " beside ",
               r->trained == HR_QUANTIZE_NONE ? "" : quantize_name(config, r->trained), rows->merged,
               rows->merged - rows->trained);
}

static void print_result(const cli_config *config, const hr_merge_result *r, const rows_result *rows) {
  const char *onto = r->quantize == HR_QUANTIZE_NONE ? "original" : quantize_name(config, r->quantize);
  json_writer json;
  if (!config->own.json) {
    (void)printf("%u of %u tensors merged%s%s, %s parameters (%s), %s\n", r->merged_count, r->tensor_count,
                 r->quantize == HR_QUANTIZE_NONE ? "" : " onto what is left of them in ",
                 r->quantize == HR_QUANTIZE_NONE ? "" : onto, PARAMETERS_TEXT(r->parameter_count), r->type,
                 SIZE_TEXT(r->data_bytes));
    print_rows(config, r, rows);
    return;
  }
  json_write_begin(&json, stdout);
  json_write_count(&json, "tensors", r->tensor_count);
  json_write_count(&json, "merged", r->merged_count);
  json_write_count(&json, "parameters", r->parameter_count);
  json_write_count(&json, "data_bytes", r->data_bytes);
  json_write_text(&json, "type", r->type);
  json_write_text(&json, "onto", onto);
  json_write_text(&json, "trained_beside", quantize_name(config, r->trained));
  if (rows->known) {
    json_write_count(&json, "labels", rows->tokens);
    json_write_number(&json, "trained_loss", rows->trained);
    json_write_number(&json, "merged_loss", rows->merged);
  }
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
  rows_result rows = {0};
  if (config->operand_count < 1) return missing("the model", error);
  if (config->operand_count < 2) return missing("the adapter", error);
  if (!config->run.out_directory) return missing("--out, where the model is written,", error);
  HRI_TRY(output_check_directory("--out", config->run.out_directory, error));
  hr_merge_options_init(&options);
  HRI_TRY(take_weights(config, weights, &options, error));
  HRI_TRY(check_data(config, error));
  if (strcmp(config->own.type, "source") != 0) options.type = config->own.type;
  options.dequantized = strcmp(config->own.onto, "dequantized") == 0;
  options.quantize = config->job.quantize;
  options.replace = config->own.force;
  options.on_note = config->own.json ? NULL : print_note;
  options.should_stop = stop_begin(NULL, false);
  HRI_TRY(hr_merge(config->operands[0], (const char *const *)config->operands + 1, config->operand_count - 1,
                   config->run.out_directory, &options, &result, error));
  HRI_TRY(compare(config, &result, &rows, error));
  print_result(config, &result, &rows);
  return HR_OK;
}
