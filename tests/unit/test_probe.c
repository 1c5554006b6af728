/* The cost model on made-up tables of rates, and the file in which a probe is stored. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <headroom/device.h>
#include <headroom/plan.h>

#include "ops/demand.h"
#include "plan/plan.h"
#include "base/file.h"
#include "plan/cost.h"
#include "run/probe.h"
#include "device/cpu.h"
#include "support/cpu.h"
#include "support/scratch.h"

/* ---- one node and a table ---- */

typedef struct bench {
  hri_job job;
  hri_node *node;
  hr_device device;
} bench;

static hri_operand tensor(bench *b, hri_access access, uint64_t rows, uint64_t columns) {
  hri_place place = {.program = HRI_STEP, .tier = HRI_DEVICE, .layer = -1, .unit = HRI_NONE};
  return (hri_operand){hri_tensor_new(&b->job, place, 0, HRI_F32, 2, (uint64_t[]){rows, columns}, NULL),
                       (uint8_t)access};
}

static void make(bench *b, hri_op op, hri_attr attr, const hri_operand *operands, uint32_t count) {
  hri_emit emit = {.program = HRI_STEP, .layer = -1, .unit = HRI_NONE, .origin = HRI_NONE};
  hri_id id = hri_node_append(&b->job, (uint16_t)op, emit, &attr, operands, count);
  assert_int_not_equal(id, HRI_NONE);
  b->node = &b->job.nodes.items[id];
}

/* A machine without overhead whose rates are `rate` everywhere; the roofline beside it is far slower. */
static void begin(bench *b, double rate) {
  double *all[] = {&b->device.rates.tables[0].product_flops[0][0][0], &b->device.rates.tables[0].attention_flops[0][0],
                   &b->device.rates.tables[0].stream_bytes[0][0]};
  size_t counts[] = {HR_PRODUCT_KINDS * HR_PRODUCT_SIDES * HR_PRODUCT_SIZES, HR_ATTENTION_KINDS * HR_ATTENTION_SIZES,
                     HR_STREAM_COUNT * HR_STREAM_SIZES};
  memset(b, 0, sizeof *b);
  hri_job_init(&b->job);
  b->job.team = 2;
  b->device = (hr_device){.node_seconds = 5e-6,
                          .flops_fp32 = 1e6,
                          .memory_bytes_per_second = 1e6,
                          .gemm_efficiency = 1,
                          .memory_efficiency = 1};
  b->device.rates.threads = 2;
  for (size_t t = 0; t < 3; t++)
    for (size_t k = 0; k < counts[t]; k++) all[t][k] = rate;
}

static void linear(bench *b, uint64_t m, uint64_t n, uint64_t k) {
  make(b, HRI_OP_LINEAR, (hri_attr){0},
       (hri_operand[]){tensor(b, HRI_READ, m, k),
                       tensor(b, HRI_READ, n, k),
                       {HRI_NONE, HRI_READ},
                       tensor(b, HRI_WRITE, m, n)},
       4);
}

static double seconds(const bench *b) { return hri_node_seconds(&b->job, b->node, &b->device); }
static void near(double value, double wanted) {
  if (!(value > wanted * (1 - 1e-9) && value < wanted * (1 + 1e-9))) fail_msg("%.12g is not %.12g", value, wanted);
}

/* ---- classes ---- */

