/* Which code computes products of bf16 on a CPU that has several: each of them runs the same products, interleaved round by
 * round, and the rates of the device are then measured with those that won (hri_gemm_table_fastest). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu.h"
#include "ops/demand.h"
#include "run/probe.h"

typedef hri_probe probe;
typedef hri_probe_sample sample;

enum { LEAST_ROUNDS = 5 }; /* four of which must agree for another code than the shipped one */

/* The class of a sample, by the very shape that is computed. */
static void class_of(const probe *p, const sample *s, uint32_t *row, uint32_t *width) {
  hri_gemm_shape shape = hri_demand_product(&p->job, &p->job.nodes.items[s->node], p->backend->team);
  *row = hri_gemm_row_of(&shape);
  *width = hri_gemm_width_of(&shape);
}

/* Sums of the logarithms of some quotient of each sample, by class. */
typedef struct class_logs {
  double sums[HRI_GEMM_ROW_COUNT][HRI_GEMM_WIDTH_COUNT];
  uint32_t counts[HRI_GEMM_ROW_COUNT][HRI_GEMM_WIDTH_COUNT];
} class_logs;

static void add_log(class_logs *logs, const probe *p, const sample *s, double quotient) {
  uint32_t row, width;
  if (!(quotient > 0) || !isfinite(quotient)) return;
  class_of(p, s, &row, &width);
  logs->sums[row][width] += log(quotient);
  logs->counts[row][width]++;
}

/* The geometric mean; 0: there was nothing. */
static double mean_of(const class_logs *logs, uint32_t row, uint32_t width) {
  const uint32_t count = logs->counts[row][width];
  return count ? exp(logs->sums[row][width] / count) : 0;
}

/* The rates of a code's samples, of each class: the geometric mean of their medians. */
static class_logs rates_of(const probe *p) {
  class_logs logs = {0};
  for (uint32_t k = 0; k < p->sample_count; k++) {
    double seconds[HRI_PROBE_ROUNDS];
    memcpy(seconds, p->samples[k].seconds, sizeof seconds);
    add_log(&logs, p, &p->samples[k], p->samples[k].work / hri_probe_median(seconds, p->round_count));
  }
  return logs;
}

