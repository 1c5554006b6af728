/* What makes a phrase a topic: words in its sentence that speak of failures in general. A condition, advice, a question, a
 * label of change logs or tips, somebody's opinion, the name of what deals with such errors, a change's title, a line close
 * by that explains what the words mean.
 *
 * The neighbours may rely on this: all signs found here speak against a report, but for that of a person who tells of it as
 * their own (MINE). Whether something happened all the same is told by other words (report_told.c). */
#include "explain/lexicon.h"
#include "explain/match.h"
#include "explain/report_parts.h"

static size_t clause_start(const char *text, size_t line, size_t at) {
  for (size_t i = at; i > line; i--)
    if (hri_ends_sentence(text, i - 1, at) || (text[i - 1] == ' ' && i >= line + 2 && text[i - 2] == ':')) return i;
  return line;
}

/* Behind the part of a program that a change's title names, "vulkan: ", "driver/rawexec: ": in the first line, or a path. */
static size_t skip_scope(const hri_oom_place *p, size_t at) {
  enum { LONGEST = 40 };
  size_t end = at, blanks = 0;
  while (end < p->line_end && end < at + LONGEST && (hri_is_name(p->text[end]) || strchr("./-*, ", p->text[end])) &&
         !(p->text[end] == '.' && end + 1 < p->line_end && p->text[end + 1] == ' '))
    blanks += p->text[end++] == ' ';
  if (hri_match_part(p->text, at, end, "memory|killer|oom"))
    return at; /* who ends processes says so: "out of memory: kill process 12" */
  if (end + 1 >= p->line_end || blanks > 2 || !strchr(":.", p->text[end]) || p->text[end + 1] != ' ') return at;
  return p->before_count == 0 || memchr(p->text + at, '/', end - at) ? end + 2 : at;
}

bool hri_voice_is_change(const hri_oom_place *p) {
  size_t at = p->line, end;
  while (at < p->line_end && strchr("[-*# ", p->text[at])) { /* "[spark-40781][core]" */
    if (p->text[at] == '[') at = hri_oom_word(p->text, at, p->line_end, "]");
    if (at < p->line_end) at++;
  }
  const bool scoped = at > p->line && p->before_count == 0; /* "[mm] clear ..." */
  const size_t verb = skip_scope(p, at);
  for (end = verb; end < p->line_end && hri_is_letter(p->text[end]);) end++;
  if (end >= p->line_end || p->text[end] != ' ') return false;
  if ((verb > at || scoped) && hri_match_last(p->text, verb, end, HRI_CHANGE_MORE) == verb) return true;
  return hri_match_last(p->text, verb, end, HRI_CHANGE "|" HRI_AVOID "|" HRI_HANDLE) == verb;
}

/* "out of memory (oom) or excessive use of it": a case beside another. */
static bool is_one_of_several(const hri_oom_place *p, size_t to) {
  return hri_match_at(p->text, hri_match_next(p->text, to, p->line_end, " (oom)"), p->line_end, " or | / |) or ");
}

/* "When x() failed (oom), the caller": a case by itself, of the sentence that begins at text[from]. */
static bool is_when(const hri_oom_place *p, size_t from, size_t to) {
  return hri_match_at(p->text, to, p->line_end, "),") && hri_match_at(p->text, from, to, "when ");
}

/* "oom: reduce the batch", "a fallback for bad_alloc": a title that gives advice, or names what deals with it. */
static bool is_titled_advice(const hri_oom_place *p, size_t from, size_t to) {
  static const char dealing[] =
      " logic for | fallback for | handling for | handling of | support for | test for | tests for | check for |"
      " message for | detection of | workaround for | recovery from | guard for | protection against ";
  static const char deals[] =
      "dealing with |handling |avoiding |preventing |fixing |solving |diagnosing |debugging |"
      "troubleshooting |understanding |mitigating |resolving |tackling |overcoming |checking for |looking for |"
      "watching for |searching for |searching logs for |scanning for |scanning logs for |monitoring for |"
      "testing for |detecting |catching |ignoring |guarding against |protecting against |simulating |"
      "what causes |what is |alert on |alerting on |guard against |test for |check for |detect |handle ";
  size_t joint, first = p->line;
  const bool alone = p->line == 0 && p->line_end == p->count;
  if (!alone && !(p->shape & (HRI_OOM_TITLE | HRI_OOM_HEADING))) return false;
  while (first < from && strchr(" >*#", p->text[first])) first++;
  while (from > p->line && (hri_is_name(p->text[from - 1]) || p->text[from - 1] == ':')) from--; /* "std::" */
  if (hri_match_end(p->text, p->line, from, dealing)) return true;
  if (hri_match_at(p->text, first, from, deals)) return true;
  joint = hri_match_next(p->text, to, p->line_end, " (oom): |: | - | \xe2\x80\x94 ");
  return joint > to && hri_match_at(p->text, joint, p->line_end,
                                    "reduce |lower |use |set |increase |decrease |try |how |what |why |when |tips ");
}

