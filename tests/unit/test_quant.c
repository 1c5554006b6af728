/* Quantized weights: every code, scale and nested state has the bits that bitsandbytes' CPU quantizer gives it
 * (tests/quant, recorded by tests/parity/record_quant.py), in the readable reference and in the kernels of every
 * instruction set of this machine, for every team; dequantized values are the recorded ones; parts of a weight are
 * quantized as if each were alone; what has no code is found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "base/rng.h"
#include "formats/safetensors.h"
#include "backend/cpu/adapters.h"
#include "ops/cpu.h"
#include "ops/quant/nested.h"
#include "ops/quant/ref.h"
#include "ops/rules.h"
#include "support/team.h"

#define ISA_KERNELS(suffix, table) hri_quant_kernels_##suffix(table)
#include "support/isas.h"

static void *take(uint64_t bytes) {
  void *memory = calloc(bytes + 1, 1);
  assert_non_null(memory);
  return memory;
}

/* ---- recorded files ---- */

static hri_safetensors *open_file(const char *name) {
  char path[512];
  hri_safetensors *file = NULL;
  hr_error error;
  (void)snprintf(path, sizeof path, "%s/quant/%s", HR_TEST_DATA, name);
  if (hri_safetensors_open(path, &file, &error) != HR_OK) fail_msg("%s", error.message);
  return file;
}

/* All bytes of a tensor, NULL when there is none of this name. */
static void *read_tensor(const hri_safetensors *file, const char *name, hri_safetensor *about) {
  uint32_t index = hri_safetensors_find(file, name);
  hr_error error;
  void *bytes;
  if (index == HRI_SAFETENSORS_NONE) return NULL;
  *about = *hri_safetensors_get(file, index);
  bytes = take(about->end - about->begin);
  assert_int_equal(hri_safetensors_read(file, index, 0, about->end - about->begin, bytes, &error), HR_OK);
  return bytes;
}

/* ---- a quantized weight ---- */

typedef struct quantized {
  uint32_t kind;
  hri_quant_layout layout;
  uint8_t *codes, *absmax;
  float *nested, *scratch;
} quantized;

static quantized make(uint32_t kind, const uint64_t *rows, uint32_t parts, uint64_t columns) {
  quantized q = {.kind = kind};
  assert_true(hri_quant_layout_make(kind, rows, NULL, parts, columns, &q.layout));
  q.codes = take(q.layout.code_bytes);
  q.absmax = take(q.layout.absmax_count * 4);
  q.nested = hri_quant_is_double(kind) ? take(q.layout.nested_count * 4) : NULL;
  q.scratch = take(q.layout.absmax_count * 4);
  return q;
}

static void drop(quantized *q) { free(q->codes), free(q->absmax), free(q->nested), free(q->scratch); }

static uint64_t absmax_bytes(const quantized *q) {
  return hri_dtype_size(hri_quant_absmax_dtype(q->kind), q->layout.absmax_count);
}

static void spoil(quantized *q) {
  memset(q->codes, 0xA5, q->layout.code_bytes);
  memset(q->absmax, 0xA5, absmax_bytes(q));
  if (q->nested) memset(q->nested, 0xA5, q->layout.nested_count * 4);
}

static void expect_bytes(const char *what, const char *who, uint32_t kind, const void *got, const void *want,
                         uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; i++)
    if (((const uint8_t *)got)[i] != ((const uint8_t *)want)[i])
      fail_msg("%s of %s in %s: byte %llu is %02x, not %02x", what, who, hri_quantization_name(kind),
               (unsigned long long)i, ((const uint8_t *)got)[i], ((const uint8_t *)want)[i]);
}

static void expect_same(const quantized *got, const quantized *want, const char *who) {
  expect_bytes("codes", who, got->kind, got->codes, want->codes, want->layout.code_bytes);
  expect_bytes("absmax", who, got->kind, got->absmax, want->absmax, absmax_bytes(want));
  if (want->nested) expect_bytes("nested", who, got->kind, got->nested, want->nested, want->layout.nested_count * 4);
}

static hri_quant_args args_of(const quantized *q, void *w, hri_real real, int threads) {
  return (hri_quant_args){.kind = q->kind,
                          .layout = &q->layout,
                          .real = real,
                          .w = w,
                          .codes = q->codes,
                          .absmax = q->absmax,
                          .nested = q->nested,
                          .scratch = q->scratch,
                          .team = team_of(threads)};
}

