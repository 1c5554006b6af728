/* Source code is told by how a line is built, whatever the language: statements (source_statement.c), a literal that fills the
 * line, fields of objects, edges of a diagram (source_diagram.c). What programs print is built otherwise: a date, a record of a log (one object in braces on a line, pairs, a
 * level), an exception's class, a place in a source. */
#include "explain/source.h"

#include <string.h>

#include "explain/source_parts.h"

/* The line without blanks and marks of quotations, sessions and differences at its beginning. */
static hri_source_span trim(const char *line, size_t count) {
  hri_source_span s = {line, 0, count};
  while (s.to > 0 && (hri_line_is_blank(line[s.to - 1]) || line[s.to - 1] == '\r')) s.to--;
  while (s.from < s.to && hri_line_is_blank(line[s.from])) s.from++;
  while (s.from + 1 < s.to && line[s.from] == '>' && line[s.from + 1] == ' ') s.from += 2;
  if (hri_source_begins(&s, s.from, ">>> ") || hri_source_begins(&s, s.from, "... ")) s.from += 4; /* of a session */
  if (s.from + 1 < s.to && (line[s.from] == '+' || line[s.from] == '-') && line[s.from + 1] != line[s.from]) {
    size_t next = s.from + 1;
    while (next < s.to && hri_line_is_blank(line[next])) next++;
    if (s.from == 0 && next != s.from + 2) s.from = next; /* a difference; "- x" is an item of a list */
  }
  while (s.from < s.to && hri_line_is_blank(line[s.from])) s.from++;
  return s;
}

/* Takes a comment off the end of a line; whether one stood there. */
static bool drop_comment(hri_source_span *s) {
  const size_t to = s->to;
  static const char *const marks[] = {" //", "\t//", "/*", "  # ", "\t# "};
  for (size_t i = 0; i < HRI_COUNT(marks); i++) {
    size_t at = hri_oom_word(s->text, s->from, s->to, marks[i]);
    if (marks[i][0] == '/' && hri_oom_word(s->text, at, s->to, "*/") + 2 < s->to) continue; /* amid a statement */
    if (at > s->from && at < s->to) s->to = at;
  }
  while (s->to > s->from && hri_line_is_blank(s->text[s->to - 1])) s->to--;
  return s->to < to;
}

/* Takes off the sign by which a macro goes on in the next line, set apart from its statement: "f(x);    \\". */
static void drop_continuation(hri_source_span *s) {
  if (!hri_source_ends(s, " \\") && !hri_source_ends(s, "\t\\")) return;
  const size_t to = s->to;
  s->to--;
  while (s->to > s->from && hri_line_is_blank(s->text[s->to - 1])) s->to--;
  if (s->to == s->from || !strchr(";,{}()", s->text[s->to - 1])) s->to = to;
}

/* "lib/repocard.py:105: UserWarning: ...", below which Python prints the line that warned. */
static bool is_warning(const hri_source_span *s) {
  size_t at = hri_oom_word(s->text, s->from, s->to, ".py:"), end;
  if (at == s->to) return false;
  for (at += 4; at < s->to && hri_is_digit(s->text[at]);) at++;
  if (!hri_source_begins(s, at, ": ")) return false;
  for (end = at += 2; end < s->to && hri_source_is_word(s->text[end]);) end++;
  return end > at + 7 && memcmp(s->text + end - 7, "Warning", 7) == 0 && end < s->to && s->text[end] == ':';
}

/* A frame of Python's traceback or of a debugger's, or a warning: the next line is source that nobody typed. */
static bool is_frame(const hri_source_span *s) {
  if ((hri_source_begins(s, s->from, "File \"") && hri_source_has(s, ", line ")) || is_warning(s)) return true;
  return hri_source_begins(s, s->from, "File ~") || hri_source_begins(s, s->from, "-->") ||
         hri_source_begins(s, s->from, "---->") || hri_source_begins(s, s->from, "Cell In[");
}

/* A literal and, at most, what joins it to others. */
static bool is_literal_line(const hri_source_span *s) {
  size_t end;
  if (!hri_source_literal_at(s, s->from, &end)) return false;
  while (end < s->to && (strchr(" ,)+]}\\;.", s->text[end]))) end++;
  return end == s->to;
}

