/* The device and the process beside the tensors: multiprocessors, which decide how many partial sums a kernel makes, the workspaces that
 * cuBLAS keeps, and CUDA's context. Whoever makes a product says so (hri_aten_workspace). */
#ifndef HRI_PYTORCH_DEVICE_H
#define HRI_PYTORCH_DEVICE_H

#include <headroom/device.h>

#include "frameworks/pytorch/eager.h"

struct hri_aten_device {
  uint32_t capability;       /* 80, 86, 90, ... */
  uint32_t processors;       /* multiprocessors: of the card, or of the best known one of its capability */
  uint32_t threads;          /* that live on one at once */
  uint64_t cublas_workspace; /* of each handle; 0: not from the caching allocator */
  /* Of the handles of forward's thread and autograd's, once there; they live to the end of the process. */
  hri_ten *workspaces[2];
};

hri_aten_device hri_aten_device_of(uint32_t capability);
/* The same of a card whose multiprocessors may be known. */
hri_aten_device hri_aten_device_like(const hr_device *device);
/* Threads that live on all multiprocessors at once; of an A100 where there is no device. */
uint64_t hri_aten_threads(const hri_torch *t);
/* A sum of `inputs` elements for each of `outputs`, neighbours in memory, into a new tensor. */
hri_ten *hri_ten_sum(hri_torch *torch, hri_ten_type type, hri_ten_shape shape, uint64_t inputs);
/* A product is made: the first of a thread takes its handle's workspace. hri_torch.device NULL: there are none. */
void hri_aten_workspace(hri_torch *t);
/* CUDA's context of a process with PyTorch, estimated by the number of multiprocessors: none of the allocator's bytes. */
uint64_t hri_torch_context_bytes(const hr_device *device);

#endif
