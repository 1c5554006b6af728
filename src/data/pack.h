/* From documents to rows.
 *
 *   off      each document begins a row
 *   wrapped  documents follow each other and are cut where a row ends
 *   pack     documents shorter than a row are never cut: best fit, the longest first, within windows of HRI_PACK_WINDOW
 *            pieces; rows then come in the order of their first document. The window bounds memory and keeps the order
 *            of the data; what it costs is at most the unfilled rows at its end.
 *
 * A document longer than a row is cut into rows first, shortened or left out, as `truncate` says. Ready-made rows
 * (HRI_DOCUMENT_ROW) stay together and share a row with nothing else. */
#ifndef HRI_DATA_PACK_H
#define HRI_DATA_PACK_H

#include <headroom/data.h>

#include "data/rows.h"

enum { HRI_PACK_WINDOW = 8192 };

typedef struct hri_pack_rules {
  const hri_spool *documents; /* of hri_document */
  uint64_t document_count;
  const hri_spool *labels; /* of uint32 HRI_STORED_*, by element of the token store */
  uint32_t sequence;       /* tokens per row */
  hr_packing packing;
  hr_truncate truncate;
  const uint64_t
      *held; /* a bit for each document, of which only those with the bit `takes_held` are packed; NULL: all */
  bool takes_held;
} hri_pack_rules;

typedef struct hri_pack_result {
  uint64_t cut_documents; /* longer than a row, and cut or shortened */
  uint64_t dropped_documents;
  uint64_t dropped_tokens; /* of those and of the shortened */
} hri_pack_result;

/* Labels as they lie in their store: what was never written (zero) is the token itself. */
enum { HRI_STORED_SAME = 0, HRI_STORED_IGNORED = 1, HRI_STORED_FIRST = 2 /* + label */ };

/* Fills and seals an empty index. Heap: under 512 KiB + 4 bytes per token of a row. */
hr_status hri_pack(const hri_pack_rules *rules, hri_row_index *index, hri_pack_result *result, hr_error *error);

#endif
