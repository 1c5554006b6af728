/* Programs of the C API. Graphs record what was described; planning replays the record into a job, once per program,
 * and from there on a graph takes the way of a model: the same passes, plan and executor. Nobody above includes
 * anything of this folder. */
#include <headroom/graph.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "job/job.h"
#include "plan/plan.h"
#include "model/build.h"
#include "ops/rules.h"
#include "run/executor.h"
#include "train/weights.h"

typedef enum entry_kind { ENTRY_INPUT, ENTRY_PARAMETER, ENTRY_VALUE } entry_kind;

typedef struct entry { /* a tensor of the graph */
  entry_kind kind;
  char name[64];
  uint64_t rows, columns; /* columns 0: a vector */
  double init_std;
  bool decay, frozen, is_vocabulary;
  uint64_t limit;           /* of an input: what stands in it is below this, for each table or head that it goes to */
  bool is_targets, is_rows; /* of an input: of the loss; rows of a table, none of which is negative */
} entry;

typedef struct record { /* a node of the graph */
  hri_op op;
  hri_attr attr;
  hr_tensor in[4], out;
  int32_t layer;
  uint64_t out_rows[2], out_columns[2];
} record;

struct hr_graph {
  HRI_ARRAY(entry) tensors;
  HRI_ARRAY(record) nodes;
  int32_t layer;
  uint32_t layer_count;
  hr_tensor hidden, head, targets;
  hr_status status;
  hr_error error;
};

static bool ok(const hr_graph *g) { return g->status == HR_OK; }

#define GRAPH_FAIL(g, ...)                                                                                             \
  ((g)->status = (g)->status == HR_OK ? hri_fail(&(g)->error, HR_ERROR_USAGE, __VA_ARGS__) : (g)->status, HR_NO_TENSOR)

hr_status hr_graph_create(hr_graph **graph, hr_error *error) {
  hr_graph *g = hri_alloc_zero(1, sizeof *g);
  if (!g) return hri_fail_memory(error, sizeof *g, "a graph");
  g->layer = -1;
  g->hidden = g->head = g->targets = HR_NO_TENSOR;
  *graph = g;
  return HR_OK;
}

void hr_graph_destroy(hr_graph *g) {
  if (!g) return;
  hri_array_free(&g->tensors);
  hri_array_free(&g->nodes);
  hri_free(g);
}

static hr_tensor push(hr_graph *g, const entry *e) {
  if (!ok(g)) return HR_NO_TENSOR;
  if (!hri_array_push(&g->tensors, *e)) {
    g->status = hri_fail_memory(&g->error, sizeof *e, "a graph");
    return HR_NO_TENSOR;
  }
  return (hr_tensor)g->tensors.count - 1;
}

static hr_tensor push_named(hr_graph *g, entry *e, const char *name) {
  if (!ok(g)) return HR_NO_TENSOR;
  if (!name || !name[0] || strlen(name) >= sizeof e->name)
    return GRAPH_FAIL(g, "the name '%.80s' is empty or longer than 63 characters", name ? name : "");
  if (e->rows == 0 || e->rows > INT32_MAX || e->columns > INT32_MAX)
    return GRAPH_FAIL(g, "%s: the size %llu x %llu makes no sense", name, (unsigned long long)e->rows,
                      (unsigned long long)e->columns);
  for (size_t k = 0; k < g->tensors.count; k++)
    if (strcmp(g->tensors.items[k].name, name) == 0) return GRAPH_FAIL(g, "two tensors are named %s", name);
  (void)snprintf(e->name, sizeof e->name, "%s", name);
  return push(g, e);
}

hr_tensor hr_graph_input(hr_graph *g, const char *name, uint64_t rows) {
  entry e = {.kind = ENTRY_INPUT, .rows = rows, .limit = INT32_MAX};
  return push_named(g, &e, name);
}

static hr_tensor push_parameter(hr_graph *g, entry *e, const char *name) {
  if (ok(g) && !isfinite(e->init_std))
    return GRAPH_FAIL(g, "%.63s: init_std is %g; it must be finite", name ? name : "", e->init_std);
  return push_named(g, e, name);
}

hr_tensor hr_graph_parameter(hr_graph *g, const char *name, uint64_t rows, uint64_t columns, double init_std,
                             bool decay) {
  entry e = {.kind = ENTRY_PARAMETER, .rows = rows, .columns = columns, .init_std = init_std, .decay = decay};
  return push_parameter(g, &e, name);
}

hr_tensor hr_graph_frozen(hr_graph *g, const char *name, uint64_t rows, uint64_t columns, double init_std) {
  entry e = {.kind = ENTRY_PARAMETER, .rows = rows, .columns = columns, .init_std = init_std, .frozen = true};
  return push_parameter(g, &e, name);
}

void hr_graph_layer(hr_graph *g, int32_t layer) {
  if (layer >= HR_MAX_LAYERS || layer < -1) {
    (void)GRAPH_FAIL(g, "layer %d is outside of [-1, %d)", layer, HR_MAX_LAYERS);
    return;
  }
  g->layer = layer;
  if (layer >= 0 && (uint32_t)layer + 1 > g->layer_count) g->layer_count = (uint32_t)layer + 1;
}

