/* The train loop: the one place that repeats a program. Each optimizer step is `step`, or `begin`, k x `micro`,
 * `update`; the feeder delivers all k micro-batches before the step starts, because the loss divides by the labels of
 * the whole step. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/number.h"
#include "base/text.h"
#include "device/host.h"
#include "job/job.h"
#include "model/family.h"
#include "ops/linear/product.h"
#include "train/checkpoint.h"
#include "train/diverge.h"
#include "train/doubt.h"
#include "train/excerpt.h"
#include "train/memory.h"
#include "train/pace.h"
#include "train/profile.h"
#include "train/rates.h"
#include "train/runfile.h"
#include "train/schedule.h"

enum { STEP_WINDOW = 256, AHEAD = 2 };

/* A step that was launched and is to be settled once the device has done it. */
typedef struct launched {
  uint64_t step, rows_seen, tokens_total, counted, sequence; /* as they are behind it */
  double begin, learning_rate;
  hri_control control; /* as the step leaves it, once the mark was waited for */
  hri_mark mark;
} launched;

typedef struct trainer {
  hri_session session;
  const hr_job *job;
  hr_job *own_job; /* where it is not quite the caller's: products of a run that goes on, the order of the rows */
  const hr_run_options *options;
  hri_dataset *data, *eval_data;
  hri_excerpt excerpt;   /* of --sample */
  hri_profile *profile;  /* NULL: not asked for */
  hri_rate_watch *rates; /* NULL: there is nothing to learn */
  hri_memory *memory;    /* RUN/memory */
  hri_rundir run;        /* zeroed until it is begun or taken up */
  hri_checkpoint from;   /* of a resumed run */
  hri_progress progress;
  hr_metrics metrics;
  double started, last_warning;
  hri_pace pace;
  uint64_t steps_at_start;
  char path[4096];
  bool asked_to_stop, near_limit_told,
      rows_failed;                  /* rows could not be read: weights and states are those of the last step */
  bool ways_anew;                   /* the library chooses how it computes products, though the run has a table of it */
  uint64_t unlabelled;              /* steps without a label that counts */
  uint64_t eval_tokens;             /* of the last evaluation */
  double step_seconds[STEP_WINDOW]; /* of the last steps, a ring */
  launched launched[AHEAD + 1];     /* a ring, by step */
  uint64_t settled;                 /* the last step that was settled; progress.step is the last that was launched */
  uint64_t saved;                   /* the last step that a checkpoint was made of */
  bool passed_over;                 /* the disk had no room for the last one that was due */
  double best_saved;                /* the least evaluation loss of which there is a checkpoint */
  double settled_at;                /* when */
} trainer;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- data ---- */

static uint64_t rows_per_step(const hr_job *job) { return (uint64_t)job->micro_batch * job->accumulate; }

/* The row of an epoch, or of the epochs after it, that is the r-th of the step to come. */
static uint64_t row_of(const trainer *t, uint64_t r) {
  uint64_t count = hri_dataset_row_count(t->data), global = t->progress.rows_seen + r;
  return hri_dataset_order(count, t->job->seed, t->job->shuffle, global / count, global % count);
}

/* All micro-batches of a step, in the shortest shape that holds its rows. */
static hr_status feed_step(trainer *t, const hri_shape **shape, uint64_t *counted, hr_error *error) {
  uint64_t longest = 0, one;
  hri_inputs in;
  for (uint64_t r = 0; r < rows_per_step(t->job); r++) {
    uint64_t length = t->job->sequence_length;
    if (t->session.shape_count > 1) HRI_TRY(hri_dataset_row_length(t->data, row_of(t, r), &length, error));
    if (length > longest) longest = length;
  }
  *shape = hri_session_shape(&t->session, longest);
  in = (hri_inputs){(*shape)->job->input_ids, (*shape)->job->input_targets, (*shape)->job->input_positions,
                    (*shape)->job->input_doc_start};
  *counted = 0;
  for (uint64_t r = 0; r < rows_per_step(t->job); r++) {
    HRI_TRY(hri_session_row(&t->session, *shape, t->data, row_of(t, r), in, r, &one, error));
    *counted += one;
  }
  return HR_OK;
}

/* ---- one step ---- */

/* Whoever asks once has asked. */
static bool is_to_stop(void *context) {
  trainer *t = context;
  const hr_run_options *o = t->options;
  t->asked_to_stop = t->asked_to_stop || (o->should_stop && o->should_stop(o->context));
  return t->asked_to_stop;
}

/* INTERRUPTED: it was asked to stop between two micro-batches. Nothing but gradients was changed by then, which the next
 * step begins with anew: the run stands behind the step before. A profile and a record have whole steps. */
static hr_status launch_programs(trainer *t, hri_executor *x, hr_error *error) {
  if (t->job->accumulate == 1) {
    HRI_CONTROL_SET(x, micro_index, 0);
    hri_memory_program(t->memory, HRI_STEP, 0);
    return hri_executor_launch(x, HRI_STEP, error);
  }
  hri_memory_program(t->memory, HRI_BEGIN, 0);
  HRI_TRY(hri_executor_launch(x, HRI_BEGIN, error));
  for (uint32_t k = 0; k < t->job->accumulate; k++) {
    if (k > 0 && !t->session.times && is_to_stop(t)) return HR_ERROR_INTERRUPTED;
    HRI_CONTROL_SET(x, micro_index, k);
    HRI_CONTROL_SET(x, row_base, (int64_t)k * t->job->micro_batch);
    hri_memory_program(t->memory, HRI_MICRO, k);
    HRI_TRY(hri_executor_launch(x, HRI_MICRO, error));
  }
  hri_memory_program(t->memory, HRI_UPDATE, 0);
  return hri_executor_launch(x, HRI_UPDATE, error);
}

static void measure(trainer *t, const launched *l, double seconds) {
  hr_metrics *m = &t->metrics;
  const hri_control *control = &l->control;
  const hri_backend *backend = t->session.plan->backend;
  const uint64_t done = l->step - t->steps_at_start;
  m->step = l->step;
  m->steps = t->progress.steps;
  m->loss = l->counted ? hri_unsigned_nan(control->loss_sum / (double)l->counted)
                       : NAN; /* null in JSON: nothing was predicted */
  m->skipped = hri_job_skips(t->job) && control->found_inf != 0;
  m->grad_norm = t->job->clip > 0 || hri_job_skips(t->job) ? hri_unsigned_nan(control->grad_norm) : NAN;
  m->loss_scale = t->job->precision == HR_PRECISION_FP16 ? t->progress.loss_scale : NAN;
  m->learning_rate = l->learning_rate;
  m->tokens = l->counted;
  m->tokens_total = l->tokens_total;
  m->step_seconds = seconds;
  t->step_seconds[(done - 1) % STEP_WINDOW] = seconds;
  m->tokens_per_second = (double)(rows_per_step(t->job) * l->sequence) / seconds;
  m->eta_seconds = hri_pace_left(&t->pace, m->step, m->steps, done, now() - t->started);
  m->epoch = (double)l->rows_seen / (double)hri_dataset_row_count(t->data);
  m->process_resident_bytes = hri_host_resident_bytes();
  m->process_peak_bytes = hri_host_peak_resident_bytes();
  m->device_is_host = backend->held_bytes == NULL;
  m->device_held_bytes = backend->held_bytes ? backend->held_bytes(backend->self) : 0;
  m->device_grown_known = hri_session_watch(&t->session, m, &m->device_grown_bytes);
}

