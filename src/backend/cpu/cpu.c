/* The contract on the CPU. A launch runs the nodes one after the other, in issue order, on the calling thread and its
 * team: when it returns all is done, every mark is 0, and a write or read is a memcpy. Arenas are memory of the
 * process, so a view is an address. */
#include "backend/cpu/cpu.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "backend/cpu/arena.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/room.h"
#include "backend/cpu/stored.h"
#include "base/float_env.h"
#include "ops/cpu.h"
#include "ops/demand.h"

typedef struct cpu_backend {
  hri_backend contract; /* first: the one is the other */
  hri_cpu *cpu;
  hr_products products;
  const uint32_t *positions; /* of the next launch; NULL: issue order */
} cpu_backend;

typedef struct cpu_run {
  cpu_backend *backend;
  hri_work work;
  hri_arena arenas[HRI_TIER_COUNT]; /* empty when they are another's */
  hri_launch launch;
  void **handles; /* per node */
} cpu_run;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- planning ---- */

static hr_status workspace(void *self, const hri_job *job, const hri_node *node, uint64_t *bytes, hr_error *error) {
  return hri_cpu_workspace(((cpu_backend *)self)->cpu, job, node, bytes, error);
}

static hr_status packing(void *self, const hri_job *job, const hri_node *node, uint64_t *bytes, bool *pays,
                         hr_error *error) {
  return hri_cpu_packing(((cpu_backend *)self)->cpu, job, node, bytes, pays, error);
}

static uint64_t fixed_bytes(void *self, const hri_job *job, uint32_t shapes, uint64_t process_bytes) {
  (void)job, (void)shapes; /* products hold no memory of their own */
  return ((const cpu_backend *)self)->contract.device.fixed_bytes + process_bytes;
}

/* ---- room ---- */

/* A budget may be larger than what there is: touching such an arena would end in the kernel's OOM killer. Before the
 * team runs its stacks count too; once everything is prepared the kernel itself is asked. */
static hr_status check_room(void *self, const uint64_t arena_bytes[HRI_TIER_COUNT], bool prepared, uint64_t beside,
                            hr_error *error) {
  const cpu_backend *b = self;
  uint64_t bytes = 0;
  for (int tier = 0; tier < HRI_TIER_COUNT; tier++)
    if (tier != HRI_DISK) bytes += hri_arena_round(arena_bytes[tier]);
  if (!prepared) return hri_room_check(bytes + hri_cpu_start_bytes(b->cpu), "the job", error);
  HRI_TRY(hri_room_check(bytes, "the job", error));
  return hri_room_prove(bytes + beside, "the job", error);
}

/* ---- a run ---- */

static void release(void *run) {
  cpu_run *r = run;
  if (!r) return;
  for (int tier = 0; tier < HRI_TIER_COUNT; tier++) hri_arena_release(&r->arenas[tier]);
  hri_free(r->handles);
  hri_free(r);
}

static hr_status prepare_nodes(cpu_run *r, hr_error *error) {
  const hri_job *job = r->work.job;
  HRI_TRY(hri_cpu_start(r->backend->cpu, error));
  for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++) {
    if (!(r->work.programs & HRI_IN(kind))) continue;
    for (size_t at = 0; at < job->programs[kind].order.count; at++) {
      hri_id id = job->programs[kind].order.items[at];
      HRI_TRY(hri_cpu_prepare(r->backend->cpu, job, &job->nodes.items[id], &r->handles[id], error));
    }
  }
  return HR_OK;
}

static hr_status prepare(void *self, const hri_work *work, void **run, hr_error *error) {
  cpu_run *r = hri_alloc_zero(1, sizeof *r);
  hr_status status = HR_OK;
  *run = NULL;
  if (!r) return hri_fail_memory(error, sizeof *r, "a run");
  r->backend = self;
  r->work = *work;
  r->launch = (hri_launch){.job = work->job, .offsets = work->offsets, .transfer = work->transfer};
  r->handles = hri_alloc_zero(work->job->nodes.count, sizeof *r->handles);
  if (!r->handles) status = hri_fail_memory(error, work->job->nodes.count * sizeof *r->handles, "prepared nodes");
  if (status == HR_OK) status = prepare_nodes(r, error);
  if (status == HR_OK) *run = r;
  else release(r);
  return status;
}

