/* How much of the forward the backward makes again: the one parser and the one printer of --recompute, and the
 * levels. */
#include <stdio.h>
#include <string.h>

#include <headroom/job.h>

#include "base/error.h"
#include "job/fields.h"

static const char *const level_names[HR_LEVEL_COUNT] = {"keep", "cheap", "mlp", "attention", "block"};

const char *hr_level_name(hr_level value) { return (size_t)value < HR_LEVEL_COUNT ? level_names[value] : "unknown"; }

/* A decimal number from 1 to `max` that ends at `end` (a character of the text). */
static bool parse_count(const char *text, size_t length, uint32_t max, uint32_t *value) {
  uint64_t sum = 0;
  if (length == 0 || length > 9) return false;
  for (size_t i = 0; i < length; i++) {
    if (text[i] < '0' || text[i] > '9') return false;
    sum = sum * 10 + (uint64_t)(text[i] - '0');
  }
  *value = (uint32_t)sum;
  return sum >= 1 && sum <= max;
}

/* What is read, and where it stands, for messages. */
typedef struct reading {
  hr_recompute *to;
  const char *where;
  hr_error *error;
} reading;

static hr_status recompute_fail(const reading *in, const char *what, const char *text) {
  hr_error *error = in->error;
  hri_fail(error, HR_ERROR_USAGE, "%s: %s '%.80s'", in->where, what, text);
  return hri_hint(
      error, HR_ERROR_USAGE,
      "write none, selective, auto, block, every:K, sqrt, or levels:keep*4,cheap*8,... with the levels keep, cheap, mlp, attention, block");
}

/* One "cheap*8" or "cheap" of `length` characters. */
static hr_status parse_run(const char *item, size_t length, const reading *in) {
  hr_recompute *r = in->to;
  const char *star = memchr(item, '*', length);
  size_t word = star ? (size_t)(star - item) : length;
  uint32_t count = 1;
  int level = HR_LEVEL_COUNT;
  char shown[81];
  (void)snprintf(shown, sizeof shown, "%.*s", (int)(length < 80 ? length : 80), item);
  for (int i = 0; i < HR_LEVEL_COUNT; i++)
    if (strlen(level_names[i]) == word && memcmp(item, level_names[i], word) == 0) level = i;
  if (level == HR_LEVEL_COUNT) return recompute_fail(in, "there is no level", shown);
  if (star && !parse_count(star + 1, length - word - 1, HR_MAX_LAYERS, &count))
    return recompute_fail(in, "a number of layers is wanted after * in", shown);
  if (count > HR_MAX_LAYERS - r->level_count) return recompute_fail(in, "there are too many layers at", shown);
  memset(r->levels + r->level_count, level, count);
  r->level_count += count;
  return HR_OK;
}

static hr_status parse_levels(const char *text, const reading *in) {
  for (;;) {
    size_t length = strcspn(text, ",");
    HRI_TRY(parse_run(text, length, in));
    if (!text[length]) return HR_OK;
    text += length + 1;
  }
}

static const struct {
  const char *word;
  hr_recompute_kind kind;
} kinds[] = {
    {"none", HR_RECOMPUTE_NONE},           {"block", HR_RECOMPUTE_BLOCK}, {"sqrt", HR_RECOMPUTE_SQRT},
    {"selective", HR_RECOMPUTE_SELECTIVE}, {"auto", HR_RECOMPUTE_AUTO},
};

