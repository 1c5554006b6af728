/* Chat templates: a list of messages to the text that a model was trained on.
 *
 * A template is Jinja, as Hugging Face keeps it (chat_template.jinja, or chat_template in tokenizer_config.json, or
 * tokenizer.chat_template in GGUF), evaluated here without Python for the subset that public templates use
 * (docs/chat-templates.md), or a preset by name.
 *
 * Threads: a chat is immutable once it is open: several threads may use one, each with its own hr_rendered. */
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
typedef struct hr_span {
  uint64_t begin, end;
} hr_span;

typedef struct hr_rendered {
  char *text; /* NUL-terminated UTF-8 */
  uint64_t bytes;
  /* What {% generation %} blocks made, in the order in which they ended; spans may be empty. As in transformers, a
   * block inside a macro or another collecting block is counted from where the outermost of those stands. */
  hr_span *generated;
  uint64_t generated_count;
  bool has_generation; /* the template has such a block at all */
} hr_rendered;

/* The template of a model: `source` is a preset's name, a model directory (chat_template.jinja, else chat_template in
 * tokenizer_config.json: a string, or a list of which "default" is taken), a GGUF file (tokenizer.chat_template) or a
 * .jinja file. The template sees bos_token, eos_token and the other named tokens as tokenizer_config.json,
 * special_tokens_map.json or the GGUF file give them; `tokenizer` (may be NULL, needed only during the call) gives
 * those that are missing there. INPUT: no template found (the presets are named), or one that uses what is not
 * supported (feature, line and column named). */
HR_CHECKED hr_status hr_chat_open(const char *source, const hr_tokenizer *tokenizer, hr_chat **chat, hr_error *error);
HR_API void hr_chat_close(hr_chat *chat); /* NULL is fine */
/* Where the template came from: "model/chat_template.jinja", "preset chatml", ... Borrowed. */
HR_API const char *hr_chat_about(const hr_chat *chat);

/* Renders a JSON array of messages, [{"role": ..., "content": ...}, ...], or an object {"messages": [...], "tools":
 * [...],
 * "documents": [...], more variables for the template}. `prompt` asks for the beginning of an answer at the end
 * (add_generation_prompt). As transformers does, members of a message that are null are dropped, and reasoning_content,
 * thinking and reasoning stand for each other. Fills `out` on success only; release it with hr_rendered_deinit. INPUT:
 * malformed messages; what the template raises itself (raise_exception), with its message; limits on time, depth and
 * size. */
HR_CHECKED hr_status hr_chat_render(const hr_chat *chat, const char *json, uint64_t bytes, bool prompt,
                                    hr_rendered *out, hr_error *error);
HR_API void hr_rendered_deinit(hr_rendered *rendered);

/* The templates that come with the library, by name ("chatml", ...); NULL at and behind the count. */
HR_API uint32_t hr_chat_preset_count(void);
HR_API const char *hr_chat_preset_name(uint32_t index);

#ifdef __cplusplus
}
#endif
#endif
