/* Text to ids.
 *
 * Pieces are pushed through the stages one by one, depth first: nothing but the text at hand is kept, and a tokenizer
 * of one splitter runs in one loop. A view is a part of a text with the way back to the text before it: a byte stands
 * for spans[byte] + origin, or for itself + origin where nothing was changed. */
#include "tokenizer/encode.h"

#include "tokenizer/added.h"
#include "tokenizer/unicode.h"

typedef struct view {
  const char *text;
  uint32_t bytes;
  const hri_split_piece *spans;
  uint32_t origin;
  const char *limit; /* end of readable memory behind the text */
  bool mapped;       /* the text is in the byte alphabet */
} view;

typedef struct encoder {
  const hr_tokenizer *tokenizer;
  hr_tokens_work *work;
  hr_tokens *tokens;
  hr_error *error;
  bool offsets, plain;
  bool spans;       /* where text comes from is kept: for offsets, or because a stage acts at the beginning only */
  const char *text; /* repaired */
  uint64_t bytes;
  uint64_t first; /* index of the first token that is not of the template */
} encoder;

static hr_status run_stage(encoder *e, uint32_t index, const view *v);
static hr_status run_made(encoder *e, uint32_t index, const view *v);

static view part_of(const view *v, uint32_t begin, uint32_t end) {
  view part = *v;
  part.text += begin;
  part.bytes = end - begin;
  if (v->spans) part.spans += begin;
  else part.origin += begin;
  return part;
}

/* ---- Offsets ---- */

/* The bytes of the repaired text that [begin, end) of a view stands for; whole characters. */
static hri_split_piece source_of(const encoder *e, const view *v, uint64_t begin, uint64_t end) {
  hri_split_piece range;
  if (begin > v->bytes) begin = v->bytes;
  if (end > v->bytes) end = v->bytes;
  if (v->spans) {
    uint64_t last = end > begin ? end - 1 : begin;
    if (v->bytes == 0) return (hri_split_piece){v->origin, v->origin};
    if (begin == v->bytes) begin = last = v->bytes - 1;
    range = (hri_split_piece){v->origin + v->spans[begin].begin, v->origin + v->spans[last].end};
    if (range.end < range.begin) range.end = range.begin;
  } else {
    range = (hri_split_piece){v->origin + (uint32_t)begin, v->origin + (uint32_t)end};
  }
  while (range.begin > 0 && range.begin < e->bytes && ((unsigned char)e->text[range.begin] & 0xC0) == 0x80)
    range.begin--;
  while (range.end < e->bytes && ((unsigned char)e->text[range.end] & 0xC0) == 0x80) range.end++;
  return range;
}

/* Blanks at one end of a token: white space, and what stands for the blank in the byte alphabet. */
static uint32_t blanks_at(const char *text, uint64_t bytes, bool back) {
  uint32_t count = 0;
  for (uint64_t at = back ? bytes : 0; back ? at > 0 : at < bytes; count++) {
    uint64_t begin = at;
    uint32_t point;
    bool valid;
    size_t width;
    if (back) do
        begin--;
      while (begin > 0 && ((unsigned char)text[begin] & 0xC0) == 0x80);
    width = hri_utf8_decode(text + begin, bytes - begin, &point, &valid);
    if (point != 0x120 && !hri_unicode_is_space(point)) break;
    at = back ? begin : begin + width;
  }
  return count;
}

static uint32_t step_forward(const encoder *e, uint32_t at, uint32_t end, uint32_t characters) {
  for (; characters > 0 && at < end; characters--) at += hri_char_bytes(e->text[at]);
  return at < end ? at : end;
}

static uint32_t step_back(const encoder *e, uint32_t at, uint32_t begin, uint32_t characters) {
  for (; characters > 0 && at > begin; characters--) do
      at--;
    while (at > begin && ((unsigned char)e->text[at] & 0xC0) == 0x80);
  return at;
}

