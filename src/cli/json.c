#include "cli/json.h"

#include <math.h>
#include <string.h>

#include "cli/text.h"

static void indent(json_writer *json) { (void)fprintf(json->stream, "\n%*s", (int)json->depth * 2, ""); }

/* Length of the UTF-8 sequence at `text` (RFC 3629), 0 when there is none within `count` bytes. */
static size_t utf8_length(const unsigned char *text, size_t count) {
  static const struct {
    unsigned char first_low, first_high, second_low, second_high, length;
  } forms[] = {{0x00, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
               {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
               {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4}};
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    if (text[0] < forms[i].first_low || text[0] > forms[i].first_high) continue;
    if (forms[i].length > count) return 0;
    if (forms[i].length > 1 && (text[1] < forms[i].second_low || text[1] > forms[i].second_high)) return 0;
    for (size_t k = 2; k < forms[i].length; k++)
      if ((text[k] & 0xc0) != 0x80) return 0;
    return forms[i].length;
  }
  return 0;
}

static void string(FILE *stream, const char *bytes, size_t count) {
  const unsigned char *text = (const unsigned char *)bytes;
  (void)fputc('"', stream);
  for (size_t i = 0, length; i < count; i += length) {
    length = utf8_length(text + i, count - i);
    if (length == 0) {
      (void)fputs("\\ufffd", stream);
      length = 1;
    } else if (text[i] == '"' || text[i] == '\\') {
      (void)fprintf(stream, "\\%c", text[i]);
    } else if (text[i] < 0x20 || text[i] == 0x7f) {
      (void)fprintf(stream, "\\u%04x", text[i]);
    } else {
      (void)fwrite(text + i, 1, length, stream);
    }
  }
  (void)fputc('"', stream);
}

static void lead(json_writer *json, const char *key) {
  if (json->filled[json->depth]) (void)fputc(',', json->stream);
  if (!json->flat)
    indent(json);
  else if (json->filled[json->depth])
    (void)fputc(' ', json->stream);
  json->filled[json->depth] = true;
  if (!key) return;
  string(json->stream, key, strlen(key));
  (void)fputs(": ", json->stream);
}

static void open_container(json_writer *json, char bracket) {
  (void)fputc(bracket, json->stream);
  if (json->depth + 1 < sizeof json->filled) json->depth++;
  json->filled[json->depth] = false;
}

void json_write_begin(json_writer *json, FILE *stream) {
  *json = (json_writer){.stream = stream};
  open_container(json, '{');
  json_write_count(json, "schema_version", 1);
}

void json_write_end(json_writer *json) {
  json_write_close(json, '}');
  (void)fputc('\n', json->stream);
}

void json_write_open(json_writer *json, const char *key, char bracket) {
  lead(json, key);
  open_container(json, bracket);
}

void json_write_open_flat(json_writer *json, const char *key, char bracket) {
  json_write_open(json, key, bracket);
  json->flat = true;
}

void json_write_close(json_writer *json, char bracket) {
  bool broken = json->filled[json->depth] && !json->flat;
  json->depth--;
  json->flat = false;
  if (broken) indent(json);
  (void)fputc(bracket, json->stream);
}

void json_write_count(json_writer *json, const char *key, uint64_t value) {
  lead(json, key);
  (void)fprintf(json->stream, "%llu", (unsigned long long)value);
}

void json_write_integer(json_writer *json, const char *key, int64_t value) {
  lead(json, key);
  (void)fprintf(json->stream, "%lld", (long long)value);
}

void json_write_number(json_writer *json, const char *key, double value) {
  char text[TEXT_BYTES];
  lead(json, key);
  (void)fputs(isfinite(value) ? text_number(value, text) : "null", json->stream);
}

void json_write_bool(json_writer *json, const char *key, bool value) {
  lead(json, key);
  (void)fputs(value ? "true" : "false", json->stream);
}

void json_write_null(json_writer *json, const char *key) {
  lead(json, key);
  (void)fputs("null", json->stream);
}

void json_write_bytes(json_writer *json, const char *key, const char *bytes, size_t count) {
  lead(json, key);
  string(json->stream, bytes, count);
}

void json_write_text(json_writer *json, const char *key, const char *value) {
  if (value)
    json_write_bytes(json, key, value, strlen(value));
  else
    json_write_null(json, key);
}

void json_write_ns(json_writer *json, const char *key, double seconds) {
  if (isfinite(seconds) && seconds >= 0 && seconds < 9e9)
    json_write_count(json, key, (uint64_t)(seconds * 1e9 + 0.5));
  else
    json_write_null(json, key);
}
