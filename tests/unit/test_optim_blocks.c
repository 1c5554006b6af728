/* Optimizer steps with 8-bit states, on every instruction set that this machine has:
 *   - the maps are those of bitsandbytes, bit by bit, and quantizing is its search, for every threshold and its
 *     neighbours, both signs, zeros, subnormals and what is no number;
 *   - 50 steps give the codes and scales of the readable reference (tests/support/blocks.h) in every combination of
 *     types, with zero blocks, gradients that are infinite or NaN, and a last block that is not full;
 *   - the reference with the rules of the CPU path gives what bitsandbytes' CPU path gave (tests/parity/optim);
 *   - teams, slices and instruction sets do not show in states. */
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
#include "ops/optim/rounding.h"
#include "program/optimizer.h"
#include "support/blocks.h"
#include "support/team.h"

#define ISA_KERNELS(suffix, table) hri_optim_kernels_##suffix(table)
#include "support/isas.h"

static float from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* ---- gradients: the arithmetic of tests/parity/record_optim.py ---- */

static float gradient_at(uint32_t step, uint32_t element) {
  uint32_t h = element * 2654435761u + step * 40503u;
  h = (h ^ h >> 15) * 2246822519u;
  h = (h ^ h >> 13) * 3266489917u;
  h ^= h >> 16;
  return ldexpf((float)((int32_t)((h >> 12) % 4095) - 2047), -(int)(h % 20));
}

/* ---- the search ---- */

/* What the tables say of value / scale, as the kernels use them. */
static unsigned table_code(const hri_dynamic_maps *maps, bool is_signed, float value, float scale) {
  uint32_t shift = is_signed ? HRI_DYNAMIC_SIGNED_SHIFT : HRI_DYNAMIC_UNSIGNED_SHIFT;
  uint32_t buckets = is_signed ? HRI_DYNAMIC_SIGNED_BUCKETS : HRI_DYNAMIC_UNSIGNED_BUCKETS;
  uint32_t bits = bits_of(fabsf(value) / scale) & 0x7FFFFFFFu,
           at = bits > HRI_DYNAMIC_LOWEST ? bits - HRI_DYNAMIC_LOWEST : 0;
  uint32_t bucket = at >> shift < buckets - 1 ? at >> shift : buckets - 1, entry;
  bool negative = is_signed && signbit(value);
  entry = is_signed ? maps->signed_entries[bucket + (negative ? buckets : 0)] : maps->unsigned_entries[bucket];
  bool next = (at & ((1u << shift) - 1)) >= (entry & ((1u << HRI_DYNAMIC_CODE) - 1));
  return negative ? (entry >> HRI_DYNAMIC_CODE) - next : (entry >> HRI_DYNAMIC_CODE) + next;
}

static void check_code(bool is_signed, float value, float scale) {
  const hri_dynamic_maps *maps = hri_dynamic_maps_get();
  const float *map = is_signed ? maps->signed_map : maps->unsigned_map;
  unsigned want = block_search(map, is_signed, value / scale), got = table_code(maps, is_signed, value, scale);
  if (is_signed) want = block_keep_sign(map, want, value);
  if (got != want)
    fail_msg("%s map, %.9g / %.9g: code %u, not %u", is_signed ? "signed" : "unsigned", (double)value, (double)scale,
             got, want);
}

static void quantizing_is_the_search(void **state) {
  const hri_dynamic_maps *maps = hri_dynamic_maps_get();
  static const float scales[] = {1.0f, 3.7f, 1e-30f, 1e-44f, 0.0f};
  uint32_t seen[2] = {0, 0};
  (void)state;
  for (int is_signed = 0; is_signed < 2; is_signed++) {
    const float *map = is_signed ? maps->signed_map : maps->unsigned_map;
    for (int code = 0; code < 255; code++) { /* thresholds, map values, and what lies around them */
      float points[] = {(map[code] + map[code + 1]) * 0.5f, map[code], map[code + 1]};
      assert_true(map[code] < map[code + 1]);
      for (int k = 0; k < 3; k++) {
        float low = nextafterf(points[k], -2), high = nextafterf(points[k], 2);
        check_code(is_signed, points[k], 1);
        if (is_signed || low >= 0) check_code(is_signed, low, 1);
        if (high <= 1) check_code(is_signed, high, 1);
        seen[is_signed]++;
      }
    }
    for (uint32_t bits = 0; bits <= 0x3F800000u; bits += 997) { /* a sweep of all magnitudes up to 1 */
      check_code(is_signed, from_bits(bits), 1);
      if (is_signed) check_code(true, -from_bits(bits), 1);
    }
    for (size_t s = 0; s < sizeof scales / sizeof *scales; s++) {
      check_code(is_signed, 0.0f, scales[s]);
      if (is_signed) check_code(true, -0.0f, scales[s]);
      check_code(is_signed, scales[s], scales[s]);
      check_code(is_signed, scales[s] / 2, scales[s]);
      if (is_signed) check_code(true, -scales[s] / 3, scales[s]);
    }
    check_code(is_signed, NAN, 1.0f);
    check_code(is_signed, 1.0f, INFINITY); /* of infinity itself nothing is left to compare */
  }
  assert_int_equal(seen[0] + seen[1], 2 * 255 * 3);
  assert_int_equal(table_code(maps, true, -1e-9f, 1), 126); /* keeps its sign; */
  assert_int_equal(table_code(maps, true, 1e-9f, 1), 127);  /* 0 counts as positive */
  assert_int_equal(table_code(maps, true, (maps->signed_map[140] + maps->signed_map[141]) * 0.5f, 1), 140); /* ties: */
  assert_int_equal(table_code(maps, true, (maps->signed_map[141] + maps->signed_map[142]) * 0.5f, 1), 142); /* even */
}

