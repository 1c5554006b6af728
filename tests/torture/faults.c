/* Every file-system call of a run, one at a time, fails in each way in which it can fail, is cut short, or is the last
 * that the process lives to make. What must hold then: world.h.
 *
 * First a clean run of each scenario is counted; the list of cases is every n of every kind that it made, in every way
 * of that kind. A sample takes each (scenario, kind, way) once and then at random. */
#include "torture/parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLE = 800, ERRNOS = 5 };

typedef struct scenario {
  const char *name;
  job job;
  bool from_stopped;
} scenario;
static const scenario scenarios[] = {{"fresh", JOB_FRESH, false},
                                     {"resumed", JOB_FRESH, true},
                                     {"model", JOB_MODEL, false},
                                     {"model-resumed", JOB_MODEL, true}};
enum { SCENARIOS = sizeof scenarios / sizeof *scenarios };

typedef struct one {
  uint32_t scenario;
  shim_area area;
  shim_kind kind;
  uint64_t n;
  shim_way way;
  int number;
} one;

typedef struct cases {
  one *at;
  size_t count;
} cases;

/* The errors that a kind of call is known to give. */
typedef struct errors {
  shim_kind kind;
  int numbers[ERRNOS];
} errors;
static const errors known[] = {
    {SHIM_write, {EIO, ENOSPC, EINTR}},
    {SHIM_pwrite, {EIO, ENOSPC, EINTR}},
    {SHIM_writev, {EIO, ENOSPC, EINTR}},
    {SHIM_pwritev, {EIO, ENOSPC, EINTR}},
    {SHIM_copy_file_range, {EIO, ENOSPC, EXDEV, EINTR}},
    {SHIM_sendfile, {EIO, ENOSPC, EINTR}},
    {SHIM_read, {EIO, EINTR}},
    {SHIM_pread, {EIO, EINTR}},
    {SHIM_readv, {EIO, EINTR}},
    {SHIM_preadv, {EIO, EINTR}},
    {SHIM_open, {EIO, ENOSPC, EACCES, EMFILE, EINTR}},
    {SHIM_opendir, {EIO, EACCES, EMFILE, ENOMEM}},
    {SHIM_mkostemp, {EIO, ENOSPC, EACCES}},
    {SHIM_close, {EIO, EINTR, ENOSPC}},
    {SHIM_closedir, {EIO}},
    {SHIM_fsync, {EIO, ENOSPC, EINTR}},
    {SHIM_fdatasync, {EIO, ENOSPC, EINTR}},
    {SHIM_sync_file_range, {EIO, ENOSPC}},
    {SHIM_fallocate, {EIO, ENOSPC, EINTR, EOPNOTSUPP}},
    {SHIM_ftruncate, {EIO, ENOSPC, EINTR}},
    {SHIM_truncate, {EIO, ENOSPC}},
    {SHIM_rename, {EIO, ENOSPC, EACCES}},
    {SHIM_renameat2, {EIO, ENOSPC, EINVAL, ENOSYS}},
    {SHIM_link, {EIO, ENOSPC, EPERM}},
    {SHIM_symlink, {EIO, ENOSPC, EPERM}},
    {SHIM_unlink, {EIO, EACCES}},
    {SHIM_rmdir, {EIO, EACCES}},
    {SHIM_mkdir, {EIO, ENOSPC, EACCES}},
    {SHIM_mkdtemp, {EIO, ENOSPC, EACCES}},
    {SHIM_flock, {EIO, EINTR, ENOLCK}},
    {SHIM_dup, {EMFILE}},
    {SHIM_mmap, {ENOMEM, EACCES}},
    {SHIM_readdir, {EIO}},
    {SHIM_stat, {EIO, EACCES}},
    {SHIM_readlink, {EIO, EACCES}},
};

static bool moves_bytes(shim_kind k) { return k <= SHIM_preadv || k == SHIM_copy_file_range || k == SHIM_sendfile; }
static bool writes(shim_kind k) { return k <= SHIM_pwritev || k == SHIM_copy_file_range || k == SHIM_sendfile; }
/* After a call that only looks, the moment is that before the next call. */
static bool changes(shim_kind k) {
  return writes(k) || k == SHIM_open || k == SHIM_mkostemp || (k >= SHIM_fsync && k <= SHIM_mkdtemp);
}

/* ---- the list of cases ---- */

static void push(cases *list, one c) {
  if ((list->count & (list->count - 1)) == 0)
    list->at = realloc(list->at, (list->count ? list->count * 2 : 1) * sizeof *list->at);
  if (!list->at) broken("no memory");
  list->at[list->count++] = c;
}

static void push_kind(cases *list, one c) {
  for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
    if (known[k].kind != c.kind) continue;
    for (size_t e = 0; e < ERRNOS && known[k].numbers[e]; e++) {
      c.way = SHIM_WAY_fail;
      c.number = known[k].numbers[e];
      push(list, c);
      c.way = SHIM_WAY_on;
      if ((c.number == ENOSPC || c.number == ENOLCK || c.number == EOPNOTSUPP || c.number == EINVAL ||
           c.number == EPERM || c.number == EXDEV))
        push(list, c);
    }
  }
  c.number = 0;
  if (moves_bytes(c.kind)) c.way = SHIM_WAY_short, push(list, c);
  if (c.area != SHIM_TREE) return; /* killed while reading elsewhere: nothing of ours is in between */
  if (changes(c.kind)) c.way = SHIM_WAY_before, push(list, c);
  if (changes(c.kind)) c.way = SHIM_WAY_after, push(list, c);
  if (writes(c.kind)) c.way = SHIM_WAY_half, push(list, c);
}

