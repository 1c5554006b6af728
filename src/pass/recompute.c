/* Activation checkpointing, generic: a level is a set of dropped values per layer; the producers of a dropped value
 * (what writes it, in one piece or by columns, then what adds to it, in their order) are cloned before its first
 * backward reader, as far back as kept values reach. Nothing else is made again: a product whose result no backward
 * node reads is never cloned ("early stop").
 *
 * A clone shares the site of its origin (same random numbers, same rounding) and reads the same kept values, so the
 * result has the same bits. */
#include <assert.h>
#include <string.h>

#include <headroom/job.h>

#include "pass/pass.h"

typedef struct producer {
  hri_id node;
  uint32_t next;
} producer; /* next: of the same value */

typedef struct rewriter {
  hri_job *job;
  uint8_t program;
  const uint8_t *levels;
  uint32_t layer_count, group;
  size_t values;
  HRI_ARRAY(producer) producers; /* forward nodes that write (a part of) a value or add to it, in issue order */
  uint32_t *first;               /* per value: its first producer, HRI_NONE; it says layer and kind of the value */
  bool *dropped;                 /* per value */
  bool *only_activation;         /* per value: all forward readers are activations */
  bool *boundary;                /* per value: read by the forward of another group */
  hri_id *home;                  /* per value: storage of its clone, HRI_NONE */
  bool *made;                    /* per value: all of its producers were cloned */
  bool *cloned;                  /* per node */
  hri_emit emit;                 /* labels of the backward node that asks */
  hri_order order;
} rewriter;

static int32_t group_of(const rewriter *r, int32_t layer) { return layer < 0 ? -1 : layer / (int32_t)r->group; }

/* The node whose layer and op stand for a value; NULL when the forward does not make it. */
static const hri_node *writer_of(const rewriter *r, size_t value) {
  assert(value >= r->values || r->first[value] == HRI_NONE || r->producers.items); /* first indexes producers */
  return value < r->values && r->first[value] != HRI_NONE
             ? &r->job->nodes.items[r->producers.items[r->first[value]].node]
             : NULL;
}

/* Behind the value's other producers. */
static void add_producer(rewriter *r, size_t value, hri_id node) {
  uint32_t made = (uint32_t)r->producers.count, at = r->first[value];
  if (!hri_array_push(&r->producers, ((producer){node, HRI_NONE}))) {
    r->job->failed = true;
    return;
  }
  if (at == HRI_NONE) {
    r->first[value] = made;
    return;
  }
  while (r->producers.items[at].next != HRI_NONE) at = r->producers.items[at].next;
  r->producers.items[at].next = made;
}

static void analyse(rewriter *r) {
  hri_job *job = r->job;
  const hri_program *p = &job->programs[r->program];
  for (int sweep = 0; sweep < 2; sweep++) /* writers first, then readers */
    for (size_t at = 0; at < p->order.count; at++) {
      hri_id id = p->order.items[at];
      const hri_node *node = &job->nodes.items[id];
      const hri_operand *operands = hri_operands(job, node);
      if (node->phase != HRI_PHASE_FORWARD && node->phase != HRI_PHASE_LOSS) continue;
      for (uint32_t i = 0; i < node->operand_count; i++) {
        size_t value;
        if (operands[i].tensor == HRI_NONE) continue;
        value = job->tensors.items[operands[i].tensor].value;
        if (value >= r->values) continue;
        if (sweep == 0 && node->phase == HRI_PHASE_FORWARD &&
            (operands[i].access == HRI_WRITE || operands[i].access == HRI_ADD)) {
          add_producer(r, value, id);
          r->only_activation[value] = true;
        }
        if (sweep == 1 && operands[i].access == HRI_READ && writer_of(r, value)) {
          const hri_node *writer = writer_of(r, value);
          if (!hri_rule_get(node->op)->activation) r->only_activation[value] = false;
          if (group_of(r, writer->layer) != group_of(r, node->layer)) r->boundary[value] = true;
        }
      }
    }
}

