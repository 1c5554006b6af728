/* What makes a phrase an event: words that tell of one thing that happened, in whatever form its line has. "Failed with",
 * "got a", "is reported at the second epoch", a title in the present tense, a verb of the end that something came to.
 *
 * The neighbours may rely on this: an event may be told of and be a topic all the same ("if it raised X"). A condition is
 * a sign of its own (report_topic.c); what one came to by some way ("died after an hour with") is told only where the
 * sentence sets no case (hri_voice_meets). */
#include "explain/lexicon.h"
#include "explain/match.h"
#include "explain/report_parts.h"
#include "explain/wording.h"

bool hri_voice_happened(const hri_oom_place *p, size_t to) {
  static const char events[] =
      " are occurring| is occurring| are happening| keep happening| have been observed| is reported at| was reported| was raised| was thrown| occurred| happened| came out| came up|"
      " comes up| appeared| popped up| pops up| showed up| shows up| came back";
  static const char now[] =
      " is raised | is thrown | occurs | happens | is reported | appears | arises | is encountered ";
  static const char then[] = "when i |when we |when my |when running |when trying |when loading |when executing |"
                             "when launching |when starting |after ";
  size_t runs;
  to = hri_match_next(p->text, to, p->line_end, " error| errors| exception| exceptions| failure| failures");
  runs = hri_match_next(p->text, to, p->line_end, now); /* "is raised when running x" tells of one run */
  return hri_match_at(p->text, to, p->line_end, events) ||
         (runs > to && hri_match_at(p->text, runs, p->line_end, then));
}

bool hri_voice_tells_of_end(const hri_oom_place *p, size_t from, size_t to) {
  static const char verbs[] =
      HRI_DIED "|terminated|exited|stopped|killed|ended|lost|returned|raised|threw|received|hit|saw|tried|tested|did";
  const size_t end = hri_sentence_end(p->text, to, to + 60 < p->line_end ? to + 60 : p->line_end);
  return hri_match_any(p->text, hri_sentence_start(p->text, p->line, from), end, verbs);
}

/* "failed with x", "got x". */
static bool is_telling(const hri_oom_place *p, size_t line, size_t from) {
  /* Chinese: there appeared, met, reports an error */
  static const char wide[] = "\xe5\x87\xba\xe7\x8e\xb0|\xe9\x81\x87\xe5\x88\xb0|\xe6\x8a\xa5\xe9\x94\x99";
  const bool labelled = hri_match_end(p->text, line, from, ": ");
  size_t name = from, verb;
  while (name > line + 1 && strchr(".:", p->text[name - 1]) && hri_is_name(p->text[name - 2])) {
    name--; /* "system.outofmemoryexception" */
    while (name > line && (hri_is_name(p->text[name - 1]) || p->text[name - 1] == ':')) name--;
  }
  if (name > line && strchr("\"'", p->text[name - 1])) name--;
  verb = name - hri_match_end(p->text, line, name, " ");
  verb = hri_match_last(p->text, line, verb, "error|reason:|workers are {|" HRI_MEETS);
  if (verb + 1 < name || hri_match_end(p->text, line, name, " reason=")) return true;
  if (hri_match_end(p->text, line, from, " ran ") && /* "I ran out of memory" */
      hri_match_any(p->text, hri_sentence_start(p->text, p->sentence, from), from, "i|we|my|our") &&
      !hri_match_any(p->text, hri_sentence_start(p->text, p->sentence, from), from,
                     HRI_CASE "|" HRI_CAN "|when|once|that"))
    return true;
  if (hri_match_part(p->text, name > line + 24 ? name - 24 : line, name, wide)) return true;
  return !labelled && hri_voice_meets(p->text, hri_sentence_start(p->text, line, name), name);
}

/* An item of a list of codes: "- 137: the container was oom-killed". */
static bool is_numbered(const hri_oom_place *p) {
  size_t at = p->line, digits;
  while (at < p->line_end && strchr("-+ ", p->text[at]) && p->text[at]) at++;
  for (digits = at; at < p->line_end && hri_is_digit(p->text[at]);) at++;
  return at > digits && hri_match_at(p->text, at, p->line_end, ": |) |. | - ");
}

