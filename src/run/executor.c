#include "run/executor.h"

#include <string.h>
#include <time.h>

#include "device/arena.h"
#include "device/team.h"

struct hri_executor {
  const hri_job *job;
  const hri_placement *placement;
  hri_cpu *cpu;
  hri_executor_options options;
  const hri_executor *beside; /* whose arenas it runs in; NULL: its own */
  hri_arena arenas[HRI_TIER_COUNT]; /* empty when they are another's */
  uint16_t programs;                /* prepared: set of HRI_IN */
  hri_launch launch;
  void **handles; /* per node */
  uint32_t *last; /* check mode: last position of each storage in the program that runs */
  uint32_t *first; /* check mode: UINT32_MAX once its guard was painted in this run */
};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* On failure *executor is NULL. */
static hr_status prepare(const hri_job *job, const hri_placement *placement, hri_cpu *cpu, const hri_transfer *transfer, const hri_executor_options *options,
                        uint16_t programs, hri_executor **executor, hr_error *error) {
  hri_executor *x = hri_alloc_zero(1, sizeof *x);
  hr_status status = HR_OK;
  *executor = NULL;
  if (!x) return hri_fail_memory(error, sizeof *x, "the executor");
  x->job = job;
  x->placement = placement;
  x->cpu = cpu;
  x->programs = programs;
  if (options) x->options = *options;
  x->launch = (hri_launch){.job = job, .offsets = placement->offsets, .transfer = transfer};
  x->handles = hri_alloc_zero(job->nodes.count, sizeof *x->handles);
  if (!x->handles) status = hri_fail_memory(error, job->nodes.count * sizeof *x->handles, "prepared nodes");
  if (status == HR_OK) status = hri_team_start(hri_cpu_threads(cpu), error);
  for (int kind = 0; kind < HRI_PROGRAM_COUNT && status == HR_OK; kind++) {
    if (!(programs & HRI_IN(kind))) continue;
    for (size_t at = 0; at < job->programs[kind].order.count && status == HR_OK; at++) {
      hri_id id = job->programs[kind].order.items[at];
      status = hri_cpu_prepare(cpu, job, &job->nodes.items[id], &x->handles[id], error);
    }
  }
  if (status == HR_OK) *executor = x;
  else hri_executor_destroy(x);
  return status;
}

hr_status hri_executor_prepare(const hri_job *job, const hri_placement *placement, hri_cpu *cpu, const hri_transfer *transfer,
                               const hri_executor_options *options, hri_executor **executor, hr_error *error) {
  return prepare(job, placement, cpu, transfer, options, UINT16_MAX, executor, error);
}

hr_status hri_executor_reserve(hri_executor *x, hr_error *error) {
  for (int tier = 0; tier < HRI_TIER_COUNT && !x->beside; tier++) {
    uint64_t bytes = x->placement->peak_bytes[tier];
    if (bytes == 0) continue;
    HRI_TRY(hri_arena_reserve(&x->arenas[tier], bytes, hri_cpu_threads(x->cpu), NULL, error));
    x->launch.base[tier] = x->arenas[tier].base;
    if (x->options.check) memset(x->launch.base[tier], 0xFF, bytes); /* NaN in every float format */
  }
  if (x->beside) memcpy(x->launch.base, x->beside->launch.base, sizeof x->launch.base);
  return HR_OK;
}

/* Reserves what was prepared, or undoes it. */
static hr_status reserve_prepared(hr_status status, hri_executor **executor, hr_error *error) {
  HRI_TRY(status);
  status = hri_executor_reserve(*executor, error);
  if (status == HR_OK) return HR_OK;
  hri_executor_destroy(*executor);
  *executor = NULL;
  return status;
}

hr_status hri_executor_create(const hri_job *job, const hri_placement *placement, hri_cpu *cpu, const hri_transfer *transfer,
                              const hri_executor_options *options, hri_executor **executor, hr_error *error) {
  return reserve_prepared(hri_executor_prepare(job, placement, cpu, transfer, options, executor, error), executor, error);
}

/* Carried by every program of its job. */
static bool carried(const hri_job *job, size_t storage) {
  const hri_storage *s = &job->storages.items[storage];
  if (s->dead || !s->scope) return false;
  for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++)
    if (job->programs[kind].present && !(s->scope & HRI_IN(kind))) return false;
  return true;
}

/* Both jobs were built by the same steps, so what they carry comes in the same order. */
static bool carries_the_same(const hri_executor *base, const hri_job *job, const hri_placement *placement) {
  size_t a = 0, b = 0;
  for (;; a++, b++) {
    while (a < base->job->storages.count && !carried(base->job, a)) a++;
    while (b < job->storages.count && !carried(job, b)) b++;
    if (a == base->job->storages.count || b == job->storages.count) return a == base->job->storages.count && b == job->storages.count;
    const hri_storage *x = &base->job->storages.items[a], *y = &job->storages.items[b];
    if (x->tier != y->tier || x->bytes != y->bytes || base->placement->offsets[a] != placement->offsets[b] ||
        strcmp(hri_name_get(base->job, x->key), hri_name_get(job, y->key)) != 0)
      return false;
  }
}

hr_status hri_executor_prepare_beside(const hri_executor *base, const hri_job *job, const hri_placement *placement, uint16_t programs,
                                      hri_executor **executor, hr_error *error) {
  for (int tier = 0; tier < HRI_TIER_COUNT; tier++)
    if (placement->peak_bytes[tier] > hri_arena_round(base->placement->peak_bytes[tier]))
      return hri_fail(error, HR_ERROR_INTERNAL, "a job does not fit beside another one into its arenas");
  if (!carries_the_same(base, job, placement)) return hri_fail(error, HR_ERROR_INTERNAL, "two jobs that share arenas carry different storages");
  HRI_TRY(prepare(job, placement, base->cpu, base->launch.transfer, &base->options, programs, executor, error));
  (*executor)->beside = base;
  return HR_OK;
}

