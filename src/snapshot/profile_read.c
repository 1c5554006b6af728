/* What PyTorch's profiler leaves about memory, as a snapshot: a Chrome trace (export_chrome_trace) with its "[memory]"
 * instants, and the raw memory timeline (export_memory_timeline to .raw.json.gz).
 *
 * In a Chrome trace an event's stack is not written beside it: it is what its thread was doing then, so the slices of the
 * thread that cover the instant are its frames, innermost first. That is a sweep over both in the order of time. Events
 * come from several threads, in no order; per device they are put in the order of their times, and of "Ev Idx" within
 * one. What was live before the profile began and is not freed in it has no event, but "Total Allocated" counts it: the
 * rest that the first event leaves becomes one allocation of its own, so that all totals are the profiler's.
 *
 * The raw timeline names no tensor, only (time, action, bytes, category): a block that goes is any of its size and
 * category, for which totals by category, at every instant, do not care. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/reader.h"

enum { MOST_FRAMES = 256, CPU = -1, PAGE = 4096 };

typedef struct slice {
  double start, end;
  uint64_t thread, order;
  uint32_t name;
} slice;

typedef struct row {
  double time;
  uint64_t thread, order, addr, total; /* total: allocated behind it; UINT64_MAX: not stated */
  int64_t bytes;                       /* below 0: freed */
  int32_t device;
  uint32_t stack;
} row;

typedef struct span {
  double start, end;
  uint32_t name;
} span;

typedef struct reader {
  hri_snapshot_decoder *d;
  hri_json_scan *scan;
  HRI_ARRAY(slice) slices;
  HRI_ARRAY(row) rows;
  HRI_ARRAY(span) marks; /* the program's own: "ProfilerStep#3" */
  HRI_ARRAY(uint32_t) open;
  double base_us; /* of all times, since the epoch */
  uint64_t event_count;
} reader;

static hr_status no_memory(const reader *r) { return hri_snapshot_decoder_fail_memory(r->d); }

/* ---- fields ---- */

typedef struct number {
  bool known, negative;
  uint64_t bits; /* of an integer */
  double real;
} number;

/* A number, else the value is passed over. */
static hr_status take_number(reader *r, number *n) {
  const char c = hri_json_scan_peek(r->scan);
  const hri_json_scan start = *r->scan;
  bool integer = true;
  int64_t value = 0;
  if (c != '-' && (c < '0' || c > '9')) return hri_json_scan_skip(r->scan, r->d->error);
  n->known = true;
  if (c != '-' && hri_json_scan_u64(r->scan, &n->bits, NULL) == HR_OK) { /* addresses are above INT64_MAX at times */
    n->real = (double)n->bits;
    return HR_OK;
  }
  *r->scan = start;
  HRI_TRY(hri_json_scan_number(r->scan, &integer, &value, &n->real, r->d->error));
  n->known = integer || fabs(n->real) < 0x1p63;
  n->bits = integer ? (uint64_t)value : (uint64_t)(int64_t)(n->known ? n->real : 0);
  n->negative = integer ? value < 0 : n->real < 0;
  if (integer) n->real = (double)value;
  return HR_OK;
}

/* A string, else "" and the value is passed over. */
static hr_status take_text(reader *r, char **text) {
  static char none[1];
  *text = none;
  if (hri_json_scan_peek(r->scan) != '"') return hri_json_scan_skip(r->scan, r->d->error);
  return hri_json_scan_string(r->scan, text, r->d->error);
}

typedef struct event {
  char *name, *phase, *kind;
  number ts, dur, pid, tid, bytes, addr, total, device, device_type, order;
} event;

static number *argument_of(event *e, const char *key) {
  const struct {
    const char *key;
    number *to;
  } all[] = {{"Bytes", &e->bytes},
             {"Addr", &e->addr},
             {"Total Allocated", &e->total},
             {"Device Id", &e->device},
             {"Device Type", &e->device_type},
             {"Ev Idx", &e->order}};
  for (size_t k = 0; k < sizeof all / sizeof *all; k++)
    if (strcmp(key, all[k].key) == 0) return all[k].to;
  return NULL;
}

static hr_status read_arguments(reader *r, event *e) {
  char *key;
  if (hri_json_scan_peek(r->scan) != '{') return hri_json_scan_skip(r->scan, r->d->error);
  HRI_TRY(hri_json_scan_object(r->scan, r->d->error));
  for (;;) {
    number *to;
    HRI_TRY(hri_json_scan_key(r->scan, &key, r->d->error));
    if (!key) return HR_OK;
    to = argument_of(e, key);
    HRI_TRY(to ? take_number(r, to) : hri_json_scan_skip(r->scan, r->d->error));
  }
}

