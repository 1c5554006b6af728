/* An out-of-memory message, as people paste it, to one cause.
 *
 * Reads any text - one line or a whole log, several ranks, other things around it - finds the out-of-memory messages of
 * PyTorch (all wordings since 0.3) and of what runs beside it, and says for each: the figures that stand in it, where the
 * bytes of the device are, one cause with its certainty, the arithmetic behind it, and what usually helps. Nothing here
 * needs PyTorch or a GPU. docs/explain.md describes each cause.
 *
 * The text is input from anywhere: memory is bounded (about 1 MiB, whatever the length), time is linear in the length. */
#ifndef HEADROOM_EXPLAIN_H
#define HEADROOM_EXPLAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
  HR_OOM_CAUSE_COUNT
} hr_oom_cause;

typedef enum hr_oom_certainty {
  HR_OOM_UNDECIDABLE = 0, /* the cause is HR_OOM_UNKNOWN */
  HR_OOM_LIKELY,          /* the figures speak for it, but allow another */
  HR_OOM_CERTAIN          /* the figures or the wording allow no other */
} hr_oom_certainty;

typedef enum hr_oom_figure {
  HR_OOM_REQUESTED = 0, /* as printed: PyTorch prints the segment (2 MiB, 20 MiB or a multiple of 2 MiB) */
  HR_OOM_TOTAL,         /* capacity of the device */
  HR_OOM_FREE,
  HR_OOM_THIS_PROCESS,  /* all of this process on the device, with what is not PyTorch's */
  HR_OOM_ALLOCATED,     /* live in the caching allocator; includes private pools */
  HR_OOM_RESERVED,      /* allocated + unallocated */
  HR_OOM_UNALLOCATED,   /* reserved but unallocated; "cached" of the oldest wording */
  HR_OOM_ALLOWED,       /* cap */
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

/* A share of the device. The shares of a failure add up to its total exactly. */
typedef struct hr_oom_share {
  const char *name; /* static */
  uint64_t bytes;
} hr_oom_share;

typedef struct hr_oom_advice {
  const char *text; /* static; in the words of the framework that the log names */
  const char *cost; /* static: "none", "small", ... what following it costs */
  bool proven;      /* false: unproven advice. Always false from text alone */
} hr_oom_advice;

enum {
  HR_OOM_MAX_FAILURES = 64, /* kept; more are counted */
  HR_OOM_MAX_LINES = 12,
  HR_OOM_LINE_BYTES = 240,
  HR_OOM_MAX_SHARES = 8,
  HR_OOM_MAX_ADVICE = 8
};

typedef struct hr_oom_failure {
  const char *source;    /* static: what failed, "pytorch-cuda", "cublas", "ray", ... */
  const char *wording;   /* static: the wording's versions, "2.2 and later"; "" when it does not matter */
  const char *framework; /* static: named in the log before the failure, "transformers", ...; "" when none */
  const char *phase;     /* static: "backward", "optimizer", ... from the traceback; "" when unknown */
  int32_t rank;          /* -1: not stated */
  int32_t device_index;  /* -1: not stated or blank */
  uint64_t line;         /* of the text, from 1 */
  uint64_t repeats;      /* how often the same failure was printed again */
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

/* Explains `count` bytes, which need no terminator and may hold any byte. `options` may be NULL. The result belongs to
 * the caller (hr_explanation_destroy). MEMORY is the only failure: a text without a message gives failure_count 0. */
hr_status hr_explain_text(const void *bytes, size_t count, const hr_explain_options *options,
                          hr_explanation **explanation, hr_error *error);
void hr_explanation_destroy(hr_explanation *explanation); /* NULL is fine */

/* The same piece by piece, for logs that are not in memory. After a failed feed only destroy is allowed. end gives the
 * result and leaves the explainer to be destroyed; options must live until then. */
typedef struct hr_explainer hr_explainer;
hr_status hr_explainer_create(const hr_explain_options *options, hr_explainer **explainer, hr_error *error);
hr_status hr_explainer_feed(hr_explainer *explainer, const void *bytes, size_t count, hr_error *error);
hr_status hr_explainer_end(hr_explainer *explainer, hr_explanation **explanation, hr_error *error);
void hr_explainer_destroy(hr_explainer *explainer); /* NULL is fine */

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
  uint64_t group_room_bytes, address_space_room_bytes;
  uint64_t process_resident_bytes, other_bytes;
  hr_host_process others[HR_HOST_MAX_PROCESSES]; /* largest first */
  uint32_t other_count;
} hr_host_facts;

/* Why `requested_bytes` were not to be had: cause, arithmetic, shares of the machine, advice. Pure. */
void hr_explain_host(const hr_host_facts *facts, hr_oom_failure *failure);

/* Names for JSON: "too_big", "likely", "requested_bytes". Never NULL. */
const char *hr_oom_cause_name(hr_oom_cause cause);
const char *hr_oom_certainty_name(hr_oom_certainty certainty);
const char *hr_oom_figure_name(hr_oom_figure figure);

#ifdef __cplusplus
}
#endif

#endif
