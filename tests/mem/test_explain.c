/* The explainer: constructed messages over all wordings and causes, each with the figures, the cause and the certainty
 * that follow by hand from the rules of docs/explain.md; then streams, ranks, repeats, hostile input, refused
 * memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <headroom/explain.h>

#include "base/mem.h"

#define GIB(x) ((x) * 1073741824.0)
#define MIB(x) ((x) * 1048576.0)
#define HINT20                                                                                                         \
  " If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF"
#define HINT22                                                                                                         \
  " If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
#define CERTAIN HR_OOM_CERTAIN
#define LIKELY HR_OOM_LIKELY
#define UNDECIDED HR_OOM_UNKNOWN, HR_OOM_UNDECIDABLE

#define CUT_SAMPLE                                                                                                     \
  "CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 10.00 GiB of which 1.00 MiB is free. Of the allocated memory 8.90 GiB is allocated by PyTorch, and 10.00 MiB is reserved by PyTorch but unallocated."

typedef struct sample {
  const char *text;
  hr_oom_cause cause;
  hr_oom_certainty certainty;
  double requested, total, free, allocated, unallocated, others; /* bytes; 0: not to be known */
} sample;

static const sample
    samples
        [] =
            {
                /* 1.0 to 1.3 */
                {"RuntimeError: CUDA out of memory. Tried to allocate 128.00 MiB (GPU 0; 7.79 GiB total capacity; 7.20 GiB already allocated; 27.69 MiB free; 50.00 MiB cached)",
                 HR_OOM_TOO_BIG, LIKELY, MIB(128), GIB(7.79), MIB(27.69), GIB(7.2), MIB(50), 0},
                {"RuntimeError: CUDA out of memory. Tried to allocate 350.00 MiB (GPU 0; 7.93 GiB total capacity; 5.73 GiB already allocated; 324.56 MiB free; 1.34 GiB cached)",
                 HR_OOM_FRAGMENTED, LIKELY, MIB(350), GIB(7.93), MIB(324.56), GIB(5.73), GIB(1.34), 0},
                {"CUDA out of memory. Tried to allocate 8.00 GiB (GPU 1; 7.93 GiB total capacity; 1.73 GiB already allocated; 5.56 GiB free; 0 bytes cached)",
                 HR_OOM_TOO_BIG, CERTAIN, GIB(8), GIB(7.93), GIB(5.56), GIB(1.73), 0, 0},
                {"CUDA out of memory. Tried to allocate 4.00 GiB (GPU 1; 7.93 GiB total capacity; 4.73 GiB already allocated; 2.10 GiB free; 0 bytes cached)",
                 HR_OOM_TOO_BIG, CERTAIN, GIB(4), GIB(7.93), GIB(2.1), GIB(4.73), 0, 0},
                {"CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.92 GiB total capacity; 1.00 GiB already allocated; 5.56 MiB free; 30.00 MiB cached)",
                 HR_OOM_OTHER_PROCESS, LIKELY, MIB(20), GIB(10.92), MIB(5.56), GIB(1), MIB(30), 0},
                /* 1.4 to 1.9 */
                {"RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.76 GiB total capacity; 9.71 GiB already allocated; 5.56 MiB free; 9.73 GiB reserved in total by PyTorch)",
                 HR_OOM_TOO_BIG, LIKELY, MIB(20), GIB(10.76), MIB(5.56), GIB(9.71), GIB(9.73) - GIB(9.71), 0},
                {"CUDA out of memory. Tried to allocate 1.50 GiB (GPU 0; 23.70 GiB total capacity; 16.00 GiB already allocated; 700.00 MiB free; 22.00 GiB reserved in total by PyTorch)",
                 HR_OOM_FRAGMENTED, LIKELY, GIB(1.5), GIB(23.7), MIB(700), GIB(16), GIB(6), 0},
                {"CUDA out of memory. Tried to allocate 734.00 MiB (GPU 0; 15.78 GiB total capacity; 1.00 GiB already allocated; 12.10 GiB free; 1.20 GiB reserved in total by PyTorch)",
                 UNDECIDED, MIB(734), GIB(15.78), GIB(12.1), GIB(1), GIB(1.2) - GIB(1), 0},
                {"CUDA out of memory. Tried to allocate 2.00 GiB (GPU 2; 31.75 GiB total capacity; 8.00 GiB already allocated; 1.00 GiB free; 8.10 GiB reserved in total by PyTorch)",
                 HR_OOM_OTHER_PROCESS, LIKELY, GIB(2), GIB(31.75), GIB(1), GIB(8), GIB(8.1) - GIB(8), 0},
                {"CUDA out of memory. Tried to allocate 512.00 MiB (GPU 0; 15.90 GiB total capacity; 7.50 GiB already allocated; 7.00 GiB free; 7.95 GiB allowed; 7.60 GiB reserved in total by PyTorch)",
                 HR_OOM_CAP, CERTAIN, MIB(512), GIB(15.9), GIB(7), GIB(7.5), GIB(7.6) - GIB(7.5), 0},
                {"CUDA out of memory. Tried to allocate 512.00 MiB (GPU 0; 15.90 GiB total capacity; 15.00 GiB already allocated; 20.00 MiB free; 15.10 GiB allowed; 15.05 GiB reserved in total by PyTorch)",
                 HR_OOM_CAP, LIKELY, MIB(512), GIB(15.9), MIB(20), GIB(15), GIB(15.05) - GIB(15), 0},
                /* 1.10 to 2.0 */
                {"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 12.00 MiB (GPU 0; 23.69 GiB total capacity; 22.50 GiB already allocated; 10.00 MiB free; 22.90 GiB reserved in total by PyTorch)" HINT20,
                 HR_OOM_FRAGMENTED, LIKELY, MIB(12), GIB(23.69), MIB(10), GIB(22.5), GIB(22.9) - GIB(22.5), 0},
                {"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB (GPU 0; 23.69 GiB total capacity; 17.50 GiB already allocated; 1.00 GiB free; 21.90 GiB reserved in total by PyTorch)" HINT20,
                 HR_OOM_FRAGMENTED, LIKELY, GIB(3), GIB(23.69), GIB(1), GIB(17.5), GIB(21.9) - GIB(17.5), 0},
                {"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1024.00 MiB (GPU 0; 8.00 GiB total capacity; 12.30 GiB already allocated; 0 bytes free; 12.50 GiB reserved in total by PyTorch)" HINT20,
                 HR_OOM_TOO_BIG, CERTAIN, GIB(1), GIB(8), 0, GIB(12.3), GIB(12.5) - GIB(12.3), 0},
                {"CUDA out of memory. Tried to allocate 372.53 GiB (GPU 0; 31.75 GiB total capacity; 2.00 GiB already allocated; 28.00 GiB free; 2.10 GiB reserved in total by PyTorch)" HINT20,
                 HR_OOM_TOO_BIG, CERTAIN, GIB(372.53), GIB(31.75), GIB(28), GIB(2), GIB(2.1) - GIB(2), 0},
                {"CUDA out of memory. Tried to allocate 17179869183.99 GiB (GPU 0; 31.75 GiB total capacity; 2.00 GiB already allocated; 28.00 GiB free; 2.10 GiB reserved in total by PyTorch)" HINT20,
                 HR_OOM_TOO_BIG, CERTAIN, GIB(17179869183.99), GIB(31.75), GIB(28), GIB(2), GIB(2.1) - GIB(2), 0},
                {"CUDA out of memory. Tried to allocate 64.00 MiB (GPU 0; 14.76 GiB total capacity; 13.00 GiB already allocated; 31.00 MiB free; 13.70 GiB reserved in total by PyTorch)" HINT20,
                 HR_OOM_FRAGMENTED, LIKELY, MIB(64), GIB(14.76), MIB(31), GIB(13), GIB(13.7) - GIB(13), 0},
                {"CUDA out of memory. Tried to allocate 64.00 MiB (GPU 0; 14.76 GiB total capacity; 13.80 GiB already allocated; 63.00 MiB free; 14.00 GiB reserved in total by PyTorch)" HINT20,
                 HR_OOM_FRAGMENTED, LIKELY, MIB(64), GIB(14.76), MIB(63), GIB(13.8), GIB(14) - GIB(13.8), 0},
                /* 2.1 */
                {"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacty of 23.65 GiB of which 1.06 MiB is free. Including non-PyTorch memory, this process has 23.63 GiB memory in use. Of the allocated memory 23.00 GiB is allocated by PyTorch, and 150.00 MiB is reserved by PyTorch but unallocated." HINT22,
                 HR_OOM_TOO_BIG, LIKELY, MIB(2), GIB(23.65), MIB(1.06), GIB(23), MIB(150), 0},
                {"CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacty of 23.65 GiB of which 500.00 MiB is free. Process 3392 has 14.73 GiB memory in use. Including non-PyTorch memory, this process has 8.40 GiB memory in use. Of the allocated memory 7.90 GiB is allocated by PyTorch, and 50.00 MiB is reserved by PyTorch but unallocated." HINT22,
                 HR_OOM_OTHER_PROCESS, CERTAIN, GIB(1), GIB(23.65), MIB(500), GIB(7.9), MIB(50), GIB(14.73)},
                {"CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacty of 23.65 GiB of which 500.00 MiB is free. Process 3392 has 23.14 GiB memory in use. Of the allocated memory 22.60 GiB is allocated by PyTorch, and 50.00 MiB is reserved by PyTorch but unallocated." HINT22,
                 HR_OOM_TOO_BIG, LIKELY, GIB(1), GIB(23.65), MIB(500), GIB(22.6), MIB(50), 0},
                {"CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacty of 23.65 GiB of which 500.00 MiB is free. Process 3392 has 13.00 GiB memory in use. Of the allocated memory 5.60 GiB is allocated by PyTorch, and 50.00 MiB is reserved by PyTorch but unallocated." HINT22,
                 UNDECIDED, GIB(1), GIB(23.65), MIB(500), GIB(5.6), MIB(50), GIB(13)},
                /* 2.2 on */
                {"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79.15 GiB of which 1.38 GiB is free. Including non-PyTorch memory, this process has 77.77 GiB memory in use. Of the allocated memory 66.00 GiB is allocated by PyTorch, and 11.00 GiB is reserved by PyTorch but unallocated." HINT22,
                 HR_OOM_FRAGMENTED, LIKELY, GIB(2), GIB(79.15), GIB(1.38), GIB(66), GIB(11), 0},
                {"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.38 GiB is free. Including non-PyTorch memory, this process has 77.77 GiB memory in use. Of the allocated memory 66.00 GiB is allocated by PyTorch, and 11.00 GiB is reserved by PyTorch but unallocated." HINT22,
                 HR_OOM_TOO_BIG, CERTAIN, GIB(20), GIB(79.15), GIB(1.38), GIB(66), GIB(11), 0},
                {"CUDA out of memory. Tried to allocate 12.50 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.00 GiB is free. Including non-PyTorch memory, this process has 78.15 GiB memory in use. Of the allocated memory 66.00 GiB is allocated by PyTorch, and 11.00 GiB is reserved by PyTorch but unallocated." HINT22,
                 HR_OOM_TOO_BIG, LIKELY, GIB(12.5), GIB(79.15), GIB(1), GIB(66), GIB(11), 0},
                {"CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.00 GiB is free. Including non-PyTorch memory, this process has 78.15 GiB memory in use. Of the allocated memory 76.00 GiB is allocated by PyTorch, with 24.00 GiB allocated in private pools (e.g., CUDA Graphs), and 1.00 GiB is reserved by PyTorch but unallocated." HINT22, HR_OOM_PRIVATE_POOL,
                 LIKELY, GIB(2), GIB(79.15), GIB(1), GIB(76), GIB(1), 0},
                {"CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.00 GiB is free. Including non-PyTorch memory, this process has 78.15 GiB memory in use. Of the allocated memory 76.00 GiB is allocated by PyTorch, with 28.00 MiB allocated in private pools (e.g., CUDA Graphs), and 1.00 GiB is reserved by PyTorch but unallocated." HINT22,
                 HR_OOM_TOO_BIG, LIKELY, GIB(2), GIB(79.15), GIB(1), GIB(76), GIB(1), 0},
                {"CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 60.00 GiB is free. Including non-PyTorch memory, this process has 19.15 GiB memory in use. 19.79 GiB allowed; Of the allocated memory 18.20 GiB is allocated by PyTorch, and 300.00 MiB is reserved by PyTorch but unallocated." HINT22,
                 HR_OOM_CAP, CERTAIN, GIB(2), GIB(79.15), GIB(60), GIB(18.2), MIB(300), 0},
                {"CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.00 GiB is free. Process 12 has 59.00 GiB memory in use. Including non-PyTorch memory, this process has 19.15 GiB memory in use. 39.58 GiB allowed; Of the allocated memory 18.20 GiB is allocated by PyTorch, and 300.00 MiB is reserved by PyTorch but unallocated." HINT22,
                 HR_OOM_OTHER_PROCESS, CERTAIN, GIB(2), GIB(79.15), GIB(1), GIB(18.2), MIB(300), GIB(59)},
                {"CUDA out of memory. Tried to allocate 2.00 GiB. GPU  has a total capacity of 79.15 GiB of which 1.00 GiB is free. Process 12 has 17179869184.00 GiB memory in use. Including non-PyTorch memory, this process has 17179869184.00 GiB memory in use. Of the allocated memory 76.90 GiB is allocated by PyTorch, and 300.00 MiB is reserved by PyTorch but unallocated." HINT22,
                 HR_OOM_TOO_BIG, LIKELY, GIB(2), GIB(79.15), GIB(1), GIB(76.9), MIB(300), 0},
                {"CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.00 GiB is free. Including non-PyTorch memory, this process has 0 bytes memory in use. Of the allocated memory 40.20 GiB is allocated by PyTorch, and 300.00 MiB is reserved by PyTorch but unallocated." HINT22,
                 UNDECIDED, GIB(2), GIB(79.15), GIB(1), GIB(40.2), MIB(300), 0},
                {"CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.00 GiB is free. Including non-PyTorch memory, this process has 78.15 GiB memory in use. Of the allocated memory 50.20 GiB is allocated by PyTorch, and 300.00 MiB is reserved by PyTorch but unallocated." HINT22,
                 HR_OOM_OUTSIDE_ALLOCATOR, LIKELY, GIB(2), GIB(79.15), GIB(1), GIB(50.2), MIB(300), 0},
                {"CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.00 GiB is free. Including non-PyTorch memory, this process has 41.15 GiB memory in use. Of the allocated memory 40.20 GiB is allocated by PyTorch, and 300.00 MiB is reserved by PyTorch but unallocated." HINT22,
                 HR_OOM_OTHER_PROCESS, LIKELY, GIB(2), GIB(79.15), GIB(1), GIB(40.2), MIB(300), 0},
                {"CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which 10.25 MiB is free. Process 1 has 612.00 MiB memory in use. Process 2 has 612.00 MiB memory in use. Including non-PyTorch memory, this process has 138.00 GiB memory in use. Process 3 has 612.00 MiB memory in use. Of the allocated memory 137.00 GiB is allocated by PyTorch, and 200.00 MiB is reserved by PyTorch but unallocated." HINT22,
                 HR_OOM_FRAGMENTED, LIKELY, MIB(20), GIB(139.8), MIB(10.25), GIB(137), MIB(200), 3 * MIB(612)},
                {"CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which 3.25 GiB is free. Including non-PyTorch memory, this process has 136.00 GiB memory in use. Of the allocated memory 130.00 GiB is allocated by PyTorch, and 4.00 GiB is reserved by PyTorch but unallocated." HINT22,
                 UNDECIDED, MIB(20), GIB(139.8), GIB(3.25), GIB(130), GIB(4), 0},
                {"OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 23.65 GiB of which 500.00 MiB is free. Process 7 has 4.00 GiB memory in use. Including non-PyTorch memory, this process has 19.10 GiB memory in use. Of the allocated memory 18.60 GiB is allocated by PyTorch, and 50.00 MiB is reserved by PyTorch but unallocated." HINT22,
                 HR_OOM_OTHER_PROCESS, LIKELY, GIB(1), GIB(23.65), MIB(500), GIB(18.6), MIB(50), GIB(4)},
                /* other backends of the same allocator */
                {"torch.cuda.OutOfMemoryError: HIP out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 23.98 GiB of which 1.00 GiB is free. Of the allocated memory 22.50 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_HIP_ALLOC_CONF=expandable_segments:True",
                 HR_OOM_TOO_BIG, CERTAIN, GIB(4), GIB(23.98), GIB(1), GIB(22.5), MIB(100), 0},
                {"torch.OutOfMemoryError: XPU out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 15.11 GiB. Of the allocated memory 14.80 GiB is allocated by PyTorch, and 200.00 MiB is reserved by PyTorch but unallocated. Please use `empty_cache` to release all unoccupied cached memory.", HR_OOM_TOO_BIG,
                 CERTAIN, GIB(1), GIB(15.11), 0, GIB(14.8), MIB(200), 0},
                {"torch.OutOfMemoryError: XPU out of memory. Tried to allocate 256.00 MiB. GPU 0 has a total capacity of 15.11 GiB. Of the allocated memory 10.80 GiB is allocated by PyTorch, and 200.00 MiB is reserved by PyTorch but unallocated.",
                 UNDECIDED, MIB(256), GIB(15.11), 0, GIB(10.8), MIB(200), 0},
                {"RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 3; 60.97 GiB total capacity; 58.20 GiB already allocated; 58.20 GiB current active; 1.20 GiB free; 58.60 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.",
                 HR_OOM_TOO_BIG, LIKELY, GIB(2), GIB(60.97), GIB(1.2), GIB(58.2), GIB(58.6) - GIB(58.2), 0},
                {"RuntimeError: MPS backend out of memory (MPS allocated: 5.05 GB, other allocations: 3.50 GB, max allowed: 9.07 GB). Tried to allocate 1024.00 MB on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations (may cause system failure).",
                 HR_OOM_CAP, CERTAIN, GIB(1), 0, 0, GIB(5.05), 0, 0},
                {"RuntimeError: MPS backend out of memory (MPS allocated: 1.05 GB, other allocations: 1.50 GB, max allowed: 9.07 GB). Tried to allocate 1024.00 MB on shared pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0",
                 UNDECIDED, GIB(1), 0, 0, GIB(1.05), 0, 0},
                {"RuntimeError: MPS backend out of memory (MPS allocated: 5.05 GiB, other allocations: 3.50 GiB, max allowed: unlimited). Tried to allocate 1.00 GiB on private pool.",
                 UNDECIDED, GIB(1), 0, 0, GIB(5.05), 0, 0},
                {"torch.cuda.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 13.10 GiB\nRequested               : 1.00 GiB\nDevice limit            : 14.00 GiB\nFree (according to CUDA): 200.00 MiB\nPyTorch limit (set by user-supplied memory fraction)\n                        : 17179869184.00 GiB",
                 HR_OOM_TOO_BIG, CERTAIN, GIB(1), GIB(14), MIB(200), GIB(13.1), 0, 0},
                {"torch.cuda.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 6.50 GiB\nRequested               : 1.00 GiB\nDevice limit            : 14.00 GiB\nFree (according to CUDA): 7.00 GiB\nPyTorch limit (set by user-supplied memory fraction)\n                        : 7.00 GiB",
                 HR_OOM_CAP, CERTAIN, GIB(1), GIB(14), GIB(7), GIB(6.5), 0, 0},
                /* no figures */
                {"RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call",
                 UNDECIDED, 0, 0, 0, 0, 0, 0},
                {"THCudaCheck FAIL file=/pytorch/aten/src/THC/generic/THCStorage.cu line=58 error=2 : out of memory\nRuntimeError: cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/generic/THCStorage.cu:58",
                 UNDECIDED, 0, 0, 0, 0, 0, 0},
                {"RuntimeError: [enforce fail at context_gpu.cu:415] error == cudaSuccess. 2 vs 0. Error at: context_gpu.cu:415: out of memory",
                 UNDECIDED, 0, 0, 0, 0, 0, 0},
                {"HIP error: out of memory", UNDECIDED, 0, 0, 0, 0, 0, 0},
                /* host memory */
                {"RuntimeError: [enforce fail at alloc_cpu.cpp:114] data. DefaultCPUAllocator: can't allocate memory: you tried to allocate 68719476736 bytes. Error code 12 (Cannot allocate memory)",
                 HR_OOM_HOST_MEMORY, CERTAIN, 68719476736.0, 0, 0, 0, 0, 0},
                {"RuntimeError: [enforce fail at C:\\cb\\pytorch\\c10\\core\\impl\\alloc_cpu.cpp:72] data. DefaultCPUAllocator: not enough memory: you tried to allocate 1179648 bytes.",
                 HR_OOM_HOST_MEMORY, CERTAIN, 1179648.0, 0, 0, 0, 0, 0},
                {"terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc",
                 HR_OOM_HOST_MEMORY, LIKELY, 0, 0, 0, 0, 0, 0},
                {"numpy.core._exceptions._ArrayMemoryError: Unable to allocate 12.3 GiB for an array with shape (40000, 41250) and data type float64",
                 HR_OOM_HOST_MEMORY, CERTAIN, GIB(12.3), 0, 0, 0, 0, 0},
                {"RuntimeError: DataLoader worker (pid 4021) is killed by signal: Killed. ", HR_OOM_HOST_MEMORY, LIKELY,
                 0, 0, 0, 0, 0, 0},
                {"torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: -9) local_rank: 0 (pid: 1234) of binary: python",
                 HR_OOM_HOST_MEMORY, LIKELY, 0, 0, 0, 0, 0, 0},
                {"Command terminated: exit code 137", HR_OOM_HOST_MEMORY, LIKELY, 0, 0, 0, 0, 0, 0},
                {"[12.3] Out of memory: Killed process 4242 (python) total-vm:91234kB, anon-rss:812kB",
                 HR_OOM_HOST_MEMORY, CERTAIN, 0, 0, 0, 0, 0, 0},
                {"ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
                 HR_OOM_HOST_MEMORY, CERTAIN, 0, 0, 0, 0, 0, 0},
                {"RuntimeError: Caught RuntimeError in pin memory thread for device 0.\n  File \"torch/utils/data/_utils/pin_memory.py\", line 50\nRuntimeError: CUDA error: out of memory",
                 HR_OOM_HOST_MEMORY, LIKELY, 0, 0, 0, 0, 0, 0},
                {"It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.",
                 HR_OOM_HOST_MEMORY, LIKELY, 0, 0, 0, 0, 0, 0},
                /* past the allocator */
                {"RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
                 HR_OOM_OUTSIDE_ALLOCATOR, LIKELY, 0, 0, 0, 0, 0, 0},
                {"RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED", HR_OOM_OUTSIDE_ALLOCATOR, LIKELY, 0, 0, 0, 0,
                 0, 0},
                {"RuntimeError: Unable to find a valid cuDNN algorithm to run convolution", HR_OOM_OUTSIDE_ALLOCATOR,
                 LIKELY, 0, 0, 0, 0, 0, 0},
                {"include/alloc.h:103 NCCL WARN Cuda failure 'out of memory'", HR_OOM_OUTSIDE_ALLOCATOR, LIKELY, 0, 0,
                 0, 0, 0, 0},
                {"include/alloc.h:48 NCCL WARN Failed to CUDA calloc 6291456 bytes", HR_OOM_OUTSIDE_ALLOCATOR, LIKELY,
                 MIB(6), 0, 0, 0, 0, 0},
                {"Error out of memory at line 380 in file /src/csrc/pythonInterface.c", HR_OOM_OUTSIDE_ALLOCATOR,
                 LIKELY, 0, 0, 0, 0, 0, 0},
                {"MemoryError: std::bad_alloc: out_of_memory: CUDA error at: /include/rmm/mr/device/cuda_memory_resource.hpp",
                 HR_OOM_NOT_PYTORCH, CERTAIN, 0, 0, 0, 0, 0, 0},
                /* what stands beside a message does not decide it */
                {"NCCL version 2.19.3+cuda12.3\nRuntimeError: CUDA out of memory. Tried to allocate 128.00 MiB (GPU 0; 7.79 GiB total capacity; 7.20 GiB already allocated; 27.69 MiB free; 50.00 MiB cached)",
                 HR_OOM_TOO_BIG, LIKELY, MIB(128), GIB(7.79), MIB(27.69), GIB(7.2), MIB(50), 0},
                {"terminate called after throwing 'std::bad_alloc'\nusing device cuda:0", HR_OOM_HOST_MEMORY, LIKELY, 0,
                 0, 0, 0, 0, 0},
                /* refusals, on-chip, others */
                {"ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.",
                 HR_OOM_CAP, LIKELY, 0, 0, 0, 0, 0, 0},
                {"ValueError: Free memory on device (3.10/79.15 GiB) on startup is less than desired GPU memory utilization (0.9, 71.24 GiB).",
                 HR_OOM_OTHER_PROCESS, LIKELY, GIB(71.24), GIB(79.15), 0, 0, 0, 0},
                {"triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 147456, Hardware limit: 101376.",
                 HR_OOM_ON_CHIP, CERTAIN, 147456.0, 0, 0, 0, 0, 0},
                {"RuntimeError: CUDA error: too many resources requested for launch", HR_OOM_ON_CHIP, CERTAIN, 0, 0, 0,
                 0, 0, 0},
                {"jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes.",
                 HR_OOM_NOT_PYTORCH, CERTAIN, 8589934592.0, 0, 0, 0, 0, 0},
                {"tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[32,512,1024]",
                 HR_OOM_NOT_PYTORCH, CERTAIN, 0, 0, 0, 0, 0, 0},
                {"ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4096.00 MiB on device 0: cudaMalloc failed: out of memory",
                 HR_OOM_NOT_PYTORCH, CERTAIN, GIB(4), 0, 0, 0, 0, 0},
                {"java.lang.OutOfMemoryError: Java heap space", HR_OOM_CAP, CERTAIN, 0, 0, 0, 0, 0, 0},
                /* forms */
                {"# torch.OutOfMemoryError: **CUDA out\n# of memory**. Tried to\n#  allocate 2.00 GiB. GPU 3 has a total capacity of 79.15\n# GiB of which `1.38 GiB` is free. Including non-PyTorch memory, this process has 77.77 GiB memory in use. Of the allocated memory 66.00 GiB\n# is allocated by PyTorch, and 11.00 GiB is reserved by PyTorch but unallocated.", HR_OOM_FRAGMENTED,
                 LIKELY, GIB(2), GIB(79.15), GIB(1.38), GIB(66), GIB(11), 0},
                {" 45%|####5     | 12/27 [00:10<00:12,  1.1it/s]RuntimeError: CUDA out of memory. Tried to allocate 128.00 MiB (GPU 0; 7.79 GiB total capacity; 7.20 GiB already allocated; 27.69 MiB free; 50.00 MiB cached)",
                 UNDECIDED, MIB(128), GIB(7.79), MIB(27.69), GIB(7.2), MIB(50), 0},
                {"2024-01-31 10:11:12,123 node-3: CUDA out of memory. Tried to allocate 1073741824 bytes (GPU 0; 8589934592 bytes total capacity; 8053063680 bytes already allocated; 104857600 bytes free; 104857600 bytes cached)",
                 HR_OOM_TOO_BIG, CERTAIN, GIB(1), GIB(8), MIB(100), 8053063680.0, MIB(100), 0},
                {"  File \"torch/cuda/graphs.py\", line 80, in capture_begin\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.38 GiB is free. Including non-PyTorch memory, this process has 77.77 GiB memory in use. Of the allocated memory 66.00 GiB is allocated by PyTorch, and 11.00 GiB is reserved by PyTorch but unallocated.",
                 HR_OOM_CACHED_NOT_RETURNED, LIKELY, GIB(2), GIB(79.15), GIB(1.38), GIB(66), GIB(11), 0},
                /* variants of reports, in other numbers */
                {"RuntimeError: $ Torch: not enough memory: you tried to allocate 40GB. Buy new RAM! at /tmp/TH/THGeneral.c:218",
                 HR_OOM_HOST_MEMORY, CERTAIN, GIB(40), 0, 0, 0, 0, 0},
                {"E: RuntimeError: Could not allocate tensor with 268435456 bytes. There is not enough GPU video memory available!",
                 UNDECIDED, MIB(256), 0, 0, 0, 0, 0},
                {"RuntimeError: level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",
                 UNDECIDED, 0, 0, 0, 0, 0, 0},
                {"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate more than 1EB memory.",
                 HR_OOM_TOO_BIG, CERTAIN, GIB(1073741824.0), 0, 0, 0, 0, 0},
                {"2023-02-01 E tensorflow/stream_executor/cuda/cuda_driver.cc:802] failed to alloc 17179869184 bytes on host: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
                 HR_OOM_HOST_MEMORY, CERTAIN, GIB(16), 0, 0, 0, 0, 0},
                {"E tensorflow/stream_executor/rocm/rocm_driver.cc:600] failed to allocate 512.00M (536870912 bytes) from device: HIP_ERROR_OutOfMemory",
                 HR_OOM_NOT_PYTORCH, CERTAIN, MIB(512), 0, 0, 0, 0, 0},
                {"RuntimeError: Resource exhausted: Out of memory while trying to allocate 25165824 bytes.",
                 HR_OOM_NOT_PYTORCH, CERTAIN, MIB(24), 0, 0, 0, 0, 0},
                {"srun: error: node17: task 3: Out Of Memory", HR_OOM_HOST_MEMORY, CERTAIN, 0, 0, 0, 0, 0, 0},
                {"Loading checkpoint shards:  50%|#####     | 1/2 [00:09<00:09,  9.1s/it]Killed", HR_OOM_HOST_MEMORY,
                 LIKELY, 0, 0, 0, 0, 0, 0},
                {"epoch 3 loss 0.71\nKilled\n$ ", HR_OOM_HOST_MEMORY, LIKELY, 0, 0, 0, 0, 0, 0},
                {"job.sh: line 12: 40213 Killed                  python train.py --epochs 3", HR_OOM_HOST_MEMORY,
                 LIKELY, 0, 0, 0, 0, 0, 0},
                {"zsh: killed     python train.py", HR_OOM_HOST_MEMORY, LIKELY, 0, 0, 0, 0, 0, 0},
                {"=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID 811 RUNNING AT node3\n=   EXIT CODE: 9",
                 HR_OOM_HOST_MEMORY, LIKELY, 0, 0, 0, 0, 0, 0},
                {"RuntimeError: unable to mmap 9934721024 bytes from file <./model-00002.safetensors>: Cannot allocate memory (12)",
                 HR_OOM_HOST_MEMORY, CERTAIN, 9934721024.0, 0, 0, 0, 0, 0},
                {"OSError: [Errno 12] Cannot allocate memory", HR_OOM_HOST_MEMORY, CERTAIN, 0, 0, 0, 0, 0, 0},
                {"(EngineCore_DP0 pid=917) torch.OutOfMemoryError: HIP out of memory. Tried to allocate 1.08 GiB. GPU 0 has a total capacity of 64.00 GiB of which 700.00 MiB is free. Of the allocated memory 63.05 GiB is allocated by PyTorch, and 130.00 MiB is reserved by PyTorch but unallocated.",
                 HR_OOM_TOO_BIG, CERTAIN, GIB(1.08), GIB(64), MIB(700), GIB(63.05), MIB(130), 0},
                {"CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 23.65 GiB of which 500.00 MiB is free. Process 3392 has 12.73 GiB memory in use. Including non-PyTorch memory, this process has 10.40 GiB memory in use. Of the allocated memory 7.90 GiB is allocated by PyTorch, and 2.05 GiB is reserved by PyTorch but unallocated." HINT22,
                 HR_OOM_OTHER_PROCESS, LIKELY, GIB(1), GIB(23.65), MIB(500), GIB(7.9), GIB(2.05), GIB(12.73)},
                /* who else speaks of it */
                {"THCudaCheck FAIL file=/opt/conda/conda-bld/pytorch/THC/generic/THCStorage.c line=82 error=2 : out of memory\nSegmentation fault (core dumped)",
                 UNDECIDED, 0, 0, 0, 0, 0, 0},
                {"terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc: cudaErrorMemoryAllocation: out of memory",
                 HR_OOM_OUTSIDE_ALLOCATOR, LIKELY, 0, 0, 0, 0, 0, 0},
                {"RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
                 HR_OOM_OUTSIDE_ALLOCATOR, LIKELY, 0, 0, 0, 0, 0, 0},
                {"CUDA error (/tmp/pip-req-build-k1/csrc/flash_attn/src/fmha_fwd_launch_template.h:89): out of memory",
                 UNDECIDED, 0, 0, 0, 0, 0, 0},
                {"GPUassert: out of memory src/pointnet2_api.cpp 77", UNDECIDED, 0, 0, 0, 0, 0, 0},
                {"F0304 14:26:21.611594  4889 syncedmem.cpp:71] Check failed: error == cudaSuccess (2 vs. 0)  out of memory",
                 HR_OOM_NOT_PYTORCH, CERTAIN, 0, 0, 0, 0, 0, 0},
                {"Out of memory allocating 1,073,741,824 bytes (allocated so far: 3,221,225,472 bytes).",
                 HR_OOM_NOT_PYTORCH, CERTAIN, GIB(1), 0, 0, GIB(3), 0, 0},
                {"RuntimeError: DataLoader worker (pid 4821) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.",
                 HR_OOM_HOST_MEMORY, LIKELY, 0, 0, 0, 0, 0, 0},
                {"RuntimeError: DataLoader worker (pid 77) is killed by signal: Bus error.", HR_OOM_HOST_MEMORY, LIKELY,
                 0, 0, 0, 0, 0, 0},
                {"ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
                 HR_OOM_HOST_MEMORY, LIKELY, 0, 0, 0, 0, 0, 0},
                {"[2023-04-21 10:11:12,131] [INFO] [launch.py:428:sigkill_handler] Killing subprocess 3317\n[2023-04-21 10:11:12,400] [ERROR] [launch.py:434:sigkill_handler] ['/usr/bin/python3', '-u', 'train.py', '--local_rank=0'] exits with return code = -9",
                 HR_OOM_HOST_MEMORY, LIKELY, 0, 0, 0, 0, 0, 0},
                /* the allocator's own line: bytes, alone and before the message that rounds them */
                {"[rank0]:[W922 05:15:28] memory allocation failed with OOM on device 0 while trying to allocate 3630170112 bytes (free: 202833920, total: 25250627584).",
                 UNDECIDED, 3630170112.0, 25250627584.0, 202833920.0, 0, 0, 0},
                {"[W] memory allocation failed with OOM on device 0 while trying to allocate 1073741824 bytes (free: 1048576, total: 10737418240)\n" CUT_SAMPLE,
                 HR_OOM_TOO_BIG, LIKELY, GIB(1), GIB(10), MIB(1), GIB(8.9), MIB(10), 0},
                /* cut in front and behind */
                {"of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 10.00 GiB of which 1.00 MiB is free. Of the allocated memory 8.90 GiB is allocated by PyTorch, and 10.00 MiB is reserved by PyTorch but unallocated.",
                 HR_OOM_TOO_BIG, LIKELY, GIB(1), GIB(10), MIB(1), GIB(8.9), MIB(10), 0},
                {"to allocate 128.00 MiB (GPU 0; 7.79 GiB total capacity; 7.20 GiB already allocated; 27.69 MiB free; 7.25 GiB reserved in total by PyTorch)",
                 HR_OOM_TOO_BIG, LIKELY, MIB(128), GIB(7.79), MIB(27.69), GIB(7.2), GIB(7.25) - GIB(7.2), 0},
                {"(GPU 0; 7.79 GiB total capacity; 7.20 GiB already allocated; 27.69 MiB free; 7.25 GiB reserved in total by PyTorch)",
                 UNDECIDED, 0, GIB(7.79), MIB(27.69), GIB(7.2), GIB(7.25) - GIB(7.2), 0},
                {"RuntimeError: CUDA out of memory. Tried to allo", UNDECIDED, 0, 0, 0, 0, 0, 0},
                /* steps were done: not too big */
                {"Epoch 708 loss 0.01\n" CUT_SAMPLE, UNDECIDED, GIB(1), GIB(10), MIB(1), GIB(8.9), MIB(10), 0},
                {"Loading checkpoint shards: 100%|##########| 33/33 [00:09<00:00,  9.1s/it]\n" CUT_SAMPLE,
                 HR_OOM_TOO_BIG, LIKELY, GIB(1), GIB(10), MIB(1), GIB(8.9), MIB(10), 0},
                {"  7%|7         | 71/1000 [00:51<09:12,  1.4it/s]\n" CUT_SAMPLE, UNDECIDED, GIB(1), GIB(10), MIB(1),
                 GIB(8.9), MIB(10), 0},
                {"Epoch 1 of 3\nstep 1\n" CUT_SAMPLE, HR_OOM_TOO_BIG, LIKELY, GIB(1), GIB(10), MIB(1), GIB(8.9),
                 MIB(10), 0},
                /* a context is no other process: 88 % of a small device */
                {"CUDA out of memory. Tried to allocate 200.00 MiB (GPU 0; 10.92 GiB total capacity; 9.50 GiB already allocated; 100.00 MiB free; 9.60 GiB reserved in total by PyTorch)",
                 HR_OOM_TOO_BIG, LIKELY, MIB(200), GIB(10.92), MIB(100), GIB(9.5), GIB(9.6) - GIB(9.5), 0},
                /* a cap within the rounding of what reaches it, and one of which nothing is known */
                {"CUDA out of memory. Tried to allocate 512.00 MiB (GPU 0; 15.90 GiB total capacity; 7.30 GiB already allocated; 7.00 GiB free; 7.95 GiB allowed; 7.45 GiB reserved in total by PyTorch)", HR_OOM_CAP,
                 LIKELY, MIB(512), GIB(15.9), GIB(7), GIB(7.3), GIB(7.45) - GIB(7.3), 0},
                /* more who speak of it: extensions, servers, what processes share, other frameworks, the kernel */
                {"[rank5]: RuntimeError: [XY][ERROR] CUDA runtime error: out of memory /src/xy/utils/alloc.cu:77",
                 UNDECIDED, 0, 0, 0, 0, 0, 0},
                {"RuntimeError: /io/include/tv/tensor.h 201\ncuda failed with error 2 out of memory. use CUDA_LAUNCH_BLOCKING=1",
                 UNDECIDED, 0, 0, 0, 0, 0, 0},
                {"Search for `hipErrorOutOfMemory' in https://rocm.docs.amd.com/ for more information.", UNDECIDED, 0,
                 0, 0, 0, 0, 0},
                {"MIOpen Error: /src/hip/handlehip.cpp:70: Memory not available to allocate buffer: 123456789",
                 HR_OOM_OUTSIDE_ALLOCATOR, LIKELY, 123456789.0, 0, 0, 0, 0, 0},
                {"Failed to cudaMalloc 805306368 bytes on device 1 (error 2 out of memory)", HR_OOM_OUTSIDE_ALLOCATOR,
                 LIKELY, MIB(768), 0, 0, 0, 0, 0},
                {"node1:811:902 [1] include/alloc.h:185 NCCL WARN Failed to CUDA calloc 4194304 bytes",
                 HR_OOM_OUTSIDE_ALLOCATOR, LIKELY, MIB(4), 0, 0, 0, 0, 0},
                {"node1:811:902 [1] misc/shmutils.cc:112 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-aBcDeF (size 9637888)",
                 HR_OOM_HOST_MEMORY, LIKELY, 9637888.0, 0, 0, 0, 0, 0},
                {"RuntimeError: unable to write to file </torch_812_334455>: No space left on device (28)",
                 HR_OOM_HOST_MEMORY, CERTAIN, 0, 0, 0, 0, 0, 0},
                {"    SemLock.__init__(self, SEMAPHORE, 1, 1, ctx=ctx)\nOSError: [Errno 28] No space left on device",
                 HR_OOM_HOST_MEMORY, CERTAIN, 0, 0, 0, 0, 0, 0},
                {"Error: model requires more system memory (61.5 GiB) than is available (30.2 GiB)", HR_OOM_HOST_MEMORY,
                 CERTAIN, GIB(61.5), 0, GIB(30.2), 0, 0, 0},
                {"kernel: Killed process 4711 (python) total-vm:9907828kB, anon-rss:8500204kB, file-rss:0kB",
                 HR_OOM_HOST_MEMORY, CERTAIN, 0, 0, 0, 0, 0, 0},
                {"[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Exception during initialization: bad allocation",
                 HR_OOM_HOST_MEMORY, LIKELY, 0, 0, 0, 0, 0, 0},
                {"[enforce fail at alloc_cpu.cpp:75] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 9223372036854775808 bytes.",
                 HR_OOM_TOO_BIG, CERTAIN, 9223372036854775808.0, 0, 0, 0, 0, 0},
                {"RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", HR_OOM_CAP, LIKELY,
                 0, 0, 0, 0, 0, 0},
                {"bfc_arena.cc:368 BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer of size 1415086080",
                 HR_OOM_NOT_PYTORCH, CERTAIN, 1415086080.0, 0, 0, 0, 0, 0},
                {"dmlc::Error what(): [10:00:00] src/storage/pooled_storage_manager.h:107: cudaMalloc fail\ned: out of memory",
                 HR_OOM_NOT_PYTORCH, CERTAIN, 0, 0, 0, 0, 0, 0},
                {"ggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory", HR_OOM_NOT_PYTORCH, CERTAIN, 0, 0,
                 0, 0, 0, 0},
                {"zeMemAllocDevice returned ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY", UNDECIDED, 0, 0, 0, 0, 0, 0},
                {"E tensorflow/stream_executor/cuda/cuda_blas.cc:372] failed to create cublas handle: CUBLAS_STATUS_ALLOC_FAILED",
                 HR_OOM_NOT_PYTORCH, CERTAIN, 0, 0, 0, 0, 0, 0},
                {"W tensorflow/core/common_runtime/bfc_allocator.cc:217] Ran out of memory trying to allocate 1.20GiB.",
                 HR_OOM_NOT_PYTORCH, CERTAIN, GIB(1.2), 0, 0, 0, 0, 0},
                {"Exception in main training loop: out of memory to allocate 81920000 bytes (total 836530688 bytes)",
                 HR_OOM_NOT_PYTORCH, CERTAIN, 81920000.0, 836530688.0, 0, 0, 0, 0},
                /* a bar that is closed behind the message says how far the run had come, without its picture too */
                {CUT_SAMPLE "\n  2/100  9.8G  0.04  0.61: 61%|######1   | 44/72 [00:31<00:19,  1.4it/s]\n", UNDECIDED,
                 GIB(1), GIB(10), MIB(1), GIB(8.9), MIB(10), 0},
                {CUT_SAMPLE "\n  2/100  9.8G  0.04  0.61: 61% 44/72 [00:31<00:19,  1.4it/s]\n", UNDECIDED, GIB(1),
                 GIB(10), MIB(1), GIB(8.9), MIB(10), 0},
                {"failed to allocate 11.17G (11993874432 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
                 HR_OOM_NOT_PYTORCH, CERTAIN, 11993874432.0, 0, 0, 0, 0, 0},
                /* "free" is cut: total minus allocated decides, or not */
                {"CUDA out of memory. Tried to allocate 52.00 MiB (GPU 0; 40.00 GiB total capacity; 38.90 GiB already allocated;",
                 HR_OOM_TOO_BIG, LIKELY, MIB(52), GIB(40), 0, GIB(38.9), 0, 0},
                {"CUDA out of memory. Tried to allocate 52.00 MiB (GPU 0; 40.00 GiB total capacity; 18.90 GiB already allocated;",
                 UNDECIDED, MIB(52), GIB(40), 0, GIB(18.9), 0, 0},
                {"CUDA out of memory. Tried to allocate 52.00 MiB (GPU 0; 40.00 GiB total capacity; 38.90 GiB already alloca",
                 HR_OOM_TOO_BIG, LIKELY, MIB(52), GIB(40), 0, GIB(38.9), 0, 0},
                {"UNKNOWN: CUDNN_STATUS_ALLOC_FAILED\nin tensorflow/stream_executor/cuda/cuda_dnn.cc(40): 'cudnnConvolutionForward(",
                 HR_OOM_NOT_PYTORCH, CERTAIN, 0, 0, 0, 0, 0, 0},
                {"ParserError: Error tokenizing data. C error: out of memory", HR_OOM_HOST_MEMORY, LIKELY, 0, 0, 0, 0,
                 0, 0},
                {"MemoryError: Unable to allocate 77. GiB for an array with shape (101, 101, 1000000) and data type int64",
                 HR_OOM_HOST_MEMORY, CERTAIN, GIB(77), 0, 0, 0, 0, 0},
                {"Error: llama runner process has terminated: CUDA error: out of memory", HR_OOM_NOT_PYTORCH, CERTAIN,
                 0, 0, 0, 0, 0, 0},
                {"kernel launch failed with cudaErrorMemoryAllocation", UNDECIDED, 0, 0, 0, 0, 0, 0},
                {"RuntimeError: CUDA failed with error out of memory", UNDECIDED, 0, 0, 0, 0, 0, 0},
                {"mine.cu:31 cudaMalloc failed: out of memory", UNDECIDED, 0, 0, 0, 0, 0, 0},
                {CUT_SAMPLE "\n 90% of 12/40 shards", HR_OOM_TOO_BIG, LIKELY, GIB(1), GIB(10), MIB(1), GIB(8.9),
                 MIB(10), 0},
                {CUT_SAMPLE "\n  0%|          | 1/72 [00:01<01:19,  1.4it/s]\n", HR_OOM_TOO_BIG, LIKELY, GIB(1),
                 GIB(10), MIB(1), GIB(8.9), MIB(10), 0},
};
enum { SAMPLES = sizeof samples / sizeof *samples };

