/* Values are compared as the texts that were written, by name, so that a message can say both and an older version's
 * file can still be read. */
#include "train/identity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/number.h"
#include "formats/digest.h"

enum { CONFIG_LIMIT_BYTES = 4 << 20, TEXT_BYTES = 256 };

uint64_t hri_model_digest(const hr_model *model) {
  char *text = hr_model_config_text(model, "float32");
  uint64_t value = text ? hri_file_digest_of(text, strlen(text)) : 0;
  hr_free(text);
  return value;
}

/* ---- writing ---- */

static void special_text(uint64_t value, char out[HRI_DIGEST_TEXT_BYTES]) {
  if (value) hri_file_digest_text(value, out);
  else (void)snprintf(out, HRI_DIGEST_TEXT_BYTES, "none");
}

/* As the identity has it: free text escaped, so that its bytes survive JSON. */
static bool value_of(const hr_field *f, const hr_job *job, const hr_run_options *options, hri_text *out) {
  hri_text plain = {0};
  bool set;
  if (f->kind != HR_FIELD_TEXT) return hri_field_text(f, hri_field_home(f, job, options), 0, out);
  set = hri_field_text(f, hri_field_home(f, job, options), 0, &plain);
  if (set) hri_field_escape(hri_text_get(&plain), out);
  out->failed = out->failed || plain.failed;
  hri_text_deinit(&plain);
  return set;
}

void hri_identity_put(hri_json_writer *w, const hr_job *job, const hr_run_options *options,
                      const hri_identity_facts *facts) {
  char digest[HRI_DIGEST_TEXT_BYTES];
  hri_json_key(w, "identity");
  hri_json_begin_object(w);
  for (int k = 0; k < HRI_SPECIAL_METRICS; k++) {
    special_text(facts->special[k], digest);
    hri_json_field_string(w, hri_specials[k].name, digest);
  }
  for (uint32_t k = 0; k < hr_field_count(); k++) {
    const hr_field *f = hri_field_filed(k);
    hri_text text = {0};
    if (f->identity == HR_IDENTITY_MATHEMATICS && value_of(f, job, options, &text))
      hri_json_field_string(w, f->name, hri_text_get(&text));
    if (text.failed) w->text->failed = true;
    hri_text_deinit(&text);
  }
  hri_json_end_object(w);
}

/* Where `text` is empty, nothing of this job's bits depends on it. `before`: what files that do not name it mean; NULL:
 * they leave it open. */
typedef struct machine_fact {
  const char *name, *what, *before;
  char text[80];
} machine_fact;

enum { MACHINE_FACTS = 5 };

static void machine_facts(const hr_job *job, const char *instruction_set, const char *libraries, bool halves,
                          machine_fact out[MACHINE_FACTS]) {
  out[0] = (machine_fact){.name = "instruction_set", .what = "the instruction set"};
  out[1] = (machine_fact){.name = "libraries", .what = "the libraries"};
  out[2] = (machine_fact){.name = "headroom", .what = "the version of Headroom"};
  out[3] = (machine_fact){.name = "threads", .what = "the threads"};
  /* One bf16 weight in 131,072 lies half way between two; earlier programs rounded it to even (hri_split). */
  out[4] = (machine_fact){.name = "masters", .what = "the masters", .before = "beside their copies"};
  if (halves) (void)strcpy(out[4].text, "in halves");
  (void)snprintf(out[0].text, sizeof out[0].text, "%s", instruction_set);
  (void)snprintf(out[1].text, sizeof out[1].text, "%s", libraries);
  (void)snprintf(out[2].text, sizeof out[2].text, "%s", hr_version());
  (void)snprintf(out[3].text, sizeof out[3].text, "%u", job->threads);
}

