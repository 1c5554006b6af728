/* Files of measurements (stored.h), and the tables of rates in them. */
#include "backend/stored.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

enum { PRODUCTS = HR_PRODUCT_KINDS * HR_PRODUCT_SIDES * HR_PRODUCT_SIZES };

/* ---- files ---- */

static hr_status cache_directory(char path[HRI_STORED_PATH_BYTES], hr_error *error) {
  enum { PATH_BYTES = HRI_STORED_PATH_BYTES };
  const char *own = getenv("HEADROOM_CACHE"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  int length;
  if (own && *own) length = snprintf(path, PATH_BYTES, "%s", own);
  else if (cache && *cache == '/') length = snprintf(path, PATH_BYTES, "%s/headroom", cache);
  else if (home && *home) length = snprintf(path, PATH_BYTES, "%s/.cache/headroom", home);
  else {
    (void)hri_fail(error, HR_ERROR_USAGE, "there is no directory for measurements: HOME is not set");
    return hri_hint(error, HR_ERROR_USAGE, "set HEADROOM_CACHE to a directory");
  }
  return length > 0 && length < PATH_BYTES - HRI_STORED_NAME_BYTES - 8
             ? HR_OK
             : hri_fail(error, HR_ERROR_USAGE, "the path of the cache directory is too long");
}

/* "cpu-amd-epyc-9654-96-core-processor-avx512bf16-2-threads-products-1-bf16-by-dot.json" */
hr_status hri_stored_path(const char *name, char path[HRI_STORED_PATH_BYTES], hr_error *error) {
  char plain[HRI_STORED_NAME_BYTES];
  size_t used, kept = 0;
  HRI_TRY(cache_directory(path, error));
  for (size_t k = 0; name[k] && kept + 1 < sizeof plain; k++) {
    if (isalnum((unsigned char)name[k])) plain[kept++] = (char)tolower((unsigned char)name[k]);
    else if (kept && plain[kept - 1] != '-') plain[kept++] = '-';
  }
  plain[kept] = 0;
  used = strlen(path);
  (void)snprintf(path + used, HRI_STORED_PATH_BYTES - used, "/%s.json", plain);
  return HR_OK;
}

hr_status hri_stored_write(char path[HRI_STORED_PATH_BYTES], const hri_text *text, hr_error *error) {
  char *slash = strrchr(path, '/');
  hr_status status;
  if (text->failed) return hri_fail_memory(error, text->length, "the measurements");
  *slash = 0;
  status = hri_dir_make(path, error);
  *slash = '/';
  return status == HR_OK ? hri_file_replace(path, text->chars, text->length, error) : status;
}

hr_status hri_stored_can_write(hr_error *error) {
  char path[HRI_STORED_PATH_BYTES], directory[HRI_STORED_PATH_BYTES], above[HRI_STORED_PATH_BYTES];
  hr_status status;
  HRI_TRY(hri_stored_path("probe", path, error));
  hri_path_parent(path, directory);
  hri_path_nearest(directory, above);
  status = hri_dir_make(directory, error);
  if (status == HR_OK) status = hri_file_can_replace(path, error);
  hri_dir_unmake(directory, strcmp(above, ".") == 0 ? 0 : strlen(above));
  return status;
}

void hri_stored_put_row(hri_json_writer *w, const char *key, const double *values, size_t count) {
  hri_json_key(w, key);
  hri_json_begin_array(w);
  for (size_t k = 0; k < count; k++) hri_json_put_double(w, values[k]);
  hri_json_end_array(w);
}

hr_status hri_stored_row(const hri_json *root, const char *key, double *values, size_t count, hr_error *error) {
  hri_json array;
  HRI_TRY(hri_json_get_array(root, key, &array, error));
  if (hri_json_count(&array) != count) return hri_json_fail(&array, error, "as many numbers as there are classes");
  for (size_t k = 0; k < count; k++) {
    hri_json item = hri_json_item(&array, k);
    values[k] = json_is_number(item.value) ? json_number_value(item.value) : -1;
    if (!isfinite(values[k]) || values[k] < 0 || values[k] > 1e18) return hri_json_fail(&item, error, "a rate");
  }
  return HR_OK;
}

hr_status hri_stored_text(const hri_json *root, const char *key, const char *wanted, char *out, size_t out_bytes,
                          hr_error *error) {
  const char *text;
  HRI_TRY(hri_json_get_string(root, key, &text, error));
  if (wanted && strcmp(text, wanted) != 0) {
    hri_json member = hri_json_member(root, key);
    return hri_json_fail(&member, error, "'%.100s'", wanted);
  }
  if (out) (void)snprintf(out, out_bytes, "%.*s", (int)out_bytes - 1, text);
  return HR_OK;
}

/* ---- tables of rates ---- */

static const char *const types[HR_RATE_TYPES] = {"fp32", "bf16"};

void hri_stored_put_tables(hri_json_writer *w, const hr_device_rates *r) {
  for (int type = 0; type < HR_RATE_TYPES; type++) {
    const hr_rate_tables *t = &r->tables[type];
    hri_json_key(w, types[type]);
    hri_json_begin_object(w);
    hri_stored_put_row(w, "product_flops", &t->product_flops[0][0][0], PRODUCTS);
    hri_stored_put_row(w, "attention_flops", &t->attention_flops[0][0], HR_ATTENTION_KINDS * HR_ATTENTION_SIZES);
    hri_stored_put_row(w, "stream_bytes", &t->stream_bytes[0][0], HR_STREAM_COUNT * HR_STREAM_SIZES);
    hri_json_end_object(w);
  }
}

hr_status hri_stored_tables(const hri_json *root, hr_device_rates *r, hr_error *error) {
  HRI_TRY(hri_json_get_double(root, "node_seconds", &r->node_seconds, error));
  if (!(r->node_seconds >= 0 && r->node_seconds < 1)) return hri_json_fail(root, error, "node_seconds below 1");
  for (int type = 0; type < HR_RATE_TYPES; type++) {
    hr_rate_tables *t = &r->tables[type];
    hri_json tables;
    HRI_TRY(hri_json_get_object(root, types[type], &tables, error));
    HRI_TRY(hri_stored_row(&tables, "product_flops", &t->product_flops[0][0][0], PRODUCTS, error));
    HRI_TRY(hri_stored_row(&tables, "attention_flops", &t->attention_flops[0][0],
                           HR_ATTENTION_KINDS * HR_ATTENTION_SIZES, error));
    HRI_TRY(hri_stored_row(&tables, "stream_bytes", &t->stream_bytes[0][0], HR_STREAM_COUNT * HR_STREAM_SIZES, error));
  }
  return HR_OK;
}
