/* The contract on a GPU (docs/cuda.md). Launches, writes and reads are queued in the stream of the compute lane and
 * return at once; a mark is an event. Arenas are one allocation of device memory and one of pinned memory, made once;
 * with them every program becomes a graph, so that the steady state makes nothing and waits for nothing. */
#include "backend/cuda/cuda.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/program.h"
#include "backend/cuda/watch.h"
#include "base/text.h"
#include "device/host.h"
#include "gpu/nvml.h"
#include "ops/cpu.h"

typedef struct cuda_backend {
  hri_backend contract; /* first: the one is the other */
  hri_cuda_parts parts;
  hri_cuda_ways ways;
  hri_cuda_watch watch;
} cuda_backend;

static cuda_backend *backend_of(const hri_cuda_run *run) {
  return (cuda_backend *)((const char *)run->parts - offsetof(cuda_backend, parts));
}

/* ---- planning ---- */

static hr_status workspace(void *self, const hri_job *job, const hri_node *node, uint64_t *bytes, hr_error *error) {
  return (void)self, hri_cuda_scratch(job, node, bytes, error);
}

/* What the process holds is the host's, not the device's. */
static uint64_t fixed_bytes(void *self, const hri_job *job, uint32_t shapes, uint64_t process_bytes) {
  (void)job, (void)shapes, (void)process_bytes;
  return ((const cuda_backend *)self)->contract.device.fixed_bytes;
}

static uint64_t pinned_bytes(void *self, const hri_job *job) { return (void)self, hri_cuda_pinned_bytes(job); }

/* ---- room ---- */

static hr_status refuse(uint64_t bytes, uint64_t available, const char *where, const char *hint, hr_error *error) {
  char need[32], left[32];
  (void)hri_fail(error, HR_ERROR_BUDGET, "the job needs %s of %s, which has %s free", hri_size_text(bytes, need), where,
                 hri_size_text(available, left));
  if (error) error->requested_bytes = bytes, error->available_bytes = available;
  return hri_hint(error, HR_ERROR_BUDGET, "%s", hint);
}

/* Once a second is often enough for what is only told. */
static const hri_nvml_memory *now_held(cuda_backend *b) { return hri_cuda_watch_ask(&b->watch, 1); }
static uint64_t held_bytes(void *self) { return now_held(self)->own_bytes; }
static uint64_t free_bytes(void *self) {
  hri_gpu *gpu = ((cuda_backend *)self)->parts.gpu;
  hri_gpu_info info;
  return gpu->calls->info(gpu, &info, NULL) == HR_OK ? info.free_bytes : 0;
}

static bool grown_bytes(void *self, uint64_t *bytes, char *text, uint32_t text_bytes) {
  return hri_cuda_watch_grown(&((const cuda_backend *)self)->watch, bytes, text, text_bytes);
}

static void put_ways(const void *self, hri_json_writer *writer) {
  hri_cuda_ways_put(&((const cuda_backend *)self)->ways, writer);
}
static hr_status take_ways(void *self, const hri_json *array, hr_error *error) {
  return hri_cuda_ways_take(&((cuda_backend *)self)->ways, array, error);
}

enum { NEAR_LIMIT = 64 << 20 };

static bool near_limit(void *self, char *text, uint32_t text_bytes) {
  const hri_nvml_memory *m = now_held(self);
  char holders[400], size[32];
  if (m->total_bytes == 0 || m->free_bytes >= NEAR_LIMIT) return false;
  (void)hri_nvml_holders_text(m, holders, sizeof holders);
  (void)snprintf(text, text_bytes, "the device has only %s free%s%s", hri_size_text(m->free_bytes, size),
                 holders[0] ? "; others on it: " : "", holders);
  return true;
}

/* Of the device what is free now: other processes may have taken some since the plan was made. */
static hr_status check_device(cuda_backend *b, uint64_t bytes, hr_error *error) {
  char holders[400], hint[480];
  hri_nvml_memory memory;
  hri_gpu_info info;
  HRI_TRY(b->parts.gpu->calls->info(b->parts.gpu, &info, error));
  if (bytes <= info.free_bytes) return HR_OK;
  (void)hri_nvml_ask(b->watch.nvml, &memory);
  (void)hri_nvml_holders_text(&memory, holders, sizeof holders);
  (void)snprintf(hint, sizeof hint, "other processes hold the rest%s%s: end them, or take a smaller budget",
                 holders[0] ? ": " : "", holders);
  return refuse(bytes, info.free_bytes, info.name, hint, error);
}

static hr_status check_room(void *self, const uint64_t arena_bytes[HRI_TIER_COUNT], bool prepared, uint64_t beside,
                            hr_error *error) {
  cuda_backend *b = self;
  uint64_t host = hri_round_up(arena_bytes[HRI_HOST], b->contract.granule) + beside;
  hri_host_memory memory = hri_host_memory_now();
  (void)prepared;
  HRI_TRY(check_device(b, hri_round_up(arena_bytes[HRI_DEVICE], b->contract.granule), error));
  if (host > memory.usable_bytes)
    return refuse(host, memory.usable_bytes, hri_host_limit_name(memory.limit), hri_host_limit_remedy(memory.limit),
                  error);
  return HR_OK;
}

