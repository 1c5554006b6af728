/* What happens when things go wrong in the middle: the n-th allocation is refused, for every n; the process is killed
 * at any moment; the disk fills up; the directory may not be written. In every case a run ends with a clean error,
 * nothing that looks finished is half-written, nothing stays on the heap, and what was saved can be resumed, to the
 * same bits. */
#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sched.h>
#include <sys/mount.h>

#include <headroom/train.h>

#include "base/mem.h"
#include "support/child.h"

static const char *directory, *data, *held;
static int run_count;

/* The name of a run directory that is not there yet; it stays valid for the next 63 of them. */
static const char *new_run(void) {
  static char names[64][PATH_BYTES];
  char *name = names[run_count % 64];
  (void)snprintf(name, PATH_BYTES, "%s/run-%d", directory, run_count++);
  return name;
}

/* ---- what must hold of a run directory, whatever happened ---- */

/* No temporary files outside of hidden directories. */
static void no_temporary(const char *path, const char *name) {
  if (strstr(name, ".tmp")) fail_msg("%s was left behind", path);
}

static bool complete_model(const char *path) {
  size_t count = 0;
  char *bytes = get_file(path_of("%s/model.safetensors", path), &count);
  uint64_t header = 0;
  bool good = bytes && count > 8 && exists(path_of("%s/config.json", path));
  for (int k = 7; good && k >= 0; k--) header = header << 8 | (unsigned char)bytes[k];
  good = good && header < count - 8;
  if (good) { /* the last tensor ends where the file ends */
    uint64_t end = 0;
    for (const char *at = bytes + 8; (at = strstr(at, "\"data_offsets\":[")) && at < bytes + 8 + header; at++) {
      uint64_t stop = strtoull(strchr(at, ',') + 1, NULL, 10);
      if (stop > end) end = stop;
    }
    good = end > 0 && 8 + header + end == count;
  }
  free(bytes);
  return good;
}

/* A directory that stands under its final name is whole. */
static void assert_whole(const char *run) {
  char parent[PATH_BYTES];
  struct dirent *entry;
  DIR *dir;
  walk(run, no_temporary);
  if (exists(path_of("%s/final", run)) && !complete_model(path_of("%s/final", run)))
    fail_msg("%s/final is not whole", run);
  (void)snprintf(parent, sizeof parent, "%s/checkpoints", run);
  dir = opendir(parent);
  while (dir && (entry = readdir(dir))) {
    const char *path = path_of("%s/%s", parent, entry->d_name);
    if (entry->d_name[0] == '.') continue;
    if (!complete_model(path) || !exists(path_of("%s/state.json", path)) ||
        !exists(path_of("%s/optimizer.safetensors", path)))
      fail_msg("%s is not whole", path);
  }
  if (dir) closedir(dir);
}

/* Each step from 1 to `steps` once, in order; evaluations aside. */
static void assert_each_step_once(const char *run, uint64_t steps) {
  char *text = get_file(path_of("%s/metrics.jsonl", run), NULL), *save = NULL;
  uint64_t seen = 0;
  assert_non_null(text);
  for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
    uint64_t step = number_behind(line, "\"step\":");
    if (strstr(line, "\"eval_loss\"")) continue;
    if (step != ++seen)
      fail_msg("%s/metrics.jsonl: step %llu after step %llu", run, (unsigned long long)step,
               (unsigned long long)(seen - 1));
    if (line[strlen(line) - 1] != '}') fail_msg("%s/metrics.jsonl: a cut line", run);
  }
  free(text);
  assert_int_equal(seen, steps);
}

/* ---- the n-th allocation ---- */

