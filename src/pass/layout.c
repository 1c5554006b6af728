/* Gathers the ranges of each unit into segments: contiguous runs with the same (types, trainable, decay, state kind,
 * quantization), with a storage for each thing that they have.
 *
 * What lies in a segment's storage: the weights of parameters, whole, in the segment of their first range; gradients by
 * run, in that of the run's first range; masters and states by range. Each begins at a multiple of 256 elements, so
 * that blockwise quantizers and states never cross a part and do not depend on the rank count. Where the parts of
 * parameters are equal, all of these lie at the same places, and a segment is a run of parameters. What is between two
 * of them is nobody's: nodes act on segments through groups of tensors (hri_tensor_group). */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "pass/pass.h"

enum { FAR = 8 }; /* units come in order: a match is near the end */

typedef enum thing { WEIGHT = 0, GRADIENT, MASTER, STATE, THINGS = STATE + HRI_STATE_TENSORS } thing;

/* Elements of each thing that a segment holds so far, and the first tensor of it, after which its storage is made. */
typedef struct extent {
  uint64_t elements[THINGS];
  hri_id first[THINGS];
} extent;

/* Where a storage goes: by storage, since each tensor of a parameter was born with its own. */
typedef struct home {
  uint32_t segment;
  thing what;
  uint64_t at; /* elements */
} home;

typedef struct layout {
  hri_job *job;
  bool gradients_apart;
  HRI_ARRAY(extent) extents; /* per segment */
  home *homes;               /* per storage; segment HRI_NONE: stays */
} layout;

static hri_dtype dtype_of(const hri_job *job, hri_id tensor) {
  return tensor == HRI_NONE ? HRI_DTYPE_COUNT : (hri_dtype)job->tensors.items[tensor].dtype;
}

static bool same_segment(const hri_job *job, const hri_segment *s, const hri_param_range *r) {
  const hri_param *param = &job->params.items[r->param];
  const hri_part *part = &job->parts.items[r->part_begin];
  const hri_param_range *first =
      &job->ranges.items[s->range_begin]; /* while segments are made: the range that it was made for */
  for (uint32_t k = 0; k < HRI_STATE_TENSORS; k++)
    if (dtype_of(job, first->state[k]) != dtype_of(job, r->state[k])) return false;
  return s->unit != HRI_NONE && s->unit == param->unit && s->dtype == dtype_of(job, r->weight) &&
         s->trainable == part->trainable && s->decay == part->decay && s->state_kind == part->state_kind &&
         s->quantization == part->quantization && dtype_of(job, first->gradient) == dtype_of(job, r->gradient);
}

/* The segment of a range, HRI_NONE when there is none yet. */
static uint32_t find(const hri_job *job, const hri_param_range *range) {
  if (job->parts.items[range->part_begin].quantization) return HRI_NONE; /* loaded one at a time: each stands alone */
  for (uint32_t s = (uint32_t)job->segments.count; s-- > 0 && job->segments.count - s <= FAR + 1;)
    if (same_segment(job, &job->segments.items[s], range)) return s;
  return HRI_NONE;
}

static bool make(layout *l, uint32_t range) {
  hri_job *job = l->job;
  const hri_param_range *r = &job->ranges.items[range];
  const hri_param *param = &job->params.items[r->param];
  const hri_part *part = &job->parts.items[r->part_begin];
  hri_segment fresh = {.unit = param->unit,
                       .layer = param->layer,
                       .dtype = (uint8_t)dtype_of(job, r->weight),
                       .trainable = part->trainable,
                       .decay = part->decay,
                       .state_kind = part->state_kind,
                       .quantization = part->quantization,
                       .weight = HRI_NONE,
                       .gradient = HRI_NONE,
                       .master = HRI_NONE,
                       .range_begin = range};
  extent none;
  memset(&none, 0, sizeof none);
  memset(none.first, 0xFF, sizeof none.first); /* HRI_NONE */
  memset(fresh.state, 0xFF, sizeof fresh.state);
  return hri_array_push(&job->segments, fresh) && hri_array_push(&l->extents, none);
}

/* Behind what the segment holds of this thing. A tensor that shares its storage with one that has a place goes with
 * it. */
static void settle(layout *l, uint32_t segment, thing what, hri_id tensor, uint64_t elements) {
  extent *e = &l->extents.items[segment];
  home *h;
  assert(segment < l->extents.count && l->extents.items);
  if (tensor == HRI_NONE || (what == GRADIENT && l->gradients_apart)) return;
  h = &l->homes[l->job->tensors.items[tensor].storage];
  if (h->segment != HRI_NONE) return;
  *h = (home){segment, what, e->elements[what]};
  e->elements[what] += hri_round_up(elements, HRI_SEGMENT_ALIGN_ELEMENTS);
  if (e->first[what] == HRI_NONE) e->first[what] = tensor;
}

