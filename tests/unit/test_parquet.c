/* Parquet (src/formats/parquet.h) against what pyarrow wrote (tests/parquet/record.py): every row is the twin's, value for
 * value; what is not read is refused by name; a file that is cut or changed anywhere is an error or other rows, within
 * the memory that it had and without a read beyond a page (the sanitizers' build looks); refused memory is clean. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <fcntl.h>
#include <jansson.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "data/dataset.h"
#include "data/unpack.h"
#include "formats/parquet.h"
#include "formats/snappy.h"

static const char *const files[] = {
    "messages-none-1", "messages-none-2", "messages-snappy-1", "messages-snappy-2",
    "messages-gzip-1", "messages-gzip-2", "messages-zstd-1",   "messages-zstd-2",
    "messages-plain",  "messages-sums",   "text-large",        "text-snappy",
    "ids-dictionary",  "ids-plain",       "numbers-1",         "numbers-2",
    "deep-1",          "deep-2",          "required-1",
};
enum { FILES = sizeof files / sizeof *files, PATH_BYTES = 512 };

static const char *path_of(const char *name, const char *ending) {
  static char paths[4][PATH_BYTES];
  static unsigned next;
  char *path = paths[next++ % 4];
  (void)snprintf(path, PATH_BYTES, "%s/parquet/%s%s", HR_TEST_DATA, name, ending);
  return path;
}

static bool all(const char *name) {
  (void)name;
  return true;
}

static bool none(const char *name) {
  (void)name;
  return false;
}

static bool only_text(const char *name) { return strcmp(name, "text") == 0; }

/* ---- rows ---- */

/* "messages-zstd-1" has its rows in messages.jsonl. */
static FILE *open_twin(const char *name) {
  char base[64];
  FILE *file;
  (void)snprintf(base, sizeof base, "%.*s", (int)strcspn(name, "-"), name);
  file = fopen(path_of(base, ".jsonl"), "r");
  assert_non_null(file);
  return file;
}

static json_t *load(const char *text, size_t bytes) {
  json_error_t error;
  json_t *value = json_loadb(text, bytes, JSON_ALLOW_NUL, &error);
  if (!value) fail_msg("%s: %.*s", error.text, (int)bytes, text);
  return value;
}

/* Whole numbers above 2^63 are beyond jansson: such lines are compared as texts. */
static bool same_value(const char *line, const char *row) {
  json_t *a, *b;
  bool same;
  if (strstr(line, "\"u\": ")) {
    char packed[512];
    size_t used = 0;
    for (; *line; line++)
      if (*line != ' ') packed[used++] = *line;
    packed[used] = 0;
    return strncmp(packed, row, strstr(packed, ",\"f\"") - packed) ==
           0; /* real numbers come after it, and have a test of their own */
  }
  a = load(line, strlen(line));
  b = load(row, strlen(row));
  same = json_equal(a, b);
  json_decref(a);
  json_decref(b);
  return same;
}

static int open_file(const char *path, uint64_t *bytes) {
  hr_error error;
  int fd;
  if (hri_file_open_regular(path, &fd, bytes, &error) != HR_OK) fail_msg("%s", error.message);
  return fd;
}

static void rows_are_those_of_the_twin(void **state) {
  (void)state;
  for (size_t i = 0; i < FILES; i++) {
    const char *path = path_of(files[i], ".parquet");
    uint64_t bytes, rows = 0;
    int fd = open_file(path, &bytes);
    FILE *twin = open_twin(files[i]);
    hri_parquet *file;
    hri_text row = {0};
    hr_error error;
    char line[4096];
    bool more = true;
    if (hri_parquet_open(fd, path, bytes, all, &file, &error) != HR_OK) fail_msg("%s", error.message);
    while (fgets(line, sizeof line, twin)) {
      row.length = 0;
      rows++;
      if (hri_parquet_row(file, &row, &more, &error) != HR_OK) fail_msg("%s", error.message);
      assert_true(more);
      if (!same_value(line, hri_text_get(&row))) fail_msg("%s, row %d: %s%s", path, (int)rows, line, row.chars);
    }
    assert_true(rows > 1);
    assert_int_equal(hri_parquet_row(file, &row, &more, &error), HR_OK);
    assert_false(more);
    hri_parquet_close(file);
    hri_text_deinit(&row);
    (void)fclose(twin);
    close(fd);
  }
}

