/* The statistics under PyTorch's names.
 *
 * torch.cuda.memory_stats flattens a nested dict into "family.pool.measure" and sorts the keys as text, so the order
 * here is that of strcmp over the table below: families, then pools ("all", "large_pool", "small_pool"), then measures,
 * by name; the scalars lie between them. */
#include <headroom/alloc.h>

#include <stdio.h>
#include <string.h>

#include "base/json.h"

/* A family: three stats (by pool), one stat, or one number. */
typedef enum shape { BY_POOL, ONE_STAT, SCALAR } shape;

typedef struct family {
  const char *name;
  shape shape;
  size_t offset; /* into hr_alloc_stats */
} family;

#define AT(member) offsetof(hr_alloc_stats, member)
static const family families[] = {
    {"active", BY_POOL, AT(active)},
    {"active_bytes", BY_POOL, AT(active_bytes)},
    {"allocated_bytes", BY_POOL, AT(allocated_bytes)},
    {"allocation", BY_POOL, AT(allocation)},
    {"inactive_split", BY_POOL, AT(inactive_split)},
    {"inactive_split_bytes", BY_POOL, AT(inactive_split_bytes)},
    {"max_split_size", SCALAR, AT(max_split_size)},
    {"num_alloc_retries", SCALAR, AT(num_alloc_retries)},
    {"num_device_alloc", SCALAR, AT(num_device_alloc)},
    {"num_device_free", SCALAR, AT(num_device_free)},
    {"num_ooms", SCALAR, AT(num_ooms)},
    {"num_sync_all_streams", SCALAR, AT(num_sync_all_streams)},
    {"oversize_allocations", ONE_STAT, AT(oversize_allocations)},
    {"oversize_segments", ONE_STAT, AT(oversize_segments)},
    {"requested_bytes", BY_POOL, AT(requested_bytes)},
    {"reserved_bytes", BY_POOL, AT(reserved_bytes)},
    {"segment", BY_POOL, AT(segment)},
};

typedef void each_function(void *context, const char *key, int64_t value);

static void give_stat(const char *prefix, const hr_alloc_stat *s, each_function *each, void *context) {
  static const char *const names[] = {"allocated", "current", "freed", "peak"};
  const int64_t values[] = {s->allocated, s->current, s->freed, s->peak};
  char key[64];
  for (int k = 0; k < 4; k++) {
    (void)snprintf(key, sizeof key, "%s.%s", prefix, names[k]);
    each(context, key, values[k]);
  }
}

static void give_family(const family *f, const char *stats, each_function *each, void *context) {
  static const struct {
    const char *name;
    int place;
  } pools[] = {{"all", HR_ALLOC_ALL}, {"large_pool", HR_ALLOC_LARGE}, {"small_pool", HR_ALLOC_SMALL}};
  char prefix[48];
  int64_t value;
  switch (f->shape) {
  case BY_POOL:
    for (int k = 0; k < HR_ALLOC_POOL_KINDS; k++) {
      (void)snprintf(prefix, sizeof prefix, "%s.%s", f->name, pools[k].name);
      give_stat(prefix, (const hr_alloc_stat *)(const void *)(stats + f->offset) + pools[k].place, each, context);
    }
    return;
  case ONE_STAT: give_stat(f->name, (const hr_alloc_stat *)(const void *)(stats + f->offset), each, context); return;
  case SCALAR:
    memcpy(&value, stats + f->offset, sizeof value);
    each(context, f->name, value);
    return;
  }
}

void hr_alloc_stats_each(const hr_alloc_stats *stats, void (*each)(void *context, const char *key, int64_t value),
                         void *context) {
  for (size_t k = 0; k < sizeof families / sizeof families[0]; k++)
    give_family(&families[k], (const char *)stats, each, context);
}

static void put_field(void *context, const char *key, int64_t value) { hri_json_field_i64(context, key, value); }

hr_status hr_alloc_stats_json(const hr_alloc_stats *stats, char **text, hr_error *error) {
  hri_text out = {0};
  hri_json_writer writer = hri_json_writer_init(&out, 2);
  *text = NULL;
  hri_json_begin_object(&writer);
  hr_alloc_stats_each(stats, put_field, &writer);
  hri_json_end_object(&writer);
  if (out.failed) {
    hri_text_deinit(&out);
    return hri_fail_memory(error, 0, "statistics as JSON");
  }
  *text = out.chars;
  return HR_OK;
}
