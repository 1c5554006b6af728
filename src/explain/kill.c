/* A kill in people's own words: "my training just gets killed", "process killed while loading", "it ends with 'Killed'". The word
 * alone may be about anything - a query, a user who ended a run, what a scheduler does at a time limit -, so it counts
 * where a process is the subject, its end was suffered and not ordered, and one run is told of. */
#include "explain/lexicon.h"
#include "explain/match.h"
#include "explain/wording.h"

/* What is killed that has memory of its own; the plurals, with which no title begins: several are counted, "0 processes
 * killed". */
#define SUBJECTS                                                                                                       \
  "process|training|train|program|script|job|run|python|kernel|worker|task|session|server|notebook|container|pod|app|" \
  "code|command|instance|inference|trainer|progress|service|finetuning|fine-tuning|model|build|compiler|terminal|"     \
  "execution|it|it's|its|that|which|everything|conversion|runner|evaluation|application|installation|simulation"
#define PLURALS "they|processes|jobs|tasks|workers"

/* What else ends processes, and what else is killed. */
static const char others[] =
    "timeout|timed out|time limit|walltime|preempt|preempted|manually|ctrl|ctrl-c|cancel|canceled|cancelled|teardown|"
    "sigterm|shutdown|watchdog|idle|zombie|orphan|orphaned|stale|query|connection|connections|signal 15|sigint|"
    "kill -9|pkill|killall|i killed|we killed|we kill|i kill|heartbeat|deadline|on request|unknown signal|node failure|whether|"
    "eviction|ssh|hang|hung|deadlock|wall clock|statement_timeout|lock_timeout|health check|health checks";

/* Back over the words between a verb and "killed": "is always", "got suddenly". */
static size_t skip_adverbs(const char *text, size_t from, size_t at) {
  for (;;) {
    size_t word;
    at = word = hri_skip_back(text, from, at);
    while (word > from && hri_is_letter(text[word - 1])) word--;
    if (at == word || !(hri_match_end(text, word + 3, at, "ly") ||
                        hri_match_last(text, from, at, "always|just|also|still|then|often|sometimes|auto") < at))
      return at;
    at = word;
  }
}

/* What makes the sentence before "killed" a rule, a case beside others or what a change was about. */
static const char rules[] =
    "until|allowed|whose|for which|after which|in which|when one of|while they|after it's|automatically|to be|"
    "needs to|instead of|should|e.g.|as if|like the|letting|let the";

/* Who has no memory to run out of. */
static const char persons[] =
    "he|she|himself|herself|him|her|who|people|men|soldiers|user|players|characters|civilians";

/* What "it" may stand for, close by. */
static const char machines[] =
    "process|processes|training|train|program|script|job|jobs|run|runs|running|python|kernel|worker|task|session|server|"
    "notebook|container|pod|app|code|command|instance|model|build|compiler|terminal|memory|ram|gpu|oom|cuda|dataset|"
    "epoch|batch|inference|simulation|install|installation|load|loading|compile|compiling|cpu|swap|colab|docker";

/* The word that ends at `at`, or before the blanks there. */
static size_t word_before(const char *text, size_t from, size_t at) {
  at = hri_skip_back(text, from, at);
  while (at > from && (hri_is_name(text[at - 1]) || text[at - 1] == '\'')) at--;
  return at;
}

/* Whether somebody was killed, or "it" was where nothing close by speaks of a process. */
static bool is_somebody(const hri_oom_around *a, size_t from) {
  enum { FAR = 400 };
  const size_t far = a->at > FAR ? a->at - FAR : 0, to = a->after + FAR < a->count ? a->after + FAR : a->count;
  size_t end = skip_adverbs(a->text, from, a->at), verb = word_before(a->text, from, end);
  const size_t noun = word_before(a->text, from, verb);
  if (hri_match_any(a->text, noun, hri_skip_back(a->text, noun, verb), persons)) return true;
  return !hri_match_any(a->text, far, a->at, machines) && !hri_match_any(a->text, a->after, to, machines);
}

