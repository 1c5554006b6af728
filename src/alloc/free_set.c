/* The free blocks of one stream in one half of a pool, in PyTorch's order: by size, then by address.
 *
 * Sizes are sorted into bins: one bin per size up to 32 KiB, above it 32 bins per power of two. A bit per bin and a word over
 * the bits' words give the next bin that holds anything in a few instructions. A bin is a treap (a search tree by (size,
 * address) that random priorities keep shallow), which for the usual handful of blocks is as good as an array, and stays
 * logarithmic when ten thousand blocks have one size. C. Aragon, R. Seidel, "Randomized search trees", 1989.
 *
 * Parts of expandable segments without memory are a treap by address alone: their key is 0. */
#include "alloc/alloc.h"

static uint64_t bin_of(uint64_t size) {
  const uint64_t units = size / HRI_ALLOC_UNIT, exact = UINT64_C(2) << HRI_BIN_BITS;
  if (units < exact) return units;
  const int exponent = 63 - __builtin_clzll(units);
  const uint64_t part = (units >> (exponent - HRI_BIN_BITS)) & ((UINT64_C(1) << HRI_BIN_BITS) - 1);
  return exact + ((uint64_t)(exponent - HRI_BIN_BITS - 1) << HRI_BIN_BITS) + part;
}

static bool before(uint64_t key, uint64_t address, const hri_block *b) {
  return key < b->key || (key == b->key && address < b->address);
}

/* ---- treap ---- */

/* All of `tree` before `at` goes to *left, the rest to *right. */
static void treap_split(hri_block *tree, const hri_block *at, hri_block **left, hri_block **right) {
  while (tree != NULL) {
    if (before(at->key, at->address, tree)) {
      *right = tree;
      right = &tree->left;
      tree = tree->left;
    } else {
      *left = tree;
      left = &tree->right;
      tree = tree->right;
    }
  }
  *left = *right = NULL;
}

static void treap_insert(hri_block **root, hri_block *block) {
  while (*root != NULL && (*root)->priority >= block->priority)
    root = before(block->key, block->address, *root) ? &(*root)->left : &(*root)->right;
  treap_split(*root, block, &block->left, &block->right);
  *root = block;
}

static void treap_remove(hri_block **root, hri_block *block) {
  while (*root != block) root = before(block->key, block->address, *root) ? &(*root)->left : &(*root)->right;
  hri_block *a = block->left, *b = block->right;
  while (a != NULL && b != NULL) {
    if (a->priority >= b->priority) {
      *root = a;
      root = &a->right;
      a = a->right;
    } else {
      *root = b;
      root = &b->left;
      b = b->left;
    }
  }
  *root = a != NULL ? a : b;
}

static hri_block *treap_at_least(hri_block *tree, uint64_t key, uint64_t address) {
  hri_block *found = NULL;
  while (tree != NULL) {
    if (tree->key < key || (tree->key == key && tree->address < address)) {
      tree = tree->right;
    } else {
      found = tree;
      tree = tree->left;
    }
  }
  return found;
}

static hri_block *treap_before(hri_block *tree, uint64_t key, uint64_t address) {
  hri_block *found = NULL;
  while (tree != NULL) {
    if (tree->key < key || (tree->key == key && tree->address < address)) {
      found = tree;
      tree = tree->right;
    } else {
      tree = tree->left;
    }
  }
  return found;
}

/* ---- bins ---- */

void hri_free_set_insert(hri_block *block) {
  hri_free_set *set = block->set;
  const uint64_t bin = bin_of(block->size);
  block->key = block->size;
  block->age_base = set->half->search_count;
  treap_insert(&set->bins[bin], block);
  set->words[bin / 64] |= UINT64_C(1) << bin % 64;
  set->summary |= UINT64_C(1) << bin / 64;
}

void hri_free_set_remove(hri_block *block) {
  hri_free_set *set = block->set;
  const uint64_t bin = bin_of(block->size);
  treap_remove(&set->bins[bin], block);
  if (set->bins[bin] != NULL) return;
  set->words[bin / 64] &= ~(UINT64_C(1) << bin % 64);
  if (set->words[bin / 64] == 0) set->summary &= ~(UINT64_C(1) << bin / 64);
}

hri_block *hri_free_set_at_least(const hri_free_set *set, uint64_t size, uint64_t address) {
  const uint64_t bin = bin_of(size);
  hri_block *found = treap_at_least(set->bins[bin], size, address);
  if (found != NULL) return found;
  uint64_t word = bin / 64, bits = set->words[word] & ~UINT64_C(1) << bin % 64; /* the bins above: ~1 << n clears 0 .. n */
  if (bits == 0) {
    const uint64_t words = set->summary & ~UINT64_C(1) << word;
    if (words == 0) return NULL;
    word = (uint64_t)__builtin_ctzll(words);
    bits = set->words[word];
  }
  found = set->bins[word * 64 + (uint64_t)__builtin_ctzll(bits)];
  while (found->left != NULL) found = found->left;
  return found;
}

hri_block *hri_free_set_before(const hri_free_set *set, uint64_t size, uint64_t address) {
  const uint64_t bin = bin_of(size);
  hri_block *found = treap_before(set->bins[bin], size, address);
  if (found != NULL) return found;
  uint64_t word = bin / 64, bits = set->words[word] & ((UINT64_C(1) << bin % 64) - 1);
  if (bits == 0) {
    const uint64_t words = set->summary & ((UINT64_C(1) << word) - 1);
    if (words == 0) return NULL;
    word = 63 - (uint64_t)__builtin_clzll(words);
    bits = set->words[word];
  }
  found = set->bins[word * 64 + 63 - (uint64_t)__builtin_clzll(bits)];
  while (found->right != NULL) found = found->right;
  return found;
}

/* ---- address space without memory ---- */

void hri_unmapped_insert(hri_block *block) {
  block->key = 0;
  treap_insert(&block->set->unmapped, block);
}

void hri_unmapped_remove(hri_block *block) { treap_remove(&block->set->unmapped, block); }

hri_block *hri_unmapped_at_least(const hri_free_set *set, uint64_t address) {
  return treap_at_least(set->unmapped, 0, address);
}
