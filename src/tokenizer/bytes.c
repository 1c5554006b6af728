/* The byte alphabet of GPT-2 (openai/gpt-2, src/encoder.py, bytes_to_unicode): bytes that are visible in Latin-1 stand
 * for themselves, the other 68 for U+0100 and up, in order. */
#include "tokenizer/bpe.h"

#define ROW16(n)                                                                                                       \
  n, n + 1, n + 2, n + 3, n + 4, n + 5, n + 6, n + 7, n + 8, n + 9, n + 10, n + 11, n + 12, n + 13, n + 14, n + 15

const uint16_t hri_byte_chars[256] = {ROW16(0x100), ROW16(0x110), 0x120,        0x21,         0x22,        0x23,
                                      0x24,         0x25,         0x26,         0x27,         0x28,        0x29,
                                      0x2A,         0x2B,         0x2C,         0x2D,         0x2E,        0x2F,
                                      ROW16(0x30),  ROW16(0x40),  ROW16(0x50),  ROW16(0x60),  0x70,        0x71,
                                      0x72,         0x73,         0x74,         0x75,         0x76,        0x77,
                                      0x78,         0x79,         0x7A,         0x7B,         0x7C,        0x7D,
                                      0x7E,         0x121,        ROW16(0x122), ROW16(0x132), 0x142,       0xA1,
                                      0xA2,         0xA3,         0xA4,         0xA5,         0xA6,        0xA7,
                                      0xA8,         0xA9,         0xAA,         0xAB,         0xAC,        0x143,
                                      0xAE,         0xAF,         ROW16(0xB0),  ROW16(0xC0),  ROW16(0xD0), ROW16(0xE0),
                                      ROW16(0xF0)};

int hri_char_byte(uint32_t character) {
  if (character >= 0x100 && character <= 0x143) {
    uint32_t n = character - 0x100;
    return (int)(n <= 0x20 ? n : n <= 0x42 ? n - 0x21 + 0x7F : 0xAD);
  }
  return character < 0x100 && hri_byte_chars[character] == character ? (int)character : -1;
}

void hri_bytes_map(hri_text *text, const char *bytes, uint64_t count) {
  char buffer[512];
  uint32_t used = 0;
  for (uint64_t i = 0; i < count; i++) {
    uint32_t c = hri_byte_chars[(unsigned char)bytes[i]];
    if (used + 2 > sizeof buffer) {
      hri_text_add_bytes(text, buffer, used);
      used = 0;
    }
    if (c >= 0x80) buffer[used++] = (char)(0xC0 | c >> 6);
    buffer[used++] = (char)(c >= 0x80 ? 0x80 | (c & 63) : c);
  }
  hri_text_add_bytes(text, buffer, used);
}
