/* headroom plan: compiles a job and prints what it needs. */
#include "cli/output.h"
#include "cli/plan_engine.h"

#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/text.h"

/* ---- --table ---- */

enum { TABLE_SIDE = 6 };

typedef struct table_axis {
  uint32_t values[TABLE_SIDE], count;
} table_axis;

/* The sequence asked for, doubled up to eight times as long as the model was made for that, and halves below. */
static table_axis sequence_axis(const hr_job *job) {
  uint64_t tokens = job->sequence_length, limit = job->model.max_positions;
  table_axis axis = {.count = 1};
  for (int doublings = 0; doublings < 3 && 2 * tokens <= limit; doublings++) tokens *= 2;
  while (axis.count < TABLE_SIDE && tokens % 2 == 0 && tokens >= 64) {
    tokens /= 2;
    axis.count++;
  }
  for (uint32_t i = 0; i < axis.count; i++, tokens *= 2) axis.values[i] = (uint32_t)tokens;
  return axis;
}

/* Powers of two, with the micro-batch asked for among them. */
static table_axis batch_axis(const hr_job *job) {
  table_axis axis = {.count = 0};
  uint64_t next = 1;
  bool placed = false;
  while (axis.count < TABLE_SIDE) {
    bool own = !placed && job->micro_batch <= next;
    uint64_t rows = own ? job->micro_batch : next;
    if (axis.count == TABLE_SIDE - 1 && !placed) rows = job->micro_batch;
    placed = placed || rows == job->micro_batch;
    if (!own || rows == next) next *= 2;
    axis.values[axis.count++] = (uint32_t)rows;
  }
  return axis;
}

typedef struct table_cell {
  uint64_t need_bytes;
  double step_seconds;
  bool possible, fits;
} table_cell;

static hr_status engine_cell(const cli_config *config, const hr_job *job, table_cell *out, hr_error *error) {
  hr_pytorch *pytorch = NULL;
  hr_status status = plan_engine_make(config, job, &pytorch, error);
  if (status == HR_ERROR_UNSUPPORTED) return HR_OK;
  HRI_TRY(status);
  out->need_bytes = hr_pytorch_get(pytorch)->device_used_bytes;
  out->fits = hr_pytorch_get(pytorch)->fits;
  out->possible = true;
  hr_pytorch_destroy(pytorch);
  return HR_OK;
}

static hr_status plan_cell(const cli_config *config, uint32_t sequence, uint32_t batch, table_cell *out,
                           hr_error *error) {
  hr_job job = config->asked;
  hr_plan *plan = NULL;
  hr_error own;
  hr_status status;
  *out = (table_cell){0};
  job.device = config->job.device;
  job.accumulate = config->job.accumulate; /* the rows of a step change with the cell, the micro-steps do not */
  job.batch_tokens = 0;
  job.sequence_length = sequence;
  job.micro_batch = batch;
  status = hr_job_finish(&job, &own);
  if (status == HR_OK && plan_engine_chosen(config)) return engine_cell(config, &job, out, error);
  if (status == HR_OK && plan_chooses_levels(&job)) status = hr_plan_recompute(&job, &plan, NULL, &own);
  else if (status == HR_OK) status = hr_plan_create(&job, &plan, &own);
  if (status == HR_ERROR_USAGE || status == HR_ERROR_UNSUPPORTED) return HR_OK; /* this pair cannot be; others can */
  if (status != HR_OK) {
    *error = own;
    return status;
  }
  out->need_bytes = plan_need(plan);
  out->step_seconds = hr_plan_get(plan)->step_seconds;
  out->fits = hr_plan_get(plan)->fits;
  out->possible = true;
  hr_plan_destroy(plan);
  return HR_OK;
}

static void write_cell(json_writer *json, uint32_t sequence, uint32_t batch, const table_cell *cell) {
  json_write_open_flat(json, NULL, '{');
  json_write_count(json, "seq", sequence);
  json_write_count(json, "micro_batch", batch);
  if (cell->possible) json_write_count(json, "need_bytes", cell->need_bytes);
  else json_write_null(json, "need_bytes");
  json_write_bool(json, "fits", cell->fits);
  if (cell->possible && cell->step_seconds > 0) json_write_ns(json, "step_ns", cell->step_seconds);
  json_write_close(json, '}');
}

static void print_cell(const table_cell *cell, bool last) {
  const char *mark = cell->fits ? " *" : last ? "" : "  ";
  (void)fputs(screen_style(stdout, cell->fits ? STYLE_GOOD : STYLE_PLAIN), stdout);
  (void)printf("%10s%s", cell->possible ? SIZE_TEXT(cell->need_bytes) : "-", mark);
  (void)fputs(screen_style(stdout, STYLE_PLAIN), stdout);
}

