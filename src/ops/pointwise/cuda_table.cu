/* The tables of rotary embedding, a thread an angle: in fp32 as every implementation has it, its cosine and sine by double. */
#include "ops/cuda.h"
#include "ops/elements.cuh"

enum { MOST_PAIRS = 256 };

struct table_args {
  float inverse[MOST_PAIRS]; /* frequencies */
  float factor, *cosines, *sines;
  int64_t pairs, positions;
};

__global__ void rope_table_kernel(table_args a) {
  int64_t i = hri_thread_index(), all = a.pairs * a.positions;
  hri_global<float> cosines(a.cosines, all), sines(a.sines, all);
  if (i >= all) return;
  float angle = hri_mul_alone((float)(i / a.pairs), a.inverse[i % a.pairs]);
  cosines[i] = (float)cos((double)angle) * a.factor;
  sines[i] = (float)sin((double)angle) * a.factor;
}

extern "C" int hri_cuda_rope_table(const double *inverse, int64_t pairs, double factor, int64_t positions,
                                   float *cosines, float *sines, void *stream) {
  table_args a = {{}, (float)factor, cosines, sines, pairs, positions};
  if (pairs > MOST_PAIRS) return -1;
  if (pairs * positions == 0) return 0;
  for (int64_t k = 0; k < pairs; k++) a.inverse[k] = (float)inverse[k];
  return HRI_LAUNCH(rope_table_kernel, hri_blocks(pairs * positions, HRI_ELEMENT_THREADS), HRI_ELEMENT_THREADS, 0,
                    stream, a);
}
