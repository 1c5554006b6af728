/* Measuring a device: a program of sample nodes, one for each entry of the tables that the cost model reads, run by the
 * very backend that runs jobs, through its contract. Because a sample is a node, its class, FLOPs and bytes come from
 * the same functions that later look it up; nothing can be filed under the wrong entry.
 *
 * All samples share one arena, in four regions: integers and the control block (zeros, never written, so that every
 * index is valid), what nodes read in fp32 and in bf16 (small random numbers, never written), and what they write. The
 * samples lie at different places of their regions, and a round runs every sample once. So they are interleaved, a slow
 * minute of the machine hits all of them alike, and a sample finds its operands in memory, as the weights of a training
 * step are. Short ones run twice, and the second time counts: in a step their operands were made a moment before. An
 * entry is the median of its rounds, disturbances included: a run on the same machine meets them too.
 *
 * Before that, where several codes can compute products of bf16, each of them runs the same products, interleaved round
 * by round, and the rates of the device are then measured with those that won (hri_gemm_table_fastest). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <headroom/device.h>

#include "backend/backend.h"
#include "base/real.h"
#include "device/cpu.h"
#include "device/host.h"
#include "ops/demand.h"
#include "pass/pass.h"
#include "plan/cost.h"

enum { MAX_SAMPLES = 256, MAX_ROUNDS = 64, LEAST_ROUNDS = 3, REGIONS = 4 };
static const uint64_t LEAST_PACKED = UINT64_C(1) << 27; /* M N K of products worth packing for */
static const double DEFAULT_SECONDS = 30, SHORT_SAMPLE_SECONDS = 5e-4;
/* A rough look is too short to choose by; choosing takes a part of what is longer. */
static const double ROUGH_SECONDS = 5, CHOOSING_PART = 0.25;
/* What a run has resident that a probe does not use: buffers of data files and checkpoints (docs/data.md), JSON. */
static const uint64_t BUFFER_BYTES = UINT64_C(2) << 20;

typedef enum region { INDICES = 0, INPUTS, HALF_INPUTS, OUTPUTS } region;

typedef struct sample {
  hri_id node;
  double *entry; /* of the rates; NULL: the node overhead */
  bool twice;
  double work;
  double last; /* seconds of its last execution */
  double seconds[MAX_ROUNDS];
} sample;

typedef struct probe {
  hr_device_rates *rates;
  hri_backend *backend;
  hri_job job;
  void *base, *run; /* the run with the arena, in which each sample stands twice; the one that is measured, beside it */
  hri_dtype dtype;  /* of the nodes being added: HRI_F32, HRI_BF16 */
  uint64_t *offsets, region_bytes[REGIONS], region_begin[REGIONS], arena_bytes, limit_bytes;
  sample samples[MAX_SAMPLES];
  uint32_t sample_of[2 * MAX_SAMPLES], at; /* by position of the program; the position that ran last, + 1 */
  uint32_t sample_count, round_count;
  hri_id shown[REGIONS]; /* tensors of the regions that are filled */
} probe;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- sample nodes ---- */

static hri_operand tensor(probe *p, hri_access access, hri_dtype dtype, uint64_t rows, uint64_t columns) {
  hri_place place = {.program = HRI_STEP,
                     .tier = HRI_DEVICE,
                     .role = HRI_ROLE_ACTIVATION,
                     .layer = -1,
                     .unit = HRI_NONE};
  return (hri_operand){hri_tensor_new(&p->job, place, 0, dtype, 2, (uint64_t[]){rows, columns}, NULL), (uint8_t)access};
}
/* Activations and matrices, in the type of the moment; statistics, vectors, states and masters, in fp32. */
static hri_operand in(probe *p, uint64_t rows, uint64_t columns) {
  return tensor(p, HRI_READ, p->dtype, rows, columns);
}
static hri_operand out(probe *p, uint64_t rows, uint64_t columns) {
  return tensor(p, HRI_WRITE, p->dtype, rows, columns);
}
static hri_operand wide_in(probe *p, uint64_t rows, uint64_t columns) {
  return tensor(p, HRI_READ, HRI_F32, rows, columns);
}
static hri_operand wide_out(probe *p, uint64_t rows, uint64_t columns) {
  return tensor(p, HRI_WRITE, HRI_F32, rows, columns);
}
static hri_operand update(probe *p, uint64_t rows, uint64_t columns) {
  return tensor(p, HRI_UPDATE_ACCESS, HRI_F32, rows, columns);
}
static hri_operand index_of(probe *p, uint64_t rows) { return tensor(p, HRI_READ, HRI_I32, 1, rows); }
static hri_operand control(probe *p) { return tensor(p, HRI_READ, HRI_U8, 1, sizeof(hri_control)); }

