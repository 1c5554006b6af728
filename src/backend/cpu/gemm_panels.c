/* Packing of panels for the register tile: rows of a and columns of b, as gemm_ours.h describes them. Compiled once per
 * instruction level (HRI_ISA). Only bits are moved; bf16 or fp16 that becomes fp32 does so exactly.
 *
 *   - Lines whose terms lie side by side in memory are transposed in registers, LANES lines and LANES words at a time.
 *   - Where neighbouring lines lie side by side, the words of a step are copied; some panels are filled together, so
 *     that what is read in one piece is long.
 * A panel narrower than a vector is written by whole vectors all the same, in ascending order, so that the next store
 * overwrites what the one before wrote too much; only at its end is exactly as much written as there is. Panels of a,
 * which are two lines narrower, have their words moved together first, since most of such stores would cross lines. */
#include <string.h>

#include "backend/cpu/gemm_ours.h"
#include "ops/cpu.h"
#include "ops/linear/transpose.h"

#define INLINE static inline __attribute__((always_inline))
enum {
  LANES = HRI_LANES,
  REST = LANES == 4 ? HRI_GEMM_ROWS_BASE % 4 : LANES - 2, /* lines of a in its last vector */
  TOGETHER_WORDS = 64,
  NEAR = 256, /* bytes */
  STEPS = 8,
  TOGETHER_FITS = HRI_VECTOR_BYTES > 16 /* a panel of a is two lines narrower than a vector */
};
_Static_assert(HRI_GEMM_ROWS_AVX2 == HRI_GEMM_LANES_AVX2 - 2 && HRI_GEMM_ROWS_AVX512 == HRI_GEMM_LANES_AVX512 - 2,
               "as REST says");

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t terms_of(int64_t words, hri_gemm_words how) { return how == HRI_GEMM_WORDS_PAIRS ? 2 * words : words; }

/* LANES words along a line, from `terms` terms on; what is beyond them is zero. */
INLINE hri_words words_along(const void *from, int64_t terms, hri_gemm_words how) {
  typedef hri_words words_memory __attribute__((aligned(2), may_alias));
  uint16_t some[2 * LANES] = {0};
  terms = terms > 0 ? terms : 0;
  if (how != HRI_GEMM_WORDS_PAIRS)
    return (hri_words)hri_vload_real_n(from, 0, least(terms, LANES), hri_gemm_words_type(how));
  if (terms >= 2 * LANES) return *(const words_memory *)from;
  memcpy(some, from, (size_t)terms * sizeof *some);
  return *(const words_memory *)some;
}

/* The same step of `count` neighbouring lines or more; `second` is the term behind, of pairs, and may not exist. */
INLINE hri_words words_across(const void *from, const void *second, int64_t count, hri_gemm_words how) {
  hri_words low, high = {0};
  low = (hri_words)hri_vload_real_n(from, 0, count, hri_gemm_words_type(how));
  if (how != HRI_GEMM_WORDS_PAIRS) return low;
  if (second) high = (hri_words)hri_vload_real_n(second, 0, count, HRI_REAL_BF16);
  return low >> 16 | high;
}

/* Words [at, at + LANES) of a panel, of which `count` belong there; `end`: of the panel. */
INLINE void put(uint32_t *to, int64_t at, int64_t count, int64_t end, hri_words v) {
  typedef hri_words words_memory __attribute__((aligned(4), may_alias));
  if (at + LANES <= end) *(words_memory *)(to + at) = v;
  else hri_vstore_n((float *)(void *)(to + at), (hri_vf)v, least(count, LANES));
}

#if HRI_VECTOR_BYTES > 16
/* LANES / 2 words of REST lines each, side by side in REST / 2 vectors: vector k is word k without its first 2k lines, and
 * the first of word k + 1. By pairs of lines, whose counts are all even. */
typedef uint64_t line_pairs __attribute__((vector_size(HRI_VECTOR_BYTES)));
#define PAIR_OF(k, i)                                                                                                  \
  ((k) + (i) + ((k) + (i) < REST / 2 ? 0 : 1)) /* of both vectors, whose words have a pair more than is used */
#if HRI_VECTOR_BYTES == 64
#define PAIRS_OF(k)                                                                                                    \
  PAIR_OF(k, 0), PAIR_OF(k, 1), PAIR_OF(k, 2), PAIR_OF(k, 3), PAIR_OF(k, 4), PAIR_OF(k, 5), PAIR_OF(k, 6), PAIR_OF(k, 7)
