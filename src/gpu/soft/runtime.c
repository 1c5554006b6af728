/* Streams, events and graphs of the software GPU.
 *
 * Calls queue operations in lanes: a stream is one, and so is each further branch of a graph. A clock says of each lane how
 * many of its operations are known to be over; it grows with every wait. An operation carries the clock of its lane at the
 * time of the call, and may run when all that its clock names has run. That is exactly the order that CUDA promises, and
 * nothing more: whenever somebody waits, and now and then when something is queued, operations are drawn at random from
 * those that may run. The same clocks tell memory.c which accesses are ordered.
 *
 * A capture is the same with lanes of its own; launching the graph queues its operations with their clocks moved to where
 * the lanes of the device stand. */
#include "gpu/soft/runtime.h"

#include <assert.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "gpu/soft/memory.h"
#include "gpu/soft/shared.h"

enum { LANES = HRI_SOFT_LANES, BRANCHES = 16 };
#define DEFAULT_MEMORY (1ull << 30)
#define DEFAULT_SHARED (99u << 10)
#define GRID_X_LIMIT 2147483647u
#define GRID_Y_LIMIT 65535u

typedef enum work_kind { WORK_LAUNCH, WORK_COPY, WORK_FILL, WORK_STAMP } work_kind;

typedef struct work {
  work_kind kind;
  hri_soft_launch launch;
  bool owned; /* launch.context goes with it */
  hri_gpu_event *stamp;
  void *to;
  const void *from;
  uint64_t bytes;
  uint8_t value;
} work;

/* One operation in the queue of a lane, or in a graph (then `lane` is a branch, and the clock counts in branches). */
typedef struct queued {
  work work;
  uint32_t lane, number; /* the number-th of its lane, from 1 */
  uint32_t clock[LANES];
} queued;

typedef HRI_ARRAY(queued) queue;

typedef struct lane {
  bool used;
  uint32_t count, done; /* operations queued so far, and over */
  uint32_t clock[LANES];
  queue queue;
  size_t head;
} lane;

struct hri_gpu_stream {
  struct soft *gpu;
  uint32_t lane;
  struct hri_gpu_graph *capture; /* NULL: none */
  uint32_t branch;
};

struct hri_gpu_event {
  bool recorded;
  bool timed;
  uint32_t stamps;               /* of it that are queued */
  double at;                     /* when the last one was reached, by the clock of this machine */
  struct hri_gpu_graph *capture; /* the clock counts in its branches */
  uint32_t clock[LANES];
};

struct hri_gpu_graph {
  queue queue;
  uint32_t branches, count[BRANCHES];
  uint32_t clock[BRANCHES][LANES]; /* while it is captured */
  hri_gpu_stream *streams[BRANCHES];
  uint32_t lanes[BRANCHES]; /* of the device; [0] is unused: the stream of the launch */
};

typedef struct soft {
  hri_gpu gpu;
  hri_soft_memory *memory;
  hri_soft_report report;
  lane lanes[LANES];
  uint32_t host_clock[LANES]; /* what the host has waited for */
  uint64_t random, memory_bytes;
  uint32_t shared_bytes;
  void (*on_kernel)(const char *kernel);
} soft;

static bool is_open; /* block.c and shared.c have one block in the process */

static soft *of(hri_gpu *gpu) { return (soft *)(void *)gpu; }

static void raise_all(uint32_t *clock, const uint32_t *by) {
  for (int i = 0; i < LANES; i++)
    if (clock[i] < by[i]) clock[i] = by[i];
}

/* ---- carrying out ---- */

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void run_blocks(soft *s, const hri_soft_launch *l) {
  hri_soft_index at = {0, 0, 0};
  uint32_t number = 0;
  if (s->on_kernel) s->on_kernel(l->kernel);
  hri_soft_here.kernel = l->kernel;
  hri_soft_here.blocks = l->blocks;
  hri_soft_here.threads = l->threads;
  hri_soft_shared_launch(l->shared_bytes, s->shared_bytes);
  for (at.z = 0; at.z < l->blocks.z; at.z++)
    for (at.y = 0; at.y < l->blocks.y; at.y++)
      for (at.x = 0; at.x < l->blocks.x; at.x++) {
        hri_soft_here.block = at;
        hri_soft_here.number = ++number;
        if (!hri_soft_block_run(l->run, l->context, &s->random)) goto out; /* a finding says why */
      }
out:
  hri_soft_here.kernel = NULL;
  hri_soft_here.number = 0;
}

