/* Blocks of GGUF files that are kept (--quantize keep): kernels of every level give the bits of formats/quant.h for all
 * types and mixtures of them; a training beside kept blocks has the losses and the adapters, bit for bit, of one that
 * decoded the same file, in every precision, for all families of rows; it reserves what is planned; what cannot be kept
 * is refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <headroom/field.h>
#include <headroom/plan.h>
#include <headroom/train.h>

#include "backend/cpu/adapters.h"
#include "ops/quant/ref.h"
#include "ops/rules.h"
#include "support/cpu.h"
#include "support/gguf_model.h"
#include "support/scratch.h"
#include "support/team.h"
#include "train/weights.h"
#include "train/weights_move.h"

#define ISA_KERNELS(suffix, table) hri_quant_kernels_##suffix(table)
#include "support/isas.h"

static const char *work, *data;

static void *take(uint64_t bytes) {
  void *memory = calloc(bytes + 1, 1);
  assert_non_null(memory);
  return memory;
}

/* ---- kernels ---- */

/* Bytes at random, but scales are finite: any half, subnormal, zero and negative ones too. */
static void random_blocks(gguf_random *r, uint32_t type, uint8_t *to, uint64_t count) {
  static const uint8_t halves[][2] =
      {[HRI_GGML_Q4_1] = {0, 2}, [HRI_GGML_Q5_1] = {0, 2}, [HRI_GGML_Q2_K] = {80, 82},  [HRI_GGML_Q3_K] = {108, 108},
       [HRI_GGML_Q4_K] = {0, 2}, [HRI_GGML_Q5_K] = {0, 2}, [HRI_GGML_Q6_K] = {208, 208}};
  uint32_t bytes = hri_ggml_block_bytes(type);
  for (uint64_t b = 0; b < count; b++) {
    uint8_t *block = to + b * bytes;
    float plain = (float)gguf_signed(r) * (gguf_draw(r) % 2 ? 1e-39f : 7e4f);
    uint16_t bits = (uint16_t)(gguf_draw(r) & 0xBFFF);
    for (uint32_t i = 0; i < bytes; i++) block[i] = (uint8_t)gguf_draw(r);
    if (type == HRI_GGML_F32) memcpy(block, &plain, sizeof plain);
    else if (hri_ggml_block(type) == 1) memcpy(block, &bits, sizeof bits);
    for (int k = 0; hri_ggml_block(type) > 1 && k < 2; k++) {
      uint32_t at = type < sizeof halves / sizeof *halves ? halves[type][k] : 0;
      uint16_t half = (uint16_t)(gguf_draw(r) & (gguf_draw(r) % 4 ? 0xBBFF : 0x83FF)); /* finite; subnormal */
      if (gguf_draw(r) % 8 == 0) half &= 0x8000;
      memcpy(block + at, &half, sizeof half);
    }
  }
}

/* A weight of up to three parts of those types. */
typedef struct kept {
  hri_quant_layout layout;
  uint8_t *codes;
  float *values; /* as formats/quant.h decodes them */
  uint64_t count;
} kept;

static kept make(const uint32_t *types, const uint64_t *rows, uint32_t parts, uint64_t columns, uint64_t seed) {
  uint8_t dtypes[HRI_QUANT_PARTS] = {0};
  gguf_random r = {seed, 0};
  kept q = {.count = 0};
  for (uint32_t k = 0; k < parts; k++) dtypes[k] = hri_gguf_dtype(types[k]);
  assert_true(hri_quant_layout_make(HRI_QUANTIZATION_KEEP, rows, dtypes, parts, columns, &q.layout));
  q.codes = take(q.layout.code_bytes);
  for (uint32_t k = 0; k < parts; k++) q.count += rows[k] * columns;
  q.values = take(q.count * sizeof *q.values);
  for (uint32_t k = 0; k < parts; k++) {
    const hri_quant_part *p = &q.layout.part[k];
    uint64_t bytes = 0;
    assert_true(hri_ggml_bytes(types[k], p->elements, &bytes) && bytes == p->code_bytes);
    random_blocks(&r, types[k], q.codes + p->codes, p->elements / hri_ggml_block(types[k]));
    assert_true(hri_ggml_to_f32(types[k], q.values + p->first, q.codes + p->codes, p->elements));
  }
  return q;
}

