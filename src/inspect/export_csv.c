/* Comma-separated values as RFC 4180 has them, but for line ends of one LF. */
#include <string.h>

#include "inspect/export.h"

static void add_quoted(hri_text *text, const char *value) {
  if (!strpbrk(value, ",\"\r\n")) {
    hri_text_add(text, "%s", value);
    return;
  }
  hri_text_add_bytes(text, "\"", 1);
  for (const char *at = value; *at; at++) {
    if (*at == '"') hri_text_add_bytes(text, "\"", 1);
    hri_text_add_bytes(text, at, 1);
  }
  hri_text_add_bytes(text, "\"", 1);
}

/* The stack's number tells equal stacks apart; of its frames only the innermost is given. */
static void add_stack(hri_export *e, uint32_t stack) {
  hri_text frame = {0};
  if (stack && e->s->stacks[stack].count) {
    hri_export_frame_text(e->s, e->s->stack_frames[e->s->stacks[stack].first], &frame);
    hri_text_add(&e->text, "%u,", (unsigned)stack);
    add_quoted(&e->text, hri_text_get(&frame));
    if (frame.failed) e->text.failed = true;
    hri_text_deinit(&frame);
  } else {
    hri_text_add_bytes(&e->text, ",", 1);
  }
}

/* The table, and with an inspection which life each event is about: 1 + its index; 0: none. */
typedef struct rows {
  hri_export *e;
  uint64_t *life;
} rows;

static void add_row(void *context, const hri_level *level) {
  const rows *r = context;
  hri_export *e = r->e;
  const hr_trace_event *event = &e->lives->events[level->event];
  const hr_pool *pool = &e->s->pools[event->pool];
  if (e->sink->status != HR_OK) return;
  hri_text_add(&e->text, "%llu,%s,%#llx,%llu,%#llx,", (unsigned long long)level->event,
               hr_trace_action_name((hr_trace_action)event->action), (unsigned long long)event->addr,
               (unsigned long long)event->size, (unsigned long long)event->stream);
  if (event->flags & HR_EVENT_HAS_TIME) hri_text_add(&e->text, "%lld", (long long)event->time_us);
  hri_text_add(&e->text, ",%llu:%llu,", (unsigned long long)pool->id[0], (unsigned long long)pool->id[1]);
  if (!r->life) add_quoted(&e->text, hr_snapshot_category(e->s, event->category));
  else if (r->life[level->event])
    add_quoted(&e->text, hri_export_category_name(e, hri_export_category(e, r->life[level->event] - 1)));
  hri_text_add(&e->text, ",%llu,%llu,", (unsigned long long)level->live_bytes,
               (unsigned long long)level->reserved_bytes);
  add_stack(e, event->stack);
  hri_text_add_bytes(&e->text, ",", 1);
  add_quoted(&e->text, hr_snapshot_string(e->s, event->note));
  hri_text_add_bytes(&e->text, "\n", 1);
  hri_export_pass(e);
}

static void mark_events(rows *r) {
  const hri_lives *l = r->e->lives;
  for (uint64_t k = 0; k < l->count; k++) {
    const hri_life *life = &l->lives[k];
    if (life->alloc != HRI_NEVER) r->life[life->alloc] = k + 1;
    if (life->request != HRI_NEVER) r->life[life->request] = k + 1;
    if (life->end != HRI_NEVER) r->life[life->end] = k + 1;
  }
}

hr_status hri_export_csv(hri_export *e) {
  rows r = {e, NULL};
  if (e->in) {
    r.life = hri_alloc_zero((size_t)e->lives->event_count + 1, sizeof *r.life);
    if (!r.life) return hri_fail_memory(e->sink->error, e->lives->event_count * sizeof *r.life, "the rows of a table");
    mark_events(&r);
  }
  hri_text_add(
      &e->text,
      "event,action,address,size_bytes,stream,time_us,pool,category,live_bytes,reserved_bytes,stack,frame,note\n");
  hri_lives_walk(e->lives, add_row, &r);
  hri_free(r.life);
  return HR_OK;
}
