/* A column of a Parquet file, value by value: its pages one at a time, unpacked, with their levels and the dictionary. A
 * page's header is believed only as far as bytes of the file stand for it: what it says to unpack to is bounded, numbers
 * of values are counted down, and places in the dictionary are looked up with care. */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "base/file.h"
#include "formats/parquet_inside.h"
#include "formats/snappy.h"
#include "formats/thrift.h"

enum {
  HEAD_BYTES = 16 << 10, /* of a page's header, read at first; some hold statistics with long texts */
  HEAD_MOST = 4 << 20,
  PAGE_MOST = 512 << 20, /* in the file, and unpacked */
  PAGE_FREE = 64 << 20,  /* beyond it at most so many times the packed bytes: */
  PAGE_RATIO = 500
};
enum { PAGE_DATA = 0, PAGE_INDEX = 1, PAGE_DICTIONARY = 2, PAGE_DATA_2 = 3 };
enum { PLAIN = 0, PLAIN_DICTIONARY = 2, RLE = 3, RLE_DICTIONARY = 8 };
enum { CODEC_NONE = 0, CODEC_SNAPPY = 1, CODEC_GZIP = 2, CODEC_ZSTD = 6 };

static hr_status damaged(const hri_parquet_column *c, hr_error *error, const char *what) {
  char text[300];
  (void)snprintf(text, sizeof text, "column '%.120s': %s", c->name, what);
  return hri_parquet_damaged(c->file, error, text);
}

static hr_status not_read(const hri_parquet_column *c, hr_error *error, const char *kind, const char *const *names,
                          int64_t count, int64_t number) {
  const char *name = number >= 0 && number < count && names[number] ? names[number] : "an unknown one";
  hr_status code = hri_fail(error, HR_ERROR_INPUT, "%s: column '%.120s': the %s of this Parquet file, %s, is not read",
                            c->file->path, c->name, kind, name);
  return hri_hint(error, code,
                  "write it anew: python3 -c \"import pyarrow.parquet as p; p.write_table(p.read_table('F'), 'NEW')\"");
}

static hr_status unread_codec(const hri_parquet_column *c, hr_error *error) {
  static const char *const names[] = {[3] = "LZO", [4] = "BROTLI", [5] = "LZ4", [7] = "LZ4_RAW"};
  return not_read(c, error, "compression", names, sizeof names / sizeof *names, c->chunk.codec);
}

static hr_status unread_encoding(const hri_parquet_column *c, int64_t encoding, hr_error *error) {
  static const char *const names[] = {[3] = "RLE",
                                      [4] = "BIT_PACKED",
                                      [5] = "DELTA_BINARY_PACKED",
                                      [6] = "DELTA_LENGTH_BYTE_ARRAY",
                                      [7] = "DELTA_BYTE_ARRAY",
                                      [9] = "BYTE_STREAM_SPLIT"};
  return not_read(c, error, "encoding", names, sizeof names / sizeof *names, encoding);
}

static hr_status reserve(hri_parquet_buffer *buffer, uint64_t bytes, hr_error *error) {
  if (hri_array_reserve_((void **)&buffer->at, &buffer->capacity, (size_t)bytes + 1, 1)) return HR_OK;
  return hri_fail_memory(error, bytes, "a page of a Parquet file");
}

/* ---- runs ---- */

static bool runs_varint(hri_parquet_runs *r, uint64_t *value) {
  *value = 0;
  for (unsigned shift = 0; shift < 63 && r->next < r->end; shift += 7) {
    uint8_t byte = *r->next++;
    *value |= (uint64_t)(byte & 127) << shift;
    if (byte < 128) return true;
  }
  return false;
}

static uint32_t low_bits(uint32_t width) { return width >= 32 ? UINT32_MAX : (1u << width) - 1; }

