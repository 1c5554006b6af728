/* safetensors files: what the reader refuses and accepts, what the writer makes, and what both do when memory, disk or
 * file run out. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/text.h"
#include "formats/safetensors.h"
#include "support/cpu_seconds.h"
#include "support/files.h"

/* length, header, `data_bytes` bytes of 1, 2, 3, ... */
static const char *put_header(const char *header, uint64_t announced, uint64_t data_bytes) {
  static unsigned char bytes[4096];
  size_t length = strlen(header), i;
  const char *path = in_directory("case.safetensors");
  assert_true(8 + length + data_bytes <= sizeof bytes);
  memcpy(bytes, &announced, 8);
  memcpy(bytes + 8, header, length);
  for (i = 0; i < data_bytes; i++) bytes[8 + length + i] = (unsigned char)(i + 1);
  put_file(path, bytes, 8 + length + data_bytes);
  return path;
}

/* ---- Reading: the classes of interop.md 1.1; the corpus of fuzz_safetensors has each as a file, too ---- */

#define A(dtype, shape, offsets) "{\"a\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define AB(shape_a, offsets_a, shape_b, offsets_b)                                                                     \
  "{\"a\":{\"dtype\":\"U8\",\"shape\":" shape_a ",\"data_offsets\":" offsets_a "},"                                    \
  "\"b\":{\"dtype\":\"U8\",\"shape\":" shape_b ",\"data_offsets\":" offsets_b "}}"

