/* Statements, told by how they are built, whatever the language: how one ends (a brace, a semicolon behind an operand, an
 * open bracket), how it begins (a keyword with what follows it, an assignment, a call), the entries of tables and
 * structures. What programs print is built otherwise: labels, sentences, names before a colon.
 *
 * The neighbours may rely on this: a line is judged by itself, without those around it, and a sentence is none. */
#include "explain/source_parts.h"

#include <string.h>

/* Where the name, possibly of several parts and with indices, that begins at `at` ends. */
size_t hri_source_name_end(const hri_source_span *s, size_t at) {
  size_t start = at;
  if (at < s->to && (hri_is_digit(s->text[at]) || !hri_source_is_word(s->text[at]))) return at;
  while (at < s->to && (hri_source_is_word(s->text[at]) ||
                        (s->text[at] == '.' && at + 1 < s->to && hri_source_is_word(s->text[at + 1])) ||
                        (s->text[at] == ':' && at + 2 < s->to && s->text[at + 1] == ':') || s->text[at] == ':')) {
    if (s->text[at] == ':') {
      if (!(at + 2 < s->to && s->text[at + 1] == ':' && hri_source_is_word(s->text[at + 2]))) break;
      at++;
    }
    at++;
  }
  return at > start ? at : start;
}

/* Whether the name that ends there is an error's. */
bool hri_source_names_error(const hri_source_span *s, size_t end) {
  static const char *const ends[] = {"Error", "Exception", "_error", "_exception", "bad_alloc"};
  for (size_t i = 0; i < HRI_COUNT(ends); i++)
    if (end >= s->from + strlen(ends[i]) && hri_source_begins(s, end - strlen(ends[i]), ends[i])) return true;
  return false;
}

