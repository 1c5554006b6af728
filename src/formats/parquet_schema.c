/* Parquet's footer: the tree of the schema and where each column's chunks are. What is kept is checked here: offsets and
 * lengths lie in the file, levels fit their bytes, each row group has a chunk for each leaf. */
#include <string.h>

#include "base/file.h"
#include "formats/parquet_inside.h"
#include "formats/thrift.h"

enum { TAIL_BYTES = 8, FOOTER_BYTES = 256 << 20, DEPTH = 16 };

hr_status hri_parquet_damaged(const hri_parquet_file *file, hr_error *error, const char *what) {
  hr_status code = hri_fail(error, HR_ERROR_INPUT, "%s is a damaged Parquet file: %s", file->path, what);
  return hri_hint(error, code, "fetch or write it anew");
}

/* ---- one element ---- */

typedef struct element {
  hri_thrift_bytes name;
  int64_t type, repetition, children, converted;
  int32_t logical; /* which kind; 0: none */
  bool logical_unsigned;
} element;

/* LogicalType is a union: a struct with one field, whose number says which. */
static void read_logical(hri_thrift *t, hri_thrift_type type, element *e) {
  int32_t id = 0;
  if (!hri_thrift_struct(t, type)) return;
  while (hri_thrift_field(t, &id, &type)) {
    int32_t inner = 0;
    e->logical = id;
    if (id != 10) { /* INTEGER has a sign, in field 2 */
      hri_thrift_skip(t, type);
      continue;
    }
    if (!hri_thrift_struct(t, type)) return;
    while (hri_thrift_field(t, &inner, &type)) {
      if (inner == 2) e->logical_unsigned = !hri_thrift_flag(t, type);
      else hri_thrift_skip(t, type);
    }
  }
}

static element read_element(hri_thrift *t) {
  element e = {.type = -1, .converted = -1};
  hri_thrift_type type;
  int32_t id = 0;
  while (hri_thrift_field(t, &id, &type)) {
    switch (id) {
    case 1: e.type = hri_thrift_integer(t, type); break;
    case 3: e.repetition = hri_thrift_integer(t, type); break;
    case 4: e.name = hri_thrift_binary(t, type); break;
    case 5: e.children = hri_thrift_integer(t, type); break;
    case 6: e.converted = hri_thrift_integer(t, type); break;
    case 10: read_logical(t, type, &e); break;
    default: hri_thrift_skip(t, type);
    }
  }
  return e;
}

enum { CONVERTED_MAP = 1, CONVERTED_KEY_VALUE = 2, CONVERTED_LIST = 3, LOGICAL_MAP = 2, LOGICAL_LIST = 3 };

/* By converted type and kind of logical type: what a leaf is that no text or number of JSON stands for. */
static const char *unread_leaf(const element *e) {
  static const char *const logical[] = {[5] = "a decimal",
                                        [6] = "a date",
                                        [7] = "a time",
                                        [8] = "a timestamp",
                                        [13] = "BSON",
                                        [14] = "a UUID",
                                        [15] = "a half-precision number"};
  static const char *const converted[] =
      {[5] = "a decimal",   [6] = "a date",       [7] = "a time", [8] = "a time",
       [9] = "a timestamp", [10] = "a timestamp", [20] = "BSON",  [21] = "an interval"};
  if (e->type == HRI_PARQUET_INT96) return "an INT96 timestamp";
  if (e->logical > 0 && (size_t)e->logical < sizeof logical / sizeof *logical && logical[e->logical])
    return logical[e->logical];
  if (e->converted >= 0 && (size_t)e->converted < sizeof converted / sizeof *converted && converted[e->converted])
    return converted[e->converted];
  return e->type == HRI_PARQUET_FIXED ? "bytes of a fixed length" : NULL;
}

static const char *unread_group(const element *e) {
  bool is_map = e->logical == LOGICAL_MAP || e->converted == CONVERTED_MAP || e->converted == CONVERTED_KEY_VALUE;
  return is_map ? "a map" : NULL;
}

/* ---- the tree ---- */

typedef struct schema {
  const hri_parquet_file *file;
  hri_parquet_meta *meta;
  hri_thrift *t;
  uint32_t left; /* elements of the list */
  hr_error *error;
} schema;

