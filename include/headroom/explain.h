/* Why it ran out of memory: a pasted message, a snapshot or a run directory, to one cause.
 *
 * From text - one line or a whole log, several ranks, other things around it - it takes the out-of-memory messages of
 * PyTorch (all wordings since 0.3) and of what runs beside it; from a snapshot what was live, free and pinned when the
 * request failed; from a run directory of ours how the run ended. Each gives the figures, where the bytes of the device
 * are, one cause with its certainty, the arithmetic behind it, and what helps. Nothing here needs PyTorch or a GPU.
 * docs/explain.md
 * describes each cause.
 *
 * The input may come from anywhere: a text takes bounded memory (about 1 MiB, whatever its length) and linear time.
 *
 * Threads: calls on one hr_explainer must not overlap; an explanation does not change once it is made. */
#ifndef HEADROOM_EXPLAIN_H
#define HEADROOM_EXPLAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <headroom/inspect.h>
#include <headroom/replay.h>
#include <headroom/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum hr_oom_cause {
  HR_OOM_UNKNOWN = 0,         /* the text does not decide: see `candidates` */
  HR_OOM_TOO_BIG,             /* live tensors and the request do not fit together */
  HR_OOM_FRAGMENTED,          /* enough is free or cached, but in pieces */
  HR_OOM_CACHED_NOT_RETURNED, /* the caching allocator holds free memory that the failing request could not use */
  HR_OOM_OTHER_PROCESS,       /* memory of other processes on the device */
  HR_OOM_CAP,                 /* a limit below the device's memory */
  HR_OOM_PRIVATE_POOL,        /* memory in pools of CUDA graphs or MemPool */
  HR_OOM_HOST_MEMORY,         /* the memory of the machine, not of the device */
  HR_OOM_OUTSIDE_ALLOCATOR,   /* device memory that a library or the context takes past the allocator */
  HR_OOM_NOT_PYTORCH,         /* another framework's message */
  HR_OOM_ON_CHIP,             /* a kernel's shared memory or registers: no allocation failed */
  HR_OOM_GROWTH,              /* memory that stays behind every step: a leak (snapshots only) */
  HR_OOM_OUTLIER_BATCH,       /* this step needed much more than the others (snapshots only) */
  HR_OOM_NO_FAILURE,          /* nothing failed in what was recorded; the peak is explained */
  HR_OOM_NOT_MEMORY, /* it failed, and for something else: a disk, a file, a loss that is not finite (runs only) */
  HR_OOM_CAUSE_COUNT
} hr_oom_cause;

typedef enum hr_oom_certainty {
  HR_OOM_UNDECIDABLE = 0, /* the cause is HR_OOM_UNKNOWN */
  HR_OOM_LIKELY,          /* the figures speak for it, but allow another */
  HR_OOM_CERTAIN          /* the figures or the wording allow no other */
} hr_oom_certainty;

typedef enum hr_oom_figure {
  HR_OOM_REQUESTED = 0, /* text: as printed, which is the segment (2 MiB, 20 MiB or a multiple of 2 MiB); snapshot: the
                           request rounded to blocks */
  HR_OOM_TOTAL,         /* capacity of the device */
  HR_OOM_FREE,
  HR_OOM_THIS_PROCESS, /* all of this process on the device, with what is not PyTorch's */
  HR_OOM_ALLOCATED,    /* live in the caching allocator; includes private pools */
  HR_OOM_RESERVED,     /* allocated + unallocated */
  HR_OOM_UNALLOCATED,  /* reserved but unallocated; "cached" of the oldest wording */
  HR_OOM_ALLOWED,      /* cap */
  HR_OOM_PRIVATE_POOLS,
  HR_OOM_OTHER_PROCESSES, /* sum of those listed and not recognised as this very process */
  HR_OOM_FIGURE_COUNT
} hr_oom_figure;

typedef enum hr_oom_state {
  HR_OOM_ABSENT = 0, /* not in the message */
  HR_OOM_READ,       /* printed */
  HR_OOM_DERIVED,    /* follows from printed ones */
  HR_OOM_NOT_KNOWN   /* printed as a value that means "not known" (2^64 bytes, 0 bytes in use) */
} hr_oom_state;

