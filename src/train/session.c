#include "train/session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"
#include "data/words.h"
#include "device/host.h"
#include "program/quantization.h"
#include "train/diverge.h"
#include "train/export.h"
#include "train/manifest.h"

/* Beside the arenas a run takes some buffers and heap of its own: what a step, an evaluation and a checkpoint need. */
enum { RUN_BYTES = 2 << 20 };

void hri_session_tell(const hri_session *s, hr_event_kind kind, const hr_metrics *metrics, const char *text) {
  hr_event event = {.kind = kind, .plan = s->plan, .metrics = metrics, .text = text};
  if (s->on_event) s->on_event(s->context, &event);
}

bool hri_session_watch(hri_session *s, const hr_metrics *metrics, uint64_t *bytes) {
  const hri_backend *backend = s->plan->backend;
  char text[480];
  bool said;
  *bytes = 0;
  if (!backend->grown_bytes) return false;
  said = backend->grown_bytes(backend->self, bytes, text, sizeof text);
  if (*bytes > 0 && !s->growth_told) hri_session_tell(s, HR_EVENT_WARNING, metrics, text);
  s->growth_told = s->growth_told || *bytes > 0;
  return said;
}

/* A budget may be larger than what there is at this moment. */
static hr_status check_room(const hr_plan *plan, bool prepared, hr_error *error) {
  return plan->backend->check_room(plan->backend->self, plan->placement.peak_bytes, prepared, prepared ? RUN_BYTES : 0,
                                   error);
}

/* Nobody named a budget: it is what the least limit leaves, and the refusal says whose that is. */
static hr_status name_budget(const hr_plan *plan, hr_error *error) {
  const hr_job *job = &plan->spec;
  hri_host_memory host = hri_host_memory_now();
  if (plan->backend->held_bytes) return HR_ERROR_BUDGET; /* no memory of the host's */
  if ((job->given & HR_GIVEN_BUDGET) || host.limit == HRI_LIMIT_MACHINE || !error) return HR_ERROR_BUDGET;
  return hri_context(error, HR_ERROR_BUDGET, "within %s: ", hri_host_limit_name(host.limit));
}

/* A card goes on with assumed figures: its budget is what is measured less a guess, its times are nobody's. */
static void tell_rates_problem(const hri_session *s) {
  const hr_device *device = &s->plan->spec.device;
  char text[1024];
  if (!device->rates_problem[0]) return;
  (void)snprintf(text, sizeof text,
                 "times and fixed bytes are assumed: %s; `headroom devices %s --probe` measures anew",
                 device->rates_problem, device->name);
  hri_session_tell(s, HR_EVENT_WARNING, NULL, text);
}

/* Another choice of products, and other bits, were expected by whoever stored that file. */
static void tell_problem(const hri_session *s) {
  const hr_products *p = &s->plan->info.products;
  char text[1024];
  if (!p->problem[0] || s->plan->spec.precision == HR_PRECISION_FP32) return;
  (void)snprintf(text, sizeof text, "products are the shipped ones, %s: %s; `headroom devices --probe` measures anew",
                 p->text, p->problem);
  hri_session_tell(s, HR_EVENT_WARNING, NULL, text);
}

hr_status hri_session_plan(hri_session *s, const hr_job *job, const hri_compile_options *options, hr_error *error) {
  char text[320];
  if (!job->device.backend[0]) {
    hr_status status =
        hri_fail(error, HR_ERROR_UNSUPPORTED, "%s is a row of the table: it can be planned for", job->device.name);
    return hri_hint(error, status, "run with --device cpu, or with --device cuda on a GPU of this machine");
  }
  HRI_TRY(hri_plan_create(job, options, &s->plan, error));
  tell_problem(s);
  tell_rates_problem(s);
  hri_session_tell(s, HR_EVENT_PLANNED, NULL, NULL);
  if (s->plan->backend->note) hri_session_tell(s, HR_EVENT_WARNING, NULL, s->plan->backend->note);
  if (hr_job_beyond_positions(&s->plan->spec, text, sizeof text)) hri_session_tell(s, HR_EVENT_WARNING, NULL, text);
  if (!(job->given & HR_GIVEN_BUDGET)) HRI_TRY(check_room(s->plan, false, error));
  return hr_plan_verdict(s->plan, error) == HR_OK ? check_room(s->plan, false, error) : name_budget(s->plan, error);
}

