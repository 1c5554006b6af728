/* Statements, macros and loops; and a rendering from its beginning to its end.
 *
 * Scopes are made as Jinja makes them: a loop has one for each round, a macro one for each call, the bodies of set,
 * filter, call and generation blocks and `with` have their own; `if` has none. What is set inside stays inside. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "chat/run.h"
#include "chat/unicode.h"

/* ---- Limits and errors ---- */

hr_status hri_run_fail(hri_run *run, const char *format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  (void)hri_vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return hri_template_fail(run->template, run->at, run->error, "%s", text);
}

hr_status hri_run_unsupported(hri_run *run, const char *format, ...) {
  char text[256];
  va_list args;
  va_start(args, format);
  (void)hri_vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return hri_template_fail(run->template, run->at, run->error, "%s is not supported", text);
}

hr_status hri_run_limit(hri_run *run, const char *what) {
  hr_status status = hri_run_fail(run, "the limit on %s is met (%d steps, %d bytes, %d nested evaluations)", what,
                                  HRI_LIMIT_STEPS, HRI_LIMIT_MEMORY, HRI_LIMIT_DEPTH);
  return hri_hint(run->error, status, "check the template for endless recursion, or shorten the conversation");
}

hr_status hri_run_steps(hri_run *run, uint64_t steps) {
  run->steps += steps;
  return run->steps > HRI_LIMIT_STEPS ? hri_run_limit(run, "steps") : HR_OK;
}

hr_status hri_run_deeper(hri_run *run) {
  if (run->depth >= HRI_LIMIT_DEPTH) return hri_run_limit(run, "depth");
  run->depth++;
  return HR_OK;
}

hr_status hri_run_text(hri_run *run, const hri_text *text) {
  if (text->failed) return hri_fail_memory(run->error, text->length, "the text of a chat");
  return text->length + run->collected > HRI_LIMIT_MEMORY ? hri_run_limit(run, "memory") : HR_OK;
}

/* ---- Output ---- */

static hr_status put(hri_run *run, hri_value value) { return hri_add_str(run, run->out, value); }

static hr_status exec_all(hri_run *run, const hri_nodes *body, hri_scope *scope);

/* Output apart: what the body of a macro makes. */
static hr_status collect(hri_run *run, const hri_nodes *body, hri_scope *scope, hri_value *out) {
  hri_text text = {0}, *outer = run->out;
  uint64_t collected = run->collected;
  hr_status status;
  run->collected += outer->length;
  run->out = &text;
  status = exec_all(run, body, scope);
  run->out = outer;
  run->collected = collected;
  if (status == HR_OK) return hri_text_take(run, &text, out);
  hri_text_deinit(&text);
  return status;
}

/* ---- Targets ---- */

static hr_status assign(hri_run *run, const hri_ast_node *target, hri_value value, hri_scope *scope);

static hr_status assign_tuple(hri_run *run, const hri_ast_node *target, hri_value value, hri_scope *scope) {
  hri_value *at;
  uint32_t count, i;
  if (!hri_iterable(value)) return hri_run_fail(run, "cannot unpack non-iterable %s object", hri_type_name(value));
  HRI_TRY(hri_iterate(run, value, &at, &count));
  if (count != target->items.count)
    return hri_run_fail(run, "%s values to unpack (expected %u, got %u)",
                        count < target->items.count ? "not enough" : "too many", target->items.count, count);
  for (i = 0; i < count; i++) HRI_TRY(assign(run, target->items.at[i], at[i], scope));
  return HR_OK;
}

static hr_status assign_member(hri_run *run, const hri_ast_node *target, hri_value value, hri_scope *scope) {
  hri_ast_node name = {.kind = HRI_NODE_NAME, .name = target->name, .at = target->at};
  hri_value object;
  HRI_TRY(hri_eval(run, &name, scope, &object));
  if (object.kind == HRI_UNDEFINED) return hri_fail_undefined(run, object);
  if (object.kind != HRI_NAMESPACE) return hri_run_fail(run, "cannot assign attribute on non-namespace object");
  if (target->constant.as.chars[0] == '_')
    return hri_run_fail(run, "a namespace cannot hold the name '%.*s', which begins with '_'",
                        (int)target->constant.count, target->constant.as.chars);
  return hri_dict_put(run, object.as.dict, target->constant, value);
}

