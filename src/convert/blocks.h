/* Putting matrices into the blocks of GGUF files, by a team on all cores. Internal to src/convert. */
#ifndef HRI_CONVERT_BLOCKS_H
#define HRI_CONVERT_BLOCKS_H

#include "formats/quant.h"

typedef struct hri_team hri_team;

/* What blocks lost: squares of differences, and of the values before, in sums that do not depend on the team. */
typedef struct hri_block_loss {
  double difference, value;
} hri_block_loss;

typedef struct hri_blocks {
  hri_team *team;
  hri_block_loss *chunks; /* of one run */
  uint64_t room;          /* elements of a run at most */
} hri_blocks;

/* For runs of up to `room` elements. MEMORY; BUDGET when the system refuses a thread. A zeroed struct is closed. */
hr_status hri_blocks_open(hri_blocks *blocks, uint64_t room, hr_error *error);
void hri_blocks_close(hri_blocks *blocks);

/* hri_ggml_from_f32 of a run, whole blocks of a type that has some; adds to *loss what was lost. */
void hri_blocks_encode(hri_blocks *blocks, uint32_t type, void *to, const float *from, uint64_t elements,
                       hri_block_loss *loss);
/* Root mean square of the difference, over that of the values; 0 of nothing. */
double hri_block_loss_share(const hri_block_loss *loss);

#endif