/* ---- ops ---- */

static const entry *get(hr_graph *g, hr_tensor t) {
  if (!ok(g)) return NULL;
  if (t >= g->tensors.count) {
    (void)GRAPH_FAIL(g, "a tensor that this graph does not have is used");
    return NULL;
  }
  return &g->tensors.items[t];
}

#define GRAPH_NEED(g, condition, ...)                                                                                  \
  do {                                                                                                                 \
    if (ok(g) && !(condition)) (void)GRAPH_FAIL(g, __VA_ARGS__);                                                       \
    if (!ok(g)) return HR_NO_TENSOR;                                                                                   \
  } while (0)

/* What stands in an input is below `rows` from here on, whatever else it goes to. */
static void limit_to(hr_graph *g, hr_tensor input, uint64_t rows) {
  if (rows < g->tensors.items[input].limit) g->tensors.items[input].limit = rows;
}

static hr_tensor record_node(hr_graph *g, record r, uint64_t rows, uint64_t columns) {
  entry e = {.kind = ENTRY_VALUE, .rows = rows, .columns = columns};
  if (!ok(g)) return HR_NO_TENSOR;
  r.out = (hr_tensor)g->tensors.count;
  r.layer = g->layer;
  r.out_rows[0] = rows;
  r.out_columns[0] = columns;
  if (!hri_array_push(&g->nodes, r)) {
    g->status = hri_fail_memory(&g->error, sizeof r, "a graph");
    return HR_NO_TENSOR;
  }
  return push(g, &e);
}

hr_tensor hr_graph_embed(hr_graph *g, hr_tensor ids, hr_tensor table) {
  const entry *i = get(g, ids), *t = get(g, table);
  if (!i || !t) return HR_NO_TENSOR;
  GRAPH_NEED(g, i->kind == ENTRY_INPUT && t->kind == ENTRY_PARAMETER && t->columns,
             "embed takes an input and a matrix parameter");
  limit_to(g, ids, t->rows);
  g->tensors.items[ids].is_rows = true;
  return record_node(g,
                     (record){.op = HRI_OP_EMBED,
                              .attr = {.i = {-1}, .f = {1}},
                              .in = {ids, table, HR_NO_TENSOR, HR_NO_TENSOR}},
                     i->rows, t->columns);
}

hr_tensor hr_graph_linear(hr_graph *g, hr_tensor x, hr_tensor weight, hr_tensor bias) {
  const entry *a = get(g, x), *w = get(g, weight), *b = bias == HR_NO_TENSOR ? NULL : get(g, bias);
  if (!a || !w) return HR_NO_TENSOR;
  GRAPH_NEED(g, !w->is_vocabulary,
             "linear: %s is the head of the loss; the head's rows are padded, so it needs a parameter of its own",
             w->name);
  GRAPH_NEED(g, w->kind == ENTRY_PARAMETER && a->kind == ENTRY_VALUE, "linear takes a value and a parameter");
  GRAPH_NEED(g, w->columns == a->columns, "linear: x has %llu columns and the weight takes %llu",
             (unsigned long long)a->columns, (unsigned long long)w->columns);
  GRAPH_NEED(g, !b || (b->kind == ENTRY_PARAMETER && b->rows == w->rows && b->columns == 0),
             "linear: the bias must be a parameter, a vector of %llu", (unsigned long long)w->rows);
  return record_node(g, (record){.op = HRI_OP_LINEAR, .in = {x, weight, bias, HR_NO_TENSOR}}, a->rows, w->rows);
}

hr_tensor hr_graph_norm(hr_graph *g, hr_tensor x, hr_tensor weight, hr_tensor bias, hr_norm kind, double epsilon) {
  const entry *a = get(g, x), *w = get(g, weight), *b = bias == HR_NO_TENSOR ? NULL : get(g, bias);
  if (!a || !w) return HR_NO_TENSOR;
  GRAPH_NEED(g, a->kind == ENTRY_VALUE && w->kind == ENTRY_PARAMETER && (!b || b->kind == ENTRY_PARAMETER),
             "norm takes a value and parameters");
  GRAPH_NEED(g, bias != weight || w->frozen,
             "norm: %s cannot be weight and bias at once: its gradient would be written twice", w->name);
  GRAPH_NEED(g, w->columns == 0 && w->rows == a->columns && (!b || (b->columns == 0 && b->rows == a->columns)),
             "norm: weight and bias must be vectors of %llu", (unsigned long long)a->columns);
  GRAPH_NEED(g, epsilon >= 0 && isfinite(epsilon) && (kind == HR_NORM_LAYER || kind == HR_NORM_RMS),
             "norm: unknown kind, or an epsilon that is negative or not finite");
  return record_node(g,
                     (record){.op = HRI_OP_NORM,
                              .attr = {.i = {kind}, .f = {epsilon}},
                              .in = {x, weight, bias, HR_NO_TENSOR}},
                     a->rows, a->columns);
}

