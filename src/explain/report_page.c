/* Pages that help: what stands around a phrase shows that it is explained to whoever comes to it, and that nobody reports it there. A
 * symptom of a list whose causes follow, a question that is asked often, a code of which the next line says what it means, one of several
 * causes that a program names.
 *
 * The neighbours may rely on this: who tells of it as their own in the same line ("we see", "my run") reports all the same, and so does a
 * line of a log with its time (is_told_here, which is asked once); but for questions that are asked often, which are put as one's own. */
#include "explain/lexicon.h"
#include "explain/match.h"
#include "explain/report_parts.h"

/* Where the sentence or line behind the place begins. */
static size_t next_line(const hri_oom_place *p) {
  size_t at = p->line_end;
  while (at < p->count && p->text[at] && strchr(" >`0123456789", p->text[at]))
    at++; /* a difference numbers its lines */
  return at;
}

/* What is said of the title's error in the line below, in Chinese: that it is common. */
static bool is_common_below(const hri_oom_place *p) {
  enum { BELOW = 200 };
  static const char common[] =
      "\xe6\x98\xaf\xe5\xbe\x88\xe5\xb8\xb8\xe8\xa7\x81\xe7\x9a\x84|\xe6\x98\xaf\xe5\xb8\xb8\xe8\xa7\x81\xe7\x9a\x84|\xe6\x98\xaf\xe6\x9c\x80\xe5\xb8\xb8\xe8\xa7\x81\xe7\x9a\x84";
  static const char i[] = "\xe6\x88\x91";
  static const char asks[] = "?|\xef\xbc\x9f|\xe5\x90\x97|\xe5\xb7\xb2\xe7\xbb\x8f"; /* and what was done already */
  const size_t end = p->line_end + BELOW < p->count ? p->line_end + BELOW : p->count;
  return p->before_count == 0 && hri_match_part(p->text, p->line_end, end, common) &&
         !hri_match_part(p->text, p->line, end, i) && !hri_match_part(p->text, p->line, end, asks);
}

/* "What this means", a heading below it, and no question: "what it means I do not know". */
static bool is_meaning_told(const hri_oom_place *p) {
  enum { NEAR = 48 };
  const size_t at = next_line(p), end = at + NEAR < p->count ? at + NEAR : p->count;
  return hri_match_at(p->text, at, p->count, "what this means|what it means") && !memchr(p->text + at, '?', end - at) &&
         !hri_match_any(p->text, at, end, HRI_OWN "|know|not|no idea|unclear|don't|please");
}

/* What explains the words to a reader, as the next sentence: "This happens when your GPU is full." Who tells of their own
 * says when it happens, too ("This usually happens at night"), and programs explain themselves ("This error means ..."). */
