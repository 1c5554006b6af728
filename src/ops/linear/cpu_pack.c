/* Packing of a matrix into blocks (pack.h), at the rate of a copy. Compiled once per instruction level (HRI_ISA).
 *
 * Everything is done in 32-bit words, one fp32 or a pair of bf16 neighbours along the depth:
 *   - columns across memory (rows of the plain matrix run along the depth: w in a forward product): the words of a
 *     square of LANES x LANES are transposed in registers;
 *   - columns along memory: fp32 is copied; bf16 takes two rows and interleaves them.
 * What does not fill a vector, and blocks that no library uses today, goes element by element. Only bits are moved.
 *
 * A packed matrix that no cache would keep anyway is written past the caches, where the processor can: that saves
 * reading what is overwritten. */
#include <string.h>

#include <omp.h>

#include "ops/cpu.h"
#include "ops/linear/pack.h"
#include "ops/vmath.h"

typedef uint32_t words __attribute__((vector_size(HRI_VECTOR_BYTES)));
typedef words words_memory __attribute__((aligned(2), may_alias));
enum { LANES = HRI_LANES, LARGE_BYTES = 24 << 20, AHEAD_BYTES = 512 };

static inline words load(const void *p) { return *(const words_memory *)p; }
/* `past` the caches: p at a multiple of the vector. */
static inline void store(void *p, words v, bool past) {
#if defined(__AVX512F__)
  if (past) {
    _mm512_stream_si512(p, (__m512i)v);
    return;
  }
#else
  (void)past;
#endif
  *(words_memory *)p = v;
}
static inline void settle(void) {
#if defined(__AVX512F__)
  _mm_sfence(); /* before a barrier hands the matrix to other threads */
#endif
}

/* Lane pairs of a and b, alternating in runs of `run`: the step of a transposition by halves. low: (a0 b0 a2 b2 ...) in
 * runs, high: (a1 b1 a3 b3 ...). */
#if HRI_VECTOR_BYTES == 64
#define EXCHANGE(a, b, run, low, high)                                                                                 \
  do {                                                                                                                 \
    low = run == 8   ? __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23)           \
          : run == 4 ? __builtin_shufflevector(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27)         \
          : run == 2 ? __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29)         \
                     : __builtin_shufflevector(a, b, 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30);       \
    high = run == 8   ? __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31)    \
           : run == 4 ? __builtin_shufflevector(a, b, 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31)      \
           : run == 2 ? __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31)      \
                      : __builtin_shufflevector(a, b, 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);      \
  } while (0)
#elif HRI_VECTOR_BYTES == 32
#define EXCHANGE(a, b, run, low, high)                                                                                 \
  do {                                                                                                                 \
    low = run == 4   ? __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11)                                         \
          : run == 2 ? __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13)                                         \
                     : __builtin_shufflevector(a, b, 0, 8, 2, 10, 4, 12, 6, 14);                                       \
    high = run == 4   ? __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15)                                      \
           : run == 2 ? __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15)                                      \
                      : __builtin_shufflevector(a, b, 1, 9, 3, 11, 5, 13, 7, 15);                                      \
  } while (0)
#else
#define EXCHANGE(a, b, run, low, high)                                                                                 \
  do {                                                                                                                 \
    low = run == 2 ? __builtin_shufflevector(a, b, 0, 1, 4, 5) : __builtin_shufflevector(a, b, 0, 4, 2, 6);            \
    high = run == 2 ? __builtin_shufflevector(a, b, 2, 3, 6, 7) : __builtin_shufflevector(a, b, 1, 5, 3, 7);           \
  } while (0)
#endif

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#define TRANSPOSE_STEP(run)                                                                                            \
  UNROLL for (int pair = 0; pair < LANES / 2; pair++) {                                                                \
    int r = pair / (run) * 2 * (run) + pair % (run);                                                                   \
    words low, high;                                                                                                   \
    EXCHANGE(v[r], v[r + (run)], (run), low, high);                                                                    \
    v[r] = low;                                                                                                        \
    v[r + (run)] = high;                                                                                               \
  }

/* Word r of line i = word i of line r, for r, i in [0, LANES); lines are that many bytes apart. */
static inline void transpose(unsigned char *to, int64_t to_bytes, const unsigned char *from, int64_t from_bytes,
                             bool past) {
  words v[LANES];
  UNROLL for (int r = 0; r < LANES; r++) {
    v[r] = load(from + r * from_bytes);
    __builtin_prefetch(from + r * from_bytes + AHEAD_BYTES);
  }
#if HRI_VECTOR_BYTES == 64
  TRANSPOSE_STEP(8)
#endif
#if HRI_VECTOR_BYTES >= 32
  TRANSPOSE_STEP(4)
#endif
  TRANSPOSE_STEP(2)
  TRANSPOSE_STEP(1)
  UNROLL for (int r = 0; r < LANES; r++) store(to + r * to_bytes, v[r], past);
}

