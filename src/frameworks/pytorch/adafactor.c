/* Both Adafactors (adafactor.h). Variables of the loop over parameters live until the next parameter binds them anew, which is why the
 * update of one is there while that of the next is made. */
#include "frameworks/pytorch/adafactor.h"

#include "frameworks/pytorch/device.h"

static void of_state(hri_torch *t, hri_ten **state, hri_ten *made) {
  hri_ten_role(t, made, HR_ROLE_OPTIMIZER_STATE);
  hri_ten_set(t, state, made);
}

/* tensor.norm(2) / numel ** 0.5 */
static hri_ten *rms(hri_torch *t) {
  hri_ten *norm = hri_ten_flat(t, "linalg_vector_norm", HRI_F32, 1), *y = hri_ten_flat(t, "div", HRI_F32, 1);
  hri_ten_drop(t, norm);
  return y;
}

static bool is_matrix(const hri_ten *p) { return p->shape.rank > 1; }

/* A sum over rows, of which there are many: one for each column. */
static hri_ten *of_columns(hri_torch *t, const hri_ten *p, hri_ten_type type) {
  return hri_ten_sum(t, type, hri_ten_shape_of(1, p->shape.dims[1], 0, 0, 0), p->shape.dims[0]);
}

/* ---- transformers ---- */

typedef struct variables {
  hri_ten *gradient, *wide, *update; /* gradient and parameter in fp32, where they are not */
} variables;

static void begin(hri_torch *t, const hri_adafactor *a, uint32_t i) {
  const hri_ten *p = a->parameters[i];
  if (a->rows[i]) return;
  if (!is_matrix(p)) {
    of_state(t, &a->rows[i], hri_ten_like(t, "zeros_like", p, HRI_F32));
    return;
  }
  of_state(t, &a->rows[i], hri_ten_flat(t, "_to_copy", HRI_F32, p->shape.dims[0]));
  of_state(t, &a->columns[i], hri_ten_flat(t, "_to_copy", HRI_F32, p->shape.dims[1]));
}

/* _approx_sq_grad */
static hri_ten *approximated(hri_torch *t, const hri_ten *p) {
  hri_ten *mean = hri_ten_flat(t, "mean", HRI_F32, 1), *row = hri_ten_flat(t, "div", HRI_F32, p->shape.dims[0]),
          *column, *y;
  hri_ten_drop(t, mean);
  column = hri_ten_flat(t, "rsqrt", HRI_F32, p->shape.dims[1]);
  y = hri_ten_like(t, "mul", p, HRI_F32);
  hri_ten_drop(t, row);
  hri_ten_drop(t, column);
  return y;
}

static void update_of(hri_torch *t, const hri_ten *p, variables *v) {
  hri_ten *square = hri_ten_like(t, "pow", p, HRI_F32), *shifted = hri_ten_like(t, "add", p, HRI_F32);
  hri_ten_drop(t, square);
  hri_ten_set(t, &v->update, shifted);
  if (!is_matrix(p)) {
    hri_ten_set(t, &v->update, hri_ten_like(t, "rsqrt", p, HRI_F32));
    return;
  }
  hri_ten_drop(t, hri_ten_flat(t, "mean", HRI_F32, p->shape.dims[0]));
  hri_ten_drop(t, of_columns(t, p, HRI_F32));
  hri_ten_set(t, &v->update, approximated(t, p));
}

static void step_one(hri_torch *t, const hri_adafactor *a, uint32_t i, variables *v) {
  const hri_ten *p = a->parameters[i];
  bool casts = p->type != HRI_F32;
  hri_ten *norm;
  hri_ten_set(t, &v->gradient, NULL);
  if (casts) v->gradient = hri_ten_like(t, "_to_copy", p, HRI_F32);
  begin(t, a, i);
  hri_ten_set(t, &v->wide, NULL);
  if (casts) v->wide = hri_ten_like(t, "_to_copy", p, HRI_F32);
  of_state(t, &a->norms[i], rms(t));
  update_of(t, p, v);
  norm = rms(t);
  hri_ten_drop(t, hri_ten_flat(t, "div", HRI_F32, 1));
  hri_ten_drop(t, norm);
  hri_ten_drop(t, hri_ten_like(t, "neg", p, HRI_F32));
}

void hri_adafactor_step(hri_torch *t, const hri_adafactor *a) {
  variables v = {0};
  for (uint32_t i = 0; i < a->count; i++)
    if (a->parameters[i]->grad) step_one(t, a, i, &v);
  hri_ten_drop(t, v.update);
  hri_ten_drop(t, v.wide);
  hri_ten_drop(t, v.gradient);
}

/* ---- torch.optim: all states first, in the parameters' type ---- */

static void begin_of_torch(hri_torch *t, const hri_adafactor *a, uint32_t i) {
  const hri_ten *p = a->parameters[i];
  if (a->rows[i]) return;
  if (!is_matrix(p)) {
    of_state(t, &a->rows[i], hri_ten_like(t, "zeros_like", p, p->type));
    return;
  }
  of_state(t, &a->rows[i], hri_ten_flat(t, "new_zeros", p->type, p->shape.dims[0]));
  of_state(t, &a->columns[i], hri_ten_flat(t, "new_zeros", p->type, p->shape.dims[1]));
}

typedef struct variables_of_torch {
  hri_ten *row_mean, *column_mean, *square, *estimate, *update;
} variables_of_torch;

static void estimate_of(hri_torch *t, const hri_ten *p, variables_of_torch *v) {
  if (!is_matrix(p)) {
    hri_ten_set(t, &v->square, hri_ten_like(t, "mul", p, p->type));
    hri_ten_set(t, &v->estimate, hri_ten_like(t, "clone", p, p->type));
    return;
  }
  hri_ten_set(t, &v->row_mean, hri_ten_flat(t, "linalg_vector_norm", p->type, p->shape.dims[0]));
  hri_ten_set(t, &v->column_mean, of_columns(t, p, p->type));
  hri_ten_set(t, &v->estimate, hri_ten_like(t, "mm", p, p->type));
  hri_ten_drop(t, hri_ten_flat(t, "mean", p->type, 1));
}

void hri_adafactor_step_of_torch(hri_torch *t, const hri_adafactor *a) {
  variables_of_torch v = {0};
  for (uint32_t i = 0; i < a->count; i++)
    if (a->parameters[i]->grad) begin_of_torch(t, a, i);
  for (uint32_t i = 0; i < a->count; i++) {
    const hri_ten *p = a->parameters[i];
    if (!p->grad) continue;
    hri_ten_drop(t, hri_ten_flat(t, "linalg_vector_norm", p->type, 1));
    estimate_of(t, p, &v);
    hri_ten_set(t, &v.update, hri_ten_keep(v.estimate)); /* clamped and square-rooted in place */
    hri_ten_drop(t, hri_ten_flat(t, "linalg_vector_norm", p->type, 1));
  }
  hri_ten *const all[] = {v.update, v.estimate, v.square, v.column_mean, v.row_mean};
  for (unsigned i = 0; i < sizeof all / sizeof *all; i++) hri_ten_drop(t, all[i]);
}
