/* Quantizing and dequantizing on the GPU in software: every bit is the CPU's, for each kind and type of weight, in two parts of odd
 * sizes; what has no code is found; and the blocks of GGUF files, of any bytes. */
#include "gpu/kernels.h"

#include "ops/isa.h"
#include "program/quantization.h"

static const hri_quantization kinds[] = {HRI_QUANTIZATION_NF4, HRI_QUANTIZATION_FP4, HRI_QUANTIZATION_NF4_DQ,
                                         HRI_QUANTIZATION_FP4_DQ, HRI_QUANTIZATION_INT8};

/* A weight and its codes, in the host's memory and on the device. */
typedef struct weight {
  hri_quant_layout layout;
  hri_quant_args host, device;
  uint64_t w_bytes, absmax_bytes, nested_bytes;
} weight;

static weight weight_of(soft_test *t, uint32_t kind, hri_real real, const uint64_t rows[2], const uint8_t *types,
                        uint64_t columns) {
  weight w;
  uint64_t scratch;
  assert_true(hri_quant_layout_make(kind, rows, types, 2, columns, &w.layout));
  w.w_bytes = (rows[0] + rows[1]) * columns * hri_real_bytes(real);
  w.absmax_bytes = w.layout.absmax_count * (hri_quant_is_double(kind) ? 1 : 4);
  w.nested_bytes = w.layout.nested_count * 4;
  scratch = hri_quant_scratch_bytes(kind, &w.layout);
  w.host = (hri_quant_args){.kind = kind, .real = real, .w = take(w.w_bytes), .codes = take(w.layout.code_bytes)};
  w.host.absmax = w.absmax_bytes ? take(w.absmax_bytes) : NULL;
  w.host.nested = w.nested_bytes ? take(w.nested_bytes) : NULL;
  w.host.scratch = take(scratch);
  w.device = (hri_quant_args){.kind = kind, .real = real, .w = soft_memory(t, w.w_bytes)};
  w.device.codes = soft_memory(t, w.layout.code_bytes);
  if (w.absmax_bytes) w.device.absmax = soft_memory(t, w.absmax_bytes);
  if (w.nested_bytes) w.device.nested = soft_memory(t, w.nested_bytes);
  if (scratch) w.device.scratch = soft_memory(t, scratch);
  return w;
}

static void same(soft_test *t, const char *what, const void *host, const void *device, uint64_t bytes) {
  unsigned char *got = take(bytes);
  if (!bytes) return;
  soft_clean(t);
  soft_download(t, got, device, bytes);
  for (uint64_t i = 0; i < bytes; i++)
    if (got[i] != ((const unsigned char *)host)[i])
      fail_msg("%s, byte %d of %d: %d, not %d", what, (int)i, (int)bytes, got[i], ((const unsigned char *)host)[i]);
}

static unsigned long long *no_bad(soft_test *t) {
  unsigned long long none = 0;
  return soft_upload(t, &none, sizeof none);
}

/* Variants: a part that ends within a block; rows for more than a nested block, and more than a level of its sum; few. */
static void both_ways_(soft_test *t, hri_real real, int variant) {
  static const uint64_t rows[][2] = {{7, 3}, {61, 9}, {1, 2}}, columns[] = {37, 801, 65};
  hri_cpu_kernels cpu = {0};
  unsigned long long bad, *on_device;
  hri_quant_kernels_base(&cpu);
  for (int k = 0; k < (int)(sizeof kinds / sizeof *kinds); k++) {
    weight w = weight_of(t, kinds[k], real, rows[variant], NULL, columns[variant]);
    int64_t n = (int64_t)(w.w_bytes / hri_real_bytes(real));
    w.host.layout = w.device.layout = &w.layout;
    for (int64_t i = 0; i < n; i++) {
      double scale = i / 640 % 7 == 3 ? 0 : exp2((double)(i / 64 % 5)); /* blocks of zeros, and of many sizes */
      hri_real_put(w.host.w, i, (float)(scale * hri_normal((uint64_t)variant, 5, (uint64_t)i)), real);
    }
    w.device.w = soft_upload(t, w.host.w, w.w_bytes);
    on_device = no_bad(t);
    assert_int_equal(hri_cuda_quantize(&w.device, on_device, t->stream), 0);
    assert_int_equal(cpu.quantize(&w.host), -1);
    same(t, "codes", w.host.codes, w.device.codes, w.layout.code_bytes);
    same(t, "absmax", w.host.absmax, w.device.absmax, w.absmax_bytes);
    same(t, "nested", w.host.nested, w.device.nested, w.nested_bytes);
    soft_download(t, &bad, on_device, sizeof bad);
    assert_true(bad == 0);
    w.device.w = soft_memory(t, w.w_bytes);
    assert_int_equal(hri_cuda_dequantize(&w.device, t->stream), 0);
    cpu.dequantize(&w.host);
    same(t, hri_quantization_name(kinds[k]), w.host.w, w.device.w, w.w_bytes);
  }
}
static void both_ways(void **state) {
  (void)state;
  each(both_ways_, 3);
}