static hri_id node(probe *p, hri_op op, hri_attr attr, const hri_operand *operands, uint32_t count) {
  hri_emit emit = {.program = HRI_STEP,
                   .lane = HRI_COMPUTE,
                   .phase = HRI_PHASE_FORWARD,
                   .layer = -1,
                   .unit = HRI_NONE,
                   .origin = HRI_NONE};
  return hri_node_append(&p->job, (uint16_t)op, emit, &attr, operands, count);
}

/* Files a node under the entry of its class nearest in size. */
static void add(probe *p, hri_id id) {
  hri_rate_class where;
  if (p->job.failed || p->sample_count == MAX_SAMPLES) return;
  where = hri_rate_class_of(&p->job, &p->job.nodes.items[id]);
  p->samples[p->sample_count++] = (sample){.node = id, .entry = hri_rate_entry(p->rates, &where), .work = where.work};
}

/* ---- packed operands ---- */

/* The packed form of operand 1 of a product (bytes 0: it has none), as the pack pass makes it. */
static hri_operand packed_operand(probe *p, hri_id product, hri_access access, uint64_t bytes) {
  hri_operand o = tensor(p, access, HRI_U8, 1, bytes);
  if (!p->job.failed) {
    hri_tensor plain = p->job.tensors.items[hri_operands(&p->job, &p->job.nodes.items[product])[1].tensor],
               *t = &p->job.tensors.items[o.tensor];
    t->dtype = plain.dtype;
    t->layout = HRI_PACKED;
    memcpy(t->dims, plain.dims, sizeof t->dims);
    memcpy(t->stored, plain.stored, sizeof t->stored);
  }
  return o;
}

static uint64_t packed_bytes(const probe *p, hri_id product) {
  const hri_backend *b = p->backend;
  uint64_t bytes = 0;
  bool pays;
  if (p->job.failed || !b->packing ||
      b->packing(b->self, &p->job, &p->job.nodes.items[product], &bytes, &pays, NULL) != HR_OK)
    return 0;
  return bytes;
}

/* The same product once more, with packed operands. */
static void add_packed(probe *p, hri_id product) {
  uint64_t bytes = packed_bytes(p, product);
  hri_operand operands[4];
  uint32_t count;
  uint16_t op;
  if (bytes == 0) return;
  op = p->job.nodes.items[product].op;
  count = op == HRI_OP_LINEAR ? 4 : 3;
  for (uint32_t k = 0; k < count; k++) { /* storages of its own: each sample is placed for itself */
    const hri_operand o = hri_operands(&p->job, &p->job.nodes.items[product])[k];
    const hri_tensor t = o.tensor == HRI_NONE ? (hri_tensor){0} : p->job.tensors.items[o.tensor];
    operands[k] = o.tensor == HRI_NONE ? o
                  : k == 1             ? packed_operand(p, product, HRI_READ, bytes)
                                       : tensor(p, (hri_access)o.access, (hri_dtype)t.dtype, t.dims[0], t.dims[1]);
  }
  add(p, node(p, (hri_op)op, (hri_attr){0}, operands, count));
}

/* Packing a weight for dx, at `bytes` read and written. */
static void add_pack(probe *p, uint64_t bytes) {
  uint64_t c = 512, n = bytes / (2 * c * hri_dtype_bytes(p->dtype)), m = 1024, size;
  hri_id product = node(p, HRI_OP_LINEAR_DX, (hri_attr){0}, (hri_operand[]){in(p, m, n), in(p, n, c), out(p, m, c)}, 3);
  size = packed_bytes(p, product);
  if (size)
    add(p, node(p, HRI_OP_PACK, (hri_attr){.i = {1, (int64_t)m}},
                (hri_operand[]){in(p, n, c), packed_operand(p, product, HRI_WRITE, size)}, 2));
}

/* M, N, K per entry of the tables, as layers have them: few to many tokens against weights that grow. */
static void add_products(probe *p) {
  static const uint64_t shapes[][3] = {{512, 256, 64},    {8192, 256, 64},
                                       {8192, 2048, 64}, /* least dimension about 64 */
                                       {256, 256, 128},   {512, 1024, 256},
                                       {1024, 4096, 256}, {256, 32768, 1024}, /* 256 */
                                       {512, 512, 512},   {1024, 1024, 1024},
                                       {2048, 4096, 1024}}; /* 1024 */
  for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
    uint64_t m = shapes[k][0], n = shapes[k][1], d = shapes[k][2];
    hri_id products[3] =
        {node(p, HRI_OP_LINEAR, (hri_attr){0}, (hri_operand[]){in(p, m, d), in(p, n, d), HRI_ABSENT, out(p, m, n)}, 4),
         node(p, HRI_OP_LINEAR_DX, (hri_attr){0}, (hri_operand[]){in(p, m, n), in(p, n, d), out(p, m, d)}, 3),
         node(p, HRI_OP_LINEAR_DW, (hri_attr){0}, (hri_operand[]){in(p, m, n), in(p, m, d), wide_out(p, n, d)}, 3)};
    for (int i = 0; i < 3; i++) {
      add(p, products[i]);
      if (m * n * d >= LEAST_PACKED) add_packed(p, products[i]);
    }
  }
}

