/* Rows of a Parquet file as JSON.
 *
 * A leaf's entry has a definition level, how deep its path is there, and a repetition level, which of the lists around it
 * it goes on. The row is put together by walking the schema: what is null or empty shows in the first leaf below it,
 * and a list has elements as long as its first leaf's next entry repeats at its level. All leaves below must agree at
 * each of these places, else the file is damaged; each step takes an entry of each leaf, so walking ends with them. */
#include "formats/parquet.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/parquet_inside.h"

enum { ROW_BYTES = 64 << 20, NAME_BYTES = 256 };

struct hri_parquet {
  hri_parquet_file file;
  hri_parquet_meta meta;
  hri_parquet_column *columns; /* one for each leaf; those that are not wanted have no name */
  bool *chosen;                /* by node: outermost fields that are wanted */
  bool any_chosen;
  size_t group;  /* the next row group */
  uint64_t left; /* rows of the one under way */
  uint64_t row;  /* from 1, for messages */
};

static const hri_parquet_node *node_at(const hri_parquet *f, uint32_t index) { return &f->meta.nodes.items[index]; }

static hr_status damaged(const hri_parquet *f, hr_error *error, const char *what) {
  char text[160];
  (void)snprintf(text, sizeof text, "row %llu: %s", (unsigned long long)f->row, what);
  return hri_parquet_damaged(&f->file, error, text);
}

/* ---- opening ---- */

static hr_status refuse(const hri_parquet *f, const char *path, const char *what, hr_error *error) {
  hr_status code =
      hri_fail(error, HR_ERROR_INPUT, "%s: column '%.200s' is %s, which is not read", f->file.path, path, what);
  return hri_hint(error, code, "write the file without it, or as text or numbers");
}

static hr_status open_leaf(hri_parquet *f, const hri_parquet_node *node, const char *path, hr_error *error) {
  hri_parquet_column *c = &f->columns[node->first_leaf];
  c->file = &f->file;
  c->name = hri_strdup(path);
  c->type = node->type;
  c->max_definition = node->max_definition;
  c->max_repetition = node->max_repetition;
  c->is_unsigned = node->is_unsigned;
  return c->name ? HR_OK : hri_fail_memory(error, strlen(path), "the columns of a Parquet file");
}

/* Checks a wanted subtree and makes columns of its leaves. `path` is a buffer with the names so far. */
static hr_status open_tree(hri_parquet *f, uint32_t index, char path[NAME_BYTES], hr_error *error) {
  const hri_parquet_node *node = node_at(f, index);
  size_t used = strlen(path);
  (void)snprintf(path + used, NAME_BYTES - used, "%s%.80s", used ? "." : "", node->name);
  if (node->unread) return refuse(f, path, node->unread, error);
  if (node->type != HRI_PARQUET_GROUP) HRI_TRY(open_leaf(f, node, path, error));
  else if (node->is_list &&
           (node_at(f, index + 1)->end != node->end || node_at(f, index + 1)->repetition != HRI_PARQUET_REPEATED))
    return refuse(f, path, "a list of another layout", error);
  for (uint32_t child = index + 1; child < node->end; child = node_at(f, child)->end)
    HRI_TRY(open_tree(f, child, path, error));
  path[used] = 0;
  return HR_OK;
}

static hr_status choose(hri_parquet *f, bool (*wanted)(const char *name), hr_error *error) {
  char path[NAME_BYTES] = "";
  f->columns = hri_alloc_zero(f->meta.leaf_count, sizeof *f->columns);
  f->chosen = hri_alloc_zero(f->meta.nodes.count, sizeof *f->chosen);
  if (!f->columns || !f->chosen)
    return hri_fail_memory(error, f->meta.leaf_count * sizeof *f->columns, "the columns of a Parquet file");
  for (uint32_t k = 1; k < f->meta.nodes.count; k = node_at(f, k)->end) {
    f->chosen[k] = wanted(node_at(f, k)->name);
    f->any_chosen = f->any_chosen || f->chosen[k];
    if (f->chosen[k]) HRI_TRY(open_tree(f, k, path, error));
  }
  return HR_OK;
}

hr_status hri_parquet_open(int fd, const char *path, uint64_t bytes, bool (*wanted)(const char *name),
                           hri_parquet **file, hr_error *error) {
  hri_parquet *f = hri_alloc_zero(1, sizeof *f);
  hr_status status;
  *file = NULL;
  if (!f) return hri_fail_memory(error, sizeof *f, "a Parquet file");
  f->file = (hri_parquet_file){.fd = fd, .path = path, .bytes = bytes};
  status = hri_parquet_meta_read(&f->file, &f->meta, error);
  if (status == HR_OK) status = choose(f, wanted, error);
  if (status == HR_OK) *file = f;
  else hri_parquet_close(f);
  return status;
}

void hri_parquet_close(hri_parquet *f) {
  if (!f) return;
  for (uint32_t k = 0; f->columns && k < f->meta.leaf_count; k++) hri_parquet_column_deinit(&f->columns[k]);
  hri_free(f->columns);
  hri_free(f->chosen);
  hri_parquet_meta_deinit(&f->meta);
  hri_free(f);
}