/* ---- kernels beside the reference ---- */

enum { N = 8192 + 3 * 256 + 77, BLOCKS = (N + 255) / 256, STEPS = 50, TYPES = 8 };

typedef struct arrays {
  void *w;
  uint16_t beside[N]; /* low halves, a copy */
  uint8_t codes[2][N];
  float scales[2][BLOCKS];
} arrays;

static float wide_weights[2][N], gradients[N];
static hri_bf16 narrow_weights[2][N], narrow_gradients[N];
static double weights[N];
static arrays kept[2], want;

static void initial(arrays *a, int which, bool narrow) {
  memset(a, 0, sizeof *a);
  for (int i = 0; i < N; i++) {
    float value = hri_bf16_widen(hri_bf16_round(gradient_at(1000, (uint32_t)i)));
    wide_weights[which][i] = value;
    narrow_weights[which][i] = hri_bf16_round(value);
    weights[i] = (double)value;
  }
  a->w = narrow ? (void *)narrow_weights[which] : (void *)wide_weights[which];
}

/* With a block of zeros in some steps, values far apart, -0, subnormals, and, with `wild`, what is no number. */
static void fill_gradients(uint32_t step, bool narrow, bool wild) {
  for (int i = 0; i < N; i++) {
    float g = gradient_at(step, (uint32_t)i);
    if (i / 256 == 3 && step % 5 < 3) g = step % 2 ? 0.0f : -0.0f;
    if (i / 256 == 5) g *= 1e-41f;
    if (i / 256 == 6) g *= 1e15f;
    if (i % 300 == 7 && wild && step % 3 == 0) g = i % 2 ? NAN : step % 2 ? INFINITY : -INFINITY;
    if (i / 256 == 9 && wild && step == 6) g = NAN; /* a whole block */
    narrow_gradients[i] = hri_bf16_round(g);
    gradients[i] = narrow ? hri_bf16_widen(narrow_gradients[i]) : g;
  }
}

static const block_rule adamw_rule =
    {.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .learning_rate = 1e-3, .weight_decay = 0.1, .gradient_scale = 0.37};
static const block_rule lion_rule =
    {.lion = true, .beta1 = 0.9, .beta2 = 0.99, .learning_rate = 1e-3, .weight_decay = 0.1, .gradient_scale = 0.37};

static bool narrow_types(int types) { return types % 4 == 1 || types % 4 == 2; }

/* Types: f32, bf16 in two halves, bf16, f32 with an fp16 copy; of f32 and bf16 gradients of either type. */
static void step(const hri_cpu_kernels *k, const block_rule *r, int types, arrays *a, uint32_t t, int64_t begin,
                 int64_t n, int threads) {
  bool narrow = narrow_types(types), narrow_gradient = types / 4 && types % 2 == 0;
  hri_update_args u = {.n = n,
                       .w = narrow ? (void *)((hri_bf16 *)a->w + begin) : (void *)((float *)a->w + begin),
                       .w_real = narrow ? HRI_REAL_BF16 : HRI_REAL_F32,
                       .low = types % 4 == 1 ? a->beside + begin : NULL,
                       .copy = types % 4 == 3 ? a->beside + begin : NULL,
                       .g = narrow_gradient ? (const void *)(narrow_gradients + begin)
                                            : (const void *)(gradients + begin),
                       .gradient_real = narrow_gradient ? HRI_REAL_BF16 : HRI_REAL_F32,
                       .rounding = {.seed = 3, .step = t, .site = 4},
                       .first_element = 40 + begin, /* of a part that begins anywhere */
                       .team = team_of(threads)};
  hri_update_numbers numbers = {.number = {r->beta1, r->beta2, r->epsilon},
                                .learning_rate = r->learning_rate,
                                .weight_decay = r->weight_decay,
                                .gradient_scale = r->gradient_scale,
                                .t = t};
  u.state[0] = a->codes[0] + begin;
  u.state[r->lion ? 1 : 2] = a->scales[0] + begin / 256;
  if (!r->lion) u.state[1] = a->codes[1] + begin, u.state[3] = a->scales[1] + begin / 256;
  k->update[r->lion ? HR_OPTIMIZER_LION8BIT : HR_OPTIMIZER_ADAMW8BIT](&u, &numbers);
}

