/* The table of attention kernels of one instruction level. */
#include "ops/attention/kernels.h"

void HRI_ISA_NAME(hri_attention_kernels)(hri_attention_kernels_table *table) {
  *table = (hri_attention_kernels_table){
      .level = TILE_LEVEL,
      .forward = hri_attention_forward,
      .backward = hri_attention_backward,
      .materialized = hri_attention_materialized,
      .materialized_backward = hri_attention_materialized_backward,
      .cached = hri_attention_cached,
  };
}
