/* The digest of a file against its definition, written down here once more; any pieces, orders and threads against one
 * pass; every flipped bit, swapped and moved block; bytes that are missing or come twice; logs that grow. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "formats/digest.h"
#include "support/scratch.h"
#include "support/team.h"

static const char *scratch;

static void assert_ok(hr_status status, const hr_error *error) {
  if (status != HR_OK) fail_msg("%s (%s)", error->message, error->hint);
}

static uint32_t seed = 11;
static uint32_t draw(uint32_t below) {
  return seed = seed * 1664525u + 1013904223u, (uint32_t)((uint64_t)seed * below >> 32);
}

static unsigned char *make_bytes(uint64_t count) {
  unsigned char *bytes = malloc(count + 1);
  assert_non_null(bytes);
  for (uint64_t k = 0; k < count; k++) bytes[k] = (unsigned char)draw(256);
  return bytes;
}

/* ---- the definition ---- */

static uint64_t mix(uint64_t a, uint64_t b) {
  a += (b + 1) * 0x9E3779B97F4A7C15u;
  a = (a ^ (a >> 30)) * 0xBF58476D1CE4E5B9u;
  a = (a ^ (a >> 27)) * 0x94D049BB133111EBu;
  return a ^ (a >> 31);
}

static uint64_t defined(const unsigned char *bytes, uint64_t count) {
  uint64_t sum = 0;
  for (uint64_t at = 0; at < count; at += 4096)
    sum += mix(XXH3_64bits(bytes + at, count - at < 4096 ? count - at : 4096), at / 4096);
  return mix(sum, count);
}

static const uint64_t sizes[] = {0, 1, 7, 1024, 4095, 4096, 4097, 8191, 8192, 20000, 65536, 262144, 262145, 1000003};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void test_definition(void **state) {
  (void)state;
  for (size_t k = 0; k < SIZES; k++) {
    unsigned char *bytes = make_bytes(sizes[k]);
    const char *path = path_of("%s/file", scratch);
    uint64_t count, value;
    hr_error error = {0};
    put_file(path, bytes, sizes[k]);
    assert_true(hri_file_digest_of(bytes, sizes[k]) == defined(bytes, sizes[k]));
    assert_ok(hri_file_digest_read(path, &count, &value, &error), &error);
    assert_true(count == sizes[k] && value == defined(bytes, sizes[k]));
    free(bytes);
  }
}

/* Recorded from a few lines of Python over the shared library: the definition may not change under files that are
 * there. */
static void test_known_values(void **state) {
  char text[HRI_DIGEST_TEXT_BYTES];
  unsigned char bytes[10000];
  (void)state;
  for (size_t k = 0; k < sizeof bytes; k++) bytes[k] = (unsigned char)(k * 7 + k / 256);
  hri_file_digest_text(hri_file_digest_of("", 0), text);
  assert_string_equal(text, "xxh3:e220a8397b1dcdaf");
  hri_file_digest_text(hri_file_digest_of("headroom", 8), text);
  assert_string_equal(text, "xxh3:f07d34e9eb003a48");
  hri_file_digest_text(hri_file_digest_of(bytes, sizeof bytes), text);
  assert_string_equal(text, "xxh3:632393517be22dc8");
}

static void test_text(void **state) {
  static const char *const wrong[] = {"",
                                      "xxh3:",
                                      "xxh3:0123456789abcde",
                                      "xxh3:0123456789abcdef0",
                                      "xxh3:0123456789abcdeF",
                                      "xxh3 0123456789abcdef",
                                      "sha2:0123456789abcdef",
                                      "xxh3:0123456789abcd f"};
  char text[HRI_DIGEST_TEXT_BYTES];
  uint64_t value = 7;
  (void)state;
  for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) assert_false(hri_file_digest_parse(wrong[k], &value));
  assert_true(value == 7);
  assert_true(hri_file_digest_parse("xxh3:0123456789abcdef", &value) && value == 0x0123456789ABCDEFu);
  hri_file_digest_text(0xFEDCu, text);
  assert_string_equal(text, "xxh3:000000000000fedc");
  assert_true(hri_file_digest_parse(text, &value) && value == 0xFEDCu);
}

/* ---- pieces ---- */

typedef struct piece {
  uint64_t at, count;
} piece;

