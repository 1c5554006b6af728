/* The two kinds of hooks: host memory can be written and goes back; fake addresses are the same each time, lowest gap
 * first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include <headroom/alloc.h>

#include "base/mem.h"

#define BASE UINT64_C(0x7f0000000000)
#define MIB(n) ((uint64_t)(n) << 20)

static void fake_addresses_fill_the_lowest_gap(void **state) {
  hr_alloc_hooks h;
  (void)state;
  assert_int_equal(hr_alloc_fake_hooks(0, &h, NULL), HR_OK);
  assert_int_equal(h.reserve(h.context, MIB(2), 0), BASE);
  assert_int_equal(h.reserve(h.context, MIB(20), 1), BASE + MIB(2));
  assert_int_equal(h.reserve(h.context, 512, 0), BASE + MIB(22));
  assert_int_equal(h.reserve(h.context, MIB(4), 0), BASE + MIB(24)); /* 512 bytes took a whole granule */
  h.release(h.context, BASE + MIB(2), MIB(20));
  h.release(h.context, BASE, MIB(2));
  assert_int_equal(h.reserve(h.context, MIB(23), 0), BASE + MIB(28)); /* the gap has 22 */
  assert_int_equal(h.reserve(h.context, MIB(6), 0), BASE);
  assert_int_equal(h.reserve_range(h.context, MIB(10), 0), BASE + MIB(6));
  assert_int_equal(h.reserve(h.context, MIB(6), 0), BASE + MIB(16));
  assert_int_equal(h.reserve(h.context, MIB(2), 0), BASE + MIB(28) + MIB(24));
  h.release_range(h.context, BASE + MIB(6), MIB(10));
  assert_int_equal(h.reserve(h.context, MIB(10), 0), BASE + MIB(6));
  assert_int_equal(h.reserve(h.context, 0, 0), 0);
  assert_int_equal(h.reserve(h.context, UINT64_MAX, 0), 0);
  assert_int_equal(h.reserve(h.context, UINT64_C(1) << 63, 0), 0);
  hr_alloc_hooks_destroy(&h);
}

static void check_memory(const hr_alloc_hooks *h, uint64_t free_bytes, uint64_t total_bytes) {
  uint64_t free_now, total;
  h->device_memory(h->context, &free_now, &total);
  assert_int_equal(free_now, free_bytes);
  assert_int_equal(total, total_bytes);
}

static void a_capacity_limits_segments_and_mapped_bytes(void **state) {
  hr_alloc_hooks h;
  uint64_t range;
  (void)state;
  assert_int_equal(hr_alloc_fake_hooks(MIB(100), &h, NULL), HR_OK);
  check_memory(&h, MIB(100), MIB(100));
  assert_int_equal(h.reserve(h.context, MIB(60), 0), BASE);
  assert_int_equal(h.reserve(h.context, MIB(41), 0), 0);
  range = h.reserve_range(h.context, MIB(1000), 0); /* addresses cost nothing */
  assert_int_equal(range, BASE + MIB(60));
  assert_true(h.map(h.context, range, MIB(40)));
  check_memory(&h, 0, MIB(100));
  assert_false(h.map(h.context, range + MIB(40), 512));
  h.unmap(h.context, range, MIB(20));
  check_memory(&h, MIB(20), MIB(100));
  h.release(h.context, BASE, MIB(60));
  check_memory(&h, MIB(80), MIB(100));
  hr_alloc_hooks_destroy(&h);
}

