/* Between a field's text, its value and the struct it lies in (headroom/field.h): the one parser, the one printer and
 * the one check of ranges, by the kind of the field. What the fields are is in fields.c. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <headroom/field.h>

#include "base/error.h"
#include "base/number.h"
#include "job/fields.h"

_Static_assert(sizeof(hr_precision) == sizeof(int), "CHOICE copies an int");

/* ---- parts of texts ---- */

bool hri_count_parse(const char *text, uint64_t *count) {
  unsigned long long value;
  char *end;
  if (*text < '0' || *text > '9') return false;
  errno = 0;
  value = strtoull(text, &end, 10);
  if (*end || errno != 0) return false;
  *count = value;
  return true;
}

static bool number_parse(const char *text, double *number) { return !hri_decimal_parse(text, number); }

static const struct {
  const char *suffix;
  double factor;
} size_units[] = {
    {"B", 1},    {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"TiB", 1099511627776.0},
    {"kB", 1e3}, {"KB", 1e3},     {"MB", 1e6},        {"GB", 1e9},           {"TB", 1e12},
};

/* A number alone is bytes, and nobody means so few: the unit was forgotten. */
enum { LEAST_PLAIN_BYTES = 1 << 20 };
static const char plain_number[] = "without a unit it would be bytes, less than 1 MiB",
                  half_unit[] = "its unit may be of 1000s or of 1024s",
                  exponent[] = "sizes are written without an exponent", beyond[] = "it is larger than any memory";

/* The reason why there is no such unit. "8G" is read as 10^9 by some programs and as 2^30 by others. */
static const char *unknown_unit(const char *unit) {
  if (*unit && strchr("kKmMgGtT", *unit) && (!unit[1] || strcasecmp(unit + 1, "i") == 0)) return half_unit;
  if ((*unit == 'e' || *unit == 'E') && (unit[1] == '+' || isdigit((unsigned char)unit[1]))) return exponent;
  return "its unit is unknown; write GiB (2^30 bytes) or GB (10^9 bytes), likewise KiB, MiB, TiB, KB, MB, TB, or %";
}

/* NULL, or the reason why it is no size. */
static const char *size_parse(const char *text, uint64_t *bytes, double *share) {
  const char *rest = text;
  char digits[32];
  size_t count = strspn(text, "0123456789.");
  double value, factor = 0;
  if (count == 0 || count >= sizeof digits) return "it does not start with a number";
  memcpy(digits, text, count);
  digits[count] = 0;
  if (!number_parse(digits, &value)) return "it does not start with a number";
  rest += count;
  if (!*rest && !hri_count_parse(digits, bytes)) return strchr(digits, '.') ? "bytes are whole numbers" : beyond;
  if (!*rest) return *bytes == 0 ? "no job fits in 0 bytes" : *bytes < LEAST_PLAIN_BYTES ? plain_number : NULL;
  rest += strspn(rest, " ");
  if (strcmp(rest, "%") == 0) {
    *share = value / 100;
    return value > 100 ? "a share is at most 100%" : value <= 0 ? "no job fits in 0 bytes" : NULL;
  }
  for (size_t i = 0; i < sizeof size_units / sizeof *size_units; i++)
    if (strcasecmp(rest, size_units[i].suffix) == 0) factor = size_units[i].factor;
  if (factor <= 0) return unknown_unit(rest);
  if (value * factor >= 9.2e18) return beyond;
  *bytes = (uint64_t)(value * factor + 0.5);
  return *bytes == 0 ? "no job fits in 0 bytes" : NULL;
}

/* ---- ranges ---- */

static uint64_t most_of(const hr_field *f) {
  if (f->most) return f->most;
  return f->kind == HR_FIELD_U32 ? UINT32_MAX - 1 : INT64_MAX; /* the last of 32 bits stands for words */
}

static const char *word_of(const hr_field *f, uint64_t count) {
  for (size_t k = 0; f->word_values && f->words[k]; k++)
    if (f->word_values[k] == count) return f->words[k];
  return NULL;
}

static const char *number_word(const hr_field *f, double number) {
  for (size_t k = 0; f->word_numbers && f->words[k]; k++)
    if (f->word_numbers[k] == number) return f->words[k];
  return NULL;
}

