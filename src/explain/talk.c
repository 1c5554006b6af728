/* Messages that are spoken of and not reported: in string literals of programs and tests, in documents (headings, rows of
 * tables, words set in code type), in conditions and advice, and where a placeholder stands for the figure. A message
 * that brings its figures is a report wherever it was pasted; one with none, or a request alone, is judged by where it
 * stands. */
#include "explain/match.h"
#include "explain/voice.h"

bool hri_voice_meets(const char *text, size_t line, size_t end) {
  static const char *const between[] =
      {" a",       " an",       " the",          " this",       " following",  " error",
       " message", " with",     " me",           ":",           " outright",   " (",
       ",",        " that",     " cuda",         " gpu",        " hip",        " torch",
       " same",    " similar",  " reproducible", " consistent", " persistent", " intermittent",
       " sudden",  " random",   " weird",        " strange",    " frequent",   " another",
       " new",     " repeated", " occasional",   " some",       " pytorch",    " device",
       " host",    " ram",      " system",       " actual",     " real",       " hard"};
  static const char *const verbs[] = {"got",          "get",         "getting",      "gives",     "gave",
                                      "hit",          "encountered", "encounter",    "received",  "saw",
                                      "met",          "threw",       "ooms",         "oomed",     "failed",
                                      "crashed",      "died",        "aborted",      "print",     "printed",
                                      "showed",       "tells",       "told",         "says",      "said",
                                      "fails",        "reproduced",  "error is",     "error was", "message is",
                                      "message was",  "output is",   "returned",     "returns",   "throws",
                                      "throwing",     "produced",    "having",       "facing",    "faced",
                                      "experiencing", "seeing",      "hits",         "raised",    "ran into",
                                      "runs into",    "run into",    "running into", "dies",      "crashes",
                                      "aborts",       "and show",    "and shows"};
  static const char *const cases[] = {"if",   "when", "whenever", "you",    "users",  "may",     "might",  "to",
                                      "will", "can",  "could",    "anyone", "people", "anybody", "others", "someone"};
  static const char *const doubts[] = {"if", "otherwise", "whenever", "may", "might", "would", "could", "should"};
  bool more = true;
  while (end > line && text[end - 1] == ' ') end--;
  if (hri_match_any(text, hri_sentence_start(text, line, end), end, doubts, HRI_COUNT(doubts))) return false;
  while (more) {
    more = false;
    for (size_t i = 0; i < HRI_COUNT(between); i++)
      if (hri_match_end(text, line, end, between[i])) {
        end -= strlen(between[i]);
        more = true;
      }
  }
  for (size_t i = 0; i < HRI_COUNT(verbs); i++) {
    size_t length = strlen(verbs[i]);
    if (hri_match_end(text, line, end, verbs[i]) && (end == line + length || text[end - length - 1] == ' '))
      return !hri_match_any(text, end - length > line + 14 ? end - length - 14 : line, end - length, cases,
                            HRI_COUNT(cases));
  }
  return false;
}

/* Whether the words before a quoted message say that it happened: "failed with", "cuda failure", a key of a log record.
 * A call takes a literal in programs; in logs it is how an exception prints itself, at the line's beginning. */
