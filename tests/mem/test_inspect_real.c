/* The inspection of snapshots that PyTorch itself recorded (tests/snapshots/real, made by tests/oracle/scenarios.py):
 * totals equal
 * torch.cuda.memory_stats to the byte, and inferred categories equal what the models' shapes say. */
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "inspect/inside.h"

#define DIRECTORY HR_TEST_DATA "/snapshots/real"
#define MIB ((uint64_t)1 << 20)

/* ---- files ---- */

typedef struct recording {
  char name[256]; /* "2.15/gpt2" */
  hr_snapshot *snapshot;
  json_t *facts;
} recording;

static recording open_recording(const char *path) {
  recording r;
  char facts[512];
  hr_error error;
  const size_t count = strlen(path) - strlen(".pickle.gz");
  const char *name = strstr(path, "/real/");
  assert_non_null(name);
  (void)snprintf(r.name, sizeof r.name, "%.*s", (int)(count - (size_t)(name + 6 - path)), name + 6);
  (void)snprintf(facts, sizeof facts, "%.*s.json", (int)count, path);
  r.facts = json_load_file(facts, 0, NULL);
  if (!r.facts) fail_msg("%s: no facts", facts);
  if (hr_snapshot_read(path, NULL, &r.snapshot, &error) != HR_OK) fail_msg("%s: %s", path, error.message);
  return r;
}

static void close_recording(recording *r) {
  hr_snapshot_destroy(r->snapshot);
  json_decref(r->facts);
}

static uint64_t stat_of(const recording *r, const char *key) {
  const json_t *value = json_object_get(json_object_get(r->facts, "stats"), key);
  return value ? (uint64_t)json_integer_value(value) : 0;
}

static hr_inspection *inspect(const recording *r, uint64_t at) {
  hr_inspect_options o = {.at = at, .trace = HR_TRACE_MOST, .top = 1000};
  hr_inspection *p = NULL;
  hr_error error;
  if (hr_inspect(r->snapshot, &o, &p, &error) != HR_OK) fail_msg("%s: %s", r->name, error.message);
  return p;
}

static void each_recording(const char *pattern, void (*check)(const recording *r)) {
  char all[512];
  glob_t found;
  (void)snprintf(all, sizeof all, "%s/%s.pickle.gz", DIRECTORY, pattern);
  if (glob(all, 0, NULL, &found) != 0) fail_msg("no snapshot is there: %s", all);
  for (size_t k = 0; k < found.gl_pathc; k++) {
    recording r = open_recording(found.gl_pathv[k]);
    check(&r);
    close_recording(&r);
  }
  globfree(&found);
}

/* ---- totals ---- */

static void equal(const recording *r, const char *key, uint64_t found) {
  if (stat_of(r, key) != found)
    fail_msg("%s: %s is %llu, found %llu", r->name, key, (unsigned long long)stat_of(r, key),
             (unsigned long long)found);
}

static void totals_of(const recording *r) {
  hr_inspection *p = inspect(r, HR_AT_END);
  const hr_memory_sums *m = &p->end;
  const bool expandable = strstr(r->name, "expandable") != NULL;
  uint64_t requested = stat_of(r, "requested_bytes.all.current");
  assert_memory_equal(&p->at, &p->end, sizeof p->at);
  assert_int_equal(p->odd_count, 0);
  equal(r, "reserved_bytes.all.current", m->reserved_bytes);
  equal(r, "allocated_bytes.all.current", m->requested_bytes + m->rounding_bytes);
  equal(r, "active_bytes.all.current", m->requested_bytes + m->rounding_bytes + m->pending_bytes);
  equal(r, "allocation.all.current", m->live_count);
  /* PyTorch's figure includes what is pending, whose requests the sums do not keep apart. */
  if (stat_of(r, "requested_bytes.all.allocated"))
    assert_in_range(requested, m->requested_bytes, m->requested_bytes + m->pending_bytes);
  if (!expandable) equal(r, "segment.all.current", m->segment_count);
  if (!expandable) equal(r, "inactive_split_bytes.all.current", m->free_pinned_bytes);
  if (json_object_get(json_object_get(r->facts, "stats"), "num_ooms")) equal(r, "num_ooms", p->oom_total);
  assert_int_equal(p->oom_total > 0, json_is_string(json_object_get(r->facts, "error")));
  assert_int_equal(p->event_count, json_integer_value(json_object_get(r->facts, "events")));
  hr_inspection_destroy(p);
}

