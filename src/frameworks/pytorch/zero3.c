/* ZeRO-3 (zero3.h): what is gathered when, by the coordinator of parameters; how gradients become parts; the step by groups. */
#include "frameworks/pytorch/zero3.h"

#include <assert.h>

enum { GATHER = 1, REDUCE = 2 }; /* streams beside the usual one */
enum { USUAL_BUCKET = 500000000, USUAL_PREFETCH = 50000000, PERSISTS = 100000 };
static const uint64_t most_live = 1000000000, most_reuse = 1000000000, group_size = 1000000000;

static hri_ten *tensor(const hri_zero3 *z, int32_t i) { return z->module->parameters[i]; }
static uint64_t whole_elements(const hri_zero3 *z, int32_t i) { return hri_ten_count(tensor(z, i)); }
static bool trains(const hri_zero3 *z, uint32_t i) { return z->module->parameters[i]->requires_grad; }
static uint64_t part_elements(const hri_zero3 *z, int32_t i) {
  return (whole_elements(z, i) + z->settings.ranks - 1) / z->settings.ranks;
}

/* ---- gathering ---- */

static uint64_t gathered_bytes(const hri_zero3 *z, int32_t i) {
  return part_elements(z, i) * z->settings.ranks * hri_ten_type_bytes(tensor(z, i)->type);
}

/* Parts that are on the host are copied to the device first, each for itself. */
static hri_ten *from_host(hri_torch *t, const hri_zero3 *z, int32_t i) {
  return z->settings.offload_parameters ? hri_ten_flat(t, "to", tensor(z, i)->type, part_elements(z, i)) : NULL;
}

static void gather_one(hri_torch *t, hri_zero3 *z, int32_t i) {
  hri_ten *part;
  hri_ten_give_bytes(t, "all_gather", tensor(z, i), gathered_bytes(z, i));
  hri_ten_role(t, tensor(z, i), HR_ROLE_WEIGHT);
  part = from_host(t, z, i);
  hri_ten_drop(t, part);
}

static void gather_together(hri_torch *t, hri_zero3 *z, hri_zero3_gather *g) {
  hri_ten **parts = hri_alloc_zero(g->count, sizeof(hri_ten *));
  if (!parts) t->failed = true;
  for (int bytes = 0; bytes < 2; bytes++) {
    uint64_t elements = 0;
    for (uint32_t k = 0; k < g->count; k++)
      if ((tensor(z, (int32_t)g->members[k])->type == HRI_U8) == bytes)
        elements += part_elements(z, (int32_t)g->members[k]);
    if (elements == 0) continue;
    g->flats[bytes] = hri_ten_flat(t, "all_gather_coalesced", bytes ? HRI_U8 : z->type, elements * z->settings.ranks);
    hri_ten_role(t, g->flats[bytes], HR_ROLE_COMMUNICATION);
  }
  for (uint32_t k = 0; k < g->count && parts; k++) parts[k] = from_host(t, z, (int32_t)g->members[k]);
  for (uint32_t k = g->count; k-- > 0 && parts;) hri_ten_drop(t, parts[k]);
  hri_free(parts);
}

/* Takes `members`, in the order of parameters. */
static void gather(hri_torch *t, hri_zero3 *z, uint32_t *members, uint32_t count) {
  hri_zero3_gather *g = hri_alloc_zero(1, sizeof *g);
  if (!g || !members) {
    hri_free(g);
    hri_free(members);
    t->failed = true;
    return;
  }
  *g = (hri_zero3_gather){.members = members, .count = count, .holders = count};
  hri_torch_at(t, "ZeRO", -1);
  hri_torch_on_stream(t, GATHER);
  if (count == 1) gather_one(t, z, (int32_t)members[0]);
  else gather_together(t, z, g);
  hri_torch_on_stream(t, 0);
  for (uint32_t k = 0; k < count; k++) {
    z->parameters[members[k]].state = HRI_ZERO3_COMING;
    z->parameters[members[k]].coming = g;
    z->available += (int64_t)whole_elements(z, (int32_t)members[k]);
  }
}

