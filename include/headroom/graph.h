/* Programs built op by op: describe a forward computation and its loss; Headroom derives the training step, applies the
 * same techniques as to its own models, plans it to the byte and runs it.
 *
 *   hr_graph_create(&g, &error);
 *   ids = hr_graph_input(g, "ids", rows); table = hr_graph_parameter(g, "table", vocabulary, width, 0.02, true); ...
 *   hr_graph_loss(g, hidden, head, targets);
 *   hr_graph_plan(g, &job, &plan, &error);      job: device, optimizer, recompute, budget, ... (hr_job_init)
 *   hr_run_create(g, plan, &run, &error); hr_run_step(run, learning_rate, &loss, &error);
 *
 * Values are rows x columns of F32; inputs are int32 [rows]. Errors while describing are sticky: a call that fails
 * gives
 * HR_NO_TENSOR, later calls do nothing, and hr_graph_plan reports the first error.
 *
 * Threads: calls on one hr_graph, and on one hr_run, must not overlap. A run has its own team of threads for the
 * thread that calls it. */
#ifndef HEADROOM_GRAPH_H
#define HEADROOM_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

#include <headroom/job.h>
#include <headroom/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hr_graph hr_graph;
typedef uint32_t hr_tensor;
#define HR_NO_TENSOR UINT32_MAX

HR_CHECKED hr_status hr_graph_create(hr_graph **graph, hr_error *error);
HR_API void hr_graph_destroy(hr_graph *graph);

/* int32 [rows], filled by the caller before each step (hr_run_input). */
HR_API hr_tensor hr_graph_input(hr_graph *graph, const char *name, uint64_t rows);
/* A trainable matrix [rows, columns], or a vector when columns is 0. init_std > 0: normal; 0: zeros; < 0: ones; finite.
 * `decay`: weight decay applies. Names must be unique. */
HR_API hr_tensor hr_graph_parameter(hr_graph *graph, const char *name, uint64_t rows, uint64_t columns, double init_std,
                                    bool decay);
/* A parameter that is not trained: nothing is kept for its gradient. */
HR_API hr_tensor hr_graph_frozen(hr_graph *graph, const char *name, uint64_t rows, uint64_t columns, double init_std);

/* Nodes from here on belong to layer `layer` (0-based; -1: outside of the layers): what --recompute levels speak of. */
HR_API void hr_graph_layer(hr_graph *graph, int32_t layer);

HR_API hr_tensor hr_graph_embed(hr_graph *graph, hr_tensor ids, hr_tensor table); /* [M] of [V,C] -> [M,C] */
HR_API hr_tensor hr_graph_linear(hr_graph *graph, hr_tensor x, hr_tensor weight,
                                 hr_tensor bias); /* [M,K] w[N,K] (b[N]|HR_NO_TENSOR) -> [M,N] */
HR_API hr_tensor hr_graph_norm(hr_graph *graph, hr_tensor x, hr_tensor weight, hr_tensor bias, hr_norm kind,
                               double epsilon);
HR_API hr_tensor hr_graph_add(hr_graph *graph, hr_tensor a, hr_tensor b);
HR_API hr_tensor hr_graph_activation(hr_graph *graph, hr_tensor x, hr_activation kind);
HR_API hr_tensor hr_graph_glu(hr_graph *graph, hr_tensor x,
                              hr_activation kind); /* [M,2F] -> [M,F], act(first half) * second */
/* Causal attention over rows [batch * sequence, (heads + 2 kv_heads) * head_size], q then k then v. */
HR_API hr_tensor hr_graph_attention(hr_graph *graph, hr_tensor qkv, uint32_t batch, uint32_t sequence, uint32_t heads,
                                    uint32_t kv_heads, uint32_t head_size, double scale);

/* The loss: mean cross entropy of hidden[M,C] . head[V,C]^T against targets[M] (negative = ignored), chunked as the job
 * says. Exactly one per graph. */
HR_API void hr_graph_loss(hr_graph *graph, hr_tensor hidden, hr_tensor head, hr_tensor targets);

/* Compiles and plans. Of `job`, the model is ignored and accumulate must be 1; device, budget, precision, moments,
 * weight packing, optimizer, recompute (not AUTO), loss chunk, clip, on_nonfinite, update, threads and check count.
 * Layers are those of hr_graph_layer: USAGE for a recompute.every or more levels than there are; where there are none,
 * recompute changes nothing. hr_job_finish need not be called. */
HR_CHECKED hr_status hr_graph_plan(const hr_graph *graph, const hr_job *job, hr_plan **plan, hr_error *error);

/* ---- running ---- */

typedef struct hr_run hr_run;

/* Reserves what the plan says and initialises the parameters from the job's seed. Graph and plan must outlive the
 * run; USAGE for another graph's plan. What is described after the plan was made is not in the run. */
HR_CHECKED hr_status hr_run_create(const hr_graph *graph, hr_plan *plan, hr_run **run, hr_error *error);
HR_API void hr_run_destroy(hr_run *run);
/* Where to write an input's rows, zeros to begin with; each step takes what stands there. Valid until destroy; NULL if
 * it is no input. */
HR_API int32_t *hr_run_input(hr_run *run, hr_tensor input);
/* One optimizer step on the inputs; *loss (may be NULL) is the mean over targets that count, NAN where none does (no gradient then).
 * INPUT when an id is out of range, of any table or head that its input goes to; USAGE for a learning rate that is
 * negative or not finite. DIVERGED when the loss, or where gradients are clipped their norm, is not finite, with *loss
 * set: the parameters are spoilt then, but in fp16, whose scaler passes over such a step; where the job's on_nonfinite is to skip
 * it is OK and changes nothing. */
HR_CHECKED hr_status hr_run_step(hr_run *run, double learning_rate, double *loss, hr_error *error);
/* The loss alone; it may be NULL. */
HR_CHECKED hr_status hr_run_evaluate(hr_run *run, double *loss, hr_error *error);
/* Copies a parameter's logical elements, row by row. USAGE when `count` is not their number. */
HR_CHECKED hr_status hr_run_get_parameter(const hr_run *run, hr_tensor parameter, float *values, uint64_t count,
                                          hr_error *error);
HR_CHECKED hr_status hr_run_set_parameter(hr_run *run, hr_tensor parameter, const float *values, uint64_t count,
                                          hr_error *error);
HR_API uint64_t hr_run_reserved_bytes(const hr_run *run, uint32_t tier);

#ifdef __cplusplus
}
#endif
#endif
