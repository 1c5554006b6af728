/* A plan on a terminal: verdict first and last, one screen. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/plan.h"
#include "cli/text.h"

enum { LABEL = 11, BAR_BESIDE = 16, FIX_ROWS = 3, FRONTIER_ROWS = 6 };

uint64_t plan_need(const hr_plan *plan) {
  const hr_tier_plan *device = &hr_plan_get(plan)->tiers[HR_TIER_DEVICE];
  return device->reserved_bytes + device->fixed_bytes;
}

void plan_print_verdict(FILE *stream, const hr_plan *plan) {
  const hr_plan_info *info = hr_plan_get(plan);
  uint64_t need = plan_need(plan), budget = info->budget_bytes;
  const char *plain = screen_style(stream, STYLE_PLAIN), *gap = screen_columns(stream) < SCREEN_USUAL ? ",\n  " : ", ";
  if (info->fits)
    (void)fprintf(stream, "%sFITS%s  needs %s of %s%s%s to spare\n", screen_style(stream, STYLE_GOOD), plain,
                  SIZE_TEXT(need), SIZE_TEXT(budget), gap, SIZE_TEXT(budget - need));
  else if (need > budget)
    (void)fprintf(stream, "%sDOES NOT FIT%s  needs %s of %s%s%s too much\n", screen_style(stream, STYLE_BAD), plain,
                  SIZE_TEXT(need), SIZE_TEXT(budget), gap, SIZE_TEXT(need - budget));
  else
    (void)fprintf(stream, "%sDOES NOT FIT%s  the host tier is over its budget\n", screen_style(stream, STYLE_BAD),
                  plain);
}

static void add(char *text, size_t bytes, const char *format, ...) CLI_PRINTF(3, 4);
static void add(char *text, size_t bytes, const char *format, ...) {
  size_t used = strlen(text);
  va_list args;
  va_start(args, format);
  if (used < bytes) (void)vsnprintf(text + used, bytes - used, format, args);
  va_end(args);
}

/* Why it has this team, or what it would have here if nobody had said. */
static const char *team_text(const hr_job *job, char *out, size_t out_bytes) {
  char reason[128];
  hr_cpu_team usual;
  hr_device_cpu_team(&usual);
  (void)hr_cpu_team_reason(&usual, reason, sizeof reason);
  if (job->threads == usual.threads) (void)snprintf(out, out_bytes, " (%s)", reason);
  else (void)snprintf(out, out_bytes, " (default %u: %s)", usual.threads, reason);
  return out;
}

/* " adapters of rank 16 (13.6 M trained)," */
static void add_adapters(char *text, size_t bytes, const hr_plan *plan) {
  const hr_job *job = hr_plan_job(plan);
  if (job->model.lora.rank == 0) return;
  add(text, bytes, " adapters of rank %u", job->model.lora.rank);
  if (job->purpose == HR_PURPOSE_TRAIN)
    add(text, bytes, " (%s trained)", PARAMETERS_TEXT(hr_plan_get(plan)->trainable_parameter_count));
  add(text, bytes, ",");
}

char *plan_precision_text(const hr_plan *plan, char *text, size_t bytes) {
  const hr_job *job = hr_plan_job(plan);
  text[0] = 0;
  add(text, bytes, "%s", hr_precision_name(job->precision));
  for (uint32_t role = 0; role < HR_ROLE_COUNT; role++)
    if (strcmp(hr_role_name(role), "master_weight") == 0 && hr_plan_get(plan)->tiers[HR_TIER_DEVICE].max_by_role[role])
      add(text, bytes, " with fp32 masters");
  if (!job->device.has_team && !(job->given & HR_GIVEN_PRECISION) && job->precision == hr_precision_of(&job->device))
    add(text, bytes, " (a GPU's default)");
  return text;
}

