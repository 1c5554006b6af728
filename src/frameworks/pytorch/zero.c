/* ZeRO-1 and ZeRO-2 (zero.h): the flat weights, the bucket that gradients pass through, and the gradient of this rank's part. The rank is the
 * first: its part begins where the weights begin. */
#include "frameworks/pytorch/zero.h"

enum { USUAL_BUCKET = 500000000 };

static uint64_t elements_of(const hri_zero *z, uint32_t i) { return hri_ten_count(z->module->parameters[i]); }

static bool trains(const hri_zero *z, uint32_t i) { return z->module->parameters[i]->requires_grad; }

static uint32_t group_of(const hri_zero *z, uint32_t i) {
  return z->settings.two_groups && z->module->parameters[i]->shape.rank == 1;
}

static uint64_t part_of(const hri_zero *z, uint32_t i) { return z->groups[group_of(z, i)].part; }

static bool is_inside(const hri_zero *z, uint32_t i) { return trains(z, i) && z->offsets[i] < part_of(z, i); }

/* Of a parameter's elements those in this rank's part. */
static uint64_t elements_inside(const hri_zero *z, uint32_t i) {
  uint64_t left = part_of(z, i) - z->offsets[i], all = elements_of(z, i);
  return all < left ? all : left;
}

/* ---- reducing ---- */

/* What goes to each rank is a slice of the bucket; slices are joined to one tensor where there are more than one, up to the bucket's size. */
typedef struct sending {
  uint64_t elements;
  uint32_t slices;
} sending;

static void send(hri_torch *t, const hri_zero *z, sending *s) {
  if (s->slices > 1) {
    hri_ten *joined = hri_ten_flat(t, "allreduce_bucket", z->type, s->elements);
    hri_ten_role(t, joined, HR_ROLE_COMMUNICATION);
    hri_ten_drop(t, joined);
  }
  *s = (sending){0, 0};
}

static void average(hri_torch *t, const hri_zero *z) {
  sending s = {0, 0};
  uint64_t last = UINT64_MAX, slice = 0;
  for (uint32_t k = 0; k < z->waiting_count; k++) {
    uint32_t i = z->waiting[k];
    uint64_t from = z->offsets[i], end = from + elements_of(z, i), part = part_of(z, i);
    while (from < end) {
      uint64_t rank = from / part, to = (rank + 1) * part < end ? (rank + 1) * part : end;
      if (rank != last) {
        if (slice) s.elements += slice, s.slices++;
        if (s.elements > z->settings.bucket) send(t, z, &s);
        slice = 0;
      }
      slice += to - from;
      last = rank;
      from = to;
    }
  }
  if (slice) s.elements += slice, s.slices++;
  send(t, z, &s);
}

/* On its way to the host a gradient is read for its norm, and cast. Before the last micro-step it is added there by way of a tensor that stays. */
static void take_to_host(hri_torch *t, hri_zero *z, uint32_t i) {
  uint64_t inside = elements_inside(z, i);
  if (!z->boundary) return;
  hri_ten_drop(t, hri_ten_flat(t, "double", HRI_I64, inside));
  if (z->type != HRI_F32) hri_ten_drop(t, hri_ten_flat(t, "to", HRI_F32, inside));
  hri_ten_set(t, &z->module->parameters[i]->grad, NULL);
}

/* copy_grads_in_partition: the bucket will be written again. */
static void keep(hri_torch *t, hri_zero *z, uint32_t i) {
  hri_ten *whole = z->module->parameters[i];
  uint64_t total = 0;
  if (z->settings.offload) {
    take_to_host(t, z, i);
    return;
  }
  if (!z->kept) {
    for (uint32_t k = 0; k < z->module->parameter_count; k++) total += is_inside(z, k) ? elements_of(z, k) : 0;
    z->kept = hri_ten_flat(t, "grads_in_partition", z->type, total);
    hri_ten_role(t, z->kept, HR_ROLE_GRADIENT);
  }
  hri_ten_set(t, &whole->grad, hri_ten_view(t, z->kept, whole->shape));
}

/* reduce_ipg_grads */
static void reduce(hri_torch *t, hri_zero *z) {
  average(t, z);
  for (uint32_t k = 0; k < z->waiting_count; k++) {
    uint32_t i = z->waiting[k];
    if (is_inside(z, i)) keep(t, z, i);
    else if (z->settings.stage == 2) hri_ten_set(t, &z->module->parameters[i]->grad, NULL);
  }
  z->waiting_count = 0;
  z->filled = 0;
}