static void drop(kept *q) { free(q->codes), free(q->values); }

static void hold(const kept *q, const char *what, const hri_cpu_kernels *kernels, hri_real real, int threads) {
  uint64_t bytes = q->count * hri_real_bytes(real);
  unsigned char *got = take(bytes + 64), *want = take(bytes);
  hri_quant_args a = {.kind = HRI_QUANTIZATION_KEEP,
                      .layout = &q->layout,
                      .real = real,
                      .w = got,
                      .codes = q->codes,
                      .team = team_of(threads)};
  memset(got, 0xA5, bytes + 64);
  for (uint64_t i = 0; i < q->count; i++) hri_real_put(want, (int64_t)i, q->values[i], real);
  kernels->dequantize(&a);
  for (uint64_t i = 0; i < bytes; i++)
    if (got[i] != want[i])
      fail_msg("%s, %d threads: byte %llu of element %llu is %02x, not %02x", what, threads, (unsigned long long)i,
               (unsigned long long)(i / hri_real_bytes(real)), got[i], want[i]);
  for (int i = 0; i < 64; i++) assert_int_equal(got[bytes + (uint64_t)i], 0xA5);
  free(got), free(want);
}

static void hold_everywhere(const kept *q, const char *name) {
  for (int i = 0; i < isa_count; i++)
    for (int real = HRI_REAL_F32; real <= HRI_REAL_F16; real++)
      for (int threads = 1; threads <= 3; threads += 2) {
        char what[96];
        (void)snprintf(what, sizeof what, "%s on %s as type %d", name, isas[i].name, real);
        hold(q, what, &isas[i].kernels, (hri_real)real, threads);
      }
}

static void kernels_give_the_decoders_bits(void **state) {
  (void)state;
  for (uint32_t t = 0; t < GGUF_BLOCK_TYPES; t++) {
    uint32_t type = gguf_block_types[t], one = hri_ggml_block(type) == 1;
    uint64_t rows = 61;
    kept q = make(&type, &rows, 1, one ? 75 : 512, t);
    hold_everywhere(&q, hri_ggml_name(type));
    drop(&q);
  }
  for (uint32_t t = 0; t + 2 < GGUF_BLOCK_TYPES; t++) { /* mixtures, as Q4_K_M has them */
    kept q = make(gguf_block_types + t, (const uint64_t[]){7, 2, 3}, 3, 256, 100 + t);
    hold_everywhere(&q, "a mixture");
    drop(&q);
  }
}

/* The bytes of a plan, and what makes no layout. */
static void layouts_are_whole_blocks(void **state) {
  const uint64_t rows[3] = {8, 2, 2}, huge = UINT64_MAX / 4;
  const uint8_t types[3] = {HRI_Q4_K, HRI_Q4_K, HRI_Q6_K};
  hri_quant_layout l;
  (void)state;
  assert_true(hri_quant_layout_make(HRI_QUANTIZATION_KEEP, rows, types, 3, 512, &l));
  assert_int_equal(l.part[2].codes, 10 * 2 * 144);
  assert_int_equal(l.code_bytes, 10 * 2 * 144 + 2 * 2 * 210);
  assert_int_equal(l.bytes, l.code_bytes);
  assert_int_equal(l.absmax_count, 0);
  assert_false(hri_quant_layout_make(HRI_QUANTIZATION_KEEP, rows, types, 3, 128, &l)); /* half a block in a row */
  assert_false(
      hri_quant_layout_make(HRI_QUANTIZATION_KEEP, rows, (const uint8_t[]){HRI_U8, HRI_U8, HRI_U8}, 3, 512, &l));
  assert_false(hri_quant_layout_make(HRI_QUANTIZATION_KEEP, rows, NULL, 3, 512, &l));
  assert_false(hri_quant_layout_make(HRI_QUANTIZATION_NF4, rows, types, 3, 512, &l));
  assert_false(hri_quant_layout_make(HRI_QUANTIZATION_KEEP, &huge, types, 1, 256, &l));
  assert_false(hri_quant_layout_make(HRI_QUANTIZATION_KEEP, &huge, (const uint8_t[]){HRI_F32}, 1, 2, &l));
}