static hr_status read_field(reader *r, event *e, const char *key) {
  if (strcmp(key, "name") == 0) return take_text(r, &e->name);
  if (strcmp(key, "ph") == 0) return take_text(r, &e->phase);
  if (strcmp(key, "cat") == 0) return take_text(r, &e->kind);
  if (strcmp(key, "ts") == 0) return take_number(r, &e->ts);
  if (strcmp(key, "dur") == 0) return take_number(r, &e->dur);
  if (strcmp(key, "pid") == 0) return take_number(r, &e->pid);
  if (strcmp(key, "tid") == 0) return take_number(r, &e->tid);
  if (strcmp(key, "args") == 0) return read_arguments(r, e);
  return hri_json_scan_skip(r->scan, r->d->error);
}

static uint64_t thread_of(const event *e) { return e->pid.bits << 32 ^ e->tid.bits; }

/* ---- one event ---- */

static hr_status take_memory(reader *r, const event *e) {
  row made = {.time = e->ts.real,
              .thread = thread_of(e),
              .order = e->order.known ? e->order.bits : r->event_count,
              .addr = e->addr.bits,
              .total = e->total.known && !e->total.negative ? e->total.bits : UINT64_MAX,
              .bytes = (int64_t)e->bytes.bits,
              .device = e->device_type.known && e->device_type.bits == 0 ? CPU : (int32_t)e->device.bits};
  if (!e->ts.known || !e->bytes.known || made.bytes == 0 || made.bytes == INT64_MIN) return HR_OK;
  if (e->device.negative || e->device.bits > INT16_MAX) made.device = CPU;
  if (!e->addr.known) {
    hr_status code = hri_json_scan_fail(r->scan, r->d->error, "a [memory] event without \"Addr\"");
    return hri_hint(r->d->error, code,
                    "PyTorch before 1.11 wrote no addresses, and nothing tells what was freed: record "
                    "with a newer one, or take a snapshot");
  }
  return hri_array_push(&r->rows, made) ? HR_OK : no_memory(r);
}

/* What runs on the host: kernels and copies of the device have threads of their own, calls of the driver are no place in
 * a program. */
static bool is_place(const event *e) {
  return e->ts.known && e->dur.known && e->dur.real >= 0 && strncmp(e->kind, "cuda_", 5) != 0 &&
         strncmp(e->kind, "gpu_", 4) != 0 && strcmp(e->kind, "kernel") != 0 && strcmp(e->kind, "Trace") != 0;
}

static hr_status take_slice(reader *r, const event *e) {
  const slice made = {.start = e->ts.real,
                      .end = e->ts.real + e->dur.real,
                      .thread = thread_of(e),
                      .order = r->event_count,
                      .name = hri_snapshot_add_string(&r->d->builder, e->name, strlen(e->name))};
  if (r->d->builder.failed || !hri_array_push(&r->slices, made)) return no_memory(r);
  if (strcmp(e->kind, "user_annotation") == 0 && !hri_array_push(&r->marks, ((span){made.start, made.end, made.name})))
    return no_memory(r);
  return HR_OK;
}

/* That a request was refused, and no more: neither what the device had left nor what was reserved in which pieces. An
 * event of the allocator would claim both; a mark does not. */
static hr_status take_failure(reader *r, const event *e) {
  const uint32_t name = hri_snapshot_add_string(&r->d->builder, e->name, strlen(e->name));
  if (r->d->builder.failed || !hri_array_push(&r->marks, ((span){e->ts.real, e->ts.real, name}))) return no_memory(r);
  return HR_OK;
}

static hr_status read_event(reader *r) {
  static char none[1];
  event e = {.name = none, .phase = none, .kind = none};
  char *key;
  HRI_TRY(hri_json_scan_object(r->scan, r->d->error));
  for (;;) {
    HRI_TRY(hri_json_scan_key(r->scan, &key, r->d->error));
    if (!key) break;
    HRI_TRY(read_field(r, &e, key));
  }
  r->event_count++;
  if (strcmp(e.name, "[memory]") == 0) return take_memory(r, &e);
  if (strcmp(e.name, "[OutOfMemory]") == 0 && e.ts.known) return take_failure(r, &e);
  return strcmp(e.phase, "X") == 0 && is_place(&e) ? take_slice(r, &e) : HR_OK;
}

