/* What the operating system says of this process and its memory, now. 0 where it does not say. */
#ifndef HRI_DEVICE_HOST_H
#define HRI_DEVICE_HOST_H

#include <stdint.h>

uint64_t hri_host_resident_bytes(void); /* VmRSS */
uint64_t hri_host_peak_bytes(void);     /* VmHWM */
/* What this process can still have: available memory, held to the limits of its memory group and address space. */
uint64_t hri_host_usable_bytes(void);

#endif
