#include "tokenizer/added.h"
#include "tokenizer/build.h"
#include "tokenizer/parts.h"
#include "tokenizer/tiktoken.h"

/* Byte strings become tokens in the byte alphabet; the rank is the id and the order of merging. */
static hr_status add_ranks(const hri_tiktoken *ranks, hr_tokenizer *tokenizer, hr_error *error) {
  hri_text content = {0};
  uint32_t *order = hri_alloc(((uint64_t)ranks->count + 1) * sizeof *order);
  hr_status status = order ? HR_OK : hri_fail_memory(error, (uint64_t)ranks->count * sizeof *order, "ranks");
  for (uint32_t id = 0; id < ranks->count && status == HR_OK; id++) {
    order[id] = ranks->tokens[id].bytes ? id : HRI_TOKEN_NONE;
    if (ranks->tokens[id].bytes == 0) continue;
    content.length = 0;
    hri_bytes_map(&content, (const char *)ranks->bytes + ranks->tokens[id].at, ranks->tokens[id].bytes);
    status = content.failed ? hri_fail_memory(error, content.length, "ranks")
                            : hri_build_token(tokenizer, content.chars, content.length, id, error);
  }
  if (status == HR_OK) status = hri_bpe_add_pairs(&tokenizer->bpe, order, error);
  hri_text_deinit(&content);
  hri_free(order);
  return status;
}

static hr_status add_family(const hri_tiktoken_family *family, hr_tokenizer *tokenizer, hr_error *error) {
  hri_splitter *splitter;
  for (uint32_t i = 0; i < hri_tiktoken_special_total(family); i++) {
    char room[64];
    hri_tiktoken_special special = hri_tiktoken_special_at(family, i, room);
    HRI_TRY(hri_vocab_add(&tokenizer->vocab, special.content, strlen(special.content), special.id, 0, error));
    HRI_TRY(
        hri_added_put(tokenizer, special.content, strlen(special.content), (hri_added_token){.special = true}, error));
  }
  HRI_TRY(
      hri_splitter_create_regex(family->pattern, strlen(family->pattern), HRI_SPLIT_ISOLATED, false, &splitter, error));
  tokenizer->stages[tokenizer->stage_count++] = (hri_stage){.kind = HRI_STAGE_SPLIT, .splitter = splitter};
  if (!family->bos) return HR_OK;
  tokenizer->named[HR_TOKEN_BOS] = (int32_t)hri_vocab_find(&tokenizer->vocab, family->bos, strlen(family->bos));
  return hri_build_template(tokenizer, true, false, error);
}

hr_status hri_build_from_tiktoken(const char *path, hr_tokenizer *tokenizer, hr_error *error) {
  const hri_part_texts parts = {.decoder = "{\"type\":\"ByteLevel\"}"};
  const hri_tiktoken_family *family;
  hri_tiktoken ranks = {0};
  hr_status status;
  HRI_TRY(hri_tiktoken_read(path, &ranks, error));
  family = hri_tiktoken_family_find(ranks.count);
  if (!family) {
    status =
        hri_fail(error, HR_ERROR_INPUT,
                 "%s: %u ranks belong to no known family, and the file does not hold the pattern that splits words",
                 path, ranks.count);
    (void)hri_hint(error, status, "use the tokenizer.json of the model");
  } else {
    tokenizer->bpe.byte_level = tokenizer->bpe.ignore_merges = true;
    status = add_ranks(&ranks, tokenizer, error);
    if (status == HR_OK) status = add_family(family, tokenizer, error);
    if (status == HR_OK) status = hri_build_parts(tokenizer, &parts, error);
  }
  hri_tiktoken_deinit(&ranks);
  return status;
}
