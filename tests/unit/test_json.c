/* JSON: the tree with its typed getters, the scanner, and the writer. */
#include <float.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/json.h"
#include "base/json_scan.h"
#include "support/scratch.h"

static hr_status parse(const char *text, hri_json *root, hr_error *error) {
  return hri_json_parse(text, strlen(text), "f.json", root, error);
}

/* Texts that are refused, and what is said; `tree`: only the tree refuses them. */
static const struct {
  const char *text, *message;
  bool tree;
} malformed[] = {
    {"", "f.json: line 1, column 1: expected a value, found the end", false},
    {"{\n \"a\": 1,\n}", "line 3, column 1: expected a string, found '}'", false},
    {"[1 2]", "column 4: expected ',' or ']', found '2'", false},
    {"[1,]", "column 4: expected a value, found ']'", false},
    {"{,}", "column 2: expected a string, found ','", false},
    {"{\"a\" 1}", "column 6: expected ':', found '1'", false},
    {"{\"a\": 1]", "column 8: expected ',' or '}', found ']'", false},
    {"{} x", "column 4: expected the end of the text, found 'x'", false},
    {"[01]", "leading zero", false},
    {"[1.]", "expected a digit, found ']'", false},
    {"[-]", "expected a digit", false},
    {"[1e+]", "expected a digit", false},
    {"0x10", "expected the end of the text, found 'x'", false},
    {"[+1]", "expected a value, found '+'", false},
    {"[nul]", "expected a value, found 'n'", false},
    {"truefalse", "expected the end of the text, found 'f'", false},
    {"[NaN]", "expected a value, found 'N'", false},
    {"\"a", "expected the rest of a string", false},
    {"\"a\\", "expected the rest of a string", false},
    {"\"a\x01\"", "control character 0x01", false},
    {"\"\\x\"", "unknown escape", false},
    {"\"\\u12g4\"", "four hexadecimal digits", false},
    {"\"\\ud800\"", "lone surrogate \\ud800", false},
    {"\"\\ud800\\u0041\"", "lone surrogate", false},
    {"\"\\udc00\"", "lone surrogate \\udc00", false},
    {"\"\\u0000\"", "U+0000", false},
    {"\"\xC0\xAF\"", "0xc0 is not UTF-8", false},
    {"\"\xED\xA0\x80\"", "0xed is not UTF-8", false},
    {"\"\xF4\x90\x80\x80\"", "0xf4 is not UTF-8", false},
    {"\"\xE2\x82\"", "0xe2 is not UTF-8", false},
    {"\xEF\xBB\xBF\xEF\xBB\xBF{}", "found the byte 0xef", false},
    {"{\"a\":1,\n\"a\":2}", "line 2, column 5: the key 'a' stands twice", true},
    {"{\"x\":{\"a\":1,\"\\u0061\":2}}", "the key 'a' stands twice", true},
    {"[9223372036854775808]", "does not fit 64 bits", true},
    {"[-9223372036854775809]", "does not fit 64 bits", true},
    {"[184467440737095516160]", "does not fit 64 bits", true},
    {"[1e309]", "too large for a double", true},
};

static void test_malformed(void **state) {
  size_t i;
  (void)state;
  for (i = 0; i < sizeof malformed / sizeof *malformed; i++) {
    char copy[64];
    hri_json root = {0};
    hr_error error = {0};
    hri_json_scan scan;
    hr_status status;
    uint64_t live = hri_mem_live_bytes();
    strcpy(copy, malformed[i].text);
    assert_int_equal(parse(copy, &root, &error), HR_ERROR_INPUT);
    assert_says(&error, "f.json: line ");
    assert_says(&error, malformed[i].message);
    assert_true(error.hint[0]);
    assert_true(hri_mem_live_bytes() == live);
    scan = hri_json_scan_init(copy, strlen(copy), "f.json", "");
    status = hri_json_scan_skip(&scan, &error);
    if (status == HR_OK) status = hri_json_scan_end(&scan, &error);
    assert_int_equal(status, malformed[i].tree ? HR_OK : HR_ERROR_INPUT);
  }
}

