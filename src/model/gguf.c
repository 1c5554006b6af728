/* Names and layout of weights in GGUF files. */
#include "model/gguf.h"

#include <stdio.h>
#include <string.h>

/* ---- names ---- */

/* Hugging Face modules, inside of a layer and outside, and their names in GGUF. */
static const struct {
  const char *hf, *gguf;
} layer_names[] =
    {
        {"input_layernorm", "attn_norm"},
        {"self_attn.q_proj", "attn_q"},
        {"self_attn.k_proj", "attn_k"},
        {"self_attn.v_proj", "attn_v"},
        {"self_attn.qkv_proj", "attn_qkv"},
        {"self_attn.o_proj", "attn_output"},
        {"self_attn.dense", "attn_output"},
        {"self_attn.q_norm", "attn_q_norm"},
        {"self_attn.k_norm", "attn_k_norm"},
        {"pre_feedforward_layernorm", "ffn_norm"},
        {"post_feedforward_layernorm", "post_ffw_norm"},
        {"mlp.gate_proj", "ffn_gate"},
        {"mlp.up_proj", "ffn_up"},
        {"mlp.gate_up_proj", "ffn_up"},
        {"mlp.down_proj", "ffn_down"},
        {"mlp.fc1", "ffn_up"},
        {"mlp.fc2", "ffn_down"},
        {"ln_1", "attn_norm"},
        {"attn.c_attn", "attn_qkv"},
        {"attn.c_proj", "attn_output"},
        {"ln_2", "ffn_norm"},
        {"mlp.c_fc", "ffn_up"},
        {"mlp.c_proj", "ffn_down"},
},
  outer_names[] = {
      {"model.embed_tokens", "token_embd"},
      {"model.norm", "output_norm"},
      {"lm_head", "output"},
      {"transformer.wte", "token_embd"},
      {"transformer.wpe", "position_embd"},
      {"transformer.ln_f", "output_norm"},
      {"model.final_layernorm", "output_norm"},
};

/* What gemma2 and olmo2 call post_attention_layernorm norms the attention's output; elsewhere it is the norm before the
 * MLP. */
static const char *layer_name(const hr_model *model, const char *module, size_t length) {
  static const char moved[] = "post_attention_layernorm";
  if (length == sizeof moved - 1 && strncmp(module, moved, length) == 0)
    return model->post_norms ? "post_attention_norm" : "ffn_norm";
  for (size_t i = 0; i < sizeof layer_names / sizeof *layer_names; i++)
    if (strlen(layer_names[i].hf) == length && strncmp(module, layer_names[i].hf, length) == 0)
      return layer_names[i].gguf;
  return "unknown";
}

static const char *outer_name(const char *module, size_t length) {
  for (size_t i = 0; i < sizeof outer_names / sizeof *outer_names; i++)
    if (strlen(outer_names[i].hf) == length && strncmp(module, outer_names[i].hf, length) == 0)
      return outer_names[i].gguf;
  return "unknown";
}

/* Splits "model.layers.3.mlp.up_proj.weight" before its last point; inside of a layer the module begins behind the
 * number. */
static void translate(const hr_model *model, const hri_param_spec *spec, const char *name, char out[64]) {
  const char *last = strrchr(name, '.'), *module = name;
  char number[16];
  if (spec->layer < 0) {
    (void)snprintf(out, 64, "%s%s", outer_name(name, (size_t)(last - name)), last);
    return;
  }
  (void)snprintf(number, sizeof number, ".%d.", spec->layer);
  module = strstr(name, number) + strlen(number);
  (void)snprintf(out, 64, "blk.%d.%s%s", spec->layer, layer_name(model, module, (size_t)(last - module)), last);
}

bool hri_gguf_turns_neighbours(hr_family family) {
  return family == HR_FAMILY_LLAMA || family == HR_FAMILY_MISTRAL || family == HR_FAMILY_SMOLLM3 ||
         family == HR_FAMILY_GRANITE;
}

static bool permuted(const hr_model *model, const hri_param_spec *spec, uint32_t part) {
  bool qkv = spec->slot == HRI_SLOT_QKV_WEIGHT || spec->slot == HRI_SLOT_QKV_BIAS;
  return qkv && part < 2 && hri_gguf_turns_neighbours(model->family);
}

