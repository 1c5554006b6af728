#include "torture/world.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

enum { HANG_SECONDS = 60, FINDINGS_SHOWN = 25, REMARKS = 24 };

const char *base;
bool full, resume_alone;
uint64_t seed;

static char base_path[PATH_ROOM];

/* What workers share. */
static struct shared {
  _Atomic size_t next, findings;
  struct {
    _Atomic uint64_t count;
    char text[96];
  } remarks[REMARKS];
} *shared;

size_t sampled(size_t count) {
  const char *quick = getenv("HEADROOM_TEST_QUICK");
  return quick && *quick && strcmp(quick, "0") != 0 ? count / 8 : count;
}

bool have_shim(void) {
#ifdef HR_SHIM
  return true;
#else
  return false;
#endif
}

static const char *shim_path(void) {
#ifdef HR_SHIM
  return HR_SHIM;
#else
  return "";
#endif
}

/* ---- the job ---- */

/* Small, with everything in it: evaluation, samples, checkpoints of which some are taken away, and a best one that is
 * neither the newest nor the one before: the held-back text is digits, of which a model that learns letters knows less
 * and less. */
static const char *const common[] =
    {"--threads", "1",     "--seq",        "12", "--steps",        "8", "--lr",     "0.1", "--shuffle",
     "--budget",  "64MiB", "--eval-every", "2",  "--eval-batches", "2", "--sample", "a",   NULL};

/* Words live as long as the process: there are few different ones. */
static const char *interned(const char *word) {
  static char *words[128];
  size_t n = 0;
  for (; n < 128 && words[n]; n++)
    if (strcmp(words[n], word) == 0) return words[n];
  if (n == 128 || !(words[n] = strdup(word))) broken("too many words");
  return words[n];
}

static void add(command *c, const char *word) {
  size_t n = 0;
  while (c->words[n]) n++;
  if (n + 1 >= WORDS_MOST) broken("too many words");
  c->words[n] = interned(word);
}

static command long_words(job j, const char *run, const char *verb, const char *keep, const char *every) {
  command c = {{HR_PROGRAM, "train"}};
  add(&c, j == JOB_FRESH ? "custom:family=llama,layers=1,hidden=8,heads=2,kv-heads=1,mlp=8,vocab=257,positions=32,tied"
                         : pathf("%s/input/model", base));
  for (size_t k = 0; common[k]; k++) add(&c, common[k]);
  add(&c, "--keep");
  add(&c, keep);
  add(&c, "--save-every");
  add(&c, every);
  add(&c, "--data");
  add(&c, pathf("%s/input/data.txt", base));
  add(&c, "--eval-data");
  add(&c, pathf("%s/input/held.txt", base));
  add(&c, verb);
  add(&c, run);
  return c;
}

command start_words(const world *w, job j) { return long_words(j, w->run, "--out", "2", "2"); }

command resume_words(const world *w, job j, const char *from) {
  command c = {{HR_PROGRAM, "train", "--resume", w->run}};
  if (!resume_alone) c = long_words(j, w->run, "--resume", "2", "2");
  if (from) {
    add(&c, "--from");
    add(&c, from);
  }
  return c;
}

/* ---- one child ---- */

void hear(heard *h, const char *text) {
  for (const char *at = text; (at = strstr(at, "saved ")); at++) {
    const char *end = strchr(at, '\n'), *name;
    unsigned step;
    if ((at != text && at[-1] != '\n') || !end) continue;
    for (name = end; name > at && name[-1] != '/'; name--) {}
    if (strncmp(name, "final\n", 6) == 0) h->final = true;
    if (sscanf(name, "step-%u\n", &step) == 1 && h->count < STEPS_MOST) h->steps[h->count++] = step;
  }
}

void hear_more(heard *h, const heard *other) {
  h->final = h->final || other->final;
  for (size_t k = 0; k < other->count && h->count < STEPS_MOST; k++) h->steps[h->count++] = other->steps[k];
}

