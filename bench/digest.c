/* What digests cost: of memory, by one thread and by the team; and in the load of an fp32 checkpoint with optimizer
 * states, warm and cold (dropped from the page cache), with and without, and in its save. Interleaved; medians of the
 * rounds.
 *
 *   bench_digest [MiB of weights [threads [rounds [directory]]]]     default 512 MiB, the physical cores, 9 rounds,
 *   $TMPDIR or /tmp */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "formats/digest.h"
#include "train/session.h"
#include "support/team.h"

enum { PIECE = 1 << 20, MAX_ROUNDS = 64 };

typedef struct options {
  uint64_t mib;
  uint32_t threads;
  int rounds;
  const char *directory;
} options;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int rising(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static double median(const double *list, int count) {
  double sorted[MAX_ROUNDS];
  memcpy(sorted, list, (size_t)count * sizeof *list);
  qsort(sorted, (size_t)count, sizeof *sorted, rising);
  return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

/* ---- memory ---- */

typedef struct digesting {
  hri_file_digest *digest;
  const unsigned char *from;
  uint64_t wrap;
} digesting;

static void digest_piece(void *context, int64_t piece, int64_t end, int thread) {
  const digesting *d = context;
  uint64_t at = (uint64_t)piece * PIECE;
  (void)end, (void)thread;
  (void)hri_file_digest_add(d->digest, at, d->from + at % d->wrap, PIECE, NULL);
}

/* Digests `bytes` bytes of a file whose content is `from` over and over (`wrap` bytes of it). */
static double digest_memory(const unsigned char *from, uint64_t wrap, uint64_t bytes, uint32_t threads) {
  digesting d = {.from = from, .wrap = wrap};
  double begin;
  if (hri_file_digest_create(16, &d.digest, NULL) != HR_OK) return -1;
  begin = now();
  hri_team_in_order(team_of((int)threads), (int64_t)(bytes / PIECE), digest_piece, &d);
  begin = now() - begin;
  hri_file_digest_destroy(d.digest);
  return begin;
}

static hr_status bench_memory(const options *o, hr_error *error) {
  static const uint64_t wraps[] = {PIECE, 256 << 20};
  uint64_t bytes = (uint64_t)1 << 30;
  unsigned char *memory = hri_alloc(wraps[1]);
  double times[4][MAX_ROUNDS];
  if (!memory) return hri_fail_memory(error, wraps[1], "the memory to digest");
  memset(memory, 7, wraps[1]);
  for (int r = 0; r < o->rounds; r++)
    for (int k = 0; k < 4; k++) times[k][r] = digest_memory(memory, wraps[k / 2], bytes, k % 2 ? o->threads : 1);
  for (int k = 0; k < 4; k++)
    (void)printf("digest of %-34s %2u thread%s %6.1f GB/s\n", k / 2 ? "memory" : "a MiB that stays in the cache",
                 k % 2 ? o->threads : 1, k % 2 && o->threads > 1 ? "s" : " ",
                 (double)bytes / median(times[k], o->rounds) / 1e9);
  hri_free(memory);
  return HR_OK;
}

/* ---- a checkpoint ---- */

static hr_status make_job(const options *o, hr_job *job, hr_error *error) {
  uint64_t layers = o->mib * 1048576 / 4 / (4 * 1024 * 1024 + 3 * 1024 * 2816);
  hri_text name = {0};
  hr_status status;
  hri_text_add(&name,
               "custom:family=llama,layers=%u,hidden=1024,heads=16,kv-heads=16,mlp=2816,vocab=512,positions=128,tied",
               (unsigned)(layers ? layers : 1));
  hr_job_init(job);
  status = hr_model_open(hri_text_get(&name), &job->model, error);
  hri_text_deinit(&name);
  HRI_TRY(status);
  HRI_TRY(hr_device_find("cpu", &job->device, error));
  job->sequence_length = 16;
  job->threads = o->threads;
  job->budget_bytes = (uint64_t)64 << 30;
  job->given |= HR_GIVEN_BUDGET;
  return hr_job_finish(job, error);
}

static uint64_t drop_file(const hri_file_record *file, const char *directory, bool cold) {
  char *path = hri_path_join(directory, file->name);
  int fd = path ? open(path, O_RDONLY) : -1;
  if (fd >= 0 && cold) (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  if (fd >= 0) close(fd);
  hri_free(path);
  return file->bytes;
}

/* Seconds of the team's threads, too: others on the machine take less from them than from the clock. */
static double now_busy(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* One load of weights and states into the arenas that are there; -1 on failure. */
static double load(hri_session *s, const char *directory, const char *states, bool digest, hri_file_list *files,
                   double *busy, hr_error *error) {
  double begin;
  hr_status status = hri_source_open(&s->source, &s->plan->spec.model, &s->plan->job, &s->plan->backend->elements,
                                     directory, states, 1, error);
  if (status != HR_OK) return -1;
  files->count = 0;
  *busy = now_busy();
  begin = now();
  if (digest) status = hri_source_digest_begin(&s->source, error);
  if (status == HR_OK) status = hri_executor_run(s->executor, HRI_LOAD, error);
  if (status == HR_OK && digest) status = hri_source_digest_end(&s->source, files, NULL, error);
  begin = now() - begin;
  *busy = now_busy() - *busy;
  hri_source_close(&s->source);
  return status == HR_OK ? begin : -1;
}

static hr_status check_files(const hri_file_list *written, const hri_file_list *read, hr_error *error) {
  for (size_t k = 0; k < read->count; k++) {
    const hri_file_record *file = hri_file_list_find(written, read->items[k].name);
    if (!file || file->bytes != read->items[k].bytes || file->digest != read->items[k].digest)
      return hri_fail(error, HR_ERROR_INTERNAL, "%s was not read as it was written", read->items[k].name);
  }
  return HR_OK;
}

static hr_status bench_loads(const options *o, hri_session *s, const char *directory, const hri_file_list *written,
                             hr_error *error) {
  char *states = hri_path_join(directory, "optimizer.safetensors");
  hri_file_list read = {0};
  hr_status status = states ? HR_OK : HR_ERROR_MEMORY;
  for (int cold = 0; cold < 2 && status == HR_OK; cold++) {
    double times[2][MAX_ROUNDS], busy[2][MAX_ROUNDS], plain, digested;
    uint64_t bytes = 0;
    for (int r = 0; r < 2 * o->rounds && status == HR_OK; r++) { /* each first in every other round */
      int with = (r + r / 2) % 2;
      bytes = 0;
      for (size_t k = 0; k < written->count; k++)
        if (strstr(written->items[k].name, ".safetensors")) bytes += drop_file(&written->items[k], directory, cold);
      times[with][r / 2] = load(s, directory, states, with, &read, &busy[with][r / 2], error);
      if (times[with][r / 2] < 0) status = HR_ERROR_INPUT;
      else if (with) status = check_files(written, &read, error);
    }
    if (status != HR_OK) break;
    plain = median(times[0], o->rounds);
    digested = median(times[1], o->rounds);
    (void)printf(
        "load of %.0f MB, %s: %7.1f ms without (%.2f GB/s), %7.1f ms with digests: %+.1f %%; processor time %+.1f %%\n",
        (double)bytes / 1e6, cold ? "cold" : "warm", 1e3 * plain, (double)bytes / plain / 1e9, 1e3 * digested,
        100 * (digested / plain - 1), 100 * (median(busy[1], o->rounds) / median(busy[0], o->rounds) - 1));
    (void)fflush(stdout);
  }
  hri_array_free(&read);
  hri_free(states);
  return status;
}

/* The writer always takes digests; what they are of a save is what the team needs for as many bytes. */
static hr_status bench_saves(const options *o, hri_session *s, const char *directory, hri_file_list *written,
                             hr_error *error) {
  double times[MAX_ROUNDS], least;
  uint64_t bytes = 0;
  int rounds = o->rounds < 5 ? o->rounds : 5;
  for (int r = 0; r < rounds; r++) {
    HRI_TRY(hri_dir_remove(directory, error));
    HRI_TRY(hri_dir_make(directory, error));
    written->count = 0;
    times[r] = now();
    HRI_TRY(hri_session_save(s, directory, HRI_FILE_F32, true, written, error));
    times[r] = now() - times[r];
  }
  for (size_t k = 0; k < written->count; k++) bytes += written->items[k].bytes;
  least = median(times, rounds);
  (void)printf("save of %.0f MB with digests and fsync: %7.1f ms (%.2f GB/s)\n", (double)bytes / 1e6, 1e3 * least,
               (double)bytes / least / 1e9);
  (void)fflush(stdout);
  return HR_OK;
}

static hr_status bench_checkpoint(const options *o, hr_error *error) {
  char *directory = hri_path_join(o->directory, "checkpoint");
  hri_file_list written = {0};
  hri_session s = {0};
  hr_job job;
  hr_status status = HR_OK;
  if (!directory) return hri_fail_memory(error, strlen(o->directory), "a path");
  HRI_TRY_OUT(make_job(o, &job, error));
  HRI_TRY_OUT(hri_session_plan(&s, &job, NULL, error));
  HRI_TRY_OUT(hri_session_load(&s, NULL, NULL, error));
  HRI_TRY_OUT(bench_saves(o, &s, directory, &written, error));
  HRI_TRY_OUT(bench_loads(o, &s, directory, &written, error));
out:
  hri_session_close(&s);
  hri_array_free(&written);
  hri_free(directory);
  return status;
}

int main(int count, char **words) {
  options o = {.mib = count > 1 ? (uint64_t)atoll(words[1]) : 512,
               .threads = count > 2 ? (uint32_t)atoi(words[2]) : hr_device_cpu_threads(),
               .rounds = count > 3 ? atoi(words[3]) : 9};
  const char *parent = count > 4 ? words[4] : getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
  char directory[512];
  hr_error error = {0};
  hr_status status;
  if (o.rounds < 1 || o.rounds > MAX_ROUNDS) o.rounds = 9;
  (void)snprintf(directory, sizeof directory, "%.400s/hr-bench-digest-XXXXXX", parent);
  if (!mkdtemp(directory)) return 1;
  o.directory = directory;
  status = bench_memory(&o, &error);
  if (status == HR_OK) status = bench_checkpoint(&o, &error);
  if (status != HR_OK) (void)fprintf(stderr, "bench_digest: %s\n", error.message);
  (void)hri_dir_remove(directory, NULL);
  return status != HR_OK;
}
