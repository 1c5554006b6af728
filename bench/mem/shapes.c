/* How long `headroom` takes with snapshots of many shapes (tests/mem/shapes.h), and how much memory.
 *
 *   bench_shapes [EVENTS [PROGRAM [SHAPE]]]   default 1,000,000 events, build/release/headroom, all shapes
 *   bench_shapes make SHAPE EVENTS PATH       only the snapshot
 *
 * A row per shape: each command's seconds of the processor, and the most of their resident memory. The snapshot lies in a
 * directory of its own below TMPDIR, and goes again. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mem/shapes.h"

enum { COMMANDS = 6, WORDS = 8 };
static const struct {
  const char *title, *words[WORDS]; /* FILE and OUT stand for paths */
} commands[COMMANDS] = {{"inspect", {"inspect", "FILE", "--json"}},
                        {"explain", {"explain", "FILE", "--json"}},
                        {"replay", {"replay", "FILE", "--json"}},
                        {"--search", {"replay", "FILE", "--search", "--json"}},
                        {"--html", {"inspect", "FILE", "--html", "OUT"}},
                        {"--export", {"inspect", "FILE", "--export", "csv", "OUT"}}};

static double seconds(const struct timeval *t) { return (double)t->tv_sec + 1e-6 * (double)t->tv_usec; }

/* Seconds of the processor, which other programs distort least; below 0: it did not run, or a signal ended it. */
static double run(const char *program, const char *const *from, const char *file, const char *out, long *peak_kib) {
  const char *words[WORDS + 2] = {program};
  struct rusage use;
  int status, count = 1;
  pid_t child;
  for (; from[count - 1]; count++)
    words[count] = strcmp(from[count - 1], "FILE") == 0  ? file
                   : strcmp(from[count - 1], "OUT") == 0 ? out
                                                         : from[count - 1];
  (void)fflush(stdout);
  (void)unlink(out); /* the program writes over nothing */
  child = fork();
  if (child == 0) {
    const int nowhere = open("/dev/null", O_WRONLY);
    if (nowhere >= 0) (void)dup2(nowhere, STDOUT_FILENO), (void)dup2(nowhere, STDERR_FILENO);
    execv(program, (char *const *)(void *)words);
    _exit(127);
  }
  if (child < 0 || wait4(child, &status, 0, &use) != child || !WIFEXITED(status) || WEXITSTATUS(status) == 127)
    return -1;
  if (use.ru_maxrss > *peak_kib) *peak_kib = use.ru_maxrss;
  return seconds(&use.ru_utime) + seconds(&use.ru_stime);
}

static hr_status make(const shape *of, uint64_t events, const char *path, hr_error *error) {
  hr_snapshot *snapshot;
  hr_status status;
  HRI_TRY(shape_make(of, events, &snapshot, error));
  status = hr_snapshot_write(snapshot, path, NULL, error);
  hr_snapshot_destroy(snapshot);
  return status;
}

static hr_status measure(const shape *of, uint64_t events, const char *program, const char *folder, hr_error *error) {
  char file[PATH_MAX + 16], out[PATH_MAX + 16];
  long peak = 0;
  (void)snprintf(file, sizeof file, "%s/shape.pickle", folder);
  (void)snprintf(out, sizeof out, "%s/out", folder);
  HRI_TRY(make(of, events, file, error));
  printf("%-13s", of->name);
  for (int k = 0; k < COMMANDS; k++) printf(" %9.2f", run(program, commands[k].words, file, out, &peak));
  printf(" %7ld MiB\n", peak / 1024);
  (void)unlink(file);
  (void)unlink(out);
  return HR_OK;
}

int main(int count, char **words) {
  const bool only_make = count == 5 && strcmp(words[1], "make") == 0;
  const uint64_t events = strtoull(only_make ? words[3] : count > 1 ? words[1] : "1000000", NULL, 10);
  const char *program = count > 2 ? words[2] : "build/release/headroom", *name = only_make   ? words[2]
                                                                                 : count > 3 ? words[3]
                                                                                             : NULL;
  char folder[PATH_MAX];
  hr_error error = {0};
  hr_status status = HR_OK;
  if (events == 0 || (name && !shape_by_name(name)))
    return fprintf(stderr, "bench_shapes [EVENTS [PROGRAM [SHAPE]]], bench_shapes make SHAPE EVENTS PATH\n"), 2;
  if (only_make) {
    if (make(shape_by_name(name), events, words[4], &error) == HR_OK) return 0;
    return fprintf(stderr, "bench_shapes: %s\n", error.message), 1;
  }
  (void)snprintf(folder, sizeof folder, "%s/headroom-shapes-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
  if (!mkdtemp(folder)) return fprintf(stderr, "bench_shapes: %s cannot be made\n", folder), 1;
  printf("%llu events: seconds\n%-13s", (unsigned long long)events, "");
  for (int k = 0; k < COMMANDS; k++) printf(" %9s", commands[k].title);
  printf(" %11s\n", "memory");
  for (int k = 0; k < SHAPE_COUNT && status == HR_OK; k++)
    if (!name || strcmp(shapes[k].name, name) == 0) status = measure(&shapes[k], events, program, folder, &error);
  (void)rmdir(folder);
  if (status != HR_OK) fprintf(stderr, "bench_shapes: %s\n", error.message);
  return status != HR_OK;
}