static bool is_explained(const hri_oom_place *p) {
  static const char begins[] =
      "this happens when you|this error happens when you|this occurs when you|this error occurs when you";
  static const char meanings[] = "usually means|typically means|often means|mostly means";
  static const char because[] = /* behind a heading; the last three are Chinese */
      "this usually means|this is usually|this is because|this means|this error is |this error occurs|this error means|"
      "this happens|this can happen|this typically|this indicates|usually this is|"
      "\xe9\x80\x9a\xe5\xb8\xb8|\xe8\xbf\x99\xe9\x80\x9a\xe5\xb8\xb8|\xe8\xbf\x99\xe6\x98\xaf\xe5\x9b\xa0\xe4\xb8\xba";
  static const char common[] = /* Chinese: is (very) common, is a common, is the most common */
      "\xe6\x98\xaf\xe5\xbe\x88\xe5\xb8\xb8\xe8\xa7\x81|\xe6\x98\xaf\xe5\xb8\xb8\xe8\xa7\x81|\xe6\x98\xaf\xe4\xb8\x80\xe4\xb8\xaa\xe5\xb8\xb8\xe8\xa7\x81|\xe6\x98\xaf\xe6\x9c\x80\xe5\xb8\xb8\xe8\xa7\x81";
  static const char shown[] = /* below an entry's name */
      "you may meet an error|you may encounter an error|you may get an error|you may see an error|you might see an error";
  static const char reading[] =
      "as the error message suggests|as the error message says|as the message says|as the error says|"
      "in other words";
  const size_t far = p->at + 240 < p->line_end ? p->at + 240 : p->line_end;
  size_t at = hri_sentence_end(p->text, p->at, far), sentence = hri_sentence_start(p->text, p->line, p->at);
  while (sentence < p->at && p->text[sentence] == ' ') sentence++;
  if (p->shape & HRI_OOM_HEADING && hri_match_at(p->text, next_line(p), p->count, because)) return true;
  if (hri_match_at(p->text, next_line(p), p->count, common) ||
      hri_match_at(p->text, next_line(p), p->count, "this message means") || is_meaning_told(p))
    return true;
  if (is_common_below(p)) return true;
  if (hri_match_at(p->text, next_line(p), p->count, meanings) && !hri_voice_opens(p)) return true;
  if (hri_match_at(p->text, next_line(p), p->count, shown) && !hri_voice_opens(p)) return true;
  if (p->shape & (HRI_OOM_LEVEL | HRI_OOM_DATED) || hri_voice_opens(p)) return false;
  if (hri_match_any(p->text, p->line, p->at, "i|i'm|we|am|our"))
    return false; /* who meets it; a page may ask for "my" model */
  while (at < p->count && strchr(" .!?\"'", p->text[at]) && p->text[at]) at++;
  if (hri_match_at(p->text, sentence, p->line_end, reading) || hri_match_at(p->text, at, p->count, reading))
    return true;
  return at < p->line_end && hri_match_at(p->text, at, p->line_end, begins);
}

/* "Getting the message "x" usually means that ...": said of the message in its own sentence. What begins with "this" is what a program
 * says of its own. */
static bool is_interpreted(const hri_oom_place *p) {
  static const char meaning[] =
      "usually means|typically means|generally means|often means|usually indicates|typically indicates|significa|bedeutet|signifie|indica que";
  static const char meaning_parts[] = /* Russian: means, it says that; Chinese: means */
      "\xd0\xbe\xd0\xb7\xd0\xbd\xd0\xb0\xd1\x87\xd0\xb0\xd0\xb5\xd1\x82|\xd0\xbd\xd0\xb0 \xd0\xb3\xd0\xbe\xd0\xb2\xd0\xbe\xd1\x80\xd0\xb8\xd1\x82, \xd1\x87\xd1\x82\xd0\xbe|\xe6\x84\x8f\xe5\x91\xb3\xe7\x9d\x80";
  static const char this[] = "\xe8\xbf\x99";
  const size_t at = hri_match_whole(p->text, p->at, p->line_end, meaning);
  const size_t part = hri_match_first(p->text, p->at, p->line_end, meaning_parts);
  const size_t end = hri_sentence_end(p->text, p->at, p->line_end);
  if (end < p->line_end && p->text[end] == '?') return false;
  if (part < p->line_end) return !hri_match_end(p->text, p->at, part, this);
  return at < p->line_end && !hri_match_end(p->text, p->at, at, "this |it |which |error |that |(");
}

/* An item of a list, also of a numbered one. */
static bool is_item(const hri_oom_place *p) {
  size_t at = p->line, digits;
  while (at < p->at && p->text[at] == ' ') at++;
  for (digits = at; digits < p->at && hri_is_digit(p->text[digits]);) digits++;
  return p->shape & HRI_OOM_COMMENT || (digits > at && hri_match_at(p->text, digits, p->at, ". |) "));
}

/* "Look for a line like: out of memory: killed process 12": what one may find. */
static bool is_pointed_at(const hri_oom_place *p) {
  enum { NEAR = 48 };
  static const char looks[] =
      "look for|search for|watch for|check for|grep for|you should see|you will see|you'll see|you may see|you might see";
  const size_t from = hri_sentence_start(p->text, p->at > p->line + NEAR ? p->at - NEAR : p->line, p->at);
  return hri_match_any(p->text, from, p->at, looks) && !hri_match_any(p->text, from, p->at, "failed|error|warning") &&
         !hri_match_part(p->text, p->at, p->line_end, "' in https"); /* PyTorch names the page of an error */
}

