/* `plan --timeline`: memory and predicted time, node by node. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/plan.h"
#include "cli/text.h"

typedef struct samples {
  hr_sample *items;
  uint32_t count;
} samples;

/* ---- the chart of memory ---- */

/* A moment of the course that is drawn. */
typedef struct point {
  const char *program, *phase;
  uint64_t bytes, held; /* live; held with them in caches, 0: there are none */
} point;
typedef struct course {
  point *points;
  uint32_t count;
  uint64_t budget, fixed;
  const char *what; /* the bytes, in words */
} course;

enum { CHART_COLUMNS = SCREEN_MOST, CHART_BESIDE = 14, CHART_ROWS = 10 };

typedef struct memory_chart {
  uint64_t most[CHART_COLUMNS], held[CHART_COLUMNS], top;
  const char *program[CHART_COLUMNS], *phase[CHART_COLUMNS];
  uint32_t columns, width; /* of the chart; of the room for it */
} memory_chart;

static void fill_chart(const course *s, uint32_t width, memory_chart *chart) {
  memset(chart, 0, sizeof *chart);
  chart->width = width;
  chart->columns = s->count < width ? s->count : width;
  for (uint32_t i = 0; i < s->count; i++) {
    uint32_t column = (uint32_t)((uint64_t)i * chart->columns / s->count);
    const point *p = &s->points[i];
    if (!chart->program[column]) {
      chart->program[column] = p->program;
      chart->phase[column] = p->phase;
    }
    if (p->bytes > chart->most[column]) chart->most[column] = p->bytes;
    if (p->held > chart->held[column]) chart->held[column] = p->held;
    if (p->bytes > chart->top) chart->top = p->bytes;
    if (p->held > chart->top) chart->top = p->held;
  }
}

/* Prints `count` characters less the blanks at their end. */
static void print_trimmed(FILE *stream, const char *line, uint32_t count) {
  while (count > 0 && line[count - 1] == ' ') count--;
  (void)fprintf(stream, "%.*s\n", (int)count, line);
}

/* A line of names, each where it starts, or a little later where the one before needs the room. */
static void print_names(FILE *stream, const memory_chart *chart, const char *const *names) {
  char line[CHART_COLUMNS];
  const char *last = "";
  uint32_t next = 0; /* first free column */
  memset(line, ' ', sizeof line);
  for (uint32_t i = 0; i < chart->columns; i++) {
    size_t length = strlen(names[i]);
    if (strcmp(names[i], last) == 0 || i < next || i + length > chart->width) continue;
    memcpy(line + i, names[i], length);
    next = i + (uint32_t)length + 1;
    last = names[i];
  }
  (void)fprintf(stream, "%12s", "");
  print_trimmed(stream, line, chart->width);
}

/* What a budget leaves for live bytes, and as a row of the chart: above it, where the bytes are few beside the budget. */
typedef struct limit {
  uint64_t bytes;
  uint32_t row; /* CHART_ROWS + 1: above all */
} limit;

static limit limit_of(const course *s, const memory_chart *chart) {
  limit l = {.bytes = s->budget > s->fixed ? s->budget - s->fixed : 0};
  l.row = l.bytes > chart->top ? CHART_ROWS + 1 : (uint32_t)((double)l.bytes / (double)chart->top * CHART_ROWS + 0.5);
  return l;
}

/* The budget as a line across: '=' where bytes stay below it, '#' where they go through. */
static void print_limit(FILE *stream, const memory_chart *chart, const limit *l) {
  (void)fprintf(stream, "%10s |", SIZE_TEXT(l->bytes));
  for (uint32_t i = 0; i < chart->columns; i++)
    (void)fputc(chart->most[i] > l->bytes ? '#' : chart->held[i] > l->bytes ? '.' : '=', stream);
  (void)fputc('\n', stream);
  if (l->row > CHART_ROWS && l->bytes > chart->top + chart->top / CHART_ROWS) /* not to scale */
    (void)fprintf(stream, "%10s :\n", "");
}

static void print_chart(FILE *stream, const course *s) {
  memory_chart chart;
  char line[CHART_COLUMNS], title[160];
  limit l;
  fill_chart(s, screen_columns(stream) - CHART_BESIDE, &chart);
  if (chart.columns == 0 || chart.top == 0) return;
  l = limit_of(s, &chart);
  (void)snprintf(title, sizeof title, "%s; = is the budget less %s fixed", s->what, SIZE_TEXT(s->fixed));
  (void)fputc('\n', stream);
  screen_wrap(stream, 0, title);
  for (uint32_t row = CHART_ROWS + 1; row > 0; row--) {
    uint64_t level = chart.top / CHART_ROWS * (row - 1);
    if (row == l.row) print_limit(stream, &chart, &l);
    if (row > CHART_ROWS) continue;
    (void)fprintf(stream, "%10s |",
                  row == CHART_ROWS || row == CHART_ROWS / 2 ? SIZE_TEXT(chart.top / CHART_ROWS * row) : "");
    for (uint32_t i = 0; i < chart.columns; i++)
      line[i] = " .#"[chart.most[i] > level ? 2 : chart.held[i] > level ? 1 : 0];
    print_trimmed(stream, line, chart.columns);
  }
  if (l.row == 0) print_limit(stream, &chart, &l);
  (void)fprintf(stream, "%10s +", "0");
  for (uint32_t i = 0; i < chart.columns; i++) (void)fputc('-', stream);
  (void)fputc('\n', stream);
  print_names(stream, &chart, chart.program);
  print_names(stream, &chart, chart.phase);
}

