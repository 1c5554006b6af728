/* Arenas take exactly what they state, also under an address-space limit; and what is read of the host, on made-up
 * machines below a temporary directory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <headroom/device.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "backend/cpu/arena.h"
#include "device/host.h"
#include "support/fork.h"
#include "support/scratch.h"
#include "support/team.h"

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#if !defined(SANITIZED)
#define SANITIZED 0
#endif

#define MIB (UINT64_C(1) << 20)

/* ---- arenas ---- */

static void test_exact(void **state) {
  static const uint64_t sizes[] =
      {1, 4095, 4096, 4097, 65536, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 5 * MIB + 12345, 64 * MIB, 100 * MIB + 4096};
  const uint64_t page = hri_arena_granule();
  hri_arena warm;
  hr_error error;
  (void)state;
  assert_true(page >= 4096 && page % (uint64_t)sysconf(_SC_PAGESIZE) == 0);
  /* Threads take address space of their own when they first start. */
  assert_int_equal(hri_arena_reserve(&warm, 16 * MIB, team_of(2), NULL, &error), HR_OK);
  hri_arena_release(&warm);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (uint32_t threads = 1; threads <= 2; threads++) {
      uint64_t before = hri_host_address_space_bytes(), resident = hri_host_resident_bytes(), sum = 0, grown;
      hri_arena arena;
      assert_int_equal(hri_arena_reserve(&arena, sizes[i], team_of((int)threads), NULL, &error), HR_OK);
      assert_int_equal(arena.bytes, (sizes[i] + page - 1) / page * page);
      assert_int_equal(arena.bytes, hri_arena_round(sizes[i]));
      assert_int_equal((uintptr_t)arena.base % page, 0);
      if (!SANITIZED) assert_int_equal(hri_host_address_space_bytes() - before, arena.bytes);
      grown = hri_host_resident_bytes() - resident;
      /* The kernel counts resident pages in batches per processor: allow 1 MiB of slack either way. */
      if (!SANITIZED && arena.bytes > 8 * MIB) assert_true(grown + MIB >= arena.bytes && grown <= arena.bytes + MIB);
      for (uint64_t at = 0; at < arena.bytes; at++) sum += arena.base[at];
      assert_int_equal(sum, 0);
      memset(arena.base, 0xA5, arena.bytes);
      hri_arena_release(&arena);
      assert_null(arena.base);
      assert_int_equal(arena.bytes, 0);
      if (!SANITIZED) assert_int_equal(hri_host_address_space_bytes(), before);
      hri_arena_release(&arena);
    }
}

static void test_options(void **state) {
  hri_arena_options options = {.untouched = true, .small_pages = true};
  uint64_t resident = hri_host_resident_bytes();
  hri_arena arena;
  hr_error error;
  (void)state;
  assert_int_equal(hri_arena_reserve(&arena, 256 * MIB, team_of(2), &options, &error), HR_OK);
  assert_true(hri_host_resident_bytes() < resident + 16 * MIB);
  hri_arena_release(&arena);
  assert_int_equal(hri_arena_reserve(&arena, 0, team_of(2), NULL, &error), HR_OK);
  assert_null(arena.base);
  assert_int_equal(arena.bytes, 0);
  hri_arena_release(&arena);
}

static void test_refusal(void **state) {
  static const uint64_t sizes[] = {UINT64_C(1) << 60, UINT64_MAX - 4095, UINT64_MAX};
  (void)state;
  for (int i = 0; i < 3; i++) {
    hri_arena arena;
    hr_error error;
    memset(&arena, 0xFF, sizeof arena);
    assert_int_equal(hri_arena_reserve(&arena, sizes[i], team_of(2), NULL, &error), HR_ERROR_MEMORY);
    assert_int_equal(error.code, HR_ERROR_MEMORY);
    assert_int_equal(error.requested_bytes, sizes[i]);
    assert_true(error.available_bytes > 0);
    assert_true(strlen(error.hint) > 0);
    assert_null(arena.base);
    assert_int_equal(arena.bytes, 0);
    hri_arena_release(&arena);
    assert_int_equal(hri_arena_reserve(&arena, sizes[i], team_of(2), NULL, NULL), HR_ERROR_MEMORY);
  }
}

