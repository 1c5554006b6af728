/* evaluate and generate: jobs without an optimizer. */
#include <math.h>
#include <string.h>
#include <time.h>

#include "device/host.h"
#include "train/session.h"

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

hr_status hr_evaluate(const hr_job *job, const hr_run_options *options, hr_run_result *result, hr_error *error) {
  hri_session session;
  hri_dataset *data = NULL;
  hr_status status = HR_OK;
  double begin;
  memset(&session, 0, sizeof session);
  memset(result, 0, sizeof *result);
  session.on_event = options->on_event;
  session.context = options->context;
  if (options->data_path_count == 0) {
    status = hri_fail(error, HR_ERROR_USAGE, "evaluate needs data");
    return hri_hint(error, status, "add --data FILE");
  }
  HRI_TRY_OUT(hri_session_need_weights(job, error));
  HRI_TRY_OUT(hr_data_find(options->data_paths, options->data_path_count, error));
  HRI_TRY_OUT(hri_session_plan(&session, job, NULL, error));
  HRI_TRY_OUT(hri_session_prepare(&session, error));
  HRI_TRY_OUT(hri_session_data(&session, options->data_paths, options->data_path_count, &options->data, NULL, NULL,
                               &data, error));
  HRI_TRY_OUT(hri_session_load(&session, NULL, NULL, error));
  begin = now();
  HRI_TRY_OUT(
      hri_session_evaluate(&session, data, options->eval_batches, &result->eval_loss, &result->eval_tokens, error));
  result->seconds = now() - begin;
  result->perplexity = exp(result->eval_loss);
  result->tokens_per_second = (double)result->eval_tokens / fmax(result->seconds, 1e-9);
  result->process_peak_bytes = hri_host_peak_resident_bytes();
  status = hri_session_compare(&session, result->reserved_bytes, result->planned_bytes, error);
out:
  hri_dataset_destroy(data);
  hri_session_close(&session);
  return status;
}

int hr_byte_of_token(const hr_model *model, int32_t token) {
  (void)model;
  return token >= 0 && token < 256 ? token : -1;
}

static hr_status prompt_ids(const hr_job *job, const hr_generate_options *o, int32_t **ids, uint64_t *count,
                            hr_error *error) {
  uint64_t vocabulary = job->model.vocabulary_size;
  *count = o->prompt_ids ? o->prompt_id_count : o->prompt_bytes;
  if (*count == 0) return hri_fail(error, HR_ERROR_USAGE, "the prompt is empty");
  if (!o->prompt_ids && vocabulary < 256)
    return hri_fail(error, HR_ERROR_USAGE, "this model's vocabulary of %llu has no byte tokens",
                    (unsigned long long)vocabulary);
  *ids = hri_alloc(*count * sizeof **ids);
  if (!*ids) return hri_fail_memory(error, *count * sizeof **ids, "the prompt");
  for (uint64_t k = 0; k < *count; k++) {
    (*ids)[k] = o->prompt_ids ? o->prompt_ids[k] : o->prompt[k];
    if ((*ids)[k] < 0 || (uint64_t)(*ids)[k] >= vocabulary) {
      hri_free(*ids);
      *ids = NULL;
      return hri_fail(error, HR_ERROR_USAGE, "prompt token %llu is outside of the vocabulary of %llu",
                      (unsigned long long)k, (unsigned long long)vocabulary);
    }
  }
  return HR_OK;
}

static bool is_stop(const int32_t *stop, uint32_t count, int32_t token) {
  for (uint32_t k = 0; k < count; k++)
    if (stop[k] == token) return true;
  return false;
}

static hr_status generate(hri_session *s, const hr_generate_options *o, const int32_t *ids, uint64_t count,
                          hr_generate_result *result, hr_error *error) {
  hri_sampler sampler = {.temperature = o->temperature, .top_p = o->top_p, .top_k = o->top_k, .seed = o->seed};
  const hr_model *model = &s->plan->spec.model;
  const float *logits = NULL;
  int32_t own[HR_MAX_STOP_TOKENS];
  const int32_t *stop = o->stop_ids ? o->stop_ids : own;
  uint32_t stop_count = o->stop_id_count;
  uint64_t length = 0;
  double begin = now();
  if (!o->stop_ids) HRI_TRY(hr_stop_tokens(model, own, &stop_count, error));
  HRI_TRY(hri_session_feed(s, ids, count, &length, &logits, error));
  result->prompt_tokens = count;
  result->prefill_seconds = now() - begin;
  begin = now();
  while (result->new_tokens < o->max_tokens) {
    int32_t token;
    HRI_TRY(hri_sample(&sampler, logits, model->vocabulary_size, result->new_tokens, &token, error));
    if (is_stop(stop, stop_count, token)) {
      result->stopped_by_end = true;
      break;
    }
    result->new_tokens++;
    if (o->on_token) o->on_token(o->context, token);
    if (result->new_tokens == o->max_tokens || length + 1 > s->plan->spec.context_length) break;
    HRI_TRY(hri_session_feed(s, &token, 1, &length, &logits, error));
  }
  result->decode_seconds = now() - begin;
  return HR_OK;
}

void hr_generate_options_init(hr_generate_options *options) {
  *options = (hr_generate_options){.max_tokens = 128, .temperature = 0.8, .top_p = 1};
}

hr_status hr_generate(const hr_job *job, const hr_generate_options *options, hr_generate_result *result,
                      hr_error *error) {
  hri_session session;
  int32_t *ids = NULL;
  uint64_t count;
  hr_status status = HR_OK;
  memset(&session, 0, sizeof session);
  memset(result, 0, sizeof *result);
  session.on_event = options->on_event;
  session.context = options->context;
  if (job->purpose != HR_PURPOSE_GENERATE) return hri_fail(error, HR_ERROR_USAGE, "this job is not a generation job");
  HRI_TRY(hri_session_need_weights(job, error));
  HRI_TRY(prompt_ids(job, options, &ids, &count, error));
  if (count + options->max_tokens > job->context_length) {
    status = hri_fail(error, HR_ERROR_USAGE,
                      "the prompt has %llu tokens and %llu are to be made, but the context is planned for %u",
                      (unsigned long long)count, (unsigned long long)options->max_tokens, job->context_length);
    hri_hint(error, status, "raise --context or lower --max-tokens");
    goto out;
  }
  HRI_TRY_OUT(hri_session_plan(&session, job, NULL, error));
  HRI_TRY_OUT(hri_session_prepare(&session, error));
  HRI_TRY_OUT(hri_session_load(&session, NULL, NULL, error));
  HRI_TRY_OUT(generate(&session, options, ids, count, result, error));
  status = hri_session_compare(&session, result->reserved_bytes, result->planned_bytes, error);
out:
  hri_free(ids);
  hri_session_close(&session);
  return status;
}
