/* The answer to a refusal of the machine itself. */
#ifndef CLI_REFUSED_H
#define CLI_REFUSED_H

#include <headroom/job.h>
#include <headroom/status.h>

/* Prints on standard error why error->requested_bytes were not to be had, and planned alternatives for
 * error->available_bytes. Before the error itself, which the program prints last. */
void refused_explain(const hr_job *job, const hr_error *error);

#endif
