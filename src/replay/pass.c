/* One pass: the recorded requests through an allocator.
 *
 * When a pass follows the recording, driver calls get the recorded addresses, so every block must come out where it was
 * recorded; what differs is counted. Where the trace returns segments that the allocator would have kept, the program
 * called empty_cache, and the pass does the same. Where the allocator returned them itself to make room, it decides
 * anew. */
#include "replay/rest.h"

#include <string.h>

#include "base/mix.h"
#include "replay/world.h"

/* A program that goes on after more failures than this does not learn from them; each costs a walk over all that is
 * free. */
enum { MOST_FAILURES = 200 };

/* recorded address -> address in this pass */
typedef struct slot {
  uint64_t recorded, address; /* recorded 0: free */
} slot;

typedef struct pass {
  const hri_recording *recording;
  hr_alloc *alloc;
  hri_world world;
  hr_replay_result *result;
  hri_agreement *agreement;
  const hri_rest *rest; /* NULL: the whole recording */
  const hri_rest *held; /* not NULL: keeps the failed request as long as this says */
  slot *slots;
  uint64_t mask, used;
  uint32_t *pools; /* of the snapshot -> of the allocator */
  uint64_t failures;
  uint64_t recorded_reserved; /* as recorded, before the event at hand */
  bool out_of_memory;         /* of the host, for this bookkeeping */
} pass;

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* ---- addresses ---- */

static uint64_t place(const pass *p, uint64_t recorded) { return hri_mix(recorded) & p->mask; }

static bool widen(pass *p) {
  uint64_t count = p->mask ? (p->mask + 1) * 2 : 1024, old = p->mask ? p->mask + 1 : 0;
  slot *from = p->slots, *fresh = hri_alloc_zero((size_t)count, sizeof *fresh);
  if (!fresh) return false;
  p->slots = fresh;
  p->mask = count - 1;
  for (uint64_t k = 0; k < old; k++) {
    uint64_t at = place(p, from[k].recorded);
    if (!from[k].recorded) continue;
    while (fresh[at].recorded) at = (at + 1) & p->mask;
    fresh[at] = from[k];
  }
  hri_free(from);
  return true;
}

static slot *find(const pass *p, uint64_t recorded) {
  uint64_t at;
  if (!p->mask || !recorded) return NULL;
  for (at = place(p, recorded); p->slots[at].recorded; at = (at + 1) & p->mask)
    if (p->slots[at].recorded == recorded) return &p->slots[at];
  return NULL;
}

static void put(pass *p, uint64_t recorded, uint64_t address) {
  slot *have = find(p, recorded);
  uint64_t at;
  if (have) {
    have->address = address;
    return;
  }
  if (!recorded || ((p->used + 1) * 2 > (p->mask ? p->mask + 1 : 0) && !widen(p))) {
    p->out_of_memory |= recorded != 0;
    return;
  }
  for (at = place(p, recorded); p->slots[at].recorded; at = (at + 1) & p->mask) continue;
  p->slots[at] = (slot){recorded, address};
  p->used++;
}

/* Linear probing without marks: what follows closes the gap. */
static void drop(pass *p, slot *gone) {
  uint64_t hole = (uint64_t)(gone - p->slots), at = hole;
  for (;;) {
    uint64_t home;
    at = (at + 1) & p->mask;
    if (!p->slots[at].recorded) break;
    home = place(p, p->slots[at].recorded);
    if (((at - home) & p->mask) < ((at - hole) & p->mask)) continue;
    p->slots[hole] = p->slots[at];
    hole = at;
  }
  p->slots[hole] = (slot){0};
  p->used--;
}

/* ---- events ---- */

static void fail_at(pass *p, uint64_t event, uint64_t bytes) {
  hr_replay_result *r = p->result;
  p->failures++;
  if (r->failed) return;
  r->failed = true;
  r->failed_event = event;
  r->failed_bytes = bytes;
}

/* It was not the device that refused, but the host, for the bookkeeping (hri_fail_memory). */
static bool host_refused(const hr_error *error) {
  static const char words[] = "the host refused";
  return strncmp(error->message, words, sizeof words - 1) == 0;
}

static uint32_t pool_of(const pass *p, uint64_t event) {
  return p->recording->event_pool ? p->pools[p->recording->event_pool[event]] : 0;
}

