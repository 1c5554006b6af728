/* What the matrix-product library answers about scratch and packing, beside what is recorded of it.
 *
 *   bench_onednn record > tests/plan/onednn-2.6.3.txt   answers for layers of real models and for random shapes, teams
 *   of 1 to 16 bench_onednn [count [seed]]                         how many of so many random shapes (10000) the
 *                                                       recorded rule answers as the library does, and how far it is
 *                                                       off where it does not
 *
 * HEADROOM_ISA caps the level, as everywhere. Nothing is computed: the library is only asked. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/gemm_providers.h"
#include "backend/onednn_2_6_3.h"

static const int teams[] = {1, 2, 4, 8, 16};
enum { TEAMS = sizeof teams / sizeof *teams };

#if defined(HRI_HAVE_ONEDNN)
static uint64_t state = 1;
static uint64_t next(uint64_t below) { /* xorshift */
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return (state >> 11) % below;
}

static hri_isa level;
static hri_onednn *onednn;

static void check(hr_status status, const hr_error *error) {
  if (status == HR_OK) return;
  (void)fprintf(stderr, "bench_onednn: %s\n", error->message);
  exit(1);
}

static hri_onednn_answer ask(const hri_gemm_shape *s) {
  hri_onednn_answer answer;
  hr_error error;
  check(hri_onednn_query(onednn, s, &answer, &error), &error);
  return answer;
}

/* Sizes as models have them: multiples of 64, some of 8 or 1; tokens a power of two as often as not. */
static int64_t size(int64_t most) {
  uint64_t kind = next(8);
  int64_t n = kind < 3   ? (int64_t)1 << next(15)
              : kind < 6 ? 64 * (int64_t)(1 + next(256))
              : kind < 7 ? 8 * (int64_t)(1 + next(512))
                         : (int64_t)(1 + next(3000));
  return n > most ? most : n;
}

static hri_gemm_shape random_shape(void) {
  hri_gemm_shape s = {.kind = (hri_gemm_kind)next(HRI_GEMM_KIND_COUNT),
                      .type = next(2) ? HRI_REAL_BF16 : HRI_REAL_F32,
                      .m = size(65536),
                      .n = size(65536),
                      .k = size(65536),
                      .threads = teams[next(TEAMS)]};
  s.out = s.type == HRI_REAL_BF16 && next(2) ? HRI_REAL_BF16 : HRI_REAL_F32;
  s.accumulate = s.out == HRI_REAL_F32 && next(3) == 0;
  s.bias = s.kind == HRI_GEMM_FORWARD && next(3) == 0;
  s.packed = next(4) == 0;
  if (s.kind == HRI_GEMM_DW && next(2)) s.m = 512; /* the pieces that a team is given */
  return s;
}

/* The very products of layers: GPT-2 124M, SmolLM2-135M, Llama 7B and 70B, with vocabularies. */
static const int64_t sides[][2] = {{2304, 768},   {768, 768},    {3072, 768},   {768, 3072},   {50304, 768},
                                   {960, 576},    {576, 576},    {3072, 576},   {576, 1536},   {49152, 576},
                                   {12288, 4096}, {4096, 4096},  {22016, 4096}, {4096, 11008}, {32000, 4096},
                                   {10240, 8192}, {57344, 8192}, {8192, 28672}};
static const int64_t tokens[] = {16, 512, 1024, 2048, 8192};

static void put(const hri_gemm_shape *s) {
  hri_onednn_answer a = ask(s);
  (void)printf("%d %d %d %d%d%d %d %lld %lld %lld %d %llu %llu\n", (int)s->kind, (int)s->type, (int)s->out, s->bias,
               s->accumulate, s->packed, s->threads, (long long)s->m, (long long)s->n, (long long)s->k, a.served,
               (unsigned long long)(a.served ? a.scratch_bytes : 0),
               (unsigned long long)(a.served ? a.packing.bytes : 0));
}

