/* headroom/data.h: a report on data, and examples of it. */
#include <headroom/data.h>

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "data/source.h"
#include "data/words.h"

enum { EXACT = 65536, PER_OCTAVE = 64, OCTAVES = 48, CELLS = EXACT + PER_OCTAVE * OCTAVES, DOCUMENTS = 256 };

static const uint32_t percentiles[HR_DATA_PERCENTILES] = {10, 25, 50, 75, 90, 99, 100};
static const hr_packing packings[HR_DATA_PACKINGS] = {HR_PACKING_PACK, HR_PACKING_WRAPPED, HR_PACKING_OFF};

struct hr_data {
  hri_words words;
  hri_dataset *dataset;
  hr_data_report report;
};

/* ---- lengths: exact below EXACT tokens, above to a 64th of a power of two ---- */

static uint32_t cell_of(uint64_t length) {
  uint32_t octave;
  if (length < EXACT) return (uint32_t)length;
  octave = 63 - (uint32_t)__builtin_clzll(length) - 16;
  return EXACT + octave * PER_OCTAVE + (uint32_t)(length >> (octave + 10) & (PER_OCTAVE - 1));
}

static uint64_t length_of(uint32_t cell) {
  uint32_t octave = (cell - EXACT) / PER_OCTAVE, part = (cell - EXACT) % PER_OCTAVE;
  return cell < EXACT ? cell : (uint64_t)(PER_OCTAVE + part) << (octave + 10);
}

static hr_status count_lengths(const hri_dataset *dataset, uint64_t *cells, hr_error *error) {
  hri_document documents[DOCUMENTS];
  uint64_t count = dataset->found.document_count;
  for (uint64_t first = 0; first < count; first += DOCUMENTS) {
    size_t part = count - first < DOCUMENTS ? (size_t)(count - first) : DOCUMENTS;
    HRI_TRY(hri_spool_read(&dataset->documents, first * sizeof *documents, documents, part * sizeof *documents, error));
    for (size_t i = 0; i < part; i++) cells[cell_of(documents[i].length)]++;
  }
  return HR_OK;
}

/* The least length that at least p % of the documents do not exceed (nearest rank). */
static hr_status fill_percentiles(hr_data *data, hr_error *error) {
  uint64_t *cells = hri_alloc_zero(CELLS, sizeof *cells), count = data->dataset->found.document_count, seen = 0;
  uint32_t next = 0;
  hr_status status;
  if (!cells) return hri_fail_memory(error, CELLS * sizeof *cells, "the lengths of documents");
  status = count_lengths(data->dataset, cells, error);
  for (uint32_t cell = 0; status == HR_OK && cell < CELLS && next < HR_DATA_PERCENTILES; cell++) {
    seen += cells[cell];
    for (; next < HR_DATA_PERCENTILES && cells[cell] > 0 && (double)seen * 100 >= (double)count * percentiles[next];
         next++)
      data->report.percentile_tokens[next] = length_of(cell);
  }
  memcpy(data->report.percentiles, percentiles, sizeof percentiles);
  data->report.percentile_tokens[HR_DATA_PERCENTILES - 1] = data->dataset->found.longest[0].length;
  hri_free(cells);
  return status;
}

/* ---- packing ---- */

static hr_status fill_packed(hr_data *data, uint32_t which, hr_error *error) {
  const hri_dataset *dataset = data->dataset;
  hr_data_packed *packed = &data->report.packed[which];
  hri_row_index index = hri_row_index_init(dataset->directory);
  hri_pack_result result;
  hr_status status = hri_dataset_pack(dataset, packings[which], &index, &result, error);
  if (status == HR_OK) {
    *packed = (hr_data_packed){.packing = packings[which],
                               .rows = index.row_count,
                               .cut_documents = result.cut_documents,
                               .dropped_documents = result.dropped_documents};
    if (index.row_count > 0) packed->fill = (double)index.token_count / ((double)index.row_count * dataset->sequence);
  }
  hri_row_index_deinit(&index);
  return status;
}

/* ---- the report ---- */

