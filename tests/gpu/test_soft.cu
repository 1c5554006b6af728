/* The GPU in software: it does what a card does, and finds what is wrong with a kernel.
 *
 * Each kernel below is right or has one fault; the test says which finding it must give, for several seeds. */
#include "gpu/soft.h"

#include <chrono>

#include "gpu/device.cuh"

namespace {

enum { SEEDS = 8 };

/* ---- kernels that are right ---- */

__global__ void k_index(int *out, int count) {
  hri_global<int> o(out, count);
  int64_t i = hri_thread_index();
  if (i < count) o[i] = (int)i * 3 + (int)blockIdx.x;
}

__global__ void k_sum(const float *in, float *out, int count) {
  HRI_SHARED(float, partial, HRI_WARP);
  hri_global<const float> x(in, count);
  hri_global<float> y(out, 1);
  float sum = 0;
  for (int i = (int)threadIdx.x; i < count; i += (int)blockDim.x) sum += x[i];
  sum = hri_block_sum(sum, partial);
  if (threadIdx.x == 0) y[0] = sum;
}

__global__ void k_shuffles(int *out) {
  hri_global<int> o(out, 7 * 32);
  int lane = (int)threadIdx.x;
  o[lane] = __shfl_sync(HRI_ALL_LANES, lane * 10, 5);
  o[32 + lane] = __shfl_up_sync(HRI_ALL_LANES, lane, 3);
  o[64 + lane] = __shfl_down_sync(HRI_ALL_LANES, lane, 3, 16);
  o[96 + lane] = __shfl_xor_sync(HRI_ALL_LANES, lane, 9);
  o[128 + lane] = (int)__ballot_sync(HRI_ALL_LANES, lane % 3 == 0);
  o[160 + lane] = __any_sync(HRI_ALL_LANES, lane == 31) + 2 * __all_sync(HRI_ALL_LANES, lane < 31);
  if (lane < 16) o[192 + lane] = __shfl_xor_sync(0x0000FFFFu, lane, 1);
  else o[192 + lane] = __shfl_xor_sync(0xFFFF0000u, lane, 2);
}

__global__ void k_warp_order(int *out) { /* a warp may order its memory without the block */
  HRI_SHARED(int, s, 64);
  hri_global<int> o(out, 64);
  int t = (int)threadIdx.x, first = t / 32 * 32;
  s[t] = t;
  __syncwarp();
  int other = s[first + (t + 1) % 32];
  __syncwarp();
  s[t] = other * 2;
  __syncwarp();
  o[t] = s[first + (t + 31) % 32];
}

__global__ void k_copies(const float *in, float *out, int stages) {
  HRI_SHARED(float, ring, 2 * 128);
  hri_global<const float> x(in, 128 * (int64_t)stages);
  hri_global<float> y(out, 32);
  int t = (int)threadIdx.x;
  float sum = 0;
  ring.copy_async<16>(t * 4, x, t * 4, 16);
  hri_copy_commit();
  for (int i = 0; i < stages; i++) {
    int next = (i + 1) % 2 * 128;
    if (i + 1 < stages) ring.copy_async<16>(next + t * 4, x, (i + 1) * 128 + t * 4, t == 31 ? 8 : 16);
    hri_copy_commit();
    hri_copy_wait<1>();
    __syncthreads();
    for (int k = 0; k < 4; k++) sum += ring[i % 2 * 128 + (t * 4 + k + 17) % 128];
    __syncthreads();
  }
  y[t] = sum;
}

template <int kind> __global__ void k_product(const uint16_t *a, const uint16_t *b, float *out) {
  HRI_SHARED(uint16_t, sa, 16 * 16);
  HRI_SHARED(uint16_t, sb, 16 * 8); /* k by n: transposed when it is loaded */
  hri_global<const uint16_t> ga(a, 256), gb(b, 128);
  hri_global<float> o(out, 128);
  int lane = (int)threadIdx.x;
  for (int i = lane; i < 256; i += 32) sa[i] = (uint16_t)ga[i];
  for (int i = lane; i < 128; i += 32) sb[i] = (uint16_t)gb[i];
  __syncthreads();
  uint32_t fa[4], fb[2];
  float d[4] = {0, 0, 0, 0};
  sa.load_matrix<4, false>(fa, lane % 16 * 16 + lane / 16 * 8);
  sb.load_matrix<2, true>(fb, lane % 16 * 8);
  if (kind == 0) hri_mma_bf16(d, fa, fb);
  else hri_mma_f16(d, fa, fb);
  for (int e = 0; e < 4; e++) o[(lane / 4 + e / 2 * 8) * 8 + lane % 4 * 2 + e % 2] = d[e];
}

__global__ void k_product_tf32(const float *a, const float *b, float *out) {
  HRI_SHARED(float, sa, 16 * 8);
  HRI_SHARED(float, sb, 8 * 8); /* n by k */
  hri_global<const float> ga(a, 128), gb(b, 64);
  hri_global<float> o(out, 128);
  int lane = (int)threadIdx.x;
  for (int i = lane; i < 128; i += 32) sa[i] = (float)ga[i];
  for (int i = lane; i < 64; i += 32) sb[i] = (float)gb[i];
  __syncthreads();
  uint32_t fa[4], fb[2], half[1];
  float d[4] = {0, 0, 0, 0};
  sa.load_matrix<4, false>(fa, lane % 16 * 8 + lane / 16 * 4);
  sb.load_matrix<2, false>(fb, lane % 8 * 8 + lane / 8 % 2 * 4);
  sb.load_matrix<1, false>(half, lane % 8 * 8);
  if (half[0] != fb[0]) d[0] = 1e30f;
  hri_mma_tf32(d, fa, fb);
  for (int e = 0; e < 4; e++) o[(lane / 4 + e / 2 * 8) * 8 + lane % 4 * 2 + e % 2] = d[e];
}

__global__ void k_many_products(float *out, int count) {
  hri_global<float> o(out, 4 * blockDim.x);
  uint32_t a[4] = {0x3F803F80u, 0x3F803F80u, 0x3F803F80u, 0x3F803F80u}, b[2] = {0x3F803F80u, 0x3F803F80u};
  float d[4] = {0, 0, 0, 0};
  for (int i = 0; i < count; i++) hri_mma_bf16(d, a, b);
  for (int e = 0; e < 4; e++) o[threadIdx.x * 4 + e] = d[e];
}

__global__ void k_atomic(int *out) {
  hri_global<int> o(out, 2);
  o.atomic_add(0, 1);
  o.atomic_max(1, (int)(blockIdx.x * blockDim.x + threadIdx.x));
}

/* ---- kernels with one fault ---- */

__global__ void f_no_barrier(float *out) {
  HRI_SHARED(float, s, 64);
  hri_global<float> o(out, 64);
  s[(int)threadIdx.x] = 0;
  __syncthreads();
  s[(int)threadIdx.x] = (float)threadIdx.x;
  float v = s[63 - (int)threadIdx.x];
  o[threadIdx.x] = v;
}

__global__ void
f_overwrite(float *out) { /* the second barrier is missing: a late reader finds the next round's value */
  HRI_SHARED(float, s, 64);
  hri_global<float> o(out, 64);
  float v = 0;
  for (int i = 0; i < 2; i++) {
    s[(int)threadIdx.x] = (float)i;
    __syncthreads();
    v += s[63 - (int)threadIdx.x];
  }
  o[threadIdx.x] = v;
}

__global__ void f_shuffle_is_no_barrier(int *out) {
  HRI_SHARED(int, s, 32);
  hri_global<int> o(out, 32);
  s[(int)threadIdx.x] = 0;
  __syncwarp();
  s[(int)threadIdx.x] = 1;
  int sum = __shfl_xor_sync(HRI_ALL_LANES, 1, 1);
  o[threadIdx.x] = sum + s[31 - (int)threadIdx.x];
}

__global__ void f_mask_omits(int *out) {
  hri_global<int> o(out, 32);
  o[threadIdx.x] = __shfl_xor_sync(0xFFFFu, (int)threadIdx.x, 1);
}

__global__ void f_mask_absent(int *out) {
  hri_global<int> o(out, 32);
  if (threadIdx.x < 24) o[threadIdx.x] = __shfl_xor_sync(HRI_ALL_LANES, (int)threadIdx.x, 1);
}

__global__ void f_source_outside(int *out) {
  hri_global<int> o(out, 32);
  if (threadIdx.x < 16) o[threadIdx.x] = __shfl_down_sync(0xFFFFu, (int)threadIdx.x, 4);
}

__global__ void f_part_of_block(int *out) {
  hri_global<int> o(out, 64);
  if (threadIdx.x < 40) __syncthreads();
  o[threadIdx.x] = 1;
}

__global__ void f_two_barriers(int *out) {
  hri_global<int> o(out, 64);
  if (threadIdx.x < 32) __syncthreads();
  else __syncthreads();
  o[threadIdx.x] = 1;
}

__global__ void f_copy_unwaited(const float *in, float *out) {
  HRI_SHARED(float, s, 128);
  hri_global<const float> x(in, 128);
  hri_global<float> o(out, 32);
  s.copy_async<16>((int)threadIdx.x * 4, x, threadIdx.x * 4, 16);
  hri_copy_commit();
  hri_copy_wait<1>();
  __syncthreads();
  o[threadIdx.x] = s[(int)threadIdx.x];
}

__global__ void f_copy_unshared(const float *in, float *out) { /* waited for, but not behind a barrier */
  HRI_SHARED(float, s, 128);
  hri_global<const float> x(in, 128);
  hri_global<float> o(out, 32);
  s.copy_async<16>((int)threadIdx.x * 4, x, threadIdx.x * 4, 16);
  hri_copy_commit();
  hri_copy_wait<0>();
  o[threadIdx.x] = s[(int)threadIdx.x];
}

__global__ void f_shared_bounds(float *out) {
  HRI_SHARED(float, s, 32);
  hri_global<float> o(out, 32);
  s[(int)threadIdx.x + 1] = 1;
  o[threadIdx.x] = 1;
}

__global__ void f_shared_unwritten(float *out) {
  HRI_SHARED(float, s, 64);
  hri_global<float> o(out, 32);
  s[(int)threadIdx.x] = 1;
  __syncthreads();
  o[threadIdx.x] = s[(int)threadIdx.x + 1];
}

__global__ void f_bounds(const float *in, float *out, int count) {
  hri_global<const float> x(in, count);
  hri_global<float> o(out, count);
  if ((int)threadIdx.x <= count) o[threadIdx.x] = x[threadIdx.x];
}

__global__ void f_allocation(float *out, int more) { /* the count is wrong, and the memory ends */
  hri_global<float> o(out, more);
  o[more - 1] = 1;
}

__global__ void f_misaligned(const float *in, float *out) {
  hri_global<const float> x(in, 64);
  hri_global<float> o(out, 64);
  o.store<4>(threadIdx.x * 4, x.load<4>(threadIdx.x * 4 + 1));
}

__global__ void f_blocks(int *out) {
  hri_global<int> o(out, 1);
  o[0] = (int)blockIdx.x;
}

/* ---- the tests ---- */

void right_kernels(void **) {
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    soft_test t = soft_open(seed);
    int index[300], shuffles[7 * 32], order[64], atomics[2] = {0, -1};
    float in[300], sum;
    for (int i = 0; i < 300; i++) in[i] = (float)(i % 17);
    int *d = (int *)soft_memory(&t, sizeof index);
    assert_int_equal(HRI_LAUNCH(k_index, 5, 64, 0, t.stream, d, 300), 0);
    soft_download(&t, index, d, sizeof index);
    for (int i = 0; i < 300; i++) assert_int_equal(index[i], i * 3 + i / 64);

    float *x = (float *)soft_upload(&t, in, sizeof in), *y = (float *)soft_memory(&t, 4);
    assert_int_equal(HRI_LAUNCH(k_sum, 1, 96, 0, t.stream, x, y, 300), 0);
    soft_download(&t, &sum, y, 4);
    double expected = 0;
    for (int i = 0; i < 300; i++) expected += in[i];
    assert_true(sum == (float)expected);

    int *s = (int *)soft_memory(&t, sizeof shuffles);
    assert_int_equal(HRI_LAUNCH(k_shuffles, 1, 32, 0, t.stream, s), 0);
    soft_download(&t, shuffles, s, sizeof shuffles);
    for (int i = 0; i < 32; i++) {
      assert_int_equal(shuffles[i], 50);
      assert_int_equal(shuffles[32 + i], i < 3 ? i : i - 3);
      assert_int_equal(shuffles[64 + i], i % 16 + 3 < 16 ? i + 3 : i);
      assert_int_equal(shuffles[96 + i], i ^ 9);
      assert_int_equal((uint32_t)shuffles[128 + i], 0x49249249u);
      assert_int_equal(shuffles[160 + i], 1);
      assert_int_equal(shuffles[192 + i], i < 16 ? i ^ 1 : i ^ 2);
    }
    int *w = (int *)soft_memory(&t, sizeof order);
    assert_int_equal(HRI_LAUNCH(k_warp_order, 1, 64, 0, t.stream, w), 0);
    soft_download(&t, order, w, sizeof order);
    for (int i = 0; i < 64; i++) assert_int_equal(order[i], i * 2);

    int *a = (int *)soft_upload(&t, atomics, sizeof atomics);
    assert_int_equal(HRI_LAUNCH(k_atomic, 3, 64, 0, t.stream, a), 0);
    soft_download(&t, atomics, a, sizeof atomics);
    assert_int_equal(atomics[0], 192);
    assert_int_equal(atomics[1], 191);
    soft_clean(&t);
    soft_close(&t);
  }
}

