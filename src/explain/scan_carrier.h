/* What carried a line of output: a system's log, a container's runtime, a box (scan_carrier.c). */
#ifndef HRI_EXPLAIN_SCAN_CARRIER_H
#define HRI_EXPLAIN_SCAN_CARRIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The text of Docker's object, {"log":"...\n","stream":"stderr","time":"..."}, in place of the whole raw line; returns how
 * long it is. Escapes of terminals are in it. */
size_t hri_scan_open_object(char *line, size_t count);

/* The numbers of lines so far; it begins as zeros. */
typedef struct hri_scan_numbers {
  uint64_t last;   /* the last of those that all bear theirs */
  uint64_t colons; /* how many of them a colon parts from a text */
} hri_scan_numbers;

/* Takes off the number of the raw line `number`, from 1, as an editor or a viewer shows it ("7:x", "  7  x", "7\tx", "7 | x"), where all lines
 * before have theirs too: those of ranks and tables do not go with the lines. In place; returns how long the line is. */
size_t hri_scan_drop_number(hri_scan_numbers *numbers, char *line, size_t count, uint64_t number);

/* Brings the whole raw line, without such escapes, to what the carrier was given, in place; returns how long that is. `dated` becomes whether it
 * is a dated record of somebody who is known by the name before it, or a line of a log that a container's runtime, a runner or a builder kept. */
size_t hri_scan_take_from_carrier(char *line, size_t count, bool *dated);

/* What stands for a sign in a page's source, "&lt;", or in JSON, "\\u4e2d", becomes the sign, in place; returns how long the
 * line is. */
size_t hri_scan_decode_entities(char *line, size_t count);

#endif
