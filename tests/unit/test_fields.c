/* The table of fields, walked: nothing here lists fields. Every row reads back what it writes, takes its default and
 * its words, refuses what is beyond its range by name, value and range, and stands where its class says: in the help of
 * its commands, in recipes, in JSON, in run.json. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <headroom/field.h>
#include <headroom/train.h>
#include <jansson.h>

#include "base/mem.h"
#include "job/fields.h"
#include "support/scratch.h"

typedef struct homes {
  hr_job job;
  hr_run_options run;
} homes;

static void *home_of(const hr_field *f, homes *h) { return f->home == HR_HOME_JOB ? (void *)&h->job : (void *)&h->run; }

static homes *made(void) {
  homes *h = calloc(1, sizeof *h);
  hr_job_init(&h->job);
  assert_int_equal(hr_model_preset("tiny-llama-bytes", &h->job.model, NULL), HR_OK);
  return h;
}

/* text -> value -> struct -> value -> text, and the same text once more. */
static void assert_round(const hr_field *f, const char *text, const char *want) {
  char first[HR_FIELD_TEXT_BYTES], second[HR_FIELD_TEXT_BYTES];
  homes *h = made();
  hr_error error;
  hr_value value, back;
  if (hr_field_read(f, text, NULL, &value, &error) != HR_OK) fail_msg("--%s %s: %s", f->name, text, error.message);
  if (f->kind == HR_FIELD_PATHS) { /* read one by one; lists are the caller's */
    const char *list[] = {value.text};
    value.list = list;
    value.list_count = 1;
    hr_field_store(f, &value, home_of(f, h));
    hr_field_load(f, home_of(f, h), &back);
    assert_string_equal(hr_field_text(f, &back, first, sizeof first), text);
    free(h);
    return;
  }
  hr_field_store(f, &value, home_of(f, h));
  hr_field_load(f, home_of(f, h), &back);
  hr_field_text(f, &back, first, sizeof first);
  if (want) assert_string_equal(first, want);
  if (!hr_field_is_set(f, &back)) fail_msg("--%s %s is not set", f->name, text);
  if (hr_field_read(f, first, NULL, &value, &error) != HR_OK)
    fail_msg("--%s %s, written as %s: %s", f->name, text, first, error.message);
  hr_field_store(f, &value, home_of(f, h));
  hr_field_load(f, home_of(f, h), &back);
  assert_string_equal(hr_field_text(f, &back, second, sizeof second), first);
  if (f->home == HR_HOME_JOB && f->kind != HR_FIELD_DEVICE) { /* the C API takes and gives the same */
    assert_int_equal(hr_job_set(&h->job, f->name, first, &error), HR_OK);
    assert_true((h->job.given & f->given) == f->given);
    assert_true(hr_job_get(&h->job, f->name, second, sizeof second));
    assert_string_equal(second, first);
  }
  free(h);
}

static void assert_out(const hr_field *f, const char *text, const char *named) {
  hr_error error = {0};
  hr_value value;
  char at[64];
  if (hr_field_read(f, text, "job.yaml:7", &value, &error) != HR_ERROR_USAGE) fail_msg("--%s took '%s'", f->name, text);
  (void)snprintf(at, sizeof at, "job.yaml:7: %s", f->name);
  if (!strstr(error.message, at) || !strstr(error.message, text) || (named && !strstr(error.message, named)))
    fail_msg("--%s %s: the message names not all of %s, the value and %s: %s", f->name, text, at,
             named ? named : "nothing else", error.message);
}

static uint64_t most_of(const hr_field *f) {
  return f->most ? f->most : f->kind == HR_FIELD_U32 ? UINT32_MAX - 1 : INT64_MAX;
}

