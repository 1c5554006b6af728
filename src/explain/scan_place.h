/* A word of the window in its line, as the general rule looks at it (scan_place.c). */
#ifndef HRI_EXPLAIN_SCAN_PLACE_H
#define HRI_EXPLAIN_SCAN_PLACE_H

#include "explain/report.h"
#include "explain/scan_window.h"

/* The word at text[at], in the line of mark `m`, which points into the window; no ear is lent. */
hri_oom_place hri_scan_place_of(const hri_scan_window *window, size_t at, size_t m);

#endif