/* Whether a value comes again at the price of a pass over memory, from what the backward keeps in any case: norms and
 * activations by their rule; what only turns such a value (rope behind a norm of heads) follows it. */
static bool is_cheap(const rewriter *r, size_t value) {
  const hri_node *writer = writer_of(r, value);
  const hri_operand *operands;
  const hri_rule *rule;
  if (!writer || r->producers.items[r->first[value]].next != HRI_NONE) return false;
  operands = hri_operands(r->job, writer);
  rule = hri_rule_get(writer->op);
  for (uint32_t i = 0; i < writer->operand_count; i++)
    if ((rule->cheap >> i & 1) && operands[i].tensor != HRI_NONE &&
        r->job->tensors.items[operands[i].tensor].value == value)
      return true;
  return rule->follows && is_cheap(r, r->job->tensors.items[operands[0].tensor].value);
}

static bool drops(const rewriter *r, size_t value) {
  const hri_node *writer = writer_of(r, value);
  const hri_rule *rule;
  if (!writer || r->boundary[value] || r->job->storages.items[value].transient)
    return false; /* a transient has a pass of its own */
  rule = hri_rule_get(writer->op);
  if (writer->layer < 0 || (uint32_t)writer->layer >= r->layer_count) return false;
  switch (r->levels[writer->layer]) {
  case HR_LEVEL_KEEP: return false;
  case HR_LEVEL_CHEAP: return is_cheap(r, value);
  case HR_LEVEL_MLP: return is_cheap(r, value) || (rule->product == HRI_PRODUCT_FORWARD && r->only_activation[value]);
  case HR_LEVEL_ATTENTION: return rule->attention != HRI_ATTENTION_FORWARD;
  default: return true;
  }
}

/* A tensor like `tensor` but of the clone of its value. */
static hri_id retarget(rewriter *r, hri_id tensor) {
  hri_tensor copy = r->job->tensors.items[tensor];
  copy.storage = copy.value = r->home[copy.value];
  if (r->job->failed || !hri_array_push(&r->job->tensors, copy)) {
    r->job->failed = true;
    return HRI_NONE;
  }
  return (hri_id)r->job->tensors.count - 1;
}

static void clone_value(rewriter *r, size_t value);

/* Clones one producer: it reads what was cloned, or kept, and writes to fresh homes; what it adds to, or writes a
 * further part of, has its home already. */
static void clone_producer(rewriter *r, hri_id origin) {
  hri_job *job = r->job;
  hri_id id;
  if (r->cloned[origin]) return;
  r->cloned[origin] = true;
  for (uint32_t i = 0; i < job->nodes.items[origin].operand_count; i++) {
    hri_operand o = hri_operands(job, &job->nodes.items[origin])[i];
    size_t read;
    if (o.tensor == HRI_NONE || o.access != HRI_READ) continue;
    read = job->tensors.items[o.tensor].value;
    if (read < r->values && r->dropped[read]) clone_value(r, read);
  }
  id = hri_node_clone(job, origin);
  if (job->failed) return;
  job->nodes.items[id].origin = origin;
  job->nodes.items[id].phase = HRI_PHASE_BACKWARD;
  for (uint32_t i = 0; i < job->nodes.items[id].operand_count && !job->failed; i++) {
    hri_operand o = hri_operands(job, &job->nodes.items[id])[i];
    size_t touched;
    if (o.tensor == HRI_NONE) continue;
    touched = job->tensors.items[o.tensor].value;
    if (o.access == HRI_WRITE && touched < r->values && r->home[touched] == HRI_NONE) {
      hri_storage home = job->storages.items[touched];
      home.dead = false;
      if (!hri_array_push(&job->storages, home)) {
        job->failed = true;
        return;
      }
      r->home[touched] = (hri_id)job->storages.count - 1;
    } else if (touched >= r->values || (o.access != HRI_WRITE && !r->dropped[touched])) {
      assert(o.access == HRI_READ); /* a clone changes nothing that was kept */
      continue;
    }
    assert(r->home[touched] != HRI_NONE);
    o.tensor = retarget(r, o.tensor);
    hri_operands(job, &job->nodes.items[id])[i] = o;
  }
  if (!hri_array_push(&r->order, id)) job->failed = true;
}

