/* Failures that speakers nobody has met report, each with the cause, the certainty and the figures that its structure
 * shows; texts that only speak of such failures; messages cut within a word or a number. */
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

typedef struct report {
  const char *text;
  hr_oom_cause cause;
  hr_oom_certainty certainty;
  double figures[4]; /* requested, total, free, allowed, in bytes; 0: not in the text */
} report;

static const hr_oom_figure figures[] = {HR_OOM_REQUESTED, HR_OOM_TOTAL, HR_OOM_FREE, HR_OOM_ALLOWED};

static const report reports[] = {
    {"RuntimeError: Failed to allocate 12884901888 bytes of host memory",
     HR_OOM_HOST_MEMORY,
     CERTAIN,
     {12884901888.0, 0, 0, 0}},
    {"ERROR: could not allocate 3.5 GB of system memory for the shuffle buffer",
     HR_OOM_HOST_MEMORY,
     CERTAIN,
     {3758096384.0, 0, 0, 0}},
    {"fatal error: runtime: out of memory", HR_OOM_HOST_MEMORY, CERTAIN, {0, 0, 0, 0}},
    {"fatal error: malloc failed: cannot allocate memory", HR_OOM_HOST_MEMORY, CERTAIN, {0, 0, 0, 0}},
    {"[WinError 1455] The paging file is too small for this operation to complete. Error loading \"torch_cuda.dll\"",
     HR_OOM_HOST_MEMORY,
     CERTAIN,
     {0, 0, 0, 0}},
    {"memory allocation of 34359738368 bytes failed", HR_OOM_HOST_MEMORY, CERTAIN, {34359738368.0, 0, 0, 0}},
    {"Error: cannot allocate vector of size 2.0 Gb", HR_OOM_HOST_MEMORY, CERTAIN, {2147483648.0, 0, 0, 0}},
    {"slurmstepd: error: Job 811 exceeded memory limit (33715636 > 32757760), being killed",
     HR_OOM_HOST_MEMORY,
     CERTAIN,
     {0, 0, 0, 0}},
    {"=>> PBS: job killed: mem 38427376kb exceeded limit 33554432kb",
     HR_OOM_HOST_MEMORY,
     CERTAIN,
     {0, 0, 0, 34359738368.0}},
    {"TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.", HR_OOM_HOST_MEMORY, CERTAIN, {0, 0, 0, 0}},
    {"ERROR Scheduler: Lost executor 3 on node7: Container killed for exceeding memory limits. 5.5 GB of 5.5 GB physical memory used.",
     HR_OOM_HOST_MEMORY,
     CERTAIN,
     {0, 0, 0, 0}},
    {"bash: fork: Cannot allocate memory", HR_OOM_HOST_MEMORY, CERTAIN, {0, 0, 0, 0}},
    {"lightgbm.basic.LightGBMError: Out of Host Memory", HR_OOM_HOST_MEMORY, CERTAIN, {0, 0, 0, 0}},
    {"c++: fatal error: Killed signal terminated program cc1plus", HR_OOM_HOST_MEMORY, LIKELY, {0, 0, 0, 0}},
    {"nvcc error   : 'cicc' died due to signal 9 (Kill signal)", HR_OOM_HOST_MEMORY, LIKELY, {0, 0, 0, 0}},
    {"mpirun noticed that process rank 2 with PID 0 on node n1 exited on signal 9 (Killed).",
     HR_OOM_HOST_MEMORY,
     LIKELY,
     {0, 0, 0, 0}},
    {"Out of memory: Kill process 4021 (python3) score 912 or sacrifice child",
     HR_OOM_HOST_MEMORY,
     CERTAIN,
     {0, 0, 0, 0}},
    {"systemd-oomd[612]: Killed /user.slice/app.scope due to memory pressure for /user.slice being 62.61% > 50.00% for > 20s",
     HR_OOM_HOST_MEMORY,
     CERTAIN,
     {0, 0, 0, 0}},
    {"pinned memory allocation of 8589934592 bytes failed", HR_OOM_HOST_MEMORY, LIKELY, {8589934592.0, 0, 0, 0}},
    {"FATAL start failed | cudaMallocHost failed: cudaErrorMemoryAllocation: out of memory",
     HR_OOM_HOST_MEMORY,
     LIKELY,
     {0, 0, 0, 0}},
    {"fatal: Out of memory, malloc failed (tried to allocate 524288000 bytes)",
     HR_OOM_HOST_MEMORY,
     LIKELY,
     {524288000.0, 0, 0, 0}},
    {" 33%|###       | 5/15 [02:32<05:36, 33.69s/it]zsh: killed     python3 train.py",
     HR_OOM_HOST_MEMORY,
     LIKELY,
     {0, 0, 0, 0}},
    {"ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\nMemory on the node (IP: 10.0.0.2) where the task (pid=3048, memory used=40.50GB) was running was 60.00GB / 62.50GB (0.96), which exceeds the memory usage threshold of 0.95.",
     HR_OOM_HOST_MEMORY,
     CERTAIN,
     {0, 67108864000.0, 0, 0}},
    {"ERROR: Out of GPU memory trying to allocate 1.000 GiB\nEffective GPU memory usage: 99.71% (5.782 GiB/5.799 GiB)",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {1073741824.0, 0, 0, 0}},
    {"[TensorRT] ERROR: Requested amount of memory (150994944 bytes) could not be allocated. There may not be enough free memory for allocation to succeed.",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {150994944.0, 0, 0, 0}},
    {"[TRT] [E] 2: [virtualMemoryBuffer.cpp::resizePhysical::145] Error Code 2: OutOfMemory (no further information)",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {0, 0, 0, 0}},
    {"what() -> \"/src/catboost/cuda_lib/memory_pool.h:303: Error: Out of memory. Requested 8880 MB; Free 5902.5 MB\"",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {9311354880.0, 0, 6189219840.0, 0}},
    {"xgboost.core.XGBoostError: [11:01:50] ../src/common/device_helpers.cuh:431: Memory allocation error on worker 0: std::bad_alloc: cudaErrorMemoryAllocation: out of memory\n- Free memory: 8126464\n- Requested memory: 33554432",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {33554432.0, 0, 8126464.0, 0}},
    {"libc++abi: terminating due to uncaught exception of type std::runtime_error: [METAL] Command buffer execution failed: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {0, 0, 0, 0}},
    {"RuntimeError: [metal::malloc] Attempting to allocate 35433480192 bytes which is greater than the maximum allowed buffer size of 22613000192 bytes.",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {35433480192.0, 0, 0, 22613000192.0}},
    {"Error: DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")", HR_OOM_NOT_PYTORCH, CERTAIN, {0, 0, 0, 0}},
    {"alloc_tensor_range: failed to allocate CUDA0 buffer of size 4294967296",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {4294967296.0, 0, 0, 0}},
    {"ggml_backend_cuda_buffer_type_alloc_buffer: allocating 1690.00 MiB\n    on device 1: cudaMalloc failed: out of memory",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {1772093440.0, 0, 0, 0}},
    {"MemoryError: Error allocating 411041792 bytes of device memory (out of memory). Apply node that caused the error: GpuElemwise (theano)",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {411041792.0, 0, 0, 0}},
    {"Error Message Summary:\nResourceExhaustedError: \n\nOut of memory error on GPU 0. Cannot allocate 128.000000MB memory on GPU 0, 23.500000GB memory has been allocated and available memory is only 97.500000MB.",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {134217728.0, 0, 102236160.0, 0}},
    {"cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 1,073,741,824 bytes\n(allocated so far: 3,221,225,472 bytes, limit set to: 4,294,967,296 bytes).",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {1073741824.0, 0, 0, 4294967296.0}},
    {"XlaRuntimeError: RESOURCE_EXHAUSTED: Allocation (size=107374182400) would exceed memory (size=17179869184) :: #allocation7",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {107374182400.0, 17179869184.0, 0, 0}},
    {"2024-03-04 10:12:33.123 [E:onnxruntime:, sequential_executor.cc:514 ExecuteKernel] BFCArena::AllocateRawInternal Available memory of 1024 is smaller than requested bytes of 2147483648",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {2147483648.0, 0, 0, 0}},
    {"thread 'main' panicked at 'wgpu error: Out of Memory', src/backend/direct.rs:3056:5",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {0, 0, 0, 0}},
    {"CUDA status Error: file: ./darknet/src/dark_cuda.c : () : line: 373\n\n CUDA Error: out of memory",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {0, 0, 0, 0}},
    {"ERROR (nnet3-train[5.5]:AllocateNewRegion():cu-allocator.cc:506) Failed to allocate a memory region of 4181721088 bytes. kaldi",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {4181721088.0, 0, 0, 0}},
    {"Error in a.cc. Message: std::bad_alloc: out_of_memory: CUDA error at: /w/rmm/include/rmm/mr/device/cuda_memory_resource.hpp:70: cudaErrorMemoryAllocation out of memory",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {0, 0, 0, 0}},
    {"clFinish failed: OpenCL error CL_MEM_OBJECT_ALLOCATION_FAILURE", HR_OOM_NOT_PYTORCH, LIKELY, {0, 0, 0, 0}},
    {"numba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY",
     HR_OOM_NOT_PYTORCH,
     LIKELY,
     {0, 0, 0, 0}},
    {"render: memcpy failed: level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",
     HR_OOM_NOT_PYTORCH,
     LIKELY,
     {0, 0, 0, 0}},
    {"RuntimeError: cuFFT error: CUFFT_ALLOC_FAILED", HR_OOM_OUTSIDE_ALLOCATOR, LIKELY, {0, 0, 0, 0}},
    {"RuntimeError: CUDA error: CUSPARSE_STATUS_ALLOC_FAILED when calling `cusparseCreate(handle)`",
     HR_OOM_OUTSIDE_ALLOCATOR,
     LIKELY,
     {0, 0, 0, 0}},
    {"rocblas error: rocblas_status_memory_error", HR_OOM_OUTSIDE_ALLOCATOR, LIKELY, {0, 0, 0, 0}},
    {"RuntimeError: rocBLAS error: Cannot allocate workspace memory, hipErrorOutOfMemory",
     HR_OOM_OUTSIDE_ALLOCATOR,
     LIKELY,
     {0, 0, 0, 0}},
    {"RuntimeError: [/opt/dali/core/mm/cuda_vm_resource.h:120] DALI: Can't allocate 268435456 bytes on device 0.",
     HR_OOM_OUTSIDE_ALLOCATOR,
     LIKELY,
     {268435456.0, 0, 0, 0}},
    {"rocdevice.cpp:3583: Aborting with error : HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate the necessary resources. Available Free mem : 24 MB",
     HR_OOM_OUTSIDE_ALLOCATOR,
     LIKELY,
     {0, 0, 25165824.0, 0}},
    {"RuntimeError: could not allocate 2.50 GiB on cuda:0", HR_OOM_UNKNOWN, UNDECIDABLE, {2684354560.0, 0, 0, 0}},
    {"[ERROR] engine.cpp:233: GPU memory allocation failed (requested 805306368 bytes)",
     HR_OOM_UNKNOWN,
     UNDECIDABLE,
     {805306368.0, 0, 0, 0}},
    {"lattice/src/DeviceMemoryAllocator.h:68] GPU memory allocation failed (might be due to insufficient memory)",
     HR_OOM_UNKNOWN,
     UNDECIDABLE,
     {0, 0, 0, 0}},
    {"GPU-0: Failed to allocate 16.00 GB GPU memory (0.00 GB available)",
     HR_OOM_UNKNOWN,
     UNDECIDABLE,
     {17179869184.0, 0, 0, 0}},
    {"Exception: not enough GPU memory to load the model", HR_OOM_UNKNOWN, UNDECIDABLE, {0, 0, 0, 0}},
    {"Insufficient VRAM: need 24 GB, have 11 GB available. Aborting.",
     HR_OOM_UNKNOWN,
     UNDECIDABLE,
     {25769803776.0, 0, 11811160064.0, 0}},
    {"E0304 14:26:21.611594  4889 pool.cc:71] Cannot reserve 8.00 GiB in device memory pool",
     HR_OOM_UNKNOWN,
     UNDECIDABLE,
     {8589934592.0, 0, 0, 0}},
    {"FATAL: device memory exhausted while allocating particle buffer (1536 MB)",
     HR_OOM_UNKNOWN,
     UNDECIDABLE,
     {1610612736.0, 0, 0, 0}},
    {"ERROR: kernel launch: hipMalloc(&ptr, bytes) failed with out of memory",
     HR_OOM_UNKNOWN,
     UNDECIDABLE,
     {0, 0, 0, 0}},
    {"ValueError: unable to allocate 1.2 TB", HR_OOM_UNKNOWN, UNDECIDABLE, {1319413953331.2, 0, 0, 0}},
    {"RuntimeError: CUDA driver error: out of memory", HR_OOM_UNKNOWN, UNDECIDABLE, {0, 0, 0, 0}},
    {"Traceback (most recent call last):\n  File \"/app/run.py\", line 12, in main\n    ctx.alloc(n)\nmylib.AllocError: requested block of 2.0 GiB could not be reserved, memory exhausted",
     HR_OOM_UNKNOWN,
     UNDECIDABLE,
     {2147483648.0, 0, 0, 0}},
    {"[2025-03-01 10:00:00,123] ERROR in worker: insufficient GPU memory: requested 12.0 GiB, free 3.4 GiB, total 23.6 GiB",
     HR_OOM_UNKNOWN,
     UNDECIDABLE,
     {12884901888.0, 25340307046.4, 3650722201.6, 0}},
    {"pool: cannot allocate 40.0 GiB on the GPU, total 23.6 GiB",
     HR_OOM_TOO_BIG,
     CERTAIN,
     {42949672960.0, 25340307046.4, 0, 0}},
    {"OutOfResources: out of resource: registers, Required: 300, Hardware limit: 255. Reducing block sizes may help.",
     HR_OOM_ON_CHIP,
     CERTAIN,
     {300.0, 0, 0, 255.0}},
    {"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", HR_OOM_ON_CHIP, CERTAIN, {0, 0, 0, 0}},
    {"RuntimeError: requested shared memory (180224 bytes) exceeds the limit per block (166912 bytes)",
     HR_OOM_ON_CHIP,
     CERTAIN,
     {180224.0, 0, 0, 166912.0}},
    {"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 5.00 GiB.\nGPU 0 ... 78.80 GiB memory in use. Of the allocated memory 61.50 GiB is\nallocated by PyTorch, and 10.00 GiB is reserved by PyTorch but unallocated.",
     HR_OOM_FRAGMENTED,
     LIKELY,
     {5368709120.0, 0, 0, 0}},
    {"CUDA out of memory. Tried to allocate 100.00 MiB. GPU 0 has a total capacity of 40.00 GiB of which 30.00 MiB is free. Including non-PyTorch memory, this process has 39.90 GiB memory in use. Of the allocated memory 38.00 GiB is allocated by PyTorch, and 1.20 GiB is reserved by PyTorch but unallocated.",
     HR_OOM_FRAGMENTED,
     LIKELY,
     {104857600.0, 42949672960.0, 31457280.0, 0}},
    {"CUDA out of memory. Tried to allocate 58.00 MiB. GPU 0 has a total capacity of 4.00 GiB of which 1.00 MiB is free. Including non-PyTorch memory, this process has 3.90 GiB memory in use. Of the allocated memory 3.40 GiB is allocated by PyTorch, and 72.00 MiB is reserved by PyTorch but unallocated.",
     HR_OOM_FRAGMENTED,
     LIKELY,
     {60817408.0, 4294967296.0, 1048576.0, 0}},
    {"Exception: Capture cuda graph failed: CUDA out of memory.\nTried to allocate 672.00 MiB.\nGPU 0 has a total capacity of 140.00 GiB of which 200.00 MiB is free. Including non-PyTorch memory, this process has 139.80 GiB memory in use. Of the allocated memory 138.50 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.",
     HR_OOM_CACHED_NOT_RETURNED,
     LIKELY,
     {704643072.0, 150323855360.0, 209715200.0, 0}},
    {"CUDA out of memory. Tried to allocate 352.00 MiB (GPU 0; 3.75 GiB total capacity; 1.70 GiB already allocated; 245.00 MiB free; 594.00 MiB cached)",
     HR_OOM_UNKNOWN,
     UNDECIDABLE,
     {369098752.0, 4026531840.0, 256901120.0, 0}},
    {"CUDA out of memory. Tried to allocate 240.00 MiB (GPU 0; 31.75 GiB total capacity; 690.00 MiB already allocated; 73.50 MiB free; 914.00 MiB reserved in total by PyTorch)",
     HR_OOM_OTHER_PROCESS,
     LIKELY,
     {251658240.0, 34091302912.0, 77070336.0, 0}},
    {"    \"CUDA out of memory. Tried to allocate 59.50 GiB. GPU 0 has a total \"\n    \"capacity of 28.50 GiB of which 12.00 GiB is free.\"",
     HR_OOM_TOO_BIG,
     CERTAIN,
     {63887638528.0, 30601641984.0, 12884901888.0, 0}},
    {"ValueError: Free memory on device cuda:0 (84.00/287.50 GiB) on startup is less than desired GPU memory utilization (0.95, 273.00 GiB).",
     HR_OOM_OTHER_PROCESS,
     LIKELY,
     {293131517952.0, 308700774400.0, 90194313216.0, 0}},
    {"ggml_cuda_host_malloc: failed to allocate 2048.00 MiB of pinned memory: out of memory",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {2147483648.0, 0, 0, 0}},
    {"RuntimeError: CUDA failure 2: out of memory ; GPU=0 ; hostname=h ; expr=cudaMalloc((void**)&p, size);",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {0, 0, 0, 0}},
    {"OutOfMemoryError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests",
     HR_OOM_UNKNOWN,
     UNDECIDABLE,
     {0}},
    {"ResourceExhaustedError: OOM when allocating tensor with shape[32,512,1024] and type float on the GPU",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {0}},
    {"torch.OutOfMemoryError: Allocation on device", HR_OOM_UNKNOWN, UNDECIDABLE, {0, 0, 0, 0}},
    {"RuntimeError: Invalid buffer size: 18.00 GB", HR_OOM_UNKNOWN, UNDECIDABLE, {19327352832.0, 0, 0, 0}},
    {"JobState=OUT_OF_MEMORY Reason=OutOfMemory Dependency=(null)", HR_OOM_HOST_MEMORY, CERTAIN, {0, 0, 0, 0}},
    {"Error: CUDA error: out of memory\n   in function ggml_cuda_pool_malloc at ggml-cuda.cu:6821",
     HR_OOM_NOT_PYTORCH,
     CERTAIN,
     {0, 0, 0, 0}},
    {"{\"level\":\"error\",\"ts\":1700000000,\"msg\":\"load failed\",\"error\":\"CUDA error: out of memory\"}",
     HR_OOM_UNKNOWN,
     UNDECIDABLE,
     {0, 0, 0, 0}},
    {"Run 7 died: `slurmstepd: error: Detected 1 oom_kill event in StepId=8112.0.`",
     HR_OOM_HOST_MEMORY,
     CERTAIN,
     {0, 0, 0, 0}},
    {"A pod restarted with `Last State: Terminated, Reason: OOMKilled, Exit Code: 137`.",
     HR_OOM_HOST_MEMORY,
     CERTAIN,
     {0, 0, 0, 0}},
    {"I had the following error\n\"RuntimeError: CUDA error: out of memory\"?",
     HR_OOM_UNKNOWN,
     UNDECIDABLE,
     {0, 0, 0, 0}},
};

static const char *const talk[] = {
    "If you run out of GPU memory, reduce the batch size.",
    "Tip: failed to allocate errors usually mean the model is too large.",
    "try: model.cuda() except torch.cuda.OutOfMemoryError: torch.cuda.empty_cache()",
    "    raise MemoryError(\"Unable to allocate %d bytes\" % n)",
    "fix(cuda): out of memory in attention backward (#1234)",
    "- Fixed an out of memory error when loading large checkpoints",
    "* feat: better message when we failed to allocate memory",
    "  if (err == cudaErrorMemoryAllocation) { fprintf(stderr, \"out of memory\n\"); }",
    "    throw std::runtime_error(\"failed to allocate device memory\");",
    "I think my GPU is running out of memory, what should I do?",
    "Does exit code 137 mean out of memory?",
    "How to fix CUDA out of memory in PyTorch?",
    "The job ran out of memory yesterday, so we moved it to a larger node.",
    "[INFO] GPU memory: allocated 12.3 GiB, reserved 14.0 GiB, free 9.1 GiB",
    "INFO 10-12 10:00:00 worker.py:240] Memory profiling takes 3.4 seconds. Available KV cache memory: 12.10 GiB",
    "Memory usage: 95 % (121.2 GB / 127.9 GB)",
    "| CUDA OOMs: 0            | cudaMalloc retries: 0         |",
    "oom_count=0 retries=0",
    "num_ooms: 0",
    "RuntimeError: CUDA error: an illegal memory access was encountered",
    "RuntimeError: CUDA error: device-side assert triggered",
    "RuntimeError: CUDA error: misaligned address",
    "RuntimeError: CUDA error: no kernel image is available for execution on the device",
    "Segmentation fault (core dumped)",
    "OSError: [Errno 28] No space left on device: '/tmp/x'",
    "slurmstepd: error: *** JOB 123 ON node1 CANCELLED AT 2024-01-01T00:00:00 DUE TO TIME LIMIT ***",
    "srun: error: node1: task 0: Exited with exit code 1",
    "ERROR: Failed to allocate port 29500: address already in use",
    "Unable to allocate resources: Requested node configuration is not available",
    "pseudo-tty: cannot allocate pty",
    "Failed to allocate GPUs for the job: only 2 available",
    "docker: Error response from daemon: could not allocate IP address from pool",
    "OOM handler installed for 8 ranks",
    "Registered out of memory observer",
    "WARNING: oom_score_adj set to -1000",
    "vm.overcommit_memory = 1",
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True is set to avoid fragmentation",
    "def handle_oom(e): \"\"\"Called when CUDA runs out of memory.\"\"\"",
    "// returns NULL if the allocation failed",
    "/* -ENOMEM if memory allocation failed */",
    " * @return false when out of memory",
    "@pytest.mark.skipif(not has_memory, reason=\"not enough GPU memory\")",
    "tests/test_alloc.py::test_out_of_memory PASSED [ 45%]",
    "SKIPPED [1] tests/test_big.py:12: not enough memory for this test",
    "## Out of memory errors",
    "### What to do when memory allocation fails",
    "Note: this may fail with an out of memory error on GPUs with less than 16 GB.",
    "The allocator returns nullptr when the allocation failed, and the caller handles it.",
    "Setting max_split_size_mb can help when allocation fails because of fragmentation.",
    "We recommend at least 24 GB of VRAM; otherwise you may get an out of memory error.",
    "Q: I get \"failed to allocate memory\". A: lower n_gpu_layers.",
    "INFO: retrying allocation with smaller chunk",
    "DEBUG allocator: trim done, 0 failures",
    "Loading checkpoint shards: 100%|##########| 3/3 [00:09<00:00]",
    "NCCL WARN Call to connect returned Connection refused",
    "torch.distributed.DistBackendError: NCCL error: unhandled system error",
    "Process finished with exit code 1",
    "Killing process 1234 by user request",
    "kill -9 4242",
    "exit code 143",
    "received SIGTERM, shutting down",
    "MemoryError is a subclass of Exception.",
    "memory_limit: 16GiB",
    "resources: limits: memory: 16Gi",
    "RuntimeError: The size of tensor a (128) must match the size of tensor b (64)",
    "IndexError: list index out of range",
    "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
    "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_SUPPORTED",
    "CUBLAS_STATUS_EXECUTION_FAILED when calling cublasGemmEx",
    "ValueError: max_split_size too small",
    "assert peak < limit, \"out of memory budget\"",
    "logger.error(\"Failed to allocate %s bytes\", n)",
    "self.assertRaises(MemoryError, allocate, 10)",
    "pip install failed: no matching distribution",
    "ERROR: Could not install packages due to an OSError: [Errno 2]",
    "\"message\": \"This feature helps prevent out of memory\"",
    "[2024-01-01 10:00:00] INFO scheduler: 0 OOM events in the last hour",
    "Peak memory: 23.1 GB, no OOM",
    "memory fragmentation: 12%",
    "ulimit -v unlimited",
    "GPU 0: memory.total 24564 MiB, memory.used 23000 MiB, memory.free 1564 MiB",
    "Out-of-memory protection is enabled by default",
    "This PR adds a retry on OOM",
    "OutOfMemoryError: class raised when an allocation fails",
    "See the FAQ entry about CUDA out of memory",
    "cudaMalloc returned success",
    "malloc(12) = 0x55",
    "mmap(NULL, 4096, PROT_READ) = 0x7f",
    "The memory allocation strategy failed to improve throughput",
    "Allocation of GPUs to jobs failed over to the second scheduler",
    "unable to reserve a table for two",
    "failed to create resource group: quota exceeded",
    "cannot allocate budget for Q3",
    "Insufficient permissions to access memory bank",
    "Error: no memory module found",
    "heap corruption detected",
    "free(): invalid pointer",
    "double free or corruption (out)",
    "malloc(): corrupted top size",
    "munmap_chunk(): invalid pointer",
    "memory leak detected: 12 bytes",
    "ERROR: LeakSanitizer: detected memory leaks",
    "tensorflow/core/common_runtime/gpu/gpu_device.cc:1613] Created device /job:localhost with 22290 MB memory",
    "XLA_PYTHON_CLIENT_MEM_FRACTION=.75",
    "The kernel killed the process because of low memory? No: it was a segfault.",
    "Available RAM: 512 GB, swap: 0",
    "INFO: memory limit for worker set to 8 GiB",
    "The function returns ENOMEM if there is not enough memory.",
    " ENOMEM Insufficient kernel memory was available.",
    "MAP_FAILED is returned when mmap() fails; check errno.",
    "python -c \"import torch; torch.cuda.memory_summary()\"",
    "Total memory: 24 GB. Used memory: 20 GB. Not running out of memory yet.",
    "2024-10-10 INFO gc: heap 1.2 GB -> 0.8 GB, freed 0.4 GB",
    "bitsandbytes: CUDA Setup failed despite GPU being available.",
    "ModuleNotFoundError: No module named 'memory_profiler'",
    "TypeError: allocate() missing 1 required positional argument: 'size'",
    "AttributeError: module 'torch.cuda' has no attribute 'OutOfMemoryError'",
    "NameError: name 'alloc' is not defined",
    "torch.cuda.OutOfMemoryError is available since 1.13",
    "except RuntimeError as e: if \"out of memory\" in str(e):",
    "            if 'out of memory' in str(e): print('| WARNING: ran out of memory, skipping batch')",
    "static const char *msg = \"cannot allocate memory\";",
    "    case ENOMEM: return \"out of memory\";",
    "ERROR: failed to open memory-mapped file: Permission denied",
    "ConnectionError: Failed to reserve a connection from the pool",
    "error: could not allocate the requested license",
    "ERROR 1040: Too many connections",
    "OSError: [Errno 24] Too many open files",
    "RuntimeError: NCCL communicator was aborted on rank 1. Original reason for failure was: watchdog timeout",
    "Error: unable to create a new resource in region us-east-1",
    "Error: insufficient capacity: no GPUs of this type left in the zone",
    "0/5 nodes are available: 5 Insufficient memory.",
    "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
    "Warning  FailedScheduling  pod has unbound PersistentVolumeClaims",
    "[ERROR] disk quota exceeded: cannot allocate 4096 blocks on scratch",
    "mkdir: cannot create directory: No space left on device",
    "KeyError: 'memory'",
    "JSONDecodeError: Expecting value",
    "torch.utils.checkpoint trades compute for memory",
    "With --low-vram the model needs less memory; without it allocation can fail on 8 GB cards",
    "We fixed a leak where the allocator failed to return memory to the OS",
    "2.1.0: Fix out-of-memory in tokenizer; reduce peak memory by 12 %",
    "Known issues: memory allocation failed on some AMD cards (#88)",
    " - [x] handle memory exhausted in the loader",
    "ASSERT_EQ(status, kOutOfMemory);",
    "EXPECT_THROW(alloc(1<<40), std::bad_alloc);",
    "raise torch.cuda.OutOfMemoryError(\"CUDA out of memory (simulated)\")",
    "OOMs are retried three times by default.",
    "--oom-kill-disable  Disable OOM Killer",
    "oom-score-adj: 0",
    "kernel.panic_on_oom = 0",
    "echo -1000 > /proc/self/oom_score_adj",
    "Is 16 GB enough memory for this model?",
    "Memory requirements: 7B needs 16 GB, 70B needs 140 GB",
    "Your GPU does not have enough memory for this model? Try quantization.",
    "GPU memory utilization was lowered from 0.9 to 0.85",
    "Reserving 2 GiB for activations",
    "Allocated 12 GiB buffer for KV cache",
    "Successfully allocated 4096 MB",
    "allocation succeeded after 2 retries",
    "memory pressure is normal",
    "        (\"CUDA out of memory. Tried to allocate 10.00 GiB\",",
    "    raise ValueError(\n        \"No available memory for the cache blocks. \"\n        \"Try increasing the share.\")",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate X GiB.",
    "    TORCH_CHECK(false, \"MPS backend out of memory (MPS allocated: \",\n      format_size(a), \", other allocations: \",",
    "| `RESOURCE_EXHAUSTED: Out of memory while trying to allocate X bytes` | GPU full | smaller batch |",
    "| `Cuda failure 'out of memory'` | GPU full | smaller batch |",
    "If\nyou hit `ValueError: No available memory for the cache blocks`, check the free memory first.",
    "**`CUDA failed with error out of memory`**\nSomething else uses the GPU.",
    "_ERR = re.compile(r\"(hipError|out of memory|hipErrorOutOfMemory|\"",
    "#### CUDA out of memory\nReason: the GPU is full.",
    "# Kernel lines look like:\n#   Out of memory: Killed process 12345 (server) total-vm:...,anon-rss:...",
    "export BUFF=2097152 # Avoid Cuda failure 'out of memory'",
    "- `RuntimeError: DataLoader worker is killed by signal: Killed`: fewer workers.",
    "Failed to allocate device vector A (error code CUDA driver version is insufficient for CUDA runtime version)!",
    "    if (state.getExitCode() == 137) {",
    "let oom = LoadError::new(1, \"native_load\", \"cudaMalloc failed: out of memory [vram: 412 MiB free]\", true);",
    "BFCArena::AllocateRawInternal: Available memory of N is smaller than requested bytes of M",
    "OOM_PATTERNS = [\"CUDA out of memory\", \"out of memory\", \"CUBLAS_STATUS_ALLOC_FAILED\", \"std::bad_alloc\"]",
    "    patterns: [/out of memory/i, /ENOMEM/, /JavaScript heap out of memory/],",
    "  if grep -q \"CUDA out of memory\" \"$LOG\"; then\n    BATCH=$((BATCH / 2))\n  fi",
    "dmesg | grep -i \"killed process\"",
    "dmesg -T | grep -Ei 'oom-kill|out of memory' ",
    "| 137 | SIGKILL | Usually the OOM killer |",
    "- **137**: the container was OOM-killed by the kernel",
    "Exit code 137: container exceeded its memory limit and was killed.",
    "* exit status 137 - killed by the OOM killer",
    "const EXIT_OOM = 137; // SIGKILL by the OOM killer",
    "kube_pod_container_status_last_terminated_reason{reason=\"OOMKilled\"} > 0",
    "  - alert: ContainerOOMKilled\n    expr: increase(container_oom_events_total[5m]) > 0",
    "switch (result) {\n  case CUDA_ERROR_OUT_OF_MEMORY: return \"CUDA_ERROR_OUT_OF_MEMORY\";\n  case CUDA_ERROR_NOT_INITIALIZED: return \"CUDA_ERROR_NOT_INITIALIZED\";",
    "    CUDA_ERROR_OUT_OF_MEMORY                  = 2,",
    "  cudaErrorMemoryAllocation             =      2,",
    "    } catch (const std::bad_alloc& e) {",
    "  /// Throws std::bad_alloc if memory cannot be obtained.",
    " * @throws OutOfMemoryError if the allocation fails",
    "    :raises MemoryError: if not enough memory is available",
    "        self.assertIn(\"out of memory\", str(ctx.exception))",
    "        pytest.skip(\"not enough GPU memory for this test\")",
    "        with pytest.raises(RuntimeError, match=\"CUDA out of memory\"):",
    "    except RuntimeError as e:\n        if \"out of memory\" not in str(e):\n            raise\n        torch.cuda.empty_cache()",
    "        log.warning(\"OOM at batch size %d, halving\", bs)",
    "throw new Error(`Failed to allocate ${size} bytes of GPU memory`);",
    "        return fmt.Errorf(\"failed to allocate %d bytes: %w\", n, err)",
    "    eprintln!(\"cudaMalloc failed: out of memory\");",
    "ERROR_MESSAGES = {\n    \"oom\": \"GPU out of memory. Try a smaller image.\",\n    \"timeout\": \"The request timed out.\",\n}",
    "  \"oom\": \"CUDA out of memory. Try reducing batch size\",",
    "msgid \"CUDA out of memory. Try a smaller batch.\"\nmsgstr \"\"",
    "<li>CUDA out of memory: reduce <code>batch_size</code></li>",
    "<p>If you see \"CUDA out of memory\", lower the resolution.</p>",
    "**CUDA out of memory** - reduce the batch size or use gradient checkpointing.",
    "### `torch.cuda.OutOfMemoryError: CUDA out of memory`\n\nLower the batch size.",
    "1. CUDA out of memory: use a smaller batch\n2. Slow training: use more workers",
    "Common errors:\n- CUDA out of memory\n- NCCL timeout",
    "A typical symptom is \"CUDA out of memory. Tried to allocate ...\" in the log.",
    "The server returns 507 when the GPU is out of memory.",
    "If training crashes with `RuntimeError: CUDA error: out of memory`, lower the batch size.",
    "When the host runs out of memory the kernel kills the largest process (exit code 137).",
    "Requires at least 24 GB VRAM, otherwise the model fails with an out of memory error.",
    "# TODO: handle cudaErrorMemoryAllocation here",
    "        # DataLoader worker (pid X) is killed by signal: Killed.",
    "parser.add_argument(\"--max-memory\", help=\"abort if not enough memory\")",
    "def is_oom(e): return \"CUDA out of memory\" in str(e) or \"CUBLAS_STATUS_ALLOC_FAILED\" in str(e)",
    "    @unittest.skipIf(TEST_CUDA_OOM, \"out of memory on small GPUs\")",
    "  EXPECT_EQ(status.message(), \"Out of memory allocating 1024 bytes\");",
    "mock_logger.error.assert_called_with(\"CUDA out of memory. Tried to allocate 2.00 GiB\")",
    "fake = RuntimeError(\"CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0)\")",
    "side_effect=torch.cuda.OutOfMemoryError(\"CUDA out of memory\")",
    "\"description\": \"Detects 'CUDA out of memory' failures and restarts the job\",",
    "feat: detect CUDA OOM (\"CUDA out of memory\") and halve the batch",
    "## [1.4.0]\n### Fixed\n- CUDA out of memory on long prompts (#412)\n- crash when memory allocation failed on Windows",
    "assert \"CUDA out of memory\" in proc.stderr",
    "    \"error\": \"CUDA out of memory. Tried to allocate 2.00 GiB\",\n    \"expected_class\": \"oom\",",
    "expect(classify('RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB')).toBe('oom')",
    "        message = \"CUDA out of memory. Tried to allocate 2.50 GiB\"",
    "    oom = RuntimeError(\"MPS backend out of memory\")",
    "RETRYABLE = re.compile(\"out of memory|CUBLAS_STATUS_ALLOC_FAILED|cudaErrorMemoryAllocation\", re.I)",
    "  # OOM: exit 137\n  if [ $rc -eq 137 ]; then echo \"killed (OOM)\"; fi",
    "returncode == 137  # SIGKILL, usually OOM",
    "if exit_code in (137, -9): reason = \"oom\"",
    "    -9: \"SIGKILL (out of memory)\",",
    "`exit code 137` → OOM",
    "The `DefaultCPUAllocator: can't allocate memory` error means that host RAM is exhausted.",
    "| `CUBLAS_STATUS_ALLOC_FAILED` | VRAM exhausted | lower batch |",
    "- **`RuntimeError: CUDA out of memory`**: lower `--batch-size`",
    "* `RESOURCE_EXHAUSTED`: Out of memory while trying to allocate memory on the device",
    "   raise OutOfMemoryError(f\"GPU {i} out of memory: need {n} GiB\")",
    "std::cerr << \"Failed to allocate device memory: \" << cudaGetErrorString(err) << std::endl;",
    "CHECK(ptr) << \"cudaMalloc failed to allocate \" << size << \" bytes\";",
    "LOG(ERROR) << \"Failed to allocate \" << bytes << \" bytes on GPU\";",
    "panic(fmt.Sprintf(\"failed to allocate %d bytes\", n))",
    "ggml_log(\"%s: failed to allocate buffer of size %zu\\n\", __func__, size);",
    "GGML_LOG_ERROR(\"%s: allocating %.2f MiB on device %d: cudaMalloc failed: %s\\n\", __func__, size / 1024.0 / 1024.0, device, cudaGetErrorString(err));",
    "#: src/errors.py:12\nmsgid \"Out of memory\"",
    "\"Out of memory\" is displayed when VRAM is full.",
    "cudaErrorMemoryAllocation: The API call failed because it was unable to allocate enough memory to perform the requested operation.",
    "CUBLAS_STATUS_ALLOC_FAILED: Resource allocation failed inside the cuBLAS library.",
};

static hr_explanation *explain(const char *text) {
  hr_explanation *e;
  hr_error error;
  assert_int_equal(hr_explain_text(text, strlen(text), NULL, &e, &error), HR_OK);
  return e;
}

static bool is_near(const hr_oom_value *v, double bytes) {
  double apart = (double)v->bytes - bytes;
  if (bytes == 0) return v->state != HR_OOM_READ || v->bytes == 0;
  return v->state == HR_OOM_READ && apart <= bytes * 1e-6 + 2 && -apart <= bytes * 1e-6 + 2;
}

static bool is_right(const report *r) {
  hr_explanation *e = explain(r->text);
  const hr_oom_failure *f = e->failure_count ? &e->failures[e->primary] : NULL;
  bool right = f && e->failure_count == 1 && f->cause == r->cause && f->certainty == r->certainty && f->verdict[0] &&
               f->advice_count && f->source[0];
  for (size_t i = 0; i < COUNT(figures) && right; i++) right = is_near(&f->figures[figures[i]], r->figures[i]);
  if (!right) {
    print_message("WRONG: %s\n", r->text);
    if (f)
      print_message("  %u failures: %s, %s (%s): %s; requested %llu total %llu free %llu allowed %llu\n",
                    e->failure_count, hr_oom_cause_name(f->cause), hr_oom_certainty_name(f->certainty), f->source,
                    f->verdict, (unsigned long long)f->figures[HR_OOM_REQUESTED].bytes,
                    (unsigned long long)f->figures[HR_OOM_TOTAL].bytes,
                    (unsigned long long)f->figures[HR_OOM_FREE].bytes,
                    (unsigned long long)f->figures[HR_OOM_ALLOWED].bytes);
  }
  hr_explanation_destroy(e);
  return right;
}

static void test_reports(void **state) {
  size_t right = 0;
  (void)state;
  for (size_t i = 0; i < COUNT(reports); i++) right += is_right(&reports[i]);
  assert_int_equal(right, COUNT(reports));
}

/* The same lines behind what loggers, ranks and editors put before them, and in a UTF-8 log of other languages. */
static void test_reports_behind_prefixes(void **state) {
  static const char *const prefixes[] = {"[rank3]: ", "2024-05-01 12:00:00,123 ", "\xe2\x9d\x8c ", "gpu-node-3: "};
  char text[1024];
  (void)state;
  for (size_t p = 0; p < COUNT(prefixes); p++)
    for (size_t i = 0; i < COUNT(reports); i++) {
      hr_explanation *e;
      (void)snprintf(text, sizeof text, "%s%s", prefixes[p], reports[i].text);
      e = explain(text);
      if (e->failure_count && e->failures[e->primary].certainty == CERTAIN)
        assert_int_equal(e->failures[e->primary].cause, reports[i].cause);
      hr_explanation_destroy(e);
    }
}

static void test_talk(void **state) {
  size_t alarms = 0;
  (void)state;
  assert_true(COUNT(talk) >= 100);
  for (size_t i = 0; i < COUNT(talk); i++) {
    hr_explanation *e = explain(talk[i]);
    if (e->failure_count) print_message("ALARM (%s): %s\n", e->failures[0].source, talk[i]);
    alarms += e->failure_count > 0;
    hr_explanation_destroy(e);
  }
  assert_int_equal(alarms, 0);
}

/* Whatever is cut off in front or behind: no figure is read that the whole does not have, and none is certain of
 * another cause than the whole. */
static void test_cuts(void **state) {
  static const char *const wholes[] = {
      "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 23.65 GiB "
      "of which 31.06 MiB is free. Including non-PyTorch memory, this process has 23.61 GiB memory in use. Of the "
      "allocated memory 22.87 GiB is allocated by PyTorch, and 158.23 MiB is reserved by PyTorch but unallocated.",
      "RuntimeError: CUDA out of memory. Tried to allocate 384.00 MiB (GPU 0; 11.78 GiB total capacity; 10.91 GiB already "
      "allocated; 125.31 MiB free; 11.07 GiB reserved in total by PyTorch)"};
  (void)state;
  for (size_t w = 0; w < COUNT(wholes); w++) {
    size_t count = strlen(wholes[w]);
    hr_explanation *whole = explain(wholes[w]);
    for (size_t cut = 1; cut < 2 * count; cut++) {
      size_t from = cut < count ? cut : 0, to = cut < count ? count : 2 * count - cut;
      hr_explanation *e;
      hr_error error;
      assert_int_equal(hr_explain_text(wholes[w] + from, to - from, NULL, &e, &error), HR_OK);
      for (uint32_t i = 0; i < e->failure_count; i++) {
        const hr_oom_failure *f = &e->failures[i];
        for (int v = 0; v < HR_OOM_FIGURE_COUNT; v++)
          if (f->figures[v].state == HR_OOM_READ) {
            if (f->figures[v].bytes != whole->failures[0].figures[v].bytes)
              print_message("%s: %.*s\n", hr_oom_figure_name((hr_oom_figure)v), (int)(to - from), wholes[w] + from);
            assert_int_equal(f->figures[v].bytes, whole->failures[0].figures[v].bytes);
          }
        assert_true(f->certainty != CERTAIN || f->cause == whole->failures[0].cause);
      }
      if (to - from > count * 2 / 3) assert_int_equal(e->failure_count, 1);
      hr_explanation_destroy(e);
    }
    hr_explanation_destroy(whole);
  }
}

/* A part that the end of the text cut within its words is read where the words tell it from the others. */
static void test_cut_words(void **state) {
  hr_explanation *e =
      explain("CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 7.75 GiB total capacity; 7.25 GiB alre...");
  (void)state;
  assert_true(is_near(&e->failures[0].figures[HR_OOM_ALLOCATED], 7.25 * 1073741824.0));
  assert_int_equal(e->failures[0].cause, HR_OOM_TOO_BIG);
  hr_explanation_destroy(e);
  e = explain(
      "of memory. Tried to allocate 2.00 GiB (GPU 0; 7.75 GiB total capacity; 7.25 GiB already allocated; 64.00 MiB fr");
  assert_true(is_near(&e->failures[0].figures[HR_OOM_FREE], 67108864.0));
  hr_explanation_destroy(e);
  e = explain(
      "5 GiB total capacity; 6.50 GiB already allocated; 64.00 MiB free; 7.25 GiB reserved in total by PyTorch)");
  assert_int_equal(e->failure_count, 1);
  assert_int_equal(e->failures[0].figures[HR_OOM_TOTAL].state, HR_OOM_ABSENT);
  hr_explanation_destroy(e);
}

/* What a report says again in other words, before or behind the message that says more, is one failure. */
static void test_one_failure_once(void **state) {
  static const char *const texts[] =
      {"engine: failed to allocate the KV cache on GPU 0\nRuntimeError: CUDA error: out of memory\n",
       "RuntimeError: CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 8.00 GiB total capacity; 5.00 GiB already "
       "allocated; 0.50 GiB free; 7.40 GiB reserved in total by PyTorch)\nserver: ERROR: memory allocation failed\n"};
  (void)state;
  for (size_t i = 0; i < COUNT(texts); i++) {
    hr_explanation *e = explain(texts[i]);
    assert_int_equal(e->failure_count, 1);
    assert_non_null(strstr(e->failures[0].source, "pytorch"));
    hr_explanation_destroy(e);
  }
}

/* The figures of two failures that stand beside each other stay apart. */
static void test_figures_stay_apart(void **state) {
  hr_explanation *e = explain(
      "server: CUBLAS_STATUS_NOT_INITIALIZED when calling cublasCreate(handle)\nor\nserver: CUDA out of memory. Tried to "
      "allocate 28.00 MiB (GPU 0; 3.75 GiB total capacity; 320.00 MiB already allocated; 91.00 MiB free; 334.00 MiB "
      "reserved in total by PyTorch)");
  (void)state;
  assert_int_equal(e->failure_count, 2);
  for (int v = 0; v < HR_OOM_FIGURE_COUNT; v++) assert_int_equal(e->failures[0].figures[v].state, HR_OOM_ABSENT);
  assert_int_equal(e->primary, 1);
  hr_explanation_destroy(e);
  e = explain(
      "GPU memory: allocated 12.5 GiB, free 3.0 GiB, total 24 GiB\nCUDA error: out of memory\nGPU memory: free 1.0 GiB\n");
  assert_int_equal(e->failure_count, 1);
  for (int v = 0; v < HR_OOM_FIGURE_COUNT; v++) assert_int_equal(e->failures[0].figures[v].state, HR_OOM_ABSENT);
  hr_explanation_destroy(e);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_reports),
      cmocka_unit_test(test_reports_behind_prefixes),
      cmocka_unit_test(test_talk),
      cmocka_unit_test(test_cuts),
      cmocka_unit_test(test_cut_words),
      cmocka_unit_test(test_one_failure_once),
      cmocka_unit_test(test_figures_stay_apart),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
