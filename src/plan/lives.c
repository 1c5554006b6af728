/* When each storage is alive, on the virtual timeline of all programs, and how many bytes are alive at a time. Linear
 * in nodes, waits and operands; everyone who shows bytes over time reads hri_live_series_make. */
#include "plan/lives.h"

#include <assert.h>
#include <string.h>

/* ---- ticks of nodes ---- */

/* Nodes off the spine get the ticks between the spine nodes that bound them. A node of lane L is before a spine node
 * exactly when the spine node's clock counts it, and what the spine's clock counts of L only grows: so the nodes of
 * each lane find their first spine node in their own order. */
static hr_status bound_ticks(const hri_job *job, uint8_t kind, uint32_t start, uint32_t spine, hri_storage_life *ticks,
                             hr_error *error) {
  const hri_program *p = &job->programs[kind];
  const uint32_t count = (uint32_t)p->order.count;
  uint32_t first[HRI_LANE_COUNT], last[HRI_LANE_COUNT],
      index = 0; /* of each lane: its nodes that no spine node followed yet */
  uint32_t *next = hri_alloc(((size_t)count + 1) * sizeof *next);
  hri_clocks clocks;
  hr_status status =
      next ? hri_clocks_init(&clocks, job, kind, error) : hri_fail_memory(error, count * sizeof *next, "ticks");
  if (status != HR_OK) {
    hri_free(next);
    return status;
  }
  memset(first, 0xFF, sizeof first);
  memset(last, 0xFF, sizeof last);
  for (uint32_t at = 0; at < count; at++) {
    uint8_t lane = job->nodes.items[p->order.items[at]].lane;
    if (lane != HRI_COMPUTE) {
      uint32_t before = clocks.clock[at][HRI_COMPUTE]; /* spine nodes before it: the last one has index `before - 1` */
      ticks[at].begin = before == 0 ? start : start + 2 * (before - 1) + 1;
      ticks[at].end = spine == 0 ? start : start + 2 * spine - 1; /* unless a spine node waits for it */
      assert(ticks[at].begin <= ticks[at].end);
      next[at] = UINT32_MAX;
      if (first[lane] == UINT32_MAX) first[lane] = at;
      else next[last[lane]] = at;
      last[lane] = at;
      continue;
    }
    for (int other = 0; other < HRI_LANE_COUNT; other++)
      for (; first[other] != UINT32_MAX && clocks.sequence[first[other]] <= clocks.clock[at][other];
           first[other] = next[first[other]]) {
        ticks[first[other]].end = index == 0 ? start : start + 2 * index - 1;
        assert(ticks[first[other]].begin <= ticks[first[other]].end); /* nothing waits for what waits for it */
      }
    index++;
  }
  hri_clocks_deinit(&clocks);
  hri_free(next);
  return HR_OK;
}

hr_status hri_node_ticks(const hri_job *job, uint8_t kind, uint32_t start, hri_storage_life *ticks, uint32_t *end,
                         hr_error *error) {
  const hri_program *p = &job->programs[kind];
  uint32_t spine = 0, count = (uint32_t)p->order.count;
  for (uint32_t at = 0; at < count; at++) {
    ticks[at] = (hri_storage_life){start + 2 * spine, start + 2 * spine};
    spine += job->nodes.items[p->order.items[at]].lane == HRI_COMPUTE;
  }
  *end = start + 2 * spine + 1;
  return spine == count ? HR_OK : bound_ticks(job, kind, start, spine, ticks, error);
}

/* ---- lives of storages ---- */

static void hull(hri_storage_life *life, uint32_t begin, uint32_t end) {
  if (begin < life->begin) life->begin = begin;
  if (end > life->end) life->end = end;
}

