#include "base/json.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json_scan.h"
#include "base/number.h"

/* ---- Parsing ----
 *
 * The tree is jansson's, the parser is not: jansson 2.14's lexer ignores a refused allocation (lex_save) and then
 * aborts on an assertion or cuts a number short, and drops NUL bytes behind a number. Its constructors report
 * everything. */

static void *allocate(size_t bytes) { return hri_alloc(bytes); }

static void init_once(void) {
  enum { NEVER, NOW, DONE };
  static atomic_int state = NEVER;
  int expected = NEVER;
  if (atomic_load(&state) == DONE) return;
  if (atomic_compare_exchange_strong(&state, &expected, NOW)) {
    json_set_alloc_funcs(allocate, hri_free);
    atomic_store(&state, DONE);
  }
  while (atomic_load(&state) != DONE) { /* another thread sets two pointers */
  }
}

static hr_status refused(const hri_json_scan *scan, hr_error *error) {
  return hri_fail_memory(error, sizeof(json_t), scan->file);
}

static hr_status build(hri_json_scan *scan, json_t **value, hr_error *error);

static hr_status build_members(hri_json_scan *scan, json_t *object, hr_error *error) {
  HRI_TRY(hri_json_scan_object(scan, error));
  for (;;) {
    char *key;
    json_t *value;
    HRI_TRY(hri_json_scan_key(scan, &key, error));
    if (!key) return HR_OK;
    if (json_object_get(object, key)) {
      hr_status code = hri_json_scan_fail(scan, error, "the key '%.100s' stands twice in one object", key);
      return hri_hint(error, code, "remove one of the two members");
    }
    HRI_TRY(build(scan, &value, error));
    if (json_object_set_new_nocheck(object, key, value) != 0) return refused(scan, error);
  }
}

static hr_status build_elements(hri_json_scan *scan, json_t *array, hr_error *error) {
  HRI_TRY(hri_json_scan_array(scan, error));
  for (;;) {
    bool more;
    json_t *value;
    HRI_TRY(hri_json_scan_element(scan, &more, error));
    if (!more) return HR_OK;
    HRI_TRY(build(scan, &value, error));
    if (json_array_append_new(array, value) != 0) return refused(scan, error);
  }
}

static hr_status build_container(hri_json_scan *scan, bool object, json_t **value, hr_error *error) {
  json_t *made = object ? json_object() : json_array();
  hr_status status;
  if (!made) return refused(scan, error);
  status = object ? build_members(scan, made, error) : build_elements(scan, made, error);
  if (status == HR_OK) *value = made;
  else json_decref(made);
  return status;
}

/* The digits of an integer outside of int64 behind a NUL, which no string begins with. */
static json_t *make_spelled(const char *digits, size_t length) {
  char text[DBL_MAX_10_EXP + 4]; /* NUL, sign, one digit more than the exponent: the scanner refuses longer ones */
  if (length + 1 > sizeof text) return NULL;
  text[0] = 0;
  memcpy(text + 1, digits, length);
  return json_stringn_nocheck(text, length + 1);
}

static hr_status build_number(hri_json_scan *scan, json_t **value, hr_error *error) {
  const char *digits = scan->next;
  bool is_integer;
  int64_t integer;
  double real;
  HRI_TRY(hri_json_scan_number(scan, &is_integer, &integer, &real, error));
  size_t length = (size_t)(scan->next - digits);
  if (!is_integer && scan->spells_wide && strspn(digits, "-0123456789") >= length)
    *value = make_spelled(digits, length);
  else *value = is_integer ? json_integer(integer) : json_real(real);
  return HR_OK;
}

static hr_status build_scalar(hri_json_scan *scan, char first, json_t **value, hr_error *error) {
  char *string;
  if (first == '"') {
    HRI_TRY(hri_json_scan_string(scan, &string, error));
    *value = json_string_nocheck(string);
  } else if (first == '-' || (first >= '0' && first <= '9')) {
    HRI_TRY(build_number(scan, value, error));
  } else {
    HRI_TRY(hri_json_scan_skip(scan, error)); /* one of the three words, or an error */
    *value = first == 't' ? json_true() : first == 'f' ? json_false() : json_null();
  }
  return *value ? HR_OK : refused(scan, error);
}