static hr_explanation *explain(const char *text) {
  hr_explanation *e = NULL;
  hr_error error = {0};
  assert_int_equal(hr_explain_text(text, strlen(text), NULL, &e, &error), HR_OK);
  return e;
}

static bool near(const hr_oom_value *v, double bytes) {
  double difference = (double)v->bytes - bytes, allowed = bytes * 1e-9 + 2;
  return difference <= allowed && -difference <= allowed;
}

static bool adds_up(const hr_oom_failure *f) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < f->share_count; i++) sum += f->shares[i].bytes;
  return f->share_count == 0 || sum == f->figures[HR_OOM_TOTAL].bytes;
}

static bool check_sample(const sample *s, bool *certain_and_wrong) {
  hr_explanation *e = explain(s->text);
  const hr_oom_failure *f = e->failure_count ? &e->failures[e->primary] : NULL;
  bool right = f && e->failure_count == 1 && f->cause == s->cause && f->certainty == s->certainty && adds_up(f) &&
               (f->cause == HR_OOM_UNKNOWN) == (f->candidates != 0) && f->verdict[0] && f->arithmetic_count &&
               f->advice_count;
  *certain_and_wrong = f && f->certainty == HR_OOM_CERTAIN && f->cause != s->cause;
  if (right)
    right = near(&f->figures[HR_OOM_REQUESTED], s->requested) && near(&f->figures[HR_OOM_TOTAL], s->total) &&
            (s->free == 0 || near(&f->figures[HR_OOM_FREE], s->free)) &&
            near(&f->figures[HR_OOM_ALLOCATED], s->allocated) &&
            near(&f->figures[HR_OOM_UNALLOCATED], s->unallocated) &&
            near(&f->figures[HR_OOM_OTHER_PROCESSES], s->others);
  if (!right) {
    print_message("WRONG: %.200s\n", s->text);
    if (f)
      print_message(
          "  %u failures; %s, %s: %s; requested %llu total %llu free %llu allocated %llu unallocated %llu others %llu\n",
          e->failure_count, hr_oom_cause_name(f->cause), hr_oom_certainty_name(f->certainty), f->verdict,
          (unsigned long long)f->figures[HR_OOM_REQUESTED].bytes, (unsigned long long)f->figures[HR_OOM_TOTAL].bytes,
          (unsigned long long)f->figures[HR_OOM_FREE].bytes, (unsigned long long)f->figures[HR_OOM_ALLOCATED].bytes,
          (unsigned long long)f->figures[HR_OOM_UNALLOCATED].bytes,
          (unsigned long long)f->figures[HR_OOM_OTHER_PROCESSES].bytes);
  }
  hr_explanation_destroy(e);
  return right;
}

