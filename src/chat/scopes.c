/* Which names a scope knows before anything is set in it: what Jinja's compiler decides about a template as a whole
 * (jinja2/idtracking.py says the rules; they are written anew here).
 *
 * A name that a scope sets before it reads it is one of its own from the beginning on, without a value. Loops, macros and
 * collecting blocks inside, which are scopes too, see that and not a variable of the conversation, however early they run:
 *
 *     {% for m in messages %}{{ x }}{% endfor %}{% set x = 1 %}      prints nothing, though the conversation has an x
 *
 * Where the scope itself reads the name first, where one around it has it, or where a branch of an `if` sets it,
 * the name has its value from outside until it is set, which is what the evaluator does with all names. So all that it must
 * be told is which names begin without a value: `unset` of the nodes that make scopes. */
#include <string.h>

#include "chat/ast.h"

/* What is known of a name in one scope. */
enum {
  READ = 1,    /* its value is that of the conversation */
  FROM_AROUND, /* ... of the scope around */
  UNSET,       /* it has none */
  PARAMETER,   /* it is bound when the scope begins */
  ANY = 7,     /* one of these */
  STORED = 1 << 3
};

typedef struct frame frame;
struct frame {
  const frame *around;
  uint8_t *names; /* [template->names.count] */
};

typedef struct scoper {
  hri_template *template;
  hr_error *error;
  size_t names;
} scoper;

static hr_status no_memory(const scoper *s) {
  return hri_fail_memory(s->error, s->names, "the names of a chat template");
}

static bool known(const frame *f, uint32_t name) {
  for (; f; f = f->around)
    if (f->names[name] & ANY) return true;
  return false;
}

static void mark(frame *f, uint32_t name, uint32_t what) { f->names[name] = (uint8_t)((f->names[name] & ~ANY) | what); }

static void load(frame *f, uint32_t name) {
  if (!known(f, name)) mark(f, name, READ);
}

static void store(frame *f, uint32_t name) {
  f->names[name] |= STORED;
  if (!(f->names[name] & ANY)) mark(f, name, known(f->around, name) ? FROM_AROUND : UNSET);
}

/* ---- What a scope reads and sets itself ---- */

static void see(frame *f, const hri_ast_node *node);

static void see_all(frame *f, const hri_nodes *nodes) {
  for (uint32_t i = 0; i < nodes->count; i++) see(f, nodes->at[i]);
}

static void see_call(frame *f, const hri_call_node *call) {
  if (!call) return;
  see_all(f, &call->positional);
  see_all(f, &call->named);
  see(f, call->star);
  see(f, call->star2);
}

/* An expression: only loads, in any order. Chains (a.b.c, a | b | c) are nested on the left. */
static void see(frame *f, const hri_ast_node *node) {
  for (; node; node = node->a) {
    if (node->kind == HRI_NODE_NAME || node->kind == HRI_NODE_TARGET_MEMBER) load(f, node->name);
    see(f, node->b);
    see(f, node->c);
    see_all(f, &node->items);
    see_call(f, node->call);
  }
}

static void see_target(frame *f, const hri_ast_node *node, bool parameter) {
  for (uint32_t i = 0; i < node->items.count; i++) see_target(f, node->items.at[i], parameter);
  if (node->kind == HRI_NODE_TARGET_MEMBER) load(f, node->name);
  if (node->kind != HRI_NODE_NAME) return;
  if (parameter) mark(f, node->name, PARAMETER);
  else store(f, node->name);
}

static hr_status see_body(const scoper *s, frame *f, const hri_nodes *body);

enum { BRANCHES = 3 }; /* of an `if`: its body, all elifs one after another, else */

/* A name that a branch sets has its value from outside before that. */
static void join(const scoper *s, frame *f, const uint8_t *names) {
  for (uint32_t name = 0; name < s->names; name++) {
    uint8_t all = 0, last = 0;
    for (uint32_t i = 0; i < BRANCHES; i++) {
      const uint8_t here = names[i * s->names + name];
      all |= here;
      if (here & ANY) last = here & ANY;
    }
    if (all & STORED & ~f->names[name]) last = known(f->around, name) ? FROM_AROUND : READ;
    f->names[name] = (uint8_t)((all & STORED) | last);
  }
}

/* `elif` is an `if` alone in the other branch; a chain of them is of any length, and no nesting. */
static const hri_ast_node *next_of_chain(const hri_ast_node *node) {
  return node->other.count == 1 && node->other.at[0]->kind == HRI_NODE_IF ? node->other.at[0] : NULL;
}

