/* The sample nodes of a probe (probe.h): each is filed under the entry of its class that is nearest in size. */
#include "run/probe.h"

#include <string.h>

#include "ops/linear/product.h"
#include "program/ops.h"

static const uint64_t LEAST_PACKED = UINT64_C(1) << 27; /* M N K of products worth packing for */
static const uint64_t SCOUT_BYTES = UINT64_C(1) << 16;

typedef hri_probe probe;

/* ---- sample nodes ---- */

static hri_operand tensor_in(probe *p, hri_tier tier, hri_access access, hri_dtype dtype, uint64_t rows,
                             uint64_t columns) {
  hri_place place = {.program = HRI_STEP,
                     .tier = (uint8_t)tier,
                     .role = HRI_ROLE_ACTIVATION,
                     .layer = -1,
                     .unit = HRI_NONE};
  return (hri_operand){hri_tensor_new(&p->job, place, 0, dtype, 2, (uint64_t[]){rows, columns}, NULL), (uint8_t)access};
}
static hri_operand tensor(probe *p, hri_access access, hri_dtype dtype, uint64_t rows, uint64_t columns) {
  return tensor_in(p, HRI_DEVICE, access, dtype, rows, columns);
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
  if (p->job.failed || p->sample_count == HRI_PROBE_SAMPLES) return;
  where = hri_rate_class_of(&p->job, &p->job.nodes.items[id]);
  p->samples[p->sample_count++] =
      (hri_probe_sample){.node = id, .entry = hri_rate_entry(p->rates, &where), .work = where.work};
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

static void add_product(probe *p, const uint64_t shape[3]) {
  uint64_t m = shape[0], n = shape[1], d = shape[2];
  hri_id products[3] =
      {node(p, HRI_OP_LINEAR, (hri_attr){0}, (hri_operand[]){in(p, m, d), in(p, n, d), HRI_ABSENT, out(p, m, n)}, 4),
       node(p, HRI_OP_LINEAR_DX, (hri_attr){0}, (hri_operand[]){in(p, m, n), in(p, n, d), out(p, m, d)}, 3),
       node(p, HRI_OP_LINEAR_DW, (hri_attr){0}, (hri_operand[]){in(p, m, n), in(p, m, d), wide_out(p, n, d)}, 3)};
  for (int i = 0; i < 3; i++) {
    add(p, products[i]);
    if (m * n * d >= LEAST_PACKED) add_packed(p, products[i]);
  }
}

/* M, N, K per entry of the tables, as layers have them: few to many tokens against weights that grow. */
static void add_products(probe *p) {
  static const uint64_t shapes[][3] = {{512, 256, 64},    {8192, 256, 64},
                                       {8192, 2048, 64}, /* least dimension about 64 */
                                       {256, 256, 128},   {512, 1024, 256},
                                       {1024, 4096, 256}, {256, 32768, 1024}, /* 256 */
                                       {512, 512, 512},   {1024, 1024, 1024},
                                       {2048, 4096, 1024}}; /* 1024 */
  for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) add_product(p, shapes[k]);
}

/* Batch, sequence, heads of 64. */
static void add_attention_of(probe *p, const int64_t shape[3]) {
  int64_t b = shape[0], t = shape[1], h = shape[2], d = 64;
  uint64_t rows = (uint64_t)(b * t), wide = (uint64_t)(3 * h * d), narrow = (uint64_t)(h * d),
           pairs = (uint64_t)(h * t * b);
  hri_attr attr = {.i = {b, t, h, h, d, 0}, .f = {0.125}};
  add(p,
      node(p, HRI_OP_ATTENTION, attr,
           (hri_operand[]){in(p, rows, wide), HRI_ABSENT, out(p, rows, narrow), wide_out(p, 1, pairs), HRI_ABSENT}, 5));
  add(p, node(p, HRI_OP_ATTENTION_BACKWARD, attr,
              (hri_operand[]){in(p, rows, narrow), in(p, rows, wide), in(p, rows, narrow), wide_in(p, 1, pairs),
                              HRI_ABSENT, out(p, rows, wide), HRI_ABSENT},
              7));
}

static void add_attention(probe *p) {
  static const int64_t shapes[HR_ATTENTION_SIZES][3] = {{16, 64, 12}, {4, 256, 12}, {1, 1024, 12}, {1, 4096, 4}};
  for (size_t k = 0; k < HR_ATTENTION_SIZES; k++) add_attention_of(p, shapes[k]);
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
  add(p, node(p, HRI_OP_ADAMW, adam, /* bf16: a master in two halves */
              (hri_operand[]){wide_in(p, seventh, c), control(p),
                              narrow ? tensor(p, HRI_UPDATE_ACCESS, HRI_BF16, seventh, c) : update(p, seventh, c),
                              update(p, seventh, c), update(p, seventh, c),
                              narrow ? tensor(p, HRI_UPDATE_ACCESS, HRI_F32_LOW, seventh, c)
                                     : (hri_operand){HRI_NONE, HRI_UPDATE_ACCESS},
                              HRI_ABSENT},
              7));
}

/* The overhead of a node: one with next to no work, many times. */
static void add_overhead(probe *p) {
  add(p, node(p, HRI_OP_ADD, (hri_attr){0}, (hri_operand[]){in(p, 8, 64), in(p, 8, 64), out(p, 8, 64)}, 3));
  if (p->job.failed) return;
  p->samples[p->sample_count - 1].entry = NULL;
  p->overhead = p->samples[p->sample_count - 1].node;
}

/* ---- copies between a card and its host ---- */

static void add_link(probe *p, int way, hri_operand from, hri_operand to) {
  hri_id id = node(p, HRI_OP_COPY, (hri_attr){0}, (hri_operand[]){from, to}, 2);
  add(p, id);
  if (p->job.failed) return;
  p->samples[p->sample_count - 1].entry = &p->rates->link_bytes_per_second[way];
  p->samples[p->sample_count - 1].work = hri_node_bytes(&p->job, &p->job.nodes.items[id]) / 2; /* one way */
}

/* Of several sizes the largest that is measured counts: it is filed last. */
static void add_links(probe *p) {
  static const uint64_t sizes[] = {UINT64_C(1) << 20, UINT64_C(1) << 23, UINT64_C(1) << 26};
  for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
    const uint64_t c = 512, rows = sizes[k] / (4 * c);
    add_link(p, HR_LINK_TO_HOST, wide_in(p, rows, c), tensor_in(p, HRI_HOST, HRI_WRITE, HRI_F32, rows, c));
    add_link(p, HR_LINK_FROM_HOST, tensor_in(p, HRI_HOST, HRI_READ, HRI_F32, rows, c), wide_out(p, rows, c));
  }
}

/* ---- which of them ---- */

void hri_probe_add_samples(probe *p) {
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
  if (p->backend->held_bytes) add_links(p);
  p->job.programs[HRI_STEP].present = true;
}

/* One of each kind that is over at once on anything. */
void hri_probe_add_scouts(probe *p) {
  static const uint64_t product[3] = {64, 64, 64};
  static const int64_t attention[3] = {1, 64, 1};
  add_overhead(p);
  for (int type = 0; type < HR_RATE_TYPES; type++) {
    p->dtype = type ? HRI_BF16 : HRI_F32;
    add_streams(p, SCOUT_BYTES);
    add_attention_of(p, attention);
    add_product(p, product);
  }
  p->job.programs[HRI_STEP].present = true;
}

/* FORWARD, DX and DW of so many tokens, and few rows, for each width; the weights grow with it. */
void hri_probe_add_contest(probe *p) {
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
