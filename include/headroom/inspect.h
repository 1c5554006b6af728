/* What is in a snapshot: totals that add up, the peak and what was live then, growth, fragmentation, where it failed.
 *
 * A stage is where in the training step an allocation was made or the failure came, read off stacks (a plan has exact
 * phases, headroom/plan.h).
 *
 * Findings are facts with their bytes; which cause follows from them is the explainer's business (headroom/explain.h).
 * docs/inspect.md describes each figure and how it is found.
 *
 * Threads: an inspection does not change once it is made, nor does it change its snapshot. */
#ifndef HEADROOM_INSPECT_H
#define HEADROOM_INSPECT_H

#include <headroom/snapshot.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HR_AT_PEAK UINT64_MAX      /* the instant of most live bytes */
#define HR_AT_END (UINT64_MAX - 1) /* the state that the snapshot was taken in */
#define HR_AT_OOM (UINT64_MAX - 2) /* the last out-of-memory event; the peak where there is none */
#define HR_TRACE_MOST UINT32_MAX   /* the trace with most events */

typedef enum hr_stage {
  HR_STAGE_UNKNOWN = 0,
  HR_STAGE_INIT, /* loading or building the model */
  HR_STAGE_FORWARD,
  HR_STAGE_LOSS,
  HR_STAGE_BACKWARD,
  HR_STAGE_OPTIMIZER,
  HR_STAGE_EVALUATION,
  HR_STAGE_GENERATION,
  HR_STAGE_DATA,
  HR_STAGE_COMMUNICATION,
  HR_STAGE_CHECKPOINT, /* saving */
  HR_STAGE_BETWEEN,    /* the program's own lines behind an optimizer's step; only of a failure and of the instant */
  HR_STAGE_COUNT
} hr_stage;
HR_API const char *hr_stage_name(hr_stage stage); /* "forward", ... Never NULL */

typedef enum hr_group_by { HR_BY_STACK = 0, HR_BY_CATEGORY, HR_BY_SIZE, HR_BY_COUNT } hr_group_by;

/* Live allocations that share a stack, a category or a size. What is pending (freed, not yet reusable) is none of them:
 * the bytes of each list add up to the sums' requested_bytes. */
typedef struct hr_live_group {
  uint64_t bytes, count; /* bytes as asked for */
  uint64_t size;         /* of each, where all have the same; else 0 */
  uint32_t stack;        /* of the largest */
  uint16_t category;     /* of the largest: index into hr_inspection.categories */
  bool mixed;            /* others are of another category */
  hr_stage stage;        /* in which they were made, from the stack */
} hr_live_group;

typedef struct hr_live_tensor {
  uint64_t addr, bytes;
  uint64_t alloc_event; /* UINT64_MAX: before the trace */
  int64_t time_us;
  uint32_t stack;
  uint16_t category;
  hr_stage stage;
} hr_live_tensor;

/* Where the device's reserved bytes are: requested + rounding + pending + free_returnable + free_pinned = reserved.
 * Without a state (profiler-made) reserved = requested, and the others are 0. */
typedef struct hr_memory_sums {
  uint64_t reserved_bytes;
  uint64_t requested_bytes;       /* live, as asked for */
  uint64_t rounding_bytes;        /* allocated to live blocks beyond what was asked for */
  uint64_t pending_bytes;         /* freed, but other streams may still use it */
  uint64_t free_returnable_bytes; /* in segments (or mapped chunks) without any live block: empty_cache returns it */
  uint64_t free_pinned_bytes;     /* free, but in segments that hold live blocks */
  uint64_t private_pool_bytes;    /* reserved in pools of graphs or MemPool (part of the above) */
  uint64_t private_pool_free_bytes;
  uint64_t largest_free_bytes; /* largest free block of the default pools */
  uint64_t segment_count, live_count;
} hr_memory_sums;

/* The parts of the reserved bytes as every report names them: "live tensors", ... */
typedef enum hr_memory_part {
  HR_PART_LIVE = 0,
  HR_PART_ROUNDING,
  HR_PART_PENDING,
  HR_PART_FREE_PINNED,
  HR_PART_FREE_RETURNABLE,
  HR_PART_COUNT
} hr_memory_part;
HR_API const char *hr_memory_part_name(hr_memory_part part); /* never NULL */
HR_API uint64_t hr_memory_part_bytes(const hr_memory_sums *sums, hr_memory_part part);

/* One segment that cannot be returned for the sake of little. */
typedef struct hr_pinned_segment {
  uint64_t address, total_bytes, free_bytes, live_bytes, live_count, largest_free_bytes;
  uint32_t stack; /* of its largest live block */
  uint16_t category;
} hr_pinned_segment;

