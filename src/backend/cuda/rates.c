/* What a probe measured of a card, in a file per card, driver and library of products. It holds for these and for the
 * kernels of this version of Headroom, all of which the file names: one of other ones is as good as none, and so is a
 * damaged one. Planning then goes on with assumed figures, and says why a file that is there was not taken. */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/cuda.h"
#include "backend/stored.h"
#include "base/file.h"

enum { SCHEMA = 1, TEAM = 1 };
static const uint64_t MOST_FIXED = UINT64_C(1) << 36;

static const char *const links[HR_LINKS] = {"to_host", "from_host"};

static hr_status file_path(const hr_device_rates *of, char path[HRI_STORED_PATH_BYTES], hr_error *error) {
  char name[HRI_STORED_NAME_BYTES];
  (void)snprintf(name, sizeof name, HRI_CUDA_NAME " %s %s", of->card, of->libraries);
  return hri_stored_path(name, path, error);
}

/* ---- storing ---- */

static void put_rates(hri_json_writer *w, const hr_device_rates *r) {
  hri_json_begin_object(w);
  hri_json_field_u64(w, "schema_version", SCHEMA);
  hri_json_field_string(w, "card", r->card);
  hri_json_field_string(w, "instruction_set", r->instruction_set);
  hri_json_field_string(w, "libraries", r->libraries);
  hri_json_field_string(w, "headroom", HR_VERSION);
  hri_json_field_string(w, "date", r->date);
  hri_json_field_u64(w, "fixed_bytes", r->fixed_bytes);
  hri_json_key(w, "link_bytes_per_second");
  hri_json_begin_object(w);
  for (int way = 0; way < HR_LINKS; way++) hri_json_field_double(w, links[way], r->link_bytes_per_second[way]);
  hri_json_end_object(w);
  hri_json_field_double(w, "node_seconds", r->node_seconds);
  hri_stored_put_tables(w, r);
  hri_json_end_object(w);
}

hr_status hri_cuda_rates_store(const hr_device_rates *rates, char *out, uint32_t out_bytes, hr_error *error) {
  hri_text text = {0};
  hri_json_writer writer = hri_json_writer_init(&text, 2);
  char path[HRI_STORED_PATH_BYTES];
  hr_status status;
  HRI_TRY(file_path(rates, path, error));
  if (out && out_bytes) (void)snprintf(out, out_bytes, "%s", path);
  put_rates(&writer, rates);
  hri_text_add(&text, "\n");
  status = hri_stored_write(path, &text, error);
  hri_text_deinit(&text);
  return status;
}

/* ---- loading ---- */

static hr_status get_links(const hri_json *root, hr_device_rates *r, hr_error *error) {
  hri_json object;
  HRI_TRY(hri_json_get_object(root, "link_bytes_per_second", &object, error));
  for (int way = 0; way < HR_LINKS; way++) {
    double *rate = &r->link_bytes_per_second[way];
    HRI_TRY(hri_json_get_double(&object, links[way], rate, error));
    if (!(*rate >= 0 && *rate <= 1e18)) return hri_json_fail(&object, error, "rates");
  }
  return HR_OK;
}

/* INPUT unless the file is whole and of this card, driver, library and version. */
static hr_status get_rates(const hri_json *root, const hr_device_rates *of, hr_device_rates *r, hr_error *error) {
  uint64_t number;
  *r = (hr_device_rates){.threads = TEAM};
  HRI_TRY(hri_json_get_u64(root, "schema_version", SCHEMA, SCHEMA, &number, error));
  HRI_TRY(hri_stored_text(root, "card", of->card, r->card, sizeof r->card, error));
  HRI_TRY(hri_stored_text(root, "instruction_set", of->instruction_set, r->instruction_set, sizeof r->instruction_set,
                          error));
  HRI_TRY(hri_stored_text(root, "libraries", of->libraries, r->libraries, sizeof r->libraries, error));
  HRI_TRY(hri_stored_text(root, "headroom", HR_VERSION, NULL, 0, error));
  HRI_TRY(hri_stored_text(root, "date", NULL, r->date, sizeof r->date, error));
  HRI_TRY(hri_json_get_u64(root, "fixed_bytes", 0, MOST_FIXED, &r->fixed_bytes, error));
  HRI_TRY(get_links(root, r, error));
  return hri_stored_tables(root, r, error);
}

static void take_over(hr_device *device, const hr_device_rates *r) {
  double slower = r->link_bytes_per_second[HR_LINK_TO_HOST], other = r->link_bytes_per_second[HR_LINK_FROM_HOST];
  if (other < slower) slower = other;
  device->rates = *r;
  device->node_seconds = r->node_seconds;
  if (slower > 0) device->link_bytes_per_second = slower;
  if (r->fixed_bytes == 0) return; /* nobody told what the process holds */
  device->fixed_bytes = r->fixed_bytes;
  device->fixed_measured = true;
}

bool hri_cuda_rates_load(hr_device *device) {
  char path[HRI_STORED_PATH_BYTES];
  hr_device_rates rates;
  hri_json root = {0};
  hr_error why = {0};
  hr_status status;
  device->rates_problem[0] = 0;
  if (!device->rates.card[0] || file_path(&device->rates, path, NULL) != HR_OK || !hri_path_exists(path)) return false;
  status = hri_json_read(path, HRI_STORED_LIMIT, &root, &why);
  if (status == HR_OK) status = get_rates(&root, &device->rates, &rates, &why);
  hri_json_deinit(&root);
  if (status == HR_OK) take_over(device, &rates);
  else (void)snprintf(device->rates_problem, sizeof device->rates_problem, "%s", why.message);
  return status == HR_OK;
}
