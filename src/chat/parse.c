/* Recursive descent over the tokens, rule by rule as Jinja 3.1 parses (pallets/jinja, src/jinja2/parser.py): its
 * grammar has corners that templates lean on, such as `-x | abs` and `a is divisibleby 3`. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/number.h"
#include "chat/lex.h"
#include "chat/run.h"

typedef struct parser {
  hri_template *template;
  const hri_token *tokens;
  size_t at;
  uint32_t depth;
  uint32_t loops;               /* for loops around this place, in the same macro */
  bool caller, varargs, kwargs; /* named since the macro began */
  hr_error *error;
} parser;

typedef HRI_ARRAY(hri_ast_node *) node_list;

static hr_status parse_expression(parser *p, bool condition, hri_ast_node **out);
static hr_status parse_unary(parser *p, bool filters, hri_ast_node **out);
static hr_status parse_body(parser *p, const char *const *ends, hri_nodes *body);

hr_status hri_template_fail(const hri_template *template, uint32_t at, hr_error *error, const char *format, ...) {
  char text[600];
  unsigned long long line = 1, column = 1;
  uint32_t i;
  va_list args;
  va_start(args, format);
  (void)hri_vsnprintf(text, sizeof text, format, args);
  va_end(args);
  for (i = 0; i < at && i < template->bytes; i++) {
    if (template->source[i] == '\n') {
      line++;
      column = 1;
    } else {
      column += ((unsigned char)template->source[i] & 0xC0) != 0x80;
    }
  }
  hri_fail(error, HR_ERROR_INPUT, "%s: line %llu, column %llu: %s", template->about, line, column, text);
  return hri_hint(error, HR_ERROR_INPUT, "correct the template, or choose a preset by name (docs/chat-templates.md)");
}

static const hri_token *current(const parser *p) { return &p->tokens[p->at]; }
static hr_status fail_here(const parser *p, const char *message) {
  return hri_template_fail(p->template, current(p)->at, p->error, "%s", message);
}

static bool is_operator(const hri_token *token, uint32_t code) {
  return token->kind == HRI_TOKEN_OPERATOR && token->code == code;
}
static bool is_name(const hri_token *token, const char *name) {
  return token->kind == HRI_TOKEN_NAME && hri_value_is(token->value, name);
}
enum {
  OP_FLOOR = '/' << 8 | '/',
  OP_POWER = '*' << 8 | '*',
  OP_EQ = '=' << 8 | '=',
  OP_NE = '!' << 8 | '=',
  OP_GE = '>' << 8 | '=',
  OP_LE = '<' << 8 | '='
};

static bool skip_operator(parser *p, uint32_t code) {
  if (!is_operator(current(p), code)) return false;
  p->at++;
  return true;
}

static bool skip_name(parser *p, const char *name) {
  if (!is_name(current(p), name)) return false;
  p->at++;
  return true;
}

/* How a token is shown in messages. */
static const char *describe(const parser *p, const hri_token *token, char out[48]) {
  switch (token->kind) {
  case HRI_TOKEN_END: return "the end of the template";
  case HRI_TOKEN_DATA: return "text";
  case HRI_TOKEN_BLOCK_BEGIN: return "'{%'";
  case HRI_TOKEN_BLOCK_END: return "'%}'";
  case HRI_TOKEN_PRINT_BEGIN: return "'{{'";
  case HRI_TOKEN_PRINT_END: return "'}}'";
  default:
    (void)snprintf(out, 48, "'%.*s'", (int)(token->bytes < 40 ? token->bytes : 40), p->template->source + token->at);
    return out;
  }
}

static hr_status unexpected(const parser *p, const char *wanted) {
  char shown[48];
  const char *found = describe(p, current(p), shown);
  return hri_template_fail(p->template, current(p)->at, p->error, "expected %s, found %s", wanted, found);
}

static hr_status expect_operator(parser *p, uint32_t code) {
  char wanted[4] = {'\'', (char)code, '\'', 0};
  return skip_operator(p, code) ? HR_OK : unexpected(p, wanted);
}

static hr_status expect_name(parser *p, const hri_token **out) {
  *out = current(p);
  if (current(p)->kind != HRI_TOKEN_NAME) return unexpected(p, "a name");
  p->at++;
  return HR_OK;
}

static hr_status no_memory(const parser *p, uint64_t bytes) {
  return hri_fail_memory(p->error, bytes, "a chat template");
}

static hr_status node_new(parser *p, hri_node_kind kind, uint32_t at, hri_ast_node **out) {
  hri_ast_node *node = hri_pool_zero(&p->template->pool, 1, sizeof *node);
  *out = node;
  if (!node) return no_memory(p, sizeof *node);
  node->kind = (uint8_t)kind;
  node->at = at;
  return HR_OK;
}

/* Moves a list into the pool. */
static hr_status keep_list(parser *p, node_list *list, hri_nodes *out) {
  uint64_t bytes = list->count * sizeof *list->items;
  out->count = (uint32_t)list->count;
  out->at = hri_pool_alloc(&p->template->pool, bytes);
  if (!out->at) return no_memory(p, bytes);
  if (list->count > 0) memcpy(out->at, list->items, bytes);
  return HR_OK;
}

static hr_status add_node(parser *p, node_list *list, hri_ast_node *node) {
  return hri_array_push(list, node) ? HR_OK : no_memory(p, sizeof node);
}

static hr_status name_index(parser *p, hri_value name, uint32_t *out) {
  uint32_t i;
  for (i = 0; i < p->template->names.count; i++)
    if (hri_equal(p->template->names.items[i], name)) break;
  if (i == HRI_TEMPLATE_NAMES)
    return hri_template_fail(p->template, current(p)->at, p->error, "the template has more than %d names",
                             HRI_TEMPLATE_NAMES);
  if (i == p->template->names.count && !hri_array_push(&p->template->names, name)) return no_memory(p, sizeof name);
  if (i == HRI_NAME_CALLER) p->caller = true;
  if (i == HRI_NAME_VARARGS) p->varargs = true;
  if (i == HRI_NAME_KWARGS) p->kwargs = true;
  *out = i;
  return HR_OK;
}

