/* headroom chat: a conversation in a terminal, or a message per line from a pipe.
 *
 * Each turn is the whole conversation through the chat template, tokenized: what a single prompt with that history would
 * be. The generator computes of it what its cache does not hold yet, which is the new message alone as long as the
 * template only adds at the end and the answer is spelled by the tokens that made it; where that is not so, it is said.
 *
 * A full context is a matter of this file alone: the oldest messages are left out (the system message stays) until the
 * conversation leaves a quarter of the context, or --max-tokens when that is less, to the answer. A message that is too
 * long by itself is refused. docs/cli.md promises this to people. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <headroom/run.h>

#include "cli/answer.h"
#include "cli/commands.h"
#include "cli/text.h"

enum { LINE_BYTES = 1 << 24, CONTEXT = 4096 };

typedef struct chat {
  const cli_config *config;
  cli_speech speech;
  cli_turns turns; /* the system message first, if there is one */
  cli_answer answer;
  hr_generate_options options;
  hr_generator *generator;
  bool terminal; /* a person types */
  char *line;
  size_t line_bytes, line_capacity;
  uint64_t cached; /* tokens in the generator's cache, at least */
  uint64_t answers, read_tokens, kept_tokens, new_tokens, reserved_bytes;
  double seconds; /* of making tokens */
} chat;

/* ---- Ctrl-C, and being continued after Ctrl-Z ---- */

static volatile sig_atomic_t interrupted, continued;

static void on_interrupt(int number) {
  (void)number;
  interrupted = 1;
}

static void on_continue(int number) {
  (void)number;
  continued = 1;
}

static bool was_interrupted(void) { return interrupted; }

/* Ctrl-C ends a read as well; what is written goes on where it was stopped. */
static void catch_signals(void) {
  struct sigaction interrupt = {.sa_handler = on_interrupt},
                   go_on = {.sa_handler = on_continue, .sa_flags = SA_RESTART};
  (void)sigemptyset(&interrupt.sa_mask);
  (void)sigemptyset(&go_on.sa_mask);
  (void)sigaction(SIGINT, &interrupt, NULL);
  (void)sigaction(SIGCONT, &go_on, NULL);
}

/* ---- what is said beside the answers ---- */

static void note(const chat *c, const char *text) {
  if (!c->config->own.quiet)
    (void)fprintf(stderr, "%s%s%s\n", screen_style(stderr, STYLE_DIM), text, screen_style(stderr, STYLE_PLAIN));
}

static void note_left_out(const chat *c, size_t count) {
  char text[160];
  (void)snprintf(text, sizeof text,
                 "note: the context of %u tokens is full: the oldest %zu message%s left out from here on",
                 c->config->job.context_length, count, count == 1 ? " is" : "s are");
  note(c, text);
}

static void note_run_again(const chat *c, uint64_t kept) {
  char text[160];
  (void)snprintf(
      text, sizeof text,
      "note: the template writes what was said in other tokens now: %llu of %llu in the cache are computed again",
      (unsigned long long)(c->cached - kept), (unsigned long long)c->cached);
  note(c, text);
}

static void sum_up(const chat *c) {
  char text[240];
  size_t used;
  if (c->answers == 0) return;
  used =
      (size_t)snprintf(text, sizeof text, "%llu answer%s: %llu tokens read, %llu more kept in the cache, %llu made",
                       (unsigned long long)c->answers, c->answers == 1 ? "" : "s", (unsigned long long)c->read_tokens,
                       (unsigned long long)c->kept_tokens, (unsigned long long)c->new_tokens);
  if (c->seconds > 0)
    used += (size_t)snprintf(text + used, sizeof text - used, " (%s tokens/s)",
                             COUNT_TEXT((double)c->new_tokens / c->seconds));
  (void)snprintf(text + used, sizeof text - used, ", %s reserved as planned", SIZE_TEXT(c->reserved_bytes));
  note(c, text);
}

/* ---- a message ---- */

typedef enum heard { HEARD_MESSAGE, HEARD_END, HEARD_INTERRUPT, HEARD_TOO_MUCH, HEARD_FAILURE } heard;

/* With what was typed of the line, which Ctrl-D hands over in the middle. */
static void prompt(const chat *c) {
  (void)fputs("> ", stderr);
  if (c->line_bytes > 0) (void)fwrite(c->line, 1, c->line_bytes, stderr);
}

