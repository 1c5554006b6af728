#include "inspect/export.h"

#include <stdio.h>
#include <string.h>

#include "snapshot/layout.h"

void hri_export_pass(hri_export *e) {
  if (e->text.length < HRI_SINK_PIECE_BYTES && !e->text.failed) return;
  if (e->text.failed) hri_sink_fail(e->sink, hri_fail_memory(e->sink->error, e->text.length, "text"));
  hri_sink_put(e->sink, hri_text_get(&e->text), e->text.length);
  e->text.length = 0;
}

bool hri_export_is_place(const char *file) {
  return *file && strncmp(file, "headroom/", 9) != 0 && strcmp(file, "none") != 0 && strcmp(file, "??") != 0;
}

const char *hri_export_device(const hri_export *e, char out[32]) {
  if (e->lives->device < 0) return "the CPU";
  (void)snprintf(out, 32, "device %d", (int)e->lives->device);
  return out;
}

void hri_export_frame_text(const hr_snapshot *s, uint32_t frame, hri_text *text) {
  const hr_frame *f = &s->frames[frame];
  const char *file = hr_snapshot_string(s, f->file);
  hri_text_add(text, "%s", hr_snapshot_string(s, f->name));
  if (hri_export_is_place(file)) hri_text_add(text, " (%s:%u)", file, (unsigned)f->line);
}

bool hri_export_has_categories(const hri_export *e) { return e->in || e->s->categories_stated; }

uint16_t hri_export_category(const hri_export *e, uint64_t life) {
  return e->in ? e->in->life_category[life] : e->lives->lives[life].category;
}

const char *hri_export_category_name(const hri_export *e, uint16_t category) {
  if (e->in) return category < e->in->category_count ? e->in->categories[category] : "unknown";
  return category ? hr_snapshot_category(e->s, category) : "unknown";
}

uint32_t hri_export_category_count(const hri_export *e) { return e->in ? e->in->category_count : e->s->category_count; }

typedef hr_status (*exporter)(hri_export *e);

static exporter exporter_of(hr_export_format format) {
  static const exporter exporters[] = {[HR_EXPORT_CHROME_TRACE] = hri_export_chrome,
                                       [HR_EXPORT_SPEEDSCOPE] = hri_export_speedscope,
                                       [HR_EXPORT_COLLAPSED] = hri_export_collapsed,
                                       [HR_EXPORT_CSV] = hri_export_csv};
  return (unsigned)format < sizeof exporters / sizeof *exporters ? exporters[format] : NULL;
}

/* The event after which `count` events of the trace have passed. */
static hr_status event_of(const hri_lives *lives, uint64_t count, uint64_t *event, hr_error *error) {
  *event = count == UINT64_MAX ? lives->peak_event : count - 1; /* 0 events: HRI_NEVER, before the first */
  if (count == UINT64_MAX || count <= lives->event_count) return HR_OK;
  return hri_fail(error, HR_ERROR_USAGE, "there is no state after %llu events: the trace has %llu",
                  (unsigned long long)count, (unsigned long long)lives->event_count);
}

static hr_status write_export(hri_export *e, exporter export, const char *path, hr_error *error) {
  hri_snapshot_sink sink = {.fd = -1};
  hr_status status;
  e->sink = &sink;
  HRI_TRY_OUT(hri_sink_init(&sink, path, error));
  hri_sink_fail(&sink, export(e));
  if (e->text.failed) hri_sink_fail(&sink, hri_fail_memory(error, e->text.length, "text"));
  hri_sink_put(&sink, hri_text_get(&e->text), e->text.length);
  status = hri_sink_end(&sink);
out:
  hri_text_deinit(&e->text);
  return status;
}

static hr_status export_trace(const hr_snapshot *s, exporter export, uint32_t trace, uint64_t at, const char *path,
                              hr_error *error) {
  hri_lives *lives = NULL;
  hri_export e = {.s = s};
  hr_status status;
  if (trace >= s->trace_count && (trace || s->trace_count))
    return hri_fail(error, HR_ERROR_USAGE, "there is no trace %u: the snapshot has %u", (unsigned)trace,
                    (unsigned)s->trace_count);
  HRI_TRY(hri_lives_build(s, trace, &lives, error));
  HRI_TRY_OUT(event_of(lives, at, &e.at, error));
  e.lives = lives;
  status = write_export(&e, export, path, error);
out:
  hri_lives_destroy(lives);
  return status;
}

hr_status hr_inspect_export(const hr_inspection *in, hr_export_format format, const char *path, hr_error *error) {
  const exporter export = exporter_of(format);
  hri_export e = {.s = in->snapshot, .lives = hri_inspection_lives(in), .in = in, .at = in->at_event};
  if (!export) return hr_snapshot_export(in->snapshot, format, in->trace, 0, path, error);
  return write_export(&e, export, path, error);
}

hr_status hr_snapshot_export(const hr_snapshot *snapshot, hr_export_format format, uint32_t trace, uint64_t at,
                             const char *path, hr_error *error) {
  const exporter export = exporter_of(format);
  hri_snapshot_sink sink;
  if (export) return export_trace(snapshot, export, trace, at, path, error);
  if (format != HR_EXPORT_JSON) return hri_fail(error, HR_ERROR_USAGE, "there is no export format %d", (int)format);
  HRI_TRY(hri_layout_check(snapshot, UINT64_MAX, error));
  HRI_TRY(hri_sink_init(&sink, path, error));
  hri_layout_put_json(snapshot, &sink);
  return hri_sink_end(&sink);
}