/* Each branch is seen as if the others were not there. `whole`: with what comes behind the body. */
static hr_status see_if(const scoper *s, frame *f, const hri_ast_node *node, bool whole) {
  uint8_t *names = hri_alloc(BRANCHES * s->names);
  frame inside = {f->around, names};
  hr_status status;
  if (!names) return no_memory(s);
  see(f, node->a);
  for (uint32_t i = 0; i < BRANCHES; i++) memcpy(names + i * s->names, f->names, s->names);
  status = see_body(s, &inside, &node->body);
  inside.names += s->names;
  while (whole && status == HR_OK && next_of_chain(node)) {
    node = next_of_chain(node);
    status = see_if(s, &inside, node, false);
  }
  inside.names += s->names;
  if (whole && status == HR_OK) status = see_body(s, &inside, &node->other);
  if (status == HR_OK) join(s, f, names);
  hri_free(names);
  return status;
}

static hr_status see_statement(const scoper *s, frame *f, const hri_ast_node *node) {
  switch ((hri_node_kind)node->kind) {
  case HRI_NODE_IF: return see_if(s, f, node, true);
  case HRI_NODE_PRINT:
    see(f, node->a);
    see_all(f, &node->items);
    break;
  case HRI_NODE_FOR: see(f, node->b); break;
  case HRI_NODE_SET:
    see(f, node->b);
    see_target(f, node->a, false);
    break;
  case HRI_NODE_SET_BLOCK: see_target(f, node->a, false); break;
  case HRI_NODE_MACRO: store(f, node->name); break;
  case HRI_NODE_CALL_BLOCK:
  case HRI_NODE_FILTER_BLOCK: see(f, node->a); break;
  case HRI_NODE_WITH:
    for (uint32_t i = 1; i < node->items.count; i += 2) see(f, node->items.at[i]);
    break;
  default: break;
  }
  return HR_OK;
}

static hr_status see_body(const scoper *s, frame *f, const hri_nodes *body) {
  hr_status status = HR_OK;
  for (uint32_t i = 0; i < body->count && status == HR_OK; i++) status = see_statement(s, f, body->at[i]);
  return status;
}

/* ---- Scopes ---- */

static hr_status scopes_within(const scoper *s, const frame *around, const hri_nodes *body);

static hr_status keep_unset(const scoper *s, const frame *f, hri_names *unset) {
  uint32_t count = 0;
  for (uint32_t name = HRI_KNOWN_NAMES; name < s->names; name++) count += (f->names[name] & ANY) == UNSET;
  if (count == 0) return HR_OK;
  unset->at = hri_pool_alloc(&s->template->pool, count * sizeof *unset->at);
  if (!unset->at) return no_memory(s);
  for (uint32_t name = HRI_KNOWN_NAMES; name < s->names; name++)
    if ((f->names[name] & ANY) == UNSET) unset->at[unset->count++] = name;
  return HR_OK;
}

/* The scope of a body: `node` says what is bound in it, NULL for the whole template and for `else` of a loop. */
static hr_status scope(const scoper *s, const frame *around, const hri_ast_node *node, const hri_nodes *body,
                       hri_names *unset) {
  frame f = {around, hri_alloc_zero(s->names, 1)};
  hr_status status;
  if (!f.names) return no_memory(s);
  if (node && node->kind == HRI_NODE_FOR) see_target(&f, node->a, true);
  for (uint32_t i = 0; node && node->kind == HRI_NODE_WITH && i < node->items.count; i += 2)
    see_target(&f, node->items.at[i], true);
  if (node && (node->kind == HRI_NODE_MACRO || node->kind == HRI_NODE_CALL_BLOCK)) {
    for (uint32_t i = 0; i < node->items.count; i++) see_target(&f, node->items.at[i], true);
    see_all(&f, &node->other);
  }
  status = see_body(s, &f, body);
  if (node && node->kind == HRI_NODE_FILTER_BLOCK) see(&f, node->a);
  if (status == HR_OK) status = keep_unset(s, &f, unset);
  if (status == HR_OK) status = scopes_within(s, &f, body);
  hri_free(f.names);
  return status;
}

static hr_status scopes_of(const scoper *s, const frame *around, hri_ast_node *node) {
  switch ((hri_node_kind)node->kind) {
  case HRI_NODE_IF: HRI_TRY(scopes_within(s, around, &node->body)); return scopes_within(s, around, &node->other);
  case HRI_NODE_FOR:
    HRI_TRY(scope(s, around, node, &node->body, &node->unset));
    return scope(s, around, NULL, &node->other, &node->unset_else);
  case HRI_NODE_SET_BLOCK:
  case HRI_NODE_MACRO:
  case HRI_NODE_CALL_BLOCK:
  case HRI_NODE_FILTER_BLOCK:
  case HRI_NODE_WITH:
  case HRI_NODE_GENERATION: return scope(s, around, node, &node->body, &node->unset);
  default: return HR_OK;
  }
}

static hr_status scopes_within(const scoper *s, const frame *around, const hri_nodes *body) {
  hr_status status = HR_OK;
  for (uint32_t i = 0; i < body->count && status == HR_OK; i++) status = scopes_of(s, around, body->at[i]);
  return status;
}

hr_status hri_template_scopes(hri_template *template, hr_error *error) {
  const scoper s = {template, error, template->names.count};
  return scope(&s, NULL, NULL, &template->body, &template->unset);
}
