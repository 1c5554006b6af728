/* The list is short (some tens of programs for all alternatives of a job), so it is walked; the digest only spares most
 * comparisons, and what is returned was compared item by item. */
#include "plan/solved.h"

#include <string.h>

/* FNV-1a over words, with its high bits folded in. */
static uint64_t mix(uint64_t digest, uint64_t word) {
  digest = (digest ^ word) * UINT64_C(0x100000001b3);
  return digest ^ digest >> 29;
}

static uint64_t digest_of(const hri_solved_program *p) {
  uint64_t digest = mix(UINT64_C(0xcbf29ce484222325), p->count);
  for (uint32_t i = 0; i < p->all; i++) {
    const hri_shelf_item *it = &p->items[i];
    digest = mix(digest, it->bytes);
    digest = mix(digest, (uint64_t)(it->begin - p->first_tick) << 32 | (it->end - p->first_tick));
    if (i >= p->count) digest = mix(digest, it->low);
  }
  return digest;
}

static bool same(const hri_solved_entry *e, const hri_solved_program *p) {
  if (e->count != p->count || e->all != p->all) return false;
  for (uint32_t i = 0; i < p->all; i++) {
    const hri_shelf_item *a = &e->items[i], *b = &p->items[i];
    if (a->bytes != b->bytes || a->begin != b->begin - p->first_tick || a->end != b->end - p->first_tick ||
        (i >= p->count && a->low != b->low))
      return false;
  }
  return true;
}

const hri_shelf_item *hri_solved_find(const hri_solved *solved, const hri_solved_program *program, uint64_t goal) {
  const uint64_t digest = digest_of(program);
  for (size_t k = 0; k < solved->entries.count; k++) {
    const hri_solved_entry *e = &solved->entries.items[k];
    if (e->digest == digest && e->goals.from <= goal && goal < e->goals.below && same(e, program)) return e->items;
  }
  return NULL;
}

hr_status hri_solved_add(hri_solved *solved, const hri_solved_program *program, hri_solved_range goals,
                         hr_error *error) {
  const uint64_t bytes = (uint64_t)program->all * sizeof *program->items;
  hri_solved_entry e = {.digest = digest_of(program),
                        .goals = goals,
                        .items = hri_alloc(bytes),
                        .count = program->count,
                        .all = program->all};
  if (!e.items) return hri_fail_memory(error, bytes, "placement");
  for (uint32_t i = 0; i < program->all; i++) {
    e.items[i] = program->items[i];
    e.items[i].begin -= program->first_tick;
    e.items[i].end -= program->first_tick;
  }
  if (hri_array_push(&solved->entries, e)) return HR_OK;
  hri_free(e.items);
  return hri_fail_memory(error, sizeof e, "placement");
}

void hri_solved_deinit(hri_solved *solved) {
  for (size_t k = 0; k < solved->entries.count; k++) hri_free(solved->entries.items[k].items);
  hri_array_free(&solved->entries);
}