hr_status hri_executor_create_beside(const hri_executor *base, const hri_job *job, const hri_placement *placement, uint16_t programs,
                                     hri_executor **executor, hr_error *error) {
  return reserve_prepared(hri_executor_prepare_beside(base, job, placement, programs, executor, error), executor, error);
}

void hri_executor_destroy(hri_executor *x) {
  if (!x) return;
  for (int tier = 0; tier < HRI_TIER_COUNT; tier++) hri_arena_release(&x->arenas[tier]);
  hri_free(x->handles);
  hri_free(x);
}

void *hri_executor_pointer(const hri_executor *x, hri_id tensor) { return hri_launch_pointer(&x->launch, tensor); }
hri_control *hri_executor_control(const hri_executor *x) { return hri_launch_pointer(&x->launch, x->job->control); }
uint64_t hri_executor_reserved_bytes(const hri_executor *x, hri_tier tier) { return x->arenas[tier].bytes; }

/* ---- check mode ---- */

static unsigned char *storage_pointer(const hri_executor *x, hri_id s) {
  return x->launch.base[x->job->storages.items[s].tier] + x->placement->offsets[s];
}

/* Guard zones lie between the end of a storage and the next multiple of its alignment behind the guard. */
static hr_status check_guards(const hri_executor *x, const hri_node *node, hr_error *error) {
  for (uint32_t i = 0; i < node->operand_count; i++) {
    hri_id t = hri_operands(x->job, node)[i].tensor, s;
    const unsigned char *end;
    if (t == HRI_NONE) continue;
    s = x->job->tensors.items[t].storage;
    end = storage_pointer(x, s) + x->job->storages.items[s].bytes;
    for (int k = 0; k < HRI_CHECK_GUARD; k++)
      if (end[k] != 0xFF)
        return hri_fail(error, HR_ERROR_MISMATCH, "check mode: %s (layer %d) wrote %d bytes behind the end of %s", hri_op_name(node->op), node->layer, k + 1,
                        hri_name_get(x->job, x->job->storages.items[s].key));
  }
  return HR_OK;
}

/* Paints the guards of what this node is the first in its program to touch: before, those bytes were another's. */
static void renew_guards(const hri_executor *x, const hri_node *node) {
  for (uint32_t i = 0; i < node->operand_count; i++) {
    hri_id t = hri_operands(x->job, node)[i].tensor, s;
    if (t == HRI_NONE) continue;
    s = x->job->tensors.items[t].storage;
    if (x->first[s] == UINT32_MAX) continue;
    x->first[s] = UINT32_MAX;
    memset(storage_pointer(x, s) + x->job->storages.items[s].bytes, 0xFF, HRI_CHECK_GUARD);
  }
}

/* Poisons what dies with this node. */
static void poison_dead(const hri_executor *x, const hri_node *node, uint32_t at) {
  for (uint32_t i = 0; i < node->operand_count; i++) {
    hri_id t = hri_operands(x->job, node)[i].tensor, s;
    if (t == HRI_NONE) continue;
    s = x->job->tensors.items[t].storage;
    if (x->job->storages.items[s].scope == 0 && x->last[s] == at) memset(storage_pointer(x, s), 0xFF, x->job->storages.items[s].bytes + HRI_CHECK_GUARD);
  }
}

/* ---- running ---- */

static hr_status run_node(hri_executor *x, hri_id id, hr_error *error) {
  const hri_node *node = &x->job->nodes.items[id];
  hri_id guard = hri_node_guard(x->job, node);
  double start = x->options.after_node ? now() : 0;
  bool skipped = guard != HRI_NONE && *(const double *)hri_launch_pointer(&x->launch, guard) != 0;
  if (!skipped) HRI_TRY(hri_cpu_run(x->cpu, &x->launch, node, x->handles[id], error));
  if (x->options.after_node) x->options.after_node(x->options.context, x->job, id, now() - start);
  return HR_OK;
}

hr_status hri_executor_run_order(hri_executor *x, hri_program_kind program, const uint32_t *positions, hr_error *error) {
  const hri_program *p = &x->job->programs[program];
  hr_status status = HR_OK;
  if (!p->present || !(x->programs & HRI_IN(program))) return hri_fail(error, HR_ERROR_INTERNAL, "this job has no program %s", hri_program_name(program));
  if (x->options.check) HRI_TRY(hri_touch_range(x->job, (uint8_t)program, &x->first, &x->last, error));
  for (uint32_t k = 0; k < p->order.count && status == HR_OK; k++) {
    uint32_t at = positions ? positions[k] : k;
    hri_id id = p->order.items[at];
    if (x->options.check) renew_guards(x, &x->job->nodes.items[id]);
    status = run_node(x, id, error);
    if (x->options.check && status == HR_OK) {
      status = check_guards(x, &x->job->nodes.items[id], error);
      if (!positions) poison_dead(x, &x->job->nodes.items[id], at);
    }
  }
  hri_free(x->first);
  hri_free(x->last);
  x->first = x->last = NULL;
  return status;
}

hr_status hri_executor_run(hri_executor *x, hri_program_kind program, hr_error *error) { return hri_executor_run_order(x, program, NULL, error); }