static void leave_gather(hri_torch *t, hri_zero3_gather *g) {
  if (--g->holders) return;
  for (int bytes = 0; bytes < 2; bytes++) hri_ten_drop(t, g->flats[bytes]);
  hri_free(g->members);
  hri_free(g);
}

/* The handle's wait: with the first of them all of its parameters are copied out. */
static void complete(hri_torch *t, hri_zero3 *z, hri_zero3_gather *g) {
  if (g->complete) return;
  g->complete = true;
  hri_torch_at(t, "ZeRO", -1);
  hri_torch_on_stream(t, GATHER);
  for (uint32_t k = 0; k < g->count; k++) {
    hri_ten *whole = tensor(z, (int32_t)g->members[k]);
    if (g->flats[0] || g->flats[1]) hri_ten_give_bytes(t, "cat", whole, hri_ten_bytes(whole));
    hri_ten_role(t, whole, HR_ROLE_WEIGHT);
    z->parameters[g->members[k]].state = HRI_ZERO3_WHOLE;
  }
  hri_torch_on_stream(t, 0);
}

static void wait_for(hri_torch *t, hri_zero3 *z, int32_t i) {
  hri_zero3_gather *g = z->parameters[i].coming;
  if (!g) return;
  complete(t, z, g);
  z->parameters[i].coming = NULL;
  leave_gather(t, g);
}

static void give_back(hri_torch *t, hri_zero3 *z, int32_t i) {
  hri_zero3_parameter *p = &z->parameters[i];
  if (p->state != HRI_ZERO3_WHOLE || p->active || p->external || p->owners) return;
  hri_ten_take_bytes(t, tensor(z, i));
  p->state = HRI_ZERO3_PART;
  z->available -= (int64_t)whole_elements(z, i);
}

/* ---- the coordinator ---- */

static void gather_missing(hri_torch *t, hri_zero3 *z, const hri_zero3_call *call) {
  uint32_t *members = hri_alloc_zero(2, sizeof *members), count = 0;
  for (int k = 0; k < 2 && members; k++)
    if (call->parameters[k] >= 0 && z->parameters[call->parameters[k]].state == HRI_ZERO3_PART)
      members[count++] = (uint32_t)call->parameters[k];
  if (!members || count) gather(t, z, members, count);
  else hri_free(members);
}

static void mark_fetched(hri_zero3 *z, const hri_zero3_use *use, bool latest) {
  int64_t *mark = &z->parameters[use->parameter].fetched_for;
  if (!latest || *mark < (int64_t)use->step) *mark = use->step;
}

/* What the module has now is no more to be fetched. */
static void pass_uses(hri_zero3 *z, const hri_zero3_call *call) {
  uint32_t missing = 0, passed = 0;
  for (int k = 0; k < 2; k++)
    missing += call->parameters[k] >= 0 && z->parameters[call->parameters[k]].fetched_for < (int64_t)z->step;
  for (; passed < missing && z->next_use < z->uses.count; passed++)
    mark_fetched(z, &z->uses.items[z->next_use++], false);
}

static bool is_member(const uint32_t *members, uint32_t count, int32_t parameter) {
  for (uint32_t k = 0; k < count; k++)
    if (members[k] == (uint32_t)parameter) return true;
  return false;
}

static void sort(uint32_t *members, uint32_t count) {
  for (uint32_t i = 1; i < count; i++)
    for (uint32_t k = i; k > 0 && members[k - 1] > members[k]; k--) {
      uint32_t other = members[k];
      members[k] = members[k - 1];
      members[k - 1] = other;
    }
}

