/* Devices one can plan for: this machine's CPU and GPUs, and a table of GPUs with published figures.
 *
 * Threads: all but hr_device_probe may be called at any time; a probe measures, and wants the machine for itself. */
#ifndef HEADROOM_DEVICE_H
#define HEADROOM_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include <headroom/explain.h>
#include <headroom/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a probe of this machine measured, for one team of threads. The tables are grids of shapes that the planner
 * interpolates in (src/plan/cost.h says how); an entry of 0 was not measured, and its neighbours stand in for it. */
enum {
  HR_RATE_TYPES = 2,      /* fp32, bf16 */
  HR_PRODUCT_KINDS = 6,   /* forward, dx, dw; then the same with a packed operand */
  HR_PRODUCT_SIDES = 3,   /* by the smallest dimension: about 64, 256, 1024 */
  HR_PRODUCT_SIZES = 4,   /* by FLOPs: 2^24, 2^28, 2^31, 2^34 */
  HR_ATTENTION_KINDS = 2, /* forward, backward */
  HR_ATTENTION_SIZES = 4, /* by sequence: 64, 256, 1024, 4096 */
  HR_STREAM_SIZES = 3,    /* by bytes: 2^20 and 2^24 (in the caches), 2^27 (in memory) */
  HR_PRODUCT_CODES = 3,   /* what can compute products of bf16: multiply-adds, dot instruction, tiles */
  HR_PRODUCT_ROWS = 4,    /* forward with at most 16 rows, forward, dx, dw */
  HR_PRODUCT_WIDTHS = 3,  /* by the inputs of the layer: fewer than 128, fewer than 512, more */
  HR_LINKS = 2            /* what goes to the host and what comes from it: HR_LINK_TO_HOST, HR_LINK_FROM_HOST */
};
enum { HR_LINK_TO_HOST = 0, HR_LINK_FROM_HOST };
typedef enum hr_stream {
  HR_STREAM_COPY = 0,
  HR_STREAM_ADD,
  HR_STREAM_NORM,
  HR_STREAM_NORM_BACKWARD,
  HR_STREAM_ACTIVATION,
  HR_STREAM_ACTIVATION_BACKWARD,
  HR_STREAM_GLU,
  HR_STREAM_GLU_BACKWARD,
  HR_STREAM_ROPE,
  HR_STREAM_BIAS_GRADIENT,
  HR_STREAM_CROSS_ENTROPY,
  HR_STREAM_SQUARE_NORM,
  HR_STREAM_ADAMW,
  HR_STREAM_PACK,
  HR_STREAM_COUNT
} hr_stream;

typedef struct hr_rate_tables {
  double product_flops[HR_PRODUCT_KINDS][HR_PRODUCT_SIDES][HR_PRODUCT_SIZES]; /* per second */
  double attention_flops[HR_ATTENTION_KINDS][HR_ATTENTION_SIZES];             /* per second, causal half counted */
  double stream_bytes[HR_STREAM_COUNT][HR_STREAM_SIZES];                      /* per second, read and written */
} hr_rate_tables;

enum { HR_RATE_ENTRIES = HR_RATE_TYPES * (int)(sizeof(hr_rate_tables) / sizeof(double)) };

/* Of products of bf16, by each code that there is, FLOPs per second; 0: not measured, or there is no such code. */
typedef struct hr_code_rates {
  double flops[HR_PRODUCT_CODES][HR_PRODUCT_ROWS][HR_PRODUCT_WIDTHS];
} hr_code_rates;

/* What times are assumed from where nothing was measured: what a device reaches with one team. */
typedef struct hr_assumed_figures {
  double flops_fp32, flops_bf16, memory_bytes_per_second, node_seconds;
} hr_assumed_figures;

