/* The dump of a job: one line per node, then the storages. Those that no node touches stand apart, in text alone: a
 * pass left them behind, or nobody reads an input; they have no place in an arena and are counted nowhere. Stable, so that two dumps can be compared. */
#include "base/json.h"
#include "base/text.h"
#include "program/check.h"

static void print_dims(hri_text *out, const hri_tensor *t) {
  for (uint32_t d = 0; d < t->rank; d++) {
    hri_text_add(out, "%s%llu", d ? "," : "[", (unsigned long long)t->dims[d]);
    if (t->stored[d] != t->dims[d]) hri_text_add(out, "(%llu)", (unsigned long long)t->stored[d]);
  }
  hri_text_add(out, "]");
  if (t->stride) hri_text_add(out, "/%llu", (unsigned long long)t->stride);
}

/* A guard is read like any operand; its own word says that the node depends on it. An absent one is not mentioned. */
static bool is_guard(const hri_node *node, uint32_t operand) { return operand == hri_guard_position(node->op); }

static void print_node(const hri_job *job, uint32_t at, hri_id id, hri_text *out) {
  const hri_node *node = &job->nodes.items[id];
  hri_text_add(out, "  %5u  n%-6u %-12s %-10s L%-3d %-22s", at, id, hri_lane_name((hri_lane)node->lane),
               hri_phase_name((hri_phase)node->phase), node->layer, hri_op_name(node->op));
  for (uint32_t i = 0; i < node->operand_count; i++) {
    hri_operand o = hri_operands(job, node)[i];
    const hri_tensor *t;
    if (o.tensor == HRI_NONE) continue;
    t = &job->tensors.items[o.tensor];
    hri_text_add(out, " %s:%s@s%u", is_guard(node, i) ? "guard" : hri_access_name((hri_access)o.access),
                 hri_name_get(job, t->key), t->storage);
    if (t->offset) hri_text_add(out, "+%llu", (unsigned long long)t->offset);
    hri_text_add(out, ":%s", hri_dtype_name((hri_dtype)t->dtype));
    print_dims(out, t);
  }
  for (uint32_t w = 0; w < node->wait_count; w++)
    hri_text_add(out, " wait:%s/n%u", hri_lane_name((hri_lane)job->waits.items[node->wait_begin + w].lane),
                 job->waits.items[node->wait_begin + w].node);
  if (node->origin != HRI_NONE) hri_text_add(out, " recomputes:n%u", node->origin);
  hri_text_add(out, "\n");
}

static void print_storage(const hri_job *job, size_t s, const uint64_t *offsets, hri_text *out) {
  const hri_storage *st = &job->storages.items[s];
  hri_text_add(out, "  s%-6zu %-6s %-15s %12llu bytes  at %-12llu scope", s, hri_tier_name((hri_tier)st->tier),
               hri_role_name((hri_role)st->role), (unsigned long long)st->bytes,
               (unsigned long long)(offsets ? offsets[s] : 0));
  for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++)
    if (st->scope ? (st->scope & HRI_IN(kind)) != 0 : st->program == kind)
      hri_text_add(out, " %s", hri_program_name((hri_program_kind)kind));
  hri_text_add(out, "  %s\n", hri_name_get(job, st->key));
}

static void print_text(const hri_job *job, const bool *touched, const uint64_t *offsets, hri_text *out) {
  for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++) {
    const hri_program *p = &job->programs[kind];
    if (!p->present) continue;
    hri_text_add(out, "program %s: %zu nodes\n", hri_program_name((hri_program_kind)kind), p->order.count);
    for (uint32_t at = 0; at < p->order.count; at++) print_node(job, at, p->order.items[at], out);
  }
  hri_text_add(out, "storages\n");
  for (size_t s = 0; s < job->storages.count; s++)
    if (touched[s]) print_storage(job, s, offsets, out);
  hri_text_add(out, "untouched storages, which have no place\n");
  for (size_t s = 0; s < job->storages.count; s++)
    if (!touched[s] && !job->storages.items[s].dead) print_storage(job, s, offsets, out);
  for (size_t k = 0; k < job->segments.count; k++) {
    const hri_segment *g = &job->segments.items[k];
    hri_text_add(out, "segment %zu: ", k);
    if (g->unit != HRI_NONE) hri_text_add(out, "unit %u, ", g->unit);
    hri_text_add(out, "%llu elements, %s%s, parameters", (unsigned long long)g->elements,
                 g->trainable ? "trainable" : "frozen", g->decay ? ", decay" : "");
    for (uint32_t q = 0; q < g->range_count; q++) {
      const hri_param_range *range = &job->ranges.items[job->laid_out.items[g->range_begin + q]];
      const hri_param *param = &job->params.items[range->param];
      const uint64_t end = range->row + range->rows;
      hri_text_add(out, " %s", hri_name_get(job, param->key));
      if (param->range_count > 1)
        hri_text_add(out, "[%llu:%llu]", (unsigned long long)range->row, (unsigned long long)end);
    }
    hri_text_add(out, "\n");
  }
}