static void *in_real(const float *w, uint64_t n, hri_real real) {
  void *out = take(n * hri_real_bytes(real));
  for (uint64_t i = 0; i < n; i++) hri_real_put(out, (int64_t)i, w[i], real);
  return out;
}

/* The kernels make `want` of w, and of `want` the values `values`, exactly. `exact`: w is exact in bf16 too. */
static void hold_kernels(const char *name, const quantized *want, const float *w, const float *values, uint64_t n,
                         bool exact) {
  quantized got = *want, fresh;
  uint64_t rows[HRI_QUANT_PARTS];
  void *narrow = in_real(w, n, HRI_REAL_BF16), *rounded[HRI_REAL_F16 + 1];
  for (uint32_t k = 0; k < want->layout.part_count; k++) rows[k] = want->layout.part[k].rows;
  for (int real = HRI_REAL_F32; real <= HRI_REAL_F16; real++) rounded[real] = in_real(values, n, (hri_real)real);
  fresh = make(want->kind, rows, want->layout.part_count, want->layout.part[0].columns);
  for (int i = 0; i < isa_count; i++)
    for (int threads = 1; threads <= 4; threads++)
      for (int real = HRI_REAL_F32; real <= HRI_REAL_F16; real++) {
        uint64_t size = hri_real_bytes((hri_real)real);
        unsigned char *out = take(n * size + 64);
        char who[96];
        hri_quant_args a;
        (void)snprintf(who, sizeof who, "%s on %s, %d threads", name, isas[i].name, threads);
        if (real == HRI_REAL_F32 || (real == HRI_REAL_BF16 && exact)) {
          spoil(&fresh);
          a = args_of(&fresh, real == HRI_REAL_F32 ? (void *)(uintptr_t)w : narrow, (hri_real)real, threads);
          assert_int_equal(isas[i].kernels.quantize(&a), -1);
          expect_same(&fresh, want, who);
        }
        memset(out, 0x5A, n * size + 64);
        a = args_of(&got, out, (hri_real)real, threads);
        isas[i].kernels.dequantize(&a);
        expect_bytes("values", who, want->kind, out, rounded[real], n * size);
        for (int b = 0; b < 64; b++) assert_int_equal(out[n * size + (uint64_t)b], 0x5A);
        free(out);
      }
  drop(&fresh);
  for (int real = HRI_REAL_F32; real <= HRI_REAL_F16; real++) free(rounded[real]);
  free(narrow);
}

/* ---- against bitsandbytes ---- */

/* Recorded tensors of NAME.KIND into q; false when this case has none. The recorded values, if any, are *values. */
static bool recorded(const hri_safetensors *file, const char *name, quantized *q, float **values) {
  static const char *const what[] = {"codes", "absmax", "nested", "offset", "w"};
  void *bytes[5];
  uint64_t sizes[5] = {0};
  for (int k = 0; k < 5; k++) {
    char key[128];
    hri_safetensor about;
    (void)snprintf(key, sizeof key, "%s.%s.%s", name, hri_quantization_name(q->kind), what[k]);
    bytes[k] = read_tensor(file, key, &about);
    if (bytes[k]) sizes[k] = about.end - about.begin;
  }
  if (!bytes[0]) return false;
  assert_int_equal(sizes[0], q->layout.code_bytes);
  assert_int_equal(sizes[1], absmax_bytes(q));
  memcpy(q->codes, bytes[0], sizes[0]);
  memcpy(q->absmax, bytes[1], sizes[1]);
  if (q->nested) {
    assert_int_equal(sizes[2] + sizes[3], q->layout.nested_count * 4);
    memcpy(q->nested, bytes[2], sizes[2]);
    memcpy((char *)q->nested + sizes[2], bytes[3], sizes[3]);
  }
  *values = bytes[4];
  for (int k = 0; k < 4; k++) free(bytes[k]);
  return true;
}