static uint64_t stored_elements_of_storage(const hri_job *job, hri_id tensor) {
  const hri_tensor *t = &job->tensors.items[tensor];
  return job->storages.items[t->storage].bytes / hri_dtype_size((hri_dtype)t->dtype, 1);
}

/* What a state takes in its segment, in elements of the range: as many as there are, or what a list of factors has. */
static uint64_t elements_of_state(const hri_job *job, const hri_param_range *r, uint32_t k) {
  const hri_optimizer *row = hri_optimizer_get(job->parts.items[r->part_begin].state_kind);
  return row->tensors[k].per == HRI_STATE_FACTORS ? stored_elements_of_storage(job, r->state[k]) : r->elements;
}

static hr_status assign(layout *l, hr_error *error) {
  hri_job *job = l->job;
  for (uint32_t at = 0; at < job->ranges.count; at++) {
    hri_param_range *r = &job->ranges.items[at];
    hri_segment *segment;
    uint32_t s = find(job, r);
    if (s == HRI_NONE) {
      if (!make(l, at)) return hri_fail_memory(error, sizeof *segment, "segments");
      s = (uint32_t)job->segments.count - 1;
    }
    segment = &job->segments.items[s];
    r->segment = s;
    r->offset = segment->elements;
    segment->elements += hri_round_up(r->elements, HRI_SEGMENT_ALIGN_ELEMENTS);
    segment->range_count++;
    settle(l, s, WEIGHT, r->weight, job->params.items[r->param].elements);
    if (r->gradient != HRI_NONE) settle(l, s, GRADIENT, r->gradient, stored_elements_of_storage(job, r->gradient));
    settle(l, s, MASTER, r->master, r->elements);
    for (uint32_t k = 0; k < HRI_STATE_TENSORS; k++)
      if (r->state[k] != HRI_NONE) settle(l, s, (thing)(STATE + k), r->state[k], elements_of_state(job, r, k));
  }
  return HR_OK;
}

/* job->laid_out: the ranges segment by segment. */
static hr_status sort(hri_job *job, hr_error *error) {
  uint32_t begin = 0;
  if (!hri_array_reserve(&job->laid_out, job->ranges.count))
    return hri_fail_memory(error, job->ranges.count * sizeof(uint32_t), "segments");
  job->laid_out.count = job->ranges.count;
  for (size_t s = 0; s < job->segments.count; s++) {
    job->segments.items[s].range_begin = begin;
    begin += job->segments.items[s].range_count;
    job->segments.items[s].range_count = 0;
  }
  for (uint32_t r = 0; r < job->ranges.count; r++) {
    hri_segment *segment = &job->segments.items[job->ranges.items[r].segment];
    job->laid_out.items[segment->range_begin + segment->range_count++] = r;
  }
  return HR_OK;
}

/* Its unit and what it holds, with a number where a unit has several such; of no unit: as its one parameter. */
static uint32_t name_of(hri_job *job, const hri_segment *segment, hri_id member, const char *what) {
  const char *kind = segment->decay ? "matrices" : "vectors";
  char number[16] = "";
  uint32_t before = 0;
  if (segment->unit == HRI_NONE) return job->storages.items[job->tensors.items[member].storage].key;
  for (const hri_segment *s = segment; s-- > job->segments.items && s->unit == segment->unit;)
    before += s->decay == segment->decay;
  if (before) (void)snprintf(number, sizeof number, ".%u", before + 1);
  return segment->layer >= 0 ? hri_name(job, "layers.%d.%s%s.%s", segment->layer, kind, number, what)
                             : hri_name(job, "%s.%s%s.%s", segment->unit == 0 ? "embed" : "head", kind, number, what);
}

/* The storage of a thing, labelled like the first member's own; entries that several elements share are fewer. */
static hri_id gather(layout *l, uint32_t s, thing what, uint32_t per, const char *word) {
  hri_job *job = l->job;
  assert(s < l->extents.count && l->extents.items);
  hri_id member = l->extents.items[s].first[what];
  hri_storage storage;
  uint64_t elements = l->extents.items[s].elements[what];
  if (member == HRI_NONE || job->failed) return HRI_NONE;
  storage = job->storages.items[job->tensors.items[member].storage];
  if (elements > UINT64_MAX / 8) {
    job->failed = job->too_large = true;
    return HRI_NONE;
  }
  storage.bytes = hri_dtype_size((hri_dtype)job->tensors.items[member].dtype, elements / per);
  storage.segment = s;
  storage.key = name_of(job, &job->segments.items[s], member, word);
  if (job->failed || !hri_array_push(&job->storages, storage)) {
    job->failed = true;
    return HRI_NONE;
  }
  return (hri_id)job->storages.count - 1;
}