/* The ByteLevel post-processor: offsets without the blanks that begin and end the token `text`. */
static hri_split_piece trim(const encoder *e, uint64_t index, const char *text, uint64_t bytes, hri_split_piece range) {
  uint32_t left = blanks_at(text, bytes, false), right = blanks_at(text, bytes, true);
  bool first = (index == e->first && (e->first == 0 || !e->tokenizer->trim_after_template)) || range.begin == 0;
  if (first && e->tokenizer->trim_prefix_space && left == 1) left = 0;
  range.begin = step_forward(e, range.begin, range.end, left);
  range.end = step_back(e, range.end, range.begin, right);
  return range;
}

static void place_token(encoder *e, uint64_t index, const char *text, uint64_t bytes, hri_split_piece range) {
  if (e->tokenizer->trim_offsets) range = trim(e, index, text, bytes, range);
  e->tokens->begin[index] = range.begin;
  e->tokens->end[index] = range.end;
}

/* Turns the lengths that the model left in tokens->end into offsets. What Unigram does not know is trimmed by its own
 * characters, as in the reference. */
static void place_tokens(encoder *e, const view *v, uint64_t from) {
  const hri_vocab *vocab = &e->tokenizer->vocab;
  uint32_t unk = e->tokenizer->kind == HRI_MODEL_UNIGRAM ? e->tokenizer->unigram.unk : HRI_TOKEN_NONE;
  uint64_t at = 0;
  for (uint64_t i = from; i < e->tokens->count; i++) {
    uint64_t length = e->tokens->end[i] & ~HRI_PIECE_STAYS;
    uint32_t id = (uint32_t)e->tokens->ids[i];
    hri_split_piece range = source_of(e, v, at, at + (length ? length : 1));
    bool stays = e->tokens->end[i] & HRI_PIECE_STAYS;
    if (id == unk) place_token(e, i, v->text + at, length, range);
    else place_token(e, i, hri_vocab_content(vocab, id), vocab->bytes[id], range);
    if (!stays) at += length;
  }
}

/* ---- Stages that change the text ---- */

static hr_status buffer_reserve(const encoder *e, hri_stage_buffer *buffer, uint64_t bytes) {
  if (bytes > UINT32_MAX) return hri_fail(e->error, HR_ERROR_USAGE, "text grows above 4 GiB when it is normalized");
  if (buffer->capacity < bytes) {
    uint64_t capacity = bytes + bytes / 2 + 64;
    char *grown = hri_realloc(buffer->bytes, capacity);
    if (!grown) return hri_fail_memory(e->error, capacity, "normalized text");
    buffer->bytes = grown;
    buffer->capacity = capacity;
  }
  if (e->spans && buffer->span_capacity < buffer->capacity) {
    hri_split_piece *grown = hri_realloc(buffer->spans, buffer->capacity * sizeof *grown);
    if (!grown) return hri_fail_memory(e->error, buffer->capacity * sizeof *grown, "offsets of normalized text");
    buffer->spans = grown;
    buffer->span_capacity = buffer->capacity;
  }
  return HR_OK;
}

/* Writes one byte that stands for [begin, end) of the view. Room is there. */
static void buffer_put(const encoder *e, hri_stage_buffer *buffer, char byte, const view *v, uint32_t begin,
                       uint32_t end) {
  if (e->spans)
    buffer->spans[buffer->count] =
        v->spans ? (hri_split_piece){v->spans[begin].begin, v->spans[end - 1].end} : (hri_split_piece){begin, end};
  buffer->bytes[buffer->count++] = byte;
}

static view buffer_view(const encoder *e, const hri_stage_buffer *buffer, const view *v) {
  view made = *v;
  made.text = buffer->bytes;
  made.bytes = (uint32_t)buffer->count;
  made.spans = e->spans ? buffer->spans : NULL;
  made.limit = buffer->bytes + buffer->count;
  return made;
}