/* ---- the time of each program ---- */

typedef struct op_share {
  const char *op;
  double seconds;
} op_share;

enum { MAX_OPS = 128, SHOWN_OPS = 5 };

typedef struct program_time {
  uint32_t begin, end; /* samples [begin, end) */
  double seconds;      /* from its begin to the end of its last node */
  double lanes[HR_LANE_COUNT];
} program_time;

/* The samples of a program stand together: reads the one that begins at `begin`. */
static program_time read_program(const samples *s, uint32_t begin) {
  program_time t = {.begin = begin, .end = begin};
  for (; t.end < s->count && strcmp(s->items[t.end].program, s->items[begin].program) == 0; t.end++) {
    const hr_sample *sample = &s->items[t.end];
    t.lanes[sample->lane] += sample->end_seconds - sample->begin_seconds;
    if (sample->end_seconds > t.seconds) t.seconds = sample->end_seconds;
  }
  return t;
}

static int longest_first(const void *a, const void *b) {
  const op_share *x = a, *y = b;
  if (x->seconds != y->seconds) return x->seconds > y->seconds ? -1 : 1;
  return strcmp(x->op, y->op);
}

/* The ops on the critical path, by their share of it. */
static void describe_critical(const samples *s, const program_time *t, char *text, size_t bytes) {
  op_share ops[MAX_OPS];
  uint32_t count = 0;
  size_t used = 0;
  for (uint32_t i = t->begin; i < t->end; i++) {
    const hr_sample *sample = &s->items[i];
    uint32_t k = 0;
    if (!sample->critical) continue;
    while (k < count && strcmp(ops[k].op, sample->op) != 0) k++;
    if (k == MAX_OPS) continue;
    if (k == count) ops[count++] = (op_share){sample->op, 0};
    ops[k].seconds += sample->end_seconds - sample->begin_seconds;
  }
  qsort(ops, count, sizeof *ops, longest_first);
  for (uint32_t k = 0; k < count && k < SHOWN_OPS && used < bytes; k++)
    used += (size_t)snprintf(text + used, bytes - used, "%s%s %.0f %%", k ? ", " : "critical path: ", ops[k].op,
                             t->seconds > 0 ? 100 * ops[k].seconds / t->seconds : 0);
  if (count > SHOWN_OPS && used < bytes) (void)snprintf(text + used, bytes - used, ", ...");
}

static void print_times(FILE *stream, const samples *s) {
  (void)fprintf(stream, "\npredicted time of each program, and how long its lanes work\n");
  for (uint32_t i = 0; i < s->count;) {
    program_time t = read_program(s, i);
    char text[512] = "";
    (void)fprintf(stream, "%-10s %s:", s->items[i].program, SECONDS_TEXT(t.seconds));
    for (uint32_t lane = 0, any = 0; lane < HR_LANE_COUNT; lane++)
      if (t.lanes[lane] > 0)
        (void)fprintf(stream, "%s%s %.0f %%", any++ ? ", " : " ", hr_lane_name(lane), 100 * t.lanes[lane] / t.seconds);
    (void)fputc('\n', stream);
    describe_critical(s, &t, text, sizeof text);
    screen_hang(stream, 11, "", text);
    i = t.end;
  }
}

static hr_status print_samples(FILE *stream, const hr_plan *plan, const samples *s, hr_error *error) {
  const hr_plan_info *info = hr_plan_get(plan);
  course c = {.budget = info->budget_bytes,
              .fixed = info->tiers[HR_TIER_DEVICE].fixed_bytes,
              .what = "live bytes of the job, node by node"};
  c.points = calloc((size_t)s->count + 1, sizeof *c.points);
  if (!c.points) return hri_fail_memory(error, s->count * sizeof *c.points, "the chart");
  for (uint32_t i = 0; i < s->count; i++)
    c.points[c.count++] = (point){s->items[i].program, hr_phase_name(s->items[i].phase), s->items[i].live_bytes, 0};
  print_chart(stream, &c);
  free(c.points);
  return HR_OK;
}

hr_status plan_print_timeline(FILE *stream, const hr_plan *plan, hr_error *error) {
  samples s;
  hr_status status = hr_plan_samples(plan, HR_TIER_DEVICE, &s.items, &s.count, error);
  if (status != HR_OK) return status;
  status = print_samples(stream, plan, &s, error);
  if (status == HR_OK) print_times(stream, &s);
  hr_free(s.items);
  return status;
}

