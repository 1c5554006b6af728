#include "run/executor.h"

#include <assert.h>
#include <string.h>

#include "pass/pass.h"

enum { FIELD_BYTES = 8, FIELDS = sizeof(hri_control) / FIELD_BYTES };
_Static_assert(sizeof(hri_control) % FIELD_BYTES == 0 && FIELDS <= 64,
               "the fields of the control block have 8 bytes each, and a bit in a word");

/* The host's side of the control block; an executor beside another one shares it. */
typedef struct board {
  hri_control image;
  uint64_t set; /* bit per field: what the host set since the last launch */
} board;

struct hri_executor {
  const hri_job *job;
  const hri_placement *placement;
  hri_backend *backend;
  hri_executor_options options;
  const hri_executor *beside; /* whose arenas it runs in; NULL: its own */
  uint16_t programs;          /* prepared: set of HRI_IN */
  const hri_transfer *transfer;
  void *run;        /* the backend's */
  hri_cares *cares; /* check mode: per program kind */
  board own, *board;
};

/* ---- check mode: which bytes are nobody's, and when ---- */

static void add_care(hri_cares *cares, hri_care care, bool *fine) {
  *fine = *fine && hri_array_push(&cares->list, care);
}

/* Guard zones lie between the end of a storage and the next multiple of its alignment behind the guard. Before a
 * program they were another's, so the first toucher paints them: that of a value local to the program writes it, and
 * all others come after it; what is carried stands there all the time and is painted before the first node. After each
 * toucher they must be whole. What is local is painted when its last toucher was done. */
static void add_node_cares(const hri_executor *x, hri_program_kind kind, uint32_t at, const uint32_t *first,
                           const uint32_t *last, const uint8_t *lanes, hri_care_kind what, bool *fine) {
  const hri_job *job = x->job;
  const hri_node *node = &job->nodes.items[job->programs[kind].order.items[at]];
  hri_cares *cares = &x->cares[kind];
  size_t begin = cares->list.count;
  for (uint32_t i = 0; i < node->operand_count; i++) {
    hri_id t = hri_operands(job, node)[i].tensor, s;
    const hri_storage *storage;
    size_t k = begin;
    if (t == HRI_NONE) continue;
    s = job->tensors.items[t].storage;
    storage = &job->storages.items[s];
    while (k < cares->list.count && cares->list.items[k].storage != s) k++;
    if (k < cares->list.count) continue; /* two operands in one storage */
    if (what == HRI_VERIFY_AFTER || (what == HRI_PAINT_BEFORE && !storage->scope && first[s] == at))
      add_care(
          cares,
          (hri_care){.at = at, .kind = (uint8_t)what, .storage = s, .begin = storage->bytes, .bytes = HRI_CHECK_GUARD},
          fine);
    if (what == HRI_PAINT_AFTER && !storage->scope && last[s] == at)
      add_care(cares,
               (hri_care){.at = at,
                          .kind = HRI_PAINT_AFTER,
                          .lanes = (lanes[s] & (lanes[s] - 1)) != 0,
                          .storage = s,
                          .bytes = storage->bytes + HRI_CHECK_GUARD},
               fine);
  }
}

static hr_status make_program_cares(const hri_executor *x, hri_program_kind kind, hr_error *error) {
  const hri_job *job = x->job;
  const hri_program *p = &job->programs[kind];
  uint32_t *first, *last;
  uint8_t *lanes = hri_alloc_zero(job->storages.count + 1, 1);
  bool fine = lanes != NULL;
  if (!fine) return hri_fail_memory(error, job->storages.count, "check mode");
  if (hri_touch_range(job, (uint8_t)kind, &first, &last, error) != HR_OK) {
    hri_free(lanes);
    return HR_ERROR_MEMORY;
  }
  for (uint32_t at = 0; at < p->order.count; at++) {
    const hri_node *node = &job->nodes.items[p->order.items[at]];
    for (uint32_t i = 0; i < node->operand_count; i++)
      if (hri_operands(job, node)[i].tensor != HRI_NONE)
        lanes[job->tensors.items[hri_operands(job, node)[i].tensor].storage] |= (uint8_t)(1u << node->lane);
  }
  for (size_t s = 0; s < job->storages.count && p->order.count; s++)
    if (first[s] != UINT32_MAX && job->storages.items[s].scope)
      add_care(&x->cares[kind],
               (hri_care){.kind = HRI_PAINT_BEFORE,
                          .storage = (hri_id)s,
                          .begin = job->storages.items[s].bytes,
                          .bytes = HRI_CHECK_GUARD},
               &fine);
  for (uint32_t at = 0; at < p->order.count; at++)
    for (int what = HRI_PAINT_BEFORE; what <= HRI_PAINT_AFTER; what++)
      add_node_cares(x, kind, at, first, last, lanes, (hri_care_kind)what, &fine);
  hri_free(first);
  hri_free(last);
  hri_free(lanes);
  return fine ? HR_OK : hri_fail_memory(error, x->cares[kind].list.count * sizeof(hri_care), "check mode");
}