static bool quotes_a_report(const char *text, size_t line, size_t quote, bool ticked, bool among, bool title) {
  line = line > 40 ? line - 40 : 0; /* a line that was wrapped before the quotation */
  static const char *const before[] = {"failure",      "failed with",
                                       "fails with",   "failing with",
                                       "died with",    "crashed with",
                                       "crashes with", "aborted with",
                                       "error with",   "panicked at",
                                       "failed:",      "failure 2",
                                       " msg=",        " error=",
                                       " err=",        " message=",
                                       " reason=",     ",message=",
                                       " exception=",  " stderr=",
                                       "by",           "err(",
                                       "(error",       "last error:",
                                       "value: ",      "error_out_of_memory,",
                                       "raised with",  "following error",
                                       "die with",     "dies with",
                                       "instance of",  "throwing",
                                       "search for",   "result",
                                       "arrived as",   "surfaced as",
                                       "appeared as",  "reported as",
                                       "showed up as", "failed as"};
  /* what somebody tells of one event; a document says these things in the present */
  static const char *const told[] =
      {" with",    " then",        " printed",   " reported", " showed",   " logged",      " threw",
       " raised",  " resulted in", " caused",    " saw",      " repeated", "\xe6\x8a\xa5", "\xe6\x8a\xa5\xe9\x94\x99",
       "symptom:", "said:",        "printed:",   "got:",      "saw:",      "threw:",       "showed:",
       "logged:",  " confirmed:",  " confirms:", " reads:",   " says:"};
  static const char *const keys[] = {"\"msg\":",    "\"message\":",   "\"error\":",    "\"evalue\":", "\"exception\":",
                                     "\"stderr\":", "\"detail\":",    "\"reason\":",   "\"log\":",    "\"output\":",
                                     "\"text\":",   "\"traceback\":", "\"exc_info\":", "\"err\":",    "\"status\":",
                                     "\"ename\":",  "\"errortype\":"};
  size_t end = quote;
  while (end > line && text[end - 1] == ' ') end--;
  if (among && end > line && text[end - 1] == '=') return false; /* an argument */
  if (hri_match_at(text, hri_sentence_start(text, line, end), end, "if ")) return false;
  if (hri_match_end(text, line, end, "&&") && hri_oom_word(text, line, end, "assert") < end) return true;
  if (title && (hri_match_end(text, line, end, ":") || hri_match_end(text, line, end, "crashing") ||
                hri_match_end(text, line, end, "crash")))
    return true;
  if (hri_voice_meets(text, line, end)) return true;
  if (hri_match_end(text, line, end, " with") || hri_match_end(text, line, end, " by") ||
      hri_match_end(text, line, end, " as") ||
      (ticked && hri_match_end(text, line, end, ":"))) { /* "it crashed after an hour with" */
    static const char *const ends[] = {"crashed", "died", "failed", "aborted", "stopped", "ended", "exited", "killed"};
    if (hri_match_any(text, hri_sentence_start(text, line, end), end, ends, HRI_COUNT(ends))) return true;
  }
  for (size_t i = 0; i < HRI_COUNT(before); i++)
    if (hri_match_end(text, line, end, before[i])) return true;
  static const char *const possible[] = {"can", "may", "might", "could", "would", "will", "should"};
  for (size_t i = 0; ticked && i < HRI_COUNT(told); i++)
    if (hri_match_end(text, line, end, told[i])) /* "restarted with `...`", not "can fail with" */
      return !hri_match_any(text, end > line + 20 ? end - 20 : line, end, possible, HRI_COUNT(possible));
  for (size_t i = 0; i < HRI_COUNT(keys); i++) /* of a record on one line, or of a notebook's output */
    if (hri_match_end(text, line, end, keys[i]) &&
        (memchr(text + line, '{', end - line) || keys[i][1] == 't' ||
         hri_match_at(keys[i], 0, strlen(keys[i]), "\"evalue") || hri_match_at(keys[i], 0, strlen(keys[i]), "\"ename")))
      return true;
  if (hri_match_end(text, line, end, "error(") || hri_match_end(text, line, end, "exception(")) {
    size_t start = end - 1;
    while (start > line && (hri_is_name(text[start - 1]) || text[start - 1] == '.')) start--;
    return start == line || hri_match_end(text, line, start, ": ") || hri_match_end(text, line, start, "exception=");
  }
  return false;
}

bool hri_oom_is_told(const hri_oom_place *p) {
  return p->tick_from < p->tick_to &&
         quotes_a_report(p->text, p->line, p->tick_from, true, false, p->shape & HRI_OOM_TITLE);
}

/* Whether the quote at text[quote] begins an operand: an operator or bracket of a program stands before it. */
static bool is_operand(const char *text, size_t from, size_t quote) {
  while (quote > from && text[quote - 1] == ' ') quote--;
  return quote > from && strchr("+=([{", text[quote - 1]);
}

/* Whether the single quote before text[from] is closed before text[at]: "'pc.ram': ...". */
static bool closes_before(const char *text, size_t from, size_t at) {
  for (size_t i = from + 1; i + 1 < at; i++)
    if (text[i] == '\'' && hri_is_name(text[i - 1]) && !hri_is_name(text[i + 1])) return true;
  return false;
}

/* Whether the quotation mark at text[at] closes: a word ends before it and a blank or a mark follows. */
static bool closes_at(const char *text, size_t at) {
  return at > 0 && (hri_is_name(text[at - 1]) || strchr(".)!?%", text[at - 1])) && strchr(" .,;:)", text[at + 1]);
}

