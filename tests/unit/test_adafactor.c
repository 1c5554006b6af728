/* Adafactor on every instruction set that this machine has:
 *   - 20 steps of matrices and vectors are as near to the double reference as torch.optim.Adafactor's fp32, whose steps
 *     are recorded (tests/parity/optim/adafactor.json), and the reference is what torch computes;
 *   - every combination of types steps as fp32 does from the same numbers; bf16 weights round by their elements;
 *   - teams do not show in any bit; a gradient that is no number shows in the weights. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "base/json.h"
#include "ops/cpu.h"
#include "ops/optim/ref.h"
#include "ops/optim/rounding.h"
#include "support/team.h"

#define ISA_KERNELS(suffix, table) hri_optim_kernels_##suffix(table)
#include "support/isas.h"

#define HOLDS(call)                                                                                                    \
  do {                                                                                                                 \
    hr_error error_ = {0}, *error = &error_;                                                                           \
    if ((call) != HR_OK) fail_msg("%s: %s", #call, error_.message);                                                    \
  } while (0)

/* The arithmetic of tests/parity/record_adafactor.py. */
static float value_at(uint32_t step, uint32_t element, int shift) {
  uint32_t h = element * 2654435761u + step * 40503u;
  h = (h ^ h >> 15) * 2246822519u;
  h = (h ^ h >> 13) * 3266489917u;
  h ^= h >> 16;
  return ldexpf((float)((int32_t)((h >> 12) % 4095) - 2047), shift - 11 - (int)(h % 8));
}

enum { MOST = 1 << 18 };
static float weights[MOST], gradients[MOST], factors[MOST], other_weights[MOST], other_factors[MOST];
static hri_bf16 narrow_weights[MOST], narrow_gradients[MOST], beside[MOST];
static double exact_weights[MOST], exact_gradients[MOST], exact_factors[MOST];

typedef struct shape {
  int64_t rows, columns; /* 0: a vector */
} shape;
static int64_t elements_of(shape s) { return s.rows * (s.columns ? s.columns : 1); }
static int64_t factors_of(shape s) { return s.columns ? s.rows + s.columns : s.rows; }

static void step(const hri_cpu_kernels *k, shape s, const hri_update_numbers *n, float *w, float *state, int threads) {
  hri_update_args u = {.n = elements_of(s), .w = w, .state = {state}, .g = gradients, .team = team_of(threads)};
  hri_update_numbers own = *n;
  own.columns = s.columns;
  k->update[HR_OPTIMIZER_ADAFACTOR](&u, &own);
}

/* ---- torch ---- */

static void from_hex(const char *text, float *out, int64_t count) {
  assert_int_equal(strlen(text), 8 * (size_t)count);
  for (int64_t i = 0; i < 4 * count; i++) {
    unsigned value;
    assert_int_equal(sscanf(text + 2 * i, "%2x", &value), 1);
    ((unsigned char *)out)[i] = (unsigned char)value;
  }
}

/* The largest distance from the exact values, as a part of the largest of these. */
static double distance(const float *x, const double *exact, int64_t n) {
  double most = 0, error = 0;
  for (int64_t i = 0; i < n; i++) {
    most = fmax(most, fabs(exact[i]));
    error = fmax(error, fabs((double)x[i] - exact[i]));
    if (!isfinite(x[i])) return INFINITY;
  }
  return most > 0 ? error / most : error;
}

/* At most four times as far away as torch is, which may be exact by chance: a rounding of the largest value is allowed. */
static void hold(const char *what, const isa *level, shape s, uint32_t t, const float *got, const float *recorded,
                 const double *exact, int64_t n) {
  double ours = distance(got, exact, n), torch = distance(recorded, exact, n);
  assert_true(torch < 2e-6); /* the reference is what torch computes */
  if (!(ours <= 4 * fmax(torch, 0x1p-24)))
    fail_msg("%s, %lld x %lld, step %u: the %s are %.3g away, torch's %.3g", level->name, (long long)s.rows,
             (long long)s.columns, t, what, ours, torch);
}

