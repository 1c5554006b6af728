/* Failures reported by speakers that nobody has met. What makes a report is its structure:
 *
 *   a phrase   a verb of allocation that failed ("could not reserve 3 gib", "cudamalloc(...) failed", "error allocating"),
 *              memory that is lacking ("out of gpu memory", "not enough memory", "memory exhausted"), or the name of such
 *              an error ("cufft_alloc_failed", "outofmemoryerror"): report_phrase.c
 *   a shape    of a line that reports: an error's class or level before it, a place in a source file, a code behind it, a
 *              stack below it, or nothing but the phrase on the line: report_shape.c
 *   an event   words that tell of one thing that happened: report_told.c
 *   no talk    nothing in the same sentence that speaks of failures in general: conditions, advice, questions, source
 *              code, entries of a change log, a line above that foresees it: report_topic.c, talk.c, foreseen.c
 *
 * The words around the phrase then say whose it is (a framework, a library), which resource ran out and how much of it:
 * report_reading.c. Here are the entry points, and what is done with all that: the signs are gathered, those that say
 * nothing where they stand are dropped, and the rest is weighed (voice.c). */
#include "explain/lexicon.h"
#include "explain/match.h"
#include "explain/prose.h"
#include "explain/report_parts.h"

#define BIT(name) HRI_SIGN_BIT(HRI_SIGN_##name)

/* A speaker whose own words are a guess or speak to somebody: "might be caused by", "your session". */
static bool speaks_to_user(const hri_oom_message *m) {
  return hri_is_one_of(m->failure.source, "notebook|mpi|macos|windows|shared-memory");
}

/* What says nothing in a table, where every cell stands by itself, and in a line of source, where it is part of the
 * literal. */
#define SOURCE_SIGNS                                                                                                   \
  (BIT(OPENS) | BIT(ALONE) | BIT(LAST) | BIT(LABELLED) | BIT(FIELD) | BIT(PLACE) | BIT(CONCRETE) | BIT(DATED) |        \
   BIT(LEVEL) | BIT(ENDED) | BIT(TOLD) | BIT(CODE))
#define CELL_SIGNS (BIT(OPENS) | BIT(ALONE) | BIT(LAST) | BIT(LABELLED) | BIT(FIELD))

/* What makes of something that was met no report all the same. */
#define AGAINST_MET (BIT(CONDITION) | BIT(BEHIND) | BIT(TOPIC) | BIT(QUOTED) | BIT(HEADING) | BIT(AMONG))

/* Where words are those of an entry, which stands beside others. */
#define OF_LISTS                                                                                                       \
  (BIT(COMMENT) | BIT(HEADING) | BIT(ROW) | BIT(ENTRY) | BIT(ITEM) | BIT(TOPIC) | BIT(QUOTED) | BIT(AMONG))

/* "Evicted: the node was low on resource: memory", the kubelet's sentence, whole. */
static bool is_kubelets(const hri_oom_place *p, size_t from) {
  return hri_match_end(p->text, p->line, from, "evicted: the node was ") &&
         hri_match_at(p->text, from, p->line_end, "low on resource");
}

/* "torch.outofmemoryerror", "system.outofmemoryexception": a name that nobody else has. */
static bool is_known_class(const hri_oom_place *p, size_t from) {
  return hri_match_end(p->text, p->line, from, "torch.|torch.cuda.|system.");
}

/* A comment that ends the line of a statement: "SHARED = 5  # no vram of its own". */
static bool is_behind_statement(const hri_oom_place *p) {
  const size_t mark = hri_match_first(p->text, p->line, p->at, " #| //");
  const size_t equals = hri_match_first(p->text, p->line, mark, " = |(");
  return mark < p->at && equals < mark && !hri_match_part(p->text, p->line, mark, ": ");
}

/* A comment among a program's lines: what its author met once, or expects. People set what was printed in comments too: an
 * exception without its figures, and all of it in a block of its own; each line of Java's report begins so. */
