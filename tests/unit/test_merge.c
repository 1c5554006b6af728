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
} cases[] = {{"llama", "llama-a"},
             {"llama-rslora", "llama-b"},
             {"llama-layers", "llama-c"},
             {"gpt2", "gpt2-a"},
             {"phi3", "phi3-short"}};
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

/* The tensor of a module's A or B; NULL: it has none. */
static float *half_of(const side *s, const char *tensor, char which) {
  char name[200];
  uint32_t index;
  int length = (int)(strlen(tensor) - strlen(".weight"));
  (void)snprintf(name, sizeof name, "base_model.model.%.*s.lora_%c.weight", length, tensor, which);
  index = hri_weights_find(s->file, name);
  return index == HRI_SAFETENSORS_NONE ? NULL : values_of(s->file, index);
}

/* W[o][i] += weight * scale * sum over r of B[o][r] A[r][i]; a transposed file has W[i][o]. True: there was something.
 */
static bool add_by_hand(const side *s, const char *tensor, float *w, uint64_t out, uint64_t in, bool transposed) {
  float *a = half_of(s, tensor, 'A'), *b = half_of(s, tensor, 'B');
  uint32_t rank = s->lora.rank;
  float factor = (float)(s->weight * s->lora.alpha / (s->lora.rslora ? sqrt(rank) : rank));
  bool any = a != NULL;
  assert_true(any == (b != NULL));
  for (uint64_t o = 0; any && o < out; o++)
    for (uint64_t i = 0; i < in; i++) {
      float sum = 0;
      for (uint32_t r = 0; r < rank; r++) sum += b[o * rank + r] * a[r * in + i];
      w[transposed ? i * out + o : o * in + i] += factor * sum;
    }
  free(a);
  free(b);
  return any;
}

/* Through codes and back, as [out, in]. */
static void there_and_back(uint32_t kind, float *w, uint64_t out, uint64_t in, bool transposed) {
  hri_quant_layout layout;
  float *turned = malloc(out * in * sizeof *w), *nested, *scratch;
  uint8_t *codes;
  void *absmax;
  assert_true(hri_quant_layout_make(kind, &out, 1, in, &layout));
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
    sides[s].weight = weights ? weights[s] : 1;
  }
  assert_int_equal(result.tensor_count, hri_weights_count(merged));
  assert_int_equal(result.quantize, kind);
  assert_int_equal(result.merged_count, compare(&model, base, merged, sides, count, (uint32_t)kind));
  assert_int_equal(result.merged_count, hri_weights_count(sides[0].file) / 2);
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
  for (int c = 0; c < CASES; c++) merge_and_compare(c, weights, 3, "f32", HR_QUANTIZE_NONE);
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
  const struct CMUnitTest tests[] = {cmocka_unit_test(as_one_loop), cmocka_unit_test(several),
                                     cmocka_unit_test(through_quantized), cmocka_unit_test(without_memory)};
  return cmocka_run_group_tests(tests, make, drop);
}
