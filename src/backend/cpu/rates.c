/* What a probe of this machine measured, in a file per processor, instruction set, team and code of the matrix products
 * (hri_gemm_text); and in another, named "... seen", what training runs saw without one, which counts where there is no
 * probe, and as long as the same is assumed of the processor as when it was seen. Both are caches: whatever is wrong with a file (missing, damaged, of another machine or of other products),
 * planning goes on with assumed figures, which every plan says. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/isa.h"
#include "backend/cpu/stored.h"
#include "base/file.h"
#include "device/cpu.h"
#include "program/rates.h"

/* Of what was seen another: its ratios hold for what is assumed (plan/assumed.c), so it counts with that. */
enum { SCHEMA = 3, SEEN_SCHEMA = 5 };

/* What a probe holds for: all of it must agree. */
typedef struct identity {
  char cpu[HRI_CPU_IDENTITY_BYTES];
  hri_gemm_machine machine;
  const char *instruction_set;
  char libraries[HRI_GEMM_TEXT_BYTES];
  uint32_t threads;
} identity;

static hr_status identify(uint32_t threads, identity *id, hr_error *error) {
  hr_products products;
  id->machine.pairs = hri_cpu_pairs();
  HRI_TRY(hri_cpu_isa_choose(getenv("HEADROOM_ISA"), &id->machine.level, error));
  HRI_TRY(hri_products_find("", &id->machine, &products, error));
  hri_cpu_identity(id->cpu);
  id->instruction_set = hri_isa_name(id->machine.level);
  memcpy(id->libraries, products.text, sizeof id->libraries);
  id->threads = threads;
  return HR_OK;
}

/* ---- the file of rates ---- */

static hr_status rates_path(const identity *id, bool seen, char path[HRI_STORED_PATH_BYTES], hr_error *error) {
  char name[HRI_STORED_NAME_BYTES];
  (void)snprintf(name, sizeof name, "cpu %s %s %u threads %s%s", id->cpu, id->instruction_set, id->threads,
                 id->libraries, seen ? " seen" : "");
  return hri_stored_path(name, path, error);
}

/* ---- writing ---- */

static void put_rates(hri_json_writer *w, const identity *id, const hr_device_rates *r) {
  hri_json_begin_object(w);
  hri_json_field_u64(w, "schema_version", r->seen ? SEEN_SCHEMA : SCHEMA);
  hri_json_field_string(w, "cpu", id->cpu);
  hri_json_field_string(w, "instruction_set", r->instruction_set);
  hri_json_field_string(w, "libraries", r->libraries);
  hri_json_field_u64(w, "threads", r->threads);
  hri_json_field_string(w, "date", r->date);
  if (r->seen) {
    hri_stored_put_row(w, "seconds", r->taken, HR_RATE_ENTRIES);
    hri_stored_put_row(w, "assumed_seconds", r->assumed, HR_RATE_ENTRIES);
    hri_json_key(w, "assumed_of");
    hri_json_begin_object(w);
    hri_json_field_double(w, "flops_fp32", r->assumed_of.flops_fp32);
    hri_json_field_double(w, "flops_bf16", r->assumed_of.flops_bf16);
    hri_json_field_double(w, "memory_bytes_per_second", r->assumed_of.memory_bytes_per_second);
    hri_json_field_double(w, "node_seconds", r->assumed_of.node_seconds);
    hri_json_end_object(w);
  } else hri_json_field_u64(w, "fixed_bytes", r->fixed_bytes);
  hri_json_field_double(w, "node_seconds", r->node_seconds);
  hri_stored_put_tables(w, r);
  hri_json_end_object(w);
}

/* ---- reading ---- */

static hr_status get_seen(const hri_json *root, const hr_assumed_figures *figures, hr_device_rates *r,
                          hr_error *error) {
  hr_assumed_figures *f = &r->assumed_of;
  hri_json of;
  HRI_TRY(hri_stored_row(root, "seconds", r->taken, HR_RATE_ENTRIES, error));
  HRI_TRY(hri_stored_row(root, "assumed_seconds", r->assumed, HR_RATE_ENTRIES, error));
  for (size_t k = 0; k < HR_RATE_ENTRIES; k++)
    if (!hri_seen_pair_holds(r->taken[k], r->assumed[k]))
      return hri_json_fail(root, error, "seconds from 1e-4 to 1e4 times assumed_seconds");
  HRI_TRY(hri_json_get_object(root, "assumed_of", &of, error));
  HRI_TRY(hri_json_get_double(&of, "flops_fp32", &f->flops_fp32, error));
  HRI_TRY(hri_json_get_double(&of, "flops_bf16", &f->flops_bf16, error));
  HRI_TRY(hri_json_get_double(&of, "memory_bytes_per_second", &f->memory_bytes_per_second, error));
  HRI_TRY(hri_json_get_double(&of, "node_seconds", &f->node_seconds, error));
  return hri_same_figures(f, figures) ? HR_OK : hri_json_fail(&of, error, "what is assumed now");
}

/* INPUT unless the file is whole and of this very machine, team, instruction set and products; what was seen, beside the
 * same `figures`. These NULL: a probe's. */
