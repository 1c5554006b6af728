/* Which code computes products of bf16, as a probe measured it: a file per processor and instruction set, for all
 * teams, since the team must not decide bits. It holds the rate of each code in each class and the table that follows
 * from them (hri_gemm_table_fastest), which a reader makes again and compares, so that a choice never stands there
 * without its reason. What runs is decided by this file and the shipped table alone. */
#include <stdio.h>
#include <string.h>

#include "backend/cpu/stored.h"
#include "base/file.h"
#include "device/cpu.h"
#include "formats/digest.h"

enum { SCHEMA = 1 };

static hr_status file_path(hri_isa level, char cpu[HRI_CPU_IDENTITY_BYTES], char path[HRI_STORED_PATH_BYTES],
                           hr_error *error) {
  char name[HRI_STORED_NAME_BYTES];
  hri_cpu_identity(cpu);
  (void)snprintf(name, sizeof name, "products %s %s", cpu, hri_isa_name(level));
  return hri_stored_path(name, path, error);
}

/* ---- writing ---- */

static void put_codes(hri_json_writer *w, const hr_device_rates *r) {
  hri_json_key(w, "flops_per_second");
  hri_json_begin_object(w);
  for (int code = 0; code < HRI_GEMM_CODE_COUNT; code++) {
    hri_json_key(w, hri_gemm_code_name((hri_gemm_code)code));
    hri_json_begin_object(w);
    for (uint32_t row = 0; row < HRI_GEMM_ROW_COUNT; row++)
      hri_stored_put_row(w, hri_gemm_row_name(row), r->codes.flops[code][row], HRI_GEMM_WIDTH_COUNT);
    hri_json_end_object(w);
  }
  hri_json_end_object(w);
}

static bool is_measured(const hr_device_rates *r) {
  const double *first = &r->codes.flops[0][0][0];
  for (size_t k = 0; k < sizeof r->codes / sizeof *first; k++)
    if (first[k] > 0) return true;
  return false;
}

hr_status hri_products_store(hri_gemm_machine machine, const hr_device_rates *r, hr_error *error) {
  hri_text text = {0};
  hri_json_writer w = hri_json_writer_init(&text, 2);
  char path[HRI_STORED_PATH_BYTES], cpu[HRI_CPU_IDENTITY_BYTES], products[HRI_GEMM_TEXT_BYTES];
  hri_gemm_table shipped;
  hr_status status;
  if (!is_measured(r)) return HR_OK;
  HRI_TRY(file_path(machine.level, cpu, path, error));
  machine.table.given = false;
  shipped = hri_gemm_table_of(&machine);
  machine.table = hri_gemm_table_fastest(machine.level, &shipped, &r->codes);
  hri_json_begin_object(&w);
  hri_json_field_u64(&w, "schema_version", SCHEMA);
  hri_json_field_string(&w, "cpu", cpu);
  hri_json_field_string(&w, "instruction_set", hri_isa_name(machine.level));
  hri_json_field_string(&w, "products", hri_gemm_text(&machine, products));
  hri_json_field_u64(&w, "threads", r->threads);
  hri_json_field_string(&w, "date", r->date);
  put_codes(&w, r);
  hri_json_end_object(&w);
  hri_text_add(&text, "\n");
  status = hri_stored_write(path, &text, error);
  hri_text_deinit(&text);
  return status;
}

/* ---- reading ---- */

static hr_status get_codes(const hri_json *root, hr_code_rates *rates, hr_error *error) {
  hri_json codes, rows;
  HRI_TRY(hri_json_get_object(root, "flops_per_second", &codes, error));
  for (int code = 0; code < HRI_GEMM_CODE_COUNT; code++) {
    HRI_TRY(hri_json_get_object(&codes, hri_gemm_code_name((hri_gemm_code)code), &rows, error));
    for (uint32_t row = 0; row < HRI_GEMM_ROW_COUNT; row++)
      HRI_TRY(hri_stored_row(&rows, hri_gemm_row_name(row), rates->flops[code][row], HRI_GEMM_WIDTH_COUNT, error));
  }
  return HR_OK;
}

/* Fills machine->table. INPUT when the file is not whole, of this machine and of these products. */
static hr_status get_table(const hri_json *root, const char *cpu, hri_gemm_machine *machine, hr_error *error) {
  hr_code_rates rates;
  hri_gemm_machine made = {.level = machine->level, .pairs = machine->pairs};
  char products[HRI_GEMM_TEXT_BYTES];
  hri_gemm_table shipped;
  uint64_t number;
  HRI_TRY(hri_json_get_u64(root, "schema_version", SCHEMA, SCHEMA, &number, error));
  HRI_TRY(hri_stored_text(root, "cpu", cpu, NULL, 0, error));
  HRI_TRY(hri_stored_text(root, "instruction_set", hri_isa_name(machine->level), NULL, 0, error));
  HRI_TRY(get_codes(root, &rates, error));
  shipped = hri_gemm_table_of(&made);
  made.table = hri_gemm_table_fastest(made.level, &shipped, &rates);
  HRI_TRY(hri_stored_text(root, "products", hri_gemm_text(&made, products), NULL, 0, error));
  machine->table = made.table;
  return HR_OK;
}

/* *found: it is there, whole and this machine's. */
static hr_status load(hri_gemm_machine *machine, char digest[HRI_DIGEST_TEXT_BYTES], bool *found, hr_error *error) {
  char path[HRI_STORED_PATH_BYTES], cpu[HRI_CPU_IDENTITY_BYTES], *bytes = NULL;
  uint64_t count;
  hri_json root = {0};
  hr_status status;
  *found = false;
  if (file_path(machine->level, cpu, path, NULL) != HR_OK || !hri_path_exists(path)) return HR_OK;
  status = hri_file_read(path, HRI_STORED_LIMIT, &bytes, &count, error);
  if (status == HR_OK) status = hri_json_parse(bytes, count, path, &root, error);
  if (status == HR_OK) status = get_table(&root, cpu, machine, error);
  if (status == HR_OK) hri_file_digest_text(hri_file_digest_of(bytes, count), digest);
  *found = status == HR_OK;
  hri_json_deinit(&root);
  hri_free(bytes);
  return status;
}

hr_status hri_products_find(const char *asked, hri_gemm_machine *machine, hr_products *products, hr_error *error) {
  hr_error why = {0};
  bool found;
  memset(products, 0, sizeof *products);
  machine->table.given = false;
  products->origin = HR_PRODUCTS_SHIPPED;
  if (asked[0]) {
    HRI_TRY(hri_gemm_ask(asked, machine, error));
    if (machine->table.given) products->origin = HR_PRODUCTS_GIVEN;
  } else if (load(machine, products->digest, &found, &why) != HR_OK) {
    (void)snprintf(products->problem, sizeof products->problem, "%s", why.message);
  } else if (found) {
    products->origin = HR_PRODUCTS_MEASURED;
  }
  (void)hri_gemm_text(machine, products->text);
  return HR_OK;
}