static void print_job(FILE *stream, const hr_plan *plan) {
  const hr_job *job = hr_plan_job(plan);
  static const char *const commands[] = {"train", "evaluate", "generate"};
  char text[640] = "", recompute[256], team[160], precision[PRECISION_BYTES];
  add(text, sizeof text, "%s %s, %s parameters,", commands[job->purpose], job->model.name,
      PARAMETERS_TEXT(hr_plan_get(plan)->parameter_count));
  add_adapters(text, sizeof text, plan);
  if (job->purpose == HR_PURPOSE_GENERATE) {
    add(text, sizeof text, " context %u,", job->context_length);
  } else {
    add(text, sizeof text, " seq %u, micro-batch %u", job->sequence_length, job->micro_batch);
    if (job->rows_choice == HR_ROWS_CHOSEN) add(text, sizeof text, " (chosen)");
    add(text, sizeof text, job->accumulate > 1 && job->purpose == HR_PURPOSE_TRAIN ? " x accumulate %u," : ",",
        job->accumulate);
    add(text, sizeof text, " %s attention,", hr_attention_name(job->attention));
  }
  if (job->purpose == HR_PURPOSE_TRAIN)
    add(text, sizeof text, " %s%s, recompute %s,", hr_optimizer_name(job->optimizer),
        job->update == HR_UPDATE_IN_BACKWARD ? " in the backward, no clipping" : "",
        hr_recompute_text(&job->recompute, job->model.layer_count, recompute, sizeof recompute));
  if (job->purpose != HR_PURPOSE_GENERATE) {
    if (job->loss_chunk >= (uint64_t)job->sequence_length * job->micro_batch) add(text, sizeof text, " whole loss,");
    else add(text, sizeof text, " loss in chunks of %u,", job->loss_chunk);
  }
  add(text, sizeof text, " %s,", plan_precision_text(plan, precision, sizeof precision));
  add(text, sizeof text, " on %s", job->device.name);
  if (job->device.has_team) add(text, sizeof text, " with %u thread%s", job->threads, job->threads == 1 ? "" : "s");
  if (job->device.has_team && job->device.usable_now) add(text, sizeof text, "%s", team_text(job, team, sizeof team));
  if (!job->device.has_team) add(text, sizeof text, " (Headroom's own engine)");
  screen_hang(stream, LABEL, "plan", text);
}

/* ---- the table by role ---- */

static void role_label(uint32_t role, char out[TEXT_BYTES]) {
  (void)snprintf(out, TEXT_BYTES, "%s", hr_role_name(role));
  for (char *c = out; *c; c++)
    if (*c == '_') *c = ' ';
}

static char role_letter(uint32_t role) {
  static const struct {
    const char *name;
    char letter;
  } letters[] = {{"weight", 'W'},       {"master_weight", 'M'}, {"gradient", 'G'},  {"optimizer_state", 'O'},
                 {"activation", 'A'},   {"logits", 'L'},        {"workspace", 'S'}, {"input", 'I'},
                 {"quantization", 'Q'}, {"communication", 'C'}, {"cache", 'K'},     {"control", 'c'}};
  for (size_t i = 0; i < sizeof letters / sizeof *letters; i++)
    if (strcmp(letters[i].name, hr_role_name(role)) == 0) return letters[i].letter;
  return '#';
}

static double share(uint64_t part, uint64_t whole) { return whole ? 100 * (double)part / (double)whole : 0; }

static uint64_t live_sum(const hr_tier_plan *tier) {
  uint64_t sum = 0;
  for (uint32_t role = 0; role < HR_ROLE_COUNT; role++) sum += tier->at_peak_by_role[role];
  return sum;
}

static void print_row(FILE *stream, char letter, const char *label, uint64_t bytes, uint64_t need, const char *last) {
  enum { BEFORE = 44 };
  (void)fprintf(stream, " %c %-17s %11s %6.1f %%", letter, label, SIZE_TEXT(bytes), share(bytes, need));
  if (*last && BEFORE + strlen(last) > screen_columns(stream)) {
    (void)fputc('\n', stream);
    screen_wrap(stream, 4, last); /* where a terminal is narrow, below it */
    return;
  }
  (void)fprintf(stream, "%s%s\n", *last ? "   " : "", last);
}