hr_status hri_session_need_weights(const hr_job *job, hr_error *error) {
  hr_status status;
  if (job->model.has_weights) return HR_OK;
  status = hri_fail(error, HR_ERROR_USAGE, "%s has no weights", job->model.name);
  return hri_hint(error, status, "name a directory with model.safetensors, such as RUN/final of a training");
}

static hr_status fill(void *context, uint32_t range, uint32_t what, const hri_window *tensor, void *staging,
                      uint64_t bytes, hr_error *error) {
  hri_session *s = context;
  return hri_source_fill(&s->source, range, what, tensor, staging, bytes, error);
}

static hr_status sink(void *context, uint32_t range, uint32_t what, const hri_window *tensor, void *staging,
                      uint64_t bytes, hr_error *error) {
  hri_session *s = context;
  return hri_sink_write(s->sink, range, what, tensor, staging, bytes, error);
}

/* A variant that needs more than the plan reserved would break the plan: its rows take the next length. */
static hr_status add_shape(hri_session *s, uint32_t sequence, hr_error *error) {
  hri_variant *variant;
  hri_executor *executor;
  hr_status status;
  HRI_TRY(hri_variant_create(s->plan, sequence, &variant, error));
  for (int tier = 0; tier < HR_TIER_COUNT; tier++)
    if (variant->placement.peak_bytes[tier] > s->plan->placement.peak_bytes[tier]) {
      hri_variant_destroy(variant);
      return HR_OK;
    }
  status = hri_executor_prepare_beside(s->executor, &variant->job, &variant->placement, hri_variant_programs(),
                                       &executor, error);
  if (status == HR_OK)
    s->shapes[s->shape_count++] =
        (hri_shape){.sequence = sequence, .job = &variant->job, .executor = executor, .variant = variant};
  else hri_variant_destroy(variant);
  return status;
}

static hr_status make_shapes(hri_session *s, hr_error *error) {
  uint32_t lengths[HRI_MAX_VARIANTS], count = hri_variant_lengths(&s->plan->spec, lengths),
                                      full = s->plan->spec.sequence_length;
  if (s->one_shape) count = 0;
  for (uint32_t k = 0; k < count; k++) HRI_TRY(add_shape(s, lengths[k], error));
  s->shapes[s->shape_count++] = (hri_shape){.sequence = full, .job = &s->plan->job, .executor = s->executor};
  s->row = hri_alloc((uint64_t)full * HRI_ROW_NUMBERS * sizeof *s->row);
  return s->row ? HR_OK : hri_fail_memory(error, (uint64_t)full * HRI_ROW_NUMBERS * sizeof *s->row, "a row of data");
}

const hri_shape *hri_session_shape(const hri_session *s, uint64_t longest) {
  uint32_t k = 0;
  while (k + 1 < s->shape_count && s->shapes[k].sequence < longest) k++;
  return &s->shapes[k];
}

/* Ids, targets, positions and document starts of a row, `full` apart. */
static void pad_row(int32_t *row, uint64_t full, uint64_t length) {
  for (uint64_t k = 0; k < length; k++) {
    row[k] = 0;
    row[full + k] = HRI_LABEL_IGNORED;
    row[2 * full + k] = (int32_t)k;
    row[3 * full + k] = 0;
  }
}

hr_status hri_session_row(const hri_session *s, const hri_shape *shape, hri_dataset *data, uint64_t row, hri_inputs to,
                          uint64_t index, uint64_t *counted, hr_error *error) {
  const hri_id inputs[4] = {to.ids, to.targets, to.positions, to.doc_start};
  uint64_t full = s->plan->spec.sequence_length, bytes = shape->sequence * sizeof *s->row;
  *counted = 0;
  if (row >= hri_dataset_row_count(data)) pad_row(s->row, full, shape->sequence);
  else HRI_TRY(hri_dataset_row(data, row, s->row, s->row + full, s->row + 2 * full, s->row + 3 * full, counted, error));
  for (uint64_t k = 0; k < 4; k++)
    if (hri_executor_has(shape->executor, inputs[k])) /* no layer turns by positions: nobody asks for them */
      HRI_TRY(hri_executor_write(shape->executor, inputs[k], index * bytes, s->row + k * full, bytes, error));
  return HR_OK;
}

