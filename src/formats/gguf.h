/* GGUF files: reading with full validation, and writing with bounded memory.
 *
 * Layout: "GGUF" | u32 version | u64 tensors | u64 keys | keys with values | tensor infos | blanks up to the alignment
 * | data, each tensor at a multiple of the alignment. All little endian. Source: ggml-org/ggml, docs/gguf.md; what is
 * refused follows ggml-org/llama.cpp, ggml/src/gguf.cpp and tests/test-gguf.cpp.
 *
 * Nothing is mapped. The head (keys and tensor infos; a vocabulary makes it some megabytes) is read into memory once
 * and values are handed out from there; tensor data is read in pieces by pread into memory that the caller planned. */
#ifndef HRI_FORMATS_GGUF_H
#define HRI_FORMATS_GGUF_H

#include "base/text.h"
#include "formats/quant.h"

enum { HRI_GGUF_MAX_RANK = 4, HRI_GGUF_MAX_HEAD = 1 << 29, HRI_GGUF_ALIGNMENT = 32 };
#define HRI_GGUF_NONE 0xFFFFFFFFu

typedef enum hri_gguf_type {
  HRI_GGUF_U8 = 0,
  HRI_GGUF_I8,
  HRI_GGUF_U16,
  HRI_GGUF_I16,
  HRI_GGUF_U32,
  HRI_GGUF_I32,
  HRI_GGUF_F32,
  HRI_GGUF_BOOL,
  HRI_GGUF_STRING,
  HRI_GGUF_ARRAY,
  HRI_GGUF_U64,
  HRI_GGUF_I64,
  HRI_GGUF_F64,
  HRI_GGUF_TYPE_COUNT
} hri_gguf_type;

/* One tensor. dims are as stored, the fastest first: a matrix of `rows` rows is {columns, rows}. */
typedef struct hri_gguf_tensor {
  const char *name;                 /* less than 64 bytes, NUL-terminated; when read: borrowed from the file */
  uint32_t type;                    /* hri_ggml_type, or another one that hri_ggml_known */
  uint32_t rank;                    /* 0..4 */
  uint64_t dims[HRI_GGUF_MAX_RANK]; /* 1 beyond the rank */
  uint64_t elements, bytes;
  uint64_t offset; /* of the data section; the writer ignores elements, bytes and offset */
} hri_gguf_tensor;

/* ---- Reading ---- */

typedef struct hri_gguf hri_gguf;

/* Opens a regular file, reads and checks its head; the data is not touched. Holds one file descriptor, the head, and
 * about 150 bytes per tensor. INPUT for everything that the format forbids: other magic, versions but 2 and 3, big
 * endian, counts and lengths beyond the file, nested arrays, duplicate or empty keys, duplicate tensors, unknown types,
 * rows of part blocks, shapes that overflow, offsets other than the next multiple of the alignment, data that is cut
 * short; IO; MEMORY. */
hr_status hri_gguf_open(const char *path, hri_gguf **file, hr_error *error);
/* The same for an open descriptor, which is taken in any case; `path` names it in errors. */
hr_status hri_gguf_open_fd(int fd, const char *path, hri_gguf **file, hr_error *error);
void hri_gguf_close(hri_gguf *file); /* NULL is fine */
/* True when `path` is a regular file that begins with "GGUF". */
bool hri_gguf_is(const char *path);

const char *hri_gguf_path(const hri_gguf *file);
uint32_t hri_gguf_version(const hri_gguf *file);
uint32_t hri_gguf_alignment(const hri_gguf *file);

/* Values by key. `get` fails when the key is missing, `opt` leaves *value as it is then. INPUT when the value has
 * another type or lies outside [min, max]; the message names file and key, what is wanted and what was found. An
 * integer of any width is an integer; a number is an integer or a float. Strings are borrowed from the file,
 * NUL-terminated, *bytes (may be
 * NULL) without the NUL; they may be any bytes. */
bool hri_gguf_has(const hri_gguf *file, const char *key);
/* Whether one of these functions was ever asked for the index-th key: what nobody asked for is not understood. Questions
 * are noted in the file, so threads do not ask at the same time. */
bool hri_gguf_key_asked(const hri_gguf *file, uint32_t index);
hr_status hri_gguf_get_u64(const hri_gguf *file, const char *key, uint64_t min, uint64_t max, uint64_t *value,
                           hr_error *error);
hr_status hri_gguf_get_i64(const hri_gguf *file, const char *key, int64_t min, int64_t max, int64_t *value,
                           hr_error *error);
hr_status hri_gguf_get_double(const hri_gguf *file, const char *key, double *value, hr_error *error);
hr_status hri_gguf_get_bool(const hri_gguf *file, const char *key, bool *value, hr_error *error);
hr_status hri_gguf_get_string(const hri_gguf *file, const char *key, const char **value, uint64_t *bytes,
                              hr_error *error);
hr_status hri_gguf_opt_u64(const hri_gguf *file, const char *key, uint64_t min, uint64_t max, uint64_t *value,
                           hr_error *error);
hr_status hri_gguf_opt_i64(const hri_gguf *file, const char *key, int64_t min, int64_t max, int64_t *value,
                           hr_error *error);
hr_status hri_gguf_opt_double(const hri_gguf *file, const char *key, double *value, hr_error *error);
hr_status hri_gguf_opt_bool(const hri_gguf *file, const char *key, bool *value, hr_error *error);
hr_status hri_gguf_opt_string(const hri_gguf *file, const char *key, const char **value, uint64_t *bytes,
                              hr_error *error);

