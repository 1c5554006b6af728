/* Reading weights. The index is scanned without a tree, as hostile as a header may be; it stays in memory, because
 * names point into it, until all its entries are found in the shards, whose own names then serve. */
#include "formats/weights.h"

#include <string.h>

#include "base/file.h"
#include "base/json_scan.h"
#include "base/text.h"
#include "formats/order.h"

typedef struct entry {
  uint32_t file, tensor; /* indices of the file, and of the tensor in it */
} entry;

struct hri_weights {
  HRI_ARRAY(hri_safetensors *) files;
  HRI_ARRAY(entry) entries; /* in rising order of names */
  uint64_t data_bytes;
  char *index; /* its path; NULL: a single file */
};

typedef struct mapping {
  char *tensor, *file;
  uint32_t file_index;
} mapping;

/* An index file as read. */
typedef struct map {
  const char *path;
  char *bytes;
  HRI_ARRAY(mapping) items;
  uint32_t *by_name;
} map;

typedef unsigned long long ull; /* for printing */

enum { INDEX_LIMIT = 100000000 };

static const hri_safetensor *tensor_of(const hri_weights *weights, entry at) {
  return hri_safetensors_get(weights->files.items[at.file], at.tensor);
}

/* ---- The index file ---- */

/* The name of a file beside the index: no way out of the directory, on any system. */
static bool plain_name(const char *name) {
  return name[0] && strlen(name) < 256 && !strpbrk(name, "/\\:") && !strstr(name, "..") && strcmp(name, ".") != 0;
}

static hr_status read_weight_map(hri_json_scan *scan, map *index, hr_error *error) {
  HRI_TRY(hri_json_scan_object(scan, error));
  for (;;) {
    mapping item = {0};
    HRI_TRY(hri_json_scan_key(scan, &item.tensor, error));
    if (!item.tensor) return HR_OK;
    HRI_TRY(hri_json_scan_string(scan, &item.file, error));
    if (!plain_name(item.file))
      return hri_json_scan_fail(
          scan, error, "tensor '%.100s' is mapped to '%.100s', which is not the plain name of a file beside the index",
          item.tensor, item.file);
    if (!hri_array_push(&index->items, item))
      return hri_fail_memory(error, (index->items.count + 1) * sizeof item, index->path);
  }
}

static const char *mapped_tensor(const void *items, uint32_t index) { return ((const mapping *)items)[index].tensor; }

static int compare_mapped_files(const void *items, uint32_t a, uint32_t b) {
  const mapping *all = items;
  return strcmp(all[a].file, all[b].file);
}

static hr_status check_index(map *index, bool map_seen, hr_error *error) {
  uint32_t twice;
  if (!map_seen)
    return hri_hint(error, hri_fail(error, HR_ERROR_INPUT, "%s: the field 'weight_map' is missing", index->path),
                    "name a directory with weights, a .safetensors file, or its index");
  HRI_TRY(
      hri_order_names(index->items.items, (uint32_t)index->items.count, mapped_tensor, &index->by_name, &twice, error));
  if (twice == HRI_ORDER_NONE) return HR_OK;
  return hri_hint(error,
                  hri_fail(error, HR_ERROR_INPUT, "%s: weight_map names the tensor '%.200s' twice", index->path,
                           index->items.items[twice].tensor),
                  "remove one of the two entries");
}

static hr_status read_index(map *index, hr_error *error) {
  hri_json_scan scan;
  uint64_t count;
  bool map_seen = false, metadata_seen = false;
  HRI_TRY(hri_file_read(index->path, INDEX_LIMIT, &index->bytes, &count, error));
  scan = hri_json_scan_init(index->bytes, count, index->path, "");
  HRI_TRY(hri_json_scan_object(&scan, error));
  for (;;) {
    char *key;
    HRI_TRY(hri_json_scan_key(&scan, &key, error));
    if (!key) break;
    if (strcmp(key, "weight_map") == 0) {
      if (map_seen) return hri_json_scan_fail(&scan, error, "the field 'weight_map' stands there twice");
      map_seen = true;
      HRI_TRY(read_weight_map(&scan, index, error));
    } else if (strcmp(key, "metadata") == 0) {
      if (metadata_seen) return hri_json_scan_fail(&scan, error, "the field 'metadata' stands there twice");
      metadata_seen = true;
      HRI_TRY(hri_json_scan_skip(&scan, error)); /* total_size is what a writer thought; headers say what is there */
    } else {
      HRI_TRY(hri_json_scan_skip(&scan, error));
    }
  }
  HRI_TRY(hri_json_scan_end(&scan, error));
  return check_index(index, map_seen, error);
}

static void deinit_index(map *index) {
  hri_array_free(&index->items);
  hri_free(index->by_name);
  hri_free(index->bytes);
}

/* ---- Files ---- */

static hr_status open_file(hri_weights *weights, const char *path, hr_error *error) {
  hri_safetensors *file;
  HRI_TRY(hri_safetensors_open(path, &file, error));
  if (!hri_array_push(&weights->files, file)) {
    hri_safetensors_close(file);
    return hri_fail_memory(error, sizeof file, path);
  }
  weights->data_bytes += hri_safetensors_data_bytes(file); /* each below 2^63 bytes on one file system: no overflow */
  return HR_OK;
}

