/* A kill in people's own words: "my training just gets killed", "process killed while loading", "it ends with 'Killed'". The word
 * alone may be about anything - a query, a user who ended a run, what a scheduler does at a time limit -, so it counts
 * where a process is the subject, its end was suffered and not ordered, and one run is told of. */
#include "explain/match.h"
#include "explain/wording.h"

/* What is killed that has memory of its own. */
static const char *const subjects[] = {"process",     "training",     "train",      "program",  "script",
                                       "job",         "run",          "python",     "kernel",   "worker",
                                       "task",        "session",      "server",     "notebook", "container",
                                       "pod",         "app",          "code",       "command",  "instance",
                                       "inference",   "trainer",      "progress",   "service",  "finetuning",
                                       "fine-tuning", "model",        "build",      "compiler", "terminal",
                                       "execution",   "it",           "it's",       "its",      "that",
                                       "which",       "everything",   "conversion", "runner",   "evaluation",
                                       "application", "installation", "simulation", "they",     "processes",
                                       "jobs",        "tasks",        "workers"};
/* The last ones, with which no title begins: several of them are counted, "0 processes killed". */
enum { PLURALS = 4, SINGLE = HRI_COUNT(subjects) - PLURALS };

/* What else ends processes, and what else is killed. */
static const char *const others[] = {"timeout",      "timed out", "time limit", "walltime",    "preempt",
                                     "preempted",    "manually",  "ctrl",       "ctrl-c",      "cancel",
                                     "canceled",     "cancelled", "teardown",   "sigterm",     "shutdown",
                                     "watchdog",     "idle",      "zombie",     "orphan",      "orphaned",
                                     "stale",        "query",     "connection", "connections", "signal 15",
                                     "sigint",       "kill -9",   "pkill",      "killall",     "i killed",
                                     "we killed",    "heartbeat", "deadline",   "on request",  "unknown signal",
                                     "node failure", "whether",   "eviction",   "ssh",         "hang",
                                     "hung",         "deadlock"};

static size_t skip_back(const char *text, size_t from, size_t at) {
  while (at > from && text[at - 1] == ' ') at--;
  return at;
}

/* Back over the words between a verb and "killed": "is always", "got suddenly". */
static size_t skip_adverbs(const char *text, size_t from, size_t at) {
  static const char *const adverbs[] = {" always",    " just",       " suddenly",   " automatically", " immediately",
                                        " directly",  " also",       " still",      " then",          " randomly",
                                        " silently",  " eventually", " finally",    " actually",      " simply",
                                        " quickly",   " constantly", " repeatedly", " often",         " sometimes",
                                        " instantly", " auto",       " abruptly",   " unexpectedly"};
  for (bool more = true; more;) {
    more = false;
    at = skip_back(text, from, at);
    for (size_t i = 0; i < HRI_COUNT(adverbs); i++)
      if (hri_match_end(text, from, at, adverbs[i])) {
        at -= strlen(adverbs[i]);
        more = true;
      }
  }
  return at;
}

/* Where the last of some words begins that ends right before text[at] and is a whole one; `at` when none does. */
static size_t word_before(const char *text, size_t from, size_t at, const char *const *words, size_t count) {
  for (size_t i = 0; i < count; i++) {
    size_t length = strlen(words[i]);
    if (hri_match_end(text, from, at, words[i]) && (at == from + length || !hri_is_name(text[at - length - 1])))
      return at - length;
  }
  return at;
}

static bool names_subject(const char *text, size_t from, size_t to) {
  return hri_match_any(text, from, to, subjects, HRI_COUNT(subjects));
}

/* "... gets killed", "... was killed": a subject stands before the verb. What is said in the present of a process in
 * general needs somebody whose process it was. */