/* Bytes that a copy or fill touches; false after a finding. */
static bool touch(const void *address, uint64_t bytes, bool writes) {
  hri_soft_allocation *a = hri_soft_global_find(address);
  if (!a) return false;
  if ((uint64_t)((const unsigned char *)address - a->memory) + bytes > a->bytes) {
    hri_soft_find(HRI_SOFT_BOUNDS, "a copy or fill of %llu bytes at %p", (unsigned long long)bytes, address);
    return false;
  }
  if (writes) hri_soft_global_write(a, address, bytes);
  else hri_soft_global_read(a, address, bytes, false);
  return true;
}

static void carry_out(soft *s, const queued *q) {
  const work *w = &q->work;
  uint32_t operation = hri_soft_operation_add(s->memory, q->lane, q->number, q->clock);
  hri_soft_here.number = 1;
  hri_soft_operation_begin(s->memory, operation);
  switch (w->kind) {
  case WORK_LAUNCH: run_blocks(s, &w->launch); break;
  case WORK_COPY:
    if (touch(w->from, w->bytes, false) && touch(w->to, w->bytes, true)) memcpy(w->to, w->from, w->bytes);
    break;
  case WORK_FILL:
    if (touch(w->to, w->bytes, true)) memset(w->to, w->value, w->bytes);
    break;
  case WORK_STAMP:
    w->stamp->at = now();
    w->stamp->stamps--;
    break;
  }
  hri_soft_operation_begin(s->memory, 0);
  if (w->kind == WORK_LAUNCH && w->owned) w->launch.drop(w->launch.context);
}

static bool may_run(const soft *s, const queued *q) {
  for (uint32_t i = 0; i < LANES; i++)
    if (i != q->lane && s->lanes[i].done < q->clock[i]) return false;
  return true;
}

/* Carries out one operation that may run, drawn at random; false when there is none. */
static bool run_one(soft *s) {
  uint32_t candidates[LANES], count = 0;
  lane *l;
  queued q;
  for (uint32_t i = 0; i < LANES; i++)
    if (s->lanes[i].head < s->lanes[i].queue.count && may_run(s, &s->lanes[i].queue.items[s->lanes[i].head]))
      candidates[count++] = i;
  if (count == 0) return false;
  l = &s->lanes[candidates[hri_soft_draw(&s->random, count)]];
  q = l->queue.items[l->head++];
  carry_out(s, &q);
  l->done = q.number;
  if (l->head == l->queue.count) l->head = l->queue.count = 0;
  return true;
}

/* Until all that the clock names is over. */
static void finish(soft *s, const uint32_t *clock) {
  for (uint32_t i = 0; i < LANES; i++)
    while (s->lanes[i].done < clock[i]) {
      bool ran = run_one(s);
      assert(ran); /* clocks name only what was queued, and the first one queued of the rest may always run */
      if (!ran) return;
    }
  raise_all(s->host_clock, clock);
}

/* What was found is an error of whoever waits, from then on. */
static hr_status state_of(const soft *s, hr_error *error) {
  if (s->report.count == 0) return HR_OK;
  return hri_fail(error, HR_ERROR_INTERNAL, "%llu findings on the software GPU; the first: %s",
                  (unsigned long long)s->report.count, s->report.first);
}

/* ---- queueing ---- */

static hr_status no_memory(hr_error *error) {
  return hri_fail_memory(error, sizeof(queued), "an operation in a stream");
}

static hr_status capture_push(hri_gpu_stream *stream, const work *w, hr_error *error) {
  hri_gpu_graph *g = stream->capture;
  uint32_t b = stream->branch;
  queued q = {.work = *w, .lane = b, .number = g->count[b] + 1};
  memcpy(q.clock, g->clock[b], sizeof q.clock);
  if (!hri_array_push(&g->queue, q)) return no_memory(error);
  g->clock[b][b] = ++g->count[b];
  return HR_OK;
}

static hr_status lane_push(soft *s, queued q, hr_error *error) {
  lane *l = &s->lanes[q.lane];
  q.number = l->count + 1;
  if (!hri_array_push(&l->queue, q)) return no_memory(error);
  l->count++;
  l->clock[q.lane] = l->count;
  return HR_OK;
}

/* Sometimes work is done long before anybody waits for it, sometimes not. */
static void run_some(soft *s) {
  for (uint32_t n = hri_soft_draw(&s->random, 3); n > 0 && run_one(s); n--) continue;
}