static void test_numbers(void **state) {
  hri_json root;
  hr_error error = {0};
  (void)state;
  assert_int_equal(parse("[9223372036854775807,-9223372036854775808,-0,1.5,-2.5e-3,1E2,1e-400,0.0]", &root, &error),
                   HR_OK);
  assert_true(json_integer_value(json_array_get(root.value, 0)) == INT64_MAX);
  assert_true(json_integer_value(json_array_get(root.value, 1)) == INT64_MIN);
  assert_true(json_is_integer(json_array_get(root.value, 2)) && json_integer_value(json_array_get(root.value, 2)) == 0);
  assert_true(json_real_value(json_array_get(root.value, 3)) == 1.5);
  assert_true(json_real_value(json_array_get(root.value, 4)) == -2.5e-3);
  assert_true(json_is_real(json_array_get(root.value, 5)) && json_real_value(json_array_get(root.value, 5)) == 100);
  assert_true(json_real_value(json_array_get(root.value, 6)) == 0);
  assert_true(json_is_real(json_array_get(root.value, 7)));
  hri_json_deinit(&root);
}

/* In people's files an integer outside int64 is a number all the same, but none that a getter takes for an integer. */
static void test_wide_integers(void **state) {
  static const char text[] =
      "{\"n\":1000000000000000019884624838656,\"m\":-9223372036854775809,\"k\":9223372036854775807}";
  hri_json root = {0};
  hr_error error = {0};
  uint64_t whole = 7;
  double value = 0;
  (void)state;
  assert_int_equal(hri_json_parse(text, sizeof text - 1, "f.json", &root, &error), HR_ERROR_INPUT);
  assert_int_equal(hri_json_parse_file(text, sizeof text - 1, "f.json", &root, &error), HR_OK);
  assert_int_equal(hri_json_get_double(&root, "n", &value, &error), HR_OK);
  assert_true(value == 1e30);
  assert_int_equal(hri_json_get_double(&root, "m", &value, &error), HR_OK);
  assert_true(value == -9223372036854775808.0);
  assert_int_equal(hri_json_get_u64(&root, "k", 0, UINT64_MAX, &whole, &error), HR_OK);
  assert_true(whole == INT64_MAX);
  assert_int_equal(hri_json_get_u64(&root, "n", 0, UINT64_MAX, &whole, &error), HR_ERROR_INPUT);
  assert_says(&error, "field 'n' must be an integer");
  hri_json_deinit(&root);
}

/* What is read to be written again keeps the digits of any integer that a double could hold roughly. */
static void test_kept_integers(void **state) {
  char text[400] = "[\"\",-18446744073709551615,{\"a\":123456789012345678901234567890},1e+30,",
       *end = text + strlen(text);
  const char *directory = scratch_make("json"), *path = path_of("%s/kept", directory);
  hri_json root = {0};
  hri_text out = {0};
  hri_json_writer w = hri_json_writer_init(&out, 0);
  hr_error error = {0};
  (void)state;
  for (int i = 0; i < 309; i++) *end++ = '1'; /* the longest that there is */
  *end++ = ']';
  put_text(path, text);
  assert_int_equal(hri_json_read_to_keep(path, sizeof text, &root, &error), HR_OK);
  hri_json_put_tree(&w, root.value);
  assert_string_equal(hri_text_get(&out), text);
  hri_text_deinit(&out);
  hri_json_deinit(&root);
  scratch_remove(directory);
}

/* RFC 8259, section 8.1: a parser may pass over a byte order mark. */
static void test_byte_order_mark(void **state) {
  hri_json root;
  hr_error error = {0};
  (void)state;
  assert_int_equal(parse("\xEF\xBB\xBF{\"a\":7}", &root, &error), HR_OK);
  assert_true(json_integer_value(json_object_get(root.value, "a")) == 7);
  hri_json_deinit(&root);
  assert_int_equal(parse("\xEF\xBB\xBF", &root, &error), HR_ERROR_INPUT);
}

static void test_nul_bytes(void **state) {
  static const char text[] = "[1\0,2]"; /* jansson alone accepts this as [1,2] */
  hri_json root;
  hr_error error = {0};
  (void)state;
  assert_int_equal(hri_json_parse(text, sizeof text - 1, "f.json", &root, &error), HR_ERROR_INPUT);
  assert_says(&error, "column 3: expected ',' or ']', found the byte 0x00");
}

