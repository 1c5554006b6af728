/* What the software GPU finds: counts by kind, and the words of the first finding.
 *
 * A finding never ends the process. Where a kernel can go on (a read out of bounds gives all ones, a write is dropped) it
 * does; where it cannot (a barrier that not every thread reaches) its block is left, and the launch with it. */
#ifndef HRI_GPU_SOFT_REPORT_H
#define HRI_GPU_SOFT_REPORT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(enumerator, words) */
#define HRI_SOFT_FAULTS(X)                                                                                             \
  X(BOUNDS, "access out of bounds")                                                                                    \
  X(UNWRITTEN, "read of device memory that nobody wrote")                                                              \
  X(FREED, "access to memory that was released")                                                                       \
  X(MISALIGNED, "misaligned access")                                                                                   \
  X(WAIT, "missing wait between streams")                                                                              \
  X(BLOCK_RACE, "race of two blocks of one launch")                                                                    \
  X(GUARDS, "bytes beside an allocation were overwritten")                                                             \
  X(SHARED_BOUNDS, "shared memory out of bounds")                                                                      \
  X(SHARED_UNWRITTEN, "read of shared memory that nobody wrote")                                                       \
  X(SHARED_RACE, "race in shared memory")                                                                              \
  X(COPY, "access to a copy that was not waited for")                                                                  \
  X(MASK, "wrong lane mask")                                                                                           \
  X(BARRIER, "barrier that not every thread reaches")                                                                  \
  X(LAUNCH, "launch that no card takes")

typedef enum hri_soft_fault {
#define HRI_SOFT_FAULT(name, words) HRI_SOFT_##name,
  HRI_SOFT_FAULTS(HRI_SOFT_FAULT)
#undef HRI_SOFT_FAULT
      HRI_SOFT_FAULT_COUNT
} hri_soft_fault;

typedef struct hri_soft_report {
  uint64_t count, of[HRI_SOFT_FAULT_COUNT];
  char first[512]; /* of the first finding: kind, kernel, block, thread, and what it touched */
} hri_soft_report;

/* "race in shared memory"; never NULL. */
const char *hri_soft_fault_words(hri_soft_fault fault);

/* Counts a finding of the launch that runs, and keeps the words of the first. */
void hri_soft_find(hri_soft_fault fault, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Where findings go from now on; NULL: nowhere. */
void hri_soft_report_to(hri_soft_report *report);

#ifdef __cplusplus
}
#endif
#endif