static void totals_equal_pytorchs(void **unused) {
  (void)unused;
  each_recording("*/*", totals_of);
}

/* Only what a recording saw from its beginning can be known to have been the peak. */
static void peaks_of(const recording *r) {
  hr_inspection *p;
  if (!json_is_true(json_object_get(r->facts, "began_empty"))) return;
  p = inspect(r, HR_AT_PEAK);
  assert_true(p->began_empty);
  /* PyTorch counts a request as long as its block waits for other streams; what the program holds is "allocated", which
   * includes rounding: of that the recording with such waiting has none. */
  if (stat_of(r, "active_bytes.all.peak") == stat_of(r, "allocated_bytes.all.peak"))
    equal(r, "requested_bytes.all.peak", p->peak_live_bytes);
  else equal(r, "allocated_bytes.all.peak", p->peak_live_bytes);
  assert_int_equal(p->at.requested_bytes, p->peak_live_bytes);
  equal(r, "reserved_bytes.all.peak", p->peak_reserved_bytes);
  hr_inspection_destroy(p);
}

static void peaks_equal_pytorchs(void **unused) {
  (void)unused;
  each_recording("*/*", peaks_of);
}

static void instants_of(const recording *r) {
  const hr_memory_sums *m;
  for (uint64_t at = 0; at < r->snapshot->traces[0].count; at += 1 + r->snapshot->traces[0].count / 40) {
    hr_inspection *p = inspect(r, at);
    m = &p->at;
    assert_int_equal(m->requested_bytes + m->rounding_bytes + m->pending_bytes + m->free_returnable_bytes +
                         m->free_pinned_bytes,
                     m->reserved_bytes);
    for (int by = 0; by < HR_BY_COUNT; by++) {
      uint64_t sum = 0;
      for (uint64_t k = 0; k < p->group_count[by]; k++) sum += p->groups[by][k].bytes;
      if (sum != m->requested_bytes)
        fail_msg("%s after %llu events: groups %llu, sums %llu", r->name, (unsigned long long)at,
                 (unsigned long long)sum, (unsigned long long)m->requested_bytes);
    }
    hr_inspection_destroy(p);
  }
}

static void every_instant_adds_up(void **unused) {
  (void)unused;
  each_recording("*/*", instants_of);
}

/* ---- categories ---- */

/* The model of scenarios.py: GPT-2 with biases, an untied head, fp32; `rank`: LoRA on each c_attn, the rest frozen. */
typedef struct shape {
  const char *pattern;
  uint64_t layers, width, heads, vocabulary, length, rank;
  enum { PLAIN, CHECKPOINTED, OTHER } saves; /* what forward keeps; OTHER: not compared */
  uint64_t tokens[8];                        /* of each step, 0 behind the last */
} shape;

