/* What the lines around a word say of its line: whether a program's source is close, whether it is a title, where its
 * sentence begins if it was wrapped, where the block of output begins that holds it and what line introduces that.
 * Marks tell what each line was by itself (scan_intake.c); here they are read together.
 *
 * The neighbours may rely on this: nothing is looked at that is further away than some lines or HRI_SCAN_BEHIND bytes,
 * so a place costs the same in a log of any length. What the words of these lines mean is not judged here but for
 * whether one ends as an introduction does: that is foreseen.c's. */
#include "explain/scan_place.h"

#include "explain/match.h"

/* How much of a line is looked at on both sides of the word. */
enum { LINE_BEHIND = 320, LINE_AHEAD = 400 };

/* "mkdir: cannot create ...": who speaks begins a line of its own. */
static bool opens_with_label(const char *text, size_t at, size_t to) {
  size_t end = at;
  while (end < to && (hri_is_letter(text[end]) || text[end] == '-')) end++;
  return end > at + 1 && hri_match_at(text, end, to, ": cannot|: could|: failed|: fatal|: error|: unable");
}

/* Where prose that was wrapped into the line of mark `m` begins: the line before it, when that one is long, has words
 * and is left open. */
static size_t wrapped_start(const hri_scan_window *w, size_t m) {
  size_t line = w->marks.items[m].offset, from, end, blanks = 0, digits = 0;
  if (m == 0 || w->marks.items[m - 1].who != w->marks.items[m].who) return line;
  if (w->marks.items[m].line - w->marks.items[m - 1].line > 1) return line;
  from = w->marks.items[m - 1].offset;
  for (end = line; end > from && w->text[end - 1] == ' ';) end--;
  if (end - from < 30 || end - from > 160 || w->marks.items[m - 1].bar) return line;
  for (size_t i = from; i < end; i++) {
    blanks += w->text[i] == ' ';
    digits += hri_is_digit(w->text[i]);
  }
  if (opens_with_label(w->text, line, w->count)) return line;
  if (digits > (end - from) / 6) return line;                                 /* what a program counted is no prose */
  if (hri_match_at(w->text, line, w->count, "killed (sigkill)")) return line; /* a shell's line */
  return blanks >= 5 && (hri_is_letter(w->text[end - 1]) || strchr(",)'", w->text[end - 1])) ? from : line;
}

/* ---- source around ---- */

/* Whether mark `m` is a comment of C's kin, or one behind a difference's sign: logs have neither. */
static bool is_slashed(const hri_scan_window *w, size_t m) {
  const size_t from = w->marks.items[m].offset;
  size_t at = from;
  while (at < w->count && strchr("+- ", w->text[at]) && w->text[at]) at++;
  return w->marks.items[m].shape & HRI_OOM_REMARK && hri_match_at(w->text, at, w->count, at > from ? "//|#" : "//");
}

/* Whether mark `m` stands in a comment of several lines, of which this one is no more than an example. */
static bool is_in_long_comment(const hri_scan_window *w, size_t m) {
  enum { LONG = 5, NEAR = 4 };
  size_t from = m, to = m;
  while (from > 0 && m - from < LONG && w->marks.items[from - 1].shape & HRI_OOM_REMARK) from--;
  while (to + 1 < w->marks.count && to - m < LONG && w->marks.items[to + 1].shape & HRI_OOM_REMARK) to++;
  if (is_slashed(w, m)) { /* also one for each field */
    unsigned others = 0;
    for (size_t i = m < NEAR ? 0 : m - NEAR; i <= m + NEAR && i < w->marks.count; i++)
      others += i != m && is_slashed(w, i);
    return others >= 2 || (others > 0 && strchr("+-", w->text[w->marks.items[m].offset]));
  }
  return w->marks.items[m].shape & HRI_OOM_REMARK && m - from >= 2 && to - from >= LONG;
}

/* Whether mark `m` is a comment beside a block's other lines, which have no such mark: of commands, or of a program. */
static bool is_beside_commands(const hri_scan_window *w, size_t m) {
  enum { FAR = 12 };
  const uint16_t both = HRI_OOM_REMARK | HRI_OOM_FENCED;
  const hri_scan_mark *marks = w->marks.items;
  if ((marks[m].shape & both) != both) return false;
  for (size_t i = m; i-- > 0 && m - i < FAR && marks[i].shape & HRI_OOM_FENCED;)
    if (!(marks[i].shape & HRI_OOM_REMARK)) return true;
  return false;
}

