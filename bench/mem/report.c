/* How fast a report is written: a training trace of 24 layers, inspected and written as HTML.
 *
 *   bench_report [EVENTS [PATH [plain|hostile|lost|snapshot]]]      default 1,000,000 events, report.html in the working
 *   directory
 *
 * Prints the time of each part. For tests/report, which looks at the page in a browser: "hostile": names are markup;
 * "lost": the first third of the events is missing, segments are expandable, and some are of a private pool. "snapshot"
 * writes the trace as a pickle, for `headroom inspect PATH --html OUT`, which explains it as well. */
#include <headroom/report.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "snapshot/build.h"

enum { LAYERS = 24, CLASSES = 64, SEGMENTS = 1 << 16 };
#define MIB ((uint64_t)1 << 20)

typedef struct block {
  uint64_t addr, size, rounded;
  uint32_t stack;
  bool live;
} block;

typedef struct world {
  hri_snapshot_builder b;
  HRI_ARRAY(block) blocks; /* by address: memory is only handed out upwards, and taken again by equal sizes */
  HRI_ARRAY(uint64_t) free_list[CLASSES];
  uint64_t class_size[CLASSES];
  struct {
    uint64_t addr, bytes, first_block;
  } segments[SEGMENTS];
  uint32_t segment_count;
  uint64_t next, end, limit;
  int64_t time;
  uint64_t random;
  bool hostile, lost;
  uint64_t silent; /* events not to be recorded any more */
  uint32_t pool;
} world;

#define MARKUP "</script><img src=x onerror=\"window.owned=1;document.title='owned'\"><!--"

static uint64_t dice(world *w, uint64_t sides) {
  w->random = w->random * 6364136223846793005u + 1442695040888963407u;
  return (w->random >> 33) % sides;
}

typedef struct frame {
  const char *name, *file;
} frame;
enum { PHASES = 5, OUTER = 4 };
static const char *const phase_names[PHASES] = {"build", "forward", "backward", "optimizer", "log"};
static const frame outer[PHASES][OUTER] = {{{"__init__", "train/model.py"}, {"build_model", "train/model.py"}},
                                           {{"forward", "train/model.py"},
                                            {"_call_impl", "torch/nn/modules/module.py"},
                                            {"training_step", "train/run.py"},
                                            {"train", "train/run.py"}},
                                           {{"_engine_run_backward", "torch/autograd/graph.py"},
                                            {"backward", "torch/autograd/__init__.py"},
                                            {"backward", "torch/_tensor.py"},
                                            {"train", "train/run.py"}},
                                           {{"_init_group", "torch/optim/adamw.py"},
                                            {"step", "torch/optim/adamw.py"},
                                            {"wrapper", "torch/optim/optimizer.py"},
                                            {"train", "train/run.py"}},
                                           {{"log_metrics", "train/metrics.py"}, {"train", "train/run.py"}}};

static uint32_t add_frame(world *w, const char *name, const char *file, uint32_t line) {
  return hri_snapshot_add_frame(&w->b, hri_snapshot_add_string(&w->b, name, strlen(name)),
                                hri_snapshot_add_string(&w->b, file, strlen(file)), line);
}

/* From the innermost frame out: the operation, the layer, what every stack of the phase shares, the program. */
static uint32_t stack_of(world *w, uint32_t phase, uint32_t layer, const char *op) {
  char name[160];
  uint32_t frames[12], i, n = 0;
  frames[n++] = add_frame(w, op,
                          phase == 1   ? "torch/nn/functional.py"
                          : phase == 3 ? "torch/_tensor.py"
                                       : "train/layers.py",
                          40 + (uint32_t)strlen(op));
  (void)snprintf(name, sizeof name, "%s.layers.%u%s", phase_names[phase], layer, w->hostile ? MARKUP : "");
  frames[n++] = add_frame(w, name, phase == 2 ? "autograd" : "train/layers.py", 100 + layer);
  for (i = 0; i < OUTER && outer[phase][i].name; i++)
    frames[n++] = add_frame(w, outer[phase][i].name, outer[phase][i].file, 20 + 7 * i);
  frames[n++] = add_frame(w, "main", "train/run.py", 210);
  frames[n++] = add_frame(w, "<module>", "train/run.py", 230);
  return hri_snapshot_add_stack(&w->b, frames, n);
}

