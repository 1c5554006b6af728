/* The live set of one instant: by stack, by category, by size, and the largest tensors. What is pending (freed, but not
 * yet usable again) is not in it; so the bytes of each list add up to the sums' requested_bytes. */
#include "inspect/inside.h"

#include <stdlib.h>

typedef struct member {
  uint64_t key, life;
} member;

static int member_order(const void *a, const void *b) {
  const member *x = a, *y = b;
  if (x->key != y->key) return x->key < y->key ? -1 : 1;
  return (x->life > y->life) - (x->life < y->life);
}

static int group_order(const void *a, const void *b) {
  const hr_live_group *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  if (x->stack != y->stack) return x->stack < y->stack ? -1 : 1;
  return (x->size > y->size) - (x->size < y->size);
}

/* What has no stack (the autograd thread's tensors) is told apart by category. */
static uint64_t key_of(const hri_inside *in, hr_group_by by, uint64_t life) {
  uint32_t plain = in->stacks[in->lives->lives[life].stack].plain;
  if (by == HR_BY_STACK) return plain ? plain : (uint64_t)1 << 32 | in->public.life_category[life];
  return by == HR_BY_CATEGORY ? in->public.life_category[life] : in->lives->lives[life].size;
}

static hr_live_group sum(const hri_inside *in, const member *members, uint64_t count) {
  hr_live_group g = {0};
  uint64_t largest = members[0].life;
  bool same = true;
  for (uint64_t k = 0; k < count; k++) {
    const hri_life *life = &in->lives->lives[members[k].life];
    g.mixed = g.mixed || in->public.life_category[members[k].life] != in->public.life_category[members[0].life];
    g.bytes += life->size;
    g.count++;
    same = same && life->size == in->lives->lives[members[0].life].size;
    if (life->size > in->lives->lives[largest].size) largest = members[k].life;
  }
  g.size = same ? in->lives->lives[largest].size : 0;
  g.stack = in->lives->lives[largest].stack;
  g.category = in->public.life_category[largest];
  g.stage = hri_life_stage(in, &in->lives->lives[largest]);
  return g;
}

static hr_status group(hri_inside *in, hr_group_by by, const uint64_t *live, uint64_t count, hr_error *error) {
  hr_inspection *p = &in->public;
  member *rows = hri_alloc((size_t)(count + 1) * sizeof *rows);
  uint64_t from = 0, made = 1;
  if (!rows) return hri_fail_memory(error, count * sizeof *rows, "the groups of live tensors");
  for (uint64_t k = 0; k < count; k++) rows[k] = (member){key_of(in, by, live[k]), live[k]};
  qsort(rows, (size_t)count, sizeof *rows, member_order);
  for (uint64_t k = 1; k < count; k++) made += rows[k].key != rows[k - 1].key;
  p->groups[by] = hri_alloc((size_t)(made + 1) * sizeof **p->groups);
  for (uint64_t k = 1; p->groups[by] && count && k <= count; k++) {
    if (k < count && rows[k].key == rows[from].key) continue;
    p->groups[by][p->group_count[by]++] = sum(in, rows + from, k - from);
    from = k;
  }
  hri_free(rows);
  if (!p->groups[by]) return hri_fail_memory(error, made * sizeof **p->groups, "the groups of live tensors");
  qsort(p->groups[by], (size_t)p->group_count[by], sizeof **p->groups, group_order);
  return HR_OK;
}

static int tensor_order(const void *a, const void *b) {
  const hr_live_tensor *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return (x->addr > y->addr) - (x->addr < y->addr);
}

static hr_status list_largest(hri_inside *in, const uint64_t *live, uint64_t count, uint32_t top, hr_error *error) {
  hr_inspection *p = &in->public;
  p->largest = hri_alloc((size_t)(count + 1) * sizeof *p->largest);
  if (!p->largest) return hri_fail_memory(error, count * sizeof *p->largest, "the largest tensors");
  for (uint64_t k = 0; k < count; k++) {
    const hri_life *life = &in->lives->lives[live[k]];
    p->largest[k] = (hr_live_tensor){life->addr,
                                     life->size,
                                     life->alloc,
                                     life->alloc == HRI_NEVER ? 0 : in->lives->events[life->alloc].time_us,
                                     life->stack,
                                     p->life_category[live[k]],
                                     hri_life_stage(in, life)};
  }
  qsort(p->largest, (size_t)count, sizeof *p->largest, tensor_order);
  p->largest_count = (uint32_t)(count < top ? count : top);
  return HR_OK;
}

hr_status hri_groups_find(hri_inside *in, uint32_t top, hr_error *error) {
  uint64_t *live, count, kept = 0;
  hr_status status = HR_OK;
  HRI_TRY(hri_lives_at(in->lives, in->public.at_event, &live, &count, error));
  for (uint64_t k = 0; k < count; k++)
    if (!hri_life_pending_at(&in->lives->lives[live[k]], in->public.at_event)) live[kept++] = live[k];
  for (int by = 0; by < HR_BY_COUNT && status == HR_OK; by++) status = group(in, (hr_group_by)by, live, kept, error);
  if (status == HR_OK) status = list_largest(in, live, kept, top, error);
  hri_free(live);
  return status;
}