static hr_status deeper(parser *p) {
  if (p->depth >= HRI_TEMPLATE_DEPTH)
    return hri_template_fail(p->template, current(p)->at, p->error, "the template is nested deeper than %d here",
                             HRI_TEMPLATE_DEPTH);
  p->depth++;
  return HR_OK;
}

/* ---- Expressions ---- */

static bool tuple_ends(const parser *p, const char *end_name) {
  const hri_token *token = current(p);
  if (token->kind == HRI_TOKEN_PRINT_END || token->kind == HRI_TOKEN_BLOCK_END || is_operator(token, ')')) return true;
  return end_name && is_name(token, end_name);
}

/* Names and literals only, as targets of `for` and `set` are. */
static hr_status parse_primary(parser *p, bool members, hri_ast_node **out);

typedef enum tuple_of {
  TUPLE_OF_ALL,
  TUPLE_OF_PLAIN /* no `if` expressions */,
  TUPLE_OF_TARGETS,
  TUPLE_OF_MEMBERS /* and ns.x */
} tuple_of;

static hr_status parse_part(parser *p, tuple_of of, hri_ast_node **out) {
  if (of == TUPLE_OF_TARGETS || of == TUPLE_OF_MEMBERS) return parse_primary(p, of == TUPLE_OF_MEMBERS, out);
  return parse_expression(p, of == TUPLE_OF_ALL, out);
}

/* One expression, or several with commas: a tuple. `empty`: in brackets, where () is one too. */
static hr_status parse_tuple(parser *p, tuple_of of, const char *end_name, bool empty, hri_ast_node **out) {
  uint32_t at = current(p)->at;
  node_list items = {0};
  bool tuple = false;
  hr_status status = HR_OK;
  for (;;) {
    hri_ast_node *item;
    if (items.count > 0 && !skip_operator(p, ',')) break;
    if (items.count > 0) tuple = true;
    if (tuple_ends(p, end_name)) break;
    HRI_TRY_OUT(parse_part(p, of, &item));
    HRI_TRY_OUT(add_node(p, &items, item));
  }
  if (!tuple && items.count == 1) {
    *out = items.items[0];
  } else if (!tuple && !empty) {
    status = unexpected(p, "an expression");
  } else {
    HRI_TRY_OUT(node_new(p, HRI_NODE_TUPLE, at, out));
    HRI_TRY_OUT(keep_list(p, &items, &(*out)->items));
  }
out:
  hri_array_free(&items);
  return status;
}

static hr_status constant_node(parser *p, uint32_t at, hri_value value, hri_ast_node **out) {
  HRI_TRY(node_new(p, HRI_NODE_CONSTANT, at, out));
  (*out)->constant = value;
  return HR_OK;
}

/* A list "[a, b]" or a dict "{a: b}"; a comma may stand at the end. */
static hr_status parse_display(parser *p, bool dict, hri_ast_node **out) {
  uint32_t at = current(p)->at, close = dict ? '}' : ']';
  node_list items = {0};
  hr_status status = HR_OK;
  hri_ast_node *item;
  p->at++;
  while (!is_operator(current(p), close)) {
    if (items.count > 0) HRI_TRY_OUT(expect_operator(p, ','));
    if (is_operator(current(p), close)) break;
    HRI_TRY_OUT(parse_expression(p, true, &item));
    HRI_TRY_OUT(add_node(p, &items, item));
    if (!dict) continue;
    HRI_TRY_OUT(expect_operator(p, ':'));
    HRI_TRY_OUT(parse_expression(p, true, &item));
    HRI_TRY_OUT(add_node(p, &items, item));
  }
  p->at++;
  HRI_TRY_OUT(node_new(p, dict ? HRI_NODE_DICT : HRI_NODE_LIST, at, out));
  HRI_TRY_OUT(keep_list(p, &items, &(*out)->items));
out:
  hri_array_free(&items);
  return status;
}

/* Strings that stand side by side are one. */
static hr_status parse_strings(parser *p, hri_ast_node **out) {
  const hri_token *first = current(p);
  hri_text text = {0};
  char *copy;
  uint64_t bytes;
  p->at++;
  if (current(p)->kind != HRI_TOKEN_STRING) return constant_node(p, first->at, first->value, out);
  hri_text_add_bytes(&text, first->value.as.chars, first->value.count);
  while (current(p)->kind == HRI_TOKEN_STRING) {
    hri_text_add_bytes(&text, current(p)->value.as.chars, current(p)->value.count);
    p->at++;
  }
  bytes = text.length;
  copy = text.failed ? NULL : hri_pool_alloc(&p->template->pool, bytes + 1);
  if (copy) memcpy(copy, text.chars, bytes + 1);
  hri_text_deinit(&text);
  return copy ? constant_node(p, first->at, hri_chars(copy, bytes), out) : no_memory(p, bytes);
}

static hr_status parse_named(parser *p, bool members, hri_ast_node **out) {
  static const char *const words[] = {"true", "True", "false", "False", "none", "None"};
  const hri_token *token = current(p);
  size_t i;
  p->at++;
  for (i = 0; i < 6; i++)
    if (is_name(token, words[i])) return constant_node(p, token->at, i < 4 ? hri_bool(i < 2) : hri_none(), out);
  if (members && skip_operator(p, '.')) {
    const hri_token *member;
    HRI_TRY(expect_name(p, &member));
    HRI_TRY(node_new(p, HRI_NODE_TARGET_MEMBER, token->at, out));
    (*out)->constant = member->value;
  } else {
    HRI_TRY(node_new(p, HRI_NODE_NAME, token->at, out));
  }
  return name_index(p, token->value, &(*out)->name);
}

