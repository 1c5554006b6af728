/* The public interface (headroom/pytorch.h): a job is translated, run, its requests replayed, and the answer made of what came out. */
#include <headroom/pytorch.h>

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "frameworks/pytorch/arguments.h"
#include "frameworks/pytorch/device.h"
#include "frameworks/pytorch/recorded.h"
#include "frameworks/pytorch/refuse.h"
#include "frameworks/pytorch/replay.h"
#include "frameworks/pytorch/translate.h"
#include "job/job.h"

/* Alike tensors: those that one op makes in one place for one role, of as many bytes each. */
typedef struct live_group {
  hr_pytorch_live live;
  uint64_t asked_bytes; /* of each, in whole units of 512; blocks may be larger */
} live_group;

struct hr_pytorch {
  hr_pytorch_info info;
  hri_torch torch; /* as the run left it: requests and what they are for */
  hri_aten_device device;
  hr_alloc_config config;
  HRI_ARRAY(live_group) live;
  hri_torch_arguments arguments;
};

_Static_assert((int)HR_PYTORCH_EVALUATE == (int)HRI_TORCH_EVALUATE, "phases in one order");

const char *hr_pytorch_phase_name(hr_pytorch_phase phase) {
  static const char *const names[] = {"load", "forward",   "loss",      "backward",
                                      "clip", "optimizer", "zero_grad", "evaluate"};
  return (unsigned)phase < HR_PYTORCH_PHASES ? names[phase] : "unknown";
}

const char *hr_pytorch_verdict_name(hr_pytorch_verdict verdict) {
  static const char *const names[] = {"fits", "fits_within_error", "does_not_fit"};
  return (unsigned)verdict < HR_PYTORCH_VERDICTS ? names[verdict] : "unknown";
}

void hr_pytorch_options_init(hr_pytorch_options *options) { memset(options, 0, sizeof *options); }

/* ---- what is told ---- */

static bool same_group(const live_group *group, const hri_torch_label *l, hr_role role, uint64_t asked_bytes) {
  const hr_pytorch_live *a = &group->live;
  return a->op == l->op && a->module == l->module && a->role == role && group->asked_bytes == asked_bytes;
}

static bool add_live(hr_pytorch *p, const hri_torch_request *request, uint64_t block_bytes) {
  const hri_torch_label *l = &p->torch.labels.items[request->label];
  hr_role role = (hr_role)p->torch.storages.items[request->storage].role;
  const uint64_t asked = hri_round_up(request->bytes, 512);
  live_group one = {{l->op, l->module, l->layer, role, block_bytes, 1}, asked};
  p->info.at_peak_by_role[role] += block_bytes;
  for (size_t i = 0; i < p->live.count; i++) {
    live_group *group = &p->live.items[i];
    if (!same_group(group, l, role, asked)) continue;
    group->live.count++;
    group->live.bytes += block_bytes;
    if (group->live.layer != l->layer) group->live.layer = -1;
    return true;
  }
  return hri_array_push(&p->live, one);
}

static int by_bytes(const void *a, const void *b) {
  const live_group *x = a, *y = b;
  return (x->live.bytes < y->live.bytes) - (x->live.bytes > y->live.bytes);
}

/* What begins before the peak and does not end before it; `blocks` are the bytes of each storage. */
static hr_status list_live(hr_pytorch *p, uint64_t peak_request, const uint64_t *blocks, hr_error *error) {
  const hri_torch_request *requests = p->torch.requests.items;
  uint64_t *begun = hri_alloc_zero(p->torch.storages.count, sizeof *begun);
  bool ok = begun != NULL;
  for (uint64_t i = 0; ok && i <= peak_request; i++) begun[requests[i].storage] = requests[i].bytes ? i + 1 : 0;
  for (size_t s = 1; ok && s < p->torch.storages.count; s++)
    if (begun[s]) ok = add_live(p, &requests[begun[s] - 1], blocks[s]);
  hri_free(begun);
  if (!ok) return hri_fail_memory(error, p->torch.storages.count * 8, "tensors at the peak");
  qsort(p->live.items, p->live.count, sizeof *p->live.items, by_bytes);
  p->info.live_count = (uint32_t)p->live.count;
  return HR_OK;
}

