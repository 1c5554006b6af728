/* The live set at one instant as a flame graph: one stack per distinct (category, stack), weighted by the bytes asked
 * for; what is pending is not in it. Where there are categories, they are the outermost frame. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "inspect/export.h"

typedef struct flame {
  uint32_t stack;
  uint16_t category;
  uint64_t bytes;
} flame;

typedef HRI_ARRAY(flame) flames;

static int order(const void *a, const void *b) {
  const flame *x = a, *y = b;
  if (x->category != y->category) return x->category < y->category ? -1 : 1;
  return (x->stack > y->stack) - (x->stack < y->stack);
}

static hr_status collect(const hri_export *e, flames *out) {
  hr_error *error = e->sink->error;
  uint64_t *live = NULL, count = 0, kept = 0;
  hr_status status = HR_OK;
  HRI_TRY(hri_lives_at(e->lives, e->at, &live, &count, error));
  for (uint64_t k = 0; k < count; k++) {
    const hri_life *life = &e->lives->lives[live[k]];
    const flame one = {life->stack, hri_export_has_categories(e) ? hri_export_category(e, live[k]) : 0, life->size};
    if (hri_life_pending_at(life, e->at) || hri_array_push(out, one)) continue;
    status = hri_fail_memory(error, (k + 1) * sizeof one, "the live set");
    goto out;
  }
  if (out->count) qsort(out->items, out->count, sizeof *out->items, order);
  for (size_t k = 0; k < out->count; k++) {
    if (kept && order(&out->items[kept - 1], &out->items[k]) == 0) out->items[kept - 1].bytes += out->items[k].bytes;
    else out->items[kept++] = out->items[k];
  }
  out->count = (size_t)kept;
out:
  hri_free(live);
  return status;
}

/* What stands for an allocation whose stack was not recorded. */
static const char no_stack[] = "(no stack recorded)";

/* ---- collapsed ---- */

/* Frames are separated by ';', stacks by line ends. */
static void add_cleaned(hri_text *to, const char *text) {
  for (; *text; text++) hri_text_add_bytes(to, *text == ';' ? "," : *text == '\n' || *text == '\r' ? " " : text, 1);
}

static void add_line(hri_export *e, const flame *f) {
  const hr_stack stack = e->s->stacks[f->stack];
  if (hri_export_has_categories(e))
    add_cleaned(&e->text, hri_export_category_name(e, f->category)), hri_text_add_bytes(&e->text, ";", 1);
  if (stack.count == 0) hri_text_add(&e->text, "%s", no_stack);
  for (uint32_t k = stack.count; k-- > 0;) {
    hri_text frame = {0};
    hri_export_frame_text(e->s, e->s->stack_frames[stack.first + k], &frame);
    add_cleaned(&e->text, hri_text_get(&frame));
    if (k) hri_text_add_bytes(&e->text, ";", 1);
    if (frame.failed) e->text.failed = true;
    hri_text_deinit(&frame);
  }
  hri_text_add(&e->text, " %llu\n", (unsigned long long)f->bytes);
  hri_export_pass(e);
}

hr_status hri_export_collapsed(hri_export *e) {
  flames list = {0};
  hr_status status = collect(e, &list);
  for (size_t k = 0; k < list.count && status == HR_OK; k++) {
    add_line(e, &list.items[k]);
    status = e->sink->status;
  }
  hri_array_free(&list);
  return status;
}

/* ---- speedscope ---- */

/* The file's frames: those of the stacks, then categories, then the one for no stack, as far as they are used. */
typedef struct frame_table {
  uint32_t
      *numbers; /* of the snapshot's frames, then of its categories, then of no_stack; 0: none yet, else number + 1 */
  uint32_t count;
} frame_table;

