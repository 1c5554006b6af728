/* Expressions. */
#include <math.h>
#include <string.h>

#include "chat/run.h"

/* ---- Variables ---- */

hr_status hri_scope_new(hri_run *run, hri_scope *parent, hri_scope **out) {
  void *memory;
  HRI_TRY(hri_take(run, sizeof **out, &memory));
  *out = memory;
  **out = (hri_scope){.parent = parent};
  return HR_OK;
}

hr_status hri_scope_again(hri_run *run, hri_scope *parent, hri_scope **scope) {
  if (!*scope || (*scope)->kept) return hri_scope_new(run, parent, scope);
  (*scope)->count = 0;
  return HR_OK;
}

void hri_scope_keep(hri_scope *scope) {
  for (; scope && !scope->kept; scope = scope->parent) scope->kept = true;
}

hr_status hri_scope_set(hri_run *run, hri_scope *scope, uint32_t name, hri_value value) {
  uint32_t i;
  void *memory;
  HRI_TRY(hri_run_steps(run, scope->count / 16));
  for (i = 0; i < scope->count; i++)
    if (scope->variables[i].name == name) {
      scope->variables[i].value = value;
      return HR_OK;
    }
  if (scope->count == scope->capacity) {
    uint32_t capacity = scope->capacity ? scope->capacity * 2 : 4;
    HRI_TRY(hri_take(run, capacity * sizeof *scope->variables, &memory));
    if (scope->count > 0) memcpy(memory, scope->variables, scope->count * sizeof *scope->variables);
    scope->variables = memory;
    scope->capacity = capacity;
  }
  scope->variables[scope->count].name = name;
  scope->variables[scope->count++].value = value;
  return HR_OK;
}

hri_value hri_undefined_name(hri_value name) {
  return (hri_value){.kind = HRI_UNDEFINED, .flag = HRI_LACK_NAME, .count = name.count, .as.chars = name.as.chars};
}

static hr_status find_name(hri_run *run, uint32_t name, hri_scope *scope, hri_value *out) {
  hri_value text = run->template->names.items[name];
  hri_value *found;
  uint32_t i;
  for (; scope; scope = scope->parent) {
    HRI_TRY(hri_run_steps(run, scope->count / 16));
    for (i = 0; i < scope->count; i++)
      if (scope->variables[i].name == name) {
        *out = scope->variables[i].value;
        return hri_run_steps(run, 1);
      }
  }
  HRI_TRY(hri_dict_look(run, run->variables, text, &found));
  if (found) *out = *found;
  else if (hri_value_is(text, "lipsum") || hri_value_is(text, "self"))
    return hri_run_unsupported(run, "'%.*s'", (int)text.count, text.as.chars);
  else if (!hri_global_find(text.as.chars, text.count, out)) *out = hri_undefined_name(text);
  return HR_OK;
}

hr_status hri_fail_undefined(hri_run *run, hri_value value) {
  int count = (int)(value.count < 200 ? value.count : 200);
  hri_value object = {.kind = value.object};
  switch ((hri_lack)value.flag) {
  case HRI_LACK_NAME: return hri_run_fail(run, "'%.*s' is undefined", count, value.as.chars);
  case HRI_LACK_ATTRIBUTE:
    return hri_run_fail(run, "'%s object' has no attribute '%.*s'", hri_type_name(object), count, value.as.chars);
  case HRI_LACK_ELEMENT:
    return hri_run_fail(run, "'%s object' has no element %.*s", hri_type_name(object), count, value.as.chars);
  case HRI_LACK_UNSAFE:
    return hri_run_fail(run, "access to attribute '%.*s' of '%s' object is unsafe", count, value.as.chars,
                        hri_type_name(object));
  case HRI_LACK_TEXT: break;
  }
  return hri_run_fail(run, "%.*s", count, value.as.chars);
}

/* ---- Attributes and elements ---- */