/* A place in a source, before any literal: programs print these. */
static bool names_place(const hri_source_span *s) {
  static const char endings[] = ".cc|.cpp|.cu|.c|.h|.py|.rs|.go|.js|.ts";
  const char *quote = memchr(s->text + s->from, '"', s->to - s->from);
  const size_t to = quote ? (size_t)(quote - s->text) : s->to;
  for (size_t at = hri_oom_word(s->text, s->from, to, "."); at < to; at = hri_oom_word(s->text, at + 1, to, ".")) {
    size_t end;
    if (at + 1 == to || !strchr("chprgjt", s->text[at + 1])) continue;
    end = hri_match_next(s->text, at, to, endings);
    if (end > at && end + 1 < s->to && strchr(":(", s->text[end]) && hri_is_digit(s->text[end + 1])) return true;
  }
  return false;
}

/* One tag with attributes and nothing else: of a page's source. */
static bool is_tag(const hri_source_span *s) {
  return s->text[s->from] == '<' && hri_source_ends(s, ">") && hri_source_has(s, "=\"") &&
         !memchr(s->text + s->from + 1, '<', s->to - s->from - 1);
}

/* What tells a documents' tool what to do: ".. name:: x", ":field: x". */
static bool is_directive(const hri_source_span *s) {
  size_t at;
  if (hri_source_begins(s, s->from, ".. ")) return hri_source_has(s, ":: ");
  if (s->text[s->from] != ':') return false;
  at = hri_source_name_end(s, s->from + 1);
  return at > s->from + 1 && at + 1 < s->to && s->text[at] == ':' && hri_line_is_blank(s->text[at + 1]);
}

/* A date and a time of day at the line's beginning: no statement begins so. */
static bool is_dated(const hri_source_span *s) {
  const size_t end = hri_line_behind_shape(s->text, s->from, s->to, "dddd-dd-dd");
  return end > s->from && end + 2 < s->to && strchr("T ", s->text[end]) && hri_is_digit(s->text[end + 1]);
}

/* An object in braces on one line: a record of a log. */
static bool is_record(const hri_source_span *s) { return s->text[s->from] == '{' && hri_source_ends(s, "}"); }

/* "time=... level=error msg=...": a record as pairs. */
static bool is_pairs(const hri_source_span *s) {
  static const char *const keys[] = {"level=", "lvl=", "time=", "ts="};
  bool has_key = false;
  for (size_t i = 0; i < HRI_COUNT(keys); i++) {
    size_t at = hri_oom_word(s->text, s->from, s->to, keys[i]);
    has_key = has_key || (at < s->to && !memchr(s->text + s->from, '(', at - s->from)); /* no argument of a call */
  }
  return has_key && (hri_source_has(s, " msg=") || hri_source_has(s, " message=") || hri_source_has(s, " error=") ||
                     hri_source_has(s, " err="));
}

/* A literal without letters before its quote, whole on the line; *end is behind it. */
static bool is_quoted_at(const hri_source_span *s, size_t at, size_t *end) {
  if (at >= s->to || (s->text[at] != '"' && s->text[at] != '\'')) return false;
  for (size_t i = at + 1; i < s->to; i++) {
    if (s->text[i] == '\\') i++;
    else if (s->text[i] == s->text[at]) {
      *end = i + 1;
      return true;
    }
  }
  return false;
}

/* Where the value begins of a field at s->from, behind brackets that it opens and none of which it closes, `"key": ...` or
 * `'key': ...` (*quoted: with a quote), `key: "...",`; s->to when there is none. */
static size_t field_value(const hri_source_span *s, bool *quoted) {
  size_t at = s->from, end;
  while (at < s->to && strchr("{[ ", s->text[at])) at++;
  if (at > s->from && (hri_source_has(s, "}") || hri_source_has(s, "]"))) return s->to; /* a record */
  *quoted = is_quoted_at(s, at, &end);
  if (!*quoted)
    for (end = at; end < s->to && hri_source_is_word(s->text[end]);) end++;
  else
    while (end < s->to && s->text[end] == ' ') end++;
  if (end == at || end + 2 >= s->to || s->text[end] != ':' || s->text[end + 1] != ' ') return s->to;
  return end + 2;
}

/* A field of an object over several lines, of a program's table or of a notebook's output. */
static bool is_field(const hri_source_span *s) {
  size_t end;
  if (s->text[s->from] != '"' || !hri_source_literal_at(s, s->from, &end)) return false;
  while (end < s->to && s->text[end] == ' ') end++;
  return end < s->to && s->text[end] == ':';
}

/* The same as JavaScript and Python print or write it, `key: '...',`, `'key': "...",`: what stands beside it tells
 * (scan_place.c). */
