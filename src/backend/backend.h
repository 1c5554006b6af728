/* The contract between what plans, passes, runs and trains, and what computes.
 *
 * A backend is a struct of functions: it says which nodes it has kernels for and what they need (planning), and runs a
 * placed job in memory of its own (running). Nobody above this floor knows another way to a device: plans, passes, the
 * executor and the trainer call what stands here, so a new backend changes none of them. docs/decisions/0007 says why
 * the contract looks as it does, and how streams, events and graphs of a GPU fit it.
 *
 * Running is a queue. launch, write and read are carried out one after the other, in the order of the calls, each as if
 * the one before had ended - whatever the device does meanwhile: a write never reaches a program launched before it, a
 * read sees all programs launched before it. A call may return before its work is done; its mark, a number that only
 * grows, says what to wait for. Inside a program the nodes of a lane run in issue order and a node starts after those
 * that it waits for; nothing else orders lanes.
 *
 * Addresses are the backend's affair. The host reaches a tensor by read and write; `view` gives an address where there
 * is one, to spare a copy, and everybody must do without it.
 *
 * Threads. One thread at a time calls a backend, whatever its runs. after_node and the functions of hri_transfer are
 * called during a call of that thread, never after it (put and get of a window may be called by several threads at
 * once). */
#ifndef HRI_BACKEND_BACKEND_H
#define HRI_BACKEND_BACKEND_H

#include <headroom/device.h>

#include "base/real.h"
#include "program/ops.h"
#include "team/team.h"

struct hri_quant_args;
struct hri_json;
struct hri_json_writer;

/* Functions on elements in memory of the host, for those who prepare or judge values there (loading, saving, looking
 * for what is not finite). All backends give the same bits. `team` is the one that they may be given; NULL: there is
 * none. */
typedef struct hri_elements {
  hri_team *team;
  void (*fill)(float *y, float value, int64_t n, hri_team *team);
  void (*zero)(void *to, int64_t bytes, hri_team *team);
  /* to[n] = from[n] in another type, to the nearest, ties to even; the same type copies. No aliasing. */
  void (*cast)(void *to, hri_real to_real, const void *from, hri_real from_real, int64_t n, hri_team *team);
  /* Index of the first NaN or infinite element of x[n], or -1. */
  int64_t (*first_nonfinite)(const void *x, int64_t n, hri_real real, hri_team *team);
  /* A weight to codes as QUANTIZE makes them (hri_cpu_kernels.quantize, ops/cpu.h); NULL: the backend cannot. */
  int64_t (*quantize)(const struct hri_quant_args *args);
} hri_elements;

/* ---- FILL and SINK ---- */

/* The bytes of one tensor, as the host reaches them while a FILL or SINK node runs. */
typedef struct hri_window {
  void *memory; /* their address in the host's memory; NULL: only put and get reach them */
  void *context;
  hr_status (*put)(void *context, uint64_t offset, const void *from, uint64_t bytes, hr_error *error);
  hr_status (*get)(void *context, uint64_t offset, void *to, uint64_t bytes, hr_error *error);
} hri_window;

/* Moves ranges of parameters between a tensor and files or generators; implemented by the trainer. The window shows the
 * range's whole stored tensor (`what`: hri_moved), of the type that the job gave it; `staging` is the node's planned
 * scratch, in memory that the host addresses. */
typedef struct hri_transfer {
  void *context;
  hr_status (*fill)(void *context, uint32_t range, uint32_t what, const hri_window *tensor, void *staging,
                    uint64_t staging_bytes, hr_error *error);
  hr_status (*sink)(void *context, uint32_t range, uint32_t what, const hri_window *tensor, void *staging,
                    uint64_t staging_bytes, hr_error *error);
} hri_transfer;

/* ---- check mode ---- */

/* Beside the nodes of a program, bytes that are nobody's hold HRI_POISON (NaN in every float format): what dies is
 * painted, guard zones behind storages are painted before and must stay so. The executor says where, the backend does
 * it. */
enum { HRI_POISON = 0xFF };
typedef enum hri_care_kind {
  HRI_PAINT_BEFORE = 0, /* paint before the node at this position runs */
  HRI_VERIFY_AFTER,     /* MISMATCH, naming node and storage, when a byte is another after it ran (or was left out) */
  HRI_PAINT_AFTER       /* paint after that */
} hri_care_kind;
typedef struct hri_care {
  uint32_t at; /* position in the issue order */
  uint8_t kind;
  bool lanes; /* PAINT_AFTER: several lanes touch the storage; to be left out where lanes really run side by side */
  hri_id storage;
  uint64_t begin, bytes; /* of the storage; may lie behind its end */
} hri_care;
typedef struct hri_cares {
  HRI_ARRAY(hri_care) list;
} hri_cares; /* rising in `at`, then in `kind` */