void launch_environment(const world *w, const launch *l, char *const **environment) {
  static const char *variables[24];
  static const char *const passed[] = {"PATH", "ASAN_OPTIONS", "UBSAN_OPTIONS", "LD_LIBRARY_PATH"};
  size_t n = 0;
  for (size_t k = 0; k < sizeof passed / sizeof *passed; k++)
    if (getenv(passed[k])) variables[n++] = pathf("%s=%s", passed[k], getenv(passed[k]));
  variables[n++] = pathf("HOME=%s", w->root);
  variables[n++] = pathf("TMPDIR=%s", w->root);
  variables[n++] = pathf("HEADROOM_CACHE=%s/no-cache", w->root);
  if (l->shim || l->fault || l->log) {
    variables[n++] = pathf("LD_PRELOAD=%s", shim_path());
    variables[n++] = pathf("HEADROOM_SHIM_TREE=%s", w->tree);
    variables[n++] = pathf("HEADROOM_SHIM_INPUT=%s/input", base);
    variables[n++] = pathf("HEADROOM_SHIM_COUNTS=%s/counts", w->root);
    if (w->tell) variables[n++] = "HEADROOM_SHIM_TELL=1";
    if (l->fault) variables[n++] = pathf("HEADROOM_SHIM_FAULT=%s", l->fault);
    if (l->log) variables[n++] = pathf("HEADROOM_SHIM_LOG=%s", l->log);
    memset((void *)w->counts, 0, sizeof *w->counts);
  }
  variables[n] = NULL;
  *environment = (char *const *)(uintptr_t)variables;
}

static void become(const world *w, const command *c, char *const *environment, int err) {
  struct rlimit none = {0, 0};
  sigset_t all;
  int out = open("/dev/null", O_WRONLY | O_CLOEXEC);
  (void)sigemptyset(&all);
  (void)sigprocmask(SIG_SETMASK, &all, NULL);
  (void)setrlimit(RLIMIT_CORE, &none);
  if (chdir(w->root) != 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0) _exit(126);
  (void)execve(c->words[0], (char *const *)(uintptr_t)c->words, environment);
  _exit(126);
}

static uint64_t now_us(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

typedef struct listener { /* what a child has said */
  launch *l;
  size_t used;
  uint64_t end_us; /* when it is to be killed; 0: not yet known, or never */
  bool heard, killed;
} listener;

/* Reads until the child has closed its standard error, which is when it has ended. */
static void listen_to(listener *s, pid_t child, int from) {
  uint64_t hang_us = now_us() + (uint64_t)HANG_SECONDS * 1000000;
  launch *l = s->l;
  for (;;) {
    struct pollfd poll_fd = {.fd = from, .events = POLLIN};
    uint64_t now = now_us(), until = s->end_us && !s->killed ? s->end_us : hang_us;
    struct timespec wait = {0, 0};
    ssize_t got;
    if (now >= until) {
      if (until == hang_us) l->hung = true;
      (void)kill(child, SIGKILL);
      s->killed = true;
      continue;
    }
    wait.tv_sec = (time_t)((until - now) / 1000000);
    wait.tv_nsec = (long)((until - now) % 1000000) * 1000;
    if (ppoll(&poll_fd, 1, &wait, NULL) <= 0) continue;
    if (s->used == ERR_ROOM - 1) broken("a run says more than %d bytes", ERR_ROOM);
    got = read(from, l->err + s->used, ERR_ROOM - 1 - s->used);
    if (got <= 0) return;
    s->used += (size_t)got;
    l->err[s->used] = 0;
    if (l->kill_behind && !s->heard && strstr(l->err, l->kill_behind)) {
      s->heard = true;
      s->end_us = now_us() + l->kill_after_us;
    }
  }
}

/* Addresses of the program ("headroom(+0x1234)") as functions and lines, where addr2line is installed. */
static void tell_stack(const char *text) {
  char line[4096] = "addr2line -spfie " HR_PROGRAM;
  size_t used = strlen(line), first = used;
  for (const char *at = text; (at = strstr(at, "headroom(+0x")) && used + 64 < sizeof line; at++)
    used += (size_t)snprintf(line + used, sizeof line - used, " %.*s", (int)strcspn(at + 10, ")"), at + 10);
  if (used == first) return;
  (void)printf("the call came from\n");
  (void)fflush(stdout);
  if (system(line) != 0) (void)printf("(%s)\n", line);
}

void launch_run(const world *w, const command *c, launch *l) {
  char *const *environment;
  listener s = {.l = l, .end_us = l->kill_after_us && !l->kill_behind ? now_us() + l->kill_after_us : 0};
  int ends[2], status = 0;
  pid_t child;
  l->err[0] = 0;
  l->heard = (heard){0};
  l->hung = false;
  launch_environment(w, l, &environment);
  if (pipe2(ends, O_CLOEXEC) != 0) broken("cannot make a pipe");
  child = fork();
  if (child < 0) broken("cannot fork");
  if (child == 0) become(w, c, environment, ends[1]);
  (void)close(ends[1]);
  listen_to(&s, child, ends[0]);
  (void)close(ends[0]);
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) broken("cannot wait");
  l->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  l->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  hear(&l->heard, l->err);
  if (!w->tell) return;
  (void)printf("$");
  for (size_t k = 0; c->words[k]; k++) (void)printf(" %s", c->words[k]);
  (void)printf("\n%s[exit %d%s]\n", l->err, l->code, l->hung ? ", hung" : "");
  tell_stack(l->err);
}