static uint64_t word_count(const hr_field *f) {
  uint64_t count = 0;
  while (f->words[count]) count++;
  return count;
}

static hr_status refuse(const hr_field *f, hr_error *error) {
  return f->remedy ? hri_hint(error, HR_ERROR_USAGE, "%s", f->remedy) : HR_ERROR_USAGE;
}

static hr_status check_count(const hr_field *f, const hr_value *v, const char *where, hr_error *error) {
  if ((v->count >= f->least && v->count <= most_of(f)) || word_of(f, v->count) || (v->count == 0 && f->zero))
    return HR_OK;
  hri_fail(error, HR_ERROR_USAGE, "%s is %llu; it must be from %llu to %llu", where, (unsigned long long)v->count,
           (unsigned long long)f->least, (unsigned long long)most_of(f));
  return refuse(f, error);
}

static hr_status check_number(const hr_field *f, double value, const char *where, const char *which, hr_error *error) {
  bool free = f->low == 0 && f->high == 0;
  bool low = free || (f->above_low ? value > f->low : value >= f->low),
       high = free || (f->below_high ? value < f->high : value <= f->high);
  if ((isfinite(value) && low && high) || number_word(f, value)) return HR_OK;
  if (free) hri_fail(error, HR_ERROR_USAGE, "%s%s is %g; it must be finite", where, which, value);
  else if (isinf(f->high))
    hri_fail(error, HR_ERROR_USAGE, "%s%s is %g; it must be finite and %s %g", where, which, value,
             f->above_low ? "above" : "at least", f->low);
  else if (f->above_low || f->below_high)
    hri_fail(error, HR_ERROR_USAGE, "%s%s is %g; it must be %s %g and %s %g", where, which, value,
             f->above_low ? "above" : "at least", f->low, f->below_high ? "below" : "at most", f->high);
  else
    hri_fail(error, HR_ERROR_USAGE, "%s%s is %g; it must lie between %g and %g", where, which, value, f->low, f->high);
  return refuse(f, error);
}

static hr_status check(const hr_field *f, const hr_value *v, const char *where, hr_error *error) {
  switch (f->kind) {
  case HR_FIELD_U32:
  case HR_FIELD_U64: return check_count(f, v, where, error);
  case HR_FIELD_SHARE:
  case HR_FIELD_NUMBER: return check_number(f, v->number[0], where, "", error);
  case HR_FIELD_PAIR:
    HRI_TRY(check_number(f, v->number[0], where, " (the first)", error));
    return check_number(f, v->number[1], where, " (the second)", error);
  case HR_FIELD_CHOICE:
    if (v->count < word_count(f)) return HR_OK;
    return hri_fail(error, HR_ERROR_USAGE, "%s has no value %llu", where, (unsigned long long)v->count);
  case HR_FIELD_RECOMPUTE: return hri_recompute_check(&v->recompute, where, error);
  case HR_FIELD_FLAG:
  case HR_FIELD_SIZE:
  case HR_FIELD_DEVICE:
  case HR_FIELD_WORD:
  case HR_FIELD_TEXT:
  case HR_FIELD_NAME:
  case HR_FIELD_PATH:
  case HR_FIELD_PATHS: break;
  }
  return HR_OK;
}

/* "--seq" for the option itself, "job.yaml:3: seq" for other places. */
static const char *subject(const hr_field *f, const char *place, char out[256]) {
  if (place && *place) (void)snprintf(out, 256, "%.180s: %s", place, f->name);
  else (void)snprintf(out, 256, f->positional ? "%s" : "--%s", f->positional ? f->operand : f->name);
  return out;
}

hr_status hr_field_check(const hr_field *f, const hr_value *v, hr_error *error) {
  char where[256];
  return check(f, v, subject(f, NULL, where), error);
}

/* ---- text to value ---- */

static hr_status read_flag(const hr_field *f, hr_value *v, const char *text, const char *where, hr_error *error) {
  static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    if (strcmp(text, words[i]) != 0) continue;
    v->flag = i % 2 == 1;
    return HR_OK;
  }
  hri_fail(error, HR_ERROR_USAGE, "%s: '%.80s' is neither true nor false", where, text);
  return hri_hint(error, HR_ERROR_USAGE, "--%s or --no-%s", f->name, f->name);
}

