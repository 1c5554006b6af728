#include "ops/pointwise/rope_table.h"

#include <math.h>

/* llama3: long wavelengths are stretched by the factor, short ones kept, those between interpolated. */
static float llama3_frequency(const hr_rope *rope, float inverse) {
  double old_length = (double)rope->original_max_positions;
  float wavelength = (float)(2.0 * 3.14159265358979323846) / inverse, smooth, stretched;
  if ((double)wavelength > old_length / rope->low_frequency_factor) return inverse / (float)rope->factor;
  if ((double)wavelength < old_length / rope->high_frequency_factor) return inverse;
  smooth = ((float)old_length / wavelength - (float)rope->low_frequency_factor) /
           (float)(rope->high_frequency_factor - rope->low_frequency_factor);
  stretched = (1.0f - smooth) * inverse / (float)rope->factor;
  return stretched + smooth * inverse;
}

float hri_rope_inverse_frequency(const hr_rope *rope, int64_t head_size, int64_t pair) {
  float exponent = (float)(2 * pair) / (float)head_size;
  float inverse = 1.0f / (float)pow(rope->theta, (double)exponent);
  switch (rope->scaling) {
  case HR_ROPE_LINEAR:
    return inverse / (float)rope->factor;
  case HR_ROPE_LLAMA3:
    return llama3_frequency(rope, inverse);
  case HR_ROPE_DEFAULT:
    break;
  }
  return inverse;
}

void hri_rope_table(const hr_rope *rope, int64_t head_size, int64_t positions, float *cosines, float *sines,
                    int threads) {
  int64_t half = head_size / 2;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t pair = 0; pair < half; pair++) {
    float inverse = hri_rope_inverse_frequency(rope, head_size, pair);
    for (int64_t position = 0; position < positions; position++) {
      float angle = (float)position * inverse;
      cosines[position * half + pair] = (float)cos((double)angle);
      sines[position * half + pair] = (float)sin((double)angle);
    }
  }
}
