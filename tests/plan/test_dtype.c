/* Element types of weight files and the conversions of 16-bit floats, against the definition in double. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/dtype.h"

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* A 16-bit float with `mantissa` bits of mantissa and this exponent bias, by its definition. */
static double define(uint16_t half, int mantissa, int bias) {
  int exponent = (half & 0x7FFF) >> mantissa, top = (1 << (15 - mantissa)) - 1;
  int fraction = half & ((1 << mantissa) - 1);
  double value;
  if (exponent == top) value = fraction ? NAN : INFINITY;
  else if (exponent == 0) value = ldexp(fraction, 1 - bias - mantissa);
  else value = ldexp(fraction + (1 << mantissa), exponent - bias - mantissa);
  return half & 0x8000 ? -value : value;
}

typedef struct format {
  int mantissa, bias;
  void (*widen)(float *, const uint16_t *, uint64_t);
  void (*narrow)(uint16_t *, const float *, uint64_t);
} format;

static const format formats[] = {{10, 15, hri_f32_from_f16, hri_f16_from_f32},
                                 {7, 127, hri_f32_from_bf16, hri_bf16_from_f32}};

static uint16_t all_halves[65536], narrowed[65536];
static float widened[65536];

static void test_widen_all(void **state) {
  size_t f;
  uint32_t i;
  (void)state;
  for (i = 0; i < 65536; i++) all_halves[i] = (uint16_t)i;
  for (f = 0; f < 2; f++) {
    formats[f].widen(widened, all_halves, 65536);
    formats[f].narrow(narrowed, widened, 65536);
    for (i = 0; i < 65536; i++) {
      double wanted = define((uint16_t)i, formats[f].mantissa, formats[f].bias);
      uint16_t quiet = (uint16_t)(1 << (formats[f].mantissa - 1));
      if (isnan(wanted)) { /* sign and payload stay, the quiet bit is set */
        assert_true(isnan(widened[i]) && (bits_of(widened[i]) & 0x00400000));
        assert_int_equal(narrowed[i], i | quiet);
      } else {
        assert_true((double)widened[i] == wanted && !signbit(widened[i]) == !(i & 0x8000));
        assert_int_equal(narrowed[i], i); /* exact, so there and back is the identity */
      }
    }
  }
}

/* Rounds by definition: the nearest of two neighbours in double, ties to the even one. */
static uint16_t round_by_definition(float value, const format *to) {
  uint16_t low = 0, high = (uint16_t)(((1 << (15 - to->mantissa)) - 1) << to->mantissa); /* zero, infinity */
  double magnitude = fabs((double)value), below, above, top = ldexp(2 - ldexp(1, -to->mantissa), to->bias);
  double beyond = ldexp(2, to->bias); /* where the next value would be; rounding to it gives infinity */
  if (magnitude > top) {
    low = (uint16_t)(high - 1);
  } else {
    while (high - low > 1) {
      uint16_t middle = (uint16_t)(low + (high - low) / 2);
      if (define(middle, to->mantissa, to->bias) <= magnitude) low = middle;
      else high = middle;
    }
  }
  below = define(low, to->mantissa, to->bias);
  above = isinf(define(high, to->mantissa, to->bias)) ? beyond : define(high, to->mantissa, to->bias);
  if (magnitude - below > above - magnitude || (magnitude - below == above - magnitude && (low & 1))) low = high;
  return (uint16_t)(low | (signbit(value) ? 0x8000 : 0));
}

static void check_narrow(uint32_t bits, const format *to) {
  float value = float_of(bits);
  uint16_t got;
  if (isnan(value)) return;
  to->narrow(&got, &value, 1);
  if (got != round_by_definition(value, to))
    fail_msg("0x%08x became 0x%04x, not 0x%04x", bits, got, round_by_definition(value, to));
}

/* The values that decide: each representable value, each midpoint between neighbours, and one float beside them. */
static void test_narrow_rounds(void **state) {
  uint32_t i, random = 12345;
  int d;
  size_t f;
  (void)state;
  for (f = 0; f < 2; f++) {
    const format *to = &formats[f];
    for (i = 0; i < 0x7FFF; i++) {
      double here = define((uint16_t)i, to->mantissa, to->bias),
             next = define((uint16_t)(i + 1), to->mantissa, to->bias);
      uint32_t middle;
      if (isnan(here) || isinf(here)) break;
      if (isinf(next)) next = ldexp(2, to->bias);
      middle = bits_of((float)((here + next) / 2));
      for (d = -1; d <= 1; d++) {
        check_narrow(bits_of((float)here) + (uint32_t)d, to);
        check_narrow(middle + (uint32_t)d, to);
        check_narrow((middle + (uint32_t)d) | 0x80000000, to);
      }
    }
    for (i = 0; i < 200000; i++) {
      random = random * 1664525 + 1013904223;
      check_narrow(random, to);
    }
  }
}