/* Cuts of random places, some of them at granules, in random order; returns how many. */
static int cut(uint64_t count, piece *pieces, int most) {
  int used = 0;
  uint64_t at = 0;
  while (at < count) {
    uint64_t some = used + 1 == most ? count - at : 1 + draw(draw(3) ? 6000 : 60000);
    if (draw(3) == 0) some = hri_round_up(some, HRI_DIGEST_GRANULE);
    some = some < count - at ? some : count - at;
    pieces[used++] = (piece){at, some};
    at += some;
  }
  for (int k = used - 1; k > 0; k--) {
    int other = (int)draw((uint32_t)k + 1);
    piece kept = pieces[k];
    pieces[k] = pieces[other];
    pieces[other] = kept;
  }
  return used;
}

typedef struct addition {
  hri_file_digest *digest;
  const unsigned char *bytes;
  const piece *pieces;
  _Atomic int failed;
} addition;

static void add_piece(void *context, int64_t i, int64_t end, int thread) {
  addition *a = context;
  const piece *p = &a->pieces[i];
  (void)end, (void)thread;
  if (hri_file_digest_add(a->digest, p->at, a->bytes + p->at, p->count, NULL) != HR_OK) a->failed++;
}

static void test_any_pieces_and_threads(void **state) {
  enum { MOST = 4000, ROUNDS = 25 };
  static piece pieces[MOST];
  (void)state;
  for (size_t k = 0; k < SIZES; k++) {
    unsigned char *bytes = make_bytes(sizes[k]);
    uint64_t want = defined(bytes, sizes[k]);
    for (int round = 0; round < ROUNDS; round++) {
      int count = cut(sizes[k], pieces, MOST);
      hri_file_digest *digest;
      hr_error error = {0};
      uint64_t value = 0;
      assert_ok(hri_file_digest_create((uint32_t)round % 3, &digest, &error), &error);
      addition a = {.digest = digest, .bytes = bytes, .pieces = pieces};
      hri_team_in_order(team_of(round % 4 + 1), count, add_piece, &a);
      assert_int_equal(a.failed, 0);
      assert_true(hri_file_digest_bytes(digest) == sizes[k]);
      assert_ok(hri_file_digest_value(digest, sizes[k], &value, &error), &error);
      assert_true(value == want);
      hri_file_digest_destroy(digest);
    }
    free(bytes);
  }
}

static void test_single_bytes_backwards(void **state) {
  enum { COUNT = 13333 };
  unsigned char *bytes = make_bytes(COUNT);
  hri_file_digest *digest;
  hr_error error = {0};
  uint64_t value = 0;
  (void)state;
  assert_ok(hri_file_digest_create(0, &digest, &error), &error);
  for (uint64_t k = COUNT; k-- > 0;) {
    assert_ok(hri_file_digest_add(digest, k, bytes + k, 1, &error), &error);
    assert_ok(hri_file_digest_add(digest, k, bytes + k, 0, &error), &error); /* nothing is fine, anywhere */
  }
  assert_ok(hri_file_digest_value(digest, COUNT, &value, &error), &error);
  assert_true(value == defined(bytes, COUNT));
  hri_file_digest_destroy(digest);
  free(bytes);
}

/* ---- damage ---- */

static void test_every_flipped_bit(void **state) {
  enum { COUNT = 9000 };
  unsigned char *bytes = make_bytes(COUNT);
  uint64_t want = hri_file_digest_of(bytes, COUNT);
  (void)state;
  for (uint32_t bit = 0; bit < 8 * COUNT; bit++) {
    bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    assert_true(hri_file_digest_of(bytes, COUNT) != want);
    bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
  }
  assert_true(hri_file_digest_of(bytes, COUNT) == want);
  free(bytes);
}

/* What a sum without places or lengths would not see. */
static void test_moved_blocks_and_zeros(void **state) {
  enum { COUNT = 8 * 4096, BLOCK = 4096 };
  unsigned char *bytes = make_bytes(COUNT + BLOCK), *other = malloc(COUNT + BLOCK);
  uint64_t want = hri_file_digest_of(bytes, COUNT);
  (void)state;
  for (uint32_t a = 0; a < COUNT / BLOCK; a++)
    for (uint32_t b = 0; b < a; b++) {
      memcpy(other, bytes, COUNT);
      memcpy(other + a * BLOCK, bytes + b * BLOCK, BLOCK);
      assert_true(hri_file_digest_of(other, COUNT) != want); /* one over another */
      memcpy(other + b * BLOCK, bytes + a * BLOCK, BLOCK);
      assert_true(hri_file_digest_of(other, COUNT) != want); /* swapped */
    }
  memset(other, 0, COUNT);
  for (uint64_t n = 0; n < 20000; n++)
    assert_true(hri_file_digest_of(other, n) != hri_file_digest_of(other, n + 1)); /* zeros lost or added */
  assert_true(hri_file_digest_of(bytes, COUNT - BLOCK) != want && hri_file_digest_of(bytes, COUNT + BLOCK) != want);
  free(bytes);
  free(other);
}