static void put_frame(hri_export *e, hri_json_writer *w, frame_table *t, uint32_t index) {
  const hr_snapshot *s = e->s;
  if (t->numbers[index]) return;
  t->numbers[index] = ++t->count;
  hri_json_begin_object(w);
  if (index >= s->frame_count) {
    uint32_t category = index - s->frame_count;
    bool known = category < hri_export_category_count(e);
    hri_json_field_string(w, "name", known ? hri_export_category_name(e, (uint16_t)category) : no_stack);
  } else {
    const hr_frame *f = &s->frames[index];
    const char *file = hr_snapshot_string(s, f->file);
    hri_json_field_string(w, "name", hr_snapshot_string(s, f->name));
    if (hri_export_is_place(file)) {
      hri_json_field_string(w, "file", file);
      if (f->line) hri_json_field_u64(w, "line", f->line);
    }
  }
  hri_json_end_object(w);
  hri_export_pass(e);
}

/* Calls `each` for the frames of one stack, outermost first. */
static void walk_stack(hri_export *e, hri_json_writer *w, frame_table *t, const flame *f,
                       void (*each)(hri_export *e, hri_json_writer *w, frame_table *t, uint32_t index)) {
  const hr_stack stack = e->s->stacks[f->stack];
  if (hri_export_has_categories(e)) each(e, w, t, e->s->frame_count + f->category);
  if (stack.count == 0) each(e, w, t, e->s->frame_count + hri_export_category_count(e));
  for (uint32_t k = stack.count; k-- > 0;) each(e, w, t, e->s->stack_frames[stack.first + k]);
}

static void put_number(hri_export *e, hri_json_writer *w, frame_table *t, uint32_t index) {
  (void)e;
  hri_json_put_u64(w, t->numbers[index] - 1);
}

static void put_profile(hri_export *e, hri_json_writer *w, frame_table *t, const flames *list) {
  char name[96], device[32];
  uint64_t total = 0;
  for (size_t k = 0; k < list->count; k++) total += list->items[k].bytes;
  (void)snprintf(name, sizeof name, "live bytes of %s after %llu events", hri_export_device(e, device),
                 (unsigned long long)(e->at == HRI_NEVER ? 0 : e->at + 1));
  hri_json_begin_object(w);
  hri_json_field_string(w, "type", "sampled");
  hri_json_field_string(w, "name", name);
  hri_json_field_string(w, "unit", "bytes");
  hri_json_field_u64(w, "startValue", 0);
  hri_json_field_u64(w, "endValue", total);
  hri_json_key(w, "samples");
  hri_json_begin_array(w);
  for (size_t k = 0; k < list->count; k++) {
    hri_json_begin_array(w);
    walk_stack(e, w, t, &list->items[k], put_number);
    hri_json_end_array(w);
    hri_export_pass(e);
  }
  hri_json_end_array(w);
  hri_json_key(w, "weights");
  hri_json_begin_array(w);
  for (size_t k = 0; k < list->count; k++) hri_json_put_u64(w, list->items[k].bytes), hri_export_pass(e);
  hri_json_end_array(w);
  hri_json_end_object(w);
}

static void put_file(hri_export *e, frame_table *t, const flames *list) {
  hri_json_writer w = hri_json_writer_init(&e->text, 0);
  hri_json_begin_object(&w);
  hri_json_field_string(&w, "$schema", "https://www.speedscope.app/file-format-schema.json");
  hri_json_field_string(&w, "exporter", "headroom");
  hri_json_key(&w, "shared");
  hri_json_begin_object(&w);
  hri_json_key(&w, "frames");
  hri_json_begin_array(&w);
  for (size_t k = 0; k < list->count; k++) walk_stack(e, &w, t, &list->items[k], put_frame);
  hri_json_end_array(&w);
  hri_json_end_object(&w);
  hri_json_key(&w, "profiles");
  hri_json_begin_array(&w);
  put_profile(e, &w, t, list);
  hri_json_end_array(&w);
  hri_json_end_object(&w);
  hri_text_add_bytes(&e->text, "\n", 1);
}

hr_status hri_export_speedscope(hri_export *e) {
  uint64_t places = (uint64_t)e->s->frame_count + hri_export_category_count(e) + 1;
  frame_table t = {.numbers = hri_alloc_zero((size_t)places, sizeof *t.numbers)};
  flames list = {0};
  hr_status status =
      t.numbers ? collect(e, &list) : hri_fail_memory(e->sink->error, places * sizeof *t.numbers, "a table of frames");
  if (status == HR_OK) put_file(e, &t, &list);
  hri_array_free(&list);
  hri_free(t.numbers);
  return status;
}
