#include "plan/breakdown.h"

#include <stdlib.h>
#include <string.h>

hr_status hri_role_series(const hri_job *job, const hri_placement *pl, uint8_t tier, uint32_t *ticks, uint64_t **table, hr_error *error) {
  uint32_t count = 1;
  uint64_t *t, sum[HRI_ROLE_COUNT] = {0};
  for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++)
    if (job->programs[kind].present && pl->spans[kind].end + 1 > count) count = pl->spans[kind].end + 1;
  t = hri_alloc_zero((size_t)(count + 1) * HRI_ROLE_COUNT, sizeof *t);
  if (!t) return hri_fail_memory(error, (uint64_t)count * HRI_ROLE_COUNT * sizeof *t, "the memory timeline");
  for (size_t s = 0; s < job->storages.count; s++) { /* differences modulo 2^64, then a running sum */
    const hri_storage *st = &job->storages.items[s];
    uint64_t bytes = hri_round_up(st->bytes, HRI_STORAGE_ALIGN);
    if (st->tier != tier || pl->lives[s].begin > pl->lives[s].end) continue;
    t[(size_t)pl->lives[s].begin * HRI_ROLE_COUNT + st->role] += bytes;
    t[((size_t)pl->lives[s].end + 1) * HRI_ROLE_COUNT + st->role] -= bytes;
  }
  for (uint32_t tick = 0; tick < count; tick++)
    for (int role = 0; role < HRI_ROLE_COUNT; role++) t[(size_t)tick * HRI_ROLE_COUNT + role] = sum[role] += t[(size_t)tick * HRI_ROLE_COUNT + role];
  *ticks = count;
  *table = t;
  return HR_OK;
}

static int larger_first(const void *a, const void *b, void *context) {
  const hri_storage *storages = context;
  uint64_t x = storages[*(const hri_id *)a].bytes, y = storages[*(const hri_id *)b].bytes;
  if (x != y) return x > y ? -1 : 1;
  return *(const hri_id *)a < *(const hri_id *)b ? -1 : 1;
}

static hr_status phases(const hri_job *job, const hri_placement *pl, const uint64_t *table, hri_breakdown *out, hr_error *error) {
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
      uint64_t live = 0;
      if (job->nodes.items[id].lane != HRI_COMPUTE) continue;
      for (int role = 0; role < HRI_ROLE_COUNT; role++) live += table[(size_t)ticks[at].begin * HRI_ROLE_COUNT + role];
      if (live > out->peak_by_phase[job->nodes.items[id].phase]) out->peak_by_phase[job->nodes.items[id].phase] = live;
      if (live > best) {
        best = live;
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

hr_status hri_breakdown_make(const hri_job *job, const hri_placement *pl, uint8_t tier, hri_breakdown *out, hr_error *error) {
  uint64_t *table;
  uint32_t ticks;
  HRI_ARRAY(hri_id) live = {0};
  hr_status status;
  memset(out, 0, sizeof *out);
  out->peak_node = HRI_NONE;
  HRI_TRY(hri_role_series(job, pl, tier, &ticks, &table, error));
  status = phases(job, pl, table, out, error);
  if (status != HR_OK || out->peak_node == HRI_NONE) goto out;
  for (uint32_t tick = 0; tick < ticks; tick++)
    for (int role = 0; role < HRI_ROLE_COUNT; role++)
      if (table[(size_t)tick * HRI_ROLE_COUNT + role] > out->max_by_role[role]) out->max_by_role[role] = table[(size_t)tick * HRI_ROLE_COUNT + role];
  memcpy(out->at_peak_by_role, table + (size_t)out->peak_tick * HRI_ROLE_COUNT, sizeof out->at_peak_by_role);
  for (hri_id s = 0; s < job->storages.count; s++)
    if (job->storages.items[s].tier == tier && pl->lives[s].begin <= out->peak_tick && pl->lives[s].end >= out->peak_tick && !hri_array_push(&live, s)) {
      status = hri_fail_memory(error, sizeof s, "the breakdown");
      goto out;
    }
  if (live.count) qsort_r(live.items, live.count, sizeof *live.items, larger_first, job->storages.items);
  out->live = live.items;
  out->live_count = (uint32_t)live.count;
  memset(&live, 0, sizeof live);
out:
  hri_array_free(&live);
  hri_free(table);
  return status;
}

void hri_breakdown_deinit(hri_breakdown *breakdown) {
  hri_free(breakdown->live);
  memset(breakdown, 0, sizeof *breakdown);
}
