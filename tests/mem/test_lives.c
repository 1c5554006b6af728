/* Lives and states against the truth: a small allocator-like process (its own, not ours: splits, merges, returns
 * segments, maps and unmaps ranges, defers frees) writes a trace; its first events are lost; then every level and the
 * state after every event that is left must be the recorded one. And what contradicts itself must still give
 * answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "inspect/lives.h"
#include "snapshot/build.h"

#define MIB ((uint64_t)1 << 20)

static uint64_t random_state;
static uint64_t random_below(uint64_t n) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (random_state >> 33) % n;
}

/* ---- the process ---- */

enum { MAX_BLOCKS = 4096, MAX_EVENTS = 4000 };

typedef struct pblock {
  uint64_t addr, size, requested;
  int state; /* hr_block_state */
  int segment;
} pblock;

typedef struct psegment {
  uint64_t addr, size;
  bool large, expandable, alive;
} psegment;

typedef struct process {
  pblock blocks[MAX_BLOCKS]; /* by address */
  int block_count;
  psegment segments[MAX_EVENTS + 8];
  int segment_count;
  uint64_t next_address;
  bool expandable, tails;
  hr_trace_event events[MAX_EVENTS + 8];
  int event_count;
  /* the truth after every event */
  pblock *truth[MAX_EVENTS + 8];
  int truth_count[MAX_EVENTS + 8];
} process;

static void note(process *p, hr_trace_action action, uint64_t addr, uint64_t size) {
  p->events[p->event_count] = (hr_trace_event){.addr = addr, .size = size, .action = (uint8_t)action, .stack = 0};
  p->truth_count[p->event_count] = -1;
  p->event_count++;
}

/* Called where the recorded event's effect is complete. */
static void keep_truth(process *p) {
  int at = p->event_count - 1;
  p->truth_count[at] = p->block_count;
  p->truth[at] = malloc((size_t)(p->block_count + 1) * sizeof(pblock));
  memcpy(p->truth[at], p->blocks, (size_t)p->block_count * sizeof(pblock));
}

static void insert_block(process *p, int at, pblock block) {
  memmove(&p->blocks[at + 1], &p->blocks[at], (size_t)(p->block_count - at) * sizeof(pblock));
  p->blocks[at] = block;
  p->block_count++;
}

static void remove_block(process *p, int at) {
  memmove(&p->blocks[at], &p->blocks[at + 1], (size_t)(p->block_count - at - 1) * sizeof(pblock));
  p->block_count--;
}

static int add_segment(process *p, uint64_t size, bool large) {
  int at = 0;
  uint64_t addr = p->next_address;
  if (!p->expandable && random_below(3) == 0) { /* an address that was returned comes again, before or behind others */
    for (int k = 0; k < p->segment_count; k++)
      if (!p->segments[k].alive && p->segments[k].size == size && !p->segments[k].expandable)
        addr = p->segments[k].addr;
    for (int k = 0; k < p->block_count; k++)
      if (p->blocks[k].addr < addr + size && addr < p->blocks[k].addr + p->blocks[k].size) addr = p->next_address;
  }
  if (addr == p->next_address)
    p->next_address +=
        size + (p->expandable ? 1 : random_below(2)) * 2 * MIB; /* mapped ranges that touch would be one */
  p->segments[p->segment_count] = (psegment){addr, size, large, p->expandable, true};
  note(p, p->expandable ? HR_TRACE_SEGMENT_MAP : HR_TRACE_SEGMENT_ALLOC, addr, size);
  while (at < p->block_count && p->blocks[at].addr < addr) at++;
  insert_block(p, at, (pblock){addr, size, 0, HR_BLOCK_INACTIVE, p->segment_count});
  p->segment_count++;
  keep_truth(p);
  return at;
}

