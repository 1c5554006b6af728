#include "model/rope.h"

#include <math.h>
#include <stddef.h>

static const double two_pi = 2.0 * 3.14159265358979323846;

/* base ** (2 pair / R) */
static float period(double base, uint32_t rotary_size, uint32_t pair) {
  float exponent = (float)(2 * pair) / (float)rotary_size;
  return (float)pow(base, (double)exponent);
}

/* llama3: long wavelengths are stretched by the factor, short ones kept, those between interpolated. */
static float llama3_frequency(const hr_rope *rope, float inverse) {
  double old_length = (double)rope->original_max_positions;
  float wavelength = (float)two_pi / inverse, smooth, stretched;
  if ((double)wavelength > old_length / rope->low_frequency_factor) return inverse / (float)rope->factor;
  if ((double)wavelength < old_length / rope->high_frequency_factor) return inverse;
  smooth = ((float)old_length / wavelength - (float)rope->low_frequency_factor) /
           (float)(rope->high_frequency_factor - rope->low_frequency_factor);
  stretched = (1.0f - smooth) * inverse / (float)rope->factor;
  return stretched + smooth * inverse;
}

/* dynamic (NTK): the base grows with what the longest sequence exceeds the model's positions by. */
static double dynamic_base(const hr_rope *rope, uint32_t rotary_size, uint32_t max_positions, uint64_t longest) {
  double r = rotary_size, share;
  if (longest <= max_positions || rotary_size <= 2) return rope->theta;
  share = rope->factor * (double)longest / (double)max_positions - (rope->factor - 1);
  return (double)(float)(rope->theta * pow(share, r / (r - 2)));
}

/* yarn: the pair that turns `rotations` times over the original length. */
static double yarn_pair(const hr_rope *rope, uint32_t rotary_size, double original, double rotations) {
  return rotary_size * log(original / (rotations * two_pi)) / (2 * log(rope->theta));
}

/* Pairs below *low keep their frequency, those above *high are stretched, with a ramp between. */
static void yarn_range(const hr_rope *rope, uint32_t rotary_size, double original, double *low, double *high) {
  *low = yarn_pair(rope, rotary_size, original, rope->beta_fast > 0 ? rope->beta_fast : 32);
  *high = yarn_pair(rope, rotary_size, original, rope->beta_slow > 0 ? rope->beta_slow : 1);
  if (!rope->no_truncation) *low = floor(*low), *high = ceil(*high);
  *low = fmax(*low, 0);
  *high = fmin(*high, (double)rotary_size - 1);
  if (*low == *high) *high += 0.001;
}

static void yarn_frequencies(const hr_rope *rope, uint32_t rotary_size, uint32_t max_positions, double *inverse) {
  double original = rope->original_max_positions ? rope->original_max_positions : max_positions, low, high;
  yarn_range(rope, rotary_size, original, &low, &high);
  for (uint32_t i = 0; i < rotary_size / 2; i++) {
    float base = period(rope->theta, rotary_size, i), kept = 1.0f / base,
          stretched = 1.0f / ((float)rope->factor * base);
    float ramp = ((float)i - (float)low) / (float)(high - low), share;
    share = 1.0f - (ramp < 0 ? 0.0f : ramp > 1 ? 1.0f : ramp);
    inverse[i] = (double)(stretched * (1.0f - share) + kept * share);
  }
}

static double yarn_scale(double factor, double mscale) { return factor <= 1 ? 1.0 : 0.1 * mscale * log(factor) + 1.0; }

static double attention_factor(const hr_rope *rope, uint32_t max_positions) {
  double original = rope->original_max_positions ? rope->original_max_positions : max_positions;
  double stretch = rope->factor > 0 ? rope->factor : (double)max_positions / original;
  if (rope->attention_factor > 0) return rope->attention_factor;
  if (rope->scaling == HR_ROPE_YARN)
    return rope->mscale != 0 && rope->mscale_all_dim != 0
               ? yarn_scale(stretch, rope->mscale) / yarn_scale(stretch, rope->mscale_all_dim)
               : yarn_scale(stretch, 1);
  if (rope->scaling == HR_ROPE_LONGROPE && stretch > 1 && original > 1) return sqrt(1 + log(stretch) / log(original));
  return 1;
}

void hri_rope_frequencies(const hr_rope *rope, uint32_t rotary_size, uint32_t max_positions, uint64_t longest,
                          double *inverse, double *factor) {
  uint64_t original = rope->original_max_positions ? rope->original_max_positions : max_positions;
  double base =
      rope->scaling == HR_ROPE_DYNAMIC ? dynamic_base(rope, rotary_size, max_positions, longest) : rope->theta;
  *factor = attention_factor(rope, max_positions);
  if (rope->scaling == HR_ROPE_YARN) {
    yarn_frequencies(rope, rotary_size, max_positions, inverse);
    return;
  }
  for (uint32_t i = 0; i < rotary_size / 2; i++) {
    float plain = period(base, rotary_size, i), value = 1.0f / plain;
    if (rope->scaling == HR_ROPE_LINEAR) value = value / (float)rope->factor;
    if (rope->scaling == HR_ROPE_LLAMA3) value = llama3_frequency(rope, value);
    if (rope->scaling == HR_ROPE_LONGROPE)
      value = 1.0f / ((float)(longest > original ? rope->long_factors : rope->short_factors)[i] * plain);
    inverse[i] = (double)value;
  }
}