/* As small as a job with everything in it can be: data, evaluation, samples, checkpoints, the final model. */
static hr_status whole_run(const char *run, const char *resume, hr_error *error) {
  static const char *const model =
      "custom:family=llama,layers=1,hidden=8,heads=2,kv-heads=1,mlp=8,vocab=257,positions=32,tied";
  hr_run_options options = {.data_paths = &data,
                            .data_path_count = 1,
                            .eval_paths = &held,
                            .eval_path_count = 1,
                            .eval_every = 1,
                            .eval_batches = 1,
                            .save_every = 1,
                            .keep = 2,
                            .out_directory = run,
                            .resume_directory = resume,
                            .sample_prompt = "a"};
  hr_run_result result;
  hr_job job;
  hr_job_init(&job);
  hr_status status = hr_model_open(model, &job.model, error);
  if (status == HR_OK) status = hr_device_find("cpu", &job.device, error);
  job.sequence_length = 12;
  job.threads = 1;
  job.steps = 2;
  job.with_generation = true;
  if (status == HR_OK) status = hr_job_finish(&job, error);
  return status == HR_OK ? hr_train(&job, &options, &result, error) : status;
}

/* Fails from the n-th allocation on, for n = first, first + stride, ...; how many there are in a run that succeeds. */
static uint64_t fail_each(uint64_t stride, const char *resume_template) {
  uint64_t n = 1;
  for (;; n += stride) {
    const char *run = new_run();
    uint64_t live = hri_mem_live_bytes();
    hr_error error = {0};
    hr_status status;
    if (resume_template) {
      child copy = {.words = {"-a", resume_template, run}};
      child_run(&copy, "/bin/cp", directory);
      assert_int_equal(copy.code, 0);
    }
    hri_mem_fail_after(n);
    status = whole_run(run, resume_template ? run : NULL, &error);
    hri_mem_fail_after(0);
    if (status != HR_OK && status != HR_ERROR_MEMORY)
      fail_msg("allocation %llu refused: %s: %s", (unsigned long long)n, hr_status_name(status), error.message);
    if (status == HR_ERROR_MEMORY && (error.code != status || !error.message[0]))
      fail_msg("allocation %llu refused: no message", (unsigned long long)n);
    if (hri_mem_live_bytes() != live)
      fail_msg("allocation %llu refused: %lld bytes stay on the heap (%s)", (unsigned long long)n,
               (long long)(hri_mem_live_bytes() - live), error.message);
    assert_whole(run);
    scratch_remove(run);
    if (status == HR_OK) return n;
  }
}

static void test_every_allocation_may_fail(void **state) {
  uint64_t begin = hri_mem_allocation_count(), total;
  hr_error error = {0};
  const char *run = new_run();
  (void)state;
  if (whole_run(run, NULL, &error) != HR_OK) fail_msg("%s", error.message); /* it runs when nothing fails */
  total = hri_mem_allocation_count() - begin;
  assert_true(complete_model(path_of("%s/final", run)));
  scratch_remove(run);
  print_message("%llu allocations in a whole run\n", (unsigned long long)total);
  assert_true(fail_each(quick() ? 7 : 1, NULL) + 7 >= total); /* it was the whole run that went through */
}

static void test_every_allocation_of_a_resumed_run_may_fail(void **state) {
  char run[PATH_BYTES];
  hr_error error = {0};
  (void)state;
  (void)snprintf(run, sizeof run, "%s/template", directory);
  if (whole_run(run, NULL, &error) != HR_OK) fail_msg("%s", error.message);
  scratch_remove(path_of("%s/checkpoints/best", run)); /* back to before the second step */
  scratch_remove(path_of("%s/checkpoints/last", run));
  scratch_remove(path_of("%s/checkpoints/step-000002", run));
  scratch_remove(path_of("%s/final", run));
  (void)fail_each(quick() ? 31 : 5, run);
  scratch_remove(run);
}

/* ---- a file system without symbolic links ---- */

/* Takes the place of libc's: fails as on FAT. */
static bool no_links;
int symlink(const char *target, const char *path) {
  int (*real)(const char *, const char *);
  void *found = dlsym(RTLD_NEXT, "symlink");
  memcpy(&real, &found, sizeof real);
  if (!no_links) return real(target, path);
  errno = EPERM;
  return -1;
}