static hr_status parse_primary(parser *p, bool members, hri_ast_node **out) {
  const hri_token *token = current(p);
  hr_status status;
  switch (token->kind) {
  case HRI_TOKEN_NAME: return parse_named(p, members, out);
  case HRI_TOKEN_STRING: return parse_strings(p, out);
  case HRI_TOKEN_INTEGER:
  case HRI_TOKEN_FLOAT: p->at++; return constant_node(p, token->at, token->value, out);
  default: break;
  }
  HRI_TRY(deeper(p));
  if (skip_operator(p, '(')) {
    status = parse_tuple(p, TUPLE_OF_ALL, NULL, true, out);
    if (status == HR_OK) status = expect_operator(p, ')');
  } else if (is_operator(token, '[') || is_operator(token, '{')) {
    status = parse_display(p, token->code == '{', out);
  } else {
    status = unexpected(p, "an expression");
  }
  p->depth--;
  return status;
}

/* One index or slice inside brackets. */
static hr_status parse_index(parser *p, hri_ast_node **out) {
  uint32_t at = current(p)->at, i;
  hri_ast_node *parts[3] = {NULL, NULL, NULL};
  if (!is_operator(current(p), ':')) {
    HRI_TRY(parse_expression(p, true, &parts[0]));
    if (!is_operator(current(p), ':')) {
      *out = parts[0];
      return HR_OK;
    }
  }
  for (i = 1; i < 3 && skip_operator(p, ':'); i++)
    if (!is_operator(current(p), ':') && !is_operator(current(p), ']') && !is_operator(current(p), ','))
      HRI_TRY(parse_expression(p, true, &parts[i]));
  HRI_TRY(node_new(p, HRI_NODE_SLICE, at, out));
  (*out)->a = parts[0];
  (*out)->b = parts[1];
  (*out)->c = parts[2];
  return HR_OK;
}

static hr_status parse_subscript(parser *p, hri_ast_node *object, hri_ast_node **out) {
  const hri_token *token = current(p);
  p->at++;
  HRI_TRY(node_new(p, HRI_NODE_ELEMENT, token->at, out));
  (*out)->a = object;
  if (token->code == '.') {
    const hri_token *member = current(p);
    p->at++;
    if (member->kind == HRI_TOKEN_INTEGER) return constant_node(p, member->at, member->value, &(*out)->b);
    p->at--;
    if (member->kind != HRI_TOKEN_NAME) return unexpected(p, "a name or a number");
    p->at++;
    (*out)->kind = HRI_NODE_ATTRIBUTE;
    (*out)->constant = member->value;
    return HR_OK;
  }
  if (is_operator(current(p), ']')) return unexpected(p, "an expression");
  HRI_TRY(parse_index(p, &(*out)->b));
  if (is_operator(current(p), ',')) return fail_here(p, "an index of several parts is not supported");
  return expect_operator(p, ']');
}

typedef struct call_lists {
  node_list positional, named;
  HRI_ARRAY(hri_value) names;
} call_lists;

/* One argument: a, name=a, *a or **a. */
static hr_status parse_argument(parser *p, hri_call_node *call, call_lists *lists) {
  const hri_token *token = current(p);
  hri_ast_node *value;
  if (is_operator(token, '*') || is_operator(token, OP_POWER)) {
    hri_ast_node **slot = token->code == '*' ? &call->star : &call->star2;
    if (*slot || call->star2) return fail_here(p, "invalid syntax for the arguments of a call");
    p->at++;
    return parse_expression(p, true, slot);
  }
  if (token->kind == HRI_TOKEN_NAME && is_operator(&p->tokens[p->at + 1], '=')) {
    if (call->star2) return fail_here(p, "invalid syntax for the arguments of a call");
    p->at += 2;
    HRI_TRY(parse_expression(p, true, &value));
    if (!hri_array_push(&lists->names, token->value)) return no_memory(p, sizeof token->value);
    return add_node(p, &lists->named, value);
  }
  if (call->star || call->star2 || lists->named.count > 0)
    return fail_here(p, "an argument without a name stands behind one with a name");
  HRI_TRY(parse_expression(p, true, &value));
  return add_node(p, &lists->positional, value);
}

static hr_status parse_arguments(parser *p, hri_call_node **out) {
  hri_call_node *call = hri_pool_zero(&p->template->pool, 1, sizeof *call);
  call_lists lists = {0};
  bool comma = false;
  hr_status status = HR_OK;
  if (!call) return no_memory(p, sizeof *call);
  HRI_TRY_OUT(expect_operator(p, '('));
  while (!is_operator(current(p), ')')) {
    if (comma) HRI_TRY_OUT(expect_operator(p, ','));
    if (comma && is_operator(current(p), ')')) break;
    HRI_TRY_OUT(parse_argument(p, call, &lists));
    comma = true;
  }
  p->at++;
  HRI_TRY_OUT(keep_list(p, &lists.positional, &call->positional));
  HRI_TRY_OUT(keep_list(p, &lists.named, &call->named));
  call->names = hri_pool_zero(&p->template->pool, lists.names.count, sizeof *call->names);
  if (!call->names) HRI_TRY_OUT(no_memory(p, sizeof *call->names));
  if (lists.names.count > 0) memcpy(call->names, lists.names.items, lists.names.count * sizeof *call->names);
  *out = call;
out:
  hri_array_free(&lists.positional);
  hri_array_free(&lists.named);
  hri_array_free(&lists.names);
  return status;
}

