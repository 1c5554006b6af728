/* One failure is printed many times: by the allocator's log line and the exception, by a wrapper, by each rank's
 * launcher, in a summary, in a title above the traceback. Whether a message tells of a failure that is known is decided
 * by whose it is, by its figures and by how far away it stands, and of two messages about one failure the one that says
 * more stays.
 *
 * The neighbours may rely on this: failures are in the order in which each was first met, a judged message replaces
 * another at its place, and no more than HR_OOM_MAX_FAILURES are kept, whatever the log: one that says more than the least of them takes
 * its room. The cost of a message is a comparison with each of them. */
#include "explain/scan_kept.h"

/* Within so many lines other words are taken to be about the same failure. */
enum { NEAR_LINES = 40 };

/* ---- whether two are one ---- */

static bool ranks_agree(int32_t a, int32_t b) { return a == b || a < 0 || b < 0; }

static bool is_near(const hr_oom_failure *old, const hr_oom_failure *failure) {
  return ranks_agree(old->rank, failure->rank) && failure->line - old->line <= NEAR_LINES;
}

static bool has_request(const hr_oom_failure *failure) {
  return failure->figures[HR_OOM_REQUESTED].state != HR_OOM_ABSENT;
}

static bool is_device_kind(hri_oom_kind kind) {
  return kind == HRI_OOM_CACHING || kind == HRI_OOM_ASYNC || kind == HRI_OOM_REJECTED || kind == HRI_OOM_MPS ||
         kind == HRI_OOM_BARE || kind == HRI_OOM_REPORT;
}

/* True when a message repeats a failure that is known: a wrapper's error after the first, a summary of all ranks. `exact`: that one is the
 * allocator's log line alone, of which only a message close behind it is one. */
static bool is_repeat(const hr_oom_failure *old, hri_oom_kind old_kind, bool exact, const hr_oom_failure *failure,
                      hri_oom_kind kind) {
  if (!ranks_agree(old->rank, failure->rank)) return false;
  if (!has_request(failure) && is_device_kind(kind) && is_device_kind(old_kind)) return !exact || is_near(old, failure);
  return kind == old_kind && strcmp(old->source, failure->source) == 0 && hri_oom_same_figures(old, failure) &&
         (old->device_index == failure->device_index || failure->device_index < 0 || old->device_index < 0);
}

/* The allocator's log line and the message that follows it are one failure: what the message has rounded is taken from
 * the line. False when they are two. */
static bool take_exact(const hr_oom_failure *line, hr_oom_failure *failure) {
  static const hr_oom_figure both[] = {HR_OOM_REQUESTED, HR_OOM_TOTAL};
  if (!ranks_agree(line->rank, failure->rank)) return false;
  if (line->device_index >= 0 && failure->device_index >= 0 && line->device_index != failure->device_index)
    return false;
  for (size_t i = 0; i < sizeof both / sizeof *both; i++) {
    const hr_oom_value *a = &line->figures[both[i]], *b = &failure->figures[both[i]];
    uint64_t apart = a->bytes > b->bytes ? a->bytes - b->bytes : b->bytes - a->bytes;
    if (!hri_oom_known(a) || !hri_oom_known(b) || apart > b->slack_bytes) return false;
  }
  for (size_t i = 0; i < sizeof both / sizeof *both; i++) failure->figures[both[i]] = line->figures[both[i]];
  return true;
}

/* Whether `part` shows the same failure as `whole` and less of it: a request that a title or another exception
 * quotes. */
static bool is_part(const hr_oom_failure *part, const hr_oom_failure *whole) {
  uint32_t shown = 0;
  if (!ranks_agree(part->rank, whole->rank) || strcmp(part->source, whole->source) != 0) return false;
  if (whole->figures[HR_OOM_ALLOCATED].state != HR_OOM_READ || part->figures[HR_OOM_TOTAL].state != HR_OOM_ABSENT)
    return false;
  for (int i = 0; i < HR_OOM_FIGURE_COUNT; i++) {
    const hr_oom_value *a = &part->figures[i], *b = &whole->figures[i];
    if (a->state == HR_OOM_ABSENT) continue;
    if (a->state != b->state || a->bytes != b->bytes) return false;
    shown++;
  }
  return shown > 0;
}

