/* Data: how files become rows of tokens, and a report on files before they are trained on (docs/data.md).
 *
 * Threads: calls on one hr_data must not overlap; several processes and threads may share a cache directory. A note
 * comes on the calling thread. */
#ifndef HEADROOM_DATA_H
#define HEADROOM_DATA_H

#include <stdbool.h>
#include <stdint.h>

#include <headroom/job.h>
#include <headroom/model.h>
#include <headroom/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a file holds. AUTO: each file is looked at, and the note says what it was taken for. */
typedef enum hr_data_format {
  HR_DATA_AUTO = 0,
  HR_DATA_TEXT,       /* plain text: the whole file is a document, or what lies between separators */
  HR_DATA_LINES,      /* plain text: each line is a document */
  HR_DATA_TEXT_FIELD, /* JSON rows with `text` */
  HR_DATA_PROMPT,     /* JSON rows with `prompt` and `completion`: strings, or lists of messages */
  HR_DATA_MESSAGES,   /* JSON rows with `messages`: {role, content} */
  HR_DATA_SHAREGPT,   /* JSON rows with `conversations`: {from, value} */
  HR_DATA_ALPACA,     /* JSON rows with `instruction` and `output` (`input`, `system`, `history`) */
  HR_DATA_TOKENS,     /* JSON rows with `input_ids` (`labels`, `seq_lengths`) */
  HR_DATA_NANOGPT,    /* bare little-endian uint16 ids */
  HR_DATA_LLMC,       /* llm.c: 1,024 bytes of header, then uint16 (version 1) or uint32 (version 7) ids */
  HR_DATA_FORMAT_COUNT
} hr_data_format;

/* Which labels count. AUTO: completions of prompt rows and of instructions, the assistant's turns of conversations, all
 * of text and of token ids (there `labels` decide as well). */
typedef enum hr_loss_scope {
  HR_LOSS_SCOPE_AUTO = 0,
  HR_LOSS_SCOPE_ALL,
  HR_LOSS_SCOPE_ASSISTANT,
  HR_LOSS_SCOPE_COMPLETION
} hr_loss_scope;

/* What becomes of documents longer than a row: cut into several, only the first or last tokens of a row's length, left
 * out. */
typedef enum hr_truncate {
  HR_TRUNCATE_SPLIT = 0,
  HR_TRUNCATE_KEEP_START,
  HR_TRUNCATE_KEEP_END,
  HR_TRUNCATE_DROP
} hr_truncate;

HR_API const char *hr_data_format_name(hr_data_format format); /* "messages", as --format takes it */
HR_API const char *hr_loss_scope_name(hr_loss_scope scope);
HR_API const char *hr_truncate_name(hr_truncate truncate);
HR_API const char *hr_packing_name(hr_packing packing);

/* Zero is the default of every field. */
typedef struct hr_data_options {
  hr_data_format format; /* of all files */
  const char
      *document_separator;   /* plain text: documents end here, its bytes are dropped; NULL: a file is one document */
  const char *chat_template; /* a preset's name or a Jinja file; NULL: the model's own */
  const char *tokenizer;     /* a directory or GGUF file, for a model that has none of its own; NULL: the model's own */
  hr_loss_scope loss;
  hr_truncate truncate;
  bool skip_bad; /* pass over broken rows and count them; else the first one is an error */
  const char *
      cache_directory; /* keep tokenized data here, made when missing; NULL: a run keeps it in RUN/data-cache, others do not.
                                   * Several processes may share one: whoever needs what another is tokenizing waits for
                                   * it */
  void (*on_note)(void *context,
                  const char *note); /* that, as it begins; may be NULL. Training and evaluating tell it as an event */
  void *context;
} hr_data_options;
/* Defaults: all zero. */
HR_API void hr_data_options_init(hr_data_options *options);

enum { HR_DATA_PERCENTILES = 7, HR_DATA_LONGEST = 8, HR_DATA_BROKEN = 16, HR_DATA_PACKINGS = 3 };

