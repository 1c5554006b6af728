/* GGUF files and block formats: what the reader refuses and accepts, values against the gguf package (tests/gguf,
 * recorded by tests/parity/record_gguf.py), and what the writer makes. */
#include <setjmp.h>
#include <signal.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "formats/gguf.h"
#include "formats/quant_search.h"
#include "formats/safetensors.h"
#include "support/files.h"

/* ---- files made by hand ---- */

typedef struct made {
  unsigned char bytes[8192];
  size_t count;
} made;

static void put(made *m, const void *bytes, size_t count) {
  assert_true(m->count + count <= sizeof m->bytes);
  memcpy(m->bytes + m->count, bytes, count);
  m->count += count;
}
static void put_u32(made *m, uint32_t value) { put(m, &value, sizeof value); }
static void put_u64(made *m, uint64_t value) { put(m, &value, sizeof value); }
static void put_string(made *m, const char *text) {
  put_u64(m, strlen(text));
  put(m, text, strlen(text));
}
static void pad(made *m, size_t alignment) {
  while (m->count % alignment) put(m, "", 1);
}
static void put_head(made *m, uint32_t version, uint64_t tensors, uint64_t keys) {
  put(m, "GGUF", 4);
  put_u32(m, version);
  put_u64(m, tensors);
  put_u64(m, keys);
}
static void put_key_u32(made *m, const char *key, uint32_t value) {
  put_string(m, key);
  put_u32(m, HRI_GGUF_U32);
  put_u32(m, value);
}
static void put_tensor(made *m, const char *name, uint32_t rank, const uint64_t *dims, uint32_t type, uint64_t offset) {
  put_string(m, name);
  put_u32(m, rank);
  for (uint32_t i = 0; i < rank; i++) put_u64(m, dims[i]);
  put_u32(m, type);
  put_u64(m, offset);
}

static hr_status open_made(const made *m, hri_gguf **file, hr_error *error) {
  const char *path = in_directory("case.gguf");
  FILE *stream = fopen(path, "wb");
  assert_non_null(stream);
  assert_int_equal(fwrite(m->bytes, 1, m->count, stream), m->count);
  assert_int_equal(fclose(stream), 0);
  memset(error, 0, sizeof *error);
  return hri_gguf_open(path, file, error);
}

static void assert_refused(const made *m, const char *part) {
  hri_gguf *file;
  hr_error error;
  uint64_t live = hri_mem_live_bytes();
  assert_int_equal(open_made(m, &file, &error), HR_ERROR_INPUT);
  assert_says(&error, "case.gguf");
  assert_says(&error, part);
  assert_true(error.hint[0] != 0);
  assert_int_equal(hri_mem_live_bytes(), live);
}

static hri_gguf *assert_opens(const made *m) {
  hri_gguf *file = NULL;
  hr_error error;
  if (open_made(m, &file, &error) != HR_OK) fail_msg("%s", error.message);
  return file;
}

/* A file with one key and tensors of the given shapes, types and offsets, and `data` bytes. */
typedef struct one {
  const char *name;
  uint32_t rank, type;
  uint64_t dims[5], offset;
} one;

static made file_of(uint32_t alignment, const one *tensors, uint32_t count, size_t data) {
  made m = {.count = 0};
  put_head(&m, 3, count, alignment ? 1 : 0);
  if (alignment) put_key_u32(&m, "general.alignment", alignment);
  for (uint32_t i = 0; i < count; i++)
    put_tensor(&m, tensors[i].name, tensors[i].rank, tensors[i].dims, tensors[i].type, tensors[i].offset);
  pad(&m, alignment ? alignment : 32);
  for (size_t i = 0; i < data; i++) put(&m, &(unsigned char){(unsigned char)(i + 1)}, 1);
  return m;
}

/* ---- headers ---- */

static void test_header(void **state) {
  static const struct {
    uint32_t version;
    const char *message;
  } versions[] = {{0, "version 0"}, {1, "version 1"}, {4, "version 4"}, {0x03000000, "big-endian"}};
  made m = {.count = 0};
  (void)state;
  put(&m, "FUGG", 4);
  put_u32(&m, 3);
  put_u64(&m, 0);
  put_u64(&m, 0);
  assert_refused(&m, "does not begin with 'GGUF'");
  for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
    m.count = 0;
    put_head(&m, versions[i].version, 0, 0);
    assert_refused(&m, versions[i].message);
  }
  m.count = 0;
  put_head(&m, 3, UINT64_MAX, 0);
  assert_refused(&m, "announces");
  m.count = 0;
  put_head(&m, 3, 0, UINT64_MAX);
  assert_refused(&m, "announces");
  for (size_t count = 0; count < 24; count++) {
    m.count = 0;
    put_head(&m, 3, 0, 0);
    m.count = count;
    assert_refused(&m, "cut short");
  }
}

