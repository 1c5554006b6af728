#include "train/profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/json.h"

enum { ROWS = 2 * HRI_OP_COUNT }; /* an op, and the same op recomputed */

typedef struct event {
  double start; /* seconds of the monotonic clock */
  float seconds;
  hri_id node;
} event;

struct hri_profile {
  const hr_plan *plan;
  event *events; /* of the step at hand or the last one, in the order they ran */
  uint32_t event_count, capacity;
  uint64_t dropped; /* events of that step that found no room */
  bool in_step;
  double begin, until;      /* when the step began, and when its last node so far was over */
  uint64_t finished;        /* steps */
  double now_seconds[ROWS]; /* of the step at hand */
  double step_seconds[HRI_PROFILE_STEPS], row_seconds[ROWS][HRI_PROFILE_STEPS]; /* rings */
  hr_profile_row rows[ROWS];
};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint32_t row_of(const hri_node *node) { return 2u * node->op + (node->origin != HRI_NONE); }

/* ---- recording ---- */

hr_status hri_profile_create(const hr_plan *plan, hri_profile **out, hr_error *error) {
  hri_profile *p = hri_alloc_zero(1, sizeof *p);
  uint64_t count = 0;
  if (!p) return hri_fail_memory(error, sizeof *p, "the profile");
  p->plan = plan;
  for (uint8_t kind = 0; kind < HRI_PROGRAM_COUNT; kind++)
    count += (uint64_t)hri_runs_per_step(plan, (hri_program_kind)kind) * plan->job.programs[kind].order.count;
  p->capacity = count < HRI_PROFILE_EVENTS ? (uint32_t)count : HRI_PROFILE_EVENTS;
  p->events = hri_alloc_zero(p->capacity, sizeof *p->events);
  if (!p->events) {
    hr_status status = hri_fail_memory(error, p->capacity * sizeof *p->events, "the events of the profile");
    hri_free(p);
    return status;
  }
  *out = p;
  return HR_OK;
}

void hri_profile_destroy(hri_profile *p) {
  if (!p) return;
  hri_free(p->events);
  hri_free(p);
}

void hri_profile_begin_step(hri_profile *p) {
  p->event_count = 0;
  p->dropped = 0;
  memset(p->now_seconds, 0, sizeof p->now_seconds);
  p->in_step = true;
  p->begin = p->until = now();
}

void hri_profile_node(void *context, const hri_job *job, hri_id node, double seconds) {
  hri_profile *p = context;
  double start = now() - seconds;
  if (!p->in_step) return;
  if (start < p->until) start = p->until; /* of a device's node one is told a moment after it was over */
  p->until = start + seconds;
  p->now_seconds[row_of(&job->nodes.items[node])] += seconds;
  if (p->event_count < p->capacity)
    p->events[p->event_count++] = (event){.start = start, .seconds = (float)seconds, .node = node};
  else p->dropped++;
}

/* The second step overwrites the first, which warmed up. */
void hri_profile_end_step(hri_profile *p) {
  uint64_t slot = p->finished < 1 ? 0 : (p->finished - 1) % HRI_PROFILE_STEPS;
  p->step_seconds[slot] = now() - p->begin;
  for (uint32_t r = 0; r < ROWS; r++) p->row_seconds[r][slot] = p->now_seconds[r];
  p->in_step = false;
  p->finished++;
}

