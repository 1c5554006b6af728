#include "plan/cost.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "pass/pass.h"

uint32_t hri_job_runs(const hr_job *spec, uint8_t program) {
  if (spec->purpose == HR_PURPOSE_EVALUATE) return program == HRI_EVALUATE;
  if (spec->purpose == HR_PURPOSE_GENERATE) return program == HRI_DECODE;
  if (program == HRI_STEP) return spec->accumulate == 1;
  if (program == HRI_MICRO) return spec->accumulate > 1 ? spec->accumulate : 0;
  return (program == HRI_BEGIN || program == HRI_UPDATE) && spec->accumulate > 1;
}

/* ---- classes of nodes ---- */

static const double product_sizes[HR_PRODUCT_SIZES] = {24, 28, 31, 34},
                    attention_sizes[HR_ATTENTION_SIZES] = {6, 8, 10, 12}, stream_sizes[HR_STREAM_SIZES] = {20, 24, 27};

double hri_rate_column(hri_rate_table table, uint32_t index) {
  return table == HRI_RATE_PRODUCT     ? product_sizes[index]
         : table == HRI_RATE_ATTENTION ? attention_sizes[index]
                                       : stream_sizes[index];
}

uint32_t hri_rate_columns(hri_rate_table table) {
  return table == HRI_RATE_PRODUCT     ? HR_PRODUCT_SIZES
         : table == HRI_RATE_ATTENTION ? HR_ATTENTION_SIZES
                                       : HR_STREAM_SIZES;
}

/* Of the first operand of a product: the tokens that it is for. */
static uint64_t product_rows(const hri_job *job, const hri_node *node) {
  return hri_stored_rows(&job->tensors.items[hri_operands(job, node)[0].tensor]);
}

/* Class by the smallest of M, N and K, with borders halfway (in the logarithm) between 64, 256 and 1024; of so many of its
 * rows. */
static uint32_t product_side(const hri_job *job, const hri_node *node, uint64_t rows) {
  const hri_operand *o = hri_operands(job, node);
  const hri_tensor *a = &job->tensors.items[o[0].tensor], *b = &job->tensors.items[o[1].tensor];
  uint64_t sides[] = {rows, a->stored[a->rank - 1], b->stored[b->rank - 1],
                      hri_rule_get(node->op)->product == HRI_PRODUCT_FORWARD ? hri_stored_rows(b) : UINT64_MAX},
           least = UINT64_MAX;
  for (size_t k = 0; k < sizeof sides / sizeof *sides; k++)
    if (sides[k] < least) least = sides[k];
  return least < 128 ? 0 : least < 512 ? 1 : 2;
}

/* Narrow as soon as one operand is: the others are then vectors, statistics or masters of the same node. */
static hri_dtype type_of(const hri_job *job, const hri_node *node) {
  for (uint32_t i = 0; i < node->operand_count; i++) {
    hri_operand o = hri_operands(job, node)[i];
    uint8_t dtype = o.tensor == HRI_NONE ? HRI_F32 : job->tensors.items[o.tensor].dtype;
    if (dtype == HRI_BF16 || dtype == HRI_F16) return (hri_dtype)dtype;
  }
  return HRI_F32;
}

/* Which of the measured types a class goes by. fp16 was not measured: the CPU widens it where it multiplies, so that
 * products go at the rate of fp32; what streams it moves as many bytes as in bf16. */
static uint32_t rated_type(hri_dtype type, hri_rate_table table) {
  return type == HRI_BF16 || (type == HRI_F16 && table == HRI_RATE_STREAM);
}

double hri_peak_of(const hri_job *job, const hri_node *node, const hr_device *device) {
  const hri_dtype type = type_of(job, node);
  double narrow = type == HRI_F16    ? device->flops_fp16
                  : type == HRI_BF16 ? device->flops_bf16
                  : job->tf32        ? device->flops_tf32
                                     : 0;
  return narrow > 0 ? narrow : device->flops_fp32;
}

