/* headroom explain: an out-of-memory message, alone or in a log, to one cause. */
#include <errno.h>
#include <string.h>

#include <headroom/explain.h>

#include "cli/commands.h"
#include "cli/json.h"
#include "cli/text.h"

static hr_status read_log(const char *path, hr_explanation **explanation, hr_error *error) {
  static char bytes[64 * 1024];
  bool standard = strcmp(path, "-") == 0;
  FILE *file = standard ? stdin : fopen(path, "rb");
  hr_explainer *explainer = NULL;
  hr_status status;
  size_t got;
  if (!file) return text_fail(error, HR_ERROR_IO, "cannot open %s: %s", path, strerror(errno));
  status = hr_explainer_create(NULL, &explainer, error);
  while (status == HR_OK && (got = fread(bytes, 1, sizeof bytes, file)) > 0)
    status = hr_explainer_feed(explainer, bytes, got, error);
  if (status == HR_OK && ferror(file)) status = text_fail(error, HR_ERROR_IO, "cannot read %s: %s", path, strerror(errno));
  if (status == HR_OK) status = hr_explainer_end(explainer, explanation, error);
  hr_explainer_destroy(explainer);
  if (!standard) (void)fclose(file);
  return status;
}

/* ---- text ---- */

static const char *figure_label(hr_oom_figure figure) {
  static const char *const labels[HR_OOM_FIGURE_COUNT] = {
      "requested", "total", "free", "this process", "allocated", "reserved", "unallocated", "allowed (cap)",
      "private pools", "other processes"};
  return labels[figure];
}

static void print_where(const hr_oom_failure *f) {
  (void)printf("line %llu: %s", (unsigned long long)f->line, f->source);
  if (f->wording[0]) (void)printf(", wording of PyTorch %s", f->wording);
  if (f->rank >= 0) (void)printf(", rank %d", f->rank);
  if (f->device_index >= 0) (void)printf(", device %d", f->device_index);
  if (f->framework[0]) (void)printf(", under %s", f->framework);
  if (f->phase[0]) (void)printf(", in %s", f->phase);
  if (f->repeats) (void)printf(" (printed %llu times)", (unsigned long long)f->repeats + 1);
  (void)printf("\n");
}

static void print_verdict(const hr_oom_failure *f) {
  style shown = f->certainty == HR_OOM_CERTAIN ? STYLE_BAD : STYLE_WARN;
  if (f->cause == HR_OOM_UNKNOWN)
    (void)printf("%sUNDECIDABLE%s from this text\n", screen_style(stdout, shown), screen_style(stdout, STYLE_PLAIN));
  else
    (void)printf("%s%s%s, %s\n", screen_style(stdout, shown), hr_oom_cause_name(f->cause), screen_style(stdout, STYLE_PLAIN),
                 hr_oom_certainty_name(f->certainty));
  screen_wrap(stdout, 2, f->verdict);
  if (!f->candidates) return;
  (void)printf("  could be:");
  for (unsigned c = 0; c < HR_OOM_CAUSE_COUNT; c++)
    if (f->candidates >> c & 1) (void)printf(" %s", hr_oom_cause_name((hr_oom_cause)c));
  (void)printf("\n");
}

static void print_shares(const hr_oom_failure *f) {
  uint64_t total = f->figures[HR_OOM_TOTAL].bytes;
  if (f->share_count == 0) return;
  (void)printf("\nthe device's memory\n");
  for (uint32_t i = 0; i < f->share_count; i++)
    (void)printf("  %-58s%10s%6.1f %%\n", f->shares[i].name, SIZE_TEXT(f->shares[i].bytes),
                 total ? 100.0 * (double)f->shares[i].bytes / (double)total : 0.0);
  (void)printf("  %-58s%10s\n", "total", SIZE_TEXT(total));
  if (f->excess_bytes)
    (void)printf("  the figures name %s more than the device has: rounding or memory spilled to the host\n", SIZE_TEXT(f->excess_bytes));
}

static void print_failure(const hr_oom_failure *f) {
  bool any = false;
  print_where(f);
  print_verdict(f);
  for (unsigned i = 0; i < HR_OOM_FIGURE_COUNT; i++) {
    const hr_oom_value *v = &f->figures[i];
    if (v->state == HR_OOM_ABSENT) continue;
    if (!any) (void)printf("\nfigures\n");
    any = true;
    (void)printf("  %-16s %12s%s\n", figure_label((hr_oom_figure)i), v->state == HR_OOM_NOT_KNOWN ? "not known" : SIZE_TEXT(v->bytes),
                 v->state == HR_OOM_DERIVED ? "  (derived)" : "");
  }
  print_shares(f);
  if (f->arithmetic_count) (void)printf("\nwhy\n");
  for (uint32_t i = 0; i < f->arithmetic_count; i++)
    screen_wrap(stdout, 2, f->arithmetic[i]);
  if (f->advice_count) (void)printf("\nwhat may help (unproven advice, cheapest first)\n");
  for (uint32_t i = 0; i < f->advice_count; i++) {
    char left[32];
    (void)snprintf(left, sizeof left, "  %u", i + 1);
    screen_hang(stdout, 6, left, f->advice[i].text);
  }
}

