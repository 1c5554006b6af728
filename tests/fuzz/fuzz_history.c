/* The reader of history files on any bytes: an INPUT error that names the place, or a snapshot whose blocks tile its
 * segments and whose numbers all point at something. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/account.h"
#include "snapshot/history_format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds) {
  if (!holds) abort();
}

static void check_segments(const hr_snapshot *s) {
  for (uint64_t k = 0; k < s->segment_count; k++) {
    const hr_segment *g = &s->segments[k];
    uint64_t at = g->address;
    require(g->stack < s->stack_count && g->pool < s->pool_count);
    require(!k || s->segments[k - 1].address + s->segments[k - 1].total_size <= g->address);
    require(g->first_block + g->block_count <= s->block_count);
    for (uint64_t n = 0; n < g->block_count; n++) {
      const hr_block *b = &s->blocks[g->first_block + n];
      require(b->address == at && b->size > 0 && b->stack < s->stack_count && b->category < s->category_count);
      at += b->size;
    }
    require(at == g->address + g->total_size);
  }
}

static void check_rest(const hr_snapshot *s) {
  for (uint64_t k = 0; k < s->event_count; k++) {
    const hr_trace_event *e = &s->events[k];
    require(e->stack < s->stack_count && e->pool < s->pool_count && e->category < s->category_count &&
            e->action < HR_TRACE_ACTION_COUNT);
  }
  for (uint32_t k = 0; k < s->frame_count; k++)
    require(s->frames[k].name < s->string_count && s->frames[k].file < s->string_count);
  require(s->settings.text < s->string_count && strcmp(s->format, "headroom") == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const uint64_t live = hri_mem_live_bytes();
  hr_snapshot *s = NULL;
  hr_error error = {0};
  hri_account account;
  hr_status status;
  hri_account_begin(&account, UINT64_C(64) << 20);
  status = hri_account_end(&account, hri_history_parse(data, size, "input", &s, &error), "input", &error);
  if (status == HR_OK) {
    require(hri_history_recognise(data, size));
    check_segments(s);
    check_rest(s);
  } else {
    require(!s && (status == HR_ERROR_INPUT || status == HR_ERROR_MEMORY) && error.message[0]);
    require(status != HR_ERROR_INPUT || strstr(error.message, "input: history: byte "));
  }
  hr_snapshot_destroy(s);
  require(hri_mem_live_bytes() == live);
  return 0;
}