static bool is_packed(const hri_job *job, const hri_node *node) {
  return job->tensors.items[hri_operands(job, node)[1].tensor].layout == HRI_PACKED;
}

/* An update's arithmetic, as bytes (program/optimizer.h). A rate that was measured of a step with little of it would make
 * states of 8 bits look twice as fast as they are slow. */
static double effort_of(const hri_job *job, const hri_node *node) {
  uint32_t kind = hri_optimizer_of(node->op);
  double elements = 0;
  if (kind == HRI_NONE || !hri_optimizer_get(kind)->effort) return 0;
  for (uint32_t k = 0; k < hri_piece_count(job, hri_operands(job, node)[0].tensor); k++)
    elements += (double)hri_tensor_elements(&job->tensors.items[hri_piece(job, hri_operands(job, node)[0].tensor, k)]);
  return elements * hri_optimizer_get(kind)->effort;
}

hri_rate_class hri_rate_class_of(const hri_job *job, const hri_node *node) {
  const hri_rule *rule = hri_rule_get(node->op);
  hri_rate_class c = {.table = HRI_RATE_STREAM,
                      .kind = rule->stream,
                      .work = hri_node_bytes(job, node) + effort_of(job, node)};
  if (node->lane != HRI_COMPUTE || rule->transfer) return (hri_rate_class){.table = HRI_RATE_NONE};
  c.size = c.work > 1 ? log2(c.work) : 0;
  if (rule->product) {
    assert(rule->product <= HR_PRODUCT_KINDS / 2);
    c = (hri_rate_class){.table = HRI_RATE_PRODUCT,
                         .kind = rule->product - 1 + (is_packed(job, node) ? HR_PRODUCT_KINDS / 2 : 0),
                         .side = product_side(job, node, product_rows(job, node)),
                         .work = hri_node_flops(job, node)};
    c.size = c.work > 1 ? log2(c.work) : 0;
  } else if (rule->attention && rule->attention != HRI_ATTENTION_CACHED) { /* one row against the cache streams it */
    c = (hri_rate_class){.table = HRI_RATE_ATTENTION,
                         .kind = rule->attention == HRI_ATTENTION_BACKWARD,
                         .size = log2((double)node->attr.i[1]),
                         .work = hri_node_flops(job, node)};
  }
  c.type = rated_type(type_of(job, node), c.table);
  return c;
}

double *hri_rate_entry(hr_device_rates *rates, const hri_rate_class *where) {
  double *row = (double *)hri_rate_row(rates, where), best = HUGE_VAL;
  uint32_t nearest = 0;
  for (uint32_t k = 0; k < hri_rate_columns(where->table); k++) {
    double away = fabs(where->size - hri_rate_column(where->table, k));
    if (away >= best) continue;
    best = away;
    nearest = k;
  }
  return row + nearest;
}

const double *hri_rate_row(const hr_device_rates *rates, const hri_rate_class *where) {
  assert(where->type < HR_RATE_TYPES);
  assert(where->table != HRI_RATE_PRODUCT || (where->kind < HR_PRODUCT_KINDS && where->side < HR_PRODUCT_SIDES));
  switch (where->table) {
  case HRI_RATE_PRODUCT: return rates->tables[where->type].product_flops[where->kind][where->side];
  case HRI_RATE_ATTENTION: return rates->tables[where->type].attention_flops[where->kind];
  case HRI_RATE_STREAM: return rates->tables[where->type].stream_bytes[where->kind];
  default: return NULL;
  }
}

/* ---- measured rates ---- */

/* The rate at a size from the measured columns of a row around it; 0 when there is none. */
static double interpolate(const hr_device_rates *rates, const hri_rate_class *c) {
  const double *row = hri_rate_row(rates, c);
  double below = 0, below_at = 0;
  for (uint32_t k = 0; k < hri_rate_columns(c->table); k++) {
    double at = hri_rate_column(c->table, k);
    if (row[k] <= 0) continue;
    if (at >= c->size) return below > 0 ? below * pow(row[k] / below, (c->size - below_at) / (at - below_at)) : row[k];
    below = row[k];
    below_at = at;
  }
  return below;
}