/* The next parameters of the trace, up to a bucket of them. */
static void prefetch(hri_torch *t, hri_zero3 *z) {
  uint64_t room = z->available < (int64_t)most_live ? (uint64_t)((int64_t)most_live - z->available) : 0, coming = 0;
  uint32_t *members, count = 0;
  if (room > z->settings.prefetch) room = z->settings.prefetch;
  members = hri_alloc_zero(z->module->parameter_count, sizeof *members);
  while (members && z->next_use < z->uses.count && coming < room) {
    const hri_zero3_use *use = &z->uses.items[z->next_use++];
    bool wanted = z->parameters[use->parameter].state == HRI_ZERO3_PART && !is_member(members, count, use->parameter);
    mark_fetched(z, use, true);
    if (!wanted) continue;
    members[count++] = (uint32_t)use->parameter;
    coming += whole_elements(z, use->parameter);
  }
  if (members) sort(members, count);
  if (!members || count) gather(t, z, members, count);
  else hri_free(members);
}

/* ds_active_sub_modules is a set: a module that runs again for its backward, and stops early there, is in it once. Of a tied embedding there are two
 * modules. */
static void activate(hri_zero3 *z, const hri_zero3_call *call, int32_t i) {
  if (call->parameters[0] < 0) {
    z->parameters[i].external = true;
    return;
  }
  bool tied = !z->module->head && tensor(z, i) == z->module->embed;
  z->parameters[i].active = tied ? z->parameters[i].active + 1 : 1;
}

/* update_recompute_parameters */
static void note_again(hri_torch *t, hri_zero3 *z, int32_t parameter) {
  hri_zero3_again again = {0, (uint32_t)parameter};
  if (z->running.count == 0 || trains(z, (uint32_t)parameter)) return;
  again.owner = z->running.items[z->running.count - 1];
  for (size_t k = z->again.count; k-- > 0 && z->again.items[k].owner == again.owner;)
    if (z->again.items[k].parameter == again.parameter) return;
  z->parameters[parameter].owners++;
  if (!hri_array_push(&z->again, again)) t->failed = true;
}

/* With the backward of the module that made them run again those parameters go, whatever the trace says, and not before. `owner` UINT32_MAX: all. */
static void release_again(hri_torch *t, hri_zero3 *z, uint32_t owner) {
  size_t kept = 0;
  for (size_t k = 0; k < z->again.count; k++) {
    hri_zero3_again again = z->again.items[k];
    if (owner != UINT32_MAX && again.owner != owner) {
      z->again.items[kept++] = again;
      continue;
    }
    if (z->parameters[again.parameter].owners) z->parameters[again.parameter].owners--;
    if (!z->parameters[again.parameter].persists) give_back(t, z, (int32_t)again.parameter);
  }
  z->again.count = kept;
}

static void begin_backward_of(hri_torch *t, hri_zero3 *z, uint32_t number) {
  if (!hri_array_push(&z->running, number)) t->failed = true;
}

static void end_backward_of(hri_zero3 *z, uint32_t number) {
  size_t kept = 0;
  for (size_t k = 0; k < z->running.count; k++)
    if (z->running.items[k] != number) z->running.items[kept++] = z->running.items[k];
  z->running.count = kept;
}

/* fetch_sub_module */
static void fetch(hri_torch *t, hri_zero3 *z, const hri_zero3_call *call, bool forward) {
  if (t->failed) return;
  if (!z->traced && !hri_array_push(&z->order, *call)) t->failed = true;
  gather_missing(t, z, call);
  for (int k = 0; k < 2; k++) {
    if (call->parameters[k] < 0) continue;
    activate(z, call, call->parameters[k]);
    if (forward && t->engines) note_again(t, z, call->parameters[k]);
    wait_for(t, z, call->parameters[k]);
  }
  if (z->traced) {
    pass_uses(z, call);
    if (z->settings.prefetch) prefetch(t, z);
  }
  z->step++;
}

/* Whether a parameter is used again before so many elements of others. */
static bool used_soon(const hri_zero3 *z, int32_t parameter) {
  uint64_t passed = 0;
  for (size_t s = z->step; s < z->order.count && passed < most_reuse; s++)
    for (int k = 0; k < 2; k++) {
      int32_t other = z->order.items[s].parameters[k];
      if (other == parameter) return true;
      if (other >= 0) passed += whole_elements(z, other);
    }
  return false;
}

