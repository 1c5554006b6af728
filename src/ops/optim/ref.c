#include "ops/optim/ref.h"

#include <stdbool.h>
#include <stddef.h>
#include <tgmath.h>

#include "ops/optim/dynamic.h"
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

/* Lion (Chen et al., 2023). */
static void HRI_REF(lion)(HRI_REAL *w, HRI_REAL *m, const HRI_REAL *g, int64_t n, const hri_update_numbers *numbers) {
  HRI_REAL learning_rate = (HRI_REAL)numbers->learning_rate, weight_decay = (HRI_REAL)numbers->weight_decay,
           beta1 = (HRI_REAL)numbers->number[0], beta2 = (HRI_REAL)numbers->number[1];
  HRI_REAL gradient_scale = (HRI_REAL)numbers->gradient_scale;
  for (int64_t i = 0; i < n; i++) {
    HRI_REAL grad = g[i] * gradient_scale, smooth = beta1 * m[i] + (1 - beta1) * grad;
    w[i] *= 1 - learning_rate * weight_decay;
    w[i] -= smooth > 0 ? learning_rate : smooth < 0 ? -learning_rate : 0;
    m[i] = beta2 * m[i] + (1 - beta2) * grad;
  }
}

/* torch.optim.Adafactor (Shazeer and Stern, 2018): the second moment of a matrix is the product of the averages of its
 * rows and columns over the average of all; of a vector it is kept whole. factors: rows, then columns. */
static void HRI_REF(adafactor)(HRI_REAL *w, HRI_REAL *factors, const HRI_REAL *g, int64_t n,
                               const hri_update_numbers *numbers) {
  int64_t columns = numbers->columns > 1 ? numbers->columns : 1, rows = n / columns;
  HRI_REAL *column = factors + rows, share = (HRI_REAL)pow((double)numbers->t, numbers->number[0]), mean = 0;
  HRI_REAL epsilon = (HRI_REAL)numbers->number[1], scale = (HRI_REAL)numbers->gradient_scale, squares = 0, norm = 0;
  double rate = fmin(numbers->learning_rate, 1 / sqrt((double)numbers->t)), step, root;
  for (int64_t r = 0; r < rows; r++) {
    HRI_REAL sum = 0;
    for (int64_t c = 0; c < columns; c++) sum += g[r * columns + c] * scale * (g[r * columns + c] * scale);
    factors[r] += share * (sum / (HRI_REAL)columns - factors[r]);
    mean += factors[r] / (HRI_REAL)rows;
  }
  for (int64_t c = 0; columns > 1 && c < columns; c++) {
    HRI_REAL sum = 0;
    for (int64_t r = 0; r < rows; r++) sum += g[r * columns + c] * scale * (g[r * columns + c] * scale);
    column[c] += share * (sum / (HRI_REAL)rows - column[c]);
  }
  if (mean < epsilon) mean = epsilon;
  for (int64_t pass = 0; pass < 2; pass++) {
    root = sqrt((double)squares / (double)n);
    step = fmax(numbers->number[2], root) * rate / fmax(1, sqrt((double)norm / (double)n) / numbers->number[3]);
    for (int64_t i = 0; i < n; i++) {
      HRI_REAL second = columns > 1 ? factors[i / columns] * column[i % columns] / mean : factors[i];
      HRI_REAL update = g[i] * scale / sqrt(second < epsilon * epsilon ? epsilon * epsilon : second);
      squares += w[i] * w[i];
      norm += update * update;
      if (pass) w[i] = w[i] * (HRI_REAL)(1 - numbers->learning_rate * numbers->weight_decay) - (HRI_REAL)step * update;
    }
  }
}

/* States of 8 bits, for backends that keep what they compute in HRI_REAL: decoded, stepped as above, encoded. How fp32
 * kernels round is said by tests/support/blocks.h. An element whose gradient is not finite forgets its states. */
