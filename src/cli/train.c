/* headroom train: plans, refuses or runs. */
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include <headroom/run.h>

#include "base/file.h"
#include "cli/commands.h"
#include "cli/data.h"
#include "cli/output.h"
#include "cli/plan.h"
#include "cli/refused.h"
#include "cli/stop.h"
#include "cli/streams.h"
#include "cli/talk.h"
#include "cli/text.h"

/* Whom the events of a run go to. */
typedef struct listeners {
  cli_talk talk;
  cli_streams streams;
} listeners;

static void tell(void *context, const hr_event *event) {
  listeners *l = context;
  talk_event(&l->talk, event);
  streams_event(&l->streams, event, talk_warn, &l->talk);
}

/* ---- options ---- */

static hr_status need_option(const cli_config *config, const void *member, const char *hint, hr_error *error) {
  hri_fail(error, HR_ERROR_USAGE, "--%s is missing", option_get(option_at(config, member))->name);
  return hri_hint(error, HR_ERROR_USAGE, "%s", hint);
}

static hr_status run_options(const cli_config *config, char **separator, hr_run_options *run, hr_error *error) {
  *run = config->run;
  if (run->data_path_count == 0)
    return need_option(config, &config->run.data_paths, "--data FILE..., text or JSONL", error);
  return data_options(separator, &run->data, error);
}

/* What a person says now of evaluations that there will be none of. --eval-every is the library's to refuse. A run that
 * goes on may remember such an option, and the environment holds it for all runs. */
static hr_status check_evaluations(const cli_config *config, hr_error *error) {
  const hr_run_options *run = &config->run;
  const void *idle = NULL;
  if (run->eval_path_count > 0 || run->eval_share > 0) return HR_OK;
  if (run->eval_first && config_origin(config, &run->eval_first) == ORIGIN_FLAG) idle = &run->eval_first;
  if (run->eval_batches > 0 && config_origin(config, &run->eval_batches) == ORIGIN_FLAG) idle = &run->eval_batches;
  if (!idle) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE, "--%s needs --eval-data or --eval-split", option_get(option_at(config, idle))->name);
  return hri_hint(error, HR_ERROR_USAGE,
                  "name held-back files with --eval-data FILE, or hold back a share: --eval-split 1%%");
}

static hr_status train_options(const cli_config *config, char **separator, hr_run_options *run, hr_error *error) {
  hr_status status = run_options(config, separator, run, error);
  if (status != HR_OK) return status;
  if (!run->out_directory) run->out_directory = run->resume_directory;
  if (run->resume_directory && !output_same(run->resume_directory, run->out_directory)) {
    hri_fail(error, HR_ERROR_USAGE, "--resume %s and --out %s differ", run->resume_directory, run->out_directory);
    return hri_hint(error, HR_ERROR_USAGE, "leave --out away: a run goes on in its own directory");
  }
  if (run->resume_directory) run->out_directory = run->resume_directory; /* one directory, however it was spelled */
  if (!run->out_directory)
    return need_option(config, &config->run.out_directory, "--out RUN, the directory to write", error);
  return output_check_directory("--out", run->out_directory, error);
}

/* ---- results ---- */

static void write_common(json_writer *json, const hr_run_result *result) {
  json_write_number(json, "seconds", result->seconds);
  json_write_number(json, "tokens_per_second", result->tokens_per_second);
  talk_write_tiers(json, result->planned_bytes, result->reserved_bytes);
  json_write_count(json, "process_peak_bytes", result->process_peak_bytes);
}