/* Roles that never reach half a percent share one row. */
static bool is_small(uint64_t most, uint64_t need) { return share(most, need) < 0.5; }

/* Scratch that is not what the code that runs there asks for. */
static const char *estimate_text(const hr_plan *plan, uint32_t role) {
  return !hr_plan_get(plan)->scratch_exact && strcmp(hr_role_name(role), "workspace") == 0 ? ", estimate" : "";
}

static void print_roles(FILE *stream, const hr_plan *plan) {
  const hr_plan_info *info = hr_plan_get(plan);
  const hr_tier_plan *tier = &info->tiers[HR_TIER_DEVICE];
  uint64_t need = plan_need(plan), live = live_sum(tier);
  uint64_t small = 0, small_most = 0;
  const char *estimate = "";
  char label[TEXT_BYTES], most[TEXT_BYTES];
  (void)fprintf(stream, "%s   %-17s %11s %8s   %s%s\n", screen_style(stream, STYLE_DIM), "", "at the peak", "share",
                screen_columns(stream) < SCREEN_USUAL ? "at most" : "at most in the job",
                screen_style(stream, STYLE_PLAIN));
  for (uint32_t role = 0; role < HR_ROLE_COUNT; role++) {
    if (tier->max_by_role[role] == 0) continue;
    if (is_small(tier->max_by_role[role], need)) {
      small += tier->at_peak_by_role[role];
      small_most += tier->max_by_role[role];
      if (*estimate_text(plan, role)) estimate = ", scratch: estimate";
      continue;
    }
    role_label(role, label);
    (void)snprintf(most, sizeof most, "%s%s", SIZE_TEXT(tier->max_by_role[role]), estimate_text(plan, role));
    print_row(stream, role_letter(role), label, tier->at_peak_by_role[role], need, most);
  }
  (void)snprintf(most, sizeof most, "%s%s", SIZE_TEXT(small_most), estimate);
  if (small_most) print_row(stream, '-', "others", small, need, most);
  print_row(stream, '.', "gaps, rounding", tier->reserved_bytes > live ? tier->reserved_bytes - live : 0, need, "");
  print_row(stream, 'x', "fixed", tier->fixed_bytes, need,
            tier->fixed_measured ? "runtime and libraries, measured" : "runtime, libraries, context: assumed");
  print_row(stream, ' ', "needed", need, need, "");
}

static char bar_letter(const hr_tier_plan *tier, uint32_t role, uint64_t need) {
  return (char)(is_small(tier->max_by_role[role], need) ? '-' : role_letter(role));
}

/* A letter per share of the larger of need and budget; '|' marks the budget. */
static void print_bar(FILE *stream, const hr_plan *plan) {
  const hr_plan_info *info = hr_plan_get(plan);
  const hr_tier_plan *tier = &info->tiers[HR_TIER_DEVICE];
  uint64_t need = plan_need(plan), whole = need > info->budget_bytes ? need : info->budget_bytes, sum = 0;
  char bar[SCREEN_MOST];
  const size_t columns = screen_columns(stream) - BAR_BESIDE;
  size_t mark = whole ? (size_t)((double)info->budget_bytes / (double)whole * (double)(columns - 1)) : 0, at = 0;
  memset(bar, ' ', columns);
  bar[columns] = 0;
  for (uint32_t part = 0; part < HR_ROLE_COUNT + 2 && whole; part++) {
    bool gap = part == HR_ROLE_COUNT, fixed = part == HR_ROLE_COUNT + 1;
    size_t end;
    sum = gap     ? (tier->reserved_bytes > sum ? tier->reserved_bytes : sum)
          : fixed ? need
                  : sum + tier->at_peak_by_role[part];
    end = (size_t)((double)sum / (double)whole * (double)columns + 0.5);
    for (; at < end && at < columns; at++) bar[at] = (char)(gap ? '.' : fixed ? 'x' : bar_letter(tier, part, need));
  }
  bar[mark] = '|';
  (void)fprintf(stream, "   [%s] | budget\n", bar);
}