static hr_status parse_call(parser *p, hri_ast_node *callee, hri_ast_node **out) {
  HRI_TRY(node_new(p, HRI_NODE_CALL, current(p)->at, out));
  (*out)->a = callee;
  return parse_arguments(p, &(*out)->call);
}

/* A chain such as a.b.c(d)[e] makes nodes that are nested as deep as it is long: evaluation would recurse into it. */
static hr_status chain_link(parser *p, uint32_t *links) {
  return ++*links > HRI_TEMPLATE_DEPTH
             ? fail_here(p, "this chain of attributes, calls, filters or operators is too long")
             : HR_OK;
}

static hr_status parse_postfix(parser *p, hri_ast_node **node) {
  uint32_t links = 0;
  for (;;) {
    const hri_token *token = current(p);
    if (is_operator(token, '.') || is_operator(token, '[')) HRI_TRY(parse_subscript(p, *node, node));
    else if (is_operator(token, '(')) HRI_TRY(parse_call(p, *node, node));
    else return HR_OK;
    HRI_TRY(chain_link(p, &links));
  }
}

/* The name of a filter or test, which may have dots. */
static hr_status parse_dotted(parser *p, const hri_token **first, hri_value *out) {
  HRI_TRY(expect_name(p, first));
  *out = (*first)->value;
  while (skip_operator(p, '.')) {
    const hri_token *next;
    HRI_TRY(expect_name(p, &next));
    *out = hri_chars(out->as.chars, (size_t)(next->value.as.chars + next->value.count - out->as.chars));
  }
  return HR_OK;
}

/* Filters behind `*node`, which is NULL at the head of a filter block; `inlined`: the first has no '|'. */
static hr_status parse_filter(parser *p, bool inlined, hri_ast_node **node) {
  uint32_t links = 0;
  while (inlined || is_operator(current(p), '|')) {
    const hri_token *token;
    hri_ast_node *filter;
    if (!inlined) p->at++;
    inlined = false;
    HRI_TRY(chain_link(p, &links));
    HRI_TRY(node_new(p, HRI_NODE_FILTER, current(p)->at, &filter));
    HRI_TRY(parse_dotted(p, &token, &filter->constant));
    if (hri_filter_lacking(token->value.as.chars, filter->constant.count))
      return hri_template_fail(p->template, token->at, p->error, "the filter '%.*s' is not supported",
                               (int)filter->constant.count, token->value.as.chars);
    if (is_operator(current(p), '(')) HRI_TRY(parse_arguments(p, &filter->call));
    filter->a = *node;
    *node = filter;
  }
  return HR_OK;
}

static bool begins_operand(const hri_token *token) {
  if (token->kind == HRI_TOKEN_NAME) return !is_name(token, "else") && !is_name(token, "or") && !is_name(token, "and");
  if (token->kind == HRI_TOKEN_STRING || token->kind == HRI_TOKEN_INTEGER || token->kind == HRI_TOKEN_FLOAT)
    return true;
  return is_operator(token, '(') || is_operator(token, '[') || is_operator(token, '{');
}

/* `is`, perhaps `not`, a name, and perhaps one argument without brackets. */
static hr_status parse_test(parser *p, hri_ast_node **node) {
  const hri_token *token = current(p), *name;
  hri_ast_node *test, *operand;
  bool negated;
  p->at++;
  negated = skip_name(p, "not");
  HRI_TRY(node_new(p, HRI_NODE_TEST, token->at, &test));
  HRI_TRY(parse_dotted(p, &name, &test->constant));
  test->a = *node;
  if (is_operator(current(p), '(')) {
    HRI_TRY(parse_arguments(p, &test->call));
  } else if (begins_operand(current(p))) {
    if (is_name(current(p), "is")) return fail_here(p, "tests cannot be chained with 'is'");
    HRI_TRY(parse_primary(p, false, &operand));
    HRI_TRY(parse_postfix(p, &operand));
    test->call = hri_pool_zero(&p->template->pool, 1, sizeof *test->call + sizeof operand);
    if (!test->call) return no_memory(p, sizeof *test->call);
    test->call->positional.at = (hri_ast_node **)(test->call + 1);
    test->call->positional.at[0] = operand;
    test->call->positional.count = 1;
  }
  *node = test;
  if (!negated) return HR_OK;
  HRI_TRY(node_new(p, HRI_NODE_NOT, token->at, node));
  (*node)->a = test;
  return HR_OK;
}

static hr_status parse_unary_inside(parser *p, bool filters, hri_ast_node **out) {
  const hri_token *token = current(p);
  uint32_t links = 0;
  if (is_operator(token, '-') || is_operator(token, '+')) {
    p->at++;
    HRI_TRY(node_new(p, token->code == '-' ? HRI_NODE_NEGATE : HRI_NODE_POSITIVE, token->at, out));
    HRI_TRY(parse_unary(p, false, &(*out)->a));
  } else {
    HRI_TRY(parse_primary(p, false, out));
  }
  HRI_TRY(parse_postfix(p, out));
  while (filters) {
    HRI_TRY(chain_link(p, &links));
    if (is_operator(current(p), '|')) HRI_TRY(parse_filter(p, false, out));
    else if (is_name(current(p), "is")) HRI_TRY(parse_test(p, out));
    else if (is_operator(current(p), '(')) HRI_TRY(parse_call(p, *out, out));
    else break;
  }
  return HR_OK;
}

static hr_status parse_unary(parser *p, bool filters, hri_ast_node **out) {
  hr_status status;
  HRI_TRY(deeper(p));
  status = parse_unary_inside(p, filters, out);
  p->depth--;
  return status;
}

/* Binary operators that group from the left: levels[0] binds loosest. */
typedef struct level {
  struct {
    uint32_t code;
    hri_operator operator;
  } operators[4];
} level;

static hr_status parse_operators(parser *p, uint32_t at_level, hri_ast_node **out);

