/* A program has two ways to the device.
 *
 * A graph: every lane is a stream, a wait between lanes is an event, all lanes begin behind the compute lane's begin
 * and are joined to it at the end. It is captured once and launched as one.
 *
 * Node by node in issue order, in the compute lane's stream: programs that move files or make tables (the host works
 * between nodes), check mode (which looks at bytes between nodes) and measured runs. Issue order is one legal order of
 * any program.
 *
 * A measured node lies between two events that note the device's time. The host waits for a node when the next one is
 * queued behind it, so the device goes on while the host looks, and what is measured is the device's time, not the way
 * of a word from there to the host. */
#include "backend/cuda/program.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "ops/demand.h"
#include "gpu/nvtx.h"
#include "ops/pointwise/rope_table.h"
#include "ops/rules.h"

static const hri_node *node_at(const hri_cuda_run *r, hri_program_kind program, size_t at) {
  const hri_job *job = r->work.job;
  return &job->nodes.items[job->programs[program].order.items[at]];
}
static size_t node_count(const hri_cuda_run *r, hri_program_kind program) {
  return r->work.job->programs[program].order.count;
}
static bool launched(const hri_work *work, int program) {
  return (work->programs & HRI_IN(program)) && work->job->programs[program].present;
}

uint32_t hri_cuda_work_lanes(const hri_work *work) {
  uint32_t lanes = 0;
  for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++) {
    const hri_order *order = &work->job->programs[kind].order;
    for (size_t at = 0; launched(work, kind) && at < order->count; at++)
      lanes |= 1u << work->job->nodes.items[order->items[at]].lane;
  }
  return lanes;
}

/* ---- events ---- */

static hr_status prepare_node(hri_cuda_run *r, const hri_node *node, hr_error *error) {
  hri_gpu *gpu = r->parts->gpu;
  for (uint32_t w = 0; w < node->wait_count; w++) {
    const hri_wait *wait = &r->work.job->waits.items[node->wait_begin + w];
    if (wait->lane == node->lane || r->done[wait->node]) continue;
    HRI_TRY(gpu->calls->event_create(gpu, &r->done[wait->node], error));
  }
  return HR_OK;
}

hr_status hri_cuda_programs_prepare(hri_cuda_run *r, hr_error *error) {
  hri_gpu *gpu = r->parts->gpu;
  r->done = hri_alloc_zero(r->work.job->nodes.count, sizeof(hri_gpu_event *));
  if (!r->done) return hri_fail_memory(error, r->work.job->nodes.count * sizeof(hri_gpu_event *), "events of nodes");
  HRI_TRY(gpu->calls->event_create(gpu, &r->begun, error));
  for (uint32_t lane = 0; lane < HRI_LANE_COUNT; lane++) HRI_TRY(gpu->calls->event_create(gpu, &r->ended[lane], error));
  for (uint32_t k = 0; r->work.times && k < HRI_CUDA_TIMED; k++) {
    HRI_TRY(gpu->calls->event_create_timed(gpu, &r->node_begun[k], error));
    HRI_TRY(gpu->calls->event_create_timed(gpu, &r->node_over[k], error));
  }
  for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++)
    for (size_t at = 0; launched(&r->work, kind) && at < node_count(r, (hri_program_kind)kind); at++)
      HRI_TRY(prepare_node(r, node_at(r, (hri_program_kind)kind, at), error));
  return HR_OK;
}

void hri_cuda_programs_destroy(hri_cuda_run *r) {
  hri_gpu *gpu = r->parts->gpu;
  for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++) gpu->calls->graph_destroy(gpu, r->graphs[kind]);
  for (size_t k = 0; r->done && k < r->work.job->nodes.count; k++)
    if (r->done[k]) gpu->calls->event_destroy(gpu, r->done[k]);
  for (uint32_t k = 0; k < HRI_CUDA_TIMED; k++) {
    if (r->node_begun[k]) gpu->calls->event_destroy(gpu, r->node_begun[k]);
    if (r->node_over[k]) gpu->calls->event_destroy(gpu, r->node_over[k]);
  }
  if (r->begun) gpu->calls->event_destroy(gpu, r->begun);
  for (uint32_t lane = 0; lane < HRI_LANE_COUNT; lane++)
    if (r->ended[lane]) gpu->calls->event_destroy(gpu, r->ended[lane]);
  hri_free(r->done);
}