static hr_status reserve(void *run, hr_error *error) {
  cpu_run *r = run;
  const cpu_run *beside = r->work.beside;
  for (int tier = 0; tier < HRI_TIER_COUNT && !beside; tier++) {
    uint64_t bytes = r->work.arena_bytes[tier];
    assert(!r->launch.base[tier]); /* reserved once */
    if (bytes == 0) continue;
    HRI_TRY(hri_arena_reserve(&r->arenas[tier], bytes, hri_cpu_team(r->backend->cpu), NULL, error));
    r->launch.base[tier] = r->arenas[tier].base;
    if (r->work.cares) memset(r->launch.base[tier], HRI_POISON, bytes);
  }
  if (beside) memcpy(r->launch.base, beside->launch.base, sizeof r->launch.base);
  return HR_OK;
}

static uint64_t reserved_bytes(const void *run, hri_tier tier) { return ((const cpu_run *)run)->arenas[tier].bytes; }
static uint64_t address(const void *run, hri_tier tier) {
  return (uint64_t)(uintptr_t)((const cpu_run *)run)->launch.base[tier];
}

static void *view(void *run, hri_id tensor) { return hri_launch_pointer(&((cpu_run *)run)->launch, tensor); }

/* ---- check mode ---- */

static hr_status care(void *run, hri_program_kind program, const hri_care *c, hr_error *error) {
  const cpu_run *r = run;
  const hri_job *job = r->work.job;
  unsigned char *bytes = r->launch.base[job->storages.items[c->storage].tier] + r->work.offsets[c->storage] + c->begin;
  if (c->kind != HRI_VERIFY_AFTER) {
    memset(bytes, HRI_POISON, c->bytes);
    return HR_OK;
  }
  for (uint64_t k = 0; k < c->bytes; k++)
    if (bytes[k] != HRI_POISON) return hri_care_broken(job, program, c, k, error);
  return HR_OK;
}

/* ---- running ---- */

static hr_status run_node(cpu_run *r, hri_id id, hr_error *error) {
  const hri_node *node = &r->work.job->nodes.items[id];
  hri_id guard = hri_node_guard(r->work.job, node);
  double start = r->work.after_node ? now() : 0;
  bool skipped = guard != HRI_NONE && *(const double *)hri_launch_pointer(&r->launch, guard) != 0;
  if (!skipped) HRI_TRY(hri_cpu_run(r->backend->cpu, &r->launch, node, r->handles[id], error));
  if (r->work.after_node) r->work.after_node(r->work.context, r->work.job, id, now() - start);
  return HR_OK;
}

static hr_status launch_nodes(cpu_run *r, hri_program_kind program, hr_error *error) {
  const hri_program *p = &r->work.job->programs[program];
  const uint32_t *positions = r->backend->positions;
  hri_carer carer = {.cares = r->work.cares && !positions ? &r->work.cares[program] : NULL,
                     .program = program,
                     .run = r,
                     .take = care};
  assert(r->work.programs & HRI_IN(program));
  r->backend->positions = NULL;
  for (uint32_t k = 0; k < p->order.count; k++) {
    HRI_TRY(hri_take_care(&carer, k, true, error));
    HRI_TRY(run_node(r, p->order.items[positions ? positions[k] : k], error));
    HRI_TRY(hri_take_care(&carer, k, false, error));
  }
  return HR_OK;
}

/* What a node computes outside loops of the team has the bits of every host too. */
static hr_status launch(void *run, hri_program_kind program, hri_mark *mark, hr_error *error) {
  const hri_float_env before = hri_float_enter();
  hr_status status = launch_nodes(run, program, error);
  hri_float_leave(before);
  *mark = 0;
  return status;
}