typedef struct wish {
  uint64_t room, bytes;
} wish;

static int reserve(void *context) {
  const wish *w = context;
  uint64_t limit = hri_host_address_space_bytes() + w->room;
  struct rlimit as = {limit, limit};
  hri_arena arena;
  hr_error error;
  hr_status status;
  if (setrlimit(RLIMIT_AS, &as) != 0) return 99;
  if (hri_host_memory_now().usable_bytes > w->room) return 98;
  status = hri_arena_reserve(&arena, w->bytes, NULL, NULL, &error);
  if (status == HR_OK) return arena.bytes == w->bytes ? 0 : 97;
  return status == HR_ERROR_MEMORY && error.requested_bytes == w->bytes && error.available_bytes <= w->room ? 1 : 96;
}

/* In a child with an address-space limit that leaves `room` bytes: 0 when reserving `bytes` succeeds. */
static int reserve_in_room(uint64_t room, uint64_t bytes) { return in_child(reserve, &(wish){room, bytes}, 60); }

static void test_address_space_limit(void **state) {
  static const uint64_t sizes[] = {4096, 2 * MIB, 3 * MIB + 4096, 96 * MIB};
  (void)state;
  if (SANITIZED) skip();
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    assert_int_equal(reserve_in_room(sizes[i], sizes[i]), 0);
    assert_int_equal(reserve_in_room(sizes[i] - 4096, sizes[i]), 1);
  }
}

/* ---- made-up machines ---- */

static const char *machine;

static void machine_write(const char *path, const char *text) {
  char full[PATH_MAX], *slash;
  FILE *file;
  (void)snprintf(full, sizeof full, "%s%s", machine, path);
  slash = strrchr(full, '/');
  *slash = 0;
  assert_int_equal(hri_dir_make(full, NULL), HR_OK);
  *slash = '/';
  file = fopen(full, "w");
  assert_non_null(file);
  assert_true(fputs(text, file) >= 0);
  assert_int_equal(fclose(file), 0);
}

static int machine_setup(void **state) {
  (void)state;
  machine = scratch_make("host");
  machine_write("/proc/meminfo",
                "MemTotal:       16777216 kB\nMemFree:         1048576 kB\nMemAvailable:    8388608 kB\n");
  machine_write("/proc/cpuinfo",
                "processor\t: 0\nvendor_id\t: X\nmodel name\t: Example 9000 CPU @ 3 GHz\nflags\t: a b\n");
  hri_host_set_root(machine);
  return 0;
}

static int machine_teardown(void **state) {
  (void)state;
  hri_host_set_root(NULL);
  return hri_dir_remove(machine, NULL) == HR_OK ? 0 : -1;
}

static void test_no_groups(void **state) {
  hri_host_memory m = hri_host_memory_now();
  char model[64], short_model[8];
  (void)state;
  assert_int_equal(m.total_bytes, UINT64_C(16) << 30);
  assert_int_equal(m.available_bytes, UINT64_C(8) << 30);
  assert_int_equal(m.group_bytes, HRI_HOST_UNLIMITED);
  assert_true(m.usable_bytes <= UINT64_C(8) << 30);
  assert_int_equal(hri_host_cores_now().quota, UINT32_MAX);
  hri_host_cpu_model(model, sizeof model);
  assert_string_equal(model, "Example 9000 CPU @ 3 GHz");
  hri_host_cpu_model(short_model, sizeof short_model);
  assert_string_equal(short_model, "Example");
  assert_int_equal(hri_host_resident_bytes(), 0);
  assert_false(hri_host_reset_peak());
}

/* Processors of Arm have numbers; a kernel that gives a name as well is believed. */
static void test_names_of_arm_processors(void **state) {
  static const struct {
    const char *text, *name;
  } cases[] = {{"processor\t: 0\nCPU implementer\t: 0x41\nCPU variant\t: 0x1\nCPU part\t: 0xd40\n", "Arm Neoverse-V1"},
               {"processor\t: 0\nCPU implementer\t: 0x6d\nCPU part\t: 0xd49\n", "Azure Cobalt 100"},
               {"processor\t: 0\nCPU implementer\t: 0x61\nCPU part\t: 0x022\n", "Arm, implementer 0x61, part 0x022"},
               {"processor\t: 0\nmodel name\t: Own Name\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n", "Own Name"},
               {"processor\t: 0\nCPU part\t: 0xd40\n", "unknown processor"},
               {"\n", "unknown processor"}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char model[64];
    machine_write("/proc/cpuinfo", cases[i].text);
    hri_host_cpu_model(model, sizeof model);
    assert_string_equal(model, cases[i].name);
  }
}

