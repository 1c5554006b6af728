/* Data sets: opening (each file once, in order, through the reader of its format), rows, and the note for people. */
#include "data/dataset.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "data/source.h"

enum { SEPARATOR_BYTES = 4096 }; /* far below the reader's buffer, in which one must fit */

/* ---- Opening ---- */

static hr_status check_options(const hri_dataset_options *options, hr_error *error) {
  if (options->path_count == 0) return hri_fail(error, HR_ERROR_USAGE, "no data file is named");
  if (options->sequence == 0 || options->sequence > INT32_MAX)
    return hri_fail(error, HR_ERROR_USAGE, "a row of %u tokens: the sequence length must be between 1 and %d",
                    options->sequence, INT32_MAX);
  if (options->vocabulary == 0 || options->vocabulary > INT32_MAX)
    return hri_fail(error, HR_ERROR_USAGE, "a vocabulary of %llu: it must be between 1 and %d",
                    (unsigned long long)options->vocabulary, INT32_MAX);
  if (options->separator && (options->separator[0] == 0 || strlen(options->separator) > SEPARATOR_BYTES))
    return hri_fail(error, HR_ERROR_USAGE, "the document separator must have 1 to %d bytes", SEPARATOR_BYTES);
  return HR_OK;
}

static bool is_jsonl(const char *path) {
  const char *dot = strrchr(path, '.');
  return dot && (strcasecmp(dot, ".jsonl") == 0 || strcasecmp(dot, ".json-lines") == 0);
}

static const char *temporary_directory(const hri_dataset_options *options) {
  const char *directory = options->cache_directory;
  if (!directory || !directory[0]) directory = getenv("TMPDIR");
  return directory && directory[0] ? directory : "/tmp";
}

static hr_status create(const hri_dataset_options *options, hri_dataset **made, hr_error *error) {
  hri_dataset *dataset = hri_alloc_zero(1, sizeof *dataset);
  if (!dataset) return hri_fail_memory(error, sizeof *dataset, "a data set");
  *made = dataset;
  dataset->fd = -1;
  dataset->sequence = options->sequence;
  dataset->vocabulary = options->vocabulary;
  dataset->separator = options->separator;
  dataset->packing = options->packing;
  dataset->eos = options->eos_token >= 0 && (uint64_t)options->eos_token < options->vocabulary ? options->eos_token : -1;
  dataset->directory = hri_strdup(temporary_directory(options));
  dataset->index = hri_row_index_init(options->sequence, dataset->directory);
  dataset->tokens = hri_spool_init(dataset->directory);
  dataset->labels = hri_spool_init(dataset->directory);
  dataset->sources = hri_alloc_zero(options->path_count, sizeof *dataset->sources);
  if (!dataset->directory || !dataset->sources)
    return hri_fail_memory(error, options->path_count * sizeof *dataset->sources, "the list of data files");
  for (; dataset->source_count < options->path_count; dataset->source_count++) {
    hri_source *source = &dataset->sources[dataset->source_count];
    source->path = hri_strdup(options->paths[dataset->source_count]);
    if (!source->path) return hri_fail_memory(error, strlen(options->paths[dataset->source_count]) + 1, "the list of data files");
    source->is_jsonl = is_jsonl(source->path);
  }
  return HR_OK;
}

static hr_status read_content(hri_dataset *dataset, const hri_source *source, hri_reader *reader, hr_error *error) {
  if (hri_reader_left(reader) == 0) dataset->facts |= HRI_DATA_EMPTY_FILE;
  if (hri_reader_left(reader) >= 3 && memcmp(reader->next, "\xEF\xBB\xBF", 3) == 0) {
    reader->next += 3; /* UTF-8's byte order mark is not content */
    dataset->facts |= HRI_DATA_MARK_DROPPED;
  }
  HRI_TRY(source->is_jsonl ? hri_data_read_jsonl(dataset, reader, error) : hri_data_read_text(dataset, reader, error));
  return hri_reader_finish(reader, error);
}

