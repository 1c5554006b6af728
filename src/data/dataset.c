/* Data sets: opening (each file once, in order, through the reader of its format), packing, and rows. */
#include "data/dataset.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "data/paths.h"
#include "data/source.h"

enum { SEPARATOR_BYTES = 4096 }; /* far below the reader's buffer, in which one must fit */

/* ---- Opening ---- */

static hr_status check_options(const hri_dataset_options *options, hr_error *error) {
  if (options->path_count == 0) {
    hri_fail(error, HR_ERROR_USAGE, "no data file is named");
    return hri_hint(error, HR_ERROR_USAGE, "--data FILE..., text, JSONL or token ids (docs/data.md)");
  }
  if (options->sequence == 0 || options->sequence > INT32_MAX) {
    hri_fail(error, HR_ERROR_USAGE, "a row of %u tokens: the sequence length must be between 1 and %d",
             options->sequence, INT32_MAX);
    return hri_hint(error, HR_ERROR_USAGE, "give another --seq");
  }
  if (options->vocabulary == 0 || options->vocabulary > INT32_MAX) {
    hri_fail(error, HR_ERROR_USAGE, "a vocabulary of %llu: it must be between 1 and %d",
             (unsigned long long)options->vocabulary, INT32_MAX);
    return hri_hint(error, HR_ERROR_USAGE, "check vocab_size in the model's config.json");
  }
  if ((unsigned)options->format >= HR_DATA_FORMAT_COUNT || (unsigned)options->loss > HR_LOSS_SCOPE_COMPLETION ||
      (unsigned)options->truncate > HR_TRUNCATE_DROP) {
    hri_fail(error, HR_ERROR_USAGE, "format %u, loss %u, truncate %u: one of them has no such value",
             (unsigned)options->format, (unsigned)options->loss, (unsigned)options->truncate);
    return hri_hint(error, HR_ERROR_USAGE, "take values of hr_data_format, hr_loss_scope and hr_truncate");
  }
  if (options->separator && (options->separator[0] == 0 || strlen(options->separator) > SEPARATOR_BYTES)) {
    hri_fail(error, HR_ERROR_USAGE, "the document separator must have 1 to %d bytes", SEPARATOR_BYTES);
    return hri_hint(error, HR_ERROR_USAGE, "give another --document-separator; \\n, \\t and \\xHH are understood");
  }
  return HR_OK;
}

static const char *temporary_directory(const hri_dataset_options *options) {
  const char *directory = options->cache_directory;
  if (!directory || !directory[0]) directory = getenv("TMPDIR");
  return directory && directory[0] ? directory : "/tmp";
}

static hr_status take_paths(hri_dataset *dataset, const hri_dataset_options *options, hr_error *error) {
  hri_path_list list = {0};
  hr_status status = hri_paths_expand(options->paths, options->path_count, &list, error);
  if (status == HR_OK) {
    dataset->sources = hri_alloc_zero(list.count, sizeof *dataset->sources);
    if (!dataset->sources)
      status = hri_fail_memory(error, list.count * sizeof *dataset->sources, "the list of data files");
  }
  for (size_t i = 0; status == HR_OK && i < list.count; i++) {
    dataset->sources[i].path = list.items[i];
    list.items[i] = NULL;
    dataset->source_count++;
  }
  hri_paths_free(&list);
  return status;
}

static hr_status create(const hri_dataset_options *options, hri_dataset **made, hr_error *error) {
  hri_dataset *dataset = hri_alloc_zero(1, sizeof *dataset);
  if (!dataset) return hri_fail_memory(error, sizeof *dataset, "a data set");
  *made = dataset;
  dataset->fd = -1;
  dataset->options = options;
  dataset->sequence = options->sequence;
  dataset->vocabulary = options->vocabulary;
  dataset->packing = options->packing;
  dataset->truncate = options->truncate;
  dataset->directory = hri_strdup(temporary_directory(options));
  dataset->documents = hri_spool_init(dataset->directory);
  dataset->tokens = hri_spool_init(dataset->directory);
  dataset->labels = hri_spool_init(dataset->directory);
  dataset->index = hri_row_index_init(dataset->directory);
  if (!dataset->directory) return hri_fail_memory(error, strlen(temporary_directory(options)) + 1, "a data set");
  return take_paths(dataset, options, error);
}

