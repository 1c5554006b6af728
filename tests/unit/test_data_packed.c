/* Packed data files (src/data/unpack.h): rows of a file in gzip or zstd are those of the file itself, whatever its size,
 * its members and the format; damage is told, never read over; what unpacks to far more than it is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sys/stat.h>
#include <zlib.h>
#include <zstd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/text.h"
#include "data/dataset.h"
#include "data/unpack.h"
#include "support/datasets.h"
#include "support/files.h"

/* ---- files ---- */

typedef struct bytes {
  char *at;
  size_t count;
} bytes;

static bytes copy_of(const void *at, size_t count) {
  bytes b = {.at = malloc(count + 1), .count = count};
  assert_non_null(b.at);
  memcpy(b.at, at, count);
  return b;
}

static bytes text(const char *at) { return copy_of(at, strlen(at)); }

static bytes joined(bytes a, bytes b) {
  bytes both = {.at = malloc(a.count + b.count + 1), .count = a.count + b.count};
  assert_non_null(both.at);
  memcpy(both.at, a.at, a.count);
  memcpy(both.at + a.count, b.at, b.count);
  free(a.at);
  free(b.at);
  return both;
}

static const char *write_bytes(const char *name, bytes b) {
  const char *path = write_file(name, b.at, b.count);
  free(b.at);
  return path;
}

static bytes gzip_of(bytes plain) {
  z_stream z = {0};
  bytes packed = {.at = malloc(plain.count + plain.count / 100 + 100)};
  assert_non_null(packed.at);
  assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  z.next_in = (Bytef *)plain.at;
  z.avail_in = (uInt)plain.count;
  z.next_out = (Bytef *)packed.at;
  z.avail_out = (uInt)(plain.count + plain.count / 100 + 100);
  assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
  packed.count = z.total_out;
  (void)deflateEnd(&z);
  free(plain.at);
  return packed;
}

static bytes zstd_of(bytes plain) {
  bytes packed = {.at = malloc(ZSTD_compressBound(plain.count))};
  assert_non_null(packed.at);
  packed.count = ZSTD_compress(packed.at, ZSTD_compressBound(plain.count), plain.at, plain.count, 3);
  assert_false(ZSTD_isError(packed.count));
  free(plain.at);
  return packed;
}

static bytes (*const packers[])(bytes plain) = {gzip_of, zstd_of};
static const char *const endings[] = {".gz", ".zst"};
enum { PACKERS = 2, ROW = 64, END = 300 };

/* ---- data sets ---- */

static hri_dataset_options options_for(const char *const *path) {
  hri_dataset_options options = {.paths = path,
                                 .path_count = 1,
                                 .sequence = ROW,
                                 .vocabulary = 1000,
                                 .eos_token = END,
                                 .packing = HR_PACKING_WRAPPED,
                                 .cache_directory = directory,
                                 .chat = "chatml"};
  return options;
}

static void same_rows(const hri_dataset_options *one, const hri_dataset_options *two) {
  hri_dataset *a = open_ok(one), *b = open_ok(two);
  hr_error error;
  assert_int_equal(hri_dataset_row_count(a), hri_dataset_row_count(b));
  assert_int_equal(hri_dataset_label_count(a), hri_dataset_label_count(b));
  for (uint64_t row = 0; row < hri_dataset_row_count(a); row++) {
    int32_t values[2][4][ROW];
    assert_int_equal(hri_dataset_row(a, row, values[0][0], values[0][1], values[0][2], values[0][3], NULL, &error), 0);
    assert_int_equal(hri_dataset_row(b, row, values[1][0], values[1][1], values[1][2], values[1][3], NULL, &error), 0);
    assert_memory_equal(values[0], values[1], sizeof values[0]);
  }
  hri_dataset_destroy(a);
  hri_dataset_destroy(b);
}

/* ---- gzip and zstd ---- */

static void packed_rows_are_those_of_the_file(void **state) {
  static const struct {
    const char *name, *content;
  } cases[] = {
      {"a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}"},
      {"a.JSON", "[{\"prompt\": \"q\", \"completion\": \"a\"}]"},
      {"a.jsonl", "\xEF\xBB\xBF{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, "
                  "{\"role\": \"assistant\", \"content\": \"a\"}]}\n"},
      {"a.jsonl", "{\"input_ids\": [1, 2, 3]}\n"},
      {"a.txt", "plain text, of which some is read in place\nand some is not\n"},
      {"a.md", ""},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int p = 0; p < PACKERS; p++) {
      const char *more = write_bytes("more.txt", text("more text")), *one[2], *two[2];
      hri_dataset_options plain = options_for(one), packed = options_for(two);
      char name[32];
      (void)snprintf(name, sizeof name, "%s%s", cases[i].name, endings[p]);
      one[1] = two[1] = more; /* the empty file needs one beside it */
      one[0] = write_bytes(cases[i].name, text(cases[i].content));
      two[0] = write_bytes(name, packers[p](text(cases[i].content)));
      plain.path_count = packed.path_count = 2;
      same_rows(&plain, &packed);
      two[0] = write_bytes(cases[i].name, packers[p](text(cases[i].content))); /* the bytes tell, not the name */
      one[0] = write_bytes("b.jsonl", text(cases[i].content));
      if (strstr(cases[i].name, "jsonl")) same_rows(&plain, &packed);
    }
}

