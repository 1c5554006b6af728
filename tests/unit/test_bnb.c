/* bitsandbytes checkpoints, as transformers saved small models on a CPU (tests/quant): each weight is found and read, is
 * what quantizing the 16-bit model's weight gives, and written again gives transformers' file byte for byte; the config's
 * member likewise. Each way in which a checkpoint can be damaged is refused with file and tensor. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "convert/bnb.h"
#include "ops/quant/ref.h"
#include "support/scratch.h"

typedef struct checkpoint {
  const char *name, *base;
  uint32_t kind;
  bool transposed; /* the base's matrices are [in, out] */
  bool bytes_as_bf16;
  int weights;
} checkpoint;

static const checkpoint checkpoints[] = {
    {"llama-nf4+dq", "llama", HRI_QUANTIZATION_NF4_DQ, false, false, 7},
    {"llama-fp4", "llama", HRI_QUANTIZATION_FP4, false, false, 7},
    {"llama-int8", "llama", HRI_QUANTIZATION_INT8, false, false, 7},
    {"gpt2-nf4", "gpt2", HRI_QUANTIZATION_NF4, true, true, 4},
    {"gpt2-int8", "gpt2", HRI_QUANTIZATION_INT8, true, false, 4},
};
enum { CHECKPOINTS = sizeof checkpoints / sizeof *checkpoints };

static void *take(uint64_t bytes) {
  void *memory = calloc(bytes + 1, 1);
  assert_non_null(memory);
  return memory;
}

static hri_weights *open_weights(const char *path) {
  hri_weights *weights = NULL;
  hr_error error;
  if (hri_weights_open(path, &weights, &error) != HR_OK) fail_msg("%s", error.message);
  return weights;
}

static hri_weights *open_recorded(const char *name) { return open_weights(path_of("%s/quant/%s", HR_TEST_DATA, name)); }

/* ---- a weight, quantized ---- */

typedef struct quantized {
  uint8_t *codes, *absmax;
  float *nested, *scratch;
} quantized;

static quantized room_for(const hri_quant_layout *l) {
  return (quantized){.codes = take(l->code_bytes),
                     .absmax = take(l->absmax_count * 4),
                     .nested = take(l->nested_count * 4),
                     .scratch = take(l->absmax_count * 4)};
}
static void drop(quantized *q) { free(q->codes), free(q->absmax), free(q->nested), free(q->scratch); }

static void expect_same(const char *name, const hri_bnb_weight *w, const quantized *a, const quantized *b) {
  if (memcmp(a->codes, b->codes, w->layout.code_bytes) != 0) fail_msg("codes of %s", name);
  if (memcmp(a->absmax, b->absmax, hri_dtype_size(hri_quant_absmax_dtype(w->kind), w->layout.absmax_count)) != 0)
    fail_msg("absmax of %s", name);
  if (memcmp(a->nested, b->nested, w->layout.nested_count * 4) != 0) fail_msg("nested of %s", name);
}

/* The weight of the 16-bit model as [out, in]. */
static float *base_weight(const hri_weights *base, const char *name, bool transposed, uint64_t *rows,
                          uint64_t *columns) {
  uint32_t index = hri_weights_find(base, name);
  const hri_safetensor *t;
  uint64_t r, c;
  float *values, *turned;
  uint16_t *half;
  hr_error error;
  assert_int_not_equal(index, HRI_SAFETENSORS_NONE);
  t = hri_weights_get(base, index);
  assert_true(t->rank == 2 && t->dtype == HRI_FILE_BF16);
  r = t->shape[0], c = t->shape[1];
  half = take(r * c * 2), values = take(r * c * 4), turned = take(r * c * 4);
  assert_int_equal(hri_weights_read(base, index, 0, r * c * 2, half, &error), HR_OK);
  hri_f32_from_bf16(values, half, r * c);
  for (uint64_t i = 0; i < r; i++)
    for (uint64_t k = 0; k < c; k++) turned[k * r + i] = values[i * c + k];
  *rows = transposed ? c : r, *columns = transposed ? r : c;
  free(half);
  free(transposed ? values : turned);
  return transposed ? turned : values;
}