/* Whether the text is a page of questions that are asked often, or of errors that one may come to, by its title. */
static bool is_among_questions(const hri_oom_place *p) {
  enum { TITLE = 80, PAGE = 4000 }; /* how far a title reaches; what stands before a place is kept farther than that */
  static const char errors[] = "errors|failures|problems|mistakes|pitfalls",
                    met[] = "you'll|you will|you may|common|typical|most frequent";
  const size_t end = p->before_count < TITLE ? p->before_count : TITLE;
  size_t at = 0;
  if (p->before_count == 0 || p->before_count > PAGE) return false;
  while (at < end && strchr("#*= ", p->before[at])) at++;
  return hri_match_at(p->before, at, end, "frequently asked questions|faq ") ||
         (is_item(p) && hri_match_any(p->before, at, end, errors) && hri_match_any(p->before, at, end, met));
}

/* "Understanding the XError: OOM when x", with no empty line below it either. Who looks into "this error" has it, and what a program
 * printed as a line of its own stands there. */
static bool is_titled_understanding(const hri_oom_place *p, size_t at) {
  static const char topics[] = "understanding |taming |demystifying ";
  const size_t topic = hri_match_next(p->text, at, p->line_end, topics);
  if (p->before_count > 0 || topic == at || topic > p->at) return false;
  if (hri_match_any(p->text, at, p->at, HRI_DIED "|was|were|ran|got|this|these|in thread") ||
      hri_match_any(p->text, p->at, p->line_end, "job|node|run|step|epoch|pod|batch") ||
      memchr(p->text + topic, '[', p->at - topic) || hri_match_at(p->text, p->at, p->count, "out of memory: killed"))
    return false;
  for (size_t i = topic; i < p->at; i++)
    if (p->text[i] == ':' && !hri_match_end(p->text, topic, i, "error|exception|errors|exceptions")) return false;
  return true;
}

/* "What exit code 137 actually means", "X: causes and fixes", "understanding X": the title of a page that helps. */
static bool is_titled_answer(const hri_oom_place *p) {
  static const char asks[] = "what |why |how ";
  static const char says[] = "mean|means|indicates|happens";
  static const char helps[] =
      "how to fix|how to solve|how to resolve|how to avoid|how to prevent|how to handle|causes and|common causes|causes & fixes|"
      "what it means|what this means|explained|fixes and|solutions|troubleshooting|step-by-step|"
      "ursachen|l\xc3\xb6sungen|beheben|soluciones|solutions|causas";
  const size_t at = hri_match_next(p->text, p->line, p->line_end, "## |### |# ");
  if (is_titled_understanding(p, at)) return true;
  if (!(p->shape & (HRI_OOM_TITLE | HRI_OOM_HEADING))) return false;
  if (p->shape & (HRI_OOM_DATED | HRI_OOM_LEVEL) || hri_match_any(p->text, p->line, p->line_end, "anyone|any"))
    return false;
  if (hri_match_at(p->text, at, p->line_end, "fixing |solving |resolving ")) return true;
  if (hri_match_end(p->text, p->at, p->line_end, "what to do|what to do ") &&
      hri_count_words(p->text, p->line, p->line_end) <= 7)
    return true;
  return (hri_match_at(p->text, at, p->line_end, asks) && hri_match_any(p->text, p->at, p->line_end, says)) ||
         hri_match_any(p->text, p->line, p->line_end, helps);
}

/* An item of a list of questions that are asked often, or of errors that are common; what a page explains. */
static bool is_frequent(const hri_oom_place *p) {
  static const char words[] =
      "frequently asked|faq|faqs|common errors|common issues|common problems|known issues|known errors";
  size_t from = p->before_count > 600 ? p->before_count - 600 : 0;
  if (p->shape & HRI_OOM_FENCED && p->tick_from == p->tick_to) return false;
  if (is_explained(p)) return true;
  if (is_among_questions(p) && !(p->shape & HRI_OOM_FENCED) && !hri_voice_opens(p)) return true;
  return p->shape & HRI_OOM_COMMENT && hri_match_any(p->before, from, p->before_count, words);
}

