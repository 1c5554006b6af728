/* A regex of runs as split_runs.c reads it, and what split_states.c makes of it. */
#ifndef HRI_TOKENIZER_SPLIT_RUNS_H
#define HRI_TOKENIZER_SPLIT_RUNS_H

#include "tokenizer/split_internal.h"

enum {
  HRI_RUNS_CLASSES = 64 /* a bit each in the mask of a character */,
  HRI_RUNS_RANGES = 24,
  HRI_RUNS_ELEMENTS = 192
};
#define HRI_RUNS_UNBOUNDED UINT32_MAX
#define HRI_RUNS_END UINT32_MAX /* in place of an element: the end of the pattern, nothing */

typedef struct hri_run_class {
  uint8_t ascii[128]; /* 1: in the class */
  uint32_t set;       /* of categories, for characters beyond ASCII */
  uint32_t range_count;
  struct {
    uint32_t first, last;
  } ranges[HRI_RUNS_RANGES]; /* beyond ASCII */
  bool negated;              /* set and ranges are what is not in it */
} hri_run_class;

typedef enum hri_run_kind {
  HRI_RUN = 0,
  HRI_RUN_AHEAD,
  HRI_RUN_NOT_AHEAD,
  HRI_RUN_EITHER, /* the next element begins an alternative, `other` the next one, or what is behind an optional group */
  HRI_RUN_JOIN    /* behind a group */
} hri_run_kind;

typedef struct hri_run_element {
  uint32_t class, least, most; /* AHEAD and NOT_AHEAD: the class alone */
  hri_run_kind kind;
  bool keeps;            /* possessive */
  uint32_t after, other; /* the element behind this one */
} hri_run_element;

/* The first element is EITHER; no match is empty. */
typedef struct hri_run_pattern {
  uint32_t class_count, element_count;
  hri_run_element elements[HRI_RUNS_ELEMENTS];
  hri_run_class classes[HRI_RUNS_CLASSES];
} hri_run_pattern;

/* False: not such a pattern. `to` is zeroed. */
bool hri_runs_read(const char *pattern, size_t bytes, hri_run_pattern *to);
/* *runs is NULL (and the status HR_OK) where it would take too many states. */
hr_status hri_runs_build(const hri_run_pattern *pattern, hri_split_runs **runs, hr_error *error);

#endif