/* A trace may free what it never had, or twice: the allocator refuses it, and the replay goes on. */
static void tolerate(hr_status status) { (void)status; }

/* Whether its free was recorded in two halves, in one, or was begun only. */
static void drop_block(pass *p, slot *at) {
  if (hr_alloc_free_complete(p->alloc, at->address, NULL) != HR_OK)
    tolerate(hr_alloc_free(p->alloc, at->address, NULL));
  drop(p, at);
}

/* Segments returned for a request of a private pool are counted: a graph that is captured into the pool cannot do that,
 * and a trace does not say whether one is. */
static hr_status ask(pass *p, uint32_t pool, uint64_t size, uint64_t stream, uint64_t *address, hr_error *error) {
  const uint64_t returned = p->world.released_count;
  const hr_status status = hr_alloc_malloc_in(p->alloc, pool, size, stream, address, error);
  if (status == HR_OK && pool && p->world.released_count > returned) p->result->returned_for_pools++;
  return status;
}

static void request(pass *p, uint64_t k) {
  const hr_trace_event *e = &p->recording->lives->events[k];
  uint64_t address;
  slot *stale = find(p, e->addr);
  hr_error error;
  hr_status status;
  if (e->size == 0 || e->size > HRI_ABSURD_BYTES) return; /* damage: lives leave it out too */
  p->result->request_count++;
  if (stale) drop_block(p, stale); /* its free was lost */
  status = ask(p, pool_of(p, k), e->size, e->stream, &address, &error);
  if (status != HR_OK) {
    if (host_refused(&error)) p->out_of_memory = true;
    else fail_at(p, k, e->size);
    return;
  }
  put(p, e->addr, address);
  if (!p->agreement) return;
  p->agreement->compared_count++;
  p->agreement->same_address_count += address == e->addr;
}

/* The size of an out-of-memory event is rounded already. */
static void failed_request(pass *p, uint64_t k) {
  const hr_trace_event *e = &p->recording->lives->events[k];
  uint64_t address;
  hr_error error;
  if (e->size == 0) return;
  p->result->request_count++;
  if (e->size > HRI_ABSURD_BYTES) fail_at(p, k, e->size); /* no setting meets a size that was computed wrongly */
  else if (ask(p, pool_of(p, k), e->size, e->stream, &address, &error) == HR_OK) {
    if (p->held && k == p->recording->oom_event) put(p, HRI_REST_FAILED, address);
    else tolerate(hr_alloc_free(p->alloc, address, NULL)); /* the program went on without it */
  } else if (host_refused(&error)) p->out_of_memory = true;
  else fail_at(p, k, e->size);
}

static void free_block(pass *p, const hr_trace_event *e) {
  slot *at = find(p, e->addr);
  if (!at) return; /* its request failed here, or is lost */
  if (e->action == HR_TRACE_FREE_REQUESTED && !p->recording->lives->single_frees) {
    tolerate(hr_alloc_free_begin(p->alloc, at->address, NULL));
    return;
  }
  drop_block(p, at);
}

/* Whether the allocator returned these segments itself, to meet the request that follows, and will do so again. Stacks
 * tell: those of the program's empty_cache are not those of the request. Without stacks, it is so where there was no
 * room then. */
static bool made_room(const pass *p, uint64_t k) {
  const hri_recording *r = p->recording;
  const hr_trace_event *first = &r->lives->events[k], *e;
  while (k < r->lives->event_count && hri_gives_back(&r->lives->events[k])) k++;
  if (k == r->lives->event_count) return false;
  e = &r->lives->events[k];
  if (e->action == HR_TRACE_OOM) return true;
  if (e->action != HR_TRACE_SEGMENT_ALLOC && e->action != HR_TRACE_SEGMENT_MAP) return false;
  if (e->stack || first->stack) return e->stack == first->stack;
  return r->capacity_bytes != UINT64_MAX &&
         e->size > r->capacity_bytes - least(p->recorded_reserved, r->capacity_bytes);
}

/* The first of a run of returns decides for all of them. */
static void returned(pass *p, uint64_t k) {
  const hr_trace_event *e = &p->recording->lives->events[k];
  if ((k == 0 || !hri_gives_back(e - 1)) && !made_room(p, k) && hr_alloc_empty_cache(p->alloc, NULL) != HR_OK)
    p->out_of_memory = true;
  if (e->size <= HRI_ABSURD_BYTES) p->recorded_reserved -= least(e->size, p->recorded_reserved);
}

