/* Whether the preloaded library misses anything: a clean run of its own kind under ptrace, with the library in place.
 * The kernel's
 * count of calls on the tree and the library's must agree, kind by kind, and no call may be of a kind that it cannot
 * hook. */
#include "torture/parts.h"

#include <stdio.h>
#include <string.h>

#include "torture/trace.h"

static size_t compare(const char *name, const trace *t, const shim_counts *counts) {
  uint64_t seen[SHIM_KIND_COUNT] = {0};
  size_t wrong = 0;
  for (int kind = 0; kind < SHIM_KIND_COUNT; kind++)
    seen[trace_kind((shim_kind)kind)] += counts->calls[SHIM_TREE][kind];
  for (int kind = 0; kind < SHIM_KIND_COUNT; kind++) {
    bool loose = trace_is_loose((shim_kind)kind);
    if (loose ? !t->calls[kind] || seen[kind] : t->calls[kind] == seen[kind]) continue;
    (void)printf("calls %s: the kernel saw %llu calls of %s on the tree, the library %llu\n", name,
                 (unsigned long long)t->calls[kind], shim_kinds[kind], (unsigned long long)seen[kind]);
    wrong++;
  }
  if (!t->unknown) return wrong;
  (void)printf("calls %s: %llu calls on the tree that the library does not hook:%s\n", name,
               (unsigned long long)t->unknown, t->unknown_names);
  return wrong + 1;
}

static size_t check(const char *name, job j, bool from_stopped) {
  launch l = {.shim = true};
  char *const *environment;
  uint64_t total = 0;
  world w;
  command c;
  heard h;
  trace t;
  bytes said;
  world_open(&w, 92);
  world_lay(&w, j, from_stopped, &h);
  c = from_stopped ? resume_words(&w, j, NULL) : start_words(&w, j);
  launch_environment(&w, &l, &environment);
  t = trace_run(c.words, environment, w.tree, pathf("%s/out", w.root), pathf("%s/err", w.root));
  if (!t.possible) {
    (void)printf("calls: ptrace is not allowed here: not checked\n");
    return 0;
  }
  if (t.code != 0) broken("traced: exit %d: %s", t.code, get_bytes(pathf("%s/err", w.root), &said) ? said.at : "");
  for (int kind = 0; kind < SHIM_KIND_COUNT; kind++) total += t.calls[kind];
  if (total < 100) broken("only %llu calls were traced", (unsigned long long)total);
  (void)printf("calls %s: %llu on the tree\n", name, (unsigned long long)total);
  return compare(name, &t, w.counts);
}

size_t part_calls(void) {
  return check("fresh", JOB_FRESH, false) + check("resumed", JOB_FRESH, true) + check("model", JOB_MODEL, false) +
         check("model-resumed", JOB_MODEL, true);
}