static hr_status read_source(hri_dataset *dataset, hri_source *source, hr_error *error) {
  hri_reader reader;
  hr_status status = hri_reader_open(&reader, source->path, &dataset->digest, error);
  source->first_document = dataset->index.document_count;
  source->stamp = reader.stamp;
  if (status == HR_OK) status = read_content(dataset, source, &reader, error);
  hri_digest_add_u64(&dataset->digest, reader.offset);
  hri_digest_add_u64(&dataset->digest, source->is_jsonl);
  hri_reader_close(&reader);
  return status;
}

static hr_status check_content(const hri_dataset *dataset, hr_error *error) {
  const char *first = dataset->sources[0].path, *more = dataset->source_count > 1 ? " and the other data files" : "";
  const char *verb = dataset->source_count > 1 ? "hold" : "holds";
  hr_status code;
  if (dataset->index.token_count == 0) {
    code = hri_fail(error, HR_ERROR_INPUT, "%s%s %s no token", first, more, verb);
    return hri_hint(error, code, "name files with text or with JSONL rows");
  }
  if (dataset->label_count == 0) {
    code = hri_fail(error, HR_ERROR_INPUT,
                    "%s%s %s no label that counts: each is -100 or the first of its document in its row (rows of %u tokens)",
                    first, more, verb, dataset->sequence);
    return hri_hint(error, code, "the loss needs at least one token that another one predicts: check the labels, and that --seq is "
                                 "above 1");
  }
  return HR_OK;
}

/* What decides the rows besides the bytes of the files. */
static void digest_options(hri_dataset *dataset) {
  const char *separator = dataset->separator;
  hri_digest_add_u64(&dataset->digest, dataset->sequence);
  hri_digest_add_u64(&dataset->digest, dataset->packing);
  if (!(dataset->facts & HRI_DATA_HAS_TEXT)) return; /* the others do nothing to JSONL */
  hri_digest_add_u64(&dataset->digest, (uint64_t)(int64_t)dataset->eos);
  hri_digest_add_u64(&dataset->digest, separator ? strlen(separator) : 0);
  if (separator) hri_digest_add(&dataset->digest, separator, strlen(separator));
}

static void write_note(hri_dataset *dataset);

static hr_status read_all(hri_dataset *dataset, hr_error *error) {
  for (uint32_t i = 0; i < dataset->source_count; i++) HRI_TRY(read_source(dataset, &dataset->sources[i], error));
  HRI_TRY(check_content(dataset, error));
  HRI_TRY(hri_row_index_seal(&dataset->index, error));
  if (dataset->facts & HRI_DATA_HAS_LABELS) HRI_TRY(hri_spool_grow(&dataset->labels, hri_spool_size(&dataset->tokens), error));
  digest_options(dataset);
  dataset->hash = hri_digest_value(&dataset->digest);
  dataset->separator = NULL; /* borrowed for the call only */
  write_note(dataset);
  return HR_OK;
}

hr_status hri_dataset_open(const hri_dataset_options *options, hri_dataset **dataset, hr_error *error) {
  hri_dataset *made = NULL;
  hr_status status;
  *dataset = NULL;
  HRI_TRY(check_options(options, error));
  status = create(options, &made, error);
  if (status == HR_OK) status = read_all(made, error);
  if (status != HR_OK) {
    hri_dataset_destroy(made);
    return status;
  }
  *dataset = made;
  return HR_OK;
}

void hri_dataset_destroy(hri_dataset *dataset) {
  if (!dataset) return;
  if (dataset->fd >= 0) close(dataset->fd);
  hri_row_index_deinit(&dataset->index);
  hri_spool_deinit(&dataset->tokens);
  hri_spool_deinit(&dataset->labels);
  for (uint32_t i = 0; i < dataset->source_count; i++) hri_free(dataset->sources[i].path);
  hri_free(dataset->sources);
  hri_free(dataset->directory);
  hri_free(dataset);
}

