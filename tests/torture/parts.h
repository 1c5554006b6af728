/* The parts of the torture test. Each returns how many findings it made; case_ runs a single one, named as in its
 * findings. */
#ifndef HRI_TORTURE_PARTS_H
#define HRI_TORTURE_PARTS_H

#include "torture/world.h"

size_t part_calls(void);  /* the library sees every call that the kernel sees (calls.c) */
size_t part_faults(void); /* each call fails, is cut short, is the last (faults.c) */
size_t part_power(void);  /* the power goes out (power.c) */
size_t part_flips(void);  /* bits flip, files are cut, vanish, appear (flips.c) */
size_t part_kills(void);  /* kill -9 at any moment (kills.c) */

void case_faults(world *w, const char *text);
void case_power(world *w, const char *text);
void case_flips(world *w, const char *text);

#endif