static void hold_case(const hri_safetensors *file, const char *name, const hri_safetensor *about, const float *w) {
  uint64_t rows = about->shape[0], columns = about->shape[1], n = rows * columns;
  for (uint32_t kind = HRI_QUANTIZATION_NF4; kind <= HRI_QUANTIZATION_INT8; kind++) {
    quantized want = make(kind, &rows, 1, columns), reference = make(kind, &rows, 1, columns);
    float *values = NULL, *mine = take(n * 4);
    if (!recorded(file, name, &want, &values)) {
      assert_int_equal(kind, HRI_QUANTIZATION_INT8); /* what is beyond fp16 */
    } else {
      hri_ref_quantize(kind, w, (int64_t)rows, (int64_t)columns, reference.codes, reference.absmax, reference.nested,
                       reference.scratch);
      expect_same(&reference, &want, name);
      hri_ref_dequantize(kind, want.codes, want.absmax, want.nested, (int64_t)rows, (int64_t)columns, mine);
      if (values) expect_bytes("reference values", name, kind, mine, values, n * 4);
      hold_kernels(name, &want, w, mine, n, about->dtype == HRI_FILE_BF16);
    }
    drop(&want), drop(&reference);
    free(values), free(mine);
  }
}

static void hold_file(const char *path, int cases) {
  hri_safetensors *file = open_file(path);
  int seen = 0;
  for (uint32_t i = 0; i < hri_safetensors_count(file); i++) {
    const hri_safetensor *t = hri_safetensors_get(file, i);
    const char *dot = strchr(t->name, '.');
    hri_safetensor about;
    char name[64];
    void *bytes;
    float *w;
    if (!dot || strcmp(dot, ".w") != 0) continue;
    (void)snprintf(name, sizeof name, "%.*s", (int)(dot - t->name), t->name);
    bytes = read_tensor(file, t->name, &about);
    w = take(about.shape[0] * about.shape[1] * 4);
    assert_true(hri_file_to_f32(about.dtype, w, bytes, about.shape[0] * about.shape[1]));
    hold_case(file, name, &about, w);
    free(bytes), free(w);
    seen++;
  }
  assert_int_equal(seen, cases);
  hri_safetensors_close(file);
}

static void codes_are_those_of_bitsandbytes(void **state) {
  (void)state;
  hold_file("cases.safetensors", 16);
}

static void codes_of_weights_held_back_are_too(void **state) {
  (void)state;
  hold_file("held.safetensors", 9);
}

/* ---- tables, the mean ---- */

static void tables_are_those_of_bitsandbytes(void **state) {
  hri_safetensors *file = open_file("maps.safetensors");
  static const struct {
    const char *name;
    uint32_t kind;
    uint64_t count;
  } maps[] = {{"nf4", HRI_QUANTIZATION_NF4, 16},
              {"fp4", HRI_QUANTIZATION_FP4_DQ, 16},
              {"nf4.bounds", HRI_QUANTIZATION_NF4_DQ, 15},
              {"fp4.bounds", HRI_QUANTIZATION_FP4, 15},
              {"dynamic", 0, 256}};
  (void)state;
  for (int i = 0; i < 5; i++) {
    hri_safetensor about;
    const float *ours = i < 2   ? hri_quant_values(maps[i].kind)
                        : i < 4 ? hri_quant_bounds(maps[i].kind)
                                : hri_quant_map();
    void *theirs = read_tensor(file, maps[i].name, &about);
    assert_int_equal(about.end - about.begin, maps[i].count * 4);
    expect_bytes(maps[i].name, "tables", maps[i].kind, ours, theirs, maps[i].count * 4);
    free(theirs);
  }
  hri_safetensors_close(file);
}

/* As the recorder's `sequence`. */
static float sequence_at(uint64_t k) { return (float)((uint32_t)(k * 2654435761u) >> 8) * 0x1p-24f + 0.01f; }

static void means_are_those_of_torch(void **state) {
  hri_safetensors *file = open_file("maps.safetensors");
  hri_safetensor about, means_about;
  int64_t *counts = read_tensor(file, "counts", &about);
  float *means = read_tensor(file, "means", &means_about);
  (void)state;
  assert_true(about.shape[0] > 15);
  for (uint64_t i = 0; i < about.shape[0]; i++) {
    float *x = take((uint64_t)counts[i] * 4), mean;
    for (int64_t k = 0; k < counts[i]; k++) x[k] = sequence_at((uint64_t)k);
    mean = hri_quant_mean(x, counts[i]);
    if (memcmp(&mean, &means[i], 4) != 0)
      fail_msg("the mean of %lld is %a, not %a", (long long)counts[i], (double)mean, (double)means[i]);
    free(x);
  }
  free(counts), free(means);
  hri_safetensors_close(file);
}

/* ---- parts ---- */