void hri_machine_put(hri_json_writer *w, const hr_job *job, const char *instruction_set, const char *libraries,
                     bool halves) {
  machine_fact facts[MACHINE_FACTS];
  machine_facts(job, instruction_set, libraries, halves, facts);
  hri_json_key(w, "machine");
  hri_json_begin_object(w);
  for (int k = 0; k < MACHINE_FACTS; k++)
    if (facts[k].text[0]) hri_json_field_string(w, facts[k].name, facts[k].text);
  hri_json_end_object(w);
}

void hri_machine_compare(const hri_json *then, const hr_job *job, const char *instruction_set, const char *libraries,
                         bool halves, hri_text *differences) {
  machine_fact facts[MACHINE_FACTS];
  hri_json machine;
  machine_facts(job, instruction_set, libraries, halves, facts);
  if (hri_json_get_object(then, "machine", &machine, NULL) != HR_OK) return; /* schema 1 did not say */
  for (int k = 0; k < MACHINE_FACTS; k++) {
    const char *text = facts[k].before;
    if (!facts[k].text[0]) continue;
    if (hri_json_member(&machine, facts[k].name).value &&
        hri_json_get_string(&machine, facts[k].name, &text, NULL) != HR_OK)
      continue;
    if (!text || strcmp(text, facts[k].text) == 0) continue;
    hri_text_add(differences, "%s%s (%s, then %s)", differences->length ? ", " : "", facts[k].what, text,
                 facts[k].text);
  }
}

/* ---- --allow-different ---- */

bool hri_is_allowed(const hr_run_options *options, const char *name) {
  const char *at = options->allow_different;
  size_t length = strlen(name);
  while (at && *at) {
    size_t word = strcspn(at, ",");
    if (word == length && memcmp(at, name, length) == 0) return true;
    at += word + (at[word] == ',');
  }
  return false;
}

hr_status hri_allowed_check(const hr_run_options *options, hr_error *error) {
  for (const char *at = options->allow_different; at && *at;) {
    size_t length = strcspn(at, ",");
    char name[64];
    hri_text names = {0};
    hr_status status;
    (void)snprintf(name, sizeof name, "%.*s", (int)length, at);
    at += length + (at[length] == ',');
    if (length < sizeof name && hri_identity_is_name(name)) continue;
    hri_identity_names(&names);
    status =
        hri_fail(error, HR_ERROR_USAGE, "--allow-different: '%.60s' is not one of %.600s", name, hri_text_get(&names));
    hri_text_deinit(&names);
    return status;
  }
  return HR_OK;
}

bool hri_steps_may_grow(const hr_job *job) {
  return job->schedule == HR_SCHEDULE_CONSTANT && (job->warmup == 0 || job->warmup >= 1);
}

/* ---- comparing ---- */

/* A member as text, however it was written: schema 1 had numbers and underscores. False: it is not there. */
static bool member_text(const hri_json *object, const char *name, char out[TEXT_BYTES]) {
  char old[64];
  hri_json member = hri_json_member(object, name);
  if (!member.value) {
    (void)snprintf(old, sizeof old, "%s", strcmp(name, "eps") == 0 ? "epsilon" : name);
    for (char *c = old; *c; c++)
      if (*c == '-') *c = '_';
    member = hri_json_member(object, old);
  }
  if (json_is_string(member.value)) (void)snprintf(out, TEXT_BYTES, "%s", json_string_value(member.value));
  else if (json_is_integer(member.value))
    (void)snprintf(out, TEXT_BYTES, "%lld", (long long)json_integer_value(member.value));
  else if (json_is_real(member.value)) (void)hri_number_text(json_real_value(member.value), out);
  else if (json_is_boolean(member.value))
    (void)snprintf(out, TEXT_BYTES, "%s", json_is_true(member.value) ? "true" : "false");
  else return false;
  return true;
}

/* What a word stands for, or the number itself: schema 1 had 4294967295 for off. */
static uint64_t number_of(const hr_field *f, const char *text) {
  for (size_t k = 0; f->words[k]; k++)
    if (strcmp(f->words[k], text) == 0) return f->word_values[k];
  return strtoull(text, NULL, 10);
}