static void walk_count(const hr_field *f) {
  char text[40], range[80];
  (void)snprintf(text, sizeof text, "%llu", (unsigned long long)most_of(f));
  assert_round(f, text, text);
  (void)snprintf(text, sizeof text, "%llu", (unsigned long long)(f->least ? f->least : 0));
  assert_round(f, text, NULL); /* where 0 is a word it is written as that */
  (void)snprintf(range, sizeof range, f->words ? "whole number" : "from %llu to %llu", (unsigned long long)f->least,
                 (unsigned long long)most_of(f));
  (void)snprintf(text, sizeof text, "%llu", (unsigned long long)most_of(f) + 1);
  assert_out(f, text, range);
  assert_out(f, "-1", range);
  assert_out(f, "1.5", range);
  if (f->least > 0 && !f->words) assert_out(f, "0", range);
  for (size_t k = 0; f->words && f->words[k]; k++) assert_round(f, f->words[k], NULL);
}

static void walk_number(const hr_field *f) {
  const char *second = f->kind == HR_FIELD_PAIR ? ",0.5" : "";
  char text[80];
  hr_error error;
  hr_value value;
  if (f->low == 0 && f->high == 0) fail_msg("--%s has no range", f->name);
  (void)snprintf(text, sizeof text, "%.17g%s", f->low + (f->high - f->low) / 3, second);
  assert_round(f, text, NULL);
  for (int end = 0; end < 2; end++) {
    bool open = end ? f->below_high : f->above_low;
    double at = end ? f->high : f->low;
    (void)snprintf(text, sizeof text, "%.17g%s", at, second);
    if (open != (hr_field_read(f, text, NULL, &value, &error) != HR_OK)) fail_msg("--%s %s", f->name, text);
    (void)snprintf(text, sizeof text, "%g", end ? f->high * 2 + 1 : f->low - 1);
    strcat(text, second);
    if (hr_field_read(f, text, NULL, &value, &error) != HR_ERROR_USAGE) fail_msg("--%s took %s", f->name, text);
    (void)snprintf(text, sizeof text, "%g", at);
    if (!strstr(error.message, f->name) || !strstr(error.message, text))
      fail_msg("--%s: '%s' does not name field and range", f->name, error.message);
  }
  const char *const none[] = {"nan",    "inf",         "0x10", "\v1", "1e400",
                              "1e-400", "-0.001e-323", "1e",   ".",   f->kind == HR_FIELD_SHARE ? "1e-323%" : "1e-324"};
  for (size_t k = 0; k < sizeof none / sizeof *none; k++) {
    (void)snprintf(text, sizeof text, "%s%s", none[k], second);
    assert_out(f, text, NULL);
  }
  assert_out(f, "hot", f->words ? f->words[0] : NULL);
  for (size_t k = 0; f->words && f->words[k]; k++) {
    assert_round(f, f->words[k], f->words[k]);
    (void)snprintf(text, sizeof text, "%.17g", f->word_numbers[k]);
    assert_out(f, text, f->words[k]); /* it has no number */
  }
}

static void walk_words(const hr_field *f) {
  hr_error error;
  hr_value value;
  for (size_t k = 0; f->words[k]; k++) {
    assert_round(f, f->words[k], f->words[k]);
    assert_int_equal(hr_field_read(f, f->words[k], NULL, &value, &error), HR_OK);
    if (f->kind == HR_FIELD_CHOICE) assert_int_equal(value.count, k);
  }
  assert_out(f, "nonsense", f->words[0]);
  if (f->kind != HR_FIELD_CHOICE) return;
  for (value.count = 0; f->words[value.count];) value.count++;
  assert_int_equal(hr_field_check(f, &value, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, f->name));
}

