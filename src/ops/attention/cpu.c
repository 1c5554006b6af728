/* The table of attention kernels of one instruction level. */
#include "ops/attention/kernels.h"

void HRI_ISA_NAME(hri_attention_kernels)(hri_attention_kernels_table *table) {
  *table = (hri_attention_kernels_table){
      .forward_scratch = hri_attention_forward_scratch,
      .forward = hri_attention_forward,
      .backward_scratch = hri_attention_backward_scratch,
      .backward = hri_attention_backward,
      .materialized_scratch = hri_attention_materialized_scratch,
      .materialized = hri_attention_materialized,
      .materialized_backward_scratch = hri_attention_materialized_backward_scratch,
      .materialized_backward = hri_attention_materialized_backward,
      .cached_scratch = hri_attention_cached_scratch,
      .cached = hri_attention_cached,
  };
}
