/* Packing: the right operand of a matrix product is rearranged once, by a visible node, instead of inside the product
 * again and again. The products' results have the same bits.
 *
 * Transient: a packed copy lives from its PACK node to the product behind it; the chunks of a loss head, which follow
 * each other, share one. Persistent: the weights of a step with several micro-steps are packed in `begin` and carried
 * to them; in a step without, the first product packs for all later ones of its kind. Automatic: transient, and only
 * where the bytes are free anyway, that is where the program is that far below the job's peak at that moment. */
#include <assert.h>
#include <string.h>

#include "pass/pass.h"

/* A packed copy that later products may share. */
typedef struct packed {
  hri_id value, tensor, node; /* what the plain operand shows; the packed tensor; the product that it was made for */
  uint64_t value_offset, rows;
  uint32_t last; /* position of the last product that reads it */
  int64_t blocks;
  uint16_t op;
} packed;

typedef struct packer {
  hri_job *job;
  const hri_backend *backend;
  hri_pack_mode mode;
  uint8_t program;
  uint64_t peak;                     /* of the job, before any packing; automatic mode only, like live */
  uint64_t *live[HRI_PROGRAM_COUNT]; /* per position, with what was packed so far */
  HRI_ARRAY(packed) copies;
  hri_order order;
} packer;

static uint64_t rows_of(const hri_job *job, const hri_node *node) {
  const hri_tensor *a = &job->tensors.items[hri_operands(job, node)[0].tensor];
  return hri_tensor_stored_elements(a) / a->stored[a->rank - 1];
}

/* A product whose sums go in blocks has its packed operand in such blocks. */
static int64_t blocks_of(const hri_node *node) { return node->op == HRI_OP_LINEAR_DX ? node->attr.i[0] : 0; }

/* ---- how much is live ---- */

static uint64_t placed_bytes(uint64_t bytes) { return hri_round_up(bytes, HRI_STORAGE_ALIGN); }

static uint64_t carried_bytes(const hri_job *job, uint8_t program) {
  uint64_t sum = 0;
  for (size_t s = 0; s < job->storages.count; s++) {
    const hri_storage *storage = &job->storages.items[s];
    if (!storage->dead && storage->tier == HRI_DEVICE && (storage->scope & HRI_IN(program)))
      sum += placed_bytes(storage->bytes);
  }
  return sum;
}

/* Live bytes at each position of a program (the caller frees), the scratch that the node there will get among them, and
 * the most of them. */
static hr_status profile(const hri_job *job, const hri_backend *backend, uint8_t program, uint64_t **live,
                         uint64_t *peak, hr_error *error) {
  size_t count = job->programs[program].order.count;
  hr_status status = HR_OK;
  uint64_t now = carried_bytes(job, program), *delta;
  uint32_t *first, *last;
  HRI_TRY(hri_touch_range(job, program, &first, &last, error));
  delta = hri_alloc_zero(2 * (count + 1), sizeof *delta);
  *live = hri_alloc_zero(count + 1, sizeof **live);
  for (size_t s = 0; delta && *live && s < job->storages.count; s++) {
    const hri_storage *storage = &job->storages.items[s];
    if (first[s] == UINT32_MAX || storage->scope || storage->dead || storage->tier != HRI_DEVICE) continue;
    delta[2 * first[s]] += placed_bytes(storage->bytes);
    delta[2 * last[s] + 1] += placed_bytes(storage->bytes);
  }
  if (!delta || !*live) status = hri_fail_memory(error, count * 24, "the live profile");
  for (size_t at = 0; at < count && status == HR_OK; at++) {
    uint64_t scratch = 0;
    status = backend->workspace(backend->self, job, &job->nodes.items[job->programs[program].order.items[at]], &scratch,
                                error);
    now += delta[2 * at];
    (*live)[at] = now + placed_bytes(scratch);
    if ((*live)[at] > *peak) *peak = (*live)[at];
    now -= delta[2 * at + 1];
  }
  hri_free(first);
  hri_free(last);
  hri_free(delta);
  if (status == HR_OK) return HR_OK;
  hri_free(*live);
  *live = NULL;
  return status;
}

