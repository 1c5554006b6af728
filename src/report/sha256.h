/* SHA-256 (FIPS 180-4), for the content security policy of a page: a browser runs only the script with this hash. */
#ifndef HRI_REPORT_SHA256_H
#define HRI_REPORT_SHA256_H

#include <stddef.h>
#include <stdint.h>

void hri_sha256(const void *bytes, size_t count, uint8_t digest[32]);

#endif