static void test_depth(void **state) {
  char text[2 * HRI_JSON_DEPTH + 3], copy[sizeof text];
  int depth;
  (void)state;
  for (depth = HRI_JSON_DEPTH; depth <= HRI_JSON_DEPTH + 1; depth++) {
    hri_json root = {0};
    hr_error error = {0};
    hri_json_scan scan;
    hr_status wanted = depth > HRI_JSON_DEPTH ? HR_ERROR_INPUT : HR_OK;
    memset(text, '[', (size_t)depth);
    memset(text + depth, ']', (size_t)depth);
    text[2 * depth] = 0;
    memcpy(copy, text, sizeof text);
    assert_int_equal(parse(text, &root, &error), wanted);
    if (wanted != HR_OK) assert_says(&error, "deeper than 128");
    scan = hri_json_scan_init(copy, strlen(text), "f.json", "");
    assert_int_equal(hri_json_scan_skip(&scan, &error), wanted);
    if (wanted != HR_OK) assert_says(&error, "deeper than 128");
    if (wanted == HR_OK) {
      hri_text out = {0};
      hri_json_writer writer = hri_json_writer_init(&out, 0);
      hri_json_put_tree(&writer, root.value);
      assert_string_equal(hri_text_get(&out), text);
      hri_text_deinit(&out);
    }
    hri_json_deinit(&root);
  }
}

static const char config[] =
    "{\"n\": 12, \"big\": 9223372036854775807, \"neg\": -3, \"x\": 0.5, \"whole\": 2.0, \"yes\": true,"
    " \"name\": \"caf\\u00e9\", \"none\": null, \"rope\": {\"factor\": \"8\"}, \"list\": [1, {\"k\": []}]}";

static void test_getters(void **state) {
  hri_json root, child;
  hr_error error = {0};
  uint64_t u = 0;
  int64_t i = 0;
  double d = 0;
  bool b = false;
  const char *s = NULL;
  (void)state;
  assert_int_equal(parse(config, &root, &error), HR_OK);
  assert_int_equal(hri_json_get_u64(&root, "n", 1, 12, &u, &error), HR_OK);
  assert_true(u == 12);
  assert_int_equal(hri_json_get_u64(&root, "big", 0, UINT64_MAX, &u, &error), HR_OK);
  assert_true(u == INT64_MAX);
  assert_int_equal(hri_json_get_i64(&root, "neg", -3, 0, &i, &error), HR_OK);
  assert_true(i == -3);
  assert_int_equal(hri_json_get_double(&root, "x", &d, &error), HR_OK);
  assert_true(d == 0.5);
  assert_int_equal(hri_json_get_double(&root, "n", &d, &error), HR_OK);
  assert_true(d == 12);
  assert_int_equal(hri_json_get_bool(&root, "yes", &b, &error), HR_OK);
  assert_true(b);
  assert_int_equal(hri_json_get_string(&root, "name", &s, &error), HR_OK);
  assert_string_equal(s, "caf\xC3\xA9");
  assert_true(hri_json_has(&root, "n") && !hri_json_has(&root, "none") && !hri_json_has(&root, "missing"));
  u = 77;
  assert_int_equal(hri_json_opt_u64(&root, "none", 0, 9, &u, &error), HR_OK);
  assert_int_equal(hri_json_opt_u64(&root, "missing", 0, 9, &u, &error), HR_OK);
  assert_true(u == 77);
  assert_int_equal(hri_json_get_array(&root, "list", &child, &error), HR_OK);
  assert_true(hri_json_count(&child) == 2);
  child = hri_json_item(&child, 1);
  assert_string_equal(child.path, "list[1]");
  assert_int_equal(hri_json_get_u64(&child, "k", 0, 9, &u, &error), HR_ERROR_INPUT);
  assert_string_equal(error.message, "f.json: field 'list[1].k' must be an integer from 0 to 9, found an array of 0");
  hri_json_deinit(&root);
}

