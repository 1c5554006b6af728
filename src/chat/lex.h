/* The tokens of a template, as Jinja 3.1 cuts them with trim_blocks and lstrip_blocks on. */
#ifndef HRI_CHAT_LEX_H
#define HRI_CHAT_LEX_H

#include "chat/ast.h"

typedef enum hri_token_kind {
  HRI_TOKEN_END, /* of the template */
  HRI_TOKEN_DATA,
  HRI_TOKEN_BLOCK_BEGIN,
  HRI_TOKEN_BLOCK_END,
  HRI_TOKEN_PRINT_BEGIN,
  HRI_TOKEN_PRINT_END,
  HRI_TOKEN_NAME,
  HRI_TOKEN_STRING,  /* value: unescaped */
  HRI_TOKEN_INTEGER, /* value */
  HRI_TOKEN_FLOAT,   /* value */
  HRI_TOKEN_OPERATOR /* code: '+' or, of two characters, '*' << 8 | '*' */
} hri_token_kind;

typedef struct hri_token {
  hri_token_kind kind;
  uint32_t at, bytes; /* in the source */
  uint32_t code;
  hri_value value;
} hri_token;

typedef struct hri_tokens {
  hri_token *items;
  size_t count, capacity;
} hri_tokens;

/* Cuts template->source, whose newlines are \n already. Strings are made in the pool of the template. */
hr_status hri_lex(hri_template *template, hri_tokens *tokens, hr_error *error);

#endif