static const shape shapes[] = {
    {"2.1*/gpt2", 2, 256, 4, 2048, 256, 0, PLAIN, {2048, 2048, 2048}},
    {"*/gpt2-expandable", 2, 256, 4, 2048, 256, 0, PLAIN, {2048, 2048, 2048}},
    {"*/gpt2-history-started-late", 2, 256, 4, 2048, 256, 0, PLAIN, {2048, 2048, 2048}},
    {"*/gpt2-varied", 2, 256, 4, 2048, 256, 0, PLAIN, {776, 2048, 1440, 264, 1920, 1608}},
    {"*/gpt2-varied-expandable", 2, 256, 4, 2048, 256, 0, PLAIN, {776, 2048, 1440, 264, 1920, 1608}},
    {"*/gpt2-max-split", 2, 256, 4, 2048, 256, 0, PLAIN, {776, 2048, 1440, 264, 1920, 1608}},
    {"*/gpt2-power2", 2, 256, 4, 2048, 256, 0, PLAIN, {776, 2048, 1440, 264, 1920, 1608}},
    {"*/gpt2-collect", 2, 256, 4, 2048, 256, 0, PLAIN, {776, 2048, 1440, 264, 1920, 1608}},
    {"*/gpt2-cpp-stacks", 1, 256, 4, 2048, 256, 0, PLAIN, {2048}},
    {"*/leak", 2, 256, 4, 2048, 256, 0, PLAIN, {512, 512, 512, 512, 512, 512, 512, 512}},
    {"*/evaluation-then-training", 2, 256, 4, 2048, 256, 0, PLAIN, {512, 2048}},
    {"*/checkpointed", 3, 256, 4, 2048, 256, 0, CHECKPOINTED, {2048, 2048}},
    {"*/mixed-precision", 2, 256, 4, 2048, 256, 0, OTHER, {2048, 2048}},
    {"*/lora", 3, 256, 4, 2048, 256, 8, OTHER, {2048, 2048, 2048}},
    {"*/too-big-oom", 2, 256, 4, 2048, 256, 0, PLAIN, {512}},
    {"*/backward-oom", 4, 256, 4, 2048, 256, 0, PLAIN, {128}},
    {"*/fraction-oom", 4, 256, 4, 2048, 256, 0, PLAIN, {128}},
    {"*/optimizer-oom", 2, 512, 4, 8192, 256, 0, PLAIN, {32}},
};
static const shape *current; /* the row that each_recording runs for */

static uint64_t adapter_bytes(const shape *s) { return 4 * s->layers * (s->rank * s->width + 3 * s->width * s->rank); }

static uint64_t parameter_bytes(const shape *s) {
  const uint64_t w = s->width,
                 layer = 12 * w * w + 13 * w; /* two norms 4w, c_attn 3ww + 3w, c_proj ww + w, mlp 8ww + 5w */
  return 4 * (2 * s->vocabulary * w + s->length * w + s->layers * layer + 2 * w) + adapter_bytes(s);
}

static uint64_t trained_bytes(const shape *s) { return s->rank ? adapter_bytes(s) : parameter_bytes(s); }

/* What forward saves for `t` tokens. A layer: both norms' output and statistics, q k v, attention's output and
 * log-sum-exp, two residual sums, the MLP's 4w before and after GELU. Checkpointed: its input only. */
static uint64_t saved_bytes(const shape *s, uint64_t t) {
  const uint64_t w = s->width, layer = s->saves == CHECKPOINTED ? t * w : 16 * t * w + 4 * t + s->heads * t;
  return 4 * (s->layers * layer + 2 * t * w + 2 * t + t * s->vocabulary);
}

static uint64_t bytes_of(const hr_inspection *p, const char *category) {
  for (uint64_t k = 0; k < p->group_count[HR_BY_CATEGORY]; k++)
    if (strcmp(p->categories[p->groups[HR_BY_CATEGORY][k].category], category) == 0)
      return p->groups[HR_BY_CATEGORY][k].bytes;
  return 0;
}

/* Within 1 %: scalars and the positions' indexes are not in the formulas, nor is the 1 MiB that PyTorch before 2.15
 * keeps for cuBLASLt from its first use on, which Python's stacks do not show as a workspace. */
static void near(const recording *r, const hr_inspection *p, const char *category, uint64_t wanted) {
  const uint64_t found = bytes_of(p, category), apart = found > wanted ? found - wanted : wanted - found;
  const uint64_t unseen = strcmp(category, "activation") == 0 && !strstr(r->name, "2.15/") ? MIB : 0;
  if (apart > wanted / 100 + 4096 + unseen)
    fail_msg("%s after event %llu: %s is %llu, not %llu", r->name, (unsigned long long)p->at_event + 1, category,
             (unsigned long long)found, (unsigned long long)wanted);
}

static bool is_forward(uint8_t stage) { return stage == HR_STAGE_FORWARD || stage == HR_STAGE_LOSS; }