/* Real numbers keep every bit: read back they are what was written. */
static void numbers_are_exact(void **state) {
  const char *path = path_of("numbers-2", ".parquet");
  uint64_t bytes;
  int fd = open_file(path, &bytes);
  hri_parquet *file;
  hri_text row = {0};
  hr_error error;
  bool more;
  (void)state;
  assert_int_equal(hri_parquet_open(fd, path, bytes, all, &file, &error), HR_OK);
  for (int i = 0; i < 20; i++) {
    row.length = 0;
    assert_int_equal(hri_parquet_row(file, &row, &more, &error), HR_OK);
    assert_true(strtod(strstr(row.chars, "\"d\":") + 4, NULL) == 1e300 / (i + 1));
    assert_true(strtod(strstr(row.chars, "\"f\":") + 4, NULL) == i / 4.0);
  }
  hri_parquet_close(file);
  hri_text_deinit(&row);
  close(fd);
}

/* Names of what is not wanted stand in the first row alone. */
static void only_wanted_columns_are_read(void **state) {
  static const struct {
    const char *file;
    bool (*wanted)(const char *name);
    const char *rows[3];
  } cases[] = {
      {"messages-none-1", none, {"{\"id\":null,\"messages\":null}\n", NULL}},
      {"text-large", only_text, {"{\"text\":\"one\"}\n", "{\"text\":\"\"}\n", "{\"text\":null}\n"}},
      {"refused-timestamp", none, {"{\"text\":null}\n", NULL}}, /* no reason to refuse it */
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *path = path_of(cases[i].file, ".parquet");
    uint64_t bytes;
    int fd = open_file(path, &bytes);
    hri_parquet *file;
    hr_error error;
    if (hri_parquet_open(fd, path, bytes, cases[i].wanted, &file, &error) != HR_OK) fail_msg("%s", error.message);
    for (int k = 0; k < 3; k++) {
      hri_text row = {0};
      bool more;
      assert_int_equal(hri_parquet_row(file, &row, &more, &error), HR_OK);
      assert_int_equal(more, cases[i].rows[k] != NULL);
      if (!more) break;
      assert_string_equal(row.chars, cases[i].rows[k]);
      hri_text_deinit(&row);
    }
    hri_parquet_close(file);
    close(fd);
  }
}

/* ---- errors ---- */