/* Nothing measured of a side: the next one stands in, as where a probe's first samples only tell which others would take
 * too long. */
static double product_rate(const hr_device_rates *rates, hri_rate_class c) {
  static const uint32_t others[HR_PRODUCT_SIDES][HR_PRODUCT_SIDES] = {{0, 1, 2}, {1, 2, 0}, {2, 1, 0}};
  double rate = 0;
  for (uint32_t k = 0, own = c.side; k < HR_PRODUCT_SIDES && rate <= 0; k++) {
    c.side = others[own][k];
    rate = interpolate(rates, &c);
  }
  return rate;
}

/* What was not measured packed, or not in bf16, goes by plain operands and fp32; packing by copying. Of a card fp32 says
 * nothing of bf16: its tensor cores are of the narrow type alone. */
static double measured_rate(const hr_device_rates *rates, hri_rate_class c) {
  double rate = 0;
  for (;;) {
    rate = c.table == HRI_RATE_PRODUCT ? product_rate(rates, c) : interpolate(rates, &c);
    if (rate > 0) return rate;
    if (c.table == HRI_RATE_PRODUCT && c.kind >= HR_PRODUCT_KINDS / 2) c.kind -= HR_PRODUCT_KINDS / 2;
    else if (c.type && !rates->card[0]) c.type = 0;
    else if (c.table == HRI_RATE_STREAM && c.kind == HR_STREAM_PACK) c.kind = HR_STREAM_COPY;
    else return 0;
  }
}

/* Where a node stands in rates of a probe. A card computes in fp16 as it does in bf16; fp32 was measured there as fp32, and
 * says nothing of products in tf32. */
static hri_rate_class rated_class(const hri_job *job, const hri_node *node, const hr_device_rates *rates) {
  hri_rate_class c = hri_rate_class_of(job, node);
  if (!rates->card[0] || c.table == HRI_RATE_NONE) return c;
  if (type_of(job, node) == HRI_F16) c.type = rated_type(HRI_BF16, c.table);
  if (job->tf32 && c.table == HRI_RATE_PRODUCT && c.type == 0) c.table = HRI_RATE_NONE;
  return c;
}

/* A copy between the host and a card: its bytes go over the link once. < 0: it is none, or none was measured. */
static double link_seconds(const hri_job *job, const hri_node *node, const hr_device_rates *rates) {
  double rate = node->lane == HRI_COPY_OUT  ? rates->link_bytes_per_second[HR_LINK_TO_HOST]
                : node->lane == HRI_COPY_IN ? rates->link_bytes_per_second[HR_LINK_FROM_HOST]
                                            : 0;
  return rate > 0 && node->op == HRI_OP_COPY ? hri_node_bytes(job, node) / 2 / rate + rates->node_seconds : -1;
}

/* Seconds by measured rates, < 0 where the probe says nothing. */
static double measured_seconds(const hri_job *job, const hri_node *node, const hr_device_rates *rates) {
  hri_rate_class c = rated_class(job, node, rates);
  double rate = c.table == HRI_RATE_NONE ? 0 : measured_rate(rates, c), seconds, memory;
  if (rate <= 0) return link_seconds(job, node, rates);
  seconds = c.work / rate;
  memory = rates->tables[0].stream_bytes[HR_STREAM_COPY][HR_STREAM_SIZES - 1];
  /* few rows against a large weight: reading the weight is the limit, whatever the class says */
  if (c.table == HRI_RATE_PRODUCT && memory > 0 && product_rows(job, node) < 32)
    seconds = fmax(seconds, hri_node_bytes(job, node) / memory);
  return seconds + rates->node_seconds;
}

