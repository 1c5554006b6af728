/* Weights between files and the arena: every conversion against one value at a time, whatever team and staging; models
 * of the reference writer come out byte for byte; GGUF and Hugging Face files of one model load to the same bits; what
 * a result carries over; wrong tensors by name; digests of all that is written and read; no save of what is not
 * finite. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/tied.h"
#include "formats/dtype.h"
#include "support/scratch.h"
#include "train/export.h"
#include "train/session.h"
#include "train/weights_move.h"
#include "support/cpu.h"

static const char *scratch;

static void assert_ok(hr_status status, const hr_error *error) {
  if (status != HR_OK) fail_msg("%s (%s)", error->message, error->hint);
}

static uint32_t seed = 7;
static uint32_t draw(void) { return seed = seed * 1664525u + 1013904223u, seed >> 8; }

/* ---- moves, against one value at a time ---- */

typedef struct memory_file {
  unsigned char *bytes;
  uint64_t count, fails_at; /* a transfer that holds this byte fails; UINT64_MAX: none */
  hri_file_digest *digest;  /* of what passes, as if the tensor began at DIGEST_AT in its file; may be NULL */
} memory_file;

enum { DIGEST_AT = 1001 };

static hr_status transfer(const hri_move *move, uint64_t offset, uint64_t count, void *memory, hr_error *error) {
  memory_file *file = move->file;
  if (offset > file->count || count > file->count - offset)
    return hri_fail(error, HR_ERROR_INTERNAL, "beyond the file");
  if (file->fails_at >= offset && file->fails_at < offset + count) return hri_fail(error, HR_ERROR_IO, "broken byte");
  if (move->out) memcpy(file->bytes + offset, memory, count);
  else memcpy(memory, file->bytes + offset, count);
  return file->digest ? hri_file_digest_add(file->digest, DIGEST_AT + offset, memory, count, error) : HR_OK;
}

/* Memory that stands for an arena, with an address or reached by put and get alone. */
static hr_status put(void *context, uint64_t offset, const void *from, uint64_t bytes, hr_error *error) {
  (void)error;
  memcpy((unsigned char *)context + offset, from, bytes);
  return HR_OK;
}

static hr_status get(void *context, uint64_t offset, void *to, uint64_t bytes, hr_error *error) {
  (void)error;
  memcpy(to, (const unsigned char *)context + offset, bytes);
  return HR_OK;
}

static hri_window window_on(void *memory, bool addressed) {
  return (hri_window){.memory = addressed ? memory : NULL, .context = memory, .put = put, .get = get};
}

/* hri_moves_run, whose bytes must give the digest of the file in one pass. */
static void run_digested(const hri_backend *cpu, const hri_move *m, memory_file *file, void *staging,
                         uint64_t staging_bytes) {
  unsigned char *whole = calloc(1, DIGEST_AT + file->count);
  uint64_t value;
  hr_error error = {0};
  assert_ok(hri_file_digest_create(4, &file->digest, &error), &error);
  assert_ok(hri_file_digest_add(file->digest, 0, whole, DIGEST_AT, &error), &error); /* the header, zeros */
  assert_ok(hri_moves_run(&cpu->elements, m, 1, staging, staging_bytes, &error), &error);
  assert_ok(hri_file_digest_value(file->digest, DIGEST_AT + file->count, &value, &error), &error);
  memcpy(whole + DIGEST_AT, file->bytes, file->count);
  assert_true(value == hri_file_digest_of(whole, DIGEST_AT + file->count));
  hri_file_digest_destroy(file->digest);
  file->digest = NULL;
  free(whole);
}

/* Finite values of every magnitude, and blocks whose scales are small halves. */
static void fill_file(memory_file *file, uint32_t type) {
  uint64_t each = hri_ggml_block_bytes(type);
  for (uint64_t k = 0; k < file->count; k++) file->bytes[k] = (unsigned char)draw();
  for (uint64_t at = 0; at + each <= file->count; at += each) {
    unsigned char *block = file->bytes + at;
    if (type == HRI_GGML_F32) block[3] &= 0xBF;
    else if (type == HRI_GGML_BF16 || type == HRI_GGML_F16) block[1] &= 0xBB;
    else if (type == HRI_GGML_Q6_K) block[209] = 0x20;
    else if (type == HRI_GGML_Q2_K) block[81] = 0x20, block[83] = 0x21;
    else if (type == HRI_GGML_Q3_K) block[109] = 0x20;
    else block[1] = 0x20, block[3] = type == HRI_GGML_Q4_1 || type == HRI_GGML_Q4_K ? 0x21 : block[3];
  }
}

static float value_of(const hri_move *m, const memory_file *file, uint64_t index) {
  float block[256];
  uint64_t size = hri_ggml_block(m->type), bytes = hri_ggml_block_bytes(m->type);
  assert_true(hri_ggml_to_f32(m->type, block, file->bytes + index / size * bytes, size));
  return block[index % size];
}

/* Where value (row, column) of the arena stands in the file. */
static uint64_t file_index(const hri_move *m, uint64_t row, uint64_t column) {
  if (m->transposed) return column * m->rows + row;
  if (m->head_size) {
    uint64_t in = row % m->head_size, half = m->head_size / 2;
    row = row - in + (in < half ? 2 * in : 2 * (in - half) + 1);
  }
  return row * m->columns + column;
}

static void check_in(const hri_move *m, const memory_file *file) {
  for (uint64_t r = 0; r < m->rows; r++)
    for (uint64_t c = 0; c < m->columns; c++) {
      uint64_t at = r * m->columns + c;
      float want = value_of(m, file, file_index(m, r, c));
      uint32_t a = 0, b = 0;
      if (m->add != 0) want += m->add; /* -0 stays -0 */
      if (m->real == HRI_REAL_BF16) {
        a = hri_bf16_round(want);
        b = ((const hri_bf16 *)m->window->context)[at];
      } else {
        memcpy(&a, &want, 4);
        memcpy(&b, (const float *)m->window->context + at, 4);
      }
      if (a != b)
        fail_msg("type %s, real %d, [%llu, %llu], transposed %d, heads of %u: (%llu, %llu) is %x, not %x",
                 hri_ggml_name(m->type), m->real, (unsigned long long)m->rows, (unsigned long long)m->columns,
                 m->transposed, m->head_size, (unsigned long long)r, (unsigned long long)c, b, a);
    }
}

typedef struct shape {
  uint64_t rows, columns;
  bool transposed;
  uint32_t head_size;
  float add;
} shape;

static const shape shapes[] = {{1, 1, false, 0, 0},       {7, 1, false, 0, 1},     {33, 17, false, 0, 0},
                               {259, 1031, false, 0, 0},  {40, 96, false, 10, 0},  {30, 1, false, 6, 0},
                               {1200, 256, false, 60, 0}, {5, 3, true, 0, 0},      {1, 9, true, 0, 0},
                               {9, 1, true, 0, 0},        {317, 211, true, 0, 0},  {3000, 19, true, 0, 0},
                               {70, 1500, true, 0, -1},   {64, 512, false, 0, -1}, {1024, 768, true, 0, 0}};
