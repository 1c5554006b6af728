/* A model as a GGUF file of random blocks: the matrices of its layers in types that the caller picks, everything else in
 * F32. No tokenizer: text is read byte by byte. */
#ifndef HRI_TEST_GGUF_MODEL_H
#define HRI_TEST_GGUF_MODEL_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/real.h"
#include "base/rng.h"
#include "formats/gguf.h"
#include "model/gguf.h"

static const uint32_t gguf_block_types[] = {HRI_GGML_Q4_0, HRI_GGML_Q4_1, HRI_GGML_Q5_0,   HRI_GGML_Q5_1,
                                            HRI_GGML_Q8_0, HRI_GGML_Q2_K, HRI_GGML_Q3_K,   HRI_GGML_Q4_K,
                                            HRI_GGML_Q5_K, HRI_GGML_Q6_K, HRI_GGML_IQ4_NL, HRI_GGML_IQ4_XS,
                                            HRI_GGML_F16,  HRI_GGML_BF16, HRI_GGML_F32};
enum { GGUF_BLOCK_TYPES = sizeof gguf_block_types / sizeof *gguf_block_types };

typedef struct gguf_random {
  uint64_t seed, at;
} gguf_random;

static inline uint32_t gguf_draw(gguf_random *r) {
  uint32_t w[4];
  hri_philox(r->seed, 17, r->at++, w);
  return w[0];
}

/* Between -1 and 1. */
static inline double gguf_signed(gguf_random *r) { return (double)gguf_draw(r) / 0x80000000u - 1; }

static inline void gguf_put_half(uint8_t *at, double value) {
  uint16_t half = hri_f16_round((float)value);
  memcpy(at, &half, sizeof half);
}

/* A scale for values of about `size`: now and then 0, or among the smallest halves, or negative. */
static inline double gguf_scale(gguf_random *r, double size) {
  uint32_t kind = gguf_draw(r) % 16;
  return kind == 0 ? 0 : kind == 1 ? (gguf_draw(r) % 1023 + 1) * 0x1p-24 : size * (0.5 + gguf_signed(r));
}

/* One block with values of about 0.1: bytes at random, and scales over them. */
static inline void gguf_random_block(gguf_random *r, uint32_t type, uint8_t *block) {
  uint32_t bytes = hri_ggml_block_bytes(type);
  float value = (float)(0.1 * gguf_signed(r));
  uint16_t half = hri_bf16_round(value);
  for (uint32_t i = 0; i < bytes; i++) block[i] = (uint8_t)gguf_draw(r);
  switch (type) {
  case HRI_GGML_F32: memcpy(block, &value, sizeof value); return;
  case HRI_GGML_F16: gguf_put_half(block, value); return;
  case HRI_GGML_BF16: memcpy(block, &half, sizeof half); return;
  case HRI_GGML_Q2_K:
    gguf_put_half(block + 80, gguf_scale(r, 0.2 / 15 / 4));
    gguf_put_half(block + 82, gguf_scale(r, 0.1 / 15));
    return;
  case HRI_GGML_Q3_K: gguf_put_half(block + 108, gguf_scale(r, 0.1 / 32 / 4)); return;
  case HRI_GGML_IQ4_NL: gguf_put_half(block, gguf_scale(r, 0.1 / 128)); return;
  case HRI_GGML_IQ4_XS: gguf_put_half(block, gguf_scale(r, 0.1 / 128 / 32)); return;
  case HRI_GGML_Q6_K: gguf_put_half(block + 208, gguf_scale(r, 0.1 / 128 / 32)); return;
  case HRI_GGML_Q8_0: gguf_put_half(block, gguf_scale(r, 0.1 / 128)); return;
  case HRI_GGML_Q4_0: gguf_put_half(block, gguf_scale(r, 0.1 / 8)); return;
  case HRI_GGML_Q5_0: gguf_put_half(block, gguf_scale(r, 0.1 / 16)); return;
  case HRI_GGML_Q4_1: gguf_put_half(block, gguf_scale(r, 0.2 / 16)); break;
  case HRI_GGML_Q5_1: gguf_put_half(block, gguf_scale(r, 0.2 / 32)); break;
  case HRI_GGML_Q4_K: gguf_put_half(block, gguf_scale(r, 0.2 / 63 / 16)); break;
  default: gguf_put_half(block, gguf_scale(r, 0.2 / 63 / 32)); break;
  }
  gguf_put_half(block + 2, gguf_scale(r, type == HRI_GGML_Q4_1 || type == HRI_GGML_Q5_1 ? -0.1 : 0.1 / 63));
}

