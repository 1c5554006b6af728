/* Rules, by number (architecture.md section 3):
 *   1 each element is WRITten once per program before it is read; only ADD and UPDATE may touch it again, and only in
 *     gradients, optimizer states, weights, caches and control; into activations and logits an ADD may go too, as a
 *     further producer of the value, while nothing has read those bytes of it yet
 *   2 tensors alias only through one storage: a read must find its own value there
 *   3 every RAW, WAR, WAW pair has a happens-before path
 *   6 a recomputed node shares the site of its origin
 *   7 views stay inside their storage; operands are where the op list says, column views and groups only where the op
 *     takes them; what a node writes lies over what it reads only where its rule allows that;
 *     transients are local and written in one piece; packed ones are right operands of the very
 *     kind of product that they were packed for; a guard stands at ops whose rule has one, and is one double
 * The content of a storage is a list of disjoint regions with the value they hold; CARRIED marks what an earlier
 * program (or the host) left. Bytes are exact: columns of one fused result do not meet their neighbours. Rule 4 (lanes
 * join at the end of a program) is how programs are executed and placed. */
#include "program/check.h"

#include <string.h>

#include "program/region.h"

#define CARRIED 0xFFFFFFFEu

/* `lead`: how far the value's bytes lie before the storage's: value offset = storage offset + lead (mod 2^64). */
typedef struct held {
  hri_region where;
  uint64_t lead;
  hri_id value;
} held;
typedef struct content {
  held *items;
  size_t count, capacity;
} content;
typedef struct touch {
  uint32_t position, next;
  hri_id tensor;
  uint8_t access;
} touch;

typedef struct checker {
  const hri_job *job;
  content *contents;     /* per storage, kept across programs for carried ones */
  uint32_t (*newest)[2]; /* per storage: index of its newest write, and read, in this program, HRI_NONE */
  hri_id *packer;        /* per storage: the PACK node that filled it, HRI_NONE */
  HRI_ARRAY(touch) touches;
  HRI_ARRAY(hri_id) dirty; /* storages touched in this program */
  hri_regions pieces;      /* of a cut, while it lasts */
  hri_clocks clocks;
  uint8_t program;
  hr_error *error;
} checker;

hr_status hri_clocks_init(hri_clocks *c, const hri_job *job, uint8_t program, hr_error *error) {
  const hri_program *p = &job->programs[program];
  uint32_t lane_last[HRI_LANE_COUNT], lane_count[HRI_LANE_COUNT] = {0}, *position_of;
  hr_status status = HR_OK;
  memset(c, 0, sizeof *c);
  memset(lane_last, 0xFF, sizeof lane_last);
  c->count = (uint32_t)p->order.count;
  c->job = job;
  c->program = p;
  c->clock = hri_alloc_zero(c->count, sizeof *c->clock);
  c->sequence = hri_alloc_zero(c->count, sizeof *c->sequence);
  position_of = hri_alloc(job->nodes.count * sizeof *position_of);
  if (!c->clock || !c->sequence || !position_of) {
    status = hri_fail_memory(error, c->count * sizeof *c->clock, "happens-before clocks");
    goto out;
  }
  memset(position_of, 0xFF, job->nodes.count * sizeof *position_of);
  for (uint32_t at = 0; at < c->count; at++) {
    hri_id id = p->order.items[at];
    const hri_node *node = &job->nodes.items[id];
    if (lane_last[node->lane] != UINT32_MAX) memcpy(c->clock[at], c->clock[lane_last[node->lane]], sizeof c->clock[at]);
    for (uint32_t w = 0; w < node->wait_count; w++) {
      const hri_wait *wait = &job->waits.items[node->wait_begin + w];
      uint32_t on = position_of[wait->node];
      if (on == UINT32_MAX) {
        status = hri_fail(error, HR_ERROR_INTERNAL,
                          "rule 3: node %u (%s) of program %s waits for node %u, which is not issued before it", id,
                          hri_op_name(node->op), hri_program_name((hri_program_kind)program), wait->node);
        goto out;
      }
      for (int lane = 0; lane < HRI_LANE_COUNT; lane++)
        if (c->clock[on][lane] > c->clock[at][lane]) c->clock[at][lane] = c->clock[on][lane];
    }
    c->sequence[at] = ++lane_count[node->lane];
    c->clock[at][node->lane] = c->sequence[at];
    lane_last[node->lane] = at;
    position_of[id] = at;
  }
out:
  hri_free(position_of);
  if (status != HR_OK) hri_clocks_deinit(c);
  return status;
}

