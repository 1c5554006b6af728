/* CUDA's driver as a GPU of runtime.h. It is loaded when a device is opened; nothing of CUDA is needed to compile or
 * link this. Prototypes are written out here as the driver's documentation has them; the names are those with the
 * versions that cuda.h maps to, which the driver keeps for good (scripts/cuda.sh compares both with cuda.h where a
 * toolkit is).
 *
 * The primary context is used, so that kernels launched through the runtime library and this share one. */
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"
#include "gpu/library.h"
#include "gpu/runtime.h"

typedef struct CUctx_st *context_handle;
typedef struct CUstream_st *stream_handle;
typedef struct CUevent_st *event_handle;
typedef struct CUgraph_st *graph_handle;
typedef struct CUgraphExec_st *graph_exec;
typedef unsigned long long device_pointer;

/* X(function, name in the library, parameters); every one returns a CUresult, 0 for success. */
/* clang-format off */
#define DRIVER(X)                                                                       \
  X(init, "cuInit", (unsigned flags))                                                   \
  X(version, "cuDriverGetVersion", (int *version))                                      \
  X(error_name, "cuGetErrorName", (int code, const char **text))                        \
  X(device_count, "cuDeviceGetCount", (int *count))                                     \
  X(device_get, "cuDeviceGet", (int *device, int index))                                \
  X(device_name, "cuDeviceGetName", (char *name, int bytes, int device))                \
  X(device_bytes, "cuDeviceTotalMem_v2", (size_t *bytes, int device))                   \
  X(device_attribute, "cuDeviceGetAttribute", (int *value, int attribute, int device))  \
  X(device_uuid, "cuDeviceGetUuid_v2", (unsigned char uuid[16], int device))            \
  X(primary_retain, "cuDevicePrimaryCtxRetain", (context_handle *context, int device))  \
  X(primary_release, "cuDevicePrimaryCtxRelease_v2", (int device))                      \
  X(set_current, "cuCtxSetCurrent", (context_handle context))                           \
  X(set_limit, "cuCtxSetLimit", (int limit, size_t value))                              \
  X(get_limit, "cuCtxGetLimit", (size_t *value, int limit))                             \
  X(memory_info, "cuMemGetInfo_v2", (size_t *free, size_t *total))                      \
  X(allocate, "cuMemAlloc_v2", (device_pointer *memory, size_t bytes))                  \
  X(release, "cuMemFree_v2", (device_pointer memory))                                   \
  X(allocate_host, "cuMemHostAlloc", (void **memory, size_t bytes, unsigned flags))     \
  X(release_host, "cuMemFreeHost", (void *memory))                                      \
  X(stream_create, "cuStreamCreate", (stream_handle *stream, unsigned flags))           \
  X(stream_destroy, "cuStreamDestroy_v2", (stream_handle stream))                       \
  X(stream_finish, "cuStreamSynchronize", (stream_handle stream))                       \
  X(event_create, "cuEventCreate", (event_handle *event, unsigned flags))               \
  X(event_destroy, "cuEventDestroy_v2", (event_handle event))                           \
  X(event_record, "cuEventRecord", (event_handle event, stream_handle stream))          \
  X(event_finish, "cuEventSynchronize", (event_handle event))                           \
  X(event_elapsed, "cuEventElapsedTime_v2", (float *milliseconds, event_handle begin, event_handle end)) \
  X(stream_wait, "cuStreamWaitEvent", (stream_handle stream, event_handle event, unsigned flags)) \
  X(copy, "cuMemcpyAsync", (device_pointer to, device_pointer from, size_t bytes, stream_handle stream)) \
  X(fill, "cuMemsetD8Async", (device_pointer to, unsigned char value, size_t bytes, stream_handle stream)) \
  X(capture_begin, "cuStreamBeginCapture_v2", (stream_handle stream, int mode))         \
  X(capture_end, "cuStreamEndCapture", (stream_handle stream, graph_handle *graph))     \
  X(instantiate, "cuGraphInstantiateWithFlags", (graph_exec *exec, graph_handle graph, unsigned long long flags)) \
  X(graph_upload, "cuGraphUpload", (graph_exec exec, stream_handle stream))             \
  X(graph_launch, "cuGraphLaunch", (graph_exec exec, stream_handle stream))             \
  X(graph_exec_destroy, "cuGraphExecDestroy", (graph_exec exec))                        \
  X(graph_destroy, "cuGraphDestroy", (graph_handle graph))
/* clang-format on */

