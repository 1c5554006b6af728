/* Products by cuBLASLt, which is loaded when a device is opened; nothing of CUDA is needed to compile or link this.
 *
 * The library counts matrices by columns: our d[m,n] in rows is its d'[n,m] = b' a', so its first operand is our
 * second, and what we store turned is what it need not turn. What it is asked for is one way within a workspace and at
 * an alignment, of those that never add into the result in place: split sums are folded in one order, so a way has its
 * bits. The first that it names is taken; that is a function of the library's version, the device and the product, and
 * is kept by who asked.
 *
 * Descriptors are made for each call: calls are captured once. */
#include "gpu/cublas.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "gpu/library.h"

enum { AUX_STRIDE = 8 }; /* what the library wants elements from row to row of a matrix beside to be a multiple of */

typedef struct cublas {
  hri_gpu_products products; /* first: the one is the other */
  hri_cublas f;
  void *library, *handle;
} cublas;

static cublas *of(hri_gpu_products *products) { return (cublas *)(void *)products; }

/* What describes one product to the library. */
typedef struct described {
  void *desc, *first, *second, *result, *wish; /* first: b' of our b; second: a' */
} described;

static hr_status check(int code, const char *what, hr_error *error) {
  if (code == 0) return HR_OK;
  return hri_fail(error, HR_ERROR_INTERNAL, "cuBLASLt, %s: status %d", what, code);
}

static int type_of(hri_real real) {
  return real == HRI_REAL_F32 ? HRI_CUDA_R_32F : real == HRI_REAL_BF16 ? HRI_CUDA_R_16BF : HRI_CUDA_R_16F;
}

static hr_status set(cublas *c, void *desc, int name, const void *value, size_t bytes, hr_error *error) {
  return check(c->f.desc_set(desc, name, value, bytes), "an attribute of a product", error);
}

/* Our a is its second operand, whose sums over k are a bias gradient. */
static hr_status describe_epilogue(cublas *c, const hri_gpu_product *p, const void *beside, described *d,
                                   hr_error *error) {
  static const int names[] = {[HRI_GPU_BIAS] = HRI_CUBLASLT_EPILOGUE_BIAS,
                              [HRI_GPU_GELU_BACKWARD] = HRI_CUBLASLT_EPILOGUE_DGELU,
                              [HRI_GPU_BIAS_GRADIENT] = HRI_CUBLASLT_EPILOGUE_BGRADB};
  if (p->epilogue == HRI_GPU_NO_EPILOGUE) return HR_OK;
  HRI_TRY(set(c, d->desc, HRI_CUBLASLT_MATMUL_DESC_EPILOGUE, &names[p->epilogue], sizeof *names, error));
  if (p->epilogue != HRI_GPU_GELU_BACKWARD)
    return set(c, d->desc, HRI_CUBLASLT_MATMUL_DESC_BIAS_POINTER, &beside, sizeof beside, error);
  HRI_TRY(set(c, d->desc, HRI_CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &beside, sizeof beside, error));
  return set(c, d->desc, HRI_CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &p->d_stride, sizeof p->d_stride, error);
}

static hr_status describe_operation(cublas *c, const hri_gpu_product *p, const void *beside, described *d,
                                    hr_error *error) {
  int compute = p->tf32 ? HRI_CUBLAS_COMPUTE_32F_FAST_TF32 : HRI_CUBLAS_COMPUTE_32F, turn = HRI_CUBLAS_OP_T;
  HRI_TRY(check(c->f.desc_create(&d->desc, compute, HRI_CUDA_R_32F), "a product", error));
  if (p->b_turned) HRI_TRY(set(c, d->desc, HRI_CUBLASLT_MATMUL_DESC_TRANSA, &turn, sizeof turn, error));
  if (p->a_turned) HRI_TRY(set(c, d->desc, HRI_CUBLASLT_MATMUL_DESC_TRANSB, &turn, sizeof turn, error));
  return describe_epilogue(c, p, beside, d, error);
}

