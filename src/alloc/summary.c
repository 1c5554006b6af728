/* torch.cuda.memory_summary, character for character (torch/cuda/memory.py; the same from 2.0 to 2.15).
 *
 * Each column of a metric has one unit, chosen by the value of its "all" row: divided by 1024 (1000 for counts) while
 * it is at least 768 KiB (750,000). The values are divided with the remainder dropped, rounding towards minus infinity
 * as Python does. */
#include <headroom/alloc.h>

#include <string.h>

#include "base/text.h"

enum { LINE = 75, COLUMN_COUNT = 4 };

typedef struct metric {
  const char *name;
  size_t offset; /* of the hr_alloc_stat[HR_ALLOC_POOL_KINDS], or of one hr_alloc_stat */
  bool bytes;
} metric;

#define AT(member) offsetof(hr_alloc_stats, member)
static const metric metrics[] = {
    {"Allocated memory", AT(allocated_bytes), true},
    {"Active memory", AT(active_bytes), true},
    {"Requested memory", AT(requested_bytes), true},
    {"GPU reserved memory", AT(reserved_bytes), true},
    {"Non-releasable memory", AT(inactive_split_bytes), true},
    {"Allocations", AT(allocation), false},
    {"Active allocs", AT(active), false},
    {"GPU reserved segments", AT(segment), false},
    {"Non-releasable allocs", AT(inactive_split), false},
};
static const metric oversize[] = {
    {"Oversize allocations", AT(oversize_allocations), false},
    {"Oversize GPU segments", AT(oversize_segments), false},
};

static void rule(hri_text *out, char mark) {
  char line[LINE + 1];
  memset(line, mark, LINE);
  line[LINE] = 0;
  hri_text_add(out, "|%s|\n", line);
}

static int64_t divide_down(int64_t value, int64_t by) { return value / by - (value % by < 0); }

/* `like` chooses the unit. It is halved as a real number, as Python's. */
static void size_column(hri_text *out, int64_t value, int64_t like) {
  static const char *const units[] = {"B  ", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double measure = (double)like;
  int k = 0;
  for (; k < 5 && !(measure < 768 * 1024); k++) {
    value = divide_down(value, 1024);
    measure /= 1024;
  }
  hri_text_add(out, "%6lld %s", (long long)value, units[k]);
}

static void count_column(hri_text *out, int64_t value, int64_t like) {
  static const char units[] = {' ', 'K', 'M'};
  double measure = (double)like;
  int k = 0;
  for (; k < 2 && !(measure < 750 * 1000); k++) {
    value = divide_down(value, 1000);
    measure /= 1000;
  }
  hri_text_add(out, "%7lld %c ", (long long)value, units[k]);
}

static void row(hri_text *out, const char *name, bool bytes, const hr_alloc_stat *s, const hr_alloc_stat *like) {
  const int64_t values[COLUMN_COUNT] = {s->current, s->peak, s->allocated, s->freed};
  const int64_t measures[COLUMN_COUNT] = {like->current, like->peak, like->allocated, like->freed};
  hri_text_add(out, "| %-21s", name);
  for (int k = 0; k < COLUMN_COUNT; k++) {
    hri_text_add(out, " | ");
    (bytes ? size_column : count_column)(out, values[k], measures[k]);
  }
  hri_text_add(out, " |\n");
}

hr_status hr_alloc_summary(const hr_alloc_stats *stats, int device, bool abbreviated, char **text, hr_error *error) {
  hri_text out = {0};
  *text = NULL;
  rule(&out, '=');
  hri_text_add(&out, "| %16s PyTorch CUDA memory summary, device ID %-17d |\n", "", device);
  rule(&out, '-');
  hri_text_add(&out, "|  %9s CUDA OOMs: %-12lld | %6s cudaMalloc retries: %-8lld  |\n", "", (long long)stats->num_ooms,
               "", (long long)stats->num_alloc_retries);
  rule(&out, '=');
  hri_text_add(&out, "|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |\n");
  for (size_t k = 0; k < sizeof metrics / sizeof metrics[0]; k++) {
    const hr_alloc_stat *s = (const hr_alloc_stat *)(const void *)((const char *)stats + metrics[k].offset);
    rule(&out, '-');
    row(&out, metrics[k].name, metrics[k].bytes, &s[HR_ALLOC_ALL], &s[HR_ALLOC_ALL]);
    if (abbreviated) continue;
    row(&out, "      from large pool", metrics[k].bytes, &s[HR_ALLOC_LARGE], &s[HR_ALLOC_ALL]);
    row(&out, "      from small pool", metrics[k].bytes, &s[HR_ALLOC_SMALL], &s[HR_ALLOC_ALL]);
  }
  for (size_t k = 0; k < sizeof oversize / sizeof oversize[0]; k++) {
    const hr_alloc_stat *s = (const hr_alloc_stat *)(const void *)((const char *)stats + oversize[k].offset);
    rule(&out, '-');
    row(&out, oversize[k].name, false, s, s);
  }
  rule(&out, '=');
  if (out.failed) {
    hri_text_deinit(&out);
    return hri_fail_memory(error, 0, "a memory summary");
  }
  *text = out.chars;
  return HR_OK;
}
