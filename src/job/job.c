/* Making and finishing a job: defaults and ranges, which are those of the table of fields, what excludes what, and what
 * follows from other fields. After hr_job_finish nothing in a job is left to decide but the levels of --recompute
 * auto. */
#include "job/job.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "job/fields.h"
#include "model/adapter.h"
#include "model/family.h"
#include "model/freeze.h"
#include "model/gguf.h"
#include "model/lora.h"
#include "program/optimizer.h"
#include "program/quantization.h"
#include "program/rates.h"

enum {
  DEFAULT_SEQUENCE = 1024,
  MIN_LOSS_CHUNK = 16,
  AUTO_LOSS_CHUNK = 1024, /* shorter chunks cost up to a third of the GEMM rate (measured, architecture.md section 3) */
  MAX_LOSS_CHUNKS = 4096, /* chunks are unrolled: each is a few nodes in every program with a loss */
  AUTO_LOSS_BYTES = 64 << 20 /* logits up to this size are not worth a chunk loop */
};

/* Defaults are those of transformers' TrainingArguments, but for the rows: Headroom plans one row of up to 1024
 * tokens. */
static void fill_defaults(hr_home home, void *at) {
  for (uint32_t k = 0; k < hr_field_count(); k++) {
    const hr_field *f = hr_field_get(k);
    hr_value value;
    hr_status status;
    if (f->home != home || !f->initial) continue;
    status = hr_field_read(f, f->initial, NULL, &value, NULL);
    assert(status == HR_OK); /* a default that its own row refuses */
    if (status == HR_OK) hr_field_store(f, &value, at);
  }
}

void hr_job_init(hr_job *job) {
  memset(job, 0, sizeof *job);
  fill_defaults(HR_HOME_JOB, job);
}

void hr_run_options_init(hr_run_options *options) {
  memset(options, 0, sizeof *options);
  fill_defaults(HR_HOME_RUN, options);
}

/* ---- ranges ---- */

/* A 0 that was given is no wish for what 0 stands for. */
static hr_status check_given(const hr_field *f, const hr_value *v, const hr_job *job, hr_error *error) {
  if (!(f->given & job->given) || !f->zero || f->least == 0 || v->count != 0) return HR_OK;
  return hri_fail(error, HR_ERROR_USAGE, "--%s is 0; it must be at least %llu", f->name, (unsigned long long)f->least);
}

static hr_status check_fields(const hr_job *job, hr_error *error) {
  if ((unsigned)job->purpose > HR_PURPOSE_GENERATE)
    return hri_fail(error, HR_ERROR_USAGE, "purpose has no value %u", (unsigned)job->purpose);
  for (uint32_t k = 0; k < hr_field_count(); k++) {
    const hr_field *f = hr_field_get(k);
    hr_value value;
    if (f->home != HR_HOME_JOB) continue;
    hr_field_load(f, job, &value);
    if (f->kind == HR_FIELD_U64 && !f->initial && value.count == 0) continue; /* not set */
    HRI_TRY(check_given(f, &value, job, error));
    HRI_TRY(hr_field_check(f, &value, error));
  }
  if (!hri_optimizer_get(job->optimizer)->divides_by_epsilon || job->epsilon >= FLT_MIN) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE, "--eps is %g%s; %s divides by it where a gradient is 0", job->epsilon,
           job->epsilon > 0 ? ", below the smallest normal number of fp32, 1.18e-38" : "",
           hr_optimizer_name(job->optimizer));
  return hri_hint(error, HR_ERROR_USAGE, "give at least 1.2e-38");
}

static uint64_t pieces(uint64_t rows, uint64_t each) { return rows / each + (rows % each != 0); }

/* Each chunk is nodes of its own, of models and of graphs. */
static hr_status check_chunks(const hr_job *job, uint64_t rows, hr_error *error) {
  if (job->loss_chunk == HR_LOSS_CHUNK_AUTO || job->loss_chunk == HR_LOSS_CHUNK_OFF ||
      pieces(rows, job->loss_chunk) <= MAX_LOSS_CHUNKS)
    return HR_OK;
  hri_fail(error, HR_ERROR_USAGE, "--loss-chunk %u cuts %llu tokens into more than %d chunks", job->loss_chunk,
           (unsigned long long)rows, MAX_LOSS_CHUNKS);
  return hri_hint(error, HR_ERROR_USAGE, "give --loss-chunk %llu or more, or leave it out",
                  (unsigned long long)pieces(rows, MAX_LOSS_CHUNKS));
}

