/* Data sets (src/data):
 *   - rows are those of a plain oracle that holds all tokens in memory, for random text and JSONL, packed and not;
 *   - the formats' rules, one by one, and every kind of bad input with the file, line, field and value it names;
 *   - memory stays bounded, refused memory and full disks end in clean errors, files that change are noticed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "data/dataset.h"
#include "data/reader.h"
#include "support/datasets.h"
#include "support/files.h"

/* ---- Helpers ---- */

enum { MAX_FILES = 4 };

/* Takes the place of libc's: fails behind so many names, as a file server does that goes away. 0: as libc's. */
static unsigned names_until_fault;
struct dirent *readdir(DIR *dir) {
  struct dirent *(*real)(DIR *);
  void *symbol = dlsym(RTLD_NEXT, "readdir");
  memcpy(&real, &symbol, sizeof real);
  if (names_until_fault > 0 && --names_until_fault == 0) {
    errno = EIO;
    return NULL;
  }
  return real(dir);
}

static hri_dataset_options options_for(const char *const *path, uint32_t sequence, uint64_t vocabulary) {
  hri_dataset_options options = {.paths = path,
                                 .path_count = 1,
                                 .sequence = sequence,
                                 .vocabulary = vocabulary,
                                 .eos_token = -1,
                                 .packing = HR_PACKING_WRAPPED,
                                 .cache_directory = directory};
  return options;
}

enum { SMALL = 16 };

/* Row `row` in one line: "ids | targets | positions | doc_start". */
static const char *row_text(hri_dataset *dataset, uint64_t row, uint32_t sequence) {
  static char text[1024];
  int32_t parts[4][SMALL];
  size_t used = 0;
  uint64_t counted, seen = 0;
  hr_error error = {0};
  assert_true(sequence <= SMALL);
  if (hri_dataset_row(dataset, row, parts[0], parts[1], parts[2], parts[3], &counted, &error) != HR_OK)
    fail_msg("%s", error.message);
  for (int p = 0; p < 4; p++) {
    if (p > 0) used += (size_t)snprintf(text + used, sizeof text - used, " |");
    for (uint32_t t = 0; t < sequence; t++)
      used += (size_t)snprintf(text + used, sizeof text - used, "%s%d", p + t > 0 ? " " : "", parts[p][t]);
  }
  for (uint32_t t = 0; t < sequence; t++) seen += parts[1][t] != -100;
  assert_int_equal(counted, seen);
  return text;
}

/* ---- Rows by hand ---- */

static void text_rows_by_hand(void **state) {
  const char *path = write_text("hand.txt", "abc--de--f");
  hri_dataset_options options = options_for(&path, 4, 300);
  hri_dataset *dataset;
  (void)state;
  options.separator = "--";
  options.eos_token = 299;
  dataset = open_ok(&options);
  assert_int_equal(hri_dataset_row_count(dataset), 3);
  assert_int_equal(hri_dataset_document_count(dataset), 3);
  assert_int_equal(hri_dataset_token_count(dataset), 9);
  assert_int_equal(hri_dataset_label_count(dataset), 5);
  assert_string_equal(row_text(dataset, 0, 4), "97 98 99 299 | 98 99 299 -100 | 0 1 2 3 | 0 0 0 0");
  assert_string_equal(row_text(dataset, 1, 4), "100 101 299 102 | 101 299 -100 -100 | 0 1 2 0 | 0 0 0 3");
  assert_string_equal(row_text(dataset, 2, 4), "299 0 0 0 | -100 -100 -100 -100 | 0 0 1 2 | 0 1 1 1");
  assert_int_equal(hri_dataset_row(dataset, 3, NULL, NULL, NULL, NULL, NULL, NULL), HR_ERROR_INTERNAL);
  hri_dataset_destroy(dataset);

  options.packing = HR_PACKING_OFF;
  options.sequence = 3;
  dataset = open_ok(&options);
  assert_int_equal(hri_dataset_row_count(dataset), 4);
  assert_string_equal(row_text(dataset, 0, 3), "97 98 99 | 98 99 -100 | 0 1 2 | 0 0 0");
  assert_string_equal(row_text(dataset, 1, 3), "299 0 0 | -100 -100 -100 | 0 0 1 | 0 1 1");
  assert_string_equal(row_text(dataset, 3, 3), "102 299 0 | 299 -100 -100 | 0 1 0 | 0 0 2");
  hri_dataset_destroy(dataset);

  options.separator = NULL;
  options.eos_token = -1;
  options.sequence = 16;
  dataset = open_ok(&options);
  assert_int_equal(hri_dataset_token_count(dataset), 10);
  assert_int_equal(hri_dataset_document_count(dataset), 1);
  hri_dataset_destroy(dataset);
}

static void jsonl_rows_by_hand(void **state) {
  const char *path =
      write_text("hand.jsonl",
                 "{\"input_ids\": [1, 2, 3], \"labels\": [1, -100, 9]}\n"
                 "{\"input_ids\": [4, 5]}\n"
                 "{\"seq_lengths\": [2, 1, 2], \"labels\": [6, 7, 8, 9, 10], \"input_ids\": [6, 7, 8, 9, 10]}\n"
                 "{\"input_ids\": [11, 12]}\n");
  hri_dataset_options options = options_for(&path, 4, 13);
  hri_dataset *dataset = open_ok(&options);
  (void)state;
  assert_int_equal(hri_dataset_row_count(dataset), 5);
  assert_int_equal(hri_dataset_document_count(dataset), 6);
  assert_string_equal(row_text(dataset, 0, 4), "1 2 3 4 | -100 9 -100 -100 | 0 1 2 0 | 0 0 0 3");
  assert_string_equal(row_text(dataset, 1, 4), "5 0 0 0 | -100 -100 -100 -100 | 0 0 1 2 | 0 1 1 1");
  assert_string_equal(row_text(dataset, 2, 4), "6 7 8 9 | 7 -100 -100 -100 | 0 1 0 0 | 0 0 2 3");
  assert_string_equal(row_text(dataset, 3, 4), "10 0 0 0 | -100 -100 -100 -100 | 0 0 1 2 | 0 1 1 1");
  assert_string_equal(row_text(dataset, 4, 4), "11 12 0 0 | 12 -100 -100 -100 | 0 1 0 1 | 0 0 2 2");
  assert_int_equal(hri_dataset_label_count(dataset), 3);
  hri_dataset_destroy(dataset);
}

/* ---- The oracle ---- */

typedef struct oracle {
  HRI_ARRAY(int32_t) ids, labels;
  HRI_ARRAY(uint32_t) document; /* number of the token's document */
  HRI_ARRAY(bool) breaks;       /* a row begins here */
  uint32_t documents;
} oracle;

static void oracle_free(oracle *o) {
  hri_array_free(&o->ids);
  hri_array_free(&o->labels);
  hri_array_free(&o->document);
  hri_array_free(&o->breaks);
}

static void oracle_add(oracle *o, int32_t id, int32_t label, bool begins_document, bool begins_row) {
  o->documents += begins_document;
  assert_true(hri_array_push(&o->ids, id) && hri_array_push(&o->labels, label) &&
              hri_array_push(&o->document, o->documents) && hri_array_push(&o->breaks, begins_row));
}

/* Compares one row, whose tokens are [begin, end) of the oracle. */
static uint64_t check_row(const oracle *o, size_t begin, size_t end, uint32_t sequence, int32_t *parts[4]) {
  uint64_t counted = 0;
  uint32_t start = 0;
  for (uint32_t t = 0; t < sequence; t++) {
    size_t i = begin + t;
    bool real = i < end, goes_on = i + 1 < end && o->document.items[i] == o->document.items[i + 1];
    int32_t target = goes_on ? o->labels.items[i + 1] : -100;
    if (t > 0 && (i == end || (real && o->document.items[i] != o->document.items[i - 1]))) start = t;
    if (parts[0][t] != (real ? o->ids.items[i] : 0) || parts[1][t] != target || parts[3][t] != (int32_t)start ||
        parts[2][t] != (int32_t)(t - start))
      fail_msg("token %u of the row at %zu: id %d target %d position %d start %d", t, begin, parts[0][t], parts[1][t],
               parts[2][t], parts[3][t]);
    counted += target != -100;
  }
  return counted;
}

