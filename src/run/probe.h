/* Measuring a device (probe.c): what its parts share. A probe is a job of sample nodes beside a backend; samples are added,
 * laid out in one arena, and launched. */
#ifndef HRI_RUN_PROBE_H
#define HRI_RUN_PROBE_H

#include <headroom/device.h>

#include "backend/backend.h"
#include "plan/cost.h"

enum { HRI_PROBE_SAMPLES = 256, HRI_PROBE_ROUNDS = 64, HRI_PROBE_LEAST_ROUNDS = 3, HRI_PROBE_PRODUCTS_BYTES = 64 };

/* Of the arenas: integers and the control block (zeros, never written, so that every index is valid), what nodes read in
 * fp32 and in bf16 (small random numbers, never written), what they write; and what lies in memory of the host beside a
 * card, the one region of its arena. */
typedef enum hri_probe_region {
  HRI_PROBE_INDICES = 0,
  HRI_PROBE_INPUTS,
  HRI_PROBE_HALF_INPUTS,
  HRI_PROBE_OUTPUTS,
  HRI_PROBE_HOST,
  HRI_PROBE_REGIONS
} hri_probe_region;

typedef struct hri_probe_sample {
  hri_id node;
  double *entry; /* of the rates; NULL: the node overhead */
  bool twice;
  double work;
  double last; /* seconds of its last execution */
  double seconds[HRI_PROBE_ROUNDS];
} hri_probe_sample;

typedef struct hri_probe {
  hr_device_rates *rates;
  hri_backend *backend;
  bool borrows; /* the backend; else it is closed with the probe */
  hri_job job;
  void *base, *run; /* the run with the arena, in which each sample stands twice; the one that is measured, beside it */
  void *launches;   /* a run of nodes that are nothing but overhead; NULL: launches are not measured by programs */
  hri_dtype dtype;  /* of the nodes being added: HRI_F32, HRI_BF16 */
  uint64_t *offsets, region_bytes[HRI_PROBE_REGIONS], region_begin[HRI_PROBE_REGIONS], arena_bytes;
  uint64_t limit_bytes;      /* of the arena */
  const hr_device *expected; /* a device whose rates say what a sample will take; NULL: all samples are measured */
  double limit_seconds;      /* and for how long all of them may run once */
  hri_probe_sample samples[HRI_PROBE_SAMPLES];
  uint32_t sample_of[2 * HRI_PROBE_SAMPLES], at; /* by position of the program; the position that ran last, + 1 */
  uint32_t sample_count, round_count;            /* rounds that count */
  hri_id overhead;                               /* the node with next to no work */
  hri_id shown[HRI_PROBE_REGIONS];               /* tensors of the regions that are filled */
} hri_probe;

/* `borrowed`: the backend of another probe; NULL: the caller opens one. */
hr_status hri_probe_create(hr_device_rates *rates, hri_backend *borrowed, hri_probe **probe, hr_error *error);
void hri_probe_destroy(hri_probe *probe); /* NULL is fine */

/* ---- samples (probe_samples.c) ---- */

/* One for each entry of the tables that the cost model reads. */
void hri_probe_add_samples(hri_probe *probe);
/* A few that take next to no time on anything, to know how long others will take. */
void hri_probe_add_scouts(hri_probe *probe);
/* Products of bf16 in all classes by which a code is chosen. */
void hri_probe_add_contest(hri_probe *probe);

/* ---- running (probe.c) ---- */

/* From nodes to offsets. */
hr_status hri_probe_lay_out(hri_probe *probe, hr_error *error);
/* Prepares a run of samples [begin, end), one after the other, each once or twice. */
hr_status hri_probe_prepare(hri_probe *probe, uint32_t begin, uint32_t end, bool all_twice, void *beside, void **run,
                            hr_error *error);
/* Reserves the memory, with numbers for what is read. */
hr_status hri_probe_fill(hri_probe *probe, hr_error *error);
hr_status hri_probe_launch(hri_probe *probe, void *run, hr_error *error);

double hri_probe_now(void);
double hri_probe_median(double *seconds, uint32_t count); /* sorts them */

/* ---- of a CPU alone (probe_products.c) ---- */

/* Measures each code for products of bf16 that the machine has, where there are several, and names the table that
 * wins. */
hr_status hri_probe_choose_products(hr_device_rates *rates, uint32_t threads, double seconds, uint64_t limit_bytes,
                                    char products[HRI_PROBE_PRODUCTS_BYTES], hr_error *error);
/* How many times as fast as another a code is said to be, of `count` rounds (>= 1) in which both ran side by side: what
 * three of four reached. What others on the machine take falls on one side of a round at a time and may be more than all the
 * difference, so a median can say the opposite of what is so; and what is chosen stays. Sorts them. */
double hri_probe_lead(double *quotients, uint32_t count);

#endif