static void same_states(const arrays *a, const arrays *b, const char *name, uint32_t t) {
  for (int s = 0; s < 2; s++) {
    for (int i = 0; i < BLOCKS; i++)
      if (bits_of(a->scales[s][i]) != bits_of(b->scales[s][i]))
        fail_msg("%s, step %u: scale %d of state %d is %.9g, not %.9g", name, t, i, s, (double)a->scales[s][i],
                 (double)b->scales[s][i]);
    for (int i = 0; i < N; i++)
      if (a->codes[s][i] != b->codes[s][i])
        fail_msg("%s, step %u: code %d of state %d is %u, not %u", name, t, i, s, a->codes[s][i], b->codes[s][i]);
  }
}

/* A weight's step is the reference's but for a few roundings of weight and step (which is 1e-3 / sqrt(1 - beta2) at
 * most); in bf16 the reference
 * takes over the rounded weight after each step. */
static void near_weights(const arrays *a, int types, const char *name, uint32_t t) {
  for (int i = 0; i < N; i++) {
    double got = types % 4 == 2   ? (double)hri_bf16_widen(((hri_bf16 *)a->w)[i])
                 : types % 4 == 1 ? (double)hri_join(((hri_bf16 *)a->w)[i], a->beside[i])
                                  : (double)((float *)a->w)[i];
    double allowed = (types % 4 == 2 ? 0x1p-7 : 0x1p-21) * (fabs(weights[i]) + 0.032);
    if (!(fabs(got - weights[i]) <= allowed))
      fail_msg("%s, step %u: weight %d is %.9g, not %.9g", name, t, i, got, weights[i]);
    if (types % 4 == 3) assert_int_equal(a->beside[i], hri_f16_round(((float *)a->w)[i]));
    weights[i] = got;
  }
}

static void compare_with_reference(const isa *with, const block_rule *r, int types, bool wild) {
  initial(&want, 1, false);
  initial(&kept[0], 0, narrow_types(types));
  for (uint32_t t = 1; t <= STEPS; t++) {
    fill_gradients(t, types / 4, wild);
    step(&with->kernels, r, types, &kept[0], t, 0, N, 1 + (int)t % 4);
    blocks_reference(r, t, gradients, N, weights, want.codes[0], want.codes[1], want.scales[0], want.scales[1]);
    same_states(&kept[0], &want, with->name, t);
    near_weights(&kept[0], types, with->name, t);
  }
  for (int i = 0; i < 256; i++) assert_true(want.codes[0][i] != want.codes[0][256 + i] || i % 16); /* not all alike */
}

static void fifty_steps_are_the_reference(void **state) {
  (void)state;
  for (int s = 0; s < isa_count; s++)
    for (int types = 0; types < TYPES; types++)
      for (int wild = 0; wild < 2; wild++) {
        compare_with_reference(&isas[s], &adamw_rule, types, wild);
        compare_with_reference(&isas[s], &lion_rule, types, wild);
      }
}

/* With beta1 = beta2 = 0 the first state is the gradient and the second its square: every threshold of both maps and
 * what is next to it, through the kernels, of blocks with several scales. */
