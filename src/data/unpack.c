/* What every unpacker shares: input in pieces from a reader, errors that name the file and the place, and the bound on
 * what a small file may become. The formats themselves are unpack_*.c and the rows of Parquet. */
#include "data/unpack.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"

hr_status hri_unpack_fail(const hri_unpack *u, hr_error *error, const char *format, ...) {
  char text[300];
  va_list args;
  hr_status code;
  va_start(args, format);
  (void)hri_vsnprintf(text, sizeof text, format, args);
  va_end(args);
  code = hri_fail(error, HR_ERROR_INPUT, "%s is a damaged %s file: %s", u->reader->path, u->name, text);
  return hri_hint(error, code, "fetch or write it anew");
}

/* Bytes that are made of nothing fill a disk as well as others do. */
static hr_status check_bound(const hri_unpack *u, hr_error *error) {
  uint64_t raw = u->reader->raw_bytes;
  hr_status code;
  if (u->unpacked_bytes <= HRI_UNPACK_FREE || u->unpacked_bytes / HRI_UNPACK_RATIO <= raw) return HR_OK;
  code =
      hri_fail(error, HR_ERROR_INPUT, "%s: the first %llu bytes of this %s file unpack to more than %d times as many",
               u->reader->path, (unsigned long long)raw, u->name, HRI_UNPACK_RATIO);
  return hri_hint(error, code, "no text is packed that well; if the file is meant, unpack it first");
}

hr_status hri_unpack_more(hri_unpack *u, char *to, size_t room, size_t *got, hr_error *error) {
  *got = 0;
  HRI_TRY(u->more(u, to, room, got, error));
  u->unpacked_bytes += *got;
  return check_bound(u, error);
}

hr_status hri_unpack_input_init(hri_unpack_input *in, hri_reader *reader, hr_error *error) {
  *in = (hri_unpack_input){.bytes = hri_alloc(HRI_READER_BYTES), .count = hri_reader_left(reader)};
  if (!in->bytes) return hri_fail_memory(error, HRI_READER_BYTES, "unpacking data");
  memcpy(in->bytes, reader->next, in->count);
  return HR_OK;
}

hr_status hri_unpack_input_fill(hri_unpack_input *in, hri_reader *reader, hr_error *error) {
  if (in->next < in->count || in->ended) return HR_OK;
  in->next = in->count = 0;
  HRI_TRY(hri_reader_raw(reader, in->bytes, HRI_READER_BYTES, &in->count, error));
  in->ended = in->count == 0;
  return HR_OK;
}