static const struct {
  const char *header;
  uint64_t data_bytes;
  const char *message;
} malformed[] = {
    {"", 0, "expected an object, found the end"},
    {"\xFF", 0, "expected an object, found the byte 0xff"},
    {"{\"\xFF\":1}", 0, "0xff is not UTF-8"},
    {"[]", 0, "expected an object, found '['"},
    {"hello", 0, "expected an object"},
    {"{\"a\":{\"dtype\":\"U8\"", 0, "tensor 'a'"},
    {"{} x", 0, "expected the end of the text, found 'x'"},
    {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "the field 'dtype' is missing"},
    {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "the field 'shape' is missing"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "the field 'data_offsets' is missing"},
    {"{\"a\":7}", 0, "tensor 'a', "},
    {"{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "tensor 'a', field 'dtype': "},
    {A("F33", "[1]", "[0,1]"), 1, "unknown dtype 'F33'"},
    {A("U8", "[-1]", "[0,1]"), 1, "field 'shape': "},
    {A("U8", "[1.0]", "[0,1]"), 1, "expected an integer"},
    {A("U8", "[18446744073709551616]", "[0,1]"), 1, "does not fit 64 bits"},
    {A("U8", "1", "[0,1]"), 1, "expected an array, found '1'"},
    {A("U8", "[1]", "[0]"), 1, "expected begin and end"},
    {A("U8", "[1]", "[0,1,1]"), 1, "field 'data_offsets': "},
    {A("U8", "[1]", "[0,-1]"), 1, "expected a non-negative integer, found '-'"},
    {A("U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), 1, "more than 8 numbers"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__, "},
    {"{\"__metadata__\":[]}", 0, "__metadata__, "},
    {"{\"__metadata__\":{\"a\":null}}", 0, "__metadata__, "},
    {"{\"__metadata__\":nul}", 0, "__metadata__, "},
    {"{\"__metadata__\":null,\"__metadata__\":null}", 0, "__metadata__ stands there twice"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__ stands there twice"},
    {"{\"__metadata__\":{\"k\":\"1\",\"k\":\"1\"}}", 0, "__metadata__ has the key 'k' twice"},
    {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "field 'dtype': "},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},\"\\u0061\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
     0, "the header names the tensor 'a' twice"},
    {A("U8", "[1]", "[1,2]"), 2, "the data bytes from 0 to 1, before tensor 'a', belong to no tensor"},
    {AB("[1]", "[0,1]", "[1]", "[2,3]"), 3, "the data bytes from 1 to 2, before tensor 'b', belong to no tensor"},
    {AB("[2]", "[0,2]", "[2]", "[1,3]"), 3, "tensors 'a' and 'b' overlap at data byte 1"},
    {AB("[2]", "[0,2]", "[2]", "[0,2]"), 2, "overlap at data byte 0"},
    {A("U8", "[1]", "[2,1]"), 2, "data_offsets end at 1, before their begin 2"},
    {A("F32", "[2]", "[0,4]"), 4, "dtype and shape need 8 bytes, data_offsets hold 4"},
    {A("U8", "[2,18446744073709551614]", "[0,16]"), 16, "more elements than 64 bits can count"},
    {A("F32", "[2,9223372036854775807]", "[0,16]"), 16, "more elements than 64 bits can count"},
    {A("F4", "[1]", "[0,1]"), 1, "1 elements of F4 do not fill whole bytes"},
    {A("U8", "[4]", "[0,4]"), 3, "cut short: the header describes 4 bytes of data, the file holds 3"},
    {A("U8", "[1]", "[0,1]"), 9, "8 bytes behind the last tensor belong to no tensor"},
    {A("U8", "[18446744073709551615]", "[0,18446744073709551615]"), 1, "more elements than 64 bits can count"},
    {A("U8", "[2305843009213693951]", "[0,2305843009213693951]"), 1, "cut short"},
};

static void test_malformed(void **state) {
  size_t i;
  (void)state;
  for (i = 0; i < sizeof malformed / sizeof *malformed; i++) {
    hri_safetensors *file = NULL;
    hr_error error = {0};
    uint64_t live = hri_mem_live_bytes();
    const char *path = put_header(malformed[i].header, strlen(malformed[i].header), malformed[i].data_bytes);
    if (hri_safetensors_open(path, &file, &error) != HR_ERROR_INPUT)
      fail_msg("accepted or failed otherwise: %s", malformed[i].header);
    assert_says(&error, malformed[i].message);
    assert_says(&error, path);
    assert_true(error.hint[0]);
    assert_null(file);
    assert_true(hri_mem_live_bytes() == live);
  }
}

static void assert_refused(const char *path, const char *message) {
  hri_safetensors *file = NULL;
  hr_error error = {0};
  assert_int_equal(hri_safetensors_open(path, &file, &error), HR_ERROR_INPUT);
  assert_says(&error, message);
  assert_says(&error, path);
}

static void test_malformed_length(void **state) {
  static const unsigned char large[8] = {0x3c, 0, 0, 0, 0, 0xff, 0xff, 0xff};
  const char *path = in_directory("short");
  (void)state;
  put_file(path, "", 0);
  assert_refused(path, "has 0 bytes, less than the 8");
  put_file(path, large, 7);
  assert_refused(path, "has 7 bytes, less than the 8");
  put_file(path, large, 8);
  assert_refused(path, "a header of 18446742974197923900 bytes is announced; at most 100000000");
  assert_refused(put_header("{}", 100000001, 0), "a header of 100000001 bytes is announced; at most 100000000");
  assert_refused(put_header("{}", 100000000, 0), "cut short: a header of 100000000 bytes is announced, 2 bytes follow");
  assert_refused(put_header("{}", 3, 0), "cut short: a header of 3 bytes is announced, 2 bytes follow");
  assert_refused(put_header("{}", 1, 1), "expected a string, found the end");
}

static void test_not_a_file(void **state) {
  hri_safetensors *file = NULL;
  hr_error error = {0};
  const char *fifo = in_directory("fifo");
  (void)state;
  assert_int_equal(mkfifo(fifo, 0600), 0);
  assert_refused(fifo, "is a FIFO, not a regular file"); /* and does not wait for a writer */
  assert_refused(directory, "is a directory, not a regular file");
  assert_int_equal(hri_safetensors_open(in_directory("absent"), &file, &error), HR_ERROR_IO);
  assert_says(&error, "absent");
}

static void test_accepted(void **state) {
  static const struct {
    const char *header;
    uint64_t data_bytes;
    uint32_t count;
  } cases[] = {
      {"{}", 0, 0},
      {"\t\n{}\r ", 0, 0},
      {"{\"__metadata__\": null}", 0, 0},
      {A("F32", "[]", "[0,4]"), 4, 1},
      {A("F32", "[0,18446744073709551615]", "[0,0]"), 0, 1},
      {AB("[1]", "[3,4]", "[3]", "[0,3]"), 4, 2},
      {AB("[0]", "[2,2]", "[2]", "[0,2]"), 2, 2},
      {A("F6_E2M3", "[4]", "[0,3]"), 3, 1},
      {"{\"a\":{\"x\":{\"y\":[1,-2.5e3,true,null,\"z\"]},\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
       1},
  };
  size_t i;
  (void)state;
  for (i = 0; i < sizeof cases / sizeof *cases; i++) {
    hri_safetensors *file = NULL;
    hr_error error = {0};
    const char *path = put_header(cases[i].header, strlen(cases[i].header), cases[i].data_bytes);
    if (hri_safetensors_open(path, &file, &error) != HR_OK) fail_msg("%s", error.message);
    assert_int_equal(hri_safetensors_count(file), cases[i].count);
    assert_true(hri_safetensors_data_bytes(file) == cases[i].data_bytes);
    hri_safetensors_close(file);
  }
}

static void test_read(void **state) {
  static const char header[] = "{\"__metadata__\":{\"format\":\"pt\",\"n\\u00e9\":\"x\\ny\"},"
                               "\"m.b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
                               "\"m.a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}} ";
  const char *path = put_header(header, sizeof header - 1, 16);
  hri_safetensors *file = NULL;
  const hri_safetensor *tensor;
  unsigned char to[16];
  hr_error error = {0};
  uint32_t b;
  (void)state;
  assert_int_equal(hri_safetensors_open(path, &file, &error), HR_OK);
  assert_string_equal(hri_safetensors_path(file), path);
  b = hri_safetensors_find(file, "m.b");
  assert_int_equal(b, 0); /* in the header's order */
  assert_int_equal(hri_safetensors_find(file, "m.a"), 1);
  assert_true(hri_safetensors_find(file, "m") == HRI_SAFETENSORS_NONE &&
              hri_safetensors_find(file, "m.c") == HRI_SAFETENSORS_NONE);
  tensor = hri_safetensors_get(file, b);
  assert_string_equal(tensor->name, "m.b");
  assert_int_equal(tensor->dtype, HRI_FILE_BF16);
  assert_int_equal(tensor->rank, 2);
  assert_true(tensor->shape[0] == 2 && tensor->shape[1] == 3 && tensor->begin == 4 && tensor->end == 16);
  assert_int_equal(hri_safetensors_read(file, b, 0, 12, to, &error), HR_OK);
  assert_int_equal(to[0], 5);
  assert_int_equal(to[11], 16);
  assert_int_equal(hri_safetensors_read(file, b, 10, 2, to, &error), HR_OK);
  assert_int_equal(to[0], 15);
  assert_int_equal(hri_safetensors_read(file, b, 12, 0, to, &error), HR_OK);
  assert_int_equal(hri_safetensors_read(file, b, 11, 2, to, &error), HR_ERROR_INTERNAL);
  assert_int_equal(hri_safetensors_read(file, b, 2, UINT64_MAX, to, &error), HR_ERROR_INTERNAL);
  assert_int_equal(hri_safetensors_read(file, 2, 0, 1, to, &error), HR_ERROR_INTERNAL);
  assert_int_equal(hri_safetensors_metadata_count(file), 2);
  assert_string_equal(hri_safetensors_metadata_get(file, 1).key, "n\xC3\xA9");
  assert_string_equal(hri_safetensors_metadata_find(file, "n\xC3\xA9"), "x\ny");
  assert_null(hri_safetensors_metadata_find(file, "absent"));
  assert_int_equal(truncate(path, (off_t)(8 + sizeof header - 1 + 10)), 0);
  assert_int_equal(hri_safetensors_read(file, b, 0, 12, to, &error), HR_ERROR_INPUT); /* it shrank meanwhile */
  assert_says(&error, "tensor 'm.b': ");
  assert_says(&error, path);
  hri_safetensors_close(file);
  hri_safetensors_close(NULL);
}

/* ---- Large headers ---- */

/* `count` tensors named so that they do not come sorted; 1 byte each in turn, or all of them the bytes [0, 1). */
static const char *put_many(uint32_t count, bool overlap) {
  const char *path = in_directory("many.safetensors");
  hri_text text = {0};
  uint64_t length;
  uint32_t i;
  hri_text_add_bytes(&text, "\0\0\0\0\0\0\0\0{", 9);
  for (i = 0; i < count; i++) {
    uint32_t at = overlap ? 0 : i;
    hri_text_add(&text, "%s\"layers.%u.w%u\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%u,%u]}", i ? "," : "",
                 i * 7919 % count, i, at, at + 1);
  }
  hri_text_add_bytes(&text, "}", 1);
  length = text.length - 8;
  for (i = 0; i < (overlap ? 1 : count); i++) hri_text_add_bytes(&text, "x", 1);
  assert_false(text.failed);
  memcpy(text.chars, &length, 8);
  put_file(path, text.chars, text.length);
  hri_text_deinit(&text);
  return path;
}

/* The limits are far above what it takes (2 ms and 0.1 s), and far below what quadratic work would take. */
static void test_many_tensors(void **state) {
  hri_safetensors *file = NULL;
  hr_error error = {0};
  double begin;
  (void)state;
  put_many(5000, false);
  begin = cpu_seconds();
  assert_int_equal(hri_safetensors_open(in_directory("many.safetensors"), &file, &error), HR_OK);
  assert_true(cpu_seconds() - begin < 0.5);
  assert_int_equal(hri_safetensors_count(file), 5000);
  assert_int_equal(hri_safetensors_find(file, "layers.2919.w1"), 1);
  hri_safetensors_close(file);
  put_many(100000, true);
  begin = cpu_seconds();
  assert_int_equal(hri_safetensors_open(in_directory("many.safetensors"), &file, &error), HR_ERROR_INPUT);
  assert_says(&error, "overlap at data byte 0");
  assert_true(cpu_seconds() - begin < 5);
}

/* Metadata is carried from file to file, so what is written may have come from a header made to be slow. */
static void test_many_metadata(void **state) {
  enum { MANY = 200000 };
  hri_safetensors_pair *pairs = calloc(MANY, sizeof *pairs);
  char *keys = malloc((size_t)MANY * 16);
  hri_safetensors_writer *writer = NULL;
  hr_error error = {0};
  double begin;
  (void)state;
  for (size_t i = 0; i < MANY; i++) {
    (void)snprintf(keys + i * 16, 16, "key%zu", i * 7919 % MANY);
    pairs[i] = (hri_safetensors_pair){keys + i * 16, ""};
  }
  begin = cpu_seconds();
  assert_int_equal(hri_safetensors_writer_open(in_directory("many-pairs.safetensors"), NULL, 0, pairs, MANY, &writer,
                                               &error),
                   HR_OK);
  assert_true(cpu_seconds() - begin < 10);
  assert_int_equal(hri_safetensors_writer_finish(writer, NULL, &error), HR_OK);
  pairs[MANY - 1].key = pairs[0].key;
  assert_int_equal(hri_safetensors_writer_open(in_directory("twice.safetensors"), NULL, 0, pairs, MANY, &writer,
                                               &error),
                   HR_ERROR_USAGE);
  assert_says(&error, "the metadata key 'key0' is given twice");
  free(pairs);
  free(keys);
}

/* ---- Writing ---- */

/* The seven tensors of `golden`, in the order in which safetensors' save_file got them. */
static const hri_safetensor tensors[] = {
    {"z.bias", HRI_FILE_F32, 1, {2}, 0, 0},
    {"a.weight", HRI_FILE_BF16, 2, {2, 2}, 0, 0},
    {"Z", HRI_FILE_F32, 0, {0}, 0, 0},
    {"b", HRI_FILE_BOOL, 1, {3}, 0, 0},
    {"i", HRI_FILE_I64, 1, {1}, 0, 0},
    {"h", HRI_FILE_F16, 2, {0, 3}, 0, 0},
    {"q\"\n\xC3\xA9", HRI_FILE_U8, 1, {1}, 0, 0},
};
static const char *const contents[] =
    {"\0\0\xC0\x3F\0\0\0\xC0", "\x80\x3F\0\x40\x40\x40\x80\x40", "\0\0\0\0", "\1\0\1", "\7\0\0\0\0\0\0\0", "", "\x09"};
static const uint64_t sizes[] = {8, 8, 4, 3, 8, 0, 1};
enum { TENSORS = sizeof tensors / sizeof *tensors };

/* Recorded from safetensors 0.8.0: save_file({"z.bias": [1.5, -2], "a.weight": bf16 [[1, 2], [3, 4]], "Z": 0., "b":
 * [True,
 * False, True], "i": [7], "h": f16 [0, 3], 'q"\n<e acute>': u8 [9]}, metadata={"format": "pt"}). */
static const char golden_header[] =
    "{\"__metadata__\":{\"format\":\"pt\"},\"i\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]},\"Z\":{\"dtype\":\"F32\","
    "\"shape\":[],\"data_offsets\":[8,12]},\"z.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[12,20]},\"a.weight\":{"
    "\"dtype\":\"BF16\",\"shape\":[2,2],\"data_offsets\":[20,28]},\"h\":{\"dtype\":\"F16\",\"shape\":[0,3],\"data_offsets\":[28,28]},"
    "\"q\\\"\\n\xC3\xA9\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[28,29]},\"b\":{\"dtype\":\"BOOL\",\"shape\":[3],"
    "\"data_offsets\":[29,32]}}    ";
static const char golden_data[] =
    "\7\0\0\0\0\0\0\0\0\0\0\0\0\0\xC0\x3F\0\0\0\xC0\x80\x3F\0\x40\x40\x40\x80\x40\x09\1\0\1";

static void assert_golden(const char *path) {
  uint64_t length;
  size_t count;
  char *bytes = get_file(path, &count);
  assert_non_null(bytes);
  memcpy(&length, bytes, 8);
  assert_true(length == sizeof golden_header - 1 && length % 8 == 0);
  assert_true(count == 8 + length + sizeof golden_data - 1);
  assert_memory_equal(bytes + 8, golden_header, length);
  assert_memory_equal(bytes + 8 + length, golden_data, sizeof golden_data - 1);
  free(bytes);
}

static hr_status write_listed(const char *path, hri_file_list *files, hr_error *error) {
  hri_safetensors_writer *writer;
  hr_status status;
  uint32_t i;
  HRI_TRY(hri_safetensors_writer_open(path, tensors, TENSORS, NULL, 0, &writer, error));
  for (i = 0; i < TENSORS; i++) {
    uint64_t half = sizes[i] / 2; /* two pieces, the second first */
    status = hri_safetensors_writer_write(writer, i, half, contents[i] + half, sizes[i] - half, error);
    if (status == HR_OK) status = hri_safetensors_writer_write(writer, i, 0, contents[i], half, error);
    if (status == HR_OK) continue;
    hri_safetensors_writer_abort(writer);
    return status;
  }
  return hri_safetensors_writer_finish(writer, files, error);
}

static hr_status write_all(const char *path, hr_error *error) { return write_listed(path, NULL, error); }

static void test_write_golden(void **state) {
  const char *path = in_directory("golden.safetensors");
  hr_error error = {0};
  (void)state;
  if (write_all(path, &error) != HR_OK) fail_msg("%s", error.message);
  assert_golden(path);
  assert_int_equal(unlink(path), 0);
}

/* What the writer tells of its file is what one pass over the file gives; and reading it, in pieces, the unread ones at
 * the end. */
static void test_write_and_read_digest(void **state) {
  const char *path = in_directory("digest.safetensors");
  hri_safetensors *file = NULL;
  hri_file_list written = {0}, read = {0};
  hr_error error = {0};
  uint64_t bytes, value, live = hri_mem_live_bytes();
  char piece[8];
  (void)state;
  if (write_listed(path, &written, &error) != HR_OK) fail_msg("%s", error.message);
  assert_int_equal(hri_file_digest_read(path, &bytes, &value, &error), HR_OK);
  assert_int_equal(written.count, 1);
  assert_string_equal(written.items[0].name, "digest.safetensors");
  assert_true(written.items[0].bytes == bytes && written.items[0].digest == value);
  for (int reads = 0; reads < 3; reads++) { /* of no tensor, of some in pieces, of a part only */
    assert_int_equal(hri_safetensors_open(path, &file, &error), HR_OK);
    assert_int_equal(hri_safetensors_digest_end(file, &read, &error), HR_ERROR_INTERNAL); /* not begun */
    assert_int_equal(hri_safetensors_digest_begin(file, &error), HR_OK);
    for (uint32_t k = 0; k < 4 && reads > 0; k++) {
      uint64_t all = hri_safetensors_get(file, k)->end - hri_safetensors_get(file, k)->begin;
      assert_int_equal(hri_safetensors_read(file, k, all / 2, all - all / 2, piece, &error), HR_OK);
      if (reads == 1) assert_int_equal(hri_safetensors_read(file, k, 0, all / 2, piece, &error), HR_OK);
    }
    assert_int_equal(hri_safetensors_digest_end(file, &read, &error), reads < 2 ? HR_OK : HR_ERROR_INTERNAL);
    hri_safetensors_close(file);
    if (reads < 2) assert_memory_equal(&read.items[reads], &written.items[0], sizeof written.items[0]);
  }
  assert_says(&error, "digest.safetensors: ");
  hri_array_free(&written);
  hri_array_free(&read);
  assert_true(hri_mem_live_bytes() == live);
}

static void test_write_metadata(void **state) {
  static const hri_safetensors_pair pairs[] = {{"step", "7"}, {"quote", "\"\xFF"}}, own[] = {{"format", "np"}},
                                    twice[] = {{"k", "1"}, {"k", "2"}};
  const char *path = in_directory("meta.safetensors");
  hri_safetensors_writer *writer = NULL;
  hri_safetensors *file = NULL;
  hr_error error = {0};
  (void)state;
  assert_int_equal(hri_safetensors_writer_open(path, NULL, 0, pairs, 2, &writer, &error), HR_OK);
  assert_true(hri_safetensors_writer_file_bytes(writer) % 8 == 0);
  assert_int_equal(hri_safetensors_writer_finish(writer, NULL, &error), HR_OK);
  assert_int_equal(hri_safetensors_open(path, &file, &error), HR_OK);
  assert_string_equal(hri_safetensors_metadata_get(file, 0).key, "format");
  assert_string_equal(hri_safetensors_metadata_find(file, "format"), "pt");
  assert_string_equal(hri_safetensors_metadata_find(file, "step"), "7");
  assert_string_equal(hri_safetensors_metadata_find(file, "quote"), "\"\xEF\xBF\xBD");
  hri_safetensors_close(file);
  assert_int_equal(unlink(path), 0);
  assert_int_equal(hri_safetensors_writer_open(path, NULL, 0, own, 1, &writer, &error), HR_OK);
  assert_int_equal(hri_safetensors_writer_finish(writer, NULL, &error), HR_OK);
  assert_int_equal(hri_safetensors_open(path, &file, &error), HR_OK);
  assert_int_equal(hri_safetensors_metadata_count(file), 1);
  assert_string_equal(hri_safetensors_metadata_find(file, "format"), "np");
  hri_safetensors_close(file);
  assert_int_equal(hri_safetensors_writer_open(path, NULL, 0, twice, 2, &writer, &error), HR_ERROR_USAGE);
}

static void test_write_refuses(void **state) {
  static const struct {
    hri_safetensor tensors[2];
    const char *message;
  } cases[] = {
      {{{"a", HRI_FILE_F32, 1, {1}, 0, 0}, {"a", HRI_FILE_U8, 1, {1}, 0, 0}}, "two tensors are named 'a'"},
      {{{"a", HRI_FILE_F32, 1, {1}, 0, 0}, {"__metadata__", HRI_FILE_U8, 1, {1}, 0, 0}}, "cannot name a tensor"},
      {{{"a", HRI_FILE_F32, 1, {1}, 0, 0}, {"\xFF", HRI_FILE_U8, 1, {1}, 0, 0}}, "cannot name a tensor"},
      {{{"a", HRI_FILE_F32, 1, {1}, 0, 0}, {NULL, HRI_FILE_U8, 1, {1}, 0, 0}}, "cannot name a tensor"},
      {{{"a", HRI_FILE_F32, 1, {1}, 0, 0}, {"b", HRI_FILE_F4, 1, {1}, 0, 0}}, "tensor 'b' has a shape or dtype"},
      {{{"a", HRI_FILE_F32, 1, {1}, 0, 0}, {"b", HRI_FILE_F32, 2, {UINT64_MAX, 2}, 0, 0}},
       "tensor 'b' has a shape or dtype"},
      {{{"a", HRI_FILE_F32, 1, {1}, 0, 0}, {"b", HRI_FILE_F32, 9, {1}, 0, 0}}, "tensor 'b' has a shape or dtype"},
      {{{"a", HRI_FILE_U8, 1, {1ull << 60}, 0, 0}, {"b", HRI_FILE_U8, 1, {1}, 0, 0}}, "too large for a file"},
  };
  const char *path = in_directory("refused.safetensors");
  size_t i;
  (void)state;
  for (i = 0; i < sizeof cases / sizeof *cases; i++) {
    hri_safetensors_writer *writer = NULL;
    hr_error error = {0};
    assert_int_equal(hri_safetensors_writer_open(path, cases[i].tensors, 2, NULL, 0, &writer, &error), HR_ERROR_USAGE);
    assert_says(&error, cases[i].message);
    assert_null(writer);
    assert_false(hri_path_exists(path));
  }
}

/* Whatever goes wrong, the file goes, and one that stood there stays. */
static void test_write_incomplete(void **state) {
  const char *path = in_directory("kept.safetensors"), *other = in_directory("other.safetensors");
  hri_safetensors_writer *writer = NULL;
  hr_error error = {0};
  uint64_t live = hri_mem_live_bytes();
  uint32_t i;
  (void)state;
  assert_int_equal(write_all(path, &error), HR_OK);
  assert_int_equal(write_all(path, &error), HR_ERROR_IO);
  assert_says(&error, "kept.safetensors: File exists");
  assert_golden(path);
  assert_int_equal(hri_safetensors_writer_open(other, tensors, TENSORS, NULL, 0, &writer, &error), HR_OK);
  for (i = 0; i < TENSORS; i++)
    assert_int_equal(hri_safetensors_writer_write(writer, i, 0, contents[i], i == 3 ? 2 : sizes[i], &error), HR_OK);
  assert_true(hri_path_exists(other));
  assert_int_equal(hri_safetensors_writer_finish(writer, NULL, &error), HR_ERROR_INTERNAL);
  assert_says(&error, "tensor 'b' got 2 of its 3 bytes");
  assert_false(hri_path_exists(other));
  assert_int_equal(hri_safetensors_writer_open(other, tensors, TENSORS, NULL, 0, &writer, &error), HR_OK);
  assert_int_equal(hri_safetensors_writer_write(writer, 0, 4, contents[0], 5, &error), HR_ERROR_INTERNAL);
  assert_int_equal(hri_safetensors_writer_write(writer, 0, UINT64_MAX, contents[0], 2, &error), HR_ERROR_INTERNAL);
  assert_int_equal(hri_safetensors_writer_write(writer, TENSORS, 0, contents[0], 1, &error), HR_ERROR_INTERNAL);
  assert_int_equal(hri_safetensors_writer_write(writer, 0, 0, contents[0], 8, &error), HR_OK);
  assert_int_equal(hri_safetensors_writer_write(writer, 0, 0, contents[0], 1, &error),
                   HR_ERROR_INTERNAL); /* a ninth byte */
  hri_safetensors_writer_abort(writer);
  hri_safetensors_writer_abort(NULL);
  assert_false(hri_path_exists(other));
  assert_true(hri_mem_live_bytes() == live);
}

static void test_write_unwritable(void **state) {
  hri_safetensors_writer *writer = NULL;
  hr_error error = {0};
  (void)state;
  assert_int_equal(hri_safetensors_writer_open(in_directory("absent/x.safetensors"), tensors, TENSORS, NULL, 0, &writer,
                                               &error),
                   HR_ERROR_IO);
  assert_says(&error, "absent/x.safetensors");
  assert_int_equal(mkdir(in_directory("taken.safetensors"), 0700), 0);
  assert_int_equal(write_all(in_directory("taken.safetensors"), &error), HR_ERROR_IO);
  assert_says(&error, "taken.safetensors");
  assert_true(hri_path_is_dir(in_directory("taken.safetensors")));
}

/* A pipe stands for a file whose sync fails (EINVAL): the file is given up, whether it could be closed or not. */
static void test_failed_sync(void **state) {
  const char *path = in_directory("unsynced");
  hr_error error = {0};
  int ends[2], fd;
  (void)state;
  assert_int_equal(hri_file_create(path, &fd, &error), HR_OK);
  assert_int_equal(close(fd), 0);
  assert_int_equal(pipe(ends), 0);
  assert_int_equal(hri_file_finish(ends[1], path, HR_OK, &error), HR_ERROR_IO);
  assert_says(&error, "unsynced");
  assert_false(hri_path_exists(path));
  assert_int_equal(close(ends[0]), 0);
  assert_int_equal(hri_file_write_new(path, "text", 4, &error), HR_OK);
  assert_int_equal(hri_file_write_new(path, "other", 5, &error), HR_ERROR_IO);
  assert_says(&error, "unsynced: File exists");
  fd = open(path, O_RDONLY);
  error.code = HR_OK;
  assert_int_equal(hri_file_finish(fd, path, HR_ERROR_INPUT, &error),
                   HR_ERROR_INPUT); /* what went wrong before stays told */
  assert_int_equal(error.code, HR_OK);
  assert_false(hri_path_exists(path));
}

/* A limit on file sizes stands for a full disk: the same calls fail, with another errno. */
static void test_write_full_disk(void **state) {
  static const hri_safetensor large[] = {{"a", HRI_FILE_F32, 1, {1 << 20}, 0, 0}};
  const char *path = in_directory("full.safetensors");
  hri_safetensors_writer *writer = NULL;
  hr_error error = {0};
  struct rlimit old, small;
  void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
  hr_status status;
  (void)state;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
  small = old;
  small.rlim_cur = 1 << 16;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  status = hri_safetensors_writer_open(path, large, 1, NULL, 0, &writer, &error);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
  assert_int_equal(status, HR_ERROR_IO);
  assert_says(&error, "full.safetensors");
  assert_non_null(strstr(error.hint, "4.00 MiB"));
  assert_false(hri_path_exists(path));

  /* and in the middle: the first bytes go through, then none */
  assert_int_equal(hri_safetensors_writer_open(path, large, 1, NULL, 0, &writer, &error), HR_OK);
  assert_int_equal(hri_safetensors_writer_write(writer, 0, 0, golden_header, 64, &error), HR_OK);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  status = hri_safetensors_writer_write(writer, 0, 1 << 20, golden_header, 64, &error);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
  assert_int_equal(status, HR_ERROR_IO);
  hri_safetensors_writer_abort(writer);
  assert_false(hri_path_exists(path));
  (void)signal(SIGXFSZ, handler);
}

/* ---- Refused memory ---- */

static void test_refused_memory(void **state) {
  static const char header[] =
      "{\"__metadata__\":{\"format\":\"pt\"},\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]},"
      "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}";
  const char *read = put_header(header, sizeof header - 1, 2), *written = in_directory("memory.safetensors");
  uint64_t n, live = hri_mem_live_bytes();
  hr_status status = HR_ERROR_MEMORY;
  (void)state;
  for (n = 1; status != HR_OK; n++) {
    hri_safetensors *file = NULL;
    hr_error error = {0};
    assert_true(n < 100);
    hri_mem_fail_after(n);
    status = hri_safetensors_open(read, &file, &error);
    hri_mem_fail_after(0);
    hri_safetensors_close(file);
    assert_true(status == HR_OK || (status == HR_ERROR_MEMORY && error.message[0]));
    assert_true(hri_mem_live_bytes() == live);
  }
  assert_true(n > 8);
  status = HR_ERROR_MEMORY;
  for (n = 1; status != HR_OK; n++) {
    hr_error error = {0};
    assert_true(n < 100);
    hri_mem_fail_after(n);
    status = write_all(written, &error);
    hri_mem_fail_after(0);
    assert_true(status == HR_OK || (status == HR_ERROR_MEMORY && error.message[0]));
    assert_true(hri_path_exists(written) == (status == HR_OK));
    assert_true(hri_mem_live_bytes() == live);
  }
  assert_true(n > 8);
  assert_golden(written);
}

int main(void) {
  const struct CMUnitTest tests_[] = {
      cmocka_unit_test(test_malformed),
      cmocka_unit_test(test_malformed_length),
      cmocka_unit_test(test_not_a_file),
      cmocka_unit_test(test_accepted),
      cmocka_unit_test(test_read),
      cmocka_unit_test(test_many_tensors),
      cmocka_unit_test(test_write_golden),
      cmocka_unit_test(test_write_and_read_digest),
      cmocka_unit_test(test_write_metadata),
      cmocka_unit_test(test_write_refuses),
      cmocka_unit_test(test_write_incomplete),
      cmocka_unit_test(test_write_unwritable),
      cmocka_unit_test(test_write_full_disk),
      cmocka_unit_test(test_failed_sync),
      cmocka_unit_test(test_refused_memory),
      cmocka_unit_test(test_many_metadata),
  };
  return cmocka_run_group_tests(tests_, make_directory, remove_directory);
}
