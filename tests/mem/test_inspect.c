/* The inspection of made-up training runs, in which every byte's category is known; stacks as frameworks show them;
 * sums;
 * failures; growth; comparisons; refused memory. */
#include "mem/story.h"

#include <jansson.h>

#include <headroom/explain.h>
#include <headroom/replay.h>

#include "alloc/sizes.h"
#include "inspect/inside.h"
#include "inspect/shortage.h"

/* ---- stacks, innermost first ---- */

#define MAIN ";main@train.py:90;<module>@train.py:120"
#define CALL ";_call_impl@/usr/lib/python3.11/site-packages/torch/nn/modules/module.py:1562"
#define CPP_ALLOC "at::detail::empty_generic(...)@??:0;at::_ops::empty_memory_format::call(...)@??:0;"
#define FORWARD CPP_ALLOC "at::_ops::linear::call(...)@??:0;forward@model.py:31" CALL ";forward@model.py:60" CALL MAIN
#define LOSS "cross_entropy@/usr/lib/python3.11/site-packages/torch/nn/functional.py:3029;forward@model.py:70" CALL MAIN
#define BACKWARD                                                                                                       \
  CPP_ALLOC                                                                                                            \
  "torch::autograd::generated::AddmmBackward0::apply(...)@??:0;torch::autograd::Engine::evaluate_function(...)@??:0;"  \
  "torch::autograd::Engine::thread_main(...)@??:0"
#define PY_BACKWARD                                                                                                                      \
  "_engine_run_backward@/usr/lib/python3.11/site-packages/torch/autograd/graph.py:825;backward@/usr/lib/python3.11/site-packages/torch/" \
  "_tensor.py:581" MAIN
#define OPT_STATE                                                                                                      \
  "_init_group@/usr/lib/python3.11/site-packages/torch/optim/adamw.py:120;step@/usr/lib/python3.11/site-packages/torch/optim/adamw.py:200" MAIN
#define OPT_TEMP                                                                                                       \
  "_multi_tensor_adamw@/usr/lib/python3.11/site-packages/torch/optim/adamw.py:520;step@/usr/lib/python3.11/site-packages/torch/optim/adamw.py:210" MAIN
#define INIT                                                                                                           \
  "_apply@/usr/lib/python3.11/site-packages/torch/nn/modules/module.py:900;to@/usr/lib/python3.11/site-packages/torch/nn/modules/module.py:1170" MAIN
#define DATA "pin_memory@/usr/lib/python3.11/site-packages/torch/utils/data/_utils/pin_memory.py:10" MAIN
#define LEAK "log_metrics@train.py:77" MAIN
#define KEPT "remember@train.py:79" MAIN

/* ---- a training run ---- */

enum { LAYERS = 4, WEIGHT = 3 << 20, ACTIVATION = 5 << 20, LOGITS = 9 << 20 };

typedef struct run_options {
  int steps;
  uint64_t leak_bytes; /* kept every step, or in each `leak_every`th */
  int leak_every;
  int window, flush;     /* a tensor each step, of which the last so many are kept; or all go when there are so many */
  int settle_steps;      /* a cache that grows in so many steps */
  int big_step;          /* whose activations are twice as large; -1: none */
  uint64_t joined_bytes; /* each step joins so much more to a tensor that it makes anew */
  bool beside;           /* ... and another result of the same line lives as long */
  uint64_t hooked_bytes; /* a hook keeps so much of what a layer's backward makes, each step */
  bool longer;           /* batches get longer, step by step, and their logits live until the next ones are there */
  bool no_stacks, python_only, annotate, late_start;
  bool
      loader; /* the annotations that PyTorch makes by itself: each batch of a data loader, each step of an optimizer */
} run_options;

/* What a step leaves for the next one to replace. */
typedef struct carried {
  uint64_t gradients[LAYERS], joined, beside, logits, kept[40];
} carried;

#define S(text) (o->no_stacks ? NULL : (text))

#define LOADER "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"

/* An annotation that begins now and ends so many microseconds later, before anything else is allocated. */
static void span(story *s, const char *name, int64_t duration_us) {
  const uint32_t text = hri_snapshot_add_string(&s->b, name, strlen(name));
  assert_true(hri_snapshot_add_annotation(&s->b, &(hr_annotation){s->now_us + 5, text, 0, false}));
  s->now_us += duration_us;
  assert_true(hri_snapshot_add_annotation(&s->b, &(hr_annotation){s->now_us + 5, text, 0, true}));
}

static void one_step(story *s, const run_options *o, int step, carried *c) {
  uint64_t activations[LAYERS], logits, input, scale = step == o->big_step ? 2 : o->longer ? 1 + (uint64_t)step : 1;
  const char *backward = o->python_only ? NULL : S(BACKWARD);
  if (o->annotate) {
    char name[32];
    uint64_t count = (uint64_t)snprintf(name, sizeof name, "ProfilerStep#%d", step + 3);
    assert_true(
        hri_snapshot_add_annotation(&s->b, &(hr_annotation){s->now_us + 5, hri_snapshot_add_string(&s->b, name, count),
                                                            0, false}));
  }
  if (o->loader) span(s, LOADER, 900);
  input = story_alloc(s, 65536, S(DATA));
  for (int k = 0; k < LAYERS; k++) {
    uint64_t scratch = story_alloc(s, 700001, S(FORWARD));
    activations[k] = story_alloc(s, scale * ACTIVATION, S(FORWARD));
    story_free(s, scratch);
  }
  logits = story_alloc(s, scale * LOGITS, S(LOSS));
  if (o->longer) {
    if (step) story_free(s, c->logits);
    c->logits = logits;
  }
  if (o->leak_bytes && (!o->leak_every || step % o->leak_every == 0)) story_alloc(s, o->leak_bytes, S(LEAK));
  if (o->window && step >= o->window) story_free(s, c->kept[step % o->window]);
  if (o->window) c->kept[step % o->window] = story_alloc(s, MIB, S(KEPT));
  for (int k = 0; o->flush && step && step % o->flush == 0 && k < o->flush; k++) story_free(s, c->kept[k]);
  if (o->flush) c->kept[step % o->flush] = story_alloc(s, MIB, S(KEPT));
  if (step < o->settle_steps) story_alloc(s, 2 * MIB, S("get_mask@masks.py:12" MAIN));
  for (int k = LAYERS - 1; k >= 0; k--) {
    uint64_t temporary = story_alloc(s, scale * 1000000, backward);
    c->gradients[k] = story_alloc(s, WEIGHT, backward);
    if (o->hooked_bytes && k == 0) story_alloc(s, o->hooked_bytes, backward);
    if (k == LAYERS - 1 && !o->longer) story_free(s, logits);
    story_free(s, activations[k]);
    story_free(s, temporary);
  }
  story_free(s, input);
  if (o->joined_bytes) {
    uint64_t joined = story_alloc(s, o->joined_bytes * (1 + (uint64_t)step), S("cat@train.py:70" MAIN));
    if (step) story_free(s, c->joined);
    if (step && o->beside) story_free(s, c->beside);
    c->joined = joined;
    if (o->beside) c->beside = story_alloc(s, 2 * MIB, S("cat@train.py:70" MAIN));
  }
  if (step == 0)
    for (int k = 0; k < 2 * LAYERS; k++) story_alloc(s, WEIGHT, S(OPT_STATE));
  story_free(s, story_alloc(s, 3000000, S(OPT_TEMP)));
  if (o->loader) span(s, "Optimizer.step#AdamW.step", 20);
}

static hr_snapshot *train(const run_options *o) {
  story *s = malloc(sizeof *s);
  carried c = {.joined = 0};
  hr_snapshot *snapshot;
  story_begin(s, 1024 * MIB);
  s->silent_start = o->late_start;
  for (int k = 0; k < LAYERS; k++) story_alloc(s, WEIGHT, S(INIT));
  s->silent_start = false;
  for (int step = 0; step < o->steps; step++) {
    one_step(s, o, step, &c);
    /* zero_grad, but after the last step */
    for (int k = 0; k < LAYERS && step + 1 < o->steps; k++) story_free(s, c.gradients[k]);
  }
  snapshot = story_end(s);
  free(s);
  return snapshot;
}

static hr_inspection *inspect(const hr_snapshot *s, uint64_t at) {
  hr_inspect_options o = {.at = at, .trace = HR_TRACE_MOST, .top = 1000};
  hr_inspection *p;
  hr_error error;
  assert_int_equal(hr_inspect(s, &o, &p, &error), HR_OK);
  return p;
}

/* A story that ends with a refused request, inspected there. The story is gone then; the snapshot is the caller's. */
static hr_inspection *inspect_refused(story *s, uint64_t bytes, const char *stack, hr_snapshot **snapshot) {
  story_event(s, HR_TRACE_OOM, 0, bytes, stack);
  *snapshot = story_end(s);
  free(s);
  return inspect(*snapshot, HR_AT_OOM);
}

static uint64_t bytes_of(const hr_inspection *p, const char *category) {
  for (uint64_t k = 0; k < p->group_count[HR_BY_CATEGORY]; k++)
    if (strcmp(p->categories[p->groups[HR_BY_CATEGORY][k].category], category) == 0)
      return p->groups[HR_BY_CATEGORY][k].bytes;
  return 0;
}

static void check_sums(const hr_memory_sums *m) {
  assert_int_equal(m->requested_bytes + m->rounding_bytes + m->pending_bytes + m->free_returnable_bytes +
                       m->free_pinned_bytes,
                   m->reserved_bytes);
}

static void check_all(const hr_inspection *p) {
  uint64_t largest = 0;
  check_sums(&p->at);
  check_sums(&p->end);
  for (int by = 0; by < HR_BY_COUNT; by++) {
    uint64_t bytes = 0, count = 0;
    for (uint64_t k = 0; k < p->group_count[by]; k++) {
      bytes += p->groups[by][k].bytes;
      count += p->groups[by][k].count;
      if (k) assert_true(p->groups[by][k - 1].bytes >= p->groups[by][k].bytes);
    }
    assert_int_equal(bytes, p->at.requested_bytes);
    assert_int_equal(count, p->at.live_count);
  }
  for (uint32_t k = 0; k < p->largest_count; k++) largest += p->largest[k].bytes;
  if (p->largest_count == p->at.live_count) assert_int_equal(largest, p->at.requested_bytes);
}

static void a_run_with_stacks(void **unused) {
  run_options o = {.steps = 6, .big_step = -1};
  hr_snapshot *s = train(&o);
  hr_inspection *p = inspect(s, HR_AT_PEAK);
  (void)unused;
  check_all(p);
  assert_true(p->began_empty == false); /* the segment was there before the first event */
  assert_int_equal(p->odd_count, 0);
  assert_true(p->categories_inferred);
  assert_int_equal(p->at_stage, HR_STAGE_BACKWARD);
  assert_int_equal(bytes_of(p, "parameter"), LAYERS * WEIGHT);
  assert_int_equal(bytes_of(p, "optimizer_state"), 2 * LAYERS * WEIGHT);
  assert_int_equal(bytes_of(p, "activation"), LAYERS * ACTIVATION + LOGITS);
  assert_int_equal(bytes_of(p, "gradient"), WEIGHT);
  assert_int_equal(bytes_of(p, "temporary"), 1000000);
  assert_int_equal(bytes_of(p, "input"), 65536);
  assert_int_equal(p->at.requested_bytes, p->peak_live_bytes);
  assert_string_equal(p->steps_from, "optimizer stacks");
  assert_int_equal(p->outlier_step, UINT64_MAX);
  for (uint32_t k = 0; k < p->growth_count; k++) assert_int_not_equal(p->growth[k].kind, HR_GROWTH_LEAK);
  hr_inspection_destroy(p);
  p = inspect(s, HR_AT_END);
  check_all(p);
  assert_memory_equal(&p->at, &p->end, sizeof p->at);
  assert_int_equal(bytes_of(p, "gradient"), LAYERS * WEIGHT);
  assert_int_equal(bytes_of(p, "activation"), 0);
  assert_int_equal(p->at_stage, HR_STAGE_OPTIMIZER);
  hr_inspection_destroy(p);
  hr_snapshot_destroy(s);
}

static void every_instant_adds_up(void **unused) {
  run_options o = {.steps = 2, .big_step = -1, .leak_bytes = 1234};
  hr_snapshot *s = train(&o);
  (void)unused;
  for (uint64_t at = 0; at <= s->event_count; at++) {
    hr_inspection *p = inspect(s, at);
    check_all(p);
    assert_int_equal(p->at_event, at - 1);
    hr_inspection_destroy(p);
  }
  {
    hr_inspect_options beyond = {.at = s->event_count + 1};
    hr_inspection *p;
    hr_error error;
    assert_int_equal(hr_inspect(s, &beyond, &p, &error), HR_ERROR_USAGE);
    assert_null(p);
    assert_non_null(strstr(error.hint, "0 (before the first event)"));
    beyond = (hr_inspect_options){.trace = 5};
    assert_int_equal(hr_inspect(s, &beyond, &p, &error), HR_ERROR_USAGE);
  }
  hr_snapshot_destroy(s);
}

static const hr_growth *growth_at(const hr_inspection *p, const char *where) {
  char brief[128];
  for (uint32_t k = 0; k < p->growth_count; k++) {
    hr_inspect_stack_text(p->snapshot, p->growth[k].stack, brief, sizeof brief);
    if (strstr(brief, where)) return &p->growth[k];
  }
  return NULL;
}

static void leaks_caches_and_one_offs(void **unused) {
  run_options o = {.steps = 12, .big_step = -1, .leak_bytes = 300000, .settle_steps = 4};
  hr_snapshot *s = train(&o);
  hr_inspection *p = inspect(s, HR_AT_PEAK);
  const hr_growth *leak = growth_at(p, "log_metrics"), *cache = growth_at(p, "masks.py"),
                  *states = growth_at(p, "_init_group");
  (void)unused;
  assert_non_null(leak);
  assert_int_equal(leak->kind, HR_GROWTH_LEAK);
  assert_true(leak->bytes_per_step == 300000);
  assert_ptr_equal(leak, p->growth); /* leaks come first */
  assert_non_null(cache);
  assert_int_equal(cache->kind, HR_GROWTH_SETTLED);
  if (states) assert_int_equal(states->kind, HR_GROWTH_ONCE);
  assert_null(growth_at(p, "backward"));
  hr_inspection_destroy(p);
  hr_snapshot_destroy(s);
}

/* What a hook keeps of a backward has the stack of its gradients, which are there until the next step: they are no part of it. */
static void a_hook_keeps_beside_gradients(void **unused) {
  enum { STEPS = 8 };
  const run_options o = {.steps = STEPS, .big_step = -1, .hooked_bytes = MIB};
  hr_snapshot *s = train(&o);
  hr_inspection *p = inspect(s, HR_AT_END);
  const hr_growth *leak = growth_at(p, "AddmmBackward0");
  (void)unused;
  assert_non_null(leak);
  assert_int_equal(leak->kind, HR_GROWTH_LEAK);
  assert_int_equal(leak->bytes, STEPS * MIB);
  assert_int_equal(leak->count, STEPS);
  assert_int_equal(leak->steps_grown, STEPS);
  assert_true(leak->bytes_per_step == MIB);
  hr_inspection_destroy(p);
  hr_snapshot_destroy(s);
}

/* What is kept at regular distances is a leak, but for the newest; now and then is none. The last N of something are
 * there from the Nth step on, and what is written out from time to time had its size before: neither grows. */
static void leaks_at_distances_and_windows(void **unused) {
  static const struct {
    run_options o;
    const char *where;
    int found; /* 0: nothing */
    uint64_t count;
  } cases[] = {
      {{.steps = 40, .big_step = -1, .leak_bytes = 300000, .leak_every = 6}, "log_metrics", 1 + HR_GROWTH_LEAK, 6},
      {{.steps = 16, .big_step = -1, .leak_bytes = 300000, .leak_every = 6}, "log_metrics", 1 + HR_GROWTH_LEAK, 2},
      {{.steps = 10, .big_step = -1, .leak_bytes = 300000, .leak_every = 6}, "log_metrics", 0, 0}, /* twice */
      {{.steps = 40, .big_step = -1, .window = 8}, "remember", 1 + HR_GROWTH_SETTLED, 8},
      {{.steps = 40, .big_step = -1, .window = 30}, "remember", 1 + HR_GROWTH_SETTLED, 30},
      {{.steps = 15, .big_step = -1, .window = 11}, "remember", 1 + HR_GROWTH_SETTLED, 11},
      {{.steps = 40, .big_step = -1, .window = 38}, "remember", 1 + HR_GROWTH_SETTLED, 38}, /* two have gone */
      {{.steps = 40, .big_step = -1, .window = 39}, "remember", 1 + HR_GROWTH_LEAK, 39},    /* one, which is no rule */
      {{.steps = 40, .big_step = -1, .flush = 15}, "remember", 1 + HR_GROWTH_SETTLED, 10},
      {{.steps = 26, .big_step = -1, .flush = 15}, "remember", 1 + HR_GROWTH_SETTLED, 11},
  };
  (void)unused;
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
    for (int python_only = 0; python_only < 2; python_only++) {
      run_options o = cases[c].o;
      hr_snapshot *s = (o.python_only = python_only != 0, train(&o));
      hr_inspection *p = inspect(s, HR_AT_PEAK);
      const hr_growth *g = growth_at(p, cases[c].where);
      check_all(p);
      assert_int_equal(g ? 1 + (int)g->kind : 0, cases[c].found);
      if (g) assert_int_equal(g->count, cases[c].count);
      if (g) assert_int_equal(g->bytes, g->count * (o.leak_bytes ? o.leak_bytes : MIB));
      if (g && o.leak_bytes) assert_false(hr_growth_every_step(g));
      hr_inspection_destroy(p);
      hr_snapshot_destroy(s);
    }
}

/* What is kept of some passes, at no regular distance, is growth where it is half of what is live, by three steps or more,
 * the last of them late. */
static void kept_here_and_there(void **unused) {
  static const struct {
    int kept[6];
    uint64_t bytes;
    uint32_t steps; /* 0: no growth */
  } cases[] = {{{3, 5, 12, 27, -1}, 40 * MIB, 4},
               {{3, 5, 12, 27, -1}, 4 * MIB, 0}, /* little of what is live */
               {{3, 5, 12, 17, -1}, 40 * MIB, 0},
               {{5, 27, -1}, 80 * MIB, 0}};
  const run_options o = {.big_step = -1};
  (void)unused;
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    story *s = malloc(sizeof *s);
    carried left = {.joined = 0};
    const hr_growth *g;
    hr_snapshot *snapshot;
    hr_inspection *p;
    story_begin(s, 1024 * MIB);
    for (int step = 0, next = 0; step < 40; step++) {
      if (step == cases[c].kept[next]) story_alloc(s, cases[c].bytes, KEPT), next++;
      one_step(s, &o, step, &left);
      for (int k = 0; k < LAYERS; k++) story_free(s, left.gradients[k]);
    }
    snapshot = story_end(s);
    free(s);
    p = inspect(snapshot, HR_AT_PEAK);
    g = growth_at(p, "remember");
    check_all(p);
    assert_int_equal(g && g->kind == HR_GROWTH_LEAK ? g->steps_grown : 0, cases[c].steps);
    if (cases[c].steps) assert_int_equal(g->bytes, cases[c].steps * cases[c].bytes);
    hr_inspection_destroy(p);
    hr_snapshot_destroy(snapshot);
  }
}

