/* SentencePiece BPE in terms of merges (google/sentencepiece, src/bpe_model.cc), and its Unigram.
 *
 * Two neighbours merge when their joined text is a piece, the highest score first, the leftmost of equals. That is the
 * loop of bpe.c with ranks by falling score over all ways to cut a piece in two. */
#include "tokenizer/scored.h"

#include <float.h>
#include <stdlib.h>

#include "tokenizer/added.h"
#include "tokenizer/parts.h"

typedef struct ranked {
  float score;
  uint32_t id;
} ranked;

static int compare_scores(const void *left, const void *right) {
  float a = ((const ranked *)left)->score, b = ((const ranked *)right)->score;
  return a > b ? -1 : a < b;
}

static bool takes_part(const hri_sentencepiece *model, uint32_t id) {
  return model->pieces[id].type == HRI_SP_NORMAL || model->pieces[id].type == HRI_SP_USER_DEFINED ||
         model->pieces[id].type == HRI_SP_UNUSED;
}

/* Equal scores get equal ranks; NaN was refused before. */
static hr_status rank_pieces(const hri_sentencepiece *model, uint32_t *ranks, hr_error *error) {
  ranked *order = hri_alloc(((uint64_t)model->piece_count + 1) * sizeof *order);
  uint32_t count = 0, rank = 0;
  if (!order)
    return hri_fail_memory(error, (uint64_t)model->piece_count * sizeof *order, "the scores of the tokenizer");
  for (uint32_t id = 0; id < model->piece_count; id++) {
    ranks[id] = HRI_TOKEN_NONE;
    if (takes_part(model, id)) order[count++] = (ranked){model->pieces[id].score, id};
  }
  if (count) qsort(order, count, sizeof *order, compare_scores);
  for (uint32_t i = 0; i < count; i++) {
    if (i && order[i].score < order[i - 1].score) rank = i;
    ranks[order[i].id] = rank;
  }
  hri_free(order);
  return HR_OK;
}

/* A result that is UNUSED would have to be taken apart again after all merges, which is not done. */
static hr_status check_unused(const hr_tokenizer *tokenizer, const hri_sentencepiece *model, hr_error *error) {
  const hri_bpe *bpe = &tokenizer->bpe;
  for (uint64_t i = 0; bpe->merges && i <= bpe->merge_mask; i++) {
    uint32_t id = bpe->merges[i].result;
    if (bpe->merges[i].rank != HRI_TOKEN_NONE && model->pieces[id].type == HRI_SP_UNUSED)
      return hri_fail(error, HR_ERROR_INPUT,
                      "%s: piece %u ('%.60s') is marked unused but can be merged to, which is not supported",
                      tokenizer->file, id, hri_vocab_content(&tokenizer->vocab, id));
  }
  return HR_OK;
}

static hr_status add_merges(hr_tokenizer *tokenizer, const hri_sentencepiece *model, hr_error *error) {
  uint32_t *ranks = hri_alloc(((uint64_t)model->piece_count + 1) * sizeof *ranks);
  hr_status status;
  if (!ranks)
    return hri_fail_memory(error, (uint64_t)model->piece_count * sizeof *ranks, "the scores of the tokenizer");
  status = rank_pieces(model, ranks, error);
  if (status == HR_OK) status = hri_bpe_add_pairs(&tokenizer->bpe, ranks, error);
  hri_free(ranks);
  HRI_TRY(status);
  return check_unused(tokenizer, model, error);
}

/* ---- Unigram (src/unigram_model.cc) ---- */

/* A user-defined piece is always chosen where normal scores are not above zero, the longer one of two. The arithmetic is
 * that of the reference, type by type. */
static double user_score(const hri_sp_piece *piece) { return (double)(float)(0.1 * (double)(piece->bytes - 1)); }

