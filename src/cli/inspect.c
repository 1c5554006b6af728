/* headroom inspect: what is in a memory snapshot, or what changed between two. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <headroom/inspect.h>
#include <headroom/report.h>
#include <headroom/run.h>

#include "cli/commands.h"
#include "cli/explain.h"
#include "cli/inspect.h"
#include "cli/output.h"
#include "cli/ranks.h"
#include "cli/text.h"

void inspect_close(inspect_side *s) {
  hr_inspection_destroy(s->inspection);
  hr_snapshot_destroy(s->snapshot);
}

/* ---- options ---- */

/* "1", "cuda:1" or "cpu" to the trace of that device. */
static hr_status find_trace(const cli_config *config, const hr_snapshot *s, const char *path, uint32_t *trace,
                            hr_error *error) {
  const char *text = config->job.device.name, *digits = text;
  uint64_t index = 0;
  char have[160] = "";
  *trace = hr_explain_trace(s); /* what explain is about */
  if (!config_chosen(config, &config->job.device)) return HR_OK;
  *trace = HR_TRACE_MOST;
  if (strncmp(digits, "cuda:", 5) == 0) digits += 5;
  if (strcmp(text, "cpu") != 0 && !text_parse_count(digits, 0, INT32_MAX, &index)) {
    hri_fail(error, HR_ERROR_USAGE, "--device: '%s' is no device of a snapshot", text);
    return hri_hint(error, HR_ERROR_USAGE, "--device 0, --device cuda:0 or --device cpu");
  }
  for (uint32_t k = 0; k < s->trace_count; k++) {
    size_t used = strlen(have);
    if (s->traces[k].device == (strcmp(text, "cpu") == 0 ? -1 : (int32_t)index)) *trace = k;
    if (s->traces[k].count)
      (void)snprintf(have + used, sizeof have - used, "%s%d", used ? ", " : "", s->traces[k].device);
  }
  if (*trace != HR_TRACE_MOST) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE, "--device %s: %s has no trace of it", text, reading_name(path));
  return have[0] ? hri_hint(error, HR_ERROR_USAGE, "devices with events: %s (-1: cpu)", have) : HR_ERROR_USAGE;
}