/* Rows of padding, or labels of -100 alone: there is nothing to learn from, and no loss to report. */
static void tell_unlabelled(trainer *t) {
  char text[160];
  if (t->unlabelled++ > 0) return;
  (void)snprintf(text, sizeof text, "no label counts in step %llu: it has no loss (null in metrics.jsonl)",
                 (unsigned long long)t->metrics.step);
  hri_session_tell(&t->session, HR_EVENT_WARNING, &t->metrics, text);
}

/* What the run may go on from, and that another attempt must differ. */
static hr_status diverged(const trainer *t, const char *what, hr_error *error) {
  char tensor[256], path[4096];
  bool found = hri_first_nonfinite(&t->session, tensor, sizeof tensor);
  const hr_metrics *m = &t->metrics;
  hr_status status =
      hri_fail(error, HR_ERROR_DIVERGED, "the run diverged in step %llu: %s (loss %g, gradient norm %g)%s%s",
               (unsigned long long)m->step, what, m->loss, m->grad_norm,
               found ? "; not finite: " : "; weights and states are still finite", found ? tensor : "");
  if (!hri_checkpoint_newest(t->run.directory, path))
    return hri_hint(error, status,
                    "there is no checkpoint yet: begin again with a lower --lr or a longer --warmup, and --save-every");
  return hri_hint(
      error, status,
      "%s is whole: go on from it with --resume %s and something that changes the course, such as --lr X --warmup X --allow-different lr,warmup",
      strrchr(path, '/') + 1, t->run.directory);
}

/* The guard left weights, states and Adam's t as they were; the rows are used up. */
static hr_status skipped(trainer *t, hr_error *error) {
  hri_progress *p = &t->progress;
  char text[320], scale[64] = "";
  p->skipped_steps++;
  p->skipped_in_row++;
  if (isfinite(t->metrics.loss_scale))
    (void)snprintf(scale, sizeof scale, "; the loss scale goes from %g to %g", t->metrics.loss_scale, p->loss_scale);
  (void)snprintf(text, sizeof text,
                 "step %llu is skipped: its %s not finite (%llu so far, %u in a row of at most %u)%s",
                 (unsigned long long)t->metrics.step, isfinite(t->metrics.loss) ? "gradients are" : "loss is",
                 (unsigned long long)p->skipped_steps, p->skipped_in_row, t->job->max_skipped, scale);
  hri_session_tell(&t->session, HR_EVENT_WARNING, &t->metrics, text);
  if (p->skipped_in_row <= t->job->max_skipped) return HR_OK;
  if (t->job->precision != HR_PRECISION_FP16) return diverged(t, "too many steps in a row had to be skipped", error);
  (void)hri_snprintf(
      text, sizeof text,
      "too many steps in a row had to be skipped, the last with a loss scale of %g; --precision bf16 has the range of "
      "fp32, and needs none",
      t->metrics.loss_scale);
  return diverged(t, text, error);
}

/* What a step left: metrics first, so that they hold the step that was the last. */
static hr_status settle_step(trainer *t, uint64_t counted, hr_error *error) {
  const hr_metrics *m = &t->metrics;
  if (isfinite(m->loss) && !m->skipped) t->progress.last_loss = m->loss;
  HRI_TRY(hri_metrics_append(&t->run, m, false, error));
  hri_session_tell(&t->session, HR_EVENT_STEP, m, t->run.line);
  if (counted == 0) tell_unlabelled(t);
  if (m->skipped && !isfinite(m->loss) && t->job->on_nonfinite == HR_ON_NONFINITE_STOP) /* in fp16: no scale mends it */
    return diverged(t, "its loss is not finite", error);
  if (m->skipped) return skipped(t, error);
  t->progress.skipped_in_row = 0;
  if (counted > 0 && !isfinite(m->loss)) return diverged(t, "its loss is not finite", error);
  if (t->job->clip > 0 && !isfinite(m->grad_norm)) return diverged(t, "its gradients are not finite", error);
  return HR_OK;
}

/* What the steps told of the machine, when it is clear. */
static void tell_rates(const trainer *t) {
  const hr_plan_info *info = &t->session.plan->info;
  char text[240];
  switch (hri_rate_watch_state(t->rates)) {
  case HRI_RATES_NEW:
    (void)hri_snprintf(
        text, sizeof text,
        "by the rates of these steps one takes %.3g s (%.3g s were predicted by %s ones); they are stored with "
        "the next checkpoint, for later plans",
        hri_rate_watch_step_seconds(t->rates), info->step_seconds, info->time_seen ? "earlier" : "assumed");
    break;
  case HRI_RATES_UNSTEADY:
    if (!isfinite(hri_rate_watch_spread(t->rates)))
      (void)
          hri_snprintf(text, sizeof text,
                       "a round of steps had no operation of which rates are known: none are stored for this machine");
    else
      (void)hri_snprintf(text, sizeof text,
                         "the machine is busy with other work (a round of steps took %.0f %% longer than another, or "
                         "was interrupted): its rates are not stored",
                         hri_rate_watch_spread(t->rates) * 100);
    break;
  default: return;
  }
  hri_session_tell(&t->session, HR_EVENT_NOTE, NULL, text);
}

/* A team that shares processors waits for itself, and at other places in every step: no round of it is like another, and
 * what it would tell holds for no other run. */
static hr_status watch_rates(trainer *t, hr_error *error) {
  const uint32_t team = t->session.plan->job.team;
  hr_cpu_team machine;
  char text[240];
  HRI_TRY(hri_rate_watch_begin(t->session.plan, &t->rates, error));
  hr_device_cpu_team(&machine);
  if (!t->rates || team <= machine.processors) return HR_OK;
  (void)snprintf(text, sizeof text,
                 "%u threads share %u processor%s: what such steps take is not stored for this machine", team,
                 machine.processors, machine.processors > 1 ? "s" : "");
  hri_session_tell(&t->session, HR_EVENT_NOTE, NULL, text);
  hri_rate_watch_end(t->rates);
  t->rates = NULL;
  return HR_OK;
}

/* Beside a checkpoint, where files are written anyway: a step allocates nothing. */
static void store_rates(trainer *t) {
  char path[4096] = "", text[5120];
  hr_error error = {0};
  if (!t->rates || hri_rate_watch_state(t->rates) != HRI_RATES_NEW) return;
  if (hr_device_store(hri_rate_watch_rates(t->rates), path, sizeof path, &error) == HR_OK)
    (void)snprintf(text, sizeof text, "the rates of this machine are in %s", path);
  else (void)snprintf(text, sizeof text, "the rates of this machine were not stored: %s", error.message);
  hri_session_tell(&t->session, HR_EVENT_NOTE, NULL, text);
  hri_rate_watch_end(t->rates);
  t->rates = NULL;
}

/* The oldest step that is not settled: waits for it. */
static hr_status settle_oldest(trainer *t, hr_error *error) {
  const launched *l = &t->launched[(t->settled + 1) % (AHEAD + 1)];
  double begin =
      l->begin > t->settled_at ? l->begin : t->settled_at; /* before, the device had the step before it to do */
  HRI_TRY(hri_executor_wait(t->session.executor, l->mark, error));
  if (t->profile) hri_profile_end_step(t->profile);
  if (t->rates && hri_rate_watch_end_step(t->rates, now() - begin)) tell_rates(t);
  t->settled = l->step;
  t->settled_at = now();
  t->progress.applied_steps = l->control.applied_steps;
  measure(t, l, t->settled_at - begin);
  t->progress.loss_scale = l->control.loss_scale;
  t->progress.growth_tracker = l->control.growth_tracker;
  hri_memory_end_step(t->memory, &t->metrics);
  return settle_step(t, l->counted, error);
}

