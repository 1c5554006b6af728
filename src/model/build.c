/* The common transformer block as data: families differ only in the fields of hr_model.
 *
 * q,k,v are one matrix product, and gate,up are one: the fused weights are single parameters (see params.h). The
 * residual stream is formed by add nodes; the fuse pass joins them with the norm that follows. */
#include "model/build.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/real.h"
#include "model/family.h"
#include "model/freeze.h"
#include "model/gguf.h"
#include "model/params.h"
#include "model/rope.h"
#include "program/ops.h"
#include "program/quantization.h"

/* Staging of a load or save node: at least what the largest block of a file format takes beside its values, at most 4
 * MiB, or half a MiB for each of a large team. */
enum { STAGING_LEAST = 4096, STAGING_BYTES = 4 << 20, STAGING_OF_THREAD = 1 << 19 };

typedef struct builder {
  hri_job *job;
  const hr_job *spec;
  const hr_model *model;
  uint16_t all;                        /* scope of what every program sees */
  hri_id rope_table, local_rope_table; /* HRI_NONE when there is none */
  uint32_t
      *slots; /* [layer_count + 1][HRI_SLOT_COUNT] -> parameter, HRI_NONE; row 0 holds what is outside of the layers */
  hri_emit emit; /* of the program being built */
  uint32_t site;
} builder;

static hri_place local(const builder *b, hri_role role) {
  return (hri_place){.program = b->emit.program,
                     .tier = HRI_DEVICE,
                     .role = (uint8_t)role,
                     .layer = b->emit.layer,
                     .unit = b->emit.unit};
}

static hri_id fresh(builder *b, hri_role role, hri_dtype dtype, uint64_t rows, uint64_t columns, const char *name) {
  uint64_t dims[2] = {rows, columns};
  uint32_t key =
      b->emit.layer >= 0 ? hri_name(b->job, "layers.%d.%s", b->emit.layer, name) : hri_name(b->job, "%s", name);
  return hri_tensor_new(b->job, local(b, role), key, dtype, columns ? 2 : 1, dims, NULL);
}

static hri_id emit(builder *b, hri_op op, const hri_attr *attr, const hri_operand *operands, uint32_t count) {
  b->emit.site = b->site++;
  return hri_node_append(b->job, (uint16_t)op, b->emit, attr, operands, count);
}

static uint32_t param_at(const builder *b, int32_t layer, hri_slot slot) {
  return slot == HRI_SLOT_NONE ? HRI_NONE : b->slots[(uint32_t)(layer + 1) * HRI_SLOT_COUNT + slot];
}

static hri_id weight_at(const builder *b, int32_t layer, hri_slot slot) {
  uint32_t param = param_at(b, layer, slot);
  return param == HRI_NONE || b->job->failed ? HRI_NONE : b->job->params.items[param].weight;
}

uint64_t hri_staging_bytes(uint64_t bytes, uint32_t team) {
  uint64_t most =
      (uint64_t)team * STAGING_OF_THREAD > STAGING_BYTES ? (uint64_t)team * STAGING_OF_THREAD : STAGING_BYTES;
  if (bytes < STAGING_LEAST) return STAGING_LEAST;
  return bytes < most ? hri_round_up(bytes, HRI_STORAGE_ALIGN) : most;
}

/* ---- parameters, inputs, control ---- */

uint16_t hri_programs_of(const hr_job *spec) {
  uint16_t all = HRI_IN(HRI_LOAD);
  bool generate = spec->purpose == HR_PURPOSE_GENERATE || spec->with_generation;
  if (spec->purpose == HR_PURPOSE_TRAIN) {
    all |= spec->accumulate > 1 ? HRI_IN(HRI_BEGIN) | HRI_IN(HRI_MICRO) | HRI_IN(HRI_UPDATE) : HRI_IN(HRI_STEP);
    all |= HRI_IN(HRI_SAVE);
  }
  if (spec->purpose != HR_PURPOSE_GENERATE) all |= HRI_IN(HRI_EVALUATE);
  if (generate) all |= HRI_IN(HRI_PREFILL) | HRI_IN(HRI_DECODE);
  return all;
}

/* What is made of a parameter, and where it is carried. */
typedef struct maker {
  hri_job *job;
  const hri_param_request *p;
  uint32_t index; /* of the parameter */
  uint16_t all, gradient_scope;
} maker;

static hri_place place_of(const maker *m, hri_role role, uint16_t scope, uint8_t program) {
  return (hri_place){.program = program,
                     .scope = scope,
                     .tier = HRI_DEVICE,
                     .role = (uint8_t)role,
                     .layer = m->p->layer,
                     .unit = m->p->unit};
}

static uint64_t columns_of(const hri_param_request *p) { return p->rank == 2 ? p->stored[1] : 1; }
static bool is_all(const hri_param_request *p, uint64_t rows) { return rows == p->stored[0]; }

/* "name.suffix", or "name[row:end].suffix" of some of the rows. */
static uint32_t name_of(const maker *m, uint64_t row, uint64_t rows, const char *suffix) {
  if (is_all(m->p, rows)) return hri_name(m->job, "%s%s", m->p->name, suffix);
  return hri_name(m->job, "%s[%zu:%zu]%s", m->p->name, (size_t)row, (size_t)(row + rows), suffix);
}

/* A tensor for rows [row, row + rows) of the parameter; those behind the last logical one are padding. */
static hri_id tensor_of_rows(const maker *m, hri_place place, uint32_t key, hri_dtype dtype, uint64_t row,
                             uint64_t rows) {
  const hri_param_request *p = m->p;
  uint64_t logical = row + rows > p->dims[0] ? p->dims[0] - row : rows, dims[2] = {logical, p->dims[1]},
           stored[2] = {rows, p->stored[1]};
  return hri_tensor_new(m->job, place, key, dtype, p->rank, dims, stored);
}

/* A tensor of a range's state: shaped like the range, or a list of entries where several elements share one. What pads a
 * vocabulary has room in blocks, and none in factors: its gradient is 0, and nothing steps it. */
static hri_id state_tensor(const maker *m, const hri_param_range *range, const hri_state_tensor *s) {
  hri_place place = place_of(m, HRI_ROLE_OPTIMIZER_STATE, m->all, 0);
  uint64_t end = range->row + range->rows < m->p->dims[0] ? range->row + range->rows : m->p->dims[0];
  uint64_t entries = hri_state_entries(s, end - range->row, columns_of(m->p)), /* they share logical elements */
      stored = s->per == HRI_STATE_FACTORS ? entries : hri_state_entries(s, range->rows, columns_of(m->p));
  char suffix[64];
  (void)snprintf(suffix, sizeof suffix, ".%s", s->name);
  if (hri_state_shaped(s))
    return tensor_of_rows(m, place, name_of(m, range->row, range->rows, suffix), s->dtype, range->row, range->rows);
  return hri_tensor_new(m->job, place, name_of(m, range->row, range->rows, suffix), s->dtype, 1, &entries, &stored);
}

static bool make_parts(const maker *m, bool train, hri_param *param) {
  uint64_t row = 0;
  param->part_begin = (uint32_t)m->job->parts.count;
  param->part_count = m->p->part_count;
  for (uint32_t k = 0; k < m->p->part_count; k++) {
    const hri_part_request *from = &m->p->parts[k];
    hri_part part = {.param = m->index,
                     .key = hri_name(m->job, "%s", from->name),
                     .row = from->row,
                     .rows = from->rows,
                     .trainable = train && from->trainable,
                     .decay = from->decay,
                     .state_kind = (uint8_t)from->state_kind,
                     .quantization = from->quantization};
    assert(part.row == row && part.rows > 0);
    row += part.rows;
    param->trainable = param->trainable || part.trainable;
    if (!hri_array_push(&m->job->parts, part)) return false;
  }
  assert(row == m->p->dims[0]); /* every row belongs to one part */
  return true;
}

/* Side by side, the two lie in one piece: nothing that is said of parts tells them apart, and no entry of a state is
 * shared across the border. */
static bool one_range(const hri_part *a, const hri_part *b) {
  return a->trainable == b->trainable && a->decay == b->decay && a->quantization == b->quantization &&
         (!a->trainable || (a->state_kind == b->state_kind && !hri_state_apart(a->state_kind)));
}