/* Many buffers of both sides, in several members or frames, with what either kind allows between them. */
static void long_files_come_whole(void **state) {
  static const char skippable[] = "\x50\x2A\x4D\x18\x04\0\0\0abcd";
  hri_text content = {0};
  uint32_t word[4];
  (void)state;
  for (uint64_t i = 0; i < 30000; i++) {
    hri_philox(3, 4, i, word);
    hri_text_add(&content, "{\"text\": \"%x %x %x\"}\n", word[0], word[1], word[2]);
  }
  for (int p = 0; p < PACKERS; p++) {
    const char *one = write_bytes("long.jsonl", copy_of(content.chars, content.length)), *two;
    hri_dataset_options plain = options_for(&one), packed = options_for(&two);
    size_t half = content.length / 2;
    bytes parts = joined(packers[p](copy_of(content.chars, half)), packers[p](text("")));
    if (p == 1) parts = joined(parts, copy_of(skippable, sizeof skippable - 1));
    parts = joined(parts, packers[p](copy_of(content.chars + half, content.length - half)));
    if (p == 0) parts = joined(parts, copy_of("\0\0\0", 3)); /* padding of a tape */
    two = write_bytes("long.jsonl.packed", parts);
    packed.format = HR_DATA_TEXT_FIELD;
    plain.format = HR_DATA_TEXT_FIELD;
    same_rows(&plain, &packed);
  }
  hri_text_deinit(&content);
}

static void damage_is_told(void **state) {
  const char *row = "{\"text\": \"some text that is long enough to be packed into more than a few bytes\"}\n";
  (void)state;
  for (int p = 0; p < PACKERS; p++) {
    bytes whole = packers[p](text(row));
    const char *path;
    hri_dataset_options options = options_for(&path);
    size_t first = p == 0 ? 3 : 4;
    options.skip_bad = true; /* it is no matter of rows */
    for (size_t cut = first; cut < whole.count; cut++) {
      path = write_bytes("cut.jsonl", copy_of(whole.at, cut));
      open_fails(&options,
                 p == 0 ? "cut.jsonl is a damaged gzip file: " : "cut.jsonl is a damaged zstd file: ", "anew");
    }
    path = write_bytes("more.jsonl", joined(copy_of(whole.at, whole.count), text("x")));
    open_fails(&options, p == 0 ? "something else stands behind its end" : "more.jsonl is a damaged zstd file", "anew");
    if (p == 0) { /* its checksum, and its length */
      for (size_t at = whole.count - 8; at < whole.count; at++) {
        bytes bad = copy_of(whole.at, whole.count);
        bad.at[at] ^= 1;
        path = write_bytes("sum.jsonl", bad);
        open_fails(&options, at < whole.count - 4 ? "incorrect data check" : "incorrect length check", "anew");
      }
    }
    free(whole.at);
  }
}

static void bombs_are_refused(void **state) {
  enum { BLOWN = 66 << 20 };
  (void)state;
  for (int p = 0; p < PACKERS; p++) {
    bytes blank = {.at = malloc(BLOWN), .count = BLOWN};
    const char *path;
    hri_dataset_options options = options_for(&path);
    assert_non_null(blank.at);
    memset(blank.at, ' ', BLOWN);
    blank.at[0] = '[';
    path = write_bytes("bomb.json", packers[p](blank));
    open_fails(&options,
               p == 0 ? "of this gzip file unpack to more than 500 times as many"
                      : "of this zstd file unpack to more than 500 times as many",
               "unpack it first");
  }
  { /* a window of a gigabyte, which would be held */
    static const char wide[] = "\x28\xB5\x2F\xFD\x00\xA0\x01\x00\x00";
    const char *path = write_bytes("wide.jsonl.zst", copy_of(wide, sizeof wide - 1));
    hri_dataset_options options = options_for(&path);
    open_fails(&options, "wide.jsonl.zst: unpacking this zstd file takes more than 128 MiB of memory", "--long=31");
  }
}

