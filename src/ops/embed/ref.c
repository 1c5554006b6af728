#include "ops/embed/ref.h"

#include "ops/reference.h"

HRI_REF_API void HRI_REF(embed)(HRI_REAL *y, const HRI_REAL *tokens, HRI_REAL factor, const HRI_REAL *positions,
                                const int32_t *ids, const int32_t *position, int64_t rows, int64_t columns) {
  for (int64_t m = 0; m < rows; m++)
    for (int64_t c = 0; c < columns; c++)
      y[m * columns + c] =
          factor * tokens[ids[m] * columns + c] + (positions ? positions[position[m] * columns + c] : 0);
}

HRI_REF_API void HRI_REF(embed_backward)(HRI_REAL *dtable, const HRI_REAL *dy, HRI_REAL factor, const int32_t *index,
                                         int64_t skip_index, int64_t rows, int64_t columns) {
  for (int64_t m = 0; m < rows; m++)
    for (int64_t c = 0; c < columns; c++)
      if (index[m] != skip_index) dtable[index[m] * columns + c] += factor * dy[m * columns + c];
}
