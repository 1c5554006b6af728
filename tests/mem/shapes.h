/* Snapshots of many shapes and any number of events, for tests and benchmarks of what work on them costs: programs that ask our own
 * allocator for memory, and keep what PyTorch would record of it. The last request of each fails. */
#ifndef TEST_SHAPES_H
#define TEST_SHAPES_H

#include <headroom/alloc.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/build.h"

#define SHAPES_MIB ((uint64_t)1 << 20)
#define SHAPES_GIB ((uint64_t)1 << 30)

enum { SHAPES_PHASES = 9, SHAPES_OUTER = 5, SHAPES_NATIVE = 120, SHAPES_NONE = -1 };

typedef struct shaped_block {
  uint64_t addr, size; /* size 0: freed */
  uint32_t stack;
} shaped_block;

typedef struct shaped {
  hri_snapshot_builder b;
  hr_alloc *alloc;
  HRI_ARRAY(shaped_block) blocks;
  HRI_ARRAY(uint64_t) unused;          /* of blocks */
  uint64_t events, made, silent;       /* how many there are to be; so far; of those the first ones that are lost */
  uint64_t capacity, reserved, next;   /* of the device; its next address */
  uint64_t random, stream, pool_first; /* of the request at hand */
  uint32_t stack, pool, steps;         /* of the request at hand; steps that ended */
  uint32_t native[SHAPES_NATIVE];      /* frames of C++, plus one; 0: not made yet */
  int64_t now_us;
  bool stackless, scattered,
      stays; /* scattered: the device gives addresses in no order; stays: the last request comes from where the one before it came from */
} shaped;

static inline uint64_t shaped_dice(shaped *w, uint64_t sides) {
  w->random = w->random * 6364136223846793005u + 1442695040888963407u;
  return (w->random >> 33) % sides;
}

static inline bool shaped_goes_on(const shaped *w) { return w->made < w->events; }

/* ---- what is recorded ---- */

static inline void shaped_event(shaped *w, hr_trace_action action, uint64_t addr, uint64_t size) {
  hr_trace_event e = {.addr = addr, .size = size, .stream = w->stream, .action = (uint8_t)action};
  e.flags = HR_EVENT_HAS_TIME;
  e.time_us = w->now_us += 3;
  e.stack = w->stackless ? 0 : w->stack;
  e.pool = w->pool;
  if (w->made++ >= w->silent) (void)hri_snapshot_add_event(&w->b, &e);
}

static inline void shaped_mark(shaped *w, const char *name, bool end) {
  const hr_annotation a = {.time_us = w->now_us + 1,
                           .name = hri_snapshot_add_string(&w->b, name, strlen(name)),
                           .end = end};
  w->now_us += 2;
  (void)hri_snapshot_add_annotation(&w->b, &a);
}

/* ---- the device ---- */

static inline uint64_t shaped_take_device(shaped *w, uint64_t bytes, hr_trace_action action, uint64_t addr) {
  if (bytes > w->capacity - w->reserved) return 0;
  if (!addr && w->scattered) addr = 0x400000000000 + (w->next += SHAPES_GIB * 40503) % (SHAPES_GIB << 16);
  if (!addr) addr = w->next, w->next += hri_round_up(bytes, 2 * SHAPES_MIB) + 2 * SHAPES_MIB;
  w->reserved += bytes;
  shaped_event(w, action, addr, bytes);
  return addr;
}

static uint64_t shaped_reserve(void *context, uint64_t bytes, uint64_t stream) {
  (void)stream;
  return shaped_take_device(context, bytes, HR_TRACE_SEGMENT_ALLOC, 0);
}

static void shaped_release(void *context, uint64_t addr, uint64_t bytes) {
  shaped *w = context;
  w->reserved -= bytes;
  shaped_event(w, HR_TRACE_SEGMENT_FREE, addr, bytes);
}

static uint64_t shaped_range(void *context, uint64_t bytes, uint64_t stream) {
  shaped *w = context;
  const uint64_t addr = w->next;
  (void)stream;
  w->next += hri_round_up(bytes, 2 * SHAPES_MIB) + 2 * SHAPES_MIB;
  return addr;
}

static void shaped_give_range(void *context, uint64_t addr, uint64_t bytes) { (void)context, (void)addr, (void)bytes; }

static bool shaped_map(void *context, uint64_t addr, uint64_t bytes) {
  return shaped_take_device(context, bytes, HR_TRACE_SEGMENT_MAP, addr) != 0;
}