/* "Would a request fit?" at one instant, by tests and not by a ratio. */
typedef struct hr_fragmentation {
  uint64_t request_bytes; /* rounded; 0: no request is known, only the sums hold */
  uint64_t
      /* what the device would have to give for it: a segment, or the chunks that an expandable one lacks */
      segment_bytes;
  uint64_t device_free_bytes; /* as the event states it; 0 when unknown */
  bool device_free_known;
  bool fits_block;                                   /* a free block of its pool takes it as things stand */
  bool fits_contiguous;                              /* free bytes of its pool together are enough */
  bool fits_after_return;                            /* device free + returnable segments are enough for its segment */
  bool fits_compacted;                               /* device free + all free bytes are enough */
  uint64_t pool_free_bytes, pool_largest_free_bytes; /* of the pool and stream that the request goes to */
  uint64_t
      returnable_bytes; /* what returning the default pools' cached memory would give the device; what the request's
                              * expandable segment grows from is none of it */
  bool in_private_pool; /* the request goes to one: of what is cached only that pool's own can serve it */
  hr_pinned_segment *pinned; /* most free bytes first, at most 64 */
  uint32_t pinned_count;
} hr_fragmentation;

typedef struct hr_oom_event {
  uint64_t event;
  int64_t time_us;
  uint64_t size, device_free_bytes;
  uint64_t live_bytes, reserved_bytes; /* then */
  uint32_t stack;
  hr_stage stage;
} hr_oom_event;

typedef struct hr_step_sums {
  uint64_t first_event, event_count;
  uint64_t peak_live_bytes, end_live_bytes;
} hr_step_sums;

typedef enum hr_growth_kind {
  HR_GROWTH_LEAK = 0, /* still growing at the end, by about the same every step */
  HR_GROWTH_SETTLED,  /* grew, then stopped (a cache, lazily made states) */
  HR_GROWTH_ONCE,     /* one-off: appeared in one step and stayed */
  HR_GROWTH_LARGER,   /* one tensor in the place of another, each larger: torch.cat of all so far */
  /* Within a step, or without any: passes of a model that follow each other. A "step" of these is such a pass. */
  HR_GROWTH_GRAPH,   /* each keeps the graph that it made: no backward comes, and nothing forbids the graph */
  HR_GROWTH_OUTPUTS, /* each leaves some of its results */
  HR_GROWTH_CACHE    /* one tensor in the place of another, each larger: keys and values of generation */
} hr_growth_kind;

/* Whether it is growth that goes on to the end of the trace. */
static inline bool hr_growth_goes_on(hr_growth_kind kind) { return kind == HR_GROWTH_LEAK || kind >= HR_GROWTH_LARGER; }
/* Whether it comes with each step, and not with each pass of a model. */
static inline bool hr_growth_by_step(hr_growth_kind kind) { return kind < HR_GROWTH_GRAPH; }

/* What it comes with: "step", "pass", or "copy" of what is made anew. */
static inline const char *hr_growth_unit(hr_growth_kind kind) {
  return kind == HR_GROWTH_LARGER ? "copy" : hr_growth_by_step(kind) ? "step" : "pass";
}

/* Allocations of one stack that outlive their step. */
typedef struct hr_growth {
  hr_growth_kind kind;
  uint32_t stack;
  uint16_t category;
  uint64_t bytes,
      count; /* made within the steps and alive at the failure, or the trace's last allocation; of a leak at regular distances
                            without its newest part */
  double bytes_per_step; /* from the third step to the last that grew */
  uint32_t steps_grown, steps_seen;
  uint64_t from_before; /* of `count`, where the recording lost its beginning: made before it began */
  bool freed_in_steps;  /* of passes: in whole steps before, what they kept went again */
  bool may_train;    /* ... they keep a graph, or inputs beside it; no backward is recorded, and nothing names them */
  bool more_batches; /* ... freed_in_steps: each has a batch of its own, as those of the steps before had */
  bool among_backwards; /* ... backwards ran among them, and freed none of it */
  bool gives_back;      /* of steps: since some went, as many go as come, so that what it left before says little */
} hr_growth;
/* Whether nearly every step (or pass) left something; else some did, at regular distances or not. */
static inline bool hr_growth_every_step(const hr_growth *growth) {
  return growth->steps_grown + 2 >= growth->steps_seen;
}
/* What it is in a word or two: "leak", "settled", "one-off", "larger", "kept graph", "kept outputs", "cache". Never NULL. */
HR_API const char *hr_growth_name(hr_growth_kind kind);

typedef struct hr_inspect_options {
  uint64_t at;     /* events of the trace that have happened, or HR_AT_*; `0` is before the first */
  uint32_t trace;  /* of the snapshot, or HR_TRACE_MOST; snapshot->trace_count: no events, only the state */
  uint32_t top;    /* rows of each list; 0: 10 */
  bool exact_only; /* do not infer categories */
} hr_inspect_options;
/* Defaults: the instant of the last failure, or the peak, of the trace with most events. */
HR_API void hr_inspect_options_init(hr_inspect_options *options);

