/* The requests of a run through src/alloc, at the allocator's rules (replay.h): peaks by phase, what is live at the highest, and the
 * snapshot of it. Only here a request gets an address. */
#include "frameworks/pytorch/replay.h"

#include <stdio.h>
#include <string.h>

#include "alloc/alloc.h"
#include "base/error.h"

typedef struct run {
  const hri_torch *torch;
  hr_alloc_hooks hooks;
  hr_alloc *alloc;
  uint64_t *addresses; /* by storage */
  bool labelled, limited;
  hri_torch_moment *moments; /* NULL: nobody asks */
  uint64_t *blocks;          /* likewise */
} run;

/* Of a device without limit each expandable segment has the addresses of 1.125 TiB (alloc/expandable.c): too few for what
 * needs that much at once, `most` of it. */
static hr_alloc_config with_space(const hr_alloc_config *config, uint64_t capacity, uint64_t most) {
  static const uint64_t ENOUGH = UINT64_C(1) << 39;
  hr_alloc_config out = *config;
  if (capacity || most <= ENOUGH || config->expandable_reserve_bytes || config->expandable_reserve_fraction > 0)
    return out;
  out.expandable_reserve_bytes = most < HRI_TORCH_MOST_BYTES / 2 ? 2 * most : HRI_TORCH_MOST_BYTES;
  return out;
}

static hr_status begin(run *r, const hri_torch *torch, const hr_alloc_config *config, uint64_t capacity, uint64_t most,
                       hr_error *error) {
  hr_alloc_config own = with_space(config, capacity, most);
  own.memory_fraction = 1; /* what it leaves is the capacity */
  *r = (run){.torch = torch, .limited = capacity != 0};
  r->addresses = hri_alloc_zero(torch->storages.count, sizeof *r->addresses);
  if (!r->addresses) return hri_fail_memory(error, torch->storages.count * 8, "addresses of tensors");
  HRI_TRY(hr_alloc_fake_hooks(capacity, &r->hooks, error));
  HRI_TRY(hr_alloc_create(&r->hooks, &own, &r->alloc, error));
  if (capacity && config->memory_fraction < 1) hr_alloc_set_allowed(r->alloc, capacity); /* for garbage collection */
  return HR_OK;
}

static void end(run *r) {
  hr_alloc_destroy(r->alloc);
  if (r->hooks.context) hr_alloc_hooks_destroy(&r->hooks);
  hri_free(r->addresses);
}

static const char *const phase_names[HRI_TORCH_PHASES] = {"load", "forward",   "loss",      "backward",
                                                          "clip", "optimizer", "zero_grad", "evaluate"};

static hr_status label(run *r, const hri_torch_request *request, uint32_t step, hr_error *error) {
  const hri_torch_label *l = &r->torch->labels.items[request->label];
  char name[128];
  hr_alloc_label out = {.category = hr_role_name(r->torch->storages.items[request->storage].role),
                        .phase = phase_names[l->phase],
                        .name = name,
                        .layer = l->layer,
                        .step = step};
  (void)snprintf(name, sizeof name, "%s: %s", l->module, l->op);
  return hr_alloc_set_label(r->alloc, &out, error);
}

static hr_status one(run *r, const hri_torch_request *request, uint32_t step, hr_error *error) {
  uint64_t *address = &r->addresses[request->storage];
  if (request->storage == 0) return hr_alloc_empty_cache(r->alloc, error);
  if (request->bytes == 0) return hr_alloc_free(r->alloc, *address, error);
  if (r->labelled) HRI_TRY(label(r, request, step, error));
  return hr_alloc_malloc(r->alloc, request->bytes, r->torch->labels.items[request->label].stream, address, error);
}

static uint64_t peak_of(const hr_alloc_stat *stat) { return (uint64_t)stat[HR_ALLOC_ALL].peak; }

static void most(uint64_t *into, uint64_t bytes) {
  if (bytes > *into) *into = bytes;
}

/* The statistics of the phase that ends here go into its figures and the whole's. */
static void end_phase(run *r, const hri_torch_mark *mark, hri_torch_replay *out) {
  hri_torch_usage *usage = &out->phases[mark->step > 1][mark->phase];
  hr_alloc_stats stats;
  hr_alloc_get_stats(r->alloc, &stats);
  most(&usage->allocated_bytes, peak_of(stats.allocated_bytes));
  most(&usage->reserved_bytes, peak_of(stats.reserved_bytes));
  most(&out->whole.allocated_bytes, peak_of(stats.allocated_bytes));
  most(&out->whole.reserved_bytes, peak_of(stats.reserved_bytes));
  usage->after_bytes = out->whole.after_bytes = (uint64_t)stats.allocated_bytes[HR_ALLOC_ALL].current;
  out->retries = stats.num_alloc_retries;
  hr_alloc_reset_peak_stats(r->alloc);
}