/* The first decision of that step or a later one. */
static size_t decisions_from(const hri_zero3 *z, uint32_t step) {
  size_t low = 0, high = z->decisions.count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (z->decisions.items[middle].step < step) low = middle + 1;
    else high = middle;
  }
  return low;
}

/* __params_to_release, which is an lru_cache by module and step: what the first traced step found holds for all, also for evaluations. */
static bool keeps(hri_torch *t, hri_zero3 *z, int32_t i) {
  hri_zero3_decision made = {z->step, i, false};
  size_t k = decisions_from(z, z->step);
  for (; k < z->decisions.count && z->decisions.items[k].step == z->step; k++)
    if (z->decisions.items[k].parameter == i) return z->decisions.items[k].keeps;
  made.keeps = z->parameters[i].persists || z->parameters[i].fetched_for > (int64_t)z->step || used_soon(z, i);
  if (k == z->decisions.count && !hri_array_push(&z->decisions, made)) t->failed = true;
  return made.keeps;
}

/* release_sub_module */
static void release(hri_torch *t, hri_zero3 *z, const hri_zero3_call *call) {
  for (int k = 0; k < 2; k++) {
    int32_t i = call->parameters[k];
    if (i < 0) continue;
    if (call->parameters[0] < 0) z->parameters[i].external = false;
    else if (z->parameters[i].active) z->parameters[i].active--;
    if (z->traced && keeps(t, z, i)) continue;
    give_back(t, z, i);
  }
}

/* ---- what is put around modules ---- */

static hri_zero3_call call_of(hri_ten *const parameters[2]) {
  hri_zero3_call call = {{-1, -1}};
  for (int k = 0; k < 2; k++)
    if (parameters[k]) call.parameters[k] = (int32_t)parameters[k]->place;
  return call;
}

static hri_zero3_call call_of_fn(const hri_fn *fn) {
  return (hri_zero3_call){{(int32_t)(int64_t)fn->numbers[1], (int32_t)(int64_t)fn->numbers[2]}};
}

/* PreBackwardFunctionForModule and PostBackwardFunctionModule */
static void before_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  hri_zero3_call call = call_of_fn(fn);
  hri_zero3 *z = (hri_zero3 *)(uintptr_t)fn->numbers[0];
  begin_backward_of(t, z, (uint32_t)fn->numbers[3]);
  fetch(t, z, &call, false);
  in[0] = hri_ten_keep(g[0]);
}

static void behind_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  hri_zero3_call call = call_of_fn(fn);
  hri_zero3 *z = (hri_zero3 *)(uintptr_t)fn->numbers[0];
  end_backward_of(z, (uint32_t)fn->numbers[3]);
  release(t, z, &call);
  release_again(t, z, (uint32_t)fn->numbers[3]);
  in[0] = hri_ten_keep(g[0]);
}

static hri_ten *through(hri_torch *t, hri_zero3 *z, hri_fn_apply *apply, const hri_zero3_call *call, uint32_t number,
                        hri_ten *x) {
  hri_fn *fn = x ? hri_fn_make(t, apply, &x, 1) : NULL;
  hri_ten *passed;
  if (!fn) return hri_ten_keep(x);
  fn->numbers[0] = (uintptr_t)z;
  fn->numbers[1] = (uint64_t)(int64_t)call->parameters[0];
  fn->numbers[2] = (uint64_t)(int64_t)call->parameters[1];
  fn->numbers[3] = number;
  passed = hri_ten_view(t, x, x->shape);
  return hri_fn_bind(t, fn, passed);
}