void hri_clocks_deinit(hri_clocks *c) {
  hri_free(c->clock);
  hri_free(c->sequence);
  memset(c, 0, sizeof *c);
}

bool hri_happens_before(const hri_clocks *c, uint32_t a, uint32_t b) {
  uint8_t lane = c->job->nodes.items[c->program->order.items[a]].lane;
  return c->clock[b][lane] >= c->sequence[a];
}

/* ---- contents ---- */

static bool content_push(content *c, held h) {
  if (!hri_array_reserve_((void **)&c->items, &c->capacity, c->count + 1, sizeof h)) return false;
  c->items[c->count++] = h;
  return true;
}

/* Takes a region out of the list. */
static bool content_cut(checker *k, content *c, const hri_region *region) {
  for (size_t i = 0; i < c->count;) {
    held h = c->items[i];
    if (hri_region_overlap(&h.where, region) == 0) {
      i++;
      continue;
    }
    c->items[i] = c->items[--c->count];
    k->pieces.count = 0;
    if (!hri_region_subtract(&h.where, region, &k->pieces)) return false;
    for (size_t p = 0; p < k->pieces.count; p++)
      if (!content_push(c, (held){k->pieces.items[p], h.lead, h.value})) return false;
  }
  return true;
}

/* Bytes of a region that hold `value` at the right place (or were carried in); `fresh` counts only this program's. */
static uint64_t content_covers(const content *c, const hri_region *region, hri_id value, uint64_t lead,
                               bool fresh_only) {
  uint64_t covered = 0;
  for (size_t i = 0; i < c->count; i++) {
    const held *h = &c->items[i];
    if (h->value == CARRIED ? fresh_only : h->value != value || h->lead != lead) continue;
    covered += hri_region_overlap(&h->where, region);
  }
  return covered;
}

/* ---- one node ---- */

static hr_status complain(const checker *k, uint32_t at, uint32_t operand, const char *what) {
  hri_id id = k->job->programs[k->program].order.items[at];
  const hri_node *node = &k->job->nodes.items[id];
  const hri_tensor *t = &k->job->tensors.items[hri_operands(k->job, node)[operand].tensor];
  return hri_fail(k->error, HR_ERROR_INTERNAL,
                  "%s: program %s, position %u, node %u (%s, layer %d, pass %u), operand %u (%s, storage %u '%s')",
                  what, hri_program_name((hri_program_kind)k->program), at, id, hri_op_name(node->op), node->layer,
                  node->pass, operand, hri_name_get(k->job, t->key), t->storage,
                  hri_name_get(k->job, k->job->storages.items[t->storage].key));
}

static bool may_change(uint8_t role) {
  return role == HRI_ROLE_GRADIENT || role == HRI_ROLE_OPTIMIZER_STATE || role == HRI_ROLE_WEIGHT ||
         role == HRI_ROLE_CACHE || role == HRI_ROLE_CONTROL || role == HRI_ROLE_MASTER_WEIGHT;
}

/* Results that may have further producers besides the one that writes them. */
static bool may_be_added_to(uint8_t role) { return role == HRI_ROLE_ACTIVATION || role == HRI_ROLE_LOGITS; }

/* Operand letters of the op list: R read, W write, A write or add, U update, G read (a guard); lower case may be
 * absent. */
