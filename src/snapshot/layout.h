/* The dict that PyTorch's tools know, as a walk over a snapshot that knows no notation: pickle and JSON each are an
 * hri_layout_out. Keys, their order and the rules about them: docs/snapshots.md. */
#ifndef HRI_SNAPSHOT_LAYOUT_H
#define HRI_SNAPSHOT_LAYOUT_H

#include <headroom/snapshot.h>

#include "base/mem.h"

/* Keys and values that are fixed words. */
typedef enum hri_word {
  HRI_WORD_ACTION,
  HRI_WORD_ADDR,
  HRI_WORD_DEVICE_FREE,
  HRI_WORD_SIZE,
  HRI_WORD_STREAM,
  HRI_WORD_TIME_US,
  HRI_WORD_COMPILE_CONTEXT,
  HRI_WORD_USER_METADATA,
  HRI_WORD_POOL_ID,
  HRI_WORD_CATEGORY,
  HRI_WORD_FRAMES,
  HRI_WORD_ADDRESS,
  HRI_WORD_REQUESTED_SIZE,
  HRI_WORD_STATE,
  HRI_WORD_NAME,
  HRI_WORD_FILENAME,
  HRI_WORD_LINE,
  HRI_WORD_DEVICE,
  HRI_WORD_TOTAL_SIZE,
  HRI_WORD_ALLOCATED_SIZE,
  HRI_WORD_ACTIVE_SIZE,
  HRI_WORD_SEGMENT_TYPE,
  HRI_WORD_SEGMENT_POOL_ID,
  HRI_WORD_IS_EXPANDABLE,
  HRI_WORD_BLOCKS,
  HRI_WORD_SEGMENTS,
  HRI_WORD_DEVICE_TRACES,
  HRI_WORD_HOST_SEGMENTS,
  HRI_WORD_HOST_TRACES,
  HRI_WORD_ALLOCATOR_SETTINGS,
  HRI_WORD_EXTERNAL_ANNOTATIONS,
  HRI_WORD_HEADROOM,
  HRI_WORD_ALLOC_CONF,
  HRI_WORD_MAX_SPLIT_SIZE,
  HRI_WORD_GARBAGE_COLLECTION_THRESHOLD,
  HRI_WORD_EXPANDABLE_SEGMENTS,
  HRI_WORD_ROUNDUP_POWER2_DIVISIONS,
  HRI_WORD_STAGE,
  HRI_WORD_FIRST_ACTION,                                             /* HR_TRACE_ACTION_COUNT values */
  HRI_WORD_INACTIVE = HRI_WORD_FIRST_ACTION + HR_TRACE_ACTION_COUNT, /* hr_block_state values */
  HRI_WORD_ACTIVE_ALLOCATED,
  HRI_WORD_ACTIVE_PENDING_FREE,
  HRI_WORD_SMALL,
  HRI_WORD_LARGE,
  HRI_WORD_START,
  HRI_WORD_END,
  HRI_WORD_UNKNOWN,
  HRI_WORD_FIRST_INTERVAL, /* "1", "2", "4", ... "32768" */
  HRI_WORD_COUNT = HRI_WORD_FIRST_INTERVAL + 16
} hri_word;

const char *hri_word_text(hri_word word);

typedef enum hri_shared { HRI_SHARED_FRAME, HRI_SHARED_STACK } hri_shared;

/* A notation. Calls come in the order of the text; begin_list, then item before each value, then end_list. */
typedef struct hri_layout_out hri_layout_out;
struct hri_layout_out {
  void (*begin_map)(hri_layout_out *out);
  void (*end_map)(hri_layout_out *out);
  void (*begin_list)(hri_layout_out *out);
  void (*item)(hri_layout_out *out);
  void (*end_list)(hri_layout_out *out);
  void (*put_key)(hri_layout_out *out, hri_word key);
  void (*put_word)(hri_layout_out *out, hri_word word);
  void (*put_u64)(hri_layout_out *out, uint64_t value);
  void (*put_i64)(hri_layout_out *out, int64_t value);
  void (*put_double)(hri_layout_out *out, double value);
  void (*put_bool)(hri_layout_out *out, bool value);
  void (*put_pair)(hri_layout_out *out, uint64_t first, uint64_t second);
  void (*put_string)(hri_layout_out *out, uint32_t string);
  /* Whether the map or list that comes now was written before and a reference to it will do. */
  bool (*refer)(hri_layout_out *out, hri_shared what, uint32_t index);
  bool (*failed)(hri_layout_out *out); /* asked now and then, to stop early */
};

/* Whether the snapshot can be written: blocks tile their segments, devices are few enough to be places of a list, and
 * no number is above `largest`. INPUT says which segment, block or event is the first that cannot. */
hr_status hri_layout_check(const hr_snapshot *snapshot, uint64_t largest, hr_error *error);
void hri_layout_walk(const hr_snapshot *snapshot, hri_layout_out *out);

/* One notation each; `sink` keeps the first failure. */
struct hri_snapshot_sink;
void hri_layout_put_pickle(const hr_snapshot *snapshot, int protocol, struct hri_snapshot_sink *sink);
void hri_layout_put_json(const hr_snapshot *snapshot, struct hri_snapshot_sink *sink);

#endif