/* Whether the line tells a time of the day, "at 03:12": what happened then, as an incident's page has it. */
static bool tells_time(const hri_oom_place *p) {
  const char *t = p->text;
  for (size_t i = p->line + 2; i + 2 < p->line_end; i++)
    if (t[i] == ':' && hri_is_digit(t[i - 1]) && hri_is_digit(t[i - 2]) && hri_is_digit(t[i + 1]) &&
        hri_is_digit(t[i + 2]))
      return true;
  return false;
}

/* A page's label above an example, or above a list of what goes wrong, of which text[from, end) of what stands before is near:
 * causes or solutions follow. */
static bool is_symptom_of(const hri_oom_place *p, size_t from, size_t end) {
  enum { AHEAD = 600 };
  static const char labels[] =
      "symptom|symptoms|gejala|tri\xe1\xbb\x87u ch\xe1\xbb\xa9ng|"
      /* Chinese and Japanese, Korean */
      "\xe7\x97\x87\xe7\x8a\xb6|\xe7\x8e\xb0\xe8\xb1\xa1|\xe7\x8f\xbe\xe8\xb1\xa1|\xec\xa6\x9d\xec\x83\x81";
  static const char answers[] =
      "cause:|causes:|diagnosis:|mitigation:|workaround:|solution:|solutions:|solution 1|resolution:|fix:|root cause|root-cause|"
      "common causes|possible cause|solusi|penyebab|gi\xe1\xba\xa3i ph\xc3\xa1p|"
      "\xe5\x8e\x9f\xe5\x9b\xa0|\xe8\xa7\xa3\xe5\x86\xb3|\xe8\xa7\xa3\xe6\xb1\xba|\xe5\xaf\xb9\xe7\xad\x96|\xe5\xaf\xbe\xe7\xad\x96|\xed\x95\xb4\xea\xb2\xb0|\xec\x9b\x90\xec\x9d\xb8";
  const size_t to = p->line_end + AHEAD < p->count ? p->line_end + AHEAD : p->count;
  const size_t label = hri_match_whole(p->before, from, end, labels);
  return label < end && !tells_time(p) && !hri_match_any(p->before, label, end, HRI_OWN) &&
         hri_match_part(p->text, p->line_end, to, answers);
}

bool hri_page_shows_symptom(const hri_oom_place *p, size_t end) {
  enum { NEAR = 32 };
  return is_symptom_of(p, end > NEAR ? end - NEAR : 0, end);
}

/* "Symptoms", and an item of the list below it. */
static bool is_listed_symptom(const hri_oom_place *p) {
  enum { LIST = 400 };
  if (hri_match_any(p->text, p->line, p->line_end, "was|were|got|died|crashed")) return false; /* what once happened */
  return is_symptom_of(p, p->before_count > LIST ? p->before_count - LIST : 0, p->before_count);
}

/* The title of one of several threads, "#28 opened Aug 29 by x" in the line below it. */
static bool is_in_list_of_threads(const hri_oom_place *p) {
  size_t at = p->line_end;
  while (at < p->count && p->text[at] == ' ') at++;
  if (at >= p->count || p->text[at] != '#') return false;
  for (at++; at < p->count && hri_is_digit(p->text[at]);) at++;
  return hri_match_at(p->text, at, p->count, " opened ");
}

/* An error's name with its symptom, cause and solution below, or its symptom with the cause below: an entry of a reference. */
static bool is_entry_of_reference(const hri_oom_place *p) {
  enum { BELOW = 600 };
  const size_t end = p->line_end + BELOW < p->count ? p->line_end + BELOW : p->count;
  static const char told[] = "was|were|got|died|crashed|crashes|tried|stopped|failed|restarted|exited";
  if (p->shape & (HRI_OOM_DATED | HRI_OOM_LEVEL) || hri_match_any(p->text, p->line, p->line_end, told)) return false;
  if (hri_match_at(p->text, next_line(p), p->count,
                   "the possible cause|possible cause|possible reason|the possible reason"))
    return true;
  if (is_in_list_of_threads(p)) return true;
  if (hri_match_at(p->text, next_line(p), p->count, "cause |causes |reason |explanation ") &&
      !hri_match_at(
          p->text, next_line(p), p->count,
          "cause unknown|cause nobody|cause not |cause is not |reason unknown|cause i |cause my |cause we |reason code") &&
      hri_match_any(p->text, p->line_end, end, "solution|solutions|workaround"))
    return true;
  if (hri_match_at(p->text, p->line, p->at, "failure pattern: |failure mode: |pattern: |symptom: |symptoms: ") &&
      hri_match_at(p->text, next_line(p), p->count, "root cause|cause: |causes: |reason: "))
    return true;
  return hri_match_at(p->text, next_line(p), p->count,
                      "symptom |symptoms |symptom: |symptoms: |failure pattern: |failure mode: ") &&
         hri_match_any(p->text, p->line_end, end, "possible cause|possible causes|cause|causes|solution|solutions");
}

