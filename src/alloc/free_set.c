/* The free blocks of one stream in one half of a pool, in PyTorch's order: by size, then as hr_alloc_order says.
 *
 * Sizes are sorted into bins: one bin per size up to 64 KiB, above it 64 bins per power of two. A bit per bin and a
 * word over the bits' words give the next bin that holds anything in a few instructions. A bin is a treap (a search
 * tree that random priorities keep shallow), which for the usual handful of blocks is as good as an array, and stays
 * logarithmic when ten thousand blocks have one size. C. Aragon, R. Seidel, "Randomized search trees", 1989.
 *
 * The block inserted last stays outside of the bins until the next one comes: what a split leaves is often merged again
 * by the very next free, and need not go through a bin for that.
 *
 * A block that a search finds in a bin stays there when it is taken ("lent"), whole or split, until the set is searched
 * or changed again: when the next thing to happen is that the request's block is freed, which is what becomes of most
 * temporary tensors, the bin is right as it is. Its key may be wrong meanwhile, so it leaves by the link that points at
 * it.
 *
 * Parts of expandable segments without memory are a treap by address alone. */
#include "alloc/alloc.h"

/* Without a branch, as sizes come in any order: exponent 0 gives the exact bins. */
static inline uint64_t bin_of(uint64_t size) {
  const uint64_t units = size / HRI_ALLOC_UNIT;
  const uint64_t exponent = 63 - HRI_BIN_BITS - (uint64_t)__builtin_clzll(units | UINT64_C(1) << HRI_BIN_BITS);
  return (exponent << HRI_BIN_BITS) + (units >> exponent);
}

/* Where a block stands in its treap; unmapped ones are in theirs by address alone. */
typedef struct place {
  uint64_t size, order, address;
} place;

static inline place place_of(const hri_block *b) {
  return b->mapped ? (place){b->size, b->order, b->address} : (place){0, 0, b->address};
}

static inline bool less(place a, place b) {
  if (a.size != b.size) return a.size < b.size;
  return (a.order < b.order) | ((a.order == b.order) & (a.address < b.address));
}

/* Random enough, and without a read of the block. */
static inline uint32_t priority(const hri_block *b) {
  return (uint32_t)(((uintptr_t)b >> 7) * UINT64_C(0x9E3779B97F4A7C15) >> 32);
}

/* ---- treap ---- */

/* All of `tree` before `at` goes to *left, the rest to *right. */
static inline void treap_split(hri_block *tree, place at, hri_block **left, hri_block **right) {
  while (tree != NULL) {
    if (less(at, place_of(tree))) {
      *right = tree;
      right = &tree->child[0];
      tree = tree->child[0];
    } else {
      *left = tree;
      left = &tree->child[1];
      tree = tree->child[1];
    }
  }
  *left = *right = NULL;
}

static inline void treap_insert(hri_block **root, hri_block *block) {
  const place at = place_of(block);
  const uint32_t own = priority(block);
  while (*root != NULL && priority(*root) >= own) root = &(*root)->child[!less(at, place_of(*root))];
  treap_split(*root, at, &block->child[0], &block->child[1]);
  *root = block;
}

static inline hri_block **treap_link(hri_block **root, const hri_block *block) {
  const place at = place_of(block);
  while (*root != block) root = &(*root)->child[!less(at, place_of(*root))];
  return root;
}

/* Removes what *root points at. */
static inline void treap_unlink(hri_block **root) {
  const hri_block *block = *root;
  hri_block *a = block->child[0], *b = block->child[1];
  while (a != NULL && b != NULL) {
    if (priority(a) >= priority(b)) {
      *root = a;
      root = &a->child[1];
      a = a->child[1];
    } else {
      *root = b;
      root = &b->child[0];
      b = b->child[0];
    }
  }
  *root = a != NULL ? a : b;
}

/* What points at the first at or after `at`; or, with `below`, at the last before it. NULL: none. */
static inline hri_block **treap_search(hri_block **root, place at, bool below) {
  hri_block **found = NULL;
  while (*root != NULL) {
    const bool is_less = less(place_of(*root), at);
    found = is_less == below ? root : found;
    root = &(*root)->child[is_less];
  }
  return found;
}

/* ---- bins ---- */

static void bin_insert(hri_free_set *set, hri_block *block) {
  const uint64_t bin = bin_of(block->size);
  treap_insert(&set->bins[bin], block);
  set->words[bin / 64] |= UINT64_C(1) << bin % 64;
  set->summary |= UINT64_C(1) << bin / 64;
}

static void bin_unlink(hri_free_set *set, uint64_t bin, hri_block **link) {
  treap_unlink(link);
  if (set->bins[bin] != NULL) return;
  set->words[bin / 64] &= ~(UINT64_C(1) << bin % 64);
  if (set->words[bin / 64] == 0) set->summary &= ~(UINT64_C(1) << bin / 64);
}