/* ---- as a graph ---- */

/* Lanes that have nodes in the program, but for the compute lane. */
static uint32_t side_lanes(const hri_cuda_run *r, hri_program_kind program) {
  uint32_t lanes = 0;
  for (size_t at = 0; at < node_count(r, program); at++) lanes |= 1u << node_at(r, program, at)->lane;
  return lanes & ~(1u << HRI_COMPUTE);
}

static hr_status queue_in_lane(hri_cuda_run *r, hri_id id, hr_error *error) {
  hri_gpu *gpu = r->parts->gpu;
  const hri_job *job = r->work.job;
  const hri_node *node = &job->nodes.items[id];
  for (uint32_t w = 0; w < node->wait_count; w++) {
    const hri_wait *wait = &job->waits.items[node->wait_begin + w];
    if (wait->lane == node->lane) continue; /* streams are in order */
    HRI_TRY(gpu->calls->wait(gpu, r->machine->lanes[node->lane], r->done[wait->node], error));
  }
  r->launch.stream = r->machine->lanes[node->lane];
  HRI_TRY(hri_cuda_queue(&r->launch, node, error));
  return r->done[id] ? gpu->calls->record(gpu, r->done[id], r->launch.stream, error) : HR_OK;
}

static hr_status queue_in_lanes(hri_cuda_run *r, hri_program_kind program, hr_error *error) {
  hri_gpu *gpu = r->parts->gpu;
  hri_gpu_stream *main = hri_cuda_main(r->machine);
  uint32_t side = side_lanes(r, program);
  HRI_TRY(gpu->calls->record(gpu, r->begun, main, error));
  for (uint32_t lane = 0; lane < HRI_LANE_COUNT; lane++)
    if (side >> lane & 1) HRI_TRY(gpu->calls->wait(gpu, r->machine->lanes[lane], r->begun, error));
  for (size_t at = 0; at < node_count(r, program); at++)
    HRI_TRY(queue_in_lane(r, r->work.job->programs[program].order.items[at], error));
  for (uint32_t lane = 0; lane < HRI_LANE_COUNT; lane++) {
    if (!(side >> lane & 1)) continue;
    HRI_TRY(gpu->calls->record(gpu, r->ended[lane], r->machine->lanes[lane], error));
    HRI_TRY(gpu->calls->wait(gpu, main, r->ended[lane], error));
  }
  return HR_OK;
}

/* A capture that failed half-way is ended all the same: the streams are to be of use again. Half a program is no graph of it. */
static hr_status capture(hri_cuda_run *r, hri_program_kind program, hr_error *error) {
  hri_gpu *gpu = r->parts->gpu;
  hri_gpu_stream *main = hri_cuda_main(r->machine);
  hri_gpu_graph *half;
  hr_status status;
  HRI_TRY(gpu->calls->capture_begin(gpu, main, error));
  status = queue_in_lanes(r, program, error);
  if (status == HR_OK) return gpu->calls->capture_end(gpu, main, &r->graphs[program], error);
  if (gpu->calls->capture_end(gpu, main, &half, NULL) != HR_OK) return status;
  (void)hri_cuda_machine_finish(r->machine, NULL); /* until it is uploaded */
  gpu->calls->graph_destroy(gpu, half);
  return status;
}

/* Also what the host looks at behind a node. */
static bool has_host_work(const hri_cuda_run *r, hri_program_kind program) {
  for (size_t at = 0; at < node_count(r, program); at++) {
    uint16_t op = node_at(r, program, at)->op;
    if (hri_cuda_is_host(op) || op == HRI_OP_QUANTIZE) return true;
  }
  return false;
}

