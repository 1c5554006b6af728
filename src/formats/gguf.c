/* Reading GGUF.
 *
 * The length of the head stands nowhere: it is read in growing pieces, as far as the parse asks for, so that what is
 * held is at most twice what was found to be well formed, whatever the counts in a hostile file say. Because the buffer
 * moves while it grows, positions are kept until the head is complete.
 *
 * Strings have their u64 length in front and nothing behind. They are turned in place into NUL-terminated ones, the
 * length making the room: single ones (keys, names, values) move to the front, lengths going into the entry; those of
 * arrays move by four bytes, behind a u32 length. */
#include "formats/gguf.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "formats/tensor_file.h"
#include "formats/order.h"

typedef unsigned long long ull; /* for printing */

typedef struct key_value {
  uint64_t key_at, at; /* positions in the head: of the key and of the value's first byte */
  uint64_t count;      /* elements of an array, bytes of a string, else 1 */
  hri_gguf_type type, element;
} key_value;

struct hri_gguf {
  hri_tensor_file base; /* first */
  char *head;
  uint64_t head_bytes, capacity, at; /* read so far, allocated, parsed so far */
  uint32_t version, alignment;
  HRI_ARRAY(key_value) keys;
  HRI_ARRAY(hri_gguf_tensor) tensors;
  uint64_t *name_at; /* until the head is complete */
  uint32_t *by_key, *by_name;
  bool *asked; /* by key: somebody looked for it */
};

static const struct {
  char name[8];
  uint8_t bytes; /* 0: no fixed size */
} types[HRI_GGUF_TYPE_COUNT] = {
    [HRI_GGUF_U8] = {"u8", 1},       [HRI_GGUF_I8] = {"i8", 1},     [HRI_GGUF_U16] = {"u16", 2},
    [HRI_GGUF_I16] = {"i16", 2},     [HRI_GGUF_U32] = {"u32", 4},   [HRI_GGUF_I32] = {"i32", 4},
    [HRI_GGUF_F32] = {"f32", 4},     [HRI_GGUF_BOOL] = {"bool", 1}, [HRI_GGUF_STRING] = {"string", 0},
    [HRI_GGUF_ARRAY] = {"array", 0}, [HRI_GGUF_U64] = {"u64", 8},   [HRI_GGUF_I64] = {"i64", 8},
    [HRI_GGUF_F64] = {"f64", 8},
};

static hr_status damaged(hr_error *error, hr_status code) {
  return hri_hint(error, code, "the file is damaged or not a GGUF file; fetch it anew");
}

/* ---- the head, byte by byte ---- */

/* Makes `bytes` bytes from the current position readable; `what` names them in errors. */
static hr_status need(hri_gguf *file, uint64_t bytes, const char *what, hr_error *error) {
  uint64_t end, grown, limit = file->base.file_bytes < HRI_GGUF_MAX_HEAD ? file->base.file_bytes : HRI_GGUF_MAX_HEAD;
  char *moved;
  if (bytes > file->base.file_bytes - file->at)
    return damaged(error,
                   hri_fail(error, HR_ERROR_INPUT,
                            "%s is cut short: %s at byte %llu needs %llu bytes, the file has %llu more",
                            file->base.path, what, (ull)file->at, (ull)bytes, (ull)(file->base.file_bytes - file->at)));
  end = file->at + bytes;
  if (end <= file->head_bytes) return HR_OK;
  if (end > limit)
    return damaged(error, hri_fail(error, HR_ERROR_INPUT, "%s: keys and tensor infos take more than %d bytes",
                                   file->base.path, HRI_GGUF_MAX_HEAD));
  if (end > file->capacity) {
    grown = file->capacity * 2 > end ? file->capacity * 2 : end;
    if (grown < 1 << 16) grown = 1 << 16;
    if (grown > limit) grown = limit;
    moved = hri_realloc(file->head, grown);
    if (!moved) return hri_fail_memory(error, grown, file->base.path);
    file->head = moved;
    file->capacity = grown;
  }
  HRI_TRY(hri_file_pread(file->base.fd, file->base.path, file->head + file->head_bytes,
                         file->capacity - file->head_bytes, file->head_bytes, error));
  file->head_bytes = file->capacity;
  return HR_OK;
}

