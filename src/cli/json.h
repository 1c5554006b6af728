/* JSON on a stream, by base/json's writer: two spaces an indent, and a piece of the text at a time, so that long output
 * is not held.
 * Members need a key, elements of a list pass NULL. Numbers that JSON does not know (NaN, infinities) become null. */
#ifndef CLI_JSON_H
#define CLI_JSON_H

#include <stdio.h>

#include "base/json.h"

typedef struct json_writer {
  FILE *stream;
  hri_text text; /* what the stream has not got yet */
  hri_json_writer json;
} json_writer;

void json_write_begin(json_writer *json, FILE *stream); /* opens the outermost object and writes schema_version */
void json_write_end(json_writer *json);                 /* closes it and ends the line */
void json_write_open(json_writer *json, const char *key, char bracket); /* '{' or '[' */
void json_write_open_flat(json_writer *json, const char *key,
                          char bracket);                /* the same on one line; holds no open container */
void json_write_close(json_writer *json, char bracket); /* '}' or ']' */
void json_write_count(json_writer *json, const char *key, uint64_t value);
void json_write_integer(json_writer *json, const char *key, int64_t value);
void json_write_number(json_writer *json, const char *key, double value);
void json_write_bool(json_writer *json, const char *key, bool value);
void json_write_null(json_writer *json, const char *key);
void json_write_text(json_writer *json, const char *key, const char *value); /* NULL becomes null */
/* Any bytes; what is not UTF-8 becomes U+FFFD. */
void json_write_bytes(json_writer *json, const char *key, const char *bytes, size_t count);
/* Seconds as whole nanoseconds; null when unknown. */
void json_write_ns(json_writer *json, const char *key, double seconds);

#endif