static void event(world *w, uint8_t action, uint64_t addr, uint64_t size, uint32_t stack) {
  hr_trace_event e = {.addr = addr, .size = size, .stack = stack, .action = action, .flags = HR_EVENT_HAS_TIME};
  w->time += 3 + (int64_t)dice(w, 20);
  e.time_us = w->time;
  if (w->silent > 0) w->silent--;
  else (void)hri_snapshot_add_event(&w->b, &e);
}

static void reserve(world *w, uint64_t rounded) {
  uint64_t bytes = rounded <= MIB ? 2 * MIB : rounded < 10 * MIB ? 20 * MIB : hri_round_up(rounded, 2 * MIB);
  if (w->end > w->next) { /* the rest of the last segment becomes a block that nobody uses */
    block rest = {w->next, 0, w->end - w->next, 0, false};
    (void)hri_array_push(&w->blocks, rest);
  }
  w->next = hri_round_up(w->end ? w->end : 0x7f0000000000, 2 * MIB) + 2 * MIB;
  w->end = w->next + bytes;
  w->segments[w->segment_count].addr = w->next;
  w->segments[w->segment_count].first_block = w->blocks.count;
  w->segments[w->segment_count++].bytes = bytes;
  event(w, w->lost ? HR_TRACE_SEGMENT_MAP : HR_TRACE_SEGMENT_ALLOC, w->next, bytes, 0);
}

static uint64_t take(world *w, uint64_t size, uint32_t stack) {
  uint64_t rounded = hri_round_up(size, 512), id;
  uint32_t c;
  for (c = 0; c < CLASSES && w->class_size[c] != rounded && w->class_size[c]; c++) {}
  if (c < CLASSES) w->class_size[c] = rounded;
  if (c < CLASSES && w->free_list[c].count) id = w->free_list[c].items[--w->free_list[c].count];
  else {
    if (w->end - w->next < rounded) reserve(w, rounded);
    block fresh = {.addr = w->next, .rounded = rounded};
    id = w->blocks.count;
    (void)hri_array_push(&w->blocks, fresh);
    w->next += rounded;
  }
  w->blocks.items[id].size = size;
  w->blocks.items[id].stack = stack;
  w->blocks.items[id].live = true;
  event(w, HR_TRACE_ALLOC, w->blocks.items[id].addr, size, stack);
  return id;
}

static void give(world *w, uint64_t id) {
  block *b = &w->blocks.items[id];
  uint32_t c;
  event(w, HR_TRACE_FREE_REQUESTED, b->addr, b->size, b->stack);
  event(w, HR_TRACE_FREE_COMPLETED, b->addr, b->size, b->stack);
  b->live = false;
  for (c = 0; c < CLASSES; c++)
    if (w->class_size[c] == b->rounded) {
      (void)hri_array_push(&w->free_list[c], id);
      break;
    }
}

static void train(world *w, uint64_t events) {
  static const char *const ops[] = {"linear", "gelu", "softmax", "layer_norm", "dropout", "matmul"};
  uint64_t saved[LAYERS][6], gradients[LAYERS], temps[4];
  uint32_t layer, i, step, p = 0;
  for (layer = 0; layer < LAYERS; layer++)
    for (i = 0; i < 4; i++) (void)take(w, 14 * MIB + i * 700000, stack_of(w, 0, layer, "parameter"));
  for (step = 0; w->b.snapshot->event_count < events; step++) {
    for (layer = 0; layer < LAYERS; layer++)
      for (i = 0; i < 6; i++) {
        saved[layer][i] = take(w, (uint64_t)(i + 2) * 1500000 + 100 * i, stack_of(w, 1, layer, ops[i]));
        for (p = 0; p < 3; p++) {
          temps[p] = take(w, 200000 + 3000 * p, stack_of(w, 1, layer, "empty_like"));
        }
        while (p > 0) give(w, temps[--p]);
      }
    for (layer = LAYERS; layer-- > 0;) {
      gradients[layer] = take(w, 14 * MIB, stack_of(w, 2, layer, "linear_backward"));
      for (i = 6; i-- > 0;) {
        uint64_t temp = take(w, 3 * MIB, stack_of(w, 2, layer, "matmul_backward"));
        give(w, saved[layer][i]);
        give(w, temp);
      }
    }
    for (layer = 0; layer < LAYERS; layer++) {
      if (step == 0)
        for (i = 0; i < 2; i++) (void)take(w, 14 * MIB + i * 700000, stack_of(w, 3, layer, "zeros_like"));
      give(w, gradients[layer]);
    }
    if (step % 7 == 3) (void)take(w, 1200000, stack_of(w, 4, 0, "append"));
    w->time += 4000;
  }
}

