/* NFC, NFD, NFKC, NFKD (Unicode Standard Annex 15) by recorded tables.
 *
 * Text that is normal already is found by one bit per character and left alone; only parts around other characters are
 * taken apart, from the last stable character before them to the next one behind. Characters carry what the reference
 * calls their change (see normalize_internal.h), because the origins it reports follow from it. */
#include <string.h>

#include "tokenizer/normalize_internal.h"
#include "tokenizer/unicode_tables.h"

enum {
  HANGUL_FIRST = 0xAC00,
  HANGUL_COUNT = 11172,
  LEADING = 0x1100,
  VOWEL = 0x1161,
  TRAILING = 0x11A7,
  LEADING_COUNT = 19,
  VOWEL_COUNT = 21,
  TRAILING_COUNT = 28
};

static uint8_t combining_class(uint32_t point) {
  uint32_t low = 0, high = hri_unicode_combining_count;
  if ((hri_unicode_entry(point) & HRI_UNICODE_NFD) == 0) return 0;
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    if (hri_unicode_combining[middle].last < point) low = middle + 1;
    else high = middle;
  }
  return low < hri_unicode_combining_count && hri_unicode_combining[low].first <= point
             ? hri_unicode_combining[low].combining
             : 0;
}

static const hri_unicode_decomposition *find(const hri_unicode_decomposition *list, uint32_t count, uint32_t point) {
  uint32_t low = 0, high = count;
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    if (list[middle].point < point) low = middle + 1;
    else high = middle;
  }
  return low < count && list[low].point == point ? &list[low] : NULL;
}

/* The full decomposition of `point` into `out` (at most 18 code points, U+FDFA); returns their number. */
static uint32_t decompose(uint32_t point, bool compatible, uint32_t out[18]) {
  const hri_unicode_decomposition *found = NULL;
  uint8_t entry = hri_unicode_entry(point);
  uint32_t hangul = point - HANGUL_FIRST;
  if (hangul < HANGUL_COUNT) {
    out[0] = LEADING + hangul / (VOWEL_COUNT * TRAILING_COUNT);
    out[1] = VOWEL + hangul % (VOWEL_COUNT * TRAILING_COUNT) / TRAILING_COUNT;
    out[2] = TRAILING + hangul % TRAILING_COUNT;
    return out[2] == TRAILING ? 2 : 3;
  }
  if (compatible && (entry & HRI_UNICODE_COMPAT))
    found = find(hri_unicode_compatible, hri_unicode_compatible_count, point);
  else if (entry & HRI_UNICODE_NFD) found = find(hri_unicode_canonical, hri_unicode_canonical_count, point);
  if (!found) return out[0] = point, 1;
  memcpy(out, hri_unicode_decomposed + found->at, found->count * sizeof *out);
  return found->count;
}

/* The character that a pair composes to, 0 when there is none. */
static uint32_t compose(uint32_t left, uint32_t right) {
  uint64_t key = (uint64_t)left << 32 | right;
  uint32_t low = 0, high = hri_unicode_pairs_count, hangul = left - HANGUL_FIRST;
  if (left - LEADING < LEADING_COUNT && right - VOWEL < VOWEL_COUNT)
    return HANGUL_FIRST + ((left - LEADING) * VOWEL_COUNT + (right - VOWEL)) * TRAILING_COUNT;
  if (hangul < HANGUL_COUNT && hangul % TRAILING_COUNT == 0 && right - TRAILING - 1 < TRAILING_COUNT - 1)
    return left + (right - TRAILING);
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    const hri_unicode_pair *pair = &hri_unicode_pairs[middle];
    if (((uint64_t)pair->left << 32 | pair->right) < key) low = middle + 1;
    else high = middle;
  }
  if (low == hri_unicode_pairs_count || hri_unicode_pairs[low].left != left || hri_unicode_pairs[low].right != right)
    return 0;
  return hri_unicode_pairs[low].whole;
}

/* Appends the decomposition of old bytes [begin, end) to normal->chars. */
static bool take_apart(hri_normal *normal, uint64_t begin, uint64_t end, bool compatible) {
  normal->char_count = 0;
  while (begin < end) {
    uint32_t point, parts[18], count;
    bool valid;
    begin += hri_utf8_decode(normal->text + begin, end - begin, &point, &valid);
    count = decompose(point, compatible, parts);
    if (!hri_array_reserve_((void **)&normal->chars, &normal->char_capacity, normal->char_count + count,
                            sizeof *normal->chars))
      return false;
    for (uint32_t i = 0; i < count; i++)
      normal->chars[normal->char_count++] = (hri_normal_char){parts[i], i > 0, combining_class(parts[i])};
  }
  return true;
}

/* Canonical order: marks between starters by their class, stable. By counting, since a text may be nothing but
 * marks. */
static bool order_marks(hri_normal *normal) {
  hri_normal_char *chars = normal->chars;
  size_t begin = 0, end;
  for (; begin < normal->char_count; begin = end + 1) {
    bool ordered = true;
    for (end = begin; end < normal->char_count && chars[end].combining != 0; end++)
      if (end > begin && chars[end - 1].combining > chars[end].combining) ordered = false;
    if (ordered) continue;
    size_t places[257] = {0};
    if (!hri_array_reserve_((void **)&normal->sorted, &normal->sorted_capacity, end - begin, sizeof *chars))
      return false;
    for (size_t i = begin; i < end; i++) places[chars[i].combining + 1]++;
    for (size_t i = 1; i < 257; i++) places[i] += places[i - 1];
    for (size_t i = begin; i < end; i++) normal->sorted[places[chars[i].combining]++] = chars[i];
    memcpy(chars + begin, normal->sorted, (end - begin) * sizeof *chars);
  }
  return true;
}

