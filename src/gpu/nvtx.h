/* Ranges in NVIDIA's profilers (NVTX): what the host queues between a push and its pop has the name there. Without a profiler
 * nothing happens. One thread at a time, as all of gpu/. */
#ifndef HRI_GPU_NVTX_H
#define HRI_GPU_NVTX_H

void hri_nvtx_push(const char *name); /* read by the call */
void hri_nvtx_pop(void);

#endif
