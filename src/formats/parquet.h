/* Parquet files (apache/parquet-format), read for their rows: each becomes an object of JSON, with nested lists and
 * structs put together again from their columns' repetition and definition levels.
 *
 * Read: columns of text, whole and real numbers and truth values, flat or in lists and structs of any nesting; PLAIN,
 * dictionary and RLE encodings; data pages of version 1 and 2; pages that are not compressed, or by Snappy, gzip or zstd.
 * Everything else is refused by name, and only for columns that are wanted. Held are the footer and one page of each
 * wanted column, with its dictionary. */
#ifndef HRI_FORMATS_PARQUET_H
#define HRI_FORMATS_PARQUET_H

#include "base/mem.h"
#include "base/text.h"

typedef struct hri_parquet hri_parquet;

/* Reads the footer of an open file of `bytes` bytes; `path` is for messages; both are borrowed until it is closed.
 * `wanted` chooses columns by the names of the outermost fields. INPUT: damaged, or a wanted column that is not read. */
hr_status hri_parquet_open(int fd, const char *path, uint64_t bytes, bool (*wanted)(const char *name),
                           hri_parquet **file, hr_error *error);
void hri_parquet_close(hri_parquet *file); /* NULL is fine */

/* Appends the next row, {"name": value, ...} and a line end; *more is false behind the last one. The first row also has
 * the names of columns that were not wanted, as null, so that whoever reads it knows of them. */
hr_status hri_parquet_row(hri_parquet *file, hri_text *row, bool *more, hr_error *error);

#endif
