/* Conversion of whole models. */
#include <headroom/convert.h>
#include <headroom/tokenizer.h>

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/file.h"
#include "base/rows.h"
#include "convert/adapter.h"
#include "convert/beside.h"
#include "convert/lexicon.h"
#include "convert/target.h"
#include "convert/weights.h"
#include "model/config_kept.h"
#include "program/quantization.h"

/* ---- types ---- */

/* llama.cpp's number of a file type is that of most tensors (enum llama_ftype); files that are all Q4_K or all Q5_K have
 * none, and those of Q4_K_S and Q5_K_S. */
static const struct {
  const char *name, *torch;
  uint32_t ggml, file_type;
  bool mixed; /* not the type of all matrices */
} types[] = {
    {"f32", "float32", HRI_GGML_F32, 0, false}, {"f16", "float16", HRI_GGML_F16, 1, false},
    {"q4_0", NULL, HRI_GGML_Q4_0, 2, false},    {"q8_0", NULL, HRI_GGML_Q8_0, 7, false},
    {"q4_K", NULL, HRI_GGML_Q4_K, 14, false},   {"q4_K_M", NULL, HRI_GGML_Q4_K, 15, true},
    {"q5_K", NULL, HRI_GGML_Q5_K, 16, false},   {"q5_K_M", NULL, HRI_GGML_Q5_K, 17, true},
    {"q6_K", NULL, HRI_GGML_Q6_K, 18, false},   {"bf16", "bfloat16", HRI_GGML_BF16, 32, false},
};

enum { TYPE_COUNT = sizeof types / sizeof *types };

static int type_named(const char *name) {
  for (int i = 0; i < TYPE_COUNT; i++)
    if (strcasecmp(name, types[i].name) == 0) return i;
  return -1;
}

static int type_with(uint32_t ggml) {
  for (int i = 0; i < TYPE_COUNT; i++)
    if (types[i].ggml == ggml) return i;
  return -1;
}

/* What the person asked for, else that of the source; f16 holds what blocks were quantized from. */
static hr_status choose_type(const hr_convert_options *options, uint32_t source, bool to_gguf, int *type,
                             hr_error *error) {
  *type = options->type ? type_named(options->type) : type_with(source);
  if (!options->type && (*type < 0 || !types[*type].torch)) *type = type_with(HRI_GGML_F16);
  if (*type >= 0 && (to_gguf || types[*type].torch)) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE, "the type '%.40s' cannot be written to %s", options->type,
           to_gguf ? "GGUF" : "a Hugging Face directory");
  return hri_hint(error, HR_ERROR_USAGE,
                  to_gguf ? "f32, f16, bf16, q8_0, q6_K, q5_K, q5_K_M, q4_K, q4_K_M and q4_0 can"
                          : "f32, f16 and bf16 can");
}

/* ---- the two directions ---- */

typedef struct work {
  const hr_convert_options *options;
  hr_convert_result *result;
  const char *named; /* the source, as it was given */
  hr_model model;
  hri_convert_source source;
  hri_lexicon lexicon;
  bool has_lexicon;
  int type;
  bool to_gguf;
  uint32_t quantization;
} work;

static void note(const work *w, const char *text) {
  if (w->options->on_note) w->options->on_note(w->options->context, text);
}

