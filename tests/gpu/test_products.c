/* Matrix products of a GPU: the reference of the software GPU against sums in double, and what cuBLASLt is told
 * against what it has to compute. Of cuBLASLt there is a library here that takes its words - matrices by columns, what
 * is turned, leading dimensions, epilogue - and computes what they mean; whether the real one agrees, only a card can
 * tell. */
#include "gpu/kernels.h"

#include "gpu/cublas.h"
#include "gpu/soft/product.h"

/* ---- a library that computes what cuBLASLt's words mean ---- */

typedef struct fake_desc {
  int compute, first_turned, second_turned, epilogue;
  void *bias, *aux;
  int64_t aux_ld;
} fake_desc;
typedef struct fake_layout {
  int type;
  uint64_t rows, columns;
  int64_t ld;
} fake_layout;
typedef struct fake_wish {
  uint64_t workspace;
  uint32_t schemes, alignment[4];
} fake_wish;

static struct {
  int live; /* descriptors that were not destroyed */
  soft_test *test;
  hri_gpu_products *reference;
  fake_wish wish; /* of the last heuristic */
  bool refuses;
} fake;

static void *fake_new(size_t bytes) {
  fake.live++;
  return calloc(1, bytes);
}
static int fake_drop(void *made) {
  fake.live--;
  free(made);
  return 0;
}
static int fake_create(void **handle) { return (*handle = fake_new(1)) ? 0 : 1; }
static size_t fake_version(void) { return 130102; }
static int fake_desc_create(void **desc, int compute, int scale) {
  fake_desc *d = *desc = fake_new(sizeof *d);
  d->compute = compute;
  return scale == HRI_CUDA_R_32F ? 0 : 7;
}
static int fake_desc_set(void *desc, int name, const void *value, size_t bytes) {
  fake_desc *d = desc;
  if (name == HRI_CUBLASLT_MATMUL_DESC_BIAS_POINTER) return memcpy(&d->bias, value, bytes), bytes == 8 ? 0 : 7;
  if (name == HRI_CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER) return memcpy(&d->aux, value, bytes), bytes == 8 ? 0 : 7;
  if (name == HRI_CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD) return memcpy(&d->aux_ld, value, bytes), bytes == 8 ? 0 : 7;
  if (bytes != 4) return 7;
  memcpy(name == HRI_CUBLASLT_MATMUL_DESC_TRANSA   ? &d->first_turned
         : name == HRI_CUBLASLT_MATMUL_DESC_TRANSB ? &d->second_turned
                                                   : &d->epilogue,
         value, bytes);
  return 0;
}
static int fake_layout_create(void **layout, int type, uint64_t rows, uint64_t columns, int64_t ld) {
  fake_layout *l = *layout = fake_new(sizeof *l);
  *l = (fake_layout){type, rows, columns, ld};
  return ld >= (int64_t)rows ? 0 : 7;
}
static int fake_wish_create(void **wish) {
  fake_wish *w = *wish = fake_new(sizeof *w);
  w->schemes = 7;
  return 0;
}
static int fake_wish_set(void *wish, int name, const void *value, size_t bytes) {
  fake_wish *w = wish;
  if (name == HRI_CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) return memcpy(&w->workspace, value, bytes), 0;
  if (name == HRI_CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) return memcpy(&w->schemes, value, bytes), 0;
  if (name < 5 || name > 8 || bytes != 4) return 7;
  memcpy(&w->alignment[name - 5], value, bytes);
  return 0;
}
static hri_real fake_real(const fake_layout *l) {
  return l->type == HRI_CUDA_R_32F ? HRI_REAL_F32 : l->type == HRI_CUDA_R_16BF ? HRI_REAL_BF16 : HRI_REAL_F16;
}