uint64_t hri_dataset_row_count(const hri_dataset *dataset) { return dataset->index.row_count; }
uint64_t hri_dataset_token_count(const hri_dataset *dataset) { return dataset->index.token_count; }
uint64_t hri_dataset_label_count(const hri_dataset *dataset) { return dataset->label_count; }
uint64_t hri_dataset_document_count(const hri_dataset *dataset) { return dataset->index.document_count; }
uint64_t hri_dataset_hash(const hri_dataset *dataset) { return dataset->hash; }
const char *hri_dataset_note(const hri_dataset *dataset) { return dataset->note; }

uint64_t hri_dataset_disk_bytes(const hri_dataset *dataset) {
  return hri_spool_disk_bytes(&dataset->index.documents) + hri_spool_disk_bytes(&dataset->index.rows) +
         hri_spool_disk_bytes(&dataset->tokens) + hri_spool_disk_bytes(&dataset->labels);
}

/* ---- The note ---- */

/* "1,234,567 tokens"; the plural's s falls away at one. */
static void add_count(hri_text *text, uint64_t count, const char *noun) {
  char digits[24];
  int length = snprintf(digits, sizeof digits, "%llu", (unsigned long long)count);
  for (int i = 0; i < length; i++) hri_text_add(text, i > 0 && (length - i) % 3 == 0 ? ",%c" : "%c", digits[i]);
  hri_text_add(text, " %s%s", noun, count == 1 ? "" : "s");
}

static void add_kind(hri_text *text, const hri_dataset *dataset) {
  bool is_text = dataset->facts & HRI_DATA_HAS_TEXT, ids = dataset->facts & HRI_DATA_HAS_JSONL;
  if (dataset->source_count == 1)
    hri_text_add(text, "%.200s: ", dataset->sources[0].path);
  else
    hri_text_add(text, "%.200s and %u more: ", dataset->sources[0].path, dataset->source_count - 1);
  if (is_text) hri_text_add(text, "text, bytes as tokens, ");
  if (is_text && dataset->eos >= 0) hri_text_add(text, "token %d at the end of each document, ", dataset->eos);
  if (ids) hri_text_add(text, "%stoken ids, ", is_text ? "and JSONL of " : "JSONL of ");
}

static void add_facts(hri_text *text, uint32_t facts) {
  static const struct {
    uint32_t fact;
    const char *words;
  } table[] = {
      {HRI_DATA_EMPTY_FILE, "an empty file was passed over"},
      {HRI_DATA_EMPTY_LIST, "rows without tokens were passed over"},
      {HRI_DATA_MARK_DROPPED, "a byte order mark was dropped"},
      {HRI_DATA_IGNORED_MASK, "attention_mask is not used"},
      {HRI_DATA_MASK_ZEROS, "it holds zeros: padding needs labels of -100, or rows without it"},
      {HRI_DATA_IGNORED_POSITIONS, "position_ids are not used: positions start at 0 in each document; seq_lengths tells packed ones "
                                   "apart"},
      {HRI_DATA_IGNORED_TYPES, "token_type_ids are not used"},
      {HRI_DATA_LOOKS_LIKE_JSONL, "a file read as text looks like JSONL: name it *.jsonl if its input_ids are meant"},
  };
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (facts & table[i].fact) hri_text_add(text, "; %s", table[i].words);
}

/* The note is for people only: when memory is refused it is short, and nothing fails. */
static void write_note(hri_dataset *dataset) {
  const hri_row_index *index = &dataset->index;
  double share = 100.0 * (1.0 - (double)index->token_count / ((double)index->row_count * (double)index->sequence));
  hri_text text = {0};
  add_kind(&text, dataset);
  add_count(&text, index->document_count, "document");
  hri_text_add(&text, ", ");
  add_count(&text, index->token_count, "token");
  if (dataset->facts & HRI_DATA_HAS_LABELS) {
    hri_text_add(&text, ", ");
    add_count(&text, dataset->label_count, "counted label");
  }
  hri_text_add(&text, " -> ");
  add_count(&text, index->row_count, "row");
  hri_text_add(&text, " of %u", index->sequence);
  if (share >= 1) hri_text_add(&text, " (%.0f %% padding)", share);
  add_facts(&text, dataset->facts);
  (void)snprintf(dataset->note, sizeof dataset->note, "%s", hri_text_get(&text));
  hri_text_deinit(&text);
}