/* The last eight of something, in sizes that differ, and the step that fails makes one that is as large as all of them: the window is
 * full, and this step is what is large. */
static void a_window_and_a_large_step(void **unused) {
  const run_options o = {.big_step = -1};
  uint64_t window[8] = {0};
  carried left = {.joined = 0};
  story *s = malloc(sizeof *s);
  const hr_growth *g;
  hr_snapshot *snapshot;
  hr_inspection *p;
  (void)unused;
  story_begin(s, 1024 * MIB);
  for (int step = 0; step < 40; step++) {
    uint64_t *place = &window[step % 8];
    if (step >= 8 && step + 1 < 40) story_free(s, *place);
    *place = story_alloc(s, step + 1 < 40 ? MIB + 65536 * (uint64_t)(step * 5 % 7) : 16 * MIB, KEPT);
    if (step + 1 == 40) break;
    one_step(s, &o, step, &left);
    for (int k = 0; k < LAYERS; k++) story_free(s, left.gradients[k]);
  }
  for (int k = 0; k < LAYERS; k++) story_alloc(s, ACTIVATION, FORWARD);
  p = inspect_refused(s, LOGITS, LOSS, &snapshot);
  g = growth_at(p, "remember");
  check_all(p);
  assert_non_null(g);
  assert_int_equal(g->kind, HR_GROWTH_SETTLED);
  hr_inspection_destroy(p);
  hr_snapshot_destroy(snapshot);
}

/* A window of varied sizes that fills in step 10 and fails in step 12: as many go as come since, though the step at hand has taken its
 * own already. One that goes is not yet a rule; and leaks that give back one now and then, or are cut once, go on. So does a window
 * whose tensors get larger. A cache of so many bytes may give back several for one that is large. */
static void a_window_that_has_just_filled(void **unused) {
  enum { FULL = 10 };
  static const struct {
    int failed, each, cut; /* the step that fails; one goes in each so many steps; four go in this one */
    bool larger;
    bool settled, gives_back;
  } cases[] = {{13, 1, 0, false, true, true},    {12, 1, 0, false, true, true},    {11, 1, 0, false, false, true},
               {10, 1, 0, false, false, false},  {13, 1, 0, true, false, true},    {30, 1, 0, true, false, true},
               {30, 10, 0, false, false, false}, {30, 0, 14, false, false, false}, {13, 1, 10, false, true, true}};
  const run_options o = {.big_step = -1};
  (void)unused;
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    story *s = malloc(sizeof *s);
    uint64_t kept[40];
    carried left = {.joined = 0};
    int oldest = 0;
    const hr_growth *g;
    hr_snapshot *snapshot;
    hr_inspection *p;
    story_begin(s, 1024 * MIB);
    for (int step = 0; step <= cases[c].failed; step++) {
      story_free(s, story_alloc(s, 65536, DATA));
      kept[step] = story_alloc(s, MIB * (uint64_t)(cases[c].larger ? 1 + step : 1 + step * 5 % 7), KEPT);
      if (step == cases[c].failed) break;
      if (cases[c].each && step >= FULL && (step - FULL) % cases[c].each == 0) story_free(s, kept[oldest++]);
      for (int k = 0; step && step == cases[c].cut && k < 4; k++) story_free(s, kept[oldest++]);
      one_step(s, &o, step, &left);
      for (int k = 0; k < LAYERS; k++) story_free(s, left.gradients[k]);
    }
    for (int k = 0; k < LAYERS; k++) story_alloc(s, ACTIVATION, FORWARD);
    p = inspect_refused(s, LOGITS, LOSS, &snapshot);
    g = growth_at(p, "remember");
    check_all(p);
    assert_non_null(g);
    assert_int_equal(g->kind, cases[c].settled ? HR_GROWTH_SETTLED : HR_GROWTH_LEAK);
    assert_int_equal(g->gives_back, cases[c].gives_back);
    hr_inspection_destroy(p);
    hr_snapshot_destroy(snapshot);
  }
}

/* A program that catches its failure may give up what it kept: what grew up to the failure is what counts there. */
static void growth_up_to_a_failure(void **unused) {
  const run_options o = {.big_step = -1};
  uint64_t kept[14];
  story *s = malloc(sizeof *s);
  carried left = {.joined = 0};
  const hr_growth *g;
  hr_snapshot *snapshot;
  hr_inspection *p;
  (void)unused;
  story_begin(s, 1024 * MIB);
  for (int step = 0; step < 30; step++) {
    if (step == 14) story_event(s, HR_TRACE_OOM, 0, LOGITS, LOSS);
    for (int k = 0; step == 14 && k < 14; k++) story_free(s, kept[k]);
    one_step(s, &o, step, &left);
    for (int k = 0; k < LAYERS; k++) story_free(s, left.gradients[k]);
    if (step < 14) kept[step] = story_alloc(s, 12 * MIB, KEPT);
  }
  snapshot = story_end(s);
  free(s);
  p = inspect(snapshot, HR_AT_OOM);
  g = growth_at(p, "remember");
  check_all(p);
  assert_non_null(g);
  assert_int_equal(g->kind, HR_GROWTH_LEAK);
  assert_int_equal(g->bytes, 14 * 12 * MIB);
  assert_in_range(g->steps_seen, 14, 16);
  hr_inspection_destroy(p);
  p = inspect(snapshot, HR_AT_END); /* nothing is left of it there */
  g = growth_at(p, "remember");
  assert_true(!g || g->kind != HR_GROWTH_LEAK);
  hr_inspection_destroy(p);
  hr_snapshot_destroy(snapshot);
}

/* What the program asks for behind an optimizer's step, in none of its frames, is not the optimizer's; without a module
 * in any stack it may be the next forward. Of a model that is frozen but for its head nearly nothing is freed in backward,
 * and all the same its forward is training. */
static void stages_of_requests(void **unused) {
  static const struct {
    const char *asks, *forward;
    hr_stage stage;
  } cases[] = {{"cat@train.py:90;save@train.py:91" MAIN, FORWARD, HR_STAGE_BETWEEN},
               {"cat@train.py:90;save@train.py:91" MAIN, "attend@train.py:20" MAIN, HR_STAGE_UNKNOWN},
               {OPT_TEMP, FORWARD, HR_STAGE_OPTIMIZER},
               {NULL, FORWARD, HR_STAGE_OPTIMIZER},
               {FORWARD, FORWARD, HR_STAGE_FORWARD}};
  (void)unused;
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    story *s = malloc(sizeof *s);
    hr_snapshot *snapshot;
    hr_inspection *p;
    story_begin(s, 1024 * MIB);
    for (int step = 0; step < 5; step++) {
      uint64_t head;
      for (int k = 0; k < LAYERS; k++) story_free(s, story_alloc(s, ACTIVATION, cases[c].forward)); /* frozen */
      head = story_alloc(s, 4096, cases[c].forward);
      story_alloc(s, 2048, BACKWARD);
      story_free(s, head); /* in backward */
      story_free(s, story_alloc(s, 3000000, OPT_TEMP));
    }
    p = inspect_refused(s, LOGITS, cases[c].asks, &snapshot);
    check_all(p);
    assert_int_equal(p->ooms[0].stage, cases[c].stage);
    assert_int_equal(p->at_stage, cases[c].stage);
    hr_inspection_destroy(p);
    hr_snapshot_destroy(snapshot);
  }
}

/* torch.cat of all so far, in every step; batches that get longer are none, though their logits look alike. */
static void what_is_made_anew_and_larger(void **unused) {
  run_options joins = {.steps = 12, .big_step = -1, .joined_bytes = 4 * MIB},
              longer = {.steps = 12, .big_step = -1, .longer = true};
  hr_snapshot *s;
  hr_inspection *p;
  (void)unused;
  for (int beside = 0; beside < 2; beside++) {
    const hr_growth *g;
    joins.beside = beside != 0;
    s = train(&joins);
    p = inspect(s, HR_AT_PEAK);
    g = growth_at(p, "train.py:70");
    check_all(p);
    assert_ptr_equal(g, p->growth);
    assert_int_equal(g->kind, HR_GROWTH_LARGER);
    assert_true(g->bytes_per_step == 4 * MIB && g->bytes == 11 * 4 * MIB && g->count == 1);
    assert_int_equal(g->steps_seen, 11);
    assert_int_equal(g->steps_grown, 11);
    hr_inspection_destroy(p);
    hr_snapshot_destroy(s);
  }
  s = train(&longer);
  p = inspect(s, HR_AT_PEAK);
  for (uint32_t k = 0; k < p->growth_count; k++) assert_int_not_equal(p->growth[k].kind, HR_GROWTH_LARGER);
  assert_true(p->steps[11].peak_live_bytes > 3 * p->steps[1].peak_live_bytes);
  hr_inspection_destroy(p);
  hr_snapshot_destroy(s);
}

static void steps_come_from_annotations_stacks_or_repetition(void **unused) {
  run_options annotated = {.steps = 8, .big_step = -1, .annotate = true},
              bare = {.steps = 8, .big_step = -1, .no_stacks = true, .leak_bytes = 4096};
  hr_snapshot *s = train(&annotated);
  hr_inspection *p = inspect(s, HR_AT_PEAK);
  (void)unused;
  assert_string_equal(p->steps_from, "annotations");
  assert_int_equal(p->step_count, 8);
  hr_inspection_destroy(p);
  hr_snapshot_destroy(s);
  s = train(&bare);
  p = inspect(s, HR_AT_PEAK);
  check_all(p);
  assert_string_equal(p->steps_from, "repetition");
  assert_in_range(p->step_count, 6, 8);
  assert_true(p->growth_count >= 1);
  assert_int_equal(p->growth[0].kind, HR_GROWTH_LEAK);
  assert_true(p->growth[0].bytes_per_step > 3000 && p->growth[0].bytes_per_step <= 5500);
  hr_inspection_destroy(p);
  hr_snapshot_destroy(s);
}

/* One step of an optimizer that allocates nothing, known by its annotation, and a failure soon behind it: two steps. Without the
 * failure what follows may be the cleaning up. */
static void a_second_step_that_fails_early(void **unused) {
  (void)unused;
  for (int fails = 0; fails < 2; fails++) {
    story *s = malloc(sizeof *s);
    uint64_t made[20];
    hr_snapshot *snapshot;
    hr_inspection *p;
    story_begin(s, 1024 * MIB);
    for (int k = 0; k < LAYERS; k++) story_alloc(s, WEIGHT, INIT);
    for (int k = 0; k < 20; k++) made[k] = story_alloc(s, ACTIVATION, FORWARD);
    for (int k = 19; k >= 0; k--) {
      story_free(s, story_alloc(s, 1000000, BACKWARD));
      story_free(s, made[k]);
    }
    span(s, "Optimizer.step#SGD.step", 1);
    for (int k = 0; k < 2; k++) story_alloc(s, ACTIVATION, FORWARD);
    if (fails) story_event(s, HR_TRACE_OOM, 0, 2000 * MIB, FORWARD);
    snapshot = story_end(s);
    free(s);
    p = inspect(snapshot, fails ? HR_AT_OOM : HR_AT_PEAK);
    assert_int_equal(p->step_count, fails ? 2 : 0);
    if (fails) {
      assert_string_equal(p->steps_from, "annotations");
      assert_true(p->steps[1].first_event <= p->ooms[0].event);
      assert_int_equal(p->steps[0].peak_live_bytes, LAYERS * WEIGHT + 20 * ACTIVATION + 1000000);
    }
    hr_inspection_destroy(p);
    hr_snapshot_destroy(snapshot);
  }
}

static void a_step_that_stands_out(void **unused) {
  run_options o = {.steps = 9, .big_step = 5, .annotate = true};
  hr_snapshot *s = train(&o);
  hr_inspection *p = inspect(s, HR_AT_PEAK);
  (void)unused;
  assert_int_equal(p->outlier_step, 5);
  assert_true(p->usual_peak_bytes < p->steps[5].peak_live_bytes);
  hr_inspection_destroy(p);
  hr_snapshot_destroy(s);
}

/* With stacks="python" backward's thread records none. */
static void a_thread_without_stacks_is_backward(void **unused) {
  run_options o = {.steps = 5, .big_step = -1, .python_only = true};
  hr_snapshot *s = train(&o);
  hr_inspection *p = inspect(s, HR_AT_PEAK);
  (void)unused;
  check_all(p);
  assert_int_equal(p->at_stage, HR_STAGE_BACKWARD);
  assert_int_equal(bytes_of(p, "gradient"), WEIGHT);
  assert_int_equal(bytes_of(p, "temporary"), 1000000);
  hr_inspection_destroy(p);
  hr_snapshot_destroy(s);
}

static void without_stacks_lives_decide(void **unused) {
  run_options o = {.steps = 8, .big_step = -1, .no_stacks = true, .late_start = true};
  hr_snapshot *s = train(&o);
  hr_inspection *p = inspect(s, HR_AT_PEAK);
  (void)unused;
  check_all(p);
  assert_true(p->categories_inferred);
  assert_int_equal(bytes_of(p, "persistent"), 3 * LAYERS * WEIGHT); /* weights, and the states of the first step */
  assert_in_range(bytes_of(p, "activation"), LAYERS * ACTIVATION, LAYERS * ACTIVATION + LOGITS + WEIGHT + 2000000);
  hr_inspection_destroy(p);
  hr_snapshot_destroy(s);
}

/* ---- stacks of frameworks ---- */

typedef struct stack_case {
  const char *text;
  hr_stage stage;
  unsigned marks; /* that must be there */
} stack_case;

#define TORCH "/opt/conda/lib/python3.11/site-packages/torch/"
#define SITE "/opt/conda/lib/python3.11/site-packages/"
static const stack_case stack_cases[] = {
    {FORWARD, HR_STAGE_FORWARD, HRI_MARK_FORWARD},
    {LOSS, HR_STAGE_LOSS, HRI_MARK_LOSS},
    {BACKWARD, HR_STAGE_BACKWARD, HRI_MARK_BACKWARD},
    {PY_BACKWARD, HR_STAGE_BACKWARD, HRI_MARK_BACKWARD},
    {OPT_STATE, HR_STAGE_OPTIMIZER, HRI_MARK_STATE},
    {OPT_TEMP, HR_STAGE_OPTIMIZER, HRI_MARK_OPTIMIZER},
    {INIT, HR_STAGE_INIT, HRI_MARK_INIT},
    {DATA, HR_STAGE_DATA, HRI_MARK_DATA},
    {LEAK, HR_STAGE_UNKNOWN, 0},
    {NULL, HR_STAGE_UNKNOWN, 0},
    /* Lightning: the optimizer's step calls the closure that runs forward */
    {"forward@net.py:3" CALL ";training_step@lit.py:20;closure@" SITE
     "lightning/pytorch/loops/optimization/automatic.py:130;step@" TORCH "optim/adam.py:146;optimizer_step@" SITE
     "lightning/pytorch/core/module.py:1300",
     HR_STAGE_FORWARD, HRI_MARK_FORWARD},
    {"_engine_run_backward@" TORCH "autograd/graph.py:1;backward@" SITE
     "lightning/pytorch/core/module.py:1082;closure@a.py:1;step@" TORCH "optim/adam.py:146",
     HR_STAGE_BACKWARD, HRI_MARK_BACKWARD},
    /* recomputation of a checkpointed block inside backward */
    {"forward@model.py:31" CALL ";recompute_fn@" TORCH "utils/checkpoint.py:1400;unpack_hook@" TORCH
     "utils/checkpoint.py:1100;_engine_run_backward@" TORCH "autograd/graph.py:825",
     HR_STAGE_BACKWARD, HRI_MARK_FORWARD},
    /* an optimizer that runs in hooks of backward */
    {"_single_tensor_adam@" TORCH "optim/adam.py:400;step@" TORCH
     "optim/adam.py:210;hook@t.py:4;_engine_run_backward@" TORCH "autograd/graph.py:825",
     HR_STAGE_OPTIMIZER, HRI_MARK_OPTIMIZER},
    {"torch::autograd::AccumulateGrad::apply(...)@??:0;torch::autograd::Engine::call_function(...)@??:0",
     HR_STAGE_BACKWARD, HRI_MARK_ACCUMULATE},
    {"at::cuda::getCurrentCUDABlasHandle()@??:0;at::cuda::blas::gemm(...)@??:0;forward@m.py:1", HR_STAGE_FORWARD,
     HRI_MARK_WORKSPACE},
    {"c10d::ProcessGroupNCCL::allgather(...)@??:0;all_gather_into_tensor@" TORCH "distributed/distributed_c10d.py:3800",
     HR_STAGE_COMMUNICATION, HRI_MARK_COMMUNICATION},
    {"_all_gather_flat_param@" TORCH "distributed/fsdp/_flat_param.py:1400;unshard@" TORCH
     "distributed/fsdp/_flat_param.py:1300;_pre_forward@" TORCH "distributed/fsdp/_runtime_utils.py:380;forward@" TORCH
     "distributed/fsdp/fully_sharded_data_parallel.py:860",
     HR_STAGE_FORWARD, HRI_MARK_COMMUNICATION},
    {"backward@" SITE "deepspeed/runtime/zero/stage3.py:2200;backward@" SITE "deepspeed/runtime/engine.py:2000",
     HR_STAGE_BACKWARD, HRI_MARK_BACKWARD},
    {"step@" SITE "deepspeed/runtime/zero/stage_1_and_2.py:1800;_take_model_step@" SITE
     "deepspeed/runtime/engine.py:2100",
     HR_STAGE_OPTIMIZER, HRI_MARK_OPTIMIZER},
    {"forward_step@" SITE "megatron/core/pipeline_parallel/schedules.py:200", HR_STAGE_FORWARD, HRI_MARK_FORWARD},
    {"_load_state_dict_into_meta_model@" SITE "transformers/modeling_utils.py:800;from_pretrained@" SITE
     "transformers/modeling_utils.py:3900",
     HR_STAGE_INIT, HRI_MARK_INIT},
    {"update@" SITE "transformers/cache_utils.py:400;forward@" SITE
     "transformers/models/llama/modeling_llama.py:300" CALL ";_sample@" SITE
     "transformers/generation/utils.py:3200;generate@" SITE "transformers/generation/utils.py:2200",
     HR_STAGE_GENERATION, HRI_MARK_CACHE},
    {"forward@" SITE "transformers/models/llama/modeling_llama.py:300" CALL ";prediction_step@" SITE
     "transformers/trainer.py:4300;evaluation_loop@" SITE "transformers/trainer.py:4100;evaluate@" SITE
     "transformers/trainer.py:3900;train@" SITE "transformers/trainer.py:2000",
     HR_STAGE_EVALUATION, HRI_MARK_EVALUATION},
    {"_prepare_inputs@" SITE "transformers/trainer.py:3600;training_step@" SITE "transformers/trainer.py:3700",
     HR_STAGE_DATA, HRI_MARK_DATA},
    {"clip_grad_norm_@" TORCH "nn/utils/clip_grad.py:60;_inner_training_loop@" SITE "transformers/trainer.py:2400",
     HR_STAGE_OPTIMIZER, HRI_MARK_OPTIMIZER},
    /* a profiler's frames, and our own */
    {"<built-in method zeros_like of type object at 0x1>@none:0;torch/optim/adam.py(130): _init_group@none:0;torch/optim/adam.py(210): step@none:0",
     HR_STAGE_OPTIMIZER, HRI_MARK_STATE},
    {"<built-in method run_backward of torch._C._EngineBase object at 0x1>@none:0", HR_STAGE_BACKWARD,
     HRI_MARK_BACKWARD},
    {"nn.Module: Linear_0@none:0;train.py(3): main@none:0", HR_STAGE_FORWARD, HRI_MARK_FORWARD},
    {"layers.0.weight@headroom/name:0;matmul@headroom/op:0;layer 0@headroom/layer:0;backward@headroom/phase:0",
     HR_STAGE_BACKWARD, 0},
    {"forward@headroom/name:0;load@headroom/phase:0", HR_STAGE_INIT, 0},
    {"save@" TORCH "serialization.py:800;_save_checkpoint@" SITE "transformers/trainer.py:3100", HR_STAGE_CHECKPOINT,
     HRI_MARK_CHECKPOINT},
};