static void taken(pass *p, const hr_trace_event *e) {
  hri_driver_call call = {.address = e->addr,
                          .bytes = e->size,
                          .stream = e->stream,
                          .map = e->action == HR_TRACE_SEGMENT_MAP};
  if (e->size > HRI_ABSURD_BYTES) return; /* damage */
  if (p->recorded_reserved < UINT64_MAX / 2) p->recorded_reserved += e->size;
  if (p->agreement) p->agreement->segment_count++;
  hri_world_expect(&p->world, &call);
}

static void step(pass *p, uint64_t k) {
  const hr_trace_event *e = &p->recording->lives->events[k];
  slot *held = p->held && k == p->held->freed_before ? find(p, HRI_REST_FAILED) : NULL;
  if (held) drop_block(p, held);
  switch (e->action) {
  case HR_TRACE_ALLOC: request(p, k); break;
  case HR_TRACE_FREE_REQUESTED:
  case HR_TRACE_FREE_COMPLETED: free_block(p, e); break;
  case HR_TRACE_SEGMENT_ALLOC:
  case HR_TRACE_SEGMENT_MAP: taken(p, e); break;
  case HR_TRACE_SEGMENT_FREE:
  case HR_TRACE_SEGMENT_UNMAP: returned(p, k); break;
  case HR_TRACE_OOM: failed_request(p, k); break;
  default: break;
  }
}

/* ---- the rest of a step ---- */

/* The failed request is served and kept; then what a whole step shows, up to the first request that fails. */
static void finish_step(pass *p) {
  const hri_recording *r = p->recording;
  const hr_trace_event *e = &r->lives->events[r->oom_event];
  uint64_t address;
  hr_error error;
  if (ask(p, pool_of(p, r->oom_event), e->size, e->stream, &address, &error) == HR_OK) put(p, HRI_REST_FAILED, address);
  else if (host_refused(&error)) p->out_of_memory = true;
  else fail_at(p, r->oom_event, e->size);
  for (size_t k = 0; k < p->rest->ops.count && !p->out_of_memory && !p->world.failed && !p->result->failed; k++) {
    const hri_rest_op *op = &p->rest->ops.items[k];
    slot *at = op->free ? find(p, op->key) : NULL;
    if (at) drop_block(p, at);
    if (op->free || op->size == 0) continue;
    if (ask(p, r->event_pool ? p->pools[op->pool] : 0, op->size, op->stream, &address, &error) == HR_OK)
      put(p, op->key, address);
    else if (host_refused(&error)) p->out_of_memory = true;
    else fail_at(p, r->oom_event, op->size);
  }
}

/* ---- the pass ---- */

static hr_status make_pools(pass *p, hr_error *error) {
  const hr_snapshot *s = p->recording->lives->snapshot;
  p->pools = hri_alloc_zero(s->pool_count + 1u, sizeof *p->pools);
  if (!p->pools) return hri_fail_memory(error, s->pool_count * sizeof *p->pools, "pools");
  if (!p->recording->event_pool) return HR_OK;
  for (uint32_t k = 1; k < s->pool_count; k++) {
    p->pools[k] = hr_alloc_pool_number(p->alloc, s->pools[k].id[0], s->pools[k].id[1]); /* imported ones are there */
    if (!p->pools[k])
      HRI_TRY(hr_alloc_pool_create(p->alloc, s->pools[k].id[0], s->pools[k].id[1], &p->pools[k], error));
  }
  return HR_OK;
}

static hr_status begin(pass *p, const hr_alloc_config *config, hr_error *error) {
  const hri_recording *r = p->recording;
  hr_alloc_hooks hooks = hri_world_hooks(&p->world);
  hr_alloc_config own = *config;
  if (r->capacity_bytes == UINT64_MAX) own.memory_fraction = 1; /* of a device that nobody knows: it was no obstacle */
  HRI_TRY(hr_alloc_create(&hooks, &own, &p->alloc, error));
  p->world.alloc = p->alloc;
  if (r->allowed_bytes && config->garbage_collection_threshold > 0) hr_alloc_set_allowed(p->alloc, r->allowed_bytes);
  for (uint64_t k = 0; k < r->start.segment_count; k++) p->recorded_reserved += r->start.segments[k].total_size;
  if (r->start.segment_count)
    HRI_TRY(hr_alloc_import(p->alloc, r->start.segments, r->start.segment_count, r->start.blocks, r->start.block_count,
                            r->lives->snapshot->pools, r->lives->snapshot->pool_count, error));
  for (uint64_t k = 0; k < r->start.block_count; k++)
    if (r->start.blocks[k].state != HR_BLOCK_INACTIVE) put(p, r->start.blocks[k].address, r->start.blocks[k].address);
  return make_pools(p, error);
}