static const uint32_t teams[] = {1, 2, 3, 5};

static void run_shape(const shape *s, uint32_t type, hri_real real, hri_backend *const *cpus) {
  uint64_t values = s->rows * s->columns, block = hri_ggml_block(type),
           bytes = values / block * hri_ggml_block_bytes(type);
  uint64_t staging_sizes[] = {4096, hri_round_up(values * hri_real_bytes(real), 256), 4 << 20};
  memory_file file = {malloc(bytes), bytes, UINT64_MAX, NULL};
  unsigned char *at = malloc(values * 4), *staging = aligned_alloc(64, 8 << 20);
  hri_window windows[2] = {window_on(at, true), window_on(at, false)};
  hri_move m = {.bytes = transfer,
                .file = &file,
                .type = type,
                .rows = s->rows,
                .columns = s->columns,
                .transposed = s->transposed,
                .head_size = s->head_size,
                .add = s->add,
                .real = real,
                .finite = true,
                .path = "file",
                .name = "tensor"};
  fill_file(&file, type);
  for (size_t t = 0; t < 4; t++)
    for (size_t k = 0; k < 3; k++) {
      memset(at, 0xFF, values * 4);
      m.window = &windows[(t + k) % 2];
      run_digested(cpus[t], &m, &file, staging, staging_sizes[k] < 4096 ? 4096 : staging_sizes[k]);
      if (t > 0 && k > 0 && values > 100000) continue; /* the slow check, for some */
      check_in(&m, &file);
    }
  free(file.bytes);
  free(at);
  free(staging);
}

static void make_cpus(hri_backend *cpus[4]) {
  hr_error error = {0};
  for (size_t t = 0; t < 4; t++) assert_ok(cpu_open(teams[t], &cpus[t], &error), &error);
}

static void test_every_conversion_in(void **state) {
  static const uint32_t types[] = {HRI_GGML_F32,  HRI_GGML_F16,    HRI_GGML_BF16,  HRI_GGML_Q8_0,
                                   HRI_GGML_Q4_1, HRI_GGML_Q4_K,   HRI_GGML_Q6_K,  HRI_GGML_Q2_K,
                                   HRI_GGML_Q3_K, HRI_GGML_IQ4_NL, HRI_GGML_IQ4_XS};
  hri_backend *cpus[4];
  int runs = 0;
  (void)state;
  make_cpus(cpus);
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
      for (int real = 0; real < 2; real++) {
        if (shapes[s].columns % hri_ggml_block(types[t]) != 0 || (hri_ggml_block(types[t]) > 1 && shapes[s].transposed))
          continue;
        run_shape(&shapes[s], types[t], (hri_real)real, cpus);
        runs++;
      }
  assert_true(runs > 80);
  for (size_t t = 0; t < 4; t++) hri_backend_close(cpus[t]);
}

/* Out and in again gives the same arena where the file holds all bits, and the file one value at a time. */
static void test_every_conversion_out(void **state) {
  static const uint32_t types[] = {HRI_GGML_F32, HRI_GGML_F16, HRI_GGML_BF16};
  hri_backend *cpus[4];
  (void)state;
  make_cpus(cpus);
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
    for (size_t t = 0; t < 3; t++)
      for (int real = 0; real < 2; real++) {
        uint64_t values = shapes[s].rows * shapes[s].columns, each = hri_ggml_block_bytes(types[t]);
        memory_file arena = {malloc(values * 4), values * hri_real_bytes((hri_real)real), UINT64_MAX, NULL},
                    file = {malloc(values * each), values * each, UINT64_MAX, NULL};
        unsigned char *staging = aligned_alloc(64, 4 << 20);
        hri_window window = window_on(arena.bytes, (s + t) % 2);
        hri_move m = {.bytes = transfer,
                      .file = &file,
                      .out = true,
                      .type = types[t],
                      .rows = shapes[s].rows,
                      .columns = shapes[s].columns,
                      .transposed = shapes[s].transposed,
                      .window = &window,
                      .real = (hri_real)real,
                      .path = "file",
                      .name = "tensor"};
        hr_error error = {0};
        fill_file(&arena, real ? HRI_GGML_BF16 : HRI_GGML_F32);
        for (uint64_t k = 0; k < values; k++) /* below 65504, so that they fit into F16 */
          arena.bytes[k * (real ? 2 : 4) + (real ? 1 : 3)] &= 0x80 | 0x40 | 0x06;
        memset(file.bytes, 0xFF, file.count);
        run_digested(cpus[s % 4], &m, &file, staging, 4 << 20);
        for (uint64_t r = 0; r < m.rows; r++)
          for (uint64_t c = 0; c < m.columns; c++) {
            float value = hri_real_get(m.window->context, (int64_t)(r * m.columns + c), m.real);
            unsigned char want[4];
            if (types[t] == HRI_GGML_F16) hri_f16_from_f32((uint16_t *)(void *)want, &value, 1);
            else if (types[t] == HRI_GGML_BF16) hri_bf16_from_f32((uint16_t *)(void *)want, &value, 1);
            else memcpy(want, &value, 4);
            if (memcmp(want, file.bytes + file_index(&m, r, c) * each, each) != 0)
              fail_msg("shape %zu, type %s, real %d", s, hri_ggml_name(types[t]), real);
          }
        hri_real_put(arena.bytes, (int64_t)(values / 2), 65520.0f,
                     (hri_real)real); /* one that does not; bf16 makes it 65536 */
        assert_int_equal(hri_moves_run(&cpus[s % 4]->elements, &m, 1, staging, 4 << 20, &error),
                         types[t] == HRI_GGML_F16 ? HR_ERROR_INPUT : HR_OK);
        if (types[t] == HRI_GGML_F16) assert_says(&error, "file: tensor tensor holds a value that F16 cannot hold");
        free(arena.bytes);
        free(file.bytes);
        free(staging);
      }
  for (size_t t = 0; t < 4; t++) hri_backend_close(cpus[t]);
}

/* Any infinity or NaN, in the arena or in the file, by its place in the file's tensor. */
static void test_what_is_not_finite_is_named(void **state) {
  hri_backend *cpus[4];
  unsigned char *staging = aligned_alloc(64, 4 << 20);
  int round = 0;
  (void)state;
  make_cpus(cpus);
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
    for (int real = 0; real < 2; real++)
      for (int narrow = 0; narrow < 2; narrow++)
        for (int out = 0; out < 2; out++, round++) {
          uint64_t values = shapes[s].rows * shapes[s].columns, each = narrow ? 2 : 4, row = draw() % shapes[s].rows,
                   column = draw() % shapes[s].columns, at;
          memory_file file = {calloc(values, each), values * each, UINT64_MAX, NULL};
          void *arena = calloc(values, 4);
          hri_window window = window_on(arena, round % 3 == 0);
          hri_move m = {.bytes = transfer,
                        .file = &file,
                        .out = out,
                        .type = narrow ? HRI_GGML_BF16 : HRI_GGML_F32,
                        .rows = shapes[s].rows,
                        .columns = shapes[s].columns,
                        .transposed = shapes[s].transposed,
                        .window = &window,
                        .real = (hri_real)real,
                        .finite = true,
                        .path = "file",
                        .name = "tensor"};
          float bad = (const float[]){INFINITY, -INFINITY, NAN}[round % 3];
          hr_error error = {0};
          at = file_index(&m, row, column);
          if (out) hri_real_put(arena, (int64_t)(row * m.columns + column), bad, m.real);
          else hri_real_put(file.bytes, (int64_t)at, bad, narrow ? HRI_REAL_BF16 : HRI_REAL_F32);
          assert_int_equal(hri_moves_run(&cpus[round % 4]->elements, &m, 1, staging, round % 5 ? 4 << 20 : 4096,
                                         &error),
                           out ? HR_ERROR_DIVERGED : HR_ERROR_INPUT);
          assert_string_equal(error.message,
                              path_of("file: tensor tensor holds a value that is not finite at element %llu",
                                      (unsigned long long)at));
          assert_true(error.hint[0]);
          free(file.bytes);
          free(arena);
        }
  free(staging);
  for (size_t t = 0; t < 4; t++) hri_backend_close(cpus[t]);
}