enum { /* values of cuda.h's enumerators */
       ATTRIBUTE_CLOCK_KHZ = 13,
       ATTRIBUTE_MULTIPROCESSORS = 16,
       ATTRIBUTE_MEMORY_CLOCK_KHZ = 36,
       ATTRIBUTE_MEMORY_BUS_BITS = 37,
       ATTRIBUTE_MAJOR = 75,
       ATTRIBUTE_MINOR = 76,
       ATTRIBUTE_SHARED_OPTIN = 97,
       STREAM_NON_BLOCKING = 1,
       EVENT_DISABLE_TIMING = 2,
       CAPTURE_THREAD_LOCAL = 1,
       LIMIT_STACK_SIZE = 0,
       LIMIT_PRINTF_FIFO_SIZE = 1,
       LIMIT_MALLOC_HEAP_SIZE = 2,
       OUT_OF_MEMORY = 2,
       PAGE_BYTES = 2 << 20 /* of device memory, on every generation that is supported */
};

typedef struct driver {
  void *library;
#define FUNCTION(member, name, parameters) int(*member) parameters;
  DRIVER(FUNCTION)
#undef FUNCTION
} driver;

typedef struct cuda {
  hri_gpu gpu;
  driver driver;
  int device;
  context_handle context;
} cuda;

/* A handle of the driver is what callers hold: launchers of kernels take it as it is. */
static stream_handle stream_of(hri_gpu_stream *stream) { return (stream_handle)(void *)stream; }
static event_handle event_of(hri_gpu_event *event) { return (event_handle)(void *)event; }

typedef struct captured {
  graph_handle graph;
  graph_exec exec;
} captured;
static captured *graph_of(hri_gpu_graph *graph) { return (captured *)(void *)graph; }

static cuda *of(hri_gpu *gpu) { return (cuda *)(void *)gpu; }

static hr_status check(const driver *d, int code, const char *what, hr_error *error) {
  const char *name = NULL;
  if (code == 0) return HR_OK;
  if (d->error_name(code, &name) != 0 || !name) name = "unknown error";
  return hri_fail(error, code == OUT_OF_MEMORY ? HR_ERROR_MEMORY : HR_ERROR_INTERNAL, "CUDA, %s: %s (%d)", what, name,
                  code);
}
#define CHECK(c, call, what) check(&(c)->driver, (c)->driver.call, what, error)

/* Rates at their peak: two transfers in a clock of the memory. What a driver does not tell is 0. */
static void describe_rates(cuda *c, hri_gpu_info *info) {
  int clock = 0, memory_clock = 0, bits = 0;
  if (c->driver.device_attribute(&clock, ATTRIBUTE_CLOCK_KHZ, c->device) != 0) clock = 0;
  if (c->driver.device_attribute(&memory_clock, ATTRIBUTE_MEMORY_CLOCK_KHZ, c->device) != 0) memory_clock = 0;
  if (c->driver.device_attribute(&bits, ATTRIBUTE_MEMORY_BUS_BITS, c->device) != 0) bits = 0;
  info->clock_hz = clock > 0 ? (uint64_t)clock * 1000 : 0;
  info->memory_bytes_per_second =
      memory_clock > 0 && bits > 0 ? 2ull * 1000 * (uint64_t)memory_clock * (uint64_t)bits / 8 : 0;
}

/* What needs no context. */
static hr_status describe(cuda *c, hri_gpu_info *info, hr_error *error) {
  int major = 0, minor = 0, multiprocessors = 0, shared = 0, version = 0;
  size_t bytes = 0;
  *info = (hri_gpu_info){0};
  HRI_TRY(CHECK(c, device_name(info->name, (int)sizeof info->name, c->device), "name of the device"));
  HRI_TRY(CHECK(c, device_attribute(&major, ATTRIBUTE_MAJOR, c->device), "compute capability"));
  HRI_TRY(CHECK(c, device_attribute(&minor, ATTRIBUTE_MINOR, c->device), "compute capability"));
  HRI_TRY(CHECK(c, device_attribute(&multiprocessors, ATTRIBUTE_MULTIPROCESSORS, c->device), "multiprocessors"));
  HRI_TRY(CHECK(c, device_attribute(&shared, ATTRIBUTE_SHARED_OPTIN, c->device), "shared memory"));
  HRI_TRY(CHECK(c, device_bytes(&bytes, c->device), "memory"));
  HRI_TRY(CHECK(c, device_uuid(info->uuid, c->device), "UUID of the device"));
  HRI_TRY(CHECK(c, version(&version), "version of the driver"));
  describe_rates(c, info);
  info->name[sizeof info->name - 1] = 0;
  info->major = (uint32_t)major;
  info->minor = (uint32_t)minor;
  info->multiprocessors = (uint32_t)multiprocessors;
  info->shared_bytes = (uint32_t)shared;
  info->total_bytes = bytes;
  info->driver_version = (uint32_t)version;
  info->granule_bytes = PAGE_BYTES;
  return HR_OK;
}