static void test_getters_refuse(void **state) {
  hri_json root, rope;
  hr_error error = {0};
  uint64_t u = 5;
  int64_t i = 5;
  double d = 5;
  bool b = true;
  const char *s = "s";
  (void)state;
  assert_int_equal(parse(config, &root, &error), HR_OK);
  assert_int_equal(hri_json_get_u64(&root, "absent", 1, 8, &u, &error), HR_ERROR_INPUT);
  assert_string_equal(error.message, "f.json: field 'absent' is missing; it must be an integer from 1 to 8");
  assert_string_equal(error.hint, "add the field to f.json");
  assert_int_equal(hri_json_get_u64(&root, "n", 1, 11, &u, &error), HR_ERROR_INPUT);
  assert_string_equal(error.message, "f.json: field 'n' must be an integer from 1 to 11, found 12");
  assert_int_equal(hri_json_get_u64(&root, "neg", 0, 11, &u, &error), HR_ERROR_INPUT);
  assert_says(&error, "found -3");
  assert_int_equal(hri_json_get_u64(&root, "whole", 0, 11, &u, &error), HR_ERROR_INPUT);
  assert_says(&error, "must be an integer from 0 to 11, found 2.0");
  assert_int_equal(hri_json_get_u64(&root, "none", 0, 11, &u, &error), HR_ERROR_INPUT);
  assert_says(&error, "found null");
  assert_int_equal(hri_json_opt_u64(&root, "x", 0, 11, &u, &error), HR_ERROR_INPUT);
  assert_says(&error, "found 0.5");
  assert_int_equal(hri_json_get_i64(&root, "neg", -2, 11, &i, &error), HR_ERROR_INPUT);
  assert_int_equal(hri_json_opt_i64(&root, "name", -2, 11, &i, &error), HR_ERROR_INPUT);
  assert_says(&error, "found the string \"caf\xC3\xA9\"");
  assert_int_equal(hri_json_opt_double(&root, "yes", &d, &error), HR_ERROR_INPUT);
  assert_says(&error, "must be a number, found true");
  assert_int_equal(hri_json_opt_bool(&root, "n", &b, &error), HR_ERROR_INPUT);
  assert_says(&error, "must be true or false, found 12");
  assert_int_equal(hri_json_opt_string(&root, "rope", &s, &error), HR_ERROR_INPUT);
  assert_says(&error, "must be a string, found an object");
  assert_int_equal(hri_json_get_array(&root, "rope", &rope, &error), HR_ERROR_INPUT);
  assert_int_equal(hri_json_get_object(&root, "list", &rope, &error), HR_ERROR_INPUT);
  assert_int_equal(hri_json_get_object(&root, "rope", &rope, &error), HR_OK);
  assert_int_equal(hri_json_get_double(&rope, "factor", &d, &error), HR_ERROR_INPUT);
  assert_says(&error, "field 'rope.factor' must be a number, found the string \"8\"");
  assert_true(u == 5 && i == 5 && d == 5 && b && strcmp(s, "s") == 0);
  hri_json_deinit(&root);
  assert_int_equal(parse("[1]", &root, &error), HR_OK);
  assert_int_equal(hri_json_opt_u64(&root, "n", 0, 9, &u, &error), HR_ERROR_INPUT);
  assert_string_equal(error.message, "f.json must be an object with the field 'n', found an array of 1");
  hri_json_deinit(&root);
}

/* Long strings, keys and paths are cut, at a character. */
static void test_long_names(void **state) {
  char text[1200], key[401];
  hri_json root, child;
  hr_error error = {0};
  uint64_t u;
  int i;
  (void)state;
  memset(key, 'k', 400);
  key[400] = 0;
  (void)snprintf(text, sizeof text, "{\"%s\": {\"%s\": \"x", key, key);
  for (i = 0; i < 50; i++) strcat(text, "\xC3\xA9");
  strcat(text, "\"}}");
  assert_int_equal(parse(text, &root, &error), HR_OK);
  child = hri_json_member(&root, key);
  assert_int_equal(strlen(child.path), HRI_JSON_PATH_BYTES - 1);
  assert_string_equal(child.path + HRI_JSON_PATH_BYTES - 5, "k...");
  assert_int_equal(hri_json_get_u64(&child, key, 0, 1, &u, &error), HR_ERROR_INPUT);
  assert_says(&error, "\xC3\xA9...\"");
  hri_json_deinit(&root);
}