static void print_explanation(const hr_explanation *e) {
  print_failure(&e->failures[e->primary]);
  if (e->failure_count > 1) (void)printf("\nother failures in this text\n");
  for (uint32_t i = 0; i < e->failure_count; i++) {
    const hr_oom_failure *f = &e->failures[i];
    if (i == e->primary) continue;
    (void)printf("  line %llu", (unsigned long long)f->line);
    if (f->rank >= 0) (void)printf(", rank %d", f->rank);
    (void)printf(", %s: %s, %s\n", f->source, hr_oom_cause_name(f->cause), hr_oom_certainty_name(f->certainty));
  }
  if (e->more) (void)printf("  and %llu more messages\n", (unsigned long long)e->more);
}

/* ---- JSON ---- */

static void write_index(json_writer *json, const char *key, int32_t index) {
  if (index < 0) json_write_null(json, key);
  else json_write_integer(json, key, index);
}

static void write_figures(json_writer *json, const hr_oom_failure *f) {
  static const char *const states[] = {"absent", "read", "derived", "not_known"};
  json_write_open(json, "figures", '{');
  for (unsigned i = 0; i < HR_OOM_FIGURE_COUNT; i++) {
    const hr_oom_value *v = &f->figures[i];
    if (v->state == HR_OOM_ABSENT) continue;
    json_write_open_flat(json, hr_oom_figure_name((hr_oom_figure)i), '{');
    if (v->state == HR_OOM_NOT_KNOWN) json_write_null(json, "bytes");
    else json_write_count(json, "bytes", v->bytes);
    json_write_count(json, "slack_bytes", v->slack_bytes);
    json_write_text(json, "state", states[v->state]);
    json_write_close(json, '}');
  }
  json_write_close(json, '}');
}

static void write_failure(json_writer *json, const hr_oom_failure *f) {
  json_write_open(json, NULL, '{');
  json_write_text(json, "source", f->source);
  json_write_text(json, "wording", f->wording);
  json_write_text(json, "framework", f->framework[0] ? f->framework : NULL);
  json_write_text(json, "phase", f->phase[0] ? f->phase : NULL);
  write_index(json, "rank", f->rank);
  write_index(json, "device_index", f->device_index);
  json_write_count(json, "line", f->line);
  json_write_count(json, "repeats", f->repeats);
  json_write_count(json, "process_count", f->process_count);
  json_write_text(json, "cause", hr_oom_cause_name(f->cause));
  json_write_text(json, "certainty", hr_oom_certainty_name(f->certainty));
  json_write_open_flat(json, "candidates", '[');
  for (unsigned c = 0; c < HR_OOM_CAUSE_COUNT; c++)
    if (f->candidates >> c & 1) json_write_text(json, NULL, hr_oom_cause_name((hr_oom_cause)c));
  json_write_close(json, ']');
  json_write_text(json, "verdict", f->verdict);
  write_figures(json, f);
  json_write_open(json, "arithmetic", '[');
  for (uint32_t i = 0; i < f->arithmetic_count; i++)
    json_write_text(json, NULL, f->arithmetic[i]);
  json_write_close(json, ']');
  json_write_open(json, "shares", '[');
  for (uint32_t i = 0; i < f->share_count; i++) {
    json_write_open_flat(json, NULL, '{');
    json_write_text(json, "name", f->shares[i].name);
    json_write_count(json, "bytes", f->shares[i].bytes);
    json_write_close(json, '}');
  }
  json_write_close(json, ']');
  json_write_count(json, "excess_bytes", f->excess_bytes);
  json_write_open(json, "advice", '[');
  for (uint32_t i = 0; i < f->advice_count; i++) {
    json_write_open_flat(json, NULL, '{');
    json_write_text(json, "text", f->advice[i].text);
    json_write_text(json, "cost", f->advice[i].cost);
    json_write_bool(json, "proven", f->advice[i].basis == HR_OOM_PROVEN);
    json_write_text(json, "basis", hr_oom_basis_name(f->advice[i].basis));
    if (f->advice[i].basis != HR_OOM_ADVICE) {
      json_write_text(json, "proof", f->advice[i].proof);
      json_write_count(json, "need_bytes", f->advice[i].need_bytes);
    }
    json_write_close(json, '}');
  }
  json_write_close(json, ']');
  json_write_close(json, '}');
}

static void write_explanation(const hr_explanation *e) {
  json_writer json;
  json_write_begin(&json, stdout);
  json_write_count(&json, "line_count", e->line_count);
  json_write_count(&json, "byte_count", e->byte_count);
  json_write_count(&json, "primary", e->primary);
  json_write_count(&json, "more", e->more);
  json_write_open(&json, "failures", '[');
  for (uint32_t i = 0; i < e->failure_count; i++)
    write_failure(&json, &e->failures[i]);
  json_write_close(&json, ']');
  json_write_end(&json);
}

hr_status command_explain(cli_config *config, hr_error *error) {
  hr_explanation *explanation = NULL;
  hr_status status;
  if (config->operand_count == 0) {
    text_fail(error, HR_ERROR_USAGE, "there is nothing to explain");
    return text_hint(error, HR_ERROR_USAGE, "headroom explain FILE, or - for standard input");
  }
  status = read_log(config->operands[0], &explanation, error);
  if (status == HR_OK && explanation->failure_count == 0) {
    status = text_fail(error, HR_ERROR_INPUT, "%s: no out-of-memory message in %llu lines", config->operands[0],
                       (unsigned long long)explanation->line_count);
    text_hint(error, status, "paste the whole message, from the exception's name to the end of its last figure");
  }
  if (status == HR_OK) {
    if (config_flag(config, OPTION_JSON)) write_explanation(explanation);
    else print_explanation(explanation);
  }
  hr_explanation_destroy(explanation);
  return status;
}
