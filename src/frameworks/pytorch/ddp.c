/* DistributedDataParallel (ddp.h): which parameters share a bucket, when buckets are made, and what becomes of a gradient that is there. */
#include "frameworks/pytorch/ddp.h"

#include <string.h>

enum { MIB = 1 << 20, TYPES = HRI_BOOL + 1, BROADCAST_MIB = 250, CAP_MIB = 25, FIRST_MIB = 1 };

/* ---- compute_bucket_assignment_by_size ---- */

/* Tensors fill a bucket of their type, in order, until it has reached its limit: the first of a type's limits for its first bucket. */
typedef struct filling {
  const uint64_t *limits;
  uint32_t limit_count, used[TYPES];
  int64_t open[TYPES]; /* bucket; -1: none */
} filling;

static filling begin_filling(const uint64_t *limits, uint32_t count) {
  filling f = {.limits = limits, .limit_count = count};
  for (int k = 0; k < TYPES; k++) f.open[k] = -1;
  return f;
}

/* The bucket that `tensor` goes to, of those in `ddp->buckets`. */
static uint32_t fill(hri_torch *t, hri_ddp *ddp, filling *f, const hri_ten *tensor) {
  hri_ten_type type = tensor->type;
  uint32_t bucket;
  if (f->open[type] < 0) {
    f->open[type] = (int64_t)ddp->buckets.count;
    if (!hri_array_push(&ddp->buckets, ((hri_ddp_bucket){.type = type}))) t->failed = true;
  }
  if (!ddp->buckets.items || t->failed) return t->failed = true, 0;
  bucket = (uint32_t)f->open[type];
  ddp->buckets.items[bucket].elements += hri_ten_count(tensor);
  if (ddp->buckets.items[bucket].elements * hri_ten_type_bytes(type) >= f->limits[f->used[type]]) {
    f->open[type] = -1;
    if (f->used[type] + 1 < f->limit_count) f->used[type]++;
  }
  return bucket;
}

/* ---- what is sent to all ranks ---- */

/* broadcast_coalesced: tensors of a type are joined, in their order, to flat ones of a limited size; those go in the order of their first
 * tensors, two on their way at a time. A tensor that stays alone is sent as it is. */
typedef struct joined {
  uint64_t bytes;
  uint32_t tensors;
  bool full;
} joined;

static void send(hri_torch *t, const joined *all, uint32_t count) {
  hri_ten *flat[2] = {NULL, NULL};
  for (uint32_t i = 0; i < count; i++) {
    hri_ten_set(t, &flat[i % 2], NULL);
    if (all[i].tensors > 1) flat[i % 2] = hri_ten_flat(t, "broadcast", HRI_U8, all[i].bytes);
  }
  for (uint32_t k = 0; k < 2; k++) hri_ten_set(t, &flat[(count + k) % 2], NULL);
}

void hri_ddp_broadcast(hri_torch *t, hri_ten *const *tensors, uint32_t count) {
  joined *all = hri_alloc_zero(count + 1, sizeof *all), *open[TYPES] = {NULL};
  uint32_t made = 0;
  if (!all) t->failed = true;
  for (uint32_t i = 0; i < count && all; i++) {
    joined **own = &open[tensors[i]->type];
    if (!*own || (*own)->full) *own = &all[made++];
    (*own)->bytes += hri_ten_bytes(tensors[i]);
    (*own)->tensors++;
    (*own)->full = (*own)->bytes >= (uint64_t)BROADCAST_MIB * MIB;
  }
  if (all) send(t, all, made);
  hri_free(all);
}

static void send_buffers(hri_torch *t, const hri_module *module) {
  hri_ten *buffers[HRI_MODULE_BUFFERS];
  hri_ddp_broadcast(t, buffers, hri_module_buffers(module, buffers));
}

/* Parameters, then buffers, in one go. */
static void send_module(hri_torch *t, const hri_module *module) {
  hri_ten **all = hri_alloc_zero(module->parameter_count + HRI_MODULE_BUFFERS, sizeof(hri_ten *));
  if (!all) {
    t->failed = true;
    return;
  }
  for (uint32_t i = 0; i < module->parameter_count; i++) all[i] = module->parameters[i];
  hri_ddp_broadcast(t, all, module->parameter_count + hri_module_buffers(module, all + module->parameter_count));
  hri_free(all);
}

/* ---- buckets ---- */

static void make_bucket(hri_torch *t, hri_ddp_bucket *bucket) {
  bucket->tensor = hri_ten_flat(t, "bucket", bucket->type, bucket->elements);
  hri_ten_role(t, bucket->tensor, HR_ROLE_COMMUNICATION);
}

/* At first all gradients go to one bucket, or, where buckets stay, by their order in the model; those of the end are made first. */
static void make_first_buckets(hri_torch *t, hri_ddp *ddp, const uint64_t limits[2]) {
  static const uint64_t all[] = {UINT64_MAX};
  filling f = ddp->settings.find_unused ? begin_filling(limits, 2) : begin_filling(all, 1);
  for (uint32_t i = 0; i < ddp->count; i++) ddp->bucket_of[i] = fill(t, ddp, &f, ddp->trained[i]);
  for (size_t k = ddp->buckets.count; k-- > 0;) make_bucket(t, &ddp->buckets.items[k]);
}