bool hri_cost_measured(const hri_job *job, const hr_device *device) {
  return device->rates.threads > 0 && device->rates.threads == job->team;
}

/* ---- of a node ---- */

bool hri_is_arithmetic(const hri_rate_class *c) {
  return c->table == HRI_RATE_PRODUCT || c->table == HRI_RATE_ATTENTION;
}

/* What is assumed, as many times as it was off for what training saw. */
static double seen_seconds(const hri_job *job, const hri_node *node, const hr_device *device) {
  const hri_rate_class c = hri_rate_class_of(job, node);
  const double assumed = hri_assumed_seconds(job, node, device);
  if (c.table == HRI_RATE_NONE) return assumed;
  return (assumed - device->node_seconds) * hri_seen_ratio(&device->rates, &c) + device->rates.node_seconds;
}

double hri_node_seconds(const hri_job *job, const hri_node *node, const hr_device *device) {
  double seconds;
  if (!hri_cost_measured(job, device)) return hri_assumed_seconds(job, node, device);
  if (device->rates.seen) return seen_seconds(job, node, device);
  seconds = measured_seconds(job, node, &device->rates);
  return seconds >= 0 ? seconds : hri_assumed_seconds(job, node, device);
}

/* The best rate of a table's kind; 0 where there is none. */
static double best_rate(const hr_device_rates *rates, hri_rate_class c) {
  const uint32_t kinds = c.table == HRI_RATE_PRODUCT ? 2 : 1,
                 sides = c.table == HRI_RATE_PRODUCT ? HR_PRODUCT_SIDES : 1;
  const uint32_t kind = c.table == HRI_RATE_PRODUCT ? c.kind % (HR_PRODUCT_KINDS / 2) : c.kind;
  double most = 0;
  for (c.type = 0; c.type < HR_RATE_TYPES; c.type++)
    for (uint32_t packed = 0; packed < kinds; packed++)
      for (c.side = 0; c.side < sides; c.side++) {
        c.kind = kind + packed * (HR_PRODUCT_KINDS / 2);
        for (uint32_t k = 0; k < hri_rate_columns(c.table); k++) most = fmax(most, hri_rate_row(rates, &c)[k]);
      }
  return most;
}

static double floor_seconds(const hri_job *job, const hri_node *node, const hr_device *device) {
  const double seconds = hri_node_seconds(job, node, device);
  hri_rate_class c;
  double rate;
  if (!hri_cost_measured(job, device)) return seconds;
  c = hri_rate_class_of(job, node);
  if (device->rates.seen)
    return fmin(seconds,
                (hri_assumed_seconds(job, node, device) - device->node_seconds) * hri_seen_least(&device->rates, &c));
  rate = c.table == HRI_RATE_NONE ? 0 : best_rate(&device->rates, c);
  return rate > 0 ? fmin(seconds, c.work / rate) : seconds;
}

double hri_job_floor_seconds(const hri_job *job, const hr_job *spec) {
  double sum = 0;
  for (uint8_t kind = 0; kind < HRI_PROGRAM_COUNT; kind++) {
    const uint32_t times = hri_job_runs(spec, kind);
    double lane = 0; /* lanes beside it may hide behind it */
    for (size_t at = 0; times && at < job->programs[kind].order.count; at++) {
      const hri_node *node = &job->nodes.items[job->programs[kind].order.items[at]];
      if (node->lane == HRI_COMPUTE) lane += floor_seconds(job, node, &spec->device);
    }
    sum += times * lane;
  }
  return sum;
}

/* ---- what packing and a loss in pieces can save ---- */

bool hri_node_of_loss(const hri_node *node) {
  return node->phase == HRI_PHASE_LOSS || (node->phase == HRI_PHASE_EVALUATE && node->pass == HRI_PASS_HEAD);
}

