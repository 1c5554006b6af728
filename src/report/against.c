/* Levels are cut into parts of equally many events, of which each keeps its extremes: the page is as small for ten million
 * events as for ten thousand, and no peak is lost. */
#include "report/against.h"

#include "base/mem.h"
#include "inspect/lives.h"

enum { MOST_PARTS = 2048, MOST_ROWS = 60, NAME_BYTES = 160 };

typedef struct parts {
  hri_json_writer *w;
  const hri_lives *lives;
  uint64_t stride, live, reserved; /* events in a part; the most so far within it */
  int64_t first_time_us, time_us;
} parts;

/* Times never fall, as in the columns of the page. */
static void keep_time(parts *p, const hr_trace_event *event) {
  if (!(event->flags & HR_EVENT_HAS_TIME)) return;
  if (p->first_time_us == INT64_MIN) p->first_time_us = p->time_us = event->time_us;
  if (event->time_us > p->time_us) p->time_us = event->time_us;
}

static void add_level(void *context, const hri_level *level) {
  parts *p = context;
  if (level->live_bytes > p->live) p->live = level->live_bytes;
  if (level->reserved_bytes > p->reserved) p->reserved = level->reserved_bytes;
  keep_time(p, &p->lives->events[level->event]);
  if ((level->event + 1) % p->stride && level->event + 1 != p->lives->event_count) return;
  hri_json_begin_array(p->w);
  hri_json_put_u64(p->w, level->event + 1);
  hri_json_put_u64(p->w, p->first_time_us == INT64_MIN ? 0 : (uint64_t)p->time_us - (uint64_t)p->first_time_us);
  hri_json_put_u64(p->w, p->live);
  hri_json_put_u64(p->w, p->reserved);
  hri_json_end_array(p->w);
  p->live = p->reserved = 0;
}

static void put_levels(hri_json_writer *w, const hri_lives *lives) {
  parts p = {.w = w, .lives = lives, .first_time_us = INT64_MIN};
  p.stride = lives->event_count / MOST_PARTS + 1;
  hri_json_key(w, "levels"); /* events until then, microseconds, most live and most reserved since the part before */
  hri_json_begin_array(w);
  hri_lives_walk(lives, add_level, &p);
  hri_json_end_array(w);
}

static void put_sums(hri_json_writer *w, const hr_inspection *before, const hr_inspection *after) {
  const struct {
    const char *name;
    uint64_t before, after;
  } rows[] = {{"live at the instant", before->at.requested_bytes, after->at.requested_bytes},
              {"reserved at the instant", before->at.reserved_bytes, after->at.reserved_bytes},
              {"most live", before->peak_live_bytes, after->peak_live_bytes},
              {"most reserved", before->peak_reserved_bytes, after->peak_reserved_bytes}};
  hri_json_key(w, "sums");
  hri_json_begin_array(w);
  for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
    hri_json_begin_array(w);
    hri_json_put_string(w, rows[k].name);
    hri_json_put_u64(w, rows[k].before);
    hri_json_put_u64(w, rows[k].after);
    hri_json_end_array(w);
  }
  hri_json_end_array(w);
}

hr_status hri_report_against(hri_json_writer *w, const hr_inspection *after, const hr_report_options *options,
                             hr_error *error) {
  static const char *const keys[] = {[HR_BY_STACK] = "byStack", [HR_BY_CATEGORY] = "byCategory"};
  const hr_inspection *before = options->before;
  char name[NAME_BYTES];
  hri_json_key(w, "against");
  hri_json_begin_object(w);
  hri_json_field_string(w, "title", options->before_title ? options->before_title : "another snapshot");
  hri_json_field_u64(w, "events", before->event_count);
  hri_json_field_u64(w, "after", before->at_event + 1);
  put_sums(w, before, after);
  for (int by = HR_BY_STACK; by <= HR_BY_CATEGORY; by++) {
    hr_difference *rows;
    uint64_t count;
    HRI_TRY(hr_inspect_compare(before, after, (hr_group_by)by, &rows, &count, error));
    hri_json_key(w, keys[by]); /* name, bytes and count before, bytes and count after */
    hri_json_begin_array(w);
    for (uint64_t k = 0; k < count && k < MOST_ROWS; k++) {
      hr_difference_name(before, after, (hr_group_by)by, &rows[k], name, sizeof name);
      hri_json_begin_array(w);
      hri_json_put_string(w, name);
      hri_json_put_u64(w, rows[k].before_bytes);
      hri_json_put_u64(w, rows[k].before_count);
      hri_json_put_u64(w, rows[k].after_bytes);
      hri_json_put_u64(w, rows[k].after_count);
      hri_json_end_array(w);
    }
    hri_json_end_array(w);
    hri_json_field_u64(w, by == HR_BY_STACK ? "stackRows" : "categoryRows", count);
    hri_free(rows);
  }
  put_levels(w, hri_inspection_lives(before));
  hri_json_end_object(w);
  return HR_OK;
}