/* Several moves of one call, as q, k and v are, and what goes wrong in them. */
static void test_first_error_counts(void **state) {
  enum { ROWS = 600, COLUMNS = 512 };
  memory_file files[3];
  hri_move moves[3];
  hri_backend *cpus[4];
  float *at = malloc(3 * sizeof(float) * ROWS * COLUMNS);
  unsigned char *staging = aligned_alloc(64, 4 << 20);
  hri_window window = window_on(at, true);
  (void)state;
  make_cpus(cpus);
  for (int k = 0; k < 3; k++) {
    files[k] = (memory_file){malloc(2 * ROWS * COLUMNS), 2 * ROWS * COLUMNS, UINT64_MAX, NULL};
    fill_file(&files[k], HRI_GGML_BF16);
    moves[k] = (hri_move){.bytes = transfer,
                          .file = &files[k],
                          .type = HRI_GGML_BF16,
                          .rows = ROWS,
                          .columns = COLUMNS,
                          .window = &window,
                          .first = (uint64_t)k * ROWS * COLUMNS,
                          .finite = true,
                          .path = "some/file",
                          .name = (const char *const[]){"q", "k", "v"}[k]};
  }
  for (int k = 1; k < 3; k++) /* the second tensor is the first that is bad */
    for (int i = 0; i < 3; i++) memcpy(files[k].bytes + 2 * (200000 + 1000 * i), (const uint16_t[]){0x7F80}, 2);
  for (size_t t = 0; t < 4; t++) {
    hr_error error = {0};
    assert_int_equal(hri_moves_run(&cpus[t]->elements, moves, 3, staging, 4 << 20, &error), HR_ERROR_INPUT);
    assert_says(&error, "some/file: tensor k holds a value that is not finite at element 200000");
    for (int k = 0; k < ROWS * COLUMNS; k += 997)
      assert_true(at[k] == value_of(&moves[0], &files[0], (uint64_t)k)); /* all before it was moved */
  }
  files[0].fails_at = 77;
  for (size_t t = 0; t < 4; t++) {
    hr_error error = {0};
    assert_int_equal(hri_moves_run(&cpus[t]->elements, moves, 3, staging, 4 << 20, &error), HR_ERROR_IO);
    assert_says(&error, "broken byte");
  }
  for (int k = 0; k < 3; k++) free(files[k].bytes);
  for (size_t t = 0; t < 4; t++) hri_backend_close(cpus[t]);
  free(at);
  free(staging);
}

/* ---- sessions ---- */

static void open_job(const char *model, hr_precision precision, uint32_t threads, hr_job *job) {
  hr_error error = {0};
  hr_job_init(job);
  assert_ok(hr_model_open(model, &job->model, &error), &error);
  assert_ok(hr_device_find("cpu", &job->device, &error), &error);
  job->precision = precision;
  job->sequence_length = 16;
  job->threads = threads;
  job->budget_bytes = (uint64_t)4 << 30;
  job->given |= HR_GIVEN_BUDGET;
  assert_ok(hr_job_finish(job, &error), &error);
}

static hr_status load(const char *model, hr_precision precision, uint32_t threads, hri_session *s, hr_error *error) {
  hr_job job;
  memset(s, 0, sizeof *s);
  open_job(model, precision, threads, &job);
  HRI_TRY(hri_session_plan(s, &job, NULL, error));
  return hri_session_load(s, NULL, NULL, error);
}

static void load_ok(const char *model, hr_precision precision, uint32_t threads, hri_session *s) {
  hr_error error = {0};
  assert_ok(load(model, precision, threads, s, &error), &error);
}

static int same_files, files_seen;
static const char *other_directory;
static void compare_file(const char *path, const char *name) {
  assert_same_file(path, path_of("%s/%s", other_directory, name));
  files_seen++;
}

static void assert_saves_the_same(const char *model, uint32_t threads) {
  const char *out = path_of("%s/saved", scratch);
  hri_session s;
  hr_error error = {0};
  load_ok(model, HR_PRECISION_FP32, threads, &s);
  assert_ok(hri_dir_make(out, &error), &error);
  assert_ok(hri_session_save(&s, out, (hri_file_dtype)HRI_AS_SOURCE, false, NULL, &error), &error);
  hri_session_close(&s);
  other_directory = out;
  files_seen = 0;
  walk(model, compare_file);
  same_files = files_seen;
  other_directory = model;
  files_seen = 0;
  walk(out, compare_file); /* and nothing else */
  assert_int_equal(files_seen, same_files);
  scratch_remove(out);
}

/* Recorded by tests/weights/record.py: shards with their index, config.json, tokenizer files. */
static void test_reference_files_come_out_byte_for_byte(void **state) {
  (void)state;
  for (uint32_t threads = 1; threads <= 3; threads += 2) {
    assert_saves_the_same(HR_TEST_DATA "/weights/llama-bf16-shards", threads);
    assert_int_equal(same_files, 9);
    assert_saves_the_same(HR_TEST_DATA "/weights/gpt2-f16-shards", threads);
    assert_int_equal(same_files, 9);
    assert_saves_the_same(HR_TEST_DATA "/weights/llama-mixed", threads);
    assert_int_equal(same_files, 5);
  }
}