/* A result is to be like the files of the model, not like the checkpoint that a resumed run loads. */
static hr_status take_carry(hri_session *s, bool resumed, hr_error *error) {
  const hr_plan *plan = s->plan;
  hri_source own = {0};
  hr_status status;
  hri_carry_deinit(&s->carry);
  s->carry.dtype = HRI_FILE_F32;
  if (!resumed) return hri_carry_take(&s->carry, &s->source, error);
  if (!plan->spec.model.has_weights || !hri_path_exists(plan->spec.model.directory)) return HR_OK;
  HRI_TRY(hri_source_open(&own, &plan->spec.model, &plan->job, &plan->backend->elements, NULL, NULL, plan->spec.seed,
                          error));
  status = hri_carry_take(&s->carry, &own, error);
  hri_source_close(&own);
  return status;
}

hr_status hri_session_prepare(hri_session *s, hr_error *error) {
  hri_executor_options options = {.check = s->plan->spec.check,
                                  .after_node = s->after_node,
                                  .context = s->after_node_context,
                                  .times = s->times};
  s->transfer = (hri_transfer){.context = s, .fill = fill, .sink = sink};
  HRI_TRY(hri_executor_prepare(&s->plan->job, &s->plan->placement, s->plan->backend, &s->transfer, &options,
                               &s->executor, error));
  HRI_TRY(make_shapes(s, error));
  return check_room(s->plan, true, error);
}

static hr_status reserve(hri_session *s, hr_error *error) {
  hri_mem_trim();
  HRI_TRY(check_room(s->plan, true, error));
  HRI_TRY(hri_executor_reserve(s->executor, error));
  for (uint32_t k = 0; k < s->shape_count; k++)
    if (s->shapes[k].variant) HRI_TRY(hri_executor_reserve(s->shapes[k].executor, error));
  return HR_OK;
}

/* A model directory that has a manifest is a checkpoint of a run, and says what its bytes were. */
static hr_status check_manifest(const char *directory, const hri_file_list *loaded, hr_error *error) {
  hri_file_list files = {0};
  uint64_t step;
  hr_status status = hri_manifest_read(directory, &step, &files, error);
  for (size_t k = 0; status == HR_OK && k < loaded->count; k++) {
    const hri_file_record *have = &loaded->items[k], *want = hri_file_list_find(&files, have->name);
    if (want && want->bytes == have->bytes && want->digest == have->digest) continue;
    status = hri_fail(error, HR_ERROR_INPUT, "%s/%s is damaged: its bytes are not those that were saved", directory,
                      have->name);
    hri_hint(
        error, status,
        "take another checkpoint (headroom inspect RUN --verify); if the file was changed on purpose, remove manifest.json beside it");
  }
  hri_array_free(&files);
  return status;
}

static bool has_manifest(const hr_model *model) {
  char path[sizeof model->directory + sizeof HRI_MANIFEST_FILE + 1];
  (void)snprintf(path, sizeof path, "%s/" HRI_MANIFEST_FILE, model->directory);
  return model->has_weights && hri_path_exists(path);
}

static hr_status load(hri_session *s, const char *directory, const char *states_file, hr_error *error);

hr_status hri_session_load(hri_session *s, const char *directory, const char *states_file, hr_error *error) {
  const hr_model *model = &s->plan->spec.model;
  hri_file_list loaded = {0};
  hr_status status;
  if (directory || s->loaded || !has_manifest(model)) return load(s, directory, states_file, error);
  s->loaded = &loaded;
  status = load(s, NULL, states_file, error);
  s->loaded = NULL;
  if (status == HR_OK) status = check_manifest(model->directory, model->lora.rank > 0 ? &s->base : &loaded, error);
  hri_array_free(&loaded);
  return status;
}

static hr_status load(hri_session *s, const char *directory, const char *states_file, hr_error *error) {
  hri_control control = {.loss_scale = s->plan->spec.precision == HR_PRECISION_FP16 ? s->plan->spec.loss_scale : 1,
                         .clip_scale = 1,
                         .seed = s->plan->spec.seed};
  bool adapters = s->plan->spec.model.lora.rank > 0;
  hri_file_list unasked = {0};
  hr_status status;
  if (!s->executor) HRI_TRY(hri_session_prepare(s, error));
  hri_source_close(&s->source); /* of a load before this one */
  HRI_TRY(hri_source_open(&s->source, &s->plan->spec.model, &s->plan->job, &s->plan->backend->elements, directory,
                          states_file, s->plan->spec.seed, error));
  if (s->loaded || adapters) HRI_TRY(hri_source_digest_begin(&s->source, error));
  HRI_TRY(take_carry(s, directory != NULL, error));
  HRI_TRY(reserve(s, error));
  hri_executor_control_set(s->executor, 0, &control, sizeof control);
  status = hri_executor_run(s->executor, HRI_LOAD, error);
  if (status == HR_OK && (s->loaded || adapters))
    status = hri_source_digest_end(&s->source, s->loaded ? s->loaded : &unasked, &s->base, error);
  if (status == HR_OK && s->plan->spec.precision == HR_PRECISION_FP16) status = hri_check_fp16(s, error);
  hri_array_free(&unasked);
  if (status == HR_OK && s->plan->spec.purpose == HR_PURPOSE_TRAIN) return hri_source_settle(&s->source, error);
  hri_source_close(&s->source); /* files are not needed any more */
  return status;
}

