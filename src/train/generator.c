/* generate: a loaded job without an optimizer that answers one prompt after the other.
 *
 * The cache holds keys and values of the tokens that were fed, in their order; position k depends on tokens 0 to k and
 * on nothing else. So the next prompt keeps as much as it has in common with them, from the front, and what follows is
 * fed over what the cache held there: programs read it up to the length that they are told. The last token of a prompt
 * is always fed, since its logits are wanted. */
#include <assert.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "job/job.h"
#include "train/session.h"

struct hr_generator {
  hri_session session;
  int32_t *fed; /* tokens in the cache: room for the context */
  uint64_t fed_count;
  uint64_t draws; /* so far, of all answers: each draw has a random number of its own */
};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int hr_byte_of_token(const hr_model *model, int32_t token) {
  (void)model;
  return token >= 0 && token < 256 ? token : -1;
}

/* ---- the prompt ---- */

static hr_status prompt_ids(const hr_job *job, const hr_generate_options *o, int32_t **ids, uint64_t count,
                            hr_error *error) {
  uint64_t vocabulary = job->model.vocabulary_size;
  if (!o->prompt_ids && !o->prompt && count > 0) {
    hri_fail(error, HR_ERROR_USAGE, "the prompt has %llu bytes and is NULL", (unsigned long long)count);
    return hri_hint(error, HR_ERROR_USAGE, "give hr_generate_options.prompt, or prompt_ids");
  }
  if (count == 0) {
    hri_fail(error, HR_ERROR_USAGE, "the prompt is empty");
    return hri_hint(error, HR_ERROR_USAGE, "give at least one token to go on from: --prompt TEXT");
  }
  if (!o->prompt_ids && vocabulary < 256) {
    hri_fail(error, HR_ERROR_USAGE, "this model's vocabulary of %llu has no byte tokens",
             (unsigned long long)vocabulary);
    return hri_hint(error, HR_ERROR_USAGE, "give token ids, or a tokenizer: --tokenizer DIR");
  }
  *ids = hri_alloc(count * sizeof **ids);
  if (!*ids) return hri_fail_memory(error, count * sizeof **ids, "the prompt");
  for (uint64_t k = 0; k < count; k++) {
    (*ids)[k] = o->prompt_ids ? o->prompt_ids[k] : o->prompt[k];
    if ((*ids)[k] < 0 || (uint64_t)(*ids)[k] >= vocabulary) {
      hri_free(*ids);
      *ids = NULL;
      hri_fail(error, HR_ERROR_USAGE, "prompt token %llu is outside of the vocabulary of %llu", (unsigned long long)k,
               (unsigned long long)vocabulary);
      return hri_hint(error, HR_ERROR_USAGE,
                      "name the tokenizer that belongs to the model (--tokenizer), or put it into its directory");
    }
  }
  return HR_OK;
}

/* Comparisons with what is no number would choose a token all the same. */
static hr_status check_options(const hr_generate_options *o, hr_error *error) {
  const struct {
    const char *name;
    double value, most;
  } numbers[] = {{"repetition_penalty", o->repetition_penalty, INFINITY},
                 {"temperature", o->temperature, INFINITY},
                 {"top_p", o->top_p, 1},
                 {"min_p", o->min_p, 1}};
  for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
    const double value = numbers[k].value, most = numbers[k].most;
    if (isfinite(value) && value >= 0 && value <= most) continue;
    if (isinf(most))
      hri_fail(error, HR_ERROR_USAGE, "%s is %g; it must be finite and at least 0", numbers[k].name, value);
    else hri_fail(error, HR_ERROR_USAGE, "%s is %g; it must lie between 0 and %g", numbers[k].name, value, most);
    return hri_hint(error, HR_ERROR_USAGE,
                    "begin with hr_generate_options_init and set hr_generate_options.%s after it", numbers[k].name);
  }
  return HR_OK;
}

/* In new memory, checked against vocabulary and context. */
static hr_status take_prompt(const hr_job *job, const hr_generate_options *o, int32_t **ids, uint64_t *count,
                             hr_error *error) {
  hr_status status;
  *count = o->prompt_ids ? o->prompt_id_count : o->prompt_bytes;
  if (*count <= job->context_length && o->max_tokens <= job->context_length - *count)
    return prompt_ids(job, o, ids, *count, error);
  status = hri_fail(error, HR_ERROR_USAGE,
                    "the prompt has %llu tokens and %llu are to be made, but the context is planned for %u",
                    (unsigned long long)*count, (unsigned long long)o->max_tokens, job->context_length);
  return hri_hint(error, status, "raise --context or lower --max-tokens");
}

static bool asked_to_stop(const hr_generate_options *o, hr_generate_result *result) {
  result->stopped_by_request = result->stopped_by_request || (o->should_stop && o->should_stop(o->context));
  return result->stopped_by_request;
}

/* Feeds a chunk at a time, as feeding all at once does, so that a long prompt can be left in the middle. */
static hr_status feed_prompt(hr_generator *g, const hr_generate_options *o, const int32_t *ids, uint64_t count,
                             const float **logits, hr_generate_result *result, hr_error *error) {
  uint64_t chunk = g->session.plan->job.prefill_rows, kept = 0, length;
  while (kept + 1 < count && kept < g->fed_count && ids[kept] == g->fed[kept]) kept++;
  result->kept_tokens = kept;
  memcpy(g->fed, ids, count * sizeof *ids);
  for (length = g->fed_count = kept; length < count; g->fed_count = length) {
    if (asked_to_stop(o, result)) return HR_OK;
    HRI_TRY(hri_session_feed(&g->session, ids + length, count - length < chunk ? count - length : chunk, &length,
                             logits, error));
  }
  return HR_OK;
}

