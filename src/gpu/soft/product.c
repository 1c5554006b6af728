/* The reference product plays cuBLASLt: every element one sum in fp32, rounded once: in the order of k, and in two other
 * ways, which a library might choose as well: in halves of k, or in pieces of it (hri_gpu_algorithm.words[0]).
 *
 * It is a launch of one thread, so that it comes in the order of streams and graphs as any other, and everything that
 * it touches is looked at: rows out of bounds, values that nobody wrote, missing waits, what lies at addresses that
 * the product was not chosen for. Where it was given enough workspace it takes some and leaves it full of ones, as a
 * library that splits k does: whoever keeps something there finds NaNs. */
#include "gpu/soft/product.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "gpu/soft/memory.h"
#include "gpu/soft/runtime.h"

enum { SPLIT_K = 48, PIECE = 16, WORKSPACE_ALIGN = 256 }; /* so small that products of tests split */

typedef struct job {
  hri_gpu_product product;
  uint64_t workspace_bytes;
  uint64_t way; /* how sums are folded, below */
  const unsigned char *a, *b;
  unsigned char *beside, *d, *workspace;
} job;

/* ---- what is touched ---- */

/* false after a finding: nothing is computed then. */
static bool touch(const unsigned char *at, uint64_t bytes, bool writes) {
  hri_soft_allocation *allocation = bytes ? hri_soft_global_find(at) : NULL;
  if (!allocation) return bytes == 0;
  if ((uint64_t)(at - allocation->memory) + bytes > allocation->bytes) {
    hri_soft_find(HRI_SOFT_BOUNDS, "a product's %llu bytes at %p", (unsigned long long)bytes, (const void *)at);
    return false;
  }
  if (writes) hri_soft_global_write(allocation, at, bytes);
  else hri_soft_global_read(allocation, at, bytes, true);
  return true;
}

static bool touch_rows(const job *j, const unsigned char *at, int64_t rows, int64_t columns, int64_t stride,
                       hri_real real, bool writes) {
  uint64_t pitch = (uint64_t)stride * hri_real_bytes(real);
  if ((uintptr_t)at % j->product.alignment != 0 || (rows > 1 && pitch % j->product.alignment != 0)) {
    hri_soft_global_misaligned(at, j->product.alignment);
    return false;
  }
  for (int64_t i = 0; i < rows; i++)
    if (!touch(at + (uint64_t)i * pitch, (uint64_t)columns * hri_real_bytes(real), writes)) return false;
  return true;
}

static bool touch_all(const job *j) {
  const hri_gpu_product *p = &j->product;
  int64_t a_rows = p->a_turned ? p->k : p->m, b_rows = p->b_turned ? p->n : p->k;
  if (!touch_rows(j, j->a, a_rows, p->a_turned ? p->m : p->k, p->a_stride, p->operands, false)) return false;
  if (!touch_rows(j, j->b, b_rows, p->b_turned ? p->k : p->n, p->b_stride, p->operands, false)) return false;
  if (p->epilogue == HRI_GPU_BIAS && !touch(j->beside, (uint64_t)p->n * hri_real_bytes(p->result), false)) return false;
  if (p->epilogue == HRI_GPU_GELU_BACKWARD && !touch_rows(j, j->beside, p->m, p->n, p->d_stride, p->result, false))
    return false;
  if (p->epilogue == HRI_GPU_BIAS_GRADIENT && !touch(j->beside, (uint64_t)p->m * hri_real_bytes(p->result), true))
    return false;
  if (p->accumulate && !touch_rows(j, j->d, p->m, p->n, p->d_stride, p->result, false)) return false;
  if (j->workspace_bytes && !touch(j->workspace, j->workspace_bytes, true)) return false;
  return touch_rows(j, j->d, p->m, p->n, p->d_stride, p->result, true);
}

/* ---- the product ---- */

/* As tensor cores take it: to 10 bits of mantissa, ties away from zero. */
static float tf32(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7F800000u) != 0x7F800000u) bits = (bits + 0x1000u) & 0xFFFFE000u;
  memcpy(&value, &bits, sizeof bits);
  return value;
}

static float operand(const job *j, const unsigned char *x, int64_t index) {
  float value = hri_real_get(x, index, j->product.operands);
  return j->product.tf32 ? tf32(value) : value;
}

static float a_at(const job *j, int64_t i, int64_t k) {
  return operand(j, j->a, j->product.a_turned ? k * j->product.a_stride + i : i * j->product.a_stride + k);
}
static float b_at(const job *j, int64_t k, int64_t c) {
  return operand(j, j->b, j->product.b_turned ? c * j->product.b_stride + k : k * j->product.b_stride + c);
}

/* Pieces of k that are summed each by itself and folded in order. */
static int64_t piece_of(const job *j) {
  if (j->way == 1) return (j->product.k + 1) / 2;
  return j->way == 2 ? PIECE : j->product.k;
}

