/* The adapters of a GGUF file (llama.cpp's convert_lora_to_gguf.py writes such, and src/convert/adapter.c) as the
 * description that adapter_config.json is of PEFT's: which modules have A and B, and of what rank.
 *
 * There is no list of modules; the names of tensors say them, and the shape of A says a module's rank. One alpha is for
 * all: llama.cpp multiplies what a module adds by alpha / rank, and by 1 where alpha is 0 or missing (src/llama-adapter.h).
 * What was rsLoRA is not to be seen: the root of the rank is in alpha then. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/gguf.h"
#include "model/lora.h"

enum { MOST_RANK = 4096 };
#define OTHER_MODEL "name the model that the adapters were trained beside"

typedef struct reading {
  const hri_gguf *file;
  const hr_model *model;
  hr_lora lora;
  double alpha; /* 0: a factor of 1, whatever the rank */
  bool *seen;   /* of each tensor */
} reading;

/* ---- keys ---- */

static hr_status refuse_kind(const hri_gguf *file, hr_status code, const char *key, const char *what, hr_error *error) {
  hri_fail(error, code, "%s: %s is '%.60s'", hri_gguf_path(file), key, what);
  return hri_hint(error, code, "adapters of the type lora are read, without tokens that switch them on");
}

/* llama.cpp compares architectures too: tensors of two of them may well have the same shapes. */
static hr_status check_architecture(const reading *r, hr_error *error) {
  const char *found, *wanted = hri_gguf_architecture(r->model->family);
  HRI_TRY(hri_gguf_get_string(r->file, "general.architecture", &found, NULL, error));
  if (strcmp(found, wanted) == 0) return HR_OK;
  hri_fail(error, HR_ERROR_INPUT, "%s: general.architecture is '%.60s', and %s is %s", hri_gguf_path(r->file), found,
           r->model->name, wanted);
  return hri_hint(error, HR_ERROR_INPUT, OTHER_MODEL);
}

static hr_status read_keys(reading *r, hr_error *error) {
  const char *type = NULL;
  HRI_TRY(hri_gguf_opt_string(r->file, "adapter.type", &type, NULL, error));
  if (!type) {
    hri_fail(error, HR_ERROR_INPUT, "%s holds no adapters: it has no key adapter.type", hri_gguf_path(r->file));
    return hri_hint(error, HR_ERROR_INPUT, "a model is named in front, and its adapters by --adapter");
  }
  if (strcmp(type, "lora") != 0) return refuse_kind(r->file, HR_ERROR_UNSUPPORTED, "adapter.type", type, error);
  if (hri_gguf_has(r->file, "adapter.alora.invocation_tokens"))
    return refuse_kind(r->file, HR_ERROR_UNSUPPORTED, "adapter.alora.invocation_tokens", "there", error);
  HRI_TRY(check_architecture(r, error));
  HRI_TRY(hri_gguf_opt_double(r->file, "adapter.lora.alpha", &r->alpha, error));
  if (r->alpha >= 0 && isfinite(r->alpha)) return HR_OK;
  hri_fail(error, HR_ERROR_INPUT, "%s: adapter.lora.alpha is %g; it is 0 or above", hri_gguf_path(r->file), r->alpha);
  return hri_hint(error, HR_ERROR_INPUT, "convert the adapter anew");
}

/* ---- modules ---- */

static hr_status refuse_half(const reading *r, const char *name, hr_error *error) {
  hri_fail(error, HR_ERROR_INPUT, "%s: the tensor %s is missing", hri_gguf_path(r->file), name);
  return hri_hint(error, HR_ERROR_INPUT, "A and B of a module come as a pair; convert the adapter anew");
}

/* The module's rank and alpha; those of the first one are the adapters' own. */
static hr_status take_rank(reading *r, uint32_t layer, int module, const hri_gguf_tensor *a, hr_error *error) {
  hr_lora *lora = &r->lora;
  double alpha = r->alpha > 0 ? r->alpha : (double)a->dims[1];
  if (a->dims[1] == 0 || a->dims[1] > MOST_RANK) {
    hri_fail(error, HR_ERROR_INPUT, "%s: tensor %s has %llu rows; ranks are from 1 to %d", hri_gguf_path(r->file),
             a->name, (unsigned long long)a->dims[1], MOST_RANK);
    return hri_hint(error, HR_ERROR_INPUT, "convert the adapter anew");
  }
  if (lora->rank == 0) {
    lora->rank = (uint32_t)a->dims[1];
    lora->alpha = alpha;
  }
  lora->modules[layer] |= (uint8_t)(1u << module);
  if (hri_lora_kind(lora, (uint32_t)a->dims[1], alpha, &lora->kinds[layer][module])) return HR_OK;
  return hri_fail(error, HR_ERROR_UNSUPPORTED, "%s: tensor %s: adapters have at most %d pairs of rank and alpha",
                  hri_gguf_path(r->file), a->name, HR_LORA_KINDS);
}

