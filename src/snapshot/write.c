#include "base/error.h"
#include "snapshot/layout.h"
#include "snapshot/sink.h"

/* The viewer makes doubles of all integers. */
#define LARGEST_NUMBER (((uint64_t)1 << 53) - 1)

void hr_snapshot_write_options_init(hr_snapshot_write_options *options) { *options = (hr_snapshot_write_options){0}; }

hr_status hr_snapshot_write(const hr_snapshot *snapshot, const char *path, const hr_snapshot_write_options *options,
                            hr_error *error) {
  const int protocol = options && options->protocol ? options->protocol : 4;
  hri_snapshot_sink sink;
  if (protocol < 2 || protocol > 4) {
    hri_fail(error, HR_ERROR_USAGE, "pickle protocol %d cannot be written", protocol);
    return hri_hint(error, HR_ERROR_USAGE, "PyTorch's viewer reads protocols 2 to 4");
  }
  HRI_TRY(hri_layout_check(snapshot, LARGEST_NUMBER, error));
  HRI_TRY(hri_sink_init(&sink, path, error));
  hri_layout_put_pickle(snapshot, protocol, &sink);
  return hri_sink_end(&sink);
}
