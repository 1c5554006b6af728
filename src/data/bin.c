/* Token bins, read in place. nanoGPT (karpathy/nanoGPT: data/openwebtext/prepare.py): little-endian uint16 ids and
 * nothing else. llm.c (karpathy/llm.c: dev/data/data_common.py): 256 little-endian int32 of header {magic, version,
 * tokens, ...}, then uint16 ids (magic 20240520, version 1, the GPT-2 vocabulary) or uint32 ids (magic 20240801,
 * version 7, Llama 3). Documents follow each other, divided by the end token: behind each one in nanoGPT's files,
 * before each one in llm.c's. */
#include "data/source.h"

enum { HEADER_BYTES = 1024, MAGIC_16 = 20240520, MAGIC_32 = 20240801 };

typedef struct walk {
  hri_dataset *dataset;
  hri_reader *in;
  uint32_t width;
  bool end_first;     /* the end token begins a document */
  uint64_t begin, at; /* elements: of the document; next */
} walk;

static uint32_t read_le(const char *at, uint32_t width) {
  const unsigned char *b = (const unsigned char *)at;
  uint32_t value = b[0] | (uint32_t)b[1] << 8;
  return width == 2 ? value : value | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static hr_status bad_header(const walk *w, const char *what, uint32_t value, hr_error *error) {
  hr_status code = hri_fail(error, HR_ERROR_INPUT, "%s: header field '%s' is %u", w->in->path, what, value);
  return hri_hint(
      error, code,
      "llm.c files have magic 20240520 with version 1, or 20240801 with version 7; --format nanogpt reads bare uint16 ids");
}

static hr_status read_header(walk *w, hr_error *error) {
  uint64_t size = w->in->stamp.bytes;
  uint32_t magic, version, count;
  hr_status code;
  if (size < HEADER_BYTES) {
    code = hri_fail(error, HR_ERROR_INPUT, "%s has %llu bytes, less than the header of an llm.c file", w->in->path,
                    (unsigned long long)size);
    return hri_hint(error, code, "is the file complete? --format nanogpt reads bare uint16 ids");
  }
  magic = read_le(w->in->next, 4);
  version = read_le(w->in->next + 4, 4);
  count = read_le(w->in->next + 8, 4);
  if (magic != MAGIC_16 && magic != MAGIC_32) return bad_header(w, "magic", magic, error);
  if (version != (magic == MAGIC_16 ? 1 : 7)) return bad_header(w, "version", version, error);
  w->width = magic == MAGIC_16 ? 2 : 4;
  w->end_first = true;
  w->in->next += HEADER_BYTES;
  if (size == HEADER_BYTES + (uint64_t)count * w->width) return HR_OK;
  code = hri_fail(error, HR_ERROR_INPUT, "%s has %llu bytes, and its header of %u tokens asks for %llu", w->in->path,
                  (unsigned long long)size, count, (unsigned long long)(HEADER_BYTES + (uint64_t)count * w->width));
  return hri_hint(error, code, "fetch or write the file anew");
}

static hr_status end_document(walk *w, hr_error *error) {
  hri_document document = {.place = w->begin, .length = w->at - w->begin, .source = w->dataset->current};
  w->begin = w->at;
  return document.length > 0 ? hri_data_add_document(w->dataset, document, document.length - 1, error) : HR_OK;
}

static hr_status outside(const walk *w, uint32_t id, hr_error *error) {
  hr_status code = hri_fail(error, HR_ERROR_INPUT, "%s: token %llu is %u, outside the vocabulary [0, %llu)",
                            w->in->path, (unsigned long long)w->at, id, (unsigned long long)w->dataset->vocabulary);
  return hri_hint(error, code,
                  "tokenize the data with this model's tokenizer, or name the model whose tokenizer was used");
}

static hr_status read_tokens(walk *w, hr_error *error) {
  int64_t eos = w->dataset->encoder->eos;
  for (;;) {
    for (; hri_reader_left(w->in) >= w->width; w->in->next += w->width) {
      uint32_t id = read_le(w->in->next, w->width);
      if (id >= w->dataset->vocabulary) return outside(w, id, error);
      if (id == eos && w->end_first) HRI_TRY(end_document(w, error));
      w->at++;
      if (id == eos && !w->end_first) HRI_TRY(end_document(w, error));
    }
    if (w->in->at_end) return end_document(w, error);
    HRI_TRY(hri_data_go_on(w->dataset, error));
    HRI_TRY(hri_reader_fill(w->in, error));
  }
}

hr_status hri_data_read_bin(hri_dataset *dataset, hri_reader *reader, hr_error *error) {
  walk w = {.dataset = dataset, .in = reader, .width = 2};
  hri_data_source *source = hri_data_current(dataset);
  if (source->format == HR_DATA_LLMC) HRI_TRY(read_header(&w, error));
  if ((reader->stamp.bytes - hri_reader_position(reader)) % w.width != 0) {
    hr_status code = hri_fail(error, HR_ERROR_INPUT, "%s has %llu bytes, no whole number of uint16 ids", reader->path,
                              (unsigned long long)reader->stamp.bytes);
    return hri_hint(error, code, "*.bin is read as nanoGPT's bare uint16 ids; --format names another one");
  }
  source->width = w.width;
  source->base = hri_reader_position(reader);
  return read_tokens(&w, error);
}
