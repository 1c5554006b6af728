/* Values on their way between a file and the arena, cut into pieces that the team of the job moves side by side.
 *
 * A piece is read (written) in one call of up to a MiB and converted while it lies in the cache of its thread, so that
 * a warm file is loaded at nearly the speed at which the team can copy it. What a conversion needs is the planned
 * staging, shared out among the team. Every value is converted by itself: the bits do not depend on pieces or team. */
#ifndef HRI_TRAIN_WEIGHTS_MOVE_H
#define HRI_TRAIN_WEIGHTS_MOVE_H

#include "backend/backend.h"
#include "base/real.h"
#include "formats/quant.h"

/* One tensor of a file, and the values that it is in the arena. */
typedef struct hri_move {
  /* Reads bytes of the file's tensor to memory, or writes them from it; called by several threads at once. */
  hr_status (*bytes)(const struct hri_move *move, uint64_t offset, uint64_t count, void *memory, hr_error *error);
  void *file;
  uint32_t index;
  bool out;                 /* from the arena to the file: F32, F16 and BF16 only, nothing but transposed */
  uint32_t type;            /* hri_ggml_type of the file's values */
  uint64_t rows, columns;   /* in the arena; a vector has one column */
  bool transposed;          /* the file holds [columns, rows] */
  uint32_t head_size;       /* in: not 0 but D: rows j and j + D/2 of each head are rows 2 j and 2 j + 1 in the file */
  float add;                /* in: to each value */
  const hri_window *window; /* on the arena's tensor */
  uint64_t first; /* element of the tensor with which the values begin: [rows, columns], no blanks between rows; of
                   * blocks its byte */
  hri_real real;
  bool codes;  /* values of one byte, moved as they are: `type` and `real` say nothing */
  bool blocks; /* in: the arena has the blocks of `type` as they are, in rows of whole blocks; `real` is what
                            * their values are rounded to later on, and `finite` means those */
  bool finite; /* NaN and infinity are refused: INPUT on their way in, DIVERGED on their way out */
  const char *path, *name; /* for errors: of what is not finite, or does not fit into F16 */
} hri_move;

/* The file's values of a move that goes in, as a tensor of fp32 whose elements are in our order, but laid out as the file
 * lays out the part ([columns, rows] where it is transposed): what a save copies instead of the arena's rounded values.
 * Only `get` is there, for several threads at once; `move` must outlive the window, and its own window is not looked at. */
hri_window hri_move_originals(const hri_move *move);

enum { HRI_MOVES = 4 }; /* most moves of one call */

/* Moves all, in pieces; the first error by position counts. Allocates nothing. */
hr_status hri_moves_run(const hri_elements *elements, const hri_move *moves, uint32_t count, void *staging,
                        uint64_t staging_bytes, hr_error *error);

#endif