/* Passing over all rows of a file is a mistake about the file, not about rows. */
static hr_status check_rows(const hri_dataset *dataset, const hri_data_source *source, uint64_t broken, uint64_t empty,
                            hr_error *error) {
  const hri_data_found *found = &dataset->found;
  uint64_t count = found->broken_count - broken;
  const char *first = broken < HR_DATA_BROKEN ? found->broken[broken] : found->broken[HR_DATA_BROKEN - 1];
  hr_status code;
  if (count == 0 || source->documents > 0 || found->empty_count > empty) return HR_OK;
  code = count == 1
             ? hri_fail(error, HR_ERROR_INPUT, "%s: its only row is broken", source->path)
             : hri_fail(error, HR_ERROR_INPUT, "%s: all %llu rows are broken", source->path, (unsigned long long)count);
  if (broken < HR_DATA_BROKEN) return hri_hint(error, code, "correct the file or leave it out; the first: %s", first);
  return hri_hint(error, code, "correct the file or leave it out; without --skip-bad the first row is named");
}

static hr_status read_rows(hri_dataset *dataset, hri_data_source *source, hri_reader *reader, hr_error *error) {
  uint64_t broken = dataset->found.broken_count, empty = dataset->found.empty_count;
  if (source->format == HR_DATA_TOKENS && source->container != HRI_JSON_ARRAY)
    HRI_TRY(hri_data_read_ids(dataset, reader, error));
  else HRI_TRY(hri_data_read_records(dataset, reader, error));
  return check_rows(dataset, source, broken, empty, error);
}

/* A model whose tokenizer was left behind would learn bytes as if they were its tokens. */
static hr_status refuse_lacking(const hri_dataset *dataset, const hri_data_source *source, hr_error *error) {
  hr_status code = hri_fail(error, HR_ERROR_INPUT,
                            "%s has no tokenizer for the text of %s: there is a tokenizer_config.json with a "
                            "tokenizer_class, but no tokenizer.json or other file that can be read",
                            dataset->options->lacking, source->path);
  return hri_hint(error, code, "fetch the model's tokenizer.json too, or name a tokenizer with --tokenizer DIR");
}

static hr_status read_content(hri_dataset *dataset, hri_data_source *source, hri_reader *reader, hr_error *error) {
  if (hri_reader_left(reader) == 0) dataset->found.facts |= HRI_DATA_EMPTY_FILE;
  HRI_TRY(hri_data_detect(dataset, source, reader, error));
  if (dataset->options->lacking && source->format != HR_DATA_TOKENS && source->container != HRI_BIN)
    return refuse_lacking(dataset, source, error);
  if (source->container == HRI_BIN) {
    HRI_TRY(hri_data_read_bin(dataset, reader, error));
    return hri_reader_finish(reader, error);
  }
  if (hri_reader_left(reader) >= 3 && memcmp(reader->next, "\xEF\xBB\xBF", 3) == 0) {
    reader->next += 3; /* UTF-8's byte order mark is not content */
    dataset->found.facts |= HRI_DATA_MARK_DROPPED;
  }
  if (source->container == HRI_PLAIN) HRI_TRY(hri_data_read_text(dataset, reader, error));
  else HRI_TRY(read_rows(dataset, source, reader, error));
  return hri_reader_finish(reader, error);
}

/* Bare token ids may begin with any bytes, so bins are never taken for packed. */
static hr_status unpack(const hri_dataset *dataset, const hri_data_source *source, hri_reader *reader,
                        hr_error *error) {
  size_t bytes;
  const char *ending = hri_path_ending(source->path, &bytes);
  bool says_packed = ending && ending[bytes]; /* "ids.bin.gz" is refused by its name, later */
  return hri_data_is_bin(dataset, source->path) && !says_packed ? HR_OK : hri_reader_unpack(reader, error);
}

static hr_status read_source(hri_dataset *dataset, hri_data_source *source, hr_error *error) {
  hri_reader reader;
  hr_status status = hri_reader_open(&reader, source->path, &dataset->digest, error);
  source->stamp = reader.stamp;
  if (status == HR_OK) status = unpack(dataset, source, &reader, error);
  if (status == HR_OK) status = read_content(dataset, source, &reader, error);
  hri_digest_add_u64(&dataset->digest, reader.raw_bytes);
  hri_reader_close(&reader);
  return status;
}