/* ---- the answer ---- */

static bool is_stop(const int32_t *stop, uint32_t count, int32_t token) {
  for (uint32_t k = 0; k < count; k++)
    if (stop[k] == token) return true;
  return false;
}

static hr_status answer(hr_generator *g, const hr_generate_options *o, const float *logits, hr_generate_result *result,
                        hr_error *error) {
  const hr_job *job = &g->session.plan->spec;
  hri_sampler sampler = {.temperature = o->temperature,
                         .top_p = o->top_p,
                         .min_p = o->min_p,
                         .repetition_penalty = o->repetition_penalty,
                         .top_k = o->top_k,
                         .seed = o->seed,
                         .seen = g->fed};
  int32_t own[HR_MAX_STOP_TOKENS];
  const int32_t *stop = o->stop_ids ? o->stop_ids : own;
  uint32_t stop_count = o->stop_id_count;
  if (!o->stop_ids) HRI_TRY(hr_stop_tokens(&job->model, own, &stop_count, error));
  while (result->new_tokens < o->max_tokens && !asked_to_stop(o, result)) {
    int32_t token;
    sampler.seen_count = g->fed_count;
    HRI_TRY(hri_sample(&sampler, logits, job->model.vocabulary_size, g->draws, &token, error));
    if (is_stop(stop, stop_count, token)) {
      result->stopped_by_end = true;
      break;
    }
    g->draws++;
    result->new_tokens++;
    if (o->on_token) o->on_token(o->context, token);
    if (result->new_tokens == o->max_tokens || asked_to_stop(o, result)) break;
    assert(g->fed_count < job->context_length); /* take_prompt left room for max_tokens */
    g->fed[g->fed_count] = token;
    HRI_TRY(hri_session_feed(&g->session, &token, 1, &g->fed_count, &logits, error));
  }
  return HR_OK;
}

static hr_status run(hr_generator *g, const hr_generate_options *o, const int32_t *ids, uint64_t count,
                     hr_generate_result *result, hr_error *error) {
  const float *logits = NULL;
  double begin = now();
  hr_status status = feed_prompt(g, o, ids, count, &logits, result, error);
  result->prompt_tokens = count;
  result->prefill_seconds = now() - begin;
  begin = now();
  if (status == HR_OK && !result->stopped_by_request) status = answer(g, o, logits, result, error);
  result->decode_seconds = now() - begin;
  if (status == HR_OK) status = hri_session_compare(&g->session, result->reserved_bytes, result->planned_bytes, error);
  if (status != HR_OK) g->fed_count = 0;
  return status;
}

/* ---- the public functions ---- */

void hr_generate_options_init(hr_generate_options *options) {
  *options = (hr_generate_options){.max_tokens = 128, .temperature = 0.8, .top_p = 1, .repetition_penalty = 1};
}

static hr_status check_job(const hr_job *job, hr_error *error) {
  HRI_TRY(hri_job_finished(job, error));
  if (job->purpose != HR_PURPOSE_GENERATE) {
    hri_fail(error, HR_ERROR_USAGE, "this job is not a generation job");
    return hri_hint(error, HR_ERROR_USAGE, "finish it with the purpose HR_PURPOSE_GENERATE");
  }
  return hri_session_need_weights(job, error);
}

static hr_status open_session(hr_generator *g, const hr_job *job, hr_error *error) {
  g->fed = hri_alloc((uint64_t)job->context_length * sizeof *g->fed);
  if (!g->fed) return hri_fail_memory(error, (uint64_t)job->context_length * sizeof *g->fed, "the tokens of a context");
  HRI_TRY(hri_session_plan(&g->session, job, NULL, error));
  HRI_TRY(hri_session_prepare(&g->session, error));
  return hri_session_load(&g->session, NULL, NULL, error);
}

hr_status hr_generator_open(const hr_job *job, void (*on_event)(void *context, const hr_event *event), void *context,
                            hr_generator **generator, hr_error *error) {
  hr_generator *g;
  hr_status status;
  *generator = NULL;
  HRI_TRY(check_job(job, error));
  g = hri_alloc_zero(1, sizeof *g);
  if (!g) return hri_fail_memory(error, sizeof *g, "a generator");
  g->session.on_event = on_event;
  g->session.context = context;
  status = open_session(g, job, error);
  if (status == HR_OK) *generator = g;
  else hr_generator_close(g);
  return status;
}

hr_status hr_generator_run(hr_generator *generator, const hr_generate_options *options, hr_generate_result *result,
                           hr_error *error) {
  int32_t *ids = NULL;
  uint64_t count;
  hr_status status;
  memset(result, 0, sizeof *result);
  HRI_TRY(check_options(options, error));
  HRI_TRY(take_prompt(&generator->session.plan->spec, options, &ids, &count, error));
  status = run(generator, options, ids, count, result, error);
  hri_free(ids);
  return status;
}

void hr_generator_close(hr_generator *generator) {
  if (!generator) return;
  hri_session_close(&generator->session);
  hri_free(generator->fed);
  hri_free(generator);
}

hr_status hr_generate(const hr_job *job, const hr_generate_options *options, hr_generate_result *result,
                      hr_error *error) {
  hr_generator *g = NULL;
  int32_t *ids = NULL;
  uint64_t count;
  hr_status status;
  memset(result, 0, sizeof *result);
  HRI_TRY(check_job(job, error));
  HRI_TRY(check_options(options, error));
  HRI_TRY(take_prompt(job, options, &ids, &count, error)); /* before anything is planned or read */
  status = hr_generator_open(job, options->on_event, options->context, &g, error);
  if (status == HR_OK) status = run(g, options, ids, count, result, error);
  hr_generator_close(g);
  hri_free(ids);
  return status;
}
