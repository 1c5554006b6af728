/* Who runs next in a block (block.h). */
#include "gpu/soft/block.h"

#include <assert.h>
#include <string.h>

#include "gpu/soft/report.h"
#include "gpu/soft/shared.h"

hri_soft_thread *hri_soft_now;
hri_soft_grid hri_soft_here;

/* Lanes of a warp, a bit each: that have ended or never were, that wait at a barrier, that wait for others. */
typedef struct warp {
  uint32_t ended, at_barrier, together;
} warp;

static struct {
  warp warps[HRI_SOFT_THREADS / HRI_SOFT_WARP];
  hri_fiber_stacks stacks;
  uint32_t free_stacks[HRI_SOFT_THREADS], free_count;
  hri_soft_thread threads[HRI_SOFT_THREADS];
  uint32_t count, ready[HRI_SOFT_THREADS], ready_count, done, at_barrier;
  hri_fiber outside;
  void (*body)(void *context);
  void *context;
  uint64_t *random;
  bool left; /* a finding ended the block */
} block;

bool hri_soft_block_init(void) {
  if (block.stacks.memory) return true;
  return hri_fiber_stacks_init(&block.stacks, HRI_SOFT_THREADS) == 0;
}

static warp *warp_of(const hri_soft_thread *t) { return &block.warps[t->linear / HRI_SOFT_WARP]; }

static void wake(hri_soft_thread *t) {
  t->state = HRI_SOFT_READY;
  block.ready[block.ready_count++] = t->linear;
}

/* One of those that can run, taken off their list; NULL when there is none. */
static hri_soft_thread *draw_ready(void) {
  uint32_t at;
  hri_soft_thread *t;
  if (block.ready_count == 0) return NULL;
  at = hri_soft_draw(block.random, block.ready_count);
  t = &block.threads[block.ready[at]];
  block.ready[at] = block.ready[--block.ready_count];
  return t;
}

void hri_soft_block_leave(void) {
  block.left = true;
  hri_fiber_leave(&block.outside);
  __builtin_unreachable();
}

/* Nobody can run, and not all are done: those that wait will wait for ever. */
static void find_stuck(void) {
  const hri_soft_thread *t = block.threads, *end = t + block.count;
  while (t < end && t->state != HRI_SOFT_AT_BARRIER && t->state != HRI_SOFT_TOGETHER) t++;
  assert(t < end);
  hri_soft_now = block.threads + (t - block.threads);
  if (t->state == HRI_SOFT_AT_BARRIER)
    hri_soft_find(HRI_SOFT_BARRIER, "waits at %s:%d, where %u of %u threads do not come", t->site.file, t->site.line,
                  block.count - block.at_barrier, block.count);
  else
    hri_soft_find(HRI_SOFT_MASK, "%s with mask 0x%08x at %s:%d, where a lane of the mask does not come",
                  t->collective->name, t->mask, t->site.file, t->site.line);
}

static void worker(void);

/* Goes on with `next`; `from` keeps where the caller stands, NULL: it does not come back. */
static void go(hri_fiber *from, hri_soft_thread *next) {
  hri_soft_now = next;
  if (next->state == HRI_SOFT_NEW) {
    assert(block.free_count > 0);
    next->stack = block.free_stacks[--block.free_count];
    hri_fiber_begin(&next->fiber, &block.stacks, next->stack, worker);
  }
  next->state = HRI_SOFT_RUNNING;
  if (from) hri_fiber_switch(from, &next->fiber);
  else hri_fiber_leave(&next->fiber);
}

/* A thread's life, and then, on the same stack, those of others that have not begun. */
static void worker(void) {
  for (;;) {
    hri_soft_thread *t = hri_soft_now, *next;
    block.body(block.context);
    t->state = HRI_SOFT_DONE;
    warp_of(t)->ended |= 1u << t->lane;
    block.done++;
    next = draw_ready();
    if (!next) {
      if (block.done < block.count) find_stuck(), block.left = true;
      hri_fiber_leave(&block.outside);
    } else if (next->state == HRI_SOFT_NEW) {
      next->stack = t->stack;
      next->fiber = t->fiber; /* ucontext keeps its state at the stack's end */
      next->state = HRI_SOFT_RUNNING;
      hri_soft_now = next;
    } else {
      block.free_stacks[block.free_count++] = t->stack; /* nobody takes it before the switch */
      go(NULL, next);
    }
  }
}

/* The calling thread waits until somebody wakes it. */
static void wait_turn(hri_soft_thread *t) {
  hri_soft_thread *next = draw_ready();
  if (!next) {
    find_stuck();
    hri_soft_block_leave();
  }
  if (next == t) {
    t->state = HRI_SOFT_RUNNING;
    return;
  }
  go(&t->fiber, next);
}