/* Recursion is bounded by HRI_JSON_DEPTH. */
static hr_status build(hri_json_scan *scan, json_t **value, hr_error *error) {
  char first = hri_json_scan_peek(scan);
  if (first == '{' || first == '[') return build_container(scan, first == '{', value, error);
  return build_scalar(scan, first, value, error);
}

/* What an integer outside of int64 becomes. */
typedef enum wide_integers { WIDE_REFUSED, WIDE_DOUBLE, WIDE_SPELLED } wide_integers;

/* The scanner writes into `bytes`, which end with a NUL behind the `count`. */
static hr_status parse_in_place(char *bytes, uint64_t count, const char *file, wide_integers wide, hri_json *root,
                                hr_error *error) {
  size_t mark = hri_utf8_mark(bytes, count); /* Windows' editors write one */
  hri_json_scan scan = hri_json_scan_init(bytes + mark, count - mark, file, "");
  json_t *value;
  hr_status status;
  scan.takes_wide = wide != WIDE_REFUSED;
  scan.spells_wide = wide == WIDE_SPELLED;
  init_once();
  HRI_TRY(build(&scan, &value, error));
  status = hri_json_scan_end(&scan, error);
  if (status != HR_OK) {
    json_decref(value);
    return status;
  }
  root->value = value;
  root->file = file;
  root->path[0] = 0;
  return HR_OK;
}

static hr_status parse_copy(const char *bytes, uint64_t count, const char *file, wide_integers wide, hri_json *root,
                            hr_error *error) {
  char *copy = hri_alloc(count + 1);
  hr_status status;
  if (!copy) return hri_fail_memory(error, count + 1, file);
  if (count > 0) memcpy(copy, bytes, (size_t)count);
  copy[count] = 0;
  status = parse_in_place(copy, count, file, wide, root, error);
  hri_free(copy);
  return status;
}

hr_status hri_json_parse(const char *bytes, uint64_t count, const char *file, hri_json *root, hr_error *error) {
  return parse_copy(bytes, count, file, WIDE_REFUSED, root, error);
}

hr_status hri_json_parse_file(const char *bytes, uint64_t count, const char *file, hri_json *root, hr_error *error) {
  return parse_copy(bytes, count, file, WIDE_DOUBLE, root, error);
}

static hr_status read_file(const char *file, uint64_t limit, wide_integers wide, hri_json *root, hr_error *error) {
  char *bytes;
  uint64_t count;
  hr_status status;
  HRI_TRY(hri_file_read(file, limit, &bytes, &count, error));
  status = parse_in_place(bytes, count, file, wide, root, error);
  hri_free(bytes);
  return status;
}

hr_status hri_json_read(const char *file, uint64_t limit, hri_json *root, hr_error *error) {
  return read_file(file, limit, WIDE_DOUBLE, root, error);
}

hr_status hri_json_read_to_keep(const char *file, uint64_t limit, hri_json *root, hr_error *error) {
  return read_file(file, limit, WIDE_SPELLED, root, error);
}

void hri_json_deinit(hri_json *root) {
  json_decref(root->value);
  memset(root, 0, sizeof *root);
}

/* ---- Typed members ---- */

/* What was found, in words; long strings are cut at a character. */
static void describe(const json_t *value, char out[96]) {
  size_t shown, length;
  if (!value) {
    (void)snprintf(out, 96, "nothing");
    return;
  }
  switch (json_typeof(value)) {
  case JSON_OBJECT: (void)snprintf(out, 96, "an object"); return;
  case JSON_ARRAY: (void)snprintf(out, 96, "an array of %zu", json_array_size(value)); return;
  case JSON_INTEGER: (void)snprintf(out, 96, "%lld", (long long)json_integer_value(value)); return;
  case JSON_REAL: /* 16.0 is told from 16: an integer may be what is wanted */
    (void)hri_snprintf(out, 90, "%.17g", json_real_value(value));
    if (strspn(out, "-0123456789") == strlen(out)) (void)strcat(out, ".0");
    return;
  case JSON_TRUE: (void)snprintf(out, 96, "true"); return;
  case JSON_FALSE: (void)snprintf(out, 96, "false"); return;
  case JSON_NULL: (void)snprintf(out, 96, "null"); return;
  case JSON_STRING: break;
  }
  length = shown = json_string_length(value);
  if (shown > 40)
    for (shown = 40; ((unsigned char)json_string_value(value)[shown] & 0xC0) == 0x80;) shown--;
  (void)snprintf(out, 96, "the string \"%.*s%s\"", (int)shown, json_string_value(value), shown < length ? "..." : "");
}