/* Stored rows of parts [first, first + count): what pads the vocabulary goes with the last. */
static void rows_of_parts(const maker *m, const hri_param *param, uint32_t first, uint32_t count, uint64_t *row,
                          uint64_t *rows) {
  const hri_part *parts = m->job->parts.items, *last = &parts[first + count - 1];
  uint64_t end = first + count == param->part_begin + param->part_count ? m->p->stored[0] : last->row + last->rows;
  *row = parts[first].row;
  *rows = end - *row;
}

static hri_id view_of_rows(const maker *m, hri_id tensor, uint64_t all_rows, uint64_t row, uint64_t rows) {
  return rows == all_rows ? tensor : hri_tensor_rows(m->job, tensor, row, rows);
}

static bool make_runs(const maker *m, hri_param *param) {
  const hri_part *parts = m->job->parts.items;
  uint32_t end = param->part_begin + param->part_count;
  param->run_begin = (uint32_t)m->job->runs.count;
  for (uint32_t k = param->part_begin; k < end;) {
    uint32_t count = 1;
    hri_param_run run;
    if (!parts[k].trainable) {
      k++;
      continue;
    }
    while (k + count < end && parts[k + count].trainable) count++;
    rows_of_parts(m, param, k, count, &run.row, &run.rows);
    run.gradient = tensor_of_rows(m, place_of(m, HRI_ROLE_GRADIENT, m->gradient_scope, HRI_STEP),
                                  name_of(m, run.row, run.rows, ".grad"), HRI_F32, run.row, run.rows);
    if (!hri_array_push(&m->job->runs, run)) return false;
    k += count;
  }
  param->run_count = (uint32_t)m->job->runs.count - param->run_begin;
  return true;
}

/* The gradient of a range: its rows of the run that it is in. */
static hri_id gradient_of(const maker *m, const hri_param *param, const hri_param_range *range) {
  const hri_param_run *run = m->job->runs.items + param->run_begin;
  while (range->row >= run->row + run->rows) run++;
  assert(range->row >= run->row && range->row + range->rows <= run->row + run->rows);
  return view_of_rows(m, run->gradient, run->rows, range->row - run->row, range->rows);
}

static bool make_ranges(const maker *m, hri_param *param) {
  const hri_part *parts = m->job->parts.items;
  uint32_t end = param->part_begin + param->part_count;
  param->range_begin = (uint32_t)m->job->ranges.count;
  for (uint32_t k = param->part_begin; k < end;) {
    const hri_optimizer *row = hri_optimizer_get(parts[k].state_kind);
    hri_param_range range = {.param = m->index,
                             .segment = HRI_NONE,
                             .part_begin = k,
                             .part_count = 1,
                             .gradient = HRI_NONE,
                             .master = HRI_NONE};
    while (k + range.part_count < end && one_range(&parts[k], &parts[k + range.part_count])) range.part_count++;
    rows_of_parts(m, param, k, range.part_count, &range.row, &range.rows);
    range.first = range.row * columns_of(m->p);
    range.elements = range.rows * columns_of(m->p);
    range.weight = view_of_rows(m, param->weight, m->p->stored[0], range.row, range.rows);
    memset(range.state, 0xFF, sizeof range.state); /* HRI_NONE */
    if (parts[k].trainable) range.gradient = gradient_of(m, param, &range);
    for (uint32_t t = 0; parts[k].trainable && t < row->tensor_count; t++)
      range.state[t] = state_tensor(m, &range, &row->tensors[t]);
    if (!hri_array_push(&m->job->ranges, range)) return false;
    k += range.part_count;
  }
  param->range_count = (uint32_t)m->job->ranges.count - param->range_begin;
  return true;
}

/* Codes and scales of a quantized parameter, carried by every program. */
static bool make_quantized(const maker *m, hri_param *param) {
  uint64_t rows[HRI_QUANT_PARTS];
  uint8_t types[HRI_QUANT_PARTS];
  uint32_t kind = m->p->parts[0].quantization;
  bool kept = kind == HRI_QUANTIZATION_KEEP;
  hri_quant_layout layout;
  hri_place place = place_of(m, HRI_ROLE_QUANTIZATION, m->all, 0);
  for (uint32_t k = 0; k < m->p->part_count; k++) {
    rows[k] = m->p->parts[k].rows;
    types[k] = m->p->parts[k].type;
    param->quantized.i[1 + k] = (int64_t)rows[k];
    param->quantized.i[4 + k] = kept ? types[k] : 0;
  }
  param->quantized.i[0] = kind;
  if (!hri_quant_layout_make(kind, rows, kept ? types : NULL, m->p->part_count, columns_of(m->p), &layout)) {
    m->job->failed = m->job->too_large = true;
    return false;
  }
  param->codes =
      hri_tensor_new(m->job, place, hri_name(m->job, "%s.codes", m->p->name), HRI_U8, 1, &layout.code_bytes, NULL);
  if (layout.absmax_count)
    param->absmax = hri_tensor_new(m->job, place, hri_name(m->job, "%s.absmax", m->p->name),
                                   hri_quant_absmax_dtype(kind), 1, &layout.absmax_count, NULL);
  if (layout.nested_count)
    param->nested = hri_tensor_new(m->job, place, hri_name(m->job, "%s.nested", m->p->name), HRI_F32, 1,
                                   &layout.nested_count, NULL);
  return !m->job->failed;
}

/* What products read weights of matrices in. */
static hri_dtype matrix_type(hr_precision precision) {
  switch (precision) {
  case HR_PRECISION_FP32:
  case HR_PRECISION_TF32:
  case HR_PRECISION_AUTO: return HRI_F32;
  case HR_PRECISION_FP16: return HRI_F16;
  default: return HRI_BF16;
  }
}

/* The type in which a weight that is quantized is loaded: values of files reach the quantizer as they are. One whose
 * blocks are kept is not loaded; what its values are checked in is what they will be rounded to. */
static hri_dtype loaded_type(const hr_job *spec) {
  if (spec->quantize == HR_QUANTIZE_KEEP) return matrix_type(spec->precision);
  return spec->model.bfloat16 || !spec->model.has_weights ? HRI_BF16 : HRI_F32;
}

uint32_t hri_build_parameter(hri_job *job, const hr_job *spec, const hri_param_request *p) {
  maker m = {.job = job, .p = p, .index = (uint32_t)job->params.count, .all = hri_programs_of(spec)};
  hri_param param = {.spec = p->spec,
                     .layer = p->layer,
                     .unit = p->unit,
                     .init = (uint8_t)p->init,
                     .init_std = p->init_std,
                     .site = p->site,
                     .codes = HRI_NONE,
                     .absmax = HRI_NONE,
                     .nested = HRI_NONE};
  bool quantized = p->parts[0].quantization != HRI_QUANTIZATION_NONE;
  if (spec->accumulate > 1) m.gradient_scope = (uint16_t)(HRI_IN(HRI_BEGIN) | HRI_IN(HRI_MICRO) | HRI_IN(HRI_UPDATE));
  param.key = hri_name(job, "%s", p->name);
  param.weight =
      tensor_of_rows(&m, place_of(&m, HRI_ROLE_WEIGHT, quantized ? 0 : m.all, HRI_LOAD),
                     name_of(&m, 0, p->stored[0], ""), quantized ? loaded_type(spec) : HRI_F32, 0, p->stored[0]);
  param.stored_quantized = quantized && (p->parts[0].quantization == HRI_QUANTIZATION_KEEP ||
                                         (spec->model.quantization != HR_QUANTIZE_NONE && spec->model.has_weights));
  if (job->failed || (quantized && !make_quantized(&m, &param))) return HRI_NONE;
  job->storages.items[job->tensors.items[param.weight].storage].wide = p->wide || quantized;
  param.elements = hri_tensor_stored_elements(&job->tensors.items[param.weight]);
  if (!make_parts(&m, spec->purpose == HR_PURPOSE_TRAIN, &param) || !make_runs(&m, &param) ||
      !make_ranges(&m, &param) || !hri_array_push(&job->params, param))
    job->failed = true;
  return job->failed ? HRI_NONE : m.index;
}

static uint8_t quantization_of(const builder *b, const hri_param_spec *p) {
  return hri_param_quantizes(b->model, p) ? (uint8_t)b->spec->quantize : HRI_QUANTIZATION_NONE;
}