static hr_status take(hri_gguf *file, void *to, uint64_t bytes, const char *what, hr_error *error) {
  HRI_TRY(need(file, bytes, what, error));
  memcpy(to, file->head + file->at, (size_t)bytes);
  file->at += bytes;
  return HR_OK;
}

/* A string on its own: afterwards it stands NUL-terminated at *at. */
static hr_status take_string(hri_gguf *file, uint64_t *at, uint64_t *bytes, const char *what, hr_error *error) {
  uint64_t length, begin = file->at;
  HRI_TRY(take(file, &length, sizeof length, what, error));
  HRI_TRY(need(file, length, what, error));
  memmove(file->head + begin, file->head + file->at, (size_t)length);
  file->head[begin + length] = 0;
  file->at += length;
  *at = begin;
  *bytes = length;
  return HR_OK;
}

/* A string of an array: u32 length, bytes, four times NUL. */
static hr_status take_element(hri_gguf *file, const char *what, hr_error *error) {
  uint64_t length, begin = file->at;
  uint32_t narrow;
  HRI_TRY(take(file, &length, sizeof length, what, error));
  HRI_TRY(need(file, length, what, error));
  narrow = (uint32_t)length; /* at most HRI_GGUF_MAX_HEAD */
  memcpy(file->head + begin, &narrow, sizeof narrow);
  memmove(file->head + begin + 4, file->head + file->at, (size_t)length);
  memset(file->head + begin + 4 + length, 0, 4);
  file->at += length;
  return HR_OK;
}

static hr_status bad_type(const hri_gguf *file, const key_value *kv, uint32_t type, hr_error *error) {
  return damaged(
      error,
      hri_fail(error, HR_ERROR_INPUT,
               "%s: key '%.80s' has a value of type %u%s; a number, a bool, a string or an array of those is possible",
               file->base.path, file->head + kv->key_at, type, type == HRI_GGUF_ARRAY ? " (an array of arrays)" : ""));
}

static hr_status take_array(hri_gguf *file, key_value *kv, hr_error *error) {
  uint32_t element;
  uint64_t bytes;
  HRI_TRY(take(file, &element, sizeof element, "the element type of an array", error));
  if (element >= HRI_GGUF_TYPE_COUNT || element == HRI_GGUF_ARRAY) return bad_type(file, kv, element, error);
  HRI_TRY(take(file, &kv->count, sizeof kv->count, "the length of an array", error));
  kv->element = (hri_gguf_type)element;
  kv->at = file->at;
  if (!hri_mul(kv->count, element == HRI_GGUF_STRING ? 8 : types[element].bytes, &bytes) ||
      bytes > file->base.file_bytes)
    return damaged(error, hri_fail(error, HR_ERROR_INPUT,
                                   "%s: key '%.80s': an array of %llu elements of type %s does not fit the file",
                                   file->base.path, file->head + kv->key_at, (ull)kv->count, types[element].name));
  if (element != HRI_GGUF_STRING) {
    HRI_TRY(need(file, bytes, "an array", error));
    file->at += bytes;
    return HR_OK;
  }
  for (uint64_t i = 0; i < kv->count; i++) HRI_TRY(take_element(file, "a string", error));
  return HR_OK;
}

static hr_status take_key_value(hri_gguf *file, key_value *kv, hr_error *error) {
  uint32_t type;
  uint64_t length;
  HRI_TRY(take_string(file, &kv->key_at, &length, "a key", error));
  if (length == 0 || strlen(file->head + kv->key_at) != length)
    return damaged(error, hri_fail(error, HR_ERROR_INPUT, "%s: the key before byte %llu is empty or holds a NUL",
                                   file->base.path, (ull)file->at));
  HRI_TRY(take(file, &type, sizeof type, "the type of a value", error));
  if (type >= HRI_GGUF_TYPE_COUNT) return bad_type(file, kv, type, error);
  kv->type = kv->element = (hri_gguf_type)type;
  kv->count = 1;
  kv->at = file->at;
  if (type == HRI_GGUF_ARRAY) return take_array(file, kv, error);
  if (type == HRI_GGUF_STRING) return take_string(file, &kv->at, &kv->count, "a string", error);
  HRI_TRY(need(file, types[type].bytes, "a value", error));
  file->at += types[type].bytes;
  return HR_OK;
}