/* Whether a message that was met in its middle is one that was read from its beginning, some lines before: the same
 * rank's, and no figure differs. */
static bool is_rest(const hr_oom_failure *old, const hr_oom_failure *rest) {
  if (old->rank != rest->rank || rest->line - old->line > NEAR_LINES) return false;
  for (int i = 0; i < HR_OOM_FIGURE_COUNT; i++) {
    const hr_oom_value *a = &old->figures[i], *b = &rest->figures[i];
    if (b->state == HR_OOM_READ && (a->state != HR_OOM_READ || a->bytes != b->bytes)) return false;
  }
  return true;
}

/* Whether two speakers' requests cannot be one, however they were rounded: by more than a twentieth. One speaker that tries other sizes
 * meets one failure. */
static bool ask_for_others(const hr_oom_failure *a, const hr_oom_failure *b) {
  const hr_oom_value *one = &a->figures[HR_OOM_REQUESTED], *other = &b->figures[HR_OOM_REQUESTED];
  const uint64_t more = one->bytes > other->bytes ? one->bytes : other->bytes;
  const uint64_t less = one->bytes > other->bytes ? other->bytes : one->bytes;
  return hri_oom_known(one) && hri_oom_known(other) && strcmp(a->source, b->source) != 0 &&
         more - less > more / 20 + one->slack_bytes + other->slack_bytes;
}

/* Whether `failure`, known by its structure alone, says again in other words what was said some lines before. */
static bool is_echo(const hr_oom_failure *old, const hr_oom_failure *failure) {
  return is_near(old, failure) && (!has_request(failure) || has_request(old)) && !ask_for_others(old, failure);
}

/* Whether the same speaker says some lines later how much was asked for. */
static bool says_more(const hr_oom_failure *old, const hr_oom_failure *failure) {
  return strcmp(old->source, failure->source) == 0 && is_near(old, failure) && !has_request(old) &&
         failure->figures[HR_OOM_REQUESTED].state == HR_OOM_READ;
}

/* Whether another framework's failure some lines before was only named, or only by an interface. */
static bool is_guess(const hr_oom_failure *old, hri_oom_kind old_kind, const hr_oom_failure *failure) {
  return (old_kind == HRI_OOM_FOREIGN || old_kind == HRI_OOM_FOREIGN_LIKELY) && old->certainty != HR_OOM_CERTAIN &&
         is_near(old, failure);
}

/* Whether two log lines of the allocator are about one request: it was made again when cached blocks had been returned, and what was
 * free then is what it failed by. */
static bool asks_again(const hr_oom_failure *old, const hr_oom_failure *failure) {
  static const hr_oom_figure both[] = {HR_OOM_REQUESTED, HR_OOM_TOTAL};
  for (size_t i = 0; i < sizeof both / sizeof *both; i++)
    if (old->figures[both[i]].bytes != failure->figures[both[i]].bytes) return false;
  return is_near(old, failure) && old->device_index == failure->device_index;
}

/* ---- a message beside those that are kept ---- */

typedef enum kinship {
  STRANGERS,
  TELLS_MORE, /* the message, about the same failure: it takes the other's place */
  TELLS_AGAIN
} kinship;

static kinship kinship_with(const hri_scan_kept *k, size_t i, const hri_oom_message *message) {
  const hr_oom_failure *old = &k->failures.items[i], *failure = &message->failure;
  const hri_scan_origin *origin = &k->origins.items[i];
  const bool foreign = message->kind == HRI_OOM_FOREIGN;
  const bool repeats = is_repeat(old, origin->kind, origin->exact, failure, message->kind);
  if (message->kind == HRI_OOM_CACHING && is_part(old, failure)) return TELLS_MORE;
  if (message->exact && origin->exact && !repeats && asks_again(old, failure)) return TELLS_MORE;
  if (foreign && !message->anybodys && is_guess(old, origin->kind, failure))
    return TELLS_MORE;                                       /* who that was is told by a line of its own */
  if (foreign && says_more(old, failure)) return TELLS_MORE; /* the same speaker's next line has the request */
  if (origin->general && !message->general && repeats) return TELLS_MORE; /* the one whose words are known says more */
  return repeats || is_part(failure, old) || (message->general && is_echo(old, failure)) ||
                 (message->cut && is_rest(old, failure))
             ? TELLS_AGAIN
             : STRANGERS;
}