/* ---- the tree ---- */

typedef struct own_file {
  const char *path, *text;
} own_file;

/* Files that look like ours but are not. */
static const own_file beside[] = {{"notes.txt", "what I think of this run\n"},
                                  {".hidden.tmp", "mine\n"},
                                  {".headroom-AbCdEf/mine.txt", "not a scratch directory\n"}};
static const own_file inside[] = {{"run/notes.md", "# notes\n"},
                                  {"run/.hidden.tmp", "mine too\n"},
                                  {"run/final.txt", "no\n"},
                                  {"run/checkpoints/.mine.tmp", "and this\n"},
                                  {"run/checkpoints/step-notes.txt", "which one was good\n"},
                                  {"run/checkpoints/.headroom-AbCdEf/mine.txt", "no scratch\n"}};
enum { BESIDE = sizeof beside / sizeof *beside, INSIDE = sizeof inside / sizeof *inside };

static void put_own(world *w, const own_file *files, size_t count) {
  w->inside = files == inside;
  for (size_t k = 0; k < count; k++) {
    const char *path = pathf("%s/%s", w->tree, files[k].path), *slash = strrchr(path, '/');
    make_directory(pathf("%.*s", (int)(slash - path), path));
    put_string(path, files[k].text);
  }
}

static bool is_own(const char *name) {
  for (size_t k = 0; k < BESIDE + INSIDE; k++) {
    const char *path = k < BESIDE ? beside[k].path : inside[k - BESIDE].path, *slash = strrchr(path, '/');
    if (strcmp(path, name) == 0) return true;
    if (strstr(path, ".headroom-") && strncmp(path, name, (size_t)(slash + 1 - path)) == 0) return true;
  }
  return false;
}

static heard stopped_heard[JOB_COUNT];

void world_lay(world *w, job j, bool from_stopped, heard *h) {
  *h = (heard){0};
  w->except = w->told = NULL;
  w->unlinked = false;
  remove_tree(w->tree);
  make_directory(w->tree);
  put_own(w, beside, BESIDE);
  if (!from_stopped) return;
  copy_tree(pathf("%s/stopped-%d", base, j), w->run);
  put_own(w, inside, INSIDE);
  *h = stopped_heard[j];
}

void world_open(world *w, int index) {
  int fd;
  void *page;
  *w = (world){.index = index};
  (void)strcpy(w->root, pathf("%s/worker-%d", base, index));
  (void)strcpy(w->tree, pathf("%s/tree", w->root));
  (void)strcpy(w->run, pathf("%s/run", w->tree));
  make_directory(w->root);
  fd = open(pathf("%s/counts", w->root), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, sizeof(shim_counts)) != 0) broken("cannot make the page of counts");
  page = mmap(NULL, sizeof(shim_counts), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED) broken("cannot map the page of counts");
  (void)close(fd);
  w->counts = page;
}

/* ---- comparing with the undisturbed run ---- */

