/* Optimizers on the GPU in software against the CPU's kernels of the lowest level: the same random bits, so that what is rounded
 * to bf16 differs by one step at most, and seldom; states of 8 bits are equal; fp32 agrees within rounding. And what a step
 * writes into the control block. */
#include "gpu/kernels.h"

#include "ops/isa.h"
#include "ops/optim/dynamic.h"
#include "program/optimizer.h"

static void norm_of_gradient(void **state) {
  (void)state;
  for (int r = 0; r < 2; r++) {
    soft_test t = soft_open((uint64_t)r);
    int64_t n = 65536 + 777;
    array g = array_random(&t, n, reals[r], 1, 0);
    double *partials = soft_memory(&t, 2 * sizeof(double)), got[2], sums[2] = {0};
    hri_control control = {.loss_scale = 4, .clip_norm = 1}, *on_device = device_control(&t, &control);
    assert_int_equal(hri_cuda_square_sum(partials, g.device, reals[r], n, t.stream), 0);
    assert_int_equal(hri_cuda_clip(partials, 2, on_device, t.stream), 0);
    soft_clean(&t);
    soft_download(&t, got, partials, sizeof got);
    soft_download(&t, &control, on_device, sizeof control);
    for (int64_t i = 0; i < n; i++) sums[i / 65536] += g.d[i] * g.d[i];
    for (int i = 0; i < 2; i++) assert_true(fabs(got[i] - sums[i]) <= 1e-12 * sums[i]);
    double norm = sqrt(got[0] + got[1]) / 4;
    assert_true(fabs(control.grad_norm - norm) <= 1e-14 * norm);
    assert_true(fabs(control.clip_scale - 1 / (norm + 1e-6)) <= 1e-14);
    soft_close(&t);
    give_all();
  }
}

/* ---- the control block ---- */

static hri_control after(soft_test *t, const hri_control *on_device) {
  hri_control c;
  soft_clean(t);
  soft_download(t, &c, on_device, sizeof c);
  return c;
}

static void found_inf(void **state) {
  const double values[] = {1, INFINITY, -INFINITY, NAN, 1e300};
  soft_test t = soft_open(0);
  (void)state;
  for (int i = 0; i < 25; i++) {
    double pair[2] = {values[i / 5], values[i % 5]}, found;
    double *on_device = soft_upload(&t, pair, sizeof pair), *to = soft_memory(&t, sizeof *to);
    assert_int_equal(hri_cuda_found_inf(on_device, on_device + 1, to, t.stream), 0);
    soft_clean(&t);
    soft_download(&t, &found, to, sizeof found);
    assert_true(found == (isfinite(pair[0]) && isfinite(pair[1]) ? 0 : 1));
  }
  soft_close(&t);
}

/* A guard that is not 0 leaves the step uncounted. */
static void advance(void **state) {
  (void)state;
  for (int guarded = 0; guarded < 3; guarded++) {
    soft_test t = soft_open(0);
    hri_control c = {.applied_steps = 41, .step = 50, .found_inf = guarded == 2}, *on_device = device_control(&t, &c);
    assert_int_equal(hri_cuda_advance(on_device, guarded ? &on_device->found_inf : NULL, t.stream), 0);
    c = after(&t, on_device);
    assert_int_equal(c.applied_steps, guarded == 2 ? 41 : 42);
    assert_int_equal(c.step, 50);
    soft_close(&t);
  }
}

static void loss_scale(void **state) {
  static const struct {
    double scale, found;
    int64_t tracker;
    double expected;
    int64_t expected_tracker;
  } cases[] = {{1024, 0, 1, 1024, 2}, {1024, 0, 2, 2048, 0}, {1024, 1, 2, 512, 0}, {0x1p127, 0, 2, 0x1p127, 0}};
  (void)state;
  for (int i = 0; i < 4; i++) {
    soft_test t = soft_open(0);
    hri_control c = {.loss_scale = cases[i].scale, .found_inf = cases[i].found, .growth_tracker = cases[i].tracker};
    hri_control *on_device = device_control(&t, &c);
    assert_int_equal(hri_cuda_loss_scale(on_device, 3, 2, 0.5, t.stream), 0);
    c = after(&t, on_device);
    assert_true(c.loss_scale == cases[i].expected);
    assert_int_equal(c.growth_tracker, cases[i].expected_tracker);
    soft_close(&t);
  }
}

/* ---- steps ---- */

typedef struct step_case {
  hri_real w, state, g;
  bool beside; /* a copy in fp16, low halves of bf16 weights */
  int64_t n, columns, first;
} step_case;

