/* How near a training step is to the matrix products and attention in it, each alone and at its best.
 *
 *   bench_yardstick [model [BATCHxSEQUENCE [precision [threads [rounds [OPTION=VALUE ...]]]]]]     gpt2-124m 4x256 fp32 2 8
 *   bench_yardstick smollm2-135m 4x256 bf16 2 8 lora=r=16,targets=all-linear quantize=nf4 recompute=block
 *
 * Yardstick = sum over the matrix products and attention nodes of a step of the isolated time of that very shape / time
 * of the whole step. A round is one training step and then every distinct shape on buffers of its own, twice, of which
 * the faster counts; where operands can be packed, a shape is timed plain and packed and the faster counts. Both sides
 * are thus measured in the same seconds by the same statistic over the rounds: the median, and beside it the mean of
 * the fastest quarter. A warming step and a warming round come first.
 *
 * The last line is a row of the table in docs/performance.md. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/cpu/arena.h"
#include "backend/cpu/cpu.h"
#include "headroom/field.h"
#include "plan/cost.h"
#include "train/session.h"

enum { MAX_SHAPES = 128, MAX_ROUNDS = 64, REPEATS = 2, REGIONS = 3 };
enum { PLAIN = 0, PACKED, WAYS };

/* Inputs stay what they were filled with, outputs grow, indices (doc_start) are zero: all positions see all before. */
enum { INPUTS = 0, OUTPUTS, INDICES };

/* A node of the plan for isolated runs. */
typedef struct candidate {
  hri_id node; /* HRI_NONE: this shape cannot be run so */
  void *handle;
  double seconds[MAX_ROUNDS];
} candidate;

typedef struct shape {
  candidate candidates[WAYS];
  uint32_t count; /* nodes of a step */
  double flops;
  double in_step[MAX_ROUNDS]; /* all `count` of them */
} shape;

typedef struct bench {
  hri_session session;
  hr_plan *isolated; /* the same job without packing, to which packed products were added one by one */
  hri_launch launch; /* isolated runs: their operands' places */
  uint64_t *offsets;
  hri_arena arena;
  uint64_t region_bytes[REGIONS];
  shape shapes[MAX_SHAPES];
  uint32_t shape_count, rounds, round;
  uint32_t *shape_of; /* per node of the plan that runs: its shape, HRI_NONE for the rest */
  double step[MAX_ROUNDS], others[MAX_ROUNDS], op_seconds[HRI_OP_COUNT][MAX_ROUNDS];
} bench;

static void check(hr_status status, const hr_error *error) {
  if (status == HR_OK) return;
  (void)fprintf(stderr, "bench_yardstick: %s\n", error->message);
  if (error->hint[0]) (void)fprintf(stderr, "  try: %s\n", error->hint);
  exit(1);
}

static void *need(void *memory) {
  if (memory) return memory;
  (void)fprintf(stderr, "bench_yardstick: out of memory\n");
  exit(1);
}