static void test_header_empty(void **state) {
  made m = {.count = 0};
  hri_gguf *file;
  (void)state;
  for (uint32_t version = 2; version <= 3; version++) {
    m.count = 0;
    put_head(&m, version, 0, 0);
    file = assert_opens(&m);
    assert_int_equal(hri_gguf_version(file), version);
    assert_int_equal(hri_gguf_count(file), 0);
    assert_int_equal(hri_gguf_key_count(file), 0);
    hri_gguf_close(file);
  }
  pad(&m, 32);
  hri_gguf_close(assert_opens(&m));
}

/* ---- keys ---- */

static made key_file(const char *key, uint32_t type) {
  made m = {.count = 0};
  put_head(&m, 3, 0, 1);
  put_string(&m, key);
  put_u32(&m, type);
  return m;
}

static void test_keys_refused(void **state) {
  made m;
  (void)state;
  m = (made){.count = 0};
  put_head(&m, 3, 0, 1);
  put_u64(&m, UINT64_MAX);
  put(&m, "key with no end", 15);
  assert_refused(&m, "a key at byte");
  m = key_file("", HRI_GGUF_U32);
  put_u64(&m, 1);
  assert_refused(&m, "empty");
  m = key_file("k", 13);
  put_u64(&m, 1);
  assert_refused(&m, "key 'k' has a value of type 13");
  m = key_file("k", HRI_GGUF_ARRAY);
  put_u32(&m, HRI_GGUF_ARRAY);
  put_u64(&m, 1);
  assert_refused(&m, "an array of arrays");
  m = key_file("k", HRI_GGUF_ARRAY);
  put_u32(&m, HRI_GGUF_U64);
  put_u64(&m, (uint64_t)1 << 61); /* times 8 is 2^64 */
  assert_refused(&m, "does not fit the file");
  m = key_file("k", HRI_GGUF_ARRAY);
  put_u32(&m, HRI_GGUF_STRING);
  put_u64(&m, 1000);
  assert_refused(&m, "does not fit the file");
  m = key_file("k", HRI_GGUF_STRING);
  put_u64(&m, 1000);
  assert_refused(&m, "a string at byte");
  m = key_file("k", HRI_GGUF_U32);
  put(&m, "xx", 2);
  assert_refused(&m, "a value at byte");
  m = (made){.count = 0};
  put_head(&m, 3, 0, 3);
  put_key_u32(&m, "a", 1);
  put_key_u32(&m, "b", 1);
  put_key_u32(&m, "a", 1);
  assert_refused(&m, "the key 'a' stands there twice");
}

static void test_alignment(void **state) {
  made m = {.count = 0};
  const one tensor = {"t", 1, HRI_GGML_F32, {4}, 0};
  hri_gguf *file;
  (void)state;
  put_head(&m, 3, 0, 1);
  put_key_u32(&m, "general.alignment", 13);
  assert_refused(&m, "general.alignment is 13");
  m.count = 0;
  put_head(&m, 3, 0, 1);
  put_key_u32(&m, "general.alignment", 0);
  assert_refused(&m, "general.alignment");
  m = key_file("general.alignment", HRI_GGUF_I32);
  put_u32(&m, 32);
  assert_refused(&m, "general.alignment has type i32");
  m = file_of(13, &tensor, 1, 16);
  assert_refused(&m, "general.alignment is 13");
  m = file_of(1, &tensor, 1, 16);
  file = assert_opens(&m);
  assert_int_equal(hri_gguf_alignment(file), 1);
  hri_gguf_close(file);
}

static void put_all_types(made *m) {
  static const double f64 = -1.5e300;
  static const float f32 = 0.5f;
  put_head(m, 3, 0, 14);
  put_string(m, "u8"), put_u32(m, HRI_GGUF_U8), put(m, "\xFF", 1);
  put_string(m, "i8"), put_u32(m, HRI_GGUF_I8), put(m, "\xFF", 1);
  put_string(m, "u16"), put_u32(m, HRI_GGUF_U16), put(m, "\xFF\xFF", 2);
  put_string(m, "i16"), put_u32(m, HRI_GGUF_I16), put(m, "\xFE\xFF", 2);
  put_key_u32(m, "u32", UINT32_MAX);
  put_string(m, "i32"), put_u32(m, HRI_GGUF_I32), put_u32(m, (uint32_t)-3);
  put_string(m, "f32"), put_u32(m, HRI_GGUF_F32), put(m, &f32, 4);
  put_string(m, "bool"), put_u32(m, HRI_GGUF_BOOL), put(m, "\1", 1);
  put_string(m, "string"), put_u32(m, HRI_GGUF_STRING), put_string(m, "text");
  put_string(m, "u64"), put_u32(m, HRI_GGUF_U64), put_u64(m, UINT64_MAX);
  put_string(m, "i64"), put_u32(m, HRI_GGUF_I64), put_u64(m, (uint64_t)INT64_MIN);
  put_string(m, "f64"), put_u32(m, HRI_GGUF_F64), put(m, &f64, 8);
  put_string(m, "strings"), put_u32(m, HRI_GGUF_ARRAY), put_u32(m, HRI_GGUF_STRING), put_u64(m, 3),
      put_string(m, "one"), put_string(m, ""), put_string(m, "three");
  put_string(m, "halves"), put_u32(m, HRI_GGUF_ARRAY), put_u32(m, HRI_GGUF_I16), put_u64(m, 2),
      put(m, "\xFF\xFF\x01\x00", 4);
}