/* All rows, in a shuffled order. */
static void check_rows(const oracle *o, hri_dataset *dataset, uint32_t sequence) {
  HRI_ARRAY(size_t) begins = {0};
  int32_t *memory = malloc(4 * sequence * sizeof *memory), *parts[4];
  uint64_t total = 0, counted, k;
  uint32_t fill = sequence;
  hr_error error = {0};
  assert_non_null(memory);
  for (int p = 0; p < 4; p++) parts[p] = memory + (size_t)p * sequence;
  for (size_t i = 0; i < o->ids.count; i++, fill++) {
    if (fill < sequence && !o->breaks.items[i]) continue;
    assert_true(hri_array_push(&begins, i));
    fill = 0;
  }
  assert_int_equal(hri_dataset_row_count(dataset), begins.count);
  assert_int_equal(hri_dataset_token_count(dataset), o->ids.count);
  assert_int_equal(hri_dataset_document_count(dataset), o->documents);
  for (k = 0; k < begins.count; k++) {
    uint64_t row = hri_dataset_order(begins.count, 7, true, 1, k);
    size_t end = row + 1 < begins.count ? begins.items[row + 1] : o->ids.count;
    memset(memory, 0x55, 4 * sequence * sizeof *memory);
    if (hri_dataset_row(dataset, row, parts[0], parts[1], parts[2], parts[3], &counted, &error) != HR_OK)
      fail_msg("%s", error.message);
    assert_int_equal(counted, check_row(o, begins.items[row], end, sequence, parts));
    total += counted;
  }
  assert_int_equal(hri_dataset_label_count(dataset), total);
  hri_array_free(&begins);
  free(memory);
}

/* A stream of random numbers for a seed. */
typedef struct dice {
  uint64_t seed, count;
} dice;

static uint32_t roll(dice *d, uint32_t sides) {
  uint32_t word[4];
  hri_philox(d->seed, 1, d->count++, word);
  return (uint32_t)(((uint64_t)word[0] * sides) >> 32);
}

/* ---- Random text ---- */

static const char *const separators[] = {"a", "ab", "aab", "aaa", "abab", "\n\n", "babbab"};

/* Splits by the definition: at each place, leftmost first, is the separator there? */
static void oracle_text(oracle *o, const char *text, size_t count, const char *separator, int32_t eos, bool packing) {
  size_t length = separator ? strlen(separator) : 0, begin = 0, i = 0;
  while (begin <= count) {
    while (i < count && !(length > 0 && count - i >= length && memcmp(text + i, separator, length) == 0)) i++;
    for (size_t at = begin; at < i; at++)
      oracle_add(o, (unsigned char)text[at], (unsigned char)text[at], at == begin, at == begin && !packing);
    if (i > begin && eos >= 0) oracle_add(o, eos, eos, false, false);
    if (i >= count) return;
    begin = i = i + length;
  }
}

static void random_text(dice *d, char *text, size_t count) {
  static const char letters[] = {'a', 'b', 'a', 'b', 'a', 'b', '\n', 0, '\xFF'};
  uint32_t sides = roll(d, 2) ? sizeof letters : 2;
  for (size_t i = 0; i < count; i++) text[i] = letters[roll(d, sides)];
}

static void try_text(uint64_t seed, size_t most) {
  dice d = {.seed = seed};
  const char *paths[MAX_FILES];
  uint32_t files = 1 + roll(&d, MAX_FILES), i;
  hri_dataset_options options = options_for(paths, 1 + roll(&d, roll(&d, 3) ? 40 : 400), 256 + roll(&d, 2));
  hri_dataset *dataset;
  oracle o = {0};
  hr_error error = {0};
  options.path_count = files;
  options.packing = roll(&d, 2) ? HR_PACKING_WRAPPED : HR_PACKING_OFF;
  options.separator = roll(&d, 5) ? separators[roll(&d, sizeof separators / sizeof *separators)] : NULL;
  options.eos_token = roll(&d, 2) ? 256 : roll(&d, 2) ? 0 : -1;
  for (i = 0; i < files; i++) {
    size_t count = roll(&d, 4) ? roll(&d, (uint32_t)most) : 0;
    char *text = malloc(count + 1), name[32];
    assert_non_null(text);
    random_text(&d, text, count);
    (void)snprintf(name, sizeof name, "random-%u.txt", i);
    paths[i] = write_file(name, text, count);
    oracle_text(&o, text, count, options.separator,
                options.eos_token < (int32_t)options.vocabulary ? options.eos_token : -1,
                options.packing == HR_PACKING_WRAPPED);
    free(text);
  }
  if (hri_dataset_open(&options, &dataset, &error) == HR_OK) {
    check_rows(&o, dataset, options.sequence);
    hri_dataset_destroy(dataset);
  } else {
    assert_int_equal(error.code, HR_ERROR_INPUT);
    assert_true(strstr(error.message, "no token") ? o.ids.count == 0
                                                  : strstr(error.message, "no label that counts") != NULL);
  }
  oracle_free(&o);
}

static void text_rows_are_those_of_the_oracle(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 300; seed++) try_text(seed, 400);
  for (uint64_t seed = 1001; seed <= 1006; seed++) try_text(seed, 3 * HRI_READER_BYTES);
}

/* Each separator, at each place around the border of the reader's buffer. */
static void separators_may_cross_the_buffer(void **state) {
  const char *path;
  (void)state;
  for (size_t s = 0; s < sizeof separators / sizeof *separators; s++) {
    size_t length = strlen(separators[s]);
    for (size_t at = HRI_READER_BYTES - length - 1; at <= HRI_READER_BYTES + 1; at++) {
      size_t count = HRI_READER_BYTES + 100;
      char *text = malloc(count);
      hri_dataset_options options = options_for(&path, 4096, 256);
      hri_dataset *dataset;
      assert_non_null(text);
      memset(text, 'x', count);
      memcpy(text + at, separators[s], length);
      path = write_file("cross.txt", text, count);
      options.separator = separators[s];
      dataset = open_ok(&options);
      assert_int_equal(hri_dataset_document_count(dataset), 2);
      assert_int_equal(hri_dataset_token_count(dataset), count - length);
      hri_dataset_destroy(dataset);
      free(text);
    }
  }
}

/* ---- Random JSONL ---- */

static void put_blanks(dice *d, FILE *file) {
  static const char *const blanks[] = {"", "", " ", "  ", "\t"};
  fputs(blanks[roll(d, 5)], file);
}

static void put_list(dice *d, FILE *file, const char *name, const int32_t *values, uint32_t count) {
  put_blanks(d, file);
  fprintf(file, "\"%s\"", name);
  put_blanks(d, file);
  fputc(':', file);
  put_blanks(d, file);
  fputc('[', file);
  for (uint32_t i = 0; i < count; i++) {
    put_blanks(d, file);
    fprintf(file, "%s%d", i > 0 ? "," : "", values[i]);
    put_blanks(d, file);
  }
  fputc(']', file);
  put_blanks(d, file);
}

/* Cuts `count` tokens into documents; gives their number. */
static uint32_t random_lengths(dice *d, uint32_t count, int32_t *lengths) {
  uint32_t documents = 0, most = roll(d, 3) ? 20 : 2;
  while (count > 0) {
    uint32_t length = 1 + roll(d, count < most ? count : most);
    lengths[documents++] = (int32_t)length;
    count -= length;
  }
  return documents;
}