/* Before anybody looks at weights, states or the last loss. */
static hr_status settle_all(trainer *t, hr_error *error) {
  while (t->settled < t->progress.step) HRI_TRY(settle_oldest(t, error));
  return HR_OK;
}

/* Launches a step, and settles the one that is then `ahead` steps back: where a launch is done when it returns, that is
 * the step itself. A profile and a record are of one step at a time. */
static hr_status train_step(trainer *t, hr_error *error) {
  hri_executor *x = t->session.executor;
  launched *l = &t->launched[(t->progress.step + 1) % (AHEAD + 1)];
  uint32_t ahead = t->session.plan->backend->ahead, most = t->session.times ? 0 : ahead < AHEAD ? ahead : AHEAD;
  const hri_shape *shape;
  hr_status status;
  *l = (launched){.begin = now(),
                  .learning_rate =
                      t->job->learning_rate * hri_schedule_factor(t->job, t->progress.step, t->progress.steps)};
  if (t->profile) hri_profile_begin_step(t->profile);
  if (t->rates) hri_rate_watch_begin_step(t->rates);
  hri_memory_begin_step(t->memory, t->progress.step + 1);
  status = feed_step(t, &shape, &l->counted, error);
  t->rows_failed = status != HR_OK;
  HRI_TRY(status);
  HRI_CONTROL_SET(x, step, (int64_t)t->progress.step);
  HRI_CONTROL_SET(x, learning_rate, l->learning_rate);
  HRI_CONTROL_SET(x, inv_tokens, l->counted ? 1.0 / (double)l->counted : 0);
  HRI_CONTROL_SET(x, clip_norm, t->job->clip);
  HRI_CONTROL_SET(x, clip_scale, 1);
  HRI_CONTROL_SET(x, loss_sum, 0);
  HRI_TRY(launch_programs(t, shape->executor, error));
  HRI_TRY(hri_executor_fetch(shape->executor, &l->control, &l->mark, error));
  t->progress.step++;
  t->progress.rows_seen += rows_per_step(t->job);
  t->progress.tokens_total += l->counted;
  t->progress.eval_loss = NAN;
  t->progress.evaluation_due = false;
  l->step = t->progress.step;
  l->rows_seen = t->progress.rows_seen;
  l->tokens_total = t->progress.tokens_total;
  l->sequence = shape->sequence;
  while (t->progress.step - t->settled > most) HRI_TRY(settle_oldest(t, error));
  return HR_OK;
}

static void warn_near_limit(trainer *t) {
  const hr_plan_info *info = &t->session.plan->info;
  const hri_backend *backend = t->session.plan->backend;
  uint64_t held = t->metrics.device_is_host ? t->metrics.process_resident_bytes : t->metrics.device_held_bytes;
  char text[512];
  hri_host_memory host;
  uint64_t free_bytes; /* what others may take too; a limit of this process is met before the first step or never */
  if (t->near_limit_told || now() - t->last_warning < 2) return; /* asking costs some file reads */
  t->last_warning = now();
  host = hri_host_memory_now();
  free_bytes = host.available_bytes < host.group_bytes ? host.available_bytes : host.group_bytes;
  hri_memory_usable(t->memory, host.usable_bytes);
  if (held > info->budget_bytes)
    (void)snprintf(text, sizeof text, "the process holds %llu bytes%s, more than its budget of %llu",
                   (unsigned long long)held, t->metrics.device_is_host ? "" : " of the device",
                   (unsigned long long)info->budget_bytes);
  else if (backend->near_limit && backend->near_limit(backend->self, text, sizeof text)) (void)0; /* its words */
  else if (free_bytes < (64u << 20))
    (void)snprintf(text, sizeof text, "%s leaves only %llu bytes",
                   hri_host_limit_name(host.available_bytes < host.group_bytes ? HRI_LIMIT_MACHINE : HRI_LIMIT_GROUP),
                   (unsigned long long)free_bytes);
  else return;
  t->near_limit_told = true;
  hri_session_tell(&t->session, HR_EVENT_WARNING, &t->metrics, text);
}

/* ---- evaluation, samples, checkpoints ---- */

/* Shows people something and is no part of the run: where it cannot be made, that is told, and what it means for the run,
 * its next step says. One that is left in the middle is not shown. */
static void sample(trainer *t) {
  hri_text text = {0};
  hr_error own = {0};
  bool left;
  hr_status status = hri_excerpt_write(&t->excerpt, &t->session, t->progress.step, is_to_stop, t, &left, &text, &own);
  char why[900];
  (void)snprintf(why, sizeof why, "no sample: %s",
                 status == HR_ERROR_DIVERGED ? "the model's scores are not finite" : own.message);
  if (status != HR_OK) hri_session_tell(&t->session, HR_EVENT_WARNING, &t->metrics, why);
  else if (!left) hri_session_tell(&t->session, HR_EVENT_SAMPLE, &t->metrics, hri_text_get(&text));
  hri_text_deinit(&text);
}

/* The line of metrics.jsonl comes before what a checkpoint remembers of it: either both say it, or none. */
static hr_status evaluate_data(trainer *t, bool *best, hr_error *error) {
  hri_progress *p = &t->progress;
  uint64_t tokens;
  double loss;
  HRI_TRY(hri_session_evaluate(&t->session, t->eval_data, t->options->eval_batches, &loss, &tokens, error));
  *best = isfinite(loss) && p->step > 0 && !(loss >= p->best_eval_loss);
  t->metrics.eval_loss = loss;
  t->metrics.best_eval_loss = *best ? loss : p->best_eval_loss;
  HRI_TRY(hri_metrics_append(&t->run, &t->metrics, true, error));
  p->eval_loss = loss;
  p->best_eval_loss = t->metrics.best_eval_loss;
  t->eval_tokens = tokens;
  if (!isfinite(loss))
    hri_session_tell(&t->session, HR_EVENT_WARNING, &t->metrics,
                     tokens ? "the evaluation's loss is not finite: it is not the best"
                            : "no label counts in the evaluation data: it has no loss");
  hri_session_tell(&t->session, HR_EVENT_EVALUATED, &t->metrics, t->run.line);
  return HR_OK;
}

/* INTERRUPTED: it was asked to stop in the middle. Then, and where it fails, it is due still. */
static hr_status evaluate(trainer *t, bool *best, hr_error *error) {
  const double begin = now();
  *best = false;
  t->progress.evaluation_due = true;
  if (t->eval_data) HRI_TRY(evaluate_data(t, best, error));
  t->progress.evaluation_due = false;
  if (t->excerpt.prompt) sample(t);
  hri_pause_add(&t->pace.evaluations, now() - begin);
  return HR_OK;
}