typedef struct hr_inspection {
  const hr_snapshot *snapshot; /* borrowed: must outlive this */
  uint32_t trace;
  int32_t device;
  uint64_t event_count, action_counts[HR_TRACE_ACTION_COUNT];
  int64_t first_time_us, last_time_us; /* 0: no times */
  bool has_state, began_empty;
  uint64_t odd_count;

  hr_memory_sums end;                                        /* as the segments state it */
  uint64_t peak_event, peak_live_bytes, peak_reserved_bytes; /* peak_event UINT64_MAX: before the first event */
  uint64_t at_event; /* the instant of what follows; UINT64_MAX: before the first event */
  hr_memory_sums at;
  hr_stage at_stage;

  /* Categories: those that the file states, or inferred from stacks and lives. [0] is "unknown". */
  const char **categories;
  uint32_t category_count;
  bool categories_inferred;
  uint16_t *life_category; /* per life, see src/inspect/lives.h; for the report */
  uint64_t life_count;

  hr_live_group *groups[HR_BY_COUNT]; /* all of the instant, most bytes first */
  uint64_t group_count[HR_BY_COUNT];
  hr_live_tensor *largest;
  uint32_t largest_count;

  hr_oom_event *ooms; /* the last 64 */
  uint32_t oom_count;
  uint64_t oom_total;
  hr_fragmentation fragmentation; /* at the instant, for its failing request where it is an out-of-memory event */

  hr_step_sums *steps; /* empty when no repeating structure was found */
  uint32_t step_count;
  const char *steps_from; /* "labels", "annotations", "optimizer stacks", "repetition", "passes"; "" when none */
  hr_growth *growth;      /* most bytes first */
  uint32_t growth_count;
  uint64_t outlier_step;     /* the step whose peak stands out; UINT64_MAX: none */
  uint64_t usual_peak_bytes; /* median of the steps' peaks */
  /* What the failing step asks for at places that usual steps have too, beyond all of those: 0 where it needs more for another
   * reason than its batch. Known with stacks and three usual steps before it. */
  uint64_t asked_more_bytes;
  bool asked_known;
} hr_inspection;

/* `options` may be NULL: trace with most events, at the last out-of-memory event or else the peak. USAGE for an instant
 * outside the trace. */
HR_CHECKED hr_status hr_inspect(const hr_snapshot *snapshot, const hr_inspect_options *options,
                                hr_inspection **inspection, hr_error *error);
HR_API void hr_inspection_destroy(hr_inspection *inspection); /* NULL is fine */

/* Two snapshots: bytes by stack (or category, size) at an instant of each. */
typedef struct hr_difference {
  uint64_t before_bytes, after_bytes, before_count, after_count;
  uint32_t before_stack, after_stack; /* 0: not there */
  uint16_t before_category, after_category;
  uint64_t size;
} hr_difference;
/* Rows with a change, largest change first; stacks count as the same when operation and innermost frame of the program
 * are. The caller frees with hr_free. */
HR_CHECKED hr_status hr_inspect_compare(const hr_inspection *before, const hr_inspection *after, hr_group_by by,
                                        hr_difference **rows, uint64_t *count, hr_error *error);

/* What a row is about: the stack in short, the category, or "N bytes each"; taken from the side that has it. */
HR_API void hr_difference_name(const hr_inspection *before, const hr_inspection *after, hr_group_by by,
                               const hr_difference *row, char *text, size_t capacity);

/* Text for people and JSON (docs/inspect.md lists the fields). `top`: rows of each list, 0: 10. `by_mask`: a bit 1 <<
 * HR_BY_* for each list of live groups, none: by category and by stack; HR_INSPECT_WIDE: lines of any length, with up
 * to eight frames of a stack; HR_INSPECT_COLUMNS: tables for a screen of so many columns, from 59 to 255, instead of 100;
 * sentences are left to whoever prints them. hr_free. */
#define HR_INSPECT_WIDE (1u << 31)
#define HR_INSPECT_COLUMNS(columns) ((uint32_t)(columns) << 16)
HR_CHECKED hr_status hr_inspect_text(const hr_inspection *inspection, uint32_t top, uint32_t by_mask, char **text,
                                     hr_error *error);
HR_CHECKED hr_status hr_inspect_json(const hr_inspection *inspection, uint32_t top, char **text, hr_error *error);

/* The export of hr_snapshot_export for the inspected trace and instant, with the inspection's categories: what it sums up
 * is what the inspection says. */
HR_CHECKED hr_status hr_inspect_export(const hr_inspection *inspection, hr_export_format format, const char *path,
                                       hr_error *error);

/* A stack on one line, "linear < mlp.py:42 forward < train.py:88 main": the operation, then the two innermost frames
 * that are neither PyTorch's nor the interpreter's; in place of the second the innermost frame of the user's own code
 * (of no installed package), where neither is. With little room that frame stays and the others go. At most
 * `capacity` > 0 bytes with the terminator, cut between characters. */
HR_API void hr_inspect_stack_text(const hr_snapshot *snapshot, uint32_t stack, char *text, size_t capacity);

#ifdef __cplusplus
}
#endif

#endif
