/* Jobs in words: defaults, ranges, what excludes what, and what follows from other fields. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <headroom/job.h>

#include "base/mem.h"
#include "base/text.h"
#include "model/build.h"

enum {
  DEFAULT_SEQUENCE = 1024,
  MIN_LOSS_CHUNK = 16,
  AUTO_LOSS_CHUNK = 1024, /* shorter chunks cost up to a third of the GEMM rate (measured, architecture.md section 3) */
  MAX_LOSS_CHUNKS = 4096,  /* chunks are unrolled: each is a few nodes in every program with a loss */
  AUTO_LOSS_BYTES = 64 << 20, /* logits up to this size are not worth a chunk loop */
  MAX_ACCUMULATE = 1 << 20,
  MAX_THREADS = 4096,
  DEFAULT_MAX_SKIPPED = 10 /* steps in a row: so many are no bad batch, the training has diverged */
};

static const double default_clip = 1.0;

/* Those of transformers' TrainingArguments, but for the rows: Headroom plans one row of up to 1024 tokens. */
void hr_job_init(hr_job *job) {
  memset(job, 0, sizeof *job);
  job->micro_batch = 1;
  job->accumulate = 1;
  job->loss_chunk = HR_LOSS_CHUNK_AUTO;
  job->beta1 = 0.9;
  job->beta2 = 0.999;
  job->epsilon = 1e-8;
  job->momentum = 0.9;
  job->learning_rate = 5e-5;
  job->schedule = HR_SCHEDULE_LINEAR;
  job->decay = 0.1;
  job->clip = default_clip;
  job->max_skipped = DEFAULT_MAX_SKIPPED;
  job->epochs = 3;
  job->seed = 42;
}

/* ---- names ---- */

static const char *const precision_names[] = {"fp32", "bf16", "bf16-pure"};
static const char *const moments_names[] = {"fp32", "bf16"};
static const char *const weight_packing_names[] = {"auto", "off", "transient", "persistent"};
static const char *const optimizer_names[] = {"adamw", "sgd", "momentum"};
static const char *const attention_names[] = {"flash", "materialized"};
static const char *const on_nonfinite_names[] = {"stop", "skip"};
static const char *const schedule_names[] = {"constant", "linear", "cosine", "wsd"};
static const char *const level_names[HR_LEVEL_COUNT] = {"keep", "cheap", "mlp", "attention", "block"};

#define NAME_OF(table, value) ((size_t)(value) < sizeof(table) / sizeof *(table) ? (table)[value] : "unknown")

const char *hr_precision_name(hr_precision value) { return NAME_OF(precision_names, value); }
const char *hr_moments_name(hr_moments value) { return NAME_OF(moments_names, value); }
const char *hr_weight_packing_name(hr_weight_packing value) { return NAME_OF(weight_packing_names, value); }
const char *hr_optimizer_name(hr_optimizer value) { return NAME_OF(optimizer_names, value); }
const char *hr_attention_name(hr_attention value) { return NAME_OF(attention_names, value); }
const char *hr_on_nonfinite_name(hr_on_nonfinite value) { return NAME_OF(on_nonfinite_names, value); }
const char *hr_schedule_name(hr_schedule value) { return NAME_OF(schedule_names, value); }
const char *hr_level_name(hr_level value) { return NAME_OF(level_names, value); }

/* ---- --recompute ---- */

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

static hr_status recompute_fail(hr_error *error, const char *what, const char *text) {
  hri_fail(error, HR_ERROR_USAGE, "--recompute: %s '%.80s'", what, text);
  return hri_hint(error, HR_ERROR_USAGE, "write none, selective, auto, block, every:K, sqrt, or levels:keep*4,cheap*8,... with the levels keep, cheap, mlp, attention, block");
}

/* One "cheap*8" or "cheap" of `length` characters. */
static hr_status parse_run(const char *item, size_t length, hr_recompute *r, hr_error *error) {
  const char *star = memchr(item, '*', length);
  size_t word = star ? (size_t)(star - item) : length;
  uint32_t count = 1;
  int level = HR_LEVEL_COUNT;
  char shown[81];
  (void)snprintf(shown, sizeof shown, "%.*s", (int)(length < 80 ? length : 80), item);
  for (int i = 0; i < HR_LEVEL_COUNT; i++)
    if (strlen(level_names[i]) == word && memcmp(item, level_names[i], word) == 0) level = i;
  if (level == HR_LEVEL_COUNT) return recompute_fail(error, "there is no level", shown);
  if (star && !parse_count(star + 1, length - word - 1, HR_MAX_LAYERS, &count)) return recompute_fail(error, "a number of layers is wanted after * in", shown);
  if (count > HR_MAX_LAYERS - r->level_count) return recompute_fail(error, "there are too many layers at", shown);
  memset(r->levels + r->level_count, level, count);
  r->level_count += count;
  return HR_OK;
}