static bool is_norm_weight(const char *name) {
  size_t length = strlen(name);
  return length > 11 && strcmp(name + length - 11, "norm.weight") == 0;
}

/* The name of a module's weight, as "blk.3.attn_q.weight"; false: the family has no such module. */
static bool module_weight(const hr_model *model, hr_module module, int32_t layer, char out[64]) {
  const hri_param_spec weight = {.layer = layer, .slot = hri_module_slot(module, NULL)};
  char name[96], full[96];
  if (!hri_module_name(model, module, layer, name)) return false;
  (void)snprintf(full, sizeof full, "%.80s.weight", name);
  translate(model, &weight, full, out);
  return true;
}

void hri_gguf_adapter_part(const hr_model *model, hr_module module, int32_t layer, bool b, uint64_t rows,
                           uint64_t columns, hri_gguf_part *out) {
  hri_param_spec weight = {.layer = layer};
  uint32_t part;
  char file[64];
  weight.slot = hri_module_slot(module, &part);
  (void)module_weight(model, module, layer, file);
  memset(out, 0, sizeof *out);
  (void)snprintf(out->name, sizeof out->name, "%.50s.lora_%c", file, b ? 'b' : 'a');
  out->rank = 2;
  out->rows = rows;
  out->columns = columns;
  if (b && permuted(model, &weight, part)) out->head_size = model->head_size;
}

void hri_gguf_part_of(const hr_model *model, const hri_param_spec *spec, uint32_t part, hri_gguf_part *out) {
  if (spec->adapter) {
    hri_gguf_adapter_part(model, hri_param_module(model, spec, part), spec->layer, spec->slot >= HRI_SLOT_LORA_B,
                          spec->parts[part].rows, spec->dims[1], out);
    return;
  }
  memset(out, 0, sizeof *out);
  translate(model, spec, spec->parts[part].name, out->name);
  out->rank = spec->rank;
  out->rows = spec->parts[part].rows;
  out->columns = spec->rank == 2 ? spec->dims[1] : 1;
  if (permuted(model, spec, part)) out->head_size = model->head_size;
  if (is_norm_weight(out->name)) out->offset = (float)model->norm_weight_offset;
}

bool hri_gguf_ignored(const hr_model *model, const char *name) {
  if (model->tied_embeddings && strcmp(name, "output.weight") == 0) return true;
  return strncmp(name, "rope_", 5) == 0 || strstr(name, ".rope_freqs.weight") || strstr(name, ".attn_rot_embd.");
}

/* ---- blocks that are kept ---- */

/* Types that are decoded, as those of programs. */
static const uint8_t dtypes[] = {
    [HRI_GGML_F32] = 1 + HRI_F32,   [HRI_GGML_F16] = 1 + HRI_F16,       [HRI_GGML_BF16] = 1 + HRI_BF16,
    [HRI_GGML_Q4_0] = 1 + HRI_Q4_0, [HRI_GGML_Q4_1] = 1 + HRI_Q4_1,     [HRI_GGML_Q5_0] = 1 + HRI_Q5_0,
    [HRI_GGML_Q5_1] = 1 + HRI_Q5_1, [HRI_GGML_Q8_0] = 1 + HRI_Q8_0,     [HRI_GGML_Q4_K] = 1 + HRI_Q4_K,
    [HRI_GGML_Q5_K] = 1 + HRI_Q5_K, [HRI_GGML_Q6_K] = 1 + HRI_Q6_K,     [HRI_GGML_Q2_K] = 1 + HRI_Q2_K,
    [HRI_GGML_Q3_K] = 1 + HRI_Q3_K, [HRI_GGML_IQ4_NL] = 1 + HRI_IQ4_NL, [HRI_GGML_IQ4_XS] = 1 + HRI_IQ4_XS,
};

uint8_t hri_gguf_dtype(uint32_t type) {
  return type < sizeof dtypes && dtypes[type] ? (uint8_t)(dtypes[type] - 1) : HRI_DTYPE_COUNT;
}

