/* plan --engine pytorch: what the framework would need for the job, on a screen and as JSON; and the line of it in every
 * plan for a GPU. */
#include <stdarg.h>
#include <string.h>

#include "cli/plan.h"
#include "cli/text.h"

enum { LABEL = 11, ROWS = 8 };

static uint64_t need(const hr_pytorch_info *info) { return info->device_used_bytes; }

static const char *const names[] = {"Trainer", "a plain loop"};

static hr_pytorch_stack stack_of(const cli_config *config) {
  return strcmp(config->own.engine, "pytorch:plain") == 0 ? HR_PYTORCH_PLAIN : HR_PYTORCH_TRAINER;
}

hr_status plan_engine_make(const cli_config *config, const hr_job *job, hr_pytorch **pytorch, hr_error *error) {
  hr_pytorch_options options;
  hr_pytorch_options_init(&options);
  options.stack = stack_of(config);
  options.alloc_conf = config->own.alloc_conf;
  options.conf = config->own.engine_conf;
  options.ranks = config->own.ranks;
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
  (void)snprintf(text, sizeof text, "with %s would need %s, %s allocated (--engine pytorch)", names[stack_of(config)],
                 SIZE_TEXT(need(info)), SIZE_TEXT(info->allocated_bytes));
  screen_hang(stdout, LABEL, "pytorch", text);
  hr_pytorch_destroy(pytorch);
}

static void print_verdict(const hr_pytorch_info *info) {
  const char *plain = screen_style(stdout, STYLE_PLAIN);
  if (info->fits && need(info) <= info->budget_bytes)
    (void)printf("%sFITS%s  needs %s of %s, %s to spare\n", screen_style(stdout, STYLE_GOOD), plain,
                 SIZE_TEXT(need(info)), SIZE_TEXT(info->budget_bytes), SIZE_TEXT(info->budget_bytes - need(info)));
  else if (info->fits)
    (void)
        printf("%sFITS%s  in %s, where the allocator returns cached memory %llu times in two steps; it would take %s\n",
               screen_style(stdout, STYLE_WARN), plain, SIZE_TEXT(info->budget_bytes),
               (unsigned long long)info->retries, SIZE_TEXT(need(info)));
  else
    (void)printf("%sDOES NOT FIT%s  needs %s of %s\n", screen_style(stdout, STYLE_BAD), plain, SIZE_TEXT(need(info)),
                 SIZE_TEXT(info->budget_bytes));
}