/* ---- as a node ---- */

static void nodes_say_their_blocks(void **state) {
  hri_place place = {.program = HRI_LOAD, .role = HRI_ROLE_QUANTIZATION, .layer = -1, .unit = HRI_NONE};
  hri_emit emit = {.program = HRI_LOAD, .lane = HRI_COMPUTE, .layer = -1, .unit = HRI_NONE, .origin = HRI_NONE};
  hri_attr attr = {.i = {HRI_QUANTIZATION_KEEP, 4, 3, 0, HRI_Q4_K, HRI_Q8_0}};
  uint64_t bytes = 4 * 144 + 3 * 8 * 34, dims[2] = {7, 256}, scale = 1;
  hri_job job;
  hr_error error;
  hri_node *node;
  hri_id codes, w, other, id;
  (void)state;
  hri_job_init(&job);
  codes = hri_tensor_new(&job, place, hri_name(&job, "codes"), HRI_U8, 1, &bytes, NULL);
  other = hri_tensor_new(&job, place, hri_name(&job, "other"), HRI_F32, 1, &scale, NULL);
  w = hri_tensor_new(&job, place, hri_name(&job, "w"), HRI_BF16, 2, dims, NULL);
  id = hri_node_append(&job, HRI_OP_DEQUANTIZE, emit, &attr,
                       (hri_operand[]){HRI_R(codes), HRI_ABSENT, HRI_ABSENT, HRI_W(w)}, 4);
  assert_int_equal(hri_check_dequantize(&job, &job.nodes.items[id], &error), HR_OK);
  for (int wrong = 0; wrong < 6; wrong++) {
    hri_node spoilt = job.nodes.items[id];
    node = &spoilt;
    switch (wrong) {
    case 0: node->attr.i[4] = HRI_Q5_K; break;        /* other blocks, other bytes */
    case 1: node->attr.i[4] = HRI_U8; break;          /* not kept */
    case 2: node->attr.i[5] = HRI_DTYPE_COUNT; break; /* no type */
    case 3: node->attr.i[1] = 3, node->attr.i[2] = 4; break;
    case 4: node->attr.i[0] = HRI_QUANTIZATION_NF4; break;
    default: node->attr.i[5] = -1; break;
    }
    assert_int_not_equal(hri_check_dequantize(&job, node, &error), HR_OK);
  }
  hri_operands(&job, &job.nodes.items[id])[1] = HRI_R(other); /* blocks have their scales in them */
  assert_int_not_equal(hri_check_dequantize(&job, &job.nodes.items[id], &error), HR_OK);
  id = hri_node_append(&job, HRI_OP_QUANTIZE, emit, &attr,
                       (hri_operand[]){HRI_R(w), HRI_W(codes), HRI_ABSENT, HRI_ABSENT}, 4);
  assert_int_not_equal(hri_check_quantize(&job, &job.nodes.items[id], &error), HR_OK);
  hri_job_deinit(&job);
}

/* ---- files to arenas ---- */

typedef struct memory_file {
  const uint8_t *bytes;
  uint64_t count;
} memory_file;

static hr_status read_memory(const hri_move *move, uint64_t offset, uint64_t count, void *memory, hr_error *error) {
  const memory_file *file = move->file;
  (void)error;
  assert_true(offset <= file->count && count <= file->count - offset);
  memcpy(memory, file->bytes + offset, count);
  return HR_OK;
}

