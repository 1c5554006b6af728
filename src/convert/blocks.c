/* A run is cut into chunks of a fixed size, each encoded and decoded again by whoever takes it: the bytes and, as the chunks'
 * sums are folded in order, also what was lost are the same for every team. */
#include "convert/blocks.h"

#include <assert.h>
#include <math.h>

#include <headroom/device.h>

#include "team/team.h"

enum { CHUNK = 4096 }; /* elements: whole blocks of every type, and a small part of a thread's stack */

hr_status hri_blocks_open(hri_blocks *b, uint64_t room, hr_error *error) {
  *b = (hri_blocks){.room = room};
  b->chunks = hri_alloc((room / CHUNK + 1) * sizeof *b->chunks);
  if (!b->chunks) return hri_fail_memory(error, (room / CHUNK + 1) * sizeof *b->chunks, "the pieces of a conversion");
  HRI_TRY(hri_team_create(hr_device_cpu_threads(), &b->team, error));
  (void)hri_team_start(b->team, NULL); /* refused: the calling thread does it alone, to the same bytes */
  return HR_OK;
}

void hri_blocks_close(hri_blocks *b) {
  hri_team_destroy(b->team);
  hri_free(b->chunks);
  *b = (hri_blocks){0};
}

typedef struct run {
  hri_blocks *blocks;
  uint32_t type;
  uint8_t *to;
  const float *from;
  uint64_t elements;
} run;

static void encode_chunks(void *context, int64_t begin, int64_t end, int thread) {
  const run *r = context;
  float back[CHUNK];
  (void)thread;
  for (int64_t k = begin; k < end; k++) {
    uint64_t first = (uint64_t)k * CHUNK, n = r->elements - first < CHUNK ? r->elements - first : CHUNK;
    uint8_t *to = r->to + first / hri_ggml_block(r->type) * hri_ggml_block_bytes(r->type);
    hri_block_loss loss = {0, 0};
    (void)hri_ggml_from_f32(r->type, to, r->from + first, n);
    (void)hri_ggml_to_f32(r->type, back, to, n);
    for (uint64_t i = 0; i < n; i++) {
      double value = (double)r->from[first + i], difference = value - (double)back[i];
      loss.difference += difference * difference;
      loss.value += value * value;
    }
    r->blocks->chunks[k] = loss;
  }
}

void hri_blocks_encode(hri_blocks *b, uint32_t type, void *to, const float *from, uint64_t elements,
                       hri_block_loss *loss) {
  run r = {b, type, to, from, elements};
  int64_t count = (int64_t)((elements + CHUNK - 1) / CHUNK);
  assert(hri_ggml_block(type) > 1 && elements % hri_ggml_block(type) == 0 && elements <= b->room);
  hri_team_each(b->team, count, 1, encode_chunks, &r);
  for (int64_t k = 0; k < count; k++) {
    loss->difference += b->chunks[k].difference;
    loss->value += b->chunks[k].value;
  }
}

double hri_block_loss_share(const hri_block_loss *loss) {
  return loss->value > 0 ? sqrt(loss->difference / loss->value) : 0;
}
