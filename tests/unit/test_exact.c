/* Exactness from outside (architecture.md section 5, promises 1, 2 and 5): the program itself runs as a child under
 * limits that the operating system enforces, and what it took is read from the operating system.
 *
 * The part that no plan can own (program, libraries, stacks) is measured, not assumed: a job of the
 * same model and team, with next to no arena, gives it; the job that is tested has a large one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/child.h"
#include "support/heap.h"

#include <headroom/train.h>

enum { GRANULE = 4096, MIB = 1 << 20, CASE_BYTES = 512 };

static const char *directory, *data;
static int run_count;

/* ---- jobs ---- */

typedef struct sized {
  uint64_t reserved, fixed;
} sized;

static sized plan(const char *job) {
  child c = {.words = {"plan", "--json", "--budget", "16GiB"}};
  sized s;
  const char *device;
  child_words(&c, job);
  child_run(&c, HR_PROGRAM, directory);
  if (c.code != 0) fail_msg("plan %s: exit %d, %s", job, c.code, c.err);
  device = strstr(c.out, "\"tiers\"");
  assert_non_null(device);
  s.reserved = number_behind(device, "\"reserved_bytes\":");
  s.fixed = number_behind(device, "\"fixed_bytes\":");
  return s;
}

/* Trains `job` in a directory of its own; *out (may be NULL) names it. */
static child train(const char *job, const char *budget, uint64_t address_space, const char **out) {
  child c = {.words = {"train", "-q", "--data", data, "--budget", budget, "--out"},
             .address_space_bytes = address_space};
  const char *run = path_of("%s/run-%d", directory, run_count++);
  c.words[7] = run;
  child_words(&c, job);
  child_run(&c, HR_PROGRAM, directory);
  if (out) *out = run;
  else scratch_remove(run);
  return c;
}

static void must_run(const child *c, const char *job) {
  if (c->code != 0) fail_msg("train %s: exit %d: %s", job, c->code, c->err);
}

/* ---- the plan is the run ---- */

static void test_reserved_is_planned(void **state) {
  static const char *const jobs[] = {
      "micro-llama-bytes --seq 37 --micro-batch 3 --steps 2",
      "micro-gpt2-bytes --seq 41 --micro-batch 2 --accumulate 3 --steps 2 --recompute block",
      "micro-llama-bytes --seq 16 --steps 2 --update in-backward --clip 0 --threads 3",
      "micro-llama-bytes --seq 16 --steps 2 --optimizer momentum --check",
      "micro-gpt2-bytes --seq 33 --steps 2 --attention materialized --loss-chunk 16 --sample plan",
      "micro-gpt2-bytes --seq 37 --micro-batch 3 --steps 2 --precision bf16 --weight-packing transient --threads 1",
      "micro-llama-bytes --seq 37 --steps 2 --accumulate 2 --precision bf16 --weight-packing persistent --threads 2 --sample plan",
      "micro-gpt2-bytes --seq 16 --steps 2 --precision bf16 --attention materialized --loss-chunk 16 --weight-packing persistent --threads 4 --recompute selective",
      "micro-llama-bytes --seq 37 --steps 2 --accumulate 3 --precision bf16-pure --moments bf16 --weight-packing persistent --threads 4",
      "micro-llama-bytes --seq 37 --steps 2 --precision bf16-pure --update in-backward --clip 0 --weight-packing transient --threads 2 --check",
      "micro-llama-bytes --seq 33 --steps 2 --accumulate 2 --weight-packing persistent --threads 4",
      "micro-gpt2-bytes --seq 37 --micro-batch 3 --steps 3 --precision fp16 --loss-scale 1e9 --recompute block --sample plan --threads 2",
      "micro-llama-bytes --seq 33 --steps 2 --accumulate 2 --precision fp16 --optimizer adamw8bit --weight-packing persistent --check",
      "micro-llama-bytes --seq 37 --steps 2 --lora r=5,targets=all-linear --threads 2 --sample plan",
      "micro-gpt2-bytes --seq 33 --steps 2 --micro-batch 2 --accumulate 2 --lora r=3,dropout=0.2,rslora --recompute block --check",
      "micro-gemma2-bytes --seq 24 --steps 2 --precision bf16 --lora r=4,targets=o_proj,up_proj,layers=1 --update in-backward --clip 0 --weight-packing persistent",
  };
  (void)state;
  for (size_t k = 0; k < sizeof jobs / sizeof *jobs; k++) {
    const char *run;
    sized s = plan(jobs[k]);
    child c = train(jobs[k], "1GiB", 0, &run);
    char *text;
    must_run(&c, jobs[k]);
    text = get_file(path_of("%s/run.json", run), NULL);
    assert_non_null(text);
    assert_int_equal(number_behind(text, "\"planned_bytes\":"), s.reserved);
    assert_int_equal(number_behind(text, "\"reserved_bytes\":"), s.reserved);
    free(text);
    scratch_remove(run);
  }
}

