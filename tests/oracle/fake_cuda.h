/* Control of the fake CUDA runtime (fake_cuda.c) by the program that records from it. */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Device memory in bytes; before the first allocation. */
void fake_set_capacity(uint64_t bytes);
/* The card of that compute capability instead of an 8.0 one, before anything asks; -1 for one that is not in the table. */
int fake_set_card(int major, int minor);
/* Whether all streams are in graph capture. */
void fake_set_capturing(int capturing);
/* The oldest `count` events on `stream` that are not over are over now; UINT64_MAX: all. Without this call events stay
 * open until somebody waits for them. */
void fake_complete_events(uint64_t stream, uint64_t count);
/* Events are over as soon as they are recorded. */
void fake_set_eager_events(int eager);
/* What the allocator asked of the driver since the last call: words with a leading blank, see tests/oracle/README.md.
 * Valid until the next call of any function here or of CUDA's. */
const char *fake_take_log(void);
uint64_t fake_used_bytes(void);
/* How often somebody read from the device, where all values are 0: what a program decides from them may be another thing. */
uint64_t fake_host_reads(void);
/* From here on small copies to the device are remembered and read back from the same address, which 1 begins and 0 ends; either forgets. */
void fake_set_remember(int remember);

#ifdef __cplusplus
}
#endif

#endif
