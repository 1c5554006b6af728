/* A template as a tree. */
#ifndef HRI_CHAT_AST_H
#define HRI_CHAT_AST_H

#include <headroom/chat.h>

#include "chat/value.h"

typedef enum hri_node_kind {
  /* expressions */
  HRI_NODE_CONSTANT,
  HRI_NODE_NAME,
  HRI_NODE_LIST, /* items */
  HRI_NODE_TUPLE,
  HRI_NODE_DICT,      /* items: key, value, key, value, ... */
  HRI_NODE_ATTRIBUTE, /* a.constant */
  HRI_NODE_ELEMENT,   /* a[b] */
  HRI_NODE_SLICE,     /* [a:b:c], only inside ELEMENT; each may be NULL */
  HRI_NODE_CALL,      /* a(call) */
  HRI_NODE_FILTER,    /* a | constant(call); a is NULL in filter blocks */
  HRI_NODE_TEST,      /* a is constant(call) */
  HRI_NODE_NOT,
  HRI_NODE_AND,
  HRI_NODE_OR,
  HRI_NODE_NEGATE,
  HRI_NODE_POSITIVE,
  HRI_NODE_BINARY,
  HRI_NODE_CONCAT,        /* items joined by ~ */
  HRI_NODE_COMPARE,       /* a, items: one COMPARE_STEP for each operator */
  HRI_NODE_COMPARE_STEP,  /* operator, a */
  HRI_NODE_CONDITION,     /* a if b else c; c may be NULL */
  HRI_NODE_TARGET_MEMBER, /* name.constant in {% set ns.x = ... %} */
  /* statements */
  HRI_NODE_DATA,
  HRI_NODE_PRINT,        /* a */
  HRI_NODE_IF,           /* a, body, other */
  HRI_NODE_FOR,          /* target a, in b, if c, recursive: flag; body, other */
  HRI_NODE_SET,          /* target a = b */
  HRI_NODE_SET_BLOCK,    /* target a, filter b or NULL, body */
  HRI_NODE_MACRO,        /* name, items: parameters, other: their defaults (the last ones), body */
  HRI_NODE_CALL_BLOCK,   /* a: the call; items, other, body as MACRO */
  HRI_NODE_FILTER_BLOCK, /* a, body */
  HRI_NODE_WITH,         /* items: target, value, target, value, ...; body */
  HRI_NODE_GENERATION,   /* body */
  HRI_NODE_BREAK,
  HRI_NODE_CONTINUE
} hri_node_kind;

typedef enum hri_operator {
  HRI_ADD,
  HRI_SUBTRACT,
  HRI_MULTIPLY,
  HRI_DIVIDE,
  HRI_FLOOR_DIVIDE,
  HRI_MODULO,
  HRI_POWER,
  HRI_EQUAL,
  HRI_UNEQUAL,
  HRI_LESS,
  HRI_LESS_EQUAL,
  HRI_GREATER,
  HRI_GREATER_EQUAL,
  HRI_IN,
  HRI_NOT_IN
} hri_operator;

typedef struct hri_ast_node hri_ast_node;
typedef struct hri_nodes {
  hri_ast_node **at;
  uint32_t count;
} hri_nodes;

/* Names by their index. */
typedef struct hri_names {
  uint32_t *at;
  uint32_t count;
} hri_names;

typedef struct hri_call_node {
  hri_nodes positional, named; /* named: values */
  hri_value *names;            /* of named */
  hri_ast_node *star, *star2;  /* *args, **kwargs; may be NULL */
} hri_call_node;

struct hri_ast_node {
  uint8_t kind, operator;
  bool flag;            /* FOR: recursive; MACRO, CALL_BLOCK: its body names `caller` */
  bool varargs, kwargs; /* MACRO, CALL_BLOCK: its body names them */
  uint32_t at;          /* byte of the template */
  uint32_t name;        /* NAME, MACRO, TARGET_MEMBER: index of the name */
  hri_value constant;
  hri_ast_node *a, *b, *c;
  hri_nodes items, body, other;
  hri_names unset,
      unset_else; /* without a value when the scope of the body, or of a loop's `else`, begins (scopes.c) */
  hri_call_node *call;
};

typedef struct hri_template hri_template;
struct hri_template {
  char *about;  /* names it in errors */
  char *source; /* with newlines as \n */
  uint32_t bytes;
  hri_pool pool; /* nodes, constants, names */
  hri_nodes body;
  hri_names unset;
  HRI_ARRAY(hri_value) names; /* texts; the first are those of hri_known_name */
  bool has_generation;
};

/* Names that the evaluator itself sets. */
typedef enum hri_known_name {
  HRI_NAME_LOOP = 0,
  HRI_NAME_CALLER,
  HRI_NAME_VARARGS,
  HRI_NAME_KWARGS,
  HRI_KNOWN_NAMES
} hri_known_name;

/* Parses `bytes` bytes of a template. INPUT, with line and column: not UTF-8, larger than 4 MiB, syntax errors,
 * statements and filters that are not supported (by name), nesting above HRI_TEMPLATE_DEPTH, more names than
 * HRI_TEMPLATE_NAMES. */
enum {
  HRI_TEMPLATE_DEPTH = 300,
  HRI_TEMPLATE_MAX_BYTES = 4 << 20,
  HRI_TEMPLATE_NAMES = 2000 /* different ones, of variables */
};
hr_status hri_template_parse(const char *about, const char *source, uint64_t bytes, hri_template **out,
                             hr_error *error);
/* Finds the names that are unset when a scope begins; the parser calls it last. */
hr_status hri_template_scopes(hri_template *template, hr_error *error);
void hri_template_free(hri_template *template); /* NULL is fine */

/* INPUT about a place in a template: "ABOUT: line L, column C: ...", columns counted in code points. */
hr_status hri_template_fail(const hri_template *template, uint32_t at, hr_error *error, const char *format, ...)
    HRI_PRINTF(4, 5);

/* Renders. `variables` is what the template sees by name. */
hr_status hri_template_render(const hri_template *template, const hri_dict *variables, hr_rendered *out,
                              hr_error *error);

#endif
