/* What is assumed of a GPU as long as nobody measured it, for rows of the table and for cards that are none's. */
#ifndef HRI_DEVICE_GPU_H
#define HRI_DEVICE_GPU_H

/* Of CUDA's context: it depends on driver and version, and is never tabulated as truth. 256 to 612 MiB were seen with
 * lazily loaded kernels. */
#define HRI_GPU_CONTEXT_BYTES (500ull << 20)
#define HRI_GPU_LAUNCH_SECONDS 4e-6
/* Share of the published bandwidth that is reachable (llm-analysis), and of the rate of products (torch's roofline). */
#define HRI_GPU_MEMORY_EFFICIENCY 0.9
#define HRI_GPU_GEMM_EFFICIENCY 0.75
/* cuBLAS workspace as torch configures it: ":4096:2:16:8" before Hopper, 32 MiB from Hopper on (CublasHandlePool.cpp). */
#define HRI_GPU_WORKSPACE_CLASSIC (8320ull << 10)
#define HRI_GPU_WORKSPACE_HOPPER (32ull << 20)

#endif
