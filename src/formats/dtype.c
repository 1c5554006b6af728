/* The loops are branch-free selections over 32-bit integers, one store per element, so that compilers vectorize them on
 * any instruction set. Where a subnormal half is made or read, the arithmetic runs on normal floats, so that a process
 * with flush-to-zero set gets the same bits; it is chosen by masks, because behind a condition gcc would take it for
 * code that may trap and leave the loop scalar. */
#include "formats/dtype.h"

#include <string.h>

#include "base/processor.h"
#include "base/real.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "weight files are little endian, and so must be the machine"
#endif

static const struct {
  char name[12];
  uint32_t bits;
} dtypes[HRI_FILE_DTYPE_COUNT] = {
    [HRI_FILE_BOOL] = {"BOOL", 8},
    [HRI_FILE_F4] = {"F4", 4},
    [HRI_FILE_F6_E2M3] = {"F6_E2M3", 6},
    [HRI_FILE_F6_E3M2] = {"F6_E3M2", 6},
    [HRI_FILE_U8] = {"U8", 8},
    [HRI_FILE_I8] = {"I8", 8},
    [HRI_FILE_F8_E5M2] = {"F8_E5M2", 8},
    [HRI_FILE_F8_E4M3] = {"F8_E4M3", 8},
    [HRI_FILE_F8_E8M0] = {"F8_E8M0", 8},
    [HRI_FILE_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 8},
    [HRI_FILE_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 8},
    [HRI_FILE_I16] = {"I16", 16},
    [HRI_FILE_U16] = {"U16", 16},
    [HRI_FILE_F16] = {"F16", 16},
    [HRI_FILE_BF16] = {"BF16", 16},
    [HRI_FILE_I32] = {"I32", 32},
    [HRI_FILE_U32] = {"U32", 32},
    [HRI_FILE_F32] = {"F32", 32},
    [HRI_FILE_C64] = {"C64", 64},
    [HRI_FILE_F64] = {"F64", 64},
    [HRI_FILE_I64] = {"I64", 64},
    [HRI_FILE_U64] = {"U64", 64},
};

const char *hri_file_dtype_name(hri_file_dtype dtype) { return dtypes[dtype].name; }
uint32_t hri_file_dtype_bits(hri_file_dtype dtype) { return dtypes[dtype].bits; }

bool hri_file_dtype_parse(const char *name, hri_file_dtype *dtype) {
  int i;
  for (i = 0; i < HRI_FILE_DTYPE_COUNT; i++) {
    if (strcmp(name, dtypes[i].name) != 0) continue;
    *dtype = (hri_file_dtype)i;
    return true;
  }
  return false;
}

bool hri_file_elements(uint32_t rank, const uint64_t *shape, uint64_t *elements) {
  uint32_t i;
  *elements = 1;
  for (i = 0; i < rank; i++)
    if (!hri_mul(*elements, shape[i], elements)) return false;
  return true;
}

bool hri_file_bytes(hri_file_dtype dtype, uint64_t elements, uint64_t *bytes) {
  uint64_t bits;
  if (!hri_mul(elements, dtypes[dtype].bits, &bits) || bits % 8 != 0) return false;
  *bytes = bits / 8;
  return true;
}

static uint32_t float_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static float bits_float(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static float bf16_widen(uint16_t half) {
  uint32_t bits = (uint32_t)half << 16;
  return bits_float((bits & 0x7FFFFFFF) > 0x7F800000 ? bits | 0x00400000 : bits);
}

static uint16_t bf16_round(float value) {
  uint32_t bits = float_bits(value);
  uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16; /* a carry out of the largest finite makes infinity */
  return (uint16_t)((bits & 0x7FFFFFFF) > 0x7F800000 ? bits >> 16 | 0x40 : rounded);
}

/* Blocks of a fixed size: at -O2 gcc vectorizes only loops whose count it knows. */
enum { BLOCK = 64 };
#define CONVERT(to, from, count, convert)                                                                              \
  do {                                                                                                                 \
    uint64_t i = 0;                                                                                                    \
    for (; i + BLOCK <= (count); i += BLOCK)                                                                           \
      for (uint64_t k = 0; k < BLOCK; k++) (to)[i + k] = convert((from)[i + k]);                                       \
    for (; i < (count); i++) (to)[i] = convert((from)[i]);                                                             \
  } while (0)

void hri_f32_from_bf16(float *restrict to, const uint16_t *restrict from, uint64_t count) {
  CONVERT(to, from, count, bf16_widen);
}
void hri_bf16_from_f32(uint16_t *restrict to, const float *restrict from, uint64_t count) {
  CONVERT(to, from, count, bf16_round);
}

/* Halves are converted by the processor where it can, to the same bits: these instructions do not look at flush-to-zero
 * either.
 * They convert the whole blocks of eight and return how many values that was. */
#if defined(__x86_64__)
__attribute__((target("avx,f16c"))) static uint64_t widen_eights(float *to, const uint16_t *from, uint64_t count) {
  uint64_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(from + i))));
  return i;
}

__attribute__((target("avx,f16c"))) static uint64_t round_eights(uint16_t *to, const float *from, uint64_t count) {
  uint64_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm_storeu_si128((__m128i *)(void *)(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  return i;
}

static bool converts_halves(void) { return hri_processor_now().f16c; }
#else
static uint64_t widen_eights(float *to, const uint16_t *from, uint64_t count) {
  return (void)to, (void)from, (void)count, 0;
}
static uint64_t round_eights(uint16_t *to, const float *from, uint64_t count) {
  return (void)to, (void)from, (void)count, 0;
}
static bool converts_halves(void) { return false; }
#endif

void hri_f32_from_f16(float *restrict to, const uint16_t *restrict from, uint64_t count) {
  uint64_t done = converts_halves() ? widen_eights(to, from, count) : 0;
  CONVERT(to + done, from + done, count - done, hri_f16_widen);
}

void hri_f16_from_f32(uint16_t *restrict to, const float *restrict from, uint64_t count) {
  uint64_t done = converts_halves() ? round_eights(to, from, count) : 0;
  CONVERT(to + done, from + done, count - done, hri_f16_round);
}

static void f32_from_f64(float *restrict to, const double *restrict from, uint64_t count) {
  CONVERT(to, from, count, (float));
}

static void f64_from_f32(double *restrict to, const float *restrict from, uint64_t count) {
  CONVERT(to, from, count, (double));
}

bool hri_file_to_f32(hri_file_dtype dtype, float *to, const void *from, uint64_t count) {
  switch (dtype) {
  case HRI_FILE_F32:
    if (count > 0) memcpy(to, from, (size_t)count * sizeof *to);
    return true;
  case HRI_FILE_BF16: hri_f32_from_bf16(to, from, count); return true;
  case HRI_FILE_F16: hri_f32_from_f16(to, from, count); return true;
  case HRI_FILE_F64: f32_from_f64(to, from, count); return true;
  default: return false;
  }
}

bool hri_file_from_f32(hri_file_dtype dtype, void *to, const float *from, uint64_t count) {
  switch (dtype) {
  case HRI_FILE_F32:
    if (count > 0) memcpy(to, from, (size_t)count * sizeof *from);
    return true;
  case HRI_FILE_BF16: hri_bf16_from_f32(to, from, count); return true;
  case HRI_FILE_F16: hri_f16_from_f32(to, from, count); return true;
  case HRI_FILE_F64: f64_from_f32(to, from, count); return true;
  default: return false;
  }
}
