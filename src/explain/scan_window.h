/* The text of a stream in one form, as much of it as is kept, and what each of its lines was (scan_window.c). */
#ifndef HRI_EXPLAIN_SCAN_WINDOW_H
#define HRI_EXPLAIN_SCAN_WINDOW_H

#include <headroom/explain.h>

#include "base/mem.h"
#include "explain/source.h"

enum {
  HRI_SCAN_BYTES = 128 * 1024, /* that the window holds ... */
  HRI_SCAN_LINE = 4096,        /* ... and for one raw line more; a longer one comes in parts */
  HRI_SCAN_BEHIND = 8 * 1024   /* that stay before what was searched, for the traceback that names the framework */
};

/* Where the text of a line, or of a rank's part of one, starts in the window, and what its raw line was. */
typedef struct hri_scan_mark {
  uint32_t offset;
  int32_t rank;
  int64_t who;    /* whose it is: the rank, or past all ranks the process id of "(worker pid=917)"; -1: not told */
  bool bar;       /* a progress bar and nothing else */
  uint16_t shape; /* HRI_OOM_LEVEL, HRI_OOM_ROW, ... (report.h) */
  hri_source_kind source;
  uint64_t line; /* its number, from 1 */
} hri_scan_mark;

/* What stood between back quotes: places in the window. */
typedef struct hri_scan_span {
  uint32_t from, to;
} hri_scan_span;

/* Marks and spans are in the order of their places. Where there is text, a mark stands at or before it. */
typedef struct hri_scan_window {
  char *text; /* lower case, single blanks */
  size_t count;
  size_t searched; /* no message is looked for before this; at most `count` */
  HRI_ARRAY(hri_scan_mark) marks;
  HRI_ARRAY(hri_scan_span) ticks;
} hri_scan_window;

/* The window's bytes; it begins as zeros. */
hr_status hri_scan_window_init(hri_scan_window *window, hr_error *error);
void hri_scan_window_deinit(hri_scan_window *window);

/* What comes next is marked so, but for the offset; a mark that stands there gives way. False when memory is
 * refused. */
bool hri_scan_window_mark(hri_scan_window *window, hri_scan_mark mark);
/* Adds line[at, end) in the one form, for which there is room. `open` is where in the window back quotes were opened
 * that still are; SIZE_MAX: none are. False when a span could not be kept; the text is there all the same. */
bool hri_scan_window_add(hri_scan_window *window, const char *line, size_t at, size_t end, size_t open);
/* A blank, unless one is there. */
void hri_scan_window_add_blank(hri_scan_window *window);
/* Takes that blank off again, for a line that goes on amid a word. */
void hri_scan_window_drop_blank(hri_scan_window *window);

/* Lets go of the first `drop` bytes, all of them searched, with the marks and spans that are wholly in there: whatever
 * else points into the window moves by as much. */
void hri_scan_window_slide(hri_scan_window *window, size_t drop);

/* Where the text ends without the blanks behind it. */
static inline size_t hri_scan_text_end(const hri_scan_window *w) {
  size_t end = w->count;
  while (end > 0 && w->text[end - 1] == ' ') end--;
  return end;
}

/* Where what mark `m` stands before ends: at the next mark, or with the text. */
static inline size_t hri_scan_mark_end(const hri_scan_window *w, size_t m) {
  return m + 1 < w->marks.count ? w->marks.items[m + 1].offset : w->count;
}

#endif
