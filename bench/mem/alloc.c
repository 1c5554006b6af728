/* What a request costs when the cache serves it: a pair of malloc and free with 10,000 live blocks.
 *
 *   step       the usual case: training steps that repeat their sizes. 8,000 blocks live on (weights, optimizer state);
 *              200 layers keep 10 activations each from their forward to their backward pass and use 4 temporaries in
 *              either. Time of a step by the number of its pairs
 *   pair       a hard case: one random size is requested and freed at once; each pair is timed alone, by the cycle
 *              counter, which forbids any overlap with the next
 *   32 pairs   the same, 32 between two readings of the counter
 *   churn      the hardest: a random live block is freed and another size requested in its place; almost nothing that
 *              this touches is in the nearer caches
 *   ...history the same with events recorded in memory
 *   bulk       churn without timing of single pairs: mean over all, which no timer disturbs
 *
 * Sizes are those of a training step: 30 % scalars and norms up to 4 KiB, 40 % up to 1 MiB, 30 % up to 64 MiB, drawn
 * from 400 different ones, as tensors repeat their shapes. The cost of reading the timer twice with nothing between is
 * measured the same way and subtracted; it is printed.
 *
 * bench_alloc [PAIRS] */
#include <headroom/alloc.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__)
#include <x86intrin.h>
static uint64_t ticks(void) {
  unsigned core;
  _mm_lfence();
  return __rdtscp(&core);
}
#else
static uint64_t ticks(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
#endif

enum { LIVE = 10000, SIZES = 400 };

static uint64_t random_state = 88172645463325252u;
static uint64_t draw(uint64_t below) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (random_state >> 11) % below;
}

static uint64_t sizes[SIZES];

static void choose_sizes(void) {
  for (int i = 0; i < SIZES; i++) {
    const uint64_t kind = draw(10);
    if (kind < 3) sizes[i] = 1 + draw(4096);
    else if (kind < 7) sizes[i] = 4096 + draw((1 << 20) - 4096);
    else sizes[i] = (1 << 20) + draw(63 << 20);
  }
}

static double ns_per_tick(void) {
  struct timespec a, b;
  clock_gettime(CLOCK_MONOTONIC, &a);
  const uint64_t from = ticks();
  do clock_gettime(CLOCK_MONOTONIC, &b);
  while ((b.tv_sec - a.tv_sec) * 1000000000LL + b.tv_nsec - a.tv_nsec < 50000000);
  return (double)((b.tv_sec - a.tv_sec) * 1000000000LL + b.tv_nsec - a.tv_nsec) / (double)(ticks() - from);
}

static int by_value(const void *a, const void *b) {
  const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return x < y ? -1 : x > y;
}

typedef struct bench {
  hr_alloc *alloc;
  hr_alloc_hooks hooks;
  uint64_t live[LIVE];
  uint32_t *times;
  size_t count;
  double ns, overhead_ns;
} bench;

static void must(hr_status status, const hr_error *error) {
  if (status == HR_OK) return;
  fprintf(stderr, "%s\n", error->message);
  exit(1);
}

static uint64_t get(bench *b) {
  hr_error error;
  uint64_t address = 0;
  must(hr_alloc_malloc(b->alloc, sizes[draw(SIZES)], 0, &address, &error), &error);
  return address;
}

static void put(bench *b, uint64_t address) {
  hr_error error;
  must(hr_alloc_free(b->alloc, address, &error), &error);
}

static void churn(bench *b, size_t count) {
  for (size_t i = 0; i < count; i++) {
    uint64_t *slot = &b->live[draw(LIVE)];
    put(b, *slot);
    *slot = get(b);
  }
}

static void report(const bench *b, const char *name) {
  qsort(b->times, b->count, sizeof *b->times, by_value);
  const double p50 = b->times[b->count / 2] * b->ns - b->overhead_ns,
               p99 = b->times[b->count / 100 * 99] * b->ns - b->overhead_ns;
  printf("%-16s p50 %6.1f ns   p99 %6.1f ns\n", name, p50, p99);
}

/* What is timed must not fail; the program says so at its end. */
static uint64_t failures;
static void count(hr_status status) { failures += status != HR_OK; }

static void time_pairs(bench *b, bool in_place, const char *name) {
  for (size_t i = 0; i < b->count; i++) {
    const uint64_t bytes = sizes[draw(SIZES)];
    uint64_t *slot = &b->live[draw(LIVE)], address = 0;
    const uint64_t from = ticks();
    if (in_place) count(hr_alloc_free(b->alloc, *slot, NULL));
    count(hr_alloc_malloc(b->alloc, bytes, 0, &address, NULL));
    if (!in_place) count(hr_alloc_free(b->alloc, address, NULL));
    b->times[i] = (uint32_t)(ticks() - from);
    if (in_place) *slot = address;
  }
  report(b, name);
}

/* Groups of 32 pairs between two readings: what a pair costs where the processor can overlap it with the next. */
static void time_groups(bench *b, const char *name) {
  enum { GROUP = 32 };
  const size_t groups = b->count / GROUP;
  for (size_t g = 0; g < groups; g++) {
    uint64_t bytes[GROUP];
    for (int i = 0; i < GROUP; i++) bytes[i] = sizes[draw(SIZES)];
    const uint64_t from = ticks();
    for (int i = 0; i < GROUP; i++) {
      uint64_t address = 0;
      count(hr_alloc_malloc(b->alloc, bytes[i], 0, &address, NULL));
      count(hr_alloc_free(b->alloc, address, NULL));
    }
    b->times[g] = (uint32_t)(ticks() - from);
  }
  qsort(b->times, groups, sizeof *b->times, by_value);
  printf("%-16s p50 %6.1f ns   p10 %6.1f ns\n", name, (b->times[groups / 2] * b->ns - b->overhead_ns) / GROUP,
         (b->times[groups / 10] * b->ns - b->overhead_ns) / GROUP);
}