typedef struct hr_device_rates {
  uint32_t threads; /* the team it holds for; 0: nothing was measured */
  char instruction_set[16], libraries[64];
  char date[16];       /* YYYY-MM-DD */
  double node_seconds; /* what a node takes besides its work */
  hr_rate_tables tables[HR_RATE_TYPES];
  uint64_t fixed_bytes; /* resident beside the arena, with room for data buffers; 0: not measured */
  bool seen;            /* in the steps of training runs, not by a probe: rates of what these had, 0 for the rest */
  /* Seen: seconds of a step that the nodes of each entry of the tables took, in their order, and those that were assumed
   * of them, from `assumed_of`: for these figures alone their ratio holds, from 1e-4 to 1e4. Both 0: none. */
  double taken[HR_RATE_ENTRIES], assumed[HR_RATE_ENTRIES];
  hr_assumed_figures assumed_of;
  hr_code_rates codes;                    /* for choosing among them; not part of what hr_device_load gives */
  double link_bytes_per_second[HR_LINKS]; /* of a card, each way alone; 0: not measured */
  char card[128]; /* of a card: its UUID and its driver's version, which with `libraries` it holds for; "": a CPU */
  uint32_t rounds, busy_rounds; /* of a CPU's probe: rounds that were run, and those of them while others had its
                                   processors, which are left out - */
  bool busy_counted;            /* - unless too few were quiet. No part of what is stored, like these */
} hr_device_rates;

/* Which code computes products of bf16: it decides bits and scratch. */
typedef enum hr_products_origin {
  HR_PRODUCTS_NONE = 0, /* nothing was chosen: a device of the table */
  HR_PRODUCTS_SHIPPED,  /* by instruction set and class of processor alone */
  HR_PRODUCTS_MEASURED, /* by what hr_device_probe measured and hr_device_store stored */
  HR_PRODUCTS_GIVEN     /* named by the device, or by the checkpoint that a run goes on from */
} hr_products_origin;
typedef struct hr_products {
  hr_products_origin origin;
  char text[64];     /* "products 2, bf16 by dot" */
  char digest[24];   /* MEASURED: of the file, "xxh3:..." */
  char problem[768]; /* SHIPPED: why a file that is there was not used, with its name; "": there is none */
} hr_products;

typedef struct hr_device {
  char name[48];    /* "cpu", "rtx-4090", ... */
  char title[96];   /* "NVIDIA GeForce RTX 4090"; for the CPU the model name */
  char backend[16]; /* what runs jobs on it: "cpu", "cuda"; "": jobs can only be planned for it */
  bool has_team;    /* runs on threads of this process, as many as a job asks for */
  bool packs;       /* products can take operands that were packed for them */
  bool usable_now;  /* usable_bytes is what this machine could give when it was asked, not a figure of the product */
  uint64_t capacity_bytes; /* what is built in */
  uint64_t usable_bytes;   /* what a process can have: cudaMemGetInfo's total; with usable_now what is available now */
  double memory_bytes_per_second;
  double flops_fp32, flops_tf32, flops_bf16; /* dense, per second, published; 0 = not offered */
  double flops_fp16;                         /* the same; a device with fp16 and no bf16: NVIDIA before Ampere */
  uint32_t rated_threads;                    /* a team for which these rates hold; 0: whatever the team */
  double core_memory_bytes_per_second; /* a smaller team of n moves at most n + 1 times this; 0: as the rated one */
  double link_bytes_per_second;        /* host link, one direction; 0 for the CPU */
  double node_seconds;                 /* what a node takes besides its work; assumed, a probe knows better */
  double gemm_efficiency, memory_efficiency; /* share of the published rates that is assumed reachable */
  uint64_t fixed_bytes;                      /* runtime, libraries, context: what no program can own */
  bool fixed_measured;                       /* measured on this machine, else assumed */
  uint64_t library_workspace_bytes;          /* GEMM library workspace that a run would reserve */
  uint32_t compute_capability;               /* CUDA's, times ten (8.6: 86); 0: not a GPU of NVIDIA's */
  uint32_t multiprocessors;                  /* of a GPU of NVIDIA's; 0: not known */
  char source[160];                          /* where the figures come from */
  char date[16];                             /* when they were read, YYYY-MM */
  hr_device_rates rates;                     /* when some of this machine are stored; rates.threads 0: none */
  char products[64]; /* of a CPU, to be used: as hr_products.text, or "shipped"; "": as stored, else shipped */
  char rates_problem
      [768]; /* of a card: why a stored file that is there was not taken, with its name; "": there is none */
} hr_device;

/* Number of table devices (the CPU is not one) and the index-th. */
HR_API uint32_t hr_device_count(void);
HR_CHECKED hr_status hr_device_get(uint32_t index, hr_device *device, hr_error *error);

