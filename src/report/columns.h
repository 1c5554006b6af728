/* The event data of a page: times, allocations as lives, segments. src/report/page.data.js reads it in the same order.
 *
 * A column holds one number of every row, so that like follows like and compresses well; most are differences to the
 * row before. Ten million events are about 90 MB of columns and a quarter of it in the file. */
#ifndef HRI_REPORT_COLUMNS_H
#define HRI_REPORT_COLUMNS_H

#include "inspect/lives.h"
#include "report/tables.h"

/* Addresses are written as multiples of 1 << shift above `base`. */
typedef struct hri_report_addresses {
  uint64_t base;
  uint32_t shift;
} hri_report_addresses;

typedef struct hri_report_columns {
  const hr_inspection *in;
  const hri_lives *lives;
  const hri_state *start; /* before event 0 */
  int64_t first_time_us;  /* of the first event that has one */
  hri_report_addresses addresses;
} hri_report_columns;

hri_report_addresses hri_report_addresses_of(const hri_lives *lives, const hri_state *start);
void hri_report_columns_put(const hri_report_columns *columns, hri_report_tables *tables, hri_page *page);

#endif