static hr_status bad_tensor(const hri_gguf *file, const char *name, hr_error *error, const char *what) {
  return damaged(error, hri_fail(error, HR_ERROR_INPUT, "%s: tensor '%.80s': %s", file->base.path, name, what));
}

/* Shape and type against each other; fills elements and bytes. */
static hr_status check_tensor(const hri_gguf *file, const char *name, hri_gguf_tensor *tensor, hr_error *error) {
  uint64_t elements = 1;
  if (!hri_ggml_known(tensor->type))
    return damaged(error, hri_fail(error, HR_ERROR_INPUT, "%s: tensor '%.80s' has the unknown type %u", file->base.path,
                                   name, tensor->type));
  for (uint32_t i = 0; i < HRI_GGUF_MAX_RANK; i++)
    if (tensor->dims[i] > INT64_MAX || !hri_mul(elements, tensor->dims[i], &elements) || elements > INT64_MAX)
      return bad_tensor(file, name, error, "the shape has more elements than 63 bits can count");
  if (tensor->dims[0] % hri_ggml_block(tensor->type) != 0)
    return damaged(error,
                   hri_fail(error, HR_ERROR_INPUT,
                            "%s: tensor '%.80s': a row of %llu elements is no multiple of the %u in a block of %s",
                            file->base.path, name, (ull)tensor->dims[0], hri_ggml_block(tensor->type),
                            hri_ggml_name(tensor->type)));
  if (!hri_ggml_bytes(tensor->type, elements, &tensor->bytes))
    return bad_tensor(file, name, error, "it has more bytes than 64 bits can count");
  tensor->elements = elements;
  return HR_OK;
}

static hr_status take_tensor(hri_gguf *file, hri_gguf_tensor *tensor, uint64_t *name_at, hr_error *error) {
  uint64_t length;
  const char *name;
  HRI_TRY(take_string(file, name_at, &length, "the name of a tensor", error));
  name = file->head + *name_at;
  if (length == 0 || length >= 64 || strlen(name) != length)
    return damaged(error, hri_fail(error, HR_ERROR_INPUT,
                                   "%s: the name of tensor %zu has %llu bytes or a NUL; 1 to 63 are possible",
                                   file->base.path, file->tensors.count, (ull)length));
  HRI_TRY(take(file, &tensor->rank, sizeof tensor->rank, "a tensor's rank", error));
  name = file->head + *name_at;
  if (tensor->rank > HRI_GGUF_MAX_RANK)
    return damaged(error,
                   hri_fail(error, HR_ERROR_INPUT, "%s: tensor '%.80s' has %u dimensions; at most %d are possible",
                            file->base.path, name, tensor->rank, HRI_GGUF_MAX_RANK));
  for (uint32_t i = 0; i < HRI_GGUF_MAX_RANK; i++) tensor->dims[i] = 1;
  for (uint32_t i = 0; i < tensor->rank; i++)
    HRI_TRY(take(file, &tensor->dims[i], sizeof tensor->dims[i], "a tensor's shape", error));
  HRI_TRY(take(file, &tensor->type, sizeof tensor->type, "a tensor's type", error));
  HRI_TRY(take(file, &tensor->offset, sizeof tensor->offset, "a tensor's offset", error));
  return check_tensor(file, file->head + *name_at, tensor, error);
}

/* ---- the parts of the head ---- */

