/* Splitters: the walk over matches and gaps, and what the behaviors make of them.
 *
 * Everything but the known patterns is seen as one stream of ranges, each a match or a gap, in the order of the text,
 * as the reference lists them. Behaviors look at most one range back, so a walk holds one piece and needs no list. */
#include "tokenizer/split.h"

#include <string.h>

#include "tokenizer/split_internal.h"
#include "tokenizer/unicode.h"

bool hri_split_behavior_parse(const char *name, hri_split_behavior *behavior) {
  static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
  for (uint32_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(name, names[i]) == 0) return *behavior = (hri_split_behavior)i, true;
  return false;
}

static hr_status create(hri_split_kind kind, hri_split_behavior behavior, bool invert, hri_splitter **splitter,
                        hr_error *error) {
  *splitter = hri_alloc_zero(1, sizeof **splitter);
  if (!*splitter) return hri_fail_memory(error, sizeof **splitter, "a splitter");
  (*splitter)->kind = kind;
  (*splitter)->behavior = behavior;
  (*splitter)->invert = invert;
  return HR_OK;
}

hr_status hri_splitter_create_regex(const char *pattern, size_t bytes, hri_split_behavior behavior, bool invert,
                                    hri_splitter **splitter, hr_error *error) {
  const hri_split_known *known = hri_split_known_find(pattern, bytes);
  hr_status status;
  HRI_TRY(create(known ? HRI_SPLIT_KNOWN : HRI_SPLIT_REGEX, behavior, invert, splitter, error));
  (*splitter)->known = known;
  if (known) return HR_OK;
  status = hri_runs_compile(pattern, bytes, &(*splitter)->runs, error);
  if (status == HR_OK && !(*splitter)->runs) status = hri_regex_compile(pattern, bytes, *splitter, error);
  if (status != HR_OK) {
    hri_splitter_destroy(*splitter);
    *splitter = NULL;
  }
  return status;
}

hr_status hri_splitter_create_literal(const char *literal, size_t bytes, hri_split_behavior behavior, bool invert,
                                      hri_splitter **splitter, hr_error *error) {
  HRI_TRY(create(HRI_SPLIT_LITERAL, behavior, invert, splitter, error));
  (*splitter)->literal = hri_alloc(bytes);
  if (!(*splitter)->literal) {
    hri_splitter_destroy(*splitter);
    *splitter = NULL;
    return hri_fail_memory(error, bytes, "the literal of a splitter");
  }
  if (bytes > 0) memcpy((*splitter)->literal, literal, bytes);
  (*splitter)->literal_bytes = bytes;
  return HR_OK;
}

hr_status hri_splitter_create_class(hri_split_class which, hri_split_behavior behavior, bool invert,
                                    hri_splitter **splitter, hr_error *error) {
  static bool (*const tests[])(uint32_t) = {[HRI_SPLIT_SPACES] = hri_unicode_is_space,
                                            [HRI_SPLIT_DIGITS] = hri_unicode_is_numeric,
                                            [HRI_SPLIT_PUNCTUATION] = hri_unicode_is_punctuation,
                                            [HRI_SPLIT_WORDS] = hri_unicode_is_word};
  HRI_TRY(create(HRI_SPLIT_CLASS, behavior, invert, splitter, error));
  (*splitter)->is_in = tests[which];
  for (uint32_t byte = 0; byte < 256; byte++)
    (*splitter)->ascii[byte] = byte < 0x80 && !tests[which](byte) ? HRI_SPLIT_OUTSIDE : HRI_SPLIT_LOOK;
  for (uint32_t point = 0; point < 0x80; point++) (*splitter)->ascii_in[point] = tests[which](point);
  return HR_OK;
}

hr_status hri_splitter_create_byte_level(hri_splitter **splitter, hr_error *error) {
  const char *pattern = hri_split_pattern_named("gpt2");
  return hri_splitter_create_regex(pattern, strlen(pattern), HRI_SPLIT_ISOLATED, false, splitter, error);
}

hr_status hri_splitter_create_words(hri_splitter **splitter, hr_error *error) {
  HRI_TRY(create(HRI_SPLIT_KNOWN, HRI_SPLIT_ISOLATED, false, splitter, error));
  (*splitter)->known = &hri_split_words;
  return HR_OK;
}