void copies(void **) {
  enum { STAGES = 5 };
  float in[128 * STAGES], out[32];
  for (int i = 0; i < 128 * STAGES; i++) in[i] = (float)i;
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    soft_test t = soft_open(seed);
    float *x = (float *)soft_upload(&t, in, sizeof in), *y = (float *)soft_memory(&t, sizeof out);
    assert_int_equal(HRI_LAUNCH(k_copies, 1, 32, 0, t.stream, x, y, (int)STAGES), 0);
    soft_download(&t, out, y, sizeof out);
    for (int i = 0; i < 32; i++) {
      float sum = 0;
      for (int stage = 0; stage < STAGES; stage++)
        for (int k = 0; k < 4; k++) {
          int at = (i * 4 + k + 17) % 128;
          sum += stage > 0 && at >= 126 ? 0 : in[stage * 128 + at]; /* lane 31 copies 8 bytes, the rest is zero */
        }
      assert_true(out[i] == sum);
    }
    soft_clean(&t);
    soft_close(&t);
  }
}

/* Every element of a and b is another number, so a fragment in the wrong place shows. */
void products(void **) {
  for (int kind = 0; kind < 2; kind++) {
    soft_test t = soft_open((uint64_t)kind);
    uint16_t a[256], b[128];
    float out[128];
    for (int i = 0; i < 256; i++)
      a[i] = kind ? hri_f16_round((float)(i * 37 % 101 - 50)) : hri_bf16_round((float)(i * 37 % 101 - 50));
    for (int i = 0; i < 128; i++)
      b[i] = kind ? hri_f16_round((float)(i * 53 % 97 - 40)) : hri_bf16_round((float)(i * 53 % 97 - 40));
    uint16_t *da = (uint16_t *)soft_upload(&t, a, sizeof a), *db = (uint16_t *)soft_upload(&t, b, sizeof b);
    float *d = (float *)soft_memory(&t, sizeof out);
    if (kind == 0) assert_int_equal(HRI_LAUNCH(k_product<0>, 1, 32, 0, t.stream, da, db, d), 0);
    else assert_int_equal(HRI_LAUNCH(k_product<1>, 1, 32, 0, t.stream, da, db, d), 0);
    soft_download(&t, out, d, sizeof out);
    for (int m = 0; m < 16; m++)
      for (int n = 0; n < 8; n++) {
        float sum = 0;
        for (int k = 0; k < 16; k++)
          sum += kind ? hri_f16_widen(a[m * 16 + k]) * hri_f16_widen(b[k * 8 + n])
                      : hri_bf16_widen(a[m * 16 + k]) * hri_bf16_widen(b[k * 8 + n]);
        assert_true(out[m * 8 + n] == sum);
      }
    soft_clean(&t);
    soft_close(&t);
  }
}

