/* A card in software for whole programs: one library under the names of CUDA's driver, cuBLASLt, Headroom's kernels and
 * NVML, which src/gpu and src/backend/cuda load as they load the real ones. Behind the driver's functions is the GPU in
 * software (gpu/soft), behind cuBLASLt's its reference product; the kernels are those of src/ops, compiled for the host.
 * Only what our code calls is here, and only as it calls it: a value that it never passes is answered by an error.
 *
 * SOFT_CARD_BYTES is the card's memory (1 GiB when not set), SOFT_CARD_SEED the order of what is free,
 * SOFT_CARD_HELD bytes that another process holds; a context takes 300 MiB. SOFT_CARD_UUID (a byte of it), SOFT_CARD_DRIVER,
 * SOFT_CARD_CUDA and SOFT_CARD_CUBLAS (versions) make it another card or another driver; with SOFT_CARD_BLIND NVML does not
 * show this process, as in a container.
 *
 * SOFT_CARD_WAY is the way that the library names for products (0 to 2, which sum in another order each), SOFT_CARD_WAYS how
 * many it has; with SOFT_CARD_PLAIN it has no epilogues of the backward.
 *
 * A driver that takes memory while work runs: with SOFT_CARD_GROWS=N it takes 2 MiB with the N-th launch of a graph. Stacks of
 * all threads are as deep as cuCtxSetLimit says, and 1024 bytes before; SOFT_CARD_FRAME=KERNEL:BYTES:N gives a kernel, by a
 * part of its name, a frame of so many bytes from its N-th launch on, and one that is deeper than stacks are makes them so.
 * What the software GPU finds is an error of the next wait. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/cublas.h"
#include "gpu/soft/product.h"
#include "gpu/soft/runtime.h"

enum {
  OUT_OF_MEMORY = 2,
  INVALID_VALUE = 1,
  LAUNCH_FAILED = 719,
  GRANULE = 2 << 20,
  CONTEXT = 298 << 20, /* beside stacks */
  THREADS = 4 * 2048,  /* that can be on the card at once, each with a stack */
  STACK = 1024         /* of a thread, unless somebody says otherwise */
};

static struct {
  hri_gpu *gpu;
  uint32_t retained;
  uint64_t reserved;     /* of allocations, in whole granules as a card gives them */
  uint64_t stack;        /* bytes of a thread's */
  uint64_t taken;        /* by the driver for itself, beside context and stacks */
  uint64_t graphs_run;   /* launches of graphs */
  uint64_t deep_kernels; /* launches of the kernel with a frame of its own */
} card;

static uint64_t variable(const char *name, uint64_t without) {
  const char *text = getenv(name);
  return text ? strtoull(text, NULL, 0) : without;
}
static uint64_t total_bytes(void) { return variable("SOFT_CARD_BYTES", 1ull << 30); }
static uint64_t held_bytes(void) { return variable("SOFT_CARD_HELD", 0); }

static int result(hr_status status) {
  return status == HR_OK ? 0 : status == HR_ERROR_MEMORY ? OUT_OF_MEMORY : LAUNCH_FAILED;
}

/* ---- the driver: the device ---- */

int cuInit(unsigned flags) { return flags ? INVALID_VALUE : 0; }
int cuGetErrorName(int code, const char **text) {
  *text = code == OUT_OF_MEMORY   ? "CUDA_ERROR_OUT_OF_MEMORY"
          : code == LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED"
                                  : "CUDA_ERROR_INVALID_VALUE";
  return 0;
}
int cuDriverGetVersion(int *version) { return *version = (int)variable("SOFT_CARD_CUDA", 13010), 0; }
int cuDeviceGetCount(int *count) { return *count = 1, 0; }
int cuDeviceGet(int *device, int index) { return *device = 7, index == 0 ? 0 : INVALID_VALUE; }
int cuDeviceGetName(char *name, int bytes, int device) {
  strncpy(name, "Card in software", (size_t)bytes);
  return device == 7 ? 0 : INVALID_VALUE;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) {
  *bytes = total_bytes();
  return device == 7 ? 0 : INVALID_VALUE;
}
int cuDeviceGetUuid_v2(unsigned char uuid[16], int device) {
  return memset(uuid, (int)variable("SOFT_CARD_UUID", 7), 16), device != 7;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  (void)device;
  switch (attribute) {
  case 13: *value = 1000000; return 0; /* kHz */
  case 16: *value = 4; return 0;       /* multiprocessors */
  case 36: *value = 1000000; return 0; /* kHz of the memory */
  case 37: *value = 64; return 0;      /* bits of its bus */
  case 75: *value = 8; return 0;       /* compute capability */
  case 76: *value = 0; return 0;
  case 97: *value = 99 << 10; return 0; /* shared memory of a block */
  default: return INVALID_VALUE;
  }
}
/* Rounded as a card gives it. */
static uint64_t stack_bytes(void) { return (card.stack * THREADS + GRANULE - 1) / GRANULE * GRANULE; }
static uint64_t own_bytes(void) { return CONTEXT + stack_bytes() + card.taken + card.reserved; }