static void print_train_json(const hr_run_options *run, const hr_run_result *result, hr_status status) {
  json_writer json;
  json_write_begin(&json, stdout);
  json_write_text(&json, "status", hr_status_name(status));
  json_write_text(&json, "run", run->out_directory);
  json_write_count(&json, "steps", result->steps);
  json_write_count(&json, "steps_before", result->steps_before);
  json_write_count(&json, "skipped_steps", result->skipped_steps);
  json_write_number(&json, "loss", result->last_loss);
  json_write_number(&json, "eval_loss", result->eval_loss);
  json_write_number(&json, "best_eval_loss", result->best_eval_loss);
  json_write_number(&json, "perplexity", result->perplexity);
  json_write_count(&json, "eval_tokens", result->eval_tokens);
  json_write_number(&json, "step_seconds", result->step_seconds);
  json_write_number(&json, "predicted_step_seconds", result->predicted_step_seconds);
  json_write_bool(&json, "prediction_measured", result->prediction_measured);
  json_write_bool(&json, "prediction_seen", result->prediction_seen);
  write_common(&json, result);
  json_write_end(&json);
}

static void print_peak(const hr_run_result *result) {
  if (!result->process_peak_bytes) return;
  (void)printf("  %-12s%28s", "process", SIZE_TEXT(result->process_peak_bytes));
  screen_beside(stdout, 42, "with runtime and libraries");
}

static void print_step_time(const hr_run_result *result) {
  double predicted = result->predicted_step_seconds;
  char text[160];
  int used;
  if (!(result->step_seconds > 0)) return;
  (void)printf("%-14s%14s", "step time", SECONDS_TEXT(result->step_seconds));
  used = snprintf(text, sizeof text, "predicted %s from %s rates", SECONDS_TEXT(predicted),
                  result->prediction_seen       ? "stored"
                  : result->prediction_measured ? "measured"
                                                : "assumed");
  if (predicted > 0)
    (void)snprintf(text + used, sizeof text - (size_t)used, ": the run took %+.0f %%",
                   percent_more(result->step_seconds, predicted));
  screen_beside(stdout, 28, text);
}

/* What this command did: a run that goes on brings steps along, and may have none left. */
static void print_steps(const hr_run_result *result, bool stopped) {
  const uint64_t done = result->steps - result->steps_before;
  if (!stopped && done == 0 && result->steps > 0) {
    (void)printf("nothing left to train: the run has done all of its %llu step%s\n", (unsigned long long)result->steps,
                 result->steps == 1 ? "" : "s");
    return;
  }
  (void)printf("%s%llu step%s in %s, %s tokens/s", stopped ? "stopped after " : "trained ", (unsigned long long)done,
               done == 1 ? "" : "s", SECONDS_TEXT(result->seconds), COUNT_TEXT(result->tokens_per_second));
  if (result->steps_before)
    (void)printf("; %llu step%s in all", (unsigned long long)result->steps, result->steps == 1 ? "" : "s");
  (void)printf("\n");
}

static void print_train(const hr_run_options *run, const hr_run_result *result, hr_status status) {
  char place[PATH_MAX];
  if (status != HR_OK && result->steps == 0) return; /* nothing was trained, and nothing is saved */
  print_steps(result, status != HR_OK);
  (void)printf("%-14s%14.4f  of the last step\n", "loss", result->last_loss);
  if (!isnan(result->eval_loss) && result->eval_tokens > 0) {
    char text[160], best[48] = "";
    if (!isnan(result->best_eval_loss)) (void)snprintf(best, sizeof best, ", best %.4f", result->best_eval_loss);
    (void)snprintf(text, sizeof text, "held back%s, perplexity %.4g, %llu tokens", best, result->perplexity,
                   (unsigned long long)result->eval_tokens);
    (void)printf("%-14s%14.4f", "evaluation", result->eval_loss);
    screen_beside(stdout, 28, text);
  }
  print_step_time(result);
  talk_print_tiers(result->planned_bytes, result->reserved_bytes);
  print_peak(result);
  (void)snprintf(place, sizeof place, "%s/%s", run->out_directory, status == HR_OK ? "final" : "checkpoints");
  screen_say(stdout, STYLE_PLAIN, "saved in", place);
}

/* ---- train ---- */