/* Whether text[at] stands in a literal that is opened and closed in its line; *quote is where it is opened. */
static bool find_quote(const hri_oom_place *p, size_t *quote) {
  const char *text = p->text;
  size_t least = p->at > 120 ? p->at - 120 : 0;
  bool closed = false;
  for (size_t i = p->at; i > least; i--) {
    char c = text[i - 1];
    bool opens = c == '"' || c == '\'';
    if (c == '"' && i >= 2 && text[i - 2] == '\\') return false; /* inside a record of a log */
    if (!opens) continue;
    if (c == '"' && closed) { /* of what was closed before: `"x" y` */
      closed = false;
      continue;
    }
    if (c == '"' && i - 1 < p->line && closes_at(text, i - 1)) {
      closed = true;
      continue;
    }
    if (i >= 2 && (hri_is_name(text[i - 2]) || strchr(".)]", text[i - 2])) && !(i >= 3 && !hri_is_name(text[i - 3])))
      continue; /* "can't", or closed there; "f\"...\"" opens */
    if (text[i] == ',' || (text[i] == ' ' && !is_operand(text, least, i - 1))) continue;
    if (c == '\'' && closes_before(text, i, p->at)) continue;
    size_t end = c == '"' && p->at + 400 < p->count ? p->at + 400 : c == '"' ? p->count : p->line_end;
    for (size_t k = p->at; k < end; k++)
      if (text[k] == c && !(c == '\'' && k + 1 < end && hri_is_name(text[k + 1]))) {
        *quote = i - 1;
        return !(k + 1 < end && text[k + 1] == ':'); /* the key of a record */
      }
    *quote = i - 1; /* or the text was cut before it is closed */
    return c == '"' && !memchr(text + i, c, p->at - i) && is_operand(text, least, i - 1) && end == p->count;
  }
  return false;
}

/* Whether an error's name stands before the message in its line. */
static bool names_error_before(const hri_oom_place *p) {
  size_t at = hri_oom_word(p->text, p->line, p->at, "error:");
  return at < p->at || hri_oom_word(p->text, p->line, p->at, "exception:") < p->at;
}

/* Whether a word of three letters or more stands there, which is no figure left open: "xx", "size". */
static bool is_word_at(const hri_oom_place *p, size_t at) {
  size_t end = at;
  while (end < p->count && hri_is_letter(p->text[end])) end++;
  return end >= at + 3 && (end == p->count || strchr(" .,;:)", p->text[end])) &&
         !hri_match_at(p->text, at, end, "xx") && !hri_match_at(p->text, at, end, "nnn") &&
         !hri_match_at(p->text, at, end, "size");
}

/* Where a figure always follows, something else does: "tried to allocate x gib", "tried to allocate \" + size". */
static bool has_placeholder(const hri_oom_place *p) {
  static const char *const asks[] = {"tried to allocate",
                                     "(mps allocated:",
                                     "oom allocating",
                                     "memory allocating",
                                     "total-vm:",
                                     "dataloader worker (pid",
                                     "trying to allocate",
                                     "system memory (",
                                     "requested buffer of size",
                                     "is smaller than requested bytes of",
                                     "vector of size",
                                     "system memory("};
  static const char *const meant[] = {"more than 1eb", "more memory", "a ", "memory", "buffer", "tensor", "the "};
  static const char *const stand_ins[] = {"unable to allocate xx", "unable to allocate x ", "unable to allocate n ",
                                          "unable to allocate <",  "unable to allocate {",  "unable to allocate %",
                                          "unable to allocate ..."};
  size_t end = p->at + 120 < p->count ? p->at + 120 : p->count;
  if (hri_oom_word(p->text, p->line, p->at, "[enforce fail at ") < p->at)
    return false; /* some print a "%d" themselves */
  if (hri_match_part(p->text, p->at > 24 ? p->at - 24 : 0, end, stand_ins, HRI_COUNT(stand_ins))) return true;
  for (size_t i = 0; i < HRI_COUNT(asks); i++) {
    size_t at = hri_oom_word(p->text, p->at, end, asks[i]);
    bool whole = false;
    if (at == end) continue;
    at += strlen(asks[i]);
    while (at < p->count && strchr(" :=[(", p->text[at])) at++;
    whole = is_word_at(p, at);
    for (size_t k = 0; k < HRI_COUNT(meant); k++) whole = whole || hri_match_at(p->text, at, p->count, meant[k]);
    if (at < p->count && (p->text[at] == '.' || (p->text[at] & 0x80)) && names_error_before(p)) continue; /* left out */
    if (at < p->count && !hri_is_digit(p->text[at]) && !whole && p->text[at] != '-') return true;
  }
  return false;
}

