/* Exports: other programs' formats. Each writes its text in pieces into a sink; docs/snapshots.md has the formats. */
#ifndef HRI_INSPECT_EXPORT_H
#define HRI_INSPECT_EXPORT_H

#include "base/text.h"
#include "inspect/lives.h"
#include "snapshot/sink.h"

typedef struct hri_export {
  const hr_snapshot *s;
  const hri_lives *lives;
  const hr_inspection *in; /* whose categories hold; NULL: those that the snapshot states */
  uint64_t at;             /* an event as in lives.h: the live set after it */
  hri_snapshot_sink *sink;
  hri_text text;
} hri_export;

/* Passes the text on when there is a piece of it. */
void hri_export_pass(hri_export *e);

hr_status hri_export_chrome(hri_export *e);
hr_status hri_export_speedscope(hri_export *e);
hr_status hri_export_collapsed(hri_export *e);
hr_status hri_export_csv(hri_export *e);

/* "device 0", "the CPU" */
const char *hri_export_device(const hri_export *e, char out[32]);

/* Whether lives have categories; that of a life, its name ("unknown" for 0), and how many there are. */
bool hri_export_has_categories(const hri_export *e);
uint16_t hri_export_category(const hri_export *e, uint64_t life);
const char *hri_export_category_name(const hri_export *e, uint16_t category);
uint32_t hri_export_category_count(const hri_export *e);

/* Whether a frame's file is one. Frames of our own snapshots have "headroom/layer" and the like there, those of
 * PyTorch's profiler "none", and C++ frames without debug information "??". */
bool hri_export_is_place(const char *file);
/* "name (file:line)", or the name alone where there is no file. */
void hri_export_frame_text(const hr_snapshot *s, uint32_t frame, hri_text *text);

#endif
