/* Moves saved activations to the host tier and back, on lanes of their own.
 *
 * A saved value v, made in the forward and read in the backward, gets
 *     copy-out lane:  copy v -> v.host        waits for the last forward toucher of v (compute)
 *     compute lane:   a forward node `distance` later waits for the copy-out: there v's bytes are free again
 *     copy-in lane:   copy v.host -> v.back   waits for the compute node `distance` before the first backward reader
 *     compute lane:   the first backward reader waits for the copy-in; backward readers read v.back
 * The waits make the prefetch distance visible: more distance, more overlap, more bytes. */
#include <assert.h>
#include <string.h>

#include "pass/pass.h"

typedef struct saved {
  uint32_t last_forward, first_backward; /* positions */
  hri_id tensor;                         /* a tensor that shows the whole value */
} saved;

static hri_id copy_tensor(hri_job *job, hri_id like, hri_tier tier, uint8_t program, const char *suffix) {
  hri_tensor t = job->tensors.items[like];
  hri_storage s = job->storages.items[t.storage];
  hri_place place = {.program = program, .tier = (uint8_t)tier, .role = s.role, .layer = s.layer, .unit = s.unit};
  return hri_tensor_new(job, place, hri_name(job, "%s%s", hri_name_get(job, s.key), suffix), (hri_dtype)t.dtype, t.rank,
                        t.dims, t.stored);
}

static hr_status find_saved(const hri_job *job, uint8_t program, uint64_t minimum, saved *list, size_t values) {
  const hri_program *p = &job->programs[program];
  for (size_t v = 0; v < values; v++) list[v] = (saved){UINT32_MAX, UINT32_MAX, HRI_NONE};
  for (uint32_t at = 0; at < p->order.count; at++) {
    const hri_node *node = &job->nodes.items[p->order.items[at]];
    for (uint32_t i = 0; i < node->operand_count; i++) {
      hri_operand o = hri_operands(job, node)[i];
      const hri_tensor *t;
      if (o.tensor == HRI_NONE) continue;
      t = &job->tensors.items[o.tensor];
      if (t->storage >= values || job->storages.items[t->storage].role != HRI_ROLE_ACTIVATION ||
          job->storages.items[t->storage].bytes < minimum)
        continue;
      if (node->phase == HRI_PHASE_FORWARD) {
        if (o.access == HRI_WRITE && t->offset == 0 && hri_tensor_bytes(t) == job->storages.items[t->storage].bytes)
          list[t->storage].tensor = o.tensor;
        list[t->storage].last_forward = at;
      } else if (node->phase == HRI_PHASE_BACKWARD && list[t->storage].first_backward == UINT32_MAX) {
        list[t->storage].first_backward = at;
      }
    }
  }
  return HR_OK;
}

typedef struct insertion {
  uint32_t before, next;
  hri_id node;
} insertion; /* next: of the same position */

/* The order with every insertion before its position, those of one position as they were made. */
static void merge(hri_job *job, const hri_program *p, insertion *inserted, size_t made, uint32_t *first, uint32_t *last,
                  hri_order *order) {
  memset(first, 0xFF, (p->order.count + 1) * sizeof *first);
  for (uint32_t k = 0; k < made; k++) {
    uint32_t at = inserted[k].before;
    inserted[k].next = HRI_NONE;
    if (first[at] == HRI_NONE) first[at] = k;
    else inserted[last[at]].next = k;
    last[at] = k;
  }
  for (uint32_t at = 0; at <= p->order.count && !job->failed; at++) {
    for (uint32_t k = first[at]; k != HRI_NONE && !job->failed; k = inserted[k].next) {
      assert(k < made && inserted); /* chains hold indices of what was made alone */
      if (!hri_array_push(order, inserted[k].node)) job->failed = true;
    }
    if (at < p->order.count && !hri_array_push(order, p->order.items[at])) job->failed = true;
  }
}

