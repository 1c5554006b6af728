/* What the tests of CUDA kernels share: arrays of a type, uploading, and the tolerance of test_kernels.c: per array 4 times
 * the largest error of the plain fp32 implementation, which is at least half an ulp of the largest value; in bf16 and fp16
 * half an ulp of the element for the rounding of the result. */
#ifndef HRI_TEST_GPU_KERNELS_H
#define HRI_TEST_GPU_KERNELS_H

#include "gpu/soft.h"

#include <math.h>

#include "base/real.h"
#include "base/rng.h"
#include "ops/cuda.h"

/* The references in fp32, naive_<op>, of the families whose ref.c is included behind these. */
#undef HRI_REAL
#undef HRI_REF
#undef HRI_REF_API
#define HRI_REAL float
#define HRI_REF(name) naive_##name
#define HRI_REF_API static __attribute__((unused))

static void *taken[512];
static size_t taken_count;

static void *take(size_t bytes) {
  void *memory = calloc(1, bytes ? bytes : 1);
  assert_non_null(memory);
  assert_true(taken_count < sizeof taken / sizeof *taken);
  return taken[taken_count++] = memory;
}
static void give_all(void) {
  while (taken_count > 0) free(taken[--taken_count]);
}

/* An array in doubles that its type holds exactly, the same in floats, and on the device. */
typedef struct array {
  int64_t n;
  hri_real real;
  double *d;
  float *f;
  void *device;
} array;

static uint64_t array_seed = 1;

static array array_of(soft_test *t, int64_t n, hri_real real, const double *values) {
  array a = {.n = n, .real = real, .d = take(n * sizeof(double)), .f = take(n * sizeof(float))};
  void *bytes = take(n * hri_real_bytes(real));
  for (int64_t i = 0; i < n; i++) {
    hri_real_put(bytes, i, (float)values[i], real);
    a.f[i] = hri_real_get(bytes, i, real);
    a.d[i] = a.f[i];
  }
  a.device = soft_upload(t, bytes, n * hri_real_bytes(real));
  return a;
}

/* scale * normal + shift */
static array array_random(soft_test *t, int64_t n, hri_real real, double scale, double shift) {
  double *values = take(n * sizeof(double));
  for (int64_t i = 0; i < n; i++) values[i] = scale * hri_normal(array_seed, 7, (uint64_t)i) + shift;
  array_seed++;
  return array_of(t, n, real, values);
}

/* Where a result goes: fresh memory, and the references' arrays, zero. */
static inline array array_result(soft_test *t, int64_t n, hri_real real) {
  array a = {.n = n, .real = real, .d = take(n * sizeof(double)), .f = take(n * sizeof(float))};
  a.device = soft_memory(t, n * hri_real_bytes(real));
  return a;
}

static double half_ulp(double value, hri_real real) {
  if (real == HRI_REAL_BF16) return fabs(value) * 0x1p-8 + 0x1p-134;
  return real == HRI_REAL_F16 ? fabs(value) * 0x1p-11 + 0x1p-25 : 0;
}

/* What is on the device against a.d, with a.f as the yardstick; `more`: what a rounding before the last one may add. */
static void expect_within(soft_test *t, const char *what, const array *a, double more) {
  double worst = 0, most = 0, tolerance;
  void *bytes = take(a->n * hri_real_bytes(a->real));
  soft_clean(t);
  soft_download(t, bytes, a->device, a->n * hri_real_bytes(a->real));
  for (int64_t i = 0; i < a->n; i++) {
    worst = fmax(worst, fabs(a->f[i] - a->d[i]));
    most = fmax(most, fabs(a->d[i]));
  }
  tolerance = 4 * fmax(worst, most * 0x1p-24) + more;
  for (int64_t i = 0; i < a->n; i++) {
    double got = hri_real_get(bytes, i, a->real), limit = tolerance + half_ulp(fabs(a->d[i]) + tolerance, a->real);
    if (!(fabs(got - a->d[i]) <= limit))
      fail_msg("%s, element %d of %d: %.9g, not %.9g (limit %.2g)", what, (int)i, (int)a->n, got, a->d[i], limit);
  }
}
static inline void expect(soft_test *t, const char *what, const array *a) { expect_within(t, what, a, 0); }

static const hri_real reals[] = {HRI_REAL_F32, HRI_REAL_BF16, HRI_REAL_F16};

static inline int32_t *device_ids(soft_test *t, const int32_t *ids, int64_t n) { return soft_upload(t, ids, n * sizeof *ids); }

static inline hri_control *device_control(soft_test *t, const hri_control *c) { return soft_upload(t, c, sizeof *c); }

/* A test in each type and each variant, on a GPU of its own. */
static inline void each(void (*test)(soft_test *t, hri_real real, int variant), int variants) {
  for (int r = 0; r < 3; r++)
    for (int v = 0; v < variants; v++) {
      soft_test t = soft_open((uint64_t)(r * 16 + v));
      test(&t, reals[r], v);
      soft_close(&t);
      give_all();
    }
}

#endif
