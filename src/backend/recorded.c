/* A CPU to plan for where its kernels and libraries are not: a described machine, or any machine from a browser.
 *
 * Everything but the library's share is computed as the CPU backend computes it (ops/demand.h), so a plan made here
 * differs from one made there only where the library is another version than the recorded one. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/onednn_2_6_3.h"
#include "ops/demand.h"

/* A search per shape: it is not made twice. */
typedef struct known {
  hri_gemm_shape shape;
  hri_gemm_decision how;
} known;

typedef struct recorded {
  hri_backend contract; /* first: the one is the other */
  hri_demand demand;
  bool portable; /* no library */
  HRI_ARRAY(known) products;
} recorded;

static hr_status ask(void *self, const hri_gemm_shape *shape, hri_onednn_answer *answer, hr_error *error) {
  (void)error;
  hri_onednn_recorded(((const recorded *)self)->demand.level, shape, answer);
  return HR_OK;
}

static hr_status decide(recorded *r, const hri_gemm_shape *shape, hri_gemm_decision *how, hr_error *error) {
  hri_gemm_library library = {.self = r, .ask = ask};
  known one = {.shape = *shape};
  for (size_t i = r->products.count; i-- > 0;)
    if (hri_gemm_shape_same(&r->products.items[i].shape, shape)) {
      *how = r->products.items[i].how;
      return HR_OK;
    }
  HRI_TRY(hri_gemm_shape_check(shape, error));
  HRI_TRY(hri_gemm_decide(r->demand.level, r->portable ? NULL : &library, shape, &one.how, error));
  if (!hri_array_push(&r->products, one)) return hri_fail_memory(error, sizeof one, "matrix products");
  *how = one.how;
  return HR_OK;
}

static hr_status product_workspace(void *self, const hri_gemm_shape *shape, uint64_t *bytes, hr_error *error) {
  hri_gemm_decision how;
  HRI_TRY(decide(self, shape, &how, error));
  assert(!shape->packed || how.packing.bytes); /* the pass packs what has a packed form */
  *bytes = how.scratch_bytes;
  return HR_OK;
}

static hr_status product_packed_bytes(void *self, const hri_gemm_shape *shape, uint64_t *bytes, hr_error *error) {
  hri_gemm_shape packed = *shape;
  hri_gemm_decision how;
  packed.packed = true;
  HRI_TRY(decide(self, &packed, &how, error));
  *bytes = how.packing.bytes;
  return HR_OK;
}

static hr_status workspace(void *self, const hri_job *job, const hri_node *node, uint64_t *bytes, hr_error *error) {
  return hri_demand_scratch(&((recorded *)self)->demand, job, node, bytes, error);
}

static hr_status packing(void *self, const hri_job *job, const hri_node *node, uint64_t *bytes, bool *pays,
                         hr_error *error) {
  return hri_demand_packing(&((recorded *)self)->demand, job, node, bytes, pays, error);
}

static uint64_t fixed_bytes(void *self, const hri_job *job, uint32_t shapes, uint64_t process_bytes) {
  return hri_demand_fixed_bytes(&((const recorded *)self)->contract.device, job, shapes, process_bytes);
}

static void shut(hri_backend *backend) {
  recorded *r = (recorded *)backend;
  hri_array_free(&r->products);
  hri_free(r);
}

static hr_status choose_level(const hr_device *device, hri_isa *level, hr_error *error) {
  const char *text = device->rates.instruction_set;
  *level = device->flops_bf16 > 0 ? HRI_ISA_AVX512_BF16 : HRI_ISA_AVX512;
  if (!text[0] || hri_isa_parse(text, level)) return HR_OK;
  (void)hri_fail(error, HR_ERROR_USAGE, "device %s: instruction set '%.16s' is unknown", device->name, text);
  return hri_hint(error, HR_ERROR_USAGE, "base, avx2, avx512 or avx512bf16");
}

hr_status hri_recorded_cpu_open(const hr_device *device, uint32_t threads, hri_backend **out, hr_error *error) {
  recorded *r;
  hri_isa level;
  HRI_TRY(choose_level(device, &level, error));
  r = hri_alloc_zero(1, sizeof *r);
  if (!r) return hri_fail_memory(error, sizeof *r, "the backend");
  r->contract = (hri_backend){.name = "cpu",
                              .team = threads ? threads : 1,
                              .estimated = true,
                              .device = *device,
                              .granule = 4096,
                              .staging_tier = HRI_DEVICE,
                              .self = r,
                              .workspace = workspace,
                              .packing = packing,
                              .fixed_bytes = fixed_bytes,
                              .close = shut};
  r->demand = (hri_demand){.level = level,
                           .team = r->contract.team,
                           .products = r,
                           .workspace = product_workspace,
                           .packed_bytes = product_packed_bytes};
  (void)snprintf(r->contract.instruction_set, sizeof r->contract.instruction_set, "%s", hri_isa_name(level));
  (void)snprintf(r->contract.libraries, sizeof r->contract.libraries, "%.63s",
                 device->rates.libraries[0] ? device->rates.libraries : HRI_ONEDNN_RECORDED);
  r->portable = strcmp(r->contract.libraries, "portable") == 0;
  assert(!hri_backend_runs(&r->contract));
  *out = &r->contract;
  return HR_OK;
}