/* Puts the prefix before a piece that lacks it; it stands for the first character, as in the reference. */
static hr_status run_prefix(encoder *e, uint32_t index, const view *v) {
  const hri_stage *stage = &e->tokenizer->stages[index];
  hri_stage_buffer *buffer = &e->work->buffers[index];
  view made;
  uint32_t first;
  bool has = v->bytes >= stage->text_bytes && memcmp(v->text, stage->text, stage->text_bytes) == 0;
  bool begins = v->origin + (v->spans ? v->spans[0].begin : 0) == 0; /* pieces are never empty */
  if (has || (stage->only_first && !begins)) return run_stage(e, index + 1, v);
  HRI_TRY(buffer_reserve(e, buffer, (uint64_t)v->bytes + stage->text_bytes));
  first = hri_char_bytes(v->text[0]);
  if (first > v->bytes) first = v->bytes;
  buffer->count = 0;
  for (uint32_t i = 0; i < stage->text_bytes; i++) buffer_put(e, buffer, stage->text[i], v, 0, first);
  for (uint32_t i = 0; i < v->bytes; i++) buffer_put(e, buffer, v->text[i], v, i, i + 1);
  made = buffer_view(e, buffer, v);
  return run_made(e, index + 1, &made);
}

/* What run_blanks writes, where nobody asks where it comes from: four bytes at a time, of which the next overwrites those
 * that do not count. */
static void replace_blanks(hri_stage_buffer *buffer, const view *v, const hri_stage *stage) {
  char *to = buffer->bytes;
  uint32_t mark = 0;
  memcpy(&mark, stage->text, stage->text_bytes);
  for (uint32_t i = 0; i < v->bytes; i++) {
    const bool blank = v->text[i] == ' ';
    const uint32_t four = blank ? mark : (uint8_t)v->text[i];
    memcpy(to, &four, 4);
    to += blank ? stage->text_bytes : 1;
  }
  buffer->count = (uint64_t)(to - buffer->bytes);
}

static hr_status run_blanks(encoder *e, uint32_t index, const view *v) {
  const hri_stage *stage = &e->tokenizer->stages[index];
  hri_stage_buffer *buffer = &e->work->buffers[index];
  uint64_t blanks = 0;
  view made;
  for (uint32_t i = 0; i < v->bytes; i++) blanks += v->text[i] == ' ';
  if (blanks == 0) return run_stage(e, index + 1, v);
  HRI_TRY(buffer_reserve(e, buffer, v->bytes + blanks * stage->text_bytes + 4));
  buffer->count = 0;
  if (!e->spans) replace_blanks(buffer, v, stage);
  for (uint32_t i = 0; i < v->bytes && e->spans; i++) {
    if (v->text[i] != ' ') buffer_put(e, buffer, v->text[i], v, i, i + 1);
    else
      for (uint32_t k = 0; k < stage->text_bytes; k++) buffer_put(e, buffer, stage->text[k], v, i, i + 1);
  }
  made = buffer_view(e, buffer, v);
  return run_made(e, index + 1, &made);
}

/* Bytes to the byte alphabet; each stands for its whole character. */
static hr_status map_bytes(encoder *e, hri_stage_buffer *buffer, const view *v, view *made) {
  uint32_t begin = 0, end = 0;
  HRI_TRY(buffer_reserve(e, buffer, 2 * (uint64_t)v->bytes));
  buffer->count = 0;
  for (uint32_t i = 0; i < v->bytes; i++) {
    uint32_t c = hri_byte_chars[(unsigned char)v->text[i]];
    if (i >= end) {
      begin = i;
      end = i + hri_char_bytes(v->text[i]);
      if (end > v->bytes) end = v->bytes;
    }
    if (c >= 0x80) buffer_put(e, buffer, (char)(0xC0 | c >> 6), v, begin, end);
    buffer_put(e, buffer, (char)(c >= 0x80 ? 0x80 | (c & 63) : c), v, begin, end);
  }
  *made = buffer_view(e, buffer, v);
  made->mapped = true;
  return HR_OK;
}

