/* Ids to text: the contents of the tokens, changed by each decoder in turn, joined at the end. */
#include "tokenizer/added.h"
#include "tokenizer/types.h"
#include "tokenizer/unicode.h"

/* A list of strings behind one another. */
typedef struct pieces {
  hri_text text;
  HRI_ARRAY(uint64_t) ends;
  bool failed;
} pieces;

static uint64_t piece_begin(const pieces *list, size_t index) { return index ? list->ends.items[index - 1] : 0; }

static void end_piece(pieces *list) { list->failed = list->failed || !hri_array_push(&list->ends, list->text.length); }

static void clear_pieces(pieces *list) {
  list->text.length = 0;
  list->ends.count = 0;
}

static void free_pieces(pieces *list) {
  hri_text_deinit(&list->text);
  hri_array_free(&list->ends);
}

/* Appends text in which each invalid part is one U+FFFD. */
static void add_repaired(hri_text *to, const char *bytes, uint64_t count) {
  while (count > 0) {
    uint64_t good = hri_utf8_valid(bytes, count);
    uint32_t point;
    bool valid;
    size_t bad;
    hri_text_add_bytes(to, bytes, good);
    bytes += good;
    count -= good;
    if (count == 0) return;
    bad = hri_utf8_decode(bytes, count, &point, &valid);
    hri_text_add_bytes(to, "\xEF\xBF\xBD", 3);
    bytes += bad;
    count -= bad;
  }
}

/* ---- The decoders: from one list into another ---- */

/* The bytes of a token in the byte alphabet; a token with any other character is taken as it is. */
static void add_unmapped(hri_text *to, const char *text, uint64_t bytes) {
  size_t before = to->length;
  char buffer[256];
  uint32_t used = 0;
  for (uint64_t i = 0; i < bytes;) {
    uint32_t point;
    bool valid;
    int byte;
    i += hri_utf8_decode(text + i, bytes - i, &point, &valid);
    byte = valid ? hri_char_byte(point) : -1;
    if (byte < 0) {
      to->length = before;
      hri_text_add_bytes(to, text, bytes);
      return;
    }
    buffer[used++] = (char)byte;
    if (used == sizeof buffer || i == bytes) {
      hri_text_add_bytes(to, buffer, used);
      used = 0;
    }
  }
}

static void decode_byte_level(const pieces *from, pieces *to) {
  hri_text raw = {0};
  for (size_t i = 0; i < from->ends.count; i++)
    add_unmapped(&raw, from->text.chars + piece_begin(from, i), from->ends.items[i] - piece_begin(from, i));
  add_repaired(&to->text, hri_text_get(&raw), raw.length);
  to->failed = to->failed || raw.failed;
  hri_text_deinit(&raw);
  end_piece(to);
}

/* Replacements that each double a text make gigabytes of a line: what they make of the tokens' contents is bounded, as it is
 * of a text on its way in (normalize.h). */
enum { GROWTH = 256, GROWTH_FREE = 1 << 20 };

static hr_status refuse_growth(uint64_t most, hr_error *error) {
  (void)hri_fail(error, HR_ERROR_INPUT, "the text grows to more than %llu bytes by the tokenizer's decoders",
                 (unsigned long long)most);
  return hri_hint(error, HR_ERROR_INPUT, "decode it in parts; a tokenizer that makes so much of few tokens is none");
}

