/* The plan object: a draft is compiled, bounded and timed; placing checks it, lays it out and describes it (plan.h). */
#include "plan/plan.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "job/job.h"
#include "plan/variants.h"

/* A tokenizer that stays for samples: 76 bytes for each of 49,152 tokens measured, longer ones take more. */
static const uint64_t TOKENIZER_BYTES = 128;

const char *hr_phase_name(uint32_t phase) { return phase < HRI_PHASE_COUNT ? hri_phase_name((hri_phase)phase) : "?"; }
const char *hr_lane_name(uint32_t lane) { return lane < HRI_LANE_COUNT ? hri_lane_name((hri_lane)lane) : "?"; }
const char *hr_tier_name(uint32_t tier) { return tier < HRI_TIER_COUNT ? hri_tier_name((hri_tier)tier) : "?"; }

#define SAME(name) ((int)HRI_##name == (int)HR_##name)
_Static_assert(SAME(ROLE_WEIGHT) && SAME(ROLE_MASTER_WEIGHT) && SAME(ROLE_GRADIENT) && SAME(ROLE_OPTIMIZER_STATE) &&
                   SAME(ROLE_ACTIVATION) && SAME(ROLE_LOGITS) && SAME(ROLE_WORKSPACE) && SAME(ROLE_INPUT) &&
                   SAME(ROLE_QUANTIZATION) && SAME(ROLE_COMMUNICATION) && SAME(ROLE_CACHE) && SAME(ROLE_CONTROL) &&
                   SAME(ROLE_COUNT),
               "roles are those of the public header");
_Static_assert(SAME(PHASE_LOAD) && SAME(PHASE_FORWARD) && SAME(PHASE_LOSS) && SAME(PHASE_BACKWARD) &&
                   SAME(PHASE_OPTIMIZER) && SAME(PHASE_EVALUATE) && SAME(PHASE_GENERATE) && SAME(PHASE_SAVE) &&
                   SAME(PHASE_COUNT),
               "phases are those of the public header");
_Static_assert((int)HRI_COMPUTE == (int)HR_LANE_COMPUTE && (int)HRI_COPY_IN == (int)HR_LANE_COPY_IN &&
                   (int)HRI_COPY_OUT == (int)HR_LANE_COPY_OUT &&
                   (int)HRI_COMMUNICATION_LANE == (int)HR_LANE_COMMUNICATION &&
                   (int)HRI_DISK_LANE == (int)HR_LANE_DISK && (int)HRI_HOST_LANE == (int)HR_LANE_HOST &&
                   SAME(LANE_COUNT),
               "lanes are those of the public header");
_Static_assert((int)HRI_DEVICE == (int)HR_TIER_DEVICE && (int)HRI_HOST == (int)HR_TIER_HOST &&
                   (int)HRI_DISK == (int)HR_TIER_DISK && SAME(TIER_COUNT),
               "tiers are those of the public header");

/* ---- making ---- */

static uint64_t job_bytes(const hri_job *job) {
  uint64_t bytes = job->storages.capacity * sizeof(hri_storage) + job->tensors.capacity * sizeof(hri_tensor) +
                   job->nodes.capacity * sizeof(hri_node) + job->operands.capacity * sizeof(hri_operand) +
                   job->waits.capacity * sizeof(hri_wait) + job->params.capacity * sizeof(hri_param) +
                   job->segments.capacity * sizeof(hri_segment) +
                   job->ranges.capacity * (sizeof(hri_param_range) + sizeof(uint32_t)) +
                   job->parts.capacity * sizeof(hri_part) + job->runs.capacity * sizeof(hri_param_run) +
                   job->members.capacity * sizeof(hri_id) + job->names.capacity;
  for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++) bytes += job->programs[kind].order.capacity * sizeof(hri_id);
  return bytes + job->storages.count * 16 + job->nodes.count * 8; /* placement, prepared nodes */
}

/* What no program owns: the backend's, and what this process holds for the job and its shape variants. */
static uint64_t fixed_bytes(const hr_plan *plan) {
  const hr_job *spec = &plan->spec;
  uint32_t lengths[HRI_MAX_VARIANTS], shapes = 1 + hri_variant_lengths(spec, lengths);
  uint64_t process =
      shapes * job_bytes(&plan->job) + (uint64_t)spec->sequence_length * HRI_ROW_NUMBERS * sizeof(int32_t);
  if (spec->with_generation && spec->model.directory[0]) process += spec->model.vocabulary_size * TOKENIZER_BYTES;
  return hri_round_up(plan->backend->fixed_bytes(plan->backend->self, &plan->job, shapes, process),
                      plan->backend->granule);
}

