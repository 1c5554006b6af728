#include "cli/json.h"

#include <math.h>
#include <string.h>

#include "cli/text.h"

enum { HELD_BYTES = 1 << 16 }; /* of text, before it goes to the stream */

static void write_out(json_writer *json) {
  if (json->text.failed) text_refused(json->text.length);
  if (json->text.length > 0) screen_write(json->stream, json->text.chars, json->text.length);
  json->text.length = 0;
}

static hri_json_writer *lead(json_writer *json, const char *key) {
  if (json->text.length > HELD_BYTES) write_out(json);
  if (key) hri_json_key(&json->json, key);
  return &json->json;
}

void json_write_begin(json_writer *json, FILE *stream) {
  *json = (json_writer){.stream = stream};
  json->json = hri_json_writer_init(&json->text, 2);
  hri_json_begin_object(&json->json);
  json_write_count(json, "schema_version", 1);
}

void json_write_end(json_writer *json) {
  json_write_close(json, '}');
  hri_text_add_bytes(&json->text, "\n", 1);
  write_out(json);
  hri_text_deinit(&json->text);
}

void json_write_open(json_writer *json, const char *key, char bracket) {
  if (bracket == '{') hri_json_begin_object(lead(json, key));
  else hri_json_begin_array(lead(json, key));
}

void json_write_open_flat(json_writer *json, const char *key, char bracket) {
  json_write_open(json, key, bracket);
  hri_json_flat(&json->json);
}

void json_write_close(json_writer *json, char bracket) {
  if (bracket == '}') hri_json_end_object(&json->json);
  else hri_json_end_array(&json->json);
}

void json_write_count(json_writer *json, const char *key, uint64_t value) { hri_json_put_u64(lead(json, key), value); }
void json_write_integer(json_writer *json, const char *key, int64_t value) { hri_json_put_i64(lead(json, key), value); }
void json_write_bool(json_writer *json, const char *key, bool value) { hri_json_put_bool(lead(json, key), value); }
void json_write_null(json_writer *json, const char *key) { hri_json_put_null(lead(json, key)); }
void json_write_text(json_writer *json, const char *key, const char *value) {
  hri_json_put_string(lead(json, key), value);
}

void json_write_bytes(json_writer *json, const char *key, const char *bytes, size_t count) {
  hri_json_put_chars(lead(json, key), bytes, count);
}

/* As people write numbers: 1, 0.1, 1e+08. */
void json_write_number(json_writer *json, const char *key, double value) {
  char text[TEXT_BYTES];
  hri_json_put_plain(lead(json, key), isfinite(value) ? text_number(value, text) : "null");
}

void json_write_ns(json_writer *json, const char *key, double seconds) {
  if (isfinite(seconds) && seconds >= 0 && seconds < 9e9) json_write_count(json, key, (uint64_t)(seconds * 1e9 + 0.5));
  else json_write_null(json, key);
}