/* Its loss grows with each step, so that the best checkpoint is not among the newest. */
static hr_status worse_and_worse(const char *run, const char *resume, uint64_t steps, hr_error *error) {
  hr_run_options options = {.data_paths = &data,
                            .data_path_count = 1,
                            .eval_paths = &held,
                            .eval_path_count = 1,
                            .eval_every = 1,
                            .eval_batches = 1,
                            .save_every = 1,
                            .keep = 1,
                            .out_directory = run,
                            .resume_directory = resume};
  hr_run_result result;
  hr_job job;
  hr_job_init(&job);
  hr_status status = hr_model_open("micro-llama-bytes", &job.model, error);
  if (status == HR_OK) status = hr_device_find("cpu", &job.device, error);
  job.sequence_length = 12;
  job.threads = 1;
  job.steps = steps;
  job.learning_rate = 2;
  job.schedule = HR_SCHEDULE_CONSTANT;
  if (status == HR_OK) status = hr_job_finish(&job, error);
  return status == HR_OK ? hr_train(&job, &options, &result, error) : status;
}

/* The run ends well, keeps the best checkpoint without the link that says which it is, and so does one that goes on. */
static void test_no_run_ends_for_want_of_links(void **state) {
  char with[PATH_BYTES], without[PATH_BYTES], best[64] = "";
  (void)state;
  (void)snprintf(with, sizeof with, "%s", new_run());
  (void)snprintf(without, sizeof without, "%s", new_run());
  for (uint64_t steps = 4; steps <= 6; steps += 2) {
    hr_error error = {0};
    if (worse_and_worse(with, steps > 4 ? with : NULL, steps, &error) != HR_OK) fail_msg("%s", error.message);
    no_links = true;
    hr_status status = worse_and_worse(without, steps > 4 ? without : NULL, steps, &error);
    no_links = false;
    if (status != HR_OK) fail_msg("%s", error.message);
    assert_true(readlink(path_of("%s/checkpoints/best", with), best, sizeof best - 1) > 0);
    assert_string_not_equal(best, path_of("step-%06d", (int)steps));
    assert_true(exists(path_of("%s/checkpoints/%s", without, best)));
    assert_true(exists(path_of("%s/checkpoints/step-%06d", without, (int)steps)));
    assert_false(exists(path_of("%s/checkpoints/step-%06d", without, (int)steps - 1)));
    assert_false(exists(path_of("%s/checkpoints/last", without)) || exists(path_of("%s/checkpoints/best", without)));
    assert_true(complete_model(path_of("%s/final", without)));
  }
  scratch_remove(with);
  scratch_remove(without);
}

/* ---- kill -9 ---- */

static const char *kill_job(const char *run, bool resume) {
  return path_of(
      "train micro-llama-bytes -q --seq 37 --micro-batch 3 --threads 1 --steps 60 --save-every 1 --keep 3 --shuffle --data %s --eval-data %s --eval-every 7 --eval-batches 2 %s %s",
      data, held, resume ? "--resume" : "--out", run);
}