static hr_status read_lexicon(work *w, const char *source, hr_error *error) {
  char text[320];
  if (w->options->without_tokenizer || w->quantization || w->model.lora.rank > 0) return HR_OK;
  if (w->source.gguf) HRI_TRY(hri_lexicon_from_gguf(w->source.gguf, &w->lexicon, &w->has_lexicon, error));
  else HRI_TRY(hri_lexicon_from_directory(source, &w->lexicon, &w->has_lexicon, error));
  w->result->token_count = w->lexicon.tokens.count;
  w->result->has_template = w->lexicon.chat_template != NULL;
  if (w->lexicon.stripping) {
    (void)snprintf(text, sizeof text,
                   "the token '%.80s' takes the blanks beside it, or counts as a whole word alone (lstrip, rstrip, "
                   "single_word), and maybe others: GGUF does not say so",
                   w->lexicon.stripping);
    note(w, text);
  }
  if (!w->source.gguf && hri_lexicon_zeroed(&w->lexicon) >= 0) {
    (void)snprintf(
        text, sizeof text,
        "the token %lld, and maybe others, holds U+0000: it is kept as it is, but llama.cpp takes its text to end "
        "there, so text with that character gets other tokens",
        (long long)hri_lexicon_zeroed(&w->lexicon));
    note(w, text);
  }
  if (w->lexicon.prefix_first)
    note(
        w,
        "tokenizer.json puts a blank in front of a text only ('prepend_scheme': 'first'), and readers of GGUF behind each "
        "special token too: text there gets other tokens");
  if (!w->has_lexicon)
    note(w, w->source.gguf ? "the file has no tokenizer" : "the directory has no tokenizer: the file gets none");
  return HR_OK;
}

/* Ids that only config.json names; the tokenizer's own count first, as for llama.cpp's converter. */
static void name_tokens(work *w) {
  const int32_t ids[HRI_LEXICON_NAMED] = {w->model.bos_token, w->model.eos_token, -1, w->model.pad_token};
  for (int i = 0; i < HRI_LEXICON_NAMED; i++)
    if (w->lexicon.named[i] < 0) w->lexicon.named[i] = ids[i];
}

static void tell_written(work *w, const hri_convert_written *written) {
  hr_convert_result *r = w->result;
  r->tensor_count = written->tensors;
  r->data_bytes = written->data_bytes;
  r->block_tensor_count = written->in_blocks;
  r->fallback_count = written->fallbacks;
  r->block_error = hri_block_loss_share(&written->loss);
  r->worst_error = written->worst;
  memcpy(r->worst_tensor, written->worst_name, sizeof r->worst_tensor);
}

static hr_status to_gguf(work *w, const char *target, hr_error *error) {
  hri_gguf_keys keys = {0};
  uint32_t ids[3] = {0};
  static const char *const names[3] = {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
                                       "tokenizer.ggml.padding_token_id"};
  const int32_t tokens[3] = {w->model.bos_token, w->model.eos_token, w->model.pad_token};
  const hri_convert_kind kind = {types[w->type].ggml, types[w->type].mixed};
  hri_convert_written written;
  hr_status status;
  if (w->model.lora.rank > 0)
    return hri_convert_adapter(&w->source, target, types[w->type].ggml, types[w->type].file_type,
                               &w->result->tensor_count, &w->result->data_bytes, error);
  status = hri_gguf_put_model(&keys, &w->model, types[w->type].file_type, error);
  name_tokens(w);
  if (status == HR_OK && w->has_lexicon)
    status = hri_lexicon_to_gguf(&w->lexicon, w->model.vocabulary_size, &keys, error);
  for (int i = 0; i < 3 && !w->has_lexicon; i++) {
    ids[i] = (uint32_t)tokens[i];
    if (tokens[i] >= 0) hri_gguf_put_u32(&keys, names[i], ids[i]);
  }
  if (status == HR_OK) status = hri_convert_to_gguf(&w->source, target, &keys, kind, &written, error);
  if (status == HR_OK) tell_written(w, &written);
  hri_gguf_keys_deinit(&keys);
  return status;
}

static hr_status write_file(const char *directory, const char *name, char *text, hr_error *error) {
  char *path = hri_path_join(directory, name);
  hr_status status =
      path && text ? hri_file_write_new(path, text, strlen(text), error) : hri_fail_memory(error, 0, name);
  hri_free(path);
  hri_free(text);
  return status;
}

