/* Adafactor (cpu_factored.c has the formulas): averages of squares of rows and columns, the root mean square of the update, the
 * step. Sums are in double, a row by a block of threads, columns in blocks of rows that are folded in order. A vector is a
 * row whose elements are columns. */
#include "ops/optim/step.cuh"

enum { THREADS = 256, ROW_BLOCK = HRI_CUDA_FACTOR_ROWS };

/* Behind one another in scratch. */
struct factored {
  hri_cuda_update_args a;
  int64_t rows, columns;
  bool vector;
  double *weight_squares, *update_squares; /* of each row */
  double *column_squares;                  /* [blocks of rows, columns] */
  double *summary;                         /* 1 / max(mean r, e1); the step */
};

static bool is_vector(int64_t columns) { return columns <= 1; }
static int64_t row_blocks_of(int64_t rows) { return hri_cuda_blocks_of(rows, ROW_BLOCK); }

__device__ __forceinline__ hri_global<float> rows_of(const factored &f) {
  return hri_global<float>(f.vector ? nullptr : static_cast<float *>(f.a.u.state[0]), f.vector ? 0 : f.rows);
}
__device__ __forceinline__ hri_global<float> columns_of(const factored &f) {
  return hri_global<float>(static_cast<float *>(f.a.u.state[0]) + (f.vector ? 0 : f.rows), f.columns);
}

/* torch.lerp */
__device__ __forceinline__ float average(float old, float fresh, float share) {
  return share < 0.5f ? old + share * (fresh - old) : fresh - (fresh - old) * (1 - share);
}
__device__ __forceinline__ float share_of(const factored &f, const hri_control &c) {
  return (float)pow((double)c.applied_steps, f.a.number[0]);
}
__device__ __forceinline__ float gradient_at(const factored &f, const hri_control &c, int64_t i) {
  return hri_get_one(hri_gradients(f.a.u), i) * hri_gradient_scale(c);
}

/* Rows' averages, and the squares of the weights; of a vector the elements' averages. */
__global__ void factored_rows_kernel(factored f) {
  HRI_SHARED(double, partial, HRI_WARP);
  hri_global<float> row(rows_of(f)), column(columns_of(f));
  hri_global<double> weight_squares(f.weight_squares, f.rows);
  int64_t r = blockIdx.x;
  double squares = 0, weights = 0;
  if (hri_guarded(f.a.guard)) return; /* all of them */
  hri_control c = hri_control_of(f.a.control);
  float share = share_of(f, c);
  for (int64_t k = threadIdx.x; k < f.columns; k += blockDim.x) {
    float g = gradient_at(f, c, r * f.columns + k), w = hri_get_weight(f.a.u, r * f.columns + k);
    squares += (double)g * (double)g;
    weights += (double)w * (double)w;
    if (f.vector) column[k] = average(column[k], g * g, share);
  }
  squares = hri_block_sum(squares, partial);
  weights = hri_block_sum(weights, partial);
  if (threadIdx.x != 0) return;
  weight_squares[r] = weights;
  if (!f.vector) row[r] = average(row[r], (float)(squares / (double)f.columns), share);
}

__global__ void factored_columns_kernel(factored f) {
  int64_t k = hri_thread_index(), begin = (int64_t)blockIdx.y * ROW_BLOCK, end = begin + ROW_BLOCK;
  hri_global<double> to(f.column_squares, (int64_t)gridDim.y * f.columns);
  double sum = 0;
  if (hri_guarded(f.a.guard) || k >= f.columns) return;
  hri_control c = hri_control_of(f.a.control);
  for (int64_t r = begin; r < end && r < f.rows; r++) {
    float g = gradient_at(f, c, r * f.columns + k);
    sum += (double)g * (double)g;
  }
  to[(int64_t)blockIdx.y * f.columns + k] = sum;
}

__global__ void factored_fold_kernel(factored f, int64_t blocks) {
  int64_t k = hri_thread_index();
  hri_global<double> from(f.column_squares, blocks * f.columns);
  hri_global<float> column(columns_of(f));
  double sum = 0;
  if (hri_guarded(f.a.guard) || k >= f.columns) return;
  for (int64_t b = 0; b < blocks; b++) sum += from[b * f.columns + k];
  column[k] = average(column[k], (float)(sum / (double)f.rows), share_of(f, hri_control_of(f.a.control)));
}

/* One block: what the mean of the rows is divided by. */
__global__ void factored_mean_kernel(factored f) {
  HRI_SHARED(double, partial, HRI_WARP);
  hri_global<float> row(rows_of(f));
  hri_global<double> summary(f.summary, 2);
  double sum = 0, least = f.a.number[1];
  if (hri_guarded(f.a.guard)) return; /* all of them */
  for (int64_t r = threadIdx.x; r < f.rows; r += blockDim.x) sum += (double)(float)row[r];
  sum = hri_block_sum(sum, partial) / (double)f.rows;
  if (threadIdx.x == 0) summary[0] = 1 / (sum < least ? least : sum);
}