static void put_layers(void) {
  for (size_t side = 0; side < sizeof sides / sizeof *sides; side++)
    for (size_t m = 0; m < sizeof tokens / sizeof *tokens; m++)
      for (int kind = 0; kind < HRI_GEMM_KIND_COUNT; kind++) {
        hri_gemm_shape s = {.kind = (hri_gemm_kind)kind,
                            .type = next(2) ? HRI_REAL_BF16 : HRI_REAL_F32,
                            .m = tokens[m],
                            .n = sides[side][0],
                            .k = sides[side][1],
                            .threads = teams[next(TEAMS)]};
        s.out = kind == HRI_GEMM_DW ? HRI_REAL_F32 : s.type;
        s.accumulate = kind == HRI_GEMM_DW && next(2);
        put(&s);
      }
}

static void record(void) {
  (void)printf("# %s, %s: what it answers for a matrix product. Made by ./dev bench onednn record; read by tests.\n",
               hri_onednn_text(), hri_isa_name(level));
  (void)printf(
      "# kind (0 forward, 1 dx, 2 dw), type and out (0 fp32, 1 bf16), bias accumulate packed, team, M, N, K: served, scratch bytes, packed bytes\n");
  put_layers();
  for (int i = 0; i < 900; i++) {
    hri_gemm_shape s = random_shape();
    put(&s);
  }
}

static void compare(int64_t count) {
  int64_t same = 0, served = 0, told = 0;
  double worst = 0;
  for (int64_t i = 0; i < count; i++) {
    hri_gemm_shape s = random_shape();
    hri_onednn_answer theirs = ask(&s), ours;
    hri_onednn_recorded(level, &s, &ours);
    served += theirs.served;
    if (theirs.served == ours.served &&
        (!ours.served ||
         (theirs.scratch_bytes == ours.scratch_bytes &&
          memcmp(&theirs.packing, &ours.packing, sizeof ours.packing) == 0 && strcmp(theirs.name, ours.name) == 0))) {
      same++;
      continue;
    }
    if (theirs.served && ours.served && theirs.scratch_bytes)
      worst = fmax(worst, fabs((double)ours.scratch_bytes / (double)theirs.scratch_bytes - 1));
    if (told++ < 20)
      (void)printf(
          "kind %d types %d %d bias %d accumulate %d packed %d team %d, %lld x %lld x %lld: %d %s %llu, packed %llu; recorded %d %s %llu, packed %llu\n",
          (int)s.kind, (int)s.type, (int)s.out, s.bias, s.accumulate, s.packed, s.threads, (long long)s.m,
          (long long)s.n, (long long)s.k, theirs.served, theirs.name, (unsigned long long)theirs.scratch_bytes,
          (unsigned long long)theirs.packing.bytes, ours.served, ours.name, (unsigned long long)ours.scratch_bytes,
          (unsigned long long)ours.packing.bytes);
  }
  (void)printf(
      "%s, %s: %lld of %lld answers are the recorded ones (%lld products are served); the scratch of the others is at most %.2f %% off\n",
      hri_onednn_text(), hri_isa_name(level), (long long)same, (long long)count, (long long)served, 100 * worst);
}

int main(int argc, char **argv) {
  hr_error error;
  check(hri_cpu_isa_choose(getenv("HEADROOM_ISA"), &level, &error), &error);
  check(hri_onednn_create(&onednn, &error), &error);
  if (argc > 1 && strcmp(argv[1], "record") == 0) {
    record();
  } else {
    if (argc > 2) state = strtoull(argv[2], NULL, 10) * 2654435761u + 1;
    compare(argc > 1 ? strtoll(argv[1], NULL, 10) : 10000);
  }
  hri_onednn_destroy(onednn);
  return 0;
}
#else
int main(void) {
  (void)teams;
  (void)printf("bench_onednn: built without the library\n");
  return 1;
}
#endif
