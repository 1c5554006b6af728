/* plan --engine pytorch: what the framework would need for the job, on a screen and as JSON; and the line of it in every
 * plan for a GPU. */
#include <stdarg.h>
#include <string.h>

#include "cli/plan_engine.h"
#include "cli/text.h"

enum { LABEL = 11, ROWS = 8 };

static uint64_t need(const hr_pytorch_info *info) { return info->device_used_bytes; }

hr_pytorch_options plan_engine_options(const cli_config *config) {
  hr_pytorch_options options;
  const char *colon = strchr(config->own.engine, ':');
  hr_pytorch_options_init(&options);
  for (int k = 0; colon && k < HR_PYTORCH_STACKS; k++)
    if (strcmp(colon + 1, hr_pytorch_stack_name((hr_pytorch_stack)k)) == 0) options.stack = (hr_pytorch_stack)k;
  options.alloc_conf = config->own.alloc_conf;
  options.conf = config->own.engine_conf;
  options.ranks = config->own.ranks;
  return options;
}

static hr_pytorch_stack stack_of(const cli_config *config) { return plan_engine_options(config).stack; }

hr_status plan_engine_make(const cli_config *config, const hr_job *job, hr_pytorch **pytorch, hr_error *error) {
  hr_pytorch_options options = plan_engine_options(config);
  return hr_pytorch_create(job, &options, pytorch, error);
}

bool plan_engine_chosen(const cli_config *config) { return strncmp(config->own.engine, "pytorch", 7) == 0; }

bool plan_engine_applies(const hr_job *job) {
  return job->purpose == HR_PURPOSE_TRAIN && job->device.compute_capability > 0;
}

void plan_engine_line(const cli_config *config, const hr_plan *plan) {
  char text[200];
  hr_pytorch *pytorch = NULL;
  hr_error error;
  const hr_pytorch_info *info;
  if (!plan_engine_applies(hr_plan_job(plan))) return;
  if (plan_engine_make(config, hr_plan_job(plan), &pytorch, &error) != HR_OK) {
    screen_hang(stdout, LABEL, "pytorch", "no rules for this job: what PyTorch would need is not known here");
    return;
  }
  info = hr_pytorch_get(pytorch);
  (void)snprintf(text, sizeof text, "with %s would need %s, %s allocated%s (--engine pytorch)",
                 hr_pytorch_stack_title(stack_of(config)), SIZE_TEXT(need(info)), SIZE_TEXT(info->allocated_bytes),
                 info->recorded ? "" : ", from source, not recorded");
  screen_hang(stdout, LABEL, "pytorch", text);
  hr_pytorch_destroy(pytorch);
}

static void print_verdict(const hr_pytorch_info *info) {
  static const style styles[] = {STYLE_GOOD, STYLE_WARN, STYLE_BAD};
  static const char *const words[] = {"FITS", "FITS ONLY WITHIN THE ERROR", "DOES NOT FIT"};
  char more[200] = "", text[256 + sizeof more];
  if (info->verdict == HR_PYTORCH_FITS_WITHIN_ERROR)
    (void)snprintf(more, sizeof more, "; PyTorch needed up to %.1f %% more than that, for which %s is missing",
                   100 * info->error_high, SIZE_TEXT(info->reserve_missing_bytes));
  else if (info->fits && info->retries == 0)
    (void)snprintf(more, sizeof more, ", %s to spare", SIZE_TEXT(info->budget_bytes - need(info)));
  if (info->fits && info->retries)
    (void)snprintf(text, sizeof text,
                   "in %s, where the allocator returns cached memory %llu time%s in two steps; it "
                   "would take %s%s",
                   SIZE_TEXT(info->budget_bytes), (unsigned long long)info->retries, info->retries == 1 ? "" : "s",
                   SIZE_TEXT(need(info)), more);
  else
    (void)snprintf(text, sizeof text, "needs %s of %s%s", SIZE_TEXT(need(info)), SIZE_TEXT(info->budget_bytes), more);
  (void)printf("%s%s%s  ", screen_style(stdout, styles[info->verdict]), words[info->verdict],
               screen_style(stdout, STYLE_PLAIN));
  screen_wrap_on(stdout, (unsigned)strlen(words[info->verdict]) + 2, 2, text);
}