static void tell_phases(hr_pytorch_info *info, const hri_torch_replay *replay) {
  for (int phase = 0; phase < HR_PYTORCH_PHASES; phase++)
    for (int step = 0; step < 2; step++) {
      const hri_torch_usage *usage = &replay->phases[step][phase];
      if (usage->allocated_bytes > info->allocated_by_phase[phase])
        info->allocated_by_phase[phase] = usage->allocated_bytes;
      if (usage->reserved_bytes > info->reserved_by_phase[phase])
        info->reserved_by_phase[phase] = usage->reserved_bytes;
    }
}

/* Whether every request is met in `room`, cached memory returned where it runs out. */
static hr_status fits_in(hr_pytorch *p, uint64_t room, bool *fits, uint64_t *retries, hr_error *error) {
  hri_torch_replay within;
  *retries = 0;
  *fits = p->info.reserved_bytes <= room;
  if (*fits || p->info.allocated_bytes > room) return HR_OK;
  HRI_TRY(hri_torch_replay_run(&p->torch, &p->config, room, &within, error));
  *fits = within.fits;
  *retries = within.retries > 0 ? (uint64_t)within.retries : 0;
  return HR_OK;
}

/* What fits is sure where it would also fit if PyTorch's requests were larger by as much as they ever were: in so much less room. Else
 * what is missing is the room that makes it sure. */
static hr_status judge(hr_pytorch *p, uint64_t room, hr_error *error) {
  hr_pytorch_info *info = &p->info;
  double reserve = 1 + info->error_high;
  uint64_t wanted, retries;
  bool sure;
  info->verdict = info->fits ? HR_PYTORCH_FITS : HR_PYTORCH_DOES_NOT_FIT;
  if (!info->fits) return HR_OK;
  HRI_TRY(fits_in(p, (uint64_t)((double)room / reserve), &sure, &retries, error));
  if (sure) return HR_OK;
  wanted = (uint64_t)(reserve * (double)(info->reserved_bytes < room ? info->reserved_bytes : room)) + 1;
  info->verdict = HR_PYTORCH_FITS_WITHIN_ERROR;
  info->reserve_missing_bytes = wanted - room;
  return HR_OK;
}

/* Parts of parameters that are on the host, with their gradients and the optimizer's states of them. */
static uint64_t host_bytes(const hri_torch *torch, hri_torch_optimizer optimizer) {
  uint64_t states = 2;
  if (optimizer == HRI_TORCH_SGD) states = 0;
  if (optimizer == HRI_TORCH_SGD_MOMENTUM) states = 1;
  return torch->host_bytes * (2 + states) + torch->host_buffer_bytes;
}

/* The job as it ran. */
static void tell_job(hr_pytorch *p, const hri_torch_asked *asked, const hri_torch_job *job) {
  hr_pytorch_info *info = &p->info;
  const hri_torch_optim optim = hri_torch_stack_optim(asked->stack, asked->job, asked->settings);
  info->versions = hri_torch_recorded_versions(asked->settings, asked->stack);
  info->recorded = hri_torch_is_recorded(job, asked->settings, asked->stack);
  info->error_low = info->recorded ? HRI_TORCH_ERROR_LOW : HRI_TORCH_ERROR_OF_SOURCE_LOW;
  info->error_high = info->recorded ? HRI_TORCH_ERROR_HIGH : HRI_TORCH_ERROR_OF_SOURCE_HIGH;
  info->ranks = job->ranks;
  info->host_bytes = host_bytes(&p->torch, job->optimizer);
  info->micro_batch = (uint32_t)job->batch;
  info->accumulate = job->accumulate;
  info->sequence_length = (uint32_t)job->tokens;
  info->optim = asked->stack->recipes ? hri_recipe_optimizer(optim) : hri_torch_optim_name(optim);
  info->attention = hri_torch_attention_name(job, asked->settings);
  info->checkpointing = job->checkpoint;
  info->reentrant = job->checkpoint && job->reentrant;
  info->parameter_count = p->torch.parameter_count;
  info->trainable_parameter_count = p->torch.trained_count;
}