static hr_status push(hri_gpu_stream *stream, const work *w, hr_error *error) {
  soft *s = stream->gpu;
  queued q = {.work = *w, .lane = stream->lane};
  if (stream->capture) return capture_push(stream, w, error);
  raise_all(s->lanes[q.lane].clock, s->host_clock);
  memcpy(q.clock, s->lanes[q.lane].clock, sizeof q.clock);
  HRI_TRY(lane_push(s, q, error));
  run_some(s);
  return HR_OK;
}

/* Why no card takes the launch; NULL when one does. */
static const char *refuse(const soft *s, const hri_soft_launch *l) {
  uint64_t threads = (uint64_t)l->threads.x * l->threads.y * l->threads.z;
  if (threads == 0 || threads > HRI_SOFT_THREADS || l->threads.z > 64) return "a block has 1 to 1024 threads";
  if (l->blocks.x == 0 || l->blocks.y == 0 || l->blocks.z == 0) return "there is no block";
  if (l->blocks.x > GRID_X_LIMIT || l->blocks.y > GRID_Y_LIMIT || l->blocks.z > GRID_Y_LIMIT)
    return "there are too many blocks";
  return l->shared_bytes > s->shared_bytes ? "a block has not that much shared memory" : NULL;
}

int hri_gpu_soft_launch(hri_gpu_stream *stream, const hri_soft_launch *launch) {
  work w = {.kind = WORK_LAUNCH, .launch = *launch, .owned = !stream->capture};
  const char *why = refuse(stream->gpu, launch);
  if (why) {
    hri_soft_find(HRI_SOFT_LAUNCH, "kernel %s, %u x %u x %u blocks of %u x %u x %u threads, %u bytes: %s",
                  launch->kernel, launch->blocks.x, launch->blocks.y, launch->blocks.z, launch->threads.x,
                  launch->threads.y, launch->threads.z, launch->shared_bytes, why);
  } else if (push(stream, &w, NULL) == HR_OK) {
    return 0;
  }
  launch->drop(launch->context);
  return -1;
}

/* ---- the calls ---- */

static hr_status soft_info(hri_gpu *gpu, hri_gpu_info *info, hr_error *error) {
  const soft *s = of(gpu);
  (void)error;
  *info = (hri_gpu_info){.name = "software GPU",
                         .major = 8,
                         .minor = 0,
                         .multiprocessors = 4,
                         .shared_bytes = s->shared_bytes,
                         .total_bytes = s->memory_bytes,
                         .granule_bytes = 4096,
                         .free_bytes = hri_soft_memory_free_bytes(s->memory)};
  return HR_OK;
}

static hr_status take(soft *s, uint64_t bytes, void **memory, bool host, hr_error *error) {
  uint64_t available = hri_soft_memory_free_bytes(s->memory);
  *memory = hri_soft_allocate(s->memory, bytes, host);
  if (*memory) return HR_OK;
  if (bytes == 0) return hri_fail(error, HR_ERROR_USAGE, "an allocation has at least one byte");
  if (host || bytes <= available) return hri_fail_memory(error, bytes, "memory of the software GPU");
  (void)hri_fail(error, HR_ERROR_MEMORY, "the device has %llu bytes free, not %llu", (unsigned long long)available,
                 (unsigned long long)bytes);
  if (error) error->requested_bytes = bytes, error->available_bytes = available;
  return HR_ERROR_MEMORY;
}

static hr_status soft_allocate(hri_gpu *gpu, uint64_t bytes, void **memory, hr_error *error) {
  return take(of(gpu), bytes, memory, false, error);
}
static hr_status soft_allocate_host(hri_gpu *gpu, uint64_t bytes, void **memory, hr_error *error) {
  return take(of(gpu), bytes, memory, true, error);
}

/* Does not wait: what is still queued and uses it is found to. */
static hr_status soft_release(hri_gpu *gpu, void *memory, hr_error *error) {
  if (!memory || hri_soft_release(of(gpu)->memory, memory)) return HR_OK;
  return hri_fail(error, HR_ERROR_INTERNAL, "%p is no allocation of this device, or was released", memory);
}

static bool take_lane(soft *s, uint32_t *index) {
  for (uint32_t i = 0; i < LANES; i++) {
    if (s->lanes[i].used) continue;
    s->lanes[i].used = true;
    *index = i;
    return true;
  }
  return false;
}

/* A lane is given again with its numbers going on, so that no clock means two things. */
static void give_lane(soft *s, uint32_t index) {
  finish(s, s->lanes[index].clock);
  hri_array_free(&s->lanes[index].queue);
  s->lanes[index].head = 0;
  s->lanes[index].used = false;
}