static void describe_tier(hr_plan *plan, int tier) {
  hr_tier_plan *t = &plan->info.tiers[tier];
  const hri_breakdown *b = &plan->breakdown[tier];
  const hri_node *node;
  t->peak_layer = -1;
  memcpy(t->at_peak_by_role, b->at_peak_by_role, sizeof t->at_peak_by_role);
  memcpy(t->max_by_role, b->max_by_role, sizeof t->max_by_role);
  memcpy(t->peak_by_phase, b->peak_by_phase, sizeof t->peak_by_phase);
  t->live_count = b->live_count;
  if (b->peak_node == HRI_NONE) return;
  node = &plan->job.nodes.items[b->peak_node];
  t->peak_phase = node->phase;
  t->peak_layer = node->layer;
  if (node->layer >= 0)
    (void)snprintf(t->peak_node, sizeof t->peak_node, "%s layers.%d", hri_op_name(node->op), node->layer);
  else
    (void)snprintf(t->peak_node, sizeof t->peak_node, "%s %s", hri_op_name(node->op),
                   node->unit == 0          ? "embed"
                   : node->unit == HRI_NONE ? "job"
                                            : "head");
  (void)snprintf(t->peak_program, sizeof t->peak_program, "%s", hri_program_name((hri_program_kind)node->program));
}

static void describe_fit(hr_plan *plan) {
  hr_plan_info *info = &plan->info;
  info->fits = hri_plan_need(plan) <= info->budget_bytes;
  if (plan->spec.host_budget_bytes && hri_plan_host_need(plan) > plan->spec.host_budget_bytes) info->fits = false;
}

/* What is known before anything is placed. Bytes are bounds: what is placed takes as many or more. */
static hr_status describe_draft(hr_plan *plan, hr_error *error) {
  hr_plan_info *info = &plan->info;
  hri_cost cost;
  HRI_TRY(hri_job_cost(&plan->job, &plan->spec, &cost, error));
  for (int tier = 0; tier < HR_TIER_COUNT; tier++) {
    info->tiers[tier].lower_bound_bytes = plan->placement.lower_bound_bytes[tier];
    info->tiers[tier].reserved_bytes = hri_round_up(plan->placement.lower_bound_bytes[tier], plan->backend->granule);
  }
  info->tiers[HR_TIER_DEVICE].fixed_bytes = fixed_bytes(plan);
  if (plan->backend->pinned_bytes)
    info->tiers[HR_TIER_HOST].fixed_bytes = plan->backend->pinned_bytes(plan->backend->self, &plan->job);
  info->tiers[HR_TIER_DEVICE].fixed_measured = plan->spec.device.fixed_measured;
  info->budget_bytes = plan->spec.budget_bytes ? plan->spec.budget_bytes : plan->spec.device.usable_bytes;
  info->step_seconds = cost.step_seconds;
  info->time_measured = hri_cost_measured(&plan->job, &plan->spec.device);
  info->time_seen = info->time_measured && plan->spec.device.rates.seen;
  if (info->time_seen && cost.step_seconds > 0) info->time_seen_share = fmin(cost.seen_seconds / cost.step_seconds, 1);
  info->products = plan->backend->products;
  info->scratch_exact = !plan->backend->estimated;
  memcpy(info->lane_seconds, cost.lane_seconds, sizeof info->lane_seconds);
  memcpy(info->phase_seconds, cost.phase_seconds, sizeof info->phase_seconds);
  info->flops_per_step = cost.flops;
  info->tokens_per_step = hri_job_tokens(&plan->spec);
  for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++) {
    info->program_count += plan->job.programs[kind].present;
    info->node_count += (uint32_t)plan->job.programs[kind].order.count;
  }
  info->plan_bytes = job_bytes(&plan->job);
  describe_fit(plan);
  return HR_OK;
}