static void shaped_unmap(void *context, uint64_t addr, uint64_t bytes) {
  shaped *w = context;
  w->reserved -= bytes;
  shaped_event(w, HR_TRACE_SEGMENT_UNMAP, addr, bytes);
}

static void shaped_memory(void *context, uint64_t *free_bytes, uint64_t *total_bytes) {
  const shaped *w = context;
  *total_bytes = w->capacity;
  *free_bytes = w->capacity - w->reserved;
}

/* ---- requests ---- */

typedef struct shaped_frame {
  const char *name, *file;
  uint32_t line;
} shaped_frame;

enum { IN_INIT, IN_FORWARD, IN_BACKWARD, IN_STEP, IN_LOOP, IN_DATA, IN_EVALUATION, IN_CACHE, IN_LOG };

static const shaped_frame shaped_outer[SHAPES_PHASES][SHAPES_OUTER] = {
    {{"__init__", "train/model.py", 12}, {"build_model", "train/model.py", 90}},
    {{"forward", "train/model.py", 40}, {"_call_impl", "torch/nn/modules/module.py", 1}, {"train", "train/run.py", 61}},
    {{"_engine_run_backward", "torch/autograd/graph.py", 7},
     {"backward", "torch/_tensor.py", 5},
     {"train", "train/run.py", 63}},
    {{"step", "torch/optim/adamw.py", 9}, {"wrapper", "torch/optim/optimizer.py", 3}, {"train", "train/run.py", 66}},
    {{"loop", "train/run.py", 20}},
    {{"__next__", "torch/utils/data/dataloader.py", 30}, {"batches", "train/data.py", 8}},
    {{"forward", "train/model.py", 40},
     {"_call_impl", "torch/nn/modules/module.py", 1},
     {"scores", "train/score.py", 33}},
    {{"update", "transformers/cache_utils.py", 60},
     {"forward", "train/model.py", 44},
     {"_call_impl", "torch/nn/modules/module.py", 1},
     {"generate", "transformers/generation/utils.py", 2},
     {"answer", "train/chat.py", 14}},
    {{"remember", "train/metrics.py", 18}, {"train", "train/run.py", 70}}};

static inline uint32_t shaped_add_frame(shaped *w, const char *name, const char *file, uint32_t line) {
  return hri_snapshot_add_frame(&w->b, hri_snapshot_add_string(&w->b, name, strlen(name)),
                                hri_snapshot_add_string(&w->b, file, strlen(file)), line);
}

/* Whoever asks: a line of a layer, and what led there; with so many frames of C++ before it. */
static inline void shaped_deep(shaped *w, uint32_t native, int phase, uint32_t layer, uint32_t line) {
  uint32_t frames[SHAPES_NATIVE + SHAPES_OUTER + 3], n = 0;
  char name[48];
  if (w->stackless) return;
  for (; n < native && n < SHAPES_NATIVE; n++) {
    if (!w->native[n]) (void)snprintf(name, sizeof name, "c10::impl::wrap_kernel_functor_%u", (unsigned)n);
    if (!w->native[n]) w->native[n] = shaped_add_frame(w, name, "??", 0) + 1;
    frames[n] = w->native[n] - 1;
  }
  (void)snprintf(name, sizeof name, "layer_%u", (unsigned)layer);
  frames[n++] = shaped_add_frame(w, name, "train/layers.py", 100 + line);
  for (uint32_t k = 0; k < SHAPES_OUTER && shaped_outer[phase][k].name; k++)
    frames[n++] =
        shaped_add_frame(w, shaped_outer[phase][k].name, shaped_outer[phase][k].file, shaped_outer[phase][k].line);
  frames[n++] = shaped_add_frame(w, "<module>", "train/run.py", 230);
  w->stack = hri_snapshot_add_stack(&w->b, frames, n);
}

static inline void shaped_at(shaped *w, int phase, uint32_t layer, uint32_t line) {
  shaped_deep(w, 0, phase, layer, line);
}