static bool no(char why[WHY_ROOM], const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool no(char why[WHY_ROOM], const char *format, ...) {
  va_list args;
  va_start(args, format);
  (void)vsnprintf(why, WHY_ROOM, format, args);
  va_end(args);
  return false;
}

bool own_files_survive(const world *w, char why[WHY_ROOM]) {
  for (size_t k = 0; k < (w->inside ? BESIDE + INSIDE : BESIDE); k++) {
    const own_file *f = k < BESIDE ? &beside[k] : &inside[k - BESIDE];
    bytes content;
    bool same = get_bytes(pathf("%s/%s", w->tree, f->path), &content) && strcmp(content.at, f->text) == 0;
    free(content.at);
    if (!same) return no(why, "the user's file %s is gone or changed", f->path);
  }
  return true;
}

bool ended_well(const launch *l, char why[WHY_ROOM]) {
  if (l->hung) return no(why, "it hung for %d seconds", HANG_SECONDS);
  if (l->signal == SIGKILL) return true;
  if (l->signal) return no(why, "it crashed with signal %d", l->signal);
  if (l->code != 0 && l->code != 1 && l->code != 2 && l->code != 4 && l->code != 5)
    return no(why, "exit %d: %.300s", l->code, l->err + (strlen(l->err) > 300 ? strlen(l->err) - 300 : 0));
  if (l->code != 0 && !strstr(l->err, "headroom: ")) return no(why, "exit %d without a message", l->code);
  return true;
}

/* The reference with a checkpoint of each step (a run that fails may save between those of --save-every), and the one with
 * those that --save-every and --keep leave. */
static const char *all_of(job j) { return pathf("%s/all-%d/run", base, j); }
static const char *reference_of(job j) { return pathf("%s/reference-%d/run", base, j); }

/* What differs from run to run: the digest of the metrics, which hold times, and what is a digest of that. */
static json_t *steady_json(const world *w, const char *path) {
  json_t *root = json_load_file(path, 0, NULL), *files = json_object_get(root, "files");
  (void)json_object_del(root, "metrics");
  (void)json_object_del(root, "manifest_digest");
  if (w->except) (void)json_object_del(root, "best_eval_loss"); /* it may have been that one's */
  for (size_t k = json_array_size(files); k-- > 0;) {
    const char *name = json_string_value(json_object_get(json_array_get(files, k), "name"));
    if (name && (strcmp(name, "state.json") == 0 || (w->told && strcmp(name, w->told) == 0)))
      (void)json_array_remove(files, k);
  }
  return root;
}

static bool same_json(const world *w, const char *path, const char *other) {
  json_t *a = steady_json(w, path), *b = steady_json(w, other);
  bool same = a && b && json_equal(a, b);
  json_decref(a);
  json_decref(b);
  return same;
}

static bool same_file(const world *w, const char *directory, const char *other, const char *name) {
  const char *a = pathf("%s/%s", directory, name), *b = pathf("%s/%s", other, name);
  return strcmp(name, "state.json") == 0 || strcmp(name, "manifest.json") == 0 ? same_json(w, a, b) : same_bytes(a, b);
}

static bool same_directory(const world *w, const char *path, const char *other) {
  names list = list_tree(path);
  bool same = list.count > 0;
  for (size_t k = 0; same && k < list.count; k++)
    same = (w->told && strcmp(list.at[k], w->told) == 0) || same_file(w, path, other, list.at[k]);
  free_names(&list);
  return same;
}

/* Where an evaluation failed, what its step leaves says that it is due still, and nothing of it. */
static bool same_but_evaluation(const char *path, const char *other) {
  static const char *const said[] = {"eval_loss", "best_eval_loss", "evaluation_due", "metrics"};
  json_t *a = json_load_file(path, 0, NULL), *b = json_load_file(other, 0, NULL);
  bool same = json_is_true(json_object_get(b, "evaluation_due"));
  for (size_t k = 0; k < sizeof said / sizeof *said; k++) {
    (void)json_object_del(a, said[k]);
    (void)json_object_del(b, said[k]);
  }
  same = same && a && json_equal(a, b);
  json_decref(a);
  json_decref(b);
  return same;
}

bool whole_checkpoint(const world *w, job j, unsigned step) {
  char *all = strdup(pathf("%s/checkpoints/step-%06u", all_of(j), step)), /* pathf's buffers come round again */
      *run = strdup(pathf("%s/checkpoints/step-%06u", w->run, step));
  names list = list_tree(all);
  bool same = list.count > 0;
  for (size_t k = 0; same && k < list.count; k++)
    same = (w->told && strcmp(list.at[k], w->told) == 0) || same_file(w, all, run, list.at[k]) ||
           (strcmp(list.at[k], "state.json") == 0 &&
            same_but_evaluation(pathf("%s/state.json", all), pathf("%s/state.json", run)));
  free_names(&list);
  free(all);
  free(run);
  return same;
}

bool nothing_lost(const world *w, job j, const heard *h, char why[WHY_ROOM]) {
  unsigned newest = 0;
  size_t whole = 0, distinct = 0;
  for (size_t k = 0; k < h->count; k++) newest = h->steps[k] > newest ? h->steps[k] : newest;
  for (unsigned step = 1; step <= 64; step++) {
    bool said = false;
    for (size_t k = 0; k < h->count; k++) said = said || h->steps[k] == step;
    distinct += said;
    whole += there(pathf("%s/checkpoints/step-%06u", all_of(j), step)) && whole_checkpoint(w, j, step);
  }
  if (newest && !whole_checkpoint(w, j, newest))
    return no(why, "step-%06u was announced as saved and is not whole", newest);
  if (whole < (distinct < KEEP ? distinct : KEEP))
    return no(why, "%zu checkpoints were announced and only %zu are whole", distinct, whole);
  if (h->final && !same_directory(w, pathf("%s/final", reference_of(j)), pathf("%s/final", w->run)))
    return no(why, "final was announced as saved and is not whole");
  return true;
}

/* A line without what depends on the time and the machine. */
static char *steady_line(const char *line, size_t count) {
  static const char *const keys[] =
      {"tokens_per_second", "step_seconds", "device_budget_bytes", "process_resident_bytes", "process_peak_bytes",
       "seconds",           "time"};
  json_t *object = json_loadb(line, count, 0, NULL);
  char *text;
  if (!object) return NULL;
  for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) (void)json_object_del(object, keys[k]);
  text = json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS);
  json_decref(object);
  return text;
}

