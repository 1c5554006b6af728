/* The failures of a log, each once (scan_kept.c). */
#ifndef HRI_EXPLAIN_SCAN_KEPT_H
#define HRI_EXPLAIN_SCAN_KEPT_H

#include "explain/message.h"
#include "explain/scan_window.h"

/* How a kept failure was known. */
typedef struct hri_scan_origin {
  hri_oom_kind kind;
  bool exact, general; /* as in hri_oom_message */
} hri_scan_origin;

/* It begins as zeros. */
typedef struct hri_scan_kept {
  const char *framework; /* that all of them are given; NULL: what the log says */
  HRI_ARRAY(hr_oom_failure) failures;
  HRI_ARRAY(hri_scan_origin) origins; /* of the failures */
  uint64_t more;                      /* past HR_OOM_MAX_FAILURES, and those that were not read */
} hri_scan_kept;

/* Takes a message that was read at text[at) of the window: a failure that is known counts once more, or is replaced
 * where this message says more about it; else it is judged and kept. Pointers into `failures` may move. */
hr_status hri_scan_keep(hri_scan_kept *kept, hri_oom_message *message, const hri_scan_window *window, size_t at,
                        hr_error *error);
/* Gives the failures to the explanation, with the one that it is about. */
void hri_scan_kept_give(hri_scan_kept *kept, hr_explanation *explanation);
void hri_scan_kept_deinit(hri_scan_kept *kept);

#endif