/* Of a model with adapters what their files hold is trained, else what --freeze leaves. */
static void make_param(builder *b, uint32_t index) {
  hri_part_request parts[HRI_PARAM_PARTS] = {{0}};
  hri_param_spec p;
  hri_param_request request;
  hri_param_get(b->model, index, &p);
  for (uint32_t k = 0; k < p.part_count; k++)
    parts[k] =
        (hri_part_request){.name = p.parts[k].name,
                           .row = p.parts[k].row,
                           .rows = p.parts[k].rows,
                           .trainable = b->model->lora.rank > 0 ? hri_part_tuned(b->model, &p, &p.parts[k], NULL)
                                                                : hri_part_trains(b->model, &p, &p.parts[k],
                                                                                  b->spec->freeze, b->spec->train_only),
                           .decay = p.decay,
                           .state_kind =
                               hri_state_kind(b->spec->optimizer, p.parts[k].rows * (p.rank == 2 ? p.dims[1] : 1),
                                              hri_slot_sensitive(p.slot), b->spec->states_8bit == HR_STATES_8BIT_ALL),
                           .quantization = quantization_of(b, &p),
                           .type = hri_gguf_part_type(b->model, &p, k)};
  request = (hri_param_request){.name = p.name,
                                .layer = p.layer,
                                .unit = p.unit,
                                .rank = p.rank,
                                .dims = {p.dims[0], p.dims[1]},
                                .stored = {p.dims[0], p.dims[1]},
                                .parts = parts,
                                .part_count = p.part_count,
                                .init = p.init,
                                .init_std = p.init_std,
                                .spec = index,
                                .site = p.site,
                                .wide = p.adapter};
  if (p.slot == HRI_SLOT_TOKEN_EMBEDDING || p.slot == HRI_SLOT_HEAD_WEIGHT || p.slot == HRI_SLOT_HEAD_BIAS)
    request.stored[0] = hri_round_up(p.dims[0], HRI_VOCABULARY_ALIGN);
  b->slots[(uint32_t)(p.layer + 1) * HRI_SLOT_COUNT + p.slot] = hri_build_parameter(b->job, b->spec, &request);
}

void hri_build_control(hri_job *job, uint16_t programs) {
  uint64_t dims[1] = {sizeof(hri_control)};
  hri_place place = {.scope = programs, .tier = HRI_DEVICE, .role = HRI_ROLE_CONTROL, .layer = -1, .unit = HRI_NONE};
  job->control = hri_tensor_new(job, place, hri_name(job, "control"), HRI_U8, 1, dims, NULL);
}

static hri_id input(builder *b, uint16_t scope, uint8_t program, uint64_t steps, uint64_t rows, const char *name) {
  hri_place place =
      {.program = program, .scope = scope, .tier = HRI_DEVICE, .role = HRI_ROLE_INPUT, .layer = -1, .unit = HRI_NONE};
  uint64_t dims[2] = {steps ? steps : rows, rows};
  return hri_tensor_new(b->job, place, hri_name(b->job, "%s", name), HRI_I32, steps ? 2 : 1, dims, NULL);
}

static hri_id make_rope_table(builder *b, const hr_rope *rope, uint64_t positions, const char *name) {
  const hr_model *m = b->model;
  hri_attr attr = {.i = {(int64_t)positions, m->rotary_size}};
  hri_place place = {.scope = b->all, .tier = HRI_DEVICE, .role = HRI_ROLE_INPUT, .layer = -1, .unit = HRI_NONE};
  uint64_t dims[3] = {2, positions, m->rotary_size / 2};
  hri_id table = hri_tensor_new(b->job, place, hri_name(b->job, "%s", name), HRI_F32, 3, dims, NULL);
  uint32_t source = hri_job_add_rope(b->job, m->rotary_size / 2);
  if (b->job->failed) return HRI_NONE;
  hri_rope_frequencies(rope, m->rotary_size, m->max_positions, positions, b->job->ropes.items[source].inverse,
                       &b->job->ropes.items[source].factor);
  attr.i[2] = source;
  b->emit = (hri_emit){.program = HRI_LOAD, .phase = HRI_PHASE_LOAD, .layer = -1, .unit = HRI_NONE, .origin = HRI_NONE};
  emit(b, HRI_OP_ROPE_TABLE, &attr, (hri_operand[]){HRI_W(table)}, 1);
  return table;
}

/* ---- load and save ---- */

/* With staging as for a tensor of so many bytes. */
static void move_staged(hri_job *job, hri_emit emit, hri_op op, hri_tier staging_tier, uint32_t range, uint32_t what,
                        hri_id tensor, uint64_t bytes) {
  hri_attr attr = {.i = {range, what}};
  hri_place place = {.program = emit.program,
                     .tier = (uint8_t)staging_tier,
                     .role = HRI_ROLE_WORKSPACE,
                     .layer = emit.layer,
                     .unit = emit.unit};
  hri_id staging;
  uint64_t dims[1];
  if (job->failed) return;
  dims[0] = hri_staging_bytes(bytes, job->team);
  staging = hri_tensor_new(job, place, hri_name(job, "staging"), HRI_U8, 1, dims, NULL);
  hri_node_append(job, (uint16_t)op, emit, &attr,
                  (hri_operand[]){{tensor, op == HRI_OP_FILL ? HRI_WRITE : HRI_READ}, {staging, HRI_SCRATCH}}, 2);
}

static void move_tensor(hri_job *job, hri_emit emit, hri_op op, hri_tier staging_tier, uint32_t range, uint32_t what,
                        hri_id tensor) {
  if (!job->failed)
    move_staged(job, emit, op, staging_tier, range, what, tensor, hri_tensor_bytes(&job->tensors.items[tensor]));
}

/* A split master goes to and from files whole: in fp32, for as long as it takes. Its staging is no larger than the low half
 * that it does not keep twice, so that no job needs more than one whose masters stand beside copies. */
static void move_split(hri_job *job, hri_emit e, hri_op op, hri_tier staging_tier, uint32_t index) {
  const hri_param_range range = job->ranges.items[index];
  const hri_tensor weight = job->tensors.items[range.weight];
  hri_place place = {.program = e.program,
                     .tier = HRI_DEVICE,
                     .role = HRI_ROLE_MASTER_WEIGHT,
                     .layer = e.layer,
                     .unit = e.unit};
  hri_id whole =
      hri_tensor_new(job, place, hri_name(job, "%s.whole", hri_name_get(job, job->params.items[range.param].key)),
                     HRI_F32, weight.rank, weight.dims, weight.stored);
  if (op == HRI_OP_SINK)
    hri_node_append(job, HRI_OP_JOIN, e, NULL, (hri_operand[]){HRI_R(range.weight), HRI_R(range.master), HRI_W(whole)},
                    3);
  move_staged(job, e, op, staging_tier, index, HRI_MOVED_WEIGHT, whole, hri_tensor_bytes(&weight));
  if (op == HRI_OP_FILL)
    hri_node_append(job, HRI_OP_SPLIT, e, NULL, (hri_operand[]){HRI_R(whole), HRI_W(range.weight), HRI_W(range.master)},
                    3);
}

static void move_range(hri_job *job, hri_emit emit, hri_op op, hri_tier staging_tier, uint32_t range, uint32_t what) {
  move_tensor(job, emit, op, staging_tier, range, what, hri_moved_tensor(job, &job->ranges.items[range], what));
}

/* Codes and scales of a frozen parameter: made of its weight, or as files hold them. */
static void load_quantized(hri_job *job, hri_emit e, hri_tier staging_tier, uint32_t range) {
  const hri_param param = job->params.items[job->ranges.items[range].param];
  assert(param.range_count == 1); /* nothing tells the parts of a frozen parameter apart */
  if (param.stored_quantized) {
    move_tensor(job, e, HRI_OP_FILL, staging_tier, range, HRI_MOVED_CODES, param.codes);
    if (param.absmax != HRI_NONE) move_tensor(job, e, HRI_OP_FILL, staging_tier, range, HRI_MOVED_ABSMAX, param.absmax);
    if (param.nested != HRI_NONE) move_tensor(job, e, HRI_OP_FILL, staging_tier, range, HRI_MOVED_NESTED, param.nested);
    return;
  }
  move_range(job, e, HRI_OP_FILL, staging_tier, range, HRI_MOVED_WEIGHT);
  hri_node_append(job, HRI_OP_QUANTIZE, e, &param.quantized,
                  (hri_operand[]){HRI_R(param.weight),
                                  HRI_W(param.codes),
                                  HRI_W(param.absmax),
                                  {param.nested, HRI_WRITE}},
                  4);
}