static void test_samples(void **state) {
  unsigned right = 0;
  bool certain_and_wrong;
  (void)state;
  assert_true(SAMPLES >= 60);
  for (size_t i = 0; i < SAMPLES; i++) {
    right += check_sample(&samples[i], &certain_and_wrong);
    assert_false(certain_and_wrong);
  }
  print_message("%u of %d right\n", right, SAMPLES);
  assert_int_equal(right, SAMPLES);
}

static void test_no_message(void **state) {
  static const char *const texts[] = {"",
                                      "\n\n",
                                      "the job ran out of memory yesterday",
                                      "exit code 1",
                                      "exited with code 0",
                                      "RESOURCE_EXHAUSTED: quota exceeded for requests",
                                      "class MemoryErrorHandler:",
                                      "[launch.py:315:sigkill_handler] Killing subprocess 953850",
                                      "3 workers were killed by hand",
                                      "epoch 12 killed the mood",
                                      "srun: error: node17: task 3: Exited with exit code 1",
                                      "unable to mmap the file: no such file",
                                      "\"State\": {\"Status\": \"exited\", \"OOMKilled\": false, \"ExitCode\": 1}",
                                      "docker inspect -f '{{.State.OOMKilled}}' box",
                                      "memory.events: low 0 high 0 max 0 oom 0 oom_kill 0",
                                      "memory.oom_control: oom_kill_disable 0",
                                      "vm.oom_kill_allocating_task = 0",
                                      "WARNING: GPU 0 is running low on memory, 97% used",
                                      "slurmstepd: Detected 0 oom-kill events in StepId=9.0",
                                      "CUDA out of memory handler installed",
                                      "INFO: registered CUDA out of memory hooks for 8 workers",
                                      "Using gradient checkpointing to avoid CUDA out of memory.",
                                      "In case of CUDA out of memory, lower --batch-size.",
                                      "tests/test_oom.py::test_cuda_out_of_memory_is_caught PASSED",
                                      "If you run into CUDA out of memory errors, try fp16.",
                                      "the launcher exits with return code = 0",
                                      "Torch Elastic sends SIGKILL/SIGTERM signals if any process fails",
                                      "log when a trainer is terminated with SIGKILL, there is no log then",
                                      "relaunch when terminated.reason == \"OOMKilled\"",
                                      "case cudaErrorMemoryAllocation: return retry();",
                                      "How about using MemoryError as a base class?",
                                      "### CUDA Out of Memory Solutions",
                                      "Exit code 137 means that the container was killed by the kernel",
                                      "What is Docker container exit code 137?",
                                      "you will see a CUDA Out Of Memory (OOM) Error and the run ends",
                                      "shown when a CUDA Out of Memory issue occurs",
                                      "OSError: [Errno 28] No space left on device: 'checkpoint.pt'",
                                      "df: /dev/shm/ 1.0G 883M 142M 87%",
                                      "saved oom-rank0.pickle",
                                      "oom-rank3.pickle was not written: [Errno 28] No space left on device",
                                      "[launch.py:434:sigkill_handler] Killing subprocess 12"};
  (void)state;
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    hr_explanation *e = explain(texts[i]);
    if (e->failure_count) print_message("found in '%s'\n", texts[i]);
    assert_int_equal(e->failure_count, 0);
    hr_explanation_destroy(e);
  }
}