/* The refusal of a VERIFY_AFTER: `beyond` bytes behind its begin a byte is another. */
hr_status hri_care_broken(const hri_job *job, hri_program_kind program, const hri_care *care, uint64_t beyond,
                          hr_error *error);

/* How far a launch of a program is with them, and how its backend does one. NULL for `cares`: none are to be done. */
typedef struct hri_carer {
  const hri_cares *cares;
  size_t next; /* the first that was not done; begins as 0 */
  hri_program_kind program;
  void *run;
  hr_status (*take)(void *run, hri_program_kind program, const hri_care *care, hr_error *error);
} hri_carer;
/* Those of a position on one side of its node. */
hr_status hri_take_care(hri_carer *carer, uint32_t at, bool before, hr_error *error);

/* ---- running ---- */

typedef uint64_t hri_mark; /* 0: nothing to wait for */

/* A placed job that is to run. All that is pointed to outlives the run. */
typedef struct hri_work {
  const hri_job *job;
  const uint64_t *offsets; /* per storage, bytes into the arena of its tier */
  uint64_t arena_bytes[HRI_TIER_COUNT];
  uint16_t programs;            /* set of HRI_IN: what will be launched, and nothing else */
  const hri_transfer *transfer; /* NULL where no program fills or sinks */
  const hri_cares *cares;       /* check mode: one per program kind; NULL: not checked */
  void *beside; /* a run whose arenas this one uses instead of its own; NULL: none. They share its queue. */
  /* Called for each node of a program that was launched, in the order in which they ran or in issue order, not later
   * than in the wait for the program; also for a node that its guard left out. NULL: nobody asks. `seconds`: of the
   * node alone, NAN where that was not measured. */
  void (*after_node)(void *context, const hri_job *job, hri_id node, double seconds);
  void *context;
  bool times; /* every node is to be measured, whatever that costs; else only where it is free */
} hri_work;

typedef struct hri_backend hri_backend;
struct hri_backend {
  /* ---- who it is; constant once it is open ---- */
  const char *name;
  const char *note;                        /* what whoever runs a job is to know of it; NULL: nothing */
  uint32_t team;                           /* threads of a job; 1 where there is no team */
  char instruction_set[16], libraries[64]; /* with the team: what a plan is exact for */
  hr_products products; /* what computes its products, and who chose it; its text is that of libraries */
  bool estimated;       /* its scratch is a formula's, as a table device's, not what the code that runs asks for */
  hr_device device;     /* with what was measured for this very team, instruction set and libraries */
  uint32_t epilogues;   /* of products, that passes may ask for: bits of program/ops.h; 0: none */
  uint64_t granule;     /* a reservation is rounded up to a multiple of it */
  uint8_t staging_tier; /* hri_tier that the host addresses: staging of FILL and SINK lies there */
  uint32_t ahead;       /* steps that the host should launch before it waits for the first of them; 0: a
                                             launch has run when it returns, and there is nothing to win */
  hri_elements elements;
  void *self; /* first argument of all that follow, but for those of a run */

  /* ---- planning ---- */
  /* Scratch bytes of one node. UNSUPPORTED, naming op, operand and dtype, when there is no kernel for it. Must be a
   * function of the node, its tensors and the identity above: plans are compared and stored. */
  hr_status (*workspace)(void *self, const hri_job *job, const hri_node *node, uint64_t *bytes, hr_error *error);
  /* Bytes of operand 1 of a product in packed form, 0 when there is none; *pays: packing it before the product takes
   * less time than leaving it plain. NULL: the backend does not pack. */
  hr_status (*packing)(void *self, const hri_job *job, const hri_node *node, uint64_t *bytes, bool *pays,
                       hr_error *error);
  /* Bytes of the device that no program of the job can own: runtime, libraries, what is kept of `shapes` sets of
   * programs like the job's. `process_bytes`: what the process holds for the job beside; counts where its memory is the
   * device's. */
  uint64_t (*fixed_bytes)(void *self, const hri_job *job, uint32_t shapes, uint64_t process_bytes);
  /* Pinned bytes of the host that a run takes beside its arenas. NULL: none. */
  uint64_t (*pinned_bytes)(void *self, const hri_job *job);

  /* Bytes of the device that this process holds now, as the device counts them, 0 where it does not say. NULL: its memory
   * is the host's. May be asked for in every step. */
  uint64_t (*held_bytes)(void *self);
  /* By how many bytes what is held of the device grew while programs ran, at most, since arenas and programs were all
   * there: 0, unless somebody beside our code takes memory of it. `text`: what grew, for people; "" when nothing did.
   * False: nobody says. NULL: its memory is the host's. */
  bool (*grown_bytes)(void *self, uint64_t *bytes, char *text, uint32_t text_bytes);
  /* Bytes of the device that nobody holds now, 0 where it does not say. NULL: as held_bytes. */
  uint64_t (*free_bytes)(void *self);
  /* Whether others have brought the device close to its end: a warning's words, with who they are. NULL: its memory is the
   * host's. */
  bool (*near_limit)(void *self, char *text, uint32_t text_bytes);