/* Rows of a micro-step are numbered by int32 in kernels and inputs. */
static hr_status check_rows(const hr_job *job, hr_error *error) {
  uint64_t rows = (uint64_t)job->micro_batch * job->sequence_length;
  if (job->sequence_length == 0) return hri_fail(error, HR_ERROR_USAGE, "--seq is 0; it must be at least 1");
  if (job->sequence_length == 1 && job->purpose != HR_PURPOSE_GENERATE) {
    hri_fail(error, HR_ERROR_USAGE, "--seq is 1: no token has a next one to predict");
    return hri_hint(error, HR_ERROR_USAGE, "give --seq 2 or more");
  }
  if (rows > INT32_MAX) {
    hri_fail(error, HR_ERROR_USAGE,
             "--micro-batch %u times --seq %u is %llu tokens in a micro-step; at most %d are possible",
             job->micro_batch, job->sequence_length, (unsigned long long)rows, INT32_MAX);
    return hri_hint(error, HR_ERROR_USAGE,
                    job->micro_batch > 1 ? "lower --micro-batch and raise --accumulate" : "lower --seq");
  }
  if (job->loss_chunk != HR_LOSS_CHUNK_AUTO && job->loss_chunk < MIN_LOSS_CHUNK && job->loss_chunk < rows)
    return hri_fail(error, HR_ERROR_USAGE, "--loss-chunk is %u tokens; it must be auto, off, or at least %d",
                    job->loss_chunk, MIN_LOSS_CHUNK);
  return check_chunks(job, rows, error);
}

/* ---- what excludes what ---- */

static bool trains(const hr_job *job) { return job->purpose == HR_PURPOSE_TRAIN; }
static bool in_backward(const hr_job *job) { return trains(job) && job->update == HR_UPDATE_IN_BACKWARD; }
static bool generates(const hr_job *job) { return job->purpose == HR_PURPOSE_GENERATE || job->with_generation; }

static bool clip_in_backward(const hr_job *job) { return in_backward(job) && job->clip > 0; }
static bool skip_in_backward(const hr_job *job) {
  return in_backward(job) && job->on_nonfinite == HR_ON_NONFINITE_SKIP;
}
static bool fp16_in_backward(const hr_job *job) { return in_backward(job) && job->precision == HR_PRECISION_FP16; }
static bool scale_without_fp16(const hr_job *job) {
  return trains(job) && job->precision != HR_PRECISION_FP16 &&
         (!hri_field_is_default(hr_field_find("loss-scale"), job) ||
          !hri_field_is_default(hr_field_find("growth-interval"), job));
}
static bool is_cpu(const hr_job *job) { return strcmp(job->device.backend, "cpu") == 0; }
static bool tf32_on_cpu(const hr_job *job) { return job->precision == HR_PRECISION_TF32 && is_cpu(job); }
static bool workspace_on_cpu(const hr_job *job) { return job->workspace != HR_WORKSPACE_AUTO && is_cpu(job); }
static bool tf32_not_offered(const hr_job *job) {
  return job->precision == HR_PRECISION_TF32 && !is_cpu(job) && job->device.flops_tf32 <= 0;
}
static bool accumulate_in_backward(const hr_job *job) { return in_backward(job) && job->accumulate > 1; }
/* In what has no layers, as a graph may, nothing is made again: any number of them means the same. */
static uint32_t most_layers(const hr_job *job) {
  return job->model.layer_count ? job->model.layer_count : HR_MAX_LAYERS;
}
static bool every_beyond(const hr_job *job) {
  return job->recompute.kind == HR_RECOMPUTE_EVERY &&
         (job->recompute.every == 0 || job->recompute.every > most_layers(job));
}
static bool levels_beyond(const hr_job *job) {
  return job->recompute.kind == HR_RECOMPUTE_LEVELS && job->recompute.level_count > most_layers(job);
}
static bool row_beyond(const hr_job *job) {
  return job->model.learned_positions && job->purpose != HR_PURPOSE_GENERATE &&
         job->sequence_length > job->model.max_positions;
}
static bool context_beyond(const hr_job *job) {
  return job->model.learned_positions && generates(job) && job->context_length > job->model.max_positions;
}

