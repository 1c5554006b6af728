/* Storages, tensors, nodes, orders and names of a job: how they are made, and what is read off them. Pools only grow
 * and ids are indices, so a pointer into a pool is good until the next thing is made. A refused allocation sets
 * job->failed and every later call returns HRI_NONE: callers check once, with hri_job_ok. */
#include "program/job.h"

#include <assert.h>
#include <stdarg.h>
#include <string.h>

#include <headroom/plan.h>

#include "base/error.h"

/* Sizes of GGUF's blocks: ggml-common.h of llama.cpp (block_q4_0: a half and 16 bytes; block_q4_K: 144 for 256). */
static const struct {
  const char *name;
  uint16_t block, bytes; /* so many elements in so many bytes */
} dtypes[HRI_DTYPE_COUNT] = {
    [HRI_F32] = {"f32", 1, 4},         [HRI_BF16] = {"bf16", 1, 2},
    [HRI_F16] = {"f16", 1, 2},         [HRI_F64] = {"f64", 1, 8},
    [HRI_I32] = {"i32", 1, 4},         [HRI_I64] = {"i64", 1, 8},
    [HRI_U8] = {"u8", 1, 1},           [HRI_I8] = {"i8", 1, 1},
    [HRI_F32_LOW] = {"f32-low", 1, 2}, [HRI_U4] = {"u4", 2, 1},
    [HRI_Q4_0] = {"q4_0", 32, 18},     [HRI_Q4_1] = {"q4_1", 32, 20},
    [HRI_Q5_0] = {"q5_0", 32, 22},     [HRI_Q5_1] = {"q5_1", 32, 24},
    [HRI_Q8_0] = {"q8_0", 32, 34},     [HRI_Q4_K] = {"q4_k", 256, 144},
    [HRI_Q5_K] = {"q5_k", 256, 176},   [HRI_Q6_K] = {"q6_k", 256, 210},
    [HRI_Q2_K] = {"q2_k", 256, 84},    [HRI_Q3_K] = {"q3_k", 256, 110},
    [HRI_IQ4_NL] = {"iq4_nl", 32, 18}, [HRI_IQ4_XS] = {"iq4_xs", 256, 136},
};
static const char *const tier_names[HRI_TIER_COUNT] = {"device", "host", "disk"};
static const char *const role_names[HRI_ROLE_COUNT] = {"weight",       "master_weight", "gradient",  "optimizer_state",
                                                       "activation",   "logits",        "workspace", "input",
                                                       "quantization", "communication", "cache",     "control"};
static const char *const program_names[HRI_PROGRAM_COUNT] = {"load",     "begin",   "micro",  "update", "step",
                                                             "evaluate", "prefill", "decode", "save"};
static const char *const lane_names[HRI_LANE_COUNT] = {"compute",       "copy-in", "copy-out",
                                                       "communication", "disk",    "host"};
static const char *const phase_names[HRI_PHASE_COUNT] = {"load",      "forward",  "loss",     "backward",
                                                         "optimizer", "evaluate", "generate", "save"};
static const char *const access_names[HRI_ACCESS_COUNT] = {"read", "write", "add", "update", "scratch"};

const char *hri_dtype_name(hri_dtype dtype) { return dtypes[dtype].name; }
const char *hri_tier_name(hri_tier tier) { return tier_names[tier]; }
const char *hri_role_name(hri_role role) { return role_names[role]; }
const char *hr_role_name(uint32_t role) { return role < HRI_ROLE_COUNT ? hri_role_name((hri_role)role) : "?"; }
const char *hri_program_name(hri_program_kind kind) { return program_names[kind]; }
const char *hri_lane_name(hri_lane lane) { return lane_names[lane]; }
const char *hri_phase_name(hri_phase phase) { return phase_names[phase]; }
const char *hri_access_name(hri_access access) { return access_names[access]; }
uint64_t hri_dtype_bytes(hri_dtype dtype) {
  assert(dtypes[dtype].block == 1);
  return dtypes[dtype].bytes;
}
uint64_t hri_dtype_block(hri_dtype dtype) { return dtypes[dtype].block; }
uint64_t hri_dtype_size(hri_dtype dtype, uint64_t elements) {
  assert(elements % dtypes[dtype].block == 0);
  return elements / dtypes[dtype].block * dtypes[dtype].bytes;
}