static hr_status parse_levels(const char *text, hr_recompute *r, hr_error *error) {
  for (;;) {
    size_t length = strcspn(text, ",");
    HRI_TRY(parse_run(text, length, r, error));
    if (!text[length]) return HR_OK;
    text += length + 1;
  }
}

hr_status hr_recompute_parse(const char *text, hr_recompute *recompute, hr_error *error) {
  hr_recompute made = {.kind = HR_RECOMPUTE_NONE};
  if (strcmp(text, "none") == 0) {
    made.kind = HR_RECOMPUTE_NONE;
  } else if (strcmp(text, "block") == 0) {
    made.kind = HR_RECOMPUTE_BLOCK;
  } else if (strcmp(text, "sqrt") == 0) {
    made.kind = HR_RECOMPUTE_SQRT;
  } else if (strncmp(text, "every:", 6) == 0) {
    made.kind = HR_RECOMPUTE_EVERY;
    if (!parse_count(text + 6, strlen(text + 6), HR_MAX_LAYERS, &made.every)) return recompute_fail(error, "a number of layers is wanted after every: in", text);
  } else if (strncmp(text, "levels:", 7) == 0) {
    made.kind = HR_RECOMPUTE_LEVELS;
    HRI_TRY(parse_levels(text + 7, &made, error));
  } else if (strcmp(text, "selective") == 0) {
    made.kind = HR_RECOMPUTE_SELECTIVE;
  } else if (strcmp(text, "auto") == 0) {
    made.kind = HR_RECOMPUTE_AUTO;
  } else {
    return recompute_fail(error, "there is no value", text);
  }
  *recompute = made;
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
    length = run > 1 ? snprintf(item, sizeof item, "%s%s*%u", l ? "," : "levels:", hr_level_name((hr_level)level_of(r, l)), run)
                     : snprintf(item, sizeof item, "%s%s", l ? "," : "levels:", hr_level_name((hr_level)level_of(r, l)));
    if (used + (size_t)length + sizeof ",..." > out_bytes) return strcpy(out + used, ",...") - used; /* says that it is cut */
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
  switch (recompute->kind) {
  case HR_RECOMPUTE_BLOCK: return strcpy(out, "block");
  case HR_RECOMPUTE_SQRT: return strcpy(out, "sqrt");
  case HR_RECOMPUTE_SELECTIVE: return strcpy(out, "selective");
  case HR_RECOMPUTE_AUTO: return strcpy(out, "auto");
  case HR_RECOMPUTE_EVERY: (void)snprintf(out, (size_t)out_bytes, "every:%u", recompute->every); return out;
  case HR_RECOMPUTE_LEVELS: return levels_text(recompute, layer_count, out, out_bytes);
  default: return strcpy(out, "none");
  }
}

/* ---- ranges ---- */

static bool in_range(double value, double low, double high) { return isfinite(value) && value >= low && value <= high; }

static hr_status check_numbers(const hr_job *job, hr_error *error) {
  const struct {
    const char *option;
    double value, low, high;
  } numbers[] = {
      {"--lr", job->learning_rate, 0, 1e3},         {"--weight-decay", job->weight_decay, 0, 1e3},
      {"--momentum", job->momentum, 0, 1},          {"--betas (the first)", job->beta1, 0, 1},
      {"--betas (the second)", job->beta2, 0, 1},   {"--eps", job->epsilon, 0, 1},
      {"--clip", job->clip, 0, 1e30},               {"--warmup", job->warmup, 0, 1e15},
      {"--decay", job->decay, 0, 1e15},             {"--min-lr-ratio", job->min_lr_ratio, 0, 1},
      {"--epochs", job->epochs, 0, 1e9},
  };
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (!in_range(numbers[i].value, numbers[i].low, numbers[i].high))
      return hri_fail(error, HR_ERROR_USAGE, "%s is %g; it must lie between %g and %g", numbers[i].option, numbers[i].value, numbers[i].low, numbers[i].high);
  if (job->beta1 == 1 || job->beta2 == 1) return hri_fail(error, HR_ERROR_USAGE, "--betas: each must be below 1");
  if (job->momentum == 1) return hri_fail(error, HR_ERROR_USAGE, "--momentum is 1; it must be below 1");
  if (job->optimizer == HR_OPTIMIZER_ADAMW && job->epsilon == 0) return hri_fail(error, HR_ERROR_USAGE, "--eps is 0; adamw divides by it where a gradient is 0");
  if (job->max_skipped == 0) {
    hri_fail(error, HR_ERROR_USAGE, "--max-skipped is 0; it must be at least 1");
    return hri_hint(error, HR_ERROR_USAGE, "give --on-nonfinite stop to end the run at the first such step");
  }
  return HR_OK;
}