static void print_job(const cli_config *config, const hr_pytorch_info *info) {
  const hr_job *job = &config->job;
  char text[HR_PYTORCH_TEXT_BYTES + 256];
  (void)snprintf(text, sizeof text, "train %s by %s (%s), seq %u, micro-batch %u%s x accumulate %u, %s, on %s",
                 job->model.name, info->versions, hr_pytorch_stack_title(stack_of(config)), job->sequence_length,
                 job->micro_batch, job->rows_choice == HR_ROWS_CHOSEN && !job->automatic ? " (chosen)" : "",
                 job->accumulate, info->settings, job->device.name);
  screen_hang(stdout, LABEL, "plan", text);
  if (*info->unlike) screen_hang(stdout, LABEL, "unlike", info->unlike);
  if (!info->recorded) screen_hang(stdout, LABEL, "rules", "from source, not recorded");
}

/* What says the same figure elsewhere stands beside it, below it where a terminal is narrow. */
static void print_figure(const char *name, uint64_t bytes, const char *note) {
  enum { BEFORE = 40 };
  (void)printf("   %-22s %11s", name, SIZE_TEXT(bytes));
  if (BEFORE + strlen(note) < screen_columns(stdout)) {
    (void)printf("   %s\n", note);
    return;
  }
  (void)putchar('\n');
  screen_wrap(stdout, 6, note);
}

static void print_figures(const hr_pytorch_info *info) {
  print_figure("allocated", info->allocated_bytes, "torch.cuda.max_memory_allocated()");
  print_figure("reserved", info->reserved_bytes, "torch.cuda.max_memory_reserved()");
  print_figure("context and kernels", info->context_bytes, "estimated");
  print_figure("used of the device", need(info),
               info->ranks > 1 ? "of each rank's" : "as nvidia-smi shows the process");
  if (info->host_bytes) print_figure("host memory", info->host_bytes, "weights, gradients and states, of each rank");
  (void)putchar('\n');
}

static void print_roles(const hr_pytorch_info *info) {
  char text[400] = "";
  for (int role = 0; role < HR_ROLE_COUNT; role++) {
    char name[TEXT_BYTES];
    size_t used = strlen(text);
    if (info->at_peak_by_role[role] < info->allocated_bytes / 200) continue;
    (void)snprintf(name, sizeof name, "%s", hr_role_name((hr_role)role));
    for (char *c = name; *c; c++)
      if (*c == '_') *c = ' ';
    (void)snprintf(text + used, sizeof text - used, "%s%s %s", used ? ", " : "", name,
                   SIZE_TEXT(info->at_peak_by_role[role]));
  }
  screen_hang(stdout, LABEL, "at peak", text);
}

static void print_phases(const hr_pytorch_info *info) {
  char text[400] = "";
  for (int phase = 0; phase < HR_PYTORCH_PHASES; phase++) {
    size_t used = strlen(text);
    if (info->allocated_by_phase[phase] == 0) continue;
    (void)snprintf(text + used, sizeof text - used, "%s%s %s", used ? ", " : "",
                   hr_pytorch_phase_name((hr_pytorch_phase)phase), SIZE_TEXT(info->allocated_by_phase[phase]));
  }
  screen_hang(stdout, LABEL, "by phase", text);
}

static void print_live(const hr_pytorch *pytorch) {
  hr_pytorch_live live;
  (void)printf("\n   largest at the peak, alike ones together\n");
  for (uint32_t i = 0; i < ROWS && hr_pytorch_live_get(pytorch, i, &live); i++)
    (void)printf("   %11s  %5u x  %s: %s\n", SIZE_TEXT(live.bytes), live.count, live.module, live.op);
}

/* Where the job does not fit, unless they are turned off; where it fits, if they are asked for. */
static bool wants_fixes(const cli_config *config, const hr_pytorch_info *info) {
  return config_chosen(config, &config->own.fixes) ? config->own.fixes : !info->fits;
}