/* ---- the lines below ---- */

static void print_bound(FILE *stream, const hr_tier_plan *tier) {
  char text[200] = "";
  add(text, sizeof text, "%s are alive at once; no placement can do better, this one takes ",
      SIZE_TEXT(tier->lower_bound_bytes));
  if (tier->peak_bytes <= tier->lower_bound_bytes) add(text, sizeof text, "no more");
  else
    add(text, sizeof text, "%s (%.2f %% more)", SIZE_TEXT(tier->peak_bytes),
        share(tier->peak_bytes - tier->lower_bound_bytes, tier->lower_bound_bytes));
  screen_hang(stream, LABEL, "bound", text);
}

enum { GROUPS = 64 };

/* What is alive at the peak, the same tensor of all layers taken together: "12 x layers.*.fc". */
typedef struct live_group {
  char pattern[64];
  uint32_t role, count;
  uint64_t bytes;
} live_group;

static void pattern_of(const char *name, char *out, size_t bytes) {
  size_t used = 0;
  for (const char *c = name; *c && used + 1 < bytes;) {
    if (*c >= '0' && *c <= '9' && c > name && c[-1] == '.') {
      out[used++] = '*';
      while (*c >= '0' && *c <= '9') c++;
    } else {
      out[used++] = *c++;
    }
  }
  out[used] = 0;
}

static int larger_group(const void *a, const void *b) {
  const live_group *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return strcmp(x->pattern, y->pattern);
}

static uint32_t group_live(const hr_plan *plan, live_group groups[GROUPS]) {
  uint32_t count = 0;
  hr_live live;
  for (uint32_t i = 0; hr_plan_live(plan, HR_TIER_DEVICE, i, &live); i++) {
    char pattern[64];
    uint32_t g = 0;
    pattern_of(live.name, pattern, sizeof pattern);
    while (g < count && (groups[g].role != live.role || strcmp(groups[g].pattern, pattern) != 0)) g++;
    if (g == GROUPS) continue; /* the largest came first */
    if (g == count) {
      groups[count] = (live_group){.role = live.role};
      (void)snprintf(groups[count++].pattern, sizeof groups[0].pattern, "%s", pattern);
    }
    groups[g].count++;
    groups[g].bytes += live.bytes;
  }
  qsort(groups, count, sizeof *groups, larger_group);
  return count;
}

static void print_peak(FILE *stream, const hr_plan *plan) {
  const hr_tier_plan *tier = &hr_plan_get(plan)->tiers[HR_TIER_DEVICE];
  char text[640] = "", label[TEXT_BYTES];
  live_group groups[GROUPS];
  uint32_t count;
  add(text, sizeof text, "in the %s program, %s", tier->peak_program, hr_phase_name(tier->peak_phase));
  if (tier->peak_layer >= 0) add(text, sizeof text, ", layer %d", tier->peak_layer);
  add(text, sizeof text, ": %s", tier->peak_node);
  screen_hang(stream, LABEL, "peak", text);
  text[0] = 0;
  count = group_live(plan, groups);
  for (uint32_t i = 0; i < 3 && i < count; i++) {
    role_label(groups[i].role, label);
    add(text, sizeof text, "%s", i ? ", " : "");
    if (groups[i].count > 1) add(text, sizeof text, "%u x ", groups[i].count);
    add(text, sizeof text, "%.60s (%s) %s", groups[i].pattern, label, SIZE_TEXT(groups[i].bytes));
  }
  if (text[0]) screen_hang(stream, LABEL, "largest", text);
  print_bound(stream, tier);
}

/* Room for files on their way to a GPU is a few MiB of the host, in JSON alone. */
enum { WORTH_A_LINE = 16 << 20 };