static void test_values(void **state) {
  made m = {.count = 0};
  hri_gguf *file;
  uint64_t u = 7, bytes;
  int64_t i = 7;
  double d = 7;
  bool b = false;
  const char *text;
  (void)state;
  put_all_types(&m);
  file = assert_opens(&m);
  assert_int_equal(hri_gguf_get_u64(file, "u8", 0, 255, &u, NULL), HR_OK), assert_int_equal(u, 255);
  assert_int_equal(hri_gguf_get_i64(file, "i8", -9, 9, &i, NULL), HR_OK), assert_int_equal(i, -1);
  assert_int_equal(hri_gguf_get_u64(file, "u16", 0, 65535, &u, NULL), HR_OK), assert_int_equal(u, 65535);
  assert_int_equal(hri_gguf_get_i64(file, "i16", -9, 9, &i, NULL), HR_OK), assert_int_equal(i, -2);
  assert_int_equal(hri_gguf_get_i64(file, "u32", 0, INT64_MAX, &i, NULL), HR_OK), assert_int_equal(i, UINT32_MAX);
  assert_int_equal(hri_gguf_get_i64(file, "i32", -9, 9, &i, NULL), HR_OK), assert_int_equal(i, -3);
  assert_int_equal(hri_gguf_get_double(file, "f32", &d, NULL), HR_OK), assert_true(d == 0.5);
  assert_int_equal(hri_gguf_get_bool(file, "bool", &b, NULL), HR_OK), assert_true(b);
  assert_int_equal(hri_gguf_get_string(file, "string", &text, &bytes, NULL), HR_OK), assert_string_equal(text, "text"),
      assert_int_equal(bytes, 4);
  assert_int_equal(hri_gguf_get_u64(file, "u64", 0, UINT64_MAX, &u, NULL), HR_OK), assert_true(u == UINT64_MAX);
  assert_int_equal(hri_gguf_get_i64(file, "i64", INT64_MIN, 0, &i, NULL), HR_OK), assert_true(i == INT64_MIN);
  assert_int_equal(hri_gguf_get_double(file, "f64", &d, NULL), HR_OK), assert_true(d == -1.5e300);
  assert_int_equal(hri_gguf_get_double(file, "i32", &d, NULL), HR_OK), assert_true(d == -3);
  assert_int_equal(hri_gguf_opt_u64(file, "none", 0, 9, &u, NULL), HR_OK), assert_true(u == UINT64_MAX);
  assert_int_equal(hri_gguf_key_count(file), 14);
  assert_string_equal(hri_gguf_key(file, 8), "string");
  hri_gguf_close(file);
}

static void test_values_refused(void **state) {
  made m = {.count = 0};
  hri_gguf *file;
  hr_error error;
  hri_gguf_strings strings;
  hri_gguf_numbers numbers;
  uint64_t u;
  int64_t i;
  double d;
  bool b;
  const char *text;
  (void)state;
  put_all_types(&m);
  file = assert_opens(&m);
  assert_int_equal(hri_gguf_get_u64(file, "none", 0, 9, &u, &error), HR_ERROR_INPUT),
      assert_says(&error, "the key 'none' is missing");
  assert_int_equal(hri_gguf_get_u64(file, "i32", 0, 9, &u, &error), HR_ERROR_INPUT),
      assert_says(&error, "from 0 to 9, found -3");
  assert_int_equal(hri_gguf_get_u64(file, "f32", 0, 9, &u, &error), HR_ERROR_INPUT),
      assert_says(&error, "must be an integer, found f32");
  assert_int_equal(hri_gguf_get_i64(file, "u64", 0, INT64_MAX, &i, &error), HR_ERROR_INPUT),
      assert_says(&error, "found 18446744073709551615");
  assert_int_equal(hri_gguf_get_double(file, "string", &d, &error), HR_ERROR_INPUT),
      assert_says(&error, "must be a number, found string");
  assert_int_equal(hri_gguf_get_double(file, "halves", &d, &error), HR_ERROR_INPUT),
      assert_says(&error, "an array of i16");
  assert_int_equal(hri_gguf_get_bool(file, "u8", &b, &error), HR_ERROR_INPUT),
      assert_says(&error, "must be a bool, found u8");
  assert_int_equal(hri_gguf_get_string(file, "strings", &text, NULL, &error), HR_ERROR_INPUT),
      assert_says(&error, "must be a string");
  assert_int_equal(hri_gguf_get_strings(file, "halves", &strings, &error), HR_ERROR_INPUT),
      assert_says(&error, "must be an array of strings");
  assert_int_equal(hri_gguf_get_numbers(file, "strings", &numbers, &error), HR_ERROR_INPUT),
      assert_says(&error, "must be an array of numbers");
  assert_int_equal(hri_gguf_get_numbers(file, "u8", &numbers, &error), HR_ERROR_INPUT);
  hri_gguf_close(file);
}