static hr_status no_content(const hri_dataset *dataset, const char *what, const char *hint, hr_error *error) {
  const char *first = dataset->sources[0].path, *more = dataset->source_count > 1 ? " and the other data files" : "";
  const char *verb = dataset->source_count > 1 ? "hold" : "holds";
  hr_status code = hri_fail(error, HR_ERROR_INPUT, "%s%s %s %s", first, more, verb, what);
  uint64_t broken = dataset->found.broken_count;
  if (broken > 0)
    return hri_hint(error, code, "%" PRIu64 " broken row%s passed over; the first: %s", broken,
                    broken == 1 ? " was" : "s were", dataset->found.broken[0]);
  return hri_hint(error, code, "%s", hint);
}

static hr_status check_content(const hri_dataset *dataset, hr_error *error) {
  char text[160];
  if (dataset->found.token_count == 0)
    return no_content(dataset, "no token", "name files with text or with JSONL rows", error);
  if (dataset->index.label_count > 0) return HR_OK;
  (void)snprintf(text, sizeof text,
                 "no label that counts: each is -100 or the first of its document in its row (rows of %u tokens)",
                 dataset->sequence);
  return no_content(
      dataset, text,
      "the loss needs at least one token that another one predicts: check the labels, and that --seq is above 1",
      error);
}

/* What decides the rows besides the bytes of the files. */
static void finish_hash(hri_dataset *dataset) {
  const hri_dataset_options *o = dataset->options;
  const uint64_t values[] = {o->format,
                             dataset->sequence,
                             dataset->packing,
                             dataset->truncate,
                             o->loss,
                             o->skip_bad,
                             o->identity,
                             (uint64_t)(int64_t)dataset->encoder->eos,
                             o->separator ? strlen(o->separator) : 0};
  hri_digest content = dataset->digest;
  for (uint32_t i = 0; i < dataset->source_count; i++)
    hri_digest_add_u64(&content, dataset->sources[i].format << 8 | dataset->sources[i].container);
  if (dataset->found.silent_answers > 0)
    hri_digest_add_u64(&content, dataset->found.silent_answers); /* other labels count */
  if (dataset->found.system_rows > 0)
    hri_digest_add_u64(&content, dataset->found.system_rows); /* first messages, which earlier versions left out */
  dataset->content_hash = hri_digest_value(&content);
  dataset->words_hash = o->identity;
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) hri_digest_add_u64(&dataset->digest, values[i]);
  if (o->separator) hri_digest_add(&dataset->digest, o->separator, strlen(o->separator));
  for (uint32_t i = 0; i < dataset->source_count; i++) { /* what a file is taken for depends on its name, too */
    hri_digest_add_u64(&dataset->digest, dataset->sources[i].format);
    hri_digest_add_u64(&dataset->digest, dataset->sources[i].container);
  }
  dataset->hash = hri_digest_value(&dataset->digest);
}

static hr_status read_files(hri_dataset *dataset, hr_error *error) {
  for (uint32_t i = 0; i < dataset->source_count; i++) {
    dataset->current = i;
    HRI_TRY(read_source(dataset, &dataset->sources[i], error));
  }
  if (dataset->found.facts & HRI_DATA_HAS_LABELS) { /* labels end where the last ones were given */
    uint64_t bytes = hri_spool_size(&dataset->tokens);
    if (hri_spool_size(&dataset->labels) < bytes) HRI_TRY(hri_spool_grow(&dataset->labels, bytes, error));
  }
  return HR_OK;
}

/* An entry must not be found under the key of other bytes. */
static hr_status changed_between(hr_error *error) {
  hr_status code = hri_fail(error, HR_ERROR_INPUT, "a data file was changed while it was in use");
  return hri_hint(error, code, "leave data files alone during a run; start it again");
}

/* From the files. `seen`: their bytes were read before, for the key. */
static hr_status read_new(hri_dataset *dataset, bool seen, hr_error *error) {
  uint64_t bytes = hri_digest_value(&dataset->digest);
  dataset->digest = (hri_digest){0};
  HRI_TRY(read_files(dataset, error));
  if (seen && hri_digest_value(&dataset->digest) != bytes) return changed_between(error);
  dataset->key = hri_cache_key(dataset);
  HRI_TRY(hri_spool_settle(&dataset->tokens, error));
  return hri_spool_settle(&dataset->labels, error);
}

