/* Streams, events, graphs, limits of the GPU in software: every legal order gives the same bits, an illegal one is found. */
#include "gpu/soft.h"

enum { SEEDS = 24, BYTES = 1024 };

static hr_status copy(soft_test *t, void *to, const void *from, hri_gpu_stream *stream) {
  return t->gpu->calls->copy(t->gpu, to, from, BYTES, stream, NULL);
}
static void fill(soft_test *t, void *to, uint8_t value, hri_gpu_stream *stream) {
  assert_int_equal(t->gpu->calls->fill(t->gpu, to, value, BYTES, stream, NULL), HR_OK);
}
static void after(soft_test *t, hri_gpu_stream *waits, hri_gpu_stream *on, hri_gpu_event *event) {
  assert_int_equal(t->gpu->calls->record(t->gpu, event, on, NULL), HR_OK);
  assert_int_equal(t->gpu->calls->wait(t->gpu, waits, event, NULL), HR_OK);
}

typedef struct two {
  soft_test t;
  hri_gpu_stream *other;
  hri_gpu_event *event;
  unsigned char *a, *b, *host;
} two;

static two two_open(uint64_t seed) {
  two w = {.t = soft_open(seed)};
  void *host;
  assert_int_equal(w.t.gpu->calls->stream_create(w.t.gpu, &w.other, NULL), HR_OK);
  assert_int_equal(w.t.gpu->calls->event_create(w.t.gpu, &w.event, NULL), HR_OK);
  w.a = soft_memory(&w.t, BYTES);
  w.b = soft_memory(&w.t, BYTES);
  assert_int_equal(w.t.gpu->calls->allocate_host(w.t.gpu, BYTES, &host, NULL), HR_OK);
  w.host = host;
  return w;
}

static void two_close(two *w) {
  w->t.gpu->calls->event_destroy(w->t.gpu, w->event);
  w->t.gpu->calls->stream_destroy(w->t.gpu, w->other);
  soft_close(&w->t);
}

/* Written in one stream, copied in another behind a wait, fetched in the first behind one. */
static void waits_order_streams(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    two w = two_open(seed);
    for (int round = 0; round < 4; round++) {
      fill(&w.t, w.a, (uint8_t)(10 + round), w.t.stream);
      after(&w.t, w.other, w.t.stream, w.event);
      assert_int_equal(copy(&w.t, w.b, w.a, w.other), HR_OK);
      after(&w.t, w.t.stream, w.other, w.event);
      assert_int_equal(copy(&w.t, w.host, w.b, w.t.stream), HR_OK);
      soft_clean(&w.t);
      assert_int_equal(w.host[0], 10 + round);
      assert_int_equal(w.host[BYTES - 1], 10 + round);
    }
    two_close(&w);
  }
}

/* The same without one of the waits: read after write, write after write, write after read. Found whatever was first. */
static void missing_waits(void **state) {
  (void)state;
  for (int fault = 0; fault < 3; fault++)
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
      two w = two_open(seed);
      fill(&w.t, w.b, 1, w.t.stream);
      if (fault != 1) soft_clean(&w.t); /* the host waited: what follows anywhere is ordered */
      if (fault == 0) {
        fill(&w.t, w.a, 1, w.t.stream);
        assert_int_equal(copy(&w.t, w.b, w.a, w.other), HR_OK);
      } else if (fault == 1) {
        fill(&w.t, w.b, 2, w.other);
      } else {
        assert_int_equal(copy(&w.t, w.host, w.b, w.t.stream), HR_OK);
        fill(&w.t, w.b, 2, w.other);
      }
      (void)w.t.gpu->calls->stream_finish(w.t.gpu, w.other, NULL);
      if (soft_found(&w.t, HRI_SOFT_WAIT) == 0) fail_msg("fault %d, seed %d", fault, (int)seed);
      two_close(&w);
    }
}

