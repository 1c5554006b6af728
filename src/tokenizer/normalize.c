/* The list of steps, and the steps that need no tables of forms. A step looks for its first change before it writes
 * anything, so that text which is normal already costs one scan and no memory. */
#include "tokenizer/normalize.h"

#include <string.h>

#include "tokenizer/charsmap.h"
#include "tokenizer/normalize_internal.h"
#include "tokenizer/unicode_tables.h"

typedef enum step_kind { FORM = 0, MAP, STRIP, REPLACE, PREPEND, CHARSMAP, SENTENCEPIECE } step_kind;

typedef struct step {
  step_kind kind;
  hri_normalize_kind form;
  bool left, right;
  char *content; /* of Replace and Prepend */
  size_t content_bytes;
  int plain; /* Replace of one byte: that byte, else -1 */
  hri_splitter *pattern;
  hri_charsmap map;
  hri_sp_normalizer *sentencepiece;
} step;

struct hri_normalizer {
  HRI_ARRAY(step) steps;
};

/* ---- building ---- */

hr_status hri_normalizer_create(hri_normalizer **normalizer, hr_error *error) {
  *normalizer = hri_alloc_zero(1, sizeof **normalizer);
  return *normalizer ? HR_OK : hri_fail_memory(error, sizeof **normalizer, "a normalizer");
}

static void deinit_step(step *what) {
  hri_free(what->content);
  hri_splitter_destroy(what->pattern);
  hri_charsmap_deinit(&what->map);
  hri_sp_normalizer_destroy(what->sentencepiece);
}

void hri_normalizer_destroy(hri_normalizer *normalizer) {
  if (!normalizer) return;
  for (size_t i = 0; i < normalizer->steps.count; i++) deinit_step(&normalizer->steps.items[i]);
  hri_array_free(&normalizer->steps);
  hri_free(normalizer);
}

bool hri_normalizer_is_empty(const hri_normalizer *normalizer) { return normalizer->steps.count == 0; }

/* Takes what the step owns, also when it fails. */
static hr_status add(hri_normalizer *normalizer, step what, hr_error *error) {
  if (hri_array_push(&normalizer->steps, what)) return HR_OK;
  deinit_step(&what);
  return hri_fail_memory(error, sizeof what, "a normalizer");
}

static hr_status set_content(step *what, const char *content, size_t bytes, hr_error *error) {
  what->content = hri_alloc(bytes);
  if (!what->content) return hri_fail_memory(error, bytes, "a normalizer");
  if (bytes > 0) memcpy(what->content, content, bytes);
  what->content_bytes = bytes;
  return HR_OK;
}

hr_status hri_normalizer_add(hri_normalizer *normalizer, hri_normalize_kind kind, hr_error *error) {
  step_kind own = kind >= HRI_NORMALIZE_LOWERCASE ? MAP : FORM;
  return add(normalizer, (step){.kind = own, .form = kind}, error);
}

hr_status hri_normalizer_add_strip(hri_normalizer *normalizer, bool left, bool right, hr_error *error) {
  return add(normalizer, (step){.kind = STRIP, .left = left, .right = right}, error);
}

hr_status hri_normalizer_add_replace(hri_normalizer *normalizer, const char *pattern, size_t pattern_bytes,
                                     bool literal, const char *content, size_t content_bytes, hr_error *error) {
  step what = {.kind = REPLACE, .plain = literal && pattern_bytes == 1 ? (uint8_t)pattern[0] : -1};
  HRI_TRY(literal ? hri_splitter_create_literal(pattern, pattern_bytes, HRI_SPLIT_ISOLATED, false, &what.pattern, error)
                  : hri_splitter_create_regex(pattern, pattern_bytes, HRI_SPLIT_ISOLATED, false, &what.pattern, error));
  if (set_content(&what, content, content_bytes, error) != HR_OK) {
    deinit_step(&what);
    return HR_ERROR_MEMORY;
  }
  return add(normalizer, what, error);
}

hr_status hri_normalizer_add_prepend(hri_normalizer *normalizer, const char *prefix, size_t bytes, hr_error *error) {
  step what = {.kind = PREPEND};
  HRI_TRY(set_content(&what, prefix, bytes, error));
  return add(normalizer, what, error);
}

hr_status hri_normalizer_add_charsmap(hri_normalizer *normalizer, const void *map, uint32_t bytes, hr_error *error) {
  step what = {.kind = CHARSMAP};
  hr_status status = hri_charsmap_load(&what.map, map, bytes, "precompiled_charsmap", error);
  if (status == HR_OK) return add(normalizer, what, error);
  deinit_step(&what);
  return status;
}

