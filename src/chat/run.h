/* A rendering under way: its memory, its limits, where it is. Shared by the files that evaluate. */
#ifndef HRI_CHAT_RUN_H
#define HRI_CHAT_RUN_H

#include <headroom/chat.h>

#include "chat/ast.h"
#include "chat/value.h"

/* What stops a template that would never end or would take all memory. A long conversation through the most elaborate
 * public template takes some hundred thousand steps. */
enum {
  HRI_LIMIT_STEPS = 50 * 1000 * 1000, /* nodes evaluated, elements or some 64 bytes touched; about a second or two */
  HRI_LIMIT_DEPTH = 800, /* of nested evaluation: expressions, macros calling macros, values inside values */
  HRI_LIMIT_MEMORY = 256 * 1024 * 1024, /* of values, and of the text: bytes */
  HRI_LIMIT_RANGE = 100000              /* elements of a range, as in the sandbox of Jinja */
};

typedef struct hri_scope hri_scope;
struct hri_scope {
  hri_scope *parent;
  struct hri_variable {
    uint32_t name;
    hri_value value;
  } *variables;
  uint32_t count, capacity;
  bool kept; /* a macro or a loop may look into it later: it is no scope for another round */
};

typedef struct hri_named {
  hri_value name, value;
} hri_named;

typedef struct hri_arguments {
  const hri_value *at; /* positional */
  const hri_named *named;
  uint32_t count, named_count;
} hri_arguments;

typedef enum hri_jump { HRI_JUMP_NONE = 0, HRI_JUMP_BREAK, HRI_JUMP_CONTINUE } hri_jump;

/* Free bytes behind a text that was made by adding. */
enum { HRI_TAILS = 4, HRI_TAIL_FROM = 256 };
typedef struct hri_tail {
  const char *end;
  uint64_t room;
} hri_tail;

struct hri_run {
  const hri_template *template;
  const hri_dict *variables; /* messages, tools, ... */
  hri_pool pool;
  hri_text root; /* the text so far */
  hri_text *out; /* where output goes: root, or what a macro or a block collects */
  hri_jump jump;
  uint32_t at; /* byte of the template for errors */
  uint32_t depth, next_tail;
  hri_tail tails[HRI_TAILS]; /* of the texts that grew last */
  uint64_t steps, collected; /* collected: bytes in texts under way other than root */
  HRI_ARRAY(hr_span) generated;
  hr_error *error;
};

/* INPUT with the name of the template, line and column. */
hr_status hri_run_fail(hri_run *run, const char *format, ...) HRI_PRINTF(2, 3);
hr_status hri_run_limit(hri_run *run, const char *what);
hr_status hri_run_unsupported(hri_run *run, const char *format, ...) HRI_PRINTF(2, 3);
/* Counts work; INPUT when it is too much. */
hr_status hri_run_steps(hri_run *run, uint64_t steps);
hr_status hri_run_deeper(hri_run *run); /* to be paired with run->depth-- when it succeeds */
/* Checks a text that is being made: memory refused, or the limit met. */
hr_status hri_run_text(hri_run *run, const hri_text *text);

/* ---- Functions, filters, tests and methods ---- */

/* Parameters: "name,name=,..."; those with '=' may be left out (and are then HRI_ABSENT); a leading '/' means that none
 * may be given by name. Fills values[0..], at most HRI_PARAMETERS. */
enum { HRI_PARAMETERS = 6 };

typedef struct hri_builtin {
  const char *name;
  const char *parameters; /* NULL: `raw` takes the arguments as they are */
  hr_status (*call)(hri_run *run, hri_value self, const hri_value *values, hri_value *out);
  hr_status (*raw)(hri_run *run, hri_value self, const hri_arguments *arguments, hri_value *out);
} hri_builtin;

/* NULL when there is none of this name. */
const hri_builtin *hri_filter_find(const char *name, size_t bytes);
/* What Jinja has and this evaluator has not. */
bool hri_filter_lacking(const char *name, size_t bytes);
hr_status hri_builtin_call(hri_run *run, const char *what, const hri_builtin *builtin, hri_value self,
                           const hri_arguments *arguments, hri_value *out);
hr_status hri_filter_apply(hri_run *run, hri_value name, hri_value self, const hri_arguments *arguments,
                           hri_value *out);
hr_status hri_test_apply(hri_run *run, hri_value name, hri_value self, const hri_arguments *arguments, bool *out);
/* A global: range, namespace, ... False when there is none. */
bool hri_global_find(const char *name, size_t bytes, hri_value *out);

extern const hri_builtin hri_str_methods[]; /* ends with a NULL name */
/* What a method value refers to. */
typedef struct hri_method {
  hri_value self;
  const hri_builtin *builtin;
} hri_method;
/* The attribute of a text, list, dict, ...: *found tells whether it has it. */
hr_status hri_method_find(hri_run *run, hri_value self, const char *name, size_t bytes, bool *found, hri_value *out);