/* What people write for a count gets the numbers that it may stand for, in digits; those out of range are not offered. */
static void test_likely_counts(void **state) {
  static const struct {
    const char *field, *text, *hint;
  } cases[] = {
      {"seq", "1k", "in digits alone: 1024 or 1000"},
      {"seq", "2K", "in digits alone: 2048 or 2000"},
      {"seq", "1.5k", "in digits alone: 1536 or 1500"},
      {"seq", "4Ki", "in digits alone: 4096"},
      {"seq", "1M", "in digits alone: 1048576 or 1000000"},
      {"seq", "1,024", "in digits alone: 1024"},
      {"seq", "1_024", "in digits alone: 1024"},
      {"seq", "1e3", "in digits alone: 1000"},
      {"seq", "4T", "without --seq: the model's positions"},
      {"seq", "0k", "without --seq: the model's positions"},
      {"seq", "-1k", "without --seq: the model's positions"},
      {"seq", "kk", "without --seq: the model's positions"},
      {"seq", ".", "without --seq: the model's positions"},
      {"seq", "1kx", "without --seq: the model's positions"},
      {"steps", "10k", "in digits alone: 10240 or 10000"},
      {"steps", "ten", "without --steps: from --epochs"},
      {"keep", "-1", "without --keep: 2; --keep 0: all"},
      {"micro-batch", "1k", "in digits alone: 1024 or 1000"},
      {"warmup", "10%", "10% is 0.1"},
      {"min-lr-ratio", "2.5%", "2.5% is 0.025"},
      {"batch-tokens", "512k", "in digits alone: 524288 or 512000"},
  };
  hr_value value;
  hr_error error;
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_int_equal(hr_field_read(hr_field_find(cases[i].field), cases[i].text, NULL, &value, &error), HR_ERROR_USAGE);
    if (strncmp(error.hint, cases[i].hint, strlen(cases[i].hint)) != 0 ||
        (cases[i].hint[0] == 'i' && strcmp(error.hint, cases[i].hint) != 0))
      fail_msg("--%s %s: '%s'", cases[i].field, cases[i].text, error.hint);
  }
}

static void test_every_row_reads_what_it_writes(void **state) {
  (void)state;
  for (uint32_t k = 0; k < hr_field_count(); k++) {
    const hr_field *f = hr_field_get(k);
    if (f->initial && !f->zero) assert_round(f, f->initial, NULL);
    switch (f->kind) {
    case HR_FIELD_SHARE:
      assert_round(f, "0.25", "0.25");
      assert_round(f, "50%", "0.5");
      assert_out(f, "%", NULL);
      assert_out(f, "x%", NULL);
      break;
    case HR_FIELD_FLAG:
      assert_round(f, "true", "true");
      assert_round(f, "no", "false");
      assert_out(f, "maybe", NULL);
      break;
    case HR_FIELD_U32:
    case HR_FIELD_U64: walk_count(f); break;
    case HR_FIELD_NUMBER:
    case HR_FIELD_PAIR: walk_number(f); break;
    case HR_FIELD_SIZE:
      assert_round(f, "6GiB", "6442450944");
      assert_round(f, "37%", "37%");
      assert_out(f, "101%", "share");
      assert_out(f, "0", "0 bytes");
      break;
    case HR_FIELD_CHOICE:
    case HR_FIELD_WORD: walk_words(f); break;
    case HR_FIELD_RECOMPUTE:
      for (size_t i = 0; f->suggested[i]; i++)
        if (!strchr(f->suggested[i], ':')) assert_round(f, f->suggested[i], f->suggested[i]);
      assert_round(f, "every:2", "every:2");
      assert_round(f, "levels:keep*2,mlp", "levels:keep*2,mlp*2");
      assert_out(f, "nonsense", NULL);
      break;
    case HR_FIELD_TEXT: assert_round(f, "--a text, of \xFF bytes", "--a text, of \xFF bytes"); break;
    case HR_FIELD_DEVICE:
    case HR_FIELD_NAME:
    case HR_FIELD_PATH:
    case HR_FIELD_PATHS: assert_round(f, "some-name", "some-name"); break;
    }
  }
}

