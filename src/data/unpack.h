/* Files that hold the bytes of data in another form: compressed (gzip, zstd), or as a table (Parquet, whose rows become
 * lines of JSON). A reader asks for the bytes in their order; nothing of the whole is held.
 *
 * What a file unpacks to is bounded by its own size: beyond HRI_UNPACK_FREE bytes more than HRI_UNPACK_RATIO times as
 * many as were read are refused, whatever the file promises. */
#ifndef HRI_DATA_UNPACK_H
#define HRI_DATA_UNPACK_H

#include "data/reader.h"

#define HRI_UNPACK_FREE (UINT64_C(64) << 20)
enum { HRI_UNPACK_RATIO = 500 };

typedef struct hri_unpack hri_unpack;

/* What one form needs; the first member of its struct. */
struct hri_unpack {
  const char *name;   /* "gzip", for people */
  bool rows;          /* the content is lines of JSON, whatever the file is called */
  hri_reader *reader; /* whose file it is, and where raw bytes come from */
  /* Up to `room` more bytes to `to`; *got is 0 at the end. INPUT names the file and what is wrong with it. */
  hr_status (*more)(hri_unpack *self, char *to, size_t room, size_t *got, hr_error *error);
  void (*close)(hri_unpack *self);
  uint64_t unpacked_bytes;
};

/* The makers, one per form; the reader holds the beginning of the file, which they may take. */
hr_status hri_unpack_gzip(hri_reader *reader, hri_unpack **unpack, hr_error *error);
hr_status hri_unpack_zstd(hri_reader *reader, hri_unpack **unpack, hr_error *error);
hr_status hri_unpack_parquet(hri_reader *reader, hri_unpack **unpack, hr_error *error);

/* A damaged file; with the remedy of the form. */
hr_status hri_unpack_fail(const hri_unpack *unpack, hr_error *error, const char *format, ...) HRI_PRINTF(3, 4);

/* `more` of its form, within the bound. */
hr_status hri_unpack_more(hri_unpack *unpack, char *to, size_t room, size_t *got, hr_error *error);

/* Raw bytes on their way into a decompressor: first what the reader held when the form was told, then the file. */
typedef struct hri_unpack_input {
  char *bytes;
  size_t next, count;
  bool ended;
} hri_unpack_input;

/* Takes over what the reader holds. Free `bytes`. */
hr_status hri_unpack_input_init(hri_unpack_input *input, hri_reader *reader, hr_error *error);
/* Reads more when all of it is used; `ended` when there is no more. */
hr_status hri_unpack_input_fill(hri_unpack_input *input, hri_reader *reader, hr_error *error);

#endif