/* One line, with its fields in random order, in the file and the oracle. */
static void random_line(dice *d, FILE *file, oracle *o, bool packing, uint32_t vocabulary, uint32_t count,
                        bool *row_ended) {
  int32_t *ids = malloc(4 * (count + 1)), *labels = malloc(4 * (count + 1)), *lengths = malloc(4 * (count + 1));
  bool has_labels = roll(d, 2), has_lengths = roll(d, 3) == 0, ignored = roll(d, 4) == 0;
  uint32_t documents = random_lengths(d, count, lengths), first = roll(d, 4), i, document = 0, left;
  assert_true(ids && labels && lengths);
  for (i = 0; i < count; i++) {
    ids[i] = (int32_t)roll(d, vocabulary);
    labels[i] = roll(d, 3) == 0 ? -100 : (int32_t)roll(d, vocabulary);
  }
  fputc('{', file);
  for (i = 0; i < 4; i++) {
    const char *comma = i == 3 ? "" : ",";
    switch ((first + i) % 4) {
    case 0: put_list(d, file, "input_ids", ids, count); break;
    case 1: has_labels ? put_list(d, file, "labels", labels, count) : (void)fputs("\"labels\": null", file); break;
    case 2:
      has_lengths ? put_list(d, file, "seq_lengths", lengths, documents) : (void)fputs("\"seq_lengths\":null ", file);
      break;
    default: ignored ? put_list(d, file, "position_ids", labels, count) : (void)fputs("\"token_type_ids\":[]", file);
    }
    fputs(comma, file);
  }
  fputs(roll(d, 2) ? "}\n" : roll(d, 2) ? "}\r\n" : "}\n\n \n", file);
  left = has_lengths && count > 0 ? (uint32_t)lengths[0] : count;
  for (i = 0; i < count; i++, left--) {
    bool begins = i == 0;
    if (left == 0) {
      left = (uint32_t)lengths[++document];
      begins = true;
    }
    oracle_add(o, ids[i], has_labels ? labels[i] : ids[i], begins, i == 0 && (has_lengths || !packing || *row_ended));
    if (i == 0) *row_ended = has_lengths;
  }
  free(ids);
  free(labels);
  free(lengths);
}

static void try_jsonl(uint64_t seed, uint32_t lines, uint32_t most) {
  dice d = {.seed = seed};
  uint32_t sequence = 2 + roll(&d, roll(&d, 3) ? 60 : 400),
           vocabulary = roll(&d, 2) ? 1 + roll(&d, 300) : 1 + roll(&d, INT32_MAX - 1);
  const char *paths[2] = {in_directory("random-a.jsonl"), in_directory("random-b.json-lines")};
  hri_dataset_options options = options_for(paths, sequence, vocabulary);
  hri_dataset *dataset;
  oracle o = {0};
  hr_error error = {0};
  bool row_ended = false;
  options.path_count = 1 + roll(&d, 2);
  options.packing = roll(&d, 2) ? HR_PACKING_WRAPPED : HR_PACKING_OFF;
  for (uint32_t f = 0; f < options.path_count; f++) {
    FILE *file = fopen(paths[f], "wb");
    assert_non_null(file);
    for (uint32_t i = roll(&d, lines + 1); i > 0; i--)
      random_line(&d, file, &o, options.packing == HR_PACKING_WRAPPED, vocabulary, roll(&d, 5) ? roll(&d, most) : 0,
                  &row_ended);
    assert_int_equal(fclose(file), 0);
  }
  if (hri_dataset_open(&options, &dataset, &error) == HR_OK) {
    check_rows(&o, dataset, sequence);
    hri_dataset_destroy(dataset);
  } else if (error.code != HR_ERROR_INPUT ||
             !strstr(error.message, o.ids.count == 0 ? "no token" : "no label that counts")) {
    fail_msg("seed %llu: %s", (unsigned long long)seed, error.message);
  }
  oracle_free(&o);
}

static void jsonl_rows_are_those_of_the_oracle(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 300; seed++) try_jsonl(seed, 12, 70);
  for (uint64_t seed = 1001; seed <= 1004; seed++) try_jsonl(seed, 400, 700);  /* many buffers, spilled to disk */
  for (uint64_t seed = 2001; seed <= 2004; seed++) try_jsonl(seed, 3, 100000); /* lines of many buffers, many lengths */
}

/* A line at each place around the border of the reader's buffer. */
static void lines_may_cross_the_buffer(void **state) {
  static const char line[] = "{\"input_ids\": [12345, 67890, 1], \"labels\": null, \"seq_lengths\": [2, 1]}";
  char *text = malloc(HRI_READER_BYTES + 200);
  (void)state;
  assert_non_null(text);
  memset(text, ' ', HRI_READER_BYTES + 200);
  for (size_t at = HRI_READER_BYTES - sizeof line - 1; at <= HRI_READER_BYTES + 1; at++) {
    const char *path;
    hri_dataset_options options = options_for(&path, 4, 100000);
    hri_dataset *dataset;
    memcpy(text + at, line, sizeof line - 1);
    path = write_file("cross.jsonl", text, at + sizeof line - 1);
    dataset = open_ok(&options);
    assert_string_equal(row_text(dataset, 0, 4), "12345 67890 1 0 | 67890 -100 -100 -100 | 0 1 0 0 | 0 0 2 3");
    hri_dataset_destroy(dataset);
    text[at] = ' ';
  }
  free(text);
}

static void formats_may_be_mixed(void **state) {
  const char *paths[4] = {write_text("mix-1.txt", "ab"), write_text("mix-2.jsonl", ""),
                          write_text("mix-3.JSONL", "{\"input_ids\":[300,301]}"), write_text("mix-4.txt", "cd")};
  hri_dataset_options options = options_for(paths, 4, 302);
  hri_dataset *dataset;
  (void)state;
  options.path_count = 4;
  dataset = open_ok(&options);
  assert_int_equal(hri_dataset_row_count(dataset), 2);
  assert_string_equal(row_text(dataset, 1, 4), "99 100 0 0 | 100 -100 -100 -100 | 0 1 0 1 | 0 0 2 2");
  assert_string_equal(row_text(dataset, 0, 4), "97 98 300 301 | 98 -100 301 -100 | 0 1 0 1 | 0 0 2 2");
  assert_non_null(strstr(hri_dataset_note(dataset), "mix-4.txt: text; "));
  assert_non_null(strstr(hri_dataset_note(dataset),
                         "mix-3.JSONL: JSONL of token ids, bytes as tokens, 3 documents, 6 tokens -> 2 rows of 4 "
                         "(25 % padding); an empty file was passed over"));
  hri_dataset_destroy(dataset);
}

/* ---- The rules of the formats ---- */

static void text_takes_bytes_as_they_are(void **state) {
  static const char bytes[] = "\xEF\xBB\xBF"
                              "a\r\n\0\xFF\xEF\xBB\xBF";
  const char *path = write_file("bytes.txt", bytes, sizeof bytes - 1);
  hri_dataset_options options = options_for(&path, 8, 256);
  hri_dataset *dataset = open_ok(&options);
  (void)state;
  assert_string_equal(row_text(dataset, 0, 8),
                      "97 13 10 0 255 239 187 191 | 13 10 0 255 239 187 191 -100 | 0 1 2 3 4 5 6 7 | 0 0 0 0 0 0 0 0");
  assert_non_null(strstr(hri_dataset_note(dataset), "a byte order mark was dropped"));
  hri_dataset_destroy(dataset);
}

static void the_end_token_needs_a_place_in_the_vocabulary(void **state) {
  static const struct {
    uint64_t vocabulary;
    int32_t eos;
    uint64_t tokens;
  } cases[] = {{256, -1, 2}, {256, 256, 2}, {257, 256, 3}, {50257, 50256, 3},
               {256, 10, 3}, {300, -1, 2},  {300, 300, 2}};
  const char *path = write_text("eos.txt", "ab");
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hri_dataset_options options = options_for(&path, 8, cases[i].vocabulary);
    hri_dataset *dataset;
    options.eos_token = cases[i].eos;
    dataset = open_ok(&options);
    assert_int_equal(hri_dataset_token_count(dataset), cases[i].tokens);
    assert_int_equal(strstr(hri_dataset_note(dataset), "at the end of each document") != NULL, cases[i].tokens == 3);
    hri_dataset_destroy(dataset);
  }
}