static hr_status cuda_info(hri_gpu *gpu, hri_gpu_info *info, hr_error *error) {
  cuda *c = of(gpu);
  size_t free_bytes = 0, total_bytes = 0;
  HRI_TRY(describe(c, info, error));
  HRI_TRY(CHECK(c, memory_info(&free_bytes, &total_bytes), "free memory"));
  info->free_bytes = free_bytes;
  info->total_bytes = total_bytes;
  return HR_OK;
}

static hr_status cuda_allocate(hri_gpu *gpu, uint64_t bytes, void **memory, hr_error *error) {
  cuda *c = of(gpu);
  device_pointer at = 0;
  size_t free_bytes = 0, total_bytes = 0;
  hr_status status = CHECK(c, allocate(&at, (size_t)bytes), "allocation");
  *memory = (void *)(uintptr_t)at;
  if (status == HR_ERROR_MEMORY && error && c->driver.memory_info(&free_bytes, &total_bytes) == 0)
    error->requested_bytes = bytes, error->available_bytes = free_bytes;
  return status;
}

static hr_status cuda_release(hri_gpu *gpu, void *memory, hr_error *error) {
  return memory ? CHECK(of(gpu), release((device_pointer)(uintptr_t)memory), "release") : HR_OK;
}

static hr_status cuda_allocate_host(hri_gpu *gpu, uint64_t bytes, void **memory, hr_error *error) {
  *memory = NULL;
  return CHECK(of(gpu), allocate_host(memory, (size_t)bytes, 0), "pinned memory");
}

static hr_status cuda_release_host(hri_gpu *gpu, void *memory, hr_error *error) {
  return memory ? CHECK(of(gpu), release_host(memory), "release of pinned memory") : HR_OK;
}

static hr_status cuda_stream_create(hri_gpu *gpu, hri_gpu_stream **stream, hr_error *error) {
  stream_handle made = NULL;
  hr_status status = CHECK(of(gpu), stream_create(&made, STREAM_NON_BLOCKING), "stream");
  *stream = (hri_gpu_stream *)(void *)made;
  return status;
}

static void cuda_stream_destroy(hri_gpu *gpu, hri_gpu_stream *stream) {
  if (stream) (void)of(gpu)->driver.stream_destroy(stream_of(stream));
}

static hr_status cuda_stream_finish(hri_gpu *gpu, hri_gpu_stream *stream, hr_error *error) {
  return CHECK(of(gpu), stream_finish(stream_of(stream)), "waiting for a stream");
}

static hr_status make_event(hri_gpu *gpu, unsigned flags, hri_gpu_event **event, hr_error *error) {
  event_handle made = NULL;
  hr_status status = CHECK(of(gpu), event_create(&made, flags), "event");
  *event = (hri_gpu_event *)(void *)made;
  return status;
}
static hr_status cuda_event_create(hri_gpu *gpu, hri_gpu_event **event, hr_error *error) {
  return make_event(gpu, EVENT_DISABLE_TIMING, event, error);
}
static hr_status cuda_event_create_timed(hri_gpu *gpu, hri_gpu_event **event, hr_error *error) {
  return make_event(gpu, 0, event, error);
}

static void cuda_event_destroy(hri_gpu *gpu, hri_gpu_event *event) {
  if (event) (void)of(gpu)->driver.event_destroy(event_of(event));
}

static hr_status cuda_record(hri_gpu *gpu, hri_gpu_event *event, hri_gpu_stream *stream, hr_error *error) {
  return CHECK(of(gpu), event_record(event_of(event), stream_of(stream)), "recording an event");
}

static hr_status cuda_wait(hri_gpu *gpu, hri_gpu_stream *stream, hri_gpu_event *event, hr_error *error) {
  return CHECK(of(gpu), stream_wait(stream_of(stream), event_of(event), 0), "waiting for an event in a stream");
}

static hr_status cuda_event_finish(hri_gpu *gpu, hri_gpu_event *event, hr_error *error) {
  return CHECK(of(gpu), event_finish(event_of(event)), "waiting for an event");
}

static hr_status cuda_event_seconds(hri_gpu *gpu, hri_gpu_event *begin, hri_gpu_event *end, double *seconds,
                                    hr_error *error) {
  float milliseconds = 0;
  HRI_TRY(CHECK(of(gpu), event_elapsed(&milliseconds, event_of(begin), event_of(end)), "time between events"));
  *seconds = (double)milliseconds / 1000;
  return HR_OK;
}

