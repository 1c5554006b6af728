/* --engine pytorch: which settings of the framework make a job fit. Changes are combined from a few techniques, ordered, and each is run
 * as the job itself is; what fits is told in the framework's words. --auto takes the cheapest, the list shows what is not more than
 * enough. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/plan_engine.h"
#include "cli/text.h"

/* ---- a change ---- */

typedef enum states { STATES_SAME = 0, STATES_8BIT, STATES_PAGED, STATES_KINDS } states;

typedef struct change {
  double time;   /* of a step, as a share of the job's own: assumed, to order by */
  states states; /* of AdamW: in 8 bits, or those in pages of the host */
  uint32_t rows; /* of a micro-step; as many micro-steps more as there are fewer */
  int effect;
  uint32_t parts;
  bool checkpointing, expandable;
  bool shards;      /* several ranks share weights, gradients and states, where each has them all */
  bool to_host;     /* evaluation gives its logits to the host after each batch */
  bool liger;       /* Liger's kernels: the same mathematics in another order, no logits */
  bool half, pure;  /* autocast to 16 bits; 16-bit weights and states */
  bool in_backward; /* torchtune's optimizer_in_bwd: no gradient waits for another */
} change;

enum { MOST_CHANGES = 2048, MOST_ROWS = 64 };
typedef struct changes {
  change items[MOST_CHANGES];
  uint32_t count;
} changes;

static bool has_setting(const cli_config *config, const char *name) {
  return config->own.engine_conf && strstr(config->own.engine_conf, name);
}

static bool is_torchtune(const cli_config *config) { return plan_engine_options(config).stack == HR_PYTORCH_TORCHTUNE; }

/* Steps of few tokens leave a GPU idle: about 512 tokens' worth of time for each. */
static double micro_steps_time(const hr_job *job, uint32_t rows) {
  double tokens = (double)rows * job->sequence_length, own = (double)job->micro_batch * job->sequence_length;
  return (1 + 512 / tokens) / (1 + 512 / own);
}

static void weigh(const hr_job *job, change *c) {
  static const double by_states[STATES_KINDS] = {1, 1.02, 1.1};
  bool wide = job->precision == HR_PRECISION_FP32 || job->precision == HR_PRECISION_TF32;
  c->time = by_states[c->states] * (c->checkpointing ? 4.0 / 3 : 1) * micro_steps_time(job, c->rows);
  if (c->half) c->time *= 0.5;
  if (c->pure) c->time *= wide ? 0.45 : 0.9;
  if (c->shards) c->time *= 1.1;
  if (c->to_host) c->time *= 1.01;
  if (c->in_backward) c->time *= 1.02;
  c->effect = HR_EFFECT_SAME_BITS;
  if (c->rows != job->micro_batch || c->shards || c->liger) c->effect = HR_EFFECT_ROUNDING;
  if (c->half || c->pure || c->states) c->effect = HR_EFFECT_NUMERICS;
  c->parts = (uint32_t)c->checkpointing + c->to_host + (c->states != STATES_SAME) + (c->rows != job->micro_batch) +
             c->half + c->pure + c->shards + c->liger + c->in_backward;
}

static int by_effect(const void *a, const void *b) {
  const change *x = a, *y = b;
  if (x->effect != y->effect) return x->effect - y->effect;
  if (x->time < y->time || x->time > y->time) return x->time < y->time ? -1 : 1;
  return (int)x->parts - (int)y->parts;
}

/* Rounding is no reason to take longer: --auto orders by time, and other numerics come last. */
static int by_time(const void *a, const void *b) {
  const change *x = a, *y = b;
  int numerics = (x->effect == HR_EFFECT_NUMERICS) - (y->effect == HR_EFFECT_NUMERICS);
  if (numerics) return numerics;
  if (x->time < y->time || x->time > y->time) return x->time < y->time ? -1 : 1;
  return (int)x->parts - (int)y->parts;
}

/* ---- which there are for a job ---- */