static char *generation_text(const hr_model *m) {
  static const char *const names[3] = {"bos_token_id", "eos_token_id", "pad_token_id"};
  const int32_t ids[3] = {m->bos_token, m->eos_token, m->pad_token};
  hri_text text = {0};
  hri_json_writer json = hri_json_writer_init(&text, 2);
  hri_json_begin_object(&json);
  for (int i = 0; i < 3; i++)
    if (ids[i] >= 0) hri_json_field_i64(&json, names[i], ids[i]);
  hri_json_end_object(&json);
  hri_text_add(&text, "\n");
  if (!text.failed) return text.chars;
  hri_text_deinit(&text);
  return NULL;
}

/* A tokenizer that was written must open: that of a GGUF file may have merges of tokens that there are none of. The file's own name
 * says why. */
static hr_status check_opens(const work *w, const char *directory, hr_error *error) {
  static const char hint[] = "convert with --without-tokenizer and take the tokenizer of the original model";
  hr_tokenizer *tokenizer;
  hr_error local;
  hr_status status = hr_tokenizer_open(directory, &tokenizer, &local);
  if (status == HR_OK) {
    hr_tokenizer_close(tokenizer);
    return HR_OK;
  }
  if (!w->source.gguf) return hri_fail(error, status, "%s", local.message);
  status = hr_tokenizer_open(w->named, &tokenizer, error);
  if (status == HR_OK) {
    hr_tokenizer_close(tokenizer);
    status = hri_fail(error, HR_ERROR_INPUT, "%s: its tokenizer makes no tokenizer.json that opens", w->named);
  }
  return hri_hint(error, status, hint);
}

/* The weights last: what they grow in is synced with them. */
static hr_status to_directory(work *w, const char *directory, hr_error *error) {
  HRI_TRY(write_file(directory, "config.json", hr_model_config_text(&w->model, types[w->type].torch), error));
  HRI_TRY(write_file(directory, "generation_config.json", generation_text(&w->model), error));
  if (w->has_lexicon) {
    HRI_TRY(hri_lexicon_to_directory(&w->lexicon, directory, w->model.max_positions, error));
    HRI_TRY(check_opens(w, directory, error));
  }
  return hri_convert_to_weights(&w->source, directory, types[w->type].ggml, &w->result->tensor_count,
                                &w->result->data_bytes, error);
}

/* ---- quantized ---- */

enum { COMPANION_BYTES = 256 << 20 }; /* most of a file beside the weights; tokenizers have some MiB */

typedef struct copying {
  const work *work;
  const char *to;
} copying;

static hr_status copy_file(void *context, const char *name, hri_beside_kind kind, hr_error *error) {
  const copying *c = context;
  char *path = hri_path_join(c->work->model.directory, name), *made = hri_path_join(c->to, name), *bytes = NULL;
  const bool wanted = kind != HRI_BESIDE_TOKENIZER || !c->work->options->without_tokenizer;
  uint64_t count;
  hr_status status = path && made ? HR_OK : hri_fail_memory(error, strlen(c->to), "a path");
  if (status == HR_OK && wanted) {
    status = hri_file_read(path, COMPANION_BYTES, &bytes, &count, error);
    if (status == HR_OK) status = hri_file_write_new(made, bytes, count, error);
  }
  hri_free(bytes);
  hri_free(path);
  hri_free(made);
  return status;
}

static hr_status to_quantized(work *w, const char *directory, hr_error *error) {
  hr_model model = w->model;
  hr_status read;
  char *text;
  model.quantization = (hr_quantize)w->quantization;
  text = hri_config_kept(&model, types[w->type].torch, &read, error);
  if (read != HR_OK) {
    hr_free(text);
    return read;
  }
  HRI_TRY(write_file(directory, "config.json", text, error));
  HRI_TRY(hri_beside_list(w->model.directory, copy_file, &(copying){w, directory}, error)); /* stays as it is */
  return hri_convert_to_quantized(&w->source, directory, w->quantization, &w->result->tensor_count,
                                  &w->result->data_bytes, error);
}