static void adopted_ranges_are_taken(void **state) {
  hr_alloc_hooks h;
  (void)state;
  assert_int_equal(hr_alloc_fake_hooks(MIB(10), &h, NULL), HR_OK);
  assert_true(h.adopt(h.context, HR_ALLOC_ADOPT_SEGMENT, 4096, 512)); /* below all that is given */
  assert_true(h.adopt(h.context, HR_ALLOC_ADOPT_SEGMENT, BASE + MIB(2), MIB(2)));
  assert_false(h.adopt(h.context, HR_ALLOC_ADOPT_SEGMENT, BASE + MIB(3), MIB(2)));
  assert_false(h.adopt(h.context, HR_ALLOC_ADOPT_RANGE, BASE + MIB(1), MIB(2)));
  assert_false(h.adopt(h.context, HR_ALLOC_ADOPT_SEGMENT, UINT64_MAX - 512, 1024));
  assert_true(h.adopt(h.context, HR_ALLOC_ADOPT_RANGE, BASE + MIB(5) + 512, MIB(20)));
  assert_true(h.adopt(h.context, HR_ALLOC_ADOPT_MAP, BASE + MIB(5) + 512, MIB(2)));
  check_memory(&h, MIB(6) - 512, MIB(10));
  assert_int_equal(h.reserve(h.context, MIB(2), 0), BASE);
  assert_int_equal(h.reserve(h.context, MIB(2), 0),
                   BASE + MIB(26)); /* half a granule in front of the range is no gap */
  h.release(h.context, BASE + MIB(2), MIB(2));
  assert_int_equal(h.reserve(h.context, MIB(2), 0), BASE + MIB(2));
  h.release(h.context, 4096, 512);
  h.unmap(h.context, BASE + MIB(5) + 512, MIB(2));
  h.release_range(h.context, BASE + MIB(5) + 512, MIB(20));
  check_memory(&h, MIB(4), MIB(10));
  hr_alloc_hooks_destroy(&h);
}

/* Against a plain model: a map of granules. */
static void random_reserves_agree_with_a_model(void **state) {
  enum { GRANULES = 400, LIVE = 60 };
  bool taken[GRANULES] = {false};
  struct {
    uint64_t address, granules;
  } live[LIVE];
  int count = 0;
  unsigned seed = 17;
  hr_alloc_hooks h;
  (void)state;
  assert_int_equal(hr_alloc_fake_hooks(0, &h, NULL), HR_OK);
  for (int round = 0; round < 20000; round++) {
    seed = seed * 1103515245u + 12345u;
    if (count == LIVE || (count && seed >> 16 & 1)) {
      int pick = (int)(seed >> 17) % count;
      for (uint64_t k = 0; k < live[pick].granules; k++) taken[(live[pick].address - BASE) / MIB(2) + k] = false;
      h.release(h.context, live[pick].address, live[pick].granules * MIB(2));
      live[pick] = live[--count];
    } else {
      uint64_t granules = 1 + (seed >> 20) % 5, at = 0, run = 0;
      for (; run < granules; at++) run = taken[at] ? 0 : run + 1;
      at -= granules;
      assert_int_equal(h.reserve(h.context, granules * MIB(2) - (seed >> 8 & 1023), 0), BASE + at * MIB(2));
      for (uint64_t k = 0; k < granules; k++) taken[at + k] = true;
      live[count].address = BASE + at * MIB(2);
      live[count++].granules = granules;
    }
  }
  hr_alloc_hooks_destroy(&h);
}

static bool resident(uint64_t address) {
  unsigned char page = 0;
  return mincore((void *)(uintptr_t)address, 4096, &page) == 0 && (page & 1);
}

static void host_memory_can_be_used_and_goes_back(void **state) {
  hr_alloc_hooks h;
  uint64_t a, range, free_bytes, total;
  (void)state;
  assert_int_equal(hr_alloc_host_hooks(&h, NULL), HR_OK);
  a = h.reserve(h.context, MIB(3), 0);
  assert_true(a && a % MIB(2) == 0);
  memset((void *)(uintptr_t)a, 7, MIB(3));
  h.release(h.context, a, MIB(3));
  assert_int_equal(mincore((void *)(uintptr_t)a, 4096, &(unsigned char){0}), -1);
  range = h.reserve_range(h.context, UINT64_C(1) << 40, 0);
  assert_true(range && range % MIB(2) == 0);
  assert_true(h.map(h.context, range + MIB(20), MIB(20)));
  memset((void *)(uintptr_t)(range + MIB(20)), 9, MIB(20));
  assert_true(resident(range + MIB(30)));
  h.unmap(h.context, range + MIB(20), MIB(20));
  assert_false(resident(range + MIB(30)));
  assert_true(h.map(h.context, range + MIB(20), MIB(2)));
  assert_int_equal(*(char *)(uintptr_t)(range + MIB(20)), 0);
  h.release_range(h.context, range, UINT64_C(1) << 40);
  assert_int_equal(h.reserve(h.context, UINT64_MAX, 0), 0);
  assert_int_equal(h.reserve(h.context, UINT64_C(1) << 60, 0), 0);
  h.device_memory(h.context, &free_bytes, &total);
  assert_true(total >= MIB(64) && free_bytes <= total);
  hr_alloc_hooks_destroy(&h);
  assert_null(h.reserve);
  hr_alloc_hooks_destroy(NULL);
}