static hri_bnb_weight find(const hri_weights *weights, const char *name, uint64_t rows, uint64_t columns) {
  hri_bnb_weight w;
  hr_error error;
  if (hri_bnb_find(weights, name, rows, columns, &w, &error) != HR_OK) fail_msg("%s", error.message);
  return w;
}

/* ---- reading ---- */

static void weights_are_those_of_the_base(const checkpoint *c) {
  hri_weights *weights = open_recorded(c->name), *base = open_recorded(c->base);
  int seen = 0;
  for (uint32_t i = 0; i < hri_weights_count(base); i++) {
    const hri_safetensor *t = hri_weights_get(base, i);
    hri_bnb_weight w;
    quantized got, want;
    uint64_t rows, columns;
    float *values;
    hr_error error;
    if (t->rank < 2 || strstr(t->name, "wte") || strstr(t->name, "wpe") || strstr(t->name, "embed") ||
        strstr(t->name, "lm_head")) {
      w = find(weights, t->name, t->shape[0], t->rank > 1 ? t->shape[1] : 1);
      assert_int_equal(w.kind, HRI_QUANTIZATION_NONE);
      continue;
    }
    values = base_weight(base, t->name, c->transposed, &rows, &columns);
    w = find(weights, t->name, rows, columns);
    assert_int_equal(w.kind, c->kind);
    assert_int_equal(w.dtype, c->kind == HRI_QUANTIZATION_INT8 ? HRI_FILE_F16 : HRI_FILE_BF16);
    got = room_for(&w.layout), want = room_for(&w.layout);
    if (hri_bnb_read(weights, &w, got.codes, got.absmax, got.nested, &error) != HR_OK) fail_msg("%s", error.message);
    hri_ref_quantize(c->kind, values, (int64_t)rows, (int64_t)columns, want.codes, want.absmax, want.nested,
                     want.scratch);
    expect_same(t->name, &w, &got, &want);
    drop(&got), drop(&want);
    free(values);
    seen++;
  }
  assert_int_equal(seen, c->weights);
  hri_weights_close(weights), hri_weights_close(base);
}

static void recorded_weights_are_read(void **state) {
  (void)state;
  for (int i = 0; i < CHECKPOINTS; i++) weights_are_those_of_the_base(&checkpoints[i]);
}

static void names_beside_weights_are_known(void **state) {
  (void)state;
  for (int i = 0; i < CHECKPOINTS; i++) {
    hri_weights *weights = open_recorded(checkpoints[i].name), *base = open_recorded(checkpoints[i].base);
    for (uint32_t k = 0; k < hri_weights_count(weights); k++) {
      const char *name = hri_weights_get(weights, k)->name;
      char weight[HRI_BNB_NAME_BYTES];
      bool known = hri_weights_find(base, name) != HRI_SAFETENSORS_NONE;
      assert_int_equal(hri_bnb_beside(name, weight), !known);
      if (!known) assert_int_not_equal(hri_weights_find(base, weight), HRI_SAFETENSORS_NONE);
    }
    hri_weights_close(weights), hri_weights_close(base);
  }
}

/* ---- the config ---- */

