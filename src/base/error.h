/* Filling and forwarding hr_error. */
#ifndef HRI_BASE_ERROR_H
#define HRI_BASE_ERROR_H

#include <headroom/status.h>

#if defined(__GNUC__)
#define HRI_PRINTF(a, b) __attribute__((format(printf, a, b)))
#else
#define HRI_PRINTF(a, b)
#endif

/* Fills `error` (which may be NULL) and returns `code`, so that `return hri_fail(...)` reads naturally. */
hr_status hri_fail(hr_error *error, hr_status code, const char *format, ...) HRI_PRINTF(3, 4);
/* Adds the remedy to an error just filled; returns its code. */
hr_status hri_hint(hr_error *error, hr_status code, const char *format, ...) HRI_PRINTF(3, 4);
/* Prepends context ("while loading FILE: ") to a filled error; returns its code. */
hr_status hri_context(hr_error *error, hr_status code, const char *format, ...) HRI_PRINTF(3, 4);
/* The one way to report that an allocation of `bytes` failed; 0: how many is not known any more. */
hr_status hri_fail_memory(hr_error *error, uint64_t bytes, const char *what);

/* Forward an error: evaluates `call`, returns its status from the enclosing function unless HR_OK. */
#define HRI_TRY(call)                                                                                                  \
  do {                                                                                                                 \
    hr_status hri_try_status = (call);                                                                                 \
    if (hri_try_status != HR_OK) return hri_try_status;                                                                \
  } while (0)

/* Same for functions that clean up at a label `out` and hold `hr_status status`. */
#define HRI_TRY_OUT(call)                                                                                              \
  do {                                                                                                                 \
    status = (call);                                                                                                   \
    if (status != HR_OK) goto out;                                                                                     \
  } while (0)

/* What the analyzer cannot see across sources: a failure is never HR_OK. */
#ifdef __clang_analyzer__
static inline hr_status hri_failure(hr_status code, hr_status known) {
  (void)code;
  if (known == HR_OK) __builtin_unreachable();
  return known;
}
#define hri_fail(error, code, ...) hri_failure(hri_fail((error), (code), __VA_ARGS__), (code))
#define hri_hint(error, code, ...) hri_failure(hri_hint((error), (code), __VA_ARGS__), (code))
#define hri_context(error, code, ...) hri_failure(hri_context((error), (code), __VA_ARGS__), (code))
#define hri_fail_memory(error, bytes, what) hri_failure(hri_fail_memory((error), (bytes), (what)), HR_ERROR_MEMORY)
#endif

#endif