/* Bytes moved, and what stands for arithmetic: every optimizer by its row (states as codes take 1 byte each here). */
static void test_updates_count_their_arithmetic(void **state) {
  const uint64_t rows = 64, columns = 512, n = rows * columns;
  (void)state;
  for (uint32_t kind = 0; kind < HR_OPTIMIZER_COUNT; kind++) {
    const hri_optimizer *row = hri_optimizer_get(kind);
    hri_operand operands[5 + HRI_STATE_TENSORS];
    double moved = 12.0 * (double)n + 2.0 * (double)hri_state_bytes(kind, rows, columns, false), effort;
    bench b;
    begin(&b, 1e9);
    operands[0] = tensor(&b, HRI_READ, rows, columns);
    operands[1] = (hri_operand){HRI_NONE, HRI_READ};
    operands[2] = tensor(&b, HRI_UPDATE_ACCESS, rows, columns);
    for (uint32_t k = 0; k < row->tensor_count; k++) {
      uint64_t entries = hri_state_entries(&row->tensors[k], rows, columns);
      operands[3 + k] = tensor(&b, HRI_UPDATE_ACCESS, 1, entries);
      b.job.tensors.items[operands[3 + k].tensor].dtype = (uint8_t)row->tensors[k].dtype;
    }
    operands[3 + row->tensor_count] = operands[4 + row->tensor_count] = operands[1];
    make(&b, (hri_op)row->op, (hri_attr){0}, operands, 5 + row->tensor_count);
    effort = hri_rate_class_of(&b.job, b.node).work - moved;
    near(effort + 1, (double)(n * row->effort) + 1);
    assert_int_equal(row->effort > 0,
                     kind == HR_OPTIMIZER_ADAMW8BIT || kind == HR_OPTIMIZER_LION8BIT || kind == HR_OPTIMIZER_ADAFACTOR);
    near(seconds(&b), (moved + effort) / 1e9);
    hri_job_deinit(&b.job);
  }
}

static void test_products_are_classed_by_kind_side_and_size(void **state) {
  static const struct {
    uint64_t m, n, k;
    uint32_t side;
    double size;
  } cases[] = {{512, 256, 64, 0, 24},    {64, 4096, 4096, 0, 31},     {8192, 127, 4096, 0, 32.99},
               {512, 1024, 128, 1, 27},  {1024, 4096, 511, 1, 31.99}, {512, 512, 512, 2, 28},
               {2048, 4096, 1024, 2, 34}};
  (void)state;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    bench b;
    hri_rate_class c;
    begin(&b, 1e9);
    linear(&b, cases[k].m, cases[k].n, cases[k].k);
    c = hri_rate_class_of(&b.job, b.node);
    assert_int_equal(c.table, HRI_RATE_PRODUCT);
    assert_int_equal(c.kind, 0);
    assert_int_equal(c.side, cases[k].side);
    assert_true(c.size > cases[k].size - 0.02 && c.size < cases[k].size + 0.02);
    hri_job_deinit(&b.job);
  }
}

static void test_each_kind_reads_its_own_rate(void **state) {
  static const hri_op ops[] = {HRI_OP_LINEAR, HRI_OP_LINEAR_DX, HRI_OP_LINEAR_DW};
  (void)state;
  for (uint32_t kind = 0; kind < HR_PRODUCT_KINDS / 2; kind++) {
    bench b;
    begin(&b, 1e9);
    for (uint32_t k = 0; k < HR_PRODUCT_SIZES; k++) b.device.rates.tables[0].product_flops[kind][2][k] = 4e9;
    if (kind == 0) linear(&b, 512, 512, 512);
    else
      make(&b, ops[kind], (hri_attr){0},
           (hri_operand[]){tensor(&b, HRI_READ, 512, 512), tensor(&b, HRI_READ, 512, 512),
                           tensor(&b, HRI_WRITE, 512, 512)},
           3);
    near(seconds(&b), 268435456.0 / 4e9);
    hri_job_deinit(&b.job);
  }
}

