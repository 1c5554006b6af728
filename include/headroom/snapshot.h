/* Memory snapshots: what an allocator held at one instant, and the events that led there.
 *
 * The model is PyTorch's (torch.cuda.memory._snapshot, versions 2.0 to today): segments that blocks tile, one trace of
 * events per device, allocator settings, annotations. Snapshots come from PyTorch's pickles (nothing in a pickle is
 * ever executed), from its JSON, from our own allocator and from our own runs; all are the same structure afterwards.
 *
 * Everything is plain data in few arrays, and references are indexes into them, so that ten million events cost 48
 * bytes each and no pointers. A snapshot is read-only for its users and belongs to whoever asked for it
 * (hr_snapshot_destroy).
 * Formats and versions: docs/inspect.md.
 *
 * Threads: a snapshot does not change once it is made: several threads may read one. */
#ifndef HEADROOM_SNAPSHOT_H
#define HEADROOM_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <headroom/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum hr_trace_action {
  HR_TRACE_ALLOC = 0,      /* addr, size = bytes asked for (not rounded) */
  HR_TRACE_FREE_REQUESTED, /* the program frees; size as in the alloc */
  HR_TRACE_FREE_COMPLETED, /* the block may be used again (later where other streams still used it) */
  HR_TRACE_SEGMENT_ALLOC,  /* size = bytes taken from the driver */
  HR_TRACE_SEGMENT_FREE,
  HR_TRACE_SEGMENT_MAP, /* expandable segments: physical memory mapped behind addr */
  HR_TRACE_SEGMENT_UNMAP,
  HR_TRACE_SNAPSHOT, /* a snapshot was taken; size = active bytes */
  HR_TRACE_OOM,      /* addr = free bytes of the device, size = rounded request */
  HR_TRACE_OTHER,    /* an action of a newer version: kept, not used */
  HR_TRACE_ACTION_COUNT
} hr_trace_action;

enum {
  HR_EVENT_HAS_TIME = 1,        /* time_us is known */
  HR_EVENT_NO_ADDRESS = 2,      /* the file states none: addr is 0 */
  HR_EVENT_NOTE_IS_METADATA = 4 /* note is the user_metadata; else the compile_context */
};

/* 48 bytes. Index 0 of stacks, pools, categories and strings means "none", "default pool", "not stated", "". */
typedef struct hr_trace_event {
  uint64_t addr;
  uint64_t size;
  uint64_t stream; /* the raw handle; 0 = default */
  int64_t time_us; /* since the epoch; 0 when not known */
  uint32_t stack;
  uint32_t note; /* string: compile_context, or user_metadata as text */
  uint32_t pool;
  uint16_t category; /* exact when the file states it; see hr_snapshot.categories_stated */
  uint8_t action;    /* hr_trace_action */
  uint8_t flags;
} hr_trace_event;

/* The events of one device: events[first, first + count), oldest first. */
typedef struct hr_trace {
  uint64_t first, count;
  int32_t device; /* its place in device_traces; -1: the CPU (profiler-made, pinned host memory) */
} hr_trace;

typedef enum hr_block_state { HR_BLOCK_INACTIVE = 0, HR_BLOCK_ALLOCATED, HR_BLOCK_PENDING_FREE } hr_block_state;

typedef struct hr_block {
  uint64_t address, size;
  uint64_t requested_size; /* = size where the file has none; 0 when inactive */
  uint32_t stack;
  uint16_t category;
  uint8_t state; /* hr_block_state */
} hr_block;

typedef struct hr_segment {
  uint64_t address, total_size;
  uint64_t stream;
  uint64_t first_block, block_count; /* blocks tile the segment: sizes add up to total_size, in address order */
  uint64_t allocated_size, active_size, requested_size; /* recounted from the blocks by the reader */
  uint32_t stack, pool;
  int32_t device;
  bool large, expandable;
} hr_segment;

typedef struct hr_pool {
  uint64_t id[2]; /* {0, 0} = default; else a CUDA graph's or a MemPool's */
} hr_pool;

typedef struct hr_frame {
  uint32_t name, file; /* strings */
  uint32_t line;
} hr_frame;

/* frames[stack_frames[first .. first + count)], innermost first */
typedef struct hr_stack {
  uint32_t first, count;
} hr_stack;

typedef struct hr_annotation {
  int64_t time_us;
  uint32_t name;
  int32_t device;
  bool end; /* stage END, else START */
} hr_annotation;

/* The allocator's settings as the file states them. Text is what the user set (PYTORCH_ALLOC_CONF); "" when not
 * stated. */
typedef struct hr_snapshot_settings {
  bool present;
  uint32_t text;          /* string */
  int64_t max_split_size; /* -1: unlimited */
  double garbage_collection_threshold;
  bool expandable_segments;
  uint64_t roundup_power2_divisions[16]; /* for 1 MiB .. 32 GiB; all 0 when off */
} hr_snapshot_settings;