void hri_build_transfers(hri_job *job, bool load, bool trained, hri_tier staging_tier) {
  hri_op op = load ? HRI_OP_FILL : HRI_OP_SINK;
  for (uint32_t r = 0; r < job->ranges.count && !job->failed; r++) {
    const hri_param_range range = job->ranges.items[r];
    const hri_param *param = &job->params.items[range.param];
    hri_emit e = {.program = load ? HRI_LOAD : HRI_SAVE,
                  .lane = HRI_COMPUTE,
                  .phase = load ? HRI_PHASE_LOAD : HRI_PHASE_SAVE,
                  .layer = param->layer,
                  .unit = param->unit,
                  .site = param->site,
                  .origin = HRI_NONE};
    if (trained && range.gradient == HRI_NONE) continue;
    if (load && param->codes != HRI_NONE) {
      load_quantized(job, e, staging_tier, r);
      continue;
    }
    if (hri_range_split(job, &range)) {
      move_split(job, e, op, staging_tier, r);
    } else {
      move_range(job, e, op, staging_tier, r, HRI_MOVED_WEIGHT);
      if (load && range.master != HRI_NONE)
        hri_node_append(job, HRI_OP_CAST, e, NULL, (hri_operand[]){HRI_R(range.master), HRI_W(range.weight)}, 2);
    }
    for (uint32_t k = 0; k < HRI_STATE_TENSORS && range.state[k] != HRI_NONE; k++)
      move_range(job, e, op, staging_tier, r, HRI_MOVED_STATE + k);
  }
}

/* Rows of the parts of a product's weight, and which of its modules are adapted. */
static hri_attr dora_parts(const hr_model *m, int32_t layer, hri_slot weight_slot, const hri_param_spec *base) {
  hri_attr attr = {.i = {0}};
  for (uint32_t k = 0; k < base->part_count; k++) attr.i[k] = (int64_t)base->parts[k].rows;
  for (int k = 0; k < HR_MODULE_COUNT; k++) {
    uint32_t part;
    if (hri_module_slot((hr_module)k, &part) == weight_slot && hri_module_is_adapted(m, layer, (hr_module)k))
      attr.i[3] |= INT64_C(1) << part;
  }
  return attr;
}

/* A weight that is quantized is made again, in the type that the products read. */
static hri_id weight_of_load(hri_job *job, const hr_job *spec, hri_emit e, const hri_param *param) {
  const hri_tensor like = job->tensors.items[param->weight];
  hri_place place = {.program = HRI_LOAD,
                     .tier = HRI_DEVICE,
                     .role = HRI_ROLE_WORKSPACE,
                     .layer = e.layer,
                     .unit = e.unit};
  hri_id weight;
  if (param->codes == HRI_NONE) return param->weight;
  weight = hri_tensor_new(job, place, hri_name(job, "%s.dequantized", hri_name_get(job, param->key)),
                          matrix_type(spec->precision), like.rank, like.dims, like.stored);
  if (weight == HRI_NONE) return HRI_NONE;
  hri_node_append(job, HRI_OP_DEQUANTIZE, e, &param->quantized,
                  (hri_operand[]){HRI_R(param->codes), HRI_R(param->absmax), HRI_R(param->nested), HRI_W(weight)}, 4);
  return weight;
}

void hri_build_magnitudes(hri_job *job, const hr_job *spec) {
  const hr_model *m = &spec->model;
  if (m->lora.rank == 0 || !m->lora.dora || m->adapter[0]) return;
  for (uint32_t p = 0; p < job->params.count && !job->failed; p++) {
    const hri_param to = job->params.items[p];
    hri_param_spec spec_of, base;
    hri_slot slot;
    uint32_t from = 0;
    hri_attr attr;
    hri_emit e = {.program = HRI_LOAD,
                  .lane = HRI_COMPUTE,
                  .phase = HRI_PHASE_LOAD,
                  .layer = to.layer,
                  .unit = to.unit,
                  .site = to.site,
                  .origin = HRI_NONE};
    hri_id weight;
    hri_param_get(m, to.spec, &spec_of);
    if (spec_of.slot < HRI_SLOT_LORA_M) continue;
    slot = hri_module_slot((hr_module)(spec_of.slot - HRI_SLOT_LORA_M), NULL);
    for (;; from++) {
      if (job->params.items[from].layer != to.layer)
        continue; /* most of them, and reading what they are takes longer */
      hri_param_get(m, job->params.items[from].spec, &base);
      if (base.slot == slot) break;
    }
    attr = dora_parts(m, spec_of.layer, slot, &base);
    weight = weight_of_load(job, spec, e, &job->params.items[from]);
    if (weight == HRI_NONE) return;
    hri_node_append(job, HRI_OP_DORA_BEGIN, e, &attr, (hri_operand[]){HRI_R(weight), HRI_U(to.weight)}, 2);
  }
}

/* ---- the block ---- */

typedef struct rows_shape {
  uint64_t batch, sequence, rows;
  hri_id ids, targets, positions, doc_start;
  hri_id *cache_k, *cache_v; /* per layer, in generation */
  uint64_t capacity;
} rows_shape;

static hri_id fresh_wide(builder *b, uint64_t rows, uint64_t columns, const char *name) {
  hri_id tensor = fresh(b, HRI_ROLE_ACTIVATION, HRI_F32, rows, columns, name);
  if (tensor != HRI_NONE) b->job->storages.items[b->job->tensors.items[tensor].storage].wide = true;
  return tensor;
}

/* Of a linear with adapters: what A makes of x, per module, scaled. */
typedef struct adapted {
  hri_id low[HR_MODULE_COUNT]; /* HRI_NONE: the module has no adapter */
} adapted;

static hri_id dropped(builder *b, hri_id x, const rows_shape *s) {
  const hri_tensor like = b->job->tensors.items[x];
  hri_attr attr = {.i = {(int64_t)s->sequence}, .f = {b->model->lora.dropout}};
  hri_id y;
  if (b->model->lora.dropout == 0 || b->emit.phase != HRI_PHASE_FORWARD) return x;
  y = fresh(b, HRI_ROLE_ACTIVATION, HRI_F32, like.stored[0], like.stored[1], "lora.dropped");
  emit(b, HRI_OP_DROPOUT, &attr, (hri_operand[]){HRI_R(x), HRI_R(b->job->control), HRI_W(y)}, 3);
  return y;
}

/* s (x A^T) of every module of the product, [rows, modules * rank] in one where they share x. Before the base product:
 * its gradient of x is there when the adapter's is added to it. */
static adapted lower(builder *b, hri_id x, hri_slot weight_slot, const rows_shape *s) {
  adapted a;
  const hr_lora *lora = &b->model->lora;
  memset(&a, 0xFF, sizeof a); /* HRI_NONE */
  for (int k = 0; k < HR_MODULE_COUNT && !b->job->failed; k++) {
    hr_module first = (hr_module)k;
    hri_attr scale;
    hri_id weight, low, scaled, from;
    uint64_t rank, at = 0;
    if (hri_module_slot((hr_module)k, NULL) != weight_slot ||
        !hri_module_is_adapted(b->model, b->emit.layer, (hr_module)k) || a.low[k] != HRI_NONE)
      continue;
    weight = weight_at(b, b->emit.layer, (hri_slot)(HRI_SLOT_LORA_A + first));
    rank = hri_lora_rank(lora, b->emit.layer, first); /* of all that share this A, and so is the factor */
    scale = (hri_attr){.f = {hri_lora_scale(lora, b->emit.layer, first)}};
    if (b->job->failed) break;
    low = scaled = fresh_wide(b, s->rows, b->job->tensors.items[weight].stored[0], "lora.low");
    from = dropped(b, x, s);
    emit(b, HRI_OP_LINEAR, NULL, (hri_operand[]){HRI_R(from), HRI_R(weight), HRI_ABSENT, HRI_W(low)}, 4);
    if (scale.f[0] != 1) {
      scaled = fresh_wide(b, s->rows, b->job->tensors.items[weight].stored[0], "lora.scaled");
      emit(b, HRI_OP_SCALE, &scale, (hri_operand[]){HRI_R(low), HRI_W(scaled)}, 2);
    }
    for (int j = k; j < HR_MODULE_COUNT && !b->job->failed; j++) {
      if (hri_module_slot((hr_module)j, NULL) != weight_slot ||
          !hri_module_is_adapted(b->model, b->emit.layer, (hr_module)j) ||
          hri_module_a(b->model, b->emit.layer, (hr_module)j) != first)
        continue;
      a.low[j] =
          b->job->tensors.items[weight].stored[0] == rank ? scaled : hri_tensor_columns(b->job, scaled, at, rank);
      at += rank;
    }
  }
  return a;
}

