/* The account of a thread (account.h): what is asked of malloc while one is open is counted as malloc gives it, and refused beyond
 * its limit. mem.c asks here before and after; nobody else does. */
#include "base/account.h"

#include <assert.h>

#include "base/text.h"

_Thread_local hri_account *hri_account_open;

void hri_account_begin(hri_account *account, uint64_t limit_bytes) {
  *account = (hri_account){.limit_bytes = limit_bytes < INT64_MAX ? limit_bytes : INT64_MAX, .outer = hri_account_open};
  hri_account_open = account;
}

bool hri_account_allows(uint64_t more_bytes) {
  bool allowed = true;
  for (hri_account *a = hri_account_open; a; a = a->outer) {
    const uint64_t held = a->held_bytes > 0 ? (uint64_t)a->held_bytes : 0;
    if (held <= a->limit_bytes && more_bytes <= a->limit_bytes - held) continue;
    a->refused_bytes = more_bytes;
    a->refused_held = held;
    allowed = false;
  }
  return allowed;
}

void hri_account_count(int64_t bytes) {
  for (hri_account *a = hri_account_open; a; a = a->outer) {
    a->held_bytes += bytes;
    if (a->held_bytes > a->peak_bytes) a->peak_bytes = a->held_bytes;
  }
}

/* Everything is said anew: who was refused knows neither the limit nor what was held. */
static hr_status explain(const hri_account *a, const char *name, hr_error *error) {
  char limit[32], held[32], more[32];
  const bool ours = a->refused_bytes != 0;
  hri_size_text(a->limit_bytes, limit);
  hri_size_text(ours ? a->refused_held : (uint64_t)a->peak_bytes, held);
  if (!ours)
    return hri_fail(error, HR_ERROR_MEMORY, "%s: the system refused more memory when %s were held for reading it", name,
                    held);
  hri_fail(error, HR_ERROR_MEMORY,
           "%s: needs more memory than the %s that reading it may take: %s are held and %s more asked for", name, limit,
           held, hri_size_text(a->refused_bytes, more));
  if (error) error->requested_bytes = a->refused_held + a->refused_bytes, error->available_bytes = a->limit_bytes;
  return hri_hint(error, HR_ERROR_MEMORY,
                  "allow more with --max-memory SIZE if you trust the file; a recording of fewer events (max_entries) "
                  "needs less");
}

hr_status hri_account_end(hri_account *account, hr_status status, const char *name, hr_error *error) {
  assert(hri_account_open == account); /* pairs, innermost first */
  hri_account_open = account->outer;
  return status == HR_ERROR_MEMORY ? explain(account, name, error) : status;
}
