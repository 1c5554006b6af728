/* When the machine has not the memory that a job was planned for: why, and what would fit in what is left. */
#include "cli/refused.h"

#include <stdio.h>
#include <string.h>

#include <headroom/device.h>
#include <headroom/explain.h>
#include <headroom/plan.h>

#include "cli/plan.h"
#include "cli/text.h"

static void print_cause(const hr_oom_failure *f) {
  (void)fprintf(stderr, "%s%s%s  (%s)\n", screen_style(stderr, STYLE_BOLD), f->verdict,
                screen_style(stderr, STYLE_PLAIN), hr_oom_certainty_name(f->certainty));
  for (uint32_t k = 0; k < f->arithmetic_count; k++) (void)fprintf(stderr, "  %s\n", f->arithmetic[k]);
  for (uint32_t k = 0; k < f->share_count; k++)
    (void)fprintf(stderr, "  %12s  %s\n", SIZE_TEXT(f->shares[k].bytes), f->shares[k].name);
  for (uint32_t k = 0; k < f->advice_count; k++) (void)fprintf(stderr, "  try: %s\n", f->advice[k].text);
}

/* What was asked for beside the job's arenas: stacks of its team, which plans of less memory need as well. */
static uint64_t beside_arenas(const hr_job *job, uint64_t requested) {
  uint64_t arenas = 0;
  hr_plan *plan = NULL;
  if (hr_plan_create(job, &plan, NULL) != HR_OK) return 0;
  for (int tier = 0; tier < HR_TIER_DISK; tier++) arenas += hr_plan_get(plan)->tiers[tier].reserved_bytes;
  hr_plan_destroy(plan);
  return requested > arenas ? requested - arenas : 0;
}

/* Plans for the room that there is now, fixed bytes included. */
static void print_fixes(const hr_job *job, uint64_t room) {
  hr_job smaller = *job;
  hr_plan *plan = NULL;
  fix_list list = {0};
  if (room == 0) return;
  smaller.budget_bytes = room;
  smaller.given |= HR_GIVEN_BUDGET;
  if (hr_job_finish(&smaller, NULL) == HR_OK && hr_plan_create(&smaller, &plan, NULL) == HR_OK &&
      fix_list_make(&smaller, &list, NULL) == HR_OK) {
    (void)fprintf(stderr, "with --budget %llu (what is left now):\n", (unsigned long long)room);
    plan_print_fixes(stderr, plan, &list, NULL);
  }
  fix_list_free(&list);
  hr_plan_destroy(plan);
}

void refused_explain(const hr_job *job, const hr_error *error) {
  hr_host_facts facts;
  hr_oom_failure failure;
  uint64_t beside;
  if (strcmp(job->device.name, "cpu") != 0) return; /* the error names a GPU's holders itself */
  hr_host_facts_now(error->requested_bytes, &facts);
  hr_explain_host(&facts, &failure);
  print_cause(&failure);
  beside = beside_arenas(job, error->requested_bytes);
  print_fixes(job, error->available_bytes > beside ? error->available_bytes - beside : 0);
  (void)fprintf(stderr, "\n");
}