/* "A process killed at any point", "each task that is killed": of a kind, not one. */
static bool is_of_a_kind(const hri_oom_around *a, size_t from) {
  const size_t end = skip_adverbs(a->text, from, a->at);
  size_t noun = word_before(a->text, from, end), article;
  if (hri_match_any(a->text, noun, end, "is|are|gets|get|that")) noun = word_before(a->text, from, noun);
  article = word_before(a->text, from, noun);
  if (hri_match_any(a->text, article, noun, "each|any|every|no|only")) return true;
  return hri_match_any(a->text, noun, end, SUBJECTS) && hri_match_any(a->text, article, noun, "a|an") &&
         noun == word_before(a->text, from, end) && hri_match_at(a->text, a->after, a->count, " at ");
}

static bool names_subject(const char *text, size_t from, size_t to) {
  return hri_match_any(text, from, to, SUBJECTS "|" PLURALS);
}

/* "... gets killed", "... was killed": a subject stands before the verb. What is said in the present of a process in
 * general needs somebody whose process it was. */
static bool is_suffered(const hri_oom_around *a, size_t from) {
  const size_t end = skip_adverbs(a->text, from, a->at), least = end > from + 60 ? end - 60 : from;
  if (!names_subject(a->text, least, end)) return false;
  const size_t being = hri_match_last(a->text, from, end, "being");
  if (being < end && hri_match_end(a->text, from, being, " for | before | from | without | of ")) return false;
  if (being < end && hri_match_any(a->text, from, being, HRI_CAN "|" HRI_MAY)) return false;
  if (being < end) /* "the task being killed." is one that a page names */
    return hri_count_words(a->text, from, end) > 3 || !hri_ends_sentence(a->text, a->after, a->count);
  if (hri_match_last(a->text, from, end, "got|gets|get|getting|was|were|been") < end) return true;
  if (hri_match_last(a->text, from, end, "will") < end)
    return true; /* "will killed by OS", of who learns the language: it is */
  if (hri_match_last(a->text, from, end, "are") < end && !hri_match_any(a->text, from, a->at, HRI_OWN) &&
      !hri_match_any(a->text, a->after, a->after + 60 < a->count ? a->after + 60 : a->count, "oom|memory|ram"))
    return false;
  if (!hri_match_any(a->text, from, a->at, HRI_OWN) && hri_match_at(a->text, a->after, a->count, " if |, if | then"))
    return false;
  return hri_match_last(a->text, from, end, "is|are|it's|its") < end &&
         hri_match_any(a->text, least, a->at, HRI_OWN "|the|this|it|it's|its|training|always") &&
         !hri_match_any(a->text, least, end, HRI_CASE "|" HRI_CAN "|when|a|an|any|each|every|must") &&
         (hri_match_any(a->text, from, a->at, HRI_OWN) ||
          !hri_match_any(a->text, from, a->at, "after the|before|which"));
}

/* As titles and first lines say it: "training process killed", "killed process during training". */
static bool is_title(const hri_oom_around *a, size_t from) {
  static const char behind[] =
      " during| while| when| without| after| at | in | with | because| due| every| on | before| as |"
      " by | (oom| unexpectedly";
  const size_t end = skip_adverbs(a->text, from, a->at);
  size_t to = hri_match_next(a->text, a->after, a->count, " process| program| job");
  if (to > a->after && hri_skip_back(a->text, from, a->at) > from + 4) return false; /* "we killed processes" */
  if (to == a->after && hri_match_last(a->text, from, end, SUBJECTS) == end) return false;
  return to >= a->count || strchr(".!,:)\"'", a->text[to]) ||
         (a->text[to] == ' ' && (to + 1 >= a->count || !hri_is_letter(a->text[to + 1]))) || /* or the line ends there */
         hri_match_at(a->text, to, a->count, behind);
}