static void an_allocator_runs_on_either(void **state) {
  (void)state;
  for (int kind = 0; kind < 4; kind++) {
    hr_alloc_hooks h;
    hr_alloc_config config = hr_alloc_config_default();
    hr_alloc *alloc;
    uint64_t addresses[50];
    uint64_t live = hri_mem_live_bytes();
    config.expandable_segments = kind & 1;
    assert_int_equal(kind & 2 ? hr_alloc_fake_hooks(MIB(1000), &h, NULL) : hr_alloc_host_hooks(&h, NULL), HR_OK);
    assert_int_equal(hr_alloc_create(&h, &config, &alloc, NULL), HR_OK);
    for (int k = 0; k < 50; k++) {
      uint64_t bytes = 1000u + (uint64_t)k * 77777;
      assert_int_equal(hr_alloc_malloc(alloc, bytes, 0, &addresses[k], NULL), HR_OK);
      if (!(kind & 2)) memset((void *)(uintptr_t)addresses[k], k, bytes);
    }
    for (int k = 0; k < 50; k++) {
      if (!(kind & 2)) assert_int_equal(*(char *)(uintptr_t)addresses[k], k);
      assert_int_equal(hr_alloc_free(alloc, addresses[k], NULL), HR_OK);
    }
    assert_int_equal(hr_alloc_empty_cache(alloc, NULL), HR_OK);
    if (kind & 2) check_memory(&h, MIB(1000), MIB(1000));
    assert_int_equal(hr_alloc_malloc(alloc, MIB(30), 0, addresses, NULL), HR_OK);
    hr_alloc_destroy(alloc); /* with a live block */
    if (kind & 2) check_memory(&h, MIB(1000), MIB(1000));
    hr_alloc_hooks_destroy(&h);
    assert_int_equal(hri_mem_live_bytes(), live);
  }
}

/* Refused when it is made, not at the first request by a jump to nowhere. */
static void an_allocator_needs_memory_from_somewhere(void **state) {
  hr_alloc *alloc = NULL;
  hr_alloc_hooks h, without;
  hr_error error = {0};
  (void)state;
  assert_int_equal(hr_alloc_fake_hooks(0, &h, &error), HR_OK);
  for (int k = 0; k < 2; k++) {
    without = h;
    if (k) without.reserve = NULL;
    else without.release = NULL;
    assert_int_equal(hr_alloc_create(&without, NULL, &alloc, &error), HR_ERROR_USAGE);
    assert_non_null(strstr(error.message, "reserve and release"));
    assert_null(alloc);
  }
  hr_alloc_hooks_destroy(&h);
}

static void survives_refused_memory(void **state) {
  hr_alloc_hooks h;
  hr_error error = {0};
  (void)state;
  hri_mem_fail_after(1);
  assert_int_equal(hr_alloc_fake_hooks(0, &h, &error), HR_ERROR_MEMORY);
  hri_mem_fail_after(0);
  assert_int_equal(hr_alloc_fake_hooks(MIB(10), &h, &error), HR_OK);
  hri_mem_fail_after(1);
  assert_int_equal(h.reserve(h.context, MIB(2), 0), 0);
  hri_mem_fail_after(0);
  check_memory(&h, MIB(10), MIB(10)); /* what was charged is given back */
  assert_int_equal(h.reserve(h.context, MIB(2), 0), BASE);
  hr_alloc_hooks_destroy(&h);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(fake_addresses_fill_the_lowest_gap),
      cmocka_unit_test(a_capacity_limits_segments_and_mapped_bytes),
      cmocka_unit_test(adopted_ranges_are_taken),
      cmocka_unit_test(random_reserves_agree_with_a_model),
      cmocka_unit_test(host_memory_can_be_used_and_goes_back),
      cmocka_unit_test(an_allocator_runs_on_either),
      cmocka_unit_test(an_allocator_needs_memory_from_somewhere),
      cmocka_unit_test(survives_refused_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