static void test_rows_are_whole(void **state) {
  (void)state;
  for (uint32_t k = 0; k < hr_field_count(); k++) {
    const hr_field *f = hr_field_get(k);
    bool text = f->kind == HR_FIELD_FLAG;
    assert_non_null(f->group);
    assert_non_null(f->help);
    if (text != (f->operand == NULL)) fail_msg("--%s: a flag has no operand, all else has one", f->name);
    if (f->commands == 0) fail_msg("--%s is of no command", f->name);
    if ((f->kind == HR_FIELD_CHOICE || f->kind == HR_FIELD_WORD) && !f->words) fail_msg("--%s has no words", f->name);
    if (f->identity == HR_IDENTITY_MATHEMATICS && f->effect == HR_EFFECT_SAME_BITS)
      fail_msg("--%s is compared although it gives the same bits", f->name);
    if (f->keep == HR_KEEP_GIVEN && !f->given) fail_msg("--%s: nothing tells whether it was given", f->name);
    for (uint32_t other = 0; other < k; other++) {
      const hr_field *o = hr_field_get(other);
      if (strcmp(o->name, f->name) == 0) fail_msg("two rows are called %s", f->name);
      if (o->home == f->home && o->offset == f->offset) fail_msg("%s and %s lie at one place", o->name, f->name);
      if (f->given && (o->given & f->given)) fail_msg("%s and %s are marked by one bit", o->name, f->name);
      if (f->said && o->said == f->said) fail_msg("%s and %s have one place among changes", o->name, f->name);
    }
  }
}

/* Each member of a job that a person may choose is found by its row: another default would show here. */
static void test_defaults_are_legal(void **state) {
  homes *h = made();
  hr_error error;
  (void)state;
  for (uint32_t k = 0; k < hr_field_count(); k++) {
    const hr_field *f = hr_field_get(k);
    if (f->home == HR_HOME_JOB && f->initial && !hri_field_is_default(f, &h->job))
      fail_msg("--%s is not made as %s", f->name, f->initial);
  }
  if (hr_job_finish(&h->job, &error) != HR_OK) fail_msg("%s", error.message);
  assert_true(h->job.device.usable_now); /* of the name */
  free(h);
}

/* hr_job_finish refuses by the same rows what was put into the struct directly. */
static void test_finish_checks_every_range(void **state) {
  (void)state;
  for (uint32_t k = 0; k < hr_field_count(); k++) {
    const hr_field *f = hr_field_get(k);
    homes *h = made();
    hr_error error = {0};
    hr_value value;
    char named[64];
    if (f->home != HR_HOME_JOB) goto next;
    hr_field_load(f, &h->job, &value);
    if (f->kind == HR_FIELD_NUMBER || f->kind == HR_FIELD_SHARE || f->kind == HR_FIELD_PAIR)
      value.number[f->kind == HR_FIELD_PAIR] = NAN;
    else if (f->kind == HR_FIELD_CHOICE) value.count = 99;
    else if (f->kind == HR_FIELD_U64 && most_of(f) < UINT64_MAX) value.count = UINT64_MAX;
    else if (f->kind == HR_FIELD_U32 && most_of(f) < UINT32_MAX && !f->words) value.count = most_of(f) + 1;
    else if (f->kind == HR_FIELD_RECOMPUTE) value.recompute.kind = (hr_recompute_kind)99;
    else goto next;
    hr_field_store(f, &value, &h->job);
    if (hr_job_finish(&h->job, &error) != HR_ERROR_USAGE) fail_msg("a job with a bad %s is finished", f->name);
    (void)snprintf(named, sizeof named, "--%s", f->name);
    if (!strstr(error.message, named)) fail_msg("%s: %s", f->name, error.message);
  next:
    free(h);
  }
}

/* ---- changes as options ---- */