static hri_ten *enter(hri_torch *t, void *context, hri_ten *const parameters[2], hri_ten *input) {
  hri_zero3 *z = context;
  hri_zero3_call call = call_of(parameters);
  uint32_t number = z->modules++;
  if (!hri_array_push(&z->entered, number)) t->failed = true;
  if (t->stopped) return hri_ten_keep(input);
  fetch(t, z, &call, true);
  return through(t, z, behind_backward, &call, number, input);
}

static hri_ten *leave(hri_torch *t, void *context, hri_ten *const parameters[2], hri_ten *output) {
  hri_zero3 *z = context;
  hri_zero3_call call = call_of(parameters);
  uint32_t number = z->entered.count ? z->entered.items[--z->entered.count] : 0;
  if (t->stopped) return hri_ten_keep(output);
  release(t, z, &call);
  return through(t, z, before_backward, &call, number, output);
}

static void list_uses(hri_torch *t, hri_zero3 *z) {
  for (uint32_t s = 0; s < z->order.count; s++) {
    const int32_t *p = z->order.items[s].parameters;
    int first = p[0] >= 0 && p[1] >= 0 && p[1] < p[0]; /* by their number */
    for (int k = 0; k < 2; k++)
      if (p[k ^ first] >= 0 && !hri_array_push(&z->uses, ((hri_zero3_use){p[k ^ first], s}))) t->failed = true;
  }
}

/* reset_step, of the hook before the model's forward: with the first step behind it the trace is complete. */
void hri_zero3_before_forward(hri_torch *t, hri_zero3 *z) {
  if (!z->traced && z->order.count) {
    list_uses(t, z);
    z->traced = true;
  }
  for (uint32_t i = 0; i < z->module->parameter_count; i++) {
    bool coming = z->parameters[i].coming != NULL; /* behind an evaluation: gathered for a backward that did not come */
    wait_for(t, z, (int32_t)i);
    if (coming) give_back(t, z, (int32_t)i);
    z->parameters[i].fetched_for = INT64_MIN;
  }
  z->step = z->next_use = 0;
  z->available = 0;
}

/* ---- gradients ---- */

/* With the optimizer on the host a part comes to the device, where it is added to, is read for its norm in double, and goes back in fp32. */
static void take_to_host(hri_torch *t, const hri_zero3 *z, int32_t i) {
  enum { AT_ONCE = 250000000 };
  uint64_t elements = part_elements(z, i);
  hri_ten *part = hri_ten_flat(t, "to", z->type, elements);
  if (z->boundary) {
    hri_ten_drop(t, hri_ten_flat(t, "double", HRI_I64, elements < AT_ONCE ? elements : AT_ONCE));
    if (z->type != HRI_F32) hri_ten_drop(t, hri_ten_flat(t, "to", HRI_F32, elements));
  }
  hri_ten_drop(t, part);
}

/* reduce_scatter_coalesced: parts of all gradients, rank by rank, in one tensor; a gradient alone is such a tensor where it needs no padding. */
static void reduce(hri_torch *t, hri_zero3 *z) {
  uint64_t elements = 0;
  hri_ten *joined = NULL;
  bool as_it_is = z->waiting_count == 1 && whole_elements(z, (int32_t)z->waiting[0]) % z->settings.ranks == 0;
  if (z->waiting_count == 0) return;
  for (uint32_t k = 0; k < z->waiting_count; k++)
    elements += part_elements(z, (int32_t)z->waiting[k]) * z->settings.ranks;
  hri_torch_at(t, "ZeRO", -1);
  hri_torch_on_stream(t, REDUCE);
  if (!as_it_is) joined = hri_ten_flat(t, "reduce_scatter_coalesced", z->type, elements);
  hri_ten_role(t, joined, HR_ROLE_COMMUNICATION);
  for (uint32_t k = 0; k < z->waiting_count && z->settings.offload; k++) take_to_host(t, z, (int32_t)z->waiting[k]);
  hri_ten_drop(t, joined);
  hri_torch_on_stream(t, 0);
  for (uint32_t k = 0; k < z->waiting_count; k++) hri_ten_set(t, &z->module->parameters[z->waiting[k]]->grad, NULL);
  z->waiting_count = 0;
  z->filled = 0;
}