/* ---- Rows ---- */

/* The source of a document: the last one which begins at it or before. Sources without documents begin where the next
 * one does, and are not the last. */
static uint32_t find_source(const hri_dataset *dataset, uint64_t document) {
  uint32_t low = 0, high = dataset->source_count;
  while (high - low > 1) {
    uint32_t middle = low + (high - low) / 2;
    if (dataset->sources[middle].first_document <= document)
      low = middle;
    else
      high = middle;
  }
  return low;
}

/* Makes dataset->fd the text file, known to be unchanged; looks once per row. */
static hr_status open_text(hri_dataset *dataset, uint32_t source_index, hr_error *error) {
  const hri_source *source = &dataset->sources[source_index];
  hri_file_stamp stamp;
  if (dataset->fd >= 0 && dataset->fd_source != source_index) {
    close(dataset->fd);
    dataset->fd = -1;
  }
  if (dataset->fd < 0) {
    HRI_TRY(hri_stamp_open(source->path, &dataset->fd, &stamp, error));
    dataset->fd_source = source_index;
    dataset->fd_checked = false;
  }
  if (!dataset->fd_checked) HRI_TRY(hri_stamp_check(&source->stamp, dataset->fd, source->path, error));
  dataset->fd_checked = true;
  return HR_OK;
}

/* A piece of a document: `count` tokens from the `skip`-th on; it stands at `at` in the row. */
typedef struct piece {
  const hri_source *source;
  uint64_t place, length; /* the document: see hri_document, and its tokens */
  uint64_t skip;
  uint32_t at, count;
} piece;

static hr_status fill_text(const hri_dataset *dataset, const piece *p, int32_t *ids, int32_t *targets, hr_error *error) {
  unsigned char bytes[4096];
  uint64_t bytes_end = p->length - (dataset->eos >= 0); /* of the document */
  uint32_t done = 0, i;
  while (done < p->count && p->skip + done < bytes_end) {
    uint64_t left = bytes_end - p->skip - done;
    uint32_t part = p->count - done;
    if (part > left) part = (uint32_t)left;
    if (part > sizeof bytes) part = sizeof bytes;
    HRI_TRY(hri_file_pread(dataset->fd, p->source->path, bytes, part, p->place + p->skip + done, error));
    for (i = 0; i < part; i++) ids[p->at + done + i] = bytes[i];
    done += part;
  }
  if (done < p->count) ids[p->at + done] = dataset->eos;
  for (i = 0; i + 1 < p->count; i++) targets[p->at + i] = ids[p->at + i + 1];
  return HR_OK;
}

/* Ids are in the store as they are; labels, too, but for the two lowest values (HRI_STORED_*). */
static hr_status fill_ids(const hri_dataset *dataset, const piece *p, int32_t *ids, int32_t *targets, hr_error *error) {
  uint64_t first = p->place + p->skip;
  uint32_t i;
  HRI_TRY(hri_spool_read(&dataset->tokens, first * sizeof *ids, ids + p->at, p->count * sizeof *ids, error));
  if (dataset->facts & HRI_DATA_HAS_LABELS)
    HRI_TRY(hri_spool_read(&dataset->labels, (first + 1) * sizeof *targets, targets + p->at, (p->count - 1) * sizeof *targets,
                           error));
  for (i = 0; i + 1 < p->count; i++) {
    uint32_t stored = dataset->facts & HRI_DATA_HAS_LABELS ? (uint32_t)targets[p->at + i] : HRI_STORED_SAME;
    targets[p->at + i] = stored == HRI_STORED_SAME      ? ids[p->at + i + 1]
                         : stored == HRI_STORED_IGNORED ? HRI_LABEL_IGNORED
                                                        : (int32_t)(stored - HRI_STORED_FIRST);
  }
  return HR_OK;
}