/* ---- a run ---- */

static void release(void *run) {
  hri_cuda_run *r = run;
  if (!r) return;
  if (r->machine) {
    (void)hri_cuda_machine_finish(r->machine, NULL);
    hri_cuda_machine_forget(r->machine, r);
  }
  hri_cuda_programs_destroy(r);
  if (r->owns) hri_cuda_machine_destroy(r->machine);
  hri_free(r);
}

/* Everything that a plan was told of is asked once more, and each product's way chosen. */
static hr_status check_nodes(hri_cuda_run *r, hr_error *error) {
  const hri_job *job = r->work.job;
  for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++)
    for (size_t at = 0; (r->work.programs & HRI_IN(kind)) && at < job->programs[kind].order.count; at++)
      HRI_TRY(
          hri_cuda_prepare_node(r->parts, r->ways, job, &job->nodes.items[job->programs[kind].order.items[at]], error));
  return HR_OK;
}

static hr_status prepare_run(hri_cuda_run *r, hr_error *error) {
  const hri_cuda_run *beside = r->work.beside;
  uint32_t lanes = hri_cuda_work_lanes(&r->work);
  HRI_TRY(check_nodes(r, error));
  if (beside) {
    r->machine = beside->machine;
    HRI_TRY(hri_cuda_machine_lanes(r->machine, lanes, error));
  } else {
    r->owns = true;
    HRI_TRY(hri_cuda_machine_create(r->parts->gpu, lanes, hri_cuda_write_slot_bytes(r->work.job), &r->machine, error));
  }
  return hri_cuda_programs_prepare(r, error);
}

static hr_status prepare(void *self, const hri_work *work, void **run, hr_error *error) {
  cuda_backend *b = self;
  hri_cuda_run *r = hri_alloc_zero(1, sizeof *r);
  hr_status status;
  *run = NULL;
  if (!r) return hri_fail_memory(error, sizeof *r, "a run");
  r->parts = &b->parts;
  r->ways = &b->ways;
  r->work = *work;
  r->launch = (hri_cuda_launch){.parts = r->parts, .ways = r->ways, .job = work->job, .offsets = work->offsets};
  status = prepare_run(r, error);
  if (status == HR_OK) *run = r;
  else release(r);
  return status;
}

static hr_status reserve(void *run, hr_error *error) {
  hri_cuda_run *r = run;
  hri_cuda_machine *m = r->machine;
  cuda_backend *b = backend_of(r);
  if (r->owns)
    HRI_TRY(
        hri_cuda_machine_reserve(m, r->work.arena_bytes, b->contract.granule, r->work.cares ? HRI_POISON : 0, error));
  memcpy(r->launch.base, m->arenas, sizeof r->launch.base);
  HRI_TRY(hri_cuda_programs_capture(r, error));
  hri_cuda_watch_begin(&b->watch);
  return HR_OK;
}

static uint64_t reserved_bytes(const void *run, hri_tier tier) {
  const hri_cuda_run *r = run;
  return r->owns ? r->machine->bytes[tier] : 0;
}
static uint64_t address(const void *run, hri_tier tier) {
  return (uint64_t)(uintptr_t)((const hri_cuda_run *)run)->launch.base[tier];
}
static void *view(void *run, hri_id tensor) { return (void)run, (void)tensor, NULL; }

/* ---- running ---- */

static hr_status launch(void *run, hri_program_kind program, hri_mark *mark, hr_error *error) {
  hri_cuda_run *r = run;
  hri_cuda_machine *m = r->machine;
  hri_cuda_launched entry = {.run = r, .program = program};
  bool told;
  hri_cuda_watch_launched(&backend_of(r)->watch, program);
  HRI_TRY(hri_cuda_program_launch(r, program, &told, error));
  HRI_TRY(hri_cuda_machine_mark(m, mark, error));
  entry.mark = *mark;
  if (told || !r->work.after_node || hri_array_push(&m->launched, entry)) return HR_OK;
  return hri_fail_memory(error, sizeof entry, "a launch");
}

/* The part of a tensor that write and read move. */
static unsigned char *bytes_of(const hri_cuda_run *r, hri_id tensor, uint64_t offset, uint64_t bytes) {
  uint64_t whole = hri_tensor_bytes(&r->work.job->tensors.items[tensor]);
  assert(offset <= whole && bytes <= whole - offset);
  (void)whole, (void)bytes;
  return hri_cuda_pointer(&r->launch, tensor) + offset;
}

static hr_status write_bytes(void *run, hri_id tensor, uint64_t offset, const void *from, uint64_t bytes,
                             hr_error *error) {
  hri_cuda_run *r = run;
  return hri_cuda_machine_write(r->machine, bytes_of(r, tensor, offset, bytes), from, bytes, error);
}

