/* The CUDA backend on the GPU in software, through the code that every job runs through: what it trains is what the
 * CPU trains within rounding, whatever the order that streams allow, in exactly the planned bytes. A finding of the
 * software GPU is an error of whoever waits, so nothing here passes with one. */
#include "support/runs.h"

#include "backend/cpu/cpu.h"
#include "gpu/soft_backend.h"

/* Stands in for src/backend/open.c. */
hr_status hri_backend_open(const hr_device *device, uint32_t threads, hri_backend **backend, hr_error *error) {
  return strcmp(device->backend, HRI_CUDA_NAME) == 0 ? soft_backend_open(device, backend, error)
                                                     : hri_cpu_open(device, threads, backend, error);
}
bool hri_backend_measured(hr_device *device, uint32_t threads) { return (void)device, (void)threads, false; }
hr_status hri_backend_store(const hr_device_rates *rates, char *path, uint32_t path_bytes, hr_error *error) {
  return (void)rates, (void)path, (void)path_bytes, hri_fail(error, HR_ERROR_UNSUPPORTED, "nothing is stored here");
}

static void steps_device(hr_device *device) {
  (void)snprintf(device->name, sizeof device->name, HRI_CUDA_NAME);
  (void)snprintf(device->backend, sizeof device->backend, HRI_CUDA_NAME);
  device->has_team = device->packs = false;
  device->library_workspace_bytes = 4 << 20;
}
bool hri_backend_finds(const char *name, hr_device *device, hr_status *status, hr_error *error) {
  (void)name, (void)device, (void)status, (void)error;
  return false;
}

static const char *const models[] = {"micro-gpt2-bytes", "micro-llama-bytes", "micro-gemma2-bytes",
                                     "micro-qwen3-bytes"};

/* What rounding alone does to a job on the CPU, as a part of what training moves weights by: in fp32 sums in another
 * order (those of another instruction level), in bf16 against fp32. */
static double rounding(variant v) {
  outcome one, other;
  double part;
  v.on_other = false;
  one = train(&v);
  if (v.precision == HR_PRECISION_FP32) (void)setenv("HEADROOM_ISA", "base", 1);
  v.precision = HR_PRECISION_FP32;
  other = train(&v);
  (void)unsetenv("HEADROOM_ISA");
  part = rms(one.after, other.after, one.count) / rms(other.before, other.after, one.count);
  drop(&one);
  drop(&other);
  return part;
}

static void compare(variant v, const char *what) {
  v.bound = 2 * rounding(v);
  compare_with_cpu(v, what);
}

static void families_train_as_on_the_cpu(void **state) {
  (void)state;
  for (size_t m = 0; m < 4; m++) compare((variant){.model = models[m], .optimizer = HR_OPTIMIZER_ADAMW}, "fp32");
  compare((variant){.model = models[0], .optimizer = HR_OPTIMIZER_ADAMW, .precision = HR_PRECISION_BF16}, "bf16");
}

static void techniques_train_as_on_the_cpu(void **state) {
  static const struct {
    const char *what;
    variant v;
  } cases[] = {
      {"recomputed, poisoned", {.optimizer = HR_OPTIMIZER_ADAMW, .recompute = "block", .check = true}},
      {"two micro-steps", {.optimizer = HR_OPTIMIZER_MOMENTUM, .accumulate = 2, .precision = HR_PRECISION_BF16}},
      {"updates inside the backward", {.optimizer = HR_OPTIMIZER_SGD, .in_backward = true}},
      {"with the host tier", {.optimizer = HR_OPTIMIZER_LION, .compile = {.offload_bytes = 1, .offload_distance = 2}}},
      {"fp16, with guards", {.optimizer = HR_OPTIMIZER_MOMENTUM, .precision = HR_PRECISION_FP16}},
      {"with DoRA", {.optimizer = HR_OPTIMIZER_MOMENTUM, .lora = "r=4,alpha=8,dora"}},
      {"with states of 8 bits", {.optimizer = HR_OPTIMIZER_ADAMW8BIT}},
      {"with factored states", {.optimizer = HR_OPTIMIZER_ADAFACTOR}},
  };
  (void)state;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    variant v = cases[k].v;
    v.model = models[k % 2];
    compare(v, cases[k].what);
  }
}

/* ---- products with more of the backward in them ---- */

