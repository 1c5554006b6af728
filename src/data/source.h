/* What dataset.c and the readers of the formats share. */
#ifndef HRI_DATA_SOURCE_H
#define HRI_DATA_SOURCE_H

#include <headroom/chat.h>

#include "base/lock.h"
#include "base/text.h"
#include "data/dataset.h"
#include "data/encode.h"
#include "data/pack.h"
#include "data/reader.h"
#include "data/rows.h"

/* How a file holds its rows. */
typedef enum hri_container { HRI_PLAIN = 0, HRI_JSONL, HRI_JSON_ARRAY, HRI_BIN, HRI_PARQUET } hri_container;

/* One file. */
typedef struct hri_data_source {
  char *path;
  hri_file_stamp stamp;
  hr_data_format format;
  hri_container container;
  bool unpacked;  /* its content is what the file unpacks to: never read in place */
  uint32_t width; /* bytes per token of a file that is read in place; 0: its tokens are in the store */
  uint64_t base;  /* byte of its first token */
  uint64_t documents;
} hri_data_source;

/* Things that people should know about the data. */
enum {
  HRI_DATA_HAS_LABELS = 1 << 0, /* something in the label store */
  HRI_DATA_EMPTY_FILE = 1 << 1,
  HRI_DATA_EMPTY_ROW = 1 << 2,         /* an empty input_ids or text */
  HRI_DATA_IGNORED_MASK = 1 << 3,      /* attention_mask */
  HRI_DATA_IGNORED_POSITIONS = 1 << 4, /* position_ids */
  HRI_DATA_IGNORED_TYPES = 1 << 5,     /* token_type_ids */
  HRI_DATA_LOOKS_LIKE_JSONL = 1 << 6,  /* in a file read as text */
  HRI_DATA_MARK_DROPPED = 1 << 7,      /* a byte order mark at the start of a file */
  HRI_DATA_MASK_ZEROS = 1 << 8,        /* in attention_mask */
  HRI_DATA_PREAMBLE = 1 << 9,          /* Alpaca rows without a chat template */
  HRI_DATA_END_ADDED = 1 << 10,        /* an end token behind documents */
  HRI_DATA_BEGIN_ADDED = 1 << 11,      /* what the tokenizer puts before them */
  HRI_DATA_NOT_UTF8 = 1 << 12,         /* bytes of a text that a tokenizer read as U+FFFD */
  HRI_DATA_TOOLS_LOST = 1 << 13,       /* tools or calls of them, which the chat template does not write */
  HRI_DATA_WEIGHED = 1 << 14,          /* weights of answers that are neither 0 nor 1 */
  HRI_DATA_SYSTEM_TWICE = 1 << 15,     /* a system beside messages that begin with another */
  HRI_DATA_SYSTEM_LOST = 1 << 16       /* one that the chat template refuses */
};

enum {
  HRI_DATA_NOTE_BYTES = 3072,
  HRI_DATA_IGNORED_BYTES = 320,
  HRI_DATA_BROKEN_BYTES = 320,
  HRI_DATA_CHAT_BYTES = 128
};

/* What reading found, without the store and the lists: kept in a cache as it is. */
typedef struct hri_data_found {
  uint32_t facts;       /* HRI_DATA_* */
  uint32_t system_rows; /* rows, at most UINT32_MAX, whose `system` beside messages became their first */
  uint64_t document_count, token_count, label_count;  /* labels: if no document is cut */
  uint64_t empty_count, broken_count, split_prefixes, /* prompts whose tokens are no beginning of the whole's */
      silent_answers;                                 /* that say themselves that they do not count */
  hri_document longest[HR_DATA_LONGEST];
  uint32_t longest_count;
  char ignored[HRI_DATA_IGNORED_BYTES]; /* columns, with commas */
  char broken[HR_DATA_BROKEN][HRI_DATA_BROKEN_BYTES];
  char chat[HRI_DATA_CHAT_BYTES]; /* where the chat template came from */
} hri_data_found;

struct hri_dataset {
  hri_dataset *of; /* NULL, or the one that this is held back from (split.c): files and stores are its */
  char *directory; /* of temporary files */
  hri_data_source *sources;
  uint32_t source_count;
  uint32_t sequence;
  uint64_t vocabulary;
  int32_t eos; /* of text read in place; -1: none */
  hr_packing packing;
  hr_truncate truncate;
  hri_data_found found;
  hri_spool documents; /* hri_document */
  hri_spool tokens;    /* int32, one per token that is not read in place */
  hri_spool labels;    /* uint32 HRI_STORED_*, one per token, as far as any were given */
  hri_row_index index;
  hri_pack_result packed;
  hri_digest digest; /* of the bytes of all files */
  uint64_t hash, content_hash, words_hash;
  uint64_t key; /* of an entry of the cache with what reading makes */
  bool from_cache;
  bool is_bytes; /* words became tokens byte by byte */
  bool kept;     /* in a store: loaded from there, or written */
  int fd;        /* of the file read in place last, source `fd_source`; or -1 */
  uint32_t fd_source;
  bool fd_checked; /* seen unchanged in this row */
  /* while opening */
  const hri_dataset_options *options;
  uint32_t current; /* index of the source that is being read */
  hri_encoder *encoder;
  hr_chat *chat;
  bool chat_tried;
  char note[HRI_DATA_NOTE_BYTES];
};