/* --auto, --recompute auto, --micro-batch auto: the planner's choice becomes the job; the run makes the same plan again. */
static hr_status choose(cli_config *config, hr_error *error) {
  hr_plan *plan = NULL;
  hr_status status;
  if (!plan_chooses(&config->job)) return HR_OK;
  status = plan_make(config, &plan, NULL, NULL, error);
  hr_plan_destroy(plan);
  return status;
}

/* Not the budget but the machine: it gave less than the budget says, at the start or later. */
static bool machine_refused(const hr_job *job, hr_status status, const hr_error *error) {
  if (status == HR_ERROR_MEMORY) return error->requested_bytes > 0;
  return status == HR_ERROR_BUDGET && error->available_bytes > 0 && error->available_bytes < job->budget_bytes;
}

/* The cache that is the run's own anyway needs no name: the run makes it when it begins. Another in its directory would be there
 * before it, and a run is begun in an empty one. */
static hr_status check_cache(hr_run_options *run, hr_error *error) {
  const char *cache = run->data.cache_directory;
  const output_run made = {run->out_directory, run->resume_directory == NULL};
  char own[4096];
  bool in_run;
  if (!cache) return HR_OK;
  HRI_TRY(hri_path_at(own, run->out_directory, "data-cache", error));
  if (output_same(cache, own)) {
    run->data.cache_directory = NULL;
    return HR_OK;
  }
  HRI_TRY(output_in_run("data-cache", cache, &made, true, &in_run, error));
  if (!in_run) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE, "--data-cache: %s lies in %s, which is to be empty when the run begins", cache,
           run->out_directory);
  return hri_hint(error, HR_ERROR_USAGE, "leave it out: the run then keeps its data in %s", own);
}

/* Before anything is read: what would write where another output is, or where the run does. */
static hr_status check_outputs(const cli_config *config, hr_run_options *run, hr_error *error) {
  char board[4096];
  const output_run made = {run->out_directory, run->resume_directory == NULL};
  bool in_run;
  HRI_TRY(streams_board(config, run->out_directory, board, error));
  if (run->profile_path) {
    HRI_TRY(output_check("profile", run->profile_path, OUTPUT_PROFILE, error));
    HRI_TRY(output_in_run("profile", run->profile_path, &made, false, &in_run, error));
  }
  HRI_TRY(check_cache(run, error));
  const output_file files[] = {{"out", run->out_directory, true},
                               {"log-json", streams_take_output(config) ? NULL : config->own.log_json, false},
                               {"metrics-file", config->own.metrics_file, false},
                               {"profile", run->profile_path, false},
                               {"tensorboard", board[0] ? board : NULL, true},
                               {"data-cache", run->data.cache_directory, true}};
  return outputs_check_apart(files, sizeof files / sizeof *files, error);
}

/* Data that a run remembers may have moved since, which the path alone does not tell a person who named none. */
static hr_status find_data(const cli_config *config, const void *member, const char *const *paths, uint32_t count,
                           hr_error *error) {
  const hr_status status = hr_data_find(paths, count, error);
  const char *name = option_get(option_at(config, member))->name;
  if (status == HR_OK || !config->run.resume_directory || config_origin(config, member) == ORIGIN_FLAG) return status;
  return hri_hint(
      error, status,
      "this is where %s has it from; if it was moved, --%s FILE... says where it is now, and its content is "
      "compared",
      config->run.resume_directory, name);
}