static uint32_t nodes_of(const variant *v, uint16_t op) {
  hri_session s = {0};
  hr_error error = {0};
  hr_job job;
  uint32_t count = 0;
  describe(v, &job);
  must(hri_session_plan(&s, &job, &v->compile, &error), &error);
  for (size_t at = 0; at < s.plan->job.programs[HRI_STEP].order.count; at++)
    count += s.plan->job.nodes.items[s.plan->job.programs[HRI_STEP].order.items[at]].op == op;
  hri_session_close(&s);
  return count;
}

/* Slopes of gelu by tanh in bf16 alone; biases where gradients are fp32 and written once. */
static void products_take_what_their_library_has(void **state) {
  variant v = {.model = models[0], .optimizer = HR_OPTIMIZER_ADAMW, .precision = HR_PRECISION_BF16, .on_other = true};
  const uint32_t layers = 2;
  (void)state;
  assert_int_equal(nodes_of(&v, HRI_OP_LINEAR_DX_ACTIVATION), layers);
  assert_int_equal(nodes_of(&v, HRI_OP_ACTIVATION_BACKWARD), 0);
  assert_int_equal(nodes_of(&v, HRI_OP_LINEAR_DW_BIAS), 4 * layers);
  assert_int_equal(nodes_of(&v, HRI_OP_BIAS_GRADIENT), 0);
  v.compile.no_fuse = true;
  assert_int_equal(nodes_of(&v, HRI_OP_LINEAR_DX_ACTIVATION) + nodes_of(&v, HRI_OP_LINEAR_DW_BIAS), 0);
  v.compile.no_fuse = false;
  v.precision = HR_PRECISION_FP32;
  assert_int_equal(nodes_of(&v, HRI_OP_LINEAR_DX_ACTIVATION), 0);
  assert_int_equal(nodes_of(&v, HRI_OP_LINEAR_DW_BIAS), 4 * layers);
  v.precision = HR_PRECISION_BF16_PURE; /* gradients of weights are bf16, of biases fp32 */
  assert_int_equal(nodes_of(&v, HRI_OP_LINEAR_DW_BIAS), 0);
  v.precision = HR_PRECISION_BF16;
  v.on_other = false; /* the CPU has none of it */
  assert_int_equal(nodes_of(&v, HRI_OP_LINEAR_DX_ACTIVATION) + nodes_of(&v, HRI_OP_LINEAR_DW_BIAS), 0);
}

/* They are the same whatever is made again or goes to the host, so these change no bit. */
static void what_is_made_again_changes_no_bit(void **state) {
  static const char *const ways[] = {"selective", "block", "levels:keep,block"};
  variant v = {.model = models[0], .optimizer = HR_OPTIMIZER_ADAMW, .precision = HR_PRECISION_BF16, .on_other = true};
  outcome plain = train(&v), other;
  (void)state;
  for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
    v.recompute = ways[k];
    other = train(&v);
    if (!same_bits(&plain, &other)) fail_msg("--recompute %s has other bits", ways[k]);
    drop(&other);
  }
  v.recompute = NULL;
  v.compile = (hri_compile_options){.offload_bytes = 1, .offload_distance = 2};
  other = train(&v);
  if (!same_bits(&plain, &other)) fail_msg("saved activations on the host have other bits");
  drop(&other);
  drop(&plain);
}

/* The same plan, by kernels of ours behind the library's products; the bits of the slope are others, as its argument was
 * rounded before. */
static void a_library_without_epilogues_trains_too(void **state) {
  variant v = {.model = models[0], .optimizer = HR_OPTIMIZER_ADAMW, .precision = HR_PRECISION_BF16, .on_other = true};
  outcome fused = train(&v), apart;
  (void)state;
  soft_device.plain = true;
  apart = train(&v);
  assert_false(same_bits(&fused, &apart));
  compare(v, "bf16, without epilogues");
  v.precision = HR_PRECISION_FP32;
  v.check = true;
  compare(v, "fp32, without epilogues, poisoned");
  soft_device.plain = false;
  drop(&fused);
  drop(&apart);
}

/* ---- orders ---- */

static const variant with_lanes = {.model = "micro-gpt2-bytes",
                                   .optimizer = HR_OPTIMIZER_ADAMW,
                                   .on_other = true,
                                   .compile = {.offload_bytes = 1, .offload_distance = 1}};

static void any_order_gives_the_same_bits(variant v, uint64_t orders) {
  outcome first = train(&v), again;
  assert_true(first.host_bytes > 0);
  for (soft_device.seed = 1; soft_device.seed <= orders; soft_device.seed++) {
    v.check = soft_device.seed % 2;
    again = train(&v);
    if (!same_bits(&first, &again)) fail_msg("order seed %llu", (unsigned long long)soft_device.seed);
    drop(&again);
  }
  soft_device.seed = 0;
  drop(&first);
}