static hr_status check_quantization(const work *w, hr_error *error) {
  if (w->quantization >= HRI_QUANTIZATION_COUNT)
    return hri_fail(error, HR_ERROR_USAGE, "--quantize has no value %u", w->quantization);
  if (w->quantization == HRI_QUANTIZATION_KEEP) {
    hri_fail(error, HR_ERROR_USAGE, "--quantize keep makes no file: it says that training keeps a GGUF file's blocks");
    return hri_hint(error, HR_ERROR_USAGE, "give --quantize nf4, fp4, nf4+dq, fp4+dq or int8");
  }
  if (!w->options->type || !w->quantization) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE,
           "--quantize and --type exclude each other: weights are quantized from their own values");
  return hri_hint(error, HR_ERROR_USAGE, "leave --type out");
}

/* ---- source and target ---- */

/* What stands beside the adapters, A and B of modules, is not read (model/adapter.h). */
static hr_status open_adapter(work *w, const char *source, hr_error *error) {
  const hr_lora *lora = &w->model.lora;
  const char *other;
  char *path;
  hr_status status;
  if (w->quantization) {
    hri_fail(error, HR_ERROR_USAGE, "%s holds adapters, which are not quantized", source);
    return hri_hint(error, HR_ERROR_USAGE, "name the model, %s, or leave --quantize out", w->model.directory);
  }
  other = lora->dora        ? "DoRA's magnitudes"
          : lora->embedding ? "an adapter of the embedding"
          : lora->bias      ? "trained biases"
          : lora->saved     ? "modules that were trained whole"
                            : NULL;
  if (other) {
    hri_fail(error, HR_ERROR_UNSUPPORTED, "%s has %s, for which GGUF files of adapters have no place", source, other);
    return hri_hint(error, HR_ERROR_UNSUPPORTED, "headroom merge makes a model of it, which can be converted");
  }
  path = hri_path_join(w->model.adapter, HRI_ADAPTER_FILE);
  if (!path) return hri_fail_memory(error, strlen(source), "a path");
  status = hri_weights_open(path, &w->source.weights, error);
  hri_free(path);
  return status;
}

static hr_status open_source(work *w, const char *source, hr_error *error) {
  bool directory = hri_path_is_dir(source);
  w->source.model = &w->model;
  if (!directory) {
    HRI_TRY(hri_gguf_open(source, &w->source.gguf, error));
    return hri_gguf_model(w->source.gguf, &w->model, error);
  }
  HRI_TRY(hr_model_open(source, &w->model, error));
  if (w->model.lora.rank > 0) return open_adapter(w, source, error);
  if (w->model.quantization != HR_QUANTIZE_NONE) {
    hri_fail(error, HR_ERROR_INPUT, "%s is quantized (%s, by bitsandbytes)", source,
             hri_quantization_name((uint32_t)w->model.quantization));
    return hri_hint(error, HR_ERROR_INPUT, "convert the model that it was made of");
  }
  if (w->model.has_weights) return hri_weights_open(w->model.directory, &w->source.weights, error);
  hri_fail(error, HR_ERROR_INPUT, "%s holds no weights", source);
  return hri_hint(error, HR_ERROR_INPUT,
                  "model.safetensors, or shards with model.safetensors.index.json, must lie beside config.json");
}

static bool ends_in_gguf(const char *path) {
  size_t length = strlen(path);
  return length > 5 && strcasecmp(path + length - 5, ".gguf") == 0;
}

static hr_status check_quantized_names(const char *source, const char *target, hr_error *error) {
  if (hri_path_is_dir(source) && !ends_in_gguf(target)) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE, "--quantize with this kind makes a directory of a directory, and %s is none",
           hri_path_is_dir(source) ? target : source);
  return hri_hint(error, HR_ERROR_USAGE,
                  "headroom convert DIRECTORY DIRECTORY --quantize nf4; of GGUF files: q4_K_M, q8_0, ...");
}

static hr_status refuse_missing(const char *source, hr_error *error) {
  hr_model model;
  if (hr_model_preset(source, &model, NULL) != HR_OK) return hri_fail_errno(error, ENOENT, "open", source);
  hri_fail(error, HR_ERROR_USAGE, "%s is a preset, which has no weights", source);
  return hri_hint(error, HR_ERROR_USAGE, "name a directory with a model, or a GGUF file");
}