static hr_status checkpoint(trainer *t, bool best, hr_error *error) {
  const double begin = now();
  hr_status status = hri_checkpoint_write(&t->run, &t->session, &t->progress, best, t->path, error);
  char newest[4096];
  if (status == HR_ERROR_DIVERGED && hri_checkpoint_newest(t->run.directory, newest))
    hri_hint(error, status,
             "nothing of it was saved; %s is whole: go on from it with a lower --lr and --allow-different lr",
             strrchr(newest, '/') + 1);
  HRI_TRY(status);
  t->saved = t->progress.step;
  t->passed_over = false;
  t->best_saved = t->progress.best_eval_loss;
  (void)snprintf(t->session.companions, sizeof t->session.companions, "%s", t->path);
  hri_session_tell(&t->session, HR_EVENT_SAVED, &t->metrics, t->path);
  hri_checkpoint_retire(&t->run, t->options->keep);
  store_rates(t);
  hri_pause_add(&t->pace.saves, now() - begin);
  return HR_OK;
}

/* A disk that is full for a while costs one checkpoint and not the run, which is whole in memory. Without room for the next
 * one either it ends, before more steps are made that cannot be saved. */
static hr_status checkpoint_if_room(trainer *t, bool best, hr_error *error) {
  hri_progress *p = &t->progress;
  const hr_status status = checkpoint(t, best, error);
  char remedy[HR_ERROR_HINT_BYTES], text[HR_ERROR_MESSAGE_BYTES + HR_ERROR_HINT_BYTES];
  if (status == HR_OK || !hri_is_full(error) || t->passed_over || p->step == p->steps) return status;
  t->passed_over = true;
  p->best_eval_loss = t->metrics.best_eval_loss = t->best_saved; /* `best` leads to a checkpoint */
  hri_hint_in_place(error, remedy);
  (void)snprintf(
      text, sizeof text,
      "step %llu is not saved: %.600s; %.200s: the next checkpoint is tried in its time, and without room for that one the "
      "run ends",
      (unsigned long long)p->step, error->message, remedy);
  hri_session_tell(&t->session, HR_EVENT_WARNING, &t->metrics, text);
  *error = (hr_error){0};
  return HR_OK;
}

/* Before what there is to do about the failure, which may be that somebody moved or removed the run's directory. */
static hr_status hint_saved(const trainer *t, hr_status failure, hr_error *error) {
  char remedy[HR_ERROR_HINT_BYTES], name[64], path[4096];
  hri_checkpoint_name(t->saved, name);
  if (snprintf(path, sizeof path, "%s/checkpoints/%s", t->run.directory, name) < (int)sizeof path &&
      !hri_path_exists(path))
    return hri_hint(error, failure,
                    "step %llu was saved, and %.400s is gone: if it was moved, --resume takes the run where it is now",
                    (unsigned long long)t->saved, path);
  hri_hint_in_place(error, remedy);
  return hri_hint(error, failure, "step %llu is saved: --resume %s%s%s", (unsigned long long)t->saved, t->run.directory,
                  remedy[0] ? "; " : "", remedy);
}

/* What has to be allowed for other data; --eval-split makes both of one. */
static const char *data_names(const trainer *t) {
  return t->options->eval_share > 0 ? "data,eval-data" : t->rows_failed ? "data" : "eval-data";
}

/* Data that cannot be read any more, or are no longer what the run began with, cost nobody the steps that are done. An
 * evaluation that is due still is made when the run goes on. */
static hr_status save_before(trainer *t, hr_status failure, hr_error *error) {
  const unsigned long long step = t->progress.step;
  hr_error own = {0};
  if (t->progress.step == t->steps_at_start) return failure;
  if (settle_all(t, &own) != HR_OK) return failure;
  if (t->saved != t->progress.step && checkpoint(t, false, &own) != HR_OK) return failure;
  if (failure == HR_ERROR_INPUT && !strstr(error->hint, "data cache"))
    return hri_hint(error, failure,
                    "step %llu is saved: put the data back as it was and go on with --resume %s (with other data: "
                    "--allow-different %s)",
                    step, t->run.directory, data_names(t));
  return hint_saved(t, failure, error);
}

static bool due(uint64_t every, uint64_t step) { return every && step % every == 0; }
static bool looks_at_end(const trainer *t) { return t->eval_data || t->excerpt.prompt; }

static bool evaluates(const trainer *t, uint64_t step) {
  return due(t->options->eval_every, step) || (step == t->progress.steps && looks_at_end(t));
}
static bool saves(const trainer *t, uint64_t step, bool best) {
  return due(t->options->save_every, step) || step == t->progress.steps || (best && t->options->save_every);
}

/* It was asked to: with a checkpoint of the last step, unless there is nothing to save. */
static hr_status stop(trainer *t, hr_error *error) {
  hr_status status;
  if (t->progress.step == 0) {
    status = hri_fail(error, HR_ERROR_INTERRUPTED, "stopped before the first step: there is nothing to save");
    return hri_hint(error, status, "the same command starts the run again");
  }
  HRI_TRY(settle_all(t, error));
  if (t->saved != t->progress.step) HRI_TRY(checkpoint(t, false, error));
  status = hri_fail(error, HR_ERROR_INTERRUPTED, "stopped after step %llu of %llu; the checkpoint is %s",
                    (unsigned long long)t->progress.step, (unsigned long long)t->progress.steps, t->path);
  return hri_hint(error, status, "go on with --resume %s", t->run.directory);
}

/* What the model could do before the first step; no checkpoint has it, so it is never the best. Or the evaluation behind
 * the last step of a run that goes on, which was stopped or failed there: its checkpoint is made anew as it would have
 * been. */
static hr_status evaluate_before(trainer *t, hr_error *error) {
  const uint64_t step = t->progress.step;
  bool best;
  t->metrics.step = step;
  t->metrics.steps = t->progress.steps;
  if (step == 0)
    return t->progress.steps > 0 && t->options->eval_first && t->eval_data ? evaluate(t, &best, error) : HR_OK;
  if (!t->progress.evaluation_due || !evaluates(t, step)) return HR_OK;
  HRI_TRY(evaluate(t, &best, error));
  return saves(t, step, best) ? checkpoint(t, best, error) : HR_OK;
}

/* One step, and what follows it. */
static hr_status step_on(trainer *t, hr_error *error) {
  uint64_t step;
  bool best = false;
  HRI_TRY(train_step(t, error));
  warn_near_limit(t);
  step = t->progress.step;
  if (evaluates(t, step) || saves(t, step, false)) HRI_TRY(settle_all(t, error));
  if (evaluates(t, step)) HRI_TRY(evaluate(t, &best, error));
  if (saves(t, step, best)) HRI_TRY(checkpoint_if_room(t, best, error));
  return step < t->progress.steps && is_to_stop(t) ? HR_ERROR_INTERRUPTED : HR_OK;
}

static hr_status loop(trainer *t, hr_error *error) {
  hr_status status;
  t->pace = (hri_pace){.evaluate_every = t->options->eval_every,
                       .save_every = t->options->save_every,
                       .evaluates_at_end = looks_at_end(t),
                       .saves_at_end = true};
  status = evaluate_before(t, error);
  while (status == HR_OK && t->progress.step < t->progress.steps) status = step_on(t, error);
  if (status == HR_ERROR_INTERRUPTED) return stop(t, error);
  return status != HR_OK && (t->rows_failed || t->progress.evaluation_due) ? save_before(t, status, error) : status;
}

/* ---- set-up ---- */