static void set_up(hri_torch *t, hri_zero *z) {
  if (z->bucket) return;
  hri_torch_at(t, "ZeRO", -1);
  z->bucket = hri_ten_flat(t, "ipg_bucket", z->type, z->settings.bucket);
  hri_ten_role(t, z->bucket, HR_ROLE_COMMUNICATION);
}

/* A gradient goes into the bucket; one that is larger than it stays where it is. */
static void collect(hri_torch *t, hri_zero *z, uint32_t i) {
  hri_ten *whole = z->module->parameters[i];
  hri_torch_at(t, "ZeRO", -1);
  if (z->filled + elements_of(z, i) > z->settings.bucket) reduce(t, z);
  if (elements_of(z, i) <= z->settings.bucket) hri_ten_set(t, &whole->grad, hri_ten_view(t, z->bucket, whole->shape));
  z->filled += elements_of(z, i);
  z->waiting[z->waiting_count++] = i;
}

static void gradient_is_there(hri_torch *t, void *context, hri_ten *leaf) {
  hri_zero *z = context;
  if (!leaf->parameter) return;
  set_up(t, z);
  if (z->settings.stage == 2) collect(t, z, leaf->place);
}

/* Stage 1 fills the bucket now, in the order of parameters; before the last micro-step gradients and the bucket stay as they are. Stage 2 adds
 * what it kept to that of the micro-steps before. */
void hri_zero_after_backward(hri_torch *t, hri_zero *z) {
  if (z->settings.stage == 1 && !z->boundary) return;
  for (uint32_t i = 0; i < z->module->parameter_count && z->settings.stage == 1; i++)
    if (z->module->parameters[i]->grad) collect(t, z, i);
  hri_torch_at(t, "ZeRO", -1);
  reduce(t, z);
  if (z->accumulated) hri_ten_drop(t, z->kept);
  else z->accumulated = z->kept;
  z->kept = NULL;
  hri_ten_set(t, &z->bucket, NULL);
  for (uint32_t i = 0; i < z->module->parameter_count; i++) hri_ten_set(t, &z->module->parameters[i]->grad, NULL);
}

/* ---- the step ---- */

void hri_zero_begin_step(hri_torch *t, hri_zero *z) {
  hri_torch_at(t, "ZeRO", -1);
  for (uint32_t i = 0; i < z->module->parameter_count && !z->settings.offload; i++) /* the norm, in double */
    if (is_inside(z, i)) hri_ten_drop(t, hri_ten_flat(t, "double", HRI_I64, elements_inside(z, i)));
}

void hri_zero_before_group(hri_torch *t, hri_zero *z, hri_zero_group *g) {
  hri_ten *joined, *gradient;
  bool last = g == &z->groups[z->group_count - 1];
  hri_torch_at(t, "ZeRO", -1);
  joined = g->inside > 1 ? hri_ten_flat(t, "flatten", z->type, g->part) : hri_ten_keep(z->accumulated);
  gradient = z->type == HRI_F32 ? hri_ten_keep(joined) : hri_ten_flat(t, "to", HRI_F32, g->part);
  hri_ten_drop(t, joined);
  hri_ten_role(t, gradient, HR_ROLE_GRADIENT);
  g->master->grad = gradient;
  if (last) hri_ten_set(t, &z->accumulated, NULL); /* the others' gradients are views of it */
}

void hri_zero_after_group(hri_torch *t, hri_zero *z, hri_zero_group *g) {
  (void)z;
  hri_ten_set(t, &g->master->grad, NULL);
}

/* ---- deepspeed.initialize ---- */

/* Of those that train. */
static bool has_group(const hri_zero *z, bool vectors) {
  for (uint32_t i = 0; i < z->module->parameter_count; i++)
    if (trains(z, i) && (z->module->parameters[i]->shape.rank == 1) == vectors) return true;
  return false;
}

