/* The queue of a device (machine.h): making and ending what its runs share, arenas, writes and reads through pinned slots,
 * and marks. Neighbours may rely on order alone: what was queued first is over first on the compute lane. Which bytes a
 * program's nodes touch is not known here. */
#include "backend/cuda/machine.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

/* ---- making ---- */

static hr_status make_slot(hri_cuda_machine *m, hri_cuda_slot *slot, uint64_t offset, hr_error *error) {
  slot->memory = m->pinned + offset;
  return m->gpu->calls->event_create(m->gpu, &slot->copied, error);
}

static hr_status make(hri_cuda_machine *m, uint32_t lanes, hr_error *error) {
  const uint64_t both = m->write_slot_bytes + HRI_CUDA_SLOT_BYTES;
  void *pinned;
  HRI_TRY(hri_cuda_machine_lanes(m, lanes | 1u << HRI_COMPUTE, error));
  HRI_TRY(m->gpu->calls->allocate_host(m->gpu, HRI_CUDA_SLOTS * both, &pinned, error));
  m->pinned = pinned;
  for (uint32_t k = 0; k < HRI_CUDA_SLOTS; k++) {
    HRI_TRY(make_slot(m, &m->writes[k], k * both, error));
    HRI_TRY(make_slot(m, &m->reads[k], k * both + m->write_slot_bytes, error));
  }
  for (uint32_t k = 0; k < HRI_CUDA_MARKS; k++) HRI_TRY(m->gpu->calls->event_create(m->gpu, &m->marks[k], error));
  return HR_OK;
}

hr_status hri_cuda_machine_create(hri_gpu *gpu, uint32_t lanes, uint64_t write_slot_bytes, hri_cuda_machine **machine,
                                  hr_error *error) {
  hri_cuda_machine *m = hri_alloc_zero(1, sizeof *m);
  hr_status status;
  *machine = NULL;
  if (!m) return hri_fail_memory(error, sizeof *m, "the queue of a device");
  m->gpu = gpu;
  m->write_slot_bytes = write_slot_bytes;
  status = make(m, lanes, error);
  if (status == HR_OK) *machine = m;
  else hri_cuda_machine_destroy(m);
  return status;
}

hr_status hri_cuda_machine_lanes(hri_cuda_machine *m, uint32_t lanes, hr_error *error) {
  for (uint32_t k = 0; k < HRI_LANE_COUNT; k++)
    if ((lanes >> k & 1) && !m->lanes[k]) HRI_TRY(m->gpu->calls->stream_create(m->gpu, &m->lanes[k], error));
  return HR_OK;
}

static void destroy_slot(hri_cuda_machine *m, hri_cuda_slot *slot) {
  if (slot->copied) m->gpu->calls->event_destroy(m->gpu, slot->copied);
}

void hri_cuda_machine_destroy(hri_cuda_machine *m) {
  const hri_gpu_calls *calls;
  if (!m) return;
  calls = m->gpu->calls;
  (void)hri_cuda_machine_finish(m, NULL);
  for (uint32_t k = 0; k < HRI_CUDA_SLOTS; k++) destroy_slot(m, &m->writes[k]), destroy_slot(m, &m->reads[k]);
  for (uint32_t k = 0; k < HRI_CUDA_MARKS; k++)
    if (m->marks[k]) calls->event_destroy(m->gpu, m->marks[k]);
  for (uint32_t k = 0; k < HRI_LANE_COUNT; k++) calls->stream_destroy(m->gpu, m->lanes[k]);
  (void)calls->release(m->gpu, m->arenas[HRI_DEVICE], NULL);
  (void)calls->release_host(m->gpu, m->arenas[HRI_HOST], NULL);
  (void)calls->release_host(m->gpu, m->pinned, NULL);
  hri_array_free(&m->launched);
  hri_free(m);
}

hr_status hri_cuda_machine_reserve(hri_cuda_machine *m, const uint64_t bytes[HRI_TIER_COUNT], uint64_t granule,
                                   uint8_t value, hr_error *error) {
  const hri_gpu_calls *calls = m->gpu->calls;
  assert(bytes[HRI_DISK] == 0);
  for (int tier = 0; tier < HRI_DISK; tier++) {
    uint64_t rounded = hri_round_up(bytes[tier], granule);
    void *memory = NULL;
    assert(!m->arenas[tier]); /* reserved once */
    if (rounded == 0) continue;
    HRI_TRY((tier == HRI_DEVICE ? calls->allocate : calls->allocate_host)(m->gpu, rounded, &memory, error));
    m->arenas[tier] = memory;
    m->bytes[tier] = rounded;
    HRI_TRY(calls->fill(m->gpu, memory, value, rounded, hri_cuda_main(m), error));
  }
  return hri_cuda_machine_finish(m, error);
}

/* ---- waiting ---- */

/* Programs join their lanes to the compute lane's stream before they end. */
hr_status hri_cuda_machine_finish(hri_cuda_machine *m, hr_error *error) {
  return hri_cuda_main(m) ? m->gpu->calls->stream_finish(m->gpu, hri_cuda_main(m), error) : HR_OK;
}