/* At the end of each forward, and of each backward: all that its step has made is there. */
static void steps_of(const recording *r) {
  hr_inspection *whole = inspect(r, HR_AT_END);
  const uint8_t *stages = hri_inspection_stages(whole);
  uint64_t forwards = 0, backwards = 0, steps = 0;
  while (steps < 8 && current->tokens[steps]) steps++;
  for (uint64_t k = 1; k < whole->event_count && backwards < steps; k++) {
    const bool forward_ends = is_forward(stages[k - 1]) && stages[k] == HR_STAGE_BACKWARD;
    const bool backward_ends = stages[k - 1] == HR_STAGE_BACKWARD && stages[k] == HR_STAGE_OPTIMIZER;
    hr_inspection *p;
    if (!forward_ends && !backward_ends) continue;
    p = inspect(r, k);
    near(r, p, "parameter", parameter_bytes(current));
    near(r, p, "optimizer_state", backwards ? 2 * trained_bytes(current) : 0);
    near(r, p, "gradient", backward_ends ? trained_bytes(current) : 0);
    if (forward_ends && current->saves != OTHER)
      near(r, p, "activation", saved_bytes(current, current->tokens[forwards]));
    if (backward_ends) near(r, p, "activation", 0);
    forwards += forward_ends;
    backwards += backward_ends;
    hr_inspection_destroy(p);
  }
  if (forwards != steps || backwards != steps)
    fail_msg("%s: %llu forwards, %llu backwards, of %llu steps", r->name, (unsigned long long)forwards,
             (unsigned long long)backwards, (unsigned long long)steps);
  hr_inspection_destroy(whole);
}

static void categories_follow_from_the_shapes(void **unused) {
  (void)unused;
  for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
    current = &shapes[k];
    each_recording(current->pattern, steps_of);
  }
}

/* Where a forward fails, what it made is saved for a backward that never comes: no part of it is temporary. */
static void failure_of(const recording *r) {
  hr_inspection *p = inspect(r, HR_AT_OOM);
  uint64_t rest;
  near(r, p, "parameter", parameter_bytes(current));
  near(r, p, "optimizer_state", 2 * trained_bytes(current));
  rest = p->at.requested_bytes - parameter_bytes(current) - 2 * trained_bytes(current) - bytes_of(p, "workspace");
  if (p->at_stage != HR_STAGE_BACKWARD) near(r, p, "activation", rest);
  else assert_true(bytes_of(p, "activation") > rest * 8 / 10);
  assert_int_equal(bytes_of(p, "gradient"), 0);
  hr_inspection_destroy(p);
}

static void failures_in_forward_show_activations(void **unused) {
  static const char *const names[] = {"*/too-big-oom", "*/backward-oom*", "*/fraction-oom"};
  static shape wide = {.layers = 2, .width = 256, .vocabulary = 2048, .length = 256};
  (void)unused;
  current = &wide;
  for (size_t k = 0; k < 3; k++) {
    wide.layers = k ? 4 : 2;
    each_recording(names[k], failure_of);
  }
}

static void optimizer_failure(const recording *r) {
  const shape large = {.layers = 2, .width = 512, .vocabulary = 8192, .length = 256};
  hr_inspection *p = inspect(r, HR_AT_OOM);
  assert_int_equal(p->at_stage, HR_STAGE_OPTIMIZER);
  near(r, p, "parameter", parameter_bytes(&large));
  near(r, p, "gradient", parameter_bytes(&large));
  near(r, p, "optimizer_state", p->at.requested_bytes - 2 * parameter_bytes(&large));
  hr_inspection_destroy(p);
}

static void without_stacks(const recording *r) {
  hr_inspection *p = inspect(r, HR_AT_PEAK);
  const shape gpt2 = {.layers = 2, .width = 256, .vocabulary = 2048, .length = 256};
  near(r, p, "persistent", 3 * parameter_bytes(&gpt2));
  assert_int_equal(bytes_of(p, "parameter"), 0);
  hr_inspection_destroy(p);
}