static hr_status open_shard(hri_weights *weights, const map *index, const char *name, hr_error *error) {
  const char *slash = strrchr(index->path, '/');
  size_t length = slash ? (size_t)(slash - index->path) + 1 : 0;
  hri_text path = {0};
  hr_status status;
  hri_text_add_bytes(&path, index->path, length);
  hri_text_add_bytes(&path, name, strlen(name));
  if (path.failed) {
    status = hri_fail_memory(error, path.length, index->path);
  } else if (!hri_path_exists(path.chars)) {
    status = hri_fail(error, HR_ERROR_INPUT, "%s: weight_map names the file %s, which is missing", index->path, name);
    status = hri_hint(error, status, "fetch the missing file into the same directory");
  } else {
    status = open_file(weights, path.chars, error);
  }
  hri_text_deinit(&path);
  return status;
}

/* Opens each file of the map once, in order of names, and tells the entries which one is theirs. */
static hr_status open_shards(hri_weights *weights, map *index, hr_error *error) {
  uint32_t i, *order, count = (uint32_t)index->items.count;
  hr_status status = HR_OK;
  HRI_TRY(hri_order_make(index->items.items, count, compare_mapped_files, &order, error));
  for (i = 0; i < count && status == HR_OK; i++) {
    mapping *item = &index->items.items[order[i]];
    if (i == 0 || compare_mapped_files(index->items.items, order[i - 1], order[i]) != 0)
      status = open_shard(weights, index, item->file, error);
    item->file_index = (uint32_t)weights->files.count - 1;
  }
  hri_free(order);
  return status;
}

static hr_status refuse_revision(hr_error *error, hr_status code) {
  return hri_hint(error, code, "fetch index and shards anew, all of the same revision");
}

/* All mapped tensors were found, but the files hold more: names one that the map does not give to its file. */
static hr_status refuse_extra(const hri_weights *weights, const map *index, hr_error *error) {
  uint32_t file, tensor;
  for (file = 0; file < weights->files.count; file++) {
    const hri_safetensors *shard = weights->files.items[file];
    for (tensor = 0; tensor < hri_safetensors_count(shard); tensor++) {
      const char *name = hri_safetensors_get(shard, tensor)->name;
      uint32_t at = hri_weights_find(weights, name);
      if (at != HRI_SAFETENSORS_NONE && weights->entries.items[at].file == file) continue;
      return refuse_revision(error, hri_fail(error, HR_ERROR_INPUT,
                                             "%s holds the tensor '%.200s', which the weight_map of %s %s",
                                             hri_safetensors_path(shard), name, index->path,
                                             at == HRI_SAFETENSORS_NONE ? "does not name" : "places in another file"));
    }
  }
  return hri_fail(error, HR_ERROR_INTERNAL, "%s: the count of tensors does not add up", index->path);
}

static hr_status join(hri_weights *weights, const map *index, hr_error *error) {
  uint64_t held = 0;
  uint32_t i;
  if (!hri_array_reserve(&weights->entries, index->items.count))
    return hri_fail_memory(error, index->items.count * sizeof(entry), index->path);
  for (i = 0; i < index->items.count; i++) {
    const mapping *item = &index->items.items[index->by_name[i]];
    entry at = {item->file_index, hri_safetensors_find(weights->files.items[item->file_index], item->tensor)};
    if (at.tensor == HRI_SAFETENSORS_NONE)
      return refuse_revision(error, hri_fail(error, HR_ERROR_INPUT,
                                             "%s: weight_map places the tensor '%.200s' in %s, which does not hold it",
                                             index->path, item->tensor, item->file));
    weights->entries.items[weights->entries.count++] = at;
  }
  for (i = 0; i < weights->files.count; i++) held += hri_safetensors_count(weights->files.items[i]);
  if (held != weights->entries.count) return refuse_extra(weights, index, error);
  return HR_OK;
}

static hr_status open_sharded(hri_weights *weights, const char *path, hr_error *error) {
  map index = {.path = path};
  hr_status status = read_index(&index, error);
  weights->index = hri_strdup(path);
  if (status == HR_OK && !weights->index) status = hri_fail_memory(error, strlen(path) + 1, path);
  if (status == HR_OK) status = open_shards(weights, &index, error);
  if (status == HR_OK) status = join(weights, &index, error);
  deinit_index(&index);
  return status;
}

static int compare_entries(const void *items, uint32_t a, uint32_t b) {
  const hri_safetensors *file = items;
  return strcmp(hri_safetensors_get(file, a)->name, hri_safetensors_get(file, b)->name);
}