static hr_status take_version(hri_gguf *file, hr_error *error) {
  char magic[4];
  HRI_TRY(take(file, magic, sizeof magic, "the magic", error));
  if (memcmp(magic, "GGUF", 4) != 0)
    return damaged(error, hri_fail(error, HR_ERROR_INPUT, "%s does not begin with 'GGUF'", file->base.path));
  HRI_TRY(take(file, &file->version, sizeof file->version, "the version", error));
  if (file->version == 2 || file->version == 3) return HR_OK;
  if (file->version != 0 && (file->version & 0xFFFF) == 0) {
    hri_fail(error, HR_ERROR_INPUT, "%s is a big-endian GGUF file", file->base.path);
    return hri_hint(error, HR_ERROR_INPUT, "convert it to little endian with gguf_convert_endian.py of llama.cpp");
  }
  hri_fail(error, HR_ERROR_INPUT, "%s has version %u of GGUF; versions 2 and 3 are read", file->base.path,
           file->version);
  return hri_hint(error, HR_ERROR_INPUT,
                  file->version < 2 ? "convert the model anew with a current llama.cpp"
                                    : "a newer Headroom may read it");
}

/* The least bytes that a key (length, one character, type, one byte) and a tensor info take bound the counts. */
static hr_status take_counts(hri_gguf *file, uint64_t *tensors, uint64_t *keys, hr_error *error) {
  uint64_t left;
  HRI_TRY(take(file, tensors, sizeof *tensors, "the number of tensors", error));
  HRI_TRY(take(file, keys, sizeof *keys, "the number of keys", error));
  left = file->base.file_bytes - file->at;
  if (*tensors > left / 25 || *keys > left / 14)
    return damaged(error, hri_fail(error, HR_ERROR_INPUT,
                                   "%s announces %llu tensors and %llu keys, more than its %llu bytes can hold",
                                   file->base.path, (ull)*tensors, (ull)*keys, (ull)file->base.file_bytes));
  return HR_OK;
}

static hr_status take_all(hri_gguf *file, hr_error *error) {
  uint64_t tensors, keys;
  HRI_TRY(take_version(file, error));
  HRI_TRY(take_counts(file, &tensors, &keys, error));
  for (uint64_t i = 0; i < keys; i++) {
    key_value kv = {0};
    HRI_TRY(take_key_value(file, &kv, error));
    if (!hri_array_push(&file->keys, kv)) return hri_fail_memory(error, keys * sizeof kv, file->base.path);
  }
  file->name_at = hri_alloc_zero(tensors, sizeof *file->name_at);
  if (!file->name_at) return hri_fail_memory(error, tensors * sizeof *file->name_at, file->base.path);
  for (uint64_t i = 0; i < tensors; i++) {
    hri_gguf_tensor tensor = {0};
    HRI_TRY(take_tensor(file, &tensor, &file->name_at[i], error));
    if (!hri_array_push(&file->tensors, tensor))
      return hri_fail_memory(error, tensors * sizeof tensor, file->base.path);
  }
  return HR_OK;
}

/* What was read beyond the head goes back; positions become pointers. */
static void settle(hri_gguf *file) {
  char *kept = hri_realloc(file->head, file->at);
  if (kept) file->head = kept;
  for (size_t i = 0; i < file->tensors.count; i++) file->tensors.items[i].name = file->head + file->name_at[i];
  hri_free(file->name_at);
  file->name_at = NULL;
}

/* ---- the checks over all entries ---- */

static const char *tensor_name(const void *items, uint32_t index) {
  return ((const hri_gguf_tensor *)items)[index].name;
}
static const char *key_name(const void *items, uint32_t index) { return hri_gguf_key(items, index); }

static hr_status check_names(hri_gguf *file, hr_error *error) {
  uint32_t twice;
  file->asked = hri_alloc_zero(file->keys.count + 1, sizeof *file->asked);
  if (!file->asked) return hri_fail_memory(error, file->keys.count, file->base.path);
  HRI_TRY(hri_order_names(file, (uint32_t)file->keys.count, key_name, &file->by_key, &twice, error));
  if (twice != HRI_ORDER_NONE)
    return damaged(error, hri_fail(error, HR_ERROR_INPUT, "%s: the key '%.80s' stands there twice", file->base.path,
                                   hri_gguf_key(file, twice)));
  HRI_TRY(
      hri_order_names(file->tensors.items, (uint32_t)file->tensors.count, tensor_name, &file->by_name, &twice, error));
  if (twice != HRI_ORDER_NONE)
    return bad_tensor(file, file->tensors.items[twice].name, error, "the name stands there twice");
  return HR_OK;
}