/* ---- bytes that are missing, or come twice ---- */

typedef struct gift {
  uint64_t at, count;
} gift;

/* Of granules cut to 1024 bytes, so that the cases below read well. */
static hr_status value_of(const gift *gifts, uint64_t total) {
  static unsigned char bytes[4 * 8192];
  hri_file_digest *digest;
  hr_error error = {0};
  uint64_t value;
  hr_status status = HR_OK;
  assert_ok(hri_file_digest_create(1, &digest, &error), &error);
  for (; gifts->count && status == HR_OK; gifts++)
    status = hri_file_digest_add(digest, 4 * gifts->at, bytes + 4 * gifts->at, 4 * gifts->count, &error);
  if (status == HR_OK) status = hri_file_digest_value(digest, 4 * total, &value, &error);
  hri_file_digest_destroy(digest);
  return status;
}

static void test_missing_and_double(void **state) {
  static const struct {
    gift gifts[6];
    uint64_t total;
    bool whole;
  } cases[] = {
      {{{0, 4096}}, 4096, true},
      {{{0, 4095}}, 4095, true},
      {{{4000, 96}, {0, 4000}}, 4096, true},
      {{{0, 4096}}, 4095, false},               /* more than there is */
      {{{0, 4096}}, 5000, false},               /* the end is missing */
      {{{1024, 3072}}, 4096, false},            /* the begin */
      {{{0, 1024}, {3072, 1024}}, 4096, false}, /* whole granules between */
      {{{0, 1500}, {1600, 2496}}, 4096, false}, /* some bytes of one */
      {{{0, 1024}, {0, 1024}}, 2048, false},    /* one twice, another not */
      {{{0, 2048}, {1024, 1024}, {3072, 1024}}, 4096, false},
      {{{0, 1024}, {2048, 1024}, {2048, 1024}, {0, 1024}}, 4096, false},
      {{{0, 600}, {500, 424}}, 1024, false}, /* overlap in a granule, at once */
      {{{0, 600}, {0, 424}}, 1024, false},
      {{{0, 700}, {800, 224}, {100, 100}}, 1024, false},
      {{{0, 1024}, {1000, 24}, {1024, 1000}}, 2048, false}, /* into a granule that is complete */
      {{{0, 1024}, {2048, 976}}, 2000, false},              /* a tail in a wrong place */
      {{{0, 1024}, {1030, 970}}, 1994, false},
  };
  (void)state;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
    if (value_of(cases[k].gifts, cases[k].total) != (cases[k].whole ? HR_OK : HR_ERROR_INTERNAL))
      fail_msg("case %zu", k);
}

/* ---- logs ---- */

/* The digest of a file that grows is there at any length, and goes on from a part that is on disk. */
static void test_appending(void **state) {
  enum { COUNT = 60000 };
  unsigned char *bytes = make_bytes(COUNT);
  const char *path = path_of("%s/log", scratch);
  uint64_t begin = 0;
  (void)state;
  for (int round = 0; round < 5; round++) { /* each is a new process that finds `begin` bytes */
    hri_file_digest *digest;
    hr_error error = {0};
    uint64_t at = begin, value, end = begin + COUNT / 5;
    int fd;
    put_file(path, bytes, end); /* a longer file than what was taken */
    fd = open(path, O_RDONLY);
    assert_ok(hri_file_digest_create(1, &digest, &error), &error);
    assert_ok(hri_file_digest_add_file(digest, fd, path, begin, &error), &error);
    while (at < end) {
      uint64_t some = 1 + draw(3000);
      some = some < end - at ? some : end - at;
      assert_ok(hri_file_digest_add(digest, at, bytes + at, some, &error), &error);
      at += some;
      assert_ok(hri_file_digest_value(digest, at, &value, &error), &error);
      assert_true(value == defined(bytes, at));
    }
    hri_file_digest_destroy(digest);
    assert_ok(hri_file_digest_create(1, &digest, &error), &error);
    assert_int_equal(hri_file_digest_add_file(digest, fd, path, end + 1, &error),
                     HR_ERROR_INPUT); /* a file that lost its end */
    hri_file_digest_destroy(digest);
    assert_int_equal(close(fd), 0);
    begin = end;
  }
  free(bytes);
}

