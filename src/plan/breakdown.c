#include "plan/breakdown.h"

#include <string.h>

#include "formats/order.h"

static int larger_first(const void *storages, uint32_t a, uint32_t b) {
  uint64_t x = ((const hri_storage *)storages)[a].bytes, y = ((const hri_storage *)storages)[b].bytes;
  return x > y ? -1 : x < y; /* of equals the first made */
}

/* Most live bytes while a node of each phase runs on the compute lane, and the node of the most. */
static hr_status phases(const hri_job *job, const hri_placement *pl, const hri_live_series *live, hri_breakdown *out,
                        hr_error *error) {
  uint64_t best = 0;
  for (uint8_t kind = 0; kind < HRI_PROGRAM_COUNT; kind++) {
    const hri_program *p = &job->programs[kind];
    hri_storage_life *ticks;
    uint32_t end;
    hr_status status;
    if (!p->present) continue;
    ticks = hri_alloc((p->order.count + 1) * sizeof *ticks);
    if (!ticks) return hri_fail_memory(error, p->order.count * sizeof *ticks, "the breakdown");
    status = hri_node_ticks(job, kind, pl->spans[kind].begin, ticks, &end, error);
    for (size_t at = 0; status == HR_OK && at < p->order.count; at++) {
      hri_id id = p->order.items[at];
      uint64_t bytes = live->total[ticks[at].begin];
      if (job->nodes.items[id].lane != HRI_COMPUTE) continue;
      if (bytes > out->peak_by_phase[job->nodes.items[id].phase])
        out->peak_by_phase[job->nodes.items[id].phase] = bytes;
      if (bytes > best) {
        best = bytes;
        out->peak_node = id;
        out->peak_tick = ticks[at].begin;
      }
    }
    hri_free(ticks);
    HRI_TRY(status);
  }
  out->live_peak_bytes = best;
  return HR_OK;
}

/* Storages of the tier that are alive at the peak, largest first. */
static hr_status list_live(const hri_job *job, const hri_placement *pl, uint8_t tier, hri_breakdown *out,
                           hr_error *error) {
  HRI_ARRAY(hri_id) live = {0};
  for (hri_id s = 0; s < job->storages.count; s++) {
    if (job->storages.items[s].tier != tier || pl->lives[s].begin > out->peak_tick || pl->lives[s].end < out->peak_tick)
      continue;
    if (hri_array_push(&live, s)) continue;
    hri_array_free(&live);
    return hri_fail_memory(error, sizeof s, "the breakdown");
  }
  out->live = live.items;
  out->live_count = (uint32_t)live.count;
  return hri_order_sort(job->storages.items, live.items, out->live_count, larger_first, error);
}

/* A tensor that shows the whole of a storage best: the first one of the most bytes. */
static hr_status find_shown(const hri_job *job, hri_breakdown *out, hr_error *error) {
  const uint64_t storages = job->storages.count;
  hri_id *best = hri_alloc(storages * sizeof *best);
  out->shown = hri_alloc(((uint64_t)out->live_count + 1) * sizeof *out->shown);
  if (!best || !out->shown) {
    hri_free(best);
    return hri_fail_memory(error, storages * sizeof *best, "the breakdown");
  }
  memset(best, 0xFF, (size_t)storages * sizeof *best); /* HRI_NONE */
  for (hri_id t = 0; t < job->tensors.count; t++) {
    hri_id *of = &best[job->tensors.items[t].storage];
    if (*of == HRI_NONE || hri_tensor_bytes(&job->tensors.items[t]) > hri_tensor_bytes(&job->tensors.items[*of]))
      *of = t;
  }
  for (uint32_t k = 0; k < out->live_count; k++) out->shown[k] = best[out->live[k]];
  hri_free(best);
  return HR_OK;
}

hr_status hri_breakdown_make(const hri_job *job, const hri_placement *pl, uint8_t tier, hri_breakdown *out,
                             hr_error *error) {
  hri_live_series live;
  hr_status status;
  memset(out, 0, sizeof *out);
  out->peak_node = HRI_NONE;
  if (pl->peak_bytes[tier] == 0) return HR_OK;
  HRI_TRY(hri_live_series_make(job, pl->lives, pl->spans, tier, 0, true, &live, error));
  status = phases(job, pl, &live, out, error);
  if (status != HR_OK || out->peak_node == HRI_NONE) goto out;
  for (uint32_t tick = 0; tick < live.ticks; tick++)
    for (int role = 0; role < HRI_ROLE_COUNT; role++)
      if (live.by_role[(size_t)tick * HRI_ROLE_COUNT + role] > out->max_by_role[role])
        out->max_by_role[role] = live.by_role[(size_t)tick * HRI_ROLE_COUNT + role];
  memcpy(out->at_peak_by_role, live.by_role + (size_t)out->peak_tick * HRI_ROLE_COUNT, sizeof out->at_peak_by_role);
  status = list_live(job, pl, tier, out, error);
  if (status == HR_OK) status = find_shown(job, out, error);
out:
  hri_live_series_deinit(&live);
  return status;
}

void hri_breakdown_deinit(hri_breakdown *breakdown) {
  hri_free(breakdown->live);
  hri_free(breakdown->shown);
  memset(breakdown, 0, sizeof *breakdown);
}