/* The default team, and what plan and devices say of it. */
static void assert_team(uint32_t threads, const char *reason) {
  hr_cpu_team team;
  char text[128];
  hr_device_cpu_team(&team);
  assert_int_equal(team.threads, threads);
  assert_string_equal(hr_cpu_team_reason(&team, text, sizeof text), reason);
}

/* The least of cores and whole CPUs of the quota, and whichever it is by name. */
static void test_reasons_of_a_team(void **state) {
  static const struct {
    hr_cpu_team team;
    const char *reason;
  } cases[] = {
      {{.threads = 1, .processors = 4, .cores = 4, .quota_cpus = 1.5}, "a quota of 1.5 CPUs"},
      {{.threads = 4, .processors = 4, .cores = 4, .quota_cpus = 6}, "the cores that this process may use"},
      {{.threads = 4, .processors = 4, .cores = 4}, "the cores that this process may use"},
      {{.threads = 2, .processors = 4, .cores = 2}, "the cores of the 4 processors that this process may use"},
  };
  char text[128];
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_string_equal(hr_cpu_team_reason(&cases[i].team, text, sizeof text), cases[i].reason);
}

/* Version 2: the group has room for 3 GiB, the one above it for 2 GiB less what is used beyond inactive file pages. */
static void test_groups_v2(void **state) {
  (void)state;
  machine_write("/proc/self/cgroup", "0::/user/job\n");
  machine_write("/sys/fs/cgroup/user/job/memory.max", "4294967296\n");
  machine_write("/sys/fs/cgroup/user/job/memory.current", "1073741824\n");
  assert_int_equal(hri_host_memory_now().group_bytes, UINT64_C(3) << 30);
  machine_write("/sys/fs/cgroup/user/memory.max", "2147483648\n");
  machine_write("/sys/fs/cgroup/user/memory.current", "1073741824\n");
  machine_write("/sys/fs/cgroup/user/memory.stat",
                "anon 805306368\nfile 268435456\ninactive_anon 5\ninactive_file 268435456\n");
  assert_int_equal(hri_host_memory_now().group_bytes, (UINT64_C(2) << 30) - (UINT64_C(768) << 20));
  machine_write("/sys/fs/cgroup/user/memory.current",
                "3147483648\n"); /* over the limit: nothing is left, not 2^64 - x */
  assert_int_equal(hri_host_memory_now().group_bytes, 0);
  assert_int_equal(hri_host_memory_now().usable_bytes, 0);
  machine_write("/sys/fs/cgroup/user/memory.max", "max\n");
  machine_write("/sys/fs/cgroup/user/job/memory.max", "max\n");
  assert_int_equal(hri_host_memory_now().group_bytes, HRI_HOST_UNLIMITED);
  machine_write("/sys/fs/cgroup/user/job/cpu.max", "350000 100000\n");
  assert_int_equal(hri_host_cores_now().quota, 3);
  assert_float_equal(hri_host_cores_now().quota_cpus, 3.5, 1e-9);
  machine_write("/sys/fs/cgroup/user/cpu.max", "50000 100000\n"); /* half a CPU still runs one thread */
  assert_int_equal(hri_host_cores_now().quota, 1);
  assert_int_equal(hri_host_cores_now().usable, 1);
  assert_float_equal(hri_host_cores_now().quota_cpus, 0.5, 1e-9);
  assert_team(1, "a quota of 0.5 CPU");
  machine_write("/sys/fs/cgroup/user/cpu.max", "max 100000\n");
  machine_write("/sys/fs/cgroup/user/job/cpu.max", "max 100000\n");
  assert_int_equal(hri_host_cores_now().quota, UINT32_MAX);
  assert_float_equal(hri_host_cores_now().quota_cpus, 0, 0);
}

