#include <stdarg.h>
#include <stdio.h>

#include "base/number.h"
#include "explain/message.h"

void hri_oom_tidy(char *text) {
  size_t count = strlen(text), start = count;
  hri_plain_text(text, "");
  while (start > 0 && count - start < 3 && ((unsigned char)text[start - 1] & 0xc0) == 0x80) start--;
  if (start == 0 || (unsigned char)text[start - 1] < 0xc0) return;
  unsigned char lead = (unsigned char)text[start - 1];
  if (count - start < (lead >= 0xf0 ? 3u : lead >= 0xe0 ? 2u : 1u)) text[start - 1] = 0;
}

void hri_oom_line(hr_oom_failure *f, const char *format, ...) {
  va_list arguments;
  char *line;
  if (f->arithmetic_count == HR_OOM_MAX_LINES) return;
  line = f->arithmetic[f->arithmetic_count++];
  va_start(arguments, format);
  (void)hri_vsnprintf(line, HR_OOM_LINE_BYTES, format, arguments);
  va_end(arguments);
  hri_oom_tidy(line);
}

void hri_oom_say(hr_oom_failure *f, hr_oom_cause cause, hr_oom_certainty certainty, const char *format, ...) {
  va_list arguments;
  f->cause = cause;
  f->certainty = certainty;
  va_start(arguments, format);
  (void)hri_vsnprintf(f->verdict, sizeof f->verdict, format, arguments);
  va_end(arguments);
  hri_oom_tidy(f->verdict);
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
