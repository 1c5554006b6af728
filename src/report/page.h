/* The file that a report becomes: plain bytes, and within them one stretch of data that is compressed (gzip) and
 * written as base64. All is streamed: nothing is held but two buffers. Errors stick: the first is told by
 * hri_page_end. */
#ifndef HRI_REPORT_PAGE_H
#define HRI_REPORT_PAGE_H

#include "base/mem.h"

typedef struct hri_page hri_page;

/* `path` must outlive the page. The file takes its name at hri_page_end only. */
hr_status hri_page_begin(const char *path, hri_page **page, hr_error *error);
/* Moves the file into place when nothing failed, else removes it. Frees the page; returns the first failure. */
hr_status hri_page_end(hri_page *page, hr_error *error);
bool hri_page_failed(const hri_page *page);
void hri_page_fail(hri_page *page, hr_status status,
                   const hr_error *error); /* a failure of what was to be written; HR_OK is none */

void hri_page_put(hri_page *page, const void *bytes, size_t count);
/* Text as it may stand between tags or in a quoted attribute; invalid UTF-8 and control characters become U+FFFD. */
void hri_page_put_text(hri_page *page, const char *text);

/* The data as text is at most `most` bytes long, or the page fails and is not made. */
void hri_page_data_begin(hri_page *page, uint64_t most);
void hri_page_data_end(hri_page *page);
/* Within begin and end. Numbers are LEB128; signed ones are folded (0, -1, 1, -2, ...) before. */
void hri_page_data(hri_page *page, const void *bytes, size_t count);
void hri_page_u64(hri_page *page, uint64_t value);
static inline void hri_page_i64(hri_page *page, uint64_t value) {
  hri_page_u64(page, value << 1 ^ (0 - (value >> 63)));
}

#endif