void hri_job_init(hri_job *job) {
  hri_id *inputs[] = {&job->control,         &job->input_ids,        &job->input_targets,      &job->input_positions,
                      &job->input_doc_start, &job->eval_ids,         &job->eval_targets,       &job->eval_positions,
                      &job->eval_doc_start,  &job->generate_ids,     &job->generate_positions, &job->generate_logits,
                      &job->decode_ids,      &job->decode_positions, &job->decode_logits};
  memset(job, 0, sizeof *job);
  for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) *inputs[i] = HRI_NONE;
  job->team = 1;
  job->accumulate = 1;
}

void hri_job_deinit(hri_job *job) {
  hri_array_free(&job->storages);
  hri_array_free(&job->tensors);
  hri_array_free(&job->nodes);
  hri_array_free(&job->operands);
  hri_array_free(&job->waits);
  hri_array_free(&job->segments);
  hri_array_free(&job->params);
  hri_array_free(&job->parts);
  hri_array_free(&job->ranges);
  hri_array_free(&job->runs);
  hri_array_free(&job->laid_out);
  hri_array_free(&job->members);
  hri_array_free(&job->names);
  for (size_t i = 0; i < job->ropes.count; i++) hri_free(job->ropes.items[i].inverse);
  hri_array_free(&job->ropes);
  for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++) hri_array_free(&job->programs[kind].order);
}

uint32_t hri_job_add_rope(hri_job *job, uint32_t pairs) {
  hri_rope_source made = {.inverse = hri_alloc_zero(pairs, sizeof *made.inverse), .pairs = pairs, .factor = 1};
  if (made.inverse && hri_array_push(&job->ropes, made)) return (uint32_t)job->ropes.count - 1;
  hri_free(made.inverse);
  job->failed = true;
  return HRI_NONE;
}

static hr_status fail_too_large(hr_error *error) {
  hri_fail(error, HR_ERROR_USAGE, "the job's tensors have more bytes than 64 bits can count");
  return hri_hint(error, HR_ERROR_USAGE, "lower --micro-batch or --seq, or correct the sizes of the model");
}

hr_status hri_job_bytes_ok(const hri_job *job, hr_error *error) {
  uint64_t sum = 0;
  for (size_t s = 0; s < job->storages.count; s++) {
    const hri_storage *storage = &job->storages.items[s];
    const uint64_t room = INT64_MAX - sum,
                   around = 2 * (uint64_t)storage->align; /* what rounding and a guard zone may add */
    if (storage->dead) continue;
    if (room < around || storage->bytes > room - around) return fail_too_large(error);
    sum += storage->bytes + around;
  }
  return HR_OK;
}

hr_status hri_job_ok(const hri_job *job, hr_error *error) {
  if (job->too_large) return fail_too_large(error);
  return job->failed ? hri_fail_memory(error, 0, "the job's programs") : HR_OK;
}

/* Digits of a number, most significant first; returns their count. */
static size_t put_number(char *out, uint64_t value) {
  char digits[20];
  size_t count = 0;
  do digits[count++] = (char)('0' + value % 10);
  while (value /= 10);
  for (size_t k = 0; k < count; k++) out[k] = digits[count - 1 - k];
  return count;
}

/* The few conversions that names are made of: %s %d %u %zu. A program has thousands of names, and a search thousands of
 * programs: printf took a fifth of its time. Names end with what no longer has room, whole pieces at a time. */
static size_t put_name(char *out, size_t bytes, const char *format, va_list args) {
  size_t used = 0;
  for (const char *f = format; *f && used + 22 < bytes; f++) {
    const char *text;
    size_t length;
    int number;
    if (*f != '%') {
      out[used++] = *f;
      continue;
    }
    switch (*++f) {
    case 's':
      text = va_arg(args, const char *);
      length = strlen(text);
      if (length > bytes - 1 - used) length = bytes - 1 - used;
      memcpy(out + used, text, length);
      used += length;
      break;
    case 'd':
      number = va_arg(args, int);
      if (number < 0) out[used++] = '-';
      used += put_number(out + used, number < 0 ? (uint64_t)-(int64_t)number : (uint64_t)number);
      break;
    case 'u': used += put_number(out + used, va_arg(args, unsigned)); break;
    default:
      assert(f[0] == 'z' && f[1] == 'u'); /* no other conversion in a name */
      f++;
      used += put_number(out + used, va_arg(args, size_t));
    }
  }
  out[used++] = 0;
  return used;
}