static void empty_documents_are_none(void **state) {
  const char *path = write_text("holes.txt", "::a:::b::");
  hri_dataset_options options = options_for(&path, 2, 257);
  hri_dataset *dataset;
  (void)state;
  options.separator = ":";
  options.eos_token = 256;
  dataset = open_ok(&options);
  assert_int_equal(hri_dataset_document_count(dataset), 2);
  assert_string_equal(row_text(dataset, 1, 2), "98 256 | 256 -100 | 0 1 | 0 0");
  hri_dataset_destroy(dataset);
}

/* The same rows, however the lines are written. */
static void jsonl_is_read_in_any_spelling(void **state) {
  static const char *const spellings[] = {
      "{\"input_ids\":[1,2,0],\"labels\":[-100,2,0]}\n",
      "{\"input_ids\":[1,2,0],\"labels\":[-100,2,0]}",
      "\xEF\xBB\xBF{\"input_ids\":[1,2,0],\"labels\":[-100,2,0]}\r\n",
      "\n\r\n  \n\t{ \"labels\" :\t[ -100 , 2 ,0 ] , \"input_ids\" : [ 1 ,2, -0 ] } \r\n\n",
      ("{\"input_ids\":[]}\n{\"input_ids\":[1,2,0],\"labels\":[-100,2,0],\"seq_lengths\":null,\"attention_mask\":[1,1,0],"
       "\"position_ids\":[0,1,2],\"token_type_ids\":[]}\n{\"input_ids\":[],\"labels\":[],\"seq_lengths\":[]}"),
  };
  (void)state;
  for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
    const char *path = write_text("spelling.jsonl", spellings[i]);
    hri_dataset_options options = options_for(&path, 4, 3);
    hri_dataset *dataset = open_ok(&options);
    assert_int_equal(hri_dataset_row_count(dataset), 1);
    assert_string_equal(row_text(dataset, 0, 4), "1 2 0 0 | 2 0 -100 -100 | 0 1 2 0 | 0 0 0 3");
    if (i == 4) {
      assert_non_null(strstr(hri_dataset_note(dataset),
                             "2 counted labels -> 1 row of 4 (25 % padding); rows without tokens were passed "
                             "over; attention_mask is not used; it holds zeros: padding needs labels of -100, "
                             "or rows without it; position_ids are not used"));
      assert_non_null(strstr(hri_dataset_note(dataset), "; token_type_ids are not used"));
    }
    hri_dataset_destroy(dataset);
  }
}

static void the_note_tells_what_was_read(void **state) {
  const char *path = in_directory("note.txt");
  char *text = malloc(1234567), expected[600];
  hri_dataset_options options = options_for(&path, 256, 256);
  hri_dataset *dataset;
  (void)state;
  assert_non_null(text);
  memset(text, 'a', 1234567);
  (void)write_file("note.txt", text, 1234567);
  free(text);
  dataset = open_ok(&options);
  (void)snprintf(expected, sizeof expected,
                 "%s: text, bytes as tokens, 1 document, 1,234,567 tokens -> 4,823 rows of 256", path);
  assert_string_equal(hri_dataset_note(dataset), expected);
  hri_dataset_destroy(dataset);
  path = write_text("note2.txt", "{\"input_ids\": [1]}\n");
  dataset = open_ok(&options);
  assert_non_null(strstr(hri_dataset_note(dataset), "looks like JSONL"));
  hri_dataset_destroy(dataset);
}

/* ---- Bad input ---- */

#define BYTES(text) (text), sizeof(text) - 1