static void test_streams_and_attention_read_their_own_rows(void **state) {
  bench b;
  (void)state;
  begin(&b, 1e9);
  b.device.rates.tables[0].stream_bytes[HR_STREAM_ADD][0] = b.device.rates.tables[0].stream_bytes[HR_STREAM_ADD][1] =
      3e9;
  make(&b, HRI_OP_ADD, (hri_attr){0},
       (hri_operand[]){tensor(&b, HRI_READ, 256, 1024), tensor(&b, HRI_READ, 256, 1024),
                       tensor(&b, HRI_WRITE, 256, 1024)},
       3);
  near(seconds(&b), 3145728.0 / 3e9);
  b.device.rates.node_seconds = 1e-3;
  near(seconds(&b), 3145728.0 / 3e9 + 1e-3);
  hri_job_deinit(&b.job);
  begin(&b, 1e9);
  b.device.rates.tables[0].attention_flops[1][2] = 7e9; /* backward at 1024 tokens */
  make(&b, HRI_OP_ATTENTION_BACKWARD, (hri_attr){.i = {1, 1024, 2, 2, 64, 0}},
       (hri_operand[]){tensor(&b, HRI_READ, 1024, 128)}, 1);
  near(seconds(&b), hri_node_flops(&b.job, b.node) / 7e9);
  hri_job_deinit(&b.job);
}

/* ---- interpolation ---- */

static void test_rates_are_interpolated_and_held_beyond_the_ends(void **state) {
  bench b;
  double *row = b.device.rates.tables[0].product_flops[0][2];
  (void)state;
  begin(&b, 0);
  row[1] = 1e9;
  row[3] = 4e9; /* 2^28 and 2^34; 2^31 lies halfway and was not measured */
  linear(&b, 1024, 1024, 1024);
  near(seconds(&b), 2147483648.0 / 2e9);
  linear(&b, 4096, 4096, 4096);
  near(seconds(&b), 137438953472.0 / 4e9);
  row[1] = 0;
  linear(&b, 512, 512, 512);
  near(seconds(&b), 268435456.0 / 4e9);
  hri_job_deinit(&b.job);
}

/* While rates do not fall with size faster than the size grows, more work never takes less time. */
static void test_more_work_takes_longer(void **state) {
  bench b;
  double before = 0;
  (void)state;
  begin(&b, 1e9);
  for (uint32_t k = 0; k < HR_PRODUCT_SIZES; k++)
    b.device.rates.tables[0].product_flops[0][2][k] = 1e9 * (double)(1u << k) / (k == 3 ? 3 : 1);
  for (uint64_t m = 512; m < 40000; m += m / 3) {
    linear(&b, m, 600, 700);
    assert_true(seconds(&b) > before);
    before = seconds(&b);
  }
  hri_job_deinit(&b.job);
}

static void test_missing_entries_fall_back(void **state) {
  bench b;
  double roofline;
  (void)state;
  begin(&b, 0);
  linear(&b, 512, 512, 512);
  roofline = seconds(&b); /* an empty table: the roofline */
  assert_true(roofline > 268.0);
  b.device.rates.tables[0].product_flops[0][0][1] = 2e9; /* only thin ones were measured: they stand in */
  near(seconds(&b), 268435456.0 / 2e9);
  b.device.rates.tables[0].product_flops[0][1][1] = 5e9; /* the nearer side comes first */
  near(seconds(&b), 268435456.0 / 5e9);
  b.job.team = 3; /* measured for another team */
  near(seconds(&b), roofline);
  assert_false(hri_cost_measured(&b.job, &b.device));
  hri_job_deinit(&b.job);
}

/* ---- rates of a card ---- */

static void as_card(bench *b) {
  (void)strcpy(b->device.rates.card, "GPU-1");
  b->device.rates.threads = b->job.team = 1;
  b->device.node_seconds = 0;
  b->device.flops_bf16 = 8e6;
  b->device.flops_tf32 = 4e6;
  b->device.flops_fp16 = 8e6;
}

static void retype(bench *b, hri_dtype dtype) {
  for (size_t k = 0; k < b->job.tensors.count; k++) b->job.tensors.items[k].dtype = (uint8_t)dtype;
}