static bool is_plain_field(const hri_source_span *s) {
  bool quoted = false;
  size_t at = field_value(s, &quoted), end;
  if (at == s->to || (!is_quoted_at(s, at, &end) && !(quoted && strchr("{[", s->text[at])))) return false;
  if (s->text[at] == '{' || s->text[at] == '[') return true;
  while (end < s->to && strchr(" ,]}", s->text[end])) end++;
  return end == s->to && strchr(",]}", s->text[end - 1]);
}

/* "\"state\": map[string]any{", "\"x\": &Type{": of a program. */
static bool opens_structure(const hri_source_span *s) {
  return hri_source_ends(s, "{") && s->to > s->from + 2 &&
         (hri_source_is_word(s->text[s->to - 2]) || s->text[s->to - 2] == ']');
}

/* Brackets alone are anybody's. */
static bool is_bracket(const hri_source_span *s) { return s->to - s->from <= 2 && strchr("{}()[]", s->text[s->from]); }

/* A part of a literal that goes on, or whose line ends in it: somebody's program. */
static bool is_joined_literal(const hri_source_span *s) {
  return s->text[s->to - 1] == '+' || s->text[s->to - 1] == '\\' || s->text[s->to - 1] == ';' ||
         hri_source_ends(s, "\\n\"") || hri_source_ends(s, "\\n\",");
}

/* An element of a list in a program that is set in by tabs, and no output of a notebook or of a tool, which use blanks. */
static bool is_listed_literal(const hri_source_span *s) {
  return s->from > 0 && s->text[s->from - 1] == '\t' && hri_source_ends(s, ",") && s->text[s->from] != '{';
}

/* A pattern that matches messages. */
static bool is_pattern(const hri_source_span *s) {
  return hri_source_has(s, ".*") &&
         (hri_source_has(s, "|") || hri_source_has(s, "/i") || hri_source_has(s, "r\"") || hri_source_has(s, "\"$"));
}

/* How an exception is printed: "package.SomeError: ...", "[SomeError: ...] {". */
static bool is_exception(const hri_source_span *s) {
  size_t end = hri_source_name_end(s, s->from + (s->text[s->from] == '['));
  return end + 1 < s->to && s->text[end] == ':' && s->text[end + 1] == ' ' && hri_source_names_error(s, end);
}

/* An exception as it prints itself, alone at the line's beginning, `SomeError('...')`; any object whose field is a message as
 * remote procedures name it, `Failed(Code=..., Message='...')`. */
static bool is_repr(const hri_source_span *s) {
  size_t at;
  if (s->text[s->to - 1] != ')') return false;
  at = hri_source_name_end(s, s->from);
  if (at == s->from || at >= s->to || s->text[at] != '(') return false;
  return (s->from == 0 && hri_source_names_error(s, at) && !hri_source_takes_name(s, at)) ||
         hri_source_has(s, "Message='") || hri_source_has(s, "Message=\"");
}

/* A code before a colon, "ORA-04031: ...": how databases number what they say. */
static bool is_coded(const hri_source_span *s) {
  size_t at = s->from, digits;
  while (at < s->to && s->text[at] >= 'A' && s->text[at] <= 'Z') at++;
  if (at < s->from + 2 || at == s->to || s->text[at] != '-') return false;
  for (digits = ++at; at < s->to && hri_is_digit(s->text[at]);) at++;
  return at >= digits + 4 && hri_source_begins(s, at, ": ");
}

/* A pair of a log and nothing else, `err="..."`: an element only among others of a program. */
static bool is_pair(const hri_source_span *s) {
  static const char *const keys[] = {"err=\"",    "error=\"",     "msg=\"",    "message=\"",
                                     "reason=\"", "exception=\"", "stderr=\"", "error_message=\""};
  size_t end;
  if (!strchr("emrs", s->text[s->from])) return false;
  for (size_t i = 0; i < HRI_COUNT(keys); i++)
    if (hri_source_begins(s, s->from, keys[i]))
      return hri_source_literal_at(s, s->from + strlen(keys[i]) - 1, &end) && (end == s->to || s->text[end] == ' ');
  return false;
}

/* How C++, Rust and WebAssembly print what ended a program. */
static bool is_thrown(const hri_source_span *s) {
  return (hri_source_begins(s, s->from, "Aborted(") && hri_source_has(s, " ")) || /* Emscripten's */
         hri_source_begins(s, s->from, "(error \"") ||                            /* a solver's */
         hri_source_begins(s, s->from, "what():") || hri_source_has(s, "called `Result::unwrap()` on an") ||
         hri_source_has(s, "called `Option::unwrap()` on a");
}