static void HRI_REF(decode)(HRI_REAL *values, const HRI_REAL *codes, const HRI_REAL *scales, int64_t n,
                            const float *map) {
  for (int64_t i = 0; i < n; i++) values[i] = (HRI_REAL)map[(int)codes[i]] * scales[i / HRI_STATE_BLOCK];
}

static void HRI_REF(encode)(HRI_REAL *codes, HRI_REAL *scales, const HRI_REAL *values, int64_t n, bool is_signed) {
  const hri_dynamic_maps *maps = hri_dynamic_maps_get();
  for (int64_t begin = 0; begin < n; begin += HRI_STATE_BLOCK) {
    int64_t end = begin + HRI_STATE_BLOCK < n ? begin + HRI_STATE_BLOCK : n;
    HRI_REAL most = 0;
    for (int64_t i = begin; i < end; i++) most = fabs(values[i]) > most ? fabs(values[i]) : most;
    scales[begin / HRI_STATE_BLOCK] = most;
    for (int64_t i = begin; i < end; i++)
      codes[i] = (HRI_REAL)(is_signed ? hri_dynamic_code_signed(maps->signed_map, (float)(values[i] / most),
                                                                signbit(values[i]) != 0)
                                      : hri_dynamic_code_unsigned(maps->unsigned_map, (float)(values[i] / most)));
  }
}

enum { REF_PIECE = HRI_STATE_BLOCK };

static void HRI_REF(block)(uint32_t optimizer, HRI_REAL *w, HRI_REAL *const *state, const HRI_REAL *g, int64_t n,
                           const hri_update_numbers *numbers) {
  const hri_dynamic_maps *maps = hri_dynamic_maps_get();
  HRI_REAL first[REF_PIECE], second[REF_PIECE], kept[REF_PIECE], sound[REF_PIECE];
  bool two = optimizer == HR_OPTIMIZER_ADAMW8BIT;
  HRI_REF(decode)(first, state[0], state[two ? 2 : 1], n, maps->signed_map);
  if (two) HRI_REF(decode)(second, state[1], state[3], n, maps->unsigned_map);
  for (int64_t i = 0; i < n; i++) kept[i] = w[i], sound[i] = isfinite(g[i]) ? g[i] : 0;
  if (two) HRI_REF(adamw)(w, first, second, sound, n, numbers);
  else HRI_REF(lion)(w, first, sound, n, numbers);
  for (int64_t i = 0; i < n; i++)
    if (!isfinite(g[i])) w[i] = kept[i], first[i] = second[i] = 0;
  HRI_REF(encode)(state[0], state[two ? 2 : 1], first, n, true);
  if (two) HRI_REF(encode)(state[1], state[3], second, n, false);
}

static void HRI_REF(blocks)(uint32_t optimizer, HRI_REAL *w, HRI_REAL *const *state, const HRI_REAL *g, int64_t n,
                            const hri_update_numbers *numbers) {
  bool two = optimizer == HR_OPTIMIZER_ADAMW8BIT;
  for (int64_t i = 0; i < n; i += REF_PIECE) {
    int64_t entry = i / HRI_STATE_BLOCK;
    HRI_REAL *const here[] = {state[0] + i, two ? state[1] + i : state[1] + entry, two ? state[2] + entry : NULL,
                              two ? state[3] + entry : NULL};
    HRI_REF(block)(optimizer, w + i, here, g + i, n - i < REF_PIECE ? n - i : REF_PIECE, numbers);
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
  case HR_OPTIMIZER_LION: HRI_REF(lion)(w, state[0], g, n, numbers); break;
  case HR_OPTIMIZER_ADAFACTOR: HRI_REF(adafactor)(w, state[0], g, n, numbers); break;
  case HR_OPTIMIZER_ADAMW8BIT:
  case HR_OPTIMIZER_LION8BIT: HRI_REF(blocks)(optimizer, w, state, g, n, numbers); break;
  case HR_OPTIMIZER_COUNT: break;
  }
}
