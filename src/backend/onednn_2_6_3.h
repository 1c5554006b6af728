/* What oneDNN 2.6.3 answers when it is asked for a matrix product, without the library: for plans that are made where
 * it is not. */
#ifndef HRI_BACKEND_ONEDNN_2_6_3_H
#define HRI_BACKEND_ONEDNN_2_6_3_H

#include "ops/linear/product.h"

#define HRI_ONEDNN_RECORDED "oneDNN 2.6.3" /* what hri_gemm_library_text calls it */

/* As hri_onednn_query would fill it on a processor of this level (without AMX, which takes other blocks). */
void hri_onednn_recorded(hri_isa level, const hri_gemm_shape *shape, hri_onednn_answer *answer);

#endif