static void print_fix(void *context, const plan_engine_fix *fix) {
  uint32_t *count = context;
  char label[TEXT_BYTES];
  hri_text row = {0};
  if ((*count)++ == 0) (void)printf("\n   settings that fit, each run likewise (~ other numerics)\n");
  (void)snprintf(label, sizeof label, "%14s", SIZE_TEXT(fix->need_bytes));
  hri_text_add(&row, "%s%s", fix->text, fix->effect == HR_EFFECT_NUMERICS ? " ~" : "");
  if (fix->retries)
    hri_text_add(&row, " (fits by returning cached memory, %llu time%s in two steps)", (unsigned long long)fix->retries,
                 fix->retries == 1 ? "" : "s");
  screen_hang(stdout, 16, label, hri_text_get(&row));
  hri_text_deinit(&row);
}

static void print_arguments(const hr_pytorch *pytorch) {
  hr_pytorch_argument argument;
  (void)putchar('\n');
  for (uint32_t i = 0; hr_pytorch_argument_get(pytorch, i, &argument); i++)
    screen_hang(stdout, LABEL, i ? "" : "set", argument.text);
}

hr_status plan_engine_print(const cli_config *config, const hr_pytorch *pytorch, hr_error *error) {
  const hr_pytorch_info *info = hr_pytorch_get(pytorch);
  uint32_t fixes = 0;
  char text[160];
  print_job(config, info);
  print_verdict(info);
  (void)putchar('\n');
  print_figures(info);
  if (info->peak_phase == HR_PYTORCH_EVALUATE) (void)snprintf(text, sizeof text, "in the evaluation");
  else (void)snprintf(text, sizeof text, "in step %u, %s", info->peak_step, hr_pytorch_phase_name(info->peak_phase));
  screen_hang(stdout, LABEL, "peak", text);
  print_roles(info);
  print_phases(info);
  print_live(pytorch);
  if (config->own.timeline) HRI_TRY(plan_engine_print_timeline(stdout, pytorch, error));
  if (wants_fixes(config, info)) HRI_TRY(plan_engine_each_fix(config, print_fix, &fixes, error));
  if (config->job.automatic) print_arguments(pytorch);
  if (wants_fixes(config, info) && fixes == 0) (void)printf("\n   none of the settings that were tried fits\n");
  (void)putchar('\n');
  print_verdict(info);
  return HR_OK;
}

/* ---- JSON ---- */

static void write_phases(json_writer *json, const char *key, const uint64_t *bytes) {
  json_write_open(json, key, '{');
  for (int phase = 0; phase < HR_PYTORCH_PHASES; phase++)
    json_write_count(json, hr_pytorch_phase_name((hr_pytorch_phase)phase), bytes[phase]);
  json_write_close(json, '}');
}

static void write_live(json_writer *json, const hr_pytorch *pytorch) {
  hr_pytorch_live live;
  json_write_open(json, "live", '[');
  for (uint32_t i = 0; i < 32 && hr_pytorch_live_get(pytorch, i, &live); i++) {
    json_write_open_flat(json, NULL, '{');
    json_write_text(json, "op", live.op);
    json_write_text(json, "module", live.module);
    json_write_text(json, "role", hr_role_name(live.role));
    json_write_count(json, "count", live.count);
    json_write_count(json, "bytes", live.bytes);
    json_write_close(json, '}');
  }
  json_write_close(json, ']');
}

static void write_arguments(json_writer *json, const hr_pytorch *pytorch) {
  hr_pytorch_argument argument;
  json_write_open_flat(json, "arguments", '[');
  for (uint32_t i = 0; hr_pytorch_argument_get(pytorch, i, &argument); i++) json_write_text(json, NULL, argument.text);
  json_write_close(json, ']');
}