static bool is_suffered(const hri_oom_around *a, size_t from) {
  static const char *const past[] = {"got", "gets", "get", "getting", "was", "were", "been", "being"};
  static const char *const present[] = {"is", "are", "it's", "its"};
  static const char *const own[] = {"my", "i", "we", "our", "the", "this", "it", "it's", "its", "training", "always"};
  static const char *const rules[] = {"a",   "an",   "any", "each", "every", "should",    "must",   "will",
                                      "may", "when", "if",  "can",  "could", "otherwise", "unless", "whenever"};
  size_t end = skip_adverbs(a->text, from, a->at), verb = word_before(a->text, from, end, past, HRI_COUNT(past));
  size_t least = verb > from + 60 ? verb - 60 : from;
  if (verb < end) return names_subject(a->text, least, end);
  verb = word_before(a->text, from, end, present, HRI_COUNT(present));
  least = verb > from + 60 ? verb - 60 : from;
  return verb < end && names_subject(a->text, least, end) && hri_match_any(a->text, least, end, own, HRI_COUNT(own)) &&
         !hri_match_any(a->text, least, verb, rules, HRI_COUNT(rules));
}

/* As titles and first lines say it: "training process killed", "killed process during training". */
static bool is_title(const hri_oom_around *a, size_t from) {
  static const char *const behind[] = {" during", " while", " when",    " without", " after",       " at ",
                                       " in ",    " with ", " because", " due",     " every",       " on ",
                                       " before", " as ",   " by ",     " (oom",    " unexpectedly"};
  size_t end = skip_adverbs(a->text, from, a->at), to = a->after, noun;
  bool ends;
  if (hri_match_at(a->text, to, a->count, " process") || hri_match_at(a->text, to, a->count, " program") ||
      hri_match_at(a->text, to, a->count, " job")) {
    if (skip_back(a->text, from, a->at) > from + 4) return false; /* "we killed processes" */
    to += 8;
    noun = from;
  } else noun = word_before(a->text, from, end, subjects, SINGLE);
  if (noun == end && to == a->after) return false;
  ends = to >= a->count || strchr(".!,:)\"'", a->text[to]) ||
         (a->text[to] == ' ' && (to + 1 >= a->count || !hri_is_letter(a->text[to + 1]))); /* or the line ends there */
  return ends || hri_match_at_any(a->text, to, a->count, behind, HRI_COUNT(behind));
}

/* "it ends with 'Killed'", "the terminal just says Killed". */
static bool is_quoted(const hri_oom_around *a, size_t from) {
  static const char *const says[] = {"says",    "said",    "shows",  "show",    "showed", "prints",
                                     "printed", "print",   "with",   "message", "error",  "reads",
                                     "see",     "outputs", "output", "get",     "line"};
  static const char *const behind[] = {"\"", "\" once", "\" when", "\" while", "\" after", "\" on ", "\" print"};
  size_t quote = skip_back(a->text, from, a->at), verb;
  bool quoted =
      quote > from && strchr("\"'", a->text[quote - 1]) && a->after < a->count && strchr("\"'.", a->text[a->after]);
  if (quoted) quote = skip_back(a->text, from, quote - 1);
  quote = skip_adverbs(a->text, from, quote);
  while (quote > from && strchr(":,", a->text[quote - 1])) quote--;
  verb = word_before(a->text, from, quote, says, HRI_COUNT(says));
  for (size_t i = 0; i < HRI_COUNT(behind) && quoted; i++)
    if (hri_match_at(a->text, a->after, a->count, behind[i]) &&
        (i > 0 || a->after + 1 >= a->count || strchr(",.!", a->text[a->after + 1])))
      return true;
  if (verb == quote) return quoted && names_subject(a->text, from, a->at); /* "training is 'killed' prematurely" */
  return quoted || a->after == a->count || strchr(".,!)", a->text[a->after]) ||
         hri_match_at(a->text, a->after, a->count, " at end") || hri_match_at(a->text, a->after, a->count, " after ");
}

/* By whom: of those only the system speaks of memory. */
static bool is_by_another(const hri_oom_around *a) {
  static const char *const system[] = {"oom",       "the oom",       "kernel",     "the kernel", "os",
                                       "the os",    "system",        "the system", "linux",      "the linux",
                                       "itself",    "sigkill",       "signal 9",   "out of",     "memory",
                                       "operating", "the operating", "server",     "the server", "docker",
                                       "slurm",     "earlyoom",      "ubuntu",     "colab",      "the cluster",
                                       "default"};
  size_t at = a->after + 4;
  if (!hri_match_at(a->text, a->after, a->count, " by ")) return false;
  return !hri_match_at_any(a->text, at, a->count, system, HRI_COUNT(system));
}