static hr_status note(hri_cuda_machine *m, hr_status status) {
  if (status != HR_OK) m->failed = true;
  return status;
}

hr_status hri_cuda_machine_mark(hri_cuda_machine *m, hri_mark *mark, hr_error *error) {
  *mark = ++m->issued;
  return note(m, m->gpu->calls->record(m->gpu, m->marks[*mark % HRI_CUDA_MARKS], hri_cuda_main(m), error));
}

/* The bytes of a slot to whom they are for. */
static hr_status hand_over(hri_cuda_machine *m, hri_cuda_slot *slot, hr_error *error) {
  if (!slot->to) return HR_OK;
  HRI_TRY(note(m, m->gpu->calls->event_finish(m->gpu, slot->copied, error)));
  memcpy(slot->to, slot->memory, slot->bytes);
  slot->to = NULL;
  return HR_OK;
}

/* An event stands for its mark or for one that is later by their number: all before that is over too. */
hr_status hri_cuda_machine_wait(hri_cuda_machine *m, hri_mark mark, hr_error *error) {
  hr_status status = HR_OK;
  if (mark) status = note(m, m->gpu->calls->event_finish(m->gpu, m->marks[mark % HRI_CUDA_MARKS], error));
  for (uint32_t k = 0; k < HRI_CUDA_SLOTS; k++) {
    hri_cuda_slot *slot = &m->reads[(m->next_read + k) % HRI_CUDA_SLOTS]; /* the oldest first */
    if (m->failed) slot->to = NULL;
    else if (slot->to && slot->mark <= mark) status = hand_over(m, slot, error);
  }
  return status;
}

/* ---- bytes ---- */

/* The other slot, once nothing is copied out of it any more. */
static hr_status turn(hri_cuda_machine *m, hr_error *error) {
  hri_cuda_slot *slot = &m->writes[m->next_write];
  HRI_TRY(m->gpu->calls->record(m->gpu, slot->copied, hri_cuda_main(m), error));
  m->next_write = (m->next_write + 1) % HRI_CUDA_SLOTS;
  slot = &m->writes[m->next_write];
  slot->used = 0;
  return m->gpu->calls->event_finish(m->gpu, slot->copied, error);
}

/* As much of it as the slot has room for: *part bytes. */
static hr_status write_part(hri_cuda_machine *m, unsigned char *at, const void *from, uint64_t bytes, uint64_t *part,
                            hr_error *error) {
  hri_cuda_slot *slot;
  if (m->writes[m->next_write].used == m->write_slot_bytes) HRI_TRY(turn(m, error));
  slot = &m->writes[m->next_write];
  *part = m->write_slot_bytes - slot->used;
  if (*part > bytes) *part = bytes;
  memcpy(slot->memory + slot->used, from, *part);
  HRI_TRY(m->gpu->calls->copy(m->gpu, at, slot->memory + slot->used, *part, hri_cuda_main(m), error));
  slot->used += *part;
  return HR_OK;
}

hr_status hri_cuda_machine_write(hri_cuda_machine *m, unsigned char *at, const void *from, uint64_t bytes,
                                 hr_error *error) {
  for (uint64_t done = 0, part; done < bytes; done += part)
    HRI_TRY(note(m, write_part(m, at + done, (const unsigned char *)from + done, bytes - done, &part, error)));
  return HR_OK;
}

static uint64_t part_of(uint64_t bytes) { return bytes < HRI_CUDA_SLOT_BYTES ? bytes : HRI_CUDA_SLOT_BYTES; }

static hr_status read_part(hri_cuda_machine *m, const struct hri_cuda_run *reader, const unsigned char *at,
                           unsigned char *to, uint64_t bytes, hr_error *error) {
  hri_cuda_slot *slot = &m->reads[m->next_read++ % HRI_CUDA_SLOTS];
  HRI_TRY(hand_over(m, slot, error));
  HRI_TRY(m->gpu->calls->copy(m->gpu, slot->memory, at, bytes, hri_cuda_main(m), error));
  HRI_TRY(m->gpu->calls->record(m->gpu, slot->copied, hri_cuda_main(m), error));
  slot->to = to;
  slot->reader = reader;
  slot->bytes = bytes;
  slot->mark = m->issued + 1;
  return HR_OK;
}

hr_status hri_cuda_machine_read(hri_cuda_machine *m, const struct hri_cuda_run *reader, const unsigned char *at,
                                void *to, uint64_t bytes, hri_mark *mark, hr_error *error) {
  for (uint64_t done = 0, part; done < bytes; done += part) {
    part = part_of(bytes - done);
    HRI_TRY(note(m, read_part(m, reader, at + done, (unsigned char *)to + done, part, error)));
  }
  return hri_cuda_machine_mark(m, mark, error);
}

void hri_cuda_machine_forget(hri_cuda_machine *m, const struct hri_cuda_run *run) {
  size_t kept = 0;
  for (size_t k = 0; k < m->launched.count; k++)
    if (m->launched.items[k].run != run) m->launched.items[kept++] = m->launched.items[k];
  m->launched.count = kept;
  for (uint32_t k = 0; k < HRI_CUDA_SLOTS; k++)
    if (m->reads[k].reader == run) m->reads[k].to = NULL;
}
