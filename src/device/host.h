/* What the operating system says of this machine and of this process: memory that can be had, cores that may be used,
 * memory in use. Reads /proc and /sys; allocates nothing, so that it may be asked during a run. */
#ifndef HRI_DEVICE_HOST_H
#define HRI_DEVICE_HOST_H

#include <stdbool.h>
#include <stdint.h>

#define HRI_HOST_UNLIMITED UINT64_MAX

/* Who says how much memory there is. */
typedef enum hri_host_limit {
  HRI_LIMIT_MACHINE = 0,
  HRI_LIMIT_GROUP,
  HRI_LIMIT_ADDRESS_SPACE,
  HRI_LIMIT_DATA,
  HRI_LIMIT_COUNT
} hri_host_limit;

/* "the data limit (ulimit -d, RLIMIT_DATA)" and what to do about it. Never NULL. */
const char *hri_host_limit_name(hri_host_limit limit);
const char *hri_host_limit_remedy(hri_host_limit limit);

/* Memory that a new mapping could use, by each limit; HRI_HOST_UNLIMITED where there is none or it cannot be read. */
typedef struct hri_host_memory {
  uint64_t total_bytes;         /* of the machine; 0 when unknown */
  uint64_t available_bytes;     /* MemAvailable: free, or given up at once by the kernel */
  uint64_t group_bytes;         /* least room left in this process's memory control group and those above it */
  uint64_t address_space_bytes; /* what RLIMIT_AS leaves */
  uint64_t data_bytes;          /* what RLIMIT_DATA leaves for private writable mappings and the heap */
  uint64_t usable_bytes;        /* the least of these */
  hri_host_limit limit;         /* whose that is */
} hri_host_memory;

typedef struct hri_host_cores {
  uint32_t cpus;     /* hardware threads in the affinity mask, >= 1 */
  uint32_t physical; /* cores that these belong to, >= 1 */
  uint32_t quota;    /* whole CPUs that control groups grant, >= 1; UINT32_MAX: no quota */
  double quota_cpus; /* the same, not rounded; 0: no quota */
  uint32_t usable;   /* min(physical, quota): the default team */
} hri_host_cores;

hri_host_memory hri_host_memory_now(void);
hri_host_cores hri_host_cores_now(void);

/* Resident memory of this process now, and its peak (since the start, or the last reset). 0 when unknown. */
uint64_t hri_host_resident_bytes(void);
uint64_t hri_host_peak_resident_bytes(void);
/* Address space in use, as RLIMIT_AS counts it. 0 when unknown. */
uint64_t hri_host_address_space_bytes(void);
/* Private writable memory in use, as RLIMIT_DATA counts it: heap, thread stacks, arenas. 0 when unknown. */
uint64_t hri_host_data_bytes(void);
/* Starts the peak anew at what is resident now. False where the kernel does not offer it. */
bool hri_host_reset_peak(void);

/* "AMD EPYC 9654 96-Core Processor" into `out`; "unknown processor" when it cannot be read. */
void hri_host_cpu_model(char *out, uint32_t out_bytes);

/* What other work took from this process since it began: times that a thread had to leave its processor although it had
 * work, seconds that its threads waited for one, summed (NAN where the kernel does not tell), and seconds of all
 * processors that the host of this machine gave to others. Allocates nothing. */
typedef struct hri_host_load {
  uint64_t preemptions;
  double waited_seconds, stolen_seconds;
} hri_host_load;
hri_host_load hri_host_load_now(void);
/* What was taken since then; `taken` adds up. */
void hri_host_load_add(hri_host_load *taken, const hri_host_load *before, const hri_host_load *after);
/* Whether so much is more than a measurement bears, of so many threads that were at work for so many seconds: then what it
 * says holds for the others' work too. What the host took is spread over all processors. */
bool hri_host_load_disturbs(const hri_host_load *taken, double threads, double seconds);

/* For tests: read below `root` instead of "/"; NULL goes back. The directory name is kept by reference. */
void hri_host_set_root(const char *root);

#endif