static hri_value lacking(hri_value object, hri_lack lack, const char *name, size_t bytes) {
  return (hri_value){.kind = HRI_UNDEFINED,
                     .flag = (uint8_t)lack,
                     .object = object.kind,
                     .count = (uint32_t)bytes,
                     .as.chars = name};
}

/* The attribute comes first, then the element: for a dict, `d.items` is the method whatever its keys. */
hr_status hri_attribute(hri_run *run, hri_value object, const char *name, size_t bytes, hri_value *out) {
  hri_value *found = NULL;
  bool has = false;
  if (object.kind == HRI_UNDEFINED) return hri_fail_undefined(run, object);
  HRI_TRY(hri_method_find(run, object, name, bytes, &has, out));
  if (has) return HR_OK;
  if (object.kind == HRI_DICT) HRI_TRY(hri_dict_look(run, object.as.dict, hri_chars(name, bytes), &found));
  *out = found ? *found : lacking(object, HRI_LACK_ATTRIBUTE, name, bytes);
  return HR_OK;
}

static hr_status lacking_element(hri_run *run, hri_value object, hri_value key, hri_value *out) {
  hri_text text = {0};
  hr_status status = hri_iterable(key) || key.kind > HRI_STRING ? HR_OK : hri_add_repr(run, &text, key);
  if (status != HR_OK || text.length == 0) {
    hri_text_deinit(&text);
    *out = lacking(object, HRI_LACK_ELEMENT, "", 0);
    return status;
  }
  HRI_TRY(hri_text_take(run, &text, out));
  *out = lacking(object, HRI_LACK_ELEMENT, out->as.chars, out->count);
  return HR_OK;
}

/* The element comes first, then, for a text as key, the attribute. */
hr_status hri_element(hri_run *run, hri_value object, hri_value key, hri_value *out) {
  hri_value *found = NULL;
  bool has = false;
  int64_t index;
  if (object.kind == HRI_UNDEFINED) return hri_fail_undefined(run, object);
  if (object.kind == HRI_DICT && hri_hashable(key)) HRI_TRY(hri_dict_look(run, object.as.dict, key, &found));
  if (found) {
    *out = *found;
    return HR_OK;
  }
  if (hri_as_integer(key, &index)) HRI_TRY(hri_index(run, object, index, &has, out));
  if (!has && key.kind == HRI_STRING) {
    HRI_TRY(hri_method_find(run, object, key.as.chars, key.count, &has, out));
    if (!has) *out = lacking(object, HRI_LACK_ATTRIBUTE, key.as.chars, key.count);
    return HR_OK;
  }
  return has ? HR_OK : lacking_element(run, object, key, out);
}

static hr_status eval_optional(hri_run *run, const hri_ast_node *node, hri_scope *scope, hri_value *out) {
  *out = (hri_value){0};
  return node ? hri_eval(run, node, scope, out) : HR_OK;
}

static hr_status eval_element(hri_run *run, const hri_ast_node *node, hri_scope *scope, hri_value *out) {
  hri_value object, key, parts[3];
  HRI_TRY(hri_eval(run, node->a, scope, &object));
  if (node->b->kind == HRI_NODE_SLICE) {
    HRI_TRY(eval_optional(run, node->b->a, scope, &parts[0]));
    HRI_TRY(eval_optional(run, node->b->b, scope, &parts[1]));
    HRI_TRY(eval_optional(run, node->b->c, scope, &parts[2]));
    run->at = node->at;
    return hri_slice(run, object, parts[0], parts[1], parts[2], out);
  }
  HRI_TRY(hri_eval(run, node->b, scope, &key));
  run->at = node->at;
  return hri_element(run, object, key, out);
}

/* ---- Calls ---- */

