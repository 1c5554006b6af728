/* What the page shows besides its columns, as one JSON object; and the verdict in words. */
#ifndef HRI_REPORT_FACTS_H
#define HRI_REPORT_FACTS_H

#include <headroom/report.h>

#include "base/text.h"
#include "inspect/lives.h"
#include "report/tables.h"

/* Places the stacks that it names in `tables`. MEMORY is the only failure. */
hr_status hri_report_facts(const hr_inspection *in, const hri_lives *lives, const hr_report_options *options,
                           hri_report_tables *tables, hri_text *json, hr_error *error);

/* One paragraph from the inspection alone: what happened, how much was live, whether free memory could have served. */
void hri_report_verdict(const hr_inspection *in, hri_text *text);

#endif