hr_status hri_normalizer_add_sentencepiece(hri_normalizer *normalizer, const hri_sentencepiece *model,
                                           hr_error *error) {
  step what = {.kind = SENTENCEPIECE};
  HRI_TRY(hri_sp_normalizer_create(model, &what.sentencepiece, error));
  return add(normalizer, what, error);
}

/* ---- writing ---- */

enum { GROWTH = 256, GROWTH_FREE = 1 << 20 }; /* compatibility forms make 18 characters of one, at most */

static bool reserve(hri_normal_writer *writer, size_t more) {
  struct hri_normal_buffer *out = writer->out;
  if (writer->failed) return false;
  if (hri_array_reserve_((void **)&out->bytes, &out->capacity, out->count + more, 1) &&
      (!writer->normal->with_spans ||
       hri_array_reserve_((void **)&out->spans, &out->span_capacity, out->count + more, sizeof *out->spans)))
    return true;
  writer->failed = true;
  return false;
}

/* Room for so many bytes more, within the bound. */
static bool take_room(hri_normal_writer *writer, size_t more) {
  if (!writer->failed && more > writer->normal->most - writer->out->count) writer->failed = writer->grown = true;
  return reserve(writer, more);
}

hri_normal_writer hri_normal_write(hri_normal *normal) {
  struct hri_normal_buffer *out = &normal->buffers[normal->text == normal->buffers[0].bytes ? 1 : 0];
  hri_normal_writer writer = {normal, out, false, false};
  out->count = 0;
  (void)reserve(&writer, normal->bytes + normal->bytes / 8 + 16);
  return writer;
}

hri_split_piece hri_normal_span(const hri_normal *normal, uint64_t at) {
  uint64_t begin = at, end = at + 1;
  if (normal->spans) return normal->spans[at];
  while (begin > 0 && ((uint8_t)normal->text[begin] & 0xC0) == 0x80) begin--;
  while (end < normal->bytes && ((uint8_t)normal->text[end] & 0xC0) == 0x80) end++;
  return (hri_split_piece){(uint32_t)begin, (uint32_t)end};
}

void hri_normal_keep(hri_normal_writer *writer, uint64_t begin, uint64_t end) {
  const hri_normal *normal = writer->normal;
  struct hri_normal_buffer *out = writer->out;
  if (begin == end || !take_room(writer, end - begin)) return;
  memcpy(out->bytes + out->count, normal->text + begin, end - begin);
  if (normal->with_spans && normal->spans) {
    memcpy(out->spans + out->count, normal->spans + begin, (end - begin) * sizeof *out->spans);
  } else if (normal->with_spans) {
    for (uint64_t i = begin; i < end;) {
      hri_split_piece span = hri_normal_span(normal, i);
      if (span.end > end) span.end = (uint32_t)end; /* invalid bytes behind it may look like its own */
      for (; i < end && i < span.end; i++) out->spans[out->count + (i - begin)] = span;
    }
  }
  out->count += end - begin;
}

void hri_normal_put(hri_normal_writer *writer, const char *bytes, size_t count, hri_split_piece span) {
  struct hri_normal_buffer *out = writer->out;
  if (count == 0 || !take_room(writer, count)) return;
  memcpy(out->bytes + out->count, bytes, count);
  if (writer->normal->with_spans)
    for (size_t i = 0; i < count; i++) out->spans[out->count + i] = span;
  out->count += count;
}

hr_status hri_normal_done(hri_normal_writer *writer, hr_error *error) {
  hri_normal *normal = writer->normal;
  if (writer->grown) {
    (void)hri_fail(error, HR_ERROR_INPUT, "a text grows to more than %llu bytes by the tokenizer's normalizer",
                   (unsigned long long)normal->most);
    return hri_hint(error, HR_ERROR_INPUT,
                    "tokenize it in parts; a tokenizer that makes so much of short texts is none");
  }
  if (writer->failed) return hri_fail_memory(error, normal->bytes, "normalized text");
  normal->text = writer->out->bytes;
  normal->bytes = writer->out->count;
  normal->spans = normal->with_spans ? writer->out->spans : NULL;
  normal->changed = true;
  return HR_OK;
}

/* Invalid bytes as U+FFFD. */
static hr_status repair(hri_normal *normal, uint64_t valid_bytes, hr_error *error) {
  hri_normal_writer writer = hri_normal_write(normal);
  uint64_t at = 0;
  for (;;) {
    uint32_t point;
    bool valid;
    size_t step_bytes;
    hri_normal_keep(&writer, at, at + valid_bytes);
    at += valid_bytes;
    if (at == normal->bytes) break;
    step_bytes = hri_utf8_decode(normal->text + at, normal->bytes - at, &point, &valid);
    hri_normal_put(&writer, "\xEF\xBF\xBD", 3, (hri_split_piece){(uint32_t)at, (uint32_t)(at + step_bytes)});
    at += step_bytes;
    valid_bytes = hri_utf8_valid(normal->text + at, normal->bytes - at);
  }
  return hri_normal_done(&writer, error);
}

