#include <stdarg.h>
#include <stdio.h>

#include "explain/message.h"

void hri_oom_line(hr_oom_failure *f, const char *format, ...) {
  va_list arguments;
  if (f->arithmetic_count == HR_OOM_MAX_LINES) return;
  va_start(arguments, format);
  (void)vsnprintf(f->arithmetic[f->arithmetic_count++], HR_OOM_LINE_BYTES, format, arguments);
  va_end(arguments);
}

void hri_oom_say(hr_oom_failure *f, hr_oom_cause cause, hr_oom_certainty certainty, const char *format, ...) {
  va_list arguments;
  f->cause = cause;
  f->certainty = certainty;
  va_start(arguments, format);
  (void)vsnprintf(f->verdict, sizeof f->verdict, format, arguments);
  va_end(arguments);
}

void hri_oom_undecided(hr_oom_failure *f, uint32_t candidates, const char *verdict) {
  f->candidates = candidates;
  hri_oom_say(f, HR_OOM_UNKNOWN, HR_OOM_UNDECIDABLE, "%s", verdict);
}

void hri_oom_share(hr_oom_failure *f, const char *name, uint64_t bytes) {
  if (bytes == 0 || f->share_count == HR_OOM_MAX_SHARES) return;
  f->shares[f->share_count].name = name;
  f->shares[f->share_count++].bytes = bytes;
}
