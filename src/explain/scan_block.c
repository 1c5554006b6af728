/* Blocks of lines: what stands between fences is output or code, what stands in a long literal is the program's,
 * whatever it says, and what a notebook keeps as an array of literals was printed. A line shows none of this by itself,
 * so the state is carried from line to line.
 *
 * The neighbours may rely on this: a block that is never closed ends by itself but for a fence (a literal or a diagram after 60
 * lines, a comment after 100, a notebook's output at the first line that is no literal), so that one quote too many costs no more than that;
 * and what a line is may still change while it is in the window, since a text in quotes turns out to be a comment only
 * by the line behind it. */
#include "explain/scan_block.h"

#include <string.h>

#include "explain/line.h"
#include "explain/match.h"
#include "explain/report.h"

/* ---- a notebook's output ---- */

size_t hri_scan_open_output(hri_scan_blocks *b, char *line, size_t count) {
  enum { LONGEST = 2000, BESIDE = 4 };
  size_t from = 0, to = count;
  while (from < to && hri_line_is_blank(line[from])) from++;
  while (to > from && (hri_line_is_blank(line[to - 1]) || line[to - 1] == ',')) to--;
  if (b->output_type > 0) b->output_type--;
  if (from == to) return count;
  if (hri_match_at(line, from, to, "\"output_type\": ")) b->output_type = BESIDE;
  if (b->output_lines > 0) {
    b->output_lines = line[from] == '"' ? b->output_lines - 1 : 0;
    if (b->output_lines == 0 || to - from < 2 || line[to - 1] != '"') return count;
    memmove(line, line + from + 1, to - from - 2);
    count = to - from - 2;
    return hri_match_end(line, 0, count, "\\n") ? count - 2 : count;
  }
  if ((hri_match_at(line, from, to, "\"traceback\": [") && to - from == 14) ||
      (b->output_type > 0 && hri_match_at(line, from, to, "\"text\": [") && to - from == 9))
    b->output_lines = LONGEST;
  return count;
}

/* ---- fences ---- */

uint16_t hri_scan_see_fence(hri_scan_blocks *b, const char *line, size_t count) {
  size_t at = 0;
  while (at < count && (hri_line_is_blank(line[at]) || line[at] == '>')) at++;
  if (at == 0 && count > 1 && line[0] == '+') at++; /* of a difference */
  if (at + 2 < count && memcmp(line + at, "```", 3) == 0 && !memchr(line + at + 3, '`', count - at - 3)) {
    b->fenced = !b->fenced;
    return 0;
  }
  return b->fenced ? HRI_OOM_FENCED : 0;
}

/* ---- what Python prints of bytes and exceptions ---- */

/* Where the quote is of the literal that begins the line, alone, as the first of a tuple, `(b'...'`, or behind the label of a
 * stream, `stderr: "..."`; `to` when none does. Indented it is an element of somebody's list. */
static size_t printed_literal(const char *line, size_t to) {
  static const char labels[] = "stderr: |stdout: |output: |Stderr: |Stdout: |Output: |STDERR: |STDOUT: |OUTPUT: ";
  size_t first = 0, at;
  while (first < to && hri_line_is_blank(line[first])) first++;
  at = hri_match_next(line, first, to, labels);
  const bool labelled = at > first;
  while (!labelled && first == 0 && at < to && at < 2 && strchr("[(", line[at])) at++;
  if (at < to && line[at] == 'b') at++;
  else if (!labelled) return to;
  return at < to && (labelled || first == 0) && strchr("'\"", line[at]) ? at : to;
}

bool hri_scan_find_printed(const char *line, size_t count, size_t *from, size_t *to) {
  size_t end = count, at;
  if (!memchr(line, '\\', count)) return false; /* nearly all lines */
  at = printed_literal(line, count);
  if (at == count) return false;
  while (end > at && (strchr(" \t,)]", line[end - 1]) || hri_is_digit(line[end - 1]))) end--;
  if (end < at + 4 || line[end - 1] != line[at] || hri_oom_word(line, at, end, "\\n") == end) return false;
  *from = at + 1;
  *to = end - 1;
  return true;
}