static hr_status check_source(const char *source, hr_error *error) {
  int fd;
  if (!hri_path_exists(source)) return refuse_missing(source, error);
  if (hri_rows_file(source)) {
    hri_fail(error, HR_ERROR_INPUT, "%s holds " HRI_ROWS_ARE ", and no model", source);
    return hri_hint(error, HR_ERROR_INPUT, HRI_ROWS_HINT);
  }
  if (hri_path_is_dir(source)) return HR_OK;
  HRI_TRY(hri_file_open_regular(source, &fd, NULL, error)); /* before anything is said of what it would become */
  (void)close(fd);
  if (hri_gguf_is(source)) return HR_OK;
  hri_fail(error, HR_ERROR_INPUT, "%s is no GGUF file (it does not begin with 'GGUF'), and no directory", source);
  return hri_hint(
      error, HR_ERROR_INPUT,
      "name the directory that config.json and the weights lie in; a GGUF file that is damaged, fetch anew");
}

/* A GGUF file becomes another one where a type is asked for. */
static hr_status check_names(const char *source, const char *target, bool typed, bool quantized, hr_error *error) {
  bool to_gguf_file = hri_path_is_dir(source);
  HRI_TRY(check_source(source, error));
  if (quantized) return check_quantized_names(source, target, error);
  if (to_gguf_file == ends_in_gguf(target) || (!to_gguf_file && typed)) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE,
           to_gguf_file
               ? "%s: a directory becomes a GGUF file, and its name ends in .gguf"
               : "%s: a GGUF file becomes a directory, whose name does not end in .gguf, unless a type is given",
           target);
  return hri_hint(error, HR_ERROR_USAGE,
                  "headroom convert DIRECTORY FILE.gguf, or headroom convert FILE.gguf DIRECTORY");
}

static hr_status check_target(hri_target *t, const char *source, const char *target, work *w, hr_error *error) {
  const hr_convert_options *options = w->options;
  bool quantized = w->quantization != HRI_QUANTIZATION_NONE;
  if (!*target) {
    hri_fail(error, HR_ERROR_USAGE, "the target has no name");
    return hri_hint(error, HR_ERROR_USAGE, "name a directory, or a file that ends in .gguf");
  }
  HRI_TRY(check_names(source, target, options->type != NULL, quantized, error));
  w->to_gguf = !quantized && ends_in_gguf(target);
  if (options->replace && !w->to_gguf) HRI_TRY(hri_target_spares(target, source, error));
  return hri_target_init(t, target, !w->to_gguf, options->replace, error);
}

static void tell_kept(const work *w, const hri_target *t) {
  char text[2 * PATH_MAX + 128];
  (void)snprintf(w->result->kept, sizeof w->result->kept, "%s", t->kept);
  if (!t->kept[0]) return;
  (void)snprintf(text, sizeof text,
                 "what stood at %s is kept as %s: it came to hold more than a model, or could not be removed", t->named,
                 t->kept);
  note(w, text);
}

static hr_status write_target(work *w, hri_target *t, hr_error *error) {
  const char *of = w->model.lora.rank > 0 ? w->named : w->model.directory; /* that of an adapter is its base's */
  hr_status status = hri_target_begin(t, error);
  if (status == HR_OK && w->quantization) status = to_quantized(w, t->made, error);
  else if (status == HR_OK) status = t->directory ? to_directory(w, t->made, error) : to_gguf(w, t->made, error);
  if (status == HR_OK) status = hri_target_publish(t, error);
  tell_kept(w, t);
  hri_target_end(t);
  if (status == HR_ERROR_INPUT && error && !strstr(error->message, of)) /* a tensor of it */
    return hri_context(error, status, "%s: ", of);
  return hri_target_failed(t, status, error);
}