static hr_status check_options(const hr_job *job, const hr_run_options *o, hr_error *error) {
  HRI_TRY(hri_job_finished(job, error));
  if (job->purpose != HR_PURPOSE_TRAIN) return hri_fail(error, HR_ERROR_USAGE, "this job is not a training job");
  if (o->resume_directory && o->out_directory && strcmp(o->resume_directory, o->out_directory) != 0)
    return hri_fail(error, HR_ERROR_USAGE, "a run goes on in its own directory: %s and %s differ", o->resume_directory,
                    o->out_directory);
  if (!o->resume_directory && (!o->out_directory || !o->out_directory[0])) {
    hr_status status = hri_fail(error, HR_ERROR_USAGE, "train needs an output directory");
    return hri_hint(error, status, "add --out RUN");
  }
  if (o->data_path_count == 0) {
    hr_status status = hri_fail(error, HR_ERROR_USAGE, "train needs data");
    return hri_hint(error, status, "add --data FILE (text, JSONL, token ids: docs/data.md)");
  }
  if (o->eval_share > 0 && o->eval_path_count > 0) {
    hr_status status =
        hri_fail(error, HR_ERROR_USAGE, "--eval-split and --eval-data exclude each other: both say what is held back");
    return hri_hint(error, status, "leave one of them out");
  }
  if (o->eval_every && o->eval_path_count == 0 && o->eval_share <= 0 && !o->sample_prompt) {
    hr_status status = hri_fail(error, HR_ERROR_USAGE, "--eval-every needs --eval-data or --eval-split");
    return hri_hint(error, status,
                    "name held-back files with --eval-data FILE, or hold back a share: --eval-split 1%%");
  }
  if (o->save_dtype && strcmp(o->save_dtype, "source") && strcmp(o->save_dtype, "f32") &&
      strcmp(o->save_dtype, "bf16") && strcmp(o->save_dtype, "f16"))
    return hri_fail(error, HR_ERROR_USAGE, "--save-dtype %s is not one of source, f32, bf16, f16", o->save_dtype);
  if (!o->resume_directory && (o->resume_from || o->allow_different || o->same_bits))
    return hri_fail(error, HR_ERROR_USAGE, "%s is for runs that go on: it needs --resume",
                    o->resume_from ? "--from"
                    : o->same_bits ? "--same-bits"
                                   : "--allow-different");
  return hri_allowed_check(o, error);
}

/* All of the data is read and found good before anything is made. */
static hr_status open_data(trainer *t, hr_error *error) {
  const hr_run_options *o = t->options;
  char spool[4096];
  const char *run = o->resume_directory ? o->resume_directory : o->out_directory;
  hri_path_nearest(run, spool); /* files without a name grow on its file system */
  HRI_TRY(hri_session_data(&t->session, o->data_paths, o->data_path_count, &o->data, spool, run, &t->data, error));
  hri_doubt_words(&t->session, t->data);
  if (o->eval_path_count) {
    HRI_TRY(
        hri_session_data(&t->session, o->eval_paths, o->eval_path_count, &o->data, spool, run, &t->eval_data, error));
    hri_doubt_held(&t->session, t->data, t->eval_data);
  }
  if (o->eval_share > 0) {
    HRI_TRY(hri_dataset_split(t->data, o->eval_share, t->job->seed, &t->eval_data, error));
    hri_session_tell(&t->session, HR_EVENT_NOTE, NULL, hri_dataset_note(t->eval_data));
  }
  return HR_OK;
}

/* The caller's job stays as it is. */
static hr_status take_job(trainer *t, hr_error *error) {
  if (t->own_job) return HR_OK;
  t->own_job = hri_alloc(sizeof *t->own_job);
  if (!t->own_job) return hri_fail_memory(error, sizeof *t->own_job, "the job");
  *t->own_job = *t->job;
  t->job = t->own_job;
  return HR_OK;
}

/* Rows are shuffled where nobody says otherwise: who makes JSONL sorts it, and a training should not see the sorting.
 * A run that goes on keeps its order, also one of a version whose default was another. */
static hr_status settle_order(trainer *t, hr_error *error) {
  bool known = t->options->resume_directory && t->from.has_order,
       shuffled = known ? t->from.shuffled : hri_dataset_is_rows(t->data);
  if ((t->job->given & HR_GIVEN_SHUFFLE) || t->job->shuffle || !shuffled) return HR_OK;
  HRI_TRY(take_job(t, error));
  t->own_job->shuffle = t->session.plan->spec.shuffle = true;
  if (t->run.job) t->run.job = t->own_job;
  return HR_OK;
}

static hr_status keep_data(trainer *t, hr_error *error) {
  char *store;
  hr_status status;
  if (t->options->data.cache_directory) return HR_OK; /* there already */
  store = hri_path_join(t->run.directory, "data-cache");
  if (!store) return hri_fail_memory(error, strlen(t->run.directory) + 16, "the data cache");
  status = hri_dataset_keep(t->data, store, error);
  if (status == HR_OK && t->eval_data) status = hri_dataset_keep(t->eval_data, store, error);
  hri_free(store);
  return status;
}

static hri_identity_facts facts_of(const trainer *t) {
  hri_identity_facts facts = {.special = {[HRI_SPECIAL_MODEL] = hri_model_digest(&t->job->model),
                                          [HRI_SPECIAL_DATA] = hri_dataset_content_hash(t->data),
                                          [HRI_SPECIAL_TOKENIZER] = hri_dataset_words_hash(t->data)}};
  if (t->eval_data) facts.special[HRI_SPECIAL_EVAL_DATA] = hri_dataset_content_hash(t->eval_data);
  return facts;
}

/* Steps as given, else from epochs. Neither (both 0): the model is loaded and saved. */
static uint64_t total_steps(const trainer *t) {
  double rows = (double)hri_dataset_row_count(t->data);
  if (t->job->steps > 0) return t->job->steps;
  return (uint64_t)ceil(t->job->epochs * rows / (double)rows_per_step(t->job));
}

/* ---- going on ---- */

/* A longer run of the same course is the same run; any other number of steps bends the learning rate. */
static hr_status check_steps(trainer *t, hr_error *error) {
  const hri_progress *p = &t->progress;
  uint64_t steps = total_steps(t);
  char text[240];
  hr_status status;
  if (steps == p->steps) return HR_OK;
  if (steps < p->step) {
    status = hri_fail(error, HR_ERROR_USAGE, "the run is at step %llu, and it is asked for %llu",
                      (unsigned long long)p->step, (unsigned long long)steps);
    return hri_hint(error, status, "give --steps %llu or more", (unsigned long long)p->step);
  }
  if (hri_steps_may_grow(t->job)) return HR_OK; /* or end sooner */
  if (!hri_is_allowed(t->options, "steps") && steps != t->from.settled_steps) {
    status = hri_fail(error, HR_ERROR_USAGE,
                      "the run was set to %llu steps and this one to %llu: its %s schedule depends on them",
                      (unsigned long long)p->steps, (unsigned long long)steps, hr_schedule_name(t->job->schedule));
    return hri_hint(
        error, status,
        "give the same --steps or --epochs, or --allow-different steps: the learning rate of the next step is then %g instead of %g",
        t->job->learning_rate * hri_schedule_factor(t->job, p->step, steps),
        t->job->learning_rate * hri_schedule_factor(t->job, p->step, p->steps));
  }
  (void)hri_snprintf(text, sizeof text,
                     "steps %llu instead of %llu: the learning rate of the next step is %g instead of %g",
                     (unsigned long long)steps, (unsigned long long)p->steps,
                     t->job->learning_rate * hri_schedule_factor(t->job, p->step, steps),
                     t->job->learning_rate * hri_schedule_factor(t->job, p->step, p->steps));
  hri_session_tell(&t->session, HR_EVENT_WARNING, NULL, text);
  hri_text_add(&t->from.allowed, "%ssteps %llu -> %llu", t->from.allowed.length ? ", " : "",
               (unsigned long long)p->steps, (unsigned long long)steps);
  return HR_OK;
}

