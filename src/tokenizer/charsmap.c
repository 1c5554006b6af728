/* The longest key at a place of a text and its replacement. The map is a file's: it is checked once when it is loaded,
 * and every step of a walk through the trie against its end. */
#include "tokenizer/charsmap.h"

#include <string.h>

hr_status hri_charsmap_load(hri_charsmap *map, const void *bytes, uint32_t count, const char *field, hr_error *error) {
  const uint8_t *from = bytes;
  uint32_t trie_bytes = 0;
  if (count >= 4) trie_bytes = from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
  if (count < 4 || trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes >= count - 4 || from[count - 1] != 0) {
    (void)hri_fail(error, HR_ERROR_INPUT, "field '%s' of %u bytes is malformed (its trie has %u)", field, count,
                   trie_bytes);
    return hri_hint(error, HR_ERROR_INPUT, "fetch the tokenizer again");
  }
  map->unit_count = trie_bytes / 4;
  map->text_bytes = count - 4 - trie_bytes;
  map->units = hri_alloc(trie_bytes);
  map->texts = hri_alloc(map->text_bytes);
  if (!map->units || !map->texts) return hri_fail_memory(error, count, "the rules of a normalizer");
  for (uint32_t i = 0; i < map->unit_count; i++) {
    const uint8_t *p = from + 4 + 4 * (size_t)i;
    map->units[i] = p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
  }
  memcpy(map->texts, from + 4 + trie_bytes, map->text_bytes);
  for (uint32_t c = 0; c < 128; c++) {
    char pair[2] = {(char)c, 0};
    const char *text;
    for (uint32_t next = 0; next < 128 && !map->ascii[c]; next++) {
      pair[1] = (char)next;
      map->ascii[c] = hri_charsmap_find(map, pair, 2, true, &text) > 0;
    }
  }
  return HR_OK;
}

void hri_charsmap_deinit(hri_charsmap *map) {
  hri_free(map->units);
  hri_free(map->texts);
  *map = (hri_charsmap){0};
}

static uint32_t unit_offset(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

uint32_t hri_charsmap_find(const hri_charsmap *map, const char *bytes, uint64_t count, bool longest,
                           const char **text) {
  uint32_t position, found = 0;
  if (!map->units) return 0;
  position = unit_offset(map->units[0]);
  for (uint32_t i = 0; i < count; i++) {
    uint32_t unit, label = (uint8_t)bytes[i], value;
    position ^= label;
    if (position >= map->unit_count) return found;
    unit = map->units[position];
    if ((unit & (1u << 31 | 0xFF)) != label) return found;
    position ^= unit_offset(unit);
    if (position >= map->unit_count) return found;
    if ((unit & 1u << 8) == 0) continue;
    value = map->units[position] & ~(1u << 31);
    if (value >= map->text_bytes) continue; /* a damaged map; what it points to is not there */
    *text = map->texts + value;
    found = i + 1;
    if (!longest) return found;
  }
  return found;
}
