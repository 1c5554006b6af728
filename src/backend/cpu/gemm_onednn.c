/* Matrix products by oneDNN's matmul primitive, through its C API, versions 2.5 and later and 3.x.
 *
 * matmul, not inner product: it serves all three kinds with plain row-major operands and with accumulation, and selects
 * the library's brgemm kernels, which report all their scratch. The other implementations ("gemm:jit", "ref") allocate
 * behind the caller's back, so only those named in `known` count as serving a shape. (bf16 without AVX512_BF16 is one
 * that the library computes slowly and with megabytes of its own; ours takes it.)
 *
 * Packed b: the library is asked for the layout it likes best. When that is one of blocks as ops/linear/pack.h
 * describes them, our own kernel packs; any other counts as not served.
 *
 * A primitive is made for the number of threads that OpenMP would use at that moment, and must be run by as many: a
 * smaller team would leave parts of the result unwritten. Hence the team is set around both, dynamic teams are switched
 * off meanwhile, and a team inside a parallel region is refused. */
#include "backend/cpu/gemm_providers.h"

#if defined(HRI_HAVE_ONEDNN)

#include <stdio.h>
#include <string.h>

#include <dnnl.h>
#include <omp.h>

#include "base/mem.h"
#include "backend/cpu/room.h"

struct hri_onednn {
  dnnl_engine_t engine;
  dnnl_stream_t stream;
};

struct hri_onednn_gemm {
  dnnl_primitive_t primitive;
  dnnl_memory_t a, b, bias, c, scratch; /* bias, scratch: NULL when there is none */
  int threads;
};

static hr_status failed(hr_error *error, dnnl_status_t status, const char *what) {
  if (status == dnnl_out_of_memory) return hri_fail_memory(error, 0, "the GEMM library");
  return hri_fail(error, HR_ERROR_INTERNAL, "oneDNN: %s failed with status %d", what, (int)status);
}

/* ---- room ---- */

/* Refused memory, the library ends the process: its code generator writes to what it did not get, its objects throw
 * through
 * C. So each call that makes something of its own comes after a proof of room, for more than twice the most that such a
 * call was measured to need: 3.44 MiB to make a primitive, 0.19 MiB to select one, less than that for an engine
 * (bench_pressure; the C library takes 1 MiB at once where its heap cannot grow). */
static uint64_t make_room = HRI_GEMM_ROOM_BYTES, select_room = 2u << 20;

void hri_onednn_set_room(uint64_t bytes) { make_room = select_room = bytes; }

/* ---- what differs between the versions ---- */

/* A blocked layout in the library's words: inner blocks from the outside in, each of one of the two dims. */
typedef struct blocking {
  int64_t dims[2], strides[2], inner[3], inner_dim[3];
  int inner_count;
  uint64_t bytes;
} blocking;

#if DNNL_VERSION_MAJOR < 3

typedef dnnl_memory_desc_t description; /* a plain struct */

static dnnl_status_t describe(description *d, int64_t rows, int64_t columns, hri_real type, dnnl_format_tag_t tag) {
  dnnl_dims_t dims = {rows, columns};
  return dnnl_memory_desc_init_by_tag(d, 2, dims, type == HRI_REAL_BF16 ? dnnl_bf16 : dnnl_f32, tag);
}
static dnnl_status_t describe_again(description *d, const dnnl_memory_desc_t *from) {
  *d = *from;
  return dnnl_success;
}
static void undescribe(description *d) { (void)d; }

static bool describe_blocks(const description *d, blocking *b) {
  const dnnl_blocking_desc_t *inner = &d->format_desc.blocking;
  if (d->format_kind != dnnl_blocked || d->offset0 != 0 || d->extra.flags != 0 || inner->inner_nblks > 3) return false;
  b->inner_count = inner->inner_nblks;
  for (int i = 0; i < 2; i++) b->dims[i] = d->padded_dims[i], b->strides[i] = inner->strides[i];
  for (int i = 0; i < b->inner_count; i++) b->inner[i] = inner->inner_blks[i], b->inner_dim[i] = inner->inner_idxs[i];
  b->bytes = dnnl_memory_desc_get_size(d);
  return d->padded_offsets[0] == 0 && d->padded_offsets[1] == 0;
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops) { return dnnl_post_ops_append_sum(ops, 1.0f); }