static void sum_up(pass *p) {
  hr_alloc_stats stats;
  hr_replay_result *r = p->result;
  hr_alloc_get_stats(p->alloc, &stats);
  r->reserved_peak_bytes = (uint64_t)stats.reserved_bytes[HR_ALLOC_ALL].peak;
  r->allocated_peak_bytes = (uint64_t)stats.allocated_bytes[HR_ALLOC_ALL].peak;
  r->active_peak_bytes = (uint64_t)stats.active_bytes[HR_ALLOC_ALL].peak;
  r->requested_peak_bytes = (uint64_t)stats.requested_bytes[HR_ALLOC_ALL].peak;
  r->reserved_end_bytes = (uint64_t)stats.reserved_bytes[HR_ALLOC_ALL].current;
  r->retries = (uint64_t)stats.num_alloc_retries;
  r->device_allocs = (uint64_t)stats.num_device_alloc;
  r->device_frees = (uint64_t)stats.num_device_free;
  r->past_failure_events = r->failed ? p->recording->lives->event_count - r->failed_event - 1 : 0;
  if (p->agreement) p->agreement->same_segment_count = p->world.matched_count;
}

static hr_status run(pass *p, const hr_alloc_config *config, bool follow, hr_error *error) {
  const hri_recording *r = p->recording;
  const uint64_t end = p->rest ? r->oom_event : r->lives->event_count;
  hr_status status;
  *p->result = (hr_replay_result){0};
  (void)hr_alloc_config_print(config, p->result->alloc_conf, sizeof p->result->alloc_conf);
  hri_world_init(&p->world, r->capacity_bytes, r->above, follow);
  status = begin(p, config, error);
  for (uint64_t k = 0; status == HR_OK && k < end && !p->out_of_memory && !p->world.failed && !p->world.strayed; k++) {
    if (p->failures < MOST_FAILURES) step(p, k);
    else if (p->agreement && r->lives->events[k].action == HR_TRACE_ALLOC)
      p->agreement->compared_count++; /* not as recorded: not at all */
  }
  if (status == HR_OK && p->rest && !p->result->failed) finish_step(p);
  if (status == HR_OK && (p->out_of_memory || p->world.failed))
    status = hri_fail_memory(error, (p->mask + 1) * sizeof *p->slots, "a replay");
  if (status == HR_OK && !p->world.strayed) sum_up(p);
  hri_world_close(&p->world);
  hr_alloc_destroy(p->alloc);
  hri_world_deinit(&p->world);
  hri_free(p->slots);
  hri_free(p->pools);
  return status;
}

hr_status hri_replay_pass(const hri_recording *recording, const hr_alloc_config *config, hr_replay_result *result,
                          hri_agreement *agreement, hr_error *error) {
  pass p = {.recording = recording, .result = result, .agreement = agreement};
  hr_status status;
  if (agreement) *agreement = (hri_agreement){0};
  status = run(&p, config, agreement != NULL, error);
  if (status != HR_OK || !p.world.strayed) return status;
  *agreement = (hri_agreement){0};
  p = (pass){.recording = recording, .result = result, .agreement = agreement};
  return run(&p, config, false, error);
}

hr_status hri_replay_rest(const hri_recording *recording, const hr_alloc_config *config, const hri_rest *rest,
                          hr_replay_result *result, hr_error *error) {
  pass p = {.recording = recording, .result = result, .rest = rest};
  return run(&p, config, false, error);
}

hr_status hri_replay_held(const hri_recording *recording, const hr_alloc_config *config, const hri_rest *rest,
                          hr_replay_result *result, hr_error *error) {
  pass p = {.recording = recording, .result = result, .held = rest};
  return run(&p, config, false, error);
}