static void gather_all(layout *l) {
  for (uint32_t s = 0; s < l->job->segments.count; s++) {
    const hri_optimizer *row = hri_optimizer_get(l->job->segments.items[s].state_kind);
    hri_segment made = l->job->segments.items[s];
    made.weight = gather(l, s, WEIGHT, 1, "weight");
    made.master = gather(l, s, MASTER, 1, "master");
    made.gradient = gather(l, s, GRADIENT, 1, "gradient");
    for (uint32_t k = 0; k < row->tensor_count; k++)
      made.state[k] = gather(l, s, (thing)(STATE + k), hri_state_share(&row->tensors[k]), row->tensors[k].name);
    l->job->segments.items[s] = made;
  }
}

static hr_status move(layout *l, size_t storages, hr_error *error) {
  hri_job *job = l->job;
  hri_merge merge;
  HRI_TRY(hri_merge_init(&merge, job, error));
  for (hri_id s = 0; s < storages; s++) {
    const home *h = &l->homes[s];
    const hri_segment *segment;
    const hri_optimizer *row;
    hri_id to;
    uint32_t per = 1;
    if (h->segment == HRI_NONE) continue;
    assert(h->segment < l->extents.count && l->extents.items);
    segment = &job->segments.items[h->segment];
    row = hri_optimizer_get(segment->state_kind);
    to = h->what == WEIGHT     ? segment->weight
         : h->what == GRADIENT ? segment->gradient
         : h->what == MASTER   ? segment->master
                               : segment->state[h->what - STATE];
    if (h->what >= STATE) per = hri_state_share(&row->tensors[h->what - STATE]);
    assert(h->at % per == 0);
    hri_merge_set(&merge, s, to,
                  hri_dtype_size(dtype_of(job, l->extents.items[h->segment].first[h->what]), h->at / per));
  }
  hri_merge_apply(&merge, job);
  hri_merge_deinit(&merge);
  return HR_OK;
}

/* `begin` zeroes gradients by the segment, padding and all. */
static void zero_segments(hri_job *job) {
  hri_program *begin = &job->programs[HRI_BEGIN];
  size_t kept = 0;
  for (size_t at = 0; at < begin->order.count; at++) {
    const hri_node *node = &job->nodes.items[begin->order.items[at]];
    hri_id storage = job->tensors.items[hri_operands(job, node)[0].tensor].storage;
    if (node->op != HRI_OP_ZERO || job->storages.items[storage].segment == HRI_NONE)
      begin->order.items[kept++] = begin->order.items[at];
  }
  begin->order.count = kept;
  for (uint32_t s = 0; begin->present && s < job->segments.count; s++) {
    const hri_segment segment = job->segments.items[s];
    hri_emit emit = {.program = HRI_BEGIN,
                     .lane = HRI_COMPUTE,
                     .phase = HRI_PHASE_OPTIMIZER,
                     .layer = segment.layer,
                     .unit = segment.unit,
                     .origin = HRI_NONE};
    if (segment.gradient != HRI_NONE)
      hri_node_append(job, HRI_OP_ZERO, emit, NULL,
                      (hri_operand[]){HRI_W(hri_tensor_of_storage(
                          job, segment.gradient,
                          dtype_of(job, job->ranges.items[job->laid_out.items[segment.range_begin]].gradient)))},
                      1);
  }
}

hr_status hri_pass_layout(hri_job *job, bool gradients_apart, hr_error *error) {
  layout l = {.job = job, .gradients_apart = gradients_apart};
  size_t storages = job->storages.count;
  hr_status status = HR_OK;
  job->current_pass = HRI_PASS_LAYOUT;
  l.homes = hri_alloc(storages * sizeof *l.homes);
  if (!l.homes) return hri_fail_memory(error, storages * sizeof *l.homes, "segments");
  memset(l.homes, 0xFF, storages * sizeof *l.homes); /* segment HRI_NONE */
  HRI_TRY_OUT(assign(&l, error));
  HRI_TRY_OUT(sort(job, error));
  gather_all(&l);
  HRI_TRY_OUT(hri_job_ok(job, error));
  HRI_TRY_OUT(move(&l, storages, error));
  zero_segments(job);
  status = hri_job_ok(job, error);
out:
  hri_array_free(&l.extents);
  hri_free(l.homes);
  return status;
}