/* "There are some potential root causes. (1) The process is killed by the OOM killer. (2) ...", as Ray prints: nobody knows. */
static bool is_one_of_causes(const hri_oom_place *p) {
  enum { NEAR = 120 };
  static const char causes[] =
      "potential root causes|potential causes|possible causes|possible reasons|possible root causes|"
      "some common causes|one of the following reasons";
  return hri_match_part(p->text, p->at > p->line + NEAR ? p->at - NEAR : p->line, p->at, causes);
}

/* Whether a sentence or a line begins at text[at]. */
static bool is_sentence_begun(const char *text, size_t from, size_t at) {
  size_t start = hri_sentence_start(text, from, at);
  while (start < at && strchr(" #*->", text[start])) start++;
  return start == at;
}

/* "This guide explains", as a sentence begins: what a page is, and what it does for whoever reads it. */
static bool presents_itself(const char *text, size_t from, size_t to) {
  static const char pages[] = "this article |this guide |this post |this tutorial |this page ";
  static const char does[] = "delves |explains |discusses |explores ";
  for (size_t at = hri_match_first(text, from, to, pages); at < to; at = hri_match_first(text, at + 1, to, pages))
    if (hri_match_at(text, hri_match_next(text, at, to, pages), to, does) && is_sentence_begun(text, from, at))
      return true;
  return false;
}

/* What an article or a lesson says of itself, close by. */
static bool is_of_article(const hri_oom_place *p) {
  enum { NEAR = 500 };
  static const char says[] =
      "what you will learn|what you'll learn|in this tutorial, |in this article, |in this blog post, |in this guide, |in this post, we|"
      "learning objectives|table of contents|key takeaways|we will explore|we'll explore";
  const size_t from = p->before_count > NEAR ? p->before_count - NEAR : 0;
  const size_t end = p->line_end + NEAR < p->count ? p->line_end + NEAR : p->count;
  if (p->shape & (HRI_OOM_DATED | HRI_OOM_LEVEL) || hri_voice_opens(p)) return false;
  return hri_match_part(p->text, p->line, end, says) || hri_match_part(p->before, from, p->before_count, says) ||
         presents_itself(p->text, p->line, end);
}

/* "Common signs of a full card:", "error messages to look for", and what one may see below. */
static bool is_one_of_signs(const hri_oom_place *p) {
  enum { LIST = 240 };
  static const char signs[] = "common signs|typical signs|messages to look for|errors to look for|things to look for";
  const size_t from = p->before_count > LIST ? p->before_count - LIST : 0;
  return !(p->shape & (HRI_OOM_DATED | HRI_OOM_LEVEL)) && hri_match_any(p->before, from, p->before_count, signs) &&
         !hri_match_any(p->before, from, p->before_count, HRI_OWN);
}

/* "Console shows "killed", "out of memory", or similar messages": several that one may see. */
static bool is_one_of_several(const hri_oom_place *p) {
  const size_t end = hri_sentence_end(p->text, p->at, p->at + 120 < p->line_end ? p->at + 120 : p->line_end);
  return hri_match_part(p->text, p->at, end, "or similar|or the like|or a similar|or something similar") &&
         !hri_match_any(p->text, p->line, p->at, "got|getting|said|died|crashed|stopped");
}