static hr_status assign(hri_run *run, const hri_ast_node *target, hri_value value, hri_scope *scope) {
  hr_status status;
  run->at = target->at;
  if (target->kind == HRI_NODE_NAME) return hri_scope_set(run, scope, target->name, value);
  if (target->kind == HRI_NODE_TARGET_MEMBER) return assign_member(run, target, value, scope);
  HRI_TRY(hri_run_deeper(run));
  status = assign_tuple(run, target, value, scope);
  run->depth--;
  return status;
}

/* What a scope knows from its beginning on, without a value. */
static hr_status unset(hri_run *run, const hri_names *names, hri_scope *scope) {
  for (uint32_t i = 0; i < names->count; i++)
    HRI_TRY(hri_scope_set(run, scope, names->at[i], hri_undefined_name(run->template->names.items[names->at[i]])));
  return HR_OK;
}

/* ---- Loops ---- */

/* An element is tried against the `if` of the loop when its turn has come, in a scope of its own: the rounds before it
 * may have changed what the condition sees. Asking for loop.last or loop.length looks ahead. */
hr_status hri_loop_fill(hri_run *run, hri_loop *loop, uint32_t wanted) {
  const hri_ast_node *node = loop->node;
  hri_value test;
  while (loop->count < wanted && loop->source_next < loop->source_count) {
    hri_value item = loop->source[loop->source_next++];
    if (node->c) {
      HRI_TRY(hri_scope_again(run, loop->scope, &loop->trial));
      HRI_TRY(assign(run, node->a, item, loop->trial));
      HRI_TRY(hri_eval(run, node->c, loop->trial, &test));
      if (!hri_truth(test)) continue;
    }
    loop->at[loop->count++] = item;
  }
  return HR_OK;
}

static hr_status loop_new(hri_run *run, const hri_ast_node *node, hri_scope *scope, hri_value iterable, uint32_t depth0,
                          hri_loop **out) {
  hri_value kept;
  void *memory;
  HRI_TRY(hri_take(run, sizeof **out, &memory));
  *out = memory;
  **out = (hri_loop){.node = node, .scope = scope, .depth0 = depth0};
  if (node->c || node->flag) hri_scope_keep(scope);
  run->at = node->b->at;
  HRI_TRY(hri_iterate(run, iterable, &(*out)->source, &(*out)->source_count));
  (*out)->at = (*out)->source;
  if (!node->c) {
    (*out)->count = (*out)->source_next = (*out)->source_count;
    return HR_OK;
  }
  HRI_TRY(hri_items_new(run, HRI_LIST, (*out)->source_count, &kept));
  (*out)->at = kept.as.items->at;
  return HR_OK;
}

/* `else` runs when no round came to its end: after an empty loop, but also when all were left by break or continue, as
 * in
 * Jinja. */
static hr_status run_loop(hri_run *run, const hri_ast_node *node, hri_scope *scope, hri_value iterable,
                          uint32_t depth0) {
  hri_loop *loop;
  hri_scope *inner = NULL;
  bool completed = false, left = false;
  HRI_TRY(loop_new(run, node, scope, iterable, depth0, &loop));
  for (; !left; loop->index++) {
    HRI_TRY(hri_loop_fill(run, loop, loop->index + 1));
    if (loop->index >= loop->count) break;
    HRI_TRY(hri_scope_again(run, scope, &inner));
    HRI_TRY(unset(run, &node->unset, inner));
    HRI_TRY(hri_scope_set(run, inner, HRI_NAME_LOOP, (hri_value){.kind = HRI_LOOP, .as.other = loop}));
    HRI_TRY(assign(run, node->a, loop->at[loop->index], inner));
    HRI_TRY(exec_all(run, &node->body, inner));
    completed |= run->jump == HRI_JUMP_NONE;
    left = run->jump == HRI_JUMP_BREAK;
    run->jump = HRI_JUMP_NONE;
  }
  if (completed || node->other.count == 0) return HR_OK;
  HRI_TRY(hri_scope_new(run, scope, &inner));
  HRI_TRY(unset(run, &node->unset_else, inner));
  return exec_all(run, &node->other, inner);
}

/* The text of a recursive loop, which Jinja makes apart at its first level too. */
static hr_status collect_loop(hri_run *run, const hri_ast_node *node, hri_scope *scope, hri_value iterable,
                              uint32_t depth0, hri_value *out) {
  hri_text text = {0}, *outer = run->out;
  uint64_t collected = run->collected;
  hr_status status;
  run->collected += outer->length;
  run->out = &text;
  status = run_loop(run, node, scope, iterable, depth0);
  run->out = outer;
  run->collected = collected;
  if (status == HR_OK) return hri_text_take(run, &text, out);
  hri_text_deinit(&text);
  return status;
}