/* Finds "cpu" (asks this machine), "cuda" or "cuda:1" (a GPU of this machine, as its driver shows it), each with what is
 * stored of a probe of it, or a table device by name (case and punctuation do not matter: "RTX 4090" works).
 * USAGE when unknown, with the nearest name; UNSUPPORTED when this machine has no such GPU, saying what is missing. */
HR_CHECKED hr_status hr_device_find(const char *name, hr_device *device, hr_error *error);

typedef struct hr_probe_options {
  uint32_t threads; /* the team of a CPU; 0: hr_device_cpu_threads(). Of a GPU 0 */
  double seconds;   /* about how long it may measure; 0: 30. On a CPU every shape is measured at least once; on a GPU
                       the longest are left out where a round of all would take more than a third of it */
  void (*on_progress)(void *context, double share); /* 0..1, between rounds, on the calling thread; may be NULL */
  void *context;
  const char *device; /* what to measure: "cpu", or a GPU of this machine, "cuda", "cuda:1"; NULL: "cpu" */
} hr_probe_options;
/* Defaults: all zero. */
HR_API void hr_probe_options_init(hr_probe_options *options);

/* Measures a device of this machine with the kernels that run jobs. Takes up to about 0.6 GiB of its memory while it runs,
 * less where less is usable (then the largest shapes are left out). The fixed bytes are those of this very process: call
 * it in a small one, before other work. `options` may be NULL. Rounds in which others had the processors are left out where three
 * are quiet (below 5 seconds one); else all count, and busy_counted says so. Errors: MEMORY, USAGE, UNSUPPORTED (no such GPU). */
HR_CHECKED hr_status hr_device_probe(const hr_probe_options *options, hr_device_rates *rates, hr_error *error);

/* Stores what was measured for hr_device_find, atomically; what was seen in training beside what was seen before, and
 * it counts where no probe is stored. Which code is fastest for products of bf16 goes into a file
 * named by CPU model and instruction set, for all teams; rates into one named by these, threads and the products, those
 * of a card into one named by its UUID, its driver and the library of products; under
 * $HEADROOM_CACHE, else $XDG_CACHE_HOME/headroom, else ~/.cache/headroom. `path` (may be NULL, else path_bytes) gets
 * the name of the file of rates. Errors: IO, MEMORY, USAGE (no such directory can be named). */
HR_CHECKED hr_status hr_device_store(const hr_device_rates *rates, char *path, uint32_t path_bytes, hr_error *error);

/* Whether that could be done now, for who asks before measuring. Leaves nothing. Errors as of hr_device_store. */
HR_CHECKED hr_status hr_device_can_store(hr_error *error);

/* Takes over what is stored for a team of `threads` of this machine, or for the card that hr_device_find found (then
 * `threads` does not count): rates and fixed bytes of a probe, else rates seen in training, and with these the figures
 * that are assumed of the processor, which they were seen beside (a probe for another team may have replaced them). False,
 * and the device stays as it is, when there are none, or they are damaged or another machine's. */
HR_API bool hr_device_load(hr_device *device, uint32_t threads);

/* What this machine has, its limits for this process and its largest other processes, at this moment. */
HR_API void hr_host_facts_now(uint64_t requested_bytes, hr_host_facts *facts);
/* Whose limit leaves this process the least memory now ("the data limit (ulimit -d, RLIMIT_DATA)"), and how much. */
HR_API const char *hr_host_limit_now(uint64_t *room_bytes);

/* The team that a CPU job has by default, and what decides it: `threads` = min(cores, quota rounded down), at least 1. */
typedef struct hr_cpu_team {
  uint32_t threads;
  uint32_t processors; /* hardware threads that this process may use */
  uint32_t cores;      /* that these belong to */
  double quota_cpus;   /* what control groups grant, in CPUs; 0: no quota */
} hr_cpu_team;
HR_API void hr_device_cpu_team(hr_cpu_team *team);
HR_API uint32_t hr_device_cpu_threads(void); /* its `threads` */
/* "the cores of the 4 processors that this process may use", "a quota of 1.5 CPUs": why it is that many. Returns `out`. */
HR_API const char *hr_cpu_team_reason(const hr_cpu_team *team, char *out, uint32_t out_bytes);

#ifdef __cplusplus
}
#endif
#endif
