/* Conversations in JSON to what a template sees. */
#ifndef HRI_CHAT_RENDER_H
#define HRI_CHAT_RENDER_H

#include "base/json.h"
#include "chat/ast.h"

/* A variable that every rendering sees unless the conversation itself brings one of that name. */
typedef struct hri_token_name {
  char *name, *text;
} hri_token_name;

/* Renders a JSON text (hr_chat_render). `tokens`: bos_token and the like, and their number. */
hr_status hri_chat_render_json(const hri_template *template, const hri_token_name *tokens, size_t token_count,
                               const char *json, uint64_t bytes, bool prompt, hr_rendered *out, hr_error *error);

/* Whether the template has `word` between quotes, as it has the names of roles that it writes in a way of their own. */
bool hri_chat_quotes(const hr_chat *chat, const char *word);
/* Whether `word` stands anywhere in the template. One that never names a member never writes it. */
bool hri_chat_names(const hr_chat *chat, const char *word);

#endif
