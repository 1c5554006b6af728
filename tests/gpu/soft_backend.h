/* The CUDA backend on the GPU in software: its kernels are those that are linked, its products the reference. One
 * software GPU serves all backends that are open at a time, and goes with the last of them. */
#ifndef HRI_TEST_SOFT_BACKEND_H
#define HRI_TEST_SOFT_BACKEND_H

#include <stdio.h>
#include <string.h>

#include "backend/cuda/cuda.h"
#include "gpu/soft/product.h"
#include "gpu/soft/runtime.h"

/* What tests set, and what they read. */
static struct {
  uint64_t seed;         /* of every order that is free */
  uint64_t memory_bytes; /* of the device; 0: 1 GiB */
  uint64_t grows;        /* with so many launches of graphs the device is short of 4096 more bytes; 0: never */
  uint64_t fails;        /* the so-manieth record of an event that fails, counted from 1; 0: none */
  bool plain;            /* its library of products has no epilogues of the backward */
  uint32_t open;         /* backends */
  hri_gpu *gpu;
  hri_gpu_calls calls;
  const hri_gpu_calls *own;
  uint64_t findings;            /* of all devices so far */
  uint64_t pinned;              /* bytes of the host that this device was asked for */
  uint64_t graphs;              /* launches */
  uint64_t records, made, gone; /* of events; graphs */
  hri_gpu_product_calls products;
  const hri_gpu_product_calls *own_products;
} soft_device;

static void soft_device_close(hri_gpu *gpu) {
  if (!gpu || --soft_device.open) return;
  soft_device.findings += hri_gpu_soft_report(gpu)->count;
  gpu->calls = soft_device.own;
  gpu->calls->close(gpu);
  soft_device.gpu = NULL;
}

static hr_status soft_device_pin(hri_gpu *gpu, uint64_t bytes, void **memory, hr_error *error) {
  hr_status status = soft_device.own->allocate_host(gpu, bytes, memory, error);
  if (status == HR_OK) soft_device.pinned += bytes;
  return status;
}

/* A driver that takes memory while work runs. */
static hr_status soft_device_launch(hri_gpu *gpu, hri_gpu_graph *graph, hri_gpu_stream *stream, hr_error *error) {
  void *taken;
  if (++soft_device.graphs == soft_device.grows)
    if (soft_device.own->allocate(gpu, 4096, &taken, error) != HR_OK) return HR_ERROR_MEMORY;
  return soft_device.own->graph_launch(gpu, graph, stream, error);
}

static hr_status soft_device_record(hri_gpu *gpu, hri_gpu_event *event, hri_gpu_stream *stream, hr_error *error) {
  if (++soft_device.records == soft_device.fails) return hri_fail(error, HR_ERROR_INTERNAL, "a record that fails");
  return soft_device.own->record(gpu, event, stream, error);
}

static hr_status soft_device_capture_end(hri_gpu *gpu, hri_gpu_stream *stream, hri_gpu_graph **graph, hr_error *error) {
  hr_status status = soft_device.own->capture_end(gpu, stream, graph, error);
  soft_device.made += status == HR_OK;
  return status;
}

static void soft_device_graph_destroy(hri_gpu *gpu, hri_gpu_graph *graph) {
  soft_device.gone += graph != NULL;
  soft_device.own->graph_destroy(gpu, graph);
}

static hr_status soft_choose_plain(hri_gpu_products *products, const hri_gpu_product *product, uint64_t workspace_bytes,
                                   hri_gpu_algorithm *algorithm, hr_error *error) {
  if (product->epilogue > HRI_GPU_BIAS) return hri_fail(error, HR_ERROR_UNSUPPORTED, "a plain library has none");
  return soft_device.own_products->choose(products, product, workspace_bytes, algorithm, error);
}

static void soft_products_plain(hri_gpu_products *products) {
  soft_device.own_products = products->calls;
  soft_device.products = *products->calls;
  soft_device.products.choose = soft_choose_plain;
  products->calls = &soft_device.products;
}

static hr_status soft_device_open(hri_gpu **gpu, hr_error *error) {
  hri_gpu_soft_options options = {.seed = soft_device.seed, .memory_bytes = soft_device.memory_bytes};
  if (soft_device.open++ == 0) {
    hr_status status = hri_gpu_soft_open(&options, &soft_device.gpu, error);
    if (status != HR_OK) {
      soft_device.open = 0;
      return status;
    }
    soft_device.own = soft_device.gpu->calls;
    soft_device.calls = *soft_device.own;
    soft_device.calls.close = soft_device_close;
    soft_device.calls.allocate_host = soft_device_pin;
    soft_device.calls.graph_launch = soft_device_launch;
    soft_device.calls.record = soft_device_record;
    soft_device.calls.capture_end = soft_device_capture_end;
    soft_device.calls.graph_destroy = soft_device_graph_destroy;
    soft_device.pinned = soft_device.graphs = soft_device.records = soft_device.made = soft_device.gone = 0;
    soft_device.gpu->calls = &soft_device.calls;
  }
  *gpu = soft_device.gpu;
  return HR_OK;
}

static hr_status soft_backend_open(const hr_device *device, hri_backend **backend, hr_error *error) {
#define SOFT_KERNEL(name) .name = hri_cuda_##name,
  static const hri_cuda_kernels kernels = {HRI_CUDA_KERNELS(SOFT_KERNEL)};
#undef SOFT_KERNEL
  hri_cuda_parts parts = {.kernels = &kernels};
  hr_status status = soft_device_open(&parts.gpu, error);
  if (status != HR_OK) return status;
  status = hri_gpu_soft_products(&parts.products, error);
  if (status == HR_OK && soft_device.plain) soft_products_plain(parts.products);
  if (status == HR_OK) status = hri_cuda_open_on(device, &parts, backend, error);
  if (status == HR_OK) return HR_OK;
  if (parts.products) parts.products->calls->close(parts.products);
  soft_device_close(parts.gpu);
  return status;
}

#endif