static hr_status build_unigram(hr_tokenizer *tokenizer, const hri_sentencepiece *model, hr_error *error) {
  hri_unigram *unigram = &tokenizer->unigram;
  uint32_t *ids = hri_alloc(((uint64_t)model->piece_count + 1) * sizeof *ids), count = 0;
  float least = FLT_MAX;
  hr_status status = ids ? hri_unigram_begin(unigram, &tokenizer->vocab, error)
                         : hri_fail_memory(error, model->piece_count * sizeof *ids, "the pieces of the tokenizer");
  for (uint32_t id = 0; id < model->piece_count; id++) {
    if (model->pieces[id].type == HRI_SP_NORMAL && model->pieces[id].score < least) least = model->pieces[id].score;
  }
  for (uint32_t id = 0; id < model->piece_count && status == HR_OK; id++) {
    const hri_sp_piece *piece = &model->pieces[id];
    if (piece->type != HRI_SP_NORMAL && piece->type != HRI_SP_USER_DEFINED) continue;
    unigram->scores[id] = piece->type == HRI_SP_NORMAL ? (double)piece->score : user_score(piece);
    ids[count++] = id;
  }
  tokenizer->kind = HRI_MODEL_UNIGRAM;
  unigram->single = true;
  unigram->byte_fallback = model->byte_fallback;
  unigram->unk = (uint32_t)model->unk_id; /* a model that was read has one */
  unigram->unk_score = (double)(least - 10.0f);
  if (status == HR_OK) status = hri_unigram_finish(unigram, ids, count, error);
  hri_free(ids);
  return status;
}

/* ---- Both ---- */

/* Control pieces and the unknown piece are special tokens; user-defined ones are searched for in the normalized
 * text. */
static hr_status add_tokens(hr_tokenizer *tokenizer, const hri_sentencepiece *model, hr_error *error) {
  for (uint32_t id = 0; id < model->piece_count; id++) {
    hri_added_token flags = {.special = true};
    if (model->pieces[id].type == HRI_SP_USER_DEFINED && model->unigram) continue; /* the best path finds them */
    if (model->pieces[id].type == HRI_SP_USER_DEFINED) flags = (hri_added_token){.normalized = true, .verbatim = true};
    else if (model->pieces[id].type != HRI_SP_CONTROL && model->pieces[id].type != HRI_SP_UNKNOWN) continue;
    HRI_TRY(
        hri_added_put(tokenizer, hri_vocab_content(&tokenizer->vocab, id), tokenizer->vocab.bytes[id], flags, error));
  }
  return HR_OK;
}

/* A blank in front of the text, or behind it, was not in the text. */
#define DECODER(strip)                                                                                                       \
  "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"\xE2\x96\x81\"},\"content\":\" \"}," \
  "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}" strip "]}"

static const char *decoder_of(const hri_sentencepiece *model) {
  if (!model->add_dummy_prefix) return DECODER("");
  if (model->treat_whitespace_as_suffix)
    return DECODER(",{\"type\":\"Strip\",\"content\":\" \",\"start\":0,\"stop\":1}");
  return DECODER(",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}");
}

hr_status hri_build_scored(hr_tokenizer *tokenizer, const hri_sentencepiece *model, hr_error *error) {
  hri_part_texts parts = {.decoder = decoder_of(model)};
  for (uint32_t id = 0; id < model->piece_count; id++)
    if (!(model->pieces[id].score == model->pieces[id].score)) /* NaN has no order */
      return hri_fail(error, HR_ERROR_INPUT, "%s: the score of piece %u is no number", tokenizer->file, id);
  tokenizer->bpe.byte_fallback = model->byte_fallback;
  tokenizer->bpe.unk = model->unk_id >= 0 ? (uint32_t)model->unk_id : HRI_TOKEN_NONE;
  tokenizer->bpe.fuse_unk = true;
  HRI_TRY(model->unigram ? build_unigram(tokenizer, model, error) : add_merges(tokenizer, model, error));
  HRI_TRY(add_tokens(tokenizer, model, error));
  HRI_TRY(hri_build_parts(tokenizer, &parts, error));
  return hri_normalizer_add_sentencepiece(tokenizer->normalizer, model, error);
}
