/* What makes a phrase an event: words that tell of one thing that happened, in whatever form its line has. "Failed with",
 * "got a", "is reported at the second epoch", a title in the present tense, a verb of the end that something came to.
 *
 * The neighbours may rely on this: an event may be told of and be a topic all the same ("if it failed with X"). A condition is
 * a sign of its own (report_topic.c); only words that are weak alone ("died with", a title's verb) look for one here. */
#include "explain/lexicon.h"
#include "explain/match.h"
#include "explain/report_parts.h"
#include "explain/wording.h"

bool hri_voice_happened(const hri_oom_place *p, size_t to) {
  static const char events[] =
      " is reported at| was reported| was raised| was thrown| occurred| happened| came out| came up| comes up| appeared|"
      " popped up| pops up| showed up| shows up| came back";
  static const char *const now[] = {" is raised ",   " is thrown ", " occurs ", " happens ",
                                    " is reported ", " appears ",   " arises ", " is encountered "};
  static const char then[] =
      "when running |when i |when we |when my |when trying |when loading |when executing |when launching |"
      "when starting |after ";
  static const char *const nouns[] = {" error", " exception", " failure"};
  for (size_t i = 0; i < HRI_COUNT(nouns); i++)
    if (hri_match_at(p->text, to, p->line_end, nouns[i])) to += strlen(nouns[i]);
  for (size_t i = 0; i < HRI_COUNT(now);
       i++) /* "is raised when running x" tells of one run, "raised when full" of all */
    if (hri_match_at(p->text, to, p->line_end, now[i]) && hri_match_at(p->text, to + strlen(now[i]), p->line_end, then))
      return true;
  if (hri_match_at(p->text, to, p->line_end, events)) return true;
  return false;
}

bool hri_voice_tells_of_end(const hri_oom_place *p, size_t from, size_t to) {
  static const char verbs[] =
      "died|crashed|failed|aborted|terminated|exited|stopped|returned|raised|threw|dies|crashes|killed|did|completed|"
      "ended|received|caused|tested|lost|finished|hit|saw|observed|tried|triggered|reproduced";
  size_t start = hri_sentence_start(p->text, p->line, from);
  size_t end = hri_sentence_end(p->text, to, to + 60 < p->line_end ? to + 60 : p->line_end);
  return hri_match_any(p->text, start, end, verbs);
}

/* "I am getting this error: info - x": somebody met what the colon introduces. */
static bool is_introduced(const hri_oom_place *p, size_t from) {
  for (size_t at = hri_oom_word(p->text, p->line, from, " error:"); at < from;
       at = hri_oom_word(p->text, at + 1, from, " error:"))
    if (hri_voice_meets(p->text, p->line, at)) return true;
  return false;
}

/* "There appeared", "met", "reports an error" right before it. */
static bool is_told_in_chinese(const char *text, size_t line, size_t from) {
  static const char verbs[] = "\xe5\x87\xba\xe7\x8e\xb0|\xe9\x81\x87\xe5\x88\xb0|\xe6\x8a\xa5\xe9\x94\x99";
  return hri_match_part(text, from > line + 24 ? from - 24 : line, from, verbs);
}

/* "failed with x", "got x". */
static bool is_telling(const hri_oom_place *p, size_t line, size_t from) {
  const bool labelled = hri_match_end(p->text, line, from, ": ");
  size_t name = from, verb;
  while (name > line + 1 && strchr(".:", p->text[name - 1]) && hri_is_name(p->text[name - 2])) {
    name--; /* "system.outofmemoryexception" */
    while (name > line && (hri_is_name(p->text[name - 1]) || p->text[name - 1] == ':')) name--;
  }
  if (hri_match_end(p->text, line, name, "): ")) { /* "error is cumemalloc(): x" */
    name -= 2;
    while (name > line && p->text[name - 1] != ' ') name--;
  }
  if (name > line && strchr("\"'", p->text[name - 1])) name--;
  verb = name - hri_match_end(p->text, line, name, " ");
  verb = hri_match_last(p->text, line, verb, "error|reason:|workers are {|" HRI_MEETS);
  if (verb + 1 < name && (!hri_match_end(p->text, line, name, "reason: ") || hri_count_words(p->text, line, verb) < 4))
    return true;
  if (is_introduced(p, name) || is_told_in_chinese(p->text, line, name)) return true;
  return !labelled && hri_voice_meets(p->text, hri_sentence_start(p->text, line, name), name);
}

bool hri_voice_tells_of_kill(const hri_oom_place *p) {
  const hri_oom_head *head = hri_oom_head_at(p->text, p->at, p->count);
  return head && (strcmp(head->words, "killed") == 0 || head->words[0] == '\xe8');
}

bool hri_voice_tells(const hri_oom_place *p, size_t from, size_t to, uint64_t topic) {
  return hri_oom_is_told(p) || is_telling(p, p->line, from) || hri_voice_happened(p, to) ||
         (hri_voice_tells_of_kill(p) && !(p->shape & HRI_OOM_HEADING) && !(topic & HRI_SIGN_BIT(HRI_SIGN_TOPIC))) ||
         hri_match_at(p->text, from, to, "oomed") || hri_match_at(p->text, from, to, "oom'");
}

bool hri_voice_titles_event(const hri_oom_place *p, size_t from, size_t to) {
  size_t end;
  if (!(p->shape & HRI_OOM_TITLE)) return false;
  from = hri_oom_with_modifiers(p->text, p->line, from);
  while (from > p->line && (hri_is_name(p->text[from - 1]) || strchr(".:", p->text[from - 1]))) from--;
  if (from > p->line) return false;
  if (hri_match_at(p->text, to, p->line_end, " error")) to += 6;
  if (hri_match_at(p->text, to, p->line_end, " when ")) {
    for (end = to + 6; end < p->line_end && hri_is_letter(p->text[end]);) end++;
    return hri_match_end(p->text, to + 6, end, "ing");
  }
  return hri_count_words(p->text, p->line, to) <= 5 &&
         hri_match_at(p->text, to, p->line_end, " while | during | after | with | on | at | in ");
}