typedef struct hr_data_place {
  uint64_t tokens;
  const char *file;
  uint64_t line; /* 0 when the file has no lines that matter */
} hr_data_place;

typedef struct hr_data_packed {
  hr_packing packing;
  uint64_t rows;
  double fill;                               /* share of the rows' tokens that are not padding */
  uint64_t cut_documents, dropped_documents; /* longer than a row: cut or shortened; left out (with --truncate drop) */
} hr_data_packed;

typedef struct hr_data_report {
  const char *note;                               /* what each file was taken for, and what was ignored */
  const char *tokenizer;                          /* "byte-level BPE, 49152 tokens, ..."; "bytes" */
  const char *chat;                               /* where the chat template came from; NULL: none was needed */
  uint64_t file_bytes, documents, tokens, labels; /* labels: those that count, if no document had to be cut */
  uint64_t empty_documents, broken_rows;
  uint32_t percentiles[HR_DATA_PERCENTILES]; /* of documents: 0, 10, 25, 50, 75, 90, 99 and 100 without the first */
  uint64_t percentile_tokens[HR_DATA_PERCENTILES];
  uint32_t longest_count, broken_count;
  hr_data_place longest[HR_DATA_LONGEST];
  const char *broken[HR_DATA_BROKEN]; /* the first ones: "rows.jsonl:7: reason" */
  hr_data_packed packed[HR_DATA_PACKINGS];
  double seconds; /* of reading and tokenizing */
  bool from_cache;
} hr_data_report;

typedef struct hr_data hr_data;

/* Of a model whose tokens are bytes at most: 256 and some special tokens. Ids of a larger one are pieces of text. */
enum { HR_BYTE_VOCABULARY = 512 };

/* Where the tokenizer of a model is: model.directory, or `tokenizer` (NULL: none named) when it has none there; "":
 * nowhere. A GGUF file inside of a directory is another model, and not the directory's tokenizer. USAGE for one that is
 * named beside a model's own, and for a place without one. Borrowed from the two. */
HR_CHECKED hr_status hr_data_tokenizer(const hr_model *model, const char *tokenizer, const char **place,
                                       hr_error *error);

/* Whether files or directories are there and can be opened: before the time goes into a plan. The errors are those of
 * reading them. */
HR_CHECKED hr_status hr_data_find(const char *const *paths, uint32_t path_count, hr_error *error);

/* Reads and tokenizes files as a run would: with the tokenizer and the chat template of `model.directory`, or those of
 * options.tokenizer, byte by byte for models without a tokenizer. Broken rows are counted and listed, and no error unless all are. `options` may be
 * NULL. INPUT, IO and USAGE as for a run. */
HR_CHECKED hr_status hr_data_open(const hr_model *model, const char *const *paths, uint32_t path_count,
                                  const hr_data_options *options, uint32_t sequence_length, hr_data **data,
                                  hr_error *error);
HR_API void hr_data_close(hr_data *data); /* NULL is fine */
/* Valid until the data is closed. */
HR_API const hr_data_report *hr_data_get(const hr_data *data);

/* A stretch of an example: text, and whether its labels count. */
typedef struct hr_data_stretch {
  char *text;
  uint64_t bytes;
  bool counted;
} hr_data_stretch;

typedef struct hr_data_example {
  hr_data_place place;
  hr_data_stretch *stretches;
  uint32_t stretch_count;
  bool cut; /* longer than `limit` tokens: the rest is left out */
} hr_data_example;

/* The index-th document, at most its first `limit` tokens, decoded (ids as numbers where there is no tokenizer for
 * them).
 * Release with hr_data_example_deinit. */
HR_CHECKED hr_status hr_data_example_make(hr_data *data, uint64_t index, uint64_t limit, hr_data_example *example,
                                          hr_error *error);
HR_API void hr_data_example_deinit(hr_data_example *example);

#ifdef __cplusplus
}
#endif
#endif