static void test_killed_at_any_moment_and_resumed_to_the_same_bits(void **state) {
  const char *whole = new_run();
  child c = {0};
  uint64_t seed = 12345, wall;
  struct timespec begin, end;
  int rounds = quick() ? 1 : 4, kills = 0;
  (void)state;
  child_words(&c, kill_job(whole, false));
  clock_gettime(CLOCK_MONOTONIC, &begin);
  child_run(&c, HR_PROGRAM, directory);
  clock_gettime(CLOCK_MONOTONIC, &end);
  wall = (uint64_t)(end.tv_sec - begin.tv_sec) * 1000000 + (uint64_t)(end.tv_nsec / 1000) -
         (uint64_t)(begin.tv_nsec / 1000);
  if (c.code != 0) fail_msg("%s", c.err);
  assert_each_step_once(whole, 60);
  for (int round = 0; round < rounds; round++) {
    const char *run = new_run();
    for (int attempt = 0;; attempt++) {
      bool resume = false;
      child k = {0};
      DIR *dir = opendir(path_of("%s/checkpoints", run));
      struct dirent *entry;
      while (dir && (entry = readdir(dir))) resume = resume || strncmp(entry->d_name, "step-", 5) == 0;
      if (dir) closedir(dir);
      if (!resume && exists(run)) scratch_remove(run); /* killed before the first checkpoint: it starts anew */
      assert_true(attempt < 200);
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      /* later attempts get longer, so that a slow machine comes to an end as well */
      k.kill_after_us = wall / 30 + (seed >> 33) % (wall / 3) + wall / 10 * (uint64_t)(attempt / 8);
      child_words(&k, kill_job(run, resume));
      child_run(&k, HR_PROGRAM, directory);
      if (k.code == 0) break;
      if (k.code != 128 + SIGKILL) fail_msg("attempt %d: exit %d: %s", attempt, k.code, k.err);
      kills++;
      assert_whole(run);
    }
    assert_same_file(path_of("%s/final/model.safetensors", whole), path_of("%s/final/model.safetensors", run));
    assert_same_file(path_of("%s/checkpoints/step-000060/optimizer.safetensors", whole),
                     path_of("%s/checkpoints/step-000060/optimizer.safetensors", run));
    assert_each_step_once(run, 60);
    assert_whole(run);
    scratch_remove(run);
  }
  scratch_remove(whole);
  print_message("%d kills in %d runs of 60 steps\n", kills, rounds);
  assert_true(kills >= rounds);
}

/* Ctrl-C: the step is finished, a checkpoint written, exit 130; resumed to the same bits. */
static void test_interrupted_and_resumed(void **state) {
  const char *whole = new_run(), *run = new_run();
  child a = {0}, b = {0}, c = {0};
  int status;
  pid_t pid;
  (void)state;
  child_words(&a, kill_job(whole, false));
  child_run(&a, HR_PROGRAM, directory);
  assert_int_equal(a.code, 0);
  child_words(&b, kill_job(run, false));
  pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) child_exec(&b, HR_PROGRAM, path_of("%s/.out", directory), path_of("%s/.err", directory));
  for (int k = 0; k < 20000 && !exists(path_of("%s/checkpoints/last", run)); k++) (void)usleep(500);
  assert_int_equal(kill(pid, SIGINT), 0);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status));
  assert_true(WEXITSTATUS(status) == 130 || WEXITSTATUS(status) == 0); /* 0: it was done already */
  assert_whole(run);
  if (WEXITSTATUS(status) == 130) {
    assert_false(exists(path_of("%s/final", run)));
    child_words(&c, kill_job(run, true));
    child_run(&c, HR_PROGRAM, directory);
    if (c.code != 0) fail_msg("%s", c.err);
  }
  assert_same_file(path_of("%s/final/model.safetensors", whole), path_of("%s/final/model.safetensors", run));
  assert_each_step_once(run, 60);
  scratch_remove(run);
  scratch_remove(whole);
}

/* ---- the disk ---- */

static const char *disk_job(const char *run) {
  return path_of("train micro-llama-bytes -q --seq 16 --threads 1 --steps 3 --save-every 1 --data %s --out %s", data,
                 run);
}

/* No file may grow past a limit: every write of the run is cut short at some limit. */
static void test_files_that_may_not_grow(void **state) {
  static const uint64_t limits[] = {1, 40, 700, 1500, 2600, 4096, 30000, 65536, 300000, 435000, 440000, 800000, 872000};
  int refused = 0;
  (void)state;
  for (size_t k = 0; k < sizeof limits / sizeof *limits; k++) {
    const char *run = new_run();
    child c = {.file_bytes = limits[k]};
    child_words(&c, disk_job(run));
    child_run(&c, HR_PROGRAM, directory);
    if (c.code != 0 && c.code != 1)
      fail_msg("files of at most %llu bytes: exit %d: %s", (unsigned long long)limits[k], c.code, c.err);
    if (c.code == 1) {
      refused++;
      assert_false(exists(path_of("%s/final", run)));
      if (limits[k] > 500 && !strstr(c.err, "cannot"))
        fail_msg("files of at most %llu bytes: %s", (unsigned long long)limits[k], c.err);
    }
    assert_whole(run);
    scratch_remove(run);
  }
  assert_true(refused >= 8);
}