static hr_status put_memory(void *context, uint64_t offset, const void *from, uint64_t bytes, hr_error *error) {
  (void)error;
  memcpy((unsigned char *)context + offset, from, bytes);
  return HR_OK;
}

/* Rows of blocks arrive in our order, with an address or without, in any staging; what is decoded from them is what a
 * move that decodes leaves. */
static void moves_keep_blocks(void **state) {
  hri_backend *cpu = NULL;
  hr_error error = {0};
  (void)state;
  assert_int_equal(cpu_open(2, &cpu, &error), HR_OK);
  for (uint32_t t = 0; t < GGUF_BLOCK_TYPES; t++)
    for (uint32_t head = 0; head <= 6; head += 6)
      for (int addressed = 0; addressed < 2; addressed++)
        for (uint64_t room = 4096; room <= 1 << 17; room <<= 5) {
          const uint64_t rows = 18, columns = 1024;
          uint32_t type = gguf_block_types[t];
          gguf_random r = {t, 0};
          uint64_t bytes = 0, base = 34;
          uint8_t *from, *to;
          float *values = take(rows * columns * 4), *want = take(rows * columns * 4);
          void *staging = take(room);
          memory_file file;
          hri_window window;
          hri_move move;
          assert_true(hri_ggml_bytes(type, rows * columns, &bytes));
          from = take(bytes), to = take(base + bytes);
          for (uint64_t b = 0; b < bytes; b += hri_ggml_block_bytes(type)) gguf_random_block(&r, type, from + b);
          file = (memory_file){from, bytes};
          window = (hri_window){.memory = addressed ? to : NULL, .context = to, .put = put_memory};
          move = (hri_move){.bytes = read_memory,
                            .file = &file,
                            .type = type,
                            .rows = rows,
                            .columns = columns,
                            .head_size = head,
                            .window = &window,
                            .first = base,
                            .real = HRI_REAL_BF16,
                            .blocks = true,
                            .finite = true,
                            .path = "file",
                            .name = "blocks"};
          if (hri_moves_run(&cpu->elements, &move, 1, staging, room, &error) != HR_OK) fail_msg("%s", error.message);
          (void)hri_ggml_to_f32(type, values, to + base, rows * columns);
          move.blocks = false;
          move.first = 0, move.real = HRI_REAL_F32;
          window = (hri_window){.memory = want};
          if (hri_moves_run(&cpu->elements, &move, 1, staging, room, &error) != HR_OK) fail_msg("%s", error.message);
          assert_memory_equal(values, want, rows * columns * 4);
          free(values), free(want), free(staging), free(from), free(to);
        }
  hri_backend_close(cpu);
}

/* ---- trainings ---- */

static uint32_t mixed(void *context, const hri_param_spec *spec, uint32_t k) {
  const uint32_t *first = context;
  return gguf_block_types[(*first + (uint32_t)spec->layer * 3 + (uint32_t)spec->slot * 2 + k) % GGUF_BLOCK_TYPES];
}

/* A small one whose rows are blocks of every type; q and k of llama are reordered in its file. */
static void small_model(hr_model *m, const char *preset) {
  hr_error error = {0};
  assert_int_equal(hr_model_preset(preset, m, &error), HR_OK);
  m->layer_count = 2;
  m->hidden_size = 256;
  m->head_count = 4, m->head_size = 64;
  m->kv_head_count = m->family == HR_FAMILY_GPT2 ? 4 : 2;
  m->mlp_size = 512;
  m->max_positions = 64;
  if (!m->learned_positions) m->rotary_size = 64;
  m->attention_scale = 0.125;
}

static void make_job(hr_job *job, const char *path, hr_quantize quantize) {
  hr_error error = {0};
  hr_job_init(job);
  if (hr_model_open(path, &job->model, &error) != HR_OK) fail_msg("%s", error.message);
  assert_int_equal(hr_device_find("cpu", &job->device, &error), HR_OK);
  job->budget_bytes = UINT64_C(1) << 30;
  job->sequence_length = 16;
  job->steps = 3;
  job->learning_rate = 1e-2;
  job->lora = "r=3,alpha=6,dropout=0.2,targets=all-linear";
  job->quantize = quantize;
  job->threads = 2;
  job->check = true;
}