static hr_status layout(cublas *c, void **made, hri_real real, int64_t rows, int64_t columns, int64_t stride,
                        hr_error *error) {
  return check(c->f.layout_create(made, type_of(real), (uint64_t)rows, (uint64_t)columns, stride), "a matrix", error);
}

/* Rows of ours are columns there. */
static hr_status describe(cublas *c, const hri_gpu_product *p, const void *beside, described *d, hr_error *error) {
  HRI_TRY(describe_operation(c, p, beside, d, error));
  HRI_TRY(layout(c, &d->first, p->operands, p->b_turned ? p->k : p->n, p->b_turned ? p->n : p->k, p->b_stride, error));
  HRI_TRY(layout(c, &d->second, p->operands, p->a_turned ? p->m : p->k, p->a_turned ? p->k : p->m, p->a_stride, error));
  return layout(c, &d->result, p->result, p->n, p->m, p->d_stride, error);
}

static void forget(cublas *c, described *d) {
  if (d->wish) (void)c->f.wish_destroy(d->wish);
  if (d->result) (void)c->f.layout_destroy(d->result);
  if (d->second) (void)c->f.layout_destroy(d->second);
  if (d->first) (void)c->f.layout_destroy(d->first);
  if (d->desc) (void)c->f.desc_destroy(d->desc);
}

static hr_status wish(cublas *c, const hri_gpu_product *p, uint64_t workspace_bytes, described *d, hr_error *error) {
  uint32_t schemes = HRI_CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | HRI_CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  HRI_TRY(check(c->f.wish_create(&d->wish), "a preference", error));
  HRI_TRY(check(c->f.wish_set(d->wish, HRI_CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes,
                              sizeof workspace_bytes),
                "the workspace", error));
  HRI_TRY(check(c->f.wish_set(d->wish, HRI_CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes),
                "ways of reduction", error));
  for (int k = HRI_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES; k <= HRI_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES; k++)
    HRI_TRY(check(c->f.wish_set(d->wish, k, &p->alignment, sizeof p->alignment), "an alignment", error));
  return HR_OK;
}

/* What stands for the array beside a product that is only asked for: as it will be aligned. */
static const void *unread(const hri_gpu_product *p) { return (const void *)(uintptr_t)p->alignment; }

static hr_status choose(cublas *c, const hri_gpu_product *p, uint64_t workspace_bytes, described *d,
                        hri_gpu_algorithm *algorithm, hr_error *error) {
  hri_cublas_found found;
  int count = 0, code;
  memset(&found, 0, sizeof found);
  if (p->epilogue == HRI_GPU_GELU_BACKWARD && p->d_stride % AUX_STRIDE != 0)
    return hri_fail(error, HR_ERROR_UNSUPPORTED, "%s has no slope of gelu for rows of %lld elements",
                    c->products.library, (long long)p->d_stride);
  HRI_TRY(describe(c, p, unread(p), d, error));
  HRI_TRY(wish(c, p, workspace_bytes, d, error));
  code = c->f.heuristic(c->handle, d->desc, d->first, d->second, d->result, d->result, d->wish, 1, &found, &count);
  if (code != 0 || count < 1 || found.status != 0 || found.workspace_bytes > workspace_bytes)
    return hri_fail(error, HR_ERROR_UNSUPPORTED,
                    "%s has no product of %lld x %lld x %lld in a workspace of %llu bytes (status %d)",
                    c->products.library, (long long)p->m, (long long)p->n, (long long)p->k,
                    (unsigned long long)workspace_bytes, code ? code : found.status);
  algorithm->workspace_bytes = found.workspace_bytes;
  memcpy(algorithm->words, found.algorithm.words, sizeof algorithm->words);
  return HR_OK;
}