static hri_block *found_at(hri_free_set *set, uint64_t bin, hri_block **link) {
  set->found_bin = bin;
  set->found_link = link;
  return *link;
}

static hri_block *bins_at_least(hri_free_set *set, place at) {
  const uint64_t bin = bin_of(at.size);
  hri_block **found = treap_search(&set->bins[bin], at, false);
  if (found != NULL) return found_at(set, bin, found);
  uint64_t word = bin / 64, bits = set->words[word] & ~UINT64_C(1)
                                                          << bin % 64; /* the bins above: ~1 << n clears 0 .. n */
  if (bits == 0) {
    const uint64_t words = set->summary & ~UINT64_C(1) << word;
    if (words == 0) return NULL;
    word = (uint64_t)__builtin_ctzll(words);
    bits = set->words[word];
  }
  const uint64_t next = word * 64 + (uint64_t)__builtin_ctzll(bits);
  found = &set->bins[next];
  while ((*found)->child[0] != NULL) found = &(*found)->child[0];
  return found_at(set, next, found);
}

static hri_block *bins_before(hri_free_set *set, place at) {
  const uint64_t bin = bin_of(at.size);
  hri_block **found = treap_search(&set->bins[bin], at, true);
  if (found != NULL) return *found;
  uint64_t word = bin / 64, bits = set->words[word] & ((UINT64_C(1) << bin % 64) - 1);
  if (bits == 0) {
    const uint64_t words = set->summary & ((UINT64_C(1) << word) - 1);
    if (words == 0) return NULL;
    word = 63 - (uint64_t)__builtin_clzll(words);
    bits = set->words[word];
  }
  hri_block *last = set->bins[word * 64 + 63 - (uint64_t)__builtin_clzll(bits)];
  while (last->child[1] != NULL) last = last->child[1];
  return last;
}

/* ---- the set ---- */

static void put_latest(hri_free_set *set, hri_block *block) {
  if (set->latest != NULL) bin_insert(set, set->latest);
  set->latest = block;
}

void hri_free_set_settle_slow(hri_free_set *set) {
  hri_block *lent = set->lent;
  set->lent = NULL;
  bin_unlink(set, set->lent_bin, set->lent_link);
  if (!hri_block_active(lent)) put_latest(set, lent);
}

void hri_free_set_insert(hri_block *block) {
  hri_free_set *set = block->set;
  if (set->half->search_count != 0) block->age_base = set->half->search_count;
  if (block == set->lent) return; /* what a split left of it */
  hri_free_set_settle(set);
  put_latest(set, block);
}

void hri_free_set_remove(hri_block *block) {
  hri_free_set *set = block->set;
  hri_free_set_settle(set);
  if (set->latest == block) {
    set->latest = NULL;
    return;
  }
  const uint64_t bin = bin_of(block->size);
  bin_unlink(set, bin, treap_link(&set->bins[bin], block));
}

void hri_free_set_lend(hri_block *block) {
  hri_free_set *set = block->set;
  if (set->latest == block) {
    set->latest = NULL;
  } else if (*set->found_link == block) {
    set->lent = block;
    set->lent_link = set->found_link;
    set->lent_bin = set->found_bin;
  } else {
    hri_free_set_remove(block);
  }
}

hri_block *hri_free_set_at_least(hri_free_set *set, uint64_t size, uint64_t order, uint64_t address) {
  hri_free_set_settle(set);
  const place at = {size, order, address};
  hri_block *found = bins_at_least(set, at), *latest = set->latest;
  if (latest == NULL || less(place_of(latest), at)) return found;
  return found == NULL || less(place_of(latest), place_of(found)) ? latest : found;
}

hri_block *hri_free_set_before(hri_free_set *set, uint64_t size, uint64_t order, uint64_t address) {
  hri_free_set_settle(set);
  const place at = {size, order, address};
  hri_block *found = bins_before(set, at), *latest = set->latest;
  if (latest == NULL || !less(place_of(latest), at)) return found;
  return found == NULL || less(place_of(found), place_of(latest)) ? latest : found;
}

/* ---- address space without memory ---- */

void hri_unmapped_insert(hri_block *block) { treap_insert(&block->set->unmapped, block); }

void hri_unmapped_remove(hri_block *block) { treap_unlink(treap_link(&block->set->unmapped, block)); }

hri_block *hri_unmapped_at_least(const hri_free_set *set, uint64_t address) {
  hri_block *root = set->unmapped, **link = treap_search(&root, (place){0, 0, address}, false);
  return link == NULL ? NULL : *link;
}