/* "Error 701 indicates that the server cannot allocate memory": a code, and what it is. */
static bool is_code_explained(const hri_oom_place *p) {
  size_t at = hri_sentence_start(p->text, p->line, p->at);
  while (at < p->at && strchr(" #*-", p->text[at])) at++;
  const size_t name = hri_match_next(p->text, at, p->at, "error code |exit code |error |code |ora-|msg ");
  size_t end = name;
  while (end < p->at && hri_is_digit(p->text[end])) end++;
  return name > at && end > name &&
         hri_match_at(p->text, end, p->line_end,
                      " indicates | means | is raised | is returned | occurs when | occurs if | happens when | "
                      "happens if | appears when ");
}

/* "Running into an out of memory error? No need to panic": whoever is. */
static bool is_asked(const hri_oom_place *p) {
  static const char begins[] =
      "running into |getting |seeing |facing |struggling with |tired of |dealing with |hitting |experiencing |encountering |"
      "are you |do you |have you |did you |does your |is your |ever seen |ever had ";
  static const char answers[] =
      " no need| don't panic| don't worry| here's| here are| you're not alone| you are not alone| try | let's | relax";
  const size_t from = hri_sentence_start(p->text, p->line, p->at), end = hri_sentence_end(p->text, p->at, p->line_end);
  const size_t at = hri_match_next(p->text, from, p->at, " |- |# |## ");
  return end < p->line_end && p->text[end] == '?' && hri_match_at(p->text, end + 1, p->count, answers) &&
         hri_match_at(p->text, at, p->at + 1, begins) &&
         !hri_match_any(p->text, from, end, "anyone|the same|same issue|same problem|same error");
}

/* The message as the first line of a page, and right below it what such pages begin with: "For humans", "Quick fix guide". */
static bool is_titled_by_message(const hri_oom_place *p) {
  static const char labels[] = "for humans quick fix|quick fix guide";
  return p->before_count == 0 && !(p->shape & (HRI_OOM_DATED | HRI_OOM_LEVEL)) &&
         !hri_match_any(p->text, p->line, p->line_end, HRI_OWN) &&
         hri_match_at(p->text, next_line(p), p->count, labels);
}

/* "How to fix X", as a title in other languages. */
static bool is_titled_elsewhere(const hri_oom_place *p) {
  static const char first[] = "wie |warum |pourquoi |comment |c\xc3\xb3mo |como |affrontare |risolvere ";
  static const char whole[] = "beheben|behebung|r\xc3\xa9soudre|solucionar|soluci\xc3\xb3n|soluzioni";
  static const char answers[] = /* with no empty line below it either */
      "soluciones|solucionarlo|solu\xc3\xa7\xc3\xb5"
      "es";
  static const char sought[] = /* by somebody who has none */
      "tiene|tienen|tengo|tem|tenho|necesito|necesitamos|preciso|busco|buscando|procuro|mi|meu|minha|ayuda|ajuda";
  static const char parts[] =
      /* Russian: how, why, fix */
      "\xd0\x9a\xd0\xb0\xd0\xba |\xd0\xba\xd0\xb0\xd0\xba |\xd0\x9f\xd0\xbe\xd1\x87\xd0\xb5\xd0\xbc\xd1\x83|\xd0\xbf\xd0\xbe\xd1\x87\xd0\xb5\xd0\xbc\xd1\x83|\xd0\xb8\xd1\x81\xd0\xbf\xd1\x80\xd0\xb0\xd0\xb2|"
      /* Chinese: how, what way, what does one do, solve, way to */
      "\xe5\xa6\x82\xe4\xbd\x95|\xe6\x80\x8e\xe4\xb9\x88|\xe6\x80\x8e\xe6\xa0\xb7|\xe8\xa7\xa3\xe5\x86\xb3|\xe6\x96\xb9\xe6\xb3\x95|"
      /* Japanese: what to do about it, ways; Korean: solution, ways */
      "\xe5\xaf\xbe\xe5\x87\xa6|\xe5\xaf\xbe\xe7\xad\x96|\xe8\xa7\xa3\xe6\xb1\xba|\xed\x95\xb4\xea\xb2\xb0|\xeb\xb0\xa9\xeb\xb2\x95";
  static const char own[] = /* Chinese: I, cannot, has not, asked for, reports; Russian: at mine */
      "\xe6\x88\x91|\xe6\x97\xa0\xe6\xb3\x95|\xe6\xb2\xa1|\xe6\xb1\x82|\xe6\x8a\xa5\xe9\x94\x99|\xd1\x83 \xd0\xbc\xd0\xb5\xd0\xbd\xd1\x8f";
  if (hri_match_part(p->text, p->line, p->line_end, own)) return false;
  if (p->before_count == 0 && hri_match_any(p->text, p->at, p->line_end, answers) &&
      !hri_match_part(p->text, p->line, p->line_end, "?|\xc2\xbf") &&
      !hri_match_any(p->text, p->line, p->line_end, sought))
    return true;
  return p->shape & HRI_OOM_TITLE &&
         (hri_match_at(p->text, p->line, p->line_end, first) || hri_match_any(p->text, p->line, p->line_end, whole) ||
          hri_match_part(p->text, p->line, p->line_end, parts));
}

