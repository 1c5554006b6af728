/* Limits nest: a process is in a control group, which is in others, each with a limit; in a container the path in
 * /proc/self/cgroup may name directories that are not mounted, while the mount point shows the container's own group.
 * So all directories from the group up to the mount point are asked, what is missing is passed over, and the least
 * wins.
 * Both versions of control groups are looked at, as a machine may use both at once. */
#include "device/host.h"

#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { TEXT_BYTES = 8192, PATH_BYTES = 1024, MAX_CPUS = 8192 };

static const char *root = "";

void hri_host_set_root(const char *directory) { root = directory ? directory : ""; }

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* ---- small files of the kernel ---- */

/* The first TEXT_BYTES - 1 bytes of a file, NUL-terminated; false when it cannot be read or the path is too long. */
static bool read_text(const char *path, char text[TEXT_BYTES]) {
  char full[PATH_BYTES];
  size_t used = 0;
  ssize_t got;
  int fd;
  if ((size_t)snprintf(full, sizeof full, "%s%s", root, path) >= sizeof full) return false;
  fd = open(full, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  while ((got = read(fd, text + used, TEXT_BYTES - 1 - used)) > 0) used += (size_t)got;
  (void)close(fd);
  text[used] = 0;
  return used > 0;
}

/* The number at `text`, after blanks. False for "max", "-1" and other words. */
static bool parse_number(const char *text, uint64_t *number) {
  char *end;
  while (*text == ' ' || *text == '\t' || *text == ':') text++;
  if (*text < '0' || *text > '9') return false;
  *number = strtoull(text, &end, 10);
  return end != text;
}

static bool read_number(const char *path, uint64_t *number) {
  char text[TEXT_BYTES];
  return read_text(path, text) && parse_number(text, number);
}

/* The text after `key` in the line that starts with it, or NULL. */
static const char *find_line(const char *text, const char *key) {
  size_t length = strlen(key);
  for (const char *line = text; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL)
    if (strncmp(line, key, length) == 0) return line + length;
  return NULL;
}

/* "VmRSS:  1234 kB" in bytes; `missing` when there is no such line. */
static uint64_t kib_line(const char *text, const char *key, uint64_t missing) {
  const char *line = find_line(text, key);
  uint64_t kib;
  return line && parse_number(line, &kib) && kib <= UINT64_MAX / 1024 ? kib * 1024 : missing;
}

/* The line of a file that begins with `key`, looked for byte by byte. */
typedef struct line_search {
  const char *key;
  char value[64]; /* what follows it, as much of it as has room */
  size_t same, used;
  bool other, done; /* this line does not begin so; the line was there to its end */
} line_search;

static void search(line_search *s, char c) {
  if (s->done) return;
  if (s->key[s->same] == 0) {
    if (c == '\n') s->done = true;
    else if (s->used + 1 < sizeof s->value) s->value[s->used++] = c;
  } else if (c == '\n') {
    s->same = 0;
    s->other = false;
  } else if (!s->other && c == s->key[s->same]) {
    s->same++;
  } else {
    s->other = true;
  }
}

/* The bytes that a line of /proc/self/status says. The file is gone through and not held: before the lines of memory is that of groups, of which a
 * user may have thousands. */
static uint64_t status_line(const char *key) {
  char full[PATH_BYTES], piece[1024];
  line_search s = {.key = key};
  uint64_t kib;
  ssize_t got;
  int fd;
  if ((size_t)snprintf(full, sizeof full, "%s/proc/self/status", root) >= sizeof full) return 0;
  fd = open(full, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  while (!s.done && (got = read(fd, piece, sizeof piece)) > 0)
    for (ssize_t i = 0; i < got; i++) search(&s, piece[i]);
  (void)close(fd);
  return s.done && parse_number(s.value, &kib) && kib <= UINT64_MAX / 1024 ? kib * 1024 : 0;
}

/* ---- control groups ---- */

/* Whether the comma-separated `list` of `length` bytes holds `word`; "" is held by the empty list only (version 2). */
static bool list_holds(const char *list, size_t length, const char *word) {
  size_t want = strlen(word);
  if (!want || !length) return !want && !length;
  for (size_t i = 0; i + want <= length; i++)
    if ((i == 0 || list[i - 1] == ',') && (i + want == length || list[i + want] == ',') &&
        strncmp(list + i, word, want) == 0)
      return true;
  return false;
}

/* Path of this process's group under a controller, from lines "ID:CONTROLLERS:PATH". "" for the top. */
static void group_path(const char *controller, char path[PATH_BYTES]) {
  char text[TEXT_BYTES];
  path[0] = 0;
  if (!read_text("/proc/self/cgroup", text)) return;
  for (char *line = text; *line;) {
    char *end = strchr(line, '\n'), *list = strchr(line, ':'), *name = list ? strchr(list + 1, ':') : NULL;
    if (end) *end = 0;
    if (name && list_holds(list + 1, (size_t)(name - list - 1), controller))
      (void)snprintf(path, PATH_BYTES, "%s", name + 1);
    if (!end) return;
    line = end + 1;
  }
}

/* Calls `visit` for the directory of this process's group below `mount`, and for all above it, the mount point
 * included. */
static void each_group(const char *controller, const char *mount, void (*visit)(const char *directory, void *context),
                       void *context) {
  char path[PATH_BYTES], directory[2 * PATH_BYTES];
  group_path(controller, path);
  for (;;) {
    char *slash = strrchr(path, '/');
    (void)snprintf(directory, sizeof directory, "%s%s", mount, path);
    visit(directory, context);
    if (!slash) return;
    *slash = 0;
  }
}

static bool group_number(const char *directory, const char *file, uint64_t *number) {
  char path[2 * PATH_BYTES + 64];
  (void)snprintf(path, sizeof path, "%s/%s", directory, file);
  return read_number(path, number);
}

/* What a limit leaves. File pages that were not used lately count as free: the kernel drops them before it refuses. */
static void group_room(const char *directory, const char *limit_file, const char *used_file, const char *inactive_key,
                       uint64_t *room) {
  char path[2 * PATH_BYTES + 64], text[TEXT_BYTES];
  uint64_t limit, used = 0, inactive = 0;
  const char *line;
  if (!group_number(directory, limit_file, &limit)) return;
  (void)group_number(directory, used_file, &used);
  (void)snprintf(path, sizeof path, "%s/memory.stat", directory);
  if (read_text(path, text) && (line = find_line(text, inactive_key))) (void)parse_number(line, &inactive);
  used -= least(used, inactive);
  *room = least(*room, limit - least(limit, used));
}

static void visit_memory_v2(const char *directory, void *room) {
  group_room(directory, "memory.max", "memory.current", "inactive_file ", room);
}
/* Version 1 writes "no limit" as a number near 2^63, which is harmless. */
static void visit_memory_v1(const char *directory, void *room) {
  group_room(directory, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ", room);
}

static void take_quota(uint64_t quota, uint64_t period, double *cpus) {
  if (period) *cpus = fmin(*cpus, (double)quota / (double)period);
}
static void visit_quota_v2(const char *directory, void *cpus) {
  char path[2 * PATH_BYTES + 64], text[TEXT_BYTES];
  uint64_t quota, period;
  char *blank;
  (void)snprintf(path, sizeof path, "%s/cpu.max", directory);
  if (!read_text(path, text) || !parse_number(text, &quota) || !(blank = strchr(text, ' ')))
    return; /* "max 100000": none */
  if (parse_number(blank, &period)) take_quota(quota, period, cpus);
}
static void visit_quota_v1(const char *directory, void *cpus) {
  uint64_t quota, period;
  if (group_number(directory, "cpu.cfs_quota_us", &quota) && group_number(directory, "cpu.cfs_period_us", &period))
    take_quota(quota, period, cpus);
}

/* ---- memory ---- */

static const struct {
  const char *name, *remedy;
} limits[HRI_LIMIT_COUNT] = {
    [HRI_LIMIT_MACHINE] = {"the machine's available memory", "close other programs, or plan with a smaller --budget"},
    [HRI_LIMIT_GROUP] =
        {"the memory control group (container, systemd)",
         "give the container or service more memory (docker --memory, MemoryMax), or plan with a smaller --budget"},
    [HRI_LIMIT_ADDRESS_SPACE] =
        {"the address-space limit (ulimit -v, RLIMIT_AS)",
         "lift it with ulimit -v unlimited, give fewer --threads, or plan with a smaller --budget"},
    [HRI_LIMIT_DATA] = {"the data limit (ulimit -d, RLIMIT_DATA)",
                        "lift it with ulimit -d unlimited, give fewer --threads, or plan with a smaller --budget"},
};

const char *hri_host_limit_name(hri_host_limit limit) { return limits[limit].name; }
const char *hri_host_limit_remedy(hri_host_limit limit) { return limits[limit].remedy; }

/* What a limit of this process leaves. The kernel reads a data limit of 0 as the hard one (for what is mapped). */
static uint64_t limit_left(int resource, uint64_t used) {
  struct rlimit limit;
  if (getrlimit(resource, &limit) != 0) return HRI_HOST_UNLIMITED;
  if (resource == RLIMIT_DATA && limit.rlim_cur == 0) limit.rlim_cur = limit.rlim_max;
  return limit.rlim_cur == RLIM_INFINITY ? HRI_HOST_UNLIMITED : limit.rlim_cur - least(limit.rlim_cur, used);
}

static void find_least(hri_host_memory *m) {
  const uint64_t rooms[HRI_LIMIT_COUNT] = {[HRI_LIMIT_MACHINE] = m->available_bytes,
                                           [HRI_LIMIT_GROUP] = m->group_bytes,
                                           [HRI_LIMIT_ADDRESS_SPACE] = m->address_space_bytes,
                                           [HRI_LIMIT_DATA] = m->data_bytes};
  m->limit = HRI_LIMIT_MACHINE;
  for (int k = 1; k < HRI_LIMIT_COUNT; k++)
    if (rooms[k] < rooms[m->limit]) m->limit = (hri_host_limit)k;
  m->usable_bytes = rooms[m->limit];
}

hri_host_memory hri_host_memory_now(void) {
  hri_host_memory m = {.available_bytes = HRI_HOST_UNLIMITED, .group_bytes = HRI_HOST_UNLIMITED};
  char text[TEXT_BYTES];
  if (read_text("/proc/meminfo", text)) {
    m.total_bytes = kib_line(text, "MemTotal:", 0);
    m.available_bytes = kib_line(text, "MemAvailable:", HRI_HOST_UNLIMITED);
  }
  each_group("", "/sys/fs/cgroup", visit_memory_v2, &m.group_bytes);
  each_group("", "/sys/fs/cgroup/unified", visit_memory_v2, &m.group_bytes);
  each_group("memory", "/sys/fs/cgroup/memory", visit_memory_v1, &m.group_bytes);
  m.address_space_bytes = limit_left(RLIMIT_AS, hri_host_address_space_bytes());
  m.data_bytes = limit_left(RLIMIT_DATA, hri_host_data_bytes());
  find_least(&m);
  return m;
}

uint64_t hri_host_resident_bytes(void) { return status_line("VmRSS:"); }
uint64_t hri_host_peak_resident_bytes(void) { return status_line("VmHWM:"); }
uint64_t hri_host_address_space_bytes(void) { return status_line("VmSize:"); }
uint64_t hri_host_data_bytes(void) { return status_line("VmData:"); }

bool hri_host_reset_peak(void) {
  char path[PATH_BYTES];
  bool done;
  int fd;
  if ((size_t)snprintf(path, sizeof path, "%s/proc/self/clear_refs", root) >= sizeof path) return false;
  fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  done = write(fd, "5", 1) == 1; /* 5: reset the peak (proc(5), Linux 4.0) */
  (void)close(fd);
  return done;
}

/* ---- processors ---- */

/* The first hardware thread of the core that `cpu` belongs to ("0,64" or "0-1"); itself when unknown. */
static uint64_t core_leader(size_t cpu) {
  char path[128];
  uint64_t leader = cpu;
  (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%zu/topology/core_cpus_list", cpu);
  if (read_number(path, &leader)) return leader;
  (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%zu/topology/thread_siblings_list", cpu);
  return read_number(path, &leader) ? leader : cpu;
}

hri_host_cores hri_host_cores_now(void) {
  cpu_set_t allowed[MAX_CPUS / CPU_SETSIZE];
  unsigned char counted[MAX_CPUS] = {0};
  hri_host_cores c = {0};
  double quota = INFINITY;
  memset(allowed, 0, sizeof allowed);
  if (sched_getaffinity(0, sizeof allowed, allowed) == 0)
    for (size_t cpu = 0; cpu < MAX_CPUS; cpu++) {
      uint64_t leader;
      if (!CPU_ISSET_S(cpu, sizeof allowed, allowed)) continue;
      c.cpus++;
      leader = core_leader(cpu);
      if (leader >= MAX_CPUS || counted[leader]) continue;
      counted[leader] = 1;
      c.physical++;
    }
  if (!c.cpus) c.cpus = 1;
  if (!c.physical) c.physical = c.cpus;
  each_group("", "/sys/fs/cgroup", visit_quota_v2, &quota);
  each_group("", "/sys/fs/cgroup/unified", visit_quota_v2, &quota);
  each_group("cpu", "/sys/fs/cgroup/cpu", visit_quota_v1, &quota);
  c.quota_cpus = quota < UINT32_MAX ? quota : 0;
  c.quota = c.quota_cpus > 0 ? (uint32_t)fmax(floor(quota), 1) : UINT32_MAX;
  c.usable = c.physical < c.quota ? c.physical : c.quota;
  return c;
}

/* Linux names processors of Arm by numbers, in the register MIDR_EL1 and so in /proc/cpuinfo. Names of those that people
 * train on, as util-linux has them (sys-utils/lscpu-arm.c). */
static const struct {
  uint32_t implementer, part;
  const char *name;
} arm_parts[] = {{0x41, 0xd03, "Arm Cortex-A53"},   {0x41, 0xd05, "Arm Cortex-A55"},
                 {0x41, 0xd07, "Arm Cortex-A57"},   {0x41, 0xd08, "Arm Cortex-A72"},
                 {0x41, 0xd0b, "Arm Cortex-A76"},   {0x41, 0xd41, "Arm Cortex-A78"},
                 {0x41, 0xd0c, "Arm Neoverse-N1"},  {0x41, 0xd40, "Arm Neoverse-V1"},
                 {0x41, 0xd49, "Arm Neoverse-N2"},  {0x41, 0xd4f, "Arm Neoverse-V2"},
                 {0x41, 0xd84, "Arm Neoverse-V3"},  {0x41, 0xd8e, "Arm Neoverse-N3"},
                 {0x46, 0x001, "Fujitsu A64FX"},    {0x48, 0xd01, "HiSilicon TaiShan v110"},
                 {0x6d, 0xd49, "Azure Cobalt 100"}, {0xc0, 0xac3, "Ampere-1"},
                 {0xc0, 0xac4, "Ampere-1a"}};

/* "CPU part\t: 0xd0c" of the first core. */
static bool hexadecimal_line(const char *text, const char *key, uint32_t *number) {
  const char *line = find_line(text, key);
  if (!line) return false;
  *number = (uint32_t)strtoul(line + strspn(line, " \t:"), NULL, 16);
  return true;
}

static bool arm_model(const char *text, char *out, uint32_t out_bytes) {
  uint32_t implementer, part;
  if (!hexadecimal_line(text, "CPU implementer", &implementer) || !hexadecimal_line(text, "CPU part", &part))
    return false;
  (void)snprintf(out, out_bytes, "Arm, implementer 0x%02x, part 0x%03x", implementer, part);
  for (size_t i = 0; i < sizeof arm_parts / sizeof *arm_parts; i++)
    if (arm_parts[i].implementer == implementer && arm_parts[i].part == part)
      (void)snprintf(out, out_bytes, "%s", arm_parts[i].name);
  return true;
}

void hri_host_cpu_model(char *out, uint32_t out_bytes) {
  char text[TEXT_BYTES] = "";
  const char *line = read_text("/proc/cpuinfo", text) ? find_line(text, "model name") : NULL;
  int length;
  if (!line && arm_model(text, out, out_bytes)) return;
  while (line && (*line == ' ' || *line == '\t' || *line == ':')) line++;
  length = line ? (int)strcspn(line, "\n") : 0;
  (void)snprintf(out, out_bytes, "%.*s", length ? length : (int)strlen("unknown processor"),
                 length ? line : "unknown processor");
}

/* The seconds that this process's threads were ready to run and waited for a processor: the second number in the
 * schedstat of each (nanoseconds; Documentation/scheduler/sched-stats.rst of Linux). NAN where the kernel keeps none. */
static double waited_seconds(void) {
  struct entry { /* linux_dirent64, which no header of the C library declares */
    uint64_t inode, offset;
    uint16_t bytes;
    uint8_t type;
    char name[];
  };
  char path[PATH_BYTES], text[TEXT_BYTES];
  _Alignas(struct entry) char entries[TEXT_BYTES];
  double seconds = 0;
  bool known = false;
  long got;
  int fd;
  if ((size_t)snprintf(path, sizeof path, "%s/proc/self/task", root) >= sizeof path) return NAN;
  fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return NAN;
  while ((got = syscall(SYS_getdents64, fd, entries, sizeof entries)) > 0)
    for (const char *at = entries; at < entries + got; at += ((const struct entry *)(const void *)at)->bytes) {
      const char *name = ((const struct entry *)(const void *)at)->name;
      uint64_t waited;
      if (name[0] < '1' || name[0] > '9') continue;
      (void)snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", name);
      if (!read_text(path, text) || !parse_number(text + strcspn(text, " "), &waited)) continue; /* it has ended */
      known = true;
      seconds += 1e-9 * (double)waited;
    }
  (void)close(fd);
  return known ? seconds : NAN;
}

/* "cpu  user nice system idle iowait irq softirq steal ...", in ticks. */
static double stolen_seconds(void) {
  enum { STEAL = 7 };
  char text[TEXT_BYTES];
  const char *at = read_text("/proc/stat", text) ? find_line(text, "cpu ") : NULL;
  uint64_t ticks = 0;
  for (int k = 0; at && k <= STEAL; k++) {
    while (*at == ' ') at++;
    if (!parse_number(at, &ticks)) at = NULL;
    else at += strspn(at, "0123456789");
  }
  return at ? (double)ticks / (double)sysconf(_SC_CLK_TCK) : 0;
}

/* Of the time of a thread: what others may take, by the host's word or by the kernel's, half of what rounds may differ
 * by. Where the kernel does not tell, by interruptions of some milliseconds each; its own are of microseconds, and 16 a
 * second were seen on an idle machine, so their number alone says little. */
static const double STOLEN_SHARE = 0.02, WAITED_SHARE = 0.05, PREEMPTIONS_PER_SECOND = 20;

void hri_host_load_add(hri_host_load *taken, const hri_host_load *before, const hri_host_load *after) {
  taken->stolen_seconds += after->stolen_seconds - before->stolen_seconds;
  taken->waited_seconds += after->waited_seconds - before->waited_seconds;
  taken->preemptions += after->preemptions - before->preemptions;
}

/* The host's word comes in ticks, of which one says nothing. */
bool hri_host_load_disturbs(const hri_host_load *taken, double threads, double seconds) {
  const double tick = 1.0 / (double)sysconf(_SC_CLK_TCK), thread_seconds = threads * seconds;
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  if (taken->stolen_seconds / (double)(online > 1 ? online : 1) > STOLEN_SHARE * seconds + tick) return true;
  return isnan(taken->waited_seconds) ? (double)taken->preemptions > PREEMPTIONS_PER_SECOND * thread_seconds
                                      : taken->waited_seconds > WAITED_SHARE * thread_seconds;
}

hri_host_load hri_host_load_now(void) {
  hri_host_load load = {.stolen_seconds = stolen_seconds(), .waited_seconds = waited_seconds()};
  struct rusage usage;
  if (getrusage(RUSAGE_SELF, &usage) == 0) load.preemptions = (uint64_t)usage.ru_nivcsw;
  return load;
}
