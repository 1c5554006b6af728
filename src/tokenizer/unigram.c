/* A node per byte of the piece: the best sum of scores that ends there, and the token by which. What no token covers
 * falls back to bytes or the unknown token. Sums are made in the precision of the reference, and set back where it sets
 * them back: SentencePiece begins to count anew where a sum leaves +-FARTHEST, and takes it from all sums ahead, so
 * that floats keep their digits in long texts. Which of two near sums is greater depends on it. */
#include "tokenizer/unigram.h"

#include <assert.h>
#include <float.h>
#include <math.h>

#define UNKNOWN (HRI_TOKEN_NONE - 1) /* an unknown character, in a path */
enum { WORD_STEPS = 32 };  /* roundings that two paths through a remembered word take at most, and what stores them */
#define FARTHEST 100000.0f /* kScoreResetThreshold of the reference */
enum { SUMMED_BYTES = 1 << 16 }; /* so many roundings of a sum that only grows stay below a hundredth of it */

void hri_unigram_deinit(hri_unigram *unigram) {
  hri_free(unigram->scores);
  hri_trie_deinit(&unigram->trie);
  hri_seams_deinit(&unigram->seams);
  *unigram = (hri_unigram){0};
}

hr_status hri_unigram_begin(hri_unigram *unigram, const hri_vocab *vocab, hr_error *error) {
  unigram->vocab = vocab;
  unigram->score_count = vocab->size;
  unigram->scores = hri_alloc_zero((uint64_t)vocab->size + 1, sizeof *unigram->scores);
  return unigram->scores ? HR_OK : hri_fail_memory(error, vocab->size * sizeof(double), "the scores of the tokenizer");
}

/* No token goes on with U+2581 but behind blockers; where U+2581 is no token of its own, unknown characters on both
 * sides of a seam would become one. */
static bool find_blockers(hri_unigram *unigram, const uint32_t *ids, uint32_t count) {
  const hri_vocab *vocab = unigram->vocab;
  bool mark = false;
  for (uint32_t i = 0; i < count; i++) {
    const char *content = hri_vocab_content(vocab, ids[i]);
    uint32_t bytes = vocab->bytes[ids[i]];
    mark = mark || (bytes == HRI_SEAM_BYTES && hri_seam_mark(content, bytes) && ids[i] != unigram->unk);
    for (uint32_t at = 1; at + HRI_SEAM_BYTES <= bytes; at++)
      if (hri_seam_mark(content + at, bytes - at) && !hri_seams_block(&unigram->seams, content, content + at))
        return false;
  }
  return mark;
}

hr_status hri_unigram_finish(hri_unigram *unigram, uint32_t *ids, uint32_t count, hr_error *error) {
  for (uint32_t i = 0; i < 256; i++) {
    static const char hex[] = "0123456789ABCDEF";
    char name[7] = {'<', '0', 'x', hex[i >> 4], hex[i & 15], '>', 0};
    unigram->fallback_ids[i] = hri_vocab_find_model(unigram->vocab, name, 6);
  }
  unigram->most = fabs(unigram->unk_score);
  for (uint32_t i = 0; i < count; i++)
    unigram->most = fmax(unigram->most, fabs(unigram->scores[ids[i]]) / fmax(1, unigram->vocab->bytes[ids[i]]));
  unigram->error_per_byte = WORD_STEPS * (unigram->single ? (double)FLT_EPSILON : DBL_EPSILON) * unigram->most;
  HRI_TRY(hri_seams_begin(&unigram->seams, error));
  unigram->seams.on = find_blockers(unigram, ids, count);
  return hri_trie_build(&unigram->trie, unigram->vocab, ids, count, error);
}

/* ---- The sum before a word ---- */

void hri_unigram_piece(hri_piece_work *work, uint64_t count) {
  work->base = 0;
  work->summed = count;
  work->spent = work->spent_summed = 0;
}

static double sum(const hri_unigram *unigram, double a, double b) {
  return unigram->single ? (double)(float)(a + b) : a + b;
}

/* Tokens of remembered words are added one by one, in the order in which a walk over the whole piece would. */
static void sum_up(const hri_unigram *unigram, hri_piece_work *work, const hr_tokens *tokens) {
  for (; work->summed < tokens->count; work->summed++)
    work->base = sum(unigram, work->base, unigram->scores[tokens->ids[work->summed]]);
  work->spent_summed = work->spent;
}