/* The tensors of a step in the host's memory and on the device. */
typedef struct tensors {
  void *host[6], *device[6]; /* weights, states, what stands beside them */
  uint64_t bytes[6];
  hri_real real[6];
  int count;
} tensors;
enum { WEIGHT, STATE, BESIDE = 5 };

static void add(soft_test *t, tensors *all, int at, const float *values, int64_t n, hri_real real) {
  all->bytes[at] = (uint64_t)n * hri_real_bytes(real), all->real[at] = real;
  all->host[at] = take(all->bytes[at]);
  for (int64_t i = 0; i < n; i++) hri_real_put(all->host[at], i, values[i], real);
  all->device[at] = soft_upload(t, all->host[at], all->bytes[at]);
}
static void add_bytes(soft_test *t, tensors *all, int at, uint64_t bytes) {
  all->host[at] = take(all->bytes[at] = bytes);
  for (uint64_t i = 0; i < bytes; i++) ((uint8_t *)all->host[at])[i] = (uint8_t)(at * 90 + 37 * i);
  all->device[at] = soft_upload(t, all->host[at], bytes);
}

/* Averages of squares are positive. */
static tensors tensors_of(soft_test *t, uint32_t optimizer, const step_case *c) {
  const hri_optimizer *row = hri_optimizer_get(optimizer);
  int64_t rows = c->columns > 1 ? c->n / c->columns : c->n;
  tensors all = {.count = 0};
  add(t, &all, WEIGHT, array_random(t, c->n, HRI_REAL_F32, 1, 0).f, c->n, c->w);
  for (uint32_t s = 0; s < row->tensor_count; s++) {
    int64_t entries =
        (int64_t)hri_state_entries(&row->tensors[s], (uint64_t)rows, c->columns > 1 ? (uint64_t)c->columns : 1);
    bool positive = s == 1 || !hri_state_shaped(&row->tensors[s]);
    if (row->tensors[s].dtype == HRI_U8) add_bytes(t, &all, STATE + (int)s, (uint64_t)entries);
    else
      add(t, &all, STATE + (int)s, array_random(t, entries, HRI_REAL_F32, positive ? 0.01 : 0.1, positive ? 0.1 : 0).f,
          entries, row->tensors[s].narrow ? c->state : HRI_REAL_F32);
  }
  if (c->beside) add_bytes(t, &all, BESIDE, (uint64_t)c->n * 2), all.real[BESIDE] = HRI_REAL_F16;
  return all;
}

/* Weights in two halves, as what they are. */
static void compare_halves(soft_test *t, const tensors *all) {
  uint64_t bytes = all->bytes[WEIGHT];
  hri_bf16 *high = take(bytes), *high_host = all->host[WEIGHT];
  uint16_t *low = take(bytes), *low_host = all->host[BESIDE];
  soft_download(t, high, all->device[WEIGHT], bytes);
  soft_download(t, low, all->device[BESIDE], bytes);
  for (uint64_t e = 0; e < bytes / 2; e++) {
    double x = hri_join(high[e], low[e]), y = hri_join(high_host[e], low_host[e]);
    if (!(fabs(x - y) <= 2e-6 * (1 + fabs(y)))) fail_msg("element %d: %.9g, not %.9g", (int)e, x, y);
  }
}

static void compare(soft_test *t, uint32_t optimizer, const tensors *all) {
  const hri_optimizer *row = hri_optimizer_get(optimizer);
  bool split = all->host[BESIDE] && all->real[WEIGHT] == HRI_REAL_BF16;
  if (split) compare_halves(t, all);
  for (int at = 0; at < 6; at++) {
    bool coded = hri_state_apart(optimizer) && optimizer != HR_OPTIMIZER_ADAFACTOR && at >= STATE && at < BESIDE;
    void *got = take(all->bytes[at]);
    int64_t n, other = 0;
    if (!all->host[at] || (split && (at == WEIGHT || at == BESIDE))) continue;
    soft_download(t, got, all->device[at], all->bytes[at]);
    if (coded) assert_memory_equal(got, all->host[at], all->bytes[at]);
    if (coded && row->tensors[at - STATE].dtype == HRI_U8) continue;
    n = (int64_t)(all->bytes[at] / hri_real_bytes(all->real[at]));
    for (int64_t e = 0; e < n; e++) {
      double x = hri_real_get(got, e, all->real[at]), y = hri_real_get(all->host[at], e, all->real[at]);
      double limit = all->real[at] == HRI_REAL_F32 ? 2e-6 * (1 + fabs(y)) : 2 * half_ulp(y, all->real[at]);
      if (x != y) other++;
      if (!(fabs(x - y) <= limit))
        fail_msg("%s, tensor %d, element %d of %d: %.9g, not %.9g", row->tensor_count ? row->tensors[0].name : "sgd",
                 at, (int)e, (int)n, x, y);
    }
    if (all->real[at] == HRI_REAL_BF16) assert_true(other <= 2 + n / 200); /* at the edge of a random number */
  }
}

