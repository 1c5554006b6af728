/* Plain text: documents end at the separator, at line ends, or with the file. For models without a tokenizer bytes are
 * the tokens and stay where they are: a document is remembered by its offset in the file. With one, documents are
 * tokenized in parts of bounded size (data/encode.c says where a text may be cut). */
#include "data/source.h"

#include <string.h>

#include "base/utf8.h"

enum { UNCUT_BYTES = 16 << 20 }; /* of a document held at most, where no place to cut is found */

/* A document as it streams by. */
typedef struct walk {
  hri_dataset *dataset;
  const char *path;
  uint64_t begin; /* of the document, in the file */
  uint64_t bytes; /* of it so far */
  uint64_t line, begin_line;
  char last;        /* its last byte */
  bool in_place;    /* its bytes are the tokens and stay where they are */
  bool lines;       /* documents are lines: a carriage return before the line feed is no part of them */
  hri_text pending; /* tokenized: not yet done */
  hr_tokens tokens;
  uint64_t first_token;
} walk;

static hr_status check_begin(hri_dataset *dataset, const hri_reader *reader, hr_error *error) {
  size_t left = hri_reader_left(reader);
  if (!dataset->encoder->tokenizer && dataset->vocabulary < 256) {
    hr_status code = hri_fail(error, HR_ERROR_INPUT, "%s: this model's vocabulary of %llu has no byte tokens",
                              reader->path, (unsigned long long)dataset->vocabulary);
    return hri_hint(error, code, "give pre-tokenized JSONL");
  }
  if (left > 0 && *reader->next == '{' && memmem(reader->next, left < 256 ? left : 256, "\":", 2))
    dataset->found.facts |= HRI_DATA_LOOKS_LIKE_JSONL;
  return HR_OK;
}

/* ---- tokenized ---- */

/* The first `bytes` bytes of what is pending become tokens. */
static hr_status encode_part(walk *w, size_t bytes, hr_error *error) {
  const hri_encoder *e = w->dataset->encoder;
  if (e->tokenizer && hri_utf8_valid(hri_text_get(&w->pending), bytes) < bytes)
    w->dataset->found.facts |= HRI_DATA_NOT_UTF8;
  if (hri_data_store_count(w->dataset) == w->first_token)
    HRI_TRY(hri_data_put_ids(w->dataset, e->before, e->before_count, error));
  HRI_TRY(hri_encoder_run(e, w->path, hri_text_get(&w->pending), bytes, false, &w->tokens, error));
  HRI_TRY(hri_data_put_ids(w->dataset, w->tokens.ids, w->tokens.count, error));
  w->pending.length -= bytes;
  memmove(w->pending.chars, w->pending.chars + bytes, w->pending.length + 1);
  return HR_OK;
}

static hr_status too_long(const walk *w, hr_error *error) {
  hr_status code = hri_fail(
      error, HR_ERROR_INPUT,
      "%s:%llu: %d MiB of a document without a line end behind a letter, where this tokenizer could be given it in parts",
      w->path, (unsigned long long)w->begin_line, UNCUT_BYTES >> 20);
  return hri_hint(error, code, "divide the file into documents with --document-separator, or --format lines");
}

static hr_status more_pending(walk *w, const char *bytes, size_t count, hr_error *error) {
  hri_text_add_bytes(&w->pending, bytes, count);
  if (w->pending.failed) return hri_fail_memory(error, w->pending.length + count, "a document");
  if (w->pending.length < HRI_ENCODE_PART_BYTES) return HR_OK;
  if (w->dataset->encoder->cuts) {
    size_t cut = hri_encode_cut(w->pending.chars, w->pending.length);
    if (cut > 0) return encode_part(w, cut, error);
  }
  return w->pending.length > UNCUT_BYTES ? too_long(w, error) : HR_OK;
}