static hr_status read_events(reader *r) {
  bool more;
  HRI_TRY(hri_json_scan_array(r->scan, r->d->error));
  for (;;) {
    HRI_TRY(hri_json_scan_element(r->scan, &more, r->d->error));
    if (!more) return HR_OK;
    HRI_TRY(hri_json_scan_peek(r->scan) == '{' ? read_event(r) : hri_json_scan_skip(r->scan, r->d->error));
  }
}

/* ---- stacks ---- */

#define ORDER(a, b) (((a) > (b)) - ((a) < (b)))

static int slice_order(const void *a, const void *b) {
  const slice *x = a, *y = b;
  if (x->thread != y->thread) return ORDER(x->thread, y->thread);
  if (x->start != y->start) return ORDER(x->start, y->start);
  if (x->end != y->end) return ORDER(y->end, x->end); /* the outer one first */
  return ORDER(x->order, y->order);
}

static int thread_order(const void *a, const void *b) {
  const row *x = a, *y = b;
  if (x->thread != y->thread) return ORDER(x->thread, y->thread);
  return ORDER(x->time, y->time);
}

static int time_order(const void *a, const void *b) {
  const row *x = a, *y = b;
  if (x->device != y->device) return ORDER((uint32_t)x->device, (uint32_t)y->device); /* the CPU last */
  if (x->time != y->time) return ORDER(x->time, y->time);
  return ORDER(x->order, y->order);
}

static int address_order(const void *a, const void *b) {
  const row *x = a, *y = b;
  if (x->device != y->device) return ORDER((uint32_t)x->device, (uint32_t)y->device);
  return x->addr != y->addr ? ORDER(x->addr, y->addr) : time_order(a, b);
}

/* Slices that ended lie on below one that goes on: they are taken out before they are more than half of the list, so that
 * looking at it stays in proportion to what is open. */
static void drop_ended(reader *r, double time, size_t *kept) {
  size_t count = 0;
  if (r->open.count <= 2 * *kept + MOST_FRAMES) return;
  for (size_t k = 0; k < r->open.count; k++)
    if (r->slices.items[r->open.items[k]].end >= time) r->open.items[count++] = r->open.items[k];
  *kept = r->open.count = count;
}

/* The stack of all slices that are open at `time`. */
static hr_status stack_now(reader *r, double time, uint32_t *stack) {
  hri_snapshot_builder *b = &r->d->builder;
  const uint32_t file = hri_snapshot_add_string(b, "none", 4); /* as the profiler's own snapshots say */
  uint32_t frames[MOST_FRAMES], count = 0;
  for (size_t k = r->open.count; k-- > 0 && count < MOST_FRAMES;) {
    const slice *s = &r->slices.items[r->open.items[k]];
    if (s->end >= time) frames[count++] = hri_snapshot_add_frame(b, s->name, file, 0);
  }
  *stack = hri_snapshot_add_stack(b, frames, count);
  return b->failed ? no_memory(r) : HR_OK;
}

static hr_status find_stacks(reader *r) {
  size_t next = 0, kept = 0;
  if (r->slices.count > UINT32_MAX) return no_memory(r);
  if (r->slices.count) qsort(r->slices.items, r->slices.count, sizeof *r->slices.items, slice_order);
  qsort(r->rows.items, r->rows.count, sizeof *r->rows.items, thread_order);
  for (size_t k = 0; k < r->rows.count; k++) {
    row *m = &r->rows.items[k];
    if (k == 0 || r->rows.items[k - 1].thread != m->thread) r->open.count = kept = 0;
    for (; next < r->slices.count; next++) {
      const slice *s = &r->slices.items[next];
      if (s->thread > m->thread || (s->thread == m->thread && s->start > m->time)) break;
      if (s->thread < m->thread) continue;
      while (r->open.count && r->slices.items[r->open.items[r->open.count - 1]].end < s->start) r->open.count--;
      if (!hri_array_push(&r->open, (uint32_t)next)) return no_memory(r);
    }
    while (r->open.count && r->slices.items[r->open.items[r->open.count - 1]].end < m->time) r->open.count--;
    drop_ended(r, m->time, &kept);
    HRI_TRY(stack_now(r, m->time, &m->stack));
  }
  return HR_OK;
}

/* ---- the snapshot ---- */