static void add_attention(probe *p) {
  static const int64_t shapes[HR_ATTENTION_SIZES][3] = {{16, 64, 12},
                                                        {4, 256, 12},
                                                        {1, 1024, 12},
                                                        {1, 4096, 4}}; /* batch, sequence, heads of 64 */
  for (size_t k = 0; k < HR_ATTENTION_SIZES; k++) {
    int64_t b = shapes[k][0], t = shapes[k][1], h = shapes[k][2], d = 64;
    uint64_t rows = (uint64_t)(b * t), wide = (uint64_t)(3 * h * d), narrow = (uint64_t)(h * d),
             pairs = (uint64_t)(h * t * b);
    hri_attr attr = {.i = {b, t, h, h, d, 0}, .f = {0.125}};
    add(p, node(p, HRI_OP_ATTENTION, attr,
                (hri_operand[]){in(p, rows, wide), HRI_ABSENT, out(p, rows, narrow), wide_out(p, 1, pairs), HRI_ABSENT},
                5));
    add(p, node(p, HRI_OP_ATTENTION_BACKWARD, attr,
                (hri_operand[]){in(p, rows, narrow), in(p, rows, wide), in(p, rows, narrow), wide_in(p, 1, pairs),
                                HRI_ABSENT, out(p, rows, wide), HRI_ABSENT},
                7));
  }
}

/* A range of so many elements, for an update to act on; its place in laid_out. */
static int64_t range_of(probe *p, uint64_t elements) {
  hri_param_range range = {.elements = elements, .rows = 1};
  if (!hri_array_push(&p->job.params, (hri_param){0}) || !hri_array_push(&p->job.ranges, range) ||
      !hri_array_push(&p->job.laid_out, (uint32_t)p->job.ranges.count - 1))
    p->job.failed = true;
  return (int64_t)p->job.laid_out.count - 1;
}

/* Everything that passes over memory, at `bytes` in all. Rows are as wide as a small model's. */
static void add_streams(probe *p, uint64_t bytes) {
  const bool narrow = p->dtype == HRI_BF16;
  const uint64_t c = 512, unit = bytes / (hri_dtype_bytes(p->dtype) * c),
                 wide_unit = bytes / (4 * c); /* rows of c if there were one operand */
  const uint64_t half = unit / 2, third = unit / 3, quarter = unit / 4, seventh = wide_unit / 7;
  hri_attr none = {0}, gelu = {.i = {HR_ACTIVATION_GELU_TANH}}, silu = {.i = {HR_ACTIVATION_SILU}},
           layer = {.i = {HR_NORM_LAYER}, .f = {1e-5}};
  hri_attr rope = {.i = {6, 1, 64, 0, 64}}, adam = {.f = {0.9, 0.999, 1e-8, [HRI_STATE_NUMBERS] = 0.1}},
           words = {.i = {(int64_t)(16 * c)}};
  uint64_t elements = half * 2 * c;
  add(p, node(p, HRI_OP_COPY, none, (hri_operand[]){in(p, half, c), out(p, half, c)}, 2));
  add(p, node(p, HRI_OP_ADD, none, (hri_operand[]){in(p, third, c), in(p, third, c), out(p, third, c)}, 3));
  add(p, node(p, HRI_OP_NORM, layer,
              (hri_operand[]){in(p, quarter, c), wide_in(p, 1, c), wide_in(p, 1, c), in(p, quarter, c),
                              out(p, quarter, c), out(p, quarter, c), wide_out(p, quarter, 2)},
              7));
  add(p, node(p, HRI_OP_NORM_BACKWARD, layer,
              (hri_operand[]){in(p, quarter, c), in(p, quarter, c), wide_in(p, quarter, 2), wide_in(p, 1, c),
                              in(p, quarter, c), out(p, quarter, c), wide_out(p, 1, c), wide_out(p, 1, c)},
              8));
  add(p, node(p, HRI_OP_ACTIVATION, gelu, (hri_operand[]){in(p, half, c), out(p, half, c)}, 2));
  add(p, node(p, HRI_OP_ACTIVATION_BACKWARD, gelu, (hri_operand[]){in(p, third, c), in(p, third, c), out(p, third, c)},
              3));
  add(p, node(p, HRI_OP_GLU, silu, (hri_operand[]){in(p, third, 2 * c), out(p, third, c)}, 2));
  add(p, node(p, HRI_OP_GLU_BACKWARD, silu,
              (hri_operand[]){in(p, unit / 5, c), in(p, unit / 5, 2 * c), out(p, unit / 5, 2 * c)}, 3));
  add(p, node(p, HRI_OP_ROPE, rope,
              (hri_operand[]){in(p, half, c), index_of(p, half), wide_in(p, 2 * 1024, 32), out(p, half, c)}, 4));
  add(p, node(p, HRI_OP_BIAS_GRADIENT, none, (hri_operand[]){in(p, unit, c), wide_out(p, 1, c)}, 2));
  add(p, node(p, HRI_OP_CROSS_ENTROPY, words,
              (hri_operand[]){in(p, half / 16, 16 * c), index_of(p, half / 16), control(p), out(p, half / 16, 16 * c),
                              wide_out(p, 1, half / 16)},
              5));
  add(p, node(p, HRI_OP_SQUARE_NORM, none,
              (hri_operand[]){in(p, 1, elements),
                              tensor(p, HRI_WRITE, HRI_F64, 1, (elements + HRI_NORM_BLOCK - 1) / HRI_NORM_BLOCK)},
              2));
  adam.i[1] = range_of(p, seventh * c);
  adam.i[2] = 1;
  add(p, node(p, HRI_OP_ADAMW, adam, /* with the bf16 copy of a master weight */
              (hri_operand[]){wide_in(p, seventh, c), control(p), update(p, seventh, c), update(p, seventh, c),
                              update(p, seventh, c),
                              narrow ? tensor(p, HRI_UPDATE_ACCESS, HRI_BF16, seventh, c)
                                     : (hri_operand){HRI_NONE, HRI_UPDATE_ACCESS},
                              HRI_ABSENT},
              7));
}

