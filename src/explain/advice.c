/* Which tips a failure gets (tips.c has them), in the words of the framework that the log names, cheapest first. All of
 * this is unproven advice; what replay proved or a plan showed is put in front by hr_oom_add_advice. */
#include <stdio.h>

#include "explain/message.h"
#include "explain/tips.h"

void hr_oom_add_advice(hr_oom_failure *failure, hr_oom_basis basis, const char *text, const char *cost,
                       const char *proof, uint64_t need_bytes) {
  uint32_t place = 0;
  hr_oom_advice *to;
  /* a stronger basis first; equals in the order of the calls */
  while (place < failure->advice_count && failure->advice[place].basis != HR_OOM_ADVICE &&
         failure->advice[place].basis <= basis)
    place++;
  if (basis == HR_OOM_ADVICE) place = failure->advice_count;
  if (place == HR_OOM_MAX_ADVICE) return;
  if (failure->advice_count == HR_OOM_MAX_ADVICE) failure->advice_count--;
  memmove(&failure->advice[place + 1], &failure->advice[place], (failure->advice_count - place) * sizeof *to);
  failure->advice_count++;
  to = &failure->advice[place];
  *to = (hr_oom_advice){.cost = cost, .basis = basis, .need_bytes = need_bytes};
  (void)snprintf(to->text, sizeof to->text, "%s", text);
  (void)snprintf(to->proof, sizeof to->proof, "%s", proof);
}

bool hri_oom_asks_for_snapshot(const hr_oom_advice *advice) { return strstr(advice->text, HRI_TIP_RECORDS) != NULL; }

/* ---- what a failure is, as tips ask for it ---- */

static uint32_t origin_of(const hr_oom_failure *f) {
  if (strcmp(f->source, "snapshot") == 0) return HRI_TIP_SNAPSHOT;
  return strcmp(f->source, "run") == 0 ? HRI_TIP_RUN : HRI_TIP_TEXT;
}

static uint32_t place_of(const hr_oom_failure *f) {
  static const struct {
    const char *phase;
    uint32_t place;
  } places[] = {{"loading", HRI_TIP_IN_LOADING},
                {"optimizer", HRI_TIP_IN_OPTIMIZER},
                {"loss", HRI_TIP_IN_LOSS},
                {"between steps", HRI_TIP_BETWEEN},
                {"evaluation", HRI_TIP_IN_EVALUATION},
                {"generation", HRI_TIP_IN_EVALUATION}};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++)
    if (strcmp(f->phase, places[i].phase) == 0) return places[i].place;
  return 0;
}

/* An optimizer's lists are as large as the weights, and so is what is saved: no tensor that one could look for. */
static uint32_t size_of(const hr_oom_failure *f) {
  const hr_oom_value *t = &f->figures[HR_OOM_REQUESTED], *total = &f->figures[HR_OOM_TOTAL];
  const bool has_room = strcmp(f->source, "snapshot") == 0 && hri_oom_known(&f->figures[HR_OOM_FREE]);
  /* a snapshot states no total: its shares are what is known of it */
  const uint64_t room = hri_oom_known(total) ? total->bytes : has_room ? f->share_total_bytes : 0;
  if (!hri_oom_known(t) || !room || place_of(f) & (HRI_TIP_IN_OPTIMIZER | HRI_TIP_BETWEEN)) return 0;
  if (t->bytes > room) return HRI_TIP_ONE_TENSOR;
  return t->bytes >= room / 4 ? HRI_TIP_BIG : 0;
}

/* By the newest version of the wording: "1.4 to 1.9", "2.1", "2.2 and later". */
static uint32_t version_of(const hr_oom_failure *f) {
  const char *to = strstr(f->wording, " to "), *last = to ? to + 4 : f->wording;
  unsigned major, minor;
  if (sscanf(last, "%u.%u", &major, &minor) != 2) return 0;
  if (major < 2) return minor < 10 ? HRI_TIP_BEFORE_1_10 : HRI_TIP_BEFORE_2_1;
  return major == 2 && minor < 1 ? HRI_TIP_BEFORE_2_1 : HRI_TIP_FROM_2_1;
}

/* Whoever runs on PyTorch's allocator, or may. */
static uint32_t owner_of(const hr_oom_failure *f) {
  static const char *const ours[] = {"snapshot", "run",    "headroom", "vllm",
                                     "sglang",   "caffe2", "web-ui",   "cuda-extension"};
  static const char *const nobodys[] = {"unknown speaker", "device", "a run time"};
  for (size_t i = 0; i < sizeof nobodys / sizeof *nobodys; i++)
    if (strcmp(f->source, nobodys[i]) == 0) return HRI_TIP_UNNAMED;
  if (strncmp(f->source, "pytorch-", 8) == 0) return 0;
  for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
    if (strcmp(f->source, ours[i]) == 0) return 0;
  return HRI_TIP_NOT_PYTORCH;
}