/* Back over blanks and words that say how often. */
static size_t skip_adverbs(const char *text, size_t from, size_t at) {
  static const char adverbs[] =
      "still|constantly|repeatedly|frequently|always|often|again|currently|sometimes|regularly|consistently";
  for (;;) {
    while (at > from && text[at - 1] == ' ') at--;
    const size_t adverb = hri_match_last(text, from, at, adverbs);
    if (adverb == at) return at;
    at = adverb;
  }
}

/* "The operator is still oomkilled at 1gi", "has been oomkilled twice", "was being oom killed": a passive with its subject. What
 * is said in the present of any container needs something of this one's: a size, how often, whose it is. */
static bool is_passive(const hri_oom_place *p, size_t phrase, size_t to) {
  static const char once[] =
      "was|were|been|got|is getting|are getting|is being|are being|was being|were being|keeps being|keeps getting|pod being|pods being";
  static const char now[] = "is|are|gets|get";
  static const char units[] = "gi|mi|gb|mb| gi| mi| gb| mb";
  static const char you[] = "you|your";
  static const char marks[] = "still|constantly|repeatedly|frequently|again|currently|every|times|let's|" HRI_OWN;
  const size_t from = hri_sentence_start(p->text, p->sentence, phrase), near = from;
  const size_t end = hri_sentence_end(p->text, to, p->line_end + 80 < p->count ? p->line_end + 80 : p->count);
  size_t at = phrase, verb;
  if (!hri_match_at(p->text, phrase, p->line_end, "oomkilled|oom killed|oom-killed") ||
      p->shape & (HRI_OOM_HEADING | HRI_OOM_ROW) || is_numbered(p))
    return false;
  at = skip_adverbs(p->text, from, at);
  const size_t being = hri_match_last(p->text, from, at, "being");
  if (being < at && (verb = skip_adverbs(p->text, from, being)) < being && /* "is constantly being" */
      hri_match_last(p->text, from, verb, "is|are|was|were|keeps|keep|kept") < verb)
    return !hri_match_any(p->text, from, verb, HRI_CASE "|" HRI_CAN "|when|to|each|any|every|until");
  if (hri_match_any(p->text, near, at, HRI_CASE "|" HRI_CAN "|when|to|each|any|every|until")) return false;
  if (hri_match_any(p->text, from, end, you) && !hri_match_any(p->text, from, end, HRI_OWN)) return false;
  if (hri_match_last(p->text, from, at, once) < at) return true;
  verb = hri_match_last(p->text, from, at, now);
  if (verb == at || verb < from + 4 || hri_match_end(p->text, from, verb, "that |which ")) return false;
  for (size_t i = from; i + 1 < end; i++)
    if (hri_is_digit(p->text[i]) && hri_match_at(p->text, i + 1, end, units)) return true;
  return hri_match_any(p->text, from, end, marks);
}

bool hri_voice_tells_of_kill(const hri_oom_place *p) {
  const hri_oom_head *head = hri_oom_head_at(p->text, p->at, p->count);
  return head && (strcmp(head->words, "killed") == 0 || head->words[0] == '\xe8');
}

bool hri_voice_lacks_be(const hri_oom_place *p, size_t from, size_t to) {
  return hri_match_end(p->text, hri_sentence_start(p->text, p->sentence, from), from, " will ") &&
         hri_match_at(p->text, from, to, "killed") &&
         !hri_match_any(p->text, to, hri_sentence_end(p->text, to, p->line_end),
                        HRI_CASE "|when it|when they|when a|once|as soon as");
}