static bool is_directory(const char *path) {
  struct stat info;
  return strcmp(path, "-") != 0 && stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static const char *const run_files[] = {"snapshot.pickle.gz", "plan.pickle.gz"};

/* A run directory stands for what `train --record-memory` left in it, else for its plan. */
static hr_status read_snapshot(const char *operand, const hr_snapshot_limits *limits, hr_snapshot **snapshot,
                               hr_error *error) {
  char path[4096];
  struct stat info;
  if (!is_directory(operand)) return reading_snapshot(operand, limits, snapshot, error);
  for (size_t k = 0; k < 2; k++) {
    int length = snprintf(path, sizeof path, "%s/memory/%s", operand, run_files[k]);
    if (length < 0 || (size_t)length >= sizeof path)
      return hri_fail(error, HR_ERROR_USAGE, "%.200s...: the path is too long", operand);
    if (stat(path, &info) != 0) continue;
    (void)fputs("inspect: ", stderr);
    screen_name(stderr, path);
    (void)fputs(k ? " (what was planned; train --record-memory keeps what happened)\n" : "\n", stderr);
    return hr_snapshot_read(path, limits, snapshot, error);
  }
  hri_fail(error, HR_ERROR_INPUT, "%s: a directory without memory/snapshot.pickle.gz and memory/plan.pickle.gz",
           operand);
  return hri_hint(error, HR_ERROR_INPUT,
                  "name a run directory of headroom train, a snapshot, or a directory with one snapshot of each rank "
                  "(snapshot_rank0.pickle, ...)");
}

hr_status inspect_open(const cli_config *config, reading *r, const char *path, inspect_side *s, hr_error *error) {
  hr_inspect_options options;
  hr_status status;
  reading_about(r, path);
  status = read_snapshot(path, &r->limits, &s->snapshot, error);
  hr_inspect_options_init(&options);
  options.at = config->own.at;
  options.top = config->own.top;
  if (status == HR_OK) status = find_trace(config, s->snapshot, path, &options.trace, error);
  if (status == HR_OK) status = hr_inspect(s->snapshot, &options, &s->inspection, error);
  return status;
}

/* ---- one snapshot ---- */

static hr_status print_one(const cli_config *config, const inspect_side *s, hr_error *error) {
  const uint32_t columns = isatty(STDOUT_FILENO) ? HR_INSPECT_COLUMNS(screen_columns(stdout) - 1) : 0;
  uint32_t top = config->own.top, by = 0;
  char *text = NULL;
  hr_status status;
  if (config_chosen(config, &config->own.by)) by = 1u << config->own.by;
  if (config->own.wide) by |= HR_INSPECT_WIDE;
  if (config->own.json) status = hr_inspect_json(s->inspection, top, &text, error);
  else status = hr_inspect_text(s->inspection, top, by | columns, &text, error);
  if (status == HR_OK && (config->own.json || config->own.wide)) (void)fputs(text, stdout);
  else if (status == HR_OK) screen_fold(stdout, text);
  hr_free(text);
  return status;
}

static hr_status export_format(const cli_config *config, hr_export_format *format, hr_error *error) {
  const char *const *list = config->own.export;
  hri_near search;
  if (config->own.export_count == 2) {
    hri_near_begin(&search, list[0]);
    for (unsigned k = 0; export_names[k]; k++) {
      hri_near_offer(&search, export_names[k]);
      if (strcmp(list[0], export_names[k]) != 0) continue;
      *format = (hr_export_format)k;
      return HR_OK;
    }
    hri_fail(error, HR_ERROR_USAGE, "--export: '%s' is not one of: chrome, speedscope, collapsed, csv, json", list[0]);
    return hri_near_end(&search) ? hri_hint(error, HR_ERROR_USAGE, "--export %s %s", hri_near_end(&search), list[1])
                                 : HR_ERROR_USAGE;
  }
  hri_fail(error, HR_ERROR_USAGE, "--export takes a format and a file, %u values were given", config->own.export_count);
  return hri_hint(error, HR_ERROR_USAGE, "put FILE first: headroom inspect FILE --export chrome trace.json");
}

/* ---- the page ---- */

enum { MOST_NOTES = HR_OOM_MAX_LINES + HR_OOM_MAX_ADVICE, MOST_SECTIONS = 1 + HR_OOM_MAX_ADVICE };

/* What the page says of the explanation; its notes point into it. */
typedef struct page_words {
  char verdict[HR_OOM_LINE_BYTES + 64];
  hr_report_note notes[MOST_NOTES];
  hr_report_section sections[MOST_SECTIONS];
  uint32_t note_count, section_count;
} page_words;

static void add_note(page_words *w, const char *title, const char *text, const char *more) {
  hr_report_section *last = w->section_count ? &w->sections[w->section_count - 1] : NULL;
  assert(w->note_count < MOST_NOTES && w->section_count <= MOST_SECTIONS);
  if (!last || strcmp(last->title, title) != 0) {
    last = &w->sections[w->section_count++];
    *last = (hr_report_section){title, &w->notes[w->note_count], 0};
  }
  w->notes[w->note_count++] = (hr_report_note){text, more};
  last->note_count++;
}

static void put_words(const hr_oom_failure *f, page_words *w, hr_report_options *how) {
  if (f->cause == HR_OOM_UNKNOWN) (void)snprintf(w->verdict, sizeof w->verdict, "Undecidable: %s", f->verdict);
  else
    (void)snprintf(w->verdict, sizeof w->verdict, "%s, %s: %s", hr_oom_cause_name(f->cause),
                   hr_oom_certainty_name(f->certainty), f->verdict);
  for (uint32_t k = 0; k < f->arithmetic_count; k++) add_note(w, "why", f->arithmetic[k], NULL);
  how->numbered_from = w->section_count;
  for (uint32_t k = 0; k < f->advice_count; k++)
    add_note(w, explain_advice_title(f->advice[k].basis), f->advice[k].text, f->advice[k].proof);
  how->verdict = w->verdict;
  how->sections = w->sections;
  how->section_count = w->section_count;
}

/* The page says what `headroom explain` says of the file, with the same figures and advice, whatever instant it shows
 * first: that of the last failure, else the peak. */
static hr_status explain_file(const hr_inspection *p, hr_explanation **explanation, hr_error *error) {
  hr_inspection *own = NULL;
  const hr_inspect_options at_failure = {.at = HR_AT_OOM, .trace = p->trace};
  uint64_t instant = p->oom_count ? p->ooms[p->oom_count - 1].event : p->peak_event;
  hr_status status = HR_OK;
  if (p->at_event != instant) status = hr_inspect(p->snapshot, &at_failure, &own, error);
  if (status == HR_OK) status = explain_judge(p->snapshot, own ? own : p, 0, explanation, error);
  hr_inspection_destroy(own);
  return status;
}

static const char *name_of(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash && slash[1] ? slash + 1 : reading_name(path);
}

/* Of two files the page is about the second, with the first beside it. */
static hr_status write_report(const cli_config *config, const inspect_side *sides, hr_error *error) {
  bool two = config->operand_count == 2;
  const hr_inspection *p = sides[two].inspection;
  hr_report_line line = {.name = "room at the failure"};
  hr_explanation *explanation = NULL;
  page_words *words = text_alloc(sizeof *words);
  hr_status status;
  hr_report_options how;
  hr_report_options_init(&how);
  how.title = name_of(config->operands[two]);
  if (two) how.before = sides[0].inspection, how.before_title = name_of(config->operands[0]);
  how.lines = &line;
  if (p->oom_count) { /* what was reserved, and what the device still had */
    const hr_oom_event *last = &p->ooms[p->oom_count - 1];
    line.bytes = last->reserved_bytes + last->device_free_bytes;
    how.line_count = 1;
  }
  status = explain_file(p, &explanation, error);
  if (status == HR_OK) put_words(&explanation->failures[explanation->primary], words, &how);
  if (status == HR_OK) status = hr_report_html(p, &how, config->own.html, error);
  hr_explanation_destroy(explanation);
  free(words);
  return status;
}

static hr_status write_files(const cli_config *config, const inspect_side *s, hr_error *error) {
  const hr_inspection *p = s->inspection;
  bool export = config->own.export_count > 0;
  hr_export_format format = HR_EXPORT_CHROME_TRACE;
  hr_status status = HR_OK;
  if (export) status = export_format(config, &format, error);
  if (status == HR_OK && export) status = hr_inspect_export(p, format, config->own.export[1], error);
  if (status == HR_OK && config->own.html) status = write_report(config, s, error);
  return status;
}

/* ---- two snapshots ---- */

static void print_change(uint64_t before, uint64_t after) {
  (void)printf("%c%11s", after >= before ? '+' : '-', FIGURE_TEXT(after >= before ? after - before : before - after));
}

/* Lines of 100 columns, or with --wide of any length. */
static void print_rows(const cli_config *config, const inspect_side *sides, hr_group_by by, const hr_difference *rows,
                       uint64_t count) {
  const uint64_t top = config->own.top;
  char name[512];
  for (uint64_t k = 0; k < count && k < top; k++) {
    const hr_difference *d = &rows[k];
    hr_difference_name(sides[0].inspection, sides[1].inspection, by, d, name, config->own.wide ? sizeof name : 64);
    (void)printf("  ");
    print_change(d->before_bytes, d->after_bytes);
    (void)printf("%12s%12s  %s\n", d->before_count ? FIGURE_TEXT(d->before_bytes) : "-",
                 d->after_count ? FIGURE_TEXT(d->after_bytes) : "-", name);
  }
  if (count > top) (void)printf("  and %llu more\n", (unsigned long long)(count - top));
}

static void print_total(const char *name, uint64_t before, uint64_t after) {
  (void)printf("%-12s%12s ->%12s  ", name, FIGURE_TEXT(before), FIGURE_TEXT(after));
  print_change(before, after);
  (void)printf("\n");
}

static const char *const group_titles[HR_BY_COUNT] = {"stack", "category", "size"};

hr_status inspect_print_difference(const cli_config *config, const inspect_side *sides, hr_group_by by,
                                   const char *before, const char *after, hr_error *error) {
  uint64_t count;
  hr_difference *rows;
  hr_status status = hr_inspect_compare(sides[0].inspection, sides[1].inspection, by, &rows, &count, error);
  if (status != HR_OK) return status;
  (void)printf("  %12s%12s%12s\n", "change", before, after);
  print_rows(config, sides, by, rows, count);
  if (!count) (void)printf("  no difference\n");
  hr_free(rows);
  return HR_OK;
}

static void write_rows(json_writer *json, const inspect_side *sides, hr_group_by by, const hr_difference *rows,
                       uint64_t count) {
  char name[160];
  for (uint64_t k = 0; k < count; k++) {
    hr_difference_name(sides[0].inspection, sides[1].inspection, by, &rows[k], name, sizeof name);
    json_write_open_flat(json, NULL, '{');
    json_write_text(json, "name", name);
    json_write_count(json, "before_bytes", rows[k].before_bytes);
    json_write_count(json, "after_bytes", rows[k].after_bytes);
    json_write_count(json, "before_count", rows[k].before_count);
    json_write_count(json, "after_count", rows[k].after_count);
    json_write_close(json, '}');
  }
}

hr_status inspect_write_difference(const cli_config *config, const inspect_side *sides, hr_group_by by,
                                   json_writer *json, const char *key, hr_error *error) {
  uint64_t count, top = config->own.top;
  hr_difference *rows;
  char count_key[40];
  hr_status status = hr_inspect_compare(sides[0].inspection, sides[1].inspection, by, &rows, &count, error);
  if (status != HR_OK) return status;
  (void)snprintf(count_key, sizeof count_key, "%s_count", strcmp(key, "differences") == 0 ? "difference" : key);
  json_write_count(json, count_key, count);
  json_write_open(json, key, '[');
  write_rows(json, sides, by, rows, count < top ? count : top);
  json_write_close(json, ']');
  hr_free(rows);
  return HR_OK;
}

static hr_status compare(const cli_config *config, const inspect_side *sides, hr_error *error) {
  const hr_inspection *a = sides[0].inspection, *b = sides[1].inspection;
  const hr_group_by by = config->own.by;
  json_writer json;
  hr_status status;
  if (config->own.json) {
    json_write_begin(&json, stdout);
    json_write_text(&json, "by", group_titles[by]);
    json_write_count(&json, "before_bytes", a->at.requested_bytes);
    json_write_count(&json, "after_bytes", b->at.requested_bytes);
    status = inspect_write_difference(config, sides, by, &json, "differences", error);
    json_write_end(&json);
    return status;
  }
  print_total("live", a->at.requested_bytes, b->at.requested_bytes);
  print_total("reserved", a->at.reserved_bytes, b->at.reserved_bytes);
  print_total("peak live", a->peak_live_bytes, b->peak_live_bytes);
  (void)printf("\nlive by %s%s\n", group_titles[by],
               a->categories_inferred && by == HR_BY_CATEGORY ? " (inferred)" : "");
  return inspect_print_difference(config, sides, by, "before", "after", error);
}

/* ---- --verify ---- */

static const char *const file_states[] = {"whole", "DAMAGED", "unverified", "unknown"};

typedef struct verified {
  bool as_json, begun;
  json_writer json;
} verified;

/* Only when there is a result: what is refused says nothing on standard output. */
static void begin_files(verified *v) {
  if (v->begun) return;
  v->begun = true;
  json_write_begin(&v->json, stdout);
  json_write_open(&v->json, "files", '[');
}

static void print_file(void *context, const char *path, hr_run_file_state state, const char *text) {
  verified *v = context;
  if (!v->as_json) {
    if (state == HR_RUN_FILE_WHOLE) return;
    (void)printf("%-11s", file_states[state]);
    if (!text || strncmp(text, path, strlen(path)) != 0) screen_name(stdout, path);
    if (text && *text) (void)fputc(' ', stdout), screen_name(stdout, text);
    (void)fputc('\n', stdout);
    return;
  }
  begin_files(v);
  json_write_open(&v->json, NULL, '{');
  json_write_text(&v->json, "path", path);
  json_write_text(&v->json, "state", state == HR_RUN_FILE_DAMAGED ? "damaged" : file_states[state]);
  json_write_text(&v->json, "text", text);
  json_write_close(&v->json, '}');
}

static void end_files(json_writer *json, const hr_run_verification *result) {
  json_write_close(json, ']');
  json_write_count(json, "whole", result->whole);
  json_write_count(json, "damaged", result->damaged);
  json_write_count(json, "unverified", result->unverified);
  json_write_count(json, "unknown", result->unknown);
  json_write_count(json, "verified_bytes", result->bytes);
  json_write_text(json, "newest_whole", result->newest_whole[0] ? result->newest_whole : NULL);
  json_write_end(json);
}

static hr_status verify(const cli_config *config, const char *directory, hr_error *error) {
  hr_run_verification result;
  verified v = {.as_json = config->own.json};
  hr_status status = hr_run_verify(directory, print_file, &v, &result, error);
  if (v.as_json && status == HR_OK) begin_files(&v);
  if (v.begun) {
    end_files(&v.json, &result);
  } else if (status == HR_OK) {
    screen_name(stdout, directory);
    (void)printf(": %u files whole (%s), %u damaged, %u unverified, %u not the run's; newest whole checkpoint: %s\n",
                 result.whole, FIGURE_TEXT(result.bytes), result.damaged, result.unverified, result.unknown,
                 result.newest_whole[0] ? result.newest_whole : "none");
  }
  if (status != HR_OK || result.damaged == 0) return status;
  if (result.damaged == 1) hri_fail(error, HR_ERROR_INPUT, "1 file of %s is damaged", directory);
  else hri_fail(error, HR_ERROR_INPUT, "%u files of %s are damaged", result.damaged, directory);
  if (!result.newest_whole[0])
    return hri_hint(error, HR_ERROR_INPUT, "no checkpoint is whole: restore one from a copy");
  return hri_hint(error, HR_ERROR_INPUT, "go on from the newest whole checkpoint: headroom train --resume %s --from %s",
                  directory, result.newest_whole);
}

/* Before anything is read. */
static hr_status check_outputs(const cli_config *config, hr_error *error) {
  output_file files[] = {{"html", config->own.html, false}, {"export", NULL, false}};
  hr_export_format format = HR_EXPORT_CHROME_TRACE;
  if (config->own.html) HRI_TRY(output_check("html", config->own.html, OUTPUT_PAGE, error));
  if (config->own.export_count == 0) return HR_OK;
  HRI_TRY(export_format(config, &format, error)); /* there are two values */
  files[1].path = config->own.export[1];
  HRI_TRY(outputs_check_apart(files, sizeof files / sizeof *files, error));
  return output_check("export", files[1].path, format == HR_EXPORT_SPEEDSCOPE ? OUTPUT_SPEEDSCOPE : OUTPUT_OTHER,
                      error);
}

/* A page, an export and a device are of one snapshot: of each rank the device is shown that failed. */
static hr_status refuse_of_one(const cli_config *config, hr_error *error) {
  const bool device = config_chosen(config, &config->job.device);
  if (!config->own.html && !config->own.export_count && !device) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE, "%s of one snapshot, %s is a directory of them",
           device ? "--device is" : "--html and --export are", config->operands[0]);
  return hri_hint(error, HR_ERROR_USAGE, "name one of its files");
}