void hri_session_close(hri_session *s) {
  for (uint32_t k = 0; k < s->shape_count; k++) {
    if (!s->shapes[k].variant) continue;
    hri_executor_destroy(s->shapes[k].executor);
    hri_variant_destroy(s->shapes[k].variant);
  }
  hri_free(s->row);
  hri_free(s->logits);
  hri_executor_destroy(s->executor);
  hri_source_close(&s->source);
  hri_carry_deinit(&s->carry);
  hri_array_free(&s->base);
  hr_plan_destroy(s->plan);
  memset(s, 0, sizeof *s);
}

static void tell_changed(const hri_session *s, const hr_error *changed) {
  hr_error told;
  (void)hri_fail(&told, HR_ERROR_INPUT, "%.600s: what does not train is saved as rounded", changed->message);
  hri_session_tell(s, HR_EVENT_WARNING, NULL, told.message);
}

static hr_status save_weights(hri_session *s, const char *directory, hri_file_dtype dtype, bool with_states,
                              hri_file_list *files, hr_error *error) {
  hri_sink_options options = {.carry = &s->carry,
                              .originals = s->source.model ? &s->source : NULL,
                              .as_source = dtype == (hri_file_dtype)HRI_AS_SOURCE,
                              .dtype = dtype,
                              .states = with_states};
  hri_sink out;
  hr_status status;
  if (s->plan->spec.quantize != HR_QUANTIZE_NONE)
    options.quantization = hri_quantization_name((uint32_t)s->plan->spec.quantize);
  HRI_TRY(hri_sink_open(&out, &s->plan->spec.model, &s->plan->job, &s->plan->backend->elements, directory, &options,
                        error));
  s->sink = &out;
  status = hri_executor_run(s->executor, HRI_SAVE, error);
  s->sink = NULL;
  if (status == HR_OK) status = hri_sink_finish(&out, files, error);
  if (status == HR_OK && out.changed.message[0]) tell_changed(s, &out.changed);
  hri_sink_abort(&out);
  return status;
}

/* What cannot be taken over from the source is told, and costs nobody the weights. */
static hr_status told(const hri_session *s, hr_status status, const hr_error *own, hr_error *error) {
  if (status == HR_ERROR_INPUT || status == HR_ERROR_UNSUPPORTED) {
    hri_session_tell(s, HR_EVENT_WARNING, NULL, own->message);
    return HR_OK;
  }
  if (status != HR_OK && error) *error = *own;
  return status;
}

/* Where config.json and the tokenizer's files are taken from: the model's directory, or when that is gone the run's
 * last checkpoint. */
static const hr_model *files_of(const hri_session *s, hr_model *other) {
  const hr_model *model = &s->plan->spec.model;
  if (!model->directory[0] || hri_path_exists(model->directory) || !s->companions[0] ||
      strlen(s->companions) >= sizeof other->directory)
    return model;
  *other = *model;
  (void)snprintf(other->directory, sizeof other->directory, "%.1023s", s->companions);
  return other;
}

/* A tokenizer that was named for the model goes with its results as its own would. */
static hr_status export_companions(const hri_session *s, const hr_model *model, const char *directory,
                                   hri_file_list *files, hr_error *error) {
  const bool gone = s->tokenizer && s->companions[0] && !hri_path_exists(s->tokenizer);
  if (!s->tokenizer) return hri_export_companions(model, model->directory, directory, files, error);
  return hri_export_companions(model, gone ? s->companions : s->tokenizer, directory, files, error);
}