/* Whether no file makes tokens that would be kept: nobody needs to wait for another who reads such ones. A file that
 * cannot be opened or told is left to the reading, which has the words for it. */
static bool reads_in_place(hri_dataset *dataset) {
  hri_digest unused = {0};
  bool all = true;
  for (uint32_t i = 0; all && i < dataset->source_count; i++) {
    hri_data_source *source = &dataset->sources[i];
    hri_reader reader;
    hr_status status = hri_reader_open(&reader, source->path, &unused, NULL);
    if (status == HR_OK) status = unpack(dataset, source, &reader, NULL);
    if (status == HR_OK) status = hri_data_detect(dataset, source, &reader, NULL);
    all = status == HR_OK && (source->container == HRI_BIN ||
                              (source->container == HRI_PLAIN && !source->unpacked && !dataset->options->tokenizer));
    hri_reader_close(&reader);
  }
  return all;
}

/* One process at a time makes an entry of a store; who had to wait for it finds it made, or makes it when the other
 * failed. The lock file goes in any case: it says nothing once it is free. */
static hr_status read_shared(hri_dataset *dataset, hr_error *error) {
  const char *store = dataset->options->store_directory;
  hri_lock *lock;
  hr_status status;
  HRI_TRY(hri_cache_lock(dataset, &lock, error));
  status = hri_cache_load(dataset, store, error);
  if (status == HR_OK && !dataset->kept) status = read_new(dataset, true, error);
  if (status == HR_OK) status = hri_dataset_keep(dataset, store, error);
  hri_lock_release(lock, true);
  return status;
}

/* From the store, or from the files and into the store. */
static hr_status read_all(hri_dataset *dataset, hr_error *error) {
  const hri_dataset_options *o = dataset->options;
  bool keeps = o->store_directory && !o->keep_later,
       looks = keeps || (o->store_directory && hri_path_is_dir(o->store_directory));
  if (looks) {
    HRI_TRY(hri_cache_digest(dataset, error));
    dataset->key = hri_cache_key(dataset);
    HRI_TRY(hri_cache_load(dataset, o->store_directory, error));
    if (dataset->kept && keeps) hri_cache_tidy(dataset); /* who made it may have been killed right behind that */
    if (dataset->kept) return HR_OK;
  }
  if (keeps && !reads_in_place(dataset)) return read_shared(dataset, error);
  HRI_TRY(read_new(dataset, looks, error));
  return keeps ? hri_dataset_keep(dataset, o->store_directory, error) : HR_OK;
}

hr_status hri_dataset_keep(hri_dataset *dataset, const char *store_directory, hr_error *error) {
  if (dataset->kept || hri_spool_size(&dataset->tokens) == 0) return HR_OK;
  return hri_cache_save(dataset, store_directory, error);
}

hri_pack_rules hri_dataset_rules(const hri_dataset *dataset, hr_packing packing) {
  return (hri_pack_rules){.documents = &dataset->documents,
                          .document_count = dataset->found.document_count,
                          .labels = &dataset->labels,
                          .sequence = dataset->sequence,
                          .packing = packing,
                          .truncate = dataset->truncate};
}

hr_status hri_dataset_pack(const hri_dataset *dataset, hr_packing packing, hri_row_index *index,
                           hri_pack_result *result, hr_error *error) {
  hri_pack_rules rules = hri_dataset_rules(dataset, packing);
  return hri_pack(&rules, index, result, error);
}

static hr_status make(hri_dataset *dataset, hri_encoder *encoder, hr_error *error) {
  const hri_dataset_options *o = dataset->options;
  HRI_TRY(hri_encoder_init(encoder, o->tokenizer, o->vocabulary, o->eos_token, error));
  dataset->encoder = encoder;
  dataset->eos = o->tokenizer ? -1 : encoder->eos;
  HRI_TRY(read_all(dataset, error));
  HRI_TRY(hri_dataset_pack(dataset, dataset->packing, &dataset->index, &dataset->packed, error));
  HRI_TRY(check_content(dataset, error));
  HRI_TRY(hri_spool_settle(&dataset->documents, error));
  finish_hash(dataset);
  hri_data_write_note(dataset);
  return HR_OK;
}