/* d'[rows, columns] by columns is d[columns, rows] by rows. */
static hri_gpu_product fake_product(const fake_desc *e, const fake_layout *first, const fake_layout *second,
                                    const fake_layout *d, bool accumulate) {
  hri_gpu_product p;
  memset(&p, 0, sizeof p);
  p.m = (int64_t)d->columns, p.n = (int64_t)d->rows;
  p.k = (int64_t)(e->first_turned ? first->rows : first->columns);
  assert_int_equal(p.k, e->second_turned ? second->columns : second->rows);
  assert_int_equal(p.n, e->first_turned ? first->columns : first->rows);
  assert_int_equal(p.m, e->second_turned ? second->rows : second->columns);
  p.a_stride = second->ld, p.b_stride = first->ld, p.d_stride = d->ld;
  p.a_turned = e->second_turned, p.b_turned = e->first_turned;
  p.operands = fake_real(first), p.result = fake_real(d);
  p.alignment = 2, p.accumulate = accumulate;
  p.epilogue = e->epilogue == HRI_CUBLASLT_EPILOGUE_BIAS     ? HRI_GPU_BIAS
               : e->epilogue == HRI_CUBLASLT_EPILOGUE_DGELU  ? HRI_GPU_GELU_BACKWARD
               : e->epilogue == HRI_CUBLASLT_EPILOGUE_BGRADB ? HRI_GPU_BIAS_GRADIENT
                                                             : HRI_GPU_NO_EPILOGUE;
  p.tf32 = e->compute == HRI_CUBLAS_COMPUTE_32F_FAST_TF32;
  return p;
}
static int fake_heuristic(void *handle, void *desc, void *a, void *b, void *c, void *d, void *wish, int asked,
                          hri_cublas_found *found, int *count) {
  (void)handle, (void)desc, (void)a, (void)b, (void)c, (void)d;
  fake.wish = *(fake_wish *)wish;
  *count = asked && !fake.refuses;
  found->algorithm.words[3] = 77;
  found->workspace_bytes = 512;
  return fake.refuses ? 15 : 0;
}
/* 512 bytes are what it wants, whatever the way says. */
static int fake_way_check(void *handle, void *desc, void *a, void *b, void *c, void *d,
                          const hri_cublas_algorithm *algorithm, hri_cublas_found *found) {
  (void)handle, (void)desc, (void)a, (void)b, (void)c, (void)d;
  found->workspace_bytes = 512;
  found->status = algorithm->words[3] == 77 ? 0 : 15;
  return fake.refuses ? 7 : 0;
}
static int fake_matmul(void *handle, void *desc, const void *alpha, const void *a, void *a_layout, const void *b,
                       void *b_layout, const void *beta, const void *c, void *c_layout, void *d, void *d_layout,
                       const hri_cublas_algorithm *algorithm, void *workspace, size_t workspace_bytes, void *stream) {
  hri_gpu_product p = fake_product(desc, a_layout, b_layout, d_layout, *(const float *)beta == 1);
  hri_gpu_algorithm plain = {0};
  const fake_desc *e = desc;
  (void)handle;
  if (*(const float *)alpha != 1 || c != d || c_layout != d_layout || algorithm->words[3] != 77) return 7;
  if (workspace_bytes != 512 || !workspace) return 7;
  if (p.epilogue == HRI_GPU_GELU_BACKWARD && e->aux_ld != p.d_stride) return 7;
  return fake.reference->calls->run(fake.reference, &p, &plain, b, a,
                                    p.epilogue == HRI_GPU_GELU_BACKWARD ? e->aux : e->bias, d, NULL, stream, NULL);
}

static const hri_cublas fake_library = {.create = fake_create,
                                        .destroy = fake_drop,
                                        .version = fake_version,
                                        .desc_create = fake_desc_create,
                                        .desc_destroy = fake_drop,
                                        .desc_set = fake_desc_set,
                                        .layout_create = fake_layout_create,
                                        .layout_destroy = fake_drop,
                                        .wish_create = fake_wish_create,
                                        .wish_destroy = fake_drop,
                                        .wish_set = fake_wish_set,
                                        .heuristic = fake_heuristic,
                                        .way_check = fake_way_check,
                                        .matmul = fake_matmul};

/* ---- products ---- */