/* The next run. */
static bool runs_begin(hri_parquet_runs *r) {
  uint64_t head, bytes;
  if (!runs_varint(r, &head)) return false;
  r->packed = NULL;
  if (head & 1) { /* groups of eight */
    if (head >> 1 > (UINT64_C(1) << 40)) return false;
    r->left = (head >> 1) * 8;
    bytes = (head >> 1) * r->width;
    r->packed = r->next;
    r->at = 0;
  } else {
    r->left = head >> 1;
    bytes = (r->width + 7) / 8;
    r->value = 0;
    if ((uint64_t)(r->end - r->next) < bytes) return false;
    for (uint64_t k = 0; k < bytes; k++) r->value |= (uint32_t)r->next[k] << 8 * k;
    if (r->value > low_bits(r->width)) return false;
  }
  if ((uint64_t)(r->end - r->next) < bytes) return false;
  r->next += bytes;
  return true;
}

/* False behind the last one. */
static bool runs_next(hri_parquet_runs *r, uint32_t *value) {
  while (r->left == 0)
    if (!runs_begin(r)) return false;
  r->left--;
  *value = r->value;
  if (!r->packed) return true;
  *value = 0;
  for (uint32_t got = 0; got < r->width;) { /* bits of as many bytes as they lie in */
    uint32_t shift = (uint32_t)(r->at & 7), take = 8 - shift < r->width - got ? 8 - shift : r->width - got;
    *value |= (uint32_t)(r->packed[r->at >> 3] >> shift & ((1u << take) - 1)) << got;
    got += take;
    r->at += take;
  }
  return true;
}

static hri_parquet_runs runs_of(const uint8_t *next, const uint8_t *end, uint32_t width) {
  return (hri_parquet_runs){.next = next, .end = end, .width = width};
}

static uint32_t width_of(uint32_t most) {
  uint32_t width = 0;
  for (; most > 0; most >>= 1) width++;
  return width;
}

