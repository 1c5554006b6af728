/* Merges and scores of sentencepiece vocabularies. */
#include <string.h>

#include "convert/lexicon.h"
#include "formats/order.h"
#include "tokenizer/bpe.h"

/* ---- tokens by text ---- */

/* Open addressing; places hold id + 1, 0 is empty. Twice as many places as tokens. */
typedef struct by_text {
  const hri_lexicon *lexicon;
  uint32_t *places;
  uint64_t mask;
} by_text;

/* FNV-1a over two texts, one behind the other. */
static uint64_t hash_of(const char *a, uint32_t a_bytes, const char *b, uint32_t b_bytes) {
  uint64_t hash = 14695981039346656037u;
  for (uint32_t i = 0; i < a_bytes; i++) hash = (hash ^ (unsigned char)a[i]) * 1099511628211u;
  for (uint32_t i = 0; i < b_bytes; i++) hash = (hash ^ (unsigned char)b[i]) * 1099511628211u;
  return hash ^ hash >> 32;
}

static int64_t find(const by_text *x, const char *a, uint32_t a_bytes, const char *b, uint32_t b_bytes) {
  for (uint64_t at = hash_of(a, a_bytes, b, b_bytes);; at++) {
    uint32_t place = x->places[at & x->mask];
    const hri_lexicon_token *t;
    if (place == 0) return -1;
    t = &x->lexicon->tokens.items[place - 1];
    if (t->bytes == a_bytes + b_bytes && memcmp(t->text, a, a_bytes) == 0 && memcmp(t->text + a_bytes, b, b_bytes) == 0)
      return place - 1;
  }
}

static hr_status make(by_text *x, const hri_lexicon *lexicon, hr_error *error) {
  uint64_t size = 64;
  while (size < 2 * lexicon->tokens.count) size *= 2;
  *x = (by_text){lexicon, hri_alloc_zero(size, sizeof *x->places), size - 1};
  if (!x->places) return hri_fail_memory(error, size * sizeof *x->places, "the tokens by text");
  for (uint32_t id = 0; id < lexicon->tokens.count; id++) {
    const hri_lexicon_token *t = &lexicon->tokens.items[id];
    uint64_t at;
    if (!t->text || t->type == HRI_LEX_UNUSED || find(x, t->text, t->bytes, "", 0) >= 0) continue;
    for (at = hash_of(t->text, t->bytes, "", 0); x->places[at & x->mask]; at++) {}
    x->places[at & x->mask] = id + 1;
  }
  return HR_OK;
}

/* ---- scores from merges ---- */

hr_status hri_lexicon_score(hri_lexicon *lexicon, hr_error *error) {
  bool *scored = hri_alloc_zero(lexicon->tokens.count + 1, sizeof *scored);
  by_text x = {0};
  uint32_t rank = 0;
  hr_status status = scored ? make(&x, lexicon, error) : hri_fail_memory(error, lexicon->tokens.count, "scores");
  for (size_t i = 0; status == HR_OK && i < lexicon->merges.count; i++) {
    const hri_lexicon_merge *m = &lexicon->merges.items[i];
    int64_t id = find(&x, m->left, m->left_bytes, m->right, m->right_bytes);
    if (id < 0 || scored[id]) continue;
    scored[id] = true;
    lexicon->tokens.items[id].score = -(float)rank++;
  }
  for (size_t id = 0; status == HR_OK && id < lexicon->tokens.count;
       id++) { /* what no merge makes: behind all others */
    hri_lexicon_token *t = &lexicon->tokens.items[id];
    if (t->type == HRI_LEX_NORMAL && !scored[id]) t->score = -(float)rank++;
    if (t->type == HRI_LEX_CONTROL || t->type == HRI_LEX_USER_DEFINED) t->score = -1000; /* as llama.cpp's converter */
  }
  hri_free(x.places);
  hri_free(scored);
  return status;
}

/* ---- merges from scores ---- */

typedef struct candidate {
  uint32_t result, left, right;
  uint32_t left_chars, right_chars;
} candidate;

typedef struct candidates {
  const hri_lexicon *lexicon;
  HRI_ARRAY(candidate) items;
} candidates;