typedef struct choices {
  bool checkpointing, to_host, half, pure, narrow, shards, liger, in_backward;
  uint32_t rows[16], row_count;
} choices;

static bool is_given(const hr_job *job, uint64_t bits, bool automatic) { return automatic && (job->given & bits); }

static bool may_narrow(const cli_config *config) {
  return config->job.optimizer == HR_OPTIMIZER_ADAMW && !has_setting(config, "optim=") &&
         !has_setting(config, "optimizer.") && !config->job.model.lora.rank;
}

/* Its recipes have one type of weights for all, and the optimizer's step in the backward where all trains at once and nothing is clipped. */
static void limit_to_torchtune(const cli_config *config, bool automatic, choices *c) {
  const hr_job *job = &config->job;
  c->half = c->liger = false;
  c->pure = c->pure && job->precision != HR_PRECISION_BF16;
  c->in_backward = job->update != HR_UPDATE_IN_BACKWARD && job->accumulate == 1 && !job->model.lora.rank &&
                   !is_given(job, HR_GIVEN_UPDATE, automatic) && !(job->given & HR_GIVEN_CLIP && job->clip > 0);
}

/* Ranks that share nothing yet; said of a loop of one's own and of the Trainer. */
static bool may_shard(const cli_config *config) {
  hr_pytorch_stack stack = plan_engine_options(config).stack;
  return config->own.ranks > 1 && (stack == HR_PYTORCH_TRAINER || stack == HR_PYTORCH_PLAIN) &&
         !has_setting(config, "fsdp") && !has_setting(config, "zero_stage") && !has_setting(config, "ddp_") &&
         !has_setting(config, "bucket_view");
}

/* Rows that divide those of a step: fewer than asked for, and for --auto, which nobody told how many, more. */
static void find_rows(const hr_job *job, bool automatic, choices *c) {
  uint64_t all = (uint64_t)job->micro_batch * job->accumulate;
  bool fixed = is_given(job, HR_GIVEN_MICRO_BATCH | HR_GIVEN_ACCUMULATE, automatic);
  c->rows[c->row_count++] = job->micro_batch;
  for (uint64_t rows = 1; rows <= MOST_ROWS && !fixed; rows *= 2) {
    if (rows == job->micro_batch || all % rows || (rows > job->micro_batch && !automatic)) continue;
    if (job->micro_batch % rows && !automatic) continue;
    c->rows[c->row_count++] = (uint32_t)rows;
  }
}

static choices choices_of(const cli_config *config, bool automatic) {
  const hr_job *job = &config->job;
  const hr_precision precision = job->precision;
  bool open = !is_given(job, HR_GIVEN_PRECISION, automatic), wide = precision == HR_PRECISION_FP32;
  choices c = {0};
  c.checkpointing = job->recompute.kind == HR_RECOMPUTE_NONE && !is_given(job, HR_GIVEN_RECOMPUTE, automatic) &&
                    !hr_pytorch_stack_checkpoints(plan_engine_options(config).stack);
  c.to_host = has_setting(config, "compute_metrics=true") && !has_setting(config, "eval_accumulation_steps");
  c.half = open && (wide || precision == HR_PRECISION_TF32) && job->quantize == HR_QUANTIZE_NONE;
  c.pure = open && precision != HR_PRECISION_BF16_PURE && precision != HR_PRECISION_FP16 &&
           job->device.compute_capability >= 80;
  c.narrow = may_narrow(config) && !is_given(job, HR_GIVEN_OPTIMIZER, automatic);
  c.shards = may_shard(config);
  c.liger = !has_setting(config, "use_liger_kernel"); /* where there are none a run of them is refused at once */
  if (is_torchtune(config)) limit_to_torchtune(config, automatic, &c);
  find_rows(job, automatic, &c);
  return c;
}

