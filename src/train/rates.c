#include "train/rates.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "device/cpu.h"
#include "device/host.h"
#include "plan/cost.h"
#include "program/rates.h"

enum {
  ROUNDS = 5, /* that must agree */
  MOST = 40   /* rounds after which a machine counts as busy */
};
static const double ROUND_SECONDS = 0.2, SPREAD = 0.1;
/* A prediction that was this near is good enough. */
static const double NEAR = 0.1;

/* Nodes of one kind: their work, seconds, and what was assumed of them without what a node costs besides its work. */
typedef struct watched_nodes {
  double work, seconds, assumed;
  uint32_t count;
} watched_nodes;

/* Steps in a row: nodes by entry of the tables, and those that are too small to tell a rate. */
typedef struct watched {
  watched_nodes entries[HR_RATE_ENTRIES], tiny;
  double step_seconds;
  uint32_t steps;
  hri_host_load before, after;
} watched;

struct hri_rate_watch {
  const hr_plan *plan;
  hr_device device; /* the plan's; where that was probed for another team, with what is assumed of this one */
  hri_rate_state state;
  bool in_step, warm, holes; /* holes: some class was predicted without a rate */
  uint32_t count;            /* rounds that ended */
  watched rounds[ROUNDS];    /* a ring; count % ROUNDS is at work */
  double step_seconds, spread;
  hr_device_rates rates;
};

hr_status hri_rate_watch_begin(const hr_plan *plan, hri_rate_watch **out, hr_error *error) {
  const hr_device *device = &plan->spec.device;
  const bool others = device->rates.threads && device->rates.threads != plan->job.team;
  hri_rate_watch *w;
  *out = NULL;
  if (!device->has_team || !device->usable_now) return HR_OK;
  if (device->rates.threads && !device->rates.seen && !others) return HR_OK;
  w = hri_alloc_zero(1, sizeof *w);
  if (!w) return hri_fail_memory(error, sizeof *w, "the rates of this run");
  w->plan = plan;
  w->device = *device;
  if (others) { /* which this team's rates will be read beside */
    memset(&w->device.rates, 0, sizeof w->device.rates);
    hri_cpu_assume(&w->device);
  }
  w->rounds[0].before = hri_host_load_now();
  *out = w;
  return HR_OK;
}

void hri_rate_watch_end(hri_rate_watch *w) { hri_free(w); }

hri_rate_state hri_rate_watch_state(const hri_rate_watch *w) { return w->state; }
double hri_rate_watch_step_seconds(const hri_rate_watch *w) { return w->step_seconds; }
double hri_rate_watch_spread(const hri_rate_watch *w) { return w->spread; }
const hr_device_rates *hri_rate_watch_rates(const hri_rate_watch *w) { return &w->rates; }

/* ---- recording ---- */

void hri_rate_watch_begin_step(hri_rate_watch *w) { w->in_step = w->state == HRI_RATES_WATCHING && w->warm; }

/* So little work that most of its time is the node's own: a vector's update, a counter. It says nothing of a rate, and
 * would stand for the first column's sizes where a run has no others of its class. */
static bool is_tiny(const hri_rate_class *where) {
  enum { DOUBLINGS = 4 };
  return where->size < hri_rate_column(where->table, 0) - DOUBLINGS;
}

static void add(watched_nodes *n, double work, double seconds, double assumed) {
  n->work += work;
  n->seconds += seconds;
  n->assumed += assumed;
  n->count++;
}

/* Nothing of a class of transfers. */
void hri_rate_watch_node(hri_rate_watch *w, const hri_job *job, hri_id id, double seconds) {
  const hri_node *node = &job->nodes.items[id];
  const hr_device *device = &w->device;
  watched *r = &w->rounds[w->count % ROUNDS];
  hri_rate_class where;
  double assumed;
  size_t entry;
  if (!w->in_step) return;
  where = hri_rate_class_of(job, node);
  if (where.table == HRI_RATE_NONE || !(where.work > 0)) return;
  assumed = hri_assumed_seconds(job, node, device) - device->node_seconds;
  if (is_tiny(&where)) {
    add(&r->tiny, where.work, seconds, assumed);
    return;
  }
  entry = (size_t)(hri_rate_entry(&w->rates, &where) - (double *)w->rates.tables);
  assert(entry < HR_RATE_ENTRIES);
  add(&r->entries[entry], where.work, seconds, assumed);
  w->holes |= device->rates.threads == 0 || device->rates.taken[entry] <= 0;
}

/* ---- judging ---- */

static watched_nodes sum_of(const watched_nodes *a, const watched_nodes *b) {
  return (watched_nodes){a->work + b->work, a->seconds + b->seconds, a->assumed + b->assumed, a->count + b->count};
}

