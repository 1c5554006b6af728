/* The window of best-fit decreasing: pieces are sorted by length, and each goes into the row with the least room that
 * still holds it. Rows are found by their room: a stack of rows per number of free tokens, and a bit per stack that is
 * not empty.
 * Sources: first the longest, as TRL's packing strategy bfd does; the bound 11/9 OPT + 1 of best fit decreasing
 * (Johnson 1974) says how far from the fewest rows this can be. */
#include "data/pack.h"

#include <stdlib.h>

enum { DOCUMENTS = 256, LABELS = 512 };

typedef struct entry {
  hri_piece piece;
  uint32_t labels;
  uint32_t row; /* of the window */
} entry;

typedef struct packer {
  const hri_pack_rules *rules;
  hri_row_index *index;
  hri_pack_result *result;
  uint32_t fill; /* tokens in the current row; the sequence: a new one must begin */
  /* pack only */
  entry *entries;  /* [HRI_PACK_WINDOW] */
  uint64_t *order; /* [HRI_PACK_WINDOW]; first: (~count, index) to sort; then: entries by row */
  uint32_t *below; /* [HRI_PACK_WINDOW]: the next row of the same stack, + 1 */
  uint32_t
      *rank; /* [HRI_PACK_WINDOW + 1]: number of a row in the order of first documents, + 1; then: where it begins */
  uint32_t *top;    /* [sequence + 1]: the stack of rows with so much room: row + 1 */
  uint64_t *filled; /* a bit for each stack that is not empty */
  uint32_t count;   /* of entries */
} packer;

/* ---- labels ---- */

/* How many of `count` labels from element `first` of the store are not ignored. */
static hr_status count_stored(const hri_spool *labels, uint64_t first, uint64_t count, uint32_t *total,
                              hr_error *error) {
  uint32_t stored[LABELS];
  while (count > 0) {
    size_t part = count < LABELS ? (size_t)count : LABELS;
    HRI_TRY(hri_spool_read(labels, first * sizeof *stored, stored, part * sizeof *stored, error));
    for (size_t i = 0; i < part; i++) *total += stored[i] != HRI_STORED_IGNORED;
    first += part;
    count -= part;
  }
  return HR_OK;
}

/* Targets of a piece that count: its first token is predicted by none. */
static hr_status count_labels(const packer *p, const hri_piece *piece, uint32_t *labels, hr_error *error) {
  *labels = 0;
  if (piece->source & HRI_PIECE_LABELS)
    return count_stored(p->rules->labels, piece->place + 1, piece->count - 1, labels, error);
  *labels = piece->count - 1;
  return HR_OK;
}

/* ---- best fit ---- */

static int ascending(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x < y ? -1 : x > y;
}

static void push(packer *p, uint32_t room, uint32_t row) {
  p->below[row] = p->top[room];
  p->top[room] = row + 1;
  p->filled[room / 64] |= 1ull << room % 64;
}

/* The row with the least room that holds `length`, taken from its stack; false: there is none. */
static bool take_best(packer *p, uint32_t length, uint32_t *room, uint32_t *row) {
  size_t words = p->rules->sequence / 64 + 1, w = length / 64;
  uint64_t bits = p->filled[w] & ~0ull << length % 64;
  while (bits == 0) {
    if (++w == words) return false;
    bits = p->filled[w];
  }
  *room = (uint32_t)(w * 64) + (uint32_t)__builtin_ctzll(bits);
  *row = p->top[*room] - 1;
  p->top[*room] = p->below[*row];
  if (p->top[*room] == 0) p->filled[w] &= ~(1ull << *room % 64);
  return true;
}

/* Gives every entry its row; returns their number. */
static uint32_t assign(packer *p) {
  uint32_t rows = 0;
  for (uint32_t i = 0; i < p->count; i++) p->order[i] = (uint64_t)~p->entries[i].piece.count << 32 | i;
  qsort(p->order, p->count, sizeof *p->order, ascending);
  memset(p->top, 0, ((size_t)p->rules->sequence + 1) * sizeof *p->top);
  memset(p->filled, 0, (p->rules->sequence / 64 + 1) * sizeof *p->filled);
  for (uint32_t k = 0; k < p->count; k++) {
    entry *e = &p->entries[(uint32_t)p->order[k]];
    uint32_t room = p->rules->sequence, row = rows;
    if (!take_best(p, e->piece.count, &room, &row)) rows++;
    e->row = row;
    room -= e->piece.count;
    if (room > 0) push(p, room, row);
  }
  return rows;
}

/* Sorts the entries by row, rows by their first entry, entries of a row as they came. */
static void arrange(packer *p, uint32_t rows) {
  uint32_t next = 0, begin = 0;
  memset(p->rank, 0, (rows + 1) * sizeof *p->rank);
  for (uint32_t i = 0; i < p->count; i++) {
    uint32_t *rank = &p->rank[p->entries[i].row];
    if (*rank == 0) *rank = ++next;
    p->entries[i].row = *rank - 1;
  }
  memset(p->rank, 0, (rows + 1) * sizeof *p->rank);
  for (uint32_t i = 0; i < p->count; i++) p->rank[p->entries[i].row]++;
  for (uint32_t r = 0; r < rows; r++) {
    uint32_t size = p->rank[r];
    p->rank[r] = begin;
    begin += size;
  }
  for (uint32_t i = 0; i < p->count; i++) p->order[p->rank[p->entries[i].row]++] = i;
}