static hr_status check_kinds(const hr_job *job, hr_error *error) {
  const struct {
    const char *option;
    unsigned value, last;
  } kinds[] = {
      {"purpose", (unsigned)job->purpose, HR_PURPOSE_GENERATE},      {"--optimizer", (unsigned)job->optimizer, HR_OPTIMIZER_MOMENTUM},
      {"--attention", (unsigned)job->attention, HR_ATTENTION_MATERIALIZED}, {"--update", (unsigned)job->update, HR_UPDATE_IN_BACKWARD},
      {"--precision", (unsigned)job->precision, HR_PRECISION_BF16_PURE}, {"--moments", (unsigned)job->moments, HR_MOMENTS_BF16},
      {"--weight-packing", (unsigned)job->weight_packing, HR_WEIGHT_PACKING_PERSISTENT},
      {"--schedule", (unsigned)job->schedule, HR_SCHEDULE_WSD},      {"--packing", (unsigned)job->packing, HR_PACKING_WRAPPED},
      {"--recompute", (unsigned)job->recompute.kind, HR_RECOMPUTE_AUTO}, {"--on-nonfinite", (unsigned)job->on_nonfinite, HR_ON_NONFINITE_SKIP},
  };
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (kinds[i].value > kinds[i].last) return hri_fail(error, HR_ERROR_USAGE, "%s has no value %u", kinds[i].option, kinds[i].value);
  return HR_OK;
}

/* Rows of a micro-step are numbered by int32 in kernels and inputs. */
static hr_status check_rows(const hr_job *job, hr_error *error) {
  uint64_t rows;
  if (job->sequence_length == 0) return hri_fail(error, HR_ERROR_USAGE, "--seq is 0; it must be at least 1");
  if (job->sequence_length == 1 && job->purpose != HR_PURPOSE_GENERATE) {
    hri_fail(error, HR_ERROR_USAGE, "--seq is 1: no token has a next one to predict");
    return hri_hint(error, HR_ERROR_USAGE, "give --seq 2 or more");
  }
  if (job->micro_batch == 0) return hri_fail(error, HR_ERROR_USAGE, "--micro-batch is 0; it must be at least 1");
  if (job->accumulate == 0 || job->accumulate > MAX_ACCUMULATE)
    return hri_fail(error, HR_ERROR_USAGE, "--accumulate is %u; it must be from 1 to %d", job->accumulate, MAX_ACCUMULATE);
  rows = (uint64_t)job->micro_batch * job->sequence_length;
  if (rows > INT32_MAX) {
    hri_fail(error, HR_ERROR_USAGE, "--micro-batch %u times --seq %u is %llu tokens in a micro-step; at most %d are possible", job->micro_batch,
             job->sequence_length, (unsigned long long)rows, INT32_MAX);
    return hri_hint(error, HR_ERROR_USAGE, "lower --micro-batch and raise --accumulate");
  }
  if (job->loss_chunk != HR_LOSS_CHUNK_AUTO && job->loss_chunk < MIN_LOSS_CHUNK && job->loss_chunk < rows)
    return hri_fail(error, HR_ERROR_USAGE, "--loss-chunk is %u tokens; it must be auto, off, or at least %d", job->loss_chunk, MIN_LOSS_CHUNK);
  if (job->loss_chunk != HR_LOSS_CHUNK_AUTO && job->loss_chunk != HR_LOSS_CHUNK_OFF && rows / job->loss_chunk > MAX_LOSS_CHUNKS)
    return hri_fail(error, HR_ERROR_USAGE, "--loss-chunk %u cuts %llu tokens into more than %d chunks", job->loss_chunk, (unsigned long long)rows, MAX_LOSS_CHUNKS);
  if (job->threads > MAX_THREADS) return hri_fail(error, HR_ERROR_USAGE, "--threads is %u; it must be from 1 to %d", job->threads, MAX_THREADS);
  return HR_OK;
}