/* For every row another value than the default, if it has one that a single text can say. */
static bool other_value(const hr_field *f, char out[80]) {
  out[0] = 0;
  if (f->home != HR_HOME_JOB || f->kind == HR_FIELD_DEVICE) return false;
  if (f->kind == HR_FIELD_CHOICE) (void)snprintf(out, 80, "%s", f->words[strcmp(f->words[0], f->initial) == 0 ? 1 : 0]);
  else if (f->kind == HR_FIELD_FLAG) (void)snprintf(out, 80, "true");
  else if (f->kind == HR_FIELD_U32 || f->kind == HR_FIELD_U64)
    (void)snprintf(out, 80, "%llu", (unsigned long long)f->least + 16);
  else if (f->kind == HR_FIELD_NUMBER || f->kind == HR_FIELD_SHARE)
    (void)snprintf(out, 80, "%.17g", f->low + (f->high < 8 ? f->high : 8) / 3);
  else if (f->kind == HR_FIELD_PAIR) (void)snprintf(out, 80, "0.25,0.5");
  else if (f->kind == HR_FIELD_SIZE) (void)snprintf(out, 80, "12345678");
  else if (f->kind == HR_FIELD_RECOMPUTE) (void)snprintf(out, 80, "block");
  return out[0] != 0;
}

static void test_changes_are_options_and_back(void **state) {
  homes *before = made(), *all = made();
  char text[HR_FIELD_TEXT_BYTES], value[80];
  uint32_t tried = 0;
  (void)state;
  for (uint32_t k = 0; k < hr_field_count(); k++) {
    const hr_field *f = hr_field_get(k);
    homes *after, *again;
    char want[160];
    if (!other_value(f, value)) continue;
    after = made();
    again = made();
    assert_int_equal(hr_job_set(&after->job, f->name, value, NULL), HR_OK);
    assert_int_equal(hr_job_set(&all->job, f->name, value, NULL), HR_OK);
    hr_job_options(&before->job, &after->job, text, sizeof text);
    (void)snprintf(want, sizeof want, "--%s%s", f->name, f->kind == HR_FIELD_FLAG ? "" : " ");
    if (strncmp(text, want, strlen(want)) != 0 || strstr(text + 2, " --"))
      fail_msg("--%s %s is said as '%s'", f->name, value, text);
    assert_int_equal(hr_job_set_options(&again->job, text, NULL), HR_OK);
    assert_memory_equal(&again->job, &after->job, sizeof(hr_job));
    assert_int_equal(hr_job_effect(&before->job, &after->job), f->effect);
    free(after);
    free(again);
    tried++;
  }
  assert_true(tried > 20);
  hr_job_options(&before->job, &all->job, text, sizeof text);
  assert_int_equal(hr_job_set_options(&before->job, text, NULL), HR_OK);
  assert_memory_equal(&before->job, &all->job, sizeof(hr_job));
  assert_string_equal(hr_job_options(&all->job, &all->job, text, sizeof text), "");
  free(before);
  free(all);
}

static void test_options_are_refused_whole(void **state) {
  homes *h = made(), *same = made();
  hr_error error;
  (void)state;
  assert_int_equal(hr_job_set_options(&h->job, "--lr 1e-3 --micro-bacth 2", &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, "micro-bacth"));
  assert_string_equal(error.hint, "micro-batch");
  assert_int_equal(hr_job_set_options(&h->job, "--lr 1e-3 --seq", &error), HR_ERROR_USAGE);
  assert_int_equal(hr_job_set_options(&h->job, "--lr 1e-3 seq 3", &error), HR_ERROR_USAGE);
  assert_int_equal(hr_job_set(&h->job, "data", "x", &error), HR_ERROR_USAGE); /* of a run, not of a job */
  assert_non_null(strstr(error.hint, "hr_run_options"));
  assert_int_equal(hr_job_set(&h->job, "sequence-of-tokens", "x", &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.hint, "hr_field_get"));
  assert_int_equal(hr_job_set(&h->job, "micro-bacth", "2", &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.hint, "micro-batch"));
  assert_int_equal(hr_job_set(&h->job, "lr", "-1", &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, "--lr is -1; it must lie between 0 and 1000"));
  assert_memory_equal(h, same, sizeof *h);
  free(h);
  free(same);
}