hr_status plan_print_table(const cli_config *config, json_writer *json, hr_error *error) {
  bool rows_are_sequences = strncmp(config->own.table, "seq", 3) == 0;
  table_axis sequences = sequence_axis(&config->job), batches = batch_axis(&config->job);
  table_axis rows = rows_are_sequences ? sequences : batches, columns = rows_are_sequences ? batches : sequences;
  if (json) {
    json_write_open(json, "table", '[');
  } else {
    (void)printf("%-6s", rows_are_sequences ? "seq" : "batch");
    for (uint32_t j = 0; j < columns.count; j++) (void)printf("%s%10u", j ? "  " : "", columns.values[j]);
    (void)printf("\n");
  }
  for (uint32_t i = 0; i < rows.count; i++) {
    if (!json) (void)printf("%-6u", rows.values[i]);
    for (uint32_t j = 0; j < columns.count; j++) {
      uint32_t sequence = rows_are_sequences ? rows.values[i] : columns.values[j];
      uint32_t batch = rows_are_sequences ? columns.values[j] : rows.values[i];
      table_cell cell;
      hr_status status = plan_cell(config, sequence, batch, &cell, error);
      if (status != HR_OK && json) json_write_close(json, ']'); /* what is printed stays a document */
      if (status != HR_OK) return status;
      if (json) write_cell(json, sequence, batch, &cell);
      else print_cell(&cell, j + 1 == columns.count);
    }
    if (!json) (void)printf("\n");
  }
  if (json) json_write_close(json, ']');
  else
    (void)printf("\n%s down, %s across; * fits, each cell was planned\n", rows_are_sequences ? "seq" : "micro-batch",
                 rows_are_sequences ? "micro-batch" : "seq");
  return HR_OK;
}

/* ---- the command ---- */

/* What --auto changed, as options, and how far it is from what nothing can beat. */
static void print_chosen(const hr_job *before, const hr_job *after, const hr_auto *found) {
  char text[OPTION_VALUE_BYTES], bound[160];
  hr_job_options(before, after, text, sizeof text);
  screen_hang(stderr, 11, "auto", text[0] ? text : "chose what was asked for");
  (void)snprintf(bound, sizeof bound, "its time per token is %.1f %% above the bound that no choice is below",
                 100 * (found->token_seconds / found->bound_token_seconds - 1));
  if (found->bound_token_seconds > 0) screen_hang(stderr, 11, "", bound);
}

/* How far the smallest need that is known is from what no choice can be below. */
static void print_refused(const hr_auto *found, uint64_t budget_bytes) {
  const uint64_t bound = found->bound_bytes;
  char text[200];
  if (bound == 0 || bound == UINT64_MAX || found->smallest_bytes < bound) return;
  (void)snprintf(text, sizeof text, "no choice needs less than %s%s; the smallest known is %.1f %% above that",
                 SIZE_TEXT(bound), budget_bytes < bound ? ", so none fits" : "",
                 100 * ((double)found->smallest_bytes / (double)bound - 1));
  screen_hang(stderr, 11, "", text);
}

/* The job as it was asked for, but for the levels of --recompute auto and the rows of --micro-batch auto. */
static hr_status make_asked(cli_config *config, hr_plan **plan, hr_frontier *frontier, hr_error *error) {
  hr_job chosen = config->job;
  hr_status status;
  if (config->job.rows_choice == HR_ROWS_OPEN) {
    status = hr_plan_rows(&chosen, plan, error);
    if (status == HR_OK) config->job = chosen;
    return status;
  }
  if (!plan_chooses_levels(&config->job)) return hr_plan_create(&config->job, plan, error);
  status = hr_plan_recompute(&chosen, plan, frontier, error);
  if (status == HR_OK) config->job = chosen;
  return status;
}

hr_status plan_make(cli_config *config, hr_plan **plan, hr_frontier *frontier, hr_auto *found, hr_error *error) {
  hr_auto own;
  hr_job before = config->job, after = config->job;
  hr_error refused;
  hr_status status;
  if (frontier) frontier->count = 0;
  if (!found) found = &own;
  *found = (hr_auto){0};
  if (!config->job.automatic) return make_asked(config, plan, frontier, error);
  status = hr_plan_auto(&after, plan, found, &refused);
  if (status == HR_ERROR_BUDGET) {
    if (!config->own.quiet) {
      screen_hang(stderr, 11, "auto", refused.message);
      print_refused(found, before.budget_bytes);
    }
    return make_asked(config, plan, frontier, error); /* shows why, and what would */
  }
  if (status != HR_OK) {
    *error = refused;
    return status;
  }
  if (!config->own.quiet) print_chosen(&before, &after, found);
  config->job = after;
  return HR_OK;
}