hr_status(hri_json_fail)(const hri_json *json, hr_error *error, const char *wanted, ...) {
  char text[320], found[96];
  va_list args;
  va_start(args, wanted);
  (void)hri_vsnprintf(text, sizeof text, wanted, args);
  va_end(args);
  if (!json->value) {
    hr_status code =
        hri_fail(error, HR_ERROR_INPUT, "%s: field '%s' is missing; it must be %s", json->file, json->path, text);
    return hri_hint(error, code, "add the field to %s", json->file);
  }
  describe(json->value, found);
  if (!json->path[0]) hri_fail(error, HR_ERROR_INPUT, "%s must be %s, found %s", json->file, text, found);
  else hri_fail(error, HR_ERROR_INPUT, "%s: field '%s' must be %s, found %s", json->file, json->path, text, found);
  return hri_hint(error, HR_ERROR_INPUT, "correct the file, or fetch it anew if it is damaged");
}

/* A path that is too long keeps its beginning and says so. */
static void cut_path(char path[HRI_JSON_PATH_BYTES], int length) {
  if (length >= HRI_JSON_PATH_BYTES) memcpy(path + HRI_JSON_PATH_BYTES - 4, "...", 4);
}

hri_json hri_json_member(const hri_json *object, const char *key) {
  hri_json child = {json_object_get(object->value, key), object->file, ""};
  cut_path(child.path,
           snprintf(child.path, sizeof child.path, "%s%s%s", object->path, object->path[0] ? "." : "", key));
  return child;
}

uint64_t hri_json_count(const hri_json *array) { return json_array_size(array->value); }

hri_json hri_json_item(const hri_json *array, uint64_t index) {
  hri_json child = {json_array_get(array->value, (size_t)index), array->file, ""};
  cut_path(child.path, snprintf(child.path, sizeof child.path, "%s[%llu]", array->path, (unsigned long long)index));
  return child;
}

bool hri_json_has(const hri_json *object, const char *key) {
  const json_t *value = json_object_get(object->value, key);
  return value && !json_is_null(value);
}

/* The member if `object` is an object; type checks are the getters'. */
static hr_status find(const hri_json *object, const char *key, hri_json *child, hr_error *error) {
  if (!json_is_object(object->value)) return hri_json_fail(object, error, "an object with the field '%s'", key);
  *child = hri_json_member(object, key);
  return HR_OK;
}

hr_status hri_json_get_u64(const hri_json *object, const char *key, uint64_t min, uint64_t max, uint64_t *value,
                           hr_error *error) {
  hri_json child;
  HRI_TRY(find(object, key, &child, error));
  if (json_is_integer(child.value) && json_integer_value(child.value) >= 0) {
    uint64_t found = (uint64_t)json_integer_value(child.value);
    if (found >= min && found <= max) {
      *value = found;
      return HR_OK;
    }
  }
  return hri_json_fail(&child, error, "an integer from %llu to %llu", (unsigned long long)min, (unsigned long long)max);
}

hr_status hri_json_get_i64(const hri_json *object, const char *key, int64_t min, int64_t max, int64_t *value,
                           hr_error *error) {
  hri_json child;
  HRI_TRY(find(object, key, &child, error));
  if (json_is_integer(child.value)) {
    int64_t found = json_integer_value(child.value);
    if (found >= min && found <= max) {
      *value = found;
      return HR_OK;
    }
  }
  return hri_json_fail(&child, error, "an integer from %lld to %lld", (long long)min, (long long)max);
}