static void add_changes(const hr_job *job, const choices *c, bool automatic, change base, changes *list) {
  const uint32_t kinds = (c->narrow ? STATES_KINDS : 1) * (c->liger ? 2u : 1u);
  for (uint32_t r = 0; r < c->row_count; r++)
    for (uint32_t k = 0; k < kinds; k++) {
      change one = base;
      if (list->count == MOST_CHANGES) return;
      if (base.in_backward && c->rows[r] != job->micro_batch) continue; /* nothing accumulates then */
      one.rows = c->rows[r];
      one.liger = c->liger && k % 2;
      one.states = (states)(c->liger ? k / 2 : k);
      weigh(job, &one);
      if (one.parts || automatic) list->items[list->count++] = one; /* none at all is a choice too */
    }
}

static void list_changes(const cli_config *config, bool automatic, changes *list) {
  choices c = choices_of(config, automatic);
  list->count = 0;
  for (int k = 0; k < 32; k++)
    for (int to_host = 0; to_host <= c.to_host; to_host++) {
      change base = {.checkpointing = k & 1,
                     .half = k & 2,
                     .pure = k & 4,
                     .shards = k & 8,
                     .in_backward = k & 16,
                     .to_host = to_host};
      if ((base.half && base.pure) || (base.checkpointing && !c.checkpointing)) continue;
      if ((base.shards && !c.shards) || (base.in_backward && !c.in_backward)) continue;
      if ((base.half && !c.half) || (base.pure && !c.pure)) continue;
      add_changes(&config->job, &c, automatic, base, list);
    }
  qsort(list->items, list->count, sizeof *list->items, automatic ? by_time : by_effect);
}

/* ---- what a change makes of a job ---- */

void plan_engine_choice_free(plan_engine_choice *choice) {
  hri_text_deinit(&choice->conf);
  hri_text_deinit(&choice->alloc_conf);
  hri_text_deinit(&choice->text);
  hri_text_deinit(&choice->options);
  free(choice);
}

static void set_text(hri_text *text, const char *what) {
  hri_text_deinit(text);
  if (what) hri_text_add(text, "%s", what);
}

static void append(hri_text *text, const char *what) { hri_text_add(text, "%s%s", text->length ? "," : "", what); }

static void apply(const cli_config *config, const change *c, plan_engine_choice *out) {
  static const char *const states_conf[][STATES_KINDS] = {{"", "optim=adamw_bnb_8bit", "optim=paged_adamw_8bit"},
                                                          {"", "optimizer._component_=bitsandbytes.optim.AdamW8bit",
                                                           "optimizer._component_=bitsandbytes.optim.PagedAdamW8bit"}};
  bool old = config->job.device.compute_capability < 80; /* no products in bf16: fp16 stands for it */
  out->job = config->job;
  set_text(&out->conf, config->own.engine_conf);
  set_text(&out->alloc_conf, config->own.alloc_conf);
  if (c->checkpointing) out->job.recompute.kind = HR_RECOMPUTE_BLOCK;
  out->job.accumulate = (uint32_t)((uint64_t)out->job.accumulate * out->job.micro_batch / c->rows);
  out->job.micro_batch = c->rows;
  if (c->half) out->job.precision = old ? HR_PRECISION_FP16 : HR_PRECISION_BF16;
  if (c->pure) out->job.precision = HR_PRECISION_BF16_PURE, out->job.moments = HR_MOMENTS_BF16;
  if (c->in_backward) out->job.update = HR_UPDATE_IN_BACKWARD, out->job.clip = 0;
  if (c->states) append(&out->conf, states_conf[is_torchtune(config)][c->states]);
  if (c->shards) append(&out->conf, "fsdp=true");
  if (c->to_host) append(&out->conf, "eval_accumulation_steps=1");
  if (c->liger) append(&out->conf, "use_liger_kernel=true");
  if (c->expandable) append(&out->alloc_conf, "expandable_segments:True");
}

static void say_text(hri_text *text, const char *what) { hri_text_add(text, "%s%s", text->length ? ", " : "", what); }

static void say(hri_text *text, const char *framework, hr_technique technique, uint64_t value) {
  char words[256];
  (void)hr_technique_words(technique, value, framework, words, sizeof words);
  say_text(text, words);
}