static hr_status check_levels(const hr_job *job, hr_error *error) {
  const hr_recompute *r = &job->recompute;
  if (r->kind != HR_RECOMPUTE_LEVELS) return HR_OK;
  if (r->level_count == 0 || r->level_count > HR_MAX_LAYERS) return hri_fail(error, HR_ERROR_USAGE, "--recompute levels: there is no level");
  for (uint32_t i = 0; i < r->level_count; i++)
    if (r->levels[i] >= HR_LEVEL_COUNT) return hri_fail(error, HR_ERROR_USAGE, "--recompute levels: layer %u has no known level", i);
  return HR_OK;
}

/* ---- what excludes what ---- */

static bool trains(const hr_job *job) { return job->purpose == HR_PURPOSE_TRAIN; }
static bool in_backward(const hr_job *job) { return trains(job) && job->update == HR_UPDATE_IN_BACKWARD; }
static bool generates(const hr_job *job) { return job->purpose == HR_PURPOSE_GENERATE || job->with_generation; }

static bool clip_in_backward(const hr_job *job) { return in_backward(job) && job->clip > 0; }
static bool skip_in_backward(const hr_job *job) { return in_backward(job) && job->on_nonfinite == HR_ON_NONFINITE_SKIP; }
static bool accumulate_in_backward(const hr_job *job) { return in_backward(job) && job->accumulate > 1; }
static bool every_beyond(const hr_job *job) { return job->recompute.kind == HR_RECOMPUTE_EVERY && (job->recompute.every == 0 || job->recompute.every > job->model.layer_count); }
static bool levels_beyond(const hr_job *job) { return job->recompute.kind == HR_RECOMPUTE_LEVELS && job->recompute.level_count > job->model.layer_count; }
static bool row_beyond(const hr_job *job) { return job->model.learned_positions && job->purpose != HR_PURPOSE_GENERATE && job->sequence_length > job->model.max_positions; }
static bool context_beyond(const hr_job *job) { return job->model.learned_positions && generates(job) && job->context_length > job->model.max_positions; }

static bool moments_with_masters(const hr_job *job) { return job->moments == HR_MOMENTS_BF16 && job->precision != HR_PRECISION_BF16_PURE; }

/* Steps that a number of steps or a share of them means; only used when the steps are known. */
static double in_steps(double value, uint64_t steps) { return value < 1 ? value * (double)steps : value; }

static bool wsd_too_long(const hr_job *job) {
  if (job->schedule != HR_SCHEDULE_WSD) return false;
  if (job->warmup < 1 && job->decay < 1) return job->warmup + job->decay > 1;
  return job->steps > 0 && in_steps(job->warmup, job->steps) + in_steps(job->decay, job->steps) > (double)job->steps;
}

/* The legality table. Sequences beyond max_positions are legal with rotary positions: those have no table to run out of,
 * though the model was not made for them. `price` begins a sentence that ends in the bytes of all gradients: what the
 * option would keep alive that the update in the backward lets die. */
static const struct {
  bool (*holds)(const hr_job *job);
  const char *a, *b, *reason, *hint, *price;
} exclusions[] = {
    {clip_in_backward, "--update in-backward", "--clip", "the global norm needs all gradients before the first update", "give --clip 0 or leave --update out", "clipping would keep"},
    {skip_in_backward, "--update in-backward", "--on-nonfinite skip", "whether a step is skipped is known when its last gradient is made, and by then the first weights have changed",
     "give --on-nonfinite stop or leave --update out", "skipping would keep"},
    {accumulate_in_backward, "--update in-backward", "--accumulate", "a gradient is complete only after the last micro-step", "give --accumulate 1 or leave --update out", NULL},
    {moments_with_masters, "--moments bf16", "--precision other than bf16-pure", "next to fp32 weights the half-size states are not worth their noise", "give --precision bf16-pure or leave --moments out", NULL},
    {every_beyond, "--recompute every:K", "the model", "K is larger than its number of layers", "give a smaller K, or --recompute block", NULL},
    {levels_beyond, "--recompute levels", "the model", "there are more levels than layers", "give one level for each layer; missing ones repeat the last", NULL},
    {row_beyond, "--seq", "the model", "its table of learned positions is shorter", "give a smaller --seq", NULL},
    {context_beyond, "--context", "the model", "its table of learned positions is shorter", "give a smaller --context", NULL},
    {wsd_too_long, "--warmup", "--decay", "together they are longer than the training", "lower one of them", NULL},
};

