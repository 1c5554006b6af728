/* A hash of a number of which every bit depends on all of its bits: addresses are regular in any of them, and where a table takes
 * neighbours for equal, a search is as long as the table. */
#ifndef HRI_BASE_MIX_H
#define HRI_BASE_MIX_H

#include <stdint.h>

static inline uint64_t hri_mix(uint64_t number) {
  number = (number ^ number >> 32) * 0xff51afd7ed558ccdu;
  number = (number ^ number >> 32) * 0x9e3779b97f4a7c15u;
  return number ^ number >> 32;
}

#endif