static hr_status make_cares(hri_executor *x, hr_error *error) {
  if (!x->options.check) return HR_OK;
  x->cares = hri_alloc_zero(HRI_PROGRAM_COUNT, sizeof *x->cares);
  if (!x->cares) return hri_fail_memory(error, HRI_PROGRAM_COUNT * sizeof *x->cares, "check mode");
  for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++)
    if (x->job->programs[kind].present && (x->programs & HRI_IN(kind)))
      HRI_TRY(make_program_cares(x, (hri_program_kind)kind, error));
  return HR_OK;
}

/* ---- making ---- */

static hr_status prepare_work(hri_executor *x, hr_error *error) {
  hri_work work = {.job = x->job,
                   .offsets = x->placement->offsets,
                   .programs = x->programs,
                   .transfer = x->transfer,
                   .beside = x->beside ? x->beside->run : NULL,
                   .after_node = x->options.after_node,
                   .context = x->options.context,
                   .times = x->options.times};
  HRI_TRY(make_cares(x, error));
  work.cares = x->cares;
  memcpy(work.arena_bytes, x->placement->peak_bytes, sizeof work.arena_bytes);
  return x->backend->prepare(x->backend->self, &work, &x->run, error);
}

/* On failure *executor is NULL. */
static hr_status prepare(const hri_job *job, const hri_placement *placement, hri_backend *backend,
                         const hri_transfer *transfer, const hri_executor_options *options, uint16_t programs,
                         const hri_executor *beside, hri_executor **executor, hr_error *error) {
  hri_executor *x;
  hr_status status;
  *executor = NULL;
  if (!hri_backend_runs(backend))
    return hri_fail(error, HR_ERROR_UNSUPPORTED, "jobs can only be planned for %s", backend->device.name);
  x = hri_alloc_zero(1, sizeof *x);
  if (!x) return hri_fail_memory(error, sizeof *x, "the executor");
  x->job = job;
  x->placement = placement;
  x->backend = backend;
  x->programs = programs;
  x->beside = beside;
  x->board = beside ? beside->board : &x->own;
  x->transfer = transfer;
  if (options) x->options = *options;
  for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++)
    if (!job->programs[kind].present) x->programs &= (uint16_t)~HRI_IN(kind);
  status = prepare_work(x, error);
  if (status == HR_OK) *executor = x;
  else hri_executor_destroy(x);
  return status;
}

hr_status hri_executor_prepare(const hri_job *job, const hri_placement *placement, hri_backend *backend,
                               const hri_transfer *transfer, const hri_executor_options *options,
                               hri_executor **executor, hr_error *error) {
  return prepare(job, placement, backend, transfer, options, UINT16_MAX, NULL, executor, error);
}

hr_status hri_executor_reserve(hri_executor *x, hr_error *error) { return x->backend->reserve(x->run, error); }

/* Reserves what was prepared, or undoes it. */
static hr_status reserve_prepared(hr_status status, hri_executor **executor, hr_error *error) {
  HRI_TRY(status);
  status = hri_executor_reserve(*executor, error);
  if (status == HR_OK) return HR_OK;
  hri_executor_destroy(*executor);
  *executor = NULL;
  return status;
}

hr_status hri_executor_create(const hri_job *job, const hri_placement *placement, hri_backend *backend,
                              const hri_transfer *transfer, const hri_executor_options *options,
                              hri_executor **executor, hr_error *error) {
  return reserve_prepared(hri_executor_prepare(job, placement, backend, transfer, options, executor, error), executor,
                          error);
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
    if (a == base->job->storages.count || b == job->storages.count)
      return a == base->job->storages.count && b == job->storages.count;
    const hri_storage *x = &base->job->storages.items[a], *y = &job->storages.items[b];
    if (x->tier != y->tier || x->bytes != y->bytes || base->placement->offsets[a] != placement->offsets[b] ||
        strcmp(hri_name_get(base->job, x->key), hri_name_get(job, y->key)) != 0)
      return false;
  }
}

hr_status hri_executor_prepare_beside(const hri_executor *base, const hri_job *job, const hri_placement *placement,
                                      uint16_t programs, hri_executor **executor, hr_error *error) {
  for (int tier = 0; tier < HRI_TIER_COUNT; tier++)
    if (placement->peak_bytes[tier] > hri_round_up(base->placement->peak_bytes[tier], base->backend->granule))
      return hri_fail(error, HR_ERROR_INTERNAL, "a job does not fit beside another one into its arenas");
  if (!carries_the_same(base, job, placement))
    return hri_fail(error, HR_ERROR_INTERNAL, "two jobs that share arenas carry different storages");
  return prepare(job, placement, base->backend, base->transfer, &base->options, programs, base, executor, error);
}