const char *hri_split_pattern_named(const char *name) {
  const hri_split_known *known = hri_split_known_named(name);
  return known ? known->pattern : NULL;
}

void hri_splitter_destroy(hri_splitter *splitter) {
  if (!splitter) return;
  hri_regex_destroy(splitter);
  hri_free(splitter->runs);
  hri_free(splitter->literal);
  hri_free(splitter);
}

const char *hri_splitter_about(const hri_splitter *splitter) {
  switch (splitter->kind) {
  case HRI_SPLIT_KNOWN: return splitter->known->name;
  case HRI_SPLIT_LITERAL: return "literal";
  case HRI_SPLIT_CLASS: return "class";
  case HRI_SPLIT_REGEX: break;
  }
  if (splitter->runs) return "runs";
  return splitter->jit ? "PCRE2 with JIT" : "PCRE2";
}

/* ---- matches ---- */

/* memmem; of the few bytes of a character, as U+2581, eight bytes of text are compared at once, since it is never far. */
static const char *literal_find(const char *text, const char *end, const char *literal, size_t bytes) {
  uint64_t wanted = 0, mask, eight;
  if (bytes == 1 || bytes > 4) return memmem(text, (size_t)(end - text), literal, bytes);
  memcpy(&wanted, literal, bytes);
  memset(memset(&mask, 0, sizeof mask), 0xFF, bytes);
  for (; end - text >= 8; text++) {
    memcpy(&eight, text, 8);
    if ((eight & mask) == wanted) return text;
  }
  return memmem(text, (size_t)(end - text), literal, bytes);
}

static bool literal_match(const hri_split *split, uint32_t start, hri_split_piece *match) {
  const hri_splitter *splitter = split->splitter;
  const char *found;
  if (splitter->literal_bytes == 0) return *match = (hri_split_piece){start, start}, true; /* between all characters */
  if (start >= split->bytes) return false;
  found = literal_find(split->text + start, split->text + split->bytes, splitter->literal, splitter->literal_bytes);
  if (!found) return false;
  *match =
      (hri_split_piece){(uint32_t)(found - split->text), (uint32_t)(found - split->text + splitter->literal_bytes)};
  return true;
}

static bool class_match(const hri_split *split, uint32_t start, hri_split_piece *match) {
  const hri_splitter *splitter = split->splitter;
  uint32_t at = start;
  for (;;) {
    uint32_t point;
    bool valid;
    size_t step;
    while (at < split->bytes && splitter->ascii[(uint8_t)split->text[at]] == HRI_SPLIT_OUTSIDE) at++;
    if (at == split->bytes) return false;
    step = hri_utf8_decode(split->text + at, split->bytes - at, &point, &valid);
    if (splitter->is_in(point)) return *match = (hri_split_piece){at, at + (uint32_t)step}, true;
    at += (uint32_t)step;
  }
}

static hr_status find(hri_split *split, uint32_t start, hri_split_piece *match, bool *found, hr_error *error) {
  switch (split->splitter->kind) {
  case HRI_SPLIT_LITERAL: *found = literal_match(split, start, match); return HR_OK;
  case HRI_SPLIT_CLASS: *found = class_match(split, start, match); return HR_OK;
  case HRI_SPLIT_REGEX:
    return split->splitter->runs ? hri_runs_match(split, start, match, found, error)
                                 : hri_regex_match(split, start, match, found, error);
  case HRI_SPLIT_KNOWN: break;
  }
  *found = split->splitter->known->fill(split->text, split->bytes, &start, match, 1) == 1;
  return HR_OK;
}

/* An empty match right behind the last match does not count; the search goes on one character later. Once it is over,
 * `search` lies behind the text. */
hr_status hri_split_next_match(hri_split *split, hri_split_piece *match, bool *found, hr_error *error) {
  *found = false;
  while (split->search <= split->bytes && split->bytes > 0) {
    uint32_t point, step = 1;
    bool valid;
    HRI_TRY(find(split, split->search, match, found, error));
    if (!*found) break;
    if (match->begin < match->end || match->end != split->last_end) {
      split->search = split->last_end = match->end;
      return HR_OK;
    }
    *found = false;
    if (split->search < split->bytes)
      step = (uint32_t)hri_utf8_decode(split->text + split->search, split->bytes - split->search, &point, &valid);
    split->search += step;
  }
  split->search = split->bytes + 1;
  return HR_OK;
}