static void count_calls(const scenario *s, shim_counts *out) {
  static launch l;
  world w;
  command c;
  heard h;
  world_open(&w, 91);
  world_lay(&w, s->job, s->from_stopped, &h);
  c = s->from_stopped ? resume_words(&w, s->job, NULL) : start_words(&w, s->job);
  l = (launch){.shim = true};
  launch_run(&w, &c, &l);
  if (l.code != 0) broken("scenario %s: exit %d: %s", s->name, l.code, l.err);
  memcpy((void *)out, (const void *)w.counts, sizeof *out);
  remove_tree(w.root);
}

static cases list_cases(void) {
  cases list = {0};
  for (uint32_t s = 0; s < SCENARIOS; s++) {
    shim_counts counts;
    count_calls(&scenarios[s], &counts);
    for (int area = SHIM_TREE; area <= SHIM_MEMORY; area++) /* what libraries make of too little memory is theirs */
      for (int kind = 0; kind < SHIM_KIND_COUNT; kind++)
        for (uint64_t n = 1; n <= counts.calls[area][kind]; n++)
          push_kind(&list, (one){.scenario = s, .area = (shim_area)area, .kind = (shim_kind)kind, .n = n});
  }
  return list;
}

static bool alike(const one *a, const one *b) {
  return a->scenario == b->scenario && a->area == b->area && a->kind == b->kind && a->way == b->way &&
         a->number == b->number;
}

static void swap(cases *list, size_t a, size_t b) {
  one kept = list->at[a];
  list->at[a] = list->at[b];
  list->at[b] = kept;
}

/* One of each sort first, then as they come. */
static void sample(cases *list) {
  uint64_t state = seed;
  size_t sorts = 0;
  for (size_t k = list->count; k > 1; k--) swap(list, k - 1, roll(&state) % k);
  for (size_t k = 0; k < list->count; k++) {
    bool seen = false;
    for (size_t m = 0; m < sorts && !seen; m++) seen = alike(&list->at[m], &list->at[k]);
    if (!seen) swap(list, sorts++, k);
  }
  if (sorts < sampled(SAMPLE)) sorts = sampled(SAMPLE);
  if (list->count > sorts) list->count = sorts;
}

/* ---- one case ---- */

static const char *fault_text(const one *c) {
  return pathf("%s/%s/%llu/%s/%d", shim_areas[c->area], shim_kinds[c->kind], (unsigned long long)c->n,
               shim_ways[c->way], c->number);
}

/* A full disk costs a run a checkpoint, which is told; without it `best` may be another one. */
static void except_unsaved(world *w, const launch *l) {
  static char name[32];
  const char *told = strstr(l->err, "\nwarning: step ");
  unsigned step;
  if (!told || sscanf(told, "\nwarning: step %u is not saved: ", &step) != 1) return;
  (void)snprintf(name, sizeof name, "step-%06u/", step);
  w->except = name;
  remark("checkpoints that a full disk cost");
}

static void try_one(world *w, const one *c) {
  static launch l;
  const scenario *s = &scenarios[c->scenario];
  char fault[96], name[128], why[WHY_ROOM];
  command words;
  heard h;
  (void)snprintf(fault, sizeof fault, "%s", fault_text(c));
  (void)snprintf(name, sizeof name, "%s/%s", s->name, fault);
  world_lay(w, s->job, s->from_stopped, &h);
  words = s->from_stopped ? resume_words(w, s->job, NULL) : start_words(w, s->job);
  l = (launch){.fault = fault};
  launch_run(w, &words, &l);
  hear_more(&h, &l.heard);
  if (!w->counts->hits)
    remark("faults that struck nothing"); /* a run makes a few calls more or less with the time it takes */
  if (c->area == SHIM_MEMORY &&
      l.code == 3) { /* what is left does not hold the plan: as good as a refusal by the plan */
    remark("plans that did not fit what was left");
  } else if (!ended_well(&l, why)) {
    finding(w, name, "%s", why);
  } else if (l.code == 0) {
    remark("faults that were lived through");
    /* a tokenizer that cannot be read any more costs nobody the weights: it is told */
    if (c->area == SHIM_INPUT && strstr(l.err, "\nwarning: "))
      w->told = "tokenizer.json", remark("faults that were told as a warning");
    except_unsaved(w, &l);
    w->unlinked = strstr(l.err, "\nwarning: this file system has no symbolic links") != NULL;
    if (w->unlinked) remark("runs without links, which is told");
    if (!nothing_lost(w, s->job, &h, why)) finding(w, name, "exit 0, but %s", why);
    else if (!same_as_undisturbed(w, s->job, why)) finding(w, name, "exit 0, but %s", why);
    else if (!own_files_survive(w, why)) finding(w, name, "exit 0, but %s", why);
    return;
  }
  if (!recovers(w, s->job, &h, AFTER_FAULT, why))
    finding(w, name, "%s (%s)", why, l.signal ? "killed" : pathf("exit %d", l.code));
}

static void try_case(world *w, size_t index, const void *context) { try_one(w, &((const cases *)context)->at[index]); }

size_t part_faults(void) {
  cases list = list_cases();
  size_t all = list.count, found;
  if (!full) sample(&list);
  (void)printf("faults: %zu of %zu cases\n", list.count, all);
  found = run_cases("faults", list.count, try_case, &list);
  free(list.at);
  return found;
}

void case_faults(world *w, const char *text) {
  cases list = list_cases();
  bool found = false;
  for (size_t k = 0; k < list.count && !found; k++)
    if (strcmp(pathf("%s/%s", scenarios[list.at[k].scenario].name, fault_text(&list.at[k])), text) == 0) {
      found = true;
      try_one(w, &list.at[k]);
    }
  if (!found) broken("no case '%s'", text);
  free(list.at);
}
