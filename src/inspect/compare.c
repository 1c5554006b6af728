/* Two inspections, row by row. Rows of both sides get a key that means the same in either file: the hash of the stack
 * as it is shown (operation and innermost frame: what called it may differ from run to run), of the category's name,
 * the size; then both lists are sorted by it and merged. */
#include "inspect/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct row {
  uint64_t key;
  const hr_live_group *group;
} row;

static uint64_t hash_text(uint64_t h, const char *text) {
  for (int k = 0; k < HRI_NAME_BYTES && text[k]; k++) h = (h ^ (unsigned char)text[k]) * 0x100000001b3u;
  return (h ^ 0xff) * 0x100000001b3u;
}

static uint64_t key_of(const hr_inspection *p, hr_group_by by, const hr_live_group *g) {
  char brief[HRI_NAME_BYTES];
  uint64_t h = 0xcbf29ce484222325u;
  if (by == HR_BY_SIZE) return g->size;
  if (by == HR_BY_CATEGORY || !g->stack) return hash_text(h, p->categories[g->category]);
  hri_stack_text(p->snapshot, g->stack, 1, brief, sizeof brief);
  return hash_text(h, brief);
}

static int row_order(const void *a, const void *b) {
  const row *x = a, *y = b;
  if (x->key != y->key) return x->key < y->key ? -1 : 1;
  return (x->group > y->group) - (x->group < y->group);
}

static row *sorted_rows(const hr_inspection *p, hr_group_by by) {
  row *rows = hri_alloc((size_t)(p->group_count[by] + 1) * sizeof *rows);
  if (!rows) return NULL;
  for (uint64_t k = 0; k < p->group_count[by]; k++)
    rows[k] = (row){key_of(p, by, &p->groups[by][k]), &p->groups[by][k]};
  qsort(rows, (size_t)p->group_count[by], sizeof *rows, row_order);
  return rows;
}

static uint64_t change(const hr_difference *d) {
  return d->after_bytes > d->before_bytes ? d->after_bytes - d->before_bytes : d->before_bytes - d->after_bytes;
}

static int change_order(const void *a, const void *b) {
  const hr_difference *x = a, *y = b;
  if (change(x) != change(y)) return change(x) > change(y) ? -1 : 1;
  if (x->after_stack != y->after_stack) return x->after_stack < y->after_stack ? -1 : 1;
  if (x->before_stack != y->before_stack) return x->before_stack < y->before_stack ? -1 : 1;
  return (x->size > y->size) - (x->size < y->size);
}

/* Of several with one key the largest comes first, and stands for all. */
static void add_side(hr_difference *d, const hr_live_group *g, bool after) {
  uint64_t *bytes = after ? &d->after_bytes : &d->before_bytes, *count = after ? &d->after_count : &d->before_count;
  if (!*count) {
    *(after ? &d->after_stack : &d->before_stack) = g->stack;
    *(after ? &d->after_category : &d->before_category) = g->category;
  }
  *bytes += g->bytes;
  *count += g->count;
  d->size = g->size;
}

hr_status hr_inspect_compare(const hr_inspection *before, const hr_inspection *after, hr_group_by by,
                             hr_difference **rows, uint64_t *count, hr_error *error) {
  uint64_t n = before->group_count[by], m = after->group_count[by], i = 0, k = 0;
  row *old = sorted_rows(before, by), *fresh = sorted_rows(after, by);
  *count = 0;
  *rows = old && fresh ? hri_alloc_zero((size_t)(n + m + 1), sizeof **rows) : NULL;
  while (*rows && (i < n || k < m)) {
    hr_difference *d = &(*rows)[*count];
    uint64_t key = k == m || (i < n && old[i].key < fresh[k].key) ? old[i].key : fresh[k].key;
    *d = (hr_difference){0};
    while (i < n && old[i].key == key) add_side(d, old[i++].group, false);
    while (k < m && fresh[k].key == key) add_side(d, fresh[k++].group, true);
    *count += d->before_bytes != d->after_bytes || d->before_count != d->after_count;
  }
  hri_free(old);
  hri_free(fresh);
  if (!*rows) return hri_fail_memory(error, (n + m) * sizeof **rows, "a comparison");
  qsort(*rows, (size_t)*count, sizeof **rows, change_order);
  return HR_OK;
}

static const char *category_of(const hr_inspection *p, uint16_t category) {
  return category < p->category_count ? p->categories[category] : "unknown";
}

void hr_difference_name(const hr_inspection *before, const hr_inspection *after, hr_group_by by, const hr_difference *d,
                        char *text, size_t capacity) {
  bool is_new = d->after_count > 0;
  const hr_inspection *p = is_new ? after : before;
  uint32_t stack = is_new ? d->after_stack : d->before_stack;
  const char *category = category_of(p, is_new ? d->after_category : d->before_category);
  if (by == HR_BY_CATEGORY) (void)snprintf(text, capacity, "%.60s", category);
  else if (by == HR_BY_SIZE) (void)snprintf(text, capacity, "%s each", hri_size_text(d->size, (char[32]){0}));
  else if (stack) hr_inspect_stack_text(p->snapshot, stack, text, capacity);
  else (void)snprintf(text, capacity, "%s %.60s", hri_inspection_no_stack(p), category);
}
