#include "tokenizer/scored.h"

static hr_status build(const hri_sentencepiece *model, hr_tokenizer *tokenizer, hr_error *error) {
  const int32_t named[HR_TOKEN_NAMED_COUNT] = {model->bos_id, model->eos_id, model->pad_id, model->unk_id};
  for (uint32_t id = 0; id < model->piece_count; id++)
    HRI_TRY(hri_build_token(tokenizer, model->pieces[id].text, model->pieces[id].bytes, id, error));
  HRI_TRY(hri_build_scored(tokenizer, model, error));
  for (uint32_t i = 0; i < HR_TOKEN_NAMED_COUNT; i++) tokenizer->named[i] = named[i];
  return hri_build_template(tokenizer, true, false, error); /* what the families with such files do */
}

hr_status hri_build_from_sentencepiece(const char *path, hr_tokenizer *tokenizer, hr_error *error) {
  hri_sentencepiece model = {0};
  hr_status status = hri_sentencepiece_read(path, &model, error);
  if (status == HR_OK) status = build(&model, tokenizer, error);
  hri_sentencepiece_deinit(&model);
  return status;
}
