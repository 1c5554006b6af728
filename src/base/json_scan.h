/* A pull scanner over JSON text: no tree, no allocation, exact 64-bit unsigned integers.
 *
 * jansson's tree takes up to 40 times the bytes of the text and has no integers above int64. A safetensors header may
 * have 100 MB and come from anywhere, a JSONL row may hold a million token ids: those are read with this, value by
 * value, in the order in which they stand. The grammar is strict JSON (RFC 8259), nesting at most HRI_JSON_DEPTH. */
#ifndef HRI_BASE_JSON_SCAN_H
#define HRI_BASE_JSON_SCAN_H

#include "base/mem.h"

typedef struct hri_json_scan {
  char *next, *end;
  char *line_start;
  uint64_t line;    /* from 1 */
  const char *file; /* names the text in errors; borrowed */
  const char *part; /* put before the position, e.g. "header "; may be "" */
  uint32_t depth;   /* open containers */
  bool first;       /* nothing read in the innermost container yet */
  bool takes_nul;   /* set by who reads: strings may hold U+0000 */
  bool takes_wide;  /* likewise: an integer outside of int64 is a number as one with a point */
  bool spells_wide; /* likewise, of who makes a tree: the digits of such a number go into it */
  uint64_t bytes;   /* of the last string, without the NUL behind it */
} hri_json_scan;

/* Scans `count` bytes at `bytes`, which must stay alive as long as the strings taken from them. The scanner writes into
 * them: strings are decoded in place. */
hri_json_scan hri_json_scan_init(char *bytes, uint64_t count, const char *file, const char *part);

/* The first character of the next value or token, blanks skipped; 0 at the end of the text. */
char hri_json_scan_peek(hri_json_scan *scan);

/* Values. Each fails with INPUT (file, line, column, what was wanted and found) when something else stands there. */
/* A string, decoded, valid UTF-8 (without U+0000, but with `takes_nul`), NUL-terminated; it points into the text. */
hr_status hri_json_scan_string(hri_json_scan *scan, char **value, hr_error *error);
/* A plain non-negative integer: no sign, point or exponent, at most UINT64_MAX. */
hr_status hri_json_scan_u64(hri_json_scan *scan, uint64_t *value, hr_error *error);
/* Any number. Without point and exponent it is an integer and must fit int64 (but with `takes_wide`); else a finite double
 * (too small is 0).
 * The byte behind the text must be readable and no digit, as the NUL of hri_file_read. */
hr_status hri_json_scan_number(hri_json_scan *scan, bool *is_integer, int64_t *integer, double *real, hr_error *error);
/* Any value; it is checked, not kept. */
hr_status hri_json_scan_skip(hri_json_scan *scan, hr_error *error);

/* Containers: open one, then ask for the next member or element until there is none, reading its value each time.
 *
 *   HRI_TRY(hri_json_scan_object(scan, error));
 *   for (;;) {
 *     HRI_TRY(hri_json_scan_key(scan, &key, error));
 *     if (!key) break;
 *     ... read exactly one value ...
 *   }
 * Duplicate keys are the caller's to find. */
hr_status hri_json_scan_object(hri_json_scan *scan, hr_error *error);
hr_status hri_json_scan_key(hri_json_scan *scan, char **key, hr_error *error);
hr_status hri_json_scan_array(hri_json_scan *scan, hr_error *error);
hr_status hri_json_scan_element(hri_json_scan *scan, bool *more, hr_error *error);

/* Nothing but blanks may follow. */
hr_status hri_json_scan_end(hri_json_scan *scan, hr_error *error);

/* Fails with INPUT at the current position: "FILE: PARTline L, column C: <text>". */
hr_status hri_json_scan_fail(const hri_json_scan *scan, hr_error *error, const char *format, ...) HRI_PRINTF(3, 4);
#ifdef __clang_analyzer__
#define hri_json_scan_fail(scan, error, ...)                                                                           \
  hri_failure(hri_json_scan_fail((scan), (error), __VA_ARGS__), HR_ERROR_INPUT)
#endif

#endif
