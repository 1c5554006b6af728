/* Records of JSON: the lines of JSONL or the elements of one array, one at a time in a buffer of bounded size, and the
 * columns of a record that the formats know. */
#ifndef HRI_DATA_RECORDS_H
#define HRI_DATA_RECORDS_H

#include "data/reader.h"

enum { HRI_RECORD_BYTES = 16 << 20 };

typedef struct hri_records {
  hri_reader *in;
  bool is_array, started;
  char *bytes; /* the record, NUL-terminated; the scanner decodes strings in place */
  size_t count, capacity;
  char *raw; /* the same, untouched */
  size_t raw_capacity;
  uint64_t line;        /* of what comes next, from 1 */
  uint64_t record_line; /* of this record */
  bool too_long;
} hri_records;

void hri_records_deinit(hri_records *records);
/* Reads the next record; *more is false at the end. A record above HRI_RECORD_BYTES is consumed, and told with
 * `too_long`.
 * INPUT when the file is no list of records (an array that is not well-formed between its elements). */
hr_status hri_records_next(hri_records *records, bool *more, hr_error *error);
/* Fills raw from bytes. */
hr_status hri_records_keep_raw(hri_records *records, hr_error *error);

/* ---- columns ---- */

typedef enum hri_column {
  HRI_TEXT = 0,
  HRI_PROMPT,
  HRI_COMPLETION,
  HRI_MESSAGES,
  HRI_CONVERSATIONS,
  HRI_INSTRUCTION,
  HRI_INPUT,
  HRI_OUTPUT,
  HRI_SYSTEM,
  HRI_HISTORY,
  HRI_TOOLS,
  HRI_COLUMN_COUNT
} hri_column;

const char *hri_column_name(hri_column column);

/* Bytes [begin, end) of the raw record. */
typedef struct hri_slice {
  size_t begin, end;
} hri_slice;

/* A message, or a pair of the history. */
typedef struct hri_turn {
  const char *role; /* decoded; NULL: it has none */
  hri_slice object, content;
  hri_slice answer; /* history: the second of the pair; content is the first */
  bool sharegpt;    /* named from and value */
  bool calls;       /* has tool_calls */
  bool silent;      /* nobody is to learn from it: weight 0 (OpenAI), or train false (axolotl) */
  bool weighed;     /* its weight is neither 0 nor 1 */
} hri_turn;

typedef struct hri_cell {
  char kind;  /* first character of its value: " [ {, or 0 when it is missing or null */
  char *text; /* of a string, decoded */
  hri_slice raw;
  size_t first_turn, turn_count; /* of a list */
} hri_cell;

typedef struct hri_fields {
  hri_cell cells[HRI_COLUMN_COUNT];
  HRI_ARRAY(hri_turn) turns;
} hri_fields;

/* Sets of columns (bits). */
typedef struct hri_wanted {
  uint32_t columns; /* a value of a wrong kind, or a second one, is an error */
  uint32_t beside;  /* taken where they are strings, and passed over like unknown ones where they are not */
} hri_wanted;

/* Reads the columns that are wanted; others are passed over and given to `ignore`. INPUT names file and line. */
hr_status hri_fields_read(hri_fields *fields, hri_records *records, hri_wanted wanted,
                          void (*ignore)(void *context, const char *name), void *context, hr_error *error);

#endif