/* "X often triggers such errors during Y", "it's often due to too little shared memory": what is so as a rule, of whoever it is. Who
 * quotes what was printed or names a figure of it tells of runs; so does "exited with 137 (often caused by x)". */
static bool is_usual(const hri_oom_place *p) {
  enum { NEAR = 48 };
  static const char adverbs[] = "often|frequently|typically|commonly|usually|generally|tends to|tend to";
  static const char verbs[] =
      "trigger|triggers|cause|causes|lead to|leads to|result in|results in|produce|produces|exceed|exceeds|exceeding";
  static const char definite[] = "the|this|that|these|it|its|" HRI_OWN;
  static const char put_down[] =
      "often due to|usually due to|typically due to|commonly due to|frequently due to|mostly due to|"
      "often caused by|usually caused by|typically caused by|commonly caused by|frequently caused by";
  const size_t from = hri_sentence_start(p->text, p->sentence, p->at), near = p->at > from + NEAR ? p->at - NEAR : from;
  const size_t adverb = hri_match_whole(p->text, near, p->at, adverbs),
               due = hri_match_whole(p->text, near, p->at, put_down);
  const size_t to = hri_sentence_end(p->text, p->at, p->line_end);
  size_t verb = hri_match_next(p->text, adverb, p->at, adverbs);
  if (hri_match_part(p->text, adverb, p->at, ":|(|\"|;| and | then ")) return false;
  if (due < p->at)
    return hri_match_end(p->text, from, due, " is | are |it's ") && !memchr(p->text + p->at, ':', to - p->at);
  while (verb < p->at && p->text[verb] == ' ') verb++;
  const size_t end = hri_match_next(p->text, verb, p->at, verbs);
  if (end == verb || p->text[end] != ' ' || hri_match_any(p->text, from, adverb, definite)) return false;
  for (size_t i = end; i < to; i++)
    if (hri_is_digit(p->text[i])) return false;
  return true;
}

/* "Many people report that the large one goes out of memory": what is said of others. What they say happened is told. */
static bool is_said_of_others(const hri_oom_place *p) {
  static const char many[] =
      "many people |some people |most people |many users |some users |most users |several people |several users |"
      "a few people |a few users |lots of people |other people |other users ";
  static const char say[] = "report|reported|say|said|claim|claimed|complain|complained|have reported|have complained";
  const size_t from = hri_sentence_start(p->text, p->sentence, p->at);
  size_t at = from;
  while (at < p->at && strchr(" #*->", p->text[at])) at++;
  const size_t end = hri_match_next(p->text, at, p->at, many), said = hri_match_next(p->text, end, p->at, say);
  return end > at && said > end && !hri_match_part(p->text, said, p->at, ":|,|;|\"|(") &&
         !hri_match_any(p->text, said, p->at, "was|were|got|ran|died|crashed|failed|went|had");
}

/* "We need a way to tell that it failed for x", "it would be nice if ...": what somebody asks for. Behind a comma or a colon they may tell
 * of their own: "please add x, I get y". */