/* Whether mark `i` is the first or last line of an object as Python prints it, "Linear(" above "(weight): ...", ")". */
static bool is_of_print(const hri_scan_window *w, size_t i) {
  const size_t from = w->marks.items[i].offset, end = hri_scan_mark_end(w, i);
  size_t at = end + 1;
  if (w->text[from] == ')' && end - from <= 2) return true;
  if (i + 1 >= w->marks.count || w->text[end] != '(') return false;
  while (at < w->count && hri_is_name(w->text[at])) at++;
  return hri_match_at(w->text, at, w->count, "): ");
}

/* Whether mark `i` stands for a program's source that the line of mark `m` may be part of: of the same block, and no line that a
 * traceback or a warning shows. Fields beside a field are no sign. */
static bool is_source_beside(const hri_scan_window *w, size_t i, size_t m) {
  const hri_scan_mark *mark = &w->marks.items[i];
  if (i == m || (mark->shape ^ w->marks.items[m].shape) & HRI_OOM_FENCED) return false;
  if ((i > 0 && w->marks.items[i - 1].source == HRI_SOURCE_FRAME) || is_of_print(w, i)) return false;
  return mark->source == HRI_SOURCE_CODE ||
         (mark->source == HRI_SOURCE_FIELD && w->marks.items[m].source != HRI_SOURCE_FIELD);
}

/* Whether no blank line stands between two marks. */
static bool is_one_block(const hri_scan_window *w, size_t from, size_t to) {
  return w->marks.items[to].line - w->marks.items[from].line <= to - from;
}

/* Whether mark `m` is the text's first line and an empty one follows: a title, though "#" begins it. */
static bool is_first(const hri_scan_window *w, size_t m) {
  return w->marks.items[m].line == 1 && m + 1 < w->marks.count && w->marks.items[m + 1].line > 2;
}

/* Whether mark `m` is a thread's title, "# x", as some who store threads write it: who began it stands below, "name \xc2\xb7 description". */
static bool is_thread(const hri_scan_window *w, size_t m) {
  static const char begun[] = " \xc2\xb7 description";
  return is_first(w, m) && w->marks.items[m].shape & HRI_OOM_REMARK &&
         hri_match_part(w->text, w->marks.items[m + 1].offset, hri_scan_mark_end(w, m + 1), begun);
}

/* Whether a program's source stands around the line of mark `m`, close by: on both sides, right beside it, or anywhere beside
 * a comment. What was pasted before the message that it led to stands on one side, and a blank line between. */
static bool is_among_source(const hri_scan_window *w, size_t m) {
  enum { REACH = 6 };
  const size_t from = m < REACH ? 0 : m - REACH, to = m + REACH < w->marks.count ? m + REACH : w->marks.count - 1;
  bool before = false, behind = false;
  if (is_first(w, m) && w->marks.items[m].shape & HRI_OOM_REMARK) return false;
  if (is_in_long_comment(w, m) || is_beside_commands(w, m)) return true;
  for (size_t i = from; i <= to; i++) {
    if (!is_source_beside(w, i, m)) continue;
    if (w->marks.items[m].shape & HRI_OOM_REMARK || is_one_block(w, i < m ? i : m, i < m ? m : i)) return true;
    if (i < m) before = true;
    else behind = true;
  }
  return before && behind;
}

/* Whether mark `m` is among remarks that a program's statements enclose, line by line: nothing was pasted there. */
static bool is_enclosed(const hri_scan_window *w, size_t m) {
  enum { REACH = 12 };
  const uint16_t remark = HRI_OOM_REMARK | HRI_OOM_HASHES;
  const hri_scan_mark *marks = w->marks.items;
  size_t from = m, to = m;
  while (from > 0 && m - from < REACH && marks[from].shape & remark) from--;
  while (to + 1 < w->marks.count && to - m < REACH && marks[to].shape & remark) to++;
  return from < m && m < to && is_one_block(w, from, to) && is_source_beside(w, from, m) && is_source_beside(w, to, m);
}

/* Whether the line of mark `m` is a literal that is an element of a program's: its neighbour is source too. */
static bool is_element(const hri_scan_window *w, size_t m) {
  if (w->marks.items[m].source != HRI_SOURCE_LITERAL) return false;
  return (m > 0 && w->marks.items[m - 1].source != HRI_SOURCE_NONE) ||
         (m + 1 < w->marks.count && w->marks.items[m + 1].source != HRI_SOURCE_NONE);
}

/* ---- printed objects ---- */

/* Whether the field or element text[from, end) shows that a program printed the object which holds it: a frame of a stack, a
 * code, a count or a time, which who writes a table leaves out. */
