/* The parts of a tokenizer from their JSON, as tokenizer.json has them. Every function takes what stands at the key
 * (null too) and fails with INPUT that names file and field; components that are not known are refused by name. */
#ifndef HRI_TOKENIZER_PARTS_H
#define HRI_TOKENIZER_PARTS_H

#include "base/json.h"
#include "tokenizer/types.h"

/* ByteLevel may end the normalizers; `json` is changed then. */
hr_status hri_parts_normalizer(hr_tokenizer *tokenizer, hri_json *json, hr_error *error);
/* Sets bpe.byte_level when a ByteLevel is among them. */
hr_status hri_parts_pre_tokenizer(hr_tokenizer *tokenizer, const hri_json *json, hr_error *error);
/* Needs the vocabulary with its added tokens. */
hr_status hri_parts_post_processor(hr_tokenizer *tokenizer, const hri_json *json, hr_error *error);
hr_status hri_parts_decoder(hr_tokenizer *tokenizer, const hri_json *json, hr_error *error);
void hri_decoder_deinit(hri_decoder *decoder);

#endif
