/* What measurements of this machine's CPU are stored beside its rates: the choice of products (products.c). */
#ifndef HRI_BACKEND_CPU_STORED_H
#define HRI_BACKEND_CPU_STORED_H

#include "backend/cpu/cpu.h"
#include "backend/stored.h"
#include "ops/linear/product.h"

/* Which products a CPU of this machine computes at a level: what `asked` names (hr_device.products), else what is
 * stored, else the shipped table. Fills machine->table. USAGE when `asked` is unknown; a stored file that is damaged or
 * another machine's is told in products->problem. */
hr_status hri_products_find(const char *asked, hri_gemm_machine *machine, hr_products *products, hr_error *error);
/* Stores rates->codes, unless nothing was measured. */
hr_status hri_products_store(hri_gemm_machine machine, const hr_device_rates *rates, hr_error *error);

#endif