/* What a finished job made of its rows is no change that anybody chose. */
static void test_what_follows_is_not_said(void **state) {
  homes *h = made();
  hr_job base, half;
  char text[HR_FIELD_TEXT_BYTES];
  (void)state;
  h->job.micro_batch = 8;
  h->job.with_generation = true;
  assert_int_equal(hr_job_finish(&h->job, NULL), HR_OK);
  base = half = h->job;
  half.micro_batch = 4;
  half.sequence_length /= 2;
  assert_int_equal(hr_job_finish(&half, NULL), HR_OK);
  assert_int_equal(half.context_length, half.sequence_length);
  assert_string_equal(hr_job_options(&base, &half, text, sizeof text), "--micro-batch 4 --seq 512");
  half.context_length = 100;
  assert_int_equal(hr_job_finish(&half, NULL), HR_OK);
  assert_string_equal(hr_job_options(&base, &half, text, sizeof text), "--micro-batch 4 --seq 512 --context 100");
  free(h);
}

/* A job that is finished again for other rows is the one that begins with them: no chunk or context of the old ones is left.
 * What was given stays. */
static void test_finishing_again_follows_the_rows(void **state) {
  static const struct {
    uint32_t sequence, rows;
  } sizes[] = {{8, 1}, {8, 10}, {1024, 64}, {64, 1}, {512, 1}, {512, 4}};
  hr_error error;
  (void)state;
  for (int given = 0; given < 2; given++) {
    homes *h = made();
    h->job.with_generation = true;
    assert_int_equal(hr_job_set(&h->job, "budget", "1GiB", &error),
                     HR_OK); /* what is usable is another number at once */
    if (given) assert_int_equal(hr_job_set(&h->job, "loss-chunk", "33", &error), HR_OK);
    if (given) assert_int_equal(hr_job_set(&h->job, "context", "77", &error), HR_OK);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
      homes *fresh = made();
      char text[HR_FIELD_TEXT_BYTES], want[HR_FIELD_TEXT_BYTES];
      fresh->job.with_generation = true;
      assert_int_equal(hr_job_set(&fresh->job, "budget", "1GiB", &error), HR_OK);
      if (given) assert_int_equal(hr_job_set(&fresh->job, "loss-chunk", "33", &error), HR_OK);
      if (given) assert_int_equal(hr_job_set(&fresh->job, "context", "77", &error), HR_OK);
      h->job.sequence_length = fresh->job.sequence_length = sizes[i].sequence;
      h->job.micro_batch = fresh->job.micro_batch = sizes[i].rows;
      assert_int_equal(hr_job_finish(&fresh->job, &error), HR_OK);
      if (hr_job_finish(&h->job, &error) != HR_OK) fail_msg("%s", error.message);
      for (uint32_t k = 0; k < hr_field_count(); k++) {
        const char *name = hr_field_get(k)->name;
        if (!hr_job_get(&fresh->job, name, want, sizeof want)) continue;
        (void)hr_job_get(&h->job, name, text, sizeof text);
        if (strcmp(text, want) != 0) fail_msg("case %d: --%s is %s, and %s of a new job", (int)i, name, text, want);
      }
      free(fresh);
    }
    free(h);
  }
}

/* Jobs that nobody finished have no rows yet: nothing is divided by them. */
static void test_jobs_without_rows(void **state) {
  homes *before = made(), *after = made();
  char text[HR_FIELD_TEXT_BYTES];
  hr_error error;
  (void)state;
  before->job.sequence_length = after->job.sequence_length = 0;
  assert_int_equal(hr_job_set(&after->job, "loss-chunk", "auto", &error), HR_OK);
  assert_string_equal(hr_job_options(&before->job, &after->job, text, sizeof text), "");
  assert_int_equal(hr_job_effect(&before->job, &after->job), HR_EFFECT_SAME_BITS);
  free(before);
  free(after);
}