/* An index of blocks; SHAPES_NONE: refused, and recorded as such. */
static inline int64_t shaped_take(shaped *w, uint64_t bytes) {
  uint64_t addr;
  hr_error error;
  const uint32_t pool = w->pool;
  if (hr_alloc_malloc_in(w->alloc, pool, bytes, w->stream, &addr, &error) != HR_OK) {
    shaped_event(w, HR_TRACE_OOM, w->capacity - w->reserved, hri_round_up(bytes, 512));
    return SHAPES_NONE;
  }
  const shaped_block block = {addr, bytes, w->stackless ? 0 : w->stack};
  shaped_event(w, HR_TRACE_ALLOC, addr, bytes);
  if (w->unused.count) {
    const uint64_t id = w->unused.items[--w->unused.count];
    w->blocks.items[id] = block;
    return (int64_t)id;
  }
  (void)hri_array_push(&w->blocks, block);
  return (int64_t)w->blocks.count - 1;
}

static inline void shaped_give(shaped *w, int64_t id) {
  shaped_block *block = &w->blocks.items[id];
  if (id < 0) return;
  shaped_event(w, HR_TRACE_FREE_REQUESTED, block->addr, block->size);
  shaped_event(w, HR_TRACE_FREE_COMPLETED, block->addr, block->size);
  if (hr_alloc_free(w->alloc, block->addr, NULL) != HR_OK) abort();
  block->size = 0;
  (void)hri_array_push(&w->unused, (uint64_t)id);
}

/* ---- parts of programs ---- */

static inline void shaped_temporary(shaped *w, uint64_t bytes) { shaped_give(w, shaped_take(w, bytes)); }

static inline void shaped_build(shaped *w, uint32_t layers, uint64_t bytes) {
  for (uint32_t k = 0; k < layers; k++) {
    shaped_at(w, IN_INIT, k, 1);
    (void)shaped_take(w, bytes);
  }
}

/* Forward, backward and the optimizer of one step: 13 events a layer; the first makes states. */
static inline void shaped_step(shaped *w, uint32_t layers, uint64_t bytes) {
  int64_t *saved = malloc((layers + 1) * sizeof *saved), *gradients = malloc((layers + 1) * sizeof *gradients);
  for (uint32_t k = 0; k < layers; k++) {
    shaped_at(w, IN_FORWARD, k, 1);
    saved[k] = shaped_take(w, bytes + 512 * (k % 7));
    shaped_at(w, IN_FORWARD, k, 2);
    shaped_temporary(w, bytes / 2);
  }
  for (uint32_t k = layers; k-- > 0;) {
    shaped_at(w, IN_BACKWARD, k, 1);
    gradients[k] = shaped_take(w, bytes);
    shaped_give(w, saved[k]);
  }
  for (uint32_t k = 0; k < layers; k++) {
    shaped_at(w, IN_STEP, k, 1);
    if (w->steps == 0) (void)shaped_take(w, bytes);
    else shaped_temporary(w, bytes / 4);
    shaped_give(w, gradients[k]);
  }
  w->steps++;
  free(saved);
  free(gradients);
}

/* ---- shapes ---- */

static inline void shape_large_steps(shaped *w) {
  const uint32_t layers = (uint32_t)(w->events / 100 + 1);
  shaped_build(w, layers, 4096);
  while (shaped_goes_on(w)) shaped_step(w, layers, 4096);
}

static inline void shape_small_steps(shaped *w) {
  shaped_build(w, 2, SHAPES_MIB);
  while (shaped_goes_on(w)) shaped_step(w, 2, SHAPES_MIB);
}

static inline void shape_loops(shaped *w) {
  while (shaped_goes_on(w)) {
    int64_t ids[2];
    for (int k = 0; k < 2; k++) {
      shaped_at(w, IN_LOOP, (uint32_t)k, 1);
      ids[k] = shaped_take(w, SHAPES_MIB * (1 + (uint64_t)k));
    }
    shaped_give(w, ids[0]);
    shaped_give(w, ids[1]);
  }
}

/* Takes and gives at random, in as many slots and at as many places. */
static inline void shaped_churn(shaped *w, uint32_t slots, uint32_t stacks, uint64_t least, uint64_t units) {
  int64_t *ids = malloc(slots * sizeof *ids);
  for (uint32_t k = 0; k < slots; k++) ids[k] = SHAPES_NONE;
  while (shaped_goes_on(w)) {
    const uint64_t k = shaped_dice(w, slots);
    shaped_at(w, IN_LOOP, (uint32_t)shaped_dice(w, stacks), 2);
    if (ids[k] < 0) ids[k] = shaped_take(w, least + 512 * shaped_dice(w, units));
    else shaped_give(w, ids[k]), ids[k] = SHAPES_NONE;
  }
  free(ids);
}

