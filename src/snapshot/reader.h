/* The two notations of snapshots. Each reads the whole source and leaves the value that it is. */
#ifndef HRI_SNAPSHOT_READER_H
#define HRI_SNAPSHOT_READER_H

#include "snapshot/decode.h"
#include "snapshot/source.h"

hr_status hri_read_pickle(hri_snapshot_decoder *d, hri_snapshot_source *source, hri_decoded *whole);
/* The text of a numeric or string opcode of protocol 0, which ends with a newline. (pickle_text.c) */
hr_status hri_read_pickle_text(hri_snapshot_decoder *d, int opcode, const char *line, uint64_t count,
                               hri_decoded *value);
/* d->scan is set while it runs. */
hr_status hri_read_json(hri_snapshot_decoder *d, hri_snapshot_source *source, hri_decoded *whole);
/* What the profiler leaves; the scanner stands at the list of events, or of rows. (profile_read.c) A trace in an object
 * is read to the object's end. `base_ns` is added to all times, unless the object says otherwise behind the events. */
hr_status hri_read_chrome_trace(hri_snapshot_decoder *d, hri_json_scan *scan, bool in_object, double base_ns);
hr_status hri_read_raw_timeline(hri_snapshot_decoder *d, hri_json_scan *scan);

/* hr_snapshot_foreign of plain bytes. (foreign.c) */
const hr_foreign *hri_foreign_of(const unsigned char *bytes, uint64_t count);

#endif