static void test_read_file(void **state) {
  const char *directory = scratch_make("json"), *path = path_of("%s/a", directory);
  hri_json root;
  hr_error error = {0};
  (void)state;
  put_text(path, "{\"a\":\n}");
  assert_int_equal(hri_json_read(path, 100, &root, &error), HR_ERROR_INPUT);
  assert_says(&error, path);
  assert_says(&error, "line 2");
  assert_int_equal(hri_json_read(path, 6, &root, &error), HR_ERROR_INPUT);
  assert_says(&error, "7 bytes");
  scratch_remove(directory);
  assert_int_equal(hri_json_read(path, 100, &root, &error), HR_ERROR_IO);
}

/* ---- Scanner ---- */

static void test_scan_values(void **state) {
  char text[] =
      " {\"k\\u00e9\\ud834\\udd1e\\n\" : [18446744073709551615, 0,7 ], \"o\":{}, \"s\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}\n";
  hri_json_scan scan = hri_json_scan_init(text, sizeof text - 1, "f.json", "row ");
  hr_error error = {0};
  char *key, *value;
  uint64_t u;
  bool more;
  int i;
  static const uint64_t wanted[] = {UINT64_MAX, 0, 7};
  (void)state;
  assert_int_equal(hri_json_scan_object(&scan, &error), HR_OK);
  assert_int_equal(hri_json_scan_key(&scan, &key, &error), HR_OK);
  assert_string_equal(key, "k\xC3\xA9\xF0\x9D\x84\x9E\n");
  assert_int_equal(hri_json_scan_array(&scan, &error), HR_OK);
  for (i = 0; i < 3; i++) {
    assert_int_equal(hri_json_scan_element(&scan, &more, &error), HR_OK);
    assert_true(more);
    assert_int_equal(hri_json_scan_u64(&scan, &u, &error), HR_OK);
    assert_true(u == wanted[i]);
  }
  assert_int_equal(hri_json_scan_element(&scan, &more, &error), HR_OK);
  assert_false(more);
  assert_int_equal(hri_json_scan_key(&scan, &key, &error), HR_OK);
  assert_string_equal(key, "o");
  assert_int_equal(hri_json_scan_peek(&scan), '{');
  assert_int_equal(hri_json_scan_skip(&scan, &error), HR_OK);
  assert_int_equal(hri_json_scan_key(&scan, &key, &error), HR_OK);
  assert_int_equal(hri_json_scan_string(&scan, &value, &error), HR_OK);
  assert_string_equal(value, "\"\\/\b\f\n\r\t");
  assert_int_equal(hri_json_scan_key(&scan, &key, &error), HR_OK);
  assert_null(key);
  assert_int_equal(hri_json_scan_end(&scan, &error), HR_OK);
}

static void test_scan_u64_refuses(void **state) {
  static const char *const texts[][2] = {{"-1", "expected a non-negative integer, found '-'"},
                                         {"-0", "found '-'"},
                                         {"1.0", "a fraction or an exponent"},
                                         {"1e2", "a fraction or an exponent"},
                                         {"0e1", "a fraction"},
                                         {"18446744073709551616", "does not fit 64 bits"},
                                         {"99999999999999999999999", "does not fit 64 bits"},
                                         {"00", "leading zero"},
                                         {"\"1\"", "found '\"'"},
                                         {"", "the end of the text"},
                                         {"true", "found 't'"}};
  size_t i;
  (void)state;
  for (i = 0; i < sizeof texts / sizeof *texts; i++) {
    char copy[32];
    hri_json_scan scan;
    hr_error error = {0};
    uint64_t u = 5;
    strcpy(copy, texts[i][0]);
    scan = hri_json_scan_init(copy, strlen(copy), "f.json", "row 3, ");
    assert_int_equal(hri_json_scan_u64(&scan, &u, &error), HR_ERROR_INPUT);
    assert_says(&error, "f.json: row 3, line 1, column ");
    assert_says(&error, texts[i][1]);
    assert_true(u == 5);
  }
}

/* ---- Writer ---- */