uint8_t hri_gguf_part_type(const hr_model *model, const hri_param_spec *spec, uint32_t part) {
  hr_module module;
  if (!hri_part_module(spec->slot, part, &module) || !model->gguf_types[spec->layer][module]) return HRI_DTYPE_COUNT;
  return hri_gguf_dtype(model->gguf_types[spec->layer][module] - 1u);
}

void hri_gguf_read_types(const hri_gguf *file, hr_model *model) {
  memset(model->gguf_types, 0, sizeof model->gguf_types);
  for (uint32_t layer = 0; layer < model->layer_count; layer++)
    for (int k = 0; k < HR_MODULE_COUNT; k++) {
      char name[64];
      uint32_t index =
          module_weight(model, (hr_module)k, (int32_t)layer, name) ? hri_gguf_find(file, name) : HRI_GGUF_NONE;
      if (index != HRI_GGUF_NONE) model->gguf_types[layer][k] = (uint8_t)(1 + hri_gguf_tensor_get(file, index)->type);
    }
}

static hr_status refuse_type(const char *path, const char *name, uint32_t type, hr_error *error) {
  hri_text known = {0};
  for (uint32_t k = 0; k < 64; k++)
    if (hri_ggml_decodes(k)) hri_text_add(&known, "%s%s", known.length ? ", " : "", hri_ggml_name(k));
  hri_fail(error, HR_ERROR_INPUT, "%s: tensor %s has type %s", path, name, hri_ggml_name(type));
  hri_hint(error, HR_ERROR_INPUT, "these are read: %s; take a file of such types", known.chars ? known.chars : "");
  hri_text_deinit(&known);
  return HR_ERROR_INPUT;
}

static hr_status keeps_module(const hr_model *model, uint32_t layer, hr_module module, const char *name,
                              hr_error *error) {
  const uint32_t type = model->gguf_types[layer][module] - 1u;
  const uint64_t columns = hri_module_columns(model, module);
  if (hri_gguf_dtype(type) == HRI_DTYPE_COUNT) return refuse_type(model->directory, name, type, error);
  if (columns % hri_ggml_block(type) == 0) return HR_OK;
  hri_fail(error, HR_ERROR_INPUT,
           "%s: tensor %s is %s, in blocks of %u, and its rows of %llu elements are no whole blocks", model->directory,
           name, hri_ggml_name(type), hri_ggml_block(type), (unsigned long long)columns);
  return hri_hint(error, HR_ERROR_INPUT, "the file contradicts itself; convert the model anew");
}

bool hri_gguf_typed(const hr_model *model) {
  for (int k = 0; k < HR_MODULE_COUNT; k++)
    if (model->gguf_types[0][k]) return true;
  return false;
}

hr_status hri_gguf_keeps(const hr_model *model, hr_error *error) {
  for (uint32_t layer = 0; layer < model->layer_count; layer++)
    for (int k = 0; k < HR_MODULE_COUNT; k++) {
      char name[64];
      if (!module_weight(model, (hr_module)k, (int32_t)layer, name)) continue;
      if (model->gguf_types[layer][k]) {
        HRI_TRY(keeps_module(model, layer, (hr_module)k, name, error));
        continue;
      }
      hri_fail(error, HR_ERROR_INPUT, "%s: the tensor %s is missing", model->directory, name);
      return hri_hint(error, HR_ERROR_INPUT, "the file is incomplete, or was made for another kind of model");
    }
  return HR_OK;
}

/* ---- values ---- */

hr_status hri_gguf_part_locate(const hri_gguf *file, const hri_gguf_part *part, uint32_t *index, hr_error *error) {
  const hri_gguf_tensor *tensor;
  const uint64_t inner = part->rank == 2 ? part->columns : part->rows, outer = part->rank == 2 ? part->rows : 1;
  *index = hri_gguf_find(file, part->name);
  if (*index == HRI_GGUF_NONE) {
    hri_fail(error, HR_ERROR_INPUT, "%s: the tensor %s is missing", hri_gguf_path(file), part->name);
    return hri_hint(error, HR_ERROR_INPUT,
                    "the file is incomplete (one of several parts?) or was made for another kind of model");
  }
  tensor = hri_gguf_tensor_get(file, *index);
  if (tensor->dims[0] != inner || tensor->dims[1] != outer || tensor->dims[2] != 1 || tensor->dims[3] != 1) {
    hri_fail(error, HR_ERROR_INPUT,
             "%s: tensor %s has %llu rows of %llu elements; a model of this description has %llu of %llu",
             hri_gguf_path(file), part->name, (unsigned long long)tensor->dims[1], (unsigned long long)tensor->dims[0],
             (unsigned long long)outer, (unsigned long long)inner);
    return hri_hint(error, HR_ERROR_INPUT, "the file contradicts itself; convert the model anew");
  }
  return HR_OK;
}

