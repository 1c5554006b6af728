/* The grammar of --lora: words between commas, each a key with a value, a flag, or more of the list before it. */
#include "model/lora.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "model/params.h"

enum { DEFAULT_RANK = 8, MOST_RANK = 4096, WORD_BYTES = 96 };

/* ---- modules ---- */

static const char *leaf(const char *name) {
  const char *dot = strrchr(name, '.');
  return dot ? dot + 1 : name;
}

/* Modules of different names only: "c_proj" is two in gpt2. */
static void module_names(const hr_model *model, hri_text *out) {
  char name[96], before[96];
  for (int k = 0; k < HR_MODULE_COUNT; k++) {
    bool again = false;
    if (!hri_module_name(model, (hr_module)k, -1, name)) continue;
    for (int j = 0; j < k; j++)
      again = again || (hri_module_name(model, (hr_module)j, -1, before) && strcmp(leaf(before), leaf(name)) == 0);
    if (!again) hri_text_add(out, "%s%s", out->length ? ", " : "", leaf(name));
  }
}

/* tuners/tuners_utils.py, check_target_module_exists. */
bool hri_lora_matches(const char *name, const char *target) {
  size_t a = strlen(name), b = strlen(target);
  return a >= b && strcmp(name + a - b, target) == 0 && (a == b || name[a - b - 1] == '.');
}

bool hri_lora_add_target(const hr_model *model, const char *target, hr_lora *lora) {
  bool all = strcmp(target, "all-linear") == 0, found = false;
  char name[96];
  for (int k = 0; k < HR_MODULE_COUNT; k++)
    if (hri_module_name(model, (hr_module)k, -1, name) && (all || hri_lora_matches(name, target))) {
      lora->targets |= 1u << k;
      found = true;
    }
  return found;
}

void hri_lora_all_layers(const hr_model *model, hr_lora *lora) {
  for (uint32_t l = 0; l < model->layer_count; l++) lora->layers[l / 8] |= (uint8_t)(1u << l % 8);
}

/* What PEFT takes in a family without target_modules (peft/utils/constants.py): q and v; the one fused product. */
static void default_targets(const hr_model *model, hr_lora *lora) {
  char name[96];
  lora->targets = 1u << HR_MODULE_Q;
  if (hri_module_name(model, HR_MODULE_V, -1, name)) lora->targets |= 1u << HR_MODULE_V;
}

static hr_status unknown_target(const hr_model *model, const char *word, hr_error *error) {
  hri_text names = {0};
  hr_status status;
  module_names(model, &names);
  status =
      hri_fail(error, HR_ERROR_USAGE, "--lora: a %s model has no module '%.60s'", hr_family_name(model->family), word);
  (void)hri_hint(error, status, "targets are %s, or all-linear", hri_text_get(&names));
  hri_text_deinit(&names);
  return status;
}

/* ---- words ---- */

typedef enum key { KEY_NONE = 0, KEY_RANK, KEY_ALPHA, KEY_TARGETS, KEY_DROPOUT, KEY_INIT, KEY_LAYERS, KEY_COUNT } key;
static const char *const keys[KEY_COUNT] = {[KEY_RANK] = "r",          [KEY_ALPHA] = "alpha", [KEY_TARGETS] = "targets",
                                            [KEY_DROPOUT] = "dropout", [KEY_INIT] = "init",   [KEY_LAYERS] = "layers"};

static key key_of(const char *word, size_t length) {
  for (int k = 1; k < KEY_COUNT; k++)
    if (strlen(keys[k]) == length && memcmp(keys[k], word, length) == 0) return (key)k;
  return KEY_NONE;
}

static bool number(const char *text, double low, double high, double *out) {
  char *end;
  *out = strtod(text, &end);
  return *text && !isspace((unsigned char)*text) && !*end && isfinite(*out) && *out >= low && *out <= high;
}

static bool whole(const char *text, size_t length, uint32_t most, uint32_t *out) {
  uint64_t value = 0;
  if (length == 0 || length > 9) return false;
  for (size_t k = 0; k < length; k++) {
    if (text[k] < '0' || text[k] > '9') return false;
    value = value * 10 + (uint64_t)(text[k] - '0');
  }
  *out = (uint32_t)value;
  return value <= most;
}

/* "8-15" or "20". */
static hr_status take_layers(const hr_model *model, const char *word, hr_lora *lora, hr_error *error) {
  const char *dash = strchr(word, '-');
  uint32_t first, last;
  bool good = whole(word, dash ? (size_t)(dash - word) : strlen(word), model->layer_count - 1, &first);
  last = first;
  if (good && dash) good = whole(dash + 1, strlen(dash + 1), model->layer_count - 1, &last) && last >= first;
  if (!good)
    return hri_fail(error, HR_ERROR_USAGE, "--lora: layers=%.40s is not a layer or a range such as 0-%u of this model",
                    word, model->layer_count - 1);
  for (uint32_t l = first; l <= last; l++) lora->layers[l / 8] |= (uint8_t)(1u << l % 8);
  return HR_OK;
}

