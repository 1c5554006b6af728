/* The weights of a model: one safetensors file, or shards with an index, as one list of named tensors.
 *
 * Names and index follow huggingface_hub (serialization/_base.py, _torch.py): "model.safetensors", or
 * "model-00001-of-0000N.safetensors" with "model.safetensors.index.json" =
 * {"metadata": {"total_parameters": elements, "total_size": bytes}, "weight_map": {tensor name: file name}}. */
#ifndef HRI_FORMATS_WEIGHTS_H
#define HRI_FORMATS_WEIGHTS_H

#include "formats/safetensors.h"

#define HRI_WEIGHTS_FILE "model.safetensors"
#define HRI_ADAPTER_FILE "adapter_model.safetensors" /* as PEFT names it */
#define HRI_WEIGHTS_INDEX "model.safetensors.index.json"

/* ---- Reading ---- */

typedef struct hri_weights hri_weights;

/* Opens a directory (its model.safetensors, else its index with all shards), a .safetensors file, or an index file.
 * Holds a descriptor per file. INPUT when the directory has neither; when a file is malformed; when a shard's name
 * holds a path, is missing, or lacks a tensor that the index gives it; when a shard has a tensor that the index does
 * not give it. metadata.total_size is not looked at: it is what a writer thought, and headers say what is there. */
hr_status hri_weights_open(const char *path, hri_weights **weights, hr_error *error);
void hri_weights_close(hri_weights *weights); /* NULL is fine */

/* Tensors in rising order of names, and the index of a name or HRI_SAFETENSORS_NONE. begin and end of a tensor are
 * those in its own file. */
uint32_t hri_weights_count(const hri_weights *weights);
const hri_safetensor *hri_weights_get(const hri_weights *weights, uint32_t index);
uint32_t hri_weights_find(const hri_weights *weights, const char *name);
/* The file that holds a tensor, for errors. */
const char *hri_weights_path(const hri_weights *weights, uint32_t index);
uint64_t hri_weights_data_bytes(const hri_weights *weights); /* of all tensors */
/* Files, in the order of their names, the file of a tensor, and a file itself (for its metadata). */
uint32_t hri_weights_file_count(const hri_weights *weights);
uint32_t hri_weights_file_of(const hri_weights *weights, uint32_t index);
const hri_safetensors *hri_weights_file(const hri_weights *weights, uint32_t file);
/* As hri_safetensors_read. */
hr_status hri_weights_read(const hri_weights *weights, uint32_t index, uint64_t offset, uint64_t bytes, void *to,
                           hr_error *error);
/* As hri_safetensors_digest_begin and _end, for all files; the end adds the index too, if there is one, which is read
 * again. */
hr_status hri_weights_digest_begin(hri_weights *weights, hr_error *error);
hr_status hri_weights_digest_end(hri_weights *weights, hri_file_list *files, hr_error *error);

/* ---- Writing ---- */

/* Puts tensors into shards in the order given: a shard is closed when the next tensor would make it larger than
 * `max_shard_bytes`; a tensor that is itself larger gets a shard of its own and leaves the open one open. Fills
 * shard_of[count]; returns the number of shards (1 for no tensors). As huggingface_hub does. USAGE for shapes that
 * cannot be stored. */
hr_status hri_weights_split(const hri_safetensor *tensors, uint32_t count, uint64_t max_shard_bytes, uint32_t *shard_of,
                            uint32_t *shard_count, hr_error *error);

typedef struct hri_weights_writer hri_weights_writer;

/* Starts the weight files of an existing directory that holds none and that nobody reads yet: model.safetensors, or
 * shards if the tensors take more than `max_shard_bytes` (0: never). `tensors` and their names must outlive the writer.
 * Errors as of
 * hri_safetensors_writer_open. */
hr_status hri_weights_writer_open(const char *directory, const hri_safetensor *tensors, uint32_t count,
                                  uint64_t max_shard_bytes, hri_weights_writer **writer, hr_error *error);
/* The same with more said. A zeroed layout is one file with no metadata but its format. */
typedef struct hri_weights_layout {
  uint64_t max_shard_bytes; /* 0: never more than one file */
  const uint32_t
      *shard_of; /* not NULL: the shard of each tensor, 0 to shard_count - 1, none empty; the limit is not looked at */
  uint32_t shard_count;
  const hri_safetensors_pair *metadata; /* of every file; as hri_safetensors_writer_open takes it */
  uint32_t metadata_count;
  const char *name; /* of the one file; NULL: model.safetensors. No shards then */
} hri_weights_layout;
hr_status hri_weights_writer_open_as(const char *directory, const hri_safetensor *tensors, uint32_t count,
                                     const hri_weights_layout *layout, hri_weights_writer **writer, hr_error *error);
/* As hri_safetensors_writer_write, with the index in the list given to open; several threads may write at once. */
hr_status hri_weights_writer_write(hri_weights_writer *writer, uint32_t index, uint64_t offset, const void *data,
                                   uint64_t bytes, hr_error *error);
/* Completes all files, then the index if there are shards, and adds them to `files` (may be NULL) in that order. Frees
 * the writer, also on failure; what is incomplete is then removed, what was completed before is not. Each file is
 * synced; the directory is the caller's to sync and to put in its place. */
hr_status hri_weights_writer_finish(hri_weights_writer *writer, hri_file_list *files, hr_error *error);
void hri_weights_writer_abort(hri_weights_writer *writer); /* removes the files; NULL is fine */

#endif
