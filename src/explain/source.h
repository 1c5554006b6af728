/* Whether a line of a text is a program's source rather than what a program printed. */
#ifndef HRI_EXPLAIN_SOURCE_H
#define HRI_EXPLAIN_SOURCE_H

#include <stdbool.h>
#include <stddef.h>

/* What a raw line is, as far as source code is concerned. */
typedef enum hri_source_kind {
  HRI_SOURCE_NONE, /* what somebody wrote or a program printed, or nothing */
  HRI_SOURCE_CODE, /* a statement, or a part of one */
  HRI_SOURCE_TYPED, /* a statement at a prompt, a setting of a shell, an object as it is printed: output stands around it */
  HRI_SOURCE_LITERAL, /* a string literal and nothing else: an element of a list, a message over several lines */
  HRI_SOURCE_FIELD, /* a field as a program writes or prints it, `key: "...",`: a statement where nothing else shows */
  HRI_SOURCE_FRAME  /* a frame of a traceback, which has a line of source below it */
} hri_source_kind;

/* Whether a statement on the line opens a literal with three quotes. */
bool hri_source_opens_literal(const char *line, size_t count);

/* Whether the line opens a text of YAML that goes on, `key: 'it''s ...`, where two quotes stand for one; whether line[from,
 * count) has the one that closes it. */
bool hri_source_opens_scalar(const char *line, size_t count);
bool hri_source_closes_scalar(const char *line, size_t from, size_t count);

/* Whether the line is a fence that opens a diagram's source, or closes one. */
bool hri_source_opens_diagram(const char *line, size_t count);
bool hri_source_closes_diagram(const char *line, size_t count);

hri_source_kind hri_source_of(const char *line, size_t count);

static inline bool hri_source_is_code(hri_source_kind kind) {
  return kind == HRI_SOURCE_CODE || kind == HRI_SOURCE_TYPED;
}

#endif