static void get_case(const hri_json *run, shape *s, int *shift, hri_update_numbers *n) {
  uint64_t rows, columns;
  int64_t by;
  *n = (hri_update_numbers){.gradient_scale = 1};
  HOLDS(hri_json_get_u64(run, "rows", 1, MOST, &rows, error));
  HOLDS(hri_json_get_u64(run, "columns", 0, MOST, &columns, error));
  HOLDS(hri_json_get_i64(run, "shift", -100, 100, &by, error));
  HOLDS(hri_json_get_double(run, "learning_rate", &n->learning_rate, error));
  HOLDS(hri_json_get_double(run, "weight_decay", &n->weight_decay, error));
  HOLDS(hri_json_get_double(run, "decay", &n->number[0], error));
  HOLDS(hri_json_get_double(run, "epsilon", &n->number[1], error));
  HOLDS(hri_json_get_double(run, "least", &n->number[2], error));
  HOLDS(hri_json_get_double(run, "clip", &n->number[3], error));
  *s = (shape){(int64_t)rows, (int64_t)columns};
  *shift = (int)by;
  n->columns = s->columns;
}

static void compare_with_recorded(const isa *level, const hri_json *run) {
  hri_update_numbers n;
  hri_json list;
  shape s;
  int shift;
  uint64_t at = 0;
  const char *text;
  get_case(run, &s, &shift, &n);
  int64_t count = elements_of(s);
  HOLDS(hri_json_get_array(run, "steps", &list, error));
  memset(factors, 0, sizeof factors);
  memset(exact_factors, 0, sizeof exact_factors);
  for (int64_t i = 0; i < count; i++) exact_weights[i] = (double)(weights[i] = value_at(1000, (uint32_t)i, 0));
  for (uint32_t t = 1; t <= 20; t++) {
    hri_json kept = hri_json_item(&list, at);
    uint64_t number;
    for (int64_t i = 0; i < count; i++) exact_gradients[i] = (double)(gradients[i] = value_at(t, (uint32_t)i, shift));
    n.t = t;
    hri_ref_update(HR_OPTIMIZER_ADAFACTOR, exact_weights, (double *[]){exact_factors}, exact_gradients, count, &n);
    step(&level->kernels, s, &n, weights, factors, 1);
    HOLDS(hri_json_get_u64(&kept, "step", 1, 20, &number, error));
    if (number != t) continue;
    HOLDS(hri_json_get_string(&kept, "weight", &text, error));
    from_hex(text, other_weights, count);
    hold("weights", level, s, t, weights, other_weights, exact_weights, count);
    at++;
  }
  assert_int_equal(at, 4);
  HOLDS(hri_json_get_string(run, "factors", &text, error));
  from_hex(text, other_factors, factors_of(s));
  hold("factors of rows", level, s, 20, factors, other_factors, exact_factors, s.rows);
  hold("factors of columns", level, s, 20, factors + s.rows, other_factors + s.rows, exact_factors + s.rows, s.columns);
}

static void steps_are_torch_s(void **state) {
  hri_json root = {0}, cases;
  (void)state;
  HOLDS(hri_json_read(HR_TEST_DATA "/parity/optim/adafactor.json", 1 << 20, &root, error));
  HOLDS(hri_json_get_array(&root, "cases", &cases, error));
  assert_int_equal(hri_json_count(&cases), 6);
  for (int s = 0; s < isa_count; s++)
    for (uint64_t k = 0; k < 6; k++) {
      hri_json run = hri_json_item(&cases, k);
      compare_with_recorded(&isas[s], &run);
    }
  hri_json_deinit(&root);
}

/* ---- types, teams ---- */

static const shape shapes[] = {{1, 1000}, {300, 70}, {64, 2048}, {1000, 3}, {7, 65}, {70000, 0}, {5, 0}};
enum { SHAPES = sizeof shapes / sizeof *shapes };
static const hri_update_numbers some = {.number = {-0.8, 0x1p-23, 1e-3, 1},
                                        .learning_rate = 0.01,
                                        .weight_decay = 0.1,
                                        .gradient_scale = 0.37,
                                        .t = 5};

/* Numbers that bf16 holds, so that all types begin with the same. */
static void begin(shape s) {
  for (int64_t i = 0; i < elements_of(s); i++) {
    narrow_weights[i] = hri_bf16_round(value_at(1000, (uint32_t)i, 0));
    narrow_gradients[i] = hri_bf16_round(value_at(3, (uint32_t)i, 0));
    weights[i] = other_weights[i] = hri_bf16_widen(narrow_weights[i]);
    gradients[i] = hri_bf16_widen(narrow_gradients[i]);
  }
  for (int64_t i = 0; i < factors_of(s); i++)
    factors[i] = other_factors[i] = fabsf(value_at(7, (uint32_t)i, 0)) + 0x1p-20f;
}

