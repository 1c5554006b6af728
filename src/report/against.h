/* Another inspection beside the one that a page shows: its levels over the same axis, and what differs. */
#ifndef HRI_REPORT_AGAINST_H
#define HRI_REPORT_AGAINST_H

#include <headroom/report.h>

#include "base/json.h"

/* The fact "against": what `options->before` is, its levels in at most 2,048 parts, and the differences of the live sets.
 * MEMORY is the only failure. */
hr_status hri_report_against(hri_json_writer *w, const hr_inspection *after, const hr_report_options *options,
                             hr_error *error);

#endif