static void end_state(world *w) {
  uint32_t s;
  if (w->end > w->next) {
    block rest = {w->next, 0, w->end - w->next, 0, false};
    (void)hri_array_push(&w->blocks, rest);
  }
  for (s = 0; s < w->segment_count; s++) {
    hr_segment segment = {.address = w->segments[s].addr,
                          .total_size = w->segments[s].bytes,
                          .large = true,
                          .expandable = w->lost,
                          .pool = s % 5 == 4 ? w->pool : 0};
    uint64_t i, last = s + 1 < w->segment_count ? w->segments[s + 1].first_block : w->blocks.count;
    (void)hri_snapshot_add_segment(&w->b, &segment);
    for (i = w->segments[s].first_block; i < last; i++) {
      const block *from = &w->blocks.items[i];
      hr_block to = {.address = from->addr,
                     .size = from->rounded,
                     .requested_size = from->live ? from->size : 0,
                     .stack = from->live ? from->stack : 0,
                     .state = from->live ? HR_BLOCK_ALLOCATED : HR_BLOCK_INACTIVE};
      (void)hri_snapshot_add_block(&w->b, &to);
    }
  }
}

static double now(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static hr_status run(uint64_t events, const char *path, const char *kind, hr_error *error) {
  static world w;
  hr_snapshot *snapshot = NULL;
  hr_inspection *inspection = NULL;
  hr_report_line lines[] = {{"capacity", 4700 * MIB}};
  static const hr_report_note hostile_notes[] = {{MARKUP, MARKUP}};
  static const hr_report_section hostile_sections[] = {{MARKUP, hostile_notes, 1}};
  hr_report_options options = {.title = "A training run of 24 layers", .lines = lines, .line_count = 1};
  hr_status status;
  double start = now(), made, inspected, written;
  w.time = 1700000000000000;
  w.hostile = strcmp(kind, "hostile") == 0;
  w.lost = strcmp(kind, "lost") == 0;
  w.silent = w.lost ? events / 3 : 0;
  if (w.hostile) {
    lines[0].name = options.title = options.verdict = MARKUP;
    options.sections = hostile_sections;
    options.section_count = 1;
  }
  HRI_TRY(hri_snapshot_build(&w.b, error));
  (void)hri_snapshot_add_trace(&w.b, 0);
  if (w.lost) w.pool = hri_snapshot_add_pool(&w.b, 0, 7);
  train(&w, events);
  event(&w, HR_TRACE_OOM, 900 * MIB, 1200 * MIB, stack_of(&w, 1, 3, "matmul"));
  end_state(&w);
  HRI_TRY_OUT(hri_snapshot_build_end(&w.b, &snapshot, error));
  made = now();
  if (strcmp(kind, "snapshot") == 0) {
    status = hr_snapshot_write(snapshot, path, NULL, error);
    goto out;
  }
  HRI_TRY_OUT(hr_inspect(snapshot, NULL, &inspection, error));
  inspected = now();
  HRI_TRY_OUT(hr_report_html(inspection, &options, path, error));
  written = now();
  printf("%llu events: made in %.2f s, inspected in %.2f s, written in %.2f s, %.0f MiB of heap at most\n",
         (unsigned long long)snapshot->event_count, made - start, inspected - made, written - inspected,
         (double)hri_mem_peak_bytes() / (double)MIB);
out:
  hri_snapshot_build_deinit(&w.b);
  hr_inspection_destroy(inspection);
  hr_snapshot_destroy(snapshot);
  return status;
}

int main(int count, char **arguments) {
  uint64_t events = count > 1 ? strtoull(arguments[1], NULL, 10) : 1000000;
  const char *path = count > 2 ? arguments[2] : "report.html";
  hr_error error = {0};
  if (run(events, path, count > 3 ? arguments[3] : "plain", &error) == HR_OK) return 0;
  fprintf(stderr, "bench_report: %s\n", error.message);
  return 1;
}