/* And back, for the merges; all characters are of the alphabet. */
static hr_status unmap_bytes(encoder *e, const view *v, view *made) {
  hri_stage_buffer *buffer = &e->work->unmapped;
  uint32_t width;
  HRI_TRY(buffer_reserve(e, buffer, v->bytes));
  buffer->count = 0;
  for (uint32_t i = 0; i < v->bytes; i += width) {
    uint32_t c = (unsigned char)v->text[i];
    width = c < 0x80 ? 1 : 2;
    if (width == 2) c = (c & 0x1F) << 6 | ((unsigned char)v->text[i + 1] & 63);
    buffer_put(e, buffer, (char)hri_char_byte(c), v, i, i + width);
  }
  *made = buffer_view(e, buffer, v);
  made->mapped = false;
  return HR_OK;
}

/* ---- Running the stages ---- */

static hr_status run_model(encoder *e, const view *v) {
  uint64_t from = e->tokens->count;
  view raw;
  if (v->mapped) {
    HRI_TRY(unmap_bytes(e, v, &raw));
    v = &raw;
  }
  if (v->bytes == 0) return HR_OK;
  e->work->piece.limit = v->limit;
  HRI_TRY(hri_append(e->tokenizer, &e->work->piece, v->text, v->bytes, e->offsets, e->tokens, e->error));
  if (e->offsets) place_tokens(e, v, from);
  return HR_OK;
}

/* Ids for the pieces that wait; they must not outlive their text. */
static hr_status append_waiting(encoder *e) {
  hr_tokens_work *work = e->work;
  const uint32_t count = work->waiting_count;
  work->waiting_count = 0;
  return hri_append_all(e->tokenizer, &work->piece, work->waiting_text, work->waiting, count, e->tokens, e->error);
}

/* The last split: its pieces wait until they are many, from whatever parts of a text, so that their words are fetched
 * ahead. */
static hr_status gather(encoder *e, hri_split *split, const view *v) {
  hr_tokens_work *work = e->work;
  uint32_t count, origin;
  if (work->waiting_count == 0) work->waiting_text = v->text;
  origin = (uint32_t)(v->text - work->waiting_text);
  work->piece.limit = v->limit;
  do {
    hri_split_piece *pieces = work->waiting + work->waiting_count;
    HRI_TRY(hri_split_next(split, pieces, HRI_APPEND_BATCH - work->waiting_count, &count, e->error));
    for (uint32_t i = 0; i < count; i++)
      pieces[i] = (hri_split_piece){origin + pieces[i].begin, origin + pieces[i].end};
    work->waiting_count += count;
    if (work->waiting_count == HRI_APPEND_BATCH) HRI_TRY(append_waiting(e));
  } while (count > 0);
  return HR_OK;
}

static hr_status run_split(encoder *e, uint32_t index, const view *v) {
  hri_split *split = &e->work->splits[index];
  hri_split_piece pieces[HRI_APPEND_BATCH];
  uint32_t count;
  HRI_TRY(hri_split_begin(split, e->tokenizer->stages[index].splitter, v->text, v->bytes, e->error));
  if (index + 1 == e->tokenizer->stage_count && !v->mapped && !e->offsets) return gather(e, split, v);
  for (;;) {
    HRI_TRY(hri_split_next(split, pieces, HRI_APPEND_BATCH, &count, e->error));
    if (count == 0) return HR_OK;
    for (uint32_t i = 0; i < count; i++) {
      view part = part_of(v, pieces[i].begin, pieces[i].end);
      HRI_TRY(run_stage(e, index + 1, &part));
    }
  }
}

