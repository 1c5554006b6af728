/* A card in the place of the GPU in software, by the same names (soft.h): device 0 of CUDA's driver, opened once for a
 * program. What a test took of its memory is given back when the test ends; fresh memory is all ones, as in software. A card
 * says of a kernel that it failed, and no more: what is wrong shows as a value. */
#ifndef HRI_TEST_CARD_H
#define HRI_TEST_CARD_H

static void *card_memory[4096];
static size_t card_memory_count;

static inline void soft_clean(soft_test *t) {
  hr_error error;
  memset(&error, 0, sizeof error);
  if (t->gpu->calls->stream_finish(t->gpu, t->stream, &error) != HR_OK) fail_msg("%s", error.message);
}

static inline soft_test soft_open(uint64_t seed) {
  static hri_gpu *gpu;
  soft_test t = {NULL, NULL};
  hr_error error;
  memset(&error, 0, sizeof error);
  (void)seed; /* of orders that nobody chooses here */
  if (!gpu && hri_gpu_cuda_open(0, &gpu, &error) != HR_OK) fail_msg("%s", error.message);
  t.gpu = gpu;
  if (gpu->calls->stream_create(gpu, &t.stream, &error) != HR_OK) fail_msg("%s", error.message);
  return t;
}

static inline void soft_close(soft_test *t) {
  soft_clean(t);
  while (card_memory_count > 0)
    assert_int_equal(t->gpu->calls->release(t->gpu, card_memory[--card_memory_count], NULL), HR_OK);
  t->gpu->calls->stream_destroy(t->gpu, t->stream);
}

static inline void *soft_memory(soft_test *t, uint64_t count) {
  void *device;
  assert_true(card_memory_count < sizeof card_memory / sizeof *card_memory);
  assert_int_equal(t->gpu->calls->allocate(t->gpu, count ? count : 1, &device, NULL), HR_OK);
  assert_int_equal(t->gpu->calls->fill(t->gpu, device, 0xFF, count, t->stream, NULL), HR_OK);
  card_memory[card_memory_count++] = device;
  return device;
}

#endif
