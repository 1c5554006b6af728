#include "tokenizer/vocab.h"

void hri_vocab_deinit(hri_vocab *vocab) {
  hri_free(vocab->pool);
  hri_free(vocab->start);
  hri_free(vocab->bytes);
  hri_free(vocab->flags);
  hri_free(vocab->slots);
  *vocab = (hri_vocab){0};
}

/* Eight bytes a step; the multiplier is an odd number near 2^64 / golden ratio. */
static uint32_t hash_bytes(const char *bytes, uint64_t count) {
  const uint64_t multiplier = 0x9E3779B97F4A7C15u;
  uint64_t hash = count * multiplier, word;
  for (; count >= 8; count -= 8, bytes += 8) {
    memcpy(&word, bytes, 8);
    hash = (hash ^ word) * multiplier;
    hash ^= hash >> 32;
  }
  word = 0;
  memcpy(&word, bytes, count);
  hash = (hash ^ word) * multiplier;
  return (uint32_t)(hash >> 32);
}

/* The slot that holds the content, or the empty one where it belongs. */
static uint32_t find_slot(const hri_vocab *vocab, const char *content, uint64_t bytes) {
  uint32_t slot = hash_bytes(content, bytes) & vocab->slot_mask;
  for (; vocab->slots[slot] != 0; slot = (slot + 1) & vocab->slot_mask) {
    uint32_t id = vocab->slots[slot] - 1;
    if (vocab->bytes[id] == bytes && memcmp(hri_vocab_content(vocab, id), content, bytes) == 0) break;
  }
  return slot;
}

uint32_t hri_vocab_find(const hri_vocab *vocab, const char *content, uint64_t bytes) {
  if (!vocab->slots || bytes > UINT32_MAX) return HRI_TOKEN_NONE;
  return vocab->slots[find_slot(vocab, content, bytes)] - 1; /* an empty slot gives NONE */
}

/* At most half of the slots are taken. */
static hr_status grow_slots(hri_vocab *vocab, hr_error *error) {
  uint64_t want = vocab->slots ? 2 * ((uint64_t)vocab->slot_mask + 1) : 1024;
  uint32_t *old = vocab->slots, old_count = vocab->slots ? vocab->slot_mask + 1 : 0;
  uint32_t *slots = hri_alloc_zero(want, sizeof *slots);
  if (!slots) return hri_fail_memory(error, want * sizeof *slots, "the vocabulary");
  vocab->slots = slots;
  vocab->slot_mask = (uint32_t)(want - 1);
  for (uint32_t i = 0; i < old_count; i++)
    if (old[i]) slots[find_slot(vocab, hri_vocab_content(vocab, old[i] - 1), vocab->bytes[old[i] - 1])] = old[i];
  hri_free(old);
  return HR_OK;
}

static hr_status grow_ids(hri_vocab *vocab, uint32_t id, hr_error *error) {
  uint32_t want = vocab->capacity < 256 ? 256 : vocab->capacity, *start, *bytes;
  uint8_t *flags;
  while (want <= id) want *= 2; /* ids are below 2^24 */
  if (want > vocab->capacity) {
    start = hri_realloc(vocab->start, want * sizeof *start);
    if (start) vocab->start = start;
    bytes = start ? hri_realloc(vocab->bytes, want * sizeof *bytes) : NULL;
    if (bytes) vocab->bytes = bytes;
    flags = bytes ? hri_realloc(vocab->flags, want) : NULL;
    if (!flags) return hri_fail_memory(error, want * sizeof *start, "the vocabulary");
    vocab->flags = flags;
    vocab->capacity = want;
  }
  for (; vocab->size <= id; vocab->size++) {
    vocab->start[vocab->size] = HRI_TOKEN_NONE;
    vocab->bytes[vocab->size] = 0;
    vocab->flags[vocab->size] = 0;
  }
  return HR_OK;
}

static hr_status grow_pool(hri_vocab *vocab, uint64_t bytes, hr_error *error) {
  uint64_t want = vocab->pool_capacity < 4096 ? 4096 : vocab->pool_capacity;
  char *pool;
  while (want - vocab->pool_bytes < bytes + 1) want *= 2;
  if (want == vocab->pool_capacity) return HR_OK;
  if (vocab->pool_bytes + bytes >= HRI_TOKEN_NONE)
    return hri_fail(error, HR_ERROR_INPUT, "the tokens of the vocabulary have more than 4 GiB");
  pool = hri_realloc(vocab->pool, want);
  if (!pool) return hri_fail_memory(error, want, "the vocabulary");
  vocab->pool = pool;
  vocab->pool_capacity = want;
  return HR_OK;
}

hr_status hri_vocab_add(hri_vocab *vocab, const char *content, uint64_t bytes, uint32_t id, uint8_t flags,
                        hr_error *error) {
  if (!vocab->slots || vocab->count >= vocab->slot_mask / 2) HRI_TRY(grow_slots(vocab, error));
  HRI_TRY(grow_pool(vocab, bytes, error));
  if (id >= vocab->size) HRI_TRY(grow_ids(vocab, id, error));
  vocab->start[id] = (uint32_t)vocab->pool_bytes;
  vocab->bytes[id] = (uint32_t)bytes;
  vocab->flags[id] = flags;
  memcpy(vocab->pool + vocab->pool_bytes, content, bytes);
  vocab->pool[vocab->pool_bytes + bytes] = 0;
  vocab->pool_bytes += bytes + 1;
  vocab->count++;
  vocab->model_count += (flags & HRI_TOKEN_MODEL) != 0;
  vocab->slots[find_slot(vocab, content, bytes)] = id + 1;
  return HR_OK;
}