/* ---- choosing ---- */

/* Whether a list of names holds `name`, or its beginning before a "*". */
static bool lists(const char *list, const char *name) {
  for (const char *at = list; at && *at && *name;) {
    const size_t length = strcspn(at, " ");
    const bool begins = at[length - 1] == '*';
    if (strncmp(at, name, length - begins) == 0 && (begins || !name[length])) return true;
    at += length + (at[length] == ' ');
  }
  return false;
}

static bool is_meant(const hri_tip *t, const hr_oom_failure *f, uint32_t causes, uint32_t is) {
  static const uint32_t groups[] = {HRI_TIP_SIZES,      HRI_TIP_VERSIONS, HRI_TIP_OWNERS,
                                    HRI_TIP_EXPANDABLE, HRI_TIP_PLACES,   HRI_TIP_ORIGINS};
  if (!(t->when & causes)) return false;
  for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
    if (t->when & groups[i] && !(t->when & groups[i] & is)) return false;
  return !t->who || lists(t->who, f->source) || lists(t->who, f->framework);
}

static bool is_known_better(hri_tip_topic topic, const hr_oom_failure *f) {
  return topic == HRI_TOPIC_SETTINGS && f->advice_count && f->advice[0].basis != HR_OOM_ADVICE; /* replayed ones */
}

void hri_oom_advise(hr_oom_failure *failure, bool expandable) {
  const bool said = failure->cause == HR_OOM_GROWTH && failure->advice_count; /* what grows is known better */
  const uint32_t late = failure->candidates & (1u << HR_OOM_GROWTH | 1u << HR_OOM_OUTLIER_BATCH);
  const uint32_t causes = 1u << failure->cause | late;
  const uint32_t is = origin_of(failure) | place_of(failure) | size_of(failure) | version_of(failure) |
                      owner_of(failure) | (expandable ? HRI_TIP_EXPANDABLE : 0);
  uint32_t topics = 0;
  if (failure->cause == HR_OOM_TOO_BIG && hri_oom_is_wrong_size(failure)) {
    hr_oom_add_advice(
        failure, HR_OOM_ADVICE,
        strcmp(failure->source, "postgresql") == 0
            ? "no setting helps: the row or index that it read is likely damaged. Find it (SELECT parts of the table until one "
              "fails, amcheck, pg_amcheck), REINDEX, or restore it from a backup"
            : "find where the size is computed: print the shapes and lengths that the last lines of the traceback use",
        "none", "", 0);
    return;
  }
  for (size_t i = 0; i < hri_tip_count; i++) {
    const hri_tip *t = &hri_tips[i];
    if (topics >> t->topic & 1 || (said && t->when & 1u << HR_OOM_GROWTH)) continue;
    if (!is_meant(t, failure, causes, is) || is_known_better(t->topic, failure)) continue;
    topics |= 1u << t->topic;
    if (t->text) hr_oom_add_advice(failure, HR_OOM_ADVICE, t->text, t->cost, "", 0);
  }
}

/* ---- names ---- */

const char *hr_oom_cause_name(hr_oom_cause cause) {
  static const char *const names[HR_OOM_CAUSE_COUNT] =
      {"unknown", "too_big",      "fragmented",    "cached_not_returned", "other_process",
       "cap",     "private_pool", "host_memory",   "outside_allocator",   "not_pytorch",
       "on_chip", "growth",       "outlier_batch", "no_failure",          "not_memory"};
  return (unsigned)cause < HR_OOM_CAUSE_COUNT ? names[cause] : "unknown";
}

const char *hr_oom_certainty_name(hr_oom_certainty certainty) {
  static const char *const names[] = {"undecidable", "likely", "certain"};
  return (unsigned)certainty <= HR_OOM_CERTAIN ? names[certainty] : "undecidable";
}

const char *hr_oom_basis_name(hr_oom_basis basis) {
  static const char *const names[] = {"advice", "proven", "planned", "replayed", "request"};
  return (unsigned)basis <= HR_OOM_REQUEST ? names[basis] : "advice";
}

const char *hr_oom_figure_name(hr_oom_figure figure) {
  static const char *const names[HR_OOM_FIGURE_COUNT] = {"requested_bytes",     "total_bytes",
                                                         "free_bytes",          "this_process_bytes",
                                                         "allocated_bytes",     "reserved_bytes",
                                                         "unallocated_bytes",   "allowed_bytes",
                                                         "private_pools_bytes", "other_processes_bytes"};
  return (unsigned)figure < HR_OOM_FIGURE_COUNT ? names[figure] : "unknown";
}
