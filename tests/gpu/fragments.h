/* What is recorded on a card and compared with the GPU in software: layouts of fragments (mma.sync, ldmatrix), copies that
 * fill with zeros (cp.async), conversions. A case is one warp that makes `out` words of `in` words. */
#ifndef HRI_TEST_FRAGMENTS_H
#define HRI_TEST_FRAGMENTS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fragment_op {
  FRAGMENT_MMA_BF16,
  FRAGMENT_MMA_F16,
  FRAGMENT_MMA_TF32,
  FRAGMENT_LDMATRIX_1,
  FRAGMENT_LDMATRIX_2,
  FRAGMENT_LDMATRIX_4,
  FRAGMENT_LDMATRIX_1_TURNED,
  FRAGMENT_LDMATRIX_2_TURNED,
  FRAGMENT_LDMATRIX_4_TURNED,
  FRAGMENT_COPY_4,
  FRAGMENT_COPY_8,
  FRAGMENT_COPY_16,
  FRAGMENT_TO_BF16,
  FRAGMENT_TO_F16,
  FRAGMENT_FROM_F16,
  FRAGMENT_TO_TF32,
  FRAGMENT_MUL,
  FRAGMENT_ADD,
  FRAGMENT_OPS
} fragment_op;

enum {
  FRAGMENT_VALUES = 1024,            /* of a conversion */
  FRAGMENT_MATRICES = 4 * 8 * 8 / 2, /* words of four matrices of 16 bits; behind them the row that each lane names */
  FRAGMENT_WORDS = 2 * FRAGMENT_VALUES
};

/* Words of a lane of a product: a[4], b[2], c[4] in, d[4] out. */
enum { FRAGMENT_MMA_IN = 10, FRAGMENT_MMA_OUT = 4, FRAGMENT_LDMATRIX_OUT = 4, FRAGMENT_COPY_WORDS = 4 };

/* Queues a case; both arrays have FRAGMENT_WORDS words on the device. */
int fragment_run(fragment_op op, const uint32_t *in, uint32_t *out, void *stream);

#ifdef __cplusplus
}
#endif
#endif