static void types_step_alike(void **state) {
  (void)state;
  for (int k = 0; k < isa_count * SHAPES * 6; k++) {
    const isa *level = &isas[k / 6 / SHAPES];
    shape s = shapes[k / 6 % SHAPES];
    const int types = k % 6; /* 2: two halves; 5: an fp16 copy */
    bool split = types == 2, narrow = split || types == 3 || types == 4, narrow_gradient = types == 1 || types == 3,
         copy = types == 5;
    hri_update_numbers n = some;
    hri_update_args u = {.n = elements_of(s),
                         .w = narrow ? (void *)narrow_weights : (void *)weights,
                         .w_real = narrow ? HRI_REAL_BF16 : HRI_REAL_F32,
                         .low = split ? beside : NULL,
                         .copy = copy ? beside : NULL,
                         .state = {factors},
                         .g = narrow_gradient ? (const void *)narrow_gradients : (const void *)gradients,
                         .gradient_real = narrow_gradient ? HRI_REAL_BF16 : HRI_REAL_F32,
                         .rounding = {.seed = 3, .step = 9, .site = 4},
                         .first_element = 40,
                         .team = team_of(2)};
    n.columns = s.columns;
    begin(s);
    memset(beside, 0, sizeof beside);
    for (int64_t i = 0; split && i < u.n; i++) { /* low halves that count */
      beside[i] = (uint16_t)(i * 40503 % 65521);
      other_weights[i] = hri_join(narrow_weights[i], beside[i]);
    }
    step(&level->kernels, s, &some, other_weights, other_factors, 1);
    level->kernels.update[HR_OPTIMIZER_ADAFACTOR](&u, &n);
    assert_memory_equal(factors, other_factors, (size_t)factors_of(s) * sizeof *factors);
    if (!narrow) assert_memory_equal(weights, other_weights, (size_t)u.n * sizeof *weights);
    for (int64_t i = 0; i < u.n; i++) {
      uint32_t bits = hri_rounding_bits(&u.rounding, HRI_ROUNDED_WEIGHT, 40 + i);
      uint16_t low;
      if (copy) assert_int_equal(beside[i], hri_f16_round(other_weights[i]));
      if (split) {
        assert_int_equal(narrow_weights[i], hri_split(other_weights[i], &low));
        assert_int_equal(beside[i], low);
      } else if (narrow && narrow_weights[i] != hri_bf16_round_random(other_weights[i], bits))
        fail_msg("%s, %lld x %lld: weight %lld rounds to %04x, not %04x", level->name, (long long)s.rows,
                 (long long)s.columns, (long long)i, narrow_weights[i], hri_bf16_round_random(other_weights[i], bits));
    }
  }
}

static void teams_do_not_show(void **state) {
  (void)state;
  for (int k = 0; k < isa_count * SHAPES * 3; k++) {
    shape s = shapes[k / 3 % SHAPES];
    begin(s);
    step(&isas[k / 3 / SHAPES].kernels, s, &some, weights, factors, 1);
    step(&isas[k / 3 / SHAPES].kernels, s, &some, other_weights, other_factors, 2 + k % 3);
    assert_memory_equal(weights, other_weights, (size_t)elements_of(s) * sizeof *weights);
    assert_memory_equal(factors, other_factors, (size_t)factors_of(s) * sizeof *factors);
  }
}

/* A run that does not skip such steps sees them in its loss. */
static void no_number_shows(void **state) {
  (void)state;
  for (int k = 0; k < isa_count * SHAPES * 2; k++) {
    shape s = shapes[k / 2 % SHAPES];
    int64_t at = elements_of(s) - 1;
    begin(s);
    gradients[at] = k % 2 ? NAN : INFINITY;
    step(&isas[k / 2 / SHAPES].kernels, s, &some, weights, factors, 1);
    assert_false(isfinite(weights[at]));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(steps_are_torch_s), cmocka_unit_test(types_step_alike),
                                     cmocka_unit_test(teams_do_not_show), cmocka_unit_test(no_number_shows)};
  return cmocka_run_group_tests(tests, setup_isas, NULL);
}