/* The same in the languages that logs and documents about training are mostly written in: if, when, avoid. */
static bool is_foreign_condition(const char *text, size_t from, size_t to) {
  static const char *const whole[] = {"wenn",      "falls", "si",  "quand",  "lorsque", "cuando",
                                      "quando",    "caso",  "als", "indien", "evitar",  "\xc3\xa9viter",
                                      "vermeiden", "jika",  "nếu", "se"};
  static const char *const parts[] = {"\xe8\x8b\xa5",                              /* Chinese: if */
                                      "\xe5\xa6\x82\xe6\x9e\x9c",                  /* if */
                                      "\xe5\xa6\x82\xe9\x81\x87",                  /* if one meets */
                                      "\xe5\xbd\x93",                              /* when */
                                      "\xe9\x81\xbf\xe5\x85\x8d",                  /* avoid */
                                      "\xe9\x98\xb2\xe6\xad\xa2",                  /* prevent */
                                      "\xe5\xa0\xb4\xe5\x90\x88",                  /* Japanese: in case */
                                      "\xe3\x82\x82\xe3\x81\x97",                  /* if */
                                      "\xea\xb2\xbd\xec\x9a\xb0",                  /* Korean: in case */
                                      "\xd0\xb5\xd1\x81\xd0\xbb\xd0\xb8",          /* Russian: if */
                                      "\xd0\x95\xd1\x81\xd0\xbb\xd0\xb8",          /* the same at a beginning */
                                      "\xd0\xba\xd0\xbe\xd0\xb3\xd0\xb4\xd0\xb0"}; /* when */
  static const char *const phrases[] = {"en cas de",
                                        "en caso de",
                                        "em caso de",
                                        "bei einem",
                                        "\xe5\xb8\xb8\xe8\xa7\x81\xe9\x94\x99\xe8\xaf\xaf",
                                        "\xe5\xb8\xb8\xe8\xa7\x81\xe9\x97\xae\xe9\xa2\x98"}; /* the last two
                                                                               are Chinese: common errors */
  return hri_match_part(text, from, to, phrases, HRI_COUNT(phrases)) ||
         hri_match_any(text, from, to, whole, HRI_COUNT(whole)) ||
         hri_match_part(text, from, to, parts, HRI_COUNT(parts));
}

/* What follows in such languages: "in case of", "please". */
static bool is_foreign_advice(const char *text, size_t from, size_t to) {
  static const char *const parts[] = {"\xe3\x81\xae\xe5\xa0\xb4\xe5\x90\x88",
                                      "\xed\x95\x98\xeb\xa9\xb4",
                                      "\xe8\xaf\xb7",
                                      "\xe6\xb8\x9b\xe3\x82\x89\xe3\x81\x97",
                                      "\xe4\xb8\x8b\xe3\x81\x92\xe3\x81\xa6",
                                      "\xe5\xbb\xba\xe8\xae\xae"};
  return hri_match_part(text, from, to, parts, HRI_COUNT(parts));
}

/* A line of a change log names what it mends: "... (fixes #4)", "... (#12)". */
static bool names_change(const hri_oom_place *p) {
  static const char *const words[] = {"fixes #", "closes #", "fix #", "resolves #", "(#"};
  return hri_match_part(p->text, p->line, p->line_end, words, HRI_COUNT(words));
}

/* A question and its answer: "... out of memory  solution: ...", on the same line or the next. */
static bool is_answered(const hri_oom_place *p) {
  size_t end = p->line_end + 40 < p->count ? p->line_end + 40 : p->count;
  size_t at = hri_oom_word(p->text, p->at, end, "solution:");
  return at < end && at - p->at < 80;
}

/* An item of a list of questions that are asked often, or of errors that are common. */
static bool is_frequent(const hri_oom_place *p) {
  static const char *const words[] = {"frequently asked", "faq",           "faqs",
                                      "common errors",    "common issues", "common problems",
                                      "known issues",     "known errors"};
  size_t from = p->before_count > 600 ? p->before_count - 600 : 0;
  return p->shape & HRI_OOM_COMMENT && !(p->shape & HRI_OOM_FENCED) &&
         hri_match_any(p->before, from, p->before_count, words, HRI_COUNT(words));
}

/* A field of a test's data: what is expected of it is the next field. */
static bool is_expected(const hri_oom_place *p) {
  return p->shape & HRI_OOM_LITERAL && hri_match_at(p->text, p->line_end, p->count, "\"expected");
}

/* The name of a field whose value reports: "\"oomkilled\": true", "\"exitcode\": 137". */
static bool is_valued(const hri_oom_place *p) {
  size_t at = p->at;
  while (at < p->line_end && (hri_is_name(p->text[at]) || p->text[at] == '"' || p->text[at] == ' ')) at++;
  if (at == p->line_end || p->text[at] != ':') return false;
  for (at++; at < p->line_end && p->text[at] == ' ';) at++;
  return hri_match_at(p->text, at, p->line_end, "true") || hri_match_at(p->text, at, p->line_end, "137");
}

/* The key of a table of texts: "\"cuda out of memory\": \"...\"". */
static bool is_key(const hri_oom_place *p) {
  const char *close;
  if (is_valued(p)) return false;
  if (p->line < p->at && p->text[p->line] == '"' &&
      (close = memchr(p->text + p->at, '"', p->line_end - p->at)) != NULL && close + 1 < p->text + p->line_end &&
      close[1] == ':' && !memchr(p->text + p->line + 1, '"', p->at - p->line - 1))
    return true;
  size_t end = hri_oom_word(p->text, p->at, p->line_end, "out of memory\":");
  if (end > p->at + 6) return false;
  return hri_match_end(p->text, p->line, p->at, "\"cuda ") || hri_match_end(p->text, p->line, p->at, "\"");
}

