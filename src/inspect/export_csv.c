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

static void add_row(void *context, const hri_level *level) {
  hri_export *e = context;
  const hr_trace_event *event = &e->lives->events[level->event];
  const hr_pool *pool = &e->s->pools[event->pool];
  if (e->sink->status != HR_OK) return;
  hri_text_add(&e->text, "%llu,%s,%#llx,%llu,%#llx,", (unsigned long long)level->event,
               hr_trace_action_name((hr_trace_action)event->action), (unsigned long long)event->addr,
               (unsigned long long)event->size, (unsigned long long)event->stream);
  if (event->flags & HR_EVENT_HAS_TIME) hri_text_add(&e->text, "%lld", (long long)event->time_us);
  hri_text_add(&e->text, ",%llu:%llu,", (unsigned long long)pool->id[0], (unsigned long long)pool->id[1]);
  add_quoted(&e->text, hr_snapshot_category(e->s, event->category));
  hri_text_add(&e->text, ",%llu,%llu,", (unsigned long long)level->live_bytes,
               (unsigned long long)level->reserved_bytes);
  add_stack(e, event->stack);
  hri_text_add_bytes(&e->text, ",", 1);
  add_quoted(&e->text, hr_snapshot_string(e->s, event->note));
  hri_text_add_bytes(&e->text, "\n", 1);
  hri_export_pass(e);
}

hr_status hri_export_csv(hri_export *e) {
  hri_text_add(
      &e->text,
      "event,action,address,size_bytes,stream,time_us,pool,category,live_bytes,reserved_bytes,stack,frame,note\n");
  hri_lives_walk(e->lives, add_row, e);
  return HR_OK;
}
