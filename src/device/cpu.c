/* The figures of this machine come from /proc, /sys and the process limits. A process may have less than the machine:
 * its CPU set and quota bound the threads, its control groups and its address-space limit bound the memory. */
#include "device/cpu.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { SMALL_FILE_BYTES = 8192, MAX_CPUS = 4096, CGROUP_PATH_BYTES = 512 };

/* Up to SMALL_FILE_BYTES - 1 of a file of the kernel (whose sizes are not known before), NUL-terminated. */
static bool read_small(const char *path, char out[SMALL_FILE_BYTES]) {
  size_t used = 0;
  ssize_t got = 1;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  while (used + 1 < SMALL_FILE_BYTES && got > 0) {
    got = read(fd, out + used, SMALL_FILE_BYTES - 1 - used);
    if (got > 0) used += (size_t)got;
  }
  close(fd);
  out[used] = 0;
  return got >= 0;
}

/* The number that follows `key` at the start of a line; false when there is none ("max" is none). */
static bool number_after(const char *text, const char *key, uint64_t *value) {
  size_t length = strlen(key);
  const char *line = text;
  while (strncmp(line, key, length) != 0) {
    line = strchr(line, '\n');
    if (!line++) return false;
  }
  line += length;
  while (*line == ' ' || *line == '\t') line++;
  if (*line < '0' || *line > '9') return false;
  *value = strtoull(line, NULL, 10);
  return true;
}

static bool read_number(const char *path, uint64_t *value) {
  char text[SMALL_FILE_BYTES];
  return read_small(path, text) && number_after(text, "", value);
}

/* ---- control groups ---- */

/* Path of this process below a hierarchy: of the line "0::" (version 2) or "N:...memory...:" (version 1). */
static bool cgroup_path(const char *controller, char out[CGROUP_PATH_BYTES]) {
  char text[SMALL_FILE_BYTES], *line = text, *save = NULL;
  if (!read_small("/proc/self/cgroup", text)) return false;
  for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
    char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
    size_t length;
    if (!path) continue;
    *path++ = 0;
    if (strcmp(names + 1, controller) != 0 || (length = strlen(path)) >= CGROUP_PATH_BYTES) continue;
    memcpy(out, path, length + 1);
    return true;
  }
  return false;
}

/* The two versions of control groups: where they are, and how their files are called. */
typedef struct memory_groups {
  const char *root, *controller, *limit, *used, *cache_key;
} memory_groups;