bool hr_job_beyond_positions(const hr_job *job, char *out, uint64_t out_bytes) {
  const bool context = job->purpose == HR_PURPOSE_GENERATE;
  const uint32_t tokens = context ? job->context_length : job->sequence_length, made = job->model.max_positions;
  if (out_bytes) out[0] = 0;
  if (job->model.learned_positions || made == 0 || tokens <= made) return false;
  (void)snprintf(out, (size_t)out_bytes,
                 "%s of %u tokens, and %s was made for %u positions: behind those it was never trained, and its loss "
                 "and its text get worse there; %s%u%s",
                 context ? "a context" : "rows", tokens, job->model.name, made, context ? "" : "--seq ", made,
                 context ? " tokens of prompt and answer together (--context, --max-tokens) stay inside"
                         : " stays inside");
  return true;
}

static bool frozen_and_adapted(const hr_job *job) {
  return trains(job) && (job->freeze || job->train_only) && job->model.lora.rank > 0;
}

static bool begun_and_given(const hr_job *job) { return job->lora && job->model.adapter[0]; }

static bool dora_and_dropout(const hr_job *job) {
  return trains(job) && job->model.lora.dora && job->model.lora.dropout > 0;
}

static bool quantized_and_trained(const hr_job *job) {
  return trains(job) && job->quantize != HR_QUANTIZE_NONE && job->model.lora.rank == 0;
}
static bool stored_and_trained(const hr_job *job) {
  return quantized_and_trained(job) && job->model.quantization != HR_QUANTIZE_NONE;
}

static bool kept_without_blocks(const hr_job *job) {
  return job->quantize == HR_QUANTIZE_KEEP && !hri_gguf_typed(&job->model);
}

/* Random numbers of dropout are numbered by position, key and head (ops/draw.h). */
static bool dropout_beyond(const hr_job *job) {
  const hri_dropout p = hri_model_dropout(&job->model, job->dropout);
  const bool drops = p.attention > 0 || p.attention_output > 0 || p.mlp > 0 || p.embedding > 0;
  return trains(job) && drops && (job->sequence_length > 1u << 22 || job->model.head_count >= 1u << 12);
}

/* What stays is divided by 1 - p. */
static bool dropout_of_all(const hr_job *job) {
  const hri_dropout p = hri_model_dropout(&job->model, job->dropout);
  return trains(job) && (p.attention == 1 || p.attention_output == 1 || p.mlp == 1 || p.embedding == 1);
}

static bool moments_with_masters(const hr_job *job) {
  return job->moments == HR_MOMENTS_BF16 && job->precision != HR_PRECISION_BF16_PURE;
}

/* Steps that a number of steps or a share of them means; only used when the steps are known. */
static double in_steps(double value, uint64_t steps) { return value < 1 ? value * (double)steps : value; }

static bool wsd_too_long(const hr_job *job) {
  if (job->schedule != HR_SCHEDULE_WSD) return false;
  if (job->warmup < 1 && job->decay < 1) return job->warmup + job->decay > 1;
  return job->steps > 0 && in_steps(job->warmup, job->steps) + in_steps(job->decay, job->steps) > (double)job->steps;
}

/* The legality table. Sequences beyond max_positions are legal with rotary positions: those have no table to run out
 * of, though the model was not made for them. `price` begins a sentence that ends in the bytes of all gradients: what
 * the option would keep alive that the update in the backward lets die. */
