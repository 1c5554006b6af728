/* Source code is told by how a line is built, whatever the language: how a statement ends (a brace, a semicolon behind an
 * operand, an open bracket), how it begins (a keyword with what follows it, an assignment, a call), a literal that fills
 * the line. What programs print is built otherwise: labels, sentences, names before a colon. A record of a log (one
 * object in braces on a line) is no source. */
#include "explain/source.h"

#include <string.h>

#include "explain/line.h"
#include "explain/match.h"

typedef struct span {
  const char *text;
  size_t from, to;
} span;

static bool is_word_char(char c) {
  c = hri_line_lower(c);
  return hri_is_name(c);
}

static bool begins(const span *s, size_t at, const char *words) {
  size_t length = strlen(words);
  return s->to >= at + length && memcmp(s->text + at, words, length) == 0;
}

static bool ends(const span *s, const char *words) {
  size_t length = strlen(words);
  return s->to >= s->from + length && memcmp(s->text + s->to - length, words, length) == 0;
}

static bool has(const span *s, const char *words) { return hri_oom_word(s->text, s->from, s->to, words) < s->to; }

/* The line without blanks and marks of quotations, sessions and differences at its beginning. */
static span trim(const char *line, size_t count) {
  span s = {line, 0, count};
  while (s.to > 0 && (hri_line_is_blank(line[s.to - 1]) || line[s.to - 1] == '\r')) s.to--;
  while (s.from < s.to && hri_line_is_blank(line[s.from])) s.from++;
  while (s.from + 1 < s.to && line[s.from] == '>' && line[s.from + 1] == ' ') s.from += 2;
  if (begins(&s, s.from, ">>> ") || begins(&s, s.from, "... ")) s.from += 4; /* of a session */
  if (s.from + 1 < s.to && (line[s.from] == '+' || line[s.from] == '-') && line[s.from + 1] != line[s.from]) {
    size_t next = s.from + 1;
    while (next < s.to && hri_line_is_blank(line[next])) next++;
    if (s.from == 0 && next != s.from + 2) s.from = next; /* a difference; "- x" is an item of a list */
  }
  while (s.from < s.to && hri_line_is_blank(line[s.from])) s.from++;
  return s;
}

