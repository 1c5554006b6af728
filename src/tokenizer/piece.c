/* The room of the work grows by need and is kept for the next piece. Seams are places that no token of the vocabulary
 * reaches across; a long piece falls apart there without another result. */
#include "tokenizer/piece.h"

#include "tokenizer/unigram.h"

hr_status hri_piece_room(hri_piece_work *work, uint64_t want, hr_error *error) {
  uint64_t capacity = work->capacity < 64 ? 64 : work->capacity;
  uint32_t **arrays[4] = {&work->ids, &work->bytes, &work->next, &work->prior};
  if (want <= work->capacity) return HR_OK;
  while (capacity < want) capacity *= 2;
  for (uint32_t i = 0; i < 4; i++) {
    uint32_t *grown = hri_realloc(*arrays[i], capacity * sizeof *grown);
    if (!grown) return hri_fail_memory(error, capacity * sizeof *grown, "a long piece of text");
    *arrays[i] = grown;
  }
  work->capacity = capacity;
  return HR_OK;
}

void hri_piece_deinit(hri_piece_work *work) {
  hri_free(work->ids);
  hri_free(work->bytes);
  hri_free(work->next);
  hri_free(work->prior);
  hri_free(work->heap);
  hri_free(work->memory);
  hri_free(work->nodes);
  hri_text_deinit(&work->mapped);
  *work = (hri_piece_work){0};
}

/* ---- Seams ---- */

enum { MOST_BLOCKERS = 256 };

bool hri_seam_mark(const char *text, uint64_t bytes) {
  return bytes >= HRI_SEAM_BYTES && memcmp(text, "\xE2\x96\x81", HRI_SEAM_BYTES) == 0;
}

hr_status hri_seams_begin(hri_seams *seams, hr_error *error) {
  seams->blockers = hri_alloc(MOST_BLOCKERS * sizeof *seams->blockers);
  return seams->blockers
             ? HR_OK
             : hri_fail_memory(error, MOST_BLOCKERS * sizeof *seams->blockers, "the tokens of the tokenizer");
}

void hri_seams_deinit(hri_seams *seams) {
  hri_free(seams->blockers);
  *seams = (hri_seams){0};
}

/* The last character before `end` as its bytes in one number. */
static uint32_t character_before(const char *begin, const char *end) {
  uint32_t packed = 0;
  const char *at = end;
  do at--;
  while (at > begin && ((unsigned char)*at & 0xC0) == 0x80 && end - at < 4);
  for (; at < end; at++) packed = packed << 8 | (unsigned char)*at;
  return packed;
}

/* The place of a character among the sorted blockers, or where it belongs. */
static uint32_t blocker_place(const hri_seams *seams, uint32_t character) {
  uint32_t low = 0, high = seams->count;
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    if (seams->blockers[middle] < character) low = middle + 1;
    else high = middle;
  }
  return low;
}

static bool is_blocker(const hri_seams *seams, uint32_t character) {
  uint32_t place = blocker_place(seams, character);
  return place < seams->count && seams->blockers[place] == character;
}

bool hri_seams_block(hri_seams *seams, const char *begin, const char *end) {
  uint32_t character = character_before(begin, end), place = blocker_place(seams, character);
  if (place < seams->count && seams->blockers[place] == character) return true;
  if (seams->count == MOST_BLOCKERS) return false;
  memmove(seams->blockers + place + 1, seams->blockers + place, (seams->count - place) * sizeof(uint32_t));
  seams->blockers[place] = character;
  seams->count++;
  return true;
}

bool hri_seam_at(const hri_seams *seams, const char *begin, const char *at, const char *end) {
  return hri_seam_mark(at, (uint64_t)(end - at)) && !is_blocker(seams, character_before(begin, at));
}