static void add_option(hri_text *text, const char *name, const char *value) {
  hri_text_add(text, "%s--%s %s", text->length ? " " : "", name, value);
}

static void add_number(hri_text *text, const char *name, uint32_t value) {
  hri_text_add(text, "%s--%s %u", text->length ? " " : "", name, value);
}

static void say_liger(const cli_config *config, hr_pytorch_stack stack, hri_text *text) {
  static const char *const words[HR_PYTORCH_STACKS] =
      {[HR_PYTORCH_TRAINER] = "TrainingArguments(use_liger_kernel=True)",
       [HR_PYTORCH_TRL] = "SFTConfig(use_liger_kernel=True)",
       [HR_PYTORCH_AXOLOTL] = "plugins: [axolotl.integrations.liger.LigerPlugin] with all of its kernels",
       [HR_PYTORCH_LLAMA_FACTORY] = "enable_liger_kernel: true"};
  char own[80];
  (void)snprintf(own, sizeof own, "apply_liger_kernel_to_%s(model=model)", hr_family_name(config->job.model.family));
  say_text(text, stack == HR_PYTORCH_PLAIN ? own : words[stack]);
}

static void say_change(const cli_config *config, const change *c, plan_engine_choice *out) {
  static const char *const frameworks[HR_PYTORCH_STACKS] = {"transformers",  "",         "transformers", "axolotl",
                                                            "llama-factory", "torchtune"};
  static const char *const paged[HR_PYTORCH_STACKS] = {"TrainingArguments(optim=\"paged_adamw_8bit\")",
                                                       "bitsandbytes.optim.PagedAdamW8bit",
                                                       "SFTConfig(optim=\"paged_adamw_8bit\")",
                                                       "optimizer: paged_adamw_8bit",
                                                       "optim: paged_adamw_8bit",
                                                       "optimizer._component_=bitsandbytes.optim.PagedAdamW8bit"};
  hr_pytorch_stack stack = plan_engine_options(config).stack;
  const char *framework = frameworks[stack];
  bool trainer = stack == HR_PYTORCH_TRAINER || stack == HR_PYTORCH_TRL;
  hri_text *text = &out->text;
  set_text(text, NULL);
  if (c->expandable) say_text(text, "PYTORCH_ALLOC_CONF=expandable_segments:True");
  if (c->shards)
    say_text(text, trainer ? "TrainingArguments(fsdp=True)" : "fully_shard of each block and of the model");
  if (c->to_host) say_text(text, "TrainingArguments(eval_accumulation_steps=1)");
  if (c->liger) say_liger(config, stack, text);
  if (c->checkpointing) say(text, framework, HR_TECHNIQUE_CHECKPOINTING, 0);
  if (c->rows != config->job.micro_batch) {
    say(text, framework, HR_TECHNIQUE_MICRO_BATCH, c->rows);
    say(text, framework, HR_TECHNIQUE_ACCUMULATE, out->job.accumulate);
  }
  if (c->half) say(text, framework, out->job.precision == HR_PRECISION_FP16 ? HR_TECHNIQUE_FP16 : HR_TECHNIQUE_BF16, 0);
  if (c->in_backward) say(text, framework, HR_TECHNIQUE_IN_BACKWARD, 0);
  if (c->pure && is_torchtune(config)) say(text, framework, HR_TECHNIQUE_BF16_PURE, 0);
  else if (c->pure)
    say_text(text,
             trainer ? "from_pretrained(..., dtype=torch.bfloat16) without bf16=True" : "model.to(torch.bfloat16)");
  if (c->states == STATES_8BIT) say(text, framework, HR_TECHNIQUE_8BIT, 0);
  if (c->states == STATES_PAGED) say_text(text, paged[stack]);
}

