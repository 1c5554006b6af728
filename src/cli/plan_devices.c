/* Which devices of the table would hold a job that does not fit where it was planned for: the smallest first, each
 * really planned. */
#include <stdlib.h>

#include "cli/plan.h"
#include "cli/text.h"

enum { LABEL = 13 };

static int by_usable(const void *a, const void *b) {
  uint64_t left = ((const hr_device *)a)->usable_bytes, right = ((const hr_device *)b)->usable_bytes;
  return left < right ? -1 : left > right;
}

static bool fits_on(const hr_job *asked, const hr_device *device, device_fit *fit) {
  hr_job *job = text_alloc(sizeof *job);
  hr_fit found = {0};
  char unused[PLAN_WARNING_BYTES];
  *job = *asked;
  job->device = *device;
  job->given &= ~(uint64_t)HR_GIVEN_BUDGET;
  job->budget_bytes = 0;
  if (!(job->given & HR_GIVEN_PRECISION) && job->precision == hr_precision_of(&asked->device))
    job->precision = HR_PRECISION_AUTO; /* that device's own default, as --device NAME would have it */
  if (hr_job_finish(job, NULL) != HR_OK || plan_not_offered(job, unused, sizeof unused) ||
      hr_plan_fit(job, &found, NULL) != HR_OK)
    found.fits = false;
  if (found.fits) {
    *fit = (device_fit){.usable_bytes = device->usable_bytes,
                        .need_bytes = found.need_bytes,
                        .step_seconds = found.step_seconds,
                        .token_seconds = found.token_seconds};
    (void)snprintf(fit->name, sizeof fit->name, "%s", device->name);
  }
  free(job);
  return found.fits;
}

/* Levels and rows that the planner chose would be other ones there. */
static void take_chosen(const hr_job *job, device_list *list) {
  hr_job *asked = text_alloc(sizeof *asked);
  *asked = *job;
  if (job->levels_chosen) asked->recompute.kind = HR_RECOMPUTE_AUTO;
  if (job->rows_choice == HR_ROWS_CHOSEN && !job->automatic) asked->micro_batch = HR_MICRO_BATCH_AUTO;
  (void)hr_job_options(asked, job, list->chosen, sizeof list->chosen);
  free(asked);
}

void device_fit_options(const hr_job *job, const device_list *list, uint32_t index, char *text, size_t bytes) {
  (void)snprintf(text, bytes, "--device %s%s%s%s", list->fits[index].name,
                 job->given & HR_GIVEN_BUDGET ? " --budget 100%" : "", list->chosen[0] ? " " : "", list->chosen);
}

void device_list_make(const hr_job *job, device_list *list) {
  uint32_t count = hr_device_count();
  hr_device *devices = text_alloc(count * sizeof *devices);
  hr_fit here = {0};
  uint64_t least;
  list->count = 0;
  take_chosen(job, list);
  least = hr_plan_fit(job, &here, NULL) == HR_OK ? here.bound_bytes : 0;
  for (uint32_t i = 0; i < count; i++)
    if (hr_device_get(i, &devices[i], NULL) != HR_OK) devices[i].usable_bytes = 0;
  qsort(devices, count, sizeof *devices, by_usable);
  for (uint32_t i = 0; i < count && list->count < DEVICE_FITS; i++) {
    /* what is given by default may need less there, half as much where its elements have half the bytes */
    const bool alike = hr_precision_of(&devices[i]) == hr_precision_of(&job->device);
    if (devices[i].usable_bytes < (alike ? least : least / 4)) continue;
    if (devices[i].usable_bytes && fits_on(job, &devices[i], &list->fits[list->count])) list->count++;
  }
  free(devices);
}

void device_list_print(FILE *stream, const char *left, const device_list *list) {
  char text[400] = "no device of the table";
  size_t used = 0;
  for (uint32_t i = 0; i < list->count && used < sizeof text; i++)
    used += (size_t)snprintf(text + used, sizeof text - used, "%s%s (%s)", i ? ", " : "", list->fits[i].name,
                             SIZE_TEXT(list->fits[i].usable_bytes));
  screen_hang(stream, LABEL, left, text);
}
