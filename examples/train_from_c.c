/* Trains a small byte-level model on this very file, inside a budget, and generates from it.
 *
 * Introduces: hr_train with hr_run_options and events, hr_run_result, hr_job_set, hr_generate, hr_byte_of_token. */
#define _POSIX_C_SOURCE 200809L /* mkdtemp */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <headroom/headroom.h>

static void on_event(void *context, const hr_event *event) {
  (void)context;
  if (event->kind == HR_EVENT_STEP && event->metrics->step % 10 == 0)
    printf("step %llu loss %.3f\n", (unsigned long long)event->metrics->step, event->metrics->loss);
}

static void on_token(void *context, int32_t token) {
  int byte = hr_byte_of_token(context, token);
  if (byte >= 0) putchar(byte);
}

static int complain(const hr_error *error) {
  fprintf(stderr, "%s\n  try: %s\n", error->message, error->hint);
  return hr_status_exit_code(error->code);
}

int main(void) {
  static const char text[] =
      "a program is data: an ordered list of nodes over tensors. memory is a compile-time result. ";
  const char *parent = getenv("TMPDIR");
  char directory[1024], data[1100], out[1100], final[1200];
  const char *paths[1] = {data};
  hr_run_options options;
  hr_generate_options generate;
  hr_generate_result generated;
  hr_run_result result;
  hr_error error = {0};
  hr_job job;
  FILE *file;

  (void)snprintf(directory, sizeof directory, "%s/headroom-example-XXXXXX", parent ? parent : "/tmp");
  if (!mkdtemp(directory)) return 1;
  (void)snprintf(data, sizeof data, "%s/data.txt", directory);
  (void)snprintf(out, sizeof out, "%s/run", directory);
  (void)snprintf(final, sizeof final, "%s/final", out);
  file = fopen(data, "w");
  if (!file) return 1;
  for (int k = 0; k < 40; k++) fputs(text, file);
  if (fclose(file) != 0) return 1;

  hr_run_options_init(&options);
  options.data_paths = paths;
  options.data_path_count = 1;
  options.out_directory = out;
  options.on_event = on_event;
  hr_generate_options_init(&generate);
  generate.prompt = (const uint8_t *)"a program";
  generate.prompt_bytes = 9;
  generate.max_tokens = 40;
  generate.on_token = on_token;

  hr_job_init(&job);
  if (hr_model_open("micro-llama-bytes", &job.model, &error) != HR_OK) return complain(&error);
  if (hr_device_find("cpu", &job.device, &error) != HR_OK) return complain(&error);
  job.sequence_length = 64;
  job.micro_batch = 8;
  job.steps = 60;
  job.learning_rate = 5e-3;
  if (hr_job_set(&job, "schedule", "constant", &error) != HR_OK)
    return complain(&error); /* any field, by the name of its option */
  job.budget_bytes = UINT64_C(256) << 20;
  if (hr_job_finish(&job, &error) != HR_OK) return complain(&error);
  if (hr_train(&job, &options, &result, &error) != HR_OK) return complain(&error);
  printf("planned %llu bytes, reserved %llu bytes\n", (unsigned long long)result.planned_bytes[HR_TIER_DEVICE],
         (unsigned long long)result.reserved_bytes[HR_TIER_DEVICE]);
  if (!(result.last_loss < 2.5)) {
    fprintf(stderr, "the model did not learn: loss %g\n", result.last_loss);
    return 1;
  }

  hr_run_options_init(&options);
  options.data_paths = paths;
  options.data_path_count = 1;
  options.out_directory = out;
  options.on_event = on_event;
  hr_generate_options_init(&generate);
  generate.prompt = (const uint8_t *)"a program";
  generate.prompt_bytes = 9;
  generate.max_tokens = 40;
  generate.temperature = 0;
  generate.on_token = on_token;

  hr_job_init(&job);
  job.purpose = HR_PURPOSE_GENERATE;
  job.context_length = 64;
  if (hr_model_open(final, &job.model, &error) != HR_OK) return complain(&error);
  if (hr_device_find("cpu", &job.device, &error) != HR_OK) return complain(&error);
  if (hr_job_finish(&job, &error) != HR_OK) return complain(&error);
  generate.context = &job.model;
  fputs("a program", stdout);
  if (hr_generate(&job, &generate, &generated, &error) != HR_OK) return complain(&error);
  printf("\n%llu tokens made\n", (unsigned long long)generated.new_tokens);
  (void)snprintf(data, sizeof data, "rm -r %s", directory);
  return system(data) == 0 ? 0 : 1;
}
