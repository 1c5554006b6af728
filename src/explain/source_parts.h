/* How a line of source is built, between source.c, which says what a line is, and source_statement.c, which knows statements. */
#ifndef HRI_EXPLAIN_SOURCE_PARTS_H
#define HRI_EXPLAIN_SOURCE_PARTS_H

#include "explain/line.h"
#include "explain/match.h"

/* text[from, to), a raw line without what stands around its statement; from > 0: it is set in. */
typedef struct hri_source_span {
  const char *text;
  size_t from, to;
} hri_source_span;

static inline bool hri_source_is_word(char c) {
  c = hri_line_lower(c);
  return hri_is_name(c);
}

static inline bool hri_source_begins(const hri_source_span *s, size_t at, const char *words) {
  size_t length = strlen(words);
  return s->to >= at + length && memcmp(s->text + at, words, length) == 0;
}

static inline bool hri_source_ends(const hri_source_span *s, const char *words) {
  size_t length = strlen(words);
  return s->to >= s->from + length && memcmp(s->text + s->to - length, words, length) == 0;
}

static inline bool hri_source_has(const hri_source_span *s, const char *words) {
  return hri_oom_word(s->text, s->from, s->to, words) < s->to;
}

/* Where the name, possibly of several parts and with indices, that begins at `at` ends; `at` when none does. */
size_t hri_source_name_end(const hri_source_span *span, size_t at);
/* Whether the name that ends there is an error's. */
bool hri_source_names_error(const hri_source_span *span, size_t end);
/* A literal, with letters that modify it before its quote; *end is behind its closing quote. */
bool hri_source_literal_at(const hri_source_span *span, size_t at, size_t *end);
/* Whether one name is all that stands between the bracket at `open` and the one that closes it: "IsOOMError(err)". */
bool hri_source_takes_name(const hri_source_span *span, size_t open);
/* A field of a structure that a program makes, as Go writes them: "ExitCode: 137,", "OOMKilled: s.OOMKilled,". */
bool hri_source_is_member(const hri_source_span *span);
/* Whether the line is a statement or a part of one, whatever the language; `commented`: a remark was taken off its end. */
bool hri_source_is_statement(const hri_source_span *span, bool commented);

/* ---- source_diagram.c ---- */

/* Whether the line is nothing but edges of a diagram, one of them or one of their nodes with a label: "a --> b[text]". */
bool hri_source_is_edge(const hri_source_span *span);

#endif