/* Words (even[j], odd[j]) of two rows of bf16. */
static inline void interleave(uint32_t *to, const hri_bf16 *even, const hri_bf16 *odd, bool past) {
  hri_vh16 low = (hri_vh16) * (const hri_vh16_memory *)even, high = (hri_vh16) * (const hri_vh16_memory *)odd;
  store(to, ((words)hri_vwiden(low) >> 16) | (words)hri_vwiden(high), past);
}

/* ---- one block ---- */

static void block_by_element(const hri_pack_args *a, unsigned char *to, int64_t depth, int64_t column) {
  const hri_packing *p = a->packing;
  int64_t size = (int64_t)hri_real_bytes(a->type);
  for (int64_t i = 0; i < p->depth_block; i++)
    for (int64_t j = 0; j < p->column_block; j++) {
      unsigned char *at = to + ((i / p->group * p->column_block + j) * p->group + i % p->group) * size;
      if (depth + i < a->depth && column + j < a->columns)
        memcpy(at, hri_real_from(a->from, (depth + i) * a->depth_step + (column + j) * a->column_step, a->type),
               (size_t)size);
      else memset(at, 0, (size_t)size);
    }
}

static void block_transposed(const hri_pack_args *a, unsigned char *to, const unsigned char *from, int64_t column_bytes,
                             bool past) {
  int64_t width = a->packing->column_block, deep = a->packing->depth_block / a->packing->group;
  for (int64_t j = 0; j < width; j += LANES)
    for (int64_t i = 0; i < deep; i += LANES)
      transpose(to + (i * width + j) * 4, width * 4, from + j * column_bytes + i * 4, column_bytes, past);
}

static void block_interleaved(const hri_pack_args *a, unsigned char *to, const hri_bf16 *from, bool past) {
  int64_t width = a->packing->column_block;
  for (int64_t i = 0; i < a->packing->depth_block; i += 2, to += width * 4, from += 2 * a->depth_step)
    for (int64_t j = 0; j < width; j += LANES) {
      interleave((uint32_t *)(void *)to + j, from + j, from + a->depth_step + j, past);
      __builtin_prefetch(from + j + 2 * width); /* of blocks to come */
      __builtin_prefetch(from + a->depth_step + j + 2 * width);
    }
}

static void block_copied(const hri_pack_args *a, unsigned char *to, const float *from, bool past) {
  int64_t width = a->packing->column_block;
  for (int64_t i = 0; i < a->packing->depth_block; i++, to += width * 4, from += a->depth_step)
    for (int64_t j = 0; j < width; j += LANES) store(to + j * 4, load(from + j), past);
}

static void pack_block(const hri_pack_args *a, int64_t column_index, int64_t depth_index) {
  const hri_packing *p = a->packing;
  int64_t size = (int64_t)hri_real_bytes(a->type), depth = depth_index * p->depth_block,
          column = column_index * p->column_block;
  unsigned char *to = (unsigned char *)a->to + (column_index * p->column_stride + depth_index * p->depth_stride) * size;
  const void *from = hri_real_from(a->from, depth * a->depth_step + column * a->column_step, a->type);
  bool inside = depth + p->depth_block <= a->depth && column + p->column_block <= a->columns;
  bool past = p->bytes >= LARGE_BYTES && (uintptr_t)to % HRI_VECTOR_BYTES == 0;
  bool in_words = p->group * size == 4 && p->column_block % LANES == 0;
  if (inside && in_words && a->depth_step == 1 && p->depth_block / p->group % LANES == 0)
    block_transposed(a, to, from, a->column_step * size, past);
  else if (inside && in_words && a->column_step == 1 && size == 2) block_interleaved(a, to, from, past);
  else if (inside && in_words && a->column_step == 1) block_copied(a, to, from, past);
  else block_by_element(a, to, depth, column);
}

/* ---- entry ---- */

static void pack(const hri_pack_args *a) {
#pragma omp parallel num_threads(a->threads) if (a -> threads > 1)
  {
    const hri_packing *p = a->packing;
    int64_t count = p->column_blocks * p->depth_blocks, thread = omp_get_thread_num(), team = omp_get_num_threads();
    /* Along the lines of plain b, so that memory is read in order. */
    for (int64_t i = count * thread / team; i < count * (thread + 1) / team; i++)
      if (a->depth_step == 1) pack_block(a, i / p->depth_blocks, i % p->depth_blocks);
      else pack_block(a, i % p->column_blocks, i / p->column_blocks);
    settle();
  }
}

hri_pack_kernel HRI_ISA_NAME(hri_pack_kernel)(void) { return pack; }
