#include "plan/compile.h"

#include <string.h>

#include "job/job.h"
#include "model/build.h"
#include "program/check.h"

static hr_status verify(const hri_job *job, const hri_compile_options *options, hri_pass after, hr_error *error) {
  hr_status status = hri_job_ok(job, error);
  if (status != HR_OK || !options->check_each) return status;
  status = hri_job_check(job, error);
  if (status != HR_OK) hri_context(error, status, "after pass %s: ", hri_pass_name(after));
  return status;
}

/* Levels per layer and the group size that --recompute means. */
static uint32_t resolve_levels(const hr_job *spec, uint8_t levels[HR_MAX_LAYERS]) {
  const hr_recompute *r = &spec->recompute;
  uint32_t layers = spec->model.layer_count, group = 1;
  memset(levels,
         r->kind == HR_RECOMPUTE_NONE        ? HR_LEVEL_KEEP
         : r->kind == HR_RECOMPUTE_SELECTIVE ? HR_LEVEL_CHEAP
                                             : HR_LEVEL_BLOCK,
         HR_MAX_LAYERS);
  if (r->kind == HR_RECOMPUTE_EVERY) group = r->every;
  if (r->kind == HR_RECOMPUTE_SQRT) group = r->every; /* by hr_job_finish */
  if (r->kind == HR_RECOMPUTE_SQRT && group == 0) /* graphs are not finished: the same, K to the nearest of sqrt(L) */
    for (group = 1; group * (group + 1) < layers;) group++;
  for (uint32_t l = 0; r->kind == HR_RECOMPUTE_LEVELS && l < layers; l++)
    levels[l] = r->level_count ? r->levels[l < r->level_count ? l : r->level_count - 1] : HR_LEVEL_KEEP;
  return group;
}

/* Weights, activations and states become what --precision says. */
static hr_status compile_precision(hri_job *job, const hr_job *spec, const hri_forward *forwards, hr_error *error) {
  hri_precision_options o = {.masters = spec->precision != HR_PRECISION_BF16_PURE,
                             .narrow = spec->precision == HR_PRECISION_FP16 ? HRI_F16 : HRI_BF16,
                             .head = HRI_NONE};
  if (spec->precision == HR_PRECISION_FP32 || spec->precision == HR_PRECISION_TF32) return HR_OK;
  if (spec->precision == HR_PRECISION_BF16_PURE) {
    o.small_gradients = spec->accumulate == 1;
    o.small_moments = spec->moments == HR_MOMENTS_BF16;
  }
  if (forwards[HRI_STEP].present) {
    uint64_t rows = job->tensors.items[forwards[HRI_STEP].hidden].stored[0], chunk = hri_loss_chunk(spec);
    o.head = forwards[HRI_STEP].head;
    o.head_chunks = (uint32_t)((rows + chunk - 1) / chunk);
  }
  return hri_pass_precision(job, &o, error);
}

static void emit_heads(hri_job *job, const hr_job *spec, const hri_forward *forwards,
                       hri_id gradients[HRI_PROGRAM_COUNT]) {
  for (uint8_t kind = 0; kind < HRI_PROGRAM_COUNT; kind++) {
    const hri_forward *f = &forwards[kind];
    gradients[kind] = HRI_NONE;
    if (!f->present) continue;
    if (kind == HRI_PREFILL || kind == HRI_DECODE) {
      hri_id logits =
          hri_pass_last_logits(job, kind, f->hidden, f->head, f->head_bias, f->vocabulary, f->logit_softcap, f->unit);
      *(kind == HRI_PREFILL ? &job->generate_logits : &job->decode_logits) = logits;
    } else {
      gradients[kind] =
          hri_pass_head(job, kind, f->hidden, f->head, f->head_bias, f->targets, f->vocabulary, f->logit_softcap,
                        spec->label_smoothing, f->unit, f->with_gradient, hri_loss_chunk(spec));
    }
  }
}

static void take_numbers(const hr_job *spec, hri_update_options *update) {
  for (uint32_t kind = 0; kind < HR_OPTIMIZER_COUNT; kind++) {
    const size_t *numbers = hri_optimizer_get(kind)->numbers;
    for (uint32_t k = 0; k < HRI_STATE_NUMBERS && numbers[k]; k++)
      memcpy(&update->numbers[kind][k], (const char *)spec + numbers[k], sizeof(double));
  }
}