/* What `plan` is told for the same, instead of what it was told before. */
static void say_options(const cli_config *config, const change *c, plan_engine_choice *out) {
  hri_text *text = &out->options;
  set_text(text, NULL);
  if (c->checkpointing) add_option(text, "recompute", "block");
  if (c->rows != config->job.micro_batch || config->job.rows_choice == HR_ROWS_CHOSEN) { /* auto would choose anew */
    add_number(text, "micro-batch", c->rows);
    if (!(config->job.given & HR_GIVEN_BATCH_TOKENS)) add_number(text, "accumulate", out->job.accumulate);
  }
  if (c->half || c->pure) add_option(text, "precision", hr_precision_name(out->job.precision));
  if (c->pure) add_option(text, "moments", "bf16");
  if (c->in_backward) add_option(text, "update", "in-backward");
  if (c->states || c->shards || c->to_host || c->liger) add_option(text, "engine-conf", hri_text_get(&out->conf));
  if (c->expandable) add_option(text, "alloc-conf", hri_text_get(&out->alloc_conf));
}

/* ---- running them ---- */

typedef struct outcome {
  bool fits;   /* surely */
  bool pieces; /* all that is allocated would fit: what does not is what the allocator holds beside it */
  uint64_t need_bytes, retries;
} outcome;

/* Whether the job's options allow it: rows in more micro-steps, or fp16, exclude an update in the backward that was given. */
static bool is_legal(const plan_engine_choice *choice) {
  hr_job job = choice->job;
  if (!(job.given & HR_GIVEN_LOSS_CHUNK)) job.loss_chunk = HR_LOSS_CHUNK_AUTO;
  return hr_job_finish(&job, NULL) == HR_OK;
}

/* A change without rules fits not. */
static hr_status run(const cli_config *config, const plan_engine_choice *choice, outcome *out, hr_error *error) {
  hr_pytorch_options options = plan_engine_options(config);
  hr_pytorch *pytorch = NULL;
  hr_error refused;
  hr_status status;
  const hr_pytorch_info *info;
  *out = (outcome){0};
  if (!is_legal(choice)) return HR_OK;
  if (choice->conf.failed || choice->alloc_conf.failed) return hri_fail_memory(error, 0, "settings that may fit");
  options.conf = hri_text_get(&choice->conf);
  if (choice->alloc_conf.length) options.alloc_conf = hri_text_get(&choice->alloc_conf);
  status = hr_pytorch_create(&choice->job, &options, &pytorch, &refused);
  if (status == HR_ERROR_UNSUPPORTED) return HR_OK;
  if (status != HR_OK) {
    *error = refused;
    return status;
  }
  info = hr_pytorch_get(pytorch);
  out->fits = info->verdict == HR_PYTORCH_FITS;
  out->pieces = info->allocated_bytes + info->context_bytes <= info->budget_bytes;
  out->need_bytes = info->device_used_bytes;
  out->retries = info->fits ? info->retries : 0;
  hr_pytorch_destroy(pytorch);
  return HR_OK;
}

static bool has_expandable(const cli_config *config) {
  const char *conf = config->own.alloc_conf;
  if (!conf) conf = hr_pytorch_stack_alloc_conf(plan_engine_options(config).stack);
  return conf && strstr(conf, "expandable_segments");
}

/* As it is, and where only pieces do not fit, with segments that grow. */
static hr_status try_change(const cli_config *config, change *c, plan_engine_choice *choice, outcome *out,
                            hr_error *error) {
  apply(config, c, choice);
  HRI_TRY(run(config, choice, out, error));
  choice->tried++;
  if (!out->fits && out->pieces && !has_expandable(config)) {
    c->expandable = true;
    apply(config, c, choice);
    HRI_TRY(run(config, choice, out, error));
    choice->tried++;
  }
  if (out->fits) {
    say_change(config, c, choice);
    say_options(config, c, choice);
    if (choice->text.failed || choice->options.failed) return hri_fail_memory(error, 0, "settings that fit");
  }
  return HR_OK;
}