/* Adds each module's share to its columns of y. */
static void raise(builder *b, const adapted *a, hri_id y, hri_slot weight_slot) {
  uint64_t at = 0, columns = b->job->failed ? 0 : b->job->tensors.items[y].stored[1];
  hri_param_spec base;
  hri_param_get(b->model, b->job->params.items[param_at(b, b->emit.layer, weight_slot)].spec, &base);
  for (int k = 0; k < HR_MODULE_COUNT && !b->job->failed; k++) {
    uint32_t part;
    hri_id weight;
    if (hri_module_slot((hr_module)k, &part) != weight_slot || a->low[k] == HRI_NONE) continue;
    weight = weight_at(b, b->emit.layer, (hri_slot)(HRI_SLOT_LORA_B + k));
    at = base.parts[part].row;
    emit(b, HRI_OP_LINEAR, NULL,
         (hri_operand[]){HRI_R(a->low[k]), HRI_R(weight), HRI_ABSENT,
                         HRI_A(base.parts[part].rows == columns
                                   ? y
                                   : hri_tensor_columns(b->job, y, at, base.parts[part].rows))},
         4);
  }
}

/* What one token's row is multiplied by. gemma's factor has the type of the weights, as in transformers; granite's is a
 * number. */
static double embedding_factor(const builder *b) {
  float factor = (float)b->model->embedding_scale;
  if (!hri_family_rounds_factor(b->model->family)) return (double)factor;
  switch (b->spec->precision) {
  case HR_PRECISION_FP32:
  case HR_PRECISION_TF32:
  case HR_PRECISION_AUTO: return (double)factor;
  case HR_PRECISION_FP16: return (double)hri_f16_widen(hri_f16_round(factor));
  default: return (double)hri_bf16_widen(hri_bf16_round(factor));
  }
}

/* Adds s B A of each token to its row of the embedding: a row of A is looked up, and is the low side of a product. There
 * is no dropout here, as for PEFT (tuners/lora/layer.py, Embedding), and the padding row has no gradient either. */
static void raise_embedding(builder *b, hri_id x, const rows_shape *s) {
  const hr_lora *lora = &b->model->lora;
  hri_attr gather = {.i = {b->model->pad_token}, .f = {1}},
           scale = {.f = {hri_lora_embedding_scale(lora) * embedding_factor(b)}};
  hri_id low, scaled;
  if (lora->rank == 0 || !lora->embedding || b->job->failed) return;
  low = scaled = fresh_wide(b, s->rows, hri_lora_embedding_rank(lora), "lora.low");
  emit(b, HRI_OP_EMBED, &gather,
       (hri_operand[]){HRI_R(s->ids), HRI_R(weight_at(b, -1, HRI_SLOT_LORA_EMBED_A)), HRI_ABSENT, HRI_ABSENT,
                       HRI_W(low)},
       5);
  if (scale.f[0] != 1) {
    scaled = fresh_wide(b, s->rows, hri_lora_embedding_rank(lora), "lora.scaled");
    emit(b, HRI_OP_SCALE, &scale, (hri_operand[]){HRI_R(low), HRI_W(scaled)}, 2);
  }
  emit(b, HRI_OP_LINEAR, NULL,
       (hri_operand[]){HRI_R(scaled), HRI_R(weight_at(b, -1, HRI_SLOT_LORA_EMBED_B)), HRI_ABSENT, HRI_A(x)}, 4);
}

/* The weight of a product: a quantized one is made anew for it. That draws nothing and takes no site of its own, so that
 * masks of dropout are those beside weights that are not quantized. */
static hri_id weight_for_use(builder *b, hri_slot slot) {
  uint32_t index = param_at(b, b->emit.layer, slot);
  hri_emit e = b->emit;
  hri_param param;
  hri_tensor like;
  hri_id weight;
  if (index == HRI_NONE || b->job->failed) return HRI_NONE;
  param = b->job->params.items[index];
  if (param.codes == HRI_NONE) return param.weight;
  like = b->job->tensors.items[param.weight];
  weight = hri_tensor_new(b->job, local(b, HRI_ROLE_WORKSPACE),
                          hri_name(b->job, "%s.dequantized", hri_name_get(b->job, param.key)), HRI_F32, like.rank,
                          like.dims, like.stored);
  if (weight == HRI_NONE) return HRI_NONE;
  b->job->storages.items[b->job->tensors.items[weight].storage].transient = true;
  e.site = param.site;
  hri_node_append(b->job, HRI_OP_DEQUANTIZE, e, &param.quantized,
                  (hri_operand[]){HRI_R(param.codes), HRI_R(param.absmax), HRI_R(param.nested), HRI_W(weight)}, 4);
  return weight;
}

/* The weight of A of a module: of its own rows where several share one. */
static hri_id a_rows(builder *b, hr_module module) {
  const hr_model *m = b->model;
  int32_t layer = b->emit.layer;
  hr_module first = hri_module_a(m, layer, module);
  hri_id a = weight_at(b, layer, (hri_slot)(HRI_SLOT_LORA_A + first));
  uint64_t rank = hri_lora_rank(&m->lora, layer, module), at = 0;
  if (b->job->failed) return HRI_NONE;
  for (hr_module k = first; k < module; k++)
    if (hri_module_slot(k, NULL) == hri_module_slot(module, NULL) && hri_module_is_adapted(m, layer, k) &&
        hri_module_a(m, layer, k) == first)
      at += rank;
  return b->job->tensors.items[a].stored[0] == rank ? a : hri_tensor_rows(b->job, a, at, rank);
}

/* Lengths of the rows of W + s B A, of the modules that are adapted. */
static hri_id lengths_of(builder *b, hri_id w, hri_slot weight_slot, hri_attr *attr) {
  hri_operand operands[8] = {HRI_R(w),   HRI_ABSENT, HRI_ABSENT, HRI_ABSENT,
                             HRI_ABSENT, HRI_ABSENT, HRI_ABSENT, HRI_ABSENT};
  int32_t layer = b->emit.layer;
  uint64_t rows = 0;
  hri_id lengths;
  for (int k = 0; k < HR_MODULE_COUNT; k++) {
    uint32_t part;
    if (hri_module_slot((hr_module)k, &part) != weight_slot || !hri_module_is_adapted(b->model, layer, (hr_module)k))
      continue;
    operands[1 + part] = HRI_R(a_rows(b, (hr_module)k));
    operands[4 + part] = HRI_R(weight_at(b, layer, (hri_slot)(HRI_SLOT_LORA_B + k)));
    attr->f[part] = hri_lora_scale(&b->model->lora, layer, (hr_module)k);
    rows += (uint64_t)attr->i[part];
  }
  lengths = fresh(b, HRI_ROLE_ACTIVATION, HRI_F32, rows, 0, "lora.lengths");
  operands[7] = HRI_W(lengths);
  emit(b, HRI_OP_DORA_LENGTHS, attr, operands, 8);
  return lengths;
}

/* With magnitudes m: y = z m / |W + s B A| + bias, z = x W^T + s (x A^T) B^T. That is PEFT's sum (peft
 * tuners/lora/dora.py: base + (g - 1) (base - bias) + g s B A x, g = m / length), added up. */
