/* What SentencePiece does to text before its BPE (google/sentencepiece: src/normalizer.cc).
 *
 * At each position the longest key of the character map (charsmap.h) is replaced; a user-defined piece wins over all of
 * them and is kept as it stands. Where no key fits, the character stays. */
#include <stdlib.h>
#include <string.h>

#include "tokenizer/charsmap.h"
#include "tokenizer/normalize_internal.h"
#include "tokenizer/unicode.h"

typedef struct text_ref {
  uint32_t at, bytes; /* into hri_sp_normalizer.kept */
} text_ref;

struct hri_sp_normalizer {
  bool add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces, suffix;
  hri_charsmap map;
  char *kept; /* user-defined pieces, sorted */
  text_ref *pieces;
  uint32_t piece_count;
  bool plain[256];           /* a byte that stays as it is before ASCII */
  uint32_t first_piece[257]; /* pieces that begin with byte b: first_piece[b] .. first_piece[b + 1] */
};

static const char symbol[] = "\xE2\x96\x81"; /* U+2581 */

/* ---- making ---- */

/* By first byte, then the longer first. */
static int compare_pieces(const void *a, const void *b) {
  const hri_sp_piece *x = *(const hri_sp_piece *const *)a, *y = *(const hri_sp_piece *const *)b;
  uint8_t first = (uint8_t)x->text[0], second = (uint8_t)y->text[0];
  if (first != second) return first < second ? -1 : 1;
  return x->bytes != y->bytes ? (x->bytes > y->bytes ? -1 : 1) : 0;
}

static hr_status load_pieces(hri_sp_normalizer *n, const hri_sentencepiece *model, hr_error *error) {
  const hri_sp_piece **list;
  uint64_t bytes = 0, used = 0;
  for (uint32_t i = 0; i < model->piece_count; i++) {
    if (model->pieces[i].type != HRI_SP_USER_DEFINED) continue;
    n->piece_count++;
    bytes += model->pieces[i].bytes;
  }
  if (n->piece_count == 0) return HR_OK;
  list = hri_alloc(n->piece_count * sizeof *list);
  n->pieces = hri_alloc(n->piece_count * sizeof *n->pieces);
  n->kept = hri_alloc(bytes);
  if (!list || !n->pieces || !n->kept) {
    hri_free(list);
    return hri_fail_memory(error, bytes, "the user-defined pieces of a tokenizer");
  }
  n->piece_count = 0;
  for (uint32_t i = 0; i < model->piece_count; i++)
    if (model->pieces[i].type == HRI_SP_USER_DEFINED) list[n->piece_count++] = &model->pieces[i];
  qsort(list, n->piece_count, sizeof *list, compare_pieces);
  for (uint32_t i = 0; i < n->piece_count; i++) {
    n->pieces[i] = (text_ref){(uint32_t)used, list[i]->bytes};
    memcpy(n->kept + used, list[i]->text, list[i]->bytes);
    used += list[i]->bytes;
    n->first_piece[(uint8_t)list[i]->text[0] + 1] = i + 1;
  }
  for (uint32_t b = 1; b <= 256; b++)
    if (n->first_piece[b] < n->first_piece[b - 1]) n->first_piece[b] = n->first_piece[b - 1];
  hri_free(list);
  return HR_OK;
}

hr_status hri_sp_normalizer_create(const hri_sentencepiece *model, hri_sp_normalizer **normalizer, hr_error *error) {
  hri_sp_normalizer *n = hri_alloc_zero(1, sizeof *n);
  hr_status status;
  *normalizer = NULL;
  if (!n) return hri_fail_memory(error, sizeof *n, "a normalizer");
  n->add_dummy_prefix = model->add_dummy_prefix;
  n->remove_extra_whitespaces = model->remove_extra_whitespaces;
  n->escape_whitespaces = model->escape_whitespaces;
  n->suffix = model->treat_whitespace_as_suffix;
  status = model->charsmap ? hri_charsmap_load(&n->map, model->charsmap, model->charsmap_bytes,
                                               "normalizer_spec.precompiled_charsmap", error)
                           : HR_OK;
  if (status == HR_OK) status = load_pieces(n, model, error);
  for (uint32_t c = 0; c < 128; c++)
    n->plain[c] = c != ' ' && !n->map.ascii[c] && n->first_piece[c] == n->first_piece[c + 1];
  if (status == HR_OK) *normalizer = n;
  else hri_sp_normalizer_destroy(n);
  return status;
}

void hri_sp_normalizer_destroy(hri_sp_normalizer *normalizer) {
  if (!normalizer) return;
  hri_charsmap_deinit(&normalizer->map);
  hri_free(normalizer->kept);
  hri_free(normalizer->pieces);
  hri_free(normalizer);
}

/* ---- applying ---- */