/* fp16 goes by what was measured in bf16, tf32 by what is published, and a type never by the other's measurements. */
static void test_types_of_a_card(void **state) {
  bench b;
  (void)state;
  begin(&b, 1e9);
  as_card(&b);
  linear(&b, 512, 512, 512);
  near(seconds(&b), 268435456.0 / 1e9);
  b.job.tf32 = true;
  near(seconds(&b), 268435456.0 / 4e6);
  b.job.tf32 = false;
  retype(&b, HRI_BF16);
  near(seconds(&b), 268435456.0 / 8e6); /* nothing was measured in bf16: not a thing of fp32's rates */
  for (uint32_t k = 0; k < HR_PRODUCT_SIZES; k++) b.device.rates.tables[1].product_flops[0][2][k] = 9e9;
  near(seconds(&b), 268435456.0 / 9e9);
  retype(&b, HRI_F16);
  near(seconds(&b), 268435456.0 / 9e9);
  b.device.rates.card[0] = 0; /* a CPU widens it */
  near(seconds(&b), 268435456.0 / 1e9);
  hri_job_deinit(&b.job);
}

/* A copy's bytes go over the link once, each way at its own rate. */
static void test_links_of_a_card(void **state) {
  bench b;
  double assumed;
  (void)state;
  begin(&b, 1e9);
  as_card(&b);
  b.device.link_bytes_per_second = 5e9;
  make(&b, HRI_OP_COPY, (hri_attr){0},
       (hri_operand[]){tensor(&b, HRI_READ, 256, 1024), tensor(&b, HRI_WRITE, 256, 1024)}, 2);
  near(seconds(&b), 2097152.0 / 1e9); /* on the compute lane it is a stream */
  b.node->lane = HRI_COPY_OUT;
  assumed = seconds(&b); /* no link was measured */
  near(assumed, hri_assumed_seconds(&b.job, b.node, &b.device));
  b.device.rates.link_bytes_per_second[HR_LINK_TO_HOST] = 2e9;
  b.device.rates.link_bytes_per_second[HR_LINK_FROM_HOST] = 4e9;
  b.device.rates.node_seconds = 1e-4;
  near(seconds(&b), 1048576.0 / 2e9 + 1e-4);
  b.node->lane = HRI_COPY_IN;
  near(seconds(&b), 1048576.0 / 4e9 + 1e-4);
  hri_job_deinit(&b.job);
}

/* ---- the file ---- */

static const char *directory;

static hr_device_rates some_rates(void) {
  hr_device d;
  hr_error error;
  hr_device_rates r = {.threads = 2, .date = "2026-01-02", .node_seconds = 1.25e-6, .fixed_bytes = 9u << 20};
  hri_backend *cpu;
  assert_int_equal(hr_device_find("cpu", &d, &error), HR_OK);
  assert_int_equal(cpu_open(2, &cpu, &error), HR_OK);
  memcpy(r.instruction_set, cpu->instruction_set, sizeof r.instruction_set);
  memcpy(r.libraries, cpu->libraries, sizeof r.libraries);
  hri_backend_close(cpu);
  for (int k = 0; k < HR_PRODUCT_KINDS; k++)
    for (int s = 0; s < HR_PRODUCT_SIDES; s++)
      for (int z = 0; z < HR_PRODUCT_SIZES; z++)
        r.tables[0].product_flops[k][s][z] = 1e9 / 3 * (k + 1) * (s + 1) * (z + 1);
  for (int k = 0; k < HR_STREAM_COUNT; k++) r.tables[0].stream_bytes[k][0] = 1e10 + k;
  for (int k = 0; k < HR_ATTENTION_SIZES; k++) r.tables[1].attention_flops[1][k] = 2e10 + k;
  return r;
}