static void make(process *p, uint64_t requested) {
  uint64_t size = hri_round_up(requested ? requested : 1, 512), rest;
  bool large = size > MIB;
  int best = -1;
  pblock *b;
  for (int k = 0; k < p->block_count; k++) {
    const psegment *g = &p->segments[p->blocks[k].segment];
    if (p->blocks[k].state != HR_BLOCK_INACTIVE || g->large != large || p->blocks[k].size < size) continue;
    if (best < 0 || p->blocks[k].size < p->blocks[best].size) best = k;
  }
  if (best < 0)
    best = add_segment(p, !large ? 2 * MIB : size < 10 * MIB ? 20 * MIB : hri_round_up(size, 2 * MIB), large);
  b = &p->blocks[best];
  rest = b->size - size;
  if (large && !p->segments[b->segment].expandable ? rest > MIB : rest >= 512) {
    pblock tail = {b->addr + size, rest, 0, HR_BLOCK_INACTIVE, b->segment};
    b->size = size;
    insert_block(p, best + 1, tail);
    b = &p->blocks[best];
  } else if (rest) p->tails = true;
  b->state = HR_BLOCK_ALLOCATED;
  b->requested = requested;
  note(p, HR_TRACE_ALLOC, b->addr, requested);
  keep_truth(p);
}

static bool joins(const process *p, int a) {
  return a >= 0 && a + 1 < p->block_count && p->blocks[a].segment == p->blocks[a + 1].segment &&
         p->blocks[a].state == HR_BLOCK_INACTIVE && p->blocks[a + 1].state == HR_BLOCK_INACTIVE;
}

static void complete(process *p, int at) {
  note(p, HR_TRACE_FREE_COMPLETED, p->blocks[at].addr, p->blocks[at].requested);
  p->blocks[at].state = HR_BLOCK_INACTIVE;
  p->blocks[at].requested = 0;
  if (joins(p, at)) p->blocks[at].size += p->blocks[at + 1].size, remove_block(p, at + 1);
  if (joins(p, at - 1)) p->blocks[at - 1].size += p->blocks[at].size, remove_block(p, at);
  keep_truth(p);
}

static void release(process *p, int at) {
  psegment *g = &p->segments[p->blocks[at].segment];
  if (p->blocks[at].size != g->size) return;
  g->alive = false;
  note(p, g->expandable ? HR_TRACE_SEGMENT_UNMAP : HR_TRACE_SEGMENT_FREE, g->addr, g->size);
  remove_block(p, at);
  keep_truth(p);
}

static void run(process *p, uint64_t seed, int events) {
  memset(p, 0, sizeof *p);
  random_state = seed;
  p->next_address = 0x7f0000000000u;
  while (p->event_count < events) {
    uint64_t what = random_below(100);
    int at = p->block_count ? (int)random_below((uint64_t)p->block_count) : -1;
    if (random_below(400) == 0) p->expandable = !p->expandable;
    if (what < 45 || at < 0) make(p, 1 + random_below(what % 2 ? MIB : what % 4 ? 12 * MIB : 40 * MIB));
    else if (p->blocks[at].state == HR_BLOCK_ALLOCATED && what < 95) {
      note(p, HR_TRACE_FREE_REQUESTED, p->blocks[at].addr, p->blocks[at].requested);
      p->blocks[at].state = HR_BLOCK_PENDING_FREE;
      keep_truth(p);
      if (what < 90) complete(p, at);
    } else if (p->blocks[at].state == HR_BLOCK_PENDING_FREE) complete(p, at);
    else if (p->blocks[at].state == HR_BLOCK_INACTIVE && what > 80) release(p, at);
  }
}

static void forget(process *p) {
  for (int k = 0; k < p->event_count; k++) free(p->truth[k]);
}

/* The snapshot of the process's last state with the events from `first` on. */
static hr_snapshot *snapshot_of(const process *p, int first) {
  hri_snapshot_builder b;
  hr_snapshot *s;
  hr_error error;
  assert_int_equal(hri_snapshot_build(&b, &error), HR_OK);
  assert_true(hri_snapshot_add_trace(&b, 0));
  for (int k = first; k < p->event_count; k++) assert_true(hri_snapshot_add_event(&b, &p->events[k]));
  for (int k = 0; k < p->block_count; k++) {
    const pblock *block = &p->blocks[k];
    const psegment *g = &p->segments[block->segment];
    if (k == 0 || p->blocks[k - 1].segment != block->segment)
      assert_true(hri_snapshot_add_segment(&b, &(hr_segment){.address = g->addr,
                                                             .total_size = g->size,
                                                             .large = g->large,
                                                             .expandable = g->expandable}));
    assert_true(hri_snapshot_add_block(&b, &(hr_block){block->addr, block->size, block->requested, 0, 0,
                                                       (uint8_t)block->state}));
  }
  assert_int_equal(hri_snapshot_build_end(&b, &s, &error), HR_OK);
  return s;
}

