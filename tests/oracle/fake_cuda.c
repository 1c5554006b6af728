/* A CUDA runtime and driver without a device: enough of libcudart and libcuda for PyTorch's caching allocator to run
 * unchanged, and for PyTorch itself to import and to step through training with kernels that do nothing.
 *
 * It hands out addresses by rules that anyone can follow (the C test does), counts bytes against a stated capacity, and
 * writes down each request. Nothing is behind device addresses. Rules, words of the log: tests/oracle/README.md.
 *
 * Built once per CUDA major version against NVIDIA's headers, because the layout of cudaDeviceProp differs. */
#include "fake_cuda.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "space.h"

enum { STREAM_CAPACITY = 64, GRANULE = 2 << 20 };

/* ---- addresses: a space for each kind ---- */

static space segments = {.base = 0x700000000000};
static space reservations = {.base = 0x100000000000};

/* ---- state ---- */

struct fake_event { /* cudaEvent_t points here */
  int stream;       /* index; -1: never recorded */
  uint64_t mark;
};

/* What kernels and their launchers ask of a card: it decides which kernel is taken and the size of its temporary memory. */
typedef struct fake_card {
  int major, minor, processors, threads, blocks; /* threads and blocks per multiprocessor */
  int shared_kib, l2_mib;                        /* shared: the most that a block may opt into */
  int code;                                      /* of the binary that PyTorch's wheels bring for it */
} fake_card;

static const fake_card cards[] = {
    {8, 0, 108, 2048, 32, 163, 40, 80}, /* A100; the first is what there is unless somebody chooses */
    {7, 5, 40, 1024, 16, 64, 4, 75},    /* T4 */
    {8, 6, 82, 1536, 16, 99, 6, 86},    /* RTX 3090 */
    {8, 9, 128, 1536, 24, 99, 72, 86},  /* RTX 4090 */
    {9, 0, 132, 2048, 32, 227, 50, 90}, /* H100 */
};
static const fake_card *card = cards;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t capacity = (uint64_t)8 << 30, used;
static uint64_t stream_handles[STREAM_CAPACITY], recorded[STREAM_CAPACITY], completed[STREAM_CAPACITY];
static int stream_count, created_streams, capturing, eager_events;
static cudaError_t last_error;
static uint64_t host_reads; /* copies from the device to the host */

static char *log_text, *taken;
static size_t log_length, log_capacity;
static uint64_t map_end, unmap_end; /* of the last word, when that was a map or an unmap that can grow */
static size_t last_word;

static void log_word(char kind, uint64_t address, uint64_t size) {
  if (log_capacity - log_length < 64) {
    log_capacity = log_capacity ? log_capacity * 2 : 4096;
    log_text = realloc(log_text, log_capacity);
    if (!log_text) abort();
  }
  last_word = log_length;
  if (!address && !size && kind == 'X') {
    log_length += (size_t)sprintf(log_text + log_length, " X");
  } else if (address) {
    log_length += (size_t)sprintf(log_text + log_length, " %c%llx,%llx", kind, (unsigned long long)address,
                                  (unsigned long long)size);
  } else {
    log_length += (size_t)sprintf(log_text + log_length, " %c%llx", kind, (unsigned long long)size);
  }
  map_end = unmap_end = 0;
}

/* Maps and unmaps come chunk by chunk; neighbours in ascending order are one word. */
static void log_growing(char kind, uint64_t *end, uint64_t address, uint64_t size) {
  if (*end && *end == address) {
    uint64_t first = strtoull(log_text + last_word + 2, NULL, 16);
    log_length = last_word;
    log_word(kind, first, address + size - first);
  } else {
    log_word(kind, address, size);
  }
  *end = address + size;
}

static int stream_index(uint64_t handle) {
  for (int i = 0; i < stream_count; i++) {
    if (stream_handles[i] == handle) return i;
  }
  if (stream_count == STREAM_CAPACITY) abort();
  stream_handles[stream_count] = handle;
  return stream_count++;
}

static cudaError_t fail(cudaError_t error) {
  last_error = error;
  return error;
}

/* ---- control ---- */