static bool is_noted_in_source(const hri_oom_place *p, const hri_oom_message *m, uint32_t figures) {
  if (p->shape & HRI_OOM_ENCLOSED || (p->shape & HRI_OOM_AMONG && figures == 0 && is_behind_statement(p))) return true;
  if (!(p->shape & (HRI_OOM_REMARK | HRI_OOM_HASHES)) || !(p->shape & HRI_OOM_AMONG) || p->shape & HRI_OOM_LEVEL)
    return false;
  if (figures > 0) return !(p->shape & HRI_OOM_FENCED);
  return !hri_voice_opens(p) && strcmp(m->failure.source, "java") != 0;
}

/* What a test expects to be printed: "exhausted%s(tried to allocate 4096 bytes) in %s on line %d". */
static bool is_template(const hri_oom_place *p) {
  return hri_match_any(p->text, p->line, p->line_end, "%s|%d|%i|%zu|%lu|%a");
}

/* What an alert or a chart prints of whatever it is made for: "pod {{ $labels.pod }} was oomkilled". */
static bool is_filled_in(const hri_oom_place *p) {
  return hri_match_part(p->text, p->line, p->line_end, "{{ $|{{$|{{ .|{{.");
}

/* Whether words before it in its sentence make it a case. */
static bool is_case_of(const hri_oom_place *p) {
  size_t from = hri_sentence_start(p->text, p->sentence, p->at);
  return hri_match_any(p->text, from, p->at, HRI_CASE "|" HRI_CAN "|when|what|users|people|developers|often");
}

/* "We hit OOM as early as the third step": who met it, and what, side by side at the sentence's beginning. */
static bool is_met_by_us(const hri_oom_place *p, size_t from, size_t to) {
  enum { OPENING = 40 };
  static const char us[] = "i|we|i've|we've|i'm|we're";
  static const char met[] =
      " hit| got| get| getting| am getting| are getting| was getting| were getting| keep getting| kept getting| ran into| run into|"
      " encountered| met| saw| faced| am facing| facing| experienced| still get| still got";
  const size_t start = hri_sentence_start(p->text, p->sentence, from);
  size_t end = hri_match_last(p->text, start, from - (from > start && p->text[from - 1] == ' '), "a|an|the|this");
  while (end > start && p->text[end - 1] == ' ') end--;
  if (hri_match_at(p->text, to, p->line_end, " is | less| fewer| covered| out of the way| no more| anymore"))
    return false;
  if (end > start + OPENING ||
      hri_match_any(p->text, start, end, HRI_CASE "|" HRI_CAN "|when|until|before|once|after|to|that|than"))
    return false;
  for (size_t i = start; i < end; i++)
    if (p->text[i] == ' ' && hri_match_last(p->text, start, i, us) < i && hri_match_next(p->text, i, end, met) == end)
      return true;
  return false;
}

/* Where the word before text[from) ends that is no article, modifier or adverb of it. */
static size_t behind_verb(const hri_oom_place *p, size_t near, size_t from) {
  static const char between[] = "a|an|the|cuda|gpu|cpu|again|just|simply|then|always";
  size_t end = from, at;
  do {
    at = hri_skip_back(p->text, near, end);
    end = hri_match_last(p->text, near, at, between);
  } while (end < at);
  return at;
}

/* Whether what stands before the colon at text[colon) is what the words behind it explain: one or two words, or a name, a code, a number last. */
static bool is_definition(const hri_oom_place *p, size_t start, size_t colon) {
  size_t word = colon;
  while (word > start && p->text[word - 1] != ' ') word--;
  for (size_t at = word; at < colon; at++)
    if (!hri_is_letter(p->text[at])) return true;
  return hri_count_words(p->text, start, colon) < 3 ||
         hri_match_any(p->text, word, colon, "oom|error|code|ended|means|status");
}

/* "You were right, the job was killed by the OOM killer", "I would like to use more, but the run dies with OOM": in a clause of its own
 * something definite came to it. The weights know sentences of one clause. */
