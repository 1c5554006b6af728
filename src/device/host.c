#include "device/host.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/cpu.h"

/* A "Name:  123 kB" line of /proc/self/status, in bytes. No heap: called once per step. */
static uint64_t status_bytes(const char *name) {
  char text[4096];
  const char *line;
  ssize_t count;
  int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  count = read(fd, text, sizeof text - 1);
  close(fd);
  if (count <= 0) return 0;
  text[count] = 0;
  line = strstr(text, name);
  return line ? strtoull(line + strlen(name), NULL, 10) * 1024 : 0;
}

uint64_t hri_host_resident_bytes(void) { return status_bytes("VmRSS:"); }
uint64_t hri_host_peak_bytes(void) { return status_bytes("VmHWM:"); }

uint64_t hri_host_usable_bytes(void) {
  hr_device cpu;
  hri_device_cpu(&cpu);
  return cpu.usable_bytes;
}
