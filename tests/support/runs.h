/* Whole runs of a small model through hr_train, on the CPU and on the other backend of support/steps.h. */
#ifndef HRI_TEST_RUNS_H
#define HRI_TEST_RUNS_H

#include "support/steps.h"

#include "support/scratch.h"

typedef struct run_case {
  const char *name;
  hr_optimizer optimizer;
  uint32_t accumulate, steps, eval_every, save_every;
  bool shapes, record;
} run_case;

static void run_files(const run_case *c, bool on_other, const char *text, const char *out, const char *resume,
                      uint32_t steps) {
  hr_run_options options = {.data_paths = &text,
                            .data_path_count = 1,
                            .out_directory = resume ? NULL : out,
                            .resume_directory = resume,
                            .save_every = c->save_every,
                            .keep = 2,
                            .eval_every = c->eval_every,
                            .eval_paths = &text,
                            .eval_path_count = c->eval_every ? 1 : 0,
                            .eval_batches = 2,
                            .record_memory = c->record};
  hr_run_result result;
  hr_job job;
  hr_error error = {0};
  variant v = {.model = "micro-llama-bytes",
               .optimizer = c->optimizer,
               .accumulate = c->accumulate,
               .on_other = on_other};
  describe(&v, &job);
  job.sequence_length = c->shapes ? 160 : 24;
  job.packing = c->shapes ? HR_PACKING_OFF : HR_PACKING_PACK;
  job.steps = steps;
  job.schedule = HR_SCHEDULE_CONSTANT;
  must(hr_job_finish(&job, &error), &error);
  must(hr_train(&job, &options, &result, &error), &error);
  assert_int_equal(result.steps, steps);
}

/* Losses in metrics.jsonl, in order; also of evaluations. */
static int losses(const char *directory, double *list) {
  size_t size;
  char *text = get_file(path_of("%s/metrics.jsonl", directory), &size), *at = text;
  int count = 0;
  while ((at = strstr(at, "loss\":")) && count < 64) list[count++] = strtod(at += 6, NULL);
  free(text);
  return count;
}

static void compare_runs(const char *a, const char *b, const char *what) {
  double x[64], y[64];
  int count = losses(a, x);
  assert_int_equal(losses(b, y), count);
  assert_true(count > 2);
  for (int k = 0; k < count; k++)
    if (!(fabs(x[k] - y[k]) <= 1e-5 * fabs(x[k])))
      fail_msg("%s: loss %d of metrics.jsonl is %.9g, and %.9g on the CPU", what, k, y[k], x[k]);
}

/* A run on both, whose losses must agree; where it saves, stopped half-way and gone on: the files of a run in one
 * go. */
static void compare_run(const run_case *c) {
  const char *directory = scratch_make("runs"), *text = path_of("%s/%s", directory, c->shapes ? "text.jsonl" : "text");
  const char *cpu = path_of("%s/cpu", directory), *other = path_of("%s/other", directory),
             *cut = path_of("%s/cut", directory);
  if (c->shapes)
    put_text(
        text,
        "{\"text\": \"a few words\"}\n{\"text\": \"some more words than that, and then some, so that it is longer than a quarter of a row\"}\n"
        "{\"text\": \"memory\"}\n{\"text\": \"nothing is allocated twice; a step takes the shortest programs that hold its longest row of all\"}\n");
  else put_words(text, 4000, 3);
  run_files(c, false, text, cpu, NULL, c->steps);
  run_files(c, true, text, other, NULL, c->steps);
  compare_runs(cpu, other, c->name);
  if (c->save_every) { /* stopped half-way and gone on: the files of a run in one go */
    run_files(c, true, text, cut, NULL, c->save_every);
    run_files(c, true, text, cut, cut, c->steps);
    assert_same_file(path_of("%s/final/model.safetensors", other), path_of("%s/final/model.safetensors", cut));
    compare_runs(other, cut, "gone on");
  }
  assert_true(!c->record || exists(path_of("%s/memory/snapshot.pickle.gz", other)));
  scratch_remove(directory);
}

#endif