hr_tensor hr_graph_add(hr_graph *g, hr_tensor a, hr_tensor b) {
  const entry *x = get(g, a), *y = get(g, b);
  if (!x || !y) return HR_NO_TENSOR;
  GRAPH_NEED(g, x->kind == ENTRY_VALUE && y->kind == ENTRY_VALUE && x->rows == y->rows && x->columns == y->columns,
             "add: the shapes differ");
  return record_node(g, (record){.op = HRI_OP_ADD, .in = {a, b, HR_NO_TENSOR, HR_NO_TENSOR}}, x->rows, x->columns);
}

static bool is_activation(hr_activation kind) { return (unsigned)kind < HR_ACTIVATION_COUNT; }

hr_tensor hr_graph_activation(hr_graph *g, hr_tensor x, hr_activation kind) {
  const entry *a = get(g, x);
  if (!a) return HR_NO_TENSOR;
  GRAPH_NEED(g, a->kind == ENTRY_VALUE && is_activation(kind), "activation takes a value and a known kind");
  return record_node(g,
                     (record){.op = HRI_OP_ACTIVATION,
                              .attr = {.i = {kind}},
                              .in = {x, HR_NO_TENSOR, HR_NO_TENSOR, HR_NO_TENSOR}},
                     a->rows, a->columns);
}

hr_tensor hr_graph_glu(hr_graph *g, hr_tensor x, hr_activation kind) {
  const entry *a = get(g, x);
  if (!a) return HR_NO_TENSOR;
  GRAPH_NEED(g, a->kind == ENTRY_VALUE && a->columns % 2 == 0 && is_activation(kind),
             "glu needs an even number of columns and a known kind");
  return record_node(g,
                     (record){.op = HRI_OP_GLU,
                              .attr = {.i = {kind}},
                              .in = {x, HR_NO_TENSOR, HR_NO_TENSOR, HR_NO_TENSOR}},
                     a->rows, a->columns / 2);
}

hr_tensor hr_graph_attention(hr_graph *g, hr_tensor qkv, uint32_t batch, uint32_t sequence, uint32_t heads,
                             uint32_t kv_heads, uint32_t head_size, double scale) {
  const entry *a = get(g, qkv);
  if (!a) return HR_NO_TENSOR;
  GRAPH_NEED(g, heads && kv_heads && head_size && heads % kv_heads == 0,
             "attention: %u heads cannot share %u key-value heads", heads, kv_heads);
  GRAPH_NEED(g,
             a->kind == ENTRY_VALUE && a->rows == (uint64_t)batch * sequence &&
                 a->columns == ((uint64_t)heads + 2 * (uint64_t)kv_heads) * head_size,
             "attention: the rows of q, k, v do not fit the heads");
  GRAPH_NEED(g, isfinite(scale), "attention: the scale is %g", scale);
  return record_node(g,
                     (record){.op = HRI_OP_ATTENTION,
                              .attr = {.i = {batch, sequence, heads, kv_heads, head_size, 0}, .f = {scale}},
                              .in = {qkv, HR_NO_TENSOR, HR_NO_TENSOR, HR_NO_TENSOR},
                              .out_rows = {0, a->rows},
                              .out_columns = {0, heads}},
                     a->rows, (uint64_t)heads * head_size);
}

static bool is_linear_weight(const hr_graph *g, hr_tensor t) {
  for (size_t k = 0; k < g->nodes.count; k++)
    if (g->nodes.items[k].op == HRI_OP_LINEAR && g->nodes.items[k].in[1] == t) return true;
  return false;
}

void hr_graph_loss(hr_graph *g, hr_tensor hidden, hr_tensor head, hr_tensor targets) {
  const entry *h = get(g, hidden), *w = get(g, head), *t = get(g, targets);
  if (!h || !w || !t) return;
  if (g->hidden != HR_NO_TENSOR) (void)GRAPH_FAIL(g, "a graph has one loss");
  else if (h->kind != ENTRY_VALUE || w->kind != ENTRY_PARAMETER || t->kind != ENTRY_INPUT || w->columns != h->columns ||
           t->rows != h->rows)
    (void)GRAPH_FAIL(g, "loss: hidden [M,C], head [V,C] and targets [M] do not fit");
  else if (is_linear_weight(g, head))
    (void)GRAPH_FAIL(
        g,
        "loss: the head %s is also the weight of a linear; the head's rows are padded, so it needs a parameter of its own",
        w->name);
  else {
    g->hidden = hidden;
    g->head = head;
    g->targets = targets;
    g->tensors.items[head].is_vocabulary = true;
    g->tensors.items[targets].is_targets = true;
    limit_to(g, targets, w->rows);
  }
}

/* ---- planning ---- */

typedef struct replay {
  const hr_graph *graph;
  hri_job *job;
  hri_id *map; /* per graph tensor: job tensor in the program at hand */
  uint16_t all;
} replay;

