/* What a raw line is because of lines before it: they opened a block that holds it (scan_block.c). */
#ifndef HRI_EXPLAIN_SCAN_BLOCK_H
#define HRI_EXPLAIN_SCAN_BLOCK_H

#include "explain/scan_window.h"

/* The blocks that are open; it begins as zeros. */
typedef struct hri_scan_blocks {
  bool fenced;               /* between lines of three back quotes */
  unsigned literal_lines;    /* how many more lines may belong to a literal that is open ... */
  const char *literal_quote; /* ... and what closes it */
  bool is_comment;           /* it is no statement's ... */
  uint64_t literal_start;    /* ... and began there ... */
  uint64_t comment_end;      /* ... and ended there, with nothing but blank lines since; 0: none */
  unsigned remark_lines;     /* how many more may belong to a comment of C's kin */
  unsigned exception_lines;  /* how many more may belong to an exception that is printed over several */
  unsigned diagram_lines;    /* how many more may belong to a diagram's source ... */
  uint64_t diagram_start;    /* ... which began there */
  unsigned scalar_lines;     /* how many more may belong to a text of YAML that is open */
  unsigned output_lines;     /* how many more may be elements of a notebook's printed output ... */
  unsigned output_type;      /* ... and for how many more lines a field "text" begins one */
} hri_scan_blocks;

/* Each of these once for each raw line that is no rest of another, in their order. */

/* A notebook keeps what was printed as an array of literals, `"traceback": [` or, beside an "output_type", `"text": [`:
 * an element is a line of output, which is brought to the beginning of `line`; returns how long it is. */
size_t hri_scan_open_output(hri_scan_blocks *blocks, char *line, size_t count);

/* HRI_OOM_FENCED for a line between lines of three back quotes, which open a block of output or code and close it; 0
 * for another, and for the fences. */
uint16_t hri_scan_see_fence(hri_scan_blocks *blocks, const char *line, size_t count);

/* Whether the line is what Python prints of bytes with ends of lines in them, alone or behind the label of a stream: what they
 * hold is line[*from, *to). */
bool hri_scan_find_printed(const char *line, size_t count, size_t *from, size_t *to);

/* Whether the line is part of an exception that is printed over several lines, "package.SomeError(" and on to ")". */
bool hri_scan_see_exception(hri_scan_blocks *blocks, const char *line, size_t count);

/* Whether the line is part of a text of YAML over several lines, `key: 'it''s ...`: what it holds was printed. */
bool hri_scan_see_scalar(hri_scan_blocks *blocks, const char *line, size_t count);

/* What the line is as source: by itself (source.h), or as part of a literal over several lines. `before` is what the
 * line before is, and the window ends with it. Lines of the window become source where this one shows that they are. */
hri_source_kind hri_scan_source_of(hri_scan_blocks *blocks, hri_scan_window *window, const char *line, size_t count,
                                   uint64_t number, hri_source_kind before);

#endif