static void stacks_of_frameworks(void **unused) {
  story *s = malloc(sizeof *s);
  uint32_t stacks[sizeof stack_cases / sizeof *stack_cases];
  hri_stack_info *infos;
  hr_snapshot *snapshot;
  hr_error error;
  (void)unused;
  story_begin(s, 2 * MIB);
  for (size_t k = 0; k < sizeof stack_cases / sizeof *stack_cases; k++) stacks[k] = story_stack(s, stack_cases[k].text);
  snapshot = story_end(s);
  assert_int_equal(hri_stacks_read(snapshot, &infos, &error), HR_OK);
  for (size_t k = 0; k < sizeof stack_cases / sizeof *stack_cases; k++) {
    const hri_stack_info *info = &infos[stacks[k]];
    if (info->stage != stack_cases[k].stage || (info->marks & stack_cases[k].marks) != stack_cases[k].marks)
      fail_msg("stack %zu is %s with marks %x: %s", k, hr_stage_name((hr_stage)info->stage), info->marks,
               stack_cases[k].text);
  }
  hri_free(infos);
  hr_snapshot_destroy(snapshot);
  free(s);
}

static void stacks_in_short(void **unused) {
  story *s = malloc(sizeof *s);
  /* as PyTorch 2.15 records them with stacks="python" */
  static const struct {
    const char *stack, *brief;
  } python[] = {
      {"forward@torch/nn/modules/linear.py:134" CALL ";forward@train.py:48" CALL ";forward@train.py:61",
       "nn.linear < train.py:48 forward < train.py:61 forward"},
      {"layer_norm@torch/nn/functional.py:2993;forward@torch/nn/modules/normalization.py:228" CALL
       ";forward@train.py:47",
       "layer_norm < train.py:47 forward"},
      {"convert@torch/nn/modules/module.py:1374;_apply@torch/nn/modules/module.py:966;to@torch/nn/modules/module.py:1392;main@train.py:9",
       "to < train.py:9 main"},
      {"_init_group@torch/optim/adam.py:179;step@torch/optim/adam.py:239;wrapper@torch/optim/optimizer.py:567;main@train.py:9",
       "adam._init_group < train.py:9 main"},
      {"at::meta::structured_mm::meta(...)@torch/lib/libtorch_cpu.so:1;at::_ops::mm::call(...)@torch/lib/libtorch_cpu.so:2;"
       "_PyEval_EvalFrameDefault@lib/libpython3.11.so.1.0:3;forward@train.py:7;_start@bin/python3.11:4",
       "mm < train.py:7 forward"}};
  uint32_t pythons[sizeof python / sizeof *python];
  uint32_t forward, loss, none, backward, cut, profiled, ours;
  char brief[100];
  hr_snapshot *snapshot;
  (void)unused;
  story_begin(s, 2 * MIB);
  forward = story_stack(s, FORWARD);
  loss = story_stack(s, LOSS);
  none = story_stack(s, NULL);
  backward = story_stack(s, BACKWARD);
  cut = story_stack(s, "f\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc@:1");
  profiled = story_stack(
      s, "<built-in method zeros_like of type object at 0x7f>@none:0;torch/optim/adam.py(130): _init_group@none:0;"
         "train.py(61): main@none:0;odd(name): x@none:0");
  for (size_t k = 0; k < sizeof python / sizeof *python; k++) pythons[k] = story_stack(s, python[k].stack);
  ours = story_stack(
      s, "layers.0.weight@headroom/name:0;matmul@headroom/op:0;layer 0@headroom/layer:0;backward@headroom/phase:0");
  snapshot = story_end(s);
  hr_inspect_stack_text(snapshot, profiled, brief, sizeof brief);
  assert_string_equal(brief, "zeros_like < train.py:61 main");
  hr_inspect_stack_text(snapshot, ours, brief, sizeof brief);
  assert_string_equal(brief, "layers.0.weight  matmul, layer 0, backward");
  for (size_t k = 0; k < sizeof python / sizeof *python; k++) {
    hr_inspect_stack_text(snapshot, pythons[k], brief, sizeof brief);
    assert_string_equal(brief, python[k].brief);
  }
  hr_inspect_stack_text(snapshot, forward, brief, sizeof brief);
  assert_string_equal(brief, "linear < model.py:31 forward < model.py:60 forward");
  hr_inspect_stack_text(snapshot, loss, brief, sizeof brief);
  assert_string_equal(brief, "cross_entropy < model.py:70 forward < train.py:90 main");
  hr_inspect_stack_text(snapshot, none, brief, sizeof brief);
  assert_string_equal(brief, "(no stack)");
  hr_inspect_stack_text(snapshot, backward, brief, sizeof brief);
  assert_string_equal(brief, "AddmmBackward0");
  hr_inspect_stack_text(snapshot, cut, brief, 5);
  assert_string_equal(brief, "f\xc3\xbc"); /* never half a character */
  hr_snapshot_destroy(snapshot);
  free(s);
}

#define PACKAGE "/usr/lib/python3.11/site-packages/transformers/"
#define DEEP                                                                                                           \
  CPP_ALLOC "at::_ops::linear::call(...)@??:0;forward@" PACKAGE "modeling_llama.py:240" CALL ";forward@" PACKAGE       \
            "modeling_llama.py:300" CALL ";training_step@" PACKAGE "trainer.py:3500;train@" PACKAGE                    \
            "trainer.py:2100;main@finetune.py:88;<module>@finetune.py:120"

/* Beside the allocating frame of a package stands the innermost one of the user's own code, also where room is short;
 * --wide has more. */
static void the_users_own_frame_stands(void **unused) {
  story *s = malloc(sizeof *s);
  hr_snapshot *snapshot;
  hr_inspection *p;
  hr_error error;
  uint32_t deep;
  char brief[100], *text;
  (void)unused;
  story_begin(s, 64 * MIB);
  deep = story_stack(s, DEEP);
  story_alloc(s, 8 * MIB, DEEP);
  snapshot = story_end(s);
  hr_inspect_stack_text(snapshot, deep, brief, sizeof brief);
  assert_string_equal(brief, "linear < modeling_llama.py:240 forward < finetune.py:88 main");
  hr_inspect_stack_text(snapshot, deep, brief, 40);
  assert_string_equal(brief, "linear < finetune.py:88 main");
  hr_inspect_stack_text(snapshot, deep, brief, 22);
  assert_string_equal(brief, "finetune.py:88 main");
  p = inspect(snapshot, HR_AT_PEAK);
  assert_int_equal(hr_inspect_text(p, 0, 0, &text, &error), HR_OK);
  assert_null(strstr(text, "trainer.py:3500"));
  hr_free(text);
  assert_int_equal(hr_inspect_text(p, 0, HR_INSPECT_WIDE, &text, &error), HR_OK);
  assert_non_null(strstr(text,
                         "modeling_llama.py:300 forward < trainer.py:3500 training_step < trainer.py:2100 train < "
                         "finetune.py:88 main"));
  hr_free(text);
  hr_inspection_destroy(p);
  hr_snapshot_destroy(snapshot);
  free(s);
}

/* A row whose tensors are of several categories says so. */
static void mixed_rows_say_so(void **unused) {
  run_options o = {.steps = 3, .big_step = -1};
  hr_snapshot *s = train(&o);
  hr_inspection *p = inspect(s, HR_AT_PEAK);
  hr_error error;
  char *text;
  unsigned mixed = 0, plain = 0;
  (void)unused;
  for (uint64_t k = 0; k < p->group_count[HR_BY_SIZE]; k++) {
    const hr_live_group *g = &p->groups[HR_BY_SIZE][k];
    if (g->size == WEIGHT) assert_true(g->mixed); /* weights and their states */
    if (g->size == LOGITS) assert_false(g->mixed);
    mixed += g->mixed;
    plain += !g->mixed;
  }
  assert_true(mixed && plain);
  for (uint64_t k = 0; k < p->group_count[HR_BY_CATEGORY]; k++) assert_false(p->groups[HR_BY_CATEGORY][k].mixed);
  assert_int_equal(hr_inspect_text(p, 0, 1u << HR_BY_SIZE, &text, &error), HR_OK);
  assert_non_null(strstr(text, ", mixed "));
  hr_free(text);
  hr_inspection_destroy(p);
  hr_snapshot_destroy(s);
}

/* Labels of ours name the step in the stack: the same tensor of two steps is one group. */
static void steps_from_labels(void **unused) {
  story *s = malloc(sizeof *s);
  hr_snapshot *snapshot;
  hr_inspection *p;
  char text[128];
  (void)unused;
  story_begin(s, 1024 * MIB);
  for (int step = 1; step <= 8; step++) {
    for (int k = 0; k < 5; k++) {
      (void)snprintf(text, sizeof text, "h.%d.out@headroom:0;forward@headroom:0;step %d@headroom:0", k, step);
      story_free(s, story_alloc(s, 2 * MIB, text));
    }
    (void)snprintf(text, sizeof text, "loss@headroom:0;forward@headroom:0;step %d@headroom:0", step);
    story_alloc(s, 4096, text);
  }
  snapshot = story_end(s);
  p = inspect(snapshot, HR_AT_END);
  check_all(p);
  assert_string_equal(p->steps_from, "labels");
  assert_int_equal(p->step_count, 8);
  assert_int_equal(p->at_stage, HR_STAGE_FORWARD);
  assert_int_equal(p->group_count[HR_BY_STACK], 1);
  assert_int_equal(p->groups[HR_BY_STACK][0].count, 8);
  assert_int_equal(p->growth_count, 1);
  assert_int_equal(p->growth[0].kind, HR_GROWTH_LEAK);
  assert_true(p->growth[0].bytes_per_step == 4096);
  hr_inspection_destroy(p);
  hr_snapshot_destroy(snapshot);
  free(s);
}

/* ---- failures ---- */

/* Two large segments, 12 MiB free in each but in pieces, and a request of 20 MiB that failed so many times. */
static hr_snapshot *failing_times(uint64_t device_free, uint64_t request, int times) {
  hri_snapshot_builder b;
  hr_snapshot *s;
  hr_error error;
  assert_int_equal(hri_snapshot_build(&b, &error), HR_OK);
  assert_true(hri_snapshot_add_trace(&b, 0));
  for (int k = 0; k < times; k++)
    assert_true(
        hri_snapshot_add_event(&b, &(hr_trace_event){.action = HR_TRACE_OOM, .addr = device_free, .size = request}));
  for (int k = 0; k < 2; k++) {
    uint64_t at = (uint64_t)(k + 1) * 100 * MIB;
    assert_true(hri_snapshot_add_segment(&b, &(hr_segment){.address = at, .total_size = 20 * MIB, .large = true}));
    assert_true(hri_snapshot_add_block(&b, &(hr_block){.address = at, .size = 8 * MIB}));
    assert_true(
        hri_snapshot_add_block(&b, &(hr_block){at + 8 * MIB, 8 * MIB, 8 * MIB - 100, 0, 0, HR_BLOCK_ALLOCATED}));
    assert_true(hri_snapshot_add_block(&b, &(hr_block){.address = at + 16 * MIB, .size = 4 * MIB}));
  }
  assert_true(hri_snapshot_add_segment(&b, &(hr_segment){.address = 400 * MIB, .total_size = 2 * MIB}));
  assert_true(hri_snapshot_add_block(&b, &(hr_block){.address = 400 * MIB, .size = 2 * MIB}));
  assert_int_equal(hri_snapshot_build_end(&b, &s, &error), HR_OK);
  return s;
}

static hr_snapshot *failing(uint64_t device_free, uint64_t request) { return failing_times(device_free, request, 1); }

/* With room on the device a limit is told only where the recording speaks for one, as explain judges it. */
static void a_limit_is_told_where_something_shows_it(void **unused) {
  static const struct {
    int times;
    const char *words, *cause;
  } cases[] = {{1, "NOT THE DEVICE: it has the 30.00 MiB needed; what refused it the snapshot does not say", "unknown"},
               {2, "NOT THE DEVICE: it has the 30.00 MiB needed; most likely a limit", "cap"}};
  (void)unused;
  for (int k = 0; k < 2; k++) {
    hr_snapshot *s = failing_times(40 * MIB, 30 * MIB, cases[k].times);
    hr_inspection *p = inspect(s, HR_AT_OOM);
    hr_explanation *e;
    hr_error error;
    char *text;
    assert_int_equal(hr_inspect_text(p, 0, 0, &text, &error), HR_OK);
    if (!strstr(text, cases[k].words)) fail_msg("'%s' is not in\n%s", cases[k].words, text);
    assert_int_equal(hr_explain_snapshot(&(hr_oom_evidence){.inspection = p}, NULL, &e, &error), HR_OK);
    assert_string_equal(hr_oom_cause_name(e->failures[e->primary].cause), cases[k].cause);
    hr_explanation_destroy(e);
    hr_free(text);
    hr_inspection_destroy(p);
    hr_snapshot_destroy(s);
  }
}

/* Whatever size segments were set to, that is what the driver is asked for; blanks mean nothing in settings, and of two
 * equal keys the last holds. */
static void recorded_settings_say_what_is_asked_of_the_driver(void **unused) {
  static const struct {
    const char *conf;
    uint64_t request, segment;
    const char *words;
  } cases[] =
      {{"", 5 * MIB, 20 * MIB, "NOT THE DEVICE: it has the 20.00 MiB needed; what refused it"},
       {"large_segment_size_mb:64", 5 * MIB, 64 * MIB, "the device is asked for 64.00 MiB"},
       {"large_segment_size_mb:64", 30 * MIB, 30 * MIB, "NOT THE DEVICE: it has the 30.00 MiB needed; what refused it"},
       {"expandable_segments:True,large_segment_size_mb:64", 30 * MIB, 64 * MIB, "the device is asked for 64.00 MiB"},
       {"per_process_memory_fraction : 0.5", 30 * MIB, 30 * MIB, "most likely a limit below its memory"},
       {"per_process_memory_fraction:0.5,per_process_memory_fraction:1.0", 30 * MIB, 30 * MIB, "what refused it"}};
  (void)unused;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    hri_snapshot_builder b;
    hr_snapshot *s;
    hr_inspection *p;
    hr_error error;
    char *text;
    assert_int_equal(hri_snapshot_build(&b, &error), HR_OK);
    b.snapshot->settings =
        (hr_snapshot_settings){.present = true,
                               .text = hri_snapshot_add_string(&b, cases[k].conf, strlen(cases[k].conf)),
                               .max_split_size = -1};
    assert_true(hri_snapshot_add_trace(&b, 0));
    assert_true(
        hri_snapshot_add_event(&b,
                               &(hr_trace_event){.action = HR_TRACE_OOM, .addr = 40 * MIB, .size = cases[k].request}));
    assert_true(
        hri_snapshot_add_segment(&b, &(hr_segment){.address = 100 * MIB, .total_size = 60 * MIB, .large = true}));
    assert_true(hri_snapshot_add_block(&b, &(hr_block){100 * MIB, 60 * MIB, 60 * MIB, 0, 0, HR_BLOCK_ALLOCATED}));
    assert_int_equal(hri_snapshot_build_end(&b, &s, &error), HR_OK);
    p = inspect(s, HR_AT_OOM);
    assert_int_equal(p->fragmentation.segment_bytes, cases[k].segment);
    assert_int_equal(hr_inspect_text(p, 0, 0, &text, &error), HR_OK);
    if (!strstr(text, cases[k].words)) fail_msg("'%s': '%s' is not in\n%s", cases[k].conf, cases[k].words, text);
    hr_free(text);
    hr_inspection_destroy(p);
    hr_snapshot_destroy(s);
  }
}

/* Chunks that lie free of an expandable segment go back, whole ones only. */
static void chunks_are_as_large_as_was_set(void **unused) {
  (void)unused;
  for (int set = 0; set < 2; set++) {
    static const char conf[] = "expandable_segments:True,large_segment_size_mb:64";
    hri_snapshot_builder b;
    hr_snapshot *s;
    hr_inspection *p;
    hr_error error;
    assert_int_equal(hri_snapshot_build(&b, &error), HR_OK);
    b.snapshot->settings = (hr_snapshot_settings){.present = true,
                                                  .text = hri_snapshot_add_string(&b, conf, set ? sizeof conf - 1 : 24),
                                                  .max_split_size = -1};
    assert_true(hri_snapshot_add_segment(&b, &(hr_segment){.address = 1280 * MIB,
                                                           .total_size = 1280 * MIB,
                                                           .large = true,
                                                           .expandable = true}));
    assert_true(hri_snapshot_add_block(&b, &(hr_block){1280 * MIB, 30 * MIB, 30 * MIB, 0, 0, HR_BLOCK_ALLOCATED}));
    assert_true(hri_snapshot_add_block(&b, &(hr_block){.address = 1310 * MIB, .size = 1250 * MIB}));
    assert_int_equal(hri_snapshot_build_end(&b, &s, &error), HR_OK);
    p = inspect(s, HR_AT_END);
    assert_int_equal(p->at.free_returnable_bytes, set ? 1216 * MIB : 1240 * MIB);
    hr_inspection_destroy(p);
    hr_snapshot_destroy(s);
  }
}