/* A stated dtype is for all tensors, and a limit for new shards. */
static void test_stated_dtype_and_shards(void **state) {
  const char *out = path_of("%s/stated", scratch);
  hri_session s, again;
  hr_error error = {0};
  hri_weights *weights;
  hri_sink sink;
  hri_sink_options options = {.dtype = HRI_FILE_F32, .max_shard_bytes = 3000};
  (void)state;
  load_ok(HR_TEST_DATA "/weights/llama-mixed", HR_PRECISION_FP32, 2, &s);
  assert_ok(hri_dir_make(out, &error), &error);
  assert_ok(hri_session_save(&s, out, HRI_FILE_F16, false, NULL, &error), &error);
  assert_ok(hri_weights_open(out, &weights, &error), &error);
  for (uint32_t k = 0; k < hri_weights_count(weights); k++)
    assert_int_equal(hri_weights_get(weights, k)->dtype, HRI_FILE_F16);
  assert_string_equal(hri_safetensors_metadata_find(hri_weights_file(weights, 0), "note"), "norms are F32");
  assert_string_equal(hri_safetensors_metadata_find(hri_weights_file(weights, 0), "format"), "pt");
  hri_weights_close(weights);
  /* shards by size */
  assert_int_equal(unlink(path_of("%s/model.safetensors", out)), 0);
  options.carry = &s.carry;
  assert_ok(hri_sink_open(&sink, &s.plan->spec.model, &s.plan->job, &s.plan->backend->elements, out, &options, &error),
            &error);
  s.sink = &sink;
  assert_ok(hri_executor_run(s.executor, HRI_SAVE, &error), &error);
  s.sink = NULL;
  assert_ok(hri_sink_finish(&sink, NULL, &error), &error);
  hri_sink_abort(&sink);
  assert_false(exists(path_of("%s/model.safetensors", out)));
  assert_ok(hri_weights_open(out, &weights, &error), &error);
  assert_true(hri_weights_file_count(weights) > 3);
  for (uint32_t k = 0; k < hri_weights_file_count(weights); k++) {
    const hri_safetensors *file = hri_weights_file(weights, k);
    assert_true(hri_safetensors_data_bytes(file) <= 3000 || hri_safetensors_count(file) == 1);
  }
  hri_weights_close(weights);
  load_ok(out, HR_PRECISION_FP32, 1, &again); /* F32 holds all bits of both */
  for (size_t p = 0; p < s.plan->job.params.count; p++) {
    hri_id id = s.plan->job.params.items[p].weight;
    assert_memory_equal(hri_executor_view(s.executor, id), hri_executor_view(again.executor, id),
                        hri_tensor_bytes(&s.plan->job.tensors.items[id]));
  }
  hri_session_close(&again);
  hri_session_close(&s);
  scratch_remove(out);
}

/* ---- GGUF ---- */

static void assert_same_weights(const hri_session *a, const hri_session *b, const char *what) {
  assert_int_equal(a->plan->job.params.count, b->plan->job.params.count);
  for (size_t p = 0; p < a->plan->job.params.count; p++) {
    hri_id id = a->plan->job.params.items[p].weight;
    uint64_t bytes = hri_tensor_bytes(&a->plan->job.tensors.items[id]);
    if (memcmp(hri_executor_view(a->executor, id), hri_executor_view(b->executor, id), bytes) != 0)
      fail_msg("%s: %s differs", what, hri_name_get(&a->plan->job, a->plan->job.params.items[p].key));
  }
}

/* tests/gguf holds the same weights in both formats, in F32 (tests/parity/record_gguf.py): all mappings of names and
 * rows. */
static void test_gguf_is_the_same_model(void **state) {
  static const char *const names[] = {"llama",   "llama-biases", "gpt2",   "mistral",  "qwen2",
                                      "qwen3",   "phi3",         "gemma2", "gemma3",   "gemma",
                                      "smollm3", "granite",      "olmo2",  "stablelm", "stablelm-parallel",
                                      "phi"};
  (void)state;
  for (size_t k = 0; k < sizeof names / sizeof *names; k++)
    for (uint32_t threads = 1; threads <= 3; threads += 2) {
      hri_session a, b;
      load_ok(path_of(HR_TEST_DATA "/gguf/%s", names[k]), HR_PRECISION_FP32, 1, &a);
      load_ok(path_of(HR_TEST_DATA "/gguf/%s.gguf", names[k]), HR_PRECISION_FP32, threads, &b);
      assert_same_weights(&a, &b, names[k]);
      hri_session_close(&a);
      hri_session_close(&b);
    }
}

static void test_gguf_with_other_tensors(void **state) {
  const char *path = path_of("%s/other.gguf", scratch);
  size_t count = 0, at;
  char *bytes = get_file(HR_TEST_DATA "/gguf/llama.gguf", &count);
  hri_session s;
  hr_error error = {0};
  (void)state;
  assert_non_null(bytes);
  for (at = 0; at + 16 < count && memcmp(bytes + at, "blk.1.attn_v.wei", 16) != 0; at++) {}
  assert_true(at + 16 < count);
  memcpy(bytes + at, "blk.1.attn_w.wei", 16);
  put_file(path, bytes, count);
  free(bytes);
  assert_int_equal(load(path, HR_PRECISION_FP32, 1, &s, &error), HR_ERROR_INPUT);
  assert_says(&error, "blk.1.attn_v.weight");
  hri_session_close(&s);
}

/* ---- what is carried over ---- */

static void copy_model(const char *from, const char *to) {
  static const char *const names[] = {"config.json", "model.safetensors", "tokenizer.json"};
  hr_error error = {0};
  assert_ok(hri_dir_make(to, &error), &error);
  for (int k = 0; k < 3; k++) {
    size_t count = 0;
    char *bytes = get_file(path_of("%s/%s", from, names[k]), &count);
    assert_non_null(bytes);
    put_file(path_of("%s/%s", to, names[k]), bytes, count);
    free(bytes);
  }
}

