/* A training plan seen by layer. The step program (with accumulation: one micro-step) runs through the layers upwards,
 * through the loss, and through the layers downwards. While the backward of layer k runs, what is alive is
 *
 *   saved(0) + ... + saved(k - 1) + what layer k and everything above it left or need,
 *
 * and the last part depends on nothing that the layers below k chose to keep; likewise in the forward. That makes the
 * layers of differently compiled plans exchangeable, which is what a search over recompute levels needs. */
#include <string.h>

#include "plan/plan.h"

enum { BETWEEN = -1, OUTSIDE = -2 }; /* where a node stands that runs in no layer */

/* Guard zones of check mode. */
static uint64_t guard_of(const hr_plan *plan) { return plan->spec.check ? HRI_STORAGE_ALIGN : 0; }

static bool trains_layer(const hri_node *node, uint32_t layers) {
  return node->layer >= 0 && (uint32_t)node->layer < layers;
}

/* Where each position of the program stands: a layer, BETWEEN (all layers have run forward, none backward) or
 * OUTSIDE. */
static void find_places(const hri_job *job, const hri_program *p, uint32_t layers, int32_t *places) {
  size_t last_backward = 0;
  int32_t place = OUTSIDE;
  for (size_t at = 0; at < p->order.count; at++)
    if (job->nodes.items[p->order.items[at]].phase == HRI_PHASE_BACKWARD) last_backward = at;
  for (size_t at = 0; at < p->order.count; at++) {
    const hri_node *node = &job->nodes.items[p->order.items[at]];
    if (at > last_backward) place = OUTSIDE; /* the update after the backward */
    else if (trains_layer(node, layers) && node->phase != HRI_PHASE_OPTIMIZER) place = node->layer;
    else if (node->phase == HRI_PHASE_LOSS || (node->phase == HRI_PHASE_FORWARD && place == (int32_t)layers - 1))
      place = BETWEEN;
    else if (node->phase == HRI_PHASE_BACKWARD && place == 0) place = OUTSIDE; /* the embedding's backward */
    places[at] = place;
  }
}

static void add_seconds(const hr_plan *plan, const hri_program *p, double times, const hri_freedom *free,
                        hr_plan_layers *out) {
  const hr_device *device = &plan->spec.device;
  for (size_t at = 0; at < p->order.count; at++) {
    const hri_node *node = &plan->job.nodes.items[p->order.items[at]];
    const double seconds = times * (hri_node_seconds(&plan->job, node, device) -
                                    (free ? hri_node_spare_seconds(&plan->job, node, device, free) : 0));
    if (trains_layer(node, out->count)) out->layers[node->layer].seconds += seconds;
    else out->outside_seconds += seconds;
  }
}

/* Bytes of each layer's own tensors, gradients not among them, that are alive at a tick of the loss. */
static void add_saved(const hr_plan *plan, uint8_t kind, uint32_t tick, hr_plan_layers *out) {
  for (size_t s = 0; s < plan->job.storages.count; s++) {
    const hri_storage *st = &plan->job.storages.items[s];
    const hri_storage_life *life = &plan->placement.lives[s];
    if (st->tier != HRI_DEVICE || st->scope || st->program != kind || st->role == HRI_ROLE_GRADIENT || st->layer < 0)
      continue;
    if (life->begin > tick || life->end < tick || (uint32_t)st->layer >= out->count) continue;
    out->layers[st->layer].saved_bytes += hri_placed_bytes(st, guard_of(plan));
  }
}

static void raise(uint64_t *most, uint64_t bytes) {
  if (bytes > *most) *most = bytes;
}

static void add_peaks(const hr_plan *plan, uint8_t kind, const int32_t *places, const hri_storage_life *at_ticks,
                      const hri_live_series *live, hr_plan_layers *out) {
  const hri_program *p = &plan->job.programs[kind];
  for (size_t at = 0; at < p->order.count; at++) {
    const hri_node *node = &plan->job.nodes.items[p->order.items[at]];
    uint64_t bytes = live->total[at_ticks[at].begin];
    if (places[at] == OUTSIDE) raise(&out->outside_bytes, bytes);
    else if (places[at] == BETWEEN) raise(&out->between_bytes, bytes);
    else
      raise(node->phase == HRI_PHASE_FORWARD ? &out->layers[places[at]].forward_bytes
                                             : &out->layers[places[at]].backward_bytes,
            bytes);
  }
}

