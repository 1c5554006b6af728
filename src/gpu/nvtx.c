/* The application's side of NVTX 3, which its headers otherwise compile into a program: a profiler names a library in
 * NVTX_INJECTION64_PATH, whose InitializeInjectionNvtx2 asks for tables of function pointers, module by module, and puts its
 * own into them. Numbers and structures are those of nvtx3/nvtxDetail/nvtxTypes.h (CUDA 13.0). Only ranges of a thread are
 * called; the other entries are there for the profiler to fill. */
#include "gpu/nvtx.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/library.h"

enum { CALLBACKS = 1, VERSION_INFO = 3, VERSION = 3 }; /* tables that a profiler asks for */
enum { CORE = 1, MODULES = 6, MOST = 16, RANGE_PUSH = 9, RANGE_POP = 11 };

typedef void (*function)(void);
typedef struct callbacks {
  size_t bytes;
  int (*module_table)(int module, function ***table, unsigned *size);
} callbacks;
typedef struct version_info {
  size_t bytes;
  uint32_t version, reserved;
  void (*set_version)(uint32_t version);
} version_info;

/* Entries of each module: core, CUDA, OpenCL, CUDA's runtime, core with domains, synchronisation. */
static const unsigned sizes[MODULES] = {16, 9, 15, 7, 16, 7};
static function entries[MODULES][MOST];
static function *tables[MODULES][MOST + 1];

static int module_table(int module, function ***table, unsigned *size) {
  if (module < CORE || module > MODULES) return 0;
  for (unsigned k = 1; k < sizes[module - 1]; k++) tables[module - 1][k] = &entries[module - 1][k];
  if (size) *size = sizes[module - 1];
  if (table) *table = tables[module - 1];
  return 1;
}

static void set_version(uint32_t version) { (void)version; }

static const void *export_table(uint32_t id) {
  static const callbacks c = {sizeof c, module_table};
  static const version_info v = {sizeof v, VERSION, 0, set_version};
  return id == CALLBACKS ? (const void *)&c : id == VERSION_INFO ? (const void *)&v : NULL;
}

/* Once: what a profiler did not fill stays NULL. */
static void begin(void) {
  static bool begun;
  const char *path = getenv("NVTX_INJECTION64_PATH");
  int (*injection)(const void *(*table)(uint32_t id)) = NULL;
  void *library;
  if (begun) return;
  begun = true;
  // NOLINTNEXTLINE(clang-analyzer-optin.taint.GenericTaint): whoever profiles names the profiler's library so
  library = path && *path ? dlopen(path, RTLD_LAZY | RTLD_LOCAL) : NULL;
  if (!library) return;
  if (hri_library_function(library, "InitializeInjectionNvtx2", (void *)&injection) && injection(export_table))
    return; /* it stays for as long as the process runs */
  memset(entries, 0, sizeof entries);
  (void)dlclose(library);
}

void hri_nvtx_push(const char *name) {
  int (*push)(const char *name) = NULL;
  begin();
  memcpy(&push, &entries[CORE - 1][RANGE_PUSH], sizeof push);
  if (push) (void)push(name);
}

void hri_nvtx_pop(void) {
  int (*pop)(void) = NULL;
  memcpy(&pop, &entries[CORE - 1][RANGE_POP], sizeof pop);
  if (pop) (void)pop();
}