/* Reads a whole file, from the reader's position on, into the data set. */
hr_status hri_data_read_text(hri_dataset *dataset, hri_reader *reader, hr_error *error);
hr_status hri_data_read_ids(hri_dataset *dataset, hri_reader *reader, hr_error *error); /* JSONL of token ids */
hr_status hri_data_read_records(hri_dataset *dataset, hri_reader *reader,
                                hr_error *error); /* JSON rows of all other kinds */
hr_status hri_data_read_bin(hri_dataset *dataset, hri_reader *reader, hr_error *error);

/* One record of token ids, in memory; errors name `line`. */
hr_status hri_data_read_ids_record(hri_dataset *dataset, const char *path, char *bytes, size_t count, uint64_t line,
                                   hr_error *error);

/* INTERRUPTED when whoever opens the data set wants no more of it; asked for each row, or each buffer of a text or a bin. */
hr_status hri_data_go_on(const hri_dataset *dataset, hr_error *error);

/* Whether a file is one of bare token ids, by the options and its name. */
bool hri_data_is_bin(const hri_dataset *dataset, const char *path);
/* Decides source->format and container from the options, the name and what the reader holds. */
hr_status hri_data_detect(const hri_dataset *dataset, hri_data_source *source, const hri_reader *reader,
                          hr_error *error);

/* INPUT for a file that is certainly no text and no JSON rows, or in another encoding than UTF-8; with the remedy. */
hr_status hri_data_check_foreign(const hri_dataset *dataset, const hri_reader *reader, hr_error *error);

/* Adds a document of the current source. `labels`: its targets that count (without its first token's). */
hr_status hri_data_add_document(hri_dataset *dataset, hri_document document, uint64_t labels, hr_error *error);
/* Appends tokens to the store, and for `counted` (may be NULL) which of their labels count, as a document of the
 * current source; without tokens an empty row is noted. */
hr_status hri_data_add_tokens(hri_dataset *dataset, const int32_t *ids, const uint8_t *counted, uint64_t count,
                              uint64_t line, hr_error *error);

/* Appends ids to the store; then what follows a text that began at element `first`: the tokenizer's last tokens, an end
 * token. */
hr_status hri_data_put_ids(hri_dataset *dataset, const int32_t *ids, uint64_t count, hr_error *error);
hr_status hri_data_put_end(hri_dataset *dataset, uint64_t first, hr_error *error);

/* A record that failed with INPUT: skipped and counted (HR_OK) if the options say so, else an error. */
hr_status hri_data_broken(hri_dataset *dataset, hr_status status, const hr_error *reason, hr_error *error);
/* Makes the stores fit for the next record after one was left in the middle. */
hr_status hri_data_mend(hri_dataset *dataset, hr_error *error);
/* A column that nothing is read from; told once. */
void hri_data_ignore(hri_dataset *dataset, const char *name);

static inline hri_data_source *hri_data_current(const hri_dataset *dataset) {
  return &dataset->sources[dataset->current];
}
static inline uint64_t hri_data_store_count(const hri_dataset *dataset) {
  return hri_spool_size(&dataset->tokens) / sizeof(int32_t);
}

/* The rules by which the documents are packed. */
hri_pack_rules hri_dataset_rules(const hri_dataset *dataset, hr_packing packing);
/* Packs the documents once more, into an empty index. */
hr_status hri_dataset_pack(const hri_dataset *dataset, hr_packing packing, hri_row_index *index,
                           hri_pack_result *result, hr_error *error);
/* The tokens and labels (-100 where none counts) of a piece of a document. */
hr_status hri_dataset_read(hri_dataset *dataset, const hri_piece *piece, int32_t *ids, int32_t *labels,
                           hr_error *error);

/* The note for people. */
void hri_data_write_note(hri_dataset *dataset);

/* ---- the cache of tokenized data ---- */

/* Reads all files' bytes into the data set's digest, as reading their content does. */
hr_status hri_cache_digest(hri_dataset *dataset, hr_error *error);
/* The key of what reading the files makes; the digest is complete. */
uint64_t hri_cache_key(const hri_dataset *dataset);
/* Removes what killed makers of this entry left beside it: scratch directories, and its lock when nobody holds that. */
void hri_cache_tidy(const hri_dataset *dataset);
/* Makes the store and waits until this process is the one that makes the entry; tells about waiting. Released by the
 * caller, who removes the lock file whatever came of it. */
hr_status hri_cache_lock(const hri_dataset *dataset, hri_lock **lock, hr_error *error);
/* Takes tokens, documents and what was found from the store; dataset->kept stays false when there is no sound entry. */
hr_status hri_cache_load(hri_dataset *dataset, const char *store, hr_error *error);
/* Writes an entry, whole or not at all; the data set goes on reading from it. */
hr_status hri_cache_save(hri_dataset *dataset, const char *store, hr_error *error);

#endif