/* The wrapped, emphasised one. */
static const char *form_sample(void) {
  for (size_t i = 0; i < SAMPLES; i++)
    if (samples[i].text[0] == '#') return samples[i].text;
  return NULL;
}

/* A size that cannot be meant is to be found: nothing else would help. */
static void test_wrong_sizes(void **state) {
  static const char *const texts[] = {
      "CUDA out of memory. Tried to allocate 31813.80 GiB (GPU 0; 31.75 GiB total capacity; 2.00 GiB already allocated; 28.00 GiB free; 2.10 GiB reserved in total by PyTorch)",
      "CUDA out of memory. Tried to allocate 8589934592.00 GiB (GPU 0; 31.75 GiB total capacity; 2.00 GiB already allocated; 28.00 GiB free; 2.10 GiB reserved in total by PyTorch)"};
  (void)state;
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    hr_explanation *e = explain(texts[i]);
    assert_int_equal(e->failure_count, 1);
    assert_int_equal(e->failures[0].certainty, CERTAIN);
    assert_int_equal(e->failures[0].advice_count, 1);
    assert_non_null(strstr(e->failures[0].advice[0].text, "where the size is computed"));
    hr_explanation_destroy(e);
  }
}

/* Any way of cutting a text into pieces gives the same answer. */
static void test_pieces(void **state) {
  const char *text = form_sample();
  size_t count = strlen(text);
  (void)state;
  for (size_t piece = 1; piece < 40; piece += 3) {
    hr_explainer *e;
    hr_explanation *result;
    hr_error error;
    assert_int_equal(hr_explainer_create(NULL, &e, &error), HR_OK);
    for (size_t at = 0; at < count; at += piece)
      assert_int_equal(hr_explainer_feed(e, text + at, count - at < piece ? count - at : piece, &error), HR_OK);
    assert_int_equal(hr_explainer_end(e, &result, &error), HR_OK);
    assert_int_equal(result->failure_count, 1);
    assert_int_equal(result->failures[0].cause, HR_OOM_FRAGMENTED);
    hr_explanation_destroy(result);
    hr_explainer_destroy(e);
  }
}

