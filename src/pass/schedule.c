/* Reorders the compute lane a little, in two ways. The result of every node is the same; only lives change, and what the
 * caches hold.
 *
 * A node that frees more than it makes moves up past neighbours that it does not depend on and that make more than they
 * free, so that the two never stand at the peak together. Nodes with waits, and everything before the backward, stay.
 *
 * Then a node that only looks over what was written (`fresh`: a gradient's sum of squares) moves up to right behind the
 * last write of it, as a part of that phase, while what it reads is still in a cache: behind the whole backward it would
 * come from memory. What it makes is a number per 65,536 elements, and lives from there on. */
#include <assert.h>
#include <string.h>

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

/* Notes the node at `at` as the last that wrote its results. last: by value, the position behind; 0: nobody. */
static void note_writes(const hri_job *job, const hri_node *node, uint32_t at, uint32_t *last) {
  for (uint32_t i = 0; i < node->operand_count; i++) {
    const hri_operand *o = &hri_operands(job, node)[i];
    if (o->tensor == HRI_NONE || o->access == HRI_READ) continue;
    for (uint32_t k = 0; k < hri_piece_count(job, o->tensor); k++)
      last[job->tensors.items[hri_piece(job, o->tensor, k)].value] = at + 1;
  }
}

/* The position behind the last write of what a fresh node reads; 0 where it stays: nobody wrote it in this program, or
 * other lanes have a part in it. */
static uint32_t written_at(const hri_job *job, const hri_program *p, const hri_node *node, const uint32_t *last) {
  const hri_id read = hri_operands(job, node)[0].tensor;
  uint32_t at = 0;
  if (!hri_rule_get(node->op)->fresh || node->lane != HRI_COMPUTE || node->wait_count) return 0;
  for (uint32_t i = 1; i < node->operand_count; i++) assert(hri_operands(job, node)[i].access == HRI_WRITE);
  for (uint32_t k = 0; k < hri_piece_count(job, read); k++) {
    uint32_t wrote = last[job->tensors.items[hri_piece(job, read, k)].value];
    if (wrote == 0) return 0;
    if (wrote > at) at = wrote;
  }
  return job->nodes.items[p->order.items[at - 1]].lane == HRI_COMPUTE ? at : 0;
}

static hr_status raise_fresh(hri_job *job, uint8_t program, hr_error *error) {
  hri_program *p = &job->programs[program];
  const uint32_t count = (uint32_t)p->order.count;
  uint32_t *last = hri_alloc_zero(job->storages.count, sizeof *last); /* values are named like storages */
  uint32_t *behind = hri_alloc_zero(count + 1, sizeof *behind);       /* where a node goes; 0: where it is */
  uint32_t *next = hri_alloc((count + 1) * sizeof *next), *head = hri_alloc((count + 1) * sizeof *head);
  hri_order order = {0};
  hr_status status = HR_OK;
  if (!last || !behind || !next || !head) {
    status = hri_fail_memory(error, (job->storages.count + 3 * (size_t)count) * sizeof *last, "the order of nodes");
    goto out;
  }
  memset(head, 0xFF, (count + 1) * sizeof *head);
  for (uint32_t at = 0; at < count; at++) {
    const hri_node *node = &job->nodes.items[p->order.items[at]];
    behind[at] = written_at(job, p, node, last);
    note_writes(job, node, at, last);
  }
  for (uint32_t at = count; at-- > 0;) { /* lists by where they go, in the order that they had */
    if (!behind[at]) continue;
    next[at] = head[behind[at] - 1];
    head[behind[at] - 1] = at;
  }
  for (uint32_t at = 0; at < count; at++) {
    if (!behind[at] && !hri_array_push(&order, p->order.items[at])) job->failed = true;
    for (uint32_t up = head[at]; up != HRI_NONE; up = next[up]) {
      job->nodes.items[p->order.items[up]].phase = job->nodes.items[p->order.items[at]].phase;
      if (!hri_array_push(&order, p->order.items[up])) job->failed = true;
    }
  }
  status = hri_job_ok(job, error);
  assert(status != HR_OK || order.count == count);
  if (status == HR_OK) hri_order_replace(job, program, &order);
out:
  hri_array_free(&order);
  hri_free(last);
  hri_free(behind);
  hri_free(next);
  hri_free(head);
  return status;
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
    HRI_TRY(raise_fresh(job, kind, error));
  }
  return HR_OK;
}