/* Cyclers and joiners: the state behind cycler() and joiner(). */
typedef struct hri_cycler {
  hri_value *at;
  uint32_t count, next;
} hri_cycler;
typedef struct hri_joiner {
  hri_value separator;
  bool used;
} hri_joiner;

typedef struct hri_macro {
  const hri_ast_node *node;
  hri_scope *scope; /* where it was defined */
} hri_macro;

typedef struct hri_loop {
  const hri_ast_node *node;
  hri_scope *scope;
  hri_value *source; /* what is gone through */
  uint32_t source_count, source_next;
  hri_value *at; /* of that, what the `if` of the loop lets pass: known so far */
  uint32_t count, index;
  uint32_t depth0;
  hri_scope *trial;  /* in which elements are tried against the `if`, one after the other */
  hri_value changed; /* the last arguments of loop.changed; absent before the first */
} hri_loop;

/* ---- Evaluation ---- */
hr_status hri_eval(hri_run *run, const hri_ast_node *node, hri_scope *scope, hri_value *out);
/* A call with `caller` (may be NULL) as one more argument; filters on `*input` (for the innermost, which has no
 * operand). */
hr_status hri_eval_call(hri_run *run, const hri_ast_node *node, hri_scope *scope, const hri_value *caller,
                        hri_value *out);
hr_status hri_eval_filter(hri_run *run, const hri_ast_node *node, hri_scope *scope, const hri_value *input,
                          hri_value *out);
hr_status hri_compare(hri_run *run, hri_operator operator, hri_value left, hri_value right, bool *out);
/* environment.getattr and environment.getitem of Jinja's sandbox. */
hr_status hri_attribute(hri_run *run, hri_value object, const char *name, size_t bytes, hri_value *out);
hr_status hri_element(hri_run *run, hri_value object, hri_value key, hri_value *out);
hr_status hri_slice(hri_run *run, hri_value object, hri_value start, hri_value stop, hri_value step, hri_value *out);
/* object[index] of a text, list, tuple or range. */
hr_status hri_index(hri_run *run, hri_value object, int64_t index, bool *found, hri_value *out);
/* &, <, >, ' and " become entities; a text that is marked safe stays as it is, and the result is. */
hr_status hri_escape(hri_run *run, hri_value text, hri_value *out);
hr_status hri_binary(hri_run *run, hri_operator operator, hri_value left, hri_value right, hri_value *out);
hri_value hri_undefined_name(hri_value name);
hr_status hri_scope_new(hri_run *run, hri_scope *parent, hri_scope **out);
/* An empty scope for the next round of a loop: the one of the last round, which nobody keeps, or a new one. Loops in loops
 * over a long conversation have millions of rounds. */
hr_status hri_scope_again(hri_run *run, hri_scope *parent, hri_scope **scope);
void hri_scope_keep(hri_scope *scope); /* and those around it */
hr_status hri_scope_set(hri_run *run, hri_scope *scope, uint32_t name, hri_value value);
hr_status hri_macro_call(hri_run *run, const hri_macro *macro, const hri_arguments *arguments, hri_value *out);
/* Makes the first `wanted` elements of a loop known, as far as there are so many. */
hr_status hri_loop_fill(hri_run *run, hri_loop *loop, uint32_t wanted);
hr_status hri_loop_call(hri_run *run, const hri_loop *loop, const hri_arguments *arguments, hri_value *out);

hr_status hri_dict_view(hri_run *run, const hri_dict *dict, hri_view view, hri_value *out);
/* By their keys, stable; `reverse` keeps the order of equal keys too. */
hr_status hri_sort_pairs(hri_run *run, hri_pair *pairs, uint32_t count, bool reverse);

/* strings.c */
hr_status hri_strip(hri_run *run, hri_value self, hri_value set, bool left, bool right,
                    hri_value *out); /* set: absent for blanks */
hr_status hri_split_lines(hri_run *run, hri_value self, bool keep, hri_value *out);
hr_status hri_join(hri_run *run, hri_value separator, const hri_value *at, uint32_t count,
                   hri_value *out); /* str() of each */
hr_status hri_replace(hri_run *run, hri_value self, hri_value old, hri_value new_text, int64_t limit, hri_value *out);
hr_status hri_center(hri_run *run, hri_value self, hri_value width, hri_value fill, hri_value *out);
hr_status hri_lower(hri_run *run, hri_value self, hri_value *out);
hr_status hri_upper(hri_run *run, hri_value self, hri_value *out);
hr_status hri_capitalize(hri_run *run, hri_value self, hri_value *out);
bool hri_all_cased(hri_value self, bool upper);

/* format.c: `template % value`, and str.format. */
hr_status hri_percent(hri_run *run, hri_value format, hri_value value, hri_value *out);
hr_status hri_str_format(hri_run *run, hri_value format, const hri_arguments *arguments, hri_value *out);

#endif