typedef struct hr_oom_value {
  hr_oom_state state;
  uint64_t bytes;       /* 0 unless READ or DERIVED; UINT64_MAX when larger */
  uint64_t slack_bytes; /* the printed figure was rounded: the true one is within this much */
} hr_oom_value;

/* A share of the device. The shares of a failure add up to its share_total_bytes exactly. */
typedef struct hr_oom_share {
  const char *name; /* static */
  uint64_t bytes;
} hr_oom_share;

/* What an advice rests on. */
typedef enum hr_oom_basis {
  HR_OOM_ADVICE = 0, /* unproven: it usually helps */
  HR_OOM_PROVEN,     /* all recorded requests, the failed one among them, are met under this setting */
  HR_OOM_PLANNED,    /* the changed job was planned and fits the device's total */
  HR_OOM_REPLAYED,   /* likely: met in replay, the rest of the failing step as a whole step before it shows it */
  HR_OOM_REQUEST     /* the failed request is met in replay; what would follow is not known, or fails */
} hr_oom_basis;

enum { HR_OOM_LINE_BYTES = 240 };

typedef struct hr_oom_advice {
  char text[HR_OOM_LINE_BYTES]; /* in the words of the framework that the log names */
  const char *cost;             /* static: "none", "small", ... what following it costs */
  hr_oom_basis basis;
  char proof[HR_OOM_LINE_BYTES]; /* the figures behind all others; "" for ADVICE */
  uint64_t need_bytes;           /* PLANNED: what the job needs; 0 for ADVICE; else the reserved peak */
} hr_oom_advice;

enum {
  HR_OOM_MAX_FAILURES = 64, /* kept, those that say most; more are counted */
  HR_OOM_MAX_LINES = 14,
  HR_OOM_MAX_SHARES = 8,
  HR_OOM_MAX_ADVICE = 12
};

typedef struct hr_oom_failure {
  const char *source;    /* static: what failed, "pytorch-cuda", "cublas", "ray", ...; "snapshot" and "run" of those */
  const char *wording;   /* static: the wording's versions, "2.2 and later"; "" when it does not matter */
  const char *framework; /* static: named in the log before the failure, "transformers", ...; "" when none */
  const char *phase;     /* static: "backward", "optimizer", ... from the traceback; "" when unknown */
  int32_t rank;          /* -1: not stated */
  int32_t device_index;  /* -1: not stated or blank */
  uint64_t line;         /* of the text, from 1; 0 when it is no text */
  uint64_t event;        /* snapshot: of its trace; else UINT64_MAX */
  uint64_t
      repeats; /* how often the same failure was printed again; of the last with asked_again also those that found no room,
                  which are in hr_explanation.more where none with it is kept */
  bool asked_again;       /* the allocator's log line alone, behind which it asks again, mostly with success */
  uint32_t process_count; /* other processes listed */
  hr_oom_value figures[HR_OOM_FIGURE_COUNT];

  hr_oom_cause cause;
  hr_oom_certainty certainty;
  uint32_t candidates; /* with HR_OOM_UNKNOWN: a bit 1 << cause for each that could be it */
  char verdict[HR_OOM_LINE_BYTES];
  char arithmetic[HR_OOM_MAX_LINES][HR_OOM_LINE_BYTES];
  uint32_t arithmetic_count;
  hr_oom_share shares[HR_OOM_MAX_SHARES];
  uint32_t share_count;
  uint64_t
      share_total_bytes; /* the device's total; for a snapshot without one, what it accounts for: reserved + free */
  uint64_t excess_bytes; /* printed bytes that the device cannot hold: spilled to the host, or figures that disagree */
  hr_oom_advice advice[HR_OOM_MAX_ADVICE]; /* cheapest first */
  uint32_t advice_count;
} hr_oom_failure;

typedef struct hr_explanation {
  hr_oom_failure *failures; /* distinct, in the order of the text */
  uint32_t failure_count;   /* 0: the text holds no out-of-memory message */
  uint32_t primary;         /* the failure that explains most: with figures before without, device before follow-ups */
  uint64_t more;            /* messages beyond HR_OOM_MAX_FAILURES, not explained */
  uint64_t line_count, byte_count;
} hr_explanation;

