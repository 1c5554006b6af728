/* The table itself. A new option of a job is one row here; what reads it (run.json, state.json, a resume) needs no change. */
#include "job/fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define JOB(n, k, member, id) .name = n, .kind = HRI_FIELD_##k, .offset = offsetof(hr_job, member), .identity = HRI_IDENTITY_##id
#define RUN(n, k, member, id) .name = n, .kind = HRI_FIELD_##k, .of_run = true, .offset = offsetof(hr_run_options, member), .identity = HRI_IDENTITY_##id
#define NAMES(f) .value_name = f

_Static_assert(offsetof(hr_job, beta2) == offsetof(hr_job, beta1) + sizeof(double), "BETAS reads two doubles");
_Static_assert(offsetof(hr_run_options, data_path_count) == offsetof(hr_run_options, data_paths) + sizeof(void *), "PATHS reads the count behind the list");
_Static_assert(offsetof(hr_run_options, eval_path_count) == offsetof(hr_run_options, eval_paths) + sizeof(void *), "PATHS reads the count behind the list");
_Static_assert(sizeof(hr_precision) == sizeof(int), "ENUM copies an int");

static const char *precision(int v) { return hr_precision_name((hr_precision)v); }
static const char *moments(int v) { return hr_moments_name((hr_moments)v); }
static const char *weight_packing(int v) { return hr_weight_packing_name((hr_weight_packing)v); }
static const char *attention(int v) { return hr_attention_name((hr_attention)v); }
static const char *optimizer(int v) { return hr_optimizer_name((hr_optimizer)v); }
static const char *update(int v) { return v == HR_UPDATE_IN_BACKWARD ? "in-backward" : "after"; }
static const char *schedule(int v) { return hr_schedule_name((hr_schedule)v); }
static const char *packing(int v) { return hr_packing_name((hr_packing)v); }
static const char *on_nonfinite(int v) { return hr_on_nonfinite_name((hr_on_nonfinite)v); }
static const char *format(int v) { return v == HR_DATA_AUTO ? "auto" : hr_data_format_name((hr_data_format)v); }
static const char *loss_scope(int v) { return hr_loss_scope_name((hr_loss_scope)v); }
static const char *truncate_name(int v) { return hr_truncate_name((hr_truncate)v); }

/* `attention` counts as mathematics: the two ways add in another order. So do `micro-batch` and `loss-chunk`; `recompute`,
 * `update` and `weight-packing` give the same bits (tests/unit/test_bits.c). */