static bool starts_char(char byte) { return ((unsigned char)byte & 0xC0) != 0x80; }

static hr_status split_token(candidates *all, const by_text *x, uint32_t id, hr_error *error) {
  const hri_lexicon_token *t = &x->lexicon->tokens.items[id];
  uint32_t chars = 0, seen = 1;
  if (t->bytes > HRI_BPE_PAIR_BYTES) {
    hri_fail(error, HR_ERROR_INPUT, "token %u has %u bytes; at most %d are supported where merges follow from scores",
             id, t->bytes, HRI_BPE_PAIR_BYTES);
    return hri_hint(error, HR_ERROR_INPUT,
                    "convert with --without-tokenizer and take the tokenizer from the original model");
  }
  for (uint32_t i = 0; i < t->bytes; i++) chars += starts_char(t->text[i]);
  for (uint32_t i = 1; i < t->bytes; i++) {
    int64_t left, right;
    if (!starts_char(t->text[i])) continue;
    left = find(x, t->text, i, "", 0);
    right = left < 0 ? -1 : find(x, t->text + i, t->bytes - i, "", 0);
    if (right >= 0 &&
        !hri_array_push(&all->items, ((candidate){id, (uint32_t)left, (uint32_t)right, seen, chars - seen})))
      return hri_fail_memory(error, all->items.count * sizeof(candidate), "merges");
    seen++;
  }
  return HR_OK;
}

static double score_of(const hri_lexicon *lexicon, uint32_t id) {
  return lexicon->gemma ? -(double)id : (double)lexicon->tokens.items[id].score;
}

/* Falling score, then falling length of the left part and of the right one, then tokens and parts by rising id: the
 * order of transformers (generate_merges), so that both make the same file. */
static int compare_candidates(const void *items, uint32_t i, uint32_t k) {
  const candidates *all = items;
  const candidate *a = &all->items.items[i], *b = &all->items.items[k];
  double x = score_of(all->lexicon, a->result), y = score_of(all->lexicon, b->result);
  if (x != y) return x > y ? -1 : 1;
  if (a->left_chars != b->left_chars) return a->left_chars > b->left_chars ? -1 : 1;
  if (a->right_chars != b->right_chars) return a->right_chars > b->right_chars ? -1 : 1;
  if (a->result != b->result) return a->result < b->result ? -1 : 1;
  if (a->left != b->left) return a->left < b->left ? -1 : 1;
  return a->right < b->right ? -1 : a->right > b->right;
}

static hr_status keep_merges(hri_lexicon *lexicon, const candidates *all, const uint32_t *order, hr_error *error) {
  for (size_t i = 0; i < all->items.count; i++) {
    const candidate *c = &all->items.items[order[i]];
    const hri_lexicon_token *left = &lexicon->tokens.items[c->left], *right = &lexicon->tokens.items[c->right];
    hri_lexicon_merge merge = {left->text, right->text, left->bytes, right->bytes};
    if (!hri_array_push(&lexicon->merges, merge))
      return hri_fail_memory(error, all->items.count * sizeof merge, "merges");
  }
  return HR_OK;
}

hr_status hri_lexicon_derive_merges(hri_lexicon *lexicon, hr_error *error) {
  candidates all = {.lexicon = lexicon};
  uint32_t *order = NULL;
  by_text x = {0};
  hr_status status = HR_OK;
  HRI_TRY_OUT(make(&x, lexicon, error));
  for (uint32_t id = 0; id < lexicon->tokens.count; id++) {
    const hri_lexicon_token *t = &lexicon->tokens.items[id];
    if (t->text && (t->type == HRI_LEX_NORMAL || t->type == HRI_LEX_USER_DEFINED))
      HRI_TRY_OUT(split_token(&all, &x, id, error));
  }
  HRI_TRY_OUT(hri_order_make(&all, (uint32_t)all.items.count, compare_candidates, &order, error));
  status = keep_merges(lexicon, &all, order, error);
out:
  hri_free(order);
  hri_free(x.places);
  hri_array_free(&all.items);
  return status;
}
