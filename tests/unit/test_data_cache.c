/* The cache of tokenized data (src/data/cache.c): the same rows from it as from the files; anything that decides tokens
 * makes another entry; damaged and foreign entries are made anew; what cannot be written leaves nothing; of several
 * processes one makes an entry and the others find it, whoever is killed; and what is kept later is the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/lock.h"
#include "base/mem.h"
#include "base/scratch.h"
#include "base/text.h"
#include "data/dataset.h"
#include "data/source.h"
#include "data/words.h"
#include "support/datasets.h"
#include "support/files.h"

enum { ROW = 64, ENTRY = PATH_BYTES + 300 }; /* bytes of a path in the store */

static char store[PATH_BYTES];

/* A fresh store for each test. */
static int fresh_store(void **state) {
  static int number;
  (void)state;
  (void)snprintf(store, sizeof store, "%s/store-%d/tokens", directory, number++);
  return 0;
}

static hri_dataset_options options_for(const char *const *paths, uint32_t count) {
  hri_dataset_options options = {.paths = paths,
                                 .path_count = count,
                                 .sequence = ROW,
                                 .vocabulary = 1000,
                                 .eos_token = 300,
                                 .packing = HR_PACKING_PACK,
                                 .cache_directory = directory,
                                 .chat = "chatml",
                                 .identity = 7,
                                 .store_directory = store};
  return options;
}

static bool from_cache(const hri_dataset *dataset) {
  return strstr(hri_dataset_note(dataset), "from the cache") != NULL;
}

/* Opens and closes; true when it came from the cache. */
static bool hits(const hri_dataset_options *options) {
  hri_dataset *dataset = open_ok(options);
  bool hit = from_cache(dataset);
  hri_dataset_destroy(dataset);
  return hit;
}

