/* A recorded case of tests/parity/data, and the distances that its tolerances are stated in (tests/parity/README.md).
 *
 * Everything is read with the library's own readers into doubles. A case is opened per test and closed after it; what
 * it hands out it frees itself. Failures are cmocka failures. Include after cmocka.h. */
#ifndef HRI_TESTS_PARITY_CASE_H
#define HRI_TESTS_PARITY_CASE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <headroom/model.h>

#include "base/json.h"
#include "formats/weights.h"
#include "model/params.h"

enum { PARITY_FACTOR = 4 };

static const char *const parity_cases[] = {"gpt2-a",      "llama-a", "llama-b",    "llama-c",       "llama-packed",
                                           "gpt2-packed", "mistral", "qwen2-yarn", "qwen3-dynamic", "phi3-short",
                                           "phi3-long",   "gemma2",  "gemma3",     "gemma",         "llama-gelu",
                                           "gpt2-relu",   "smollm3", "granite",    "olmo2",         "stablelm",
                                           "phi"};
enum { PARITY_CASES = sizeof parity_cases / sizeof *parity_cases };

typedef struct parity_block {
  struct parity_block *next;
  _Alignas(16) unsigned char bytes[];
} parity_block;

typedef struct parity_case {
  const char *name;
  char directory[512], model_directory[560], jsonl[560];
  hri_json root;
  char expected_json[560];
  hri_safetensors *expected, *inputs;
  hri_weights *initial;
  hr_model model;
  uint32_t rows, sequence, batch;
  bool packed;
  struct parity_block *blocks; /* what was handed out */
} parity_case;

/* Gives back what was handed out since `mark` (a value of c->blocks). */
static inline void parity_release(parity_case *c, parity_block *mark) {
  while (c->blocks != mark) {
    parity_block *next = c->blocks->next;
    free(c->blocks);
    c->blocks = next;
  }
}