uint32_t hri_name(hri_job *job, const char *format, ...) {
  char text[256];
  va_list args;
  uint32_t key = (uint32_t)job->names.count;
  size_t bytes;
  va_start(args, format);
  bytes = put_name(text, sizeof text, format, args);
  va_end(args);
  if (!hri_array_reserve(&job->names, job->names.count + bytes)) {
    job->failed = true;
    return HRI_NONE;
  }
  memcpy(job->names.items + key, text, bytes);
  job->names.count += bytes;
  return key;
}

const char *hri_name_get(const hri_job *job, uint32_t key) {
  return key < job->names.count ? job->names.items + key : "";
}

hri_id hri_tensor_new(hri_job *job, hri_place place, uint32_t key, hri_dtype dtype, uint32_t rank, const uint64_t *dims,
                      const uint64_t *stored) {
  hri_tensor tensor = {0};
  hri_storage storage = {0};
  uint64_t bytes = dtypes[dtype].bytes, block = dtypes[dtype].block;
  tensor.storage = tensor.value = (hri_id)job->storages.count;
  tensor.dtype = (uint8_t)dtype;
  tensor.rank = (uint8_t)rank;
  tensor.key = key;
  for (uint32_t d = 0; d < rank; d++) {
    tensor.dims[d] = dims[d];
    tensor.stored[d] = stored ? stored[d] : dims[d];
    assert(d + 1 < rank || tensor.stored[d] % block == 0); /* rows of whole blocks */
    if (!hri_mul(bytes, d + 1 < rank ? tensor.stored[d] : tensor.stored[d] / block, &bytes))
      job->failed = job->too_large = true;
  }
  storage.bytes = bytes;
  storage.align = HRI_STORAGE_ALIGN;
  storage.tier = place.tier;
  storage.role = place.role;
  storage.scope = place.scope;
  storage.program = place.program;
  storage.layer = place.layer;
  storage.unit = place.unit;
  storage.segment = HRI_NONE;
  storage.key = key;
  if (job->failed || !hri_array_push(&job->storages, storage) || !hri_array_push(&job->tensors, tensor)) {
    job->failed = true;
    return HRI_NONE;
  }
  return (hri_id)job->tensors.count - 1;
}

static hri_id push_view(hri_job *job, const hri_tensor *view) {
  if (!hri_array_push(&job->tensors, *view)) {
    job->failed = true;
    return HRI_NONE;
  }
  return (hri_id)job->tensors.count - 1;
}

hri_id hri_tensor_rows(hri_job *job, hri_id tensor, uint64_t begin, uint64_t count) {
  hri_tensor view;
  uint64_t row_bytes;
  if (job->failed || tensor == HRI_NONE) return HRI_NONE;
  view = job->tensors.items[tensor];
  assert(begin + count <= view.stored[0]);
  if (view.stride)
    row_bytes = hri_dtype_size((hri_dtype)view.dtype, view.stride) *
                (hri_tensor_stored_elements(&view) / view.stored[view.rank - 1] / view.stored[0]);
  else row_bytes = hri_tensor_bytes(&view) / view.stored[0];
  view.offset += begin * row_bytes;
  view.value_offset += begin * row_bytes;
  view.dims[0] = view.stored[0] = count;
  return push_view(job, &view);
}

hri_id hri_tensor_columns(hri_job *job, hri_id tensor, uint64_t begin, uint64_t count) {
  hri_tensor view;
  uint64_t columns;
  if (job->failed || tensor == HRI_NONE) return HRI_NONE;
  view = job->tensors.items[tensor];
  assert(view.rank > 0);
  columns = view.stored[view.rank - 1];
  assert(count > 0 && begin + count <= columns);
  if (count != columns) view.stride = view.stride ? view.stride : columns;
  view.offset += hri_dtype_size((hri_dtype)view.dtype, begin);
  view.value_offset += hri_dtype_size((hri_dtype)view.dtype, begin);
  view.dims[view.rank - 1] = view.stored[view.rank - 1] = count;
  if (hri_tensor_stored_elements(&view) == count) view.stride = 0; /* one row has no next */
  return push_view(job, &view);
}

hri_id hri_tensor_of_storage(hri_job *job, hri_id storage, hri_dtype dtype) {
  hri_tensor all = {.storage = storage, .value = storage, .dtype = (uint8_t)dtype, .rank = 1, .layout = HRI_PLAIN};
  if (job->failed || storage == HRI_NONE) return HRI_NONE;
  assert(hri_dtype_block(dtype) == 1);
  all.key = job->storages.items[storage].key;
  all.dims[0] = all.stored[0] = job->storages.items[storage].bytes / hri_dtype_bytes(dtype);
  return push_view(job, &all);
}