static hr_status cuda_copy(hri_gpu *gpu, void *to, const void *from, uint64_t bytes, hri_gpu_stream *stream,
                           hr_error *error) {
  if (bytes == 0) return HR_OK;
  return CHECK(of(gpu),
               copy((device_pointer)(uintptr_t)to, (device_pointer)(uintptr_t)from, (size_t)bytes, stream_of(stream)),
               "copy");
}

static hr_status cuda_fill(hri_gpu *gpu, void *to, uint8_t value, uint64_t bytes, hri_gpu_stream *stream,
                           hr_error *error) {
  if (bytes == 0) return HR_OK;
  return CHECK(of(gpu), fill((device_pointer)(uintptr_t)to, value, (size_t)bytes, stream_of(stream)), "fill");
}

static hr_status cuda_capture_begin(hri_gpu *gpu, hri_gpu_stream *stream, hr_error *error) {
  return CHECK(of(gpu), capture_begin(stream_of(stream), CAPTURE_THREAD_LOCAL), "beginning a capture");
}

static void cuda_graph_destroy(hri_gpu *gpu, hri_gpu_graph *graph) {
  captured *g = graph_of(graph);
  if (!g) return;
  if (g->exec) (void)of(gpu)->driver.graph_exec_destroy(g->exec);
  if (g->graph) (void)of(gpu)->driver.graph_destroy(g->graph);
  hri_free(g);
}

/* Uploaded at once, so that its bytes on the device are taken before the first launch. The capture ends whatever fails: a stream
 * that is captured can neither be waited for nor can memory be released beside it. */
static hr_status cuda_capture_end(hri_gpu *gpu, hri_gpu_stream *stream, hri_gpu_graph **graph, hr_error *error) {
  cuda *c = of(gpu);
  graph_handle kept = NULL;
  captured *made;
  hr_status status;
  *graph = NULL;
  HRI_TRY(CHECK(c, capture_end(stream_of(stream), &kept), "ending a capture"));
  made = hri_alloc_zero(1, sizeof *made);
  if (!made) {
    (void)c->driver.graph_destroy(kept);
    return hri_fail_memory(error, sizeof *made, "a graph");
  }
  made->graph = kept;
  HRI_TRY_OUT(CHECK(c, instantiate(&made->exec, made->graph, 0), "making a graph"));
  HRI_TRY_OUT(CHECK(c, graph_upload(made->exec, stream_of(stream)), "uploading a graph"));
  *graph = (hri_gpu_graph *)(void *)made;
  return HR_OK;
out:
  cuda_graph_destroy(gpu, (hri_gpu_graph *)(void *)made);
  return status;
}

static hr_status cuda_graph_launch(hri_gpu *gpu, hri_gpu_graph *graph, hri_gpu_stream *stream, hr_error *error) {
  return CHECK(of(gpu), graph_launch(graph_of(graph)->exec, stream_of(stream)), "launching a graph");
}

static void cuda_close(hri_gpu *gpu) {
  cuda *c = of(gpu);
  if (!c) return;
  if (c->context) (void)c->driver.primary_release(c->device);
  if (c->driver.library) (void)dlclose(c->driver.library);
  hri_free(c);
}

static const hri_gpu_calls calls = {.lazy = true,
                                    .close = cuda_close,
                                    .info = cuda_info,
                                    .allocate = cuda_allocate,
                                    .release = cuda_release,
                                    .allocate_host = cuda_allocate_host,
                                    .release_host = cuda_release_host,
                                    .stream_create = cuda_stream_create,
                                    .stream_destroy = cuda_stream_destroy,
                                    .stream_finish = cuda_stream_finish,
                                    .event_create = cuda_event_create,
                                    .event_create_timed = cuda_event_create_timed,
                                    .event_destroy = cuda_event_destroy,
                                    .record = cuda_record,
                                    .wait = cuda_wait,
                                    .event_finish = cuda_event_finish,
                                    .event_seconds = cuda_event_seconds,
                                    .copy = cuda_copy,
                                    .fill = cuda_fill,
                                    .capture_begin = cuda_capture_begin,
                                    .capture_end = cuda_capture_end,
                                    .graph_launch = cuda_graph_launch,
                                    .graph_destroy = cuda_graph_destroy};