/* One run of a program on zeros, which are ids of a vocabulary and positions of a row like others; the control block
 * says that one row counts. Work of the host is left out: it launches nothing. */
static hr_status warm_up_program(hri_cuda_run *r, hri_program_kind program, hr_error *error) {
  static const hri_control control = {.loss_scale = 1, .clip_scale = 1, .step = 1, .applied_steps = 1, .row_count = 1};
  hri_id tensor = r->work.job->control;
  if (tensor != HRI_NONE)
    HRI_TRY(hri_cuda_machine_write(r->machine, hri_cuda_pointer(&r->launch, tensor), &control, sizeof control, error));
  r->launch.stream = hri_cuda_main(r->machine);
  for (size_t at = 0; at < node_count(r, program); at++)
    if (!hri_cuda_is_host(node_at(r, program, at)->op))
      HRI_TRY(hri_cuda_queue(&r->launch, node_at(r, program, at), error));
  return hri_cuda_machine_finish(r->machine, error);
}

static hr_status fill_arenas(hri_cuda_run *r, uint8_t value, hr_error *error) {
  hri_gpu *gpu = r->parts->gpu;
  for (int tier = 0; tier < HRI_DISK; tier++)
    if (r->machine->bytes[tier])
      HRI_TRY(gpu->calls->fill(gpu, r->machine->arenas[tier], value, r->machine->bytes[tier], hri_cuda_main(r->machine),
                               error));
  return hri_cuda_machine_finish(r->machine, error);
}

static hr_status warm_up(hri_cuda_run *r, hr_error *error) {
  if (r->work.cares) HRI_TRY(fill_arenas(r, 0, error));
  for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++)
    if (launched(&r->work, kind)) HRI_TRY(warm_up_program(r, (hri_program_kind)kind, error));
  return fill_arenas(r, r->work.cares ? HRI_POISON : 0, error);
}

hr_status hri_cuda_programs_capture(hri_cuda_run *r, hr_error *error) {
  if (r->parts->gpu->calls->lazy) HRI_TRY(warm_up(r, error));
  if (r->work.cares || r->work.times) return HR_OK;
  for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++)
    if (launched(&r->work, kind) && !has_host_work(r, (hri_program_kind)kind))
      HRI_TRY(capture(r, (hri_program_kind)kind, error));
  return HR_OK;
}

/* ---- work of the host ---- */

/* A window on device memory. */
typedef struct window {
  hri_cuda_run *run;
  unsigned char *at;
} window;

/* What lies in pinned memory, as staging does, is copied from there; who hands it over has it back at once. */
static bool is_pinned(const hri_cuda_machine *m, const void *address, uint64_t bytes) {
  uintptr_t at = (uintptr_t)address, begin = (uintptr_t)m->arenas[HRI_HOST];
  return m->arenas[HRI_HOST] && at >= begin && at - begin <= m->bytes[HRI_HOST] &&
         bytes <= m->bytes[HRI_HOST] - (at - begin);
}

static hr_status put(void *context, uint64_t offset, const void *from, uint64_t bytes, hr_error *error) {
  const window *w = context;
  hri_cuda_machine *m = w->run->machine;
  if (!is_pinned(m, from, bytes)) return hri_cuda_machine_write(m, w->at + offset, from, bytes, error);
  HRI_TRY(m->gpu->calls->copy(m->gpu, w->at + offset, from, bytes, hri_cuda_main(m), error));
  return hri_cuda_machine_finish(m, error);
}

static hr_status get(void *context, uint64_t offset, void *to, uint64_t bytes, hr_error *error) {
  const window *w = context;
  hri_cuda_machine *m = w->run->machine;
  hri_mark mark;
  if (is_pinned(m, to, bytes)) {
    HRI_TRY(m->gpu->calls->copy(m->gpu, to, w->at + offset, bytes, hri_cuda_main(m), error));
    return hri_cuda_machine_finish(m, error);
  }
  HRI_TRY(hri_cuda_machine_read(m, w->run, w->at + offset, to, bytes, &mark, error));
  return hri_cuda_machine_wait(m, mark, error);
}