static dnnl_status_t matmul(dnnl_primitive_desc_t *primitive, dnnl_engine_t engine, const description *a,
                            const description *b, const description *bias, const description *c,
                            const_dnnl_primitive_attr_t attributes) {
  dnnl_matmul_desc_t operation;
  dnnl_status_t status = dnnl_matmul_desc_init(&operation, a, b, bias, c);
  return status == dnnl_success ? dnnl_primitive_desc_create(primitive, &operation, attributes, engine, NULL) : status;
}

static dnnl_status_t make_memory(dnnl_memory_t *memory, dnnl_engine_t engine, const description *d) {
  return dnnl_memory_create(memory, d, engine, DNNL_MEMORY_NONE);
}

#else

typedef dnnl_memory_desc_t description; /* a handle; NULL is none */

static dnnl_status_t describe(description *d, int64_t rows, int64_t columns, hri_real type, dnnl_format_tag_t tag) {
  dnnl_dims_t dims = {rows, columns};
  return dnnl_memory_desc_create_with_tag(d, 2, dims, type == HRI_REAL_BF16 ? dnnl_bf16 : dnnl_f32, tag);
}
static dnnl_status_t describe_again(description *d, const_dnnl_memory_desc_t from) {
  return dnnl_memory_desc_clone(d, from);
}
static void undescribe(description *d) {
  if (*d) (void)dnnl_memory_desc_destroy(*d);
  *d = NULL;
}

static bool describe_blocks(const description *d, blocking *b) {
  const dnnl_dims_t *padded, *strides, *inner, *inner_dim;
  dnnl_format_kind_t kind = dnnl_format_kind_undef;
  int32_t count = 0;
  if (dnnl_memory_desc_query(*d, dnnl_query_format_kind, &kind) != dnnl_success || kind != dnnl_blocked ||
      dnnl_memory_desc_query(*d, dnnl_query_inner_nblks_s32, &count) != dnnl_success || count > 3 ||
      dnnl_memory_desc_query(*d, dnnl_query_padded_dims, (void *)&padded) != dnnl_success ||
      dnnl_memory_desc_query(*d, dnnl_query_strides, (void *)&strides) != dnnl_success ||
      dnnl_memory_desc_query(*d, dnnl_query_inner_blks, (void *)&inner) != dnnl_success ||
      dnnl_memory_desc_query(*d, dnnl_query_inner_idxs, (void *)&inner_dim) != dnnl_success)
    return false;
  b->inner_count = count;
  for (int i = 0; i < 2; i++) b->dims[i] = (*padded)[i], b->strides[i] = (*strides)[i];
  for (int i = 0; i < count; i++) b->inner[i] = (*inner)[i], b->inner_dim[i] = (*inner_dim)[i];
  b->bytes = dnnl_memory_desc_get_size(*d);
  return true; /* an offset or extra data would show in the bytes */
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops) {
  return dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef);
}

static dnnl_status_t matmul(dnnl_primitive_desc_t *primitive, dnnl_engine_t engine, const description *a,
                            const description *b, const description *bias, const description *c,
                            const_dnnl_primitive_attr_t attributes) {
  return dnnl_matmul_primitive_desc_create(primitive, engine, *a, *b, bias ? *bias : NULL, *c, attributes);
}

static dnnl_status_t make_memory(dnnl_memory_t *memory, dnnl_engine_t engine, const description *d) {
  return dnnl_memory_create(memory, *d, engine, DNNL_MEMORY_NONE);
}

#endif