static hr_status parse_concat(parser *p, hri_ast_node **out) {
  uint32_t at = current(p)->at;
  node_list items = {0};
  hr_status status = HR_OK;
  HRI_TRY(parse_operators(p, 1, out));
  if (!is_operator(current(p), '~')) return HR_OK;
  HRI_TRY_OUT(add_node(p, &items, *out));
  while (skip_operator(p, '~')) {
    hri_ast_node *item;
    HRI_TRY_OUT(parse_operators(p, 1, &item));
    HRI_TRY_OUT(add_node(p, &items, item));
  }
  HRI_TRY_OUT(node_new(p, HRI_NODE_CONCAT, at, out));
  HRI_TRY_OUT(keep_list(p, &items, &(*out)->items));
out:
  hri_array_free(&items);
  return status;
}

/* Level 0: + and -, between concatenations with ~; 1: * / // %; 2: **, whose operands are unary. */
static hr_status parse_operators(parser *p, uint32_t at_level, hri_ast_node **out) {
  static const level levels[3] = {
      {{{'+', HRI_ADD}, {'-', HRI_SUBTRACT}, {0, HRI_ADD}, {0, HRI_ADD}}},
      {{{'*', HRI_MULTIPLY}, {'/', HRI_DIVIDE}, {OP_FLOOR, HRI_FLOOR_DIVIDE}, {'%', HRI_MODULO}}},
      {{{OP_POWER, HRI_POWER}, {0, HRI_ADD}, {0, HRI_ADD}, {0, HRI_ADD}}},
  };
  hri_ast_node *right = NULL, *binary = NULL;
  uint32_t links = 0, i;
  bool first = true;
  for (;;) {
    hri_ast_node **into = first ? out : &right;
    if (at_level == 0) HRI_TRY(parse_concat(p, into));
    else if (at_level == 1) HRI_TRY(parse_operators(p, 2, into));
    else HRI_TRY(parse_unary(p, true, into));
    if (!first) {
      binary->a = *out;
      binary->b = right;
      *out = binary;
    }
    first = false;
    for (i = 0; i < 4; i++)
      if (levels[at_level].operators[i].code && is_operator(current(p), levels[at_level].operators[i].code)) break;
    if (i == 4) return HR_OK;
    HRI_TRY(chain_link(p, &links));
    HRI_TRY(node_new(p, HRI_NODE_BINARY, current(p)->at, &binary));
    binary->operator = (uint8_t)levels[at_level].operators[i].operator;
    p->at++;
  }
}

static bool comparison(parser *p, hri_operator *out) {
  static const struct {
    uint32_t code;
    hri_operator operator;
  } table[] = {{OP_EQ, HRI_EQUAL},      {OP_NE, HRI_UNEQUAL}, {'<', HRI_LESS},
               {OP_LE, HRI_LESS_EQUAL}, {'>', HRI_GREATER},   {OP_GE, HRI_GREATER_EQUAL}};
  size_t i;
  for (i = 0; i < sizeof table / sizeof *table; i++)
    if (skip_operator(p, table[i].code)) {
      *out = table[i].operator;
      return true;
    }
  *out = HRI_IN;
  if (skip_name(p, "in")) return true;
  *out = HRI_NOT_IN;
  if (!is_name(current(p), "not") || !is_name(&p->tokens[p->at + 1], "in")) return false;
  p->at += 2;
  return true;
}

static hr_status parse_compare(parser *p, hri_ast_node **out) {
  uint32_t at;
  node_list steps = {0};
  hri_operator operator;
  hr_status status = HR_OK;
  HRI_TRY(parse_operators(p, 0, out));
  for (at = current(p)->at; comparison(p, &operator); at = current(p)->at) {
    hri_ast_node *step;
    HRI_TRY_OUT(node_new(p, HRI_NODE_COMPARE_STEP, at, &step));
    step->operator = (uint8_t)operator;
    HRI_TRY_OUT(parse_operators(p, 0, &step->a));
    HRI_TRY_OUT(add_node(p, &steps, step));
  }
  if (steps.count > 0) {
    hri_ast_node *compare;
    HRI_TRY_OUT(node_new(p, HRI_NODE_COMPARE, steps.items[0]->at, &compare));
    compare->a = *out;
    HRI_TRY_OUT(keep_list(p, &steps, &compare->items));
    *out = compare;
  }
out:
  hri_array_free(&steps);
  return status;
}

static hr_status parse_not(parser *p, hri_ast_node **out) {
  uint32_t at = current(p)->at;
  hr_status status;
  if (!skip_name(p, "not")) return parse_compare(p, out);
  HRI_TRY(deeper(p));
  status = node_new(p, HRI_NODE_NOT, at, out);
  if (status == HR_OK) status = parse_not(p, &(*out)->a);
  p->depth--;
  return status;
}

/* `and` (which binds tighter) and `or`. */
static hr_status parse_logic(parser *p, bool either, hri_ast_node **out) {
  uint32_t links = 0, at;
  HRI_TRY(either ? parse_logic(p, false, out) : parse_not(p, out));
  for (at = current(p)->at; skip_name(p, either ? "or" : "and"); at = current(p)->at) {
    hri_ast_node *node;
    HRI_TRY(chain_link(p, &links));
    HRI_TRY(node_new(p, either ? HRI_NODE_OR : HRI_NODE_AND, at, &node));
    node->a = *out;
    HRI_TRY(either ? parse_logic(p, false, &node->b) : parse_not(p, &node->b));
    *out = node;
  }
  return HR_OK;
}