/* Conditions, advice and questions before the message; an error's own words behind its name may hold some. */
static bool is_conditional(const hri_oom_place *p) {
  static const char *const words[] =
      {"if you",       "if it",      "if the",   "when you",  "whenever",   "in case",     "may",        "might",
       "to avoid",     "avoid",      "avoids",   "avoiding",  "prevent",    "prevents",    "preventing", "how to",
       "you will see", "you'll see", "you may",  "can throw", "can cause",  "can raise",   "e.g.",       "for example",
       "such as",      "should",     "would be", "would run", "would fail", "would cause", "otherwise",  "else",
       "use this",     "what is",    "why",      "means",     "looks like", "look like",   "can fail",   "will fail",
       "could fail",   "indicates",  "often",    "usually",   "typically",  "raises",      "catches",    "handles",
       "detects",      "instead of", "you",      "your",      "users",      "fix",         "fixes",      "fixed",
       "fixing",       "resolve",    "resolved", "solve",     "solved",     "reduce",      "reduces",    "mitigate",
       "workaround",   "handle",     "handling", "classify",  "treat",      "treats",      "ignore",     "suppress",
       "tip",          "note",       "hint",     "unless",    "until",      "exit codes",  "error codes"};
  static const char *const labels[] = {"error", "failed", "exception", "fatal", "failure", "crash"};
  size_t named = p->at, line = p->line, quote = 0;
  if (hri_match_part(p->text, p->line, p->at, (const char *const[]){"exit codes of the workers are"}, 1)) return false;
  if (p->tick_from == p->tick_to && find_quote(p, &quote) && hri_voice_meets(p->text, p->line, quote)) return false;
  if (!hri_oom_is_told(p)) line = hri_sentence_start(p->text, p->sentence, p->line);
  if (p->line > 8 && line > p->line - 8) line = p->line - 8;
  if (p->tick_from < p->tick_to && p->tick_from <= p->line + 2 &&
      !hri_oom_is_told(p)) /* a sentence that was wrapped before its quotation */
    line = hri_sentence_start(p->text, p->line > 120 ? p->line - 120 : 0, p->line);
  if (hri_match_at(p->text, line, named, "may ") && line + 4 < named && hri_is_digit(p->text[line + 4]))
    line += 4; /* the month */
  for (size_t i = 0; i < HRI_COUNT(labels); i++) named = hri_oom_word(p->text, p->line, named, labels[i]);
  return hri_match_any(p->text, line, named, words, HRI_COUNT(words)) || is_foreign_condition(p->text, line, named);
}

/* Whether text[from, to) has a number of `least` digits or more: a process, a job, a size, so that it happened once. */
static bool is_concrete(const char *text, size_t from, size_t to, unsigned least) {
  unsigned digits = 0;
  for (size_t i = from; i < to; i++) {
    digits = hri_is_digit(text[i]) ? digits + 1 : 0;
    if (digits == least) return true;
  }
  return false;
}

/* Behind what marks an item, a comment or a heading: "- ", "1. ", "// ", "<li>". */
static size_t skip_marks(const hri_oom_place *p) {
  size_t at = p->line;
  if (hri_match_at(p->text, at, p->at, "0x")) { /* the code itself */
    while (at < p->at && p->text[at] != ' ') at++;
    while (at < p->at && p->text[at] == ' ') at++;
  }
  while (at < p->at && (strchr(" -+/.)", p->text[at]) || hri_is_digit(p->text[at]) || p->text[at] == '<')) {
    if (p->text[at] == '<') at = hri_oom_word(p->text, at, p->at, ">");
    if (at < p->at) at++;
  }
  return at;
}

/* Whether words follow the exit code that begins the line: what it stands for. */
static bool defines(const hri_oom_place *p) {
  size_t at = p->at, letters = 0;
  while (at < p->line_end && !hri_is_digit(p->text[at])) at++;
  while (at < p->line_end && hri_is_digit(p->text[at])) at++;
  for (; at < p->line_end; at++) letters += p->text[at] >= 'a' && p->text[at] <= 'z';
  return hri_match_at(p->text, p->at, p->line_end, "exit") && letters > 8;
}

/* Between the bars or slashes of a pattern: "(hiperror|out of memory|", "/out of memory/i". */
static bool is_pattern(const hri_oom_place *p) {
  size_t near = p->at + 20 < p->count ? p->at + 20 : p->count;
  size_t end = hri_oom_word(p->text, p->at, near, "memory/");
  if (end < near) return true;
  for (end = p->at; end < near && (hri_is_name(p->text[end]) || p->text[end] == '-');) end++;
  if (end + 1 < p->line_end && p->text[end] == '/' && !hri_is_name(p->text[end + 1])) return true;
  return p->at > 0 && strchr("|/", p->text[p->at - 1]) && !(p->shape & HRI_OOM_LEVEL);
}