void fake_set_capacity(uint64_t bytes) { capacity = bytes; }
int fake_set_card(int major, int minor) {
  for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
    if (cards[i].major != major || cards[i].minor != minor) continue;
    card = &cards[i];
    return 0;
  }
  return -1;
}
void fake_set_capturing(int now) { capturing = now; }
void fake_set_eager_events(int eager) { eager_events = eager; }
uint64_t fake_used_bytes(void) { return used; }
uint64_t fake_host_reads(void) { return __atomic_load_n(&host_reads, __ATOMIC_RELAXED); }

void fake_complete_events(uint64_t stream, uint64_t count) {
  int i = stream_index(stream);
  uint64_t open = recorded[i] - completed[i];
  completed[i] += count < open ? count : open;
}

const char *fake_take_log(void) {
  free(taken);
  taken = log_text ? log_text : calloc(1, 1);
  taken[log_length] = 0;
  log_text = NULL;
  log_length = log_capacity = 0;
  map_end = unmap_end = 0;
  return taken;
}

/* ---- runtime: memory ---- */

cudaError_t cudaMalloc(void **pointer, size_t size) {
  pthread_mutex_lock(&lock);
  cudaError_t result = cudaSuccess;
  *pointer = NULL;
  uint64_t taken_bytes = (size + GRANULE - 1) / GRANULE * GRANULE;
  if (taken_bytes > capacity - used) {
    log_word('x', 0, size);
    result = fail(cudaErrorMemoryAllocation);
  } else {
    uint64_t address = space_take(&segments, taken_bytes);
    used += taken_bytes;
    log_word('m', address, size);
    *pointer = (void *)(uintptr_t)address;
  }
  pthread_mutex_unlock(&lock);
  return result;
}

cudaError_t cudaFree(void *pointer) {
  if (!pointer) return cudaSuccess;
  pthread_mutex_lock(&lock);
  uint64_t size = space_give_back(&segments, (uintptr_t)pointer);
  used -= size;
  log_word('f', (uintptr_t)pointer, size);
  pthread_mutex_unlock(&lock);
  return size ? cudaSuccess : fail(cudaErrorInvalidValue);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
  *free_bytes = capacity - used;
  *total = capacity;
  return cudaSuccess;
}

/* What was copied to the device while fake_set_remember is on: what PyTorch itself sends to all ranks and reads back. */
enum { REMEMBERED = 16, REMEMBERED_BYTES = 1 << 20 };
static struct {
  const void *at;
  size_t count;
  void *bytes;
} remembered[REMEMBERED];
static int remembering, remembered_next;

void fake_set_remember(int now) {
  for (int i = 0; i < REMEMBERED; i++) {
    free(remembered[i].bytes);
    memset(&remembered[i], 0, sizeof remembered[i]);
  }
  remembering = now;
}

static void remember(const void *at, const void *from, size_t count) {
  int i = 0;
  if (count > REMEMBERED_BYTES || !from) return;
  while (i < REMEMBERED && remembered[i].at != at) i++;
  if (i == REMEMBERED) i = remembered_next++ % REMEMBERED;
  free(remembered[i].bytes);
  remembered[i].bytes = malloc(count ? count : 1);
  if (!remembered[i].bytes) abort();
  memcpy(remembered[i].bytes, from, count);
  remembered[i].at = at;
  remembered[i].count = count;
}

static void recall(void *to, const void *from, size_t count) {
  for (int i = 0; i < REMEMBERED; i++)
    if (remembered[i].at == from && remembered[i].count >= count) memcpy(to, remembered[i].bytes, count);
}

/* Host memory that a copy from the device should fill reads as zeros, or as what is remembered of it; everything else has no bytes to
 * copy. */
static void copy(void *to, const void *from, size_t count, enum cudaMemcpyKind kind) {
  if (remembering && kind == cudaMemcpyHostToDevice) remember(to, from, count);
  bool device = (uint64_t)(uintptr_t)to >= reservations.base && (uint64_t)(uintptr_t)to < (uint64_t)1 << 46 &&
                kind != cudaMemcpyDeviceToHost;
  if (kind != cudaMemcpyDeviceToHost || device || !to) return;
  memset(to, 0, count);
  if (remembering) recall(to, from, count);
  __atomic_fetch_add(&host_reads, 1, __ATOMIC_RELAXED);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t count, enum cudaMemcpyKind kind) {
  copy(to, from, count, kind);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t count, enum cudaMemcpyKind kind, cudaStream_t stream) {
  (void)stream;
  return cudaMemcpy(to, from, count, kind);
}