static void make_leaves(replay *r, const hr_job *spec) {
  for (uint32_t k = 0; k < r->graph->tensors.count && !r->job->failed; k++) {
    const entry *e = &r->graph->tensors.items[k];
    if (e->kind == ENTRY_INPUT) {
      hri_place place = {.scope = (uint16_t)(HRI_IN(HRI_STEP) | HRI_IN(HRI_EVALUATE)),
                         .tier = HRI_DEVICE,
                         .role = HRI_ROLE_INPUT,
                         .layer = -1,
                         .unit = HRI_NONE};
      r->map[k] = hri_tensor_new(r->job, place, hri_name(r->job, "%s", e->name), HRI_I32, 1, &e->rows, NULL);
    } else if (e->kind == ENTRY_PARAMETER) {
      hri_part_request all = {.name = e->name,
                              .rows = e->rows,
                              .trainable = !e->frozen,
                              .decay = e->decay,
                              .state_kind = hri_state_kind(spec->optimizer, e->rows * (e->columns ? e->columns : 1),
                                                           false, true)};
      hri_param_request p = {.name = e->name,
                             .layer = -1,
                             .unit = HRI_NONE,
                             .rank = e->columns ? 2 : 1,
                             .dims = {e->rows, e->columns},
                             .stored = {e->rows, e->columns},
                             .parts = &all,
                             .part_count = 1,
                             .init = e->init_std > 0   ? HRI_INIT_NORMAL
                                     : e->init_std < 0 ? HRI_INIT_ONES
                                                       : HRI_INIT_ZEROS,
                             .init_std = e->init_std,
                             .spec = HRI_NONE,
                             .site = (uint32_t)r->job->params.count};
      uint32_t index;
      if (e->is_vocabulary) p.stored[0] = hri_round_up(e->rows, HRI_VOCABULARY_ALIGN);
      index = hri_build_parameter(r->job, spec, &p);
      r->map[k] = index == HRI_NONE ? HRI_NONE : r->job->params.items[index].weight;
    }
  }
}

static hri_id output(replay *r, const hri_emit *emit, const record *n, uint32_t which) {
  hri_place place = {.program = emit->program,
                     .tier = HRI_DEVICE,
                     .role = HRI_ROLE_ACTIVATION,
                     .layer = emit->layer,
                     .unit = emit->unit};
  uint64_t dims[2] = {n->out_rows[which], n->out_columns[which]};
  return hri_tensor_new(r->job, place,
                        hri_name(r->job, "%s.%u", hri_op_name((uint16_t)n->op), (uint32_t)(n - r->graph->nodes.items)),
                        HRI_F32, 2, dims, NULL);
}

static hri_id in(const replay *r, const record *n, uint32_t k) {
  return n->in[k] == HR_NO_TENSOR ? HRI_NONE : r->map[n->in[k]];
}

static void replay_node(replay *r, uint8_t program, uint32_t index) {
  const record *n = &r->graph->nodes.items[index];
  hri_emit emit = {.program = program,
                   .lane = HRI_COMPUTE,
                   .phase = program == HRI_EVALUATE ? HRI_PHASE_EVALUATE : HRI_PHASE_FORWARD,
                   .layer = n->layer,
                   .unit = n->layer >= 0 ? 1 + (uint32_t)n->layer : 0,
                   .site = (1u << 16) + index,
                   .origin = HRI_NONE};
  hri_id y = output(r, &emit, n, 0);
  record stats = *n;
  switch (n->op) {
  case HRI_OP_EMBED:
    hri_node_append(r->job, HRI_OP_EMBED, emit, &n->attr,
                    (hri_operand[]){HRI_R(in(r, n, 0)), HRI_R(in(r, n, 1)), HRI_ABSENT, HRI_ABSENT, HRI_W(y)}, 5);
    break;
  case HRI_OP_LINEAR:
    hri_node_append(r->job, HRI_OP_LINEAR, emit, NULL,
                    (hri_operand[]){HRI_R(in(r, n, 0)), HRI_R(in(r, n, 1)), HRI_R(in(r, n, 2)), HRI_W(y)}, 4);
    break;
  case HRI_OP_NORM: {
    hri_place place = {.program = program,
                       .tier = HRI_DEVICE,
                       .role = HRI_ROLE_ACTIVATION,
                       .layer = emit.layer,
                       .unit = emit.unit};
    uint64_t dims[2] = {n->out_rows[0], n->attr.i[0] == HR_NORM_LAYER ? 2 : 1};
    hri_id stats_id = hri_tensor_new(r->job, place, hri_name(r->job, "stats.%u", index), HRI_F32, 2, dims, NULL);
    hri_node_append(r->job, HRI_OP_NORM, emit, &n->attr,
                    (hri_operand[]){HRI_R(in(r, n, 0)),
                                    HRI_R(in(r, n, 1)),
                                    HRI_R(in(r, n, 2)),
                                    HRI_ABSENT,
                                    {HRI_NONE, HRI_WRITE},
                                    HRI_W(y),
                                    HRI_W(stats_id)},
                    7);
    break;
  }
  case HRI_OP_ADD:
    hri_node_append(r->job, HRI_OP_ADD, emit, NULL, (hri_operand[]){HRI_R(in(r, n, 0)), HRI_R(in(r, n, 1)), HRI_W(y)},
                    3);
    break;
  case HRI_OP_ATTENTION:
    stats.out_rows[0] = n->out_rows[1];
    stats.out_columns[0] = n->out_columns[1];
    {
      hri_place place = {.program = program,
                         .tier = HRI_DEVICE,
                         .role = HRI_ROLE_ACTIVATION,
                         .layer = emit.layer,
                         .unit = emit.unit};
      uint64_t dims[2] = {stats.out_rows[0], stats.out_columns[0]};
      hri_id lse = hri_tensor_new(r->job, place, hri_name(r->job, "lse.%u", index), HRI_F32, 2, dims, NULL);
      hri_node_append(r->job, HRI_OP_ATTENTION, emit, &n->attr,
                      (hri_operand[]){HRI_R(in(r, n, 0)), HRI_ABSENT, HRI_W(y), HRI_W(lse), HRI_ABSENT}, 5);
    }
    break;
  default:
    hri_node_append(r->job, (uint16_t)n->op, emit, &n->attr, (hri_operand[]){HRI_R(in(r, n, 0)), HRI_W(y)}, 2);
    break;
  }
  r->map[n->out] = y;
}