static const struct {
  const char *bytes;
  size_t count;
  const char *message, *hint;
} bad_lines[] = {
    {BYTES(""), "bad.jsonl holds no token", "text or with JSONL rows"},
    {BYTES("\n\n \r\n"), "holds no token", "JSONL"},
    {BYTES("\xEF\xBB\xBF"), "holds no token", "JSONL"},
    {BYTES("{\"input_ids\":[]}\n"), "holds no token", "JSONL"},
    {BYTES("{\"input_ids\":[5]}"), "no label that counts", "--seq"},
    {BYTES("{\"input_ids\":[5,6],\"labels\":[5,-100]}"), "no label that counts", "labels"},
    {BYTES("{\"input_ids\":[5,6],\"seq_lengths\":[1,1]}"), "no label that counts", "labels"},
    /* ids and labels outside the vocabulary of 100 */
    {BYTES("{\"input_ids\":[1,2]}\n{\"input_ids\":[1,99,100]}"),
     "bad.jsonl:2: field 'input_ids': value 100 at index 2 is outside the vocabulary [0, 100)", "tokenizer"},
    {BYTES("{\"input_ids\":[-1]}"), ":1: field 'input_ids': value -1 at index 0", "tokenizer"},
    {BYTES("{\"input_ids\":[-100]}"), "field 'input_ids': value -100 at index 0", "tokenizer"},
    {BYTES("{\"labels\":[1,-99]}"),
     "field 'labels': value -99 at index 1 is outside the vocabulary [0, 100) and not -100", "tokenizer"},
    {BYTES("{\"labels\":[100]}"), "field 'labels': value 100 at index 0", "tokenizer"},
    {BYTES("{\"input_ids\":[4294967296]}"), "value 4294967296 at", "tokenizer"},
    {BYTES("{\"input_ids\":[999999999999999999]}"), "value 999999999999999999 at", "tokenizer"},
    {BYTES("{\"input_ids\":[9999999999999999999]}"), "9999999999999999999 at index 0 is out of range",
     "plain integers"},
    {BYTES("{\"input_ids\":[18446744073709551616]}"),
     "field 'input_ids': 18446744073709551616 at index 0 is out of range", "plain integers"},
    {BYTES(
         "{\"input_ids\":[-18446744073709551616000000000000000000000000000000000000000000000000000000000000000000000]}"),
     "at index 0 is out of range", "plain integers"},
    /* lengths that do not agree */
    {BYTES("{\"input_ids\":[1,2,3],\"labels\":[1,2]}"), ":1: field 'labels' has 2 values, 'input_ids' has 3",
     "one label per token"},
    {BYTES("{\"labels\":[],\"input_ids\":[1,2,3]}"), "field 'labels' has 0 values, 'input_ids' has 3",
     "one label per token"},
    {BYTES("{\"labels\":[1],\"input_ids\":[]}"), "field 'labels' has 1 values, 'input_ids' has 0",
     "one label per token"},
    {BYTES("{\"input_ids\":[1,2,3],\"seq_lengths\":[1,1]}"), "field 'seq_lengths' adds up to 2, 'input_ids' has 3",
     "all of it"},
    {BYTES("{\"input_ids\":[1,2,3],\"seq_lengths\":[]}"), "field 'seq_lengths' adds up to 0, 'input_ids' has 3",
     "all of it"},
    {BYTES("{\"input_ids\":[1,2,3],\"seq_lengths\":[3,1]}"), "field 'seq_lengths' adds up to 4, 'input_ids' has 3",
     "all of it"},
    {BYTES("{\"input_ids\":[1,2,3],\"seq_lengths\":[3,0]}"),
     "field 'seq_lengths': value 0 at index 1 is no number of tokens", "at least 1"},
    {BYTES("{\"input_ids\":[1,2,3],\"seq_lengths\":[4,-1]}"), "field 'seq_lengths': value -1 at index 1", "at least 1"},
    /* not integers */
    {BYTES("{\"input_ids\":[1,2.0]}"), "field 'input_ids': 2.0 at index 1 is not an integer", "plain integers"},
    {BYTES("{\"input_ids\":[1,2e0]}"), "2e0 at index 1 is not an integer", "plain integers"},
    {BYTES("{\"input_ids\":[1,02]}"), "02 at index 1 is not an integer", "plain integers"},
    {BYTES("{\"input_ids\":[1,+2]}"), "+2 at index 1 is not an integer", "plain integers"},
    {BYTES("{\"input_ids\":[1,-]}"), "- at index 1 is not an integer", "plain integers"},
    {BYTES("{\"input_ids\":[1,]}"), "']' at index 1 is not an integer", "plain integers"},
    {BYTES("{\"input_ids\":[1,null]}"), "null at index 1 is not an integer", "plain integers"},
    {BYTES("{\"input_ids\":[1,true]}"), "true at index 1 is not an integer", "plain integers"},
    {BYTES("{\"input_ids\":[1,\"2\"]}"), "a string at index 1 is not an integer", "plain integers"},
    {BYTES("{\"input_ids\":[[1,2]]}"), "a list at index 0 is not an integer", "plain integers"},
    {BYTES("{\"attention_mask\":[0.5]}"), "field 'attention_mask': 0.5 at index 0 is not an integer", "plain integers"},
    {BYTES("{\"input_ids\":[1,NaN]}"), "NaN at index 1 is not an integer", "plain integers"},
    {BYTES("{\"input_ids\":[1 2]}"), "field 'input_ids': expected ',' or ']' after index 0, found 2",
     "one JSON object"},
    {BYTES("{\"input_ids\":[1x]}"), "expected ',' or ']' after index 0, found x", "one JSON object"},
    {BYTES("{\"input_ids\":7}"), "field 'input_ids' must be a list of integers, found 7", "one JSON object"},
    {BYTES("{\"input_ids\":null}"), "field 'input_ids' must be a list of integers, found null", "one JSON object"},
    {BYTES("{\"input_ids\":\"abc\"}"), "must be a list of integers, found a string", "one JSON object"},
    {BYTES("{\"input_ids\":{}}"), "must be a list of integers, found an object", "one JSON object"},
    {BYTES("{\"labels\":nul}"), "field 'labels' must be a list of integers, found nul", "one JSON object"},
    {BYTES("{\"labels\":nullx,\"input_ids\":[1]}"), "expected ',' or '}', found x", "one JSON object"},
    /* fields */
    {BYTES("{}"), "bad.jsonl:1: the field 'input_ids' is missing", "input_ids"},
    {BYTES("{\"labels\":[1]}"), "the field 'input_ids' is missing", "input_ids"},
    {BYTES("{\"input_ids\":[1,2]}\n{\"text\":\"x\"}"), "bad.jsonl:2: the field 'input_ids' is missing", "input_ids"},
    {BYTES("{\"input_ids\":[1],\"x\":tru e}"), "expected ',' or '}', found e", "one JSON object"},
    {BYTES("{\"input_ids\":[1],\"x\":[1 2]}"), "expected ',' or ']', found 2", "one JSON object"},
    {BYTES("{\"input_ids\":[1],\"x\":{1:2}}"), "expected a field name in quotes, found 1", "one JSON object"},
    {BYTES("{\"input_ids\":[1],\"x\":\"a\nb\"}"), "expected the rest of a string, found the end of the line",
     "one JSON object"},
    {BYTES("{\"Input_ids\":[1]}"), "bad.jsonl: no known fields in its first rows, but: Input_ids", "rename"},
    {BYTES("{\"input_id\":[1],\"y\":2}"), "no known fields in its first rows, but: input_id, y", "rename"},
    {BYTES("{\"question\":\"a\",\"answer\":\"b\"}\n{\"question\":\"c\",\"answer\":\"d\",\"quest\":1}"),
     "no known fields in its first rows, but: question, answer, quest", "rename"},
    {BYTES("{\"\":[1]}"), "the field 'input_ids' is missing", "input_ids"},
    {BYTES("{\"a\x01\xFF%s\":[1]}"),
     "no known fields in its first rows, but: a?"
     "?%s",
     "rename"},
    {BYTES("{\"input_ids\":[1],\"input_ids\":[1]}"), "the field 'input_ids' stands twice", "one JSON object"},
    {BYTES("{\"labels\":null,\"labels\":null}"), "the field 'labels' stands twice", "one JSON object"},
    /* not JSON, or not one object per line */
    {BYTES("[{\"input_ids\":[1,2]}"), "bad.jsonl:1: expected ',' or ']' behind a row", "JSON array"},
    {BYTES("[{\"input_ids\":[1,2]},\n\n{\"input_ids\":[1,"),
     "bad.jsonl:3: expected the rest of a row, found the end of the file", "JSON array"},
    {BYTES("[{\"input_ids\":[1,2]}]\n{}"), "bad.jsonl:2: expected the end of the file behind the array", "JSON array"},
    {BYTES("[{\"input_ids\":[1,2]},\n7]"), "bad.jsonl:2: expected an object, found 7", "one JSON object"},
    {BYTES("hello"), "expected an object, found hello", "one JSON object"},
    {BYTES("{\"input_ids\":[1,2]"), "expected ',' or '}', found the end of the file", "one JSON object"},
    {BYTES("{\"input_ids\":[1,2"), "expected ',' or ']' after index 1, found the end of the file", "one JSON object"},
    {BYTES("{\"input_ids\":[1,"), "the end of the file at index 1 is not an integer", "plain integers"},
    {BYTES("{\"input_ids\":["), "the end of the file at index 0 is not an integer", "plain integers"},
    {BYTES("{\"input_ids\":"), "found the end of the file", "one JSON object"},
    {BYTES("{\"input_ids\""), "expected ':', found the end of the file", "one JSON object"},
    {BYTES("{\"input_ids"), "the field name 'input_ids' does not end", "one JSON object"},
    {BYTES("{"), "expected a field name in quotes, found the end of the file", "one JSON object"},
    {BYTES("{\"input_ids\":[1,2\n]}"),
     ":1: field 'input_ids': expected ',' or ']' after index 1, found the end of the line", "one JSON object"},
    {BYTES("{\"input_ids\":[1,2],\n\"labels\":[1,2]}"),
     ":1: expected a field name in quotes, found the end of the line", "one JSON object"},
    {BYTES("{\"input_ids\n\":[1,2]}"), "the field name 'input_ids' does not end", "one JSON object"},
    {BYTES("{\"input_ids\":[1,2],}"), "expected a field name in quotes, found '}'", "one JSON object"},
    {BYTES("{,}"), "expected a field name in quotes, found ','", "one JSON object"},
    {BYTES("{input_ids:[1,2]}"), "expected a field name in quotes, found input_ids", "one JSON object"},
    {BYTES("{\"input_ids\" [1,2]}"), "expected ':', found a list", "one JSON object"},
    {BYTES("{\"input_ids\":[1,2]};"), "expected the end of the line, found ;", "one JSON object"},
    {BYTES("{\"input_ids\":[1,2]} {\"input_ids\":[1,2]}"), "expected the end of the line, found an object",
     "one JSON object"},
    {BYTES("{\"input_ids\":[1,2]}\n\n\xEF\xBB\xBF{\"input_ids\":[1,2]}"), ":3: expected an object, found the byte 0xef",
     "one JSON object"},
    /* NUL bytes, which also mark the end of the buffer */
    {BYTES("\0{\"input_ids\":[1,2]}"), "expected an object, found the byte 0x00", "one JSON object"},
    {BYTES("{\"input_ids\0\":[1,2]}"), "the field name 'input_ids' does not end", "one JSON object"},
    {BYTES("{\"input_ids\":\0[1,2]}"), "found the byte 0x00", "one JSON object"},
    {BYTES("{\"input_ids\":[1,\0002]}"), "the byte 0x00 at index 1 is not an integer", "plain integers"},
    {BYTES("{\"input_ids\":[1,2\0003]}"), "after index 1, found the byte 0x00", "one JSON object"},
    {BYTES("{\"input_ids\":[1,2]}\0"), "expected the end of the line, found the byte 0x00", "one JSON object"},
};