hri_id hri_tensor_group(hri_job *job, const hri_id *members, uint32_t count) {
  hri_tensor group;
  const hri_tensor *last;
  if (job->failed) return HRI_NONE;
  assert(count > 0 && members[0] != HRI_NONE);
  if (count == 1) return members[0];
  group = job->tensors.items[members[0]];
  last = &job->tensors.items[members[count - 1]];
  for (uint32_t k = 1; k < count; k++) {
    const hri_tensor *t = &job->tensors.items[members[k]], *before = &job->tensors.items[members[k - 1]];
    assert(t->storage == group.storage && t->dtype == group.dtype && t->stride == 0 && t->member_count == 0);
    assert(before->offset + hri_tensor_bytes(before) <= t->offset);
    (void)t, (void)before;
  }
  group.value = group.storage;
  group.value_offset = group.offset;
  group.rank = 1;
  group.dims[0] = group.stored[0] =
      (last->offset + hri_tensor_bytes(last) - group.offset) / hri_dtype_size((hri_dtype)group.dtype, 1);
  group.key = job->storages.items[group.storage].key;
  group.member_begin = (uint32_t)job->members.count;
  group.member_count = count;
  for (uint32_t k = 0; k < count; k++)
    if (!hri_array_push(&job->members, members[k])) job->failed = true;
  return job->failed ? HRI_NONE : push_view(job, &group);
}

hri_id hri_control_double(hri_job *job, uint64_t offset, const char *name) {
  hri_tensor view;
  if (job->failed || job->control == HRI_NONE) return HRI_NONE;
  assert(offset % sizeof(double) == 0 && offset + sizeof(double) <= sizeof(hri_control));
  view = job->tensors.items[job->control];
  assert(hri_tensor_bytes(&view) == sizeof(hri_control));
  view.offset += offset;
  view.value_offset += offset;
  view.dtype = HRI_F64;
  view.rank = 1;
  view.dims[0] = view.stored[0] = 1;
  view.key = hri_name(job, "control.%s", name);
  return job->failed ? HRI_NONE : push_view(job, &view);
}

hri_id hri_node_new(hri_job *job, uint16_t op, hri_emit emit, const hri_attr *attr, const hri_operand *operands,
                    uint32_t count) {
  hri_node node = {0};
  if (job->failed) return HRI_NONE;
  assert(emit.program < HRI_PROGRAM_COUNT && emit.lane < HRI_LANE_COUNT && emit.phase < HRI_PHASE_COUNT);
  node.op = op;
  node.lane = emit.lane;
  node.phase = emit.phase;
  node.program = emit.program;
  node.pass = job->current_pass;
  node.layer = emit.layer;
  node.unit = emit.unit;
  node.site = emit.site;
  node.origin = emit.origin;
  if (attr) node.attr = *attr;
  node.operand_begin = (uint32_t)job->operands.count;
  for (uint32_t i = 0; i < count; i++) {
    if (!hri_array_push(&job->operands, operands[i])) job->failed = true;
  }
  node.operand_count = (uint32_t)job->operands.count - node.operand_begin;
  if (job->failed || !hri_array_push(&job->nodes, node)) {
    job->failed = true;
    return HRI_NONE;
  }
  return (hri_id)job->nodes.count - 1;
}

void hri_order_push(hri_job *job, uint8_t program, hri_id node) {
  if (job->failed || node == HRI_NONE) return;
  if (!hri_array_push(&job->programs[program].order, node)) job->failed = true;
  job->programs[program].present = true;
}

void hri_order_replace(hri_job *job, uint8_t program, hri_order *order) {
  hri_array_free(&job->programs[program].order);
  job->programs[program].order = *order;
  *order = (hri_order){0};
}

hri_id hri_node_append(hri_job *job, uint16_t op, hri_emit emit, const hri_attr *attr, const hri_operand *operands,
                       uint32_t count) {
  hri_id node = hri_node_new(job, op, emit, attr, operands, count);
  hri_order_push(job, emit.program, node);
  return node;
}

/* Moves a node's operands to the end of the pool, so that the list can grow. */
static bool operands_to_end(hri_job *job, hri_node *node, uint32_t extra) {
  uint32_t begin = (uint32_t)job->operands.count;
  if (node->operand_begin + node->operand_count == begin) return true;
  if (!hri_array_reserve(&job->operands, begin + node->operand_count + extra)) return false;
  memcpy(job->operands.items + begin, job->operands.items + node->operand_begin,
         node->operand_count * sizeof(hri_operand));
  job->operands.count += node->operand_count;
  node->operand_begin = begin;
  return true;
}