/* With a guard that is set nothing changes, and then the step is made. */
static void step_of(uint32_t optimizer, const step_case *c, int seed) {
  hri_cpu_kernels cpu = {0};
  soft_test t = soft_open((uint64_t)seed);
  hri_control control = {.seed = 7, .applied_steps = 3, .learning_rate = 0.01, .clip_scale = 0.5, .loss_scale = 2};
  const double numbers[][4] = {[HR_OPTIMIZER_ADAMW] = {0.9, 0.95, 1e-8},
                               [HR_OPTIMIZER_ADAMW8BIT] = {0.9, 0.95, 1e-8},
                               [HR_OPTIMIZER_LION] = {0.9, 0.99},
                               [HR_OPTIMIZER_LION8BIT] = {0.9, 0.99},
                               [HR_OPTIMIZER_MOMENTUM] = {0.9},
                               [HR_OPTIMIZER_SGD] = {0},
                               [HR_OPTIMIZER_ADAFACTOR] = {-0.8, 1e-30, 1e-3, 1.0}};
  tensors all = tensors_of(&t, optimizer, c);
  void *g_host = take((uint64_t)c->n * 4), *got = take(all.bytes[WEIGHT]);
  array g = array_random(&t, c->n, c->g, 1, 0);
  hri_update_numbers n = {.learning_rate = 0.01,
                          .weight_decay = 0.1,
                          .gradient_scale = 0.25,
                          .t = 3,
                          .columns = c->columns};
  hri_update_args u = {.n = c->n, .w_real = c->w, .state_real = c->state, .gradient_real = c->g};
  hri_cuda_update_args a = {.weight_decay = 0.1, .columns = c->columns};
  uint64_t scratch = hri_cuda_update_scratch_bytes(optimizer, c->n, c->columns);
  hri_optim_kernels_base(&cpu);
  u.rounding = (hri_rounding){.seed = 7, .step = 3, .site = 5}, u.first_element = c->first;
  memcpy(n.number, numbers[optimizer], sizeof n.number);
  memcpy(a.number, numbers[optimizer], sizeof a.number);
  if (hri_optimizer_get(optimizer)->least_elements) g.f[17] = INFINITY; /* states are forgotten */
  for (int64_t e = 0; e < c->n; e++) hri_real_put(g_host, e, g.f[e], c->g);
  a.u = u, a.u.g = soft_upload(&t, g_host, (uint64_t)c->n * hri_real_bytes(c->g)), a.u.w = all.device[WEIGHT];
  u.g = g_host, u.w = all.host[WEIGHT];
  if (c->w == HRI_REAL_BF16) a.u.low = all.device[BESIDE], u.low = all.host[BESIDE];
  else a.u.copy = all.device[BESIDE], u.copy = all.host[BESIDE];
  for (int s = 0; s < 4; s++) u.state[s] = all.host[STATE + s], a.u.state[s] = all.device[STATE + s];
  control.found_inf = 1;
  a.control = device_control(&t, &control), a.guard = &a.control->found_inf;
  if (scratch) a.scratch = soft_memory(&t, scratch);
  assert_int_equal(hri_cuda_update(optimizer, &a, t.stream), 0);
  soft_clean(&t);
  soft_download(&t, got, all.device[WEIGHT], all.bytes[WEIGHT]);
  assert_memory_equal(got, all.host[WEIGHT], all.bytes[WEIGHT]);
  control.found_inf = 0;
  a.control = device_control(&t, &control), a.guard = seed % 2 ? &a.control->found_inf : NULL;
  assert_int_equal(hri_cuda_update(optimizer, &a, t.stream), 0);
  soft_clean(&t);
  cpu.update[optimizer](&u, &n);
  compare(&t, optimizer, &all);
  soft_close(&t);
  give_all();
}