/* Words that mean the same as the one before are understood, and not told. */
static hr_status no_word(const hr_field *f, const char *text, const char *where, hr_error *error) {
  char list[200] = "";
  for (size_t i = 0, used = 0; f->words[i]; i++)
    if (i == 0 || !f->word_values || f->word_values[i] != f->word_values[i - 1])
      used += (size_t)snprintf(list + used, sizeof list - used, "%s, ", f->words[i]);
  return hri_fail(error, HR_ERROR_USAGE, "%s: '%.80s' is none of: %s%s", where, text, list, f->number);
}

/* What people write for a number of digits alone: "1k" and "1.5M", where k may be 1024 or 1000 and Ki is 1024; "1,024" and
 * "1_024"; "1e3". Those that the option takes, at most two; returns how many. */
static uint32_t likely_counts(const hr_field *f, const char *text, uint64_t likely[2]) {
  static const char letters[] = "kmgt";
  char digits[32] = "";
  uint32_t count = 0;
  size_t used = 0;
  const char *letter, *at = text;
  bool binary;
  double value;
  for (; (*at >= '0' && *at <= '9') || strchr(".,_", *at ? *at : '?'); at++)
    if (*at != ',' && *at != '_' && used + 1 < sizeof digits) digits[used++] = *at;
  letter = *at ? strchr(letters, *at | 0x20) : NULL;
  binary = letter && (at[1] | 0x20) == 'i';
  if (letter && at[binary ? 2 : 1]) return 0;
  if (!letter && *at) (void)snprintf(digits, sizeof digits, "%.30s", text); /* "1e3", or no number */
  if (!number_parse(digits, &value)) return 0;
  for (uint32_t ten = 0; ten < (letter && !binary ? 2 : 1); ten++) {
    double whole = value;
    for (ptrdiff_t i = letter ? letter - letters : -1; i >= 0; i--) whole *= ten ? 1000 : 1024;
    if (whole != floor(whole) || whole < (double)f->least || whole > (double)most_of(f) || whole > 1e15) continue;
    likely[count++] = (uint64_t)whole;
  }
  return count;
}

static hr_status hint_count(const hr_field *f, const char *text, hr_error *error) {
  uint64_t likely[2];
  const uint32_t count = likely_counts(f, text, likely);
  if (count == 1) return hri_hint(error, HR_ERROR_USAGE, "in digits alone: %llu", (unsigned long long)likely[0]);
  if (count == 2)
    return hri_hint(error, HR_ERROR_USAGE, "in digits alone: %llu or %llu", (unsigned long long)likely[0],
                    (unsigned long long)likely[1]);
  if (!f->zero) return refuse(f, error);
  if (f->initial && strcmp(f->initial, "0") != 0) /* left out it is not 0 */
    return hri_hint(error, HR_ERROR_USAGE, "without --%s: %s; --%s 0: %s", f->name, f->initial, f->name, f->zero);
  return hri_hint(error, HR_ERROR_USAGE, "without --%s: %s", f->name, f->zero);
}

static hr_status read_count(const hr_field *f, hr_value *v, const char *text, const char *where, hr_error *error) {
  uint64_t least = f->least, most = most_of(f);
  for (size_t k = 0; f->words && f->words[k]; k++)
    if (strcmp(text, f->words[k]) == 0) {
      v->count = f->word_values[k];
      return HR_OK;
    }
  if (hri_count_parse(text, &v->count) && v->count >= least && v->count <= most) return HR_OK;
  if (f->words) (void)no_word(f, text, where, error);
  else
    hri_fail(error, HR_ERROR_USAGE, "%s: '%.80s' is not a whole number from %llu to %llu", where, text,
             (unsigned long long)least, (unsigned long long)most);
  return hint_count(f, text, error);
}

/* As hri_decimal_parse, of what stands before "%". */
static const char *percent_parse(const char *text, double *share) {
  double percent;
  const char *reason = hri_decimal_parse(text, &percent);
  if (reason) return reason;
  *share = percent / 100;
  return *share == 0 && percent != 0 ? hri_too_near : NULL;
}

