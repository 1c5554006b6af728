/* The programs of one run on a device: queued node by node, or captured once as a graph and launched as one. */
#ifndef HRI_BACKEND_CUDA_PROGRAM_H
#define HRI_BACKEND_CUDA_PROGRAM_H

#include "backend/cuda/adapters.h"
#include "backend/cuda/machine.h"

enum { HRI_CUDA_TIMED = 2 }; /* nodes that may be under way at a time in a measured run */

typedef struct hri_cuda_run {
  const hri_cuda_parts *parts;
  hri_cuda_ways *ways;
  hri_work work;
  hri_cuda_machine *machine;
  bool owns; /* the machine; else it is another run's */
  hri_cuda_launch launch;
  hri_gpu_event **done; /* per node: that it is done, where another lane waits for it; else NULL */
  hri_gpu_event *begun, *ended[HRI_LANE_COUNT];
  hri_gpu_event *node_begun[HRI_CUDA_TIMED],
      *node_over[HRI_CUDA_TIMED];           /* timed; where nodes are measured, else NULL */
  hri_gpu_graph *graphs[HRI_PROGRAM_COUNT]; /* NULL: the program is queued node by node, in issue order */
} hri_cuda_run;

/* Lanes that the programs of a work use, as a set. */
uint32_t hri_cuda_work_lanes(const hri_work *work);
/* Events for the run's waits. */
hr_status hri_cuda_programs_prepare(hri_cuda_run *run, hr_error *error);
/* Graphs of the programs that can be captured; behind it the arenas must stay. Their bytes are zeros (in check mode
 * poison) before it and behind it: where kernels are loaded by their first launch, every node of every program that is no
 * work of the host runs once in them. */
hr_status hri_cuda_programs_capture(hri_cuda_run *run, hr_error *error);
/* Queues a program. What is queued node by node tells after_node at once; *told says so. */
hr_status hri_cuda_program_launch(hri_cuda_run *run, hri_program_kind program, bool *told, hr_error *error);
void hri_cuda_programs_destroy(hri_cuda_run *run);

#endif