static int64_t time_us(const reader *r, double time) {
  const double us = time + r->base_us;
  return us > -0x1p62 && us < 0x1p62 ? (int64_t)floor(us + 0.5) : 0; /* not so for NaN: no time */
}

static hr_status add_event(reader *r, const row *m, hr_trace_action action, uint16_t category) {
  const hr_trace_event made = {.addr = m->addr,
                               .size = m->bytes < 0 ? (uint64_t)-m->bytes : (uint64_t)m->bytes,
                               .time_us = time_us(r, m->time),
                               .stack = m->stack,
                               .category = category,
                               .action = (uint8_t)action,
                               .flags = (uint8_t)(isnan(m->time) ? 0 : HR_EVENT_HAS_TIME)};
  return hri_snapshot_add_event(&r->d->builder, &made) ? HR_OK : no_memory(r);
}

typedef struct before {
  uint64_t freed, end;
} before;

/* Frees whose allocation is not in the trace: what is known of what was live before; and where all addresses end. The
 * rows are one device's, in the order of addresses. */
static before what_was_before(const row *rows, size_t count) {
  before b = {0};
  for (size_t k = 0; k < count; k++) {
    const row *m = &rows[k];
    const uint64_t size = m->bytes < 0 ? (uint64_t)-m->bytes : (uint64_t)m->bytes;
    if (m->bytes < 0 && (k == 0 || m[-1].addr != m->addr)) b.freed += size;
    if (m->addr < UINT64_MAX - size && m->addr + size > b.end) b.end = m->addr + size;
  }
  return b;
}

/* Of each device, what is left of the first event's total: behind all addresses, where it meets nothing. */
static hr_status add_rest(reader *r, const row *first, uint64_t freed, uint64_t end) {
  static const char name[] = "(live before the profile began, and at its end)";
  hri_snapshot_builder *b = &r->d->builder;
  const uint64_t own = first->bytes > 0 ? (uint64_t)first->bytes : 0;
  row rest = {.time = first->time, .device = first->device, .addr = (end / PAGE + 2) * PAGE};
  uint64_t bytes = first->total;
  uint32_t frame;
  if (first->bytes < 0) bytes += (uint64_t)-first->bytes;
  if (first->total == UINT64_MAX || bytes < own || bytes - own <= freed) return HR_OK;
  bytes -= own + freed;
  if (bytes > INT64_MAX || end > UINT64_MAX / 2 || bytes > UINT64_MAX / 2 - 2 * PAGE) return HR_OK;
  rest.bytes = (int64_t)bytes;
  frame = hri_snapshot_add_frame(b, hri_snapshot_add_string(b, name, sizeof name - 1),
                                 hri_snapshot_add_string(b, "none", 4), 0);
  rest.stack = hri_snapshot_add_stack(b, &frame, 1);
  return b->failed ? no_memory(r) : add_event(r, &rest, HR_TRACE_ALLOC, 0);
}

/* The rows of one device, in any order. */
static hr_status add_device(reader *r, row *rows, size_t count) {
  before b;
  qsort(rows, count, sizeof *rows, address_order);
  b = what_was_before(rows, count);
  qsort(rows, count, sizeof *rows, time_order);
  if (!hri_snapshot_add_trace(&r->d->builder, rows->device)) return no_memory(r);
  HRI_TRY(add_rest(r, rows, b.freed, b.end));
  for (size_t k = 0; k < count; k++) {
    if (rows[k].bytes > 0) {
      HRI_TRY(add_event(r, &rows[k], HR_TRACE_ALLOC, 0));
      continue;
    }
    HRI_TRY(add_event(r, &rows[k], HR_TRACE_FREE_REQUESTED, 0));
    HRI_TRY(add_event(r, &rows[k], HR_TRACE_FREE_COMPLETED, 0));
  }
  return HR_OK;
}

static hr_status add_devices(reader *r) {
  qsort(r->rows.items, r->rows.count, sizeof *r->rows.items, time_order);
  for (size_t k = 0, count; k < r->rows.count; k += count) {
    row *rows = r->rows.items + k;
    for (count = 1; k + count < r->rows.count && rows[count].device == rows->device; count++) continue;
    HRI_TRY(add_device(r, rows, count));
  }
  return HR_OK;
}