static void print_phases(FILE *stream, const hr_plan *plan) {
  const hr_plan_info *info = hr_plan_get(plan);
  char text[640] = "";
  for (uint32_t phase = 0; phase < HR_PHASE_COUNT; phase++) {
    uint64_t bytes = info->tiers[HR_TIER_DEVICE].peak_by_phase[phase];
    if (bytes) add(text, sizeof text, "%s%s %s", text[0] ? ", " : "", hr_phase_name(phase), SIZE_TEXT(bytes));
  }
  screen_hang(stream, LABEL, "by phase", text);
  for (uint32_t tier = HR_TIER_DEVICE + 1; tier < HR_TIER_COUNT; tier++) {
    const hr_tier_plan *other = &info->tiers[tier];
    if (other->reserved_bytes < WORTH_A_LINE && !hr_plan_job(plan)->host_budget_bytes) continue;
    text[0] = 0;
    add(text, sizeof text, "%s reserved, peak %s", SIZE_TEXT(other->reserved_bytes), SIZE_TEXT(other->peak_bytes));
    screen_hang(stream, LABEL, hr_tier_name(tier), text);
  }
}

static void time_text(const hr_plan *plan, char *text, size_t bytes) {
  static const char *const per[] = {"step", "batch", "token"};
  const hr_plan_info *info = hr_plan_get(plan);
  const hr_job *job = hr_plan_job(plan);
  double step = info->step_seconds;
  add(text, bytes, "%s per %s", SECONDS_TEXT(step), per[job->purpose]);
  if (step > 0 && info->tokens_per_step > 0)
    add(text, bytes, ", %s tokens/s", COUNT_TEXT((double)info->tokens_per_step / step));
  if (step > 0 && info->flops_per_step > 0) add(text, bytes, ", %sFLOP/s", COUNT_TEXT(info->flops_per_step / step));
  add(text, bytes, " (predicted from %s",
      info->time_seen          ? "rates of earlier runs on this machine"
      : info->time_measured    ? "rates measured on this machine"
      : job->device.usable_now ? "assumed rates"
                               : "published rates");
  if (info->time_seen && info->time_seen_share < 0.995)
    add(text, bytes, "; %.0f %% of it is for operations of kinds or sizes that they did not have",
        100 * (1 - info->time_seen_share));
  add(text, bytes, ")");
}

static void print_time(FILE *stream, const hr_plan *plan) {
  const hr_device *device = &hr_plan_job(plan)->device;
  char text[1200] = "";
  time_text(plan, text, sizeof text);
  screen_hang(stream, LABEL, "time", text);
  if (!device->rates_problem[0]) return;
  (void)snprintf(text, sizeof text, "not taken: %s; `headroom devices %s --probe` measures anew", device->rates_problem,
                 device->name);
  screen_hang(stream, LABEL, "probe", text);
}

/* What decides bits and scratch of products, and who chose it: where bf16 is computed, on a CPU. */
static void print_products(FILE *stream, const hr_plan *plan) {
  const hr_products *p = &hr_plan_get(plan)->products;
  const char *version = strstr(p->text, ", "), *codes = version ? version + 2 : p->text; /* "products 2, bf16 by dot" */
  char text[1200] = "";
  if (p->origin == HR_PRODUCTS_NONE || hr_plan_job(plan)->precision == HR_PRECISION_FP32) return;
  add(text, sizeof text, "%s, ", codes);
  if (p->origin == HR_PRODUCTS_MEASURED) add(text, sizeof text, "measured on this machine (%s)", p->digest);
  else add(text, sizeof text, p->origin == HR_PRODUCTS_GIVEN ? "as named" : "shipped");
  if (p->problem[0]) add(text, sizeof text, ": %s; `headroom devices --probe` measures anew", p->problem);
  screen_hang(stream, LABEL, "products", text);
}