static bool same_metrics(const char *path, const char *reference, char why[WHY_ROOM]) {
  bytes a, b;
  bool same;
  size_t line = 0;
  if (!get_bytes(reference, &b)) broken("no %s", reference);
  same = get_bytes(path, &a) || no(why, "metrics.jsonl is gone");
  for (char *at = a.at, *other = b.at; same && (*at || *other); line++) {
    char *end = strchr(at, '\n'), *other_end = strchr(other, '\n'), *x, *y;
    if (!end || !other_end) {
      same = no(why, "metrics.jsonl ends at line %zu", line + 1);
      break;
    }
    x = steady_line(at, (size_t)(end - at));
    y = steady_line(other, (size_t)(other_end - other));
    same = (x && y && strcmp(x, y) == 0) ||
           no(why, "metrics.jsonl line %zu: %.*s", line + 1, (int)(end - at < 200 ? end - at : 200), at);
    free(x);
    free(y);
    at = end + 1;
    other = other_end + 1;
  }
  free(a.at);
  free(b.at);
  return same;
}

static bool same_link(const world *w, job j, const char *name, char why[WHY_ROOM]) {
  char a[128] = "", b[128] = "";
  (void)!readlink(pathf("%s/checkpoints/%s", reference_of(j), name), a, sizeof a - 1);
  (void)!readlink(pathf("%s/checkpoints/%s", w->run, name), b, sizeof b - 1);
  return strcmp(a, b) == 0 || no(why, "checkpoints/%s points at '%s', not '%s'", name, b, a);
}

static bool run_json_is_finished(const world *w, char why[WHY_ROOM]) {
  json_t *root = json_load_file(pathf("%s/run.json", w->run), 0, NULL);
  const char *state = json_string_value(json_object_get(root, "state"));
  bool good = state && strcmp(state, "finished") == 0;
  if (!good)
    (void)no(why, "run.json does not say \"state\": \"finished\" (%s)",
             root ? state ? state : "it says none" : "it is no JSON");
  json_decref(root);
  return good;
}

/* What is saved because data failed is a checkpoint more than the undisturbed run has, and --keep counts it: an older one may
 * have gone for it. `name` begins with that of the older one. */
static bool gave_way(const world *w, job j, const char *name) {
  names then = list_tree(pathf("%s/checkpoints", reference_of(j))), now = list_tree(pathf("%s/checkpoints", w->run));
  unsigned step, other;
  bool gone = sscanf(name, "step-%u/", &step) == 1 && !has_name(&now, pathf("step-%06u/", step)), more = false;
  for (size_t k = 0; gone && k < now.count; k++) {
    const char *slash = strchr(now.at[k], '/');
    more |=
        slash && !slash[1] && sscanf(now.at[k], "step-%u/", &other) == 1 && other > step && !has_name(&then, now.at[k]);
  }
  free_names(&then);
  free_names(&now);
  return gone && more;
}

bool same_as_undisturbed(const world *w, job j, char why[WHY_ROOM]) {
  names steps = list_tree(pathf("%s/checkpoints", reference_of(j)));
  bool same = true;
  for (size_t k = 0; same && k < steps.count; k++) {
    const char *slash = strchr(steps.at[k], '/');
    if (!slash || slash[1] || (w->except && strcmp(steps.at[k], w->except) == 0)) continue;
    if (!same_directory(w, pathf("%s/checkpoints/%s", reference_of(j), steps.at[k]),
                        pathf("%s/checkpoints/%s", w->run, steps.at[k])) &&
        !gave_way(w, j, steps.at[k]))
      same = no(why, "checkpoints/%s is not the one of the undisturbed run", steps.at[k]);
  }
  free_names(&steps);
  return same &&
         (same_directory(w, pathf("%s/final", reference_of(j)), pathf("%s/final", w->run)) ||
          no(why, "final is not that of the undisturbed run")) &&
         same_metrics(pathf("%s/metrics.jsonl", w->run), pathf("%s/metrics.jsonl", reference_of(j)), why) &&
         (w->except || w->unlinked || same_link(w, j, "best", why)) && (w->unlinked || same_link(w, j, "last", why)) &&
         run_json_is_finished(w, why);
}

/* A checkpoint that could not be taken away in its time may stay. */
static bool is_older_checkpoint(const world *w, job j, const char *name) {
  unsigned step;
  return sscanf(name, "run/checkpoints/step-%u/", &step) == 1 && whole_checkpoint(w, j, step);
}