/* The overhead of a node: one with next to no work, many times. */
static void add_overhead(probe *p) {
  add(p, node(p, HRI_OP_ADD, (hri_attr){0}, (hri_operand[]){in(p, 8, 64), in(p, 8, 64), out(p, 8, 64)}, 3));
  if (p->sample_count) p->samples[p->sample_count - 1].entry = NULL;
}

/* ---- memory ---- */

static region region_of(const probe *p, hri_operand operand) {
  const hri_tensor *t = &p->job.tensors.items[operand.tensor];
  if (operand.access != HRI_READ) return OUTPUTS;
  return t->dtype == HRI_F32 ? INPUTS : t->dtype == HRI_BF16 ? HALF_INPUTS : INDICES;
}

/* Places the operands of one node, each in its region from the region's start. Nodes overlap: they run one by one. */
static void place_node(probe *p, const hri_node *n, uint64_t used[REGIONS]) {
  memset(used, 0, REGIONS * sizeof *used);
  for (uint32_t k = 0; k < n->operand_count; k++) {
    hri_operand o = hri_operands(&p->job, n)[k];
    region r;
    if (o.tensor == HRI_NONE) continue;
    r = region_of(p, o);
    p->offsets[p->job.tensors.items[o.tensor].storage] = used[r];
    used[r] += hri_round_up(p->job.storages.items[p->job.tensors.items[o.tensor].storage].bytes, HRI_STORAGE_ALIGN);
  }
}

/* The size of the regions; samples that would need more than the machine has are left out. */
static hr_status place_all(probe *p, hr_error *error) {
  uint32_t kept = 0;
  p->offsets = hri_alloc_zero(p->job.storages.count, sizeof *p->offsets);
  if (!p->offsets) return hri_fail_memory(error, p->job.storages.count * sizeof *p->offsets, "the probe");
  for (uint32_t k = 0; k < p->sample_count; k++) {
    uint64_t used[REGIONS], total = 0, grown[REGIONS];
    place_node(p, &p->job.nodes.items[p->samples[k].node], used);
    for (int r = 0; r < REGIONS; r++) total += grown[r] = used[r] > p->region_bytes[r] ? used[r] : p->region_bytes[r];
    if (total > p->limit_bytes) continue;
    memcpy(p->region_bytes, grown, sizeof grown);
    p->samples[kept++] = p->samples[k];
  }
  p->sample_count = kept;
  return HR_OK;
}

