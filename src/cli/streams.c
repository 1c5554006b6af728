/* Each stream is opened before the run and fed by its events. One that fails while the run goes on is told as a warning
 * and left: a full disk under a dashboard's file ends no training. What lies in the directory of a run that is new is
 * opened by the first line for it: a run is begun in an empty directory, and one that could not begin leaves none. */
#include "cli/streams.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/lock.h"
#include "cli/output.h"

/* ---- --log-json ---- */

/* One writer, as of a run: a second one would empty the file under the first. A file system without locks has to do without,
 * and devices and pipes take from everybody. */
static hr_status hold_log(cli_streams *s, hr_error *error) {
  char lock[4096], what[4096];
  struct stat info;
  int failed;
  if (fstat(s->log_fd, &info) != 0 || !S_ISREG(info.st_mode)) return HR_OK;
  do failed = flock(s->log_fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  while (failed == EINTR);
  if (failed != EWOULDBLOCK) return HR_OK;
  s->log_made = false; /* nor is it removed, whoever made it */
  HRI_TRY(hri_path_at(lock, s->run, "lock", error));
  (void)snprintf(what, sizeof what, "the run %.3000s", s->run);
  HRI_TRY(hri_lock_refuse_held(lock, what, error)); /* which writes the log that it was begun with */
  hri_fail(error, HR_ERROR_USAGE, "--log-json: %s is locked by another process, which may be a run that writes it",
           s->log);
  return hri_hint(error, HR_ERROR_USAGE, "name another file, or wait until that run has ended");
}

/* What stands there is replaced by the first line, for a run may still be refused: then a file that was made goes again. If
 * it goes on, its lines stay. A pipe that nobody reads is refused, not waited for. Lines are appended: who cuts the file
 * meanwhile, as what rotates logs does, finds no hole in it. */
static hr_status open_log(cli_streams *s, hr_error *error) {
  const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_APPEND;
  if (strcmp(s->log, "-") == 0) {
    s->log_fd = STDOUT_FILENO;
    return HR_OK;
  }
  s->log_fd = open(s->log, flags | O_EXCL, 0644);
  s->log_made = s->log_fd >= 0;
  if (s->log_fd < 0) s->log_fd = open(s->log, flags, 0644);
  if (s->log_fd < 0) return hri_fail_errno(error, errno, "open", s->log);
  (void)fcntl(s->log_fd, F_SETFL, O_APPEND); /* writing may wait */
  return hold_log(s, error);
}

/* Once only: tried again at a later line it would take that run's own lines away. Of a device or a pipe there is nothing
 * to take. */
static hr_status empty_log(cli_streams *s, hr_error *error) {
  struct stat info;
  if (!s->log_anew) return HR_OK;
  s->log_anew = false;
  if (fstat(s->log_fd, &info) != 0) return hri_fail_errno(error, errno, "read", s->log);
  if (S_ISREG(info.st_mode) && ftruncate(s->log_fd, 0) != 0) return hri_fail_errno(error, errno, "empty", s->log);
  return HR_OK;
}

static hr_status write_line(cli_streams *s, const char *text, hr_error *error) {
  HRI_TRY(empty_log(s, error));
  return hri_file_write_all(s->log_fd, s->log, text, strlen(text), error);
}

/* ---- --metrics-file ---- */

typedef struct gauge {
  const char *name, *type, *help;
  double value;
} gauge;

static void add_label(hri_text *text, const char *run) {
  for (; *run; run++) {
    if (*run == '\n') hri_text_add(text, "\\n");
    else if (*run == '"' || *run == '\\') hri_text_add(text, "\\%c", *run);
    else hri_text_add(text, "%c", *run);
  }
}

static void add_gauge(hri_text *text, const char *run, const gauge *g) {
  if (!isfinite(g->value)) return; /* there is none */
  hri_text_add(text, "# HELP headroom_%s %s\n# TYPE headroom_%s %s\nheadroom_%s{run=\"", g->name, g->help, g->name,
               g->type, g->name);
  add_label(text, run);
  hri_text_add(text, "\"} %.17g\n", g->value);
}

static double now(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_REALTIME, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static hr_status write_metrics(cli_streams *s, hr_error *error) {
  const hr_metrics *m = &s->last;
  const double step_only = s->stepped ? 0 : NAN; /* added to what an evaluation before the first step does not have */
  const gauge gauges[] = {
      {"step", "gauge", "Finished optimizer steps.", (double)m->step},
      {"steps", "gauge", "Optimizer steps of the whole run.", (double)m->steps},
      {"loss", "gauge", "Mean token loss of the last step.", m->loss + step_only},
      {"grad_norm", "gauge", "Global gradient norm of the last step.", m->grad_norm + step_only},
      {"learning_rate", "gauge", "Learning rate of the last step.", m->learning_rate + step_only},
      {"epoch", "gauge", "Passes over the data so far.", m->epoch + step_only},
      {"tokens_total", "counter", "Labels that counted so far.", (double)m->tokens_total},
      {"tokens_per_second", "gauge", "Input tokens per second of the last step.", m->tokens_per_second + step_only},
      {"step_seconds", "gauge", "Duration of the last step.", m->step_seconds + step_only},
      {"eta_seconds", "gauge", "Predicted time to the end of the run.", m->eta_seconds + step_only},
      {"eval_loss", "gauge", "Mean token loss of the last evaluation.", m->eval_loss},
      {"best_eval_loss", "gauge", "Lowest loss of an evaluation so far.", m->best_eval_loss},
      {"process_resident_bytes", "gauge", "Memory that the process holds.",
       (double)m->process_resident_bytes + step_only},
      {"process_peak_bytes", "gauge", "Most memory that the process held.", (double)m->process_peak_bytes + step_only},
      {"device_reserved_bytes", "gauge", "Memory that the run reserved, as planned.", (double)m->device_reserved_bytes},
      {"device_budget_bytes", "gauge", "Memory that the run may use.", (double)m->device_budget_bytes},
      {"last_update_seconds", "gauge", "When this file was written, in seconds since 1970.", s->replaced},
  };
  hri_text text = {0};
  hr_status status;
  for (size_t k = 0; k < sizeof gauges / sizeof *gauges; k++) add_gauge(&text, s->run, &gauges[k]);
  status = text.failed ? hri_fail_memory(error, text.length, "the metrics file")
                       : hri_file_replace(s->metrics, text.chars, text.length, error);
  hri_text_deinit(&text);
  return status;
}

/* Whoever collects it looks every few seconds. */
static hr_status replace_metrics(cli_streams *s, const hr_event *event, hr_error *error) {
  double time = now();
  bool due = time - s->replaced >= 1 || time < s->replaced || event->kind == HR_EVENT_EVALUATED ||
             event->metrics->step == event->metrics->steps;
  s->last = *event->metrics;
  s->stepped = s->stepped || event->kind == HR_EVENT_STEP;
  if (!due) return HR_OK;
  s->replaced = time;
  return write_metrics(s, error);
}

/* ---- all of them ---- */

/* RUN/tensorboard, and no place that a person names. */
static bool board_is_own(const cli_config *config) {
  return config->own.tensorboard &&
         strcmp(config->own.tensorboard, option_get(option_at(config, &config->own.tensorboard))->alone) == 0;
}

hr_status streams_board(const cli_config *config, const char *run, char path[4096], hr_error *error) {
  const char *board = config->own.tensorboard;
  path[0] = 0;
  if (!board) return HR_OK;
  if (board_is_own(config)) return hri_path_at(path, run, "tensorboard", error);
  HRI_TRY(output_check_directory("--tensorboard", board, error));
  if (strlen(board) >= 4096) return hri_fail_errno(error, ENAMETOOLONG, "create", board);
  (void)strcpy(path, board);
  return HR_OK;
}

/* Where each of them goes, and whether that is in a run directory which is not there yet. */
static hr_status find_places(cli_streams *s, const cli_config *config, hr_error *error) {
  const output_run run = {s->run, config->run.resume_directory == NULL};
  bool metrics_in_run = false;
  if (s->log && !streams_take_output(config)) {
    HRI_TRY(output_check("log-json", s->log, OUTPUT_LOG, error));
    HRI_TRY(output_in_run("log-json", s->log, &run, false, &s->log_in_run, error));
  }
  if (s->metrics) {
    HRI_TRY(output_check("metrics-file", s->metrics, OUTPUT_METRICS, error));
    HRI_TRY(output_in_run("metrics-file", s->metrics, &run, false, &metrics_in_run, error));
    if (!metrics_in_run) HRI_TRY(hri_file_can_replace(s->metrics, error));
  }
  HRI_TRY(streams_board(config, s->run, s->board_directory, error));
  s->board_in_run = board_is_own(config);
  if (!s->board_directory[0] || s->board_in_run) return HR_OK;
  return output_in_run("tensorboard", s->board_directory, &run, true, &s->board_in_run, error);
}

hr_status streams_open(cli_streams *s, const cli_config *config, const char *run, hr_error *error) {
  *s = (cli_streams){.run = run, .log = config->own.log_json, .metrics = config->own.metrics_file, .log_fd = -1};
  if (streams_take_output(config) && config->own.json) {
    hri_fail(error, HR_ERROR_USAGE, "--log-json - and --json exclude each other: both are standard output");
    return hri_hint(error, HR_ERROR_USAGE, "give --log-json a FILE");
  }
  HRI_TRY(find_places(s, config, error));
  s->log_anew = !config->run.resume_directory && !streams_take_output(config);
  if (s->log && !s->log_in_run) HRI_TRY(open_log(s, error));
  return s->board_directory[0] && !s->board_in_run ? tensorboard_open(&s->board, s->board_directory, error) : HR_OK;
}

static void leave(const char *what, const hr_error *error, void (*warn)(void *context, const char *text),
                  void *context) {
  char text[900];
  (void)snprintf(text, sizeof text, "%s is not written any more: %.700s", what, error->message);
  warn(context, text);
}

/* The run has begun, and its directory stays. */
static void open_in_run(cli_streams *s, void (*warn)(void *context, const char *text), void *context) {
  hr_error error = {0};
  if (s->log_in_run && open_log(s, &error) != HR_OK) {
    s->log = NULL;
    leave("--log-json", &error, warn, context);
  }
  if (s->board_in_run && tensorboard_open(&s->board, s->board_directory, &error) != HR_OK)
    leave("--tensorboard", &error, warn, context);
  s->log_in_run = s->board_in_run = false;
}

void streams_event(cli_streams *s, const hr_event *event, void (*warn)(void *context, const char *text),
                   void *context) {
  bool evaluation = event->kind == HR_EVENT_EVALUATED;
  hr_error error = {0};
  if ((event->kind != HR_EVENT_STEP && !evaluation) || !event->metrics) return;
  open_in_run(s, warn, context);
  if (s->log && event->text && write_line(s, event->text, &error) != HR_OK) {
    s->log = NULL;
    leave("--log-json", &error, warn, context);
  }
  if (tensorboard_put(&s->board, event->metrics, evaluation, &error) != HR_OK) {
    (void)tensorboard_close(&s->board, &(hr_error){0});
    leave("--tensorboard", &error, warn, context);
  }
  if (s->metrics && replace_metrics(s, event, &error) != HR_OK) {
    s->metrics = NULL;
    leave("--metrics-file", &error, warn, context);
  }
}

/* Whether nothing was written to the file, by whomever, and its name is still its own. */
static bool is_empty(int fd, const char *name) {
  struct stat file, named;
  return fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && file.st_size == 0 && lstat(name, &named) == 0 &&
         named.st_dev == file.st_dev && named.st_ino == file.st_ino;
}

void streams_close(cli_streams *s, void (*warn)(void *context, const char *text), void *context) {
  hr_error error = {0};
  const bool unsaid = s->log_fd >= 0 && s->log_made && is_empty(s->log_fd, s->log);
  if (s->log_fd >= 0 && s->log_fd != STDOUT_FILENO && close(s->log_fd) != 0 && s->log) {
    hri_fail_errno(&error, errno, "write", s->log);
    leave("--log-json", &error, warn, context);
  }
  if (unsaid) (void)unlink(s->log); /* of a run that was refused */
  if (s->metrics && s->last.steps && write_metrics(s, &error) != HR_OK) leave("--metrics-file", &error, warn, context);
  if (tensorboard_close(&s->board, &error) != HR_OK) leave("--tensorboard", &error, warn, context);
  s->log_fd = -1;
}
