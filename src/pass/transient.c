/* Makes transients again before each use (a dequantized weight: once in the forward, once more in the backward), so
 * that no more than one of them lives, whatever the recompute levels are.
 *
 * A use is one node, or several that stand one behind the other. Each gets a clone of the producer right before it, and
 * of the transients that this one reads, with its site: the same bits. What a producer else reads is kept, as anything
 * that is read. The passes behind see ordinary values. */
#include <assert.h>
#include <string.h>

#include "pass/pass.h"

typedef struct maker {
  hri_job *job;
  uint8_t program;
  size_t values;
  hri_id *producer; /* per value: the node that writes it, HRI_NONE when it is no transient of this program */
  hri_id *home;     /* per value: the storage of its newest copy */
  uint32_t *used;   /* per value: number of the node that last used it; 0 before the first */
  hri_order order;
} maker;

static bool is_transient(const hri_job *job, size_t values, hri_id tensor) {
  return tensor != HRI_NONE && job->tensors.items[tensor].value < values &&
         job->storages.items[job->tensors.items[tensor].value].transient;
}

static void find_producers(maker *m) {
  const hri_program *p = &m->job->programs[m->program];
  memset(m->producer, 0xFF, m->values * sizeof *m->producer);
  memset(m->used, 0, m->values * sizeof *m->used);
  for (size_t at = 0; at < p->order.count; at++) {
    const hri_node *node = &m->job->nodes.items[p->order.items[at]];
    const hri_operand *o = hri_operands(m->job, node);
    for (uint32_t i = 0; i < node->operand_count; i++)
      if (o[i].access == HRI_WRITE && is_transient(m->job, m->values, o[i].tensor))
        m->producer[m->job->tensors.items[o[i].tensor].value] = p->order.items[at];
  }
}

static bool is_producer(const maker *m, hri_id id) {
  const hri_node *node = &m->job->nodes.items[id];
  const hri_operand *o = hri_operands(m->job, node);
  for (uint32_t i = 0; i < node->operand_count; i++)
    if (o[i].access == HRI_WRITE && is_transient(m->job, m->values, o[i].tensor)) return true;
  return false;
}

static hri_id shown_at(maker *m, hri_id tensor, hri_id home) {
  hri_tensor copy = m->job->tensors.items[tensor];
  if (copy.value == home) return tensor;
  copy.storage = copy.value = home;
  if (!hri_array_push(&m->job->tensors, copy)) {
    m->job->failed = true;
    return HRI_NONE;
  }
  return (hri_id)m->job->tensors.count - 1;
}

static void use(maker *m, hri_id id, uint32_t number);

/* Puts a clone of the producer of a value to the end of the order; the producer itself stays as the pattern, and leaves
 * the program. The first clone writes to the value's own storage, each further one to a home of its own. */
static void make(maker *m, size_t value, const hri_node reader, uint32_t number) {
  hri_job *job = m->job;
  bool first = m->used[value] == 0;
  hri_id id;
  assert(m->producer[value] != HRI_NONE); /* written in this program: a transient is local */
  id = hri_node_clone(job, m->producer[value]);
  if (job->failed) return;
  m->home[value] = (hri_id)value;
  if (!first) {
    hri_storage home = job->storages.items[value];
    if (!hri_array_push(&job->storages, home)) job->failed = true;
    m->home[value] = (hri_id)job->storages.count - 1;
    job->nodes.items[id].origin = m->producer[value];
    job->nodes.items[id].phase = reader.phase;
  }
  m->used[value] = number;
  assert(job->nodes.items[id].lane == HRI_COMPUTE && job->nodes.items[m->producer[value]].wait_count == 0);
  use(m, id, number);
  for (uint32_t i = 0; i < job->nodes.items[id].operand_count && !job->failed; i++) {
    hri_operand o = hri_operands(job, &job->nodes.items[id])[i];
    if (o.access != HRI_WRITE || !is_transient(job, m->values, o.tensor)) continue;
    assert(job->tensors.items[o.tensor].value == value); /* one producer makes one transient */
    o.tensor = shown_at(m, o.tensor, m->home[value]);
    hri_operands(job, &job->nodes.items[id])[i] = o;
  }
  if (!job->failed && !hri_array_push(&m->order, id)) job->failed = true;
}

/* Makes what a node reads of transients, and points it there. `number` counts the nodes that are no producers. */
static void use(maker *m, hri_id id, uint32_t number) {
  hri_job *job = m->job;
  for (uint32_t i = 0; i < job->nodes.items[id].operand_count && !job->failed; i++) {
    hri_operand o = hri_operands(job, &job->nodes.items[id])[i];
    size_t value;
    if (o.access != HRI_READ || !is_transient(job, m->values, o.tensor)) continue;
    value = job->tensors.items[o.tensor].value;
    if (m->used[value] == 0 || m->used[value] + 1 < number) make(m, value, job->nodes.items[id], number);
    if (job->failed) return;
    m->used[value] = number;
    o.tensor = shown_at(m, o.tensor, m->home[value]);
    hri_operands(job, &job->nodes.items[id])[i] = o;
  }
}

static void rewrite(maker *m) {
  hri_job *job = m->job;
  const hri_program *p = &job->programs[m->program];
  uint32_t number = 0;
  find_producers(m);
  for (size_t at = 0; at < p->order.count && !job->failed; at++) {
    hri_id id = p->order.items[at];
    if (is_producer(m, id)) continue; /* comes before its uses; one that nothing uses goes */
    use(m, id, ++number);
    if (!job->failed && !hri_array_push(&m->order, id)) job->failed = true;
  }
  if (!job->failed) hri_order_replace(job, m->program, &m->order);
}

hr_status hri_pass_transient(hri_job *job, hr_error *error) {
  maker m = {.job = job, .values = job->storages.count};
  hr_status status = HR_OK;
  bool any = false;
  job->current_pass = HRI_PASS_TRANSIENT;
  for (size_t s = 0; s < m.values && !any; s++) any = job->storages.items[s].transient && !job->storages.items[s].dead;
  if (!any) return HR_OK;
  m.producer = hri_alloc(m.values * sizeof *m.producer);
  m.home = hri_alloc(m.values * sizeof *m.home);
  m.used = hri_alloc(m.values * sizeof *m.used);
  if (!m.producer || !m.home || !m.used) {
    status = hri_fail_memory(error, m.values * 12, "transients");
    goto out;
  }
  for (uint8_t kind = 0; kind < HRI_PROGRAM_COUNT && !job->failed; kind++) {
    m.program = kind;
    if (job->programs[kind].present) rewrite(&m);
  }
  status = hri_job_ok(job, error);
out:
  hri_array_free(&m.order);
  hri_free(m.producer);
  hri_free(m.home);
  hri_free(m.used);
  return status;
}