/* Host memory that the runtime gave out is pinned, which some ask for. */
static space pinned = {.base = 0};

static void know_pinned(const void *pointer, size_t size) {
  size_t i = 0;
  pthread_mutex_lock(&lock);
  if (pinned.count == pinned.capacity) {
    pinned.capacity = pinned.capacity ? pinned.capacity * 2 : 64;
    pinned.ranges = realloc(pinned.ranges, pinned.capacity * sizeof *pinned.ranges);
    if (!pinned.ranges) abort();
  }
  for (i = pinned.count++; i > 0 && pinned.ranges[i - 1].address > (uintptr_t)pointer; i--)
    pinned.ranges[i] = pinned.ranges[i - 1];
  pinned.ranges[i] = (space_range){(uintptr_t)pointer, size};
  pthread_mutex_unlock(&lock);
}

static bool is_pinned(const void *pointer) {
  bool found = false;
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < pinned.count && !found; i++)
    found = (uintptr_t)pointer - pinned.ranges[i].address < pinned.ranges[i].size;
  pthread_mutex_unlock(&lock);
  return found;
}

cudaError_t cudaHostAlloc(void **pointer, size_t size, unsigned flags) {
  (void)flags;
  *pointer = calloc(1, size ? size : 1);
  if (!*pointer) return fail(cudaErrorMemoryAllocation);
  know_pinned(*pointer, size ? size : 1);
  return cudaSuccess;
}

/* Pages that the host and the card share are the host's here. */
cudaError_t cudaMallocManaged(void **pointer, size_t size, unsigned flags) {
  return cudaHostAlloc(pointer, size, flags);
}

cudaError_t cudaFreeHost(void *pointer) {
  pthread_mutex_lock(&lock);
  (void)space_give_back(&pinned, (uintptr_t)pointer);
  pthread_mutex_unlock(&lock);
  free(pointer);
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer) {
  memset(attributes, 0, sizeof *attributes);
  bool device = (uintptr_t)pointer >= segments.base && (uintptr_t)pointer < segments.base + ((uint64_t)1 << 42);
  attributes->type = device               ? cudaMemoryTypeDevice
                     : is_pinned(pointer) ? cudaMemoryTypeHost
                                          : cudaMemoryTypeUnregistered;
  attributes->devicePointer = device ? (void *)(uintptr_t)pointer : NULL;
  return cudaSuccess;
}

/* ---- runtime: events and streams ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
  (void)flags;
  struct fake_event *made = calloc(1, sizeof *made);
  if (!made) return fail(cudaErrorMemoryAllocation);
  made->stream = -1;
  *event = (cudaEvent_t)made;
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  free(event);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  pthread_mutex_lock(&lock);
  struct fake_event *e = (struct fake_event *)event;
  e->stream = stream_index((uintptr_t)stream);
  e->mark = ++recorded[e->stream];
  if (eager_events) completed[e->stream] = e->mark;
  log_word('v', 0, (uintptr_t)stream);
  pthread_mutex_unlock(&lock);
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  (void)flags;
  return cudaEventRecord(event, stream);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const struct fake_event *e = (const struct fake_event *)event;
  if (e->stream < 0 || e->mark <= completed[e->stream]) return cudaSuccess;
  return fail(cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const struct fake_event *e = (const struct fake_event *)event;
  if (e->stream >= 0 && completed[e->stream] < e->mark) completed[e->stream] = e->mark;
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
  (void)start, (void)end;
  *ms = 1;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
  (void)flags, (void)priority;
  *stream = (cudaStream_t)(uintptr_t)(0x5000 + 0x100 * created_streams++);
  return cudaSuccess;
}

static void complete_all(void) {
  for (int i = 0; i < stream_count; i++) completed[i] = recorded[i];
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  fake_complete_events((uintptr_t)stream, UINT64_MAX);
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
  complete_all();
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
  (void)stream;
  *status = capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

#if CUDART_VERSION >= 13000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                     cudaGraph_t *graph, const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges,
                                     size_t *count) {
  if (edges) *edges = NULL;
#else
cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                        unsigned long long *id, cudaGraph_t *graph, const cudaGraphNode_t **nodes,
                                        size_t *count) {
#endif
  (void)stream;
  *status = capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  if (id) *id = (unsigned long long)capturing;
  if (graph) *graph = capturing ? (cudaGraph_t)(uintptr_t)0x9000 : NULL;
  if (nodes) *nodes = NULL;
  if (count) *count = 0;
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
  (void)stream, (void)mode;
  capturing++;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  (void)stream;
  capturing = 0;
  *graph = (cudaGraph_t)(uintptr_t)0x9000;
  return cudaSuccess;
}

/* ---- runtime: the device ---- */

