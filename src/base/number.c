/* Numbers read and printed in the "C" locale, one at a time: strtod_l for reading, the calling thread's locale for as long as
 * one vsnprintf takes for printing (there is no vsnprintf_l everywhere). The locale is made once, by whichever thread is
 * first, and lives as long as the process; the program's own setting and other threads are never changed. */
#include "base/number.h"

#include <locale.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* glibc's "C" locale is static: nothing is allocated. 0 where a libc refuses it; then the program's is taken. */
static locale_t the_c_locale(void) {
  static _Atomic(locale_t) made;
  locale_t old = atomic_load(&made), new;
  if (old || !(new = newlocale(LC_ALL_MASK, "C", (locale_t)0))) return old;
  if (atomic_compare_exchange_strong(&made, &old, new)) return new;
  freelocale(new); /* another thread was first */
  return old;
}

double hri_strtod(const char *text, char **end) {
  locale_t c = the_c_locale();
  return c ? strtod_l(text, end, c) : strtod(text, end);
}

const char hri_too_near[] = "nearer to 0 than any number: write 0 if that is meant";

const char *hri_decimal_parse(const char *text, double *value) {
  static const char signs[] = "+-.0123456789eE";
  const size_t mantissa = strcspn(text, "eE");
  char *end;
  double read;
  if (!*text || text[strspn(text, signs)]) return "not a number";
  read = hri_strtod(text, &end);
  if (end == text || *end) return "not a number";
  if (!isfinite(read)) return "too large for a number";
  if (read == 0 && strcspn(text, "123456789") < mantissa) return hri_too_near;
  *value = read;
  return NULL;
}

double hri_unsigned_nan(double x) { return isnan(x) ? fabs(x) : x; }

/* The thread's own locale is put back; other threads never see another one. */
int hri_vsnprintf(char *out, size_t capacity, const char *format, va_list args) {
  locale_t c = the_c_locale(), before = c ? uselocale(c) : (locale_t)0;
  int count = vsnprintf(out, capacity, format, args);
  if (before) (void)uselocale(before);
  return count;
}

int hri_snprintf(char *out, size_t capacity, const char *format, ...) {
  va_list args;
  int count;
  va_start(args, format);
  count = hri_vsnprintf(out, capacity, format, args);
  va_end(args);
  return count;
}