void products_tf32(void **) {
  soft_test t = soft_open(3);
  float a[128], b[64], out[128];
  for (int i = 0; i < 128; i++) a[i] = (float)(i * 37 % 101 - 50);
  for (int i = 0; i < 64; i++) b[i] = (float)(i * 53 % 97 - 40) * (1 + 0x1p-20f); /* which tf32 does not see */
  float *da = (float *)soft_upload(&t, a, sizeof a), *db = (float *)soft_upload(&t, b, sizeof b);
  float *d = (float *)soft_memory(&t, sizeof out);
  assert_int_equal(HRI_LAUNCH(k_product_tf32, 1, 32, 0, t.stream, da, db, d), 0);
  soft_download(&t, out, d, sizeof out);
  for (int m = 0; m < 16; m++)
    for (int n = 0; n < 8; n++) {
      float sum = 0;
      for (int k = 0; k < 8; k++) sum += a[m * 8 + k] * (float)((n * 8 + k) * 53 % 97 - 40);
      assert_true(out[m * 8 + n] == sum);
    }
  soft_clean(&t);
  soft_close(&t);
}

void conversions(void **) {
  float nan = NAN,
        values[] = {0.0f, -0.0f, 1.0f, 1.00390625f, 1.01171875f, 65519.0f, 65520.0f, 3.4e38f, INFINITY, 6e-8f, 1e-40f};
  assert_int_equal(hri_bf16_bits(nan), 0x7FFF);
  assert_int_equal(hri_bf16_bits(-nan), 0x7FFF);
  assert_int_equal(hri_f16_bits(nan), 0x7FFF);
  for (float v : values) {
    assert_int_equal(hri_bf16_bits(v), hri_bf16_round(v));
    assert_int_equal(hri_f16_bits(v), hri_f16_round(v));
  }
  assert_int_equal(hri_bf16_bits(1.00390625f), 0x3F80); /* a tie, to even */
  assert_int_equal(hri_bf16_bits(1.01171875f), 0x3F82);
  assert_int_equal(hri_f16_bits(65519.0f), 0x7BFF);
  assert_int_equal(hri_f16_bits(65520.0f), 0x7C00);
  assert_int_equal(hri_tf32_bits(1.00048828125f), 0x3F802000); /* a tie, away from zero */
}

