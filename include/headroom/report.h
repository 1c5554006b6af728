/* One self-contained HTML file about a snapshot: verdict, timeline, live set, flame view, segment map, table. No
 * network. docs/report.md says what is in it.
 *
 * Threads: reports of one inspection may be written at the same time, each to its own path. */
#ifndef HEADROOM_REPORT_H
#define HEADROOM_REPORT_H

#include <headroom/inspect.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A line across the timeline: the device's capacity, a budget, a plan. */
typedef struct hr_report_line {
  const char *name;
  uint64_t bytes;
} hr_report_line;

/* What stands below the verdict: a title ("why") and its notes, each with what is said of it in smaller letters. Plain text. */
typedef struct hr_report_note {
  const char *text;
  const char *more; /* NULL or "": none */
} hr_report_note;

typedef struct hr_report_section {
  const char *title;
  const hr_report_note *notes;
  uint32_t note_count;
} hr_report_section;

typedef struct hr_report_options {
  const char *title;   /* NULL: "Memory report" */
  const char *verdict; /* one paragraph, plain text; NULL: from the inspection */
  const hr_report_line *lines;
  uint32_t line_count;
  const hr_report_section
      *sections; /* arithmetic, advice, ...; notes are numbered throughout from `numbered_from` on */
  uint32_t section_count;
  uint32_t numbered_from; /* the first section whose notes have numbers */
  /* Another inspection to compare with, such as that of the run before a change: its levels lie over the timeline, each from
   * its own beginning, and a table has the differences. NULL: none. */
  const hr_inspection *before;
  const char *before_title;
} hr_report_options;
/* Defaults: all zero. */
HR_API void hr_report_options_init(hr_report_options *options);

/* Writes atomically: the old file or the whole new one. `options` may be NULL. The inspection's instant is the one
 * shown first. `inspection` must come from hr_inspect. USAGE when `path` cannot name a file, IO, MEMORY; UNSUPPORTED
 * beyond 2^31 - 3 events. */
HR_CHECKED hr_status hr_report_html(const hr_inspection *inspection, const hr_report_options *options, const char *path,
                                    hr_error *error);

#ifdef __cplusplus
}
#endif

#endif