static hri_id linear_with_magnitudes(builder *b, hri_id x, hri_slot weight_slot, hri_id bias, const rows_shape *s,
                                     hr_module first, const char *name) {
  adapted a = lower(b, x, weight_slot, s);
  hri_id w = weight_for_use(b, weight_slot), z, y, lengths,
         magnitudes = weight_at(b, b->emit.layer, (hri_slot)(HRI_SLOT_LORA_M + first));
  hri_param_spec base;
  hri_attr attr;
  if (b->job->failed) return HRI_NONE;
  hri_param_get(b->model, b->job->params.items[param_at(b, b->emit.layer, weight_slot)].spec, &base);
  attr = dora_parts(b->model, b->emit.layer, weight_slot, &base);
  lengths = lengths_of(b, w, weight_slot, &attr); /* beside the product: one dequantized weight serves both */
  if (b->job->failed) return HRI_NONE;
  z = fresh(b, HRI_ROLE_ACTIVATION, HRI_F32, s->rows, b->job->tensors.items[w].stored[0], "lora.sum");
  emit(b, HRI_OP_LINEAR, NULL, (hri_operand[]){HRI_R(x), HRI_R(w), HRI_ABSENT, HRI_W(z)}, 4);
  raise(b, &a, z, weight_slot);
  y = fresh(b, HRI_ROLE_ACTIVATION, HRI_F32, s->rows, b->job->tensors.items[w].stored[0], name);
  emit(b, HRI_OP_DORA, &attr, (hri_operand[]){HRI_R(z), HRI_R(magnitudes), HRI_R(lengths), HRI_R(bias), HRI_W(y)}, 5);
  return y;
}

/* The first adapted module of a product with magnitudes. */
static bool has_magnitudes(const builder *b, hri_slot weight_slot, hr_module *first) {
  for (int k = 0; b->model->lora.dora && k < HR_MODULE_COUNT; k++)
    if (hri_module_slot((hr_module)k, NULL) == weight_slot &&
        hri_module_is_adapted(b->model, b->emit.layer, (hr_module)k)) {
      *first = (hr_module)k;
      return true;
    }
  return false;
}

static hri_id linear(builder *b, hri_id x, hri_slot weight_slot, hri_slot bias_slot, const rows_shape *s,
                     const char *name) {
  hri_id w, bias = weight_at(b, b->emit.layer, bias_slot), y;
  hr_module first;
  adapted a;
  if (has_magnitudes(b, weight_slot, &first)) return linear_with_magnitudes(b, x, weight_slot, bias, s, first, name);
  a = lower(b, x, weight_slot, s);
  w = weight_for_use(b, weight_slot);
  if (b->job->failed) return HRI_NONE;
  y = fresh(b, HRI_ROLE_ACTIVATION, HRI_F32, s->rows, b->job->tensors.items[w].stored[0], name);
  emit(b, HRI_OP_LINEAR, NULL, (hri_operand[]){HRI_R(x), HRI_R(w), HRI_R(bias), HRI_W(y)}, 4);
  raise(b, &a, y, weight_slot);
  return y;
}

static hri_id norm(builder *b, hri_id x, hri_slot weight_slot, hri_slot bias_slot, uint64_t rows, const char *name,
                   const char *stats_name) {
  hri_attr attr = {.i = {b->model->norm}, .f = {b->model->norm_epsilon, b->model->norm_weight_offset}};
  int32_t layer = b->emit.layer;
  hri_id y = fresh(b, HRI_ROLE_ACTIVATION, HRI_F32, rows, b->model->hidden_size, name);
  hri_id stats = fresh(b, HRI_ROLE_ACTIVATION, HRI_F32, rows, b->model->norm == HR_NORM_LAYER ? 2 : 1, stats_name);
  emit(b, HRI_OP_NORM, &attr,
       (hri_operand[]){HRI_R(x),
                       HRI_R(weight_at(b, layer, weight_slot)),
                       HRI_R(weight_at(b, layer, bias_slot)),
                       HRI_ABSENT,
                       {HRI_NONE, HRI_WRITE},
                       HRI_W(y),
                       HRI_W(stats)},
       7);
  return y;
}

static hri_id add(builder *b, hri_id x, hri_id y, uint64_t rows, const char *name) {
  hri_id sum = fresh(b, HRI_ROLE_ACTIVATION, HRI_F32, rows, b->model->hidden_size, name);
  emit(b, HRI_OP_ADD, NULL, (hri_operand[]){HRI_R(x), HRI_R(y), HRI_W(sum)}, 3);
  return sum;
}

/* Dropout is of training's forward alone. */
static hri_dropout dropout_of(const builder *b) {
  return hri_model_dropout(b->model, b->emit.phase == HRI_PHASE_FORWARD ? b->spec->dropout : 0);
}

/* x without a part of it. */
static hri_id drop(builder *b, hri_id x, double probability, const rows_shape *s, const char *name) {
  hri_attr attr = {.i = {(int64_t)s->sequence}, .f = {probability}};
  hri_id y;
  if (probability == 0) return x;
  y = fresh(b, HRI_ROLE_ACTIVATION, HRI_F32, s->rows, b->model->hidden_size, name);
  emit(b, HRI_OP_DROPOUT, &attr, (hri_operand[]){HRI_R(x), HRI_R(b->job->control), HRI_W(y)}, 3);
  return y;
}

static bool slides(const hr_model *m, int32_t layer) { return m->sliding_window > 0 && m->sliding[layer]; }

static uint64_t qkv_columns(const hr_model *m) {
  return (uint64_t)(m->head_count + 2 * m->kv_head_count) * m->head_size;
}

/* RMS norm of each query and key head; or of all query heads, which are one long head then, and of all key heads. */
static hri_id norm_heads(builder *b, hri_id qkv, uint64_t rows) {
  const hr_model *m = b->model;
  int32_t layer = b->emit.layer;
  int64_t queries = (int64_t)m->head_count * m->head_size, keys = (int64_t)m->kv_head_count * m->head_size;
  hri_attr attr = {.i = {m->head_count, m->kv_head_count, m->head_size}, .f = {m->norm_epsilon, m->norm_weight_offset}};
  hri_id y = fresh(b, HRI_ROLE_ACTIVATION, HRI_F32, rows, qkv_columns(m), "qkv.norm");
  if (m->qk_norm_whole) attr.i[0] = attr.i[1] = 1, attr.i[2] = queries, attr.i[3] = keys;
  hri_id stats =
      fresh(b, HRI_ROLE_ACTIVATION, HRI_F32, rows, (uint64_t)attr.i[0] + (uint64_t)attr.i[1], "qkv.norm.stats");
  emit(b, HRI_OP_HEAD_NORM, &attr,
       (hri_operand[]){HRI_R(qkv), HRI_R(weight_at(b, layer, HRI_SLOT_Q_NORM_WEIGHT)),
                       HRI_R(weight_at(b, layer, HRI_SLOT_K_NORM_WEIGHT)), HRI_W(y), HRI_W(stats)},
       5);
  return y;
}

static hri_id rotate(builder *b, hri_id qkv, const rows_shape *s) {
  const hr_model *m = b->model;
  hri_attr attr = {.i = {m->head_count, m->kv_head_count, m->head_size, 0, m->rotary_size}};
  hri_id table = slides(m, b->emit.layer) && b->local_rope_table != HRI_NONE ? b->local_rope_table : b->rope_table;
  hri_id turned = fresh(b, HRI_ROLE_ACTIVATION, HRI_F32, s->rows, qkv_columns(m), "qkv.rope");
  emit(b, HRI_OP_ROPE, &attr, (hri_operand[]){HRI_R(qkv), HRI_R(s->positions), HRI_R(table), HRI_W(turned)}, 4);
  return turned;
}

static hri_id attend(builder *b, hri_id qkv, const rows_shape *s) {
  const hr_model *m = b->model;
  int64_t window = slides(m, b->emit.layer) ? m->sliding_window : 0;
  hri_attr attr = {.i = {(int64_t)s->batch, (int64_t)s->sequence, m->head_count, m->kv_head_count, m->head_size, window,
                         (int64_t)s->capacity},
                   .f = {m->attention_scale, m->attention_softcap, dropout_of(b).attention}};
  hri_operand control = HRI_R(attr.f[2] > 0 ? b->job->control : HRI_NONE);
  hri_id y = fresh(b, HRI_ROLE_ACTIVATION, HRI_F32, s->rows, (uint64_t)m->head_count * m->head_size, "attention");
  if (s->cache_k) {
    uint32_t l = (uint32_t)b->emit.layer;
    emit(b, HRI_OP_ATTENTION_CACHED, &attr,
         (hri_operand[]){HRI_R(qkv), HRI_U(s->cache_k[l]), HRI_U(s->cache_v[l]), HRI_R(b->job->control), HRI_W(y)}, 5);
  } else if (b->spec->attention == HR_ATTENTION_MATERIALIZED) {
    hri_id probs =
        fresh(b, HRI_ROLE_ACTIVATION, HRI_F32, s->batch * m->head_count * s->sequence, s->sequence, "probabilities");
    emit(b, HRI_OP_ATTENTION_FULL, &attr,
         (hri_operand[]){HRI_R(qkv), HRI_R(s->doc_start), HRI_W(y), HRI_W(probs), control}, 5);
  } else {
    hri_id lse = fresh(b, HRI_ROLE_ACTIVATION, HRI_F32, s->rows, m->head_count, "lse");
    emit(b, HRI_OP_ATTENTION, &attr, (hri_operand[]){HRI_R(qkv), HRI_R(s->doc_start), HRI_W(y), HRI_W(lse), control},
         5);
  }
  return y;
}