static const hri_field fields[] = {
    {JOB("seq", U32, sequence_length, MATHEMATICS)},
    {JOB("micro-batch", U32, micro_batch, MATHEMATICS)},
    {JOB("accumulate", U32, accumulate, MATHEMATICS)},
    {JOB("budget", U64, budget_bytes, FREE), .keep = HRI_KEEP_GIVEN},
    {JOB("precision", ENUM, precision, MATHEMATICS), NAMES(precision)},
    {JOB("moments", ENUM, moments, MATHEMATICS), NAMES(moments)},
    {JOB("weight-packing", ENUM, weight_packing, FREE), NAMES(weight_packing)},
    {JOB("recompute", RECOMPUTE, recompute, FREE)},
    {JOB("attention", ENUM, attention, MATHEMATICS), NAMES(attention)},
    {JOB("loss-chunk", CHUNK, loss_chunk, MATHEMATICS)},
    {JOB("threads", U32, threads, MACHINE), .keep = HRI_KEEP_GIVEN, .given = HR_GIVEN_THREADS},
    {JOB("check", BOOL, check, FREE)},
    {JOB("optimizer", ENUM, optimizer, MATHEMATICS), NAMES(optimizer)},
    {JOB("betas", BETAS, beta1, MATHEMATICS)},
    {JOB("eps", DOUBLE, epsilon, MATHEMATICS)},
    {JOB("weight-decay", DOUBLE, weight_decay, MATHEMATICS)},
    {JOB("momentum", DOUBLE, momentum, MATHEMATICS)},
    {JOB("update", ENUM, update, FREE), NAMES(update)},
    {JOB("lr", DOUBLE, learning_rate, MATHEMATICS)},
    {JOB("schedule", ENUM, schedule, MATHEMATICS), NAMES(schedule)},
    {JOB("warmup", DOUBLE, warmup, MATHEMATICS)},
    {JOB("decay", DOUBLE, decay, MATHEMATICS)},
    {JOB("min-lr-ratio", DOUBLE, min_lr_ratio, MATHEMATICS)},
    {JOB("clip", DOUBLE, clip, MATHEMATICS)},
    {JOB("on-nonfinite", ENUM, on_nonfinite, MATHEMATICS), NAMES(on_nonfinite)},
    {JOB("max-skipped", U32, max_skipped, MATHEMATICS)},
    {JOB("steps", U64, steps, FREE)},   /* the number that results is compared by its own rule: see hri_steps_may_differ */
    {JOB("epochs", DOUBLE, epochs, FREE)},
    {JOB("seed", U64, seed, MATHEMATICS)},
    {JOB("shuffle", BOOL, shuffle, MATHEMATICS)},
    {JOB("packing", ENUM, packing, MATHEMATICS), NAMES(packing)},
    {RUN("data", PATHS, data_paths, FREE)}, /* the bytes decide, not where they lie */
    {RUN("eval-data", PATHS, eval_paths, FREE)},
    {RUN("eval-every", U64, eval_every, FREE)},
    {RUN("eval-batches", U64, eval_batches, FREE)},
    {RUN("format", ENUM, data.format, MATHEMATICS), NAMES(format)},
    {RUN("document-separator", TEXT, data.document_separator, MATHEMATICS)},
    {RUN("chat-template", TEXT, data.chat_template, FREE)}, /* its text is part of `tokenizer` */
    {RUN("loss", ENUM, data.loss, MATHEMATICS), NAMES(loss_scope)},
    {RUN("truncate", ENUM, data.truncate, MATHEMATICS), NAMES(truncate_name)},
    {RUN("skip-bad", BOOL, data.skip_bad, MATHEMATICS)},
    {RUN("data-cache", TEXT, data.cache_directory, FREE)},
    {RUN("save-every", U64, save_every, FREE)},
    {RUN("keep", U32, keep, FREE)},
    {RUN("save-dtype", TEXT, save_dtype, FREE)},
    {RUN("sample", TEXT, sample_prompt, FREE)},
    {RUN("record-memory", BOOL, record_memory, FREE), .keep = HRI_KEEP_NEVER},
    {RUN("profile", TEXT, profile_path, FREE), .keep = HRI_KEEP_NEVER},
};

const hri_special hri_specials[HRI_SPECIALS] = {
    {"model", HRI_IDENTITY_MATHEMATICS, "the description of the model"},
    {"data", HRI_IDENTITY_MATHEMATICS, "the bytes of the training data"},
    {"tokenizer", HRI_IDENTITY_MATHEMATICS, "the tokenizer and the chat template"},
    {"eval-data", HRI_IDENTITY_MATHEMATICS, "the bytes of the evaluation data"},
    {"metrics", HRI_IDENTITY_MATHEMATICS, "the text of metrics.jsonl up to the checkpoint"},
};

uint32_t hri_field_count(void) { return sizeof fields / sizeof *fields; }
const hri_field *hri_field_get(uint32_t index) { return &fields[index]; }

const hri_field *hri_field_find(const char *name) {
  for (uint32_t k = 0; k < hri_field_count(); k++)
    if (strcmp(fields[k].name, name) == 0) return &fields[k];
  return NULL;
}

bool hri_field_is_kept(const hri_field *f, const hr_job *job) {
  if (f->keep != HRI_KEEP_GIVEN) return f->keep == HRI_KEEP;
  return f->given ? (job->given & f->given) != 0 : job->budget_given;
}

/* ---- values as text ---- */

void hri_field_escape(const char *text, hri_text *out) {
  for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
    if (*c == '\\') hri_text_add(out, "\\\\");
    else if (*c < 0x20 || *c >= 0x7f) hri_text_add(out, "\\x%02x", *c);
    else hri_text_add(out, "%c", *c);
  }
}