/* It reads the files of a run, and no snapshot. */
static hr_status check_verify(const cli_config *config, hr_error *error) {
  const cli_settings *own = &config->own;
  const void *const idle[] = {&own->html, &own->export,           &own->at,           &own->top, &own->by,
                              &own->wide, &own->max_memory_bytes, &config->job.device};
  return config_refuse_idle(config, idle, sizeof idle / sizeof *idle, "beside --verify, which looks at no snapshot",
                            "leave one of the two out", error);
}

hr_status command_inspect(cli_config *config, hr_error *error) {
  inspect_side sides[2] = {{0}};
  ranks all;
  reading r;
  hr_status status;
  if (config->operand_count == 0) {
    hri_fail(error, HR_ERROR_USAGE, "there is nothing to inspect");
    return hri_hint(error, HR_ERROR_USAGE, "headroom inspect FILE, a memory snapshot");
  }
  if (config->own.verify) {
    HRI_TRY(check_verify(config, error));
    if (config->operand_count == 1) return verify(config, config->operands[0], error);
    return hri_fail(error, HR_ERROR_USAGE, "--verify takes one run directory");
  }
  if (config->operand_count == 2 && strcmp(config->operands[0], "-") == 0 && strcmp(config->operands[1], "-") == 0) {
    hri_fail(error, HR_ERROR_USAGE, "standard input is one snapshot, and two are compared");
    return hri_hint(error, HR_ERROR_USAGE, "name a file for one of them, or a pipe of the shell: <(command)");
  }
  if (config->operand_count == 2 && config->own.export_count) {
    hri_fail(error, HR_ERROR_USAGE, "--export is of one snapshot, two are given");
    return hri_hint(error, HR_ERROR_USAGE, "leave one of the files out");
  }
  HRI_TRY(check_outputs(config, error));
  if (config->operand_count == 1 && ranks_find(config->operands[0], &all)) {
    reading_begin(&r, config, config->operands[0]);
    status = refuse_of_one(config, error);
    if (status == HR_OK) status = ranks_inspect(config, &r, config->operands[0], &all, error);
    ranks_free(&all);
    return reading_end(&r, status, error);
  }
  reading_begin(&r, config, config->operands[0]);
  status = inspect_open(config, &r, config->operands[0], &sides[0], error);
  if (status == HR_OK && config->operand_count == 2)
    status = inspect_open(config, &r, config->operands[1], &sides[1], error);
  if (status == HR_OK && config->operand_count == 1) status = write_files(config, &sides[0], error);
  else if (status == HR_OK && config->own.html) status = write_report(config, sides, error);
  if (status == HR_OK)
    status = config->operand_count == 2 ? compare(config, sides, error) : print_one(config, &sides[0], error);
  status = reading_end(&r, status, error);
  inspect_close(&sides[1]);
  inspect_close(&sides[0]);
  return status;
}