static bool shows_output(const char *text, size_t from, size_t end) {
  static const char codes[] = "code|status|statuscode|status_code|errno|ok|exitcode|exit_code|pid|line|syscall";
  static const char times[] = "timestamp|time|date|ts|datetime|created|@timestamp|started|finished|when";
  size_t key, behind, at, digits;
  if (end - from > LINE_AHEAD) end = from + LINE_AHEAD;
  while (from < end && strchr(" {[\"'", text[from])) from++;
  if (hri_match_at(text, from, end, "at ") && hri_match_part(text, from, end, "(|.java:|.js:|.ts:|.py:|.cc:|native"))
    return true;
  if (hri_match_at(text, from, end, "caused by: |stacktrace\": [|stack_trace\": [|stacktrace: [")) return true;
  for (key = from; key < end && (hri_is_name(text[key]) || text[key] == '@');) key++;
  for (behind = key; behind < end && strchr("\"' ", text[behind]);) behind++;
  if (key == from || behind == end || text[behind] != ':') return false;
  for (at = behind + 1; at < end && strchr(" -\"'", text[at]);) at++;
  for (digits = at; digits < end && hri_is_digit(text[digits]);) digits++;
  if (digits == at) return false;
  if (hri_match_next(text, from, key, codes) == key || hri_match_next(text, from, key, times) == key) return true;
  return digits >= at + 4 && text[behind + 1] == ' ' && hri_is_digit(text[behind + 2]);
}

/* Whether mark `m` is a field or an element of an object that a program printed: beside it stands what nobody writes, and no
 * source. */
static bool is_printed(const hri_scan_window *w, size_t m) {
  enum { REACH = 12 };
  const hri_scan_mark *marks = w->marks.items;
  size_t from = m, to = m;
  if (marks[m].source != HRI_SOURCE_LITERAL && marks[m].source != HRI_SOURCE_FIELD) return false;
  while (from > 0 && m - from < REACH && marks[from].line - marks[from - 1].line <= 1) from--;
  while (to + 1 < w->marks.count && to - m < REACH && marks[to + 1].line - marks[to].line <= 1) to++;
  for (size_t i = from; i <= to; i++)
    if (i != m && shows_output(w->text, marks[i].offset, hri_scan_mark_end(w, i))) return true;
  return false;
}

/* ---- what introduces a block of output ---- */

/* Whether the line of mark `m` is a program's, or one that a traceback lists with its number: "111 else:". */
static bool is_listed(const hri_scan_window *w, size_t m) {
  size_t at = w->marks.items[m].offset;
  if (hri_source_is_code(w->marks.items[m].source) || w->marks.items[m].source == HRI_SOURCE_FIELD) return true;
  while (at < w->count && hri_is_digit(w->text[at])) at++;
  return at > w->marks.items[m].offset && at < w->count && w->text[at] == ' ';
}

/* "torch.outofmemoryerror:" at the end of text[from, end). */
static bool ends_with_class(const char *text, size_t from, size_t end) {
  size_t word = end;
  while (word > from && text[word - 1] != ' ') word--;
  return word + 1 < end && hri_match_end(text, word + 1, end, "error:|exception:");
}

/* Whether the line of mark `m`, which is not the last, ends with a colon that is no exception's. */
static bool is_intro(const hri_scan_window *w, size_t m) {
  size_t from = w->marks.items[m].offset, end = w->marks.items[m + 1].offset;
  while (end > from && w->text[end - 1] == ' ') end--;
  return end > from && w->text[end - 1] == ':' && !ends_with_class(w->text, from, end);
}

/* How many bytes from `from` on stand before the block of output that holds mark `m`: before the fence above, or before
 * its first line, where no more than BLOCK lines stand between that follow each other. A line of source introduces
 * nothing: 0. *begin is where the last line of it begins, or the one that it goes on with. */
static size_t intro_of(const hri_scan_window *w, size_t m, size_t from, size_t *begin) {
  enum { BLOCK = 6 };
  const hri_scan_mark *marks = w->marks.items;
  size_t at = m;
  while (m > 0 && marks[m].offset > from && marks[m].shape & HRI_OOM_FENCED && marks[m - 1].shape & HRI_OOM_FENCED) m--;
  if (!(marks[m].shape & HRI_OOM_FENCED)) {
    while (at > 0 && m - at < BLOCK && marks[at].line - marks[at - 1].line <= 1 && !is_intro(w, at - 1)) at--;
    if (at > 0 && marks[at].line - marks[at - 1].line <= 2 && is_intro(w, at - 1)) m = at;
  }
  *begin = 0;
  if (m > 0 && is_listed(w, m - 1)) return 0;
  if (m > 0 && wrapped_start(w, m - 1) > from) *begin = wrapped_start(w, m - 1) - from;
  return marks[m].offset > from ? marks[m].offset - from : 0;
}