/* True where standard input is no terminal of this session: nobody is in front there. */
static bool in_foreground(void) {
  pid_t group = tcgetpgrp(STDIN_FILENO);
  return group < 0 || group == getpgrp();
}

/* Waits until a terminal, which is not buffered here, has something to read; false when Ctrl-C came first. Signals are held back up
 * to the wait itself, or one that comes just before a read would not end it. In the background it stops, as reading would: polling
 * does not, and would take a line that is meant for the shell. Brought back, it prompts again. */
static bool wait_for_input(const chat *c) {
  struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
  sigset_t held, before;
  (void)sigemptyset(&held);
  (void)sigaddset(&held, SIGINT);
  (void)sigaddset(&held, SIGCONT);
  (void)pthread_sigmask(SIG_BLOCK, &held, &before);
  while (!interrupted) {
    if (!in_foreground()) (void)kill(0, SIGTTIN);
    else if (continued) {
      continued = 0;
      prompt(c);
    }
    if (ppoll(&input, 1, NULL, &before) >= 0 || errno != EINTR) break;
  }
  (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
  return !interrupted;
}

/* A line of standard input, without its end. */
static heard read_line(chat *c) {
  c->line_bytes = 0;
  if (c->terminal) {
    continued = 0;
    prompt(c);
  }
  for (;;) {
    int byte;
    if (c->terminal && !wait_for_input(c)) return HEARD_INTERRUPT;
    byte = getc(stdin);
    if (byte == '\n') return HEARD_MESSAGE;
    if (byte == EOF && ferror(stdin)) {
      heard what = errno == EINTR && interrupted ? HEARD_INTERRUPT : errno == EINTR ? HEARD_MESSAGE : HEARD_FAILURE;
      clearerr(stdin);
      if (what != HEARD_MESSAGE) return what; /* else another signal, and the read goes on */
      continue;
    }
    if (byte == EOF) return c->line_bytes > 0 ? HEARD_MESSAGE : HEARD_END;
    if (c->line_bytes == LINE_BYTES) return HEARD_TOO_MUCH;
    if (c->line_bytes == c->line_capacity)
      c->line = text_grow(c->line, c->line_capacity = c->line_capacity ? 2 * c->line_capacity : 1024);
    c->line[c->line_bytes++] = (char)byte;
  }
}

/* A model may make the byte 0, and a pipe may bring it: JSON's strings, and so templates, have no place for it. */
static size_t without_zeros(char *text, size_t bytes) {
  size_t kept = 0;
  for (size_t k = 0; k < bytes; k++)
    if (text[k]) text[kept++] = text[k];
  return kept;
}

static void leave_zeros_out(chat *c) {
  const size_t kept = without_zeros(c->line, c->line_bytes);
  if (kept < c->line_bytes) note(c, "note: the byte 0 is left out of the message: a template has no place for it");
  c->line_bytes = kept;
}

static bool is_line(const chat *c, const char *word) {
  return strlen(word) == c->line_bytes && memcmp(c->line, word, c->line_bytes) == 0;
}

static bool is_blank(const chat *c) {
  for (size_t k = 0; k < c->line_bytes; k++)
    if (!strchr(" \t\r", c->line[k]) || !c->line[k]) return false;
  return true;
}

/* A slash and one word; what goes on behind it is a message, as is a path. */
static bool is_command(const chat *c) {
  for (size_t k = 1; k < c->line_bytes; k++)
    if (c->line[k] < 'a' || c->line[k] > 'z') return false;
  return c->line_bytes > 1 && c->line[0] == '/';
}

static void reset(chat *c) {
  size_t first = c->config->own.system != NULL;
  if (c->turns.count > first) turns_remove(&c->turns, first, c->turns.count - first);
}

/* Whether to go on. */
static bool obey(chat *c) {
  if (is_line(c, "/exit")) return false;
  if (is_line(c, "/reset")) {
    reset(c);
    c->cached = 0;
    note(c, "a new conversation");
  } else {
    if (!is_line(c, "/help")) (void)fprintf(stderr, "there is no command %.*s\n", (int)c->line_bytes, c->line);
    (void)fputs("/reset begins a new conversation, /exit or Ctrl-D leaves; Ctrl-C stops an answer\n", stderr);
  }
  return true;
}

/* ---- the context ---- */

/* Where the next user's message stands behind `from`; the count when there is none. */
static size_t next_message(const chat *c, size_t from) {
  while (++from < c->turns.count && strcmp(c->turns.items[from].role, "user") != 0) continue;
  return from < c->turns.count ? from : c->turns.count;
}

/* The ids of the system message and of what was said from turn `from` on. */
static hr_status ids_from(const chat *c, size_t first, size_t from, int32_t **ids, uint64_t *count, hr_error *error) {
  cli_turns part = {.items = text_alloc(c->turns.count * sizeof *part.items), .count = first + c->turns.count - from};
  hr_status status;
  memcpy(part.items, c->turns.items, first * sizeof *part.items);
  memcpy(part.items + first, c->turns.items + from, (c->turns.count - from) * sizeof *part.items);
  status = speech_turns(&c->speech, &part, NULL, ids, count, error);
  free(part.items);
  return status;
}

static hr_status too_long(const chat *c, uint64_t count, hr_error *error) {
  hri_fail(error, HR_ERROR_USAGE, "the message makes a prompt of %llu tokens, and the context has %u",
           (unsigned long long)count, c->config->job.context_length);
  return hri_hint(error, HR_ERROR_USAGE, "write less, or raise --context");
}

/* Leaves out what the context has no room for, unless the newest message has none by itself; and says how long the
 * answer may be. */
static hr_status fit(chat *c, hr_error *error) {
  uint64_t context = c->config->job.context_length, most = context, room = context / 4 ? context / 4 : 1, count = 0;
  size_t first = c->config->own.system != NULL, from = first;
  if (config_chosen(c->config, &c->config->own.max_tokens)) most = c->config->own.max_tokens;
  if (room > most) room = most;
  for (;;) {
    int32_t *ids = NULL;
    hr_status status = ids_from(c, first, from, &ids, &count, error);
    free(ids);
    if (status != HR_OK) return status;
    if (count + room <= context || next_message(c, from) == c->turns.count) break;
    from = next_message(c, from);
  }
  if (count >= context) return too_long(c, count, error);
  c->options.max_tokens = most < context - count ? most : context - count;
  if (from == first) return HR_OK;
  note_left_out(c, from - first);
  turns_remove(&c->turns, first, from - first);
  c->cached = 0; /* no surprise that the cache is of little use now */
  return HR_OK;
}

/* ---- an answer ---- */

static void count_answer(chat *c, const hr_generate_result *result) {
  c->answers++;
  c->read_tokens += result->prompt_tokens - result->kept_tokens;
  c->kept_tokens += result->kept_tokens;
  c->new_tokens += result->new_tokens;
  c->seconds += result->decode_seconds;
  c->reserved_bytes = result->reserved_bytes[HR_TIER_DEVICE];
}

/* What was said of an answer that was stopped stays said. */
static void keep_answer(chat *c) {
  size_t bytes;
  char *text = answer_text(&c->answer, &bytes);
  bytes = without_zeros(text, bytes);
  turns_add(&c->turns, "assistant", text, bytes);
  free(text);
}

static void close_answer(chat *c, const hr_generate_result *result, uint64_t count) {
  bool stopped = result->stopped_by_request && !c->answer.stopped;
  if (result->kept_tokens + 1 < count && result->kept_tokens < c->cached) note_run_again(c, result->kept_tokens);
  count_answer(c, result);
  if (stopped) note(c, "stopped");
  else if (count + result->new_tokens == c->config->job.context_length)
    note(c, "note: the answer ends where the context does (--context N makes room)");
  if (stopped && result->new_tokens == 0) { /* nothing was answered: as if it had not been asked */
    turns_remove(&c->turns, c->turns.count - 1, 1);
    c->cached = 0;
    return;
  }
  keep_answer(c);
  c->cached = count; /* the last token was not fed, and what a stop text cut off was never said */
  if (!c->answer.stopped && result->new_tokens > 0) c->cached += result->new_tokens - 1;
}

static hr_status generate(chat *c, const int32_t *ids, uint64_t count, hr_error *error) {
  hr_generate_result result;
  hr_status status;
  interrupted = 0;
  answer_reset(&c->answer);
  c->options.prompt_ids = ids;
  c->options.prompt_id_count = count;
  status = hr_generator_run(c->generator, &c->options, &result, error);
  if (status == HR_OK || c->answer.listener.count > 0) answer_end(&c->answer);
  if (status == HR_OK) close_answer(c, &result, count);
  else c->cached = 0;
  interrupted = 0;
  return status;
}

/* Answers the message in c->line. On failure it is forgotten. */
static hr_status reply(chat *c, hr_error *error) {
  int32_t *ids = NULL;
  uint64_t count = 0;
  hr_status status;
  turns_add(&c->turns, "user", c->line, c->line_bytes);
  status = fit(c, error);
  if (status == HR_OK)
    status = speech_turns(&c->speech, &c->turns, c->config->own.render ? stderr : NULL, &ids, &count, error);
  if (status == HR_OK) status = generate(c, ids, count, error);
  free(ids);
  if (status != HR_OK) turns_remove(&c->turns, c->turns.count - 1, 1);
  return status;
}

/* A person is told what is wrong with a message and may write another one; a pipe ends with its error. */
static bool may_go_on(const chat *c, hr_status status, const hr_error *error) {
  if (!c->terminal || (status != HR_ERROR_USAGE && status != HR_ERROR_INPUT)) return false;
  text_print_error(error);
  return true;
}

static hr_status too_much(hr_error *error) {
  return hri_fail(error, HR_ERROR_INPUT, "a message has more than %d MiB", LINE_BYTES >> 20);
}

static hr_status talk(chat *c, hr_error *error) {
  if (c->terminal) note(c, "/help lists what else there is than messages; Ctrl-D leaves");
  for (;;) {
    heard what = read_line(c);
    hr_status status = HR_OK;
    if (what == HEARD_END) break;
    if (what == HEARD_FAILURE) return hri_fail(error, HR_ERROR_IO, "cannot read standard input: %s", strerror(errno));
    if (what == HEARD_INTERRUPT) {
      interrupted = 0;
      if (!c->terminal) return hri_fail(error, HR_ERROR_INTERRUPTED, "interrupted");
      (void)fputs("\nCtrl-D or /exit leaves\n", stderr);
      continue;
    }
    if (what == HEARD_TOO_MUCH) return too_much(error);
    while (c->line_bytes > 0 && c->line[c->line_bytes - 1] == '\r') c->line_bytes--;
    leave_zeros_out(c);
    if (is_blank(c)) continue;
    if (is_command(c)) {
      if (!obey(c)) break;
      continue;
    }
    status = reply(c, error);
    if (status != HR_OK && !may_go_on(c, status, error)) return status;
    if (ferror(stdout)) break; /* which is an error of the whole program: main() */
  }
  if (c->terminal) (void)fputc('\n', stderr);
  sum_up(c);
  return HR_OK;
}

/* ---- the command ---- */

static hr_status prepare(cli_config *config, chat *c, hr_error *error) {
  const char *source = config->run.model_source;
  hr_model *model;
  hr_status status;
  if (!source || !source[0]) return config_job(config, HR_PURPOSE_GENERATE, error); /* which says so */
  model = text_alloc(sizeof *model);
  status = hr_model_open(source, model, error);
  if (status == HR_OK) status = speech_open(&c->speech, model, true, &config->run.data, error);
  if (status == HR_OK && !config_chosen(config, &config->job.context_length))
    config->job.context_length = model->max_positions < CONTEXT ? model->max_positions : CONTEXT;
  free(model);
  if (status == HR_OK) status = config_job(config, HR_PURPOSE_GENERATE, error);
  if (status == HR_OK) status = answer_begin(&c->answer, config, &c->speech, &c->options, error);
  if (status != HR_OK) return status;
  c->answer.should_stop = was_interrupted;
  if (config->own.system) turns_add(&c->turns, "system", config->own.system, strlen(config->own.system));
  return hr_generator_open(&config->job, answer_event, &c->answer, &c->generator, error);
}

hr_status command_chat(cli_config *config, hr_error *error) {
  chat c = {.config = config, .terminal = isatty(STDIN_FILENO) && isatty(STDERR_FILENO)};
  hr_hold *hold; /* a run beside does not take the checkpoint away while it is read */
  hr_status status;
  if (config->own.show_config) return config_show_for(config, HR_PURPOSE_GENERATE, error);
  if (c.terminal) (void)setvbuf(stdin, NULL, _IONBF, 0); /* what it has is known by asking it */
  hold = config_hold_model(config);
  status = prepare(config, &c, error);
  hr_hold_release(hold); /* all is in memory */
  if (status == HR_OK) {
    catch_signals();
    status = talk(&c, error);
  }
  hr_generator_close(c.generator);
  answer_close(&c.answer);
  turns_close(&c.turns);
  speech_close(&c.speech);
  free(c.line);
  return status;
}