/* "it ends with 'Killed'", "the terminal just says Killed". */
static bool is_quoted(const hri_oom_around *a, size_t from) {
  static const char says[] =
      "says|said|shows|show|showed|prints|printed|print|with|message|error|reads|see|outputs|output|"
      "get|line";
  size_t quote = hri_skip_back(a->text, from, a->at);
  const bool quoted =
      quote > from && strchr("\"'", a->text[quote - 1]) && a->after < a->count && strchr("\"'.", a->text[a->after]);
  if (quoted) quote = hri_skip_back(a->text, from, quote - 1);
  quote = skip_adverbs(a->text, from, quote);
  while (quote > from && strchr(":,", a->text[quote - 1])) quote--;
  if (hri_match_last(a->text, from, quote, says) == quote)
    return quoted &&
           (names_subject(a->text, from, a->at) || /* "training is 'killed' prematurely" */
            hri_match_at(a->text, a->after, a->count, "\" once|\" when|\" while|\" after|\" on |\" print|\",|\".|\"!"));
  return quoted || a->after == a->count || strchr(".,!)", a->text[a->after]) ||
         hri_match_at(a->text, a->after, a->count, " at end| after ");
}

/* By whom: of those only the system speaks of memory. */
static bool is_by_another(const hri_oom_around *a) {
  static const char system[] =
      "oom|kernel|os|system|linux|itself|sigkill|signal 9|out of|memory|operating|server|docker|"
      "slurm|earlyoom|ubuntu|colab|cluster|default";
  const size_t by = hri_match_next(a->text, a->after, a->count, " by the | by ");
  return by > a->after && !hri_match_at(a->text, by, a->count, system);
}

/* Who kills when memory is short, as the subject: "systemd-oomd killed all of them", "the oom killer has killed". */
bool hri_oom_is_killed_by(const hri_oom_around *a) {
  static const char killers[] = "oom killer|oom-killer|oomkiller|oomd|earlyoom|nohang|lmkd|jetsam";
  const size_t from = hri_sentence_start(a->text, a->start, a->at);
  size_t end = skip_adverbs(a->text, from, a->at);
  end = hri_skip_back(a->text, from, hri_match_last(a->text, from, end, "has|had|have|it"));
  while (end > from && strchr("`\"'", a->text[end - 1])) end--;
  return hri_match_last(a->text, from, end, killers) < end &&
         !hri_match_any(a->text, from, end, HRI_CASE "|" HRI_CAN "|when|before|either");
}

/* Whether three bytes are a character of Chinese, Japanese or Korean. */
static bool is_wide(const char *bytes) {
  const unsigned char first = (unsigned char)bytes[0];
  return first >= 0xe3 && first <= 0xed && bytes[1] & 0x80 && bytes[2] & 0x80;
}

/* Words of Chinese, Japanese or Korean beside it, which have no such verbs: a process is the subject then. */
static bool is_among_wide(const hri_oom_around *a, size_t from) {
  size_t before = hri_skip_back(a->text, from, a->at), behind = a->after;
  while (behind < a->count && a->text[behind] == ' ') behind++;
  return (before > from + 2 && is_wide(a->text + before - 3)) ||
         (behind + 2 < a->count && behind <= a->after + 1 && is_wide(a->text + behind));
}

/* The lines behind say by which signal, and it is not the one of memory. */
bool hri_oom_is_by_other_signal(const hri_oom_around *a) {
  static const char signals[] =
      "segmentation fault|aborted|illegal instruction|floating point exception|interrupt|terminated|hangup|user signal";
  static const char names[] = "sigbus|sigill|sigsegv|sigabrt|sigfpe|sigpipe|sigquit|sigtrap|sigsys";
  const size_t end = a->after + 240 < a->count ? a->after + 240 : a->count;
  if (hri_match_any(a->text, a->after, a->after + 32 < end ? a->after + 32 : end, names)) return true;
  const size_t at = hri_oom_word(a->text, a->after, end, "killed by signal: ");
  return at < end && hri_match_at(a->text, at + strlen("killed by signal: "), a->count, signals);
}

