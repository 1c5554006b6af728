/* hr_merge against one readable loop, element by element and bit by bit: adapters that PEFT saved, on their models, in
 * fp32 and in the type of the file, with weights, and onto weights that went through the reference of the quantizer.
 * Files, losses and refusals are in tests/cli/test_merge.sh. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <headroom/merge.h>

#include "formats/weights.h"
#include "model/adapter.h"
#include "model/params.h"
#include "ops/quant/ref.h"
#include "program/quantization.h"
#include "support/scratch.h"

static const struct {
  const char *name, *base;
  bool pairs; /* A and B alone */
} cases[] = {{"llama", "llama-a", true},     {"llama-rslora", "llama-b", true}, {"llama-layers", "llama-c", true},
             {"gpt2", "gpt2-a", true},       {"phi3", "phi3-short", true},      {"llama-dora", "llama-b", false},
             {"gpt2-dora", "gpt2-a", false}, {"llama-saved", "llama-b", false}, {"gpt2-saved", "gpt2-a", false}};
enum { CASES = sizeof cases / sizeof *cases };

static const char *work;

#define HOLDS(call)                                                                                                    \
  do {                                                                                                                 \
    hr_error held = {0}, *error = &held;                                                                               \
    if ((call) != HR_OK) fail_msg("%s", held.message);                                                                 \
  } while (0)

/* One adapter as it is on disk. */
typedef struct side {
  hri_weights *file;
  const hr_model *model;
  hr_lora lora;
  double weight;
} side;

static float *values_of(const hri_weights *file, uint32_t index) {
  const hri_safetensor *t = hri_weights_get(file, index);
  void *raw = malloc(t->end - t->begin);
  uint64_t count;
  float *values;
  assert_true(hri_file_elements(t->rank, t->shape, &count));
  values = malloc(count * sizeof *values);
  assert_true(raw && values);
  HOLDS(hri_weights_read(file, index, 0, t->end - t->begin, raw, error));
  assert_true(hri_file_to_f32(t->dtype, values, raw, count));
  free(raw);
  return values;
}

/* The tensor of the adapter that ends so for a module; NULL: it has none. */
static float *half_of(const side *s, const char *tensor, const char *end) {
  char name[200];
  uint32_t index;
  int length = (int)(strrchr(tensor, '.') - tensor);
  (void)snprintf(name, sizeof name, "base_model.model.%.*s.%s", length, tensor, end);
  index = hri_weights_find(s->file, name);
  return index == HRI_SAFETENSORS_NONE ? NULL : values_of(s->file, index);
}

/* W[o][i] += weight * scale * sum over r of B[o][r] A[r][i]; a transposed file has W[i][o]. True: there was something.
 */
static bool add_by_hand(const side *s, const char *tensor, float *w, uint64_t out, uint64_t in, bool transposed) {
  bool is_weight = strstr(tensor, ".weight") != NULL, any;
  float *a = is_weight ? half_of(s, tensor, "lora_A.weight") : NULL,
        *b = is_weight ? half_of(s, tensor, "lora_B.weight") : NULL,
        *m = is_weight ? half_of(s, tensor, "lora_magnitude_vector") : NULL;
  uint32_t rank = 0;
  float factor = 0;
  any = a != NULL;
  for (uint32_t l = 0; any && l < s->model->layer_count; l++)
    for (int k = 0; k < HR_MODULE_COUNT; k++) {
      char name[96];
      if (!hri_module_name(s->model, (hr_module)k, (int32_t)l, name) || strncmp(name, tensor, strlen(name)) != 0 ||
          strcmp(tensor + strlen(name), ".weight") != 0)
        continue;
      rank = hri_lora_rank(&s->lora, (int32_t)l, (hr_module)k);
      factor = (float)(s->weight * hri_lora_scale(&s->lora, (int32_t)l, (hr_module)k));
    }
  assert_true(!any || rank > 0);
  assert_true(any == (b != NULL));
  for (uint64_t o = 0; any && o < out; o++)
    for (uint64_t i = 0; i < in; i++) {
      float sum = 0;
      for (uint32_t r = 0; r < rank; r++) sum += b[o * rank + r] * a[r * in + i];
      w[transposed ? i * out + o : o * in + i] += factor * sum;
    }
  for (uint64_t o = 0; m && o < out; o++) { /* rows at their length */
    double squares = 0;
    for (uint64_t i = 0; i < in; i++) {
      double v = w[transposed ? i * out + o : o * in + i];
      squares += v * v;
    }
    for (uint64_t i = 0; i < in; i++) w[transposed ? i * out + o : o * in + i] *= (float)(m[o] / sqrt(squares));
  }
  free(m);
  free(a);
  free(b);
  return any;
}

