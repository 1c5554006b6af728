/* Chrome's trace format, the kind that PyTorch's profiler writes: a [memory] instant per allocation and free with the
 * totals then, and counters. Each category has a counter of its own, so that an event writes only what it changed; one
 * counter of all would repeat every category with every event. */
#include <string.h>

#include "base/json.h"
#include "inspect/export.h"

typedef struct chrome {
  hri_export *e;
  uint64_t *category_bytes;       /* live now */
  char **category_names;          /* as JSON strings, quoted */
  uint64_t next_life, next_freed; /* of lives->lives, lives->freed: not yet reached */
  int64_t base_us, now_us;
  uint64_t live_bytes, reserved_bytes; /* before the event */
} chrome;

/* Times may be anything: the difference wraps. */
static int64_t since(int64_t time_us, int64_t base_us) { return (int64_t)((uint64_t)time_us - (uint64_t)base_us); }

static void begin_record(chrome *c) {
  hri_export_pass(c->e);
  hri_text_add_bytes(&c->e->text, ",\n", 2);
}

static void put_instant(chrome *c, const char *name, const hri_level *level, int64_t bytes, const uint64_t *addr) {
  hri_text *text = &c->e->text;
  begin_record(c);
  hri_text_add(
      text,
      "{\"ph\":\"i\",\"s\":\"t\",\"cat\":\"cpu_instant_event\",\"name\":\"%s\",\"pid\":0,\"tid\":0,\"ts\":%lld,\"args\":{"
      "\"Total Reserved\":%llu,\"Total Allocated\":%llu,\"Bytes\":%lld,",
      name, (long long)c->now_us, (unsigned long long)level->reserved_bytes, (unsigned long long)level->live_bytes,
      (long long)bytes);
  if (addr) hri_text_add(text, "\"Addr\":%llu,", (unsigned long long)*addr);
  hri_text_add(text, "\"Device Id\":%d,\"Device Type\":%d,\"Ev Idx\":%llu}}", (int)c->e->lives->device,
               c->e->lives->device >= 0, (unsigned long long)level->event);
}

static void put_category(chrome *c, uint16_t category) {
  if (!hri_export_has_categories(c->e)) return;
  begin_record(c);
  hri_text_add(
      &c->e->text,
      "{\"ph\":\"C\",\"cat\":\"memory\",\"name\":%s,\"pid\":0,\"tid\":0,\"ts\":%lld,\"args\":{\"bytes\":%llu}}",
      c->category_names[category], (long long)c->now_us, (unsigned long long)c->category_bytes[category]);
}

static void put_levels(chrome *c, uint64_t live_bytes, uint64_t reserved_bytes) {
  begin_record(c);
  hri_text_add(
      &c->e->text,
      "{\"ph\":\"C\",\"cat\":\"memory\",\"name\":\"memory\",\"pid\":0,\"tid\":0,\"ts\":%lld,\"args\":{\"allocated\":%llu,\"reserved\":%llu}}",
      (long long)c->now_us, (unsigned long long)live_bytes, (unsigned long long)reserved_bytes);
}

/* The lives that begin with this event, or whose free it requests, of which there is at most one each but for the last event. */
static void put_changes(chrome *c, const hri_level *level) {
  const hri_lives *lives = c->e->lives;
  for (; c->next_freed < lives->freed_count && lives->lives[lives->freed[c->next_freed]].request == level->event;
       c->next_freed++) {
    const hri_life *life = &lives->lives[lives->freed[c->next_freed]];
    uint16_t category = hri_export_category(c->e, lives->freed[c->next_freed]);
    put_instant(c, "[memory]", level, -(int64_t)life->size, &life->addr);
    c->category_bytes[category] -= life->size;
    put_category(c, category);
  }
  for (; c->next_life < lives->count && lives->lives[c->next_life].alloc == level->event; c->next_life++) {
    const hri_life *life = &lives->lives[c->next_life];
    uint16_t category = hri_export_category(c->e, c->next_life);
    put_instant(c, "[memory]", level, (int64_t)life->size, &life->addr);
    c->category_bytes[category] += life->size;
    put_category(c, category);
  }
}