/* "package.module.SomeError(" alone on its line, as an exception over several lines is printed. */
static bool opens_exception(const char *line, size_t count) {
  size_t at = 0;
  bool dotted = false;
  if (count == 0 || line[count - 1] != '(') return false;
  while (at < count && (hri_is_name(hri_line_lower(line[at])) || (line[at] == '.' && at > 0)))
    dotted |= line[at++] == '.';
  return dotted && at + 1 == count && line[at] == '(' && hri_match_end(line, 0, at, "Error|Exception");
}

bool hri_scan_see_exception(hri_scan_blocks *b, const char *line, size_t count) {
  enum { LONGEST = 20 };
  if (b->exception_lines > 0) {
    b->exception_lines = count > 0 && line[0] == ')' ? 0 : b->exception_lines - 1;
    return true;
  }
  if (!opens_exception(line, count)) return false;
  b->exception_lines = LONGEST;
  return true;
}

/* ---- texts of YAML ---- */

bool hri_scan_see_scalar(hri_scan_blocks *b, const char *line, size_t count) {
  enum { LONGEST = 60 };
  if (b->scalar_lines > 0) {
    b->scalar_lines = hri_source_closes_scalar(line, 0, count) ? 0 : b->scalar_lines - 1;
    return true;
  }
  if (!hri_source_opens_scalar(line, count)) return false;
  b->scalar_lines = LONGEST;
  return true;
}

/* ---- literals over several lines ---- */

/* What stands in the lines [first, last] is a program's after all. */
static void make_source(hri_scan_window *w, uint64_t first, uint64_t last) {
  for (size_t i = w->marks.count; i-- > 0 && w->marks.items[i].line >= first;)
    if (w->marks.items[i].line <= last) w->marks.items[i].source = HRI_SOURCE_CODE;
}

/* Whether what stands in the window so far ends amid a statement: "setprompt(". */
static bool goes_on(const hri_scan_window *w) {
  const size_t end = hri_scan_text_end(w);
  return end > 0 && strchr("([{=,+:?", w->text[end - 1]);
}

/* How often quotes over several lines stand in the raw line: `only` if one is given, else the first kind that does,
 * which *quote becomes. */
static unsigned count_quotes(const char *line, size_t count, const char *only, const char **quote) {
  static const char *const kinds[] = {"\"\"\"", "'''", "`"};
  unsigned seen = 0;
  for (size_t i = 0; i < HRI_COUNT(kinds) && !seen; i++) {
    *quote = only ? only : kinds[i];
    for (size_t at = hri_oom_word(line, 0, count, *quote); at < count;
         at = hri_oom_word(line, at + strlen(*quote), count, *quote))
      seen++;
    if (only) break;
  }
  return seen;
}

/* Whether a statement on the line, whose text starts at `first`, opens a literal by that quote: `text = """`,
 * "say(`". */
static bool opens_literal(const hri_scan_window *w, const char *line, size_t first, size_t count, const char *quote,
                          hri_source_kind before) {
  if (quote[0] != '`') return hri_source_opens_literal(line, count);
  return (before == HRI_SOURCE_CODE && line[first] == '`' && first + 3 < count && goes_on(w)) ||
         hri_match_end(line, first, count, "= `|+ `|(`") ||
         (hri_match_part(line, first, count, "= `") && hri_match_at(line, first, count, "const |let |var |return "));
}

/* Whether the raw line is nothing but three quotes, with a remark at most, that close a literal of which the text shows no
 * beginning: behind what no program says, at the margin, where a docstring's are not. */
static bool closes_unseen(const hri_scan_window *w, const char *line, size_t count, hri_source_kind before) {
  const hri_scan_mark *last = w->marks.count > 0 ? &w->marks.items[w->marks.count - 1] : NULL;
  const size_t remark = hri_oom_word(line, 0, count, "  # ");
  if (remark < count) count = remark;
  while (count > 0 && hri_line_is_blank(line[count - 1])) count--;
  return last && count == 3 && before == HRI_SOURCE_NONE && hri_match_at(line, 0, count, "\"\"\"|'''");
}