/* u of an element. */
__device__ __forceinline__ float update_at(const factored &f, const hri_control &c, int64_t r, int64_t k) {
  hri_global<float> row(rows_of(f)), column(columns_of(f));
  hri_global<double> summary(f.summary, 2);
  float least = (float)(f.a.number[1] * f.a.number[1]), second = column[k];
  if (!f.vector) second *= (float)((double)(float)row[r] * summary[0]);
  return gradient_at(f, c, r * f.columns + k) / sqrtf(second < least ? least : second); /* NaN stays */
}

__global__ void factored_updates_kernel(factored f) {
  HRI_SHARED(double, partial, HRI_WARP);
  hri_global<double> to(f.update_squares, f.rows);
  double sum = 0;
  if (hri_guarded(f.a.guard)) return; /* all of them */
  hri_control c = hri_control_of(f.a.control);
  for (int64_t k = threadIdx.x; k < f.columns; k += blockDim.x) {
    float u = update_at(f, c, blockIdx.x, k);
    sum += (double)u * (double)u;
  }
  sum = hri_block_sum(sum, partial);
  if (threadIdx.x == 0) to[blockIdx.x] = sum;
}

/* One block: how far the step goes. */
__global__ void factored_length_kernel(factored f) {
  HRI_SHARED(double, partial, HRI_WARP);
  hri_global<double> weight_squares(f.weight_squares, f.rows), update_squares(f.update_squares, f.rows);
  hri_global<double> summary(f.summary, 2);
  double weights = 0, updates = 0, n = (double)f.a.u.n;
  if (hri_guarded(f.a.guard)) return; /* all of them */
  hri_control c = hri_control_of(f.a.control);
  for (int64_t r = threadIdx.x; r < f.rows; r += blockDim.x) {
    weights += weight_squares[r];
    updates += update_squares[r];
  }
  weights = hri_block_sum(weights, partial);
  updates = hri_block_sum(updates, partial);
  if (threadIdx.x != 0) return;
  double root = sqrt(weights / n), excess = sqrt(updates / n) / f.a.number[3];
  double fastest = 1 / sqrt((double)c.applied_steps), rate = c.learning_rate < fastest ? c.learning_rate : fastest;
  summary[1] = (root > f.a.number[2] ? root : f.a.number[2]) * rate / (excess > 1 ? excess : 1);
}

__global__ void factored_step_kernel(factored f) {
  int64_t i = hri_thread_index();
  hri_global<double> summary(f.summary, 2);
  uint32_t bits[HRI_SOME] = {0, 0, 0, 0};
  if (hri_guarded(f.a.guard) || i >= f.a.u.n) return;
  hri_control c = hri_control_of(f.a.control);
  float decay = (float)(1.0 - c.learning_rate * f.a.weight_decay), length = (float)(double)summary[1];
  float w = hri_mul_alone(hri_get_weight(f.a.u, i), decay);
  w = w - hri_mul_alone(update_at(f, c, i / f.columns, i % f.columns), length);
  if (hri_draws_weights(f.a.u)) {
    hri_rounding r = {c.seed, (uint64_t)c.applied_steps, f.a.u.rounding.site};
    bits[0] = hri_rounding_bits(&r, HRI_ROUNDED_WEIGHT, f.a.u.first_element + i);
  }
  hri_put_weights(f.a.u, i, 1, &w, bits);
}

int hri_cuda_update_factored(const hri_cuda_update_args *args, void *stream) {
  factored f = {*args, 1, args->u.n, is_vector(args->columns), nullptr, nullptr, nullptr, nullptr};
  int bad = 0;
  if (!f.vector) f.columns = args->columns, f.rows = args->u.n / args->columns;
  unsigned blocks = (unsigned)row_blocks_of(f.rows), rows = (unsigned)f.rows, columns = hri_blocks(f.columns, THREADS);
  f.summary = static_cast<double *>(args->scratch);
  f.weight_squares = f.summary + 2, f.update_squares = f.weight_squares + f.rows;
  f.column_squares = f.update_squares + f.rows;
  bad |= HRI_LAUNCH(factored_rows_kernel, rows, THREADS, 0, stream, f);
  if (!f.vector) {
    bad |= HRI_LAUNCH(factored_columns_kernel, dim3(columns, blocks), THREADS, 0, stream, f);
    bad |= HRI_LAUNCH(factored_fold_kernel, columns, THREADS, 0, stream, f, (int64_t)blocks);
    bad |= HRI_LAUNCH(factored_mean_kernel, 1, THREADS, 0, stream, f);
  }
  bad |= HRI_LAUNCH(factored_updates_kernel, rows, THREADS, 0, stream, f);
  bad |= HRI_LAUNCH(factored_length_kernel, 1, THREADS, 0, stream, f);
  return bad | HRI_LAUNCH(factored_step_kernel, hri_blocks(f.a.u.n, THREADS), THREADS, 0, stream, f);
}