static float sum_of(const job *j, int64_t i, int64_t c) {
  int64_t k = 0, piece = piece_of(j);
  float sum = 0;
  while (k < j->product.k) {
    float part = 0;
    for (int64_t end = k + piece < j->product.k ? k + piece : j->product.k; k < end; k++)
      part += a_at(j, i, k) * b_at(j, k, c);
    sum += part;
  }
  return sum;
}

/* d of x (1 + tanh(z)) / 2 by x, z = sqrt(2 / pi) (x + 0.044715 x^3). */
static float gelu_slope(float x) {
  double root = 0.79788456080286535588, t = tanh(root * (x + 0.044715 * (double)x * x * x));
  return (float)(0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root * (1 + 3 * 0.044715 * (double)x * x));
}

static void put_element(const job *j, int64_t i, int64_t c) {
  const hri_gpu_product *p = &j->product;
  int64_t at = i * p->d_stride + c;
  float sum = sum_of(j, i, c);
  if (p->accumulate) sum += hri_real_get(j->d, at, p->result);
  if (p->epilogue == HRI_GPU_BIAS) sum += hri_real_get(j->beside, c, p->result);
  if (p->epilogue == HRI_GPU_GELU_BACKWARD) sum *= gelu_slope(hri_real_get(j->beside, at, p->result));
  hri_real_put(j->d, at, sum, p->result);
}

static void compute(const job *j) {
  const hri_gpu_product *p = &j->product;
  for (int64_t i = 0; i < p->m; i++) {
    float sum = 0;
    for (int64_t c = 0; c < p->n; c++) put_element(j, i, c);
    for (int64_t k = 0; p->epilogue == HRI_GPU_BIAS_GRADIENT && k < p->k; k++) sum += a_at(j, i, k);
    if (p->epilogue == HRI_GPU_BIAS_GRADIENT) hri_real_put(j->beside, i, sum, p->result);
  }
}

static void run_job(void *context) {
  const job *j = context;
  if (!touch_all(j)) return;
  if (j->workspace_bytes) memset(j->workspace, 0xFF, j->workspace_bytes);
  compute(j);
}

static void drop_job(void *context) { hri_free(context); }

/* ---- the calls ---- */

static void products_close(hri_gpu_products *products) { hri_free(products); }

static hr_status products_choose(hri_gpu_products *products, const hri_gpu_product *p, uint64_t workspace_bytes,
                                 hri_gpu_algorithm *algorithm, hr_error *error) {
  uint64_t split = hri_round_up((uint64_t)(p->m * p->n) * sizeof(float), WORKSPACE_ALIGN);
  (void)products;
  memset(algorithm, 0, sizeof *algorithm);
  if (p->operands != p->result && p->result != HRI_REAL_F32) /* as cuBLASLt has it */
    return hri_fail(error, HR_ERROR_UNSUPPORTED, "no product of fp32 has a result of another type");
  if (p->accumulate && p->epilogue > HRI_GPU_BIAS)
    return hri_fail(error, HR_ERROR_UNSUPPORTED, "no such epilogue of a sum that accumulates");
  if (p->k > SPLIT_K && split <= workspace_bytes) algorithm->workspace_bytes = split;
  return HR_OK;
}

static hr_status products_check(hri_gpu_products *products, const hri_gpu_product *p,
                                const hri_gpu_algorithm *algorithm, hr_error *error) {
  (void)products, (void)p;
  if (algorithm->words[0] < HRI_SOFT_WAYS) return HR_OK;
  return hri_fail(error, HR_ERROR_UNSUPPORTED, "the reference has no way %llu",
                  (unsigned long long)algorithm->words[0]);
}

static hr_status products_run(hri_gpu_products *products, const hri_gpu_product *product,
                              const hri_gpu_algorithm *algorithm, const void *a, const void *b, void *beside, void *d,
                              void *workspace, hri_gpu_stream *stream, hr_error *error) {
  hri_soft_launch launch = {.kernel = "product",
                            .blocks = {1, 1, 1},
                            .threads = {1, 1, 1},
                            .run = run_job,
                            .drop = drop_job};
  job *j;
  (void)products;
  if (product->m == 0 || product->n == 0) return HR_OK;
  j = hri_alloc(sizeof *j);
  if (!j) return hri_fail_memory(error, sizeof *j, "a product");
  *j = (job){.product = *product,
             .workspace_bytes = algorithm->workspace_bytes,
             .a = a,
             .b = b,
             .way = algorithm->words[0],
             .beside = beside,
             .d = d,
             .workspace = workspace};
  launch.context = j;
  if (hri_gpu_soft_launch(stream, &launch) == 0) return HR_OK;
  return hri_fail(error, HR_ERROR_INTERNAL, "the software GPU refused a product");
}

hr_status hri_gpu_soft_products(hri_gpu_products **products, hr_error *error) {
  static const hri_gpu_product_calls calls = {products_close, products_choose, products_check, products_run};
  *products = hri_alloc_zero(1, sizeof **products);
  if (!*products) return hri_fail_memory(error, sizeof **products, "products");
  (*products)->calls = &calls;
  memcpy((*products)->library, "reference products", sizeof "reference products");
  return HR_OK;
}