static bool letter_allows(char letter, const hri_operand *o) {
  if (o->tensor == HRI_NONE) return letter >= 'a';
  switch (letter & ~0x20) {
  case 'R':
  case 'G': return o->access == HRI_READ;
  case 'W': return o->access == HRI_WRITE;
  case 'A': return o->access == HRI_WRITE || o->access == HRI_ADD;
  default: return o->access == HRI_UPDATE_ACCESS;
  }
}

/* A product takes a packed operand in the layout of its own kind and rows. No other op can read one. */
static hr_status check_packed(const checker *k, uint32_t at, uint32_t operand) {
  const hri_job *job = k->job;
  hri_id id = job->programs[k->program].order.items[at], packer;
  const hri_node *node = &job->nodes.items[id];
  const hri_tensor *t = &job->tensors.items[hri_operands(job, node)[operand].tensor],
                   *a = &job->tensors.items[hri_operands(job, node)[0].tensor];
  hri_product product = hri_rule_get(node->op)->product;
  if (t->layout == HRI_PLAIN) return HR_OK;
  if (operand == 1 && node->op == HRI_OP_PACK) {
    k->packer[t->storage] = id;
    return HR_OK;
  }
  packer = k->packer[t->storage];
  if (operand != 1 || !product || packer == HRI_NONE || job->nodes.items[packer].attr.i[0] != (int64_t)product - 1 ||
      (uint64_t)job->nodes.items[packer].attr.i[1] != hri_tensor_stored_elements(a) / a->stored[a->rank - 1] ||
      job->nodes.items[packer].attr.i[2] != (node->op == HRI_OP_LINEAR_DX ? node->attr.i[0] : 0))
    return complain(k, at, operand, "rule 7: a packed operand that was not packed for this");
  return HR_OK;
}

/* Whether a view shows bytes that its storage does not have; nothing here may overflow, or a view could wrap around. */
static bool leaves(const hri_tensor *t, const hri_storage *s) {
  const uint64_t block = hri_dtype_block((hri_dtype)t->dtype);
  uint64_t bytes = hri_dtype_size((hri_dtype)t->dtype, block), rows = 1, span;
  if (t->rank == 0 || t->rank > HRI_MAX_RANK || t->stored[t->rank - 1] % block || t->stride % block) return true;
  if (t->stride && (t->stride < t->stored[t->rank - 1] || t->layout != HRI_PLAIN)) return true;
  for (uint32_t d = 0; d + 1 < t->rank; d++)
    if (!hri_mul(rows, t->stored[d], &rows)) return true;
  if (!hri_mul(bytes, (t->stride ? t->stride : t->stored[t->rank - 1]) / block, &bytes)) return true;
  if (rows == 0 || t->stored[t->rank - 1] == 0) return false;
  if (!hri_mul(rows - 1, bytes, &span) || span > s->bytes) return true;
  bytes = hri_dtype_size((hri_dtype)t->dtype, t->stored[t->rank - 1]);
  return bytes > s->bytes - span || t->offset > s->bytes - span - bytes;
}

/* A group lies in its storage, and its members lie in it in order and apart. */
static bool is_broken_group(const hri_job *job, const hri_tensor *t) {
  uint64_t end = t->offset;
  if (t->stride || t->layout != HRI_PLAIN) return true;
  for (uint32_t k = 0; k < t->member_count; k++) {
    const hri_tensor *m = &job->tensors.items[job->members.items[t->member_begin + k]];
    if (m->storage != t->storage || m->dtype != t->dtype || m->stride || m->member_count ||
        leaves(m, &job->storages.items[m->storage]) || m->offset < end)
      return true;
    end = m->offset + hri_tensor_bytes(m);
  }
  return end > t->offset + hri_tensor_bytes(t);
}

/* Whether the op may write operand `out` where operand `in` lies. A guard is read before anything is done. */
static bool may_lie_over(const hri_rule *rule, const hri_operand *o, uint32_t in, uint32_t out) {
  if (rule->operands[in] == 'g') return true;
  for (uint8_t k = 0; k < rule->in_place_count; k++) {
    const uint8_t unless = rule->in_place[k].unless;
    if (rule->in_place[k].in == in && rule->in_place[k].out == out && (!unless || o[unless].tensor == HRI_NONE))
      return true;
  }
  return false;
}