static uint32_t read_u32(const uint8_t *at) {
  return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* ---- unpacking ---- */

/* One member, or several behind each other (Compression.md, GZIP), until there is what the page says; what stands behind
 * that is not looked at, nor is anything where nothing is wanted, as in Arrow (util/compression_zlib.cc). */
static bool gzip_unpack(const uint8_t *from, uint64_t count, uint8_t *to, uint64_t bytes) {
  z_stream z = {.next_in = (Bytef *)(uintptr_t)from, .avail_in = (uInt)count, .next_out = to, .avail_out = (uInt)bytes};
  int result;
  if (bytes == 0) return true;
  result = inflateInit2(&z, 15 + 32);
  if (result != Z_OK) return false;
  do result = inflate(&z, Z_FINISH);
  while (result == Z_STREAM_END && z.avail_out > 0 && z.avail_in > 0 && inflateReset(&z) == Z_OK);
  (void)inflateEnd(&z);
  return result == Z_STREAM_END && z.avail_out == 0;
}

static hr_status unpack(const hri_parquet_column *c, const uint8_t *from, uint64_t count, uint8_t *to, uint64_t bytes,
                        hr_error *error) {
  bool good = false;
  switch (c->chunk.codec) {
  case CODEC_NONE:
    good = count == bytes;
    if (good && bytes > 0) memcpy(to, from, bytes);
    break;
  case CODEC_SNAPPY: good = hri_snappy_unpack(from, count, to, bytes); break;
  case CODEC_GZIP: good = gzip_unpack(from, count, to, bytes); break;
  case CODEC_ZSTD: good = ZSTD_decompress(to, bytes, from, count) == bytes; break;
  default: return unread_codec(c, error);
  }
  return good ? HR_OK : damaged(c, error, "a page cannot be unpacked");
}

/* ---- page headers ---- */

typedef struct page {
  int64_t type, unpacked, packed, crc;
  bool has_crc, has_data;
  int64_t values, encoding, definition_encoding, repetition_encoding; /* of data and dictionary */
  int64_t definition_bytes, repetition_bytes;                         /* of version 2 */
  bool is_packed;                                                     /* likewise */
} page;

/* DataPageHeader, DictionaryPageHeader and DataPageHeaderV2 begin alike. */
static void read_page_data(hri_thrift *t, hri_thrift_type type, bool second, page *p) {
  int32_t id = 0;
  if (!hri_thrift_struct(t, type)) return;
  p->has_data = true;
  p->is_packed = true;
  while (hri_thrift_field(t, &id, &type)) {
    if (id == 1) p->values = hri_thrift_integer(t, type);
    else if (id == (second ? 4 : 2)) p->encoding = hri_thrift_integer(t, type);
    else if (id == 3 && !second && type == HRI_THRIFT_I32) p->definition_encoding = hri_thrift_integer(t, type);
    else if (id == 4 && !second) p->repetition_encoding = hri_thrift_integer(t, type);
    else if (id == 5 && second) p->definition_bytes = hri_thrift_integer(t, type);
    else if (id == 6 && second) p->repetition_bytes = hri_thrift_integer(t, type);
    else if (id == 7 && second) p->is_packed = hri_thrift_flag(t, type);
    else hri_thrift_skip(t, type);
  }
}

static page parse_page(hri_thrift *t) {
  page p = {.type = -1, .definition_encoding = RLE, .repetition_encoding = RLE};
  hri_thrift_type type;
  int32_t id = 0;
  while (hri_thrift_field(t, &id, &type)) {
    switch (id) {
    case 1: p.type = hri_thrift_integer(t, type); break;
    case 2: p.unpacked = hri_thrift_integer(t, type); break;
    case 3: p.packed = hri_thrift_integer(t, type); break;
    case 4:
      p.crc = hri_thrift_integer(t, type);
      p.has_crc = true;
      break;
    case 5:
    case 7: read_page_data(t, type, false, &p); break;
    case 8: read_page_data(t, type, true, &p); break;
    default: hri_thrift_skip(t, type);
    }
  }
  return p;
}

static hr_status check_page(const hri_parquet_column *c, const page *p, hr_error *error) {
  uint64_t left = c->chunk.end - c->chunk.begin;
  if (p->type < 0 || p->packed < 0 || p->unpacked < 0 || (uint64_t)p->packed > left)
    return damaged(c, error, "a page is not where it should be");
  if (p->packed > PAGE_MOST) return damaged(c, error, "a page is longer than any is");
  if (p->unpacked > PAGE_MOST || (p->unpacked > PAGE_FREE && p->unpacked / PAGE_RATIO > p->packed))
    return damaged(c, error, "a page unpacks to more than any does");
  if (p->type != PAGE_INDEX && (!p->has_data || p->values < 0))
    return damaged(c, error, "a page does not say what is in it");
  if (p->type == PAGE_DATA_2 &&
      (p->definition_bytes < 0 || p->repetition_bytes < 0 || p->definition_bytes > p->packed ||
       p->repetition_bytes > p->packed - p->definition_bytes ||
       p->definition_bytes + p->repetition_bytes > p->unpacked))
    return damaged(c, error, "the levels of a page are longer than it");
  return HR_OK;
}

/* The header where the chunk goes on, which moves behind it. */
static hr_status read_header(hri_parquet_column *c, page *p, hr_error *error) {
  for (uint64_t want = HEAD_BYTES;; want *= 4) {
    uint64_t left = c->chunk.end - c->chunk.begin, count = left < want ? left : want;
    hri_thrift t;
    HRI_TRY(reserve(&c->head, count, error));
    HRI_TRY(hri_file_pread(c->file->fd, c->file->path, c->head.at, count, c->chunk.begin, error));
    t = (hri_thrift){.next = c->head.at, .end = c->head.at + count};
    *p = parse_page(&t);
    if (!t.failed) {
      c->chunk.begin += (uint64_t)(t.next - c->head.at);
      return check_page(c, p, error);
    }
    if (!t.at_end || count == left || want >= HEAD_MOST)
      return damaged(c, error, "the header of a page cannot be read");
  }
}

/* The bytes of a page, as they lie in the file. */
static hr_status read_raw(hri_parquet_column *c, const page *p, hr_error *error) {
  uint64_t count = (uint64_t)p->packed;
  HRI_TRY(reserve(&c->raw, count, error));
  HRI_TRY(hri_file_pread(c->file->fd, c->file->path, c->raw.at, count, c->chunk.begin, error));
  c->chunk.begin += count;
  if (p->has_crc && (uint32_t)crc32(0, c->raw.at, (uInt)count) != (uint32_t)p->crc)
    return damaged(c, error, "the checksum of a page is another");
  return HR_OK;
}

/* ---- the dictionary ---- */

static uint32_t width_of_type(uint8_t type) {
  return type == HRI_PARQUET_INT32 || type == HRI_PARQUET_FLOAT ? 4 : type == HRI_PARQUET_BYTE_ARRAY ? 0 : 8;
}

/* Where each text begins, behind its length. */
static hr_status find_texts(hri_parquet_column *c, uint64_t bytes, hr_error *error) {
  uint64_t at = 0;
  if (!hri_array_reserve_((void **)&c->offsets, &c->offset_capacity, c->dictionary_count + 1, sizeof *c->offsets))
    return hri_fail_memory(error, c->dictionary_count * sizeof *c->offsets, "the dictionary of a Parquet file");
  for (uint64_t k = 0; k < c->dictionary_count; k++) {
    uint32_t length;
    if (bytes - at < 4) return damaged(c, error, "its dictionary is shorter than it says");
    length = read_u32(c->dictionary.at + at);
    if (length > bytes - at - 4) return damaged(c, error, "its dictionary is shorter than it says");
    c->offsets[k] = (uint32_t)at;
    at += 4 + (uint64_t)length;
  }
  return HR_OK;
}

static hr_status read_dictionary(hri_parquet_column *c, const page *p, hr_error *error) {
  uint64_t bytes = (uint64_t)p->unpacked, least = width_of_type(c->type) ? width_of_type(c->type) : 4;
  if (p->encoding != PLAIN && p->encoding != PLAIN_DICTIONARY) return unread_encoding(c, p->encoding, error);
  if (c->type == HRI_PARQUET_BOOLEAN || (uint64_t)p->values > bytes / least)
    return damaged(c, error, "its dictionary is shorter than it says");
  HRI_TRY(reserve(&c->dictionary, bytes, error));
  HRI_TRY(unpack(c, c->raw.at, (uint64_t)p->packed, c->dictionary.at, bytes, error));
  c->dictionary_count = (uint64_t)p->values;
  return least == 4 && c->type == HRI_PARQUET_BYTE_ARRAY ? find_texts(c, bytes, error) : HR_OK;
}

/* ---- data pages ---- */

/* Levels of version 1: a length and runs, in front of what is left of the page. */
static hr_status take_levels(hri_parquet_column *c, uint32_t most, int64_t encoding, hri_parquet_runs *levels,
                             hr_error *error) {
  uint32_t length;
  if (most == 0) return HR_OK;
  if (encoding != RLE) return unread_encoding(c, encoding, error);
  if (c->value_end - c->value_next < 4) return damaged(c, error, "a page is shorter than it says");
  length = read_u32(c->value_next);
  c->value_next += 4;
  if ((uint64_t)(c->value_end - c->value_next) < length) return damaged(c, error, "a page is shorter than it says");
  *levels = runs_of(c->value_next, c->value_next + length, width_of(most));
  c->value_next += length;
  return HR_OK;
}

static hr_status open_data_1(hri_parquet_column *c, const page *p, hr_error *error) {
  HRI_TRY(reserve(&c->page, (uint64_t)p->unpacked, error));
  HRI_TRY(unpack(c, c->raw.at, (uint64_t)p->packed, c->page.at, (uint64_t)p->unpacked, error));
  c->value_next = c->page.at;
  c->value_end = c->page.at + p->unpacked;
  HRI_TRY(take_levels(c, c->max_repetition, p->repetition_encoding, &c->repetitions, error));
  return take_levels(c, c->max_definition, p->definition_encoding, &c->definitions, error);
}

/* Levels of version 2 stand unpacked in front of the values. */
static hr_status open_data_2(hri_parquet_column *c, page *p, hr_error *error) {
  uint64_t first = (uint64_t)p->repetition_bytes, levels = first + (uint64_t)p->definition_bytes;
  uint64_t count = (uint64_t)p->packed - levels, bytes = (uint64_t)p->unpacked - levels;
  int32_t codec = c->chunk.codec;
  hr_status status;
  HRI_TRY(reserve(&c->page, (uint64_t)p->unpacked, error));
  if (levels > 0) memcpy(c->page.at, c->raw.at, levels);
  if (!p->is_packed) c->chunk.codec = CODEC_NONE;
  status = bytes == 0 && count == 0 ? HR_OK : unpack(c, c->raw.at + levels, count, c->page.at + levels, bytes, error);
  c->chunk.codec = codec;
  c->value_next = c->page.at + levels;
  c->value_end = c->page.at + p->unpacked;
  c->repetitions = runs_of(c->page.at, c->page.at + first, width_of(c->max_repetition));
  c->definitions = runs_of(c->page.at + first, c->page.at + levels, width_of(c->max_definition));
  return status;
}

/* How the values of a page are read. */
static hr_status open_values(hri_parquet_column *c, const page *p, hr_error *error) {
  uint32_t length;
  c->by_index = p->encoding == RLE_DICTIONARY || p->encoding == PLAIN_DICTIONARY;
  c->by_runs = p->encoding == RLE && c->type == HRI_PARQUET_BOOLEAN;
  c->bit = 0;
  if (c->by_index) { /* a page of nothing but nulls may have no width either */
    uint32_t width = c->value_next < c->value_end ? *c->value_next++ : 0;
    if (width > 32) return damaged(c, error, "places in its dictionary have more than 32 bits");
    c->indices = runs_of(c->value_next, c->value_end, width);
    return HR_OK;
  }
  if (!c->by_runs) return p->encoding == PLAIN ? HR_OK : unread_encoding(c, p->encoding, error);
  length = c->value_end - c->value_next >= 4 ? read_u32(c->value_next) : 0;
  if (c->value_end - c->value_next < 4 || (uint64_t)(c->value_end - c->value_next - 4) < length)
    return damaged(c, error, "a page is shorter than it says");
  c->indices = runs_of(c->value_next + 4, c->value_next + 4 + length, 1);
  return HR_OK;
}

static hr_status open_data(hri_parquet_column *c, page *p, hr_error *error) {
  if ((uint64_t)p->values > c->chunk.value_count) return damaged(c, error, "its pages have more values than it says");
  c->chunk.value_count -= (uint64_t)p->values;
  c->page_left = (uint64_t)p->values;
  HRI_TRY(p->type == PAGE_DATA ? open_data_1(c, p, error) : open_data_2(c, p, error));
  return open_values(c, p, error);
}

static hr_status next_page(hri_parquet_column *c, hr_error *error) {
  page p;
  if (c->chunk.begin >= c->chunk.end) return damaged(c, error, "its pages have fewer values than it says");
  HRI_TRY(read_header(c, &p, error));
  HRI_TRY(read_raw(c, &p, error));
  switch (p.type) {
  case PAGE_DATA:
  case PAGE_DATA_2: return open_data(c, &p, error);
  case PAGE_DICTIONARY: return read_dictionary(c, &p, error);
  default: return HR_OK; /* an index, or what later versions add: nothing of it is needed */
  }
}

/* ---- values ---- */

static hr_status take_text(hri_parquet_column *c, const uint8_t **next, const uint8_t *end, hr_error *error) {
  uint32_t length;
  if (end - *next < 4) return damaged(c, error, "a page is shorter than it says");
  length = read_u32(*next);
  if ((uint64_t)(end - *next - 4) < length) return damaged(c, error, "a page is shorter than it says");
  c->value = *next + 4;
  c->value_bytes = length;
  *next += 4 + (size_t)length;
  return HR_OK;
}

static hr_status take_indexed(hri_parquet_column *c, hr_error *error) {
  uint32_t index, width = width_of_type(c->type);
  if (!runs_next(&c->indices, &index)) return damaged(c, error, "a page has fewer values than it says");
  if (index >= c->dictionary_count) return damaged(c, error, "a value is not in its dictionary");
  c->value_bytes = width;
  c->value = c->dictionary.at + (uint64_t)index * width;
  if (width > 0) return HR_OK;
  c->value = c->dictionary.at + c->offsets[index] + 4; /* find_texts looked at its length */
  c->value_bytes = read_u32(c->dictionary.at + c->offsets[index]);
  return HR_OK;
}

static hr_status take_truth(hri_parquet_column *c, hr_error *error) {
  uint32_t value;
  if (c->by_runs) {
    if (!runs_next(&c->indices, &value)) return damaged(c, error, "a page has fewer values than it says");
  } else {
    if (c->value_next == c->value_end) return damaged(c, error, "a page is shorter than it says");
    value = *c->value_next >> c->bit & 1u;
    c->value_next += ++c->bit == 8;
    c->bit &= 7;
  }
  c->truth = (uint8_t)value;
  c->value = &c->truth;
  c->value_bytes = 1;
  return HR_OK;
}

static hr_status take_value(hri_parquet_column *c, hr_error *error) {
  uint32_t width = width_of_type(c->type);
  if (c->by_index) return take_indexed(c, error);
  if (c->type == HRI_PARQUET_BOOLEAN) return take_truth(c, error);
  if (width == 0) return take_text(c, &c->value_next, c->value_end, error);
  if (c->value_end - c->value_next < (ptrdiff_t)width) return damaged(c, error, "a page is shorter than it says");
  c->value = c->value_next;
  c->value_bytes = width;
  c->value_next += width;
  return HR_OK;
}

hr_status hri_parquet_column_next(hri_parquet_column *c, hr_error *error) {
  while (c->page_left == 0) {
    c->ended = c->chunk.value_count == 0;
    if (c->ended) return HR_OK;
    HRI_TRY(next_page(c, error));
  }
  c->page_left--;
  c->repetition = c->definition = 0;
  if ((c->max_repetition > 0 && !runs_next(&c->repetitions, &c->repetition)) ||
      (c->max_definition > 0 && !runs_next(&c->definitions, &c->definition)))
    return damaged(c, error, "a page has fewer levels than values");
  if (c->repetition > c->max_repetition || c->definition > c->max_definition)
    return damaged(c, error, "a level is higher than any of its schema");
  c->value = NULL;
  return c->definition == c->max_definition ? take_value(c, error) : HR_OK;
}

hr_status hri_parquet_column_begin(hri_parquet_column *c, const hri_parquet_chunk *chunk, hr_error *error) {
  c->chunk = *chunk;
  c->page_left = 0;
  c->dictionary_count = 0;
  c->ended = false;
  return hri_parquet_column_next(c, error);
}

void hri_parquet_column_deinit(hri_parquet_column *c) {
  hri_free(c->raw.at);
  hri_free(c->page.at);
  hri_free(c->head.at);
  hri_free(c->dictionary.at);
  hri_free(c->offsets);
  hri_free((void *)(uintptr_t)c->name);
}
