/* Double references of the embedding; meaning and shapes as in ops/cpu.h. */
#ifndef HRI_OPS_EMBED_REF_H
#define HRI_OPS_EMBED_REF_H

#include <stdint.h>

/* factor multiplies the rows of tokens; positions may be NULL. */
void hri_ref_embed(double *y, const double *tokens, double factor, const double *positions, const int32_t *ids,
                   const int32_t *position, int64_t rows, int64_t columns);
/* dtable is added to factor times dy. */
void hri_ref_embed_backward(double *dtable, const double *dy, double factor, const int32_t *index, int64_t skip_index,
                            int64_t rows, int64_t columns);

#endif