static void test_narrow_special(void **state) {
  static const struct {
    uint32_t from;
    uint16_t f16, bf16;
  } cases[] = {
      {0x00000000, 0x0000, 0x0000}, {0x80000000, 0x8000, 0x8000}, {0x7F800000, 0x7C00, 0x7F80},
      {0xFF800000, 0xFC00, 0xFF80}, {0x7F800001, 0x7E00, 0x7FC0}, /* a signalling NaN whose payload is lost stays NaN */
      {0xFFC00000, 0xFE00, 0xFFC0}, {0x7FFFFFFF, 0x7FFF, 0x7FFF}, {0x477FE000, 0x7BFF, 0x4780}, /* 65504 */
      {0x477FEFFF, 0x7BFF, 0x4780}, {0x477FF000, 0x7C00, 0x4780},                               /* below and at 65520 */
      {0x7F7FFFFF, 0x7C00, 0x7F80}, {0x33000000, 0x0000, 0x3300},                               /* 2^-25 ties to zero */
      {0x33000001, 0x0001, 0x3300}, {0x00000001, 0x0000, 0x0000}, {0x00008001, 0x0000, 0x0001},
      {0x3F808000, 0x3C04, 0x3F80}, {0x3F818000, 0x3C0C, 0x3F82}, /* ties to even, down and up */
  };
  size_t i;
  (void)state;
  for (i = 0; i < sizeof cases / sizeof *cases; i++) {
    float value = float_of(cases[i].from);
    uint16_t f16, bf16;
    hri_f16_from_f32(&f16, &value, 1);
    hri_bf16_from_f32(&bf16, &value, 1);
    assert_int_equal(f16, cases[i].f16);
    assert_int_equal(bf16, cases[i].bf16);
  }
}

static void test_generic(void **state) {
  static const hri_file_dtype supported[] = {HRI_FILE_F32, HRI_FILE_BF16, HRI_FILE_F16, HRI_FILE_F64};
  const float values[5] = {1.5f, -2.0f, 0.0f, 0x1p-20f, 1024.0f};
  size_t i;
  (void)state;
  for (i = 0; i < 4; i++) {
    double stored[5]; /* wide enough and aligned for all */
    float back[5] = {0};
    assert_true(hri_file_from_f32(supported[i], stored, values, 5));
    assert_true(hri_file_to_f32(supported[i], back, stored, 5));
    assert_memory_equal(values, back, sizeof values);
    assert_true(hri_file_to_f32(supported[i], NULL, NULL, 0));
  }
  assert_false(hri_file_to_f32(HRI_FILE_I32, NULL, NULL, 0));
  assert_false(hri_file_from_f32(HRI_FILE_F8_E4M3, NULL, NULL, 0));
}

static void test_names_and_sizes(void **state) {
  const uint64_t zero_first[] = {0, UINT64_MAX, 2}, zero_last[] = {UINT64_MAX, 2, 0}, plain[] = {3, 5};
  hri_file_dtype dtype;
  uint64_t out = 0;
  int i;
  (void)state;
  for (i = 0; i < HRI_FILE_DTYPE_COUNT; i++) {
    assert_true(hri_file_dtype_parse(hri_file_dtype_name((hri_file_dtype)i), &dtype));
    assert_int_equal(dtype, i);
    assert_in_range(hri_file_dtype_bits(dtype), 4, 64);
  }
  assert_false(hri_file_dtype_parse("f32", &dtype) || hri_file_dtype_parse("", &dtype) ||
               hri_file_dtype_parse("F16 ", &dtype));
  assert_true(hri_file_elements(0, NULL, &out) && out == 1);
  assert_true(hri_file_elements(2, plain, &out) && out == 15);
  assert_true(hri_file_elements(3, zero_first, &out) && out == 0);
  assert_false(hri_file_elements(3, zero_last, &out));
  assert_true(hri_file_bytes(HRI_FILE_F4, 6, &out) && out == 3);
  assert_true(hri_file_bytes(HRI_FILE_F6_E3M2, 4, &out) && out == 3);
  assert_false(hri_file_bytes(HRI_FILE_F4, 5, &out) || hri_file_bytes(HRI_FILE_BF16, UINT64_MAX / 16 + 1, &out));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_widen_all), cmocka_unit_test(test_narrow_rounds),   cmocka_unit_test(test_narrow_special),
      cmocka_unit_test(test_generic),   cmocka_unit_test(test_names_and_sizes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