hr_status command_train(cli_config *config, hr_error *error) {
  hr_run_options run;
  hr_run_result result;
  char *separator = NULL;
  listeners heard;
  hr_status status;
  memset(&result, 0, sizeof result);
  memset(&heard, 0, sizeof heard);
  heard.streams.log_fd = -1;
  status = config_resume(config, error);
  if (status != HR_OK) return status;
  if (config->own.show_config) return config_show_for(config, HR_PURPOSE_TRAIN, error);
  status = config_job(config, HR_PURPOSE_TRAIN, error);
  if (status == HR_OK && !config->own.quiet) config_warn_unused(config);
  if (status == HR_OK) status = train_options(config, &separator, &run, error);
  if (status == HR_OK) status = check_evaluations(config, error);
  if (status == HR_OK) status = check_outputs(config, &run, error);
  if (status == HR_OK) /* before --auto plans many */
    status = find_data(config, &config->run.data_paths, run.data_paths, run.data_path_count, error);
  if (status == HR_OK) status = find_data(config, &config->run.eval_paths, run.eval_paths, run.eval_path_count, error);
  if (status == HR_OK) status = choose(config, error);
  talk_begin(&heard.talk, config);
  if (status == HR_OK) status = streams_open(&heard.streams, config, run.out_directory, error);
  if (status == HR_OK) {
    run.on_event = tell;
    run.should_stop = stop_begin("\nstopping; the run is saved first. Ctrl-C once more leaves at once.\n", true);
    run.context = &heard;
    (void)signal(SIGPIPE, SIG_IGN); /* a run outlives the program that reads its output */
    status = hr_train(&config->job, &run, &result, error);
    talk_clear(&heard.talk);
    if (machine_refused(&config->job, status, error)) refused_explain(&config->job, error);
    if (status == HR_OK || status == HR_ERROR_INTERRUPTED) {
      if (config->own.json) print_train_json(&run, &result, status);
      else if (!streams_take_output(config)) print_train(&run, &result, status);
    }
  }
  streams_close(&heard.streams, talk_warn, &heard.talk);
  free(separator);
  return status;
}

/* ---- evaluate: the same options, less of them ---- */

static void print_evaluation(const cli_config *config, const hr_run_result *result) {
  json_writer json;
  if (!config->own.json) {
    (void)printf("%-14s%14.6f\n%-14s%14.6g\n%-14s%14llu\n", "loss", result->eval_loss, "perplexity", result->perplexity,
                 "tokens", (unsigned long long)result->eval_tokens);
    talk_print_tiers(result->planned_bytes, result->reserved_bytes);
    print_peak(result);
    return;
  }
  json_write_begin(&json, stdout);
  json_write_number(&json, "loss", result->eval_loss);
  json_write_number(&json, "perplexity", result->perplexity);
  json_write_count(&json, "tokens", result->eval_tokens);
  json_write_count(&json, "micro_batch", config->job.micro_batch);
  write_common(&json, result);
  json_write_end(&json);
}

/* Takes the rows that --micro-batch auto finds, and says how many. */
static hr_status choose_rows(cli_config *config, hr_error *error) {
  hr_job chosen = config->job;
  char text[64];
  HRI_TRY(hr_plan_rows(&chosen, NULL, error));
  config->job = chosen;
  (void)snprintf(text, sizeof text, "micro-batch %u (chosen)", chosen.micro_batch);
  if (!config->own.quiet) screen_hang(stderr, 11, "rows", text);
  return HR_OK;
}

hr_status command_evaluate(cli_config *config, hr_error *error) {
  hr_run_options run;
  hr_run_result result;
  char *separator = NULL;
  cli_talk talk;
  hr_hold *hold;
  hr_status status;
  memset(&result, 0, sizeof result);
  if (config->own.show_config) return config_show_for(config, HR_PURPOSE_EVALUATE, error);
  hold = config_hold_model(config);
  status = config_job(config, HR_PURPOSE_EVALUATE, error);
  if (status == HR_OK && config->job.rows_choice == HR_ROWS_OPEN) status = choose_rows(config, error);
  if (status == HR_OK) status = run_options(config, &separator, &run, error);
  if (status == HR_OK) {
    talk_begin(&talk, config);
    run.on_event = talk_event;
    run.context = &talk;
    status = hr_evaluate(&config->job, &run, &result, error);
    talk_clear(&talk);
  }
  if (status == HR_OK) print_evaluation(config, &result);
  free(separator);
  hr_hold_release(hold);
  return status;
}