hr_status hri_dataset_open(const hri_dataset_options *options, hri_dataset **dataset, hr_error *error) {
  hri_dataset *made = NULL;
  hri_encoder encoder;
  hr_status status;
  *dataset = NULL;
  HRI_TRY(check_options(options, error));
  status = create(options, &made, error);
  if (status == HR_OK) status = make(made, &encoder, error);
  if (made) {
    hr_chat_close(made->chat);
    made->chat = NULL;
    made->options = NULL; /* borrowed for the call only */
    made->encoder = NULL;
  }
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
  hri_spool_deinit(&dataset->documents);
  hri_spool_deinit(&dataset->tokens);
  hri_spool_deinit(&dataset->labels);
  for (uint32_t i = 0; i < dataset->source_count; i++) hri_free(dataset->sources[i].path);
  hri_free(dataset->sources);
  hri_free(dataset->directory);
  hri_free(dataset);
}

uint64_t hri_dataset_row_count(const hri_dataset *dataset) { return dataset->index.row_count; }
uint64_t hri_dataset_token_count(const hri_dataset *dataset) { return dataset->index.token_count; }
uint64_t hri_dataset_label_count(const hri_dataset *dataset) { return dataset->index.label_count; }
uint64_t hri_dataset_document_count(const hri_dataset *dataset) { return dataset->found.document_count; }
uint64_t hri_dataset_broken_count(const hri_dataset *dataset) { return dataset->found.broken_count; }
uint64_t hri_dataset_hash(const hri_dataset *dataset) { return dataset->hash; }
uint64_t hri_dataset_content_hash(const hri_dataset *dataset) { return dataset->content_hash; }
uint64_t hri_dataset_words_hash(const hri_dataset *dataset) { return dataset->words_hash; }

bool hri_dataset_is_bytes(const hri_dataset *dataset) { return dataset->is_bytes; }

bool hri_dataset_is_rows(const hri_dataset *dataset) {
  for (uint32_t i = 0; i < dataset->source_count; i++) {
    const hri_container container = dataset->sources[i].container;
    if (container != HRI_JSONL && container != HRI_JSON_ARRAY && container != HRI_PARQUET) return false;
  }
  return true;
}

const char *hri_dataset_note(const hri_dataset *dataset) { return dataset->note; }

uint64_t hri_dataset_disk_bytes(const hri_dataset *dataset) {
  return hri_spool_disk_bytes(&dataset->documents) + hri_spool_disk_bytes(&dataset->index.pieces) +
         hri_spool_disk_bytes(&dataset->index.rows) + hri_spool_disk_bytes(&dataset->tokens) +
         hri_spool_disk_bytes(&dataset->labels);
}

/* ---- Rows ---- */