/* The job as it ran: what the stack takes where nobody says is not among the options. */
static void write_ran(json_writer *json, const cli_config *config, const hr_pytorch_info *info) {
  json_write_text(json, "stack", hr_pytorch_stack_name(stack_of(config)));
  json_write_count(json, "seq", info->sequence_length);
  json_write_count(json, "micro_batch", info->micro_batch);
  json_write_count(json, "accumulate", info->accumulate);
  json_write_count(json, "tokens_per_step", (uint64_t)info->micro_batch * info->accumulate * info->sequence_length);
  json_write_text(json, "optim", info->optim);
  json_write_text(json, "attn_implementation", info->attention);
  json_write_bool(json, "gradient_checkpointing", info->checkpointing);
  json_write_bool(json, "use_reentrant", info->reentrant);
}

static void write_engine(json_writer *json, const cli_config *config, const hr_pytorch *pytorch) {
  const hr_pytorch_info *info = hr_pytorch_get(pytorch);
  json_write_open(json, "engines", '{');
  json_write_open(json, "pytorch", '{');
  write_ran(json, config, info);
  json_write_text(json, "versions", info->versions);
  json_write_text(json, "settings", info->settings);
  json_write_text(json, "unlike", info->unlike);
  json_write_count(json, "ranks", info->ranks);
  json_write_bool(json, "within_budget", info->fits);
  json_write_text(json, "verdict", hr_pytorch_verdict_name(info->verdict));
  json_write_count(json, "reserve_missing_bytes", info->reserve_missing_bytes);
  json_write_bool(json, "recorded", info->recorded);
  json_write_count(json, "allocated_bytes", info->allocated_bytes);
  json_write_count(json, "reserved_bytes", info->reserved_bytes);
  json_write_count(json, "context_bytes", info->context_bytes);
  json_write_count(json, "device_used_bytes", info->device_used_bytes);
  json_write_count(json, "host_bytes", info->host_bytes);
  json_write_number(json, "error_low", info->error_low);
  json_write_number(json, "error_high", info->error_high);
  json_write_count(json, "missing_bytes", info->missing_bytes);
  json_write_count(json, "retries", info->retries);
  write_phases(json, "allocated_by_phase", info->allocated_by_phase);
  write_phases(json, "reserved_by_phase", info->reserved_by_phase);
  json_write_open_flat(json, "peak", '{');
  json_write_text(json, "phase", hr_pytorch_phase_name(info->peak_phase));
  json_write_count(json, "step", info->peak_step);
  json_write_close(json, '}');
  write_live(json, pytorch);
  write_arguments(json, pytorch);
  json_write_close(json, '}');
  json_write_close(json, '}');
}

void plan_engine_write(json_writer *json, const cli_config *config, const hr_plan *plan) {
  hr_pytorch *pytorch = NULL;
  if (!plan_engine_applies(hr_plan_job(plan)) || plan_engine_make(config, hr_plan_job(plan), &pytorch, NULL) != HR_OK)
    return;
  write_engine(json, config, pytorch);
  hr_pytorch_destroy(pytorch);
}

static void write_fix(void *context, const plan_engine_fix *fix) {
  json_writer *json = context;
  json_write_open_flat(json, NULL, '{');
  json_write_text(json, "options", fix->text);
  json_write_text(json, "plan_options", fix->options);
  json_write_count(json, "effect_class", (uint64_t)fix->effect);
  json_write_count(json, "need_bytes", fix->need_bytes);
  json_write_count(json, "retries", fix->retries);
  json_write_close(json, '}');
}

hr_status plan_engine_write_json(json_writer *json, const cli_config *config, const hr_pytorch *pytorch,
                                 hr_error *error) {
  hr_status status = HR_OK;
  const hr_pytorch_info *info = hr_pytorch_get(pytorch);
  json_write_text(json, "engine", config->own.engine);
  json_write_bool(json, "fits", info->fits);
  json_write_count(json, "need_bytes", need(info));
  json_write_count(json, "budget_bytes", info->budget_bytes);
  plan_write_subject(json, config, &config->job, info->parameter_count, info->trainable_parameter_count);
  write_engine(json, config, pytorch);
  if (config->own.timeline) HRI_TRY(plan_engine_write_timeline(json, pytorch, error));
  json_write_open(json, "fixes", '[');
  if (wants_fixes(config, info)) status = plan_engine_each_fix(config, write_fix, json, error);
  json_write_close(json, ']');
  return status;
}
