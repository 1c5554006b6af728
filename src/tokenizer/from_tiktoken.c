#include "tokenizer/added.h"
#include "tokenizer/build.h"
#include "tokenizer/parts.h"
#include "tokenizer/tiktoken.h"

hr_status hri_build_ranks(const hri_tiktoken *ranks, uint32_t first, hr_tokenizer *tokenizer, hr_error *error) {
  hri_text content = {0};
  uint64_t size =
      (uint64_t)first + ranks->count > tokenizer->vocab.size ? (uint64_t)first + ranks->count : tokenizer->vocab.size;
  uint32_t *order = hri_alloc((size + 1) * sizeof *order);
  hr_status status = order ? HR_OK : hri_fail_memory(error, size * sizeof *order, "ranks");
  tokenizer->bpe.byte_level = tokenizer->bpe.ignore_merges = true;
  for (uint64_t id = 0; id < size && status == HR_OK; id++) order[id] = HRI_TOKEN_NONE;
  for (uint32_t rank = 0; rank < ranks->count && status == HR_OK; rank++) {
    if (ranks->tokens[rank].bytes == 0) continue;
    order[first + rank] = rank;
    content.length = 0;
    hri_bytes_map(&content, (const char *)ranks->bytes + ranks->tokens[rank].at, ranks->tokens[rank].bytes);
    status = content.failed ? hri_fail_memory(error, content.length, "ranks")
                            : hri_build_token(tokenizer, content.chars, content.length, first + rank, error);
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

/* vocab_size of config.json; 0 where there is none. */
static hr_status read_vocabulary(const char *directory, uint64_t *vocabulary, hr_error *error) {
  hri_json config = {0};
  char *path;
  hr_status status = hri_build_read_beside(directory, "config.json", &path, &config, error);
  *vocabulary = 0;
  if (status == HR_OK && config.value)
    status = hri_json_opt_u64(&config, "vocab_size", 1, UINT32_MAX, vocabulary, error);
  hri_json_deinit(&config);
  hri_free(path);
  return status;
}

hr_status hri_build_from_tiktoken(const char *path, const char *directory, hr_tokenizer *tokenizer, hr_error *error) {
  hri_part_texts parts = {.decoder = "{\"type\":\"ByteLevel\"}"};
  const hri_tiktoken_family *family;
  hri_tiktoken ranks = {0};
  uint64_t vocabulary = 0;
  hr_status status;
  HRI_TRY(hri_tiktoken_read(path, &ranks, error));
  status = hri_tiktoken_family_is_single(ranks.count) ? HR_OK : read_vocabulary(directory, &vocabulary, error);
  family = hri_tiktoken_family_find(ranks.count, vocabulary);
  if (status == HR_OK && !family) {
    status =
        hri_fail(error, HR_ERROR_INPUT,
                 "%s: %u ranks belong to no known family, and the file does not hold the pattern that splits words",
                 path, ranks.count);
    (void)hri_hint(error, status, "use the tokenizer.json of the model");
  } else if (status == HR_OK) {
    status = hri_build_ranks(&ranks, 0, tokenizer, error);
    if (status == HR_OK) status = add_family(family, tokenizer, error);
    parts.normalizer = family->normalizer;
    if (status == HR_OK) status = hri_build_parts(tokenizer, &parts, error);
  }
  hri_tiktoken_deinit(&ranks);
  return status;
}