static void test_ranks_and_repeats(void **state) {
  char text[4096];
  const char *two =
      "[rank0]: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of\n"
      "[rank1]: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 1 has a total capacity of\n"
      "[rank0]: 10.00 GiB of which 1.50 MiB is free. Of the allocated memory 9.50 GiB is allocated by PyTorch,\n"
      "[rank1]: 10.00 GiB of which 2.50 MiB is free. Of the allocated memory 9.25 GiB is allocated by PyTorch,\n"
      "[rank0]: and 10.00 MiB is reserved by PyTorch but unallocated.\n"
      "[rank1]: and 20.00 MiB is reserved by PyTorch but unallocated.\n";
  hr_explanation *e;
  (void)state;
  (void)snprintf(text, sizeof text, "first line\n%s%sE: CUDA out of memory.\n", two, two);
  e = explain(text);
  assert_int_equal(e->failure_count, 2);
  assert_int_equal(e->failures[0].rank, 0);
  assert_int_equal(e->failures[1].rank, 1);
  assert_int_equal(e->failures[0].line, 2);
  assert_int_equal(e->failures[1].line, 3);
  assert_int_equal(e->failures[1].device_index, 1);
  assert_true(near(&e->failures[0].figures[HR_OOM_ALLOCATED], GIB(9.5)));
  assert_true(near(&e->failures[1].figures[HR_OOM_ALLOCATED], GIB(9.25)));
  assert_true(near(&e->failures[1].figures[HR_OOM_UNALLOCATED], MIB(20)));
  assert_int_equal(e->failures[0].repeats + e->failures[1].repeats, 3);
  hr_explanation_destroy(e);
}