/* The free end of an expandable segment is what a request grows from, or goes back to the device: not both. */
static void a_request_grows_from_chunks_or_returns_them(void **unused) {
  static const char conf[] = "expandable_segments:True";
  static const struct {
    uint64_t other, request; /* a free chunk elsewhere; it can go back */
    bool fits;
  } cases[] = {{0, 100 * MIB, false}, {20 * MIB, 100 * MIB, true}, {20 * MIB, 130 * MIB, false}};
  (void)unused;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    hri_snapshot_builder b;
    hr_snapshot *s;
    hr_inspection *p;
    hr_error error;
    assert_int_equal(hri_snapshot_build(&b, &error), HR_OK);
    b.snapshot->settings = (hr_snapshot_settings){.present = true,
                                                  .text = hri_snapshot_add_string(&b, conf, sizeof conf - 1),
                                                  .max_split_size = -1};
    assert_true(hri_snapshot_add_trace(&b, 0));
    assert_true(
        hri_snapshot_add_event(&b,
                               &(hr_trace_event){.action = HR_TRACE_OOM, .addr = 10 * MIB, .size = cases[k].request}));
    assert_true(hri_snapshot_add_segment(&b, &(hr_segment){.address = 1280 * MIB,
                                                           .total_size = 120 * MIB,
                                                           .large = true,
                                                           .expandable = true}));
    assert_true(hri_snapshot_add_block(&b, &(hr_block){1280 * MIB, 30 * MIB, 30 * MIB, 0, 0, HR_BLOCK_ALLOCATED}));
    assert_true(hri_snapshot_add_block(&b, &(hr_block){.address = 1310 * MIB, .size = 90 * MIB}));
    if (cases[k].other) {
      assert_true(hri_snapshot_add_segment(&b, &(hr_segment){.address = 2560 * MIB,
                                                             .total_size = cases[k].other,
                                                             .large = true,
                                                             .expandable = true,
                                                             .stream = 1}));
      assert_true(hri_snapshot_add_block(&b, &(hr_block){.address = 2560 * MIB, .size = cases[k].other}));
    }
    assert_int_equal(hri_snapshot_build_end(&b, &s, &error), HR_OK);
    p = inspect(s, HR_AT_OOM);
    assert_int_equal(p->fragmentation.returnable_bytes, cases[k].other);
    assert_int_equal(p->fragmentation.fits_after_return, cases[k].fits);
    assert_int_equal(p->at.free_returnable_bytes, 80 * MIB + cases[k].other); /* what empty_cache would return */
    hr_inspection_destroy(p);
    hr_snapshot_destroy(s);
  }
}

static void a_request_is_tested_not_guessed(void **unused) {
  hr_snapshot *s = failing(1 * MIB, 20 * MIB);
  hr_inspection *p = inspect(s, HR_AT_OOM);
  const hr_fragmentation *f = &p->fragmentation;
  char *text;
  hr_error error;
  (void)unused;
  check_all(p);
  assert_int_equal(p->oom_count, 1);
  assert_int_equal(f->request_bytes, 20 * MIB);
  assert_int_equal(f->pool_free_bytes, 24 * MIB);
  assert_int_equal(f->pool_largest_free_bytes, 8 * MIB);
  assert_false(f->fits_block);
  assert_true(f->fits_contiguous);
  assert_false(f->fits_after_return); /* 1 + 2 MiB */
  assert_true(f->fits_compacted);
  assert_int_equal(f->pinned_count, 2);
  assert_int_equal(f->pinned[0].free_bytes, 12 * MIB);
  assert_int_equal(f->pinned[0].live_count, 1);
  assert_int_equal(p->at.free_returnable_bytes, 2 * MIB);
  assert_int_equal(p->at.free_pinned_bytes, 24 * MIB);
  assert_int_equal(hr_inspect_text(p, 0, 0, &text, &error), HR_OK);
  assert_non_null(strstr(text, "OUT OF MEMORY: 20.00 MiB asked for, 1.00 MiB free on the device"));
  assert_non_null(strstr(text, "NEARLY FULL: 27.00 MiB free, in pieces of at most 8.00 MiB"));
  hr_free(text);
  hr_inspection_destroy(p);
  hr_snapshot_destroy(s);

  s = failing(1 * MIB, 30 * MIB);
  p = inspect(s, HR_AT_OOM);
  assert_false(p->fragmentation.fits_compacted); /* 1 + 26 MiB */
  assert_int_equal(hr_inspect_text(p, 0, 0, &text, &error), HR_OK);
  assert_non_null(strstr(text, "TOO BIG by 3.00 MiB"));
  hr_free(text);
  hr_inspection_destroy(p);
  hr_snapshot_destroy(s);

  s = failing(19 * MIB, 3 * MIB); /* its segment has 20 MiB */
  p = inspect(s, HR_AT_OOM);
  assert_true(p->fragmentation.fits_block);
  assert_true(p->fragmentation.fits_after_return);
  hr_inspection_destroy(p);
  hr_snapshot_destroy(s);
}

/* A first step that fails in the stage that is named: what became of its tensors nobody saw. */
static void a_trace_that_ends_within_a_step(void **unused) {
  static const struct {
    const char *stack;
    hr_stage stage;
  } ends[] = {{FORWARD, HR_STAGE_FORWARD},
              {LOSS, HR_STAGE_LOSS},
              {BACKWARD, HR_STAGE_BACKWARD},
              {OPT_STATE, HR_STAGE_OPTIMIZER}};
  (void)unused;
  for (int end = 0; end < 4; end++) {
    story *s = malloc(sizeof *s);
    uint64_t activations[LAYERS], logits = 0;
    hr_snapshot *snapshot;
    hr_inspection *p;
    story_begin(s, 1024 * MIB);
    for (int k = 0; k < LAYERS; k++) story_alloc(s, WEIGHT, INIT);
    for (int k = 0; k < LAYERS; k++) activations[k] = story_alloc(s, ACTIVATION, FORWARD);
    if (end >= 1) logits = story_alloc(s, LOGITS, LOSS);
    for (int k = LAYERS - 1; k >= 0 && end >= 2; k--) { /* fails before the last layer when that is the end */
      uint64_t temporary = story_alloc(s, 1000000, BACKWARD);
      story_alloc(s, WEIGHT, BACKWARD);
      if (k == LAYERS - 1) story_free(s, logits);
      if (end == 2 && k == 0) break;
      story_free(s, activations[k]);
      story_free(s, temporary);
    }
    if (end == 3) story_alloc(s, WEIGHT, OPT_STATE), story_alloc(s, 3000000, OPT_TEMP);
    story_event(s, HR_TRACE_OOM, 0, 900 * MIB, ends[end].stack);
    snapshot = story_end(s);
    p = inspect(snapshot, HR_AT_OOM);
    check_all(p);
    assert_int_equal(p->oom_count, 1);
    assert_int_equal(p->ooms[0].stage, ends[end].stage);
    assert_int_equal(p->at_stage, ends[end].stage);
    assert_int_equal(bytes_of(p, "parameter"), LAYERS * WEIGHT);
    assert_int_equal(bytes_of(p, "activation"), end == 2   ? ACTIVATION
                                                : end == 3 ? 0
                                                           : LAYERS * ACTIVATION + (end ? LOGITS : 0));
    assert_int_equal(bytes_of(p, "gradient"), end >= 2 ? LAYERS * WEIGHT : 0); /* by their parameters' size */
    assert_int_equal(bytes_of(p, "temporary"), end == 2 ? 1000000 : end == 3 ? 3000000 : 0);
    assert_int_equal(bytes_of(p, "optimizer_state"), end == 3 ? WEIGHT : 0);
    assert_int_equal(bytes_of(p, "unknown"), 0);
    hr_inspection_destroy(p);
    hr_snapshot_destroy(snapshot);
    free(s);
  }
}

static void segments_are_rounded_as_pytorch_does(void **unused) {
  hr_alloc_config config = hr_alloc_config_default();
  (void)unused;
  assert_int_equal(hri_alloc_driver_bytes(&config, 512), 2 * MIB);
  assert_int_equal(hri_alloc_driver_bytes(&config, MIB), 2 * MIB);
  assert_int_equal(hri_alloc_driver_bytes(&config, MIB + 512), 20 * MIB);
  assert_int_equal(hri_alloc_driver_bytes(&config, 10 * MIB - 512), 20 * MIB);
  assert_int_equal(hri_alloc_driver_bytes(&config, 10 * MIB), 10 * MIB);
  assert_int_equal(hri_alloc_driver_bytes(&config, 11 * MIB), 12 * MIB);
  config.large_segment_bytes = 64 * MIB;
  assert_int_equal(hri_alloc_driver_bytes(&config, MIB), 2 * MIB);
  assert_int_equal(hri_alloc_driver_bytes(&config, 5 * MIB), 64 * MIB);
  config.expandable_segments = true;
  assert_int_equal(hri_alloc_driver_bytes(&config, MIB), 2 * MIB);
  assert_int_equal(hri_alloc_driver_bytes(&config, 65 * MIB), 128 * MIB);
}

/* ---- comparing, printing, memory ---- */

static void comparisons_name_what_changed(void **unused) {
  run_options small = {.steps = 4, .big_step = -1}, large = {.steps = 4, .big_step = 3};
  hr_snapshot *a = train(&small), *b = train(&large);
  hr_inspection *x = inspect(a, HR_AT_PEAK), *y = inspect(b, HR_AT_PEAK);
  hr_difference *rows;
  uint64_t count;
  hr_error error;
  (void)unused;
  for (int by = 0; by < HR_BY_COUNT; by++) {
    int64_t sum = 0;
    assert_int_equal(hr_inspect_compare(x, y, (hr_group_by)by, &rows, &count, &error), HR_OK);
    for (uint64_t k = 0; k < count; k++) sum += (int64_t)(rows[k].after_bytes - rows[k].before_bytes);
    assert_int_equal(sum, (int64_t)(y->at.requested_bytes - x->at.requested_bytes));
    if (by == HR_BY_CATEGORY) {
      assert_string_equal(x->categories[rows[0].before_category], "activation");
      assert_int_equal(rows[0].after_bytes - rows[0].before_bytes, LAYERS * ACTIVATION + LOGITS);
    }
    hr_free(rows);
    assert_int_equal(hr_inspect_compare(x, x, (hr_group_by)by, &rows, &count, &error), HR_OK);
    assert_int_equal(count, 0);
    hr_free(rows);
  }
  hr_inspection_destroy(x);
  hr_inspection_destroy(y);
  hr_snapshot_destroy(a);
  hr_snapshot_destroy(b);
}

static void texts_and_json(void **unused) {
  run_options o = {.steps = 12, .big_step = -1, .leak_bytes = 300000, .settle_steps = 4};
  hr_snapshot *s = train(&o);
  hr_inspection *p = inspect(s, HR_AT_PEAK);
  char *text;
  hr_error error;
  json_t *root, *at;
  int lines = 0;
  (void)unused;
  assert_int_equal(hr_inspect_text(p, 0, 0, &text, &error), HR_OK);
  assert_int_equal(strncmp(text, "PEAK after event", 16), 0);
  assert_non_null(strstr(text, "GROWS by 292.97 KiB every step"));
  assert_non_null(strstr(text, "live by category (inferred)"));
  assert_non_null(strstr(text, "linear < model.py:31 forward"));
  if (getenv("SHOW")) (void)fputs(text, stderr);
  for (const char *line = text; *line; line += strcspn(line, "\n") + 1, lines++)
    assert_true(strcspn(line, "\n") <= 110);
  assert_true(lines <= 50);
  if (getenv("SHOW")) (void)fputs(text, stderr);
  hr_free(text);
  assert_int_equal(hr_inspect_text(p, 3, 1 << HR_BY_SIZE, &text, &error), HR_OK);
  assert_non_null(strstr(text, "live by size"));
  assert_null(strstr(text, "live by stack"));
  hr_free(text);
  assert_int_equal(hr_inspect_json(p, 5, &text, &error), HR_OK);
  root = json_loads(text, 0, NULL);
  assert_non_null(root);
  at = json_object_get(root, "at");
  assert_int_equal(json_integer_value(json_object_get(at, "requested_bytes")), p->at.requested_bytes);
  assert_int_equal(json_array_size(json_object_get(root, "by_stack")), 5);
  assert_int_equal(json_array_size(json_object_get(root, "steps")), p->step_count);
  json_decref(root);
  hr_free(text);
  hr_inspection_destroy(p);
  hr_snapshot_destroy(s);
}

/* A snapshot with nothing in it, one with no events, one that a profiler made. */
static void little_is_enough(void **unused) {
  hri_snapshot_builder b;
  hr_snapshot *s;
  hr_inspection *p;
  char *text;
  hr_error error;
  (void)unused;
  for (int with = 0; with < 3; with++) {
    assert_int_equal(hri_snapshot_build(&b, &error), HR_OK);
    if (with == 2) {
      b.snapshot->format = "pytorch-profiler";
      assert_true(hri_snapshot_add_trace(&b, -1));
      assert_true(hri_snapshot_add_event(&b, &(hr_trace_event){.action = HR_TRACE_ALLOC,
                                                               .addr = 1,
                                                               .size = 77,
                                                               .flags = HR_EVENT_NO_ADDRESS}));
    }
    if (with) {
      assert_true(
          hri_snapshot_add_segment(&b,
                                   &(hr_segment){.address = MIB, .total_size = 2 * MIB, .device = with == 2 ? -1 : 3}));
      assert_true(hri_snapshot_add_block(&b, &(hr_block){MIB, 2 * MIB, 5, 0, 0,
                                                         with == 2 ? HR_BLOCK_INACTIVE : HR_BLOCK_PENDING_FREE}));
    }
    assert_int_equal(hri_snapshot_build_end(&b, &s, &error), HR_OK);
    assert_int_equal(hr_inspect(s, NULL, &p, &error), HR_OK);
    check_all(p);
    assert_int_equal(p->at.pending_bytes, with == 1 ? 2 * MIB : 0);
    assert_int_equal(p->at.requested_bytes, with == 2 ? 77 : 0);
    assert_int_equal(p->device, with == 1 ? 3 : with == 2 ? -1 : 0);
    assert_int_equal(hr_inspect_text(p, 0, 7, &text, &error), HR_OK);
    assert_int_equal(strncmp(text, with == 2 ? "PEAK " : "LAST STATE: ", 5), 0);
    assert_int_equal(strstr(text, "_record_memory_history") == NULL, with == 2);
    hr_free(text);
    assert_int_equal(hr_inspect_json(p, 0, &text, &error), HR_OK);
    hr_free(text);
    hr_inspection_destroy(p);
    hr_snapshot_destroy(s);
  }
}

/* A million references to one name of a megabyte: it is not read a million times. */
static void long_names_are_cut(void **unused) {
  story *s = malloc(sizeof *s);
  char *name = malloc(MIB + 1), *text;
  uint32_t string, frame, stack;
  hr_snapshot *snapshot;
  hr_inspection *p;
  hr_error error;
  (void)unused;
  memset(name, 'x', MIB);
  name[MIB] = 0;
  story_begin(s, 2 * MIB);
  string = hri_snapshot_add_string(&s->b, name, MIB);
  for (uint32_t k = 0; k < 200000; k++) {
    frame = hri_snapshot_add_frame(&s->b, string, string, k);
    stack = hri_snapshot_add_stack(&s->b, &frame, 1);
    assert_true(hri_snapshot_add_event(&s->b, &(hr_trace_event){.action = HR_TRACE_FREE_REQUESTED,
                                                                .addr = 512,
                                                                .size = 8,
                                                                .stack = stack}));
    assert_true(hri_snapshot_add_annotation(&s->b, &(hr_annotation){.name = string}));
  }
  s->blocks[0].state = HR_BLOCK_ALLOCATED;
  s->blocks[0].stack = stack;
  s->blocks[0].requested_size = 1;
  snapshot = story_end(s);
  p = inspect(snapshot, HR_AT_END);
  assert_int_equal(hr_inspect_text(p, 0, 0, &text, &error), HR_OK);
  assert_true(strlen(text) < 8192);
  hr_free(text);
  assert_int_equal(hr_inspect_json(p, 0, &text, &error), HR_OK);
  assert_true(strlen(text) < 65536);
  hr_free(text);
  hr_inspection_destroy(p);
  hr_snapshot_destroy(snapshot);
  free(name);
  free(s);
}

static uint64_t dice(uint64_t *seed, uint64_t sides) {
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return (*seed >> 33) % sides;
}

/* Events, blocks and annotations without rhyme or reason: every answer is one, and its parts add up. */
static void nonsense_is_inspected(void **unused) {
  static const char *const stacks[] = {NULL, FORWARD, BACKWARD, OPT_TEMP, OPT_STATE, LOSS, INIT, DATA, LEAK};
  uint64_t seed = 99;
#define DICE(n) dice(&seed, (n))
  (void)unused;
  for (int round = 0; round < 400; round++) {
    story *s = malloc(sizeof *s);
    hr_snapshot *snapshot;
    hr_inspection *p;
    hr_error error;
    char *text;
    story_begin(s, 8 * MIB);
    s->with_time = DICE(2);
    for (int k = 0; k < 120; k++) {
      uint64_t addr = DICE(12) ? s->segment_address + DICE(24) * MIB / 2 : UINT64_MAX - DICE(4096);
      story_event(s, (hr_trace_action)(DICE(HR_TRACE_ACTION_COUNT)), addr,
                  DICE(15) ? DICE(3 * MIB) : UINT64_MAX / (1 + DICE(5)), stacks[DICE(9)]);
      if (DICE(10) == 0) {
        hr_annotation a = {.time_us = DICE(4) ? s->now_us : (int64_t)(seed),
                           .device = (int32_t)(DICE(3)) - 1,
                           .end = DICE(2)};
        a.name = hri_snapshot_add_string(&s->b, "step 12", 4 + DICE(4));
        assert_true(hri_snapshot_add_annotation(&s->b, &a));
      }
    }
    for (int k = 0; k < 6; k++) {
      s->blocks[k] = (hr_block){s->segment_address + (uint64_t)k * MIB, MIB, DICE(2 * MIB), 0, 0, (uint8_t)(DICE(3))};
      s->count = k + 1;
    }
    s->segment_bytes = 6 * MIB;
    snapshot = story_end(s);
    for (int at = 0; at < 4; at++) {
      static const uint64_t instants[] = {HR_AT_OOM, HR_AT_PEAK, HR_AT_END, 60};
      hr_inspect_options o = {.at = instants[at], .exact_only = DICE(4) == 0};
      assert_int_equal(hr_inspect(snapshot, &o, &p, &error), HR_OK);
      check_sums(&p->at);
      check_sums(&p->end);
      assert_int_equal(hr_inspect_text(p, 0, 7, &text, &error), HR_OK);
      hr_free(text);
      assert_int_equal(hr_inspect_json(p, 0, &text, &error), HR_OK);
      hr_free(text);
      hr_inspection_destroy(p);
    }
    hr_snapshot_destroy(snapshot);
    free(s);
  }
#undef DICE
}

