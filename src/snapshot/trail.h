/* The trail of a run: one mapped page that says what the run did last. Stores into a shared mapping reach the file
 * without a system call and survive the process, also when the kernel kills it; nothing is flushed, so a power cut may
 * lose them. */
#ifndef HRI_SNAPSHOT_TRAIL_H
#define HRI_SNAPSHOT_TRAIL_H

#include <headroom/status.h>

#include <stdint.h>

typedef enum hri_trail_state {
  HRI_TRAIL_RUNNING = 0,
  HRI_TRAIL_FINISHED,
  HRI_TRAIL_STOPPED,
  HRI_TRAIL_FAILED,
  HRI_TRAIL_STATE_COUNT
} hri_trail_state;

enum { HRI_TRAIL_BYTES = 4096, HRI_TRAIL_WORD = 16, HRI_TRAIL_OP = 32, HRI_TRAIL_MESSAGE = 1024 };

/* The file's layout, little-endian; the rest of the page is zero. Text is terminated. */
typedef struct hri_trail_page {
  char magic[8]; /* "HRTRAIL1" */
  uint32_t pid;
  uint32_t state;              /* hri_trail_state; RUNNING and no such process any more: it was killed */
  int64_t started_us, time_us; /* epoch microseconds; the last is of the last store */
  uint64_t step, steps;        /* steps that are done, of all */
  int32_t layer;               /* of the last node; -1 none */
  uint32_t micro;
  char program[HRI_TRAIL_WORD], phase[HRI_TRAIL_WORD], op[HRI_TRAIL_OP]; /* of the last node that was done */
  uint64_t reserved_bytes, budget_bytes, fixed_bytes;                    /* the plan's, device tier */
  uint64_t resident_bytes, peak_resident_bytes;                          /* of the process, at the last step */
  uint64_t usable_bytes;                                                 /* what the machine could still give then */
  uint32_t status;                                                       /* hr_status of a failure */
  char message[HRI_TRAIL_MESSAGE];
} hri_trail_page;

/* Makes the file and maps it. `page` is written with plain stores by one thread. */
hr_status hri_trail_open(const char *path, hri_trail_page **page, hr_error *error);
void hri_trail_close(hri_trail_page *page); /* NULL is fine; the file stays */
/* Copies the page of a file out; INPUT when it is none. Text is made to end. */
hr_status hri_trail_read(const char *path, hri_trail_page *page, hr_error *error);

#endif