/* ---- comparing ---- */

typedef struct truth_sums {
  uint64_t live, reserved, count, pending;
} truth_sums;

static truth_sums sums_of(const process *p, int event) {
  truth_sums t = {0};
  for (int k = 0; k < p->truth_count[event]; k++) {
    const pblock *b = &p->truth[event][k];
    t.reserved += b->size;
    if (b->state == HR_BLOCK_ALLOCATED) t.live += b->requested, t.count++;
    if (b->state == HR_BLOCK_PENDING_FREE) t.pending++;
  }
  return t;
}

typedef struct checking {
  const process *p;
  int first;
  uint64_t peak, peak_event, seen;
} checking;

static void check_level(void *context, const hri_level *level) {
  checking *c = context;
  truth_sums t = sums_of(c->p, c->first + (int)level->event);
  assert_int_equal(level->event, c->seen++);
  assert_int_equal(level->live_bytes, t.live);
  assert_int_equal(level->live_count, t.count);
  assert_int_equal(level->reserved_bytes, t.reserved);
  if (t.live > c->peak) c->peak = t.live, c->peak_event = level->event;
}

/* True when every block came out exactly; sizes may differ where the state says that it guessed. */
static bool check_state(const process *p, int event, const hri_state *state, const hri_lives *l) {
  const pblock *truth = p->truth[event];
  uint64_t reserved = 0, found = 0;
  int n = 0;
  bool exact = (int)state->block_count == p->truth_count[event];
  assert_int_equal(state->unplaced_count, 0);
  assert_int_equal(state->dropped_count, 0);
  for (uint64_t g = 0; g < state->segment_count; g++) {
    const hr_segment *s = &state->segments[g];
    uint64_t at = s->address;
    reserved += s->total_size;
    for (uint64_t k = s->first_block; k < s->first_block + s->block_count; k++) {
      const hr_block *b = &state->blocks[k];
      assert_int_equal(b->address, at);
      at += b->size;
      if (b->state == HR_BLOCK_INACTIVE) continue;
      while (n < p->truth_count[event] && truth[n].state == HR_BLOCK_INACTIVE) n++;
      assert_true(n < p->truth_count[event]);
      assert_int_equal(b->address, truth[n].addr);
      assert_int_equal(b->requested_size, truth[n].requested);
      assert_int_equal(b->state, truth[n].state);
      assert_int_equal(l->lives[state->block_lives[k]].addr, b->address);
      if (b->size != truth[n].size) exact = false;
      n++;
      found++;
    }
    assert_int_equal(at, s->address + s->total_size);
  }
  assert_int_equal(reserved, sums_of(p, event).reserved);
  assert_int_equal(found, sums_of(p, event).count + sums_of(p, event).pending);
  if (state->guessed_count == 0) assert_true(exact || p->truth_count[event] != (int)state->block_count);
  return exact;
}

static void truncated_traces_give_the_truth(void **unused) {
  process *p = malloc(sizeof *p);
  uint64_t states = 0, exact = 0;
  (void)unused;
  for (uint64_t seed = 1; seed <= 60; seed++) {
    static const int cuts[] = {0, 1, 37, 300, 799, 800};
    int events = 800;
    run(p, seed, events);
    for (int c = 0; c < 6; c++) {
      int first = cuts[c] < p->event_count ? cuts[c] : p->event_count;
      hr_snapshot *s = snapshot_of(p, first);
      hri_lives *l;
      hr_error error;
      truth_sums before = {0};
      assert_int_equal(hri_lives_build(s, 0, &l, &error), HR_OK);
      if (first) before = sums_of(p, first - 1);
      assert_int_equal(l->odd_count, 0);
      assert_true(l->has_state || first == 0);
      assert_int_equal(l->start_live_bytes, before.live);
      assert_int_equal(l->start_reserved_bytes, before.reserved);
      assert_int_equal(l->began_empty, before.reserved == 0);
      {
        checking check = {p, first, before.live, HRI_NEVER, 0};
        hri_lives_walk(l, check_level, &check);
        assert_int_equal(check.seen, p->event_count - first);
        assert_int_equal(l->peak_live_bytes, check.peak);
        assert_int_equal(l->peak_event, check.peak_event);
      }
      for (int k = first - 1; k < p->event_count; k += 1 + (int)random_below(9)) {
        hri_state state;
        uint64_t event = k < first ? HRI_NEVER : (uint64_t)(k - first);
        if (k < 0) continue;
        assert_int_equal(hri_state_at(l, event, &state, &error), HR_OK);
        exact += check_state(p, k, &state, l);
        states++;
        hri_state_deinit(&state);
      }
      hri_lives_destroy(l);
      hr_snapshot_destroy(s);
    }
    forget(p);
  }
  free(p);
  print_message("%llu of %llu states exact to the block\n", (unsigned long long)exact, (unsigned long long)states);
  assert_true(exact * 100 >= states * 20);
}