static void gradient_is_there(hri_torch *t, void *context, hri_ten *leaf) {
  hri_zero3 *z = context;
  uint64_t elements = hri_ten_count(leaf);
  if (!leaf->parameter) return;
  if (z->filled && z->filled + elements > z->settings.bucket) reduce(t, z);
  if (z->filled + elements <= z->settings.bucket) hri_ten_set(t, &leaf->grad, hri_ten_view(t, z->bucket, leaf->shape));
  z->filled += elements;
  z->waiting[z->waiting_count++] = leaf->place;
}

/* Modules whose input needs no gradient (embeddings) never had their turn to give back. */
void hri_zero3_after_backward(hri_torch *t, hri_zero3 *z) {
  reduce(t, z);
  z->running.count = 0;
  for (uint32_t i = 0; i < z->module->parameter_count; i++) {
    if (!z->parameters[i].active && !z->parameters[i].external) continue;
    z->parameters[i].active = 0;
    z->parameters[i].external = false;
    if (!z->traced || !z->parameters[i].persists) give_back(t, z, (int32_t)i);
  }
  release_again(t, z, UINT32_MAX);
}

/* ---- the step ---- */

/* has_overflow: isinf (abs(x) == inf) and isnan (x != x) of this rank's gradients. */
static void look_for_overflow(hri_torch *t, const hri_zero3 *z) {
  uint64_t elements = hri_ten_count(z->gradients);
  hri_ten *absolute, *truth;
  hri_torch_on_stream(t, REDUCE);
  absolute = hri_ten_flat(t, "abs", z->type, elements);
  truth = hri_ten_flat(t, "eq", HRI_BOOL, elements);
  hri_ten_drop(t, absolute);
  hri_ten_drop(t, truth);
  hri_ten_drop(t, hri_ten_flat(t, "ne", HRI_BOOL, elements));
  hri_torch_on_stream(t, 0);
}

void hri_zero3_begin_step(hri_torch *t, hri_zero3 *z) {
  for (uint32_t i = 0; i < z->module->parameter_count; i++) {
    wait_for(t, z, (int32_t)i);
    z->parameters[i].active = 0;
    z->parameters[i].external = false;
    give_back(t, z, (int32_t)i);
  }
  hri_torch_at(t, "ZeRO", -1);
  if (z->type == HRI_F16 && !z->settings.offload) look_for_overflow(t, z);
  for (uint32_t i = 0; i < z->module->parameter_count && !z->settings.offload; i++) /* the norm, in double */
    if (trains(z, i)) hri_ten_drop(t, hri_ten_flat(t, "double", HRI_I64, part_elements(z, (int32_t)i)));
}

void hri_zero3_before_group(hri_torch *t, hri_zero3 *z, hri_zero3_group *g) {
  hri_ten *joined = hri_ten_flat(t, "flatten", z->type, g->elements), *gradient = hri_ten_keep(joined);
  if (z->type != HRI_F32) hri_ten_set(t, &gradient, hri_ten_flat(t, "to", HRI_F32, g->elements));
  hri_ten_drop(t, joined);
  hri_ten_role(t, gradient, HR_ROLE_GRADIENT);
  g->master->grad = gradient;
}

void hri_zero3_after_group(hri_torch *t, hri_zero3_group *g) { hri_ten_set(t, &g->master->grad, NULL); }

