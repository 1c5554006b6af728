/* The cache of tokenized data (src/data/cache.c): the same rows from it as from the files; anything that decides tokens makes
 * another entry; damaged and foreign entries are made anew; what cannot be written leaves nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "data/dataset.h"
#include "data/words.h"

enum { ROW = 64 };

static char directory[256], store[300];

static const char *in_directory(const char *name) {
  static char paths[8][512];
  static unsigned next;
  char *path = paths[next++ % 8];
  (void)snprintf(path, 512, "%s/%s", directory, name);
  return path;
}

static const char *write_text(const char *name, const char *text) {
  const char *path = in_directory(name);
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
  assert_int_equal(fclose(file), 0);
  return path;
}

static int setup(void **state) {
  const char *base = getenv("TMPDIR");
  (void)state;
  (void)snprintf(directory, sizeof directory, "%s/hr-test-cache-XXXXXX", base && base[0] ? base : "/tmp");
  return mkdtemp(directory) ? 0 : 1;
}

static int teardown(void **state) {
  (void)state;
  return hri_dir_remove(directory, NULL) == HR_OK ? 0 : 1;
}

/* A fresh store for each test. */
static int fresh_store(void **state) {
  static int number;
  (void)state;
  (void)snprintf(store, sizeof store, "%s/store-%d/tokens", directory, number++);
  return 0;
}

static hri_dataset_options options_for(const char *const *paths, uint32_t count) {
  hri_dataset_options options = {.paths = paths, .path_count = count, .sequence = ROW, .vocabulary = 1000, .eos_token = 300, .packing = HR_PACKING_PACK,
                                 .cache_directory = directory, .chat = "chatml", .identity = 7, .store_directory = store};
  return options;
}

static hri_dataset *open_ok(const hri_dataset_options *options) {
  hri_dataset *dataset = NULL;
  hr_error error = {0};
  if (hri_dataset_open(options, &dataset, &error) != HR_OK) fail_msg("%s", error.message);
  return dataset;
}

static bool from_cache(const hri_dataset *dataset) { return strstr(hri_dataset_note(dataset), "from the cache") != NULL; }

/* Opens and closes; true when it came from the cache. */
static bool hits(const hri_dataset_options *options) {
  hri_dataset *dataset = open_ok(options);
  bool hit = from_cache(dataset);
  hri_dataset_destroy(dataset);
  return hit;
}

/* Files in the store; the path of the last one in `path`. */
static int entries(char path[700]) {
  DIR *list = opendir(store);
  int count = 0;
  for (struct dirent *entry; list && (entry = readdir(list));) {
    if (entry->d_name[0] == '.') continue;
    (void)snprintf(path, 700, "%s/%s", store, entry->d_name);
    count++;
  }
  if (list) closedir(list);
  return count;
}

static void assert_same_rows(hri_dataset *a, hri_dataset *b) {
  int32_t x[4][ROW], y[4][ROW];
  assert_int_equal(hri_dataset_row_count(a), hri_dataset_row_count(b));
  assert_int_equal(hri_dataset_hash(a), hri_dataset_hash(b));
  assert_int_equal(hri_dataset_label_count(a), hri_dataset_label_count(b));
  for (uint64_t row = 0; row < hri_dataset_row_count(a); row++) {
    assert_int_equal(hri_dataset_row(a, row, x[0], x[1], x[2], x[3], NULL, NULL), HR_OK);
    assert_int_equal(hri_dataset_row(b, row, y[0], y[1], y[2], y[3], NULL, NULL), HR_OK);
    assert_memory_equal(x, y, sizeof x);
  }
}

static const char rows[] = "{\"prompt\": \"what\", \"completion\": \"that\", \"id\": 1}\n{\"prompt\": 1}\n{\"prompt\": \"who\", \"completion\": \"she\"}\n";