/* Whether the value belongs to a field of patterns, or to one that sets a signal: "pattern: ...", "default: sigkill". */
static bool is_setting(const hri_oom_place *p, size_t from) {
  static const char *const names[] = {"pattern", "regex", "regexp",      "match",     "matches",  "patterns", "default",
                                      "keyword", "query", "stop_signal", "signature", "expected", "name",     "id",
                                      "rule",    "alert", "terms",       "title",     "keywords", "tags"};
  size_t end = hri_oom_word(p->text, p->line, from, ":");
  return end < from && end - p->line < 40 && hri_match_any(p->text, p->line, end, names, HRI_COUNT(names));
}

/* "cublas_status_alloc_failed: resource allocation failed inside the library.": a name and what it means. */
static bool is_entry_of_codes(const hri_oom_place *p, size_t first) {
  size_t end = first;
  unsigned blanks = 0;
  while (end < p->line_end && hri_is_name(p->text[end])) end++;
  bool code =
      memchr(p->text + first, '_', end - first) || hri_match_at(p->text, first, end, "cudaerror") ||
      hri_match_at(p->text, first, end, "hiperror"); /* classes of exceptions have words of their own behind them */
  static const char *const errors[] = {"error", "status", "fail"};      /* "llama_kv_cache_init: ..." is who speaks */
  if (hri_match_at(p->text, p->line, first, "0x") && code) return true; /* the code itself stands before its name */
  if (p->at >= end && !hri_match_part(p->text, first, end, errors, HRI_COUNT(errors))) return false;
  if (end - first < 13 || !code) return false;
  if (hri_match_at(p->text, end, p->line_end, ": '") || hri_match_at(p->text, end, p->line_end, ": \"")) return true;
  if (hri_match_at(p->text, end, p->line_end, " = ") && end + 3 < p->line_end &&
      (hri_is_digit(p->text[end + 3]) || p->text[end + 3] == '-'))
    return true;
  if (end - first < 16) return false;
  if (!hri_match_at(p->text, end, p->line_end, ": ") &&
      !(end + 1 < p->line_end && p->text[end] == ' ' && hri_is_letter(p->text[end + 1]) && !hri_oom_is_told(p) &&
        !hri_match_at(p->text, end, p->line_end, " when calling")))
    return false;
  for (; end < p->line_end; end++) blanks += p->text[end] == ' ';
  return blanks >= 6;
}

/* Whether a row of a table, which reports in its last cell what came of the first: there the name of an error code
 * stands, and nothing behind it explains or advises. */
static bool is_result_row(const hri_oom_place *p, const hri_oom_message *m) {
  size_t cells = 0, behind = 0;
  bool code = strchr(m->failure.source, '-') && p->at + 16 < p->line_end && memchr(p->text + p->at, '_', 12);
  for (size_t i = p->line; i < p->line_end; i++) {
    cells += p->text[i] == '|' && i < p->at;
    behind += p->text[i] == '|' && i > p->at;
  }
  return code && cells >= 1 && behind <= 1;
}

/* An item that begins with an error and goes on to explain it: "- cuda error: out of memory: the gpu is full". */
static bool is_explained_item(const hri_oom_place *p, size_t first) {
  static const char *const lead[] = {"",
                                     "cuda error: ",
                                     "hip error: ",
                                     "runtimeerror: ",
                                     "runtimeerror: cuda error: ",
                                     "torch.outofmemoryerror: ",
                                     "torch.cuda.outofmemoryerror: ",
                                     "error: ",
                                     "cuda ",
                                     "torch.outofmemoryerror: cuda ",
                                     "runtimeerror: cuda "};
  static const char *const joints[] = {": ", " - ", " -> ", " \xe2\x80\x94 ", " \xe2\x80\x93 ", " \xe2\x86\x92 "};
  size_t at = hri_oom_word(p->text, first, p->line_end, "out of memory"), end = at + 13;
  bool leads = false;
  for (size_t i = 0; i < HRI_COUNT(lead) && !leads; i++)
    leads = at - first == strlen(lead[i]) && hri_match_at(p->text, first, at, lead[i]);
  if (!leads || p->at > end) return false;
  for (size_t i = 0; i < HRI_COUNT(joints); i++)
    if (hri_match_at(p->text, end, p->line_end, joints[i]) && end + strlen(joints[i]) + 8 < p->line_end &&
        !is_concrete(p->text, end, p->line_end, 3))
      return true;
  return false;
}