static hr_status train(const hr_job *asked, const char *out, hr_run_result *result, hr_error *error) {
  hr_run_options options;
  hr_job job = *asked;
  hr_status status;
  hr_run_options_init(&options);
  options.data_paths = &data;
  options.data_path_count = 1;
  options.out_directory = out;
  status = hr_job_finish(&job, error);
  return status == HR_OK ? hr_train(&job, &options, result, error) : status;
}

/* Runs it, and hands out the bytes of the adapters' tensors. */
static void *trained(const hr_job *job, uint64_t *bytes, double *loss) {
  const char *out = path_of("%s/run", work);
  hr_error error = {0};
  hr_run_result result;
  hri_weights *file = NULL;
  unsigned char *all;
  if (train(job, out, &result, &error) != HR_OK) fail_msg("%s (%s)", error.message, error.hint);
  assert_int_equal(result.planned_bytes[HR_TIER_DEVICE], result.reserved_bytes[HR_TIER_DEVICE]);
  *loss = result.last_loss;
  *bytes = 0;
  assert_int_equal(hri_weights_open(path_of("%s/final/adapter_model.safetensors", out), &file, &error), HR_OK);
  all = take(hri_weights_data_bytes(file));
  for (uint32_t i = 0; i < hri_weights_count(file); i++) {
    const hri_safetensor *t = hri_weights_get(file, i);
    assert_int_equal(hri_weights_read(file, i, 0, t->end - t->begin, all + *bytes, &error), HR_OK);
    *bytes += t->end - t->begin;
  }
  hri_weights_close(file);
  scratch_remove(out);
  return all;
}

static void expect_same_run(const hr_job *a, const hr_job *b, const char *what) {
  uint64_t bytes_a, bytes_b;
  double loss_a, loss_b;
  void *x = trained(a, &bytes_a, &loss_a), *y = trained(b, &bytes_b, &loss_b);
  if (bytes_a != bytes_b || memcmp(x, y, bytes_a) != 0 || loss_a != loss_b)
    fail_msg("%s: beside kept blocks other adapters (loss %.17g, not %.17g)", what, loss_b, loss_a);
  free(x), free(y);
}

static void trainings_equal_those_beside_decoded_weights(void **state) {
  static const char *const presets[] = {"micro-llama-bytes", "micro-gpt2-bytes"};
  const hr_precision precisions[] = {HR_PRECISION_FP32, HR_PRECISION_BF16, HR_PRECISION_FP16};
  (void)state;
  for (uint32_t p = 0; p < 2; p++)
    for (uint32_t k = 0; k < 3; k++) {
      const char *path = path_of("%s/model-%u-%u.gguf", work, p, k);
      uint32_t first = 3 * p + k;
      hr_error error = {0};
      hr_model model;
      hr_job none, keep;
      small_model(&model, presets[p]);
      if (gguf_model_write(path, &model, 5 + first, mixed, &first, &error) != HR_OK) fail_msg("%s", error.message);
      make_job(&none, path, HR_QUANTIZE_NONE);
      make_job(&keep, path, HR_QUANTIZE_KEEP);
      none.precision = keep.precision = precisions[k];
      keep.recompute = (hr_recompute){.kind = (hr_recompute_kind)(k == 1 ? HR_RECOMPUTE_BLOCK : HR_RECOMPUTE_NONE)};
      keep.threads = 1 + k;
      none.accumulate = keep.accumulate = 1 + (k == 2);
      expect_same_run(&none, &keep, presets[p]);
    }
}

