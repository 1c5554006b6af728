/* Pages that help: what stands around a phrase shows that it is explained to whoever comes to it, and that nobody reports it there. A
 * symptom of a list whose causes follow, a question that is asked often, a code of which the next line says what it means, one
 * of several causes that a program names.
 *
 * The neighbours may rely on this: who tells of it as their own in the same lines ("we see", "my run") reports all the same, and so does
 * a block of a log with times. */
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
  static const char reading[] =
      "as the error message suggests|as the error message says|as the message says|as the error says";
  const size_t far = p->at + 240 < p->line_end ? p->at + 240 : p->line_end;
  size_t at = hri_sentence_end(p->text, p->at, far);
  if (p->shape & HRI_OOM_HEADING && hri_match_at(p->text, next_line(p), p->count, because)) return true;
  if (p->shape & (HRI_OOM_LEVEL | HRI_OOM_DATED) || hri_voice_opens(p)) return false;
  if (hri_match_any(p->text, p->line, p->at, "i|i'm|we|am|our"))
    return false; /* who meets it; a page may ask for "my" model */
  while (at < p->count && strchr(" .!?\"'", p->text[at]) && p->text[at]) at++;
  if (hri_match_at(p->text, p->line, p->line_end, reading) || hri_match_at(p->text, at, p->count, reading)) return true;
  return (at < p->line_end && hri_match_at(p->text, at, p->line_end, begins)) ||
         hri_match_at(p->text, next_line(p), p->count, meanings);
}

/* "Getting the message "x" usually means that ...": said of the message in its own sentence. What begins with "this" is what a program
 * says of its own. */
static bool is_interpreted(const hri_oom_place *p) {
  static const char meaning[] =
      "usually means|typically means|generally means|often means|usually indicates|typically indicates";
  const size_t at = hri_match_whole(p->text, p->at, p->line_end, meaning);
  return at < p->line_end && !hri_match_end(p->text, p->at, at, "this |it |which |error |that ") &&
         !hri_match_any(p->text, p->line, p->at, HRI_OWN);
}

/* Whether the text is a page of questions that are asked often, by its title. */
static bool is_among_questions(const hri_oom_place *p) {
  size_t at = 0;
  if (p->before_count == 0 || p->before != p->text) return false;
  while (at < p->before_count && strchr("#*= ", p->before[at])) at++;
  return hri_match_at(p->before, at, p->before_count, "frequently asked questions|faq ");
}

/* "What exit code 137 actually means": the title of an answer. */
static bool is_titled_answer(const hri_oom_place *p) {
  const size_t at = hri_match_next(p->text, p->line, p->line_end, "## |### |# ");
  return p->shape & (HRI_OOM_TITLE | HRI_OOM_HEADING) &&
         hri_match_at(p->text, at, p->line_end, "what |why |how |understanding ") &&
         hri_match_any(p->text, p->at, p->line_end, "mean|means|indicates|happens");
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
  return label < end && !hri_match_any(p->before, label, end, HRI_OWN) &&
         hri_match_part(p->text, p->line_end, to, answers);
}

bool hri_page_shows_symptom(const hri_oom_place *p, size_t end) {
  enum { NEAR = 32 };
  return is_symptom_of(p, end > NEAR ? end - NEAR : 0, end);
}

/* "Symptoms", and an item of the list below it. */
static bool is_listed_symptom(const hri_oom_place *p) {
  enum { LIST = 400 };
  if (p->shape & (HRI_OOM_DATED | HRI_OOM_LEVEL) || hri_match_any(p->text, p->line, p->line_end, HRI_OWN)) return false;
  return is_symptom_of(p, p->before_count > LIST ? p->before_count - LIST : 0, p->before_count);
}

/* An error's name with its symptom, cause and solution below: an entry of a reference. */
static bool is_entry_of_reference(const hri_oom_place *p) {
  enum { BELOW = 600 };
  const size_t end = p->line_end + BELOW < p->count ? p->line_end + BELOW : p->count;
  return !(p->shape & HRI_OOM_DATED) && hri_match_at(p->text, next_line(p), p->count, "symptom ") &&
         hri_match_any(p->text, p->line_end, end, "possible cause|possible causes|cause|causes|solution|solutions");
}

/* "There are some potential root causes. (1) The process is killed by the OOM killer. (2) ..." */
static bool is_one_of_causes(const hri_oom_place *p) {
  enum { NEAR = 120 };
  static const char causes[] =
      "potential root causes|potential causes|possible causes|possible reasons|possible root causes|"
      "some common causes|one of the following reasons";
  return hri_match_part(p->text, p->at > p->line + NEAR ? p->at - NEAR : p->line, p->at, causes);
}

bool hri_page_explains(const hri_oom_place *p) {
  return is_frequent(p) || is_titled_answer(p) || is_interpreted(p) || is_listed_symptom(p) ||
         is_entry_of_reference(p) || is_one_of_causes(p);
}

bool hri_voice_is_meant(const hri_oom_place *p) {
  static const char words[] =
      "137 mean|137 indicates|137 typically|137 usually|137 is the|137) means|137** means|137` means|oomkilled mean|"
      "sigkill means|killed mean|128 + 9|128+9|128 + signal|stands for|what is exit code";
  const size_t from = p->before_count > 300 ? p->before_count - 300 : 0;
  const size_t end = p->line_end + 300 < p->count ? p->line_end + 300 : p->count;
  return hri_match_part(p->before, from, p->before_count, words) || hri_match_part(p->text, p->line, end, words);
}