static hr_status add_node(schema *s, const element *e, const hri_parquet_node *parent) {
  hri_parquet_node node = {.type = e->children > 0 || e->type < 0 ? HRI_PARQUET_GROUP : (uint8_t)e->type,
                           .repetition = parent ? (uint8_t)e->repetition : HRI_PARQUET_REQUIRED,
                           .is_list = e->logical == LOGICAL_LIST || e->converted == CONVERTED_LIST,
                           .first_leaf = s->meta->leaf_count};
  const char *zero = memchr(e->name.at ? (const char *)e->name.at : "", 0, e->name.count);
  if (e->type > HRI_PARQUET_FIXED || e->repetition < 0 || e->repetition > HRI_PARQUET_REPEATED || e->children < 0 ||
      zero)
    return hri_parquet_damaged(s->file, s->error, "an element of its schema is none");
  if (parent) {
    node.max_definition = (uint8_t)(parent->max_definition + (node.repetition != HRI_PARQUET_REQUIRED));
    node.max_repetition = (uint8_t)(parent->max_repetition + (node.repetition == HRI_PARQUET_REPEATED));
  }
  node.unread = node.type == HRI_PARQUET_GROUP ? unread_group(e) : unread_leaf(e);
  node.is_unsigned = e->logical_unsigned || (e->converted >= 11 && e->converted <= 14);
  node.name = hri_alloc((uint64_t)e->name.count + 1);
  if (!node.name) return hri_fail_memory(s->error, e->name.count, "the schema of a Parquet file");
  if (e->name.at) memcpy(node.name, e->name.at, e->name.count);
  node.name[e->name.count] = 0;
  if (hri_array_push(&s->meta->nodes, node)) return HR_OK;
  hri_free(node.name);
  return hri_fail_memory(s->error, sizeof node, "the schema of a Parquet file");
}

/* An element and those below it, which stand behind it in the list. */
static hr_status read_tree(schema *s, const hri_parquet_node *parent, int depth) {
  hri_parquet_node own = {0};
  element e;
  size_t index = s->meta->nodes.count;
  if (s->left == 0 || depth >= DEPTH)
    return hri_parquet_damaged(s->file, s->error, "its schema is no tree, or too deep");
  s->left--;
  e = read_element(s->t);
  if (s->t->failed) return hri_parquet_damaged(s->file, s->error, "its schema cannot be read");
  HRI_TRY(add_node(s, &e, parent));
  own = s->meta->nodes.items[index]; /* the array may move */
  if (own.type != HRI_PARQUET_GROUP) s->meta->leaf_count++;
  else if (e.children == 0) return hri_parquet_damaged(s->file, s->error, "a group of its schema is empty");
  for (int64_t k = 0; k < e.children; k++) HRI_TRY(read_tree(s, &own, depth + 1));
  s->meta->nodes.items[index].end = (uint32_t)s->meta->nodes.count;
  s->meta->nodes.items[index].end_leaf = s->meta->leaf_count;
  return HR_OK;
}

static hr_status read_schema(const hri_parquet_file *file, hri_parquet_meta *meta, hri_thrift *t, hri_thrift_type type,
                             hr_error *error) {
  schema s = {.file = file, .meta = meta, .t = t, .error = error};
  if (meta->nodes.count > 0) return hri_parquet_damaged(file, error, "it has two schemas");
  s.left = hri_thrift_list(t, type, HRI_THRIFT_STRUCT);
  HRI_TRY(read_tree(&s, NULL, 0));
  return s.left == 0 ? HR_OK : hri_parquet_damaged(file, error, "its schema has elements beside the tree");
}

/* ---- row groups ---- */

typedef struct raw_chunk {
  int64_t codec, values, bytes, data, dictionary;
  bool elsewhere, encrypted, has_meta;
} raw_chunk;

static void read_column_meta(hri_thrift *t, hri_thrift_type type, raw_chunk *c) {
  int32_t id = 0;
  if (!hri_thrift_struct(t, type)) return;
  c->has_meta = true;
  while (hri_thrift_field(t, &id, &type)) {
    switch (id) {
    case 4: c->codec = hri_thrift_integer(t, type); break;
    case 5: c->values = hri_thrift_integer(t, type); break;
    case 7: c->bytes = hri_thrift_integer(t, type); break;
    case 9: c->data = hri_thrift_integer(t, type); break;
    case 11: c->dictionary = hri_thrift_integer(t, type); break;
    default: hri_thrift_skip(t, type);
    }
  }
}

static raw_chunk read_raw_chunk(hri_thrift *t) {
  raw_chunk c = {0};
  hri_thrift_type type;
  int32_t id = 0;
  while (hri_thrift_field(t, &id, &type)) {
    if (id == 3) {
      read_column_meta(t, type, &c);
      continue;
    }
    c.elsewhere = c.elsewhere || id == 1;
    c.encrypted = c.encrypted || id == 8 || id == 9;
    hri_thrift_skip(t, type);
  }
  return c;
}

/* Some writers set the dictionary's offset to 0 where there is none. */
static hr_status take_chunk(const hri_parquet_file *file, const raw_chunk *raw, hri_parquet_meta *meta,
                            hr_error *error) {
  int64_t begin = raw->dictionary > 0 && raw->dictionary < raw->data ? raw->dictionary : raw->data;
  hri_parquet_chunk chunk = {.begin = (uint64_t)begin,
                             .value_count = (uint64_t)raw->values,
                             .codec = (int32_t)raw->codec};
  hr_status code;
  if (raw->encrypted) {
    code = hri_fail(error, HR_ERROR_INPUT, "%s is an encrypted Parquet file", file->path);
    return hri_hint(error, code, "write it without encryption");
  }
  if (raw->elsewhere) {
    code = hri_fail(error, HR_ERROR_INPUT, "%s: the columns of this Parquet file are in other files", file->path);
    return hri_hint(error, code, "name those files");
  }
  if (!raw->has_meta || begin < 0 || raw->bytes < 0 || raw->values < 0 || (uint64_t)begin > file->bytes ||
      (uint64_t)raw->bytes > file->bytes - (uint64_t)begin)
    return hri_parquet_damaged(file, error, "a column is not where its footer says");
  chunk.end = (uint64_t)begin + (uint64_t)raw->bytes;
  return hri_array_push(&meta->chunks, chunk) ? HR_OK
                                              : hri_fail_memory(error, sizeof chunk, "the columns of a Parquet file");
}

