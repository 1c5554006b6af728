/* What the GEMM library needs of the process before it may be called: the least room under a limit in which a call
 * neither crashes nor fails, found by trying it in child processes (the library has no say in it: it does not report
 * its needs, and where it is refused it may write to memory that it did not get).
 *
 *   bench_pressure [threads...]       teams to try (1 2 4 unless given)
 *
 * One line per instruction level, types and team: of how many shapes, the most that one call needed, and what products
 * keep.
 * Calls: `start` makes the engine, `ask` selects a primitive and reads its scratch, `make` generates its code, `run`
 * runs it (after a first run, in address space and heap as they then are). What src/backend/cpu/gemm_onednn.c proves
 * before each call must be above all of it. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "device/host.h"
#include "backend/cpu/team.h"
#include "backend/cpu/gemm_providers.h"

#if defined(HRI_HAVE_ONEDNN)

enum { STEP = 64 << 10, MOST = 64 << 20 };
typedef enum call { START = 0, ASK, MAKE, RUN, CALLS } call;
static const char *const call_names[CALLS] = {"start", "ask", "make", "run"};

static const int64_t rows[] = {8, 33, 250, 2048};
static const int64_t sides[][2] = {{64, 64}, {257, 96}, {576, 576}, {704, 256}, {768, 3072}, {2304, 768}, {9216, 3072}};
enum { ROWS = sizeof rows / sizeof *rows, SIDES = sizeof sides / sizeof *sides };

/* What a child found: whether the call held, and the growth that stays. */
typedef struct outcome {
  bool held;
  uint64_t kept_space, kept_data, kept_resident;
} outcome;

static uint64_t used(int resource) {
  return resource == RLIMIT_AS ? hri_host_address_space_bytes() : hri_host_data_bytes();
}

/* With room for the zeros behind packed b. */
static void *operand(int64_t a, int64_t b, hri_real type) {
  return calloc((size_t)((a + 256) * (b + 256)), hri_real_bytes(type));
}

/* The calls up to `last` on one shape, the last under the limit. Ends the child. */
static void try_call(hri_isa isa, const hri_gemm_shape *s, call last, int resource, uint64_t room, int out) {
  void *a = operand(s->m, s->kind == HRI_GEMM_FORWARD ? s->k : s->n, s->type),
       *b = operand(s->kind == HRI_GEMM_DW ? s->m : s->n, s->k, s->type),
       *c = operand(s->kind == HRI_GEMM_DW ? s->n : s->m, s->kind == HRI_GEMM_FORWARD ? s->n : s->k, s->out),
       *scratch = NULL;
  hri_onednn *library = NULL;
  hri_onednn_gemm *gemm = NULL;
  hri_onednn_answer answer = {0};
  hri_isa got = hri_cpu_isa_detect(isa);
  outcome o = {0};
  uint64_t space = 0, data = 0, resident = 0;
  hr_status status = got == isa ? hri_team_start((uint32_t)s->threads, NULL) : HR_ERROR_UNSUPPORTED;
  if (!a || !b || !c || status != HR_OK) _exit(3);
  hri_onednn_set_room(0);
  for (int k = START; k <= (int)last && status == HR_OK; k++) {
    struct rlimit limit = {used(resource) + room, RLIM_INFINITY};
    if (k == RUN) scratch = aligned_alloc(64, hri_round_up(answer.scratch_bytes + 1, 64));
    if (k == RUN) status = hri_onednn_gemm_run(library, gemm, a, b, NULL, c, scratch, NULL);
    space = hri_host_address_space_bytes(), data = hri_host_data_bytes(), resident = hri_host_resident_bytes();
    if (k == RUN) limit.rlim_cur = used(resource) + room;
    if (k == (int)last && room < MOST && setrlimit(resource, &limit) != 0) _exit(3);
    if (k == START) status = hri_onednn_create(&library, NULL);
    if (k == ASK) status = hri_onednn_query(library, s, &answer, NULL);
    if (k == ASK && status == HR_OK && !answer.served) _exit(2);
    if (k == MAKE) status = hri_onednn_gemm_create(library, s, &gemm, NULL);
    if (k == RUN) status = hri_onednn_gemm_run(library, gemm, a, b, NULL, c, scratch, NULL);
  }
  (void)setrlimit(resource, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY});
  o = (outcome){status == HR_OK, hri_host_address_space_bytes() - space, hri_host_data_bytes() - data,
                hri_host_resident_bytes() - resident};
  if (write(out, &o, sizeof o) != sizeof o) _exit(3);
  _exit(0);
}