static dnnl_status_t describe_weights(description *d, const_dnnl_primitive_desc_t primitive) {
  return describe_again(d, dnnl_primitive_desc_query_md(primitive, dnnl_query_weights_md, 0));
}

static dnnl_status_t make_scratch(dnnl_memory_t *memory, dnnl_engine_t engine, const_dnnl_primitive_desc_t primitive) {
  return dnnl_memory_create(memory, dnnl_primitive_desc_query_md(primitive, dnnl_query_scratchpad_md, 0), engine,
                            DNNL_MEMORY_NONE);
}

static uint64_t scratch_size(const_dnnl_primitive_desc_t primitive) {
  return dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(primitive, dnnl_query_scratchpad_md, 0));
}

/* An environment variable of the library can switch fp32 products to bf16; ours stay fp32. */
static dnnl_status_t keep_fp32(dnnl_primitive_attr_t attributes) {
#if DNNL_VERSION_MAJOR > 2 || DNNL_VERSION_MINOR >= 6
  return dnnl_primitive_attr_set_fpmath_mode(attributes, dnnl_fpmath_mode_strict);
#else
  (void)attributes;
  return dnnl_success;
#endif
}

/* ---- instruction set and version ---- */

void hri_onednn_cap_isa(hri_isa isa) {
  /* The highest level is no cap: the library may use what extends it. A refusal (too late) shows in
   * hri_onednn_within_isa. */
  static const dnnl_cpu_isa_t caps[] = {dnnl_cpu_isa_sse41, dnnl_cpu_isa_avx2, dnnl_cpu_isa_avx512_core_vnni};
  if (isa < HRI_ISA_AVX512_BF16) (void)dnnl_set_max_cpu_isa(caps[isa]);
}

bool hri_onednn_within_isa(hri_isa isa) {
  /* The values are sets of bits; these are the ones that each level adds to what is below it. */
  static const unsigned added[HRI_ISA_COUNT] = {[HRI_ISA_AVX2] = dnnl_cpu_isa_avx2 & ~(unsigned)dnnl_cpu_isa_sse41,
                                                [HRI_ISA_AVX512] =
                                                    dnnl_cpu_isa_avx512_core & ~(unsigned)dnnl_cpu_isa_avx2,
                                                [HRI_ISA_AVX512_BF16] = dnnl_cpu_isa_avx512_core_bf16 &
                                                                        ~(unsigned)dnnl_cpu_isa_avx512_core_vnni};
  unsigned effective = (unsigned)dnnl_get_effective_cpu_isa();
  for (int above = (int)isa + 1; above < HRI_ISA_COUNT; above++)
    if ((effective & added[above]) == added[above]) return false;
  return true;
}

const char *hri_onednn_text(void) {
  static _Thread_local char text[48];
  const dnnl_version_t *version = dnnl_version();
  (void)snprintf(text, sizeof text, "oneDNN %d.%d.%d", version->major, version->minor, version->patch);
  return text;
}

/* ---- engine ---- */

hr_status hri_onednn_create(hri_onednn **out, hr_error *error) {
  hri_onednn *onednn = hri_alloc_zero(1, sizeof *onednn);
  dnnl_status_t status;
  if (!onednn) return hri_fail_memory(error, sizeof *onednn, "the GEMM library");
  if (hri_room_prove(select_room, "the GEMM library", error) != HR_OK) {
    hri_free(onednn);
    return HR_ERROR_BUDGET;
  }
  status = dnnl_engine_create(&onednn->engine, dnnl_cpu, 0);
  if (status == dnnl_success) status = dnnl_stream_create(&onednn->stream, onednn->engine, dnnl_stream_default_flags);
  if (status != dnnl_success) {
    hri_onednn_destroy(onednn);
    return failed(error, status, "creating an engine");
  }
  *out = onednn;
  return HR_OK;
}