static void thresholds_through_the_kernels(void **state) {
  static const float scales[] = {1, 3.7f, 0.013f, 3e-15f, 5e14f, 1e-33f};
  const hri_dynamic_maps *maps = hri_dynamic_maps_get();
  block_rule r = adamw_rule;
  (void)state;
  r.beta1 = r.beta2 = 0, r.gradient_scale = 1;
  for (int s = 0; s < isa_count; s++)
    for (int turn = 0; turn < 11 * 2 * 6; turn++) {
      int off = turn % 11 - 5;
      const float *map = turn / 11 % 2 ? maps->signed_map : maps->unsigned_map;
      float scale = scales[turn / 22];
      initial(&want, 1, false);
      initial(&kept[0], 0, false);
      for (int i = 0; i < N; i++) {
        float middle = (map[i % 255] + map[i % 255 + 1]) * 0.5f, g = scale * (turn / 11 % 2 ? middle : sqrtf(middle));
        for (int k = 0; k < abs(off); k++) g = nextafterf(g, off < 0 ? -INFINITY : INFINITY);
        gradients[i] = i % 256 == 255 ? scale : g;
      }
      step(&isas[s].kernels, &r, 0, &kept[0], 1, 0, N, 1);
      blocks_reference(&r, 1, gradients, N, weights, want.codes[0], want.codes[1], want.scales[0], want.scales[1]);
      same_states(&kept[0], &want, isas[s].name, 1);
    }
}

static void teams_and_slices_do_not_show(void **state) {
  static const int64_t cuts[] = {0, 256, 8192, 8192 + 256, N};
  (void)state;
  for (int s = 0; s < isa_count; s++)
    for (int types = 0; types < TYPES; types++)
      for (int way = 2; way <= 5; way++) { /* teams of 2, 3, 4; slices */
        const block_rule *r = way % 2 ? &adamw_rule : &lion_rule;
        initial(&kept[0], 0, narrow_types(types));
        initial(&kept[1], 1, narrow_types(types));
        for (uint32_t t = 1; t <= 3; t++) {
          fill_gradients(t, types / 4, false);
          step(&isas[s].kernels, r, types, &kept[0], t, 0, N, 1);
          if (way < 5) step(&isas[s].kernels, r, types, &kept[1], t, 0, N, way);
          for (int k = 0; way == 5 && k < 4; k++)
            step(&isas[s].kernels, r, types, &kept[1], t, cuts[k], cuts[k + 1] - cuts[k], 2);
        }
        same_states(&kept[0], &kept[1], isas[s].name, 3);
        assert_memory_equal(kept[0].w, kept[1].w, (narrow_types(types) ? sizeof(hri_bf16) : sizeof(float)) * N);
        assert_memory_equal(kept[0].beside, kept[1].beside, sizeof kept[0].beside);
      }
}

/* The bits by which bf16 weights round go by the element of the parameter (ops/optim/rounding.h): a step of Lion from
 * zero weights is the rate, whose rounding is known. */
static void weights_round_by_their_elements(void **state) {
  block_rule r = lion_rule;
  (void)state;
  r.learning_rate = 1.0 + 0x1p-9; /* between two values of bf16 */
  for (int s = 0; s < isa_count; s++) {
    initial(&kept[0], 0, true);
    memset(narrow_weights[0], 0, sizeof narrow_weights[0]);
    for (int i = 0; i < N; i++) gradients[i] = -1;
    step(&isas[s].kernels, &r, 2, &kept[0], 9, 0, N, 3);
    for (int i = 0; i < N; i++) {
      const hri_rounding rounding = {.seed = 3, .step = 9, .site = 4};
      assert_int_equal(narrow_weights[0][i],
                       hri_bf16_round_random((float)r.learning_rate,
                                             hri_rounding_bits(&rounding, HRI_ROUNDED_WEIGHT, 40 + i)));
    }
  }
}

/* ---- bitsandbytes ---- */

