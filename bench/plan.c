/* Time and memory of planning: one training step per model; alternatives compared per second; and, over the jobs that
 * the golden plans are made of, each moved to every device: the slowest plan, and the slowest refusal with all its
 * fixes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include <headroom/headroom.h>

#include "base/mem.h"
#include "search/search.h"

enum { LINE = 4096, REPEATS = 3 };

/* Of one thread, which is all that planning uses: what others do on the machine counts less than on the clock. */
static double own_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double of(struct timeval t) { return (double)t.tv_sec + 1e-6 * (double)t.tv_usec; }

/* Of all programs that were run and have ended. */
static double child_seconds(void) {
  struct rusage use;
  (void)getrusage(RUSAGE_CHILDREN, &use);
  return of(use.ru_utime) + of(use.ru_stime);
}

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

static void check(hr_status status, const hr_error *error) {
  if (status == HR_OK) return;
  fprintf(stderr, "%s\n", error->message);
  exit(1);
}

static hr_job job_of(const char *model, const char *device) {
  hr_error error = {0};
  hr_job job;
  hr_job_init(&job);
  job.micro_batch = 4;
  check(hr_model_open(model, &job.model, &error), &error);
  check(hr_device_find(device, &job.device, &error), &error);
  return job;
}

/* ---- plans ---- */

static void one_plan(const char *model, const char *recompute) {
  hr_plan_info info = {0};
  double best = 1e9;
  for (int k = 0; k < 5; k++) {
    hr_error error = {0};
    hr_job job = job_of(model, "h100");
    hr_plan *plan;
    check(hr_recompute_parse(recompute, &job.recompute, &error), &error);
    check(hr_job_finish(&job, &error), &error);
    check(hr_plan_create(&job, &plan, &error), &error);
    info = *hr_plan_get(plan);
    if (info.plan_seconds < best) best = info.plan_seconds;
    hr_plan_destroy(plan);
  }
  printf("| %s | %s | %.1f | %u | %u | %llu | %.2f | %.1f |\n", model, recompute, 1e3 * best, info.node_count,
         info.storage_count, (unsigned long long)info.plan_bytes >> 10,
         100.0 * (double)info.tiers[0].peak_bytes / (double)info.tiers[0].lower_bound_bytes - 100,
         (double)peak_kib() / 1024);
}

/* ---- candidates ---- */

/* Every change of levels, split, chunk and algorithm that applies, drafted one after the other. */
static uint32_t draft_all(const hr_job *base, const hr_plan *lender) {
  uint32_t count = 0;
  for (hri_levels levels = HRI_LEVELS_KEPT; levels < HRI_LEVELS_AUTO; levels++)
    for (uint32_t split = 1; split <= 4; split *= 2)
      for (uint32_t chunk = 0; chunk <= 1024; chunk += 1024)
        for (unsigned algorithm = 0; algorithm < 8; algorithm++) {
          hri_change change = {.levels = levels, .split = split, .chunk = chunk, .algorithm = algorithm};
          hr_job job = *base;
          hr_plan *draft;
          if (!hri_change_apply(&change, &job) || hri_plan_draft(&job, lender, &draft, NULL) != HR_OK) continue;
          hr_plan_destroy(draft);
          count++;
        }
  return count;
}

static void candidates(const char *model, const char *device) {
  hr_job job = job_of(model, device);
  hr_error error = {0};
  hr_plan *lender;
  double best = 1e9;
  uint32_t count = 0;
  job.precision = HR_PRECISION_BF16;
  check(hr_job_finish(&job, &error), &error);
  check(hri_plan_draft(&job, NULL, &lender, &error), &error);
  hri_mem_keep(true);
  for (int k = 0; k < 5; k++) {
    double begin = own_seconds();
    count = draft_all(&job, lender);
    if (own_seconds() - begin < best) best = own_seconds() - begin;
  }
  hr_plan_destroy(lender);
  hri_mem_keep(false);
  printf("| %s | %s | %u | %.2f | %.0f |\n", model, device, count, 1e3 * best / count, count / best);
}

/* ---- the golden jobs on all devices ---- */

typedef struct slowest {
  double plan_seconds, refused_seconds;
  char plan[160], refused[160];
  unsigned fixes, plans, refusals;
} slowest;

/* Runs the program; the time of the plan as it tells it, processor time of the whole. False when the job cannot be
 * planned. */
static bool run_program(const char *command, double *plan_seconds, double *seconds, bool *fits, unsigned *fixes) {
  char line[LINE];
  bool planned = false;
  double begin = child_seconds();
  FILE *pipe = popen(command, "r");
  if (!pipe) return false;
  *fixes = 0;
  while (fgets(line, sizeof line, pipe)) {
    const char *at = strstr(line, "\"plan_ns\": ");
    if (at) *plan_seconds = 1e-9 * strtod(at + strlen("\"plan_ns\": "), NULL), planned = true;
    if (strstr(line, "\"options\": ")) (*fixes)++;
    if (strncmp(line, "  \"fits\": ", 10) == 0) *fits = strstr(line, "true") != NULL;
  }
  (void)pclose(pipe);
  *seconds = child_seconds() - begin;
  return planned;
}