static uint32_t longest_piece(const hri_sp_normalizer *n, const char *text, uint64_t bytes) {
  uint8_t first = (uint8_t)text[0];
  for (uint32_t i = n->first_piece[first]; i < n->first_piece[first + 1]; i++)
    if (n->pieces[i].bytes <= bytes && memcmp(n->kept + n->pieces[i].at, text, n->pieces[i].bytes) == 0)
      return n->pieces[i].bytes;
  return 0;
}

/* What stands at the begin of a text: `bytes` of it become `out`. */
typedef struct chunk {
  uint32_t bytes;
  const char *out;
  size_t out_bytes;
} chunk;

/* The end of ASCII from `at` on that stays as it is: no blanks, no keys, no begins of user-defined pieces; a mark behind
 * its last character would belong to it. */
static uint64_t plain_end(const hri_sp_normalizer *n, const hri_normal *normal, uint64_t at) {
  while (at < normal->bytes) {
    uint8_t c = (uint8_t)normal->text[at];
    if (!n->plain[c] || (at + 1 < normal->bytes && (uint8_t)normal->text[at + 1] >= 0x80)) break;
    at++;
  }
  return at;
}

static chunk next_chunk(const hri_sp_normalizer *n, const char *text, uint64_t bytes) {
  uint32_t point, length = longest_piece(n, text, bytes);
  const char *becomes;
  bool valid;
  if (length > 0) return (chunk){length, text, length};
  length = hri_charsmap_find(&n->map, text, bytes, true, &becomes);
  if (length > 0) return (chunk){length, becomes, strlen(becomes)};
  length = (uint32_t)hri_utf8_decode(text, bytes, &point, &valid);
  return (chunk){length, text, length};
}

/* Writes a chunk, blanks as U+2581 if they are escaped. */
static void put_chunk(const hri_sp_normalizer *n, hri_normal_writer *writer, const char *out, size_t bytes,
                      hri_split_piece span) {
  size_t at = 0;
  while (at < bytes) {
    const char *blank = n->escape_whitespaces ? memchr(out + at, ' ', bytes - at) : NULL;
    size_t plain = blank ? (size_t)(blank - out) - at : bytes - at;
    hri_normal_put(writer, out + at, plain, span);
    at += plain;
    if (!blank) break;
    hri_normal_put(writer, symbol, 3, span);
    at++;
  }
}

/* Takes blanks off the end of what was written. */
static void trim_end(const hri_sp_normalizer *n, hri_normal_writer *writer) {
  const char *blank = n->escape_whitespaces ? symbol : " ";
  size_t bytes = n->escape_whitespaces ? 3 : 1;
  struct hri_normal_buffer *out = writer->out;
  while (out->count >= bytes && memcmp(out->bytes + out->count - bytes, blank, bytes) == 0) out->count -= bytes;
}

hr_status hri_sp_normalizer_apply(const hri_sp_normalizer *n, hri_normal *normal, hr_error *error) {
  const char *blank = n->escape_whitespaces ? symbol : " ";
  size_t blank_bytes = n->escape_whitespaces ? 3 : 1;
  uint64_t at = 0;
  bool after_space = n->remove_extra_whitespaces;
  hri_normal_writer writer = hri_normal_write(normal);
  while (n->remove_extra_whitespaces && at < normal->bytes) {
    chunk head = next_chunk(n, normal->text + at, normal->bytes - at);
    if (head.out_bytes != 1 || *head.out != ' ') break;
    at += head.bytes;
  }
  if (at == normal->bytes) return hri_normal_done(&writer, error); /* nothing but blanks: nothing, and no prefix */
  if (n->add_dummy_prefix && !n->suffix) hri_normal_put(&writer, blank, blank_bytes, hri_normal_span(normal, at));
  while (at < normal->bytes) {
    uint64_t plain = plain_end(n, normal, at);
    chunk part;
    if (plain > at) {
      hri_normal_keep(&writer, at, plain);
      after_space = false;
      at = plain;
      continue;
    }
    part = next_chunk(n, normal->text + at, normal->bytes - at);
    hri_split_piece span = {0, 0};
    size_t skip = 0;
    if (normal->with_spans)
      span = (hri_split_piece){hri_normal_span(normal, at).begin, hri_normal_span(normal, at + part.bytes - 1).end};
    while (after_space && skip < part.out_bytes && part.out[skip] == ' ') skip++;
    if (skip < part.out_bytes) {
      put_chunk(n, &writer, part.out + skip, part.out_bytes - skip, span);
      after_space = part.out[part.out_bytes - 1] == ' ';
    }
    at += part.bytes;
    if (!n->remove_extra_whitespaces) after_space = false;
  }
  if (n->remove_extra_whitespaces && !writer.failed) trim_end(n, &writer);
  if (n->add_dummy_prefix && n->suffix)
    hri_normal_put(&writer, blank, blank_bytes, hri_normal_span(normal, normal->bytes - 1));
  return hri_normal_done(&writer, error);
}