/* Recursion is bounded by HRI_MAX_STAGES. */
static hr_status run_stage(encoder *e, uint32_t index, const view *v) {
  view made;
  if (index == e->tokenizer->stage_count) return run_model(e, v);
  switch (e->tokenizer->stages[index].kind) {
  case HRI_STAGE_SPLIT: return run_split(e, index, v);
  case HRI_STAGE_PREFIX: return run_prefix(e, index, v);
  case HRI_STAGE_BLANKS: return run_blanks(e, index, v);
  case HRI_STAGE_MAP: HRI_TRY(map_bytes(e, &e->work->buffers[index], v, &made)); return run_made(e, index + 1, &made);
  }
  return HR_OK;
}

/* Stages for a text of its own, which does not stay: no piece of another waits beside its pieces. */
static hr_status run_made(encoder *e, uint32_t index, const view *v) {
  HRI_TRY(append_waiting(e));
  HRI_TRY(run_stage(e, index, v));
  return append_waiting(e);
}

/* ---- Added tokens and the normalizer ---- */

static hr_status add_token(encoder *e, const view *v, const hri_added_match *match) {
  uint64_t index = e->tokens->count;
  HRI_TRY(hri_tokens_reserve(e->tokens, 1, e->offsets, e->error));
  e->tokens->ids[e->tokens->count++] = (int32_t)match->id;
  if (e->offsets)
    place_token(e, index, v->text + match->begin, match->end - match->begin, source_of(e, v, match->begin, match->end));
  return HR_OK;
}

/* Calls `run` on what lies between the added tokens of a set. */
static hr_status between_tokens(encoder *e, const hri_pattern_set *set, const view *v,
                                hr_status (*run)(encoder *, const view *)) {
  hri_added_walk walk = {.text = v->text, .bytes = v->bytes, .plain = e->plain};
  hri_added_match match;
  uint32_t done = 0;
  view part;
  while (hri_added_next(&e->tokenizer->added, set, &walk, &match)) {
    if (match.begin > done) {
      part = part_of(v, done, match.begin);
      HRI_TRY(run(e, &part));
    }
    HRI_TRY(add_token(e, v, &match));
    done = match.end;
  }
  if (done >= v->bytes) return HR_OK;
  part = part_of(v, done, v->bytes);
  return run(e, &part);
}

static hr_status run_stages(encoder *e, const view *v) { return run_made(e, 0, v); }

static hr_status run_segment(encoder *e, const view *v) {
  const hr_tokenizer *tokenizer = e->tokenizer;
  hri_normal *normal = &e->work->segment;
  view made = *v;
  if (!hri_normalizer_is_empty(tokenizer->normalizer)) {
    HRI_TRY(hri_normal_begin(normal, v->text, v->bytes, e->spans, e->error));
    HRI_TRY(hri_normalizer_apply(tokenizer->normalizer, normal, e->error));
    if (normal->changed) {
      made.text = normal->text;
      made.bytes = (uint32_t)normal->bytes;
      made.spans = normal->spans;
      made.limit = normal->text + normal->bytes;
    }
  }
  if (tokenizer->normalizer_maps) {
    view raw = made;
    HRI_TRY(map_bytes(e, &e->work->mapped, &raw, &made));
  }
  if (tokenizer->added.normalized.list.count) return between_tokens(e, &tokenizer->added.normalized, &made, run_stages);
  return made.bytes ? run_stages(e, &made) : HR_OK;
}

/* ---- A whole text ---- */

static hr_status add_ids(encoder *e, const int32_t *ids, size_t count) {
  HRI_TRY(hri_tokens_reserve(e->tokens, count, e->offsets, e->error));
  for (size_t i = 0; i < count; i++) {
    if (e->offsets) e->tokens->begin[e->tokens->count] = e->tokens->end[e->tokens->count] = 0;
    e->tokens->ids[e->tokens->count++] = ids[i];
  }
  return HR_OK;
}

