#include "backend/cpu/isa.h"

#include "backend/cpu/gemm_providers.h"

/* The features are those that the build compiles each level with. */
static hri_isa processor_isa(void) {
#if defined(__x86_64__)
  bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx512 && __builtin_cpu_supports("avx512bf16")) return HRI_ISA_AVX512_BF16;
  return avx512 ? HRI_ISA_AVX512 : avx2 ? HRI_ISA_AVX2 : HRI_ISA_BASE;
#else
  return HRI_ISA_BASE;
#endif
}

hri_isa hri_cpu_isa_detect(hri_isa cap) {
  hri_isa isa = processor_isa();
  if (isa > cap) isa = cap;
#if defined(HRI_HAVE_ONEDNN)
  hri_onednn_cap_isa(isa);
#endif
  return isa;
}

hr_status hri_cpu_isa_choose(const char *cap, hri_isa *isa, hr_error *error) {
  hri_isa wanted = HRI_ISA_AVX512_BF16;
  bool named = cap && *cap;
  if (named && !hri_isa_parse(cap, &wanted)) {
    (void)hri_fail(error, HR_ERROR_USAGE, "instruction set '%s' is unknown", cap);
    return hri_hint(error, HR_ERROR_USAGE, "HEADROOM_ISA takes base, avx2, avx512 or avx512bf16");
  }
  if (named && wanted > processor_isa()) {
    (void)hri_fail(error, HR_ERROR_USAGE, "this processor has no %s", hri_isa_name(wanted));
    return hri_hint(error, HR_ERROR_USAGE, "leave HEADROOM_ISA unset, or set it to at most %s",
                    hri_isa_name(processor_isa()));
  }
  *isa = hri_cpu_isa_detect(wanted);
  return HR_OK;
}
