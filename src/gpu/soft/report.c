/* Counts of findings, and the first one in words (report.h). */
#include "gpu/soft/report.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include "gpu/soft/block.h"

static hri_soft_report *to;

void hri_soft_report_to(hri_soft_report *report) { to = report; }

const char *hri_soft_fault_words(hri_soft_fault fault) {
  static const char *const words[] = {
#define HRI_SOFT_FAULT(name, text) text,
      HRI_SOFT_FAULTS(HRI_SOFT_FAULT)
#undef HRI_SOFT_FAULT
  };
  return fault < HRI_SOFT_FAULT_COUNT ? words[fault] : "unknown finding";
}

/* "kernel rows, block (1, 0, 0), thread 37: ", where a kernel runs. */
static int place(char *text, size_t bytes) {
  const hri_soft_thread *t = hri_soft_now;
  const hri_soft_grid *g = &hri_soft_here;
  if (!g->kernel) return 0;
  if (!t) return snprintf(text, bytes, "kernel %s: ", g->kernel);
  return snprintf(text, bytes, "kernel %s, block (%u, %u, %u), thread %u: ", g->kernel, g->block.x, g->block.y,
                  g->block.z, t->linear);
}

void hri_soft_find(hri_soft_fault fault, const char *format, ...) {
  char *text;
  int length, more;
  va_list arguments;
  if (!to) return;
  to->of[fault]++;
  if (to->count++ > 0) return;
  text = to->first;
  length = snprintf(text, sizeof to->first, "%s: ", hri_soft_fault_words(fault));
  more = place(text + length, sizeof to->first - (size_t)length);
  if (length + more >= (int)sizeof to->first) return;
  va_start(arguments, format);
  (void)vsnprintf(text + length + more, sizeof to->first - (size_t)(length + more), format, arguments);
  va_end(arguments);
}