static hr_status build(void *context, hri_job *job, const hr_job *spec, hri_forward *forwards, hr_error *error) {
  const hr_graph *g = context;
  replay r = {.graph = g, .job = job, .all = hri_programs_of(spec)};
  static const uint8_t programs[2] = {HRI_STEP, HRI_EVALUATE};
  r.map = hri_alloc(g->tensors.count * sizeof *r.map + 1);
  if (!r.map) return hri_fail_memory(error, g->tensors.count * sizeof *r.map, "the graph");
  memset(r.map, 0xFF, g->tensors.count * sizeof *r.map);
  memset(forwards, 0, HRI_PROGRAM_COUNT * sizeof *forwards);
  hri_build_control(job, r.all);
  make_leaves(&r, spec);
  for (int p = 0; p < 2; p++) {
    for (uint32_t k = 0; k < g->nodes.count && !job->failed; k++) replay_node(&r, programs[p], k);
    if (job->failed) break;
    forwards[programs[p]] = (hri_forward){.present = true,
                                          .program = programs[p],
                                          .hidden = r.map[g->hidden],
                                          .targets = r.map[g->targets],
                                          .head = r.map[g->head],
                                          .head_bias = HRI_NONE,
                                          .vocabulary = g->tensors.items[g->head].rows,
                                          .unit = 0,
                                          .with_gradient = programs[p] == HRI_STEP};
  }
  for (uint32_t k = 0; k < g->tensors.count; k++) /* inputs keep their id: the run asks for it */
    if (g->tensors.items[k].kind == ENTRY_INPUT && g->tensors.items[k].is_targets) job->input_targets = r.map[k];
  hri_free(r.map);
  return hri_job_ok(job, error);
}

static bool trains(const hr_graph *g) {
  for (uint32_t k = 0; k < g->tensors.count; k++)
    if (g->tensors.items[k].kind == ENTRY_PARAMETER && !g->tensors.items[k].frozen) return true;
  return false;
}

/* What went wrong while the graph was described, if anything did. */
static hr_status described(const hr_graph *g, hr_error *error) {
  if (!ok(g) && error) *error = g->error;
  return g->status;
}

hr_status hr_graph_plan(const hr_graph *g, const hr_job *job, hr_plan **plan, hr_error *error) {
  hr_job spec = *job;
  HRI_TRY(described(g, error));
  if (g->hidden == HR_NO_TENSOR) return hri_fail(error, HR_ERROR_USAGE, "the graph has no loss: call hr_graph_loss");
  if (!trains(g)) {
    hri_fail(error, HR_ERROR_USAGE, "the graph has nothing to train: all of its parameters are frozen");
    return hri_hint(error, HR_ERROR_USAGE, "make one of them by hr_graph_parameter");
  }
  if (spec.accumulate > 1)
    return hri_fail(error, HR_ERROR_USAGE, "graphs take one micro-step per step; accumulate is %u", spec.accumulate);
  if (spec.recompute.kind == HR_RECOMPUTE_AUTO)
    return hri_fail(error, HR_ERROR_USAGE, "levels of recomputation are not chosen for graphs; give them");
  if (spec.moments != HR_MOMENTS_FP32 && spec.precision != HR_PRECISION_BF16_PURE)
    return hri_fail(error, HR_ERROR_USAGE, "bf16 moments go with the precision bf16-pure");
  memset(&spec.model, 0, sizeof spec.model);
  spec.model.layer_count = g->layer_count;
  spec.model.vocabulary_size = (uint32_t)g->tensors.items[g->head].rows;
  (void)snprintf(spec.model.name, sizeof spec.model.name, "graph");
  spec.purpose = HR_PURPOSE_TRAIN;
  spec.with_generation = false;
  spec.micro_batch = spec.accumulate = 1;
  spec.sequence_length = (uint32_t)g->tensors.items[g->targets].rows;
  HRI_TRY(hri_job_finish_graph(&spec, error));
  return hri_plan_create_with(&spec, NULL, build, (void *)(uintptr_t)g, plan, error);
}

