/* How fast warm weight files are loaded, beside what the same team needs at least: reading the same bytes in parallel,
 * straight to where they go ("read"), or through buffers of a MiB with a copy ("read + copy"; where the values get
 * wider, the copy writes as many bytes as the arena takes). Interleaved; the best of the rounds.
 *
 *   bench_load [MiB of file [threads [rounds [directory]]]]     default 512 MiB, the physical cores, 7 rounds, $TMPDIR
 *   or /tmp */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "backend/cpu/arena.h"
#include "train/session.h"
#include "support/team.h"

enum { PIECE = 1 << 20, MAX_ROUNDS = 64 };

typedef struct load_case {
  const char *name, *family; /* what is loaded; of which architecture the file is */
  hri_file_dtype file;
  hr_purpose purpose;
  hr_precision precision;
} load_case;

static const load_case cases[] = {
    {"f32 -> f32 (llama: q,k,v and gate,up joined)", "llama", HRI_FILE_F32, HR_PURPOSE_EVALUATE, HR_PRECISION_FP32},
    {"bf16 -> bf16", "llama", HRI_FILE_BF16, HR_PURPOSE_EVALUATE, HR_PRECISION_BF16},
    {"bf16 -> f32", "llama", HRI_FILE_BF16, HR_PURPOSE_EVALUATE, HR_PRECISION_FP32},
    {"bf16 -> f32 masters and bf16 weights", "llama", HRI_FILE_BF16, HR_PURPOSE_TRAIN, HR_PRECISION_BF16},
    {"f16 -> f32", "llama", HRI_FILE_F16, HR_PURPOSE_EVALUATE, HR_PRECISION_FP32},
    {"f32 -> bf16", "llama", HRI_FILE_F32, HR_PURPOSE_EVALUATE, HR_PRECISION_BF16},
    {"f32 -> f32, transposed (gpt2)", "gpt2", HRI_FILE_F32, HR_PURPOSE_EVALUATE, HR_PRECISION_FP32},
    {"bf16 -> bf16, transposed (gpt2)", "gpt2", HRI_FILE_BF16, HR_PURPOSE_EVALUATE, HR_PRECISION_BF16},
};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The least: what the machine does when nothing else takes it. */
static double best(const double *list, int count) {
  double least = list[0];
  for (int k = 1; k < count; k++) least = list[k] < least ? list[k] : least;
  return least;
}

/* A job of a model with about `mib` MiB of weights in the file. */
static hr_status make_job(const load_case *c, uint64_t mib, uint32_t threads, hr_job *job, hr_error *error) {
  uint32_t each = c->file == HRI_FILE_F32 ? 4 : 2;
  uint64_t layer = (uint64_t)(strcmp(c->family, "gpt2") == 0 ? 12 * 1024 * 1024 : 4 * 1024 * 1024 + 3 * 1024 * 2816);
  uint64_t layers = mib * 1048576 / each / layer;
  hri_text name = {0};
  hr_status status;
  hri_text_add(&name, "custom:family=%s,layers=%u,hidden=1024,heads=16,%smlp=%u,vocab=512,positions=128,tied",
               c->family, (unsigned)(layers ? layers : 1), c->family[0] == 'l' ? "kv-heads=16," : "",
               c->family[0] == 'l' ? 2816 : 4096);
  hr_job_init(job);
  status = hr_model_open(hri_text_get(&name), &job->model, error);
  hri_text_deinit(&name);
  HRI_TRY(status);
  HRI_TRY(hr_device_find("cpu", &job->device, error));
  job->purpose = c->purpose;
  job->precision = c->precision;
  job->optimizer = HR_OPTIMIZER_SGD; /* no states */
  job->sequence_length = 16;
  job->threads = threads;
  job->budget_bytes = (uint64_t)64 << 30;
  job->given |= HR_GIVEN_BUDGET;
  return hr_job_finish(job, error);
}

/* ---- the three ---- */

typedef struct reading {
  const char *path;
  int fd;
  uint64_t bytes;
  unsigned char *to, *buffers;
  bool copy;
  uint32_t grow;
} reading;

static void read_piece(void *context, int64_t piece, int64_t end, int thread) {
  const reading *r = context;
  uint64_t at = (uint64_t)piece * PIECE, count = r->bytes - at < PIECE ? r->bytes - at : PIECE;
  unsigned char *buffer = r->copy ? r->buffers + (size_t)thread * PIECE : r->to + at;
  (void)end;
  if (hri_file_pread(r->fd, r->path, buffer, count, at, NULL) != HR_OK) abort();
  for (uint32_t k = 0; r->copy && k < r->grow; k++) memcpy(r->to + at * r->grow + k * count, buffer, count);
}

/* Reads the file in pieces; with `copy`, through a buffer of each thread and `grow` times as many bytes written. */
static double read_file(const char *path, uint64_t bytes, unsigned char *to, bool copy, uint32_t grow,
                        uint32_t threads) {
  reading r = {.path = path, .fd = open(path, O_RDONLY), .bytes = bytes, .to = to, .copy = copy, .grow = grow};
  double begin;
  r.buffers = hri_alloc((size_t)threads * PIECE);
  begin = now();
  hri_team_in_order(team_of((int)threads), (int64_t)((bytes + PIECE - 1) / PIECE), read_piece, &r);
  begin = now() - begin;
  hri_free(r.buffers);
  close(r.fd);
  return begin;
}

