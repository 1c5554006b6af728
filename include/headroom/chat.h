/* Chat templates: a list of messages to the text that a model was trained on.
 *
 * A template is Jinja, as Hugging Face keeps it (chat_template.jinja, or chat_template in tokenizer_config.json, or
 * tokenizer.chat_template in GGUF), evaluated here without Python for the subset that public templates use
 * (docs/chat-templates.md), or a preset by name. */
#ifndef HEADROOM_CHAT_H
#define HEADROOM_CHAT_H

#include <stdbool.h>
#include <stdint.h>

#include <headroom/status.h>
#include <headroom/tokenizer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hr_chat hr_chat;

/* Bytes [begin, end) of the rendered text. */
typedef struct hr_span { uint64_t begin, end; } hr_span;

typedef struct hr_rendered {
  char *text;             /* NUL-terminated */
  uint64_t bytes;
  hr_span *generated;     /* what {% generation %} blocks made, in order */
  uint64_t generated_count;
  bool has_generation;    /* the template has such a block at all */
} hr_rendered;

/* The template of a model: `source` is a preset's name, a .jinja file, a model directory or a GGUF file. `tokenizer` (may be
 * NULL) gives bos_token, eos_token and the other named tokens to the template. INPUT: no template found (the presets are
 * named), or one that uses what is not supported (feature, line and column named). */
hr_status hr_chat_open(const char *source, const hr_tokenizer *tokenizer, hr_chat **chat, hr_error *error);
void hr_chat_close(hr_chat *chat); /* NULL is fine */
/* Where the template came from: "chat_template.jinja", "preset chatml", ... Borrowed. */
const char *hr_chat_about(const hr_chat *chat);

/* Renders a JSON array of messages, [{"role": ..., "content": ...}, ...], or an object {"messages": [...], "tools": [...],
 * more variables for the template}. `prompt` adds the beginning of an answer (add_generation_prompt). Release `out` with
 * hr_rendered_deinit. INPUT: malformed messages; what the template raises itself (raise_exception), with its message;
 * limits on time, depth and size. Thread-safe. */
hr_status hr_chat_render(const hr_chat *chat, const char *json, uint64_t bytes, bool prompt, hr_rendered *out, hr_error *error);
void hr_rendered_deinit(hr_rendered *rendered);

uint32_t hr_chat_preset_count(void);
const char *hr_chat_preset_name(uint32_t index);

#ifdef __cplusplus
}
#endif
#endif
