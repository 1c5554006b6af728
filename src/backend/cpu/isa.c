#include "backend/cpu/isa.h"

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#if defined(HRI_HAVE_AMX)
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "backend/cpu/gemm_ours.h"
#include "device/cpu.h"

hri_pairs hri_cpu_pairs(void) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_is("intel") ? HRI_PAIRS_HALF : HRI_PAIRS_FULL;
#else
  return HRI_PAIRS_HALF;
#endif
}

/* ---- AMX ---- */

#if defined(HRI_HAVE_AMX)

/* Linux gives a process the registers of tiles when it asks (arch_prctl(2), ARCH_REQ_XCOMP_PERM); threads started later
 * have them too. */
static bool ask_for_tiles(void) {
  enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
  return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

/* A product of whole numbers, which are exact in every order of sums, with edges on all three sides. */
static bool multiplies_right(void) {
  enum { M = 40, N = 70, K = 150, SCRATCH = 64 * 1024 };
  static hri_bf16 x[M * K], w[N * K];
  static float y[M * N];
  static _Alignas(HRI_GEMM_ALIGNMENT) float scratch[SCRATCH];
  hri_gemm_ours tiles = hri_gemm_ours_at(HRI_ISA_AMX, HRI_GEMM_TILES);
  hri_gemm_shape s =
      {.kind = HRI_GEMM_FORWARD, .type = HRI_REAL_BF16, .out = HRI_REAL_F32, .m = M, .n = N, .k = K, .threads = 1};
  if (hri_gemm_scratch(HRI_ISA_AMX, HRI_GEMM_TILES, &s) > sizeof scratch) return false;
  for (int i = 0; i < M * K; i++) x[i] = hri_bf16_round((float)(i * 7 % 19 - 9));
  for (int i = 0; i < N * K; i++) w[i] = hri_bf16_round((float)(i * 5 % 17 - 8));
  hri_gemm_ours_run(&tiles, &s, NULL, x, w, NULL, y, scratch);
  for (int r = 0; r < M; r++)
    for (int c = 0; c < N; c++) {
      int sum = 0;
      for (int i = 0; i < K; i++) sum += ((r * K + i) * 7 % 19 - 9) * ((c * K + i) * 5 % 17 - 8);
      if (y[r * N + c] != (float)sum) return false;
    }
  return true;
}

static bool amx_works;
static void try_amx(void) { amx_works = hri_host_has_tiles() && ask_for_tiles() && multiplies_right(); }

/* The level is offered only where a product came out right: this code was written without such a processor. */
static bool has_amx(void) {
  static pthread_once_t tried = PTHREAD_ONCE_INIT;
  (void)pthread_once(&tried, try_amx);
  return amx_works;
}

#elif defined(__x86_64__)
static bool has_amx(void) { return false; }
#endif

/* ---- levels ---- */

hri_isa hri_cpu_isa_of(const hri_processor *p) {
  if (hri_processor_has_avx512(p)) return p->avx512bf16 ? HRI_ISA_AVX512_BF16 : HRI_ISA_AVX512;
  return hri_processor_has_avx2(p) ? HRI_ISA_AVX2 : HRI_ISA_BASE;
}

static hri_isa processor_isa(void) {
#if defined(__x86_64__)
  const hri_processor processor = hri_processor_now();
  hri_isa isa = hri_cpu_isa_of(&processor);
  return isa == HRI_ISA_AVX512_BF16 && has_amx() ? HRI_ISA_AMX : isa;
#elif defined(__aarch64__)
#if defined(__linux__)
  const unsigned long bf16 = 1ul << 14; /* HWCAP2_BF16, which older headers lack */
  if (getauxval(AT_HWCAP2) & bf16) return HRI_ISA_NEON_BF16;
#endif
  return HRI_ISA_NEON;
#else
  return HRI_ISA_BASE;
#endif
}

hri_isa hri_cpu_isa_detect(hri_isa cap) {
  hri_isa isa = processor_isa();
  return hri_isa_has(isa, cap) ? cap : isa;
}

hr_status hri_cpu_isa_choose(const char *cap, hri_isa *isa, hr_error *error) {
  hri_isa wanted = processor_isa();
  bool named = cap && *cap;
  if (named && !hri_isa_parse(cap, &wanted)) {
    (void)hri_fail(error, HR_ERROR_USAGE, "instruction set '%s' is unknown", cap);
    return hri_hint(error, HR_ERROR_USAGE,
                    "HEADROOM_ISA takes base; avx2, avx512, avx512bf16 or amx; on Arm neon or neonbf16");
  }
  if (named && !hri_isa_has(processor_isa(), wanted)) {
    (void)hri_fail(error, HR_ERROR_USAGE, "this processor has no %s", hri_isa_name(wanted));
    return hri_hint(error, HR_ERROR_USAGE, "leave HEADROOM_ISA unset, or set it to at most %s",
                    hri_isa_name(processor_isa()));
  }
  *isa = hri_cpu_isa_detect(wanted);
  return HR_OK;
}