static void describe(hr_plan *plan) {
  hr_plan_info *info = &plan->info;
  for (int tier = 0; tier < HR_TIER_COUNT; tier++) describe_tier(plan, tier);
  for (size_t p = 0; p < plan->job.params.count; p++) {
    uint64_t elements = hri_tensor_elements(&plan->job.tensors.items[plan->job.params.items[p].weight]);
    info->parameter_count += elements;
  }
  for (size_t r = 0; r < plan->job.ranges.count; r++)
    if (plan->job.ranges.items[r].gradient != HRI_NONE)
      info->trainable_parameter_count += hri_range_logical(&plan->job, &plan->job.ranges.items[r]);
  for (size_t s = 0; s < plan->job.storages.count; s++)
    info->storage_count += plan->placement.lives[s].begin <= plan->placement.lives[s].end;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Bytes kept free behind every storage. */
static uint64_t guard_of(const hr_job *spec) { return spec->check ? HRI_STORAGE_ALIGN : 0; }

/* A backend with a team, or that runs (and what it decided of products), is made once for a plan and the drafts beside it. */
static hr_status open_backend(hr_plan *plan, const hr_plan *beside, hr_error *error) {
  plan->borrows = beside && (beside->spec.device.has_team || hri_backend_runs(beside->backend)) &&
                  beside->spec.threads == plan->spec.threads &&
                  strcmp(beside->spec.device.name, plan->spec.device.name) == 0 &&
                  strcmp(beside->spec.device.products, plan->spec.device.products) == 0;
  if (plan->borrows) plan->backend = beside->backend;
  else HRI_TRY(hri_backend_open(&plan->spec.device, plan->spec.threads, &plan->backend, error));
  plan->spec.device = plan->backend->device;
  return HR_OK;
}

static hr_status draft_with(const hr_job *spec, const hri_compile_options *options, const hr_plan *beside,
                            hri_build_fn build, void *context, hr_plan **out, hr_error *error) {
  static const hri_compile_options none = {0};
  hri_compile_options unchecked = options ? *options : none;
  hri_forward forwards[HRI_PROGRAM_COUNT];
  const double begin = now();
  hr_plan *plan;
  hr_status status = HR_OK;
  HRI_TRY(hri_job_finished(spec, error));
  plan = hri_alloc_zero(1, sizeof *plan);
  if (!plan) return hri_fail_memory(error, sizeof *plan, "the plan");
  unchecked.no_check = true;
  plan->spec = *spec;
  hri_job_init(&plan->job);
  HRI_TRY_OUT(open_backend(plan, beside, error));
  HRI_TRY_OUT(build(context, &plan->job, &plan->spec, forwards, error));
  HRI_TRY_OUT(hri_compile_built(&plan->spec, plan->backend, &unchecked, forwards, &plan->job, error));
  HRI_TRY_OUT(hri_job_bytes_ok(&plan->job, error));
  HRI_TRY_OUT(hri_placement_bound(&plan->job, guard_of(spec), &plan->placement, error));
  HRI_TRY_OUT(describe_draft(plan, error));
  plan->info.plan_seconds = now() - begin;
  *out = plan;
  return HR_OK;
out:
  hr_plan_destroy(plan);
  return status;
}

hr_status hri_plan_place(hr_plan *plan, hr_error *error) {
  const uint64_t least = hri_plan_need(plan);
  const bool perhaps = plan->info.fits;
  assert(!plan->placed);
  HRI_TRY(hri_placement_make(&plan->job, guard_of(&plan->spec), plan->known, &plan->placement, error));
  for (int tier = 0; tier < HR_TIER_COUNT; tier++) {
    plan->info.tiers[tier].peak_bytes = plan->placement.peak_bytes[tier];
    plan->info.tiers[tier].reserved_bytes = hri_round_up(plan->placement.peak_bytes[tier], plan->backend->granule);
  }
  describe_fit(plan);
  plan->placed = true;
  (void)least, (void)perhaps;
  assert(hri_plan_need(plan) >= least && (perhaps || !plan->info.fits)); /* a bound is one */
  return HR_OK;
}

static hr_status finish(hr_plan *plan, hr_error *error) {
  const double begin = now();
  HRI_TRY(hri_job_check(&plan->job, error));
  HRI_TRY(hri_plan_place(plan, error));
  for (uint8_t tier = 0; tier < HR_TIER_COUNT; tier++)
    HRI_TRY(hri_breakdown_make(&plan->job, &plan->placement, tier, &plan->breakdown[tier], error));
  describe(plan);
  plan->info.plan_seconds += now() - begin;
  return HR_OK;
}

hr_status hri_plan_create_with(const hr_job *spec, const hri_compile_options *options, hri_build_fn build,
                               void *context, hr_plan **out, hr_error *error) {
  hr_plan *plan;
  hr_status status;
  HRI_TRY(draft_with(spec, options, NULL, build, context, &plan, error));
  status = finish(plan, error);
  if (status == HR_OK) *out = plan;
  else hr_plan_destroy(plan);
  return status;
}

static hr_status build_model(void *context, hri_job *job, const hr_job *spec, hri_forward *forwards, hr_error *error) {
  (void)context;
  if (spec->model.hidden_size) return hri_build(job, spec, forwards, error);
  hri_fail(error, HR_ERROR_USAGE, "the job is that of a graph: it has no model, and its programs are the graph's");
  return hri_hint(error, HR_ERROR_USAGE, "plan it with hr_graph_plan; a search of alternatives is for models");
}

hr_status hri_plan_create(const hr_job *spec, const hri_compile_options *options, hr_plan **plan, hr_error *error) {
  return hri_plan_create_with(spec, options, build_model, NULL, plan, error);
}

hr_status hri_plan_draft(const hr_job *spec, const hr_plan *beside, hr_plan **draft, hr_error *error) {
  HRI_TRY(draft_with(spec, NULL, beside, build_model, NULL, draft, error));
  (*draft)->known = beside ? beside->known : &(*draft)->solved;
  return HR_OK;
}

hr_status hr_plan_create(const hr_job *job, hr_plan **plan, hr_error *error) {
  return hri_plan_create(job, NULL, plan, error);
}

hr_status hr_plan_fit(const hr_job *job, hr_fit *fit, hr_error *error) {
  hr_plan *plan;
  hr_status status;
  HRI_TRY(hri_plan_draft(job, NULL, &plan, error));
  status = plan->info.fits ? hri_plan_place(plan, error) : HR_OK;
  if (status == HR_OK)
    *fit = (hr_fit){.fits = plan->info.fits,
                    .need_bytes = hri_plan_need(plan),
                    .bound_bytes = plan->info.tiers[HR_TIER_DEVICE].lower_bound_bytes,
                    .step_seconds = plan->info.step_seconds,
                    .token_seconds = plan->info.step_seconds / (double)plan->info.tokens_per_step};
  hr_plan_destroy(plan);
  return status;
}

void hr_plan_destroy(hr_plan *plan) {
  if (!plan) return;
  for (int tier = 0; tier < HR_TIER_COUNT; tier++) hri_breakdown_deinit(&plan->breakdown[tier]);
  hri_placement_deinit(&plan->placement);
  hri_solved_deinit(&plan->solved);
  hri_job_deinit(&plan->job);
  if (!plan->borrows) hri_backend_close(plan->backend);
  hri_free(plan);
}

const hr_plan_info *hr_plan_get(const hr_plan *plan) { return &plan->info; }
const hr_job *hr_plan_job(const hr_plan *plan) { return &plan->spec; }

/* ---- reading ---- */

bool hr_plan_live(const hr_plan *plan, uint32_t tier, uint32_t index, hr_live *live) {
  const hri_storage *s;
  const hri_tensor *t;
  hri_id shown;
  if (tier >= HR_TIER_COUNT || index >= plan->breakdown[tier].live_count) return false;
  s = &plan->job.storages.items[plan->breakdown[tier].live[index]];
  shown = plan->breakdown[tier].shown[index];
  t = shown == HRI_NONE ? NULL : &plan->job.tensors.items[shown];
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
static bool lies_in(const hri_job *job, hri_id storage, const hri_param_range *range) {
  if (job->tensors.items[range->weight].storage == storage ||
      (range->gradient != HRI_NONE && job->tensors.items[range->gradient].storage == storage) ||
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
    const hri_param_range *range = &job->ranges.items[r];
    const hri_param *param = &job->params.items[range->param];
    uint32_t names = param->range_count == 1 ? 1 : range->part_count;
    if (!lies_in(job, plan->breakdown[tier].live[index], range)) continue;
    if (k < names)
      return hri_name_get(job, param->range_count == 1 ? param->key : job->parts.items[range->part_begin + k].key);
    k -= names;
  }
  return NULL;
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

/* The tensors at a tier's peak, largest first, after "; largest there: ". */
static void name_largest(const hr_plan *plan, uint32_t tier, hri_text *out) {
  hr_live live;
  char size[32];
  for (uint32_t k = 0; k < 4 && hr_plan_live(plan, tier, k, &live); k++)
    hri_text_add(out, "%s%s %s", k ? ", " : "; largest there: ", live.name, hri_size_text(live.bytes, size));
}

hr_status hr_plan_verdict(const hr_plan *plan, hr_error *error) {
  const hr_plan_info *info = &plan->info;
  const bool host = hri_plan_need(plan) <= info->budget_bytes; /* the device has room */
  const uint32_t tier = host ? HR_TIER_HOST : HR_TIER_DEVICE;
  const uint64_t need = host ? hri_plan_host_need(plan) : hri_plan_need(plan),
                 budget = host ? plan->spec.host_budget_bytes : info->budget_bytes;
  const hr_tier_plan *t = &info->tiers[tier];
  char a[32], b[32], c[32];
  hri_text top = {0};
  hr_status status;
  if (info->fits) return HR_OK;
  if (t->peak_node[0])
    hri_text_add(&top, "; the peak is in phase %s at %s", hri_phase_name((hri_phase)t->peak_phase), t->peak_node);
  name_largest(plan, tier, &top);
  status = hri_fail(error, HR_ERROR_BUDGET, "the job needs %s (%llu bytes)%s and the budget is %s%s",
                    hri_size_text(need, a), (unsigned long long)need, host ? " of the host's memory" : "",
                    hri_size_text(budget, b), hri_text_get(&top));
  hri_hint(error, status,
           host ? "raise host_budget_bytes by %s"
                : "`headroom plan` with the same options lists what would fit; it is over by %s",
           hri_size_text(need - budget, c));
  if (error) {
    error->requested_bytes = need;
    error->available_bytes = budget;
  }
  hri_text_deinit(&top);
  return status;
}