/* What is planned of a file is what its blocks take, and one byte less than the need is refused. */
static void the_need_is_exact(void **state) {
  const char *path = path_of("%s/model-0-1.gguf", work);
  hr_error error = {0};
  hr_run_result result;
  hr_plan *plan = NULL;
  hr_job job, finished;
  uint64_t need, file = 0;
  hri_gguf *gguf = NULL;
  (void)state;
  make_job(&job, path, HR_QUANTIZE_KEEP);
  job.precision = HR_PRECISION_BF16;
  finished = job;
  assert_int_equal(hr_job_finish(&finished, &error), HR_OK);
  assert_int_equal(hr_plan_create(&finished, &plan, &error), HR_OK);
  need = hr_plan_get(plan)->tiers[HR_TIER_DEVICE].reserved_bytes + hr_plan_get(plan)->tiers[HR_TIER_DEVICE].fixed_bytes;
  assert_int_equal(hri_gguf_open(path, &gguf, &error), HR_OK);
  for (uint32_t i = 0; i < hri_gguf_count(gguf); i++) {
    const hri_gguf_tensor *t = hri_gguf_tensor_get(gguf, i);
    if (strstr(t->name, "blk.") && t->rank == 2) file += t->bytes;
  }
  hri_gguf_close(gguf);
  assert_true(hr_plan_get(plan)->tiers[HR_TIER_DEVICE].max_by_role[HR_ROLE_QUANTIZATION] >= file);
  assert_true(hr_plan_get(plan)->tiers[HR_TIER_DEVICE].max_by_role[HR_ROLE_QUANTIZATION] < file + 2 * 4 * 256);
  hr_plan_destroy(plan);
  job.budget_bytes = need - 1;
  assert_int_equal(train(&job, path_of("%s/less", work), &result, &error), HR_ERROR_BUDGET);
  assert_false(exists(path_of("%s/less", work)));
  job.budget_bytes = need;
  if (train(&job, path_of("%s/exact", work), &result, &error) != HR_OK) fail_msg("%s", error.message);
}

/* Where adapters do not fit beside decoded weights, keeping the blocks is offered as what it is: the same bits. */
static void it_is_offered_as_the_same_bits(void **state) {
  const char *path = path_of("%s/model-0-1.gguf", work);
  static hr_fix fixes[HR_MAX_FIXES];
  hr_error error = {0};
  uint32_t count = 0, found = HR_MAX_FIXES;
  hr_plan *plan = NULL;
  hr_job job;
  (void)state;
  make_job(&job, path, HR_QUANTIZE_NONE);
  job.lora = "r=3";
  assert_int_equal(hr_job_finish(&job, &error), HR_OK);
  assert_int_equal(hr_plan_create(&job, &plan, &error), HR_OK);
  job.budget_bytes = hr_plan_get(plan)->tiers[HR_TIER_DEVICE].fixed_bytes +
                     hr_plan_get(plan)->tiers[HR_TIER_DEVICE].reserved_bytes * 7 / 8;
  hr_plan_destroy(plan);
  assert_int_equal(hr_plan_fixes(&job, fixes, &count, &error), HR_OK);
  for (uint32_t k = 0; k < count; k++)
    if (strcmp(fixes[k].options, "--quantize keep") == 0) found = k;
  assert_true(found < count && fixes[found].fits && !fixes[found].changes_algorithm);
  assert_int_equal(fixes[found].effect_class, HR_EFFECT_SAME_BITS);
  assert_memory_equal(fixes[found].job.model.lora.modules, job.model.lora.modules, sizeof job.model.lora.modules);
}

/* ---- what cannot be kept ---- */

static void expect_error(const hr_job *job, hr_status status, const char *part) {
  hr_error error = {0};
  hr_run_result result;
  hr_status got = train(job, path_of("%s/never", work), &result, &error);
  if (got != status || !strstr(error.message, part)) fail_msg("status %d: %s", (int)got, error.message);
  assert_false(exists(path_of("%s/never", work)));
}

static uint32_t all_q8(void *context, const hri_param_spec *spec, uint32_t k) {
  (void)context, (void)spec, (void)k;
  return HRI_GGML_Q8_0;
}