static float random_weight(uint64_t i, uint32_t salt) {
  uint32_t w[4];
  double u;
  hri_philox(11, salt, i, w);
  u = 2 * hri_uniform(w[0], w[1]) - 1;
  return (float)(u * u * u * (w[2] % 7 == 0 ? 3.0 : 0.05));
}

/* Up to three parts, of odd and even numbers of elements: each as the reference makes it alone. */
static void parts_are_quantized_alone(void **state) {
  static const struct {
    uint64_t rows[3], columns;
    uint32_t parts;
  } shapes[] = {{{64, 16, 16}, 48, 3}, {{7, 3, 5}, 11, 3}, {{1, 1, 0}, 1, 2},   {{33, 21, 0}, 130, 2},
                {{130, 7, 9}, 257, 3}, {{3, 1, 1}, 64, 3}, {{300, 0, 0}, 96, 1}};
  (void)state;
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
    for (uint32_t kind = HRI_QUANTIZATION_NF4; kind <= HRI_QUANTIZATION_INT8; kind++) {
      quantized want = make(kind, shapes[s].rows, shapes[s].parts, shapes[s].columns);
      uint64_t n = 0;
      float *w, *values;
      char name[32];
      for (uint32_t k = 0; k < shapes[s].parts; k++) n += want.layout.part[k].elements;
      w = take(n * 4), values = take(n * 4);
      for (uint64_t i = 0; i < n; i++) w[i] = hri_bf16_widen(hri_bf16_round(random_weight(i, kind)));
      for (uint32_t k = 0; k < shapes[s].parts; k++) {
        const hri_quant_part *p = &want.layout.part[k];
        uint64_t size = hri_dtype_size(hri_quant_absmax_dtype(kind), 1);
        float *nested = want.nested ? want.nested + p->nested : NULL;
        hri_ref_quantize(kind, w + p->first, (int64_t)p->rows, (int64_t)p->columns, want.codes + p->codes,
                         want.absmax + p->absmax * size, nested, want.scratch);
        hri_ref_dequantize(kind, want.codes + p->codes, want.absmax + p->absmax * size, nested, (int64_t)p->rows,
                           (int64_t)p->columns, values + p->first);
      }
      (void)snprintf(name, sizeof name, "shape %zu", s);
      hold_kernels(name, &want, w, values, n, true);
      drop(&want);
      free(w), free(values);
    }
}

static void layouts_are_counted(void **state) {
  hri_quant_layout l;
  uint64_t qkv[3] = {4096, 1024, 1024}, huge = UINT64_MAX / 2, odd[2] = {3, 1};
  (void)state;
  assert_true(hri_quant_layout_make(HRI_QUANTIZATION_NF4_DQ, qkv, NULL, 3, 4096, &l));
  assert_int_equal(l.code_bytes, 6144u * 4096 / 2);
  assert_int_equal(l.absmax_count, 6144u * 4096 / 64);
  assert_int_equal(l.nested_count, 6144u * 4096 / 64 / 256 + 3);
  assert_int_equal(l.bytes, l.code_bytes + l.absmax_count + 4 * l.nested_count);
  assert_int_equal(l.part[2].nested, (4096u + 1024) * 4096 / 64 / 256 + 2);
  assert_int_equal(hri_quant_scratch_bytes(HRI_QUANTIZATION_NF4_DQ, &l), 4096u * 64 * 4);
  assert_int_equal(hri_quant_scratch_bytes(HRI_QUANTIZATION_NF4, &l), 0);
  assert_true(hri_quant_layout_make(HRI_QUANTIZATION_FP4, odd, NULL, 2, 3, &l)); /* 9 and 3 elements */
  assert_int_equal(l.code_bytes, 5 + 2);
  assert_int_equal(l.part[1].codes, 5);
  assert_int_equal(l.absmax_count, 2);
  assert_true(hri_quant_layout_make(HRI_QUANTIZATION_INT8, odd, NULL, 2, 3, &l));
  assert_int_equal(l.code_bytes, 12);
  assert_int_equal(l.bytes, 12 + 4 * 4);
  assert_false(hri_quant_layout_make(HRI_QUANTIZATION_NONE, odd, NULL, 2, 3, &l));
  assert_false(hri_quant_layout_make(HRI_QUANTIZATION_COUNT, odd, NULL, 2, 3, &l));
  assert_false(hri_quant_layout_make(HRI_QUANTIZATION_INT8, odd, NULL, 0, 3, &l));
  assert_false(hri_quant_layout_make(HRI_QUANTIZATION_INT8, odd, NULL, 4, 3, &l));
  assert_false(hri_quant_layout_make(HRI_QUANTIZATION_INT8, odd, NULL, 2, 0, &l));
  for (uint32_t kind = HRI_QUANTIZATION_NF4; kind <= HRI_QUANTIZATION_INT8; kind++) {
    hri_quantization back;
    assert_false(hri_quant_layout_make(kind, &huge, NULL, 1, 3, &l));
    assert_false(hri_quant_layout_make(kind, (uint64_t[]){huge, huge}, NULL, 2, 1, &l));
    assert_true(hri_quantization_parse(hri_quantization_name(kind), &back));
    assert_int_equal(back, kind);
  }
  assert_false(hri_quantization_parse("nf5", &(hri_quantization){0}));
}