/* A level and what it is of, "WARNING: ...", also behind a bar, "| ERROR: ...": a record of a log. */
static bool is_levelled(const hri_source_span *s) {
  static const char *const levels[] = {"WARN: ", "WARNING: ", "ERROR: ", "FATAL: ", "CRITICAL: ", "SEVERE: ", "INFO: "};
  const size_t from = s->from + (hri_source_begins(s, s->from, "| ") ? 2 : 0);
  for (size_t i = 0; i < HRI_COUNT(levels); i++)
    if (hri_source_begins(s, from, levels[i])) return true;
  return false;
}

bool hri_source_opens_literal(const char *line, size_t count) {
  hri_source_span s = trim(line, count);
  size_t at = hri_match_first(line, s.from, s.to, "\"\"\"|'''");
  while (at > s.from && strchr(" fFrRbBuU", line[at - 1])) at--;
  return at > s.from && at < s.to && strchr("=([{,+:", line[at - 1]);
}

/* Whether a quote of YAML's at text[at] is one of two, which stand for one. */
static bool is_doubled(const char *text, size_t at, size_t count) { return at + 1 < count && text[at + 1] == '\''; }

bool hri_source_closes_scalar(const char *line, size_t from, size_t count) {
  for (size_t at = from; at < count; at++)
    if (line[at] == '\'') {
      if (!is_doubled(line, at, count)) return true;
      at++;
    }
  return false;
}

bool hri_source_opens_scalar(const char *line, size_t count) {
  size_t at = 0;
  while (at < count && (line[at] == ' ' || line[at] == '-')) at++;
  while (at < count && (hri_source_is_word(line[at]) || line[at] == '-')) at++;
  if (at + 3 > count || memcmp(line + at, ": '", 3) != 0 || hri_oom_word(line, at + 3, count, "''") == count)
    return false;
  return !hri_source_closes_scalar(line, at + 3, count);
}

/* What is built like source and stands among output: what was typed at a prompt (">>> x = f()"), a shell's setting, a
 * command's options over several lines, an object as Python prints it ("Namespace(lr=0.1)", "(wte): Embedding(50257, 768)"). */
static bool is_typed(const char *line, const hri_source_span *s) {
  size_t at = 0, end = hri_source_name_end(s, s->from);
  while (at < s->from && hri_line_is_blank(line[at])) at++;
  if (at < s->from && hri_match_at(line, at, s->to, ">>> |... ")) return true;
  if (hri_match_at(line, s->from, s->to, "in [|$ |export |set |--")) return true;
  if (hri_source_begins(s, s->from, "In [")) return true;
  if (s->text[s->from] == '(') {
    for (at = s->from + 1; at < s->to && hri_source_is_word(s->text[at]);) at++;
    return hri_source_begins(s, at, "): ");
  }
  return s->from == 0 && end > 0 && s->text[0] >= 'A' && s->text[0] <= 'Z' && end < s->to && s->text[end] == '(' &&
         hri_source_ends(s, ")");
}

hri_source_kind hri_source_of(const char *line, size_t count) {
  hri_source_span s = trim(line, count);
  const hri_source_span whole = s;
  if (s.from >= s.to) return HRI_SOURCE_NONE;
  if (is_frame(&s)) return HRI_SOURCE_FRAME;
  if (is_dated(&s) || is_record(&s) || is_pairs(&s) || is_levelled(&s) || names_place(&s) ||
      (is_exception(&s) && !hri_source_is_member(&s)) || is_repr(&s) || is_coded(&s) || is_thrown(&s) || is_bracket(&s))
    return HRI_SOURCE_NONE;
  if (is_field(&s) || is_pair(&s)) return opens_structure(&s) ? HRI_SOURCE_CODE : HRI_SOURCE_LITERAL;
  if (is_plain_field(&s)) return HRI_SOURCE_FIELD;
  if (hri_source_begins(&s, s.from, "\"\"\"") || hri_source_begins(&s, s.from, "'''"))
    return HRI_SOURCE_CODE; /* a text in a program */
  drop_continuation(&s);
  const bool commented = drop_comment(&s);
  if (is_literal_line(&s)) return is_joined_literal(&s) || is_listed_literal(&s) ? HRI_SOURCE_CODE : HRI_SOURCE_LITERAL;
  if (is_pattern(&s) || is_tag(&s) || is_directive(&s) || hri_source_is_edge(&s)) return HRI_SOURCE_CODE;
  return hri_source_is_statement(&s, commented) ? is_typed(line, &whole) ? HRI_SOURCE_TYPED : HRI_SOURCE_CODE
                                                : HRI_SOURCE_NONE;
}