static void bad_jsonl_is_refused_by_name(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof bad_lines / sizeof *bad_lines; i++) {
    const char *path = write_file("bad.jsonl", bad_lines[i].bytes, bad_lines[i].count);
    hri_dataset_options options = options_for(&path, 8, 100);
    open_fails_with(&options, HR_ERROR_INPUT, bad_lines[i].message, bad_lines[i].hint);
    options.packing = HR_PACKING_OFF;
    open_fails_with(&options, HR_ERROR_INPUT, bad_lines[i].message, bad_lines[i].hint);
  }
}

static void lines_have_at_most_64_mib(void **state) {
  enum { PART = 1 << 20, LIMIT = 64 << 20 };
  const char *path = in_directory("long.jsonl"), *ends[2] = {"1]}\n", "11]}\n"};
  char *part = malloc(PART);
  (void)state;
  assert_non_null(part);
  for (int i = 0; i < PART; i += 2) memcpy(part + i, "1,", 2);
  for (int over = 0; over < 2; over++) { /* exactly 64 MiB without the line's end, and one byte more */
    hri_dataset_options options = options_for(&path, 1024, 12);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fputs("{\"input_ids\": [", file); /* 15 bytes, and 3 at the end */
    for (int i = 0; i < 63; i++) assert_int_equal(fwrite(part, 1, PART, file), PART);
    assert_int_equal(fwrite(part, 1, PART - 18, file), PART - 18);
    fputs(ends[over], file);
    assert_int_equal(fclose(file), 0);
    if (over) {
      open_fails_with(&options, HR_ERROR_INPUT, "long.jsonl:1: the line has more than 64 MiB", "line break");
    } else {
      hri_dataset *dataset = open_ok(&options);
      assert_int_equal(hri_dataset_token_count(dataset), (LIMIT - 18) / 2 + 1);
      hri_dataset_destroy(dataset);
    }
  }
  free(part);
  unlink(path);
}

static void bad_text_is_refused_by_name(void **state) {
  static const struct {
    const char *bytes;
    size_t count;
    const char *message, *hint;
  } cases[] = {
      {BYTES(""), "bad.txt holds no token", "name files"},
      {BYTES("--"), "bad.txt holds no token", "name files"},
      {BYTES("a--b"), "no label that counts", "--seq"},
      {BYTES("\x1F\x8B\x08\x00zzz"), "bad.txt is a damaged gzip file: it ends in the middle", "anew"},
      {BYTES("PK\x03\x04zzz"), "bad.txt is a zip file", "unpack"},
      {BYTES("PAR1\x15\x04"), "bad.txt is a damaged Parquet file: it has no footer", "anew"},
      {BYTES("PARE\x15\x04"), "bad.txt is a Parquet file with encryption", "without encryption"},
  };
  const char *path = NULL;
  hri_dataset_options options = options_for(&path, 8, 256);
  (void)state;
  options.separator = "--";
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    path = write_file("bad.txt", cases[i].bytes, cases[i].count);
    open_fails_with(&options, HR_ERROR_INPUT, cases[i].message, cases[i].hint);
  }
  path = write_text("bad.txt", "hello");
  options.vocabulary = 255;
  open_fails_with(&options, HR_ERROR_INPUT, "bad.txt: this model's vocabulary of 255 has no byte tokens",
                  "pre-tokenized JSONL");
}

static bool stop_at_the_third(void *context) { return ++*(int *)context == 3; }

/* Whoever opens a data set may change their mind, whatever is read. */
static void reading_can_be_stopped(void **state) {
  enum { BYTES = 600000, ROWS = 10 };
  static char text[BYTES + 1];
  const char *paths[4];
  size_t used = 0;
  (void)state;
  for (int r = 0; r < ROWS; r++)
    used += (size_t)snprintf(text + used, sizeof text - used, "{\"text\": \"row %d\"}\n", r);
  paths[0] = write_text("stopped-rows.jsonl", text);
  used = 0;
  for (int r = 0; r < ROWS; r++)
    used += (size_t)snprintf(text + used, sizeof text - used, "{\"input_ids\": [%d, 2, 3]}\n", r);
  paths[1] = write_text("stopped-ids.jsonl", text);
  memset(text, 'a', BYTES);
  paths[2] = write_text("stopped.txt", text);
  memset(text, 0, BYTES);
  paths[3] = write_file("stopped.bin", text, BYTES);
  for (int k = 0; k < 4; k++) {
    int polls = 0;
    hri_dataset_options options = options_for(&paths[k], 8, 256);
    options.should_stop = stop_at_the_third;
    options.stop_context = &polls;
    open_fails_with(&options, HR_ERROR_INTERRUPTED, paths[k], "");
    assert_int_equal(polls, 3);
  }
}

static void bad_paths_and_options_are_refused(void **state) {
  const char *good = write_text("good.txt", "hello"), *path = in_directory("missing.txt");
  hri_dataset_options options = options_for(&path, 8, 256);
  char *separator = malloc(5000);
  (void)state;
  assert_non_null(separator);
  memset(separator, 'x', 4999);
  separator[4999] = 0;
  open_fails_with(&options, HR_ERROR_IO, "missing.txt: No such file", "path");
  path = in_directory("no-data");
  assert_int_equal(mkdir(path, 0700), 0);
  assert_int_equal(mkdir(in_directory("no-data/inner.txt"), 0700), 0);
  (void)write_text("no-data/.hidden.txt", "hidden");
  (void)write_text("no-data/notes.pdf", "no data");
  open_fails_with(&options, HR_ERROR_INPUT, "no-data has no data files", "name others one by one");
  path = in_directory("some-data");
  assert_int_equal(mkdir(path, 0700), 0);
  (void)write_text("some-data/a.txt", "one file");
  (void)write_text("some-data/b.txt", "another");
  names_until_fault = 4;
  open_fails_with(&options, HR_ERROR_IO, "cannot read directory", "dmesg"); /* and no data set of one file */
  path = in_directory("pipe.jsonl");
  assert_int_equal(mkfifo(path, 0600), 0);
  open_fails_with(&options, HR_ERROR_INPUT, "pipe.jsonl is a FIFO", "write a stream to a file");
  path = good;
  options.path_count = 0;
  open_fails_with(&options, HR_ERROR_USAGE, "no data file", "");
  options.path_count = 1;
  options.sequence = 0;
  open_fails_with(&options, HR_ERROR_USAGE, "a row of 0 tokens", "");
  options.sequence = 8;
  options.vocabulary = 0;
  open_fails_with(&options, HR_ERROR_USAGE, "a vocabulary of 0", "");
  options.vocabulary = (uint64_t)INT32_MAX + 1;
  open_fails_with(&options, HR_ERROR_USAGE, "a vocabulary of 2147483648", "");
  options.vocabulary = 256;
  options.separator = "";
  open_fails_with(&options, HR_ERROR_USAGE, "separator", "");
  options.separator = separator;
  open_fails_with(&options, HR_ERROR_USAGE, "separator", "");
  options.separator = NULL;
  options.sequence = 1;
  open_fails_with(&options, HR_ERROR_INPUT, "no label that counts", "--seq is above 1");
  free(separator);
}

/* ---- Hash and order ---- */

static uint64_t hash_of(const hri_dataset_options *options) {
  hri_dataset *dataset = open_ok(options);
  uint64_t hash = hri_dataset_hash(dataset);
  hri_dataset_destroy(dataset);
  return hash;
}