/* "When a container's process has been killed, it is started anew." */
static bool is_when(const hri_oom_around *a, size_t from) {
  return a->after < a->count && a->text[a->after] == ',' &&
         hri_match_at(a->text, from, a->at, "when |once |whenever ") &&
         !hri_match_any(a->text, from, a->at, HRI_OWN "|was|were|got");
}

/* "In cases where the limit is passed and the process gets killed": in the present, and nobody's own. */
static bool is_in_cases(const hri_oom_around *a) {
  enum { NEAR = 120 };
  const size_t from = hri_sentence_start(a->text, a->at > a->line + NEAR ? a->at - NEAR : a->line, a->at);
  const size_t at = hri_match_whole(a->text, from, a->at, "in the case where|in cases where");
  for (size_t i = at; i < a->at; i++)
    if (hri_is_digit(a->text[i])) return false; /* of one's own run */
  return at < a->at && !hri_match_part(a->text, at, a->at, ":|;") &&
         !hri_match_any(a->text, at, a->at, HRI_OWN "|was|were|got|been");
}

/* "We want to know how tasks get killed": of all of them. Who names one, or when it is, tells of it. */
static bool is_asked_about(const hri_oom_around *a) {
  enum { NEAR = 120 };
  static const char asking[] = "wanted to know|want to know|like to know|wonder|wondering";
  const size_t from = hri_sentence_start(a->text, a->at > a->line + NEAR ? a->at - NEAR : a->line, a->at);
  const size_t asked = hri_match_whole(a->text, from, a->at, asking),
               verb = hri_match_next(a->text, asked, a->at, asking);
  const size_t end = hri_sentence_end(a->text, a->after, a->after + NEAR < a->count ? a->after + NEAR : a->count);
  if (verb == asked || hri_match_part(a->text, verb, a->at, ":|,|;")) return false;
  for (size_t at = verb; at < end; at++)
    if (hri_is_digit(a->text[at])) return false;
  return hri_match_any(a->text, verb, a->at, "how|when|what|which|if|whether") &&
         !hri_match_any(a->text, verb, a->at, HRI_OWN "|why|was|were|got|this|the|it") &&
         !hri_match_any(a->text, a->after, end, HRI_OWN "|every|each|always|again|today|yesterday");
}

/* "Memory pressure was high, but nothing was killed", "no process has been killed". */
static bool is_denied(const hri_oom_around *a) {
  enum { NEAR = 60 };
  const size_t from = hri_sentence_start(a->text, a->at > a->line + NEAR ? a->at - NEAR : a->line, a->at);
  size_t end = skip_adverbs(a->text, from, a->at),
         verb = hri_match_last(a->text, from, end, "was|were|is|are|got|gets|has been|have been");
  if (verb == end) return false;
  end = hri_skip_back(a->text, from, verb);
  const size_t noun = word_before(a->text, from, end);
  return hri_match_any(a->text, noun, end, "nothing|nobody|none") ||
         hri_match_last(a->text, from, hri_skip_back(a->text, from, noun), "no") < hri_skip_back(a->text, from, noun);
}

bool hri_oom_is_of_all(const hri_oom_around *a) { return is_in_cases(a) || is_asked_about(a) || is_denied(a); }

bool hri_oom_is_to_be(const char *text, size_t from, size_t verb, size_t at) {
  return hri_match_end(text, from, verb, HRI_TO_BE) && !hri_match_any(text, from, at, "my|the process|it");
}

/* "Slurm killed my job since it exceeded the memory I had asked for": who watches over a machine ended what is somebody's, and why. */
static bool is_for_memory(const hri_oom_around *a, size_t from, size_t to) {
  static const char watchers[] =
      "slurm|kernel|linux|os|system|kubernetes|k8s|kubelet|cluster|scheduler|yarn|macos|android";
  static const char reasons[] = "because|since|for|due to|exceeding|over|out of|as it";
  const size_t end = skip_adverbs(a->text, from, a->at), why = hri_match_whole(a->text, a->after, to, reasons);
  return hri_match_last(a->text, from, end, watchers) < end &&
         hri_match_at(a->text, a->after, a->count, " my | our | it ") &&
         hri_match_any(a->text, why, to, "memory|oom|ram") &&
         !hri_match_any(a->text, from, to, HRI_CASE "|" HRI_CAN "|when|before|until|each|any|every");
}