/* The last state comes back block by block, whatever the trace. */
static void the_last_state_is_the_snapshots(void **unused) {
  process *p = malloc(sizeof *p);
  (void)unused;
  for (uint64_t seed = 100; seed < 130; seed++) {
    hr_snapshot *s;
    hri_lives *l;
    hri_state state;
    hr_error error;
    run(p, seed, 500);
    s = snapshot_of(p, 100);
    assert_int_equal(hri_lives_build(s, 0, &l, &error), HR_OK);
    assert_int_equal(hri_state_at(l, l->event_count - 1, &state, &error), HR_OK);
    assert_int_equal(state.guessed_count, 0);
    assert_int_equal(state.block_count, s->block_count);
    for (uint64_t k = 0; k < s->block_count; k++) assert_memory_equal(&state.blocks[k], &s->blocks[k], 24);
    hri_state_deinit(&state);
    hri_lives_destroy(l);
    hr_snapshot_destroy(s);
    forget(p);
  }
  free(p);
}

/* ---- contradictions ---- */

static hr_snapshot *of_events(const hr_trace_event *events, size_t count) {
  hri_snapshot_builder b;
  hr_snapshot *s;
  hr_error error;
  assert_int_equal(hri_snapshot_build(&b, &error), HR_OK);
  assert_true(hri_snapshot_add_trace(&b, 0));
  for (size_t k = 0; k < count; k++) assert_true(hri_snapshot_add_event(&b, &events[k]));
  assert_true(hri_snapshot_add_segment(&b, &(hr_segment){.address = 2 * MIB, .total_size = 2 * MIB}));
  assert_true(hri_snapshot_add_block(&b, &(hr_block){2 * MIB, 512, 100, 0, 0, HR_BLOCK_ALLOCATED}));
  assert_true(hri_snapshot_add_block(&b, &(hr_block){2 * MIB + 512, 2 * MIB - 512, 0, 0, 0, HR_BLOCK_INACTIVE}));
  assert_int_equal(hri_snapshot_build_end(&b, &s, &error), HR_OK);
  return s;
}

static void contradictions_are_counted(void **unused) {
  const hr_trace_event events[] = {
      {.action = HR_TRACE_ALLOC, .addr = 2 * MIB, .size = 90},
      {.action = HR_TRACE_ALLOC, .addr = 2 * MIB, .size = 100},  /* twice: the first ended */
      {.action = HR_TRACE_ALLOC, .addr = 3 * MIB, .size = 1000}, /* the last state does not hold it */
      {.action = HR_TRACE_ALLOC, .addr = 9, .size = UINT64_MAX}, /* absurd */
      {.action = HR_TRACE_FREE_REQUESTED,
       .addr = 40 * MIB,
       .size = 600}, /* never completed, and not in the last state */
      {.action = HR_TRACE_FREE_COMPLETED, .addr = 50 * MIB, .size = 700}, /* from before, in no segment */
      {.action = HR_TRACE_SNAPSHOT},
  };
  hr_snapshot *s = of_events(events, 7);
  hri_lives *l;
  hri_state state;
  hr_error error;
  (void)unused;
  assert_int_equal(hri_lives_build(s, 0, &l, &error), HR_OK);
  assert_int_equal(l->odd_count, 4);
  assert_int_equal(l->before_count, 2);
  assert_int_equal(l->count, 5);
  assert_int_equal(l->start_live_bytes, 600); /* what only waits to be freed is not live */
  assert_true(l->lives[1].pending_before);
  assert_int_equal(l->lives[2].end, 1);
  assert_int_equal(l->lives[4].end, 6);
  assert_int_equal(hri_state_at(l, 2, &state, &error), HR_OK);
  assert_int_equal(state.unplaced_count, 2);
  assert_int_equal(state.segment_count, 3);
  hri_state_deinit(&state);
  hri_lives_destroy(l);
  hr_snapshot_destroy(s);
}