static bool is_scratch(const char *name) { return strncmp(name, ".headroom-", 10) == 0 || strstr(name, "/.headroom-"); }

bool same_files_as_undisturbed(const world *w, job j, strictness s, char why[WHY_ROOM]) {
  names now = list_tree(w->tree), then = list_tree(pathf("%s/reference-%d", base, j));
  bool same = true;
  for (size_t k = 0; same && k < then.count; k++) {
    const char *name = then.at[k], above[] = "run/checkpoints/";
    if (is_own(name) || has_name(&now, name)) continue;
    if (strncmp(name, above, sizeof above - 1) != 0 || !gave_way(w, j, name + sizeof above - 1))
      same = no(why, "%s is missing", name);
  }
  for (size_t k = 0; same && k < now.count; k++) {
    const char *name = now.at[k];
    if (is_own(name) || has_name(&then, name)) continue;
    if (is_older_checkpoint(w, j, name)) continue;
    if (s == AFTER_POWER_LOSS && is_scratch(name)) remark("scratch left after a power loss");
    else same = no(why, "%s was left behind", name);
  }
  free_names(&now);
  free_names(&then);
  return same;
}

static const char *last_line(const launch *l) {
  const char *at = strstr(l->err, "headroom: ");
  for (const char *next; at && (next = strstr(at + 1, "\nheadroom: ")); at = next + 1) {}
  return at ? at : l->err + (strlen(l->err) > 300 ? strlen(l->err) - 300 : 0);
}

static bool goes_on(const world *w, const command *c, heard *h, launch *l) {
  *l = (launch){0};
  launch_run(w, c, l);
  hear_more(h, &l->heard);
  return l->code == 0;
}

/* Nothing was announced: the same command starts again; or, when a checkpoint was saved that nobody had announced yet,
 * it says so. */
static bool starts_again(const world *w, job j, heard *h, char why[WHY_ROOM]) {
  static launch l;
  command start = start_words(w, j), resume = resume_words(w, j, NULL);
  char said[400];
  if (goes_on(w, &start, h, &l)) return true;
  (void)snprintf(said, sizeof said, "%s", last_line(&l));
  if (l.code != 2) return no(why, "started again: exit %d: %s", l.code, said);
  if (goes_on(w, &resume, h, &l)) return true;
  return no(why, "started again: exit 2: %s, and --resume: exit %d: %.300s", said, l.code, last_line(&l));
}

static bool resumes(world *w, job j, heard *h, char why[WHY_ROOM]) {
  static launch l;
  command resume = resume_words(w, j, NULL);
  put_own(w, inside, INSIDE);
  return goes_on(w, &resume, h, &l) || no(why, "--resume: exit %d: %.400s", l.code, last_line(&l));
}

/* A reader who asks before the run goes on is told of no damage where there is none. */
static bool verifies(const world *w, const heard *h, char why[WHY_ROOM]) {
  static launch l;
  command c = {{HR_PROGRAM, "inspect", w->run, "--verify"}};
  l = (launch){0};
  if (h->count == 0 || w->except) return true;
  launch_run(w, &c, &l);
  return l.code == 0 || no(why, "inspect --verify: exit %d: %.400s", l.code, last_line(&l));
}

bool recovers(world *w, job j, heard *h, strictness s, char why[WHY_ROOM]) {
  return nothing_lost(w, j, h, why) && verifies(w, h, why) &&
         (h->count ? resumes(w, j, h, why) : starts_again(w, j, h, why)) && same_as_undisturbed(w, j, why) &&
         same_files_as_undisturbed(w, j, s, why) && own_files_survive(w, why);
}

/* ---- set-up ---- */

/* What killed processes left: such a directory is locked as long as one of those works that made it, or began there. */
static void clear_left(const char *parent) {
  DIR *directory = opendir(parent);
  struct dirent *entry;
  while (directory && (entry = readdir(directory))) {
    const char *path = pathf("%s/%s", parent, entry->d_name);
    struct stat info;
    int fd;
    if (strncmp(entry->d_name, "headroom-torture-", 17) != 0) continue;
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) continue;
    if (fstat(fd, &info) == 0 && info.st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0) remove_tree(path);
    (void)close(fd);
  }
  if (directory) (void)closedir(directory);
}

/* Memory is as good as a disk here, and ten times as fast: power loss is simulated, not waited for. It is outside of what a test gets for
 * temporary files, so what a kill leaves there is known by its name and goes with the next run. */
