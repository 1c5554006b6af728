/* Stacks, frames and strings that a report refers to, numbered by first use, so that a page carries no others. */
#ifndef HRI_REPORT_TABLES_H
#define HRI_REPORT_TABLES_H

#include <headroom/snapshot.h>

#include "report/page.h"

typedef struct hri_report_table {
  uint32_t *place; /* of an item of the snapshot: 1 + its number in the page; 0: not there */
  uint32_t *items; /* by number */
  uint32_t count, limit;
} hri_report_table;

typedef struct hri_report_tables {
  const hr_snapshot *snapshot;
  hri_report_table stacks, frames, strings; /* number 0 is the snapshot's item 0 where it has one */
} hri_report_tables;

hr_status hri_report_tables_init(hri_report_tables *tables, const hr_snapshot *snapshot, hr_error *error);
void hri_report_tables_deinit(hri_report_tables *tables); /* a zeroed one is fine */

uint32_t hri_report_stack(hri_report_tables *tables, uint32_t stack);
uint32_t hri_report_string(hri_report_tables *tables, uint32_t string);
/* Stacks, frames and strings, in this order; nothing may be placed afterwards. */
void hri_report_tables_put(hri_report_tables *tables, hri_page *page);

#endif