static void refused_memory_is_an_error(void **unused) {
  run_options o = {.steps = 5, .big_step = -1, .leak_bytes = 4096, .annotate = true};
  hr_snapshot *s = train(&o);
  uint64_t held = hri_mem_live_bytes(), nth = 1;
  (void)unused;
  for (;; nth++) {
    hr_inspection *p = NULL;
    hr_difference *rows = NULL;
    uint64_t count;
    char *text = NULL, *json = NULL;
    hr_error error;
    hr_status status;
    hri_mem_fail_after(nth);
    status = hr_inspect(s, NULL, &p, &error);
    if (status == HR_OK) status = hr_inspect_text(p, 0, 7, &text, &error);
    if (status == HR_OK) status = hr_inspect_json(p, 0, &json, &error);
    if (status == HR_OK) status = hr_inspect_compare(p, p, HR_BY_STACK, &rows, &count, &error);
    hri_mem_fail_after(0);
    hr_free(rows);
    hr_free(text);
    hr_free(json);
    hr_inspection_destroy(p);
    assert_int_equal(hri_mem_live_bytes(), held);
    if (status == HR_OK) break;
    assert_int_equal(status, HR_ERROR_MEMORY);
  }
  assert_true(nth > 30);
  hr_snapshot_destroy(s);
}

/* ---- passes without training ---- */

#define LOOP ";loop@eval.py:12;<module>@eval.py:20"
#define BATCH "make_batch@eval.py:10;loop@eval.py:11;<module>@eval.py:20"
#define EMBEDDING                                                                                                      \
  CPP_ALLOC "embedding@/usr/lib/python3.11/site-packages/torch/nn/functional.py:2551;forward@model.py:55" CALL LOOP
#define LAYER CPP_ALLOC "at::_ops::linear::call(...)@??:0;forward@model.py:31" CALL ";forward@model.py:60" CALL LOOP
#define NORM CPP_ALLOC "at::_ops::layer_norm::call(...)@??:0;forward@model.py:33" CALL ";forward@model.py:60" CALL LOOP
#define HEAD CPP_ALLOC "at::_ops::linear::call(...)@??:0;forward@model.py:66" CALL LOOP
#define KV                                                                                                             \
  "update@/usr/lib/python3.11/site-packages/transformers/cache_utils.py:120;forward@model.py:40" CALL                  \
  ";forward@model.py:60" CALL LOOP

typedef enum keeping { KEEPS_NOTHING, KEEPS_GRAPH, KEEPS_OUTPUTS, KEEPS_CACHE, KEEPS_CACHE_ANEW } keeping;

enum { SEQUENCE = 24 }; /* passes of a sequence that is generated: KEEPS_CACHE_ANEW begins another one then */

typedef struct evaluation {
  int steps, passes; /* of training, which go before; of the model, of which the last fails */
  keeping keep;
  int batches; /* tensors that one line makes for each pass */
  int unseen;  /* passes before the recording begins */
  bool midway; /* ... and half of the layers of the next one */
  int last;    /* of the outputs that are kept only so many are */
  bool fall;   /* they go with the exception */
  bool pairs;  /* a line joins keys and values before it lets go of the old ones */
  bool loader; /* a data loader gives the batches, and an optimizer says when it steps */
} evaluation;

static hr_snapshot *evaluate_as(const evaluation *e) {
  const int steps = e->steps, passes = e->passes, batches = e->batches;
  const keeping keep = e->keep;
  run_options o = {.steps = steps, .big_step = -1, .loader = e->loader};
  story *s = malloc(sizeof *s);
  carried c = {.joined = 0};
  uint64_t cache[LAYERS] = {0}, values[LAYERS] = {0}, outputs[128], out = 0;
  hr_snapshot *snapshot;
  story_begin(s, 2048 * MIB);
  s->silent_start = e->unseen > 0;
  for (int k = 0; k < LAYERS; k++) story_alloc(s, WEIGHT, INIT);
  for (int step = 0; step < steps; step++) {
    one_step(s, &o, step, &c);
    for (int k = 0; k < LAYERS; k++) story_free(s, c.gradients[k]);
  }
  for (int pass = 0; pass < passes; pass++) {
    uint64_t batch[4], made[2 * LAYERS + 1];
    if (pass == e->unseen && !e->midway) s->silent_start = false;
    if (e->loader) span(s, LOADER, 900);
    for (int n = 0; n < batches; n++) batch[n] = story_alloc(s, 65536, BATCH);
    made[0] = story_alloc(s, ACTIVATION, EMBEDDING);
    for (int k = 0; k < LAYERS; k++) {
      if (pass == e->unseen && k == LAYERS / 2) s->silent_start = false;
      made[2 * k + 1] = story_alloc(s, ACTIVATION, LAYER);
      made[2 * k + 2] = story_alloc(s, ACTIVATION / 2, NORM);
      if (keep != KEEPS_CACHE && keep != KEEPS_CACHE_ANEW) continue;
      uint64_t larger =
          story_alloc(s, (uint64_t)MIB * (uint64_t)((keep == KEEPS_CACHE ? pass : pass % SEQUENCE) + 1), KV);
      const uint64_t other = e->pairs ? story_alloc(s, (uint64_t)MIB * (uint64_t)(pass + 1), KV) : 0;
      if (cache[k]) story_free(s, cache[k]);
      if (values[k]) story_free(s, values[k]);
      cache[k] = larger;
      values[k] = other;
    }
    if (pass + 1 == passes) break; /* it fails here */
    uint64_t next = story_alloc(s, LOGITS, HEAD);
    if (out && keep != KEEPS_OUTPUTS && keep != KEEPS_GRAPH) story_free(s, out);
    out = next;
    outputs[pass] = out;
    if (e->last && pass >= e->last) story_free_at(s, outputs[pass - e->last], BATCH);
    for (int k = 0; k < 2 * LAYERS + 1 && keep != KEEPS_GRAPH; k++) story_free(s, made[k]);
    for (int n = 0; n < batches; n++) story_free(s, batch[n]);
  }
  story_event(s, HR_TRACE_OOM, 0, LOGITS, HEAD);
  for (int pass = e->last ? passes - 1 - e->last : 0; e->fall && pass < passes - 1; pass++)
    story_free(s, outputs[pass]);
  snapshot = story_end(s);
  free(s);
  return snapshot;
}

static hr_snapshot *evaluate_batches(int steps, int passes, keeping keep, int batches) {
  return evaluate_as(&(evaluation){.steps = steps, .passes = passes, .keep = keep, .batches = batches});
}

static hr_snapshot *evaluate(int steps, int passes, keeping keep) { return evaluate_batches(steps, passes, keep, 1); }

static double per_pass(const hr_inspection *p, hr_growth_kind kind) {
  double bytes = 0;
  for (uint32_t k = 0; k < p->growth_count; k++)
    if (p->growth[k].kind == kind) bytes += p->growth[k].bytes_per_step;
  return bytes;
}

/* The batches of a data loader are steps of training only where nothing tells those of an optimizer: in evaluation they are
 * passes, be reading them what takes most time. */
static void batches_of_a_loader_are_no_steps(void **unused) {
  hr_snapshot *s =
      evaluate_as(&(evaluation){.steps = 4, .passes = 9, .keep = KEEPS_OUTPUTS, .batches = 1, .loader = true});
  hr_inspection *p = inspect(s, HR_AT_OOM);
  (void)unused;
  assert_string_equal(p->steps_from, "annotations");
  assert_in_range(p->step_count, 4, 5); /* what follows the last one is evaluation, or a step that did not end */
  assert_int_equal(p->growth[0].kind, HR_GROWTH_OUTPUTS);
  assert_true(per_pass(p, HR_GROWTH_OUTPUTS) == (double)LOGITS);
  hr_inspection_destroy(p);
  hr_snapshot_destroy(s);
  s = evaluate_as(&(evaluation){.passes = 9, .keep = KEEPS_OUTPUTS, .batches = 1, .loader = true}); /* no optimizer */
  p = inspect(s, HR_AT_OOM);
  assert_int_equal(p->step_count, 9);
  hr_inspection_destroy(p);
  hr_snapshot_destroy(s);
}

/* A ring of events holds the last tokens of a long text: what the cache had when it begins grew before, token by token. */
static void a_cache_grew_before_the_recording(void **unused) {
  for (int way = 0; way < 4; way++) {
    const bool pairs = way & 1;
    const int unseen = way & 2 ? 40 : 0;
    hr_snapshot *s =
        evaluate_as(&(evaluation){.passes = 60, .keep = KEEPS_CACHE, .batches = 1, .unseen = unseen, .pairs = pairs});
    hr_inspection *p = inspect(s, HR_AT_OOM);
    uint64_t bytes = 0;
    (void)unused;
    for (uint32_t k = 0; k < p->growth_count; k++)
      if (p->growth[k].kind == HR_GROWTH_CACHE) bytes += p->growth[k].bytes;
    assert_int_equal(bytes, (uint64_t)LAYERS * (pairs ? 2 : 1) * (unseen ? 60 : 59) * MIB);
    assert_true(per_pass(p, HR_GROWTH_CACHE) == (double)LAYERS * (pairs ? 2 : 1) * MIB);
    hr_inspection_destroy(p);
    hr_snapshot_destroy(s);
  }
}

/* ... and so did a list of outputs; but not the last N of them. */
static void outputs_piled_up_before_the_recording(void **unused) {
  enum { PASSES = 40, UNSEEN = 30 };
  (void)unused;
  for (int last = 0; last <= 20; last += 20) {
    hr_snapshot *s = evaluate_as(&(evaluation){
        .passes = PASSES, .keep = KEEPS_OUTPUTS, .batches = 1, .unseen = UNSEEN, .last = last, .fall = true});
    hr_inspection *p = inspect(s, HR_AT_OOM);
    assert_int_equal(p->growth_count && hr_growth_goes_on(p->growth[0].kind), !last);
    if (!last) {
      assert_int_equal(p->growth[0].kind, HR_GROWTH_OUTPUTS);
      assert_int_equal(p->growth[0].from_before, UNSEEN);
      assert_int_equal(p->growth[0].bytes, (uint64_t)(PASSES - 2) * LOGITS);
    }
    hr_inspection_destroy(p);
    hr_snapshot_destroy(s);
  }
}

/* A ring of events begins within a pass, at a layer whose stack comes several times in each. */
static void a_ring_begins_within_a_pass(void **unused) {
  const double graph = ACTIVATION + LAYERS * (ACTIVATION + ACTIVATION / 2) + LOGITS;
  (void)unused;
  for (int batches = 1; batches < 3; batches++) {
    hr_snapshot *s =
        evaluate_as(&(evaluation){.passes = 12, .keep = KEEPS_GRAPH, .batches = batches, .unseen = 2, .midway = true});
    hr_inspection *p = inspect(s, HR_AT_OOM);
    assert_int_equal(p->growth_count ? p->growth[0].kind : HR_GROWTH_ONCE, HR_GROWTH_GRAPH);
    assert_int_equal(p->growth[0].steps_seen, 9);
    assert_true(per_pass(p, HR_GROWTH_GRAPH) == graph);
    hr_inspection_destroy(p);
    hr_snapshot_destroy(s);
  }
}

/* Evaluation that keeps its graph or its outputs, generation whose cache grows: with and without training before. */
static void growth_within_a_step(void **unused) {
  const double graph = ACTIVATION + LAYERS * (ACTIVATION + ACTIVATION / 2) + LOGITS;
  (void)unused;
  for (int steps = 0; steps < 4; steps += 3) {
    hr_snapshot *s = evaluate(steps, 9, KEEPS_GRAPH);
    hr_inspection *p = inspect(s, HR_AT_OOM);
    assert_int_equal(p->growth[0].kind, HR_GROWTH_GRAPH);
    assert_int_equal(p->growth[0].steps_seen, 9);
    assert_true(per_pass(p, HR_GROWTH_GRAPH) == graph);
    assert_int_not_equal(p->ooms[0].stage, HR_STAGE_EVALUATION); /* it may be training that sums losses */
    assert_int_equal(p->growth[0].may_train, steps == 0);
    hr_inspection_destroy(p);
    hr_snapshot_destroy(s);
    s = evaluate_batches(steps, 9, KEEPS_GRAPH, 3); /* x, y, weights = ... */
    p = inspect(s, HR_AT_OOM);
    assert_int_equal(p->growth_count ? p->growth[0].kind : HR_GROWTH_ONCE, HR_GROWTH_GRAPH);
    assert_true(per_pass(p, HR_GROWTH_GRAPH) == graph);
    hr_inspection_destroy(p);
    hr_snapshot_destroy(s);
    s = evaluate(steps, 9, KEEPS_OUTPUTS);
    p = inspect(s, HR_AT_OOM);
    assert_int_equal(p->growth[0].kind, HR_GROWTH_OUTPUTS);
    assert_true(per_pass(p, HR_GROWTH_OUTPUTS) == (double)LOGITS);
    assert_non_null(growth_at(p, "model.py:66"));
    hr_inspection_destroy(p);
    hr_snapshot_destroy(s);
    s = evaluate(steps, 20, KEEPS_CACHE);
    p = inspect(s, HR_AT_OOM);
    assert_int_equal(p->growth[0].kind, HR_GROWTH_CACHE);
    assert_true(per_pass(p, HR_GROWTH_CACHE) == (double)LAYERS * (1 << 20));
    assert_int_equal(p->ooms[0].stage, HR_STAGE_GENERATION);
    hr_inspection_destroy(p);
    hr_snapshot_destroy(s);
    s = evaluate(steps, 3 * SEQUENCE - 4, KEEPS_CACHE_ANEW); /* two sequences went well, the third is no longer */
    p = inspect(s, HR_AT_OOM);
    for (uint32_t k = 0; k < p->growth_count; k++) assert_false(hr_growth_goes_on(p->growth[k].kind));
    hr_inspection_destroy(p);
    hr_snapshot_destroy(s);
    s = evaluate(steps, 9, KEEPS_NOTHING);
    p = inspect(s, HR_AT_OOM);
    for (uint32_t k = 0; k < p->growth_count; k++) assert_false(hr_growth_goes_on(p->growth[k].kind));
    hr_inspection_destroy(p);
    hr_snapshot_destroy(s);
    s = evaluate(steps, 1, KEEPS_GRAPH); /* one pass: its layers are no passes */
    p = inspect(s, HR_AT_OOM);
    for (uint32_t k = 0; k < p->growth_count; k++) assert_false(hr_growth_goes_on(p->growth[k].kind));
    hr_inspection_destroy(p);
    hr_snapshot_destroy(s);
  }
}

#define CELL CPP_ALLOC "at::_ops::gru_cell::call(...)@??:0;forward@model.py:71" CALL LOOP
#define GATE CPP_ALLOC "at::_ops::mul::call(...)@??:0;forward@model.py:71" CALL LOOP
#define HIDDEN CPP_ALLOC "at::_ops::add::call(...)@??:0;forward@model.py:72" CALL LOOP
#define TALLY "tally@eval.py:15;loop@eval.py:13;<module>@eval.py:20"
#define SAMPLE "normal@act.py:17;sample@act.py:21" LOOP
#define TABLE "enlarge@eval.py:17;loop@eval.py:16;<module>@eval.py:20"

/* A model whose first place makes two tensors a pass; the program makes something in each pass, and in each tenth. The
 * graph is kept, with the gate or without, and by backwards too, or a table is made anew in each fourth pass, larger. */
static hr_snapshot *tick(int passes, bool graph, bool gate, bool backwards) {
  story *s = malloc(sizeof *s);
  uint64_t table = 0;
  hr_snapshot *snapshot;
  story_begin(s, 2048 * MIB);
  for (int k = 0; k < LAYERS; k++) story_alloc(s, WEIGHT, INIT);
  for (int pass = 0; pass < passes; pass++) {
    uint64_t batch = story_alloc(s, 65536, BATCH), made[4], larger;
    made[0] = story_alloc(s, ACTIVATION, CELL);
    made[1] = story_alloc(s, ACTIVATION, CELL);
    made[2] = story_alloc(s, ACTIVATION / 2, GATE);
    if (pass + 1 == passes) break;
    made[3] = story_alloc(s, ACTIVATION / 2, HIDDEN);
    for (int k = 0; k < 4; k++)
      if (!graph || (k == 2 && !gate)) story_free(s, made[k]);
    story_free(s, batch);
    if (backwards) story_free(s, story_alloc(s, WEIGHT, BACKWARD));         /* retain_graph=True */
    for (int k = 0; k < 2; k++) story_free(s, story_alloc(s, 512, SAMPLE)); /* of one line: it tells no pass */
    if (pass % 10 == 9) story_free(s, story_alloc(s, 512, TALLY));
    if (graph || pass % 4 != 3) continue;
    larger = story_alloc(s, (uint64_t)(pass + 1) * MIB, TABLE);
    if (table) story_free(s, table);
    table = larger;
  }
  story_event(s, HR_TRACE_OOM, 0, ACTIVATION / 2, HIDDEN);
  snapshot = story_end(s);
  free(s);
  return snapshot;
}

static void passes_that_begin_twice(void **unused) {
  (void)unused;
  for (int way = 0; way < 4; way++) { /* without the gate two places are kept: three of the four tensors of a pass */
    const bool gate = way & 1, backwards = way & 2;
    hr_snapshot *s = tick(45, true, gate, backwards);
    hr_inspection *p = inspect(s, HR_AT_OOM);
    assert_int_equal(p->growth[0].kind, HR_GROWTH_GRAPH);
    assert_int_equal(p->growth[0].steps_seen, 45);
    assert_int_equal(p->growth[0].steps_grown, 43);
    assert_true(per_pass(p, HR_GROWTH_GRAPH) == (gate ? 3.0 : 2.5) * ACTIVATION);
    assert_int_equal(p->growth[0].among_backwards, backwards);
    hr_inspection_destroy(p);
    hr_snapshot_destroy(s);
  }
}