/* Canonical composition in place: a character joins the last starter unless one of the same or a higher class, or
 * another starter, stands between. */
static void join(hri_normal *normal) {
  hri_normal_char *chars = normal->chars;
  size_t count = 0, starter = SIZE_MAX;
  for (size_t i = 0; i < normal->char_count; i++) {
    bool adjacent = starter != SIZE_MAX && count == starter + 1;
    bool blocked = starter == SIZE_MAX || (!adjacent && chars[count - 1].combining >= chars[i].combining);
    uint32_t whole = blocked ? 0 : compose(chars[starter].point, chars[i].point);
    if (whole) {
      chars[starter].point = whole;
      chars[starter].change += chars[i].change - 1;
      continue;
    }
    if (chars[i].combining == 0) starter = count;
    chars[count++] = chars[i];
  }
  normal->char_count = count;
}

/* Bytes of `count` characters from `at` on. */
static uint64_t skip_chars(const hri_normal *normal, uint64_t at, int32_t count) {
  while (count-- > 0 && at < normal->bytes) {
    at++;
    while (at < normal->bytes && ((uint8_t)normal->text[at] & 0xC0) == 0x80) at++;
  }
  return at;
}

/* Writes normal->chars, which stand for the old bytes from `at` on. */
static void put_chars(hri_normal *normal, hri_normal_writer *writer, uint64_t at) {
  for (size_t i = 0; i < normal->char_count; i++) {
    hri_normal_char what = normal->chars[i];
    hri_split_piece span = {0, 0};
    char bytes[4];
    if (normal->with_spans && what.change <= 0 && at < normal->bytes) span = hri_normal_span(normal, at);
    if (normal->with_spans && what.change > 0 && at > 0) span = hri_normal_span(normal, at - 1);
    if (what.change <= 0) at = skip_chars(normal, at, 1 - what.change);
    hri_normal_put(writer, bytes, hri_utf8_encode(what.point, bytes), span);
  }
}

/* The next character from `at` on that has a bit of `mask` (*at is moved to it; the end when there is none); *before is
 * where the character before it begins, or *at when it is the first. */
static void next_unstable(const hri_normal *normal, uint8_t mask, uint64_t *at, uint64_t *before) {
  const uint8_t *base = (const uint8_t *)normal->text, *end = base + normal->bytes, *p = base + *at, *last = p;
  uint64_t eight;
  while (p < end) {
    const uint8_t *next = p;
    if (*p < 0x80) {
      while (end - p > 8 && (memcpy(&eight, p + 1, 8), (eight & 0x8080808080808080u) == 0)) p += 8;
      last = p++;
      continue;
    }
    if (hri_unicode_entry(hri_utf8_next(&next)) & mask) break;
    last = p;
    p = next;
  }
  *at = (uint64_t)(p - base);
  *before = (uint64_t)(last - base);
}

/* The end of the part that begins at `at` with unstable characters: where the next character can neither join what
 * stands before it nor be moved before it. */
static uint64_t part_end(const hri_normal *normal, uint64_t at, hri_normalize_kind kind) {
  bool composes = kind == HRI_NORMALIZE_NFC || kind == HRI_NORMALIZE_NFKC;
  bool compatible = kind == HRI_NORMALIZE_NFKC || kind == HRI_NORMALIZE_NFKD;
  while (at < normal->bytes) {
    uint32_t point, parts[18];
    bool valid;
    size_t width = hri_utf8_decode(normal->text + at, normal->bytes - at, &point, &valid);
    (void)decompose(point, compatible, parts);
    /* NFC bit: it may be the second of a pair, or is a mark */
    if (composes ? (hri_unicode_entry(parts[0]) & HRI_UNICODE_NFC) == 0 : combining_class(parts[0]) == 0) break;
    at += width;
  }
  return at;
}

hr_status hri_normal_form(hri_normal *normal, hri_normalize_kind kind, hr_error *error) {
  bool composes = kind == HRI_NORMALIZE_NFC || kind == HRI_NORMALIZE_NFKC;
  bool compatible = kind == HRI_NORMALIZE_NFKC || kind == HRI_NORMALIZE_NFKD;
  uint8_t mask = (uint8_t)((composes ? HRI_UNICODE_NFC : HRI_UNICODE_NFD) | (compatible ? HRI_UNICODE_COMPAT : 0));
  hri_normal_writer writer = {0};
  uint64_t at = 0, kept = 0, before = 0;
  for (;;) {
    uint64_t end;
    next_unstable(normal, mask, &at, &before);
    if (at == normal->bytes) break;
    if (!writer.normal) writer = hri_normal_write(normal);
    end = part_end(normal, skip_chars(normal, at, 1), kind);
    hri_normal_keep(&writer, kept, before);
    if (!take_apart(normal, before, end, compatible) || !order_marks(normal)) {
      writer.failed = true;
      break;
    }
    if (composes) join(normal);
    put_chars(normal, &writer, before);
    kept = at = end;
  }
  if (!writer.normal) return HR_OK;
  hri_normal_keep(&writer, kept, normal->bytes);
  return hri_normal_done(&writer, error);
}