static void choose_base(void) {
  const char *parent = getenv("HEADROOM_TORTURE_ROOT");
  bool keep = getenv("HEADROOM_TORTURE_KEEP") != NULL;
  struct statvfs info;
  if (!parent && statvfs("/dev/shm", &info) == 0 && info.f_bavail * info.f_frsize > (256u << 20) &&
      access("/dev/shm", W_OK) == 0)
    parent = "/dev/shm";
  if (!parent) parent = getenv("TMPDIR");
  if (!parent || !*parent) parent = "/tmp";
  clear_left(parent);
  (void)snprintf(base_path, sizeof base_path, "%s/headroom-torture%s-XXXXXX", parent, keep ? "d" : "");
  if (!mkdtemp(base_path) || flock(open(base_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), LOCK_EX | LOCK_NB) != 0)
    broken("cannot make %s", base_path); /* the lock goes with the last process of ours */
  base = realpath(base_path, NULL);
  if (!base) broken("cannot resolve %s", base_path);
}

static void put_words(const char *path, size_t count, bool digits) {
  static const char *const letters[] = {"memory ", "of ", "the ",  "step ",  "is ",     "planned ",
                                        "and ",    "a ",  "byte ", "lives ", "once.\n", "then "};
  static const char *const numbers[] = {"3", "14", "159", "2653", "58", "979", "32", "38", "4626", "43", "38", "3279"};
  const char *const *words = digits ? numbers : letters;
  uint64_t state = 1;
  char *text = malloc(count + 16);
  size_t used = 0;
  if (!text) broken("no memory");
  while (used < count) {
    const char *word = words[roll(&state) % 12];
    (void)strcpy(text + used, word);
    used += strlen(word);
  }
  put_bytes(path, text, count);
  free(text);
}

static void make_reference(job j, const char *name, const char *keep, const char *every) {
  static launch l;
  world w;
  command c;
  heard none;
  char best[64] = "";
  world_open(&w, 90);
  world_lay(&w, j, false, &none);
  c = long_words(j, w.run, "--out", keep, every);
  l = (launch){0};
  launch_run(&w, &c, &l);
  if (l.code != 0) broken("the undisturbed run: exit %d: %s", l.code, l.err);
  if (j == JOB_FRESH &&
      (readlink(pathf("%s/checkpoints/best", w.run), best, sizeof best - 1) < 0 || strcmp(best, "step-000002") != 0))
    broken("the best checkpoint is %s", best);
  copy_tree(w.tree, pathf("%s/%s-%d", base, name, j));
  remove_tree(w.root);
}

/* A model with a real tokenizer: its data are tokenized and kept in RUN/data-cache, its files are copied into every
 * directory. */
static void make_model(void) {
  static launch l;
  world w;
  command c = {{HR_PROGRAM, "train",
                "custom:family=llama,layers=1,hidden=8,heads=2,kv-heads=1,mlp=8,vocab=300,positions=32,tied",
                "--threads", "1", "--seq", "12", "--steps", "1"}};
  bytes tokenizer;
  world_open(&w, 90);
  add(&c, "--data");
  add(&c, pathf("%s/input/data.txt", base));
  add(&c, "--out");
  add(&c, pathf("%s/model-run", w.root));
  l = (launch){0};
  launch_run(&w, &c, &l);
  if (l.code != 0) broken("the model's run: exit %d: %s", l.code, l.err);
  copy_tree(pathf("%s/model-run/final", w.root), pathf("%s/input/model", base));
  if (!get_bytes(HR_TEST_DATA "/tokenizer/metaspace.json", &tokenizer)) broken("no tokenizer");
  put_bytes(pathf("%s/input/model/tokenizer.json", base), tokenizer.at, tokenizer.count);
  free(tokenizer.at);
  remove_tree(w.root);
}

/* A run that was killed behind its second checkpoint and before its third. The kill comes from outside, so it takes a
 * few tries. */
static void make_stopped(job j) {
  static launch l;
  world w;
  heard none;
  world_open(&w, 90);
  for (int attempt = 0; attempt < 500; attempt++) {
    char why[WHY_ROOM];
    command c = start_words(&w, j);
    world_lay(&w, j, false, &none);
    l = (launch){.kill_behind = "step-000004\n"};
    launch_run(&w, &c, &l);
    if (l.signal != SIGKILL || l.heard.count != 2 || there(pathf("%s/checkpoints/step-000006", w.run))) continue;
    if (!nothing_lost(&w, j, &l.heard, why)) broken("a killed run: %s", why);
    stopped_heard[j] = l.heard;
    copy_tree(w.run, pathf("%s/stopped-%d", base, j));
    remove_tree(w.root);
    return;
  }
  broken("no run could be stopped behind its second checkpoint");
}

