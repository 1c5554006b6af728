/* What a node takes by published or assumed rates (cost.h).
 *
 * A GPU: the roofline. The larger of arithmetic over reachable rate and bytes over reachable bandwidth.
 *
 * A CPU: our own kernels, so more is known of them. Measured on a Zen 5 by the nodes of 36 training jobs (gpt2, smollm2,
 * qwen2.5 and byte-level models, 64 to 4,096 tokens, adapters of rank 8 and 16): with one rate for all sizes the single
 * products were 8 to 10 % off (root mean square), with this 4 %.
 *
 * - A product's operands are packed. That goes by words, not bytes, and costs a word as much as PACK_FLOPS of fp32; where
 *   rows are few it is most of the time (64 tokens: a fifth). The sums come out of registers for STORE_FLOPS each. Sums stand
 *   in tiles of TILE columns, and an adapter of rank 8 fills a quarter of one.
 * - A product of few rows reads its weight as it is: half of packing it. So pieces never take less than the whole, which
 *   the bounds of the search (hri_job_floor_seconds) rest on.
 * - Attention computes whole tiles, of which the mask leaves a part at the diagonal: the shorter the sequence, the larger
 *   the part. EDGE tokens more a row say how much.
 * - What passes over memory is bound by it or by what it computes for each element, by family.
 *
 * All of it is in flops of the core's fp32 rate, so that a slower core is slower at packing, too. */
#include <math.h>

#include "plan/cost.h"
#include "program/rates.h"

/* Shares of the GEMM rate that attention reaches: of a GPU, and of a CPU forward and backward. Assumptions, where no
 * probe of the machine tells. */
static const double ATTENTION_SHARE = 0.5, CPU_ATTENTION_SHARES[HR_ATTENTION_KINDS] = {0.75, 0.85};
static const double TEAM_SHARE = 0.95; /* of several threads, which wait for each other */
static const double EDGE = 100;        /* tokens */
static const double PACK_FLOPS[HR_RATE_TYPES] = {34, 20}, STORE_FLOPS = 8, THIN_STORE_FLOPS = 40; /* a word */
enum { TILE = 32, FEW_ROWS = 16 };
/* A core moves no more bytes than this many flops take. */
static const double FLOPS_A_BYTE = 4.3;
/* A family's arithmetic, in flops for 4 bytes in fp32 and for 2 in bf16; 0: next to none. */
static const double STREAM_FLOPS[HR_STREAM_COUNT] =
    {[HR_STREAM_NORM] = 14,          [HR_STREAM_NORM_BACKWARD] = 17,
     [HR_STREAM_ACTIVATION] = 23,    [HR_STREAM_ACTIVATION_BACKWARD] = 19,
     [HR_STREAM_GLU] = 16,           [HR_STREAM_GLU_BACKWARD] = 15,
     [HR_STREAM_ROPE] = 9,           [HR_STREAM_BIAS_GRADIENT] = 12,
     [HR_STREAM_CROSS_ENTROPY] = 40, [HR_STREAM_SQUARE_NORM] = 25};

/* ---- a GPU ---- */

static double roofline(const hri_job *job, const hri_node *node, const hr_device *device) {
  const hri_rule *rule = hri_rule_get(node->op);
  double rate = hri_peak_of(job, node, device) * device->gemm_efficiency,
         bandwidth = device->memory_bytes_per_second * device->memory_efficiency;
  double flops = hri_node_flops(job, node), bytes = hri_node_bytes(job, node), seconds;
  if (node->lane != HRI_COMPUTE && device->link_bytes_per_second > 0) bandwidth = device->link_bytes_per_second;
  if (rule->attention) rate *= ATTENTION_SHARE;
  rate *= hri_team_share(device, job->team);
  if (!rule->product && !rule->attention) flops = 0; /* element-wise work is bound by memory */
  seconds = rate > 0 ? flops / rate : 0;
  return bandwidth > 0 && bytes / bandwidth > seconds ? bytes / bandwidth : seconds;
}

/* ---- a CPU ---- */

/* c[m, n] = a[m, depth] b[depth, n] */
typedef struct product_shape {
  double m, n, depth;
} product_shape;

static product_shape shape_of(const hri_job *job, const hri_node *node) {
  const hri_operand *o = hri_operands(job, node);
  const hri_tensor *a = &job->tensors.items[o[0].tensor], *b = &job->tensors.items[o[1].tensor];
  const double rows = (double)hri_stored_rows(a), wide = (double)a->stored[a->rank - 1],
               b_rows = (double)hri_stored_rows(b), b_wide = (double)b->stored[b->rank - 1];
  switch (hri_rule_get(node->op)->product) {
  case HRI_PRODUCT_FORWARD: return (product_shape){rows, b_rows, wide};
  case HRI_PRODUCT_DX: return (product_shape){rows, b_wide, wide};
  default: return (product_shape){wide, b_wide, rows};
  }
}

/* `core`, `rate`: flops per second of one core in fp32, and of the team in the product's type. Packing is not assumed to
 * gain by more threads: those of a team wait for each other there. */
static double product_seconds(const hri_job *job, const hri_node *node, uint32_t type, double core, double rate) {
  const product_shape p = shape_of(job, node);
  const double n = ceil(p.n / TILE) * TILE, a = p.m * p.depth, b = p.n * p.depth, c = p.m * p.n;
  const bool dw = hri_rule_get(node->op)->product == HRI_PRODUCT_DW;
  if (fmin(dw ? p.m : p.depth, p.n) <= TILE)
    return (2 * a * n + PACK_FLOPS[0] * (a + b) + (p.depth <= TILE ? THIN_STORE_FLOPS : STORE_FLOPS) * c) / core;
  return 2 * a * n / rate + (PACK_FLOPS[type] * (a + (!dw && p.m <= FEW_ROWS ? b / 2 : b)) + STORE_FLOPS * c) / core;
}

static double cpu_seconds(const hri_job *job, const hri_node *node, const hr_device *device) {
  const hri_rate_class c = hri_rate_class_of(job, node);
  const hr_assumed_figures f = hri_assumed_figures(device, job->team);
  const double all = f.flops_fp32,
               core = all / fmin(job->team, device->rated_threads ? device->rated_threads : job->team),
               rate = hri_peak_of(job, node, device) * hri_team_share(device, job->team) * device->gemm_efficiency *
                      (job->team > 1 ? TEAM_SHARE : 1),
               bandwidth = fmin(f.memory_bytes_per_second, all / FLOPS_A_BYTE);
  double bytes = hri_node_bytes(job, node) / bandwidth;
  switch (c.table) {
  case HRI_RATE_PRODUCT: return fmax(product_seconds(job, node, c.type, core, rate), bytes);
  case HRI_RATE_ATTENTION:
    return fmax(c.work / (rate * CPU_ATTENTION_SHARES[c.kind]) * (1 + EDGE / exp2(c.size)), bytes);
  case HRI_RATE_STREAM: return fmax(c.work * STREAM_FLOPS[c.kind] / (c.type ? 2 : 4) / all, c.work / bandwidth);
  default: return bytes;
  }
}

double hri_assumed_seconds(const hri_job *job, const hri_node *node, const hr_device *device) {
  const bool known = device->has_team && device->flops_fp32 > 0 && device->memory_bytes_per_second > 0 &&
                     device->gemm_efficiency > 0 && device->memory_efficiency > 0;
  return (known ? cpu_seconds(job, node, device) : roofline(job, node, device)) + device->node_seconds;
}