/* NEFTune (Jain et al. 2023), as transformers and TRL have it: uniform in +-alpha / sqrt(L C) on what the embedding
 * gives, L the length of the rows as they are computed, padding counted. Positions that are added too do not change the
 * noise. */
static hri_id disturb(builder *b, hri_id x, const rows_shape *s) {
  uint64_t columns = b->model->hidden_size;
  hri_attr attr = {.i = {(int64_t)s->sequence},
                   .f = {b->spec->neftune_alpha / sqrt((double)s->sequence * (double)columns)}};
  hri_id y = fresh(b, HRI_ROLE_ACTIVATION, HRI_F32, s->rows, columns, "embedding.noisy");
  emit(b, HRI_OP_NOISE, &attr, (hri_operand[]){HRI_R(x), HRI_R(b->job->control), HRI_W(y)}, 3);
  return y;
}

static hri_id scaled_by(builder *b, hri_id x, double factor, uint64_t rows, const char *name) {
  hri_attr attr = {.f = {factor}};
  hri_id y;
  if (factor == 1) return x;
  y = fresh(b, HRI_ROLE_ACTIVATION, HRI_F32, rows, b->model->hidden_size, name);
  emit(b, HRI_OP_SCALE, &attr, (hri_operand[]){HRI_R(x), HRI_W(y)}, 2);
  return y;
}

/* What attention adds to the residual stream, of what it reads. */
static hri_id attention_part(builder *b, hri_id h, const rows_shape *s) {
  const hr_model *m = b->model;
  h = linear(b, h, HRI_SLOT_QKV_WEIGHT, HRI_SLOT_QKV_BIAS, s, "qkv");
  if (m->qk_norm) h = norm_heads(b, h, s->rows);
  if (!m->learned_positions && !m->no_rope[b->emit.layer]) h = rotate(b, h, s);
  h = attend(b, h, s);
  h = linear(b, h, HRI_SLOT_ATTENTION_OUTPUT_WEIGHT, HRI_SLOT_ATTENTION_OUTPUT_BIAS, s, "attention.output");
  h = drop(b, h, dropout_of(b).attention_output, s, "attention.output.dropped");
  if (m->post_norms)
    h = norm(b, h, HRI_SLOT_POST_NORM1_WEIGHT, HRI_SLOT_NONE, s->rows, "post_norm1", "post_norm1.stats");
  return scaled_by(b, h, m->residual_scale, s->rows, "attention.scaled");
}

static hri_id mlp_part(builder *b, hri_id h, const rows_shape *s) {
  const hr_model *m = b->model;
  hri_attr attr = {.i = {m->activation}};
  hri_id act;
  h = linear(b, h, HRI_SLOT_MLP_IN_WEIGHT, HRI_SLOT_MLP_IN_BIAS, s, m->gated_mlp ? "gate_up" : "fc");
  act = fresh(b, HRI_ROLE_ACTIVATION, HRI_F32, s->rows, m->mlp_size, "act");
  emit(b, m->gated_mlp ? HRI_OP_GLU : HRI_OP_ACTIVATION, &attr, (hri_operand[]){HRI_R(h), HRI_W(act)}, 2);
  h = linear(b, act, HRI_SLOT_MLP_OUT_WEIGHT, HRI_SLOT_MLP_OUT_BIAS, s, "mlp");
  h = drop(b, h, dropout_of(b).mlp, s, "mlp.dropped");
  if (m->post_norms)
    h = norm(b, h, HRI_SLOT_POST_NORM2_WEIGHT, HRI_SLOT_NONE, s->rows, "post_norm2", "post_norm2.stats");
  return scaled_by(b, h, m->residual_scale, s->rows, "mlp.scaled");
}

static hri_id block(builder *b, hri_id x, const rows_shape *s) {
  const hr_model *m = b->model;
  hri_id h = x, sum;
  if (!m->no_pre_norms) h = norm(b, x, HRI_SLOT_NORM1_WEIGHT, HRI_SLOT_NORM1_BIAS, s->rows, "norm1", "norm1.stats");
  sum = add(b, x, attention_part(b, h, s), s->rows, "residual1");
  if (!m->parallel_residual) h = sum; /* else the MLP reads what attention read */
  if (!m->no_pre_norms && !m->parallel_residual)
    h = norm(b, sum, HRI_SLOT_NORM2_WEIGHT, HRI_SLOT_NORM2_BIAS, s->rows, "norm2", "norm2.stats");
  return add(b, sum, mlp_part(b, h, s), s->rows, "residual2");
}

/* Embedding to final norm in program `program`. */
static hri_forward forward(builder *b, uint8_t program, uint8_t phase, const rows_shape *s) {
  const hr_model *m = b->model;
  hri_forward f = {.present = true,
                   .program = program,
                   .phase = phase,
                   .targets = s->targets,
                   .vocabulary = m->vocabulary_size,
                   .logit_softcap = m->logit_softcap,
                   .unit = 1 + m->layer_count};
  hri_attr attr = {.i = {m->pad_token}, .f = {embedding_factor(b)}};
  hri_id x;
  b->site = 1u << 16; /* the same in every program: a dropout mask or rounding would agree */
  b->emit = (hri_emit){.program = program,
                       .lane = HRI_COMPUTE,
                       .phase = phase,
                       .layer = -1,
                       .unit = HRI_UNIT_EMBED,
                       .origin = HRI_NONE};
  x = fresh(b, HRI_ROLE_ACTIVATION, HRI_F32, s->rows, m->hidden_size, "embedding");
  emit(b, HRI_OP_EMBED, &attr,
       (hri_operand[]){HRI_R(s->ids), HRI_R(weight_at(b, -1, HRI_SLOT_TOKEN_EMBEDDING)),
                       m->learned_positions ? HRI_R(s->positions) : HRI_ABSENT,
                       HRI_R(weight_at(b, -1, HRI_SLOT_POSITION_EMBEDDING)), HRI_W(x)},
       5);
  raise_embedding(b, x, s);
  if (phase == HRI_PHASE_FORWARD && b->spec->neftune_alpha > 0) x = disturb(b, x, s);
  x = drop(b, x, dropout_of(b).embedding, s, "embedding.dropped");
  for (uint32_t l = 0; l < m->layer_count; l++) {
    b->emit.layer = (int32_t)l;
    b->emit.unit = HRI_UNIT_FIRST_LAYER + l;
    x = block(b, x, s);
  }
  b->emit.layer = -1;
  b->emit.unit = f.unit;
  f.hidden =
      norm(b, x, HRI_SLOT_FINAL_NORM_WEIGHT, HRI_SLOT_FINAL_NORM_BIAS, s->rows, "final_norm", "final_norm.stats");
  f.hidden = scaled_by(b, f.hidden, 1 / m->logit_divisor, s->rows, "final_norm.scaled"); /* logits are linear in it */
  f.head_bias = weight_at(b, -1, HRI_SLOT_HEAD_BIAS);
  f.head = weight_at(b, -1, HRI_SLOT_HEAD_WEIGHT);
  if (f.head == HRI_NONE) f.head = weight_at(b, -1, HRI_SLOT_TOKEN_EMBEDDING);
  return f;
}

/* ---- programs ---- */

static hri_id select_micro(builder *b, hri_id from, uint64_t rows, const char *name) {
  hri_id to = fresh(b, HRI_ROLE_INPUT, HRI_I32, rows, 0, name);
  emit(b, HRI_OP_SELECT, NULL, (hri_operand[]){HRI_R(from), HRI_R(b->job->control), HRI_W(to)}, 3);
  return to;
}