static bool same_bytes(const hri_region *a, const hri_region *b) {
  return a->begin == b->begin && a->width == b->width && a->rows == b->rows && a->pitch == b->pitch;
}

/* Operands of one node: what it writes, or uses as scratch, shares no byte with another operand, unless its rule lets
 * it write one over the other, element by element. */
static hr_status check_overlaps(const checker *k, uint32_t at) {
  const hri_job *job = k->job;
  const hri_node *node = &job->nodes.items[job->programs[k->program].order.items[at]];
  const hri_operand *o = hri_operands(job, node);
  const hri_rule *rule = hri_rule_get(node->op);
  const size_t letters = strlen(rule->operands);
  for (uint32_t out = 0; out < node->operand_count; out++) {
    if (o[out].access == HRI_READ || o[out].tensor == HRI_NONE) continue;
    for (uint32_t in = 0; in < node->operand_count; in++) {
      if (in == out || o[in].tensor == HRI_NONE) continue;
      if (job->tensors.items[o[in].tensor].storage != job->tensors.items[o[out].tensor].storage) continue;
      for (uint32_t p = 0; p < hri_piece_count(job, o[out].tensor); p++)
        for (uint32_t q = 0; q < hri_piece_count(job, o[in].tensor); q++) {
          hri_region a = hri_region_of(&job->tensors.items[hri_piece(job, o[out].tensor, p)]),
                     b = hri_region_of(&job->tensors.items[hri_piece(job, o[in].tensor, q)]);
          if (hri_region_overlap(&a, &b) == 0) continue;
          if (in >= letters || out >= letters) return complain(k, at, out, "rule 7: scratch over another operand");
          if (o[in].access == HRI_READ && may_lie_over(rule, o, in, out) &&
              (rule->operands[in] == 'g' || same_bytes(&a, &b)))
            continue;
          return complain(k, at, out, "rule 7: written over an operand where the op does not allow it");
        }
    }
  }
  return HR_OK;
}

static hr_status check_form(const checker *k, uint32_t at) {
  const hri_job *job = k->job;
  const hri_node *node = &job->nodes.items[job->programs[k->program].order.items[at]];
  const hri_operand *o = hri_operands(job, node);
  const hri_rule *rule;
  size_t letters;
  if (node->op >= HRI_OP_COUNT || node->program != k->program)
    return hri_fail(k->error, HR_ERROR_INTERNAL, "rule 7: node at %u has a wrong op or program", at);
  rule = hri_rule_get(node->op);
  letters = strlen(rule->operands);
  if (node->operand_count < letters)
    return hri_fail(k->error, HR_ERROR_INTERNAL, "rule 7: %s at %u has %u operands instead of %zu", rule->name, at,
                    node->operand_count, letters);
  for (uint32_t i = 0; i < node->operand_count; i++) {
    const hri_tensor *t;
    const hri_storage *s;
    if (i < letters ? !letter_allows(rule->operands[i], &o[i]) : o[i].access != HRI_SCRATCH)
      return hri_fail(k->error, HR_ERROR_INTERNAL, "rule 7: %s at %u: operand %u has the wrong access or is missing",
                      rule->name, at, i);
    if (o[i].tensor == HRI_NONE) continue;
    t = &job->tensors.items[o[i].tensor];
    s = &job->storages.items[t->storage];
    if (s->dead) return complain(k, at, i, "rule 2: a merged storage is still in use");
    if (leaves(t, s)) return complain(k, at, i, "rule 7: a view leaves its storage");
    if (t->member_count && (i >= letters || !(rule->groups >> i & 1)))
      return complain(k, at, i, "rule 7: a group where the op takes none");
    if (t->member_count && is_broken_group(job, t))
      return complain(k, at, i, "rule 7: a group whose members do not lie in it in order");
    if (t->stride && (i >= letters || !(rule->views >> i & 1)))
      return complain(k, at, i, "rule 7: a column view where the op takes none");
    if (s->transient && (s->scope || (o[i].access != HRI_READ && o[i].access != HRI_WRITE)))
      return complain(k, at, i, "rule 7: a transient is local, written once and read");
    if (s->scope == 0 ? s->program != k->program : !(s->scope & HRI_IN(k->program)))
      return complain(k, at, i, "rule 2: a storage is used outside of its scope");
    if (i < letters && rule->operands[i] == 'g' && (t->dtype != HRI_F64 || hri_tensor_stored_elements(t) != 1))
      return complain(k, at, i, "rule 7: a guard that is not one double");
    HRI_TRY(check_packed(k, at, i));
  }
  if (node->origin != HRI_NONE && job->nodes.items[node->origin].site != node->site)
    return complain(k, at, 0, "rule 6: a recomputed node has another site than its origin");
  HRI_TRY(check_overlaps(k, at));
  return rule->check ? rule->check(job, node, k->error) : HR_OK;
}