/* "10%", as shares are written elsewhere. */
static hr_status no_number(const char *text, const char *where, hr_error *error) {
  double number;
  const char *reason = hri_decimal_parse(text, &number);
  const hr_status status = hri_fail(error, HR_ERROR_USAGE, "%s: '%.80s' is %s", where, text, reason);
  const size_t length = strlen(text);
  char front[80];
  if (length < 2 || length > sizeof front || text[length - 1] != '%') return status;
  (void)snprintf(front, sizeof front, "%.*s", (int)(length - 1), text);
  return !percent_parse(front, &number) ? hri_hint(error, status, "%.80s is %g", text, number) : status;
}

static hr_status read_number(const hr_field *f, hr_value *v, const char *text, const char *where, hr_error *error) {
  for (size_t k = 0; f->word_numbers && f->words[k]; k++)
    if (strcmp(text, f->words[k]) == 0) {
      v->number[0] = f->word_numbers[k];
      return HR_OK;
    }
  if (number_parse(text, &v->number[0]) && !number_word(f, v->number[0])) return check(f, v, where, error);
  if (f->words) return no_word(f, text, where, error);
  return no_number(text, where, error);
}

/* "1%", or the number itself. */
static hr_status read_share(const hr_field *f, hr_value *v, const char *text, const char *where, hr_error *error) {
  size_t length = strlen(text);
  char digits[32];
  bool percent = length > 0 && text[length - 1] == '%';
  const char *reason = "not a share";
  if (length < sizeof digits) {
    memcpy(digits, text, length + 1);
    if (percent) digits[length - 1] = 0;
    reason = percent ? percent_parse(digits, &v->number[0]) : hri_decimal_parse(digits, &v->number[0]);
    if (!reason) return check(f, v, where, error);
  }
  hri_fail(error, HR_ERROR_USAGE, "%s: '%.80s' is %s", where, text, reason);
  return hri_hint(error, HR_ERROR_USAGE, "--%s 1%%, or 0.01", f->name);
}

static hr_status read_pair(const hr_field *f, hr_value *v, const char *text, const char *where, hr_error *error) {
  const char *comma = strchr(text, ',');
  char first[32];
  if (comma && comma - text < (int)sizeof first && !strchr(comma + 1, ',')) {
    const char *second = comma + 1 + strspn(comma + 1, " "), *reason, *reason2;
    memcpy(first, text, (size_t)(comma - text));
    first[comma - text] = 0;
    reason = hri_decimal_parse(first, &v->number[0]);
    reason2 = hri_decimal_parse(second, &v->number[1]);
    if (!reason && !reason2) return check(f, v, where, error);
    hri_fail(error, HR_ERROR_USAGE, "%s: the %s of '%.80s' is %s", where, reason ? "first" : "second", text,
             reason ? reason : reason2);
  } else {
    hri_fail(error, HR_ERROR_USAGE, "%s: '%.80s' is not two numbers with a comma between them", where, text);
  }
  return hri_hint(error, HR_ERROR_USAGE, "--%s %s", f->name, f->initial);
}

static hr_status read_size(const hr_field *f, hr_value *v, const char *text, const char *where, hr_error *error) {
  const char *reason = size_parse(text, &v->count, &v->number[0]);
  double bytes;
  if (!reason && v->number[0] > 0 && !f->second) reason = "there is nothing that it could be a share of";
  if (!reason) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE, "%s: '%.80s' is not a size: %s", where, text, reason);
  if (reason == plain_number) /* in MiB where it would be more GiB than a device has */
    return hri_hint(error, HR_ERROR_USAGE, "--%s %s%s, or %sB for bytes", f->name, text,
                    v->count < 1024 ? "GiB" : "MiB", text);
  if (reason == half_unit) { /* its first letter, in either reading */
    const int digits = (int)strspn(text, "0123456789.");
    const char letter = (char)toupper((unsigned char)text[(size_t)digits + strspn(text + digits, " ")]);
    return hri_hint(error, HR_ERROR_USAGE, "--%s %.*s%ciB (of 1024s), or %.*s%cB (of 1000s)", f->name, digits, text,
                    letter, digits, text, letter);
  }
  if (reason == exponent && number_parse(text, &bytes) && bytes >= 1 && bytes < 9.2e18)
    return hri_hint(error, HR_ERROR_USAGE, "--%s %.0fB", f->name, bytes);
  return hri_hint(error, HR_ERROR_USAGE, "6GiB (2^30 bytes each), 6GB (10^9 bytes each), %sor a number of bytes",
                  f->second ? "90%, " : "");
}

