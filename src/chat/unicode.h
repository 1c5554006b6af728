/* Characters as Python's str sees them. Texts are valid UTF-8. */
#ifndef HRI_CHAT_UNICODE_H
#define HRI_CHAT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

/* The code point at `at`, whose bytes are `*bytes`; and the code point that ends before `at`. */
uint32_t hri_decode(const char *at, size_t *bytes);
uint32_t hri_decode_back(const char *at, size_t *bytes);
size_t hri_encode(uint32_t code, char out[4]);
uint64_t hri_count_codes(const char *chars, size_t bytes);
/* The byte where the index-th code point begins; `bytes` when there are fewer. */
size_t hri_code_offset(const char *chars, size_t bytes, uint64_t index);

bool hri_is_space(uint32_t code);    /* str.isspace, which str.strip and str.split go by */
bool hri_is_line_end(uint32_t code); /* where str.splitlines cuts */
bool hri_is_alpha(uint32_t code);
bool hri_is_decimal(uint32_t code);
bool hri_is_digit(uint32_t code);
bool hri_is_alnum(uint32_t code);
bool hri_is_lower(uint32_t code);
bool hri_is_upper(uint32_t code);
bool hri_is_title(uint32_t code);
bool hri_is_printable(uint32_t code);

typedef enum hri_case { HRI_LOWER, HRI_UPPER, HRI_TITLE } hri_case;
/* Adds a character in another case, which may take several (the sharp s in upper case). */
void hri_add_cased(hri_text *text, uint32_t code, hri_case to);
/* A text of `bytes` from one byte to another: what stands around that part decides whether a sigma in it is final. */
void hri_add_lower(hri_text *text, const char *chars, size_t bytes, size_t from, size_t to);

#endif
