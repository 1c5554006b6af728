/* A CUDA driver that shows three cards and does nothing else: of two generations that are supported, and behind them
 * one that is not. What would take memory of a card fails. */
#include <stddef.h>
#include <string.h>

#define NOT_HERE(name)                                                                                                 \
  int name(void) { return 801; }

int cuInit(unsigned flags) { return flags ? 1 : 0; }
int cuGetErrorName(int code, const char **text) {
  *text = code == 801 ? "CUDA_ERROR_NOT_SUPPORTED" : "CUDA_ERROR_UNKNOWN";
  return 0;
}
int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuDeviceGetCount(int *count) { return *count = 3, 0; }
int cuDeviceGet(int *device, int index) { return *device = 40 + index, 0; }
int cuDeviceGetName(char *name, int bytes, int device) {
  static const char *const names[] = {"NVIDIA GeForce RTX 4090", "NVIDIA Something New", "NVIDIA GeForce RTX 2080"};
  strncpy(name, names[device - 40], (size_t)bytes);
  return 0;
}
int cuDeviceGetUuid_v2(unsigned char uuid[16], int device) { return memset(uuid, device, 16), 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { return *bytes = (size_t)(device - 39) * 12 << 30, 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  static const int major[] = {8, 12, 7};
  *value = attribute == 75   ? major[device - 40]
           : attribute == 76 ? 9 - 9 * (device == 41)
           : attribute == 16 ? 128
           : attribute == 13 ? 2520000  /* kHz */
           : attribute == 36 ? 10501000 /* kHz, of the memory */
           : attribute == 37 ? 384      /* bits of its bus */
                             : 101376;
  return 0;
}
NOT_HERE(cuDevicePrimaryCtxRetain)
NOT_HERE(cuDevicePrimaryCtxRelease_v2)
NOT_HERE(cuCtxSetCurrent)
NOT_HERE(cuCtxSetLimit)
NOT_HERE(cuCtxGetLimit)
NOT_HERE(cuMemGetInfo_v2)
NOT_HERE(cuMemAlloc_v2)
NOT_HERE(cuMemFree_v2)
NOT_HERE(cuMemHostAlloc)
NOT_HERE(cuMemFreeHost)
NOT_HERE(cuStreamCreate)
NOT_HERE(cuStreamDestroy_v2)
NOT_HERE(cuStreamSynchronize)
NOT_HERE(cuEventCreate)
NOT_HERE(cuEventDestroy_v2)
NOT_HERE(cuEventRecord)
NOT_HERE(cuEventSynchronize)
NOT_HERE(cuEventElapsedTime_v2)
NOT_HERE(cuStreamWaitEvent)
NOT_HERE(cuMemcpyAsync)
NOT_HERE(cuMemsetD8Async)
NOT_HERE(cuStreamBeginCapture_v2)
NOT_HERE(cuStreamEndCapture)
NOT_HERE(cuGraphInstantiateWithFlags)
NOT_HERE(cuGraphUpload)
NOT_HERE(cuGraphLaunch)
NOT_HERE(cuGraphExecDestroy)
NOT_HERE(cuGraphDestroy)