/* A literal, with letters that modify it before its quote; *end is behind its closing quote. */
bool hri_source_literal_at(const hri_source_span *s, size_t at, size_t *end) {
  size_t letters = 0;
  char quote;
  while (at < s->to && letters < 3 && strchr("fFrRbBuUsL$@", s->text[at])) at++, letters++;
  if (at >= s->to || !strchr("\"'`", s->text[at])) return false;
  quote = s->text[at];
  if (quote == '`' && letters == 0 && !hri_source_ends(s, "`,")) return false; /* Go's, as an element of a list */
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

/* "name = ...", "name: type = ...", "NAME=...", "a.b += ...". Programs print "loss = 2.3" too: a number alone is no
 * operand. */
static bool is_assignment(const hri_source_span *s) {
  size_t at = hri_source_name_end(s, s->from), end;
  if (at == s->from) return false;
  if (at < s->to && s->text[at] == '[') { /* an element */
    end = hri_oom_word(s->text, at, s->to, "]");
    if (end < s->to && memchr(s->text + at, '"', end - at)) at = end + 1;
  }
  if (at + 1 < s->to && s->text[at] == ':' && s->text[at + 1] == ' ') { /* a type */
    size_t type = at + 2;
    while (type < s->to && (hri_source_is_word(s->text[type]) || strchr("[],.| ", s->text[type]))) type++;
    if (type < s->to && s->text[type] == '=') at = type;
  }
  while (at < s->to && s->text[at] == ' ') at++;
  if (at + 1 < s->to && strchr("+-|:?", s->text[at]) && s->text[at + 1] == '=') at++;
  if (hri_source_begins(s, at, "<- ") && at + 3 < s->to) return hri_source_name_end(s, at + 3) > at + 3; /* R's */
  if (at >= s->to || s->text[at] != '=' || (at + 1 < s->to && s->text[at + 1] == '=')) return false;
  for (at++; at < s->to && s->text[at] == ' ';) at++;
  if (at == s->to || strchr("([{", s->text[at]) || hri_source_literal_at(s, at, &end)) return true;
  at += s->text[at] == '&';
  end = hri_source_name_end(s, at);
  return end > at && (end == s->to || s->text[end] == '(' || s->text[end] == ';' || s->text[end] == '[');
}

/* Words of English too, which declare something where a name follows and a value, or the line ends as a statement does: "val x =
 * f()", "use a::b;", "function f(x)"; not "val loss: ...", "function f() failed: ...". */
static bool is_declaration(const hri_source_span *s) {
  static const char words[] =
      "use |mod |val |local |function |require |module |crate |final |static |auto |void |mutable |lazy |abstract ";
  const size_t name = hri_match_next(s->text, s->from, s->to, words);
  const size_t equals = hri_oom_word(s->text, name, s->to, " = ");
  if (name == s->from) return false;
  if (equals < s->to) {
    for (size_t i = name; i < equals; i++)
      if (!hri_source_is_word(s->text[i]) && !strchr(" ,.:<>[]*&?", s->text[i])) return false;
    return true;
  }
  if (hri_source_has(s, ": ")) return false;
  return hri_source_name_end(s, name) == s->to || strchr(";{()\"'", s->text[s->to - 1]) != NULL;
}

/* Whether the line begins with an error's name that no bracket or semicolon follows, "std::bad_alloc": how a program prints it. */
static bool prints_error(const hri_source_span *s) {
  const size_t end = hri_source_name_end(s, s->from);
  return hri_source_names_error(s, end) && (end == s->to || !strchr("(;{", s->text[end]));
}

/* A keyword that begins a statement, with what makes it one: English has most of these words too. */
static bool begins_statement(const hri_source_span *s) {
  static const char *const alone[] = {"def ",    "elif ",    "elseif ",   "#include",   "#define",    "#if",
                                      "#endif",  "#pragma",  "import ",   "raise ",     "assert ",    "assert!",
                                      "throw ",  "throws ",  "pub ",      "fn ",        "func ",      "impl ",
                                      "struct ", "enum ",    "typedef ",  "template",   "namespace ", "constexpr ",
                                      "static_", "public ",  "private ",  "protected ", "@",          "return ",
                                      "std::",   "self.",    "this.",     "console.",   "logger.",    "logging.",
                                      "EXPECT_", "ASSERT_",  "REQUIRE",   "CASE(",      "printf(",    "fprintf(",
                                      "print(",  "println!", "panic!",    "async ",     "await ",     "yield ",
                                      "except ", "except:",  "package ",  "using ",     "extern ",    "override ",
                                      "echo \"", "echo '",   "printf \"", "printf '",   "export ",    "assert_",
                                      "/*",      "*/",       "cdef ",     "inline ",    "unsigned ",  "const ",
                                      "let ",    "var ",     "(def"};
  static const char *const closed[] = {"if ", "for ",    "while ", "with ", "class ", "else",
                                       "try", "finally", "match ", "case ", "catch",  "switch",
                                       "if(", "for(",    "while(", "else:", "try:",   "} "};
  for (size_t i = 0; i < HRI_COUNT(alone); i++)
    if (hri_source_begins(s, s->from, alone[i])) {
      size_t behind = s->from + strlen(alone[i]);
      if (prints_error(s)) return false;
      if (alone[i][0] == '@') { /* a decorator; somebody is addressed otherwise */
        size_t name = hri_source_name_end(s, behind);
        return name > behind && (name == s->to || s->text[name] == '(');
      }
      /* words of sentences begin with such keywords too: one more sign of a program is needed */
      if (alone[i][strlen(alone[i]) - 1] != ' ') return true;
      for (size_t k = behind; k < s->to; k++)
        if (strchr("(){};=[]\"<:", s->text[k])) return true;
      return hri_source_name_end(s, behind) == s->to;
    }
  if (hri_source_begins(s, s->from, "from ") && hri_source_has(s, " import ")) return true;
  for (size_t i = 0; i < HRI_COUNT(closed); i++)
    if (hri_source_begins(s, s->from, closed[i]))
      return hri_source_ends(s, ":") || hri_source_ends(s, "{") || hri_source_ends(s, ")") || hri_source_ends(s, ";") ||
             hri_source_ends(s, "(") || hri_source_ends(s, "}") || hri_source_has(s, "): ") || hri_source_has(s, ") {");
  return false;
}

/* Whether the line begins with a bracket, or with a name and one; "[Thu Apr 1 16:45:10 2021] words" has a record's. */
static bool is_call_at(const hri_source_span *s) {
  size_t at = hri_source_name_end(s, s->from);
  const size_t close = s->text[s->from] == '[' ? hri_oom_word(s->text, s->from, s->to, "] ") : s->to;
  if (close + 2 < s->to && hri_is_letter(hri_line_lower(s->text[close + 2]))) return false;
  return at < s->to && strchr("([{", s->text[at]);
}

/* Whether the bracket that ends the line holds words before a quotation, as sentences do: "(of type "estack")". */
static bool is_remark(const hri_source_span *s) {
  size_t open = s->to;
  if (!hri_source_ends(s, "\")") && !hri_source_ends(s, "')")) return false;
  while (open > s->from && s->text[open - 1] != '(') open--;
  return open > s->from + 1 && s->text[open - 2] == ' ' && hri_source_is_word(s->text[open]) &&
         !memchr(s->text + open, '=', s->to - open) && !memchr(s->text + open, ',', s->to - open) &&
         memchr(s->text + open, ' ', s->to - open) != NULL;
}

/* Whether a label of several words stands before the bracket that the line ends with: "failed to start: x(...)". */
static bool is_labelled(const hri_source_span *s) {
  size_t open = hri_oom_word(s->text, s->from, s->to, "("), at;
  if (open == s->from) open = hri_oom_word(s->text, open + 1, s->to, "("); /* "(unit) failed to start: x(...)" */
  if (!hri_source_ends(s, ")") || open == s->to) return false;
  at = hri_oom_word(s->text, s->from, open, ": ");
  return at < open && memchr(s->text + s->from, ' ', at - s->from) && !memchr(s->text + s->from, '=', at - s->from) &&
         !memchr(s->text + s->from, '"', at - s->from) && !hri_source_begins(s, s->from, "case ");
}

/* Words alone, eight or more, and no sign of a program. */
static bool is_sentence(const hri_source_span *s) {
  unsigned words = 0;
  for (size_t at = s->from; at < s->to;) {
    size_t end = at;
    while (end < s->to && s->text[end] != ' ') end++;
    bool letters = end > at;
    for (size_t i = at; i < end; i++) {
      letters = letters && (hri_source_is_word(s->text[i]) || strchr("',.", s->text[i])) && s->text[i] != '_';
      if (strchr("={}<>", s->text[i])) return false;
    }
    words += letters;
    at = end + 1;
  }
  return words >= 8;
}

/* How a statement ends, or a part of one that goes on. */
static bool ends_statement(const hri_source_span *s) {
  static const char *const operands[] = {");",  "\";",  "';",  "];",  "};",   "\",",    "',",   ");\\",
                                         "({",  "=>",   "; }", "&&",  "||",   "; then", "; do", "\\n\"",
                                         "\")", "\"))", "')",  "\"]", "\" +", "' +"};
  if (hri_source_ends(s, "(") && is_sentence(s)) return false;
  if (hri_source_ends(s, "{") || hri_source_ends(s, "(") || hri_source_ends(s, "[") || hri_source_ends(s, "};"))
    return true;
  for (size_t i = 0; i < HRI_COUNT(operands); i++)
    if (hri_source_ends(s, operands[i])) return !is_remark(s) && !is_labelled(s);
  if (hri_source_ends(s, "),") || hri_source_ends(s, "],") || hri_source_ends(s, "},")) return is_call_at(s);
  if ((hri_source_ends(s, "\\") && (hri_source_has(s, "-") || hri_source_has(s, "="))) ||
      (hri_source_has(s, " || ") && hri_source_ends(s, "\"")))
    return true; /* a shell's */
  return hri_source_ends(s, ";") && (hri_source_has(s, " = ") || hri_source_name_end(s, s->from) == s->to - 1);
}

/* Whether a label and words follow where the bracket at `open` is closed: "python(823,0x7fff9a08) malloc: ... (error code=3)". */
static bool goes_on_in_words(const hri_source_span *s, size_t open) {
  int depth = 0;
  size_t at = open;
  for (; at < s->to; at++) {
    depth += s->text[at] == '(' ? 1 : s->text[at] == ')' ? -1 : 0;
    if (depth == 0) break;
  }
  if (at + 2 >= s->to || s->text[at + 1] != ' ') return false;
  for (at += 2; at < s->to && hri_source_is_word(s->text[at]);) at++;
  return hri_source_begins(s, at, ": ");
}

/* Whether one name is all that stands between the bracket at `open` and the one that closes it: "IsOOMError(err)". */
bool hri_source_takes_name(const hri_source_span *s, size_t open) {
  const size_t end = hri_source_name_end(s, open + 1);
  return end > open + 1 && end < s->to && s->text[end] == ')';
}

/* "name.of.function(...)" and nothing behind it. The name of an error before a bracket is how an exception prints
 * itself, but for one name in it. */
static bool is_call(const hri_source_span *s) {
  size_t at = hri_source_name_end(s, s->from);
  if (at == s->from || at >= s->to || s->text[at] != '(' || !hri_source_ends(s, ")") || goes_on_in_words(s, at))
    return false;
  return !hri_source_names_error(s, at) || hri_source_takes_name(s, at);
}

/* A plain word at the very beginning of a line: how people greet. */
static bool is_plain_word(const hri_source_span *s, size_t end) {
  for (size_t i = s->from; i < end; i++)
    if (!hri_is_letter(hri_line_lower(s->text[i]))) return false;
  return s->from == 0;
}

/* An enumerator, an entry of a table of codes: "NAME = 2,", "A => B,", "CASE(A, B)". */
static bool is_entry(const hri_source_span *s, bool commented) {
  size_t at = hri_source_name_end(s, s->from);
  if (at == s->from) return false;
  if (at + 1 == s->to && s->text[at] == ',') return !is_plain_word(s, at);
  while (at < s->to && s->text[at] == ' ') at++;
  if (hri_source_begins(s, at, "=>")) return true;
  if (at >= s->to || s->text[at] != '=') return false;
  for (at++; at < s->to && (s->text[at] == ' ' || s->text[at] == '-' || hri_source_is_word(s->text[at]));) at++;
  if (at < s->to && s->text[at] == ',') /* "wps=680, lr=0.25" is how programs print */
    return at + 1 == s->to ||           /* "errCode = 2, detailMessage = [...]" is printed */
           (hri_source_has(s, " = ") && !memchr(s->text + at, '[', s->to - at));
  return commented && at == s->to && hri_source_has(s, " = ");
}

/* A constant with its type, as Go writes them: "ERROR_X   syscall.Errno = 8429". */
static bool is_typed_constant(const hri_source_span *s) {
  size_t at = hri_source_name_end(s, s->from), type;
  if (s->from == 0 || at == s->from) return false;
  for (size_t i = s->from; i < at; i++)
    if (s->text[i] != '_' && !hri_is_digit(s->text[i]) && (s->text[i] < 'A' || s->text[i] > 'Z')) return false;
  for (type = at; type < s->to && hri_line_is_blank(s->text[type]);) type++;
  at = hri_source_name_end(s, type);
  while (at > type && at < s->to && hri_line_is_blank(s->text[at])) at++;
  if (at == type || at >= s->to || s->text[at] != '=') return false;
  for (at++; at < s->to && hri_line_is_blank(s->text[at]);) at++;
  return at < s->to && hri_is_digit(s->text[at]) && !memchr(s->text + at, ' ', s->to - at);
}

/* An entry of a table of codes that a number names, `9:  "killed",`. */
static bool is_numbered(const hri_source_span *s) {
  size_t at = s->from, end;
  while (at < s->to && hri_is_digit(s->text[at])) at++;
  if (at == s->from || at == s->to || s->text[at] != ':') return false;
  for (at++; at < s->to && hri_line_is_blank(s->text[at]);) at++;
  return hri_source_literal_at(s, at, &end) && end + 1 == s->to && s->text[end] == ',';
}

/* Words of a language and nothing that a program computes with: a sentence, or a list of what was counted. */
static bool is_wordy(const hri_source_span *s) {
  return is_sentence(s) || hri_source_has(s, ". ") ||
         !hri_match_part(s->text, s->from, s->to, "(|)|=|[|]|<|>|::|->|*|{|}");
}

/* A statement set in that ends with a semicolon, "break;", "pool.reserve(n).map_err(|oom| E::new(oom))?;", and a path of Rust's,
 * "use crate::error::OutOfMemory;", wherever it stands. */
static bool is_closed_statement(const hri_source_span *s) {
  if (!hri_source_ends(s, ";")) return false;
  if (hri_source_name_end(s, s->from) == s->to - 1) return true;
  if (hri_source_has(s, " ? ") && hri_source_has(s, " : ")) return true; /* "error == full ? FATAL : FINISHED;" */
  if (is_wordy(s) || (hri_source_has(s, ": ") && !hri_source_has(s, " = "))) return false; /* "error: ... at a::b;" */
  return s->from > 0 || hri_source_has(s, "::") || hri_source_has(s, "->") || hri_source_ends(s, ");");
}

/* A call on what the line before made, ".map(|x| x + 1)"; an arm of a choice, "A::B | C => D,". */
static bool is_chained(const hri_source_span *s) {
  if (s->text[s->from] == '.' && s->from + 1 < s->to) {
    const hri_source_span rest = {s->text, s->from + 1, s->to};
    const size_t at = hri_source_name_end(&rest, rest.from);
    return at > rest.from && at < s->to && s->text[at] == '(';
  }
  return hri_source_has(s, " => ") && s->from > 0 && !hri_source_has(s, ": ") &&
         (hri_source_ends(s, ",") || hri_source_ends(s, ";") || hri_source_ends(s, "{")) && !is_sentence(s);
}

/* A parameter or a member with its type, set in: "size: Option<u64>,", "inner: &'a T,". */
static bool is_typed_name(const hri_source_span *s) {
  size_t at = hri_source_name_end(s, s->from), from;
  if (s->from == 0 || at == s->from || at + 2 >= s->to || s->text[at] != ':' || s->text[at + 1] != ' ') return false;
  if (!hri_source_ends(s, ",")) return false;
  for (from = at += 2; at < s->to - 1; at++)
    if (s->text[at] == ' ' || hri_is_digit(s->text[from])) return false;
  return hri_match_part(s->text, from, s->to - 1, "<|&|::|[]");
}

/* "a, b = f(x)", "n = n + 1", "x = y.z * 2", "var = &name": what is assigned is computed; set in, for programs print
 * equations too. */
static bool is_computation(const hri_source_span *s) {
  const size_t eq = hri_oom_word(s->text, s->from, s->to, " = ");
  size_t at = eq + 3, end;
  if (s->from == 0 || eq == s->to || hri_source_name_end(s, s->from) == s->from || at >= s->to) return false;
  for (size_t i = s->from; i < eq; i++)
    if (!hri_source_is_word(s->text[i]) && !strchr(" ,.[]:*<>\"'", s->text[i])) return false;
  if (strchr("&*!-", s->text[at]) && ++at == s->to) return false;
  end = hri_source_name_end(s, at);
  if (end == at) return s->text[at] == '(' || s->text[at] == '[';
  if (end == s->to) return memchr(s->text + at, '.', end - at) != NULL || at > eq + 3;
  return s->text[end] == '(' || s->text[end] == '[' ||
         hri_match_at(s->text, end, s->to, " + | - | * | / | % | << | >> | & | == | if | ? | ?? | && |?.|!.|::");
}

/* The first line of a call whose arguments go on in the next one, "copy(to = (char *)calloc(1, n), NULL, ret,". */
static bool opens_call(const hri_source_span *s) {
  size_t at = hri_source_name_end(s, s->from);
  int depth = 0;
  if (!hri_source_ends(s, ",") || at == s->from || at >= s->to || s->text[at] != '(' || hri_source_names_error(s, at))
    return false;
  for (; at < s->to; at++) depth += s->text[at] == '(' ? 1 : s->text[at] == ')' ? -1 : 0;
  return depth > 0 && hri_source_has(s, " = ");
}

/* The same, set in, where a literal that goes on in the next line is all there is: `info("job %u exceeded its limit "`. */
static bool opens_literal(const hri_source_span *s) {
  const size_t at = hri_source_name_end(s, s->from);
  size_t end;
  return s->from > 0 && at > s->from && at + 1 < s->to && s->text[at] == '(' && s->text[at + 1] == '"' &&
         !hri_source_names_error(s, at) && hri_source_literal_at(s, at + 1, &end) && end == s->to;
}

/* What a test asks of a value, set in: `e.message == "pod x failed"`. */
static bool is_comparison(const hri_source_span *s) {
  const size_t at = hri_source_name_end(s, s->from);
  size_t end;
  return s->from > 0 && at > s->from && hri_match_at(s->text, at, s->to, " == | != ") &&
         hri_source_literal_at(s, at + 4, &end) && end == s->to;
}

/* A member of a class whose body is empty, "bad_alloc::bad_alloc(const char *msg) : what{msg} {}". */
static bool is_empty_member(const hri_source_span *s) {
  const size_t at = hri_source_name_end(s, s->from);
  return hri_source_ends(s, ") {}") || (hri_source_ends(s, "} {}") && at < s->to && s->text[at] == '(' &&
                                        memchr(s->text + s->from, ':', at - s->from));
}

/* A field of a structure that a program makes, as Go writes them: "ExitCode: 137,", "OOMKilled: s.OOMKilled,". */
bool hri_source_is_member(const hri_source_span *s) {
  size_t at = hri_source_name_end(s, s->from), blanks = 0;
  if (at == s->from || at + 1 >= s->to || s->text[at] != ':' || !hri_source_ends(s, ",")) return false;
  const bool owned = memchr(s->text + s->from, '.', at - s->from) != NULL; /* "errno.ENOMEM: ENOMEM," */
  if (!owned && (s->text[s->from] < 'A' || s->text[s->from] > 'Z')) return false;
  for (at++; at < s->to && hri_line_is_blank(s->text[at]);) at++;
  for (size_t i = at; i < s->to; i++) blanks += hri_line_is_blank(s->text[i]);
  if (owned) return hri_source_name_end(s, at) == s->to - 1;
  return at + 1 < s->to && (blanks == 0 || s->text[at] == '&' || hri_source_literal_at(s, at, &at));
}

bool hri_source_is_statement(const hri_source_span *s, bool commented) {
  return begins_statement(s) || is_declaration(s) || ends_statement(s) || is_assignment(s) || is_call(s) ||
         is_entry(s, commented) || hri_source_is_member(s) || is_numbered(s) || is_typed_constant(s) || opens_call(s) ||
         opens_literal(s) || is_comparison(s) || is_empty_member(s) || is_closed_statement(s) || is_chained(s) ||
         is_typed_name(s) || is_computation(s);
}