static hr_status add_marks(reader *r) {
  for (size_t k = 0; k < r->marks.count; k++) {
    const span *m = &r->marks.items[k];
    hr_annotation a = {.time_us = time_us(r, m->start), .name = m->name, .device = CPU};
    if (!hri_snapshot_add_annotation(&r->d->builder, &a)) return no_memory(r);
    a.time_us = time_us(r, m->end);
    a.end = true;
    if (!hri_snapshot_add_annotation(&r->d->builder, &a)) return no_memory(r);
  }
  return HR_OK;
}

static hr_status no_events(const reader *r) {
  hr_status code =
      hri_fail(r->d->error, HR_ERROR_INPUT,
               "%s: a trace of a profiler without memory events (no \"[memory]\" with a time and bytes in %llu events)",
               r->d->name, (unsigned long long)r->event_count);
  return hri_hint(
      r->d->error, code,
      "record with torch.profiler.profile(profile_memory=True, with_stack=True), or take a memory snapshot: "
      "torch.cuda.memory._record_memory_history(), later _dump_snapshot(\"snapshot.pickle\")");
}

static hr_status finish(reader *r) {
  if (r->rows.count == 0) return no_events(r);
  HRI_TRY(find_stacks(r));
  HRI_TRY(add_devices(r));
  return add_marks(r);
}

/* ---- the raw timeline ---- */

enum { PREEXISTING = 1, CREATE, INCREMENT_VERSION, DESTROY, CATEGORIES = 8 };
/* In the order of the profiler's indexes; the last is "none". */
static const char *const category_names[CATEGORIES] = {"parameter",  "optimizer_state", "input",           "temporary",
                                                       "activation", "gradient",        "autograd_detail", ""};

/* Live blocks of one size and category: the last that came goes first. */
typedef struct raw_block {
  uint64_t size, addr, next; /* next: index + 1 of the one below */
  uint32_t category;
} raw_block;

typedef struct raw {
  reader *r;
  HRI_ARRAY(raw_block) blocks;
  HRI_ARRAY(uint64_t) heads; /* index + 1 of a block, by hash of size and category; a power of two */
  uint64_t next_address;
  uint16_t categories[CATEGORIES];
} raw;

static uint64_t *head_of(raw *w, uint64_t size, uint64_t category) {
  uint64_t at = (size * CATEGORIES + category) * 0x9e3779b97f4a7c15u >> 32;
  const uint64_t mask = w->heads.count - 1;
  for (at &= mask;; at = (at + 1) & mask) {
    const raw_block *b = w->heads.items[at] ? &w->blocks.items[w->heads.items[at] - 1] : NULL;
    if (!b || (b->size == size && b->category == category)) return &w->heads.items[at];
  }
}

/* An empty chain keeps its slot by a block of address 0. */
static hr_status raw_take(raw *w, double time, uint64_t size, uint32_t category) {
  row m = {.time = time, .addr = w->next_address, .bytes = (int64_t)size};
  uint64_t *head;
  raw_block made = {.size = size, .addr = m.addr, .category = category};
  if (size > UINT64_MAX / 4 - w->next_address)
    return hri_json_scan_fail(w->r->scan, w->r->d->error, "more bytes than can be");
  w->next_address += (size / PAGE + 2) * PAGE;
  if (2 * (w->blocks.count + 1) > w->heads.count) { /* grown by making all anew: chains keep their order */
    const size_t more = w->heads.count ? 2 * w->heads.count : 1024;
    HRI_ARRAY(uint64_t) old = {w->heads.items, w->heads.count, w->heads.capacity};
    w->heads.items = hri_alloc_zero(more, sizeof *w->heads.items);
    if (!w->heads.items) return w->heads.items = old.items, no_memory(w->r);
    w->heads.count = w->heads.capacity = more;
    for (size_t k = 0; k < old.count; k++)
      if (old.items[k]) {
        const raw_block *b = &w->blocks.items[old.items[k] - 1];
        *head_of(w, b->size, b->category) = old.items[k];
      }
    hri_free(old.items);
  }
  head = head_of(w, size, category);
  made.next = *head;
  if (!hri_array_push(&w->blocks, made)) return no_memory(w->r);
  *head = w->blocks.count;
  return add_event(w->r, &m, HR_TRACE_ALLOC, w->categories[category]);
}