static const struct {
  bool (*holds)(const hr_job *job);
  const char *a, *b, *reason, *hint, *price;
} exclusions[] = {
    {clip_in_backward, "--update in-backward", "--clip", "the global norm needs all gradients before the first update",
     "give --clip 0 or leave --update out", "clipping would keep"},
    {skip_in_backward, "--update in-backward", "--on-nonfinite skip",
     "whether a step is skipped is known when its last gradient is made, and by then the first weights have changed",
     "give --on-nonfinite stop or leave --update out", "skipping would keep"},
    {fp16_in_backward, "--update in-backward", "--precision fp16",
     "whether a step's gradients overflow is known when the last one is made, and by then the first weights have changed",
     "give --precision bf16 or leave --update out", "skipping would keep"},
    {scale_without_fp16, "--loss-scale and --growth-interval", "--precision other than fp16",
     "only gradients in fp16 need a scale", "give --precision fp16 or leave them out", NULL},
    {tf32_on_cpu, "--precision tf32", "--device cpu",
     "it is how GPUs multiply fp32 in fewer bits, and a CPU multiplies all of them",
     "give --precision fp32 or bf16, or plan for a GPU by --device NAME", NULL},
    {workspace_on_cpu, "--workspace", "--device cpu",
     "it is for a GPU's library of products, and a CPU's are the program's own, whose scratch is what they need",
     "leave --workspace out", NULL},
    {tf32_not_offered, "--precision tf32", "--device",
     "the device has no such products: NVIDIA's have since Ampere, AMD's since the MI300",
     "give --precision fp32 or fp16, or name another device; headroom devices NAME says what it has", NULL},
    {accumulate_in_backward, "--update in-backward", "--accumulate",
     "a gradient is complete only after the last micro-step", "give --accumulate 1 or leave --update out", NULL},
    {moments_with_masters, "--moments bf16", "--precision other than bf16-pure",
     "next to fp32 weights the half-size states are not worth their noise",
     "give --precision bf16-pure or leave --moments out", NULL},
    {every_beyond, "--recompute every:K", "the model", "K is larger than its number of layers",
     "give a smaller K, or --recompute block", NULL},
    {levels_beyond, "--recompute levels", "the model", "there are more levels than layers",
     "give one level for each layer; missing ones repeat the last", NULL},
    {frozen_and_adapted, "--freeze and --train-only", "--lora", "beside adapters all weights are frozen",
     "leave them out; layers= and targets= of --lora say where adapters are", NULL},
    {begun_and_given, "--lora", "--adapter",
     "it begins adapters, and those that there are go on as their "
     "adapter_config.json or GGUF file says",
     "leave out one of them", NULL},
    {dora_and_dropout, "--lora ...,dora", "dropout of adapters",
     "each weight would be multiplied a second time, with what dropout leaves of its input",
     "leave dropout= out, or set lora_dropout to 0 in adapter_config.json", NULL},
    {stored_and_trained, "quantized weight files", "training of all weights", "quantized weights have no gradient",
     "add --lora r=16,alpha=32, which trains adapters beside them, or name the model that is not quantized", NULL},
    {quantized_and_trained, "--quantize", "training of all weights", "quantized weights have no gradient",
     "add --lora r=16,alpha=32, which trains adapters beside them", NULL},
    {kept_without_blocks, "--quantize keep", "a model that is no GGUF file", "it keeps the blocks that such a file has",
     "name the GGUF file, or give --quantize nf4+dq or int8", NULL},
    {row_beyond, "--seq", "the model", "its table of learned positions is shorter", "give a smaller --seq", NULL},
    {context_beyond, "--context", "the model", "its table of learned positions is shorter", "give a smaller --context",
     NULL},
    {dropout_beyond, "--dropout", "the model or --seq", "masks reach to 4,194,304 positions and 4,095 heads",
     "leave --dropout out, or give a smaller --seq", NULL},
    {dropout_of_all, "--dropout config", "the model", "its config.json has a probability of 1, which leaves nothing",
     "give --dropout a number below 1, or change config.json", NULL},
    {wsd_too_long, "--warmup", "--decay", "together they are longer than the training", "lower one of them", NULL},
};

enum { EXCLUSIONS = sizeof exclusions / sizeof *exclusions };

uint32_t hr_exclusion_count(void) { return EXCLUSIONS; }

bool hr_exclusion_get(uint32_t index, hr_exclusion *e) {
  if (index >= EXCLUSIONS) return false;
  *e = (hr_exclusion){exclusions[index].a, exclusions[index].b, exclusions[index].reason, exclusions[index].hint};
  return true;
}

/* What programs built op by op are held to as well: what a device offers, and their own number of layers. */
static bool holds_for_graphs(bool (*rule)(const hr_job *job)) {
  return rule == tf32_on_cpu || rule == tf32_not_offered || rule == workspace_on_cpu || rule == every_beyond ||
         rule == levels_beyond;
}

/* Whoever describes a graph has no command line, and says himself what its layers are. */
static hr_status refuse_layers(const hr_job *job, hr_error *error) {
  const hr_recompute *r = &job->recompute;
  const bool every = r->kind == HR_RECOMPUTE_EVERY;
  hri_fail(error, HR_ERROR_USAGE, "recompute.%s is %u, and the graph has %u layer%s", every ? "every" : "level_count",
           every ? r->every : r->level_count, job->model.layer_count, job->model.layer_count == 1 ? "" : "s");
  return hri_hint(error, HR_ERROR_USAGE, "give %s %u, or HR_RECOMPUTE_BLOCK; hr_graph_layer says where a layer begins",
                  every ? "1 to" : "at most", most_layers(job));
}