#else
#define PAIRS_OF(k) PAIR_OF(k, 0), PAIR_OF(k, 1), PAIR_OF(k, 2), PAIR_OF(k, 3)
#endif
#define TOGETHER(k)                                                                                                    \
  put(to, (k) * LANES, LANES, INT64_MAX,                                                                               \
      (hri_words)__builtin_shufflevector((line_pairs)v[k], (line_pairs)v[(k) + 1], PAIRS_OF(k)))
INLINE void put_together(uint32_t *to, const hri_words v[LANES / 2]) {
  TOGETHER(0);
  TOGETHER(1);
  TOGETHER(2);
#if HRI_VECTOR_BYTES == 64
  TOGETHER(3);
  TOGETHER(4);
  TOGETHER(5);
  TOGETHER(6);
#endif
}
#else
INLINE void put_together(uint32_t *to, const hri_words v[LANES / 2]) { (void)to, (void)v; } /* panels are wider */
#endif

/* LANES lines `across` apart, of which `lines` exist, LANES words of each. */
INLINE void read_square(const void *corner, int64_t across, int64_t lines, int64_t terms, hri_gemm_words how,
                        hri_words v[LANES]) {
  HRI_UNROLL for (int r = 0; r < LANES; r++) {
    const void *at = hri_real_from(corner, r * across, hri_gemm_words_type(how));
    v[r] = r < lines ? words_along(at, terms, how) : (hri_words){0};
  }
}

/* LANES lines from `line` of a panel on, LANES words from `word` on, where some of that does not exist. */
INLINE void edge_square(const hri_gemm_panels *p, int64_t panel, int64_t line, int64_t word, hri_gemm_words how) {
  int64_t terms = p->terms - terms_of(word, how), words = least(LANES, p->words - word), end = p->words * p->width;
  int64_t first = panel * p->width + line;
  const void *corner = hri_real_from(p->from, first * p->across + terms_of(word, how), hri_gemm_words_type(how));
  uint32_t *to = p->to + panel * p->panel_stride;
  hri_words v[LANES];
  read_square(corner, p->across, p->lines - first, terms, how, v);
  hri_transpose(v);
  for (int64_t i = 0; i < words; i++) put(to, (word + i) * p->width + line, p->width - line, end, v[i]);
}

/* Words that must be there behind what is put by whole vectors: none where they end with a word, or words are moved
 * together. */
INLINE int64_t room_behind(int64_t width, int64_t lines) {
  return lines % LANES == 0 || (TOGETHER_FITS && width == REST) ? 0 : LANES;
}

/* `lines` lines from `line` of a panel on, a constant: all words that exist of them all and have room behind them; how
 * many. No line is read that is not of the panel: with rows of 4 KiB those of a vector more would push each other out of
 * the first cache. The same lines of the panel behind are fetched meanwhile (in the last panel the next words), and of a,
 * whose panels are many, where they go: a row is too short for the processor to foresee the next. */
INLINE int64_t inner_squares(const hri_gemm_panels *p, int64_t panel, int64_t line, int lines, hri_gemm_words how) {
  const char *at = hri_real_from(p->from, (panel * p->width + line) * p->across, hri_gemm_words_type(how));
  int64_t across = p->across * (int64_t)hri_real_bytes(hri_gemm_words_type(how)), width = p->width, word = 0;
  uint32_t *to = p->to + panel * p->panel_stride + line;
  int64_t ahead = panel + 1 < p->panels ? p->width * across : NEAR;
  for (; terms_of(word + LANES, how) <= p->terms &&
         (word + LANES) * width + room_behind(width, lines) <= p->words * width;
       word += LANES, at += terms_of(LANES, how) * (int64_t)hri_real_bytes(hri_gemm_words_type(how)),
       to += LANES * width) {
    hri_words v[LANES];
    HRI_UNROLL for (int r = 0; r < LANES; r++) {
      v[r] = r < lines ? words_along(at + r * across, terms_of(LANES, how), how) : (hri_words){0};
      if (r < lines) __builtin_prefetch(at + r * across + ahead, 0, 3);
    }
    if (TOGETHER_FITS && lines == REST)
      for (int64_t i = 0; i < LANES * width; i += HRI_GEMM_ALIGNMENT / 4)
        __builtin_prefetch(to + p->panel_stride + i, 1);
    hri_transpose(v);
    if (TOGETHER_FITS && lines == REST) {
      put_together(to, v);
      put_together(to + LANES / 2 * REST, v + LANES / 2);
    } else {
      HRI_UNROLL for (int i = 0; i < LANES; i++) put(to, i * width, LANES, INT64_MAX, v[i]);
    }
  }
  return word;
}

