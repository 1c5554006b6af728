/* Reorders the compute lane a little: a node that frees more than it makes moves up past neighbours that it does not
 * depend on and that make more than they free, so that the two never stand at the peak together. The result of every
 * node is the same; only lives change. Nodes with waits, and everything before the backward, stay. */
#include "pass/pass.h"

enum { WINDOW = 6 };

static bool conflicts(const hri_job *job, const hri_node *a, const hri_node *b) {
  const hri_operand *x = hri_operands(job, a), *y = hri_operands(job, b);
  for (uint32_t i = 0; i < a->operand_count; i++)
    for (uint32_t j = 0; j < b->operand_count; j++) {
      if (x[i].tensor == HRI_NONE || y[j].tensor == HRI_NONE || (x[i].access == HRI_READ && y[j].access == HRI_READ))
        continue;
      if (job->tensors.items[x[i].tensor].storage == job->tensors.items[y[j].tensor].storage) return true;
    }
  return false;
}

/* Bytes made minus bytes freed by the node at `at`, local storages only. */
static int64_t net_bytes(const hri_job *job, const hri_node *node, uint32_t at, const uint32_t *first,
                         const uint32_t *last) {
  int64_t net = 0;
  for (uint32_t i = 0; i < node->operand_count; i++) {
    hri_id t = hri_operands(job, node)[i].tensor, s;
    if (t == HRI_NONE) continue;
    s = job->tensors.items[t].storage;
    if (job->storages.items[s].scope || job->storages.items[s].tier != HRI_DEVICE) continue;
    if (first[s] == at) net += (int64_t)job->storages.items[s].bytes;
    if (last[s] == at) net -= (int64_t)job->storages.items[s].bytes;
  }
  return net;
}

static void swap_ranges(const hri_job *job, const hri_node *up, const hri_node *down, uint32_t at, uint32_t *first,
                        uint32_t *last) {
  /* `up` moved from at to at - 1, `down` from at - 1 to at; they share at most storages that both read */
  for (int turn = 0; turn < 2; turn++) {
    const hri_node *node = turn == 0 ? up : down;
    uint32_t from = turn == 0 ? at : at - 1, to = turn == 0 ? at - 1 : at;
    for (uint32_t i = 0; i < node->operand_count; i++) {
      hri_id t = hri_operands(job, node)[i].tensor, s;
      if (t == HRI_NONE) continue;
      s = job->tensors.items[t].storage;
      if (first[s] == from && to < from) first[s] = to;
      else if (first[s] == from && to > from) {
        bool shared = false;
        for (uint32_t j = 0; j < up->operand_count; j++)
          if (hri_operands(job, up)[j].tensor != HRI_NONE &&
              job->tensors.items[hri_operands(job, up)[j].tensor].storage == s)
            shared = true;
        if (!shared) first[s] = to;
      }
      if (last[s] == from && to > from) last[s] = to;
      else if (last[s] == from && to < from) {
        bool shared = false;
        for (uint32_t j = 0; j < down->operand_count; j++)
          if (hri_operands(job, down)[j].tensor != HRI_NONE &&
              job->tensors.items[hri_operands(job, down)[j].tensor].storage == s)
            shared = true;
        last[s] = shared ? at : to;
      }
    }
  }
}

hr_status hri_pass_schedule(hri_job *job, hr_error *error) {
  job->current_pass = HRI_PASS_SCHEDULE;
  for (uint8_t kind = 0; kind < HRI_PROGRAM_COUNT; kind++) {
    hri_program *p = &job->programs[kind];
    uint32_t *first, *last;
    if (!p->present || (kind != HRI_STEP && kind != HRI_MICRO)) continue;
    HRI_TRY(hri_touch_range(job, kind, &first, &last, error));
    for (uint32_t at = 1; at < p->order.count; at++) {
      for (uint32_t k = at; k > 0 && at - k < WINDOW; k--) {
        const hri_node *node = &job->nodes.items[p->order.items[k]], *above = &job->nodes.items[p->order.items[k - 1]];
        hri_id moved;
        if (node->phase != HRI_PHASE_BACKWARD || above->phase != HRI_PHASE_BACKWARD || node->lane != HRI_COMPUTE ||
            above->lane != HRI_COMPUTE)
          break;
        if (node->wait_count || above->wait_count || conflicts(job, node, above)) break;
        if (net_bytes(job, node, k, first, last) >= 0 || net_bytes(job, above, k - 1, first, last) <= 0) break;
        moved = p->order.items[k];
        p->order.items[k] = p->order.items[k - 1];
        p->order.items[k - 1] = moved;
        swap_ranges(job, &job->nodes.items[moved], above, k, first, last);
      }
    }
    hri_free(first);
    hri_free(last);
  }
  return HR_OK;
}