static void configs_are_read_and_written(void **state) {
  (void)state;
  for (int i = 0; i < CHECKPOINTS; i++) {
    hri_json root = {0}, ours = {0};
    hri_text text = {0};
    hri_json_writer writer = hri_json_writer_init(&text, 2);
    hr_model model = {0};
    hr_error error;
    uint32_t kind;
    assert_int_equal(hri_json_read(path_of("%s/quant/%s/config.json", HR_TEST_DATA, checkpoints[i].name), 1 << 20,
                                   &root, &error),
                     HR_OK);
    assert_int_equal(hri_bnb_config_read(&root, &kind, &error), HR_OK);
    assert_int_equal(kind, checkpoints[i].kind);
    hri_json_begin_object(&writer);
    model.quantization = (hr_quantize)kind;
    hri_bnb_config_put(&writer, &model, HRI_FILE_BF16);
    hri_json_end_object(&writer);
    assert_int_equal(hri_json_parse(text.chars, text.length, "ours", &ours, &error), HR_OK);
    if (checkpoints[i].bytes_as_bf16) /* ours are stored as bytes */
      assert_int_equal(json_object_set_new(json_object_get(root.value, "quantization_config"), "bnb_4bit_quant_storage",
                                           json_string("uint8")),
                       0);
    assert_true(json_equal(json_object_get(root.value, "quantization_config"),
                           json_object_get(ours.value, "quantization_config")));
    hri_json_deinit(&root), hri_json_deinit(&ours);
    hri_text_deinit(&text);
  }
}

static hr_status read_config(const char *text, uint32_t *kind, hr_error *error) {
  hri_json root = {0};
  hr_status status;
  assert_int_equal(hri_json_parse(text, strlen(text), "config.json", &root, error), HR_OK);
  status = hri_bnb_config_read(&root, kind, error);
  hri_json_deinit(&root);
  return status;
}

static void other_configs_are_refused(void **state) {
  static const struct {
    const char *text, *says;
  } bad[] = {
      {"{\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4}}", "quant_method is \"gptq\""},
      {"{\"quantization_config\": {\"quant_method\": \"bitsandbytes\"}}", "load_in_4bit"},
      {"{\"quantization_config\": {\"load_in_8bit\": true, \"load_in_4bit\": true}}", "load_in_4bit"},
      {"{\"quantization_config\": {\"load_in_8bit\": true, \"llm_int8_has_fp16_weight\": true}}", "has_fp16_weight"},
      {"{\"quantization_config\": {\"load_in_4bit\": true, \"bnb_4bit_quant_type\": \"int4\"}}", "bnb_4bit_quant_type"},
      {"{\"quantization_config\": {\"load_in_4bit\": \"yes\"}}", "load_in_4bit"},
      {"{\"quantization_config\": 4}", "quantization_config"},
  };
  uint32_t kind;
  hr_error error;
  (void)state;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    assert_int_equal(read_config(bad[i].text, &kind, &error), HR_ERROR_INPUT);
    if (!strstr(error.message, bad[i].says) || !strstr(error.message, "config.json")) fail_msg("%s", error.message);
  }
  assert_int_equal(read_config("{\"quantization_config\": null}", &kind, &error), HR_OK);
  assert_int_equal(kind, HRI_QUANTIZATION_NONE);
  assert_int_equal(read_config("{\"quantization_config\": {\"load_in_4bit\": true}}", &kind, &error), HR_OK);
  assert_int_equal(kind, HRI_QUANTIZATION_FP4); /* bitsandbytes' defaults */
}

/* ---- writing ---- */

enum { MOST = 128 };

/* The tensors of a file in memory, to be written again. */
typedef struct tensors {
  uint32_t count;
  hri_safetensor tensor[MOST];
  char name[MOST][HRI_BNB_NAME_BYTES];
  unsigned char *bytes[MOST];
} tensors;

static void load(tensors *all, const hri_weights *weights) {
  hr_error error;
  all->count = hri_weights_count(weights);
  assert_true(all->count <= MOST);
  for (uint32_t i = 0; i < all->count; i++) {
    const hri_safetensor *t = hri_weights_get(weights, i);
    all->tensor[i] = *t;
    (void)snprintf(all->name[i], sizeof all->name[i], "%s", t->name);
    all->bytes[i] = take(t->end - t->begin);
    assert_int_equal(hri_weights_read(weights, i, 0, t->end - t->begin, all->bytes[i], &error), HR_OK);
  }
}