static hr_status load_driver(driver *d, hr_error *error) {
  const char *missing = NULL;
  d->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!d->library) {
    (void)hri_fail(error, HR_ERROR_UNSUPPORTED, "libcuda.so.1, the driver of NVIDIA's GPUs, is not there");
    return hri_hint(error, HR_ERROR_UNSUPPORTED, "install the driver, or train on the CPU: --device cpu");
  }
#define LOAD(member, name, parameters)                                                                                 \
  if (!hri_library_function(d->library, name, (void *)&d->member)) missing = name;
  DRIVER(LOAD)
#undef LOAD
  if (!missing) return HR_OK;
  (void)hri_fail(error, HR_ERROR_UNSUPPORTED, "libcuda.so.1 has no function %s", missing);
  return hri_hint(error, HR_ERROR_UNSUPPORTED, "the driver is older than CUDA 12.8: update it");
}

/* Whatever a launch could make larger is made as large as it will be now, before anybody counts bytes: stacks as deep as
 * our deepest kernel needs (a context begins with four times that, for every thread that the device can hold), and what
 * printf and malloc of kernels would have, which none of ours calls, as small as the driver has it. One that will not
 * make those smaller keeps its own, which changes nothing later. */
static hr_status set_limits(cuda *c, hr_error *error) {
  size_t stack = 0;
  (void)c->driver.set_limit(LIMIT_MALLOC_HEAP_SIZE, 0);
  (void)c->driver.set_limit(LIMIT_PRINTF_FIFO_SIZE, 0);
  HRI_TRY(CHECK(c, set_limit(LIMIT_STACK_SIZE, HRI_GPU_STACK_BYTES), "the size of stacks"));
  HRI_TRY(CHECK(c, get_limit(&stack, LIMIT_STACK_SIZE), "the size of stacks"));
  if (stack >= HRI_GPU_STACK_BYTES) return HR_OK;
  return hri_fail(error, HR_ERROR_INTERNAL, "CUDA gives a thread a stack of %zu bytes, and kernels need %d", stack,
                  HRI_GPU_STACK_BYTES);
}

static hr_status find_device(cuda *c, uint32_t index, hr_error *error) {
  int count = 0, major = 0, minor = 0;
  HRI_TRY(CHECK(c, init(0), "the driver's beginning"));
  HRI_TRY(CHECK(c, device_count(&count), "number of devices"));
  if (index >= (uint32_t)count) {
    (void)hri_fail(error, HR_ERROR_UNSUPPORTED, "there is no CUDA device %u: the driver shows %d", index, count);
    return hri_hint(error, HR_ERROR_UNSUPPORTED, "devices are counted from 0; CUDA_VISIBLE_DEVICES hides some");
  }
  HRI_TRY(CHECK(c, device_get(&c->device, (int)index), "the device"));
  HRI_TRY(CHECK(c, device_attribute(&major, ATTRIBUTE_MAJOR, c->device), "compute capability"));
  HRI_TRY(CHECK(c, device_attribute(&minor, ATTRIBUTE_MINOR, c->device), "compute capability"));
  if (major >= 8) return HR_OK;
  (void)hri_fail(error, HR_ERROR_UNSUPPORTED, "CUDA device %u has compute capability %d.%d: bf16 needs 8.0", index,
                 major, minor);
  return hri_hint(error, HR_ERROR_UNSUPPORTED, "take a card of the Ampere generation or newer");
}

hr_status hri_gpu_cuda_open(uint32_t index, hri_gpu **gpu, hr_error *error) {
  cuda *c = hri_alloc_zero(1, sizeof *c);
  hr_status status;
  *gpu = NULL;
  if (!c) return hri_fail_memory(error, sizeof *c, "a CUDA device");
  c->gpu.calls = &calls;
  HRI_TRY_OUT(load_driver(&c->driver, error));
  HRI_TRY_OUT(find_device(c, index, error));
  HRI_TRY_OUT(CHECK(c, primary_retain(&c->context, c->device), "context"));
  HRI_TRY_OUT(CHECK(c, set_current(c->context), "context"));
  HRI_TRY_OUT(set_limits(c, error));
  *gpu = &c->gpu;
  return HR_OK;
out:
  cuda_close(&c->gpu);
  return status;
}

hr_status hri_gpu_cuda_look(uint32_t index, hri_gpu_info *info, hr_error *error) {
  cuda c = {0};
  hr_status status;
  *info = (hri_gpu_info){0};
  HRI_TRY_OUT(load_driver(&c.driver, error));
  HRI_TRY_OUT(find_device(&c, index, error));
  HRI_TRY_OUT(describe(&c, info, error));
out:
  if (c.driver.library) (void)dlclose(c.driver.library);
  return status;
}
