/* The explainer on any bytes: it answers, its shares add up, an undecided failure has candidates, cutting the input
 * into two pieces changes nothing, and nothing leaks. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <headroom/explain.h>

#include "base/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
  if (!holds) abort();
}

static void check(const hr_oom_failure *f) {
  uint64_t sum = 0;
  require(f->cause < HR_OOM_CAUSE_COUNT && f->source[0] && f->verdict[0] && f->arithmetic_count && f->advice_count);
  require((f->cause == HR_OOM_UNKNOWN) == (f->candidates != 0));
  require((f->cause == HR_OOM_UNKNOWN) == (f->certainty == HR_OOM_UNDECIDABLE));
  for (uint32_t i = 0; i < f->share_count; i++) sum += f->shares[i].bytes;
  require(sum == f->share_total_bytes && (f->share_count == 0 || sum == f->figures[HR_OOM_TOTAL].bytes));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  uint64_t live = hri_mem_live_bytes();
  hr_explanation *whole, *pieces;
  hr_explainer *explainer;
  hr_error error;
  require(hr_explain_text(data, size, NULL, &whole, &error) == HR_OK);
  require(hr_explainer_create(NULL, &explainer, &error) == HR_OK);
  require(hr_explainer_feed(explainer, data, size / 2, &error) == HR_OK);
  require(hr_explainer_feed(explainer, data + size / 2, size - size / 2, &error) == HR_OK);
  require(hr_explainer_end(explainer, &pieces, &error) == HR_OK);
  require(whole->failure_count == pieces->failure_count && whole->more == pieces->more);
  for (uint32_t i = 0; i < whole->failure_count; i++) {
    check(&whole->failures[i]);
    require(whole->failures[i].cause == pieces->failures[i].cause &&
            whole->failures[i].line == pieces->failures[i].line);
  }
  hr_explanation_destroy(whole);
  hr_explanation_destroy(pieces);
  hr_explainer_destroy(explainer);
  require(hri_mem_live_bytes() == live);
  return 0;
}