/* Who kills when memory is short, as the subject: "systemd-oomd killed all of them", "the oom killer has killed". */
bool hri_oom_is_killed_by(const hri_oom_around *a) {
  static const char *const killers[] = {"oom killer", "oom-killer", "oomkiller", "oomd",
                                        "earlyoom",   "nohang",     "lmkd",      "jetsam"};
  static const char *const cases[] = {"if",   "when",  "may",    "might", "can",     "could",  "would",
                                      "will", "until", "before", "avoid", "whether", "unless", "either"};
  const size_t from = hri_sentence_start(a->text, a->start, a->at);
  size_t end = skip_adverbs(a->text, from, a->at);
  static const char *const links[] = {" has", " had", " have", " it"};
  for (size_t i = 0; i < HRI_COUNT(links); i++)
    if (hri_match_end(a->text, from, end, links[i])) end -= strlen(links[i]);
  end = skip_back(a->text, from, end);
  while (end > from && strchr("`\"'", a->text[end - 1])) end--;
  return word_before(a->text, from, end, killers, HRI_COUNT(killers)) < end &&
         !hri_match_any(a->text, from, end, cases, HRI_COUNT(cases));
}

/* Words of Chinese, Japanese or Korean beside it, which have no such verbs: a process is the subject then. */
static bool is_among_wide(const hri_oom_around *a, size_t from) {
  size_t before = skip_back(a->text, from, a->at), behind = a->after;
  while (behind < a->count && a->text[behind] == ' ') behind++;
  return (before > from && a->text[before - 1] & 0x80) ||
         (behind < a->count && behind <= a->after + 1 && a->text[behind] & 0x80);
}

/* The lines behind say by which signal, and it is not the one of memory. */
bool hri_oom_is_by_other_signal(const hri_oom_around *a) {
  static const char *const signals[] =
      {"segmentation fault", "aborted", "illegal instruction", "floating point exception", "interrupt",
       "terminated",         "hangup",  "user signal"};
  const size_t end = a->after + 240 < a->count ? a->after + 240 : a->count;
  size_t at = hri_oom_word(a->text, a->after, end, "killed by signal: ");
  return at < end &&
         hri_match_at_any(a->text, at + strlen("killed by signal: "), a->count, signals, HRI_COUNT(signals));
}

bool hri_oom_is_told_kill(const hri_oom_around *a) {
  const size_t from = hri_sentence_start(a->text, a->start, a->at);
  const size_t near = a->after + 80 < a->count ? a->after + 80 : a->count,
               to = hri_sentence_end(a->text, a->after, near);
  static const char *const active[] = {" it",    " the ", " my ",    " all",          " them",
                                       " that ", " off",  " those ", " and restarted"};
  static const char *const either[] = {" or was ", " or ", " or got ", " or being "};
  if (a->at > a->start && (hri_is_name(a->text[a->at - 1]) || strchr("-./", a->text[a->at - 1]))) return false;
  if (a->after < a->count && (hri_is_name(a->text[a->after]) || strchr("=(", a->text[a->after]))) return false;
  if (hri_match_at(a->text, from, a->at, "exit code") || hri_match_at(a->text, from, a->at, "exit status"))
    return false;
  if (hri_match_any(a->text, from, to, others, HRI_COUNT(others)) || is_by_another(a) || hri_oom_is_by_other_signal(a))
    return false;
  if (hri_oom_word(a->text, a->start, a->at, "root cause") < a->at) return false; /* one of a list */
  for (size_t i = 0; i < HRI_COUNT(either); i++) /* "died or was killed": nobody knows which */
    if (hri_match_end(a->text, from, a->at, either[i])) return false;
  if (is_among_wide(a, from)) return true;
  if (hri_match_at_any(a->text, a->after, a->count, active, HRI_COUNT(active))) return false;
  return is_suffered(a, from) || is_quoted(a, from) || is_title(a, from);
}