static hr_status read_program(const hr_plan *plan, uint8_t kind, const hri_live_series *live, hr_plan_layers *out,
                              hr_error *error) {
  const hri_program *p = &plan->job.programs[kind];
  int32_t *places = hri_alloc((p->order.count + 1) * sizeof *places);
  hri_storage_life *at_ticks = hri_alloc((p->order.count + 1) * sizeof *at_ticks);
  uint32_t end;
  hr_status status;
  if (!places || !at_ticks) {
    status = hri_fail_memory(error, p->order.count * 12, "the layers of a plan");
    goto out;
  }
  HRI_TRY_OUT(hri_node_ticks(&plan->job, kind, plan->placement.spans[kind].begin, at_ticks, &end, error));
  find_places(&plan->job, p, out->count, places);
  for (size_t at = 0; at < p->order.count; at++)
    if (places[at] == BETWEEN) {
      add_saved(plan, kind, at_ticks[at].begin, out);
      break;
    }
  add_peaks(plan, kind, places, at_ticks, live, out);
out:
  hri_free(places);
  hri_free(at_ticks);
  return status;
}

/* Scratch of a product goes by its packing, that of the loss by its rows, and not in proportion to them. */
static bool may_do_without(const hri_node *node, const hri_freedom *free) {
  return (free->packing && hri_rule_get(node->op)->product) || (free->chunk && hri_node_of_loss(node));
}

/* Live bytes less what other choices may do without. */
static hr_status least_series(const hr_plan *plan, const hri_freedom *free, hri_live_series *live, hr_error *error) {
  const hri_job *job = &plan->job;
  HRI_TRY(hri_live_series_make(job, plan->placement.lives, plan->placement.spans, HRI_DEVICE, guard_of(plan), false,
                               live, error));
  if (!free || (!free->packing && !free->chunk)) return HR_OK;
  live->peak_bytes = 0;
  for (size_t n = 0; n < job->nodes.count; n++) {
    const hri_node *node = &job->nodes.items[n];
    const hri_id scratch = hri_operand_find(job, node, HRI_SCRATCH, 0);
    const hri_storage *storage;
    const hri_storage_life *life;
    if (scratch == HRI_NONE || !may_do_without(node, free)) continue;
    storage = &job->storages.items[job->tensors.items[scratch].storage];
    life = &plan->placement.lives[job->tensors.items[scratch].storage];
    if (storage->tier != HRI_DEVICE || life->begin > life->end) continue;
    for (uint32_t t = life->begin; t <= life->end; t++) live->total[t] -= hri_placed_bytes(storage, guard_of(plan));
  }
  for (uint32_t t = 0; t < live->ticks; t++) raise(&live->peak_bytes, live->total[t]);
  return HR_OK;
}

hr_status hri_plan_least_live(const hr_plan *plan, const hri_freedom *free, uint64_t *bytes, hr_error *error) {
  hri_live_series live;
  HRI_TRY(least_series(plan, free, &live, error));
  *bytes = live.peak_bytes;
  hri_live_series_deinit(&live);
  return HR_OK;
}

hr_status hri_plan_layers_least(const hr_plan *plan, const hri_freedom *free, hr_plan_layers *out, hr_error *error) {
  bool many = plan->spec.accumulate > 1;
  uint8_t kind = many ? HRI_MICRO : HRI_STEP;
  hri_live_series live;
  hr_status status;
  memset(out, 0, sizeof *out);
  if (plan->spec.purpose != HR_PURPOSE_TRAIN)
    return hri_fail(error, HR_ERROR_USAGE, "only the plan of a training has a backward to read layer by layer");
  out->count = plan->spec.model.layer_count;
  HRI_TRY(least_series(plan, free, &live, error));
  for (uint32_t t = 0; t < live.ticks; t++) /* the other programs */
    if (t < plan->placement.spans[kind].begin || t > plan->placement.spans[kind].end)
      raise(&out->outside_bytes, live.total[t]);
  status = read_program(plan, kind, &live, out, error);
  if (many) add_seconds(plan, &plan->job.programs[HRI_BEGIN], 1, free, out);
  add_seconds(plan, &plan->job.programs[kind], many ? plan->spec.accumulate : 1, free, out);
  if (many) add_seconds(plan, &plan->job.programs[HRI_UPDATE], 1, free, out);
  hri_live_series_deinit(&live);
  return status;
}

hr_status hr_plan_layers_get(const hr_plan *plan, hr_plan_layers *out, hr_error *error) {
  return hri_plan_layers_least(plan, NULL, out, error);
}
