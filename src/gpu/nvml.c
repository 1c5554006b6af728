/* NVML by dlopen (nvml.h). Prototypes, structures and names are those of nvml.h of the toolkit; the versioned names stay
 * in the library for good. */
#include "gpu/nvml.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/text.h"
#include "gpu/library.h"

enum { MOST_PROCESSES = 256 };

/* nvmlMemory_t, and nvmlProcessInfo_t of the functions with _v3. */
typedef struct memory_info {
  unsigned long long total, free, used;
} memory_info;
typedef struct process_info {
  unsigned pid;
  unsigned long long bytes; /* all ones: not available */
  unsigned gpu_instance, compute_instance;
} process_info;

/* X(function, name in the library, parameters); every one returns an nvmlReturn_t, 0 for success. */
/* clang-format off */
#define NVML(X)                                                                                       \
  X(init, "nvmlInit_v2", (void))                                                                      \
  X(shutdown, "nvmlShutdown", (void))                                                                 \
  X(driver, "nvmlSystemGetDriverVersion", (char *text, unsigned bytes))                               \
  X(by_uuid, "nvmlDeviceGetHandleByUUID", (const char *uuid, void **device))                          \
  X(memory, "nvmlDeviceGetMemoryInfo", (void *device, memory_info *memory))                           \
  X(processes, "nvmlDeviceGetComputeRunningProcesses_v3", (void *device, unsigned *count, process_info *list))
/* clang-format on */

struct hri_nvml {
  void *library, *device;
#define FUNCTION(member, name, parameters) int(*member) parameters;
  NVML(FUNCTION)
#undef FUNCTION
  process_info list[MOST_PROCESSES];
};

static bool load(hri_nvml *n) {
  bool whole = true;
  n->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!n->library) return false;
#define LOAD(member, name, parameters) whole = hri_library_function(n->library, name, (void *)&n->member) && whole;
  NVML(LOAD)
#undef LOAD
  return whole;
}

static void program_of(hri_nvml_holder *h) {
  char path[48], *end;
  FILE *file;
  (void)snprintf(path, sizeof path, "/proc/%u/comm", h->pid);
  file = fopen(path, "re");
  if (!file) return;
  if (!fgets(h->name, sizeof h->name, file)) h->name[0] = 0;
  end = strchr(h->name, '\n');
  if (end) *end = 0;
  (void)fclose(file);
}

static int by_bytes(const void *a, const void *b) {
  const process_info *x = a, *y = b;
  return x->bytes < y->bytes ? 1 : x->bytes > y->bytes ? -1 : 0;
}

static void take_processes(process_info *list, unsigned count, hri_nvml_memory *memory) {
  for (unsigned k = 0; k < count; k++)
    if (list[k].bytes == ~0ull) list[k].bytes = 0;
  qsort(list, count, sizeof *list, by_bytes);
  for (unsigned k = 0; k < count; k++) {
    hri_nvml_holder *h = &memory->holders[memory->holder_count];
    if (list[k].pid == (unsigned)getpid()) {
      memory->own_bytes = list[k].bytes;
      continue;
    }
    if (memory->holder_count == HRI_NVML_HOLDERS) continue;
    memory->holder_count++;
    h->pid = list[k].pid;
    h->bytes = list[k].bytes;
    program_of(h);
  }
}

hri_nvml *hri_nvml_open(const unsigned char uuid[16]) {
  hri_nvml *n = hri_alloc_zero(1, sizeof *n);
  char text[HRI_NVML_UUID_BYTES];
  hri_nvml_uuid_text(uuid, text);
  if (n && load(n)) {
    if (n->init() == 0) {
      if (n->by_uuid(text, &n->device) == 0) return n;
      (void)n->shutdown();
    }
  }
  if (n && n->library) (void)dlclose(n->library);
  hri_free(n);
  return NULL;
}

void hri_nvml_close(hri_nvml *n) {
  if (!n) return;
  (void)n->shutdown();
  (void)dlclose(n->library);
  hri_free(n);
}

bool hri_nvml_ask(hri_nvml *n, hri_nvml_memory *memory) {
  memory_info info = {0};
  unsigned count = MOST_PROCESSES;
  memset(memory, 0, sizeof *memory);
  if (!n || n->memory(n->device, &info) != 0 || info.total == 0) return false;
  memory->total_bytes = info.total;
  memory->free_bytes = info.free;
  if (n->processes(n->device, &count, n->list) == 0 && count <= MOST_PROCESSES) take_processes(n->list, count, memory);
  return true;
}

bool hri_nvml_driver(hri_nvml *n, char out[HRI_NVML_VERSION_BYTES]) {
  if (n && n->driver(out, HRI_NVML_VERSION_BYTES) == 0 && memchr(out, 0, HRI_NVML_VERSION_BYTES)) return true;
  out[0] = 0;
  return false;
}

void hri_nvml_uuid_text(const unsigned char uuid[16], char out[HRI_NVML_UUID_BYTES]) {
  size_t used = (size_t)snprintf(out, HRI_NVML_UUID_BYTES, "GPU-");
  for (int k = 0; k < 16; k++)
    used += (size_t)snprintf(out + used, HRI_NVML_UUID_BYTES - used, "%s%02x",
                             k == 4 || k == 6 || k == 8 || k == 10 ? "-" : "", uuid[k]);
}

bool hri_nvml_look(const unsigned char uuid[16], hri_nvml_memory *memory) {
  hri_nvml *n = hri_nvml_open(uuid);
  bool told = hri_nvml_ask(n, memory);
  hri_nvml_close(n);
  return told;
}

char *hri_nvml_holders_text(const hri_nvml_memory *memory, char *out, uint32_t out_bytes) {
  size_t used = 0;
  char size[32];
  out[0] = 0;
  for (uint32_t k = 0; k < memory->holder_count && used < out_bytes; k++) {
    const hri_nvml_holder *h = &memory->holders[k];
    used += (size_t)snprintf(out + used, out_bytes - used, h->name[0] ? "%s%s (pid %u)%s%s" : "%s%spid %u%s%s",
                             k ? ", " : "", h->name, h->pid, h->bytes ? " " : "",
                             h->bytes ? hri_size_text(h->bytes, size) : "");
  }
  return out;
}
