/* What makes a phrase a topic: words in its sentence that speak of failures in general. A condition, advice, a question, a
 * label of change logs or tips, somebody's opinion, the name of what deals with such errors, a change's title, a line close
 * by that explains what the words mean.
 *
 * The neighbours may rely on this: all signs found here speak against a report, but for that of a person who tells of it as
 * their own (MINE). Whether something happened all the same is told by other words (report_told.c). */
#include "explain/match.h"
#include "explain/report_parts.h"

static size_t clause_start(const char *text, size_t line, size_t at) {
  for (size_t i = at; i > line; i--)
    if (hri_ends_sentence(text, i - 1, at) || (text[i - 1] == ' ' && i >= line + 2 && text[i - 2] == ':')) return i;
  return line;
}

bool hri_voice_is_change(const hri_oom_place *p) {
  static const char *const verbs[] = {"explain", "add",     "fix",    "handle",   "support",   "improve",  "make",
                                      "allow",   "avoid",   "detect", "document", "update",    "remove",   "implement",
                                      "enable",  "disable", "catch",  "refactor", "introduce", "prevent",  "increase",
                                      "reduce",  "expose",  "emit",   "retry",    "docs",      "proposal", "feature"};
  size_t at = p->line, end;
  while (at < p->line_end && strchr("[-* ", p->text[at])) { /* "[spark-40781][core]" */
    if (p->text[at] == '[') at = hri_oom_word(p->text, at, p->line_end, "]");
    if (at < p->line_end) at++;
  }
  for (end = at; end < p->line_end && hri_is_letter(p->text[end]);) end++;
  if (end == p->line_end || p->text[end] != ' ') return false;
  for (size_t i = 0; i < HRI_COUNT(verbs); i++)
    if (strlen(verbs[i]) == end - at && memcmp(p->text + at, verbs[i], end - at) == 0) return true;
  return false;
}

/* "out of memory (oom) or excessive use of it": a case beside another. */
static bool is_one_of_several(const hri_oom_place *p, size_t to) {
  size_t at = hri_match_at(p->text, to, p->line_end, " (oom)") ? to + 6 : to;
  return hri_match_at(p->text, at, p->line_end, " or ") || hri_match_at(p->text, at, p->line_end, " / ");
}

/* "oom: reduce the batch", "a fallback for bad_alloc": a title that gives advice, or names what deals with it. */
static bool is_titled_advice(const hri_oom_place *p, size_t from, size_t to) {
  static const char *const dealing[] = {" logic for ",   " fallback for ",      " handling for ",   " handling of ",
                                        " support for ", " test for ",          " tests for ",      " check for ",
                                        " message for ", " detection of ",      " workaround for ", " recovery from ",
                                        " guard for ",   " protection against "};
  static const char *const joints[] = {" (oom): ", ": ", " - ", " \xe2\x80\x94 "};
  static const char *const advice[] = {"reduce ", "lower ", "use ",  "set ", "increase ", "decrease ",
                                       "try ",    "how ",   "what ", "why ", "when ",     "tips "};
  if (!(p->shape & HRI_OOM_TITLE)) return false;
  while (from > p->line && (hri_is_name(p->text[from - 1]) || p->text[from - 1] == ':')) from--; /* "std::" */
  for (size_t i = 0; i < HRI_COUNT(dealing); i++)
    if (hri_match_end(p->text, p->line, from, dealing[i])) return true;
  for (size_t i = 0; i < HRI_COUNT(joints); i++)
    for (size_t k = 0; k < HRI_COUNT(advice) && hri_match_at(p->text, to, p->line_end, joints[i]); k++)
      if (hri_match_at(p->text, to + strlen(joints[i]), p->line_end, advice[k])) return true;
  return false;
}

/* "137 means ...", "128 + 9": the lines around explain what such words mean. */
static bool is_meant(const hri_oom_place *p) {
  static const char *const words[] = {"137 means",         "137 mean ",       "137 mean?",
                                      "137 indicates",     "137 typically",   "137 usually",
                                      "137 is the",        "137) means",      "137** means",
                                      "137` means",        "oomkilled means", "oomkilled mean",
                                      "sigkill means",     "128 + 9",         "128+9",
                                      "128 + signal",      "oom stands for",  "stands for out of memory",
                                      "what is exit code", "killed mean"};
  size_t from = p->before_count > 300 ? p->before_count - 300 : 0;
  size_t end = p->line_end + 300 < p->count ? p->line_end + 300 : p->count;
  return hri_match_part(p->before, from, p->before_count, words, HRI_COUNT(words)) ||
         hri_match_part(p->text, p->line, end, words, HRI_COUNT(words));
}