/* What was trained whole: base + sum of weight (t - base), in place. True: there was something. */
static bool add_whole(const side *sides, uint32_t count, const char *tensor, float *w, uint64_t elements) {
  float *whole[3] = {NULL};
  bool bias = strstr(tensor, ".bias") != NULL;
  for (uint32_t s = 0; s < count; s++) {
    whole[s] = half_of(&sides[s], tensor, bias ? "base_layer.bias" : "weight");
    if (!whole[s] && bias) whole[s] = half_of(&sides[s], tensor, "bias");
  }
  for (uint64_t k = 0; whole[0] && k < elements; k++) {
    double sum = w[k];
    for (uint32_t s = 0; s < count; s++) sum += sides[s].weight * (whole[s][k] - (double)w[k]);
    w[k] = count == 1 && sides[0].weight == 1 ? whole[0][k] : (float)sum;
  }
  for (uint32_t s = 0; s < count; s++) free(whole[s]);
  return whole[0] != NULL;
}

/* Through codes and back, as [out, in]. */
static void there_and_back(uint32_t kind, float *w, uint64_t out, uint64_t in, bool transposed) {
  hri_quant_layout layout;
  float *turned = malloc(out * in * sizeof *w), *nested, *scratch;
  uint8_t *codes;
  void *absmax;
  assert_true(hri_quant_layout_make(kind, &out, NULL, 1, in, &layout));
  codes = malloc(layout.code_bytes);
  absmax = malloc(layout.absmax_count * 4);
  nested = malloc((layout.nested_count + 1) * sizeof *nested);
  scratch = malloc(layout.absmax_count * sizeof *scratch);
  assert_true(turned && codes && absmax && nested && scratch);
  for (uint64_t o = 0; o < out; o++)
    for (uint64_t i = 0; i < in; i++) turned[o * in + i] = w[transposed ? i * out + o : o * in + i];
  hri_ref_quantize(kind, turned, (int64_t)out, (int64_t)in, codes, absmax, layout.nested_count ? nested : NULL,
                   scratch);
  hri_ref_dequantize(kind, codes, absmax, layout.nested_count ? nested : NULL, (int64_t)out, (int64_t)in, turned);
  for (uint64_t o = 0; o < out; o++)
    for (uint64_t i = 0; i < in; i++) w[transposed ? i * out + o : o * in + i] = turned[o * in + i];
  free(turned);
  free(codes);
  free(absmax);
  free(nested);
  free(scratch);
}

static uint32_t find_in_base(const hr_model *model, const hri_weights *base, const char *name) {
  char variant[128];
  for (uint32_t v = 0; hri_param_variant(model, name, v, variant); v++)
    if (hri_weights_find(base, variant) != HRI_SAFETENSORS_NONE) return hri_weights_find(base, variant);
  if (strcmp(name, "lm_head.weight") == 0) { /* it was tied */
    hri_param_spec embedding;
    hri_param_get(model, 0, &embedding);
    return find_in_base(model, base, embedding.parts[0].name);
  }
  fail_msg("%s is not in the base", name);
  return 0;
}

static bool is_matrix_of_layer(const char *name, uint32_t rank) {
  return rank == 2 && (strstr(name, ".layers.") || strstr(name, ".h."));
}

