#include <string.h>

#include <headroom/inspect.h>

#include "report/tables.h"

static hr_status init(hri_report_table *table, uint32_t limit, hr_error *error) {
  table->place = hri_alloc_zero(limit ? limit : 1, sizeof *table->place);
  table->items = hri_alloc_zero(limit ? limit : 1, sizeof *table->items);
  table->limit = limit;
  if (!table->place || !table->items) return hri_fail_memory(error, (uint64_t)limit * 8, "the report's tables");
  if (limit > 0) {
    table->place[0] = 1;
    table->count = 1;
  }
  return HR_OK;
}

/* An item that the snapshot does not have becomes number 0, "none". */
static uint32_t place(hri_report_table *table, uint32_t item) {
  if (item >= table->limit) return 0;
  if (table->place[item] == 0) {
    table->items[table->count++] = item;
    table->place[item] = table->count;
  }
  return table->place[item] - 1;
}

hr_status hri_report_tables_init(hri_report_tables *tables, const hr_snapshot *snapshot, hr_error *error) {
  tables->snapshot = snapshot;
  HRI_TRY(init(&tables->stacks, snapshot->stack_count, error));
  HRI_TRY(init(&tables->frames, snapshot->frame_count, error));
  return init(&tables->strings, snapshot->string_count, error);
}

static void deinit(hri_report_table *table) {
  hri_free(table->place);
  hri_free(table->items);
}

void hri_report_tables_deinit(hri_report_tables *tables) {
  deinit(&tables->stacks);
  deinit(&tables->frames);
  deinit(&tables->strings);
}

uint32_t hri_report_stack(hri_report_tables *tables, uint32_t stack) { return place(&tables->stacks, stack); }
uint32_t hri_report_string(hri_report_tables *tables, uint32_t string) { return place(&tables->strings, string); }

static void put_string(hri_page *page, const char *text) {
  size_t length = strlen(text);
  hri_page_u64(page, length);
  hri_page_data(page, text, length);
}

static void put_stacks(hri_report_tables *tables, hri_page *page) {
  const hr_snapshot *s = tables->snapshot;
  char brief[160];
  uint32_t i, f;
  hri_page_u64(page, tables->stacks.count);
  for (i = 0; i < tables->stacks.count; i++) {
    const hr_stack *stack = &s->stacks[tables->stacks.items[i]];
    hri_page_u64(page, stack->count);
    for (f = 0; f < stack->count; f++) hri_page_u64(page, place(&tables->frames, s->stack_frames[stack->first + f]));
    hr_inspect_stack_text(s, tables->stacks.items[i], brief, sizeof brief);
    put_string(page, brief);
  }
}

static void put_frames(hri_report_tables *tables, hri_page *page) {
  uint32_t i;
  hri_page_u64(page, tables->frames.count);
  for (i = 0; i < tables->frames.count; i++) {
    const hr_frame *frame = &tables->snapshot->frames[tables->frames.items[i]];
    hri_page_u64(page, place(&tables->strings, frame->name));
    hri_page_u64(page, place(&tables->strings, frame->file));
    hri_page_u64(page, frame->line);
  }
}

void hri_report_tables_put(hri_report_tables *tables, hri_page *page) {
  uint32_t i;
  put_stacks(tables, page);
  put_frames(tables, page);
  hri_page_u64(page, tables->strings.count);
  for (i = 0; i < tables->strings.count; i++)
    put_string(page, hr_snapshot_string(tables->snapshot, tables->strings.items[i]));
}
