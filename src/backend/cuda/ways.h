/* Ways of products: how a library computes each product of a run, chosen once for each and then always the same.
 *
 * What a library would choose is its own affair, and another one of the same version may choose otherwise; so the table
 * of ways goes with a run's checkpoints (docs/run-directory.md), and a run that goes on computes as it began. A way is a
 * library's own words, which count for its version, a capability and a number of multiprocessors: whoever hands a table
 * over knows that these are the same. */
#ifndef HRI_BACKEND_CUDA_WAYS_H
#define HRI_BACKEND_CUDA_WAYS_H

#include "base/json.h"
#include "gpu/product.h"

typedef struct hri_cuda_way {
  hri_gpu_product product;
  uint64_t workspace_bytes; /* what it may have at most */
  hri_gpu_algorithm algorithm;
  bool apart;  /* the library has no such product: its epilogue is a kernel's of ours, behind the product alone */
  bool stored; /* of a run that goes on, and not asked for yet: the library is to say that it still has it */
} hri_cuda_way;
typedef struct hri_cuda_ways {
  HRI_ARRAY(hri_cuda_way) list;
} hri_cuda_ways;

/* The way of a product within a workspace: as it was found before, as it was stored, or as the library chooses now.
 * UNSUPPORTED: the library has none (and the product is none that it may lack, hri_cuda_may_lack). USAGE: it has not any
 * more what was stored, or the workspace is too small for it; the message says which product, and why. */
hr_status hri_cuda_way_find(hri_cuda_ways *ways, hri_gpu_products *products, const hri_gpu_product *product,
                            uint64_t workspace_bytes, hri_cuda_way *way, hr_error *error);
/* All that were asked for and, of those that were stored, the rest: an array, in the order in which they came. */
void hri_cuda_ways_put(const hri_cuda_ways *ways, hri_json_writer *writer);
/* Such an array, before anything is asked for. INPUT, naming file and field. */
hr_status hri_cuda_ways_take(hri_cuda_ways *ways, const hri_json *array, hr_error *error);
void hri_cuda_ways_deinit(hri_cuda_ways *ways);

#endif