/* False when the library does not serve the shape or the level is not to be had. */
static bool attempt(hri_isa isa, const hri_gemm_shape *s, call last, int resource, uint64_t room, outcome *o) {
  int pipe_ends[2], status;
  pid_t pid;
  memset(o, 0, sizeof *o);
  if (pipe(pipe_ends) != 0) exit(1);
  pid = fork();
  if (pid < 0) exit(1);
  if (pid == 0) {
    (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    if (!freopen("/dev/null", "w", stderr)) _exit(3); /* what the C++ library says at its end */
    (void)alarm(20);
    try_call(isa, s, last, resource, room, pipe_ends[1]);
  }
  (void)close(pipe_ends[1]);
  if (read(pipe_ends[0], o, sizeof *o) != sizeof *o) memset(o, 0, sizeof *o);
  (void)close(pipe_ends[0]);
  while (waitpid(pid, &status, 0) < 0) {}
  return !(WIFEXITED(status) && (WEXITSTATUS(status) == 2 || WEXITSTATUS(status) == 3));
}

/* The least room, to STEP; above it eight more are tried, because a crash need not be the end of crashes. */
static uint64_t least_room(hri_isa isa, const hri_gemm_shape *s, call last, int resource) {
  uint64_t low = 0, high = MOST;
  outcome o;
  (void)attempt(isa, s, last, resource, 0, &o);
  if (o.held) return 0;
  while (high - low > STEP) {
    uint64_t middle = low + (high - low) / 2;
    (void)attempt(isa, s, last, resource, middle, &o);
    if (o.held) high = middle;
    else low = middle;
  }
  for (int k = 1; k <= 8; k++) {
    (void)attempt(isa, s, last, resource, high + (uint64_t)k * STEP * 2, &o);
    if (!o.held) return high + (uint64_t)k * STEP * 2 + STEP;
  }
  return high;
}

typedef struct most {
  uint64_t need[CALLS][2], kept_space, kept_data, kept_resident, space_sum, data_sum;
  uint32_t shapes;
} most;

static void raise_to(uint64_t *most_of, uint64_t value) {
  if (value > *most_of) *most_of = value;
}

static void measure(hri_isa isa, const hri_gemm_shape *s, most *m) {
  outcome o;
  if (!attempt(isa, s, ASK, RLIMIT_AS, MOST, &o)) return;
  for (int k = m->shapes ? ASK : START; k < CALLS; k++) {
    raise_to(&m->need[k][0], least_room(isa, s, (call)k, RLIMIT_AS));
    raise_to(&m->need[k][1], least_room(isa, s, (call)k, RLIMIT_DATA));
  }
  (void)attempt(isa, s, MAKE, RLIMIT_AS, MOST, &o);
  raise_to(&m->kept_space, o.kept_space);
  raise_to(&m->kept_data, o.kept_data);
  raise_to(&m->kept_resident, o.kept_resident);
  m->space_sum += o.kept_space;
  m->data_sum += o.kept_data;
  m->shapes++;
}

static void measure_all(hri_isa isa, hri_real type, bool packed, int threads) {
  most m = {0};
  for (int kind = 0; kind < HRI_GEMM_KIND_COUNT; kind++)
    for (int r = 0; r < ROWS; r++)
      for (int i = 0; i < SIDES; i++) {
        hri_gemm_shape s;
        memset(&s, 0, sizeof s);
        s = (hri_gemm_shape){.kind = (hri_gemm_kind)kind,
                             .type = type,
                             .out = kind == HRI_GEMM_DW ? HRI_REAL_F32 : type,
                             .m = rows[r],
                             .n = sides[i][0],
                             .k = sides[i][1],
                             .accumulate = kind == HRI_GEMM_DW && i % 2,
                             .packed = packed,
                             .threads = threads};
        measure(isa, &s, &m);
      }
  if (!m.shapes) return;
  (void)printf("%-11s %-5s %-6s %2d %6u ", hri_isa_name(isa), type == HRI_REAL_BF16 ? "bf16" : "fp32",
               packed ? "packed" : "plain", threads, m.shapes);
  for (int k = 0; k < CALLS; k++)
    (void)printf("%7.2f %5.2f", (double)m.need[k][0] / (1 << 20), (double)m.need[k][1] / (1 << 20));
  (void)printf("  %7.2f %7.2f %5.2f %5.2f %7.2f\n", (double)m.kept_space / (1 << 20),
               (double)m.space_sum / m.shapes / (1 << 20), (double)m.kept_data / (1 << 20),
               (double)m.data_sum / m.shapes / (1 << 20), (double)m.kept_resident / (1 << 20));
  (void)fflush(stdout);
}

int main(int count, char **words) {
  static const int usual[] = {1, 2, 4};
  (void)printf(
      "%s; MiB of room needed under RLIMIT_AS and RLIMIT_DATA by the call that needed most; kept per product: address space (most, mean), data (most, mean), resident (most)\n",
      hri_onednn_text());
  (void)printf("%-11s %-5s %-6s %2s %6s ", "level", "types", "b", "t", "shapes");
  for (int k = 0; k < CALLS; k++) (void)printf("%13s", call_names[k]);
  (void)printf("  %s\n", "kept");
  for (int level = 0; level < HRI_ISA_COUNT; level++)
    for (int type = 0; type < 2; type++)
      for (int packed = 0; packed < 2; packed++)
        for (int k = 0; k < (count > 1 ? count - 1 : 3); k++)
          measure_all((hri_isa)level, type ? HRI_REAL_BF16 : HRI_REAL_F32, packed,
                      count > 1 ? atoi(words[k + 1]) : usual[k]);
  return 0;
}

#else

int main(void) {
  (void)printf("built without oneDNN: there is nothing to measure\n");
  return 0;
}

#endif