static void find_resume(void) {
  static launch l;
  world w;
  command c;
  heard h;
  world_open(&w, 90);
  world_lay(&w, JOB_FRESH, true, &h);
  resume_alone = true;
  c = resume_words(&w, JOB_FRESH, NULL);
  l = (launch){0};
  launch_run(&w, &c, &l);
  resume_alone = l.code != 2;
  remove_tree(w.root);
}

void world_set_up(void) {
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) broken("no shared memory");
  choose_base();
  make_directory(pathf("%s/input", base));
  put_words(pathf("%s/input/data.txt", base), 3000, false);
  put_words(pathf("%s/input/held.txt", base), 500, true);
  make_reference(JOB_FRESH, "all", "0", "1");
  make_reference(JOB_FRESH, "reference", "2", "2");
  make_model();
  make_reference(JOB_MODEL, "all", "0", "1");
  make_reference(JOB_MODEL, "reference", "2", "2");
  make_stopped(JOB_FRESH);
  make_stopped(JOB_MODEL);
  find_resume();
}

void world_tear_down(void) {
  if (!getenv("HEADROOM_TORTURE_KEEP")) remove_tree(base);
  else (void)printf("kept: %s\n", base);
}

/* ---- many cases ---- */

void finding(const world *w, const char *which, const char *format, ...) {
  char text[4096], *at;
  size_t used;
  va_list args;
  int fd;
  used = (size_t)snprintf(text, sizeof text, "%s: ", which);
  va_start(args, format);
  (void)vsnprintf(text + used, sizeof text - used - 1, format, args);
  va_end(args);
  for (at = text; *at; at++)
    if ((unsigned char)*at < ' ') *at = ' ';
    else if ((unsigned char)*at > '~') *at = '?';
  (void)strcat(text, "\n");
  if (w->tell) (void)printf("FINDING %s", text);
  (void)atomic_fetch_add(&shared->findings, 1);
  fd = open(pathf("%s/findings", base), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0 || write(fd, text, strlen(text)) < 0) broken("cannot write a finding");
  (void)close(fd);
}

void remark(const char *text) {
  for (size_t k = 0; k < REMARKS; k++) {
    if (!shared->remarks[k].text[0])
      (void)snprintf(shared->remarks[k].text, sizeof shared->remarks[k].text, "%s",
                     text); /* two at once: one remark too many at worst */
    if (strcmp(shared->remarks[k].text, text) != 0) continue;
    (void)atomic_fetch_add(&shared->remarks[k].count, 1);
    return;
  }
}

static void work(int index, size_t count, case_fn run, const void *context) {
  world w;
  world_open(&w, index);
  for (size_t k; (k = atomic_fetch_add(&shared->next, 1)) < count;) run(&w, k, context);
  (void)fflush(NULL);
  _exit(0);
}

static void show(const char *part) {
  const char *report = getenv("HEADROOM_TORTURE_REPORT");
  bytes content;
  char *at;
  for (size_t k = 0; k < REMARKS && shared->remarks[k].text[0]; k++)
    (void)printf("%s: %s: %llu\n", part, shared->remarks[k].text, (unsigned long long)shared->remarks[k].count);
  if (!get_bytes(pathf("%s/findings", base), &content)) return;
  if (report) put_bytes(pathf("%s.%s", report, part), content.at, content.count);
  at = content.at;
  for (int k = 0; k < FINDINGS_SHOWN && *at; k++) {
    char *end = strchr(at, '\n');
    (void)printf("%s %.*s\n", part, (int)(end - at), at);
    at = end + 1;
  }
  if (*at) (void)printf("%s ... (HEADROOM_TORTURE_REPORT=FILE takes all)\n", part);
  free(content.at);
  (void)unlink(pathf("%s/findings", base));
}

size_t run_cases(const char *part, size_t count, case_fn run, const void *context) {
  const char *jobs = getenv("HEADROOM_TORTURE_JOBS");
  int workers = jobs && atoi(jobs) > 0 ? atoi(jobs) : (int)sysconf(_SC_NPROCESSORS_ONLN), status;
  pid_t children[64];
  bool died = false;
  if (workers > 64) workers = 64;
  memset(shared, 0, sizeof *shared);
  (void)fflush(NULL);
  for (int k = 0; k < workers; k++) {
    children[k] = fork();
    if (children[k] < 0) broken("cannot fork");
    if (children[k] == 0) work(k, count, run, context);
  }
  for (int k = 0; k < workers; k++) {
    while (waitpid(children[k], &status, 0) < 0) {}
    died = died || status != 0;
  }
  show(part);
  if (died) (void)printf("%s: a worker died: the test itself is broken\n", part);
  return shared->findings + died;
}