static void no_training(const recording *r) {
  hr_inspection *p = inspect(r, HR_AT_OOM);
  assert_int_equal(bytes_of(p, "unknown"), p->at.requested_bytes);
  hr_inspection_destroy(p);
}

static void other_cases(void **unused) {
  (void)unused;
  each_recording("*/optimizer-oom", optimizer_failure);
  each_recording("*/gpt2-no-stacks", without_stacks);
  each_recording("*/fragmented*", no_training);
  each_recording("*/two-streams", no_training);
  each_recording("*/memory-pool", no_training);
}

/* ---- stages, steps, growth ---- */

static bool has_frame(const hr_snapshot *s, uint32_t stack, const char *name) {
  for (uint32_t k = 0; k < s->stacks[stack].count; k++)
    if (strcmp(hr_snapshot_string(s, s->frames[s->stack_frames[s->stacks[stack].first + k]].name), name) == 0)
      return true;
  return false;
}

static void evaluation_of(const recording *r) {
  const hr_snapshot *s = r->snapshot;
  hr_inspection *p = inspect(r, HR_AT_END);
  const uint8_t *stages = hri_inspection_stages(p);
  uint64_t evaluated = 0;
  for (uint64_t k = 0; k < p->event_count; k++) {
    const hr_trace_event *e = &s->events[s->traces[p->trace].first + k];
    bool passes;
    if (e->action != HR_TRACE_ALLOC) continue;
    passes = has_frame(s, e->stack, "<listcomp>") &&
             has_frame(s, e->stack, "forward"); /* the scenario's loop of evaluation */
    if (has_frame(s, e->stack, "forward")) assert_int_equal(stages[k] == HR_STAGE_EVALUATION, passes);
    evaluated += passes;
  }
  assert_true(evaluated > 100);
  hr_inspection_destroy(p);
}

static void evaluation_is_told_from_training(void **unused) {
  (void)unused;
  each_recording("*/evaluation-then-training", evaluation_of);
}

static void leak_of(const recording *r) {
  hr_inspection *p = inspect(r, HR_AT_PEAK);
  assert_int_equal(p->step_count, 8);
  assert_true(p->growth_count > 0);
  assert_int_equal(p->growth[0].kind, HR_GROWTH_LEAK);
  assert_true(has_frame(r->snapshot, p->growth[0].stack, "leak"));
  assert_true(p->growth[0].bytes_per_step == 2.0 * (double)MIB);
  hr_inspection_destroy(p);
}

static void no_leak_of(const recording *r) {
  hr_inspection *p;
  if (strstr(r->name, "/leak")) return;
  p = inspect(r, HR_AT_PEAK);
  for (uint32_t k = 0; k < p->growth_count; k++) assert_int_not_equal(p->growth[k].kind, HR_GROWTH_LEAK);
  hr_inspection_destroy(p);
}

static void varied_of(const recording *r) {
  hr_inspection *p = inspect(r, HR_AT_PEAK);
  assert_int_equal(p->step_count, 6);
  assert_int_equal(p->outlier_step, 1); /* 256 tokens a row, the second of 97, 256, 180, 33, 240, 201 */
  hr_inspection_destroy(p);
}

static void leaks_are_found_and_no_others(void **unused) {
  (void)unused;
  each_recording("*/leak", leak_of);
  each_recording("*/*", no_leak_of);
  each_recording("*/gpt2-varied", varied_of);
}

static void two_runs_compare_by_place(void **unused) {
  recording a = open_recording(DIRECTORY "/2.15/gpt2.pickle.gz"),
            b = open_recording(DIRECTORY "/2.15/gpt2-varied.pickle.gz");
  hr_inspection *x = inspect(&a, HR_AT_PEAK), *y = inspect(&b, HR_AT_PEAK);
  hr_difference *rows;
  hr_error error;
  uint64_t count;
  (void)unused;
  assert_int_equal(hr_inspect_compare(x, y, HR_BY_STACK, &rows, &count, &error), HR_OK);
  /* The longest step is the same in both; only model.to("cuda") is called from another place. */
  assert_int_equal(count, 2);
  assert_int_equal(rows[0].before_bytes + rows[1].before_bytes, rows[0].after_bytes + rows[1].after_bytes);
  hr_free(rows);
  hr_inspection_destroy(x);
  hr_inspection_destroy(y);
  close_recording(&a);
  close_recording(&b);
}