/* **mapping behind the named arguments. */
static hr_status add_star2(hri_run *run, hri_value mapping, hri_named *named, uint32_t *count) {
  uint32_t i, j, before = *count; /* keys of the mapping differ among themselves */
  HRI_TRY(hri_run_steps(run, (uint64_t)mapping.as.dict->count * (1 + before / 8)));
  for (i = 0; i < mapping.as.dict->count; i++) {
    const hri_pair *pair = &mapping.as.dict->pairs[i];
    if (pair->key.kind != HRI_STRING) return hri_run_fail(run, "keywords must be strings");
    for (j = 0; j < before; j++)
      if (hri_equal(named[j].name, pair->key))
        return hri_run_fail(run, "got multiple values for keyword argument '%.*s'", (int)pair->key.count,
                            pair->key.as.chars);
    named[(*count)++] = (hri_named){pair->key, pair->value};
  }
  return HR_OK;
}

/* The arguments of a call, with room for one more named one (the caller of a call block). */
static hr_status eval_arguments(hri_run *run, const hri_call_node *call, hri_scope *scope, hri_arguments *out) {
  hri_value star = {0}, star2 = {0}, *more = NULL, *at;
  hri_named *named;
  uint32_t i, more_count = 0, named_count = call->named.count;
  void *memory;
  HRI_TRY(eval_optional(run, call->star, scope, &star));
  HRI_TRY(eval_optional(run, call->star2, scope, &star2));
  if (star.kind != HRI_ABSENT) HRI_TRY(hri_iterate(run, star, &more, &more_count));
  if (star2.kind != HRI_ABSENT && star2.kind != HRI_DICT)
    return hri_run_fail(run, "argument after ** must be a mapping, not %s", hri_type_name(star2));
  HRI_TRY(hri_take(run, ((uint64_t)call->positional.count + more_count) * sizeof *at, &memory));
  at = memory;
  HRI_TRY(hri_take(run,
                   ((uint64_t)named_count + 1 + (star2.kind == HRI_DICT ? star2.as.dict->count : 0)) * sizeof *named,
                   &memory));
  named = memory;
  for (i = 0; i < call->positional.count; i++) HRI_TRY(hri_eval(run, call->positional.at[i], scope, &at[i]));
  if (more_count > 0) memcpy(at + i, more, more_count * sizeof *at);
  for (i = 0; i < named_count; i++) {
    named[i].name = call->names[i];
    HRI_TRY(hri_eval(run, call->named.at[i], scope, &named[i].value));
  }
  if (star2.kind == HRI_DICT) HRI_TRY(add_star2(run, star2, named, &named_count));
  *out = (hri_arguments){at, named, call->positional.count + more_count, named_count};
  return HR_OK;
}

static hr_status call_value(hri_run *run, hri_value callee, const hri_arguments *arguments, hri_value *out) {
  const hri_method *method;
  const hri_builtin *builtin;
  hri_joiner *joiner;
  switch ((hri_kind)callee.kind) {
  case HRI_MACRO: return hri_macro_call(run, callee.as.other, arguments, out);
  case HRI_LOOP: return hri_loop_call(run, callee.as.other, arguments, out);
  case HRI_METHOD:
    method = callee.as.other;
    return hri_builtin_call(run, method->builtin->name, method->builtin, method->self, arguments, out);
  case HRI_FUNCTION:
    builtin = callee.as.other;
    return hri_builtin_call(run, builtin->name, builtin, hri_none(), arguments, out);
  case HRI_JOINER:
    joiner = callee.as.other;
    *out = joiner->used ? joiner->separator : hri_chars("", 0);
    joiner->used = true;
    return HR_OK;
  case HRI_UNDEFINED: return hri_fail_undefined(run, callee);
  default: return hri_run_fail(run, "'%s' object is not callable", hri_type_name(callee));
  }
}