/* ---- the budget ---- */

static const char *bytes_text(uint64_t bytes) {
  static char texts[8][32];
  static int used;
  char *text = texts[used++ % 8];
  (void)snprintf(text, 32, "%llu", (unsigned long long)bytes);
  return text;
}

/* A model directory with weights of the micro model. */
static const char *make_model(void) {
  const char *run;
  child c = train("micro-llama-bytes --seq 16 --steps 1", "1GiB", 0, &run);
  must_run(&c, "to make a model");
  return path_of("%s/final", run);
}

static void assert_refused(const char *job, const char *budget) {
  const char *run;
  child c = train(job, budget, 0, &run);
  if (c.code != 3) fail_msg("train %s --budget %s: exit %d, wanted 3: %s", job, budget, c.code, c.err);
  assert_non_null(strstr(c.err, "budget"));
  assert_false(exists(run)); /* refused before anything is written */
}

static void test_one_granule_less_is_refused_before_any_weight_is_read(void **state) {
  const char *model = make_model(), *weights = path_of("%s/model.safetensors", model);
  char job[CASE_BYTES];
  sized s;
  child c;
  (void)state;
  (void)snprintf(job, sizeof job, "%s --seq 37 --micro-batch 2 --steps 2", model);
  s = plan(job);
  c = train(job, bytes_text(s.reserved + s.fixed), 0, NULL);
  must_run(&c, job);
  /* The weights cannot be read any more: the plan does not mind, the run does, and a refusal comes before. */
  put_text(weights, "no weights");
  assert_int_equal(plan(job).reserved, s.reserved);
  c = train(job, bytes_text(s.reserved + s.fixed), 0, NULL);
  if (c.code != 5) fail_msg("damaged weights: exit %d, wanted 5: %s", c.code, c.err);
  assert_non_null(strstr(c.err, "model.safetensors"));
  assert_refused(job, bytes_text(s.reserved + s.fixed - GRANULE));
  assert_refused(job, bytes_text(s.reserved + s.fixed - 1));
  assert_int_equal(unlink(weights), 0);
  assert_refused(job, bytes_text(s.reserved + s.fixed - GRANULE));
  assert_refused(job, "4096B");
}

/* ---- resident memory ---- */

/* The same matrix products; the number of layers makes the arena. */
static const char *job_of(unsigned layers, const char *options) {
  return path_of(
      "custom:family=llama,layers=%u,hidden=256,heads=8,kv-heads=4,mlp=704,vocab=257,positions=128,tied --seq 125 --micro-batch 2 --steps 2 %s",
      layers, options);
}

static const char *const teams[] = {
    "--threads 1",
    "--threads 2",
    "--threads 1 --precision bf16 --weight-packing transient",
    "--threads 2 --precision bf16 --weight-packing persistent --accumulate 2",
    "--threads 4 --precision bf16-pure --weight-packing persistent --accumulate 2",
};
enum { TEAMS = sizeof teams / sizeof *teams };

static unsigned many_layers(void) { return quick() ? 6 : 22; }

static void test_peak_resident_memory_is_the_arena_and_the_fixed_part(void **state) {
  (void)state;
  if (!HEAP_WATCHED) skip(); /* a sanitizer's shadow is no fixed part */
  for (int k = 0; k < TEAMS; k++) {
    const char *small = job_of(1, teams[k]), *large = job_of(many_layers(), teams[k]);
    sized s, l;
    child a, b;
    int64_t fixed, excess;
    s = plan(small);
    l = plan(large);
    a = train(small, "8GiB", 0, NULL);
    b = train(large, "8GiB", 0, NULL);
    must_run(&a, small);
    must_run(&b, large);
    fixed = (int64_t)a.peak_resident_bytes - (int64_t)s.reserved;
    excess = (int64_t)b.peak_resident_bytes - (int64_t)l.reserved - fixed;
    print_message(
        "%s: arena %.2f MiB, peak resident %.2f MiB; fixed part measured %.2f MiB, planned %.2f MiB; beyond: %.2f MiB\n",
        teams[k], (double)l.reserved / MIB, (double)b.peak_resident_bytes / MIB, (double)fixed / MIB,
        (double)l.fixed / MIB, (double)excess / MIB);
    assert_true(excess <= 4 * MIB);
    assert_true(b.peak_resident_bytes >= l.reserved);           /* the arena was touched */
    assert_true(b.peak_resident_bytes <= l.reserved + l.fixed); /* the budget test holds for the process */
  }
}