static void save(tensors *all, const char *directory) {
  hri_weights_writer *writer;
  hr_error error;
  for (uint32_t i = 0; i < all->count; i++) all->tensor[i].name = all->name[i];
  if (hri_weights_writer_open(directory, all->tensor, all->count, 0, &writer, &error) != HR_OK)
    fail_msg("%s", error.message);
  for (uint32_t i = 0; i < all->count; i++) {
    uint64_t elements, bytes;
    assert_true(hri_file_elements(all->tensor[i].rank, all->tensor[i].shape, &elements));
    assert_true(hri_file_bytes(all->tensor[i].dtype, elements, &bytes));
    assert_int_equal(hri_weights_writer_write(writer, i, 0, all->bytes[i], bytes, &error), HR_OK);
  }
  assert_int_equal(hri_weights_writer_finish(writer, NULL, &error), HR_OK);
}

static void release(tensors *all) {
  for (uint32_t i = 0; i < all->count; i++) free(all->bytes[i]);
}

/* Quantized here from the 16-bit model, written by us: the file that transformers saved. */
static void write_as_transformers(const checkpoint *c, const char *directory) {
  hri_weights *base = open_recorded(c->base);
  static hri_bnb_entries entries[MOST];
  static hri_safetensor list[MOST];
  uint32_t first[MOST], weights = hri_weights_count(base), count = 0;
  quantized q[MOST];
  hri_weights_writer *writer;
  hr_error error;
  char *ours, *theirs;
  size_t our_bytes, their_bytes;
  for (uint32_t i = 0; i < weights; i++) {
    const hri_safetensor *t = hri_weights_get(base, i);
    hri_bnb_state state = {.kind = c->kind, .dtype = HRI_FILE_BF16};
    hri_quant_layout layout;
    float *values;
    first[i] = count;
    entries[i].count = 0;
    if (t->rank < 2 || !strstr(t->name, "layers")) {
      list[count++] = *t;
      continue;
    }
    values = base_weight(base, t->name, c->transposed, &state.rows, &state.columns);
    assert_true(hri_quant_layout_make(c->kind, &state.rows, NULL, 1, state.columns, &layout));
    q[i] = room_for(&layout);
    hri_ref_quantize(c->kind, values, (int64_t)state.rows, (int64_t)state.columns, q[i].codes, q[i].absmax, q[i].nested,
                     q[i].scratch);
    free(values);
    if (layout.nested_count) state.offset = q[i].nested[layout.nested_count - 1];
    assert_int_equal(hri_bnb_entries_init(&entries[i], t->name, &state, &error), HR_OK);
    for (uint32_t k = 0; k < entries[i].count; k++) list[count++] = entries[i].tensors[k];
  }
  assert_true(count < MOST);
  assert_int_equal(hri_weights_writer_open(directory, list, count, 0, &writer, &error), HR_OK);
  for (uint32_t i = 0; i < weights; i++) {
    const hri_safetensor *t = hri_weights_get(base, i);
    if (entries[i].count) {
      assert_int_equal(hri_bnb_write(writer, first[i], &entries[i], q[i].codes, q[i].absmax, q[i].nested, &error),
                       HR_OK);
      drop(&q[i]);
    } else {
      void *bytes = take(t->end - t->begin);
      assert_int_equal(hri_weights_read(base, i, 0, t->end - t->begin, bytes, &error), HR_OK);
      assert_int_equal(hri_weights_writer_write(writer, first[i], 0, bytes, t->end - t->begin, &error), HR_OK);
      free(bytes);
    }
  }
  assert_int_equal(hri_weights_writer_finish(writer, NULL, &error), HR_OK);
  ours = get_file(path_of("%s/model.safetensors", directory), &our_bytes);
  theirs = get_file(path_of("%s/quant/%s/model.safetensors", HR_TEST_DATA, c->name), &their_bytes);
  assert_non_null(ours);
  assert_int_equal(our_bytes, their_bytes);
  assert_memory_equal(ours, theirs, our_bytes);
  free(ours), free(theirs);
  hri_weights_close(base);
}