/* Training that goes through several passes before what they kept is freed, by one backward or when the next step begins:
 * the last step has more of them. Of its two places in the model one is kept, which alone looks like results. */
static void passes_whose_tensors_go_again(void **unused) {
  enum { STEPS = 4, PASSES = 5, MORE = 12 };
  (void)unused;
  for (int what = 0; what < 6; what++) {
    const bool late = what & 1, as_many = what & 2; /* no more of them: it has not come to its end */
    const bool again = what & 4;                    /* a step before had as many: an evaluation */
    int last = 0;
    story *s = malloc(sizeof *s);
    uint64_t kept[MORE];
    hr_snapshot *snapshot;
    hr_inspection *p;
    story_begin(s, 2048 * MIB);
    for (int k = 0; k < LAYERS; k++) story_alloc(s, WEIGHT, INIT);
    for (int step = 0; step <= STEPS; step++) {
      uint64_t scratch;
      const int passes = (step < STEPS || as_many) && !(again && step == 1) ? PASSES : MORE;
      for (int pass = 0; pass < last && late; pass++) story_free(s, kept[pass]);
      last = passes;
      for (int pass = 0; pass < passes; pass++) {
        uint64_t batch = story_alloc(s, 65536, BATCH);
        kept[pass] = story_alloc(s, ACTIVATION, CELL);
        story_free(s, story_alloc(s, ACTIVATION / 2, GATE));
        story_free(s, batch);
      }
      if (step == STEPS) break;
      scratch = story_alloc(s, 1000000, BACKWARD);
      for (int pass = 0; pass < passes && !late; pass++) story_free(s, kept[pass]);
      story_free(s, scratch);
      story_free(s, story_alloc(s, 3000000, OPT_TEMP));
    }
    p = inspect_refused(s, ACTIVATION, CELL, &snapshot);
    assert_int_equal(p->growth_count > 0 && hr_growth_goes_on(p->growth[0].kind), !as_many);
    if (!as_many) {
      assert_int_equal(p->growth[0].kind, late ? HR_GROWTH_OUTPUTS : HR_GROWTH_GRAPH);
      assert_true(p->growth[0].freed_in_steps && p->growth[0].more_batches);
      assert_int_equal(p->growth[0].steps_seen, MORE);
    }
    hr_inspection_destroy(p);
    hr_snapshot_destroy(snapshot);
  }
}

/* No results of passes, which it would be if it came with each. */
static void a_table_that_is_enlarged(void **unused) {
  hr_snapshot *s = tick(50, false, false, false);
  hr_inspection *p = inspect(s, HR_AT_OOM);
  const hr_growth *g = growth_at(p, "eval.py:17");
  (void)unused;
  assert_non_null(g);
  assert_int_equal(g->kind, HR_GROWTH_LARGER);
  assert_true(g->bytes == 44 * MIB && g->bytes_per_step == 4 * MIB);
  hr_inspection_destroy(p);
  hr_snapshot_destroy(s);
}

#define CUBLAS "at::cuda::getCurrentCUDABlasWorkspace@CUDABlas.cpp:1" CALL

/* A workspace is all that is recorded of a model's call: it is no pass, and what comes again comes in none; a table that is
 * enlarged is one all the same. Where passes of another place are recorded, it does not hide them, be it made before or
 * behind them. */
static void a_workspace_is_no_pass(void **unused) {
  enum { TABLES = 12, PASSES = 9 };
  (void)unused;
  for (int anew = 0; anew < 2; anew++) {
    story *s = malloc(sizeof *s);
    uint64_t table = 0;
    hr_snapshot *snapshot;
    hr_inspection *p;
    const hr_growth *g;
    story_begin(s, 2048 * MIB);
    story_alloc(s, 8 * MIB, CUBLAS LOOP);
    for (int k = 0; k < TABLES; k++) {
      const uint64_t larger = story_alloc(s, (uint64_t)(4 + 2 * k) * MIB, TABLE);
      if (anew && table) story_free(s, table);
      table = larger;
    }
    if (anew) story_event(s, HR_TRACE_OOM, 0, 1024 * MIB, TABLE);
    snapshot = story_end(s);
    free(s);
    p = inspect(snapshot, anew ? HR_AT_OOM : HR_AT_PEAK);
    g = growth_at(p, "eval.py:17");
    assert_true(anew ? g && g->kind == HR_GROWTH_LARGER : !g || !hr_growth_goes_on(g->kind));
    hr_inspection_destroy(p);
    hr_snapshot_destroy(snapshot);
  }
  for (int behind = 0; behind < 2; behind++) {
    story *s = malloc(sizeof *s);
    hr_snapshot *snapshot;
    hr_inspection *p;
    story_begin(s, 2048 * MIB);
    for (int pass = 0; pass < PASSES; pass++) {
      uint64_t batch = story_alloc(s, 65536, BATCH);
      if (pass == (behind ? PASSES - 1 : 0)) story_alloc(s, 8 * MIB, CUBLAS ";warm_up@eval.py:30;<module>@eval.py:21");
      story_alloc(s, ACTIVATION, CELL);
      story_alloc(s, ACTIVATION / 2, GATE);
      story_alloc(s, ACTIVATION / 2, HIDDEN);
      if (behind && pass == PASSES - 1) story_alloc(s, MIB, CUBLAS ";again@eval.py:32;<module>@eval.py:22");
      story_free(s, batch);
    }
    p = inspect_refused(s, ACTIVATION, CELL, &snapshot);
    assert_true(p->growth_count > 0);
    assert_int_equal(p->growth[0].kind, HR_GROWTH_GRAPH);
    assert_int_equal(p->growth[0].steps_seen, PASSES);
    hr_inspection_destroy(p);
    hr_snapshot_destroy(snapshot);
  }
}

/* ---- programs without modules: steps by a place ---- */

#define FETCH "empty@serve.py:20;fetch@serve.py:21;handle@serve.py:30;<module>@serve.py:50"
#define PRODUCT CPP_ALLOC "at::_ops::mm::call(...)@??:0;handle@serve.py:32;<module>@serve.py:50"
#define REQUEST "zeros@serve.py:48;<module>@serve.py:50"
#define SHARD "empty@load.py:7;<module>@load.py:9"
#define PIECE "clone@load.py:8;<module>@load.py:9"

enum { SERVED = 14, STREAMED = 5 }; /* requests; layers whose weights are fetched, one ahead */

/* A server whose layers' weights are fetched one ahead; results are kept, or the last but one request is five times the others.
 * All else has the size of a weight, so that no size comes at regular distances. A loop that loads shards goes before. */
static hr_snapshot *serve(bool keeps, bool large) {
  story *s = malloc(sizeof *s);
  hr_snapshot *snapshot;
  story_begin(s, 2048 * MIB);
  for (int k = 0; k < LAYERS; k++) story_alloc(s, WEIGHT, INIT);
  for (int shard = 0; shard < 5; shard++) {
    uint64_t raw = story_alloc(s, (uint64_t)(9 + shard) * MIB, SHARD);
    for (int k = 0; k < 5; k++) story_alloc(s, (uint64_t)(2 + (shard * 5 + k) % 3) * MIB, PIECE);
    story_free(s, raw);
  }
  for (int n = 0; n < SERVED; n++) {
    const uint64_t rows = (uint64_t)(large ? (n + 1 == SERVED ? 10 : 2) * MIB + (uint64_t)n * 5 % 7 * 512 : 2 * MIB);
    uint64_t x = story_alloc(s, rows, REQUEST), ahead = story_alloc(s, 2 * MIB, FETCH);
    for (int k = 0; k < STREAMED; k++) {
      uint64_t weight = ahead, y;
      if (k + 1 < STREAMED) ahead = story_alloc(s, 2 * MIB, FETCH);
      y = story_alloc(s, rows, PRODUCT);
      story_free(s, weight);
      story_free(s, x);
      x = y;
      if (n + 1 == SERVED && k == 3) break;
    }
    if (n + 1 == SERVED) break;
    if (!keeps) story_free(s, x);
  }
  story_event(s, HR_TRACE_OOM, 0, large ? 10 * MIB : 2 * MIB, PRODUCT);
  snapshot = story_end(s);
  free(s);
  return snapshot;
}

static void steps_by_a_place(void **unused) {
  (void)unused;
  for (int large = 0; large < 2; large++) {
    hr_snapshot *s = serve(!large, large);
    hr_inspection *p = inspect(s, HR_AT_OOM);
    const hr_growth *g = growth_at(p, "serve.py:32");
    assert_string_equal(p->steps_from, "repetition");
    assert_int_equal(p->step_count, SERVED);
    assert_int_equal(p->ooms[0].stage, HR_STAGE_UNKNOWN); /* not that of the model which was built before */
    if (large) {
      assert_null(g);
      assert_int_equal(p->outlier_step, SERVED - 1);
    } else {
      assert_non_null(g);
      assert_int_equal(g->kind, HR_GROWTH_LEAK);
      assert_true(hr_growth_every_step(g) && g->bytes_per_step >= 2.0 * MIB && g->bytes_per_step < 2.5 * MIB);
    }
    hr_inspection_destroy(p);
    hr_snapshot_destroy(s);
  }
}

/* A loop that loads shards is none: what is asked for at the failure has no place in it. */
static void a_loop_that_ended_has_no_steps(void **unused) {
  story *s = malloc(sizeof *s);
  hr_snapshot *snapshot;
  hr_inspection *p;
  (void)unused;
  story_begin(s, 2048 * MIB);
  for (int shard = 0; shard < 6; shard++) {
    uint64_t raw = story_alloc(s, (uint64_t)(90 + shard) * MIB, SHARD), piece[5];
    for (int k = 0; k < 5; k++) piece[k] = story_alloc(s, (uint64_t)(10 + (shard * 5 + k) % 7) * MIB, PIECE);
    story_free(s, raw);
    for (int k = 1; k < 5; k++) story_free(s, piece[k]);
  }
  p = inspect_refused(s, 200 * MIB, PRODUCT, &snapshot);
  assert_int_equal(p->step_count, 0);
  for (uint32_t k = 0; k < p->growth_count; k++) assert_false(hr_growth_goes_on(p->growth[k].kind));
  hr_inspection_destroy(p);
  hr_snapshot_destroy(snapshot);
}

/* Two batches are made for each that is used, the oldest first: half of the steps have nothing left, and each one left one
 * more. */
static void a_queue_that_grows(void **unused) {
  enum { STEPS = 20 };
  story *s = malloc(sizeof *s);
  uint64_t queue[2 * STEPS];
  hr_snapshot *snapshot;
  hr_inspection *p;
  const hr_growth *g;
  (void)unused;
  story_begin(s, 2048 * MIB);
  for (int k = 0; k < LAYERS; k++) story_alloc(s, WEIGHT, INIT);
  for (int step = 0; step < STEPS; step++) {
    uint64_t made = story_alloc(s, ACTIVATION, FORWARD);
    for (int k = 0; k < 2; k++) queue[2 * step + k] = story_alloc(s, 4 * MIB, KEPT);
    story_free(s, queue[step]);
    story_free(s, story_alloc(s, 1000000, BACKWARD));
    story_free(s, made);
    for (int k = 0; k < 4; k++) story_free(s, story_alloc(s, 3000000, OPT_TEMP));
  }
  snapshot = story_end(s);
  free(s);
  p = inspect(snapshot, HR_AT_PEAK);
  g = growth_at(p, "train.py:79");
  assert_non_null(g);
  assert_int_equal(g->kind, HR_GROWTH_LEAK);
  assert_int_equal(g->bytes, 20 * 4 * MIB);
  assert_true(hr_growth_every_step(g));
  hr_inspection_destroy(p);
  hr_snapshot_destroy(snapshot);
}

/* Predictions and labels that one line joins to those before, and passes of a sampler that keep tensors of the model's inside,
 * two for each, where nothing says that it is no training. */
static void what_one_line_joins(void **unused) {
  enum { PASSES = 14 };
  (void)unused;
  for (int sampler = 0; sampler < 2; sampler++) {
    story *s = malloc(sizeof *s);
    uint64_t joined[2] = {0};
    hr_snapshot *snapshot;
    hr_inspection *p;
    story_begin(s, 2048 * MIB);
    for (int k = 0; k < LAYERS; k++) story_alloc(s, WEIGHT, INIT);
    for (uint64_t pass = 0; pass < PASSES; pass++) {
      uint64_t batch = story_alloc(s, 65536, BATCH), made[3];
      made[0] = story_alloc(s, ACTIVATION, EMBEDDING);
      for (int k = 1; k < 3; k++) made[k] = story_alloc(s, ACTIVATION, LAYER);
      story_free(s, made[0]);
      for (int k = 1; k < 3 && !sampler; k++) story_free(s, made[k]);
      for (int k = 0; k < 2 && !sampler; k++) {
        uint64_t larger = story_alloc(s, (pass + 1) * (k ? 65536 : 4 * MIB), TABLE);
        if (pass) story_free(s, joined[k]);
        joined[k] = larger;
      }
      story_free(s, batch);
    }
    p = inspect_refused(s, ACTIVATION, EMBEDDING, &snapshot);
    assert_true(p->growth_count > 0);
    assert_int_equal(p->growth[0].kind, HR_GROWTH_OUTPUTS);
    assert_int_equal(p->growth[0].may_train, sampler);
    if (!sampler) assert_int_equal(p->growth[0].bytes, (PASSES - 1) * 4 * MIB);
    hr_inspection_destroy(p);
    hr_snapshot_destroy(snapshot);
  }
}

/* Three threads serve side by side, now one ahead and now another, and put what each pass gives into one list. */
static void serve_in_threads(uint32_t random, bool all_fail) {
  enum { PASSES = 80, THREADS = 3 };
  story *s = malloc(sizeof *s);
  uint64_t batch[THREADS] = {0}, hidden[THREADS] = {0}, after[THREADS] = {0};
  uint32_t part[THREADS] = {0}, passes = 0;
  hr_snapshot *snapshot;
  hr_inspection *p;
  story_begin(s, 2048 * MIB);
  for (int k = 0; k < LAYERS; k++) story_alloc(s, WEIGHT, INIT);
  while (passes < PASSES) {
    const uint32_t t = ((random = random * 1664525 + 1013904223) >> 16) % THREADS;
    switch (part[t]++) {
    case 0: batch[t] = story_alloc(s, 65536, BATCH); break;
    case 1: hidden[t] = story_alloc(s, ACTIVATION, LAYER); break;
    case 2: after[t] = story_alloc(s, ACTIVATION, LAYER); break;
    default:
      story_free(s, hidden[t]);
      story_alloc(s, 4 * MIB, LAYER); /* what is kept */
      story_free(s, after[t]);
      story_free(s, batch[t]);
      part[t] = 0;
      passes++;
    }
  }
  for (int t = 0; t < THREADS && all_fail; t++) { /* each behind its next batch */
    if (part[t] > 2) story_free(s, after[t]);
    if (part[t] > 1) story_free(s, hidden[t]);
    if (part[t] == 0) story_alloc(s, 65536, BATCH);
    if (t + 1 < THREADS) story_event(s, HR_TRACE_OOM, 0, ACTIVATION, LAYER);
  }
  p = inspect_refused(s, ACTIVATION, LAYER, &snapshot);
  assert_true(p->growth_count > 0);
  assert_int_equal(p->growth[0].kind, HR_GROWTH_OUTPUTS);
  assert_true(p->growth[0].bytes >= (PASSES - 12) * 4 * MIB);
  assert_true(p->growth[0].steps_grown >= PASSES - 12 && p->growth[0].steps_seen <= PASSES + 8);
  assert_false(p->growth[0].may_train);
  hr_inspection_destroy(p);
  hr_snapshot_destroy(snapshot);
}

static void passes_of_threads(void **unused) {
  (void)unused;
  for (uint32_t seed = 1; seed <= 24; seed++)
    for (int all_fail = 0; all_fail < 2; all_fail++) serve_in_threads(seed, all_fail);
}

/* A buffer that is made half as large again whenever a pass has filled it is no joined results: nothing is left of each pass. */
static void a_buffer_that_fills_up(void **unused) {
  story *s = malloc(sizeof *s);
  uint64_t buffer = 0, size = 8 * MIB;
  hr_snapshot *snapshot;
  hr_inspection *p;
  (void)unused;
  story_begin(s, 8192 * MIB);
  for (int k = 0; k < LAYERS; k++) story_alloc(s, WEIGHT, INIT);
  for (int pass = 0; pass < 12; pass++, size += size / 2) {
    uint64_t hidden = story_alloc(s, ACTIVATION, EMBEDDING), larger;
    story_free(s, story_alloc(s, ACTIVATION, LAYER));
    story_free(s, hidden);
    larger = story_alloc(s, size, TABLE);
    if (buffer) story_free(s, buffer);
    buffer = larger;
  }
  p = inspect_refused(s, size, TABLE, &snapshot);
  assert_true(p->growth_count > 0);
  assert_int_equal(p->growth[0].kind, HR_GROWTH_LARGER);
  hr_inspection_destroy(p);
  hr_snapshot_destroy(snapshot);
}

/* A recording that ends in the first forward, or behind its backward: layers come at one distance, and keep what they make, or less
 * than they give back (an activation written out has many temporaries; of a frozen layer little is saved). */
static void layers_are_no_steps(void **unused) {
  (void)unused;
  for (int way = 0; way < 3; way++) {
    const int temporaries = way ? 16 : 1;
    const char *layers = way < 2 ? LAYER : BACKWARD;
    story *s = malloc(sizeof *s);
    hr_snapshot *snapshot;
    hr_inspection *p;
    story_begin(s, 4096 * MIB);
    for (int k = 0; k < 9; k++) story_alloc(s, WEIGHT, INIT);
    story_alloc(s, 65536, BATCH);
    for (int layer = 0; layer < 9; layer++) {
      for (int k = 0; k < 6; k++) story_alloc(s, ACTIVATION + 65536 * (uint64_t)k, layers);
      for (int k = 0; k < temporaries; k++) story_free(s, story_alloc(s, 4 * MIB, layers));
    }
    p = inspect_refused(s, 64 * MIB, EMBEDDING, &snapshot);
    assert_int_equal(p->step_count, 0);
    assert_int_equal(p->growth_count, 0);
    hr_inspection_destroy(p);
    hr_snapshot_destroy(snapshot);
  }
}