/* A call; in a call block with `caller`, which becomes one more argument. */
hr_status hri_eval_call(hri_run *run, const hri_ast_node *node, hri_scope *scope, const hri_value *caller,
                        hri_value *out) {
  hri_value callee;
  hri_arguments arguments;
  HRI_TRY(hri_eval(run, node->a, scope, &callee));
  HRI_TRY(eval_arguments(run, node->call, scope, &arguments));
  if (caller)
    ((hri_named *)(uintptr_t)arguments.named)[arguments.named_count++] = (hri_named){hri_cstring("caller"), *caller};
  run->at = node->at;
  return call_value(run, callee, &arguments, out);
}

static hr_status eval_some_arguments(hri_run *run, const hri_ast_node *node, hri_scope *scope, hri_arguments *out) {
  *out = (hri_arguments){0};
  return node->call ? eval_arguments(run, node->call, scope, out) : HR_OK;
}

hr_status hri_eval_filter(hri_run *run, const hri_ast_node *node, hri_scope *scope, const hri_value *input,
                          hri_value *out) {
  hri_value self;
  hri_arguments arguments;
  hr_status status;
  HRI_TRY(hri_run_deeper(run));
  if (!node->a) self = *input, status = HR_OK;
  else if (node->a->kind == HRI_NODE_FILTER) status = hri_eval_filter(run, node->a, scope, input, &self);
  else status = hri_eval(run, node->a, scope, &self);
  run->depth--;
  HRI_TRY(status);
  HRI_TRY(eval_some_arguments(run, node, scope, &arguments));
  run->at = node->at;
  return hri_filter_apply(run, node->constant, self, &arguments, out);
}

static hr_status eval_test(hri_run *run, const hri_ast_node *node, hri_scope *scope, hri_value *out) {
  hri_value self;
  hri_arguments arguments;
  bool result;
  HRI_TRY(hri_eval(run, node->a, scope, &self));
  HRI_TRY(eval_some_arguments(run, node, scope, &arguments));
  run->at = node->at;
  HRI_TRY(hri_test_apply(run, node->constant, self, &arguments, &result));
  *out = hri_bool(result);
  return HR_OK;
}

/* ---- Displays and operators ---- */

static hr_status eval_items(hri_run *run, const hri_ast_node *node, hri_scope *scope, hri_value *out) {
  hri_value items;
  uint32_t i;
  HRI_TRY(hri_items_new(run, node->kind == HRI_NODE_LIST ? HRI_LIST : HRI_TUPLE, node->items.count, &items));
  for (i = 0; i < node->items.count; i++) HRI_TRY(hri_eval(run, node->items.at[i], scope, &items.as.items->at[i]));
  *out = items;
  return HR_OK;
}

static hr_status eval_dict(hri_run *run, const hri_ast_node *node, hri_scope *scope, hri_value *out) {
  hri_dict *dict;
  hri_value key, value;
  uint32_t i;
  HRI_TRY(hri_dict_new(run, node->items.count / 2, &dict));
  for (i = 0; i < node->items.count; i += 2) {
    HRI_TRY(hri_eval(run, node->items.at[i], scope, &key));
    HRI_TRY(hri_eval(run, node->items.at[i + 1], scope, &value));
    run->at = node->items.at[i]->at;
    if (!hri_hashable(key)) return hri_run_fail(run, "unhashable type: '%s'", hri_type_name(key));
    HRI_TRY(hri_dict_put(run, dict, key, value));
  }
  *out = (hri_value){.kind = HRI_DICT, .as.dict = dict};
  return HR_OK;
}

/* str() of each, joined; nothing is escaped. */
static hr_status eval_concat(hri_run *run, const hri_ast_node *node, hri_scope *scope, hri_value *out) {
  hri_value item;
  uint32_t i;
  HRI_TRY(hri_eval(run, node->items.at[0], scope, out));
  HRI_TRY(hri_str(run, *out, out));
  out->flag = 0;
  for (i = 1; i < node->items.count; i++) {
    HRI_TRY(hri_eval(run, node->items.at[i], scope, &item));
    run->at = node->items.at[i]->at;
    HRI_TRY(hri_str(run, item, &item));
    HRI_TRY(hri_concat(run, *out, item, out));
  }
  return HR_OK;
}