/* ---- files and lists ---- */

static void test_files_and_lists(void **state) {
  hri_file_list list = {0};
  hr_error error = {0};
  uint64_t count, value;
  (void)state;
  put_text(path_of("%s/a", scratch), "headroom");
  assert_ok(hri_file_list_add(NULL, "x", 1, 2, &error), &error);
  assert_ok(hri_file_list_read(NULL, "absent", &error), &error); /* nobody wants to know */
  assert_ok(hri_file_list_add(&list, "some/where/b.json", 12, 34, &error), &error);
  assert_ok(hri_file_list_read(&list, path_of("%s/a", scratch), &error), &error);
  assert_int_equal(list.count, 2);
  assert_true(hri_file_list_find(&list, "b.json")->digest == 34);
  assert_true(hri_file_list_find(&list, "a")->bytes == 8 &&
              hri_file_list_find(&list, "a")->digest == hri_file_digest_of("headroom", 8));
  assert_null(hri_file_list_find(&list, "b"));
  assert_int_equal(hri_file_list_read(&list, path_of("%s/absent", scratch), &error), HR_ERROR_IO);
  assert_int_equal(hri_file_digest_read(scratch, &count, &value, &error), HR_ERROR_INPUT);
  assert_int_equal(mkfifo(path_of("%s/fifo", scratch), 0600), 0);
  assert_int_equal(hri_file_digest_read(path_of("%s/fifo", scratch), &count, &value, &error), HR_ERROR_INPUT);
  hri_array_free(&list);
}

static hr_status take(const unsigned char *bytes, uint64_t count, hr_error *error) {
  hri_file_digest *digest;
  uint64_t value;
  hr_status status;
  HRI_TRY(hri_file_digest_create(2, &digest, error));
  for (uint64_t at = 0; at < count; at += 8192) { /* many granules wait */
    status = hri_file_digest_add(digest, at, bytes + at, 1000, error);
    if (status != HR_OK) goto out;
  }
  for (uint64_t at = 0; at < count; at += 8192) {
    status = hri_file_digest_add(digest, at + 1000, bytes + at + 1000, 7192, error);
    if (status != HR_OK) goto out;
  }
  status = hri_file_digest_value(digest, count, &value, error);
  assert_true(status != HR_OK || value == hri_file_digest_of(bytes, count));
out:
  hri_file_digest_destroy(digest);
  return status;
}

static void test_refused_memory(void **state) {
  enum { COUNT = 64 * 4096 };
  unsigned char *bytes = make_bytes(COUNT);
  uint64_t live = hri_mem_live_bytes(), n;
  hr_status status = HR_ERROR_MEMORY;
  (void)state;
  for (n = 1; status != HR_OK; n++) {
    hr_error error = {0};
    assert_true(n < 200);
    hri_mem_fail_after(n);
    status = take(bytes, COUNT, &error);
    hri_mem_fail_after(0);
    assert_true(status == HR_OK || (status == HR_ERROR_MEMORY && error.message[0]));
    assert_true(hri_mem_live_bytes() == live);
  }
  assert_true(n > 20);
  free(bytes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_definition),
      cmocka_unit_test(test_known_values),
      cmocka_unit_test(test_text),
      cmocka_unit_test(test_any_pieces_and_threads),
      cmocka_unit_test(test_single_bytes_backwards),
      cmocka_unit_test(test_every_flipped_bit),
      cmocka_unit_test(test_moved_blocks_and_zeros),
      cmocka_unit_test(test_missing_and_double),
      cmocka_unit_test(test_appending),
      cmocka_unit_test(test_files_and_lists),
      cmocka_unit_test(test_refused_memory),
  };
  int failed;
  scratch = scratch_make("digest");
  failed = cmocka_run_group_tests(tests, NULL, NULL);
  (void)hri_dir_remove(scratch, NULL);
  return failed;
}
