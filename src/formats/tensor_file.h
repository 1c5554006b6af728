/* What the formats of named tensors have in common: a head, then data in which each tensor has its own bytes.
 * safetensors.c and
 * gguf.c know their heads; opening, reading in pieces, placing, writing in pieces and the end of a file are here, once.
 *
 * A format's struct begins with hri_tensor_file or hri_tensor_writer, which allocate and free it: the two pointers are
 * one. */
#ifndef HRI_FORMATS_TENSOR_FILE_H
#define HRI_FORMATS_TENSOR_FILE_H

#include <stdatomic.h>

#include "base/mem.h"

/* ---- Reading ---- */

typedef struct hri_tensor_file {
  int fd;
  char *path;
  uint64_t file_bytes, data_begin; /* the format sets data_begin when it has read the head */
} hri_tensor_file;

/* A zeroed struct of `struct_bytes` bytes around an open regular file, which is taken in any case; `path` names it in
 * errors.
 * INPUT when it is no regular file; IO; MEMORY. */
hr_status hri_tensor_file_open(size_t struct_bytes, int fd, const char *path, hri_tensor_file **file, hr_error *error);
/* Closes the file and frees the struct; what the format allocated in it is freed before. */
void hri_tensor_file_close(hri_tensor_file *file);

typedef struct hri_tensor_range {
  const char *name;      /* of the tensor, for errors */
  uint64_t begin, bytes; /* of all of it, in the data */
} hri_tensor_range;

/* Reads `bytes` bytes of a tensor from byte `offset` of it; *at (may be NULL) is where they stand in the file.
 * Allocates nothing;
 * may run in several threads. IO; INPUT when the file has shrunk; INTERNAL when the range leaves the tensor. */
hr_status hri_tensor_file_read(const hri_tensor_file *file, hri_tensor_range tensor, uint64_t offset, uint64_t bytes,
                               void *to, uint64_t *at, hr_error *error);

/* ---- Writing ---- */

typedef struct hri_tensor_place {
  const char *name;         /* the caller's */
  uint64_t begin, bytes;    /* in the data */
  _Atomic uint64_t written; /* bytes so far, by any thread */
} hri_tensor_place;

typedef struct hri_tensor_writer hri_tensor_writer;
/* Sees all bytes of a file with their places, before they are written. May be called by several threads. */
typedef hr_status (*hri_tensor_tap)(hri_tensor_writer *writer, uint64_t at, const void *bytes, uint64_t count,
                                    hr_error *error);

struct hri_tensor_writer {
  int fd; /* -1: none yet */
  char *path;
  hri_tensor_place *places;
  uint32_t count;
  uint64_t data_begin, data_bytes; /* the head's bytes, when it is written; of the data, as far as tensors are placed */
  hri_tensor_tap tap;              /* may be NULL */
};

/* A zeroed struct of `struct_bytes` bytes with room for the places of `count` tensors; no file yet. MEMORY. */
hr_status hri_tensor_writer_create(size_t struct_bytes, const char *path, uint32_t count, hri_tensor_writer **writer,
                                   hr_error *error);
/* Puts the index-th tensor at the end of the data, which is then rounded up to `alignment`. USAGE when it becomes too
 * large. */
hr_status hri_tensor_writer_put(hri_tensor_writer *writer, uint32_t index, const char *name, uint64_t bytes,
                                uint32_t alignment, hr_error *error);
/* Makes the file, which must not be there yet, reserves its bytes, and writes the head. IO. */
hr_status hri_tensor_writer_start(hri_tensor_writer *writer, const void *head, uint64_t bytes, hr_error *error);
uint64_t hri_tensor_writer_file_bytes(const hri_tensor_writer *writer);
/* Writes a piece of the index-th tensor, in any order, each byte once; several threads may write at once. INTERNAL: it
 * leaves the tensor, or the tensor has had its bytes. After an error the writer can only be aborted. */
hr_status hri_tensor_writer_write(hri_tensor_writer *writer, uint32_t index, uint64_t offset, const void *data,
                                  uint64_t bytes, hr_error *error);
/* Whether each tensor got all its bytes; INTERNAL names one that did not. */
hr_status hri_tensor_writer_check(const hri_tensor_writer *writer, hr_error *error);
/* Ends the file: synced and closed, or removed when `so_far` is an error. What is left to do is
 * hri_tensor_writer_abort. */
hr_status hri_tensor_writer_end(hri_tensor_writer *writer, hr_status so_far, hr_error *error);
/* Removes the file unless it was ended, and frees the struct; what the format allocated in it is freed before. */
void hri_tensor_writer_abort(hri_tensor_writer *writer);

#endif