static void files_are_those_of_transformers(void **state) {
  (void)state;
  for (int i = 0; i < 3; i++) {
    const char *directory = scratch_make("bnb");
    write_as_transformers(&checkpoints[i], directory);
    scratch_remove(directory);
  }
}

static void names_that_cannot_be_are_refused(void **state) {
  static hri_bnb_entries entries;
  hri_bnb_state state8 = {.kind = HRI_QUANTIZATION_INT8, .rows = 2, .columns = 2}, none = {.rows = 2, .columns = 2};
  static char longest[HRI_BNB_NAME_BYTES];
  hr_error error;
  (void)state;
  assert_int_equal(hri_bnb_entries_init(&entries, "layer.table", &state8, &error), HR_ERROR_USAGE);
  memset(longest, 'a', sizeof longest - 8);
  memcpy(longest + sizeof longest - 8, ".weight", 8);
  state8.kind = HRI_QUANTIZATION_NF4;
  assert_int_equal(hri_bnb_entries_init(&entries, longest, &state8, &error), HR_ERROR_USAGE);
  assert_int_equal(hri_bnb_entries_init(&entries, "a.weight", &none, &error), HR_ERROR_INTERNAL);
}

/* Python's text of small and whole means. */
static void texts_are_those_of_python(void **state) {
  static const struct {
    float offset;
    const char *end;
  } cases[] = {{0.0498046875f, "\"nested_offset\": 0.0498046875}"},
               {1.0f, "\"nested_offset\": 1.0}"},
               {1e-5f, "\"nested_offset\": 9.999999747378752e-06}"},
               {0x1p-20f, "\"nested_offset\": 9.5367431640625e-07}"},
               {0.05037715658545494f, "\"nested_offset\": 0.05037715658545494}"}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hri_bnb_state s = {HRI_QUANTIZATION_FP4_DQ, HRI_FILE_F16, 3, 5, cases[i].offset}, back;
    hri_text text = {0};
    hr_error error;
    hri_bnb_state_put(&text, &s);
    assert_non_null(strstr(text.chars, cases[i].end));
    assert_int_equal(hri_bnb_state_read(text.chars, text.length, "file", "tensor", &back, &error), HR_OK);
    assert_true(back.kind == s.kind && back.dtype == s.dtype && back.rows == 3 && back.columns == 5 &&
                back.offset == s.offset);
    hri_text_deinit(&text);
  }
}

/* ---- damage ---- */

static uint32_t index_of(const tensors *all, const char *end) {
  for (uint32_t i = 0; i < all->count; i++) {
    size_t length = strlen(all->name[i]);
    if (strstr(all->name[i], "q_proj") && length > strlen(end) && strcmp(all->name[i] + length - strlen(end), end) == 0)
      return i;
  }
  fail_msg("no tensor ...%s", end);
  return 0;
}

static void replace_text(tensors *all, uint32_t i, const char *from, const char *to) {
  char text[512], *at;
  size_t head;
  (void)snprintf(text, sizeof text, "%.*s", (int)all->tensor[i].shape[0], (const char *)all->bytes[i]);
  at = strstr(text, from);
  assert_non_null(at);
  head = (size_t)(at - text);
  free(all->bytes[i]);
  all->bytes[i] = take(1024);
  (void)snprintf((char *)all->bytes[i], 1024, "%.*s%s%s", (int)head, text, to, at + strlen(from));
  all->tensor[i].shape[0] = strlen((const char *)all->bytes[i]);
}

typedef struct damage {
  const char *checkpoint, *tensor; /* the end of its name */
  const char *from, *to;           /* of the text; or from NULL and what is done */
  enum { GONE, FLOAT_AT_0, SHORTER, BYTE_AT_0, TYPE } what;
  float value;
  bool when_read; /* found in the data */
  const char *says;
} damage;

