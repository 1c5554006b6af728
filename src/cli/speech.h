/* Words and tokens: what a person types to a model, and what it answers. */
#ifndef CLI_SPEECH_H
#define CLI_SPEECH_H

#include <stddef.h>
#include <stdio.h>

#include <headroom/chat.h>
#include <headroom/model.h>
#include <headroom/data.h>
#include <headroom/tokenizer.h>

typedef struct cli_speech {
  hr_tokenizer *tokenizer; /* NULL: the model has none; its tokens are bytes, or ids are given and printed */
  bool bytes;              /* without a tokenizer: tokens are bytes */
  hr_chat *chat;           /* --chat */
} cli_speech;

/* Opens the tokenizer of a model, if it has one or `data` names one for it, and with `chat` its chat template (or the
 * one that `data` names). USAGE for a chat without a tokenizer. */
hr_status speech_open(cli_speech *speech, const hr_model *model, bool chat, const hr_data_options *data,
                      hr_error *error);
void speech_close(cli_speech *speech);

/* What was said in a conversation: texts are owned. */
typedef struct cli_turn {
  const char *role; /* a literal */
  char *text;
  size_t bytes;
} cli_turn;

typedef struct cli_turns {
  cli_turn *items;
  size_t count, capacity;
} cli_turns;

void turns_add(cli_turns *turns, const char *role, const char *text, size_t bytes);
/* Takes `count` turns from `first` on out of it. */
void turns_remove(cli_turns *turns, size_t first, size_t count);
void turns_close(cli_turns *turns);

/* The ids of a prompt that is continued as it stands, in new memory (free); without a tokenizer the bytes, or a list of
 * ids ("15496 995"). */
hr_status speech_ids(const cli_speech *speech, const hr_model *model, const char *text, size_t bytes, int32_t **ids,
                     uint64_t *count, hr_error *error);
/* The ids of a conversation with the beginning of an answer, as the chat template writes it, in new memory (free).
 * `show` (may be NULL) gets the template's text. */
hr_status speech_turns(const cli_speech *speech, const cli_turns *turns, FILE *show, int32_t **ids, uint64_t *count,
                       hr_error *error);

/* Tokens at most whose text is held back. A character has at most 4 bytes, but tokens of bytes may end one and begin the next: so many
 * in a row that none ends where a character does are no text. */
enum { LISTENER_HELD = 64 };

/* Text that grows token by token. What a token adds shows when its characters are whole. */
typedef struct cli_listener {
  const cli_speech *speech;
  int32_t *tokens; /* all of them */
  size_t count, capacity;
  /* The newest tokens: those that were said last, which decide how the next are spelled, and behind them those that are
   * held back. */
  int32_t recent[2 * LISTENER_HELD];
  size_t recent_count, recent_said;
} cli_listener;
/* Takes a token; returns new text (free), none when *bytes is 0. NULL: ids are printed as numbers. */
char *listener_take(cli_listener *listener, int32_t token, size_t *bytes);
/* What is still held back, at the end (free). */
char *listener_rest(cli_listener *listener, size_t *bytes);
/* All of it, in new memory (free); *bytes may be NULL. */
char *listener_text(const cli_listener *listener, size_t *bytes);
void listener_close(cli_listener *listener);

#endif
