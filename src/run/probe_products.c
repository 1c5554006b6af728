/* Which code computes products of bf16 on a CPU that has several: each of them runs the same products, interleaved round by
 * round, and the rates of the device are then measured with those that won (hri_gemm_table_fastest). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "device/cpu.h"
#include "ops/demand.h"
#include "run/probe.h"

typedef hri_probe probe;
typedef hri_probe_sample sample;

/* The class of a sample, by the very shape that is computed. */
static void class_of(const probe *p, const sample *s, uint32_t *row, uint32_t *width) {
  hri_gemm_shape shape = hri_demand_product(&p->job, &p->job.nodes.items[s->node], p->backend->team);
  *row = hri_gemm_row_of(&shape);
  *width = hri_gemm_width_of(&shape);
}

/* The geometric mean of the rates of the samples of each class. */
static void file_codes(probe *p, hri_gemm_code code, hr_code_rates *rates) {
  double sums[HRI_GEMM_ROW_COUNT][HRI_GEMM_WIDTH_COUNT] = {{0}};
  uint32_t counts[HRI_GEMM_ROW_COUNT][HRI_GEMM_WIDTH_COUNT] = {{0}}, row, width;
  for (uint32_t k = 0; k < p->sample_count; k++) {
    double seconds = hri_probe_median(p->samples[k].seconds, p->round_count);
    class_of(p, &p->samples[k], &row, &width);
    if (!(seconds > 0)) continue;
    sums[row][width] += log(p->samples[k].work / seconds);
    counts[row][width]++;
  }
  for (row = 0; row < HRI_GEMM_ROW_COUNT; row++)
    for (width = 0; width < HRI_GEMM_WIDTH_COUNT; width++)
      if (counts[row][width]) rates->flops[code][row][width] = exp(sums[row][width] / counts[row][width]);
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
  while (rounds < HRI_PROBE_ROUNDS && (rounds < HRI_PROBE_LEAST_ROUNDS || hri_probe_now() - begin + round < limit)) {
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
  for (uint32_t k = 0; k < count; k++) file_codes(contenders[k], codes[k], &rates->codes);
  machine.table = hri_gemm_table_fastest(machine.level, &machine.table, &rates->codes);
  (void)hri_gemm_text(&machine, products);
out:
  for (uint32_t k = 0; k < count; k++) hri_probe_destroy(contenders[k]);
  return status;
}
