/* headroom explain --model: what would fit, each planned, in the words of the framework that failed. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/explain.h"
#include "cli/plan.h"
#include "cli/text.h"

enum { PLANNED = 5 };

/* The device of the table whose memory is the message's, within 2 %: it brings the fixed bytes of its kind. */
static bool find_by_total(uint64_t total, char name[48]) {
  uint64_t best = total / 50;
  bool found = false;
  for (uint32_t i = 0; i < hr_device_count(); i++) {
    hr_device device;
    uint64_t apart;
    if (hr_device_get(i, &device, NULL) != HR_OK) continue;
    apart = device.usable_bytes > total ? device.usable_bytes - total : total - device.usable_bytes;
    if (apart > best) continue;
    best = apart;
    found = true;
    (void)memcpy(name, device.name, 48);
  }
  return found;
}

/* The total of the very device that failed, whatever the table says of its kind: drivers keep some of it. */
static hr_status take_total(cli_config *config, uint64_t total, hr_error *error) {
  hr_device *device = &config->job.device;
  if (!device->name[0] || total == 0) return HR_OK;
  if (!device->usable_bytes) HRI_TRY(hr_device_find(device->name, device, error));
  if (device->usable_bytes < total && !device->usable_now) device->usable_bytes = total;
  return HR_OK;
}

/* The job's device and budget where the user gave none: the message's total, less what other processes hold of it. */
static hr_status take_device(cli_config *config, const hr_oom_failure *failure, hr_error *error) {
  uint64_t total = failure->figures[HR_OOM_TOTAL].bytes, others = failure->figures[HR_OOM_OTHER_PROCESSES].bytes;
  char name[48], bytes[32];
  if (!config_chosen(config, &config->job.device) && total && find_by_total(total, name))
    if (config_set(config, option_at(config, &config->job.device), name, ORIGIN_FLAG, "", error) != HR_OK)
      return error->code;
  HRI_TRY(take_total(config, total, error));
  if (config_chosen(config, &config->job.budget_bytes)) return HR_OK;
  if (total <= others) {
    if (config_chosen(config, &config->job.device)) return HR_OK;
    hri_fail(error, HR_ERROR_USAGE, "there is no total of the device to plan for");
    return hri_hint(error, HR_ERROR_USAGE, "--device NAME (headroom devices lists them) or --budget SIZE");
  }
  (void)snprintf(bytes, sizeof bytes, "%lluB", (unsigned long long)(total - others));
  return config_set(config, option_at(config, &config->job.budget_bytes), bytes, ORIGIN_FLAG, "", error);
}

/* ---- a changed job in words ---- */

typedef struct phrase {
  char text[HR_OOM_LINE_BYTES];
  const char *framework;
  size_t used;
} phrase;

/* "F(a=1)" behind "F(b=2)" becomes "F(b=2, a=1)". */
static bool join(phrase *p, const char *words) {
  const char *open = strchr(words, '('), *last = p->text;
  for (const char *next = last; (next = strstr(next, "; ")) != NULL;) last = next += 2;
  if (!open || p->used == 0 || p->text[p->used - 1] != ')' || words[strlen(words) - 1] != ')') return false;
  if (strncmp(last, words, (size_t)(open - words) + 1) != 0) return false;
  p->used--;
  p->used += (size_t)snprintf(p->text + p->used, sizeof p->text - p->used, ", %s", open + 1);
  return true;
}

static void add(phrase *p, hr_technique technique, uint64_t number) {
  char words[HR_OOM_LINE_BYTES];
  (void)hr_technique_words(technique, number, p->framework, words, sizeof words);
  if (p->used >= sizeof p->text || join(p, words)) return;
  p->used += (size_t)snprintf(p->text + p->used, sizeof p->text - p->used, "%s%s", p->used ? "; " : "", words);
}

/* HR_TECHNIQUE_COUNT: frameworks have no common word for it. */
static hr_technique optimizer_technique(hr_optimizer optimizer) {
  switch ((int)optimizer) {
  case HR_OPTIMIZER_SGD: return HR_TECHNIQUE_SGD;
  case HR_OPTIMIZER_MOMENTUM: return HR_TECHNIQUE_MOMENTUM;
  case HR_OPTIMIZER_ADAMW8BIT: return HR_TECHNIQUE_8BIT;
  case HR_OPTIMIZER_ADAFACTOR: return HR_TECHNIQUE_ADAFACTOR;
  default: return HR_TECHNIQUE_COUNT;
  }
}

/* False when there are no words for a change in frameworks' terms (levels between none and block; states in bf16; some
 * optimizers; adapters and quantization, which advice of their own names), or they do not fit into a line. */
