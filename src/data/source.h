/* What dataset.c and the readers of the formats share. */
#ifndef HRI_DATA_SOURCE_H
#define HRI_DATA_SOURCE_H

#include "data/dataset.h"
#include "data/reader.h"
#include "data/rows.h"

/* One file. */
typedef struct hri_source {
  char *path;
  uint64_t first_document;
  hri_file_stamp stamp;
  bool is_jsonl;
} hri_source;

/* Things that people should know about the data. */
enum {
  HRI_DATA_HAS_TEXT = 1 << 0,
  HRI_DATA_HAS_JSONL = 1 << 1,
  HRI_DATA_HAS_LABELS = 1 << 2,
  HRI_DATA_EMPTY_FILE = 1 << 3,
  HRI_DATA_EMPTY_LIST = 1 << 4,       /* an empty input_ids */
  HRI_DATA_IGNORED_MASK = 1 << 5,     /* attention_mask */
  HRI_DATA_IGNORED_POSITIONS = 1 << 6,/* position_ids */
  HRI_DATA_IGNORED_TYPES = 1 << 7,    /* token_type_ids */
  HRI_DATA_LOOKS_LIKE_JSONL = 1 << 8, /* in a file read as text */
  HRI_DATA_MARK_DROPPED = 1 << 9,     /* a byte order mark at the start of a file */
  HRI_DATA_MASK_ZEROS = 1 << 10       /* in attention_mask */
};

enum { HRI_DATA_NOTE_BYTES = 1536 };

/* Labels as they lie in the store: what was never written (zero) is the token itself. */
enum { HRI_STORED_SAME = 0, HRI_STORED_IGNORED = 1, HRI_STORED_FIRST = 2 /* + label */ };

struct hri_dataset {
  char *directory;      /* of temporary files */
  hri_source *sources;
  uint32_t source_count;
  uint32_t sequence;
  uint64_t vocabulary;
  const char *separator; /* while opening */
  int32_t eos;          /* -1: none */
  bool packing;
  uint32_t facts;       /* HRI_DATA_* */
  hri_row_index index;
  hri_spool tokens;     /* JSONL: int32, one per token */
  hri_spool labels;     /* uint32 HRI_STORED_*, one per token, as far as any were given */
  uint64_t label_count;
  hri_digest digest;
  uint64_t hash;
  int fd;               /* of the text file read last, source `fd_source`; or -1 */
  uint32_t fd_source;
  bool fd_checked;      /* seen unchanged in this row */
  char note[HRI_DATA_NOTE_BYTES];
};

/* Read a whole file, from the reader's position on, into the data set. */
hr_status hri_data_read_text(hri_dataset *dataset, hri_reader *reader, hr_error *error);
hr_status hri_data_read_jsonl(hri_dataset *dataset, hri_reader *reader, hr_error *error);

#endif
