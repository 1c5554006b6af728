/* What carried a line of output: a system's log, a container's runtime, a box (scan_carrier.c). */
#ifndef HRI_EXPLAIN_SCAN_CARRIER_H
#define HRI_EXPLAIN_SCAN_CARRIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The text of Docker's object, {"log":"...\n","stream":"stderr","time":"..."}, in place of the whole raw line; returns how
 * long it is. Escapes of terminals are in it. */
size_t hri_scan_open_object(char *line, size_t count);

/* Takes off the number of the raw line `number`, from 1, as an editor or a viewer shows it ("7: ", "  7  ", "7\t", "7 | "), where all lines
 * before have theirs too: those of ranks and tables do not go with the lines. `*numbered` is the last that had one, 0 before the first. In
 * place; returns how long the line is. */
size_t hri_scan_drop_number(uint64_t *numbered, char *line, size_t count, uint64_t number);

/* Brings the whole raw line, without such escapes, to what the carrier was given, in place; returns how long that is. `dated` becomes whether it
 * is a dated record of somebody who is known by the name before it. */
size_t hri_scan_take_from_carrier(char *line, size_t count, bool *dated);

/* What stands for a sign in a page's source, "&lt;", or in JSON, "\\u4e2d", becomes the sign, in place; returns how long the
 * line is. */
size_t hri_scan_decode_entities(char *line, size_t count);

#endif