/* Launches a kernel with a fault, on 1 or more blocks, and counts what is found. */
template <class... P, class... A>
void expect_fault(const char *name, hri_soft_fault fault, unsigned blocks, unsigned threads, void (*kernel)(P...),
                  A... arguments) {
  float zeros[128] = {0};
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    soft_test t = soft_open(seed);
    void *in = soft_upload(&t, zeros, sizeof zeros), *out = soft_upload(&t, zeros, sizeof zeros);
    if constexpr (sizeof...(P) - sizeof...(A) == 2)
      assert_int_equal(hri_launch(name, kernel, blocks, threads, 0, t.stream, (float *)in, (float *)out, arguments...),
                       0);
    else
      assert_int_equal(hri_launch(name, kernel, blocks, threads, 0, t.stream,
                                  (typename std::tuple_element<0, std::tuple<P...>>::type)out, arguments...),
                       0);
    if (soft_found(&t, fault) == 0) fail_msg("%s, seed %d: no finding", name, (int)seed);
    if (!strstr(hri_gpu_soft_report(t.gpu)->first, name)) fail_msg("%s", hri_gpu_soft_report(t.gpu)->first);
    assert_true(t.gpu->calls->stream_finish(t.gpu, t.stream, NULL) != HR_OK);
    soft_close(&t);
  }
}
/* kernel, and its arguments behind in and out */
#define FAULT(kind, blocks, threads, ...) expect_fault(#__VA_ARGS__, HRI_SOFT_##kind, blocks, threads, __VA_ARGS__)

