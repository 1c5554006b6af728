/* Labels: what requests are for. Each distinct one is kept once, in the form in which a history file holds it. */
#include <string.h>

#include "alloc/history.h"

enum { LABEL_LIMIT = 1 << 24, TEXT_LIMIT = 1 << 16 };

/* Works in place: `make` fills one such record, `find` looks for its like. */
static hri_history_label *make(const hr_alloc_label *from, hr_error *error) {
  const char *texts[] = {from->category ? from->category : "", from->phase ? from->phase : "",
                         from->name ? from->name : ""};
  size_t lengths[3], bytes = sizeof(hri_history_label);
  hri_history_label *label;
  char *to;
  for (int k = 0; k < 3; k++) {
    lengths[k] = strlen(texts[k]);
    if (lengths[k] > TEXT_LIMIT) {
      hri_fail(error, HR_ERROR_USAGE, "allocator: a label's text of %zu bytes; at most 65536 are possible", lengths[k]);
      return NULL;
    }
    bytes += lengths[k];
  }
  bytes = (bytes + 7) / 8 * 8;
  label = hri_alloc_zero(1, bytes);
  if (!label) {
    hri_fail_memory(error, bytes, "a label");
    return NULL;
  }
  *label = (hri_history_label){{HRI_HISTORY_LABEL, (uint32_t)bytes},
                               from->layer < 0 ? -1 : from->layer,
                               (uint32_t)lengths[0],
                               (uint32_t)lengths[1],
                               (uint32_t)lengths[2]};
  to = label->text;
  for (int k = 0; k < 3; to += lengths[k++]) memcpy(to, texts[k], lengths[k]);
  return label;
}

static uint64_t hash(const hri_history_label *label) {
  uint64_t h = 0x9e3779b97f4a7c15u;
  for (uint32_t at = 0; at < label->note.bytes; at += 8) {
    uint64_t word;
    memcpy(&word, (const char *)label + at, 8);
    h = (h ^ word) * 0xff51afd7ed558ccdu;
    h ^= h >> 32;
  }
  return h;
}

/* The number of its like, or 0 with *slot where it belongs. */
static uint32_t find(const hri_labels *labels, const hri_history_label *label, uint64_t *slot) {
  uint32_t number;
  for (*slot = hash(label) & labels->mask; (number = labels->slots[*slot]) != 0; *slot = (*slot + 1) & labels->mask) {
    const hri_history_label *have = labels->items.items[number - 1];
    if (have->note.bytes == label->note.bytes && memcmp(have, label, label->note.bytes) == 0) return number;
  }
  return 0;
}

static bool widen(hri_labels *labels) {
  hri_labels wide = {.mask = labels->mask * 2 + 1};
  if ((labels->items.count + 1) * 2 <= labels->mask) return true;
  if (wide.mask < 63) wide.mask = 63;
  wide.slots = hri_alloc_zero((size_t)wide.mask + 1, sizeof *wide.slots);
  if (!wide.slots) return false;
  for (size_t k = 0; k < labels->items.count; k++) {
    uint64_t at = hash(labels->items.items[k]) & wide.mask;
    while (wide.slots[at]) at = (at + 1) & wide.mask;
    wide.slots[at] = (uint32_t)k + 1;
  }
  hri_free(labels->slots);
  labels->slots = wide.slots;
  labels->mask = wide.mask;
  return true;
}

/* Takes `label`, or frees it when there is its like. */
static hr_status intern(hr_alloc *alloc, hri_history_label *label, uint32_t *number, hr_error *error) {
  hri_labels *labels = alloc->labels;
  uint64_t slot;
  hr_status status = HR_OK;
  if (!widen(labels) || !hri_array_reserve(&labels->items, labels->items.count + 1)) {
    status = hri_fail_memory(error, label->note.bytes, "a label");
  } else if ((*number = find(labels, label, &slot)) == 0) {
    if (labels->items.count == LABEL_LIMIT)
      status = hri_hint(error, hri_fail(error, HR_ERROR_USAGE, "allocator: more than %d different labels", LABEL_LIMIT),
                        "what counts up belongs into the label's step");
    else status = hri_history_note_label(alloc, label, error);
    if (status == HR_OK) {
      labels->items.items[labels->items.count++] = label;
      labels->slots[slot] = *number = (uint32_t)labels->items.count;
      return HR_OK;
    }
  }
  hri_free(label);
  return status;
}

hr_status hr_alloc_set_label(hr_alloc *alloc, const hr_alloc_label *from, hr_error *error) {
  hri_history_label *label;
  uint32_t number = 0;
  if (!from) {
    alloc->label = 0;
    return HR_OK;
  }
  if (!alloc->labels) {
    alloc->labels = hri_alloc_zero(1, sizeof *alloc->labels);
    if (!alloc->labels) return hri_fail_memory(error, sizeof *alloc->labels, "labels");
  }
  hr_error local = {0};
  label = make(from, error ? error : &local);
  if (!label) return error ? error->code : local.code;
  HRI_TRY(intern(alloc, label, &number, error));
  alloc->label = (from->step < UINT32_MAX ? from->step : UINT32_MAX) << 32 | number;
  return HR_OK;
}

void hri_labels_destroy(hri_labels *labels) {
  if (!labels) return;
  for (size_t k = 0; k < labels->items.count; k++) hri_free(labels->items.items[k]);
  hri_array_free(&labels->items);
  hri_free(labels->slots);
  hri_free(labels);
}