/* Where all that has a name agrees, the rows can still differ only in runs of schema 1, which named less. */
static hr_status check_rows(trainer *t, hr_error *error) {
  uint64_t hash = hri_dataset_hash(t->data);
  hr_status status;
  if (t->from.progress.data_hash == hash || (t->from.verified && t->from.allowed.length > 0)) return HR_OK;
  if (hri_is_allowed(t->options, "data")) {
    hri_text_add(&t->from.allowed, "%sdata", t->from.allowed.length ? ", " : "");
    return HR_OK;
  }
  status = hri_fail(error, HR_ERROR_USAGE,
                    "the rows of training data are not those of the run (digest %016llx, then %016llx)",
                    (unsigned long long)t->from.progress.data_hash, (unsigned long long)hash);
  return hri_hint(
      error, status,
      "give the same --data files in the same order, with the same --packing, --format and the like, or --allow-different data");
}

/* Says once, and for ever in run.json, from which step on bits may be others than those of a run on one machine. */
static hr_status check_machine(trainer *t, hr_error *error) {
  const hri_text *differs = &t->from.machine_differs;
  char text[600];
  hr_status status;
  if (differs->length == 0) return HR_OK;
  if (t->options->same_bits) {
    status = hri_fail(error, HR_ERROR_USAGE, "--same-bits: %.500s", hri_text_get(differs));
    return hri_hint(error, status,
                    "go on where the run was made, or leave --same-bits out: the mathematics are the same");
  }
  (void)snprintf(text, sizeof text, "from step %llu on bits may differ: %.500s",
                 (unsigned long long)t->progress.step + 1, hri_text_get(differs));
  hri_session_tell(&t->session, HR_EVENT_WARNING, NULL, text);
  return HR_OK;
}

/* A run that was not in fp16 before has no scale to go on with. */
static void settle_scale(trainer *t) {
  bool scaled = t->job->precision == HR_PRECISION_FP16;
  if (scaled && isfinite(t->progress.loss_scale)) return;
  t->progress.loss_scale = scaled ? t->job->loss_scale : 1;
  t->progress.growth_tracker = 0;
}

/* Everything that can be known before the tensors are read; changes nothing. */
static hr_status check_resume(trainer *t, hr_error *error) {
  const hri_job *compiled = &t->session.plan->job;
  hri_checkpoint *from = &t->from;
  uint64_t broken = t->progress.broken_rows;
  HRI_TRY(hri_checkpoint_check_identity(&t->run, from, compiled->instruction_set, compiled->libraries, error));
  if (t->ways_anew)
    hri_text_add(&from->machine_differs, "%show products are computed (as the library chooses now)",
                 from->machine_differs.length ? ", " : "");
  t->progress = from->progress;
  t->progress.broken_rows = broken;
  settle_scale(t);
  HRI_TRY(check_rows(t, error));
  HRI_TRY(check_steps(t, error));
  HRI_TRY(check_machine(t, error));
  t->progress.steps = total_steps(t);
  t->progress.data_hash = hri_dataset_hash(t->data);
  if (from->allowed.length) {
    char text[600];
    (void)snprintf(text, sizeof text, "goes on differently, as allowed: %.500s", hri_text_get(&from->allowed));
    hri_session_tell(&t->session, HR_EVENT_WARNING, NULL, text);
  }
  if (hri_is_allowed(t->options, "metrics"))
    hri_text_add(&from->allowed, "%smetrics", from->allowed.length ? ", " : "");
  if (from->has_metrics && !hri_is_allowed(t->options, "metrics"))
    return hri_metrics_resume(&t->run, from->metrics_bytes, from->metrics_digest, error);
  return hri_metrics_trim(&t->run, t->progress.step, error);
}

/* The tensors were read and are whole: from here on the run goes on. */
static hr_status take_up(trainer *t, hr_error *error) {
  hri_checkpoint *from = &t->from;
  HRI_TRY(hri_checkpoint_settle(&t->run, from, error));
  HRI_TRY(hri_metrics_cut(&t->run, error));
  hri_run_changes_cut(&t->run, t->progress.step);
  if (from->machine_differs.length)
    hri_run_changed(&t->run, t->progress.step, "machine", hri_text_get(&from->machine_differs));
  if (from->allowed.length) hri_run_changed(&t->run, t->progress.step, "allowed", hri_text_get(&from->allowed));
  return HR_OK;
}

static hr_status prepare_profile(trainer *t, hr_error *error) {
  return t->options->profile_path ? hri_profile_create(t->session.plan, &t->profile, error) : HR_OK;
}

/* A path that cannot be written is told now, not after hours. One in a run directory that is not there yet is tried
 * when it is. */
static hr_status try_profile_path(const trainer *t, bool begun, hr_error *error) {
  const char *path = t->options->profile_path;
  const bool inside = path && !t->options->resume_directory && hri_path_inside(path, t->options->out_directory);
  return path && inside == begun ? hri_file_can_replace(path, error) : HR_OK;
}

static void after_node(void *context, const hri_job *job, hri_id node, double seconds) {
  trainer *t = context;
  if (t->profile) hri_profile_node(t->profile, job, node, seconds);
  if (t->rates) hri_rate_watch_node(t->rates, job, node, seconds);
  hri_memory_node(t->memory, job, node);
}

static hr_status prepare_memory(trainer *t, hr_error *error) {
  return hri_memory_open(t->run.directory, t->session.plan, t->options->record_memory, &t->memory, error);
}

/* The executor is made before anything is opened that it reports to. A profile and a record are of the step that was
 * planned: all rows then run in its shape. */
static hr_status prepare_session(trainer *t, hr_error *error) {
  t->session.after_node = after_node;
  t->session.after_node_context = t;
  t->session.times = t->session.one_shape = t->options->profile_path || t->options->record_memory;
  return hri_session_prepare(&t->session, error);
}

static hr_status write_profile(trainer *t, hr_error *error) {
  hr_profile profile;
  hr_event event = {.kind = HR_EVENT_PROFILED,
                    .plan = t->session.plan,
                    .metrics = &t->metrics,
                    .text = t->options->profile_path,
                    .profile = &profile};
  if (!t->profile) return HR_OK;
  HRI_TRY(hri_profile_write(t->profile, t->options->profile_path, error));
  hri_profile_get(t->profile, &profile);
  if (t->session.on_event) t->session.on_event(t->session.context, &event);
  return HR_OK;
}

static void tell_weak_syncs(const trainer *t) {
  if (hri_dir_syncs_are_weak())
    hri_session_tell(
        &t->session, HR_EVENT_NOTE, NULL,
        "this file system does not sync directories: after a power cut, a checkpoint that was announced may be missing");
}

static hr_status begin_fresh(trainer *t, hr_error *error) {
  const hr_run_options *o = t->options;
  hri_identity_facts facts = facts_of(t);
  HRI_TRY(hri_rundir_disk_check(&t->session, o->out_directory, o, t->progress.steps, 0, error));
  HRI_TRY(hri_rundir_begin(&t->run, o->out_directory, &t->session, t->job, o, &facts, error));
  HRI_TRY(hri_run_write(&t->run, &t->progress, "running", NULL, error));
  HRI_TRY(hri_rundir_make_room(&t->run, error));
  return hri_metrics_begin(&t->run, error);
}

