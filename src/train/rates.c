#include "train/rates.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "device/host.h"
#include "plan/cost.h"

enum {
  ROUNDS = 5, /* that must agree */
  MOST = 40,  /* rounds after which a machine counts as busy */
  CELLS = sizeof((hr_device_rates *)0)->tables / (sizeof(double))
};
static const double ROUND_SECONDS = 0.2, SPREAD = 0.1;
/* Of the time of a thread: what others may take, by the host's word or by the kernel's, half of what rounds may differ
 * by. Where the kernel does not tell, by interruptions of some milliseconds each; its own are of microseconds, and 16 a
 * second were seen on an idle machine, so their number alone says little. */
static const double STOLEN_SHARE = 0.02, WAITED_SHARE = 0.05, PREEMPTIONS_PER_SECOND = 20;
/* A prediction that was this near is good enough. */
static const double NEAR = 0.1;

/* Steps in a row. `work` and `seconds` are by entry of the tables; the sums of arithmetic and of traffic are [0], [1]. */
typedef struct watched {
  double work[CELLS], seconds[CELLS];
  double taken[2], assumed[2];
  double step_seconds;
  uint32_t steps;
  hri_host_load before, after;
} watched;

struct hri_rate_watch {
  const hr_plan *plan;
  hri_rate_state state;
  bool in_step, warm, holes; /* holes: some class was predicted without a rate */
  uint32_t count;            /* rounds that ended */
  watched rounds[ROUNDS];    /* a ring; count % ROUNDS is at work */
  double step_seconds, spread;
  hr_device_rates rates;
};

hr_status hri_rate_watch_begin(const hr_plan *plan, hri_rate_watch **out, hr_error *error) {
  const hr_device *device = &plan->spec.device;
  hri_rate_watch *w;
  *out = NULL;
  if (!device->has_team || !device->usable_now || (device->rates.threads && !device->rates.seen)) return HR_OK;
  w = hri_alloc_zero(1, sizeof *w);
  if (!w) return hri_fail_memory(error, sizeof *w, "the rates of this run");
  w->plan = plan;
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

/* Nothing of a class of transfers; rates are of the work alone, as a probe's (run/probe.c). */
void hri_rate_watch_node(hri_rate_watch *w, const hri_job *job, hri_id id, double seconds) {
  const hri_node *node = &job->nodes.items[id];
  const hr_device *device = &w->plan->spec.device;
  const double overhead = device->node_seconds;
  watched *r = &w->rounds[w->count % ROUNDS];
  hri_rate_class where;
  bool memory;
  size_t cell;
  if (!w->in_step) return;
  where = hri_rate_class_of(job, node);
  if (where.table == HRI_RATE_NONE || !(where.work > 0)) return;
  memory = !hri_is_arithmetic(&where);
  r->taken[memory] += seconds;
  r->assumed[memory] += hri_assumed_seconds(job, node, device);
  if (is_tiny(&where)) return;
  cell = (size_t)(hri_rate_entry(&w->rates, &where) - (double *)w->rates.tables);
  assert(cell < CELLS);
  r->work[cell] += where.work;
  r->seconds[cell] += seconds > 2 * overhead ? seconds - overhead : seconds / 2;
  w->holes |= device->rates.threads == 0 || ((const double *)device->rates.tables)[cell] <= 0;
}

/* ---- judging ---- */

static double pace(const watched *r) { return (r->taken[0] + r->taken[1]) / (r->assumed[0] + r->assumed[1]); }

/* Whether others worked on the processors during the rounds. */
static bool crowded(const hri_rate_watch *w) {
  const double threads = w->plan->job.team;
  double seconds = 0, stolen = 0, waited = 0, preemptions = 0;
  for (int k = 0; k < ROUNDS; k++) {
    const watched *r = &w->rounds[k];
    seconds += r->step_seconds;
    stolen += r->after.stolen_seconds - r->before.stolen_seconds;
    waited += r->after.waited_seconds - r->before.waited_seconds;
    preemptions += (double)(r->after.preemptions - r->before.preemptions);
  }
  if (stolen > STOLEN_SHARE * threads * seconds) return true;
  return isnan(waited) ? preemptions > PREEMPTIONS_PER_SECOND * threads * seconds
                       : waited > WAITED_SHARE * threads * seconds;
}

static double spread_of(const hri_rate_watch *w) {
  double least = HUGE_VAL, most = 0;
  for (int k = 0; k < ROUNDS; k++) {
    least = fmin(least, pace(&w->rounds[k]));
    most = fmax(most, pace(&w->rounds[k]));
  }
  return least > 0 ? most / least - 1 : HUGE_VAL;
}

static void describe(hri_rate_watch *w) {
  const hri_job *job = &w->plan->job;
  hr_device_rates *r = &w->rates;
  time_t seconds = time(NULL);
  struct tm day;
  r->seen = true;
  r->threads = job->team;
  r->node_seconds = w->plan->spec.device.node_seconds;
  (void)snprintf(r->instruction_set, sizeof r->instruction_set, "%s", job->instruction_set);
  (void)snprintf(r->libraries, sizeof r->libraries, "%s", job->libraries);
  if (gmtime_r(&seconds, &day)) (void)strftime(r->date, sizeof r->date, "%Y-%m-%d", &day);
}

/* Work over seconds of all rounds, by class, and by how much the assumptions were off. */
static void sum_up(hri_rate_watch *w) {
  double taken[2] = {0}, assumed[2] = {0}, steps = 0;
  double *rates = (double *)w->rates.tables;
  w->step_seconds = 0;
  for (int k = 0; k < ROUNDS; k++) {
    w->step_seconds += w->rounds[k].step_seconds;
    steps += w->rounds[k].steps;
    for (int i = 0; i < 2; i++) {
      taken[i] += w->rounds[k].taken[i];
      assumed[i] += w->rounds[k].assumed[i];
    }
  }
  w->step_seconds /= steps;
  for (int i = 0; i < 2; i++) w->rates.factors[i] = assumed[i] > 0 ? taken[i] / assumed[i] : 0;
  for (size_t cell = 0; cell < CELLS; cell++) {
    double work = 0, seconds = 0;
    for (int k = 0; k < ROUNDS; k++) {
      work += w->rounds[k].work[cell];
      seconds += w->rounds[k].seconds[cell];
    }
    rates[cell] = seconds > 0 ? work / seconds : 0;
  }
  describe(w);
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