static void test_arrays(void **state) {
  static const char *const want[] = {"one", "", "three"};
  made m = {.count = 0};
  hri_gguf *file;
  hri_gguf_strings strings, again;
  hri_gguf_numbers numbers;
  uint64_t bytes;
  const char *text;
  (void)state;
  put_all_types(&m);
  file = assert_opens(&m);
  assert_int_equal(hri_gguf_get_strings(file, "strings", &strings, NULL), HR_OK);
  assert_int_equal(strings.count, 3);
  again = strings;
  for (int i = 0; i < 3; i++) {
    text = hri_gguf_next(&strings, &bytes);
    assert_string_equal(text, want[i]);
    assert_int_equal(bytes, strlen(want[i]));
  }
  assert_null(hri_gguf_next(&strings, &bytes));
  assert_string_equal(hri_gguf_next(&again, NULL), "one");
  assert_int_equal(hri_gguf_get_numbers(file, "halves", &numbers, NULL), HR_OK);
  assert_int_equal(numbers.count, 2);
  assert_int_equal(hri_gguf_integer_at(&numbers, 0), -1);
  assert_true(hri_gguf_number_at(&numbers, 1) == 1);
  hri_gguf_close(file);
}

/* ---- tensors ---- */

#define TOP ((uint64_t)1 << 62)

static void test_tensors_refused(void **state) {
  static const char long_name[] = "a_name_of_sixty_four_bytes_or_more_is_longer_than_what_is_allowed";
  static const struct {
    one tensors[2];
    uint32_t count;
    const char *message;
  } cases[] = {
      {{{long_name, 1, 0, {4}, 0}}, 1, "the name of tensor 0"},
      {{{"", 1, 0, {4}, 0}}, 1, "the name of tensor 0"},
      {{{"t", 5, 0, {4, 1, 1, 1, 1}, 0}}, 1, "has 5 dimensions"},
      {{{"t", 2, 0, {4, UINT64_MAX}, 0}}, 1, "more elements than 63 bits"},
      {{{"t", 2, 0, {TOP, 4}, 0}}, 1, "more elements than 63 bits"},
      {{{"t", 4, 0, {1 << 16, 1 << 16, 1 << 16, 1 << 16}, 0}}, 1, "more elements than 63 bits"},
      {{{"t", 1, 27, {TOP}, 0}}, 1, "more bytes than 64 bits"},
      {{{"t", 1, 4, {4}, 0}}, 1, "unknown type 4"},
      {{{"t", 1, 1000, {4}, 0}}, 1, "unknown type 1000"},
      {{{"t", 1, HRI_GGML_Q8_0, {33}, 0}}, 1, "33 elements is no multiple of the 32"},
      {{{"t", 1, 0, {4}, 32}}, 1, "offset 32"},
      {{{"t", 1, 0, {4}, 0}, {"u", 1, 0, {4}, 16}},
       2,
       "offset 16; the tensors before it, at an alignment of 32, ask for 32"},
      {{{"t", 1, 0, {4}, 0}, {"u", 1, 0, {4}, 64}}, 2, "offset 64"},
      {{{"t", 1, 0, {4}, 0}, {"u", 1, 0, {4}, 0}}, 2, "offset 0"},
      {{{"t", 1, 0, {4}, 0}, {"t", 1, 0, {4}, 32}}, 2, "tensor 't': the name stands there twice"},
      {{{"t", 1, 24, {0x7FFFFFFFFFFFFFC0}, 0}, {"u", 1, 24, {0x7FFFFFFFFFFFFFC0}, 0x7FFFFFFFFFFFFFC0}}, 2, "cut short"},
  };
  const one tensor = {"t", 1, HRI_GGML_F32, {8}, 0};
  made m;
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    m = file_of(0, cases[i].tensors, cases[i].count, 512);
    assert_refused(&m, cases[i].message);
  }
  m = file_of(0, &tensor, 1, 31); /* one byte short */
  assert_refused(&m, "tensor 't' needs data bytes 0+32, the file has 31");
  m = file_of(0, &tensor, 1, 0);
  m.count = 60; /* in the middle of the info */
  assert_refused(&m, "cut short");
}