static void put_sample(hri_json_writer *writer) {
  hri_json_begin_object(writer);
  hri_json_field_string(writer, "s", "a\"\\\b\f\n\r\t\x01\x1f\x7f/\xC3\xA9");
  hri_json_field_u64(writer, "u", UINT64_MAX);
  hri_json_field_i64(writer, "i", INT64_MIN);
  hri_json_field_double(writer, "d", 0.1);
  hri_json_field_bool(writer, "b", false);
  hri_json_key(writer, "empty");
  hri_json_begin_array(writer);
  hri_json_end_array(writer);
  hri_json_key(writer, "list");
  hri_json_begin_array(writer);
  hri_json_put_null(writer);
  hri_json_put_double(writer, NAN);
  hri_json_put_double(writer, -INFINITY);
  hri_json_put_string(writer, NULL);
  hri_json_begin_object(writer);
  hri_json_end_object(writer);
  hri_json_end_array(writer);
  hri_json_end_object(writer);
}

static void test_writer(void **state) {
  hri_text text = {0};
  hri_json_writer writer = hri_json_writer_init(&text, 0);
  (void)state;
  put_sample(&writer);
  assert_string_equal(
      text.chars, "{\"s\":\"a\\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u001f\x7f/\xC3\xA9\",\"u\":18446744073709551615,"
                  "\"i\":-9223372036854775808,\"d\":0.1,\"b\":false,\"empty\":[],\"list\":[null,null,null,null,{}]}");
  hri_text_deinit(&text);
  writer = hri_json_writer_init(&text, 2);
  put_sample(&writer);
  assert_string_equal(
      text.chars,
      "{\n  \"s\": \"a\\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u001f\x7f/\xC3\xA9\",\n  \"u\": 18446744073709551615,\n"
      "  \"i\": -9223372036854775808,\n  \"d\": 0.1,\n  \"b\": false,\n  \"empty\": [],\n  \"list\": [\n"
      "    null,\n    null,\n    null,\n    null,\n    {}\n  ]\n}");
  hri_text_deinit(&text);
}

/* One replacement character per byte that belongs to no valid sequence. */
static void test_writer_invalid_utf8(void **state) {
#define FFFD "\xEF\xBF\xBD"
  static const char *const cases[][2] = {{"\xFF", "\"" FFFD "\""},
                                         {"a\xC0\xAF", "\"a" FFFD FFFD "\""},
                                         {"\xED\xA0\x80z", "\"" FFFD FFFD FFFD "z\""},
                                         {"\xE2\x82", "\"" FFFD FFFD "\""},
                                         {"\xF0\x9F\x98\x80", "\"\xF0\x9F\x98\x80\""},
                                         {"\x80\xC3\xA9", "\"" FFFD "\xC3\xA9\""},
                                         {"\xF5\x80\x80\x80", "\"" FFFD FFFD FFFD FFFD "\""}};
  size_t i;
  (void)state;
  for (i = 0; i < sizeof cases / sizeof *cases; i++) {
    hri_text text = {0};
    hri_json_writer writer = hri_json_writer_init(&text, 0);
    hri_json_put_string(&writer, cases[i][0]);
    assert_string_equal(text.chars, cases[i][1]);
    hri_text_deinit(&text);
  }
}

static void assert_double(double value, const char *wanted) {
  hri_text text = {0};
  hri_json_writer writer = hri_json_writer_init(&text, 0);
  hri_json_put_double(&writer, value);
  if (wanted) assert_string_equal(text.chars, wanted);
  assert_true(strtod(text.chars, NULL) == value);
  assert_true(strpbrk(text.chars, ".e") != NULL);
  hri_text_deinit(&text);
}

static void test_writer_doubles(void **state) {
  static const struct {
    double value;
    const char *text;
  } cases[] = {{0, "0.0"},
               {-0.0, "-0.0"},
               {1, "1.0"},
               {-10000, "-10000.0"},
               {0.1, "0.1"},
               {1e-5, "1e-05"},
               {1e22, "1e+22"},
               {5e-5, "5e-05"},
               {1.0 / 3, "0.3333333333333333"},
               {0.1 + 0.2, "0.30000000000000004"},
               {5e-324, "5e-324"},
               {DBL_MAX, "1.7976931348623157e+308"},
               {DBL_MIN, "2.2250738585072014e-308"},
               {123456789012345680.0, NULL}};
  uint64_t seed = 88172645463325252u;
  size_t i;
  (void)state;
  for (i = 0; i < sizeof cases / sizeof *cases; i++) assert_double(cases[i].value, cases[i].text);
  for (i = 0; i < 100000; i++) { /* any bit pattern: xorshift */
    double value;
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    memcpy(&value, &seed, sizeof value);
    if (isfinite(value)) assert_double(value, NULL);
  }
}