/* Whether the file has a tokenizer: tokenizer.ggml.model names one, and is not "none". */
bool hri_gguf_has_tokenizer(const hri_gguf *file);

/* An array of strings, walked from front to back (a copy of the struct is a place to come back to):
 *
 *   HRI_TRY(hri_gguf_get_strings(file, "tokenizer.ggml.tokens", &tokens, error));
 *   while ((text = hri_gguf_next(&tokens, &bytes))) ...
 */
typedef struct hri_gguf_strings {
  uint64_t count, left; /* elements in all, and not yet taken */
  const char *next;
} hri_gguf_strings;
hr_status hri_gguf_get_strings(const hri_gguf *file, const char *key, hri_gguf_strings *list, hr_error *error);
/* The next string, NUL-terminated, borrowed from the file; NULL when there is none. `bytes` may be NULL. */
const char *hri_gguf_next(hri_gguf_strings *list, uint64_t *bytes);

/* An array of integers, booleans or floats, by index below count. */
typedef struct hri_gguf_numbers {
  uint64_t count;
  hri_gguf_type type;
  const void *data; /* of that type, unaligned */
} hri_gguf_numbers;
hr_status hri_gguf_get_numbers(const hri_gguf *file, const char *key, hri_gguf_numbers *list, hr_error *error);
int64_t hri_gguf_integer_at(const hri_gguf_numbers *list,
                            uint64_t index); /* floats are cut; u64 beyond int64 is its maximum */
double hri_gguf_number_at(const hri_gguf_numbers *list, uint64_t index);

/* All keys in the order of the file, for those who carry them over or print them. */
uint32_t hri_gguf_key_count(const hri_gguf *file);
const char *hri_gguf_key(const hri_gguf *file, uint32_t index);
hri_gguf_type hri_gguf_key_type(const hri_gguf *file, uint32_t index, hri_gguf_type *element,
                                uint64_t *count); /* of arrays */

/* Tensors in the order of the file, and the index of a name or HRI_GGUF_NONE. */
uint32_t hri_gguf_count(const hri_gguf *file);
const hri_gguf_tensor *hri_gguf_tensor_get(const hri_gguf *file, uint32_t index);
uint32_t hri_gguf_find(const hri_gguf *file, const char *name);
/* Reads `bytes` bytes of a tensor from byte `offset` of it. Allocates nothing; may run in several threads. IO; INPUT
 * when the file has shrunk; INTERNAL when the range leaves the tensor. */
hr_status hri_gguf_read(const hri_gguf *file, uint32_t index, uint64_t offset, uint64_t bytes, void *to,
                        hr_error *error);

/* ---- Writing ---- */

/* The keys of a file to be, collected before it is opened. A zeroed struct is empty. Memory that is refused shows in
 * `text.failed` and is reported by the writer. The caller gives each key once. */
typedef struct hri_gguf_keys {
  hri_text text; /* as in the file */
  uint64_t count;
} hri_gguf_keys;
void hri_gguf_keys_deinit(hri_gguf_keys *keys);
void hri_gguf_put_u32(hri_gguf_keys *keys, const char *key, uint32_t value);
void hri_gguf_put_f32(hri_gguf_keys *keys, const char *key, double value);
void hri_gguf_put_bool(hri_gguf_keys *keys, const char *key, bool value);
void hri_gguf_put_string(hri_gguf_keys *keys, const char *key, const char *value, uint64_t bytes);
/* An array: its begin, then exactly `count` elements of that type. */
void hri_gguf_put_array(hri_gguf_keys *keys, const char *key, hri_gguf_type element, uint64_t count);
void hri_gguf_add_bytes(hri_gguf_keys *keys, const void *bytes, uint64_t count);
void hri_gguf_add_u32(hri_gguf_keys *keys, uint32_t value);
void hri_gguf_add_string(hri_gguf_keys *keys, const char *value, uint64_t bytes);
void hri_gguf_add_i32(hri_gguf_keys *keys, int32_t value); /* I32 and U32 */
void hri_gguf_add_f32(hri_gguf_keys *keys, float value);

typedef struct hri_gguf_writer hri_gguf_writer;

/* Starts `path`, which must not be there yet (version 3, alignment 32), with its head; tensors lie in the order given.
 * The file
 * grows under that name: give it one that nobody reads, and move it when it is finished. `tensors` and their names must
 * outlive the writer, `keys` need not. Space is looked for and reserved, so that a full disk is told here where the
 * file system can. USAGE for duplicate, empty or long names and for shapes that cannot be stored; IO; MEMORY. */
hr_status hri_gguf_writer_open(const char *path, const hri_gguf_keys *keys, const hri_gguf_tensor *tensors,
                               uint32_t count, hri_gguf_writer **writer, hr_error *error);
/* Writes a piece of the index-th tensor, in any order, each byte once. Allocates nothing. */
hr_status hri_gguf_writer_write(hri_gguf_writer *writer, uint32_t index, uint64_t offset, const void *data,
                                uint64_t bytes, hr_error *error);
/* Checks that each tensor got all its bytes, syncs the file once, closes it, and frees the writer, also on failure; the
 * file is then removed. Its directory is the caller's to sync. */
hr_status hri_gguf_writer_finish(hri_gguf_writer *writer, hr_error *error);
void hri_gguf_writer_abort(hri_gguf_writer *writer); /* removes the file; NULL is fine */

#endif