static hr_status transfer(hri_cuda_run *r, const hri_node *node, hr_error *error) {
  const hri_transfer *t = r->work.transfer;
  const hri_job *job = r->work.job;
  hri_id staging = hri_operand_find(job, node, HRI_SCRATCH, 0);
  window w = {r, hri_cuda_pointer(&r->launch, hri_operands(job, node)[0].tensor)};
  hri_window shown = {.context = &w, .put = put, .get = get};
  assert(job->storages.items[job->tensors.items[staging].storage].tier == HRI_HOST);
  return (node->op == HRI_OP_FILL ? t->fill : t->sink)(t->context, (uint32_t)node->attr.i[0], (uint32_t)node->attr.i[1],
                                                       &shown, hri_cuda_pointer(&r->launch, staging),
                                                       hri_tensor_bytes(&job->tensors.items[staging]), error);
}

/* Once per job, by the function that the CPU makes it with. */
static hr_status rope_table(hri_cuda_run *r, const hri_node *node, hr_error *error) {
  const hri_job *job = r->work.job;
  const hri_rope_source *source = &job->ropes.items[node->attr.i[2]];
  hri_id id = hri_operands(job, node)[0].tensor;
  uint64_t bytes = hri_tensor_bytes(&job->tensors.items[id]);
  float *table = hri_alloc(bytes);
  hr_status status;
  if (!table) return hri_fail_memory(error, bytes, "the rotary table");
  hri_rope_table(source->inverse, source->pairs, source->factor, node->attr.i[0], table,
                 table + bytes / sizeof *table / 2, NULL);
  status = hri_cuda_machine_write(r->machine, hri_cuda_pointer(&r->launch, id), table, bytes, error);
  hri_free(table);
  return status;
}

static hr_status run_on_host(hri_cuda_run *r, const hri_node *node, hr_error *error) {
  HRI_TRY(hri_cuda_machine_finish(r->machine, error));
  return node->op == HRI_OP_ROPE_TABLE ? rope_table(r, node, error) : transfer(r, node, error);
}

/* ---- quantized weights ---- */

static hr_status read_now(hri_cuda_run *r, const unsigned char *at, void *to, uint64_t bytes, hr_error *error) {
  hri_mark mark;
  HRI_TRY(hri_cuda_machine_read(r->machine, r, at, to, bytes, &mark, error));
  return hri_cuda_machine_wait(r->machine, mark, error);
}

/* Behind a QUANTIZE, while the weight is still there. */
static hr_status check_codes(hri_cuda_run *r, const hri_node *node, hr_error *error) {
  const hri_job *job = r->work.job;
  hri_id weight = hri_operands(job, node)[0].tensor;
  hri_real real = hri_dtype_real(job->tensors.items[weight].dtype);
  unsigned long long verdict;
  uint64_t element, value = 0;
  HRI_TRY(read_now(r, hri_cuda_pointer(&r->launch, hri_operand_find(job, node, HRI_SCRATCH, 0)), &verdict,
                   sizeof verdict, error));
  if (!hri_cuda_uncoded(verdict, &element)) return HR_OK;
  HRI_TRY(read_now(r, hri_cuda_pointer(&r->launch, weight) + element * hri_real_bytes(real), &value,
                   hri_real_bytes(real), error));
  return hri_demand_uncoded(job, node, element, hri_real_get(&value, 0, real), error);
}

/* ---- check mode ---- */

static hr_status verify(hri_cuda_run *r, hri_program_kind program, const hri_care *c, const unsigned char *at,
                        hr_error *error) {
  unsigned char got[HRI_CUDA_SLOT_BYTES / 64];
  for (uint64_t done = 0, part; done < c->bytes; done += part) {
    part = c->bytes - done < sizeof got ? c->bytes - done : sizeof got;
    HRI_TRY(read_now(r, at + done, got, part, error));
    for (uint64_t k = 0; k < part; k++)
      if (got[k] != HRI_POISON) return hri_care_broken(r->work.job, program, c, done + k, error);
  }
  return HR_OK;
}