static void set_limits(const hri_ddp *ddp, uint64_t limits[2]) {
  limits[1] = ddp->settings.bucket_bytes ? ddp->settings.bucket_bytes : (uint64_t)CAP_MIB * MIB;
  limits[0] = ddp->settings.bucket_bytes ? ddp->settings.bucket_bytes : (uint64_t)FIRST_MIB * MIB;
}

/* sync_bucket_indices: the order goes to all ranks as two small tensors. The old buckets go before the new ones are made. */
static void rebuild(hri_torch *t, hri_ddp *ddp) {
  uint64_t limits[2];
  filling f;
  hri_ten *indices, *sizes;
  set_limits(ddp, limits);
  f = begin_filling(limits, 2);
  for (size_t k = 0; k < ddp->buckets.count; k++) hri_ten_set(t, &ddp->buckets.items[k].tensor, NULL);
  ddp->buckets.count = 0;
  for (uint32_t i = 0; i < ddp->arrived_count; i++)
    ddp->bucket_of[ddp->arrived[i]] = fill(t, ddp, &f, ddp->trained[ddp->arrived[i]]);
  indices = hri_ten_flat(t, "sync_bucket_indices", HRI_I32, ddp->arrived_count + 1);
  sizes = hri_ten_flat(t, "sync_bucket_indices", HRI_I32, ddp->buckets.count);
  hri_ten_drop(t, sizes);
  hri_ten_drop(t, indices);
  for (size_t k = 0; k < ddp->buckets.count; k++) make_bucket(t, &ddp->buckets.items[k]);
  ddp->rebuilt = true;
}

/* The hook behind AccumulateGrad: a gradient is copied to its bucket, which it is a view of from then on, or lives on beside it. */
static void gradient_is_there(hri_torch *t, void *context, hri_ten *leaf) {
  hri_ddp *ddp = context;
  if (!ddp->exchanges || leaf->place >= ddp->count || ddp->trained[leaf->place] != leaf) return;
  if (!ddp->rebuilt && ddp->arrived_count < ddp->count) ddp->arrived[ddp->arrived_count++] = leaf->place;
  if (!ddp->settings.bucket_view) return;
  hri_ten_set(t, &leaf->grad, hri_ten_view(t, ddp->buckets.items[ddp->bucket_of[leaf->place]].tensor, leaf->shape));
}

/* ---- the module ---- */

void hri_ddp_init(hri_torch *t, hri_ddp *ddp, hri_module *module, const hri_ddp_settings *settings) {
  uint64_t limits[2];
  *ddp = (hri_ddp){.settings = *settings, .module = module, .exchanges = true, .rebuilt = settings->find_unused};
  ddp->trained = hri_alloc_zero(module->parameter_count, sizeof *ddp->trained);
  ddp->bucket_of = hri_alloc_zero(module->parameter_count, sizeof *ddp->bucket_of);
  ddp->arrived = hri_alloc_zero(module->parameter_count, sizeof *ddp->arrived);
  if (!ddp->trained || !ddp->bucket_of || !ddp->arrived) {
    t->failed = true;
    return;
  }
  for (uint32_t i = 0; i < module->parameter_count; i++) {
    if (!module->parameters[i]->requires_grad) continue;
    module->parameters[i]->place = ddp->count;
    ddp->trained[ddp->count++] = module->parameters[i];
  }
  hri_torch_at(t, "DistributedDataParallel", -1);
  send_module(t, module);
  set_limits(ddp, limits);
  make_first_buckets(t, ddp, limits);
  if (settings->find_unused) ddp->used = hri_ten_flat(t, "used", HRI_I32, ddp->count);
  t->accumulated = gradient_is_there;
  t->accumulated_context = ddp;
}

void hri_ddp_deinit(hri_ddp *ddp) {
  hri_free(ddp->trained);
  hri_free(ddp->bucket_of);
  hri_free(ddp->arrived);
  hri_array_free(&ddp->buckets);
}

void hri_ddp_before_forward(hri_torch *t, hri_ddp *ddp) {
  hri_torch_at(t, "DistributedDataParallel", -1);
  if (t->grad_mode && !ddp->rebuilt && ddp->arrived_count) rebuild(t, ddp);
  send_buffers(t, ddp->module);
}

static void sink_backward(hri_torch *t, hri_fn *fn, hri_ten *const *g, hri_ten **in) {
  (void)t;
  for (uint32_t i = 0; i < fn->edge_count; i++) in[i] = hri_ten_keep(g[i]);
}

void hri_ddp_after_forward(hri_torch *t, hri_ddp *ddp, hri_module_output *out) {
  hri_ten *inputs[] = {out->loss, out->logits}, **results[] = {&out->loss, &out->logits};
  hri_ten *clones[2];
  hri_fn *fn;
  int count = out->logits ? 2 : 1; /* a fused head gives the loss alone */
  if (!ddp->settings.find_unused || !t->grad_mode) return;
  hri_torch_at(t, "DistributedDataParallel", -1);
  fn = hri_fn_make(t, sink_backward, inputs, (uint32_t)count);
  for (int k = 0; k < count; k++) clones[k] = hri_ten_like(t, "clone", inputs[k], inputs[k]->type);
  for (int k = 0; k < count; k++) hri_fn_bind(t, fn, clones[k]);
  for (int k = 0; k < count; k++) hri_ten_set(t, results[k], clones[k]);
}
