/* What the parts of the inspection share. */
#ifndef HRI_INSPECT_INSIDE_H
#define HRI_INSPECT_INSIDE_H

#include <headroom/inspect.h>

#include "base/text.h"
#include "inspect/lives.h"

/* Strings of a snapshot may have any length, and a file of a few megabytes can refer to a long one a million times.
 * What is
 * compared or shown of one is bounded. */
enum { HRI_NAME_BYTES = 512 };

/* ---- stacks.c: what a stack says ---- */

typedef enum hri_mark {
  HRI_MARK_FORWARD = 1 << 0, /* a module's call */
  HRI_MARK_LOSS = 1 << 1,
  HRI_MARK_BACKWARD = 1 << 2,   /* the autograd engine */
  HRI_MARK_ACCUMULATE = 1 << 3, /* a gradient is stored or added */
  HRI_MARK_OPTIMIZER = 1 << 4,
  HRI_MARK_STATE = 1 << 5, /* optimizer states are made */
  HRI_MARK_INIT = 1 << 6,
  HRI_MARK_DATA = 1 << 7,
  HRI_MARK_COMMUNICATION = 1 << 8,
  HRI_MARK_WORKSPACE = 1 << 9,
  HRI_MARK_EVALUATION = 1 << 10,
  HRI_MARK_GENERATION = 1 << 11,
  HRI_MARK_CHECKPOINT = 1 << 12,
  HRI_MARK_CACHE = 1 << 13,  /* keys and values of generation */
  HRI_MARK_ENGINE = 1 << 14, /* C++ frames of the autograd engine */
  HRI_MARK_NATIVE = 1 << 15  /* of frames only: not Python */
} hri_mark;

typedef struct hri_stack_info {
  uint16_t marks;     /* of all its frames */
  uint8_t stage;      /* hr_stage */
  bool own;           /* the innermost frame that is no native one is of the program's own code */
  uint32_t step;      /* that a frame of ours names; 0: none */
  uint32_t site;      /* the frame that called the outermost module, plus one; 0: none */
  uint32_t plain;     /* the first stack that differs from it in the step only */
  uint32_t own_frame; /* the innermost of the program's own code, plus one; 0: none */
} hri_stack_info;

/* One entry per stack of the snapshot; freed with hri_free. */
hr_status hri_stacks_read(const hr_snapshot *s, hri_stack_info **stacks, hr_error *error);

/* hri_stack_info.own of one stack. */
bool hri_stack_is_own(const hr_snapshot *s, uint32_t stack);

/* What asked for it: "linear", or what PyTorch's Python says; empty: no frame names it. */
enum { HRI_OPERATION_BYTES = 96 };
void hri_stack_operation(const hr_snapshot *s, uint32_t stack, char operation[HRI_OPERATION_BYTES]);

/* hr_inspect_stack_text with another number of frames. */
void hri_stack_text(const hr_snapshot *s, uint32_t stack, unsigned frames, char *text, size_t capacity);

/* ---- stages.c, categories.c ---- */

typedef enum hri_category {
  HRI_UNKNOWN = 0,
  HRI_PARAMETER,
  HRI_GRADIENT,
  HRI_OPTIMIZER_STATE,
  HRI_ACTIVATION,
  HRI_TEMPORARY,
  HRI_INPUT,
  HRI_COMMUNICATION,
  HRI_WORKSPACE,
  HRI_KV_CACHE,
  HRI_PERSISTENT, /* lived through the trace or several steps, and nothing says as what */
  HRI_CATEGORY_COUNT
} hri_category;

/* Everything that one inspection computes on the way. hr_inspection comes first, so that the public pointer leads
 * here. */
typedef struct hri_inside {
  hr_inspection public;
  hri_lives *lives;
  hri_stack_info *stacks;
  uint8_t *stages;      /* hr_stage after every event of the trace */
  bool has_stacks;      /* stages come from stacks */
  bool silent_backward; /* allocations without a stack are the autograd thread's */
  uint64_t
      work_end;    /* the last allocation or out-of-memory event: after it a program only cleans up; HRI_NEVER: none */
  hri_state state; /* at the instant */
} hri_inside;

hr_status hri_stages_find(hri_inside *in, hr_error *error);
/* Whether a life is not freed before the program's end: what dies later fell with the program, or with an exception. */
static inline bool hri_life_kept(const hri_inside *in, const hri_life *life) {
  return life->end == HRI_NEVER || (in->work_end != HRI_NEVER && life->end > in->work_end);
}
hr_status hri_categories_find(hri_inside *in, bool exact_only, hr_error *error);
static inline hr_stage hri_stage_at(const hri_inside *in, uint64_t event) {
  return event == HRI_NEVER || !in->stages || event >= in->lives->event_count ? HR_STAGE_UNKNOWN
                                                                              : (hr_stage)in->stages[event];
}
/* ... and of a request by its own stack: an optimizer's has it in there, so what else is asked for behind its step is the
 * program's own. */
hr_stage hri_stage_asked(const hri_inside *in, uint64_t event);
/* The stage in which a life was made. */
static inline hr_stage hri_life_stage(const hri_inside *in, const hri_life *life) {
  uint8_t own = in->stacks[life->stack].stage;
  return own ? (hr_stage)own : hri_stage_at(in, life->alloc);
}

/* ---- memory.c ---- */

/* From a state; `live` counts what is allocated (not pending). */
void hri_memory_sums(const hri_lives *lives, const hri_state *state, uint64_t event, hr_memory_sums *sums);
hr_status hri_fragmentation_find(hri_inside *in, const hr_oom_event *oom, hr_error *error);

/* ---- steps.c, growth.c, older.c, within.c, asked.c ---- */

hr_status hri_steps_find(hri_inside *in, hr_error *error);
static inline uint64_t hri_step_end(const hr_step_sums *step) { return step->first_event + step->event_count; }
/* The event at which an optimizer's call ends, by an annotation that PyTorch makes of each; HRI_NEVER: it is another one. */
uint64_t hri_optimizer_end(const hri_inside *in, const hr_annotation *a);
/* The step that an event is in, or the first behind it; step_count when there is none. */
uint32_t hri_step_of(const hr_inspection *p, uint64_t event);
/* The failure that is looked at; NULL: the instant is none. */
const hr_oom_event *hri_failure_at(const hr_inspection *p);
hr_status hri_growth_find(hri_inside *in, hr_error *error);
hr_status hri_older_find(hri_inside *in, hr_error *error);
/* To what passes leave behind up to an event, in the order of time, what is from before a recording that lost its beginning. False:
 * memory was refused. */
bool hri_older_add(hri_inside *in, uint64_t until, const uint64_t *passes, size_t pass_count, hr_growth *rows,
                   size_t count);
hr_status hri_within_find(hri_inside *in, hr_error *error);
/* The events at which the passes of a model begin that the whole trace ends with, as within.c tells them; freed with hri_free. No
 * passes: true and *count 0; false: memory was refused. Bare are calls that are passes only because there are more of them than weights:
 * the program makes nothing around them. */
bool hri_passes_list(hri_inside *in, uint64_t **events, size_t *count, bool *bare);
/* Whether the steps are only what comes again and again, and may be the passes of a model, or a loop that loads it. */
bool hri_steps_repeat(const hr_inspection *p);
hr_status hri_asked_find(hri_inside *in, hr_error *error);

/* ---- groups.c ---- */

hr_status hri_groups_find(hri_inside *in, uint32_t top, hr_error *error);

#endif