static void deepen_stacks(const char *kernel) {
  const char *text = getenv("SOFT_CARD_FRAME"), *bytes = text ? strchr(text, ':') : NULL;
  const char *from = bytes ? strchr(bytes + 1, ':') : NULL;
  char name[64];
  if (!from || snprintf(name, sizeof name, "%.*s", (int)(bytes - text), text) <= 0 || !strstr(kernel, name)) return;
  if (++card.deep_kernels < strtoull(from + 1, NULL, 0)) return;
  if (strtoull(bytes + 1, NULL, 0) > card.stack) card.stack = strtoull(bytes + 1, NULL, 0);
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
  hri_gpu_soft_options options = {.seed = variable("SOFT_CARD_SEED", 1),
                                  .memory_bytes = total_bytes() + (64ull << 20),
                                  .on_kernel = deepen_stacks};
  *context = &card;
  if (device != 7) return INVALID_VALUE;
  if (card.retained++ > 0) return 0;
  card.stack = STACK;
  return result(hri_gpu_soft_open(&options, &card.gpu, NULL));
}
int cuDevicePrimaryCtxRelease_v2(int device) {
  if (device != 7 || card.retained == 0) return INVALID_VALUE;
  if (--card.retained == 0) card.gpu->calls->close(card.gpu), card.gpu = NULL;
  return 0;
}
int cuCtxSetCurrent(void *context) { return context == &card ? 0 : INVALID_VALUE; }
int cuCtxSetLimit(int limit, size_t value) {
  if (limit == 0) card.stack = value;
  return limit < 0 || limit > 2 ? INVALID_VALUE : 0; /* what printf and malloc have is in the context */
}
int cuCtxGetLimit(size_t *value, int limit) { return *value = card.stack, limit == 0 ? 0 : INVALID_VALUE; }

/* ---- the driver: memory, with a card's granules; what it is short of is refused before the software GPU is asked ---- */

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
  *total = total_bytes();
  *free_bytes = *total - held_bytes() - own_bytes();
  return 0;
}

typedef struct allocation {
  struct allocation *next;
  void *memory;
  uint64_t bytes;
} allocation;
static allocation *allocations;