/* ---- packing ---- */

/* By value, not by storage: another value may have taken the storage over in place. */
static packed *shared(const packer *p, const hri_node *node) {
  const hri_tensor *plain = &p->job->tensors.items[hri_operands(p->job, node)[1].tensor];
  bool all = p->mode == HRI_PACK_PERSISTENT;
  for (size_t k = p->copies.count; k-- > 0;) {
    packed *c = &p->copies.items[k];
    bool chunks = node->phase == HRI_PHASE_LOSS && p->job->nodes.items[c->node].phase == HRI_PHASE_LOSS &&
                  p->job->nodes.items[c->node].program == node->program;
    if (c->value == plain->value && c->value_offset == plain->value_offset && c->op == node->op &&
        c->blocks == blocks_of(node) && c->rows == rows_of(p->job, node) && (all || chunks))
      return c;
  }
  return NULL;
}

/* A weight (not an activation, which DW packs) that stays the same through all micro-steps. */
static bool carried_weight(const packer *p, const hri_node *node) {
  const hri_tensor *plain = &p->job->tensors.items[hri_operands(p->job, node)[1].tensor];
  return p->mode == HRI_PACK_PERSISTENT && p->program == HRI_MICRO &&
         p->job->storages.items[plain->storage].role == HRI_ROLE_WEIGHT;
}

/* Whether `bytes` more fit below the job's peak at all positions of [from, to]; if so they are taken. */
static bool take_free(packer *p, uint32_t from, uint32_t to, uint64_t bytes) {
  uint64_t *live = p->live[p->program];
  for (uint32_t at = from; at <= to; at++)
    if (live[at] + bytes > p->peak) return false;
  for (uint32_t at = from; at <= to; at++) live[at] += bytes;
  return true;
}

/* The packed tensor that the product at a position is to read; its PACK node is put before the product, or into
 * `begin`. */
static hri_id make(packer *p, uint32_t at, uint64_t bytes) {
  hri_job *job = p->job;
  const hri_id product = job->programs[p->program].order.items[at];
  const hri_node node = job->nodes.items[product];
  hri_id plain = hri_operands(job, &node)[1].tensor, id, pack;
  hri_tensor tensor = job->tensors.items[plain];
  bool carried = carried_weight(p, &node);
  uint8_t program = carried ? HRI_BEGIN : p->program;
  hri_place place = {.program = program,
                     .scope = carried ? (uint16_t)(HRI_IN(HRI_BEGIN) | HRI_IN(HRI_MICRO)) : 0,
                     .tier = HRI_DEVICE,
                     .role = HRI_ROLE_WORKSPACE,
                     .layer = node.layer,
                     .unit = node.unit};
  hri_emit emit = {.program = program,
                   .lane = HRI_COMPUTE,
                   .phase = carried ? HRI_PHASE_FORWARD : node.phase,
                   .layer = node.layer,
                   .unit = node.unit,
                   .site = node.site,
                   .origin = HRI_NONE};
  assert(hri_rule_get(node.op)->product != HRI_NO_PRODUCT);
  hri_attr attr = {.i = {hri_rule_get(node.op)->product - 1, (int64_t)rows_of(job, &node), blocks_of(&node)}};
  id = hri_tensor_new(job, place, hri_name(job, "%s.packed", hri_name_get(job, tensor.key)), HRI_U8, 1, &bytes, NULL);
  if (job->failed) return HRI_NONE;
  job->tensors.items[id].dtype = tensor.dtype;
  job->tensors.items[id].layout = HRI_PACKED;
  job->tensors.items[id].rank = tensor.rank;
  memcpy(job->tensors.items[id].dims, tensor.dims, sizeof tensor.dims);
  memcpy(job->tensors.items[id].stored, tensor.stored, sizeof tensor.stored);
  pack = hri_node_new(job, HRI_OP_PACK, emit, &attr, (hri_operand[]){HRI_R(plain), HRI_W(id)}, 2);
  for (uint32_t w = 0; !carried && !job->failed && w < node.wait_count;
       w++) /* what the product waited for may have brought the operand */
    hri_node_add_wait(job, pack, job->waits.items[node.wait_begin + w].node);
  if (carried) hri_order_push(job, HRI_BEGIN, pack);
  else if (!hri_array_push(&p->order, pack)) job->failed = true;
  if (!hri_array_push(&p->copies, ((packed){.value = tensor.value,
                                            .tensor = id,
                                            .node = product,
                                            .value_offset = tensor.value_offset,
                                            .rows = rows_of(job, &node),
                                            .last = at,
                                            .blocks = blocks_of(&node),
                                            .op = node.op})))
    job->failed = true;
  return id;
}