/* Bytes that live at once, in whole units of 512, as blocks have at least. */
static hr_status live_at_most(const hri_torch *torch, uint64_t *most, hr_error *error) {
  uint64_t live = 0, *sizes = hri_alloc_zero(torch->storages.count, sizeof *sizes);
  if (!sizes) return hri_fail_memory(error, torch->storages.count * 8, "sizes of tensors");
  *most = 0;
  for (size_t i = 0; i < torch->requests.count && !torch->beyond && live <= HRI_TORCH_MOST_BYTES; i++) {
    const hri_torch_request *request = &torch->requests.items[i];
    live -= sizes[request->storage];
    sizes[request->storage] = hri_round_up(request->bytes, 512);
    live += sizes[request->storage];
    if (live > *most) *most = live;
  }
  hri_free(sizes);
  if (!torch->beyond && live <= HRI_TORCH_MOST_BYTES) return HR_OK;
  hri_fail(error, HR_ERROR_UNSUPPORTED,
           "--engine pytorch: the job's tensors have more than 512 PiB, more than is counted here");
  return hri_hint(error, HR_ERROR_UNSUPPORTED, "lower --micro-batch or --seq, or correct the sizes of the model");
}

static hri_torch_moment moment_of(const run *r, const hri_torch_mark *mark) {
  hr_alloc_stats stats;
  hr_alloc_get_stats(r->alloc, &stats);
  return (hri_torch_moment){.allocated_bytes = (uint64_t)stats.allocated_bytes[HR_ALLOC_ALL].current,
                            .reserved_bytes = (uint64_t)stats.reserved_bytes[HR_ALLOC_ALL].current,
                            .step = mark->step,
                            .phase = mark->phase};
}

/* What a request or a free left behind: the block of a storage that began, which may be larger than was asked for, and whether more is allocated
 * than ever before, by the count whose peak the statistics tell. */
static void note(run *r, const hri_torch_request *request, uint64_t before, hri_torch_replay *out, bool *highest) {
  const uint64_t now = hri_alloc_allocated_bytes(r->alloc);
  if (r->blocks && request->bytes) r->blocks[request->storage] = now - before;
  *highest = now > out->peak_bytes;
  if (*highest) out->peak_bytes = now;
}

static hr_status go(run *r, hri_torch_replay *out, hr_error *error) {
  const hri_torch *torch = r->torch;
  size_t next = 0;
  hri_torch_mark mark = {0};
  out->fits = true;
  for (size_t i = 0; i < torch->requests.count; i++) {
    const hri_torch_request *request = &torch->requests.items[i];
    uint64_t before;
    bool highest;
    hr_error refused;
    hr_status status;
    for (; next < torch->marks.count && torch->marks.items[next].request <= i; next++) {
      if (next) end_phase(r, &mark, out);
      mark = torch->marks.items[next];
    }
    before = hri_alloc_allocated_bytes(r->alloc);
    status = one(r, request, mark.step, &refused);
    if (status == HR_ERROR_MEMORY && r->limited) { /* an answer, no failure */
      out->fits = false;
      out->failed_request = i;
      break;
    }
    if (status != HR_OK) {
      if (error) *error = refused;
      return status;
    }
    if (r->moments) r->moments[i] = moment_of(r, &mark);
    note(r, request, before, out, &highest);
    if (highest) out->peak_request = i, out->peak_step = mark.step, out->peak_phase = mark.phase;
  }
  end_phase(r, &mark, out);
  return HR_OK;
}

/* What is wanted of a run beside its figures; NULL: not that. */
typedef struct wanted {
  hr_snapshot **snapshot;
  hri_torch_moment *moments;
  uint64_t *blocks;
} wanted;

static hr_status run_all(const hri_torch *torch, const hr_alloc_config *config, uint64_t capacity, const wanted *w,
                         hri_torch_replay *out, hr_error *error) {
  run r = {0};
  uint64_t most = 0;
  hr_status status;
  *out = (hri_torch_replay){0};
  HRI_TRY_OUT(live_at_most(torch, &most, error));
  HRI_TRY_OUT(begin(&r, torch, config, capacity, most, error));
  r.moments = w->moments;
  r.blocks = w->blocks;
  if (w->snapshot) {
    hr_alloc_history_options options;
    hr_alloc_history_options_init(&options);
    options.event_limit = 4 * torch->requests.count + 1024;
    r.labelled = true;
    HRI_TRY_OUT(hr_alloc_history_start(r.alloc, &options, error));
  }
  HRI_TRY_OUT(go(&r, out, error));
  if (w->snapshot) status = hr_alloc_snapshot(r.alloc, w->snapshot, error);
out:
  end(&r);
  return status;
}

hr_status hri_torch_replay_run(const hri_torch *torch, const hr_alloc_config *config, uint64_t capacity_bytes,
                               hri_torch_replay *out, hr_error *error) {
  return run_all(torch, config, capacity_bytes, &(wanted){0}, out, error);
}

hr_status hri_torch_replay_blocks(const hri_torch *torch, const hr_alloc_config *config, uint64_t *blocks,
                                  hri_torch_replay *out, hr_error *error) {
  return run_all(torch, config, 0, &(wanted){.blocks = blocks}, out, error);
}

hr_status hri_torch_replay_snapshot(const hri_torch *torch, const hr_alloc_config *config, uint64_t capacity_bytes,
                                    hr_snapshot **snapshot, hr_error *error) {
  hri_torch_replay out;
  return run_all(torch, config, capacity_bytes, &(wanted){.snapshot = snapshot}, &out, error);
}

hr_status hri_torch_replay_course(const hri_torch *torch, const hr_alloc_config *config, hri_torch_moment *moments,
                                  hr_error *error) {
  hri_torch_replay out;
  return run_all(torch, config, 0, &(wanted){.moments = moments}, &out, error);
}
