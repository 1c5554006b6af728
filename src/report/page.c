/* Two stages: data -> (raw, gzip, base64) -> file buffer -> file. */
#include <string.h>
#include <zlib.h>

#include "base/json.h"
#include "base/text.h"
#include "report/page.h"
#include "snapshot/sink.h"

enum { BUFFER_BYTES = 1 << 16, ZIP_LEVEL = 5 };

struct hri_page {
  hri_snapshot_sink file;
  hr_status status;
  hr_error error; /* of the first failure; the sink fills it too */
  z_stream zip;
  size_t used, raw_used; /* bytes in the buffers */
  uint64_t text, most;   /* of the data: bytes of base64 so far, and how many there may be */
  unsigned char rest[3]; /* compressed bytes that do not make a base64 group yet */
  uint32_t rest_count;
  unsigned char buffer[BUFFER_BYTES], raw[BUFFER_BYTES], zipped[BUFFER_BYTES];
};

bool hri_page_failed(const hri_page *page) { return page->status != HR_OK; }

void hri_page_fail(hri_page *page, hr_status status, const hr_error *error) {
  if (page->status != HR_OK || status == HR_OK) return;
  page->status = status;
  if (error) page->error = *error;
}

/* ---- File ---- */

hr_status hri_page_begin(const char *path, hri_page **out, hr_error *error) {
  hri_page *page = hri_alloc_zero(1, sizeof *page);
  hr_status status;
  if (!page) return hri_fail_memory(error, sizeof *page, "the report's buffers");
  status = hri_sink_init(&page->file, path, &page->error);
  if (status == HR_OK) {
    *out = page;
    return HR_OK;
  }
  if (error) *error = page->error;
  hri_free(page);
  return status;
}

static void flush_file(hri_page *page) {
  if (page->status == HR_OK) {
    hri_sink_put(&page->file, page->buffer, page->used);
    page->status = page->file.status;
  }
  page->used = 0;
}

hr_status hri_page_end(hri_page *page, hr_error *error) {
  hr_status status;
  if (page->zip.state) (void)deflateEnd(&page->zip);
  flush_file(page);
  if (page->status == HR_OK) page->status = hri_sink_end(&page->file);
  else hri_sink_deinit(&page->file);
  if (page->status != HR_OK && error) *error = page->error;
  status = page->status;
  hri_free(page);
  return status;
}

void hri_page_put(hri_page *page, const void *bytes, size_t count) {
  const unsigned char *from = bytes;
  while (count > 0) {
    size_t part = BUFFER_BYTES - page->used < count ? BUFFER_BYTES - page->used : count;
    memcpy(page->buffer + page->used, from, part);
    page->used += part;
    from += part;
    count -= part;
    if (page->used == BUFFER_BYTES) flush_file(page);
  }
}

static const char *escape_of(char c) {
  switch (c) {
  case '<': return "&lt;";
  case '>': return "&gt;";
  case '&': return "&amp;";
  case '"': return "&quot;";
  case '\'': return "&#39;";
  default: return (unsigned char)c < 0x20 && c != '\n' && c != '\t' ? "\xef\xbf\xbd" : NULL;
  }
}

void hri_page_put_text(hri_page *page, const char *text) {
  size_t left = strlen(text);
  while (left > 0) {
    size_t length = hri_utf8_sequence(text, left);
    const char *escape = length == 0 ? "\xef\xbf\xbd" : length == 1 ? escape_of(*text) : NULL;
    if (length == 0) length = 1;
    hri_page_put(page, escape ? escape : text, escape ? strlen(escape) : length);
    text += length;
    left -= length;
  }
}

/* ---- Data ---- */

static void *zip_alloc(void *unused, unsigned count, unsigned bytes_each) {
  (void)unused;
  return hri_alloc_zero(count, bytes_each);
}

static void zip_free(void *unused, void *memory) {
  (void)unused;
  hri_free(memory);
}

void hri_page_data_begin(hri_page *page, uint64_t most) {
  if (page->status != HR_OK) return;
  page->text = 0;
  page->most = most;
  page->zip.zalloc = zip_alloc;
  page->zip.zfree = zip_free;
  /* 15 + 16: the largest window, with a gzip header, which is what browsers take apart. */
  if (deflateInit2(&page->zip, ZIP_LEVEL, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY) != Z_OK) {
    page->zip.state = NULL;
    page->status = hri_fail_memory(&page->error, 1 << 18, "compressing the report");
  }
}

static void encode(const unsigned char from[3], unsigned char to[4]) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  uint32_t bits = (uint32_t)from[0] << 16 | (uint32_t)from[1] << 8 | from[2];
  int i;
  for (i = 0; i < 4; i++) to[i] = (unsigned char)digits[bits >> (18 - 6 * i) & 63];
}

static void put_base64(hri_page *page, const unsigned char *bytes, size_t count) {
  size_t i;
  for (i = 0; i < count; i++) {
    unsigned char four[4];
    page->rest[page->rest_count++] = bytes[i];
    if (page->rest_count < 3) continue;
    page->rest_count = 0;
    encode(page->rest, four);
    hri_page_put(page, four, 4);
  }
}

static void end_base64(hri_page *page) {
  unsigned char four[4];
  uint32_t count = page->rest_count;
  if (count == 0) return;
  memset(page->rest + count, 0, 3 - count);
  encode(page->rest, four);
  memset(four + count + 1, '=', 3 - count);
  hri_page_put(page, four, 4);
  page->rest_count = 0;
}

static void compress_raw(hri_page *page, int flush) {
  page->zip.next_in = page->raw;
  page->zip.avail_in = (unsigned)page->raw_used;
  page->raw_used = 0;
  if (page->status != HR_OK || !page->zip.state) return;
  do {
    page->zip.next_out = page->zipped;
    page->zip.avail_out = BUFFER_BYTES;
    (void)deflate(&page->zip, flush); /* cannot fail: the state is sound and there is room */
    put_base64(page, page->zipped, BUFFER_BYTES - page->zip.avail_out);
    page->text += (BUFFER_BYTES - page->zip.avail_out + 2) / 3 * 4;
  } while (page->zip.avail_out == 0 && page->text <= page->most);
  if (page->text <= page->most) return;
  page->status =
      hri_fail(&page->error, HR_ERROR_INPUT, "the page would hold more than %s of data, and no browser opens so much",
               hri_size_text(page->most, (char[32]){0}));
  (void)hri_hint(&page->error, page->status,
                 "inspect without --html, --export for one table of it, or record fewer events (max_entries)");
}

void hri_page_data_end(hri_page *page) {
  compress_raw(page, Z_FINISH);
  end_base64(page);
}

void hri_page_data(hri_page *page, const void *bytes, size_t count) {
  const unsigned char *from = bytes;
  while (count > 0) {
    size_t part = BUFFER_BYTES - page->raw_used < count ? BUFFER_BYTES - page->raw_used : count;
    memcpy(page->raw + page->raw_used, from, part);
    page->raw_used += part;
    from += part;
    count -= part;
    if (page->raw_used == BUFFER_BYTES) compress_raw(page, Z_NO_FLUSH);
  }
}

void hri_page_u64(hri_page *page, uint64_t value) {
  if (BUFFER_BYTES - page->raw_used < 10) compress_raw(page, Z_NO_FLUSH);
  while (value > 127) {
    page->raw[page->raw_used++] = (unsigned char)(value | 128);
    value >>= 7;
  }
  page->raw[page->raw_used++] = (unsigned char)value;
}