static double pace(const hri_rate_watch *w, const watched *r) {
  watched_nodes all = r->tiny;
  for (size_t k = 0; k < HR_RATE_ENTRIES; k++) all = sum_of(&all, &r->entries[k]);
  return all.seconds / (all.assumed + all.count * w->device.node_seconds);
}

/* Whether others worked on the processors during the rounds. */
static bool crowded(const hri_rate_watch *w) {
  hri_host_load taken = {0};
  double seconds = 0;
  for (int k = 0; k < ROUNDS; k++) {
    seconds += w->rounds[k].step_seconds;
    hri_host_load_add(&taken, &w->rounds[k].before, &w->rounds[k].after);
  }
  return hri_host_load_disturbs(&taken, w->plan->job.team, seconds);
}

/* Infinite where a round has no pace: nothing in it that is classed, or no time of it. */
static double spread_of(const hri_rate_watch *w) {
  double least = HUGE_VAL, most = 0;
  for (int k = 0; k < ROUNDS; k++) {
    const double one = pace(w, &w->rounds[k]);
    if (!isfinite(one) || one <= 0) return HUGE_VAL;
    least = fmin(least, one);
    most = fmax(most, one);
  }
  return most / least - 1;
}

static void describe(hri_rate_watch *w, double overhead) {
  const hri_job *job = &w->plan->job;
  hr_device_rates *r = &w->rates;
  time_t seconds = time(NULL);
  struct tm day;
  r->seen = true;
  r->threads = job->team;
  r->node_seconds = overhead;
  r->assumed_of = hri_assumed_figures(&w->device, job->team);
  (void)snprintf(r->instruction_set, sizeof r->instruction_set, "%s", job->instruction_set);
  (void)snprintf(r->libraries, sizeof r->libraries, "%s", job->libraries);
  if (gmtime_r(&seconds, &day)) (void)strftime(r->date, sizeof r->date, "%Y-%m-%d", &day);
}

/* What a node costs besides its work: of those that have next to none. */
static double overhead_of(const hri_rate_watch *w, const watched_nodes *tiny) {
  if (tiny->count == 0) return w->device.node_seconds;
  return fmax(tiny->seconds - tiny->assumed, tiny->seconds / 2) / tiny->count;
}

/* Of all rounds: what a step of the entries' nodes took without what nodes cost besides, beside what was assumed. */
static void sum_up(hri_rate_watch *w) {
  watched_nodes tiny = {0};
  double steps = 0, overhead;
  w->step_seconds = 0;
  for (int k = 0; k < ROUNDS; k++) {
    w->step_seconds += w->rounds[k].step_seconds;
    steps += w->rounds[k].steps;
    tiny = sum_of(&tiny, &w->rounds[k].tiny);
  }
  w->step_seconds /= steps;
  overhead = overhead_of(w, &tiny);
  describe(w, overhead);
  for (size_t entry = 0; entry < HR_RATE_ENTRIES; entry++) {
    watched_nodes all = {0};
    double seconds;
    for (int k = 0; k < ROUNDS; k++) all = sum_of(&all, &w->rounds[k].entries[entry]);
    seconds = fmax(all.seconds - all.count * overhead, all.seconds / 2);
    ((double *)w->rates.tables)[entry] = seconds > 0 ? all.work / seconds : 0;
    w->rates.taken[entry] = seconds / steps;
    w->rates.assumed[entry] = all.assumed / steps;
    if (!hri_seen_pair_holds(w->rates.taken[entry], w->rates.assumed[entry])) /* no clock's, or no time at all */
      ((double *)w->rates.tables)[entry] = w->rates.taken[entry] = w->rates.assumed[entry] = 0;
  }
}

/* After a round. */
static void judge(hri_rate_watch *w) {
  double off;
  w->count++;
  if (w->count < ROUNDS) return;
  w->spread = spread_of(w);
  if (w->spread <= SPREAD && !crowded(w)) {
    sum_up(w);
    off = w->step_seconds / w->plan->info.step_seconds - 1;
    w->state = w->holes || fabs(off) > NEAR ? HRI_RATES_NEW : HRI_RATES_KNOWN;
  } else if (w->count >= MOST) w->state = HRI_RATES_UNSTEADY;
}

bool hri_rate_watch_end_step(hri_rate_watch *w, double seconds) {
  watched *r = &w->rounds[w->count % ROUNDS];
  if (w->state != HRI_RATES_WATCHING) return false;
  if (!w->in_step) { /* the first one warmed up */
    w->warm = true;
    r->before = hri_host_load_now();
    return false;
  }
  w->in_step = false;
  r->step_seconds += seconds;
  r->steps++;
  if (r->step_seconds < ROUND_SECONDS) return false;
  r->after = hri_host_load_now();
  judge(w);
  if (w->state != HRI_RATES_WATCHING) return true;
  w->rounds[w->count % ROUNDS] = (watched){.before = r->after};
  return false;
}