static const damage damages[] = {
    {"llama-nf4+dq", ".absmax", .what = GONE, .says = "q_proj.weight.absmax is missing"},
    {"llama-nf4+dq", ".quant_map", .what = GONE, .says = "q_proj.weight.quant_map is missing"},
    {"llama-nf4+dq", ".nested_absmax", .what = GONE, .says = "nested_absmax is missing"},
    {"llama-nf4+dq", ".nested_quant_map", .what = GONE, .says = "nested_quant_map is missing"},
    {"llama-nf4+dq", "__nf4", .what = GONE, .says = "q_proj.weight is of bytes"},
    {"llama-nf4+dq", "__nf4", "64", "128", .says = "blocksize"},
    {"llama-nf4+dq", "__nf4", "256", "512", .says = "nested_blocksize"},
    {"llama-nf4+dq", "__nf4", "float32", "float16", .says = "nested_dtype"},
    {"llama-nf4+dq", "__nf4", "bfloat16", "int8", .says = "dtype"},
    {"llama-nf4+dq", "__nf4", "[60, 36]", "[36, 60]", .says = "another shape"},
    {"llama-nf4+dq", "__nf4", "[60, 36]", "[2160]", .says = "shape"},
    {"llama-nf4+dq", "__nf4", "[60, 36]", "[60, -36]", .says = "shape"},
    {"llama-nf4+dq", "__nf4", "\"nf4\"", "\"nf5\"", .says = "quant_type"},
    {"llama-nf4+dq", "__nf4", "{", "", .says = "q_proj"},
    {"llama-nf4+dq", "__nf4", "\"nested_offset\": 0", "\"nested_offset\": 1e300, \"x\": 0", .says = "nested_offset"},
    {"llama-nf4+dq", ".quant_map", .what = FLOAT_AT_0, .value = -0.9f, .says = "maps codes to other values"},
    {"llama-nf4+dq", ".nested_quant_map", .what = FLOAT_AT_0, .value = NAN, .says = "maps codes to other values"},
    {"llama-nf4+dq", ".nested_absmax", .what = FLOAT_AT_0, .value = NAN, .when_read = true,
     .says = "nested_absmax has nan"},
    {"llama-nf4+dq", ".nested_absmax", .what = TYPE, .says = "another type"},
    {"llama-nf4+dq", "q_proj.weight", .what = SHORTER, .says = "another number of bytes"},
    {"llama-nf4+dq", ".absmax", .what = SHORTER, .says = "another number of elements"},
    {"llama-fp4", ".absmax", .what = FLOAT_AT_0, .value = INFINITY, .when_read = true, .says = "absmax has inf at 0"},
    {"llama-fp4", ".absmax", .what = FLOAT_AT_0, .value = -1, .when_read = true, .says = "absmax has -1 at 0"},
    {"llama-int8", ".SCB", .what = GONE, .says = "q_proj.SCB is missing"},
    {"llama-int8", ".SCB", .what = SHORTER, .says = "another number of elements"},
    {"llama-int8", ".SCB", .what = FLOAT_AT_0, .value = NAN, .when_read = true, .says = "SCB has nan"},
    {"llama-int8", ".weight_format", .what = BYTE_AT_0, .value = 1, .says = "names a layout"},
    {"llama-int8", "q_proj.weight", .what = SHORTER, .says = "another shape"},
};

static void harm(tensors *all, const damage *d) {
  uint32_t i = index_of(all, d->tensor);
  if (d->from) {
    replace_text(all, i, d->from, d->to);
    return;
  }
  switch (d->what) {
  case GONE: (void)snprintf(all->name[i], sizeof all->name[i], "another"); break;
  case FLOAT_AT_0: memcpy(all->bytes[i], &d->value, 4); break;
  case BYTE_AT_0: all->bytes[i][0] = (unsigned char)d->value; break;
  case TYPE: all->tensor[i].dtype = HRI_FILE_I32; break;
  default: all->tensor[i].shape[0]--; break;
  }
}