/* ---- what has no code ---- */

static int64_t bad_at(const isa *level, uint32_t kind, int threads, uint64_t at, float value, uint64_t second) {
  uint64_t rows[2] = {70, 31}, n = 101 * 67;
  quantized q = make(kind, rows, 2, 67);
  float *w = take(n * 4);
  hri_quant_args a = args_of(&q, w, HRI_REAL_F32, threads);
  int64_t found;
  for (uint64_t i = 0; i < n; i++) w[i] = random_weight(i, 1);
  w[at] = value;
  if (second) w[second] = value;
  found = level->kernels.quantize(&a);
  drop(&q);
  free(w);
  return found;
}

static void what_has_no_code_is_found(void **state) {
  static const uint64_t places[] = {0, 63, 64, 70 * 67 - 1, 70 * 67, 101 * 67 - 1};
  const float values[] = {NAN, -NAN, INFINITY, -INFINITY};
  (void)state;
  for (int i = 0; i < isa_count; i++)
    for (uint32_t kind = HRI_QUANTIZATION_NF4; kind <= HRI_QUANTIZATION_INT8; kind++)
      for (int threads = 1; threads <= 3; threads++) {
        for (size_t p = 0; p < sizeof places / sizeof *places; p++)
          for (int v = 0; v < 4; v++) {
            assert_int_equal(bad_at(&isas[i], kind, threads, places[p], values[v], 0), places[p]);
            assert_int_equal(bad_at(&isas[i], kind, threads, places[p], values[v], 101 * 67 - 1), places[p]);
          }
        assert_int_equal(bad_at(&isas[i], kind, threads, 5000, 65520.0f, 0), kind == HRI_QUANTIZATION_INT8 ? 5000 : -1);
        assert_int_equal(bad_at(&isas[i], kind, threads, 5000, 65519.0f, 0), -1);
        /* two blocks of 3e38: their sum overflows, the mean of no more than one does not */
        assert_int_equal(bad_at(&isas[i], kind, threads, 700, 3e38f, 900),
                         kind == HRI_QUANTIZATION_NF4 || kind == HRI_QUANTIZATION_FP4 ? -1 : 700);
        if (kind != HRI_QUANTIZATION_INT8) assert_int_equal(bad_at(&isas[i], kind, threads, 700, 3e38f, 0), -1);
      }
}

/* ---- as nodes ---- */

typedef struct nodes {
  hri_job job;
  hri_id w, codes, absmax, nested, scratch, back;
  hri_node quantize, dequantize;
} nodes;

static hri_id flat(hri_job *job, const char *name, hri_dtype dtype, uint64_t count) {
  hri_place place = {.program = HRI_LOAD, .role = HRI_ROLE_QUANTIZATION, .layer = -1, .unit = HRI_NONE};
  return hri_tensor_new(job, place, hri_name(job, "%s", name), dtype, 1, &count, NULL);
}