hr_status hri_compare(hri_run *run, hri_operator operator, hri_value left, hri_value right, bool *out) {
  static const char *const signs[] = {"<", "<=", ">", ">="};
  int order;
  if (operator == HRI_EQUAL || operator == HRI_UNEQUAL) {
    HRI_TRY(hri_equals(run, left, right, out));
    if (operator == HRI_UNEQUAL) *out = !*out;
    return HR_OK;
  }
  if (operator == HRI_IN || operator == HRI_NOT_IN) {
    HRI_TRY(hri_contains(run, right, left, out));
    if (operator == HRI_NOT_IN) *out = !*out;
    return HR_OK;
  }
  HRI_TRY(hri_order(run, left, right, signs[operator - HRI_LESS], &order));
  *out = order != 2 && (operator == HRI_LESS         ? order < 0
                        : operator == HRI_LESS_EQUAL ? order <= 0
                        : operator == HRI_GREATER    ? order > 0
                                                     : order >= 0);
  return HR_OK;
}

/* a < b < c is a < b and b < c. */
static hr_status eval_compare(hri_run *run, const hri_ast_node *node, hri_scope *scope, hri_value *out) {
  hri_value left, right;
  bool result = true;
  uint32_t i;
  HRI_TRY(hri_eval(run, node->a, scope, &left));
  for (i = 0; i < node->items.count && result; i++) {
    const hri_ast_node *step = node->items.at[i];
    HRI_TRY(hri_eval(run, step->a, scope, &right));
    run->at = step->at;
    HRI_TRY(hri_compare(run, (hri_operator)step->operator, left, right, &result));
    left = right;
  }
  *out = hri_bool(result);
  return HR_OK;
}

static hr_status negate(hri_run *run, hri_value value, hri_value *out) {
  int64_t integer;
  if (!hri_as_integer(value, &integer)) return *out = hri_float(-value.as.real), HR_OK;
  if (integer == INT64_MIN) return hri_run_unsupported(run, "an integer beyond 64 bits");
  return *out = hri_int(-integer), HR_OK;
}

static hr_status eval_sign(hri_run *run, const hri_ast_node *node, hri_scope *scope, hri_value *out) {
  hri_value value;
  int64_t integer;
  HRI_TRY(hri_eval(run, node->a, scope, &value));
  run->at = node->at;
  if (value.kind == HRI_UNDEFINED) return hri_fail_undefined(run, value);
  if (hri_as_integer(value, &integer)) value = hri_int(integer);
  else if (value.kind != HRI_FLOAT)
    return hri_run_fail(run, "bad operand type for unary %c: '%s'", node->kind == HRI_NODE_NEGATE ? '-' : '+',
                        hri_type_name(value));
  if (node->kind == HRI_NODE_NEGATE) return negate(run, value, out);
  *out = value;
  return HR_OK;
}

/* A number that Jinja works out before it writes Python. */
static bool is_constant(const hri_ast_node *node) {
  if (node->kind == HRI_NODE_NEGATE || node->kind == HRI_NODE_POSITIVE) return is_constant(node->a);
  if (node->kind == HRI_NODE_BINARY) return is_constant(node->a) && is_constant(node->b);
  return node->kind == HRI_NODE_CONSTANT;
}

static bool is_negative(hri_value value) {
  return value.kind == HRI_FLOAT ? signbit(value.as.real) : value.kind == HRI_INT && value.as.integer < 0;
}