/* Two streams read side by side; who writes then waits for both, or is found. */
static void readers_of_two_streams(void **state) {
  (void)state;
  for (int both = 0; both < 2; both++)
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
      two w = two_open(seed);
      hri_gpu_stream *third;
      void *host;
      assert_int_equal(w.t.gpu->calls->stream_create(w.t.gpu, &third, NULL), HR_OK);
      assert_int_equal(w.t.gpu->calls->allocate_host(w.t.gpu, BYTES, &host, NULL), HR_OK);
      fill(&w.t, w.a, 7, third);
      after(&w.t, w.other, third, w.event);
      after(&w.t, w.t.stream, third, w.event);
      assert_int_equal(copy(&w.t, w.b, w.a, w.other), HR_OK);
      assert_int_equal(copy(&w.t, host, w.a, w.t.stream), HR_OK);
      after(&w.t, third, w.other, w.event);
      if (both) after(&w.t, third, w.t.stream, w.event);
      fill(&w.t, w.a, 8, third);
      (void)w.t.gpu->calls->stream_finish(w.t.gpu, third, NULL);
      if (both) soft_clean(&w.t);
      else assert_true(soft_found(&w.t, HRI_SOFT_WAIT) > 0);
      w.t.gpu->calls->stream_destroy(w.t.gpu, third);
      two_close(&w);
    }
}

/* A stream's copies are done when it is waited for, not before: pinned memory that is written too early goes out. */
static void copies_are_late(void **state) {
  int early = 0, late = 0;
  (void)state;
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    two w = two_open(seed);
    memset(w.host, 1, BYTES);
    assert_int_equal(copy(&w.t, w.a, w.host, w.t.stream), HR_OK);
    memset(w.host, 2, BYTES); /* the fault */
    soft_clean(&w.t);
    assert_int_equal(copy(&w.t, w.host, w.a, w.t.stream), HR_OK);
    soft_clean(&w.t);
    if (w.host[5] == 1) early++;
    else late++;
    two_close(&w);
  }
  assert_true(early > 0 && late > 0);
}

/* fill, fork, copies in two branches, join: launched thrice, with other bytes in between. */
static hri_gpu_graph *capture(two *w, unsigned char *c) {
  hri_gpu_graph *graph;
  assert_int_equal(w->t.gpu->calls->capture_begin(w->t.gpu, w->t.stream, NULL), HR_OK);
  assert_int_equal(copy(&w->t, w->a, w->host, w->t.stream), HR_OK);
  after(&w->t, w->other, w->t.stream, w->event);
  assert_int_equal(copy(&w->t, c, w->a, w->other), HR_OK);
  assert_int_equal(copy(&w->t, w->b, w->a, w->t.stream), HR_OK);
  after(&w->t, w->t.stream, w->other, w->event);
  assert_int_equal(copy(&w->t, w->a, c, w->t.stream), HR_OK);
  assert_int_equal(w->t.gpu->calls->capture_end(w->t.gpu, w->t.stream, &graph, NULL), HR_OK);
  return graph;
}

static void graphs(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    two w = two_open(seed);
    unsigned char *c = soft_memory(&w.t, BYTES), out[BYTES];
    hri_gpu_graph *graph = capture(&w, c);
    soft_clean(&w.t);
    for (int round = 0; round < 3; round++) {
      memset(w.host, 30 + round, BYTES);
      assert_int_equal(w.t.gpu->calls->graph_launch(w.t.gpu, graph, w.t.stream, NULL), HR_OK);
      soft_download(&w.t, out, round % 2 ? w.b : c, BYTES);
      assert_int_equal(out[BYTES / 2], 30 + round);
    }
    /* launches one behind the other, in two streams: of one graph they do not overlap, but the copy out must wait */
    assert_int_equal(w.t.gpu->calls->graph_launch(w.t.gpu, graph, w.t.stream, NULL), HR_OK);
    assert_int_equal(copy(&w.t, w.host, w.b, w.other), HR_OK);
    (void)w.t.gpu->calls->stream_finish(w.t.gpu, w.other, NULL);
    assert_true(soft_found(&w.t, HRI_SOFT_WAIT) > 0);
    w.t.gpu->calls->graph_destroy(w.t.gpu, graph);
    two_close(&w);
  }
}