/* ---- values ---- */

static void put_text(hri_text *row, const char *text, size_t count) {
  size_t plain = 0;
  hri_text_add_bytes(row, "\"", 1);
  for (size_t k = 0; k < count; k++) {
    unsigned char c = (unsigned char)text[k];
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    hri_text_add_bytes(row, text + plain, k - plain);
    if (c < 0x20) hri_text_add(row, "\\u%04x", c);
    else hri_text_add(row, "\\%c", c);
    plain = k + 1;
  }
  hri_text_add_bytes(row, text + plain, count - plain);
  hri_text_add_bytes(row, "\"", 1);
}

static uint64_t read_number(const uint8_t *at, uint32_t bytes) {
  uint64_t value = 0;
  for (uint32_t k = 0; k < bytes; k++) value |= (uint64_t)at[k] << 8 * k;
  return value;
}

static void put_real(hri_text *row, double value, int digits) {
  if (isfinite(value)) hri_text_add(row, "%.*g", digits, value);
  else hri_text_add(row, "null"); /* JSON has no infinity */
}

static void put_value(hri_text *row, const hri_parquet_column *c) {
  uint64_t bits = c->type == HRI_PARQUET_BYTE_ARRAY ? 0 : read_number(c->value, c->value_bytes);
  uint32_t low = (uint32_t)bits;
  double real;
  float single;
  switch (c->type) {
  case HRI_PARQUET_BYTE_ARRAY: put_text(row, (const char *)c->value, c->value_bytes); return;
  case HRI_PARQUET_BOOLEAN: hri_text_add(row, bits ? "true" : "false"); return;
  case HRI_PARQUET_FLOAT:
    memcpy(&single, &low, sizeof single);
    put_real(row, (double)single, 9);
    return;
  case HRI_PARQUET_DOUBLE:
    memcpy(&real, &bits, sizeof real);
    put_real(row, real, 17);
    return;
  case HRI_PARQUET_INT32:
    if (c->is_unsigned) hri_text_add(row, "%llu", (unsigned long long)low);
    else hri_text_add(row, "%lld", (long long)(int32_t)low);
    return;
  default:
    if (c->is_unsigned) hri_text_add(row, "%llu", (unsigned long long)bits);
    else hri_text_add(row, "%lld", (long long)bits);
  }
}

/* ---- a row ---- */

static hr_status put_node(hri_parquet *f, uint32_t index, hri_text *row, hr_error *error);

static hri_parquet_column *first_leaf(const hri_parquet *f, uint32_t index) {
  return &f->columns[node_at(f, index)->first_leaf];
}

/* What stands for a subtree that is null or empty: an entry of each leaf that ends above it. */
static hr_status pass_absent(hri_parquet *f, const hri_parquet_node *node, hr_error *error) {
  for (uint32_t k = node->first_leaf; k < node->end_leaf; k++) {
    if (f->columns[k].ended || f->columns[k].definition >= node->max_definition)
      return damaged(f, error, "its columns do not agree on what is null");
    HRI_TRY(hri_parquet_column_next(&f->columns[k], error));
  }
  return HR_OK;
}

static hr_status put_group(hri_parquet *f, uint32_t index, hri_text *row, hr_error *error) {
  const hri_parquet_node *node = node_at(f, index);
  hri_text_add_bytes(row, "{", 1);
  for (uint32_t child = index + 1; child < node->end; child = node_at(f, child)->end) {
    if (child > index + 1) hri_text_add_bytes(row, ",", 1);
    put_text(row, node_at(f, child)->name, strlen(node_at(f, child)->name));
    hri_text_add_bytes(row, ":", 1);
    HRI_TRY(put_node(f, child, row, error));
  }
  hri_text_add_bytes(row, "}", 1);
  return HR_OK;
}

static hr_status put_leaf(hri_parquet *f, const hri_parquet_node *node, hri_text *row, hr_error *error) {
  hri_parquet_column *c = &f->columns[node->first_leaf];
  if (c->ended || !c->value) return damaged(f, error, "its columns do not agree on what is null");
  put_value(row, c);
  if (row->length > ROW_BYTES) return damaged(f, error, "it has more than 64 MiB of text");
  return hri_parquet_column_next(c, error);
}

/* The repeated field of a list is its element, or a struct around it: the names that old writers gave to elements that
 * are structs themselves tell them apart (LogicalTypes.md, "backward-compatibility rules"). */
static bool wraps_element(const hri_parquet *f, uint32_t index) {
  const hri_parquet_node *node = node_at(f, index);
  size_t length = strlen(node->name);
  bool old = strcmp(node->name, "array") == 0 || (length > 6 && strcmp(node->name + length - 6, "_tuple") == 0);
  return node->type == HRI_PARQUET_GROUP && node_at(f, index + 1)->end == node->end && !old;
}