void faults(void **) {
  FAULT(SHARED_RACE, 1, 64, f_no_barrier);
  FAULT(SHARED_RACE, 1, 64, f_overwrite);
  FAULT(SHARED_RACE, 1, 32, f_shuffle_is_no_barrier);
  FAULT(MASK, 1, 32, f_mask_omits);
  FAULT(MASK, 1, 32, f_mask_absent);
  FAULT(MASK, 1, 24, f_mask_absent);
  FAULT(MASK, 1, 32, f_source_outside);
  FAULT(BARRIER, 1, 64, f_part_of_block);
  FAULT(BARRIER, 1, 64, f_two_barriers);
  FAULT(COPY, 1, 32, f_copy_unwaited);
  FAULT(SHARED_RACE, 1, 32, f_copy_unshared);
  FAULT(SHARED_BOUNDS, 1, 32, f_shared_bounds);
  FAULT(SHARED_UNWRITTEN, 1, 32, f_shared_unwritten);
  FAULT(BOUNDS, 1, 64, f_bounds, 31);
  FAULT(BOUNDS, 1, 1, f_allocation, 129);
  FAULT(MISALIGNED, 1, 8, f_misaligned);
  FAULT(BLOCK_RACE, 2, 1, f_blocks);
}

/* What no card takes is refused where it is launched. */
void launches(void **) {
  soft_test t = soft_open(0);
  int *d = (int *)soft_memory(&t, 4096);
  assert_int_equal(HRI_LAUNCH(k_index, 1, 1025, 0, t.stream, d, 1), -1);
  assert_int_equal(HRI_LAUNCH(k_index, 0, 32, 0, t.stream, d, 1), -1);
  assert_int_equal(HRI_LAUNCH(k_index, dim3(1, 65536), 32, 0, t.stream, d, 1), -1);
  assert_int_equal(HRI_LAUNCH(k_index, 1, 32, 200 << 10, t.stream, d, 1), -1);
  assert_int_equal(soft_found(&t, HRI_SOFT_LAUNCH), 4);
  soft_close(&t);
}