static hr_status compile_training(hri_job *job, const hr_job *spec, const hri_backend *backend,
                                  const hri_compile_options *options, const hri_forward *forwards,
                                  const hri_id *gradients, hr_error *error) {
  uint8_t program = spec->accumulate > 1 ? HRI_MICRO : HRI_STEP, levels[HR_MAX_LAYERS];
  uint32_t group = resolve_levels(spec, levels);
  hri_update_options update = {.weight_decay = spec->weight_decay,
                               .clip = spec->clip > 0,
                               .skip = hri_job_skips(spec),
                               .growth_interval = spec->precision == HR_PRECISION_FP16 ? spec->growth_interval : 0,
                               .in_backward = spec->update == HR_UPDATE_IN_BACKWARD};
  take_numbers(spec, &update);
  if (spec->recompute.kind == HR_RECOMPUTE_AUTO) { /* choosing takes plans; this makes one */
    hri_fail(error, HR_ERROR_USAGE, "--recompute auto: the levels of the layers have not been chosen");
    return hri_hint(error, HR_ERROR_USAGE, "call hr_plan_recompute, or hr_plan_auto, before the job is planned or run");
  }
  HRI_TRY(hri_pass_autodiff(job, program, forwards[program].hidden, gradients[program], program == HRI_MICRO, error));
  HRI_TRY(verify(job, options, HRI_PASS_AUTODIFF, error));
  if (!options->no_fuse) HRI_TRY(hri_pass_fuse_products(job, program, backend->epilogues, error));
  HRI_TRY(verify(job, options, HRI_PASS_FUSE, error));
  HRI_TRY(hri_pass_layout(job, update.in_backward, error));
  HRI_TRY(verify(job, options, HRI_PASS_LAYOUT, error));
  HRI_TRY(hri_pass_recompute(job, program, levels, spec->model.layer_count, group, error));
  HRI_TRY(verify(job, options, HRI_PASS_RECOMPUTE, error));
  HRI_TRY(hri_pass_transient(job, error));
  HRI_TRY(verify(job, options, HRI_PASS_TRANSIENT, error));
  HRI_TRY(hri_pass_update(job, &update, error));
  HRI_TRY(verify(job, options, HRI_PASS_UPDATE, error));
  if (options->offload_bytes) {
    HRI_TRY(hri_pass_offload(job, program, options->offload_bytes, options->offload_distance, error));
    HRI_TRY(verify(job, options, HRI_PASS_OFFLOAD, error));
  }
  return HR_OK;
}

static uint64_t workspace_of(const hr_job *spec) {
  static const uint64_t bytes[] =
      {[HR_WORKSPACE_NONE] = 0, [HR_WORKSPACE_4MIB] = 4 << 20, [HR_WORKSPACE_32MIB] = 32 << 20};
  return spec->workspace == HR_WORKSPACE_AUTO ? spec->device.library_workspace_bytes : bytes[spec->workspace];
}

hr_status hri_compile_built(const hr_job *spec, const hri_backend *backend, const hri_compile_options *options,
                            const hri_forward *forwards, hri_job *job, hr_error *error) {
  static const hri_compile_options none = {0};
  hri_id gradients[HRI_PROGRAM_COUNT];
  if (!options) options = &none;
  if (spec->rows_choice == HR_ROWS_OPEN) {
    hri_fail(error, HR_ERROR_USAGE, "--micro-batch auto: the rows of a micro-step have not been chosen");
    return hri_hint(error, HR_ERROR_USAGE, "call hr_plan_rows before the job is planned or run");
  }
  job->team = backend->team;
  job->tf32 = spec->precision == HR_PRECISION_TF32;
  job->workspace_bytes = workspace_of(spec);
  memcpy(job->instruction_set, backend->instruction_set, sizeof job->instruction_set);
  memcpy(job->libraries, backend->libraries, sizeof job->libraries);
  HRI_TRY(compile_precision(job, spec, forwards, error));
  hri_build_transfers(job, true, false, (hri_tier)backend->staging_tier);
  hri_build_magnitudes(job, spec);
  if (hri_programs_of(spec) & HRI_IN(HRI_SAVE))
    hri_build_transfers(job, false, spec->model.lora.rank > 0, (hri_tier)backend->staging_tier);
  HRI_TRY(verify(job, options, HRI_PASS_PRECISION, error));
  emit_heads(job, spec, forwards, gradients);
  HRI_TRY(verify(job, options, HRI_PASS_HEAD, error));
  if (spec->purpose == HR_PURPOSE_TRAIN)
    HRI_TRY(compile_training(job, spec, backend, options, forwards, gradients, error));
  else {
    HRI_TRY(hri_pass_layout(job, false, error));
    HRI_TRY(hri_pass_transient(job, error));
  }
  if (!options->no_fuse) HRI_TRY(hri_pass_fuse(job, error));
  HRI_TRY(verify(job, options, HRI_PASS_FUSE, error));
  if (!options->no_inplace) HRI_TRY(hri_pass_inplace(job, error));
  HRI_TRY(verify(job, options, HRI_PASS_INPLACE, error));
  HRI_TRY(hri_pass_schedule(job, error));
  HRI_TRY(verify(job, options, HRI_PASS_SCHEDULE, error));
  if (spec->weight_packing != HR_WEIGHT_PACKING_OFF) {
    static const hri_pack_mode modes[] = {[HR_WEIGHT_PACKING_AUTO] = HRI_PACK_AUTO,
                                          [HR_WEIGHT_PACKING_TRANSIENT] = HRI_PACK_TRANSIENT,
                                          [HR_WEIGHT_PACKING_PERSISTENT] = HRI_PACK_PERSISTENT};
    HRI_TRY(hri_pass_pack(job, backend, modes[spec->weight_packing], error));
    HRI_TRY(verify(job, options, HRI_PASS_PACK, error));
  }
  HRI_TRY(hri_pass_workspace(job, backend, error));
  HRI_TRY(verify(job, options, HRI_PASS_WORKSPACE, error));
  return options->check_each || options->no_check ? HR_OK : hri_job_check(job, error);
}

hr_status hri_compile(const hr_job *spec, const hri_backend *backend, const hri_compile_options *options, hri_job *job,
                      hr_error *error) {
  hri_forward forwards[HRI_PROGRAM_COUNT];
  hr_status status;
  hri_job_init(job);
  status = hri_build(job, spec, forwards, error);
  if (status == HR_OK) status = hri_compile_built(spec, backend, options, forwards, job, error);
  if (status != HR_OK) {
    hri_job_deinit(job);
    hri_job_init(job);
  }
  return status;
}