/* A file system of its own, of `bytes` and so many files (0: as many as there are blocks), in a name space of its own; false
 * where that is not allowed. */
static bool mount_small(const char *path, uint64_t bytes, uint32_t files) {
  char options[64];
  if (files) (void)snprintf(options, sizeof options, "size=%llu,nr_inodes=%u", (unsigned long long)bytes, files);
  else (void)snprintf(options, sizeof options, "size=%llu", (unsigned long long)bytes);
  if (unshare(CLONE_NEWNS) != 0) return false;
  if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) return false;
  return mount("headroom-test", path, "tmpfs", 0, options) == 0;
}

/* Runs inside a child of its own: exit 77 where mounting is not allowed, 0 when all holds, 2 with a message
 * otherwise. */
static void full_disk(const char *path, uint64_t bytes) {
  child c = {0};
  char run[PATH_BYTES];
  if (!mount_small(path, bytes, 0)) _exit(77);
  (void)snprintf(run, sizeof run, "%s/run", path);
  child_words(&c, disk_job(run));
  child_run(&c, HR_PROGRAM, directory);
  if (c.code == 0 && exists(path_of("%s/final", run))) _exit(0);
  if (c.code == 3 && strstr(c.err, "of disk") && !exists(run))
    _exit(0); /* known before the start; what fills up later is tests/torture's */
  if (c.code != 1 || !strstr(c.err, "space") || exists(path_of("%s/final", run))) {
    (void)fprintf(stderr, "disk of %llu bytes: exit %d: %s\n", (unsigned long long)bytes, c.code, c.err);
    _exit(2);
  }
  assert_whole(run);
  _exit(0);
}

/* Room for bytes, and none for files: the error says which of them is to go. */
static void no_more_files(const char *path, uint32_t files) {
  char run[PATH_BYTES];
  child c = {0};
  if (!mount_small(path, 64 << 20, files)) _exit(77);
  (void)snprintf(run, sizeof run, "%s/run", path);
  child_words(&c, disk_job(run));
  child_run(&c, HR_PROGRAM, directory);
  if (c.code == 0 && exists(path_of("%s/final", run))) _exit(0);
  if (c.code != 1 || !strstr(c.err, "remove files there: the file system takes no more of them") ||
      strstr(c.err, "free some disk space") || exists(path_of("%s/final", run))) {
    (void)fprintf(stderr, "disk of %u files: exit %d: %s\n", files, c.code, c.err);
    _exit(2);
  }
  assert_whole(run);
  _exit(1);
}

static void test_no_more_files(void **state) {
  static const uint32_t counts[] = {3, 5, 8, 12, 16, 20, 26, 1000};
  const char *path = path_of("%s/inodes", directory);
  int refused = 0, finished = 0;
  (void)state;
  assert_int_equal(mkdir(path, 0755), 0);
  for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
    int status;
    pid_t pid;
    (void)fflush(NULL);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) no_more_files(path, counts[k]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) skip();
    assert_true(WEXITSTATUS(status) < 2);
    refused += WEXITSTATUS(status) == 1;
    finished += WEXITSTATUS(status) == 0;
  }
  assert_true(refused >= 4 && finished >= 1);
}

static void test_full_disk(void **state) {
  static const uint64_t sizes[] = {16384, 65536, 262144, 800000, 1400000, 2000000, 2900000, 4300000, 4800000, 16000000};
  const char *path = path_of("%s/disk", directory);
  (void)state;
  assert_int_equal(mkdir(path, 0755), 0);
  for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
    int status;
    pid_t pid;
    (void)fflush(NULL);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) full_disk(path, sizes[k]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
      print_message("no mounts allowed here: the limit on file sizes stands in\n");
      skip();
    }
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
}

