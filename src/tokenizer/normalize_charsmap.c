/* The Precompiled normalizer of tokenizer.json: a character map of SentencePiece as the crate spm_precompiled applies it.
 *
 * That is not what SentencePiece itself does. The text is taken by grapheme clusters: one of less than 6 bytes becomes,
 * as a whole, what the shortest key at its begin becomes; where there is no such key, and in longer ones, each character
 * is looked up so. Origins of characters follow from counts of characters alone (see hri_normal_char), also where they
 * go wrong: characters that vanish before anything was written are not counted. */
#include <string.h>

#include <utf8proc.h>

#include "tokenizer/charsmap.h"
#include "tokenizer/normalize_internal.h"
#include "tokenizer/unicode.h"
#include "tokenizer/vocab.h"

enum { GRAPHEME_BYTES = 6 };

/* What was written last waits, since characters that vanish behind it count for it. */
typedef struct output {
  hri_normal_writer writer;
  uint64_t cursor; /* the old character that the next one replaces */
  char bytes[4];
  uint32_t count; /* bytes of the character that waits; 0: none */
  int32_t change;
} output;

static uint64_t skip_chars(const hri_normal *normal, uint64_t at, int32_t count) {
  while (count-- > 0 && at < normal->bytes) {
    at++;
    while (at < normal->bytes && ((uint8_t)normal->text[at] & 0xC0) == 0x80) at++;
  }
  return at;
}

static void flush(output *out) {
  const hri_normal *normal = out->writer.normal;
  hri_split_piece span = {0, 0};
  if (out->count == 0) return;
  if (normal->with_spans) {
    if (out->change > 0 && out->cursor > 0) span = hri_normal_span(normal, out->cursor - 1);
    else if (out->change <= 0 && out->cursor < normal->bytes) span = hri_normal_span(normal, out->cursor);
    if (out->change <= 0) out->cursor = skip_chars(normal, out->cursor, 1 - out->change);
  }
  hri_normal_put(&out->writer, out->bytes, out->count, span);
  out->count = 0;
}

static void push(output *out, const char *bytes, uint32_t count, int32_t change) {
  flush(out);
  memcpy(out->bytes, bytes, count);
  out->count = count;
  out->change = change;
}

static int32_t characters(const char *text, uint64_t bytes) {
  int32_t count = 0;
  for (uint64_t i = 0; i < bytes; i++) count += ((uint8_t)text[i] & 0xC0) != 0x80;
  return count;
}

/* `old` characters become a text: the last of more are inserted; of fewer, the last one swallows the rest. */
static void put_replaced(output *out, const char *text, int32_t old) {
  int32_t left = characters(text, strlen(text)), more = left - old;
  while (*text) {
    uint32_t width = hri_char_bytes(*text);
    push(out, text, width, left <= more ? 1 : 0);
    text += width;
    left--;
  }
  if (more < 0 && out->count) out->change += more;
}

/* Unchanged bytes; ASCII or whole characters. */
static void put_same(output *out, uint64_t begin, uint64_t end) {
  const hri_normal *normal = out->writer.normal;
  if (!normal->with_spans) {
    flush(out);
    hri_normal_keep(&out->writer, begin, end);
    return;
  }
  while (begin < end) {
    uint32_t width = hri_char_bytes(normal->text[begin]);
    push(out, normal->text + begin, width, 0);
    begin += width;
  }
}

static utf8proc_int32_t point_at(const hri_normal *normal, uint64_t at, uint64_t *behind) {
  uint32_t point;
  bool valid;
  *behind = at + hri_utf8_decode(normal->text + at, normal->bytes - at, &point, &valid);
  return (utf8proc_int32_t)point;
}

/* Marks are those of the reference, whatever Unicode the library has; nothing joins a control character. */
static bool breaks(utf8proc_int32_t left, utf8proc_int32_t right, utf8proc_int32_t *state) {
  utf8proc_propval_t before = utf8proc_get_property(left)->boundclass;
  bool found = utf8proc_grapheme_break_stateful(left, right, state);
  bool alone =
      before == UTF8PROC_BOUNDCLASS_CONTROL || before == UTF8PROC_BOUNDCLASS_CR || before == UTF8PROC_BOUNDCLASS_LF;
  return found && (alone || !hri_unicode_is_extending((uint32_t)right));
}

static uint64_t grapheme_end(const hri_normal *normal, uint64_t at) {
  utf8proc_int32_t state = 0;
  uint64_t behind;
  utf8proc_int32_t left = point_at(normal, at, &at);
  for (; at < normal->bytes; at = behind) {
    utf8proc_int32_t right = point_at(normal, at, &behind);
    if (breaks(left, right, &state)) break;
    left = right;
  }
  return at;
}

/* One character, or one whole grapheme; false when no key is there. */
static bool replace(const hri_charsmap *map, output *out, uint64_t begin, uint64_t end) {
  const char *bytes = out->writer.normal->text + begin, *text;
  if (hri_charsmap_find(map, bytes, end - begin, false, &text) == 0) return false;
  put_replaced(out, text, characters(bytes, end - begin));
  return true;
}

/* The end of plain ASCII from `at` on: no key stands there, and no mark behind it belongs to its last character. */
static uint64_t plain_end(const hri_charsmap *map, const hri_normal *normal, uint64_t at) {
  while (at < normal->bytes && (uint8_t)normal->text[at] < 0x80 && !map->ascii[(uint8_t)normal->text[at]] &&
         (at + 1 == normal->bytes || (uint8_t)normal->text[at + 1] < 0x80))
    at++;
  return at;
}

hr_status hri_normal_charsmap(const hri_charsmap *map, hri_normal *normal, hr_error *error) {
  output out = {0};
  uint64_t at = plain_end(map, normal, 0);
  if (at == normal->bytes) return HR_OK;
  out.writer = hri_normal_write(normal);
  put_same(&out, 0, at);
  while (at < normal->bytes) {
    uint64_t end = grapheme_end(normal, at), plain;
    if (end - at >= GRAPHEME_BYTES || !replace(map, &out, at, end)) {
      for (uint64_t behind; at < end; at = behind) {
        (void)point_at(normal, at, &behind);
        if (!replace(map, &out, at, behind)) put_same(&out, at, behind);
      }
    }
    plain = plain_end(map, normal, end);
    put_same(&out, end, plain);
    at = plain;
  }
  flush(&out);
  return hri_normal_done(&out.writer, error);
}
