/* Who holds the machine's memory: this process, its limits and the largest other processes, from /proc. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <headroom/device.h>

#include "base/text.h"
#include "device/host.h"

static bool read_file(const char *pid, const char *name, char *text, size_t room) {
  char path[300];
  FILE *file;
  size_t count;
  if ((size_t)snprintf(path, sizeof path, "/proc/%s/%s", pid, name) >= sizeof path) return false;
  file = fopen(path, "re");
  if (!file) return false;
  count = fread(text, 1, room - 1, file);
  (void)fclose(file);
  text[count] = 0;
  // NOLINTNEXTLINE(clang-analyzer-security.ArrayBound): at most room - 1 were asked for, and a NUL stands behind them
  text[strcspn(text, "\n")] = 0;
  return count > 0;
}

/* Resident pages that are not shared with files: statm's resident less shared. */
static uint64_t own_bytes(const char *pid) {
  char text[128];
  unsigned long long size, resident, shared;
  if (!read_file(pid, "statm", text, sizeof text) || sscanf(text, "%llu %llu %llu", &size, &resident, &shared) != 3)
    return 0;
  return (resident > shared ? resident - shared : 0) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void insert(hr_host_facts *facts, const hr_host_process *one) {
  uint32_t at = facts->other_count;
  if (at == HR_HOST_MAX_PROCESSES && facts->others[at - 1].resident_bytes >= one->resident_bytes) return;
  if (at < HR_HOST_MAX_PROCESSES) facts->other_count++;
  else at--;
  for (; at > 0 && facts->others[at - 1].resident_bytes < one->resident_bytes; at--)
    facts->others[at] = facts->others[at - 1];
  facts->others[at] = *one;
}

static void add_others(hr_host_facts *facts) {
  DIR *proc = opendir("/proc");
  struct dirent *entry;
  if (!proc) return;
  while ((entry = readdir(proc))) {
    hr_host_process one = {.pid = atoi(entry->d_name)};
    if (one.pid <= 0 || one.pid == (int32_t)getpid()) continue;
    one.resident_bytes = own_bytes(entry->d_name);
    if (one.resident_bytes == 0) continue; /* a thread of the kernel, or gone */
    if (!read_file(entry->d_name, "comm", one.name, sizeof one.name)) one.name[0] = 0;
    hri_plain_text(one.name, ""); /* a process names itself */
    facts->other_bytes += one.resident_bytes;
    insert(facts, &one);
  }
  (void)closedir(proc);
}

void hr_host_facts_now(uint64_t requested_bytes, hr_host_facts *facts) {
  hri_host_memory host = hri_host_memory_now();
  *facts = (hr_host_facts){.requested_bytes = requested_bytes,
                           .total_bytes = host.total_bytes,
                           .available_bytes = host.available_bytes,
                           .group_room_bytes = host.group_bytes,
                           .address_space_room_bytes = host.address_space_bytes,
                           .data_room_bytes = host.data_bytes,
                           .process_resident_bytes = hri_host_resident_bytes()};
  add_others(facts);
}

const char *hr_host_limit_now(uint64_t *room_bytes) {
  hri_host_memory host = hri_host_memory_now();
  *room_bytes = host.usable_bytes;
  return hri_host_limit_name(host.limit);
}