static hr_status soft_stream_create(hri_gpu *gpu, hri_gpu_stream **stream, hr_error *error) {
  hri_gpu_stream *made = hri_alloc_zero(1, sizeof *made);
  *stream = NULL;
  if (!made) return hri_fail_memory(error, sizeof *made, "a stream");
  made->gpu = of(gpu);
  if (take_lane(made->gpu, &made->lane)) {
    *stream = made;
    return HR_OK;
  }
  hri_free(made);
  return hri_fail(error, HR_ERROR_UNSUPPORTED, "the software GPU has %d streams and branches of graphs", LANES);
}

static void soft_stream_destroy(hri_gpu *gpu, hri_gpu_stream *stream) {
  if (!stream) return;
  give_lane(of(gpu), stream->lane);
  hri_free(stream);
}

static hr_status soft_stream_finish(hri_gpu *gpu, hri_gpu_stream *stream, hr_error *error) {
  soft *s = of(gpu);
  if (stream->capture) return hri_fail(error, HR_ERROR_INTERNAL, "a stream that is captured cannot be waited for");
  finish(s, s->lanes[stream->lane].clock);
  return state_of(s, error);
}

static hr_status soft_event_create(hri_gpu *gpu, hri_gpu_event **event, hr_error *error) {
  (void)gpu;
  *event = hri_alloc_zero(1, sizeof **event);
  return *event ? HR_OK : hri_fail_memory(error, sizeof **event, "an event");
}

static hr_status soft_event_create_timed(hri_gpu *gpu, hri_gpu_event **event, hr_error *error) {
  HRI_TRY(soft_event_create(gpu, event, error));
  (*event)->timed = true;
  return HR_OK;
}

/* A stamp is an operation of its stream like others; the event outlives it. */
static void soft_event_destroy(hri_gpu *gpu, hri_gpu_event *event) {
  if (event && event->stamps) finish(of(gpu), event->clock);
  hri_free(event);
}

static hr_status queue_stamp(hri_gpu_event *event, hri_gpu_stream *stream, hr_error *error) {
  work w = {.kind = WORK_STAMP, .stamp = event};
  hr_status status;
  if (stream->capture) return hri_fail(error, HR_ERROR_INTERNAL, "a timed event is not recorded in a capture");
  event->stamps++; /* it may be reached at once */
  status = push(stream, &w, error);
  if (status != HR_OK) event->stamps--;
  return status;
}

static hr_status soft_record(hri_gpu *gpu, hri_gpu_event *event, hri_gpu_stream *stream, hr_error *error) {
  const uint32_t *clock = of(gpu)->lanes[stream->lane].clock;
  if (event->timed) HRI_TRY(queue_stamp(event, stream, error));
  if (stream->capture) clock = stream->capture->clock[stream->branch];
  event->recorded = true;
  event->capture = stream->capture;
  memcpy(event->clock, clock, sizeof event->clock);
  return HR_OK;
}

/* The stream becomes a branch of the capture that the event is of. */
static hr_status join_capture(hri_gpu_stream *stream, hri_gpu_graph *g, hr_error *error) {
  if (g->branches == BRANCHES)
    return hri_fail(error, HR_ERROR_UNSUPPORTED, "the software GPU has %d branches in a graph", BRANCHES);
  stream->capture = g;
  stream->branch = g->branches++;
  g->streams[stream->branch] = stream;
  return HR_OK;
}

static hr_status soft_wait(hri_gpu *gpu, hri_gpu_stream *stream, hri_gpu_event *event, hr_error *error) {
  soft *s = of(gpu);
  if (!event->recorded) return HR_OK; /* as CUDA has it */
  if (!event->capture && !stream->capture) {
    raise_all(s->lanes[stream->lane].clock, event->clock);
    return HR_OK;
  }
  if (!event->capture || (stream->capture && stream->capture != event->capture))
    return hri_fail(error, HR_ERROR_INTERNAL, "a captured stream waits for an event from outside of its capture");
  if (!stream->capture) HRI_TRY(join_capture(stream, event->capture, error));
  raise_all(stream->capture->clock[stream->branch], event->clock);
  return HR_OK;
}

static hr_status soft_event_finish(hri_gpu *gpu, hri_gpu_event *event, hr_error *error) {
  if (event->capture) return hri_fail(error, HR_ERROR_INTERNAL, "an event of a capture cannot be waited for");
  if (event->recorded) finish(of(gpu), event->clock);
  return state_of(of(gpu), error);
}

