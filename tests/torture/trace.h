/* The kernel's own count of the system calls that a child makes on files of a tree: what the preloaded library's counts
 * are held against. */
#ifndef HRI_TORTURE_TRACE_H
#define HRI_TORTURE_TRACE_H

#include <stdbool.h>

#include "torture/shim.h"

typedef struct trace {
  bool possible;                   /* false: this machine allows no tracing */
  int code;                        /* exit code, or 128 + signal */
  uint64_t calls[SHIM_KIND_COUNT]; /* by the kind as which the kernel sees it (SHIM_KINDS) */
  uint64_t unknown;                /* calls of kinds that the library cannot hook */
  char unknown_names[256];
} trace;

/* Runs `words` (a program and its arguments, NULL at the end) with `environment` and standard output and error into
 * files. */
trace trace_run(const char *const *words, char *const *environment, const char *tree, const char *out, const char *err);
/* The kind as which the kernel sees a kind. */
shim_kind trace_kind(shim_kind kind);
/* Calls of libc and system calls that do not come one to one: only that they are seen at all can be compared. */
bool trace_is_loose(shim_kind kind);

#endif