static hr_status dump(const cli_config *config, const hr_plan *plan, hr_error *error) {
  char *text = NULL;
  hr_status status = hr_plan_dump(plan, config->own.json, &text, error);
  if (status != HR_OK) return status;
  (void)fputs(text, stdout);
  if (text[0] && text[strlen(text) - 1] != '\n') (void)putchar('\n');
  hr_free(text);
  return HR_OK;
}

static hr_status show_json(const cli_config *config, const hr_plan *plan, const fix_list *fixes,
                           const device_list *devices, const hr_frontier *frontier, const hr_auto *found,
                           hr_error *error) {
  json_writer json;
  hr_status status = HR_OK;
  json_write_begin(&json, stdout);
  plan_write_json(&json, config, plan, fixes, devices, frontier, found);
  plan_engine_write(&json, config, plan);
  if (config->own.table) status = plan_print_table(config, &json, error);
  if (status == HR_OK && config->own.timeline) status = plan_write_timeline(&json, plan, error);
  json_write_end(&json);
  return status;
}

static hr_status show_text(const cli_config *config, const hr_plan *plan, const fix_list *fixes,
                           const device_list *devices, const hr_frontier *frontier, hr_error *error) {
  if (config->own.table) {
    plan_print_verdict(stdout, plan);
    (void)putchar('\n');
    return plan_print_table(config, NULL, error);
  }
  plan_print(stdout, plan);
  plan_engine_line(config, plan);
  if (frontier->count) plan_print_frontier(stdout, plan, frontier);
  if (config->own.timeline) {
    hr_status status = plan_print_timeline(stdout, plan, error);
    if (status != HR_OK) return status;
  }
  if (fixes) plan_print_fixes(stdout, plan, fixes, devices);
  (void)putchar('\n');
  plan_print_verdict(stdout, plan);
  return HR_OK;
}

/* The alternatives of a plan; where memory is refused for them that nobody asked for by name, the plan is the answer
 * without. */
static hr_status make_fixes(const cli_config *config, const hr_plan *plan, fix_list *fixes, bool *wanted,
                            hr_error *error) {
  hr_error own = {0};
  char text[sizeof own.message + 64];
  hr_status status = fix_list_make(hr_plan_job(plan), fixes, &own);
  if (status != HR_ERROR_MEMORY || config_chosen(config, &config->own.fixes)) {
    if (status != HR_OK) *error = own;
    return status;
  }
  *wanted = false;
  (void)snprintf(text, sizeof text, "alternatives were not planned: %s", own.message);
  screen_say(stderr, STYLE_PLAIN, "note:", text);
  return HR_OK;
}

static hr_status show(const cli_config *config, const hr_plan *plan, const hr_frontier *frontier, const hr_auto *found,
                      hr_error *error) {
  fix_list fixes = {0};
  device_list larger, *devices = NULL;
  bool wanted = config_chosen(config, &config->own.fixes) ? config->own.fixes : !hr_plan_get(plan)->fits;
  hr_status status = HR_OK;
  if (config_chosen(config, &config->own.dump)) return dump(config, plan, error);
  if (config->own.table && !config->own.json) wanted = false;
  if (wanted) status = make_fixes(config, plan, &fixes, &wanted, error);
  if (status != HR_OK) return status;
  if (wanted && !hr_plan_get(plan)->fits && !hr_plan_job(plan)->device.has_team) {
    devices = &larger; /* of this machine's own processor there is no larger one */
    device_list_make(hr_plan_job(plan), devices);
  }
  if (config->own.json) status = show_json(config, plan, wanted ? &fixes : NULL, devices, frontier, found, error);
  else status = show_text(config, plan, wanted ? &fixes : NULL, devices, frontier, error);
  fix_list_free(&fixes);
  return status;
}

static hr_status check_limit(const cli_config *config, uint64_t need, hr_error *error) {
  double share = config->own.fail_over_share;
  uint64_t bytes =
      share > 0 ? (uint64_t)(share * (double)config->job.device.usable_bytes) : config->own.fail_over_bytes;
  if (!config_chosen(config, &config->own.fail_over_bytes) || need <= bytes) return HR_OK;
  return hri_fail(error, HR_ERROR_BUDGET, "the job needs %s (%llu bytes), more than --fail-over %s (%llu bytes)",
                  SIZE_TEXT(need), (unsigned long long)need, SIZE_TEXT(bytes), (unsigned long long)bytes);
}