static void test_what_is_stored_is_found(void **state) {
  hr_device_rates r = some_rates();
  hr_device d;
  hr_error error;
  hr_plan *plan;
  hr_job job;
  char path[512];
  (void)state;
  assert_int_equal(hr_device_find("cpu", &d, &error), HR_OK);
  assert_true(d.rates.threads == 0 && !d.fixed_measured); /* the directory is empty */
  if (hr_device_store(&r, path, sizeof path, &error) != HR_OK) fail_msg("%s", error.message);
  assert_non_null(strstr(path, directory));
  assert_true(hr_device_load(&d, 2));
  assert_memory_equal(&d.rates, &r, sizeof r);
  assert_true(d.fixed_measured && d.fixed_bytes == 9u << 20);
  assert_false(hr_device_load(&d, 7)); /* another team */
  hr_job_init(&job);                   /* a plan for that team takes it, for another it assumes */
  assert_int_equal(hr_model_open("micro-llama-bytes", &job.model, &error), HR_OK);
  assert_int_equal(hr_device_find("cpu", &job.device, &error), HR_OK);
  job.threads = 2;
  job.sequence_length = 512; /* a row of data takes two pages */
  assert_int_equal(hr_job_finish(&job, &error), HR_OK);
  assert_int_equal(hr_plan_create(&job, &plan, &error), HR_OK);
  assert_true(hr_plan_get(plan)->time_measured && hr_plan_get(plan)->tiers[0].fixed_measured);
  assert_int_equal(hr_plan_get(plan)->tiers[0].fixed_bytes,
                   hri_round_up((9u << 20) + hr_plan_get(plan)->plan_bytes + 512 * 16, 4096));
  hr_plan_destroy(plan);
  job.threads = 3;
  assert_int_equal(hr_plan_create(&job, &plan, &error), HR_OK);
  assert_false(hr_plan_get(plan)->time_measured);
  hr_plan_destroy(plan);
}

/* Writes `text` where the stored probe is, with `from` replaced by `to`. */
static void damage(const char *path, const char *text, const char *from, const char *to) {
  char *at = strstr(text, from), *bytes;
  size_t head;
  assert_non_null(at);
  head = (size_t)(at - text);
  bytes = malloc(strlen(text) + strlen(to) + 1);
  assert_non_null(bytes);
  (void)sprintf(bytes, "%.*s%s%s", (int)head, text, to, at + strlen(from));
  assert_int_equal(hri_file_replace(path, bytes, strlen(bytes), NULL), HR_OK);
  free(bytes);
}

static void test_a_damaged_or_foreign_file_is_ignored(void **state) {
  static const char *const damages[][2] = {{"\"schema_version\": 3", "\"schema_version\": 4"},
                                           {"\"threads\": 2", "\"threads\": 4"},
                                           {"\"cpu\": \"", "\"cpu\": \"not "},
                                           {"\"libraries\": \"", "\"libraries\": \"x"},
                                           {"\"instruction_set\": \"", "\"instruction_set\": \"x"},
                                           {"\"node_seconds\": ", "\"node_seconds\": -"},
                                           {"\"node_seconds\"", "\"node\""},
                                           {"\"fixed_bytes\": ", "\"fixed_bytes\": 99999999"},
                                           {"\"product_flops\": [", "\"product_flops\": [1.0,"},
                                           {"\"attention_flops\": [", "\"attention_flops\": [null,"},
                                           {"\"stream_bytes\": [", "\"stream_bytes\": [-1.0, \"a\","},
                                           {"}", ""}};
  hr_device_rates r = some_rates();
  hr_device d, before;
  hr_error error;
  char path[512], *text;
  uint64_t count;
  (void)state;
  assert_int_equal(hr_device_store(&r, path, sizeof path, &error), HR_OK);
  assert_int_equal(hri_file_read(path, 1 << 20, &text, &count, &error), HR_OK);
  assert_int_equal(hr_device_find("cpu", &before, &error), HR_OK);
  memset(&before.rates, 0, sizeof before.rates);
  for (size_t k = 0; k < sizeof damages / sizeof *damages; k++) {
    d = before;
    damage(path, text, damages[k][0], damages[k][1]);
    if (hr_device_load(&d, 2)) fail_msg("damage %zu is taken for a probe", k);
    assert_memory_equal(&d, &before, sizeof d);
    assert_int_equal(hr_device_find("cpu", &d, &error), HR_OK);
  }
  for (uint64_t cut = 0; cut + 2 < count; cut += 97) { /* cut off anywhere */
    assert_int_equal(hri_file_replace(path, text, cut, NULL), HR_OK);
    assert_false(hr_device_load(&d, 2));
  }
  assert_int_equal(hri_file_replace(path, text, count, NULL), HR_OK);
  assert_true(hr_device_load(&d, 2)); /* the test's own premise */
  hri_free(text);
}