static void test_tensors_accepted(void **state) {
  static const one tensors[] = {
      {"scalar", 0, HRI_GGML_F32, {0}, 0},
      {"matrix", 2, HRI_GGML_F16, {3, 2}, 32},
      {"nothing", 2, HRI_GGML_F32, {0, 5}, 64},
      {"blocks", 2, HRI_GGML_Q8_0, {32, 2}, 64},
      {"other", 1, 10, {256}, 160},
      {"last", 4, HRI_GGML_F32, {1, 2, 1, 2}, 256},
  };
  made m = file_of(0, tensors, 6, 272);
  hri_gguf *file = assert_opens(&m);
  const hri_gguf_tensor *t;
  unsigned char bytes[256];
  hr_error error;
  (void)state;
  assert_int_equal(hri_gguf_count(file), 6);
  for (uint32_t i = 0; i < 6; i++) assert_int_equal(hri_gguf_find(file, tensors[i].name), i);
  assert_int_equal(hri_gguf_find(file, "matri"), HRI_GGUF_NONE);
  t = hri_gguf_tensor_get(file, 1);
  assert_int_equal(t->dims[0], 3), assert_int_equal(t->dims[1], 2), assert_int_equal(t->dims[2], 1);
  assert_int_equal(t->elements, 6), assert_int_equal(t->bytes, 12);
  assert_int_equal(hri_gguf_tensor_get(file, 0)->bytes, 4);
  assert_int_equal(hri_gguf_tensor_get(file, 3)->bytes, 68);
  assert_int_equal(hri_gguf_read(file, 1, 2, 4, bytes, &error), HR_OK);
  assert_int_equal(bytes[0], 35), assert_int_equal(bytes[3], 38);
  assert_int_equal(hri_gguf_read(file, 5, 0, 16, bytes, &error), HR_OK);
  assert_int_equal(bytes[15], (unsigned char)272);
  assert_int_equal(hri_gguf_read(file, 1, 9, 4, bytes, &error), HR_ERROR_INTERNAL);
  assert_int_equal(hri_gguf_read(file, 6, 0, 0, bytes, &error), HR_ERROR_INTERNAL);
  hri_gguf_close(file);
}

/* A vocabulary longer than the pieces in which the head is read. */
static void test_large_head(void **state) {
  hri_gguf_keys keys = {0};
  hri_gguf_writer *writer;
  hri_gguf *file;
  hri_gguf_strings list;
  hr_error error = {0};
  char token[64], path[160];
  uint64_t bytes;
  (void)state;
  strcpy(path, in_directory("large.gguf"));
  hri_gguf_put_array(&keys, "tokens", HRI_GGUF_STRING, 50000);
  for (int i = 0; i < 50000; i++)
    hri_gguf_add_string(&keys, token, (uint64_t)snprintf(token, sizeof token, "token %d of many", i));
  hri_gguf_put_string(&keys, "after", "the list", 8);
  assert_int_equal(hri_gguf_writer_open(path, &keys, NULL, 0, &writer, &error), HR_OK);
  assert_int_equal(hri_gguf_writer_finish(writer, &error), HR_OK);
  hri_gguf_keys_deinit(&keys);
  assert_int_equal(hri_gguf_open(path, &file, &error), HR_OK);
  assert_int_equal(hri_gguf_get_strings(file, "tokens", &list, &error), HR_OK);
  for (int i = 0; i < 50000; i++) {
    (void)snprintf(token, sizeof token, "token %d of many", i);
    assert_string_equal(hri_gguf_next(&list, &bytes), token);
  }
  assert_true(hri_gguf_has(file, "after"));
  hri_gguf_close(file);
}

/* Every allocation of an open fails once, and nothing is left. */
static void test_memory(void **state) {
  static const one tensors[] = {{"a", 1, HRI_GGML_F32, {4}, 0}, {"b", 1, HRI_GGML_F32, {4}, 32}};
  made m = file_of(32, tensors, 2, 64);
  uint64_t live;
  hri_gguf *file = assert_opens(&m);
  hr_error error;
  hr_status status = HR_ERROR_MEMORY;
  (void)state;
  hri_gguf_close(file);
  live = hri_mem_live_bytes();
  for (uint64_t n = 1; status != HR_OK; n++) {
    assert_true(n < 100);
    hri_mem_fail_after(n);
    status = hri_gguf_open(in_directory("case.gguf"), &file, &error);
    hri_mem_fail_after(0);
    if (status != HR_OK) assert_int_equal(status, HR_ERROR_MEMORY);
    else hri_gguf_close(file);
    assert_int_equal(hri_mem_live_bytes(), live);
  }
}