static hr_status soft_event_seconds(hri_gpu *gpu, hri_gpu_event *begin, hri_gpu_event *end, double *seconds,
                                    hr_error *error) {
  (void)gpu;
  *seconds = end->at - begin->at;
  if (!begin->timed || !end->timed) return hri_fail(error, HR_ERROR_INTERNAL, "an event has no time");
  if (begin->recorded && end->recorded && !begin->stamps && !end->stamps) return HR_OK;
  return hri_fail(error, HR_ERROR_INTERNAL, "an event whose time is asked for is not over");
}

/* What the driver would take for pageable memory is refused: a copy of it is not queued but done at once. */
static hr_status known(soft *s, const void *address, hr_error *error) {
  if (hri_soft_memory_find(s->memory, address)) return HR_OK;
  return hri_fail(error, HR_ERROR_INTERNAL, "%p is neither memory of the device nor pinned memory of the host",
                  address);
}

static hr_status soft_copy(hri_gpu *gpu, void *to, const void *from, uint64_t bytes, hri_gpu_stream *stream,
                           hr_error *error) {
  work w = {.kind = WORK_COPY, .to = to, .from = from, .bytes = bytes};
  if (bytes == 0) return HR_OK;
  HRI_TRY(known(of(gpu), to, error));
  HRI_TRY(known(of(gpu), from, error));
  return push(stream, &w, error);
}

static hr_status soft_fill(hri_gpu *gpu, void *to, uint8_t value, uint64_t bytes, hri_gpu_stream *stream,
                           hr_error *error) {
  work w = {.kind = WORK_FILL, .to = to, .value = value, .bytes = bytes};
  if (bytes == 0) return HR_OK;
  HRI_TRY(known(of(gpu), to, error));
  return push(stream, &w, error);
}

static hr_status soft_capture_begin(hri_gpu *gpu, hri_gpu_stream *stream, hr_error *error) {
  hri_gpu_graph *g;
  (void)gpu;
  if (stream->capture) return hri_fail(error, HR_ERROR_INTERNAL, "the stream is captured already");
  g = hri_alloc_zero(1, sizeof *g);
  if (!g) return hri_fail_memory(error, sizeof *g, "a graph");
  return join_capture(stream, g, error);
}

static void soft_graph_destroy(hri_gpu *gpu, hri_gpu_graph *g) {
  if (!g) return;
  for (uint32_t b = 0; b < g->branches; b++)
    if (g->lanes[b] < LANES) give_lane(of(gpu), g->lanes[b]);
  for (size_t i = 0; i < g->queue.count; i++)
    if (g->queue.items[i].work.kind == WORK_LAUNCH)
      g->queue.items[i].work.launch.drop(g->queue.items[i].work.launch.context);
  hri_array_free(&g->queue);
  hri_free(g);
}

static hr_status soft_capture_end(hri_gpu *gpu, hri_gpu_stream *stream, hri_gpu_graph **graph, hr_error *error) {
  hri_gpu_graph *g = stream->capture;
  hr_status status = HR_OK;
  *graph = NULL;
  if (!g || g->streams[0] != stream) return hri_fail(error, HR_ERROR_INTERNAL, "no capture began in this stream");
  for (uint32_t b = 0; b < g->branches; b++) {
    g->streams[b]->capture = NULL;
    g->lanes[b] = LANES;
    if (g->clock[0][b] < g->count[b])
      status = hri_fail(error, HR_ERROR_INTERNAL, "a stream of the capture was not joined to its beginning");
  }
  for (uint32_t b = 1; status == HR_OK && b < g->branches; b++)
    if (!take_lane(of(gpu), &g->lanes[b]))
      status = hri_fail(error, HR_ERROR_UNSUPPORTED, "the software GPU has %d streams and branches of graphs", LANES);
  if (status == HR_OK) *graph = g;
  else soft_graph_destroy(gpu, g);
  return status;
}

/* The clock of an operation of a graph: what its stream knew at the launch, and its branches from where they stood. */
static void place_clock(uint32_t *clock, const hri_gpu_graph *g, const uint32_t *lanes, const uint32_t *base,
                        const uint32_t *branch_clock) {
  for (uint32_t b = 0; b < g->branches; b++)
    if (branch_clock[b] && clock[lanes[b]] < base[b] + branch_clock[b]) clock[lanes[b]] = base[b] + branch_clock[b];
}