char *hri_number_text(double value, char out[40]) {
  for (int digits = 6; digits <= 17; digits++) {
    (void)snprintf(out, 40, "%.*g", digits, value);
    if (strtod(out, NULL) == value) break;
  }
  for (char *c = out; *c; c++)
    if (*c == ',') *c = '.'; /* whatever the locale of the host process */
  return out;
}

static void add_number(hri_text *out, double value) { hri_text_add(out, "%s", hri_number_text(value, (char[40]){0})); }

static void add_chunk(hri_text *out, uint32_t chunk) {
  if (chunk == HR_LOSS_CHUNK_AUTO) hri_text_add(out, "auto");
  else if (chunk == HR_LOSS_CHUNK_OFF) hri_text_add(out, "off");
  else hri_text_add(out, "%u", chunk);
}

static void add_recompute(hri_text *out, const hr_job *job) {
  char text[12 * HR_MAX_LAYERS];
  hri_text_add(out, "%s", hr_recompute_text(&job->recompute, job->model.layer_count, text, sizeof text));
}

static bool add_path(hri_text *out, const void *at, uint32_t index) {
  const char *const *list;
  uint32_t count;
  memcpy(&list, at, sizeof list);
  memcpy(&count, (const char *)at + sizeof list, sizeof count);
  if (index >= count) return false;
  hri_text_add_bytes(out, list[index], strlen(list[index]));
  return true;
}

bool hri_field_text(const hri_field *f, const hr_job *job, const hr_run_options *options, uint32_t index, hri_text *out) {
  const char *at = f->of_run ? (const char *)options + f->offset : (const char *)job + f->offset, *text;
  uint64_t wide;
  uint32_t word;
  double number;
  bool flag;
  int value;
  if (f->kind == HRI_FIELD_PATHS) return add_path(out, at, index);
  if (index > 0) return false;
  switch (f->kind) {
  case HRI_FIELD_U32: memcpy(&word, at, sizeof word); hri_text_add(out, "%u", word); return true;
  case HRI_FIELD_U64: memcpy(&wide, at, sizeof wide); hri_text_add(out, "%llu", (unsigned long long)wide); return true;
  case HRI_FIELD_DOUBLE: memcpy(&number, at, sizeof number); add_number(out, number); return true;
  case HRI_FIELD_BOOL: memcpy(&flag, at, sizeof flag); hri_text_add(out, flag ? "true" : "false"); return true;
  case HRI_FIELD_ENUM: memcpy(&value, at, sizeof value); hri_text_add(out, "%s", f->value_name(value)); return true;
  case HRI_FIELD_CHUNK: memcpy(&word, at, sizeof word); add_chunk(out, word); return true;
  case HRI_FIELD_BETAS: add_number(out, job->beta1); hri_text_add(out, ","); add_number(out, job->beta2); return true;
  case HRI_FIELD_RECOMPUTE: add_recompute(out, job); return true;
  case HRI_FIELD_TEXT: memcpy(&text, at, sizeof text); if (text) hri_text_add_bytes(out, text, strlen(text)); return text != NULL;
  case HRI_FIELD_PATHS: break;
  }
  return false;
}

/* ---- names that a resume may allow to differ ---- */

bool hri_identity_is_name(const char *name) {
  const hri_field *f = hri_field_find(name);
  for (int k = 0; k < HRI_SPECIALS; k++)
    if (strcmp(hri_specials[k].name, name) == 0) return true;
  return strcmp(name, "steps") == 0 || (f && f->identity == HRI_IDENTITY_MATHEMATICS);
}

void hri_identity_names(hri_text *out) {
  for (int k = 0; k < HRI_SPECIALS; k++) hri_text_add(out, "%s%s", k ? ", " : "", hri_specials[k].name);
  hri_text_add(out, ", steps");
  for (uint32_t k = 0; k < hri_field_count(); k++)
    if (fields[k].identity == HRI_IDENTITY_MATHEMATICS) hri_text_add(out, ", %s", fields[k].name);
}