static hr_status cublas_choose(hri_gpu_products *products, const hri_gpu_product *product, uint64_t workspace_bytes,
                               hri_gpu_algorithm *algorithm, hr_error *error) {
  described d = {0};
  hr_status status;
  memset(algorithm, 0, sizeof *algorithm);
  if (product->m == 0 || product->n == 0) return HR_OK;
  status = choose(of(products), product, workspace_bytes, &d, algorithm, error);
  forget(of(products), &d);
  return status;
}

static hr_status check_way(cublas *c, const hri_gpu_product *p, const hri_gpu_algorithm *algorithm, described *d,
                           hr_error *error) {
  hri_cublas_algorithm way;
  hri_cublas_found found;
  int code;
  memcpy(way.words, algorithm->words, sizeof way.words);
  memset(&found, 0, sizeof found);
  HRI_TRY(describe(c, p, unread(p), d, error));
  code = c->f.way_check(c->handle, d->desc, d->first, d->second, d->result, d->result, &way, &found);
  if (code == 0 && found.status == 0 && found.workspace_bytes <= algorithm->workspace_bytes) return HR_OK;
  if (code == 0 && found.status == 0)
    return hri_fail(error, HR_ERROR_UNSUPPORTED, "%s wants a workspace of %llu bytes for it, not of %llu",
                    c->products.library, (unsigned long long)found.workspace_bytes,
                    (unsigned long long)algorithm->workspace_bytes);
  return hri_fail(error, HR_ERROR_UNSUPPORTED, "%s does not take it (status %d)", c->products.library,
                  code ? code : found.status);
}

static hr_status cublas_check(hri_gpu_products *products, const hri_gpu_product *product,
                              const hri_gpu_algorithm *algorithm, hr_error *error) {
  described d = {0};
  hr_status status;
  if (product->m == 0 || product->n == 0) return HR_OK;
  status = check_way(of(products), product, algorithm, &d, error);
  forget(of(products), &d);
  return status;
}

static hr_status cublas_run(hri_gpu_products *products, const hri_gpu_product *product,
                            const hri_gpu_algorithm *algorithm, const void *a, const void *b, void *beside, void *to,
                            void *workspace, hri_gpu_stream *stream, hr_error *error) {
  cublas *c = of(products);
  const float one = 1, kept = product->accumulate ? 1 : 0;
  hri_cublas_algorithm way;
  described d = {0};
  hr_status status;
  if (product->m == 0 || product->n == 0) return HR_OK;
  memcpy(way.words, algorithm->words, sizeof way.words);
  HRI_TRY_OUT(describe(c, product, beside, &d, error));
  HRI_TRY_OUT(check(c->f.matmul(c->handle, d.desc, &one, b, d.first, a, d.second, &kept, to, d.result, to, d.result,
                                &way, workspace, (size_t)algorithm->workspace_bytes, stream),
                    "a product", error));
out:
  forget(c, &d);
  return status;
}

static void cublas_close(hri_gpu_products *products) {
  cublas *c = of(products);
  if (!c) return;
  if (c->handle) (void)c->f.destroy(c->handle);
  if (c->library) (void)dlclose(c->library);
  hri_free(c);
}

static void name_version(const hri_cublas *f, char text[HRI_GPU_LIBRARY_BYTES]) {
  size_t version = f->version();
  (void)snprintf(text, HRI_GPU_LIBRARY_BYTES, "cublasLt %zu.%zu.%zu", version / 10000, version / 100 % 100,
                 version % 100);
}

hr_status hri_gpu_cublas_from(const hri_cublas *functions, void *library, hri_gpu_products **products,
                              hr_error *error) {
  static const hri_gpu_product_calls calls = {cublas_close, cublas_choose, cublas_check, cublas_run};
  cublas *c = hri_alloc_zero(1, sizeof *c);
  hr_status status;
  *products = NULL;
  if (!c) return hri_fail_memory(error, sizeof *c, "cuBLASLt");
  c->products.calls = &calls;
  c->f = *functions;
  status = check(c->f.create(&c->handle), "its beginning", error);
  if (status != HR_OK) {
    cublas_close(&c->products);
    return status;
  }
  c->library = library; /* from here on: who called keeps it where this failed */
  name_version(&c->f, c->products.library);
  *products = &c->products;
  return HR_OK;
}