/* How many times as fast as `other` in one round. */
static class_logs lead_of(const probe *p, const probe *other, uint32_t round) {
  class_logs logs = {0};
  for (uint32_t k = 0; k < p->sample_count; k++)
    add_log(&logs, p, &p->samples[k], other->samples[k].seconds[round] / p->samples[k].seconds[round]);
  return logs;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

double hri_probe_lead(double *quotients, uint32_t count) {
  qsort(quotients, count, sizeof *quotients, ascending);
  return quotients[count / 4];
}

/* The shipped code of each class has the rate it had; another has what it was beside that in three of four rounds. */
static void file_codes(probe *const contenders[], const hri_gemm_code codes[], uint32_t count,
                       const hri_gemm_table *shipped, hr_code_rates *rates) {
  for (uint32_t base = 0; base < count; base++) {
    const probe *first = contenders[base];
    const class_logs own = rates_of(first);
    for (uint32_t k = 0; k < count; k++) {
      static const class_logs none = {0};
      class_logs leads[HRI_PROBE_ROUNDS];
      for (uint32_t r = 0; r < first->round_count; r++) leads[r] = k == base ? none : lead_of(contenders[k], first, r);
      for (uint32_t row = 0; row < HRI_GEMM_ROW_COUNT; row++)
        for (uint32_t width = 0; width < HRI_GEMM_WIDTH_COUNT; width++) {
          double quotients[HRI_PROBE_ROUNDS];
          if (shipped->code[row][width] != codes[base]) continue;
          for (uint32_t r = 0; r < first->round_count; r++) quotients[r] = mean_of(&leads[r], row, width);
          rates->flops[codes[k]][row][width] =
              mean_of(&own, row, width) * (k == base ? 1 : hri_probe_lead(quotients, first->round_count));
        }
    }
  }
}

/* A contender is a probe of its own, whose backend computes all products by one code. */
static hr_status open_contender(probe *p, const char *products, uint32_t threads, uint64_t limit_bytes,
                                hr_error *error) {
  hr_device device;
  hri_device_cpu(&device);
  (void)snprintf(device.products, sizeof device.products, "%s", products);
  p->limit_bytes = limit_bytes;
  HRI_TRY(hri_backend_open(&device, threads, &p->backend, error));
  hri_probe_add_contest(p);
  HRI_TRY(hri_probe_lay_out(p, error));
  HRI_TRY(hri_probe_prepare(p, 0, p->sample_count, true, NULL, &p->base, error));
  return hri_probe_fill(p, error);
}

static hr_status contend(probe *contenders[], uint32_t count, double limit, hr_error *error) {
  double begin = hri_probe_now(), round = 0;
  uint32_t rounds = 0;
  for (uint32_t k = 0; k < count; k++)
    HRI_TRY(hri_probe_launch(contenders[k], contenders[k]->base, error)); /* not counted */
  while (rounds < HRI_PROBE_ROUNDS && (rounds < LEAST_ROUNDS || hri_probe_now() - begin + round < limit)) {
    double start = hri_probe_now();
    for (uint32_t k = 0; k < count; k++) {
      probe *p = contenders[(k + rounds) % count]; /* nobody always comes first */
      HRI_TRY(hri_probe_launch(p, p->base, error));
      for (uint32_t i = 0; i < p->sample_count; i++) p->samples[i].seconds[rounds] = p->samples[i].last;
      p->round_count = rounds + 1;
    }
    rounds++;
    round = hri_probe_now() - start;
  }
  return HR_OK;
}

/* The level of this machine, and what its shipped table is. */
static hr_status shipped_products(uint32_t threads, hri_gemm_machine *machine, hr_error *error) {
  hri_backend *backend;
  hr_device device;
  bool known;
  hri_device_cpu(&device);
  (void)snprintf(device.products, sizeof device.products, "shipped");
  HRI_TRY(hri_backend_open(&device, threads, &backend, error));
  known = hri_isa_parse(backend->instruction_set, &machine->level) &&
          hri_gemm_parse(backend->libraries, machine->level, &machine->table);
  hri_backend_close(backend);
  return known ? HR_OK : hri_fail(error, HR_ERROR_INTERNAL, "the products of this machine have no name");
}

/* Measures each code that the machine has, where there are several, and names the table that wins. */
hr_status hri_probe_choose_products(hr_device_rates *rates, uint32_t threads, double seconds, uint64_t limit_bytes,
                                    char products[HRI_PROBE_PRODUCTS_BYTES], hr_error *error) {
  probe *contenders[HRI_GEMM_CODE_COUNT] = {NULL};
  hri_gemm_code codes[HRI_GEMM_CODE_COUNT];
  hri_gemm_machine machine = {0};
  uint32_t count = 0;
  hr_status status;
  HRI_TRY(shipped_products(threads, &machine, error));
  for (int code = 0; code < HRI_GEMM_CODE_COUNT; code++)
    if (hri_gemm_has(machine.level, (hri_gemm_code)code, 1)) codes[count++] = (hri_gemm_code)code;
  if (count == 1) return HR_OK;
  for (uint32_t k = 0; k < count; k++) {
    hri_gemm_machine one = {machine.level, machine.pairs, hri_gemm_table_by(machine.level, codes[k])};
    HRI_TRY_OUT(hri_probe_create(rates, NULL, &contenders[k], error));
    HRI_TRY_OUT(open_contender(contenders[k], hri_gemm_text(&one, products), threads, limit_bytes / count, error));
  }
  HRI_TRY_OUT(contend(contenders, count, seconds, error));
  file_codes(contenders, codes, count, &machine.table, &rates->codes);
  machine.table = hri_gemm_table_fastest(machine.level, &machine.table, &rates->codes);
  (void)hri_gemm_text(&machine, products);
out:
  for (uint32_t k = 0; k < count; k++) hri_probe_destroy(contenders[k]);
  return status;
}
