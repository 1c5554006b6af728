/* One raw line into the window. Its prefix - "[rank3]:", "# ", a time stamp - is taken off and kept as a mark: whose
 * line it is, and what it showed before it lost its form. A line that goes on with what the line before left off - a
 * broken word, a string literal, the rest of one that was too long - is joined to it; a rank that begins to speak
 * within a line, behind another's progress bar, gets a mark there.
 *
 * The neighbours may rely on this: all text of the window has a mark that tells its rank, its line and what that line
 * was; a shell's report of SIGKILL is followed by " (sigkill)", the words of a head. */
#include "explain/scan_intake.h"

#include <string.h>

#include "explain/line.h"
#include "explain/match.h"
#include "explain/report.h"
#include "explain/scan_carrier.h"

/* Where back quotes are open at the raw line's text, whose prefix ends at `at`: SIZE_MAX when none are. */
static size_t open_tick(const hri_scan_intake *in, const hri_scan_window *w, size_t at) {
  bool open = false;
  for (size_t i = 0; i < at; i++)
    if (in->line[i] == '`' && (i == 0 || in->line[i - 1] != '`')) open = !open;
  return open ? w->count : SIZE_MAX;
}

/* Where the raw line goes on with a string literal that the line before left off, behind its quote; `at` when it does
 * not. */
static size_t literal_start(const hri_scan_intake *in, const hri_scan_window *w, size_t at, size_t count) {
  const size_t end = hri_scan_text_end(w);
  size_t from = at;
  while (from < count && hri_line_is_blank(in->line[from])) from++;
  if (end == 0 || w->count - end > 1 || w->text[end - 1] != '"' || from + 1 >= count) return at;
  if (in->continued || in->line[from] != '"' || in->line[from + 1] == ':' || in->line[from + 1] == ',') return at;
  return w->marks.count > 0 && end - 1 > w->marks.items[w->marks.count - 1].offset ? from + 1 : at;
}

/* The same; takes the quote off the end of the window: "... has a total " goes on as "capacity of ...". */
static size_t join_literal(const hri_scan_intake *in, hri_scan_window *w, size_t at, size_t count) {
  const size_t start = literal_start(in, w, at, count);
  if (start == at) return at;
  w->count -= w->text[w->count - 1] == ' ' ? 2 : 1;
  if (w->text[w->count - 1] != ' ') hri_scan_window_add_blank(w);
  return start;
}

/* A line that stands between quotation marks as documents set them, whole: nobody's literal. Moves `at` behind the
 * first and returns where the last begins. */
static size_t skip_quotes(const char *line, size_t *at, size_t count) {
  size_t from = *at, to = count;
  while (from < to && hri_line_is_blank(line[from])) from++;
  while (to > from && hri_line_is_blank(line[to - 1])) to--;
  if (to - from < 8 || !hri_match_at(line, from, to, "\xe2\x80\x9c") || !hri_match_end(line, from, to, "\xe2\x80\x9d"))
    return count;
  *at = from + 3;
  return to - 3;
}

/* What a raw line that is no rest of another says of itself; returns where its text begins. */
static size_t begin_line(hri_scan_intake *in, hri_scan_window *w, size_t count) {
  hri_scan_mark *said = &in->said;
  size_t at, from;
  said->rank = -1;
  said->who = -1;
  at = hri_line_skip_prefix(in->line, count, &said->rank, &said->who);
  from = said->who >= 0 ? at : 0; /* a worker's name is no part of a statement */
  said->shape = hri_line_shape(in->line, count, at);
  said->shape |= hri_scan_see_fence(&in->blocks, in->line, count);
  said->source = hri_scan_source_of(&in->blocks, w, in->line + from, count - from, in->lines + 1, said->source);
  if (hri_scan_see_scalar(&in->blocks, in->line, count) || hri_scan_see_exception(&in->blocks, in->line, count)) {
    said->source = HRI_SOURCE_NONE;
    said->shape |= HRI_OOM_PRINTED;
  }
  return at;
}