static hr_status check_exclusions(const hr_job *job, hr_error *error) {
  for (size_t i = 0; i < sizeof exclusions / sizeof *exclusions; i++) {
    char size[32];
    if (!exclusions[i].holds(job)) continue;
    hri_fail(error, HR_ERROR_USAGE, "%s and %s exclude each other: %s", exclusions[i].a, exclusions[i].b, exclusions[i].reason);
    if (exclusions[i].holds == row_beyond || exclusions[i].holds == context_beyond)
      return hri_hint(error, HR_ERROR_USAGE, "give at most %u: %s has that many positions", job->model.max_positions, job->model.name);
    if (!exclusions[i].price) return hri_hint(error, HR_ERROR_USAGE, "%s", exclusions[i].hint);
    return hri_hint(error, HR_ERROR_USAGE, "%s; %s %s of gradients alive", exclusions[i].hint, exclusions[i].price,
                    hri_size_text(4 * hr_model_parameter_count(&job->model), size));
  }
  return HR_OK;
}

/* ---- finish ---- */

/* Layers between kept inputs: L/K kept inputs and K layers made again cost least at K = sqrt(L). */
static uint32_t sqrt_layers(uint32_t layers) {
  uint32_t every = (uint32_t)(sqrt((double)layers) + 0.5);
  return every ? every : 1;
}

/* AUTO becomes a number here; who changes the rows of a finished job sets AUTO again. */
static uint32_t chunk_of(const hr_job *job) {
  uint32_t rows = job->micro_batch * job->sequence_length, chunk = job->loss_chunk;
  if (chunk == HR_LOSS_CHUNK_OFF) return chunk;
  if (chunk == HR_LOSS_CHUNK_AUTO) chunk = (uint64_t)rows * job->model.vocabulary_size * 4 > AUTO_LOSS_BYTES ? AUTO_LOSS_CHUNK : rows;
  if (job->loss_chunk == HR_LOSS_CHUNK_AUTO && rows / chunk >= MAX_LOSS_CHUNKS) chunk = rows / MAX_LOSS_CHUNKS + 1;
  return chunk < rows ? chunk : rows;
}

uint64_t hri_loss_chunk(const hr_job *spec) {
  uint64_t rows = (uint64_t)spec->micro_batch * spec->sequence_length, chunk = chunk_of(spec);
  return chunk < rows ? chunk : rows;
}

static void fill_from_model(hr_job *job) {
  uint32_t positions = job->model.max_positions;
  if (job->sequence_length == 0 && !(job->given & HR_GIVEN_SEQUENCE)) job->sequence_length = positions < DEFAULT_SEQUENCE ? positions : DEFAULT_SEQUENCE;
  if (job->context_length == 0 && generates(job)) job->context_length = job->sequence_length;
  if (job->recompute.kind == HR_RECOMPUTE_SQRT) job->recompute.every = sqrt_layers(job->model.layer_count);
  /* The default clip gives way to an update that cannot have it; one that was asked for is refused instead. */
  if (in_backward(job) && !(job->given & HR_GIVEN_CLIP) && job->clip == default_clip) job->clip = 0;
}

hr_status hr_job_finish(hr_job *job, hr_error *error) {
  hr_job made = *job;
  HRI_TRY(hr_model_check(&made.model, error));
  HRI_TRY(check_kinds(&made, error));
  HRI_TRY(check_numbers(&made, error));
  HRI_TRY(check_levels(&made, error));
  fill_from_model(&made);
  HRI_TRY(check_rows(&made, error));
  HRI_TRY(check_exclusions(&made, error));
  if (trains(&made) && made.steps == 0 && made.epochs <= 0) return hri_fail(error, HR_ERROR_USAGE, "--steps and --epochs are both 0: there is nothing to train");
  if (made.budget_given && made.budget_bytes == 0) {
    hri_fail(error, HR_ERROR_USAGE, "--budget is 0 bytes; nothing can run in it");
    return hri_hint(error, HR_ERROR_USAGE, "give a size such as 6GiB, or a share such as 90%%");
  }
  if (made.budget_bytes == 0) made.budget_bytes = made.device.usable_bytes;
  if (!made.device.usable_now && made.budget_bytes > made.device.usable_bytes) {
    char a[32], b[32];
    hri_fail(error, HR_ERROR_USAGE, "--budget is %s and %s has %s", hri_size_text(made.budget_bytes, a), made.device.name, hri_size_text(made.device.usable_bytes, b));
    return hri_hint(error, HR_ERROR_USAGE, "leave --budget out for all of it, or name a larger --device");
  }
  made.loss_chunk = chunk_of(&made);
  if (made.threads == 0) made.threads = hr_device_cpu_threads();
  *job = made;
  return HR_OK;
}