/* All that `part` changes `whole` changes too, and as far. */
static bool is_part(const change *part, const change *whole, uint32_t own_rows) {
  bool rows = part->rows == own_rows || (whole->rows <= part->rows && part->rows < own_rows) ||
              (whole->rows >= part->rows && part->rows > own_rows);
  return rows && part->checkpointing <= whole->checkpointing && part->to_host <= whole->to_host &&
         part->liger <= whole->liger && part->half <= whole->half && part->in_backward <= whole->in_backward &&
         part->shards <= whole->shards && part->pure <= whole->pure && part->expandable <= whole->expandable &&
         (part->states == STATES_SAME || part->states == whole->states);
}

static bool has_part(const change *found, uint32_t count, const change *whole, uint32_t own_rows) {
  for (uint32_t i = 0; i < count; i++)
    if (is_part(&found[i], whole, own_rows)) return true;
  return false;
}

enum { MOST_FIXES = 16 };

static hr_status take_all(const cli_config *config, changes *list, plan_engine_choice *choice, plan_engine_take *take,
                          void *context, hr_error *error) {
  change found[MOST_FIXES];
  uint32_t count = 0;
  if (!has_expandable(config)) { /* the settings of the allocator alone */
    change alone = {.expandable = true, .rows = config->job.micro_batch, .effect = HR_EFFECT_SAME_BITS};
    outcome out;
    apply(config, &alone, choice);
    HRI_TRY(run(config, choice, &out, error));
    if (out.fits) {
      say_change(config, &alone, choice);
      say_options(config, &alone, choice);
      take(context, &(plan_engine_fix){hri_text_get(&choice->text), hri_text_get(&choice->options), alone.effect,
                                       out.need_bytes, out.retries});
      found[count++] = alone;
    }
  }
  for (uint32_t i = 0; i < list->count && count < MOST_FIXES; i++) {
    change *c = &list->items[i];
    outcome out;
    if (has_part(found, count, c, config->job.micro_batch)) continue;
    HRI_TRY(try_change(config, c, choice, &out, error));
    if (!out.fits || has_part(found, count, c, config->job.micro_batch)) continue;
    take(context, &(plan_engine_fix){hri_text_get(&choice->text), hri_text_get(&choice->options), c->effect,
                                     out.need_bytes, out.retries});
    found[count++] = *c;
  }
  return HR_OK;
}

hr_status plan_engine_each_fix(const cli_config *config, plan_engine_take *take, void *context, hr_error *error) {
  changes *list = text_alloc(sizeof *list);
  plan_engine_choice *choice = text_alloc(sizeof *choice);
  hr_status status = HR_OK;
  list_changes(config, false, list);
  status = take_all(config, list, choice, take, context, error);
  plan_engine_choice_free(choice);
  free(list);
  return status;
}

/* ---- --auto ---- */

/* The job as it was asked for has its place among the others, which may be faster. */
static hr_status choose(const cli_config *config, changes *list, plan_engine_choice *choice, hr_error *error) {
  for (uint32_t i = 0; i < list->count; i++) {
    outcome out;
    HRI_TRY(try_change(config, &list->items[i], choice, &out, error));
    if (out.fits) return choice->found = true, HR_OK;
  }
  apply(config, &(change){.rows = config->job.micro_batch}, choice);
  set_text(&choice->text, NULL);
  return HR_OK;
}

hr_status plan_engine_auto(const cli_config *config, plan_engine_choice *choice, hr_error *error) {
  changes *list = text_alloc(sizeof *list);
  hr_status status;
  list_changes(config, true, list);
  status = choose(config, list, choice, error);
  free(list);
  return status;
}

void plan_engine_print_choice(const plan_engine_choice *choice) {
  hri_text text = {0};
  if (!choice->found) hri_text_add(&text, "none of %u choices fits", choice->tried);
  else if (!choice->text.length) hri_text_add(&text, "chose what was asked for");
  else hri_text_add(&text, "%s; tried: %u", hri_text_get(&choice->text), choice->tried);
  screen_hang(stderr, 11, "auto", hri_text_get(&text));
  hri_text_deinit(&text);
}