static hr_status take_care(void *run, hri_program_kind program, const hri_care *c, hr_error *error) {
  hri_cuda_run *r = run;
  const hri_storage *s = &r->work.job->storages.items[c->storage];
  unsigned char *at = r->launch.base[s->tier] + r->work.offsets[c->storage] + c->begin;
  hri_gpu *gpu = r->parts->gpu;
  if (c->kind == HRI_VERIFY_AFTER) return verify(r, program, c, at, error);
  return gpu->calls->fill(gpu, at, HRI_POISON, c->bytes, hri_cuda_main(r->machine), error);
}

/* ---- node by node ---- */

static hr_status queue_node(hri_cuda_run *r, const hri_node *node, hr_error *error) {
  HRI_TRY(hri_cuda_is_host(node->op) ? run_on_host(r, node, error) : hri_cuda_queue(&r->launch, node, error));
  return node->op == HRI_OP_QUANTIZE ? check_codes(r, node, error) : HR_OK;
}

/* The node at a position, between its events where nodes are measured. */
static hr_status run_node(hri_cuda_run *r, const hri_order *order, uint32_t at, hr_error *error) {
  hri_gpu *gpu = r->parts->gpu;
  hri_gpu_stream *stream = r->launch.stream = hri_cuda_main(r->machine);
  const hri_node *node = &r->work.job->nodes.items[order->items[at]];
  hr_status status;
  if (!r->work.times) return queue_node(r, node, error);
  HRI_TRY(gpu->calls->record(gpu, r->node_begun[at % HRI_CUDA_TIMED], stream, error));
  hri_nvtx_push(hri_op_name(node->op));
  status = queue_node(r, node, error);
  hri_nvtx_pop();
  HRI_TRY(status);
  return gpu->calls->record(gpu, r->node_over[at % HRI_CUDA_TIMED], stream, error);
}

/* Of a node that was measured, once it is over. */
static hr_status tell_node(const hri_cuda_run *r, const hri_order *order, uint32_t at, hr_error *error) {
  hri_gpu *gpu = r->parts->gpu;
  hri_gpu_event *over = r->node_over[at % HRI_CUDA_TIMED];
  double seconds = NAN;
  if (r->work.times) {
    HRI_TRY(gpu->calls->event_finish(gpu, over, error));
    HRI_TRY(gpu->calls->event_seconds(gpu, r->node_begun[at % HRI_CUDA_TIMED], over, &seconds, error));
  }
  if (r->work.after_node) r->work.after_node(r->work.context, r->work.job, order->items[at], seconds);
  return HR_OK;
}

static hr_status run_nodes(hri_cuda_run *r, hri_program_kind program, hr_error *error) {
  const hri_order *order = &r->work.job->programs[program].order;
  hri_carer carer = {.cares = r->work.cares ? &r->work.cares[program] : NULL,
                     .program = program,
                     .run = r,
                     .take = take_care};
  for (uint32_t at = 0; at < order->count; at++) {
    HRI_TRY(hri_take_care(&carer, at, true, error));
    HRI_TRY(run_node(r, order, at, error));
    HRI_TRY(hri_take_care(&carer, at, false, error));
    if (at > 0) HRI_TRY(tell_node(r, order, at - 1, error));
  }
  return order->count ? tell_node(r, order, (uint32_t)order->count - 1, error) : HR_OK;
}

hr_status hri_cuda_program_launch(hri_cuda_run *r, hri_program_kind program, bool *told, hr_error *error) {
  hri_gpu *gpu = r->parts->gpu;
  hr_status status;
  assert(launched(&r->work, program));
  *told = r->graphs[program] == NULL;
  hri_nvtx_push(hri_program_name(program));
  status = *told ? run_nodes(r, program, error)
                 : gpu->calls->graph_launch(gpu, r->graphs[program], hri_cuda_main(r->machine), error);
  hri_nvtx_pop();
  return status;
}