hr_status hri_session_save(hri_session *s, const char *directory, hri_file_dtype dtype, bool with_states,
                           hri_file_list *files, hr_error *error) {
  hri_file_dtype most = dtype == (hri_file_dtype)HRI_AS_SOURCE ? s->carry.dtype : dtype;
  const char *name = most == HRI_FILE_BF16 ? "bfloat16" : most == HRI_FILE_F16 ? "float16" : "float32";
  hr_model other;
  const hr_model *model = files_of(s, &other);
  hr_error own = {0};
  HRI_TRY(save_weights(s, directory, dtype, with_states, files, error));
  HRI_TRY(told(s,
               model->lora.rank > 0 ? hri_export_adapter(&s->plan->spec.model, directory, files, &own)
                                    : hri_export_config(model, name, directory, files, &own),
               &own, error));
  return told(s, export_companions(s, model, directory, files, &own), &own, error);
}

static void tell_note(void *context, const char *note) {
  const hri_session *const *s = context;
  hri_session_tell(*s, HR_EVENT_NOTE, NULL, note);
}

static hr_status open_data(const hri_session *s, const hri_words *words, const char *const *paths, uint32_t count,
                           const hr_data_options *how, const char *spool, const char *run, hri_dataset **data,
                           hr_error *error) {
  const hr_job *job = &s->plan->spec;
  hri_dataset_options options = hri_words_options(words, &job->model, how);
  char *cache = run && !how->cache_directory ? hri_path_join(run, "data-cache") : NULL;
  hr_status status;
  if (cache) {
    options.store_directory = cache;
    options.keep_later = true;
  }
  if (run && !options.store_directory) return hri_fail_memory(error, strlen(run) + 16, "the data cache");
  options.paths = paths;
  options.path_count = count;
  options.sequence = job->sequence_length;
  options.packing = job->packing;
  options.cache_directory = spool;
  options.on_note = tell_note;
  options.note_context = &s;
  options.should_stop = s->should_stop;
  options.stop_context = s->context;
  status = hri_dataset_open(&options, data, error);
  hri_free(cache);
  return status;
}

hr_status hri_session_data(const hri_session *s, const char *const *paths, uint32_t count, const hr_data_options *how,
                           const char *spool, const char *run, hri_dataset **data, hr_error *error) {
  hri_words words;
  hr_status status = hri_words_open(&words, &s->plan->spec.model, how, error);
  if (status == HR_OK) status = open_data(s, &words, paths, count, how, spool, run, data, error);
  hri_words_close(&words);
  HRI_TRY(status);
  hri_session_tell(s, HR_EVENT_NOTE, NULL, hri_dataset_note(*data));
  return HR_OK;
}

/* One batch of rows, in the shortest shape that holds them. */
static hr_status fill_eval(hri_session *s, hri_dataset *data, uint64_t first, const hri_shape **shape,
                           uint64_t *counted, hr_error *error) {
  uint64_t rows = hri_dataset_row_count(data), longest = 0, one;
  hri_inputs in;
  for (uint64_t b = 0; b < s->plan->spec.micro_batch && first + b < rows; b++) {
    uint64_t length = s->plan->spec.sequence_length;
    if (s->shape_count > 1) HRI_TRY(hri_dataset_row_length(data, first + b, &length, error));
    if (length > longest) longest = length;
  }
  *shape = hri_session_shape(s, longest);
  in = (hri_inputs){(*shape)->job->eval_ids, (*shape)->job->eval_targets, (*shape)->job->eval_positions,
                    (*shape)->job->eval_doc_start};
  *counted = 0;
  for (uint64_t b = 0; b < s->plan->spec.micro_batch; b++) {
    HRI_TRY(hri_session_row(s, *shape, data, first + b, in, b, &one, error));
    *counted += one;
  }
  return HR_OK;
}

hr_status hri_session_evaluate(hri_session *s, hri_dataset *data, uint64_t batches, double *loss, uint64_t *tokens,
                               hr_error *error) {
  const hri_control *control = hri_executor_control(s->executor);
  uint64_t rows = hri_dataset_row_count(data), per = s->plan->spec.micro_batch, count = (rows + per - 1) / per,
           total = 0, grown;
  double sum = 0;
  const hri_shape *shape;
  if (batches && batches < count) count = batches;
  for (uint64_t b = 0; b < count; b++) {
    uint64_t counted;
    if (s->should_stop && s->should_stop(s->context))
      return hri_fail(error, HR_ERROR_INTERRUPTED, "stopped in the middle of an evaluation");
    HRI_TRY(fill_eval(s, data, b * per, &shape, &counted, error));
    HRI_CONTROL_SET(s->executor, loss_sum, 0);
    HRI_TRY(hri_executor_run(shape->executor, HRI_EVALUATE, error));
    (void)hri_session_watch(s, NULL, &grown);
    sum += control->loss_sum;
    total += counted;
  }
  *tokens = total;
  *loss = total ? sum / (double)total : NAN;
  return HR_OK;
}