hr_status hri_normal_begin(hri_normal *normal, const char *text, uint64_t bytes, bool with_spans, hr_error *error) {
  size_t valid;
  if (bytes >= UINT32_MAX)
    return hri_fail(error, HR_ERROR_INPUT, "a text of %llu bytes is too long", (unsigned long long)bytes);
  normal->text = text;
  normal->bytes = bytes;
  normal->most = bytes < (UINT32_MAX - GROWTH_FREE) / GROWTH ? bytes * GROWTH + GROWTH_FREE : UINT32_MAX - 1;
  normal->changed = false;
  normal->with_spans = with_spans;
  normal->spans = NULL;
  valid = hri_utf8_valid(text, bytes);
  return valid == bytes ? HR_OK : repair(normal, valid, error);
}

void hri_normal_deinit(hri_normal *normal) {
  for (uint32_t i = 0; i < 2; i++) {
    hri_free(normal->buffers[i].bytes);
    hri_free(normal->buffers[i].spans);
  }
  hri_free(normal->chars);
  hri_free(normal->sorted);
  hri_split_end(&normal->split);
  memset(normal, 0, sizeof *normal);
}

/* ---- steps ---- */

/* The lower case of a character as Rust's char::to_lowercase has it: one code point, but for U+0130; no rule of
 * context. */
static uint32_t lower_of(uint32_t point) {
  const uint32_t changing =
      HRI_SET_LU | HRI_SET_LT | 1u << HRI_CATEGORY_NL | 1u << HRI_CATEGORY_SO | 1u << HRI_CATEGORY_CN;
  uint32_t low = 0, high = hri_unicode_lower_count;
  if (point < 0x80) return point >= 'A' && point <= 'Z' ? point + 0x20 : point;
  if ((hri_unicode_set(point) & changing) == 0) return point;
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    if (hri_unicode_lower[middle].from < point) low = middle + 1;
    else high = middle;
  }
  return low < hri_unicode_lower_count && hri_unicode_lower[low].from == point ? hri_unicode_lower[low].to : point;
}

static void lower_map(uint32_t point, char out[8], int *bytes) {
  uint32_t lower = point == 0x130 ? 'i' : lower_of(point);
  if (lower == point) return;
  *bytes = (int)hri_utf8_encode(lower, out);
  if (point == 0x130) *bytes += (int)hri_utf8_encode(0x307, out + *bytes);
}

static void accent_map(uint32_t point, char out[8], int *bytes) {
  (void)out;
  if (hri_unicode_is_accent(point)) *bytes = 0;
}

/* By hri_normalize_kind, from LOWERCASE on: what a character becomes, and which of ASCII may change. */
static const struct {
  hri_normal_map *map;
  uint64_t ascii[2];
} maps[] = {{lower_map, {0, UINT64_C(0x07FFFFFE)}},
            {accent_map, {0, 0}},
            {hri_map_nmt, {UINT64_C(0xFFFFFFFF), UINT64_C(1) << 63}},
            {hri_map_bert_clean, {UINT64_C(0xFFFFFFFF), UINT64_C(1) << 63}},
            {hri_map_bert_chinese, {0, 0}},
            {hri_map_bert_accent, {0, 0}}};

/* The first place from `at` on where a character may change. */
static uint64_t skip_quiet(const hri_normal *normal, const uint64_t ascii[2], uint64_t at) {
  for (; at < normal->bytes; at++) {
    uint8_t c = (uint8_t)normal->text[at];
    if (c >= 0x80 || (ascii[c >> 6] >> (c & 63) & 1)) break;
  }
  return at;
}

static hr_status map_all(hri_normal *normal, hri_normalize_kind kind, hr_error *error) {
  hri_normal_map *const map = maps[kind - HRI_NORMALIZE_LOWERCASE].map;
  const uint64_t *const ascii = maps[kind - HRI_NORMALIZE_LOWERCASE].ascii;
  hri_normal_writer writer = {0};
  uint64_t at = 0, kept = 0;
  while ((at = skip_quiet(normal, ascii, at)) < normal->bytes) {
    char out[8];
    uint32_t point;
    bool valid;
    int bytes = -1;
    size_t width = hri_utf8_decode(normal->text + at, normal->bytes - at, &point, &valid);
    map(point, out, &bytes);
    if (bytes >= 0) {
      if (!writer.normal) writer = hri_normal_write(normal);
      hri_normal_keep(&writer, kept, at);
      hri_normal_put(&writer, out, (size_t)bytes, hri_normal_span(normal, at));
      kept = at + width;
    }
    at += width;
  }
  if (!writer.normal) return HR_OK;
  hri_normal_keep(&writer, kept, at);
  return hri_normal_done(&writer, error);
}