static void place_parameters(hri_zero *z) {
  uint64_t alignment = 2 * (uint64_t)z->settings.ranks;                                         /* of a flat tensor */
  z->settings.two_groups = z->settings.two_groups && has_group(z, false) && has_group(z, true); /* none is empty */
  z->group_count = z->settings.two_groups ? 2 : 1;
  for (uint32_t i = 0; i < z->module->parameter_count; i++) {
    hri_zero_group *g = &z->groups[group_of(z, i)];
    z->module->parameters[i]->place = i;
    if (!trains(z, i)) continue;
    z->offsets[i] = g->elements;
    g->elements += elements_of(z, i);
  }
  for (uint32_t k = 0; k < z->group_count; k++)
    z->groups[k].part = hri_round_up(z->groups[k].elements, alignment) / z->settings.ranks;
  for (uint32_t i = 0; i < z->module->parameter_count; i++) z->groups[group_of(z, i)].inside += is_inside(z, i);
}

/* The part in fp32: a clone, cast, on the host with offload. */
static void make_master(hri_torch *t, hri_zero *z, hri_zero_group *g) {
  hri_ten *clone = hri_ten_flat(t, "clone", z->type, g->part);
  if (z->settings.offload) {
    t->host_bytes += g->part * hri_ten_type_bytes(HRI_F32);
    t->host_buffer_bytes += g->part * hri_ten_type_bytes(z->type); /* new weights on their way */
    hri_ten_drop(t, clone);
    return;
  }
  g->master = z->type == HRI_F32 ? hri_ten_keep(clone) : hri_ten_flat(t, "to", HRI_F32, g->part);
  hri_ten_drop(t, clone);
  hri_ten_role(t, g->master, HR_ROLE_MASTER_WEIGHT);
  g->master->parameter = g->master->requires_grad = true;
}

/* Cached memory is given back before each group. */
static void flatten(hri_torch *t, hri_zero *z, uint32_t group) {
  hri_zero_group *g = &z->groups[group];
  hri_torch_empty_cache(t);
  g->flat = hri_ten_flat(t, "flatten", z->type, g->part * z->settings.ranks);
  hri_ten_role(t, g->flat, HR_ROLE_WEIGHT);
  for (uint32_t i = 0; i < z->module->parameter_count; i++)
    if (trains(z, i) && group_of(z, i) == group) hri_ten_show(t, z->module->parameters[i], g->flat);
  make_master(t, z, g);
}

/* initialize_optimizer_states; with offload gradients go through a tensor as large as the largest parameter. */
static void make_buffers(hri_torch *t, hri_zero *z) {
  uint64_t largest = 0;
  for (uint32_t i = 0; i < z->module->parameter_count; i++)
    if (trains(z, i) && elements_of(z, i) > largest) largest = elements_of(z, i);
  if (z->settings.offload) {
    t->host_buffer_bytes += largest * hri_ten_type_bytes(z->type);
    z->spare = hri_ten_flat(t, "temp_grad_buffer_for_gpu_offload", z->type, largest);
    hri_ten_role(t, z->spare, HR_ROLE_COMMUNICATION);
    return;
  }
  for (uint32_t k = 0; k < z->group_count; k++) {
    hri_ten *zeros = hri_ten_flat(t, "zeros", HRI_F32, z->groups[k].part);
    hri_ten_drop(t, zeros);
  }
}

/* _cast_module_mixed_precision: of 4 bits what is not codes, which peft has made fp32, and adapters. */
static void cast_parameters(hri_torch *t, const hri_zero *z) {
  for (uint32_t i = 0; i < z->module->parameter_count; i++)
    if (z->module->parameters[i]->type != HRI_U8) hri_ten_retype(t, z->module->parameters[i], z->type);
}

void hri_zero_init(hri_torch *t, hri_zero *z, hri_module *module, const hri_zero_settings *settings,
                   hri_ten_type type) {
  *z = (hri_zero){.settings = *settings, .module = module, .type = type};
  if (z->settings.bucket == 0) z->settings.bucket = USUAL_BUCKET;
  z->offsets = hri_alloc_zero(module->parameter_count, sizeof *z->offsets);
  z->waiting = hri_alloc_zero(module->parameter_count, sizeof *z->waiting);
  if (!z->offsets || !z->waiting) {
    t->failed = true;
    return;
  }
  hri_torch_at(t, "ZeRO", -1);
  cast_parameters(t, z);
  place_parameters(z);
  for (uint32_t k = 0; k < z->group_count; k++) flatten(t, z, k);
  make_buffers(t, z);
  t->accumulated = gradient_is_there;
  t->accumulated_context = z;
}

void hri_zero_deinit(hri_zero *z) {
  hri_free(z->offsets);
  hri_free(z->waiting);
}
