/* Numbers in text, with '.' as the point whatever locale the program has set that the library works in: a desktop's
 * setlocale(LC_ALL, "") would else make "1e-3" and "1.5" of an option, a file or a template something else. */
#ifndef HRI_BASE_NUMBER_H
#define HRI_BASE_NUMBER_H

#include <stdarg.h>
#include <stddef.h>

#include "base/mem.h"

double hri_strtod(const char *text, char **end); /* end may be NULL */
/* What a person gives as a number, the whole of `text`: NULL, or what it is instead, to stand behind "'...' is". strtod also
 * reads hexadecimal, "inf", "nan" and blanks in front, and makes 0 of what is too near to it. */
const char *hri_decimal_parse(const char *text, double *value);
extern const char hri_too_near[]; /* the last of these */
/* What is printed of a NaN with a sign, "-nan", is of no use to anybody. */
double hri_unsigned_nan(double x);
int hri_vsnprintf(char *out, size_t capacity, const char *format, va_list args);
int hri_snprintf(char *out, size_t capacity, const char *format, ...) HRI_PRINTF(3, 4);

#endif