static void test_no_file(void **state) {
  hri_gguf *file;
  hr_error error;
  (void)state;
  assert_int_equal(hri_gguf_open(in_directory("none.gguf"), &file, &error), HR_ERROR_IO);
  assert_int_equal(mkfifo(in_directory("pipe.gguf"), 0600), 0);
  assert_int_equal(hri_gguf_open(in_directory("pipe.gguf"), &file, &error), HR_ERROR_INPUT);
  assert_says(&error, "not a regular file");
  assert_false(hri_gguf_is(in_directory("pipe.gguf")));
  assert_false(hri_gguf_is(in_directory("none.gguf")));
  assert_false(hri_gguf_is(directory));
}

/* ---- block formats, against the gguf package ---- */

static hri_safetensors *recorded(const char *name) {
  hri_safetensors *file;
  hr_error error;
  char path[512];
  (void)snprintf(path, sizeof path, "%s/gguf/%s", HR_TEST_DATA, name);
  if (hri_safetensors_open(path, &file, &error) != HR_OK) fail_msg("%s", error.message);
  return file;
}

static void *tensor_of(const hri_safetensors *file, const char *name, uint64_t *bytes) {
  uint32_t index = hri_safetensors_find(file, name);
  const hri_safetensor *t;
  void *data;
  if (index == HRI_SAFETENSORS_NONE) fail_msg("there is no %s", name);
  t = hri_safetensors_get(file, index);
  *bytes = t->end - t->begin;
  data = malloc(*bytes);
  assert_non_null(data);
  assert_int_equal(hri_safetensors_read(file, index, 0, *bytes, data, NULL), HR_OK);
  return data;
}

static const uint32_t decoded[] = {HRI_GGML_F32,  HRI_GGML_F16,  HRI_GGML_BF16, HRI_GGML_Q8_0,   HRI_GGML_Q4_0,
                                   HRI_GGML_Q4_1, HRI_GGML_Q5_0, HRI_GGML_Q5_1, HRI_GGML_Q4_K,   HRI_GGML_Q5_K,
                                   HRI_GGML_Q6_K, HRI_GGML_Q2_K, HRI_GGML_Q3_K, HRI_GGML_IQ4_NL, HRI_GGML_IQ4_XS};

/* The file is the package's own; every value is its value, bit for bit (a NaN is a NaN). */
static void test_decode(void **state) {
  hri_safetensors *want = recorded("types.safetensors");
  hri_gguf *file;
  hr_error error;
  char path[512];
  (void)state;
  (void)snprintf(path, sizeof path, "%s/gguf/types.gguf", HR_TEST_DATA);
  if (hri_gguf_open(path, &file, &error) != HR_OK) fail_msg("%s", error.message);
  assert_int_equal(hri_gguf_count(file), sizeof decoded / sizeof *decoded);
  for (size_t i = 0; i < sizeof decoded / sizeof *decoded; i++) {
    const char *name = hri_ggml_name(decoded[i]);
    uint32_t index = hri_gguf_find(file, name), differing = 0;
    const hri_gguf_tensor *t = hri_gguf_tensor_get(file, index);
    uint64_t bytes;
    uint32_t *values = tensor_of(want, name, &bytes);
    float *got = malloc(bytes);
    char *raw = malloc(t->bytes + 1);
    assert_int_equal(t->type, decoded[i]);
    assert_int_equal(bytes, t->elements * 4);
    assert_int_equal(hri_gguf_read(file, index, 0, t->bytes, raw + 1, NULL), HR_OK); /* at an odd address */
    assert_true(hri_ggml_to_f32(t->type, got, raw + 1, t->elements));
    for (uint64_t k = 0; k < t->elements; k++) {
      uint32_t bits;
      memcpy(&bits, &got[k], sizeof bits);
      if ((values[k] & 0x7FFFFFFF) > 0x7F800000 && (bits & 0x7FFFFFFF) > 0x7F800000) continue;
      differing += bits != values[k];
    }
    if (differing) fail_msg("%s: %u of %llu values differ", name, differing, (unsigned long long)t->elements);
    free(values);
    free(got);
    free(raw);
  }
  hri_gguf_close(file);
  hri_safetensors_close(want);
}

typedef void encode(uint32_t type, uint8_t *to, const float *from, uint64_t elements);

static void encode_here(uint32_t type, uint8_t *to, const float *from, uint64_t elements) {
  assert_true(hri_ggml_encodes(type) && hri_ggml_from_f32(type, to, from, elements));
}