/* A container: the path names directories that are not mounted here, the mount point is the container's own group. */
static void test_groups_in_container(void **state) {
  (void)state;
  machine_write("/proc/self/cgroup", "0::/docker/0123abcd\n");
  machine_write("/sys/fs/cgroup/memory.max", "1073741824\n");
  machine_write("/sys/fs/cgroup/memory.current", "73741824\n");
  machine_write("/sys/fs/cgroup/cpu.max", "200000 100000\n");
  assert_int_equal(hri_host_memory_now().group_bytes, 1000000000);
  assert_int_equal(hri_host_cores_now().quota, 2);
}

static void test_groups_v1(void **state) {
  (void)state;
  machine_write("/proc/self/cgroup", "9:name=systemd:/x\n4:memory:/a\n3:cpu,cpuacct:/b\n0::/\n");
  machine_write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  machine_write("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1000000\n");
  machine_write("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "700000\n");
  machine_write("/sys/fs/cgroup/memory/a/memory.stat", "inactive_file 1\ntotal_inactive_file 200000\n");
  assert_int_equal(hri_host_memory_now().group_bytes, 500000);
  machine_write("/sys/fs/cgroup/cpu/b/cpu.cfs_quota_us", "400000\n");
  machine_write("/sys/fs/cgroup/cpu/b/cpu.cfs_period_us", "100000\n");
  machine_write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  machine_write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  assert_int_equal(hri_host_cores_now().quota, 4);
}

static void test_topology(void **state) {
  hri_host_cores real = hri_host_cores_now(), shared;
  (void)state;
  assert_int_equal(real.physical, real.cpus); /* nothing known: each thread counts as a core */
  for (uint32_t cpu = 0; cpu < 4096; cpu++) {
    char path[96], list[32];
    (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/%s", cpu,
                   cpu % 4 < 2 ? "core_cpus_list" : "thread_siblings_list");
    (void)snprintf(list, sizeof list, cpu % 4 < 2 ? "%u-%u\n" : "%u,%u\n", cpu / 2 * 2, cpu / 2 * 2 + 1);
    if (cpu < 64) machine_write(path, list);
  }
  shared = hri_host_cores_now();
  assert_int_equal(shared.cpus, real.cpus);
  if (real.cpus >= 2 && real.cpus <= 64)
    assert_true(shared.physical < real.physical && shared.physical >= real.cpus / 2);
  assert_int_equal(shared.usable, shared.physical);
}

/* ---- this machine ---- */

static void test_this_machine(void **state) {
  hri_host_memory m = hri_host_memory_now();
  hri_host_cores c = hri_host_cores_now();
  uint64_t peak;
  char model[96];
  hri_arena arena;
  (void)state;
  assert_true(m.total_bytes > 64 * MIB && m.available_bytes <= m.total_bytes && m.usable_bytes > 0);
  assert_true(c.cpus >= 1 && c.physical >= 1 && c.physical <= c.cpus && c.usable >= 1);
  hri_host_cpu_model(model, sizeof model);
  assert_true(strlen(model) > 0);
  assert_true(hri_host_resident_bytes() > 0);
  assert_int_equal(hri_arena_reserve(&arena, 64 * MIB, NULL, NULL, NULL), HR_OK);
  hri_arena_release(&arena);
  peak = hri_host_peak_resident_bytes();
  assert_true(peak >= 64 * MIB);
  if (hri_host_reset_peak()) assert_true(hri_host_peak_resident_bytes() + 32 * MIB < peak);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_exact),
      cmocka_unit_test(test_options),
      cmocka_unit_test(test_refusal),
      cmocka_unit_test(test_address_space_limit),
      cmocka_unit_test_setup_teardown(test_no_groups, machine_setup, machine_teardown),
      cmocka_unit_test_setup_teardown(test_names_of_arm_processors, machine_setup, machine_teardown),
      cmocka_unit_test(test_reasons_of_a_team),
      cmocka_unit_test_setup_teardown(test_groups_v2, machine_setup, machine_teardown),
      cmocka_unit_test_setup_teardown(test_groups_in_container, machine_setup, machine_teardown),
      cmocka_unit_test_setup_teardown(test_groups_v1, machine_setup, machine_teardown),
      cmocka_unit_test_setup_teardown(test_topology, machine_setup, machine_teardown),
      cmocka_unit_test(test_this_machine),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