/* ---- where a row is seen ---- */

static char *output_of(const char *arguments) {
  char command[1024], *all = NULL;
  size_t used = 0, got;
  FILE *pipe;
  (void)snprintf(command, sizeof command, "%s %s 2>/dev/null", HR_PROGRAM, arguments);
  pipe = popen(command, "r");
  assert_non_null(pipe);
  do {
    all = realloc(all, used + 65537);
    got = fread(all + used, 1, 65536, pipe);
    used += got;
  } while (got > 0);
  all[used] = 0;
  (void)pclose(pipe);
  return all;
}

static void test_every_row_stands_where_its_class_says(void **state) {
  static const struct {
    const char *name;
    uint32_t bit;
  } commands[] = {{"plan", HR_FOR_PLAN},         {"train", HR_FOR_TRAIN},     {"evaluate", HR_FOR_EVALUATE},
                  {"generate", HR_FOR_GENERATE}, {"devices", HR_FOR_DEVICES}, {"explain", HR_FOR_EXPLAIN},
                  {"inspect", HR_FOR_INSPECT}};
  char *man = output_of("help --man"), *bash = output_of("help --completion bash"),
       *recipe = output_of("train --show-config");
  char *json_text = output_of("plan micro-llama-bytes --device a100-80 --json"),
       *pages[sizeof commands / sizeof *commands], words[96], arguments[64];
  json_t *json = json_loads(json_text, 0, NULL), *job = json_object_get(json, "job");
  (void)state;
  for (size_t c = 0; c < sizeof commands / sizeof *commands; c++) {
    (void)snprintf(arguments, sizeof arguments, "help %s", commands[c].name);
    pages[c] = output_of(arguments);
  }
  for (uint32_t k = 0; k < hr_field_count(); k++) {
    const hr_field *f = hr_field_get(k);
    char key[64];
    for (size_t c = 0; c < sizeof commands / sizeof *commands; c++) {
      (void)snprintf(words, sizeof words,
                     f->positional ? "\n  %s "
                     : f->operand  ? "\n  --%s %s"
                                   : "\n  --%s",
                     f->positional ? f->operand : f->name, f->operand);
      if ((f->commands & commands[c].bit) && !strstr(pages[c], words))
        fail_msg("--%s is not in the help of %s", f->name, commands[c].name);
    }
    (void)snprintf(words, sizeof words, "--%s", f->name);
    if (!f->positional && !strstr(bash, words)) fail_msg("--%s is not completed", f->name);
    (void)snprintf(words, sizeof words, "%s: ", f->name);
    if ((f->commands & HR_FOR_TRAIN) && !f->flag_only && !strstr(recipe, words))
      fail_msg("%s is not in --show-config", f->name);
    (void)snprintf(key, sizeof key, "%s", f->name);
    for (char *c = key; *c; c++)
      if (*c == '-') *c = '_';
    if ((f->commands & HR_FOR_PLAN) && !json_object_get(job, key)) fail_msg("%s is not in plan --json", f->name);
    words[0] = 0;
    for (const char *c = f->name; *c; c++)
      (void)snprintf(words + strlen(words), sizeof words - strlen(words), *c == '-' ? "\\-" : "%c", *c);
    if (!f->positional && !strstr(man, words)) fail_msg("--%s is not in the manual page", f->name);
  }
  for (size_t c = 0; c < sizeof commands / sizeof *commands; c++) free(pages[c]);
  json_decref(json);
  free(json_text);
  free(man);
  free(bash);
  free(recipe);
}

/* Adapters exclude each other, and --freeze; --tokenizer is for a model of ids that this one lacks: cli_test_lora and cli_test_named
 * resume with them. */
static bool elsewhere(const hr_field *f) {
  return strcmp(f->name, "adapter") == 0 || strcmp(f->name, "lora") == 0 || strcmp(f->name, "tokenizer") == 0;
}