static void hold_encoded(const char *name, const uint32_t *types, size_t count, encode *make) {
  hri_safetensors *file = recorded(name);
  uint64_t source_bytes, bytes, needed;
  float *source = tensor_of(file, "source", &source_bytes);
  for (size_t i = 0; i < count; i++) {
    unsigned char *want = tensor_of(file, hri_ggml_name(types[i]), &bytes), *got = malloc(bytes + 1);
    assert_true(hri_ggml_bytes(types[i], source_bytes / 4, &needed));
    assert_int_equal(bytes, needed);
    make(types[i], got + 1, source, source_bytes / 4);
    for (uint64_t k = 0; k < bytes; k++)
      if (got[k + 1] != want[k])
        fail_msg("%s: byte %llu is %u, not %u", hri_ggml_name(types[i]), (unsigned long long)k, got[k + 1], want[k]);
    free(want);
    free(got);
  }
  free(source);
  hri_safetensors_close(file);
}

static void test_encode(void **state) {
  static const uint32_t rounded[] = {HRI_GGML_F32,  HRI_GGML_F16,  HRI_GGML_BF16, HRI_GGML_Q8_0,
                                     HRI_GGML_Q5_0, HRI_GGML_Q5_1, HRI_GGML_Q4_0},
                        searched[] = {HRI_GGML_Q4_K, HRI_GGML_Q5_K, HRI_GGML_Q6_K};
  (void)state;
  hold_encoded("encode.safetensors", rounded, 7, encode_here);
  hold_encoded("search.safetensors", searched, 3, encode_here);
  hold_encoded("search.safetensors", searched, 3, hri_quant_search_here); /* without what the processor has */
}

/* Just below what a type reaches, all halves are finite; and no value at all breaks anything. */
static void test_encode_ends(void **state) {
  static const uint32_t types[] = {HRI_GGML_Q8_0, HRI_GGML_Q5_0, HRI_GGML_Q5_1, HRI_GGML_Q4_0,
                                   HRI_GGML_Q4_K, HRI_GGML_Q5_K, HRI_GGML_Q6_K};
  static const float odd[] = {INFINITY, -INFINITY, NAN, 1e-45f, 1e-39f, 3e38f, -3e38f, 0, 1};
  float values[256], back[256];
  uint8_t block[256 / 32 * 34];
  uint32_t draw = 1;
  (void)state;
  for (size_t t = 0; t < sizeof types / sizeof *types; t++)
    for (int round = 0; round < 400; round++) {
      float reach = nextafterf(hri_ggml_reach(types[t]), 0);
      for (int i = 0; i < 256; i++) {
        draw = draw * 1664525 + 1013904223;
        values[i] = reach * (round % 4 == 0   ? 1
                             : round % 4 == 1 ? (draw >> 31 ? 1 : -1)
                                              : (float)(draw >> 8) * 0x1p-23f - 1);
        if (i % 7 == round % 7) values[i] = round % 3 ? reach : -reach;
      }
      assert_true(hri_ggml_from_f32(types[t], block, values, 256));
      assert_true(hri_ggml_to_f32(types[t], back, block, 256));
      for (int i = 0; i < 256; i++)
        if (!isfinite(back[i]))
          fail_msg("%s: %g became %g", hri_ggml_name(types[t]), (double)values[i], (double)back[i]);
      for (int i = 0; i < 256; i++) {
        draw = draw * 1664525 + 1013904223;
        values[i] = odd[(draw >> 8) % 9];
      }
      assert_true(hri_ggml_from_f32(types[t], block, values, 256));
    }
}

static void test_types(void **state) {
  uint64_t bytes;
  float value[32] = {0};
  (void)state;
  assert_true(hri_ggml_bytes(HRI_GGML_Q4_K, 512, &bytes));
  assert_int_equal(bytes, 288);
  assert_false(hri_ggml_bytes(HRI_GGML_Q4_K, 128, &bytes));
  assert_false(hri_ggml_bytes(27, (uint64_t)1 << 62, &bytes));
  assert_false(hri_ggml_bytes(5, 32, &bytes));
  assert_false(hri_ggml_known(4) || hri_ggml_known(5) || hri_ggml_known(31) || hri_ggml_known(42));
  assert_true(hri_ggml_known(16) && !hri_ggml_decodes(16) && !hri_ggml_encodes(HRI_GGML_Q4_1));
  assert_false(hri_ggml_to_f32(16, value, value, 0));
  assert_false(hri_ggml_from_f32(HRI_GGML_Q4_1, value, value, 32));
  assert_string_equal(hri_ggml_name(4), "unknown");
}

/* ---- the writer ---- */