static void json_node(hri_json_writer *w, const hri_job *job, hri_id id) {
  const hri_node *node = &job->nodes.items[id];
  hri_json_begin_object(w);
  hri_json_key(w, "node");
  hri_json_put_u64(w, id);
  hri_json_key(w, "op");
  hri_json_put_string(w, hri_op_name(node->op));
  hri_json_key(w, "lane");
  hri_json_put_string(w, hri_lane_name((hri_lane)node->lane));
  hri_json_key(w, "phase");
  hri_json_put_string(w, hri_phase_name((hri_phase)node->phase));
  hri_json_key(w, "layer");
  hri_json_put_i64(w, node->layer);
  hri_json_key(w, "site");
  hri_json_put_u64(w, node->site);
  if (node->origin != HRI_NONE) {
    hri_json_key(w, "recomputes");
    hri_json_put_u64(w, node->origin);
  }
  hri_json_key(w, "operands");
  hri_json_begin_array(w);
  for (uint32_t i = 0; i < node->operand_count; i++) {
    hri_operand o = hri_operands(job, node)[i];
    const hri_tensor *t;
    if (o.tensor == HRI_NONE) {
      if (!is_guard(node, i)) hri_json_put_null(w);
      continue;
    }
    t = &job->tensors.items[o.tensor];
    hri_json_begin_object(w);
    hri_json_key(w, "name");
    hri_json_put_string(w, hri_name_get(job, t->key));
    hri_json_key(w, "access");
    hri_json_put_string(w, hri_access_name((hri_access)o.access));
    hri_json_key(w, "dtype");
    hri_json_put_string(w, hri_dtype_name((hri_dtype)t->dtype));
    hri_json_key(w, "storage");
    hri_json_put_u64(w, t->storage);
    hri_json_key(w, "offset_bytes");
    hri_json_put_u64(w, t->offset);
    hri_json_key(w, "dims");
    hri_json_begin_array(w);
    for (uint32_t d = 0; d < t->rank; d++) hri_json_put_u64(w, t->dims[d]);
    hri_json_end_array(w);
    if (t->stride) {
      hri_json_key(w, "row_stride");
      hri_json_put_u64(w, t->stride);
    }
    if (is_guard(node, i)) {
      hri_json_key(w, "guard");
      hri_json_put_bool(w, true);
    }
    hri_json_end_object(w);
  }
  hri_json_end_array(w);
  hri_json_key(w, "waits");
  hri_json_begin_array(w);
  for (uint32_t k = 0; k < node->wait_count; k++) hri_json_put_u64(w, job->waits.items[node->wait_begin + k].node);
  hri_json_end_array(w);
  hri_json_end_object(w);
}

static void print_json(const hri_job *job, const bool *touched, const uint64_t *offsets, hri_text *out) {
  hri_json_writer writer = hri_json_writer_init(out, 0), *w = &writer;
  hri_json_begin_object(w);
  hri_json_key(w, "schema_version");
  hri_json_put_u64(w, 1);
  hri_json_key(w, "programs");
  hri_json_begin_object(w);
  for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++) {
    if (!job->programs[kind].present) continue;
    hri_json_key(w, hri_program_name((hri_program_kind)kind));
    hri_json_begin_array(w);
    for (size_t at = 0; at < job->programs[kind].order.count; at++)
      json_node(w, job, job->programs[kind].order.items[at]);
    hri_json_end_array(w);
  }
  hri_json_end_object(w);
  hri_json_key(w, "storages");
  hri_json_begin_array(w);
  for (size_t s = 0; s < job->storages.count; s++) {
    const hri_storage *st = &job->storages.items[s];
    if (!touched[s]) continue;
    hri_json_begin_object(w);
    hri_json_key(w, "storage");
    hri_json_put_u64(w, s);
    hri_json_key(w, "name");
    hri_json_put_string(w, hri_name_get(job, st->key));
    hri_json_key(w, "tier");
    hri_json_put_string(w, hri_tier_name((hri_tier)st->tier));
    hri_json_key(w, "role");
    hri_json_put_string(w, hri_role_name((hri_role)st->role));
    hri_json_key(w, "bytes");
    hri_json_put_u64(w, st->bytes);
    hri_json_key(w, "offset_bytes");
    hri_json_put_u64(w, offsets ? offsets[s] : 0);
    hri_json_key(w, "carried");
    hri_json_put_bool(w, st->scope != 0);
    hri_json_end_object(w);
  }
  hri_json_end_array(w);
  hri_json_end_object(w);
  hri_text_add(out, "\n");
}

/* Of each storage whether a node touches it; the caller's (hri_free). */
static bool *find_touched(const hri_job *job) {
  bool *touched = hri_alloc_zero(job->storages.count + 1, sizeof *touched);
  for (int kind = 0; touched && kind < HRI_PROGRAM_COUNT; kind++)
    for (size_t at = 0; at < job->programs[kind].order.count; at++) {
      const hri_node *node = &job->nodes.items[job->programs[kind].order.items[at]];
      for (uint32_t i = 0; i < node->operand_count; i++)
        if (hri_operands(job, node)[i].tensor != HRI_NONE)
          touched[job->tensors.items[hri_operands(job, node)[i].tensor].storage] = true;
    }
  return touched;
}

hr_status hri_job_print(const hri_job *job, bool json, const uint64_t *offsets, struct hri_text *out, hr_error *error) {
  bool *touched = find_touched(job);
  if (!touched) return hri_fail_memory(error, job->storages.count, "the dump");
  (json ? print_json : print_text)(job, touched, offsets, out);
  hri_free(touched);
  return out->failed ? hri_fail_memory(error, out->length, "the dump") : HR_OK;
}