static void put_event(void *context, const hri_level *level) {
  chrome *c = context;
  const hr_trace_event *event = &c->e->lives->events[level->event];
  if (c->e->sink->status != HR_OK) return;
  if (c->base_us == INT64_MIN) c->now_us = (int64_t)level->event; /* no event has a time: count them */
  else if (event->flags & HR_EVENT_HAS_TIME) c->now_us = since(event->time_us, c->base_us);
  put_changes(c, level);
  if (event->action == HR_TRACE_OOM) put_instant(c, "[OutOfMemory]", level, (int64_t)event->size, NULL);
  if (level->live_bytes != c->live_bytes || level->reserved_bytes != c->reserved_bytes || level->event == 0)
    put_levels(c, level->live_bytes, level->reserved_bytes);
  c->live_bytes = level->live_bytes;
  c->reserved_bytes = level->reserved_bytes;
}

static void put_annotation(chrome *c, const hr_annotation *a) {
  hri_json_writer w = hri_json_writer_init(&c->e->text, 0);
  if (c->base_us == INT64_MIN) return; /* there is no time to place it at */
  begin_record(c);
  hri_json_begin_object(&w);
  hri_json_field_string(&w, "ph", "i");
  hri_json_field_string(&w, "s", "p");
  hri_json_field_string(&w, "cat", "user_annotation");
  hri_json_field_string(&w, "name", hr_snapshot_string(c->e->s, a->name));
  hri_json_field_u64(&w, "pid", 0);
  hri_json_field_u64(&w, "tid", 0);
  hri_json_field_i64(&w, "ts", since(a->time_us, c->base_us));
  hri_json_key(&w, "args");
  hri_json_begin_object(&w);
  hri_json_field_string(&w, "stage", a->end ? "END" : "START");
  hri_json_end_object(&w);
  hri_json_end_object(&w);
}

static void put_head(chrome *c) {
  char device[32];
  hri_text_add(
      &c->e->text,
      "{\"schemaVersion\":1,\"displayTimeUnit\":\"ms\",\"baseTimeNanoseconds\":%lld,\"deviceProperties\":[],\"traceEvents\":[\n",
      c->base_us == INT64_MIN ? 0LL : (long long)((uint64_t)c->base_us * 1000));
  hri_text_add(&c->e->text,
               "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":0,\"tid\":0,\"args\":{\"name\":\"memory of %s\"}}",
               hri_export_device(c->e, device));
  for (uint32_t k = 0; k < hri_export_category_count(c->e); k++)
    if (c->category_bytes[k]) put_category(c, (uint16_t)k);
}

static int64_t first_time(const hri_lives *lives) {
  for (uint64_t k = 0; k < lives->event_count; k++)
    if (lives->events[k].flags & HR_EVENT_HAS_TIME) return lives->events[k].time_us;
  return INT64_MIN;
}

static hr_status prepare(chrome *c) {
  const hri_lives *lives = c->e->lives;
  uint32_t count = hri_export_category_count(c->e);
  c->category_bytes = hri_alloc_zero(count, sizeof *c->category_bytes);
  c->category_names = hri_alloc_zero(count, sizeof *c->category_names);
  if (!c->category_bytes || !c->category_names) return hri_fail_memory(c->e->sink->error, count * 16ull, "categories");
  for (uint32_t k = 0; k < count; k++) {
    hri_text text = {0};
    hri_json_writer w = hri_json_writer_init(&text, 0);
    hri_json_put_string(&w, hri_export_category_name(c->e, (uint16_t)k));
    c->category_names[k] = text.chars;
    if (text.failed) return hri_fail_memory(c->e->sink->error, text.length, "a category's name");
  }
  for (; c->next_life < lives->before_count; c->next_life++)
    if (!lives->lives[c->next_life].pending_before)
      c->category_bytes[hri_export_category(c->e, c->next_life)] += lives->lives[c->next_life].size;
  c->base_us = first_time(lives);
  return HR_OK;
}

hr_status hri_export_chrome(hri_export *e) {
  chrome c = {.e = e};
  hr_status status = prepare(&c);
  if (status == HR_OK) {
    put_head(&c);
    hri_lives_walk(e->lives, put_event, &c);
    for (uint64_t k = 0; k < e->s->annotation_count; k++) put_annotation(&c, &e->s->annotations[k]);
    hri_text_add(&e->text, "\n]}\n");
  }
  for (uint32_t k = 0; k < hri_export_category_count(e) && c.category_names; k++) hri_free(c.category_names[k]);
  hri_free(c.category_names);
  hri_free(c.category_bytes);
  return status;
}