static hr_status read_group(const hri_parquet_file *file, hri_parquet_meta *meta, hri_thrift *t, hr_error *error) {
  hri_parquet_group group = {.first_chunk = meta->chunks.count};
  hri_thrift_type type;
  int32_t id = 0;
  while (hri_thrift_field(t, &id, &type)) {
    if (id == 1) {
      uint32_t count = hri_thrift_list(t, type, HRI_THRIFT_STRUCT);
      for (uint32_t k = 0; k < count && !t->failed; k++) {
        raw_chunk raw = read_raw_chunk(t);
        if (!t->failed) HRI_TRY(take_chunk(file, &raw, meta, error));
      }
    } else if (id == 3) {
      int64_t rows = hri_thrift_integer(t, type);
      if (rows < 0) return hri_parquet_damaged(file, error, "a row group has a negative number of rows");
      group.row_count = (uint64_t)rows;
    } else {
      hri_thrift_skip(t, type);
    }
  }
  if (t->failed) return hri_parquet_damaged(file, error, "a row group cannot be read");
  return hri_array_push(&meta->groups, group)
             ? HR_OK
             : hri_fail_memory(error, sizeof group, "the row groups of a Parquet file");
}

/* Asked when all is read: fields may stand in any order, the row groups before the schema too. */
static hr_status check_groups(const hri_parquet_file *file, const hri_parquet_meta *meta, hr_error *error) {
  for (size_t k = 0; k < meta->groups.count; k++) {
    size_t end = k + 1 < meta->groups.count ? meta->groups.items[k + 1].first_chunk : meta->chunks.count;
    if (end - meta->groups.items[k].first_chunk != meta->leaf_count)
      return hri_parquet_damaged(file, error, "a row group has other columns than the schema");
  }
  return HR_OK;
}

/* ---- the footer ---- */

static hr_status read_footer(const hri_parquet_file *file, const uint8_t *bytes, uint64_t count, hri_parquet_meta *meta,
                             hr_error *error) {
  hri_thrift t = {.next = bytes, .end = bytes + count};
  hri_thrift_type type;
  int32_t id = 0;
  while (hri_thrift_field(&t, &id, &type)) {
    if (id == 2) {
      HRI_TRY(read_schema(file, meta, &t, type, error));
    } else if (id == 4) {
      uint32_t groups = hri_thrift_list(&t, type, HRI_THRIFT_STRUCT);
      for (uint32_t k = 0; k < groups && !t.failed; k++) HRI_TRY(read_group(file, meta, &t, error));
    } else {
      hri_thrift_skip(&t, type);
    }
  }
  if (t.failed || meta->nodes.count == 0) return hri_parquet_damaged(file, error, "its footer cannot be read");
  return check_groups(file, meta, error);
}

hr_status hri_parquet_meta_read(const hri_parquet_file *file, hri_parquet_meta *meta, hr_error *error) {
  uint8_t tail[TAIL_BYTES];
  uint64_t count;
  uint8_t *footer;
  hr_status status;
  if (file->bytes < TAIL_BYTES + 4) return hri_parquet_damaged(file, error, "it has no footer");
  HRI_TRY(hri_file_pread(file->fd, file->path, tail, TAIL_BYTES, file->bytes - TAIL_BYTES, error));
  if (memcmp(tail + 4, "PAR1", 4) != 0) return hri_parquet_damaged(file, error, "it has no footer (is it whole?)");
  count = tail[0] | (uint32_t)tail[1] << 8 | (uint32_t)tail[2] << 16 | (uint32_t)tail[3] << 24;
  if (count > file->bytes - TAIL_BYTES - 4 || count > FOOTER_BYTES)
    return hri_parquet_damaged(file, error, "its footer is longer than the file, or than any is");
  footer = hri_alloc(count);
  if (!footer) return hri_fail_memory(error, count, "the footer of a Parquet file");
  status = hri_file_pread(file->fd, file->path, footer, count, file->bytes - TAIL_BYTES - count, error);
  if (status == HR_OK) status = read_footer(file, footer, count, meta, error);
  hri_free(footer);
  return status;
}

void hri_parquet_meta_deinit(hri_parquet_meta *meta) {
  for (size_t k = 0; k < meta->nodes.count; k++) hri_free(meta->nodes.items[k].name);
  hri_array_free(&meta->nodes);
  hri_array_free(&meta->groups);
  hri_array_free(&meta->chunks);
}