/* Compares every tensor of a merged model with the loop; returns how many had something to add. */
static uint32_t compare(const hr_model *model, const hri_weights *base, const hri_weights *merged, const side *sides,
                        uint32_t count, uint32_t kind) {
  uint32_t changed = 0;
  bool transposed = model->family == HR_FAMILY_GPT2;
  for (uint32_t k = 0; k < hri_weights_count(merged); k++) {
    const hri_safetensor *t = hri_weights_get(merged, k);
    uint64_t out = t->shape[transposed ? 1 : 0], in = t->shape[transposed ? 0 : 1], elements;
    float *want = values_of(base, find_in_base(model, base, t->name)), *got = values_of(merged, k);
    bool any = false;
    void *narrow;
    assert_true(hri_file_elements(t->rank, t->shape, &elements));
    if (kind && is_matrix_of_layer(t->name, t->rank)) there_and_back(kind, want, out, in, transposed);
    for (uint32_t s = 0; s < count; s++)
      if (add_by_hand(&sides[s], t->name, want, out, in, transposed)) any = true;
    if (add_whole(sides, count, t->name, want, elements)) any = true;
    narrow = malloc(elements * 4);
    assert_non_null(narrow);
    assert_true(hri_file_from_f32(t->dtype, narrow, want, elements));
    assert_true(hri_file_to_f32(t->dtype, want, narrow, elements));
    for (uint64_t i = 0; i < elements; i++)
      if (memcmp(&want[i], &got[i], sizeof *want) != 0)
        fail_msg("%s: element %llu is %.9g, not %.9g", t->name, (unsigned long long)i, (double)got[i], (double)want[i]);
    changed += any;
    free(narrow);
    free(want);
    free(got);
  }
  return changed;
}

static void merge_and_compare(int which, const double *weights, uint32_t count, const char *type, hr_quantize kind) {
  static int made;
  const char *directory = path_of(HR_TEST_DATA "/parity/data/%s/model", cases[which].base);
  const char *adapter = path_of(HR_TEST_DATA "/parity/peft/%s/adapter", cases[which].name);
  const char *out = path_of("%s/%d", work, made++), *adapters[3] = {adapter, adapter, adapter};
  side sides[3];
  hr_model model, adapted;
  hr_merge_options options;
  hr_merge_result result;
  hri_weights *base, *merged;
  hr_merge_options_init(&options);
  options.weights = weights;
  options.type = type;
  options.dequantized = kind != HR_QUANTIZE_NONE;
  options.quantize = kind;
  HOLDS(hr_merge(directory, adapters, count, out, &options, &result, error));
  HOLDS(hr_model_open(directory, &model, error));
  HOLDS(hr_model_open(out, &adapted, error));
  adapted = model;
  HOLDS(hri_adapter_open(adapter, &adapted, error));
  HOLDS(hri_weights_open(directory, &base, error));
  HOLDS(hri_weights_open(out, &merged, error));
  for (uint32_t s = 0; s < count; s++) {
    HOLDS(hri_weights_open(path_of("%s/" HRI_ADAPTER_FILE, adapter), &sides[s].file, error));
    sides[s].lora = adapted.lora;
    sides[s].model = &model;
    sides[s].weight = weights ? weights[s] : 1;
  }
  assert_int_equal(result.tensor_count, hri_weights_count(merged));
  assert_int_equal(result.quantize, kind);
  assert_int_equal(result.merged_count, compare(&model, base, merged, sides, count, (uint32_t)kind));
  if (cases[which].pairs) assert_int_equal(result.merged_count, hri_weights_count(sides[0].file) / 2);
  for (uint32_t s = 0; s < count; s++) hri_weights_close(sides[s].file);
  hri_weights_close(base);
  hri_weights_close(merged);
}

static void as_one_loop(void **state) {
  static const char *const types[] = {NULL, "f32", "bf16", "f16"};
  (void)state;
  for (int c = 0; c < CASES; c++)
    for (int t = 0; t < 4; t++) merge_and_compare(c, NULL, 1, types[t], HR_QUANTIZE_NONE);
}

static void several(void **state) {
  static const double weights[] = {0.25, -3, 1.0 / 3};
  (void)state;
  for (int c = 0; c < CASES; c++)
    if (!strstr(cases[c].name, "dora")) merge_and_compare(c, weights, 3, "f32", HR_QUANTIZE_NONE);
}