/* "The process was killed by the kernel's OOM killer": once, and by whom. */
static bool was_killed_by_killer(const hri_oom_place *p, size_t phrase, size_t to) {
  static const char once[] = "was|were|got|been|has|have";
  const size_t from = hri_sentence_start(p->text, p->sentence, phrase),
               end = hri_sentence_end(p->text, to, p->line_end);
  const size_t by = hri_match_first(p->text, from, end, "killed by |kill by ");
  const size_t near = by + 48 < end ? by + 48 : end;
  return by < end &&
         hri_match_part(p->text, by, near,
                        "oom killer|oom-killer|oomkiller|memory) killer|of memory killer|of-memory killer") &&
         hri_match_any(p->text, from, by, once) &&
         !hri_match_any(p->text, from, end, HRI_CASE "|" HRI_CAN "|when|means|any|each|every");
}

/* "Be wary of OOMs", "to avoid OOMs": the plural of the noun. */
static bool are_several(const hri_oom_place *p, size_t from) {
  return hri_match_end(p->text, p->line, from,
                       "of |no |any |avoid |prevent |the |these |from |about |for |without |fewer |less ");
}

/* "Exclude OOM-killed builds": of what kind they are; "two OOM-killed pods" were so. */
static bool is_attribute(const hri_oom_place *p, size_t from, size_t to) {
  static const char what[] = " builds| pods| containers| jobs| tasks| processes| workers| runs";
  size_t at = from;
  while (at > p->line && p->text[at - 1] == ' ') at--;
  return hri_match_at(p->text, from, to, "oomkilled|oom-killed|oom killed|killed") &&
         hri_match_at(p->text, to, p->line_end, what) &&
         hri_match_last(p->text, p->line, at,
                        "two|three|four|several|some|many|these|those|our|my|were|are|was|is|got|been") == at &&
         !(at > p->line && hri_is_digit(p->text[at - 1])) &&
         !hri_match_any(p->text, p->line, at, "kernel|node|system|linux");
}

/* "The kernel OOM-kills the build"; "the OOM killer killed it" in Russian, two aspects, and in French. */
static bool kills_one(const hri_oom_place *p, size_t from, size_t to) {
  if (hri_match_at(p->text, from, to, "oom-kills|oom-killed") &&
      hri_match_at(p->text, to, p->line_end, " the | my | our | it"))
    return true;
  return hri_match_end(p->text, from, to, "killer") &&
         hri_match_at(
             p->text, to, p->line_end,
             " \xd1\x83\xd0\xb1\xd0\xb8\xd0\xbb| \xd1\x83\xd0\xb1\xd0\xb8\xd0\xb2\xd0\xb0\xd0\xbb| a tu\xc3\xa9");
}

bool hri_voice_tells(const hri_oom_place *p, size_t from, size_t to, uint64_t topic) {
  return hri_oom_is_told(p) || is_telling(p, p->line, from) || hri_voice_happened(p, to) ||
         (hri_voice_tells_of_kill(p) && !(p->shape & HRI_OOM_HEADING) && !(topic & HRI_SIGN_BIT(HRI_SIGN_TOPIC)) &&
          !is_attribute(p, from, to)) ||
         is_passive(p, from, to) || was_killed_by_killer(p, from, to) || kills_one(p, from, to) ||
         (hri_match_at(p->text, from, to, "oomed|ooming|ooms|oom'") && !are_several(p, from));
}

/* What a program does about it and says in the same line. */
#define GOES_ON                                                                                                        \
  "skipping|retrying|trying|reducing|halving|decreasing|lowering|falling back|emptying|clearing|freeing|attempting|"   \
  "restarting|splitting|shrinking|backing off"

/* What makes of the phrase before it no event of this run: it did not come, was made, foreseen or dealt with. */
#define NO_EVENT                                                                                                       \
  "no|not|non|never|without|0|zero|fix|fixes|fixed|handle|handles|handling|catch|catches|survive|survives|recover|"    \
  "recovers|predicted|simulated|expected|possible|potential|add|adds|support|on|at|of|for|longer|rather|after|what|how|estimated|estimates"