/* Memory that nobody wrote, and memory that was released. */
void memory(void **) {
  soft_test t = soft_open(1);
  float *x = (float *)soft_memory(&t, 128), *y = (float *)soft_memory(&t, 128), out[32];
  assert_int_equal(HRI_LAUNCH(f_bounds, 1, 31, 0, t.stream, x, y, 32), 0);
  assert_int_equal(soft_found(&t, HRI_SOFT_UNWRITTEN), 124); /* of 31 elements the four bytes */
  soft_download(&t, out, y, sizeof out);
  assert_true(out[0] != out[0] && out[31] != out[31]);
  soft_close(&t);

  t = soft_open(1);
  int *d = (int *)soft_memory(&t, 4096);
  assert_int_equal(t.gpu->calls->release(t.gpu, d, NULL), HR_OK);
  assert_int_equal(HRI_LAUNCH(k_index, 1, 32, 0, t.stream, d, 32), 0);
  assert_true(soft_found(&t, HRI_SOFT_FREED) > 0);
  assert_int_not_equal(t.gpu->calls->release(t.gpu, d, NULL), HR_OK);
  soft_close(&t);
}

/* Not a limit of the test, which may run beside others; the page of the software GPU has the figure. */
void speed_of_a_product(void **) {
  enum { COUNT = 4000, WARPS = 4 };
  soft_test t = soft_open(0);
  float *d = (float *)soft_memory(&t, sizeof(float) * 4 * 32 * WARPS), out[4];
  auto begin = std::chrono::steady_clock::now();
  assert_int_equal(HRI_LAUNCH(k_many_products, 1, 32 * WARPS, 0, t.stream, d, (int)COUNT), 0);
  soft_clean(&t);
  double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  soft_download(&t, out, d, sizeof out);
  assert_true(out[0] == 16.0f * COUNT);
  print_message("one mma.sync of a warp: %.2f us\n", us / COUNT / WARPS);
  soft_close(&t);
}

} // namespace

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(right_kernels),     cmocka_unit_test(copies),
                                     cmocka_unit_test(products),          cmocka_unit_test(products_tf32),
                                     cmocka_unit_test(conversions),       cmocka_unit_test(faults),
                                     cmocka_unit_test(launches),          cmocka_unit_test(memory),
                                     cmocka_unit_test(speed_of_a_product)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