int cuMemAlloc_v2(unsigned long long *memory, size_t bytes) {
  uint64_t taken = (bytes + GRANULE - 1) / GRANULE * GRANULE;
  allocation *a;
  void *at;
  hr_status status;
  *memory = 0;
  if (own_bytes() + taken + held_bytes() > total_bytes()) return OUT_OF_MEMORY;
  status = card.gpu->calls->allocate(card.gpu, bytes, &at, NULL);
  if (status != HR_OK) return result(status);
  a = malloc(sizeof *a);
  if (!a) return OUT_OF_MEMORY;
  *a = (allocation){allocations, at, taken};
  allocations = a;
  card.reserved += taken;
  *memory = (uintptr_t)at;
  return 0;
}
int cuMemFree_v2(unsigned long long memory) {
  for (allocation **a = &allocations; *a; a = &(*a)->next) {
    allocation *gone = *a;
    if ((uintptr_t)gone->memory != memory) continue;
    *a = gone->next;
    card.reserved -= gone->bytes;
    free(gone);
    return result(card.gpu->calls->release(card.gpu, (void *)(uintptr_t)memory, NULL));
  }
  return INVALID_VALUE;
}
int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags) {
  return flags ? INVALID_VALUE : result(card.gpu->calls->allocate_host(card.gpu, bytes, memory, NULL));
}
int cuMemFreeHost(void *memory) { return result(card.gpu->calls->release_host(card.gpu, memory, NULL)); }
int cuMemcpyAsync(unsigned long long to, unsigned long long from, size_t bytes, void *stream) {
  return result(
      card.gpu->calls->copy(card.gpu, (void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes, stream, NULL));
}
int cuMemsetD8Async(unsigned long long to, unsigned char value, size_t bytes, void *stream) {
  return result(card.gpu->calls->fill(card.gpu, (void *)(uintptr_t)to, value, bytes, stream, NULL));
}

/* ---- the driver: streams, events, graphs ---- */

int cuStreamCreate(void **stream, unsigned flags) {
  return flags == 1 ? result(card.gpu->calls->stream_create(card.gpu, (hri_gpu_stream **)stream, NULL)) : INVALID_VALUE;
}
int cuStreamDestroy_v2(void *stream) { return card.gpu->calls->stream_destroy(card.gpu, stream), 0; }
int cuStreamSynchronize(void *stream) { return result(card.gpu->calls->stream_finish(card.gpu, stream, NULL)); }
int cuEventCreate(void **event, unsigned flags) {
  if (flags == 2) return result(card.gpu->calls->event_create(card.gpu, (hri_gpu_event **)event, NULL));
  return flags ? INVALID_VALUE : result(card.gpu->calls->event_create_timed(card.gpu, (hri_gpu_event **)event, NULL));
}
int cuEventElapsedTime_v2(float *milliseconds, void *begin, void *end) {
  double seconds = 0;
  hr_status status = card.gpu->calls->event_seconds(card.gpu, begin, end, &seconds, NULL);
  *milliseconds = (float)(seconds * 1000);
  return result(status);
}
int cuEventDestroy_v2(void *event) { return card.gpu->calls->event_destroy(card.gpu, event), 0; }
int cuEventRecord(void *event, void *stream) { return result(card.gpu->calls->record(card.gpu, event, stream, NULL)); }
int cuEventSynchronize(void *event) { return result(card.gpu->calls->event_finish(card.gpu, event, NULL)); }
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
  return flags ? INVALID_VALUE : result(card.gpu->calls->wait(card.gpu, stream, event, NULL));
}
int cuStreamBeginCapture_v2(void *stream, int mode) {
  return mode == 1 ? result(card.gpu->calls->capture_begin(card.gpu, stream, NULL)) : INVALID_VALUE;
}
/* The software GPU's graph is both what is captured and what is launched. */
int cuStreamEndCapture(void *stream, void **graph) {
  return result(card.gpu->calls->capture_end(card.gpu, stream, (hri_gpu_graph **)graph, NULL));
}
int cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags) {
  return *exec = graph, flags ? INVALID_VALUE : 0;
}
int cuGraphUpload(void *exec, void *stream) { return exec && stream ? 0 : INVALID_VALUE; }
int cuGraphLaunch(void *exec, void *stream) {
  if (++card.graphs_run == variable("SOFT_CARD_GROWS", 0)) card.taken += GRANULE;
  return result(card.gpu->calls->graph_launch(card.gpu, exec, stream, NULL));
}
int cuGraphExecDestroy(void *exec) { return exec ? 0 : INVALID_VALUE; } /* goes with its graph */
int cuGraphDestroy(void *graph) { return card.gpu->calls->graph_destroy(card.gpu, graph), 0; }

/* ---- cuBLASLt: descriptions become a product of ours, counted by rows again ---- */

typedef struct description {
  int compute, turn_first, turn_second, epilogue;
  void *bias, *aux;
  int64_t aux_ld;
} description;
typedef struct matrix {
  int type;
  uint64_t rows, columns;
  int64_t ld;
} matrix;
typedef struct wish {
  uint64_t workspace_bytes;
  uint32_t schemes, alignment;
} wish;

static hri_gpu_products *products; /* of the reference; with the first handle */

int cublasLtCreate(void **handle) {
  *handle = &products;
  return products ? 0 : hri_gpu_soft_products(&products, NULL) != HR_OK;
}
int cublasLtDestroy(void *handle) { return handle != &products; }
size_t cublasLtGetVersion(void) { return variable("SOFT_CARD_CUBLAS", 130100); }