static hr_status exec_for(hri_run *run, const hri_ast_node *node, hri_scope *scope) {
  hri_value value;
  HRI_TRY(hri_eval(run, node->b, scope, &value));
  if (!node->flag) return run_loop(run, node, scope, value, 0);
  HRI_TRY(collect_loop(run, node, scope, value, 0, &value));
  return put(run, value);
}

/* loop(children) in a recursive loop: the text of the same loop over them. */
hr_status hri_loop_call(hri_run *run, const hri_loop *loop, const hri_arguments *arguments, hri_value *out) {
  hr_status status;
  if (!loop->node->flag) return hri_run_fail(run, "the loop must have the 'recursive' marker to be called");
  if (arguments->count != 1 || arguments->named_count != 0) return hri_run_fail(run, "loop() takes one argument");
  HRI_TRY(hri_run_deeper(run));
  status = collect_loop(run, loop->node, loop->scope, arguments->at[0], loop->depth0 + 1, out);
  run->depth--;
  return status;
}

/* ---- Macros ---- */

static hri_value *find_parameter(const hri_ast_node *node, hri_run *run, hri_value *values, hri_value name) {
  uint32_t i;
  for (i = 0; i < node->items.count; i++)
    if (hri_equal(run->template->names.items[node->items.at[i]->name], name)) return &values[i];
  return NULL;
}

/* Positional and named arguments to parameters; what is left over goes to varargs and kwargs where the body names
 * them. */
static hr_status bind_macro(hri_run *run, const hri_ast_node *node, const hri_arguments *arguments, hri_value *values,
                            hri_value *varargs, hri_dict *kwargs, hri_value *caller) {
  uint32_t parameters = node->items.count, i, extra = arguments->count > parameters ? arguments->count - parameters : 0;
  for (i = 0; i < arguments->count && i < parameters; i++) values[i] = arguments->at[i];
  for (i = 0; i < arguments->named_count; i++) {
    hri_named named = arguments->named[i];
    hri_value *slot;
    HRI_TRY(hri_run_steps(run, parameters / 8));
    slot = find_parameter(node, run, values, named.name);
    if (slot && slot->kind != HRI_ABSENT)
      return hri_run_fail(run, "got multiple values for argument '%.*s'", (int)named.name.count, named.name.as.chars);
    if (slot) *slot = named.value;
    else if (node->flag && hri_value_is(named.name, "caller")) *caller = named.value;
    else if (node->kwargs) HRI_TRY(hri_dict_put(run, kwargs, named.name, named.value));
    else
      return hri_run_fail(run, "the macro takes no keyword argument '%.*s'", (int)named.name.count,
                          named.name.as.chars);
  }
  if (extra > 0 && !node->varargs) return hri_run_fail(run, "the macro takes not more than %u argument(s)", parameters);
  HRI_TRY(hri_items_new(run, HRI_TUPLE, extra, varargs));
  if (extra > 0) memcpy(varargs->as.items->at, arguments->at + parameters, extra * sizeof *arguments->at);
  return HR_OK;
}

/* Defaults are evaluated at the call and may refer to the parameters before them. */
static hr_status set_parameters(hri_run *run, const hri_ast_node *node, hri_value *values, hri_scope *scope) {
  uint32_t i, first = node->items.count - node->other.count;
  for (i = 0; i < node->items.count; i++) {
    uint32_t name = node->items.at[i]->name;
    if (values[i].kind == HRI_ABSENT && i >= first)
      HRI_TRY(hri_eval(run, node->other.at[i - first], scope, &values[i]));
    if (values[i].kind == HRI_ABSENT) values[i] = hri_undefined_name(run->template->names.items[name]);
    HRI_TRY(hri_scope_set(run, scope, name, values[i]));
  }
  return HR_OK;
}