/* ---- the library ---- */

/* Where the loader does not look: NVIDIA's packages of PyPI in the environment of Python that is active, those of Conda,
 * and the toolkit as it is installed; of several versions the last, which is the newest. */
static void *open_elsewhere(void) {
  static const struct {
    const char *variable, *pattern;
  } places[] = {{"VIRTUAL_ENV", "/lib/python3*/site-packages/nvidia/*/lib/libcublasLt.so.1[23]"},
                {"CONDA_PREFIX", "/lib/python3*/site-packages/nvidia/*/lib/libcublasLt.so.1[23]"},
                {"CONDA_PREFIX", "/lib/libcublasLt.so.1[23]"},
                {"CUDA_HOME", "/lib64/libcublasLt.so.1[23]"},
                {NULL, "/usr/local/cuda*/lib64/libcublasLt.so.1[23]"}};
  void *library = NULL;
  for (size_t k = 0; k < sizeof places / sizeof *places && !library; k++) {
    const char *folder = places[k].variable ? getenv(places[k].variable) : "";
    char pattern[4096];
    glob_t found;
    if (!folder || snprintf(pattern, sizeof pattern, "%s%s", folder, places[k].pattern) >= (int)sizeof pattern)
      continue;
    if (glob(pattern, 0, NULL, &found) != 0) continue;
    for (size_t n = found.gl_pathc; n > 0 && !library; n--)
      library = dlopen(found.gl_pathv[n - 1], RTLD_NOW | RTLD_LOCAL);
    globfree(&found);
  }
  return library;
}

static hr_status load(void **library, hri_cublas *f, hr_error *error) {
  static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
  const char *missing = NULL;
  *library = NULL;
  for (size_t k = 0; k < sizeof names / sizeof *names && !*library; k++)
    *library = dlopen(names[k], RTLD_NOW | RTLD_LOCAL);
  if (!*library) *library = open_elsewhere();
  if (!*library) {
    (void)hri_fail(error, HR_ERROR_UNSUPPORTED, "libcublasLt.so.13, NVIDIA's library of matrix products, is not there");
    return hri_hint(error, HR_ERROR_UNSUPPORTED,
                    "install cuBLAS of CUDA 13 or 12 (PyPI has it as nvidia-cublas); LD_LIBRARY_PATH names its folder "
                    "where it is not found in the active environment of Python or in /usr/local/cuda");
  }
#define LOAD(member, type, name, parameters)                                                                           \
  if (!hri_library_function(*library, name, (void *)&f->member)) missing = name;
  HRI_CUBLAS(LOAD)
#undef LOAD
  if (!missing) return HR_OK;
  (void)dlclose(*library);
  return hri_fail(error, HR_ERROR_UNSUPPORTED, "libcublasLt has no function %s", missing);
}

hr_status hri_gpu_cublas_open(hri_gpu_products **products, hr_error *error) {
  void *library;
  hri_cublas f;
  hr_status status;
  *products = NULL;
  HRI_TRY(load(&library, &f, error));
  status = hri_gpu_cublas_from(&f, library, products, error);
  if (status != HR_OK) (void)dlclose(library);
  return status;
}

hr_status hri_gpu_cublas_look(char text[HRI_GPU_LIBRARY_BYTES], hr_error *error) {
  void *library;
  hri_cublas f;
  text[0] = 0;
  HRI_TRY(load(&library, &f, error));
  name_version(&f, text);
  return HR_OK; /* it stays: who asks for a card's name opens the card next, and it has hundreds of megabytes to load */
}
