/* The prompt becomes tokens once, before the run begins: what cannot be continued is told then and not after the first
 * evaluation, or never. */
#include "train/excerpt.h"

#include <string.h>

#include <headroom/tokenizer.h>

enum { MOST_TOKENS = 120 };

/* The prompt's ids: by the model's tokenizer, or bytes. */
static hr_status take_ids(hri_excerpt *e, const hr_job *job, hr_error *error) {
  const uint32_t vocabulary = job->model.vocabulary_size;
  const uint64_t bytes = strlen(e->prompt);
  if (e->tokenizer) {
    HRI_TRY(hr_tokenizer_encode(e->tokenizer, e->prompt, bytes, HR_ENCODE_SPECIAL, &e->ids, error));
    for (uint64_t k = 0; k < e->ids.count; k++)
      if ((uint32_t)e->ids.ids[k] >= vocabulary)
        return hri_fail(error, HR_ERROR_USAGE, "--sample: the tokenizer makes id %d, and the model's vocabulary has %u",
                        e->ids.ids[k], vocabulary);
    return HR_OK;
  }
  if (vocabulary <= UINT8_MAX) {
    hri_fail(error, HR_ERROR_USAGE, "--sample: this model's vocabulary of %u has no byte tokens", vocabulary);
    return hri_hint(error, HR_ERROR_USAGE, "name a tokenizer for it (--tokenizer DIR), or leave --sample out");
  }
  e->ids.ids = hri_alloc((bytes + 1) * sizeof *e->ids.ids);
  if (!e->ids.ids) return hri_fail_memory(error, bytes * sizeof *e->ids.ids, "the prompt");
  for (; e->ids.count < bytes; e->ids.count++) e->ids.ids[e->ids.count] = (unsigned char)e->prompt[e->ids.count];
  return HR_OK;
}

/* Each token is fed before the next one is drawn, so the last place of the context stays free. */
static bool has_room(const hr_job *job, uint64_t length) { return length + 1 < job->context_length; }

hr_status hri_excerpt_init(hri_excerpt *e, const hr_job *job, const char *prompt, const char *named, hr_error *error) {
  const char *place;
  *e = (hri_excerpt){.prompt = prompt};
  if (!prompt) return HR_OK;
  HRI_TRY(hr_data_tokenizer(&job->model, named, &place, error));
  if (place[0] && hr_tokenizer_present(place)) HRI_TRY(hr_tokenizer_open(place, &e->tokenizer, error));
  HRI_TRY(take_ids(e, job, error));
  if (e->ids.count == 0) {
    hri_fail(error, HR_ERROR_USAGE, "--sample: the text is empty, and there is nothing to continue");
    return hri_hint(error, HR_ERROR_USAGE, "give the beginning of a text, or leave --sample out");
  }
  if (has_room(job, e->ids.count)) return HR_OK;
  hri_fail(error, HR_ERROR_USAGE, "--sample: the text has %llu tokens, and a context of %u has no room to continue it",
           (unsigned long long)e->ids.count, job->context_length);
  return hri_hint(error, HR_ERROR_USAGE, "give a shorter text, or a longer --seq, which is the context of a training");
}

void hri_excerpt_deinit(hri_excerpt *e) {
  hr_tokenizer_close(e->tokenizer);
  hr_tokens_deinit(&e->ids);
  memset(e, 0, sizeof *e);
}

static hr_status add_words(const hri_excerpt *e, const hr_model *model, const int32_t *ids, uint64_t count,
                           hri_text *text, hr_error *error) {
  int32_t known[MOST_TOKENS];
  uint64_t known_count = 0, bytes;
  char *decoded;
  if (!e->tokenizer) {
    for (uint64_t k = 0; k < count; k++)
      if (hr_byte_of_token(model, ids[k]) >= 0) hri_text_add_bytes(text, &(char){(char)ids[k]}, 1);
    return HR_OK;
  }
  for (uint64_t k = 0; k < count; k++) /* an id that the tokenizer lacks (a padded vocabulary) has no text */
    if (hr_tokenizer_token(e->tokenizer, ids[k], NULL)) known[known_count++] = ids[k];
  HRI_TRY(hr_tokenizer_decode(e->tokenizer, known, known_count, HR_DECODE_SKIP_SPECIAL, &decoded, &bytes, error));
  hri_text_add_bytes(text, decoded, bytes);
  hr_free(decoded);
  return HR_OK;
}

hr_status hri_excerpt_write(const hri_excerpt *e, hri_session *session, uint64_t step, bool (*should_stop)(void *),
                            void *context, bool *left, hri_text *text, hr_error *error) {
  const hr_job *job = &session->plan->spec;
  const hri_sampler sampler = {.temperature = 0.8, .top_p = 1, .top_k = 40, .seed = job->seed};
  const float *logits = NULL;
  int32_t made[MOST_TOKENS];
  uint64_t length = 0, count = 0;
  *left = false;
  HRI_TRY(hri_session_feed(session, e->ids.ids, e->ids.count, &length, &logits, error));
  while (count < MOST_TOKENS && has_room(job, length)) {
    int32_t token;
    *left = should_stop && should_stop(context);
    if (*left) return HR_OK;
    HRI_TRY(hri_sample(&sampler, logits, job->model.vocabulary_size, step * 1000 + count, &token, error));
    if (token == job->model.eos_token || (!e->tokenizer && hr_byte_of_token(&job->model, token) < 0)) break;
    made[count++] = token;
    HRI_TRY(hri_session_feed(session, &token, 1, &length, &logits, error));
  }
  hri_text_add(text, "%s", e->prompt);
  HRI_TRY(add_words(e, &job->model, made, count, text, error));
  return text->failed ? hri_fail_memory(error, text->length, "a sample") : HR_OK;
}