/* Whether the line is a page's title, for all that it is built of: some words and nothing else. */
static bool is_bare_title(const hri_oom_place *p) {
  enum { LONGEST = 48 };
  if (p->line_end - p->line > LONGEST) return false;
  for (size_t i = p->line; i < p->line_end; i++)
    if (!hri_is_name(p->text[i]) && !strchr(" -", p->text[i])) return false;
  return true;
}

/* A title with its definition below: "CUDA out of memory", "- such an error occurs when ..."; or defined in its sentence. */
static bool is_defined_below(const hri_oom_place *p, size_t from) {
  static const char defining[] =
      "occurs when|usually happens|typically happens|often happens|happens when|is caused by|raises a|"
      "one speaks of|is raised when| means the | means that ";
  enum { BELOW = 400 };
  const size_t end = p->line_end + BELOW < p->count ? p->line_end + BELOW : p->count;
  if (hri_match_end(
          p->text, p->line, from,
          "messages that begin with |messages that start with |messages beginning |messages beginning with |messages starting with "))
    return true;
  return is_bare_title(p) && hri_match_part(p->text, p->line_end, end, defining);
}

/* "Out of memory (OOM) est un \xc3\xa9tat ...": what it is, as encyclopedias begin, behind what it is called besides. */
static bool is_defined_abroad(const hri_oom_place *p, size_t to) {
  static const char is[] =
      " est un | est une | ist ein | ist eine | es un | es una | \xc3\xa8 un | \xc3\xa8 una | \xc3\xa9 um | \xc3\xa9 uma |"
      " \xd1\x8d\xd1\x82\xd0\xbe | \xe2\x80\x94 \xd1\x8d\xd1\x82\xd0\xbe ";
  while (hri_match_at(p->text, to, p->line_end, " (")) {
    const size_t close = hri_oom_word(p->text, to, p->line_end, ")");
    if (close == p->line_end) return false;
    to = close + 1;
  }
  return hri_match_at(p->text, to, p->line_end, is) &&
         !hri_match_part(
             p->text, to, p->line_end,
             " j'|que je| mon | mein| ich | me | mi | tengo| \xd1\x8f | \xd0\xbc\xd0\xbd\xd0\xb5 | \xd1\x83 \xd0\xbc\xd0\xb5\xd0\xbd\xd1\x8f");
}

bool hri_voice_is_case(const hri_oom_place *p, size_t from, size_t to) {
  return is_one_of_several(p, to) || is_defined_abroad(p, to) || is_titled_advice(p, from, to) ||
         is_defined_below(p, from) ||
         hri_match_at(p->text, to, p->line_end, " -> | => | \xe2\x86\x92 "); /* an arrow to what is done about it */
}

/* "fix(cuda): ...", "tip: ...": what the sentence text[first, near) begins with says what it is about. */
static bool is_titled(const hri_oom_place *p, size_t first, size_t near) {
  static const char labels[] =
      "fix|feat|docs|test|tests|chore|refactor|changelog|todo|fixme|known issues|known issue|perf|ci|build|revert|tips|tip|note|hint|faq|q|a|re|subject|"
      "title|issue|problem|question|answer|solution|bug|example|usage|help|summary|root cause|"
      "cause|check|symptoms|symptom";
  if (first > p->line && hri_match_at(p->text, first - 1, p->line_end, HRI_REQUEST_TAGS)) return true;
  for (size_t end = first; end < near && end < first + 16; end++)
    if (strchr(":(!", p->text[end])) return hri_match_last(p->text, first, end, labels) == first;
  return false;
}