/* DoRA has no length of rows that are not its own sum: by weight, or beside another adapter. */
static void dora_alone(void **state) {
  static const double half[] = {0.5, 0.5};
  const char *directory = HR_TEST_DATA "/parity/data/gpt2-a/model", *out = path_of("%s/dora", work);
  const char *dora = HR_TEST_DATA "/parity/peft/gpt2-dora/adapter",
             *both[] = {dora, HR_TEST_DATA "/parity/peft/gpt2/adapter"};
  hr_merge_options options;
  hr_merge_result result;
  (void)state;
  hr_merge_options_init(&options);
  for (int k = 0; k < 2; k++) {
    hr_error e = {0};
    options.weights = k == 0 ? half : NULL;
    assert_int_equal(hr_merge(directory, both, k == 0 ? 1 : 2, out, &options, &result, &e), HR_ERROR_UNSUPPORTED);
    assert_non_null(strstr(e.message, "gpt2-dora"));
    assert_true(e.hint[0] && !exists(out));
  }
}

static void through_quantized(void **state) {
  (void)state;
  for (int c = 0; c < CASES; c++)
    for (hr_quantize kind = HR_QUANTIZE_NONE + 1; kind <= HR_QUANTIZE_INT8; kind++)
      merge_and_compare(c, NULL, 1, c % 2 ? "f32" : NULL, kind);
}

/* Each allocation fails once: MEMORY, nothing is left of the target, and nothing is kept. */
static void without_memory(void **state) {
  const char *directory = HR_TEST_DATA "/parity/data/gpt2-a/model", *adapter = HR_TEST_DATA "/parity/peft/gpt2/adapter";
  const char *out = path_of("%s/starved", work);
  hr_status status = HR_ERROR_MEMORY;
  (void)state;
  for (uint64_t n = 1; status != HR_OK; n++) {
    hr_error error = {0};
    hr_merge_options options;
    uint64_t before = hri_mem_live_bytes();
    hr_merge_options_init(&options);
    options.dequantized = true;
    options.quantize = HR_QUANTIZE_NF4_DQ;
    hri_mem_fail_after(n);
    status = hr_merge(directory, &adapter, 1, out, &options, NULL, &error);
    hri_mem_fail_after(0);
    assert_int_equal(hri_mem_live_bytes(), before);
    if (status != HR_OK && status != HR_ERROR_MEMORY)
      fail_msg("allocation %llu: %s: %s", (unsigned long long)n, hr_status_name(status), error.message);
    assert_int_equal(hri_path_exists(out), status == HR_OK);
  }
}

static bool stop_at(void *context) {
  uint64_t *left = context;
  return (*left)-- == 0;
}

/* Asked to stop at the n-th question, for every n, it leaves nothing. */
static void test_stopped(void **state) {
  const char *directory = HR_TEST_DATA "/parity/data/gpt2-a/model", *adapter = HR_TEST_DATA "/parity/peft/gpt2/adapter";
  const char *out = path_of("%s/stopped", work);
  hr_status status = HR_ERROR_INTERRUPTED;
  uint64_t asked = 0;
  (void)state;
  for (uint64_t n = 0; status != HR_OK; n++) {
    uint64_t left = asked = n;
    hr_error error = {0};
    hr_merge_options options;
    hr_merge_options_init(&options);
    options.should_stop = stop_at;
    options.context = &left;
    status = hr_merge(directory, &adapter, 1, out, &options, NULL, &error);
    if (status != HR_OK && status != HR_ERROR_INTERRUPTED) fail_msg("%s", error.message);
    assert_int_equal(hri_path_exists(out), status == HR_OK);
  }
  assert_true(asked > 3);
}

static int make(void **state) {
  (void)state;
  work = scratch_make("merge");
  return 0;
}

static int drop(void **state) {
  (void)state;
  scratch_remove(work);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(as_one_loop),    cmocka_unit_test(several),
                                     cmocka_unit_test(dora_alone),     cmocka_unit_test(through_quantized),
                                     cmocka_unit_test(without_memory), cmocka_unit_test(test_stopped)};
  return cmocka_run_group_tests(tests, make, drop);
}