typedef struct hr_explain_options {
  const char *framework; /* overrides what the log names; NULL: from the log */
} hr_explain_options;
/* Defaults: all zero. */
HR_API void hr_explain_options_init(hr_explain_options *options);

/* Explains `count` bytes, which need no terminator and may hold any byte. `options` may be NULL. The result belongs to
 * the caller (hr_explanation_destroy). MEMORY is the only failure: a text without a message gives failure_count 0. */
HR_CHECKED hr_status hr_explain_text(const void *bytes, size_t count, const hr_explain_options *options,
                                     hr_explanation **explanation, hr_error *error);
HR_API void hr_explanation_destroy(hr_explanation *explanation); /* NULL is fine */

/* The same piece by piece, for logs that are not in memory. After a failed feed only destroy is allowed. end gives the
 * result and leaves the explainer to be destroyed; options must live until then. */
typedef struct hr_explainer hr_explainer;
HR_CHECKED hr_status hr_explainer_create(const hr_explain_options *options, hr_explainer **explainer, hr_error *error);
HR_CHECKED hr_status hr_explainer_feed(hr_explainer *explainer, const void *bytes, size_t count, hr_error *error);
HR_CHECKED hr_status hr_explainer_end(hr_explainer *explainer, hr_explanation **explanation, hr_error *error);
HR_API void hr_explainer_destroy(hr_explainer *explainer); /* NULL is fine */

/* ---- this machine's memory, for runs of our own ---- */

enum { HR_HOST_MAX_PROCESSES = 8 };
typedef struct hr_host_process {
  int32_t pid;
  uint64_t resident_bytes; /* without what is shared with files */
  char name[32];
} hr_host_process;

/* Taken by hr_host_facts_now (headroom/device.h). Rooms are UINT64_MAX where there is no such limit. */
typedef struct hr_host_facts {
  uint64_t requested_bytes;
  uint64_t total_bytes, available_bytes; /* of the machine */
  uint64_t group_room_bytes, address_space_room_bytes, data_room_bytes;
  uint64_t process_resident_bytes, other_bytes;
  hr_host_process others[HR_HOST_MAX_PROCESSES]; /* largest first */
  uint32_t other_count;
} hr_host_facts;

/* Why `requested_bytes` were not to be had: cause, arithmetic, shares of the machine, advice. Pure. */
HR_API void hr_explain_host(const hr_host_facts *facts, hr_oom_failure *failure);

/* ---- snapshots ---- */

/* What there is to judge by. Facts only: nothing is read or replayed here. */
typedef struct hr_oom_evidence {
  const hr_inspection *inspection; /* at the out-of-memory event, or at the peak where none is recorded (HR_AT_OOM) */
  const hr_replay *replay;         /* NULL: not replayed, so no advice is proven */
  const hr_replay_result *results; /* of hr_replay_search, in its order. NULL: none */
  uint32_t result_count;
  uint64_t device_total_bytes; /* 0: not known; no snapshot states it */
} hr_oom_evidence;

/* The trace to inspect for that: of those with an out-of-memory event the one with most events, else HR_TRACE_MOST. */
HR_API uint32_t hr_explain_trace(const hr_snapshot *snapshot);

/* One failure: the last out-of-memory event, or what made the peak (HR_OOM_NO_FAILURE) where none is recorded. */
HR_CHECKED hr_status hr_explain_snapshot(const hr_oom_evidence *evidence, const hr_explain_options *options,
                                         hr_explanation **explanation, hr_error *error);

/* ---- planned and proven fixes ---- */

/* Puts an advice in front of those of the same or a weaker basis, in the order of the calls; the last of the weakest
 * falls off when there are HR_OOM_MAX_ADVICE. `cost` is static. */
HR_API void hr_oom_add_advice(hr_oom_failure *failure, hr_oom_basis basis, const char *text, const char *cost,
                              const char *proof, uint64_t need_bytes);

/* Python that records a snapshot at the failure, in the framework's way, where one of the failure's advice is to record
 * one; else NULL. Static. */
HR_API const char *hr_oom_snippet(const hr_oom_failure *failure);