/* The part of a tensor that write and read move. */
static unsigned char *bytes_of(const cpu_run *r, hri_id tensor, uint64_t offset, uint64_t bytes) {
  assert(offset <= hri_tensor_bytes(&r->work.job->tensors.items[tensor]) &&
         bytes <= hri_tensor_bytes(&r->work.job->tensors.items[tensor]) - offset);
  (void)bytes;
  return (unsigned char *)hri_launch_pointer(&r->launch, tensor) + offset;
}

static hr_status write_bytes(void *run, hri_id tensor, uint64_t offset, const void *from, uint64_t bytes,
                             hr_error *error) {
  (void)error;
  memcpy(bytes_of(run, tensor, offset, bytes), from, bytes);
  return HR_OK;
}

static hr_status read_bytes(void *run, hri_id tensor, uint64_t offset, void *to, uint64_t bytes, hri_mark *mark,
                            hr_error *error) {
  (void)error;
  memcpy(to, bytes_of(run, tensor, offset, bytes), bytes);
  *mark = 0;
  return HR_OK;
}

static hr_status wait_for(void *run, hri_mark mark, hr_error *error) {
  (void)run, (void)mark, (void)error;
  assert(mark == 0);
  return HR_OK;
}

/* ---- opening ---- */

static void shut(hri_backend *backend) {
  cpu_backend *b = (cpu_backend *)backend;
  hri_cpu_destroy(b->cpu);
  hri_free(b);
}

static void describe(cpu_backend *b, const hr_device *device) {
  const hri_cpu_kernels *k = hri_cpu_table(b->cpu);
  hri_backend *c = &b->contract;
  hri_team *team = hri_cpu_team(b->cpu);
  uint32_t threads = (uint32_t)hri_team_threads(team);
  *c = (hri_backend){.name = HRI_CPU_NAME,
                     .team = threads,
                     .device = *device,
                     .granule = hri_arena_granule(),
                     .staging_tier = HRI_DEVICE,
                     .elements = {.team = team,
                                  .fill = k->fill,
                                  .zero = k->zero,
                                  .cast = k->cast,
                                  .first_nonfinite = k->first_nonfinite,
                                  .quantize = k->quantize},
                     .self = b,
                     .workspace = workspace,
                     .packing = packing,
                     .fixed_bytes = fixed_bytes,
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
  (void)snprintf(c->instruction_set, sizeof c->instruction_set, "%s", hri_isa_name(hri_cpu_level(b->cpu)));
  c->products = b->products;
  memcpy(c->libraries, b->products.text, sizeof c->libraries);
  if (c->device.rates.threads != threads) (void)hri_cpu_rates_load(&c->device, threads);
}

static hr_status choose_products(cpu_backend *b, const hr_device *device, hr_error *error) {
  hri_gemm_machine machine = {.level = hri_cpu_level(b->cpu), .pairs = hri_cpu_pairs()};
  HRI_TRY(hri_products_find(device->products, &machine, &b->products, error));
  hri_cpu_choose(b->cpu, &machine.table);
  return HR_OK;
}

hr_status hri_cpu_open(const hr_device *device, uint32_t threads, hri_backend **out, hr_error *error) {
  cpu_backend *b = hri_alloc_zero(1, sizeof *b);
  hr_status status;
  if (!b) return hri_fail_memory(error, sizeof *b, "the CPU backend");
  status = hri_cpu_create(threads, &b->cpu, error);
  if (status == HR_OK) status = choose_products(b, device, error);
  if (status != HR_OK) {
    hri_cpu_destroy(b->cpu);
    hri_free(b);
    return status;
  }
  describe(b, device);
  *out = &b->contract;
  return HR_OK;
}

void hri_cpu_order_next(hri_backend *backend, const uint32_t *positions) {
  ((cpu_backend *)backend)->positions = positions;
}
hri_cpu *hri_cpu_of(const hri_backend *backend) { return ((const cpu_backend *)backend)->cpu; }