static void what_is_not_read_is_named(void **state) {
  static const char *const cases[][2] = {
      {"refused-lz4", "column 'text': the compression of this Parquet file, LZ4_RAW, is not read"},
      {"refused-brotli", "column 'text': the compression of this Parquet file, BROTLI, is not read"},
      {"refused-delta", "column 'text': the encoding of this Parquet file, DELTA_BYTE_ARRAY, is not read"},
      {"refused-date", "column 'text' is a date, which is not read"},
      {"refused-decimal", "column 'text' is a decimal, which is not read"},
      {"refused-timestamp", "column 'text' is a timestamp, which is not read"},
      {"refused-map", "column 'tools' is a map, which is not read"},
      {"refused-inside", "column 'messages.list.element.at' is a date, which is not read"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *path = path_of(cases[i][0], ".parquet");
    uint64_t bytes, live = hri_mem_live_bytes();
    int fd = open_file(path, &bytes);
    hri_parquet *file = NULL;
    hri_text row = {0};
    hr_error error = {0};
    bool more;
    hr_status status = hri_parquet_open(fd, path, bytes, all, &file, &error);
    if (status == HR_OK) status = hri_parquet_row(file, &row, &more, &error);
    assert_int_equal(status, HR_ERROR_INPUT);
    if (!strstr(error.message, cases[i][1]) || strncmp(error.message, path, strlen(path)) != 0 || !error.hint[0])
      fail_msg("%s (%s)", error.message, error.hint);
    hri_parquet_close(file);
    hri_text_deinit(&row);
    assert_int_equal(hri_mem_live_bytes(), live);
    close(fd);
  }
}

/* Reads all rows of a file in memory. */
static hr_status read_all(int fd, uint64_t bytes, hr_error *error) {
  hri_parquet *file = NULL;
  hri_text row = {0};
  bool more = true;
  hr_status status = hri_parquet_open(fd, "changed", bytes, all, &file, error);
  for (int rows = 0; status == HR_OK && more && rows < 1000; rows++) {
    row.length = 0;
    status = hri_parquet_row(file, &row, &more, error);
  }
  hri_parquet_close(file);
  hri_text_deinit(&row);
  return status;
}

static void check_changed(int fd, uint64_t bytes) {
  hr_error error = {0};
  hr_status status = read_all(fd, bytes, &error);
  if (status == HR_OK) return; /* other rows, or bytes that say nothing */
  if (status != HR_ERROR_INPUT || strncmp(error.message, "changed", 7) != 0 || !error.hint[0])
    fail_msg("%s: %s (%s)", hr_status_name(status), error.message, error.hint);
}

/* Every file is cut at every length; each byte gets three other values; and random bytes are put in many places. */
static void damage_is_never_fatal(void **state) {
  (void)state;
  for (size_t i = 0; i < FILES; i++) {
    uint64_t count, live = hri_mem_live_bytes();
    int source = open_file(path_of(files[i], ".parquet"), &count), fd = memfd_create("parquet", 0);
    uint8_t *bytes = malloc(count);
    uint32_t word[4];
    assert_true(fd >= 0 && bytes);
    assert_int_equal(pread(source, bytes, count, 0), count);
    assert_int_equal(pwrite(fd, bytes, count, 0), count);
    for (uint64_t cut = 0; cut < count; cut += count > 2000 ? 13 : 1) check_changed(fd, cut);
    for (uint64_t at = 0; at < count; at += count > 2000 ? 7 : 1)
      for (int k = 0; k < 3; k++) {
        uint8_t other = k == 0 ? (uint8_t)~bytes[at] : k == 1 ? (uint8_t)(bytes[at] + 1) : (uint8_t)(bytes[at] ^ 0x80);
        assert_int_equal(pwrite(fd, &other, 1, (off_t)at), 1);
        check_changed(fd, count);
        assert_int_equal(pwrite(fd, &bytes[at], 1, (off_t)at), 1);
      }
    for (uint64_t round = 0; round < 200; round++) {
      for (uint32_t k = 0; k < 4; k++) {
        hri_philox(11 + i, k, round, word);
        assert_int_equal(pwrite(fd, &word[1], 1, (off_t)(word[0] % count)), 1);
      }
      check_changed(fd, count);
      assert_int_equal(pwrite(fd, bytes, count, 0), count);
    }
    free(bytes);
    close(fd);
    close(source);
    assert_int_equal(hri_mem_live_bytes(), live);
  }
}

static void refused_memory_is_a_clean_error(void **state) {
  uint64_t bytes, live = hri_mem_live_bytes(), nth;
  int fd = open_file(path_of("deep-1", ".parquet"), &bytes);
  (void)state;
  for (nth = 1;; nth++) {
    hr_error error = {0};
    hr_status status;
    hri_mem_fail_after(nth);
    status = read_all(fd, bytes, &error);
    hri_mem_fail_after(0);
    assert_int_equal(hri_mem_live_bytes(), live);
    if (status == HR_OK) break;
    assert_int_equal(status, HR_ERROR_MEMORY);
  }
  assert_true(nth > 20);
  close(fd);
}

/* ---- as data ---- */

enum { ROW = 64 };

static hri_dataset *open_data(const char *const *path) {
  hri_dataset_options options = {.paths = path,
                                 .path_count = 1,
                                 .sequence = ROW,
                                 .vocabulary = 1000,
                                 .eos_token = 300,
                                 .packing = HR_PACKING_WRAPPED,
                                 .skip_bad = true,
                                 .chat = "chatml"};
  hri_dataset *dataset = NULL;
  hr_error error = {0};
  if (hri_dataset_open(&options, &dataset, &error) != HR_OK) fail_msg("%s", error.message);
  return dataset;
}

/* Rows of tokens, counts, and the broken rows with their numbers are those of the twin. */
static void data_is_that_of_the_twin(void **state) {
  static const char *const cases[][3] = {{"messages-zstd-2", "messages", "Parquet of messages, "},
                                         {"messages-none-1", "messages", "; 6 broken rows passed over: "},
                                         {"text-snappy", "text", "text-snappy.parquet:3: the field 'text' is missing"},
                                         {"ids-plain", "ids", "Parquet of token ids, "}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *paths[2] = {path_of(cases[i][0], ".parquet"), path_of(cases[i][1], ".jsonl")};
    hri_dataset *a = open_data(&paths[0]), *b = open_data(&paths[1]);
    hr_error error;
    if (!strstr(hri_dataset_note(a), cases[i][2])) fail_msg("%s", hri_dataset_note(a));
    assert_true(hri_dataset_row_count(a) > 0);
    assert_int_equal(hri_dataset_row_count(a), hri_dataset_row_count(b));
    assert_int_equal(hri_dataset_label_count(a), hri_dataset_label_count(b));
    assert_int_equal(hri_dataset_broken_count(a), hri_dataset_broken_count(b));
    assert_int_not_equal(hri_dataset_hash(a), hri_dataset_hash(b)); /* other bytes */
    for (uint64_t row = 0; row < hri_dataset_row_count(a); row++) {
      int32_t values[2][4][ROW];
      assert_int_equal(hri_dataset_row(a, row, values[0][0], values[0][1], values[0][2], values[0][3], NULL, &error),
                       0);
      assert_int_equal(hri_dataset_row(b, row, values[1][0], values[1][1], values[1][2], values[1][3], NULL, &error),
                       0);
      assert_memory_equal(values[0], values[1], sizeof values[0]);
    }
    hri_dataset_destroy(a);
    hri_dataset_destroy(b);
  }
}

static void bad_files_of_data_are_refused(void **state) {
  static const struct {
    const char *file;
    hr_data_format format;
    const char *message;
  } cases[] = {{"numbers-1", HR_DATA_AUTO,
                "numbers-1.parquet: no known fields in its first rows, but: b, n, u, v, s, f, d"},
               {"text-large", HR_DATA_TEXT, "text-large.parquet: the rows of a Parquet file are no plain text"},
               {"refused-date", HR_DATA_AUTO, "column 'text' is a date"},
               {"text-large", HR_DATA_MESSAGES, "text-large.parquet:1: the field 'messages' is missing"}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *path = path_of(cases[i].file, ".parquet");
    hri_dataset_options options = {.paths = &path,
                                   .path_count = 1,
                                   .sequence = ROW,
                                   .vocabulary = 1000,
                                   .format = cases[i].format,
                                   .chat = "chatml"};
    hri_dataset *dataset;
    hr_error error = {0};
    assert_int_equal(hri_dataset_open(&options, &dataset, &error), HR_ERROR_INPUT);
    if (!strstr(error.message, cases[i].message) || !error.hint[0]) fail_msg("%s (%s)", error.message, error.hint);
  }
}

/* Thousands of rows that are one entry of a dictionary: the file has 400 bytes, its rows 131 MB. */
static void bombs_are_refused(void **state) {
  hri_digest digest = {0};
  hri_reader reader;
  hr_error error = {0};
  hr_status status = hri_reader_open(&reader, path_of("bomb", ".parquet"), &digest, &error);
  (void)state;
  assert_int_equal(status, HR_OK);
  status = hri_reader_unpack(&reader, &error);
  while (status == HR_OK && !reader.at_end) {
    reader.next = reader.end;
    status = hri_reader_fill(&reader, &error);
  }
  assert_int_equal(status, HR_ERROR_INPUT);
  assert_non_null(strstr(error.message, "of this Parquet file unpack to more than 500 times as many"));
  assert_true(reader.offset <= HRI_UNPACK_FREE + HRI_READER_BYTES);
  hri_reader_close(&reader);
}

/* ---- files that no writer makes, byte by byte ---- */

#define SCHEMA "\x2C\x48\x01r\x15\x02\x00\x15\x0C\x25\x00\x18\x04text\x00" /* a required column of text */

enum { ROWS_BYTES = 64 };

/* A file with these bytes at its begin and its end, and zeros between that take no room; reads all of it. */
static hr_status read_made(const char *begin, size_t begin_bytes, uint64_t hole, const char *end, size_t end_bytes,
                           char rows[ROWS_BYTES], hr_error *error) {
  uint64_t live = hri_mem_live_bytes(), bytes = begin_bytes + hole + end_bytes;
  int fd = memfd_create("parquet", 0);
  hri_parquet *file = NULL;
  hri_text row = {0};
  bool more = true;
  hr_status status;
  assert_true(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
  assert_int_equal(pwrite(fd, begin, begin_bytes, 0), begin_bytes);
  assert_int_equal(pwrite(fd, end, end_bytes, (off_t)(bytes - end_bytes)), end_bytes);
  status = hri_parquet_open(fd, "made", bytes, all, &file, error);
  while (status == HR_OK && more) status = hri_parquet_row(file, &row, &more, error);
  hri_parquet_close(file);
  close(fd);
  (void)snprintf(rows, ROWS_BYTES, "%s", hri_text_get(&row));
  hri_text_deinit(&row);
  assert_int_equal(hri_mem_live_bytes(), live);
  return status;
}

/* A row group that stands in front of the schema has no column yet to be counted. */
static void fields_stand_in_any_order(void **state) {
  static const char before[] = "PAR1\x49\x1C\x36\x02\x00\x09\x04" SCHEMA "\x00\x1A\x00\x00\x00PAR1";
  hr_error error = {0};
  char rows[ROWS_BYTES];
  (void)state;
  assert_int_equal(read_made(before, sizeof before - 1, 0, "", 0, rows, &error), HR_ERROR_INPUT);
  assert_string_equal(error.message, "made is a damaged Parquet file: a row group has other columns than the schema");
}

/* 513 MiB that a page's header says, and a file that costs nothing has. */
static void long_pages_are_not_read(void **state) {
  static const char begin[] =
      "PAR1\x15\x00\x15\x12\x15\x80\x80\x80\x81\x04\x2C\x15\x02\x15\x00\x15\x06\x15\x06\x00\x00";
  static const char end[] =
      "\x15\x02\x19" SCHEMA "\x16\x02\x19\x1C\x19\x1C\x26\x00\x1C\x15\x0C\x35\x00\x16\x02\x16\xAA\x80\x80\x81\x04\x16"
      "\xAA\x80\x80\x81\x04\x26\x08\x00\x00\x16\x00\x16\x02\x00\x00\x3A\x00\x00\x00PAR1";
  hr_error error = {0};
  char rows[ROWS_BYTES];
  (void)state;
  assert_int_equal(read_made(begin, sizeof begin - 1, UINT64_C(513) << 20, end, sizeof end - 1, rows, &error),
                   HR_ERROR_INPUT);
  assert_non_null(strstr(error.message, "column 'text': a page is longer than any is"));
}

/* Compression.md: readers should take pages of several members. What stands behind the last byte that the page's header
 * promises, padding or anything else, is not looked at; members that end before it are a damaged page. */
#define GZIP_FILE(page_bytes, promised, chunk_bytes, behind)                                                           \
  "PAR1\x15\x00\x15" promised "\x15" page_bytes "\x2C\x15\x02\x15\x00\x15\x06\x15\x06\x00\x00"                         \
  "\x1F\x8B\x08\x00\x00\x00\x00\x00\x02\x03\x63\x65\x60\x60\xC8\x48\x05\x00\x68\x44\xF3\x71\x06"                       \
  "\x00\x00\x00\x1F\x8B\x08\x00\x00\x00\x00\x00\x02\x03\xCB\xC9\xC9\x07\x00\x34\xB3\xC9\xAA\x03"                       \
  "\x00\x00\x00" behind "\x15\x02\x19" SCHEMA                                                                          \
  "\x16\x02\x19\x1C\x19\x1C\x26\x00\x1C\x15\x0C\x35\x04\x16\x02\x16" chunk_bytes "\x01\x16" chunk_bytes "\x01\x26\x08" \
  "\x00\x00\x16\x00\x16\x02\x00\x00\x34\x00\x00\x00PAR1"
static void gzip_has_members(void **state) {
  static const char plain[] = GZIP_FILE("\x62", "\x12", "\x84", ""),
                    zeros[] = GZIP_FILE("\x68", "\x12", "\x8A", "\x00\x00\x00"),
                    other[] = GZIP_FILE("\x68", "\x12", "\x8A", "\x1F\x8B\x09"),
                    early[] = GZIP_FILE("\x68", "\x14", "\x8A", "\x00\x00\x00");
  static const struct {
    const char *bytes;
    size_t count;
  } made[] = {{plain, sizeof plain - 1}, {zeros, sizeof zeros - 1}, {other, sizeof other - 1}};
  hr_error error = {0};
  char rows[ROWS_BYTES];
  (void)state;
  for (size_t k = 0; k < sizeof made / sizeof *made; k++) {
    if (read_made(made[k].bytes, made[k].count, 0, "", 0, rows, &error) != HR_OK) fail_msg("%zu: %s", k, error.message);
    assert_string_equal(rows, "{\"text\":\"hello\"}\n");
  }
  assert_int_equal(read_made(early, sizeof early - 1, 0, "", 0, rows, &error), HR_ERROR_INPUT);
  assert_non_null(strstr(error.message, "a page cannot be unpacked"));
}

/* ---- Snappy, by hand ---- */

static void snappy_is_read_and_bounded(void **state) {
  static const struct {
    const char *packed;
    size_t count;
    const char *text; /* NULL: refused */
  } cases[] = {
      {"\x05\x10hello", 7, "hello"},
      {"\x0A\x04"
       "ab\x11\x02"
       "\x00"
       "",
       4, NULL}, /* a copy that is too short */
      {"\x08\x04"
       "ab\x09\x02",
       6, "abababab"}, /* 6 bytes from 2 before, over itself */
      {"\x06\x04"
       "ab\x0E\x02\x00",
       7, "ababab"}, /* the same with two bytes of distance */
      {"\x06\x04"
       "ab\x0F\x02\x00\x00\x00",
       9, "ababab"}, /* and with four */
      {"\x03\xF0\x02"
       "abc",
       6, "abc"},                 /* a literal with its length in a byte */
      {"\x05\x10hell", 6, NULL},  /* cut */
      {"\x06\x10hello", 7, NULL}, /* shorter than it says */
      {"\x04\x10hello", 7, NULL}, /* longer */
      {"\x06\x04"
       "ab\x0E\x03\x00",
       7, NULL}, /* from before its beginning */
      {"\x06\x04"
       "ab\x0E\x00\x00",
       7, NULL},                             /* from nowhere */
      {"\x80\x80\x80\x80\x80\x01", 6, NULL}, /* a length that has no end */
      {"", 0, NULL},
  };
  uint8_t to[16];
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    size_t bytes = cases[i].text ? strlen(cases[i].text) : (size_t)(unsigned char)cases[i].packed[0];
    bool good = hri_snappy_unpack((const uint8_t *)cases[i].packed, cases[i].count, to, bytes < 16 ? bytes : 16);
    if (good != (cases[i].text != NULL)) fail_msg("case %d", (int)i);
    if (good) assert_memory_equal(to, cases[i].text, bytes);
  }
}

#define TEST(name) cmocka_unit_test(name)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(rows_are_those_of_the_twin),
      TEST(numbers_are_exact),
      TEST(only_wanted_columns_are_read),
      TEST(what_is_not_read_is_named),
      TEST(damage_is_never_fatal),
      TEST(refused_memory_is_a_clean_error),
      TEST(data_is_that_of_the_twin),
      TEST(bad_files_of_data_are_refused),
      TEST(bombs_are_refused),
      TEST(fields_stand_in_any_order),
      TEST(long_pages_are_not_read),
      TEST(gzip_has_members),
      TEST(snappy_is_read_and_bounded),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