static void rows_from_the_cache_are_the_same(void **state) {
  const char *paths[4] = {write_text("a.jsonl", rows), write_text("b.txt", "some text in place"),
                          write_text("c.jsonl", "{\"input_ids\": [1, 2, 3], \"seq_lengths\": [1, 2]}\n"), write_text("d.bin", "a\0b\0c\0")};
  hri_dataset_options options = options_for(paths, 3);
  hri_dataset *plain, *made, *found;
  char path[700];
  (void)state;
  options.skip_bad = true;
  options.store_directory = NULL;
  plain = open_ok(&options);
  options.store_directory = store;
  made = open_ok(&options);
  assert_false(from_cache(made));
  assert_int_equal(entries(path), 1);
  found = open_ok(&options);
  assert_true(from_cache(found));
  assert_same_rows(plain, made);
  assert_same_rows(plain, found);
  assert_int_equal(hri_dataset_broken_count(found), 1);
  assert_non_null(strstr(hri_dataset_note(found), "1 broken row passed over"));
  assert_non_null(strstr(hri_dataset_note(found), "not used: id"));
  hri_dataset_destroy(plain);
  hri_dataset_destroy(made);
  hri_dataset_destroy(found);
  options.packing = HR_PACKING_WRAPPED; /* rows are cut anew: the same entry serves */
  options.sequence = 32;
  options.truncate = HR_TRUNCATE_DROP;
  assert_true(hits(&options));
}

static void what_decides_tokens_makes_another_entry(void **state) {
  const char *paths[2] = {write_text("k.jsonl", rows), write_text("k2.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n")};
  hri_dataset_options base = options_for(paths, 2), changed;
  char path[700];
  (void)state;
  base.skip_bad = true;
  assert_false(hits(&base));
  assert_true(hits(&base));
  changed = base, changed.loss = HR_LOSS_SCOPE_ALL, assert_false(hits(&changed));
  changed = base, changed.identity = 8, assert_false(hits(&changed));
  changed = base, changed.vocabulary = 1001, assert_false(hits(&changed));
  changed = base, changed.eos_token = 301, assert_false(hits(&changed));
  changed = base, changed.format = HR_DATA_PROMPT, assert_false(hits(&changed));
  changed = base, changed.path_count = 1, assert_false(hits(&changed));
  (void)write_text("k2.jsonl", "{\"prompt\": \"a\", \"completion\": \"c\"}\n");
  assert_false(hits(&base));
  (void)write_text("k2.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n"); /* the old content, at another time */
  assert_true(hits(&base));
  assert_int_equal(entries(path), 8);
}

/* The same bytes in the same order, but the other file is the one with rows. */
static void names_that_change_formats_make_another_entry(void **state) {
  const char *paths[2][2] = {{write_text("n1.jsonl", "{\"text\": \"a\"}"), write_text("n1", "{\"text\": \"a\"}")},
                             {write_text("n2", "{\"text\": \"a\"}"), write_text("n2.jsonl", "{\"text\": \"a\"}")}};
  hri_dataset_options one = options_for(paths[0], 2), two = options_for(paths[1], 2);
  hri_dataset *a, *b;
  (void)state;
  a = open_ok(&one);
  b = open_ok(&two);
  assert_false(from_cache(b));
  assert_true(hri_dataset_hash(a) != hri_dataset_hash(b)); /* a resumed run has other rows */
  hri_dataset_destroy(a);
  hri_dataset_destroy(b);
}

static uint64_t identity_of(const hr_model *model, const char *chat) {
  hri_words words;
  hr_error error = {0};
  if (hri_words_open(&words, model, chat, &error) != HR_OK) fail_msg("%s", error.message);
  hri_words_close(&words);
  return words.identity;
}

/* Each file that the tokenizer or the template is read from tells in the key. */
static void files_of_words_decide(void **state) {
  static const char *const names[] = {"words/tokenizer_config.json", "words/special_tokens_map.json", "words/added_tokens.json", "words/chat_template.jinja"};
  static hr_model model, none;
  const char *place = in_directory("words");
  (void)state;
  assert_int_equal(hri_dir_make(place, NULL), HR_OK);
  (void)snprintf(model.directory, sizeof model.directory, "%s", place);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    uint64_t before = identity_of(&model, NULL), as_template = identity_of(&none, place), first;
    (void)write_text(names[i], "{\"a\": 1}");
    first = identity_of(&model, NULL);
    assert_true(first != before && identity_of(&none, place) != as_template);
    as_template = identity_of(&none, place);
    (void)write_text(names[i], "{\"a\": 2}");
    assert_true(identity_of(&model, NULL) != first && identity_of(&none, place) != as_template);
    assert_int_equal(identity_of(&model, NULL), identity_of(&model, NULL));
  }
}

