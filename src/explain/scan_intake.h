/* Raw lines into the window (scan_intake.c). */
#ifndef HRI_EXPLAIN_SCAN_INTAKE_H
#define HRI_EXPLAIN_SCAN_INTAKE_H

#include "explain/scan_block.h"
#include "explain/scan_carrier.h"
#include "explain/scan_window.h"
#include "explain/scan_wrap.h"

/* The raw line so far, and what is known of those before it; it begins as zeros. Who feeds it appends to `line` and
 * counts `lines`. */
typedef struct hri_scan_intake {
  char line[HRI_SCAN_LINE];
  size_t count;
  uint64_t lines;           /* that have ended before this one */
  hri_scan_numbers numbers; /* of the lines before it */
  bool dated;               /* whole, it is a dated record: hri_scan_take_from_carrier */
  bool apart;               /* the line before is empty, as before a page's paragraphs */
  bool continued;           /* the raw line is the rest of one that was too long: it has no prefix */
  hri_scan_mark said;       /* of the current raw line, by its prefix and form: rank, who, shape, source */
  hri_scan_wrap wrap;
  hri_scan_blocks blocks;
} hri_scan_intake;

/* Brings a whole raw line to what was printed, whatever carried it (scan_carrier.h). */
void hri_scan_intake_open(hri_scan_intake *intake);

/* Brings the raw line, if it is whole an opened one, into the window, which has room for HRI_SCAN_LINE bytes, and empties it. `complete`: it ended,
 * rather than that it fills `line`. False when memory for a mark or a span was refused. */
bool hri_scan_intake_add(hri_scan_intake *intake, hri_scan_window *window, bool complete);

#endif