/* Files in the store; the path of the last one in `path`. */
static int entries(char path[ENTRY]) {
  DIR *list = opendir(store);
  int count = 0;
  for (struct dirent *entry; list && (entry = readdir(list));) {
    if (entry->d_name[0] == '.') continue;
    (void)snprintf(path, ENTRY, "%s/%s", store, entry->d_name);
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

static const char rows[] =
    "{\"prompt\": \"what\", \"completion\": \"that\", \"id\": 1}\n{\"prompt\": 1}\n{\"prompt\": \"who\", \"completion\": \"she\"}\n";

static void rows_from_the_cache_are_the_same(void **state) {
  const char *paths[4] = {write_text("a.jsonl", rows), write_text("b.txt", "some text in place"),
                          write_text("c.jsonl", "{\"input_ids\": [1, 2, 3], \"seq_lengths\": [1, 2]}\n"),
                          write_text("d.bin", "a\0b\0c\0")};
  hri_dataset_options options = options_for(paths, 3);
  hri_dataset *plain, *made, *found;
  char path[ENTRY];
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
  const char *paths[2] = {write_text("k.jsonl", rows),
                          write_text("k2.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n")};
  hri_dataset_options base = options_for(paths, 2), changed;
  char path[ENTRY];
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

static uint64_t identity_with(const hr_model *model, const char *chat, const char *tokenizer) {
  const hr_data_options options = {.chat_template = chat, .tokenizer = tokenizer};
  hri_words words;
  hr_error error = {0};
  if (hri_words_open(&words, model, &options, &error) != HR_OK) fail_msg("%s", error.message);
  hri_words_close(&words);
  return words.identity;
}

static uint64_t identity_of(const hr_model *model, const char *chat) { return identity_with(model, chat, NULL); }

/* A tokenizer that is named for a model without one decides as its own would, and so do its files. */
static void a_named_tokenizer_is_as_the_models_own(void **state) {
  static hr_model model, none;
  char *place = strdup(in_directory("named")), *tokenizer;
  hri_words words;
  hr_error error = {0};
  uint64_t count, before;
  const hr_data_options twice = {.tokenizer = in_directory("names")};
  (void)state;
  assert_non_null(place);
  assert_int_equal(hri_dir_make(place, NULL), HR_OK);
  assert_int_equal(hri_file_read(HR_TEST_DATA "/tokenizer/gpt2.json", 1 << 20, &tokenizer, &count, NULL), HR_OK);
  (void)write_text("named/tokenizer.json", tokenizer);
  (void)snprintf(model.directory, sizeof model.directory, "%s", place);
  before = identity_with(&none, NULL, place);
  assert_true(before != identity_of(&none, NULL));
  assert_int_equal(before, identity_of(&model, NULL));
  assert_int_equal(before, identity_with(&model, NULL, place)); /* the same place twice */
  (void)write_text("named/tokenizer_config.json", "{\"a\": 1}");
  assert_true(identity_with(&none, NULL, place) != before);
  assert_int_equal(hri_words_open(&words, &model, &twice, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, "a tokenizer of its own"));
  hri_words_close(&words);
  hri_free(tokenizer);
  free(place);
}

/* Each file that the tokenizer or the template is read from tells in the key. */
static void files_of_words_decide(void **state) {
  static const char *const names[] = {"words/tokenizer_config.json", "words/special_tokens_map.json",
                                      "words/added_tokens.json", "words/chat_template.jinja"};
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

/* vocab.json and merges.txt decide where they are the tokenizer, and not where they lie beside what is read: runs that
 * began without them go on. A GGUF file in a model's directory is another model and no tokenizer of this one. */
static void only_merges_that_are_read_decide(void **state) {
  static hr_model model;
  const char *place = strdup(in_directory("pair"));
  const hr_data_options options = {0};
  char *bytes;
  uint64_t count, before;
  hri_words words;
  hr_error error = {0};
  (void)state;
  assert_int_equal(hri_dir_make(place, NULL), HR_OK);
  (void)snprintf(model.directory, sizeof model.directory, "%s", place);
  assert_int_equal(hri_file_read(HR_TEST_DATA "/gguf/gpt2.gguf", 1 << 24, &bytes, &count, NULL), HR_OK);
  assert_int_equal(hri_file_replace(in_directory("pair/model.gguf"), bytes, count, NULL), HR_OK);
  hri_free(bytes);
  assert_int_equal(hri_words_open(&words, &model, &options, &error), HR_OK);
  assert_null(words.tokenizer);
  before = words.identity;
  (void)write_text("pair/vocab.json", "{\"a\": 0, \"b\": 1, \"ab\": 2}");
  assert_int_equal(identity_of(&model, NULL), before); /* one of the two is nothing */
  (void)write_text("pair/merges.txt", "#version: 0.2\na b\n");
  (void)write_text("pair/config.json", "{\"model_type\": \"gpt2\"}");
  assert_int_equal(hri_words_open(&words, &model, &options, &error), HR_OK);
  assert_int_equal(hr_tokenizer_size(words.tokenizer), 3); /* and not the GGUF file's */
  assert_true(words.identity != before);
  before = words.identity;
  hri_words_close(&words);
  (void)write_text("pair/merges.txt", "#version: 0.2\n");
  assert_true(identity_of(&model, NULL) != before);
  before = identity_of(&model, NULL);
  (void)write_text("pair/vocab.json", "{\"b\": 0, \"a\": 1, \"ab\": 2}");
  assert_true(identity_of(&model, NULL) != before);
  (void)write_text("pair/config.json", "{\"model_type\": \"clip\"}");
  assert_int_equal(hri_words_open(&words, &model, &options, &error), HR_ERROR_INPUT);
  assert_non_null(strstr(error.message, "'clip' is not supported with them"));
  hri_words_close(&words);
  (void)write_text("pair/vocab.txt", "[UNK]\na\n"); /* which is read then */
  assert_int_equal(unlink(in_directory("pair/model.gguf")), 0);
  before = identity_of(&model, NULL);
  (void)write_text("pair/merges.txt", "a b\n");
  assert_int_equal(identity_of(&model, NULL), before);
  assert_int_equal(hri_file_read(HR_TEST_DATA "/tokenizer/gpt2.json", 1 << 20, &bytes, &count, NULL), HR_OK);
  (void)write_text("pair/tokenizer.json", bytes);
  (void)write_text("pair/config.json", "{\"model_type\": \"gpt2\"}");
  before = identity_of(&model, NULL);
  (void)write_text("pair/merges.txt", "#version: 0.2\n");
  assert_int_equal(identity_of(&model, NULL), before);
  assert_int_equal(unlink(in_directory("pair/merges.txt")), 0);
  assert_int_equal(unlink(in_directory("pair/vocab.json")), 0);
  assert_int_equal(identity_of(&model, NULL), before);
  hri_free(bytes);
  free((void *)(uintptr_t)place);
}

/* Of config.json the vocabulary's size counts, where ranks ask for it: whisper's tokens stand behind 99 or 100
 * languages. All bytes as ranks, and the highest rank without a token. */
static void vocabulary_behind_ranks_decides(void **state) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  static hr_model none;
  const char *place = in_directory("ranks");
  hri_text ranks = {0};
  uint64_t first;
  (void)state;
  for (uint32_t i = 0; i < 256; i++) hri_text_add(&ranks, "%c%c== %u\n", digits[i >> 2], digits[(i & 3) << 4], i);
  hri_text_add(&ranks, "= 50256\n");
  assert_int_equal(hri_dir_make(place, NULL), HR_OK);
  (void)write_text("ranks/multilingual.tiktoken", hri_text_get(&ranks));
  first = identity_with(&none, NULL, place);
  (void)write_text("ranks/config.json", "{\"vocab_size\": 51865}");
  assert_int_equal(identity_with(&none, NULL, place), first);
  (void)write_text("ranks/config.json", "{\"vocab_size\": 51866}");
  assert_true(identity_with(&none, NULL, place) != first);
  hri_text_deinit(&ranks);
}

static void damaged_entries_are_made_anew(void **state) {
  const char *data = write_text("d.jsonl", "{\"prompt\": \"what\", \"completion\": \"that\"}\n");
  hri_dataset_options options = options_for(&data, 1);
  hri_dataset *sound, *dataset;
  char path[ENTRY], *bytes;
  uint64_t count;
  (void)state;
  sound = open_ok(&options);
  assert_int_equal(entries(path), 1);
  assert_int_equal(hri_file_read(path, 1 << 20, &bytes, &count, NULL), HR_OK);
  for (uint64_t at = 0; at <= count;
       at += at < 128 ? 1 : 97) { /* each byte of the head changed, some cuts, and both behind it */
    for (int how = at < 128 && at % 8 ? 1 : 0; how < 2; how++) {
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

/* What became of the entry when the number by which its file's format was read is another, and its digest that of the
 * whole: the number stands behind three others of the file's, which stand behind the header's 9 and what was found. */
static bool hits_read_by(const hri_dataset_options *options, uint32_t reading, uint32_t *was) {
  char path[ENTRY], *bytes;
  hri_digest digest = {0};
  uint64_t count, found, value;
  bool hit;
  assert_int_equal(entries(path), 1);
  assert_int_equal(hri_file_read(path, 1 << 20, &bytes, &count, NULL), HR_OK);
  memcpy(&found, bytes + 24, sizeof found);
  memcpy(was, bytes + 72 + found + 12, sizeof *was);
  memcpy(bytes + 72 + found + 12, &reading, sizeof reading);
  hri_digest_add(&digest, bytes, count - sizeof value);
  value = hri_digest_value(&digest);
  memcpy(bytes + count - sizeof value, &value, sizeof value);
  assert_int_equal(hri_file_replace(path, bytes, count, NULL), HR_OK);
  hri_free(bytes);
  hit = hits(options);
  assert_true(hits(options)); /* made anew, under the same name */
  return hit;
}

/* Tokens of messages and of conversations became others when a system beside them became their first message: entries from
 * before, which say 0 here, are made anew, and those of other formats stay. */
static void entries_of_rows_that_were_read_otherwise_are_made_anew(void **state) {
  static const struct {
    const char *content;
    bool stays;
  } cases[] = {
      {"{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"a\"}]}\n",
       false},
      {"{\"conversations\": [{\"from\": \"human\", \"value\": \"q\"}, {\"from\": \"gpt\", \"value\": \"a\"}]}\n",
       false},
      {"{\"prompt\": \"what\", \"completion\": \"that\"}\n", true},
      {"{\"input_ids\": [1, 2]}\n", true},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *data = write_text("r.jsonl", cases[i].content);
    const hri_dataset_options options = options_for(&data, 1);
    uint32_t was, other;
    (void)fresh_store(state);
    assert_false(hits(&options));
    assert_int_equal(hits_read_by(&options, 0, &was), cases[i].stays);
    assert_int_equal(was == 0, cases[i].stays);
    assert_false(hits_read_by(&options, was + 1, &other));
    assert_int_equal(other, was);
  }
}

/* An entry is checked when it is opened. Whoever writes into it later makes an error, and no id from outside the
 * vocabulary: that would be an address outside of the embedding. */
static void entries_that_change_in_use_give_no_foreign_ids(void **state) {
  const char *data = write_text("c.jsonl", "{\"prompt\": \"what\", \"completion\": \"that\"}\n");
  const unsigned char garbage[4] = {0xEE, 0xEE, 0xEE, 0x6E};
  hri_dataset_options options = options_for(&data, 1);
  hri_dataset *dataset;
  int refused = 0, fd;
  char path[ENTRY], *bytes;
  uint64_t count;
  (void)state;
  assert_false(hits(&options));
  dataset = open_ok(&options);
  assert_true(from_cache(dataset));
  assert_int_equal(entries(path), 1);
  assert_int_equal(hri_file_read(path, 1 << 20, &bytes, &count, NULL), HR_OK);
  fd = open(path, O_WRONLY);
  assert_true(fd >= 0);
  for (uint64_t at = 0; at + 4 <= count; at++) {
    int32_t x[4][ROW];
    hr_error error = {0};
    hr_status status;
    assert_int_equal(pwrite(fd, garbage, sizeof garbage, (off_t)at), 4);
    status = hri_dataset_row(dataset, 0, x[0], x[1], x[2], x[3], NULL, &error);
    if (status == HR_OK) {
      for (int t = 0; t < ROW; t++) assert_in_range(x[0][t], 0, options.vocabulary - 1);
      for (int t = 0; t < ROW; t++) assert_true(x[1][t] == -100 || (x[1][t] >= 0 && x[1][t] < 1000));
    } else {
      assert_int_equal(status, HR_ERROR_INPUT);
      if (!strstr(error.message, data) || !strstr(error.hint, "cache")) fail_msg("%s (%s)", error.message, error.hint);
      refused++;
    }
    assert_int_equal(pwrite(fd, bytes + at, sizeof garbage, (off_t)at), 4);
  }
  assert_true(refused >= 8);                   /* the eight letters of it */
  for (uint64_t cut = count - 1; cut-- > 0;) { /* nor does what is cut off become zeros */
    int32_t x[4][ROW], whole[4][ROW];
    hr_error error = {0};
    assert_int_equal(hri_dataset_row(dataset, 0, whole[0], whole[1], whole[2], whole[3], NULL, NULL), HR_OK);
    assert_int_equal(ftruncate(fd, (off_t)cut), 0);
    if (hri_dataset_row(dataset, 0, x[0], x[1], x[2], x[3], NULL, &error) == HR_OK)
      assert_memory_equal(x, whole, sizeof x);
    else if (!strstr(error.message, "data cache") || !error.hint[0]) fail_msg("%s (%s)", error.message, error.hint);
    else refused = -1;
    assert_int_equal(pwrite(fd, bytes, count, 0), (ssize_t)count);
  }
  assert_int_equal(refused, -1);
  close(fd);
  hri_free(bytes);
  hri_dataset_destroy(dataset);
}

static void foreign_entries_are_left_alone(void **state) {
  const char *data = write_text("f.jsonl", "{\"prompt\": \"what\", \"completion\": \"that\"}\n");
  hri_dataset_options options = options_for(&data, 1);
  char path[ENTRY];
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
  char path[ENTRY];
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
  char path[ENTRY];
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

/* ---- several processes ---- */

enum { SHARERS = 5, BIG_ROWS = 40000 };

static const char *write_big(void) {
  const char *path = in_directory("big.jsonl");
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  for (int i = 0; i < BIG_ROWS; i++)
    (void)fprintf(file, "{\"prompt\": \"what is %d\", \"completion\": \"it is %d, which follows %d\"}\n", i, i, i - 1);
  assert_int_equal(fclose(file), 0);
  return path;
}

/* What a process has to say, in one file for all; lines are appended whole. */
static void say(const char *format, long value) {
  int fd = open(in_directory("said"), O_WRONLY | O_CREAT | O_APPEND, 0644);
  char line[512];
  int length = snprintf(line, sizeof line, format, value);
  if (fd < 0 || write(fd, line, (size_t)length) != length) _exit(9);
  (void)close(fd);
}

static void say_note(void *context, const char *note) {
  (void)context;
  say(strstr(note, "waiting for process") && strstr(note, "which tokenizes the same data") ? "waits %ld\n"
                                                                                           : "strange note %ld\n",
      1);
}

static int said(const char *word) {
  char *text = NULL;
  uint64_t count;
  int times = 0;
  if (hri_file_read(in_directory("said"), 1 << 20, &text, &count, NULL) != HR_OK) return 0;
  for (const char *at = text; (at = strstr(at, word)); at += strlen(word)) times++;
  hri_free(text);
  return times;
}

/* Digest of all rows. */
static uint64_t rows_of(hri_dataset *dataset) {
  uint64_t sum = 14695981039346656037u;
  int32_t x[4 * ROW];
  for (uint64_t row = 0; row < hri_dataset_row_count(dataset); row++) {
    if (hri_dataset_row(dataset, row, x, x + ROW, x + 2 * ROW, x + 3 * ROW, NULL, NULL) != HR_OK) _exit(8);
    for (int i = 0; i < 4 * ROW; i++) sum = (sum ^ (uint32_t)x[i]) * 1099511628211u;
  }
  return sum;
}

static pid_t open_in_child(const hri_dataset_options *options) {
  pid_t pid;
  hri_dataset *dataset;
  (void)fflush(NULL);
  pid = fork();
  assert_true(pid >= 0);
  if (pid > 0) return pid;
  if (hri_dataset_open(options, &dataset, NULL) != HR_OK) _exit(1);
  say(from_cache(dataset) ? "found %ld\n" : "tokenized %ld\n", 1);
  say("rows %ld\n", (long)(rows_of(dataset) >> 1));
  hri_dataset_destroy(dataset);
  _exit(0);
}

static void await(pid_t pid, int wanted) {
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), wanted);
}

/* The store holds one entry and nothing that was on the way to it. */
static void assert_one_entry(void) {
  DIR *list = opendir(store);
  assert_non_null(list);
  for (struct dirent *entry; (entry = readdir(list));)
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 && !strstr(entry->d_name, ".tokens"))
      fail_msg("%s/%s was left", store, entry->d_name);
  closedir(list);
}

static void one_tokenizes_and_others_wait(void **state) {
  const char *data = write_big();
  hri_dataset_options options = options_for(&data, 1);
  pid_t pids[SHARERS];
  char path[ENTRY], rows_line[64];
  hri_dataset *dataset;
  (void)state;
  (void)unlink(in_directory("said"));
  options.on_note = say_note;
  for (int i = 0; i < SHARERS; i++) pids[i] = open_in_child(&options);
  for (int i = 0; i < SHARERS; i++) await(pids[i], 0);
  assert_int_equal(said("tokenized"), 1);
  assert_int_equal(said("found"), SHARERS - 1);
  assert_int_equal(said("strange"), 0);
  assert_true(said("waits") <= SHARERS - 1);
  dataset = open_ok(&options);
  assert_true(from_cache(dataset));
  (void)snprintf(rows_line, sizeof rows_line, "rows %ld\n", (long)(rows_of(dataset) >> 1));
  assert_int_equal(said(rows_line), SHARERS);
  hri_dataset_destroy(dataset);
  assert_int_equal(entries(path), 1);
  assert_one_entry();
}

/* Holds the lock of the entry as one that tokenizes does, until it is killed. */
static pid_t hold_lock(const hri_dataset_options *options) {
  char path[ENTRY], lock_path[ENTRY + 16];
  int ready[2];
  char one;
  pid_t pid;
  hri_lock *lock;
  hri_dataset_destroy(open_ok(options)); /* for the name of its entry */
  assert_int_equal(entries(path), 1);
  assert_int_equal(unlink(path), 0);
  (void)snprintf(lock_path, sizeof lock_path, "%.*s.lock", (int)(strlen(path) - strlen(".tokens")), path);
  assert_int_equal(pipe(ready), 0);
  pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    hri_scratch *scratch;
    if (hri_lock_take(lock_path, "it", &lock, NULL) != HR_OK ||
        hri_scratch_open(store, false, &scratch, NULL) != HR_OK || write(ready[1], "x", 1) != 1)
      _exit(1);
    for (;;) (void)pause();
  }
  assert_int_equal(read(ready[0], &one, 1), 1);
  (void)close(ready[0]);
  (void)close(ready[1]);
  return pid;
}

static void a_killed_maker_is_followed(void **state) {
  const char *data = write_big();
  hri_dataset_options options = options_for(&data, 1);
  struct timespec pause_ = {0, 20000000};
  pid_t maker, pids[2];
  char path[ENTRY];
  (void)state;
  maker = hold_lock(&options);
  (void)unlink(in_directory("said"));
  options.on_note = say_note;
  for (int i = 0; i < 2; i++) pids[i] = open_in_child(&options);
  for (int i = 0; i < 1000 && said("waits") < 2; i++) (void)nanosleep(&pause_, NULL);
  assert_int_equal(said("waits"), 2);
  assert_int_equal(said("tokenized"), 0);
  (void)kill(maker, SIGKILL);
  await(maker, 128 + SIGKILL);
  for (int i = 0; i < 2; i++) await(pids[i], 0);
  assert_int_equal(said("tokenized"), 1);
  assert_int_equal(said("found"), 1);
  assert_int_equal(entries(path), 1);
  assert_one_entry(); /* what the killed one left is swept */
}

/* Killed at random moments, by itself or while others wait: the next call finds the entry or makes it, and nothing else
 * stays. */
static void kills_leave_nothing(void **state) {
  const char *data = write_big();
  hri_dataset_options options = options_for(&data, 1);
  const char *quick = getenv("HEADROOM_TEST_QUICK");
  int rounds = quick && *quick && strcmp(quick, "0") != 0 ? 5 : 20;
  hri_dataset *sound = open_ok(&options);
  char path[ENTRY];
  (void)state;
  for (int i = 0; i < rounds; i++) {
    struct timespec pause_ = {0, rand() % 100000000};
    hri_dataset *dataset;
    pid_t pid;
    int status;
    if (entries(path) == 1) assert_int_equal(unlink(path), 0);
    pid = open_in_child(&options);
    (void)nanosleep(&pause_, NULL);
    (void)kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (i % 8 == 0) {
      dataset = open_ok(&options);
      assert_same_rows(sound, dataset);
      hri_dataset_destroy(dataset);
    } else {
      (void)hits(&options);
    }
    assert_int_equal(entries(path), 1);
    if (entries(path) == 1) assert_true(strstr(path, ".tokens") != NULL);
  }
  assert_int_equal(unlink(path), 0); /* the last one may have been found: a miss sweeps */
  assert_false(hits(&options));
  assert_one_entry();
  hri_dataset_destroy(sound);
}

/* Text in place makes no entry: nobody waits for another who reads it. */
static void text_in_place_waits_for_nobody(void **state) {
  const char *data = write_text("t2.txt", "some text");
  hri_dataset_options options = options_for(&data, 1);
  char path[ENTRY];
  (void)state;
  options.on_note = say_note;
  (void)unlink(in_directory("said"));
  assert_false(hits(&options));
  assert_int_equal(said("waits") + said("strange"), 0);
  assert_int_equal(entries(path), 0);
  assert_false(hri_path_exists(store));
}

/* ---- opening first, keeping later ---- */

static void what_is_kept_later_is_the_same(void **state) {
  const char *data = write_text("later.jsonl", rows);
  hri_dataset_options options = options_for(&data, 1);
  hri_dataset *plain, *later, *found;
  char path[ENTRY];
  (void)state;
  options.skip_bad = true;
  options.keep_later = true;
  plain = open_ok(&options);
  later = open_ok(&options);
  assert_false(hri_path_exists(store)); /* nothing is made at opening */
  assert_same_rows(plain, later);
  assert_int_equal(hri_dataset_keep(later, store, NULL), HR_OK);
  assert_int_equal(hri_dataset_keep(later, store, NULL), HR_OK); /* once is enough */
  assert_int_equal(entries(path), 1);
  assert_one_entry();
  assert_same_rows(plain, later);
  found = open_ok(&options); /* looked into all the same */
  assert_true(from_cache(found));
  assert_same_rows(plain, found);
  assert_int_equal(unlink(path), 0);
  assert_int_equal(hri_dataset_keep(found, store, NULL), HR_OK);
  assert_int_equal(entries(path), 0); /* it came from there */
  assert_same_rows(plain, found);     /* an open entry is not pulled away */
  options.keep_later = false;
  assert_false(hits(&options));
  assert_true(hits(&options)); /* under the same key, however it was made */
  hri_dataset_destroy(plain);
  hri_dataset_destroy(later);
  hri_dataset_destroy(found);
}

static void keeping_that_fails_costs_nothing(void **state) {
  const char *data = write_text("fails.jsonl", rows);
  hri_dataset_options options = options_for(&data, 1);
  hri_dataset *plain, *later;
  struct rlimit old, small;
  void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
  char path[ENTRY];
  (void)state;
  options.skip_bad = true;
  options.keep_later = true;
  plain = open_ok(&options);
  later = open_ok(&options);
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
  small = old;
  small.rlim_cur = 400;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
  assert_int_equal(hri_dataset_keep(later, store, NULL), HR_ERROR_IO);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
  signal(SIGXFSZ, handler);
  assert_int_equal(entries(path), 0);
  assert_same_rows(plain, later);
  assert_int_equal(hri_dataset_keep(later, store, NULL), HR_OK);
  assert_int_equal(entries(path), 1);
  assert_same_rows(plain, later);
  hri_dataset_destroy(plain);
  hri_dataset_destroy(later);
}

#define TEST(name) cmocka_unit_test_setup(name, fresh_store)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(rows_from_the_cache_are_the_same),
      TEST(what_decides_tokens_makes_another_entry),
      TEST(names_that_change_formats_make_another_entry),
      TEST(files_of_words_decide),
      TEST(only_merges_that_are_read_decide),
      TEST(vocabulary_behind_ranks_decides),
      TEST(a_named_tokenizer_is_as_the_models_own),
      TEST(damaged_entries_are_made_anew),
      TEST(entries_of_rows_that_were_read_otherwise_are_made_anew),
      TEST(entries_that_change_in_use_give_no_foreign_ids),
      TEST(foreign_entries_are_left_alone),
      TEST(text_in_place_needs_no_cache),
      TEST(failures_leave_nothing),
      TEST(one_tokenizes_and_others_wait),
      TEST(a_killed_maker_is_followed),
      TEST(kills_leave_nothing),
      TEST(text_in_place_waits_for_nobody),
      TEST(what_is_kept_later_is_the_same),
      TEST(keeping_that_fails_costs_nothing),
  };
  return cmocka_run_group_tests_name("data_cache", tests, make_directory, remove_directory);
}