static hr_status take_alignment(hri_gguf *file, hr_error *error) {
  uint64_t value = HRI_GGUF_ALIGNMENT;
  hri_gguf_type type;
  for (uint32_t i = 0; i < file->keys.count; i++) {
    if (strcmp(hri_gguf_key(file, i), "general.alignment") != 0) continue;
    type = file->keys.items[i].type;
    if (type != HRI_GGUF_U32)
      return damaged(error, hri_fail(error, HR_ERROR_INPUT, "%s: general.alignment has type %s; it must be u32",
                                     file->base.path, types[type].name));
  }
  HRI_TRY(hri_gguf_opt_u64(file, "general.alignment", 1, 1u << 31, &value, error));
  if ((value & (value - 1)) != 0)
    return damaged(error, hri_fail(error, HR_ERROR_INPUT, "%s: general.alignment is %llu; it must be a power of two",
                                   file->base.path, (ull)value));
  file->alignment = (uint32_t)value;
  return HR_OK;
}

/* Each tensor begins where the one before it ends, rounded up; what stands behind the last one is no matter. */
static hr_status check_places(hri_gguf *file, hr_error *error) {
  uint64_t next = 0, room;
  file->base.data_begin = hri_round_up(file->at, file->alignment);
  room = file->base.data_begin < file->base.file_bytes ? file->base.file_bytes - file->base.data_begin : 0;
  for (size_t i = 0; i < file->tensors.count; i++) {
    const hri_gguf_tensor *tensor = &file->tensors.items[i];
    if (tensor->offset != next)
      return damaged(
          error, hri_fail(error, HR_ERROR_INPUT,
                          "%s: tensor '%s' has offset %llu; the tensors before it, at an alignment of %u, ask for %llu",
                          file->base.path, tensor->name, (ull)tensor->offset, file->alignment, (ull)next));
    if (next > room || tensor->bytes > room - next)
      return damaged(error, hri_fail(error, HR_ERROR_INPUT,
                                     "%s is cut short: tensor '%s' needs data bytes %llu+%llu, the file has %llu",
                                     file->base.path, tensor->name, (ull)next, (ull)tensor->bytes, (ull)room));
    next = hri_round_up(next + tensor->bytes, file->alignment);
  }
  return HR_OK;
}

/* ---- opening ---- */

static hr_status read_head(hri_gguf *file, hr_error *error) {
  HRI_TRY(take_all(file, error));
  settle(file);
  HRI_TRY(check_names(file, error));
  HRI_TRY(take_alignment(file, error));
  return check_places(file, error);
}

hr_status hri_gguf_open_fd(int fd, const char *path, hri_gguf **opened, hr_error *error) {
  hri_tensor_file *base;
  hri_gguf *file;
  hr_status status;
  HRI_TRY(hri_tensor_file_open(sizeof *file, fd, path, &base, error));
  file = (hri_gguf *)base;
  HRI_TRY_OUT(read_head(file, error));
  *opened = file;
  return HR_OK;
out:
  hri_gguf_close(file);
  return status;
}

hr_status hri_gguf_open(const char *path, hri_gguf **opened, hr_error *error) {
  int fd;
  HRI_TRY(hri_file_open_regular(path, &fd, NULL, error));
  return hri_gguf_open_fd(fd, path, opened, error);
}

void hri_gguf_close(hri_gguf *file) {
  if (!file) return;
  hri_array_free(&file->keys);
  hri_array_free(&file->tensors);
  hri_free(file->name_at);
  hri_free(file->by_key);
  hri_free(file->by_name);
  hri_free(file->asked);
  hri_free(file->head);
  hri_tensor_file_close(&file->base);
}

bool hri_gguf_is(const char *path) {
  char magic[4] = {0};
  bool is;
  int fd;
  if (hri_file_open_regular(path, &fd, NULL, NULL) != HR_OK) return false;
  is = hri_file_pread(fd, path, magic, 4, 0, NULL) == HR_OK && memcmp(magic, "GGUF", 4) == 0;
  close(fd);
  return is;
}

/* ---- asking ---- */