static bool is_told_in_clause(const hri_oom_place *p, size_t from, size_t to) {
  enum { NEAR = 160 };
  static const char joints[] = ", |: |; | but | although | however ", but[] = " but |, but | however ";
  static const char definite[] = "the |my |our |this |his |her |their |both ";
  static const char past[] = "was|were|got|has been|had been|ran|went|died with|crashed with|failed with|stopped with";
  static const char present[] = "dies with|crashes with|fails with|stops with|runs|goes|gets";
  const size_t start = hri_sentence_start(p->text, p->sentence, from), near = start + NEAR < from ? from - NEAR : start;
  const size_t end = behind_verb(p, near, from);
  size_t clause = start, joint = start, at;
  size_t verb = hri_match_last(p->text, near, end, past);
  const size_t now = hri_match_last(p->text, near, end, present);
  if (verb == end && now == end) return false;
  for (at = near; at < end; at++) {
    const size_t next = hri_match_next(p->text, at, end, joints);
    if (next > at) {
      clause = next;
      joint = at;
    }
  }
  if (clause == start) return false;
  if (verb == end && hri_match_at(p->text, joint, clause, but)) verb = now;
  if (hri_match_at(p->text, joint, clause, ": ") && is_definition(p, start, joint)) return false;
  if (hri_match_part(p->text, to, hri_sentence_end(p->text, to, p->line_end), " or by |, by a|\" as |\" for "))
    return false; /* one of several, or somebody's text */
  const size_t noun = hri_match_next(p->text, clause, end, definite);
  if (noun == clause || verb == end || verb < noun || hri_count_words(p->text, noun, verb) > 4) return false;
  if (hri_match_at(p->text, from, to, "killed") && !hri_match_at(p->text, to, p->line_end, " by the ") &&
      !hri_match_any(p->text, near, clause, "memory|ram|oom"))
    return false; /* for whatever reason */
  return !hri_match_any(p->text, clause, end,
                        HRI_CASE "|" HRI_CAN "|when|until|before|that|which|each|any|every|no|not|never") &&
         !hri_match_at(p->text, start, clause, "if |when |unless |whenever |suppose |imagine |say |once ");
}

/* "(which leads to CPU OOM in my case)", "the import crashes for me with MemoryError": whose it was stands right beside it, where the
 * sentence sets no case. */
static bool is_met_in_my_case(const hri_oom_place *p, size_t from, size_t to) {
  static const char mine[] = " in my case| in our case| for me| on my machine| on my side| on our side| on my end";
  static const char ends[] = HRI_DIED "|" HRI_DIES "|stops|stopped";
  static const char comes_to[] =
      HRI_MEETS "|leads to|lead to|led to|leading to|causes|cause|caused|results in|result in|throws|throw|raises|"
                "triggers|ends in|ends with|ended in|ended with|goes|went";
  static const char none[] = HRI_CASE
      "|" HRI_CAN "|" HRI_NOT "|no|not|never|without|fixed|fixes|solved|cannot|can't|couldn't|didn't|don't|longer";
  const size_t start = hri_sentence_start(p->text, p->sentence, from);
  const size_t behind = hri_match_next(p->text, to, p->line_end, " error| errors");
  const size_t end = hri_match_next(p->text, behind, p->line_end, mine);
  const size_t with =
      hri_match_last(p->text, start, from - (from > start && p->text[from - 1] == ' '), "with|with a|with an");
  size_t whose = with;
  if (p->shape & (HRI_OOM_SOURCE | HRI_OOM_LITERAL | HRI_OOM_AMONG)) return false;
  while (whose > start && p->text[whose - 1] == ' ') whose--;
  const size_t verb = with < from && whose > start
                          ? hri_match_last(p->text, start, whose, "for me|for us|in my case|in our case")
                          : whose;
  const bool before = verb < whose && verb > start + 1 && hri_match_last(p->text, start, verb - 1, ends) < verb - 1;
  const size_t object = behind_verb(p, start, from);
  const bool after = end > behind && (end == p->line_end || !hri_is_name(p->text[end])) &&
                     hri_match_last(p->text, start, object, comes_to) < object &&
                     !hri_match_at(p->text, start, from, "does |do |did |is |are ");
  return (before || after) && !hri_match_any(p->text, start, from, none);
}

