/* Plans a job without running it: how much memory does it take, and what would fit?
 *
 * Introduces: hr_job_init, hr_model_open, hr_device_find, hr_job_finish, hr_plan_create, hr_plan_get, hr_plan_live,
 * hr_plan_fixes, hr_plan_destroy. */
#include <stdio.h>

#include <headroom/headroom.h>

static int complain(const hr_error *error) {
  fprintf(stderr, "%s\n  try: %s\n", error->message, error->hint);
  return hr_status_exit_code(error->code);
}

int main(int argc, char **argv) {
  const char *model = argc > 1 ? argv[1] : "gpt2-124m", *device = argc > 2 ? argv[2] : "rtx-3060";
  static hr_fix fixes[HR_MAX_FIXES];
  hr_error error = {0};
  hr_plan *plan = NULL;
  const hr_tier_plan *tier;
  hr_job job;
  uint32_t count = 0;

  hr_job_init(&job);
  if (hr_model_open(model, &job.model, &error) != HR_OK) return complain(&error);
  if (hr_device_find(device, &job.device, &error) != HR_OK) return complain(&error);
  job.micro_batch = 16;
  job.budget_bytes = UINT64_C(6) << 30;
  if (hr_job_finish(&job, &error) != HR_OK) return complain(&error);
  if (hr_plan_create(&job, &plan, &error) != HR_OK) return complain(&error);

  tier = &hr_plan_get(plan)->tiers[HR_TIER_DEVICE];
  printf("%s on %s: %.2f GiB reserved + %.2f GiB fixed, budget %.2f GiB: %s\n", job.model.name, job.device.name,
         (double)tier->reserved_bytes / (1 << 30), (double)tier->fixed_bytes / (1 << 30),
         (double)job.budget_bytes / (1 << 30), hr_plan_get(plan)->fits ? "fits" : "does not fit");
  for (uint32_t role = 0; role < HR_ROLE_COUNT; role++)
    if (tier->at_peak_by_role[role])
      printf("  %-16s %10.2f MiB at the peak\n", hr_role_name(role), (double)tier->at_peak_by_role[role] / (1 << 20));
  for (uint32_t k = 0; k < 3; k++) {
    hr_live live;
    if (hr_plan_live(plan, HR_TIER_DEVICE, k, &live))
      printf("  largest: %s, %llu bytes\n", live.name, (unsigned long long)live.bytes);
  }
  hr_plan_destroy(plan);

  if (hr_plan_fixes(&job, fixes, &count, &error) != HR_OK) return complain(&error);
  for (uint32_t k = 0; k < count && k < 3; k++)
    printf("  %s: %.2f GiB, %.3f s per step%s\n", fixes[k].options, (double)fixes[k].need_bytes / (1 << 30),
           fixes[k].step_seconds, fixes[k].fits ? "" : " (does not fit)");
  return 0;
}