cudaError_t cudaGetDeviceCount(int *count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) { return cudaDriverGetVersion(version); }

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
  (void)device;
  memset(p, 0, sizeof *p);
  strcpy(p->name, "Fake GPU");
  p->totalGlobalMem = capacity;
  p->major = card->major;
  p->minor = card->minor;
  p->multiProcessorCount = card->processors;
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsPerMultiProcessor = card->threads;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 0x7fffffff;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->sharedMemPerBlock = 48 << 10;
  p->sharedMemPerBlockOptin = (size_t)card->shared_kib << 10;
  p->sharedMemPerMultiprocessor = (size_t)(card->shared_kib + 1) << 10;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->l2CacheSize = card->l2_mib << 20;
  p->maxBlocksPerMultiProcessor = card->blocks;
  p->textureAlignment = 512;
  p->unifiedAddressing = 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
  (void)device;
  switch (attribute) {
  case cudaDevAttrComputeCapabilityMajor: *value = card->major; break;
  case cudaDevAttrComputeCapabilityMinor: *value = card->minor; break;
  case cudaDevAttrMultiProcessorCount: *value = card->processors; break;
  case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 << 10; break;
  case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = card->shared_kib << 10; break;
  case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
  case cudaDevAttrMaxThreadsPerMultiProcessor: *value = card->threads; break;
  case cudaDevAttrMaxBlocksPerMultiprocessor: *value = card->blocks; break;
  case cudaDevAttrL2CacheSize: *value = card->l2_mib << 20; break;
  case cudaDevAttrWarpSize: *value = 32; break;
  case cudaDevAttrMaxGridDimX: *value = 0x7fffffff; break; /* libraries divide by it */
  case cudaDevAttrMaxGridDimY:
  case cudaDevAttrMaxGridDimZ: *value = 65535; break;
  case cudaDevAttrMaxBlockDimX:
  case cudaDevAttrMaxBlockDimY: *value = 1024; break;
  case cudaDevAttrMaxBlockDimZ: *value = 64; break;
  case cudaDevAttrMaxRegistersPerBlock:
  case cudaDevAttrMaxRegistersPerMultiprocessor: *value = 65536; break;
  case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = (card->shared_kib + 1) << 10; break;
  case cudaDevAttrReservedSharedMemoryPerBlock: *value = 1 << 10; break;
  default: *value = 0; break;
  }
  return cudaSuccess;
}

cudaError_t cudaGetLastError(void) {
  cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError(void) { return last_error; }
const char *cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : "fake CUDA error"; }
const char *cudaGetErrorName(cudaError_t error) { return cudaGetErrorString(error); }

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
  (void)device, (void)peer;
  *can = 0;
  return cudaSuccess;
}

/* ---- runtime: kernels do nothing ---- */

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function) {
  (void)function;
  memset(attributes, 0, sizeof *attributes);
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->binaryVersion = attributes->ptxVersion = card->code;
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int threads,
                                                          size_t shared) {
  (void)function, (void)threads, (void)shared;
  *blocks = 2;
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function, int threads,
                                                                   size_t shared, unsigned flags) {
  (void)flags;
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared);
}

/* What a launch in <<<>>> form pushes is popped by the stub that the compiler wrote for the kernel. */
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st *stream) {
  (void)grid, (void)block, (void)shared, (void)stream;
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
  *grid = *block = (dim3){1, 1, 1};
  *shared = 0;
  *(void **)stream = NULL;
  return cudaSuccess;
}

void **__cudaRegisterFatBinary(void *binary) {
  (void)binary;
  static void *handle;
  return &handle;
}

