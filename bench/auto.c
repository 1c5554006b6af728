/* Processor time of --auto: every model of the table on every device, with as many rows as are asked for, in fp32 and in
 * bf16 without clipping (which opens the update in the backward). And some of them alone: what is taken, how far that is
 * from the bound of time (headroom/plan.h), and its time. `bench_auto quick`: every fifth device. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <headroom/headroom.h>

enum { CPU_GIB = 21, WORST = 3 };

static double own_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct trial {
  char what[128], options[HR_FIELD_TEXT_BYTES];
  hr_auto found;
  double seconds;
  bool fits;
} trial;

/* False where the job cannot be planned. */
static bool run(const char *model, const char *device, uint32_t rows, const char *options, trial *t) {
  hr_error error = {0};
  hr_job job, before;
  hr_status status;
  double begin;
  hr_job_init(&job);
  job.micro_batch = rows;
  job.given |= HR_GIVEN_MICRO_BATCH;
  if (hr_model_open(model, &job.model, &error) != HR_OK || hr_device_find(device, &job.device, &error) != HR_OK ||
      hr_job_set_options(&job, options, &error) != HR_OK)
    return false;
  if (strcmp(device, "cpu") == 0) {
    job.threads = 2;
    job.budget_bytes = (uint64_t)CPU_GIB << 30;
    job.given |= HR_GIVEN_BUDGET;
  }
  if (hr_job_finish(&job, &error) != HR_OK) return false;
  before = job;
  begin = own_seconds();
  status = hr_plan_auto(&job, NULL, &t->found, &error);
  t->seconds = own_seconds() - begin;
  t->fits = status == HR_OK;
  if (status != HR_OK && status != HR_ERROR_BUDGET) return false;
  (void)snprintf(t->what, sizeof t->what, "%.30s on %.20s, %u rows%s%.36s", model, device, rows, *options ? ", " : "",
                 options);
  t->options[0] = 0;
  if (t->fits) hr_job_options(&before, &job, t->options, sizeof t->options);
  return true;
}

/* ---- all models on all devices ---- */

static int by_time(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static void keep_worst(trial worst[WORST], const trial *t) {
  uint32_t least = 0;
  for (uint32_t k = 1; k < WORST; k++)
    if (worst[k].seconds < worst[least].seconds) least = k;
  if (t->seconds > worst[least].seconds) worst[least] = *t;
}

static void sweep(uint32_t rows, uint32_t stride) {
  static const char *const options[] = {"", "--precision bf16 --clip 0"};
  enum { MOST = 8192 };
  static double times[MOST];
  trial worst[WORST], t;
  uint32_t count = 0, fitted = 0;
  memset(worst, 0, sizeof worst);
  for (uint32_t m = 0; m < hr_model_preset_count(); m++)
    for (uint32_t d = 0; d <= hr_device_count(); d += d ? stride : 1) {
      hr_device device;
      if (d > 0 && hr_device_get(d - 1, &device, NULL) != HR_OK) continue;
      for (size_t o = 0; o < sizeof options / sizeof *options && count < MOST; o++) {
        if (!run(hr_model_preset_name(m), d ? device.name : "cpu", rows, options[o], &t)) continue;
        times[count++] = t.seconds;
        fitted += t.fits;
        keep_worst(worst, &t);
      }
    }
  if (!count) return;
  qsort(times, count, sizeof *times, by_time);
  printf("| %u | %u, %u | %.0f | %.0f | %.0f |", rows, count, fitted, 1e3 * times[count / 2],
         1e3 * times[(size_t)(0.99 * (count - 1))], 1e3 * times[count - 1]);
  for (uint32_t k = 0; k < WORST; k++) printf("%s %s (%.0f)", k ? ";" : "", worst[k].what, 1e3 * worst[k].seconds);
  printf(" |\n");
  (void)fflush(stdout);
}

/* ---- some alone ---- */

static void alone(const char *model, const char *device, uint32_t rows, const char *options) {
  trial t;
  if (!run(model, device, rows, options, &t)) return;
  if (t.fits)
    printf("| %s | %.0f | %s | %.2f %% |\n", t.what, 1e3 * t.seconds, t.options[0] ? t.options : "as asked",
           100 * (t.found.token_seconds / t.found.bound_token_seconds - 1));
  else
    printf("| %s | %.0f | nothing fits; %.2f GiB at least, bound %.2f | |\n", t.what, 1e3 * t.seconds,
           (double)t.found.smallest_bytes / (1 << 30), (double)t.found.bound_bytes / (1 << 30));
}

int main(int count, char **words) {
  const uint32_t stride = count > 1 && strcmp(words[1], "quick") == 0 ? 5 : 1;
  printf("All models on all devices (the CPU with %d GiB), processor time of one search in ms:\n\n", CPU_GIB);
  printf("| rows | searches, those that fit | median | 99 %% | most | the slowest (ms) |\n|---|---|---|---|---|---|\n");
  for (uint32_t rows = 4; rows <= 64; rows *= 4) sweep(rows, stride);
  printf("\n| job | ms | taken | above the bound |\n|---|---|---|---|\n");
  alone("gpt2-124m", "cpu", 64, "");
  alone("gpt2-124m", "cpu", 720, "");
  alone("gpt2-124m", "rtx-4090", 720, "");
  alone("gpt2-124m", "h100", 720, "--clip 0");
  alone("gemma-3-1b", "cpu", 64, "--precision bf16 --clip 0");
  alone("llama-3.2-1b", "cpu", 48, "--precision bf16 --clip 0");
  alone("qwen3-8b", "b300", 64, "--precision bf16");
  alone("llama-3-70b", "h100", 64, "");
  return 0;
}