static void damaged_entries_are_made_anew(void **state) {
  const char *data = write_text("d.jsonl", "{\"prompt\": \"what\", \"completion\": \"that\"}\n");
  hri_dataset_options options = options_for(&data, 1);
  hri_dataset *sound, *dataset;
  char path[700], *bytes;
  uint64_t count;
  (void)state;
  sound = open_ok(&options);
  assert_int_equal(entries(path), 1);
  assert_int_equal(hri_file_read(path, 1 << 20, &bytes, &count, NULL), HR_OK);
  for (uint64_t at = 0; at <= count; at += at < 128 ? 1 : 97) { /* each cut, and each byte changed */
    for (int how = 0; how < 2; how++) {
      char *damaged = malloc(count + 1);
      assert_non_null(damaged);
      memcpy(damaged, bytes, count);
      if (how == 1 && at < count) damaged[at] ^= 0x40;
      assert_int_equal(hri_file_replace(path, damaged, how == 0 ? at : count, NULL), HR_OK);
      dataset = open_ok(&options);
      assert_int_equal(from_cache(dataset), at == count);
      assert_same_rows(sound, dataset);
      hri_dataset_destroy(dataset);
      assert_true(hits(&options)); /* sound again */
      free(damaged);
    }
  }
  hri_free(bytes);
  hri_dataset_destroy(sound);
}

static void foreign_entries_are_left_alone(void **state) {
  const char *data = write_text("f.jsonl", "{\"prompt\": \"what\", \"completion\": \"that\"}\n");
  hri_dataset_options options = options_for(&data, 1);
  char path[700];
  (void)state;
  assert_false(hits(&options));
  assert_int_equal(entries(path), 1);
  assert_int_equal(unlink(path), 0);
  assert_int_equal(symlink(data, path), 0); /* a link is not followed; it gives way */
  assert_false(hits(&options));
  assert_true(hits(&options));
}

static void text_in_place_needs_no_cache(void **state) {
  const char *data = write_text("t.txt", "some text");
  hri_dataset_options options = options_for(&data, 1);
  char path[700];
  (void)state;
  assert_false(hits(&options));
  assert_int_equal(entries(path), 0);
}

/* A disk that is full, a directory that cannot be made, refused memory: a clean error that leaves nothing. */
static void failures_leave_nothing(void **state) {
  const char *data = write_text("w.jsonl", "{\"prompt\": \"what\", \"completion\": \"that\"}\n");
  hri_dataset_options options = options_for(&data, 1);
  hri_dataset *dataset = NULL;
  struct rlimit old, small;
  void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
  hr_error error = {0};
  char path[700];
  uint64_t live = hri_mem_live_bytes();
  (void)state;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
  small = old;
  small.rlim_cur = 100;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  assert_int_equal(hri_dataset_open(&options, &dataset, &error), HR_ERROR_IO);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
  signal(SIGXFSZ, handler);
  assert_int_equal(entries(path), 0);
  assert_int_equal(hri_mem_live_bytes(), live);
  options.store_directory = data; /* a file */
  assert_int_equal(hri_dataset_open(&options, &dataset, &error), HR_ERROR_IO);
  options.store_directory = store;
  for (uint64_t nth = 1;; nth++) {
    hr_status status;
    hri_mem_fail_after(nth);
    status = hri_dataset_open(&options, &dataset, &error);
    hri_mem_fail_after(0);
    hri_dataset_destroy(dataset);
    assert_int_equal(hri_mem_live_bytes(), live);
    assert_true(entries(path) <= 1); /* an entry is whole or not there */
    if (entries(path) == 1) assert_true(hits(&options));
    if (entries(path) == 1) assert_int_equal(unlink(path), 0);
    if (status == HR_OK) break;
    assert_int_equal(status, HR_ERROR_MEMORY);
  }
}

#define TEST(name) cmocka_unit_test_setup(name, fresh_store)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(rows_from_the_cache_are_the_same),
      TEST(what_decides_tokens_makes_another_entry),
      TEST(names_that_change_formats_make_another_entry),
      TEST(files_of_words_decide),
      TEST(damaged_entries_are_made_anew),
      TEST(foreign_entries_are_left_alone),
      TEST(text_in_place_needs_no_cache),
      TEST(failures_leave_nothing),
  };
  return cmocka_run_group_tests_name("data_cache", tests, setup, teardown);
}
