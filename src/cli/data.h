/* The options of data, from the configuration. */
#ifndef CLI_DATA_H
#define CLI_DATA_H

#include <headroom/data.h>

#include "cli/options.h"

/* Reads the escapes of the document separator; `*separator` (free it) holds what document_separator points to then.
 * USAGE names the
 * option. */
hr_status data_options(char **separator, hr_data_options *options, hr_error *error);

#endif