static bool describe(const hr_job *base, const hr_job *job, phrase *p) {
  if (job->lora != base->lora || job->quantize != base->quantize || job->moments != base->moments) return false;
  if (job->recompute.kind != base->recompute.kind) {
    if (job->recompute.kind == HR_RECOMPUTE_BLOCK) add(p, HR_TECHNIQUE_CHECKPOINTING, 0);
    else if (job->recompute.kind == HR_RECOMPUTE_SELECTIVE) add(p, HR_TECHNIQUE_SELECTIVE, 0);
    else return false;
  }
  if (job->micro_batch != base->micro_batch) add(p, HR_TECHNIQUE_MICRO_BATCH, job->micro_batch);
  if (job->accumulate != base->accumulate) add(p, HR_TECHNIQUE_ACCUMULATE, job->accumulate);
  if (job->sequence_length != base->sequence_length) add(p, HR_TECHNIQUE_SEQUENCE, job->sequence_length);
  if (job->loss_chunk != base->loss_chunk && job->loss_chunk != HR_LOSS_CHUNK_OFF &&
      job->micro_batch == base->micro_batch && job->sequence_length == base->sequence_length)
    add(p, HR_TECHNIQUE_LOSS_CHUNK, job->loss_chunk);
  if (job->precision != base->precision)
    add(p,
        job->precision == HR_PRECISION_BF16   ? HR_TECHNIQUE_BF16
        : job->precision == HR_PRECISION_FP16 ? HR_TECHNIQUE_FP16
                                              : HR_TECHNIQUE_BF16_PURE,
        0);
  if (job->optimizer != base->optimizer) {
    if (optimizer_technique(job->optimizer) == HR_TECHNIQUE_COUNT) return false;
    add(p, optimizer_technique(job->optimizer), 0);
  }
  if (job->update != base->update) add(p, HR_TECHNIQUE_IN_BACKWARD, 0);
  return p->used > 0 && p->used < sizeof p->text;
}

/* Seconds per token. */
static const char *cost_of(const hr_fix *fix, double base_seconds) {
  if (fix->changes_algorithm) return "another training";
  if (base_seconds <= 0 || fix->token_seconds <= base_seconds * 1.02) return "none";
  return fix->token_seconds <= base_seconds * 1.15 ? "some speed" : "a quarter of the speed";
}

static bool already_said(const hr_oom_failure *f, const char *text) {
  for (uint32_t i = 0; i < f->advice_count; i++)
    if (f->advice[i].basis == HR_OOM_PLANNED && strcmp(f->advice[i].text, text) == 0) return true;
  return false;
}

/* Whether a change saves what matters: it makes the job fit, or, where the plan fits as it is and the run failed all
 * the same, it saves the failing request and a twentieth of the device. */
static bool saves(const hr_plan *plan, const hr_fix *fix, const hr_oom_failure *failure) {
  uint64_t margin = hr_plan_get(plan)->budget_bytes / 20, requested = failure->figures[HR_OOM_REQUESTED].bytes;
  if (!fix->fits || !hr_plan_get(plan)->fits) return fix->fits;
  if (requested > margin) margin = requested;
  return fix->need_bytes + margin <= plan_need(plan);
}

static void add_fixes(const hr_plan *plan, const fix_list *list, hr_oom_failure *failure) {
  const hr_job *base = hr_plan_job(plan);
  double seconds = hr_plan_get(plan)->step_seconds / (double)hr_plan_get(plan)->tokens_per_step;
  uint32_t added = 0;
  for (uint32_t i = 0; i < list->count && added < PLANNED; i++) {
    const hr_fix *fix = &list->fixes[i];
    phrase words = {.framework = failure->framework};
    char proof[HR_OOM_LINE_BYTES];
    if (!saves(plan, fix, failure) || !describe(base, &fix->job, &words) || already_said(failure, words.text)) continue;
    (void)snprintf(proof, sizeof proof, "planned: needs %s of %s (%.120s), time %+.0f %%%s", SIZE_TEXT(fix->need_bytes),
                   SIZE_TEXT(base->budget_bytes), fix->options, percent_more(fix->token_seconds, seconds),
                   fix->changes_algorithm ? "; not the same training" : "");
    hr_oom_add_advice(failure, HR_OOM_PLANNED, words.text, cost_of(fix, seconds), proof, fix->need_bytes);
    added++;
  }
}

/* The job that failed had its rows and its levels; what a planner would choose is another job. */
static hr_status refuse_choices(const hr_job *job, hr_error *error) {
  if (job->rows_choice == HR_ROWS_OPEN) {
    hri_fail(error, HR_ERROR_USAGE, "--micro-batch auto says nothing of the job that failed");
    return hri_hint(error, HR_ERROR_USAGE, "give the rows per device that it ran with, --micro-batch N");
  }
  if (job->recompute.kind == HR_RECOMPUTE_AUTO) {
    hri_fail(error, HR_ERROR_USAGE, "--recompute auto says nothing of the job that failed");
    return hri_hint(error, HR_ERROR_USAGE,
                    "say what it did: none, block (torch.utils.checkpoint around each block), selective");
  }
  return HR_OK;
}

hr_status explain_plan(cli_config *config, hr_oom_failure *failure, explain_result *result, hr_error *error) {
  hr_plan *plan = NULL;
  fix_list list = {0};
  hr_status status = take_device(config, failure, error);
  if (status == HR_OK)
    status =
        config_set(config, option_at(config, &config->run.model_source), config->own.model, ORIGIN_FLAG, "", error);
  if (status == HR_OK) status = config_job(config, HR_PURPOSE_TRAIN, error);
  if (status == HR_OK) status = refuse_choices(&config->job, error);
  if (status == HR_OK) status = hr_plan_create(&config->job, &plan, error);
  if (status == HR_OK) status = fix_list_make(&config->job, &list, error);
  if (status == HR_OK) {
    result->planned_bytes = plan_need(plan);
    result->planned_fits = hr_plan_get(plan)->fits;
    (void)snprintf(result->planned_for, sizeof result->planned_for, "%.60s on %.47s, %s", config->job.model.name,
                   config->job.device.name, SIZE_TEXT(config->job.budget_bytes));
    (void)plan_precision_text(plan, result->planned_precision, sizeof result->planned_precision);
    add_fixes(plan, &list, failure);
  }
  fix_list_free(&list);
  hr_plan_destroy(plan);
  return status;
}