static void begin(void) {
  hri_soft_index size = hri_soft_here.threads;
  block.count = size.x * size.y * size.z;
  assert(block.count > 0 && block.count <= HRI_SOFT_THREADS);
  block.ready_count = block.done = block.at_barrier = 0;
  block.left = false;
  block.free_count = 0;
  for (uint32_t i = HRI_SOFT_THREADS; i-- > 0;) block.free_stacks[block.free_count++] = i;
  for (uint32_t i = 0; i < HRI_SOFT_THREADS / HRI_SOFT_WARP; i++) block.warps[i] = (warp){.ended = 0xFFFFFFFFu};
  for (uint32_t i = 0; i < block.count; i++) {
    block.warps[i / HRI_SOFT_WARP].ended &= ~(1u << i % HRI_SOFT_WARP);
    block.threads[i] = (hri_soft_thread){.index = {i % size.x, i / size.x % size.y, i / size.x / size.y},
                                         .linear = i,
                                         .lane = i % HRI_SOFT_WARP,
                                         .first = i / HRI_SOFT_WARP * HRI_SOFT_WARP};
    block.ready[block.ready_count++] = i;
  }
  hri_soft_here.first_epoch = ++hri_soft_here.epoch;
}

bool hri_soft_block_run(void (*body)(void *context), void *context, uint64_t *random) {
  hri_soft_thread *first;
  begin();
  block.body = body;
  block.context = context;
  block.random = random;
  hri_soft_shared_begin();
  first = draw_ready();
  assert(first); /* a block has a thread */
  go(&block.outside, first);
  hri_soft_now = NULL;
  return !block.left;
}

static bool same_site(hri_soft_site a, hri_soft_site b) {
  return a.line == b.line && (a.file == b.file || strcmp(a.file, b.file) == 0);
}

void hri_soft_barrier(hri_soft_site site) {
  hri_soft_thread *t = hri_soft_now;
  t->state = HRI_SOFT_AT_BARRIER;
  warp_of(t)->at_barrier |= 1u << t->lane;
  t->site = site;
  if (++block.at_barrier < block.count) {
    wait_turn(t);
    return;
  }
  for (uint32_t i = 0; i < block.count; i++)
    if (!same_site(block.threads[i].site, site)) {
      hri_soft_find(HRI_SOFT_BARRIER, "thread %u waits at %s:%d, this one at %s:%d", i, block.threads[i].site.file,
                    block.threads[i].site.line, site.file, site.line);
      hri_soft_block_leave();
    }
  block.at_barrier = 0;
  for (uint32_t i = 0; i < block.count; i += HRI_SOFT_WARP) block.warps[i / HRI_SOFT_WARP].at_barrier = 0;
  hri_soft_here.epoch++;
  for (uint32_t i = 0; i < block.count; i++) {
    block.threads[i].turn = 0;
    wake(&block.threads[i]);
  }
  wait_turn(t);
}

static void find_mask(const hri_soft_thread *t, uint32_t lane, const char *why) {
  hri_soft_find(HRI_SOFT_MASK, "%s with mask 0x%08x at %s:%d: lane %u %s", t->collective->name, t->mask, t->site.file,
                t->site.line, lane, why);
  hri_soft_block_leave();
}

/* Leaves the block when a lane of the mask cannot come to where `t` waits. Of those that are there one is compared: each
 * was, with one that was there before. */
static void check_mask(const hri_soft_thread *t, const warp *w) {
  uint32_t mask = t->mask, waiting = w->together & mask;
  const hri_soft_thread *other;
  if (!(mask >> t->lane & 1)) find_mask(t, t->lane, "takes part and is not in the mask");
  if (mask & w->ended) find_mask(t, (uint32_t)__builtin_ctz(mask & w->ended), "has ended or does not exist");
  if (mask & w->at_barrier) find_mask(t, (uint32_t)__builtin_ctz(mask & w->at_barrier), "waits at a barrier");
  if (!waiting) return;
  other = t - t->lane + __builtin_ctz(waiting);
  if (other->collective != t->collective) find_mask(t, other->lane, "does something else");
  if (other->mask != mask) find_mask(t, other->lane, "has another mask");
  if (!same_site(other->site, t->site)) find_mask(t, other->lane, "is at another place");
}

void hri_soft_together(const hri_soft_collective *collective, uint32_t mask, hri_soft_site site, void *operands) {
  hri_soft_thread *t = hri_soft_now, *lanes = block.threads + t->first;
  warp *w = warp_of(t);
  t->collective = collective;
  t->mask = mask;
  t->site = site;
  t->operands = operands;
  check_mask(t, w);
  t->state = HRI_SOFT_TOGETHER;
  w->together |= 1u << t->lane;
  if ((w->together & mask) == mask) {
    collective->execute(lanes, mask);
    w->together &= ~mask;
    for (uint32_t rest = mask; rest; rest &= rest - 1) wake(&lanes[__builtin_ctz(rest)]);
  }
  wait_turn(t);
}
