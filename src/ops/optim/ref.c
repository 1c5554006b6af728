#include "ops/optim/ref.h"

#include <stddef.h>
#include <tgmath.h>

#include "ops/reference.h"

HRI_REF_API HRI_REAL HRI_REF(square_sum)(const HRI_REAL *g, int64_t n) {
  HRI_REAL sum = 0;
  for (int64_t i = 0; i < n; i++) sum += g[i] * g[i];
  return sum;
}

/* AdamW (Loshchilov and Hutter, 2019), step t from 1. */
static void HRI_REF(adamw)(HRI_REAL *w, HRI_REAL *m, HRI_REAL *v, const HRI_REAL *g, int64_t n,
                           const hri_update_numbers *numbers) {
  HRI_REAL learning_rate = (HRI_REAL)numbers->learning_rate, beta1 = (HRI_REAL)numbers->number[0],
           beta2 = (HRI_REAL)numbers->number[1];
  HRI_REAL epsilon = (HRI_REAL)numbers->number[2], weight_decay = (HRI_REAL)numbers->weight_decay,
           gradient_scale = (HRI_REAL)numbers->gradient_scale;
  /* the factors in double, as PyTorch has them */
  HRI_REAL bias1 = (HRI_REAL)(1 - pow((double)beta1, (double)numbers->t)),
           bias2 = (HRI_REAL)(1 - pow((double)beta2, (double)numbers->t));
  for (int64_t i = 0; i < n; i++) {
    HRI_REAL grad = g[i] * gradient_scale;
    w[i] *= 1 - learning_rate * weight_decay;
    m[i] = beta1 * m[i] + (1 - beta1) * grad;
    v[i] = beta2 * v[i] + (1 - beta2) * grad * grad;
    w[i] -= learning_rate * (m[i] / bias1) / (sqrt(v[i] / bias2) + epsilon);
  }
}

/* buffer may be NULL. */
static void HRI_REF(sgd)(HRI_REAL *w, HRI_REAL *buffer, const HRI_REAL *g, int64_t n,
                         const hri_update_numbers *numbers) {
  HRI_REAL learning_rate = (HRI_REAL)numbers->learning_rate, weight_decay = (HRI_REAL)numbers->weight_decay,
           momentum = (HRI_REAL)numbers->number[0];
  HRI_REAL gradient_scale = (HRI_REAL)numbers->gradient_scale;
  for (int64_t i = 0; i < n; i++) {
    HRI_REAL step = g[i] * gradient_scale + weight_decay * w[i];
    if (buffer) step = buffer[i] = momentum * buffer[i] + step;
    w[i] -= learning_rate * step;
  }
}

HRI_REF_API void HRI_REF(update)(uint32_t optimizer, HRI_REAL *w, HRI_REAL *const *state, const HRI_REAL *g, int64_t n,
                                 const hri_update_numbers *numbers) {
  switch ((hr_optimizer)optimizer) {
  case HR_OPTIMIZER_ADAMW: HRI_REF(adamw)(w, state[0], state[1], g, n, numbers); break;
  case HR_OPTIMIZER_MOMENTUM: HRI_REF(sgd)(w, state[0], g, n, numbers); break;
  case HR_OPTIMIZER_SGD: HRI_REF(sgd)(w, NULL, g, n, numbers); break;
  case HR_OPTIMIZER_COUNT: break;
  }
}