static inline void shape_no_steps(shaped *w) { shaped_churn(w, 3000, 64, 512, 4096); }
static inline void shape_one_stack(shaped *w) { shaped_churn(w, 3000, 1, 512, 4096); }
static inline void shape_stacks(shaped *w) { shaped_churn(w, 3000, 50000, 512, 4096); }

/* Segments of their own: requests above 10 MiB, a sixth of a thousand of which is free at a time. */
static inline void shape_segments(shaped *w) {
  w->capacity = 900 * 1024 * SHAPES_GIB;
  shaped_churn(w, (uint32_t)(w->events / 10 + 1), 64, 11 * SHAPES_MIB, 40000);
}

static inline void shape_scattered(shaped *w) {
  w->scattered = true;
  w->next = 0;
  shape_segments(w);
}

static inline void shape_ring(shaped *w) {
  w->silent = w->events;
  w->events *= 2;
  shaped_build(w, 24, SHAPES_MIB);
  while (shaped_goes_on(w)) shaped_step(w, 24, SHAPES_MIB);
}

static inline void shape_ring_loops(shaped *w) {
  w->silent = w->events;
  w->events *= 2;
  shape_loops(w);
}

static inline void shape_live(shaped *w) {
  for (uint64_t k = w->events * 3 / 10; k > 0; k--) {
    shaped_at(w, IN_LOG, (uint32_t)shaped_dice(w, 16), 1);
    (void)shaped_take(w, 1024 + 512 * shaped_dice(w, 8));
  }
  while (shaped_goes_on(w)) shaped_step(w, 24, SHAPES_MIB);
}

static inline void shape_leak(shaped *w) {
  while (shaped_goes_on(w)) {
    shaped_step(w, 2, SHAPES_MIB);
    shaped_at(w, IN_LOG, 0, 1);
    (void)shaped_take(w, 8192);
  }
}

/* Some go, the oldest first. */
static inline void shape_queue(shaped *w) {
  enum { KEPT = 4096 };
  int64_t kept[KEPT];
  for (uint64_t k = 0; shaped_goes_on(w); k++) {
    shaped_step(w, 2, SHAPES_MIB);
    if (k >= KEPT) shaped_give(w, kept[k % KEPT]);
    shaped_at(w, IN_LOG, 0, 1);
    kept[k % KEPT] = shaped_take(w, 8192);
  }
}

/* One in a hundred events is a refusal. */
static inline void shape_refusals(shaped *w) {
  shaped_build(w, 8, SHAPES_MIB);
  while (shaped_goes_on(w)) {
    shaped_step(w, 8, SHAPES_MIB);
    shaped_at(w, IN_FORWARD, 9, 1);
    (void)shaped_take(w, w->capacity);
  }
}

static inline void shape_growing(shaped *w) {
  int64_t old = SHAPES_NONE;
  for (uint64_t k = 1; shaped_goes_on(w); k++) {
    int64_t now;
    shaped_step(w, 2, SHAPES_MIB);
    shaped_at(w, IN_LOG, 0, 2);
    now = shaped_take(w, 4096 * k);
    shaped_give(w, old);
    old = now;
  }
}

static inline void shape_streams(shaped *w) {
  enum { SLOTS = 4000, STREAMS = 32, POOLS = 16 };
  int64_t ids[SLOTS];
  uint32_t pools[POOLS];
  struct {
    uint64_t stream;
    uint32_t pool;
  } of[SLOTS];
  for (uint32_t k = 0; k < POOLS; k++) {
    if (hr_alloc_pool_create(w->alloc, 0, k + 1, &pools[k], NULL) != HR_OK) abort();
    (void)hri_snapshot_add_pool(&w->b, 0, k + 1);
  }
  for (uint32_t k = 0; k < SLOTS; k++) {
    ids[k] = SHAPES_NONE;
    of[k].stream = k % STREAMS ? 0x5500 + k % STREAMS : 0;
    of[k].pool = k % 3 ? 0 : pools[k % POOLS];
  }
  while (shaped_goes_on(w)) {
    const uint64_t k = shaped_dice(w, SLOTS);
    shaped_at(w, IN_LOOP, (uint32_t)k % 200, 2);
    w->stream = of[k].stream;
    w->pool = of[k].pool;
    if (ids[k] < 0) ids[k] = shaped_take(w, 512 + 512 * shaped_dice(w, 8192));
    else shaped_give(w, ids[k]), ids[k] = SHAPES_NONE;
  }
  w->stream = 0;
  w->pool = 0;
}

