/* Text: bytes are the tokens 0..255, documents end at the separator. Nothing is copied: a document is remembered by its
 * offset in the file. */
#include "data/source.h"

#include <string.h>

#include "base/error.h"

/* Files whose bytes are certainly not what somebody wants a model to learn. */
static const struct {
  const char *magic, *name, *remedy;
} foreign[] = {
    {"\x1F\x8B", "gzip", "unpack it first"},
    {"\x28\xB5\x2F\xFD", "zstd", "unpack it first"},
    {"\xFD" "7zXZ", "xz", "unpack it first"},
    {"BZh91AY&SY", "bzip2", "unpack it first"},
    {"PK\x03\x04", "zip", "unpack it first"},
    {"PAR1", "parquet", "write its token ids as JSONL with \"input_ids\" first, or its text as a text file"},
    {"ARROW1", "Arrow", "write its token ids as JSONL with \"input_ids\" first, or its text as a text file"},
    {"\x93NUMPY", "NumPy", "write its token ids as JSONL with \"input_ids\" first"},
};

static hr_status check_begin(hri_dataset *dataset, const hri_reader *reader, hr_error *error) {
  size_t left = hri_reader_left(reader), i;
  hr_status code;
  if (dataset->vocabulary < 256) {
    code = hri_fail(error, HR_ERROR_INPUT, "%s: this model's vocabulary of %llu has no byte tokens", reader->path,
                    (unsigned long long)dataset->vocabulary);
    return hri_hint(error, code, "give pre-tokenized JSONL");
  }
  for (i = 0; i < sizeof foreign / sizeof *foreign; i++) {
    size_t length = strlen(foreign[i].magic);
    if (left < length || memcmp(reader->next, foreign[i].magic, length) != 0) continue;
    code = hri_fail(error, HR_ERROR_INPUT, "%s is a %s file, not text", reader->path, foreign[i].name);
    return hri_hint(error, code, "%s", foreign[i].remedy);
  }
  if (left > 0 && *reader->next == '{' && memmem(reader->next, left < 256 ? left : 256, "\"input_ids\"", 11))
    dataset->facts |= HRI_DATA_LOOKS_LIKE_JSONL;
  return HR_OK;
}

/* Bytes [begin, end) of the file are a document, unless there are none. */
static hr_status add_document(hri_dataset *dataset, uint64_t begin, uint64_t end, hr_error *error) {
  uint64_t left = end - begin + (dataset->eos >= 0), piece;
  if (begin == end) return HR_OK;
  if (!dataset->packing) hri_row_index_break(&dataset->index);
  HRI_TRY(hri_row_index_begin_document(&dataset->index, begin, error));
  for (; left > 0; left -= piece) {
    HRI_TRY(hri_row_index_take(&dataset->index, left, &piece, error));
    dataset->label_count += piece - 1; /* the first token of a piece is predicted by none */
  }
  return HR_OK;
}

hr_status hri_data_read_text(hri_dataset *dataset, hri_reader *reader, hr_error *error) {
  const char *separator = dataset->separator;
  size_t length = separator ? strlen(separator) : 0;
  uint64_t begin = hri_reader_position(reader);
  HRI_TRY(check_begin(dataset, reader, error));
  dataset->facts |= HRI_DATA_HAS_TEXT;
  for (;;) {
    size_t left = hri_reader_left(reader), kept;
    char *hit = length > 0 ? memmem(reader->next, left, separator, length) : NULL;
    if (hit) {
      uint64_t end = hri_reader_position(reader) + (uint64_t)(hit - reader->next);
      HRI_TRY(add_document(dataset, begin, end, error));
      reader->next = hit + length;
      begin = end + length;
      continue;
    }
    if (reader->at_end) break;
    kept = length == 0 ? 0 : left < length - 1 ? left : length - 1; /* a separator may begin there */
    reader->next = reader->end - kept;
    HRI_TRY(hri_reader_fill(reader, error));
  }
  return add_document(dataset, begin, reader->offset, error);
}