static int make(void **made, size_t bytes) { return *made = calloc(1, bytes), *made == NULL; }
int cublasLtMatmulDescCreate(void **desc, int compute, int scale) {
  if (scale != HRI_CUDA_R_32F || make(desc, sizeof(description))) return 1;
  ((description *)*desc)->compute = compute;
  return 0;
}
int cublasLtMatmulDescDestroy(void *desc) { return free(desc), 0; }
int cublasLtMatmulDescSetAttribute(void *desc, int name, const void *value, size_t bytes) {
  description *d = desc;
  void *member = name == HRI_CUBLASLT_MATMUL_DESC_TRANSA                 ? (void *)&d->turn_first
                 : name == HRI_CUBLASLT_MATMUL_DESC_TRANSB               ? (void *)&d->turn_second
                 : name == HRI_CUBLASLT_MATMUL_DESC_EPILOGUE             ? (void *)&d->epilogue
                 : name == HRI_CUBLASLT_MATMUL_DESC_BIAS_POINTER         ? (void *)&d->bias
                 : name == HRI_CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER ? (void *)&d->aux
                 : name == HRI_CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD      ? (void *)&d->aux_ld
                                                                         : NULL;
  size_t room = member == (void *)&d->bias || member == (void *)&d->aux || member == (void *)&d->aux_ld
                    ? sizeof d->bias
                    : sizeof d->epilogue;
  if (!member || bytes != room) return 7;
  memcpy(member, value, bytes);
  return 0;
}
int cublasLtMatrixLayoutCreate(void **layout, int type, uint64_t rows, uint64_t columns, int64_t ld) {
  if (ld < (int64_t)rows || make(layout, sizeof(matrix))) return 1; /* columns do not overlap */
  *(matrix *)*layout = (matrix){type, rows, columns, ld};
  return 0;
}
int cublasLtMatrixLayoutDestroy(void *layout) { return free(layout), 0; }
int cublasLtMatmulPreferenceCreate(void **made) { return make(made, sizeof(wish)); }
int cublasLtMatmulPreferenceDestroy(void *made) { return free(made), 0; }
int cublasLtMatmulPreferenceSetAttribute(void *made, int name, const void *value, size_t bytes) {
  wish *w = made;
  void *member =
      name == HRI_CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES     ? (void *)&w->workspace_bytes
      : name == HRI_CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK ? (void *)&w->schemes
      : name >= HRI_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES && name <= HRI_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES
          ? (void *)&w->alignment
          : NULL;
  size_t room = member == &w->workspace_bytes ? sizeof w->workspace_bytes : sizeof w->schemes;
  if (!member || bytes != room) return 7;
  memcpy(member, value, bytes);
  return 0;
}

static bool real_of(int type, hri_real *real) {
  *real = type == HRI_CUDA_R_32F ? HRI_REAL_F32 : type == HRI_CUDA_R_16BF ? HRI_REAL_BF16 : HRI_REAL_F16;
  return type == HRI_CUDA_R_32F || type == HRI_CUDA_R_16BF || type == HRI_CUDA_R_16F;
}

static bool epilogue_of(const description *d, hri_gpu_product *p) {
  p->epilogue = d->epilogue == HRI_CUBLASLT_EPILOGUE_BIAS     ? HRI_GPU_BIAS
                : d->epilogue == HRI_CUBLASLT_EPILOGUE_DGELU  ? HRI_GPU_GELU_BACKWARD
                : d->epilogue == HRI_CUBLASLT_EPILOGUE_BGRADB ? HRI_GPU_BIAS_GRADIENT
                                                              : HRI_GPU_NO_EPILOGUE;
  if (p->epilogue > HRI_GPU_BIAS && getenv("SOFT_CARD_PLAIN"))
    return false; /* a library that has none of the backward */
  if (p->epilogue != HRI_GPU_GELU_BACKWARD) return d->epilogue == 0 || p->epilogue;
  return d->aux_ld == p->d_stride && d->aux_ld % 8 == 0 && (uintptr_t)d->aux % 16 == 0;
}

/* Its first operand is our second. */
static bool product_of(const description *d, const matrix *first, const matrix *second, const matrix *to,
                       uint32_t alignment, hri_gpu_product *p) {
  hri_real other;
  memset(p, 0, sizeof *p);
  if (!real_of(first->type, &p->operands) || !real_of(second->type, &other) || other != p->operands) return false;
  if (!real_of(to->type, &p->result)) return false;
  p->b_turned = d->turn_first == HRI_CUBLAS_OP_T;
  p->a_turned = d->turn_second == HRI_CUBLAS_OP_T;
  p->n = (int64_t)to->rows;
  p->m = (int64_t)to->columns;
  p->k = (int64_t)(p->b_turned ? first->rows : first->columns);
  if ((int64_t)(p->b_turned ? first->columns : first->rows) != p->n) return false;
  if ((int64_t)(p->a_turned ? second->rows : second->columns) != p->m) return false;
  if ((int64_t)(p->a_turned ? second->columns : second->rows) != p->k) return false;
  p->b_stride = first->ld;
  p->a_stride = second->ld;
  p->d_stride = to->ld;
  p->alignment = alignment;
  p->tf32 = d->compute == HRI_CUBLAS_COMPUTE_32F_FAST_TF32;
  if (!epilogue_of(d, p)) return false;
  return d->compute == HRI_CUBLAS_COMPUTE_32F || p->tf32;
}