static hr_status end_tokenized(walk *w, hr_error *error) {
  hri_document document = {.place = w->first_token, .line = w->begin_line, .source = w->dataset->current};
  if (w->lines && w->last == '\r' && w->pending.length > 0) w->pending.chars[--w->pending.length] = 0;
  HRI_TRY(encode_part(w, w->pending.length, error));
  HRI_TRY(hri_data_put_end(w->dataset, w->first_token, error));
  document.length = hri_data_store_count(w->dataset) - w->first_token;
  return document.length > 0 ? hri_data_add_document(w->dataset, document, document.length - 1, error) : HR_OK;
}

/* ---- both ---- */

static hr_status end_document(walk *w, hr_error *error) {
  uint64_t bytes = w->bytes - (w->lines && w->bytes > 0 && w->last == '\r');
  if (bytes == 0) return HR_OK;
  if (w->dataset->encoder->eos >= 0) w->dataset->found.facts |= HRI_DATA_END_ADDED;
  if (w->dataset->encoder->before_count > 0) w->dataset->found.facts |= HRI_DATA_BEGIN_ADDED;
  if (!w->in_place) return end_tokenized(w, error);
  hri_document document = {.place = w->begin,
                           .length = bytes + (w->dataset->eos >= 0),
                           .source = w->dataset->current,
                           .line = w->begin_line};
  if (w->dataset->eos >= 0) document.flags = HRI_DOCUMENT_END;
  return hri_data_add_document(w->dataset, document, document.length - 1, error);
}

static void begin_document(walk *w, uint64_t begin) {
  w->begin = begin;
  w->bytes = 0;
  w->begin_line = w->line;
  w->first_token = hri_data_store_count(w->dataset);
  w->pending.length = 0;
}

static uint64_t count_lines(const char *bytes, size_t count) {
  const char *end = bytes + count;
  uint64_t lines = 0;
  while (bytes < end && (bytes = memchr(bytes, '\n', (size_t)(end - bytes)))) lines++, bytes++;
  return lines;
}

/* `count` more bytes of the document. */
static hr_status take(walk *w, const char *bytes, size_t count, hr_error *error) {
  if (count == 0) return HR_OK;
  w->bytes += count;
  w->last = bytes[count - 1];
  w->line += count_lines(bytes, count);
  return w->in_place ? HR_OK : more_pending(w, bytes, count, error);
}

static hr_status read_documents(walk *w, hri_reader *reader, const char *separator, hr_error *error) {
  size_t length = separator ? strlen(separator) : 0;
  begin_document(w, hri_reader_position(reader));
  for (;;) {
    size_t left = hri_reader_left(reader), kept;
    char *hit = length > 0 ? memmem(reader->next, left, separator, length) : NULL;
    if (hit) {
      HRI_TRY(take(w, reader->next, (size_t)(hit - reader->next), error));
      HRI_TRY(end_document(w, error));
      w->line += count_lines(hit, length);
      reader->next = hit + length;
      begin_document(w, hri_reader_position(reader));
      continue;
    }
    kept = length == 0 || reader->at_end ? 0 : left < length - 1 ? left : length - 1; /* a separator may begin there */
    HRI_TRY(take(w, reader->next, left - kept, error));
    reader->next = reader->end - kept;
    if (reader->at_end) return end_document(w, error);
    HRI_TRY(hri_data_go_on(w->dataset, error));
    HRI_TRY(hri_reader_fill(reader, error));
  }
}

hr_status hri_data_read_text(hri_dataset *dataset, hri_reader *reader, hr_error *error) {
  walk w = {.dataset = dataset,
            .path = reader->path,
            .line = 1,
            .in_place = !dataset->encoder->tokenizer && !hri_data_current(dataset)->unpacked,
            .lines = hri_data_current(dataset)->format == HR_DATA_LINES};
  hr_status status = check_begin(dataset, reader, error);
  if (w.in_place) hri_data_current(dataset)->width = 1;
  if (status == HR_OK) status = read_documents(&w, reader, w.lines ? "\n" : dataset->options->separator, error);
  hri_text_deinit(&w.pending);
  hr_tokens_deinit(&w.tokens);
  return status;
}
