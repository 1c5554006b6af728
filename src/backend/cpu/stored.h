/* What measurements of this machine share as files: where they lie, and how their parts are read. What is wrong with a
 * file is an INPUT that names it; whether that matters is the caller's affair. */
#ifndef HRI_BACKEND_CPU_STORED_H
#define HRI_BACKEND_CPU_STORED_H

#include "backend/cpu/cpu.h"
#include "base/json.h"
#include "ops/linear/product.h"

enum { HRI_STORED_PATH_BYTES = 4096, HRI_STORED_NAME_BYTES = 256, HRI_STORED_LIMIT = 1 << 20 };

/* The file of a name, of which letters and digits count, in HEADROOM_CACHE, else below XDG_CACHE_HOME or HOME.
 * USAGE. */
hr_status hri_stored_path(const char *name, char path[HRI_STORED_PATH_BYTES], hr_error *error);
/* Makes the directory and replaces the file at once. Frees nothing. IO, MEMORY. */
hr_status hri_stored_write(char path[HRI_STORED_PATH_BYTES], const hri_text *text, hr_error *error);

void hri_stored_put_row(hri_json_writer *w, const char *key, const double *values, size_t count);
/* `count` numbers, finite, from 0 to 1e18. INPUT. */
hr_status hri_stored_row(const hri_json *root, const char *key, double *values, size_t count, hr_error *error);
/* A text that must be `wanted` (NULL: any), into `out` (may be NULL). INPUT. */
hr_status hri_stored_text(const hri_json *root, const char *key, const char *wanted, char *out, size_t out_bytes,
                          hr_error *error);

/* ---- the choice of products (products.c) ---- */

/* Which products a CPU of this machine computes at a level: what `asked` names (hr_device.products), else what is
 * stored, else the shipped table. Fills machine->table. USAGE when `asked` is unknown; a stored file that is damaged or
 * another machine's is told in products->problem. */
hr_status hri_products_find(const char *asked, hri_gemm_machine *machine, hr_products *products, hr_error *error);
/* Stores rates->codes, unless nothing was measured. */
hr_status hri_products_store(hri_gemm_machine machine, const hr_device_rates *rates, hr_error *error);

#endif
