/* The world of a torture test: the job that is run, over and over, the places where workers run it, what it must leave,
 * and how it goes on after whatever happened.
 *
 * The rules, for every disturbance:
 *   - it ends by itself, with a documented exit code and a message, unless we killed it;
 *   - exit 0 means the bytes and metrics of the undisturbed run;
 *   - a checkpoint that was announced ("saved ...") is there, whole, until --keep lets it go for newer ones;
 *   - then `inspect --verify` finds no damage, unless we made some;
 *   - the run then goes on (--resume), or starts again when nothing had been announced, and ends with the bytes,
 *     metrics and files of the undisturbed run;
 *   - files that are not the program's survive. */
#ifndef HRI_TORTURE_WORLD_H
#define HRI_TORTURE_WORLD_H

#include "torture/files.h"
#include "torture/shim.h"

enum { WORDS_MOST = 48, STEPS_MOST = 32, ERR_ROOM = 65536, WHY_ROOM = 1024, KEEP = 2 };

/* From scratch on bytes, or from a model directory with a tokenizer. */
typedef enum job { JOB_FRESH, JOB_MODEL, JOB_COUNT } job;

/* What a run said was saved, over all its attempts. */
typedef struct heard {
  unsigned steps[STEPS_MOST];
  size_t count;
  bool final;
} heard;

typedef struct world { /* a worker's own place */
  char root[PATH_ROOM], tree[PATH_ROOM], run[PATH_ROOM];
  shim_counts *counts;
  int index;
  const char *
      except; /* a checkpoint ("step-000002/") that we damaged, or kept from being saved, and that need not be the undisturbed run's */
  bool unlinked;    /* a warning said that `last` and `best` are not made */
  const char *told; /* a file of a saved model that a warning said is missing */
  bool inside;      /* the user has files in the run directory, too */
  bool tell;        /* prints what each child says: one case, for a person */
} world;

typedef struct launch {
  /* in */
  bool shim;               /* preloads the library; implied by the next two */
  const char *fault;       /* HEADROOM_SHIM_FAULT */
  const char *log;         /* HEADROOM_SHIM_LOG */
  uint64_t kill_after_us;  /* kill -9 after this time, from the start or from */
  const char *kill_behind; /* the moment when standard error has this text (then 0 is at once) */
  /* out */
  int code, signal; /* signal 0: it ended by itself */
  bool hung;        /* it did not end, and was killed */
  heard heard;
  char err[ERR_ROOM]; /* standard error */
} launch;

/* ---- the whole test ---- */

extern const char *base; /* the scratch directory of all */
extern bool full;        /* every case, not a sample */
extern uint64_t seed;
extern bool resume_alone; /* the program goes on with --resume RUN alone */

size_t sampled(size_t count); /* the size of a sample: an eighth with HEADROOM_TEST_QUICK */

void world_set_up(void);
void world_tear_down(void);
bool have_shim(void); /* not with sanitizers */
/* Opens worker `index`'s place. */
void world_open(world *w, int index);

/* ---- runs ---- */

typedef struct command {
  const char *words[WORDS_MOST];
} command;
command start_words(const world *w, job j);
command resume_words(const world *w, job j, const char *from); /* from: of --from; NULL: the newest */
/* The environment of a launch, for trace.c. */
void launch_environment(const world *w, const launch *l, char *const **environment);
void launch_run(const world *w, const command *c, launch *l);

/* Empties the tree and puts the user's own files there; from_stopped: also a copy of a run that was killed in the
 * middle, with the user's files in it. What that run had announced is in *h. */
void world_lay(world *w, job j, bool from_stopped, heard *h);
void hear(heard *h, const char *text);
void hear_more(heard *h, const heard *other);

/* ---- what must hold; false with a reason ---- */

typedef enum strictness {
  AFTER_FAULT,
  AFTER_POWER_LOSS
} strictness; /* scratch whose own mark was lost cannot be told from a user's */

bool ended_well(const launch *l, char why[WHY_ROOM]);
bool nothing_lost(const world *w, job j, const heard *h, char why[WHY_ROOM]);
bool same_as_undisturbed(const world *w, job j, char why[WHY_ROOM]);
bool own_files_survive(const world *w, char why[WHY_ROOM]);
/* The files are those of the undisturbed run, and no others. */
bool same_files_as_undisturbed(const world *w, job j, strictness s, char why[WHY_ROOM]);
/* Goes on until the end, undisturbed, and checks all of the above. */
bool recovers(world *w, job j, heard *h, strictness s, char why[WHY_ROOM]);
/* Whether a step's checkpoint in the run at hand has the bytes of the undisturbed run. */
bool whole_checkpoint(const world *w, job j, unsigned step);

/* ---- many cases ---- */

typedef void (*case_fn)(world *w, size_t index, const void *context);
/* Runs cases 0 ... count - 1 on all cores (HEADROOM_TORTURE_JOBS); returns how many findings they made and prints the
 * first. */
size_t run_cases(const char *part, size_t count, case_fn run, const void *context);
/* Tells a finding; `which` names the case as the program takes it (torture PART CASE). */
__attribute__((format(printf, 3, 4))) void finding(const world *w, const char *which, const char *format, ...);
/* For things worth knowing that are none: counted by text, and printed with the part. */
void remark(const char *text);

#endif