/* Bytes behind `base`, with those of a remembered word. */
static double bytes_behind(const hri_piece_work *work) { return (double)(work->spent - work->spent_summed) + 16; }

/* The sum cannot have grown by more than the bytes times `most`. */
static double error_here(const hri_unigram *unigram, const hri_piece_work *work) {
  return unigram->error_per_byte * (unigram->most > 0 ? bytes_behind(work) + fabs(work->base) / unigram->most : 1);
}

/* Whether a sum may be set back by the end of the remembered word at hand. Such words are walked through; since `base`
 * is made up then, those are few: the last thousand or so of the sum. sum_up relies on it, which only adds. */
static bool may_set_back(const hri_unigram *unigram, const hri_piece_work *work) {
  double bytes = bytes_behind(work);
  return unigram->single && (bytes > SUMMED_BYTES || 1.01 * (fabs(work->base) + bytes * unigram->most) > FARTHEST);
}

bool hri_unigram_holds(const hri_unigram *unigram, const hri_piece_work *work, float margin) {
  return margin > error_here(unigram, work) && !may_set_back(unigram, work);
}

/* ---- The best path ---- */

static hr_status node_room(hri_piece_work *work, uint64_t want, hr_error *error) {
  uint64_t capacity = work->node_capacity < 64 ? 64 : work->node_capacity;
  hri_unigram_node *nodes;
  if (want <= work->node_capacity) return HR_OK;
  while (capacity < want) capacity *= 2;
  nodes = hri_realloc(work->nodes, capacity * sizeof *nodes);
  if (!nodes) return hri_fail_memory(error, capacity * sizeof *nodes, "a long piece of text");
  work->nodes = nodes;
  work->node_capacity = capacity;
  return HR_OK;
}

/* A path to a node by one more token; the first of equals stays. Without branches: which is better is a coin's toss. */
static inline void offer(hri_unigram_node *to, double score, uint32_t from, uint32_t id) {
  const bool first = to->id == HRI_TOKEN_NONE, better = first | (score > to->score);
  const double ahead = first ? INFINITY : score - to->score, behind = to->score - score;
  const double margin = behind < to->margin ? behind : to->margin;
  to->margin = better ? ahead : margin;
  to->score = better ? score : to->score;
  to->from = better ? from : to->from;
  to->id = better ? id : to->id;
}

/* Takes the sum at `at` from itself and all sums ahead, when it has gone too far. `reach` is the farthest node with a
 * path. */
static bool set_back(hri_unigram_node *nodes, uint32_t at, uint32_t reach) {
  const float offset = (float)nodes[at].score;
  assert(nodes[at].id != HRI_TOKEN_NONE); /* every character is a token or unknown */
  if (fabsf(offset) <= FARTHEST) return false;
  for (uint32_t i = at; i <= reach; i++)
    if (nodes[i].id != HRI_TOKEN_NONE) nodes[i].score = (double)((float)nodes[i].score - offset);
  return true;
}

/* All tokens that begin at `at` are offered to where they end; an unknown character, if none has just its bytes. Returns
 * the farthest of these ends; 0 where there would be an unknown character, and the model has no token for one. */
static uint32_t extend(const hri_unigram *unigram, hri_unigram_node *nodes, const char *word, uint32_t bytes,
                       uint32_t at, uint32_t width) {
  const hri_trie_node *trie = unigram->trie.nodes;
  const double till = nodes[at].score;
  uint32_t node = HRI_TRIE_ROOT, reach = at + width;
  bool single = false;
  for (uint32_t end = at; end < bytes;) {
    uint32_t child = trie[node].base ^ (uint8_t)word[end++];
    if (trie[child].parent != node) break;
    node = child;
    if (trie[node].id == HRI_TOKEN_NONE) continue;
    offer(&nodes[end], sum(unigram, till, unigram->scores[trie[node].id]), at, trie[node].id);
    single = single || end == at + width;
    if (end > reach) reach = end;
  }
  if (!single && unigram->unk == HRI_TOKEN_NONE) return 0;
  if (!single) offer(&nodes[at + width], sum(unigram, till, unigram->unk_score), at, UNKNOWN);
  return reach;
}

/* ---- From the path to ids ---- */