static hr_status take(const hr_model *model, key k, const char *value, hr_lora *lora, hr_error *error) {
  switch (k) {
  case KEY_RANK:
    if (whole(value, strlen(value), MOST_RANK, &lora->rank) && lora->rank > 0) return HR_OK;
    return hri_fail(error, HR_ERROR_USAGE, "--lora: r=%.40s; a rank is from 1 to %d", value, MOST_RANK);
  case KEY_ALPHA:
    if (number(value, 1e-6, 1e6, &lora->alpha)) return HR_OK;
    return hri_fail(error, HR_ERROR_USAGE, "--lora: alpha=%.40s is not a number from 1e-6 to 1e6", value);
  case KEY_DROPOUT:
    if (number(value, 0, 1, &lora->dropout) && lora->dropout < 1) return HR_OK;
    return hri_fail(error, HR_ERROR_USAGE, "--lora: dropout=%.40s is not a probability from 0 to below 1", value);
  case KEY_INIT:
    lora->gaussian = strcmp(value, "gaussian") == 0;
    if (lora->gaussian || strcmp(value, "kaiming") == 0) return HR_OK;
    return hri_fail(error, HR_ERROR_USAGE, "--lora: init=%.40s; it is kaiming or gaussian", value);
  case KEY_TARGETS: return hri_lora_add_target(model, value, lora) ? HR_OK : unknown_target(model, value, error);
  default: return take_layers(model, value, lora, error);
  }
}

/* One word between commas. `list`: the key whose list a bare word goes on with. */
static hr_status take_word(const hr_model *model, const char *word, key *list, uint32_t *seen, hr_lora *lora,
                           hr_error *error) {
  const char *equals = strchr(word, '=');
  key k = *list;
  hr_status status;
  if (!equals && strcmp(word, "rslora") == 0) {
    lora->rslora = true;
    *list = KEY_NONE;
    return HR_OK;
  }
  if (equals) {
    k = key_of(word, (size_t)(equals - word));
    if (k != KEY_NONE && (*seen >> k & 1)) return hri_fail(error, HR_ERROR_USAGE, "--lora: %s is given twice", keys[k]);
    if (k != KEY_NONE) *seen |= 1u << k;
  }
  if (k == KEY_NONE || (!equals && k != KEY_TARGETS && k != KEY_LAYERS)) {
    status = hri_fail(error, HR_ERROR_USAGE, "--lora: '%.60s' is not understood", word);
    return hri_hint(
        error, status,
        "words are r=N, alpha=X, targets=NAME,..., dropout=P, rslora, init=kaiming|gaussian, layers=A-B,...");
  }
  *list = k;
  return take(model, k, equals ? equals + 1 : word, lora, error);
}

hr_status hri_lora_parse(const char *text, const hr_model *model, bool quantized, hr_lora *out, hr_error *error) {
  hr_lora lora = {.rank = DEFAULT_RANK, .alpha = DEFAULT_RANK};
  key list = KEY_NONE;
  uint32_t seen = 0;
  for (const char *at = text; *at;) {
    char word[WORD_BYTES];
    size_t length = strcspn(at, ",");
    if (length == 0 || length >= sizeof word)
      return hri_fail(error, HR_ERROR_USAGE, "--lora: '%.60s' has an empty or overlong word", text);
    memcpy(word, at, length);
    word[length] = 0;
    HRI_TRY(take_word(model, word, &list, &seen, &lora, error));
    at += length;
    if (*at == ',' && !*++at) return hri_fail(error, HR_ERROR_USAGE, "--lora: '%.60s' ends in a comma", text);
  }
  if (lora.targets == 0 && quantized) (void)hri_lora_add_target(model, "all-linear", &lora);
  if (lora.targets == 0) default_targets(model, &lora);
  if (!(seen >> KEY_LAYERS & 1)) hri_lora_all_layers(model, &lora);
  HRI_TRY(hri_lora_check(model, &lora, error));
  *out = lora;
  return HR_OK;
}

/* ---- checks ---- */

hr_status hri_lora_check(const hr_model *model, const hr_lora *lora, hr_error *error) {
  char name[96];
  for (int k = 0; k < HR_MODULE_COUNT; k++) {
    if (!(lora->targets >> k & 1)) continue;
    if (!hri_module_name(model, (hr_module)k, -1, name))
      return hri_fail(error, HR_ERROR_USAGE, "--lora: a %s model has no module %d", hr_family_name(model->family), k);
  }
  if (lora->rank > MOST_RANK || !(lora->alpha > 0) || !isfinite(lora->alpha) ||
      !(lora->dropout >= 0 && lora->dropout < 1) || lora->targets >> HR_MODULE_COUNT)
    return hri_fail(error, HR_ERROR_USAGE, "--lora: rank %u, alpha %g, dropout %g make no adapter", lora->rank,
                    lora->alpha, lora->dropout);
  return HR_OK;
}