hr_status hri_pass_offload(hri_job *job, uint8_t program, uint64_t minimum_bytes, uint32_t distance, hr_error *error) {
  hri_program *p = &job->programs[program];
  size_t values = job->storages.count;
  saved *list = hri_alloc(values * sizeof *list);
  HRI_ARRAY(insertion) inserted = {0};
  hri_order order = {0};
  hr_status status = HR_OK;
  uint32_t count = (uint32_t)p->order.count;
  uint32_t *ends = hri_alloc(2 * ((size_t)count + 1) * sizeof *ends); /* per position: its first and last insertion */
  if (!list || !ends) {
    status = hri_fail_memory(error, values * sizeof *list, "offloading");
    goto out;
  }
  job->current_pass = HRI_PASS_OFFLOAD;
  if (distance == 0) distance = 1;
  HRI_TRY_OUT(find_saved(job, program, minimum_bytes, list, values));
  for (size_t v = 0; v < values && !job->failed; v++) {
    uint32_t release = list[v].last_forward + distance, start;
    hri_id host, back, out, in;
    hri_emit emit = {.program = program,
                     .phase = HRI_PHASE_FORWARD,
                     .layer = job->storages.items[v].layer,
                     .unit = job->storages.items[v].unit,
                     .origin = HRI_NONE};
    if (list[v].tensor == HRI_NONE || list[v].last_forward == UINT32_MAX || list[v].first_backward == UINT32_MAX)
      continue;
    if (list[v].first_backward <= release + distance + 1) continue; /* too near: nothing to win */
    start = list[v].first_backward - distance;
    host = copy_tensor(job, list[v].tensor, HRI_HOST, program, ".host");
    back = copy_tensor(job, list[v].tensor, HRI_DEVICE, program, ".back");
    emit.lane = HRI_COPY_OUT;
    out = hri_node_new(job, HRI_OP_COPY, emit, NULL, (hri_operand[]){HRI_R(list[v].tensor), HRI_W(host)}, 2);
    hri_node_add_wait(job, out, p->order.items[list[v].last_forward]);
    hri_node_add_wait(job, p->order.items[release], out);
    emit.lane = HRI_COPY_IN;
    emit.phase = HRI_PHASE_BACKWARD;
    in = hri_node_new(job, HRI_OP_COPY, emit, NULL, (hri_operand[]){HRI_R(host), HRI_W(back)}, 2);
    hri_node_add_wait(job, in, out);
    hri_node_add_wait(job, in, p->order.items[start - 1]);
    hri_node_add_wait(job, p->order.items[list[v].first_backward], in);
    if (!hri_array_push(&inserted, ((insertion){.before = list[v].last_forward + 1, .node = out})) ||
        !hri_array_push(&inserted, ((insertion){.before = start, .node = in})))
      job->failed = true;
    for (uint32_t at = list[v].first_backward; at < count && !job->failed; at++) {
      hri_id id = p->order.items[at];
      for (uint32_t i = 0; i < job->nodes.items[id].operand_count && !job->failed; i++) {
        hri_operand o = hri_operands(job, &job->nodes.items[id])[i];
        hri_tensor t;
        if (o.tensor == HRI_NONE || o.access != HRI_READ || job->tensors.items[o.tensor].storage != v) continue;
        t = job->tensors.items[o.tensor];
        t.storage = t.value = job->tensors.items[back].storage;
        if (!hri_array_push(&job->tensors, t)) job->failed = true;
        else hri_operands(job, &job->nodes.items[id])[i].tensor = (hri_id)job->tensors.count - 1;
      }
    }
  }
  merge(job, p, inserted.items, inserted.count, ends, ends + count + 1, &order);
  HRI_TRY_OUT(hri_job_ok(job, error));
  hri_order_replace(job, program, &order);
out:
  hri_array_free(&order);
  hri_array_free(&inserted);
  hri_free(ends);
  hri_free(list);
  return status;
}