/* A loader's thread between the main one's requests. */
static inline void shape_threads(shaped *w) {
  int64_t batch[4] = {SHAPES_NONE, SHAPES_NONE, SHAPES_NONE, SHAPES_NONE};
  for (uint64_t k = 0; shaped_goes_on(w); k++) {
    for (uint32_t layer = 0; layer < 4; layer++) {
      shaped_at(w, IN_DATA, layer, 1);
      shaped_give(w, batch[layer]);
      batch[layer] = shaped_take(w, 3 * SHAPES_MIB);
      shaped_at(w, IN_FORWARD, layer, 1);
      const int64_t saved = shaped_take(w, 2 * SHAPES_MIB);
      shaped_at(w, IN_DATA, layer, 2);
      shaped_temporary(w, 65536);
      shaped_at(w, IN_BACKWARD, layer, 1);
      shaped_temporary(w, SHAPES_MIB);
      shaped_give(w, saved);
    }
    shaped_at(w, IN_STEP, 0, 1);
    shaped_temporary(w, 4096);
  }
}

/* No stacks; the profiler's annotations tell steps, PyTorch's own the optimizer. */
static inline void shape_annotated(shaped *w) {
  char name[64];
  w->stackless = true;
  for (uint32_t k = 0; shaped_goes_on(w); k++) {
    (void)snprintf(name, sizeof name, "ProfilerStep#%u", (unsigned)k);
    shaped_mark(w, name, false);
    shaped_step(w, 3, SHAPES_MIB);
    shaped_mark(w, "Optimizer.step#AdamW.step", false);
    shaped_mark(w, "Optimizer.step#AdamW.step", true);
    shaped_mark(w, name, true);
  }
}

/* A cache of keys and values per layer, which grows by a token in each pass; long answers, and then the next one. */
static inline void shaped_generate(shaped *w, uint32_t layers, uint64_t tokens) {
  int64_t *cache = malloc(layers * sizeof *cache);
  for (uint32_t k = 0; k < layers; k++) cache[k] = SHAPES_NONE;
  for (uint64_t t = 1; t <= tokens && shaped_goes_on(w); t++) {
    for (uint32_t k = 0; k < layers; k++) {
      int64_t now;
      shaped_at(w, IN_EVALUATION, k, 1);
      shaped_temporary(w, 65536);
      shaped_at(w, IN_CACHE, k, 1);
      now = shaped_take(w, 2048 * t);
      shaped_give(w, cache[k]);
      cache[k] = now;
    }
  }
  for (uint32_t k = 0; k < layers && shaped_goes_on(w); k++) shaped_give(w, cache[k]);
  free(cache);
}

static inline void shape_generation(shaped *w) {
  shaped_build(w, 4, SHAPES_MIB);
  while (shaped_goes_on(w)) shaped_generate(w, 4, w->events);
}

static inline void shape_answers(shaped *w) {
  shaped_build(w, 4, SHAPES_MIB);
  while (shaped_goes_on(w)) shaped_generate(w, 4, 100);
}

/* Passes of a model whose results are kept; with all of its graph, or without. */
static inline void shaped_passes(shaped *w, uint32_t kept) {
  shaped_build(w, 8, SHAPES_MIB);
  while (shaped_goes_on(w)) {
    shaped_at(w, IN_DATA, 0, 1);
    const int64_t batch = shaped_take(w, 16384);
    for (uint32_t k = 0; k < 8; k++) {
      shaped_at(w, IN_EVALUATION, k, 1);
      if (k < kept) (void)shaped_take(w, 4096);
      else shaped_temporary(w, SHAPES_MIB);
    }
    shaped_give(w, batch);
  }
}

static inline void shape_outputs(shaped *w) { shaped_passes(w, 1); }
static inline void shape_graph(shaped *w) { shaped_passes(w, 8); }

/* Training, and behind it a long evaluation that keeps its results. */
static inline void shape_evaluation(shaped *w) {
  const uint64_t all = w->events;
  w->events = all / 2;
  while (shaped_goes_on(w)) shaped_step(w, 4, SHAPES_MIB);
  w->events = all;
  shaped_passes(w, 2);
}

