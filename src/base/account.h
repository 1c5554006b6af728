/* What a thread may allocate while it works on something that somebody else made.
 *
 * A file of two megabytes can ask for as many gigabytes (gzip of references to one thing), honestly or not. Estimates of
 * what a reader needs miss something sooner or later, so nothing is estimated: between begin and end the allocator
 * itself (base/mem.c) counts each block of this thread as malloc hands it out, its header included, and refuses what
 * would go beyond the limit. Who reads needs no more than what every refused allocation needs: to fail with MEMORY.
 *
 * Accounts nest, and a block counts in all that are open. A block that grows counts as what it becomes; while malloc
 * moves it, it is there twice (glibc moves pages instead of bytes from 32 MiB on). Threads that a reader starts would
 * not count: none does. */
#ifndef HRI_BASE_ACCOUNT_H
#define HRI_BASE_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

typedef struct hri_account {
  uint64_t limit_bytes;
  int64_t held_bytes; /* allocated since begin, less what was freed; below 0 where older blocks were */
  int64_t peak_bytes;
  uint64_t refused_bytes; /* the last request that was beyond the limit; 0: none was */
  uint64_t refused_held;  /* and what was held then */
  struct hri_account *outer;
} hri_account;

/* The account stays with the caller, in place, until it ends; begin and end come in pairs, innermost first. */
void hri_account_begin(hri_account *account, uint64_t limit_bytes);
/* Gives `status` back. Where that is MEMORY the error then says what `name` needed, and whose limit it was. */
hr_status hri_account_end(hri_account *account, hr_status status, const char *name, hr_error *error);

/* For base/mem.c: the innermost account of this thread, NULL for none; whether all allow so much more; what came of it. */
extern _Thread_local hri_account *hri_account_open;
bool hri_account_allows(uint64_t more_bytes);
void hri_account_count(int64_t bytes);

#endif