typedef struct hr_snapshot {
  hr_trace_event *events;
  uint64_t event_count;
  hr_trace *traces;
  uint32_t trace_count;
  hr_segment *segments; /* by device, then address */
  uint64_t segment_count;
  hr_block *blocks;
  uint64_t block_count;
  hr_annotation *annotations; /* by time */
  uint64_t annotation_count;
  hr_pool *pools; /* [0] is the default pool */
  uint32_t pool_count;
  hr_stack *stacks; /* [0] is empty; no two are equal */
  uint32_t stack_count;
  uint32_t *stack_frames;
  uint64_t stack_frame_count;
  hr_frame *frames; /* no two are equal */
  uint32_t frame_count;
  char *text; /* all strings, each terminated; strings[i] is an offset */
  uint64_t text_bytes;
  uint64_t *strings; /* [0] is ""; no two are equal */
  uint32_t string_count;
  uint32_t *categories; /* strings; [0] is "" (not stated) */
  uint32_t category_count;
  bool categories_stated; /* the file itself states categories (ours, the profiler's) */
  hr_snapshot_settings settings;

  /* What kind of file it was: "pytorch-2.0", "pytorch-2.1", ..., "pytorch-profiler", "headroom"; the oldest version
   * that has all the fields that were seen. Never NULL. */
  const char *format;
  uint64_t byte_count;     /* of the source, decompressed; 0 when it was none */
  uint64_t unknown_count;  /* values that this reader does not know and left out */
  uint64_t repaired_count; /* totals in the file that its own blocks contradict: the blocks were believed */
} hr_snapshot;

static inline const char *hr_snapshot_string(const hr_snapshot *s, uint32_t string) {
  return s->text + s->strings[string];
}
static inline const char *hr_snapshot_category(const hr_snapshot *s, uint16_t category) {
  return hr_snapshot_string(s, s->categories[category]);
}

typedef struct hr_snapshot_limits {
  uint64_t memory_bytes; /* what reading may take at most, as malloc counts it; 0 = 16 GiB. Beyond it: HR_ERROR_MEMORY,
                          * which says how much was held then. Nor may the file hold more than 16 times as many bytes,
                          * gzip undone: INPUT (about 100 bytes make an event of 48) */
} hr_snapshot_limits;
/* Defaults: all zero. */
HR_API void hr_snapshot_limits_init(hr_snapshot_limits *limits);

/* Reads a file: a pickle of protocol 0 to 5, JSON, a Chrome trace of PyTorch's profiler that holds memory events, its raw
 * memory timeline, gzip of one of these, or a history file of ours. `limits` may be NULL.
 * INPUT for anything malformed, with the byte offset and what was expected there. */
HR_CHECKED hr_status hr_snapshot_read(const char *path, const hr_snapshot_limits *limits, hr_snapshot **snapshot,
                                      hr_error *error);
/* The same from memory; `name` stands for the file in errors. */
HR_CHECKED hr_status hr_snapshot_parse(const void *bytes, uint64_t count, const char *name,
                                       const hr_snapshot_limits *limits, hr_snapshot **snapshot, hr_error *error);
HR_API void hr_snapshot_destroy(hr_snapshot *snapshot); /* NULL is fine */
/* Whether the file looks like a snapshot, or what the profiler leaves, by its first bytes (so that `explain` can tell it
 * from a log). So does gzip of which 4 KiB and more hold nothing yet: only reading it tells. */
HR_API bool hr_snapshot_recognise(const void *bytes, uint64_t count);

/* A file of another kind, which people give by mistake. Texts are static. */
typedef struct hr_foreign {
  const char *name; /* "a safetensors file" */
  const char *hint; /* what to do instead */
  bool text;        /* it is text: an error message may stand in it */
} hr_foreign;
/* What the first bytes of such a file say, gzip undone; NULL: nothing that is known. */
HR_API const hr_foreign *hr_snapshot_foreign(const void *bytes, uint64_t count);

/* Writes what PyTorch's own tools and viewer read (a pickle; ".gz" compresses). Atomic: the old file or the whole new
 * one (a device or a pipe is written to; a symbolic link is replaced, not what it names).
 * Categories of events and blocks are written where the snapshot states any; the viewer then needs an event of category
 * "unknown", which is added if none is. INPUT where blocks do not tile their segment or a number is above 2^53 - 1,
 * which the viewer could not hold; docs/snapshots.md has the rules. */
typedef struct hr_snapshot_write_options {
  int protocol; /* 2 to 4; 0 = 4 */
} hr_snapshot_write_options;
/* Defaults: all zero. */
HR_API void hr_snapshot_write_options_init(hr_snapshot_write_options *options);
HR_CHECKED hr_status hr_snapshot_write(const hr_snapshot *snapshot, const char *path,
                                       const hr_snapshot_write_options *options, hr_error *error);

/* Exports of one trace; ".gz" compresses. `at` limits what is about one instant to the state after that many events of
 * the trace (UINT64_MAX: at its peak of live bytes). USAGE for a trace or an instant that is not there. */
typedef enum hr_export_format {
  HR_EXPORT_CHROME_TRACE = 0, /* counters and [memory] instants; opens in Perfetto and chrome://tracing */
  HR_EXPORT_SPEEDSCOPE,       /* live set at one instant by stack, weights in bytes */
  HR_EXPORT_COLLAPSED,        /* the same as "a;b;c bytes" lines */
  HR_EXPORT_CSV,              /* one row per event */
  HR_EXPORT_JSON              /* the whole snapshot, in the layout of PyTorch's JSON */
} hr_export_format;
HR_CHECKED hr_status hr_snapshot_export(const hr_snapshot *snapshot, hr_export_format format, uint32_t trace,
                                        uint64_t at, const char *path, hr_error *error);

/* The versions whose files look so, for people: "PyTorch 2.7 to 2.9"; else the format's name. Never NULL. */
HR_API const char *hr_snapshot_versions(const hr_snapshot *snapshot);
HR_API const char *hr_trace_action_name(hr_trace_action action); /* "alloc", "free_requested", ... Never NULL */

#ifdef __cplusplus
}
#endif

#endif