/* The alignment that it was chosen for goes along in the algorithm, so that running it can be held to it. */
int cublasLtMatmulAlgoGetHeuristic(void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference,
                                   int asked, hri_cublas_found *found, int *count) {
  const wish *w = preference;
  hri_gpu_algorithm algorithm;
  hri_gpu_product p;
  *count = 0;
  if (handle != &products || asked != 1 || c != d || w->schemes == 0 || !product_of(desc, a, b, d, w->alignment, &p))
    return 7;
  if (products->calls->choose(products, &p, w->workspace_bytes, &algorithm, NULL) != HR_OK) return 15;
  memset(found, 0, sizeof *found);
  found->workspace_bytes = algorithm.workspace_bytes;
  found->algorithm.words[0] = w->alignment;
  found->algorithm.words[1] = algorithm.workspace_bytes;
  found->algorithm.words[2] = variable("SOFT_CARD_WAY", 0) % HRI_SOFT_WAYS;
  *count = 1;
  return 0;
}

int cublasLtMatmulAlgoCheck(void *handle, void *desc, void *a, void *b, void *c, void *d,
                            const hri_cublas_algorithm *way, hri_cublas_found *found) {
  hri_gpu_product p;
  if (handle != &products || c != d || !product_of(desc, a, b, d, (uint32_t)way->words[0], &p)) return 7;
  memset(found, 0, sizeof *found);
  found->algorithm = *way;
  found->workspace_bytes = way->words[1];
  return way->words[2] < variable("SOFT_CARD_WAYS", HRI_SOFT_WAYS) ? 0 : 15;
}

int cublasLtMatmul(void *handle, void *desc, const void *alpha, const void *a, void *a_layout, const void *b,
                   void *b_layout, const void *beta, const void *c, void *c_layout, void *d, void *d_layout,
                   const hri_cublas_algorithm *way, void *workspace, size_t workspace_bytes, void *stream) {
  hri_gpu_algorithm algorithm = {.workspace_bytes = way->words[1], .words = {way->words[2]}};
  const description *e = desc;
  float one, kept;
  hri_gpu_product p;
  memcpy(&one, alpha, sizeof one);
  memcpy(&kept, beta, sizeof kept);
  if (handle != &products || one != 1 || (kept != 0 && kept != 1) || c != d || c_layout != d_layout) return 7;
  if (workspace_bytes < algorithm.workspace_bytes) return 7;
  if (!product_of(desc, a_layout, b_layout, d_layout, (uint32_t)way->words[0], &p)) return 7;
  p.accumulate = kept == 1;
  return products->calls->run(products, &p, &algorithm, b, a, p.epilogue == HRI_GPU_GELU_BACKWARD ? e->aux : e->bias, d,
                              workspace, stream, NULL) != HR_OK;
}

/* ---- NVML ---- */

int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned bytes) {
  const char *version = getenv("SOFT_CARD_DRIVER");
  if (!version) version = "580.01";
  return strlen(version) < bytes ? strcpy(text, version), 0 : 7;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
  char wanted[48], byte[4];
  (void)snprintf(byte, sizeof byte, "%02x", (unsigned)variable("SOFT_CARD_UUID", 7) & 255);
  strcpy(wanted, "GPU-");
  for (int k = 0; k < 16; k++) strcat(strcat(wanted, k == 4 || k == 6 || k == 8 || k == 10 ? "-" : ""), byte);
  *device = &card;
  return strcmp(uuid, wanted) != 0;
}
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long memory[3]) {
  memory[0] = total_bytes();
  memory[2] = held_bytes() + (card.retained ? own_bytes() : 0);
  memory[1] = memory[0] - memory[2];
  return device != &card;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, void *list) {
  struct {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
  } processes[2] = {{1, held_bytes(), 0, 0}, {(unsigned)getpid(), own_bytes(), 0, 0}};
  if (*count < 2 || device != &card) return 7;
  *count = card.retained && !getenv("SOFT_CARD_BLIND") ? 2 : 1;
  memcpy(list, processes, *count * sizeof processes[0]);
  return 0;
}
