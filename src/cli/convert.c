/* headroom convert: a model between a Hugging Face directory and a GGUF file, or quantized into another directory. */
#include <string.h>

#include <headroom/convert.h>

#include "cli/commands.h"
#include "cli/json.h"
#include "cli/text.h"

static void print_note(void *context, const char *text) {
  (void)context;
  (void)fprintf(stderr, "note: %s\n", text);
}

static void print_result(const cli_config *config, const hr_convert_result *r) {
  json_writer json;
  if (config->own.json) {
    json_write_begin(&json, stdout);
    json_write_text(&json, "from", r->from);
    json_write_text(&json, "to", r->to);
    json_write_text(&json, "source_type", r->source_type);
    json_write_text(&json, "type", r->type);
    json_write_count(&json, "tensors", r->tensor_count);
    json_write_count(&json, "parameters", r->parameter_count);
    json_write_count(&json, "data_bytes", r->data_bytes);
    json_write_count(&json, "tokens", r->token_count);
    json_write_bool(&json, "chat_template", r->has_template);
    if (r->kept[0]) json_write_text(&json, "kept", r->kept);
    json_write_end(&json);
    return;
  }
  (void)printf("%s (%s) to %s (%s): %u tensors, %.1f M parameters, %s\n", r->from, r->source_type, r->to, r->type,
               r->tensor_count, (double)r->parameter_count / 1e6, SIZE_TEXT(r->data_bytes));
  if (r->token_count)
    (void)printf("tokenizer: %llu tokens, %s\n", (unsigned long long)r->token_count,
                 r->has_template ? "with a chat template" : "without a chat template");
}

hr_status command_convert(cli_config *config, hr_error *error) {
  const char *source = config->operand_count > 0 ? config->operands[0] : NULL,
             *target = config->operand_count > 1 ? config->operands[1] : NULL;
  hr_convert_options options;
  hr_convert_result result;
  if (!source || !target) {
    hri_fail(error, HR_ERROR_USAGE, source ? "the target is missing" : "the model to convert is missing");
    return hri_hint(error, HR_ERROR_USAGE,
                    "headroom convert DIRECTORY FILE.gguf, or headroom convert FILE.gguf DIRECTORY");
  }
  hr_convert_options_init(&options);
  if (strcmp(config->own.type, "source") != 0) options.type = config->own.type;
  options.quantize = config->job.quantize;
  options.on_note = print_note;
  options.without_tokenizer = config->own.without_tokenizer;
  options.replace = config->own.force;
  if (config->own.json) options.on_note = NULL;
  if (hr_convert(source, target, &options, &result, error) != HR_OK) return error->code;
  print_result(config, &result);
  return HR_OK;
}
