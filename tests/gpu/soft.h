/* A GPU for one test: opened, asked what it found, closed. The one in software; with HRI_TEST_CARD a card, on which the same
 * tests of kernels run (bench/gpu). */
#ifndef HRI_TEST_SOFT_H
#define HRI_TEST_SOFT_H

#ifdef __cplusplus
extern "C" {
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#ifdef __cplusplus
}
#endif

#include "gpu/runtime.h"

typedef struct soft_test {
  hri_gpu *gpu;
  hri_gpu_stream *stream;
} soft_test;

#ifdef HRI_TEST_CARD
#include "gpu/card.h"
#else
#include "gpu/soft/runtime.h"

static inline soft_test soft_open(uint64_t seed) {
  hri_gpu_soft_options options = {seed, 0, 0, NULL};
  soft_test t = {NULL, NULL};
  hr_error error;
  memset(&error, 0, sizeof error);
  if (hri_gpu_soft_open(&options, &t.gpu, &error) != HR_OK) fail_msg("%s", error.message);
  assert_int_equal(t.gpu->calls->stream_create(t.gpu, &t.stream, &error), HR_OK);
  return t;
}

static inline void soft_close(soft_test *t) {
  t->gpu->calls->stream_destroy(t->gpu, t->stream);
  t->gpu->calls->close(t->gpu);
}

/* Waits; the number of findings of a kind, which are all there are. Of a race, a reader that comes
 * early finds nothing there, or a copy in flight: these count too. */
static inline uint64_t soft_found(soft_test *t, hri_soft_fault fault) {
  const hri_soft_report *r = hri_gpu_soft_report(t->gpu);
  uint64_t found;
  (void)t->gpu->calls->stream_finish(t->gpu, t->stream, NULL);
  found = r->of[fault] + (fault == HRI_SOFT_SHARED_RACE ? r->of[HRI_SOFT_COPY] + r->of[HRI_SOFT_SHARED_UNWRITTEN] : 0);
  if (found != r->count) fail_msg("another finding: %s", r->first);
  return found;
}

static inline void soft_clean(soft_test *t) {
  const hri_soft_report *r = hri_gpu_soft_report(t->gpu);
  (void)t->gpu->calls->stream_finish(t->gpu, t->stream, NULL);
  if (r->count) fail_msg("%llu findings: %s", (unsigned long long)r->count, r->first);
}

static inline void *soft_memory(soft_test *t, uint64_t count) {
  void *device;
  assert_int_equal(t->gpu->calls->allocate(t->gpu, count, &device, NULL), HR_OK);
  return device;
}
#endif

/* Device memory that holds the bytes. */
static inline void *soft_upload(soft_test *t, const void *bytes, uint64_t count) {
  void *device = soft_memory(t, count), *host;
  assert_int_equal(t->gpu->calls->allocate_host(t->gpu, count, &host, NULL), HR_OK);
  memcpy(host, bytes, count);
  assert_int_equal(t->gpu->calls->copy(t->gpu, device, host, count, t->stream, NULL), HR_OK);
  (void)t->gpu->calls->stream_finish(t->gpu, t->stream, NULL);
  assert_int_equal(t->gpu->calls->release_host(t->gpu, host, NULL), HR_OK);
  return device;
}

static inline void soft_download(soft_test *t, void *bytes, const void *device, uint64_t count) {
  void *host;
  assert_int_equal(t->gpu->calls->allocate_host(t->gpu, count, &host, NULL), HR_OK);
  assert_int_equal(t->gpu->calls->copy(t->gpu, host, device, count, t->stream, NULL), HR_OK);
  (void)t->gpu->calls->stream_finish(t->gpu, t->stream, NULL);
  memcpy(bytes, host, count);
  assert_int_equal(t->gpu->calls->release_host(t->gpu, host, NULL), HR_OK);
}

#endif