void hri_onednn_destroy(hri_onednn *onednn) {
  if (!onednn) return;
  if (onednn->stream) (void)dnnl_stream_destroy(onednn->stream);
  if (onednn->engine) (void)dnnl_engine_destroy(onednn->engine);
  hri_free(onednn);
}

/* ---- team ---- */

typedef struct team {
  int threads, dynamic;
} team;

static hr_status team_enter(team *before, int threads, hr_error *error) {
  if (threads > 1 && omp_in_parallel())
    return hri_fail(error, HR_ERROR_INTERNAL, "a matrix product for %d threads was called inside a parallel region",
                    threads);
  *before = (team){omp_get_max_threads(), omp_get_dynamic()};
  omp_set_dynamic(0);
  omp_set_num_threads(threads);
  return HR_OK;
}

static void team_leave(const team *before) {
  omp_set_num_threads(before->threads);
  omp_set_dynamic(before->dynamic);
}

/* ---- primitives ---- */

/* Descriptions of the operands and the primitive they select. */
typedef struct selection {
  description a, b, bias, c;
  dnnl_primitive_attr_t attributes;
  dnnl_primitive_desc_t primitive; /* NULL: the library has none */
} selection;

static void selection_deinit(selection *s) {
  if (s->primitive) (void)dnnl_primitive_desc_destroy(s->primitive);
  if (s->attributes) (void)dnnl_primitive_attr_destroy(s->attributes);
  undescribe(&s->a);
  undescribe(&s->b);
  undescribe(&s->bias);
  undescribe(&s->c);
}

static dnnl_status_t make_attributes(dnnl_primitive_attr_t *attributes, bool accumulate) {
  dnnl_post_ops_t ops = NULL;
  dnnl_status_t status = dnnl_primitive_attr_create(attributes);
  if (status == dnnl_success) status = dnnl_primitive_attr_set_scratchpad_mode(*attributes, dnnl_scratchpad_mode_user);
  if (status == dnnl_success) status = keep_fp32(*attributes);
  if (status != dnnl_success || !accumulate) return status;
  status = dnnl_post_ops_create(&ops);
  if (status == dnnl_success) status = append_sum(ops);
  if (status == dnnl_success) status = dnnl_primitive_attr_set_post_ops(*attributes, ops);
  if (ops) (void)dnnl_post_ops_destroy(ops);
  return status;
}

/* Rows, terms and columns of the product as matmul sees it; an operand whose rows lie across memory is transposed. */
static dnnl_status_t describe_operands(selection *s, const hri_gemm_shape *shape) {
  hri_gemm_product p = hri_gemm_product_of(shape);
  dnnl_format_tag_t a = shape->kind == HRI_GEMM_DW ? dnnl_ba : dnnl_ab,
                    b = shape->kind == HRI_GEMM_FORWARD ? dnnl_ba : dnnl_ab;
  dnnl_status_t status = describe(&s->a, p.rows, p.depth, shape->type, a);
  if (status == dnnl_success)
    status = describe(&s->b, p.depth, p.columns, shape->type, shape->packed ? dnnl_format_tag_any : b);
  if (status == dnnl_success) status = describe(&s->c, p.rows, p.columns, shape->out, dnnl_ab);
  if (status == dnnl_success && shape->bias) status = describe(&s->bias, 1, p.columns, HRI_REAL_F32, dnnl_ab);
  return status;
}

static dnnl_status_t make_primitive(hri_onednn *onednn, const hri_gemm_shape *shape, selection *s) {
  return matmul(&s->primitive, onednn->engine, &s->a, &s->b, shape->bias ? &s->bias : NULL, &s->c, s->attributes);
}