static double real_of(const hr_field *f, const char *text) {
  for (size_t k = 0; f->word_numbers && f->words[k]; k++)
    if (strcmp(f->words[k], text) == 0) return f->word_numbers[k];
  return hri_strtod(text, NULL);
}

/* Numbers are compared as numbers: 1e-05 is 0.00001. */
static bool same_text(const hr_field *f, const char *a, const char *b) {
  if (strcmp(a, b) == 0) return true;
  if (f->words && f->kind == HR_FIELD_U32) return number_of(f, a) == number_of(f, b);
  return (f->kind == HR_FIELD_NUMBER || f->kind == HR_FIELD_SHARE) && real_of(f, a) == real_of(f, b);
}

static bool is_text(const hri_json *object, const char *name, const char *text) {
  const char *have = json_string_value(hri_json_member(object, name).value);
  return have && strcmp(have, text) == 0;
}

typedef struct differences {
  const hr_run_options *options;
  const hri_settled *settled; /* NULL: nothing is */
  hri_text list, *allowed;
  uint32_t count;
} differences;

static const char NOT_GIVEN[] = "not given";

static bool may_differ(const differences *d, const char *name, const char *now) {
  const hri_json *identity = d->settled ? &d->settled->identity : NULL;
  if (hri_is_allowed(d->options, name)) return true;
  if (!identity || !identity->value) return false;
  return is_text(identity, name, now) || (strcmp(now, NOT_GIVEN) == 0 && !hri_json_has(identity, name));
}

static void differ(differences *d, const char *name, const char *then, const char *now) {
  if (may_differ(d, name, now)) {
    hri_text_add(d->allowed, "%s%s %.60s -> %.60s", d->allowed->length ? ", " : "", name, then, now);
    return;
  }
  if (d->count++ < 4)
    hri_text_add(&d->list, "%s%s was %.60s and is %.60s", d->list.length ? "; " : "", name, then, now);
  else if (d->count == 5) hri_text_add(&d->list, "; and more");
}

static void compare_fields(differences *d, const hri_json *identity, const hr_job *job, const hr_run_options *options) {
  char then[TEXT_BYTES];
  for (uint32_t k = 0; k < hr_field_count(); k++) {
    const hr_field *f = hri_field_filed(k);
    hri_text now = {0};
    bool set, was;
    if (f->identity != HR_IDENTITY_MATHEMATICS) continue;
    set = value_of(f, job, options, &now);
    was = member_text(identity, f->name, then);
    if (set && was && f->kind == HR_FIELD_TEXT && is_text(identity, f->name, hri_text_get(&now)))
      was = set = false; /* however long */
    if (set && was && (f->kind == HR_FIELD_TEXT || !same_text(f, then, hri_text_get(&now))))
      differ(d, f->name, then, hri_text_get(&now));
    if (set && !was && f->kind == HR_FIELD_TEXT) differ(d, f->name, NOT_GIVEN, hri_text_get(&now));
    if (!set && was) differ(d, f->name, then, NOT_GIVEN);
    hri_text_deinit(&now);
  }
}

/* "rope_theta 10000 and 500000": the first members in which two descriptions differ. */
static void name_model_difference(const char *config, const hr_model *now, char out[TEXT_BYTES]) {
  hr_model before;
  char *a = NULL, *b = hr_model_config_text(now, "float32"), *bytes = NULL;
  uint64_t count;
  hri_json x = {0}, y = {0};
  const char *key;
  json_t *value;
  size_t used = 0;
  (void)snprintf(out, TEXT_BYTES, "another description");
  if (config && hri_file_read(config, CONFIG_LIMIT_BYTES, &bytes, &count, NULL) == HR_OK &&
      hr_model_parse(bytes, count, config, &before, NULL) == HR_OK)
    a = hr_model_config_text(&before, "float32");
  if (a && b && hri_json_parse(a, strlen(a), "a", &x, NULL) == HR_OK &&
      hri_json_parse(b, strlen(b), "b", &y, NULL) == HR_OK) {
    json_object_foreach(x.value, key, value) {
      json_t *other = json_object_get(y.value, key);
      char *then = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT),
           *is = other ? json_dumps(other, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
      if (used < TEXT_BYTES - 80 && then && (!is || strcmp(then, is) != 0))
        used += (size_t)snprintf(out + used, TEXT_BYTES - used, "%s%.40s %.30s, then %.30s", used ? "; " : "", key,
                                 then, is ? is : "nothing");
      hri_free(then);
      hri_free(is);
    }
  }
  hri_json_deinit(&x);
  hri_json_deinit(&y);
  hri_free(bytes);
  hr_free(a);
  hr_free(b);
}

