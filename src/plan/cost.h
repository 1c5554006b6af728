/* Predicted time. Of a program: the list schedule of its nodes (timing.h). Of a node: one of three models.
 *
 * Measured, where the device carries rates of a probe for the job's team. A node falls into a class: by the type of its
 * operands, matrix products by kind and smallest dimension, attention by direction, everything else by what it does to
 * memory. Inside a class the rate is interpolated over the logarithm of the size (FLOPs, sequence, bytes), and held
 * constant beyond both ends. One rate for all products mis-ranks strategies: small and thin ones reach a third of the
 * large ones' rate.
 *
 * Seen, where training runs left rates of their nodes instead (train/rates.h): what is assumed, times how far off that was
 * for what they had of the class, or of what is nearest (seen.c).
 *
 * Assumed, else, with the device's published or assumed rates and a stated efficiency (assumed.c): of a card the larger of
 * arithmetic over reachable rate and bytes over reachable bandwidth; of a CPU what our kernels do beside that, too. */
#ifndef HRI_PLAN_COST_H
#define HRI_PLAN_COST_H

#include <headroom/job.h>

#include "plan/timing.h"
#include "program/ops.h"

/* Where a node stands in the tables of rates. */
typedef enum hri_rate_table { HRI_RATE_NONE = 0, HRI_RATE_PRODUCT, HRI_RATE_ATTENTION, HRI_RATE_STREAM } hri_rate_table;
typedef struct hri_rate_class {
  hri_rate_table table;
  uint32_t type;       /* 0 fp32, 1 bf16: of what is measured, fp16 goes by one or the other */
  uint32_t kind, side; /* first index; second one of products, else 0 */
  double size;         /* log2 of FLOPs, sequence or bytes: the coordinate along the last index */
  double work;         /* what the rate is per second of: FLOPs or bytes */
} hri_rate_class;
hri_rate_class hri_rate_class_of(const hri_job *job, const hri_node *node);
/* Of what is stored of a matrix. */
static inline uint64_t hri_stored_rows(const hri_tensor *t) {
  return hri_tensor_stored_elements(t) / t->stored[t->rank - 1];
}
/* log2 of the size that the index-th column of a table was measured at, and the number of columns. */
double hri_rate_column(hri_rate_table table, uint32_t index);
uint32_t hri_rate_columns(hri_rate_table table);
/* The row of a class: hri_rate_columns entries. NULL for HRI_RATE_NONE. */
const double *hri_rate_row(const hr_device_rates *rates, const hri_rate_class *where);

/* The entry of that row nearest in size: what a measurement of the class is filed under. */
double *hri_rate_entry(hr_device_rates *rates, const hri_rate_class *where);
bool hri_is_arithmetic(const hri_rate_class *where); /* else bound by memory */

double hri_node_seconds(const hri_job *job, const hri_node *node, const hr_device *device);
/* Whatever was measured: by published or assumed rates alone (assumed.c). */
double hri_assumed_seconds(const hri_job *job, const hri_node *node, const hr_device *device);
/* FLOPs per second that the device is said to reach in the type of a node's operands. */
double hri_peak_of(const hri_job *job, const hri_node *node, const hr_device *device);
/* Of rates that training saw: how many times its assumed seconds, without the node's own, a node of a class takes
 * (seen.c); and the least that it says of any class of the same group (arithmetic, memory). */
double hri_seen_ratio(const hr_device_rates *rates, const hri_rate_class *where);
/* Whether it saw the class itself, at about that size. */
bool hri_seen_itself(const hr_device_rates *rates, const hri_rate_class *where);
double hri_seen_least(const hr_device_rates *rates, const hri_rate_class *where);

typedef struct hri_cost {
  double step_seconds; /* one optimizer step, one evaluation batch or one decoded token */
  double lane_seconds[HRI_LANE_COUNT];
  double phase_seconds[HRI_PHASE_COUNT];
  double flops;
  double seen_seconds; /* nodes of classes that training saw, with such rates; else 0 */
} hri_cost;
/* How often a step, an evaluation batch or a decoded token runs a program. */
uint32_t hri_job_runs(const hr_job *spec, uint8_t program);
/* The programs of a step one after the other, micro-steps without overlap between them. */
hr_status hri_job_cost(const hri_job *job, const hr_job *spec, hri_cost *cost, hr_error *error);
/* One program that begins at `from`, each node `times` as long: micro-steps as one program. */
hr_status hri_program_timing(const hri_job *job, uint8_t program, const hr_device *device, double times, double from,
                             hri_timing *timing, hr_error *error);
/* What a plan of the same work may do otherwise. Its nodes are drafted with nothing packed and the loss whole. */
typedef struct hri_freedom {
  bool packing;         /* products have packed operands, or not */
  bool chunk;           /* the loss takes any number of its rows at a time: which scratch it needs is open */
  uint64_t rows, piece; /* its seconds are those of so many rows, `piece` of them at a time; 0: all */
} hri_freedom;
/* Whether it takes a chunk of the loss at a time. */
bool hri_node_of_loss(const hri_node *node);
/* The seconds of a node, and of a step, that this can save at most by measured rates, which may be better for smaller
 * pieces or packed operands: 0 without them. Packing itself is not counted. */
double hri_node_spare_seconds(const hri_job *job, const hri_node *node, const hr_device *device,
                              const hri_freedom *free);
double hri_job_spare_seconds(const hri_job *job, const hr_job *spec, const hri_freedom *free);
/* Seconds that no job takes less of which does this one's work or more, in the same or in smaller pieces: each node at the
 * best rate that was measured of its kind at any size, packed or not; where training saw rates, as assumed times the least
 * ratio that was seen of its group (hri_seen_least); at published or assumed rates, where pieces take no less than the
 * whole, as long as it takes. */
double hri_job_floor_seconds(const hri_job *job, const hr_job *spec);
/* Whether the prediction for this job rests on measured rates. */
bool hri_cost_measured(const hri_job *job, const hr_device *device);

#endif
