/* The one form of a text. People's logs colour words, set them in bold or between back quotes, come from a document or
 * a JSON string: so letters are made lower, blanks and line ends one blank, emphasis and terminal escapes are dropped,
 * a document's quotation marks become those of a keyboard. What stood between back quotes is remembered, since talk.c
 * asks for it.
 *
 * The neighbours may rely on this: a byte of a raw line makes at most one here, and none of it is looked at again;
 * which bytes of a line come here at all (its prefix does not) is scan_intake.c's. The window never grows:
 * HRI_SCAN_BYTES and a raw line. */
#include "explain/scan_window.h"

#include <string.h>

#include "explain/line.h"
#include "explain/match.h"

hr_status hri_scan_window_init(hri_scan_window *window, hr_error *error) {
  window->text = hri_alloc(HRI_SCAN_BYTES + HRI_SCAN_LINE);
  return window->text ? HR_OK : hri_fail_memory(error, HRI_SCAN_BYTES + HRI_SCAN_LINE, "a window of the log");
}

void hri_scan_window_deinit(hri_scan_window *window) {
  hri_free(window->text);
  hri_array_free(&window->marks);
  hri_array_free(&window->ticks);
}

bool hri_scan_window_mark(hri_scan_window *w, hri_scan_mark mark) {
  mark.offset = (uint32_t)w->count;
  if (w->marks.count > 0 && w->marks.items[w->marks.count - 1].offset == mark.offset) {
    w->marks.items[w->marks.count - 1] = mark;
    return true;
  }
  return hri_array_push(&w->marks, mark);
}

void hri_scan_window_add_blank(hri_scan_window *w) {
  if (w->count > 0 && w->text[w->count - 1] != ' ') w->text[w->count++] = ' ';
}

void hri_scan_window_drop_blank(hri_scan_window *w) {
  if (w->count == 0 || w->text[w->count - 1] != ' ') return;
  w->count--;
  if (w->searched > w->count) w->searched = w->count;
}

/* ---- what is written otherwise ---- */

/* A back quote where the window has come to its end: what two of them enclose is remembered. */
static bool see_tick(hri_scan_window *w, size_t *open) {
  hri_scan_span found = {(uint32_t)*open, (uint32_t)w->count};
  if (*open == SIZE_MAX) {
    *open = w->count;
    return true;
  }
  *open = SIZE_MAX;
  return found.from == found.to || hri_array_push(&w->ticks, found);
}

/* What a character of three bytes, as documents set it, is on a keyboard: a quotation mark, an apostrophe, a hyphen, a
 * blank; 0 when it is none of these. */
static char plain_of(const char *c) {
  static const struct {
    unsigned char last;
    char plain;
  } marks[] = {{0x9c, '"'},  {0x9d, '"'}, {0x9e, '"'}, {0x98, '\''},
               {0x99, '\''}, {0x91, '-'}, {0x89, ' '}, {0xaf, ' '}};
  for (size_t i = 0; i < HRI_COUNT(marks) && c[1] == (char)0x80; i++)
    if (c[2] == (char)marks[i].last) return marks[i].plain;
  return 0;
}

/* Where a tag of a page at line[at] ends, `<td class="x">`, `</pre>`, `<br />`; `at` when it is none. *word: it stands within a
 * line and parts no words. */
static size_t behind_tag(const char *line, size_t at, size_t end, bool *word) {
  static const char blocks[] = "br|td|tr|th|table|tbody|thead|pre|p|li|ul|ol|div|meta|h1|h2|h3|h4|h5|h6";
  static const char words[] = "span|font|samp|tt|kbd|a";
  enum { LONGEST = 200 };
  size_t name = at + 1 + (at + 1 < end && line[at + 1] == '/'), to = name;
  const char *close;
  while (to < end && hri_is_name(line[to])) to++;
  *word = hri_match_next(line, name, to, words) == to;
  if (to == name || to == end || !strchr(" />", line[to]) || (!*word && hri_match_next(line, name, to, blocks) != to))
    return at;
  close = memchr(line + to, '>', end - to < LONGEST ? end - to : LONGEST);
  return close ? (size_t)(close - line) + 1 : at;
}

/* Whether a character is neither a blank nor the first of what is dressed or written otherwise. */
static inline bool is_plain(char c) {
  return (c > ' ' && c < 0x7f && c != '*' && c != '`' && c != '<' && c != '\\' && c != '&') ||
         ((unsigned char)c >= 0x80 && c != (char)0xc2 && c != (char)0xe2 && c != (char)0xe3);
}

