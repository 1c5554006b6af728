/* headroom explain, for people. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "cli/explain.h"
#include "cli/ranks.h"
#include "cli/text.h"

static const char *figure_label(hr_oom_figure figure) {
  static const char *const labels[HR_OOM_FIGURE_COUNT] = {"requested",      "total",         "free",
                                                          "this process",   "allocated",     "reserved",
                                                          "unallocated",    "allowed (cap)", "private pools",
                                                          "other processes"};
  return labels[figure];
}

static void print_where(const hr_oom_failure *f) {
  if (f->line) (void)printf("line %llu: ", (unsigned long long)f->line);
  (void)printf("%s", f->source);
  if (f->event != UINT64_MAX)
    (void)printf(", after event %llu", (unsigned long long)f->event + 1); /* as inspect's --at */
  if (f->wording[0]) (void)printf(", wording of PyTorch %s", f->wording);
  if (f->rank >= 0) (void)printf(", rank %d", f->rank);
  if (f->device_index >= 0) (void)printf(", device %d", f->device_index);
  if (f->framework[0]) (void)printf(", under %s", f->framework);
  if (f->phase[0]) (void)printf(", in %s", f->phase);
  if (f->repeats)
    (void)printf(f->line ? " (printed %llu times)" : " (the last of %llu failures)",
                 (unsigned long long)f->repeats + 1);
  (void)printf("\n");
}

static void print_verdict(const hr_oom_failure *f) {
  style shown = f->cause == HR_OOM_NO_FAILURE ? STYLE_GOOD : f->certainty == HR_OOM_CERTAIN ? STYLE_BAD : STYLE_WARN;
  if (f->cause == HR_OOM_UNKNOWN)
    (void)printf("%sUNDECIDABLE%s from this %s\n", screen_style(stdout, shown), screen_style(stdout, STYLE_PLAIN),
                 f->line ? "text" : f->source);
  else
    (void)printf("%s%s%s, %s\n", screen_style(stdout, shown), hr_oom_cause_name(f->cause),
                 screen_style(stdout, STYLE_PLAIN), hr_oom_certainty_name(f->certainty));
  screen_wrap(stdout, 2, f->verdict);
  if (!f->candidates) return;
  (void)printf("  could be:");
  for (unsigned c = 0; c < HR_OOM_CAUSE_COUNT; c++)
    if (f->candidates >> c & 1) (void)printf(" %s", hr_oom_cause_name((hr_oom_cause)c));
  (void)printf("\n");
}

/* A row whose figures stand at the edge of a narrow terminal; a name that is too long goes on below them. */
static void print_share(const char *name, uint64_t bytes, const char *share) {
  enum { NAME = 57, FIGURES = 23, INDENT = 4 };
  const int columns = (int)screen_columns(stdout), room = columns - FIGURES < NAME ? columns - FIGURES : NAME;
  int cut = (int)strlen(name);
  while (cut > room - 1 && strlen(name) > (size_t)room) {
    do cut--;
    while (cut > 0 && name[cut] != ' ');
    if (cut <= 0) break;
  }
  if (cut <= 0) cut = (int)strlen(name);
  (void)printf("  %-*.*s%11s%s\n", room, cut, name, FIGURE_TEXT(bytes), share);
  if (name[cut]) screen_wrap(stdout, INDENT, name + cut + 1);
}

static void print_shares(const hr_oom_failure *f) {
  uint64_t total = f->share_total_bytes;
  char share[16];
  if (f->share_count == 0) return;
  (void)printf("\nthe device's memory\n");
  for (uint32_t i = 0; i < f->share_count; i++) {
    (void)snprintf(share, sizeof share, "%6.1f %%", total ? 100.0 * (double)f->shares[i].bytes / (double)total : 0.0);
    print_share(f->shares[i].name, f->shares[i].bytes, share);
  }
  print_share(f->figures[HR_OOM_TOTAL].state == HR_OOM_ABSENT ? "what is known of it (its total is not in a snapshot)"
                                                              : "total",
              total, "");
  if (f->excess_bytes)
    (void)printf("  the figures name %s more than the device has: rounding or memory spilled to the host\n",
                 FIGURE_TEXT(f->excess_bytes));
}

static const char *const titles[] = {"what may help (unproven advice, cheapest first)", "proven by replay", "planned",
                                     "replayed, likely", "carries this request"};

/* Advice stands by what it rests on: each basis has a title of its own. */
const char *explain_advice_title(hr_oom_basis basis) { return titles[basis]; }

static void print_advice(const hr_oom_failure *f) {
  for (uint32_t i = 0; i < f->advice_count; i++) {
    const hr_oom_advice *a = &f->advice[i];
    char left[32];
    if (i == 0 || a->basis != f->advice[i - 1].basis) (void)printf("\n%s\n", titles[a->basis]);
    (void)snprintf(left, sizeof left, "  %u", i + 1);
    screen_hang(stdout, 6, left, a->text);
    if (a->proof[0]) screen_wrap(stdout, 6, a->proof);
  }
}

static void print_snippet(const hr_oom_failure *f) {
  const char *text = hr_oom_snippet(f);
  if (!text) return;
  (void)printf("\nto record a snapshot at the failure (oom-rank0.pickle; then: headroom explain oom-rank0.pickle)\n\n");
  while (*text) {
    size_t length = strcspn(text, "\n");
    (void)printf("%s%.*s\n", length ? "    " : "", (int)length, text);
    text += length + (text[length] == '\n');
  }
}