static void the_hash_tells_data_apart(void **state) {
  const char *a = write_text("hash-a.txt", "one--two"), *b = write_text("hash-b.txt", "three"), *paths[2];
  hri_dataset_options base = options_for(paths, 4, 300), changed;
  uint64_t hashes[10];
  uint32_t count = 0;
  (void)state;
  base.path_count = 2;
  paths[0] = a, paths[1] = b;
  hashes[count++] = hash_of(&base);
  assert_int_equal(hash_of(&base), hashes[0]);
  changed = base, changed.sequence = 5, hashes[count++] = hash_of(&changed);
  changed = base, changed.packing = HR_PACKING_OFF, hashes[count++] = hash_of(&changed);
  changed = base, changed.separator = "--", hashes[count++] = hash_of(&changed);
  changed = base, changed.eos_token = 299, hashes[count++] = hash_of(&changed);
  changed = base, changed.path_count = 1, hashes[count++] = hash_of(&changed);
  paths[0] = b, paths[1] = a;
  hashes[count++] = hash_of(&base);
  paths[0] = write_text("hash-c.txt", "one--twothr"),
  paths[1] = write_text("hash-d.txt", "ee"); /* the same bytes, cut elsewhere */
  hashes[count++] = hash_of(&base);
  paths[0] = write_text("hash-c.txt", "One--two"), paths[1] = b;
  hashes[count++] = hash_of(&base);
  for (uint32_t i = 0; i < count; i++)
    for (uint32_t k = 0; k < i; k++) assert_int_not_equal(hashes[i], hashes[k]);
  paths[0] = write_text("hash-c.txt", "one--two"); /* another name, the same content */
  assert_int_equal(hash_of(&base), hashes[0]);
}

static void the_digest_does_not_depend_on_cuts(void **state) {
  unsigned char bytes[1000];
  hri_digest whole = {0};
  dice d = {.seed = 5};
  (void)state;
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)roll(&d, 256);
  hri_digest_add(&whole, bytes, sizeof bytes);
  for (int round = 0; round < 100; round++) {
    hri_digest cut = {0};
    for (size_t at = 0; at < sizeof bytes;) {
      size_t part = roll(&d, 40);
      if (part > sizeof bytes - at) part = sizeof bytes - at;
      hri_digest_add(&cut, bytes + at, part);
      at += part;
    }
    assert_int_equal(hri_digest_value(&cut), hri_digest_value(&whole));
  }
  bytes[0] = 0; /* zeros count, too */
  for (size_t i = 0; i < 20; i++) {
    hri_digest shorter = {0}, longer = {0};
    memset(bytes, 0, sizeof bytes);
    hri_digest_add(&shorter, bytes, i);
    hri_digest_add(&longer, bytes, i + 1);
    assert_int_not_equal(hri_digest_value(&shorter), hri_digest_value(&longer));
  }
}

static void the_order_is_the_files_or_a_permutation(void **state) {
  uint8_t seen[1000];
  uint32_t moved = 0;
  (void)state;
  for (uint64_t count = 1; count <= sizeof seen; count = count * 3 + 1) {
    memset(seen, 0, sizeof seen);
    for (uint64_t k = 0; k < count; k++) {
      uint64_t row = hri_dataset_order(count, 3, true, 2, k);
      assert_true(row < count && !seen[row]);
      seen[row] = 1;
      moved += row != hri_dataset_order(count, 3, true, 3, k);
      assert_int_equal(hri_dataset_order(count, 3, false, 2, k), k);
    }
  }
  assert_true(moved > 100); /* epochs differ */
}

/* ---- Memory, disks, files that change ---- */

static unsigned open_files(void) {
  DIR *dir = opendir("/proc/self/fd");
  unsigned count = 0;
  assert_non_null(dir);
  while (readdir(dir)) count++;
  closedir(dir);
  return count;
}

/* Lines with labels and lengths; with 40,000 of them every store spills to disk. */
static const char *write_big_jsonl(uint32_t lines) {
  const char *path = in_directory("big.jsonl");
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  for (uint32_t i = 0; i < lines; i++)
    fprintf(file, "{\"input_ids\": [%u, 2, 3, 4, 5, 6], \"labels\": [-100, 2, %u, 4, 5, 6], \"seq_lengths\": [4, 2]}\n",
            i, i);
  assert_int_equal(fclose(file), 0);
  return path;
}

static void every_refused_allocation_is_a_clean_error(void **state) {
  const char *paths[2] = {write_big_jsonl(10), write_text("memory.txt", "some text")};
  hri_dataset_options options = options_for(paths, 8, 257);
  uint64_t live = hri_mem_live_bytes(), refused = 0;
  unsigned files = open_files();
  (void)state;
  options.path_count = 2;
  for (uint64_t nth = 1;; nth++) {
    hri_dataset *dataset = NULL;
    hr_error error = {0};
    hr_status status;
    hri_mem_fail_after(nth);
    status = hri_dataset_open(&options, &dataset, &error);
    if (status == HR_OK) (void)row_text(dataset, 3, 8); /* needs none */
    hri_mem_fail_after(0);
    hri_dataset_destroy(dataset);
    assert_int_equal(hri_mem_live_bytes(), live);
    assert_int_equal(open_files(), files);
    if (status == HR_OK) break;
    assert_int_equal(status, HR_ERROR_MEMORY);
    assert_true(error.requested_bytes > 0 && strstr(error.message, "refused"));
    refused++;
  }
  assert_true(refused >= 10);
}

static void full_disks_are_a_clean_error(void **state) {
  const char *path = write_big_jsonl(40000);
  hri_dataset_options options = options_for(&path, 8, 40000);
  struct rlimit old, small;
  unsigned files = open_files();
  void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
  hri_dataset *dataset;
  (void)state;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
  small = old;
  for (rlim_t limit = 1000; limit < 1200000; limit = limit * 3 + 1) { /* the largest store has 960,000 bytes */
    hri_dataset *none = NULL;
    hr_error error = {0};
    hr_status status;
    uint64_t live = hri_mem_live_bytes();
    small.rlim_cur = limit;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    status = hri_dataset_open(&options, &none, &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(status, HR_ERROR_IO);
    assert_non_null(strstr(error.message, directory));
    assert_non_null(strstr(error.hint, "TMPDIR"));
    assert_int_equal(hri_mem_live_bytes(), live);
    assert_int_equal(open_files(), files);
  }
  signal(SIGXFSZ, handler);
  options.cache_directory = in_directory("nowhere");
  open_fails_with(&options, HR_ERROR_IO, "nowhere", "TMPDIR");
  options.cache_directory = directory;
  dataset = open_ok(&options);
  assert_true(hri_dataset_disk_bytes(dataset) > 4 * 900000);
  hri_dataset_destroy(dataset);
}

static void temporary_files_have_no_name(void **state) {
  const char *path = write_big_jsonl(40000);
  char place[300];
  hri_dataset_options options = options_for(&path, 8, 40000);
  hri_dataset *dataset;
  (void)state;
  (void)snprintf(place, sizeof place, "%s/cache", directory);
  assert_int_equal(mkdir(place, 0700), 0);
  options.cache_directory = place;
  dataset = open_ok(&options);
  assert_true(hri_dataset_disk_bytes(dataset) > 0);
  assert_int_equal(rmdir(place), 0); /* it is empty */
  assert_string_equal(row_text(dataset, 39999, 8),
                      "39999 2 3 4 5 6 0 0 | 2 39999 4 -100 6 -100 -100 -100 | 0 1 2 3 0 1 0 1 | 0 0 0 0 4 4 6 6");
  hri_dataset_destroy(dataset);
}

static void small_data_needs_no_disk(void **state) {
  const char *path = write_big_jsonl(100);
  hri_dataset_options options = options_for(&path, 8, 40000);
  hri_dataset *dataset;
  (void)state;
  options.cache_directory = "/nowhere/at/all";
  dataset = open_ok(&options);
  assert_int_equal(hri_dataset_disk_bytes(dataset), 0);
  hri_dataset_destroy(dataset);
}

static uint64_t peak_resident_bytes(void) {
  FILE *file = fopen("/proc/self/status", "r");
  char line[256];
  unsigned long long kib = 0;
  while (file && fgets(line, sizeof line, file))
    if (sscanf(line, "VmHWM: %llu", &kib) == 1) break;
  if (file) fclose(file);
  return kib * 1024;
}

/* In a child, whose peak starts at what it has now. */
static void opening_and_reading_stay_below_1_mib(void **state) {
  const char *paths[2] = {write_big_jsonl(200000), in_directory("big.txt")};
  FILE *file = fopen(paths[1], "wb");
  const char *little = write_text("little.txt", "one document\n\nand another one\n\n");
  pid_t child;
  int result = 0;
  (void)state;
  assert_non_null(file);
  for (uint32_t i = 0; i < 400000; i++)
    fprintf(file, "document %u is not very long, but there are many of them\n\n", i);
  assert_int_equal(fclose(file), 0);
  child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    hri_dataset_options options = options_for(paths, 256, 300000), small = options_for(&little, 256, 300000);
    uint64_t before, live = hri_mem_live_bytes(), allocations, heap, row;
    int32_t parts[4][256];
    hri_dataset *dataset = NULL;
    options.path_count = 2;
    options.separator = small.separator = "\n\n";
    /* A forked process has none of the program's code in its page table: what this maps is no memory of the data. */
    if (hri_dataset_open(&small, &dataset, NULL) != HR_OK ||
        hri_dataset_row(dataset, 0, parts[0], parts[1], parts[2], parts[3], NULL, NULL) != HR_OK)
      _exit(1);
    hri_dataset_destroy(dataset);
    before = peak_resident_bytes();
    if (hri_dataset_open(&options, &dataset, NULL) != HR_OK) _exit(1);
    heap = hri_mem_live_bytes() - live;
    allocations = hri_mem_allocation_count();
    for (row = 0; row < hri_dataset_row_count(dataset); row += 7)
      if (hri_dataset_row(dataset, row, parts[0], parts[1], parts[2], parts[3], NULL, NULL) != HR_OK) _exit(2);
    if (hri_mem_allocation_count() != allocations) _exit(3);
    if (heap > 300 * 1024 || hri_mem_peak_bytes() > live + 1024 * 1024) _exit(4);
    if (!getenv("HEADROOM_TEST_QUICK") && peak_resident_bytes() - before > 1024 * 1024)
      _exit(5); /* sanitizers need more */
    hri_dataset_destroy(dataset);
    _exit(hri_mem_live_bytes() == live ? 0 : 6);
  }
  assert_int_equal(waitpid(child, &result, 0), child);
  assert_true(WIFEXITED(result));
  assert_int_equal(WEXITSTATUS(result), 0);
}