  /* How a library computes the products of runs so far, as a JSON array, for a run that goes on elsewhere or later; and
   * such an array, before a run is prepared, which then computes its products so or refuses (USAGE). It holds for the
   * `libraries` and the instruction set above. NULL: these say all that there is to say. */
  void (*put_ways)(const void *self, struct hri_json_writer *writer);
  hr_status (*take_ways)(void *self, const struct hri_json *array, hr_error *error);

  /* ---- running: all NULL in a backend that only plans ---- */
  /* BUDGET, naming the limit, where this moment leaves no room for arenas of so many bytes and for what prepare takes
   * (not any more when `prepared`), and `beside` that the caller will take. */
  hr_status (*check_room)(void *self, const uint64_t arena_bytes[HRI_TIER_COUNT], bool prepared, uint64_t beside,
                          hr_error *error);
  /* Makes everything that the programs need to run (kernels loaded, products chosen, a program captured once the arenas
   * are there), so that nothing is made later; reserves nothing. Nothing is left behind on failure. BUDGET,
   * UNSUPPORTED. */
  hr_status (*prepare)(void *self, const hri_work *work, void **run, hr_error *error);
  /* Reserves each tier's arena in one piece, once, before the first launch, and fills it with HRI_POISON in check mode,
   * else with zeros; a run beside another one takes over its arenas, which must be there. MEMORY. */
  hr_status (*reserve)(void *run, hr_error *error);
  /* Waits for what runs; what nobody waited for of this run is not handed over any more: neither bytes of reads, whose memory may
   * be gone, nor nodes. Runs beside it keep theirs. NULL is fine. */
  void (*release)(void *run);
  uint64_t (*reserved_bytes)(const void *run, hri_tier tier); /* as made; 0 when they are another run's */
  uint64_t (*address)(const void *run, hri_tier tier);        /* of an arena, for reports alone; 0: none */
  /* The host's address of a tensor, NULL where it has none. What is there counts after a wait. */
  void *(*view)(void *run, hri_id tensor);

  /* Queues a program. A failure of a node may be told here or by a wait for it; the run is then over. */
  hr_status (*launch)(void *run, hri_program_kind program, hri_mark *mark, hr_error *error);
  /* Queues bytes into a tensor. They are taken over before it returns: `from` is the caller's again. */
  hr_status (*write)(void *run, hri_id tensor, uint64_t offset, const void *from, uint64_t bytes, hr_error *error);
  /* Queues bytes out of a tensor; they are in `to` once the mark was waited for, and not to be looked at before. */
  hr_status (*read)(void *run, hri_id tensor, uint64_t offset, void *to, uint64_t bytes, hri_mark *mark,
                    hr_error *error);
  /* Until everything up to the mark is done. When it fails, reads that were not handed over yet never are: the caller
   * returns, and their memory is its own again. */
  hr_status (*wait)(void *run, hri_mark mark, hr_error *error);

  void (*close)(hri_backend *backend); /* after all its runs were released; frees the struct too */
};

/* Whether jobs can run on it, or only be planned for it. */
static inline bool hri_backend_runs(const hri_backend *b) { return b->prepare != NULL; }

/* Opens the backend of a device with a team of `threads` (0 counts as 1). Which backends there are is decided by what
 * is linked: src/backend/open.c is the one file that knows them. */
hr_status hri_backend_open(const hr_device *device, uint32_t threads, hri_backend **backend, hr_error *error);
void hri_backend_close(hri_backend *backend); /* NULL is fine */
/* A device of this machine that a backend knows by this name and the table does not ("cuda:1"). False: no backend does;
 * else *status says whether it is there. */
bool hri_backend_finds(const char *name, hr_device *device, hr_status *status, hr_error *error);
/* Takes over what is stored of measurements of this very device with such a team. False: there is nothing. */
bool hri_backend_measured(hr_device *device, uint32_t threads);
/* Stores measurements of a device of this machine; `path` (may be NULL) gets the file's name. */
hr_status hri_backend_store(const hr_device_rates *rates, char *path, uint32_t path_bytes, hr_error *error);

/* The backend of a device that jobs can only be planned for: scratch by formulas, nothing runs. */
hr_status hri_estimates_open(const hr_device *device, hri_backend **backend, hr_error *error);
/* A CPU that jobs can only be planned for, of the level that device.rates says, else that its rates show. Plans are exact
 * for a CPU of that level and class. USAGE when the level is unknown. */
hr_status hri_described_cpu_open(const hr_device *device, uint32_t threads, hri_backend **backend, hr_error *error);

#endif