/* One step of very many forwards and backwards. */
static inline void shape_accumulation(shaped *w) {
  shaped_build(w, 4, SHAPES_MIB);
  while (shaped_goes_on(w)) {
    shaped_at(w, IN_DATA, 0, 1);
    const int64_t batch = shaped_take(w, 16384);
    int64_t saved[4];
    for (uint32_t k = 0; k < 4; k++) shaped_at(w, IN_FORWARD, k, 1), saved[k] = shaped_take(w, SHAPES_MIB);
    shaped_at(w, IN_LOG, 3, 1);
    (void)shaped_take(w, 512);
    for (uint32_t k = 4; k-- > 0;) {
      shaped_at(w, IN_BACKWARD, k, 1);
      shaped_temporary(w, SHAPES_MIB);
      shaped_give(w, saved[k]);
    }
    shaped_give(w, batch);
  }
}

/* Expandable segments, and steps of lengths that vary. */
static inline void shape_expandable(shaped *w) {
  hr_alloc_config config = hr_alloc_config_default();
  config.expandable_segments = true;
  if (hr_alloc_set_config(w->alloc, &config, NULL) != HR_OK) abort();
  w->b.snapshot->settings.present = true;
  w->b.snapshot->settings.expandable_segments = true;
  shaped_build(w, 24, 4 * SHAPES_MIB);
  for (uint64_t k = 0; shaped_goes_on(w); k++) {
    shaped_step(w, 24, SHAPES_MIB * (1 + shaped_dice(w, 40)));
    if (k % 8 == 7 && hr_alloc_empty_cache(w->alloc, NULL) != HR_OK) abort();
  }
}

/* Small blocks pin segments of what was larger, and much is free in pieces. */
static inline void shape_pieces(shaped *w) {
  w->capacity = 8 * SHAPES_GIB;
  shaped_build(w, 8, 8 * SHAPES_MIB);
  for (uint64_t k = 0; shaped_goes_on(w); k++) {
    shaped_step(w, 16, SHAPES_MIB * (20 + shaped_dice(w, 160)));
    shaped_at(w, IN_LOG, 0, 1);
    if (k % 64 == 0) (void)shaped_take(w, SHAPES_MIB * (2 + shaped_dice(w, 4)));
  }
}

/* Our own labels: each step has stacks of its own. */
static inline void shape_labels(shaped *w) {
  char name[32];
  for (uint32_t k = 1; shaped_goes_on(w); k++) {
    int64_t ids[4];
    (void)snprintf(name, sizeof name, "step %u", (unsigned)k);
    for (uint32_t n = 0; n < 4; n++) {
      static const char *const phases[] = {"forward", "forward", "backward", "optimizer"};
      const uint32_t frames[] = {shaped_add_frame(w, "layers.act", "headroom", n),
                                 shaped_add_frame(w, phases[n], "headroom", 0),
                                 shaped_add_frame(w, name, "headroom", 0)};
      w->stack = hri_snapshot_add_stack(&w->b, frames, 3);
      ids[n] = shaped_take(w, SHAPES_MIB);
    }
    for (uint32_t n = 0; n < 4; n++) shaped_give(w, ids[n]);
  }
}

/* A loop without a model: few rounds, of many tensors each, from deep stacks of C++. */
static inline void shape_rounds(shaped *w) {
  const uint32_t inner = (uint32_t)(w->events / 160 + 1);
  w->stays = true;
  while (shaped_goes_on(w)) {
    shaped_deep(w, SHAPES_NATIVE, IN_LOOP, 0, 1);
    (void)shaped_take(w, 200 * SHAPES_MIB + 512 * shaped_dice(w, 100000));
    for (uint32_t k = 0; k < inner; k++) {
      shaped_deep(w, SHAPES_NATIVE, IN_LOOP, k % 50, 2);
      shaped_temporary(w, 512 * (9 + shaped_dice(w, 7))); /* none of which has twice the size of another */
    }
  }
  shaped_deep(w, SHAPES_NATIVE, IN_LOOP, 0, 1);
}

/* A ring in which many lines keep something of each step, and a window's line gives back what was there before. */
static inline void shape_windows(shaped *w) {
  enum { LINES = 4000 };
  const uint32_t before = (uint32_t)(w->events / 4);
  int64_t *window = malloc((before + 1) * sizeof *window);
  w->silent = UINT64_MAX;
  for (uint32_t k = 0; k < before; k++) {
    shaped_deep(w, SHAPES_NATIVE, IN_LOG, 1, 1);
    window[k] = shaped_take(w, 1024 + 512 * shaped_dice(w, 100));
  }
  w->silent = w->made;
  w->events += w->made;
  for (uint32_t at = 0; shaped_goes_on(w);) {
    shaped_step(w, 2, SHAPES_MIB);
    for (uint32_t k = 0; k < LINES && shaped_goes_on(w); k++) {
      shaped_deep(w, SHAPES_NATIVE, IN_LOG, k, 3);
      (void)shaped_take(w, 1024 + 512 * shaped_dice(w, 100));
      shaped_deep(w, SHAPES_NATIVE, IN_LOG, 1, 1);
      if (at < before) shaped_give(w, window[at++]);
    }
  }
  free(window);
}