/* Replaces b's "any" by what the library chooses for a model product with the same b. */
static dnnl_status_t settle_packed(hri_onednn *onednn, const hri_gemm_shape *shape, selection *s) {
  hri_gemm_shape model = hri_gemm_pack_shape(shape);
  selection other;
  dnnl_status_t status;
  memset(&other, 0, sizeof other);
  status = describe_operands(&other, &model);
  if (status == dnnl_success) status = make_attributes(&other.attributes, false);
  if (status == dnnl_success) status = make_primitive(onednn, &model, &other);
  if (status == dnnl_success) {
    undescribe(&s->b);
    status = describe_weights(&s->b, other.primitive);
  }
  selection_deinit(&other);
  return status;
}

/* Fills `s`, which the caller deinits also after an error. */
static hr_status select_primitive(hri_onednn *onednn, const hri_gemm_shape *shape, selection *s, hr_error *error) {
  dnnl_status_t status;
  team before;
  memset(s, 0, sizeof *s);
  HRI_TRY(hri_room_prove(select_room, "the GEMM library", error));
  HRI_TRY(team_enter(&before, shape->threads, error));
  status = describe_operands(s, shape);
  if (status == dnnl_success && shape->packed) status = settle_packed(onednn, shape, s);
  if (status == dnnl_success) status = make_attributes(&s->attributes, shape->accumulate);
  if (status == dnnl_success) status = make_primitive(onednn, shape, s);
  team_leave(&before);
  if (status == dnnl_unimplemented) s->primitive = NULL;
  return status == dnnl_success || status == dnnl_unimplemented ? HR_OK
                                                                : failed(error, status, "selecting a matrix product");
}

/* Blocks of [depth][columns] or [depth / group][columns][group]; false for any other layout. */
static bool understand(const description *d, hri_packing *packing) {
  blocking b;
  if (!describe_blocks(d, &b) || b.inner_count < 2 || b.inner_dim[0] != 0 || b.inner_dim[1] != 1) return false;
  if (b.inner_count == 3 && b.inner_dim[2] != 0) return false;
  packing->group = b.inner_count == 3 ? b.inner[2] : 1;
  packing->depth_block = b.inner[0] * packing->group;
  packing->column_block = b.inner[1];
  packing->depth_blocks = b.dims[0] / packing->depth_block;
  packing->column_blocks = b.dims[1] / packing->column_block;
  packing->depth_stride = b.strides[0];
  packing->column_stride = b.strides[1];
  packing->bytes = b.bytes;
  return packing->group <= 2;
}

/* The implementations that are known to state all their scratch, without the "brg:" or, in later versions,
 * "brg_matmul:" in front. */
static bool known(const char *name) {
  static const char *const names[] = {"avx512_core",     "avx512_core_bf16", "avx512_core_amx_bf16",
                                      "avx512_core_amx", "avx10_1_512",      "avx10_1_512_amx"};
  const char *isa = strchr(name, ':');
  if (strncmp(name, "brg:", 4) != 0 && strncmp(name, "brg_matmul:", 11) != 0) return false;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(isa + 1, names[i]) == 0) return true;
  return false;
}

hr_status hri_onednn_query(hri_onednn *onednn, const hri_gemm_shape *shape, hri_onednn_answer *answer,
                           hr_error *error) {
  const char *info = "";
  selection s;
  hr_status status = select_primitive(onednn, shape, &s, error);
  memset(answer, 0, sizeof *answer);
  if (status == HR_OK && s.primitive &&
      dnnl_primitive_desc_query(s.primitive, dnnl_query_impl_info_str, 0, &info) == dnnl_success) {
    answer->served = known(info) && (!shape->packed || understand(&s.b, &answer->packing));
    answer->scratch_bytes = scratch_size(s.primitive);
    (void)snprintf(answer->name, sizeof answer->name, "%s", info);
  }
  selection_deinit(&s);
  return status;
}