/* Adds the raw line from `at` on, each rank's part with its mark; `joined`: the first one goes on under the last
 * mark. */
static bool add_parts(hri_scan_intake *in, hri_scan_window *w, size_t at, size_t count, bool joined) {
  size_t open = open_tick(in, w, at), end;
  bool kept = true;
  in->said.line = in->lines + 1;
  while (at < count && kept) {
    end = hri_line_part_end(in->line, count, at);
    in->said.bar = hri_line_is_bar(in->line, at, end);
    kept = (joined || hri_scan_window_mark(w, in->said)) && hri_scan_window_add(w, in->line, at, end, open);
    joined = false;
    open = SIZE_MAX;
    at = end;
    if (end < count) {
      in->said.rank = hri_line_rank_at(in->line, count, end, &at, &in->said.who);
      hri_scan_window_add_blank(w);
    }
  }
  return kept;
}

static void add_kill(hri_scan_window *w) {
  static const char words[] = " (sigkill)";
  memcpy(w->text + w->count, words, sizeof words - 1);
  w->count += sizeof words - 1;
}

void hri_scan_intake_open(hri_scan_intake *in) {
  size_t count = hri_line_drop_escapes(in->line, hri_scan_open_object(in->line, in->count));
  if (count > 1 && hri_line_is_blank(in->line[count - 1]) && hri_line_is_blank(in->line[count - 2]))
    while (count > 0 && hri_line_is_blank(in->line[count - 1])) count--; /* what a terminal's copy fills up with */
  count = hri_scan_drop_number(&in->numbers, in->line, count, in->lines + 1);
  in->count = hri_scan_take_from_carrier(in->line, count, &in->dated);
}

/* Whether the line is a record of the log that carries it: no part of a page or of a source, which it may carry, too. A page's titles are of
 * one word, or marked, its paragraphs stand apart or end as sentences do. */
static bool is_record(const hri_scan_intake *in, size_t count) {
  enum { LONG = 60 };
  if (count > LONG && strchr(".:?!", in->line[count - 1])) return false;
  return in->said.source == HRI_SOURCE_NONE && !in->apart && memchr(in->line, ' ', count) &&
         !(in->said.shape & (HRI_OOM_ROW | HRI_OOM_HEADING | HRI_OOM_COMMENT));
}

bool hri_scan_intake_add(hri_scan_intake *in, hri_scan_window *w, bool complete) {
  const bool whole = !in->continued && complete;
  bool joined = false, kill = false, kept;
  size_t count = whole ? hri_scan_open_output(&in->blocks, in->line, in->count)
                       : hri_scan_decode_entities(in->line, hri_line_drop_escapes(in->line, in->count)),
         at = 0;
  if (whole) joined = hri_scan_wrap_goes_on(&in->wrap, w, in->line, count, in->lines + 1) && w->marks.count > 0;
  if (joined) {
    hri_scan_window_drop_blank(w);
  } else if (!in->continued) {
    at = begin_line(in, w, count);
    if (whole && in->dated && is_record(in, count)) in->said.shape |= HRI_OOM_DATED;
    in->apart = count == 0;
    kill = complete && hri_line_reports_kill(in->line, count, at);
    if (kill && in->line[0] == '*') /* no item, no heading */
      in->said.shape &= (uint16_t)~(HRI_OOM_COMMENT | HRI_OOM_HEADING);
  }
  count = skip_quotes(in->line, &at, count);
  at = join_literal(in, w, at, count);
  kept = add_parts(in, w, at, count, joined);
  if (kill) add_kill(w); /* in the words of a head */
  if (complete) hri_scan_window_add_blank(w);
  else hri_scan_wrap_forget(&in->wrap);
  in->count = 0;
  in->continued = !complete;
  return kept;
}