/* Whether the message says itself that nothing failed. */
static bool denies_failure(const hri_oom_place *p) {
  static const char *const words[] = {"this is not a failure", "is not a failure", "this is not an error",
                                      "% of free system memory", "not a fatal error"};
  size_t end = p->at + 200 < p->count ? p->at + 200 : p->count; /* it may be wrapped */
  return hri_match_part(p->text, p->at, end, words, HRI_COUNT(words));
}

/* Whether the request was for something that a program does without: pages locked in memory, one of several ways to
 * compute a layer. */
static bool is_optional(const hri_oom_place *p) {
  static const char *const tactics[] = {"insufficient to use tactic", "insufficient memory to use tactic",
                                        "falling back to non-pinned"};
  static const char *const before[] = {"failed to mlock", "failed to munlock", "unable to lock", "skipping tactic"};
  return hri_match_part(p->text, p->line, p->at, before, HRI_COUNT(before)) ||
         hri_match_part(p->text, p->line, p->line_end, tactics, HRI_COUNT(tactics));
}

/* Whether the line is the source line of a traceback's frame that raised it: the text was cut before the exception. */
static bool is_raised_below(const hri_oom_place *p) {
  size_t from = p->before_count > 240 ? p->before_count - 240 : 0, frame = from;
  size_t line = p->line;
  while (line < p->at && p->text[line] == ' ') line++;
  if (!hri_match_at(p->text, line, p->at, "raise ") && hri_oom_word(p->text, line, p->at, "] raise ") == p->at)
    return false;
  for (size_t at = hri_oom_word(p->before, from, p->before_count, "file \""); at < p->before_count;
       at = hri_oom_word(p->before, at + 1, p->before_count, "file \""))
    frame = at + 1;
  return frame > from && hri_oom_word(p->before, frame, p->before_count, "\", line ") < p->before_count;
}

/* Whether the line, behind what marks a comment, is how an exception is printed: "# runtimeerror: ...", "* terminate
 * called after". */
static bool opens_with_error(const hri_oom_place *p) {
  size_t at = skip_marks(p), end = at;
  while (end < p->line_end && (hri_is_name(p->text[end]) || p->text[end] == '.')) end++;
  if (hri_match_at(p->text, at, p->line_end, "terminate called") || hri_match_at(p->text, at, p->line_end, "what(): "))
    return true;
  return (hri_match_at(p->text, end, p->line_end, ": ") ||
          hri_match_at(p->text, end, p->line_end, " traceback (most recent")) &&
         (hri_match_end(p->text, at, end, "error") || hri_match_end(p->text, at, end, "exception"));
}

bool hri_voice_denies(const hri_oom_place *p) { return denies_failure(p) || is_optional(p); }

bool hri_voice_raised(const hri_oom_place *p) { return is_raised_below(p); }

bool hri_voice_placeholder(const hri_oom_place *p) { return has_placeholder(p); }

/* Behind the colon of the line that introduces the message; 0 when none does. */
static size_t intro_end(const hri_oom_place *p) {
  static const char *const languages[] = {" text", " txt", " console", " log", " bash", " shell", " sh", " output"};
  size_t end = p->intro_count;
  while (end > 0 && (p->before[end - 1] == ' ' || p->before[end - 1] == '`')) end--;
  for (size_t i = 0; i < HRI_COUNT(languages); i++) /* of the block's mark */
    if (hri_match_end(p->before, 0, end, languages[i])) {
      end -= strlen(languages[i]);
      break;
    }
  return end > 0 && p->before[end - 1] == ':' ? end : 0;
}

/* The sentence of that line, as far as `reach` bytes before its end: p->before[*from, *end). */
static bool find_intro(const hri_oom_place *p, size_t reach, size_t *from, size_t *end) {
  *end = intro_end(p);
  if (*end == 0) return false;
  *from = hri_sentence_start(p->before, *end > reach ? *end - reach : 0, *end - 1);
  return true;
}

/* Whether the line that introduces the message, "if ...:", makes it a case. */
static bool is_introduced_as_case(const hri_oom_place *p) {
  static const char *const words[] = {"if",      "may",  "might",   "would",    "could see",    "can see",
                                      "can get", "e.g.", "example", "whenever", "such as this", "such as"};
  size_t end, from;
  if (!find_intro(p, 200, &from, &end)) return false;
  return hri_match_any(p->before, from, end, words, HRI_COUNT(words));
}

