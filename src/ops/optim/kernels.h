/* The optimizer kernels of one instruction level that stand in files of their own, as cpu.c lists them in its table. */
#ifndef HRI_OPS_OPTIM_KERNELS_H
#define HRI_OPS_OPTIM_KERNELS_H

#include "ops/cpu.h"

#define hri_optim_adamw8bit HRI_ISA_NAME(hri_optim_adamw8bit)
#define hri_optim_lion8bit HRI_ISA_NAME(hri_optim_lion8bit)
#define hri_optim_adafactor HRI_ISA_NAME(hri_optim_adafactor)

/* States as codes and scales of blocks (ops/optim/dynamic.h): a slice begins with a block. */
void hri_optim_adamw8bit(const hri_update_args *args, const hri_update_numbers *numbers);
void hri_optim_lion8bit(const hri_update_args *args, const hri_update_numbers *numbers);

/* Factors of the second moment; of a whole part. */
void hri_optim_adafactor(const hri_update_args *args, const hri_update_numbers *numbers);

#endif