/* ---- address space ---- */

/* The least address space in which the small job runs, to 64 KiB. Whatever the limit: no crash, and exit 3 or 4. */
static uint64_t least_address_space(const char *job, uint64_t low, uint64_t high) {
  while (high - low > 65536) {
    uint64_t middle = low + (high - low) / 2;
    child c = train(job, "8GiB", middle, NULL);
    if (c.code != 0 && c.code != 3 && c.code != 4)
      fail_msg("train %s in %llu bytes of address space: exit %d: %s", job, (unsigned long long)middle, c.code, c.err);
    if (c.code == 0) high = middle;
    else low = middle;
  }
  return high;
}

static void test_runs_in_an_address_space_of_plan_and_fixed_part(void **state) {
  (void)state;
  if (!HEAP_WATCHED) skip();
  for (int k = 0; k < TEAMS; k++) {
    const char *small = job_of(1, teams[k]), *large = job_of(many_layers(), teams[k]);
    sized s, l;
    uint64_t fixed, limit;
    child c;
    s = plan(small);
    l = plan(large);
    fixed = least_address_space(small, s.reserved + 6 * MIB, s.reserved + 152 * MIB) - s.reserved;
    limit = l.reserved + fixed + 2 * MIB; /* the compiled job of more layers: some KiB of heap a layer */
    c = train(large, "8GiB", limit, NULL);
    print_message("%s: arena %.2f MiB, fixed address space measured %.2f MiB\n", teams[k], (double)l.reserved / MIB,
                  (double)fixed / MIB);
    if (c.code != 0)
      fail_msg("in %llu bytes (plan %llu, fixed %llu): exit %d: %s", (unsigned long long)limit,
               (unsigned long long)l.reserved, (unsigned long long)fixed, c.code, c.err);
    for (uint64_t less = 4; less <= 64; less *= 2) {
      c = train(large, "8GiB", limit - less * MIB, NULL);
      if (c.code != 3 && c.code != 4)
        fail_msg("%llu MiB of address space less: exit %d: %s", (unsigned long long)less, c.code, c.err);
      assert_true(c.err[0] != 0);
    }
  }
}

/* ---- the heap while it runs ---- */

typedef struct watched {
  uint64_t from, to; /* steps: watched from the end of `from` to the end of `to` */
  uint64_t live_before, live_after, space_before, space_after;
  uint64_t calls, largest;
} watched;

static void on_event(void *context, const hr_event *event) {
  watched *w = context;
  if (event->kind != HR_EVENT_STEP) return;
  if (event->metrics->step == w->to) {
    heap_stop();
    w->live_after = atomic_load(&heap_live);
    w->space_after = heap_address_space();
    w->calls = atomic_load(&heap_calls);
    w->largest = atomic_load(&heap_largest);
  }
  if (event->metrics->step == w->from) {
    w->space_before = heap_address_space();
    w->live_before = atomic_load(&heap_live);
    heap_watch(4096);
  }
}

/* What the heap is watched for. */
typedef struct heap_case {
  const char *model;
  uint32_t accumulate, threads;
  hr_precision precision;
  hr_weight_packing weight_packing;
  bool record_memory;
  const char *lora; /* NULL: all weights train */
} heap_case;

static void watch_run(const heap_case *k, uint64_t every, uint64_t from, uint64_t to, watched *w) {
  const char *run = path_of("%s/run-%d", directory, run_count++);
  hr_run_options options = {.data_paths = &data,
                            .data_path_count = 1,
                            .out_directory = run,
                            .on_event = on_event,
                            .context = w,
                            .save_every = every,
                            .eval_every = every,
                            .keep = 1,
                            .record_memory = k->record_memory};
  hr_job job;
  hr_error error = {0};
  hr_run_result result;
  hr_job_init(&job);
  assert_int_equal(hr_model_open(k->model, &job.model, &error), HR_OK);
  assert_int_equal(hr_device_find("cpu", &job.device, &error), HR_OK);
  job.sequence_length = 37;
  job.micro_batch = 3;
  job.accumulate = k->accumulate;
  job.threads = k->threads;
  job.precision = k->precision;
  job.weight_packing = k->weight_packing;
  job.lora = k->lora;
  job.steps = to;
  if (every) {
    options.eval_paths = &data;
    options.eval_path_count = 1;
    options.eval_batches = 2;
  }
  *w = (watched){.from = from, .to = to};
  assert_int_equal(hr_job_finish(&job, &error), HR_OK);
  heap_watch(SIZE_MAX);
  heap_stop();
  if (hr_train(&job, &options, &result, &error) != HR_OK) fail_msg("%s", error.message);
  scratch_remove(run);
}