static hr_status begin_again(trainer *t, hr_error *error) {
  t->run.facts = facts_of(t);
  HRI_TRY(hri_rundir_make_room(&t->run, error));
  HRI_TRY(hri_run_take_over(&t->run, error));
  HRI_TRY(check_resume(t, error));
  return hri_rundir_disk_check(&t->session, t->run.directory, t->options, t->progress.steps, t->progress.step, error);
}

static hr_status load(trainer *t, hr_error *error) {
  const hri_checkpoint *from = &t->from;
  bool resume = t->options->resume_directory != NULL,
       states = resume && hri_optimizer_get(t->session.plan->spec.optimizer)->tensor_count > 0;
  hri_file_list loaded = {0};
  char path[4096];
  hr_status status;
  (void)snprintf(path, sizeof path, "%.4060s/optimizer.safetensors", from->path);
  t->session.loaded = from->verified ? &loaded : NULL;
  status = hri_session_load(&t->session, resume ? from->path : NULL, states ? path : NULL, error);
  t->session.loaded = NULL;
  if (resume && status != HR_OK) status = hri_checkpoint_explain(&t->run, from, status, error);
  if (resume && status == HR_OK) status = hri_checkpoint_check_tensors(&t->run, from, &loaded, error);
  if (resume && status == HR_OK) status = hri_checkpoint_check_base(&t->run, from, error);
  hri_array_free(&loaded);
  return status;
}