hr_status hri_macro_call(hri_run *run, const hri_macro *macro, const hri_arguments *arguments, hri_value *out) {
  static const char no_caller[] = "no caller defined";
  const hri_ast_node *node = macro->node;
  hri_scope *scope;
  hri_value varargs, *values,
      caller = {.kind = HRI_UNDEFINED, .flag = HRI_LACK_TEXT, .count = sizeof no_caller - 1, .as.chars = no_caller};
  hri_dict *kwargs;
  void *memory;
  hr_status status;
  HRI_TRY(hri_take(run, node->items.count * sizeof *values, &memory));
  values = memory;
  if (node->items.count > 0) memset(values, 0, node->items.count * sizeof *values);
  HRI_TRY(hri_dict_new(run, 0, &kwargs));
  HRI_TRY(bind_macro(run, node, arguments, values, &varargs, kwargs, &caller));
  HRI_TRY(hri_scope_new(run, macro->scope, &scope));
  HRI_TRY(unset(run, &node->unset, scope));
  if (node->flag) HRI_TRY(hri_scope_set(run, scope, HRI_NAME_CALLER, caller));
  if (node->varargs) HRI_TRY(hri_scope_set(run, scope, HRI_NAME_VARARGS, varargs));
  if (node->kwargs)
    HRI_TRY(hri_scope_set(run, scope, HRI_NAME_KWARGS, (hri_value){.kind = HRI_DICT, .as.dict = kwargs}));
  HRI_TRY(hri_run_deeper(run));
  status = set_parameters(run, node, values, scope);
  if (status == HR_OK) status = collect(run, &node->body, scope, out);
  run->depth--;
  return status;
}

static hr_status make_macro(hri_run *run, const hri_ast_node *node, hri_scope *scope, hri_value *out) {
  hri_macro *macro;
  void *memory;
  HRI_TRY(hri_take(run, sizeof *macro, &memory));
  macro = memory;
  *macro = (hri_macro){node, scope};
  hri_scope_keep(scope);
  *out = (hri_value){.kind = HRI_MACRO, .as.other = macro};
  return HR_OK;
}

static hr_status exec_macro(hri_run *run, const hri_ast_node *node, hri_scope *scope) {
  hri_value macro;
  HRI_TRY(make_macro(run, node, scope, &macro));
  return hri_scope_set(run, scope, node->name, macro);
}

static hr_status exec_call_block(hri_run *run, const hri_ast_node *node, hri_scope *scope) {
  hri_value caller, result;
  HRI_TRY(make_macro(run, node, scope, &caller));
  HRI_TRY(hri_eval_call(run, node->a, scope, &caller, &result));
  return put(run, result);
}

/* The text of the block, marked as made by the model. As in transformers, the place is counted on the text that has
 * left all macros and collecting blocks: inside of one, that is where the outermost stands. */
static hr_status exec_generation(hri_run *run, const hri_ast_node *node, hri_scope *scope) {
  const hri_arguments none = {0};
  hri_macro macro = {node, scope};
  hri_value result;
  hr_span span;
  HRI_TRY(hri_macro_call(run, &macro, &none, &result));
  HRI_TRY(hri_run_steps(run, result.count / 64));
  span.begin = run->root.length;
  span.end = hri_count_codes(result.as.chars, result.count); /* code points, until the text is whole */
  if (!hri_array_push(&run->generated, span)) return hri_fail_memory(run->error, sizeof span, "generation spans");
  return put(run, result);
}

/* ---- Other statements ---- */

static hr_status exec_collected(hri_run *run, const hri_ast_node *node, const hri_ast_node *filter, hri_scope *scope,
                                hri_value *out) {
  hri_scope *inner;
  HRI_TRY(hri_scope_new(run, scope, &inner));
  HRI_TRY(unset(run, &node->unset, inner));
  HRI_TRY(collect(run, &node->body, inner, out));
  if (run->jump != HRI_JUMP_NONE || !filter) return HR_OK;
  return hri_eval_filter(run, filter, scope, out, out);
}

static hr_status exec_set(hri_run *run, const hri_ast_node *node, hri_scope *scope) {
  hri_value value;
  if (node->kind == HRI_NODE_SET) HRI_TRY(hri_eval(run, node->b, scope, &value));
  else HRI_TRY(exec_collected(run, node, node->b, scope, &value));
  return run->jump == HRI_JUMP_NONE ? assign(run, node->a, value, scope) : HR_OK;
}

static hr_status exec_filter_block(hri_run *run, const hri_ast_node *node, hri_scope *scope) {
  hri_value value;
  HRI_TRY(exec_collected(run, node, node->a, scope, &value));
  return run->jump == HRI_JUMP_NONE ? put(run, value) : HR_OK;
}

static hr_status exec_with(hri_run *run, const hri_ast_node *node, hri_scope *scope) {
  hri_scope *inner;
  hri_value value;
  uint32_t i;
  HRI_TRY(hri_scope_new(run, scope, &inner));
  HRI_TRY(unset(run, &node->unset, inner));
  for (i = 0; i < node->items.count; i += 2) {
    HRI_TRY(hri_eval(run, node->items.at[i + 1], scope, &value));
    HRI_TRY(assign(run, node->items.at[i], value, inner));
  }
  return exec_all(run, &node->body, inner);
}