/* `rows` of a product's rows by themselves, packed or not. */
static double piece_seconds(const hri_job *job, const hri_node *node, const hr_device *device, uint64_t rows,
                            bool packed) {
  const double share = (double)rows / (double)product_rows(job, node);
  hri_rate_class c = rated_class(job, node, &device->rates);
  double rate = 0;
  if (c.table == HRI_RATE_PRODUCT) {
    c.kind = c.kind % (HR_PRODUCT_KINDS / 2) + (packed ? HR_PRODUCT_KINDS / 2 : 0);
    c.side = product_side(job, node, rows);
    c.work *= share;
    c.size += log2(share);
    rate = measured_rate(&device->rates, c);
  }
  if (rate > 0) return c.work / rate + device->rates.node_seconds;
  return share * hri_assumed_seconds(job, node, device);
}

/* Where training saw rates: pieces are assumed to take no less than the whole together, each as many times that as its
 * class. */
static double least_seen_product(const hri_job *job, const hri_node *node, const hr_device *device,
                                 const hri_freedom *free, uint64_t piece) {
  const uint64_t all = product_rows(job, node), rows[] = {piece, all % piece};
  const hri_rate_class whole = hri_rate_class_of(job, node);
  double least = HUGE_VAL;
  for (uint32_t packed = 0; packed <= (free->packing ? 1 : 0); packed++)
    for (int k = 0; k < 2; k++) {
      hri_rate_class c = whole;
      if (rows[k] == 0) continue;
      c.kind = c.kind % (HR_PRODUCT_KINDS / 2) + (packed ? HR_PRODUCT_KINDS / 2 : 0);
      c.side = product_side(job, node, rows[k]);
      c.size += log2((double)rows[k] / (double)all);
      least = fmin(least, hri_seen_ratio(&device->rates, &c));
    }
  return (hri_assumed_seconds(job, node, device) - device->node_seconds) * least + device->rates.node_seconds;
}

static double least_of_product(const hri_job *job, const hri_node *node, const hr_device *device,
                               const hri_freedom *free, uint64_t piece) {
  const uint64_t rows = product_rows(job, node), whole = rows / piece, rest = rows % piece;
  double least = HUGE_VAL;
  if (device->rates.seen) return least_seen_product(job, node, device, free, piece);
  for (uint32_t packed = 0; packed <= (free->packing ? 1 : 0); packed++) {
    double seconds = (double)whole * piece_seconds(job, node, device, piece, packed);
    if (rest) seconds += piece_seconds(job, node, device, rest, packed);
    least = fmin(least, seconds);
  }
  return least;
}

/* At the best rate of all sizes between a piece's and the whole's. */
static double least_of_stream(const hri_job *job, const hri_node *node, const hr_device *device, double share) {
  hri_rate_class c = rated_class(job, node, &device->rates);
  const double assumed = hri_assumed_seconds(job, node, device);
  const double sizes[] = {c.size + log2(share), c.size};
  double best = 0, least = HUGE_VAL;
  if (device->rates.seen) return (assumed - device->node_seconds) * hri_seen_least(&device->rates, &c);
  for (uint32_t k = 0; k < 2 + hri_rate_columns(c.table); k++) {
    double rate;
    c.size = k < 2 ? sizes[k] : hri_rate_column(c.table, k - 2);
    if (c.size < sizes[0] || c.size > sizes[1]) continue;
    rate = measured_rate(&device->rates, c);
    if (rate <= 0) least = assumed;
    best = fmax(best, rate);
  }
  return best > 0 ? fmin(least, c.work / best + device->rates.node_seconds) : least;
}