/* Where sample k begins in a region of which it uses `used`: spread by the golden ratio. */
static uint64_t spread(const probe *p, uint32_t k, region r, uint64_t used) {
  double place = 0.6180339887498949 * (double)(k + 1), part = place - (double)(uint64_t)place;
  return (uint64_t)(part * (double)(p->region_bytes[r] - used)) / HRI_STORAGE_ALIGN * HRI_STORAGE_ALIGN;
}

/* Regions begin behind each other, so offsets move by their begin and by the place of their sample; integers stay at
 * the start, where the zeros are few. */
static void place_regions(probe *p) {
  uint64_t total = 0;
  for (int r = 0; r < REGIONS; r++) {
    p->region_begin[r] = total;
    total += p->region_bytes[r];
  }
  p->arena_bytes = total;
  for (uint32_t k = 0; k < p->sample_count; k++) {
    const hri_node *n = &p->job.nodes.items[p->samples[k].node];
    uint64_t used[REGIONS];
    place_node(p, n, used);
    for (uint32_t i = 0; i < n->operand_count; i++) {
      hri_operand o = hri_operands(&p->job, n)[i];
      region r = o.tensor == HRI_NONE ? INDICES : region_of(p, o);
      if (o.tensor != HRI_NONE)
        p->offsets[p->job.tensors.items[o.tensor].storage] +=
            p->region_begin[r] + (r == INDICES ? 0 : spread(p, k, r, used[r]));
    }
  }
}

/* A tensor that shows a whole region, to write its numbers through. */
static hr_status show_region(probe *p, region r, hri_id *shown, hr_error *error) {
  hri_operand o = tensor(p, HRI_WRITE, HRI_U8, 1, p->region_bytes[r]);
  uint64_t *offsets = hri_alloc_zero(p->job.storages.count, sizeof *offsets);
  HRI_TRY(hri_job_ok(&p->job, error));
  if (!offsets) return hri_fail_memory(error, p->job.storages.count * sizeof *offsets, "the probe");
  memcpy(offsets, p->offsets, (p->job.storages.count - 1) * sizeof *offsets);
  offsets[p->job.storages.count - 1] = p->region_begin[r];
  hri_free(p->offsets);
  p->offsets = offsets;
  *shown = o.tensor;
  return HR_OK;
}

static float number(uint64_t k) {
  uint32_t mixed = (uint32_t)k * 2654435761u;
  return (float)(mixed ^ mixed >> 15) / 4294967296.0f - 0.5f;
}

/* Numbers in [-0.5, 0.5). */
static hr_status fill_region(probe *p, hri_id shown, region r, hri_real real, hr_error *error) {
  enum { PIECE = 4096 };
  float values[PIECE]; /* of either type */
  uint64_t each = hri_real_bytes(real), count = p->region_bytes[r] / each;
  for (uint64_t done = 0; done < count; done += PIECE) {
    uint64_t n = count - done < PIECE ? count - done : PIECE;
    for (uint64_t k = 0; k < n; k++) hri_real_put(values, (int64_t)k, number(done + k), real);
    HRI_TRY(p->backend->write(p->base, shown, done * each, values, n * each, error));
  }
  return HR_OK;
}

/* ---- runs ---- */

static void after_node(void *context, const hri_job *job, hri_id node, double seconds) {
  probe *p = context;
  (void)job;
  (void)node;
  p->samples[p->sample_of[p->at++]].last = seconds;
}

/* Prepares a run of samples [begin, end), one after the other, each once or twice. */
static hr_status prepare(probe *p, uint32_t begin, uint32_t end, bool all_twice, void *beside, void **run,
                         hr_error *error) {
  hri_program *program = &p->job.programs[HRI_STEP];
  hri_work work = {.job = &p->job,
                   .offsets = p->offsets,
                   .arena_bytes = {[HRI_DEVICE] = p->arena_bytes},
                   .programs = HRI_IN(HRI_STEP),
                   .beside = beside,
                   .after_node = after_node,
                   .context = p,
                   .times = true};
  program->order.count = 0;
  for (uint32_t k = begin; k < end; k++)
    for (int turn = 0; turn <= (all_twice || p->samples[k].twice); turn++) {
      p->sample_of[program->order.count] = k;
      hri_order_push(&p->job, HRI_STEP, p->samples[k].node);
    }
  HRI_TRY(hri_job_ok(&p->job, error));
  return p->backend->prepare(p->backend->self, &work, run, error);
}

static hr_status launch(probe *p, void *run, hr_error *error) {
  hri_mark mark;
  p->at = 0;
  HRI_TRY(p->backend->launch(run, HRI_STEP, &mark, error));
  return p->backend->wait(run, mark, error);
}