static hr_status pack_node(packer *p, uint32_t at, hr_error *error) {
  hri_job *job = p->job;
  hri_id product = job->programs[p->program].order.items[at], tensor;
  const hri_node *node = &job->nodes.items[product];
  packed *copy;
  uint64_t bytes = 0;
  bool pays = false;
  const hri_tensor *plain;
  if (!hri_rule_get(node->op)->product) return HR_OK; /* others may have one operand */
  plain = &job->tensors.items[hri_operands(job, node)[1].tensor];
  /* Columns of a wider result (what A made of x for one of several modules) are narrow: the product takes them as they
   * are. */
  if (plain->layout != HRI_PLAIN || plain->stride) return HR_OK;
  HRI_TRY(p->backend->packing(p->backend->self, job, node, &bytes, &pays, error));
  if (bytes == 0) return HR_OK;
  copy = shared(p, node);
  if (!copy && !pays && !carried_weight(p, node)) return HR_OK;
  if (p->mode == HRI_PACK_AUTO && !take_free(p, copy ? copy->last + 1 : at, at, placed_bytes(bytes))) return HR_OK;
  if (copy) copy->last = at;
  tensor = copy ? copy->tensor : make(p, at, bytes);
  if (job->failed) return hri_job_ok(job, error);
  hri_operands(job, &job->nodes.items[product])[1].tensor = tensor;
  return HR_OK;
}

static hr_status pack_program(packer *p, hr_error *error) {
  hri_program *program = &p->job->programs[p->program];
  hr_status status = HR_OK;
  for (uint32_t at = 0; at < program->order.count && status == HR_OK; at++) {
    status = pack_node(p, at, error);
    if (status == HR_OK && !hri_array_push(&p->order, program->order.items[at]))
      status = hri_fail_memory(error, sizeof(hri_id), "packing");
  }
  if (status == HR_OK) hri_order_replace(p->job, p->program, &p->order);
  hri_array_free(&p->order);
  hri_array_free(&p->copies);
  return status;
}

/* What is packed where it is free is a copy of one program's own, so that the profiles of the others stay. */
hr_status hri_pass_pack(hri_job *job, const hri_backend *backend, hri_pack_mode mode, hr_error *error) {
  packer p = {.job = job, .backend = backend, .mode = mode};
  hr_status status = HR_OK;
  job->current_pass = HRI_PASS_PACK;
  if (!backend->packing) return HR_OK;
  for (uint8_t kind = 0; kind < HRI_PROGRAM_COUNT; kind++)
    if (job->programs[kind].present && mode == HRI_PACK_AUTO)
      HRI_TRY_OUT(profile(job, backend, kind, &p.live[kind], &p.peak, error));
  for (uint8_t kind = 0; kind < HRI_PROGRAM_COUNT; kind++) {
    if (!job->programs[kind].present || kind == HRI_PREFILL || kind == HRI_DECODE) continue;
    p.program = kind;
    HRI_TRY_OUT(pack_program(&p, error));
  }
  status = hri_job_ok(job, error);
out:
  for (int kind = 0; kind < HRI_PROGRAM_COUNT; kind++) hri_free(p.live[kind]);
  return status;
}