static void damaged_checkpoints_are_refused(void **state) {
  (void)state;
  for (size_t k = 0; k < sizeof damages / sizeof *damages; k++) {
    const damage *d = &damages[k];
    const char *directory = scratch_make("bnb");
    hri_weights *weights = open_recorded(d->checkpoint);
    static tensors all;
    hri_bnb_weight w;
    hr_status status;
    hr_error error;
    load(&all, weights);
    hri_weights_close(weights);
    harm(&all, d);
    save(&all, directory);
    release(&all);
    weights = open_weights(directory);
    status = hri_bnb_find(weights, "model.layers.0.self_attn.q_proj.weight", 60, 36, &w, &error);
    if (d->when_read) {
      quantized q = room_for(&w.layout);
      assert_int_equal(status, HR_OK);
      status = hri_bnb_read(weights, &w, q.codes, q.absmax, q.nested, &error);
      drop(&q);
    }
    if (status != HR_ERROR_INPUT || !strstr(error.message, d->says) || !strstr(error.message, "model.safetensors"))
      fail_msg("damage %zu: %d, %s", k, (int)status, status == HR_OK ? "" : error.message);
    hri_weights_close(weights);
    scratch_remove(directory);
  }
}

/* A map whose last bits another torch rounded is let pass. */
static void maps_of_other_versions_are_read(void **state) {
  const char *directory = scratch_make("bnb");
  hri_weights *weights = open_recorded("llama-nf4+dq");
  static tensors all;
  hr_error error;
  hri_bnb_weight w;
  float *map;
  (void)state;
  load(&all, weights);
  hri_weights_close(weights);
  map = (float *)(void *)all.bytes[index_of(&all, ".nested_quant_map")];
  for (int i = 0; i < HRI_QUANT_MAP; i += 3) map[i] = nextafterf(map[i], 2 * map[i]);
  save(&all, directory);
  release(&all);
  weights = open_weights(directory);
  assert_int_equal(hri_bnb_find(weights, "model.layers.0.self_attn.q_proj.weight", 60, 36, &w, &error), HR_OK);
  assert_int_equal(w.kind, HRI_QUANTIZATION_NF4_DQ);
  hri_weights_close(weights);
  scratch_remove(directory);
}

static hr_status skipping(const char *entry, hr_model *model, hr_error *error) {
  char text[2048];
  (void)snprintf(
      text, sizeof text,
      "{\"model_type\": \"llama\", \"hidden_size\": 64, \"num_attention_heads\": 2, \"intermediate_size\": 64, "
      "\"num_hidden_layers\": 12, \"max_position_embeddings\": 64, \"vocab_size\": 64, \"quantization_config\": {\"quant_method\": \"bitsandbytes\", "
      "\"load_in_8bit\": true, \"llm_int8_skip_modules\": [%s]}}",
      entry);
  return hr_model_parse(text, strlen(text), "config.json", model, error);
}