hr_status hri_gguf_part_find(const hri_gguf *file, const hri_gguf_part *part, uint32_t *index, hr_error *error) {
  uint32_t type;
  HRI_TRY(hri_gguf_part_locate(file, part, index, error));
  type = hri_gguf_tensor_get(file, *index)->type;
  return hri_ggml_decodes(type) ? HR_OK : refuse_type(hri_gguf_path(file), part->name, type, error);
}

/* `count` elements from element `first`, both at the border of a block, through the staging where they need
 * decoding. */
static hr_status read_run(const hri_gguf *file, uint32_t index, uint64_t first, uint64_t count, float *to,
                          void *staging, uint64_t staging_bytes, hr_error *error) {
  uint32_t type = hri_gguf_tensor_get(file, index)->type;
  uint64_t block = hri_ggml_block(type), bytes = hri_ggml_block_bytes(type), room = staging_bytes / bytes * block;
  if (type == HRI_GGML_F32) return hri_gguf_read(file, index, first * 4, count * 4, to, error);
  for (uint64_t done = 0; done < count;) {
    uint64_t n = count - done < room ? count - done : room;
    HRI_TRY(hri_gguf_read(file, index, (first + done) / block * bytes, n / block * bytes, staging, error));
    (void)hri_ggml_to_f32(type, to + done, staging, n);
    done += n;
  }
  return HR_OK;
}

/* Row r of a head of D rows lies at row 2 (r mod D/2) + r / (D/2) of that head. */
static uint64_t stored_row(const hri_gguf_part *part, uint64_t row) {
  uint64_t half = part->head_size / 2, r = row % part->head_size;
  return row - r + 2 * (r % half) + r / half;
}

/* Part of a vector: its ends need not be borders of blocks, so whole blocks are decoded beside it. */
static hr_status read_vector(const hri_gguf *file, uint32_t index, const hri_gguf_part *part, uint64_t first,
                             uint64_t count, float *to, void *staging, uint64_t staging_bytes, hr_error *error) {
  uint64_t block = hri_ggml_block(hri_gguf_tensor_get(file, index)->type);
  float values[256] = {0};
  if (block == 1 && !part->head_size) return read_run(file, index, first, count, to, staging, staging_bytes, error);
  for (uint64_t i = 0, held = UINT64_MAX; i < count; i++) {
    uint64_t at = part->head_size ? stored_row(part, first + i) : first + i;
    if (at / block != held)
      HRI_TRY(read_run(file, index, at / block * block, block, values, staging, staging_bytes, error));
    held = at / block;
    to[i] = values[at % block];
  }
  return HR_OK;
}

hr_status hri_gguf_part_read(const hri_gguf *file, uint32_t index, const hri_gguf_part *part, uint64_t row,
                             uint64_t count, float *to, void *staging, uint64_t staging_bytes, hr_error *error) {
  uint64_t columns = part->columns;
  if (part->rank == 1) HRI_TRY(read_vector(file, index, part, row, count, to, staging, staging_bytes, error));
  else if (!part->head_size)
    HRI_TRY(read_run(file, index, row * columns, count * columns, to, staging, staging_bytes, error));
  else
    for (uint64_t i = 0; i < count; i++)
      HRI_TRY(read_run(file, index, stored_row(part, row + i) * columns, columns, to + i * columns, staging,
                       staging_bytes, error));
  if (part->offset != 0)
    for (uint64_t i = 0; i < count * columns; i++) to[i] -= part->offset;
  return HR_OK;
}