static void print_job(const cli_config *config, const hr_pytorch_info *info) {
  const hr_job *job = &config->job;
  char text[HR_PYTORCH_TEXT_BYTES + 256];
  (void)snprintf(text, sizeof text, "train %s by %s (%s), seq %u, micro-batch %u x accumulate %u, %s, on %s",
                 job->model.name, info->versions, names[stack_of(config)], job->sequence_length, job->micro_batch,
                 job->accumulate, info->settings, job->device.name);
  screen_hang(stdout, LABEL, "plan", text);
  if (*info->unlike) screen_hang(stdout, LABEL, "unlike", info->unlike);
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
  print_figure("context and kernels", info->context_bytes, "assumed");
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

/* ---- what would fit, in the framework's words ---- */

/* A change of the job: at most two techniques at once. Effect classes as for our own fixes. */
typedef struct change {
  bool checkpointing, expandable;
  bool shards;    /* several ranks share weights, gradients and states, where each has them all */
  bool to_host;   /* evaluation gives its logits to the host after each batch */
  bool narrow;    /* AdamW's states in 8 bits */
  uint32_t split; /* the micro-batch by this, and as many micro-steps more */
  hr_precision precision;
  int effect;
} change;

static const change changes[] = {
    {.expandable = true, .effect = HR_EFFECT_SAME_BITS},
    {.to_host = true, .effect = HR_EFFECT_SAME_BITS},
    {.to_host = true, .checkpointing = true, .effect = HR_EFFECT_SAME_BITS},
    {.checkpointing = true, .effect = HR_EFFECT_SAME_BITS},
    {.shards = true, .effect = HR_EFFECT_ROUNDING},
    {.shards = true, .checkpointing = true, .effect = HR_EFFECT_ROUNDING},
    {.split = 2, .effect = HR_EFFECT_ROUNDING},
    {.split = 4, .effect = HR_EFFECT_ROUNDING},
    {.split = 8, .effect = HR_EFFECT_ROUNDING},
    {.checkpointing = true, .split = 2, .effect = HR_EFFECT_ROUNDING},
    {.checkpointing = true, .split = 4, .effect = HR_EFFECT_ROUNDING},
    {.checkpointing = true, .split = 8, .effect = HR_EFFECT_ROUNDING},
    {.precision = HR_PRECISION_BF16, .effect = HR_EFFECT_NUMERICS},
    {.precision = HR_PRECISION_BF16, .checkpointing = true, .effect = HR_EFFECT_NUMERICS},
    {.precision = HR_PRECISION_FP16, .effect = HR_EFFECT_NUMERICS},
    {.precision = HR_PRECISION_FP16, .checkpointing = true, .effect = HR_EFFECT_NUMERICS},
    {.narrow = true, .effect = HR_EFFECT_NUMERICS},
    {.narrow = true, .checkpointing = true, .effect = HR_EFFECT_NUMERICS},
    {.precision = HR_PRECISION_BF16_PURE, .effect = HR_EFFECT_NUMERICS},
    {.precision = HR_PRECISION_BF16_PURE, .checkpointing = true, .effect = HR_EFFECT_NUMERICS},
};
enum { CHANGES = sizeof changes / sizeof *changes };

static bool change_precision(const change *c, hr_job *job) {
  bool old = job->device.compute_capability < 80; /* no products in bf16: fp16 stands for it */
  if (c->precision == HR_PRECISION_FP32) return true;
  if (job->precision == c->precision || job->precision == HR_PRECISION_BF16_PURE) return false;
  if (job->precision == HR_PRECISION_FP16 && c->precision == HR_PRECISION_BF16) return false;
  if (old != (c->precision == HR_PRECISION_FP16)) return false;
  job->precision = c->precision;
  if (c->precision == HR_PRECISION_BF16_PURE) job->moments = HR_MOMENTS_BF16;
  return true;
}

static bool has_setting(const cli_config *config, const char *name) {
  return config->own.engine_conf && strstr(config->own.engine_conf, name);
}

/* False: it changes nothing here, or cannot be. */
static bool change_job(const cli_config *config, const change *c, hr_job *job) {
  if (c->to_host && (!has_setting(config, "compute_metrics=true") || has_setting(config, "eval_accumulation_steps")))
    return false;
  if (c->shards && (config->own.ranks <= 1 || has_setting(config, "fsdp") || has_setting(config, "zero_stage") ||
                    has_setting(config, "ddp_") || has_setting(config, "bucket_view")))
    return false;
  if (c->narrow && (job->optimizer != HR_OPTIMIZER_ADAMW || has_setting(config, "optim=") || job->model.lora.rank))
    return false;
  if (c->narrow) job->optimizer = HR_OPTIMIZER_ADAMW8BIT;
  if (c->checkpointing && job->recompute.kind != HR_RECOMPUTE_NONE) return false;
  if (c->checkpointing) job->recompute.kind = HR_RECOMPUTE_BLOCK;
  if (c->split && job->micro_batch % c->split != 0) return false;
  if (c->split) job->micro_batch /= c->split, job->accumulate *= c->split;
  return change_precision(c, job);
}

static void say(char *text, size_t bytes, const char *framework, hr_technique technique, uint64_t value) {
  size_t used = strlen(text);
  if (used) used += (size_t)snprintf(text + used, bytes - used, ", ");
  (void)hr_technique_words(technique, value, framework, text + used, bytes - used);
}

static void say_change(const change *c, const hr_job *job, hr_pytorch_stack stack, char *text, size_t bytes) {
  const char *framework = stack == HR_PYTORCH_TRAINER ? "transformers" : "";
  text[0] = 0;
  if (c->expandable) (void)snprintf(text, bytes, "PYTORCH_ALLOC_CONF=expandable_segments:True");
  if (c->shards)
    (void)snprintf(text, bytes,
                   *framework ? "TrainingArguments(fsdp=True)" : "fully_shard of each block and of the model");
  if (c->to_host) (void)snprintf(text, bytes, "TrainingArguments(eval_accumulation_steps=1)");
  if (c->checkpointing) say(text, bytes, framework, HR_TECHNIQUE_CHECKPOINTING, 0);
  if (c->split) say(text, bytes, framework, HR_TECHNIQUE_MICRO_BATCH, job->micro_batch);
  if (c->split) say(text, bytes, framework, HR_TECHNIQUE_ACCUMULATE, job->accumulate);
  if (c->precision == HR_PRECISION_BF16) say(text, bytes, framework, HR_TECHNIQUE_BF16, 0);
  if (c->precision == HR_PRECISION_FP16) say(text, bytes, framework, HR_TECHNIQUE_FP16, 0);
  if (c->precision == HR_PRECISION_BF16_PURE) say(text, bytes, framework, HR_TECHNIQUE_BF16_PURE, 0);
  if (c->narrow) say(text, bytes, framework, HR_TECHNIQUE_8BIT, 0);
}

/* Calls `each` with every change that fits, each run like the job itself. */
static hr_status each_fix(const cli_config *config,
                          void (*each)(void *context, const char *text, const change *c, uint64_t bytes), void *context,
                          hr_error *error) {
  for (int i = 0; i < CHANGES; i++) {
    hr_pytorch_options options;
    hr_pytorch *pytorch = NULL;
    hr_job job = config->job;
    char text[400], conf[400];
    hr_pytorch_options_init(&options);
    options.stack = stack_of(config);
    options.alloc_conf = changes[i].expandable ? "expandable_segments:True" : config->own.alloc_conf;
    options.conf = config->own.engine_conf;
    options.ranks = config->own.ranks;
    if (!change_job(config, &changes[i], &job)) continue;
    if (changes[i].to_host || changes[i].shards) {
      const char *before = config->own.engine_conf ? config->own.engine_conf : "";
      (void)snprintf(conf, sizeof conf, "%.300s%s%s", before, *before ? "," : "",
                     changes[i].shards ? "fsdp=true" : "eval_accumulation_steps=1");
      options.conf = conf;
    }
    hr_error refused;
    hr_status status = hr_pytorch_create(&job, &options, &pytorch, &refused);
    if (status == HR_ERROR_UNSUPPORTED) continue; /* bf16 on a device that has none */
    if (status != HR_OK) {
      *error = refused;
      return status;
    }
    say_change(&changes[i], &job, options.stack, text, sizeof text);
    if (hr_pytorch_get(pytorch)->fits) each(context, text, &changes[i], need(hr_pytorch_get(pytorch)));
    hr_pytorch_destroy(pytorch);
  }
  return HR_OK;
}

/* Where the job does not fit, unless they are turned off; where it fits, if they are asked for. */
static bool wants_fixes(const cli_config *config, const hr_pytorch_info *info) {
  return config_chosen(config, &config->own.fixes) ? config->own.fixes : !info->fits;
}

static void print_fix(void *context, const char *text, const change *c, uint64_t bytes) {
  uint32_t *count = context;
  char label[TEXT_BYTES], row[512];
  if ((*count)++ == 0) (void)printf("\n   settings that fit, each run likewise (~ other numerics)\n");
  (void)snprintf(label, sizeof label, "%14s", SIZE_TEXT(bytes));
  (void)snprintf(row, sizeof row, "%s%s", text, c->effect == HR_EFFECT_NUMERICS ? " ~" : "");
  screen_hang(stdout, 16, label, row);
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
  if (wants_fixes(config, info)) HRI_TRY(each_fix(config, print_fix, &fixes, error));
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

static void write_engine(json_writer *json, const hr_pytorch *pytorch) {
  const hr_pytorch_info *info = hr_pytorch_get(pytorch);
  json_write_open(json, "engines", '{');
  json_write_open(json, "pytorch", '{');
  json_write_text(json, "versions", info->versions);
  json_write_text(json, "settings", info->settings);
  json_write_text(json, "unlike", info->unlike);
  json_write_bool(json, "recorded", info->recorded);
  json_write_count(json, "ranks", info->ranks);
  json_write_bool(json, "within_budget", info->fits);
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
  json_write_close(json, '}');
  json_write_close(json, '}');
}

void plan_engine_write(json_writer *json, const cli_config *config, const hr_plan *plan) {
  hr_pytorch *pytorch = NULL;
  if (!plan_engine_applies(hr_plan_job(plan)) || plan_engine_make(config, hr_plan_job(plan), &pytorch, NULL) != HR_OK)
    return;
  write_engine(json, pytorch);
  hr_pytorch_destroy(pytorch);
}

static void write_fix(void *context, const char *text, const change *c, uint64_t bytes) {
  json_writer *json = context;
  json_write_open_flat(json, NULL, '{');
  json_write_text(json, "options", text);
  json_write_count(json, "effect_class", (uint64_t)c->effect);
  json_write_count(json, "need_bytes", bytes);
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
  write_engine(json, pytorch);
  json_write_open(json, "fixes", '[');
  if (wants_fixes(config, info)) status = each_fix(config, write_fix, json, error);
  json_write_close(json, ']');
  return status;
}
