/* Source of a diagram, as Mermaid and PlantUML take it: what stands in its boxes is what somebody drew, whatever it says. It is told by
 * its edges, "a[start] --> b{fits?}", of which a line is made as a whole, and by the fences around a diagram; a box on a line of its own, or a
 * message from one to another, shows by itself no more than a log's line does.
 *
 * The neighbours may rely on this: a line that ends in words of its own behind an edge ("node[3] --> node[4]: failed") is none, nor is one with an
 * index or figures ("rank[0] ==> x[...]") or an exception's class, nor is an arrow with one dash, by which traces of calls print what came of them. */
#include "explain/source_parts.h"

/* Behind the bracket that opens at text[at], nested ones included; `at` when it is not closed. */
static size_t behind_bracket(const hri_source_span *s, size_t at) {
  size_t depth = 0;
  for (size_t i = at; i < s->to; i++) {
    if (strchr("[({", s->text[i])) depth++;
    else if (strchr("])}", s->text[i]) && --depth == 0) return i + 1;
  }
  return at;
}

/* Behind a node, "a", "a[label]", "[*]"; `at` when there is none. *boxed becomes true where it has a label as no call has one. */
static size_t behind_node(const hri_source_span *s, size_t at, bool *boxed) {
  const size_t from = at;
  if (hri_source_begins(s, at, "[*]")) return at + 3;
  while (at < s->to && (hri_source_is_word(s->text[at]) || (unsigned char)s->text[at] & 0x80)) at++;
  if (at == from || at == s->to || !strchr("[({", s->text[at])) return at;
  const size_t end = behind_bracket(s, at);
  bool words = false;
  for (size_t i = at + 1; i < end; i++) words |= hri_line_is_blank(s->text[i]) || (s->text[i] & 0x80);
  *boxed |= end > at && s->text[at] != '(' && words && !hri_source_begins(s, at, "{\"");
  return end > at ? end : from;
}

/* Behind an arrow of two dashes or more, "-->", "-.->", "==>", "---", and the label that goes with it, "|no|"; `at` when there is none.
 * *labelled becomes true where it has one. */
static size_t behind_arrow(const hri_source_span *s, size_t at, bool *labelled) {
  const size_t from = at;
  size_t dashes = 0, bar;
  if (at < s->to && s->text[at] == '<') at++;
  for (; at < s->to && strchr("-=.", s->text[at]); at++) dashes += s->text[at] != '.';
  if (dashes < 2) return from;
  while (at < s->to && strchr(">xo)", s->text[at])) at++;
  if (at == s->to || s->text[at] != '|') return at;
  bar = at + 1;
  while (bar < s->to && s->text[bar] != '|') bar++;
  *labelled |= bar < s->to;
  return bar < s->to ? bar + 1 : from;
}

static size_t skip_blanks(const hri_source_span *s, size_t at) {
  while (at < s->to && hri_line_is_blank(s->text[at])) at++;
  return at;
}

/* How many edges the line begins with; *end is behind them. */
static size_t count_edges(const hri_source_span *s, size_t *end, bool *labelled) {
  size_t at = s->from, edges = 0;
  *end = behind_node(s, at, labelled);
  if (*end == at) return 0;
  for (;;) {
    const size_t arrow = skip_blanks(s, *end);
    const size_t target = skip_blanks(s, behind_arrow(s, arrow, labelled));
    const size_t next = target > arrow ? behind_node(s, target, labelled) : target;
    if (next == target) return edges;
    *end = next;
    edges++;
  }
}

bool hri_source_is_edge(const hri_source_span *s) {
  bool labelled = false;
  size_t end;
  const size_t edges = count_edges(s, &end, &labelled);
  for (size_t at = s->from; at + 2 < s->to; at++)
    if ((strchr("[=.", s->text[at]) && hri_is_digit(s->text[at + 1])) || hri_source_begins(s, at, "Error[") ||
        hri_source_begins(s, at, "Error: ") || hri_source_begins(s, at, "Exception: "))
      return false; /* of one run */
  return edges > 0 && labelled && (end == s->to || (s->text[end] == ';' && end + 1 == s->to));
}

static hri_source_span span_of(const char *line, size_t count) {
  hri_source_span s = {line, 0, count};
  while (s.to > 0 && (hri_line_is_blank(line[s.to - 1]) || line[s.to - 1] == '\r')) s.to--;
  while (s.from < s.to && (hri_line_is_blank(line[s.from]) || hri_source_begins(&s, s.from, "> "))) s.from++;
  return s;
}

bool hri_source_opens_diagram(const char *line, size_t count) {
  const hri_source_span s = span_of(line, count);
  return s.from < s.to && hri_match_next(line, s.from, s.to, "@startuml|```mermaid|```plantuml|```puml") == s.to;
}

bool hri_source_closes_diagram(const char *line, size_t count) {
  const hri_source_span s = span_of(line, count);
  return s.from < s.to && hri_match_next(line, s.from, s.to, "```|@enduml") == s.to;
}