/* Ranks that write into each other's lines, behind bars and on hosts: no figure of one is taken for the other's. */
static void test_tangled_ranks(void **state) {
  hr_explanation *e = explain(
      "  7%|7         | 4/127 [02:56<15:52,  7.93s/it][rank1]: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 1 has\n"
      "[gpu-07:0]:  6%|6         | 3/127 [02:56<15:52,  7.93s/it][gpu-07:2]: CUDA out of memory. Tried to allocate\n"
      "[rank1]: a total capacity of 10.00 GiB of which 2.50 MiB is free.\n"
      "[gpu-07:2]: 5.00 GiB. GPU 2 has a total capacity of 20.00 GiB of which 3.50 MiB is free.\n"
      "  8%|8         | 5/127 [03:01<15:02,  7.93s/it]\n"
      "[rank1]: Of the allocated memory 9.25 GiB is allocated by PyTorch, and 20.00 MiB is reserved by PyTorch but\n"
      "[gpu-07:2]: Of the allocated memory 19.25 GiB is allocated by PyTorch, and 30.00 MiB is reserved by PyTorch but\n"
      "[rank1]: unallocated.\n[gpu-07:2]: unallocated.\n");
  (void)state;
  assert_int_equal(e->failure_count, 2);
  for (int i = 0; i < 2; i++) {
    const hr_oom_value *f = e->failures[i].figures;
    assert_int_equal(e->failures[i].rank, i + 1);
    assert_int_equal(e->failures[i].device_index, i + 1);
    assert_true(near(&f[HR_OOM_REQUESTED], GIB(i ? 5 : 3)) && near(&f[HR_OOM_TOTAL], GIB(i ? 20 : 10)));
    assert_true(near(&f[HR_OOM_FREE], MIB(i ? 3.5 : 2.5)) && near(&f[HR_OOM_ALLOCATED], GIB(i ? 19.25 : 9.25)));
    assert_true(near(&f[HR_OOM_UNALLOCATED], MIB(i ? 30 : 20)));
  }
  hr_explanation_destroy(e);
}

/* A number wrapped from its unit by somebody else's bar; workers told apart by process. */
static void test_bars_and_workers(void **state) {
  hr_explanation *e = explain(
      "CUDA out of memory. Tried to allocate 1.00\n  5%|5         | 3/60 [00:03<00:36, 1.0GiB/s]\nGiB. GPU 0 has a "
      "total capacity of 10.00 GiB of which 1.00 MiB is free. Of the allocated memory 9.50 GiB is allocated by "
      "PyTorch, and 10.00 MiB is reserved by PyTorch but unallocated.\n"
      "(Worker_TP0 pid=811) CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 30.00\n"
      "(Worker_TP1 pid=812) GiB of which 29.00 GiB is free. Of the allocated memory 4.50 GiB is allocated by\n"
      "(Worker_TP0 pid=811) GiB of which 7.00 MiB is free. Of the allocated memory 29.50 GiB is allocated by\n"
      "(Worker_TP0 pid=811) PyTorch, and 40.00 MiB is reserved by PyTorch but unallocated.\n");
  (void)state;
  assert_int_equal(e->failure_count, 2);
  assert_true(near(&e->failures[0].figures[HR_OOM_REQUESTED], GIB(1)));
  assert_true(near(&e->failures[0].figures[HR_OOM_ALLOCATED], GIB(9.5)));
  assert_true(near(&e->failures[1].figures[HR_OOM_FREE], MIB(7)));
  assert_true(near(&e->failures[1].figures[HR_OOM_ALLOCATED], GIB(29.5)));
  hr_explanation_destroy(e);
}

/* Two processes in one line: what may be of either is of neither. A request that is only quoted before the message
 * takes nothing from it. */
static void test_torn_line(void **state) {
  hr_explanation *e = explain(
      "CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 10.00 GiB of which 1.00 MiB is CUDA out "
      "of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 20.00 GiB of which 9.00 GiB is free. free. Of the "
      "allocated memory 8.90 GiB is allocated by PyTorch, and 10.00 MiB is reserved by PyTorch but unallocated.\n");
  (void)state;
  assert_int_equal(e->failure_count, 2);
  assert_int_equal(e->failures[0].figures[HR_OOM_ALLOCATED].state, HR_OOM_ABSENT);
  assert_int_equal(e->failures[1].figures[HR_OOM_ALLOCATED].state, HR_OOM_ABSENT);
  assert_int_equal(e->failures[1].figures[HR_OOM_UNALLOCATED].state, HR_OOM_ABSENT);
  assert_true(near(&e->failures[1].figures[HR_OOM_TOTAL], GIB(20)) &&
              near(&e->failures[1].figures[HR_OOM_FREE], GIB(9)));
  assert_int_equal(e->failures[1].certainty, HR_OOM_UNDECIDABLE);
  hr_explanation_destroy(e);
  e = explain("failed: CUDA out of memory. Tried to allocate 1.00 GiB: " CUT_SAMPLE);
  assert_true(near(&e->failures[e->primary].figures[HR_OOM_ALLOCATED], GIB(8.9)));
  hr_explanation_destroy(e);
}

/* Advice names what failed. */
static void test_advice_names_the_resource(void **state) {
  static const struct {
    const char *text, *says, *not;
  } cases[] = {
      {"RuntimeError: DataLoader worker (pid 77) is killed by signal: Bus error.", "/dev/shm", "--memory"},
      {"RuntimeError: unable to write to file </torch_1_2>", "--shm-size", "pin_memory"},
      {"[enforce fail at alloc_cpu.cpp:75] . DefaultCPUAllocator: can't allocate memory", "memory limit of the job",
       "shm"},
      {"slurmstepd: error: Detected 1 oom_kill event in StepId=9.batch.", "--mem", "shm"},
      {"OutOfResources: out of resource: shared memory, Required: 131072, Hardware limit: 101376", "num_stages", "shm"},
      {"RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", "--mem-fraction-static",
       "gpu-memory-utilization"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hr_explanation *e = explain(cases[i].text);
    bool says = false;
    assert_int_equal(e->failure_count, 1);
    for (uint32_t k = 0; k < e->failures[0].advice_count; k++) {
      says = says || strstr(e->failures[0].advice[k].text, cases[i].says);
      assert_null(strstr(e->failures[0].advice[k].text, cases[i].not));
    }
    if (!says) print_message("no %s: %s\n", cases[i].says, cases[i].text);
    assert_true(says);
    hr_explanation_destroy(e);
  }
}

static void test_framework(void **state) {
  char text[4096];
  hr_explanation *e;
  (void)state;
  (void)snprintf(text, sizeof text,
                 "  File \"transformers/trainer.py\", line 1, in training_step\n  loss.backward()\n%s",
                 samples[0].text);
  e = explain(text);
  assert_string_equal(e->failures[0].framework, "transformers");
  assert_string_equal(e->failures[0].phase, "backward");
  assert_non_null(strstr(e->failures[0].advice[0].text, "TrainingArguments"));
  assert_int_equal(e->failures[0].advice[0].basis, HR_OOM_ADVICE);
  hr_explanation_destroy(e);
}

/* A long log: what is found does not depend on where it stands, and memory does not grow with the length. */
static void test_long_log(void **state) {
  enum { MEGABYTES = 24 };
  char *block = malloc(1 << 20);
  hr_explainer *e;
  hr_explanation *result;
  hr_error error;
  uint64_t before = hri_mem_live_bytes();
  (void)state;
  assert_non_null(block);
  for (size_t i = 0; i < 1 << 20; i++) block[i] = i % 97 == 96 ? '\n' : (char)('a' + i % 23);
  assert_int_equal(hr_explainer_create(NULL, &e, &error), HR_OK);
  for (int i = 0; i < MEGABYTES; i++) {
    if (i == 7 || i == 19)
      assert_int_equal(hr_explainer_feed(e, samples[i].text, strlen(samples[i].text), &error), HR_OK);
    assert_int_equal(hr_explainer_feed(e, block, 1 << 20, &error), HR_OK);
    assert_true(hri_mem_live_bytes() - before < 1 << 20);
  }
  assert_int_equal(hr_explainer_end(e, &result, &error), HR_OK);
  assert_int_equal(result->failure_count, 2);
  assert_int_equal(result->failures[0].cause, samples[7].cause);
  assert_int_equal(result->failures[1].cause, samples[19].cause);
  hr_explanation_destroy(result);
  hr_explainer_destroy(e);
  free(block);
}

/* Words that look like a message and are none, more often than messages are read: the one at the end is found all the
 * same. */
static void test_many_words_before(void **state) {
  static const char line[] = "try 17 of 900: exit code 0, out of memory? no\n";
  hr_explainer *e;
  hr_explanation *result;
  hr_error error;
  (void)state;
  assert_int_equal(hr_explainer_create(NULL, &e, &error), HR_OK);
  for (int i = 0; i < 30000; i++) assert_int_equal(hr_explainer_feed(e, line, sizeof line - 1, &error), HR_OK);
  assert_int_equal(hr_explainer_feed(e, samples[0].text, strlen(samples[0].text), &error), HR_OK);
  assert_int_equal(hr_explainer_end(e, &result, &error), HR_OK);
  assert_int_equal(result->failure_count, 1);
  assert_int_equal(result->failures[0].cause, samples[0].cause);
  assert_int_equal(result->more, 0);
  hr_explanation_destroy(result);
  hr_explainer_destroy(e);
}

/* Heads without end: bounded time (the test's own limit) and a bounded result. */
static void test_hostile(void **state) {
  static const char *const words[] = {"CUDA out of memory. ",
                                      "CUDA out of memory. Tried to allocate 1.00 GiB ",
                                      "Tried to allocate ",
                                      "process 1 has ",
                                      "[rank1]:\n",
                                      "\x1b[",
                                      "exitcode ",
                                      "bad_alloc",
                                      "`x` oom ",
                                      "`x`memory error\n"};
  (void)state;
  for (size_t w = 0; w < sizeof words / sizeof *words; w++) {
    size_t length = strlen(words[w]), count = 4u << 20;
    char *text = malloc(count);
    hr_explanation *e;
    hr_error error;
    assert_non_null(text);
    for (size_t i = 0; i < count; i++) text[i] = words[w][i % length];
    assert_int_equal(hr_explain_text(text, count, NULL, &e, &error), HR_OK);
    assert_true(e->failure_count <= HR_OOM_MAX_FAILURES);
    hr_explanation_destroy(e);
    free(text);
  }
}

static void test_refused_memory(void **state) {
  uint64_t live = hri_mem_live_bytes();
  bool done = false;
  (void)state;
  for (uint64_t nth = 1; !done; nth++) {
    hr_explanation *e = NULL;
    hr_error error = {0};
    hr_status status;
    hri_mem_fail_after(nth);
    status = hr_explain_text(samples[0].text, strlen(samples[0].text), NULL, &e, &error);
    hri_mem_fail_after(0);
    done = status == HR_OK;
    assert_true(done || (status == HR_ERROR_MEMORY && error.message[0] && !e));
    hr_explanation_destroy(e);
    assert_int_equal(hri_mem_live_bytes(), live);
  }
}

/* ---- the fourteen points of what messages hide, one test each (docs/explain.md, "What the figures hide") ---- */

#define TAIL                                                                                                           \
  " Of the allocated memory 22.90 GiB is allocated by PyTorch, and 150.00 MiB is reserved by PyTorch but unallocated."
#define HEAD(tried, free)                                                                                              \
  "CUDA out of memory. Tried to allocate " tried ". GPU 0 has a total capacity of 23.65 GiB of which " free " is free."

static hr_oom_failure one(const char *text) {
  hr_explanation *e = explain(text);
  hr_oom_failure f;
  assert_int_equal(e->failure_count, 1);
  f = e->failures[0];
  hr_explanation_destroy(e);
  return f;
}

static bool reasons(const hr_oom_failure *f, const char *words) {
  for (uint32_t i = 0; i < f->arithmetic_count; i++)
    if (strstr(f->arithmetic[i], words)) return true;
  return strstr(f->verdict, words) != NULL;
}

static void test_point_01_the_request_is_a_segment(void **state) {
  hr_oom_failure small = one(HEAD("2.00 MiB", "1.00 MiB") TAIL), medium = one(HEAD("20.00 MiB", "1.00 MiB") TAIL),
                 large = one(HEAD("22.00 MiB", "1.00 MiB") TAIL);
  (void)state;
  assert_true(reasons(&small, "the tensor itself was up to 1 MiB"));
  assert_true(reasons(&medium, "the tensor itself was 1 to 10 MiB"));
  assert_false(reasons(&large, "the tensor itself"));
}

static void test_point_02_more_free_than_requested(void **state) {
  hr_oom_failure f = one(HEAD(
      "64.00 MiB",
      "8.36 GiB") " Of the allocated memory 2.60 GiB is allocated by PyTorch, and 20.00 MiB is reserved by PyTorch but unallocated.");
  (void)state;
  assert_int_equal(f.cause, HR_OOM_UNKNOWN);
  assert_true(reasons(&f, "not explained by the figures") && reasons(&f, "container, MIG or vGPU"));
}

/* Expandable segments, where the text says that they are on, take free memory by 20 MiB. */
static void test_point_02_chunks(void **state) {
#define CHUNKS(requested, free)                                                                                        \
  "CUDA out of memory. Tried to allocate " requested ". GPU 0 has a total capacity of 330.00 MiB of which " free       \
  " is free. Including non-PyTorch memory, "                                                                           \
  "this process has 302.00 MiB memory in use. Of the allocated memory 295.36 MiB is allocated by PyTorch, and 6.64 MiB is reserved by PyTorch but unallocated."
  hr_oom_failure plain = one(CHUNKS("24.00 MiB", "28.00 MiB"));
  hr_oom_failure chunks = one(CHUNKS(
      "24.00 MiB",
      "28.00 MiB") " expandable_segments is enabled. If instead the process is running out of virtual address space");
  hr_oom_failure enough = one(CHUNKS("24.00 MiB", "40.00 MiB") " expandable_segments is enabled.");
  (void)state;
  assert_int_equal(plain.cause, HR_OOM_UNKNOWN);
  assert_int_equal(chunks.cause, HR_OOM_TOO_BIG);
  assert_int_equal(chunks.certainty, HR_OOM_LIKELY);
  assert_true(reasons(&chunks, "can use 20.00 MiB"));
  assert_int_equal(enough.cause, HR_OOM_UNKNOWN);
}

/* What no figure names is a context up to a bound that does not grow with the device: a quarter of it, from 768 MiB to
 * 1.5 GiB, 2 GiB from 32 GiB on. Each device with a gap just below and just above. */
static void test_what_a_context_can_take(void **state) {
  static const struct {
    double total, context;
  } devices[] = {{2, 0.75},    {4, 1},     {5, 1.25},  {8, 1.5},  {15.78, 1.5},
                 {23.65, 1.5}, {39.59, 2}, {79.15, 2}, {139.8, 2}};
  (void)state;
  for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
    for (int above = 0; above < 2; above++) {
      const double total = devices[i].total, gap = devices[i].context + (above ? 0.03 : -0.03);
      char text[400];
      hr_oom_failure f;
      (void)
          snprintf(text, sizeof text,
                   "CUDA out of memory. Tried to allocate 512.00 MiB (GPU 0; %.2f GiB total capacity; %.2f GiB already "
                   "allocated; 100.00 MiB free; %.2f GiB reserved in total by PyTorch)",
                   total, total - gap - 0.11, total - gap - 0.1);
      f = one(text);
      if (f.cause != (above ? HR_OOM_UNKNOWN : HR_OOM_TOO_BIG))
        fail_msg("%.2f GiB that nobody names, of %.2f: %s", gap, total, f.verdict);
    }
  }
}

