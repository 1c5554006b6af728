/* safetensors files: reading with full validation, and writing with bounded memory.
 *
 * Layout: u64 (little endian) header bytes | JSON header | data. The header maps each tensor name to dtype, shape and
 * data_offsets (half open, from the end of the header), and "__metadata__" to an object of strings or null. The data is covered
 * exactly once. Source: huggingface/safetensors, README.md and safetensors/src/tensor.rs.
 *
 * Nothing is mapped: data is read and written in pieces by pread and pwrite, into memory that the caller planned. */
#ifndef HRI_FORMATS_SAFETENSORS_H
#define HRI_FORMATS_SAFETENSORS_H

#include "base/mem.h"
#include "formats/digest.h"
#include "formats/dtype.h"

enum { HRI_SAFETENSORS_MAX_RANK = 8, HRI_SAFETENSORS_MAX_HEADER = 100000000 };
#define HRI_SAFETENSORS_NONE 0xFFFFFFFFu

/* One tensor of a file or to be written. */
typedef struct hri_safetensor {
  const char *name; /* UTF-8; when read: borrowed from the file */
  hri_file_dtype dtype;
  uint32_t rank;
  uint64_t shape[HRI_SAFETENSORS_MAX_RANK];
  uint64_t begin, end; /* bytes in the data; ignored by the writer, which places tensors itself */
} hri_safetensor;

typedef struct hri_safetensors_pair {
  const char *key, *value;
} hri_safetensors_pair;

/* ---- Reading ---- */

typedef struct hri_safetensors hri_safetensors;

/* Opens a regular file and reads and checks its header; the data is not touched. Holds one file descriptor and about
 * the header plus 100 bytes per tensor. INPUT for everything that the format forbids, duplicate names, and more than
 * HRI_SAFETENSORS_MAX_RANK dims; IO; MEMORY. */
hr_status hri_safetensors_open(const char *path, hri_safetensors **file, hr_error *error);
/* The same for an open descriptor, which is taken in any case; `path` names it in errors. */
hr_status hri_safetensors_open_fd(int fd, const char *path, hri_safetensors **file, hr_error *error);
void hri_safetensors_close(hri_safetensors *file); /* NULL is fine */

const char *hri_safetensors_path(const hri_safetensors *file);
uint64_t hri_safetensors_data_bytes(const hri_safetensors *file);
/* Tensors in the order of the header, and the index of a name or HRI_SAFETENSORS_NONE. */
uint32_t hri_safetensors_count(const hri_safetensors *file);
const hri_safetensor *hri_safetensors_get(const hri_safetensors *file, uint32_t index);
uint32_t hri_safetensors_find(const hri_safetensors *file, const char *name);
/* Metadata pairs in the order of the header, and the value of a key or NULL. */
uint32_t hri_safetensors_metadata_count(const hri_safetensors *file);
hri_safetensors_pair hri_safetensors_metadata_get(const hri_safetensors *file, uint32_t index);
const char *hri_safetensors_metadata_find(const hri_safetensors *file, const char *key);

/* Reads `bytes` bytes of a tensor from byte `offset` of it. Allocates nothing, but for a digest; may run in several
 * threads. IO;
 * INPUT when the file has shrunk; INTERNAL when the range leaves the tensor. */
hr_status hri_safetensors_read(const hri_safetensors *file, uint32_t index, uint64_t offset, uint64_t bytes, void *to,
                               hr_error *error);

/* From now on the digest of the whole file is taken as tensors are read, each byte once; the header is read again for
 * it.
 * IO; MEMORY. */
hr_status hri_safetensors_digest_begin(hri_safetensors *file, hr_error *error);
/* Adds the file to a list, after its tensors were read. Those that nobody asked for are read here; what is
 * read later is read for no digest. INTERNAL when one was read in part or twice, or no digest was begun; IO; MEMORY. */
hr_status hri_safetensors_digest_end(hri_safetensors *file, hri_file_list *files, hr_error *error);

/* ---- Writing ---- */

typedef struct hri_safetensors_writer hri_safetensors_writer;

/* Starts `path`, which must not be there yet, with its header, tensors placed as the reference writer places them: by
 * dtype (falling), then name. The metadata begins with format = pt unless the pairs give "format" themselves; with that
 * one key the file is byte-identical to the reference's. Space is reserved, so that a full disk is told here where the
 * file system can.
 * The file grows under its own name: write into a directory that takes its place when all is in it.
 * `tensors` and their names must outlive the writer. USAGE for duplicate or invalid names and shapes; IO; MEMORY. */
hr_status hri_safetensors_writer_open(const char *path, const hri_safetensor *tensors, uint32_t count,
                                      const hri_safetensors_pair *metadata, uint32_t metadata_count,
                                      hri_safetensors_writer **writer, hr_error *error);
/* Bytes of the whole file. */
uint64_t hri_safetensors_writer_file_bytes(const hri_safetensors_writer *writer);
/* Writes a piece of the index-th tensor of the list given to open, in any order, each byte once; several threads may
 * write at once. Allocates nothing but room for the digest, which is taken in the same pass; after an error the writer
 * can only be aborted. */
hr_status hri_safetensors_writer_write(hri_safetensors_writer *writer, uint32_t index, uint64_t offset,
                                       const void *data, uint64_t bytes, hr_error *error);
/* Checks that each tensor got all its bytes, adds name, length and digest to `files` (may be NULL), syncs the file
 * once, closes it, and frees the writer, also on failure; the file is then removed. The directory is the caller's to
 * sync. */
hr_status hri_safetensors_writer_finish(hri_safetensors_writer *writer, hri_file_list *files, hr_error *error);
/* Removes the file and frees the writer. NULL is fine. */
void hri_safetensors_writer_abort(hri_safetensors_writer *writer);

/* A shape for people: "[4, 3]", into `out`, which is returned. */
const char *hri_shape_text(uint32_t rank, const uint64_t *shape, char out[192]);

#endif