/* Of the first tensor: PEFT saves all alike. */
static uint32_t type_of_adapter(const hri_weights *weights) {
  hri_file_dtype dtype = hri_weights_count(weights) ? hri_weights_get(weights, 0)->dtype : HRI_FILE_F32;
  return dtype == HRI_FILE_F16 ? HRI_GGML_F16 : dtype == HRI_FILE_BF16 ? HRI_GGML_BF16 : HRI_GGML_F32;
}

static hr_status check_adapter_type(const work *w, hr_error *error) {
  if (w->model.lora.rank == 0 || types[w->type].torch || types[w->type].ggml == HRI_GGML_Q8_0) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE, "adapters are not written as %s", types[w->type].name);
  return hri_hint(error, HR_ERROR_USAGE, "f32, f16, bf16 and q8_0 can be, or leave the type out");
}

/* What is worth knowing before it is waited for. */
static void tell_source(const work *w, uint32_t source_type) {
  char text[512];
  if (w->model.unread_keys[0]) {
    (void)snprintf(text, sizeof text, "not understood, and left out of account: %s", w->model.unread_keys);
    note(w, text);
  }
  if (!w->source.gguf || hri_ggml_block(source_type) == 1 || types[w->type].torch) return;
  (void)snprintf(text, sizeof text, "the source is in blocks of %s already: what they lost stays lost",
                 hri_ggml_name(source_type));
  note(w, text);
}

static void describe(work *w, uint32_t source_type) {
  hr_convert_result *r = w->result;
  (void)snprintf(r->from, sizeof r->from, "%s",
                 w->source.gguf           ? "GGUF"
                 : w->model.lora.rank > 0 ? "PEFT"
                                          : "Hugging Face");
  (void)snprintf(r->to, sizeof r->to, "%s", w->to_gguf ? "GGUF" : "Hugging Face");
  hri_convert_type_name(source_type, r->source_type);
  (void)snprintf(r->type, sizeof r->type, "%s",
                 w->quantization ? hri_quantization_name(w->quantization) : types[w->type].name);
  r->parameter_count = w->model.lora.rank > 0
                           ? hri_weights_data_bytes(w->source.weights) / hri_ggml_block_bytes(source_type)
                           : hr_model_parameter_count(&w->model);
}

void hr_convert_options_init(hr_convert_options *options) { *options = (hr_convert_options){0}; }

hr_status hr_convert(const char *source, const char *target, const hr_convert_options *options,
                     hr_convert_result *result, hr_error *error) {
  hr_convert_options none;
  hr_convert_result unused;
  work w = {.options = options ? options : &none, .result = result ? result : &unused, .named = source};
  hri_target t;
  uint32_t source_type = 0;
  hr_status status = HR_OK;
  hr_convert_options_init(&none);
  memset(w.result, 0, sizeof *w.result);
  hri_lexicon_init(&w.lexicon);
  w.quantization = (uint32_t)w.options->quantize;
  w.source.should_stop = w.options->should_stop;
  w.source.context = w.options->context;
  HRI_TRY_OUT(check_quantization(&w, error));
  HRI_TRY_OUT(check_target(&t, source, target, &w, error));
  HRI_TRY_OUT(open_source(&w, source, error));
  if (w.model.lora.rank > 0) source_type = type_of_adapter(w.source.weights);
  else HRI_TRY_OUT(hri_convert_check(&w.source, error));
  if (w.model.lora.rank == 0) HRI_TRY_OUT(hri_convert_type_of(&w.source, &source_type, error));
  HRI_TRY_OUT(choose_type(w.options, source_type, w.to_gguf, &w.type, error));
  HRI_TRY_OUT(check_adapter_type(&w, error));
  tell_source(&w, source_type);
  describe(&w, source_type);
  HRI_TRY_OUT(read_lexicon(&w, source, error));
  status = write_target(&w, &t, error);
out:
  hri_lexicon_deinit(&w.lexicon);
  hri_weights_close(w.source.weights);
  hri_gguf_close(w.source.gguf);
  return status;
}