bool hri_voice_is_case(const hri_oom_place *p, size_t from, size_t to) {
  return is_one_of_several(p, to) || is_titled_advice(p, from, to);
}

uint64_t hri_voice_topic(const hri_oom_place *p, size_t phrase_from, size_t phrase_to) {
  static const char *const anywhere[] = {"if",
                                         "in case",
                                         "whenever",
                                         "may",
                                         "might",
                                         "to avoid",
                                         "avoid",
                                         "avoids",
                                         "avoiding",
                                         "prevent",
                                         "prevents",
                                         "preventing",
                                         "how to",
                                         "why",
                                         "should",
                                         "would",
                                         "could cause",
                                         "can cause",
                                         "can happen",
                                         "can occur",
                                         "e.g.",
                                         "for example",
                                         "such as",
                                         "handle",
                                         "handles",
                                         "handling",
                                         "catch",
                                         "catches",
                                         "detect",
                                         "detects",
                                         "detecting",
                                         "recover",
                                         "simulate",
                                         "simulates",
                                         "potential",
                                         "possible",
                                         "risk",
                                         "likely to",
                                         "lead to",
                                         "leads to",
                                         "question",
                                         "faq",
                                         "unless",
                                         "until",
                                         "what does",
                                         "what is",
                                         "how do",
                                         "help with",
                                         "docs",
                                         "todo",
                                         "fixme",
                                         "feat",
                                         "fix",
                                         "fixes",
                                         "fixed",
                                         "chore",
                                         "changelog",
                                         "refactor",
                                         "improve",
                                         "improved",
                                         "support for",
                                         "added",
                                         "add",
                                         "adds",
                                         "tests",
                                         "test",
                                         "tip",
                                         "hint",
                                         "workaround",
                                         "reduce",
                                         "troubleshooting",
                                         "skipped",
                                         "common",
                                         "expect",
                                         "assert",
                                         "reports",
                                         "raises",
                                         "means",
                                         "protect",
                                         "never",
                                         "will",
                                         "can",
                                         "retry on",
                                         "retries on",
                                         "enable",
                                         "enabled",
                                         "disable",
                                         "disabled",
                                         "don't",
                                         "do not",
                                         "doesn't",
                                         "does not",
                                         "not an",
                                         "usually"};
  static const char *const here[] = {"i",       "we",      "you",       "my",       "your",      "our",
                                     "they",    "people",  "users",     "is there", "about",     "regarding",
                                     "without", "against", "yesterday", "often",    "sometimes", "typically",
                                     "always",  "when",    "issue",     "issues",   "bug",       "problem"};
  static const char *const asking[] = {"is ", "are ", "does ", "what ", "which "};
  static const char *const mine[] = {"i", "we", "my", "our"};
  static const char *const labels[] = {"known issues", "known issue", "fix",       "feat",     "docs",
                                       "test",         "tests",       "chore",     "refactor", "perf",
                                       "ci",           "build",       "revert",    "tip",      "tips",
                                       "note",         "hint",        "faq",       "q",        "a",
                                       "todo",         "fixme",       "re",        "subject",  "title",
                                       "issue",        "question",    "answer",    "solution", "symptom",
                                       "bug",          "feature",     "changelog", "example",  "usage",
                                       "help",         "summary",     "cause",     "check",    "root cause",
                                       "reason",       "symptom",     "symptoms"};
  static const char *const behind[] = {" errors",     " issue",      " problem",   " handler",
                                       " handling",   " hook",       " callback",  " guard",
                                       " protect",    " recovery",   " prevent",   " fallback",
                                       " check",      " test",       " retry",     " exceptions",
                                       " situation",  " scenario",   " condition", " solution",
                                       " can ",       " may ",       " might ",    " is a ",
                                       " usually",    " often",      " when you",  " if ",
                                       "?",           " killer:",    " score",     " kill disable",
                                       " warning",    " detection",  " error is ", " errors?",
                                       " killer is",  " events",     " killer",    " error occurs",
                                       " error can",  " error may",  " error? ",   " error will",
                                       " error?",     " means",      " will ",     " should ",
                                       ": class",     ": raised",    ": thrown",   ": exception class",
                                       " management", " manager",    " debugging", ": subclass",
                                       " is the ",    " are the ",   " faq",       " guide",
                                       " tips",       " mitigation", " or ",       ", usually",
                                       " error means"};
  static const char *const explained[] = {" error means", " error indicates", " error is raised", " error is caused"};
  static const char *const defined[] = {"raised when", "thrown when", "returned when", "occurs when", "happens when",
                                        "raised if",   "thrown if",   "returned if",   "occurs if",   "happens if"};
  size_t from = hri_sentence_start(p->text, p->sentence, phrase_from),
         near = clause_start(p->text, p->line, phrase_from);
  size_t end = hri_sentence_end(p->text, phrase_to, p->line_end), first = from;
  uint64_t signs = 0;
  size_t last = p->line_end, quote = phrase_from;
  while (quote > near && p->text[quote - 1] != '"') quote--;
  if (quote > near && hri_voice_meets(p->text, p->line, quote - 1))
    phrase_from = quote - 1; /* of what is quoted nothing */
  while (last > phrase_to && p->text[last - 1] == ' ') last--;
  while (first < near && !hri_is_name(p->text[first])) first++;
  for (size_t i = 0; i < HRI_COUNT(labels) && near > from; i++) { /* "fix(cuda): ...", "tip: ..." */
    size_t behind_label = first + strlen(labels[i]);
    if (hri_match_at(p->text, first, near, labels[i]) && behind_label < near && strchr(":(!", p->text[behind_label]))
      signs |= HRI_SIGN_BIT(HRI_SIGN_TOPIC);
  }
  if (end < p->count && p->text[end] == '?' && end < p->line_end && !hri_match_at(p->text, end, p->count, "?)"))
    signs |= HRI_SIGN_BIT(HRI_SIGN_QUESTION);
  if (signs & HRI_SIGN_BIT(HRI_SIGN_QUESTION) && hri_match_at_any(p->text, first, near, asking, HRI_COUNT(asking)))
    signs |= HRI_SIGN_BIT(HRI_SIGN_CONDITION);
  if (p->shape & (HRI_OOM_HEADING | HRI_OOM_COMMENT) && hri_match_end(p->text, p->line, last, "?"))
    signs |= HRI_SIGN_BIT(HRI_SIGN_QUESTION);
  if (!hri_voice_happened(p, phrase_to) && (hri_match_part(p->text, phrase_to, end, explained, HRI_COUNT(explained)) ||
                                            hri_match_part(p->text, from, end, defined, HRI_COUNT(defined))))
    signs |= HRI_SIGN_BIT(HRI_SIGN_BEHIND);
  for (size_t i = 0; i < HRI_COUNT(behind); i++)
    if (hri_match_at(p->text, phrase_to, p->line_end, behind[i])) signs |= HRI_SIGN_BIT(HRI_SIGN_BEHIND);
  if (hri_match_whole(p->text, phrase_to, end, "unless") < end ||
      hri_match_any(p->text, from, phrase_from, anywhere, 23) || /* also before a colon */
      hri_match_any(p->text, near, phrase_from, anywhere, HRI_COUNT(anywhere)))
    signs |= HRI_SIGN_BIT(HRI_SIGN_CONDITION);
  if (hri_match_any(p->text, near, phrase_from, here, HRI_COUNT(here))) signs |= HRI_SIGN_BIT(HRI_SIGN_PERSON);
  if (hri_match_any(p->text, near, phrase_from, mine, HRI_COUNT(mine))) signs |= HRI_SIGN_BIT(HRI_SIGN_MINE);
  if (is_meant(p)) signs |= HRI_SIGN_BIT(HRI_SIGN_MEANT);
  if (hri_voice_is_change(p)) signs |= HRI_SIGN_BIT(HRI_SIGN_CONDITION);
  return signs;
}