hr_status hri_json_get_double(const hri_json *object, const char *key, double *value, hr_error *error) {
  hri_json child;
  HRI_TRY(find(object, key, &child, error));
  if (!json_is_number(child.value)) return hri_json_fail(&child, error, "a number");
  *value = json_number_value(child.value);
  return HR_OK;
}

hr_status hri_json_get_bool(const hri_json *object, const char *key, bool *value, hr_error *error) {
  hri_json child;
  HRI_TRY(find(object, key, &child, error));
  if (!json_is_boolean(child.value)) return hri_json_fail(&child, error, "true or false");
  *value = json_is_true(child.value);
  return HR_OK;
}

hr_status hri_json_get_string(const hri_json *object, const char *key, const char **value, hr_error *error) {
  hri_json child;
  HRI_TRY(find(object, key, &child, error));
  if (!json_is_string(child.value)) return hri_json_fail(&child, error, "a string");
  *value = json_string_value(child.value);
  return HR_OK;
}

hr_status hri_json_get_object(const hri_json *object, const char *key, hri_json *child, hr_error *error) {
  HRI_TRY(find(object, key, child, error));
  return json_is_object(child->value) ? HR_OK : hri_json_fail(child, error, "an object");
}

hr_status hri_json_get_array(const hri_json *object, const char *key, hri_json *child, hr_error *error) {
  HRI_TRY(find(object, key, child, error));
  return json_is_array(child->value) ? HR_OK : hri_json_fail(child, error, "an array");
}

/* A parent that is no object is an error for optional members too, so the getters decide when it is none. */
static bool absent(const hri_json *object, const char *key) {
  return json_is_object(object->value) && !hri_json_has(object, key);
}

hr_status hri_json_opt_u64(const hri_json *object, const char *key, uint64_t min, uint64_t max, uint64_t *value,
                           hr_error *error) {
  return absent(object, key) ? HR_OK : hri_json_get_u64(object, key, min, max, value, error);
}

hr_status hri_json_opt_i64(const hri_json *object, const char *key, int64_t min, int64_t max, int64_t *value,
                           hr_error *error) {
  return absent(object, key) ? HR_OK : hri_json_get_i64(object, key, min, max, value, error);
}

hr_status hri_json_opt_double(const hri_json *object, const char *key, double *value, hr_error *error) {
  return absent(object, key) ? HR_OK : hri_json_get_double(object, key, value, error);
}

hr_status hri_json_opt_bool(const hri_json *object, const char *key, bool *value, hr_error *error) {
  return absent(object, key) ? HR_OK : hri_json_get_bool(object, key, value, error);
}

hr_status hri_json_opt_string(const hri_json *object, const char *key, const char **value, hr_error *error) {
  return absent(object, key) ? HR_OK : hri_json_get_string(object, key, value, error);
}

/* ---- Writing ---- */

hri_json_writer hri_json_writer_init(hri_text *text, uint32_t indent) {
  hri_json_writer writer = {.text = text, .indent = indent, .empty = true};
  return writer;
}

static bool in_object(const hri_json_writer *writer) {
  uint32_t bit = writer->depth - 1;
  return writer->depth > 0 && (writer->objects[bit / 64] >> (bit % 64) & 1) != 0;
}

static void new_line(hri_json_writer *writer) {
  uint32_t i;
  if (writer->indent == 0 || writer->flat) return;
  hri_text_add_bytes(writer->text, "\n", 1);
  for (i = 0; i < writer->depth * writer->indent; i++) hri_text_add_bytes(writer->text, " ", 1);
}

/* What stands between the last value and the next key or value. */
static void separate(hri_json_writer *writer) {
  if (writer->after_key) {
    writer->after_key = false;
    return;
  }
  if (!writer->empty) hri_text_add_bytes(writer->text, ", ", writer->flat ? 2 : 1);
  if (writer->depth > 0) new_line(writer);
  writer->empty = false;
}