const char *hri_gguf_path(const hri_gguf *file) { return file->base.path; }
uint32_t hri_gguf_version(const hri_gguf *file) { return file->version; }
uint32_t hri_gguf_alignment(const hri_gguf *file) { return file->alignment; }
uint32_t hri_gguf_key_count(const hri_gguf *file) { return (uint32_t)file->keys.count; }
const char *hri_gguf_key(const hri_gguf *file, uint32_t index) { return file->head + file->keys.items[index].key_at; }

hri_gguf_type hri_gguf_key_type(const hri_gguf *file, uint32_t index, hri_gguf_type *element, uint64_t *count) {
  const key_value *kv = &file->keys.items[index];
  *element = kv->element;
  *count = kv->type == HRI_GGUF_ARRAY ? kv->count : 1;
  return kv->type;
}

static const key_value *find_key(const hri_gguf *file, const char *key) {
  uint32_t at = hri_order_find(file, (uint32_t)file->keys.count, key_name, file->by_key, key);
  if (at == HRI_ORDER_NONE) return NULL;
  file->asked[at] = true;
  return &file->keys.items[at];
}

bool hri_gguf_key_asked(const hri_gguf *file, uint32_t index) { return file->asked[index]; }

bool hri_gguf_has(const hri_gguf *file, const char *key) { return find_key(file, key) != NULL; }

static hr_status missing(const hri_gguf *file, const char *key, hr_error *error) {
  hri_fail(error, HR_ERROR_INPUT, "%s: the key '%s' is missing", file->base.path, key);
  return hri_hint(error, HR_ERROR_INPUT, "the file is incomplete or of another kind; convert the model anew");
}

static hr_status wrong_type(const hri_gguf *file, const char *key, const key_value *kv, const char *wanted,
                            hr_error *error) {
  bool array = kv->type == HRI_GGUF_ARRAY;
  hri_fail(error, HR_ERROR_INPUT, "%s: key '%s' must be %s, found %s%s", file->base.path, key, wanted,
           array ? "an array of " : "", types[kv->element].name);
  return hri_hint(error, HR_ERROR_INPUT, "convert the model anew");
}

static double double_at(hri_gguf_type type, const char *at) {
  hri_gguf_numbers one = {1, type, at};
  return hri_gguf_number_at(&one, 0);
}

/* An integer as sign and magnitude, so that u64 and i64 share the code; false when the value is none. */
static bool integer_of(const hri_gguf *file, const key_value *kv, bool *negative, uint64_t *magnitude) {
  hri_gguf_numbers one = {1, kv->type, file->head + kv->at};
  int64_t value;
  if (types[kv->type].bytes == 0 || kv->type == HRI_GGUF_BOOL || kv->type == HRI_GGUF_F32 || kv->type == HRI_GGUF_F64)
    return false;
  *negative = false;
  if (kv->type == HRI_GGUF_U64) {
    memcpy(magnitude, one.data, sizeof *magnitude);
    return true;
  }
  value = hri_gguf_integer_at(&one, 0);
  *negative = value < 0;
  *magnitude = value < 0 ? -(uint64_t)value : (uint64_t)value;
  return true;
}

hr_status hri_gguf_opt_u64(const hri_gguf *file, const char *key, uint64_t min, uint64_t max, uint64_t *value,
                           hr_error *error) {
  const key_value *kv = find_key(file, key);
  uint64_t found;
  bool negative;
  if (!kv) return HR_OK;
  if (!integer_of(file, kv, &negative, &found)) return wrong_type(file, key, kv, "an integer", error);
  if (negative || found < min || found > max) {
    hri_fail(error, HR_ERROR_INPUT, "%s: key '%s' must be an integer from %llu to %llu, found %s%llu", file->base.path,
             key, (ull)min, (ull)max, negative ? "-" : "", (ull)found);
    return hri_hint(error, HR_ERROR_INPUT, "convert the model anew");
  }
  *value = found;
  return HR_OK;
}