static hr_status read_bytes(void *run, hri_id tensor, uint64_t offset, void *to, uint64_t bytes, hri_mark *mark,
                            hr_error *error) {
  hri_cuda_run *r = run;
  return hri_cuda_machine_read(r->machine, r, bytes_of(r, tensor, offset, bytes), to, bytes, mark, error);
}

/* Nodes of programs that ran as graphs: in issue order, without seconds. */
static void tell(const hri_cuda_launched *l) {
  const hri_work *w = &l->run->work;
  const hri_order *order = &w->job->programs[l->program].order;
  for (size_t at = 0; at < order->count; at++) w->after_node(w->context, w->job, order->items[at], NAN);
}

/* In check mode memory that grew is an error, where it is ours. */
static hr_status watch_memory(hri_cuda_run *r, hr_error *error) {
  hri_cuda_watch *w = &backend_of(r)->watch;
  char text[480];
  uint64_t bytes;
  hri_cuda_watch_look(w);
  if (!r->work.cares || !w->ours || !hri_cuda_watch_grown(w, &bytes, text, sizeof text) || bytes == 0) return HR_OK;
  return hri_fail(error, HR_ERROR_MISMATCH, "%s", text);
}

static hr_status wait_for(void *run, hri_mark mark, hr_error *error) {
  hri_cuda_machine *m = ((hri_cuda_run *)run)->machine;
  size_t over = 0;
  HRI_TRY(hri_cuda_machine_wait(m, mark, error));
  while (over < m->launched.count && m->launched.items[over].mark <= mark) tell(&m->launched.items[over++]);
  if (over)
    memmove(m->launched.items, m->launched.items + over, (m->launched.count - over) * sizeof *m->launched.items);
  m->launched.count -= over;
  return watch_memory(run, error);
}

/* ---- opening ---- */

static void shut(hri_backend *backend) {
  cuda_backend *b = (cuda_backend *)backend;
  hri_nvml_close(b->watch.nvml);
  b->parts.products->calls->close(b->parts.products);
  b->parts.gpu->calls->close(b->parts.gpu);
  hri_cuda_ways_deinit(&b->ways);
  hri_free(b);
}

/* Between file and window the host's own kernels work, of the lowest level: all levels have the same bits. */
static hri_elements host_elements(void) {
  hri_cpu_kernels k = {0};
  hri_move_kernels_base(&k);
  hri_quant_kernels_base(&k);
  return (hri_elements){.fill = k.fill,
                        .zero = k.zero,
                        .cast = k.cast,
                        .first_nonfinite = k.first_nonfinite,
                        .quantize = k.quantize};
}

static void describe(cuda_backend *b, const hr_device *device, const hri_gpu_info *info) {
  hri_backend *c = &b->contract;
  *c = (hri_backend){.name = HRI_CUDA_NAME,
                     .note = "the CUDA backend is tested on a GPU in software and has not run on a card yet "
                             "(docs/cuda.md): compare the first losses with those of --device cpu",
                     .team = 1,
                     .device = *device,
                     .granule = info->granule_bytes,
                     .staging_tier = HRI_HOST,
                     .ahead = 1,
                     .elements = host_elements(),
                     .self = b,
                     .workspace = workspace,
                     .fixed_bytes = fixed_bytes,
                     .pinned_bytes = pinned_bytes,
                     .held_bytes = held_bytes,
                     .grown_bytes = grown_bytes,
                     .epilogues = HRI_CUDA_EPILOGUES,
                     .put_ways = put_ways,
                     .take_ways = take_ways,
                     .free_bytes = free_bytes,
                     .near_limit = near_limit,
                     .check_room = check_room,
                     .prepare = prepare,
                     .reserve = reserve,
                     .release = release,
                     .reserved_bytes = reserved_bytes,
                     .address = address,
                     .view = view,
                     .launch = launch,
                     .write = write_bytes,
                     .read = read_bytes,
                     .wait = wait_for,
                     .close = shut};
  (void)snprintf(c->instruction_set, sizeof c->instruction_set, "sm_%u%u", info->major, info->minor);
  hri_cuda_libraries_text(b->parts.products->library, info, c->libraries);
  (void)snprintf(c->products.text, sizeof c->products.text, "%s", b->parts.products->library);
}

hr_status hri_cuda_open_on(const hr_device *device, const hri_cuda_parts *parts, hri_backend **backend,
                           hr_error *error) {
  cuda_backend *b = hri_alloc_zero(1, sizeof *b);
  hri_gpu_info info;
  hr_status status;
  *backend = NULL;
  if (!b) return hri_fail_memory(error, sizeof *b, "the CUDA backend");
  b->parts = *parts;
  status = parts->gpu->calls->info(parts->gpu, &info, error);
  if (status != HR_OK) {
    hri_free(b);
    return status;
  }
  b->watch.gpu = parts->gpu;
  b->watch.nvml = hri_nvml_open(info.uuid);
  describe(b, device, &info);
  *backend = &b->contract;
  return HR_OK;
}