hr_status hri_storage_lives(const hri_job *job, hri_storage_life *lives, hri_program_span spans[HRI_PROGRAM_COUNT],
                            hr_error *error) {
  uint32_t start = 0;
  for (size_t s = 0; s < job->storages.count; s++) lives[s] = (hri_storage_life){UINT32_MAX, 0};
  for (uint8_t kind = 0; kind < HRI_PROGRAM_COUNT; kind++) {
    const hri_program *p = &job->programs[kind];
    hri_storage_life *ticks;
    hr_status status;
    spans[kind] = (hri_program_span){start, start};
    if (!p->present) continue;
    ticks = hri_alloc((p->order.count + 1) * sizeof *ticks);
    if (!ticks) return hri_fail_memory(error, p->order.count * sizeof *ticks, "lives");
    status = hri_node_ticks(job, kind, start, ticks, &spans[kind].end, error);
    for (uint32_t at = 0; status == HR_OK && at < p->order.count; at++) {
      const hri_node *node = &job->nodes.items[p->order.items[at]];
      for (uint32_t i = 0; i < node->operand_count; i++)
        if (hri_operands(job, node)[i].tensor != HRI_NONE)
          hull(&lives[job->tensors.items[hri_operands(job, node)[i].tensor].storage], ticks[at].begin, ticks[at].end);
    }
    hri_free(ticks);
    HRI_TRY(status);
    start = spans[kind].end + 1;
  }
  for (size_t s = 0; s < job->storages.count; s++) {
    const hri_storage *storage = &job->storages.items[s];
    if (storage->dead) lives[s] = (hri_storage_life){UINT32_MAX, 0};
    if (storage->dead || !storage->scope || lives[s].begin > lives[s].end) continue;
    for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++)
      if ((storage->scope & HRI_IN(kind)) && job->programs[kind].present)
        hull(&lives[s], spans[kind].begin, spans[kind].end);
  }
  return HR_OK;
}

/* ---- live bytes ---- */

static uint32_t tick_count(const hri_program_span spans[HRI_PROGRAM_COUNT]) {
  uint32_t last = 0;
  for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++)
    if (spans[kind].end > last) last = spans[kind].end;
  return last + 1;
}

/* Differences at the begin and behind the end of each life, then a running sum, both modulo 2^64. */
hr_status hri_live_series_make(const hri_job *job, const hri_storage_life *lives,
                               const hri_program_span spans[HRI_PROGRAM_COUNT], uint8_t tier, uint64_t guard,
                               bool by_role, hri_live_series *out, hr_error *error) {
  const uint32_t ticks = tick_count(spans);
  uint64_t sum = 0, roles[HRI_ROLE_COUNT] = {0};
  *out = (hri_live_series){.ticks = ticks};
  out->total = hri_alloc_zero((uint64_t)ticks + 1, sizeof *out->total);
  if (by_role) out->by_role = hri_alloc_zero(((size_t)ticks + 1) * HRI_ROLE_COUNT, sizeof *out->by_role);
  if (!out->total || (by_role && !out->by_role)) {
    hri_live_series_deinit(out);
    return hri_fail_memory(error, (uint64_t)ticks * (by_role ? 1 + HRI_ROLE_COUNT : 1) * sizeof *out->total,
                           "live bytes over time");
  }
  for (size_t s = 0; s < job->storages.count; s++) {
    const hri_storage *storage = &job->storages.items[s];
    const uint32_t begin = lives[s].begin, behind = lives[s].end + 1;
    uint64_t bytes;
    if (begin >= behind || storage->tier != tier) continue;
    assert(!storage->dead && behind <= ticks);
    bytes = hri_placed_bytes(storage, guard);
    out->total[begin] += bytes;
    out->total[behind] -= bytes;
    if (!by_role) continue;
    out->by_role[(size_t)begin * HRI_ROLE_COUNT + storage->role] += bytes;
    out->by_role[(size_t)behind * HRI_ROLE_COUNT + storage->role] -= bytes;
  }
  for (uint32_t tick = 0; tick < ticks; tick++) {
    out->total[tick] = sum += out->total[tick];
    if (sum > out->peak_bytes) out->peak_bytes = sum;
    for (int role = 0; by_role && role < HRI_ROLE_COUNT; role++)
      out->by_role[(size_t)tick * HRI_ROLE_COUNT + role] = roles[role] +=
          out->by_role[(size_t)tick * HRI_ROLE_COUNT + role];
  }
  assert(sum + out->total[ticks] == 0); /* everything that was born has died */
  return HR_OK;
}

void hri_live_series_deinit(hri_live_series *series) {
  hri_free(series->total);
  hri_free(series->by_role);
  *series = (hri_live_series){0};
}