/* Overwrites two bytes of a tensor in a file. */
static void poke(const char *path, const char *name, uint64_t at, uint16_t value) {
  hr_error error = {0};
  hri_gguf *gguf = NULL;
  uint8_t first[8], *where;
  size_t count = 0;
  char *all;
  assert_int_equal(hri_gguf_open(path, &gguf, &error), HR_OK);
  assert_int_equal(hri_gguf_read(gguf, hri_gguf_find(gguf, name), 0, sizeof first, first, &error), HR_OK);
  hri_gguf_close(gguf);
  all = get_file(path, &count);
  where = (uint8_t *)all;
  while (memcmp(where, first, sizeof first) != 0) where++;
  memcpy(where + at, &value, sizeof value);
  put_file(path, all, count);
  free(all);
}

static void what_is_not_kept_is_named(void **state) {
  const char *path = path_of("%s/q8.gguf", work);
  hr_error error = {0};
  hr_model model;
  hr_job job;
  (void)state;
  small_model(&model, "micro-llama-bytes");
  assert_int_equal(gguf_model_write(path, &model, 77, all_q8, NULL, &error), HR_OK);
  make_job(&job, path, HR_QUANTIZE_KEEP);
  assert_int_equal(hr_model_preset("micro-llama-bytes", &job.model, &error), HR_OK);
  expect_error(&job, HR_ERROR_USAGE, "no GGUF file");
  make_job(&job, path, HR_QUANTIZE_KEEP);
  job.lora = NULL;
  expect_error(&job, HR_ERROR_USAGE, "quantized weights have no gradient");
  make_job(&job, path, HR_QUANTIZE_KEEP);
  job.model.gguf_types[1][HR_MODULE_V] = 1 + 16; /* as a file of IQ2_XXS is described */
  expect_error(&job, HR_ERROR_INPUT, "blk.1.attn_v.weight has type IQ2_XXS");
  job.model.gguf_types[1][HR_MODULE_V] = 0;
  expect_error(&job, HR_ERROR_INPUT, "blk.1.attn_v.weight is missing");
  job.model.gguf_types[1][HR_MODULE_V] = 1 + HRI_GGML_Q4_K; /* and replaced before it is loaded */
  expect_error(&job, HR_ERROR_INPUT, "blk.1.attn_v.weight is Q8_0 now");
  make_job(&job, path, HR_QUANTIZE_KEEP);
  job.model.mlp_size = 480;
  job.model.gguf_types[0][HR_MODULE_MLP_DOWN] = 1 + HRI_GGML_Q6_K;
  expect_error(&job, HR_ERROR_INPUT, "blk.0.ffn_down.weight is Q6_K, in blocks of 256, and its rows of 480 elements");
  poke(path, "blk.1.ffn_up.weight", 0, 0x7000); /* 8192 times up to 128: beyond fp16 */
  make_job(&job, path, HR_QUANTIZE_KEEP);
  job.precision = HR_PRECISION_FP16;
  expect_error(&job, HR_ERROR_INPUT, "blk.1.ffn_up.weight holds a value that is not finite in fp16");
  poke(path, "blk.0.attn_q.weight", 34, 0x7C00);
  make_job(&job, path, HR_QUANTIZE_KEEP);
  expect_error(&job, HR_ERROR_INPUT, "blk.0.attn_q.weight holds a value that is not finite at element 32");
}

static int set_up(void **state) {
  setup_isas(state);
  work = scratch_make("kept");
  data = strdup(path_of("%s/data.txt", work));
  put_words(data, 2000, 1);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  scratch_remove(work);
  free((void *)(uintptr_t)data);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(kernels_give_the_decoders_bits),
      cmocka_unit_test(layouts_are_whole_blocks),
      cmocka_unit_test(nodes_say_their_blocks),
      cmocka_unit_test(moves_keep_blocks),
      cmocka_unit_test(trainings_equal_those_beside_decoded_weights),
      cmocka_unit_test(the_need_is_exact),
      cmocka_unit_test(it_is_offered_as_the_same_bits),
      cmocka_unit_test(what_is_not_kept_is_named),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
