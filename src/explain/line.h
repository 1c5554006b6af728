/* A raw line of a log, before it is normalised into the window (scan_intake.c). */
#ifndef HRI_EXPLAIN_LINE_H
#define HRI_EXPLAIN_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool hri_line_is_blank(char c) { return c == ' ' || c == '\t' || c == '\v' || c == '\f' || c == '\0'; }
static inline char hri_line_lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }

/* Where line[at, count) goes on behind a shape: 'd' a digit, 'a' a letter, '?' a digit or a blank; `at` when it is
 * another. */
size_t hri_line_behind_shape(const char *line, size_t at, size_t count, const char *shape);
/* Where the text begins, behind marks, brackets, times and labels. `rank` and `who` are set where one of them says it. */
size_t hri_line_skip_prefix(const char *line, size_t count, int32_t *rank, int64_t *who);
/* HRI_OOM_LEVEL and the like: what the beginning of a raw line, whose text starts at `start`, says about it. */
uint16_t hri_line_shape(const char *line, size_t count, size_t start);
/* How many bytes at line[at] are dressing: a terminal escape, an emphasis mark, a short HTML tag. */
size_t hri_line_dressing(const char *line, size_t count, size_t at);
/* Drops terminal escapes and characters that nobody sees in place, so that a coloured "[rank3]:" is seen as a prefix; returns the new
 * length. */
size_t hri_line_drop_escapes(char *line, size_t count);
/* Where a line that is too long to be read as one may be parted, close to its end and not at its beginning: amid no tag, word, escape or
 * character, if there is such a place. */
size_t hri_line_cut(const char *line, size_t count);
/* Whether the line is how a shell reports SIGKILL. */
bool hri_line_reports_kill(const char *line, size_t count, size_t start);
/* Whether line[from, to) is a progress bar and nothing else. */
bool hri_line_is_bar(const char *line, size_t from, size_t to);
/* The rank whose prefix stands at line[at], which ends at *behind, and whose the part behind it is; -1 when none does. */
int32_t hri_line_rank_at(const char *line, size_t count, size_t at, size_t *behind, int64_t *who);
/* Where the part of the raw line that starts at `from` ends: before the prefix of a rank that is not the first. */
size_t hri_line_part_end(const char *line, size_t count, size_t from);

#endif