/* ---- training steps ---- */

enum { LASTING = 8000, LAYERS = 200, KEPT = 10, TEMPORARIES = 4, STEP_PAIRS = LAYERS * (KEPT + 2 * TEMPORARIES) };

static uint64_t take(bench *b, uint64_t bytes) {
  uint64_t address = 0;
  count(hr_alloc_malloc(b->alloc, bytes, 0, &address, NULL));
  return address;
}

static void use_temporaries(bench *b, int layer, int pass) {
  for (int i = 0; i < TEMPORARIES; i++)
    count(hr_alloc_free(b->alloc, take(b, sizes[(layer % 4 * 20 + pass * 10 + i) % SIZES]), NULL));
}

static void train_step(bench *b) {
  uint64_t *kept = &b->live[LASTING];
  for (int layer = 0; layer < LAYERS; layer++) {
    use_temporaries(b, layer, 0);
    for (int i = 0; i < KEPT; i++) kept[layer * KEPT + i] = take(b, sizes[100 + i]);
  }
  for (int layer = LAYERS - 1; layer >= 0; layer--) {
    use_temporaries(b, layer, 1);
    for (int i = 0; i < KEPT; i++) count(hr_alloc_free(b->alloc, kept[layer * KEPT + i], NULL));
  }
}

static void time_steps(bench *b, const char *name) {
  const size_t steps = b->count / STEP_PAIRS + 10;
  for (size_t i = 0; i < steps; i++) {
    const uint64_t from = ticks();
    train_step(b);
    b->times[i] = (uint32_t)(ticks() - from);
  }
  qsort(b->times, steps, sizeof *b->times, by_value);
  printf("%-16s p50 %6.1f ns   p10 %6.1f ns\n", name, b->times[steps / 2] * b->ns / STEP_PAIRS,
         b->times[steps / 10] * b->ns / STEP_PAIRS);
}

/* ---- all ---- */

static void time_bulk(bench *b, const char *name) {
  const uint64_t from = ticks();
  churn(b, b->count);
  printf("%-16s mean %5.1f ns, with drawing of random numbers\n", name,
         (double)(ticks() - from) * b->ns / (double)b->count);
}

static void measure_overhead(bench *b) {
  for (size_t i = 0; i < b->count; i++) {
    const uint64_t from = ticks();
    b->times[i] = (uint32_t)(ticks() - from);
  }
  qsort(b->times, b->count, sizeof *b->times, by_value);
  b->overhead_ns = b->times[b->count / 2] * b->ns;
  printf("reading the timer twice: %.1f ns (subtracted below)\n", b->overhead_ns);
}

static void begin(bench *b, bool expandable) {
  hr_error error;
  hr_alloc_config config = hr_alloc_config_default();
  config.expandable_segments = expandable;
  must(hr_alloc_fake_hooks(UINT64_C(1) << 42, &b->hooks, &error), &error);
  must(hr_alloc_create(&b->hooks, &config, &b->alloc, &error), &error);
}

static void record(bench *b) {
  hr_error error;
  must(hr_alloc_history_start(b->alloc, &(hr_alloc_history_options){.event_limit = 1000000}, &error), &error);
}

static void end(bench *b) {
  hr_error error;
  must(hr_alloc_check(b->alloc, &error), &error);
  hr_alloc_destroy(b->alloc);
  hr_alloc_hooks_destroy(&b->hooks);
}

static void run_steps(bench *b, bool expandable) {
  begin(b, expandable);
  for (int i = 0; i < LASTING; i++) b->live[i] = get(b);
  time_steps(b, "  step");
  record(b);
  for (int i = 0; i < 1000000 / STEP_PAIRS; i++) train_step(b); /* takes the pages of the ring */
  time_steps(b, "  step, history");
  end(b);
}

static void run(bench *b, bool expandable) {
  begin(b, expandable);
  for (int i = 0; i < LIVE; i++) b->live[i] = get(b);
  churn(b, 20 * LIVE);
  time_pairs(b, false, "  pair");
  time_groups(b, "  32 pairs, each");
  time_pairs(b, true, "  churn");
  time_bulk(b, "  bulk");
  record(b);
  churn(b, 1000000);
  time_pairs(b, false, "  pair, history");
  time_groups(b, "  32, history");
  time_pairs(b, true, "  churn, history");
  time_bulk(b, "  bulk, history");
  end(b);
}

int main(int argc, char **argv) {
  static bench b;
  b.count = argc > 1 ? strtoull(argv[1], NULL, 10) : 2000000;
  if (b.count < 100 || b.count > 100000000 || (b.times = malloc(b.count * sizeof *b.times)) == NULL) return 2;
  choose_sizes();
  b.ns = ns_per_tick();
  measure_overhead(&b);
  for (int expandable = 0; expandable < 2; expandable++) {
    printf("%s\n", expandable ? "expandable segments" : "default settings");
    run_steps(&b, expandable);
    run(&b, expandable);
  }
  free(b.times);
  if (failures) fprintf(stderr, "%llu calls failed\n", (unsigned long long)failures);
  return failures > 0;
}
