/* Quantizing and dequantizing on the GPU in software: every bit is the CPU's, for each kind and type of weight, in two parts of odd
 * sizes, where a quotient and a product by a reciprocal lie on two sides of a bound, and whatever the length of what a mean is of;
 * what has no code is found; and the blocks of GGUF files, of any bytes. */
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

/* Quantizes w.host.w on both sides; codes, absmax and means are equal. */
static void quantized_alike(soft_test *t, weight *w) {
  hri_cpu_kernels cpu = {0};
  hri_quant_kernels_base(&cpu);
  w->host.layout = w->device.layout = &w->layout;
  w->device.w = soft_upload(t, w->host.w, w->w_bytes);
  assert_int_equal(hri_cuda_quantize(&w->device, no_bad(t), t->stream), 0);
  assert_int_equal(cpu.quantize(&w->host), -1);
  same(t, "codes", w->host.codes, w->device.codes, w->layout.code_bytes);
  same(t, "absmax", w->host.absmax, w->device.absmax, w->absmax_bytes);
  same(t, "nested", w->host.nested, w->device.nested, w->nested_bytes);
}

/* A part block is divided by its largest, `most`, not multiplied by a reciprocal: elements that lie at the bounds between codes.
 * How many of them the two put on different sides. */
static int at_bounds(float *w, uint32_t kind, float most) {
  const float *bound = hri_quant_bounds(kind);
  float inverse = 1.0f / most;
  int differ = 0;
  w[0] = most;
  for (int k = 0; k < HRI_QUANT_VALUES - 1; k++) {
    volatile float product;
    w[1 + k] = bound[k] * most;
    product = w[1 + k] * inverse;
    differ += (product > bound[k]) != (w[1 + k] / most > bound[k]);
  }
  return differ;
}
static void part_blocks(void **state) {
  const uint64_t rows[2] = {1, 1};
  (void)state;
  for (int k = 0; k < 2; k++) {
    int differ = 0;
    for (int most = 3; most < 40; most += 4) {
      soft_test t = soft_open((uint64_t)most);
      weight w = weight_of(&t, kinds[k], HRI_REAL_F32, rows, NULL, HRI_QUANT_VALUES);
      differ += at_bounds(w.host.w, kinds[k], (float)most);
      differ += at_bounds((float *)w.host.w + HRI_QUANT_VALUES, kinds[k], (float)(most + 2));
      quantized_alike(&t, &w);
      soft_close(&t);
      give_all();
    }
    assert_true(differ > 0);
  }
}

/* The mean of double quantization is added in the CPU's order: of whole groups of eight behind rows of 32, and of so many rows
 * that sums go up more than one level; then one lane of 32 alone has what is not 0, so that its rounding is that of the whole.
 * Each row of the weight is a block, whose absmax is its first element. */
static void means(void **state) {
  static const struct {
    uint64_t rows[2], each;
  } cases[] = {{{40, 104}, 1}, {{48, 72}, 1}, {{88, 16}, 1}, {{17000, 22000}, 32}, {{24, 31000}, 32}};
  (void)state;
  for (int c = 0; c < (int)(sizeof cases / sizeof *cases); c++) {
    soft_test t = soft_open((uint64_t)c);
    weight w = weight_of(&t, HRI_QUANTIZATION_NF4_DQ, HRI_REAL_F32, cases[c].rows, NULL, HRI_QUANT_BLOCK);
    for (uint64_t i = 0; i < cases[c].rows[0] + cases[c].rows[1]; i += cases[c].each)
      ((float *)w.host.w)[i * HRI_QUANT_BLOCK] = (float)(0.01 + fabs(hri_normal((uint64_t)c, 5, i)));
    quantized_alike(&t, &w);
    soft_close(&t);
    give_all();
  }
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
  const struct CMUnitTest tests[] = {cmocka_unit_test(both_ways), cmocka_unit_test(part_blocks),
                                     cmocka_unit_test(means), cmocka_unit_test(without_code), cmocka_unit_test(kept)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