static void time_job(const char *program, const char *name, const char *options, const char *device, slowest *out) {
  char command[2 * LINE];
  double plan = 1e9, whole = 1e9;
  bool fits = true;
  unsigned fixes = 0;
  (void)snprintf(command, sizeof command, "%s plan %s --device %s --json 2>/dev/null", program, options, device);
  for (int k = 0; k < REPEATS; k++) {
    double a, b;
    if (!run_program(command, &a, &b, &fits, &fixes)) return;
    if (a < plan) plan = a;
    if (b < whole) whole = b;
  }
  out->plans++;
  if (plan > out->plan_seconds) {
    out->plan_seconds = plan;
    (void)snprintf(out->plan, sizeof out->plan, "%s on %s", name, device);
  }
  if (fits) return;
  out->refusals++;
  if (whole <= out->refused_seconds) return;
  out->refused_seconds = whole;
  out->fixes = fixes;
  (void)snprintf(out->refused, sizeof out->refused, "%s on %s", name, device);
}

/* "NAME OPTIONS" without its --device. */
static bool split_line(char *line, char *name, char *options) {
  char *at, *rest;
  line[strcspn(line, "\n")] = 0;
  if (line[0] == '#' || sscanf(line, "%63s", name) != 1) return false;
  (void)snprintf(options, LINE, "%s", line + strlen(name));
  at = strstr(options, "--device ");
  if (!at) return true;
  rest = at + strlen("--device ");
  rest += strcspn(rest, " ");
  memmove(at, rest, strlen(rest) + 1);
  return true;
}

/* Jobs of models with between `low` and `high` parameters. */
static void golden(const char *program, const char *jobs, const char *what, double low, double high) {
  FILE *file = fopen(jobs, "r");
  char line[LINE], name[64], model[128], options[LINE];
  slowest out = {0};
  if (!file) {
    perror(jobs);
    exit(1);
  }
  while (fgets(line, sizeof line, file)) {
    hr_model m;
    double count;
    if (!split_line(line, name, options) || sscanf(options, "%127s", model) != 1 ||
        hr_model_open(model, &m, NULL) != HR_OK)
      continue;
    count = (double)hr_model_parameter_count(&m);
    if (count < low || count > high) continue;
    time_job(program, name, options, "cpu", &out);
    for (uint32_t d = 0; d < hr_device_count(); d++) {
      hr_device device;
      if (hr_device_get(d, &device, NULL) == HR_OK) time_job(program, name, options, device.name, &out);
    }
  }
  (void)fclose(file);
  printf("| %s | %.1f | %s | %.0f | %u | %s | %u, %u |\n", what, 1e3 * out.plan_seconds, out.plan,
         1e3 * out.refused_seconds, out.fixes, out.refused, out.plans, out.refusals);
}

int main(int count, char **words) {
  static const char *const names[] = {"gpt2-124m", "gpt2-1558m", "llama-2-7b", "llama-3-8b", "llama-2-70b"};
  const char *slash = strrchr(words[0], '/');
  char program[LINE], jobs[LINE];
  int directory = slash ? (int)(slash - words[0]) : 1;
  (void)snprintf(program, sizeof program, "%.*s/headroom", directory, slash ? words[0] : ".");
  (void)snprintf(jobs, sizeof jobs, "%s", count > 1 ? words[1] : "tests/cli/golden/plan-jobs.txt");
  printf(
      "| model | recompute | best of 5, ms | nodes | storages | plan KiB | gap %% | process MiB |\n|---|---|---|---|---|---|---|---|\n");
  for (size_t m = 0; m < sizeof names / sizeof *names; m++) {
    one_plan(names[m], "none");
    one_plan(names[m], "block");
  }
  printf("\nAlternatives that the search compares (bound of their bytes and time, exact), one thread:\n\n");
  printf("| model | device | candidates | ms each | per second |\n|---|---|---|---|---|\n");
  candidates("llama-2-7b", "h100");
  candidates("llama-2-7b", "cpu");
  candidates("llama-2-70b", "h100");
  candidates("llama-2-70b", "cpu");
  printf(
      "\nThe jobs of tests/cli/golden/plan-jobs.txt on every device, best of %d: the slowest plan by the clock, and the most\nprocessor time of a `headroom plan` of a job that is refused, with all its fixes, as a whole process:\n\n",
      REPEATS);
  printf(
      "| models | plan, ms | which | refused, ms | fixes | which | plans, refusals |\n|---|---|---|---|---|---|---|\n");
  (void)fflush(stdout);
  golden(program, jobs, "6.5 to 10 B", 6.5e9, 1e10);
  golden(program, jobs, "65 to 75 B", 6.5e10, 7.5e10);
  return 0;
}