/* What is left behind each step has another size each time, and some of it goes later; no stacks are recorded. */
static inline void shape_sizes(shaped *w) {
  enum { KEPT = 64 };
  int64_t kept[KEPT];
  char name[64];
  w->stackless = true;
  for (uint32_t k = 0; shaped_goes_on(w); k++) {
    (void)snprintf(name, sizeof name, "ProfilerStep#%u", (unsigned)k);
    shaped_mark(w, name, false);
    for (int n = 0; n < 2; n++) shaped_temporary(w, SHAPES_MIB);
    if (k >= KEPT) shaped_give(w, kept[k % KEPT]);
    kept[k % KEPT] = shaped_take(w, 512 + shaped_dice(w, w->events / 40 + 1));
    (void)shaped_take(w, 512 + shaped_dice(w, w->events / 40 + 1));
    shaped_mark(w, name, true);
  }
}

/* As many annotations as events, each with a name of its own, but for those of the profiler's steps, which begin later. */
static inline void shape_names(shaped *w) {
  char name[64];
  for (uint32_t k = 0; shaped_goes_on(w); k++) {
    if (k >= 50) (void)snprintf(name, sizeof name, "ProfilerStep#%u", (unsigned)k), shaped_mark(w, name, false);
    shaped_step(w, 1, SHAPES_MIB);
    if (k >= 50) shaped_mark(w, name, true);
    for (uint32_t n = 0; n < 12; n++) {
      (void)snprintf(name, sizeof name, "kernel %u of step %u, forward", (unsigned)n, (unsigned)k);
      shaped_mark(w, name, n % 2 == 1);
    }
  }
}

/* Backwards that fail, of a model with as many sizes of parameters. */
static inline void shape_failed_backwards(shaped *w) {
  const uint32_t sizes = (uint32_t)(w->events / 200 + 1);
  for (uint32_t k = 0; k < sizes; k++) {
    shaped_at(w, IN_INIT, 0, 1);
    (void)shaped_take(w, 512 + 512 * k);
  }
  for (uint32_t k = 0; shaped_goes_on(w); k++) {
    shaped_at(w, IN_FORWARD, 0, 1);
    shaped_temporary(w, 4096);
    shaped_at(w, IN_BACKWARD, 0, 1);
    const int64_t kept = shaped_take(w, 512 + 512 * (k % sizes));
    if (k % 8 == 0) (void)shaped_take(w, w->capacity);
    shaped_give(w, kept);
  }
}

/* A ring that holds the end of a training, and then the last of a text by many layers, whose first tokens come from lines of their own. */
static inline void shape_ring_text(shaped *w) {
  enum { LAYERS = 32, OWN = 60, FIRST = 40 };
  const uint64_t all = w->events;
  int64_t cache[LAYERS];
  shaped_build(w, 8, SHAPES_MIB);
  w->silent = UINT64_MAX;
  for (uint32_t k = 0; k < LAYERS; k++) {
    shaped_at(w, IN_CACHE, k, 1);
    cache[k] = shaped_take(w, 2048 * FIRST);
  }
  w->silent = w->made;
  w->events = w->made + all / 2;
  while (shaped_goes_on(w)) shaped_step(w, 8, SHAPES_MIB);
  w->events += all / 2;
  for (uint64_t t = FIRST + 1; shaped_goes_on(w); t++) {
    for (uint32_t k = 0; k < LAYERS; k++) {
      int64_t now;
      shaped_at(w, IN_EVALUATION, k, 1);
      shaped_temporary(w, 65536);
      shaped_at(w, IN_CACHE, k, t < FIRST + OWN ? (uint32_t)t : 1);
      now = shaped_take(w, 2048 * t);
      shaped_give(w, cache[k]);
      cache[k] = now;
    }
  }
}

typedef struct shape {
  const char *name;
  void (*run)(shaped *w);
} shape;