static hr_status decode_replace(const hri_decoder *decoder, const pieces *from, pieces *to, uint64_t most,
                                hri_split *split, hr_error *error) {
  for (size_t i = 0; i < from->ends.count; i++) {
    uint64_t begin = piece_begin(from, i), bytes = from->ends.items[i] - begin, done = 0;
    const char *text = hri_text_get(&from->text) + begin;
    hri_split_piece match;
    bool found = bytes > 0;
    if (found) HRI_TRY(hri_split_begin(split, decoder->splitter, text, bytes, error));
    while (found) {
      HRI_TRY(hri_split_next_match(split, &match, &found, error));
      if (!found) break;
      hri_text_add_bytes(&to->text, text + done, match.begin - done);
      hri_text_add_bytes(&to->text, decoder->content, strlen(decoder->content));
      done = match.end;
      if (to->text.length > most) return refuse_growth(most, error);
    }
    hri_text_add_bytes(&to->text, text + done, bytes - done);
    end_piece(to);
  }
  return HR_OK;
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = (char)(c | 32);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* "<0xHH>" as its byte, -1 for other texts. */
static int fallback_byte(const char *text, uint64_t bytes) {
  int high, low;
  if (bytes != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
  high = hex_digit(text[3]);
  low = hex_digit(text[4]);
  return high < 0 || low < 0 ? -1 : high << 4 | low;
}

/* A run of bytes is text when it is valid as a whole, else one U+FFFD for each byte. */
static void flush_bytes(pieces *to, hri_text *run) {
  if (run->length == 0) return;
  if (hri_utf8_valid(run->chars, run->length) == run->length) {
    hri_text_add_bytes(&to->text, run->chars, run->length);
    end_piece(to);
  } else {
    for (size_t i = 0; i < run->length; i++) {
      hri_text_add_bytes(&to->text, "\xEF\xBF\xBD", 3);
      end_piece(to);
    }
  }
  run->length = 0;
}

static void decode_byte_fallback(const pieces *from, pieces *to) {
  hri_text run = {0};
  for (size_t i = 0; i < from->ends.count; i++) {
    uint64_t begin = piece_begin(from, i), bytes = from->ends.items[i] - begin;
    const char *text = hri_text_get(&from->text) + begin;
    int byte = fallback_byte(text, bytes);
    if (byte >= 0) {
      hri_text_add_bytes(&run, &(char){(char)byte}, 1);
      continue;
    }
    flush_bytes(to, &run);
    hri_text_add_bytes(&to->text, text, bytes);
    end_piece(to);
  }
  flush_bytes(to, &run);
  to->failed = to->failed || run.failed;
  hri_text_deinit(&run);
}

static void decode_fuse(const pieces *from, pieces *to) {
  hri_text_add_bytes(&to->text, hri_text_get(&from->text), from->text.length);
  end_piece(to);
}

static void decode_strip(const hri_decoder *decoder, const pieces *from, pieces *to) {
  uint64_t width = strlen(decoder->content);
  for (size_t i = 0; i < from->ends.count; i++) {
    uint64_t begin = piece_begin(from, i), end = from->ends.items[i];
    const char *text = hri_text_get(&from->text);
    for (uint64_t k = 0;
         k < decoder->left && end - begin >= width && memcmp(text + begin, decoder->content, width) == 0; k++)
      begin += width;
    for (uint64_t k = 0;
         k < decoder->right && end - begin >= width && memcmp(text + end - width, decoder->content, width) == 0; k++)
      end -= width;
    hri_text_add_bytes(&to->text, text + begin, end - begin);
    end_piece(to);
  }
}

/* Every `content` becomes a blank, or nothing where `drops` says so. */
static void replace_content(const hri_decoder *decoder, const char *text, uint64_t bytes, bool drops, pieces *to) {
  uint64_t width = strlen(decoder->content), done = 0;
  for (uint64_t i = 0; i + width <= bytes;) {
    if (memcmp(text + i, decoder->content, width) != 0) {
      i++;
      continue;
    }
    hri_text_add_bytes(&to->text, text + done, i - done);
    if (!drops) hri_text_add_bytes(&to->text, " ", 1);
    done = i += width;
  }
  hri_text_add_bytes(&to->text, text + done, bytes - done);
  end_piece(to);
}

static void decode_blanks(const hri_decoder *decoder, const pieces *from, pieces *to) {
  for (size_t i = 0; i < from->ends.count; i++) {
    uint64_t begin = piece_begin(from, i);
    bool drops = decoder->kind == HRI_DECODE_BPE ? i + 1 == from->ends.count : i == 0 && decoder->left;
    replace_content(decoder, hri_text_get(&from->text) + begin, from->ends.items[i] - begin, drops, to);
  }
}

/* English punctuation behind a blank, as the reference cleans it up: one replacement after another. */
static bool clean_up(hri_text *text, hri_text *other) {
  static const char *const pairs[][2] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                                         {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                                         {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++) {
    const char *at = hri_text_get(text), *found;
    if (!strstr(at, pairs[p][0])) continue;
    other->length = 0;
    for (; (found = strstr(at, pairs[p][0])); at = found + strlen(pairs[p][0])) {
      hri_text_add_bytes(other, at, (size_t)(found - at));
      hri_text_add_bytes(other, pairs[p][1], strlen(pairs[p][1]));
    }
    hri_text_add_bytes(other, at, strlen(at));
    hri_text swap = *text;
    *text = *other;
    *other = swap;
  }
  return !text->failed && !other->failed;
}

static void decode_wordpiece(const hri_decoder *decoder, const pieces *from, pieces *to) {
  uint64_t width = strlen(decoder->content);
  hri_text token = {0}, other = {0};
  for (size_t i = 0; i < from->ends.count; i++) {
    uint64_t begin = piece_begin(from, i), end = from->ends.items[i];
    const char *text = hri_text_get(&from->text);
    bool goes_on = i > 0 && end - begin >= width && memcmp(text + begin, decoder->content, width) == 0;
    token.length = 0;
    if (i > 0 && !goes_on) hri_text_add_bytes(&token, " ", 1);
    hri_text_add_bytes(&token, text + begin + (goes_on ? width : 0), end - begin - (goes_on ? width : 0));
    if (decoder->left && !clean_up(&token, &other)) to->failed = true;
    hri_text_add_bytes(&to->text, hri_text_get(&token), token.length);
    end_piece(to);
  }
  to->failed = to->failed || token.failed;
  hri_text_deinit(&token);
  hri_text_deinit(&other);
}

static hr_status run_decoder(const hri_decoder *decoder, const pieces *from, pieces *to, uint64_t most,
                             hri_split *split, hr_error *error) {
  clear_pieces(to);
  switch (decoder->kind) {
  case HRI_DECODE_BYTE_LEVEL: decode_byte_level(from, to); break;
  case HRI_DECODE_REPLACE: return decode_replace(decoder, from, to, most, split, error);
  case HRI_DECODE_BYTE_FALLBACK: decode_byte_fallback(from, to); break;
  case HRI_DECODE_FUSE: decode_fuse(from, to); break;
  case HRI_DECODE_STRIP: decode_strip(decoder, from, to); break;
  case HRI_DECODE_METASPACE:
  case HRI_DECODE_BPE: decode_blanks(decoder, from, to); break;
  case HRI_DECODE_WORDPIECE: decode_wordpiece(decoder, from, to); break;
  }
  return HR_OK;
}

/* ---- All of it ---- */

/* What a token adds to the list, and whether it is special by that. */
static const char *content_of(const hr_tokenizer *tokenizer, uint32_t id, uint32_t *bytes, bool *special) {
  const hri_vocab *vocab = &tokenizer->vocab;
  const hri_added_token *added = vocab->flags[id] & HRI_TOKEN_ADDED ? hri_added_get(&tokenizer->added, id) : NULL;
  uint32_t same = id;
  *bytes = vocab->bytes[id];
  if (added && added->decoded) {
    *bytes = added->decoded_bytes;
    same = hri_vocab_find(vocab, added->decoded, added->decoded_bytes);
  }
  *special = same != HRI_TOKEN_NONE && (vocab->flags[same] & HRI_TOKEN_SPECIAL);
  return added && added->decoded ? added->decoded : hri_vocab_content(vocab, id);
}

static hr_status collect(const hr_tokenizer *tokenizer, const int32_t *ids, uint64_t count, uint32_t flags,
                         pieces *list, hr_error *error) {
  const hri_vocab *vocab = &tokenizer->vocab;
  for (uint64_t i = 0; i < count; i++) {
    const char *content;
    uint32_t bytes;
    bool special;
    if (ids[i] < 0 || !hri_vocab_has(vocab, (uint32_t)ids[i]))
      return hri_fail(error, HR_ERROR_INPUT, "token %llu: the tokenizer %s has no id %d", (unsigned long long)i,
                      tokenizer->file, (int)ids[i]);
    content = content_of(tokenizer, (uint32_t)ids[i], &bytes, &special);
    if ((flags & HR_DECODE_SKIP_SPECIAL) && special) continue;
    if (tokenizer->joins_with_blanks && list->ends.count) hri_text_add_bytes(&list->text, " ", 1);
    hri_text_add_bytes(&list->text, content, bytes);
    end_piece(list);
  }
  return HR_OK;
}

hr_status hr_tokenizer_decode(const hr_tokenizer *tokenizer, const int32_t *ids, uint64_t count, uint32_t flags,
                              char **text, uint64_t *bytes, hr_error *error) {
  pieces lists[2] = {0};
  hri_split split = {0};
  uint32_t now = 0;
  uint64_t most;
  hr_status status;
  if (!tokenizer || !text || (!ids && count))
    return hri_fail(error, HR_ERROR_USAGE, "hr_tokenizer_decode needs a tokenizer, ids and a place for the text");
  *text = NULL;
  if (bytes) *bytes = 0;
  HRI_TRY_OUT(collect(tokenizer, ids, count, flags, &lists[0], error));
  most = (uint64_t)lists[0].text.length * GROWTH + GROWTH_FREE;
  for (size_t i = 0; i < tokenizer->decoders.count; i++, now ^= 1)
    HRI_TRY_OUT(run_decoder(&tokenizer->decoders.items[i], &lists[now], &lists[now ^ 1], most, &split, error));
  hri_text_add_bytes(&lists[now].text, "", 0); /* an empty text has its NUL too */
  if (lists[0].failed || lists[1].failed || lists[0].text.failed || lists[1].text.failed) {
    status = hri_fail_memory(error, lists[now].text.length, "decoded text");
    goto out;
  }
  *text = lists[now].text.chars;
  if (bytes) *bytes = lists[now].text.length;
  lists[now].text = (hri_text){0};
out:
  hri_split_end(&split);
  free_pieces(&lists[0]);
  free_pieces(&lists[1]);
  return status;
}