/* Whether the words behind the phrase make it a topic: what deals with such errors, what they mean, when they come. */
static bool is_spoken_of(const hri_oom_place *p, size_t from, size_t to, size_t end) {
  static const char matters[] =
      " errors| error is | status| response| preferences| overview| exceptions| events| issue| problem| situation| scenario| condition| handler| handling| hook| callback| guard|"
      " protect| prevent| recovery| fallback| check| test| retry| solution| warning| detection| management| manager| debugging|"
      " mitigation| killer| score| kill disable| faq| guide| tips|: class|: subclass|: exception class|: raised|: thrown";
  static const char general[] =
      " can | may | might | will | should | is a | is the | are the | means| indicates| usually|"
      ", usually| often| when you| if | or |?| perhaps| maybe";
  static const char defined[] =
      "raised when|thrown when|returned when|occurs when|happens when|appears when|arises when|"
      "shows up when|comes up when|raised if|thrown if|"
      "returned if|occurs if|happens if";
  if (hri_voice_happened(p, to)) return false;
  if (hri_match_at(p->text, hri_match_next(p->text, to, p->line_end, " (oom)"), p->line_end, matters)) return true;
  return hri_match_at(p->text, hri_match_next(p->text, to, p->line_end, " error"), p->line_end, general) ||
         hri_match_part(p->text, from, end, defined);
}

/* "I am getting x errors when training": several, of one's own. */
static bool is_met_again(const hri_oom_place *p, size_t from, size_t phrase, size_t to) {
  return hri_match_at(p->text, to, p->line_end,
                      " errors when | errors while | errors during | errors after | problem") &&
         hri_match_any(p->text, from, phrase, HRI_OWN) && hri_voice_meets(p->text, p->line, phrase);
}

/* "your query has been cancelled due to x": a program tells whoever runs it what happened. */
static bool is_addressed(const char *text, size_t from, size_t to) {
  size_t at = hri_match_whole(text, from, to, "your");
  return at < to && hri_match_any(text, at, to, "has been|have been|was|were");
}

uint64_t hri_voice_topic(const hri_oom_place *p, size_t phrase_from, size_t phrase_to) {
  static const char persons[] =
      HRI_OWN "|" HRI_ANYBODY "|is there|about|regarding|without|against|yesterday|often|sometimes|"
              "typically|always|when|issue|issues|bug|problem";
  const size_t said = p->tick_from < p->tick_to && p->tick_from > p->line ? p->tick_from : phrase_from,
               from = hri_sentence_start(p->text, p->sentence, said), near = clause_start(p->text, p->line, said),
               clause = clause_start(p->text, p->sentence, said), /* of a line before, if it was wrapped */
      end = hri_sentence_end(p->text, phrase_to, p->line_end);
  size_t quote = phrase_from, first = from;
  uint64_t signs = 0;
  while (quote > near && p->text[quote - 1] != '"') quote--;
  if (quote > near && hri_voice_meets(p->text, p->line, quote - 1))
    phrase_from = quote - 1; /* of what is quoted nothing */
  while (first < near && !hri_is_name(p->text[first])) first++;
  const bool addressed = is_addressed(p->text, near, phrase_from);
#define SIGN(name, when)                                                                                               \
  do {                                                                                                                 \
    if (when) signs |= HRI_SIGN_BIT(HRI_SIGN_##name);                                                                  \
  } while (0)
  SIGN(TOPIC, is_titled(p, first, near) || (hri_voice_is_meant(p) && !(p->shape & HRI_OOM_TITLE)) ||
                  hri_match_part(p->text, p->line, p->line_end, "fixes #|closes #|fix #|resolves #|(#|([#"));
  SIGN(BEHIND, is_spoken_of(p, from, phrase_to, end) && !is_met_again(p, from, phrase_from, phrase_to));
  SIGN(CONDITION,
       hri_match_any(p->text, phrase_to, end, "unless") || is_when(p, from, phrase_to) || hri_voice_is_change(p) ||
           hri_match_any(p->text, from, phrase_from,
                         HRI_CASE "|" HRI_RULE
                                  "|exit codes:|error codes:|when exhausted|when exceeded") || /* also before a colon */
           hri_match_any(p->text, near, phrase_from,
                         HRI_HANDLE "|" HRI_CHANGE "|" HRI_CHANGED "|" HRI_NOT "|reports") ||
           (!hri_voice_lacks_be(p, phrase_from, phrase_to) &&
            hri_match_any(p->text, clause, phrase_from, HRI_CAN "|" HRI_INSTEAD)) ||
           hri_match_end(p->text, clause, phrase_from, "can't |cannot |won't |never |without ") ||
           (!addressed && hri_match_any(p->text, near, phrase_from, HRI_ANYBODY)));
  SIGN(PERSON, !addressed && hri_match_any(p->text, near, phrase_from, persons));
  SIGN(MINE, hri_match_any(p->text, near, phrase_from, HRI_OWN));
#undef SIGN
  return signs;
}
