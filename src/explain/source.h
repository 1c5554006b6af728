/* Whether a line of a text is a program's source rather than what a program printed. */
#ifndef HRI_EXPLAIN_SOURCE_H
#define HRI_EXPLAIN_SOURCE_H

#include <stdbool.h>
#include <stddef.h>

/* What a raw line is, as far as source code is concerned. */
typedef enum hri_source_kind {
  HRI_SOURCE_NONE,    /* what somebody wrote or a program printed, or nothing */
  HRI_SOURCE_CODE,    /* a statement, or a part of one */
  HRI_SOURCE_LITERAL, /* a string literal and nothing else: an element of a list, a message over several lines */
  HRI_SOURCE_FRAME    /* a frame of a traceback, which has a line of source below it */
} hri_source_kind;

/* Whether a statement on the line opens a literal with three quotes. */
bool hri_source_opens_literal(const char *line, size_t count);

hri_source_kind hri_source_of(const char *line, size_t count);

#endif