static void count_again(hr_oom_failure *old, const hri_oom_message *message) {
  if (!message->cut) old->repeats++;
  if (old->rank < 0) old->rank = message->failure.rank;
  if (old->device_index < 0) old->device_index = message->failure.device_index;
}

/* The last failure that is the allocator's log line alone and belongs to the message, which takes its figures; count:
 * none. */
static size_t find_exact(const hri_scan_kept *k, hr_oom_failure *failure) {
  size_t i = k->failures.count;
  while (i > 0)
    if (k->origins.items[--i].exact && take_exact(&k->failures.items[i], failure)) return i;
  return k->failures.count;
}

/* A failure known by its structure alone, without a request, some lines before one whose words are known: that one says
 * more about it. count: none. */
static size_t find_general(const hri_scan_kept *k, const hr_oom_failure *failure) {
  for (size_t i = k->failures.count; i-- > 0;) {
    const hr_oom_failure *old = &k->failures.items[i];
    if (hri_oom_is_kill(failure->source) && old->cause != HR_OOM_UNKNOWN) continue; /* it says less */
    if (k->origins.items[i].general && is_near(old, failure) && !has_request(old)) return i;
  }
  return k->failures.count;
}

/* ---- which says most ---- */

/* Device failures with figures first; then other device failures and plain host failures; then what is another framework's, its own
 * line before one that may be anybody's; then kills and library errors that may only follow from another failure; the allocator's log
 * line alone, behind which it asked again, mostly with success, last. The first of the best wins. */
enum { ASKED_AGAIN = 1, LEAST, ANYBODYS, FOREIGN, PLAIN, WITH_FIGURES };
static int weight_of(const hr_oom_failure *failure, hri_oom_kind kind, bool exact) {
  if (kind == HRI_OOM_ENDED) return LEAST;
  if (kind == HRI_OOM_FOREIGN || kind == HRI_OOM_FOREIGN_LIKELY)
    return failure->certainty == HR_OOM_CERTAIN ? FOREIGN : ANYBODYS;
  if (kind == HRI_OOM_REPORT) return LEAST; /* nobody knows who speaks */
  if (exact) return ASKED_AGAIN;
  if (has_request(failure)) return WITH_FIGURES;
  return kind == HRI_OOM_HOST_LIKELY || kind == HRI_OOM_LIBRARY ? LEAST : PLAIN;
}

static int weight(const hri_scan_kept *k, size_t i) {
  return weight_of(&k->failures.items[i], k->origins.items[i].kind, k->origins.items[i].exact);
}

/* The last of those that say least, where there are as many as are kept. */
static size_t find_least(const hri_scan_kept *k) {
  size_t least = 0;
  for (size_t i = 1; i < k->failures.count; i++)
    if (weight(k, i) <= weight(k, least)) least = i;
  return least;
}

/* Whether a message that is not judged yet may say more than one of weight `least`: who is another framework is told by the judge. */
static bool may_outweigh(const hri_oom_message *message, int least) {
  return weight_of(&message->failure, message->kind, message->exact) > least ||
         (message->kind == HRI_OOM_FOREIGN && least < FOREIGN);
}

/* A message that finds no room, or lost it, and how often it was said: log lines of the allocator alone are counted with the last that is
 * kept, for they tell the same of different requests, or each where none is. */
static void count_beyond(hri_scan_kept *k, bool exact, uint64_t count) {
  for (size_t i = k->failures.count; exact && i-- > 0;)
    if (k->origins.items[i].exact) {
      k->failures.items[i].repeats += count;
      return;
    }
  k->more += exact ? count : 1;
}

static void remove_one(hri_scan_kept *k, size_t i) {
  const size_t behind = k->failures.count - i - 1;
  memmove(&k->failures.items[i], &k->failures.items[i + 1], behind * sizeof *k->failures.items);
  memmove(&k->origins.items[i], &k->origins.items[i + 1], behind * sizeof *k->origins.items);
  k->failures.count--;
  k->origins.count--;
}

/* ---- keeping ---- */

