/* The inspection of any snapshot that the reader accepts: sums that add up, texts that end. */
#include <stdlib.h>

#include <headroom/inspect.h>

#include "base/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
  if (!holds) abort();
}

static void check_sums(const hr_memory_sums *m) {
  require(m->requested_bytes + m->rounding_bytes + m->pending_bytes + m->free_returnable_bytes + m->free_pinned_bytes ==
          m->reserved_bytes);
}

static void check(const hr_snapshot *s, uint64_t at, uint32_t trace) {
  const hr_inspect_options options = {.at = at, .trace = trace};
  hr_inspection *p;
  hr_difference *rows;
  char *text;
  uint64_t count;
  require(hr_inspect(s, &options, &p, NULL) == HR_OK);
  check_sums(&p->at);
  check_sums(&p->end);
  require(hr_inspect_text(p, 0, 7, &text, NULL) == HR_OK);
  hr_free(text);
  require(hr_inspect_json(p, 0, &text, NULL) == HR_OK);
  hr_free(text);
  require(hr_inspect_compare(p, p, HR_BY_STACK, &rows, &count, NULL) == HR_OK && count == 0);
  hr_free(rows);
  hr_inspection_destroy(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const hr_snapshot_limits limits = {16 << 20};
  const uint64_t live = hri_mem_live_bytes();
  hr_snapshot *s;
  if (hr_snapshot_parse(data, size, "input", &limits, &s, NULL) != HR_OK) return 0;
  check(s, HR_AT_OOM, HR_TRACE_MOST);
  check(s, HR_AT_PEAK, 0);
  check(s, HR_AT_END, s->trace_count);
  check(s, 0, 0);
  hr_snapshot_destroy(s);
  require(hri_mem_live_bytes() == live);
  return 0;
}
