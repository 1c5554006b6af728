/* One walk over segments and blocks, for snapshots and for states of a history. */
#include "alloc/history.h"

/* The mapped range that begins with `first`; *end is the block behind it, or NULL. */
static uint64_t range_bytes(const hri_block *first, const hri_block **end) {
  uint64_t bytes = 0;
  for (*end = first; *end && (*end)->mapped; *end = (*end)->next) bytes += (*end)->size;
  return bytes;
}

static bool walk_chain(const hri_block *first, const hri_alloc_visitor *v) {
  for (const hri_block *b = first, *end; b; b = end) {
    if (!b->mapped) {
      end = b->next;
      continue;
    }
    const uint64_t bytes = range_bytes(b, &end);
    if (v->segment && !v->segment(v->context, b, bytes)) return false;
    for (; v->block && b != end; b = b->next)
      if (!v->block(v->context, b)) return false;
  }
  return true;
}

bool hri_alloc_walk(const hr_alloc *alloc, const hri_alloc_visitor *visitor) {
  uint64_t cursor = 0;
  for (const hri_block *b; (b = hri_alloc_each_block(alloc, &cursor)) != NULL;)
    if (!b->prev && !walk_chain(b, visitor)) return false;
  return true;
}