static void what_is_not_unpacked(void **state) {
  const char *path = write_bytes("ids.bin.gz", gzip_of(text("abcdefgh")));
  hri_dataset_options options = options_for(&path);
  (void)state;
  open_fails(&options, "ids.bin.gz: token bins are read in place, and this one is a gzip file", "unpack it first");
  path = write_bytes("twice.jsonl.gz", gzip_of(gzip_of(text("{\"text\": \"a\"}"))));
  open_fails(&options, "twice.jsonl.gz is a gzip file, not text", "unpack it first");
  { /* the beginning of an archive */
    bytes tar = {.at = calloc(1, 512), .count = 512};
    assert_non_null(tar.at);
    memcpy(tar.at, "a.jsonl", 7);
    memcpy(tar.at + 257, "ustar", 5);
    path = write_bytes("set.tar.gz", gzip_of(tar));
    open_fails(&options, "set.tar.gz is a tar file, not text", "unpack it first");
  }
  path = write_bytes("ids.bin", copy_of("\x1F\x00\x08\x00\x28\x00", 6)); /* bare ids, whatever they look like */
  hri_dataset_destroy(open_ok(&options));
  path = write_bytes("table.csv.gz", gzip_of(text("a,b\n")));
  open_fails(&options, "table.csv.gz is a table", "JSONL");
}

/* Another ending inside is another entry of the cache; the same file is found again. */
static void the_cache_tells_them_apart(void **state) {
  bytes packed = gzip_of(text("{\"text\": \"a b c\"}\n"));
  const char *path, *store = directory;
  hri_dataset_options options = options_for(&path);
  uint64_t hashes[3];
  char note[3][512];
  (void)state;
  options.store_directory = store;
  for (int i = 0; i < 3; i++) {
    hri_dataset *dataset;
    path = write_bytes(i == 1 ? "c.txt.gz" : "c.jsonl.gz", copy_of(packed.at, packed.count));
    dataset = open_ok(&options);
    hashes[i] = hri_dataset_hash(dataset);
    (void)snprintf(note[i], sizeof note[i], "%s", hri_dataset_note(dataset));
    hri_dataset_destroy(dataset);
  }
  assert_int_equal(hashes[0], hashes[2]);
  assert_int_not_equal(hashes[0], hashes[1]);
  assert_null(strstr(note[0], "from the cache"));
  assert_null(strstr(note[1], "from the cache"));
  assert_non_null(strstr(note[2], "from the cache"));
  free(packed.at);
}

static void directories_hold_packed_files(void **state) {
  char path[300];
  const char *name = path;
  hri_dataset_options options = options_for(&name);
  hri_dataset *dataset;
  (void)state;
  (void)snprintf(path, sizeof path, "%s/set", directory);
  assert_int_equal(mkdir(path, 0700), 0);
  (void)write_bytes("set/a.jsonl.gz", gzip_of(text("{\"text\": \"a\"}")));
  (void)write_bytes("set/b.TXT.ZST", zstd_of(text("b")));
  (void)write_bytes("set/c.gz", gzip_of(text("c")));
  (void)write_bytes("set/.d.txt.gz", gzip_of(text("d")));
  dataset = open_ok(&options);
  assert_int_equal(hri_dataset_document_count(dataset), 2);
  hri_dataset_destroy(dataset);
}

static void refused_memory_is_a_clean_error(void **state) {
  (void)state;
  for (int p = 0; p < PACKERS; p++) {
    const char *path = write_bytes("m.jsonl", packers[p](text("{\"text\": \"a\"}\n")));
    hri_dataset_options options = options_for(&path);
    uint64_t live = hri_mem_live_bytes(), nth;
    for (nth = 1;; nth++) {
      hri_dataset *dataset = NULL;
      hr_error error = {0};
      hr_status status;
      hri_mem_fail_after(nth);
      status = hri_dataset_open(&options, &dataset, &error);
      hri_mem_fail_after(0);
      hri_dataset_destroy(dataset);
      assert_int_equal(hri_mem_live_bytes(), live);
      if (status == HR_OK && nth > 10) break;
      if (status != HR_OK) assert_int_equal(status, HR_ERROR_MEMORY);
    }
    assert_true(nth > 10);
  }
}

#define TEST(name) cmocka_unit_test(name)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(packed_rows_are_those_of_the_file),
      TEST(long_files_come_whole),
      TEST(damage_is_told),
      TEST(bombs_are_refused),
      TEST(what_is_not_unpacked),
      TEST(the_cache_tells_them_apart),
      TEST(directories_hold_packed_files),
      TEST(refused_memory_is_a_clean_error),
  };
  return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