static bool fall_back(const hri_unigram *unigram, hri_piece_work *work, const char *text, uint32_t bytes) {
  for (uint32_t i = 0; i < bytes; i++)
    if (unigram->fallback_ids[(uint8_t)text[i]] == HRI_TOKEN_NONE) return false;
  for (uint32_t i = 0; i < bytes; i++)
    hri_piece_add(work, unigram->fallback_ids[(uint8_t)text[i]], i + 1 < bytes ? bytes | HRI_PIECE_STAYS : bytes);
  return true;
}

/* Unknown characters side by side: one token; or their bytes; or a token after all, which `tokenizers` looks for. */
static hr_status put_unknown(const hri_unigram *unigram, hri_piece_work *work, const char *text, uint32_t bytes,
                             hr_error *error) {
  uint32_t whole = unigram->single ? HRI_TOKEN_NONE : hri_vocab_find_model(unigram->vocab, text, bytes);
  work->unknown = true;
  HRI_TRY(hri_piece_room(work, work->count + bytes, error));
  if (whole == HRI_TOKEN_NONE && unigram->byte_fallback && fall_back(unigram, work, text, bytes)) return HR_OK;
  hri_piece_add(work, whole == HRI_TOKEN_NONE ? unigram->unk : whole, bytes);
  return HR_OK;
}

/* The steps of the path from the first on: work->next holds where each of them ends. */
static uint32_t turn_path(const hri_unigram_node *nodes, hri_piece_work *work, uint32_t bytes) {
  uint32_t steps = 0;
  work->margin = INFINITY;
  for (uint32_t at = bytes; at > 0; at = nodes[at].from) {
    work->next[steps++] = at;
    work->margin = fminf(work->margin, (float)nodes[at].margin);
  }
  return steps;
}

static hr_status put_path(const hri_unigram *unigram, hri_piece_work *work, const char *word, uint32_t steps,
                          hr_error *error) {
  const hri_unigram_node *nodes = work->nodes;
  uint32_t pending = 0, at = 0; /* bytes of unknown characters before `at` */
  const bool each = unigram->single && unigram->byte_fallback;
  for (uint32_t i = steps; i-- > 0; at = work->next[i]) {
    uint32_t end = work->next[i], id = nodes[end].id;
    if (id == UNKNOWN || id == unigram->unk) {
      pending += end - at;
      if (!each) continue;
      HRI_TRY(put_unknown(unigram, work, word + end - pending, pending, error));
      pending = 0;
      continue;
    }
    if (pending) HRI_TRY(put_unknown(unigram, work, word + at - pending, pending, error));
    pending = 0;
    HRI_TRY(hri_piece_room(work, work->count + steps, error));
    hri_piece_add(work, id, end - at);
  }
  return pending ? put_unknown(unigram, work, word + at - pending, pending, error) : HR_OK;
}

hr_status hri_unigram_encode(const hri_unigram *unigram, hri_piece_work *work, const hr_tokens *tokens,
                             const char *word, uint32_t bytes, hr_error *error) {
  hri_unigram_node *nodes;
  double error_bound;
  uint32_t reach = 0;
  bool moved = false; /* a sum was set back: the path may be another where it is not */
  work->count = 0;
  work->unknown = false;
  sum_up(unigram, work, tokens);
  error_bound = error_here(unigram, work);
  HRI_TRY(node_room(work, (uint64_t)bytes + 1, error));
  HRI_TRY(hri_piece_room(work, (uint64_t)bytes + 1, error));
  nodes = work->nodes;
  for (uint32_t i = 0; i <= bytes; i++) nodes[i].id = HRI_TOKEN_NONE;
  nodes[0] = (hri_unigram_node){work->base, INFINITY, 0, 0};
  for (uint32_t at = 0, width; at < bytes; at += width) {
    uint32_t end;
    width = hri_char_bytes(word[at]);
    if (width > bytes - at) width = bytes - at;
    if (unigram->single && set_back(nodes, at, reach)) moved = true;
    end = extend(unigram, nodes, word, bytes, at, width);
    if (end == 0) /* with byte fallback and within longer tokens too, as in the reference */
      return hri_fail(error, HR_ERROR_INPUT,
                      "the tokenizer has no token for '%.*s', and none for unknown characters (unk_id)", (int)width,
                      word + at);
    if (end > reach) reach = end;
  }
  work->base = nodes[bytes].score;
  HRI_TRY(put_path(unigram, work, word, turn_path(nodes, work, bytes), error));
  work->margin = moved ? -INFINITY : work->margin - (float)error_bound;
  return HR_OK;
}
