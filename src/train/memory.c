#include "train/memory.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "plan/timeline.h"
#include "base/file.h"
#include "snapshot/trail.h"

enum { STEPS = 3, TIMES = 65536, RUNS = 4096, PATH_BYTES = 4096 };

/* One program of a recorded step: the time of each of its nodes in times[first, first + count). */
typedef struct ran {
  hri_program_kind kind;
  uint32_t first, count;
  int64_t begin_us;
} ran;

typedef struct recorded {
  uint64_t step; /* 0: none */
  uint32_t run_count, time_count;
  uint32_t told; /* the run whose nodes are told: they may be told long after their program, in the order of programs */
  uint32_t expected; /* nodes of all runs */
  bool whole;        /* it ended, and all of it found room */
} recorded;

struct hri_memory {
  const hr_plan *plan;
  hri_trail_page *trail;
  char directory[PATH_BYTES];
  bool record;
  recorded steps[STEPS]; /* a ring */
  uint32_t slots, slot;  /* steps kept; the one at hand */
  uint32_t times_each, runs_each;
  int64_t *times;
  ran *runs;
  int64_t loaded_us;
  bool in_step;
};

static int64_t now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static hr_status join(char path[PATH_BYTES], const char *directory, const char *name, hr_error *error) {
  int length = snprintf(path, PATH_BYTES, "%s/%s", directory, name);
  if (length > 0 && length < PATH_BYTES) return HR_OK;
  {
    hri_fail(error, HR_ERROR_USAGE, "the path of the run directory is longer than %d bytes", PATH_BYTES - 64);
    return hri_hint(error, HR_ERROR_USAGE, "name a shorter --out");
  }
}

/* ---- room ---- */

/* As many of the last steps as have room; of a step that is too long, its first programs. */
static hr_status make_room(hri_memory *m, hr_error *error) {
  uint64_t nodes = 0, runs = 0;
  for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++) {
    uint64_t times = hri_runs_per_step(m->plan, (hri_program_kind)kind);
    nodes += times * m->plan->job.programs[kind].order.count;
    runs += times;
  }
  m->slots = STEPS;
  while (m->slots > 1 && (nodes * m->slots > TIMES || runs * m->slots > RUNS)) m->slots--;
  m->times_each = (uint32_t)(nodes < TIMES / m->slots ? nodes : TIMES / m->slots);
  m->runs_each = (uint32_t)(runs < RUNS / m->slots ? runs : RUNS / m->slots);
  m->times = hri_alloc_zero((size_t)m->times_each * m->slots + 1, sizeof *m->times);
  m->runs = hri_alloc_zero((size_t)m->runs_each * m->slots + 1, sizeof *m->runs);
  return m->times && m->runs
             ? HR_OK
             : hri_fail_memory(error, (uint64_t)m->times_each * m->slots * sizeof *m->times, "recorded steps");
}

static hr_status write_plan(const hri_memory *m, hr_error *error) {
  char path[PATH_BYTES];
  hr_snapshot *snapshot;
  hr_status status;
  HRI_TRY(join(path, m->directory, "plan.pickle.gz", error));
  HRI_TRY(hr_plan_snapshot(m->plan, &snapshot, error));
  status = hr_snapshot_write(snapshot, path, NULL, error);
  hr_snapshot_destroy(snapshot);
  return status;
}

hr_status hri_memory_open(const char *directory, const hr_plan *plan, bool record, hri_memory **memory,
                          hr_error *error) {
  hri_memory *m = hri_alloc_zero(1, sizeof *m);
  const hr_tier_plan *tier = &plan->info.tiers[HR_TIER_DEVICE];
  char path[PATH_BYTES];
  hr_status status;
  if (!m) return hri_fail_memory(error, sizeof *m, "the record of a run");
  m->plan = plan;
  m->record = record;
  HRI_TRY_OUT(join(m->directory, directory, "memory", error));
  HRI_TRY_OUT(hri_dir_make(m->directory, error));
  HRI_TRY_OUT(write_plan(m, error));
  HRI_TRY_OUT(join(path, m->directory, "snapshot.pickle.gz", error));
  (void)unlink(path); /* of an earlier part of a resumed run */
  if (record) HRI_TRY_OUT(make_room(m, error));
  HRI_TRY_OUT(join(path, m->directory, "trail", error));
  HRI_TRY_OUT(hri_trail_open(path, &m->trail, error));
  m->trail->started_us = m->trail->time_us = m->loaded_us = now_us();
  m->trail->reserved_bytes = tier->reserved_bytes;
  m->trail->fixed_bytes = tier->fixed_bytes;
  m->trail->budget_bytes = plan->info.budget_bytes;
out:
  if (status != HR_OK) hri_memory_close(m), m = NULL;
  *memory = m;
  return status;
}

void hri_memory_close(hri_memory *m) {
  if (!m) return;
  hri_trail_close(m->trail);
  hri_free(m->times);
  hri_free(m->runs);
  hri_free(m);
}

/* ---- while it runs ---- */

void hri_memory_stand(hri_memory *m, uint64_t step, uint64_t steps) {
  m->trail->step = step;
  m->trail->steps = steps;
}

void hri_memory_begin_step(hri_memory *m, uint64_t step) {
  m->in_step = true;
  if (!m->record) return;
  m->slot = (uint32_t)((step - 1) % m->slots);
  m->steps[m->slot] = (recorded){.step = step, .whole = true};
}

