/* Lines that a terminal of a certain width broke amid a word (scan_wrap.c). */
#ifndef HRI_EXPLAIN_SCAN_WRAP_H
#define HRI_EXPLAIN_SCAN_WRAP_H

#include "explain/scan_window.h"

enum { HRI_SCAN_WIDTHS = 16 };

/* What is remembered of the last raw lines; it begins as zeros. */
typedef struct hri_scan_wrap {
  uint16_t widths[HRI_SCAN_WIDTHS]; /* in characters ... */
  bool opens[HRI_SCAN_WIDTHS];      /* ... and whether the next could have gone on with their last word ... */
  unsigned count;                   /* ... and how many there were */
  char last_head[3], last_end;      /* how the last one began and ended, */
  bool last_speaks;                 /* whether it speaks of memory, */
  uint64_t last_number;             /* and its number */
  uint16_t proven;                  /* the width of a line whose words went on in the next ... */
  uint64_t proven_until;            /* ... which tells of those before this line */
} hri_scan_wrap;

/* Whether the whole raw line, by its number, goes on with the word that the one right before broke off, with which the
 * window ends. Asked once of each line, in their order. */
bool hri_scan_wrap_goes_on(hri_scan_wrap *wrap, const hri_scan_window *window, const char *line, size_t count,
                           uint64_t number);
/* A line came in parts, so its width is not known: the next one goes on with nothing. */
void hri_scan_wrap_forget(hri_scan_wrap *wrap);

#endif