static void build_nodes(nodes *n, uint32_t kind, const hri_quant_layout *l, hri_dtype dtype) {
  hri_place place = {.program = HRI_LOAD, .role = HRI_ROLE_WEIGHT, .layer = -1, .unit = HRI_NONE};
  hri_emit emit = {.program = HRI_LOAD, .lane = HRI_COMPUTE, .layer = -1, .unit = HRI_NONE, .origin = HRI_NONE};
  hri_attr attr = {.i = {kind}};
  uint64_t dims[2] = {0, l->part[0].columns}, scratch = hri_quant_scratch_bytes(kind, l);
  hri_job *job = &n->job;
  hri_id id;
  hri_job_init(job);
  for (uint32_t k = 0; k < l->part_count; k++) {
    attr.i[1 + k] = (int64_t)l->part[k].rows;
    dims[0] += l->part[k].rows;
  }
  n->w = hri_tensor_new(job, place, hri_name(job, "layers.7.qkv"), dtype, 2, dims, NULL);
  n->back = hri_tensor_new(job, place, hri_name(job, "back"), dtype, 2, dims, NULL);
  n->codes = flat(job, "codes", HRI_U8, l->code_bytes);
  n->absmax = flat(job, "absmax", hri_quant_absmax_dtype(kind), l->absmax_count);
  n->nested = l->nested_count ? flat(job, "nested", HRI_F32, l->nested_count) : HRI_NONE;
  n->scratch = scratch ? flat(job, "scratch", HRI_U8, scratch) : HRI_NONE;
  id = hri_node_append(
      job, HRI_OP_QUANTIZE, emit, &attr,
      (hri_operand[]){HRI_R(n->w), HRI_W(n->codes), HRI_W(n->absmax), HRI_W(n->nested), {n->scratch, HRI_SCRATCH}},
      scratch ? 5 : 4);
  n->quantize = job->nodes.items[id];
  id = hri_node_append(job, HRI_OP_DEQUANTIZE, emit, &attr,
                       (hri_operand[]){HRI_R(n->codes), HRI_R(n->absmax), HRI_R(n->nested), HRI_W(n->back)}, 4);
  n->dequantize = job->nodes.items[id];
  assert_false(job->failed);
}

static hr_status check_node(const nodes *n, const hri_node *node, hr_error *error) {
  return hri_rule_get(node->op)->check(&n->job, node, error);
}

/* Rule, demand and adapter of both, on a backend's kernels, against the reference; and the error of a NaN. */
static void run_nodes(hri_cpu *cpu, uint32_t kind, hri_dtype dtype) {
  uint64_t rows[3] = {40, 9, 11}, columns = 75, at = 0, count = 60 * 75, scratch;
  uint64_t offsets[8];
  quantized want = make(kind, rows, 3, columns);
  hri_real real = hri_dtype_real(dtype);
  nodes n;
  hr_error error;
  unsigned char *memory;
  hri_launch launch = {.job = &n.job, .offsets = offsets};
  build_nodes(&n, kind, &want.layout, dtype);
  assert_int_equal(check_node(&n, &n.quantize, &error), HR_OK);
  assert_int_equal(check_node(&n, &n.dequantize, &error), HR_OK);
  assert_int_equal(hri_cpu_workspace(cpu, &n.job, &n.quantize, &scratch, &error), HR_OK);
  assert_int_equal(scratch, hri_quant_scratch_bytes(kind, &want.layout));
  assert_int_equal(hri_cpu_workspace(cpu, &n.job, &n.dequantize, &scratch, &error), HR_OK);
  assert_int_equal(scratch, 0);
  assert_true(n.job.storages.count <= 8);
  for (size_t s = 0; s < n.job.storages.count; s++)
    offsets[s] = at, at += hri_round_up(n.job.storages.items[s].bytes, 256);
  launch.base[HRI_DEVICE] = memory = take(at);
  for (uint64_t i = 0; i < count; i++)
    hri_real_put(hri_launch_pointer(&launch, n.w), (int64_t)i, random_weight(i, 9), real);
  assert_int_equal(hri_cpu_run(cpu, &launch, &n.quantize, NULL, &error), HR_OK);
  assert_int_equal(hri_cpu_run(cpu, &launch, &n.dequantize, NULL, &error), HR_OK);
  for (uint32_t k = 0; k < 3; k++) {
    const hri_quant_part *p = &want.layout.part[k];
    uint64_t size = hri_dtype_size(hri_quant_absmax_dtype(kind), 1);
    float *w = take(p->elements * 4), *values = take(p->elements * 4),
          *nested = want.nested ? want.nested + p->nested : NULL;
    for (uint64_t i = 0; i < p->elements; i++)
      w[i] = hri_real_get(hri_launch_pointer(&launch, n.w), (int64_t)(p->first + i), real);
    hri_ref_quantize(kind, w, (int64_t)p->rows, (int64_t)p->columns, want.codes + p->codes,
                     want.absmax + p->absmax * size, nested, want.scratch);
    hri_ref_dequantize(kind, want.codes + p->codes, want.absmax + p->absmax * size, nested, (int64_t)p->rows,
                       (int64_t)p->columns, values);
    for (uint64_t i = 0; i < p->elements; i++) {
      float got = hri_real_get(hri_launch_pointer(&launch, n.back), (int64_t)(p->first + i), real);
      assert_true(got ==
                  (real == HRI_REAL_F32 ? values[i] : hri_narrow_widen(hri_narrow_round(values[i], real), real)));
    }
    free(w), free(values);
  }
  expect_bytes("codes", "the node", kind, hri_launch_pointer(&launch, n.codes), want.codes, want.layout.code_bytes);
  expect_bytes("absmax", "the node", kind, hri_launch_pointer(&launch, n.absmax), want.absmax, absmax_bytes(&want));
  if (want.nested)
    expect_bytes("nested", "the node", kind, hri_launch_pointer(&launch, n.nested), want.nested,
                 want.layout.nested_count * 4);
  hri_real_put(hri_launch_pointer(&launch, n.w), 41 * 75 + 3, NAN, real);
  assert_int_equal(hri_cpu_run(cpu, &launch, &n.quantize, NULL, &error), HR_ERROR_INPUT);
  assert_non_null(strstr(error.message, "layers.7.qkv"));
  assert_non_null(strstr(error.message, "row 41, column 3"));
  free(memory);
  drop(&want);
  hri_job_deinit(&n.job);
}