/* "Skipping batch 17 because of", "trying batch size 64...": what it does or tries, with a number, and what came in between. */
static bool is_what_came(const hri_oom_place *p, size_t from) {
  static const char does[] =
      "skipping batch|skipping sample|skipping step|skipping update|skipped batch|skipped sample|skipped step|trying batch size";
  size_t at = p->line, end;
  while (at < from && strchr(" |[]>*-", p->text[at])) at++;
  if (!hri_match_at(p->text, at, from, does)) return false;
  end = hri_oom_with_modifiers(p->text, at, from);
  if (hri_match_end(p->text, at, end, " an ")) end -= strlen("an ");
  if (!hri_match_end(p->text, at, end, "because of |because |due to |... |: |-> |after ")) return false;
  if (hri_match_any(p->text, at, end, "no|not|never|without|up|if|when")) return false;
  while (at < end && !hri_is_digit(p->text[at])) at++;
  return at < end;
}

/* Behind where and when it came: " in evaluation", " at step 120", " with batch size 64", " detected". Nothing else may stand before what
 * the program does about it: "oom guard enabled: dropping ..." is no event. */
static size_t behind_details(const hri_oom_place *p, size_t to) {
  static const char where
      [] = " in | at | on | during | with | for ",
 nouns[] =
      "evaluation|validation|training|eval|forward|backward|step|batch|size|gpu|rank|worker|iteration|epoch|device|sample|loss|process|pass|the|#|decoding|encoding|inference|generation|vae|regular";
  static const char verbs[] = " detected| encountered| occurred| caught| error| exception| errors";
  size_t at = hri_match_next(p->text, to, p->line_end, verbs), next;
  while ((next = hri_match_next(p->text, at, p->line_end, where)) > at) {
    size_t word = next;
    for (at = next - 1; at < p->line_end && p->text[at] == ' '; at = next) {
      word = at + 1;
      next = hri_match_next(p->text, word, p->line_end, nouns);
      if (next == word)
        while (next < p->line_end && hri_is_digit(p->text[next])) next++;
      if (next == word || (next < p->line_end && (hri_is_name(p->text[next]) && !hri_is_digit(p->text[next])))) break;
      while (next < p->line_end && hri_is_digit(p->text[next])) next++;
    }
    if (word == next) return to;
  }
  return hri_match_next(p->text, at, p->line_end, verbs);
}

bool hri_voice_goes_on(const hri_oom_place *p, size_t from, size_t to) {
  static const char marks[] = ", |; |. |! |: | - |, then |, so ";
  const size_t start = hri_sentence_start(p->text, p->line, from);
  const unsigned none =
      HRI_OOM_SOURCE | HRI_OOM_AMONG | HRI_OOM_LITERAL | HRI_OOM_HEADING | HRI_OOM_ROW | HRI_OOM_COMMENT;
  size_t at, behind;
  if (p->shape & none || hri_match_any(p->text, start, p->line_end, HRI_CASE "|" HRI_CAN "|when|than|instead|survives"))
    return false;
  if (is_what_came(p, from)) return to == p->line_end || strchr(" .,;", p->text[to]);
  if (hri_match_any(p->text, start, from, NO_EVENT "|to|or|that|" HRI_CHANGE)) return false;
  at = behind_details(p, to);
  behind = hri_match_next(p->text, at, p->line_end, marks);
  if (behind == at || hri_match_whole(p->text, behind, p->line_end, GOES_ON) != behind || behind == p->line_end)
    return false;
  if (p->text[at] == '.' && hri_count_words(p->text, start, from) > 3) return false;
  if (hri_match_at(p->text, hri_match_next(p->text, behind, p->line_end, GOES_ON), p->line_end, ",|."))
    return false; /* one of several words */
  if (strchr(":-",
             p->text[behind -
                     2])) { /* "oom: reducing the batch size" is an item of advice, "oom: skipping batch 17" is none */
    size_t number = behind;
    while (number < p->line_end && !hri_is_digit(p->text[number])) number++;
    if (number == p->line_end) return false;
  }
  /* "reducing the batch size is the simplest fix" */
  return !hri_match_any(p->text, behind, p->line_end, "is|are|helps|fixes|works|times|usually");
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