/* Rule 3 against the earlier touches of a list, and the ADDs of rule 1 before every reader of the value. */
static hr_status check_earlier(const checker *k, uint32_t newest, const touch *made, uint32_t operand) {
  const hri_tensor *t = &k->job->tensors.items[made->tensor];
  const hri_region region = hri_region_of(t);
  const bool further = made->access == HRI_ADD && may_be_added_to(k->job->storages.items[t->storage].role);
  for (uint32_t j = newest; j != HRI_NONE; j = k->touches.items[j].next) {
    const touch *earlier = &k->touches.items[j];
    const hri_tensor *other = &k->job->tensors.items[earlier->tensor];
    hri_region before;
    if (earlier->position == made->position) continue;
    before = hri_region_of(other);
    if (hri_region_overlap(&before, &region) == 0) continue;
    if (!hri_happens_before(&k->clocks, earlier->position, made->position))
      return complain(k, made->position, operand, "rule 3: no happens-before path from an earlier toucher");
    if (further && earlier->access == HRI_READ && other->value == t->value)
      return complain(k, made->position, operand, "rule 1: adds to what was read already");
  }
  return HR_OK;
}

/* Two reads are no hazard, so a read is held against writes alone: of the control block there are thousands of reads. */
static hr_status check_order(checker *k, uint32_t at, uint32_t operand, hri_id tensor, uint8_t access) {
  const hri_id storage = k->job->tensors.items[tensor].storage;
  const bool reads = access == HRI_READ;
  uint32_t *newest = k->newest[storage];
  const touch made = {at, newest[reads], tensor, access};
  HRI_TRY(check_earlier(k, newest[0], &made, operand));
  if (!reads) HRI_TRY(check_earlier(k, newest[1], &made, operand));
  if (newest[0] == HRI_NONE && newest[1] == HRI_NONE && !hri_array_push(&k->dirty, storage))
    return hri_fail_memory(k->error, 0, "checking");
  newest[reads] = (uint32_t)k->touches.count;
  return hri_array_push(&k->touches, made) ? HR_OK : hri_fail_memory(k->error, sizeof made, "checking");
}

static hr_status check_value(checker *k, uint32_t at, uint32_t operand, const hri_tensor *t, uint8_t access) {
  content *c = &k->contents[t->storage];
  const hri_region region = hri_region_of(t);
  uint64_t bytes = hri_region_bytes(&region), lead = t->value_offset - t->offset;
  uint8_t role = k->job->storages.items[t->storage].role;
  bool further = access == HRI_ADD && may_be_added_to(role);
  if (access == HRI_SCRATCH) return content_cut(k, c, &region) ? HR_OK : hri_fail_memory(k->error, 0, "checking");
  if (hri_access_reads((hri_access)access)) {
    if (access != HRI_READ && !may_change(role) && !further)
      return complain(k, at, operand, "rule 1: add or update in a role that is written once");
    if (content_covers(c, &region, t->value, lead, further) != bytes)
      return complain(k, at, operand, "rule 1: reads what its producer did not write, or what was overwritten");
    return HR_OK;
  }
  if (content_covers(c, &region, t->value, lead, true) != 0) return complain(k, at, operand, "rule 1: written twice");
  if (!content_cut(k, c, &region) || !content_push(c, (held){region, lead, t->value}))
    return hri_fail_memory(k->error, 0, "checking");
  return HR_OK;
}