static void test_writer(void **state) {
  static const float values[6] = {1, 2, 3, 4, 5, 6};
  const hri_gguf_tensor tensors[] = {{.name = "a", .type = HRI_GGML_F32, .rank = 2, .dims = {3, 2}},
                                     {.name = "b", .type = HRI_GGML_F32, .rank = 1, .dims = {1}}};
  hri_gguf_keys keys = {0};
  hri_gguf_writer *writer;
  hri_gguf *file;
  hr_error error = {0};
  char path[160];
  float read[6];
  double number;
  (void)state;
  strcpy(path, in_directory("written.gguf"));
  hri_gguf_put_f32(&keys, "number", 0.25);
  hri_gguf_put_bool(&keys, "yes", true);
  assert_int_equal(hri_gguf_writer_open(path, &keys, tensors, 2, &writer, &error), HR_OK);
  assert_int_equal(hri_gguf_writer_write(writer, 1, 0, values, 4, &error), HR_OK);
  assert_int_equal(hri_gguf_writer_write(writer, 0, 12, values + 3, 12, &error), HR_OK);
  assert_int_equal(hri_gguf_writer_write(writer, 0, 0, values, 12, &error), HR_OK);
  assert_int_equal(hri_gguf_writer_write(writer, 0, 0, values, 4, &error), HR_ERROR_INTERNAL); /* a second time */
  assert_int_equal(hri_gguf_writer_finish(writer, &error), HR_OK);
  assert_int_equal(hri_gguf_open(path, &file, &error), HR_OK);
  assert_int_equal(hri_gguf_get_double(file, "number", &number, &error), HR_OK);
  assert_true(number == 0.25);
  assert_int_equal(hri_gguf_read(file, 0, 0, 24, read, &error), HR_OK);
  assert_memory_equal(read, values, 24);
  assert_int_equal(hri_gguf_tensor_get(file, 1)->offset, 32);
  hri_gguf_close(file);
  assert_int_equal(hri_gguf_writer_open(path, &keys, tensors, 2, &writer, &error),
                   HR_ERROR_IO); /* it never writes into a file that is there */
  assert_int_equal(hri_gguf_open(path, &file, &error), HR_OK);
  hri_gguf_close(file);
  hri_gguf_keys_deinit(&keys);
}

static void test_writer_refuses(void **state) {
  const hri_gguf_tensor good = {.name = "a", .type = HRI_GGML_F32, .rank = 1, .dims = {4}};
  hri_gguf_tensor twice[2] = {good, good}, bad = good;
  hri_gguf_keys keys = {0};
  hri_gguf_writer *writer;
  hr_error error;
  char path[160];
  (void)state;
  strcpy(path, in_directory("refused.gguf"));
  assert_int_equal(hri_gguf_writer_open(path, &keys, twice, 2, &writer, &error), HR_ERROR_USAGE);
  assert_says(&error, "two tensors are named 'a'");
  bad.type = HRI_GGML_Q8_0; /* half a block */
  assert_int_equal(hri_gguf_writer_open(path, &keys, &bad, 1, &writer, &error), HR_ERROR_USAGE);
  bad = good;
  bad.name = "a_name_of_sixty_four_bytes_or_more_is_longer_than_what_is_allowed";
  assert_int_equal(hri_gguf_writer_open(path, &keys, &bad, 1, &writer, &error), HR_ERROR_USAGE);
  assert_int_equal(hri_gguf_writer_open(path, &keys, &good, 1, &writer, &error), HR_OK);
  assert_int_equal(hri_gguf_writer_finish(writer, &error), HR_ERROR_INTERNAL); /* nothing written */
  assert_says(&error, "got 0 of its 16 bytes");
  assert_int_equal(hri_gguf_writer_open(path, &keys, &good, 1, &writer, &error), HR_OK);
  hri_gguf_writer_abort(writer);
  assert_int_equal(hri_gguf_writer_open("/none/such.gguf", &keys, &good, 1, &writer, &error), HR_ERROR_IO);
  assert_false(hri_path_exists(path));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_header),           cmocka_unit_test(test_header_empty),
      cmocka_unit_test(test_keys_refused),     cmocka_unit_test(test_alignment),
      cmocka_unit_test(test_values),           cmocka_unit_test(test_values_refused),
      cmocka_unit_test(test_arrays),           cmocka_unit_test(test_tensors_refused),
      cmocka_unit_test(test_tensors_accepted), cmocka_unit_test(test_large_head),
      cmocka_unit_test(test_memory),           cmocka_unit_test(test_no_file),
      cmocka_unit_test(test_decode),           cmocka_unit_test(test_encode),
      cmocka_unit_test(test_encode_ends),      cmocka_unit_test(test_types),
      cmocka_unit_test(test_writer),           cmocka_unit_test(test_writer_refuses),
  };
  return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
