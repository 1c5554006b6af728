/* Every backward rule, as the autodiff pass puts it into programs, against a directional derivative of the double
 * reference; on odd shapes, with frozen inputs, tensors and weights that are used twice, and whole random models.
 *
 * A program is built twice. One build stays forward only: the reference backend (support/reference_run.h) runs it in
 * double, and central differences of its loss give D, the derivative along a random direction v. The other build gets
 * autodiff and passes; it runs three times, in double, in plain fp32, and on the CPU backend. With g the gradients:
 *
 *   1. the rules are right          |g_double . v - D| <= error of D
 *   2. the engine computes them     L2(g_engine - g_double) <= 4 e L2(g_double)
 *   3. so the engine agrees with D  |g_engine . v - D| <= the bound of 2 times L2(v) (Cauchy-Schwarz) + error of D
 *
 * e is the relative error of plain fp32, at least 2^-24 (the rounding of a float32). One run alone may meet the truth
 * by luck, the more so for a bias of five elements, so e is the worst of 32: at the values themselves and at values up
 * to a thousandth away, where the problem is the same and every rounding another one; each against double at its own
 * point. A gradient that comes from outside moves as well: a bias's is the sum of nothing else, which would be rounded
 * the same way at all 32. (Four points are tried first; they mostly are enough to pass.)
 *
 * The error of D has two parts. Truncation: D is extrapolated from steps h/2 and h/4, and the same from h and h/2
 * differs by about 15 times its error. Rounding: a value passes at most `depth` roundings of size u = 2^-53 on its way
 * into the loss (reduction lengths of all nodes, counted below), so that the loss is off by at most depth u S, S the
 * sum of the absolute terms of the loss; (4 d(h/4) - d(h/2)) / 3 makes that 6 depth u S / h. Nothing else is a
 * tolerance.
 *
 * HEADROOM_TEST_QUICK=1: fewer random models. HEADROOM_TEST_MODELS=n: so many; HEADROOM_TEST_SEED=s: the one of that
 * seed, which a failure names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>

#include "base/rng.h"
#include "plan/compile.h"
#include "plan/place.h"
#include "program/check.h"
#include "run/executor.h"
#include "support/cpu.h"
#include "support/random_family.h"

/* ---- the reference backend in double and in plain fp32 ---- */

#include "ops/reference.h"
#define RUN_REAL double
#define RUN(name) exact_##name
#define RUN_REF(name) hri_ref_##name
#define RUN_ATTENTION(name) hri_attention_ref_##name
#include "support/reference_run.h"
#undef RUN_REAL
#undef RUN
#undef RUN_REF
#undef RUN_ATTENTION

/* The references compiled for float, as ops/reference.h means it. */
#undef HRI_REAL
#undef HRI_REF
#undef HRI_REF_API
#define HRI_REAL float
#define HRI_REF(name) naive_##name
#define HRI_REF_API static __attribute__((unused))
#include "ops/embed/ref.c"
#include "ops/linear/ref.c"
#include "ops/loss/ref.c"
#include "ops/norm/ref.c"
#include "ops/pointwise/ref.c"
#define hri_attention_ref_forward naive_attention_forward
#define hri_attention_ref_backward naive_attention_backward
#define hri_attention_ref_cached naive_attention_cached
#include "ops/attention/ref.c"
#undef hri_attention_ref_forward
#undef hri_attention_ref_backward
#undef hri_attention_ref_cached
/* tgmath.h is in force from here on, with doubles as arguments: the ordinary functions. */

#define RUN_REAL float
#define RUN(name) plain_##name
#define RUN_REF(name) naive_##name
#define RUN_ATTENTION(name) naive_attention_##name
#include "support/reference_run.h"
#undef RUN_REAL
#undef RUN
#undef RUN_REF
#undef RUN_ATTENTION