static const memory_groups group_versions[] = {
    {"/sys/fs/cgroup", "", "memory.max", "memory.current", "inactive_file"},
    {"/sys/fs/cgroup/memory", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"},
};

static bool group_number(const memory_groups *v, const char *group, const char *file, const char *key, uint64_t *value) {
  char path[CGROUP_PATH_BYTES + 128], text[SMALL_FILE_BYTES];
  (void)snprintf(path, sizeof path, "%s%s/%s", v->root, group, file);
  return read_small(path, text) && number_after(text, key, value);
}

/* What is left of the limits of this process's group and of all groups above it; `bound` is lowered. Pages of files that
 * nobody uses count as left: the kernel drops them first. */
static void bound_by_memory_groups(const memory_groups *v, uint64_t *bound) {
  char group[CGROUP_PATH_BYTES] = "";
  if (!cgroup_path(v->controller, group)) return;
  for (;;) {
    uint64_t limit, used = 0, cache = 0;
    char *slash = strrchr(group, '/');
    if (group_number(v, group, v->limit, "", &limit)) {
      (void)group_number(v, group, v->used, "", &used);
      (void)group_number(v, group, "memory.stat", v->cache_key, &cache);
      used -= cache < used ? cache : used;
      limit -= used < limit ? used : limit;
      if (limit < *bound) *bound = limit;
    }
    if (!slash) return;
    *slash = 0; /* the group above; "" is the root of the hierarchy, or of the container */
  }
}

/* CPUs that a quota of the group allows ("cpu.max": QUOTA PERIOD), or 0 for no limit. */
static uint32_t quota_cpus(void) {
  char group[CGROUP_PATH_BYTES] = "", path[CGROUP_PATH_BYTES + 128], text[SMALL_FILE_BYTES];
  uint32_t least = 0;
  if (!cgroup_path("", group)) return 0;
  for (;;) {
    unsigned long long quota, period;
    char *slash = strrchr(group, '/');
    (void)snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", group);
    if (read_small(path, text) && sscanf(text, "%llu %llu", &quota, &period) == 2 && period > 0) {
      unsigned long long cpus = quota / period + (quota % period != 0);
      if (cpus > 0 && cpus < MAX_CPUS && (least == 0 || cpus < least)) least = (uint32_t)cpus;
    }
    if (!slash) return least;
    *slash = 0;
  }
}

/* ---- processors ---- */

/* Cores and sockets among the CPUs that this process may use; hardware threads of one core count once. */
static void count_cores(uint32_t *cores, uint32_t *sockets) {
  static const size_t set_bytes = MAX_CPUS / 8;
  uint64_t seen_cores[512], seen_sockets[64];
  cpu_set_t set[MAX_CPUS / CPU_SETSIZE];
  *cores = *sockets = 0;
  memset(set, 0, sizeof set);
  if (sched_getaffinity(0, set_bytes, set) != 0) return;
  for (int cpu = 0; cpu < MAX_CPUS && *cores < 512; cpu++) {
    char path[96];
    uint64_t core = (uint64_t)cpu, socket = 0;
    uint32_t i;
    if (!CPU_ISSET_S((size_t)cpu, set_bytes, set)) continue;
    (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/physical_package_id", cpu);
    (void)read_number(path, &socket);
    (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/core_id", cpu);
    (void)read_number(path, &core);
    core |= socket << 32;
    for (i = 0; i < *cores && seen_cores[i] != core;) i++;
    if (i == *cores) seen_cores[(*cores)++] = core;
    for (i = 0; i < *sockets && seen_sockets[i] != socket;) i++;
    if (i == *sockets && i < 64) seen_sockets[(*sockets)++] = socket;
  }
}

uint32_t hr_device_cpu_threads(void) {
  uint32_t cores, sockets, quota = quota_cpus();
  count_cores(&cores, &sockets);
  if (cores == 0) {
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    cores = online > 0 ? (uint32_t)online : 1;
  }
  return quota > 0 && quota < cores ? quota : cores;
}

static void read_title(char out[96]) {
  char text[SMALL_FILE_BYTES], *name;
  (void)snprintf(out, 96, "CPU");
  if (!read_small("/proc/cpuinfo", text)) return;
  name = strstr(text, "model name");
  name = name ? strchr(name, ':') : NULL;
  if (!name) return;
  name += 1 + (name[1] == ' ');
  name[strcspn(name, "\n")] = 0;
  if (*name) (void)snprintf(out, 96, "%.95s", name);
}

/* Rates per core in fp32 that a good GEMM reaches, and whether bf16 products exist. Rough assumptions by instruction
 * set (one machine was measured at 200-250 GFLOP/s a core with AVX-512); a probe replaces them. */
static double assumed_core_flops(bool *bf16) {
  *bf16 = false;
#if defined(__x86_64__)
  __builtin_cpu_init();
#if defined(__GNUC__) && !defined(__clang__)
  *bf16 = __builtin_cpu_supports("avx512bf16") != 0;
#endif
  if (__builtin_cpu_supports("avx512f")) return 200e9;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 80e9;
#endif
  return 20e9;
}

/* ---- memory ---- */

static void read_memory(uint64_t *capacity, uint64_t *usable) {
  char text[SMALL_FILE_BYTES];
  uint64_t kib;
  struct rlimit limit;
  long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGE_SIZE);
  *capacity = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 1ull << 30;
  *usable = *capacity;
  if (read_small("/proc/meminfo", text)) {
    if (number_after(text, "MemTotal:", &kib)) *capacity = kib * 1024;
    if (number_after(text, "MemAvailable:", &kib)) *usable = kib * 1024;
  }
  for (size_t i = 0; i < sizeof group_versions / sizeof *group_versions; i++) bound_by_memory_groups(&group_versions[i], usable);
  /* What the process has mapped already belongs to its fixed part, which the budget holds as well. */
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < *usable) *usable = limit.rlim_cur;
  if (*usable > *capacity) *usable = *capacity;
}

void hri_device_cpu(hr_device *device) {
  uint32_t cores, sockets, threads = hr_device_cpu_threads();
  bool bf16;
  double core_flops = assumed_core_flops(&bf16);
  count_cores(&cores, &sockets);
  memset(device, 0, sizeof *device);
  (void)snprintf(device->name, sizeof device->name, "cpu");
  read_title(device->title);
  device->is_cpu = true;
  read_memory(&device->capacity_bytes, &device->usable_bytes);
  device->memory_bytes_per_second = 30e9 * (sockets ? sockets : 1); /* assumed: two channels of DDR4 a socket, less losses */
  device->flops_fp32 = core_flops * threads;
  device->flops_bf16 = bf16 ? 2 * core_flops * threads : 0;
  device->gemm_efficiency = 1; /* the figures above are reachable rates, not peaks */
  device->memory_efficiency = 1;
  device->fixed_bytes = HRI_CPU_FIXED_BYTES;
  (void)snprintf(device->source, sizeof device->source, "memory: this machine; rates: assumed by instruction set and cores");
}