/* On a device with more memory than it ever wants. */
static hr_status tell_memory(hr_pytorch *p, hr_error *error) {
  hr_pytorch_info *info = &p->info;
  uint64_t *blocks = hri_alloc_zero(p->torch.storages.count, sizeof *blocks);
  hri_torch_replay replay;
  hr_status status;
  if (!blocks) return hri_fail_memory(error, p->torch.storages.count * sizeof *blocks, "blocks of tensors");
  HRI_TRY_OUT(hri_torch_replay_blocks(&p->torch, &p->config, blocks, &replay, error));
  info->allocated_bytes = replay.whole.allocated_bytes;
  info->reserved_bytes = replay.whole.reserved_bytes;
  info->peak_phase = (hr_pytorch_phase)replay.peak_phase;
  info->peak_step = replay.peak_step;
  info->request_count = p->torch.requests.count;
  tell_phases(info, &replay);
  status = list_live(p, replay.peak_request, blocks, error);
out:
  hri_free(blocks);
  return status;
}

/* What the process may have: a fraction that was set is of cudaMemGetInfo's total, and caps the allocator alone. */
static uint64_t budget_of(const hr_pytorch *p, const hr_job *job) {
  const double share = p->config.memory_fraction;
  const uint64_t capped = (uint64_t)(share * (double)job->device.usable_bytes) + p->info.context_bytes;
  return share < 1 && capped < job->budget_bytes ? capped : job->budget_bytes;
}

/* What is left of the budget for the allocator, and whether that is enough. */
static hr_status tell_fit(hr_pytorch *p, const hr_job *job, hr_error *error) {
  hr_pytorch_info *info = &p->info;
  uint64_t room;
  info->context_bytes = hri_torch_context_bytes(&job->device);
  info->device_used_bytes = info->reserved_bytes + info->context_bytes;
  info->budget_bytes = budget_of(p, job);
  room = info->budget_bytes > info->context_bytes ? info->budget_bytes - info->context_bytes : 0;
  HRI_TRY(fits_in(p, room, &info->fits, &info->retries, error));
  if (!info->fits && info->allocated_bytes > room) info->missing_bytes = info->allocated_bytes - room;
  return judge(p, room, error);
}

/* ---- the way there ---- */

/* One row stands in micro_batch until somebody has chosen, which is nobody's job. */
static hr_status refuse_open_rows(const hr_job *job, hr_error *error) {
  if (job->rows_choice != HR_ROWS_OPEN) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE, "--micro-batch auto: the rows of a micro-step have not been chosen");
  return hri_hint(error, HR_ERROR_USAGE,
                  "set micro_batch to the rows that PyTorch is to take, or call hr_plan_rows first for those that "
                  "Headroom would take");
}

/* The options' settings with what the stack adds, where there are rules for the job with them. */
static hr_status read_settings(const hr_job *job, const hr_pytorch_options *options, const hri_torch_stack *stack,
                               hri_torch_settings *out, hr_error *error) {
  HRI_TRY(stack->recipes ? hri_recipe_settings_parse(options->conf, out, error)
                         : hri_torch_settings_parse(options->conf, out, error));
  hri_torch_stack_defaults(stack, job, out);
  return hri_torch_refuse(job, out, stack, options->ranks, error);
}

static hr_status run(hr_pytorch *p, const hri_torch_asked *asked, hr_pytorch_stack stack, hr_error *error) {
  enum { LISTS = 32 << 20 }; /* a round figure: which of the lists could not grow is not known here */
  hri_torch_translation translation;
  hri_torch_translate(asked, &translation);
  memcpy(p->info.settings, translation.settings, sizeof p->info.settings);
  memcpy(p->info.unlike, translation.unlike, sizeof p->info.unlike);
  const hri_torch_arguments_of of = {asked->job,      &translation.job,
                                     asked->settings, hri_torch_stack_optim(asked->stack, asked->job, asked->settings),
                                     stack,           asked->alloc_conf};
  if (!hri_torch_arguments_write(&of, &p->arguments)) return hri_fail_memory(error, LISTS, "PyTorch's settings");
  p->device = hri_aten_device_like(&asked->job->device);
  p->torch.device = &p->device;
  if (!hri_torch_run(&p->torch, &translation.job)) return hri_fail_memory(error, LISTS, "PyTorch's requests");
  tell_job(p, asked, &translation.job);
  HRI_TRY(tell_memory(p, error));
  return tell_fit(p, asked->job, error);
}