/* Reads what the log says before the message, which stands at text[at), and judges it. */
static void judge(const hri_scan_kept *k, hri_oom_message *message, const hri_scan_window *w, size_t at) {
  const size_t behind = at < HRI_SCAN_BEHIND ? at : HRI_SCAN_BEHIND, ahead = w->count - at;
  message->has_run = false;
  hri_oom_closed_bar(w->text + at, ahead < HRI_OOM_TEXT_BYTES ? ahead : HRI_OOM_TEXT_BYTES, message);
  hri_oom_context(w->text + at - behind, behind, message);
  if (k->framework) message->failure.framework = k->framework;
  hri_oom_judge(message);
  hri_oom_advise(&message->failure, message->expandable);
}

/* In place of the i-th failure. */
static void replace(hri_scan_kept *k, size_t i, hri_oom_message *message) {
  message->failure.repeats =
      k->origins.items[i].exact ? 0 : k->failures.items[i].repeats; /* those of requests that were served */
  k->failures.items[i] = message->failure;
  k->failures.items[i].asked_again = message->exact;
  k->origins.items[i] = (hri_scan_origin){message->kind, message->exact, message->general};
}

static hr_status append(hri_scan_kept *k, const hri_oom_message *message, hr_error *error) {
  const hri_scan_origin origin = {message->kind, message->exact, message->general};
  hr_oom_failure failure = message->failure;
  failure.asked_again = message->exact;
  if (!hri_array_push(&k->origins, origin) || !hri_array_push(&k->failures, failure))
    return hri_fail_memory(error, sizeof failure, "an explanation");
  return HR_OK;
}

hr_status hri_scan_keep(hri_scan_kept *k, hri_oom_message *message, const hri_scan_window *w, size_t at,
                        hr_error *error) {
  const size_t count = k->failures.count;
  size_t known = 0; /* the failure whose place the message takes; count: none */
  kinship kin = STRANGERS;
  for (; known < count; known++) {
    kin = kinship_with(k, known, message);
    if (kin != STRANGERS) break;
  }
  if (kin == TELLS_AGAIN) {
    count_again(&k->failures.items[known], message);
    return HR_OK;
  }
  if (known == count && message->kind == HRI_OOM_CACHING && !message->exact) known = find_exact(k, &message->failure);
  if (known == count && !message->general) known = find_general(k, &message->failure);
  if (known == count && count == HR_OOM_MAX_FAILURES) {
    const size_t least = find_least(k);
    const hr_oom_failure lost = k->failures.items[least];
    bool takes = may_outweigh(message, weight(k, least));
    if (takes) judge(k, message, w, at);
    takes = takes && weight_of(&message->failure, message->kind, message->exact) > weight(k, least);
    if (!takes) {
      count_beyond(k, message->exact, 1);
      return HR_OK;
    }
    remove_one(k, least);
    count_beyond(k, lost.asked_again, lost.repeats + 1);
    return append(k, message, error);
  }
  judge(k, message, w, at);
  if (known == count) return append(k, message, error);
  replace(k, known, message);
  return HR_OK;
}

/* ---- what the explanation is about ---- */

/* Whether the i-th failure repeats what a library that bears the same name said in the one before: the end of a traceback, cut. */
static bool says_again(const hri_scan_kept *k, size_t before, size_t i) {
  return k->origins.items[before].kind == HRI_OOM_LIBRARY && k->origins.items[i].kind == HRI_OOM_FOREIGN &&
         strcmp(k->failures.items[before].source, k->failures.items[i].source) == 0;
}

void hri_scan_kept_give(hri_scan_kept *k, hr_explanation *explanation) {
  explanation->primary = 0;
  for (size_t i = 1; i < k->failures.count; i++)
    if (weight(k, i) > weight(k, explanation->primary) && !says_again(k, explanation->primary, i))
      explanation->primary = (uint32_t)i;
  explanation->failures = k->failures.items;
  explanation->failure_count = (uint32_t)k->failures.count;
  explanation->more = k->more;
  memset(&k->failures, 0, sizeof k->failures);
}

void hri_scan_kept_deinit(hri_scan_kept *k) {
  hri_array_free(&k->failures);
  hri_array_free(&k->origins);
}