static bool is_wished(const hri_oom_place *p) {
  enum { NEAR = 160 };
  static const char wishes[] =
      "need a way to|would be nice|would be great|would be helpful|would be useful|would be good|would be better|"
      "would be convenient|please add|please consider|could you add";
  const size_t from = hri_sentence_start(p->text, p->at > p->sentence + NEAR ? p->at - NEAR : p->sentence, p->at),
               wish = hri_match_whole(p->text, from, p->at, wishes);
  for (size_t i = wish, to = hri_sentence_end(p->text, p->at, p->line_end); i < to && wish < p->at; i++)
    if (hri_is_digit(p->text[i])) return false; /* what came to one run */
  return wish < p->at && !(p->shape & (HRI_OOM_DATED | HRI_OOM_LEVEL)) &&
         !hri_match_part(p->text, wish, p->at, ":|,|;|\"|(| - ") &&
         !hri_match_any(p->text, wish, p->at, "but|however|because|since|as i|yet|" HRI_OWN);
}

/* "Fixed in 3.1.9: when ...": a line of a list of changes. */
static bool is_fixed_in(const hri_oom_place *p) {
  size_t at = hri_match_next(p->text, p->line, p->at, "fixed in |resolved in |fixed since ");
  if (at == p->line || at >= p->at || !(hri_is_digit(p->text[at]) || p->text[at] == 'v')) return false;
  while (at < p->at && p->text[at] != ' ') at++;
  return hri_match_end(p->text, p->line, at, ":") &&
         hri_match_at(p->text, at, p->at, " when | where | while | a | an | the | some ") &&
         !hri_match_any(p->text, at, p->at, HRI_OWN "|but|still|again|not|now");
}

/* "Q: I get x. What can I do?", and "A: ..." as the next line. */
static bool is_put_and_answered(const hri_oom_place *p) {
  size_t at = p->line;
  while (at < p->at && strchr(" *#", p->text[at])) at++;
  return hri_match_at(
             p->text, at, p->at,
             "q: |q. |q) |question: |frage: |pregunta: |pergunta: |domanda: |\xe9\x97\xae\xef\xbc\x9a|\xe9\x97\xae: |"
             "\xe8\xb4\xa8\xe9\x97\xae\xef\xbc\x9a|\xd0\x92\xd0\xbe\xd0\xbf\xd1\x80\xd0\xbe\xd1\x81: ") &&
         hri_match_at(p->text, next_line(p), p->count,
                      "a: |answer: |antwort: |r\xc3\xa9ponse : |respuesta: |resposta: |risposta: |"
                      "\xe7\xad\x94\xef\xbc\x9a|\xe7\xad\x94: |\xd0\x9e\xd1\x82\xd0\xb2\xd0\xb5\xd1\x82: ");
}

/* A line that a program printed with a time or a level, unless it is a heading, and one's own: neither is explained. */
static bool is_told_here(const hri_oom_place *p) {
  return (p->shape & (HRI_OOM_DATED | HRI_OOM_LEVEL) && !(p->shape & (HRI_OOM_HEADING | HRI_OOM_FENCED))) ||
         hri_match_any(p->text, p->line, p->line_end, HRI_OWN);
}

bool hri_page_explains(const hri_oom_place *p) {
  if (is_frequent(p) || is_put_and_answered(p) || is_one_of_causes(p) || is_wished(p) || is_fixed_in(p)) return true;
  if (is_told_here(p)) return false;
  return is_titled_answer(p) || is_titled_elsewhere(p) || is_of_article(p) || is_listed_symptom(p) ||
         is_one_of_several(p) || is_asked(p) || is_code_explained(p) || is_usual(p) || is_said_of_others(p) ||
         is_titled_by_message(p) ||
         (!hri_voice_opens(p) &&
          (is_pointed_at(p) || is_interpreted(p) || is_entry_of_reference(p) || is_one_of_signs(p)));
}

bool hri_voice_is_meant(const hri_oom_place *p) {
  static const char words[] =
      "137 mean|137 indicates|137 typically|137 usually|137 is the|137) means|137** means|137` means|oomkilled mean|"
      "137 is oom|137 is out of memory|137 = oom|137 = out of memory|sigkill means|killed mean|128 + 9|128+9|128 + signal|stands for|what is exit code";
  const size_t from = p->before_count > 300 ? p->before_count - 300 : 0;
  const size_t end = p->line_end + 300 < p->count ? p->line_end + 300 : p->count;
  return hri_match_part(p->before, from, p->before_count, words) || hri_match_part(p->text, p->line, end, words);
}