/* What other trainers, papers and llama.cpp call a value of ours. Only those that the option has are offered. */
static const char *ours_for(const hr_field *f, const char *text) {
  static const struct {
    const char *theirs, *ours;
  } values[] = {
      {"float", "fp32"},
      {"float32", "fp32"},
      {"no", "fp32"},
      {"half", "fp16"},
      {"float16", "fp16"},
      {"16-mixed", "fp16"},
      {"bfloat16", "bf16"},
      {"bf16-mixed", "bf16"},
      {"mixed", "bf16"},
      {"bf16-true", "bf16-pure"},
      {"pure-bf16", "bf16-pure"},
      {"4bit", "nf4"},
      {"4", "nf4"},
      {"int4", "nf4"},
      {"bnb-4bit", "nf4"},
      {"8bit", "int8"},
      {"8", "int8"},
      {"bnb-8bit", "int8"},
      {"llm-int8", "int8"},
      {"adam", "adamw"},
      {"adamw-torch", "adamw"},
      {"adamw-torch-fused", "adamw"},
      {"adamw-hf", "adamw"},
      {"paged-adamw-32bit", "adamw"},
      {"adamw-8bit", "adamw8bit"},
      {"adamw-bnb-8bit", "adamw8bit"},
      {"paged-adamw-8bit", "adamw8bit"},
      {"lion-8bit", "lion8bit"},
      {"sdpa", "flash"},
      {"flash-attention-2", "flash"},
      {"flash2", "flash"},
      {"eager", "materialized"},
      {"true", "on"},
      {"false", "off"},
  };
  char plain[32];
  size_t length = 0;
  for (; text[length] && length + 1 < sizeof plain; length++)
    plain[length] = (char)(text[length] == '_' ? '-' : tolower((unsigned char)text[length]));
  plain[length] = 0;
  for (size_t k = 0; k < sizeof values / sizeof *values; k++)
    for (uint64_t i = 0; strcmp(plain, values[k].theirs) == 0 && f->words[i]; i++)
      if (strcmp(f->words[i], values[k].ours) == 0) return f->words[i];
  return NULL;
}

static hr_status read_choice(const hr_field *f, hr_value *v, const char *text, const char *where, hr_error *error) {
  char list[200] = "";
  size_t used = 0;
  hri_near search;
  hri_near_begin(&search, text);
  for (uint64_t i = 0; f->words[i]; i++) {
    if (strcmp(text, f->words[i]) == 0) {
      v->count = i;
      v->text = f->words[i];
      return HR_OK;
    }
    hri_near_offer(&search, f->words[i]);
    used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", f->words[i]);
  }
  hri_fail(error, HR_ERROR_USAGE, "%s: '%.80s' is not one of: %s", where, text, list);
  if (ours_for(f, text)) return hri_hint(error, HR_ERROR_USAGE, "--%s %s", f->name, ours_for(f, text));
  return hri_near_end(&search) ? hri_hint(error, HR_ERROR_USAGE, "--%s %s", f->name, hri_near_end(&search))
                               : HR_ERROR_USAGE;
}

static hr_status read_text(const hr_field *f, hr_value *v, const char *text, const char *where, hr_error *error) {
  const char *reason = f->refuses ? f->refuses(text) : NULL;
  v->text = text;
  if (!reason) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE, "%s: '%.80s' is %s", where, text, reason);
  return refuse(f, error);
}

hr_status hr_field_read(const hr_field *f, const char *text, const char *place, hr_value *value, hr_error *error) {
  char where[256];
  subject(f, place, where);
  memset(value, 0, sizeof *value);
  if (!text[0] && f->kind != HR_FIELD_TEXT) return hri_fail(error, HR_ERROR_USAGE, "%s: the value is empty", where);
  switch (f->kind) {
  case HR_FIELD_FLAG: return read_flag(f, value, text, where, error);
  case HR_FIELD_U32:
  case HR_FIELD_U64: return read_count(f, value, text, where, error);
  case HR_FIELD_NUMBER: return read_number(f, value, text, where, error);
  case HR_FIELD_SHARE: return read_share(f, value, text, where, error);
  case HR_FIELD_PAIR: return read_pair(f, value, text, where, error);
  case HR_FIELD_SIZE: return read_size(f, value, text, where, error);
  case HR_FIELD_CHOICE:
  case HR_FIELD_WORD: return read_choice(f, value, text, where, error);
  case HR_FIELD_RECOMPUTE: return hri_recompute_read(text, where, &value->recompute, error);
  case HR_FIELD_DEVICE:
  case HR_FIELD_TEXT:
  case HR_FIELD_NAME:
  case HR_FIELD_PATH:
  case HR_FIELD_PATHS: break;
  }
  return read_text(f, value, text, where, error);
}