/* ---- the walk ---- */

hr_status hri_split_begin(hri_split *split, const hri_splitter *splitter, const char *text, uint64_t bytes,
                          hr_error *error) {
  hri_split_memory *memory = split->memory;
  if (bytes >= UINT32_MAX)
    return hri_fail(error, HR_ERROR_INPUT, "a text of %llu bytes is too long to split", (unsigned long long)bytes);
  *split = (hri_split){.splitter = splitter,
                       .text = text,
                       .bytes = (uint32_t)bytes,
                       .last_end = UINT32_MAX,
                       .memory = memory};
  split->done = bytes == 0;
  if (splitter->kind != HRI_SPLIT_REGEX || splitter->runs) return HR_OK;
  if (hri_utf8_valid(text, bytes) != bytes)
    return hri_fail(error, HR_ERROR_INPUT, "text is not valid UTF-8 at byte %llu",
                    (unsigned long long)hri_utf8_valid(text, bytes));
  return hri_regex_prepare(split, error);
}

void hri_split_end(hri_split *split) {
  hri_regex_end(split);
  memset(split, 0, sizeof *split);
}

/* The next range of the stream: a gap, or a match (which may be empty). False at the end. */
static hr_status next_range(hri_split *split, hri_split_piece *range, bool *is_match, bool *more, hr_error *error) {
  *more = true;
  if (!split->has_match && split->given <= split->bytes && !split->done)
    HRI_TRY(hri_split_next_match(split, &split->match, &split->has_match, error));
  if (split->has_match && split->match.begin <= split->given) {
    *range = split->match;
    *is_match = true;
    split->has_match = false;
  } else {
    *range = (hri_split_piece){split->given, split->has_match ? split->match.begin : split->bytes};
    *is_match = false;
    if (!split->has_match) split->done = true;
    if (range->begin == range->end) *more = false;
  }
  split->given = range->end;
  return HR_OK;
}

/* Feeds a range to the behavior. True when `out` is a piece to give out. */
static bool feed(hri_split *split, hri_split_piece range, bool is_match, hri_split_piece *out) {
  bool grows = false, had = split->has_held;
  switch (split->splitter->behavior) {
  case HRI_SPLIT_REMOVED: *out = range; return !is_match;
  case HRI_SPLIT_ISOLATED: *out = range; return true;
  case HRI_SPLIT_CONTIGUOUS: grows = is_match == split->held_is_match; break;
  case HRI_SPLIT_MERGED_WITH_PREVIOUS: grows = is_match && !split->held_is_match; break;
  case HRI_SPLIT_MERGED_WITH_NEXT:
    /* only matches are held here */
    if (!is_match) {
      *out = (hri_split_piece){had ? split->held.begin : range.begin, range.end};
      split->has_held = false;
      return true;
    }
    break;
  }
  split->held_is_match = is_match;
  if (had && grows) {
    split->held.end = range.end;
    return false;
  }
  *out = split->held;
  split->held = range;
  split->has_held = true;
  return had;
}

hr_status hri_split_next(hri_split *split, hri_split_piece *pieces, uint32_t capacity, uint32_t *count,
                         hr_error *error) {
  const hri_splitter *splitter = split->splitter;
  *count = 0;
  /* every byte belongs to a match: each of them is a piece */
  if (splitter->kind == HRI_SPLIT_KNOWN &&
      (splitter->behavior == HRI_SPLIT_ISOLATED || (splitter->behavior == HRI_SPLIT_REMOVED && splitter->invert))) {
    *count = splitter->known->fill(split->text, split->bytes, &split->search, pieces, capacity);
    return HR_OK;
  }
  if (splitter->runs && splitter->behavior == HRI_SPLIT_ISOLATED)
    return hri_runs_fill(split, pieces, capacity, count, error);
  while (*count < capacity) {
    hri_split_piece range, out;
    bool is_match = false, more = false;
    if (!split->done) HRI_TRY(next_range(split, &range, &is_match, &more, error));
    if (more) {
      if (feed(split, range, is_match != splitter->invert, &out) && out.begin < out.end) pieces[(*count)++] = out;
      continue;
    }
    if (!split->has_held) break;
    split->has_held = false;
    if (split->held.begin < split->held.end) pieces[(*count)++] = split->held;
  }
  return HR_OK;
}