/* In double, and in fp32 as the yardstick. */
static double gelu_slope(double x) {
  double root = sqrt(2 / acos(-1.0)), t = tanh(root * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root * (1 + 3 * 0.044715 * x * x);
}

/* Sums of a over k, where the epilogue makes them. */
static void expect_sums(soft_test *t, const hri_gpu_product *p, const array *a, array *sums) {
  for (int64_t i = 0; i < p->m; i++) {
    sums->d[i] = sums->f[i] = 0;
    for (int64_t k = 0; k < p->k; k++) {
      int64_t at = p->a_turned ? k * p->a_stride + i : i * p->a_stride + k;
      sums->d[i] += a->d[at];
      sums->f[i] += a->f[at];
    }
  }
  expect(t, "bias gradient", sums);
}

/* Odd sizes, rows that are longer than what is taken of them; every way of turning and adding, every epilogue; `order`: the
 * reference's way of summing. */
static void product(soft_test *t, hri_gpu_products *with, hri_real real, hri_real result, int way, uint64_t order) {
  hri_gpu_product p;
  hri_gpu_algorithm algorithm;
  hr_error error = {0};
  memset(&p, 0, sizeof p);
  p.m = 5, p.n = 7, p.k = 67, p.operands = real, p.result = result;
  p.a_turned = way & 1, p.b_turned = way & 2, p.accumulate = way & 4, p.epilogue = (hri_gpu_epilogue)(way / 8);
  p.a_stride = (p.a_turned ? p.m : p.k) + 3, p.b_stride = (p.b_turned ? p.k : p.n) + 1;
  p.d_stride = p.epilogue == HRI_GPU_GELU_BACKWARD ? p.n + 1 : p.n + 2; /* whole eights */
  p.alignment = (uint32_t)hri_real_bytes(real);
  {
    array a = array_random(t, (p.a_turned ? p.k : p.m) * p.a_stride, real, 1, 0),
          b = array_random(t, (p.b_turned ? p.n : p.k) * p.b_stride, real, 1, 0),
          d = array_random(t, p.m * p.d_stride, result, 1, 0),
          beside = array_random(t,
                                p.epilogue == HRI_GPU_GELU_BACKWARD   ? p.m * p.d_stride
                                : p.epilogue == HRI_GPU_BIAS_GRADIENT ? p.m
                                                                      : p.n,
                                result, 1, 0);
    void *workspace = soft_memory(t, 4096);
    assert_int_equal(with->calls->choose(with, &p, 4096, &algorithm, &error), HR_OK);
    assert_true(algorithm.workspace_bytes > 0 && algorithm.workspace_bytes <= 4096);
    algorithm.words[0] += order;
    assert_int_equal(with->calls->check(with, &p, &algorithm, &error), HR_OK);
    assert_int_equal(with->calls->run(with, &p, &algorithm, a.device, b.device, p.epilogue ? beside.device : NULL,
                                      d.device, workspace, t->stream, &error),
                     HR_OK);
    for (int64_t i = 0; i < p.m; i++)
      for (int64_t c = 0; c < p.n; c++) {
        double sum = (p.accumulate ? d.d[i * p.d_stride + c] : 0) + (p.epilogue == HRI_GPU_BIAS ? beside.d[c] : 0);
        float plain = (float)sum;
        for (int64_t k = 0; k < p.k; k++) {
          int64_t x = p.a_turned ? k * p.a_stride + i : i * p.a_stride + k,
                  y = p.b_turned ? c * p.b_stride + k : k * p.b_stride + c;
          sum += a.d[x] * b.d[y];
          plain += a.f[x] * b.f[y];
        }
        if (p.epilogue == HRI_GPU_GELU_BACKWARD) {
          sum *= gelu_slope(beside.d[i * p.d_stride + c]);
          plain *= (float)gelu_slope(beside.d[i * p.d_stride + c]);
        }
        d.d[i * p.d_stride + c] = sum, d.f[i * p.d_stride + c] = plain;
      }
    expect(t, "product", &d); /* what lies between rows as it was */
    if (p.epilogue == HRI_GPU_BIAS_GRADIENT) expect_sums(t, &p, &a, &beside);
  }
  give_all();
}

enum { WAYS = 8 * (HRI_GPU_BIAS_GRADIENT + 1) };

static void each_way(hri_gpu_products *(*open)(void), uint64_t order) {
  for (int r = 0; r < 3; r++)
    for (int narrow = 0; narrow < 2; narrow++)
      for (int way = 0; way < WAYS; way++) {
        if ((way & 4) && way / 8 > HRI_GPU_BIAS) continue; /* these do not accumulate */
        soft_test t = soft_open((uint64_t)way);
        hri_gpu_products *with = open();
        product(&t, with, reals[r], narrow ? reals[r] : HRI_REAL_F32, way, order);
        with->calls->close(with);
        soft_close(&t);
      }
}

static hri_gpu_products *open_reference(void) {
  hri_gpu_products *made;
  assert_int_equal(hri_gpu_soft_products(&made, NULL), HR_OK);
  return made;
}
static hri_gpu_products *open_fake(void) {
  hri_gpu_products *made;
  assert_int_equal(hri_gpu_cublas_from(&fake_library, NULL, &made, NULL), HR_OK);
  assert_string_equal(made->library, "cublasLt 13.1.2");
  return made;
}

static void the_reference_computes_every_way(void **state) {
  (void)state;
  for (uint64_t order = 0; order < HRI_SOFT_WAYS; order++) each_way(open_reference, order);
}

static void cublas_is_told_every_way(void **state) {
  (void)state;
  fake.reference = open_reference();
  each_way(open_fake, 0);
  assert_int_equal(fake.live, 0);
  assert_int_equal(fake.wish.workspace, 4096);
  assert_int_equal(fake.wish.schemes & 1, 0); /* no sums in place */
  for (int k = 0; k < 4; k++) assert_int_equal(fake.wish.alignment[k], 2);
  fake.reference->calls->close(fake.reference);
}

static void a_product_that_cublas_has_not_is_refused(void **state) {
  hri_gpu_product p = {.m = 2, .n = 3, .k = 4, .a_stride = 4, .b_stride = 3, .d_stride = 3, .alignment = 4};
  hri_gpu_products *with = open_fake();
  hri_gpu_algorithm algorithm;
  hr_error error = {0};
  (void)state;
  fake.refuses = true;
  assert_int_equal(with->calls->choose(with, &p, 64, &algorithm, &error), HR_ERROR_UNSUPPORTED);
  assert_string_equal(error.message,
                      "cublasLt 13.1.2 has no product of 2 x 3 x 4 in a workspace of 64 bytes (status 15)");
  fake.refuses = false;
  assert_int_equal(with->calls->choose(with, &p, 64, &algorithm, &error), HR_ERROR_UNSUPPORTED); /* 512 are wanted */
  fake.refuses = false;
  with->calls->close(with);
  assert_int_equal(fake.live, 0);
}

/* What a library chose once and does not take any more, or not within that workspace; a slope that it has not for rows of
 * odd length. */
static void a_way_that_is_gone_is_told(void **state) {
  hri_gpu_product p = {.m = 2, .n = 3, .k = 4, .a_stride = 4, .b_stride = 3, .d_stride = 3, .alignment = 4};
  hri_gpu_products *with = open_fake();
  hri_gpu_algorithm algorithm = {.workspace_bytes = 512, .words = {[3] = 77}};
  hr_error error = {0};
  (void)state;
  assert_int_equal(with->calls->check(with, &p, &algorithm, &error), HR_OK);
  algorithm.workspace_bytes = 256;
  assert_int_equal(with->calls->check(with, &p, &algorithm, &error), HR_ERROR_UNSUPPORTED);
  assert_string_equal(error.message, "cublasLt 13.1.2 wants a workspace of 512 bytes for it, not of 256");
  algorithm.words[3] = 78;
  assert_int_equal(with->calls->check(with, &p, &algorithm, &error), HR_ERROR_UNSUPPORTED);
  assert_string_equal(error.message, "cublasLt 13.1.2 does not take it (status 15)");
  p.epilogue = HRI_GPU_GELU_BACKWARD;
  assert_int_equal(with->calls->choose(with, &p, 512, &algorithm, &error), HR_ERROR_UNSUPPORTED);
  assert_string_equal(error.message, "cublasLt 13.1.2 has no slope of gelu for rows of 3 elements");
  with->calls->close(with);
  assert_int_equal(fake.live, 0);
}

/* What lies in the workspace is gone; rows beyond an operand's end, and addresses of another alignment, are
 * findings. */
static void faults_are_found(void **state) {
  (void)state;
  for (int fault = 0; fault < 3; fault++) {
    soft_test t = soft_open((uint64_t)fault);
    hri_gpu_products *with = open_reference();
    hri_gpu_product p = {.m = 8, .n = 8, .k = 64, .a_stride = 64, .b_stride = 8, .d_stride = 8, .alignment = 16};
    hri_gpu_algorithm algorithm;
    array a = array_random(&t, 8 * 64 + 4, HRI_REAL_F32, 1, 0), b = array_random(&t, 64 * 8, HRI_REAL_F32, 1, 0);
    array d = array_result(&t, 64, HRI_REAL_F32);
    unsigned char *workspace = soft_memory(&t, 256), got[256];
    const unsigned char *from = a.device;
    assert_int_equal(t.gpu->calls->fill(t.gpu, workspace, 5, 256, t.stream, NULL), HR_OK);
    assert_int_equal(with->calls->choose(with, &p, 256, &algorithm, NULL), HR_OK);
    if (fault == 1) p.m = 9;
    if (fault == 2) from += 4;
    assert_int_equal(with->calls->run(with, &p, &algorithm, from, b.device, NULL, d.device, workspace, t.stream, NULL),
                     HR_OK);
    if (fault == 1) assert_true(soft_found(&t, HRI_SOFT_BOUNDS) > 0);
    if (fault == 2) assert_true(soft_found(&t, HRI_SOFT_MISALIGNED) > 0);
    if (fault == 0) {
      soft_clean(&t);
      soft_download(&t, got, workspace, sizeof got);
      for (size_t k = 0; k < sizeof got; k++) assert_int_equal(got[k], 0xFF);
    }
    with->calls->close(with);
    soft_close(&t);
    give_all();
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_reference_computes_every_way),
      cmocka_unit_test(cublas_is_told_every_way),
      cmocka_unit_test(a_product_that_cublas_has_not_is_refused),
      cmocka_unit_test(a_way_that_is_gone_is_told),
      cmocka_unit_test(faults_are_found),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