static dnnl_status_t make_objects(hri_onednn *onednn, hri_onednn_gemm *gemm, const selection *s, bool bias) {
  dnnl_status_t status = dnnl_primitive_create(&gemm->primitive, s->primitive);
  if (status == dnnl_success) status = make_memory(&gemm->a, onednn->engine, &s->a);
  if (status == dnnl_success) status = make_memory(&gemm->b, onednn->engine, &s->b);
  if (status == dnnl_success) status = make_memory(&gemm->c, onednn->engine, &s->c);
  if (status == dnnl_success && bias) status = make_memory(&gemm->bias, onednn->engine, &s->bias);
  if (status == dnnl_success && scratch_size(s->primitive))
    status = make_scratch(&gemm->scratch, onednn->engine, s->primitive);
  return status;
}

hr_status hri_onednn_gemm_create(hri_onednn *onednn, const hri_gemm_shape *shape, hri_onednn_gemm **out,
                                 hr_error *error) {
  hri_onednn_gemm *gemm = hri_alloc_zero(1, sizeof *gemm);
  dnnl_status_t made = dnnl_unimplemented;
  hr_status status;
  selection s;
  team before;
  if (!gemm) return hri_fail_memory(error, sizeof *gemm, "a matrix product");
  gemm->threads = shape->threads;
  memset(&s, 0, sizeof s);
  status = hri_room_prove(make_room, "the code of a matrix product", error);
  if (status == HR_OK) status = select_primitive(onednn, shape, &s, error);
  if (status == HR_OK) status = team_enter(&before, shape->threads, error);
  if (status == HR_OK) {
    if (s.primitive) made = make_objects(onednn, gemm, &s, shape->bias);
    team_leave(&before);
    if (made != dnnl_success) status = failed(error, made, "creating a matrix product");
  }
  selection_deinit(&s);
  if (status != HR_OK) {
    hri_onednn_gemm_destroy(gemm);
    return status;
  }
  *out = gemm;
  return HR_OK;
}

void hri_onednn_gemm_destroy(hri_onednn_gemm *gemm) {
  dnnl_memory_t memories[5];
  if (!gemm) return;
  memcpy(memories, (dnnl_memory_t[5]){gemm->a, gemm->b, gemm->bias, gemm->c, gemm->scratch}, sizeof memories);
  for (int i = 0; i < 5; i++)
    if (memories[i]) (void)dnnl_memory_destroy(memories[i]);
  if (gemm->primitive) (void)dnnl_primitive_destroy(gemm->primitive);
  hri_free(gemm);
}

hr_status hri_onednn_gemm_run(hri_onednn *onednn, hri_onednn_gemm *gemm, const void *a, const void *b, const void *bias,
                              void *c, void *scratch, hr_error *error) {
  /* The library's handles are not const; it only reads sources (but writes the zeros behind packed b again). */
  const struct {
    int argument;
    dnnl_memory_t memory;
    void *data;
  } operands[5] = {{DNNL_ARG_SRC, gemm->a, (void *)(uintptr_t)a},
                   {DNNL_ARG_WEIGHTS, gemm->b, (void *)(uintptr_t)b},
                   {DNNL_ARG_DST, gemm->c, c},
                   {DNNL_ARG_BIAS, gemm->bias, (void *)(uintptr_t)bias},
                   {DNNL_ARG_SCRATCHPAD, gemm->scratch, scratch}};
  dnnl_exec_arg_t arguments[5];
  dnnl_status_t status = dnnl_success;
  int count = 0;
  team before;
  HRI_TRY(team_enter(&before, gemm->threads, error));
  for (int i = 0; i < 5 && status == dnnl_success; i++) {
    if (!operands[i].memory) continue;
    status = dnnl_memory_set_data_handle(operands[i].memory, operands[i].data);
    arguments[count++] = (dnnl_exec_arg_t){operands[i].argument, operands[i].memory};
  }
  if (status == dnnl_success) status = dnnl_primitive_execute(gemm->primitive, onednn->stream, count, arguments);
  if (status == dnnl_success) status = dnnl_stream_wait(onednn->stream);
  team_leave(&before);
  return status == dnnl_success ? HR_OK : failed(error, status, "running a matrix product");
}

#endif
