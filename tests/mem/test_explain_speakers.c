/* The families of speakers, each with lines of our own making in the structure that it prints: other frameworks, servers
 * with limits of their own, batch systems and kernels, other languages' run times, device libraries; messages of which
 * parts were left out; and texts that hold the same words and report nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <headroom/explain.h>

#define CERTAIN HR_OOM_CERTAIN
#define LIKELY HR_OOM_LIKELY
#define UNDECIDABLE HR_OOM_UNDECIDABLE
#define COUNT(list) (sizeof(list) / sizeof *(list))
#define KIB(x) ((x) * 1024.0)
#define MIB(x) ((x) * 1048576.0)
#define GIB(x) ((x) * 1073741824.0)

typedef struct quantities {
  double requested, total, free, mine, allocated, allowed, others; /* bytes; 0: not in the text */
} quantities;

typedef struct line {
  const char *text;
  hr_oom_cause cause;
  hr_oom_certainty certainty;
  quantities figures;
} line;

/* Frameworks that are not PyTorch. */
static const line frameworks[] = {
    {"jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2147483648 bytes.",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {.requested = GIB(2)}},
    {"jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space "
     "hbm. Used 18.31G of 15.75G hbm. Exceeded hbm capacity by 2.56G.",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {.total = GIB(15.75)}},
    {"ValueError: RESOURCE_EXHAUSTED: Attempting to reserve 9.11G at the bottom of memory. That was not possible. There "
     "are 7.40G free, 0B reserved, and 7.40G reservable.",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {.requested = GIB(9.11), .free = GIB(7.40)}},
    {"2025-04-02 09:11:12.345678: W external/xla/xla/tsl/framework/bfc_allocator.cc:501] Allocator (GPU_0_bfc) ran out of "
     "memory trying to allocate 3.20GiB (rounded to 3435973888)requested by op",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {.requested = GIB(3.2)}},
    {"tensorflow.python.framework.errors_impl.ResourceExhaustedError: {{function_node __wrapped__Mul_device_/job:localhost}} "
     "failed to allocate memory [Op:Mul]",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {.requested = 0}},
    {"E tensorflow/compiler/xla/stream_executor/cuda/cuda_driver.cc:752] failed to allocate 5.51G (5916327936 bytes) from "
     "device: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {.requested = 5916327936.0}},
    {"llama_model_load: error loading model: unable to allocate Vulkan0 buffer",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {.requested = 0}},
    {"ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 5905580032",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {.requested = 5905580032.0}},
    {"ggml_vulkan: Device memory allocation of size 1073741824 failed.\nggml_vulkan: vk::Device::allocateMemory: "
     "ErrorOutOfDeviceMemory",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {.requested = GIB(1)}},
    {"llama_kv_cache_init: failed to allocate buffer for kv cache\nllama_new_context_with_model: llama_kv_cache_init() "
     "failed for self-attention cache",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {.requested = 0}},
    {"libc++abi: terminating due to uncaught exception of type\n std::runtime_error: [METAL] Command buffer execution "
     "failed:\n Insufficient Memory\n (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {.requested = 0}},
    {"### Crash on MLX\nThe third prompt caused `kIOGPUCommandBufferCallbackErrorOutOfMemory` after 20 s.",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {.requested = 0}},
    {"[TRT] [E] 1: [defaultAllocator.cpp::allocate::20] Error Code 1: Cuda Runtime (out of memory)\n[TRT] [W] Requested "
     "amount of GPU memory (2684354560 bytes) could not be allocated.",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {.requested = GIB(2.5)}},
    {"onnxruntime.capi.onnxruntime_pybind11_state.RuntimeException: [ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero "
     "status code returned while running Conv node. Failed to allocate memory for requested buffer of size 805306368",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {.requested = MIB(768)}},
    {"paddle::memory::allocation::BadAlloc: ResourceExhaustedError: Out of memory error on GPU 3. Cannot allocate 1.500000GB "
     "memory on GPU 3, 30.100000GB memory has been allocated and available memory is only 1.600000GB.",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {.requested = GIB(1.5), .free = GIB(1.6), .allocated = GIB(30.1)}},
    {"mxnet.base.MXNetError: [10:11:12] src/storage/./pooled_storage_manager.h:157: cudaMalloc failed: out of memory",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {.requested = 0}},
    {"ERROR: LoadError: CuArrays: Out of GPU memory trying to allocate 512.000 MiB",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {.requested = MIB(512)}},
    {"RuntimeError: parallel_for failed: cudaErrorMemoryAllocation: out of memory",
     HR_OOM_OUTSIDE_ALLOCATOR,
     LIKELY,
     {.requested = 0}},
    {"========= Program hit cudaErrorMemoryAllocation (error 2) due to \"out of memory\" on CUDA API call to cudaMalloc.\n"
     "=========     Saved host backtrace up to driver entry point at error",
     HR_OOM_NOT_PYTORCH,
     LIKELY,
     {.requested = 0}},
    {"paddle allocator: `ResourceExhaustedError: Out of memory error on GPU 0. Cannot allocate 2.000000GB memory on GPU 0`",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {.requested = GIB(2)}},
    {"lightgbm.basic.LightGBMError: Check failed: (2 vs. 0) out of memory at dataset.cpp line 40",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {.requested = 0}},
};

/* Limits that a server sets itself. */
static const line caps[] = {
    {"ValueError: To serve at least one request with the models's max seq len (65536), (8.00 GiB KV cache is needed, which is "
     "larger than the available KV cache memory (5.25 GiB). Based on the available memory, the estimated maximum model "
     "length is 43008.",
     HR_OOM_CAP,
     CERTAIN,
     {.requested = GIB(8), .allowed = GIB(5.25)}},
    {"Available KV cache memory: 0.50 GiB\nValueError: To serve at least one request with the model max seq len (131072),\n"
     "4.00 GiB KV cache is needed, which is larger than the available KV cache\nmemory (0.50 GiB).",
     HR_OOM_CAP,
     CERTAIN,
     {.requested = GIB(4), .allowed = GIB(0.5)}},
    {"ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the "
     "engine.",
     HR_OOM_CAP,
     LIKELY,
     {.requested = 0}},
    {"ValueError: The model's max seq len (16384) is larger than the maximum number of tokens that can be stored in KV cache "
     "(9232). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.",
     HR_OOM_CAP,
     LIKELY,
     {.requested = 0}},
    {"RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
     HR_OOM_CAP,
     LIKELY,
     {.requested = 0}},
    {"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB. GPU 0 has a total capacity of 23.64 GiB of "
     "which 9.00 GiB is free. 12.00 GiB allowed; Of the allocated memory 11.80 GiB is allocated by PyTorch...",
     HR_OOM_CAP,
     CERTAIN,
     {.requested = MIB(256), .total = GIB(23.64), .free = GIB(9), .allocated = GIB(11.8), .allowed = GIB(12)}},
    {"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacity of 31.84 GiB of "
     "which 16.00 GiB is free. 18.00 GiB allowed; Of the allocated memory 8.00 GiB is allocated by PyTorch, and 7.50 GiB is "
     "reserved by PyTorch but unallocated.",
     HR_OOM_CAP,
     LIKELY,
     {.requested = GIB(3), .total = GIB(31.84), .free = GIB(16), .allocated = GIB(8), .allowed = GIB(18)}},
    {"RuntimeError: MPS backend out of memory (MPS allocated: 17.90 GB, other allocations: 400.00 MB, max allowed: 18.13 GB). "
     "Tried to allocate 256.00 MB on private pool.",
     HR_OOM_CAP,
     CERTAIN,
     {.requested = MIB(256), .allocated = GIB(17.9), .allowed = GIB(18.13)}},
};

/* PyTorch's own, of which parts are missing. */
static const line parts[] = {
    {"GPU 0 has a total capacity of 141.00 GiB of which 0 bytes is free.\n40.00 GiB allowed; Of the allocated memory 6.50 GiB "
     "is allocated by PyTorch",
     HR_OOM_OTHER_PROCESS,
     CERTAIN,
     {.total = GIB(141), .allocated = GIB(6.5), .allowed = GIB(40)}},
    {"OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacity of 47.53 GiB of which 6.00 "
     "GiB is free. Process 4242 has 41.50 GiB memory in use. Of the allocated memory 22.00 GiB is allocated by PyTorch, with "
     "9.00 GiB allocated in private pools (e.g., CUDA Graphs), and 19.00 GiB is reserved by PyTorch but unallocated.",
     HR_OOM_FRAGMENTED,
     LIKELY,
     {.requested = GIB(8), .total = GIB(47.53), .free = GIB(6), .mine = GIB(41.5), .allocated = GIB(22)}},
    {"| base | 768x768 | ERROR: OutOfMemoryError: CUDA out of memory. Tried to allocate 200.00 MiB. GPU 0 has a total capacity "
     "of 15.72 GiB of which 4.00 GiB is free. Process 9911 has 11.72 GiB memory in use. 11.50 GiB allowed; Of the allocated "
     "memory 11.40 GiB is al... | 3.1 |",
     HR_OOM_CAP,
     CERTAIN,
     {.requested = MIB(200),
      .total = GIB(15.72),
      .free = GIB(4),
      .mine = GIB(11.72),
      .allocated = GIB(11.4),
      .allowed = GIB(11.5)}},
    {"CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacity of 22.06 GiB of which 20.00 MiB is free. "
     "Process 1 has 22.04 GiB memory in use.",
     HR_OOM_UNKNOWN,
     UNDECIDABLE,
     {.requested = MIB(64), .total = GIB(22.06), .free = MIB(20), .mine = GIB(22.04)}},
    {"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has a total capacity of 31.35 GiB of which "
     "1.00 GiB is free.\n... this process has 21.00 GiB memory in use.",
     HR_OOM_OTHER_PROCESS,
     LIKELY,
     {.requested = GIB(2), .total = GIB(31.35), .free = GIB(1), .mine = GIB(21)}},
    {"CUDA out of memory. Tried to allocate 1.50 GiB. GPU 2 has a total capacity of 79.18 GiB of which 700.00 MiB is free.\n"
     "Process 1111 has 530.00 MiB memory in use.\nProcess 2222 has 45.00 GiB memory in use.\n... If reserved but unallocated "
     "memory is large",
     HR_OOM_OTHER_PROCESS,
     CERTAIN,
     {.requested = GIB(1.5), .total = GIB(79.18), .free = MIB(700), .others = MIB(530) + GIB(45)}},
    {"OOM again: `Allocation on device 0 would exceed allowed memory. Currently allocated: 30.00 GiB / Device limit: 23.90 GiB "
     "/ Free (according to CUDA): 0 bytes`. Raised at nodes/x.py:12",
     HR_OOM_TOO_BIG,
     CERTAIN,
     {.total = GIB(23.9), .allocated = GIB(30)}},
    {"[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 30.00 GiB. GPU 0 has a total capacity of 79.18 GiB "
     "of which 2.00 GiB is free. Including non-PyTorch memory, this process has 77.1",
     HR_OOM_TOO_BIG,
     LIKELY,
     {.requested = GIB(30), .total = GIB(79.18), .free = GIB(2)}},
    {"RuntimeError: NPU out of memory. Tried to allocate 1.20 GiB\n  (32.00 GiB total; 28.50 GiB already allocated; 700.00 MiB "
     "free)",
     HR_OOM_TOO_BIG,
     LIKELY,
     {.requested = GIB(1.2), .total = GIB(32), .free = MIB(700), .allocated = GIB(28.5)}},
    {"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 80.00 MiB.\n  GPU 0 has a total capacity of 8.00 GiB of "
     "which 4.00 GiB is free.\n  3.00 GiB allowed; Of the allocated memory 2.90 GiB is allocated by PyTorch\xe2\x80\xa6\n\n--- "
     "new ---\n peak allocated 1,526.1 MiB",
     HR_OOM_CAP,
     CERTAIN,
     {.requested = MIB(80), .total = GIB(8), .free = GIB(4), .allocated = GIB(2.9), .allowed = GIB(3)}},
};

/* The machine's memory: kernels, batch systems, containers, notebooks, run times. */
static const line hosts[] = {
    {"  - \"console: repeated `Out of memory: Killed process (python)` anon-rss ~12.1GB\"",
     HR_OOM_HOST_MEMORY,
     CERTAIN,
     {.requested = 0}},
    {"Your session crashed after using all available RAM. View runtime logs",
     HR_OOM_HOST_MEMORY,
     CERTAIN,
     {.requested = 0}},
    {"Your notebook tried to allocate more memory than is available. It has restarted.",
     HR_OOM_HOST_MEMORY,
     CERTAIN,
     {.requested = 0}},
    {"[ 8123.456789] Out of memory: Killed process 4242 (python3) total-vm:98765432kB, anon-rss:65432100kB, file-rss:0kB",
     HR_OOM_HOST_MEMORY,
     CERTAIN,
     {.requested = 0}},
    {"Memory cgroup out of memory: Killed process 917 (pt_main_thread) total-vm:41234567kB, anon-rss:33554432kB",
     HR_OOM_HOST_MEMORY,
     CERTAIN,
     {.requested = 0}},
    {"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,oom_memcg=/docker/ab,task=python,pid=99",
     HR_OOM_HOST_MEMORY,
     CERTAIN,
     {.requested = 0}},
    {"slurmstepd: error: Detected 3 oom_kill events in StepId=5511.batch. Some of the step tasks have been OOM Killed.",
     HR_OOM_HOST_MEMORY,
     CERTAIN,
     {.requested = 0}},
    {"    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137",
     HR_OOM_HOST_MEMORY,
     CERTAIN,
     {.requested = 0}},
    {"container trainer-0 was OOMKilled (memory limit 16Gi)", HR_OOM_HOST_MEMORY, CERTAIN, {.requested = 0}},
    {"python: terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc",
     HR_OOM_HOST_MEMORY,
     LIKELY,
     {.requested = 0}},
    {"numpy.core._exceptions._ArrayMemoryError: Unable to allocate 14.9 GiB for an array with shape (200000, 10000) and data "
     "type float64",
     HR_OOM_HOST_MEMORY,
     CERTAIN,
     {.requested = GIB(14.9)}},
    {"Error: cannot allocate vector of size 7.5 Gb\nExecution halted",
     HR_OOM_HOST_MEMORY,
     CERTAIN,
     {.requested = GIB(7.5)}},
    {"FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory",
     HR_OOM_CAP,
     CERTAIN,
     {.requested = 0}},
    {"Exception in thread \"main\" java.lang.OutOfMemoryError: Java heap space", HR_OOM_CAP, CERTAIN, {.requested = 0}},
    {"OSError: [WinError 1455] The paging file is too small for this operation to complete.",
     HR_OOM_HOST_MEMORY,
     CERTAIN,
     {.requested = 0}},
    {"OSError: [Errno 12] Cannot allocate memory", HR_OOM_HOST_MEMORY, CERTAIN, {.requested = 0}},
    {"RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
     "allocate 68719476736 bytes. Error code 12 (Cannot allocate memory)",
     HR_OOM_HOST_MEMORY,
     CERTAIN,
     {.requested = GIB(64)}},
    {"RuntimeError: unable to mmap 53687091200 bytes from file </ckpt/model.bin>: Cannot allocate memory (12)",
     HR_OOM_HOST_MEMORY,
     CERTAIN,
     {.requested = 53687091200.0}},
    {"fatal error: runtime: cannot allocate memory", HR_OOM_HOST_MEMORY, CERTAIN, {.requested = 0}},
    {"[2025-01-01 10:00:00,000] [INFO] [launch.py:319:sigkill_handler] Killing subprocess 811\n[2025-01-01 10:00:01,000] "
     "[ERROR] [launch.py:325:sigkill_handler] ['python', 'train.py'] exits with return code = -9",
     HR_OOM_HOST_MEMORY,
     LIKELY,
     {.requested = 0}},
    {"- The launcher then printed `Killing subprocess ... exits with return code = -9`.",
     HR_OOM_HOST_MEMORY,
     LIKELY,
     {.requested = 0}},
    {"RuntimeError: DataLoader worker (pid 51) is killed by signal: Bus error. It is possible that dataloader's workers are "
     "out of shared memory. Please try to raise your shared memory limit.",
     HR_OOM_HOST_MEMORY,
     LIKELY,
     {.requested = 0}},
    {"RuntimeError: DataLoader worker (pid(s) 17, 18) exited unexpectedly with exit code 137",
     HR_OOM_HOST_MEMORY,
     LIKELY,
     {.requested = 0}},
    {"subprocess.CalledProcessError: Command '['python', 'pre.py']' died with <Signals.SIGKILL: 9>.",
     HR_OOM_HOST_MEMORY,
     LIKELY,
     {.requested = 0}},
    {"torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: -9) local_rank: 2 (pid: 8812) of binary: "
     "/usr/bin/python3",
     HR_OOM_HOST_MEMORY,
     LIKELY,
     {.requested = 0}},
    {"(raylet) node_manager.cc:3064: 4 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to "
     "other reasons at node (ID: ab, IP: 10.0.0.9)",
     HR_OOM_HOST_MEMORY,
     CERTAIN,
     {.requested = 0}},
    {"systemd[1]: train.service: A process of this unit has been killed by the OOM killer.",
     HR_OOM_HOST_MEMORY,
     CERTAIN,
     {.requested = 0}},
    {"RuntimeError: CUDA error: out of memory\n  File \"torch/utils/data/_utils/pin_memory.py\", line 50, in pin_memory",
     HR_OOM_HOST_MEMORY,
     LIKELY,
     {.requested = 0}},
};

/* Device memory that a library or an unknown speaker asks for; a chip's own memory. */
static const line devices[] = {
    {"RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
     HR_OOM_OUTSIDE_ALLOCATOR,
     LIKELY,
     {.requested = 0}},
    {"# On the shared host the failure arrived as `CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)`.",
     HR_OOM_OUTSIDE_ALLOCATOR,
     LIKELY,
     {.requested = 0}},
    {"node1:881:902 [3] include/alloc.h:228 NCCL WARN Failed to CUDA calloc async 268435456 bytes",
     HR_OOM_OUTSIDE_ALLOCATOR,
     LIKELY,
     {.requested = MIB(256)}},
    {"node1:881:902 [3] misc/shmutils.cc:52 NCCL WARN Call to posix_fallocate failed : No space left on device\nnode1 NCCL "
     "WARN Error while creating shared memory segment /dev/shm/nccl-AbCdEf (size 9637888)",
     HR_OOM_HOST_MEMORY,
     LIKELY,
     {.requested = 9637888}},
    {"Device load of the mask kernel at free=0.40 GiB\nFailed to CUDA calloc 134217728 bytes\n",
     HR_OOM_OUTSIDE_ALLOCATOR,
     LIKELY,
     {.requested = MIB(128), .free = GIB(0.4)}},
    {"RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED", HR_OOM_OUTSIDE_ALLOCATOR, LIKELY, {.requested = 0}},
    {"CUDA error: out of memory at line 381 in file /src/csrc/pythonInterface.cpp\nError out of memory at line 381",
     HR_OOM_UNKNOWN,
     UNDECIDABLE,
     {.requested = 0}},
    {"triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 163840, Hardware limit: 101376. Reducing "
     "block sizes or `num_stages` may help.",
     HR_OOM_ON_CHIP,
     CERTAIN,
     {.requested = 163840, .allowed = 101376}},
    {"ptxas error   : Entry function 'k' uses too much shared data (0x10400 bytes, 0xc000 max)",
     HR_OOM_ON_CHIP,
     CERTAIN,
     {.requested = 0}},
    {"RuntimeError: CUDA error: too many resources requested for launch", HR_OOM_ON_CHIP, CERTAIN, {.requested = 0}},
    {"**Symptom:** `CUDA out of memory occurred when warming up sampler with 512 dummy requests`",
     HR_OOM_UNKNOWN,
     UNDECIDABLE,
     {.requested = 0}},
    {"Both arms failed to boot during capture: `avail mem=0.07 GB` on rank 1, then `graph disabled (CUDA driver error: out of "
     "memory)`.",
     HR_OOM_UNKNOWN,
     UNDECIDABLE,
     {.free = GIB(0.07)}},
    {"RuntimeError: oneDNN: could not allocate 1610612736 bytes on device xpu:0",
     HR_OOM_OUTSIDE_ALLOCATOR,
     LIKELY,
     {.requested = GIB(1.5)}},
    {"RuntimeError: NPU function error: aclrtMalloc failed, error code 207001: failed to allocate 2147483648 bytes of device "
     "memory",
     HR_OOM_UNKNOWN,
     UNDECIDABLE,
     {.requested = GIB(2)}},
    {"RuntimeError: HIP error: out of memory", HR_OOM_UNKNOWN, UNDECIDABLE, {.requested = 0}},
    {"RuntimeError: level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",
     HR_OOM_UNKNOWN,
     UNDECIDABLE,
     {.requested = 0}},
    {"| model-20b + eager=false | XPU OOM (`UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY`) |",
     HR_OOM_UNKNOWN,
     UNDECIDABLE,
     {.requested = 0}},
    {"q6 does not fit: weights come to 60.1 GB, then `ErrorOutOfDeviceMemory` at the creation of the context.",
     HR_OOM_NOT_PYTORCH,
     LIKELY,
     {.requested = 0}},
};

/* Texts that report nothing. */
static const char *const silent[] = {
    "W tensorflow/core/common_runtime/bfc_allocator.cc:239] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.10GiB "
    "with freed_by_count=0. The caller indicates that this is not a failure, but may mean that there could be performance "
    "gains if more memory were available.",
    "        match status {\n            cufftResult::CUFFT_ALLOC_FAILED => Err(Error::Alloc(\"could not be allocated\")),\n",
    "            cudnnStatus_t::CUDNN_STATUS_ALLOC_FAILED => {\n                Err(Error::AllocFailed(\"could not be "
    "allocated\"))\n            }",
    "\xe8\x8b\xa5\xe5\x9c\xa8 `gather` \xe7\x9c\x8b\xe5\x88\xb0 `Tried to allocate more than 1EB memory`\xef\xbc\x8c"
    "\xe4\xb8\x8d\xe8\x83\xbd",
    "Veelvoorkomende fouten:\n\n- CUDA error: out of memory: Je GPU heeft te weinig geheugen.\n- connection refused: geen net.",
    "Errores comunes:\n- CUDA error: out of memory: la GPU no tiene memoria suficiente\n",
    "//  if occupancy is 0 we refuse to launch (hipErrorOutOfMemory) rather than hang.\n",
    "    text = head(1) + \"\\nRuntimeError: DataLoader worker is killed by signal: Killed\\n\"\n    steps = parse(text)",
    "    log.write_text(\"[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB\\n\")\n    assert x",
    "A run can print everything and then die during teardown with:\n\n```\nfailed (exitcode: -9) local_rank: 0\ntraceback : "
    "Signal 9 (SIGKILL) received by PID <pid>\n```",
    "Command 'x' died with <Signals.SIGKILL: 9>.\nFileNotFoundError [Errno 2] No such file or directory: '/none'",
    "This came at shutdown, after the last step:\n\nException ignored in: Iter.__del__\nRuntimeError: DataLoader worker (...) is "
    "killed by signal: Killed.\n",
    "  --max-split-size-mb N   do not split blocks larger than N, which can avoid out of memory errors (default: unlimited)",
    "  --oom-action {retry,skip,abort}  what to do when CUDA runs out of memory",
    "config: {\"on_cuda_oom\": \"retry\", \"oom_retries\": 3, \"memory_fraction\": 0.9}",
    "memory stats: num_alloc_retries=0 num_ooms=0 allocated_bytes.all.peak=1234567890 reserved_bytes.all.current=2345678901",
    "GPU 0 memory: 20.1 GiB allocated by PyTorch, 1.2 GiB reserved but unallocated, 2.0 GiB free",
    "INFO 01-02 gpu_worker.py:240] Available KV cache memory: 18.21 GiB",
    "INFO 01-02 kv_cache_utils.py:634] GPU KV cache size: 128,000 tokens, maximum concurrency for 8,192 tokens per request: 15x",
    "[Kernel] swap usage 12 %, no oom events since boot",
    "Traceback (most recent call last):\n  File \"torch/cuda/memory.py\", line 12, in empty_cache\nRuntimeError: CUDA error: an "
    "illegal memory access was encountered",
    "Traceback (most recent call last):\n  File \"a.py\", line 3, in allocate_memory\nValueError: memory size must be positive",
    "step 100 loss 2.31 | memory 18.2/23.6 GiB | 3.1 it/s",
    "ulimit -l unlimited   # pinned memory allocation fails otherwise",
    "docker run --memory=16g --oom-kill-disable image   # no OOM kill",
    "The OOM killer picks the process with the highest oom_score.",
    "vLLM raises `ValueError: No available memory for the cache blocks` when the fraction is too low.",
    "enum Status { kOk = 0, kOutOfMemory = 1, kInvalid = 2 };",
    "    CUBLAS_STATUS_ALLOC_FAILED = 3,\n    CUBLAS_STATUS_INVALID_VALUE = 7,",
    "#define CUDNN_STATUS_ALLOC_FAILED 2",
    "case HIPBLAS_STATUS_ALLOC_FAILED: return \"alloc failed\";",
    "    OutOfMemory(String),\n    #[error(\"failed to allocate {0} bytes\")]\n    Alloc(usize),",
    "errors.Is(err, syscall.ENOMEM) // cannot allocate memory",
    "    if isinstance(exc, torch.cuda.OutOfMemoryError) or \"CUDA out of memory\" in msg:",
    "try {\n  run();\n} catch (e) { if (/out of memory/i.test(e.message)) shrink(); }",
    "Wenn `CUDA out of memory` erscheint, die Batchgr\xc3\xb6\xc3\x9f"
    "e halbieren.",
    "Si aparece `CUDA out of memory`, reduce el lote.",
    "\xe5\xa6\x82\xe6\x9e\x9c\xe5\x87\xba\xe7\x8e\xb0 `CUDA out of memory`\xef\xbc\x8c\xe5\x87\x8f\xe5\xb0\x8f batch_size\xe3\x80\x82",
    "\xd0\x95\xd1\x81\xd0\xbb\xd0\xb8 \xd0\xb2\xd0\xb8\xd0\xb4\xd0\xb8\xd1\x82\xd0\xb5 CUDA out of memory, "
    "\xd1\x83\xd0\xbc\xd0\xb5\xd0\xbd\xd1\x8c\xd1\x88\xd0\xb8\xd1\x82\xd0\xb5 batch.",
    "CUDA OOM? Lower the batch size.",
    "| Symptom | Fix |\n|---|---|\n| CUDA out of memory | lower `batch_size` |\n| NaN loss | lower the rate |",
    "| `std::bad_alloc` | host RAM exhausted | add swap |",
    "pytest: test_oom.py::test_killed_worker_137 PASSED",
    "it('maps exit code 137 to oom', () => { expect(map(137)).toBe('oom') })",
    "Exit codes: 0 success, 1 error, 137 killed (out of memory), 143 terminated.",
    "    # exit 137 = 128 + 9 = SIGKILL, usually the OOM killer",
    "We lowered the batch size so that the job no longer runs out of memory.",
    "This change cuts peak memory by 30 % and avoids CUDA out of memory on 24 GB cards.",
    "- prevents OOM kills of the data loader by limiting prefetch",
    "Feature request: catch `CUDA out of memory` and retry with half the batch",
    "WARNING: gradient overflow, skipping step",
    "Warning: low memory mode is on, 2.0 GiB reserved for the display",
    "nvidia-smi: 23.1 GiB / 24.0 GiB used, 0 processes killed",
    "MemoryStats(peak=12.3 GiB, limit=16.0 GiB, oom=False)",
    "hyperparameter search: trial 12 pruned (memory budget)",
    "raise RuntimeError('Not enough memory. Please try to increase --mem-fraction-static.')",
    "\"patterns\": [\"out of memory\", \"oom-kill\", \"Killed process\"],",
    "assertTrue(is_oom(RuntimeError(\"HIP out of memory. Tried to allocate 1.00 GiB\")))",
    "{\"id\": 7, \"question\": \"What does CUDA out of memory mean?\", \"answer\": \"The GPU is full.\"}",
    "The allocator frees cached blocks and retries before it reports that CUDA is out of memory.",
    "thread_pool: queue full, 12 tasks rejected",
    "sbatch --mem=64G --signal=KILL@60 job.sh",
    "INFO: worker 3 received SIGKILL from the scheduler (preempted)",
    "Job 123 was cancelled by the user (signal 9)",
};

static hr_explanation *explain(const char *text) {
  hr_explanation *e;
  hr_error error;
  assert_int_equal(hr_explain_text(text, strlen(text), NULL, &e, &error), HR_OK);
  return e;
}

static bool is_near(const hr_oom_value *v, double bytes) {
  double apart = (double)v->bytes - bytes;
  bool known = v->state == HR_OOM_READ || v->state == HR_OOM_DERIVED;
  if (bytes == 0) return v->state != HR_OOM_READ || v->bytes == 0;
  return known && apart <= bytes * 1e-6 + 2 && -apart <= bytes * 1e-6 + 2;
}

static bool has_figures(const hr_oom_failure *f, const quantities *want) {
  return is_near(&f->figures[HR_OOM_REQUESTED], want->requested) && is_near(&f->figures[HR_OOM_TOTAL], want->total) &&
         is_near(&f->figures[HR_OOM_FREE], want->free) && is_near(&f->figures[HR_OOM_THIS_PROCESS], want->mine) &&
         is_near(&f->figures[HR_OOM_ALLOCATED], want->allocated) &&
         is_near(&f->figures[HR_OOM_ALLOWED], want->allowed) &&
         is_near(&f->figures[HR_OOM_OTHER_PROCESSES], want->others);
}

static bool is_right(const line *l) {
  hr_explanation *e = explain(l->text);
  const hr_oom_failure *f = e->failure_count ? &e->failures[e->primary] : NULL;
  bool right = f && f->cause == l->cause && f->certainty == l->certainty && has_figures(f, &l->figures) &&
               f->verdict[0] && f->advice_count && f->source[0];
  if (!right) print_message("WRONG: %s\n", l->text);
  if (!right && f) {
    print_message("  %s, %s (%s): %s\n ", hr_oom_cause_name(f->cause), hr_oom_certainty_name(f->certainty), f->source,
                  f->verdict);
    for (int i = 0; i < HR_OOM_FIGURE_COUNT; i++)
      if (f->figures[i].state == HR_OOM_READ || f->figures[i].state == HR_OOM_DERIVED)
        print_message(" %s %llu", hr_oom_figure_name((hr_oom_figure)i), (unsigned long long)f->figures[i].bytes);
    print_message("\n");
  }
  hr_explanation_destroy(e);
  return right;
}

static void check(const line *lines, size_t count) {
  size_t right = 0;
  for (size_t i = 0; i < count; i++) right += is_right(&lines[i]);
  assert_int_equal(right, count);
}

static void test_frameworks(void **state) {
  (void)state;
  check(frameworks, COUNT(frameworks));
}

static void test_caps(void **state) {
  (void)state;
  check(caps, COUNT(caps));
}

static void test_parts(void **state) {
  (void)state;
  check(parts, COUNT(parts));
}

static void test_hosts(void **state) {
  (void)state;
  check(hosts, COUNT(hosts));
}

static void test_devices(void **state) {
  (void)state;
  check(devices, COUNT(devices));
}

static void test_silent(void **state) {
  size_t alarms = 0;
  (void)state;
  for (size_t i = 0; i < COUNT(silent); i++) {
    hr_explanation *e = explain(silent[i]);
    if (e->failure_count)
      print_message("ALARM (%s, %s): %s\n", e->failures[0].source, hr_oom_certainty_name(e->failures[0].certainty),
                    silent[i]);
    alarms += e->failure_count > 0;
    hr_explanation_destroy(e);
  }
  assert_int_equal(alarms, 0);
}

/* ---- the file of cases ---- */

/* The cause and certainty as "%% CAUSE CERTAINTY" says them; "no" when nothing is reported. */
static void describe(const hr_explanation *e, char *out, size_t capacity) {
  const hr_oom_failure *f = e->failure_count ? &e->failures[e->primary] : NULL;
  if (f) (void)snprintf(out, capacity, "%s %s", hr_oom_cause_name(f->cause), hr_oom_certainty_name(f->certainty));
  else (void)snprintf(out, capacity, "no");
}

static void test_cases(void **state) {
  static char text[128 * 1024];
  FILE *file = fopen(HR_TEST_DATA "/explain/cases/speakers.txt", "rb");
  size_t count, cases = 0, silent_cases = 0, right = 0;
  char *at, *next;
  (void)state;
  assert_non_null(file);
  count = fread(text, 1, sizeof text - 1, file);
  (void)fclose(file);
  assert_true(count < sizeof text - 1);
  text[count] = 0;
  for (at = strstr(text, "\n%% "); at; at = next) {
    char *head = at + 4, *body = strchr(head, '\n'), got[64];
    hr_explanation *e;
    assert_non_null(body);
    *body++ = 0;
    next = strstr(body, "\n%% ");
    if (next) *next = 0; /* the next search begins behind it */
    e = explain(body);
    describe(e, got, sizeof got);
    if (strcmp(got, head) != 0) print_message("WRONG: %s, not %s: %s\n", got, head, body);
    right += strcmp(got, head) == 0;
    silent_cases += strcmp(head, "no") == 0;
    cases++;
    hr_explanation_destroy(e);
  }
  assert_true(cases > 300 && silent_cases > 130);
  assert_int_equal(right, cases);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_frameworks), cmocka_unit_test(test_caps),    cmocka_unit_test(test_parts),
      cmocka_unit_test(test_hosts),      cmocka_unit_test(test_devices), cmocka_unit_test(test_silent),
      cmocka_unit_test(test_cases),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