static void compare_specials(differences *d, const hri_json *identity, const char *config, const hr_job *job,
                             const hri_identity_facts *facts) {
  for (int k = 0; k < HRI_SPECIAL_METRICS; k++) {
    char now[HRI_DIGEST_TEXT_BYTES], then[TEXT_BYTES], what[TEXT_BYTES];
    special_text(facts->special[k], now);
    if (!member_text(identity, hri_specials[k].name, then) || strcmp(then, now) == 0) continue;
    if (k == HRI_SPECIAL_MODEL && !may_differ(d, hri_specials[k].name, now)) {
      name_model_difference(config, &job->model, what);
      if (d->count++ < 4) hri_text_add(&d->list, "%smodel: %s", d->list.length ? "; " : "", what);
      continue;
    }
    differ(d, hri_specials[k].name, then, now);
  }
}

/* Schema 1 told models apart by their size alone. */
static void compare_old(differences *d, const hri_json *identity, const hr_job *job) {
  char then[TEXT_BYTES], now[TEXT_BYTES];
  if (member_text(identity, "parameter_count", then)) {
    (void)snprintf(now, sizeof now, "%llu", (unsigned long long)hr_model_parameter_count(&job->model));
    if (strcmp(then, now) != 0 && !hri_is_allowed(d->options, "model")) differ(d, "parameter_count", then, now);
  }
  if (member_text(identity, "beta1", then) && hri_strtod(then, NULL) != job->beta1) {
    (void)hri_snprintf(now, sizeof now, "%g", job->beta1);
    differ(d, "betas", then, now);
  }
  if (member_text(identity, "beta2", then) && hri_strtod(then, NULL) != job->beta2) {
    (void)hri_snprintf(now, sizeof now, "%g", job->beta2);
    differ(d, "betas", then, now);
  }
}

static void advise(const hri_settled *settled, hr_status status, hr_error *error) {
  if (settled && settled->later_step)
    hri_hint(
        error, status,
        "something was allowed to differ from step %llu on, behind this checkpoint: give its values from before, or name what may "
        "differ from here on: --allow-different NAME,...",
        (unsigned long long)settled->later_step);
  else
    hri_hint(
        error, status,
        "give what the run was started with (--resume RUN alone takes all of it over), or name what may differ: --allow-different NAME,...");
}

hr_status hri_identity_check(const hri_json *then, const char *config, const hr_job *job, const hr_run_options *options,
                             const hri_identity_facts *facts, const hri_settled *settled, hri_text *allowed,
                             hr_error *error) {
  differences d = {.options = options, .settled = settled, .allowed = allowed};
  hri_json identity;
  hr_status status = HR_OK;
  HRI_TRY(hri_json_get_object(then, "identity", &identity, error));
  compare_fields(&d, &identity, job, options);
  compare_specials(&d, &identity, config, job, facts);
  compare_old(&d, &identity, job);
  if (d.list.failed || allowed->failed) status = hri_fail_memory(error, d.list.length, "the comparison with the run");
  else if (d.count > 0) {
    status = hri_fail(error, HR_ERROR_USAGE, "this is another job than the run's: %.680s", hri_text_get(&d.list));
    advise(settled, status, error);
  }
  hri_text_deinit(&d.list);
  return status;
}