static hr_status check_exclusions(const hr_job *job, bool graph, hr_error *error) {
  for (size_t i = 0; i < EXCLUSIONS; i++) {
    char size[32];
    if ((graph && !holds_for_graphs(exclusions[i].holds)) || !exclusions[i].holds(job)) continue;
    if (graph && (exclusions[i].holds == every_beyond || exclusions[i].holds == levels_beyond))
      return refuse_layers(job, error);
    hri_fail(error, HR_ERROR_USAGE, "%s and %s exclude each other: %s", exclusions[i].a, exclusions[i].b,
             exclusions[i].reason);
    if (exclusions[i].holds == row_beyond || exclusions[i].holds == context_beyond)
      return hri_hint(error, HR_ERROR_USAGE, "give at most %u: %s has that many positions", job->model.max_positions,
                      job->model.name);
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

/* AUTO becomes a number here. What was given stays as it is, also where it is more than there are rows: other rows may be cut
 * by it. A job that is not finished may have no rows. */
static uint64_t chunk_of(const hr_job *job) {
  uint64_t rows = (uint64_t)job->micro_batch * job->sequence_length, chunk = job->loss_chunk;
  if (chunk == HR_LOSS_CHUNK_OFF || (chunk != HR_LOSS_CHUNK_AUTO && (job->given & HR_GIVEN_LOSS_CHUNK))) return chunk;
  if (chunk == HR_LOSS_CHUNK_AUTO)
    chunk = rows * job->model.vocabulary_size * 4 > AUTO_LOSS_BYTES ? AUTO_LOSS_CHUNK : rows;
  if (job->loss_chunk == HR_LOSS_CHUNK_AUTO && chunk > 0 && rows / chunk >= MAX_LOSS_CHUNKS)
    chunk = rows / MAX_LOSS_CHUNKS + 1;
  return chunk < rows ? chunk : rows;
}

uint64_t hri_job_cut_rows(const hr_job *job) {
  if (job->given & HR_GIVEN_LOSS_CHUNK) return 0;
  return (uint64_t)AUTO_LOSS_BYTES / (4 * (uint64_t)job->sequence_length * job->model.vocabulary_size) + 1;
}

bool hri_job_skips(const hr_job *spec) {
  return spec->on_nonfinite == HR_ON_NONFINITE_SKIP || spec->precision == HR_PRECISION_FP16;
}

uint64_t hri_job_tokens(const hr_job *job) {
  if (job->purpose == HR_PURPOSE_GENERATE) return 1;
  return (uint64_t)job->sequence_length * job->micro_batch * (trains(job) ? job->accumulate : 1);
}

uint64_t hri_loss_chunk(const hr_job *spec) {
  uint64_t rows = (uint64_t)spec->micro_batch * spec->sequence_length, chunk = chunk_of(spec);
  return chunk < rows ? chunk : rows;
}

/* What an earlier call made of nothing is nothing again: it follows from rows that may be other ones now. */
static void reopen(hr_job *job) {
  if (job->filled_chunk == job->loss_chunk && !(job->given & HR_GIVEN_LOSS_CHUNK)) job->loss_chunk = HR_LOSS_CHUNK_AUTO;
  if (job->filled_context == job->context_length) job->context_length = 0;
  job->filled_chunk = job->filled_context = 0;
}

static void fill_from_model(hr_job *job) {
  uint32_t positions = job->model.max_positions;
  if (job->sequence_length == 0 && !(job->given & HR_GIVEN_SEQUENCE))
    job->sequence_length = positions < DEFAULT_SEQUENCE ? positions : DEFAULT_SEQUENCE;
  if (job->context_length == 0 && generates(job)) job->filled_context = job->context_length = job->sequence_length;
  if (job->recompute.kind == HR_RECOMPUTE_SQRT) job->recompute.every = sqrt_layers(job->model.layer_count);
  /* The default clip gives way to an update that cannot have it; one that was asked for is refused instead. */
  if (in_backward(job) && !(job->given & HR_GIVEN_CLIP) && hri_field_is_default(hr_field_find("clip"), job))
    job->clip = 0;
}

/* One row until a planner chooses; what leaves it nothing to choose, or no end, is refused. */
static hr_status open_rows(hr_job *job, hr_error *error) {
  static const char name[] = "--micro-batch auto";
  if (job->micro_batch != HR_MICRO_BATCH_AUTO) return HR_OK;
  if (generates(job) && !trains(job)) {
    hri_fail(error, HR_ERROR_USAGE, "%s is chosen for trainings and evaluations only", name);
    return hri_hint(error, HR_ERROR_USAGE, "leave it out: one row is generated at a time");
  }
  if (job->batch_tokens && (job->given & HR_GIVEN_ACCUMULATE)) {
    hri_fail(error, HR_ERROR_USAGE,
             "%s, --batch-tokens and --accumulate exclude each other: two of them decide the third", name);
    return hri_hint(error, HR_ERROR_USAGE, "leave one of them out");
  }
  if (job->automatic && !job->batch_tokens) {
    hri_fail(error, HR_ERROR_USAGE,
             "%s and --auto exclude each other without --batch-tokens: a step of more rows always takes less time per "
             "token",
             name);
    return hri_hint(error, HR_ERROR_USAGE,
                    trains(job) ? "say how large a step is by --batch-tokens N, or leave --auto out"
                                : "leave --auto out, or give the most rows by --micro-batch N");
  }
  job->micro_batch = 1;
  job->rows_choice = HR_ROWS_OPEN;
  job->given &= ~(uint64_t)HR_GIVEN_MICRO_BATCH;
  return HR_OK;
}

/* batch_tokens becomes accumulate, or must agree with it, and is spent: who changes the rows of a finished job keeps
 * accumulate. */
static hr_status fill_accumulate(hr_job *job, hr_error *error) {
  uint64_t tokens = job->batch_tokens, per_step = (uint64_t)job->sequence_length * job->micro_batch, below;
  const hr_field *accumulate = hr_field_find("accumulate");
  job->batch_tokens = 0;
  if (tokens == 0) return HR_OK;
  if (job->given & HR_GIVEN_ACCUMULATE) {
    if (tokens == per_step * job->accumulate) return HR_OK;
    hri_fail(error, HR_ERROR_USAGE, "--batch-tokens %llu is not seq %u x micro-batch %u x accumulate %u = %llu",
             (unsigned long long)tokens, job->sequence_length, job->micro_batch, job->accumulate,
             (unsigned long long)(per_step * job->accumulate));
    return hri_hint(error, HR_ERROR_USAGE, "leave --batch-tokens or --accumulate out");
  }
  if (tokens % per_step == 0 && tokens / per_step <= accumulate->most) {
    job->accumulate = (uint32_t)(tokens / per_step);
    return HR_OK;
  }
  below = tokens / per_step * per_step;
  if (tokens / per_step > accumulate->most) { /* a multiple near it would be refused just so */
    hri_fail(error, HR_ERROR_USAGE, "--batch-tokens %llu is --accumulate %llu; it must be from %llu to %llu",
             (unsigned long long)tokens, (unsigned long long)(tokens / per_step), (unsigned long long)accumulate->least,
             (unsigned long long)accumulate->most);
    return hri_hint(error, HR_ERROR_USAGE, "--batch-tokens %llu, or a larger --micro-batch",
                    (unsigned long long)(accumulate->most * per_step));
  }
  hri_fail(error, HR_ERROR_USAGE, "--batch-tokens %llu is no multiple of seq %u x micro-batch %u = %llu tokens",
           (unsigned long long)tokens, job->sequence_length, job->micro_batch, (unsigned long long)per_step);
  return hri_hint(error, HR_ERROR_USAGE, "--batch-tokens %llu", (unsigned long long)(below ? below : per_step));
}

/* A share becomes bytes, and is spent; no budget becomes what is usable. */
static hr_status fill_budget(hr_job *job, hr_error *error) {
  char a[32], b[32];
  if (!(job->budget_share >= 0 && job->budget_share <= 1))
    return hri_fail(error, HR_ERROR_USAGE, "--budget is a share of %g; it must lie between 0 and 1", job->budget_share);
  if (job->budget_share > 0) {
    job->budget_bytes = (uint64_t)(job->budget_share * (double)job->device.usable_bytes);
    job->budget_share = 0;
    if (job->budget_bytes == 0) {
      hri_fail(error, HR_ERROR_USAGE, "--budget: the share comes to 0 bytes of %s", job->device.name);
      return hri_hint(error, HR_ERROR_USAGE, "give a size such as 6GiB, or the device its usable_bytes");
    }
  }
  if ((job->given & HR_GIVEN_BUDGET) && job->budget_bytes == 0) {
    hri_fail(error, HR_ERROR_USAGE, "--budget is 0 bytes; nothing can run in it");
    return hri_hint(error, HR_ERROR_USAGE, "give a size such as 6GiB, or a share such as 90%%");
  }
  if (job->budget_bytes == 0) job->budget_bytes = job->device.usable_bytes;
  if (job->device.usable_now || job->device.usable_bytes == 0 || job->budget_bytes <= job->device.usable_bytes)
    return HR_OK; /* 0: a CPU that is described, and of which nobody said more than the budget */
  hri_fail(error, HR_ERROR_USAGE, "--budget is %s and %s has %s", hri_size_text(job->budget_bytes, a), job->device.name,
           hri_size_text(job->device.usable_bytes, b));
  return hri_hint(error, HR_ERROR_USAGE, "leave --budget out for all of it, or name a larger --device");
}

/* Rates and times of a device that the caller described: times of nodes are sums of them, and no program ends before it
 * began. */
static hr_status check_seen(const hr_device *d, hr_error *error) {
  const hr_device_rates *r = &d->rates;
  for (size_t k = 0; k < HR_RATE_ENTRIES; k++)
    if (!hri_seen_pair_holds(r->taken[k], r->assumed[k])) {
      (void)hri_fail(error, HR_ERROR_USAGE,
                     "the device %s has rates seen in training of which entry %zu took %g s where %g s were assumed; "
                     "their ratio must be from 1e-4 to 1e4, or both 0",
                     d->name, k, r->taken[k], r->assumed[k]);
      return hri_hint(error, HR_ERROR_USAGE, "take the device from hr_device_find, or set its rates.threads to 0");
    }
  return HR_OK;
}

static hr_status check_device(const hr_device *d, hr_error *error) {
  const double numbers[] = {d->memory_bytes_per_second,
                            d->flops_fp32,
                            d->flops_tf32,
                            d->flops_bf16,
                            d->flops_fp16,
                            d->core_memory_bytes_per_second,
                            d->link_bytes_per_second,
                            d->node_seconds,
                            d->gemm_efficiency,
                            d->memory_efficiency,
                            d->rates.threads ? d->rates.node_seconds : 0};
  for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
    if (!isfinite(numbers[k]) || numbers[k] < 0)
      return hri_fail(error, HR_ERROR_USAGE,
                      "the device %s has a rate or time of %g; it must be finite and not negative", d->name,
                      numbers[k]);
  return d->rates.threads && d->rates.seen ? check_seen(d, error) : HR_OK;
}

/* Of a device that was only named (hr_job_init, hr_job_set) the rest is looked up; one that was found, and perhaps described
 * further, stays as it is. */
static hr_status fill_device(hr_job *job, hr_error *error) {
  char name[sizeof job->device.name];
  if (!job->device.name[0] || job->device.title[0] || job->device.usable_bytes || job->device.capacity_bytes)
    return check_device(&job->device, error);
  memcpy(name, job->device.name, sizeof name);
  return hr_device_find(name, &job->device, error);
}

hr_precision hr_precision_of(const hr_device *device) {
  return strcmp(device->backend, "cpu") != 0 && !device->has_team && device->flops_bf16 > 0 ? HR_PRECISION_BF16
                                                                                            : HR_PRECISION_FP32;
}

/* A person who says auto says nothing: a planner may still change what comes of it. */
static void fill_precision(hr_job *job) {
  if (job->precision != HR_PRECISION_AUTO) return;
  job->precision = hr_precision_of(&job->device);
  job->given &= ~(uint64_t)HR_GIVEN_PRECISION;
}

/* Of a model whose files are quantized: as they are. */
static hr_status fill_quantization(hr_job *job, hr_error *error) {
  hr_quantize stored = job->model.quantization;
  const char *kind = hri_quantization_name((uint32_t)stored);
  if (job->quantize == HR_QUANTIZE_KEEP && hri_gguf_typed(&job->model)) return hri_gguf_keeps(&job->model, error);
  if (stored == HR_QUANTIZE_NONE || job->quantize == stored) return HR_OK;
  if (job->quantize == HR_QUANTIZE_NONE) {
    job->quantize = stored;
    return HR_OK;
  }
  hri_fail(error, HR_ERROR_USAGE, "--quantize %s and the weights of %s, which are %s, exclude each other",
           hri_quantization_name((uint32_t)job->quantize), job->model.name, kind);
  return hri_hint(error, HR_ERROR_USAGE, "leave --quantize out, or name the model that is not quantized");
}

static hr_status finish(hr_job *job, hr_error *error) {
  hr_job made = *job;
  bool opens;
  reopen(&made);
  HRI_TRY(fill_device(&made, error));
  fill_precision(&made);
  HRI_TRY(hr_model_check(&made.model, error));
  HRI_TRY(check_fields(&made, error));
  if (made.adapter) HRI_TRY(hri_adapter_open(made.adapter, &made.model, error));
  HRI_TRY(fill_quantization(&made, error));
  if (made.lora && !made.model.adapter[0]) /* both: check_exclusions. Kept blocks are no other training */
    HRI_TRY(hri_lora_parse(made.lora, &made.model,
                           made.quantize != HR_QUANTIZE_NONE && made.quantize != HR_QUANTIZE_KEEP, &made.model.lora,
                           error));
  if (trains(&made) && (made.freeze || made.train_only))
    HRI_TRY(hri_freeze_check(&made.model, made.freeze, made.train_only, error));
  fill_from_model(&made);
  HRI_TRY(open_rows(&made, error));
  HRI_TRY(check_rows(&made, error));
  HRI_TRY(fill_accumulate(&made, error));
  HRI_TRY(check_exclusions(&made, false, error));
  if (trains(&made) && made.steps == 0 && made.epochs <= 0)
    return hri_fail(error, HR_ERROR_USAGE, "--steps and --epochs are both 0: there is nothing to train");
  HRI_TRY(fill_budget(&made, error));
  opens = made.loss_chunk == HR_LOSS_CHUNK_AUTO;
  if (opens) made.given &= ~(uint64_t)HR_GIVEN_LOSS_CHUNK; /* as with precision */
  made.loss_chunk = (uint32_t)chunk_of(&made);             /* of at most INT32_MAX rows */
  if (opens) made.filled_chunk = made.loss_chunk;
  if (made.threads == 0) made.threads = hr_device_cpu_threads();
  made.finished = true;
  *job = made;
  return HR_OK;
}

hr_status hr_job_finish(hr_job *job, hr_error *error) {
  job->finished = false;
  return finish(job, error);
}

hr_status hri_job_finished(const hr_job *job, hr_error *error) {
  if (job->finished) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE, "the job is not finished: hr_job_finish was not called for it, or did not accept it");
  return hri_hint(error, HR_ERROR_USAGE,
                  "call hr_job_finish, and look at what it returns, before a job is planned or run");
}

hr_status hri_job_finish_graph(hr_job *job, hr_error *error) {
  job->finished = false;
  HRI_TRY(fill_device(job, error));
  fill_precision(job);
  HRI_TRY(check_fields(job, error));
  HRI_TRY(check_exclusions(job, true, error));
  HRI_TRY(check_chunks(job, (uint64_t)job->micro_batch * job->sequence_length, error));
  if (job->recompute.kind == HR_RECOMPUTE_SQRT) job->recompute.every = sqrt_layers(job->model.layer_count);
  if (job->dropout != 0) {
    hri_fail(error, HR_ERROR_USAGE, "--dropout is of models; a program that is built op by op has no places for it");
    return hri_hint(error, HR_ERROR_USAGE, "leave it 0");
  }
  if (job->neftune_alpha > 0) {
    hri_fail(error, HR_ERROR_USAGE,
             "--neftune-alpha is of models; a program that is built op by op has no embeddings "
             "to add noise to");
    return hri_hint(error, HR_ERROR_USAGE, "leave it 0");
  }
  if (in_backward(job) && !(job->given & HR_GIVEN_CLIP)) job->clip = 0;
  if (job->threads == 0) job->threads = hr_device_cpu_threads();
  HRI_TRY(fill_budget(job, error));
  job->finished = true;
  return HR_OK;
}