void hri_node_add_operand(hri_job *job, hri_id id, hri_id tensor, hri_access access) {
  hri_operand operand = {tensor, (uint8_t)access};
  hri_node *node;
  if (job->failed || id == HRI_NONE || tensor == HRI_NONE) return;
  node = &job->nodes.items[id];
  if (!operands_to_end(job, node, 1) || !hri_array_push(&job->operands, operand)) {
    job->failed = true;
    return;
  }
  node->operand_count++;
}

void hri_node_add_wait(hri_job *job, hri_id id, hri_id on) {
  hri_node *node;
  hri_wait wait;
  uint32_t begin = (uint32_t)job->waits.count;
  if (job->failed || id == HRI_NONE || on == HRI_NONE) return;
  node = &job->nodes.items[id];
  assert(id != on &&
         job->nodes.items[on].program == node->program); /* waits do not cross programs, whose lanes join at the end */
  for (uint32_t i = 0; i < node->wait_count; i++)
    if (job->waits.items[node->wait_begin + i].node == on) return;
  wait = (hri_wait){job->nodes.items[on].lane, on};
  if (node->wait_count > 0 && node->wait_begin + node->wait_count != begin) {
    if (!hri_array_reserve(&job->waits, begin + node->wait_count + 1)) {
      job->failed = true;
      return;
    }
    memcpy(job->waits.items + begin, job->waits.items + node->wait_begin, node->wait_count * sizeof(hri_wait));
    job->waits.count += node->wait_count;
    node->wait_begin = begin;
  }
  if (node->wait_count == 0) node->wait_begin = begin;
  if (!hri_array_push(&job->waits, wait)) {
    job->failed = true;
    return;
  }
  node->wait_count++;
}

hri_id hri_node_clone(hri_job *job, hri_id id) {
  hri_node node;
  uint32_t begin = (uint32_t)job->operands.count;
  if (job->failed || id == HRI_NONE) return HRI_NONE;
  node = job->nodes.items[id];
  if (!hri_array_reserve(&job->operands, begin + node.operand_count)) {
    job->failed = true;
    return HRI_NONE;
  }
  memcpy(job->operands.items + begin, job->operands.items + node.operand_begin,
         node.operand_count * sizeof(hri_operand));
  job->operands.count += node.operand_count;
  node.operand_begin = begin;
  node.wait_count = 0;
  node.pass = job->current_pass;
  if (!hri_array_push(&job->nodes, node)) {
    job->failed = true;
    return HRI_NONE;
  }
  return (hri_id)job->nodes.count - 1;
}

hri_id hri_operand_find(const hri_job *job, const hri_node *node, hri_access access, uint32_t index) {
  const hri_operand *operands = hri_operands(job, node);
  for (uint32_t i = 0; i < node->operand_count; i++) {
    if (operands[i].access != access || operands[i].tensor == HRI_NONE) continue;
    if (index-- == 0) return operands[i].tensor;
  }
  return HRI_NONE;
}

uint64_t hri_tensor_elements(const hri_tensor *tensor) {
  uint64_t count = 1;
  for (uint32_t d = 0; d < tensor->rank; d++) count *= tensor->dims[d];
  return count;
}

uint64_t hri_tensor_stored_elements(const hri_tensor *tensor) {
  uint64_t count = 1;
  for (uint32_t d = 0; d < tensor->rank; d++) count *= tensor->stored[d];
  return count;
}

uint64_t hri_tensor_bytes(const hri_tensor *tensor) {
  return hri_dtype_size((hri_dtype)tensor->dtype, hri_tensor_stored_elements(tensor));
}

const hri_param_range *hri_param_whole(const hri_job *job, const hri_param *param) {
  assert(param->range_count == 1);
  return &job->ranges.items[param->range_begin];
}

uint64_t hri_range_logical(const hri_job *job, const hri_param_range *range) {
  const hri_tensor *weight = &job->tensors.items[job->params.items[range->param].weight];
  uint64_t columns = hri_tensor_stored_elements(weight) / weight->stored[0];
  uint64_t rows = range->row + range->rows < weight->dims[0] ? range->rows : weight->dims[0] - range->row;
  return rows * columns; /* only rows are padded: vocabularies */
}

bool hri_tensor_is_whole(const hri_job *job, const hri_tensor *tensor) {
  return tensor->stride == 0 && tensor->value_offset == 0 &&
         hri_tensor_bytes(tensor) == job->storages.items[tensor->value].bytes;
}