static hr_status parse_condition(parser *p, hri_ast_node **out) {
  uint32_t at, links = 0;
  HRI_TRY(parse_logic(p, true, out));
  for (at = current(p)->at; skip_name(p, "if"); at = current(p)->at) {
    hri_ast_node *node;
    HRI_TRY(chain_link(p, &links));
    HRI_TRY(node_new(p, HRI_NODE_CONDITION, at, &node));
    node->a = *out;
    HRI_TRY(parse_logic(p, true, &node->b));
    if (skip_name(p, "else")) HRI_TRY(parse_expression(p, true, &node->c));
    *out = node;
  }
  return HR_OK;
}

static hr_status parse_expression(parser *p, bool condition, hri_ast_node **out) {
  hr_status status;
  HRI_TRY(deeper(p));
  status = condition ? parse_condition(p, out) : parse_logic(p, true, out);
  p->depth--;
  return status;
}

/* ---- Statements ---- */

static hr_status check_target(parser *p, const hri_ast_node *node, bool members) {
  uint32_t i;
  if (node->kind == HRI_NODE_NAME || (members && node->kind == HRI_NODE_TARGET_MEMBER)) return HR_OK;
  if (node->kind != HRI_NODE_TUPLE)
    return hri_template_fail(p->template, node->at, p->error, "one cannot assign to this expression");
  for (i = 0; i < node->items.count; i++) HRI_TRY(check_target(p, node->items.at[i], members));
  return HR_OK;
}

static hr_status parse_target(parser *p, bool members, const char *end_name, hri_ast_node **out) {
  HRI_TRY(parse_tuple(p, members ? TUPLE_OF_MEMBERS : TUPLE_OF_TARGETS, end_name, false, out));
  return check_target(p, *out, members);
}

static hr_status expect_block_end(parser *p) {
  if (current(p)->kind != HRI_TOKEN_BLOCK_END) return unexpected(p, "'%}'");
  p->at++;
  return HR_OK;
}

/* The statements up to {% END, whose name is left as the current token. */
static hr_status parse_until(parser *p, const char *const *ends, hri_nodes *body) {
  HRI_TRY(expect_block_end(p));
  return parse_body(p, ends, body);
}

static hr_status parse_for(parser *p, hri_ast_node *node) {
  static const char *const ends[] = {"endfor", "else", NULL}, *const last[] = {"endfor", NULL};
  node->kind = HRI_NODE_FOR;
  HRI_TRY(parse_target(p, false, "in", &node->a));
  if (!skip_name(p, "in")) return unexpected(p, "'in'");
  HRI_TRY(parse_tuple(p, TUPLE_OF_PLAIN, "recursive", false, &node->b));
  if (skip_name(p, "if")) HRI_TRY(parse_expression(p, true, &node->c));
  node->flag = skip_name(p, "recursive");
  p->loops++;
  HRI_TRY(parse_until(p, ends, &node->body));
  p->loops--;
  if (!skip_name(p, "else")) {
    p->at++;
    return HR_OK;
  }
  HRI_TRY(parse_until(p, last, &node->other));
  p->at++;
  return HR_OK;
}

/* `elif` is an `if` alone in the other branch. */
static hr_status parse_if(parser *p, hri_ast_node *node) {
  static const char *const ends[] = {"elif", "else", "endif", NULL}, *const last[] = {"endif", NULL};
  hri_ast_node **only;
  for (;;) {
    node->kind = HRI_NODE_IF;
    HRI_TRY(parse_tuple(p, TUPLE_OF_PLAIN, NULL, false, &node->a));
    HRI_TRY(parse_until(p, ends, &node->body));
    if (!is_name(current(p), "elif")) break;
    only = hri_pool_alloc(&p->template->pool, sizeof *only);
    if (!only) return no_memory(p, sizeof *only);
    HRI_TRY(node_new(p, HRI_NODE_IF, current(p)->at, only));
    node->other = (hri_nodes){only, 1};
    node = *only;
    p->at++;
  }
  if (skip_name(p, "else")) HRI_TRY(parse_until(p, last, &node->other));
  p->at++;
  return HR_OK;
}

static hr_status parse_set(parser *p, hri_ast_node *node) {
  static const char *const last[] = {"endset", NULL};
  HRI_TRY(parse_target(p, true, NULL, &node->a));
  node->kind = HRI_NODE_SET;
  if (skip_operator(p, '=')) return parse_tuple(p, TUPLE_OF_ALL, NULL, false, &node->b);
  node->kind = HRI_NODE_SET_BLOCK;
  HRI_TRY(parse_filter(p, false, &node->b));
  HRI_TRY(parse_until(p, last, &node->body));
  p->at++;
  return HR_OK;
}

/* (a, b=1): the parameters and, of the last ones, the defaults. */
static hr_status parse_signature(parser *p, hri_ast_node *node) {
  node_list names = {0}, defaults = {0};
  hr_status status = HR_OK;
  HRI_TRY_OUT(expect_operator(p, '('));
  while (!is_operator(current(p), ')')) {
    hri_ast_node *item;
    if (names.count > 0) HRI_TRY_OUT(expect_operator(p, ','));
    if (current(p)->kind != HRI_TOKEN_NAME) HRI_TRY_OUT(unexpected(p, "the name of a parameter"));
    HRI_TRY_OUT(parse_named(p, false, &item));
    HRI_TRY_OUT(check_target(p, item, false));
    HRI_TRY_OUT(add_node(p, &names, item));
    if (skip_operator(p, '=')) {
      HRI_TRY_OUT(parse_expression(p, true, &item));
      HRI_TRY_OUT(add_node(p, &defaults, item));
    } else if (defaults.count > 0) {
      HRI_TRY_OUT(fail_here(p, "a parameter without a default stands behind one with a default"));
    }
  }
  p->at++;
  HRI_TRY_OUT(keep_list(p, &names, &node->items));
  HRI_TRY_OUT(keep_list(p, &defaults, &node->other));
out:
  hri_array_free(&names);
  hri_array_free(&defaults);
  return status;
}