/* ---- words ---- */

static void says(const char *file, uint64_t at, const char *const *wanted) {
  char path[256], *text;
  recording r;
  hr_inspection *p;
  hr_error error;
  (void)snprintf(path, sizeof path, "%s/2.15/%s.pickle.gz", DIRECTORY, file);
  r = open_recording(path);
  p = inspect(&r, at);
  assert_int_equal(hr_inspect_text(p, 0, 0, &text, &error), HR_OK);
  for (int k = 0; wanted[k]; k++)
    if (!strstr(text, wanted[k])) fail_msg("%s: '%s' is not in\n%s", file, wanted[k], text);
  hr_free(text);
  hr_inspection_destroy(p);
  close_recording(&r);
}

static void verdicts_and_places_in_words(void **unused) {
  static const char *const capped[] =
      {"OUT OF MEMORY in ", "NOT THE DEVICE: it has the 24.00 MiB needed; what refused it the snapshot does not say",
       NULL};
  static const char *const segment[] = {"OUT OF MEMORY in forward",
                                        "NEARLY FULL: 22.93 MiB free, in pieces of at most 12.00 MiB",
                                        "adam._init_group < scenarios.py:",
                                        "nn.linear < scenarios.py:",
                                        "  to < scenarios.py:",
                                        NULL};
  static const char *const chunks[] = {"OUT OF MEMORY in backward",
                                       "TOO BIG by 5.36 MiB: 34.64 MiB free, and the device is asked for 40.00 MiB",
                                       "(no stack: the autograd thread)", NULL};
  static const char *const pieces[] = {"FRAGMENTED: 142.00 MiB free, but in pieces of at most 10.00 MiB", NULL};
  static const char *const leak[] = {"GROWS by 2.00 MiB every step", NULL};
  static const char *const native[] = {"  gelu < scenarios.py:", "  linear < scenarios.py:", "  NllLossBackward0\n",
                                       NULL};
  (void)unused;
  says("fraction-oom", HR_AT_OOM, capped);
  says("too-big-oom", HR_AT_OOM, segment);
  says("backward-oom-expandable", HR_AT_OOM, chunks);
  says("fragmented-oom", HR_AT_OOM, pieces);
  says("leak", HR_AT_PEAK, leak);
  says("gpt2-cpp-stacks", HR_AT_PEAK, native);
}

/* A failure within backward, with several steps before: every part of the inspection has something to do. */
static void refused_memory_is_reported(void **unused) {
  recording r = open_recording(DIRECTORY "/2.15/backward-oom-expandable.pickle.gz");
  const uint64_t held = hri_mem_live_bytes();
  hr_status status = HR_ERROR_MEMORY;
  unsigned nth = 0;
  (void)unused;
  while (status == HR_ERROR_MEMORY && nth < 2000) {
    hr_inspection *p = NULL;
    hr_error error;
    hri_mem_fail_after(++nth);
    status = hr_inspect(r.snapshot, NULL, &p, &error);
    hri_mem_fail_after(0);
    hr_inspection_destroy(p);
    assert_int_equal(hri_mem_live_bytes(), held);
  }
  assert_int_equal(status, HR_OK);
  assert_true(nth > 30);
  close_recording(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(totals_equal_pytorchs),
      cmocka_unit_test(peaks_equal_pytorchs),
      cmocka_unit_test(every_instant_adds_up),
      cmocka_unit_test(categories_follow_from_the_shapes),
      cmocka_unit_test(failures_in_forward_show_activations),
      cmocka_unit_test(other_cases),
      cmocka_unit_test(evaluation_is_told_from_training),
      cmocka_unit_test(leaks_are_found_and_no_others),
      cmocka_unit_test(two_runs_compare_by_place),
      cmocka_unit_test(verdicts_and_places_in_words),
      cmocka_unit_test(refused_memory_is_reported),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
