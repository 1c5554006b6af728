/* One message by itself: its rank's lines alone, copied out of the window (scan_excerpt.c). */
#ifndef HRI_EXPLAIN_SCAN_EXCERPT_H
#define HRI_EXPLAIN_SCAN_EXCERPT_H

#include "explain/report.h"
#include "explain/scan_window.h"

enum { HRI_SCAN_BEFORE = 320 }; /* bytes that are taken along before a message */

/* text[start, count) is the message and what follows it, text[0, start) what stands before. */
typedef struct hri_scan_excerpt {
  char text[HRI_OOM_TEXT_BYTES + HRI_SCAN_BEFORE];
  size_t start, count;
} hri_scan_excerpt;

/* The window's text around `at`, in the line of mark `m`. */
void hri_scan_excerpt_take(hri_scan_excerpt *excerpt, const hri_scan_window *window, size_t at, size_t m);
/* Moves the place, which was that of `at` in the window, into the excerpt; what stands before its line stays the
 * window's. */
void hri_scan_excerpt_move(const hri_scan_excerpt *excerpt, hri_oom_place *place);
/* Whether the message up to text[end) is what the window has behind `at`: nothing was left out, and an offset in one is
 * an offset in the other. */
bool hri_scan_excerpt_is_whole(const hri_scan_excerpt *excerpt, const hri_scan_window *window, size_t at, size_t end);
/* Where in the window text[end] stands, of an excerpt of what is at `at` in the line of mark `m`. */
size_t hri_scan_excerpt_end(const hri_scan_excerpt *excerpt, const hri_scan_window *window, size_t at, size_t m,
                            size_t end);
/* Whether what mark `m` stands before is in excerpts of who speaks as `who`. */
bool hri_scan_is_of(const hri_scan_window *window, size_t m, int64_t who);

#endif