/* A negative constant to the power of something else: Jinja writes -1 ** x, which in Python is -(1 ** x). */
static hr_status eval_binary(hri_run *run, const hri_ast_node *node, hri_scope *scope, hri_value *out) {
  hri_value left, right;
  bool turned;
  HRI_TRY(hri_eval(run, node->a, scope, &left));
  HRI_TRY(hri_eval(run, node->b, scope, &right));
  run->at = node->at;
  turned = node->operator == HRI_POWER && is_negative(left) && is_constant(node->a) && !is_constant(node->b);
  if (turned) HRI_TRY(negate(run, left, &left));
  HRI_TRY(hri_binary(run, (hri_operator)node->operator, left, right, out));
  return turned ? negate(run, *out, out) : HR_OK;
}

/* The value that decides, as in Python. */
static hr_status eval_logic(hri_run *run, const hri_ast_node *node, hri_scope *scope, hri_value *out) {
  HRI_TRY(hri_eval(run, node->a, scope, out));
  return hri_truth(*out) == (node->kind == HRI_NODE_AND) ? hri_eval(run, node->b, scope, out) : HR_OK;
}

static hr_status eval_condition(hri_run *run, const hri_ast_node *node, hri_scope *scope, hri_value *out) {
  static const char message[] = "the inline if-expression evaluated to false and no else section was defined";
  hri_value test;
  HRI_TRY(hri_eval(run, node->b, scope, &test));
  if (hri_truth(test)) return hri_eval(run, node->a, scope, out);
  if (node->c) return hri_eval(run, node->c, scope, out);
  *out = lacking(hri_none(), HRI_LACK_TEXT, message, sizeof message - 1);
  return HR_OK;
}

static hr_status eval_attribute(hri_run *run, const hri_ast_node *node, hri_scope *scope, hri_value *out) {
  hri_value object;
  HRI_TRY(hri_eval(run, node->a, scope, &object));
  run->at = node->at;
  return hri_attribute(run, object, node->constant.as.chars, node->constant.count, out);
}

static hr_status eval_inside(hri_run *run, const hri_ast_node *node, hri_scope *scope, hri_value *out) {
  hri_value value;
  switch ((hri_node_kind)node->kind) {
  case HRI_NODE_CONSTANT: *out = node->constant; return HR_OK;
  case HRI_NODE_NAME: return find_name(run, node->name, scope, out);
  case HRI_NODE_LIST:
  case HRI_NODE_TUPLE: return eval_items(run, node, scope, out);
  case HRI_NODE_DICT: return eval_dict(run, node, scope, out);
  case HRI_NODE_ATTRIBUTE: return eval_attribute(run, node, scope, out);
  case HRI_NODE_ELEMENT: return eval_element(run, node, scope, out);
  case HRI_NODE_CALL: return hri_eval_call(run, node, scope, NULL, out);
  case HRI_NODE_FILTER: return hri_eval_filter(run, node, scope, NULL, out);
  case HRI_NODE_TEST: return eval_test(run, node, scope, out);
  case HRI_NODE_NOT:
    HRI_TRY(hri_eval(run, node->a, scope, &value));
    *out = hri_bool(!hri_truth(value));
    return HR_OK;
  case HRI_NODE_AND:
  case HRI_NODE_OR: return eval_logic(run, node, scope, out);
  case HRI_NODE_NEGATE:
  case HRI_NODE_POSITIVE: return eval_sign(run, node, scope, out);
  case HRI_NODE_BINARY: return eval_binary(run, node, scope, out);
  case HRI_NODE_CONCAT: return eval_concat(run, node, scope, out);
  case HRI_NODE_COMPARE: return eval_compare(run, node, scope, out);
  case HRI_NODE_CONDITION: return eval_condition(run, node, scope, out);
  default: return hri_run_fail(run, "this is no expression");
  }
}

hr_status hri_eval(hri_run *run, const hri_ast_node *node, hri_scope *scope, hri_value *out) {
  hr_status status;
  run->at = node->at;
  HRI_TRY(hri_run_steps(run, 1));
  HRI_TRY(hri_run_deeper(run));
  status = eval_inside(run, node, scope, out);
  run->depth--;
  return status;
}