hr_status hri_recompute_read(const char *text, const char *where, hr_recompute *recompute, hr_error *error) {
  hr_recompute made = {.kind = HR_RECOMPUTE_NONE};
  reading in = {.to = &made, .where = where, .error = error};
  size_t k = 0;
  while (k < sizeof kinds / sizeof *kinds && strcmp(text, kinds[k].word) != 0) k++;
  if (k < sizeof kinds / sizeof *kinds) {
    made.kind = kinds[k].kind;
  } else if (strncmp(text, "every:", 6) == 0) {
    made.kind = HR_RECOMPUTE_EVERY;
    if (!parse_count(text + 6, strlen(text + 6), HR_MAX_LAYERS, &made.every))
      return recompute_fail(&in, "a number of layers is wanted after every: in", text);
  } else if (strncmp(text, "levels:", 7) == 0) {
    made.kind = HR_RECOMPUTE_LEVELS;
    HRI_TRY(parse_levels(text + 7, &in));
  } else {
    return recompute_fail(&in, "there is no value", text);
  }
  *recompute = made;
  return HR_OK;
}

hr_status hr_recompute_parse(const char *text, hr_recompute *recompute, hr_error *error) {
  return hri_recompute_read(text, "--recompute", recompute, error);
}

hr_status hri_recompute_check(const hr_recompute *r, const char *where, hr_error *error) {
  if ((unsigned)r->kind > HR_RECOMPUTE_AUTO)
    return hri_fail(error, HR_ERROR_USAGE, "%s has no value %u", where, (unsigned)r->kind);
  if (r->kind != HR_RECOMPUTE_LEVELS) return HR_OK;
  if (r->level_count == 0 || r->level_count > HR_MAX_LAYERS)
    return hri_fail(error, HR_ERROR_USAGE, "%s levels: there is no level", where);
  for (uint32_t i = 0; i < r->level_count; i++)
    if (r->levels[i] >= HR_LEVEL_COUNT)
      return hri_fail(error, HR_ERROR_USAGE, "%s levels: layer %u has no known level", where, i);
  return HR_OK;
}

/* The level of layer `index`: missing ones repeat the last. */
static uint8_t level_of(const hr_recompute *r, uint32_t index) {
  if (r->level_count == 0) return HR_LEVEL_KEEP;
  return r->levels[index < r->level_count ? index : r->level_count - 1];
}

static char *levels_text(const hr_recompute *r, uint32_t layer_count, char *out, uint64_t out_bytes) {
  uint32_t layers = layer_count ? layer_count : r->level_count ? r->level_count : 1, run;
  size_t used = 0;
  char item[48];
  if (layers > HR_MAX_LAYERS) layers = HR_MAX_LAYERS;
  for (uint32_t l = 0; l < layers; l += run) {
    int length;
    for (run = 1; l + run < layers && level_of(r, l + run) == level_of(r, l);) run++;
    if (run == layers && level_of(r, 0) == HR_LEVEL_KEEP) return strcpy(out, "none");
    if (run == layers && level_of(r, 0) == HR_LEVEL_BLOCK) return strcpy(out, "block");
    length =
        run > 1
            ? snprintf(item, sizeof item, "%s%s*%u", l ? "," : "levels:", hr_level_name((hr_level)level_of(r, l)), run)
            : snprintf(item, sizeof item, "%s%s", l ? "," : "levels:", hr_level_name((hr_level)level_of(r, l)));
    if (used + (size_t)length + sizeof ",..." > out_bytes)
      return strcpy(out + used, ",...") - used; /* says that it is cut */
    memcpy(out + used, item, (size_t)length + 1);
    used += (size_t)length;
  }
  return out;
}

char *hr_recompute_text(const hr_recompute *recompute, uint32_t layer_count, char *out, uint64_t out_bytes) {
  if (out_bytes < 32) { /* against the contract; stay inside the buffer */
    if (out_bytes) out[0] = 0;
    return out;
  }
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
    if (kinds[k].kind == recompute->kind) return strcpy(out, kinds[k].word);
  if (recompute->kind == HR_RECOMPUTE_LEVELS) return levels_text(recompute, layer_count, out, out_bytes);
  if (recompute->kind == HR_RECOMPUTE_EVERY) (void)snprintf(out, (size_t)out_bytes, "every:%u", recompute->every);
  else (void)strcpy(out, "none");
  return out;
}
