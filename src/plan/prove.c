/* The proof of a placement, apart from how it was made: no ticks, no lives, only who touches what and what happens
 * before what. Two storages may share bytes when all touchers of the one happen before all touchers of the other;
 * carried ones
 * never, in the programs that carry them. */
#include "plan/place.h"

static bool all_before(const hri_clocks *c, const uint32_t *a, uint32_t a_count, const uint32_t *b, uint32_t b_count) {
  for (uint32_t i = 0; i < a_count; i++)
    for (uint32_t j = 0; j < b_count; j++)
      if (a[i] == b[j] || !hri_happens_before(c, a[i], b[j])) return false;
  return true;
}

typedef struct touchers {
  uint32_t begin, count;
} touchers;

static hr_status verify_program(const hri_job *job, const hri_placement *pl, uint8_t kind, hr_error *error) {
  const hri_program *p = &job->programs[kind];
  touchers *list = hri_alloc_zero(job->storages.count + 1, sizeof *list);
  uint32_t *positions = NULL, total = 0;
  hri_clocks clocks;
  hr_status status = hri_clocks_init(&clocks, job, kind, error);
  if (status != HR_OK || !list) {
    hri_free(list);
    return status != HR_OK ? status : hri_fail_memory(error, job->storages.count, "verification");
  }
  for (int fill = 0; fill < 2; fill++) { /* counting sort of touch positions by storage */
    for (uint32_t at = 0; at < p->order.count; at++) {
      const hri_node *node = &job->nodes.items[p->order.items[at]];
      for (uint32_t i = 0; i < node->operand_count; i++) {
        hri_id t = hri_operands(job, node)[i].tensor, s;
        if (t == HRI_NONE) continue;
        s = job->tensors.items[t].storage;
        if (fill) positions[list[s].begin + list[s].count] = at;
        list[s].count++;
        total += !fill;
      }
    }
    if (fill) break;
    positions = hri_alloc(((size_t)total + 1) * sizeof *positions);
    if (!positions) {
      status = hri_fail_memory(error, total, "verification");
      goto out;
    }
    for (size_t s = 0, sum = 0; s < job->storages.count; s++) {
      list[s].begin = (uint32_t)sum;
      sum += list[s].count;
      list[s].count = 0;
    }
  }
  for (hri_id a = 0; a < job->storages.count && status == HR_OK; a++)
    for (hri_id b = a + 1; b < job->storages.count; b++) {
      const hri_storage *x = &job->storages.items[a], *y = &job->storages.items[b];
      bool x_here = x->scope ? (x->scope & HRI_IN(kind)) != 0 : list[a].count > 0,
           y_here = y->scope ? (y->scope & HRI_IN(kind)) != 0 : list[b].count > 0;
      if (x->tier != y->tier || x->dead || y->dead || !x_here || !y_here) continue;
      if (pl->lives[a].begin > pl->lives[a].end || pl->lives[b].begin > pl->lives[b].end) continue;
      if (pl->offsets[a] + x->bytes <= pl->offsets[b] || pl->offsets[b] + y->bytes <= pl->offsets[a]) continue;
      if (!x->scope && !y->scope &&
          (all_before(&clocks, positions + list[a].begin, list[a].count, positions + list[b].begin, list[b].count) ||
           all_before(&clocks, positions + list[b].begin, list[b].count, positions + list[a].begin, list[a].count)))
        continue;
      status = hri_fail(error, HR_ERROR_INTERNAL,
                        "program %s: storages %u (%s) and %u (%s) share bytes while both may be alive",
                        hri_program_name((hri_program_kind)kind), a, hri_name_get(job, x->key), b,
                        hri_name_get(job, y->key));
      break;
    }
out:
  hri_free(list);
  hri_free(positions);
  hri_clocks_deinit(&clocks);
  return status;
}

hr_status hri_placement_verify(const hri_job *job, const hri_placement *placement, hr_error *error) {
  for (uint8_t kind = 0; kind < HRI_PROGRAM_COUNT; kind++)
    if (job->programs[kind].present) HRI_TRY(verify_program(job, placement, kind, error));
  for (size_t s = 0; s < job->storages.count; s++) {
    const hri_storage *st = &job->storages.items[s];
    if (st->dead || placement->lives[s].begin > placement->lives[s].end) continue;
    if (placement->offsets[s] % st->align || placement->offsets[s] + st->bytes > placement->peak_bytes[st->tier])
      return hri_fail(error, HR_ERROR_INTERNAL, "storage %zu (%s) is misplaced", s, hri_name_get(job, st->key));
  }
  return HR_OK;
}