hr_status hri_gguf_opt_i64(const hri_gguf *file, const char *key, int64_t min, int64_t max, int64_t *value,
                           hr_error *error) {
  const key_value *kv = find_key(file, key);
  uint64_t found;
  int64_t sign;
  bool negative;
  if (!kv) return HR_OK;
  if (!integer_of(file, kv, &negative, &found)) return wrong_type(file, key, kv, "an integer", error);
  sign = negative ? (int64_t)-found : found > INT64_MAX ? INT64_MAX : (int64_t)found;
  if (sign < min || sign > max || (!negative && found > INT64_MAX)) {
    hri_fail(error, HR_ERROR_INPUT, "%s: key '%s' must be an integer from %lld to %lld, found %s%llu", file->base.path,
             key, (long long)min, (long long)max, negative ? "-" : "", (ull)found);
    return hri_hint(error, HR_ERROR_INPUT, "convert the model anew");
  }
  *value = sign;
  return HR_OK;
}

hr_status hri_gguf_opt_double(const hri_gguf *file, const char *key, double *value, hr_error *error) {
  const key_value *kv = find_key(file, key);
  double found;
  if (!kv) return HR_OK;
  if (types[kv->type].bytes == 0 || kv->type == HRI_GGUF_BOOL) return wrong_type(file, key, kv, "a number", error);
  found = double_at(kv->type, file->head + kv->at);
  if (!isfinite(found)) return wrong_type(file, key, kv, "a finite number", error);
  *value = found;
  return HR_OK;
}

hr_status hri_gguf_opt_bool(const hri_gguf *file, const char *key, bool *value, hr_error *error) {
  const key_value *kv = find_key(file, key);
  if (!kv) return HR_OK;
  if (kv->type != HRI_GGUF_BOOL) return wrong_type(file, key, kv, "a bool", error);
  *value = file->head[kv->at] != 0;
  return HR_OK;
}

hr_status hri_gguf_opt_string(const hri_gguf *file, const char *key, const char **value, uint64_t *bytes,
                              hr_error *error) {
  const key_value *kv = find_key(file, key);
  if (!kv) return HR_OK;
  if (kv->type != HRI_GGUF_STRING) return wrong_type(file, key, kv, "a string", error);
  *value = file->head + kv->at;
  if (bytes) *bytes = kv->count;
  return HR_OK;
}

bool hri_gguf_has_tokenizer(const hri_gguf *file) {
  const char *model = "none"; /* as llama.cpp's converter says it of a model without a vocabulary */
  hr_status status = hri_gguf_opt_string(file, "tokenizer.ggml.model", &model, NULL, NULL);
  return status != HR_OK || strcmp(model, "none") != 0; /* a number is for others to refuse */
}

#define REQUIRED(call) return hri_gguf_has(file, key) ? (call) : missing(file, key, error)
hr_status hri_gguf_get_u64(const hri_gguf *file, const char *key, uint64_t min, uint64_t max, uint64_t *value,
                           hr_error *error) {
  REQUIRED(hri_gguf_opt_u64(file, key, min, max, value, error));
}
hr_status hri_gguf_get_i64(const hri_gguf *file, const char *key, int64_t min, int64_t max, int64_t *value,
                           hr_error *error) {
  REQUIRED(hri_gguf_opt_i64(file, key, min, max, value, error));
}
hr_status hri_gguf_get_double(const hri_gguf *file, const char *key, double *value, hr_error *error) {
  REQUIRED(hri_gguf_opt_double(file, key, value, error));
}
hr_status hri_gguf_get_bool(const hri_gguf *file, const char *key, bool *value, hr_error *error) {
  REQUIRED(hri_gguf_opt_bool(file, key, value, error));
}
hr_status hri_gguf_get_string(const hri_gguf *file, const char *key, const char **value, uint64_t *bytes,
                              hr_error *error) {
  REQUIRED(hri_gguf_opt_string(file, key, value, bytes, error));
}
#undef REQUIRED

/* ---- arrays ---- */

hr_status hri_gguf_get_strings(const hri_gguf *file, const char *key, hri_gguf_strings *list, hr_error *error) {
  const key_value *kv = find_key(file, key);
  if (!kv) return missing(file, key, error);
  if (kv->type != HRI_GGUF_ARRAY || kv->element != HRI_GGUF_STRING)
    return wrong_type(file, key, kv, "an array of strings", error);
  *list = (hri_gguf_strings){kv->count, kv->count, file->head + kv->at};
  return HR_OK;
}