static void text_that_changes_is_noticed(void **state) {
  const char *paths[2] = {write_text("change-a.txt", "abcdefgh"), write_text("change-b.txt", "ijklmnop")};
  const struct timespec other[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
  hri_dataset_options options = options_for(paths, 4, 256);
  int32_t parts[4][4];
  hr_error error = {0};
  hri_dataset *dataset;
  (void)state;
  options.path_count = 2;
  dataset = open_ok(&options);
  assert_int_equal(hri_dataset_row(dataset, 0, parts[0], parts[1], parts[2], parts[3], NULL, &error), HR_OK);
  assert_int_equal(truncate(paths[0], 7), 0); /* while it is open */
  assert_int_equal(hri_dataset_row(dataset, 1, parts[0], parts[1], parts[2], parts[3], NULL, &error), HR_ERROR_INPUT);
  assert_non_null(strstr(error.message, "change-a.txt was changed while it was in use (8 bytes, now 7)"));
  assert_int_equal(hri_dataset_row(dataset, 2, parts[0], parts[1], parts[2], parts[3], NULL, &error), HR_OK);
  assert_int_equal(utimensat(AT_FDCWD, paths[1], other, 0), 0); /* the same size at another time */
  assert_int_equal(hri_dataset_row(dataset, 3, parts[0], parts[1], parts[2], parts[3], NULL, &error), HR_ERROR_INPUT);
  assert_non_null(strstr(error.message, "change-b.txt was changed"));
  assert_int_equal(unlink(paths[0]), 0);
  assert_int_equal(hri_dataset_row(dataset, 0, parts[0], parts[1], parts[2], parts[3], NULL, &error), HR_ERROR_IO);
  hri_dataset_destroy(dataset);
}

static void files_may_not_change_while_they_are_read(void **state) {
  (void)state;
  for (int how = 0; how < 3; how++) {
    const char *path = write_text("moving.txt", "abcdefgh");
    const struct timespec other[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    hri_digest digest = {0};
    hri_reader reader;
    hr_error error = {0};
    assert_int_equal(hri_reader_open(&reader, path, &digest, &error), HR_OK);
    assert_int_equal(hri_reader_finish(&reader, &error), HR_OK);
    if (how < 2) assert_int_equal(truncate(path, how == 0 ? 7 : 9), 0);
    assert_int_equal(utimensat(AT_FDCWD, path,
                               how < 2 ? (struct timespec[2]){reader.stamp.changed, reader.stamp.changed} : other, 0),
                     0);
    assert_int_equal(hri_reader_finish(&reader, &error), HR_ERROR_INPUT);
    assert_non_null(strstr(error.message, "moving.txt was changed"));
    hri_reader_close(&reader);
  }
}

static void many_files_need_one_descriptor(void **state) {
  enum { COUNT = 200 };
  char *names[COUNT];
  unsigned files = open_files();
  hri_dataset_options options = options_for((const char *const *)names, 4, 256);
  hri_dataset *dataset;
  (void)state;
  for (int i = 0; i < COUNT; i++) {
    char name[32];
    (void)snprintf(name, sizeof name, "many-%d.txt", i);
    names[i] = strdup(write_text(name, name + 4));
  }
  options.path_count = COUNT;
  dataset = open_ok(&options);
  for (uint64_t row = 0; row < hri_dataset_row_count(dataset); row++) {
    (void)row_text(dataset, row, 4);
    assert_true(open_files() <= files + 1);
  }
  assert_int_equal(hri_dataset_document_count(dataset), COUNT);
  hri_dataset_destroy(dataset);
  assert_int_equal(open_files(), files);
  for (int i = 0; i < COUNT; i++) free(names[i]);
}

#define TEST(name) cmocka_unit_test(name)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(opening_and_reading_stay_below_1_mib), /* first: the heap's peak is the process's */
      TEST(text_rows_by_hand),
      TEST(jsonl_rows_by_hand),
      TEST(text_rows_are_those_of_the_oracle),
      TEST(separators_may_cross_the_buffer),
      TEST(jsonl_rows_are_those_of_the_oracle),
      TEST(lines_may_cross_the_buffer),
      TEST(formats_may_be_mixed),
      TEST(text_takes_bytes_as_they_are),
      TEST(the_end_token_needs_a_place_in_the_vocabulary),
      TEST(empty_documents_are_none),
      TEST(jsonl_is_read_in_any_spelling),
      TEST(the_note_tells_what_was_read),
      TEST(bad_jsonl_is_refused_by_name),
      TEST(lines_have_at_most_64_mib),
      TEST(bad_text_is_refused_by_name),
      TEST(bad_paths_and_options_are_refused),
      TEST(reading_can_be_stopped),
      TEST(the_hash_tells_data_apart),
      TEST(the_digest_does_not_depend_on_cuts),
      TEST(the_order_is_the_files_or_a_permutation),
      TEST(every_refused_allocation_is_a_clean_error),
      TEST(full_disks_are_a_clean_error),
      TEST(temporary_files_have_no_name),
      TEST(small_data_needs_no_disk),
      TEST(text_that_changes_is_noticed),
      TEST(files_may_not_change_while_they_are_read),
      TEST(many_files_need_one_descriptor),
  };
  return cmocka_run_group_tests_name("data", tests, make_directory, remove_directory);
}