static void test_locale(void **state) {
  static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE.utf8", "ps_AF.UTF-8"};
  hri_text text = {0};
  hri_json_writer writer = hri_json_writer_init(&text, 0);
  hri_json root;
  hr_error error = {0};
  hr_status status;
  size_t i;
  (void)state;
  for (i = 0; i < sizeof names / sizeof *names; i++)
    if (setlocale(LC_NUMERIC, names[i])) break;
  if (i == sizeof names / sizeof *names) skip();
  hri_json_put_double(&writer, -1.5);
  status = parse(hri_text_get(&text), &root, &error);
  (void)setlocale(LC_NUMERIC, "C");
  assert_string_equal(text.chars, "-1.5");
  assert_int_equal(status, HR_OK);
  assert_true(json_real_value(root.value) == -1.5);
  hri_json_deinit(&root);
  hri_text_deinit(&text);
}

/* ---- Memory and threads ---- */

static void test_refused_memory(void **state) {
  uint64_t n, live = hri_mem_live_bytes();
  (void)state;
  for (n = 1; n < 1000; n++) {
    hri_json root = {0};
    hr_error error = {0};
    hr_status status;
    hri_mem_fail_after(n);
    status = parse(config, &root, &error);
    hri_mem_fail_after(0);
    if (status == HR_OK) {
      assert_true(json_object_size(root.value) == 10);
      hri_json_deinit(&root);
      break;
    }
    assert_int_equal(status, HR_ERROR_MEMORY);
    assert_int_equal(error.code, HR_ERROR_MEMORY);
    assert_true(hri_mem_live_bytes() == live);
  }
  assert_true(n > 10 && n < 1000);
  assert_true(hri_mem_live_bytes() == live);
}

static void test_writer_refused_memory(void **state) {
  hri_text text = {0};
  hri_json_writer writer = hri_json_writer_init(&text, 2);
  (void)state;
  hri_mem_fail_after(3);
  put_sample(&writer);
  hri_mem_fail_after(0);
  assert_true(text.failed);
  hri_text_deinit(&text);
}

static void *parse_many(void *failed) {
  int i;
  for (i = 0; i < 200; i++) {
    hri_json root;
    hr_error error;
    if (parse(config, &root, &error) != HR_OK) *(bool *)failed = true;
    else hri_json_deinit(&root);
  }
  return NULL;
}

static void test_threads(void **state) {
  pthread_t threads[4];
  bool failed[4] = {false};
  uint64_t live = hri_mem_live_bytes();
  int i;
  (void)state;
  for (i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, parse_many, &failed[i]), 0);
  for (i = 0; i < 4; i++) {
    pthread_join(threads[i], NULL);
    assert_false(failed[i]);
  }
  assert_true(hri_mem_live_bytes() == live);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_malformed),
      cmocka_unit_test(test_numbers),
      cmocka_unit_test(test_wide_integers),
      cmocka_unit_test(test_kept_integers),
      cmocka_unit_test(test_byte_order_mark),
      cmocka_unit_test(test_nul_bytes),
      cmocka_unit_test(test_depth),
      cmocka_unit_test(test_getters),
      cmocka_unit_test(test_getters_refuse),
      cmocka_unit_test(test_long_names),
      cmocka_unit_test(test_read_file),
      cmocka_unit_test(test_scan_values),
      cmocka_unit_test(test_scan_u64_refuses),
      cmocka_unit_test(test_writer),
      cmocka_unit_test(test_writer_invalid_utf8),
      cmocka_unit_test(test_writer_doubles),
      cmocka_unit_test(test_locale),
      cmocka_unit_test(test_refused_memory),
      cmocka_unit_test(test_writer_refused_memory),
      cmocka_unit_test(test_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