static void test_point_03_values_for_not_known(void **state) {
  hr_oom_failure f =
      one(HEAD("1.00 GiB",
               "1.00 MiB") " Including non-PyTorch memory, this process has 17179869184.00 GiB memory in use." TAIL);
  hr_oom_failure zero = one(HEAD(
      "1.00 GiB",
      "1.00 MiB") " Process 7 has 0 bytes memory in use. Including non-PyTorch memory, this process has 0 bytes memory in use." TAIL);
  (void)state;
  assert_int_equal(f.figures[HR_OOM_THIS_PROCESS].state, HR_OOM_NOT_KNOWN);
  assert_int_equal(zero.figures[HR_OOM_THIS_PROCESS].state, HR_OOM_NOT_KNOWN);
  assert_true(adds_up(&f) && adds_up(&zero));
}

static void test_point_04_spilled_to_the_host(void **state) {
  hr_oom_failure f = one(
      "CUDA out of memory. Tried to allocate 2.11 GiB (GPU 0; 8.00 GiB total capacity; 19.84 GiB already allocated; 0 bytes free; 22.26 GiB reserved in total by PyTorch)");
  (void)state;
  assert_int_equal(f.cause, HR_OOM_TOO_BIG);
  assert_int_equal(f.certainty, HR_OOM_CERTAIN);
  assert_true(f.excess_bytes > 0 && adds_up(&f) && reasons(&f, "spilled"));
}

static void test_point_05_a_listed_process_is_this_one(void **state) {
  hr_oom_failure f = one(HEAD("1.00 GiB", "100.00 MiB") " Process 21422 has 23.55 GiB memory in use." TAIL);
  (void)state;
  assert_int_equal(f.process_count, 0);
  assert_int_equal(f.figures[HR_OOM_THIS_PROCESS].state, HR_OOM_DERIVED);
  assert_int_equal(f.cause, HR_OOM_TOO_BIG);
  assert_true(reasons(&f, "under another id"));
}

static void test_point_06_unordered_lists_and_siblings(void **state) {
  hr_oom_failure f = one(HEAD(
      "1.00 GiB",
      "100.00 MiB") " Process 1 has 500.00 MiB memory in use. Including non-PyTorch memory, this process has 20.10 GiB memory in use. "
                    "Process 2 has 500.00 MiB memory in use. Process 3 has 500.00 MiB memory in use. Process 4 has 500.00 MiB memory in use. Process 5 has 500.00 MiB memory in use. "
                    "Process 6 has 500.00 MiB memory in use. Process 7 has 500.00 MiB memory in use. Of the allocated memory 19.60 GiB is allocated by PyTorch, and 50.00 MiB is reserved by PyTorch but unallocated.");
  (void)state;
  assert_int_equal(f.process_count, 7);
  assert_true(near(&f.figures[HR_OOM_THIS_PROCESS], GIB(20.1)));
  assert_true(reasons(&f, "sibling ranks"));
  assert_int_equal(f.cause, HR_OOM_OTHER_PROCESS);
}

static void test_point_07_caps(void **state) {
  hr_oom_failure cap = one(HEAD(
      "1.00 GiB",
      "15.00 GiB") " 8.00 GiB allowed; Of the allocated memory 7.60 GiB is allocated by PyTorch, and 20.00 MiB is reserved by PyTorch but unallocated.");
  hr_oom_failure other = one(HEAD(
      "1.00 GiB",
      "100.00 MiB") " 23.00 GiB allowed; Of the allocated memory 7.60 GiB is allocated by PyTorch, and 20.00 MiB is reserved by PyTorch but unallocated.");
  hr_oom_failure async = one(
      "Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated : 9.28 GiB\nRequested : 4.00 GiB\nDevice limit : 16.00 GiB\n"
      "Free (according to CUDA): 0 bytes\nPyTorch limit (set by user-supplied memory fraction)\n: 17179869184.00 GiB");
  hr_oom_failure mps = one(
      "MPS backend out of memory (MPS allocated: 16.00 GB, other allocations: 3.31 GB, max allowed: 18.13 GB). Tried to allocate 256 bytes on private pool.");
  (void)state;
  assert_int_equal(cap.cause, HR_OOM_CAP);
  assert_int_equal(cap.certainty, HR_OOM_CERTAIN);
  assert_int_not_equal(other.cause, HR_OOM_CAP);
  assert_true(reasons(&other, "printed but is not the cause"));
  /* The rounding of figures that are not in the sum does not matter; and where it does, "free" is not called short. */
  cap = one(
      "CUDA out of memory. Tried to allocate 24.00 MiB. GPU 0 has a total capacity of 2.00 GiB of which 1.72 GiB is free. Including non-PyTorch memory, this process has 290.00 MiB memory in use. "
      "307.20 MiB allowed; Of the allocated memory 250.36 MiB is allocated by PyTorch, and 39.64 MiB is reserved by PyTorch but unallocated.");
  assert_int_equal(cap.cause, HR_OOM_CAP);
  assert_int_equal(cap.certainty, HR_OOM_CERTAIN);
  cap = one(HEAD(
      "20.00 MiB",
      "15.00 GiB") " 8.00 GiB allowed; Of the allocated memory 7.60 GiB is allocated by PyTorch, and 0.39 GiB is reserved by PyTorch but unallocated.");
  assert_int_equal(cap.cause, HR_OOM_CAP);
  assert_int_equal(cap.certainty, HR_OOM_LIKELY);
  assert_false(reasons(&cap, "would not have had the memory either"));
  assert_true(reasons(&cap, "had 15.00 GiB free"));
  assert_int_not_equal(async.cause, HR_OOM_CAP);
  assert_true(reasons(&async, "no cap is set"));
  assert_int_equal(mps.cause, HR_OOM_CAP);
  assert_true(reasons(&mps, "storage mode"));
}

static void test_point_08_private_pools_are_inside(void **state) {
  hr_oom_failure f = one(HEAD(
      "1.00 GiB",
      "100.00 MiB") " Of the allocated memory 22.90 GiB is allocated by PyTorch, with 6.00 GiB allocated in private pools (e.g., CUDA Graphs), and 150.00 MiB is reserved by PyTorch but unallocated.");
  (void)state;
  assert_int_equal(f.cause, HR_OOM_PRIVATE_POOL);
  assert_true(adds_up(&f));
  assert_string_equal(f.shares[1].name, "private pools of this process");
  assert_true(near(&f.figures[HR_OOM_ALLOCATED], GIB(22.9)));
}