/* The body of a macro or of a block that is called like one: loops around it are not its own. */
static hr_status parse_macro_body(parser *p, const char *const *last, hri_ast_node *node) {
  uint32_t loops = p->loops;
  bool caller = p->caller, varargs = p->varargs, kwargs = p->kwargs;
  p->loops = 0;
  p->caller = p->varargs = p->kwargs = false;
  HRI_TRY(parse_until(p, last, &node->body));
  p->at++;
  node->flag = p->caller;
  node->varargs = p->varargs;
  node->kwargs = p->kwargs;
  p->loops = loops;
  p->caller |= caller; /* what a macro inside names, this one names too */
  p->varargs |= varargs;
  p->kwargs |= kwargs;
  return HR_OK;
}

static hr_status parse_macro(parser *p, hri_ast_node *node) {
  static const char *const last[] = {"endmacro", NULL};
  const hri_token *name;
  node->kind = HRI_NODE_MACRO;
  HRI_TRY(expect_name(p, &name));
  HRI_TRY(name_index(p, name->value, &node->name));
  HRI_TRY(parse_signature(p, node));
  return parse_macro_body(p, last, node);
}

static hr_status parse_call_block(parser *p, hri_ast_node *node) {
  static const char *const last[] = {"endcall", NULL};
  node->kind = HRI_NODE_CALL_BLOCK;
  node->name = HRI_NAME_CALLER;
  if (is_operator(current(p), '(')) HRI_TRY(parse_signature(p, node));
  HRI_TRY(parse_expression(p, true, &node->a));
  if (node->a->kind != HRI_NODE_CALL)
    return hri_template_fail(p->template, node->a->at, p->error, "a call block needs a call");
  return parse_macro_body(p, last, node);
}

static hr_status parse_generation(parser *p, hri_ast_node *node) {
  static const char *const last[] = {"endgeneration", NULL};
  node->kind = HRI_NODE_GENERATION;
  p->template->has_generation = true;
  return parse_macro_body(p, last, node);
}

static hr_status parse_filter_block(parser *p, hri_ast_node *node) {
  static const char *const last[] = {"endfilter", NULL};
  node->kind = HRI_NODE_FILTER_BLOCK;
  HRI_TRY(parse_filter(p, true, &node->a));
  HRI_TRY(parse_until(p, last, &node->body));
  p->at++;
  return HR_OK;
}

static hr_status parse_with(parser *p, hri_ast_node *node) {
  static const char *const last[] = {"endwith", NULL};
  node_list items = {0};
  hr_status status = HR_OK;
  node->kind = HRI_NODE_WITH;
  while (current(p)->kind != HRI_TOKEN_BLOCK_END) {
    hri_ast_node *target, *value;
    if (items.count > 0) HRI_TRY_OUT(expect_operator(p, ','));
    HRI_TRY_OUT(parse_target(p, false, NULL, &target));
    HRI_TRY_OUT(expect_operator(p, '='));
    HRI_TRY_OUT(parse_expression(p, true, &value));
    HRI_TRY_OUT(add_node(p, &items, target));
    HRI_TRY_OUT(add_node(p, &items, value));
  }
  HRI_TRY_OUT(keep_list(p, &items, &node->items));
  HRI_TRY_OUT(parse_until(p, last, &node->body));
  p->at++;
out:
  hri_array_free(&items);
  return status;
}

/* {% print a, b %}: each in turn, as {{ a }}{{ b }}. */
static hr_status parse_print(parser *p, hri_ast_node *node) {
  node_list items = {0};
  hr_status status = HR_OK;
  node->kind = HRI_NODE_PRINT;
  while (current(p)->kind != HRI_TOKEN_BLOCK_END) {
    hri_ast_node *item;
    if (items.count > 0) HRI_TRY_OUT(expect_operator(p, ','));
    HRI_TRY_OUT(parse_expression(p, true, &item));
    HRI_TRY_OUT(add_node(p, &items, item));
  }
  HRI_TRY_OUT(keep_list(p, &items, &node->items));
out:
  hri_array_free(&items);
  return status;
}

static hr_status parse_jump(parser *p, hri_ast_node *node) {
  const hri_token *token = &p->tokens[p->at - 1];
  node->kind = is_name(token, "break") ? HRI_NODE_BREAK : HRI_NODE_CONTINUE;
  if (p->loops == 0)
    return hri_template_fail(p->template, token->at, p->error, "'%.*s' stands outside of a loop", (int)token->bytes,
                             token->value.as.chars);
  return HR_OK;
}

static hr_status parse_statement(parser *p, hri_ast_node *node) {
  static const struct {
    const char *name;
    hr_status (*parse)(parser *p, hri_ast_node *node); /* NULL: not supported */
  } statements[] = {
      {"for", parse_for},
      {"if", parse_if},
      {"set", parse_set},
      {"macro", parse_macro},
      {"call", parse_call_block},
      {"filter", parse_filter_block},
      {"with", parse_with},
      {"print", parse_print},
      {"generation", parse_generation},
      {"break", parse_jump},
      {"continue", parse_jump},
      {"include", NULL},
      {"import", NULL},
      {"from", NULL},
      {"extends", NULL},
      {"block", NULL},
      {"autoescape", NULL},
      {"do", NULL},
      {"trans", NULL},
  };
  const hri_token *token;
  size_t i;
  if (current(p)->kind != HRI_TOKEN_NAME) return unexpected(p, "the name of a statement");
  token = current(p);
  for (i = 0; i < sizeof statements / sizeof *statements; i++) {
    if (!is_name(token, statements[i].name)) continue;
    if (!statements[i].parse)
      return hri_template_fail(p->template, token->at, p->error, "the statement '%s' is not supported",
                               statements[i].name);
    p->at++;
    return statements[i].parse(p, node);
  }
  return hri_template_fail(p->template, token->at, p->error, "unknown statement '%.*s'", (int)token->bytes,
                           token->value.as.chars);
}