/* From nodes to offsets. */
static hr_status lay_out(probe *p, hr_error *error) {
  HRI_TRY(hri_job_ok(&p->job, error));
  HRI_TRY(hri_pass_workspace(&p->job, p->backend, error));
  HRI_TRY(place_all(p, error));
  place_regions(p);
  for (region r = INPUTS; r <= HALF_INPUTS; r++)
    if (p->region_bytes[r]) HRI_TRY(show_region(p, r, &p->shown[r], error));
  return HR_OK;
}

/* Reserves the memory, with numbers for what is read. */
static hr_status fill(probe *p, hr_error *error) {
  HRI_TRY(p->backend->reserve(p->base, error));
  HRI_TRY(fill_region(p, p->shown[INPUTS], INPUTS, HRI_REAL_F32, error)); /* nothing where a region is empty */
  return fill_region(p, p->shown[HALF_INPUTS], HALF_INPUTS, HRI_REAL_BF16, error);
}

/* ---- fixed bytes ---- */

/* What is resident once everything ran, less the arena. */
static void fix(probe *p) {
  uint64_t resident = hri_host_resident_bytes(), beside = p->backend->reserved_bytes(p->base, HRI_DEVICE);
  uint64_t rest = resident > beside ? resident - beside : 0;
  p->rates->fixed_bytes = hri_round_up(rest + BUFFER_BYTES, 1u << 20);
}

/* ---- measuring ---- */

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

/* Sorts. */
static double median(double *seconds, uint32_t count) {
  qsort(seconds, count, sizeof *seconds, ascending);
  return count % 2 ? seconds[count / 2] : (seconds[count / 2 - 1] + seconds[count / 2]) / 2;
}

/* The first round, not counted: code is loaded, and it shows which samples are short. */
static hr_status warm_up(probe *p, hr_error *error) {
  HRI_TRY(launch(p, p->base, error));
  for (uint32_t k = 0; k < p->sample_count; k++) p->samples[k].twice = p->samples[k].last < SHORT_SAMPLE_SECONDS;
  HRI_TRY(prepare(p, 0, p->sample_count, false, p->base, &p->run, error));
  return p->backend->reserve(p->run, error);
}

static hr_status measure(probe *p, double begin, const hr_probe_options *options, hr_error *error) {
  double limit = options && options->seconds > 0 ? options->seconds : DEFAULT_SECONDS, round = 0;
  uint32_t least = limit < ROUGH_SECONDS ? 1 : LEAST_ROUNDS;
  while (p->round_count < MAX_ROUNDS && (p->round_count < least || now() - begin + round < limit)) {
    double start = now(), share;
    HRI_TRY(launch(p, p->run, error));
    for (uint32_t k = 0; k < p->sample_count; k++) p->samples[k].seconds[p->round_count] = p->samples[k].last;
    p->round_count++;
    round = now() - start;
    share = (now() - begin) / limit;
    if (options && options->on_progress) options->on_progress(options->context, share < 1 ? share : 1);
  }
  return HR_OK;
}

/* Rates are of the work alone: the overhead, which a prediction adds to every node, is taken off first. */
static void file_rates(probe *p) {
  double overhead = 0;
  for (uint32_t k = 0; k < p->sample_count; k++)
    if (!p->samples[k].entry) overhead = median(p->samples[k].seconds, p->round_count);
  p->rates->node_seconds = overhead;
  for (uint32_t k = 0; k < p->sample_count; k++) {
    double seconds;
    if (!p->samples[k].entry) continue;
    seconds = median(p->samples[k].seconds, p->round_count);
    seconds = seconds > 2 * overhead ? seconds - overhead : seconds / 2;
    *p->samples[k].entry = seconds > 0 ? p->samples[k].work / seconds : 0;
  }
}

/* ---- choosing among codes ---- */

/* FORWARD, DX and DW of so many tokens, and few rows, for each width; the weights grow with it. */
static void add_contest(probe *p) {
  static const uint64_t shapes[][3] = {{8, 1024, 64},    {8, 4096, 256},    {8, 4096, 1024},
                                       {1024, 512, 64},  {4096, 256, 64},   {512, 1024, 256},
                                       {2048, 256, 256}, {512, 1024, 1024}, {1024, 4096, 1024}};
  p->dtype = HRI_BF16;
  for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
    uint64_t m = shapes[k][0], n = shapes[k][1], d = shapes[k][2];
    add(p,
        node(p, HRI_OP_LINEAR, (hri_attr){0}, (hri_operand[]){in(p, m, d), in(p, n, d), HRI_ABSENT, out(p, m, n)}, 4));
    if (m <= HRI_GEMM_DOT_ROWS) continue;
    add(p, node(p, HRI_OP_LINEAR_DX, (hri_attr){0}, (hri_operand[]){in(p, m, n), in(p, n, d), out(p, m, d)}, 3));
    add(p, node(p, HRI_OP_LINEAR_DW, (hri_attr){0}, (hri_operand[]){in(p, m, n), in(p, m, d), wide_out(p, n, d)}, 3));
  }
  p->job.programs[HRI_STEP].present = true;
}