static void print_failure(const hr_oom_failure *f) {
  bool any = false;
  print_where(f);
  print_verdict(f);
  for (unsigned i = 0; i < HR_OOM_FIGURE_COUNT; i++) {
    const hr_oom_value *v = &f->figures[i];
    if (v->state == HR_OOM_ABSENT) continue;
    if (!any) (void)printf("\nfigures\n");
    any = true;
    (void)printf("  %-16s %12s%s\n", figure_label((hr_oom_figure)i),
                 v->state == HR_OOM_NOT_KNOWN ? "not known" : FIGURE_TEXT(v->bytes),
                 v->state == HR_OOM_DERIVED ? "  (derived)" : "");
  }
  print_shares(f);
  if (f->arithmetic_count) (void)printf("\nwhy\n");
  for (uint32_t i = 0; i < f->arithmetic_count; i++) screen_wrap(stdout, 2, f->arithmetic[i]);
  print_advice(f);
  print_snippet(f);
}

static void print_run(const hr_run_explanation *run) {
  (void)printf("%s after %llu of %llu steps\n", hr_run_end_name(run->end), (unsigned long long)run->step,
               (unsigned long long)run->steps);
  if (run->last[0]) (void)printf("last: %s\n", run->last);
  for (uint32_t t = 0; t < run->tier_count; t++) {
    const hr_run_tier *tier = &run->tiers[t];
    (void)printf("  %-7s planned %10s", tier->name, FIGURE_TEXT(tier->planned_bytes));
    if (tier->reserved_bytes)
      (void)printf(", reserved %10s%s", FIGURE_TEXT(tier->reserved_bytes),
                   tier->reserved_bytes == tier->planned_bytes ? "  (as planned)" : "");
    (void)printf(", outside the plan %s\n", FIGURE_TEXT(tier->fixed_bytes));
  }
  (void)printf("\n");
}

static void print_planned(const explain_result *result) {
  char text[400];
  (void)snprintf(text, sizeof text, "the job as given: %s, %s, needs %s by Headroom's plan", result->planned_for,
                 result->planned_precision, FIGURE_TEXT(result->planned_bytes));
  (void)printf("\n");
  screen_wrap(stdout, 0, text);
  if (result->planned_fits)
    screen_wrap(
        stdout, 2,
        "which fits: either the failing job is another one, or PyTorch kept more than the plan (its cache, fp32 copies, "
        "logits); only changes that save more than the failing request are listed");
}

static void print_ranks(const ranks *all) {
  ranks_print(all);
  if (all->first_failed == NO_RANK) (void)printf("no rank's failure is recorded; the highest one's peak:\n");
  (void)printf("\n");
}

/* Whether the i-th failure is one of `others`: neither the one that is explained nor one that was asked for again. */
static bool is_other(const hr_explanation *e, uint32_t i) { return i != e->primary && !e->failures[i].asked_again; }

/* Requests that the device refused and that were then made again: of any number of them, PyTorch from 2.13 on logs each. */
static void print_asked_again(const hr_explanation *e) {
  unsigned long long first = 0, count = 0;
  for (uint32_t i = 0; i < e->failure_count; i++) {
    const hr_oom_failure *f = &e->failures[i];
    if (i == e->primary || !f->asked_again) continue;
    if (count == 0 || f->line < first) first = f->line;
    count += f->repeats + 1;
  }
  if (count == 0) return;
  if (count == 1)
    (void)printf("  line %llu: the device refused a request that was made again, mostly with success\n", first);
  else
    (void)printf("  from line %llu on: the device refused %llu requests that were made again, mostly with success\n",
                 first, count);
}

/* What else the text holds: the first few, of them those whose cause is decided before the others. */
static void print_others(const hr_explanation *e) {
  enum { SHOWN = 8 };
  bool shown[HR_OOM_MAX_FAILURES] = {false};
  uint32_t count = 0;
  uint64_t others = e->more;
  assert(e->failure_count <= HR_OOM_MAX_FAILURES);
  if (e->failure_count > 1) (void)printf("\nother failures in this text\n");
  for (uint32_t i = 0; i < e->failure_count; i++) others += is_other(e, i);
  for (int undecided = 0; undecided < 2; undecided++)
    for (uint32_t i = 0; i < e->failure_count && count < SHOWN; i++) {
      if (!is_other(e, i) || (e->failures[i].cause == HR_OOM_UNKNOWN) != undecided) continue;
      shown[i] = true;
      count++;
    }
  for (uint32_t i = 0; i < e->failure_count; i++) {
    const hr_oom_failure *f = &e->failures[i];
    if (!shown[i]) continue;
    (void)printf("  line %llu", (unsigned long long)f->line);
    if (f->rank >= 0) (void)printf(", rank %d", f->rank);
    (void)printf(", %s: %s, %s\n", f->source, hr_oom_cause_name(f->cause), hr_oom_certainty_name(f->certainty));
  }
  if (others > count)
    (void)printf("  and %llu more%s\n", (unsigned long long)(others - count),
                 e->more == 0 ? " (--json has them)" : " messages");
  print_asked_again(e);
}

void explain_print(const explain_result *result) {
  const hr_explanation *e = result->explanation;
  if (result->run) print_run(result->run);
  if (result->ranks) print_ranks(result->ranks);
  print_failure(&e->failures[e->primary]);
  if (result->planned_for[0]) print_planned(result);
  print_others(e);
}