/* A line in a literal that is open, with so many of its quotes: what it is, whose own kind is `own`. */
static hri_source_kind within_literal(hri_scan_blocks *b, unsigned quotes, uint64_t number, hri_source_kind own) {
  b->literal_lines--;
  if (quotes % 2 != 0) {
    b->literal_lines = 0;
    b->comment_end = b->is_comment ? number : 0;
  }
  return b->is_comment ? own : HRI_SOURCE_CODE;
}

/* Whether the line is part of a comment of C's kin that began on a line of its own: what goes on is set in, or begins with an
 * asterisk. A banner of asterisks is anybody's. */
static bool see_remark(hri_scan_blocks *b, const char *line, size_t first, size_t count) {
  enum { LONGEST = 100 };
  if (b->remark_lines > 0) {
    if (first == 0 && count > 0 && line[0] != '*') { /* at the margin: no comment's, or one that never ends */
      b->remark_lines = 0;
      return false;
    }
    b->remark_lines = hri_oom_word(line, 0, count, "*/") < count ? 0 : b->remark_lines - 1;
    return true;
  }
  if (hri_match_at(line, first, count, "/*") && (first + 2 == count || strchr(" *!", line[first + 2])) &&
      !hri_match_at(line, first, count, "/***") && hri_oom_word(line, first, count, "*/") == count)
    b->remark_lines = LONGEST;
  return false;
}

/* The source of a diagram between its fences: what stood there becomes a program's when the second one comes, so that an output that is cut
 * off behind the first, or goes on for long, is none. */
static void see_diagram(hri_scan_blocks *b, hri_scan_window *w, const char *line, size_t count, uint64_t number) {
  enum { LONGEST = 60 };
  if (b->diagram_lines == 0) {
    if (!hri_source_opens_diagram(line, count)) return;
    b->diagram_lines = LONGEST;
    b->diagram_start = number;
    return;
  }
  b->diagram_lines--;
  if (!hri_source_closes_diagram(line, count)) return;
  make_source(w, b->diagram_start, number);
  b->diagram_lines = 0;
}

/* A text that begins with the quotes is a comment on what follows: it speaks for itself unless a program follows. */
hri_source_kind hri_scan_source_of(hri_scan_blocks *b, hri_scan_window *w, const char *line, size_t count,
                                   uint64_t number, hri_source_kind before) {
  enum { LONGEST = 60 };
  const hri_source_kind own = hri_source_of(line, count);
  const char *quote;
  const unsigned quotes = count_quotes(line, count, b->literal_lines > 0 ? b->literal_quote : NULL, &quote);
  size_t first = 0;
  bool opens;
  if (b->literal_lines > 0) return within_literal(b, quotes, number, own);
  while (first < count && hri_line_is_blank(line[first])) first++;
  see_diagram(b, w, line, count, number);
  if (see_remark(b, line, first, count)) return HRI_SOURCE_CODE;
  if (b->comment_end > 0 && first < count) { /* the first line behind a comment */
    if (own == HRI_SOURCE_CODE) make_source(w, b->literal_start, b->comment_end);
    b->comment_end = 0;
  }
  if (quotes % 2 == 0) return own;
  if (closes_unseen(w, line, count, before)) {
    make_source(w, number > LONGEST ? number - LONGEST : 1, number);
    return own;
  }
  opens = opens_literal(w, line, first, count, quote, before);
  /* a field of an object, which a console prints with such quotes, speaks for itself likewise */
  b->is_comment = opens ? own == HRI_SOURCE_LITERAL : hri_match_at(line, first, count, "\"\"\"|'''");
  if (b->is_comment && before == HRI_SOURCE_CODE && goes_on(w)) { /* of the definition that the line before opens */
    opens = true;
    b->is_comment = false;
  }
  if (!opens && !b->is_comment) return own;
  b->literal_lines = LONGEST;
  b->literal_quote = quote;
  b->literal_start = number;
  return own;
}