/* ---- PyTorch's ---- */

static const char *step_name(const hr_pytorch_moment *m) {
  if (m->phase == HR_PYTORCH_LOAD) return "load";
  if (m->phase == HR_PYTORCH_EVALUATE) return "evaluation";
  return m->step == 1 ? "step 1" : "step 2";
}

hr_status plan_engine_print_timeline(FILE *stream, const hr_pytorch *pytorch, hr_error *error) {
  const hr_pytorch_info *info = hr_pytorch_get(pytorch);
  course c = {.budget = info->budget_bytes,
              .fixed = info->context_bytes,
              .what = "bytes that PyTorch has allocated (#) and reserved (.), request by request"};
  hr_pytorch_moment *moments;
  uint64_t count;
  HRI_TRY(hr_pytorch_course(pytorch, &moments, &count, error));
  c.points = calloc(count + 1, sizeof *c.points);
  if (!c.points) {
    hr_free(moments);
    return hri_fail_memory(error, count * sizeof *c.points, "the chart");
  }
  for (uint64_t i = 0; i < count; i++)
    c.points[c.count++] = (point){step_name(&moments[i]), hr_pytorch_phase_name(moments[i].phase),
                                  moments[i].allocated_bytes, moments[i].reserved_bytes};
  print_chart(stream, &c);
  free(c.points);
  hr_free(moments);
  return HR_OK;
}

/* ---- JSON ---- */

static void write_sample(json_writer *json, const hr_sample *sample) {
  json_write_open_flat(json, NULL, '{');
  json_write_text(json, "program", sample->program);
  json_write_text(json, "op", sample->op);
  json_write_text(json, "phase", hr_phase_name(sample->phase));
  if (sample->layer >= 0) json_write_integer(json, "layer", sample->layer);
  else json_write_null(json, "layer");
  json_write_count(json, "live_bytes", sample->live_bytes);
  for (uint32_t role = 0; role < HR_ROLE_COUNT; role++)
    if (sample->by_role[role]) json_write_count(json, hr_role_name(role), sample->by_role[role]);
  json_write_text(json, "lane", hr_lane_name(sample->lane));
  json_write_ns(json, "begin_ns", sample->begin_seconds);
  json_write_ns(json, "end_ns", sample->end_seconds);
  json_write_close(json, '}');
}

static void write_program(json_writer *json, const samples *s, const program_time *t) {
  json_write_open(json, NULL, '{');
  json_write_text(json, "program", s->items[t->begin].program);
  json_write_ns(json, "span_ns", t->seconds);
  json_write_open(json, "by_lane", '{');
  for (uint32_t lane = 0; lane < HR_LANE_COUNT; lane++) json_write_ns(json, hr_lane_name(lane), t->lanes[lane]);
  json_write_close(json, '}');
  json_write_open_flat(json, "critical_path", '[');
  for (uint32_t i = t->begin; i < t->end; i++)
    if (s->items[i].critical) json_write_count(json, NULL, i);
  json_write_close(json, ']');
  json_write_close(json, '}');
}

hr_status plan_write_timeline(json_writer *json, const hr_plan *plan, hr_error *error) {
  samples s;
  hr_status status = hr_plan_samples(plan, HR_TIER_DEVICE, &s.items, &s.count, error);
  if (status != HR_OK) return status;
  json_write_open(json, "timeline", '[');
  for (uint32_t i = 0; i < s.count; i++) write_sample(json, &s.items[i]);
  json_write_close(json, ']');
  json_write_open(json, "schedule", '[');
  for (uint32_t i = 0; i < s.count;) {
    program_time t = read_program(&s, i);
    write_program(json, &s, &t);
    i = t.end;
  }
  json_write_close(json, ']');
  hr_free(s.items);
  return HR_OK;
}

hr_status plan_engine_write_timeline(json_writer *json, const hr_pytorch *pytorch, hr_error *error) {
  hr_pytorch_moment *moments;
  uint64_t count;
  HRI_TRY(hr_pytorch_course(pytorch, &moments, &count, error));
  json_write_open(json, "timeline", '[');
  for (uint64_t i = 0; i < count; i++) {
    const hr_pytorch_moment *m = &moments[i];
    json_write_open_flat(json, NULL, '{');
    json_write_count(json, "step", m->step);
    json_write_text(json, "phase", hr_pytorch_phase_name(m->phase));
    json_write_text(json, "op", m->op);
    json_write_text(json, "module", m->module);
    if (m->layer >= 0) json_write_integer(json, "layer", m->layer);
    else json_write_null(json, "layer");
    json_write_bool(json, "free", m->free);
    json_write_count(json, "allocated_bytes", m->allocated_bytes);
    json_write_count(json, "reserved_bytes", m->reserved_bytes);
    json_write_close(json, '}');
  }
  json_write_close(json, ']');
  hr_free(moments);
  return HR_OK;
}