/* ---- value and struct ---- */

void hr_field_load(const hr_field *f, const void *home, hr_value *v) {
  const char *at = (const char *)home + f->offset, *second = (const char *)home + f->second;
  uint32_t word = 0;
  memset(v, 0, sizeof *v);
  switch (f->kind) {
  case HR_FIELD_FLAG: memcpy(&v->flag, at, sizeof v->flag); return;
  case HR_FIELD_U32:
  case HR_FIELD_CHOICE:
    memcpy(&word, at, sizeof word);
    v->count = word;
    return;
  case HR_FIELD_U64: memcpy(&v->count, at, sizeof v->count); return;
  case HR_FIELD_SHARE:
  case HR_FIELD_NUMBER: memcpy(&v->number[0], at, sizeof(double)); return;
  case HR_FIELD_PAIR:
    memcpy(&v->number[0], at, sizeof(double));
    memcpy(&v->number[1], second, sizeof(double));
    return;
  case HR_FIELD_SIZE:
    memcpy(&v->count, at, sizeof v->count);
    if (f->second) memcpy(&v->number[0], second, sizeof(double));
    return;
  case HR_FIELD_RECOMPUTE:
    memcpy(&v->recompute, at, sizeof v->recompute);
    if (f->home == HR_HOME_JOB) v->layer_count = ((const hr_job *)home)->model.layer_count;
    return;
  case HR_FIELD_DEVICE: v->text = ((const hr_device *)(const void *)at)->name; return;
  case HR_FIELD_WORD:
  case HR_FIELD_TEXT:
  case HR_FIELD_NAME:
  case HR_FIELD_PATH: memcpy(&v->text, at, sizeof v->text); return;
  case HR_FIELD_PATHS:
    memcpy(&v->list, at, sizeof v->list);
    memcpy(&v->list_count, second, sizeof v->list_count);
    return;
  }
}

static void store_device(const char *name, void *at) {
  hr_device device = {0};
  (void)snprintf(device.name, sizeof device.name, "%s", name);
  memcpy(at, &device, sizeof device);
}

void hr_field_store(const hr_field *f, const hr_value *v, void *home) {
  char *at = (char *)home + f->offset, *second = (char *)home + f->second;
  uint32_t word = (uint32_t)v->count;
  switch (f->kind) {
  case HR_FIELD_FLAG: memcpy(at, &v->flag, sizeof v->flag); return;
  case HR_FIELD_U32:
  case HR_FIELD_CHOICE: memcpy(at, &word, sizeof word); return;
  case HR_FIELD_U64: memcpy(at, &v->count, sizeof v->count); return;
  case HR_FIELD_SHARE:
  case HR_FIELD_NUMBER: memcpy(at, &v->number[0], sizeof(double)); return;
  case HR_FIELD_PAIR:
    memcpy(at, &v->number[0], sizeof(double));
    memcpy(second, &v->number[1], sizeof(double));
    return;
  case HR_FIELD_SIZE:
    memcpy(at, &v->count, sizeof v->count);
    if (f->second) memcpy(second, &v->number[0], sizeof(double));
    return;
  case HR_FIELD_RECOMPUTE: memcpy(at, &v->recompute, sizeof v->recompute); return;
  case HR_FIELD_DEVICE: store_device(v->text, at); return;
  case HR_FIELD_WORD:
  case HR_FIELD_TEXT:
  case HR_FIELD_NAME:
  case HR_FIELD_PATH: memcpy(at, &v->text, sizeof v->text); return;
  case HR_FIELD_PATHS:
    memcpy(at, &v->list, sizeof v->list);
    memcpy(second, &v->list_count, sizeof v->list_count);
    return;
  }
}