static void test_point_09_cached_and_reserved(void **state) {
  hr_oom_failure cached = one(
      "CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 8.00 GiB total capacity; 5.00 GiB already allocated; 0.50 GiB free; 0.40 GiB cached)");
  hr_oom_failure reserved = one(
      "CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 8.00 GiB total capacity; 5.00 GiB already allocated; 0.50 GiB free; 5.40 GiB reserved in total by PyTorch)");
  (void)state;
  assert_true(near(&cached.figures[HR_OOM_UNALLOCATED], GIB(0.4)) &&
              near(&reserved.figures[HR_OOM_UNALLOCATED], GIB(5.4) - GIB(5)));
  assert_true(near(&cached.figures[HR_OOM_RESERVED], GIB(5.4)));
  assert_int_equal(cached.candidates,
                   reserved.candidates); /* the old wordings cannot tell whose the missing 2 GiB are */
  assert_true(cached.candidates >> HR_OOM_OTHER_PROCESS & 1 && cached.candidates >> HR_OOM_OUTSIDE_ALLOCATOR & 1);
}

static void test_point_10_fragmentation_is_never_certain(void **state) {
  hr_oom_failure much = one(HEAD(
      "1.00 GiB",
      "100.00 MiB") " Of the allocated memory 12.00 GiB is allocated by PyTorch, and 11.00 GiB is reserved by PyTorch but unallocated.");
  hr_oom_failure normal = one(HEAD("200.00 MiB", "100.00 MiB") TAIL);
  (void)state;
  assert_int_equal(much.cause, HR_OOM_FRAGMENTED);
  assert_int_equal(much.certainty, HR_OOM_LIKELY);
  assert_true(reasons(&much, "only a snapshot shows the pieces"));
  assert_int_equal(normal.cause, HR_OOM_TOO_BIG);
  assert_true(reasons(&normal, "below 4 % is normal"));
}

static void test_point_11_absurd_requests(void **state) {
  hr_oom_failure wrapped = one(HEAD("17179869183.98 GiB", "20.00 GiB") TAIL),
                 gathered = one(HEAD("700.15 GiB", "20.00 GiB") TAIL);
  (void)state;
  assert_int_equal(wrapped.certainty, HR_OOM_CERTAIN);
  assert_true(reasons(&wrapped, "negative size"));
  assert_int_equal(gathered.certainty, HR_OOM_CERTAIN);
  assert_true(reasons(&gathered, "corrupted gathered objects"));
}

static void test_point_12_names_that_mislead(void **state) {
  static const struct {
    const char *text;
    hr_oom_cause cause;
  } names[] = {
      {"ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.", HR_OOM_HOST_MEMORY},
      {"in pin_memory\nRuntimeError: CUDA error: out of memory", HR_OOM_HOST_MEMORY},
      {"[enforce fail at alloc_cpu.cpp:75] . DefaultCPUAllocator: can't allocate memory", HR_OOM_HOST_MEMORY},
      {"[enforce fail at context_gpu.cu:343] error == cudaSuccess. 2 vs 0. : out of memory", HR_OOM_UNKNOWN},
      {"OutOfResources: out of resource: shared memory, Required: 131072, Hardware limit: 101376", HR_OOM_ON_CHIP},
      {"ValueError: No available memory for the cache blocks.", HR_OOM_CAP},
      {"RuntimeError: Unable to find a valid cuDNN algorithm to run convolution", HR_OOM_OUTSIDE_ALLOCATOR},
      {"srun: error: gpu01: tasks 0-3: Out Of Memory", HR_OOM_HOST_MEMORY},
      {"srun: error: gpu01: task 0: Exited with exit code 1\nRuntimeError: CUDA error: out of memory", HR_OOM_UNKNOWN},
      {"slurmstepd: error: Detected 1 oom_kill event in StepId=123.batch.", HR_OOM_HOST_MEMORY},
      {"box.service: Failed with result 'oom-kill'.", HR_OOM_HOST_MEMORY},
      {"memory.events: oom 3 oom_kill 3", HR_OOM_HOST_MEMORY},
      {"\"OOMKilled\": true, \"Dead\": false", HR_OOM_HOST_MEMORY},
      {"(raylet) 3 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed",
       HR_OOM_HOST_MEMORY},
  };
  (void)state;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    hr_oom_failure f = one(names[i].text);
    if (f.cause != names[i].cause) print_message("%s: %s\n", names[i].text, hr_oom_cause_name(f.cause));
    assert_int_equal(f.cause, names[i].cause);
  }
}

static void test_point_13_forms(void **state) {
  static const char *const forms[] = {
      "[rank3]: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 3 has a total capacity of 10.00\n[rank3]: GiB of which 1.00 MiB is free. Of the allocated\n[rank3]: memory 9.50 GiB is allocated by PyTorch, and 10.00 MiB is reserved by PyTorch but unallocated.",
      "# CUDA out of memory. Tried to allocate **1.00 GiB**. GPU  has a total capacity of 10.00 GiB of which\n# 1.00 MiB is free. Of the allocated memory `9.50 GiB` is allocated by PyTorch, and 10.00 MiB is reserved by PyTorch but unallocated.",
      "2024-05-01 12:00:00,000 node-7: CUDA out of memory. Tried to allocate 1073741824 bytes. GPU 0 has a total capacity of 10240.00 MiB of which 1.00 MiB is free. Of the allocated memory 9728.00 MiB is allocated by PyTorch, and 10.00 MiB is reserved by PyTorch but unallocated.",
      "  3%|3   | 3/99 [00:03<01:36]CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 10.00 GiB of which 1.00 MiB is free. Of the allocated memory 9.50 GiB is allocated by PyTorch, and 10.00 MiB is reserved by PyTorch but unallocated. See (https://docs.pytorch.org/docs/stable/notes/cuda.html) PYTORCH_ALLOC_CONF",
  };
  (void)state;
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    hr_oom_failure f = one(forms[i]);
    assert_int_equal(f.cause, HR_OOM_TOO_BIG);
    assert_int_equal(f.certainty, HR_OOM_CERTAIN);
    assert_true(near(&f.figures[HR_OOM_REQUESTED], GIB(1)) && near(&f.figures[HR_OOM_TOTAL], GIB(10)) &&
                near(&f.figures[HR_OOM_ALLOCATED], GIB(9.5)));
    assert_int_equal(f.device_index, i == 0 ? 3 : i == 1 ? -1 : 0);
  }
}

/* PowerShell writes logs in UTF-16. */
static void test_point_13_utf16(void **state) {
  (void)state;
  for (int big = 0; big < 2; big++) {
    const char *text = samples[0].text;
    size_t count = strlen(text);
    char *wide = malloc(2 * count + 2);
    hr_explanation *e;
    hr_error error;
    assert_non_null(wide);
    memcpy(wide, big ? "\xfe\xff" : "\xff\xfe", 2);
    for (size_t i = 0; i < count; i++) {
      wide[2 + 2 * i + (size_t)big] = text[i];
      wide[3 + 2 * i - (size_t)big] = 0;
    }
    assert_int_equal(hr_explain_text(wide, 2 * count + 2, NULL, &e, &error), HR_OK);
    assert_int_equal(e->failure_count, 1);
    assert_int_equal(e->failures[0].cause, samples[0].cause);
    assert_true(near(&e->failures[0].figures[HR_OOM_TOTAL], samples[0].total));
    hr_explanation_destroy(e);
    free(wide);
  }
}

static void test_point_14_undecidable_says_what_to_record(void **state) {
  hr_oom_failure f = one("RuntimeError: CUDA error: out of memory");
  (void)state;
  assert_int_equal(f.certainty, HR_OOM_UNDECIDABLE);
  assert_int_equal(f.advice_count, 3);
  assert_non_null(strstr(f.advice[0].text, "snapshot"));
  assert_non_null(strstr(f.advice[1].text, "process list"));
  assert_non_null(strstr(f.advice[2].text, "step number"));
}

/* ---- words of frameworks ---- */

static void test_words(void **state) {
  static const char *const frameworks[] = {"",           "transformers",  "deepspeed", "fsdp",
                                           "axolotl",    "llama-factory", "torchtune", "lightning",
                                           "accelerate", "none such"};
  char text[HR_OOM_LINE_BYTES], short_text[8];
  (void)state;
  for (size_t i = 0; i < sizeof frameworks / sizeof *frameworks; i++)
    for (int t = 0; t < HR_TECHNIQUE_COUNT; t++) {
      int length = hr_technique_words((hr_technique)t, 123456, frameworks[i], text, sizeof text);
      assert_true(length > 0 && (size_t)length < sizeof text && strlen(text) == (size_t)length && !strchr(text, '%'));
      assert_int_equal(hr_technique_words((hr_technique)t, 123456, frameworks[i], short_text, sizeof short_text),
                       length);
      assert_int_equal(strncmp(short_text, text, 7), 0);
    }
  (void)hr_technique_words(HR_TECHNIQUE_MICRO_BATCH, 4, "transformers", text, sizeof text);
  assert_string_equal(text, "TrainingArguments(per_device_train_batch_size=4)");
  (void)hr_technique_words(HR_TECHNIQUE_ACCUMULATE, 8, "deepspeed", text, sizeof text);
  assert_string_equal(text, "\"gradient_accumulation_steps\": 8");
  (void)hr_technique_words(HR_TECHNIQUE_SEQUENCE, 512, "fsdp", text,
                           sizeof text); /* no setting of its own: PyTorch's words */
  assert_string_equal(text, "sequences of 512 tokens");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_samples),
      cmocka_unit_test(test_no_message),
      cmocka_unit_test(test_wrong_sizes),
      cmocka_unit_test(test_pieces),
      cmocka_unit_test(test_ranks_and_repeats),
      cmocka_unit_test(test_tangled_ranks),
      cmocka_unit_test(test_bars_and_workers),
      cmocka_unit_test(test_torn_line),
      cmocka_unit_test(test_advice_names_the_resource),
      cmocka_unit_test(test_framework),
      cmocka_unit_test(test_long_log),
      cmocka_unit_test(test_many_words_before),
      cmocka_unit_test(test_hostile),
      cmocka_unit_test(test_refused_memory),
      cmocka_unit_test(test_point_01_the_request_is_a_segment),
      cmocka_unit_test(test_point_02_more_free_than_requested),
      cmocka_unit_test(test_point_02_chunks),
      cmocka_unit_test(test_what_a_context_can_take),
      cmocka_unit_test(test_point_03_values_for_not_known),
      cmocka_unit_test(test_point_04_spilled_to_the_host),
      cmocka_unit_test(test_point_05_a_listed_process_is_this_one),
      cmocka_unit_test(test_point_06_unordered_lists_and_siblings),
      cmocka_unit_test(test_point_07_caps),
      cmocka_unit_test(test_point_08_private_pools_are_inside),
      cmocka_unit_test(test_point_09_cached_and_reserved),
      cmocka_unit_test(test_point_10_fragmentation_is_never_certain),
      cmocka_unit_test(test_point_11_absurd_requests),
      cmocka_unit_test(test_point_12_names_that_mislead),
      cmocka_unit_test(test_point_13_forms),
      cmocka_unit_test(test_point_13_utf16),
      cmocka_unit_test(test_point_14_undecidable_says_what_to_record),
      cmocka_unit_test(test_words),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