/* The class of a sample, by the very shape that is computed. */
static void class_of(const probe *p, const sample *s, uint32_t *row, uint32_t *width) {
  hri_gemm_shape shape = hri_demand_product(&p->job, &p->job.nodes.items[s->node], p->backend->team);
  *row = hri_gemm_row_of(&shape);
  *width = hri_gemm_width_of(&shape);
}

/* The geometric mean of the rates of the samples of each class. */
static void file_codes(probe *p, hri_gemm_code code, hr_code_rates *rates) {
  double sums[HRI_GEMM_ROW_COUNT][HRI_GEMM_WIDTH_COUNT] = {{0}};
  uint32_t counts[HRI_GEMM_ROW_COUNT][HRI_GEMM_WIDTH_COUNT] = {{0}}, row, width;
  for (uint32_t k = 0; k < p->sample_count; k++) {
    double seconds = median(p->samples[k].seconds, p->round_count);
    class_of(p, &p->samples[k], &row, &width);
    if (!(seconds > 0)) continue;
    sums[row][width] += log(p->samples[k].work / seconds);
    counts[row][width]++;
  }
  for (row = 0; row < HRI_GEMM_ROW_COUNT; row++)
    for (width = 0; width < HRI_GEMM_WIDTH_COUNT; width++)
      if (counts[row][width]) rates->flops[code][row][width] = exp(sums[row][width] / counts[row][width]);
}

/* A contender is a probe of its own, whose backend computes all products by one code. */
static hr_status open_contender(probe *p, const char *products, uint32_t threads, uint64_t limit_bytes,
                                hr_error *error) {
  hr_device device;
  hri_device_cpu(&device);
  (void)snprintf(device.products, sizeof device.products, "%s", products);
  p->limit_bytes = limit_bytes;
  HRI_TRY(hri_backend_open(&device, threads, &p->backend, error));
  add_contest(p);
  HRI_TRY(lay_out(p, error));
  HRI_TRY(prepare(p, 0, p->sample_count, true, NULL, &p->base, error));
  return fill(p, error);
}

static hr_status contend(probe *contenders[], uint32_t count, double limit, hr_error *error) {
  double begin = now(), round = 0;
  uint32_t rounds = 0;
  for (uint32_t k = 0; k < count; k++) HRI_TRY(launch(contenders[k], contenders[k]->base, error)); /* not counted */
  while (rounds < MAX_ROUNDS && (rounds < LEAST_ROUNDS || now() - begin + round < limit)) {
    double start = now();
    for (uint32_t k = 0; k < count; k++) {
      probe *p = contenders[(k + rounds) % count]; /* nobody always comes first */
      HRI_TRY(launch(p, p->base, error));
      for (uint32_t i = 0; i < p->sample_count; i++) p->samples[i].seconds[rounds] = p->samples[i].last;
      p->round_count = rounds + 1;
    }
    rounds++;
    round = now() - start;
  }
  return HR_OK;
}

static void close_probe(probe *p) {
  if (!p) return;
  if (p->base) p->backend->release(p->run);
  if (p->base) p->backend->release(p->base);
  hri_free(p->offsets);
  hri_job_deinit(&p->job);
  hri_backend_close(p->backend);
  hri_free(p);
}

/* The level of this machine, and what its shipped table is. */
static hr_status shipped_products(uint32_t threads, hri_gemm_machine *machine, hr_error *error) {
  hri_backend *backend;
  hr_device device;
  bool known;
  hri_device_cpu(&device);
  (void)snprintf(device.products, sizeof device.products, "shipped");
  HRI_TRY(hri_backend_open(&device, threads, &backend, error));
  known = hri_isa_parse(backend->instruction_set, &machine->level) &&
          hri_gemm_parse(backend->libraries, machine->level, &machine->table);
  hri_backend_close(backend);
  return known ? HR_OK : hri_fail(error, HR_ERROR_INTERNAL, "the products of this machine have no name");
}

