#include "base/error.h"
#include "base/number.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
  const char *name;
  int exit_code;
} status_table[] = {
    [HR_OK] = {"ok", 0},
    [HR_ERROR_MEMORY] = {"memory", 4},
    [HR_ERROR_IO] = {"io", 1},
    [HR_ERROR_USAGE] = {"usage", 2},
    [HR_ERROR_BUDGET] = {"budget", 3},
    [HR_ERROR_INPUT] = {"input", 5},
    [HR_ERROR_MISMATCH] = {"mismatch", 6},
    [HR_ERROR_INTERRUPTED] = {"interrupted", 130},
    [HR_ERROR_UNSUPPORTED] = {"unsupported", 2},
    [HR_ERROR_INTERNAL] = {"internal", 1},
    [HR_ERROR_DIVERGED] = {"diverged", 7},
};

const char *hr_version(void) { return HR_VERSION; }
uint32_t hr_version_number(void) { return HR_VERSION_NUMBER; }

const char *hr_status_name(hr_status status) {
  return (unsigned)status <= HR_ERROR_DIVERGED ? status_table[status].name : "unknown";
}

int hr_status_exit_code(hr_status status) {
  return (unsigned)status <= HR_ERROR_DIVERGED ? status_table[status].exit_code : 1;
}

hr_status(hri_fail)(hr_error *error, hr_status code, const char *format, ...) {
  if (error) {
    va_list args;
    memset(error, 0, sizeof *error);
    error->code = code;
    va_start(args, format);
    (void)hri_vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
  }
  return code;
}

hr_status(hri_hint)(hr_error *error, hr_status code, const char *format, ...) {
  if (error) {
    va_list args;
    va_start(args, format);
    (void)hri_vsnprintf(error->hint, sizeof error->hint, format, args);
    va_end(args);
  }
  return code;
}

hr_status(hri_context)(hr_error *error, hr_status code, const char *format, ...) {
  if (error) {
    char old[HR_ERROR_MESSAGE_BYTES];
    va_list args;
    size_t used;
    memcpy(old, error->message, sizeof old);
    va_start(args, format);
    (void)hri_vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
    used = strlen(error->message);
    (void)snprintf(error->message + used, sizeof error->message - used, "%s", old);
  }
  return code;
}

hr_status(hri_fail_memory)(hr_error *error, uint64_t bytes, const char *what) {
  hr_status code =
      bytes ? hri_fail(error, HR_ERROR_MEMORY, "the host refused %llu bytes for %s", (unsigned long long)bytes, what)
            : hri_fail(error, HR_ERROR_MEMORY, "the host refused memory for %s", what);
  if (error) error->requested_bytes = bytes;
  return code;
}
