#include "api/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "api/variants.h"
#include "base/text.h"

enum { GRANULE = 4096 };
/* Resident library memory: per prepared matrix product (generated code, memory objects) 67 KiB measured with oneDNN 2.6.3
 * and 96 KiB with 3.2, which also takes 12 MiB more from the start. */
static const uint64_t PRODUCT_BYTES = 72u << 10, PRODUCT_BYTES_V3 = 104u << 10, LIBRARY_BYTES_V3 = 12u << 20;
/* A tokenizer that stays for samples: 76 bytes for each of 49,152 tokens measured, longer ones take more. */
static const uint64_t TOKENIZER_BYTES = 128;

const char *hr_role_name(uint32_t role) { return role < HRI_ROLE_COUNT ? hri_role_name((hri_role)role) : "?"; }
const char *hr_phase_name(uint32_t phase) { return phase < HRI_PHASE_COUNT ? hri_phase_name((hri_phase)phase) : "?"; }
const char *hr_lane_name(uint32_t lane) { return lane < HRI_LANE_COUNT ? hri_lane_name((hri_lane)lane) : "?"; }
const char *hr_tier_name(uint32_t tier) { return tier < HRI_TIER_COUNT ? hri_tier_name((hri_tier)tier) : "?"; }

_Static_assert((int)HRI_ROLE_COUNT == (int)HR_ROLE_COUNT && (int)HRI_PHASE_COUNT == (int)HR_PHASE_COUNT && (int)HRI_LANE_COUNT == (int)HR_LANE_COUNT &&
                   (int)HRI_TIER_COUNT == (int)HR_TIER_COUNT,
               "public and internal enumerations agree");

/* ---- table devices: what a run there would reserve as scratch, by formula ---- */

static hr_status table_workspace(void *self, const hri_job *job, const hri_node *node, uint64_t *bytes, hr_error *error) {
  const hr_device *device = self;
  const int64_t *i = node->attr.i;
  (void)job;
  (void)error;
  *bytes = 0;
  switch (node->op) {
  case HRI_OP_LINEAR: case HRI_OP_LINEAR_DX: case HRI_OP_LINEAR_DW: *bytes = device->library_workspace_bytes; break;
  /* flash attention's backward: an fp32 accumulator of dq and the row sums of dy*y */
  case HRI_OP_ATTENTION_BACKWARD: *bytes = (uint64_t)(i[0] * i[1] * i[2]) * (uint64_t)(i[4] + 1) * 4; break;
  default: break;
  }
  return HR_OK;
}

static hri_backend table_backend(hr_device *device) {
  hri_backend b = {.name = device->name, .team = 1, .instruction_set = "device", .libraries = "recorded formulas", .self = device, .workspace = table_workspace};
  return b;
}

/* ---- making ---- */

static uint64_t job_bytes(const hri_job *job) {
  uint64_t bytes = job->storages.capacity * sizeof(hri_storage) + job->tensors.capacity * sizeof(hri_tensor) + job->nodes.capacity * sizeof(hri_node) +
                   job->operands.capacity * sizeof(hri_operand) + job->waits.capacity * sizeof(hri_wait) + job->params.capacity * sizeof(hri_param) +
                   job->segments.capacity * sizeof(hri_segment) + job->ranges.capacity * (sizeof(hri_range) + sizeof(uint32_t)) +
                   job->parts.capacity * sizeof(hri_part) + job->runs.capacity * sizeof(hri_run) + job->members.capacity * sizeof(hri_id) + job->names.capacity;
  for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++) bytes += job->programs[kind].order.capacity * sizeof(hri_id);
  return bytes + job->storages.count * 16 + job->nodes.count * 8; /* placement, prepared nodes */
}

uint64_t hri_fixed_bytes(const hr_job *spec, const hri_job *job) {
  uint64_t bytes = spec->device.fixed_bytes;
  if (spec->device.is_cpu) {
    bool v3 = strstr(job->libraries, "oneDNN 3.") != NULL, measured = spec->device.fixed_measured;
    uint64_t product = measured ? spec->device.rates.product_bytes : v3 ? PRODUCT_BYTES_V3 : PRODUCT_BYTES;
    uint32_t lengths[HRI_MAX_VARIANTS];
    bytes += (1 + hri_variant_lengths(spec, lengths)) * (hri_cpu_distinct_products(job) * product + job_bytes(job)) + (v3 && !measured ? LIBRARY_BYTES_V3 : 0);
    if (spec->with_generation && spec->model.directory[0]) bytes += spec->model.vocabulary_size * TOKENIZER_BYTES;
  }
  return hri_round_up(bytes, GRANULE);
}