/* Also where products of two types and codes lie between the copies. */
static void every_order_gives_the_same_bits(void **state) {
  uint64_t orders = getenv("HEADROOM_TEST_LONG") ? 20 : 2;
  variant v = with_lanes;
  (void)state;
  any_order_gives_the_same_bits(v, orders);
  v.model = models[1];
  v.lora = "r=4";
  v.precision = HR_PRECISION_BF16;
  any_order_gives_the_same_bits(v, orders);
  v.quantize = HR_QUANTIZE_NF4_DQ;
  any_order_gives_the_same_bits(v, orders);
}

/* ---- faults that must be seen ---- */

/* A job that is loaded and about to run. */
static void begin(hri_session *s, const variant *v, void (*harm)(hri_job *job)) {
  hr_error error = {0};
  hr_job job;
  describe(v, &job);
  memset(s, 0, sizeof *s);
  must(hri_session_plan(s, &job, &v->compile, &error), &error);
  harm(&s->plan->job);
  must(hri_session_load(s, NULL, NULL, &error), &error);
}

static void forget_waits(hri_job *job) {
  for (size_t n = 0; n < job->nodes.count; n++) job->nodes.items[n].wait_count = 0;
}

static void a_missing_wait_is_found(void **state) {
  hri_control left;
  hri_mark mark;
  hri_session s;
  hr_error error = {0};
  (void)state;
  begin(&s, &with_lanes, forget_waits);
  launch_step(&s, &with_lanes, 0, &left, &mark);
  assert_int_equal(hri_executor_wait(s.executor, mark, &error), HR_ERROR_INTERNAL);
  assert_non_null(strstr(error.message, "missing wait between streams"));
  hri_session_close(&s);
  assert_true(soft_device.findings > 0);
}

/* The rows of the first layer's output end where the guard behind them is taken to begin too early. */
static void shorten(hri_job *job) {
  for (size_t at = 0; at < job->programs[HRI_STEP].order.count; at++) {
    const hri_node *node = &job->nodes.items[job->programs[HRI_STEP].order.items[at]];
    if (node->op != HRI_OP_ACTIVATION) continue;
    job->storages.items[job->tensors.items[hri_operands(job, node)[1].tensor].storage].bytes -= 64;
    return;
  }
}

static void bytes_behind_a_storage_are_found(void **state) {
  const variant v = {.model = models[0], .optimizer = HR_OPTIMIZER_ADAMW, .on_other = true, .check = true};
  hri_session s;
  hr_error error = {0};
  (void)state;
  begin(&s, &v, shorten);
  feed(&s, 0, 1);
  assert_int_equal(hri_executor_launch(s.executor, HRI_STEP, &error), HR_ERROR_MISMATCH);
  assert_non_null(strstr(error.message, "activation"));
  hri_session_close(&s);
}

/* ---- bytes ---- */

static void nothing(hri_job *job) { (void)job; }

static uint64_t device_bytes(void) {
  hri_gpu_info info;
  hr_error error = {0};
  must(soft_device.gpu->calls->info(soft_device.gpu, &info, &error), &error);
  return info.total_bytes - info.free_bytes;
}

/* The device holds the arena and nothing else, from the load to the last step. */
static void the_device_holds_what_was_planned(void **state) {
  const variant v = {.model = models[1], .optimizer = HR_OPTIMIZER_ADAMW, .on_other = true};
  const hr_tier_plan *host;
  hri_session s;
  hr_error error = {0};
  (void)state;
  begin(&s, &v, nothing);
  host = &s.plan->info.tiers[HR_TIER_HOST];
  assert_true(host->reserved_bytes > 0 && host->fixed_bytes > 0);
  assert_int_equal(soft_device.pinned, host->reserved_bytes + host->fixed_bytes); /* the arena, and slots */
  assert_int_equal(device_bytes(), s.plan->info.tiers[HR_TIER_DEVICE].reserved_bytes);
  for (uint64_t step = 0; step < 3; step++) {
    hri_control left;
    hri_mark mark;
    launch_step(&s, &v, step, &left, &mark);
    must(hri_executor_wait(s.executor, mark, &error), &error);
    assert_int_equal(device_bytes(), s.plan->info.tiers[HR_TIER_DEVICE].reserved_bytes);
  }
  assert_int_equal(soft_device.pinned, host->reserved_bytes + host->fixed_bytes); /* steps pin nothing */
  hri_session_close(&s);
}

