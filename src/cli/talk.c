#include "cli/talk.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/plan.h"
#include "cli/text.h"

enum { PARTS = 10, BAR_CELLS = 8 };

static const double REPAINT_SECONDS = 0.25, LOG_SECONDS = 10;

static double now(void) {
  struct timespec time;
  (void)clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

void talk_begin(cli_talk *talk, const cli_config *config) {
  *talk = (struct cli_talk){.quiet = config->own.quiet, .live = screen_live(stderr)};
}

void talk_clear(cli_talk *talk) {
  if (talk->painted) (void)fputc('\n', stderr);
  talk->painted = false;
}

/* Takes the painted line away to make room for a line that stays; the next step paints it again. */
static void make_room(cli_talk *talk) {
  if (talk->painted) (void)fputs("\r\033[K", stderr);
  talk->painted = false;
}

/* ---- the progress line ---- */

typedef struct part {
  char text[64];
  int from, until; /* the part stands in lines of these degrees, from short to long: until is the first without it */
} part;

enum { DEGREES = 6, ALWAYS = DEGREES + 1 };

/* What the process holds of the device's memory; 0: nobody says. */
static uint64_t held_bytes(const hr_metrics *m) {
  return m->device_is_host ? m->process_resident_bytes : m->device_held_bytes;
}

/* "resident 1.76 GiB, planned 1.74 of 2.00 GiB": what the process holds (of a GPU: "held", with its context); what the
 * run reserved; the budget, in whose unit the one before it is. */
static void memory_text(const hr_metrics *m, char *out, size_t bytes) {
  bool gib = m->device_budget_bytes >= 1ull << 30;
  double unit = gib ? 1 << 30 : 1 << 20;
  int used = 0;
  if (held_bytes(m))
    used = snprintf(out, bytes, "%s %s, ", m->device_is_host ? "resident" : "held", SIZE_TEXT(held_bytes(m)));
  (void)snprintf(out + used, bytes - (size_t)used, gib ? "planned %.2f of %.2f GiB" : "planned %.1f of %.1f MiB",
                 (double)m->device_reserved_bytes / unit, (double)m->device_budget_bytes / unit);
}

/* '#' resident, '=' planned beyond it, in shares of the budget. */
static void memory_bar(const hr_metrics *m, char out[64]) {
  double budget = m->device_budget_bytes ? (double)m->device_budget_bytes : 1;
  double resident = (double)held_bytes(m) / budget * BAR_CELLS,
         reserved = (double)m->device_reserved_bytes / budget * BAR_CELLS;
  out[0] = '[';
  for (int i = 0; i < BAR_CELLS; i++) out[i + 1] = (char)(i + 0.5 < resident ? '#' : i + 0.5 < reserved ? '=' : '.');
  out[BAR_CELLS + 1] = ']';
  out[BAR_CELLS + 2] = 0;
}

/* Loss, norm, speed and time left are what a person watches: they stand in the shortest line, and fit 60 columns. The
 * budget's share is said in a word until there is room for all of its figures. */
static int line_parts(const hr_metrics *m, part parts[PARTS]) {
  int n = 0;
  double percent = m->steps ? 100 * (double)m->step / (double)m->steps : 0;
  double budget = m->device_budget_bytes ? (double)m->device_budget_bytes : 1;
#define PART(first, last, ...)                                                                                         \
  ((void)snprintf(parts[n].text, sizeof parts[n].text, __VA_ARGS__), parts[n].from = (first), parts[n++].until = (last))
  PART(1, ALWAYS, "step %llu/%llu", (unsigned long long)m->step, (unsigned long long)m->steps);
  PART(6, ALWAYS, "%.0f%%", percent);
  PART(0, ALWAYS, "loss %.4f", m->loss);
  if (!isnan(m->grad_norm)) PART(0, ALWAYS, "norm %.3g", m->grad_norm);
  PART(5, ALWAYS, "lr %.3g", m->learning_rate);
  PART(0, ALWAYS, "%s tok/s", COUNT_TEXT(m->tokens_per_second));
  PART(0, ALWAYS, "%s left", CLOCK_TEXT(m->eta_seconds));
  if (held_bytes(m)) PART(2, 3, "memory %.0f%%", 100 * (double)held_bytes(m) / budget);
  PART(3, ALWAYS, "%s", "");
  memory_text(m, parts[n - 1].text, sizeof parts[n - 1].text);
  PART(4, ALWAYS, "%s", "");
  memory_bar(m, parts[n - 1].text);
#undef PART
  return n;
}

static bool stands(const part *p, int degree) { return p->from <= degree && degree < p->until; }

static unsigned parts_width(const part *parts, int count, int degree, unsigned gap) {
  unsigned width = 0;
  for (int i = 0; i < count; i++)
    if (stands(&parts[i], degree)) width += (unsigned)strlen(parts[i].text) + (width ? gap : 0);
  return width;
}

/* The longest line that fits, with two blanks between its parts, or one where that makes room for one more. */
static void paint(cli_talk *talk, const hr_metrics *m) {
  part parts[PARTS];
  unsigned width = screen_width(stderr) - 1, gap = 1;
  int count = line_parts(m, parts), degree = DEGREES;
  bool first = true;
  while (degree > 0 && parts_width(parts, count, degree, 1) > width) degree--;
  if (parts_width(parts, count, degree, 2) <= width) gap = 2;
  (void)fputs("\r\033[K", stderr);
  for (int i = 0; i < count; i++) {
    if (!stands(&parts[i], degree)) continue;
    (void)fprintf(stderr, "%*s%s", first ? 0 : (int)gap, "", parts[i].text);
    first = false;
  }
  (void)fflush(stderr);
  talk->painted = true;
}

/* Fixed order of keys, nothing but printable characters. */
static void log_line(const hr_metrics *m) {
  char memory[96];
  memory_text(m, memory, sizeof memory);
  (void)fprintf(stderr, "step %llu/%llu  loss %.4f", (unsigned long long)m->step, (unsigned long long)m->steps,
                m->loss);
  if (!isnan(m->grad_norm)) (void)fprintf(stderr, "  norm %.4g", m->grad_norm);
  (void)fprintf(stderr, "  lr %.4g  %.0f tok/s  %s left  %s\n", m->learning_rate, m->tokens_per_second,
                CLOCK_TEXT(m->eta_seconds), memory);
}

static void tell_step(cli_talk *talk, const hr_metrics *m) {
  double time = now();
  uint64_t interval = m->steps / 50 ? m->steps / 50 : 1;
  bool last = m->step == m->steps;
  if (talk->live) {
    if (!last && time - talk->painted_at < REPAINT_SECONDS) return;
    talk->painted_at = time;
    paint(talk, m);
    return;
  }
  if (!last && talk->logged_step && m->step < talk->logged_step + interval && time - talk->logged_at < LOG_SECONDS)
    return;
  talk->logged_at = time;
  talk->logged_step = m->step;
  log_line(m);
}

/* ---- the other events ---- */

static void tell_planned(const hr_plan *plan) {
  fix_list fixes = {0};
  hr_error error;
  if (hr_plan_get(plan)->fits) {
    plan_print_summary(stderr, plan);
    return;
  }
  plan_print(stderr, plan);
  if (fix_list_make(hr_plan_job(plan), &fixes, &error) == HR_OK) plan_print_fixes(stderr, plan, &fixes, NULL);
  fix_list_free(&fixes);
  (void)fputc('\n', stderr);
}

static void tell_evaluated(const hr_metrics *m) {
  char text[160];
  int used = snprintf(text, sizeof text, "step %llu/%llu  evaluation loss %.4f, perplexity %.4g",
                      (unsigned long long)m->step, (unsigned long long)m->steps, m->eval_loss, exp(m->eval_loss));
  if (!isnan(m->best_eval_loss))
    used += snprintf(text + used, sizeof text - (size_t)used, ", best %.4f", m->best_eval_loss);
  (void)snprintf(text + used, sizeof text - (size_t)used, "\n");
  screen_fold(stderr, text);
}

static void tell_row(const hr_profile_row *r) {
  char name[48], rate[TEXT_BYTES];
  double rated = (r->by_arithmetic ? r->flops : r->bytes) / (r->seconds > 0 ? r->seconds : 1e-9);
  (void)snprintf(name, sizeof name, "%.32s%s", r->op, r->recomputed ? " again" : "");
  (void)snprintf(rate, sizeof rate, "%.1f %s", rated * 1e-9, r->by_arithmetic ? "GFLOP/s" : "GB/s   ");
  (void)fprintf(stderr, "  %-30s%7llu%11.3f%8.1f%17s%14.3f\n", name, (unsigned long long)r->calls, r->seconds * 1e3,
                r->share * 100, rate, r->predicted_seconds * 1e3);
}

/* Rows below a thousandth of the step are summed up. */
static void tell_profile(const hr_profile *p, const char *path) {
  double listed = 0, small = 0, small_predicted = 0;
  uint64_t small_calls = 0;
  (void)fprintf(stderr, "profile of %llu step%s%s, median %s; the last one is traced in ", (unsigned long long)p->steps,
                p->steps == 1 ? "" : "s", p->warm_up_only ? " (the first, which warms up)" : "",
                SECONDS_TEXT(p->step_seconds));
  screen_name(stderr, path);
  (void)fputc('\n', stderr);
  if (p->steps == 0) return;
  (void)fprintf(stderr, "  %-30s%7s%11s%8s%17s%14s\n", "op", "calls", "ms", "%", "rate", "predicted ms");
  for (uint32_t i = 0; i < p->row_count; i++) {
    const hr_profile_row *r = &p->rows[i];
    if (r->share >= 0.001) {
      tell_row(r);
      listed += r->seconds;
      continue;
    }
    small += r->seconds;
    small_predicted += r->predicted_seconds;
    small_calls += r->calls;
  }
  if (small_calls)
    (void)fprintf(stderr, "  %-30s%7llu%11.3f%8.1f%17s%14.3f\n", "all others", (unsigned long long)small_calls,
                  small * 1e3, small / p->step_seconds * 100, "", small_predicted * 1e3);
  listed += small;
  (void)fprintf(stderr, "  %-30s%7s%11.3f%8.1f\n", "data, executor", "", (p->step_seconds - listed) * 1e3,
                (1 - listed / p->step_seconds) * 100);
  (void)fprintf(stderr, "  %-30s%7s%11.3f%8.1f%17s%14.3f  (%s rates)\n", "step", "", p->step_seconds * 1e3, 100.0, "",
                p->predicted_seconds * 1e3,
                p->prediction_seen       ? "stored"
                : p->prediction_measured ? "measured"
                                         : "assumed");
}

/* FNV-1a, to know a note again. */
static bool seen(cli_talk *talk, const char *text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
  for (uint32_t i = 0; i < talk->note_count; i++)
    if (talk->notes[i] == hash) return true;
  if (talk->note_count < TALK_NOTES) talk->notes[talk->note_count++] = hash;
  return false;
}

static void tell_line(const char *left, style mark, const char *text) {
  screen_say(stderr, mark, left, text ? text : "");
}

void talk_event(void *context, const hr_event *event) {
  cli_talk *talk = context;
  if (event->kind == HR_EVENT_STEP) {
    if (!talk->quiet && event->metrics) tell_step(talk, event->metrics);
    return;
  }
  if (talk->quiet && event->kind != HR_EVENT_WARNING) return;
  if (event->kind == HR_EVENT_NOTE && (!event->text || seen(talk, event->text))) return;
  make_room(talk);
  switch (event->kind) {
  case HR_EVENT_PLANNED:
    if (event->plan) tell_planned(event->plan);
    break;
  case HR_EVENT_LOADED: tell_line("loaded", STYLE_PLAIN, event->text); break;
  case HR_EVENT_SAVED: tell_line("saved", STYLE_PLAIN, event->text); break;
  case HR_EVENT_SAMPLE: tell_line("sample:", STYLE_BOLD, event->text); break;
  case HR_EVENT_WARNING: tell_line("warning:", STYLE_WARN, event->text); break;
  case HR_EVENT_NOTE: tell_line("note:", STYLE_BOLD, event->text); break;
  case HR_EVENT_EVALUATED:
    if (event->metrics) tell_evaluated(event->metrics);
    break;
  case HR_EVENT_PROFILED:
    if (event->profile) tell_profile(event->profile, event->text);
    break;
  case HR_EVENT_STEP: break;
  }
}

void talk_warn(void *context, const char *text) {
  talk_event(context, &(hr_event){.kind = HR_EVENT_WARNING, .text = text});
}

/* ---- plan against run ---- */

void talk_write_tiers(json_writer *json, const uint64_t *planned, const uint64_t *reserved) {
  json_write_open(json, "tiers", '{');
  for (uint32_t tier = 0; tier < HR_TIER_COUNT; tier++) {
    json_write_open_flat(json, hr_tier_name(tier), '{');
    json_write_count(json, "planned_bytes", planned[tier]);
    json_write_count(json, "reserved_bytes", reserved[tier]);
    json_write_close(json, '}');
  }
  json_write_close(json, '}');
}

void talk_print_tiers(const uint64_t *planned, const uint64_t *reserved) {
  (void)printf("%-14s%14s%14s\n", "memory", "planned", "reserved");
  for (uint32_t tier = 0; tier < HR_TIER_COUNT; tier++) {
    if (!planned[tier] && !reserved[tier]) continue;
    char beside[64] = "equal to the byte";
    if (planned[tier] != reserved[tier])
      (void)snprintf(beside, sizeof beside, "%llu and %llu bytes", (unsigned long long)planned[tier],
                     (unsigned long long)reserved[tier]);
    (void)printf("  %-12s%14s%14s", hr_tier_name(tier), SIZE_TEXT(planned[tier]), SIZE_TEXT(reserved[tier]));
    screen_beside(stdout, 42, beside);
  }
}