static hr_status flush(packer *p, hr_error *error) {
  uint32_t row = UINT32_MAX;
  if (p->count == 0) return HR_OK;
  arrange(p, assign(p));
  for (uint32_t k = 0; k < p->count; k++) {
    const entry *e = &p->entries[p->order[k]];
    if (e->row != row) HRI_TRY(hri_row_index_break(p->index, error));
    row = e->row;
    HRI_TRY(hri_row_index_put(p->index, &e->piece, e->labels, error));
  }
  p->count = 0;
  p->fill = p->rules->sequence;
  return hri_row_index_break(p->index, error);
}

/* ---- documents ---- */

static hr_status place_piece(packer *p, const hri_piece *piece, bool window, hr_error *error) {
  uint32_t labels;
  HRI_TRY(count_labels(p, piece, &labels, error));
  if (window) {
    p->entries[p->count++] = (entry){.piece = *piece, .labels = labels};
    return p->count == HRI_PACK_WINDOW ? flush(p, error) : HR_OK;
  }
  if (p->fill == p->rules->sequence) {
    HRI_TRY(hri_row_index_break(p->index, error));
    p->fill = 0;
  }
  p->fill += piece->count;
  return hri_row_index_put(p->index, piece, labels, error);
}

/* Tokens [*skip, *end) of a document are used. */
static void truncate_document(const packer *p, const hri_document *d, uint64_t *skip, uint64_t *end) {
  uint64_t sequence = p->rules->sequence;
  *skip = 0;
  *end = d->length;
  if (d->length <= sequence) return;
  if (p->rules->truncate == HR_TRUNCATE_DROP) {
    *end = 0;
    p->result->dropped_documents++;
    p->result->dropped_tokens += d->length;
    return;
  }
  p->result->cut_documents++;
  if (p->rules->truncate == HR_TRUNCATE_KEEP_START) *end = sequence;
  if (p->rules->truncate == HR_TRUNCATE_KEEP_END) *skip = d->length - sequence;
  p->result->dropped_tokens += d->length - (*end - *skip);
}

static hr_status pack_document(packer *p, const hri_document *d, bool was_ready, hr_error *error) {
  bool ready = d->flags & (HRI_DOCUMENT_ROW | HRI_DOCUMENT_SAME_ROW),
       window = p->rules->packing == HR_PACKING_PACK && !ready;
  uint64_t skip, end;
  if (ready && window == false && p->count > 0) HRI_TRY(flush(p, error)); /* keeps the order */
  if (d->flags & HRI_DOCUMENT_ROW || (was_ready && !ready) || (!ready && p->rules->packing == HR_PACKING_OFF))
    p->fill = p->rules->sequence;
  truncate_document(p, d, &skip, &end);
  while (skip < end) {
    uint64_t room = window || p->fill == p->rules->sequence ? p->rules->sequence : p->rules->sequence - p->fill;
    uint64_t count = end - skip < room ? end - skip : room;
    hri_piece piece = hri_piece_of(d, skip, count);
    HRI_TRY(place_piece(p, &piece, window, error));
    skip += count;
  }
  return HR_OK;
}

static bool takes(const packer *p, uint64_t index) {
  const uint64_t *held = p->rules->held;
  return !held || (held[index / 64] >> index % 64 & 1) == p->rules->takes_held;
}

static hr_status pack_all(packer *p, hr_error *error) {
  hri_document documents[DOCUMENTS];
  uint64_t count = p->rules->document_count;
  bool was_ready = false;
  for (uint64_t first = 0; first < count; first += DOCUMENTS) {
    size_t part = count - first < DOCUMENTS ? (size_t)(count - first) : DOCUMENTS;
    HRI_TRY(hri_spool_read(p->rules->documents, first * sizeof *documents, documents, part * sizeof *documents, error));
    for (size_t i = 0; i < part; i++) {
      if (!takes(p, first + i)) continue;
      HRI_TRY(pack_document(p, &documents[i], was_ready, error));
      was_ready = documents[i].flags & (HRI_DOCUMENT_ROW | HRI_DOCUMENT_SAME_ROW);
    }
  }
  HRI_TRY(flush(p, error));
  return hri_row_index_seal(p->index, error);
}

static hr_status make_window(packer *p, hr_error *error) {
  size_t stacks = (size_t)p->rules->sequence + 1, words = p->rules->sequence / 64 + 1;
  p->entries = hri_alloc(HRI_PACK_WINDOW * sizeof *p->entries);
  p->order = hri_alloc(HRI_PACK_WINDOW * sizeof *p->order);
  p->below = hri_alloc(HRI_PACK_WINDOW * sizeof *p->below);
  p->rank = hri_alloc((HRI_PACK_WINDOW + 1) * sizeof *p->rank);
  p->top = hri_alloc(stacks * sizeof *p->top);
  p->filled = hri_alloc(words * sizeof *p->filled);
  if (p->entries && p->order && p->below && p->rank && p->top && p->filled) return HR_OK;
  return hri_fail_memory(error, HRI_PACK_WINDOW * sizeof *p->entries + stacks * sizeof *p->top, "packing rows");
}

hr_status hri_pack(const hri_pack_rules *rules, hri_row_index *index, hri_pack_result *result, hr_error *error) {
  packer p = {.rules = rules, .index = index, .result = result, .fill = rules->sequence};
  hr_status status = HR_OK;
  *result = (hri_pack_result){0};
  if (rules->packing == HR_PACKING_PACK) status = make_window(&p, error);
  if (status == HR_OK) status = pack_all(&p, error);
  hri_free(p.entries);
  hri_free(p.order);
  hri_free(p.below);
  hri_free(p.rank);
  hri_free(p.top);
  hri_free(p.filled);
  return status;
}