static bool one_of(const hri_token *token, const char *const *ends) {
  for (; ends && *ends; ends++)
    if (is_name(token, *ends)) return true;
  return false;
}

static hr_status parse_print_tag(parser *p, hri_ast_node **out) {
  HRI_TRY(node_new(p, HRI_NODE_PRINT, current(p)->at, out));
  p->at++;
  HRI_TRY(parse_tuple(p, TUPLE_OF_ALL, NULL, false, &(*out)->a));
  if (current(p)->kind != HRI_TOKEN_PRINT_END) return unexpected(p, "'}}'");
  p->at++;
  return HR_OK;
}

static hr_status parse_piece(parser *p, hri_ast_node **out) {
  const hri_token *token = current(p);
  if (token->kind == HRI_TOKEN_PRINT_BEGIN) return parse_print_tag(p, out);
  HRI_TRY(node_new(p, HRI_NODE_DATA, token->at, out));
  p->at++;
  if (token->kind == HRI_TOKEN_DATA) {
    (*out)->constant = hri_chars(p->template->source + token->at, token->bytes);
    return HR_OK;
  }
  HRI_TRY(parse_statement(p, *out));
  return expect_block_end(p);
}

/* Statements up to one of `ends` (then the current token) or, without any, up to the end of the template. */
static hr_status parse_body(parser *p, const char *const *ends, hri_nodes *body) {
  node_list list = {0};
  hr_status status = HR_OK;
  HRI_TRY(deeper(p));
  for (;;) {
    hri_ast_node *node;
    if (current(p)->kind == HRI_TOKEN_END) {
      if (ends)
        HRI_TRY_OUT(hri_template_fail(p->template, current(p)->at, p->error,
                                      "the template ends where '{%% %s %%}' is missing", ends[0]));
      break;
    }
    if (current(p)->kind == HRI_TOKEN_BLOCK_BEGIN && one_of(&p->tokens[p->at + 1], ends)) {
      p->at++;
      break;
    }
    HRI_TRY_OUT(parse_piece(p, &node));
    HRI_TRY_OUT(add_node(p, &list, node));
  }
  HRI_TRY_OUT(keep_list(p, &list, body));
  p->depth--;
out:
  hri_array_free(&list);
  return status;
}

/* ---- Templates ---- */

/* \r\n and \r become \n; one newline at the end is dropped. */
static uint32_t normalize(const char *source, uint64_t bytes, char *out) {
  uint32_t count = 0;
  uint64_t i;
  for (i = 0; i < bytes; i++) {
    if (source[i] == '\r' && i + 1 < bytes && source[i + 1] == '\n') continue;
    out[count++] = source[i] == '\r' ? '\n' : source[i];
  }
  if (count > 0 && out[count - 1] == '\n') count--;
  out[count] = 0;
  return count;
}

static hr_status check_source(const char *about, const char *source, uint64_t bytes, hr_error *error) {
  uint64_t i = 0;
  if (bytes > HRI_TEMPLATE_MAX_BYTES) {
    hri_fail(error, HR_ERROR_INPUT, "%s: the chat template has %llu bytes, more than %d", about,
             (unsigned long long)bytes, HRI_TEMPLATE_MAX_BYTES);
    return hri_hint(error, HR_ERROR_INPUT, "check that this is a template");
  }
  while (i < bytes) {
    size_t length = hri_utf8_sequence(source + i, (size_t)(bytes - i));
    if (length == 0 || source[i] == 0) {
      hri_fail(error, HR_ERROR_INPUT, "%s: byte %llu of the chat template, 0x%02x, is not UTF-8 text", about,
               (unsigned long long)i, (unsigned char)source[i]);
      return hri_hint(error, HR_ERROR_INPUT, "save the template as UTF-8");
    }
    i += length;
  }
  return HR_OK;
}

static hr_status parse_template(hri_template *template, hr_error *error) {
  static const char *const known[HRI_KNOWN_NAMES] = {"loop", "caller", "varargs", "kwargs"};
  parser p = {.template = template, .error = error};
  hri_tokens tokens = {0};
  hr_status status;
  size_t i;
  for (i = 0; i < HRI_KNOWN_NAMES; i++)
    if (!hri_array_push(&template->names, hri_cstring(known[i]))) return no_memory(&p, sizeof(hri_value));
  status = hri_lex(template, &tokens, error);
  p.tokens = tokens.items;
  if (status == HR_OK) status = parse_body(&p, NULL, &template->body);
  if (status == HR_OK) status = hri_template_scopes(template, error);
  hri_array_free(&tokens);
  return status;
}

hr_status hri_template_parse(const char *about, const char *source, uint64_t bytes, hri_template **out,
                             hr_error *error) {
  hri_template *template;
  hr_status status;
  HRI_TRY(check_source(about, source, bytes, error));
  template = hri_alloc_zero(1, sizeof *template);
  if (!template) return hri_fail_memory(error, sizeof *template, "a chat template");
  template->pool.limit = UINT64_MAX;
  template->about = hri_strdup(about);
  template->source = hri_alloc((size_t)bytes + 1);
  if (template->about && template->source) {
    template->bytes = normalize(source, bytes, template->source);
    status = parse_template(template, error);
  } else {
    status = hri_fail_memory(error, bytes, "a chat template");
  }
  if (status == HR_OK) *out = template;
  else hri_template_free(template);
  return status;
}

void hri_template_free(hri_template *template) {
  if (!template) return;
  hri_free(template->about);
  hri_free(template->source);
  hri_array_free(&template->names);
  hri_pool_deinit(&template->pool);
  hri_free(template);
}