static void random_events_never_break_it(void **unused) {
  (void)unused;
  random_state = 77;
  for (int round = 0; round < 300; round++) {
    hr_trace_event events[60] = {{0}};
    hr_snapshot *s;
    hri_lives *l;
    hri_state state;
    hr_error error;
    for (int k = 0; k < 60; k++) {
      events[k].action = (uint8_t)random_below(HR_TRACE_ACTION_COUNT);
      events[k].addr = random_below(20) ? random_below(16) * MIB / 2 : UINT64_MAX - random_below(4096);
      events[k].size = random_below(20) ? random_below(6 * MIB) : UINT64_MAX / (1 + random_below(9));
    }
    s = of_events(events, 60);
    assert_int_equal(hri_lives_build(s, 0, &l, &error), HR_OK);
    for (uint64_t at = 0; at <= 60; at++) {
      assert_int_equal(hri_state_at(l, at ? at - 1 : HRI_NEVER, &state, &error), HR_OK);
      for (uint64_t g = 0; g < state.segment_count; g++) {
        uint64_t end = state.segments[g].address;
        for (uint64_t k = 0; k < state.segments[g].block_count; k++) {
          assert_int_equal(state.blocks[state.segments[g].first_block + k].address, end);
          end += state.blocks[state.segments[g].first_block + k].size;
        }
        assert_int_equal(end, state.segments[g].address + state.segments[g].total_size);
        if (g + 1 < state.segment_count) assert_true(end <= state.segments[g + 1].address);
      }
      hri_state_deinit(&state);
    }
    hri_lives_destroy(l);
    hr_snapshot_destroy(s);
  }
}

static void refused_memory_is_an_error(void **unused) {
  process *p = malloc(sizeof *p);
  hr_snapshot *s;
  uint64_t held;
  (void)unused;
  run(p, 5, 300);
  s = snapshot_of(p, 20);
  held = hri_mem_live_bytes();
  for (uint64_t nth = 1; nth < 200; nth++) {
    hri_lives *l = NULL;
    hri_state state;
    hr_error error;
    hr_status status;
    hri_mem_fail_after(nth);
    status = hri_lives_build(s, 0, &l, &error);
    if (status == HR_OK) status = hri_state_at(l, 10, &state, &error);
    hri_mem_fail_after(0);
    if (status == HR_OK) {
      hri_state_deinit(&state);
      hri_lives_destroy(l);
      assert_true(nth > 5);
      break;
    }
    assert_int_equal(status, HR_ERROR_MEMORY);
    hri_lives_destroy(l);
    assert_int_equal(hri_mem_live_bytes(), held);
  }
  assert_int_equal(hri_mem_live_bytes(), held);
  hr_snapshot_destroy(s);
  forget(p);
  free(p);
}

static void requests_are_rounded_as_the_settings_say(void **unused) {
  hr_snapshot_settings plain = {0}, four = {0};
  (void)unused;
  for (int k = 0; k < 16; k++) four.roundup_power2_divisions[k] = 4;
  assert_int_equal(hri_round_request(&plain, 1), 512);
  assert_int_equal(hri_round_request(&plain, 1200), 1536);
  assert_int_equal(hri_round_request(&four, 1200), 1536); /* up to 512 * 4 the setting has no effect */
  assert_int_equal(hri_round_request(&four, 5 * MIB + 1), 6 * MIB);
  assert_int_equal(hri_round_request(&four, 4 * MIB), 4 * MIB);
  assert_int_equal(hri_round_request(&four, 4 * MIB + 1), 5 * MIB);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(truncated_traces_give_the_truth), cmocka_unit_test(the_last_state_is_the_snapshots),
      cmocka_unit_test(contradictions_are_counted),      cmocka_unit_test(random_events_never_break_it),
      cmocka_unit_test(refused_memory_is_an_error),      cmocka_unit_test(requests_are_rounded_as_the_settings_say),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