static void test_files_hold_what_a_resume_needs(void **state) {
  const char *directory = scratch_make("fields");
  char arguments[700 + 2 * PATH_BYTES];
  json_t *root, *job, *options, *identity;
  char *text;
  (void)state;
  (void)snprintf(
      arguments, sizeof arguments,
      "train micro-llama-bytes --seq 16 --freeze embed --train-only layers.0 --steps 1 --threads 1 --quiet --data %s/../README.md --eval-data %s/../README.md --eval-batches 1 --data-cache %s/cache "
      "--document-separator x --chat-template chatml --sample hi --out %s/run",
      HR_TEST_DATA, HR_TEST_DATA, directory, directory);
  free(output_of(arguments));
  root = json_load_file(path_of("%s/run/run.json", directory), 0, NULL);
  if (!root) fail_msg("no run.json");
  job = json_object_get(root, "job");
  options = json_object_get(root, "options");
  identity = json_object_get(root, "identity");
  for (uint32_t k = 0; k < hr_field_count(); k++) {
    const hr_field *f = hr_field_get(k);
    bool kept = !elsewhere(f) && (f->keep == HR_KEEP || (f->given && f->given == HR_GIVEN_THREADS));
    char key[64];
    (void)snprintf(key, sizeof key, "%s", f->kind == HR_FIELD_PAIR ? "beta1" : f->name);
    for (char *c = key; *c; c++)
      if (*c == '-') *c = '_';
    if (f->home == HR_HOME_JOB && f->kind != HR_FIELD_DEVICE && !elsewhere(f) &&
        (f->keep != HR_KEEP_NEVER) != (json_object_get(job, key) != NULL))
      fail_msg("%s in the job of run.json", f->name);
    if (!f->positional && kept != (json_object_get(options, f->name) != NULL))
      fail_msg("%s among the options of run.json", f->name);
    if (f->identity == HR_IDENTITY_MATHEMATICS && !elsewhere(f) && !json_object_get(identity, f->name))
      fail_msg("%s is not in the identity", f->name);
    if (f->identity != HR_IDENTITY_MATHEMATICS && json_object_get(identity, f->name) && !hri_identity_is_name(f->name))
      fail_msg("%s is in the identity", f->name);
    if (f->identity == HR_IDENTITY_MATHEMATICS && !hri_identity_is_name(f->name))
      fail_msg("--allow-different does not know %s", f->name);
  }
  json_decref(root);
  (void)snprintf(arguments, sizeof arguments, "train --resume %s/run --show-config",
                 directory); /* and the resume takes it over */
  text = output_of(arguments);
  for (uint32_t k = 0; k < hr_field_count(); k++) {
    const hr_field *f = hr_field_get(k);
    char line[96];
    const char *at;
    if (f->keep != HR_KEEP || f->positional || elsewhere(f)) continue;
    (void)snprintf(line, sizeof line, "\n%s: ", f->name);
    at = strstr(text, line);
    if (!at || !strstr(at + 1, "# run ") || strchr(at + 1, '\n') < strstr(at + 1, "# run "))
      fail_msg("%s does not come from the run", f->name);
  }
  free(text);
  scratch_remove(directory);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_likely_counts),
      cmocka_unit_test(test_every_row_reads_what_it_writes),
      cmocka_unit_test(test_rows_are_whole),
      cmocka_unit_test(test_defaults_are_legal),
      cmocka_unit_test(test_finish_checks_every_range),
      cmocka_unit_test(test_changes_are_options_and_back),
      cmocka_unit_test(test_options_are_refused_whole),
      cmocka_unit_test(test_what_follows_is_not_said),
      cmocka_unit_test(test_finishing_again_follows_the_rows),
      cmocka_unit_test(test_jobs_without_rows),
      cmocka_unit_test(test_every_row_stands_where_its_class_says),
      cmocka_unit_test(test_files_hold_what_a_resume_needs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