/* "After a while WSL2 killed the python script": the machine itself did, whose only reason is memory. Of who gives a limit
 * on time too - a batch system - a reason is asked for above. */
static bool is_by_the_machine(const hri_oom_around *a, size_t from, size_t to) {
  static const char machine[] =
      "linux|the kernel|the os|my os|operating system|the system|wsl|wsl1|wsl2|macos|windows|ubuntu|debian|fedora|docker|"
      "colab|kaggle";
  static const char behind[] = " in | of | for | and | with | that | app| application"; /* phones end apps as a rule */
  enum { NEAR = 48 };
  const size_t verb = skip_adverbs(a->text, from, a->at),
               end = hri_skip_back(a->text, from, hri_match_last(a->text, from, verb, "has|had|just|then"));
  const size_t who = hri_match_last(a->text, from, end, machine),
               whom = hri_match_next(a->text, a->after, to, " my | our | the | this ");
  if (who == end || hri_match_next(a->text, who, end, machine) != end || whom == a->after) return false;
  const size_t near = whom + NEAR < to ? whom + NEAR : to;
  return names_subject(a->text, whom, hri_match_first(a->text, whom - 1, near, behind)) &&
         !hri_match_any(a->text, from, to, HRI_CASE "|" HRI_CAN "|when|before|until|each|any|every|or|background");
}

bool hri_oom_is_told_kill(const hri_oom_around *a) {
  const size_t from = hri_sentence_start(a->text, a->start, a->at);
  const size_t near = a->after + 80 < a->count ? a->after + 80 : a->count,
               to = hri_sentence_end(a->text, a->after, near);
  if (a->at > a->start && (hri_is_name(a->text[a->at - 1]) || strchr("-./", a->text[a->at - 1]))) return false;
  if (a->after < a->count && (hri_is_name(a->text[a->after]) || strchr("=(", a->text[a->after]))) return false;
  if (hri_match_at(a->text, from, a->at, "exit code|exit status")) return false;
  if (hri_match_any(a->text, from, a->at, rules) || is_of_a_kind(a, from) || hri_oom_is_of_all(a) || is_when(a, from) ||
      hri_oom_is_to_be(a->text, from, skip_adverbs(a->text, from, a->at), a->at))
    return false;
  if (hri_match_end(a->text, a->start, hri_skip_back(a->text, a->start, from), "e.g.|i.e.") ||
      hri_match_end(a->text, a->start, hri_skip_back(a->text, a->start, from), " a.| b.| c.| d.") ||
      hri_match_at(a->text, a->after, a->count, ", or | are | until "))
    return false;                                                 /* a case, or one of several */
  if (hri_match_end(a->text, from, a->at, "(the ")) return false; /* "the victim (the killed process)" */
  if (hri_match_any(a->text, from, to, others) || is_by_another(a) || hri_oom_is_by_other_signal(a)) return false;
  if (hri_match_part(a->text, a->start, a->at, "root cause|common cause|possible cause|possible reason"))
    return false;                                                                             /* one of a list */
  if (hri_match_end(a->text, from, a->at, " or was | or | or got | or being ")) return false; /* nobody knows which */
  if (is_among_wide(a, from)) return true;
  if (is_for_memory(a, from, to) || is_by_the_machine(a, from, to)) return true;
  if (hri_match_at(a->text, a->after, a->count, " it| the | my | all| them| that | off| those | and restarted"))
    return false; /* somebody ended it */
  return (is_suffered(a, from) && !is_somebody(a, from)) || is_quoted(a, from) || is_title(a, from);
}