static const step_case cases[] = {
    {HRI_REAL_F32, HRI_REAL_F32, HRI_REAL_F32, false, 1027, 1, 3},
    {HRI_REAL_BF16, HRI_REAL_F32, HRI_REAL_F32, true, 1024, 64, 64},
    {HRI_REAL_BF16, HRI_REAL_BF16, HRI_REAL_F32, true, 1031, 1, 5},
    {HRI_REAL_BF16, HRI_REAL_BF16, HRI_REAL_BF16, false, 1037, 61, 0},
    {HRI_REAL_F32, HRI_REAL_F32, HRI_REAL_F32, true, 3600, 2, 7}, /* more rows than a block of sums has */
    {HRI_REAL_BF16, HRI_REAL_F32, HRI_REAL_F32, false, 513, 1, 64},
};
static void steps(uint32_t optimizer) {
  for (int k = 0; k < (int)(sizeof cases / sizeof *cases); k++) step_of(optimizer, &cases[k], k);
}

#define STEPS(name, kind)                                                                                              \
  static void name(void **state) {                                                                                     \
    (void)state;                                                                                                       \
    steps(kind);                                                                                                       \
  }
STEPS(adamw, HR_OPTIMIZER_ADAMW)
STEPS(lion, HR_OPTIMIZER_LION)
STEPS(momentum, HR_OPTIMIZER_MOMENTUM)
STEPS(sgd, HR_OPTIMIZER_SGD)
STEPS(adamw8bit, HR_OPTIMIZER_ADAMW8BIT)
STEPS(lion8bit, HR_OPTIMIZER_LION8BIT)
STEPS(adafactor, HR_OPTIMIZER_ADAFACTOR)

/* Averages of gradients that lie half way between two entries of the map go to the even one, and a negative one that is as good
 * as zero to the largest below it. beta 0.5 of nothing: the average is half the gradient. */
static void codes_at_bounds(void **state) {
  enum { N = 2 * HRI_STATE_BLOCK };
  const float *map = hri_dynamic_maps_get()->signed_map;
  hri_control control = {.seed = 7, .applied_steps = 1, .learning_rate = 0.01, .clip_scale = 1, .loss_scale = 1};
  hri_cuda_update_args a = {.u = {.n = N}, .number = {0.5, 0.5, 1e-8}, .columns = 1};
  float gradients[N], weights[N] = {0}, scales[2] = {0};
  uint8_t codes[2][N], expected[N];
  soft_test t = soft_open(1);
  (void)state;
  memset(codes[0], 127, N); /* 0 */
  memset(codes[1], 0, N);
  for (int i = 0; i < N; i++) gradients[i] = (i % 2 ? 1e-12f : -1e-12f), expected[i] = i % 2 ? 127 : 126;
  for (int i = 0; i < 255; i++) gradients[i] = 2 * ((map[i] + map[i + 1]) * 0.5f), expected[i] = (uint8_t)(i + i % 2);
  gradients[255] = gradients[N - 1] = 2, expected[255] = expected[N - 1] = 255;
  a.u.g = soft_upload(&t, gradients, sizeof gradients), a.u.w = soft_upload(&t, weights, sizeof weights);
  for (int k = 0; k < 2; k++) {
    a.u.state[k] = soft_upload(&t, codes[k], N);
    a.u.state[2 + k] = soft_upload(&t, scales, sizeof scales);
  }
  a.control = device_control(&t, &control);
  assert_int_equal(hri_cuda_update(HR_OPTIMIZER_ADAMW8BIT, &a, t.stream), 0);
  soft_clean(&t);
  soft_download(&t, codes[0], a.u.state[0], N);
  for (int i = 0; i < N; i++)
    if (codes[0][i] != expected[i]) fail_msg("element %d has code %d, not %d", i, codes[0][i], expected[i]);
  soft_close(&t);
}

/* fp16 weights have no step, and no optimizer is unknown. */
static void refused(void **state) {
  soft_test t = soft_open(0);
  hri_cuda_update_args a = {.u = {.n = 1, .w_real = HRI_REAL_F16}};
  (void)state;
  assert_int_equal(hri_cuda_update(HR_OPTIMIZER_ADAMW, &a, t.stream), -1);
  a.u.w_real = HRI_REAL_F32;
  assert_int_equal(hri_cuda_update(HR_OPTIMIZER_COUNT, &a, t.stream), -1);
  soft_close(&t);
}

int main(void) {
  const struct CMUnitTest tests[] =
      {cmocka_unit_test(norm_of_gradient), cmocka_unit_test(found_inf), cmocka_unit_test(advance),
       cmocka_unit_test(loss_scale),       cmocka_unit_test(adamw),     cmocka_unit_test(lion),
       cmocka_unit_test(momentum),         cmocka_unit_test(sgd),       cmocka_unit_test(adamw8bit),
       cmocka_unit_test(lion8bit),         cmocka_unit_test(adafactor), cmocka_unit_test(codes_at_bounds),
       cmocka_unit_test(refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