/* A branch that is not joined, a wait from outside, waiting within: refused in words. */
static void captures_refused(void **state) {
  two w = two_open(0);
  const hri_gpu_calls *call = w.t.gpu->calls;
  hri_gpu_graph *graph;
  hri_gpu_event *outside;
  hr_error error = {0};
  (void)state;
  assert_int_equal(call->event_create(w.t.gpu, &outside, NULL), HR_OK);
  fill(&w.t, w.a, 1, w.other);
  assert_int_equal(call->record(w.t.gpu, outside, w.other, NULL), HR_OK);
  assert_int_not_equal(call->capture_end(w.t.gpu, w.t.stream, &graph, NULL), HR_OK);
  assert_int_equal(call->capture_begin(w.t.gpu, w.t.stream, NULL), HR_OK);
  assert_int_not_equal(call->capture_begin(w.t.gpu, w.t.stream, NULL), HR_OK);
  assert_int_not_equal(call->stream_finish(w.t.gpu, w.t.stream, NULL), HR_OK);
  assert_int_not_equal(call->wait(w.t.gpu, w.t.stream, outside, NULL), HR_OK);
  after(&w.t, w.other, w.t.stream, w.event);
  fill(&w.t, w.b, 1, w.other);
  assert_int_equal(call->capture_end(w.t.gpu, w.t.stream, &graph, &error), HR_ERROR_INTERNAL);
  assert_non_null(strstr(error.message, "joined"));
  assert_null(graph);
  call->event_destroy(w.t.gpu, outside);
  two_close(&w);
}

static void limits(void **state) {
  hri_gpu_soft_options options = {.memory_bytes = 1 << 20};
  hri_gpu *gpu, *second;
  hri_gpu_info info;
  void *a, *b;
  hr_error error = {0};
  (void)state;
  assert_int_equal(hri_gpu_soft_open(&options, &gpu, NULL), HR_OK);
  assert_int_equal(hri_gpu_soft_open(&options, &second, &error), HR_ERROR_UNSUPPORTED);
  assert_int_equal(gpu->calls->allocate(gpu, 1000000, &a, NULL), HR_OK);
  assert_int_equal(gpu->calls->info(gpu, &info, NULL), HR_OK);
  assert_int_equal(info.free_bytes, (1 << 20) - 1000000);
  assert_int_equal(gpu->calls->allocate(gpu, 50000, &b, &error), HR_ERROR_MEMORY);
  assert_int_equal(error.requested_bytes, 50000);
  assert_int_equal(error.available_bytes, (1 << 20) - 1000000);
  assert_int_equal(gpu->calls->release(gpu, a, NULL), HR_OK);
  assert_int_equal(gpu->calls->allocate(gpu, 1 << 20, &b, NULL), HR_OK);
  ((unsigned char *)b)[1 << 20] = 0; /* what no accessor looked at: a guard */
  assert_int_equal(gpu->calls->release(gpu, b, NULL), HR_OK);
  assert_int_equal(hri_gpu_soft_report(gpu)->of[HRI_SOFT_GUARDS], 1);
  assert_int_not_equal(gpu->calls->release(gpu, b, NULL), HR_OK);
  gpu->calls->close(gpu);
}

/* Pageable memory is refused; copies beyond an allocation, and into released memory, are found. */
static void copies_checked(void **state) {
  unsigned char pageable[BYTES];
  two w = two_open(5);
  (void)state;
  assert_int_not_equal(copy(&w.t, w.a, pageable, w.t.stream), HR_OK);
  fill(&w.t, w.a + 8, 1, w.t.stream);
  assert_int_equal(soft_found(&w.t, HRI_SOFT_BOUNDS), 1);
  two_close(&w);
  w = two_open(6);
  fill(&w.t, w.a, 1, w.t.stream);
  soft_clean(&w.t);
  assert_int_equal(w.t.gpu->calls->release(w.t.gpu, w.a, NULL), HR_OK);
  assert_int_equal(copy(&w.t, w.b, w.a, w.t.stream), HR_OK);
  assert_int_equal(soft_found(&w.t, HRI_SOFT_FREED), 1);
  two_close(&w);
}

