/* A tokenizer in memory: what tokenizer.json describes, compiled.
 *
 *   text -> repair of UTF-8 -> added tokens (raw) -> normalizer -> added tokens (normalized) -> stages -> model ->
 *   template
 *
 * Everything here is constant once the tokenizer is open; what an encoding changes lies in hr_tokens_work (encode.h). */
#ifndef HRI_TOKENIZER_TYPES_H
#define HRI_TOKENIZER_TYPES_H

#include <headroom/tokenizer.h>

#include "tokenizer/bpe.h"
#include "tokenizer/normalize.h"
#include "tokenizer/split.h"
#include "tokenizer/unigram.h"
#include "tokenizer/wordpiece.h"

/* ---- Added tokens ---- */

typedef struct hri_added_token {
  uint32_t id;
  bool single_word, lstrip, rstrip, normalized, special;
  bool verbatim; /* normalized, but searched for as it is: user-defined pieces of SentencePiece */
  char *decoded; /* what it decodes to, as in the reference: its normalized content where that differs; else NULL */
  uint32_t decoded_bytes;
} hri_added_token;

/* What is searched for in a text, sorted by its characters; a set is one of the two of a tokenizer. */
typedef struct hri_pattern {
  char *text;
  uint32_t bytes, id;
  uint32_t order; /* of equal patterns the first counts */
} hri_pattern;

typedef struct hri_pattern_set {
  HRI_ARRAY(hri_pattern) list;
  uint32_t first[257]; /* patterns that begin with byte b: first[b] .. first[b + 1] */
  int only;            /* the byte with which all begin, -1 when there are several */
} hri_pattern_set;

typedef struct hri_added {
  HRI_ARRAY(hri_added_token) list; /* one per id, in the order of the file */
  uint32_t *by_id, by_id_count;    /* index into list, HRI_TOKEN_NONE when the id is none */
  uint32_t next_id;                /* one behind the highest id */
  hri_pattern_set raw, normalized;
} hri_added;

/* ---- Stages: pre-tokenizers, taken apart ---- */

typedef enum hri_stage_kind {
  HRI_STAGE_SPLIT = 0, /* into the pieces of a splitter */
  HRI_STAGE_PREFIX,    /* puts `text` before a piece that does not begin with it */
  HRI_STAGE_BLANKS,    /* each blank becomes `text` */
  HRI_STAGE_MAP        /* bytes become the characters of the byte alphabet, for splits that must see them */
} hri_stage_kind;

typedef struct hri_stage {
  hri_stage_kind kind;
  hri_splitter *splitter;
  char text[8]; /* UTF-8 of one character */
  uint32_t text_bytes;
  bool only_first; /* PREFIX: only at the very beginning of the text */
} hri_stage;

enum { HRI_MAX_STAGES = 32 };

/* ---- Decoders ---- */

typedef enum hri_decoder_kind {
  HRI_DECODE_BYTE_LEVEL = 0, /* characters of the byte alphabet to bytes, joined */
  HRI_DECODE_REPLACE,        /* matches of `splitter` become `content` */
  HRI_DECODE_BYTE_FALLBACK,  /* runs of "<0xHH>" become their bytes */
  HRI_DECODE_FUSE,           /* all in one */
  HRI_DECODE_STRIP,          /* up to left and right characters `content` from the ends of each token */
  HRI_DECODE_METASPACE,      /* `content` becomes a blank, or nothing in the first token when left is 1 */
  HRI_DECODE_BPE,            /* `content`, the end of a word, becomes a blank, or nothing in the last token */
  HRI_DECODE_WORDPIECE       /* a blank before each token but the first; instead `content` goes where it begins one.
                              * left 1: blanks before English punctuation go, in each token */
} hri_decoder_kind;

typedef struct hri_decoder {
  hri_decoder_kind kind;
  hri_splitter *splitter;
  char *content;
  uint64_t left, right;
} hri_decoder;

/* ---- The tokenizer ---- */

/* What makes ids of a piece of text. */
typedef enum hri_model_kind { HRI_MODEL_BPE = 0, HRI_MODEL_UNIGRAM, HRI_MODEL_WORDPIECE } hri_model_kind;

struct hr_tokenizer {
  char about[192];
  char *file;      /* for messages */
  uint64_t serial; /* tells the tokenizers of a process apart */
  hri_vocab vocab;
  hri_model_kind kind;
  hri_bpe bpe; /* of the three models the one that `kind` says */
  hri_unigram unigram;
  hri_wordpiece wordpiece;
  hri_added added;
  hri_normalizer *normalizer; /* never NULL once open */
  bool normalizer_maps;       /* the normalizer ends by mapping bytes to the byte alphabet */
  hri_stage stages[HRI_MAX_STAGES];
  uint32_t stage_count;
  bool needs_origins;                /* a stage acts at the beginning of the text only, and a normalizer may move it */
  HRI_ARRAY(int32_t) prefix, suffix; /* around the tokens of a text, with HR_ENCODE_SPECIAL */
  bool in_pieces;                    /* while the post-processor is read: a template left the text beside its tokens */
  bool trim_offsets, trim_prefix_space,
      trim_after_template; /* the ByteLevel post-processor; it runs behind the template */
  HRI_ARRAY(hri_decoder) decoders;
  bool joins_with_blanks; /* no decoder: tokens with blanks between them */
  int32_t named[HR_TOKEN_NAMED_COUNT];
};

/* The bytes of a token as they stand in a text that it is searched in. */
static inline bool hri_is_added(const hr_tokenizer *tokenizer, uint32_t id) {
  return hri_vocab_has(&tokenizer->vocab, id) && (tokenizer->vocab.flags[id] & HRI_TOKEN_ADDED);
}

#endif