/* One change of a job in the words of a framework ("transformers", "deepspeed", ...; "" or unknown: PyTorch's own). */
typedef enum hr_technique {
  HR_TECHNIQUE_MICRO_BATCH = 0, /* `value` rows per device and micro-step */
  HR_TECHNIQUE_ACCUMULATE,      /* `value` micro-steps */
  HR_TECHNIQUE_CHECKPOINTING,   /* activation checkpointing of every block */
  HR_TECHNIQUE_SELECTIVE,       /* of what is cheap to make again */
  HR_TECHNIQUE_SEQUENCE,        /* `value` tokens */
  HR_TECHNIQUE_LOSS_CHUNK,      /* logits of `value` tokens at a time */
  HR_TECHNIQUE_BF16,
  HR_TECHNIQUE_BF16_PURE,
  HR_TECHNIQUE_8BIT,     /* AdamW with states of 8 bits */
  HR_TECHNIQUE_MOMENTUM, /* an optimizer with one state instead of two */
  HR_TECHNIQUE_SGD,
  HR_TECHNIQUE_IN_BACKWARD, /* the optimizer's step inside the backward pass */
  HR_TECHNIQUE_FP16,        /* with a loss that is scaled */
  HR_TECHNIQUE_ADAFACTOR,   /* second moments by row and column */
  HR_TECHNIQUE_COUNT
} hr_technique;
/* Returns what snprintf would. */
HR_API int hr_technique_words(hr_technique technique, uint64_t value, const char *framework, char *text,
                              size_t capacity);

/* ---- run directories ---- */

typedef enum hr_run_end {
  HR_RUN_UNKNOWN = 0, /* no trail that can be read, and it says that it runs: it does, or was killed */
  HR_RUN_RUNNING,     /* a process with its number exists */
  HR_RUN_DONE,
  HR_RUN_STOPPED, /* on request, after saving */
  HR_RUN_FAILED,  /* with an error of its own */
  HR_RUN_KILLED   /* it says that it runs and does not */
} hr_run_end;

enum { HR_RUN_TIERS = 3 };
typedef struct hr_run_tier {
  const char *name;                       /* static: "device", "host", "disk" */
  uint64_t planned_bytes, reserved_bytes; /* reserved: 0 where the run did not get to say */
  uint64_t peak_bytes, fixed_bytes;
} hr_run_tier;

typedef struct hr_run_explanation {
  hr_run_end end;
  uint64_t step, steps;  /* finished, asked for */
  int64_t saved_step;    /* of the last checkpoint that is there; -1: none is */
  char last[96];         /* what ran last: "forward, layer 3, linear (train)"; "" when not known */
  char message[512];     /* the error of FAILED; else "" */
  uint64_t budget_bytes; /* device tier */
  uint64_t first_resident_bytes, middle_resident_bytes, resident_bytes; /* of the process, over the run; 0: not known */
  uint64_t resident_peak_bytes;
  uint64_t usable_bytes; /* what the machine could still give, last asked; 0: not known */
  uint32_t tier_count;
  hr_run_tier tiers[HR_RUN_TIERS];
  hr_explanation *explanation; /* one failure with source "run" */
} hr_run_explanation;

/* Reads run.json, metrics.jsonl (its ends and middle) and memory/trail of a run directory (docs/run-directory.md), of
 * this machine or another. INPUT names file and place; IO when there is no run. */
HR_CHECKED hr_status hr_explain_run(const char *directory, hr_run_explanation **run, hr_error *error);
HR_API void hr_run_explanation_destroy(hr_run_explanation *run); /* NULL is fine */
HR_API const char *hr_run_end_name(hr_run_end end);              /* "done", "stopped", ... Never NULL */

/* Names for JSON: "too_big", "likely", "requested_bytes". Never NULL. */
HR_API const char *hr_oom_cause_name(hr_oom_cause cause);
HR_API const char *hr_oom_certainty_name(hr_oom_certainty certainty);
HR_API const char *hr_oom_basis_name(hr_oom_basis basis); /* "advice", "proven", "planned", "replayed", "request" */
HR_API const char *hr_oom_figure_name(hr_oom_figure figure);

#ifdef __cplusplus
}
#endif

#endif