static hr_status strip(hri_normal *normal, const step *what, hr_error *error) {
  uint64_t begin = 0, end = normal->bytes;
  hri_normal_writer writer;
  uint32_t point;
  bool valid;
  while (what->left && begin < end) {
    size_t width = hri_utf8_decode(normal->text + begin, end - begin, &point, &valid);
    if (!hri_unicode_is_space(point)) break;
    begin += width;
  }
  while (what->right && end > begin) {
    uint64_t at = end - 1;
    while (at > begin && ((uint8_t)normal->text[at] & 0xC0) == 0x80) at--;
    (void)hri_utf8_decode(normal->text + at, end - at, &point, &valid);
    if (!hri_unicode_is_space(point)) break;
    end = at;
  }
  if (begin == 0 && end == normal->bytes) return HR_OK;
  writer = hri_normal_write(normal);
  hri_normal_keep(&writer, begin, end);
  return hri_normal_done(&writer, error);
}

/* New text in place of a match has the origin of the match's last byte (or of the byte before an empty one). */
static hri_split_piece replaced_span(const hri_normal *normal, uint64_t end) {
  return end == 0 || !normal->with_spans ? (hri_split_piece){0, 0} : hri_normal_span(normal, end - 1);
}

static hr_status replace_byte(hri_normal *normal, const step *what, hr_error *error) {
  const char *at = memchr(normal->text, what->plain, normal->bytes);
  hri_normal_writer writer;
  uint64_t kept = 0;
  if (!at) return HR_OK;
  writer = hri_normal_write(normal);
  while (at) {
    uint64_t where = (uint64_t)(at - normal->text);
    hri_normal_keep(&writer, kept, where);
    hri_normal_put(&writer, what->content, what->content_bytes, replaced_span(normal, where + 1));
    kept = where + 1;
    at = memchr(normal->text + kept, what->plain, normal->bytes - kept);
  }
  hri_normal_keep(&writer, kept, normal->bytes);
  return hri_normal_done(&writer, error);
}

static hr_status replace(hri_normal *normal, const step *what, hr_error *error) {
  hri_normal_writer writer;
  hri_split_piece match;
  bool found = false;
  uint64_t kept = 0;
  if (what->plain >= 0) return replace_byte(normal, what, error);
  HRI_TRY(hri_split_begin(&normal->split, what->pattern, normal->text, normal->bytes, error));
  HRI_TRY(hri_split_next_match(&normal->split, &match, &found, error));
  if (!found) return HR_OK;
  writer = hri_normal_write(normal);
  while (found) {
    hri_normal_keep(&writer, kept, match.begin);
    hri_normal_put(&writer, what->content, what->content_bytes, replaced_span(normal, match.end));
    kept = match.end;
    HRI_TRY(hri_split_next_match(&normal->split, &match, &found, error));
  }
  hri_normal_keep(&writer, kept, normal->bytes);
  return hri_normal_done(&writer, error);
}

/* The prefix has the origin of the first character. */
static hr_status prepend(hri_normal *normal, const step *what, hr_error *error) {
  hri_normal_writer writer = hri_normal_write(normal);
  hri_normal_put(&writer, what->content, what->content_bytes, hri_normal_span(normal, 0));
  hri_normal_keep(&writer, 0, normal->bytes);
  return hri_normal_done(&writer, error);
}

hr_status hri_normalizer_apply(const hri_normalizer *normalizer, hri_normal *normal, hr_error *error) {
  for (size_t i = 0; i < normalizer->steps.count; i++) {
    const step *what = &normalizer->steps.items[i];
    hr_status status = HR_OK;
    if (normal->bytes == 0) return HR_OK;
    switch (what->kind) {
    case FORM: status = hri_normal_form(normal, what->form, error); break;
    case MAP: status = map_all(normal, what->form, error); break;
    case STRIP: status = strip(normal, what, error); break;
    case REPLACE: status = replace(normal, what, error); break;
    case PREPEND: status = prepend(normal, what, error); break;
    case CHARSMAP: status = hri_normal_charsmap(&what->map, normal, error); break;
    case SENTENCEPIECE: status = hri_sp_normalizer_apply(what->sentencepiece, normal, error); break;
    }
    HRI_TRY(status);
  }
  return HR_OK;
}