/* What the verdict says of two parts, 4 and 3 rows of 70, of small numbers but for those at `places`. */
static unsigned long long verdict_of(hri_quantization kind, hri_real real, const int places[3], float value) {
  const uint64_t rows[2] = {4, 3};
  soft_test t = soft_open((uint64_t)kind);
  weight w = weight_of(&t, kind, real, rows, NULL, 70);
  unsigned long long bad, *on_device = no_bad(&t);
  w.device.layout = &w.layout;
  for (int i = 0; i < 490; i++) hri_real_put(w.host.w, i, (float)(i % 9), real);
  for (int k = 0; k < 3; k++) hri_real_put(w.host.w, places[k], value, real);
  w.device.w = soft_upload(&t, w.host.w, w.w_bytes);
  assert_int_equal(hri_cuda_quantize(&w.device, on_device, t.stream), 0);
  soft_clean(&t);
  soft_download(&t, &bad, on_device, sizeof bad);
  soft_close(&t);
  give_all();
  return bad;
}

/* The first element without a code: NaN, infinity, in int8 what no fp16 holds; with double quantization the largest where
 * their mean overflows. */
static void without_code(void **state) {
  const int places[3] = {451, 201, 200}, second_part[3] = {300, 380, 451};
  (void)state;
  for (int k = 0; k < (int)(sizeof kinds / sizeof *kinds); k++) {
    bool rows = kinds[k] == HRI_QUANTIZATION_INT8, twice = hri_quant_is_double(kinds[k]);
    assert_true(verdict_of(kinds[k], HRI_REAL_F32, places, NAN) == ~200ull);
    assert_true(verdict_of(kinds[k], HRI_REAL_BF16, places, -INFINITY) == ~200ull);
    assert_true(verdict_of(kinds[k], HRI_REAL_F32, places, 1e5f) == (rows ? ~200ull : 0));
    assert_true(verdict_of(kinds[k], HRI_REAL_F32, second_part, -3e38f) == (rows || twice ? ~300ull : 0));
    assert_true(verdict_of(kinds[k], HRI_REAL_BF16, second_part, 3e38f) == (rows || twice ? ~300ull : 0));
  }
}

/* Two parts, each of a type of its own. NaNs (of scales) are all alike. */
static void kept_(soft_test *t, hri_real real, int variant) {
  static const uint8_t pairs[][2] = {{HRI_Q4_0, HRI_Q4_1}, {HRI_Q5_0, HRI_Q5_1}, {HRI_Q8_0, HRI_IQ4_NL},
                                     {HRI_Q4_K, HRI_Q5_K}, {HRI_Q6_K, HRI_Q2_K}, {HRI_Q3_K, HRI_IQ4_XS},
                                     {HRI_F32, HRI_F16},   {HRI_BF16, HRI_Q4_0}};
  const uint64_t rows[2] = {3, 2};
  hri_cpu_kernels cpu = {0};
  weight w = weight_of(t, HRI_QUANTIZATION_KEEP, real, rows, pairs[variant], 512);
  unsigned char *got = take(w.w_bytes);
  hri_quant_kernels_base(&cpu);
  w.host.layout = w.device.layout = &w.layout;
  for (uint64_t i = 0; i < w.layout.code_bytes; i++)
    w.host.codes[i] = (uint8_t)(hri_normal(3, (uint64_t)variant, i) * 1e4);
  w.device.codes = soft_upload(t, w.host.codes, w.layout.code_bytes);
  assert_int_equal(hri_cuda_dequantize(&w.device, t->stream), 0);
  cpu.dequantize(&w.host);
  soft_clean(t);
  soft_download(t, got, w.device.w, w.w_bytes);
  for (int64_t i = 0; i < (int64_t)(w.w_bytes / hri_real_bytes(real)); i++) {
    float x = hri_real_get(got, i, real), y = hri_real_get(w.host.w, i, real);
    if (memcmp(&x, &y, sizeof x) != 0 && !(isnan(x) && isnan(y)))
      fail_msg("types %d, element %d: %.9g, not %.9g", variant, (int)i, (double)x, (double)y);
  }
}
static void kept(void **state) {
  (void)state;
  each(kept_, 8);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(both_ways), cmocka_unit_test(without_code),
                                     cmocka_unit_test(kept)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