/* What should_convert_module of transformers 5 (Python's re) leaves out, of layers 0, 1, 2 and 11 by hr_module. */
static void skipped_modules_are_those_of_transformers(void **state) {
  static const struct {
    const char *entry;
    uint8_t out[4];
  } cases[] = {
      {"self_attn.o_proj", {0x08, 0x08, 0x08, 0x08}},
      {"model.layers.1", {0x00, 0x7f, 0x00, 0x00}},
      {"o_proj", {0x08, 0x08, 0x08, 0x08}},
      {"down_proj", {0x40, 0x40, 0x40, 0x40}},
      {"mlp", {0x00, 0x00, 0x00, 0x00}},
      {"model.layers.0.mlp", {0x70, 0x00, 0x00, 0x00}},
      {"model\\\\.layers\\\\.(0|2)\\\\.self_attn", {0x0f, 0x00, 0x0f, 0x00}},
      {"model\\\\.layers\\\\.1\\\\d\\\\.mlp", {0x00, 0x00, 0x00, 0x70}},
      {".*\\\\.down_proj", {0x40, 0x40, 0x40, 0x40}},
      {".*down_pro", {0x00, 0x00, 0x00, 0x00}},
      {"model.layers.[0-1].self_attn.(?:o)_proj", {0x08, 0x08, 0x00, 0x00}},
      {"model\\\\.layers\\\\.\\\\d+\\\\.mlp\\\\.down_proj$", {0x40, 0x40, 0x40, 0x40}},
      {"model\\\\.layers\\\\.1$", {0x00, 0x00, 0x00, 0x00}},
      {".*layers\\\\.1.*?\\\\.self_attn\\\\.", {0x00, 0x0f, 0x00, 0x0f}},
      {"(model\\\\.layers\\\\.0$|model\\\\.layers\\\\.2)", {0x00, 0x00, 0x7f, 0x00}},
      {"lm_head|.*o_proj", {0x08, 0x08, 0x08, 0x08}},
      {"model.layers.1.mlp.down_pro", {0x00, 0x00, 0x00, 0x00}},
      {"[\\\\w.]+self_attn", {0x0f, 0x0f, 0x0f, 0x0f}},
      {"^model.layers.2", {0x00, 0x00, 0x7f, 0x00}},
      {"oproj", {0x00, 0x00, 0x00, 0x00}},
      {"transformer", {0x00, 0x00, 0x00, 0x00}},
      {"model\\\\.layers\\\\.[^1]\\\\.mlp", {0x70, 0x00, 0x70, 0x00}},
      {"model.layers..mlp.down_proj", {0x00, 0x00, 0x00, 0x00}},
      {"(?=model).*[.]mlp\\\\b", {0x70, 0x70, 0x70, 0x70}},
      {"model.layers.(?!0)[^.]*", {0x00, 0x7f, 0x7f, 0x7f}},
      {"(?=mlp)", {0x00, 0x00, 0x00, 0x00}},
      {"model.layers.1{2}", {0x00, 0x00, 0x00, 0x7f}},
      {"", {0x7f, 0x7f, 0x7f, 0x7f}},
  };
  static const int layers[4] = {0, 1, 2, 11};
  static const char *const refused[] = {"\"(\"", "\"(?<=mlp)\"", "\"(?i)MLP\"", "\"(a)\\\\1\"", "\"a*+\"", "\"[a\"",
                                        "7"};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char quoted[300];
    hr_model model;
    hr_error error = {0};
    (void)snprintf(quoted, sizeof quoted, "\"%s\"", cases[i].entry);
    if (skipping(quoted, &model, &error) != HR_OK) fail_msg("%s: %s", quoted, error.message);
    for (int k = 0; k < 4; k++)
      if (model.plain[layers[k]] != cases[i].out[k])
        fail_msg("%s, layer %d: %#x instead of %#x", quoted, layers[k], model.plain[layers[k]], cases[i].out[k]);
  }
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    hr_model model;
    hr_error error = {0};
    if (skipping(refused[i], &model, &error) != HR_ERROR_INPUT || !strstr(error.message, "llm_int8_skip_modules"))
      fail_msg("%s: %s", refused[i], error.message);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(recorded_weights_are_read),       cmocka_unit_test(names_beside_weights_are_known),
      cmocka_unit_test(configs_are_read_and_written),    cmocka_unit_test(other_configs_are_refused),
      cmocka_unit_test(files_are_those_of_transformers), cmocka_unit_test(names_that_cannot_be_are_refused),
      cmocka_unit_test(texts_are_those_of_python),       cmocka_unit_test(damaged_checkpoints_are_refused),
      cmocka_unit_test(maps_of_other_versions_are_read), cmocka_unit_test(skipped_modules_are_those_of_transformers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