static hr_status soft_graph_launch(hri_gpu *gpu, hri_gpu_graph *g, hri_gpu_stream *stream, hr_error *error) {
  soft *s = of(gpu);
  lane *l = &s->lanes[stream->lane];
  uint32_t lanes[BRANCHES], base[BRANCHES], before[LANES], joined[LANES] = {0};
  if (stream->capture) return hri_fail(error, HR_ERROR_UNSUPPORTED, "a graph is not launched into a capture");
  raise_all(l->clock, s->host_clock);
  for (uint32_t b = 0; b < g->branches; b++) { /* one launch of a graph at a time, as CUDA has it */
    lanes[b] = b ? g->lanes[b] : stream->lane;
    base[b] = s->lanes[lanes[b]].count;
    raise_all(l->clock, s->lanes[lanes[b]].clock);
  }
  memcpy(before, l->clock, sizeof before);
  for (size_t i = 0; i < g->queue.count; i++) {
    queued q = g->queue.items[i];
    uint32_t branch_clock[LANES];
    memcpy(branch_clock, q.clock, sizeof branch_clock);
    memcpy(q.clock, before, sizeof q.clock);
    place_clock(q.clock, g, lanes, base, branch_clock);
    q.lane = lanes[q.lane];
    HRI_TRY(lane_push(s, q, error));
  }
  place_clock(joined, g, lanes, base, g->clock[0]);
  raise_all(l->clock, joined);
  run_some(s);
  return HR_OK;
}

static void soft_close(hri_gpu *gpu) {
  soft *s = of(gpu);
  if (!s) return;
  for (uint32_t i = 0; i < LANES; i++) {
    assert(!s->lanes[i].used);
    hri_array_free(&s->lanes[i].queue);
  }
  hri_soft_memory_destroy(s->memory);
  hri_soft_report_to(NULL);
  is_open = false;
  hri_free(s);
}

static const hri_gpu_calls calls = {.close = soft_close,
                                    .info = soft_info,
                                    .allocate = soft_allocate,
                                    .release = soft_release,
                                    .allocate_host = soft_allocate_host,
                                    .release_host = soft_release,
                                    .stream_create = soft_stream_create,
                                    .stream_destroy = soft_stream_destroy,
                                    .stream_finish = soft_stream_finish,
                                    .event_create = soft_event_create,
                                    .event_create_timed = soft_event_create_timed,
                                    .event_destroy = soft_event_destroy,
                                    .record = soft_record,
                                    .wait = soft_wait,
                                    .event_finish = soft_event_finish,
                                    .event_seconds = soft_event_seconds,
                                    .copy = soft_copy,
                                    .fill = soft_fill,
                                    .capture_begin = soft_capture_begin,
                                    .capture_end = soft_capture_end,
                                    .graph_launch = soft_graph_launch,
                                    .graph_destroy = soft_graph_destroy};

const hri_soft_report *hri_gpu_soft_report(const hri_gpu *gpu) { return &((const soft *)(const void *)gpu)->report; }

hr_status hri_gpu_soft_open(const hri_gpu_soft_options *options, hri_gpu **gpu, hr_error *error) {
  hri_gpu_soft_options none = {0};
  soft *s;
  *gpu = NULL;
  if (!options) options = &none;
  if (is_open) return hri_fail(error, HR_ERROR_UNSUPPORTED, "a process has one software GPU at a time");
  s = hri_alloc_zero(1, sizeof *s);
  if (!s) return hri_fail_memory(error, sizeof *s, "the software GPU");
  s->gpu.calls = &calls;
  s->memory_bytes = options->memory_bytes ? options->memory_bytes : DEFAULT_MEMORY;
  s->shared_bytes = options->shared_bytes ? options->shared_bytes : DEFAULT_SHARED;
  s->on_kernel = options->on_kernel;
  s->random = options->seed * 0x9E3779B97F4A7C15u + 0x632BE59BD9B4E019u;
  if (s->random == 0) s->random = 1; /* the one number that xorshift keeps */
  s->memory = hri_soft_memory_create(s->memory_bytes);
  if (!s->memory || !hri_soft_block_init() || s->shared_bytes > HRI_SOFT_SHARED_BYTES) {
    hri_soft_memory_destroy(s->memory);
    hri_free(s);
    return hri_fail_memory(error, HRI_FIBER_STACK_BYTES * (uint64_t)HRI_SOFT_THREADS, "threads of the software GPU");
  }
  is_open = true;
  hri_soft_report_to(&s->report);
  *gpu = &s->gpu;
  return HR_OK;
}
