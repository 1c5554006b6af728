/* Time and memory of planning: one training step per model, and the same with all alternatives (hr_plan_fixes). */
#include <stdio.h>
#include <string.h>

#include <headroom/headroom.h>

static unsigned long peak_kib(void) {
  char line[256];
  unsigned long kib = 0;
  FILE *file = fopen("/proc/self/status", "r");
  if (!file) return 0;
  while (fgets(line, sizeof line, file))
    if (sscanf(line, "VmHWM: %lu", &kib) == 1) break;
  (void)fclose(file);
  return kib;
}

int main(void) {
  static const char *const models[] = {"gpt2-124m", "gpt2-1558m", "llama-2-7b", "llama-3-8b", "llama-2-70b"};
  static const char *const recompute[] = {"none", "block"};
  printf("| model | recompute | best of 5, ms | nodes | storages | plan KiB | gap %% | process MiB |\n|---|---|---|---|---|---|---|---|\n");
  for (size_t m = 0; m < sizeof models / sizeof *models; m++)
    for (size_t r = 0; r < 2; r++) {
      hr_plan_info info = {0};
      double best = 1e9;
      for (int k = 0; k < 5; k++) {
        hr_error error = {0};
        hr_plan *plan;
        hr_job job;
        hr_job_init(&job);
        job.micro_batch = 4;
        if (hr_model_open(models[m], &job.model, &error) != HR_OK || hr_device_find("h100", &job.device, &error) != HR_OK ||
            hr_recompute_parse(recompute[r], &job.recompute, &error) != HR_OK || hr_job_finish(&job, &error) != HR_OK || hr_plan_create(&job, &plan, &error) != HR_OK) {
          fprintf(stderr, "%s\n", error.message);
          return 1;
        }
        info = *hr_plan_get(plan);
        if (info.plan_seconds < best) best = info.plan_seconds;
        hr_plan_destroy(plan);
      }
      printf("| %s | %s | %.1f | %u | %u | %llu | %.2f | %.1f |\n", models[m], recompute[r], 1e3 * best, info.node_count, info.storage_count, (unsigned long long)info.plan_bytes >> 10,
             100.0 * (double)info.tiers[0].peak_bytes / (double)info.tiers[0].lower_bound_bytes - 100, (double)peak_kib() / 1024);
    }
  return 0;
}