static hr_status get_rates(const hri_json *root, const identity *id, const hr_assumed_figures *figures,
                           hr_device_rates *r, hr_error *error) {
  const bool seen = figures != NULL;
  const uint64_t schema = seen ? SEEN_SCHEMA : SCHEMA;
  uint64_t number;
  memset(r, 0, sizeof *r);
  r->seen = seen;
  HRI_TRY(hri_json_get_u64(root, "schema_version", schema, schema, &number, error));
  HRI_TRY(hri_json_get_u64(root, "threads", id->threads, id->threads, &number, error));
  HRI_TRY(hri_stored_text(root, "cpu", id->cpu, NULL, 0, error));
  HRI_TRY(hri_stored_text(root, "date", NULL, r->date, sizeof r->date, error));
  HRI_TRY(hri_stored_text(root, "instruction_set", id->instruction_set, r->instruction_set, sizeof r->instruction_set,
                          error));
  HRI_TRY(hri_stored_text(root, "libraries", id->libraries, r->libraries, sizeof r->libraries, error));
  if (seen) HRI_TRY(get_seen(root, figures, r, error));
  else HRI_TRY(hri_json_get_u64(root, "fixed_bytes", 1u << 20, UINT64_C(1) << 34, &r->fixed_bytes, error));
  HRI_TRY(hri_stored_tables(root, r, error));
  r->threads = id->threads;
  return HR_OK;
}

static bool read_rates(const identity *id, const hr_assumed_figures *figures, hr_device_rates *rates) {
  hri_json root = {0};
  char path[HRI_STORED_PATH_BYTES];
  bool found = rates_path(id, figures != NULL, path, NULL) == HR_OK && hri_path_exists(path) &&
               hri_json_read(path, HRI_STORED_LIMIT, &root, NULL) == HR_OK &&
               get_rates(&root, id, figures, rates, NULL) == HR_OK;
  hri_json_deinit(&root);
  return found;
}

static double largest(const double *values, size_t count) {
  double most = 0;
  for (size_t k = 0; k < count; k++) most = fmax(most, values[k]);
  return most;
}

/* The short figures of the device list follow the tables. */
static void take_over(hr_device *device, const hr_device_rates *r) {
  enum { PRODUCTS = HR_PRODUCT_KINDS * HR_PRODUCT_SIDES * HR_PRODUCT_SIZES };
  double flops = largest(&r->tables[0].product_flops[0][0][0], PRODUCTS),
         flops_bf16 = largest(&r->tables[1].product_flops[0][0][0], PRODUCTS);
  double bytes = r->tables[0].stream_bytes[HR_STREAM_COPY][HR_STREAM_SIZES - 1];
  device->rates = *r;
  device->fixed_bytes = r->fixed_bytes;
  device->fixed_measured = true;
  if (flops > 0) device->flops_fp32 = flops, device->rated_threads = r->threads;
  if (flops_bf16 > 0) device->flops_bf16 = flops_bf16;
  if (bytes > 0) device->memory_bytes_per_second = bytes;
  (void)snprintf(device->source, sizeof device->source,
                 "measured on this machine by `headroom devices --probe`, %u threads", r->threads);
  (void)snprintf(device->date, sizeof device->date, "%s", r->date);
}

bool hri_cpu_rates_load(hr_device *device, uint32_t threads) {
  hr_device_rates rates;
  hr_device assumed = *device;
  hr_assumed_figures figures;
  identity id;
  if (identify(threads, &id, NULL) != HR_OK) return false;
  if (read_rates(&id, NULL, &rates)) {
    take_over(device, &rates);
    return true;
  }
  hri_cpu_assume(&assumed);
  figures = hri_assumed_figures(&assumed, threads);
  if (!read_rates(&id, &figures, &rates)) return false;
  *device = assumed;
  device->rates = rates;
  return true;
}

/* ---- storing ---- */

/* What was seen before stays where nothing new was seen, if the same was assumed. */
static void add_before(const identity *id, hr_device_rates *rates) {
  hr_device_rates before;
  double *now = (double *)rates->tables;
  if (!read_rates(id, &rates->assumed_of, &before)) return;
  for (size_t k = 0; k < HR_RATE_ENTRIES; k++) {
    if (rates->assumed[k] > 0) continue;
    now[k] = ((const double *)before.tables)[k];
    rates->taken[k] = before.taken[k];
    rates->assumed[k] = before.assumed[k];
  }
}

hr_status hri_cpu_rates_store(const hr_device_rates *rates, char *out, uint32_t out_bytes, hr_error *error) {
  hri_text text = {0};
  hri_json_writer writer = hri_json_writer_init(&text, 2);
  char path[HRI_STORED_PATH_BYTES];
  hr_device_rates all;
  identity id;
  hr_status status;
  HRI_TRY(identify(rates->threads, &id, error));
  HRI_TRY(hri_products_store(id.machine, rates, error));
  HRI_TRY(identify(rates->threads, &id, error)); /* the choice may be another now */
  HRI_TRY(rates_path(&id, rates->seen, path, error));
  if (out && out_bytes) (void)snprintf(out, out_bytes, "%s", path);
  all = *rates;
  if (all.seen) add_before(&id, &all);
  put_rates(&writer, &id, &all);
  hri_text_add(&text, "\n");
  status = hri_stored_write(path, &text, error);
  hri_text_deinit(&text);
  return status;
}