static hr_status start(trainer *t, hr_error *error) {
  bool resume = t->options->resume_directory != NULL;
  HRI_TRY(prepare_profile(t, error));
  if (t->options->measure_rates) HRI_TRY(watch_rates(t, error));
  HRI_TRY(try_profile_path(t, false, error));
  HRI_TRY(hri_excerpt_init(&t->excerpt, t->job, t->job->with_generation ? t->options->sample_prompt : NULL,
                           t->options->data.tokenizer, error));
  HRI_TRY(open_data(t, error));
  HRI_TRY(settle_order(t, error));
  t->progress = (hri_progress){.loss_scale = NAN,
                               .best_eval_loss = NAN,
                               .last_loss = NAN,
                               .eval_loss = NAN,
                               .data_hash = hri_dataset_hash(t->data),
                               .steps = total_steps(t),
                               .broken_rows = hri_dataset_broken_count(t->data)};
  settle_scale(t);
  HRI_TRY(resume ? begin_again(t, error) : begin_fresh(t, error));
  if (!resume) hri_doubt_course(&t->session, t->job, hri_dataset_row_count(t->data), t->progress.steps);
  HRI_TRY(try_profile_path(t, true, error));
  HRI_TRY(
      prepare_memory(t,
                     error)); /* not before it is sure that the run goes on: it replaces what the earlier part left */
  hri_memory_stand(t->memory, t->progress.step, t->progress.steps);
  HRI_TRY(load(t, error));
  hri_session_tell(&t->session, HR_EVENT_LOADED, NULL,
                   resume                      ? t->from.path
                   : t->job->model.has_weights ? t->job->model.directory
                                               : "new weights from the seed");
  if (resume) HRI_TRY(take_up(t, error));
  HRI_TRY(keep_data(t, error));
  HRI_CONTROL_SET(t->session.executor, applied_steps, t->progress.applied_steps);
  HRI_CONTROL_SET(t->session.executor, loss_scale, t->progress.loss_scale);
  HRI_CONTROL_SET(t->session.executor, growth_tracker, t->progress.growth_tracker);
  t->steps_at_start = t->settled = t->saved = t->progress.step;
  memcpy(t->path, t->from.path, sizeof t->path); /* of a run that goes on */
  t->metrics.eval_loss = t->progress.eval_loss;
  t->metrics.best_eval_loss = t->best_saved = t->progress.best_eval_loss;
  t->metrics.device_reserved_bytes = t->session.plan->info.tiers[HR_TIER_DEVICE].reserved_bytes;
  t->metrics.device_peak_bytes = t->session.plan->info.tiers[HR_TIER_DEVICE].peak_bytes;
  t->metrics.device_budget_bytes = t->session.plan->info.budget_bytes;
  tell_weak_syncs(t);
  return hri_run_write(&t->run, &t->progress, "running", NULL, error);
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

/* Predicted against measured. The first step meets cold caches and is left out where there are others. */
static void compare_time(trainer *t, hr_run_result *result) {
  uint64_t done = t->progress.step - t->steps_at_start, count = done < STEP_WINDOW ? done : STEP_WINDOW;
  double *steps = t->step_seconds;
  if (done > 1 && done <= STEP_WINDOW) steps++, count--;
  qsort(steps, count, sizeof *steps, ascending);
  result->step_seconds = count ? (steps[(count - 1) / 2] + steps[count / 2]) / 2 : NAN;
  result->predicted_step_seconds = t->session.plan->info.step_seconds;
  result->prediction_measured = t->session.plan->info.time_measured;
  result->prediction_seen = t->session.plan->info.time_seen;
}

static hr_status write_running(void *context, hr_error *error) {
  trainer *t = context;
  return hri_run_write(&t->run, &t->progress, "running", NULL, error);
}

static hr_status write_final(trainer *t, hr_error *error) {
  HRI_TRY(hri_rundir_final(&t->run, &t->session, t->options->save_dtype, write_running, t, t->path, error));
  hri_session_tell(&t->session, HR_EVENT_SAVED, &t->metrics, t->path);
  return HR_OK;
}

/* Of a run whose last step finds no room for its checkpoint, the model may find it: it is a third of that, or less. */
static void save_final_alone(trainer *t, hr_status failure, hr_error *error) {
  char remedy[HR_ERROR_HINT_BYTES];
  hr_error own = {0};
  hri_hint_in_place(error, remedy);
  if (t->progress.step != t->progress.steps || t->settled != t->progress.step || t->saved == t->progress.step) return;
  if (write_final(t, &own) != HR_OK) return;
  if (t->saved == 0)
    (void)hri_hint(error, failure,
                   "%s has the trained weights; the optimizer's states are lost, with which the run could go on",
                   t->path);
  else
    (void)hri_hint(
        error, failure,
        "%s has the trained weights; to train on with the optimizer's states, %s: --resume %s goes on from step %llu",
        t->path, remedy, t->run.directory, (unsigned long long)t->saved);
}

static hr_status finish(trainer *t, hr_status outcome, hr_run_result *result, hr_error *error) {
  hri_progress *p = &t->progress;
  result->steps = p->step;
  result->steps_before = t->steps_at_start;
  result->last_loss = p->last_loss;
  result->eval_loss = t->metrics.eval_loss;
  result->best_eval_loss = p->best_eval_loss;
  result->perplexity = exp(t->metrics.eval_loss);
  result->skipped_steps = p->skipped_steps;
  result->eval_tokens = t->eval_tokens;
  result->seconds = now() - t->started;
  result->tokens_per_second =
      (double)((p->step - t->steps_at_start) * rows_per_step(t->job) * t->job->sequence_length) /
      fmax(result->seconds, 1e-9);
  HRI_TRY(hri_session_compare(&t->session, result->reserved_bytes, result->planned_bytes, error));
  result->device_grown_known = hri_session_watch(&t->session, &t->metrics, &result->device_grown_bytes);
  result->process_peak_bytes = hri_host_peak_resident_bytes();
  compare_time(t, result);
  if (t->unlabelled > 1) {
    char text[120];
    (void)snprintf(text, sizeof text, "%llu steps had no label that counts", (unsigned long long)t->unlabelled);
    hri_session_tell(&t->session, HR_EVENT_WARNING, &t->metrics, text);
  }
  HRI_TRY(hri_run_write(&t->run, p, outcome == HR_OK ? "finished" : "interrupted", result, error));
  return write_profile(t, error);
}

/* How it ended is written where a person looks; the failure itself is what the caller gets. */
static void end_badly(trainer *t, hr_status status, const hr_error *error) {
  if (error) (void)snprintf(t->run.ended, sizeof t->run.ended, "%s", error->message);
  t->progress.step = t->settled; /* what was launched behind it counts for nothing */
  (void)hri_run_write(&t->run, &t->progress, status == HR_ERROR_DIVERGED ? "diverged" : "failed", NULL, NULL);
}

static hr_status train(trainer *t, hr_run_result *result, hr_error *error) {
  hr_error late = {0};
  hr_status status, finished;
  t->started = now();
  status = loop(t, error);
  if (status == HR_OK) status = write_final(t, error);
  else if (hri_is_full(error)) save_final_alone(t, status, error);
  if (status == HR_ERROR_IO && t->saved > 0 && !strstr(error->hint, "--resume")) (void)hint_saved(t, status, error);
  if (status == HR_OK || status == HR_ERROR_INTERRUPTED) {
    finished = finish(t, status, result, &late);
    if (finished != HR_OK) {
      status = finished;
      if (error) *error = late;
    }
  }
  if (status != HR_OK && status != HR_ERROR_INTERRUPTED) end_badly(t, status, error);
  if (t->run.lost) return status; /* its memory/ is another process's too */
  finished = hri_memory_end(t->memory, t->session.executor, status, error, &late);
  if (status == HR_OK && finished != HR_OK) {
    status = finished;
    if (error) *error = late;
  }
  return status;
}

/* A run that could not begin leaves no directory. */
static void take_back(trainer *t) {
  char store[4096 + 16];
  if (t->run.fresh && snprintf(store, sizeof store, "%s/data-cache", t->run.directory) < (int)sizeof store) {
    hri_dataset_forget(t->data, store);
    hri_dataset_forget(t->eval_data, store);
  }
  hri_rundir_discard(&t->run);
}

/* Under the lock from the first look on, where there is a run already. */
static hr_status enter(trainer *t, hr_error *error) {
  const hr_run_options *o = t->options;
  if (!o->resume_directory) return hri_rundir_look(o->out_directory, error);
  HRI_TRY(hri_rundir_resume(&t->run, o->resume_directory, &t->session, t->job, o, error));
  HRI_TRY(hri_checkpoint_open(&t->run, &t->from, error));
  (void)snprintf(t->session.companions, sizeof t->session.companions, "%s", t->from.path);
  return HR_OK;
}

static void tell_dropout(trainer *t) {
  const hri_dropout p = hri_model_dropout(&t->job->model, HR_DROPOUT_CONFIG);
  const double residual = fmax(p.attention_output, p.mlp);
  char text[200];
  if (t->job->dropout != 0 || (p.attention == 0 && residual == 0 && p.embedding == 0)) return;
  (void)hri_snprintf(
      text, sizeof text,
      "config.json asks for dropout (attention %g, residual %g, embeddings %g); there is none unless --dropout "
      "config takes it",
      p.attention, residual, p.embedding);
  hri_session_tell(&t->session, HR_EVENT_NOTE, NULL, text);
}

/* Products go on as they were computed where the checkpoint was made, whatever this machine chose since, if it can:
 * then no bit differs for them. If it cannot, check_machine says from where on bits may differ. */
static hr_status take_products(trainer *t, hr_error *error) {
  const char *then = t->from.products;
  hri_backend *backend;
  hri_gemm_table table;
  hri_isa level;
  char text[200];
  bool wanted;
  if (!then[0]) return HR_OK;
  HRI_TRY(hri_backend_open(&t->job->device, t->job->threads, &backend, error));
  wanted = strcmp(then, backend->libraries) != 0 && hri_isa_parse(backend->instruction_set, &level) &&
           hri_gemm_parse(then, level, &table);
  (void)snprintf(text, sizeof text, "as in the checkpoint: %s; this machine would take %s", then, backend->libraries);
  hri_backend_close(backend);
  if (!wanted) return HR_OK;
  HRI_TRY(take_job(t, error));
  (void)strcpy(t->own_job->device.products, then);
  hri_session_tell(&t->session, HR_EVENT_NOTE, NULL, text);
  return HR_OK;
}

/* Whether what a GPU's library said of products then still means something here: the same library, and the same kind of
 * card. Else check_machine says that they differ. */
static bool ways_hold(const trainer *t) {
  const hri_backend *backend = t->session.plan->backend;
  return backend->take_ways && t->from.ways.value && strcmp(t->from.products, backend->libraries) == 0 &&
         strcmp(t->from.instruction_set, backend->instruction_set) == 0;
}

/* Products are computed as where the checkpoint was made, whatever the library would choose today. */
static hr_status take_ways(trainer *t, hr_error *error) {
  const hri_backend *backend = t->session.plan->backend;
  if (!ways_hold(t)) return HR_OK;
  if (!hri_is_allowed(t->options, "ways")) return backend->take_ways(backend->self, &t->from.ways, error);
  t->ways_anew = true;
  return HR_OK;
}

hr_status hr_train(const hr_job *job, const hr_run_options *options, hr_run_result *result, hr_error *error) {
  trainer t;
  hr_error own = {0};
  hr_status status;
  if (!error) error = &own;
  memset(&t, 0, sizeof t);
  memset(result, 0, sizeof *result);
  t.job = job;
  t.options = options;
  t.session.on_event = options->on_event;
  t.session.should_stop = options->should_stop;
  t.session.context = options->context;
  t.session.tokenizer = options->data.tokenizer;
  HRI_TRY_OUT(check_options(job, options, error));
  HRI_TRY_OUT(hr_data_find(options->data_paths, options->data_path_count, error));
  HRI_TRY_OUT(hr_data_find(options->eval_paths, options->eval_path_count, error));
  HRI_TRY_OUT(enter(&t, error));
  HRI_TRY_OUT(take_products(&t, error));
  HRI_TRY_OUT(hri_session_plan(&t.session, t.job, NULL, error));
  tell_dropout(&t);
  HRI_TRY_OUT(take_ways(&t, error));
  HRI_TRY_OUT(prepare_session(&t, error));
  status = start(&t, error);
  if (status != HR_OK && t.memory) (void)hri_memory_end(t.memory, NULL, status, error, NULL);
  if (status == HR_OK) status = train(&t, result, error);
  else if (!options->resume_directory) take_back(&t);
out:
  hri_dataset_destroy(t.eval_data); /* it may be of the other */
  hri_dataset_destroy(t.data);
  hri_profile_destroy(t.profile);
  hri_rate_watch_end(t.rates);
  hri_memory_close(t.memory);
  hri_excerpt_deinit(&t.excerpt);
  hri_checkpoint_close(&t.from);
  hri_rundir_close(&t.run);
  hri_session_close(&t.session);
  hri_free(t.own_job);
  return status;
}