/* Makes sure that the clone of a dropped value exists: all of its producers in their order, and first what they
 * read. */
static void clone_value(rewriter *r, size_t value) {
  hri_job *job = r->job;
  if (job->failed || r->made[value]) return;
  r->made[value] = true;
  for (uint32_t p = r->first[value]; p != HRI_NONE && !job->failed; p = r->producers.items[p].next)
    clone_producer(r, r->producers.items[p].node);
}

static void rewrite(rewriter *r) {
  hri_job *job = r->job;
  const hri_program *p = &job->programs[r->program];
  for (size_t at = 0; at < p->order.count && !job->failed; at++) {
    hri_id id = p->order.items[at];
    if (job->nodes.items[id].phase == HRI_PHASE_BACKWARD) {
      for (uint32_t i = 0; i < job->nodes.items[id].operand_count && !job->failed; i++) {
        hri_operand o = hri_operands(job, &job->nodes.items[id])[i];
        size_t value;
        if (o.tensor == HRI_NONE || o.access != HRI_READ) continue;
        value = job->tensors.items[o.tensor].value;
        if (value >= r->values || !r->dropped[value]) continue;
        clone_value(r, value);
        if (job->failed) return;
        o.tensor = retarget(r, o.tensor);
        hri_operands(job, &job->nodes.items[id])[i] = o;
      }
    }
    if (!hri_array_push(&r->order, id)) job->failed = true;
  }
}

hr_status hri_pass_recompute(hri_job *job, uint8_t program, const uint8_t *levels, uint32_t layer_count, uint32_t group,
                             hr_error *error) {
  rewriter r = {.job = job,
                .program = program,
                .levels = levels,
                .layer_count = layer_count,
                .group = group ? group : 1,
                .values = job->storages.count};
  hr_status status = HR_OK;
  bool any = false;
  job->current_pass = HRI_PASS_RECOMPUTE;
  for (uint32_t l = 0; l < layer_count; l++) any = any || levels[l] != HR_LEVEL_KEEP;
  if (!any) return HR_OK;
  r.first = hri_alloc(r.values * sizeof *r.first);
  r.home = hri_alloc(r.values * sizeof *r.home);
  r.made = hri_alloc_zero(r.values, sizeof *r.made);
  r.cloned = hri_alloc_zero(job->nodes.count, sizeof *r.cloned);
  r.dropped = hri_alloc_zero(r.values, sizeof *r.dropped);
  r.only_activation = hri_alloc_zero(r.values, sizeof *r.only_activation);
  r.boundary = hri_alloc_zero(r.values, sizeof *r.boundary);
  if (!r.first || !r.home || !r.made || !r.cloned || !r.dropped || !r.only_activation || !r.boundary) {
    status = hri_fail_memory(error, r.values * 12, "recomputation");
    goto out;
  }
  memset(r.first, 0xFF, r.values * sizeof *r.first);
  memset(r.home, 0xFF, r.values * sizeof *r.home);
  analyse(&r);
  for (size_t value = 0; value < r.values; value++) r.dropped[value] = drops(&r, value);
  rewrite(&r);
  status = hri_job_ok(job, error);
  if (status == HR_OK) hri_order_replace(job, program, &r.order);
out:
  hri_array_free(&r.order);
  hri_array_free(&r.producers);
  hri_free(r.first);
  hri_free(r.made);
  hri_free(r.cloned);
  hri_free(r.home);
  hri_free(r.dropped);
  hri_free(r.only_activation);
  hri_free(r.boundary);
  return status;
}
