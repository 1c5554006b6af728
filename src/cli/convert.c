/* headroom convert: a model between a Hugging Face directory and a GGUF file, or quantized into another directory. */
#include <string.h>

#include <headroom/convert.h>

#include "cli/commands.h"
#include "cli/json.h"
#include "cli/output.h"
#include "cli/stop.h"
#include "cli/text.h"

static void print_note(void *context, const char *text) {
  (void)context;
  screen_say(stderr, STYLE_PLAIN, "note:", text);
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
    if (r->worst_tensor[0]) {
      json_write_count(&json, "block_tensors", r->block_tensor_count);
      json_write_count(&json, "fallbacks", r->fallback_count);
      json_write_number(&json, "block_error", r->block_error);
      json_write_number(&json, "worst_error", r->worst_error);
      json_write_text(&json, "worst_tensor", r->worst_tensor);
    }
    if (r->kept[0]) json_write_text(&json, "kept", r->kept);
    json_write_end(&json);
    return;
  }
  (void)printf("%s (%s) to %s (%s): %u tensors, %s parameters, %s\n", r->from, r->source_type, r->to, r->type,
               r->tensor_count, PARAMETERS_TEXT(r->parameter_count), SIZE_TEXT(r->data_bytes));
  if (r->worst_tensor[0])
    (void)printf("blocks: %u tensors, off by %.3f %% (root mean square), worst %s by %.3f %%\n", r->block_tensor_count,
                 100 * r->block_error, r->worst_tensor, 100 * r->worst_error);
  if (r->fallback_count)
    (void)printf("%u tensors in another type, as their rows are no whole blocks of %s\n", r->fallback_count, r->type);
  if (r->token_count)
    (void)printf("tokenizer: %llu tokens, %s\n", (unsigned long long)r->token_count,
                 r->has_template ? "with a chat template" : "without a chat template");
}

/* One word for both kinds of targets: a type of a GGUF file, or what bitsandbytes has. */
static hr_status choose(const cli_config *config, hr_convert_options *options, hr_error *error) {
  const char *const *kinds = option_get(option_at(config, &config->job.quantize))->words, *kind = config->own.quantized;
  bool typed = strcmp(config->own.type, "source") != 0;
  if (typed) options->type = config->own.type;
  if (strcmp(kind, "none") == 0) return HR_OK;
  for (int k = 0; kinds[k]; k++)
    if (strcmp(kind, kinds[k]) == 0) {
      options->quantize = (hr_quantize)k;
      return HR_OK;
    }
  if (typed) {
    hri_fail(error, HR_ERROR_USAGE, "--quantize %s and --type %s exclude each other", kind, config->own.type);
    return hri_hint(error, HR_ERROR_USAGE, "leave --type out");
  }
  options->type = kind;
  return HR_OK;
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
  HRI_TRY(output_check_directory("the target", target, error));
  hr_convert_options_init(&options);
  HRI_TRY(choose(config, &options, error));
  options.on_note = print_note;
  options.should_stop = stop_begin(NULL, false);
  options.without_tokenizer = config->own.without_tokenizer;
  options.replace = config->own.force;
  if (config->own.json) options.on_note = NULL;
  if (hr_convert(source, target, &options, &result, error) != HR_OK) return error->code;
  print_result(config, &result);
  return HR_OK;
}