/* False when no such block is live: it was before the timeline began. */
static hr_status raw_drop(raw *w, double time, uint64_t size, uint32_t category) {
  uint64_t *head = w->heads.count ? head_of(w, size, category) : NULL;
  row m = {.time = time, .bytes = (int64_t)size};
  raw_block *top;
  if (!head || !*head || w->blocks.items[*head - 1].addr == 0) return w->r->d->builder.snapshot->unknown_count++, HR_OK;
  top = &w->blocks.items[*head - 1];
  m.addr = top->addr;
  if (top->next) *head = top->next;
  else top->addr = 0;
  HRI_TRY(add_event(w->r, &m, HR_TRACE_FREE_REQUESTED, 0));
  return add_event(w->r, &m, HR_TRACE_FREE_COMPLETED, 0);
}

/* [time in ns, action, bytes, category] */
static hr_status raw_row(raw *w) {
  number n[4] = {{0}};
  uint32_t count = 0;
  uint64_t us;
  double time;
  bool more;
  HRI_TRY(hri_json_scan_array(w->r->scan, w->r->d->error));
  for (;; count++) {
    HRI_TRY(hri_json_scan_element(w->r->scan, &more, w->r->d->error));
    if (!more) break;
    HRI_TRY(count < 4 ? take_number(w->r, &n[count]) : hri_json_scan_skip(w->r->scan, w->r->d->error));
  }
  if (count != 4 || !n[0].known || !n[1].known || !n[2].known || !n[3].known || n[1].bits < PREEXISTING ||
      n[1].bits > DESTROY || n[3].bits >= CATEGORIES)
    return hri_json_scan_fail(w->r->scan, w->r->d->error,
                              "a row of a memory timeline is [time, action 1 to 4, bytes, category 0 to 7]");
  if (n[2].bits == 0) return HR_OK;
  us = n[0].bits / 1000;
  time = n[0].negative ? NAN : (double)us; /* -1: before the profile began */
  if (n[2].negative) return raw_drop(w, time, 0 - n[2].bits, (uint32_t)n[3].bits);
  return raw_take(w, time, n[2].bits, (uint32_t)n[3].bits);
}

static hr_status raw_rows(raw *w) {
  hri_snapshot_builder *b = &w->r->d->builder;
  bool more;
  for (uint32_t k = 0; k < CATEGORIES; k++)
    w->categories[k] =
        hri_snapshot_add_category(b, hri_snapshot_add_string(b, category_names[k], strlen(category_names[k])));
  if (b->failed || !hri_snapshot_add_trace(b, 0)) return no_memory(w->r);
  HRI_TRY(hri_json_scan_array(w->r->scan, w->r->d->error));
  for (;;) {
    HRI_TRY(hri_json_scan_element(w->r->scan, &more, w->r->d->error));
    if (!more) break;
    HRI_TRY(raw_row(w));
  }
  b->snapshot->categories_stated = true;
  return HR_OK;
}

/* ---- which of them ---- */

static void begin(reader *r, hri_snapshot_decoder *d, hri_json_scan *scan) {
  *r = (reader){.d = d, .scan = scan};
  d->builder.snapshot->trace_count = 0; /* the decoder's own, for events that come one by one */
}

static void end(reader *r) {
  r->d->builder.snapshot->format = "pytorch-profiler";
  r->d->complete = true;
  hri_array_free(&r->slices);
  hri_array_free(&r->rows);
  hri_array_free(&r->marks);
  hri_array_free(&r->open);
}

/* What follows the events in the object that holds them. */
static hr_status read_rest(reader *r) {
  number base = {0};
  char *key;
  for (;;) {
    HRI_TRY(hri_json_scan_key(r->scan, &key, r->d->error));
    if (!key) return HR_OK;
    if (strcmp(key, "baseTimeNanoseconds") != 0) {
      HRI_TRY(hri_json_scan_skip(r->scan, r->d->error));
      continue;
    }
    HRI_TRY(take_number(r, &base));
    if (base.known) r->base_us = base.real / 1000;
  }
}

hr_status hri_read_chrome_trace(hri_snapshot_decoder *d, hri_json_scan *scan, bool in_object, double base_ns) {
  reader r;
  hr_status status;
  begin(&r, d, scan);
  r.base_us = base_ns / 1000;
  status = read_events(&r);
  if (status == HR_OK && in_object) status = read_rest(&r);
  if (status == HR_OK) status = finish(&r);
  end(&r);
  return status;
}

hr_status hri_read_raw_timeline(hri_snapshot_decoder *d, hri_json_scan *scan) {
  reader r;
  raw w = {.r = &r, .next_address = PAGE};
  hr_status status;
  begin(&r, d, scan);
  status = raw_rows(&w);
  hri_array_free(&w.blocks);
  hri_array_free(&w.heads);
  end(&r);
  return status;
}