static void begin_value(hri_json_writer *writer) {
  assert(writer->after_key == in_object(writer));
  assert(writer->depth > 0 || writer->empty); /* one value at the root */
  separate(writer);
}

static void begin_container(hri_json_writer *writer, bool object) {
  uint64_t bit = (uint64_t)1 << (writer->depth % 64), *word;
  assert(writer->depth < HRI_JSON_DEPTH && !writer->flat);
  begin_value(writer);
  word = &writer->objects[writer->depth / 64];
  *word = object ? *word | bit : *word & ~bit;
  writer->depth++;
  writer->empty = true;
  hri_text_add_bytes(writer->text, object ? "{" : "[", 1);
}

static void end_container(hri_json_writer *writer, bool object) {
  bool empty = writer->empty, opened_object = in_object(writer);
  assert(writer->depth > 0 && !writer->after_key && opened_object == object);
  (void)object;
  writer->depth--;
  writer->empty = false;
  if (!empty) new_line(writer);
  writer->flat = false;
  hri_text_add_bytes(writer->text, opened_object ? "}" : "]", 1);
}

void hri_json_begin_object(hri_json_writer *writer) { begin_container(writer, true); }
void hri_json_flat(hri_json_writer *writer) {
  assert(writer->depth > 0 && writer->empty);
  writer->flat = writer->indent > 0;
}
void hri_json_end_object(hri_json_writer *writer) { end_container(writer, true); }
void hri_json_begin_array(hri_json_writer *writer) { begin_container(writer, false); }
void hri_json_end_array(hri_json_writer *writer) { end_container(writer, false); }

/* Escapes as serde_json and Python (ensure_ascii=False) do: short forms where there are any, \u00xx in lower case. */
static void add_escaped(hri_text *text, unsigned char c) {
  static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
  const char *at = memchr(from, c, sizeof from - 1);
  if (at) hri_text_add(text, "\\%c", to[at - from]);
  else hri_text_add(text, "\\u%04x", (unsigned)c);
}

static void add_quoted(hri_text *text, const char *value, size_t count) {
  size_t i = 0, plain = 0; /* value[plain, i) waits to be copied as it is */
  hri_text_add_bytes(text, "\"", 1);
  while (i < count) {
    unsigned char c = (unsigned char)value[i];
    size_t length = hri_utf8_sequence(value + i, count - i);
    if (length > 0 && c >= 0x20 && c != '"' && c != '\\') {
      i += length;
      continue;
    }
    hri_text_add_bytes(text, value + plain, i - plain);
    if (length == 0) hri_text_add_bytes(text, "\xEF\xBF\xBD", 3);
    else add_escaped(text, c);
    plain = ++i;
  }
  hri_text_add_bytes(text, value + plain, i - plain);
  hri_text_add_bytes(text, "\"", 1);
}

void hri_json_key(hri_json_writer *writer, const char *key) { hri_json_key_chars(writer, key, strlen(key)); }

void hri_json_key_chars(hri_json_writer *writer, const char *key, size_t count) {
  assert(in_object(writer) && !writer->after_key);
  separate(writer);
  add_quoted(writer->text, key, count);
  hri_text_add_bytes(writer->text, ": ", writer->indent ? 2 : 1);
  writer->after_key = true;
}

void hri_json_put_chars(hri_json_writer *writer, const char *value, size_t count) {
  begin_value(writer);
  add_quoted(writer->text, value, count);
}

void hri_json_put_string(hri_json_writer *writer, const char *value) {
  if (value) hri_json_put_chars(writer, value, strlen(value));
  else hri_json_put_null(writer);
}

void hri_json_put_u64(hri_json_writer *writer, uint64_t value) {
  begin_value(writer);
  hri_text_add(writer->text, "%llu", (unsigned long long)value);
}

void hri_json_put_i64(hri_json_writer *writer, int64_t value) {
  begin_value(writer);
  hri_text_add(writer->text, "%lld", (long long)value);
}

/* Most doubles that people write need 15 digits or fewer, and %g drops trailing zeros; 17 always suffice. Subnormals
 * have fewer good digits, so the search starts at one. The embedding program's locale may use another decimal point. */