/* Behind an error's name and a colon at text[at], "out_of_memory: the job ...", which so says what becomes of something; `at`: none is there. */
static size_t behind_term(const hri_oom_place *p, size_t at, size_t to) {
  size_t end = at;
  while (end < to && hri_is_name(p->text[end])) end++;
  return end > at && hri_match_at(p->text, end, to, ": the |: a |: an ") ? end : at;
}

/* A list of what names of states mean: "out_of_memory: the job was killed by the oom killer", and the next line likewise. */
static bool is_defined(const hri_oom_place *p) {
  const size_t term = behind_term(p, p->line, p->line_end);
  size_t next = p->line_end;
  if (term == p->line || !hri_match_any(p->text, p->line, term, "oom|oomkilled|out_of_memory|outofmemory"))
    return false;
  while (next < p->count && p->text[next] == ' ') next++;
  return behind_term(p, next, p->count) > next;
}

/* Whether the message at the place is reported there: by its figures alone, or by what the signs around it come to. */
static bool is_heard(const hri_oom_place *p, const hri_oom_message *m, hri_oom_phrase f) {
  const uint32_t figures = hri_oom_figure_count(m);
  uint64_t signs = 0;
  if (hri_voice_denies(p) || is_filled_in(p) || hri_voice_is_name(p, f.from, f.to)) return false;
  if (is_noted_in_source(p, m, figures) || (figures > 0 && is_template(p))) return false;
  if (hri_voice_foreseen(p)) return false;
  if (figures >= 2 && !(p->shape & HRI_OOM_SOURCE)) return true;
  if (hri_voice_addresses(p)) return false;
  if (figures == 0 && (hri_page_explains(p) || is_defined(p) || hri_voice_asks_whether(p, f.from, f.to))) return false;
  if (figures == 0 && hri_voice_placeholder(p)) return false;
  if (figures > 0 && !m->general && !(p->shape & (HRI_OOM_SOURCE | HRI_OOM_AMONG | HRI_OOM_LITERAL)) &&
      hri_oom_is_concrete(p->text, p->line, p->line_end))
    return true;
  if (m->general) signs |= BIT(GENERAL);
  if (f.is_code) signs |= BIT(NAME);
  if (f.is_loose) signs |= BIT(LOOSE);
  if (m->named) signs |= BIT(NAMED);
  if (hri_oom_is_kill(m->failure.source) || (strcmp(m->failure.source, "kernel") == 0 && f.is_code)) signs |= BIT(KILL);
  if (figures > 0) signs |= BIT(FIGURE);
  signs |= hri_voice_shape(p, f.from, f.to, f.is_code);
  signs |= hri_voice_talk(p, m, f.from, f.to);
  if (hri_voice_tells_of_kill(p) && f.to < p->count && strchr("\"'", p->text[f.to])) signs &= ~BIT(QUOTED);
  if (signs & BIT(QUOTED) && hri_voice_tells_abroad(p, f.from)) signs &= ~BIT(QUOTED); /* "me sale \"x\"" */
  if (f.is_code && is_known_class(p, f.from) &&
      (signs & BIT(TOLD) || (p->shape & HRI_OOM_TITLE && f.from <= p->line + 11)))
    signs &= ~BIT(GENERAL);
  if (hri_voice_titles_event(p, f.from, f.to)) {
    signs |= BIT(TOLD);
    signs &= ~(BIT(NAMED) | BIT(TICKED));
  }
  if (!(signs & BIT(TOLD)) || signs & BIT(TOPIC)) signs &= ~BIT(MINE);
  if (signs & BIT(TOLD)) /* whose event it was, and what else they say of it */
    signs &= ~BIT(PERSON);
  if (strcmp(m->failure.source, "java") == 0 && m->kind == HRI_OOM_HOST) /* each of its lines begins with "#" */
    signs &= ~BIT(COMMENT);
  if (speaks_to_user(m)) signs &= ~(BIT(CONDITION) | BIT(PERSON));
  if (strcmp(m->failure.source, "notebook") == 0 && !is_case_of(p)) /* whoever quotes it: it speaks to one person */
    signs &= ~(BIT(QUOTED) | BIT(COMMENT) | (p->shape & HRI_OOM_BOLD && p->text[p->line] != '"' ? BIT(HEADING) : 0));
  if (signs & (BIT(PATTERN) | BIT(BEHIND) | BIT(ROW)) || (signs & BIT(TOPIC) && !(signs & BIT(TOLD))))
    signs &= ~CELL_SIGNS; /* what stands before it is no speaker */
  if (figures == 0 && !(signs & BIT(MINE)) && hri_match_part(p->text, f.from, f.to, "kill|137") &&
      hri_voice_is_meant(p))
    return false; /* a page that tells what a code means names all that it may come from */
  if (signs & BIT(SOURCE)) signs &= ~SOURCE_SIGNS;
  if (p->shape & HRI_OOM_BOLD && signs & BIT(OPENS)) /* people set what was printed in bold, too */
    signs &= ~(BIT(ALONE) | BIT(LAST) | BIT(FIELD));
  else if (signs & BIT(HEADING)) signs &= ~CELL_SIGNS; /* it has nothing beside it either */
  if (!(signs & AGAINST_MET) && hri_voice_goes_on(p, f.from, f.to)) return true;
  const bool in_sentence = m->kind != HRI_OOM_ENDED &&
                           !((speaks_to_user(m) || is_kubelets(p, f.from)) && !m->general) &&
                           hri_prose_is_sentence(p, f.from, f.to, signs);
  const hri_voice_heard heard = {p, f.from, f.to, signs, in_sentence, hri_prose_is_on_page(signs, in_sentence)};
  if (f.is_loose && !heard.in_sentence) return false; /* in a program's line such words say nothing */
  if (!(signs & OF_LISTS & ~BIT(TOPIC)) && is_met_in_my_case(p, f.from, f.to)) return true;
  if (heard.in_sentence && !(signs & OF_LISTS) && is_told_in_clause(p, f.from, f.to)) return true;
  if (heard.in_sentence && !(signs & AGAINST_MET) &&
      (is_met_by_us(p, f.from, f.to) || (signs & BIT(TOLD) && hri_voice_lacks_be(p, f.from, f.to)) ||
       hri_voice_tells_abroad(p, f.from)))
    return true;
  if (p->ear) return p->ear->hears(p->ear->context, &heard);
  return hri_prose_weigh(&heard) > 0;
}

void hri_oom_add_words(const hri_oom_place *p, hri_oom_message *m) {
  const hri_oom_phrase f = hri_oom_head_phrase(p);
  hri_oom_read_known(p, m);
  if (!is_heard(p, m, f)) m->kind = HRI_OOM_NOTHING;
  hri_oom_name_resource(p, &f, m);
}

bool hri_oom_is_reported(const hri_oom_place *p) {
  hri_oom_phrase f;
  return hri_oom_find_phrase(p, &f);
}

hri_oom_kind hri_oom_report(const hri_oom_place *p, hri_oom_message *m, size_t *end) {
  hri_oom_phrase f;
  *end = p->at + 1;
  m->kind = HRI_OOM_NOTHING;
  if (!hri_oom_find_phrase(p, &f)) return HRI_OOM_NOTHING;
  m->failure.device_index = -1;
  m->failure.wording = m->failure.framework = m->failure.phase = "";
  m->exact = m->cut = false;
  *end = hri_oom_read_unknown(p, &f, m);
  if (!is_heard(p, m, f)) m->kind = HRI_OOM_NOTHING;
  hri_oom_name_resource(p, &f, m);
  if (*end > p->line_end && p->line_end > p->at) *end = p->line_end;
  return m->kind;
}
