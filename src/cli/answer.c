/* Tokens become text here as they come: what may be the begin of a stop text is held back until it is none, and nothing
 * from a stop text on is printed. */
#include "cli/answer.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/text.h"

/* ---- stop texts ----
 *
 * They are texts and not tokens: one may begin inside a token and end inside another. So what could be the beginning of
 * one is held back until the next token decides, and of a text in which one stands only what is before it is said. */

/* The first place where one of them begins; NULL: none does. */
static const char *find_stop(const cli_answer *a, const char *text, size_t bytes) {
  const char *first = NULL;
  for (uint32_t k = 0; k < a->stop_count; k++) {
    const char *at = memmem(text, bytes, a->stops[k], strlen(a->stops[k]));
    if (at && (!first || at < first)) first = at;
  }
  return first;
}

/* Bytes at the end of the text that are the beginning of a stop text: the most that are. */
static size_t begun(const cli_answer *a, const char *text, size_t bytes) {
  size_t most = 0;
  for (uint32_t k = 0; k < a->stop_count; k++) {
    size_t length = strlen(a->stops[k]) - 1;
    if (length > bytes) length = bytes;
    while (length > most && memcmp(text + bytes - length, a->stops[k], length) != 0) length--;
    if (length > most) most = length;
  }
  return most;
}

/* The first byte of U+0080 to U+009F at the end: what shows no control character to a terminal knows one by both of its
 * bytes, and a model of bytes makes them one at a time. */
static size_t half_control(const char *text, size_t bytes) {
  return bytes > 0 && (unsigned char)text[bytes - 1] == 0xC2;
}

static void say(const cli_answer *a, const char *text, size_t bytes) {
  if (a->silent || bytes == 0) return;
  screen_put(stdout, text, bytes);
  screen_flush(stdout);
}

static void take_text(cli_answer *a, const char *text, size_t bytes) {
  const char *stop;
  size_t kept;
  if (a->stopped || bytes == 0) return;
  a->held = text_grow(a->held, a->held_bytes + bytes);
  memcpy(a->held + a->held_bytes, text, bytes);
  a->held_bytes += bytes;
  stop = find_stop(a, a->held, a->held_bytes);
  a->stopped = stop != NULL;
  kept = stop ? a->held_bytes - (size_t)(stop - a->held) : begun(a, a->held, a->held_bytes);
  if (kept == 0) kept = half_control(a->held, a->held_bytes);
  say(a, a->held, a->held_bytes - kept);
  memmove(a->held, a->held + a->held_bytes - kept, kept);
  a->held_bytes = kept;
}

/* ---- callbacks ---- */

static void on_token(void *context, int32_t token) {
  cli_answer *a = context;
  size_t bytes;
  char *text = listener_take(&a->listener, token, &bytes);
  if (text) {
    take_text(a, text, bytes);
    free(text);
  } else if (!a->silent) {
    (void)printf("%s%d", a->listener.count > 1 ? " " : "", token);
    screen_flush(stdout);
  }
}

/* Where the output is lost, the rest of the answer is not worth its time. */
static bool should_stop(void *context) {
  const cli_answer *a = context;
  return a->stopped || (!a->silent && ferror(stdout)) || (a->should_stop && a->should_stop());
}

void answer_event(void *context, const hr_event *event) {
  cli_answer *a = context;
  /* A plan that fits is no news here; one that does not is. */
  if (event->kind == HR_EVENT_PLANNED && event->plan && hr_plan_get(event->plan)->fits) return;
  if (event->kind == HR_EVENT_LOADED) return;
  talk_event(&a->talk, event);
}

/* ---- an answer ---- */

static hr_status take_stops(cli_answer *a, const cli_config *config, hr_error *error) {
  if (config->own.stop_count > 0 && !a->speech->tokenizer && !a->speech->bytes) {
    hri_fail(error, HR_ERROR_USAGE, "--stop: the model has no tokenizer, and its tokens no text");
    return hri_hint(error, HR_ERROR_USAGE, "name its tokenizer (--tokenizer DIR), or leave --stop away");
  }
  a->stops = text_alloc((config->own.stop_count + 1) * sizeof *a->stops);
  for (uint32_t k = 0; k < config->own.stop_count; k++) {
    const char *text = config->own.stop[k];
    char *stop = a->stops[a->stop_count++] = text_copy(text, strlen(text));
    if (!text_unescape(text, stop)) {
      hri_fail(error, HR_ERROR_USAGE, "--stop '%s': no such escape", text);
      return hri_hint(error, HR_ERROR_USAGE, "\\n, \\t, \\r, \\\\ and \\xHH name bytes");
    }
    if (!stop[0]) return hri_fail(error, HR_ERROR_USAGE, "--stop: the text is empty");
  }
  return HR_OK;
}

hr_status answer_begin(cli_answer *a, const cli_config *config, const cli_speech *speech, hr_generate_options *options,
                       hr_error *error) {
  *a = (cli_answer){.speech = speech, .listener = {.speech = speech}};
  talk_begin(&a->talk, config);
  hr_generate_options_init(options);
  options->max_tokens = config->own.max_tokens;
  options->repetition_penalty = config->own.repetition_penalty;
  options->temperature = config->own.temperature;
  options->top_k = config->own.top_k;
  options->top_p = config->own.top_p;
  options->min_p = config->own.min_p;
  options->seed = config->job.seed;
  options->on_event = answer_event;
  options->on_token = on_token;
  options->should_stop = should_stop;
  options->context = a;
  return take_stops(a, config, error);
}

void answer_end(cli_answer *a) {
  size_t bytes;
  char *rest = listener_rest(&a->listener, &bytes);
  take_text(a, rest, bytes);
  free(rest);
  if (!a->stopped) say(a, a->held, a->held_bytes); /* it was no stop text after all */
  say(a, "\n", 1);
}

char *answer_text(const cli_answer *a, size_t *bytes) {
  char *text;
  const char *stop;
  *bytes = 0;
  if (!a->speech->bytes && !a->speech->tokenizer) return NULL;
  text = listener_text(&a->listener, bytes);
  stop = find_stop(a, text, *bytes);
  if (stop) *bytes = (size_t)(stop - text);
  text[*bytes] = 0;
  return text;
}

void answer_reset(cli_answer *a) {
  listener_close(&a->listener);
  a->listener = (cli_listener){.speech = a->speech};
  a->held_bytes = 0;
  a->stopped = false;
}

void answer_close(cli_answer *a) {
  listener_close(&a->listener);
  for (uint32_t k = 0; k < a->stop_count; k++) free(a->stops[k]);
  free(a->stops);
  free(a->held);
  *a = (cli_answer){0};
}