/* Whether each leaf goes on with another element of the repeated field, or none does. */
static hr_status goes_on(const hri_parquet *f, const hri_parquet_node *node, bool *more, hr_error *error) {
  for (uint32_t k = node->first_leaf; k < node->end_leaf; k++) {
    const hri_parquet_column *c = &f->columns[k];
    bool again = !c->ended && c->repetition == node->max_repetition;
    if (!c->ended && c->repetition > node->max_repetition)
      return damaged(f, error, "a list in it begins in the middle");
    if (k == node->first_leaf) *more = again;
    if (again != *more || (again && c->definition < node->max_definition))
      return damaged(f, error, "its columns do not agree on the length of a list");
  }
  return HR_OK;
}

/* The elements of a repeated field. */
static hr_status put_list(hri_parquet *f, uint32_t index, bool in_list, hri_text *row, hr_error *error) {
  const hri_parquet_node *node = node_at(f, index);
  hri_text_add_bytes(row, "[", 1);
  if (first_leaf(f, index)->ended || first_leaf(f, index)->definition < node->max_definition) {
    HRI_TRY(pass_absent(f, node, error));
  } else {
    for (bool more = true; more;) {
      if (in_list && wraps_element(f, index)) HRI_TRY(put_node(f, index + 1, row, error));
      else if (node->type == HRI_PARQUET_GROUP) HRI_TRY(put_group(f, index, row, error));
      else HRI_TRY(put_leaf(f, node, row, error));
      HRI_TRY(goes_on(f, node, &more, error));
      if (more) hri_text_add_bytes(row, ",", 1);
      if (row->length > ROW_BYTES) return damaged(f, error, "it has more than 64 MiB of text");
    }
  }
  hri_text_add_bytes(row, "]", 1);
  return HR_OK;
}

static hr_status put_node(hri_parquet *f, uint32_t index, hri_text *row, hr_error *error) {
  const hri_parquet_node *node = node_at(f, index);
  if (node->repetition == HRI_PARQUET_REPEATED) return put_list(f, index, false, row, error);
  if (node->repetition == HRI_PARQUET_OPTIONAL &&
      (first_leaf(f, index)->ended || first_leaf(f, index)->definition < node->max_definition)) {
    hri_text_add(row, "null");
    return pass_absent(f, node, error);
  }
  if (node->type != HRI_PARQUET_GROUP) return put_leaf(f, node, row, error);
  return node->is_list ? put_list(f, index + 1, true, row, error) : put_group(f, index, row, error);
}

/* All rows of a group are read: so are its columns. */
static hr_status check_ended(const hri_parquet *f, hr_error *error) {
  for (uint32_t k = 0; k < f->meta.leaf_count; k++)
    if (f->columns[k].name && f->group > 0 && !f->columns[k].ended)
      return damaged(f, error, "a column has more values than there are rows");
  return HR_OK;
}

/* The next row group that has rows; `left` stays 0 behind the last. */
static hr_status next_group(hri_parquet *f, hr_error *error) {
  while (f->left == 0) {
    const hri_parquet_group *group;
    HRI_TRY(check_ended(f, error));
    if (f->group == f->meta.groups.count) return HR_OK;
    group = &f->meta.groups.items[f->group++];
    for (uint32_t k = 0; k < f->meta.leaf_count; k++)
      if (f->columns[k].name)
        HRI_TRY(hri_parquet_column_begin(&f->columns[k], &f->meta.chunks.items[group->first_chunk + k], error));
    f->left = group->row_count;
  }
  return HR_OK;
}

static hr_status put_row(hri_parquet *f, hri_text *row, hr_error *error) {
  bool first = true;
  for (uint32_t k = 0; k < f->meta.leaf_count; k++)
    if (f->columns[k].name && (f->columns[k].ended || f->columns[k].repetition != 0))
      return damaged(f, error, "a column has more or fewer values than there are rows");
  hri_text_add_bytes(row, "{", 1);
  for (uint32_t k = 1; k < f->meta.nodes.count; k = node_at(f, k)->end) {
    if (!f->chosen[k] && f->row > 1) continue;
    if (!first) hri_text_add_bytes(row, ",", 1);
    first = false;
    put_text(row, node_at(f, k)->name, strlen(node_at(f, k)->name));
    hri_text_add_bytes(row, ":", 1);
    if (f->chosen[k]) HRI_TRY(put_node(f, k, row, error));
    else hri_text_add(row, "null");
  }
  hri_text_add_bytes(row, "}\n", 2);
  return row->failed ? hri_fail_memory(error, row->length, "a row of a Parquet file") : HR_OK;
}

hr_status hri_parquet_row(hri_parquet *f, hri_text *row, bool *more, hr_error *error) {
  *more = false;
  if (!f->any_chosen && f->row > 0) return HR_OK; /* one row shows the names; no column says how many there are */
  HRI_TRY(next_group(f, error));
  if (f->left == 0) return HR_OK;
  f->left--;
  f->row++;
  *more = true;
  return put_row(f, row, error);
}