/* Without a driver the other implementation says so, in words that name what is missing. */
static void cuda_missing(void **state) {
  hri_gpu *gpu;
  hr_error error = {0};
  hr_status status = hri_gpu_cuda_open(0, &gpu, &error);
  (void)state;
  if (status == HR_OK) {
    gpu->calls->close(gpu);
    skip();
  }
  assert_int_equal(status, HR_ERROR_UNSUPPORTED);
  assert_true(strstr(error.message, "libcuda.so.1") || strstr(error.message, "CUDA"));
  assert_true(error.hint[0] != 0);
}

/* Stamps are made in the order of the stream, whatever runs first; nothing is told before both are over. */
static void timed_events(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    two w = two_open(seed);
    const hri_gpu_calls *call = w.t.gpu->calls;
    hri_gpu_event *timed[3];
    hri_gpu_graph *graph;
    double first = -1, second = -1, both = -1;
    for (int k = 0; k < 3; k++) assert_int_equal(call->event_create_timed(w.t.gpu, &timed[k], NULL), HR_OK);
    assert_int_equal(call->event_seconds(w.t.gpu, timed[0], timed[1], &first, NULL),
                     HR_ERROR_INTERNAL); /* never recorded */
    assert_int_equal(call->record(w.t.gpu, timed[0], w.t.stream, NULL), HR_OK);
    fill(&w.t, w.a, 1, w.t.stream);
    fill(&w.t, w.b, 1, w.other); /* beside it */
    assert_int_equal(call->record(w.t.gpu, timed[1], w.t.stream, NULL), HR_OK);
    for (int k = 0; k < 200; k++) fill(&w.t, w.a, (uint8_t)k, w.t.stream);
    assert_int_equal(call->record(w.t.gpu, timed[2], w.t.stream, NULL), HR_OK);
    assert_int_equal(call->event_finish(w.t.gpu, timed[2], NULL), HR_OK);
    assert_int_equal(call->event_seconds(w.t.gpu, timed[0], timed[1], &first, NULL), HR_OK);
    assert_int_equal(call->event_seconds(w.t.gpu, timed[1], timed[2], &second, NULL), HR_OK);
    assert_int_equal(call->event_seconds(w.t.gpu, timed[0], timed[2], &both, NULL), HR_OK);
    assert_true(first >= 0 && second > 0 && both >= second && both - first - second < 1e-6 && both < 60);
    assert_int_equal(call->event_seconds(w.t.gpu, timed[0], w.event, &both, NULL), HR_ERROR_INTERNAL); /* has no time */
    soft_clean(&w.t);
    assert_int_equal(call->capture_begin(w.t.gpu, w.t.stream, NULL), HR_OK);
    assert_int_equal(call->record(w.t.gpu, timed[0], w.t.stream, NULL), HR_ERROR_INTERNAL);
    assert_int_equal(call->capture_end(w.t.gpu, w.t.stream, &graph, NULL), HR_OK);
    call->graph_destroy(w.t.gpu, graph);
    assert_int_equal(call->record(w.t.gpu, timed[0], w.other, NULL), HR_OK); /* may still be queued when it goes */
    for (int k = 0; k < 3; k++) call->event_destroy(w.t.gpu, timed[k]);
    two_close(&w);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(waits_order_streams),
                                     cmocka_unit_test(missing_waits),
                                     cmocka_unit_test(readers_of_two_streams),
                                     cmocka_unit_test(copies_are_late),
                                     cmocka_unit_test(graphs),
                                     cmocka_unit_test(captures_refused),
                                     cmocka_unit_test(limits),
                                     cmocka_unit_test(copies_checked),
                                     cmocka_unit_test(timed_events),
                                     cmocka_unit_test(cuda_missing)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