static void steps_take_nothing(const heap_case *k) {
  watched w;
  watch_run(k, 0, 1, 12, &w);
  print_message(
      "%s, %s, %u threads, accumulate %u, packing %s%s%s%s, steps 2-12: %llu allocations, largest %llu bytes, heap %+lld bytes, address space %+lld bytes\n",
      k->model, hr_precision_name(k->precision), k->threads, k->accumulate, hr_weight_packing_name(k->weight_packing),
      k->record_memory ? ", recorded" : "", k->lora ? ", lora " : "", k->lora ? k->lora : "",
      (unsigned long long)w.calls, (unsigned long long)w.largest, (long long)(w.live_after - w.live_before),
      (long long)(w.space_after - w.space_before));
  heap_print_offenders();
  assert_true(w.largest <= 4096);
  assert_true(w.live_after <= w.live_before);
  assert_int_equal(w.space_after, w.space_before);
}

static void test_steps_take_nothing_from_the_heap(void **state) {
  static const char *const models[] = {"micro-llama-bytes", "micro-gpt2-bytes"};
  (void)state;
  if (!HEAP_WATCHED) skip();
  for (int m = 0; m < 2; m++)
    for (uint32_t accumulate = 1; accumulate <= 2; accumulate++) {
      heap_case k = {.model = models[m], .accumulate = accumulate, .threads = 2};
      steps_take_nothing(&k);
      k.record_memory = true; /* which takes its room before the first step */
      steps_take_nothing(&k);
      k.record_memory = false;
      for (k.threads = 1; k.threads <= 4; k.threads *= 2) {
        k.weight_packing = k.weight_packing == HR_WEIGHT_PACKING_PERSISTENT ? HR_WEIGHT_PACKING_TRANSIENT
                                                                            : HR_WEIGHT_PACKING_PERSISTENT;
        k.precision = m ? HR_PRECISION_BF16 : HR_PRECISION_BF16_PURE;
        steps_take_nothing(&k);
      }
      k.lora = m ? "r=4,targets=all-linear" : "r=4,targets=all-linear,dropout=0.1";
      k.threads = 2;
      steps_take_nothing(&k);
    }
}

/* Evaluations and checkpoints may allocate; nothing of it may stay. */
static void test_evaluations_and_checkpoints_leave_nothing_on_the_heap(void **state) {
  watched w;
  (void)state;
  if (!HEAP_WATCHED) skip();
  for (int precision = 0; precision < 3; precision++) {
    heap_case k = {.model = "micro-llama-bytes", .accumulate = 1, .threads = 2, .precision = (hr_precision)precision};
    watch_run(&k, 1, 3, 9, &w);
    print_message("%s, with evaluation and checkpoint each step: largest %llu bytes, heap %+lld bytes\n",
                  hr_precision_name(k.precision), (unsigned long long)w.largest,
                  (long long)(w.live_after - w.live_before));
    assert_true(w.live_after <= w.live_before);
  }
}

/* The watch itself notices. */
static void test_the_interposed_allocator_counts(void **state) {
  void *volatile memory;
  uint64_t before;
  (void)state;
  if (!HEAP_WATCHED) skip();
  heap_watch(4096); /* the first backtrace loads a library */
  heap_stop();
  before = atomic_load(&heap_live);
  heap_watch(4096);
  memory = malloc(5000);
  heap_stop();
  assert_true(atomic_load(&heap_live) >= before + 5000);
  assert_true(atomic_load(&heap_largest) >= 5000 && atomic_load(&heap_calls) >= 1 &&
              atomic_load(&heap_offender_count) >= 1);
  free(memory);
  assert_int_equal(atomic_load(&heap_live), before);
}

static int set_up(void **state) {
  (void)state;
  directory = scratch_make("exact");
  data = path_of("%s/data.txt", directory);
  data = strdup(data);
  put_words(data, 40000, 1);
  return data ? 0 : -1;
}

static int tear_down(void **state) {
  (void)state;
  scratch_remove(directory);
  free((void *)(uintptr_t)data);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_interposed_allocator_counts),
      cmocka_unit_test(test_reserved_is_planned),
      cmocka_unit_test(test_one_granule_less_is_refused_before_any_weight_is_read),
      cmocka_unit_test(test_steps_take_nothing_from_the_heap),
      cmocka_unit_test(test_evaluations_and_checkpoints_leave_nothing_on_the_heap),
      cmocka_unit_test(test_peak_resident_memory_is_the_arena_and_the_fixed_part),
      cmocka_unit_test(test_runs_in_an_address_space_of_plan_and_fixed_part),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