static double now(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- shapes ---- */

static bool counts(const hri_job *job, const hri_node *node) {
  hri_rate_table table = hri_rate_class_of(job, node).table;
  return table == HRI_RATE_PRODUCT || table == HRI_RATE_ATTENTION;
}

static const hri_tensor *operand_tensor(const hri_job *job, const hri_node *node, uint32_t k) {
  hri_operand o = hri_operands(job, node)[k];
  return k >= node->operand_count || o.tensor == HRI_NONE || o.access == HRI_SCRATCH ? NULL
                                                                                     : &job->tensors.items[o.tensor];
}

/* Whether two nodes do the same work, packed or not: op, attributes, and the type, access and size of every operand. */
static bool same_work(const hri_job *ja, const hri_node *a, const hri_job *jb, const hri_node *b) {
  uint32_t most = a->operand_count > b->operand_count ? a->operand_count : b->operand_count;
  if (a->op != b->op || memcmp(&a->attr, &b->attr, sizeof a->attr) != 0) return false;
  for (uint32_t k = 0; k < most; k++) {
    const hri_tensor *x = operand_tensor(ja, a, k), *y = operand_tensor(jb, b, k);
    if (!x != !y) return false;
    if (!x) continue;
    if (x->dtype != y->dtype || x->rank != y->rank || memcmp(x->dims, y->dims, x->rank * sizeof *x->dims) != 0)
      return false;
    if (hri_operands(ja, a)[k].access != hri_operands(jb, b)[k].access) return false;
  }
  return true;
}

static shape *find_shape(bench *b, const hri_job *job, const hri_node *node) {
  for (uint32_t s = 0; s < b->shape_count; s++)
    if (same_work(&b->isolated->job, &b->isolated->job.nodes.items[b->shapes[s].candidates[PLAIN].node], job, node))
      return &b->shapes[s];
  return NULL;
}

/* The same product with its right operand packed, whether or not packing would pay in a step; HRI_NONE when it cannot
 * be. */
static hri_id packed_twin(hr_plan *plan, hri_id plain) {
  hri_job *job = &plan->job;
  const hri_backend *backend = plan->backend;
  hri_place place = {.program = HRI_STEP,
                     .tier = HRI_DEVICE,
                     .role = HRI_ROLE_WORKSPACE,
                     .layer = -1,
                     .unit = HRI_NONE};
  uint64_t bytes = 0;
  bool pays;
  hri_id twin, id;
  hri_tensor like;
  hr_error error = {0};
  if (hri_rate_class_of(job, &job->nodes.items[plain]).table != HRI_RATE_PRODUCT) return HRI_NONE;
  check(backend->packing(backend->self, job, &job->nodes.items[plain], &bytes, &pays, &error), &error);
  if (bytes == 0) return HRI_NONE;
  like = job->tensors.items[hri_operands(job, &job->nodes.items[plain])[1].tensor];
  id = hri_tensor_new(job, place, like.key, HRI_U8, 1, &bytes, NULL);
  twin = hri_node_clone(job, plain);
  check(hri_job_ok(job, &error), &error);
  job->tensors.items[id].layout = HRI_PACKED;
  job->tensors.items[id].dtype = like.dtype;
  job->tensors.items[id].rank = like.rank;
  memcpy(job->tensors.items[id].dims, like.dims, sizeof like.dims);
  memcpy(job->tensors.items[id].stored, like.stored, sizeof like.stored);
  hri_operands(job, &job->nodes.items[twin])[1].tensor = id;
  if (hri_operand_find(job, &job->nodes.items[twin], HRI_SCRATCH, 0) != HRI_NONE)
    job->nodes.items[twin].operand_count--; /* the last one; of the plain product */
  check(backend->workspace(backend->self, job, &job->nodes.items[twin], &bytes, &error), &error);
  if (bytes)
    hri_node_add_operand(job, twin, hri_tensor_new(job, place, like.key, HRI_U8, 1, &bytes, NULL), HRI_SCRATCH);
  check(hri_job_ok(job, &error), &error);
  return twin;
}

static void open_shapes(bench *b) {
  hri_job *job = &b->isolated->job;
  for (size_t at = 0; at < job->programs[HRI_STEP].order.count; at++) {
    hri_id id = job->programs[HRI_STEP].order.items[at];
    shape *s;
    if (!counts(job, &job->nodes.items[id]) || find_shape(b, job, &job->nodes.items[id])) continue;
    if (b->shape_count == MAX_SHAPES) {
      (void)fprintf(stderr, "bench_yardstick: more than %d distinct shapes\n", MAX_SHAPES);
      exit(1);
    }
    s = &b->shapes[b->shape_count++];
    s->flops = hri_node_flops(job, &job->nodes.items[id]);
    s->candidates[PLAIN].node = id;
    s->candidates[PACKED].node = packed_twin(b->isolated, id); /* grows the job's arrays */
  }
}

/* Which shape each node of the plan that runs has. */
static void find_nodes(bench *b) {
  const hri_job *job = &b->session.plan->job;
  b->shape_of = need(malloc(job->nodes.count * sizeof *b->shape_of));
  memset(b->shape_of, 0xFF, job->nodes.count * sizeof *b->shape_of);
  for (size_t at = 0; at < job->programs[HRI_STEP].order.count; at++) {
    hri_id id = job->programs[HRI_STEP].order.items[at];
    shape *s;
    if (!counts(job, &job->nodes.items[id])) continue;
    s = find_shape(b, job, &job->nodes.items[id]);
    if (!s) {
      (void)fprintf(stderr, "bench_yardstick: %s has no like in the plan without packing\n",
                    hri_op_name(job->nodes.items[id].op));
      exit(1);
    }
    s->count++;
    b->shape_of[id] = (uint32_t)(s - b->shapes);
  }
}

/* ---- buffers of the isolated runs ---- */

static int region_of(const hri_job *job, hri_operand o) {
  if (o.access != HRI_READ) return OUTPUTS;
  return job->tensors.items[o.tensor].dtype == HRI_I32 ? INDICES : INPUTS;
}

/* Whole storages of one node's operands, from the start of their region: nodes run one at a time and share it. The
 * first pass (`final` false) finds how large the regions are. */
static void place(bench *b, const candidate *c, bool final) {
  const hri_job *job = &b->isolated->job;
  const hri_node *node = &job->nodes.items[c->node];
  uint64_t used[REGIONS] = {0},
           begin[REGIONS] = {0, b->region_bytes[INPUTS], b->region_bytes[INPUTS] + b->region_bytes[OUTPUTS]};
  for (uint32_t k = 0; k < node->operand_count; k++) {
    hri_operand o = hri_operands(job, node)[k];
    hri_id s;
    int r;
    if (o.tensor == HRI_NONE) continue;
    s = job->tensors.items[o.tensor].storage;
    r = region_of(job, o);
    if (final) b->offsets[s] = begin[r] + used[r];
    used[r] += hri_round_up(job->storages.items[s].bytes, HRI_STORAGE_ALIGN);
    if (!final && used[r] > b->region_bytes[r]) b->region_bytes[r] = used[r];
  }
}

/* Numbers of size 1/8 to 1/2 with random signs, both as fp32 and as two bf16. */
static void fill(uint32_t *words, uint64_t count) {
  uint32_t state = 12345;
  for (uint64_t k = 0; k < count; k++) {
    state = state * 1664525u + 1013904223u;
    words[k] = (state & 0x807F807Fu) | 0x3E003E00u | (state >> 8 & 0x00800080u);
  }
}

static void each_candidate(bench *b, void (*visit)(bench *b, candidate *c)) {
  for (uint32_t s = 0; s < b->shape_count; s++)
    for (int c = 0; c < WAYS; c++)
      if (b->shapes[s].candidates[c].node != HRI_NONE) visit(b, &b->shapes[s].candidates[c]);
}

static void size_regions(bench *b, candidate *c) { place(b, c, false); }

static void prepare(bench *b, candidate *c) {
  const hr_plan *plan = b->isolated;
  hr_error error = {0};
  check(hri_cpu_prepare(hri_cpu_of(plan->backend), &plan->job, &plan->job.nodes.items[c->node], &c->handle, &error),
        &error);
}

/* Nodes share storages, so each is placed anew before it runs. */
static void time_candidate(bench *b, candidate *c) {
  const hr_plan *plan = b->isolated;
  double best = INFINITY;
  hr_error error = {0};
  place(b, c, true);
  for (int k = 0; k < REPEATS; k++) {
    double begin = now(), seconds;
    check(hri_cpu_run(hri_cpu_of(plan->backend), &b->launch, &plan->job.nodes.items[c->node], c->handle, &error),
          &error);
    seconds = now() - begin;
    if (seconds < best) best = seconds;
  }
  c->seconds[b->round] = best;
}

/* The isolated plan has a backend of its own, whose team nothing else starts. */
static void prepare_isolated(bench *b) {
  uint64_t total = 0;
  hr_error error = {0};
  check(hri_cpu_start(hri_cpu_of(b->isolated->backend), &error), &error);
  each_candidate(b, size_regions);
  for (int r = 0; r < REGIONS; r++) total += b->region_bytes[r];
  check(hri_arena_reserve(&b->arena, total, b->session.plan->backend->elements.team, NULL, &error), &error);
  fill((uint32_t *)(void *)b->arena.base, b->region_bytes[INPUTS] / sizeof(uint32_t));
  b->offsets = need(calloc(b->isolated->job.storages.count, sizeof *b->offsets));
  b->launch = (hri_launch){.job = &b->isolated->job, .offsets = b->offsets};
  b->launch.base[HRI_DEVICE] = b->arena.base;
  each_candidate(b, prepare);
}

/* ---- the step ---- */

static void after_node(void *context, const hri_job *job, hri_id node, double seconds) {
  bench *b = context;
  const hri_node *n = &job->nodes.items[node];
  if (n->program != HRI_STEP) return;
  if (b->shape_of[node] != HRI_NONE) b->shapes[b->shape_of[node]].in_step[b->round] += seconds;
  else b->others[b->round] += seconds;
  b->op_seconds[n->op][b->round] += seconds;
}

static void feed(bench *b) {
  const hri_job *job = &b->session.plan->job;
  const hr_job *spec = &b->session.plan->spec;
  hri_executor *x = b->session.executor;
  int32_t *ids = hri_executor_view(x, job->input_ids), *targets = hri_executor_view(x, job->input_targets),
          *positions = hri_executor_view(x, job->input_positions),
          *doc_start = hri_executor_view(x, job->input_doc_start);
  uint32_t rows = spec->micro_batch * spec->sequence_length, state = 1;
  for (uint32_t k = 0; k < rows; k++) {
    state = state * 1664525u + 1013904223u;
    ids[k] = (int32_t)((state >> 8) % spec->model.vocabulary_size);
    targets[k ? k - 1 : rows - 1] = ids[k];
    positions[k] = (int32_t)(k % spec->sequence_length);
    doc_start[k] = 0;
  }
}

static void run_step(bench *b) {
  const hri_control *control = hri_executor_control(b->session.executor);
  hr_error error = {0};
  double begin;
  for (uint32_t s = 0; s < b->shape_count; s++) b->shapes[s].in_step[b->round] = 0;
  for (int op = 0; op < HRI_OP_COUNT; op++) b->op_seconds[op][b->round] = 0;
  b->others[b->round] = 0;
  HRI_CONTROL_SET(b->session.executor, learning_rate, 1e-4);
  HRI_CONTROL_SET(b->session.executor, inv_tokens,
                  1.0 / (b->session.plan->spec.micro_batch * b->session.plan->spec.sequence_length));
  HRI_CONTROL_SET(b->session.executor, clip_norm, b->session.plan->spec.clip);
  HRI_CONTROL_SET(b->session.executor, clip_scale, 1);
  HRI_CONTROL_SET(b->session.executor, loss_sum, 0);
  HRI_CONTROL_SET(b->session.executor, step, control->step + 1);
  begin = now();
  check(hri_executor_run(b->session.executor, HRI_STEP, &error), &error);
  b->step[b->round] = now() - begin;
}

static void open_job(bench *b, hr_job *job) {
  hr_error error = {0};
  hr_job plain;
  check(hr_job_finish(job, &error), &error);
  check(hri_session_plan(&b->session, job, NULL, &error), &error);
  plain = *job;
  plain.weight_packing = HR_WEIGHT_PACKING_OFF;
  check(hri_plan_create(&plain, NULL, &b->isolated, &error), &error);
  open_shapes(b);
  find_nodes(b);
  b->session.after_node = after_node;
  b->session.after_node_context = b;
  check(hri_session_load(&b->session, NULL, NULL, &error), &error);
  prepare_isolated(b);
  feed(b);
}

/* ---- the report ---- */

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

/* Median of the rounds, or the mean of the fastest quarter of them. */
static double typical(const double *rounds, uint32_t count, bool fastest) {
  double sorted[MAX_ROUNDS], sum = 0;
  uint32_t quarter = (count + 3) / 4;
  memcpy(sorted, rounds, count * sizeof *sorted);
  qsort(sorted, count, sizeof *sorted, ascending);
  if (!fastest) return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
  for (uint32_t k = 0; k < quarter; k++) sum += sorted[k];
  return sum / quarter;
}

/* NaN where there is no such candidate. */
static double isolated(const bench *b, const candidate *c, bool fastest) {
  return c->node != HRI_NONE ? typical(c->seconds, b->rounds, fastest) : NAN;
}

static double best(const bench *b, const shape *s, bool fastest) {
  return fmin(isolated(b, &s->candidates[PLAIN], fastest), isolated(b, &s->candidates[PACKED], fastest));
}

static double yardstick(const bench *b, bool fastest) {
  double sum = 0;
  for (uint32_t k = 0; k < b->shape_count; k++) sum += b->shapes[k].count * best(b, &b->shapes[k], fastest);
  return sum / typical(b->step, b->rounds, fastest);
}

static const hri_node *node_of(const bench *b, const shape *s) {
  return &b->isolated->job.nodes.items[s->candidates[PLAIN].node];
}

static void dims_text(const bench *owner, const shape *s, char out[48]) {
  const hri_job *job = &owner->isolated->job;
  const hri_node *node = node_of(owner, s);
  const hri_tensor *a = operand_tensor(job, node, 0), *b = operand_tensor(job, node, 1);
  const int64_t *i = node->attr.i;
  if (hri_rate_class_of(job, node).table == HRI_RATE_ATTENTION)
    (void)snprintf(out, 48, "B %lld T %lld H %lld/%lld D %lld", (long long)i[0], (long long)i[1], (long long)i[2],
                   (long long)i[3], (long long)i[4]);
  else
    (void)snprintf(out, 48, "%llux%llu . %llux%llu", (unsigned long long)a->dims[0], (unsigned long long)a->dims[1],
                   (unsigned long long)b->dims[0], (unsigned long long)b->dims[1]);
}

static void rate_text(double flops, double seconds, char out[16]) {
  if (isnan(seconds)) (void)snprintf(out, 16, "-");
  else (void)snprintf(out, 16, "%.1f", flops / seconds * 1e-9);
}

static void print_shapes(const bench *b) {
  printf("%-22s %-30s %5s %9s %9s %9s %9s %8s   (medians, GFLOP/s)\n", "op", "operands", "nodes", "in step", "plain",
         "packed", "lost ms", "of best");
  for (uint32_t k = 0; k < b->shape_count; k++) {
    const shape *s = &b->shapes[k];
    double in_step = typical(s->in_step, b->rounds, false), alone = s->count * best(b, s, false);
    char dims[48], rates[3][16];
    dims_text(b, s, dims);
    rate_text(s->count * s->flops, in_step, rates[0]);
    for (int c = 0; c < WAYS; c++) rate_text(s->flops, isolated(b, &s->candidates[c], false), rates[c + 1]);
    printf("%-22s %-30s %5u %9s %9s %9s %9.2f %7.1f%%\n", hri_op_name(node_of(b, s)->op), dims, s->count, rates[0],
           rates[1], rates[2], (in_step - alone) * 1e3, 100 * alone / in_step);
  }
}

/* Milliseconds by op: what of the step is neither a product nor attention, largest first. */
static void print_others(const bench *b, double step) {
  bool printed[HRI_OP_COUNT] = {false};
  const hri_job *job = &b->session.plan->job;
  for (size_t at = 0; at < job->programs[HRI_STEP].order.count; at++) {
    const hri_node *node = &job->nodes.items[job->programs[HRI_STEP].order.items[at]];
    if (counts(job, node)) printed[node->op] = true; /* in the table above */
  }
  for (;;) {
    int most = -1;
    for (int op = 0; op < HRI_OP_COUNT; op++)
      if (!printed[op] &&
          (most < 0 || typical(b->op_seconds[op], b->rounds, false) > typical(b->op_seconds[most], b->rounds, false)))
        most = op;
    if (most < 0 || typical(b->op_seconds[most], b->rounds, false) < 5e-4 * step) return;
    printed[most] = true;
    printf("%-22s %9.2f ms %5.1f %%\n", hri_op_name((uint16_t)most),
           typical(b->op_seconds[most], b->rounds, false) * 1e3,
           100 * typical(b->op_seconds[most], b->rounds, false) / step);
  }
}

static void print_report(const bench *b) {
  const hr_job *spec = &b->session.plan->spec;
  const hri_job *job = &b->session.plan->job;
  double step = typical(b->step, b->rounds, false), products = 0, attention = 0;
  for (uint32_t k = 0; k < b->shape_count; k++) {
    double seconds = typical(b->shapes[k].in_step, b->rounds, false);
    if (hri_rate_class_of(&b->isolated->job, node_of(b, &b->shapes[k])).table == HRI_RATE_ATTENTION)
      attention += seconds;
    else products += seconds;
  }
  print_shapes(b);
  printf("\n");
  print_others(b, step);
  printf("\n%s, %s, %u rounds; step median %.1f ms, fastest quarter %.1f ms\n", job->libraries, job->instruction_set,
         b->rounds, step * 1e3, typical(b->step, b->rounds, true) * 1e3);
  printf(
      "\n| model | batch | precision | threads | step, ms | products | attention | everything else | yardstick | of the fastest quarter |\n|---|---|---|---|---|---|---|---|---|---|\n");
  printf("| %s | %u x %u | %s | %u | %.0f | %.1f %% | %.1f %% | %.1f %% | %.3f | %.3f |\n", spec->model.name,
         spec->micro_batch, spec->sequence_length, hr_precision_name(spec->precision), job->team, step * 1e3,
         100 * products / step, 100 * attention / step, 100 * (1 - (products + attention) / step), yardstick(b, false),
         yardstick(b, true));
}

static hr_precision precision_of(const char *name) {
  for (int p = HR_PRECISION_FP32; p <= HR_PRECISION_BF16_PURE; p++)
    if (strcmp(name, hr_precision_name((hr_precision)p)) == 0) return (hr_precision)p;
  (void)fprintf(stderr, "bench_yardstick: no precision '%s' (fp32, bf16, bf16-pure)\n", name);
  exit(2);
}

/* OPTION=VALUE, as `headroom train --OPTION VALUE`. */
static void set_option(hr_job *job, const char *word) {
  const char *equals = strchr(word, '=');
  char name[32];
  hr_error error = {0};
  (void)snprintf(name, sizeof name, "%.*s", equals ? (int)(equals - word) : 0, word);
  if (!equals) {
    (void)fprintf(stderr, "bench_yardstick: '%s' is not OPTION=VALUE\n", word);
    exit(2);
  }
  check(hr_job_set(job, name, equals + 1, &error), &error);
}

int main(int argc, char **argv) {
  bench *b = need(calloc(1, sizeof *b));
  hr_job job;
  hr_error error = {0};
  const char *batch = argc > 2 ? argv[2] : "4x256";
  int rounds = argc > 5 ? atoi(argv[5]) : 8;
  hr_job_init(&job);
  check(hr_model_open(argc > 1 ? argv[1] : "gpt2-124m", &job.model, &error), &error);
  check(hr_device_find("cpu", &job.device, &error), &error);
  if (sscanf(batch, "%ux%u", &job.micro_batch, &job.sequence_length) != 2 || rounds < 1 || rounds > MAX_ROUNDS) {
    (void)fprintf(stderr,
                  "usage: bench_yardstick [model [BATCHxSEQUENCE [precision [threads [rounds, at most %d [OPTION=VALUE "
                  "...]]]]]]\n",
                  MAX_ROUNDS);
    return 2;
  }
  job.precision = precision_of(argc > 3 ? argv[3] : "fp32");
  job.threads = argc > 4 ? (uint32_t)atoi(argv[4]) : 2;
  job.steps = 1;
  for (int k = 6; k < argc; k++) set_option(&job, argv[k]);
  b->rounds = (uint32_t)rounds;
  open_job(b, &job);
  for (int k = -1; k < rounds; k++) { /* the warming round is overwritten by the first */
    b->round = k < 0 ? 0 : (uint32_t)k;
    run_step(b);
    each_candidate(b, time_candidate);
  }
  print_report(b);
  hr_plan_destroy(b->isolated);
  free(b->offsets);
  hri_arena_release(&b->arena);
  hri_session_close(&b->session);
  free(b->shape_of);
  free(b);
  return 0;
}