bool plan_not_offered(const hr_job *job, char *text, size_t bytes) {
  if ((job->precision != HR_PRECISION_BF16 && job->precision != HR_PRECISION_BF16_PURE) || job->device.flops_bf16 > 0 ||
      job->device.flops_fp16 <= 0)
    return false;
  (void)
      snprintf(text, bytes,
               "%s has no bf16, only fp16: a run of this plan would need another device, or --precision fp16; the time "
               "is that of fp32",
               job->device.name);
  return true;
}

static void print_not_offered(FILE *stream, const hr_plan *plan) {
  char text[PLAN_WARNING_BYTES];
  if (plan_not_offered(hr_plan_job(plan), text, sizeof text)) screen_hang(stream, LABEL, "precision", text);
}

static void print_beyond(FILE *stream, const hr_plan *plan) {
  char text[PLAN_WARNING_BYTES];
  if (hr_job_beyond_positions(hr_plan_job(plan), text, sizeof text)) screen_hang(stream, LABEL, "positions", text);
}

void plan_print(FILE *stream, const hr_plan *plan) {
  print_job(stream, plan);
  plan_print_verdict(stream, plan);
  (void)fputc('\n', stream);
  print_roles(stream, plan);
  print_bar(stream, plan);
  (void)fputc('\n', stream);
  print_peak(stream, plan);
  print_phases(stream, plan);
  print_products(stream, plan);
  print_not_offered(stream, plan);
  print_beyond(stream, plan);
  print_time(stream, plan);
}

void plan_print_summary(FILE *stream, const hr_plan *plan) {
  char text[320] = "";
  print_job(stream, plan);
  plan_print_verdict(stream, plan);
  time_text(plan, text, sizeof text);
  screen_hang(stream, LABEL, "time", text);
}

/* ---- tables of options, their needs and times ---- */

/* What the figures leave for options: not so much that the eye loses the line. */
static int options_columns(FILE *stream) {
  enum { FIGURES = 36, WIDEST = 76 };
  int left = (int)screen_columns(stream) - FIGURES;
  return left < WIDEST ? left : WIDEST;
}

static void print_heads(FILE *stream, const char *what, const char *second) {
  int shown = options_columns(stream);
  if (strlen(what) > (size_t)shown) {
    (void)fprintf(stream, "  %s\n", what);
    what = "";
  }
  (void)fprintf(stream, "  %-*s%11s%11s%9s\n", shown, what, "needs", second, "time");
}

/* ---- levels of recomputation ---- */

/* Both ends, the chosen one and its neighbours; the rest is in --json. */
static bool frontier_row(const hr_frontier *frontier, uint32_t chosen, uint32_t index) {
  uint32_t first = chosen > 2 ? chosen - 2 : 1;
  if (frontier->count <= FRONTIER_ROWS || index == 0 || index + 1 == frontier->count) return true;
  if (first + FRONTIER_ROWS - 2 > frontier->count - 1) first = frontier->count - (FRONTIER_ROWS - 1);
  return index >= first && index < first + FRONTIER_ROWS - 2;
}

void plan_print_frontier(FILE *stream, const hr_plan *plan, const hr_frontier *frontier) {
  const int shown = options_columns(stream);
  uint32_t chosen = 0, left = 0;
  char text[256];
  (void)fputc('\n', stream);
  print_heads(stream, "levels of recomputation, each planned", "per step");
  for (uint32_t i = 0; i < frontier->count; i++)
    if (frontier->points[i].chosen) chosen = i;
  for (uint32_t i = 0; i < frontier->count; i++) {
    const hr_frontier_point *point = &frontier->points[i];
    double least = frontier->points[frontier->count - 1].step_seconds;
    if (!frontier_row(frontier, chosen, i)) {
      left++;
      continue;
    }
    (void)hr_recompute_text(&point->recompute, hr_plan_job(plan)->model.layer_count, text, sizeof text);
    if (strlen(text) > (size_t)shown) (void)strcpy(text + shown - 3, "...");
    (void)fprintf(stream, "%c %-*s%11s%11s  %+5.0f %%\n",
                  point->chosen ? '>'
                  : point->fits ? ' '
                                : '-',
                  shown, text, SIZE_TEXT(point->need_bytes), SECONDS_TEXT(point->step_seconds),
                  percent_more(point->step_seconds, least));
  }
  (void)fprintf(stream, "  > chosen; - needs more than the budget");
  if (left) (void)fprintf(stream, "; %u more in --json", left);
  (void)fputc('\n', stream);
}