/* Steps of which nothing but sizes is recorded may keep most of what they make: a list of outputs with their graphs. */
static void steps_that_keep_most(void **unused) {
  enum { STEPS = 24 };
  story *s = malloc(sizeof *s);
  hr_snapshot *snapshot;
  hr_inspection *p;
  (void)unused;
  story_begin(s, 4096 * MIB);
  for (int k = 0; k < LAYERS; k++) story_alloc(s, WEIGHT, NULL);
  for (int step = 0; step < STEPS; step++) {
    const uint64_t batch = story_alloc(s, 6 * MIB, NULL);
    for (int layer = 0; layer < 6; layer++) story_alloc(s, (8 + 2 * ((uint64_t)layer % 3)) * MIB, NULL);
    story_free(s, story_alloc(s, 20 * MIB, NULL));
    story_free(s, batch);
  }
  p = inspect_refused(s, 8 * MIB, NULL, &snapshot);
  assert_true(p->step_count + 2 >= STEPS);
  assert_true(p->growth_count > 0);
  assert_int_equal(p->growth[0].kind, HR_GROWTH_LEAK);
  hr_inspection_destroy(p);
  hr_snapshot_destroy(snapshot);
}

/* A program that catches a failure gives up what it kept, and fails again: each failure is judged by what was live at it, also
 * where the recording began late. */
static void a_leak_from_before_at_each_failure(void **unused) {
  enum { BEFORE = 10, STEPS = 2 };
  story *s = malloc(sizeof *s);
  uint64_t kept[BEFORE + STEPS], first, others[2];
  hr_snapshot *snapshot;
  hr_inspection *p;
  (void)unused;
  story_begin(s, 1024 * MIB);
  s->silent_start = true;
  for (int k = 0; k < LAYERS; k++) story_alloc(s, WEIGHT, INIT);
  for (int k = 0; k < BEFORE; k++) kept[k] = story_alloc(s, 2 * MIB, LEAK);
  s->silent_start = false;
  for (int step = 0; step < STEPS; step++) {
    for (int k = 0; k < 2; k++) others[k] = story_alloc(s, ACTIVATION, FORWARD);
    kept[BEFORE + step] = story_alloc(s, 2 * MIB, LEAK);
    for (int k = 0; k < 2; k++) story_free(s, others[k]);
    story_free(s, story_alloc(s, 3000000, OPT_TEMP));
  }
  story_event(s, HR_TRACE_OOM, 0, ACTIVATION, FORWARD);
  for (int k = 0; k < BEFORE + STEPS; k++) story_free(s, kept[k]);
  story_alloc(s, ACTIVATION, FORWARD);
  p = inspect_refused(s, 2000 * MIB, FORWARD, &snapshot);
  assert_int_equal(p->oom_count, 2);
  assert_int_equal(p->growth_count, 0);
  first = p->ooms[0].event + 1;
  hr_inspection_destroy(p);
  p = inspect(snapshot, first);
  assert_int_equal(p->growth_count, 1);
  assert_int_equal(p->growth[0].kind, HR_GROWTH_LEAK);
  assert_int_equal(p->growth[0].from_before, BEFORE);
  { /* ... and neither the words nor the numbers say that this is a rate */
    char *text;
    hr_error error;
    assert_int_equal(hr_inspect_text(p, 10, 1u << HR_BY_STACK, &text, &error), HR_OK);
    assert_non_null(strstr(text, "GROWS: 24.00 MiB outlive their steps"));
    assert_non_null(strstr(text, "10 from before the recording"));
    assert_null(strstr(text, "every step"));
    hr_free(text);
    assert_int_equal(hr_inspect_json(p, 10, &text, &error), HR_OK);
    assert_non_null(strstr(text, "\"from_before\": 10"));
    hr_free(text);
  }
  hr_inspection_destroy(p);
  hr_snapshot_destroy(snapshot);
}

/* A ring that ends within the step behind the optimizer's end, which only an annotation may tell, or within the optimizer, and a snapshot from behind the exception: a
 * list falls in one row of the size of something that the step makes, be it by a line that makes labels beside it. Weights, gradients and states of that size fall in rows that
 * are alike, and a few tensors may be anything. */
static void a_list_falls_in_one_row(void **unused) {
  enum { KEPT_BEFORE = 24 };
  enum { LIST, ANNOTATED, LABELS, IN_OPTIMIZER, ALIKE, FEW, WHOLE_STEP, KINDS };
  (void)unused;
  for (int what = 0; what < KINDS; what++) {
    const int rows = what == ALIKE ? 3 : 1, each = what == FEW ? 7 : KEPT_BEFORE;
    story *s = malloc(sizeof *s);
    uint64_t old[3 * KEPT_BEFORE], apart[3], forward, labels;
    hr_snapshot *snapshot;
    hr_inspection *p;
    story_begin(s, 1024 * MIB);
    s->silent_start = true;
    for (int k = 0; k < LAYERS; k++) story_alloc(s, WEIGHT, INIT);
    for (int k = 0; k < rows; k++) apart[k] = story_alloc(s, 512, INIT);
    for (int k = 0; k < rows * each; k++) old[k] = story_alloc(s, ACTIVATION, LEAK);
    labels = story_alloc(s, 512, FORWARD);
    s->silent_start = false;
    forward = story_alloc(s, ACTIVATION, FORWARD);
    story_free(s, story_alloc(s, 1000000, BACKWARD));
    if (what == ANNOTATED) span(s, "Optimizer.step#SGD.step", 1); /* which allocates nothing */
    else story_free(s, story_alloc(s, 3000000, OPT_TEMP));
    if (what != IN_OPTIMIZER) {
      story_free(s, forward);
      forward = story_alloc(s, ACTIVATION, FORWARD);
    }
    if (what == WHOLE_STEP) { /* which would have left one too */
      story_free(s, story_alloc(s, 3000000, OPT_TEMP));
      story_free(s, forward);
      forward = story_alloc(s, ACTIVATION, FORWARD);
    }
    if (what == LABELS) { /* the same line makes them too, and a variable lets the last ones go */
      story_alloc(s, 512, FORWARD);
      story_free_at(s, labels, LEAK);
    }
    story_event(s, HR_TRACE_OOM, 0, 2000 * MIB, what == IN_OPTIMIZER ? OPT_TEMP : FORWARD);
    story_free(s, forward);
    for (int k = 0; k < rows * each; k++) {
      if (k % each == 0) story_free(s, apart[k / each]);
      story_free(s, old[k]);
    }
    snapshot = story_end(s);
    free(s);
    p = inspect(snapshot, HR_AT_OOM);
    assert_int_equal(p->growth_count, what <= IN_OPTIMIZER);
    if (p->growth_count) {
      assert_int_equal(p->growth[0].kind, HR_GROWTH_LEAK);
      assert_int_equal(p->growth[0].from_before, KEPT_BEFORE);
      assert_int_equal(p->growth[0].stack != 0,
                       what == IN_OPTIMIZER); /* which line made it is only known of one that outlived */
      assert_int_equal(p->growth[0].bytes, (uint64_t)(KEPT_BEFORE + (what == IN_OPTIMIZER)) * ACTIVATION);
    }
    hr_inspection_destroy(p);
    hr_snapshot_destroy(snapshot);
  }
}

/* A variable that holds its tensor until the next step does is no window, though its line gives back one that was there before; a
 * window of the last N gives one back for each that it takes. So in a ring of few steps, and in one whose steps tell a leak of
 * what they left themselves: that stays one where an older list of that size is dropped at once. */
static void a_variable_beside_a_list(void **unused) {
  enum { OLD = 12, MOST_STEPS = 6 };
  (void)unused;
  for (int way = 0; way < 5; way++) {
    const int window = way & 1, steps = way >= 2 ? MOST_STEPS : 3, dropped = way == 4;
    story *s = malloc(sizeof *s);
    uint64_t kept[OLD + MOST_STEPS], drop[OLD], held;
    hr_snapshot *snapshot;
    hr_inspection *p;
    story_begin(s, 1024 * MIB);
    s->silent_start = true;
    for (int k = 0; k < LAYERS; k++) story_alloc(s, WEIGHT, INIT);
    for (int k = 0; k < OLD; k++) kept[k] = story_alloc(s, LOGITS, LEAK);
    for (int k = 0; k < OLD; k++) drop[k] = dropped ? story_alloc(s, LOGITS, LEAK) : 0;
    held = story_alloc(s, LOGITS, KEPT);
    s->silent_start = false;
    for (int k = 0; dropped && k < OLD; k++) story_free_at(s, drop[k], KEPT);
    for (int step = 0; step < steps; step++) {
      const uint64_t made = story_alloc(s, LOGITS, KEPT);
      story_free_at(s, held, KEPT);
      held = made;
      kept[OLD + step] = story_alloc(s, LOGITS, LEAK);
      if (window) story_free_at(s, kept[step], LEAK);
      story_free(s, story_alloc(s, 1000000, BACKWARD));
      story_free(s, story_alloc(s, 3000000, OPT_TEMP));
    }
    story_event(s, HR_TRACE_OOM, 0, 2000 * MIB, FORWARD);
    for (int k = window ? steps : 0; k < OLD + steps; k++) story_free(s, kept[k]);
    snapshot = story_end(s);
    free(s);
    p = inspect(snapshot, HR_AT_OOM);
    assert_int_equal(p->growth_count && hr_growth_goes_on(p->growth[0].kind), !window);
    if (!window && !dropped) {
      assert_int_equal(p->growth[0].from_before, OLD);
      assert_int_equal(p->growth[0].bytes, (uint64_t)(OLD + steps) * LOGITS);
    }
    if (dropped) assert_int_equal(p->growth[0].kind, HR_GROWTH_LEAK);
    hr_inspection_destroy(p);
    hr_snapshot_destroy(snapshot);
  }
}

/* The last eight of something, of which the step at hand has taken its own, which is large, before it gives back the oldest. */
static void a_window_before_it_gives_back(void **unused) {
  enum { STEPS = 30, LAST = 8 };
  story *s = malloc(sizeof *s);
  uint64_t kept[2 * STEPS];
  hr_snapshot *snapshot;
  hr_inspection *p;
  const hr_growth *g;
  (void)unused;
  story_begin(s, 1024 * MIB);
  for (int k = 0; k < LAYERS; k++) story_alloc(s, WEIGHT, INIT);
  for (int step = 0; step < STEPS; step++) {
    for (int k = 0; k < 4; k++) story_free(s, story_alloc(s, ACTIVATION, FORWARD));
    if (step + 1 == STEPS) break;
    for (int k = 0; k < 2; k++) kept[2 * step + k] = story_alloc(s, 2 * MIB, LEAK);
    for (int k = 0; k < 2 && step >= LAST; k++) story_free(s, kept[2 * (step - LAST) + k]);
    for (int k = 0; k < 4; k++) story_free(s, story_alloc(s, 3000000, OPT_TEMP));
  }
  story_alloc(s, 30 * MIB, LEAK);
  p = inspect_refused(s, 2000 * MIB, LEAK, &snapshot);
  assert_int_equal(p->step_count, STEPS);
  g = growth_at(p, "train.py:77");
  assert_true(!g || g->kind == HR_GROWTH_SETTLED);
  hr_inspection_destroy(p);
  hr_snapshot_destroy(snapshot);
}

/* A queue that takes one a step and gives one back in three of four grows, though the step at hand has taken one too. */
static void a_queue_that_grows_slowly(void **unused) {
  enum { STEPS = 200 };
  story *s = malloc(sizeof *s);
  uint64_t kept[STEPS];
  hr_snapshot *snapshot;
  hr_inspection *p;
  const hr_growth *g;
  int oldest = 0;
  (void)unused;
  story_begin(s, 1024 * MIB);
  for (int k = 0; k < LAYERS; k++) story_alloc(s, WEIGHT, INIT);
  for (int step = 0; step < STEPS; step++) {
    kept[step] = story_alloc(s, MIB, LEAK);
    if (step + 1 == STEPS) break;
    if (step - oldest >= 8 && step % 4) story_free(s, kept[oldest++]);
    for (int k = 0; k < 4; k++) story_free(s, story_alloc(s, ACTIVATION, FORWARD));
    for (int k = 0; k < 4; k++) story_free(s, story_alloc(s, 3000000, OPT_TEMP));
  }
  p = inspect_refused(s, 2000 * MIB, FORWARD, &snapshot);
  g = growth_at(p, "train.py:77");
  assert_true(g && g->kind == HR_GROWTH_LEAK);
  hr_inspection_destroy(p);
  hr_snapshot_destroy(snapshot);
}

/* A server that keeps its last 38 answers, or seven of eight: neither is left by every pass. */
static void some_answers_are_kept(void **unused) {
  enum { PASSES = 46, LAST = 38 };
  (void)unused;
  for (int window = 0; window < 2; window++) {
    story *s = malloc(sizeof *s);
    uint64_t answers[PASSES];
    uint32_t kept = 0;
    hr_snapshot *snapshot;
    hr_inspection *p;
    story_begin(s, 2048 * MIB);
    for (int k = 0; k < LAYERS; k++) story_alloc(s, WEIGHT, INIT);
    for (int k = 0; k < PASSES; k++) {
      const uint64_t batch = story_alloc(s, 65536, BATCH);
      answers[k] = story_alloc(s, 4 * MIB, HEAD);
      if (window && k >= LAST) story_free(s, answers[k - LAST]);
      if (!window && k % 8 == 3) story_free(s, answers[k]);
      else kept++;
      story_free(s, batch);
    }
    p = inspect_refused(s, 2000 * MIB, HEAD, &snapshot);
    for (uint32_t k = 0; k < p->growth_count; k++) {
      if (p->growth[k].kind != HR_GROWTH_OUTPUTS) continue;
      assert_false(hr_growth_every_step(&p->growth[k]));
      assert_true(p->growth[k].steps_grown <= kept);
    }
    hr_inspection_destroy(p);
    hr_snapshot_destroy(snapshot);
  }
}

#define FRAME CPP_ALLOC "at::_ops::to_copy::call(...)@??:0;watch@watch.py:8;<module>@watch.py:20"
#define CAST CPP_ALLOC "at::_ops::to_dtype::call(...)@??:0;watch@watch.py:9;<module>@watch.py:20"
#define UNNAMED "watch@watch.py:9;<module>@watch.py:20"
#define SCALED CPP_ALLOC "at::_ops::upsample::call(...)@??:0;watch@watch.py:9;<module>@watch.py:20"

/* A program without a model that makes two tensors each time round and keeps the larger one; one that keeps all it makes, or casts
 * what it keeps, loads data; so may one that did not fail; and a few rounds say nothing. */
static void a_loop_without_a_model(void **unused) {
  enum { KEEPS, LOADS, CASTS, CASTS_UNNAMED, NO_FAILURE, FEW, KINDS };
  (void)unused;
  for (int what = 0; what < KINDS; what++) {
    const char *made = what == CASTS ? CAST : what == CASTS_UNNAMED ? UNNAMED : SCALED;
    story *s = malloc(sizeof *s);
    hr_snapshot *snapshot;
    hr_inspection *p;
    const hr_growth *g;
    story_begin(s, 2048 * MIB);
    for (int k = 0; k < (what == FEW ? 20 : 100); k++) {
      const uint64_t frame = story_alloc(s, MIB, FRAME);
      if (k == 0) story_alloc(s, 8 * MIB, "at::cuda::getCurrentCUDABlasWorkspace@CUDABlas.cpp:1;watch@watch.py:9");
      story_alloc(s, 4 * MIB, made);
      if (what != LOADS) story_free(s, frame);
    }
    if (what != NO_FAILURE) story_event(s, HR_TRACE_OOM, 0, 4 * MIB, made);
    snapshot = story_end(s);
    free(s);
    p = inspect(snapshot, HR_AT_OOM);
    g = growth_at(p, "watch.py:9");
    assert_int_equal(g && g->kind == HR_GROWTH_LEAK, what == KEEPS);
    if (what == KEEPS) {
      assert_string_equal(p->steps_from, "repetition");
      assert_int_equal(p->step_count, 100);
      assert_true(g->bytes >= 98 * 4 * MIB);
    }
    hr_inspection_destroy(p);
    hr_snapshot_destroy(snapshot);
  }
}

/* Requests of any length, of which a layer makes chunks: nothing repeats but the model's first stack and the batch before it, and so
 * the passes are the steps. The last one is long. What trains is told otherwise. */
static void passes_are_steps(void **unused) {
  static const int lengths[] = {3, 7, 4, 9, 5, 8, 2, 6, 60};
  enum { REQUESTS = sizeof lengths / sizeof *lengths };
  (void)unused;
  for (int trains = 0; trains < 2; trains++) {
    story *s = malloc(sizeof *s);
    hr_snapshot *snapshot;
    hr_inspection *p;
    story_begin(s, 2048 * MIB);
    for (int k = 0; k < LAYERS; k++) story_alloc(s, WEIGHT, INIT);
    for (int n = 0; n < REQUESTS; n++) {
      const uint64_t rows = (uint64_t)lengths[n] * 65536, batch = story_alloc(s, rows / 8, BATCH);
      uint64_t made[2] = {story_alloc(s, rows, EMBEDDING), 0};
      for (int chunk = 0; chunk < lengths[n] / 2 + 4; chunk++) {
        made[1] = story_alloc(s, rows, LAYER);
        story_free(s, made[0]);
        made[0] = made[1];
      }
      if (n + 1 == REQUESTS) break;
      story_free(s, made[0]);
      story_free(s, batch);
      if (trains) story_free(s, story_alloc(s, 1000000, BACKWARD));
    }
    p = inspect_refused(s, 1024 * MIB, LAYER, &snapshot);
    assert_int_equal(strcmp(p->steps_from, "passes") == 0, !trains);
    if (!trains) {
      assert_int_equal(p->step_count, REQUESTS);
      assert_int_equal(p->outlier_step, REQUESTS - 1);
      for (uint32_t k = 0; k < p->growth_count; k++) assert_false(hr_growth_goes_on(p->growth[k].kind));
    }
    hr_inspection_destroy(p);
    hr_snapshot_destroy(snapshot);
  }
}

/* A server makes the caches of a conversation at once and keeps them: all that the passes between them make goes. */
static void what_some_passes_keep(void **unused) {
  enum { CONVERSATIONS = 7, TOKENS = 5, CACHES = 4 };
  story *s = malloc(sizeof *s);
  hr_snapshot *snapshot;
  hr_inspection *p;
  (void)unused;
  story_begin(s, 2048 * MIB);
  for (int k = 0; k < LAYERS; k++) story_alloc(s, WEIGHT, INIT);
  for (int user = 0; user < CONVERSATIONS; user++) {
    for (int k = 0; k < CACHES; k++) story_alloc(s, 6 * MIB, KEPT);
    for (int token = 0; token < TOKENS; token++) {
      const uint64_t batch = story_alloc(s, 512, BATCH), hidden = story_alloc(s, 4096, EMBEDDING);
      for (int k = 0; k < LAYERS; k++) story_free(s, story_alloc(s, 8192, LAYER));
      story_free(s, hidden);
      story_free(s, batch);
    }
  }
  p = inspect_refused(s, 6 * MIB, KEPT, &snapshot);
  assert_string_equal(p->steps_from, "passes");
  assert_true(p->growth_count > 0);
  assert_int_equal(p->growth[0].kind, HR_GROWTH_LEAK);
  assert_true(p->growth[0].bytes >= (CONVERSATIONS - 2) * CACHES * 6 * MIB);
  hr_inspection_destroy(p);
  hr_snapshot_destroy(snapshot);
}