void hri_build_zero_gradients(hri_job *job) {
  for (uint32_t p = 0; p < job->params.count && !job->failed; p++) {
    const hri_param param = job->params.items[p];
    hri_emit e = {.program = HRI_BEGIN,
                  .phase = HRI_PHASE_OPTIMIZER,
                  .layer = param.layer,
                  .unit = param.unit,
                  .site = param.site,
                  .origin = HRI_NONE};
    for (uint32_t r = 0; r < param.run_count; r++)
      hri_node_append(job, HRI_OP_ZERO, e, NULL, (hri_operand[]){HRI_W(job->runs.items[param.run_begin + r].gradient)},
                      1);
  }
}

static void build_training(builder *b, hri_forward *forwards) {
  hri_job *job = b->job;
  const hr_job *spec = b->spec;
  uint64_t rows = (uint64_t)spec->micro_batch * spec->sequence_length;
  bool many = spec->accumulate > 1;
  uint16_t scope =
      many ? (uint16_t)(HRI_IN(HRI_BEGIN) | HRI_IN(HRI_MICRO) | HRI_IN(HRI_UPDATE)) : (uint16_t)HRI_IN(HRI_STEP);
  rows_shape s = {.batch = spec->micro_batch, .sequence = spec->sequence_length, .rows = rows};
  uint8_t program = many ? HRI_MICRO : HRI_STEP;
  job->input_ids = input(b, scope, program, many ? spec->accumulate : 0, rows, "input.ids");
  job->input_targets = input(b, scope, program, many ? spec->accumulate : 0, rows, "input.targets");
  job->input_positions = input(b, scope, program, many ? spec->accumulate : 0, rows, "input.positions");
  job->input_doc_start = input(b, scope, program, many ? spec->accumulate : 0, rows, "input.doc_start");
  s.ids = job->input_ids;
  s.targets = job->input_targets;
  s.positions = job->input_positions;
  s.doc_start = job->input_doc_start;
  if (many) {
    hri_build_zero_gradients(job);
    b->emit = (hri_emit){.program = program,
                         .phase = HRI_PHASE_FORWARD,
                         .layer = -1,
                         .unit = HRI_UNIT_EMBED,
                         .origin = HRI_NONE};
    s.ids = select_micro(b, s.ids, rows, "micro.ids");
    s.targets = select_micro(b, s.targets, rows, "micro.targets");
    s.positions = select_micro(b, s.positions, rows, "micro.positions");
    s.doc_start = select_micro(b, s.doc_start, rows, "micro.doc_start");
  }
  forwards[program] = forward(b, program, HRI_PHASE_FORWARD, &s);
  forwards[program].with_gradient = true;
}

static void build_evaluation(builder *b, hri_forward *forwards) {
  hri_job *job = b->job;
  uint64_t rows = (uint64_t)b->spec->micro_batch * b->spec->sequence_length;
  rows_shape s = {.batch = b->spec->micro_batch, .sequence = b->spec->sequence_length, .rows = rows};
  uint16_t scope = HRI_IN(HRI_EVALUATE);
  s.ids = job->eval_ids = input(b, scope, HRI_EVALUATE, 0, rows, "eval.ids");
  s.targets = job->eval_targets = input(b, scope, HRI_EVALUATE, 0, rows, "eval.targets");
  s.positions = job->eval_positions = input(b, scope, HRI_EVALUATE, 0, rows, "eval.positions");
  s.doc_start = job->eval_doc_start = input(b, scope, HRI_EVALUATE, 0, rows, "eval.doc_start");
  forwards[HRI_EVALUATE] = forward(b, HRI_EVALUATE, HRI_PHASE_EVALUATE, &s);
}

/* prefill and decode are the same program over chunks of rows and one row; both append to the cache and attend to
 * it. */
static hr_status build_generation(builder *b, hri_forward *forwards, hr_error *error) {
  hri_job *job = b->job;
  const hr_model *m = b->model;
  uint64_t capacity = hri_round_up(b->spec->context_length, 32) /* HRI_ATTENTION_CACHE_BLOCK */,
           kv = (uint64_t)m->kv_head_count * m->head_size;
  uint16_t scope = (uint16_t)(HRI_IN(HRI_PREFILL) | HRI_IN(HRI_DECODE));
  hri_id *caches = hri_alloc_zero((uint64_t)m->layer_count * 2, sizeof *caches);
  if (!caches) return hri_fail_memory(error, (uint64_t)m->layer_count * 2 * sizeof *caches, "the cache table");
  job->prefill_rows = capacity < 128 ? (uint32_t)capacity : 128;
  for (uint32_t l = 0; l < 2 * m->layer_count; l++) {
    hri_place place = {.program = HRI_PREFILL,
                       .scope = scope,
                       .tier = HRI_DEVICE,
                       .role = HRI_ROLE_CACHE,
                       .layer = (int32_t)(l / 2),
                       .unit = HRI_UNIT_FIRST_LAYER + l / 2};
    uint64_t dims[2] = {capacity, kv};
    caches[l % 2 * m->layer_count + l / 2] =
        hri_tensor_new(job, place, hri_name(job, "layers.%u.%s", l / 2, l % 2 ? "cache.v" : "cache.k"), HRI_F32, 2,
                       dims, NULL);
  }
  for (int decode = 0; decode < 2; decode++) {
    uint8_t program = decode ? HRI_DECODE : HRI_PREFILL;
    uint64_t rows = decode ? 1 : job->prefill_rows;
    rows_shape s = {.batch = 1,
                    .sequence = rows,
                    .rows = rows,
                    .cache_k = caches,
                    .cache_v = caches + m->layer_count,
                    .capacity = capacity,
                    .targets = HRI_NONE};
    s.doc_start = HRI_NONE;
    s.ids = input(b, (uint16_t)HRI_IN(program), program, 0, rows, decode ? "decode.ids" : "prefill.ids");
    s.positions =
        input(b, (uint16_t)HRI_IN(program), program, 0, rows, decode ? "decode.positions" : "prefill.positions");
    *(decode ? &job->decode_ids : &job->generate_ids) = s.ids;
    *(decode ? &job->decode_positions : &job->generate_positions) = s.positions;
    forwards[program] = forward(b, program, HRI_PHASE_GENERATE, &s);
  }
  hri_free(caches);
  return HR_OK;
}

hr_status hri_build(hri_job *job, const hr_job *spec, hri_forward *forwards, hr_error *error) {
  builder b = {.job = job,
               .spec = spec,
               .model = &spec->model,
               .all = hri_programs_of(spec),
               .rope_table = HRI_NONE,
               .local_rope_table = HRI_NONE};
  uint32_t count = hri_param_count(b.model), slots = (b.model->layer_count + 1) * HRI_SLOT_COUNT;
  uint64_t positions = spec->position_count > spec->sequence_length ? spec->position_count : spec->sequence_length;
  hr_status status = HR_OK;
  memset(forwards, 0, HRI_PROGRAM_COUNT * sizeof *forwards);
  b.slots = hri_alloc((uint64_t)slots * sizeof *b.slots);
  if (!b.slots) return hri_fail_memory(error, slots * sizeof *b.slots, "the parameter table");
  memset(b.slots, 0xFF, slots * sizeof *b.slots);
  job->micro_rows = (uint32_t)((uint64_t)spec->micro_batch * spec->sequence_length);
  job->accumulate = spec->accumulate;
  hri_build_control(job, b.all);
  for (uint32_t p = 0; p < count; p++) make_param(&b, p);
  if ((b.all & HRI_IN(HRI_PREFILL)) && (positions < spec->context_length || spec->purpose == HR_PURPOSE_GENERATE))
    positions = spec->context_length;
  if (!b.model->learned_positions) b.rope_table = make_rope_table(&b, &b.model->rope, positions, "rope.table");
  if (b.model->has_local_rope)
    b.local_rope_table = make_rope_table(&b, &b.model->local_rope, positions, "rope.local_table");
  if (spec->purpose == HR_PURPOSE_TRAIN) build_training(&b, forwards);
  if (b.all & HRI_IN(HRI_EVALUATE)) build_evaluation(&b, forwards);
  if (b.all & HRI_IN(HRI_PREFILL)) HRI_TRY_OUT(build_generation(&b, forwards, error));
  status = hri_job_ok(job, error);
out:
  hri_free(b.slots);
  return status;
}