/* --engine pytorch: the framework's answer instead of a plan. */
static hr_status show_engine(const cli_config *config, const hr_pytorch *pytorch, hr_error *error) {
  json_writer json;
  hr_status status;
  if (!config->own.json && config->own.table) return plan_print_table(config, NULL, error);
  if (!config->own.json) return plan_engine_print(config, pytorch, error);
  json_write_begin(&json, stdout);
  status = plan_engine_write_json(&json, config, pytorch, error);
  if (status == HR_OK && config->own.table) status = plan_print_table(config, &json, error);
  json_write_end(&json);
  return status;
}

static hr_status write_snapshot(const cli_config *config, const hr_pytorch *pytorch, hr_error *error) {
  hr_snapshot *snapshot = NULL;
  hr_status status;
  if (!config->own.snapshot) return HR_OK;
  HRI_TRY(hr_pytorch_snapshot(pytorch, &snapshot, error));
  status = hr_snapshot_write(snapshot, config->own.snapshot, NULL, error);
  hr_snapshot_destroy(snapshot);
  return status;
}

static hr_status answer_of_engine(const cli_config *config, hr_error *error) {
  hr_pytorch *pytorch = NULL;
  hr_status status;
  uint64_t need;
  bool fits;
  HRI_TRY(plan_engine_make(config, &config->job, &pytorch, error));
  fits = hr_pytorch_get(pytorch)->fits;
  need = hr_pytorch_get(pytorch)->device_used_bytes;
  status = write_snapshot(config, pytorch, error);
  if (status == HR_OK) status = show_engine(config, pytorch, error);
  hr_pytorch_destroy(pytorch);
  if (status == HR_OK) status = check_limit(config, need, error);
  if (status != HR_OK) return status;
  return fits ? HR_OK : HR_ERROR_BUDGET; /* the screen has said it */
}

/* That nothing fits says nothing of a job of which there are no rules. */
static hr_status check_rules(const cli_config *config, hr_error *error) {
  hr_pytorch *pytorch = NULL;
  HRI_TRY(plan_engine_make(config, &config->job, &pytorch, error));
  hr_pytorch_destroy(pytorch);
  return HR_OK;
}

/* --auto: the job with the settings that were chosen. */
static hr_status auto_of_engine(cli_config *config, hr_error *error) {
  plan_engine_choice *choice = text_alloc(sizeof *choice);
  const char *conf = config->own.engine_conf,
             *alloc_conf = config->own.alloc_conf; /* theirs: the choice's end with it */
  hr_status status = plan_engine_auto(config, choice, error);
  if (status == HR_OK) {
    config->job = choice->job;
    config->own.engine_conf = choice->conf.length ? hri_text_get(&choice->conf) : NULL;
    if (choice->alloc_conf.length) config->own.alloc_conf = hri_text_get(&choice->alloc_conf);
    if (!choice->found) status = check_rules(config, error);
    if (status == HR_OK && !config->own.quiet) plan_engine_print_choice(choice);
    if (status == HR_OK) status = answer_of_engine(config, error);
    config->own.engine_conf = conf;
    config->own.alloc_conf = alloc_conf;
  }
  plan_engine_choice_free(choice);
  return status;
}

static hr_status other_engine(cli_config *config, hr_error *error) {
  if (config_chosen(config, &config->own.dump))
    return hri_fail(error, HR_ERROR_USAGE, "--engine %s goes without --dump: it is of Headroom's own plans",
                    config->own.engine);
  if (config->job.rows_choice == HR_ROWS_OPEN) HRI_TRY(plan_engine_rows(config, error));
  if (config->own.snapshot) HRI_TRY(output_check("snapshot", config->own.snapshot, OUTPUT_OTHER, error));
  return config->job.automatic ? auto_of_engine(config, error) : answer_of_engine(config, error);
}

/* A dump is all that is printed, and so is a table on a screen; --json holds a table beside the rest. */
static hr_status check_shown(const cli_config *config, hr_error *error) {
  const bool dumps = config_chosen(config, &config->own.dump), fixes = config_chosen(config, &config->own.fixes);
  const char *alone = dumps ? "--dump" : config->own.table && !config->own.json ? "--table" : NULL;
  const char *other = dumps && config->own.table   ? "--table"
                      : config->own.timeline       ? "--timeline"
                      : fixes && config->own.fixes ? "--fixes"
                                                   : NULL;
  if (!alone || !other) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE, "%s and %s exclude each other: %s prints nothing else", alone, other, alone);
  return hri_hint(error, HR_ERROR_USAGE, dumps ? "one after the other" : "one after the other, or both with --json");
}

