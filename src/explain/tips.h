/* What usually helps, as a table: for which causes, whose failures, at what place of a run and of which PyTorch. advice.c picks
 * from it. Each line is true of what it names: settings that exist there, for the resource that failed. */
#ifndef HRI_EXPLAIN_TIPS_H
#define HRI_EXPLAIN_TIPS_H

#include <headroom/explain.h>

/* Bits of `when`. The lowest are causes, 1 << hr_oom_cause. Of each group below a tip that names none is for all; what a
 * failure is of a group advice.c tells. */
enum {
  HRI_TIP_CAUSES = (1u << HR_OOM_CAUSE_COUNT) - 1,
  /* what the request was */
  HRI_TIP_ONE_TENSOR = 1 << 22, /* more than the whole device */
  HRI_TIP_BIG = 1 << 15,        /* a quarter of it or more */
  HRI_TIP_SIZES = HRI_TIP_ONE_TENSOR | HRI_TIP_BIG,
  /* which PyTorch, by the wording of its message */
  HRI_TIP_BEFORE_1_10 = 1 << 16,
  HRI_TIP_BEFORE_2_1 = 1 << 17, /* 1.10 to 2.0 */
  HRI_TIP_FROM_2_1 = 1 << 21,
  HRI_TIP_VERSIONS = HRI_TIP_BEFORE_1_10 | HRI_TIP_BEFORE_2_1 | HRI_TIP_FROM_2_1,
  /* whose it is */
  HRI_TIP_NOT_PYTORCH = 1 << 18,
  HRI_TIP_UNNAMED = 1 << 19, /* a speaker that is not known */
  HRI_TIP_OWNERS = HRI_TIP_NOT_PYTORCH | HRI_TIP_UNNAMED,
  HRI_TIP_EXPANDABLE = 1 << 20, /* expandable segments are on */
  /* what the run was at */
  HRI_TIP_IN_LOADING = 1 << 23,
  HRI_TIP_IN_OPTIMIZER = 1 << 24,
  HRI_TIP_IN_LOSS = 1 << 25,
  HRI_TIP_IN_EVALUATION = 1 << 26, /* or generation */
  HRI_TIP_BETWEEN = 1 << 27,       /* the program's own lines, between two steps */
  HRI_TIP_NO_BACKWARD = HRI_TIP_IN_LOADING | HRI_TIP_IN_EVALUATION | HRI_TIP_BETWEEN,
  HRI_TIP_PLACES =
      HRI_TIP_IN_LOADING | HRI_TIP_IN_OPTIMIZER | HRI_TIP_IN_LOSS | HRI_TIP_IN_EVALUATION | HRI_TIP_BETWEEN,
  /* what it was explained from */
  HRI_TIP_TEXT = 1 << 28,
  HRI_TIP_SNAPSHOT = 1 << 29,
  HRI_TIP_RUN = 1 << 30,
  HRI_TIP_ORIGINS = HRI_TIP_TEXT | HRI_TIP_SNAPSHOT | HRI_TIP_RUN
};

_Static_assert(HR_OOM_CAUSE_COUNT <= 15, "causes and what a request was share a word");

/* What a tip is about. Of each topic a failure gets the first tip that is meant for it. */
typedef enum hri_tip_topic {
  HRI_TOPIC_NONE = 0,
  HRI_TOPIC_SETTINGS, /* of the allocator; replay proves those of snapshots */
  HRI_TOPIC_RECORD,   /* a snapshot */
  HRI_TOPIC_LOOK,     /* who holds the memory */
  HRI_TOPIC_STEP,
  HRI_TOPIC_LIMIT, /* raise it */
  HRI_TOPIC_ONE_TENSOR,
  HRI_TOPIC_LOSS,
  HRI_TOPIC_LESS, /* at once: rows, workers, jobs */
  HRI_TOPIC_CHECKPOINTING,
  HRI_TOPIC_STATES,
  HRI_TOPIC_MORE, /* memory for the job */
  HRI_TOPIC_RANKS,
  HRI_TOPIC_SIZES,
  HRI_TOPIC_CACHE,
  HRI_TOPIC_GRAPHS,
  HRI_TOPIC_ROOM, /* for libraries */
  HRI_TOPIC_EARLIER,
  HRI_TOPIC_LIBRARY,
  HRI_TOPIC_GROWS,
  HRI_TOPIC_KEEPS,
  HRI_TOPIC_LONG
} hri_tip_topic;

typedef struct hri_tip {
  uint32_t when;
  const char *who; /* sources or frameworks, separated by blanks; one that ends in "*" is a beginning. NULL: anybody */
  hri_tip_topic topic;
  const char *cost, *text; /* text NULL: nothing of this topic helps there */
} hri_tip;

/* In the order in which they are said: the cheapest first; within a topic what is meant for few before what is for all. */
extern const hri_tip hri_tips[];
extern const size_t hri_tip_count;

/* The words by which advice to record a snapshot is known (hri_oom_asks_for_snapshot). */
#define HRI_TIP_RECORDS "record a snapshot"

#endif
