/* JSON: jansson's tree read with errors that name file and field, and a streaming writer.
 *
 * For files that may be large or hostile (safetensors headers, shard indexes, JSONL rows) see base/json_scan.h, which
 * builds no tree. */
#ifndef HRI_BASE_JSON_H
#define HRI_BASE_JSON_H

#include <jansson.h>

#include "base/text.h"
#include "base/utf8.h"

enum { HRI_JSON_DEPTH = 128, HRI_JSON_PATH_BYTES = 160 };

/* A value and how to name it in errors: file, and path from the root ("rope_scaling.factor", "layers[3]", "" at the
 * root). Plain data; copy freely. `value` and `file` are borrowed, but for the root's value, which hri_json_deinit
 * releases. Use json_object_foreach and friends on `value` to walk it. */
typedef struct hri_json {
  json_t *value;
  const char *file;
  char path[HRI_JSON_PATH_BYTES];
} hri_json;

/* Parses a whole buffer into a tree; hri_json_read: a file of at most `limit` bytes. Any kind of value may be the root. Refused
 * (INPUT, with line and column): what is not strict JSON, duplicate keys, nesting above HRI_JSON_DEPTH, integers
 * outside int64, doubles out of range, strings with U+0000. A byte order mark in front is passed over. `file` names the
 * text in errors and must outlive the tree. The first call gives jansson our allocator, for the whole process. Use these,
 * never json_load*: see json.c. */
hr_status hri_json_parse(const char *bytes, uint64_t count, const char *file, hri_json *root, hr_error *error);
/* As hri_json_parse, but that an integer outside int64 is a double, which no getter takes for an integer: people's files
 * have them in keys that nobody reads ("model_max_length": 1000000000000000019884624838656 says that there is no limit). */
hr_status hri_json_parse_file(const char *bytes, uint64_t count, const char *file, hri_json *root, hr_error *error);
hr_status hri_json_read(const char *file, uint64_t limit, hri_json *root, hr_error *error);
/* As hri_json_read, for a tree that hri_json_put_tree writes again: of an integer outside int64 it keeps the digits, which
 * nothing else reads. */
hr_status hri_json_read_to_keep(const char *file, uint64_t limit, hri_json *root, hr_error *error);
void hri_json_deinit(hri_json *root); /* releases the tree; a zeroed root is fine */

/* True if the object has this key with a value other than null. */
bool hri_json_has(const hri_json *object, const char *key);

/* Typed members of an object. INPUT when `object` is none, the key is missing or null, or the value has another type or
 * lies outside [min, max]; the message names file and field, says what is wanted and what was found. An integer is also
 * a double; a double is never an integer. Strings are borrowed from the tree. */
hr_status hri_json_get_u64(const hri_json *object, const char *key, uint64_t min, uint64_t max, uint64_t *value,
                           hr_error *error);
hr_status hri_json_get_i64(const hri_json *object, const char *key, int64_t min, int64_t max, int64_t *value,
                           hr_error *error);
hr_status hri_json_get_double(const hri_json *object, const char *key, double *value, hr_error *error);
hr_status hri_json_get_bool(const hri_json *object, const char *key, bool *value, hr_error *error);
hr_status hri_json_get_string(const hri_json *object, const char *key, const char **value, hr_error *error);
hr_status hri_json_get_object(const hri_json *object, const char *key, hri_json *child, hr_error *error);
hr_status hri_json_get_array(const hri_json *object, const char *key, hri_json *child, hr_error *error);

/* The same for optional members: `*value` stays as it is when the key is missing or null. */
hr_status hri_json_opt_u64(const hri_json *object, const char *key, uint64_t min, uint64_t max, uint64_t *value,
                           hr_error *error);
hr_status hri_json_opt_i64(const hri_json *object, const char *key, int64_t min, int64_t max, int64_t *value,
                           hr_error *error);
hr_status hri_json_opt_double(const hri_json *object, const char *key, double *value, hr_error *error);
hr_status hri_json_opt_bool(const hri_json *object, const char *key, bool *value, hr_error *error);
hr_status hri_json_opt_string(const hri_json *object, const char *key, const char **value, hr_error *error);

/* Any member, whatever its type; its value is NULL when the key is missing. */
hri_json hri_json_member(const hri_json *object, const char *key);
/* Elements of an array: their number (0 when it is none), and the index-th. */
uint64_t hri_json_count(const hri_json *array);
hri_json hri_json_item(const hri_json *array, uint64_t index);

/* Fails with INPUT about a value: "FILE: field 'PATH' must be WANTED, found FOUND"; WANTED is the formatted text. */
hr_status hri_json_fail(const hri_json *json, hr_error *error, const char *wanted, ...) HRI_PRINTF(3, 4);
#ifdef __clang_analyzer__
#define hri_json_fail(json, error, ...) hri_failure(hri_json_fail((json), (error), __VA_ARGS__), HR_ERROR_INPUT)
#endif

/* The streaming writer: appends to `text`, whose sticky flag tells of refused memory. Order of calls is the caller's
 * duty (a key before each member, as many ends as begins) and asserted. Depth is at most HRI_JSON_DEPTH. */
typedef struct hri_json_writer {
  hri_text *text;
  uint64_t objects[HRI_JSON_DEPTH / 64]; /* bit d: the container at depth d is an object */
  uint32_t depth;
  uint32_t indent; /* blanks per level, members on lines of their own; 0 = compact, without any blank */
  bool empty;      /* nothing written into the innermost container yet */
  bool after_key;
  bool flat; /* the innermost container stands on one line */
} hri_json_writer;

hri_json_writer hri_json_writer_init(hri_text *text, uint32_t indent);
void hri_json_begin_object(hri_json_writer *writer);
void hri_json_end_object(hri_json_writer *writer);
void hri_json_begin_array(hri_json_writer *writer);
void hri_json_end_array(hri_json_writer *writer);
/* The container just begun stands on one line, with a blank behind each comma; it holds no container. */
void hri_json_flat(hri_json_writer *writer);
void hri_json_key(hri_json_writer *writer, const char *key);
void hri_json_key_chars(hri_json_writer *writer, const char *key, size_t count); /* may hold U+0000 */
/* Values. Invalid UTF-8 becomes U+FFFD, one per byte; NULL strings, NaN and infinities become null. A double has the
 * fewest digits that read back as the same double, and always a point or an exponent. */
void hri_json_put_string(hri_json_writer *writer, const char *value);
void hri_json_put_chars(hri_json_writer *writer, const char *value, size_t count);
void hri_json_put_u64(hri_json_writer *writer, uint64_t value);
void hri_json_put_i64(hri_json_writer *writer, int64_t value);
void hri_json_put_double(hri_json_writer *writer, double value);
void hri_json_put_bool(hri_json_writer *writer, bool value);
void hri_json_put_null(hri_json_writer *writer);
void hri_json_put_plain(hri_json_writer *writer, const char *text); /* a value as JSON spells it, by the caller */
/* Writes a tree as jansson holds it (order of keys kept). Nested at most as deep as the writer allows, which
 * holds for every tree from hri_json_parse put at the root. */
void hri_json_put_tree(hri_json_writer *writer, const json_t *value);

/* key and value in one call */
void hri_json_field_string(hri_json_writer *writer, const char *key, const char *value);
void hri_json_field_u64(hri_json_writer *writer, const char *key, uint64_t value);
void hri_json_field_i64(hri_json_writer *writer, const char *key, int64_t value);
void hri_json_field_double(hri_json_writer *writer, const char *key, double value);
void hri_json_field_bool(hri_json_writer *writer, const char *key, bool value);

#endif
