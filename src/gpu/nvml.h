/* What NVIDIA's management library (NVML) says of a card's memory: what is free without a context of ours, and who holds
 * the rest. It comes with the driver and is loaded for each question; a machine without it is not told, and nothing
 * depends on it. */
#ifndef HRI_GPU_NVML_H
#define HRI_GPU_NVML_H

#include <stdbool.h>
#include <stdint.h>

enum { HRI_NVML_HOLDERS = 8, HRI_NVML_VERSION_BYTES = 80, HRI_NVML_UUID_BYTES = 48 };

typedef struct hri_nvml_holder {
  uint32_t pid;   /* as the driver counts: of the host's, also in a container */
  uint64_t bytes; /* 0: not told */
  char name[32];  /* of its program; "": cannot be seen from here */
} hri_nvml_holder;

typedef struct hri_nvml_memory {
  uint64_t total_bytes, free_bytes;
  hri_nvml_holder holders[HRI_NVML_HOLDERS]; /* processes that compute on it, the largest first, this one left out */
  uint32_t holder_count;
  uint64_t own_bytes; /* of this process; 0: none, or not told */
} hri_nvml_memory;

typedef struct hri_nvml hri_nvml;
/* NULL: there is no library, no such card, or no memory. */
hri_nvml *hri_nvml_open(const unsigned char uuid[16]);
void hri_nvml_close(hri_nvml *nvml); /* NULL is fine */
/* False: no answer, or NULL was asked; *memory is then all 0. */
bool hri_nvml_ask(hri_nvml *nvml, hri_nvml_memory *memory);
/* The version of the driver, "580.65.06". False: not told, and *out is "". */
bool hri_nvml_driver(hri_nvml *nvml, char out[HRI_NVML_VERSION_BYTES]);
/* "GPU-12345678-...", as NVML and nvidia-smi write it. */
void hri_nvml_uuid_text(const unsigned char uuid[16], char out[HRI_NVML_UUID_BYTES]);
/* Opened, asked and closed. */
bool hri_nvml_look(const unsigned char uuid[16], hri_nvml_memory *memory);

/* "python (pid 4711) 20.10 GiB, pid 12 3.00 GiB": the holders, "" when there are none. Returns `out`. */
char *hri_nvml_holders_text(const hri_nvml_memory *memory, char *out, uint32_t out_bytes);

#endif