static const shape shapes[] = {{"large-steps", shape_large_steps},
                               {"small-steps", shape_small_steps},
                               {"loops", shape_loops},
                               {"no-steps", shape_no_steps},
                               {"one-stack", shape_one_stack},
                               {"stacks", shape_stacks},
                               {"segments", shape_segments},
                               {"ring", shape_ring},
                               {"ring-loops", shape_ring_loops},
                               {"live", shape_live},
                               {"leak", shape_leak},
                               {"queue", shape_queue},
                               {"refusals", shape_refusals},
                               {"growing", shape_growing},
                               {"streams", shape_streams},
                               {"threads", shape_threads},
                               {"annotated", shape_annotated},
                               {"generation", shape_generation},
                               {"answers", shape_answers},
                               {"outputs", shape_outputs},
                               {"graph", shape_graph},
                               {"evaluation", shape_evaluation},
                               {"accumulation", shape_accumulation},
                               {"expandable", shape_expandable},
                               {"pieces", shape_pieces},
                               {"labels", shape_labels},
                               {"rounds", shape_rounds},
                               {"windows", shape_windows},
                               {"sizes", shape_sizes},
                               {"names", shape_names},
                               {"failed", shape_failed_backwards},
                               {"ring-text", shape_ring_text},
                               {"scattered", shape_scattered}};
enum { SHAPE_COUNT = sizeof shapes / sizeof *shapes };

static inline const shape *shape_by_name(const char *name) {
  for (int k = 0; k < SHAPE_COUNT; k++)
    if (strcmp(shapes[k].name, name) == 0) return &shapes[k];
  return NULL;
}

/* ---- the whole ---- */

static int shaped_order(const void *a, const void *b) {
  const shaped_block *x = a, *y = b;
  return (x->addr > y->addr) - (x->addr < y->addr);
}

/* What the allocator holds in the end, with the stacks that asked for it. */
static inline hr_status shaped_end_state(shaped *w, hr_error *error) {
  hr_snapshot *state;
  size_t live = 0, at = 0;
  HRI_TRY(hr_alloc_snapshot(w->alloc, &state, error));
  for (size_t k = 0; k < w->blocks.count; k++)
    if (w->blocks.items[k].size) w->blocks.items[live++] = w->blocks.items[k];
  qsort(w->blocks.items, live, sizeof *w->blocks.items, shaped_order);
  for (uint64_t k = 0; k < state->segment_count; k++) {
    hr_segment segment = state->segments[k];
    segment.stack = 0;
    (void)hri_snapshot_add_segment(&w->b, &segment);
    for (uint64_t n = 0; n < segment.block_count; n++) {
      hr_block block = state->blocks[segment.first_block + n];
      block.stack = 0;
      block.category = 0;
      while (at < live && w->blocks.items[at].addr < block.address) at++;
      if (at < live && w->blocks.items[at].addr == block.address) block.stack = w->blocks.items[at].stack;
      (void)hri_snapshot_add_block(&w->b, &block);
    }
  }
  hr_snapshot_destroy(state);
  return HR_OK;
}

static inline hr_status shape_make(const shape *of, uint64_t events, hr_snapshot **snapshot, hr_error *error) {
  shaped w = {.events = events, .capacity = 80 * SHAPES_GIB, .next = 0x7f0000000000, .now_us = 1700000000000000};
  const hr_alloc_hooks hooks = {.context = &w,
                                .reserve = shaped_reserve,
                                .release = shaped_release,
                                .reserve_range = shaped_range,
                                .release_range = shaped_give_range,
                                .map = shaped_map,
                                .unmap = shaped_unmap,
                                .device_memory = shaped_memory};
  hr_status status;
  *snapshot = NULL;
  HRI_TRY(hri_snapshot_build(&w.b, error));
  HRI_TRY_OUT(hr_alloc_create(&hooks, NULL, &w.alloc, error));
  w.b.snapshot->format = "pytorch-2.7";
  (void)hri_snapshot_add_trace(&w.b, 0);
  of->run(&w);
  if (!w.stays) shaped_at(&w, IN_FORWARD, 1, 7);
  (void)shaped_take(&w, w.capacity - w.reserved + SHAPES_GIB);
  HRI_TRY_OUT(shaped_end_state(&w, error));
  HRI_TRY_OUT(hri_snapshot_build_end(&w.b, snapshot, error));
out:
  w.silent = UINT64_MAX; /* what the allocator gives back now is not recorded */
  hri_snapshot_build_deinit(&w.b);
  hr_alloc_destroy(w.alloc);
  hri_array_free(&w.blocks);
  hri_array_free(&w.unused);
  return status;
}

#endif
