/* What carried a line of output: a system's log, a container's runtime, a box (scan_carrier.c). */
#ifndef HRI_EXPLAIN_SCAN_CARRIER_H
#define HRI_EXPLAIN_SCAN_CARRIER_H

#include <stdbool.h>
#include <stddef.h>

/* Brings the whole raw line to what the carrier was given, in place; returns how long that is. `dated` becomes whether
 * the carrier noted when it was written: then it was printed by a program that ran. */
size_t hri_scan_take_from_carrier(char *line, size_t count, bool *dated);

#endif
