/* Encoding: the way of a text through the parts of a tokenizer. */
#ifndef HRI_TOKENIZER_ENCODE_H
#define HRI_TOKENIZER_ENCODE_H

#include "tokenizer/append.h"

/* A text changed by a stage. */
typedef struct hri_stage_buffer {
  char *bytes;
  hri_split_piece *spans; /* per byte, where it comes from; only with offsets */
  uint64_t count, capacity, span_capacity;
} hri_stage_buffer;

/* What an hr_tokens keeps from one text to the next. */
typedef struct hr_tokens_work {
  hri_piece_work piece;
  hri_normal whole, segment;
  hri_split splits[HRI_MAX_STAGES];
  hri_stage_buffer buffers[HRI_MAX_STAGES], mapped, unmapped;
  /* pieces of waiting_text that have no ids yet */
  hri_split_piece waiting[HRI_APPEND_BATCH];
  uint32_t waiting_count;
  const char *waiting_text;
} hr_tokens_work;

#endif