/* Lines from the last ones of the panel on: what one group writes beyond a row belongs to one that comes later. */
INLINE void transposed(const hri_gemm_panels *p, hri_gemm_words how) {
  for (int64_t panel = 0; panel < p->panels; panel++)
    for (int64_t line = (p->width - 1) / LANES * LANES; line >= 0; line -= LANES) {
      int64_t lines = least(LANES, p->width - line), word = 0;
      if (panel * p->width + line + lines <= p->lines) {
        if (lines == LANES) word = inner_squares(p, panel, line, LANES, how);
        else if (lines == REST && (!TOGETHER_FITS || p->width == REST)) word = inner_squares(p, panel, line, REST, how);
      }
      for (; word < p->words; word += LANES) edge_square(p, panel, line, word, how);
    }
}

/* One step of one panel. */
INLINE void copy_step(const hri_gemm_panels *p, int64_t panel, int64_t word, const void *line, const void *second,
                      hri_gemm_words how) {
  int64_t first = panel * p->width, end = p->words * p->width;
  for (int64_t at = 0; at < p->width; at += LANES) {
    int64_t in = first + at, count = least(LANES, p->lines - in); /* of the next panel too: put overwrites them */
    hri_words v = {0};
    if (line && count > 0)
      v = words_across(hri_real_from(line, in, hri_gemm_words_type(how)),
                       second ? hri_real_from(second, in, hri_gemm_words_type(how)) : NULL, count, how);
    put(p->to + panel * p->panel_stride, word * p->width + at, p->width - at, end, v);
  }
}

/* Reads go from row to row of memory, mostly over pages, which the processor does not foresee. */
INLINE void fetch_across(const hri_gemm_panels *p, int64_t first, int64_t lines, int64_t word, hri_gemm_words how) {
  for (int64_t term = terms_of(word, how); term < least(terms_of(word + STEPS, how), p->terms); term++)
    hri_fetch(hri_real_from(p->from, term * p->along + first, hri_gemm_words_type(how)),
              least(lines, p->lines - first) * (int64_t)hri_real_bytes(hri_gemm_words_type(how)));
}

/* STEPS words of one panel, which exist and have room behind them; `vectors` per word, a constant. */
INLINE void inner_steps(const hri_gemm_panels *p, int64_t panel, int64_t word, int vectors, hri_gemm_words how) {
  const char *at = hri_real_from(p->from, terms_of(word, how) * p->along + panel * p->width, hri_gemm_words_type(how));
  int64_t along = p->along * (int64_t)hri_real_bytes(hri_gemm_words_type(how));
  uint32_t *to = p->to + panel * p->panel_stride + word * p->width;
  for (int i = 0; i < STEPS; i++, at += terms_of(along, how), to += p->width)
    HRI_UNROLL for (int v = 0; v < vectors; v++) {
      const char *vector = at + v * LANES * (int64_t)hri_real_bytes(hri_gemm_words_type(how));
      put(to, v * LANES, LANES, INT64_MAX, words_across(vector, vector + along, LANES, how));
    }
}

/* Likewise of a panel of REST lines. */
INLINE void inner_together(const hri_gemm_panels *p, int64_t panel, int64_t word, hri_gemm_words how) {
  const char *at = hri_real_from(p->from, terms_of(word, how) * p->along + panel * REST, hri_gemm_words_type(how));
  int64_t along = p->along * (int64_t)hri_real_bytes(hri_gemm_words_type(how));
  uint32_t *to = p->to + panel * p->panel_stride + word * REST;
  for (int half = 0; half < 2 * STEPS / LANES; half++, to += LANES / 2 * REST) {
    hri_words v[LANES / 2];
    HRI_UNROLL for (int i = 0; i < LANES / 2; i++, at += terms_of(along, how)) v[i] =
        words_across(at, at + along, LANES, how);
    put_together(to, v);
  }
}