/* ---- driver: address ranges and the memory behind them ---- */

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr hint,
                             unsigned long long flags) {
  (void)alignment, (void)hint, (void)flags;
  pthread_mutex_lock(&lock);
  *address = space_take(&reservations, size);
  log_word('R', *address, size);
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
  pthread_mutex_lock(&lock);
  bool known = space_give_back(&reservations, address) != 0;
  log_word('F', address, size);
  pthread_mutex_unlock(&lock);
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* A handle is its size: nothing else of it is needed. */
CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *property,
                     unsigned long long flags) {
  (void)property, (void)flags;
  pthread_mutex_lock(&lock);
  CUresult result = CUDA_SUCCESS;
  if (size > capacity - used) {
    log_word('X', 0, 0);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  } else {
    used += size;
    *handle = size;
  }
  pthread_mutex_unlock(&lock);
  return result;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  pthread_mutex_lock(&lock);
  used -= handle;
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  (void)offset, (void)handle, (void)flags;
  pthread_mutex_lock(&lock);
  uint64_t end = map_end;
  log_growing('M', &end, address, size);
  map_end = end;
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
  pthread_mutex_lock(&lock);
  uint64_t end = unmap_end;
  log_growing('U', &end, address, size);
  unmap_end = end;
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *access, size_t count) {
  (void)address, (void)size, (void)access, (void)count;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *property,
                                       CUmemAllocationGranularity_flags option) {
  (void)property, (void)option;
  *granularity = GRANULE;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
  (void)device;
  *value = attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
  (void)device;
  *flags = 0;
  *active = 1;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  (void)device;
  *context = (CUcontext)(uintptr_t)0x1000;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context) { return cuDevicePrimaryCtxRetain(context, 0); }

CUresult cuCtxSetCurrent(CUcontext context) {
  (void)context;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
  *text = error == CUDA_SUCCESS ? "no error" : "fake driver error";
  return CUDA_SUCCESS;
}

/* ---- NVML: who uses the device; PyTorch puts it into the text of an out-of-memory error ---- */

struct nvml_process {
  unsigned pid;
  unsigned long long used_bytes;
};

int nvmlInit_v2(void) { return 0; }

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device) {
  (void)bus;
  *device = NULL;
  return 0;
}

int nvmlDeviceGetComputeRunningProcesses(void *device, unsigned *count, struct nvml_process *processes) {
  (void)device;
  if (*count < 1) return 7; /* NVML_ERROR_INSUFFICIENT_SIZE */
  *count = 1;
  processes[0] = (struct nvml_process){(unsigned)getpid(), used};
  return 0;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void) { return 3; } /* NVML_ERROR_NOT_SUPPORTED */
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void) { return 3; }
int nvmlSystemGetCudaDriverVersion_v2(void) { return 3; }
int nvmlDeviceGetGpuFabricInfoV(void) { return 3; }

static CUresult unsupported(void) { return CUDA_ERROR_NOT_SUPPORTED; }

/* How PyTorch finds the driver. Functions that are not here answer "not supported". */
static void *driver_function(const char *name) {
#define FUNCTION(f)                                                                                                    \
  { #f, (void *)f }
  static const struct {
    const char *name;
    void *function;
  } functions[] = {
      FUNCTION(cuMemAddressReserve),
      FUNCTION(cuMemAddressFree),
      FUNCTION(cuMemCreate),
      FUNCTION(cuMemRelease),
      FUNCTION(cuMemMap),
      FUNCTION(cuMemUnmap),
      FUNCTION(cuMemSetAccess),
      FUNCTION(cuMemGetAllocationGranularity),
      FUNCTION(cuDeviceGet),
      FUNCTION(cuDeviceGetAttribute),
      FUNCTION(cuGetErrorString),
  };
#undef FUNCTION
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    if (strcmp(name, functions[i].name) == 0) return functions[i].function;
  }
  return (void *)unsupported;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version,
                                             unsigned long long flags, enum cudaDriverEntryPointQueryResult *result) {
  (void)version, (void)flags;
  *function = driver_function(symbol);
  if (result) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

#if CUDART_VERSION < 13000
cudaError_t cudaGetDriverEntryPoint(const char *symbol, void **function, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *result) {
  return cudaGetDriverEntryPointByVersion(symbol, function, 0, flags, result);
}
#endif