/* Processors of one name are told apart, and what is stored is this one's. */
static void test_a_name_is_not_a_processor(void **state) {
  const hri_cpu_facts zen4 = {.make = HRI_CPU_AMD, .family = 25, .model = 17}, zen5 = {.family = 26, .model = 2},
                      none = {0};
  char one[HRI_CPU_IDENTITY_BYTES], other[HRI_CPU_IDENTITY_BYTES], path[512], *text;
  hr_device_rates r = some_rates();
  hr_error error;
  uint64_t bytes;
  (void)state;
  hri_cpu_identity_of("AMD EPYC", &zen4, one);
  hri_cpu_identity_of("AMD EPYC", &zen5, other);
  assert_string_equal(one, "AMD EPYC, family 25, model 17");
  assert_string_equal(other, "AMD EPYC, family 26, model 2");
  hri_cpu_identity_of("Arm Neoverse-V2", &none, one);
  assert_string_equal(one, "Arm Neoverse-V2");
  hri_cpu_identity(one);
  assert_int_equal(hr_device_store(&r, path, sizeof path, &error), HR_OK);
  assert_int_equal(hri_file_read(path, 1 << 20, &text, &bytes, &error), HR_OK);
  assert_non_null(strstr(text, one));
  hri_free(text);
  assert_int_equal(hri_dir_remove(directory, &error), HR_OK);
}

/* ---- the stored choice of products ---- */

/* Rates of one code a tenth above the others. */
static hr_device_rates rates_for(hri_gemm_code fastest) {
  hr_device_rates r = some_rates();
  for (int code = 0; code < HR_PRODUCT_CODES; code++)
    for (int row = 0; row < HR_PRODUCT_ROWS; row++)
      for (int width = 0; width < HR_PRODUCT_WIDTHS; width++)
        r.codes.flops[code][row][width] = code == (int)fastest ? 1.1e11 : 1e11;
  (void)snprintf(r.libraries, sizeof r.libraries, "products 2, bf16 by %s", hri_gemm_code_name(fastest));
  return r;
}

/* It holds for every team; rates of a team hold for the products that they were measured with. */
static void test_the_choice_is_stored_for_all_teams(void **state) {
  hri_isa level;
  hr_error error;
  (void)state;
  assert_int_equal(hri_cpu_isa_choose(getenv("HEADROOM_ISA"), &level, &error), HR_OK);
  for (int code = 0; code < HRI_GEMM_CODE_COUNT; code++) {
    hr_device_rates r = rates_for((hri_gemm_code)code);
    char path[512], digest[24] = "";
    hr_device d;
    hri_backend *cpu;
    if (!hri_gemm_has(level, (hri_gemm_code)code, 1)) continue;
    assert_int_equal(hr_device_store(&r, path, sizeof path, &error), HR_OK);
    for (uint32_t threads = 1; threads < 4; threads++) {
      assert_int_equal(cpu_open(threads, &cpu, &error), HR_OK);
      assert_int_equal(cpu->products.origin, HR_PRODUCTS_MEASURED);
      assert_string_equal(cpu->products.text, cpu->libraries);
      assert_non_null(strstr(cpu->libraries, hri_gemm_code_name((hri_gemm_code)code)));
      assert_true(!digest[0] || strcmp(digest, cpu->products.digest) == 0);
      assert_int_equal(strlen(cpu->products.digest), 21);
      memcpy(digest, cpu->products.digest, sizeof digest);
      assert_true((cpu->device.rates.threads == 2) == (threads == 2));
      hri_backend_close(cpu);
    }
    assert_int_equal(hr_device_find("cpu", &d, &error), HR_OK);
    (void)strcpy(d.products, "shipped"); /* whatever is stored */
    assert_int_equal(hri_backend_open(&d, 2, &cpu, &error), HR_OK);
    assert_true(cpu->products.origin == HR_PRODUCTS_SHIPPED && !cpu->products.digest[0]);
    hri_backend_close(cpu);
    (void)strcpy(d.products, "products 2, bf16 by guessing");
    assert_int_equal(hri_backend_open(&d, 2, &cpu, &error), HR_ERROR_USAGE);
    assert_non_null(strstr(error.message, "guessing"));
  }
  assert_int_equal(hri_dir_remove(directory, &error), HR_OK);
}