/* A warning of whoever runs it. */
static void take_warning(void *context, const hr_event *event) {
  if (event->kind == HR_EVENT_WARNING && strstr(event->text, "grew by")) strcpy(context, event->text);
}

/* What a driver takes while programs run is seen at the end of the step, told once, and stays known. */
static void memory_that_grows_is_told(void **state) {
  const variant v = {.model = models[1], .optimizer = HR_OPTIMIZER_ADAMW, .on_other = true};
  char told[512] = "";
  hri_session s;
  (void)state;
  soft_device.grows = 2;
  begin(&s, &v, nothing);
  s.on_event = take_warning;
  s.context = told;
  for (uint64_t step = 0; step < 4; step++) {
    hri_control left;
    hri_mark mark;
    hr_error error = {0};
    uint64_t bytes = 1;
    launch_step(&s, &v, step, &left, &mark);
    must(hri_executor_wait(s.executor, mark, &error), &error);
    assert_true(hri_session_watch(&s, NULL, &bytes));
    assert_int_equal(bytes, step == 0 ? 0 : 4096);
    assert_true((told[0] != 0) == (step == 1)); /* once */
    if (told[0]) assert_non_null(strstr(told, "what is held of the device grew by 4.00 KiB"));
    if (told[0]) assert_non_null(strstr(told, "while step ran"));
    told[0] = 0;
  }
  hri_session_close(&s);
  soft_device.grows = 0;
}

/* Somebody took the memory between plan and start. */
static void a_device_without_room_is_refused(void **state) {
  const variant v = {.model = models[1], .optimizer = HR_OPTIMIZER_ADAMW, .on_other = true};
  hri_session s = {0};
  hr_error error = {0};
  hr_job job;
  (void)state;
  describe(&v, &job);
  soft_device.memory_bytes = 1 << 20;
  assert_int_equal(hri_session_plan(&s, &job, NULL, &error), HR_ERROR_BUDGET);
  assert_non_null(strstr(error.message, "software GPU, which has 1.00 MiB free"));
  hri_session_close(&s);
  soft_device.memory_bytes = 0;
}

/* Each event that fails while programs are captured and behind that: told, and all is released, once. */
static void captures_that_fail_leave_nothing(void **state) {
  const variant v = {.model = models[1], .optimizer = HR_OPTIMIZER_ADAMW, .on_other = true};
  hr_status status = HR_ERROR_INTERNAL;
  const uint64_t findings = soft_device.findings;
  uint64_t failed = 0;
  (void)state;
  for (soft_device.fails = 1; status != HR_OK; soft_device.fails++) {
    hri_session s = {0};
    hr_error error = {0};
    hr_job job;
    describe(&v, &job);
    assert_int_equal(hri_session_plan(&s, &job, NULL, &error), HR_OK);
    status = hri_session_load(&s, NULL, NULL, &error);
    if (status != HR_OK) {
      failed++;
      assert_int_equal(status, HR_ERROR_INTERNAL);
      assert_string_equal(error.message, "a record that fails");
    }
    hri_session_close(&s);
    assert_int_equal(soft_device.made, soft_device.gone);
    assert_int_equal(soft_device.open, 0);
  }
  soft_device.fails = 0;
  assert_true(failed >= 2);
  assert_int_equal(soft_device.findings, findings);
}

/* ---- what there is no kernel for ---- */

/* What a legal job can hold and no kernel has: tests/gpu/test_cuda_jobs.c shows that it is all. */
static void a_missing_kernel_is_told_by_the_plan(void **state) {
  variant v = {.model = models[1], .optimizer = HR_OPTIMIZER_ADAMW, .on_other = true};
  hr_error error = {0};
  hr_plan *plan;
  hr_job job;
  (void)state;
  describe(&v, &job);
  job.model.head_size = 258;
  job.model.rotary_size = 258;
  assert_int_equal(hr_plan_create(&job, &plan, &error), HR_ERROR_UNSUPPORTED);
  assert_string_equal(error.message,
                      "the CUDA backend has no kernel for attention with heads of more than 256 columns");
}

