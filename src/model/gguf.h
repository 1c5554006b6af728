/* Models in GGUF files: description, names and layout of their tensors, in both directions.
 *
 * A GGUF file holds the tensors of the Hugging Face file under other names, linear weights always as [out, in] as here,
 * and three changes of values: for the architectures llama (and mistral, which goes by that name), smollm3 and granite the rows of q and k
 * are reordered per head from (2, D/2) to (D/2, 2), as its RoPE turns neighbouring pairs; Gemma's norm weights have 1
 * added; the frequency factors of llama3 and longrope scaling are tensors. Source: ggml-org/llama.cpp, conversion/
 * (base, llama, qwen, phi, gemma, gpt2), gguf-py/gguf/tensor_mapping.py. */
#ifndef HRI_MODEL_GGUF_H
#define HRI_MODEL_GGUF_H

#include "formats/gguf.h"
#include "model/params.h"
#include "program/job.h"

/* ---- descriptions ---- */

/* Fills `model` from the keys of an open file; hr_model_open comes here for GGUF files. model->directory is the path of
 * the file: that is where the weights are. INPUT names the key; UNSUPPORTED architectures are named with the known
 * ones. */
hr_status hri_gguf_model(const hri_gguf *file, hr_model *model, hr_error *error);
hr_status hri_gguf_model_open(const char *path, hr_model *model, hr_error *error);

/* Puts the keys that describe `model`, from general.architecture on; `file_type` is llama.cpp's number for the most
 * common tensor type. UNSUPPORTED names what GGUF cannot say (dynamic RoPE scaling, unscaled gpt2 attention, ...). */
hr_status hri_gguf_put_model(hri_gguf_keys *keys, const hr_model *model, uint32_t file_type, hr_error *error);

/* Whether the RoPE of a family's architecture turns neighbouring pairs. */
bool hri_gguf_turns_neighbours(hr_family family);

/* The word for a family in general.architecture: mistral goes by llama's. */
const char *hri_gguf_architecture(hr_family family);

/* The keys of a file with adapters; llama.cpp multiplies each by alpha / its rank. */
void hri_gguf_put_adapter(hri_gguf_keys *keys, const hr_model *model, float alpha, uint32_t file_type);

/* Reads which modules have adapters in such a file, and of what rank and alpha, into model->lora and model->adapter; no
 * value is read. INPUT names key or tensor: no adapters, those of another architecture, A without B, a tensor of no
 * linear module of a layer, or what hri_gguf_adapter_check refuses; UNSUPPORTED: adapters of embeddings or of the head,
 * and what is no plain LoRA. */
hr_status hri_gguf_adapter_open(const char *path, hr_model *model, hr_error *error);
/* Whether an open file has A and B of each module that model->lora adapts, in the shapes of the model's weights and of a
 * type that is decoded; INPUT names the tensor. Who reads values later asks again: the file may be another by then. */
hr_status hri_gguf_adapter_check(const hri_gguf *file, const hr_model *model, hr_error *error);

/* The vectors of frequency factors that a model's file has besides its parameters: the index-th, with its name and
 * `count` values (at most HR_MAX_ROPE_PAIRS); false when there are no more. */
bool hri_gguf_extra(const hr_model *model, uint32_t index, const char **name, float *values, uint32_t *count);

/* ---- weights ---- */

/* Where a part of a parameter is in a GGUF file, and what to do to its values. */
typedef struct hri_gguf_part {
  char name[64];          /* "blk.3.attn_q.weight" */
  uint32_t rank;          /* 1 or 2 */
  uint64_t rows, columns; /* of the part as we hold it, [out, in]; vectors: [rows], columns 1 */
  uint32_t head_size;     /* 0, or D: rows j and j + D/2 of each head are rows 2j and 2j + 1 in the file */
  float offset;           /* what the file has added to the values */
} hri_gguf_part;

/* Part k of a parameter of the model, or of a module's adapter, which a file of adapters has. */
void hri_gguf_part_of(const hr_model *model, const hri_param_spec *spec, uint32_t part, hri_gguf_part *out);
/* The same of A [rank, in] or B [out, rank] (`b`) of a module's adapter, of which the caller knows rows and columns: beside
 * the name of its weight ".lora_a" or ".lora_b". Rows of B are those of the weight, and in the order of the weight's. */
void hri_gguf_adapter_part(const hr_model *model, hr_module module, int32_t layer, bool b, uint64_t rows,
                           uint64_t columns, hri_gguf_part *out);
/* The hri_dtype of a type of files; HRI_DTYPE_COUNT: it is not decoded. */
uint8_t hri_gguf_dtype(uint32_t type);
/* The hri_dtype of the blocks that the model's GGUF file has a part in; HRI_DTYPE_COUNT: it is in none, or of a type that
 * is not decoded. */
uint8_t hri_gguf_part_type(const hr_model *model, const hri_param_spec *spec, uint32_t part);
/* Takes model->gguf_types from the model's file. */
void hri_gguf_read_types(const hri_gguf *file, hr_model *model);
/* Whether a model is one of a GGUF file; and then, whether the weights of all linear modules can be kept in its blocks:
 * INPUT names a tensor that is missing or of a type that is not decoded, or whose rows are no whole blocks. */
bool hri_gguf_typed(const hr_model *model);
hr_status hri_gguf_keeps(const hr_model *model, hr_error *error);
/* Tensors that a file may hold and that are ignored: frequency factors, a separate head of a tied model. */
bool hri_gguf_ignored(const hr_model *model, const char *name);

/* The tensor of a part: INPUT when it is missing or has another shape; part_find, also when its type is not decoded. */
hr_status hri_gguf_part_locate(const hri_gguf *file, const hri_gguf_part *part, uint32_t *index, hr_error *error);
hr_status hri_gguf_part_find(const hri_gguf *file, const hri_gguf_part *part, uint32_t *index, hr_error *error);
/* Rows [row, row + count) of a part (elements, for vectors) as fp32, in our order, with the offset taken away.
 * `staging` takes
 * the raw blocks, HRI_GGUF_STAGING_LEAST bytes or more; the more, the fewer reads. Allocates nothing; may run in
 * several threads, each with its own staging. */
enum { HRI_GGUF_STAGING_LEAST = 4096 };
hr_status hri_gguf_part_read(const hri_gguf *file, uint32_t index, const hri_gguf_part *part, uint64_t row,
                             uint64_t count, float *to, void *staging, uint64_t staging_bytes, hr_error *error);

#endif