static void nodes_run_as_the_reference(void **state) {
  hri_cpu *cpu = NULL;
  hr_error error;
  (void)state;
  assert_int_equal(hri_cpu_create(2, &cpu, &error), HR_OK);
  for (uint32_t kind = HRI_QUANTIZATION_NF4; kind <= HRI_QUANTIZATION_INT8; kind++) {
    run_nodes(cpu, kind, HRI_F32);
    run_nodes(cpu, kind, HRI_BF16);
    run_nodes(cpu, kind, HRI_F16);
  }
  hri_cpu_destroy(cpu);
}

/* Each operand of a wrong type or size, and parts that are not the rows of w. */
static void rules_refuse_what_does_not_fit(void **state) {
  uint64_t rows[3] = {8, 4, 4};
  hri_quant_layout l;
  nodes n;
  hr_error error;
  (void)state;
  assert_true(hri_quant_layout_make(HRI_QUANTIZATION_NF4_DQ, rows, NULL, 3, 100, &l));
  for (int wrong = 0; wrong < 9; wrong++) {
    hri_node *node = &n.quantize;
    hri_tensor *t;
    build_nodes(&n, HRI_QUANTIZATION_NF4_DQ, &l, HRI_BF16);
    t = n.job.tensors.items;
    assert_int_equal(check_node(&n, node, &error), HR_OK);
    switch (wrong) {
    case 0: t[n.codes].stored[0]--; break;
    case 1: t[n.absmax].dtype = HRI_F32; break;
    case 2: t[n.absmax].stored[0]++; break;
    case 3: t[n.nested].stored[0]--; break;
    case 4: n.job.operands.items[node->operand_begin + 3].tensor = HRI_NONE; break;
    case 5: node->attr.i[3] = 0; break; /* fewer rows than w */
    case 6: node->attr.i[1] = 0; break; /* a hole before the second part */
    case 7: node->attr.i[0] = HRI_QUANTIZATION_COUNT; break;
    default: t[n.w].layout = HRI_PACKED; break;
    }
    assert_int_equal(check_node(&n, node, &error), HR_ERROR_INTERNAL);
    hri_job_deinit(&n.job);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tables_are_those_of_bitsandbytes),
      cmocka_unit_test(means_are_those_of_torch),
      cmocka_unit_test(layouts_are_counted),
      cmocka_unit_test(codes_are_those_of_bitsandbytes),
      cmocka_unit_test(codes_of_weights_held_back_are_too),
      cmocka_unit_test(parts_are_quantized_alone),
      cmocka_unit_test(what_has_no_code_is_found),
      cmocka_unit_test(nodes_run_as_the_reference),
      cmocka_unit_test(rules_refuse_what_does_not_fit),
  };
  return cmocka_run_group_tests(tests, setup_isas, NULL);
}