/* More rows than a launch has blocks for: of data in attention, of tokens in sums over them. */
static void more_rows_than_blocks_are_refused(void **state) {
  static const struct rows {
    uint32_t batch, sequence, head_size;
    hr_attention attention;
    const char *says;
  } cases[] = {{65535, 2, 0, HR_ATTENTION_FLASH, NULL},
               {65536, 2, 0, HR_ATTENTION_FLASH, "attention with more than 65535 rows of data at a time"},
               {65535, 64, 0, HR_ATTENTION_FLASH, NULL},
               {65535, 65, 0, HR_ATTENTION_FLASH, "_backward with more than 4194240 tokens at a time"},
               /* blocks share a wide head's columns, but where probabilities are kept */
               {32767, 2, 256, HR_ATTENTION_FLASH, NULL},
               {32768, 2, 256, HR_ATTENTION_FLASH, "attention with more than 32767 rows of data at a time"},
               {65535, 2, 256, HR_ATTENTION_MATERIALIZED, NULL},
               {65536, 2, 256, HR_ATTENTION_MATERIALIZED,
                "attention_materialized with more than 65535 rows of data at a time"}};
  (void)state;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    const struct rows *c = &cases[k];
    variant v = {.model = models[1], .optimizer = HR_OPTIMIZER_ADAMW, .on_other = true};
    hr_error error = {0};
    hr_plan *plan = NULL;
    hr_job job;
    describe(&v, &job);
    job.micro_batch = c->batch;
    job.sequence_length = c->sequence;
    job.attention = c->attention;
    if (c->head_size) job.model.head_size = job.model.rotary_size = c->head_size;
    job.loss_chunk = HR_LOSS_CHUNK_OFF; /* else thousands of chunks */
    assert_int_equal(hr_plan_create(&job, &plan, &error), c->says ? HR_ERROR_UNSUPPORTED : HR_OK);
    if (c->says) assert_non_null(strstr(error.message, c->says));
    if (c->says) assert_string_equal(error.hint, "give a smaller --micro-batch");
    hr_plan_destroy(plan);
  }
}

/* Without a driver, and without our library, the words name what is missing. */
static void what_a_real_device_lacks_is_named(void **state) {
  hri_cuda_kernels kernels;
  hri_backend *backend;
  hr_device device = {0};
  hr_error error = {0};
  hr_status status = hri_cuda_open(&device, &backend, &error);
  (void)state;
  if (status == HR_OK) hri_backend_close(backend);
  else assert_true(status == HR_ERROR_UNSUPPORTED && error.hint[0]);
  assert_int_equal(hri_cuda_kernels_load("libheadroom-nowhere.so", &kernels, &error), HR_ERROR_UNSUPPORTED);
  assert_non_null(
      strstr(error.message, "libheadroom-nowhere.so, the library of Headroom's kernels for GPUs, cannot be"));
  assert_int_equal(hri_cuda_kernels_load("libm.so.6", &kernels, &error), HR_ERROR_UNSUPPORTED);
  assert_string_equal(error.message, "libm.so.6 has no function hri_cuda_dequantize");
}

/* ---- whole runs ---- */

static void runs_train_save_and_go_on(void **state) {
  static const run_case cases[] = {{"plain", HR_OPTIMIZER_ADAMW, 1, 4, 0, 2, false, false},
                                   {"accumulated, evaluated", HR_OPTIMIZER_ADAMW, 2, 3, 2, 0, false, false},
                                   {"rows of many lengths", HR_OPTIMIZER_ADAMW, 1, 3, 0, 0, true, false},
                                   {"recorded", HR_OPTIMIZER_ADAMW, 1, 3, 0, 0, false, true}};
  (void)state;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) compare_run(&cases[k]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(families_train_as_on_the_cpu),
      cmocka_unit_test(techniques_train_as_on_the_cpu),
      cmocka_unit_test(products_take_what_their_library_has),
      cmocka_unit_test(what_is_made_again_changes_no_bit),
      cmocka_unit_test(a_library_without_epilogues_trains_too),
      cmocka_unit_test(memory_that_grows_is_told),
      cmocka_unit_test(every_order_gives_the_same_bits),
      cmocka_unit_test(a_missing_wait_is_found),
      cmocka_unit_test(bytes_behind_a_storage_are_found),
      cmocka_unit_test(the_device_holds_what_was_planned),
      cmocka_unit_test(a_device_without_room_is_refused),
      cmocka_unit_test(captures_that_fail_leave_nothing),
      cmocka_unit_test(a_missing_kernel_is_told_by_the_plan),
      cmocka_unit_test(more_rows_than_blocks_are_refused),
      cmocka_unit_test(a_release_keeps_reads_of_other_runs),
      cmocka_unit_test(what_a_real_device_lacks_is_named),
      cmocka_unit_test(runs_train_save_and_go_on),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