/* ---- tables of codes ---- */

/* The number that the line of mark `m` begins with, before words and no other number: "137 oomkilled", "137: killed"; -1: it is no such row. */
static int32_t code_of_row(const hri_scan_window *w, size_t m) {
  const size_t end = hri_scan_mark_end(w, m);
  size_t at = w->marks.items[m].offset, letters = 0;
  int32_t code = 0;
  while (at < end && strchr("-* ", w->text[at])) at++;
  const size_t digits = at;
  for (; at < end && at < digits + 3 && hri_is_digit(w->text[at]); at++) code = code * 10 + (w->text[at] - '0');
  if (at == digits || at >= end || !strchr(" ,:=-", w->text[at])) return -1;
  if (hri_match_part(w->text, at, end, "error: |exception: |traceback (")) return -1; /* a listing with its numbers */
  for (; at < end; at++) {
    if (hri_is_digit(w->text[at])) return -1;
    letters += hri_is_letter(w->text[at]) || w->text[at] & 0x80;
  }
  return letters > 1 ? code : -1;
}

/* Whether mark `next` is a row of such codes below mark `m`, which has a lower one. */
static bool goes_up(const hri_scan_window *w, size_t m, size_t next) {
  enum { MOST = 255 };
  const int32_t a = code_of_row(w, m), b = a < 0 ? -1 : code_of_row(w, next);
  return b > a && b <= MOST && w->marks.items[next].line - w->marks.items[m].line <= 1;
}

/* Whether mark `m` heads a table of codes: it calls them so, at its end or beside what they mean, and has no row above. "Exit code of each try" heads
 * what happened. */
static bool names_codes(const hri_scan_window *w, size_t m, size_t row) {
  enum { LONGEST = 48, BELOW = 2 };
  static const char names[] = "code|codes|signal|signals|errno|fehlercode|exit-code|c\xc3\xb3"
                              "digo|codigo|codice|se\xc3\xb1"
                              "al|segnale";
  static const char parts[] =
      "\xd0\xba\xd0\xbe\xd0\xb4|\xd0\x9a\xd0\xbe\xd0\xb4|\xe4\xbb\xa3\xe7\xa0\x81|\xe9\x80\x80\xe5\x87\xba\xe7\xa0\x81|"
      "\xe9\x94\x99\xe8\xaf\xaf\xe7\xa0\x81|\xe4\xbf\xa1\xe5\x8f\xb7|\xe3\x82\xb3\xe3\x83\xbc\xe3\x83\x89|"
      "\xe3\x82\xb7\xe3\x82\xb0\xe3\x83\x8a\xe3\x83\xab|\xec\xbd\x94\xeb\x93\x9c"; /* Russian, Chinese, Japanese, Korean */
  static const char meanings[] = /* of a second column; the last ones are Japanese, Chinese, Russian, Korean */
      "meaning|reason|description|bedeutung|significado|significato|signification|"
      "\xe6\x84\x8f\xe5\x91\xb3|\xe5\x90\xab\xe4\xb9\x89|\xe8\xaf\xb4\xe6\x98\x8e|\xe5\x8e\x9f\xe5\x9b\xa0|\xd0\xbd\xd0\xb0\xd1\x87\xd0\xb5\xd0\xbd\xd0\xb8\xd0\xb5|\xd1\x80\xd0\xb8\xd1\x87\xd0\xb8\xd0\xbd\xd0\xb0|\xec\x9d\x98\xeb\xaf\xb8";
  const size_t from = w->marks.items[m].offset, end = hri_scan_mark_end(w, m);
  size_t last = end;
  while (last > from && strchr(": \r\n", w->text[last - 1])) last--;
  if (hri_match_any(w->text, from, end, "job|jobs|pod|pods|step|name|container|node|task")) return false;
  if (end - from > LONGEST || w->marks.items[row].line - w->marks.items[m].line > BELOW || code_of_row(w, m) >= 0)
    return false;
  if (hri_match_end(w->text, from, last, names) || hri_match_end(w->text, from, last, parts)) return true;
  return hri_match_part(w->text, from, end, meanings) &&
         (hri_match_any(w->text, from, end, names) || hri_match_part(w->text, from, end, parts));
}

