/* What the parts of the Parquet reader share: schema and column chunks out of the footer (parquet_schema.c), columns
 * value by value out of pages (parquet_column.c), rows out of columns (parquet.c). */
#ifndef HRI_FORMATS_PARQUET_INSIDE_H
#define HRI_FORMATS_PARQUET_INSIDE_H

#include "formats/parquet.h"

/* Physical types, as numbered in the format. */
enum {
  HRI_PARQUET_BOOLEAN = 0,
  HRI_PARQUET_INT32 = 1,
  HRI_PARQUET_INT64 = 2,
  HRI_PARQUET_INT96 = 3,
  HRI_PARQUET_FLOAT = 4,
  HRI_PARQUET_DOUBLE = 5,
  HRI_PARQUET_BYTE_ARRAY = 6,
  HRI_PARQUET_FIXED = 7,
  HRI_PARQUET_GROUP = 8 /* ours: no leaf */
};
enum { HRI_PARQUET_REQUIRED = 0, HRI_PARQUET_OPTIONAL = 1, HRI_PARQUET_REPEATED = 2 };

/* An element of the schema; its subtree stands behind it, up to `end`. */
typedef struct hri_parquet_node {
  char *name;
  uint32_t end;
  uint32_t first_leaf, end_leaf; /* of the subtree, among all leaves of the file */
  uint8_t type, repetition;
  uint8_t max_definition, max_repetition;
  bool is_list;       /* a group that stands for the list in it */
  bool is_unsigned;   /* whole numbers */
  const char *unread; /* why its values are not read: "a date"; NULL: they are */
} hri_parquet_node;

/* A column's part of a row group. */
typedef struct hri_parquet_chunk {
  uint64_t begin, end; /* in the file */
  uint64_t value_count;
  int32_t codec;
} hri_parquet_chunk;

typedef struct hri_parquet_group {
  uint64_t row_count;
  size_t first_chunk; /* one for each leaf; 0 leaves: none */
} hri_parquet_group;

typedef struct hri_parquet_meta {
  HRI_ARRAY(hri_parquet_node) nodes; /* the first is the root */
  uint32_t leaf_count;
  HRI_ARRAY(hri_parquet_group) groups;
  HRI_ARRAY(hri_parquet_chunk) chunks;
} hri_parquet_meta;

/* A file under way. */
typedef struct hri_parquet_file {
  int fd;
  const char *path;
  uint64_t bytes;
} hri_parquet_file;

hr_status hri_parquet_damaged(const hri_parquet_file *file, hr_error *error, const char *what);
hr_status hri_parquet_meta_read(const hri_parquet_file *file, hri_parquet_meta *meta, hr_error *error);
void hri_parquet_meta_deinit(hri_parquet_meta *meta);

/* Runs of equal numbers and packed ones, as levels and dictionary indices are written. */
typedef struct hri_parquet_runs {
  const uint8_t *next, *end; /* of what is not yet read */
  const uint8_t *packed;     /* the packed run under way; NULL: a run of one number */
  uint64_t left, at;         /* numbers of this run; bit in the packed one */
  uint32_t width, value;
} hri_parquet_runs;

typedef struct hri_parquet_buffer {
  uint8_t *at;
  size_t capacity;
} hri_parquet_buffer;

/* A leaf, value by value. */
typedef struct hri_parquet_column {
  const hri_parquet_file *file;
  const char *name; /* with dots, for messages */
  uint8_t type, max_definition, max_repetition;
  bool is_unsigned;
  hri_parquet_chunk chunk; /* begin moves on */
  uint64_t page_left;      /* entries */
  hri_parquet_buffer raw, page, head, dictionary;
  uint32_t *offsets; /* of the lengths before the texts of the dictionary */
  size_t offset_capacity;
  uint64_t dictionary_count;
  bool by_index; /* values of this page are places in the dictionary */
  bool by_runs;  /* truth values of this page are runs */
  uint32_t bit;  /* of packed truth values */
  hri_parquet_runs repetitions, definitions, indices;
  const uint8_t *value_next, *value_end;
  /* the entry at hand */
  bool ended; /* there is none */
  uint32_t repetition, definition;
  const uint8_t *value; /* when definition is max_definition: little-endian, or the text */
  uint32_t value_bytes;
  uint8_t truth;
} hri_parquet_column;

/* Begins a chunk; the first entry is at hand then, or `ended`. */
hr_status hri_parquet_column_begin(hri_parquet_column *column, const hri_parquet_chunk *chunk, hr_error *error);
/* Goes to the next entry. */
hr_status hri_parquet_column_next(hri_parquet_column *column, hr_error *error);
void hri_parquet_column_deinit(hri_parquet_column *column);

#endif
