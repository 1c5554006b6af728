/* Snappy's format (google/snappy: format_description.txt), as Parquet packs pages with it: one block, no frames. */
#ifndef HRI_FORMATS_SNAPPY_H
#define HRI_FORMATS_SNAPPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Unpacks exactly `bytes` bytes to `to`. False: the block is damaged, or another length. Reads and writes nothing
 * beyond either side. */
bool hri_snappy_unpack(const uint8_t *from, size_t count, uint8_t *to, size_t bytes);

#endif