/* ---- running ---- */

struct hr_run {
  const hr_graph *graph;
  hr_plan *plan;
  hri_executor *executor;
  hri_transfer transfer;
  int32_t **inputs;      /* per graph tensor: what the caller fills; NULL where it is no input */
  uint32_t tensor_count; /* of the graph as it was planned: what is described later is not in the run */
};

static hr_status fill(void *context, uint32_t range, uint32_t what, const hri_window *tensor, void *staging,
                      uint64_t bytes, hr_error *error) {
  hr_run *run = context;
  const hri_job *job = &run->plan->job;
  const hri_param_range *r = &job->ranges.items[range];
  const hri_tensor *t = &job->tensors.items[hri_moved_tensor(job, r, what)];
  const uint8_t dtype = hri_moved_dtype(job, r, what);
  const hri_elements *with = &run->plan->backend->elements;
  HRI_TRY(hri_window_zero(with, tensor, 0, hri_dtype_size((hri_dtype)dtype, hri_tensor_stored_elements(t)), staging,
                          bytes, error));
  if (what != HRI_MOVED_WEIGHT) return HR_OK;
  return hri_initialise(with, job, range, run->plan->spec.seed, hri_dtype_real(dtype), tensor, staging, bytes, error);
}

static hr_status sink(void *context, uint32_t range, uint32_t what, const hri_window *tensor, void *staging,
                      uint64_t bytes, hr_error *error) {
  (void)context, (void)range, (void)what, (void)tensor, (void)staging, (void)bytes;
  return hri_fail(error, HR_ERROR_UNSUPPORTED, "graphs are read with hr_run_get_parameter");
}

/* Leaves keep their order: the k-th input of the graph is the k-th tensor of role input that the host fills; of a
 * parameter the index. */
static hri_id leaf(const hr_graph *g, const hri_job *job, hr_tensor tensor, entry_kind kind) {
  uint32_t index = 0, seen = 0;
  if (g->tensors.items[tensor].kind != kind) return HRI_NONE;
  for (hr_tensor k = 0; k < tensor; k++) index += g->tensors.items[k].kind == kind;
  if (kind == ENTRY_PARAMETER) return index < job->params.count ? index : HRI_NONE;
  for (hri_id t = 0; t < job->tensors.count; t++) {
    const hri_tensor *x = &job->tensors.items[t];
    const hri_storage *s = &job->storages.items[x->storage];
    if (s->role == HRI_ROLE_INPUT && s->scope && x->dtype == HRI_I32 && x->rank == 1 && x->offset == 0 &&
        hri_tensor_bytes(x) == s->bytes && seen++ == index)
      return t;
  }
  return HRI_NONE;
}

/* Each input and parameter is found in the plan by its place there, so both must be of this graph as it is. */
static hr_status check_plan(const hr_graph *g, const hri_job *job, hr_error *error) {
  HRI_TRY(described(g, error));
  if (g->hidden == HR_NO_TENSOR)
    return hri_fail(error, HR_ERROR_USAGE,
                    "the graph has no loss, so the plan is not of this graph: call hr_graph_loss, then hr_graph_plan");
  for (hr_tensor k = 0; k < g->tensors.count; k++) {
    const entry *e = &g->tensors.items[k];
    const hri_tensor *t;
    hri_id id;
    if (e->kind == ENTRY_VALUE) continue;
    id = leaf(g, job, k, e->kind);
    if (id != HRI_NONE && e->kind == ENTRY_PARAMETER) id = job->params.items[id].weight;
    t = id == HRI_NONE ? NULL : &job->tensors.items[id];
    if (t && strcmp(hri_name_get(job, t->key), e->name) == 0 && t->dims[0] == e->rows &&
        hri_tensor_elements(t) == e->rows * (e->columns ? e->columns : 1))
      continue;
    hri_fail(error, HR_ERROR_USAGE,
             "the plan has no %s %s: it is another graph's, or this one's before it was described",
             e->kind == ENTRY_INPUT ? "input" : "parameter", e->name);
    return hri_hint(error, HR_ERROR_USAGE, "describe all of the graph, then call hr_graph_plan, then hr_run_create");
  }
  return HR_OK;
}

static hr_status make_inputs(hr_run *run, hr_error *error) {
  const hr_graph *g = run->graph;
  run->inputs = hri_alloc_zero(g->tensors.count + 1, sizeof *run->inputs);
  run->tensor_count = run->inputs ? (uint32_t)g->tensors.count : 0;
  for (uint32_t k = 0; k < run->tensor_count; k++) {
    const entry *e = &g->tensors.items[k];
    if (e->kind != ENTRY_INPUT) continue;
    run->inputs[k] = hri_alloc_zero(e->rows, sizeof **run->inputs);
    if (!run->inputs[k]) return hri_fail_memory(error, e->rows * sizeof **run->inputs, "the inputs of a run");
  }
  return run->inputs ? HR_OK : hri_fail_memory(error, g->tensors.count * sizeof *run->inputs, "the inputs of a run");
}