/* ---- summing up ---- */

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static double median(const double *values, uint64_t count) {
  double sorted[HRI_PROFILE_STEPS];
  if (count == 0) return NAN;
  memcpy(sorted, values, count * sizeof *sorted);
  qsort(sorted, count, sizeof *sorted, ascending);
  return (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}

static int longest_first(const void *a, const void *b) {
  const hr_profile_row *x = a, *y = b;
  if (x->seconds != y->seconds) return x->seconds > y->seconds ? -1 : 1;
  return strcmp(x->op, y->op);
}

/* What a step asks of each row: from the programs, whatever was recorded. */
static void add_programs(hri_profile *p) {
  const hri_job *job = &p->plan->job;
  for (uint8_t kind = 0; kind < HRI_PROGRAM_COUNT; kind++) {
    uint32_t times = hri_runs_per_step(p->plan, (hri_program_kind)kind);
    if (times == 0) continue;
    for (size_t at = 0; at < job->programs[kind].order.count; at++) {
      const hri_node *node = &job->nodes.items[job->programs[kind].order.items[at]];
      hri_rate_table table = hri_rate_class_of(job, node).table;
      hr_profile_row *r = &p->rows[row_of(node)];
      r->op = hri_op_name(node->op);
      r->recomputed = node->origin != HRI_NONE;
      r->by_arithmetic = table == HRI_RATE_PRODUCT || table == HRI_RATE_ATTENTION;
      r->calls += times;
      r->flops += times * hri_node_flops(job, node);
      r->bytes += times * hri_node_bytes(job, node);
      r->predicted_seconds += times * hri_node_seconds(job, node, &p->plan->spec.device);
    }
  }
}

void hri_profile_get(hri_profile *p, hr_profile *out) {
  uint64_t counted = p->finished < 2 ? p->finished : p->finished - 1,
           kept = counted < HRI_PROFILE_STEPS ? counted : HRI_PROFILE_STEPS;
  uint32_t count = 0;
  memset(p->rows, 0, sizeof p->rows);
  add_programs(p);
  *out = (hr_profile){.steps = counted,
                      .warm_up_only = p->finished == 1,
                      .step_seconds = median(p->step_seconds, kept),
                      .rows = p->rows,
                      .predicted_seconds = p->plan->info.step_seconds,
                      .prediction_measured = p->plan->info.time_measured,
                      .prediction_seen = p->plan->info.time_seen};
  for (uint32_t r = 0; r < ROWS; r++) {
    hr_profile_row row = p->rows[r];
    if (!row.op) continue;
    row.seconds = median(p->row_seconds[r], kept);
    row.share = row.seconds / out->step_seconds;
    p->rows[count++] = row; /* count <= r */
  }
  out->row_count = count;
  qsort(p->rows, count, sizeof *p->rows, longest_first);
}

/* ---- the trace ---- */

enum { PROCESS = 1, TRACK_LAYERS = 0, TRACK_LANES = 1 }; /* a lane's track: TRACK_LANES + lane */

typedef struct trace {
  const hri_profile *profile;
  hri_json_writer json;
  uint32_t *ticks;      /* per node of the step's programs: tick on the plan's timeline */
  hri_live_series live; /* by role */
  uint32_t told;        /* the tick whose bytes the last counter event shows */
} trace;

/* Microseconds with three digits: the clock's nanoseconds. */
static double micros(double seconds) { return round(seconds * 1e9) / 1e3; }

static void begin_event(trace *t, const char *name, const char *kind, double start, int track) {
  hri_json_begin_object(&t->json);
  hri_json_field_string(&t->json, "name", name);
  hri_json_field_string(&t->json, "ph", kind);
  hri_json_field_double(&t->json, "ts", micros(start - t->profile->events[0].start));
  hri_json_field_u64(&t->json, "pid", PROCESS);
  hri_json_field_u64(&t->json, "tid", (uint64_t)track);
}

static void put_name(trace *t, const char *what, int track, const char *name) {
  begin_event(t, what, "M", t->profile->events[0].start, track);
  hri_json_key(&t->json, "args");
  hri_json_begin_object(&t->json);
  hri_json_field_string(&t->json, "name", name);
  hri_json_end_object(&t->json);
  hri_json_end_object(&t->json);
}

/* "f32[1024, 768], f32[2304, 768] -> f32[1024, 2304]": reads, then what is written or updated. */
static void put_operands(trace *t, const hri_node *node) {
  const hri_job *job = &t->profile->plan->job;
  hri_text text = {0};
  for (int written = 0; written < 2; written++) {
    if (written) hri_text_add(&text, " ->");
    for (uint32_t k = 0, seen = 0; k < node->operand_count; k++) {
      hri_operand o = hri_operands(job, node)[k];
      const hri_tensor *x = o.tensor == HRI_NONE ? NULL : &job->tensors.items[o.tensor];
      if (!x || o.access == HRI_SCRATCH || hri_access_writes(o.access) != written) continue;
      hri_text_add(&text, "%s%s[", seen++ ? ", " : written ? " " : "", hri_dtype_name(x->dtype));
      for (uint8_t d = 0; d < x->rank; d++)
        hri_text_add(&text, "%s%llu", d ? ", " : "", (unsigned long long)x->dims[d]);
      hri_text_add(&text, "]");
    }
  }
  if (text.failed) t->json.text->failed = true;
  hri_json_field_string(&t->json, "operands", hri_text_get(&text));
  hri_text_deinit(&text);
}

/* The type of the first operand: the one that the kernel is chosen by. */
static const char *dtype_of(const hri_job *job, const hri_node *node) {
  for (uint32_t k = 0; k < node->operand_count; k++)
    if (hri_operands(job, node)[k].tensor != HRI_NONE)
      return hri_dtype_name(job->tensors.items[hri_operands(job, node)[k].tensor].dtype);
  return "none";
}

static void put_node(trace *t, const event *e) {
  const hr_plan *plan = t->profile->plan;
  const hri_node *node = &plan->job.nodes.items[e->node];
  double flops = hri_node_flops(&plan->job, node), bytes = hri_node_bytes(&plan->job, node),
         seconds = fmax((double)e->seconds, 1e-9);
  begin_event(t, hri_op_name(node->op), "X", e->start, TRACK_LANES + node->lane);
  hri_json_field_double(&t->json, "dur", micros((double)e->seconds));
  hri_json_field_string(&t->json, "cat", hri_phase_name(node->phase));
  hri_json_key(&t->json, "args");
  hri_json_begin_object(&t->json);
  if (node->layer >= 0) hri_json_field_i64(&t->json, "layer", node->layer);
  hri_json_field_string(&t->json, "phase", hri_phase_name(node->phase));
  if (node->origin != HRI_NONE) hri_json_field_bool(&t->json, "recomputed", true);
  hri_json_field_string(&t->json, "dtype", dtype_of(&plan->job, node));
  put_operands(t, node);
  hri_json_field_double(&t->json, "flops", flops);
  hri_json_field_double(&t->json, "bytes", bytes);
  hri_json_field_double(&t->json, "gflops_per_second", round(flops / seconds * 1e-6) * 1e-3);
  hri_json_field_double(&t->json, "gb_per_second", round(bytes / seconds * 1e-6) * 1e-3);
  hri_json_field_double(&t->json, "predicted_us", micros(hri_node_seconds(&plan->job, node, &plan->spec.device)));
  hri_json_end_object(&t->json);
  hri_json_end_object(&t->json);
}

/* Live bytes by role from this node on, when they are not those of the last counter event. */
static void put_live(trace *t, const event *e) {
  uint32_t tick = t->ticks[e->node];
  const uint64_t *row = t->live.by_role + (size_t)tick * HRI_ROLE_COUNT;
  if (t->told != UINT32_MAX &&
      memcmp(row, t->live.by_role + (size_t)t->told * HRI_ROLE_COUNT, HRI_ROLE_COUNT * sizeof *row) == 0)
    return;
  t->told = tick;
  begin_event(t, "device memory", "C", e->start, TRACK_LAYERS);
  hri_json_key(&t->json, "args");
  hri_json_begin_object(&t->json);
  for (int role = 0; role < HRI_ROLE_COUNT; role++)
    if (t->profile->plan->info.tiers[HR_TIER_DEVICE].max_by_role[role])
      hri_json_field_u64(&t->json, hri_role_name((hri_role)role), row[role]);
  hri_json_end_object(&t->json);
  hri_json_end_object(&t->json);
}

static bool same_group(const hri_node *a, const hri_node *b) {
  return a->layer == b->layer && a->phase == b->phase && a->program == b->program;
}

/* One event over each run of nodes of one layer and phase. */
static void put_groups(trace *t) {
  const hri_profile *p = t->profile;
  for (uint32_t from = 0, to; from < p->event_count; from = to) {
    const hri_node *first = &p->plan->job.nodes.items[p->events[from].node];
    char name[64];
    for (to = from + 1; to < p->event_count && same_group(first, &p->plan->job.nodes.items[p->events[to].node]); to++) {
    }
    if (first->layer >= 0) (void)snprintf(name, sizeof name, "layer %d %s", first->layer, hri_phase_name(first->phase));
    else (void)snprintf(name, sizeof name, "%s", hri_phase_name(first->phase));
    begin_event(t, name, "X", p->events[from].start, TRACK_LAYERS);
    hri_json_field_double(&t->json, "dur",
                          micros(p->events[to - 1].start + (double)p->events[to - 1].seconds - p->events[from].start));
    hri_json_field_string(&t->json, "cat", "layers");
    hri_json_end_object(&t->json);
  }
}

static void put_events(trace *t) {
  const hri_profile *p = t->profile;
  hri_json_key(&t->json, "traceEvents");
  hri_json_begin_array(&t->json);
  if (p->event_count) {
    put_name(t, "process_name", TRACK_LAYERS, "headroom");
    put_name(t, "thread_name", TRACK_LAYERS, "layers");
    for (int lane = 0; lane < HRI_LANE_COUNT; lane++)
      if (p->plan->info.lane_seconds[lane] > 0 || lane == HRI_COMPUTE)
        put_name(t, "thread_name", TRACK_LANES + lane, hri_lane_name((hri_lane)lane));
    put_groups(t);
  }
  for (uint32_t k = 0; k < p->event_count; k++) {
    put_live(t, &p->events[k]);
    put_node(t, &p->events[k]);
  }
  hri_json_end_array(&t->json);
}

static void put_row(hri_json_writer *json, const hr_profile_row *r) {
  hri_json_begin_object(json);
  hri_json_field_string(json, "op", r->op);
  hri_json_field_bool(json, "recomputed", r->recomputed);
  hri_json_field_u64(json, "calls", r->calls);
  hri_json_field_double(json, "seconds", r->seconds);
  hri_json_field_double(json, "share", r->share);
  hri_json_field_double(json, "flops", r->flops);
  hri_json_field_double(json, "bytes", r->bytes);
  hri_json_field_bool(json, "by_arithmetic", r->by_arithmetic);
  hri_json_field_double(json, "predicted_seconds", r->predicted_seconds);
  hri_json_end_object(json);
}

static void put_summary(trace *t, hri_profile *p) {
  const hr_job *job = &p->plan->spec;
  hri_json_writer *json = &t->json;
  hr_profile summary;
  hri_profile_get(p, &summary);
  hri_json_key(json, "otherData");
  hri_json_begin_object(json);
  hri_json_field_u64(json, "schema_version", 1);
  hri_json_field_string(json, "model", job->model.name);
  hri_json_field_u64(json, "micro_batch", job->micro_batch);
  hri_json_field_u64(json, "accumulate", job->accumulate);
  hri_json_field_u64(json, "sequence", job->sequence_length);
  hri_json_field_u64(json, "threads", p->plan->job.team);
  hri_json_field_string(json, "instruction_set", p->plan->job.instruction_set);
  hri_json_field_string(json, "libraries", p->plan->job.libraries);
  hri_json_field_u64(json, "steps", summary.steps);
  hri_json_field_bool(json, "warm_up_only", summary.warm_up_only);
  hri_json_field_u64(json, "events_left_out", p->dropped);
  hri_json_field_double(json, "step_seconds", summary.step_seconds);
  hri_json_field_double(json, "predicted_step_seconds", summary.predicted_seconds);
  hri_json_field_bool(json, "prediction_measured", summary.prediction_measured);
  hri_json_field_bool(json, "prediction_seen", summary.prediction_seen);
  hri_json_key(json, "ops");
  hri_json_begin_array(json);
  for (uint32_t r = 0; r < summary.row_count; r++) put_row(json, &summary.rows[r]);
  hri_json_end_array(json);
  hri_json_end_object(json);
}

/* Tick of each node of the step's programs. */
static hr_status find_ticks(trace *t, hr_error *error) {
  const hr_plan *plan = t->profile->plan;
  for (uint8_t kind = 0; kind < HRI_PROGRAM_COUNT; kind++) {
    const hri_program *p = &plan->job.programs[kind];
    hri_storage_life *lives;
    uint32_t end;
    hr_status status;
    if (hri_runs_per_step(plan, (hri_program_kind)kind) == 0) continue;
    lives = hri_alloc((p->order.count + 1) * sizeof *lives);
    if (!lives) return hri_fail_memory(error, p->order.count * sizeof *lives, "the trace");
    status = hri_node_ticks(&plan->job, kind, plan->placement.spans[kind].begin, lives, &end, error);
    for (size_t at = 0; status == HR_OK && at < p->order.count; at++) t->ticks[p->order.items[at]] = lives[at].begin;
    hri_free(lives);
    HRI_TRY(status);
  }
  return HR_OK;
}

hr_status hri_profile_write(hri_profile *p, const char *path, hr_error *error) {
  trace t = {.profile = p, .told = UINT32_MAX};
  hri_text text = {0};
  hr_status status;
  t.json = hri_json_writer_init(&text, 0);
  t.ticks = hri_alloc_zero(p->plan->job.nodes.count, sizeof *t.ticks);
  if (!t.ticks) return hri_fail_memory(error, p->plan->job.nodes.count * sizeof *t.ticks, "the trace");
  HRI_TRY_OUT(find_ticks(&t, error));
  HRI_TRY_OUT(hri_live_series_make(&p->plan->job, p->plan->placement.lives, p->plan->placement.spans, HRI_DEVICE, 0,
                                   true, &t.live, error));
  hri_json_begin_object(&t.json);
  hri_json_field_string(&t.json, "displayTimeUnit", "ms"); /* first: it tells such a file from others (cli/output.c) */
  put_events(&t);
  put_summary(&t, p);
  hri_json_end_object(&t.json);
  status = text.failed ? hri_fail_memory(error, text.length, "the trace")
                       : hri_file_replace(path, text.chars, text.length, error);
out:
  hri_text_deinit(&text);
  hri_live_series_deinit(&t.live);
  hri_free(t.ticks);
  return status;
}
