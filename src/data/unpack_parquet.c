/* Parquet files as JSON rows, a line for each: whatever reads JSONL reads them, and the number of a line is that of the
 * row. The file is read once from begin to end for its digest, as every data file is, and then where its columns are. */
#include <string.h>
#include <sys/stat.h>

#include "data/records.h"
#include "data/unpack.h"
#include "formats/parquet.h"

typedef struct parquet {
  hri_unpack base;
  hri_parquet *file;
  hri_text row; /* what is not yet given away of it begins at `next` */
  size_t next;
} parquet;

/* Columns that some format reads, and those that tell kinds of rows apart by their names alone are left out. */
static bool is_wanted(const char *name) {
  static const char *const ids[] = {"input_ids",      "labels",       "seq_lengths",
                                    "attention_mask", "position_ids", "token_type_ids"};
  for (hri_column column = 0; column < HRI_COLUMN_COUNT; column++)
    if (strcmp(name, hri_column_name(column)) == 0) return true;
  for (size_t k = 0; k < sizeof ids / sizeof *ids; k++)
    if (strcmp(name, ids[k]) == 0) return true;
  return false;
}

static hr_status more_parquet(hri_unpack *self, char *to, size_t room, size_t *got, hr_error *error) {
  parquet *p = (parquet *)self;
  bool more = true;
  if (p->next == p->row.length) {
    p->next = p->row.length = 0;
    HRI_TRY(hri_parquet_row(p->file, &p->row, &more, error));
  }
  *got = p->row.length - p->next < room ? p->row.length - p->next : room;
  if (*got > 0) memcpy(to, p->row.chars + p->next, *got);
  p->next += *got;
  return HR_OK;
}

static void close_parquet(hri_unpack *self) {
  parquet *p = (parquet *)self;
  hri_parquet_close(p->file);
  hri_text_deinit(&p->row);
  hri_free(p);
}

static hr_status digest_rest(hri_reader *reader, hr_error *error) {
  size_t got;
  do HRI_TRY(hri_reader_raw(reader, reader->buffer, HRI_READER_BYTES, &got, error));
  while (got > 0);
  return HR_OK;
}

hr_status hri_unpack_parquet(hri_reader *reader, hri_unpack **unpack, hr_error *error) {
  parquet *p = hri_alloc_zero(1, sizeof *p);
  if (!p) return hri_fail_memory(error, sizeof *p, "unpacking data");
  *unpack = &p->base;
  p->base =
      (hri_unpack){.name = "Parquet", .rows = true, .reader = reader, .more = more_parquet, .close = close_parquet};
  HRI_TRY(digest_rest(reader, error));
  return hri_parquet_open(reader->fd, reader->path, reader->raw_bytes, is_wanted, &p->file, error);
}