/* Takes a comment off the end of a line; whether one stood there. */
static bool drop_comment(span *s) {
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
static void drop_continuation(span *s) {
  if (!ends(s, " \\") && !ends(s, "\t\\")) return;
  const size_t to = s->to;
  s->to--;
  while (s->to > s->from && hri_line_is_blank(s->text[s->to - 1])) s->to--;
  if (s->to == s->from || !strchr(";,{}()", s->text[s->to - 1])) s->to = to;
}

/* "lib/repocard.py:105: UserWarning: ...", below which Python prints the line that warned. */
static bool is_warning(const span *s) {
  size_t at = hri_oom_word(s->text, s->from, s->to, ".py:"), end;
  if (at == s->to) return false;
  for (at += 4; at < s->to && hri_is_digit(s->text[at]);) at++;
  if (!begins(s, at, ": ")) return false;
  for (end = at += 2; end < s->to && is_word_char(s->text[end]);) end++;
  return end > at + 7 && memcmp(s->text + end - 7, "Warning", 7) == 0 && end < s->to && s->text[end] == ':';
}

/* A frame of Python's traceback or of a debugger's, or a warning: the next line is source that nobody typed. */
static bool is_frame(const span *s) {
  if ((begins(s, s->from, "File \"") && has(s, ", line ")) || is_warning(s)) return true;
  return begins(s, s->from, "File ~") || begins(s, s->from, "-->") || begins(s, s->from, "---->") ||
         begins(s, s->from, "Cell In[");
}

/* Where the name, possibly of several parts and with indices, that begins at `at` ends. */
static size_t name_end(const span *s, size_t at) {
  size_t start = at;
  if (at < s->to && (hri_is_digit(s->text[at]) || !is_word_char(s->text[at]))) return at;
  while (at < s->to &&
         (is_word_char(s->text[at]) || (s->text[at] == '.' && at + 1 < s->to && is_word_char(s->text[at + 1])) ||
          (s->text[at] == ':' && at + 2 < s->to && s->text[at + 1] == ':') || s->text[at] == ':')) {
    if (s->text[at] == ':') {
      if (!(at + 2 < s->to && s->text[at + 1] == ':' && is_word_char(s->text[at + 2]))) break;
      at++;
    }
    at++;
  }
  return at > start ? at : start;
}

/* Whether the name that ends there is an error's. */
static bool names_error(const span *s, size_t end) {
  static const char *const ends[] = {"Error", "Exception", "_error", "_exception", "bad_alloc"};
  for (size_t i = 0; i < HRI_COUNT(ends); i++)
    if (end >= s->from + strlen(ends[i]) && begins(s, end - strlen(ends[i]), ends[i])) return true;
  return false;
}

/* A literal, with letters that modify it before its quote; *end is behind its closing quote. */
static bool is_literal_at(const span *s, size_t at, size_t *end) {
  size_t letters = 0;
  char quote;
  while (at < s->to && letters < 3 && strchr("fFrRbBuUsL$@", s->text[at])) at++, letters++;
  if (at >= s->to || !strchr("\"'`", s->text[at])) return false;
  quote = s->text[at];
  if (quote == '`' && letters == 0 && !ends(s, "`,")) return false; /* Go's, as an element of a list */
  for (size_t i = at + 1; i < s->to; i++) {
    if (s->text[i] == '\\') i++;
    else if (s->text[i] == quote) {
      *end = i + 1;
      return true;
    }
  }
  *end = s->to; /* it is closed on a later line */
  return quote != '\'' || letters > 0;
}

/* A literal and, at most, what joins it to others. */
static bool is_literal_line(const span *s) {
  size_t end;
  if (!is_literal_at(s, s->from, &end)) return false;
  while (end < s->to && (strchr(" ,)+]}\\;.", s->text[end]))) end++;
  return end == s->to;
}

/* "name = ...", "name: type = ...", "NAME=...", "a.b += ...". Programs print "loss = 2.3" too: a number alone is no
 * operand. */
static bool is_assignment(const span *s) {
  size_t at = name_end(s, s->from), end;
  if (at == s->from) return false;
  if (at < s->to && s->text[at] == '[') { /* an element */
    end = hri_oom_word(s->text, at, s->to, "]");
    if (end < s->to && memchr(s->text + at, '"', end - at)) at = end + 1;
  }
  if (at + 1 < s->to && s->text[at] == ':' && s->text[at + 1] == ' ') { /* a type */
    size_t type = at + 2;
    while (type < s->to && (is_word_char(s->text[type]) || strchr("[],.| ", s->text[type]))) type++;
    if (type < s->to && s->text[type] == '=') at = type;
  }
  while (at < s->to && s->text[at] == ' ') at++;
  if (at + 1 < s->to && strchr("+-|:?", s->text[at]) && s->text[at + 1] == '=') at++;
  if (begins(s, at, "<- ") && at + 3 < s->to) return name_end(s, at + 3) > at + 3; /* R's */
  if (at >= s->to || s->text[at] != '=' || (at + 1 < s->to && s->text[at + 1] == '=')) return false;
  for (at++; at < s->to && s->text[at] == ' ';) at++;
  if (at == s->to || strchr("([{", s->text[at]) || is_literal_at(s, at, &end)) return true;
  at += s->text[at] == '&';
  end = name_end(s, at);
  return end > at && (end == s->to || s->text[end] == '(' || s->text[end] == ';' || s->text[end] == '[');
}

/* A keyword that begins a statement, with what makes it one: English has most of these words too. */
static bool begins_statement(const span *s) {
  static const char *const alone[] = {"def ",    "elif ",     "elseif ",   "#include",   "#define",    "#if",
                                      "#endif",  "#pragma",   "import ",   "raise ",     "assert ",    "assert!",
                                      "throw ",  "throws ",   "pub ",      "fn ",        "func ",      "impl ",
                                      "struct ", "enum ",     "typedef ",  "template",   "namespace ", "constexpr ",
                                      "static_", "public ",   "private ",  "protected ", "@",          "return ",
                                      "std::",   "self.",     "this.",     "console.",   "logger.",    "logging.",
                                      "EXPECT_", "ASSERT_",   "REQUIRE",   "CASE(",      "printf(",    "fprintf(",
                                      "print(",  "println!",  "panic!",    "async ",     "await ",     "yield ",
                                      "except ", "except:",   "package ",  "using ",     "extern ",    "override ",
                                      "echo \"", "echo '",    "printf \"", "printf '",   "export ",    "assert_",
                                      "/*",      "*/",        "cdef ",     "inline ",    "unsigned ",  "const ",
                                      "let ",    "var ",      "(def",      "use ",       "mod ",       "val ",
                                      "local ",  "function ", "require ",  "module ",    "crate ",     "final ",
                                      "static ", "auto ",     "void ",     "mutable ",   "lazy ",      "abstract "};
  static const char *const closed[] = {"if ", "for ",    "while ", "with ", "class ", "else",
                                       "try", "finally", "match ", "case ", "catch",  "switch",
                                       "if(", "for(",    "while(", "else:", "try:",   "} "};
  for (size_t i = 0; i < HRI_COUNT(alone); i++)
    if (begins(s, s->from, alone[i])) {
      size_t behind = s->from + strlen(alone[i]);
      if (begins(s, s->from, "std::bad_alloc")) return s->to > behind + 9 && strchr("(;{", s->text[behind + 9]);
      if (alone[i][0] == '@') { /* a decorator; somebody is addressed otherwise */
        size_t name = name_end(s, behind);
        return name > behind && (name == s->to || s->text[name] == '(');
      }
      /* words of sentences begin with such keywords too: one more sign of a program is needed */
      if (alone[i][strlen(alone[i]) - 1] != ' ') return true;
      for (size_t k = behind; k < s->to; k++)
        if (strchr("(){};=[]\"<:", s->text[k])) return true;
      return name_end(s, behind) == s->to;
    }
  if (begins(s, s->from, "from ") && has(s, " import ")) return true;
  for (size_t i = 0; i < HRI_COUNT(closed); i++)
    if (begins(s, s->from, closed[i]))
      return ends(s, ":") || ends(s, "{") || ends(s, ")") || ends(s, ";") || ends(s, "(") || ends(s, "}") ||
             has(s, "): ") || has(s, ") {");
  return false;
}

/* Whether the line begins with a bracket, or with a name and one. */
static bool is_call_at(const span *s) {
  size_t at = name_end(s, s->from);
  return at < s->to && strchr("([{", s->text[at]);
}

/* Whether the bracket that ends the line holds words before a quotation, as sentences do: "(of type "estack")". */
static bool is_remark(const span *s) {
  size_t open = s->to;
  if (!ends(s, "\")") && !ends(s, "')")) return false;
  while (open > s->from && s->text[open - 1] != '(') open--;
  return open > s->from + 1 && s->text[open - 2] == ' ' && is_word_char(s->text[open]) &&
         !memchr(s->text + open, '=', s->to - open) && !memchr(s->text + open, ',', s->to - open) &&
         memchr(s->text + open, ' ', s->to - open) != NULL;
}

/* Whether a label of several words stands before the bracket that the line ends with: "failed to start: x(...)". */
static bool is_labelled(const span *s) {
  size_t open = hri_oom_word(s->text, s->from, s->to, "("), at;
  if (open == s->from) open = hri_oom_word(s->text, open + 1, s->to, "("); /* "(unit) failed to start: x(...)" */
  if (!ends(s, ")") || open == s->to) return false;
  at = hri_oom_word(s->text, s->from, open, ": ");
  return at < open && memchr(s->text + s->from, ' ', at - s->from) && !memchr(s->text + s->from, '=', at - s->from) &&
         !memchr(s->text + s->from, '"', at - s->from) && !begins(s, s->from, "case ");
}

/* A place in a source, before any literal: programs print these. */
static bool names_place(const span *s) {
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

/* Words alone, eight or more, and no sign of a program. */
static bool is_sentence(const span *s) {
  unsigned words = 0;
  for (size_t at = s->from; at < s->to;) {
    size_t end = at;
    while (end < s->to && s->text[end] != ' ') end++;
    bool letters = end > at;
    for (size_t i = at; i < end; i++) {
      letters = letters && (is_word_char(s->text[i]) || strchr("',.", s->text[i])) && s->text[i] != '_';
      if (strchr("={}<>", s->text[i])) return false;
    }
    words += letters;
    at = end + 1;
  }
  return words >= 8;
}

/* How a statement ends, or a part of one that goes on. */
static bool ends_statement(const span *s) {
  static const char *const operands[] = {");",  "\";",  "';",  "];",  "};",   "\",",    "',",   ");\\",
                                         "({",  "=>",   "; }", "&&",  "||",   "; then", "; do", "\\n\"",
                                         "\")", "\"))", "')",  "\"]", "\" +", "' +"};
  if (ends(s, "(") && is_sentence(s)) return false;
  if (ends(s, "{") || ends(s, "(") || ends(s, "[") || ends(s, "};")) return true;
  for (size_t i = 0; i < HRI_COUNT(operands); i++)
    if (ends(s, operands[i])) return !is_remark(s) && !is_labelled(s);
  if (ends(s, "),") || ends(s, "],") || ends(s, "},")) return is_call_at(s);
  if ((ends(s, "\\") && (has(s, "-") || has(s, "="))) || (has(s, " || ") && ends(s, "\""))) return true; /* a shell's */
  return ends(s, ";") && (has(s, " = ") || name_end(s, s->from) == s->to - 1);
}

/* Whether a label and words follow where the bracket at `open` is closed: "python(823,0x7fff9a08) malloc: ... (error code=3)". */
static bool goes_on_in_words(const span *s, size_t open) {
  int depth = 0;
  size_t at = open;
  for (; at < s->to; at++) {
    depth += s->text[at] == '(' ? 1 : s->text[at] == ')' ? -1 : 0;
    if (depth == 0) break;
  }
  if (at + 2 >= s->to || s->text[at + 1] != ' ') return false;
  for (at += 2; at < s->to && is_word_char(s->text[at]);) at++;
  return begins(s, at, ": ");
}

/* Whether one name is all that stands between the bracket at `open` and the one that closes it: "IsOOMError(err)". */
static bool takes_name(const span *s, size_t open) {
  const size_t end = name_end(s, open + 1);
  return end > open + 1 && end < s->to && s->text[end] == ')';
}

/* "name.of.function(...)" and nothing behind it. The name of an error before a bracket is how an exception prints
 * itself, but for one name in it. */
static bool is_call(const span *s) {
  size_t at = name_end(s, s->from);
  if (at == s->from || at >= s->to || s->text[at] != '(' || !ends(s, ")") || goes_on_in_words(s, at)) return false;
  return !names_error(s, at) || takes_name(s, at);
}

/* A plain word at the very beginning of a line: how people greet. */
static bool is_plain_word(const span *s, size_t end) {
  for (size_t i = s->from; i < end; i++)
    if (!hri_is_letter(hri_line_lower(s->text[i]))) return false;
  return s->from == 0;
}

/* An enumerator, an entry of a table of codes: "NAME = 2,", "A => B,", "CASE(A, B)". */
static bool is_entry(const span *s, bool commented) {
  size_t at = name_end(s, s->from);
  if (at == s->from) return false;
  if (at + 1 == s->to && s->text[at] == ',') return !is_plain_word(s, at);
  while (at < s->to && s->text[at] == ' ') at++;
  if (begins(s, at, "=>")) return true;
  if (at >= s->to || s->text[at] != '=') return false;
  for (at++; at < s->to && (s->text[at] == ' ' || s->text[at] == '-' || is_word_char(s->text[at]));) at++;
  if (at < s->to && s->text[at] == ',') /* "wps=680, lr=0.25" is how programs print */
    return at + 1 == s->to ||           /* "errCode = 2, detailMessage = [...]" is printed */
           (has(s, " = ") && !memchr(s->text + at, '[', s->to - at));
  return commented && at == s->to && has(s, " = ");
}

/* An entry of a table of codes that a number names, `9:  "killed",`. */
static bool is_numbered(const span *s) {
  size_t at = s->from, end;
  while (at < s->to && hri_is_digit(s->text[at])) at++;
  if (at == s->from || at == s->to || s->text[at] != ':') return false;
  for (at++; at < s->to && hri_line_is_blank(s->text[at]);) at++;
  return is_literal_at(s, at, &end) && end + 1 == s->to && s->text[end] == ',';
}

/* Words of a language and nothing that a program computes with: a sentence, or a list of what was counted. */
static bool is_wordy(const span *s) {
  return is_sentence(s) || has(s, ". ") || !hri_match_part(s->text, s->from, s->to, "(|)|=|[|]|<|>|::|->|*|{|}");
}

/* A statement set in that ends with a semicolon, "break;", "pool.reserve(n).map_err(|oom| E::new(oom))?;", and a path of Rust's,
 * "use crate::error::OutOfMemory;", wherever it stands. */
static bool is_closed_statement(const span *s) {
  if (!ends(s, ";")) return false;
  if (name_end(s, s->from) == s->to - 1) return true;
  if (is_wordy(s)) return false;
  return s->from > 0 || has(s, "::") || has(s, "->") || ends(s, ");");
}

/* A call on what the line before made, ".map(|x| x + 1)"; an arm of a choice, "A::B | C => D,". */
static bool is_chained(const span *s) {
  if (s->text[s->from] == '.' && s->from + 1 < s->to) {
    const span rest = {s->text, s->from + 1, s->to};
    const size_t at = name_end(&rest, rest.from);
    return at > rest.from && at < s->to && s->text[at] == '(';
  }
  return has(s, " => ") && s->from > 0 && (ends(s, ",") || ends(s, ";") || ends(s, "{")) && !is_sentence(s);
}

/* A parameter or a member with its type, set in: "size: Option<u64>,", "inner: &'a T,". */
static bool is_typed_name(const span *s) {
  size_t at = name_end(s, s->from), from;
  if (s->from == 0 || at == s->from || at + 2 >= s->to || s->text[at] != ':' || s->text[at + 1] != ' ') return false;
  if (!ends(s, ",")) return false;
  for (from = at += 2; at < s->to - 1; at++)
    if (s->text[at] == ' ' || hri_is_digit(s->text[from])) return false;
  return hri_match_part(s->text, from, s->to - 1, "<|&|::|[]") || (s->text[from] >= 'A' && s->text[from] <= 'Z');
}

/* "a, b = f(x)", "n = n + 1", "x = y.z * 2", "var = &name": what is assigned is computed; set in, for programs print
 * equations too. */
static bool is_computation(const span *s) {
  const size_t eq = hri_oom_word(s->text, s->from, s->to, " = ");
  size_t at = eq + 3, end;
  if (s->from == 0 || eq == s->to || name_end(s, s->from) == s->from || at >= s->to) return false;
  for (size_t i = s->from; i < eq; i++)
    if (!is_word_char(s->text[i]) && !strchr(" ,.[]:*<>\"'", s->text[i])) return false;
  if (strchr("&*!-", s->text[at])) at++;
  end = name_end(s, at);
  if (end == at) return s->text[at] == '(' || s->text[at] == '[';
  if (end == s->to) return memchr(s->text + at, '.', end - at) != NULL || at > eq + 3;
  return s->text[end] == '(' || s->text[end] == '[' ||
         hri_match_at(s->text, end, s->to, " + | - | * | / | % | << | >> | & | == | if | ? | ?? | && |?.|!.|::");
}

/* The first line of a call whose arguments go on in the next one, "copy(to = (char *)calloc(1, n), NULL, ret,". */
static bool opens_call(const span *s) {
  size_t at = name_end(s, s->from);
  int depth = 0;
  if (!ends(s, ",") || at == s->from || at >= s->to || s->text[at] != '(' || names_error(s, at)) return false;
  for (; at < s->to; at++) depth += s->text[at] == '(' ? 1 : s->text[at] == ')' ? -1 : 0;
  return depth > 0 && has(s, " = ");
}

/* A choice between two operands, "error == full ? FATAL : FINISHED;", and a member of a class whose body is empty,
 * "bad_alloc::bad_alloc(const char *msg) : what{msg} {}". */
static bool is_choice_or_member(const span *s) {
  size_t at = name_end(s, s->from);
  if (ends(s, ";")) return has(s, " ? ") && has(s, " : ");
  return ends(s, ") {}") ||
         (ends(s, "} {}") && at < s->to && s->text[at] == '(' && memchr(s->text + s->from, ':', at - s->from));
}

/* A field of a structure that a program makes, as Go writes them: "ExitCode: 137,", "OOMKilled: s.OOMKilled,". */
static bool is_member(const span *s) {
  size_t at = name_end(s, s->from), blanks = 0;
  if (at == s->from || at + 1 >= s->to || s->text[at] != ':' || !ends(s, ",")) return false;
  const bool owned = memchr(s->text + s->from, '.', at - s->from) != NULL; /* "errno.ENOMEM: ENOMEM," */
  if (!owned && (s->text[s->from] < 'A' || s->text[s->from] > 'Z')) return false;
  for (at++; at < s->to && hri_line_is_blank(s->text[at]);) at++;
  for (size_t i = at; i < s->to; i++) blanks += hri_line_is_blank(s->text[i]);
  if (owned) return name_end(s, at) == s->to - 1;
  return at + 1 < s->to && (blanks == 0 || s->text[at] == '&' || is_literal_at(s, at, &at));
}

/* One tag with attributes and nothing else: of a page's source. */
static bool is_tag(const span *s) {
  return s->text[s->from] == '<' && ends(s, ">") && has(s, "=\"") &&
         !memchr(s->text + s->from + 1, '<', s->to - s->from - 1);
}

/* What tells a documents' tool what to do: ".. name:: x", ":field: x". */
static bool is_directive(const span *s) {
  size_t at;
  if (begins(s, s->from, ".. ")) return has(s, ":: ");
  if (s->text[s->from] != ':') return false;
  at = name_end(s, s->from + 1);
  return at > s->from + 1 && at + 1 < s->to && s->text[at] == ':' && hri_line_is_blank(s->text[at + 1]);
}

/* A date and a time of day at the line's beginning: no statement begins so. */
static bool is_dated(const span *s) {
  const size_t end = hri_line_behind_shape(s->text, s->from, s->to, "dddd-dd-dd");
  return end > s->from && end + 2 < s->to && strchr("T ", s->text[end]) && hri_is_digit(s->text[end + 1]);
}

/* An object in braces on one line: a record of a log. */
static bool is_record(const span *s) { return s->text[s->from] == '{' && ends(s, "}"); }

/* "time=... level=error msg=...": a record as pairs. */
static bool is_pairs(const span *s) {
  static const char *const keys[] = {"level=", "lvl=", "time=", "ts="};
  bool has_key = false;
  for (size_t i = 0; i < HRI_COUNT(keys); i++) {
    size_t at = hri_oom_word(s->text, s->from, s->to, keys[i]);
    has_key = has_key || (at < s->to && !memchr(s->text + s->from, '(', at - s->from)); /* no argument of a call */
  }
  return has_key && (has(s, " msg=") || has(s, " message=") || has(s, " error=") || has(s, " err="));
}

/* A literal without letters before its quote, whole on the line; *end is behind it. */
static bool is_quoted_at(const span *s, size_t at, size_t *end) {
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
static size_t field_value(const span *s, bool *quoted) {
  size_t at = s->from, end;
  while (at < s->to && strchr("{[ ", s->text[at])) at++;
  if (at > s->from && (has(s, "}") || has(s, "]"))) return s->to; /* a record */
  *quoted = is_quoted_at(s, at, &end);
  if (!*quoted)
    for (end = at; end < s->to && is_word_char(s->text[end]);) end++;
  else
    while (end < s->to && s->text[end] == ' ') end++;
  if (end == at || end + 2 >= s->to || s->text[end] != ':' || s->text[end + 1] != ' ') return s->to;
  return end + 2;
}

/* A field of an object over several lines, of a program's table or of a notebook's output. */
static bool is_field(const span *s) {
  size_t end;
  if (s->text[s->from] != '"' || !is_literal_at(s, s->from, &end)) return false;
  while (end < s->to && s->text[end] == ' ') end++;
  return end < s->to && s->text[end] == ':';
}

/* The same as JavaScript and Python print or write it, `key: '...',`, `'key': "...",`: what stands beside it tells
 * (scan_place.c). */
static bool is_plain_field(const span *s) {
  bool quoted;
  size_t at = field_value(s, &quoted), end;
  if (at == s->to || (!is_quoted_at(s, at, &end) && !(quoted && strchr("{[", s->text[at])))) return false;
  if (s->text[at] == '{' || s->text[at] == '[') return true;
  while (end < s->to && strchr(" ,]}", s->text[end])) end++;
  return end == s->to && strchr(",]}", s->text[end - 1]);
}

/* "\"state\": map[string]any{", "\"x\": &Type{": of a program. */
static bool opens_structure(const span *s) {
  return ends(s, "{") && s->to > s->from + 2 && (is_word_char(s->text[s->to - 2]) || s->text[s->to - 2] == ']');
}

/* Brackets alone are anybody's. */
static bool is_bracket(const span *s) { return s->to - s->from <= 2 && strchr("{}()[]", s->text[s->from]); }

/* A part of a literal that goes on, or whose line ends in it: somebody's program. */
static bool is_joined_literal(const span *s) {
  return s->text[s->to - 1] == '+' || s->text[s->to - 1] == '\\' || s->text[s->to - 1] == ';' || ends(s, "\\n\"") ||
         ends(s, "\\n\",");
}

/* An element of a list in a program that is set in by tabs, and no output of a notebook or of a tool, which use blanks. */
static bool is_listed_literal(const span *s) {
  return s->from > 0 && s->text[s->from - 1] == '\t' && ends(s, ",") && s->text[s->from] != '{';
}

/* A pattern that matches messages. */
static bool is_pattern(const span *s) {
  return has(s, ".*") && (has(s, "|") || has(s, "/i") || has(s, "r\"") || has(s, "\"$"));
}

/* How an exception is printed: "package.SomeError: ...", "[SomeError: ...] {". */
static bool is_exception(const span *s) {
  size_t end = name_end(s, s->from + (s->text[s->from] == '['));
  return end + 1 < s->to && s->text[end] == ':' && s->text[end + 1] == ' ' && names_error(s, end);
}

/* An exception as it prints itself, alone at the line's beginning, `SomeError('...')`; any object whose field is a message as
 * remote procedures name it, `Failed(Code=..., Message='...')`. */
static bool is_repr(const span *s) {
  size_t at;
  if (s->text[s->to - 1] != ')') return false;
  at = name_end(s, s->from);
  if (at == s->from || at >= s->to || s->text[at] != '(') return false;
  return (s->from == 0 && names_error(s, at) && !takes_name(s, at)) || has(s, "Message='") || has(s, "Message=\"");
}

/* A code before a colon, "ORA-04031: ...": how databases number what they say. */
static bool is_coded(const span *s) {
  size_t at = s->from, digits;
  while (at < s->to && s->text[at] >= 'A' && s->text[at] <= 'Z') at++;
  if (at < s->from + 2 || at == s->to || s->text[at] != '-') return false;
  for (digits = ++at; at < s->to && hri_is_digit(s->text[at]);) at++;
  return at >= digits + 4 && begins(s, at, ": ");
}

/* A pair of a log and nothing else, `err="..."`: an element only among others of a program. */
static bool is_pair(const span *s) {
  static const char *const keys[] = {"err=\"",    "error=\"",     "msg=\"",    "message=\"",
                                     "reason=\"", "exception=\"", "stderr=\"", "error_message=\""};
  size_t end;
  if (!strchr("emrs", s->text[s->from])) return false;
  for (size_t i = 0; i < HRI_COUNT(keys); i++)
    if (begins(s, s->from, keys[i]))
      return is_literal_at(s, s->from + strlen(keys[i]) - 1, &end) && (end == s->to || s->text[end] == ' ');
  return false;
}

/* How C++, Rust and WebAssembly print what ended a program. */
static bool is_thrown(const span *s) {
  return (begins(s, s->from, "Aborted(") && has(s, " ")) || /* Emscripten's */
         begins(s, s->from, "(error \"") ||                 /* a solver's */
         begins(s, s->from, "what():") || has(s, "called `Result::unwrap()` on an") ||
         has(s, "called `Option::unwrap()` on a");
}

/* A level and what it is of, "WARNING: ...", also behind a bar, "| ERROR: ...": a record of a log. */
static bool is_levelled(const span *s) {
  static const char *const levels[] = {"WARN: ", "WARNING: ", "ERROR: ", "FATAL: ", "CRITICAL: ", "SEVERE: ", "INFO: "};
  const size_t from = s->from + (begins(s, s->from, "| ") ? 2 : 0);
  for (size_t i = 0; i < HRI_COUNT(levels); i++)
    if (begins(s, from, levels[i])) return true;
  return false;
}

bool hri_source_opens_literal(const char *line, size_t count) {
  span s = trim(line, count);
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
  while (at < count && (is_word_char(line[at]) || line[at] == '-')) at++;
  if (at + 3 > count || memcmp(line + at, ": '", 3) != 0 || hri_oom_word(line, at + 3, count, "''") == count)
    return false;
  return !hri_source_closes_scalar(line, at + 3, count);
}

/* What is built like source and stands among output: what was typed at a prompt (">>> x = f()"), a shell's setting, a
 * command's options over several lines, an object as Python prints it ("Namespace(lr=0.1)", "(wte): Embedding(50257, 768)"). */
static bool is_typed(const char *line, const span *s) {
  size_t at = 0, end = name_end(s, s->from);
  while (at < s->from && hri_line_is_blank(line[at])) at++;
  if (at < s->from && hri_match_at(line, at, s->to, ">>> |... ")) return true;
  if (hri_match_at(line, s->from, s->to, "in [|$ |export |set |--")) return true;
  if (begins(s, s->from, "In [")) return true;
  if (s->text[s->from] == '(') {
    for (at = s->from + 1; at < s->to && is_word_char(s->text[at]);) at++;
    return begins(s, at, "): ");
  }
  return s->from == 0 && end > 0 && s->text[0] >= 'A' && s->text[0] <= 'Z' && end < s->to && s->text[end] == '(' &&
         ends(s, ")");
}

hri_source_kind hri_source_of(const char *line, size_t count) {
  span s = trim(line, count);
  const span whole = s;
  if (s.from >= s.to) return HRI_SOURCE_NONE;
  if (is_frame(&s)) return HRI_SOURCE_FRAME;
  if (is_dated(&s) || is_record(&s) || is_pairs(&s) || is_levelled(&s) || names_place(&s) ||
      (is_exception(&s) && !is_member(&s)) || is_repr(&s) || is_coded(&s) || is_thrown(&s) || is_bracket(&s))
    return HRI_SOURCE_NONE;
  if (is_field(&s) || is_pair(&s)) return opens_structure(&s) ? HRI_SOURCE_CODE : HRI_SOURCE_LITERAL;
  if (is_plain_field(&s)) return HRI_SOURCE_FIELD;
  if (begins(&s, s.from, "\"\"\"") || begins(&s, s.from, "'''")) return HRI_SOURCE_CODE; /* a text in a program */
  drop_continuation(&s);
  const bool commented = drop_comment(&s);
  if (is_literal_line(&s)) return is_joined_literal(&s) || is_listed_literal(&s) ? HRI_SOURCE_CODE : HRI_SOURCE_LITERAL;
  if (is_pattern(&s) || is_tag(&s) || is_directive(&s)) return HRI_SOURCE_CODE;
  return begins_statement(&s) || ends_statement(&s) || is_assignment(&s) || is_call(&s) || is_entry(&s, commented) ||
                 is_member(&s) || is_numbered(&s) || opens_call(&s) || is_choice_or_member(&s) ||
                 is_closed_statement(&s) || is_chained(&s) || is_typed_name(&s) || is_computation(&s)
             ? is_typed(line, &whole) ? HRI_SOURCE_TYPED : HRI_SOURCE_CODE
             : HRI_SOURCE_NONE;
}