hr_status hr_pytorch_create(const hr_job *job, const hr_pytorch_options *options, hr_pytorch **pytorch,
                            hr_error *error) {
  hr_pytorch_options usual;
  hri_torch_settings settings;
  const hri_torch_stack *stack;
  const char *alloc_conf;
  hr_pytorch *p;
  hr_status status;
  *pytorch = NULL;
  hr_pytorch_options_init(&usual);
  if (!options) options = &usual;
  stack = hri_torch_stack_of(options->stack);
  alloc_conf = options->alloc_conf ? options->alloc_conf : stack->alloc_conf;
  HRI_TRY(hri_job_finished(job, error));
  HRI_TRY(refuse_open_rows(job, error));
  HRI_TRY(read_settings(job, options, stack, &settings, error));
  p = hri_alloc_zero(1, sizeof *p);
  if (!p) return hri_fail_memory(error, sizeof *p, "what PyTorch would need");
  hri_torch_init(&p->torch);
  p->config = hr_alloc_config_default();
  status = hr_alloc_config_parse(alloc_conf, &p->config, error);
  if (status == HR_OK)
    status =
        run(p, &(hri_torch_asked){job, &settings, stack, options->ranks, options->alloc_conf}, options->stack, error);
  if (status != HR_OK) hr_pytorch_destroy(p);
  else *pytorch = p;
  return status;
}

/* ---- what the answer holds ---- */

const hr_pytorch_info *hr_pytorch_get(const hr_pytorch *pytorch) { return &pytorch->info; }

bool hr_pytorch_argument_get(const hr_pytorch *pytorch, uint32_t index, hr_pytorch_argument *argument) {
  if (index >= pytorch->arguments.texts.count) return false;
  argument->text = hri_text_get(&pytorch->arguments.texts.items[index]);
  return true;
}

bool hr_pytorch_live_get(const hr_pytorch *pytorch, uint32_t index, hr_pytorch_live *live) {
  if (index >= pytorch->live.count) return false;
  *live = pytorch->live.items[index].live;
  return true;
}

/* `label` is of the request, or of the one that it ends. */
static hr_pytorch_moment moment_of(const hri_torch_request *request, const hri_torch_label *label,
                                   const hri_torch_moment *found) {
  hr_pytorch_moment moment = {.allocated_bytes = found->allocated_bytes,
                              .reserved_bytes = found->reserved_bytes,
                              .step = found->step ? found->step : 1,
                              .phase = (hr_pytorch_phase)found->phase,
                              .op = "empty_cache",
                              .module = "",
                              .layer = -1};
  if (request->storage == 0) return moment; /* of no tensor (replay.c) */
  moment.op = label->op;
  moment.module = label->module;
  moment.layer = label->layer;
  moment.free = request->bytes == 0;
  return moment;
}

hr_status hr_pytorch_course(const hr_pytorch *pytorch, hr_pytorch_moment **moments, uint64_t *count, hr_error *error) {
  const hri_torch *t = &pytorch->torch;
  hri_torch_moment *found = hri_alloc_zero(t->requests.count, sizeof *found);
  hr_pytorch_moment *out = hri_alloc_zero(t->requests.count, sizeof *out);
  uint32_t *labels = hri_alloc_zero(t->storages.count, sizeof *labels); /* of the request that each storage came with */
  hr_status status = HR_OK;
  if (!found || !out || !labels)
    status = hri_fail_memory(error, t->requests.count * sizeof *out, "the course of PyTorch's memory");
  if (status == HR_OK) status = hri_torch_replay_course(t, &pytorch->config, found, error);
  for (size_t i = 0; status == HR_OK && i < t->requests.count; i++) {
    const hri_torch_request *request = &t->requests.items[i];
    if (request->bytes) labels[request->storage] = request->label;
    out[i] = moment_of(request, &t->labels.items[labels[request->storage]], &found[i]);
  }
  hri_free(found);
  hri_free(labels);
  *moments = status == HR_OK ? out : NULL;
  *count = status == HR_OK ? t->requests.count : 0;
  if (status != HR_OK) hri_free(out);
  return status;
}

hr_status hr_pytorch_snapshot(const hr_pytorch *pytorch, hr_snapshot **snapshot, hr_error *error) {
  return hri_torch_replay_snapshot(&pytorch->torch, &pytorch->config, 0, snapshot, error);
}

void hr_pytorch_destroy(hr_pytorch *pytorch) {
  if (!pytorch) return;
  hri_torch_deinit(&pytorch->torch);
  hri_torch_arguments_deinit(&pytorch->arguments);
  hri_array_free(&pytorch->live);
  hri_free(pytorch);
}