bool hr_field_says_word(const hr_field *f, const hr_value *v) {
  const bool counts = f->kind == HR_FIELD_U32 || f->kind == HR_FIELD_U64;
  return counts ? word_of(f, v->count) != NULL : f->kind == HR_FIELD_NUMBER && number_word(f, v->number[0]);
}

bool hr_field_is_set(const hr_field *f, const hr_value *v) {
  switch (f->kind) {
  case HR_FIELD_SIZE: return v->count > 0 || v->number[0] > 0;
  case HR_FIELD_DEVICE: return v->text && v->text[0];
  case HR_FIELD_WORD:
  case HR_FIELD_TEXT:
  case HR_FIELD_NAME:
  case HR_FIELD_PATH: return v->text != NULL;
  case HR_FIELD_PATHS: return v->list_count > 0;
  case HR_FIELD_FLAG:
  case HR_FIELD_U32:
  case HR_FIELD_U64:
  case HR_FIELD_NUMBER:
  case HR_FIELD_SHARE:
  case HR_FIELD_PAIR:
  case HR_FIELD_CHOICE:
  case HR_FIELD_RECOMPUTE: break;
  }
  return true;
}

/* ---- value to text ---- */

/* The shortest decimal that reads as the same double. */
char *hri_number_text(double value, char out[40]) {
  for (int digits = 6; digits <= 17; digits++) {
    (void)hri_snprintf(out, 40, "%.*g", digits, value);
    if (hri_strtod(out, NULL) == value) break;
  }
  for (char *c = out; *c; c++)
    if (*c == ',') *c = '.'; /* whatever the locale of the host process */
  return out;
}

static void list_text(const hr_value *v, char *out, uint64_t bytes) {
  size_t used = 0;
  out[0] = 0;
  for (uint32_t i = 0; i < v->list_count && used + 1 < bytes; i++)
    used += (size_t)snprintf(out + used, (size_t)(bytes - used), "%s%s", i ? " " : "", v->list[i]);
}

char *hr_field_text(const hr_field *f, const hr_value *v, char *out, uint64_t bytes) {
  char first[40], second[40];
  const char *word;
  if (bytes == 0) return out;
  out[0] = 0;
  if (!hr_field_is_set(f, v)) return out;
  switch (f->kind) {
  case HR_FIELD_FLAG: (void)snprintf(out, (size_t)bytes, "%s", v->flag ? "true" : "false"); break;
  case HR_FIELD_U32:
  case HR_FIELD_U64:
    word = word_of(f, v->count);
    if (word) (void)snprintf(out, (size_t)bytes, "%s", word);
    else (void)snprintf(out, (size_t)bytes, "%llu", (unsigned long long)v->count);
    break;
  case HR_FIELD_SHARE:
  case HR_FIELD_NUMBER:
    word = number_word(f, v->number[0]);
    (void)snprintf(out, (size_t)bytes, "%s", word ? word : hri_number_text(v->number[0], first));
    break;
  case HR_FIELD_PAIR:
    (void)snprintf(out, (size_t)bytes, "%s,%s", hri_number_text(v->number[0], first),
                   hri_number_text(v->number[1], second));
    break;
  case HR_FIELD_SIZE:
    if (v->number[0] > 0) (void)hri_snprintf(out, (size_t)bytes, "%.10g%%", v->number[0] * 100);
    else
      (void)snprintf(out, (size_t)bytes, v->count < LEAST_PLAIN_BYTES ? "%lluB" : "%llu", (unsigned long long)v->count);
    break;
  case HR_FIELD_CHOICE:
    (void)snprintf(out, (size_t)bytes, "%s", v->count < word_count(f) ? f->words[v->count] : "unknown");
    break;
  case HR_FIELD_RECOMPUTE: (void)hr_recompute_text(&v->recompute, v->layer_count, out, bytes); break;
  case HR_FIELD_DEVICE:
  case HR_FIELD_WORD:
  case HR_FIELD_TEXT:
  case HR_FIELD_NAME:
  case HR_FIELD_PATH: (void)snprintf(out, (size_t)bytes, "%s", v->text); break;
  case HR_FIELD_PATHS: list_text(v, out, bytes); break;
  }
  return out;
}
