/* Thrift's compact protocol (apache/thrift: doc/specs/thrift-compact-protocol.md), for Parquet's footers and page headers:
 * structs are read field by field, and what is not known is passed over. A reader that met something impossible, or the
 * end, is `failed`, gives zeros from then on and ends every loop. */
#ifndef HRI_FORMATS_THRIFT_H
#define HRI_FORMATS_THRIFT_H

#include <stdbool.h>
#include <stdint.h>

typedef enum hri_thrift_type {
  HRI_THRIFT_STOP = 0,
  HRI_THRIFT_TRUE,
  HRI_THRIFT_FALSE,
  HRI_THRIFT_BYTE,
  HRI_THRIFT_I16,
  HRI_THRIFT_I32,
  HRI_THRIFT_I64,
  HRI_THRIFT_DOUBLE,
  HRI_THRIFT_BINARY,
  HRI_THRIFT_LIST,
  HRI_THRIFT_SET,
  HRI_THRIFT_MAP,
  HRI_THRIFT_STRUCT
} hri_thrift_type;

typedef struct hri_thrift {
  const uint8_t *next, *end;
  bool failed, at_end; /* at_end: more bytes might have helped */
} hri_thrift;

typedef struct hri_thrift_bytes {
  const uint8_t *at;
  uint32_t count;
} hri_thrift_bytes;

/* The next field of a struct: its number behind `*id` (which begins at 0) and its type; false at the struct's end. */
bool hri_thrift_field(hri_thrift *t, int32_t *id, hri_thrift_type *type);
/* Values of a field; a field of another type fails the reader. */
int64_t hri_thrift_integer(hri_thrift *t, hri_thrift_type type);
bool hri_thrift_flag(hri_thrift *t, hri_thrift_type type);
hri_thrift_bytes hri_thrift_binary(hri_thrift *t, hri_thrift_type type);
/* Elements of a list, which are all of `of`. */
uint32_t hri_thrift_list(hri_thrift *t, hri_thrift_type type, hri_thrift_type of);
/* Enters a struct that is a field; its fields follow. False fails the reader. */
bool hri_thrift_struct(hri_thrift *t, hri_thrift_type type);
void hri_thrift_skip(hri_thrift *t, hri_thrift_type type);

#endif