static void describe_tier(hr_plan *plan, int tier) {
  hr_tier_plan *t = &plan->info.tiers[tier];
  const hri_breakdown *b = &plan->breakdown[tier];
  const hri_node *node;
  t->peak_bytes = plan->placement.peak_bytes[tier];
  t->reserved_bytes = hri_round_up(t->peak_bytes, GRANULE);
  t->lower_bound_bytes = plan->placement.lower_bound_bytes[tier];
  t->peak_layer = -1;
  memcpy(t->at_peak_by_role, b->at_peak_by_role, sizeof t->at_peak_by_role);
  memcpy(t->max_by_role, b->max_by_role, sizeof t->max_by_role);
  memcpy(t->peak_by_phase, b->peak_by_phase, sizeof t->peak_by_phase);
  t->live_count = b->live_count;
  if (b->peak_node == HRI_NONE) return;
  node = &plan->job.nodes.items[b->peak_node];
  t->peak_phase = node->phase;
  t->peak_layer = node->layer;
  if (node->layer >= 0) (void)snprintf(t->peak_node, sizeof t->peak_node, "%s layers.%d", hri_op_name(node->op), node->layer);
  else (void)snprintf(t->peak_node, sizeof t->peak_node, "%s %s", hri_op_name(node->op), node->unit == 0 ? "embed" : node->unit == HRI_NONE ? "job" : "head");
  (void)snprintf(t->peak_program, sizeof t->peak_program, "%s", hri_program_name((hri_program_kind)node->program));
}

static void describe(hr_plan *plan) {
  hr_plan_info *info = &plan->info;
  hri_cost cost = hri_job_cost(&plan->job, &plan->spec);
  for (int tier = 0; tier < HR_TIER_COUNT; tier++) describe_tier(plan, tier);
  info->tiers[HR_TIER_DEVICE].fixed_bytes = hri_fixed_bytes(&plan->spec, &plan->job);
  info->tiers[HR_TIER_DEVICE].fixed_measured = plan->spec.device.fixed_measured;
  info->budget_bytes = plan->spec.budget_bytes ? plan->spec.budget_bytes : plan->spec.device.usable_bytes;
  info->fits = info->tiers[HR_TIER_DEVICE].reserved_bytes + info->tiers[HR_TIER_DEVICE].fixed_bytes <= info->budget_bytes;
  if (plan->spec.host_budget_bytes && info->tiers[HR_TIER_HOST].reserved_bytes > plan->spec.host_budget_bytes) info->fits = false;
  info->step_seconds = cost.step_seconds;
  info->time_measured = hri_cost_measured(&plan->job, &plan->spec.device);
  memcpy(info->lane_seconds, cost.lane_seconds, sizeof info->lane_seconds);
  memcpy(info->phase_seconds, cost.phase_seconds, sizeof info->phase_seconds);
  info->flops_per_step = cost.flops;
  info->tokens_per_step = plan->spec.purpose == HR_PURPOSE_GENERATE ? 1 : (uint64_t)plan->spec.sequence_length * plan->spec.micro_batch * plan->spec.accumulate;
  for (size_t p = 0; p < plan->job.params.count; p++) {
    uint64_t elements = hri_tensor_elements(&plan->job.tensors.items[plan->job.params.items[p].weight]);
    info->parameter_count += elements;
  }
  for (size_t r = 0; r < plan->job.ranges.count; r++)
    if (plan->job.ranges.items[r].gradient != HRI_NONE) info->trainable_parameter_count += hri_range_logical(&plan->job, &plan->job.ranges.items[r]);
  for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++) {
    info->program_count += plan->job.programs[kind].present;
    info->node_count += (uint32_t)plan->job.programs[kind].order.count;
  }
  for (size_t s = 0; s < plan->job.storages.count; s++) info->storage_count += plan->placement.lives[s].begin <= plan->placement.lives[s].end;
  info->plan_bytes = job_bytes(&plan->job);
}

