/* Settings of the framework (settings.h): one table of keys; a value is a word of a list, or a number. */
#include "frameworks/pytorch/settings.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"

static const char *const optims[HRI_OPTIMS] = {"",      "adamw_torch", "adamw_torch_fused", "adamw_bnb_8bit", "paged_adamw_8bit",
                                               "sgd"};
static const char *const truths[] = {"false", "true"};

const char *hri_torch_optim_name(hri_torch_optim optim) { return optims[optim]; }

typedef enum key { OPTIM = 0, REENTRANT, KEYS } key;
static const char *const keys[KEYS] = {"optim", "use_reentrant"};

typedef struct words {
  const char *const *list; /* "" is none */
  uint32_t count;
} words;
static const words values[KEYS] = {[OPTIM] = {optims, HRI_OPTIMS}, [REENTRANT] = {truths, 2}};

static void store(hri_torch_settings *out, key k, uint32_t value) {
  if (k == OPTIM) out->optim = (hri_torch_optim)value;
  if (k == REENTRANT) out->reentrant = value != 0;
}

static uint32_t find(const words *w, const char *text, size_t length) {
  for (uint32_t i = 0; i < w->count; i++)
    if (length && strlen(w->list[i]) == length && memcmp(w->list[i], text, length) == 0) return i;
  return w->count;
}

/* "a, b and c" of a list. */
static hr_status refuse(const char *what, const words *w, const char *text, size_t length, hr_error *error) {
  hri_text all = {0};
  for (uint32_t i = 0; i < w->count; i++)
    if (*w->list[i]) hri_text_add(&all, "%s%s", all.length ? ", " : "", w->list[i]);
  hri_fail(error, HR_ERROR_USAGE, "settings of --engine pytorch: '%.*s' is no %s", (int)(length < 40 ? length : 40), text, what);
  hri_hint(error, HR_ERROR_USAGE, "one of %s", hri_text_get(&all));
  hri_text_deinit(&all);
  return HR_ERROR_USAGE;
}

static hr_status one(const char *text, size_t length, hri_torch_settings *out, hr_error *error) {
  static const words names = {keys, KEYS};
  const char *equals = memchr(text, '=', length);
  size_t name = equals ? (size_t)(equals - text) : length, value = equals ? length - name - 1 : 0;
  uint32_t k = find(&names, text, name), found;
  if (k == KEYS) return refuse("setting", &names, text, name, error);
  found = equals ? find(&values[k], equals + 1, value) : values[k].count;
  if (found == values[k].count) return refuse(keys[k], &values[k], equals ? equals + 1 : "", value, error);
  store(out, (key)k, found);
  return HR_OK;
}

hr_status hri_torch_settings_parse(const char *text, hri_torch_settings *out, hr_error *error) {
  memset(out, 0, sizeof *out);
  while (text && *text) {
    size_t length = strcspn(text, ",");
    HRI_TRY(one(text, length, out, error));
    text += length;
    if (*text) text++;
  }
  return HR_OK;
}
