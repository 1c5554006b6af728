/* Rows of data (JSON Lines, or a JSON array of rows) where something else was asked for: people mix up the places of
 * models, snapshots and data, and a message about a brace in line 2 does not tell them. */
#ifndef HRI_BASE_ROWS_H
#define HRI_BASE_ROWS_H

#include <stdbool.h>
#include <stdint.h>

enum { HRI_ROWS_HEAD_BYTES = 4096 };

/* Whether the beginning of a file, HRI_ROWS_HEAD_BYTES or all of it, is that of rows: an object in each line, or a first
 * object whose first field is one that rows have. */
bool hri_rows_begin(const char *bytes, uint64_t count);
/* The same of a file; false where it cannot be read. */
bool hri_rows_file(const char *path);

#define HRI_ROWS_ARE "rows of data (JSON Lines, or a list of rows)"
#define HRI_ROWS_HINT                                                                                                  \
  "headroom train MODEL --data FILE learns from it, headroom data FILE --model MODEL shows what that will be, "        \
  "headroom tokenize MODEL FILE gives the ids of its text"

#endif
