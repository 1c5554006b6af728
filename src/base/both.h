/* HRI_BOTH stands before small functions that kernels of a GPU use too: nvcc compiles them for both sides. */
#ifndef HRI_BASE_BOTH_H
#define HRI_BASE_BOTH_H

#ifdef __CUDACC__
#define HRI_BOTH __host__ __device__
#else
#define HRI_BOTH
#endif

#endif