static hr_data_place place_of(const hri_dataset *dataset, const hri_document *document) {
  return (hr_data_place){.tokens = document->length,
                         .file = dataset->sources[document->source].path,
                         .line = document->line};
}

static void fill_report(hr_data *data) {
  const hri_dataset *dataset = data->dataset;
  const hri_data_found *found = &dataset->found;
  hr_data_report *report = &data->report;
  report->note = hri_dataset_note(dataset);
  report->tokenizer = data->words.tokenizer ? hr_tokenizer_about(data->words.tokenizer) : "bytes";
  report->chat = found->chat[0] ? found->chat : NULL;
  report->documents = found->document_count;
  report->tokens = found->token_count;
  report->labels = found->label_count;
  report->empty_documents = found->empty_count;
  report->broken_rows = found->broken_count;
  report->from_cache = dataset->from_cache;
  for (uint32_t i = 0; i < dataset->source_count; i++) report->file_bytes += dataset->sources[i].stamp.bytes;
  for (; report->longest_count < found->longest_count; report->longest_count++)
    report->longest[report->longest_count] = place_of(dataset, &found->longest[report->longest_count]);
  for (; report->broken_count < HR_DATA_BROKEN && report->broken_count < found->broken_count; report->broken_count++)
    report->broken[report->broken_count] = found->broken[report->broken_count];
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static hr_status make(hr_data *data, const hr_model *model, const char *const *paths, uint32_t path_count,
                      const hr_data_options *options, uint32_t sequence_length, hr_error *error) {
  static const hr_data_options usual = {0};
  hri_dataset_options dataset;
  double begin;
  if (!options) options = &usual;
  HRI_TRY(hri_words_open(&data->words, model, options, error));
  dataset = hri_words_options(&data->words, model, options);
  dataset.paths = paths;
  dataset.path_count = path_count;
  dataset.sequence = sequence_length;
  dataset.skip_bad = true;
  begin = now();
  HRI_TRY(hri_dataset_open(&dataset, &data->dataset, error));
  data->report.seconds = now() - begin;
  fill_report(data);
  HRI_TRY(fill_percentiles(data, error));
  for (uint32_t i = 0; i < HR_DATA_PACKINGS; i++) HRI_TRY(fill_packed(data, i, error));
  return HR_OK;
}

void hr_data_options_init(hr_data_options *options) { *options = (hr_data_options){0}; }

hr_status hr_data_open(const hr_model *model, const char *const *paths, uint32_t path_count,
                       const hr_data_options *options, uint32_t sequence_length, hr_data **data, hr_error *error) {
  hr_data *made = hri_alloc_zero(1, sizeof *made);
  hr_status status;
  *data = NULL;
  if (!made) return hri_fail_memory(error, sizeof *made, "a report on data");
  status = make(made, model, paths, path_count, options, sequence_length, error);
  if (status == HR_OK) *data = made;
  else hr_data_close(made);
  return status;
}

void hr_data_close(hr_data *data) {
  if (!data) return;
  hri_dataset_destroy(data->dataset);
  hri_words_close(&data->words);
  hri_free(data);
}

const hr_data_report *hr_data_get(const hr_data *data) { return &data->report; }

/* ---- examples ---- */

static void add_bytes(hri_text *text, const int32_t *ids, uint64_t count) {
  for (uint64_t i = 0; i < count; i++) {
    char byte = (char)ids[i];
    if (ids[i] < 256) hri_text_add_bytes(text, &byte, 1);
    else hri_text_add(text, "<%d>", ids[i]); /* the end token */
  }
}

/* The words of ids; numbers for a byte-level model whose data came as ids. */
static hr_status decode(const hr_data *data, const int32_t *ids, uint64_t count, bool words, hri_text *text,
                        hr_error *error) {
  text->length = 0;
  hri_text_add(text, "%s", "");
  if (data->words.tokenizer) {
    char *decoded;
    uint64_t bytes;
    HRI_TRY(hr_tokenizer_decode(data->words.tokenizer, ids, count, 0, &decoded, &bytes, error));
    hri_text_add_bytes(text, decoded, bytes);
    hr_free(decoded);
  } else if (words) {
    add_bytes(text, ids, count);
  } else {
    for (uint64_t i = 0; i < count; i++) hri_text_add(text, "%d ", ids[i]);
  }
  return text->failed ? hri_fail_memory(error, text->length, "an example") : HR_OK;
}

static hr_status push_stretch(hr_data_example *example, size_t *capacity, const char *text, size_t bytes, bool counted,
                              hr_error *error) {
  hr_data_stretch stretch = {.bytes = bytes, .counted = counted, .text = hri_alloc(bytes + 1)};
  if (!stretch.text ||
      !hri_array_reserve_((void **)&example->stretches, capacity, example->stretch_count + 1, sizeof stretch)) {
    hri_free(stretch.text);
    return hri_fail_memory(error, bytes + 1, "an example");
  }
  memcpy(stretch.text, text, bytes);
  stretch.text[bytes] = 0;
  example->stretches[example->stretch_count++] = stretch;
  return HR_OK;
}

/* A stretch is what decoding up to its end adds: tokens alone may decode to something else (leading spaces, parts of
 * characters). */
static hr_status make_stretches(const hr_data *data, const int32_t *ids, const int32_t *labels, uint64_t count,
                                bool words, hr_data_example *example, hr_error *error) {
  hri_text text = {0};
  size_t before = 0, capacity = 0;
  hr_status status = HR_OK;
  for (uint64_t end = 1; status == HR_OK && end <= count; end++) {
    bool counted = labels[end - 1] != HRI_LABEL_IGNORED;
    if (end < count && (labels[end] != HRI_LABEL_IGNORED) == counted) continue;
    status = decode(data, ids, end, words, &text, error);
    if (status == HR_OK && text.length > before)
      status = push_stretch(example, &capacity, text.chars + before, text.length - before, counted, error);
    if (status == HR_OK && text.length > before) before = text.length;
  }
  hri_text_deinit(&text);
  return status;
}

static bool is_words(hr_data_format format) {
  return format != HR_DATA_TOKENS && format != HR_DATA_NANOGPT && format != HR_DATA_LLMC;
}

hr_status hr_data_example_make(hr_data *data, uint64_t index, uint64_t limit, hr_data_example *example,
                               hr_error *error) {
  hri_dataset *dataset = data->dataset;
  hri_document document;
  hri_piece piece;
  int32_t *memory;
  hr_status status;
  memset(example, 0, sizeof *example);
  if (index >= dataset->found.document_count || limit == 0 || limit > INT32_MAX) {
    hri_fail(error, HR_ERROR_USAGE, "there is no document %llu", (unsigned long long)index);
    return hri_hint(error, HR_ERROR_USAGE,
                    "documents are numbered from 0 up to document_count, and limit is at least 1");
  }
  HRI_TRY(hri_spool_read(&dataset->documents, index * sizeof document, &document, sizeof document, error));
  example->place = place_of(dataset, &document);
  example->cut = document.length > limit;
  piece = (hri_piece){.place = document.place,
                      .count = (uint32_t)(example->cut ? limit : document.length),
                      .source = document.source};
  if (document.flags & HRI_DOCUMENT_END && !example->cut) piece.source |= HRI_PIECE_END;
  if (document.flags & HRI_DOCUMENT_LABELS) piece.source |= HRI_PIECE_LABELS;
  memory = hri_alloc((uint64_t)piece.count * 2 * sizeof *memory);
  if (!memory) return hri_fail_memory(error, (uint64_t)piece.count * 2 * sizeof *memory, "an example");
  status = hri_dataset_read(dataset, &piece, memory, memory + piece.count, error);
  if (status == HR_OK)
    status = make_stretches(data, memory, memory + piece.count, piece.count,
                            is_words(dataset->sources[document.source].format), example, error);
  hri_free(memory);
  if (status != HR_OK) hr_data_example_deinit(example);
  return status;
}

void hr_data_example_deinit(hr_data_example *example) {
  if (!example) return;
  for (uint32_t i = 0; i < example->stretch_count; i++) hri_free(example->stretches[i].text);
  hri_free(example->stretches);
  memset(example, 0, sizeof *example);
}