INLINE void steps(const hri_gemm_panels *p, int64_t panel, int64_t word, hri_gemm_words how) {
  int64_t end = least(word + STEPS, p->words), vectors = (p->width + LANES - 1) / LANES;
  bool inner = panel * p->width + vectors * LANES <= p->lines && terms_of(word + STEPS, how) <= p->terms &&
               (word + STEPS) * p->width + room_behind(p->width, p->width) <= p->words * p->width;
  if (inner && TOGETHER_FITS && p->width == REST) inner_together(p, panel, word, how);
  else if (inner && vectors == 1) inner_steps(p, panel, word, 1, how);
  else if (inner && vectors == 2) inner_steps(p, panel, word, 2, how);
  else if (inner && vectors == 3) inner_steps(p, panel, word, 3, how);
  else
    for (; word < end; word++) {
      int64_t term = terms_of(word, how);
      const void *line = term < p->terms ? hri_real_from(p->from, term * p->along, hri_gemm_words_type(how)) : NULL,
                 *second = term + 1 < p->terms ? hri_real_from(p->from, (term + 1) * p->along, hri_gemm_words_type(how))
                                               : NULL;
      copy_step(p, panel, word, line, second, how);
    }
}

/* STEPS words of a panel at a time fill whole lines of it: with rows or panels of some 4 KiB those of several would push
 * each other out of the first cache. */
INLINE void straight(const hri_gemm_panels *p, hri_gemm_words how) {
  int64_t together = TOGETHER_WORDS / p->width + 1;
  for (int64_t panel = 0; panel < p->panels; panel += together)
    for (int64_t word = 0; word < p->words; word += STEPS) {
      int64_t end = least(panel + together, p->panels);
      fetch_across(p, panel * p->width, (end - panel) * p->width, word + 2 * STEPS, how);
      for (int64_t other = panel; other < end; other++) steps(p, other, word, how);
    }
}

INLINE void pack(const hri_gemm_panels *p, hri_gemm_words how) {
  if (p->along == 1) transposed(p, how);
  else straight(p, how);
}

#if HRI_VECTOR_BYTES == 64
/* Lines [line, line + LANES) of a panel, words [word, word + LANES): each line's words side by side. */
INLINE void rows_square(const hri_gemm_panels *p, int64_t panel, int64_t line, int64_t word) {
  int64_t first = panel * p->width + line, terms = p->terms - 2 * word;
  const void *corner = hri_real_from(p->from, first * p->across + 2 * word * p->along, HRI_REAL_BF16);
  uint32_t *to = p->to + panel * p->panel_stride + word * p->width + line * LANES;
  hri_words v[LANES];
  if (p->along == 1) {
    read_square(corner, p->across, p->lines - first, terms, HRI_GEMM_WORDS_PAIRS, v);
  } else {
    for (int64_t i = 0; i < LANES; i++) {
      const void *step = hri_real_from(corner, 2 * i * p->along, HRI_REAL_BF16),
                 *second = hri_real_from(corner, (2 * i + 1) * p->along, HRI_REAL_BF16);
      bool there = 2 * i < terms && first < p->lines;
      v[i] = there ? words_across(step, 2 * i + 1 < terms ? second : NULL, least(LANES, p->lines - first),
                                  HRI_GEMM_WORDS_PAIRS)
                   : (hri_words){0};
    }
    hri_transpose(v);
  }
  for (int64_t r = 0; r < LANES; r++) put(to, r * LANES, LANES, INT64_MAX, v[r]);
}

void HRI_ISA_NAME(hri_gemm_pack_rows)(const hri_gemm_panels *p) {
  for (int64_t panel = 0; panel < p->panels; panel++)
    for (int64_t word = 0; word < p->words; word += LANES)
      for (int64_t line = 0; line < p->width; line += LANES) rows_square(p, panel, line, word);
}
#endif

void HRI_ISA_NAME(hri_gemm_pack)(const hri_gemm_panels *p) {
  switch (p->how) {
  case HRI_GEMM_WORDS_F32: pack(p, HRI_GEMM_WORDS_F32); break;
  case HRI_GEMM_WORDS_WIDENED: pack(p, HRI_GEMM_WORDS_WIDENED); break;
  case HRI_GEMM_WORDS_HALVES: pack(p, HRI_GEMM_WORDS_HALVES); break;
  default: pack(p, HRI_GEMM_WORDS_PAIRS); break;
  }
}