hr_status hr_run_create(const hr_graph *g, hr_plan *plan, hr_run **out, hr_error *error) {
  hri_executor_options options = {.check = plan->spec.check};
  hri_control control = {.loss_scale = plan->spec.precision == HR_PRECISION_FP16 ? plan->spec.loss_scale : 1,
                         .clip_scale = 1,
                         .clip_norm = plan->spec.clip,
                         .seed = plan->spec.seed};
  hr_run *run;
  hr_status status;
  HRI_TRY(hr_plan_verdict(plan, error));
  HRI_TRY(check_plan(g, &plan->job, error));
  if (!hri_backend_runs(plan->backend))
    return hri_fail(error, HR_ERROR_UNSUPPORTED, "%s can be planned for; programs run on cpu and cuda",
                    plan->spec.device.name);
  run = hri_alloc_zero(1, sizeof *run);
  if (!run) return hri_fail_memory(error, sizeof *run, "a run");
  run->graph = g;
  run->plan = plan;
  run->transfer = (hri_transfer){.context = run, .fill = fill, .sink = sink};
  status = make_inputs(run, error);
  if (status == HR_OK)
    status = hri_executor_create(&plan->job, &plan->placement, plan->backend, &run->transfer, &options, &run->executor,
                                 error);
  if (status == HR_OK) {
    hri_executor_control_set(run->executor, 0, &control, sizeof control);
    status = hri_executor_run(run->executor, HRI_LOAD, error);
  }
  if (status != HR_OK) {
    hr_run_destroy(run);
    return status;
  }
  *out = run;
  return HR_OK;
}

void hr_run_destroy(hr_run *run) {
  if (!run) return;
  hri_executor_destroy(run->executor);
  for (uint32_t k = 0; k < run->tensor_count; k++) hri_free(run->inputs[k]);
  hri_free(run->inputs);
  hri_free(run);
}

int32_t *hr_run_input(hr_run *run, hr_tensor input) { return input < run->tensor_count ? run->inputs[input] : NULL; }

/* Looks at what the caller filled, and hands it to the program that is launched next. */
static hr_status put_inputs(hr_run *run, uint64_t *counted, hr_error *error) {
  const hr_graph *g = run->graph;
  *counted = 0;
  for (hr_tensor k = 0; k < run->tensor_count; k++) {
    const entry *e = &g->tensors.items[k];
    const int32_t *values;
    hri_id id;
    if (e->kind != ENTRY_INPUT) continue;
    values = hr_run_input(run, k);
    id = leaf(g, &run->plan->job, k, ENTRY_INPUT);
    for (uint64_t r = 0; r < e->rows; r++) {
      if (e->is_targets && values[r] >= 0) (*counted)++;
      if ((values[r] < 0 && (e->is_rows || !e->is_targets)) || (values[r] >= 0 && (uint64_t)values[r] >= e->limit))
        return hri_fail(error, HR_ERROR_INPUT, "input %s: row %llu is %d, outside of [0, %llu)", e->name,
                        (unsigned long long)r, values[r], (unsigned long long)e->limit);
    }
    if (hri_executor_has(run->executor, id))
      HRI_TRY(hri_executor_write(run->executor, id, 0, values, e->rows * sizeof *values, error));
  }
  return HR_OK;
}

static hr_status run_one(hr_run *run, hri_program_kind program, double learning_rate, double *loss, hr_error *error) {
  uint64_t counted;
  HRI_TRY(put_inputs(run, &counted, error));
  HRI_CONTROL_SET(run->executor, learning_rate, learning_rate);
  HRI_CONTROL_SET(run->executor, inv_tokens, counted ? 1.0 / (double)counted : 0);
  HRI_CONTROL_SET(run->executor, clip_scale, 1);
  HRI_CONTROL_SET(run->executor, loss_sum, 0);
  HRI_TRY(hri_executor_run(run->executor, program, error));
  *loss = counted ? hri_executor_control(run->executor)->loss_sum / (double)counted : NAN;
  return HR_OK;
}

/* What hr_train ends a run for. A skipped step left all as it was, so only a loss that no scale mends ends it. */
static hr_status settle(const hr_run *run, double loss, hr_error *error) {
  const hri_control *c = hri_executor_control(run->executor);
  const hr_job *job = &run->plan->spec;
  bool skipped = hri_job_skips(job) && c->found_inf != 0;
  hr_status status;
  if (c->inv_tokens == 0 || (skipped && (isfinite(loss) || job->on_nonfinite == HR_ON_NONFINITE_SKIP))) return HR_OK;
  if (isfinite(loss) && (job->clip <= 0 || isfinite(c->grad_norm))) return HR_OK;
  status = hri_fail(error, HR_ERROR_DIVERGED, "the step diverged: its %s not finite (loss %g, learning rate %g)",
                    isfinite(loss) ? "gradients are" : "loss is", loss, c->learning_rate);
  return hri_hint(error, status, "%s",
                  skipped ? "weights and states are those of the step before"
                          : "set the parameters again, or make another run, and go on with a lower learning rate");
}