/* Layers that are sent to the device one by one, each right before its call, are no passes of a model: what they leave is the model. */
static void layers_that_are_sent_one_by_one(void **unused) {
  enum { SENT = 16 };
  story *s = malloc(sizeof *s);
  hr_snapshot *snapshot;
  hr_inspection *p;
  (void)unused;
  story_begin(s, 2048 * MIB);
  story_alloc(s, 65536, BATCH);
  for (int layer = 0; layer < SENT; layer++) {
    for (int k = 0; k < 2; k++) story_alloc(s, WEIGHT, INIT);
    for (int k = 0; k < 6; k++) story_free(s, story_alloc(s, ACTIVATION, LAYER));
  }
  p = inspect_refused(s, ACTIVATION, LAYER, &snapshot);
  assert_int_equal(p->step_count, 0);
  assert_int_equal(p->growth_count, 0);
  hr_inspection_destroy(p);
  hr_snapshot_destroy(snapshot);
}

/* Calls from one line with nothing of the program's around them, of two allocations of one stack each, of which the second is kept: there
 * are more of them than weights. As many weights as calls are the weights of layers; and so is what is loaded before each call. */
static void more_calls_than_weights(void **unused) {
  enum { CALLS = 48 };
  enum { ONE_MODEL, OF_LAYERS, LOADED, FEW_CALLS, KEPT_GRAPH, KINDS };
  (void)unused;
  for (int what = 0; what < KINDS; what++) {
    const int calls = what == FEW_CALLS ? 24 : CALLS;
    story *s = malloc(sizeof *s);
    hr_snapshot *snapshot;
    hr_inspection *p;
    story_begin(s, 2048 * MIB);
    for (int k = 0; k < (what == OF_LAYERS ? 2 * CALLS : LAYERS); k++) story_alloc(s, 65536, INIT);
    for (int call = 0; call < calls; call++) {
      uint64_t hidden[3];
      if (what == LOADED)
        for (int k = 0; k < 4; k++) story_alloc(s, 65536, INIT);
      hidden[0] = story_alloc(s, MIB, LAYER);
      hidden[1] = story_alloc(s, MIB, NORM);
      hidden[2] = story_alloc(s, MIB, NORM);
      story_alloc(s, 2 * MIB, LAYER);
      for (int k = 0; k < 3 && what != KEPT_GRAPH; k++) story_free(s, hidden[k]);
    }
    p = inspect_refused(s, MIB, NORM, &snapshot);
    assert_string_equal(p->steps_from, what == ONE_MODEL ? "passes" : "");
    if (what == ONE_MODEL) {
      assert_int_equal(p->step_count, CALLS); /* two rows of the first stack each */
      assert_true(p->growth_count > 0 && p->growth[0].kind == HR_GROWTH_LEAK &&
                  p->growth[0].bytes >= (CALLS - 4) * 2 * MIB);
    } else assert_int_equal(p->growth_count, 0);
    hr_inspection_destroy(p);
    hr_snapshot_destroy(snapshot);
  }
}

#define NORMED CPP_ALLOC "at::_ops::linalg_vector_norm::call(...)@??:0;loop@eval.py:13;<module>@eval.py:20"
#define ADDED CPP_ALLOC "at::_ops::add_Tensor::call(...)@??:0;loop@eval.py:12;<module>@eval.py:20"

/* Layers that a program calls one by one, and adds to what they took: each sum is kept, and comes once a call, but brings nothing from
 * outside. Of a model that is called as often it is a result of each pass: all weights take part in each call. */
static void sums_around_layers(void **unused) {
  enum { CALLS = 36, WEIGHTS = 4 * CALLS };
  (void)unused;
  for (int whole = 0; whole < 2; whole++) {
    story *s = malloc(sizeof *s);
    hr_snapshot *snapshot;
    hr_inspection *p;
    story_begin(s, 2048 * MIB);
    for (int k = 0; k < WEIGHTS; k++) story_alloc(s, 65536, INIT);
    for (int call = 0; call < CALLS; call++) {
      for (int k = 0; k < (whole ? WEIGHTS : 4); k++) story_free(s, story_alloc(s, MIB, k ? NORM : LAYER));
      story_alloc(s, 4 * MIB, ADDED);
      story_free(s, story_alloc(s, 65536, NORMED)); /* what is computed of the sum, be there "to" in its name */
    }
    p = inspect_refused(s, MIB, LAYER, &snapshot);
    assert_int_equal(p->growth_count > 0 && p->growth[0].kind == HR_GROWTH_OUTPUTS, whole);
    if (whole) assert_true(p->growth[0].may_train); /* which layers with much to compute look like too */
    hr_inspection_destroy(p);
    hr_snapshot_destroy(snapshot);
  }
}

/* A sampler that a reward trains through: each call is made with a tensor of its own, and that is kept beside one of the inside, as a
 * graph does. Where it goes, the program keeps results. */
static void inputs_that_are_kept_too(void **unused) {
  enum { CALLS = 24 };
  (void)unused;
  for (int graph = 0; graph < 2; graph++) {
    story *s = malloc(sizeof *s);
    hr_snapshot *snapshot;
    hr_inspection *p;
    story_begin(s, 2048 * MIB);
    for (int k = 0; k < LAYERS; k++) story_alloc(s, 65536, INIT);
    for (int call = 0; call < CALLS; call++) {
      const uint64_t input = story_alloc(s, MIB, BATCH), hidden = story_alloc(s, MIB, LAYER);
      story_alloc(s, 4 * MIB, NORM);
      story_free(s, hidden);
      if (!graph) story_free(s, input);
    }
    p = inspect_refused(s, MIB, LAYER, &snapshot);
    assert_true(p->growth_count > 0);
    assert_int_equal(p->growth[0].kind, HR_GROWTH_OUTPUTS);
    for (uint32_t k = 0; k < p->growth_count; k++) assert_int_equal(p->growth[k].may_train, graph);
    hr_inspection_destroy(p);
    hr_snapshot_destroy(snapshot);
  }
}

/* A step that is refused its first layer's result shows by that request alone how much larger it is than those before. */
static void a_step_that_fails_in_its_first_layer(void **unused) {
  enum { STEPS = 5, TIMES = 6 };
  story *s = malloc(sizeof *s);
  hr_snapshot *snapshot;
  hr_replay replay;
  hr_replay_result *results;
  hr_error error;
  uint32_t count;
  (void)unused;
  story_begin(s, 400 * MIB);
  for (int k = 0; k < LAYERS; k++) story_alloc(s, WEIGHT, INIT);
  for (int step = 0; step < STEPS; step++) {
    uint64_t batch = story_alloc(s, 65536, BATCH), kept[LAYERS];
    for (int k = 0; k < LAYERS; k++) kept[k] = story_alloc(s, 20 * MIB, FORWARD);
    for (int k = LAYERS; k-- > 0;) {
      story_free(s, story_alloc(s, MIB, BACKWARD));
      story_free(s, kept[k]);
    }
    story_free(s, story_alloc(s, 3000000, OPT_TEMP));
    story_free(s, batch);
  }
  story_alloc(s, 65536, BATCH);
  story_event(s, HR_TRACE_OOM, 20 * MIB, TIMES * 20 * MIB, FORWARD);
  snapshot = story_end(s);
  free(s);
  if (hr_replay_search(snapshot, NULL, &replay, &results, &count, &error) != HR_OK) fail_msg("%s", error.message);
  assert_true(replay.step_need_bytes >= TIMES * LAYERS * 20 * MIB);
  assert_true(replay.step_need_bytes <= (TIMES + 1) * LAYERS * 20 * MIB);
  hr_free(results);
  hr_snapshot_destroy(snapshot);
}

/* Two threads serve models of two and of three layers from one line, and put what they give into one list. */
static void threads_of_two_models(void **unused) {
  enum { PASSES = 90 };
  (void)unused;
  for (uint32_t seed = 1; seed <= 8; seed++) {
    uint32_t random = seed, part[2] = {0}, passes = 0;
    uint64_t batch[2] = {0}, hidden[2] = {0};
    story *s = malloc(sizeof *s);
    hr_snapshot *snapshot;
    hr_inspection *p;
    story_begin(s, 2048 * MIB);
    for (int k = 0; k < LAYERS; k++) story_alloc(s, WEIGHT, INIT);
    while (passes < PASSES) {
      const uint32_t t = ((random = random * 1664525 + 1013904223) >> 16) % 2, layers = 2 + t;
      uint64_t made;
      if (part[t] == 0) batch[t] = story_alloc(s, 65536, BATCH);
      made = story_alloc(s, part[t] + 1 == layers ? 4 * MIB : ACTIVATION, LAYER); /* the last one is kept */
      if (part[t]) story_free(s, hidden[t]);
      hidden[t] = made;
      if (++part[t] < layers) continue;
      story_free(s, batch[t]);
      part[t] = 0;
      passes++;
    }
    p = inspect_refused(s, ACTIVATION, LAYER, &snapshot);
    assert_true(p->growth_count > 0);
    assert_int_equal(p->growth[0].kind, HR_GROWTH_OUTPUTS);
    assert_true(p->growth[0].bytes >= (PASSES - 12) * 4 * MIB && p->growth[0].steps_seen <= PASSES + 2);
    hr_inspection_destroy(p);
    hr_snapshot_destroy(snapshot);
  }
}

#define CRITIC_STEP                                                                                                    \
  "_multi_tensor_adam@torch/optim/adam.py:400;step@torch/optim/adam.py:200;train@gan.py:31;<module>@gan.py:50"
#define MAKER_STEP                                                                                                     \
  "_multi_tensor_adam@torch/optim/adam.py:400;step@torch/optim/adam.py:200;train@gan.py:35;<module>@gan.py:50"

/* A critic's optimizer is called once or three times for each call of the generator's: their rounds are the steps, and each keeps
 * what is generated. Where it is called whenever it should be, each end is one. */
static void rounds_of_two_optimizers(void **unused) {
  enum { ROUNDS = 12 };
  static const int critics[4][ROUNDS] = {{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
                                         {3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3},
                                         {2, 1, 3, 1, 1, 2, 3, 2, 1, 3, 1, 2},
                                         {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}};
  (void)unused;
  for (int what = 0; what < 4; what++) {
    const bool annotated = what == 3; /* ... and those of calls that a ring overwrote are older than its first event */
    story *s = malloc(sizeof *s);
    uint32_t ends = 0;
    hr_snapshot *snapshot;
    hr_inspection *p;
    const hr_growth *g;
    story_begin(s, 1024 * MIB);
    for (int k = 0; k < 3 && annotated; k++) span(s, "Optimizer.step#Adam.step", 100);
    for (int k = 0; k < LAYERS; k++) story_alloc(s, WEIGHT, INIT);
    for (int round = 0; round < ROUNDS; round++) {
      uint64_t made = story_alloc(s, ACTIVATION, FORWARD);
      for (int k = 0; k < critics[what][round]; k++, ends++) {
        for (int n = 0; n < 4; n++) story_free(s, story_alloc(s, ACTIVATION, FORWARD));
        for (int n = 0; n < 4; n++) story_free(s, story_alloc(s, 1000000, CRITIC_STEP));
        if (annotated) span(s, "Optimizer.step#Adam.step", 1);
      }
      story_free(s, story_alloc(s, ACTIVATION, FORWARD));
      story_alloc(s, 2 * MIB, LEAK);
      story_free(s, made);
      for (int n = 0; n < 4; n++) story_free(s, story_alloc(s, 1000000, MAKER_STEP));
      if (annotated) span(s, "Optimizer.step#Adam.step", 1);
      ends++;
    }
    p = inspect_refused(s, 2000 * MIB, FORWARD, &snapshot);
    assert_string_equal(p->steps_from, annotated ? "annotations" : "optimizer stacks");
    assert_int_equal(p->step_count, what != 2 ? ROUNDS : ends);
    g = growth_at(p, "train.py:77");
    assert_non_null(g);
    assert_int_equal(hr_growth_every_step(g), what != 2);
    hr_inspection_destroy(p);
    hr_snapshot_destroy(snapshot);
  }
}

/* A compiler makes another file of code for a batch of another shape: its places are new, and say nothing of what the usual ones
 * ask for. Another model, that is called from somewhere else, asks for none of that. */
static void code_for_another_shape(void **unused) {
  enum { USUAL = 6 };
  static const char *const calls[] = {FORWARD, "call@/tmp/torchinductor_u/cd/ccd.py:100;forward@model.py:60" CALL MAIN,
                                      "forward@decoder.py:31" CALL ";decode@train.py:95;<module>@train.py:120"};
  (void)unused;
  for (int what = 0; what < 3; what++) {
    story *s = malloc(sizeof *s);
    hr_snapshot *snapshot;
    hr_inspection *p;
    story_begin(s, 1024 * MIB);
    for (int k = 0; k < LAYERS; k++) story_alloc(s, WEIGHT, INIT);
    for (int step = 0; step <= USUAL; step++) {
      uint64_t layers[LAYERS];
      const bool last = step == USUAL;
      for (int k = 0; k < LAYERS; k++)
        layers[k] = story_alloc(s, last ? 3 * ACTIVATION : ACTIVATION, last ? calls[what] : FORWARD);
      if (last) break;
      for (int k = 0; k < LAYERS; k++) story_free(s, layers[k]);
      story_free(s, story_alloc(s, 3000000, OPT_TEMP));
    }
    p = inspect_refused(s, 3 * ACTIVATION, calls[what], &snapshot);
    assert_true(p->step_count > USUAL);
    assert_int_equal(p->asked_known, what != 1);
    assert_int_equal(p->asked_more_bytes, what == 0 ? (3 * (LAYERS + 1) - LAYERS) * (uint64_t)ACTIVATION : 0);
    hr_inspection_destroy(p);
    hr_snapshot_destroy(snapshot);
  }
}

static void test_names_do_not_steer_a_terminal(void **state) {
  char text[] = "a\x1b[31m\nb\x7f\xC2\x9B\xC2\xA0\xC2", line[] = "a\nb";
  (void)state;
  hri_plain_text(text, "\n");
  assert_string_equal(text, "a?[31m\nb???\xC2\xA0\xC2");
  hri_plain_text(line, "");
  assert_string_equal(line, "a?b");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_names_do_not_steer_a_terminal),
      cmocka_unit_test(a_run_with_stacks),
      cmocka_unit_test(passes_of_threads),
      cmocka_unit_test(a_buffer_that_fills_up),
      cmocka_unit_test(layers_are_no_steps),
      cmocka_unit_test(steps_that_keep_most),
      cmocka_unit_test(code_for_another_shape),
      cmocka_unit_test(a_leak_from_before_at_each_failure),
      cmocka_unit_test(a_list_falls_in_one_row),
      cmocka_unit_test(a_variable_beside_a_list),
      cmocka_unit_test(a_window_before_it_gives_back),
      cmocka_unit_test(a_queue_that_grows_slowly),
      cmocka_unit_test(some_answers_are_kept),
      cmocka_unit_test(a_loop_without_a_model),
      cmocka_unit_test(passes_are_steps),
      cmocka_unit_test(what_some_passes_keep),
      cmocka_unit_test(layers_that_are_sent_one_by_one),
      cmocka_unit_test(more_calls_than_weights),
      cmocka_unit_test(a_step_that_fails_in_its_first_layer),
      cmocka_unit_test(sums_around_layers),
      cmocka_unit_test(inputs_that_are_kept_too),
      cmocka_unit_test(threads_of_two_models),
      cmocka_unit_test(rounds_of_two_optimizers),
      cmocka_unit_test(every_instant_adds_up),
      cmocka_unit_test(leaks_caches_and_one_offs),
      cmocka_unit_test(leaks_at_distances_and_windows),
      cmocka_unit_test(kept_here_and_there),
      cmocka_unit_test(a_window_and_a_large_step),
      cmocka_unit_test(a_window_that_has_just_filled),
      cmocka_unit_test(a_hook_keeps_beside_gradients),
      cmocka_unit_test(growth_up_to_a_failure),
      cmocka_unit_test(stages_of_requests),
      cmocka_unit_test(what_is_made_anew_and_larger),
      cmocka_unit_test(passes_that_begin_twice),
      cmocka_unit_test(steps_by_a_place),
      cmocka_unit_test(a_loop_that_ended_has_no_steps),
      cmocka_unit_test(a_queue_that_grows),
      cmocka_unit_test(what_one_line_joins),
      cmocka_unit_test(passes_whose_tensors_go_again),
      cmocka_unit_test(a_table_that_is_enlarged),
      cmocka_unit_test(a_workspace_is_no_pass),
      cmocka_unit_test(batches_of_a_loader_are_no_steps),
      cmocka_unit_test(a_cache_grew_before_the_recording),
      cmocka_unit_test(outputs_piled_up_before_the_recording),
      cmocka_unit_test(a_ring_begins_within_a_pass),
      cmocka_unit_test(growth_within_a_step),
      cmocka_unit_test(the_users_own_frame_stands),
      cmocka_unit_test(mixed_rows_say_so),
      cmocka_unit_test(steps_come_from_annotations_stacks_or_repetition),
      cmocka_unit_test(a_second_step_that_fails_early),
      cmocka_unit_test(a_step_that_stands_out),
      cmocka_unit_test(a_thread_without_stacks_is_backward),
      cmocka_unit_test(without_stacks_lives_decide),
      cmocka_unit_test(stacks_of_frameworks),
      cmocka_unit_test(stacks_in_short),
      cmocka_unit_test(steps_from_labels),
      cmocka_unit_test(a_limit_is_told_where_something_shows_it),
      cmocka_unit_test(recorded_settings_say_what_is_asked_of_the_driver),
      cmocka_unit_test(chunks_are_as_large_as_was_set),
      cmocka_unit_test(a_request_grows_from_chunks_or_returns_them),
      cmocka_unit_test(a_request_is_tested_not_guessed),
      cmocka_unit_test(a_trace_that_ends_within_a_step),
      cmocka_unit_test(segments_are_rounded_as_pytorch_does),
      cmocka_unit_test(comparisons_name_what_changed),
      cmocka_unit_test(texts_and_json),
      cmocka_unit_test(little_is_enough),
      cmocka_unit_test(long_names_are_cut),
      cmocka_unit_test(nonsense_is_inspected),
      cmocka_unit_test(refused_memory_is_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