/* Measures each code that the machine has, where there are several, and names the table that wins. */
static hr_status choose_products(hr_device_rates *rates, uint32_t threads, double seconds, uint64_t limit_bytes,
                                 char products[HRI_GEMM_TEXT_BYTES], hr_error *error) {
  probe *contenders[HRI_GEMM_CODE_COUNT] = {NULL};
  hri_gemm_code codes[HRI_GEMM_CODE_COUNT];
  hri_gemm_machine machine = {0};
  uint32_t count = 0;
  hr_status status;
  HRI_TRY(shipped_products(threads, &machine, error));
  for (int code = 0; code < HRI_GEMM_CODE_COUNT; code++)
    if (hri_gemm_has(machine.level, (hri_gemm_code)code, 1)) codes[count++] = (hri_gemm_code)code;
  if (count == 1) return HR_OK;
  for (uint32_t k = 0; k < count; k++) {
    hri_gemm_machine one = {machine.level, machine.pairs, hri_gemm_table_by(machine.level, codes[k])};
    contenders[k] = hri_alloc_zero(1, sizeof *contenders[k]);
    if (!contenders[k]) HRI_TRY_OUT(hri_fail_memory(error, sizeof *contenders[k], "the probe"));
    contenders[k]->rates = rates;
    hri_job_init(&contenders[k]->job);
    HRI_TRY_OUT(open_contender(contenders[k], hri_gemm_text(&one, products), threads, limit_bytes / count, error));
  }
  HRI_TRY_OUT(contend(contenders, count, seconds, error));
  for (uint32_t k = 0; k < count; k++) file_codes(contenders[k], codes[k], &rates->codes);
  machine.table = hri_gemm_table_fastest(machine.level, &machine.table, &rates->codes);
  (void)hri_gemm_text(&machine, products);
out:
  for (uint32_t k = 0; k < count; k++) close_probe(contenders[k]);
  return status;
}

/* ---- the whole ---- */

static void describe(hr_device_rates *rates, const hri_backend *b) {
  time_t seconds = time(NULL);
  struct tm day;
  rates->threads = b->team;
  memcpy(rates->instruction_set, b->instruction_set, sizeof rates->instruction_set);
  memcpy(rates->libraries, b->libraries, sizeof rates->libraries);
  if (gmtime_r(&seconds, &day)) (void)strftime(rates->date, sizeof rates->date, "%Y-%m-%d", &day);
}

static void add_samples(probe *p) {
  add_overhead(p);
  for (int type = 0; type < HR_RATE_TYPES; type++) {
    p->dtype = type ? HRI_BF16 : HRI_F32;
    for (uint32_t k = 0; k < HR_STREAM_SIZES; k++) {
      add_streams(p, UINT64_C(1) << (uint32_t)hri_rate_column(HRI_RATE_STREAM, k));
      add_pack(p, UINT64_C(1) << (uint32_t)hri_rate_column(HRI_RATE_STREAM, k));
    }
    add_attention(p);
    add_products(p);
  }
  p->job.programs[HRI_STEP].present = true;
}

/* Opens the backend with the products that runs will have: those that win here, or what is stored or shipped. */
static hr_status open_backend(probe *p, const hr_probe_options *options, hr_error *error) {
  uint32_t threads = options && options->threads ? options->threads : hr_device_cpu_threads();
  double limit = options && options->seconds > 0 ? options->seconds : DEFAULT_SECONDS;
  hr_device device;
  hri_device_cpu(&device);
  if (limit >= ROUGH_SECONDS)
    HRI_TRY(choose_products(p->rates, threads, limit * CHOOSING_PART, p->limit_bytes, device.products, error));
  return hri_backend_open(&device, threads, &p->backend, error);
}

static hr_status run(probe *p, const hr_probe_options *options, hr_error *error) {
  uint64_t usable = hri_host_memory_now().usable_bytes;
  double begin = now();
  p->limit_bytes = usable / 2 < (UINT64_C(640) << 20) ? usable / 2 : UINT64_C(640) << 20;
  HRI_TRY(open_backend(p, options, error));
  add_samples(p);
  HRI_TRY(lay_out(p, error));
  HRI_TRY(prepare(p, 0, p->sample_count, true, NULL, &p->base, error));
  HRI_TRY(fill(p, error));
  HRI_TRY(warm_up(p, error));
  fix(p);
  HRI_TRY(measure(p, begin, options, error));
  file_rates(p);
  describe(p->rates, p->backend);
  return HR_OK;
}

void hr_probe_options_init(hr_probe_options *options) { *options = (hr_probe_options){0}; }

hr_status hr_device_probe(const hr_probe_options *options, hr_device_rates *rates, hr_error *error) {
  probe *p = hri_alloc_zero(1, sizeof *p);
  hr_status status;
  memset(rates, 0, sizeof *rates);
  if (!p) return hri_fail_memory(error, sizeof *p, "the probe");
  p->rates = rates;
  hri_job_init(&p->job);
  status = run(p, options, error);
  close_probe(p);
  if (status != HR_OK) memset(rates, 0, sizeof *rates);
  return status;
}