static hr_status take_module(reading *r, uint32_t layer, int module, hr_error *error) {
  hri_gguf_part a, b;
  uint32_t at_a, at_b;
  char name[96];
  if (!hri_module_name(r->model, (hr_module)module, (int32_t)layer, name)) return HR_OK;
  hri_gguf_adapter_part(r->model, (hr_module)module, (int32_t)layer, false, 0, 0, &a);
  hri_gguf_adapter_part(r->model, (hr_module)module, (int32_t)layer, true, 0, 0, &b);
  at_a = hri_gguf_find(r->file, a.name);
  at_b = hri_gguf_find(r->file, b.name);
  if (at_a == HRI_GGUF_NONE && at_b == HRI_GGUF_NONE) return HR_OK;
  if (at_a == HRI_GGUF_NONE) return refuse_half(r, a.name, error);
  if (at_b == HRI_GGUF_NONE) return refuse_half(r, b.name, error);
  r->seen[at_a] = r->seen[at_b] = true;
  return take_rank(r, layer, module, hri_gguf_tensor_get(r->file, at_a), error);
}

static hr_status refuse_unknown(const reading *r, const char *name, hr_error *error) {
  if (strncmp(name, "token_embd.", 11) == 0 || strncmp(name, "output.", 7) == 0) {
    hri_fail(error, HR_ERROR_UNSUPPORTED, "%s: tensor %s: adapters of embeddings or of the head are not read from GGUF",
             hri_gguf_path(r->file), name);
    return hri_hint(error, HR_ERROR_UNSUPPORTED,
                    "merge it with llama.cpp (llama-export-lora) and name the merged model");
  }
  hri_fail(error, HR_ERROR_INPUT, "%s: the tensor %s is A or B of no linear module of a layer of this %s model",
           hri_gguf_path(r->file), name, hr_family_name(r->model->family));
  return hri_hint(error, HR_ERROR_INPUT, OTHER_MODEL);
}

static hr_status read_modules(reading *r, hr_error *error) {
  for (uint32_t l = 0; l < r->model->layer_count; l++)
    for (int k = 0; k < HR_MODULE_COUNT; k++) HRI_TRY(take_module(r, l, k, error));
  for (uint32_t i = 0; i < hri_gguf_count(r->file); i++)
    if (!r->seen[i]) return refuse_unknown(r, hri_gguf_tensor_get(r->file, i)->name, error);
  if (r->lora.rank > 0) return HR_OK;
  return hri_hint(error, hri_fail(error, HR_ERROR_INPUT, "%s holds no tensors", hri_gguf_path(r->file)),
                  "convert the adapter anew");
}

hr_status hri_gguf_adapter_check(const hri_gguf *file, const hr_model *model, hr_error *error) {
  for (uint32_t p = 0; p < hri_param_count(model); p++) {
    hri_param_spec spec;
    hri_param_get(model, p, &spec);
    for (uint32_t k = 0; spec.adapter && k < spec.part_count; k++) {
      hri_gguf_part part;
      uint32_t index;
      hr_status status;
      hri_gguf_part_of(model, &spec, k, &part);
      status = hri_gguf_part_locate(file, &part, &index, error);
      if (status != HR_OK) return hri_hint(error, status, OTHER_MODEL);
      HRI_TRY(hri_gguf_part_find(file, &part, &index, error));
    }
  }
  return HR_OK;
}

/* The model as it was where the file is refused: whoever asked may go on with it. */
static hr_status take_lora(const reading *r, const char *path, hr_model *model, hr_error *error) {
  hr_lora before = model->lora;
  hr_status status;
  model->lora = r->lora;
  status = hri_gguf_adapter_check(r->file, model, error);
  if (status != HR_OK) {
    model->lora = before;
    return status;
  }
  (void)snprintf(model->adapter, sizeof model->adapter, "%s", path);
  return HR_OK;
}

hr_status hri_gguf_adapter_open(const char *path, hr_model *model, hr_error *error) {
  reading r = {.model = model};
  hri_gguf *file = NULL;
  hr_status status = hri_gguf_open(path, &file, error);
  if (status != HR_OK) return status;
  r.file = file;
  r.seen = hri_alloc_zero((size_t)hri_gguf_count(file) + 1, sizeof *r.seen);
  status = r.seen ? read_keys(&r, error) : hri_fail_memory(error, hri_gguf_count(file), "the list of tensors");
  if (status == HR_OK) status = read_modules(&r, error);
  if (status == HR_OK) status = take_lora(&r, path, model, error);
  hri_free(r.seen);
  hri_gguf_close(file);
  return status;
}