static hr_status fill_piece(hri_dataset *dataset, uint64_t document, piece *p, int32_t *ids, int32_t *targets,
                            hr_error *error) {
  uint32_t source_index = find_source(dataset, document);
  p->source = &dataset->sources[source_index];
  targets[p->at + p->count - 1] = HRI_LABEL_IGNORED; /* what it predicts is not here */
  if (p->source->is_jsonl) return fill_ids(dataset, p, ids, targets, error);
  HRI_TRY(open_text(dataset, source_index, error));
  return fill_text(dataset, p, ids, targets, error);
}

/* ids and targets of tokens [row.start, end), where documents begin into doc_start. */
static hr_status fill_documents(hri_dataset *dataset, hri_row row, uint64_t end, int32_t *ids, int32_t *targets,
                                int32_t *doc_start, hr_error *error) {
  hri_document known[32]; /* documents from `known_first` on: read some at a time */
  uint64_t token = row.start, document = row.document, known_first = 0, known_count = 0;
  for (; token < end; document++) {
    hri_document here, next;
    piece p;
    uint32_t i;
    if (known_count == 0 || document + 1 >= known_first + known_count) {
      uint64_t entries = dataset->index.document_count + 1; /* with the one behind the last */
      if (document + 1 >= entries) return hri_fail(error, HR_ERROR_INTERNAL, "a row of data goes beyond the last document");
      known_first = document;
      known_count = entries - document < 32 ? entries - document : 32;
      HRI_TRY(hri_row_index_documents(&dataset->index, document, known, (size_t)known_count, error));
    }
    here = known[document - known_first];
    next = known[document + 1 - known_first];
    p = (piece){.place = here.place, .length = next.start - here.start, .skip = token - here.start,
                .at = (uint32_t)(token - row.start)};
    p.count = (uint32_t)((next.start < end ? next.start : end) - token);
    HRI_TRY(fill_piece(dataset, document, &p, ids, targets, error));
    for (i = 0; i < p.count; i++) doc_start[p.at + i] = (int32_t)p.at;
    token += p.count;
  }
  return HR_OK;
}

hr_status hri_dataset_row_length(const hri_dataset *dataset, uint64_t row, uint64_t *length, hr_error *error) {
  hri_row range[2];
  if (row >= dataset->index.row_count)
    return hri_fail(error, HR_ERROR_INTERNAL, "row %llu of %llu rows of data", (unsigned long long)row, (unsigned long long)dataset->index.row_count);
  HRI_TRY(hri_row_index_rows(&dataset->index, row, range, 2, error));
  *length = range[1].start - range[0].start;
  return HR_OK;
}

hr_status hri_dataset_row(hri_dataset *dataset, uint64_t row, int32_t *ids, int32_t *targets, int32_t *positions,
                          int32_t *doc_start, uint64_t *counted, hr_error *error) {
  hri_row range[2]; /* this row and the next */
  uint32_t filled, t;
  uint64_t labels = 0;
  if (row >= dataset->index.row_count)
    return hri_fail(error, HR_ERROR_INTERNAL, "row %llu of %llu rows of data", (unsigned long long)row,
                    (unsigned long long)dataset->index.row_count);
  dataset->fd_checked = false;
  HRI_TRY(hri_row_index_rows(&dataset->index, row, range, 2, error));
  if (range[1].start - range[0].start > dataset->sequence) return hri_fail(error, HR_ERROR_INTERNAL, "a row of data is too long");
  HRI_TRY(fill_documents(dataset, range[0], range[1].start, ids, targets, doc_start, error));
  filled = (uint32_t)(range[1].start - range[0].start);
  for (t = filled; t < dataset->sequence; t++) {
    ids[t] = 0;
    targets[t] = HRI_LABEL_IGNORED;
    doc_start[t] = (int32_t)filled;
  }
  for (t = 0; t < dataset->sequence; t++) {
    positions[t] = (int32_t)t - doc_start[t];
    labels += targets[t] != HRI_LABEL_IGNORED;
  }
  if (counted) *counted = labels;
  return HR_OK;
}