hr_status hri_plan_create_with(const hr_job *spec, const hri_compile_options *options, hri_build_fn build, void *context, hr_plan **out, hr_error *error) {
  hri_forward forwards[HRI_PROGRAM_COUNT];
  hr_plan *plan = hri_alloc_zero(1, sizeof *plan);
  struct timespec begin, end;
  hri_backend backend;
  hr_status status = HR_OK;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  if (!plan) return hri_fail_memory(error, sizeof *plan, "the plan");
  plan->spec = *spec;
  hri_job_init(&plan->job);
  if (plan->spec.device.is_cpu) {
    if (plan->spec.device.rates.threads != plan->spec.threads) (void)hr_device_load(&plan->spec.device, plan->spec.threads);
    HRI_TRY_OUT(hri_cpu_create(plan->spec.threads, &plan->cpu, error));
    backend = hri_cpu_backend(plan->cpu);
  } else {
    backend = table_backend(&plan->spec.device);
  }
  HRI_TRY_OUT(build(context, &plan->job, &plan->spec, forwards, error));
  HRI_TRY_OUT(hri_compile_built(&plan->spec, &backend, options, forwards, &plan->job, error));
  HRI_TRY_OUT(hri_place_job(&plan->job, plan->spec.check ? HRI_STORAGE_ALIGN : 0, &plan->placement, error));
  for (uint8_t tier = 0; tier < HR_TIER_COUNT; tier++) HRI_TRY_OUT(hri_breakdown_make(&plan->job, &plan->placement, tier, &plan->breakdown[tier], error));
  describe(plan);
  clock_gettime(CLOCK_MONOTONIC, &end);
  plan->info.plan_seconds = (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
  *out = plan;
  return HR_OK;
out:
  hr_plan_destroy(plan);
  return status;
}

static hr_status build_model(void *context, hri_job *job, const hr_job *spec, hri_forward *forwards, hr_error *error) {
  (void)context;
  return hri_build(job, spec, forwards, error);
}

hr_status hri_plan_create(const hr_job *spec, const hri_compile_options *options, hr_plan **plan, hr_error *error) {
  return hri_plan_create_with(spec, options, build_model, NULL, plan, error);
}

hr_status hr_plan_create(const hr_job *job, hr_plan **plan, hr_error *error) { return hri_plan_create(job, NULL, plan, error); }

void hr_plan_destroy(hr_plan *plan) {
  if (!plan) return;
  for (int tier = 0; tier < HR_TIER_COUNT; tier++) hri_breakdown_deinit(&plan->breakdown[tier]);
  hri_placement_deinit(&plan->placement);
  hri_job_deinit(&plan->job);
  hri_cpu_destroy(plan->cpu);
  hri_free(plan);
}

const hr_plan_info *hr_plan_get(const hr_plan *plan) { return &plan->info; }
const hr_job *hr_plan_job(const hr_plan *plan) { return &plan->spec; }

/* ---- reading ---- */

/* A tensor that shows the whole of a storage best: the one with the most bytes. For segments, the storage itself. */
static const hri_tensor *tensor_of(const hri_job *job, hri_id storage) {
  const hri_tensor *best = NULL;
  for (size_t t = 0; t < job->tensors.count; t++) {
    const hri_tensor *x = &job->tensors.items[t];
    if (x->storage == storage && (!best || hri_tensor_bytes(x) > hri_tensor_bytes(best))) best = x;
  }
  return best;
}

bool hr_plan_live(const hr_plan *plan, uint32_t tier, uint32_t index, hr_live *live) {
  const hri_storage *s;
  const hri_tensor *t;
  hri_id id;
  if (tier >= HR_TIER_COUNT || index >= plan->breakdown[tier].live_count) return false;
  id = plan->breakdown[tier].live[index];
  s = &plan->job.storages.items[id];
  t = tensor_of(&plan->job, id);
  memset(live, 0, sizeof *live);
  live->name = hri_name_get(&plan->job, s->key);
  live->role = s->role;
  live->bytes = s->bytes;
  live->layer = s->layer;
  live->dtype = t ? hri_dtype_name((hri_dtype)t->dtype) : "u8";
  if (t && hri_tensor_bytes(t) == s->bytes) {
    live->rank = t->rank;
    for (uint32_t d = 0; d < t->rank; d++) live->dims[d] = t->stored[d];
  } else {
    live->rank = 1;
    live->dims[0] = s->bytes / (t ? hri_dtype_bytes((hri_dtype)t->dtype) : 1);
  }
  return true;
}

/* The storage of a segment holds what lies in it: a weight may lie with another segment than its parts' states. */
static bool lies_in(const hri_job *job, hri_id storage, const hri_range *range) {
  if (job->tensors.items[range->weight].storage == storage || (range->gradient != HRI_NONE && job->tensors.items[range->gradient].storage == storage) ||
      (range->master != HRI_NONE && job->tensors.items[range->master].storage == storage))
    return true;
  for (uint32_t t = 0; t < HRI_STATE_TENSORS; t++)
    if (range->state[t] != HRI_NONE && job->tensors.items[range->state[t]].storage == storage) return true;
  return false;
}

const char *hr_plan_live_holds(const hr_plan *plan, uint32_t tier, uint32_t index, uint32_t k) {
  const hri_job *job = &plan->job;
  if (tier >= HR_TIER_COUNT || index >= plan->breakdown[tier].live_count) return NULL;
  for (size_t r = 0; r < job->ranges.count; r++) {
    const hri_range *range = &job->ranges.items[r];
    const hri_param *param = &job->params.items[range->param];
    uint32_t names = param->range_count == 1 ? 1 : range->part_count;
    if (!lies_in(job, plan->breakdown[tier].live[index], range)) continue;
    if (k < names) return hri_name_get(job, param->range_count == 1 ? param->key : job->parts.items[range->part_begin + k].key);
    k -= names;
  }
  return NULL;
}

bool hr_plan_sample(const hr_plan *plan, uint32_t tier, uint32_t index, hr_sample *sample) {
  /* index -> (program, position) */
  const hri_job *job = &plan->job;
  for (uint8_t kind = 0; kind < HRI_PROGRAM_COUNT; kind++) {
    const hri_program *p = &job->programs[kind];
    const hri_node *node;
    uint32_t spine = 0, tick;
    if (index >= p->order.count) {
      index -= (uint32_t)p->order.count;
      continue;
    }
    node = &job->nodes.items[p->order.items[index]];
    for (uint32_t at = 0; at < index; at++) spine += job->nodes.items[p->order.items[at]].lane == HRI_COMPUTE;
    tick = plan->placement.spans[kind].begin + 2 * spine;
    memset(sample, 0, sizeof *sample);
    sample->program = hri_program_name((hri_program_kind)kind);
    sample->op = hri_op_name(node->op);
    sample->phase = node->phase;
    sample->layer = node->layer;
    for (size_t s = 0; s < job->storages.count; s++) {
      const hri_storage *st = &job->storages.items[s];
      if (st->tier != tier || plan->placement.lives[s].begin > tick || plan->placement.lives[s].end < tick || plan->placement.lives[s].begin > plan->placement.lives[s].end) continue;
      sample->by_role[st->role] += hri_round_up(st->bytes, HRI_STORAGE_ALIGN);
      sample->live_bytes += hri_round_up(st->bytes, HRI_STORAGE_ALIGN);
    }
    return true;
  }
  return false;
}

hr_status hr_plan_dump(const hr_plan *plan, bool json, char **text, hr_error *error) {
  hri_text out = {0};
  hr_status status = hri_job_print(&plan->job, json, plan->placement.offsets, &out, error);
  if (status == HR_OK && out.failed) status = hri_fail_memory(error, out.length, "the dump");
  if (status != HR_OK) {
    hri_text_deinit(&out);
    return status;
  }
  *text = out.chars;
  return HR_OK;
}

hr_status hr_plan_verdict(const hr_plan *plan, hr_error *error) {
  const hr_plan_info *info = &plan->info;
  const hr_tier_plan *t = &info->tiers[HR_TIER_DEVICE];
  uint64_t need = t->reserved_bytes + t->fixed_bytes;
  char a[32], b[32], c[32];
  hri_text top = {0};
  hr_status status;
  if (info->fits) return HR_OK;
  for (uint32_t k = 0; k < 4 && k < t->live_count; k++) {
    hr_live live;
    char size[32];
    if (hr_plan_live(plan, HR_TIER_DEVICE, k, &live)) hri_text_add(&top, "%s%s %s", k ? ", " : "", live.name, hri_size_text(live.bytes, size));
  }
  status = hri_fail(error, HR_ERROR_BUDGET, "the job needs %s (%llu bytes) and the budget is %s; the peak is in phase %s at %s; largest there: %s",
                    hri_size_text(need, a), (unsigned long long)need, hri_size_text(info->budget_bytes, b), hri_phase_name((hri_phase)t->peak_phase), t->peak_node, hri_text_get(&top));
  hri_hint(error, status, "`headroom plan` with the same options lists what would fit; it is over by %s", hri_size_text(need - info->budget_bytes, c));
  if (error) {
    error->requested_bytes = need;
    error->available_bytes = info->budget_bytes;
  }
  hri_text_deinit(&top);
  return status;
}
