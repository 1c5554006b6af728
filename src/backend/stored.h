/* What measurements of this machine's devices share as files: where they lie, and how their parts are read. What is wrong
 * with a file is an INPUT that names it; whether that matters is the caller's affair. */
#ifndef HRI_BACKEND_STORED_H
#define HRI_BACKEND_STORED_H

#include <headroom/device.h>

#include "base/json.h"

enum { HRI_STORED_PATH_BYTES = 4096, HRI_STORED_NAME_BYTES = 256, HRI_STORED_LIMIT = 1 << 20 };

/* The file of a name, of which letters and digits count, in HEADROOM_CACHE, else below XDG_CACHE_HOME or HOME.
 * USAGE. */
hr_status hri_stored_path(const char *name, char path[HRI_STORED_PATH_BYTES], hr_error *error);
/* Makes the directory and replaces the file at once. Frees nothing. IO, MEMORY. */
hr_status hri_stored_write(char path[HRI_STORED_PATH_BYTES], const hri_text *text, hr_error *error);

/* Whether it could now, whatever the name. Leaves nothing. IO, USAGE. */
hr_status hri_stored_can_write(hr_error *error);

void hri_stored_put_row(hri_json_writer *w, const char *key, const double *values, size_t count);
/* `count` numbers, finite, from 0 to 1e18. INPUT. */
hr_status hri_stored_row(const hri_json *root, const char *key, double *values, size_t count, hr_error *error);
/* A text that must be `wanted` (NULL: any), into `out` (may be NULL). INPUT. */
hr_status hri_stored_text(const hri_json *root, const char *key, const char *wanted, char *out, size_t out_bytes,
                          hr_error *error);

/* The tables of all types, each an object of the one that is written; and out of it, with node_seconds. INPUT. */
void hri_stored_put_tables(hri_json_writer *w, const hr_device_rates *rates);
hr_status hri_stored_tables(const hri_json *root, hr_device_rates *rates, hr_error *error);

#endif