/* A run of 12 steps in this process, on a disk that is full from the end of step `from` to that of step `until`, but for
 * `room` bytes. */
typedef struct filler {
  const char *path;
  uint64_t from, until, room;
  char warnings[2048];
} filler;

static void fill(const filler *f) {
  static char zeros[65536];
  int fd = open(f->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  for (size_t piece = sizeof zeros; fd >= 0 && piece > 0; piece /= 2)
    while (write(fd, zeros, piece) == (ssize_t)piece) {}
  if (fd < 0 || ftruncate(fd, lseek(fd, 0, SEEK_END) - (off_t)f->room) != 0) fail_msg("the disk cannot be filled");
  (void)close(fd);
}

static void on_step(void *context, const hr_event *event) {
  filler *f = context;
  size_t used = strlen(f->warnings);
  if (event->kind == HR_EVENT_WARNING)
    (void)snprintf(f->warnings + used, sizeof f->warnings - used, "%s\n", event->text);
  if (event->kind != HR_EVENT_STEP) return;
  if (event->metrics->step == f->from) fill(f);
  if (event->metrics->step == f->until) (void)unlink(f->path);
}

static void must(hr_status status, const hr_error *error) {
  if (status != HR_OK) fail_msg("%s (%s)", error->message, error->hint);
}

static hr_status run_on_full_disk(const char *run, filler *f, uint64_t save_every, hr_error *error) {
  hr_run_options options = {.data_paths = &data,
                            .data_path_count = 1,
                            .save_every = save_every,
                            .keep = 2,
                            .out_directory = run,
                            .on_event = on_step,
                            .context = f};
  hr_run_result result;
  hr_job job;
  hr_job_init(&job);
  must(hr_model_open("micro-llama-bytes", &job.model, error), error);
  must(hr_device_find("cpu", &job.device, error), error);
  job.sequence_length = 16;
  job.threads = 1;
  job.steps = 12;
  must(hr_job_finish(&job, error), error);
  return hr_train(&job, &options, &result, error);
}

/* Full while one checkpoint is due: the run goes on, and is the undisturbed one but for that checkpoint. Full for longer: it
 * ends, and says what it can go on from. Full at the end: the model is there where that alone finds room. */
static void full_for_a_while(const char *path) {
  const char *whole = strdup(path_of("%s/whole", path)), *run = strdup(path_of("%s/run", path));
  filler f = {.path = strdup(path_of("%s/filler", path))};
  hr_error error = {0};
  struct stat final;
  if (!mount_small(path, 16 << 20, 0)) _exit(77);
  must(run_on_full_disk(whole, &f, 2, &error), &error);
  assert_int_equal(stat(path_of("%s/final/model.safetensors", whole), &final), 0);

  f.from = 5, f.until = 7;
  must(run_on_full_disk(run, &f, 2, &error), &error);
  assert_non_null(strstr(f.warnings, "step 6 is not saved: "));
  assert_null(strstr(f.warnings, "another directory")); /* it has one */
  assert_false(exists(path_of("%s/checkpoints/step-000006", run)));
  assert_same_file(path_of("%s/final/model.safetensors", whole), path_of("%s/final/model.safetensors", run));
  assert_same_file(path_of("%s/checkpoints/step-000012/optimizer.safetensors", whole),
                   path_of("%s/checkpoints/step-000012/optimizer.safetensors", run));
  assert_each_step_once(run, 12);
  assert_whole(run);
  scratch_remove(run);

  f.until = 0;
  assert_int_equal(run_on_full_disk(run, &f, 2, &error), HR_ERROR_IO);
  assert_non_null(strstr(error.hint, "step 4 is saved: --resume "));
  assert_non_null(strstr(error.hint, "free some disk space"));
  assert_null(strstr(error.hint, "another directory"));
  assert_true(exists(path_of("%s/checkpoints/step-000004/manifest.json", run)));
  assert_whole(run);
  (void)unlink(f.path);
  scratch_remove(run);

  f.room = (uint64_t) final.st_size + (64u << 10);
  assert_int_equal(run_on_full_disk(run, &f, 0, &error), HR_ERROR_IO);
  assert_non_null(strstr(error.hint, "run/final has the trained weights"));
  assert_same_file(path_of("%s/final/model.safetensors", whole), path_of("%s/final/model.safetensors", run));
  _exit(0);
}

static void test_disk_that_is_full_for_a_while(void **state) {
  const char *path = path_of("%s/disk", directory);
  int status;
  pid_t pid;
  (void)state;
  (void)mkdir(path, 0755);
  (void)fflush(NULL);
  pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) full_for_a_while(path);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) skip();
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void expect_refused(const char *out, int code, const char *words) {
  child c = {0};
  child_words(&c, disk_job(out));
  child_run(&c, HR_PROGRAM, directory);
  if (c.code != code || !strstr(c.err, words))
    fail_msg("--out %s: exit %d, wanted %d with '%s': %s", out, c.code, code, words, c.err);
}