/* The type of part `k` of a layer's matrix. */
typedef uint32_t (*gguf_pick)(void *context, const hri_param_spec *spec, uint32_t k);

typedef struct gguf_tensors {
  hri_gguf_tensor *list;
  hri_gguf_part *parts;
  uint32_t count;
} gguf_tensors;

static inline gguf_tensors gguf_list(const hr_model *m, gguf_pick pick, void *context) {
  size_t most = (size_t)hri_param_count(m) * HRI_PARAM_PARTS;
  gguf_tensors t = {calloc(most, sizeof *t.list), calloc(most, sizeof *t.parts), 0};
  if (!t.list || !t.parts) abort();
  for (uint32_t p = 0; p < hri_param_count(m); p++) {
    hri_param_spec spec;
    hri_param_get(m, p, &spec);
    for (uint32_t k = 0; k < spec.part_count; k++, t.count++) {
      hri_gguf_part *part = &t.parts[t.count];
      hr_module module;
      hri_gguf_part_of(m, &spec, k, part);
      t.list[t.count] =
          (hri_gguf_tensor){.name = part->name,
                            .type = hri_part_module(spec.slot, k, &module) ? pick(context, &spec, k) : HRI_GGML_F32,
                            .rank = part->rank,
                            .dims = {part->rank == 2 ? part->columns : part->rows, part->rank == 2 ? part->rows : 1, 1,
                                     1}};
    }
  }
  return t;
}

/* Norms around 1, so that what comes out is of the size of what goes in. */
static inline hr_status gguf_write_values(hri_gguf_writer *writer, const gguf_tensors *t, gguf_random *r,
                                          hr_error *error) {
  hr_status status = HR_OK;
  for (uint32_t i = 0; i < t->count && status == HR_OK; i++) {
    uint32_t type = t->list[i].type, size = hri_ggml_block_bytes(type);
    uint64_t count = t->list[i].dims[0] * t->list[i].dims[1] / hri_ggml_block(type);
    uint8_t *bytes = malloc(count * size);
    if (!bytes) abort();
    for (uint64_t b = 0; b < count; b++) {
      gguf_random_block(r, type, bytes + b * size);
      if (strstr(t->list[i].name, "norm.weight")) {
        float one = (float)(1 + 0.1 * gguf_signed(r));
        memcpy(bytes + b * size, &one, sizeof one);
      }
    }
    status = hri_gguf_writer_write(writer, i, 0, bytes, count * size, error);
    free(bytes);
  }
  return status;
}

/* The tensors of a model, beside keys that are the caller's. */
static inline hr_status gguf_keys_write(const char *path, const hri_gguf_keys *keys, const hr_model *m, uint64_t seed,
                                        gguf_pick pick, void *context, hr_error *error) {
  hri_gguf_writer *writer = NULL;
  gguf_random r = {seed, 0};
  gguf_tensors t = gguf_list(m, pick, context);
  hr_status status = hri_gguf_writer_open(path, keys, t.list, t.count, &writer, error);
  if (status == HR_OK) {
    status = gguf_write_values(writer, &t, &r, error);
    if (status == HR_OK) status = hri_gguf_writer_finish(writer, error);
    else hri_gguf_writer_abort(writer);
  }
  free(t.list), free(t.parts);
  return status;
}

/* UNSUPPORTED: GGUF has no words for such a model. */
static inline hr_status gguf_model_write(const char *path, const hr_model *m, uint64_t seed, gguf_pick pick,
                                         void *context, hr_error *error) {
  hri_gguf_keys keys = {{0}, 0};
  hr_status status = hri_gguf_put_model(&keys, m, 0, error);
  if (status == HR_OK) status = gguf_keys_write(path, &keys, m, seed, pick, context, error);
  hri_gguf_keys_deinit(&keys);
  return status;
}

#endif