/* ---- fixes ---- */

hr_status fix_list_make(const hr_job *job, fix_list *list, hr_error *error) {
  hr_status status;
  const size_t bytes = HR_MAX_FIXES * sizeof *list->fixes;
  list->fixes =
      calloc(1, bytes); /* not text_alloc: where a refusal is explained, its exit code is the one that counts */
  if (!list->fixes) return hri_fail_memory(error, bytes, "the list of fixes");
  list->count = HR_MAX_FIXES;
  status = hr_plan_fixes(job, list->fixes, &list->count, error);
  if (status != HR_OK) fix_list_free(list);
  return status;
}

void fix_list_free(fix_list *list) {
  free(list->fixes);
  *list = (fix_list){0};
}

/* How much longer than in the plan a token takes. */
static double more_percent(const hr_plan *plan, double token_seconds) {
  const hr_plan_info *info = hr_plan_get(plan);
  return percent_more(token_seconds, info->step_seconds / (double)info->tokens_per_step);
}

/* On a line of their own where they are longer than their column. */
static void print_options(FILE *stream, const char *options) {
  const int shown = options_columns(stream);
  if (strlen(options) <= (size_t)shown) {
    (void)fprintf(stream, "  %-*s", shown, options);
    return;
  }
  (void)fputs("  ", stream);
  screen_wrap_on(stream, 2, 4, options);
  (void)fprintf(stream, "  %*s", shown, "");
}

/* The job as it is, on devices that hold it. */
static void print_devices(FILE *stream, const hr_plan *plan, const device_list *devices) {
  for (uint32_t i = 0; i < devices->count; i++) {
    const device_fit *d = &devices->fits[i];
    char text[HR_FIX_TEXT_BYTES + TEXT_BYTES * 2];
    device_fit_options(hr_plan_job(plan), devices, i, text, sizeof text);
    print_options(stream, text);
    (void)fprintf(stream, "%11s%11s  %+5.0f %%\n", SIZE_TEXT(d->need_bytes), "-", more_percent(plan, d->token_seconds));
  }
}

static void print_fix(FILE *stream, const hr_plan *plan, const hr_fix *fix) {
  uint64_t need = plan_need(plan);
  const double percent = more_percent(plan, fix->token_seconds);
  const hr_effect effect = (hr_effect)fix->effect_class;
  const char *note = effect == HR_EFFECT_ALGORITHM ? "  *" : effect == HR_EFFECT_NUMERICS ? "  ~" : "";
  print_options(stream, fix->options);
  (void)fprintf(stream, "%11s", SIZE_TEXT(fix->need_bytes));
  if (fix->need_bytes <= need) (void)fprintf(stream, "%11s", SIZE_TEXT(need - fix->need_bytes));
  else (void)fprintf(stream, "%11s", "-");
  (void)fprintf(stream, "  %+5.0f %%%s\n", percent, note);
}

static const hr_fix *smallest_miss(const fix_list *list) {
  for (uint32_t i = 0; i < list->count; i++)
    if (!list->fixes[i].fits) return &list->fixes[i];
  return NULL;
}

static bool same_devices(const device_list *a, const device_list *b) {
  if (a->count != b->count) return false;
  for (uint32_t i = 0; i < a->count; i++)
    if (strcmp(a->fits[i].name, b->fits[i].name) != 0) return false;
  return true;
}