static hr_status exec_print(hri_run *run, const hri_ast_node *node, hri_scope *scope) {
  hri_value value;
  uint32_t i;
  if (node->a) {
    HRI_TRY(hri_eval(run, node->a, scope, &value));
    run->at = node->at;
    return put(run, value);
  }
  for (i = 0; i < node->items.count; i++) {
    HRI_TRY(hri_eval(run, node->items.at[i], scope, &value));
    HRI_TRY(put(run, value));
  }
  return HR_OK;
}

/* The `if` that stands alone in another's other branch, as `elif` does, is the next link of a chain: a chain of any length
 * is no nesting. */
static hr_status exec_if(hri_run *run, const hri_ast_node *node, hri_scope *scope) {
  hri_value test;
  for (;; node = node->other.at[0]) {
    HRI_TRY(hri_eval(run, node->a, scope, &test));
    if (hri_truth(test)) return exec_all(run, &node->body, scope);
    if (node->other.count != 1 || node->other.at[0]->kind != HRI_NODE_IF) return exec_all(run, &node->other, scope);
    HRI_TRY(hri_run_steps(run, 1));
  }
}

static hr_status exec_node(hri_run *run, const hri_ast_node *node, hri_scope *scope) {
  switch ((hri_node_kind)node->kind) {
  case HRI_NODE_DATA: return put(run, node->constant);
  case HRI_NODE_PRINT: return exec_print(run, node, scope);
  case HRI_NODE_IF: return exec_if(run, node, scope);
  case HRI_NODE_FOR: return exec_for(run, node, scope);
  case HRI_NODE_SET:
  case HRI_NODE_SET_BLOCK: return exec_set(run, node, scope);
  case HRI_NODE_MACRO: return exec_macro(run, node, scope);
  case HRI_NODE_CALL_BLOCK: return exec_call_block(run, node, scope);
  case HRI_NODE_FILTER_BLOCK: return exec_filter_block(run, node, scope);
  case HRI_NODE_WITH: return exec_with(run, node, scope);
  case HRI_NODE_GENERATION: return exec_generation(run, node, scope);
  case HRI_NODE_BREAK: run->jump = HRI_JUMP_BREAK; return HR_OK;
  case HRI_NODE_CONTINUE: run->jump = HRI_JUMP_CONTINUE; return HR_OK;
  default: return hri_run_fail(run, "this is no statement");
  }
}

static hr_status exec_all(hri_run *run, const hri_nodes *body, hri_scope *scope) {
  hr_status status = HR_OK;
  uint32_t i;
  HRI_TRY(hri_run_deeper(run));
  for (i = 0; i < body->count && status == HR_OK && run->jump == HRI_JUMP_NONE; i++) {
    run->at = body->at[i]->at;
    status = hri_run_steps(run, 1);
    if (status == HR_OK) status = exec_node(run, body->at[i], scope);
  }
  run->depth--;
  return status;
}

/* ---- Renderings ---- */

static hr_status finish(hri_run *run, hr_rendered *out) {
  hr_rendered made = {.bytes = run->root.length,
                      .generated_count = run->generated.count,
                      .has_generation = run->template->has_generation};
  size_t i;
  if (!run->root.chars) hri_text_add_bytes(&run->root, "", 0);
  HRI_TRY(hri_run_text(run, &run->root));
  for (i = 0; i < run->generated.count; i++) {
    hr_span *span = &run->generated.items[i];
    span->end = span->begin + hri_code_offset(run->root.chars + span->begin, run->root.length - span->begin, span->end);
  }
  made.text = run->root.chars;
  made.generated = run->generated.items;
  memset(&run->root, 0, sizeof run->root);
  memset(&run->generated, 0, sizeof run->generated);
  *out = made;
  return HR_OK;
}

hr_status hri_template_render(const hri_template *template, const hri_dict *variables, hr_rendered *out,
                              hr_error *error) {
  hri_run run = {.template = template, .variables = variables, .pool = {.limit = HRI_LIMIT_MEMORY}, .error = error};
  hri_scope *scope;
  hr_status status;
  run.out = &run.root;
  status = hri_scope_new(&run, NULL, &scope);
  if (status == HR_OK) status = unset(&run, &template->unset, scope);
  if (status == HR_OK) status = exec_all(&run, &template->body, scope);
  if (status == HR_OK) status = finish(&run, out);
  hri_text_deinit(&run.root);
  hri_array_free(&run.generated);
  hri_pool_deinit(&run.pool);
  return status;
}