/* From the repaired text to the text that was given. */
static void offsets_of_given(encoder *e, const hri_normal *whole, uint64_t given) {
  if (!whole->spans) return;
  for (uint64_t i = 0; i < e->tokens->count; i++) {
    uint32_t begin = e->tokens->begin[i], end = e->tokens->end[i];
    e->tokens->begin[i] = begin < whole->bytes ? whole->spans[begin].begin : (uint32_t)given;
    e->tokens->end[i] = end > begin ? whole->spans[end - 1].end : e->tokens->begin[i];
  }
}

static hr_status encode_text(encoder *e, const char *text, uint64_t bytes, bool special) {
  const hr_tokenizer *tokenizer = e->tokenizer;
  hri_normal *whole = &e->work->whole;
  view v;
  e->work->waiting_count = 0;
  HRI_TRY(hri_normal_begin(whole, text, bytes, e->offsets, e->error));
  e->text = whole->text;
  e->bytes = whole->bytes;
  HRI_TRY(hri_tokens_reserve(e->tokens, 1, e->offsets, e->error));
  if (special) HRI_TRY(add_ids(e, tokenizer->prefix.items, tokenizer->prefix.count));
  e->first = e->tokens->count;
  v = (view){.text = e->text, .bytes = (uint32_t)e->bytes, .limit = e->text + e->bytes};
  HRI_TRY(between_tokens(e, &tokenizer->added.raw, &v, run_segment));
  if (special) HRI_TRY(add_ids(e, tokenizer->suffix.items, tokenizer->suffix.count));
  if (e->offsets) offsets_of_given(e, whole, bytes);
  return HR_OK;
}

static void free_buffer(hri_stage_buffer *buffer) {
  hri_free(buffer->bytes);
  hri_free(buffer->spans);
}

static void free_work(hr_tokens_work *work) {
  if (!work) return;
  hri_piece_deinit(&work->piece);
  hri_normal_deinit(&work->whole);
  hri_normal_deinit(&work->segment);
  for (uint32_t i = 0; i < HRI_MAX_STAGES; i++) {
    hri_split_end(&work->splits[i]);
    free_buffer(&work->buffers[i]);
  }
  free_buffer(&work->mapped);
  free_buffer(&work->unmapped);
  hri_free(work);
}

void hr_tokens_deinit(hr_tokens *tokens) {
  if (!tokens) return;
  hri_free(tokens->ids);
  hri_free(tokens->begin);
  hri_free(tokens->end);
  free_work(tokens->work);
  *tokens = (hr_tokens){0};
}

hr_status hr_tokenizer_encode(const hr_tokenizer *tokenizer, const char *text, uint64_t bytes, uint32_t flags,
                              hr_tokens *tokens, hr_error *error) {
  encoder e = {.tokenizer = tokenizer, .tokens = tokens, .error = error};
  hr_status status;
  if (!tokenizer || !tokens || (!text && bytes))
    return hri_fail(error, HR_ERROR_USAGE, "hr_tokenizer_encode needs a tokenizer, a text and a place for tokens");
  if (bytes >= UINT32_MAX)
    return hri_fail(error, HR_ERROR_USAGE,
                    "a text of %llu bytes is too long: at most 4 GiB - 1 can be encoded in one call",
                    (unsigned long long)bytes);
  tokens->count = 0;
  if (!tokens->work) tokens->work = hri_alloc_zero(1, sizeof *tokens->work);
  if (!tokens->work) return hri_fail_memory(error, sizeof *tokens->work, "encoding");
  e.work = tokens->work;
  e.offsets = flags & HR_ENCODE_OFFSETS;
  e.spans = e.offsets || tokenizer->needs_origins;
  e.plain = flags & HR_ENCODE_PLAIN;
  if (!e.offsets) {
    hri_free(tokens->begin);
    hri_free(tokens->end);
    tokens->begin = tokens->end = NULL;
  }
  status = encode_text(&e, text ? text : "", bytes, flags & HR_ENCODE_SPECIAL);
  if (status != HR_OK) tokens->count = 0;
  return status;
}