/* Makes dataset->fd the file, known to be unchanged; looks once per row. */
static hr_status open_source(hri_dataset *dataset, uint32_t source_index, hr_error *error) {
  const hri_data_source *source = &dataset->sources[source_index];
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

/* Tokens read in place: one, two or four bytes each. */
static hr_status read_place(hri_dataset *dataset, const hri_piece *p, int32_t *ids, hr_error *error) {
  const hri_data_source *source = &dataset->sources[p->source & HRI_PIECE_SOURCE];
  unsigned char bytes[4096];
  bool ends = p->source & HRI_PIECE_END;
  uint32_t stored = p->count - ends, width = source->width, most = (uint32_t)sizeof bytes / width, done, i;
  HRI_TRY(open_source(dataset, p->source & HRI_PIECE_SOURCE, error));
  for (done = 0; done < stored; done += i) {
    uint32_t part = stored - done < most ? stored - done : most;
    HRI_TRY(hri_file_pread(dataset->fd, source->path, bytes, (uint64_t)part * width,
                           source->base + (p->place + done) * width, error));
    for (i = 0; i < part; i++) {
      const unsigned char *at = bytes + (size_t)i * width;
      uint32_t id = at[0];
      if (width > 1) id |= (uint32_t)at[1] << 8;
      if (width > 2) id |= (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
      ids[done + i] = (int32_t)id;
    }
  }
  if (ends) ids[stored] = dataset->eos;
  return HR_OK;
}

/* All were within the vocabulary when they were read first. An entry of the cache may be changed by others since then,
 * and an id from outside is an address from outside. */
static hr_status check_ids(const hri_dataset *dataset, const hri_piece *p, const int32_t *ids, const int32_t *labels,
                           hr_error *error) {
  const uint32_t most = (uint32_t)dataset->vocabulary;
  bool good = true;
  for (uint32_t i = 0; i < p->count; i++)
    good &= (uint32_t)ids[i] < most && ((uint32_t)labels[i] < most || labels[i] == HRI_LABEL_IGNORED);
  if (good) return HR_OK;
  hri_fail(error, HR_ERROR_INPUT,
           "%s: what was tokenized of it was changed while it was in use: ids lie outside the "
           "vocabulary [0, %u)",
           dataset->sources[p->source & HRI_PIECE_SOURCE].path, most);
  return hri_hint(error, HR_ERROR_INPUT,
                  "leave the data cache alone during a run; remove it (RUN/data-cache, --data-cache) and go on");
}

/* `ids` and `labels` of a piece, labels with -100 where none counts. */
static hr_status read_piece(hri_dataset *dataset, const hri_piece *p, int32_t *ids, int32_t *labels, hr_error *error) {
  uint32_t i;
  if (dataset->sources[p->source & HRI_PIECE_SOURCE].width > 0) HRI_TRY(read_place(dataset, p, ids, error));
  else HRI_TRY(hri_spool_read(&dataset->tokens, p->place * sizeof *ids, ids, p->count * sizeof *ids, error));
  if (!(p->source & HRI_PIECE_LABELS)) {
    memcpy(labels, ids, p->count * sizeof *ids);
    return check_ids(dataset, p, ids, labels, error);
  }
  HRI_TRY(hri_spool_read(&dataset->labels, p->place * sizeof *labels, labels, p->count * sizeof *labels, error));
  for (i = 0; i < p->count; i++) {
    uint32_t stored = (uint32_t)labels[i];
    labels[i] = stored == HRI_STORED_SAME      ? ids[i]
                : stored == HRI_STORED_IGNORED ? HRI_LABEL_IGNORED
                                               : (int32_t)(stored - HRI_STORED_FIRST);
  }
  return check_ids(dataset, p, ids, labels, error);
}

hr_status hri_dataset_read(hri_dataset *dataset, const hri_piece *piece, int32_t *ids, int32_t *labels,
                           hr_error *error) {
  dataset->fd_checked = false;
  return read_piece(dataset, piece, ids, labels, error);
}

/* Pieces [range[0], range[1]) side by side. */
static hr_status fill_pieces(hri_dataset *dataset, const hri_row range[2], int32_t *ids, int32_t *targets,
                             int32_t *doc_start, uint32_t *filled, hr_error *error) {
  hri_piece pieces[64];
  *filled = 0;
  for (uint64_t first = range[0].first_piece; first < range[1].first_piece; first += 64) {
    size_t part = range[1].first_piece - first < 64 ? (size_t)(range[1].first_piece - first) : 64;
    HRI_TRY(hri_row_index_pieces(&dataset->index, first, pieces, part, error));
    for (size_t k = 0; k < part; k++) {
      const hri_piece *p = &pieces[k];
      uint32_t at = *filled;
      if (p->count > dataset->sequence - at) return hri_fail(error, HR_ERROR_INTERNAL, "a row of data is too long");
      HRI_TRY(read_piece(dataset->of ? dataset->of : dataset, p, ids + at, targets + at, error));
      memmove(targets + at, targets + at + 1, (p->count - 1) * sizeof *targets);
      targets[at + p->count - 1] = HRI_LABEL_IGNORED; /* what it predicts is not here */
      for (uint32_t i = 0; i < p->count; i++) doc_start[at + i] = (int32_t)at;
      *filled += p->count;
    }
  }
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
  (dataset->of ? dataset->of : dataset)->fd_checked = false;
  HRI_TRY(hri_row_index_rows(&dataset->index, row, range, 2, error));
  HRI_TRY(fill_pieces(dataset, range, ids, targets, doc_start, &filled, error));
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

hr_status hri_dataset_row_length(const hri_dataset *dataset, uint64_t row, uint64_t *length, hr_error *error) {
  hri_row entry;
  if (row >= dataset->index.row_count)
    return hri_fail(error, HR_ERROR_INTERNAL, "row %llu of %llu rows of data", (unsigned long long)row,
                    (unsigned long long)dataset->index.row_count);
  HRI_TRY(hri_row_index_rows(&dataset->index, row, &entry, 1, error));
  *length = entry.tokens;
  return HR_OK;
}