hr_status hri_session_compare(const hri_session *s, uint64_t reserved[HR_TIER_COUNT], uint64_t planned[HR_TIER_COUNT],
                              hr_error *error) {
  for (int tier = 0; tier < HR_TIER_COUNT; tier++) {
    reserved[tier] = hri_executor_reserved_bytes(s->executor, (hri_tier)tier);
    planned[tier] = s->plan->info.tiers[tier].reserved_bytes;
    if (reserved[tier] != planned[tier])
      return hri_fail(error, HR_ERROR_MISMATCH, "the %s tier reserved %llu bytes and the plan says %llu",
                      hri_tier_name((hri_tier)tier), (unsigned long long)reserved[tier],
                      (unsigned long long)planned[tier]);
  }
  return HR_OK;
}

/* ---- generation ---- */

/* Rows of a chunk: `count` given ones, then zeros (they are computed and never seen). ids NULL: positions from `first`
 * on. */
static hr_status put_rows(hri_session *s, hri_id tensor, const int32_t *ids, uint64_t first, uint64_t count,
                          uint64_t rows, hr_error *error) {
  enum { PIECE = 256 };
  int32_t values[PIECE];
  if (!hri_executor_has(s->executor, tensor)) return HR_OK; /* positions that no layer turns by */
  for (uint64_t done = 0; done < rows; done += PIECE) {
    uint64_t n = rows - done < PIECE ? rows - done : PIECE;
    for (uint64_t k = 0; k < n; k++)
      values[k] = done + k >= count ? 0 : ids ? ids[done + k] : (int32_t)(first + done + k);
    HRI_TRY(hri_executor_write(s->executor, tensor, done * sizeof *values, values, n * sizeof *values, error));
  }
  return HR_OK;
}

static hr_status get_logits(hri_session *s, hri_id tensor, const float **logits, hr_error *error) {
  uint64_t bytes = hri_tensor_bytes(&s->plan->job.tensors.items[tensor]);
  *logits = hri_executor_view(s->executor, tensor);
  if (*logits) return HR_OK;
  if (!s->logits) s->logits = hri_alloc(bytes);
  if (!s->logits) return hri_fail_memory(error, bytes, "logits");
  *logits = s->logits;
  return hri_executor_read(s->executor, tensor, 0, s->logits, bytes, error);
}

hr_status hri_session_feed(hri_session *s, const int32_t *ids, uint64_t count, uint64_t *length, const float **logits,
                           hr_error *error) {
  const hri_job *job = &s->plan->job;
  uint64_t grown;
  if (*length + count > s->plan->spec.context_length) /* the cache is rounded up; the table of positions is not */
  {
    hri_fail(error, HR_ERROR_USAGE, "%llu tokens do not fit into the planned context of %u",
             (unsigned long long)(*length + count), s->plan->spec.context_length);
    return hri_hint(error, HR_ERROR_USAGE, "plan more with --context, or make fewer tokens");
  }
  while (count > 0) {
    bool decode = count == 1;
    uint64_t n = decode                      ? 1
                 : count < job->prefill_rows ? count
                                             : job->prefill_rows,
             rows = decode ? 1 : job->prefill_rows;
    HRI_TRY(put_rows(s, decode ? job->decode_ids : job->generate_ids, ids, 0, n, rows, error));
    HRI_TRY(put_rows(s, decode ? job->decode_positions : job->generate_positions, NULL, *length, n, rows, error));
    HRI_CONTROL_SET(s->executor, cache_length, (int64_t)*length);
    HRI_CONTROL_SET(s->executor, row_count, (int64_t)n);
    HRI_TRY(hri_executor_run(s->executor, decode ? HRI_DECODE : HRI_PREFILL, error));
    HRI_TRY(get_logits(s, decode ? job->decode_logits : job->generate_logits, logits, error));
    *length += n;
    ids += n;
    count -= n;
  }
  (void)hri_session_watch(s, NULL, &grown);
  return HR_OK;
}