/* Small parameters are gathered for the next step at once, each into bytes of its own (_allgather_params_coalesced). */
void hri_zero3_end_step(hri_torch *t, hri_zero3 *z) {
  uint32_t count = z->module->parameter_count;
  hri_ten **parts = hri_alloc_zero(count, sizeof(hri_ten *));
  if (!parts) t->failed = true;
  hri_torch_at(t, "ZeRO", -1);
  for (uint32_t i = 0; i < count && parts; i++)
    if (z->parameters[i].persists) parts[i] = from_host(t, z, (int32_t)i);
  for (uint32_t i = 0; i < count && parts; i++) {
    if (!z->parameters[i].persists) continue;
    hri_ten_give_bytes(t, "all_gather", tensor(z, (int32_t)i), gathered_bytes(z, (int32_t)i));
    hri_ten_role(t, tensor(z, (int32_t)i), HR_ROLE_WEIGHT);
    z->parameters[i].state = HRI_ZERO3_WHOLE;
  }
  for (uint32_t i = 0; i < count && parts; i++) hri_ten_drop(t, parts[i]);
  hri_free(parts);
}

/* ---- deepspeed.initialize ---- */

/* Of the parameters of one kind: vectors are apart from matrices where the Trainer makes the optimizer. */
static void list_groups_of(hri_torch *t, hri_zero3 *z, bool vectors) {
  hri_zero3_group g = {0};
  uint64_t all = 0;
  uint32_t count = z->module->parameter_count;
  bool apart = z->settings.two_groups;
  for (uint32_t i = 0; i < count; i++)
    if (trains(z, i) && (!apart || (tensor(z, (int32_t)i)->shape.rank == 1) == vectors))
      all += part_elements(z, (int32_t)i);
  for (uint32_t i = 0; i < count; i++) {
    if (!trains(z, i) || (apart && (tensor(z, (int32_t)i)->shape.rank == 1) != vectors)) continue;
    g.elements += part_elements(z, (int32_t)i);
    if (all <= group_size || g.elements < group_size) continue;
    if (!hri_array_push(&z->groups, g)) t->failed = true;
    g.elements = 0;
  }
  if (g.elements && !hri_array_push(&z->groups, g)) t->failed = true;
}

static void list_groups(hri_torch *t, hri_zero3 *z) {
  list_groups_of(t, z, false);
  if (z->settings.two_groups) list_groups_of(t, z, true);
}

/* Each parameter's part is cut off, the whole goes; then the parts of those that train come together in one tensor, over the host. */
static void cut(hri_torch *t, hri_zero3 *z) {
  uint32_t count = z->module->parameter_count;
  hri_ten **parts = hri_alloc_zero(count, sizeof(hri_ten *));
  uint64_t all = 0, kept = 0;
  if (!parts) {
    t->failed = true;
    return;
  }
  for (uint32_t i = 0; i < count; i++) {
    if (!z->settings.offload_parameters)
      parts[i] = hri_ten_flat(t, "partition", tensor(z, (int32_t)i)->type, part_elements(z, (int32_t)i));
    hri_ten_take_bytes(t, z->module->parameters[i]);
    if (trains(z, i)) all += part_elements(z, (int32_t)i);
    else hri_ten_role(t, parts[i], HR_ROLE_WEIGHT);
    kept += trains(z, i) ? 0 : part_elements(z, (int32_t)i);
  }
  for (uint32_t i = 0; i < count; i++)
    if (trains(z, i)) hri_ten_drop(t, parts[i]); /* the others stay as they are, to the end */
  hri_free(parts);
  hri_torch_empty_cache(t);
  if (z->settings.offload_parameters) t->host_buffer_bytes += (all + kept) * hri_ten_type_bytes(z->type);
  else z->parts = hri_ten_flat(t, "defragment", z->type, all);
  if (z->parts) hri_ten_role(t, z->parts, HR_ROLE_WEIGHT);
}

static void make_masters(hri_torch *t, hri_zero3 *z) {
  uint64_t largest = 0;
  for (size_t k = 0; k < z->groups.count; k++) {
    hri_zero3_group *g = &z->groups.items[k];
    hri_ten *first;
    if (g->elements > largest) largest = g->elements;
    if (z->settings.offload) {
      t->host_bytes += g->elements * hri_ten_type_bytes(HRI_F32);
      continue;
    }
    first = hri_ten_flat(t, "to", HRI_F32, g->elements);
    g->master = hri_ten_flat(t, "clone", HRI_F32, g->elements);
    hri_ten_drop(t, first);
    hri_ten_role(t, g->master, HR_ROLE_MASTER_WEIGHT);
    g->master->parameter = g->master->requires_grad = true;
  }
  if (!z->settings.offload) hri_ten_drop(t, hri_ten_flat(t, "zeros", HRI_F32, largest));
}