bool hri_voice_foreseen(const hri_oom_place *p) {
  static const char *const words[] = {"you will encounter", "if you encounter", "if you get",     "if you see",
                                      "if you run into",    "if you receive",   "you will get",   "you will see",
                                      "you'll see",         "you'll get",       "you may see",    "you may get",
                                      "you may encounter",  "you might see",    "you might get",  "you might encounter",
                                      "errors such as",     "could cause the",  "can cause the",  "may cause the",
                                      "might cause the",    "would cause the",  "will look like", "may look like",
                                      "might look like",    "errors like"};
  static const char *const own[] = {"i", "i'm", "we", "my", "our", "me", "us", "got", "happened", "now"};
  size_t end, from;
  if (!find_intro(p, 240, &from, &end)) return false;
  if (hri_match_any(p->before, from, end, own, HRI_COUNT(own))) return false;
  return hri_match_part(p->before, from, end, words, HRI_COUNT(words)) ||
         (hri_match_at(p->before, from, end, "if ") && hri_match_end(p->before, from, end, " fails with:"));
}

bool hri_voice_introduced(const hri_oom_place *p) {
  static const char *const words[] = {"if you",    "you may", "you might", "may see",  "might see",
                                      "could see", "can see", "when you",  "may look", "might look"};
  static const char *const asking[] = {"if you need", "if you want", "if you could",
                                       "if you can",  "if you have", "if it helps"};
  size_t end, from;
  if (!(p->shape & HRI_OOM_FENCED)) return is_frequent(p);
  if (!find_intro(p, 160, &from, &end)) return false;
  return hri_match_any(p->before, from, end, words, HRI_COUNT(words)) &&
         !hri_match_any(p->before, from, end, asking, HRI_COUNT(asking));
}

/* Whether the back quotes around it enclose the line, and perhaps others: a block, as people make one. */
static bool spans_lines(const hri_oom_place *p) {
  size_t end = p->line_end;
  while (end > p->line && p->text[end - 1] == ' ') end--;
  return p->tick_from <= p->line && p->tick_to >= end && !(p->shape & HRI_OOM_HEADING);
}

/* Where the name begins whose last part begins at text[from]: "system.outofmemoryexception". */
static size_t name_start(const hri_oom_place *p, size_t from) {
  while (from > p->line && (hri_is_name(p->text[from - 1]) || p->text[from - 1] == '.')) from--;
  return from;
}

uint64_t hri_voice_talk(const hri_oom_place *p, const hri_oom_message *m, size_t from, size_t to, uint64_t shape) {
  const size_t first = skip_marks(p), near = to < p->count ? to : p->count;
  const bool killed = strcmp(m->failure.source, "kill") == 0;
  const bool told = shape & HRI_SIGN_BIT(HRI_SIGN_TOLD);
  size_t quote = 0;
  uint64_t signs = 0;
#define SIGN(name, when)                                                                                               \
  do {                                                                                                                 \
    if (when) signs |= HRI_SIGN_BIT(HRI_SIGN_##name);                                                                  \
  } while (0)
  SIGN(OPENS, opens_with_error(p));
  SIGN(TICKED, p->tick_from < p->tick_to && !hri_oom_is_told(p) && !hri_voice_happened(p, to) && !spans_lines(p));
  SIGN(FENCED, p->tick_from < p->tick_to && spans_lines(p));
  SIGN(TOLD, p->tick_from == p->tick_to && find_quote(p, &quote) && hri_voice_meets(p->text, p->line, quote));
  SIGN(QUOTED,
       p->tick_from == p->tick_to && find_quote(p, &quote) &&
           !quotes_a_report(p->text, p->line, quote, false, p->shape & HRI_OOM_AMONG, p->shape & HRI_OOM_TITLE));
  SIGN(CONDITION, (is_conditional(p) && !hri_voice_meets(p->text, p->line, name_start(p, from)) && !told) ||
                      is_introduced_as_case(p) || (!told && hri_match_at(p->text, p->line, from, "when ")) ||
                      hri_match_at(p->text, p->line, from, "if "));
  SIGN(TOLD, is_valued(p) && !(p->shape & HRI_OOM_ROW));
  SIGN(ROW, p->shape & HRI_OOM_ROW && !is_result_row(p, m));
  SIGN(PATTERN, is_pattern(p) || is_setting(p, from));
  SIGN(TOLD, (p->shape & HRI_OOM_ROW && is_result_row(p, m)));
  SIGN(ENTRY, is_expected(p) || is_entry_of_codes(p, first) || is_key(p) ||
                  hri_match_at(p->text, first, p->line_end, "enomem") || (killed && p->at == first && defines(p)));
  SIGN(EXPLAINED,
       is_explained_item(p, first) || hri_oom_word(p->text, p->at, p->line_end, " \xe2\x86\x92 ") < p->line_end);
  SIGN(ANSWERED, is_answered(p));
  SIGN(BEHIND, hri_oom_word(p->text, p->at, p->line_end, ". solution:") < p->line_end);
  SIGN(CHANGE, names_change(p));
  SIGN(FOREIGN, is_foreign_condition(p->text, hri_sentence_start(p->text, p->sentence, from), from) ||
                    is_foreign_advice(p->text, near, p->line_end));
#undef SIGN
  return signs;
}