static void add_double(hri_text *text, double value) {
  char digits[40];
  size_t i, length = 0;
  int precision = fabs(value) < DBL_MIN ? 1 : 15;
  bool whole = true;
  do {
    (void)snprintf(digits, sizeof digits, "%.*g", precision, value);
  } while (strtod(digits, NULL) != value && ++precision <= 17);
  for (i = 0; digits[i]; i++) {
    char c = digits[i];
    if (strchr("0123456789+-", c)) {
      digits[length++] = c;
    } else if (c == 'e') {
      whole = false;
      digits[length++] = c;
    } else if (whole) { /* the first byte of a decimal point, whatever it looks like */
      whole = false;
      digits[length++] = '.';
    }
  }
  hri_text_add_bytes(text, digits, length);
  if (whole) hri_text_add_bytes(text, ".0", 2);
}

void hri_json_put_double(hri_json_writer *writer, double value) {
  if (!isfinite(value)) {
    hri_json_put_null(writer);
    return;
  }
  begin_value(writer);
  add_double(writer->text, value);
}

void hri_json_put_plain(hri_json_writer *writer, const char *text) {
  begin_value(writer);
  hri_text_add_bytes(writer->text, text, strlen(text));
}

void hri_json_put_bool(hri_json_writer *writer, bool value) {
  begin_value(writer);
  hri_text_add(writer->text, "%s", value ? "true" : "false");
}

void hri_json_put_null(hri_json_writer *writer) {
  begin_value(writer);
  hri_text_add_bytes(writer->text, "null", 4);
}

static void put_tree_object(hri_json_writer *writer, const json_t *value) {
  void *at;
  json_t *object = (json_t *)(uintptr_t)value; /* jansson's iterators take it non-const but do not change it */
  hri_json_begin_object(writer);
  for (at = json_object_iter(object); at; at = json_object_iter_next(object, at)) {
    hri_json_key(writer, json_object_iter_key(at));
    hri_json_put_tree(writer, json_object_iter_value(at));
  }
  hri_json_end_object(writer);
}

void hri_json_put_tree(hri_json_writer *writer, const json_t *value) {
  size_t i;
  if (!value) {
    hri_json_put_null(writer);
    return;
  }
  switch (json_typeof(value)) {
  case JSON_OBJECT: put_tree_object(writer, value); return;
  case JSON_ARRAY:
    hri_json_begin_array(writer);
    for (i = 0; i < json_array_size(value); i++) hri_json_put_tree(writer, json_array_get(value, i));
    hri_json_end_array(writer);
    return;
  case JSON_STRING:
    if (json_string_length(value) > 1 && !json_string_value(value)[0])
      hri_json_put_plain(writer, json_string_value(value) + 1); /* see make_spelled */
    else hri_json_put_chars(writer, json_string_value(value), json_string_length(value));
    return;
  case JSON_INTEGER: hri_json_put_i64(writer, json_integer_value(value)); return;
  case JSON_REAL: hri_json_put_double(writer, json_real_value(value)); return;
  case JSON_TRUE:
  case JSON_FALSE: hri_json_put_bool(writer, json_is_true(value)); return;
  case JSON_NULL: hri_json_put_null(writer); return;
  }
}

void hri_json_field_string(hri_json_writer *writer, const char *key, const char *value) {
  hri_json_key(writer, key);
  hri_json_put_string(writer, value);
}

void hri_json_field_u64(hri_json_writer *writer, const char *key, uint64_t value) {
  hri_json_key(writer, key);
  hri_json_put_u64(writer, value);
}

void hri_json_field_i64(hri_json_writer *writer, const char *key, int64_t value) {
  hri_json_key(writer, key);
  hri_json_put_i64(writer, value);
}

void hri_json_field_double(hri_json_writer *writer, const char *key, double value) {
  hri_json_key(writer, key);
  hri_json_put_double(writer, value);
}

void hri_json_field_bool(hri_json_writer *writer, const char *key, bool value) {
  hri_json_key(writer, key);
  hri_json_put_bool(writer, value);
}