hr_status hr_run_step(hr_run *run, double learning_rate, double *loss, hr_error *error) {
  double mean;
  if (!isfinite(learning_rate) || learning_rate < 0)
    return hri_fail(error, HR_ERROR_USAGE, "the learning rate is %g; it must be finite and not negative",
                    learning_rate);
  HRI_TRY(run_one(run, HRI_STEP, learning_rate, &mean, error));
  if (loss) *loss = mean;
  return settle(run, mean, error);
}
hr_status hr_run_evaluate(hr_run *run, double *loss, hr_error *error) {
  double mean;
  HRI_TRY(run_one(run, HRI_EVALUATE, 0, &mean, error));
  if (loss) *loss = mean;
  return HR_OK;
}

static hr_status parameter(const hr_run *run, hr_tensor tensor, uint64_t count, const hri_param **param,
                           hr_error *error) {
  hri_id id = tensor < run->tensor_count ? leaf(run->graph, &run->plan->job, tensor, ENTRY_PARAMETER) : HRI_NONE;
  if (id == HRI_NONE) return hri_fail(error, HR_ERROR_USAGE, "this tensor is no parameter");
  *param = &run->plan->job.params.items[id];
  id = (*param)->weight;
  if (hri_tensor_elements(&run->plan->job.tensors.items[id]) != count)
    return hri_fail(error, HR_ERROR_USAGE, "the parameter has %llu elements, not %llu",
                    (unsigned long long)hri_tensor_elements(&run->plan->job.tensors.items[id]),
                    (unsigned long long)count);
  return HR_OK;
}

enum { PIECE = 1024 }; /* values of 16 bits on their way */

hr_status hr_run_get_parameter(const hr_run *run, hr_tensor tensor, float *values, uint64_t count, hr_error *error) {
  const hri_param *param;
  uint16_t halves[PIECE], low[PIECE];
  HRI_TRY(parameter(run, tensor, count, &param, error));
  const hri_job *job = &run->plan->job;
  const hri_param_range *range = hri_param_whole(job, param);
  const hri_id from = hri_moved_tensor(job, range, HRI_MOVED_WEIGHT);
  const uint8_t dtype = job->tensors.items[from].dtype;
  const bool split = hri_range_split(job, range);
  if (dtype == HRI_F32) return hri_executor_read(run->executor, from, 0, values, count * sizeof *values, error);
  for (uint64_t done = 0; done < count; done += PIECE) {
    uint64_t n = count - done < PIECE ? count - done : PIECE;
    HRI_TRY(hri_executor_read(run->executor, from, done * sizeof *halves, halves, n * sizeof *halves, error));
    if (split) {
      HRI_TRY(hri_executor_read(run->executor, range->master, done * sizeof *low, low, n * sizeof *low, error));
      for (uint64_t i = 0; i < n; i++) values[done + i] = hri_join(halves[i], low[i]);
    } else {
      (dtype == HRI_F16 ? hri_f32_from_f16 : hri_f32_from_bf16)(values + done, halves, n);
    }
  }
  return HR_OK;
}

hr_status hr_run_set_parameter(hr_run *run, hr_tensor tensor, const float *values, uint64_t count, hr_error *error) {
  const hri_param *param;
  uint16_t halves[PIECE], low[PIECE];
  HRI_TRY(parameter(run, tensor, count, &param, error));
  const hri_job *job = &run->plan->job;
  const hri_param_range *range = hri_param_whole(job, param);
  const hri_id to = hri_moved_tensor(job, range, HRI_MOVED_WEIGHT);
  const uint8_t dtype = job->tensors.items[param->weight].dtype;
  const bool split = hri_range_split(job, range);
  if (job->tensors.items[to].dtype == HRI_F32)
    HRI_TRY(hri_executor_write(run->executor, to, 0, values, count * sizeof *values, error));
  for (uint64_t done = 0; dtype != HRI_F32 && done < count; done += PIECE) {
    uint64_t n = count - done < PIECE ? count - done : PIECE;
    if (split) {
      for (uint64_t i = 0; i < n; i++) halves[i] = hri_split(values[done + i], &low[i]);
      HRI_TRY(hri_executor_write(run->executor, range->master, done * sizeof *low, low, n * sizeof *low, error));
    } else {
      (dtype == HRI_F16 ? hri_f16_from_f32 : hri_bf16_from_f32)(halves, values + done, n);
    }
    HRI_TRY(hri_executor_write(run->executor, param->weight, done * sizeof *halves, halves, n * sizeof *halves, error));
  }
  return HR_OK;
}

uint64_t hr_run_reserved_bytes(const hr_run *run, uint32_t tier) {
  return tier < HR_TIER_COUNT ? hri_executor_reserved_bytes(run->executor, (hri_tier)tier) : 0;
}