#define HOLDS(call)                                                                                                    \
  do {                                                                                                                 \
    hr_error holds_error, *error = &holds_error;                                                                       \
    memset(error, 0, sizeof *error);                                                                                   \
    if ((call) != HR_OK) fail_msg("%s: %s\n  %s", where, #call, holds_error.message);                                  \
  } while (0)

static const char *where = ""; /* the program under test, for messages */

/* ---- a program under test ---- */

enum { MOST_PARAMS = 96, MOST_INPUTS = 8 };

typedef struct input {
  hri_id tensor;
  int32_t *ints;
  float *floats;
  uint64_t count;
} input;

typedef struct tiny {
  hr_job spec;
  hri_job job;
  uint8_t program;
  hri_emit emit;
  uint64_t seed;              /* of all values; the same for both builds */
  float *values[MOST_PARAMS]; /* per parameter: stored elements */
  input inputs[MOST_INPUTS];
  uint32_t input_count;
  hri_id hidden, head, head_bias, targets,
      dy; /* dy: gradient of hidden given from outside; HRI_NONE with a loss head */
  uint64_t vocabulary;
  double softcap;   /* of the logits; 0: none */
  double smoothing; /* of the labels */
  uint32_t counted; /* labels that count, with a head */
} tiny;

typedef void (*builder)(tiny *t, const void *shape);

static double uniform(uint64_t seed, uint64_t stream, uint64_t index) {
  uint32_t word[4];
  hri_philox(seed, stream, index, word);
  return 2 * hri_uniform(word[0], word[1]) - 1;
}

static uint16_t carried(const tiny *t) {
  return t->spec.accumulate > 1 ? (uint16_t)(HRI_IN(HRI_BEGIN) | HRI_IN(HRI_MICRO) | HRI_IN(HRI_UPDATE))
                                : (uint16_t)HRI_IN(HRI_STEP);
}

static void tiny_open(tiny *t, uint64_t seed, uint32_t accumulate) {
  memset(t, 0, sizeof *t);
  hr_job_init(&t->spec);
  t->spec.optimizer = HR_OPTIMIZER_SGD;
  t->spec.accumulate = accumulate;
  t->seed = seed;
  t->program = accumulate > 1 ? HRI_MICRO : HRI_STEP;
  t->hidden = t->head = t->head_bias = t->targets = t->dy = HRI_NONE;
  t->emit = (hri_emit){.program = t->program,
                       .lane = HRI_COMPUTE,
                       .phase = HRI_PHASE_FORWARD,
                       .layer = -1,
                       .unit = 0,
                       .origin = HRI_NONE};
  hri_job_init(&t->job);
}

static void tiny_close(tiny *t) {
  hri_job_deinit(&t->job);
  for (uint32_t p = 0; p < MOST_PARAMS; p++) free(t->values[p]);
  for (uint32_t i = 0; i < t->input_count; i++) {
    free(t->inputs[i].ints);
    free(t->inputs[i].floats);
  }
}

/* Values of the parameters that the job has and that have none yet: middle + range * uniform. Padding is zero. */
static void give_values(tiny *t, double middle, double range) {
  for (uint32_t p = 0; p < t->job.params.count; p++) {
    uint64_t logical = hri_tensor_elements(&t->job.tensors.items[t->job.params.items[p].weight]);
    assert_true(p < MOST_PARAMS);
    if (t->values[p]) continue;
    t->values[p] = calloc(t->job.params.items[p].elements, sizeof(float));
    assert_non_null(t->values[p]);
    for (uint64_t i = 0; i < logical; i++) t->values[p][i] = (float)(middle + range * uniform(t->seed, 100 + p, i));
  }
}

/* A parameter [rows, columns], or [rows] when columns is 0; its weight tensor. */
static hri_id weight(tiny *t, const char *name, uint64_t rows, uint64_t columns, uint64_t stored_rows, bool frozen,
                     double middle, double range) {
  hri_part_request all = {.name = name, .rows = rows, .trainable = !frozen};
  hri_param_request request = {.name = name,
                               .layer = -1,
                               .rank = columns ? 2 : 1,
                               .dims = {rows, columns ? columns : 1},
                               .stored = {stored_rows, columns ? columns : 1},
                               .parts = &all,
                               .part_count = 1,
                               .spec = HRI_NONE};
  uint32_t param = hri_build_parameter(&t->job, &t->spec, &request);
  assert_int_not_equal(param, HRI_NONE);
  give_values(t, middle, range);
  return t->job.params.items[param].weight;
}

static hri_id matrix(tiny *t, const char *name, uint64_t rows, uint64_t columns) {
  return weight(t, name, rows, columns, rows, false, 0, 1.7 / sqrt((double)columns));
}
static hri_id vector(tiny *t, const char *name, uint64_t n) { return weight(t, name, n, 0, n, false, 0, 1); }

static input *new_input(tiny *t, const char *name, hri_dtype dtype, uint32_t rank, const uint64_t *dims) {
  hri_place place = {.program = t->program,
                     .scope = carried(t),
                     .tier = HRI_DEVICE,
                     .role = HRI_ROLE_INPUT,
                     .layer = -1,
                     .unit = HRI_NONE};
  input *in = &t->inputs[t->input_count++];
  assert_true(t->input_count <= MOST_INPUTS);
  in->tensor = hri_tensor_new(&t->job, place, hri_name(&t->job, "%s", name), dtype, rank, dims, NULL);
  in->count = hri_tensor_elements(&t->job.tensors.items[in->tensor]);
  in->ints = dtype == HRI_I32 ? calloc(in->count, sizeof(int32_t)) : NULL;
  in->floats = dtype == HRI_F32 ? calloc(in->count, sizeof(float)) : NULL;
  return in;
}

/* int32 [n], 0 .. below - 1; below 0: 0, 1, 2, ... */
static hri_id integers(tiny *t, const char *name, uint64_t n, uint32_t below) {
  input *in = new_input(t, name, HRI_I32, 1, &n);
  for (uint64_t i = 0; i < n; i++)
    in->ints[i] = below ? (int32_t)((uniform(t->seed, 7, i) + 1) / 2 * below) : (int32_t)i;
  return in->tensor;
}

static hri_id fresh(tiny *t, uint64_t rows, uint64_t columns) {
  hri_place place = {.program = t->program,
                     .tier = HRI_DEVICE,
                     .role = HRI_ROLE_ACTIVATION,
                     .layer = t->emit.layer,
                     .unit = t->emit.unit};
  uint64_t dims[2] = {rows, columns};
  return hri_tensor_new(&t->job, place, hri_name(&t->job, "t%zu", t->job.tensors.count), HRI_F32, 2, dims, NULL);
}

static void node(tiny *t, hri_op op, const hri_attr *attr, const hri_operand *operands, uint32_t count) {
  t->emit.site++;
  assert_int_not_equal(hri_node_append(&t->job, (uint16_t)op, t->emit, attr, operands, count), HRI_NONE);
}

static uint64_t rows_of(const tiny *t, hri_id tensor) { return hri_rows(&t->job.tensors.items[tensor]); }
static uint64_t columns_of(const tiny *t, hri_id tensor) { return hri_columns(&t->job.tensors.items[tensor]); }

static hri_id embed(tiny *t, hri_id ids, hri_id table, hri_id positions, hri_id position_table, int64_t padding) {
  hri_attr attr = {.i = {padding}, .f = {1}};
  hri_id y = fresh(t, hri_tensor_elements(&t->job.tensors.items[ids]), columns_of(t, table));
  node(t, HRI_OP_EMBED, &attr,
       (hri_operand[]){HRI_R(ids), HRI_R(table), HRI_R(positions), HRI_R(position_table), HRI_W(y)}, 5);
  return y;
}

/* A free variable [rows, columns]: a parameter, seen through an embedding of the ids 0, 1, 2, ... */
static hri_id variable(tiny *t, uint64_t rows, uint64_t columns, bool frozen) {
  char name[32];
  hri_id table;
  (void)snprintf(name, sizeof name, "x%zu", t->job.params.count);
  table = weight(t, name, rows, columns, rows, frozen, 0, 1);
  return embed(t, integers(t, "identity", rows, 0), table, HRI_NONE, HRI_NONE, -1);
}

static hri_id linear(tiny *t, hri_id x, hri_id w, hri_id bias) {
  hri_id y = fresh(t, rows_of(t, x), rows_of(t, w));
  node(t, HRI_OP_LINEAR, NULL, (hri_operand[]){HRI_R(x), HRI_R(w), HRI_R(bias), HRI_W(y)}, 4);
  return y;
}

static hri_id norm(tiny *t, hr_norm kind, hri_id x, hri_id w, hri_id bias) {
  hri_attr attr = {.i = {kind}, .f = {1e-5}};
  hri_id y = fresh(t, rows_of(t, x), columns_of(t, x)), stats = fresh(t, rows_of(t, x), kind == HR_NORM_LAYER ? 2 : 1);
  node(t, HRI_OP_NORM, &attr,
       (hri_operand[]){HRI_R(x), HRI_R(w), HRI_R(bias), HRI_ABSENT, {HRI_NONE, HRI_WRITE}, HRI_W(y), HRI_W(stats)}, 7);
  return y;
}

static hri_id add(tiny *t, hri_id a, hri_id b) {
  hri_id y = fresh(t, rows_of(t, a), columns_of(t, a));
  node(t, HRI_OP_ADD, NULL, (hri_operand[]){HRI_R(a), HRI_R(b), HRI_W(y)}, 3);
  return y;
}

static hri_id activation(tiny *t, hr_activation kind, hri_id x) {
  hri_attr attr = {.i = {kind}};
  hri_id y = fresh(t, rows_of(t, x), columns_of(t, x));
  node(t, HRI_OP_ACTIVATION, &attr, (hri_operand[]){HRI_R(x), HRI_W(y)}, 2);
  return y;
}

static hri_id glu(tiny *t, hr_activation kind, hri_id x) {
  hri_attr attr = {.i = {kind}};
  hri_id y = fresh(t, rows_of(t, x), columns_of(t, x) / 2);
  node(t, HRI_OP_GLU, &attr, (hri_operand[]){HRI_R(x), HRI_W(y)}, 2);
  return y;
}

/* The result of the program: its gradient is random and comes from outside. */
static void result(tiny *t, hri_id hidden) {
  uint64_t dims[2] = {rows_of(t, hidden), columns_of(t, hidden)};
  input *dy = new_input(t, "dy", HRI_F32, 2, dims);
  for (uint64_t i = 0; i < dy->count; i++) dy->floats[i] = (float)uniform(t->seed, 8, i);
  t->hidden = hidden;
  t->dy = dy->tensor;
}

/* The result is a loss: mean cross entropy of hidden . head^T, with every fourth label ignored. */
static void loss(tiny *t, hri_id hidden, hri_id head, uint64_t vocabulary) {
  uint64_t rows = rows_of(t, hidden);
  input *in;
  t->hidden = hidden;
  t->head = head;
  t->vocabulary = vocabulary;
  t->targets = integers(t, "targets", rows, (uint32_t)vocabulary);
  in = &t->inputs[t->input_count - 1];
  for (uint64_t i = 1; i < rows; i += 4) in->ints[i] = -100;
  for (uint64_t i = 0; i < rows; i++) t->counted += in->ints[i] >= 0;
}

/* ---- how a program is compiled and run ---- */

typedef struct way {
  const char *name;
  bool passes;         /* layout, fuse, in place, schedule; else autodiff alone */
  bool recompute;      /* nothing of layer 0 is kept */
  uint32_t accumulate; /* 2: two micro-steps of the same rows */
  uint32_t chunk;      /* tokens per loss chunk; 0: all */
  uint32_t threads;
  const char *isa; /* HEADROOM_ISA */
} way;

static const way ways[] = {
    {.name = "autodiff alone", .accumulate = 1, .threads = 1},
    {.name = "all passes", .passes = true, .accumulate = 1, .threads = 1},
    {.name = "all passes, 2 threads, chunks of 3", .passes = true, .accumulate = 1, .threads = 2, .chunk = 3},
    {.name = "recomputed", .passes = true, .recompute = true, .accumulate = 1, .threads = 1},
    {.name = "accumulated, chunks of 5", .passes = true, .accumulate = 2, .threads = 1, .chunk = 5},
    {.name = "accumulated, recomputed, 2 threads", .passes = true, .recompute = true, .accumulate = 2, .threads = 2},
    {.name = "base kernels", .passes = true, .accumulate = 1, .threads = 1, .isa = "base"},
    {.name = "avx2 kernels", .passes = true, .accumulate = 1, .threads = 1, .isa = "avx2"},
};

/* The control block, for builders whose nodes read it. */
static hri_id control(tiny *t) {
  if (t->job.control == HRI_NONE) hri_build_control(&t->job, hri_programs_of(&t->spec));
  return t->job.control;
}

static void finish_forward(tiny *t) {
  (void)control(t);
  hri_build_transfers(&t->job, true, false, HRI_DEVICE);
  if (t->spec.accumulate > 1) hri_build_zero_gradients(&t->job);
  HOLDS(hri_job_ok(&t->job, error));
}

static void checked(const tiny *t, const char *after) {
  hr_error error = {0};
  if (hri_job_check(&t->job, &error) != HR_OK) fail_msg("%s: after %s: %s", where, after, error.message);
}

static void compile(tiny *t, const way *w, const hri_backend *backend) {
  uint8_t levels[1] = {HR_LEVEL_BLOCK};
  hri_id gradient = t->dy;
  if (t->head != HRI_NONE)
    gradient = hri_pass_head(&t->job, t->program, t->hidden, t->head, t->head_bias, t->targets, t->vocabulary,
                             t->softcap, t->smoothing, 0, true, w->chunk);
  checked(t, "head");
  HOLDS(hri_pass_autodiff(&t->job, t->program, t->hidden, gradient, w->accumulate > 1, error));
  checked(t, "autodiff");
  if (w->passes) {
    HOLDS(hri_pass_layout(&t->job, false, error));
    checked(t, "layout");
    if (w->recompute) HOLDS(hri_pass_recompute(&t->job, t->program, levels, 1, 1, error));
    checked(t, "recompute");
    HOLDS(hri_pass_fuse(&t->job, error));
    checked(t, "fuse");
    HOLDS(hri_pass_inplace(&t->job, error));
    checked(t, "in place");
    HOLDS(hri_pass_schedule(&t->job, error));
    checked(t, "schedule");
  }
  HOLDS(hri_pass_workspace(&t->job, backend, error));
  checked(t, "workspace");
}

/* Runs a training step without its update, with any of the three backends: RUN(program) twice for two micro-steps. */
#define RUN_STEP(prefix, memory)                                                                                       \
  do {                                                                                                                 \
    if ((memory)->job->programs[HRI_LOAD].present) prefix##_program((memory), HRI_LOAD, RUN_ALL);                      \
    if ((memory)->job->programs[HRI_STEP].present) prefix##_program((memory), HRI_STEP, RUN_ALL);                      \
    if ((memory)->job->programs[HRI_MICRO].present) {                                                                  \
      prefix##_program((memory), HRI_BEGIN, RUN_ALL);                                                                  \
      prefix##_program((memory), HRI_MICRO, RUN_ALL);                                                                  \
      prefix##_program((memory), HRI_MICRO, RUN_ALL);                                                                  \
    }                                                                                                                  \
  } while (0)

#define GIVE(prefix, memory, t)                                                                                        \
  do {                                                                                                                 \
    for (uint32_t give_p = 0; give_p < (t)->job.params.count; give_p++)                                                \
      for (uint64_t i = 0; i < (t)->job.params.items[give_p].elements; i++)                                            \
        prefix##_at((memory), (t)->job.params.items[give_p].weight)[i] = (t)->values[give_p][i];                       \
    for (uint32_t give_k = 0; give_k < (t)->input_count; give_k++)                                                     \
      for (uint64_t i = 0; i < (t)->inputs[give_k].count; i++) {                                                       \
        if ((t)->inputs[give_k].ints)                                                                                  \
          prefix##_ints_at((memory), (t)->inputs[give_k].tensor)[i] = (t)->inputs[give_k].ints[i];                     \
        else prefix##_at((memory), (t)->inputs[give_k].tensor)[i] = (t)->inputs[give_k].floats[i];                     \
      }                                                                                                                \
    (memory)->control.inv_tokens = (t)->counted ? 1.0 / (double)(t)->counted : 0;                                      \
  } while (0)

/* ---- gradients: one array per parameter, NULL when it is frozen ---- */

typedef struct gradients {
  double *of[MOST_PARAMS];
} gradients;

static gradients new_gradients(const tiny *t) {
  gradients g = {{0}};
  for (uint32_t p = 0; p < t->job.params.count; p++)
    if (t->job.params.items[p].trainable) g.of[p] = calloc(t->job.params.items[p].elements, sizeof(double));
  return g;
}
static void free_gradients(gradients *g) {
  for (uint32_t p = 0; p < MOST_PARAMS; p++) free(g->of[p]);
}

/* Elements of a parameter before the first of a run's. */
static uint64_t before_run(const tiny *t, uint32_t p, const hri_param_run *run) {
  return run->row * (t->job.params.items[p].elements / t->job.tensors.items[t->job.params.items[p].weight].stored[0]);
}
static bool row_trains(const tiny *t, uint32_t p, uint64_t element) {
  uint32_t count;
  const hri_param_run *runs = hri_param_runs(&t->job, p, &count);
  uint64_t row =
      element / (t->job.params.items[p].elements / t->job.tensors.items[t->job.params.items[p].weight].stored[0]);
  for (uint32_t k = 0; k < count; k++)
    if (row >= runs[k].row && row < runs[k].row + runs[k].rows) return true;
  return false;
}

/* What a backend left in the gradients of the runs of a parameter; rows that do not train keep zero. */
#define COLLECT(prefix, memory, t, g)                                                                                  \
  for (uint32_t p_ = 0; p_ < (t)->job.params.count; p_++) {                                                            \
    uint32_t count_;                                                                                                   \
    const hri_param_run *runs_ = hri_param_runs(&(t)->job, p_, &count_);                                               \
    for (uint32_t k_ = 0; (g)->of[p_] && k_ < count_; k_++)                                                            \
      for (uint64_t i = 0; i < hri_tensor_stored_elements(&(t)->job.tensors.items[runs_[k_].gradient]); i++)           \
        (g)->of[p_][before_run((t), p_, &runs_[k_]) + i] = (double)prefix##_at((memory), runs_[k_].gradient)[i];       \
  }

static gradients exact_gradients(const tiny *t) {
  gradients g = new_gradients(t);
  exact_memory m;
  exact_open(&m, &t->job);
  GIVE(exact, &m, t);
  RUN_STEP(exact, &m);
  COLLECT(exact, &m, t, &g)
  exact_close(&m);
  return g;
}

static gradients plain_gradients(const tiny *t) {
  gradients g = new_gradients(t);
  plain_memory m;
  plain_open(&m, &t->job);
  GIVE(plain, &m, t);
  RUN_STEP(plain, &m);
  COLLECT(plain, &m, t, &g)
  plain_close(&m);
  return g;
}

typedef struct captured {
  const tiny *t;
  hri_executor *executor;
  gradients *g;
} captured;

/* Gradients die early in a fused step: each is copied whenever a node has written it or added to it. */
static void capture(void *context, const hri_job *job, hri_id id, double seconds) {
  captured *c = context;
  const hri_node *n = &job->nodes.items[id];
  (void)seconds;
  for (uint32_t i = 0; i < n->operand_count; i++) {
    hri_operand o = hri_operands(job, n)[i];
    if (o.tensor == HRI_NONE || (o.access != HRI_WRITE && o.access != HRI_ADD)) continue;
    for (uint32_t p = 0; p < job->params.count; p++) {
      uint32_t count;
      const hri_param_run *runs = hri_param_runs(job, p, &count);
      for (uint32_t r = 0; r < count; r++) {
        const float *from;
        if (runs[r].gradient != o.tensor) continue;
        from = hri_executor_view(c->executor, o.tensor);
        for (uint64_t k = 0; k < hri_tensor_stored_elements(&job->tensors.items[o.tensor]); k++)
          c->g->of[p][before_run(c->t, p, &runs[r]) + k] = (double)from[k];
      }
    }
  }
}

static hr_status fill(void *context, uint32_t index, uint32_t what, const hri_window *tensor, void *staging,
                      uint64_t bytes, hr_error *error) {
  const captured *c = context;
  (void)staging, (void)bytes, (void)error;
  const hri_param_range *r = &c->t->job.ranges.items[index];
  if (what == HRI_MOVED_WEIGHT) memcpy(tensor->memory, c->t->values[r->param] + r->first, r->elements * sizeof(float));
  return HR_OK;
}

static gradients engine_gradients(const tiny *t, hri_backend *cpu) {
  gradients g = new_gradients(t);
  captured c = {.t = t, .g = &g};
  hri_executor_options options = {.check = true, .after_node = capture, .context = &c};
  hri_transfer transfer = {.context = &c, .fill = fill};
  hri_placement placement;
  const hri_control control = {.loss_scale = 1,
                               .clip_scale = 1,
                               .inv_tokens = t->counted ? 1.0 / (double)t->counted : 0};
  HOLDS(hri_place_job(&t->job, HRI_CHECK_GUARD, &placement, error));
  HOLDS(hri_placement_verify(&t->job, &placement, error));
  HOLDS(hri_executor_create(&t->job, &placement, cpu, &transfer, &options, &c.executor, error));
  hri_executor_control_set(c.executor, 0, &control, sizeof control);
  HOLDS(hri_executor_run(c.executor, HRI_LOAD, error));
  for (uint32_t i = 0; i < t->input_count; i++)
    memcpy(hri_executor_view(c.executor, t->inputs[i].tensor),
           t->inputs[i].ints ? (const void *)t->inputs[i].ints : (const void *)t->inputs[i].floats,
           t->inputs[i].count * 4);
  if (t->job.programs[HRI_STEP].present) {
    HOLDS(hri_executor_run(c.executor, HRI_STEP, error));
  } else {
    HOLDS(hri_executor_run(c.executor, HRI_BEGIN, error));
    for (int k = 0; k < 2; k++) HOLDS(hri_executor_run(c.executor, HRI_MICRO, error));
  }
  hri_executor_destroy(c.executor);
  hri_placement_deinit(&placement);
  return g;
}

/* ---- differences of the double reference ---- */

typedef struct differences {
  const tiny *t; /* forward only */
  exact_memory m;
  double magnitude; /* sum of the absolute terms of the loss, at its last evaluation */
  double depth;     /* roundings that a value passes */
} differences;

/* Terms that one element of the node's result is made of, plus a few for the elementwise part. */
static double node_depth(const hri_job *job, const hri_node *n) {
  const int64_t *i = n->attr.i;
  switch (n->op) {
  case HRI_OP_LINEAR: return (double)hri_columns(hri_at(job, n, 0)) + 2;
  case HRI_OP_NORM: return 2 * (double)hri_columns(hri_at(job, n, 0)) + 8;
  case HRI_OP_ATTENTION:
  case HRI_OP_ATTENTION_FULL: return 2 * (double)i[4] + 2 * (double)i[1] + 8;
  case HRI_OP_CROSS_ENTROPY: return (double)i[0] + 8;
  case HRI_OP_LOSS_SUM: return (double)hri_tensor_elements(hri_at(job, n, 0));
  default: return 16;
  }
}

/* The loss of the forward program with every parameter moved by `step` along `direction` (NULL entries: not at all). */
static double loss_at(differences *d, double *const *direction, double step) {
  const tiny *t = d->t;
  double sum = 0;
  d->magnitude = 0;
  for (uint32_t p = 0; p < t->job.params.count; p++)
    for (uint64_t i = 0; i < t->job.params.items[p].elements; i++)
      exact_at(&d->m, t->job.params.items[p].weight)[i] =
          (double)t->values[p][i] + (direction[p] ? step * direction[p][i] : 0);
  d->m.control.loss_sum = 0;
  exact_program(&d->m, (hri_program_kind)t->program, RUN_FORWARD);
  if (t->head != HRI_NONE) {
    d->magnitude = fabs(d->m.control.loss_sum) * d->m.control.inv_tokens; /* losses are not negative */
    return d->m.control.loss_sum * d->m.control.inv_tokens;
  }
  for (uint32_t k = 0; k < t->input_count; k++)
    for (uint64_t i = 0; t->inputs[k].tensor == t->dy && i < t->inputs[k].count; i++) {
      double term = (double)t->inputs[k].floats[i] * exact_at(&d->m, t->hidden)[i];
      sum += term;
      d->magnitude += fabs(term);
    }
  return sum;
}

static void differences_open(differences *d, const tiny *t) {
  memset(d, 0, sizeof *d);
  d->t = t;
  exact_open(&d->m, &t->job);
  GIVE(exact, &d->m, t);
  if (t->job.programs[HRI_LOAD].present) exact_program(&d->m, HRI_LOAD, RUN_ALL);
  for (size_t at = 0; at < t->job.programs[t->program].order.count; at++)
    d->depth += node_depth(&t->job, &t->job.nodes.items[t->job.programs[t->program].order.items[at]]);
}

/* The comparisons say something when a millionth part of the gradient, or a billionth of the loss, would show. */
static double known_well_enough(const differences *d, double scale) { return 1e-6 * scale + 1e-9 * d->magnitude; }

/* D along `direction` from steps of h, and a bound of its error. */
static double derivative_from(differences *d, double *const *direction, double h, double *error) {
  double slope[3], coarse, fine, most = 0;
  for (int k = 0; k < 3; k++) {
    double step = h / (1 << k), up = loss_at(d, direction, step), down;
    most = fmax(most, d->magnitude);
    down = loss_at(d, direction, -step);
    most = fmax(most, d->magnitude);
    slope[k] = (up - down) / (2 * step);
  }
  coarse = (4 * slope[1] - slope[0]) / 3;
  fine = (4 * slope[2] - slope[1]) / 3;
  *error = fabs(fine - coarse) + 6 * d->depth * (DBL_EPSILON / 2) * most / h;
  return fine;
}

/* The same with the h that bounds the error best, of those tried until it is known well enough: a strongly curved loss
 * wants a small one. scale: L2(g) L2(v). */
static double derivative(differences *d, double *const *direction, double scale, double *error) {
  double best = 0, h = 1e-3;
  *error = INFINITY;
  for (int k = 0; k < 4; k++, h /= 4) {
    double bound, value = derivative_from(d, direction, h, &bound);
    if (bound < *error) {
      *error = bound;
      best = value;
    }
    if (*error <= known_well_enough(d, scale)) break;
  }
  return best;
}

/* ---- the comparison ---- */

static double l2(const double *a, const double *b, uint64_t n) {
  double sum = 0;
  for (uint64_t i = 0; i < n; i++) sum += (a[i] - (b ? b[i] : 0)) * (a[i] - (b ? b[i] : 0));
  return sqrt(sum);
}
static double inner(const double *a, const double *b, uint64_t n) {
  double sum = 0;
  for (uint64_t i = 0; i < n; i++) sum += a[i] * b[i];
  return sum;
}

static input *incoming(tiny *t) {
  for (uint32_t k = 0; k < t->input_count; k++)
    if (t->dy != HRI_NONE && t->inputs[k].tensor == t->dy) return &t->inputs[k];
  return NULL;
}

/* A copy of `count` values, at a nearby point up to a thousandth away. */
static float *moved(const tiny *t, const float *values, uint64_t count, uint64_t point, uint64_t stream) {
  float *copy = malloc(count * sizeof *copy);
  assert_non_null(copy);
  for (uint64_t i = 0; i < count; i++)
    copy[i] = values[i] * (float)(1 + (point ? 1e-3 * uniform(t->seed, stream + 1000 * point, i) : 0));
  return copy;
}

/* Relative errors of plain fp32, per parameter: the worst of the first `points` nearby points. */
typedef struct yardstick {
  double of[MOST_PARAMS];
  uint64_t points;
} yardstick;

enum { FIRST_POINTS = 4, ALL_POINTS = 32 };

static void measure_plain(tiny *t, yardstick *y, uint64_t points) {
  for (uint32_t p = 0; p < MOST_PARAMS; p++) y->of[p] = fmax(y->of[p], ldexp(1, -24));
  for (; y->points < points; y->points++) {
    input *dy = incoming(t);
    float *kept[MOST_PARAMS], *kept_dy = dy ? dy->floats : NULL;
    gradients exact, plain;
    memcpy(kept, t->values, sizeof kept);
    for (uint32_t p = 0; p < t->job.params.count; p++)
      t->values[p] = moved(t, kept[p], t->job.params.items[p].elements, y->points, 900 + p);
    if (dy) dy->floats = moved(t, kept_dy, dy->count, y->points, 800);
    exact = exact_gradients(t);
    plain = plain_gradients(t);
    for (uint32_t p = 0; p < t->job.params.count; p++) {
      uint64_t n = t->job.params.items[p].elements;
      double size = exact.of[p] ? l2(exact.of[p], NULL, n) : 0;
      if (size > 0) y->of[p] = fmax(y->of[p], l2(plain.of[p], exact.of[p], n) / size);
      free(t->values[p]);
    }
    free_gradients(&exact);
    free_gradients(&plain);
    if (dy) free(dy->floats), dy->floats = kept_dy;
    memcpy(t->values, kept, sizeof kept);
  }
}

/* The parameters in [first, end), together: the three comparisons. */
static void compare_along(differences *d, const way *w, tiny *t, uint32_t first, uint32_t end, const gradients *exact,
                          yardstick *plain, const gradients *engine) {
  double *direction[MOST_PARAMS] = {0}, repeats = w->accumulate, error, truth, exact_dot = 0, engine_dot = 0, bound = 0,
         scale = 0, rounding = 0;
  const char *name = end - first > 1 ? "all" : hri_name_get(&t->job, t->job.params.items[first].key);
  for (uint32_t p = first; p < end; p++) {
    uint64_t n = t->job.params.items[p].elements,
             logical = hri_tensor_elements(&t->job.tensors.items[t->job.params.items[p].weight]);
    double size, off;
    if (!exact->of[p]) continue;
    direction[p] = calloc(n, sizeof(double));
    for (uint64_t i = 0; i < logical; i++) direction[p][i] = row_trains(t, p, i) ? uniform(t->seed, 500 + p, i) : 0;
    for (uint64_t i = 0; i < n; i++) rounding += fabs(exact->of[p][i] * direction[p][i]);
    size = l2(exact->of[p], NULL, n);
    off = l2(engine->of[p], exact->of[p], n);
    if (!(off <= 4 * plain->of[p] * size)) measure_plain(t, plain, ALL_POINTS);
    if (!(off <= 4 * plain->of[p] * size))
      fail_msg("%s, %s: gradient of %s: error %.3g, allowed 4 x %.3g, the error of plain fp32 (size %.3g)", where,
               w->name, hri_name_get(&t->job, t->job.params.items[p].key), off, plain->of[p] * size, size);
    exact_dot += inner(exact->of[p], direction[p], n);
    engine_dot += inner(engine->of[p], direction[p], n);
    bound += 4 * plain->of[p] * size * l2(direction[p], NULL, n);
    scale += size * l2(direction[p], NULL, n);
  }
  truth = repeats * derivative(d, direction, scale / repeats, &error);
  error = repeats * error + d->depth * DBL_EPSILON * rounding;
  if (!(fabs(exact_dot - truth) <= error))
    fail_msg("%s, %s: the rules give %.12g along %s, differences %.12g, allowed error %.3g", where, w->name, exact_dot,
             name, truth, error);
  if (!(fabs(engine_dot - truth) <= bound + error))
    fail_msg("%s, %s: the engine gives %.12g along %s, differences %.12g, allowed error %.3g", where, w->name,
             engine_dot, name, truth, bound + error);
  if (!(error <= 2 * repeats * known_well_enough(d, scale / repeats)))
    fail_msg("%s, %s: differences along %s are known to %.3g only (%.3g)", where, w->name, name, error, scale);
  for (uint32_t p = first; p < end; p++) free(direction[p]);
}

/* A head without a gradient is an evaluation's, whose loss is not smoothed; differences want that of training. */
static void smooth(tiny *t) {
  for (size_t n = 0; n < t->job.nodes.count; n++)
    if (t->job.nodes.items[n].op == HRI_OP_CROSS_ENTROPY) {
      assert_true(t->job.nodes.items[n].attr.f[1] == 0);
      t->job.nodes.items[n].attr.f[1] = t->smoothing;
    }
}

static uint64_t program_number; /* seeds each program's values */

/* What tests look at in a compiled program. */
typedef void (*inspector)(const tiny *t, const way *w);

static void hold_way(const char *name, builder build, const void *shape, inspector inspect, const way *w,
                     uint64_t seed) {
  tiny forward, t;
  differences d;
  gradients exact, engine;
  yardstick plain = {.points = 0};
  hri_backend *cpu = NULL;
  uint32_t trainable = 0;
  where = name;
  tiny_open(&forward, seed, 1);
  build(&forward, shape);
  finish_forward(&forward);
  if (forward.head != HRI_NONE)
    (void)hri_pass_head(&forward.job, forward.program, forward.hidden, forward.head, forward.head_bias, forward.targets,
                        forward.vocabulary, forward.softcap, forward.smoothing, 0, false, 0);
  smooth(&forward);
  differences_open(&d, &forward);
  tiny_open(&t, seed, w->accumulate);
  build(&t, shape);
  finish_forward(&t);
  if (w->isa) assert_int_equal(setenv("HEADROOM_ISA", w->isa, 1), 0);
  HOLDS(cpu_open(w->threads, &cpu, error));
  if (w->isa) assert_int_equal(unsetenv("HEADROOM_ISA"), 0);
  compile(&t, w, cpu);
  if (inspect) inspect(&t, w);
  exact = exact_gradients(&t);
  measure_plain(&t, &plain, FIRST_POINTS);
  engine = engine_gradients(&t, cpu);
  for (uint32_t p = 0; p < t.job.params.count; p++) {
    if (!exact.of[p]) continue;
    trainable++;
    compare_along(&d, w, &t, p, p + 1, &exact, &plain, &engine);
  }
  assert_true(trainable > 0);
  compare_along(&d, w, &t, 0, (uint32_t)t.job.params.count, &exact, &plain, &engine);
  free_gradients(&exact);
  free_gradients(&engine);
  exact_close(&d.m);
  hri_backend_close(cpu);
  tiny_close(&forward);
  tiny_close(&t);
}

static void hold(const char *name, builder build, const void *shape, inspector inspect) {
  uint64_t seed = 1000 + program_number++;
  for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
    hri_isa isa;
    if (ways[k].isa && hri_cpu_isa_choose(ways[k].isa, &isa, NULL) != HR_OK) continue;
    hold_way(name, build, shape, inspect, &ways[k], seed);
  }
}
#define HOLD(build, ...)                                                                                               \
  do {                                                                                                                 \
    static const int shape_[] = {__VA_ARGS__};                                                                         \
    hold(#build " " #__VA_ARGS__, build, shape_, NULL);                                                                \
  } while (0)

/* Nodes of an op in the backward phase (or any, with phase -1). */
static uint32_t count_nodes(const tiny *t, hri_op op, int phase) {
  const hri_program *p = &t->job.programs[t->program];
  uint32_t count = 0;
  for (size_t at = 0; at < p->order.count; at++) {
    const hri_node *n = &t->job.nodes.items[p->order.items[at]];
    count += n->op == op && (phase < 0 || n->phase == phase);
  }
  return count;
}

/* ---- one op at a time ---- */

/* x[M,K], w[N,K], bias? */
static void build_linear(tiny *t, const void *shape) {
  const int *s = shape;
  hri_id x = variable(t, (uint64_t)s[0], (uint64_t)s[2], false), w = matrix(t, "w", (uint64_t)s[1], (uint64_t)s[2]);
  t->emit.layer = 0;
  result(t, linear(t, x, w, s[3] ? vector(t, "bias", (uint64_t)s[1]) : HRI_NONE));
}

static void linear_rule(void **state) {
  (void)state;
  HOLD(build_linear, 7, 5, 3, 0);
  HOLD(build_linear, 7, 5, 3, 1);
  HOLD(build_linear, 1, 1, 1, 1);
  HOLD(build_linear, 33, 17, 19, 1);
  HOLD(build_linear, 1, 65, 31, 0);
  HOLD(build_linear, 67, 1, 13, 1);
}

/* M ids of a table [V,C], stored rows, padding id, positions? Ids repeat. */
static void build_embed(tiny *t, const void *shape) {
  const int *s = shape;
  uint64_t m = (uint64_t)s[0], v = (uint64_t)s[1], c = (uint64_t)s[2];
  hri_id table = weight(t, "table", v, c, (uint64_t)s[3], false, 0, 1), ids = integers(t, "ids", m, (uint32_t)v),
         positions = HRI_NONE, position_table = HRI_NONE;
  if (s[5]) {
    position_table = weight(t, "positions", 9, c, 9, false, 0, 1);
    positions = integers(t, "positions", m, 9);
  }
  result(t, embed(t, ids, table, positions, position_table, s[4]));
}

static void embed_rule(void **state) {
  (void)state;
  HOLD(build_embed, 23, 11, 5, 11, -1, 0);
  HOLD(build_embed, 23, 11, 5, 64, -1, 1);
  HOLD(build_embed, 1, 1, 1, 1, -1, 0);
  HOLD(build_embed, 40, 70, 17, 128, -1, 1);
}

/* The padding id gives no gradient, as in transformers; the difference along its row is not zero, so it is frozen out
 * of the truth by hand: here the rule is compared with its definition. */
static void embedding_of_the_padding_id_gets_no_gradient(void **state) {
  static const int shape[] = {23, 5, 3, 5, 2, 0};
  tiny t;
  hri_backend *cpu = NULL;
  gradients engine;
  double want[15] = {0};
  const input *ids, *dy;
  uint32_t skipped = 0;
  (void)state;
  where = "padding id";
  tiny_open(&t, 5, 1);
  build_embed(&t, shape);
  finish_forward(&t);
  HOLDS(cpu_open(1, &cpu, error));
  compile(&t, &ways[1], cpu);
  engine = engine_gradients(&t, cpu);
  ids = &t.inputs[0];
  dy = &t.inputs[1];
  for (uint32_t m = 0; m < 23; m++)
    for (uint32_t c = 0; c < 3; c++) {
      if (ids->ints[m] == 2) skipped++;
      else want[ids->ints[m] * 3 + c] += (double)dy->floats[m * 3 + c];
    }
  assert_true(skipped > 0);
  for (uint32_t i = 0; i < 15; i++)
    if (fabs(engine.of[0][i] - want[i]) > 22 * ldexp(1, -24) * 23) /* 22 additions of 23 terms that are at most 1 */
      fail_msg("element %u: %g instead of %g", i, engine.of[0][i], want[i]);
  for (uint32_t c = 0; c < 3; c++) assert_true(engine.of[0][2 * 3 + c] == 0);
  free_gradients(&engine);
  hri_backend_close(cpu);
  tiny_close(&t);
}

/* kind, M, C, bias?, residual? */
static void build_norm(tiny *t, const void *shape) {
  const int *s = shape;
  uint64_t m = (uint64_t)s[1], c = (uint64_t)s[2];
  hri_id x = variable(t, m, c, false), w = weight(t, "w", c, 0, c, false, 1, 0.5),
         b = s[3] ? vector(t, "b", c) : HRI_NONE, sum, y;
  t->emit.layer = 0;
  if (!s[4]) {
    result(t, norm(t, (hr_norm)s[0], x, w, b));
    return;
  }
  t->emit.layer = -1;
  sum = variable(t, m, c, false);
  t->emit.layer = 0;
  sum = add(t, x, sum);
  y = norm(t, (hr_norm)s[0], sum, w, b);
  result(t, add(t, sum, y)); /* the sum goes on, as a residual stream does */
}

static void norm_rule(void **state) {
  (void)state;
  HOLD(build_norm, HR_NORM_LAYER, 7, 5, 1, 0);
  HOLD(build_norm, HR_NORM_LAYER, 7, 5, 0, 0);
  HOLD(build_norm, HR_NORM_LAYER, 13, 33, 1, 1);
  HOLD(build_norm, HR_NORM_LAYER, 1, 130, 0, 1);
  HOLD(build_norm, HR_NORM_RMS, 7, 5, 1, 0);
  HOLD(build_norm, HR_NORM_RMS, 9, 3, 0, 0);
  HOLD(build_norm, HR_NORM_RMS, 13, 33, 0, 1);
  HOLD(build_norm, HR_NORM_RMS, 70, 17, 1, 1);
}

/* M, C; both summands are variables */
static void build_add(tiny *t, const void *shape) {
  const int *s = shape;
  hri_id a = variable(t, (uint64_t)s[0], (uint64_t)s[1], false), b = variable(t, (uint64_t)s[0], (uint64_t)s[1], false);
  t->emit.layer = 0;
  result(t, add(t, a, b));
}

/* kind, M, C */
static void build_activation(tiny *t, const void *shape) {
  const int *s = shape;
  hri_id x = variable(t, (uint64_t)s[1], (uint64_t)s[2], false);
  t->emit.layer = 0;
  result(t, activation(t, (hr_activation)s[0], add(t, x, add(t, x, x)))); /* three times x: from -3 to 3 */
}

/* kind, M, F */
static void build_glu(tiny *t, const void *shape) {
  const int *s = shape;
  hri_id x = variable(t, (uint64_t)s[1], 2 * (uint64_t)s[2], false);
  t->emit.layer = 0;
  result(t, glu(t, (hr_activation)s[0], add(t, x, x)));
}

/* M, C; scaled, added to itself as it was, and halved */
static void build_scale(tiny *t, const void *shape) {
  const int *s = shape;
  hri_id x = variable(t, (uint64_t)s[0], (uint64_t)s[1], false), y = fresh(t, (uint64_t)s[0], (uint64_t)s[1]), z;
  t->emit.layer = 0;
  node(t, HRI_OP_SCALE, &(hri_attr){.f = {-1.7}}, (hri_operand[]){HRI_R(x), HRI_W(y)}, 2);
  z = fresh(t, (uint64_t)s[0], (uint64_t)s[1]);
  node(t, HRI_OP_SCALE, &(hri_attr){.f = {0.5}}, (hri_operand[]){HRI_R(add(t, x, y)), HRI_W(z)}, 2);
  result(t, z);
}

/* M, K, N0, N1, N2, rank: x W^T scaled by columns, where the first and the last part have magnitudes. The lengths are those
 * of a frozen weight with frozen A and B: through them no gradient goes, so differences must not either. */
static void build_dora(tiny *t, const void *shape) {
  const int *s = shape;
  uint64_t n = (uint64_t)(s[2] + s[3] + s[4]), with = (uint64_t)(s[2] + s[4]), k = (uint64_t)s[1], r = (uint64_t)s[5];
  hri_attr attr = {.i = {s[2], s[3], s[4], 5}, .f = {0.7, 0, 1.3}};
  hri_id x = variable(t, (uint64_t)s[0], k, false), w = weight(t, "w", n, k, n, false, 0, 1),
         m = weight(t, "m", with, 0, with, false, 1, 0.3), bias = weight(t, "bias", n, 0, n, false, 0, 1),
         base = weight(t, "base", n, k, n, true, 0, 1), a0 = weight(t, "a0", r, k, r, true, 0, 1),
         b0 = weight(t, "b0", (uint64_t)s[2], r, (uint64_t)s[2], true, 0, 1),
         a2 = weight(t, "a2", r + 1, k, r + 1, true, 0, 1),
         b2 = weight(t, "b2", (uint64_t)s[4], r + 1, (uint64_t)s[4], true, 0, 1), lengths, y;
  uint64_t dims[1] = {with};
  hri_place place = {.program = t->program,
                     .tier = HRI_DEVICE,
                     .role = HRI_ROLE_ACTIVATION,
                     .layer = -1,
                     .unit = HRI_NONE};
  t->emit.layer = 0;
  lengths = hri_tensor_new(&t->job, place, hri_name(&t->job, "lengths"), HRI_F32, 1, dims, NULL);
  node(t, HRI_OP_DORA_LENGTHS, &attr,
       (hri_operand[]){HRI_R(base), HRI_R(a0), HRI_ABSENT, HRI_R(a2), HRI_R(b0), HRI_ABSENT, HRI_R(b2), HRI_W(lengths)},
       8);
  x = linear(t, x, w, HRI_NONE);
  y = fresh(t, (uint64_t)s[0], n);
  node(t, HRI_OP_DORA, &attr, (hri_operand[]){HRI_R(x), HRI_R(m), HRI_R(lengths), HRI_R(bias), HRI_W(y)}, 5);
  result(t, y);
}

static hri_id dropout(tiny *t, hri_id x, double p, uint64_t sequence) {
  hri_attr attr = {.i = {(int64_t)sequence}, .f = {p}};
  hri_id y = fresh(t, rows_of(t, x), columns_of(t, x));
  node(t, HRI_OP_DROPOUT, &attr, (hri_operand[]){HRI_R(x), HRI_R(control(t)), HRI_W(y)}, 3);
  return y;
}

/* B, T, C, N: what a product reads, and what it made, each without a part of it; the first is made again in the
 * backward when nothing is kept, and must be the same then. */
static void build_dropout(tiny *t, const void *shape) {
  const int *s = shape;
  uint64_t rows = (uint64_t)(s[0] * s[1]);
  hri_id x = variable(t, rows, (uint64_t)s[2], false), w = matrix(t, "w", (uint64_t)s[3], (uint64_t)s[2]);
  t->emit.layer = 0;
  x = dropout(t, activation(t, HR_ACTIVATION_SILU, x), 0.3, (uint64_t)s[1]);
  result(t, dropout(t, linear(t, x, w, HRI_NONE), 0.5, (uint64_t)s[1]));
}

static void inspect_dropout(const tiny *t, const way *w) {
  const hri_program *p = &t->job.programs[t->program];
  bool cloned = false;
  assert_int_equal(count_nodes(t, HRI_OP_DROPOUT, HRI_PHASE_FORWARD), 2);
  assert_int_equal(count_nodes(t, HRI_OP_DROPOUT, HRI_PHASE_BACKWARD), w->recompute ? 3 : 2); /* and no mask is kept */
  for (size_t at = 0; at < p->order.count; at++) {
    const hri_node *n = &t->job.nodes.items[p->order.items[at]];
    if (n->op == HRI_OP_DROPOUT && n->origin != HRI_NONE) {
      cloned = true;
      assert_int_equal(n->site, t->job.nodes.items[n->origin].site);
    }
  }
  assert_true(cloned == w->recompute);
}

static void dropout_rule(void **state) {
  static const int shapes[][4] = {{2, 3, 5, 7}, {1, 1, 1, 1}, {3, 4, 37, 33}};
  (void)state;
  for (int i = 0; i < 3; i++) hold("dropout", build_dropout, shapes[i], inspect_dropout);
}

static void pointwise_rules(void **state) {
  (void)state;
  HOLD(build_scale, 7, 5);
  HOLD(build_scale, 3, 41);
  HOLD(build_dora, 7, 5, 6, 3, 4, 2);
  HOLD(build_dora, 35, 70, 33, 17, 65, 5);
  HOLD(build_add, 7, 5);
  HOLD(build_add, 1, 1);
  HOLD(build_add, 31, 37);
  HOLD(build_activation, HR_ACTIVATION_GELU_TANH, 7, 5);
  HOLD(build_activation, HR_ACTIVATION_GELU_TANH, 19, 33);
  HOLD(build_activation, HR_ACTIVATION_SILU, 7, 5);
  HOLD(build_activation, HR_ACTIVATION_SILU, 1, 17);
  HOLD(build_activation, HR_ACTIVATION_GELU, 7, 5);
  HOLD(build_activation, HR_ACTIVATION_RELU, 5, 9);
  HOLD(build_glu, HR_ACTIVATION_GELU, 3, 19);
  HOLD(build_glu, HR_ACTIVATION_RELU, 7, 5);
  HOLD(build_glu, HR_ACTIVATION_SILU, 7, 5);
  HOLD(build_glu, HR_ACTIVATION_SILU, 3, 41);
  HOLD(build_glu, HR_ACTIVATION_GELU_TANH, 11, 13);
}

/* B, T, H, K, D; documents of 1, 4, 1, 4, ... tokens? materialized? rope? frozen qkv never. */
static void dropped_attention_of(tiny *t, const int *s, int64_t window, double cap, int64_t rotary, double drop) {
  uint64_t batch = (uint64_t)s[0], sequence = (uint64_t)s[1], heads = (uint64_t)s[2], kv = (uint64_t)s[3],
           size = (uint64_t)s[4], m = batch * sequence;
  hri_attr attr = {.i = {s[0], s[1], s[2], s[3], s[4], window}, .f = {1 / sqrt((double)size), cap, drop}},
           rope = {.i = {s[2], s[3], s[4], 0, rotary}};
  hri_id x = variable(t, m, (heads + 2 * kv) * size, false), doc_start = HRI_NONE, y, second;
  int32_t *positions;
  if (s[5] || s[7]) {
    input *in = new_input(t, "doc_start", HRI_I32, 1, &m);
    for (uint64_t i = 0, start = 0; i < m; i++) {
      if (i % sequence == 0) start = 0;
      else if (s[5] && (i % sequence % 5 == 1 || i % sequence % 5 == 0)) start = i % sequence;
      in->ints[i] = (int32_t)start;
    }
    doc_start = in->tensor;
  }
  t->emit.layer = 0;
  if (s[7]) { /* twice the range of angles that a test of one position would see */
    uint64_t dims[3] = {2, sequence, (uint64_t)rotary / 2};
    input *table = new_input(t, "rope.table", HRI_F32, 3, dims), *place = new_input(t, "positions", HRI_I32, 1, &m);
    double inverse[16];
    hri_id turned = fresh(t, m, (heads + 2 * kv) * size);
    positions = place->ints;
    for (uint64_t i = 0; i < m; i++) positions[i] = (int32_t)(i % sequence) - t->inputs[t->input_count - 3].ints[i];
    assert_true(rotary / 2 <= 16);
    for (int64_t i = 0; i < rotary / 2; i++) inverse[i] = pow(50, -2 * (double)i / (double)rotary);
    hri_rope_table(inverse, rotary / 2, 1, (int64_t)sequence, table->floats, table->floats + table->count / 2, NULL);
    node(t, HRI_OP_ROPE, &rope, (hri_operand[]){HRI_R(x), HRI_R(place->tensor), HRI_R(table->tensor), HRI_W(turned)},
         4);
    x = turned;
  }
  y = fresh(t, m, heads * size);
  second = s[6] ? fresh(t, batch * heads * sequence, sequence) : fresh(t, m, heads);
  node(t, s[6] ? HRI_OP_ATTENTION_FULL : HRI_OP_ATTENTION, &attr,
       (hri_operand[]){HRI_R(x), HRI_R(doc_start), HRI_W(y), HRI_W(second), HRI_R(drop > 0 ? control(t) : HRI_NONE)},
       5);
  result(t, y);
}

static void attention_of(tiny *t, const int *s, int64_t window, double cap, int64_t rotary) {
  dropped_attention_of(t, s, window, cap, rotary, 0);
}

static void build_attention(tiny *t, const void *shape) {
  const int *s = shape;
  attention_of(t, s, 0, 0, s[4]);
}

/* ... then the window, ten times the cap, what of a head is rotated. */
static void build_windowed(tiny *t, const void *shape) {
  const int *s = shape;
  attention_of(t, s, s[8], 0.1 * s[9], s[10]);
}

/* ... and a third of the probabilities dropped. */
static void build_dropped(tiny *t, const void *shape) {
  const int *s = shape;
  dropped_attention_of(t, s, s[8], 0.1 * s[9], s[10], 1.0 / 3);
}

static void dropped_attention(void **state) {
  (void)state;
  HOLD(build_dropped, 2, 13, 6, 2, 5, 0, 0, 0, 0, 0, 0);
  HOLD(build_dropped, 2, 13, 6, 2, 5, 1, 1, 0, 0, 0, 0);
  HOLD(build_dropped, 1, 67, 4, 1, 10, 1, 0, 0, 7, 8, 0);
  HOLD(build_dropped, 2, 35, 3, 3, 13, 0, 1, 0, 34, 9, 0);
}

static void windows_and_caps(void **state) {
  (void)state;
  HOLD(build_windowed, 2, 13, 6, 2, 5, 0, 0, 0, 4, 0, 0);
  HOLD(build_windowed, 2, 13, 6, 2, 5, 1, 0, 0, 2, 0, 0);
  HOLD(build_windowed, 1, 67, 4, 1, 10, 1, 0, 0, 7, 8, 0);
  HOLD(build_windowed, 2, 13, 6, 2, 5, 0, 0, 0, 0, 5, 0);
  HOLD(build_windowed, 2, 13, 6, 2, 5, 1, 1, 0, 3, 5, 0);
  HOLD(build_windowed, 1, 35, 3, 3, 13, 0, 1, 0, 34, 9, 0);
  HOLD(build_windowed, 2, 9, 4, 2, 6, 0, 0, 1, 0, 0, 4);
  HOLD(build_windowed, 2, 17, 3, 1, 10, 1, 0, 1, 5, 6, 2);
}

/* M, H, K, D, ten times what is added to the weights, E (0: D) */
static void build_head_norm(tiny *t, const void *shape) {
  const int *s = shape;
  uint64_t m = (uint64_t)s[0], heads = (uint64_t)s[1], kv = (uint64_t)s[2], size = (uint64_t)s[3],
           keys = (uint64_t)(s[5] ? s[5] : s[3]);
  hri_attr attr = {.i = {s[1], s[2], s[3], s[5]}, .f = {1e-5, 0.1 * s[4]}};
  hri_id x = variable(t, m, heads * size + 2 * kv * keys, false), wq = weight(t, "wq", size, 0, size, false, 0.5, 0.5),
         wk = weight(t, "wk", keys, 0, keys, false, -0.5, 0.5), y, stats;
  t->emit.layer = 0;
  y = fresh(t, m, heads * size + 2 * kv * keys);
  stats = fresh(t, m, heads + kv);
  node(t, HRI_OP_HEAD_NORM, &attr, (hri_operand[]){HRI_R(x), HRI_R(wq), HRI_R(wk), HRI_W(y), HRI_W(stats)}, 5);
  result(t, y);
}

static void head_norm_rule(void **state) {
  (void)state;
  HOLD(build_head_norm, 7, 3, 1, 5, 0, 0);
  HOLD(build_head_norm, 7, 3, 1, 5, 10, 0);
  HOLD(build_head_norm, 1, 1, 1, 3, 0, 0);
  HOLD(build_head_norm, 33, 4, 2, 18, 10, 0);
  HOLD(build_head_norm, 70, 6, 3, 20, 0, 0);
  HOLD(build_head_norm, 33, 1, 1, 18, 0, 6);
  HOLD(build_head_norm, 7, 1, 1, 5, 10, 9);
}

static void attention_rules(void **state) {
  (void)state;
  HOLD(build_attention, 1, 7, 1, 1, 4, 0, 0, 0);
  HOLD(build_attention, 2, 13, 6, 2, 5, 0, 0, 0);
  HOLD(build_attention, 2, 13, 6, 2, 5, 1, 0, 0);
  HOLD(build_attention, 3, 1, 2, 1, 3, 0, 0, 0);
  HOLD(build_attention, 1, 67, 4, 1, 10, 1, 0, 0);
  HOLD(build_attention, 2, 13, 6, 2, 5, 0, 1, 0);
  HOLD(build_attention, 2, 13, 6, 2, 5, 1, 1, 0);
  HOLD(build_attention, 3, 1, 2, 1, 3, 0, 1, 0);
  HOLD(build_attention, 1, 35, 3, 3, 13, 1, 1, 0);
}

static void rope_rule(void **state) {
  (void)state;
  HOLD(build_attention, 2, 9, 4, 2, 6, 0, 0, 1);
  HOLD(build_attention, 2, 17, 3, 1, 10, 1, 0, 1);
  HOLD(build_attention, 1, 11, 2, 2, 2, 1, 1, 1);
}

/* M, C, V, stored V; the loss head with its own weight */
static void build_head(tiny *t, const void *shape) {
  const int *s = shape;
  hri_id x = variable(t, (uint64_t)s[0], (uint64_t)s[1], false),
         head = weight(t, "head", (uint64_t)s[2], (uint64_t)s[1], (uint64_t)s[3], false, 0, 1);
  loss(t, x, head, (uint64_t)s[2]);
}

/* ... which has a bias, padded like it */
static void build_biased_head(tiny *t, const void *shape) {
  const int *s = shape;
  t->head_bias = weight(t, "head_bias", (uint64_t)s[2], 0, (uint64_t)s[3], false, 0, 1);
  build_head(t, shape);
}

/* ... and ten times the cap of the logits */
static void build_capped_head(tiny *t, const void *shape) {
  const int *s = shape;
  t->softcap = 0.1 * s[4];
  build_head(t, shape);
}

/* ... and ten times the smoothing of the labels */
static void build_smoothed_head(tiny *t, const void *shape) {
  const int *s = shape;
  t->smoothing = 0.1 * s[5];
  build_capped_head(t, shape);
}

static void loss_head(void **state) {
  (void)state;
  HOLD(build_smoothed_head, 7, 5, 3, 3, 0, 1);
  HOLD(build_smoothed_head, 17, 9, 61, 64, 0, 5);
  HOLD(build_smoothed_head, 13, 33, 130, 192, 7, 1);
  HOLD(build_head, 7, 5, 3, 3);
  HOLD(build_head, 17, 9, 61, 64);
  HOLD(build_head, 1, 3, 2, 64);
  HOLD(build_head, 13, 33, 130, 192);
  HOLD(build_biased_head, 7, 5, 3, 3);
  HOLD(build_biased_head, 13, 33, 130, 192);
  HOLD(build_capped_head, 17, 9, 61, 64, 20);
  HOLD(build_capped_head, 13, 33, 130, 192, 7);
}

/* ---- things used twice ---- */

/* x goes through two linears, an activation and past both: four contributions to its gradient. */
static void build_diamond(tiny *t, const void *shape) {
  const int *s = shape;
  uint64_t m = (uint64_t)s[0], c = (uint64_t)s[1];
  hri_id x = variable(t, m, c, false), a, b;
  t->emit.layer = 0;
  x = activation(t, HR_ACTIVATION_SILU, x);
  a = linear(t, x, matrix(t, "w1", c, c), vector(t, "b1", c));
  b = linear(t, x, matrix(t, "w2", c, c), HRI_NONE);
  result(t, add(t, add(t, a, x), add(t, b, activation(t, HR_ACTIVATION_GELU_TANH, x))));
}

/* One weight and one bias in two linears, one norm in two places: the second touch of a gradient adds. */
static void build_shared(tiny *t, const void *shape) {
  const int *s = shape;
  uint64_t m = (uint64_t)s[0], c = (uint64_t)s[1];
  hri_id x = variable(t, m, c, false), w = matrix(t, "w", c, c), b = vector(t, "b", c),
         g = weight(t, "g", c, 0, c, false, 1, 0.5), h = vector(t, "h", c);
  t->emit.layer = 0;
  x = linear(t, norm(t, HR_NORM_LAYER, x, g, h), w, b);
  x = activation(t, HR_ACTIVATION_GELU_TANH, x);
  result(t, linear(t, norm(t, HR_NORM_LAYER, x, g, h), w, b));
}

/* Two norms share their weight but not their bias, and two others their bias but not their weight: in one node, one
 * gradient adds and the other one is written. */
static void build_half_shared(tiny *t, const void *shape) {
  const int *s = shape;
  uint64_t m = (uint64_t)s[0], c = (uint64_t)s[1];
  hri_id x = variable(t, m, c, false), g = weight(t, "g", c, 0, c, false, 1, 0.5), h = vector(t, "h", c);
  t->emit.layer = 0;
  x = activation(t, HR_ACTIVATION_SILU, norm(t, (hr_norm)s[2], x, g, vector(t, "h1", c)));
  x = activation(t, HR_ACTIVATION_SILU, norm(t, (hr_norm)s[2], x, g, vector(t, "h2", c)));
  x = activation(t, HR_ACTIVATION_SILU, norm(t, (hr_norm)s[2], x, weight(t, "g1", c, 0, c, false, 1, 0.5), h));
  result(t, norm(t, (hr_norm)s[2], x, weight(t, "g2", c, 0, c, false, 1, 0.5), h));
}

/* The embedding is the head, and also looked up twice: three touches of one gradient. */
static void build_tied(tiny *t, const void *shape) {
  const int *s = shape;
  uint64_t m = (uint64_t)s[0], c = (uint64_t)s[1], v = (uint64_t)s[2];
  hri_id table = weight(t, "table", v, c, (uint64_t)s[3], false, 0, 1),
         x = embed(t, integers(t, "ids", m, (uint32_t)v), table, HRI_NONE, HRI_NONE, -1), y;
  t->emit.layer = 0;
  y = activation(t, HR_ACTIVATION_GELU_TANH, linear(t, x, matrix(t, "w", c, c), HRI_NONE));
  t->emit.layer = -1;
  loss(t, add(t, y, embed(t, integers(t, "other ids", m, (uint32_t)v), table, HRI_NONE, HRI_NONE, -1)), table, v);
}

static void things_used_twice(void **state) {
  (void)state;
  HOLD(build_diamond, 7, 5);
  HOLD(build_diamond, 33, 17);
  HOLD(build_shared, 9, 7);
  HOLD(build_shared, 34, 21);
  HOLD(build_half_shared, 9, 7, HR_NORM_LAYER);
  HOLD(build_half_shared, 19, 11, HR_NORM_RMS);
  HOLD(build_tied, 17, 9, 61, 64);
  HOLD(build_tied, 5, 3, 7, 7);
}

/* ---- further producers, and columns of a fused result ---- */

/* What an adapter is: rows [begin, begin + count) of a product get a second producer, of low rank, that adds to their
 * columns. */
static void adapt(tiny *t, const char *name, hri_id x, hri_id y, uint64_t begin, uint64_t count, uint64_t rank) {
  char text[32];
  hri_id a, b, low;
  (void)snprintf(text, sizeof text, "%s.A", name);
  a = matrix(t, text, rank, columns_of(t, x));
  (void)snprintf(text, sizeof text, "%s.B", name);
  b = matrix(t, text, count, rank);
  low = linear(t, x, a, HRI_NONE);
  t->emit.site++;
  assert_int_not_equal(hri_node_append_plain(&t->job, HRI_OP_LINEAR, t->emit, NULL,
                                             (hri_operand[]){HRI_R(low), HRI_R(b), HRI_ABSENT,
                                                             HRI_A(hri_tensor_columns(&t->job, y, begin, count))},
                                             4),
                       HRI_NONE);
}

/* B, T, H, K, D, C, rank, base frozen?: adapters of q and v of a fused qkv, then attention and a product. */
static void build_adapters(tiny *t, const void *shape) {
  const int *s = shape;
  uint64_t m = (uint64_t)(s[0] * s[1]), h = (uint64_t)s[2], k = (uint64_t)s[3], d = (uint64_t)s[4], c = (uint64_t)s[5],
           r = (uint64_t)s[6];
  hri_attr attr = {.i = {s[0], s[1], s[2], s[3], s[4]}, .f = {0.7}};
  hri_id x = variable(t, m, c, s[7]), w = weight(t, "qkv", (h + 2 * k) * d, c, (h + 2 * k) * d, s[7], 0, 1), qkv, y,
         lse;
  t->emit.layer = 0;
  qkv = linear(t, x, w, HRI_NONE);
  adapt(t, "q", x, qkv, 0, h * d, r);
  adapt(t, "v", x, qkv, (h + k) * d, k * d, r);
  y = fresh(t, m, h * d);
  lse = fresh(t, (uint64_t)(s[0] * s[2]), (uint64_t)s[1]);
  node(t, HRI_OP_ATTENTION, &attr, (hri_operand[]){HRI_R(qkv), HRI_ABSENT, HRI_W(y), HRI_W(lse), HRI_ABSENT}, 5);
  t->emit.layer = -1;
  result(t, linear(t, y, weight(t, "o", c, h * d, c, s[7], 0, 1), HRI_NONE));
}

static void inspect_adapters(const tiny *t, const way *w) {
  uint32_t added = 0, again = 0;
  const hri_program *p = &t->job.programs[t->program];
  for (size_t at = 0; at < p->order.count; at++) {
    const hri_node *n = &t->job.nodes.items[p->order.items[at]];
    if (n->op != HRI_OP_LINEAR || hri_operands(&t->job, n)[3].access != HRI_ADD) continue;
    added += n->phase == HRI_PHASE_FORWARD;
    again += n->phase == HRI_PHASE_BACKWARD && n->origin != HRI_NONE;
  }
  assert_int_equal(added, 2);
  assert_int_equal(again, w->recompute ? 2 : 0);
}

static void inspect_frozen_adapters(const tiny *t, const way *w) {
  inspect_adapters(t, w);
  assert_int_equal(count_nodes(t, HRI_OP_LINEAR_DW, -1), 4); /* two adapters of two matrices; nothing of the base */
  assert_int_equal(count_nodes(t, HRI_OP_EMBED_BACKWARD, -1), 0);
  assert_int_equal(count_nodes(t, HRI_OP_LINEAR_DX, -1), 3); /* through o, and through B twice; x is frozen */
}

/* M, F, whole first?: both halves of a product are read alone, each by an activation of its own whose results are the
 * halves of one tensor; the product is read as a whole too, behind or before. */
static void build_halves(tiny *t, const void *shape) {
  const int *s = shape;
  uint64_t m = (uint64_t)s[0], f = (uint64_t)s[1];
  hri_id x = variable(t, m, 5, false), w = matrix(t, "w", 2 * f, 5), up, wide, whole = HRI_NONE, both;
  t->emit.layer = 0;
  wide = linear(t, x, w, HRI_NONE);
  if (s[2]) whole = linear(t, wide, matrix(t, "before", 3, 2 * f), HRI_NONE);
  up = fresh(t, m, 2 * f);
  for (uint64_t half = 0; half < 2; half++) {
    hri_attr attr = {.i = {half ? HR_ACTIVATION_SILU : HR_ACTIVATION_GELU_TANH}};
    t->emit.site++;
    hri_node_append_plain(&t->job, HRI_OP_ACTIVATION, t->emit, &attr,
                          (hri_operand[]){HRI_R(hri_tensor_columns(&t->job, wide, half * f, f)),
                                          HRI_W(hri_tensor_columns(&t->job, up, half * f, f))},
                          2);
  }
  if (!s[2]) whole = linear(t, wide, matrix(t, "behind", 3, 2 * f), HRI_NONE);
  both = linear(t, up, matrix(t, "down", 3, 2 * f), HRI_NONE);
  t->emit.layer = -1;
  result(t, add(t, both, whole));
}

static void further_producers_and_columns(void **state) {
  static const int small[] = {2, 7, 4, 2, 5, 6, 3, 0}, odd[] = {1, 33, 3, 1, 7, 13, 2, 0},
                   frozen_base[] = {2, 7, 4, 2, 5, 6, 3, 1}, one[] = {1, 1, 1, 1, 1, 1, 1, 0};
  (void)state;
  hold("adapters of q and v", build_adapters, small, inspect_adapters);
  hold("adapters of q and v, odd", build_adapters, odd, inspect_adapters);
  hold("adapters on a frozen base", build_adapters, frozen_base, inspect_frozen_adapters);
  hold("adapters of one element", build_adapters, one, NULL);
  HOLD(build_halves, 7, 3, 0);
  HOLD(build_halves, 7, 3, 1);
  HOLD(build_halves, 33, 17, 0);
  HOLD(build_halves, 1, 4, 1);
}

/* ---- parts of a fused weight that train alone ---- */

/* M, C; then rows and whether they train of three parts: weight and bias of a product. */
static void build_parts(tiny *t, const void *shape) {
  const int *s = shape;
  hri_part_request parts[3] = {{.name = "q"}, {.name = "k"}, {.name = "v"}};
  hri_param_request request =
      {.name = "qkv", .layer = -1, .rank = 2, .parts = parts, .part_count = 3, .spec = HRI_NONE};
  uint64_t rows = 0;
  hri_id x = variable(t, (uint64_t)s[0], (uint64_t)s[1], false), w, bias;
  uint32_t param;
  for (int k = 0; k < 3; k++) {
    parts[k].row = rows;
    parts[k].rows = (uint64_t)s[2 + 2 * k];
    parts[k].trainable = s[3 + 2 * k];
    rows += parts[k].rows;
  }
  request.dims[0] = request.stored[0] = rows;
  request.dims[1] = request.stored[1] = (uint64_t)s[1];
  param = hri_build_parameter(&t->job, &t->spec, &request);
  assert_int_not_equal(param, HRI_NONE);
  give_values(t, 0, 1);
  w = t->job.params.items[param].weight;
  request.name = "qkv.bias";
  request.rank = 1;
  request.dims[1] = request.stored[1] = 1;
  param = hri_build_parameter(&t->job, &t->spec, &request);
  assert_int_not_equal(param, HRI_NONE);
  give_values(t, 0, 1);
  bias = t->job.params.items[param].weight;
  t->emit.layer = 0;
  result(t, linear(t, x, w, bias));
}

static void inspect_one_run(const tiny *t, const way *w) {
  (void)w;
  assert_int_equal(count_nodes(t, HRI_OP_LINEAR_DW, -1), 1);
  assert_int_equal(count_nodes(t, HRI_OP_BIAS_GRADIENT, -1), 1);
}

static void inspect_two_runs(const tiny *t, const way *w) {
  (void)w;
  assert_int_equal(count_nodes(t, HRI_OP_LINEAR_DW, -1), 2); /* none for the rows between that are frozen */
  assert_int_equal(count_nodes(t, HRI_OP_BIAS_GRADIENT, -1), 2);
  assert_int_equal(count_nodes(t, HRI_OP_LINEAR_DX, -1), 1); /* x needs all of them */
}

static void parts_that_train_alone(void **state) {
  static const int all[] = {9, 5, 4, 1, 2, 1, 3, 1}, last[] = {9, 5, 4, 0, 2, 0, 3, 1},
                   ends[] = {33, 17, 6, 1, 3, 0, 5, 1}, middle[] = {7, 3, 1, 0, 1, 1, 1, 0};
  (void)state;
  hold("all of qkv trains", build_parts, all, inspect_one_run);
  hold("v trains alone", build_parts, last, inspect_one_run);
  hold("q and v train", build_parts, ends, inspect_two_runs);
  hold("one row of k trains", build_parts, middle, inspect_one_run);
}

/* ---- frozen parameters: no node is emitted for what nobody wants ---- */

/* Which of x, w, bias train. */
typedef struct frozen_linear {
  bool x, w, bias;
} frozen_linear;

static void build_frozen_linear(tiny *t, const void *shape) {
  const frozen_linear *f = shape;
  hri_id x = variable(t, 7, 5, !f->x), w, bias;
  w = weight(t, "w", 3, 5, 3, !f->w, 0, 1);
  bias = weight(t, "bias", 3, 0, 3, !f->bias, 0, 1);
  t->emit.layer = 0;
  result(t, linear(t, x, w, bias));
}

static frozen_linear frozen; /* what the inspector expects */
static void inspect_frozen_linear(const tiny *t, const way *w) {
  (void)w;
  assert_int_equal(count_nodes(t, HRI_OP_LINEAR_DX, -1), frozen.x);
  assert_int_equal(count_nodes(t, HRI_OP_EMBED_BACKWARD, -1), frozen.x);
  assert_int_equal(count_nodes(t, HRI_OP_LINEAR_DW, -1), frozen.w);
  assert_int_equal(count_nodes(t, HRI_OP_BIAS_GRADIENT, -1), frozen.bias);
}

/* A frozen network below a trained layer: its whole backward is missing, and so is that of the frozen branch beside. */
static void build_frozen_below(tiny *t, const void *shape) {
  uint64_t c = 6, m = 10;
  hri_attr attr = {.i = {2, 5, 1, 1, 2}, .f = {0.7}};
  hri_id x = variable(t, m, c, true), y, lse, trained;
  (void)shape;
  t->emit.layer = 0;
  x = norm(t, HR_NORM_LAYER, x, weight(t, "g", c, 0, c, true, 1, 0.5), weight(t, "h", c, 0, c, true, 0, 1));
  x = linear(t, x, weight(t, "qkv", c, c, c, true, 0, 1), weight(t, "qkv.bias", c, 0, c, true, 0, 1));
  y = fresh(t, m, 2);
  lse = fresh(t, m, 1);
  node(t, HRI_OP_ATTENTION, &attr, (hri_operand[]){HRI_R(x), HRI_ABSENT, HRI_W(y), HRI_W(lse), HRI_ABSENT}, 5);
  y = activation(t, HR_ACTIVATION_GELU_TANH, y);
  t->emit.layer = -1;
  trained = linear(t, y, matrix(t, "trained", 4, 2), vector(t, "trained.bias", 4)); /* the one that trains */
  result(t, add(t, activation(t, HR_ACTIVATION_SILU, trained),
                linear(t, y, weight(t, "beside", 4, 2, 4, true, 0, 1), HRI_NONE)));
}

static void inspect_frozen_below(const tiny *t, const way *w) {
  (void)w;
  assert_int_equal(count_nodes(t, HRI_OP_NORM_BACKWARD, -1), 0);
  assert_int_equal(count_nodes(t, HRI_OP_LINEAR_DX, -1), 0);
  assert_int_equal(count_nodes(t, HRI_OP_ATTENTION_BACKWARD, -1), 0);
  assert_int_equal(count_nodes(t, HRI_OP_EMBED_BACKWARD, -1), 0);
  assert_int_equal(count_nodes(t, HRI_OP_LINEAR_DW, -1), 1);
  assert_int_equal(count_nodes(t, HRI_OP_BIAS_GRADIENT, -1), 1);
  assert_int_equal(count_nodes(t, HRI_OP_ACTIVATION_BACKWARD, -1), 1);
}

/* A trained input far below frozen layers: gradients pass through, weights get none. */
static void build_frozen_above(tiny *t, const void *shape) {
  uint64_t c = 6, m = 9;
  hri_id x = variable(t, m, c, false);
  (void)shape;
  t->emit.layer = 0;
  x = norm(t, HR_NORM_RMS, x, weight(t, "g", c, 0, c, true, 1, 0.5), HRI_NONE);
  x = glu(t, HR_ACTIVATION_SILU,
          linear(t, x, weight(t, "in", 10, c, 10, true, 0, 1), weight(t, "in.bias", 10, 0, 10, true, 0, 1)));
  x = linear(t, x, weight(t, "out", c, 5, c, true, 0, 1), HRI_NONE);
  t->emit.layer = -1;
  loss(t, x, weight(t, "head", 11, c, 64, true, 0, 1), 11);
}

static void inspect_frozen_above(const tiny *t, const way *w) {
  uint32_t chunks = w->chunk ? (9 + w->chunk - 1) / w->chunk : 1;
  assert_int_equal(count_nodes(t, HRI_OP_LINEAR_DW, -1), 0);
  assert_int_equal(count_nodes(t, HRI_OP_BIAS_GRADIENT, -1), 0);
  assert_int_equal(count_nodes(t, HRI_OP_LINEAR_DX, -1), 2 + chunks);
  assert_int_equal(count_nodes(t, HRI_OP_EMBED_BACKWARD, -1), 1);
}

/* kind, does w train, does b train; x does not */
static void build_frozen_norm(tiny *t, const void *shape) {
  const int *s = shape;
  hri_id x = variable(t, 9, 7, true), w = weight(t, "w", 7, 0, 7, !s[1], 1, 0.5),
         b = weight(t, "b", 7, 0, 7, !s[2], 0, 1);
  t->emit.layer = 0;
  result(t, norm(t, (hr_norm)s[0], x, w, b));
}

static void frozen_inputs_get_no_nodes(void **state) {
  (void)state;
  HOLD(build_frozen_norm, HR_NORM_LAYER, 1, 0);
  HOLD(build_frozen_norm, HR_NORM_LAYER, 0, 1);
  HOLD(build_frozen_norm, HR_NORM_RMS, 1, 0);
  HOLD(build_frozen_norm, HR_NORM_RMS, 0, 1);
  for (int bits = 1; bits < 8; bits++) {
    char name[48];
    frozen = (frozen_linear){bits & 1, bits >> 1 & 1, bits >> 2 & 1};
    (void)snprintf(name, sizeof name, "linear: x %d, w %d, bias %d train", frozen.x, frozen.w, frozen.bias);
    hold(name, build_frozen_linear, &frozen, inspect_frozen_linear);
  }
  hold("frozen below", build_frozen_below, NULL, inspect_frozen_below);
  hold("frozen above", build_frozen_above, NULL, inspect_frozen_above);
}

/* A parameter that the loss does not see is refused, not left with an undefined gradient. */
static void unreached_parameters_are_refused(void **state) {
  tiny t;
  hr_error error = {0};
  (void)state;
  where = "unreached";
  tiny_open(&t, 3, 1);
  (void)matrix(&t, "idle", 3, 3);
  result(&t, activation(&t, HR_ACTIVATION_SILU, variable(&t, 5, 3, false)));
  finish_forward(&t);
  assert_int_equal(hri_pass_autodiff(&t.job, t.program, t.hidden, t.dy, false, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, "idle"));
  tiny_close(&t);
}

/* The recomputed ways really recompute, the fused ones fuse, and chunks are chunks. */
static void inspect_residual(const tiny *t, const way *w) {
  uint32_t clones = 0, fused = 0;
  const hri_program *p = &t->job.programs[t->program];
  for (size_t at = 0; at < p->order.count; at++) {
    const hri_node *n = &t->job.nodes.items[p->order.items[at]];
    clones += n->origin != HRI_NONE;
    fused += n->op == HRI_OP_NORM && hri_operands(&t->job, n)[3].tensor != HRI_NONE;
    fused += n->op == HRI_OP_NORM_BACKWARD && hri_operands(&t->job, n)[4].tensor != HRI_NONE;
  }
  assert_int_equal(clones > 0, w->recompute);
  assert_int_equal(fused > 0, w->passes);
}

static void inspect_chunks(const tiny *t, const way *w) {
  assert_int_equal(count_nodes(t, HRI_OP_CROSS_ENTROPY, -1), w->chunk ? (17 + w->chunk - 1) / w->chunk : 1);
}

static void ways_are_different_programs(void **state) {
  static const int residual[] = {HR_NORM_LAYER, 13, 33, 1, 1}, head[] = {17, 9, 61, 64};
  (void)state;
  hold("a residual norm", build_norm, residual, inspect_residual);
  hold("a chunked head", build_head, head, inspect_chunks);
}

/* ---- whole models ---- */

typedef struct random_model {
  uint64_t seed;
  hr_job job;
} random_model;

static uint32_t draw(uint64_t seed, uint64_t index, uint32_t below) {
  uint32_t word[4];
  hri_philox(seed, 77, index, word);
  return word[0] % below;
}

typedef struct drawer {
  uint64_t seed, index;
} drawer;

static uint32_t draw_next(void *context, uint32_t below) {
  drawer *d = context;
  return draw(d->seed, d->index++, below);
}

/* A small model and a training job of it, both from a seed. */
static void draw_model(random_model *r, uint64_t seed) {
  hr_job *job = &r->job;
  hr_model *m = &job->model;
  drawer more = {seed, 200};
  bool gpt2;
  uint32_t group;
  r->seed = seed;
  hr_job_init(job);
  job->precision = HR_PRECISION_FP32; /* what finite differences can be taken of */
  HOLDS(random_family(m, draw_next, &more, error));
  gpt2 = m->family == HR_FAMILY_GPT2;
  group = gpt2 ? 1 : 1 + draw(seed, 1, 3);
  m->layer_count = 1 + draw(seed, 2, 3);
  m->kv_head_count = 1 + draw(seed, 3, 2);
  m->head_count = m->kv_head_count * group;
  m->head_size = 2 * (2 + draw(seed, 4, 3)); /* a layer norm of 2 columns would be a step function */
  m->hidden_size = random_hidden_is_heads(m) ? m->head_count * m->head_size : 3 + draw(seed, 5, 10);
  m->mlp_size = 2 + draw(seed, 6, 12);
  m->vocabulary_size = 3 + draw(seed, 7, 40);
  m->max_positions = 16;
  m->tied_embeddings = gpt2 || draw(seed, 8, 2);
  random_variations(m, draw_next, &more);
  m->eos_token = m->bos_token = m->pad_token = -1;
  job->sequence_length = 2 + draw(seed, 12, 8);
  if (m->qk_norm &&
      job->sequence_length < 6) /* tokens that see only themselves, or equal ones, give these norms no gradient */
    job->sequence_length = 6;
  if (m->qk_norm && m->sliding_window == 1) m->sliding_window = 2;
  job->micro_batch = 1 + draw(seed, 13, 2);
  job->optimizer = HR_OPTIMIZER_SGD;
  job->attention = draw(seed, 14, 3) == 0 ? HR_ATTENTION_MATERIALIZED : HR_ATTENTION_FLASH;
  job->loss_chunk = draw(seed, 15, 2) ? HR_LOSS_CHUNK_OFF : 3;
  job->recompute.kind = (hr_recompute_kind)draw(seed, 16, 5);
  job->recompute.every = 1 + draw(seed, 17, m->layer_count);
  job->recompute.level_count = m->layer_count;
  for (uint32_t l = 0; l < m->layer_count; l++) job->recompute.levels[l] = (uint8_t)draw(seed, 18 + l, HR_LEVEL_COUNT);
  job->clip = draw(seed, 30, 2);
  job->update = job->clip > 0 || draw(seed, 31, 2) ? HR_UPDATE_AFTER : HR_UPDATE_IN_BACKWARD;
  job->learning_rate = 0;
  if (draw(seed, 40, 3) == 0) job->label_smoothing = 0.05 * (1 + draw(seed, 41, 6));
  if (draw(seed, 44, 2) == 0) job->dropout = 0.1 * (1 + draw(seed, 45, 5));
  if (draw(seed, 44, 4) == 2) {
    job->model.dropout.attention = 0.1 * draw(seed, 46, 5);
    job->model.dropout.residual = 0.1 * draw(seed, 47, 5);
    job->model.dropout.embedding = 0.1 * draw(seed, 48, 5);
    job->dropout = HR_DROPOUT_CONFIG;
  }
  if (draw(seed, 42, 3) == 0) job->neftune_alpha = 1 + draw(seed, 43, 6);
}

/* The step's own inputs, filled like a packed data set; ids < vocabulary, a few labels ignored. */
static void model_inputs(tiny *t) {
  const hri_id tensors[4] = {t->job.input_ids, t->job.input_targets, t->job.input_positions, t->job.input_doc_start};
  uint64_t sequence = t->spec.sequence_length, rows = sequence * t->spec.micro_batch, cut = sequence / 2;
  for (uint32_t k = 0; k < 4; k++) {
    input *in = &t->inputs[t->input_count++];
    *in = (input){.tensor = tensors[k], .ints = calloc(rows, sizeof(int32_t)), .count = rows};
    for (uint64_t i = 0; i < rows; i++) {
      uint64_t at = i % sequence, start = at >= cut ? cut : 0;
      switch (k) {
      case 0: in->ints[i] = (int32_t)draw(t->seed, 1000 + i, (uint32_t)t->vocabulary); break;
      case 1: in->ints[i] = i % 5 == 3 ? -100 : (int32_t)draw(t->seed, 5000 + i, (uint32_t)t->vocabulary); break;
      case 2: in->ints[i] = (int32_t)(at - start); break;
      default: in->ints[i] = (int32_t)start; break;
      }
      t->counted += k == 1 && in->ints[i] >= 0;
    }
  }
}

/* The forward parts of a model's step. */
static void open_model(tiny *t, const random_model *r, hri_forward *forwards) {
  tiny_open(t, r->seed, 1);
  t->spec = r->job;
  HOLDS(hri_build(&t->job, &t->spec, forwards, error));
  t->hidden = forwards[HRI_STEP].hidden;
  t->head = forwards[HRI_STEP].head;
  t->head_bias = forwards[HRI_STEP].head_bias;
  t->targets = forwards[HRI_STEP].targets;
  t->vocabulary = forwards[HRI_STEP].vocabulary;
  t->softcap = forwards[HRI_STEP].logit_softcap;
  t->smoothing = t->spec.label_smoothing;
  give_values(t, 0.2, 0.6);
  model_inputs(t);
}

static void hold_model(uint64_t seed, uint32_t threads) {
  static const hri_compile_options options = {.check_each = true};
  way w = {.name = "as a job", .accumulate = 1, .threads = threads};
  hri_forward forwards[HRI_PROGRAM_COUNT];
  random_model r;
  tiny forward, t;
  differences d;
  gradients exact, engine;
  yardstick plain = {.points = 0};
  hri_backend *cpu = NULL;
  char name[64];
  (void)snprintf(name, sizeof name, "model of seed %llu", (unsigned long long)seed);
  where = name;
  draw_model(&r, seed);
  open_model(&forward, &r, forwards);
  (void)hri_pass_head(&forward.job, HRI_STEP, forward.hidden, forward.head, forward.head_bias, forward.targets,
                      forward.vocabulary, forward.softcap, forward.smoothing, 0, false, 0);
  smooth(&forward);
  differences_open(&d, &forward);
  open_model(&t, &r, forwards);
  HOLDS(cpu_open(threads, &cpu, error));
  HOLDS(hri_compile_built(&t.spec, cpu, &options, forwards, &t.job, error));
  exact = exact_gradients(&t);
  measure_plain(&t, &plain, FIRST_POINTS);
  engine = engine_gradients(&t, cpu);
  for (uint32_t p = 0; p < t.job.params.count; p++) compare_along(&d, &w, &t, p, p + 1, &exact, &plain, &engine);
  compare_along(&d, &w, &t, 0, (uint32_t)t.job.params.count, &exact, &plain, &engine);
  free_gradients(&exact);
  free_gradients(&engine);
  exact_close(&d.m);
  hri_backend_close(cpu);
  tiny_close(&forward);
  tiny_close(&t);
}

static void random_models(void **state) {
  const char *quick = getenv("HEADROOM_TEST_QUICK"), *fixed = getenv("HEADROOM_TEST_SEED");
  uint64_t first = fixed ? strtoull(fixed, NULL, 10) : 1, count = fixed ? 1 : quick && *quick ? 6 : 60;
  (void)state;
  if (getenv("HEADROOM_TEST_MODELS")) count = strtoull(getenv("HEADROOM_TEST_MODELS"), NULL, 10);
  for (uint64_t seed = first; seed < first + count; seed++) hold_model(seed, 1 + (uint32_t)(seed % 2));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(linear_rule),
      cmocka_unit_test(embed_rule),
      cmocka_unit_test(embedding_of_the_padding_id_gets_no_gradient),
      cmocka_unit_test(norm_rule),
      cmocka_unit_test(pointwise_rules),
      cmocka_unit_test(dropout_rule),
      cmocka_unit_test(attention_rules),
      cmocka_unit_test(rope_rule),
      cmocka_unit_test(windows_and_caps),
      cmocka_unit_test(dropped_attention),
      cmocka_unit_test(head_norm_rule),
      cmocka_unit_test(loss_head),
      cmocka_unit_test(things_used_twice),
      cmocka_unit_test(further_producers_and_columns),
      cmocka_unit_test(parts_that_train_alone),
      cmocka_unit_test(frozen_inputs_get_no_nodes),
      cmocka_unit_test(unreached_parameters_are_refused),
      cmocka_unit_test(ways_are_different_programs),
      cmocka_unit_test(random_models),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
