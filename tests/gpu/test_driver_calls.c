/* The calls of CUDA's driver (gpu/cuda.c) in front of a driver whose card is the GPU in software (soft_card.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "gpu/runtime.h"

typedef struct queue {
  hri_gpu *gpu;
  hri_gpu_stream *stream;
  void *memory;
} queue;

enum { BYTES = 4096 };

static void open_queue(queue *q) {
  hr_error error;
  if (hri_gpu_cuda_open(0, &q->gpu, &error) != HR_OK) fail_msg("%s", error.message);
  assert_int_equal(q->gpu->calls->stream_create(q->gpu, &q->stream, &error), HR_OK);
  assert_int_equal(q->gpu->calls->allocate(q->gpu, BYTES, &q->memory, &error), HR_OK);
}

static void close_queue(queue *q) {
  hr_error error;
  assert_int_equal(q->gpu->calls->stream_finish(q->gpu, q->stream, &error), HR_OK);
  q->gpu->calls->stream_destroy(q->gpu, q->stream);
  assert_int_equal(q->gpu->calls->release(q->gpu, q->memory, &error), HR_OK);
  q->gpu->calls->close(q->gpu);
}

static hr_status capture(queue *q, uint64_t refused, hri_gpu_graph **graph, hr_error *error) {
  hr_status status;
  assert_int_equal(q->gpu->calls->capture_begin(q->gpu, q->stream, error), HR_OK);
  assert_int_equal(q->gpu->calls->fill(q->gpu, q->memory, 7, BYTES, q->stream, error), HR_OK);
  hri_mem_fail_after(refused);
  status = q->gpu->calls->capture_end(q->gpu, q->stream, graph, error);
  hri_mem_fail_after(0);
  return status;
}

/* A graph that there is no memory for: the capture is over, and the stream of use again. */
static void a_capture_ends_whatever_fails(void **state) {
  hri_gpu_graph *graph;
  hr_error error;
  queue q;
  (void)state;
  open_queue(&q);
  assert_int_equal(capture(&q, 1, &graph, &error), HR_ERROR_MEMORY);
  assert_null(graph);
  assert_int_equal(q.gpu->calls->stream_finish(q.gpu, q.stream, &error), HR_OK);
  assert_int_equal(capture(&q, 0, &graph, &error), HR_OK);
  assert_int_equal(q.gpu->calls->graph_launch(q.gpu, graph, q.stream, &error), HR_OK);
  assert_int_equal(q.gpu->calls->stream_finish(q.gpu, q.stream, &error), HR_OK);
  q.gpu->calls->graph_destroy(q.gpu, graph);
  close_queue(&q);
}

/* What is not there is released as nothing, and what was refused is not there. */
static void nothing_can_be_released(void **state) {
  void *memory = &memory;
  hr_error error;
  queue q;
  (void)state;
  open_queue(&q);
  assert_int_equal(q.gpu->calls->allocate(q.gpu, UINT64_C(1) << 50, &memory, &error), HR_ERROR_MEMORY);
  assert_null(memory);
  assert_int_equal(q.gpu->calls->release(q.gpu, memory, &error), HR_OK);
  assert_int_equal(q.gpu->calls->release_host(q.gpu, NULL, &error), HR_OK);
  q.gpu->calls->graph_destroy(q.gpu, NULL);
  q.gpu->calls->event_destroy(q.gpu, NULL);
  close_queue(&q);
}

/* The loader looks where it was told to when the process began. */
int main(int count, char **words) {
  const char *path = getenv("LD_LIBRARY_PATH");
  (void)count;
  if (!path || strcmp(path, HR_SOFT_CARD) != 0) {
    if (setenv("LD_LIBRARY_PATH", HR_SOFT_CARD, 1) == 0) (void)execv("/proc/self/exe", words);
    return 1;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_capture_ends_whatever_fails),
                                     cmocka_unit_test(nothing_can_be_released)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