static hr_status check_node(checker *k, uint32_t at) {
  const hri_job *job = k->job;
  const hri_node *node = &job->nodes.items[job->programs[k->program].order.items[at]];
  const hri_operand *o = hri_operands(job, node);
  HRI_TRY(check_form(k, at));
  for (int writes = 0; writes < 2; writes++) /* a node reads before it writes */
    for (uint32_t i = 0; i < node->operand_count; i++) {
      bool pure_write = o[i].access == HRI_WRITE || o[i].access == HRI_SCRATCH;
      if (o[i].tensor == HRI_NONE || pure_write != (writes == 1)) continue;
      for (uint32_t p = 0; p < hri_piece_count(job, o[i].tensor); p++) {
        hri_id piece = hri_piece(job, o[i].tensor, p);
        HRI_TRY(check_order(k, at, i, piece, o[i].access));
        HRI_TRY(check_value(k, at, i, &job->tensors.items[piece], o[i].access));
      }
    }
  return HR_OK;
}

/* After a program: what local storages held is gone; what carried ones hold is carried on. */
static void end_program(checker *k) {
  for (size_t d = 0; d < k->dirty.count; d++) {
    hri_id s = k->dirty.items[d];
    content *c = &k->contents[s];
    k->newest[s][0] = k->newest[s][1] = HRI_NONE;
    if (k->job->storages.items[s].scope == 0) c->count = 0;
    for (size_t r = 0; r < c->count; r++) c->items[r].value = CARRIED;
  }
  k->dirty.count = 0;
  k->touches.count = 0;
}

hr_status hri_job_check(const hri_job *job, hr_error *error) {
  checker k = {.job = job, .error = error};
  hr_status status = HR_OK;
  k.contents = hri_alloc_zero(job->storages.count, sizeof *k.contents);
  k.newest = hri_alloc(job->storages.count * sizeof *k.newest);
  k.packer = hri_alloc(job->storages.count * sizeof *k.packer);
  if (!k.contents || !k.newest || !k.packer) {
    status = hri_fail_memory(error, job->storages.count * sizeof *k.contents, "checking");
    goto out;
  }
  memset(k.newest, 0xFF, job->storages.count * sizeof *k.newest);
  memset(k.packer, 0xFF, job->storages.count * sizeof *k.packer);
  for (size_t s = 0; s < job->storages.count; s++) { /* what the host fills before a program starts */
    const hri_storage *storage = &job->storages.items[s];
    bool host = storage->scope && (storage->role == HRI_ROLE_INPUT || storage->role == HRI_ROLE_CONTROL ||
                                   storage->role == HRI_ROLE_CACHE);
    if (host && !content_push(&k.contents[s], (held){{.width = storage->bytes, .rows = 1}, 0, CARRIED})) {
      status = hri_fail_memory(error, sizeof(held), "checking");
      goto out;
    }
  }
  for (uint8_t kind = 0; kind < HRI_PROGRAM_COUNT && status == HR_OK; kind++) {
    if (!job->programs[kind].present) continue;
    k.program = kind;
    status = hri_clocks_init(&k.clocks, job, kind, error);
    for (uint32_t at = 0; status == HR_OK && at < job->programs[kind].order.count; at++) status = check_node(&k, at);
    hri_clocks_deinit(&k.clocks);
    end_program(&k);
  }
out:
  for (size_t s = 0; k.contents && s < job->storages.count; s++) hri_free(k.contents[s].items);
  hri_free(k.contents);
  hri_free(k.newest);
  hri_free(k.packer);
  hri_array_free(&k.touches);
  hri_array_free(&k.dirty);
  hri_array_free(&k.pieces);
  return status;
}