/* What others take from one side of a round decides nothing: a code leads by what three of four rounds say. The first row is
 * of a busy machine, where medians chose a code of 0.6 times the rate. */
static void test_a_lead_is_of_most_rounds(void **state) {
  static const struct {
    double quotients[9];
    uint32_t count;
    double lead;
  } cases[] = {{{0.58, 3.1, 0.61, 1.4, 1.2}, 5, 0.61},
               {{1.7, 1.69, 0.4, 1.72, 1.71}, 5, 1.69},
               {{1.2, 1.3, 0.9}, 3, 0.9},
               {{1.2, 1.3, 1.25, 0.9}, 4, 1.2},
               {{1.1, 1.1, 0.5, 0.5, 1.1, 1.1, 1.1, 1.1, 1.1}, 9, 1.1},
               {{1.1, 0.7, 0.5, 0.5, 1.1, 1.1, 1.1, 1.1, 1.1}, 9, 0.7},
               {{2}, 1, 2}};
  (void)state;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    double quotients[9];
    memcpy(quotients, cases[k].quotients, sizeof quotients);
    assert_true(hri_probe_lead(quotients, cases[k].count) == cases[k].lead);
  }
}

static void test_refusals(void **state) {
  hr_device_rates none = {0}, r = some_rates();
  hr_error error;
  (void)state;
  assert_int_equal(hr_device_store(&none, NULL, 0, &error), HR_ERROR_USAGE);
  assert_int_equal(setenv("HEADROOM_CACHE", "/dev/null/x", 1), 0);
  assert_int_equal(hr_device_store(&r, NULL, 0, &error), HR_ERROR_IO);
  assert_int_equal(hr_device_can_store(&error), HR_ERROR_IO); /* before anything is measured */
  assert_int_equal(setenv("HEADROOM_CACHE", path_of("%s/not/there", directory), 1), 0);
  assert_int_equal(hr_device_can_store(&error), HR_OK);
  assert_false(hri_path_exists(path_of("%s/not", directory)));
  assert_int_equal(setenv("HEADROOM_CACHE", directory, 1), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_updates_count_their_arithmetic),
                                     cmocka_unit_test(test_products_are_classed_by_kind_side_and_size),
                                     cmocka_unit_test(test_each_kind_reads_its_own_rate),
                                     cmocka_unit_test(test_streams_and_attention_read_their_own_rows),
                                     cmocka_unit_test(test_rates_are_interpolated_and_held_beyond_the_ends),
                                     cmocka_unit_test(test_more_work_takes_longer),
                                     cmocka_unit_test(test_missing_entries_fall_back),
                                     cmocka_unit_test(test_types_of_a_card),
                                     cmocka_unit_test(test_links_of_a_card),
                                     cmocka_unit_test(test_what_is_stored_is_found),
                                     cmocka_unit_test(test_a_damaged_or_foreign_file_is_ignored),
                                     cmocka_unit_test(test_a_name_is_not_a_processor),
                                     cmocka_unit_test(test_the_choice_is_stored_for_all_teams),
                                     cmocka_unit_test(test_a_lead_is_of_most_rounds),
                                     cmocka_unit_test(test_refusals)};
  int failed;
  directory = scratch_make("probe");
  if (setenv("HEADROOM_CACHE", directory, 1) != 0) return 1;
  failed = cmocka_run_group_tests(tests, NULL, NULL);
  (void)hri_dir_remove(directory, NULL);
  return failed;
}
