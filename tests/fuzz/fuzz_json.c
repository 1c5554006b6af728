/* The JSON reader on any bytes, held against jansson's own parser, and the scanner's skip against the reader: they must
 * agree on what is JSON and what it says, apart from what each is known to treat differently. What was read must
 * survive being written. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/json_scan.h"
#include "base/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
  if (!holds) abort();
}

static bool scans(const char *bytes, size_t size) {
  char *copy = malloc(size ? size : 1); /* the scanner writes into it */
  hri_json_scan scan;
  hr_error error;
  bool fine;
  require(copy != NULL);
  if (size > 0) memcpy(copy, bytes, size);
  scan = hri_json_scan_init(copy, size, "input", "");
  fine = hri_json_scan_skip(&scan, &error) == HR_OK && hri_json_scan_end(&scan, &error) == HR_OK;
  require(fine || (error.code == HR_ERROR_INPUT && error.message[0]));
  require(scan.next >= copy && scan.next <= copy + size);
  free(copy);
  return fine;
}

static void check_written(const hri_json *root, uint32_t indent) {
  hri_text text = {0};
  hri_json_writer writer = hri_json_writer_init(&text, indent);
  hri_json again;
  hr_error error;
  hri_json_put_tree(&writer, root->value);
  require(!text.failed);
  require(hri_json_parse(text.chars, text.length, "written", &again, &error) == HR_OK);
  require(json_equal(root->value, again.value));
  require(scans(text.chars, text.length));
  hri_json_deinit(&again);
  hri_text_deinit(&text);
}

static void ask(const hri_json *root) {
  hr_error error;
  uint64_t u = 7;
  int64_t i = -7;
  double d = 0.5;
  bool b = true;
  const char *s = "";
  hri_json child;
  if (hri_json_opt_u64(root, "a", 1, 1000, &u, &error) == HR_OK) require(u >= 1 && u <= 1000);
  if (hri_json_opt_i64(root, "a", -1000, 1000, &i, &error) == HR_OK) require(i >= -1000 && i <= 1000);
  if (hri_json_opt_double(root, "a", &d, &error) == HR_OK) require(d - d == 0);
  (void)hri_json_opt_bool(root, "a", &b, &error);
  if (hri_json_opt_string(root, "a", &s, &error) == HR_OK) require(s != NULL);
  if (hri_json_get_object(root, "a", &child, &error) == HR_OK) ask(&child);
  if (hri_json_get_array(root, "a", &child, &error) == HR_OK && hri_json_count(&child) > 0) {
    child = hri_json_item(&child, 0);
    ask(&child);
  }
}

/* What the tree refuses although it is JSON. */
static bool declared_refusal(const hr_error *error) {
  static const char *const texts[] = {"stands twice in one object", "does not fit 64 bits", "too large for a double"};
  size_t i;
  for (i = 0; i < sizeof texts / sizeof *texts; i++)
    if (strstr(error->message, texts[i])) return true;
  return false;
}

/* jansson allows 2048 levels, and drops a NUL byte behind a number or word. */
static void check_against_jansson(const char *bytes, size_t size, const hri_json *root, const hr_error *error) {
  json_t *other = json_loadb(size ? bytes : "", size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);
  if (root) require(other && json_equal(root->value, other));
  else require(!other || strstr(error->message, "nested deeper") || memchr(bytes, 0, size));
  json_decref(other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const char *bytes = (const char *)data;
  uint64_t live = hri_mem_live_bytes();
  hri_json root;
  hr_error error = {0};
  hr_status status = hri_json_parse(bytes, size, "input", &root, &error);
  size_t mark = hri_utf8_mark(bytes, size); /* which the reader alone passes over */
  bool scanned = scans(bytes += mark, size -= mark);
  if (status == HR_OK) {
    require(scanned);
    check_against_jansson(bytes, size, &root, NULL);
    ask(&root);
    check_written(&root, 0);
    check_written(&root, 2);
    hri_json_deinit(&root);
  } else {
    require(error.code == HR_ERROR_INPUT && error.message[0]);
    require(!scanned || declared_refusal(&error));
    check_against_jansson(bytes, size, NULL, &error);
  }
  require(hri_mem_live_bytes() == live);
  return 0;
}