const char *hri_gguf_next(hri_gguf_strings *list, uint64_t *bytes) {
  const char *text = list->next + 4;
  uint32_t length;
  if (list->left == 0) return NULL;
  memcpy(&length, list->next, sizeof length);
  list->left--;
  list->next += 8 + (uint64_t)length;
  if (bytes) *bytes = length;
  return text;
}

hr_status hri_gguf_get_numbers(const hri_gguf *file, const char *key, hri_gguf_numbers *list, hr_error *error) {
  const key_value *kv = find_key(file, key);
  if (!kv) return missing(file, key, error);
  if (kv->type != HRI_GGUF_ARRAY || kv->element == HRI_GGUF_STRING)
    return wrong_type(file, key, kv, "an array of numbers", error);
  *list = (hri_gguf_numbers){kv->count, kv->element, file->head + kv->at};
  return HR_OK;
}

/* Reads element `index` of the C type that `type` stands for. */
#define NUMBER(ctype, convert)                                                                                         \
  do {                                                                                                                 \
    ctype value;                                                                                                       \
    memcpy(&value, (const char *)list->data + index * sizeof value, sizeof value);                                     \
    return convert(value);                                                                                             \
  } while (0)

static int64_t cut_u64(uint64_t value) { return value > INT64_MAX ? INT64_MAX : (int64_t)value; }
static int64_t cut_double(double value) {
  if (!(value > -9.2e18)) return value != value ? 0 : INT64_MIN;
  return value < 9.2e18 ? (int64_t)value : INT64_MAX;
}

int64_t hri_gguf_integer_at(const hri_gguf_numbers *list, uint64_t index) {
  switch (list->type) {
  case HRI_GGUF_U8:
  case HRI_GGUF_BOOL: NUMBER(uint8_t, (int64_t));
  case HRI_GGUF_I8: NUMBER(int8_t, (int64_t));
  case HRI_GGUF_U16: NUMBER(uint16_t, (int64_t));
  case HRI_GGUF_I16: NUMBER(int16_t, (int64_t));
  case HRI_GGUF_U32: NUMBER(uint32_t, (int64_t));
  case HRI_GGUF_I32: NUMBER(int32_t, (int64_t));
  case HRI_GGUF_U64: NUMBER(uint64_t, cut_u64);
  case HRI_GGUF_I64: NUMBER(int64_t, (int64_t));
  default: return cut_double(hri_gguf_number_at(list, index));
  }
}

double hri_gguf_number_at(const hri_gguf_numbers *list, uint64_t index) {
  switch (list->type) {
  case HRI_GGUF_F32: NUMBER(float, (double));
  case HRI_GGUF_F64: NUMBER(double, (double));
  case HRI_GGUF_U64: NUMBER(uint64_t, (double));
  default: return (double)hri_gguf_integer_at(list, index);
  }
}

/* ---- tensors ---- */

uint32_t hri_gguf_count(const hri_gguf *file) { return (uint32_t)file->tensors.count; }
const hri_gguf_tensor *hri_gguf_tensor_get(const hri_gguf *file, uint32_t index) { return &file->tensors.items[index]; }

uint32_t hri_gguf_find(const hri_gguf *file, const char *name) {
  return hri_order_find(file->tensors.items, (uint32_t)file->tensors.count, tensor_name, file->by_name, name);
}

hr_status hri_gguf_read(const hri_gguf *file, uint32_t index, uint64_t offset, uint64_t bytes, void *to,
                        hr_error *error) {
  const hri_gguf_tensor *tensor;
  if (index >= file->tensors.count)
    return hri_fail(error, HR_ERROR_INTERNAL, "%s has no tensor of index %u", file->base.path, index);
  tensor = &file->tensors.items[index];
  return hri_tensor_file_read(&file->base, (hri_tensor_range){tensor->name, tensor->offset, tensor->bytes}, offset,
                              bytes, to, NULL, error);
}
