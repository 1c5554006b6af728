/* Numbers as Python reads them. */
#ifndef HRI_CHAT_NUMBERS_H
#define HRI_CHAT_NUMBERS_H

#include "chat/value.h"

typedef enum hri_parsed { HRI_PARSED, HRI_NO_NUMBER, HRI_TOO_LARGE } hri_parsed;

/* int(text, base): blanks around, a sign, '_' between digits; base 0 goes by the prefix. TOO_LARGE: beyond int64. */
hri_parsed hri_parse_integer(const char *chars, size_t bytes, int64_t base, int64_t *out);
/* float(text). */
bool hri_parse_float(const char *chars, size_t bytes, double *out);

#endif