/* Turns a status into a test failure that shows the library's own words. */
#define HOLDS(call)                                                                                                    \
  do {                                                                                                                 \
    hr_error holds_error;                                                                                              \
    memset(&holds_error, 0, sizeof holds_error);                                                                       \
    hr_error *error = &holds_error;                                                                                    \
    hr_status holds_status = (call);                                                                                   \
    if (holds_status != HR_OK) fail_msg("%s\n  %s (%s)", #call, holds_error.message, holds_error.hint);                \
  } while (0)

static inline void *parity_buffer(parity_case *c, size_t bytes) {
  parity_block *block = calloc(1, sizeof *block + bytes);
  assert_non_null(block);
  block->next = c->blocks;
  c->blocks = block;
  return block->bytes;
}

/* A case of `folder`, whose model and rows are those of data/`base`. */
static inline parity_case *parity_open_in(const char *folder, const char *name, const char *base) {
  parity_case *c = calloc(1, sizeof *c);
  char path[600];
  uint64_t value;
  assert_non_null(c);
  c->name = name;
  (void)snprintf(c->directory, sizeof c->directory, "%s/parity/%s/%s", HR_TEST_DATA, folder, name);
  (void)snprintf(c->model_directory, sizeof c->model_directory, "%s/parity/data/%s/model", HR_TEST_DATA, base);
  (void)snprintf(c->jsonl, sizeof c->jsonl, "%s/parity/data/%s/inputs.jsonl", HR_TEST_DATA, base);
  (void)snprintf(c->expected_json, sizeof c->expected_json, "%s/expected.json", c->directory);
  HOLDS(hri_json_read(c->expected_json, 1u << 24, &c->root, error));
  HOLDS(hri_json_get_u64(&c->root, "schema_version", 1, 1, &value, error));
  HOLDS(hri_json_get_u64(&c->root, "rows", 1, 1000, &value, error));
  c->rows = (uint32_t)value;
  HOLDS(hri_json_get_u64(&c->root, "seq", 1, 1000, &value, error));
  c->sequence = (uint32_t)value;
  HOLDS(hri_json_get_u64(&c->root, "batch", 1, 1000, &value, error));
  c->batch = (uint32_t)value;
  HOLDS(hri_json_get_bool(&c->root, "packed", &c->packed, error));
  (void)snprintf(path, sizeof path, "%s/expected.safetensors", c->directory);
  HOLDS(hri_safetensors_open(path, &c->expected, error));
  (void)snprintf(path, sizeof path, "%s/parity/data/%s/inputs.safetensors", HR_TEST_DATA, base);
  HOLDS(hri_safetensors_open(path, &c->inputs, error));
  HOLDS(hri_weights_open(c->model_directory, &c->initial, error));
  HOLDS(hr_model_open(c->model_directory, &c->model, error));
  return c;
}

static inline parity_case *parity_open(const char *name) { return parity_open_in("data", name, name); }

static inline void parity_close(parity_case *c) {
  hri_json_deinit(&c->root);
  hri_safetensors_close(c->expected);
  hri_safetensors_close(c->inputs);
  hri_weights_close(c->initial);
  parity_release(c, NULL);
  free(c);
}

/* ---- JSON by a path of keys, "runs/adamw/steps" (names of tensors hold dots, never slashes) ---- */

static inline hri_json parity_at(const parity_case *c, const char *path) {
  hri_json at = c->root;
  char key[160];
  while (*path) {
    size_t length = strcspn(path, "/");
    assert_true(length < sizeof key);
    memcpy(key, path, length);
    key[length] = 0;
    at = hri_json_member(&at, key);
    path += length + (path[length] == '/');
  }
  return at;
}

/* A number, also an element of an array: "runs/adamw/losses" with index; -1 for no array. */
static inline double parity_number(const parity_case *c, const char *path, int64_t index) {
  hri_json at = parity_at(c, path);
  if (index >= 0) at = hri_json_item(&at, (uint64_t)index);
  if (!at.value || !json_is_number(at.value)) fail_msg("%s: expected.json has no number %s", c->name, path);
  return json_number_value(at.value);
}

/* ---- tensors ---- */

static inline double *parity_doubles(parity_case *c, hri_file_dtype dtype, const void *raw, uint64_t count) {
  double *to = parity_buffer(c, count * sizeof *to);
  if (dtype == HRI_FILE_F64) {
    memcpy(to, raw, count * sizeof *to);
  } else {
    float *narrow = parity_buffer(c, count * sizeof *narrow);
    assert_true(hri_file_to_f32(dtype, narrow, raw, count));
    for (uint64_t i = 0; i < count; i++) to[i] = (double)narrow[i];
  }
  return to;
}

/* A tensor of expected.safetensors. */
static inline double *parity_expected(parity_case *c, const char *name, uint64_t *count) {
  uint32_t index = hri_safetensors_find(c->expected, name);
  const hri_safetensor *t;
  void *raw;
  if (index == HRI_SAFETENSORS_NONE) fail_msg("%s: expected.safetensors has no %s", c->name, name);
  t = hri_safetensors_get(c->expected, index);
  assert_true(hri_file_elements(t->rank, t->shape, count));
  raw = parity_buffer(c, t->end - t->begin);
  HOLDS(hri_safetensors_read(c->expected, index, 0, t->end - t->begin, raw, error));
  return parity_doubles(c, t->dtype, raw, *count);
}

/* A tensor of a weights directory, by the name that transformers gives it, whatever the file says. */
static inline double *parity_weight(parity_case *c, const hri_weights *weights, const char *name, uint64_t *count) {
  char spelling[128];
  uint32_t index = HRI_SAFETENSORS_NONE;
  const hri_safetensor *t;
  void *raw;
  for (uint32_t v = 0; index == HRI_SAFETENSORS_NONE && hri_param_variant(&c->model, name, v, spelling); v++)
    index = hri_weights_find(weights, spelling);
  if (index == HRI_SAFETENSORS_NONE) fail_msg("%s: there is no tensor %s", c->name, name);
  t = hri_weights_get(weights, index);
  assert_true(hri_file_elements(t->rank, t->shape, count));
  raw = parity_buffer(c, t->end - t->begin);
  HOLDS(hri_weights_read(weights, index, 0, t->end - t->begin, raw, error));
  return parity_doubles(c, t->dtype, raw, *count);
}

/* An I32 tensor [rows, seq] of inputs.safetensors. */
static inline int32_t *parity_input(parity_case *c, const char *name) {
  uint32_t index = hri_safetensors_find(c->inputs, name);
  uint64_t bytes = (uint64_t)c->rows * c->sequence * 4;
  int32_t *to = parity_buffer(c, bytes);
  if (index == HRI_SAFETENSORS_NONE) fail_msg("%s: inputs.safetensors has no %s", c->name, name);
  assert_int_equal(hri_safetensors_get(c->inputs, index)->dtype, HRI_FILE_I32);
  HOLDS(hri_safetensors_read(c->inputs, index, 0, bytes, to, error));
  return to;
}

/* Part `part` of one of our parameters, laid out as its Hugging Face tensor. `ours` is [rows, columns] of the whole. */
static inline double *parity_part(parity_case *c, const hri_param_spec *spec, const hri_param_part *part,
                                  const float *ours, uint64_t *count) {
  uint64_t columns = spec->rank == 2 ? spec->dims[1] : 1;
  double *to = parity_buffer(c, part->rows * columns * sizeof *to);
  *count = part->rows * columns;
  for (uint64_t r = 0; r < part->rows; r++)
    for (uint64_t k = 0; k < columns; k++)
      to[part->transposed ? k * part->rows + r : r * columns + k] = (double)ours[(part->row + r) * columns + k];
  return to;
}

/* ---- distances ---- */

/* The largest share of its tolerance that anything used; printed, so that one sees how near the limit a build is. */
typedef struct parity_margin {
  double share;
  char what[320];
  uint32_t compared;
} parity_margin;

/* error <= 4 * fp32_error, or the test fails. */
static inline void parity_within(const parity_case *c, parity_margin *margin, const char *run, const char *what,
                                 double error, double fp32_error) {
  double limit = PARITY_FACTOR * fp32_error;
  margin->compared++;
  if (!(error <= limit))
    fail_msg("%s, %s, %s: error %.4g, allowed %.4g (4 x %.4g)", c->name, run, what, error, limit, fp32_error);
  if (error > margin->share * limit) {
    margin->share = error / limit;
    (void)snprintf(margin->what, sizeof margin->what, "%.96s, %.200s", run, what);
  }
}

static inline double parity_relative(double x, double truth) { return fabs(x - truth) / fabs(truth); }

/* L2(x - truth) / L2(truth - from), from 0 when NULL. */
static inline double parity_distance(const double *x, const double *truth, const double *from, uint64_t count) {
  double off = 0, size = 0;
  for (uint64_t i = 0; i < count; i++) {
    double d = x[i] - truth[i], s = truth[i] - (from ? from[i] : 0);
    off += d * d;
    size += s * s;
  }
  return sqrt(off) / sqrt(size);
}

/* Takes the elements of a tensor whose true gradient is zero (`no_gradient`, which may list several ranges) out of the
 * comparison: they become what they were before the training. */
static inline void parity_leave_out(const parity_case *c, const char *name, double *got, double *truth,
                                    const double *from) {
  hri_json list = parity_at(c, "no_gradient");
  for (uint64_t i = 0; i < hri_json_count(&list); i++) {
    hri_json item = hri_json_item(&list, i);
    const char *its_name;
    uint64_t begin = 0, end = 0;
    HOLDS(hri_json_get_string(&item, "name", &its_name, error));
    if (strcmp(its_name, name) != 0) continue;
    HOLDS(hri_json_get_u64(&item, "begin", 0, UINT32_MAX, &begin, error));
    HOLDS(hri_json_get_u64(&item, "end", 0, UINT32_MAX, &end, error));
    for (uint64_t k = begin; k < end; k++) got[k] = truth[k] = from[k];
  }
}

#endif