/* The bucket and the parts of gradients, which stay; then each parameter that trains is gathered once, for a hook on it. */
static void make_buffers(hri_torch *t, hri_zero3 *z) {
  uint64_t all = 0;
  for (size_t k = 0; k < z->groups.count; k++) all += z->groups.items[k].elements;
  z->bucket = hri_ten_flat(t, "ipg_bucket", z->type, z->settings.bucket);
  hri_ten_role(t, z->bucket, HR_ROLE_COMMUNICATION);
  if (z->settings.offload) t->host_buffer_bytes += all * hri_ten_type_bytes(z->type);
  else z->gradients = hri_ten_flat(t, "zeros", z->type, all);
  if (z->gradients) hri_ten_role(t, z->gradients, HR_ROLE_GRADIENT);
  for (uint32_t i = 0; i < z->module->parameter_count; i++) {
    if (!trains(z, i)) continue;
    hri_ten *whole = hri_ten_flat(t, "all_gather", z->type, part_elements(z, (int32_t)i) * z->settings.ranks);
    hri_ten_drop(t, from_host(t, z, (int32_t)i));
    hri_ten_drop(t, whole);
  }
}

/* _cast_module_mixed_precision, as of the other stages. */
static void cast_parameters(hri_torch *t, const hri_zero3 *z) {
  for (uint32_t i = 0; i < z->module->parameter_count; i++)
    if (tensor(z, (int32_t)i)->type != HRI_U8) hri_ten_retype(t, tensor(z, (int32_t)i), z->type);
}

void hri_zero3_init(hri_torch *t, hri_zero3 *z, hri_module *module, const hri_zero3_settings *settings,
                    hri_ten_type type) {
  static const hri_module_watch watch = {enter, leave};
  *z = (hri_zero3){.settings = *settings, .module = module, .type = type, .boundary = true};
  if (z->settings.bucket == 0) z->settings.bucket = USUAL_BUCKET;
  if (z->settings.prefetch == 0) z->settings.prefetch = USUAL_PREFETCH;
  z->parameters = hri_alloc_zero(module->parameter_count, sizeof *z->parameters);
  z->waiting = hri_alloc_zero(module->parameter_count, sizeof *z->waiting);
  if (!z->parameters || !z->waiting) {
    t->failed = true;
    return;
  }
  for (uint32_t i = 0; i < module->parameter_count; i++) {
    module->parameters[i]->place = i;
    z->parameters[i].persists = hri_ten_count(module->parameters[i]) <= PERSISTS;
  }
  hri_torch_at(t, "ZeRO", -1);
  cast_parameters(t, z);
  for (uint32_t i = 0; i < module->packed_count && module->quantized != HRI_TORCH_INT8; i++)
    module->packed[i].held = true;
  list_groups(t, z);
  cut(t, z);
  make_masters(t, z);
  make_buffers(t, z);
  t->accumulated = gradient_is_there;
  t->accumulated_context = z;
  module->watch = &watch;
  module->watch_context = z;
}

void hri_zero3_deinit(hri_zero3 *z) {
  for (uint32_t i = 0; z->parameters && i < z->module->parameter_count; i++) {
    hri_zero3_gather *g = z->parameters[i].coming;
    if (!g || --g->holders) continue;
    hri_free(g->members);
    hri_free(g);
  }
  hri_free(z->parameters);
  hri_free(z->waiting);
  hri_array_free(&z->order);
  hri_array_free(&z->uses);
  hri_array_free(&z->groups);
  hri_array_free(&z->entered);
  hri_array_free(&z->running);
  hri_array_free(&z->again);
  hri_array_free(&z->decisions);
}