static double load(hri_session *s, hr_error *error) {
  double begin;
  if (hri_source_open(&s->source, &s->plan->spec.model, &s->plan->job, &s->plan->backend->elements, NULL, NULL, 1,
                      error) != HR_OK)
    return -1;
  begin = now();
  if (hri_executor_run(s->executor, HRI_LOAD, error) != HR_OK) return -1;
  begin = now() - begin;
  hri_source_close(&s->source);
  return begin;
}

/* Writes the model's first values to a file of the case's dtype. */
static hr_status make_file(const load_case *c, const hr_job *like, const char *directory, hr_error *error) {
  hr_job job = *like;
  hri_session s = {0};
  hr_status status = HR_OK;
  HRI_TRY(hri_dir_remove(directory, error));
  HRI_TRY(hri_dir_make(directory, error));
  job.purpose = HR_PURPOSE_TRAIN; /* has a save program */
  job.precision = HR_PRECISION_FP32;
  HRI_TRY_OUT(hri_session_plan(&s, &job, NULL, error));
  HRI_TRY_OUT(hri_session_load(&s, NULL, NULL, error));
  HRI_TRY_OUT(hri_session_save(&s, directory, c->file, false, NULL, error));
out:
  hri_session_close(&s);
  return status;
}

static hr_status run_case(const load_case *c, uint64_t mib, uint32_t threads, int rounds, const char *directory,
                          hr_error *error) {
  double times[4][MAX_ROUNDS], read, copied, loaded, wide;
  uint32_t grow = c->file != HRI_FILE_F32 && c->precision == HR_PRECISION_FP32 ? 2
                  : c->purpose == HR_PURPOSE_TRAIN                             ? 3
                                                                               : 1;
  char path[4096];
  hri_session s = {0};
  hri_arena arena = {0};
  hri_weights *weights = NULL;
  uint64_t bytes = 0;
  hr_job job;
  hr_status status = HR_OK;
  HRI_TRY(make_job(c, mib, threads, &job, error));
  HRI_TRY(make_file(c, &job, directory, error));
  (void)snprintf(job.model.directory, sizeof job.model.directory, "%s", directory);
  (void)snprintf(path, sizeof path, "%s/" HRI_WEIGHTS_FILE, directory);
  HRI_TRY(hri_weights_open(directory, &weights, error));
  bytes = hri_weights_data_bytes(weights);
  hri_weights_close(weights);
  HRI_TRY_OUT(hri_session_plan(&s, &job, NULL, error));
  HRI_TRY_OUT(hri_session_load(&s, NULL, NULL, error));
  HRI_TRY_OUT(hri_arena_reserve(&arena, bytes * 3, team_of((int)threads), NULL, error));
  for (int r = 0; r < rounds; r++) {
    times[0][r] = read_file(path, bytes, arena.base, false, 1, threads);
    times[1][r] = read_file(path, bytes, arena.base, true, 1, threads);
    times[2][r] = read_file(path, bytes, arena.base, true, grow, threads);
    times[3][r] = load(&s, error);
    if (times[3][r] < 0) {
      status = HR_ERROR_INPUT;
      goto out;
    }
  }
  read = (double)bytes / best(times[0], rounds);
  copied = (double)bytes / best(times[1], rounds);
  wide = (double)bytes / best(times[2], rounds);
  loaded = (double)bytes / best(times[3], rounds);
  (void)printf(
      "%-46s %5.0f MB  read %5.2f  read + copy %5.2f (x%u: %5.2f)  load %5.2f GB/s of file   load / read + copy %3.0f %% (x%u: %3.0f %%)\n",
      c->name, (double)bytes / 1e6, read / 1e9, copied / 1e9, grow, wide / 1e9, loaded / 1e9, 100 * loaded / copied,
      grow, 100 * loaded / wide);
  (void)fflush(stdout);
out:
  hri_arena_release(&arena);
  hri_session_close(&s);
  return status;
}

int main(int count, char **words) {
  uint64_t mib = count > 1 ? (uint64_t)atoll(words[1]) : 512;
  uint32_t threads = count > 2 ? (uint32_t)atoi(words[2]) : hr_device_cpu_threads();
  int rounds = count > 3 ? atoi(words[3]) : 7;
  const char *parent = count > 4 ? words[4] : getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
  char directory[512];
  hr_error error = {0};
  int failed = 0;
  if (rounds < 1 || rounds > MAX_ROUNDS) rounds = 7;
  (void)snprintf(directory, sizeof directory, "%.400s/hr-bench-load-XXXXXX", parent);
  if (!mkdtemp(directory)) return 1;
  for (size_t k = 0; k < sizeof cases / sizeof *cases && !failed; k++) {
    if (run_case(&cases[k], mib, threads, rounds, directory, &error) == HR_OK) continue;
    (void)fprintf(stderr, "bench_load: %s\n", error.message);
    failed = 1;
  }
  (void)hri_dir_remove(directory, NULL);
  return failed;
}