#define HOLDS(call)                                                                                                    \
  do {                                                                                                                 \
    hr_error error_ = {0}, *error = &error_;                                                                           \
    if ((call) != HR_OK) fail_msg("%s: %s", #call, error_.message);                                                    \
  } while (0)

static void from_hex(const char *text, void *out, size_t bytes) {
  assert_int_equal(strlen(text), 2 * bytes);
  for (size_t i = 0; i < bytes; i++) {
    unsigned value;
    assert_int_equal(sscanf(text + 2 * i, "%2x", &value), 1);
    ((unsigned char *)out)[i] = (unsigned char)value;
  }
}

static void text_at(const hri_json *array, uint64_t index, void *out, size_t bytes) {
  hri_json item = hri_json_item(array, index);
  assert_true(json_is_string(item.value));
  from_hex(json_string_value(item.value), out, bytes);
}

enum { RECORDED = 700, RECORDED_BLOCKS = 3 };

static void compare_with_recorded(const hri_json *root, const char *name, const block_rule *r) {
  static uint8_t codes[2][RECORDED], recorded[RECORDED];
  float scales[2][RECORDED_BLOCKS] = {{0}}, recorded_scales[RECORDED_BLOCKS];
  uint32_t states = r->lion ? 1 : 2;
  uint64_t at = 0;
  hri_json list, run;
  HOLDS(hri_json_get_object(root, name, &run, error));
  HOLDS(hri_json_get_array(&run, "steps", &list, error));
  assert_int_equal(hri_json_count(&list), 4);
  memset(codes, 0, sizeof codes);
  for (uint32_t t = 1; t <= STEPS; t++) {
    hri_json kept_step = hri_json_item(&list, at), of_codes, of_scales;
    uint64_t number;
    for (uint32_t i = 0; i < RECORDED; i++) gradients[i] = gradient_at(t, i);
    blocks_reference(r, t, gradients, RECORDED, weights, codes[0], codes[1], scales[0], scales[1]);
    HOLDS(hri_json_get_u64(&kept_step, "step", 1, STEPS, &number, error));
    if (number != t) continue;
    HOLDS(hri_json_get_array(&kept_step, "codes", &of_codes, error));
    HOLDS(hri_json_get_array(&kept_step, "scales", &of_scales, error));
    for (uint32_t s = 0; s < states; s++) {
      text_at(&of_codes, s, recorded, sizeof recorded);
      text_at(&of_scales, s, recorded_scales, sizeof recorded_scales);
      for (int i = 0; i < RECORDED; i++)
        if (codes[s][i] != recorded[i])
          fail_msg("%s, step %u: code %d of state %u is %u, recorded %u", name, t, i, s, codes[s][i], recorded[i]);
      assert_memory_equal(scales[s], recorded_scales, sizeof recorded_scales);
    }
    at++;
  }
  assert_int_equal(at, 4);
}

static void the_cpu_path_of_bitsandbytes(void **state) {
  block_rule adamw = adamw_rule, lion = lion_rule;
  const hri_dynamic_maps *maps = hri_dynamic_maps_get();
  const char *text;
  float map[256];
  hri_json root = {0};
  (void)state;
  HOLDS(hri_json_read(HR_TEST_DATA "/parity/optim/bitsandbytes.json", 1 << 20, &root, error));
  HOLDS(hri_json_get_string(&root, "signed_map", &text, error));
  from_hex(text, map, sizeof map);
  assert_memory_equal(map, maps->signed_map, sizeof map);
  HOLDS(hri_json_get_string(&root, "unsigned_map", &text, error));
  from_hex(text, map, sizeof map);
  assert_memory_equal(map, maps->unsigned_map, sizeof map);
  adamw.as_cpu = lion.as_cpu = true;
  adamw.gradient_scale = lion.gradient_scale = 0.5;
  compare_with_recorded(&root, "adam", &adamw);
  compare_with_recorded(&root, "lion", &lion);
  hri_json_deinit(&root);
}

/* ---- which parts have them ---- */

static void small_and_sensitive_parts_have_wide_states(void **state) {
  (void)state;
  assert_int_equal(hri_state_kind(HR_OPTIMIZER_ADAMW8BIT, 4095, false, true), HR_OPTIMIZER_ADAMW);
  assert_int_equal(hri_state_kind(HR_OPTIMIZER_ADAMW8BIT, 4096, false, false), HR_OPTIMIZER_ADAMW8BIT);
  assert_int_equal(hri_state_kind(HR_OPTIMIZER_ADAMW8BIT, 1 << 20, true, false), HR_OPTIMIZER_ADAMW);
  assert_int_equal(hri_state_kind(HR_OPTIMIZER_ADAMW8BIT, 1 << 20, true, true), HR_OPTIMIZER_ADAMW8BIT);
  assert_int_equal(hri_state_kind(HR_OPTIMIZER_LION8BIT, 100, false, true), HR_OPTIMIZER_LION);
  assert_int_equal(hri_state_kind(HR_OPTIMIZER_ADAMW, 1, true, true), HR_OPTIMIZER_ADAMW);
  assert_int_equal(hri_state_bytes(HR_OPTIMIZER_ADAMW8BIT, 1 << 10, 1 << 10, false), 2 * (1 << 20) + 2 * 4096 * 4);
  assert_int_equal(hri_state_bytes(HR_OPTIMIZER_LION8BIT, 257, 1, true), 257 + 2 * 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(quantizing_is_the_search),
                                     cmocka_unit_test(fifty_steps_are_the_reference),
                                     cmocka_unit_test(thresholds_through_the_kernels),
                                     cmocka_unit_test(teams_and_slices_do_not_show),
                                     cmocka_unit_test(weights_round_by_their_elements),
                                     cmocka_unit_test(the_cpu_path_of_bitsandbytes),
                                     cmocka_unit_test(small_and_sensitive_parts_have_wide_states)};
  return cmocka_run_group_tests(tests, setup_isas, NULL);
}