static void test_output_that_cannot_be(void **state) {
  const char *file = path_of("%s/a-file", directory), *run = new_run();
  child c = {0};
  (void)state;
  put_text(file, "not a directory");
  expect_refused(file, 2, file);
  expect_refused(path_of("%s/run", file), 2, file);
  expect_refused("/proc/headroom-run", 1, "/proc/headroom-run");
  child_words(&c, disk_job(run));
  child_run(&c, HR_PROGRAM, directory);
  assert_int_equal(c.code, 0);
  expect_refused(run, 2, "already holds a run");
  assert_whole(run);
  scratch_remove(run);
}

/* Somebody without the right to write (root has it always, so another user tries). */
static void test_directory_that_may_not_be_written(void **state) {
  const char *locked = path_of("%s/locked", directory), *run = path_of("%s/locked/run", directory);
  hr_error error = {0};
  hr_status status;
  bool root = geteuid() == 0;
  (void)state;
  assert_int_equal(mkdir(locked, 0555), 0);
  if (root && (seteuid(65534) != 0 || euidaccess(data, R_OK) != 0)) { /* a folder above may be closed to others */
    (void)seteuid(0);
    skip();
  }
  status = whole_run(run, NULL, &error);
  if (root) assert_int_equal(seteuid(0), 0);
  if (status != HR_ERROR_IO || !strstr(error.message, locked) || !error.hint[0])
    fail_msg("%s: %s (%s)", hr_status_name(status), error.message, error.hint);
  assert_false(exists(run));
}

static int set_up(void **state) {
  (void)state;
  directory = scratch_make("torture");
  data = strdup(path_of("%s/data.txt", directory));
  held = strdup(path_of("%s/held.txt", directory));
  put_words(data, 5000, 1);
  put_words(held, 700, 2);
  return data && held ? 0 : -1;
}

static int tear_down(void **state) {
  (void)state;
  scratch_remove(directory);
  free((void *)(uintptr_t)data);
  free((void *)(uintptr_t)held);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_allocation_may_fail),
      cmocka_unit_test(test_every_allocation_of_a_resumed_run_may_fail),
      cmocka_unit_test(test_no_run_ends_for_want_of_links),
      cmocka_unit_test(test_killed_at_any_moment_and_resumed_to_the_same_bits),
      cmocka_unit_test(test_interrupted_and_resumed),
      cmocka_unit_test(test_files_that_may_not_grow),
      cmocka_unit_test(test_full_disk),
      cmocka_unit_test(test_no_more_files),
      cmocka_unit_test(test_disk_that_is_full_for_a_while),
      cmocka_unit_test(test_output_that_cannot_be),
      cmocka_unit_test(test_directory_that_may_not_be_written),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