/* A node's seconds at least, whatever is free. */
static double least_seconds(const hri_job *job, const hri_node *node, const hr_device *device,
                            const hri_freedom *free) {
  const double seconds = hri_node_seconds(job, node, device);
  const bool pieces = hri_node_of_loss(node) && free->piece && free->piece < free->rows;
  const hri_rule *rule = hri_rule_get(node->op);
  if (!hri_cost_measured(job, device) || (!pieces && !free->packing)) return seconds;
  if (rule->product) {
    const uint64_t rows = product_rows(job, node);
    return fmin(seconds, least_of_product(job, node, device, free, pieces && free->piece < rows ? free->piece : rows));
  }
  if (!pieces || rated_class(job, node, &device->rates).table != HRI_RATE_STREAM) return seconds;
  return fmin(seconds, least_of_stream(job, node, device,
                                       (double)(free->rows % free->piece ? free->rows % free->piece : free->piece) /
                                           (double)free->rows));
}

double hri_node_spare_seconds(const hri_job *job, const hri_node *node, const hr_device *device,
                              const hri_freedom *free) {
  if (node->lane != HRI_COMPUTE || !hri_cost_measured(job, device)) return 0;
  return hri_node_seconds(job, node, device) - least_seconds(job, node, device, free);
}

double hri_job_spare_seconds(const hri_job *job, const hr_job *spec, const hri_freedom *free) {
  double sum = 0;
  for (uint8_t kind = 0; kind < HRI_PROGRAM_COUNT && hri_cost_measured(job, &spec->device); kind++) {
    const uint32_t times = hri_job_runs(spec, kind);
    for (size_t at = 0; times && at < job->programs[kind].order.count; at++)
      sum += times *
             hri_node_spare_seconds(job, &job->nodes.items[job->programs[kind].order.items[at]], &spec->device, free);
  }
  return sum;
}

/* ---- programs ---- */

hr_status hri_program_timing(const hri_job *job, uint8_t kind, const hr_device *device, double times, double from,
                             hri_timing *timing, hr_error *error) {
  const hri_program *p = &job->programs[kind];
  double *seconds = hri_alloc((p->order.count + 1) * sizeof *seconds);
  hr_status status;
  if (!seconds) return hri_fail_memory(error, p->order.count * sizeof *seconds, "the predicted time");
  for (size_t at = 0; at < p->order.count; at++)
    seconds[at] = times * hri_node_seconds(job, &job->nodes.items[p->order.items[at]], device);
  status = hri_timing_make(job, kind, seconds, from, timing, error);
  hri_free(seconds);
  return status;
}

static bool is_seen(const hri_job *job, const hri_node *node, const hr_device_rates *rates) {
  const hri_rate_class c = hri_rate_class_of(job, node);
  return c.table != HRI_RATE_NONE && hri_seen_itself(rates, &c);
}

static hr_status add_program(const hri_job *job, const hr_job *spec, uint8_t kind, double times, hri_cost *cost,
                             hr_error *error) {
  const hri_program *p = &job->programs[kind];
  const bool seen = spec->device.rates.seen && hri_cost_measured(job, &spec->device);
  hri_timing timing;
  HRI_TRY(hri_program_timing(job, kind, &spec->device, times, 0, &timing, error));
  for (size_t at = 0; at < p->order.count; at++) {
    const hri_node *node = &job->nodes.items[p->order.items[at]];
    cost->phase_seconds[node->phase] += timing.seconds[at];
    cost->flops += times * hri_node_flops(job, node);
    if (seen && is_seen(job, node, &spec->device.rates)) cost->seen_seconds += timing.seconds[at];
  }
  for (int lane = 0; lane < HRI_LANE_COUNT; lane++) cost->lane_seconds[lane] += timing.lane_seconds[lane];
  cost->step_seconds += timing.until;
  hri_timing_deinit(&timing);
  return HR_OK;
}

hr_status hri_job_cost(const hri_job *job, const hr_job *spec, hri_cost *cost, hr_error *error) {
  memset(cost, 0, sizeof *cost);
  for (uint8_t kind = 0; kind < HRI_PROGRAM_COUNT; kind++) {
    const uint32_t times = hri_job_runs(spec, kind);
    if (times) HRI_TRY(add_program(job, spec, kind, times, cost, error));
  }
  return HR_OK;
}