static hr_status open_single(hri_weights *weights, const char *path, hr_error *error) {
  uint32_t i, count, *order;
  HRI_TRY(open_file(weights, path, error));
  count = hri_safetensors_count(weights->files.items[0]);
  if (!hri_array_reserve(&weights->entries, count)) return hri_fail_memory(error, count * sizeof(entry), path);
  HRI_TRY(hri_order_make(weights->files.items[0], count, compare_entries, &order, error));
  for (i = 0; i < count; i++) {
    entry at = {0, order[i]};
    weights->entries.items[weights->entries.count++] = at;
  }
  hri_free(order);
  return HR_OK;
}

/* A directory with weights in another format deserves a better word than "not found". */
static hr_status refuse_directory(const char *directory, hr_error *error) {
  static const char *const others[] = {"pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5",
                                       "flax_model.msgpack"};
  hr_status code =
      hri_fail(error, HR_ERROR_INPUT, "%s has neither " HRI_WEIGHTS_FILE " nor " HRI_WEIGHTS_INDEX, directory);
  size_t i;
  for (i = 0; i < sizeof others / sizeof *others; i++) {
    char *path = hri_path_join(directory, others[i]);
    bool there = path && hri_path_exists(path);
    hri_free(path);
    if (there) return hri_hint(error, code, "it has %s: save the model as safetensors first", others[i]);
  }
  return hri_hint(error, code, "name the directory that holds the weights");
}

static bool ends_with(const char *text, const char *end) {
  size_t a = strlen(text), b = strlen(end);
  return a >= b && strcmp(text + a - b, end) == 0;
}

static hr_status open_any(hri_weights *weights, const char *path, hr_error *error) {
  char *file = NULL, *index = NULL;
  hr_status status;
  if (!hri_path_is_dir(path))
    return ends_with(path, ".json") ? open_sharded(weights, path, error) : open_single(weights, path, error);
  file = hri_path_join(path, HRI_WEIGHTS_FILE);
  index = hri_path_join(path, HRI_WEIGHTS_INDEX);
  if (!file || !index) status = hri_fail_memory(error, strlen(path) + sizeof HRI_WEIGHTS_INDEX, path);
  else if (hri_path_exists(file)) status = open_single(weights, file, error);
  else if (hri_path_exists(index)) status = open_sharded(weights, index, error);
  else status = refuse_directory(path, error);
  hri_free(file);
  hri_free(index);
  return status;
}

/* ---- Interface ---- */

hr_status hri_weights_open(const char *path, hri_weights **opened, hr_error *error) {
  hri_weights *weights = hri_alloc_zero(1, sizeof *weights);
  hr_status status;
  if (!weights) return hri_fail_memory(error, sizeof *weights, path);
  status = open_any(weights, path, error);
  if (status == HR_OK) *opened = weights;
  else hri_weights_close(weights);
  return status;
}

void hri_weights_close(hri_weights *weights) {
  size_t i;
  if (!weights) return;
  for (i = 0; i < weights->files.count; i++) hri_safetensors_close(weights->files.items[i]);
  hri_array_free(&weights->files);
  hri_array_free(&weights->entries);
  hri_free(weights->index);
  hri_free(weights);
}

uint32_t hri_weights_count(const hri_weights *weights) { return (uint32_t)weights->entries.count; }

const hri_safetensor *hri_weights_get(const hri_weights *weights, uint32_t index) {
  return tensor_of(weights, weights->entries.items[index]);
}

static const char *weight_name(const void *weights, uint32_t index) { return hri_weights_get(weights, index)->name; }

uint32_t hri_weights_find(const hri_weights *weights, const char *name) {
  return hri_order_find(weights, hri_weights_count(weights), weight_name, NULL, name);
}

const char *hri_weights_path(const hri_weights *weights, uint32_t index) {
  return hri_safetensors_path(weights->files.items[weights->entries.items[index].file]);
}

uint64_t hri_weights_data_bytes(const hri_weights *weights) { return weights->data_bytes; }
uint32_t hri_weights_file_count(const hri_weights *weights) { return (uint32_t)weights->files.count; }
uint32_t hri_weights_file_of(const hri_weights *weights, uint32_t index) { return weights->entries.items[index].file; }
const hri_safetensors *hri_weights_file(const hri_weights *weights, uint32_t file) {
  return weights->files.items[file];
}

hr_status hri_weights_read(const hri_weights *weights, uint32_t index, uint64_t offset, uint64_t bytes, void *to,
                           hr_error *error) {
  entry at;
  if (index >= weights->entries.count)
    return hri_fail(error, HR_ERROR_INTERNAL, "there is no weight of index %u", index);
  at = weights->entries.items[index];
  return hri_safetensors_read(weights->files.items[at.file], at.tensor, offset, bytes, to, error);
}

hr_status hri_weights_digest_begin(hri_weights *weights, hr_error *error) {
  for (size_t k = 0; k < weights->files.count; k++)
    HRI_TRY(hri_safetensors_digest_begin(weights->files.items[k], error));
  return HR_OK;
}

hr_status hri_weights_digest_end(hri_weights *weights, hri_file_list *files, hr_error *error) {
  for (size_t k = 0; k < weights->files.count; k++)
    HRI_TRY(hri_safetensors_digest_end(weights->files.items[k], files, error));
  return weights->index ? hri_file_list_read(files, weights->index, error) : HR_OK;
}