/* Whether mark `m` is a row of a table of codes: a heading calls them so, and they go up from row to row and not by one. With `any` some row, else
 * this or one below, has the signal of a kill, ENOMEM or the exit code 137. Without a heading such rows are counts and states of jobs as often. */
static bool is_row_of_codes(const hri_scan_window *w, size_t m, bool any) {
  enum { FAR = 12, SIGNAL = 9, NO_MEMORY = 12, EXIT = 137 };
  size_t from = m, to = m;
  bool known = false;
  if (code_of_row(w, m) < 0) return false;
  while (from > 0 && m - from < FAR && goes_up(w, from - 1, from)) from--;
  while (to + 1 < w->marks.count && to - m < FAR && goes_up(w, to, to + 1)) to++;
  for (size_t i = any ? from : m; i <= to; i++) {
    const int32_t code = code_of_row(w, i);
    known |= code == SIGNAL || code == NO_MEMORY || code == EXIT;
  }
  return known && code_of_row(w, to) - code_of_row(w, from) > (int32_t)(to - from) && from > 0 &&
         names_codes(w, from - 1, from);
}

/* Whether mark `m` is the heading of such a table. */
static bool heads_codes(const hri_scan_window *w, size_t m) {
  return m + 1 < w->marks.count && names_codes(w, m, m + 1) && is_row_of_codes(w, m + 1, true);
}

/* ---- the place ---- */

/* The shape of the line of mark `m` by itself and by those around it. */
static unsigned shape_of(const hri_scan_window *w, size_t m) {
  const hri_scan_mark *mark = &w->marks.items[m];
  unsigned shape = mark->shape;
  if (is_enclosed(w, m)) shape |= HRI_OOM_ENCLOSED;
  if (is_row_of_codes(w, m, false)) shape |= HRI_OOM_ROW;
  if (heads_codes(w, m)) shape |= HRI_OOM_HEADING;
  if (is_among_source(w, m)) shape |= HRI_OOM_AMONG;
  else if (is_printed(w, m)) shape |= HRI_OOM_PRINTED;
  if (is_thread(w, m)) shape &= ~(unsigned)(HRI_OOM_COMMENT | HRI_OOM_REMARK);
  if (is_first(w, m) && !(shape & (HRI_OOM_HEADING | HRI_OOM_COMMENT))) shape |= HRI_OOM_TITLE;
  if (!(shape & HRI_OOM_PRINTED) && is_element(w, m))
    shape |= shape & HRI_OOM_AMONG ? HRI_OOM_LITERAL | HRI_OOM_SOURCE : HRI_OOM_LITERAL;
  if (hri_source_is_code(mark->source) || (mark->source == HRI_SOURCE_FIELD && !(shape & HRI_OOM_PRINTED)))
    shape |= HRI_OOM_SOURCE;
  return shape;
}

/* The back quotes of the line, and those around the word. */
static void find_ticks(const hri_scan_window *w, hri_oom_place *p) {
  size_t i = 0, behind = w->ticks.count; /* the spans that begin in the lines behind */
  while (i < behind) {
    const size_t middle = i + (behind - i) / 2;
    if (w->ticks.items[middle].from < p->line_end) i = middle + 1;
    else behind = middle;
  }
  while (i-- > 0 && w->ticks.items[i].to > p->line) {
    const hri_scan_span *s = &w->ticks.items[i];
    p->has_ticks = true;
    if (s->from > p->at || s->to <= p->at) continue;
    p->tick_from = s->from;
    p->tick_to = s->to;
  }
}

hri_oom_place hri_scan_place_of(const hri_scan_window *w, size_t at, size_t m) {
  hri_oom_place p = {.text = w->text, .line = w->marks.items[m].offset, .at = at, .count = w->count};
  p.line_end = hri_scan_mark_end(w, m);
  p.shape = shape_of(w, m);
  find_ticks(w, &p);
  p.sentence = w->marks.items[m].shape & HRI_OOM_LEVEL ? p.line : wrapped_start(w, m);
  p.before_count = p.line < HRI_SCAN_BEHIND ? p.line : HRI_SCAN_BEHIND;
  p.before = w->text + p.line - p.before_count;
  p.intro_count = intro_of(w, m, p.line - p.before_count, &p.intro_from);
  if (at - p.line > LINE_BEHIND) p.sentence = p.line = at - LINE_BEHIND;
  if (p.line_end - at > LINE_AHEAD) p.line_end = at + LINE_AHEAD;
  return p;
}