/* What a fix needs and no larger card than the job itself is said once: as asked. */
static void print_no_fix(FILE *stream, const hr_plan *plan, const fix_list *list, const device_list *devices) {
  const hr_fix *least = smallest_miss(list);
  device_list holders, own;
  char text[400] = "";
  if (!devices) {
    device_list_make(hr_plan_job(plan), &own);
    devices = &own;
  }
  if (!least || least->need_bytes >= plan_need(plan)) {
    (void)fprintf(stream, "nothing that was tried needs less\n");
  } else {
    add(text, sizeof text, "nothing that was tried fits; the smallest need found is %s, with %s",
        SIZE_TEXT(least->need_bytes), least->options);
    screen_hang(stream, LABEL, "fixes", text);
    device_list_make(&least->job, &holders);
    if (!same_devices(&holders, devices)) device_list_print(stream, "  then on", &holders);
  }
  device_list_print(stream, "as asked on", devices);
}

static bool same_text(const char *a, const char *b) { return a && b ? strcmp(a, b) == 0 : a == b; }

/* Whether what decides most, adapters and quantization, is in no row of the list before: the shortest way to it is shown
 * however long the list is. */
static bool first_of_kind(const hr_plan *plan, const fix_list *list, uint32_t index) {
  const hr_job *base = hr_plan_job(plan), *job = &list->fixes[index].job;
  if (same_text(job->lora, base->lora) && job->quantize == base->quantize) return false;
  for (uint32_t k = 0; k < index; k++) {
    const hr_job *other = &list->fixes[k].job;
    if (list->fixes[k].fits && same_text(job->lora, other->lora) && job->quantize == other->quantize) return false;
  }
  return true;
}

enum { CLASSES = HR_EFFECT_ALGORITHM + 1 };

/* Rows that a class may have: so many as each, and what the others leave of twice as many. */
static void share_rows(const fix_list *list, uint32_t allowed[CLASSES]) {
  uint32_t counts[CLASSES] = {0};
  for (uint32_t i = 0; i < list->count; i++) counts[list->fixes[i].effect_class] += list->fixes[i].fits;
  for (uint32_t k = 0; k < CLASSES; k++) {
    uint32_t others = 0;
    for (uint32_t other = 0; other < CLASSES; other++)
      if (other != k) others += counts[other] < FIX_ROWS ? counts[other] : FIX_ROWS;
    allowed[k] = others < FIX_ROWS ? 2 * FIX_ROWS - others : FIX_ROWS;
  }
}

void plan_print_fixes(FILE *stream, const hr_plan *plan, const fix_list *list, const device_list *devices) {
  static const char *const kinds[] = {"training", "evaluation", "generation"};
  const char *kind = kinds[hr_plan_job(plan)->purpose];
  uint32_t rows = 0, left = 0, of_class[CLASSES] = {0}, allowed[CLASSES];
  share_rows(list, allowed);
  (void)fputc('\n', stream);
  for (uint32_t i = 0; i < list->count; i++) {
    const hr_fix *fix = &list->fixes[i];
    if (!fix->fits) continue;
    if ((of_class[fix->effect_class] >= allowed[fix->effect_class] || rows >= 3 * FIX_ROWS) &&
        !first_of_kind(plan, list, i)) {
      left++;
      continue;
    }
    if (rows++ == 0) print_heads(stream, "options that fit, each planned", "saves");
    of_class[fix->effect_class]++;
    print_fix(stream, plan, fix);
  }
  if (rows && devices) print_devices(stream, plan, devices);
  if (of_class[HR_EFFECT_NUMERICS])
    (void)fprintf(stream, "  ~ other numerics: the same %s, rounded otherwise throughout\n", kind);
  if (of_class[HR_EFFECT_ALGORITHM]) (void)fprintf(stream, "  * another algorithm: not the same %s any more\n", kind);
  if (left) (void)fprintf(stream, "  and %u more in --json\n", left);
  if (rows == 0 && hr_plan_get(plan)->fits) (void)fprintf(stream, "no alternative that was tried fits better\n");
  else if (rows == 0) print_no_fix(stream, plan, list, devices);
}