/* What a person says now and what the planned command has no place for: it would change no byte. A recipe or the
 * environment is for several commands, and a micro-batch of one row is what each of them can have. */
static hr_status check_purpose(const cli_config *config, hr_error *error) {
  static const char *const names[] = {"train", "evaluate", "generate"};
  const hr_purpose purpose = config->own.purpose;
  const bool generates = purpose == HR_PURPOSE_GENERATE;
  const struct {
    const void *member;
    bool idle;
    const char *why, *remedy;
  } rules[] = {
      {&config->job.micro_batch, generates && config->job.micro_batch > 1, "one row is generated at a time",
       "leave it out; for several at once multiply what the cache and the activations need"},
      {&config->job.accumulate, purpose != HR_PURPOSE_TRAIN && config->job.accumulate > 1,
       "only a training adds up gradients", "leave it out"},
      {&config->job.batch_tokens, purpose != HR_PURPOSE_TRAIN, "only a training has optimizer steps", "leave it out"},
      {&config->job.context_length, !generates && !config->run.sample_prompt,
       "it is the length of the KV cache, and nothing is generated",
       "give --seq N for longer rows, --for generate, or --sample TEXT for a training that generates"},
  };
  for (size_t k = 0; k < sizeof rules / sizeof *rules; k++) {
    if (!rules[k].idle || config_origin(config, rules[k].member) != ORIGIN_FLAG) continue;
    hri_fail(error, HR_ERROR_USAGE, "--%s does nothing in a plan of %s: %s",
             option_get(option_at(config, rules[k].member))->name, names[purpose], rules[k].why);
    return hri_hint(error, HR_ERROR_USAGE, "%s", rules[k].remedy);
  }
  return HR_OK;
}

/* What only --engine pytorch has. */
static hr_status check_own_engine(const cli_config *config, hr_error *error) {
  const struct {
    bool given;
    const char *name, *why;
  } rules[] = {{config->own.engine_conf != NULL, "engine-conf", "Headroom's own engine has no such settings"},
               {config->own.alloc_conf != NULL, "alloc-conf", "Headroom's own engine reserves once"},
               {config->own.ranks > 1, "ranks", "Headroom's own engine runs on one device"},
               {config->own.snapshot != NULL, "snapshot", "--timeline shows a plan of Headroom's own over time"}};
  for (size_t k = 0; k < sizeof rules / sizeof *rules; k++) {
    if (!rules[k].given) continue;
    hri_fail(error, HR_ERROR_USAGE, "--%s is of --engine pytorch: %s", rules[k].name, rules[k].why);
    return hri_hint(error, HR_ERROR_USAGE, "add --engine pytorch, or leave --%s out", rules[k].name);
  }
  return HR_OK;
}

hr_status command_plan(cli_config *config, hr_error *error) {
  hr_purpose purpose = config->own.purpose;
  hr_frontier frontier = {.count = 0};
  hr_auto found;
  hr_plan *plan = NULL;
  hr_status status;
  if (config->own.show_config) return config_show_for(config, purpose, error);
  if (config->own.table && purpose == HR_PURPOSE_GENERATE) {
    hri_fail(error, HR_ERROR_USAGE, "--table is about rows of training and evaluation, not about --for generate");
    return hri_hint(error, HR_ERROR_USAGE, "--context N, one plan each");
  }
  HRI_TRY(check_shown(config, error));
  HRI_TRY(check_purpose(config, error));
  status = config_job(config, purpose, error);
  if (status == HR_OK && purpose == HR_PURPOSE_TRAIN && !config->own.quiet) config_warn_unused(config);
  if (status == HR_OK && plan_engine_chosen(config)) return other_engine(config, error);
  if (status == HR_OK) status = check_own_engine(config, error);
  if (status == HR_OK) status = plan_make(config, &plan, &frontier, &found, error);
  if (status == HR_OK) status = show(config, plan, &frontier, &found, error);
  if (status == HR_OK) status = check_limit(config, plan_need(plan), error);
  if (status == HR_OK && !hr_plan_get(plan)->fits) status = HR_ERROR_BUDGET; /* the screen has said it */
  hr_plan_destroy(plan);
  return status;
}