hr_status hri_executor_create_beside(const hri_executor *base, const hri_job *job, const hri_placement *placement,
                                     uint16_t programs, hri_executor **executor, hr_error *error) {
  return reserve_prepared(hri_executor_prepare_beside(base, job, placement, programs, executor, error), executor,
                          error);
}

void hri_executor_destroy(hri_executor *x) {
  if (!x) return;
  x->backend->release(x->run);
  for (int kind = 0; x->cares && kind < HRI_PROGRAM_COUNT; kind++) hri_array_free(&x->cares[kind].list);
  hri_free(x->cares);
  hri_free(x);
}

/* ---- the control block ---- */

const hri_control *hri_executor_control(const hri_executor *x) { return &x->board->image; }

void hri_executor_control_set(hri_executor *x, size_t offset, const void *value, size_t bytes) {
  assert(offset % FIELD_BYTES == 0 && bytes % FIELD_BYTES == 0 && offset + bytes <= sizeof(hri_control));
  memcpy((unsigned char *)&x->board->image + offset, value, bytes);
  for (size_t field = offset / FIELD_BYTES; field < (offset + bytes) / FIELD_BYTES; field++)
    x->board->set |= UINT64_C(1) << field;
}

/* Writes what the host set, neighbours in one piece: the fields between are the programs'. */
static hr_status write_control(hri_executor *x, hr_error *error) {
  board *b = x->board;
  if (!hri_executor_has(x, x->job->control)) return HR_OK; /* no node of the job touches it: it has no place */
  for (size_t field = 0; field < FIELDS; field++) {
    size_t end = field;
    while (end < FIELDS && b->set >> end & 1) end++;
    if (end == field) continue;
    HRI_TRY(hri_executor_write(x, x->job->control, field * FIELD_BYTES,
                               (const unsigned char *)&b->image + field * FIELD_BYTES, (end - field) * FIELD_BYTES,
                               error));
    field = end;
  }
  b->set = 0;
  return HR_OK;
}

/* ---- running ---- */

hr_status hri_executor_launch(hri_executor *x, hri_program_kind program, hr_error *error) {
  hri_mark mark;
  if (!(x->programs & HRI_IN(program)))
    return hri_fail(error, HR_ERROR_INTERNAL, "this job has no program %s", hri_program_name(program));
  HRI_TRY(write_control(x, error));
  return x->backend->launch(x->run, program, &mark, error);
}

hr_status hri_executor_fetch(hri_executor *x, hri_control *to, hri_mark *mark, hr_error *error) {
  if (hri_executor_has(x, x->job->control))
    return x->backend->read(x->run, x->job->control, 0, to, sizeof *to, mark, error);
  *to = x->board->image; /* as the host left it */
  *mark = 0;
  return HR_OK;
}

hr_status hri_executor_wait(hri_executor *x, hri_mark mark, hr_error *error) {
  return x->backend->wait(x->run, mark, error);
}

hr_status hri_executor_run(hri_executor *x, hri_program_kind program, hr_error *error) {
  hri_control left;
  hri_mark mark;
  HRI_TRY(hri_executor_launch(x, program, error));
  HRI_TRY(hri_executor_fetch(x, &left, &mark, error));
  HRI_TRY(hri_executor_wait(x, mark, error));
  x->board->image = left;
  return HR_OK;
}

/* ---- tensors ---- */

bool hri_executor_has(const hri_executor *x, hri_id tensor) {
  const hri_storage_life *life = &x->placement->lives[x->job->tensors.items[tensor].storage];
  return life->begin <= life->end;
}

hr_status hri_executor_write(hri_executor *x, hri_id tensor, uint64_t offset, const void *from, uint64_t bytes,
                             hr_error *error) {
  assert(hri_executor_has(x, tensor));
  return x->backend->write(x->run, tensor, offset, from, bytes, error);
}

hr_status hri_executor_read(hri_executor *x, hri_id tensor, uint64_t offset, void *to, uint64_t bytes,
                            hr_error *error) {
  hri_mark mark;
  assert(hri_executor_has(x, tensor));
  HRI_TRY(x->backend->read(x->run, tensor, offset, to, bytes, &mark, error));
  return hri_executor_wait(x, mark, error);
}

void *hri_executor_view(const hri_executor *x, hri_id tensor) {
  assert(hri_executor_has(x, tensor));
  return x->backend->view(x->run, tensor);
}

uint64_t hri_executor_address(const hri_executor *x, hri_tier tier) { return x->backend->address(x->run, tier); }
uint64_t hri_executor_reserved_bytes(const hri_executor *x, hri_tier tier) {
  return x->backend->reserved_bytes(x->run, tier);
}