/* Whether the backslash at line[at] parts two names of a path that begins with a drive, "e:\tools\new"; where the path's
 * backslashes are written twice, "e:\\tools\\new", a single one begins an escape. */
static bool is_in_path(const char *line, size_t at) {
  enum { FAR = 260 };
  const size_t least = at > FAR ? at - FAR : 0;
  for (size_t i = at; i > least;) {
    const char c = line[--i];
    if ((unsigned char)c <= ' ' || c == '"' || c == '\'' || c == '<' || c == '>' || c == '|') return false;
    if (c != ':' || line[i + 1] != '\\' || i == 0 || !hri_is_letter(hri_line_lower(line[i - 1]))) continue;
    if (i > 1 && hri_is_name(hri_line_lower(line[i - 2]))) continue;
    return line[i + 2] != '\\' || (at > i + 1 && line[at - 1] == '\\');
  }
  return false;
}

/* One character at line[at] that is_plain does not know and that dresses nothing; returns where the next one is. */
static size_t add_other(hri_scan_window *w, const char *line, size_t at, size_t end) {
  const char c = line[at];
  size_t behind;
  bool word;
  if (c == '\\' && at + 1 < end && (line[at + 1] == 'n' || line[at + 1] == 't') && !is_in_path(line, at)) {
    hri_scan_window_add_blank(w); /* a line end inside a JSON string */
    return at + 2;
  }
  if (c == (char)0xc2 && at + 1 < end && line[at + 1] == (char)0xa0) {
    hri_scan_window_add_blank(w); /* the blank that does not break */
    return at + 2;
  }
  if (c == (char)0xc2 && at + 1 < end && (line[at + 1] == (char)0xab || line[at + 1] == (char)0xbb)) {
    w->text[w->count++] = '"'; /* as French and Russian set it */
    return at + 2;
  }
  if (c == (char)0xe2 && at + 2 < end && plain_of(line + at)) {
    if (plain_of(line + at) == ' ') hri_scan_window_add_blank(w);
    else w->text[w->count++] = plain_of(line + at);
    return at + 3;
  }
  if (c == (char)0xe3 && hri_match_at(line, at, end, "\xe3\x80\x80")) {
    hri_scan_window_add_blank(w); /* as wide as an ideograph */
    return at + 3;
  }
  if (c == '<' && (behind = behind_tag(line, at, end, &word)) > at) {
    if (!word) hri_scan_window_add_blank(w);
    return behind;
  }
  if (hri_line_is_blank(c)) hri_scan_window_add_blank(w);
  else w->text[w->count++] = hri_line_lower(c);
  return at + 1;
}

bool hri_scan_window_add(hri_scan_window *w, const char *line, size_t at, size_t end, size_t open) {
  bool kept = true;
  while (at < end) {
    const char c = line[at];
    size_t skip;
    if (is_plain(c)) { /* nearly all there is */
      w->text[w->count++] = hri_line_lower(c);
      at++;
      continue;
    }
    skip = hri_line_dressing(line, end, at);
    if (c == '`' && (at == 0 || line[at - 1] != '`')) /* a run of them is one */
      kept = see_tick(w, &open) && kept;
    at = skip ? at + skip : add_other(w, line, at, end);
  }
  return kept && (open == SIZE_MAX || see_tick(w, &open)); /* or closed in the next line */
}

/* ---- sliding ---- */

static void move_ticks(hri_scan_window *w, size_t drop) {
  size_t kept = 0;
  for (size_t i = 0; i < w->ticks.count; i++)
    if (w->ticks.items[i].to > drop) {
      hri_scan_span moved = w->ticks.items[i];
      moved.from = moved.from > drop ? moved.from - (uint32_t)drop : 0;
      moved.to -= (uint32_t)drop;
      w->ticks.items[kept++] = moved;
    }
  w->ticks.count = kept;
}

static void move_marks(hri_scan_window *w, size_t drop) {
  size_t kept = 0;
  for (size_t i = 0; i < w->marks.count; i++) {
    hri_scan_mark moved = w->marks.items[i];
    bool covers = i + 1 == w->marks.count || w->marks.items[i + 1].offset > drop;
    if (!covers) continue;
    moved.offset = moved.offset > drop ? (uint32_t)(moved.offset - drop) : 0;
    w->marks.items[kept++] = moved;
  }
  w->marks.count = kept;
}

void hri_scan_window_slide(hri_scan_window *w, size_t drop) {
  memmove(w->text, w->text + drop, w->count - drop);
  w->count -= drop;
  w->searched -= drop;
  move_ticks(w, drop);
  move_marks(w, drop);
}