/* The text of a file with `from` replaced by `to`. */
static void edit(const char *path, const char *from, const char *to) {
  size_t count = 0;
  char *text = get_file(path, &count), *at = text ? strstr(text, from) : NULL, *made;
  assert_non_null(at);
  made = malloc(count + strlen(to) + 1);
  (void)sprintf(made, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
  put_text(path, made);
  free(made);
  free(text);
}

static void test_config_keeps_its_own_keys(void **state) {
  const char *model = path_of("%s/config", scratch), *out = path_of("%s/config-out", scratch);
  hr_error error = {0};
  hr_model m, changed;
  char *text;
  (void)state;
  copy_model(HR_TEST_DATA "/weights/llama-mixed", model);
  edit(
      path_of("%s/config.json", model), "\"use_cache\": true",
      "\"use_cache\": false, \"my_note\": {\"a\": [1, 2.5, null]}, \"foo_len\": 18446744073709551615, \"wide\": [-9223372036854775809, "
      "1000000000000000019884624838656, 9223372036854775807, 1e+30]");
  assert_ok(hr_model_open(model, &m, &error), &error);
  assert_ok(hri_dir_make(out, &error), &error);
  assert_ok(hri_export_config(&m, "float16", out, NULL, &error), &error);
  text = get_file(path_of("%s/config.json", out), NULL);
  assert_non_null(strstr(text, "\"my_note\": {\n    \"a\": [\n      1,\n      2.5,\n      null\n    ]\n  }"));
  assert_non_null(strstr(text, "\"use_cache\": false"));
  assert_non_null(strstr(text, "\"foo_len\": 18446744073709551615,")); /* digits and not a double */
  assert_non_null(strstr(text, "[\n    -9223372036854775809,\n    1000000000000000019884624838656,\n"
                               "    9223372036854775807,\n    1e+30\n  ]"));
  assert_non_null(strstr(text, "\"dtype\": \"float16\"")); /* under the name that the file has */
  assert_null(strstr(text, "torch_dtype"));
  assert_non_null(strstr(text, "\"eos_token_id\": [\n    2,\n    7\n  ]"));
  free(text);
  /* a model that is not what the file says any more is told by itself alone */
  changed = m;
  changed.norm_epsilon = 1e-3;
  assert_int_equal(unlink(path_of("%s/config.json", out)), 0);
  assert_ok(hri_export_config(&changed, "float32", out, NULL, &error), &error);
  text = get_file(path_of("%s/config.json", out), NULL);
  assert_null(strstr(text, "my_note"));
  assert_non_null(strstr(text, "0.001"));
  free(text);
  put_text(path_of("%s/config.json", model), "{");
  assert_int_equal(unlink(path_of("%s/config.json", out)), 0);
  assert_ok(hri_export_config(&m, "float32", out, NULL, &error), &error);
  assert_ok(hr_model_open(out, &changed, &error), &error);
  assert_int_equal(changed.head_count, m.head_count);
  scratch_remove(model);
  scratch_remove(out);
}

static void test_companions(void **state) {
  const char *model = path_of("%s/companions", scratch), *out = path_of("%s/companions-out", scratch);
  hr_error error = {0};
  hr_model m;
  (void)state;
  copy_model(HR_TEST_DATA "/weights/llama-mixed", model);
  put_words(path_of("%s/merges.txt", model), 700000, 3);
  put_text(path_of("%s/chat_template.jinja", model), "{{ messages }}");
  put_text(path_of("%s/tokenizer_config.json", model), "{ \"model_max_length\":1000000000000000019884624838656,\n}");
  put_text(path_of("%s/a.tiktoken", model), "x");
  put_text(path_of("%s/README.md", model), "not taken");
  assert_ok(hr_model_open(model, &m, &error), &error);
  assert_ok(hri_dir_make(out, &error), &error);
  assert_ok(hri_export_companions(&m, m.directory, out, NULL, &error), &error);
  assert_same_file(path_of("%s/merges.txt", model), path_of("%s/merges.txt", out));
  assert_same_file(path_of("%s/tokenizer_config.json", model), path_of("%s/tokenizer_config.json", out));
  assert_same_file(path_of("%s/tokenizer.json", model), path_of("%s/tokenizer.json", out));
  assert_true(exists(path_of("%s/chat_template.jinja", out)) && exists(path_of("%s/a.tiktoken", out)));
  assert_false(exists(path_of("%s/README.md", out)) || exists(path_of("%s/model.safetensors", out)));
  assert_int_equal(unlink(path_of("%s/merges.txt", model)), 0);
  assert_ok(hri_dir_make(path_of("%s/merges.txt", model), &error), &error);
  scratch_remove(out);
  assert_ok(hri_dir_make(out, &error), &error);
  assert_int_equal(hri_export_companions(&m, m.directory, out, NULL, &error), HR_ERROR_INPUT);
  assert_says(&error, "merges.txt is a directory, not a regular file");
  scratch_remove(model);
  assert_int_equal(hri_export_companions(&m, m.directory, out, NULL, &error), HR_ERROR_INPUT);
  assert_says(&error, "is gone");
  scratch_remove(out);
}

/* ---- checkpoints ---- */

/* A checkpoint is F32 with states; the run that goes on from it still ends like the model it began with. */
static void test_a_resumed_run_ends_like_its_source(void **state) {
  const char *checkpoint = path_of("%s/checkpoint", scratch), *out = path_of("%s/resumed", scratch),
             *model = HR_TEST_DATA "/weights/llama-bf16-shards";
  hri_session s, alone;
  hri_weights *weights;
  hr_error error = {0};
  hr_job job;
  (void)state;
  load_ok(model, HR_PRECISION_BF16, 2, &s);
  assert_ok(hri_dir_make(checkpoint, &error), &error);
  assert_ok(hri_session_save(&s, checkpoint, HRI_FILE_F32, true, NULL, &error), &error);
  hri_session_close(&s);
  assert_true(exists(path_of("%s/tokenizer.json", checkpoint)) &&
              exists(path_of("%s/optimizer.safetensors", checkpoint)));
  memset(&s, 0, sizeof s);
  open_job(model, HR_PRECISION_BF16, 3, &job);
  assert_ok(hri_session_plan(&s, &job, NULL, &error), &error);
  assert_ok(hri_session_load(&s, checkpoint, path_of("%s/optimizer.safetensors", checkpoint), &error), &error);
  assert_ok(hri_dir_make(out, &error), &error);
  assert_ok(hri_session_save(&s, out, (hri_file_dtype)HRI_AS_SOURCE, false, NULL, &error), &error);
  hri_session_close(&s);
  other_directory = out;
  walk(model, compare_file);
  scratch_remove(out);
  /* without the source: the type is remembered, and so are the tokenizer files */
  load_ok(checkpoint, HR_PRECISION_BF16, 1, &alone);
  assert_ok(hri_dir_make(out, &error), &error);
  assert_ok(hri_session_save(&alone, out, (hri_file_dtype)HRI_AS_SOURCE, false, NULL, &error), &error);
  hri_session_close(&alone);
  assert_ok(hri_weights_open(out, &weights, &error), &error);
  assert_int_equal(hri_weights_get(weights, 0)->dtype, HRI_FILE_BF16);
  assert_null(hri_safetensors_metadata_find(hri_weights_file(weights, 0), HRI_SOURCE_DTYPE_KEY));
  hri_weights_close(weights);
  assert_same_file(path_of("%s/ranks.tiktoken", model), path_of("%s/ranks.tiktoken", out));
  assert_same_file(path_of("%s/config.json", model), path_of("%s/config.json", out));
  scratch_remove(out);
  scratch_remove(checkpoint);
}

/* A run from scratch has no files to be like. */
static void test_a_resumed_run_from_scratch_is_f32(void **state) {
  const char *checkpoint = path_of("%s/scratch-checkpoint", scratch), *out = path_of("%s/scratch-out", scratch);
  hr_error error = {0};
  hri_session s;
  hr_job job;
  (void)state;
  load_ok("micro-gpt2-bytes", HR_PRECISION_FP32, 1, &s);
  assert_ok(hri_dir_make(checkpoint, &error), &error);
  assert_ok(hri_session_save(&s, checkpoint, HRI_FILE_F32, true, NULL, &error), &error);
  hri_session_close(&s);
  open_job("micro-gpt2-bytes", HR_PRECISION_FP32, 1, &job);
  assert_ok(hri_session_plan(&s, &job, NULL, &error), &error);
  assert_ok(hri_session_load(&s, checkpoint, path_of("%s/optimizer.safetensors", checkpoint), &error), &error);
  assert_ok(hri_dir_make(out, &error), &error);
  assert_ok(hri_session_save(&s, out, (hri_file_dtype)HRI_AS_SOURCE, false, NULL, &error), &error);
  hri_session_close(&s);
  scratch_remove(checkpoint);
  load_ok(out, HR_PRECISION_FP32, 1, &s);
  assert_int_equal(s.carry.dtype, HRI_FILE_F32);
  hri_session_close(&s);
  scratch_remove(out);
}

/* ---- digests ---- */

typedef struct kind {
  const char *model;
  hr_precision precision;
  hr_moments moments;
  uint32_t threads;
} kind;

static const kind kinds[] =
    {{HR_TEST_DATA "/weights/llama-bf16-shards", HR_PRECISION_BF16, HR_MOMENTS_FP32, 3},
     {HR_TEST_DATA "/weights/llama-bf16-shards", HR_PRECISION_BF16_PURE, HR_MOMENTS_BF16, 2},
     {HR_TEST_DATA "/weights/gpt2-f16-shards", HR_PRECISION_FP32, HR_MOMENTS_FP32, 2},
     {"micro-gpt2-bytes", HR_PRECISION_BF16_PURE, HR_MOMENTS_FP32, 1},
     {"custom:family=gpt2,layers=2,hidden=192,heads=4,mlp=400,vocab=301,positions=64,tied", HR_PRECISION_FP32,
      HR_MOMENTS_FP32, 4},
     {"custom:family=gpt2,layers=2,hidden=192,heads=4,mlp=400,vocab=301,positions=64,tied", HR_PRECISION_BF16,
      HR_MOMENTS_FP32, 3}, /* masters in halves, of which the low ones are not 0 */
     {"custom:family=llama,layers=2,hidden=192,heads=4,kv-heads=2,mlp=400,vocab=301,positions=64",
      HR_PRECISION_BF16_PURE, HR_MOMENTS_BF16, 2}};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* path_of's buffers go round; this one stays while its test runs. */
static const char *directory_of(const char *name) {
  static char path[PATH_BYTES];
  (void)snprintf(path, sizeof path, "%s/%s", scratch, name);
  return path;
}

static hr_status open_kind(const kind *k, const char *directory, bool states, hri_file_list *loaded, hri_session *s,
                           hr_error *error) {
  hr_job job;
  memset(s, 0, sizeof *s);
  open_job(k->model, k->precision, k->threads, &job);
  job.moments = k->moments;
  HRI_TRY(hr_job_finish(&job, error));
  HRI_TRY(hri_session_plan(s, &job, NULL, error));
  s->loaded = loaded;
  return hri_session_load(s, directory, states ? path_of("%s/optimizer.safetensors", directory) : NULL, error);
}

static const hri_file_list *all_files;
static void check_listed(const char *path, const char *name) {
  const hri_file_record *record = hri_file_list_find(all_files, name);
  uint64_t bytes, value;
  hr_error error = {0};
  if (!record) fail_msg("%s is not in the list", name);
  assert_ok(hri_file_digest_read(path, &bytes, &value, &error), &error);
  assert_true(bytes == record->bytes && value == record->digest);
  files_seen++;
}

/* Every file of a save is listed, with what one pass over it gives; and a load of it tells the same of what it read. */
static void test_digests_of_saves_and_loads(void **state) {
  const char *out = directory_of("listed");
  (void)state;
  for (int k = 0; k < KINDS; k++)
    for (int final = 0; final < 2; final++) { /* a result as its source, and a checkpoint with states */
      hri_file_list written = {0}, read = {0};
      hri_session s, again;
      hr_error error = {0};
      size_t weights = 0;
      assert_ok(open_kind(&kinds[k], NULL, false, NULL, &s, &error), &error);
      assert_ok(hri_dir_make(out, &error), &error);
      assert_ok(hri_session_save(&s, out, final ? (hri_file_dtype)HRI_AS_SOURCE : HRI_FILE_F32, !final, &written,
                                 &error),
                &error);
      all_files = &written;
      files_seen = 0;
      walk(out, check_listed);
      assert_int_equal(files_seen, written.count);
      assert_ok(open_kind(&kinds[k], out, !final, &read, &again, &error), &error);
      for (size_t f = 0; f < written.count; f++) {
        const hri_file_record *found = hri_file_list_find(&read, written.items[f].name);
        bool is_weight = strstr(written.items[f].name, ".safetensors") != NULL;
        weights += is_weight;
        assert_true((found != NULL) == is_weight);
        if (found) assert_memory_equal(found, &written.items[f], sizeof *found);
      }
      assert_int_equal(read.count, weights);
      assert_true(weights >= (final ? 1 : 2));
      hri_session_close(&again);
      hri_session_close(&s);
      hri_array_free(&written);
      hri_array_free(&read);
      scratch_remove(out);
    }
}

/* The first or last bit of the header's blanks, of some tensor's mantissa, of the states: none loads as what was
 * written. */
static void test_a_flipped_bit_is_noticed(void **state) {
  static const char *const names[] = {"model.safetensors", "optimizer.safetensors"};
  const char *out = directory_of("flipped");
  hri_file_list written = {0};
  hri_session s;
  hr_error error = {0};
  (void)state;
  assert_ok(open_kind(&kinds[4], NULL, false, NULL, &s, &error), &error);
  assert_ok(hri_dir_make(out, &error), &error);
  assert_ok(hri_session_save(&s, out, HRI_FILE_F32, true, &written, &error), &error);
  hri_session_close(&s);
  for (int file = 0; file < 2; file++)
    for (int flip = 0; flip < 12; flip++) {
      const char *path = path_of("%s/%s", out, names[file]);
      hri_file_list read = {0};
      uint64_t header;
      size_t count = 0, at;
      char *bytes = get_file(path, &count);
      memcpy(&header, bytes, 8);
      at = 8 + header +
           draw() % ((count - 8 - header) / 4) * 4; /* the last bit of a value: finite and of the same size */
      bytes[at] ^= 1;
      put_file(path, bytes, count);
      assert_ok(open_kind(&kinds[4], out, true, &read, &s, &error), &error);
      for (int k = 0; k < 2; k++)
        assert_true((hri_file_list_find(&read, names[k])->digest == hri_file_list_find(&written, names[k])->digest) ==
                    (k != file));
      hri_session_close(&s);
      hri_array_free(&read);
      bytes[at] ^= 1;
      put_file(path, bytes, count);
      free(bytes);
    }
  hri_array_free(&written);
  scratch_remove(out);
}

/* A file of somebody else's with a tensor that the model has no use for has a digest too. */
static void test_digest_with_ignored_tensors(void **state) {
  const char *source = HR_TEST_DATA "/parity/data/gemma2/model", *out = directory_of("ignored");
  hri_file_list read = {0};
  hri_weights *weights;
  hri_safetensor list[64];
  hri_safetensors_writer *writer;
  hri_session s;
  uint32_t count, embedding;
  uint64_t bytes, value;
  hr_job job;
  hr_error error = {0};
  size_t config_bytes = 0;
  char *config = get_file(path_of("%s/config.json", source), &config_bytes);
  (void)state;
  assert_ok(hri_weights_open(source, &weights, &error), &error);
  assert_ok(hri_dir_make(out, &error), &error);
  put_file(path_of("%s/config.json", out), config, config_bytes);
  free(config);
  count = hri_weights_count(weights);
  embedding = hri_weights_find(weights, "model.embed_tokens.weight");
  assert_true(count < 63 && embedding != HRI_SAFETENSORS_NONE);
  for (uint32_t t = 0; t < count; t++) list[t] = *hri_weights_get(weights, t);
  list[count] = list[embedding];
  list[count].name = "lm_head.weight"; /* tied: the embedding once more */
  assert_ok(hri_safetensors_writer_open(path_of("%s/model.safetensors", out), list, count + 1, NULL, 0, &writer,
                                        &error),
            &error);
  for (uint32_t t = 0; t <= count; t++) {
    char *values = malloc(list[t].end - list[t].begin);
    assert_ok(hri_weights_read(weights, t < count ? t : embedding, 0, list[t].end - list[t].begin, values, &error),
              &error);
    assert_ok(hri_safetensors_writer_write(writer, t, 0, values, list[t].end - list[t].begin, &error), &error);
    free(values);
  }
  assert_ok(hri_safetensors_writer_finish(writer, NULL, &error), &error);
  hri_weights_close(weights);
  memset(&s, 0, sizeof s);
  open_job(out, HR_PRECISION_FP32, 2, &job);
  assert_ok(hri_session_plan(&s, &job, NULL, &error), &error);
  s.loaded = &read;
  assert_ok(hri_session_load(&s, NULL, NULL, &error), &error);
  assert_ok(hri_file_digest_read(path_of("%s/model.safetensors", out), &bytes, &value, &error), &error);
  assert_int_equal(read.count, 1);
  assert_true(read.items[0].bytes == bytes && read.items[0].digest == value);
  hri_session_close(&s);
  hri_array_free(&read);
  scratch_remove(out);
}

/* ---- what is not finite ---- */

static const char *const part_names[] = {"model.safetensors: tensor ", ".exp_avg holds", ".exp_avg_sq holds"};

/* Weights and states of every kind of arena: one bad value, anywhere, and nothing is saved; without it, all is. */
static void test_no_save_of_what_is_not_finite(void **state) {
  const char *out = directory_of("diverged");
  (void)state;
  for (int k = 0; k < KINDS; k++) {
    hri_session s;
    hr_error error = {0};
    assert_ok(open_kind(&kinds[k], NULL, false, NULL, &s, &error), &error);
    for (int round = 0; round < 12; round++) {
      uint32_t part = (uint32_t)round % 3;
      uint32_t p = draw() % (uint32_t)s.plan->job.params.count;
      const hri_param *param = &s.plan->job.params.items[p];
      hri_id id = hri_moved_tensor(&s.plan->job, hri_param_whole(&s.plan->job, param), part);
      hri_real real = hri_dtype_real(s.plan->job.tensors.items[id].dtype);
      hri_param_spec spec;
      void *values = hri_executor_view(s.executor, id);
      uint16_t *low = NULL, kept_low = 0;
      uint64_t at;
      float kept;
      hri_param_get(&s.plan->spec.model, param->spec, &spec);
      at = draw() % (spec.dims[0] * (spec.rank == 2 ? spec.dims[1] : 1));
      kept = hri_real_get(values, (int64_t)at, real);
      hri_real_put(values, (int64_t)at, round & 1 ? NAN : -INFINITY, real);
      if (part == HRI_MOVED_WEIGHT && hri_range_split(&s.plan->job, hri_param_whole(&s.plan->job, param))) {
        low = (uint16_t *)hri_executor_view(s.executor, hri_param_whole(&s.plan->job, param)->master) + at;
        kept_low = *low, *low = 0; /* or the halves of infinity are a finite number */
      }
      assert_ok(hri_dir_make(out, &error), &error);
      assert_int_equal(hri_session_save(&s, out, HRI_FILE_F32, true, NULL, &error), HR_ERROR_DIVERGED);
      assert_says(&error, part_names[part]);
      assert_says(&error, "holds a value that is not finite at element ");
      assert_int_equal(rmdir(out), 0); /* no half of a file */
      hri_real_put(values, (int64_t)at, kept, real);
      if (low) *low = kept_low;
    }
    assert_ok(hri_dir_make(out, &error), &error);
    assert_ok(hri_session_save(&s, out, HRI_FILE_F32, true, NULL, &error), &error);
    hri_session_close(&s);
    scratch_remove(out);
  }
}

/* A state that is not finite is not loaded either. */
static void test_no_load_of_states_that_are_not_finite(void **state) {
  const char *out = directory_of("broken-states"), *path = path_of("%s/optimizer.safetensors", out);
  static const float bad = INFINITY;
  hri_session s;
  hr_error error = {0};
  size_t count = 0;
  char *bytes;
  (void)state;
  assert_ok(open_kind(&kinds[2], NULL, false, NULL, &s, &error), &error);
  assert_ok(hri_dir_make(out, &error), &error);
  assert_ok(hri_session_save(&s, out, HRI_FILE_F32, true, NULL, &error), &error);
  hri_session_close(&s);
  bytes = get_file(path, &count);
  memcpy(bytes + count - 4, &bad, 4);
  put_file(path, bytes, count);
  free(bytes);
  assert_int_equal(open_kind(&kinds[2], out, true, NULL, &s, &error), HR_ERROR_INPUT);
  assert_says(&error, "optimizer.safetensors: tensor ");
  assert_says(&error, "exp_avg");
  hri_session_close(&s);
  scratch_remove(out);
}

/* ---- wrong tensors ---- */

/* llama-mixed with the header entry `from` replaced by `to` of the same length. */
static void refuse(const char *from, const char *to, const char *says) {
  const char *model = path_of("%s/wrong", scratch), *file = path_of("%s/model.safetensors", model);
  hri_session s;
  hr_error error = {0};
  size_t count = 0, at;
  char *bytes;
  assert_int_equal(strlen(from), strlen(to));
  copy_model(HR_TEST_DATA "/weights/llama-mixed", model);
  bytes = get_file(file, &count);
  for (at = 0; at + strlen(from) < count && memcmp(bytes + at, from, strlen(from)) != 0; at++) {}
  assert_true(at + strlen(from) < count);
  memcpy(bytes + at, to, strlen(to));
  put_file(file, bytes, count);
  free(bytes);
  assert_int_equal(load(model, HR_PRECISION_FP32, 1, &s, &error), HR_ERROR_INPUT);
  assert_says(&error, "model.safetensors");
  assert_says(&error, says);
  hri_session_close(&s);
  scratch_remove(model);
}

static void test_wrong_tensors_are_named(void **state) {
  (void)state;
  refuse("model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.op_proj.weight",
         "the tensor model.layers.1.mlp.up_proj.weight is missing");
  refuse("\"shape\":[20,12]", "\"shape\":[12,20]", "has shape [12, 20] and config.json asks for [20, 12]");
  refuse("{\"dtype\":\"BF16\"", "{\"dtype\":\"I16\" ", "has dtype I16");
}

/* The embedding under both spellings, a tensor of a layer that the model has not, and one that is ignored. */
static void test_spellings_and_strangers(void **state) {
  static const struct {
    const char *name;
    uint64_t elements;
    const char *says;
  } extra[] = {{"embed_tokens.weight", 61 * 12,
                "model.embed_tokens.weight and embed_tokens.weight are two spellings of one weight"},
               {"model.layers.2.mlp.up_proj.weight", 240,
                "the tensor model.layers.2.mlp.up_proj.weight does not belong to a llama model"},
               {"model.layers.0.self_attn.rotary_emb.inv_freq", 2, NULL}};
  (void)state;
  for (int k = 0; k < 3; k++) {
    const char *model = path_of("%s/stranger", scratch);
    hri_session s;
    hr_error error = {0};
    hri_weights *weights;
    hri_safetensor list[64];
    hri_safetensors_writer *writer;
    char *values = calloc(61 * 12, 4);
    uint32_t count;
    hr_status status;
    copy_model(HR_TEST_DATA "/weights/llama-mixed", model);
    assert_ok(hri_weights_open(model, &weights, &error), &error);
    count = hri_weights_count(weights);
    assert_true(count < 63);
    for (uint32_t t = 0; t < count; t++) list[t] = *hri_weights_get(weights, t);
    list[count] = (hri_safetensor){.name = extra[k].name,
                                   .dtype = HRI_FILE_F32,
                                   .rank = k == 2 ? 1 : 2,
                                   .shape = {k == 2 ? 2 : extra[k].elements / 12, 12}};
    assert_int_equal(unlink(path_of("%s/model.safetensors", model)), 0); /* and is read no more */
    assert_ok(hri_safetensors_writer_open(path_of("%s/model.safetensors", model), list, count + 1, NULL, 0, &writer,
                                          &error),
              &error);
    for (uint32_t t = 0; t <= count; t++) {
      uint64_t bytes = t < count ? list[t].end - list[t].begin : extra[k].elements * 4;
      assert_ok(hri_safetensors_writer_write(writer, t, 0, values, bytes, &error), &error);
    }
    assert_ok(hri_safetensors_writer_finish(writer, NULL, &error), &error);
    hri_weights_close(weights);
    status = load(model, HR_PRECISION_FP32, 1, &s, &error);
    assert_int_equal(status, extra[k].says ? HR_ERROR_INPUT : HR_OK);
    if (extra[k].says) assert_says(&error, extra[k].says);
    hri_session_close(&s);
    free(values);
    scratch_remove(model);
  }
}

/* A tied model with a head in its file: the embedding once more is fine, anything else would be lost. */
static void test_tied_head(void **state) {
  const char *source = HR_TEST_DATA "/parity/data/gemma2/model", *out = path_of("%s/tied", scratch);
  (void)state;
  for (int other = 0; other < 2; other++) {
    hr_error error = {0};
    hr_model model;
    hri_weights *weights;
    hri_safetensor list[64];
    hri_safetensors_writer *writer;
    uint32_t count, embedding;
    assert_ok(hr_model_open(source, &model, &error), &error);
    assert_true(model.tied_embeddings);
    assert_ok(hri_weights_open(source, &weights, &error), &error);
    assert_ok(hri_tied_head_check(&model, weights, &error), &error);
    assert_ok(hri_dir_make(out, &error), &error);
    count = hri_weights_count(weights);
    embedding = hri_weights_find(weights, "model.embed_tokens.weight");
    assert_true(count < 63 && embedding != HRI_SAFETENSORS_NONE);
    for (uint32_t t = 0; t < count; t++) list[t] = *hri_weights_get(weights, t);
    list[count] = list[embedding];
    list[count].name = "lm_head.weight";
    assert_ok(hri_safetensors_writer_open(path_of("%s/model.safetensors", out), list, count + 1, NULL, 0, &writer,
                                          &error),
              &error);
    for (uint32_t t = 0; t <= count; t++) {
      uint64_t bytes = list[t].end - list[t].begin;
      char *values = malloc(bytes);
      assert_ok(hri_weights_read(weights, t < count ? t : embedding, 0, bytes, values, &error), &error);
      if (t == count && other) values[bytes - 1] ^= 1;
      assert_ok(hri_safetensors_writer_write(writer, t, 0, values, bytes, &error), &error);
      free(values);
    }
    assert_ok(hri_safetensors_writer_finish(writer, NULL, &error), &error);
    hri_weights_close(weights);
    assert_ok(hri_weights_open(out, &weights, &error), &error);
    assert_int_equal(hri_tied_head_check(&model, weights, &error), other ? HR_ERROR_INPUT : HR_OK);
    if (other) assert_says(&error, "lm_head.weight is not model.embed_tokens.weight");
    model.tied_embeddings = false;
    assert_ok(hri_tied_head_check(&model, weights, &error), &error);
    hri_weights_close(weights);
    scratch_remove(out);
  }
}

/* Every allocation of loading and saving refused in turn: MEMORY, no crash, nothing left behind in the heap. */
static void test_refused_memory(void **state) {
  const char *model = HR_TEST_DATA "/weights/gpt2-f16-shards", *out = path_of("%s/refused", scratch);
  uint64_t before = hri_mem_live_bytes();
  int refusals = 0;
  (void)state;
  for (uint64_t nth = 1;; nth++) {
    hri_session s;
    hr_error error = {0};
    hr_job job;
    hr_status status;
    memset(&s, 0, sizeof s);
    open_job(model, HR_PRECISION_FP32, 1, &job);
    assert_ok(hri_session_plan(&s, &job, NULL, &error), &error);
    assert_ok(hri_dir_make(out, &error), &error);
    hri_mem_fail_after(nth);
    status = hri_session_load(&s, NULL, NULL, &error);
    if (status == HR_OK) status = hri_session_save(&s, out, (hri_file_dtype)HRI_AS_SOURCE, false, NULL, &error);
    hri_mem_fail_after(0);
    hri_session_close(&s);
    scratch_remove(out);
    assert_true(hri_mem_live_bytes() == before);
    if (status == HR_OK) break;
    assert_int_equal(status, HR_ERROR_MEMORY);
    refusals++;
  }
  assert_true(refusals > 30);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_conversion_in),
      cmocka_unit_test(test_every_conversion_out),
      cmocka_unit_test(test_what_is_not_finite_is_named),
      cmocka_unit_test(test_first_error_counts),
      cmocka_unit_test(test_reference_files_come_out_byte_for_byte),
      cmocka_unit_test(test_stated_dtype_and_shards),
      cmocka_unit_test(test_gguf_is_the_same_model),
      cmocka_unit_test(test_gguf_with_other_tensors),
      cmocka_unit_test(test_config_keeps_its_own_keys),
      cmocka_unit_test(test_companions),
      cmocka_unit_test(test_a_resumed_run_ends_like_its_source),
      cmocka_unit_test(test_a_resumed_run_from_scratch_is_f32),
      cmocka_unit_test(test_digests_of_saves_and_loads),
      cmocka_unit_test(test_a_flipped_bit_is_noticed),
      cmocka_unit_test(test_digest_with_ignored_tensors),
      cmocka_unit_test(test_no_save_of_what_is_not_finite),
      cmocka_unit_test(test_no_load_of_states_that_are_not_finite),
      cmocka_unit_test(test_wrong_tensors_are_named),
      cmocka_unit_test(test_spellings_and_strangers),
      cmocka_unit_test(test_tied_head),
      cmocka_unit_test(test_refused_memory),
  };
  int failed;
  scratch = scratch_make("load");
  failed = cmocka_run_group_tests(tests, NULL, NULL);
  (void)hri_dir_remove(scratch, NULL);
  return failed;
}