void hri_memory_program(hri_memory *m, hri_program_kind kind, uint32_t micro) {
  recorded *r = &m->steps[m->slot];
  m->trail->micro = micro;
  if (!m->record || !m->in_step) return;
  if (!r->whole || r->run_count == m->runs_each ||
      r->expected + m->plan->job.programs[kind].order.count > m->times_each) {
    r->whole = false;
    return;
  }
  m->runs[m->slot * m->runs_each + r->run_count++] = (ran){.kind = kind, .first = r->expected, .begin_us = now_us()};
  r->expected += (uint32_t)m->plan->job.programs[kind].order.count;
}

/* The run that the next node belongs to; NULL: none was noted for it. */
static ran *run_told(const hri_memory *m, recorded *r) {
  ran *runs = m->runs + m->slot * m->runs_each;
  while (r->told < r->run_count && runs[r->told].count == m->plan->job.programs[runs[r->told].kind].order.count)
    r->told++;
  return r->told < r->run_count ? &runs[r->told] : NULL;
}

static void put(char *to, size_t room, const char *word) {
  size_t length = strlen(word);
  if (length >= room) length = room - 1;
  memcpy(to, word, length);
  to[length] = 0;
}

void hri_memory_node(hri_memory *m, const hri_job *job, hri_id id) {
  const hri_node *node = &job->nodes.items[id];
  hri_trail_page *page = m->trail;
  recorded *r = &m->steps[m->slot];
  ran *run;
  page->time_us = now_us();
  page->layer = node->layer;
  put(page->program, sizeof page->program, hri_program_name((hri_program_kind)node->program));
  put(page->phase, sizeof page->phase, hr_phase_name(node->phase));
  put(page->op, sizeof page->op, hri_op_name(node->op));
  run = m->record && m->in_step ? run_told(m, r) : NULL;
  if (!run || run->kind != node->program) return;
  assert(run->first + run->count < m->times_each); /* room was looked for when the program was launched */
  m->times[m->slot * m->times_each + run->first + run->count++] = page->time_us;
  r->time_count++;
}

void hri_memory_end_step(hri_memory *m, const hr_metrics *metrics) {
  hri_trail_page *page = m->trail;
  m->in_step = false;
  page->step = metrics->step;
  page->steps = metrics->steps;
  page->time_us = now_us();
  page->resident_bytes = metrics->process_resident_bytes;
  page->peak_resident_bytes = metrics->process_peak_bytes;
}

void hri_memory_usable(hri_memory *m, uint64_t usable_bytes) { m->trail->usable_bytes = usable_bytes; }

/* ---- the snapshot ---- */

typedef struct clocked {
  const int64_t *times;
  uint32_t count;
  int64_t begin_us;
} clocked;

/* Nodes ran in issue order; those that were not reached have the time of the last. */
static int64_t time_of(void *context, uint32_t index) {
  clocked *c = context;
  if (index == UINT32_MAX || c->count == 0) return c->begin_us;
  return c->times[index < c->count ? index : c->count - 1];
}

static bool add_step(hri_timeline *t, const hri_memory *m, uint32_t slot) {
  const recorded *r = &m->steps[slot];
  const ran *runs = m->runs + slot * m->runs_each;
  const int64_t *times = m->times + slot * m->times_each;
  char name[40];
  (void)snprintf(name, sizeof name, "step %llu", (unsigned long long)r->step);
  if (r->run_count == 0 || !hri_timeline_mark(t, name, false, runs[0].begin_us)) return r->run_count == 0;
  for (uint32_t k = 0; k < r->run_count; k++) {
    clocked c = {.times = times + runs[k].first, .count = runs[k].count, .begin_us = runs[k].begin_us};
    if (!hri_timeline_program(t, runs[k].kind, time_of, &c)) return false;
  }
  return hri_timeline_mark(t, name, true, r->time_count ? times[r->time_count - 1] : runs[0].begin_us);
}

static hr_status write_snapshot(const hri_memory *m, const hri_executor *executor, hr_error *error) {
  char path[PATH_BYTES];
  hri_timeline t;
  hr_snapshot *snapshot;
  hr_status status;
  uint32_t first = 0;
  clocked load = {.begin_us = m->loaded_us};
  bool fine;
  HRI_TRY(join(path, m->directory, "snapshot.pickle.gz", error));
  HRI_TRY(hri_timeline_begin(&t, m->plan, hri_executor_address(executor, HRI_DEVICE), true, m->loaded_us, error));
  fine = hri_timeline_program(&t, HRI_LOAD, time_of, &load);
  for (uint32_t k = 1; k < m->slots; k++) /* the oldest kept */
    if (m->steps[k].step && (!m->steps[first].step || m->steps[k].step < m->steps[first].step)) first = k;
  for (uint32_t k = 0; fine && k < m->slots; k++)
    if (m->steps[(first + k) % m->slots].step) fine = add_step(&t, m, (first + k) % m->slots);
  HRI_TRY(hri_timeline_end(&t, &snapshot, error));
  status = hr_snapshot_write(snapshot, path, NULL, error);
  hr_snapshot_destroy(snapshot);
  return status;
}

hr_status hri_memory_end(hri_memory *m, const hri_executor *executor, hr_status outcome, const hr_error *failure,
                         hr_error *error) {
  hri_trail_page *page = m->trail;
  page->time_us = now_us();
  page->status = outcome;
  page->state = outcome == HR_OK                  ? HRI_TRAIL_FINISHED
                : outcome == HR_ERROR_INTERRUPTED ? HRI_TRAIL_STOPPED
                                                  : HRI_TRAIL_FAILED;
  if (failure && outcome != HR_OK) put(page->message, sizeof page->message, failure->message);
  return m->record && executor ? write_snapshot(m, executor, error) : HR_OK;
}
