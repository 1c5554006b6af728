/* UTF-8 (RFC 3629): overlong forms, surrogates and values above U+10FFFF are invalid (Unicode 16, table 3-7). */
#ifndef HRI_BASE_UTF8_H
#define HRI_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HRI_REPLACEMENT = 0xFFFD };

/* Decodes the sequence at `bytes` (`count` > 0 bytes are there): returns its bytes, 1..4. Invalid: *point is
 * HRI_REPLACEMENT and the bytes are the maximal part of a sequence (Unicode 16, 3.9, U+FFFD substitution), so that one
 * U+FFFD stands for them, as in Rust and Python; *valid says which. */
size_t hri_utf8_decode(const char *bytes, size_t count, uint32_t *point, bool *valid);
/* Writes 1..4 bytes; `point` is no surrogate and at most 0x10FFFF. */
size_t hri_utf8_encode(uint32_t point, char out[4]);
/* Length of the longest valid beginning; `count` when all is valid. */
size_t hri_utf8_valid(const char *bytes, size_t count);
/* Bytes of the valid sequence at `bytes` (1..4), or 0 when it is invalid or cut off. `count` > 0 bytes are there. */
size_t hri_utf8_sequence(const char *bytes, size_t count);
bool hri_utf8_whole(const char *text); /* all of it is valid */
/* Bytes of a byte order mark at the begin of a text: 3 or 0. */
static inline size_t hri_utf8_mark(const char *bytes, uint64_t count) {
  return count >= 3 && bytes[0] == '\xEF' && bytes[1] == '\xBB' && bytes[2] == '\xBF' ? 3 : 0;
}

/* The character that UTF-16 writes as two units, a high one (0xD800..0xDBFF) and a low one (0xDC00..0xDFFF). */
static inline bool hri_utf16_is_high(uint32_t unit) { return unit >= 0xD800 && unit < 0xDC00; }
static inline bool hri_utf16_is_low(uint32_t unit) { return unit >= 0xDC00 && unit < 0xE000; }
static inline uint32_t hri_utf16_pair(uint32_t high, uint32_t low) {
  return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
}

#endif
