/* Plans of twenty jobs as JSON: what the planning library says, compiled for this machine and for WebAssembly
 * (scripts/wasm.sh compares the two byte for byte). Families, precision, recomputation, packing of weights,
 * accumulation, generation, evaluation;
 * 7B and 70B; devices of the table and CPUs as a caller describes them. Left out is what depends on who plans: the time
 * and the host memory that making the plan took. Numbers are written so that no digit is lost.
 *
 *   plan_jobs [index]     one of them, or all; with an index also every node, tensor and offset (hr_plan_dump) */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <headroom/plan.h>

typedef struct one {
  const char *model, *device;
  uint32_t sequence, micro_batch, accumulate;
  hr_precision precision;
  const char *recompute;
  uint32_t threads;         /* of a CPU */
  const char *instructions; /* of a CPU: its level */
  hr_purpose purpose;
  hr_optimizer optimizer;
  hr_update update;
  hr_weight_packing weight_packing;
  uint64_t gib; /* budget; 0: that of the device */
} one;

static const one jobs[] = {
    {.model = "gpt2-124m", .device = "rtx-4090", .sequence = 1024, .micro_batch = 8, .accumulate = 1},
    {.model = "gpt2-124m",
     .device = "rtx-4090",
     .sequence = 1024,
     .micro_batch = 8,
     .accumulate = 4,
     .recompute = "block"},
    {.model = "gpt2-124m",
     .device = "cpu",
     .sequence = 256,
     .micro_batch = 4,
     .accumulate = 1,
     .threads = 2,
     .instructions = "avx512bf16",
     .gib = 8},
    {.model = "gpt2-124m",
     .device = "cpu",
     .sequence = 256,
     .micro_batch = 4,
     .accumulate = 1,
     .threads = 2,
     .instructions = "base",
     .gib = 8},
    {.model = "gpt2-124m",
     .device = "cpu",
     .sequence = 512,
     .micro_batch = 2,
     .accumulate = 2,
     .threads = 4,
     .instructions = "avx2",
     .recompute = "selective",
     .gib = 8},
    {.model = "gpt2-124m",
     .device = "cpu",
     .sequence = 1024,
     .micro_batch = 2,
     .accumulate = 1,
     .threads = 16,
     .instructions = "avx512",
     .optimizer = HR_OPTIMIZER_SGD,
     .gib = 16},
    {.model = "smollm2-135m",
     .device = "cpu",
     .sequence = 1024,
     .micro_batch = 2,
     .accumulate = 1,
     .threads = 8,
     .instructions = "avx512bf16",
     .precision = HR_PRECISION_BF16,
     .weight_packing = HR_WEIGHT_PACKING_TRANSIENT,
     .gib = 16},
    {.model = "smollm2-135m",
     .device = "cpu",
     .sequence = 2048,
     .micro_batch = 1,
     .accumulate = 1,
     .threads = 1,
     .instructions = "avx512bf16",
     .precision = HR_PRECISION_BF16_PURE,
     .recompute = "sqrt",
     .update = HR_UPDATE_IN_BACKWARD,
     .gib = 4},
    {.model = "smollm2-135m",
     .device = "cpu",
     .sequence = 512,
     .micro_batch = 1,
     .accumulate = 1,
     .threads = 4,
     .instructions = "avx512bf16",
     .precision = HR_PRECISION_BF16,
     .purpose = HR_PURPOSE_GENERATE,
     .gib = 4},
    {.model = "smollm2-135m",
     .device = "cpu",
     .sequence = 1024,
     .micro_batch = 4,
     .accumulate = 1,
     .threads = 4,
     .instructions = "avx512",
     .purpose = HR_PURPOSE_EVALUATE,
     .gib = 4},
    {.model = "qwen2.5-0.5b",
     .device = "rtx-3060",
     .sequence = 2048,
     .micro_batch = 1,
     .accumulate = 8,
     .precision = HR_PRECISION_BF16,
     .recompute = "every:4"},
    {.model = "qwen3-0.6b", .device = "t4", .sequence = 1024, .micro_batch = 2, .accumulate = 1, .recompute = "block"},
    {.model = "gemma-2-2b",
     .device = "a100-40",
     .sequence = 2048,
     .micro_batch = 1,
     .accumulate = 1,
     .precision = HR_PRECISION_BF16,
     .recompute = "selective"},
    {.model = "llama-3.2-1b",
     .device = "a10",
     .sequence = 2048,
     .micro_batch = 2,
     .accumulate = 2,
     .precision = HR_PRECISION_BF16_PURE,
     .optimizer = HR_OPTIMIZER_MOMENTUM},
    {.model = "mistral-7b",
     .device = "h100",
     .sequence = 4096,
     .micro_batch = 1,
     .accumulate = 1,
     .precision = HR_PRECISION_BF16_PURE,
     .recompute = "block"},
    {.model = "llama-2-7b",
     .device = "a100-80",
     .sequence = 4096,
     .micro_batch = 1,
     .accumulate = 1,
     .precision = HR_PRECISION_BF16,
     .recompute = "block"},
    {.model = "llama-2-7b",
     .device = "cpu",
     .sequence = 2048,
     .micro_batch = 1,
     .accumulate = 1,
     .threads = 16,
     .instructions = "avx512bf16",
     .precision = HR_PRECISION_BF16,
     .recompute = "block",
     .gib = 256},
    {.model = "llama-2-7b",
     .device = "rtx-4090",
     .sequence = 4096,
     .micro_batch = 1,
     .accumulate = 1,
     .recompute = "block"},
    {.model = "llama-2-70b",
     .device = "mi300x",
     .sequence = 4096,
     .micro_batch = 1,
     .accumulate = 1,
     .precision = HR_PRECISION_BF16_PURE,
     .recompute = "block"},
    {.model = "llama-2-70b",
     .device = "cpu",
     .sequence = 4096,
     .micro_batch = 1,
     .accumulate = 4,
     .threads = 8,
     .instructions = "avx512",
     .recompute = "sqrt",
     .gib = 2048},
};
enum { JOBS = sizeof jobs / sizeof *jobs };

static void check(hr_status status, const hr_error *error, const one *o) {
  if (status == HR_OK) return;
  (void)fprintf(stderr, "plan_jobs: %s on %s: %s; %s\n", o->model, o->device, error->message, error->hint);
  exit(1);
}

static void fill(const one *o, hr_job *job) {
  hr_error error;
  hr_job_init(job);
  check(hr_model_open(o->model, &job->model, &error), &error, o);
  check(hr_device_find(o->device, &job->device, &error), &error, o);
  if (o->instructions) {
    (void)snprintf(job->device.rates.instruction_set, sizeof job->device.rates.instruction_set, "%s", o->instructions);
    job->device.usable_bytes = o->gib << 30;
    job->device.capacity_bytes = o->gib << 30;
  }
  job->purpose = o->purpose;
  job->sequence_length = o->sequence;
  job->context_length = o->purpose == HR_PURPOSE_GENERATE ? o->sequence : 0;
  job->micro_batch = o->micro_batch;
  job->accumulate = o->accumulate;
  job->precision = o->precision;
  job->optimizer = o->optimizer;
  job->update = o->update;
  if (o->update == HR_UPDATE_IN_BACKWARD) job->clip = 0;
  job->weight_packing = o->weight_packing;
  job->threads = o->threads;
  if (o->recompute) check(hr_recompute_parse(o->recompute, &job->recompute, &error), &error, o);
  check(hr_job_finish(job, &error), &error, o);
}

static void put_counts(const char *name, const uint64_t *values, uint32_t count) {
  (void)printf(",\"%s\":[", name);
  for (uint32_t i = 0; i < count; i++) (void)printf("%s%llu", i ? "," : "", (unsigned long long)values[i]);
  (void)printf("]");
}
static void put_seconds(const char *name, const double *values, uint32_t count) {
  (void)printf(",\"%s\":[", name);
  for (uint32_t i = 0; i < count; i++) (void)printf("%s%.17g", i ? "," : "", values[i]);
  (void)printf("]");
}

static void put_tier(const hr_plan *plan, uint32_t index) {
  const hr_tier_plan *t = &hr_plan_get(plan)->tiers[index];
  const uint64_t bytes[] = {t->reserved_bytes, t->fixed_bytes, t->peak_bytes, t->lower_bound_bytes};
  (void)printf(",\"%s\":{\"peak\":\"%s %s %u %d\"", hr_tier_name(index), t->peak_program, t->peak_node, t->peak_phase,
               t->peak_layer);
  put_counts("reserved_fixed_peak_bound", bytes, 4);
  put_counts("at_peak_by_role", t->at_peak_by_role, HR_ROLE_COUNT);
  put_counts("max_by_role", t->max_by_role, HR_ROLE_COUNT);
  put_counts("peak_by_phase", t->peak_by_phase, HR_PHASE_COUNT);
  (void)printf(",\"live\":[");
  for (uint32_t i = 0; i < t->live_count; i++) {
    hr_live live;
    if (hr_plan_live(plan, index, i, &live))
      (void)printf("%s[\"%s\",\"%s\",%llu]", i ? "," : "", live.name, live.dtype, (unsigned long long)live.bytes);
  }
  (void)printf("]}");
}

static void put_plan(const one *o, const hr_plan *plan) {
  const hr_plan_info *info = hr_plan_get(plan);
  const uint64_t counts[] = {info->budget_bytes,  info->tokens_per_step, info->parameter_count,
                             info->program_count, info->node_count,      info->storage_count};
  (void)printf(
      "{\"model\":\"%s\",\"device\":\"%s\",\"fits\":%s,\"scratch\":\"%s\",\"step_seconds\":%.17g,\"flops\":%.17g",
      o->model, o->device, info->fits ? "true" : "false", info->scratch_exact ? "exact" : "estimate",
      info->step_seconds, info->flops_per_step);
  put_counts("budget_tokens_parameters_programs_nodes_storages", counts, 6);
  put_seconds("lane_seconds", info->lane_seconds, HR_LANE_COUNT);
  put_seconds("phase_seconds", info->phase_seconds, HR_PHASE_COUNT);
  for (uint32_t tier = 0; tier < HR_TIER_COUNT; tier++) put_tier(plan, tier);
  (void)printf("}\n");
}

/* The dump is megabytes; its hash (FNV-1a, of every byte) tells as much. */
static void put_dump(const hr_plan *plan, bool whole, const one *o) {
  uint64_t hash = 0xCBF29CE484222325u;
  hr_error error;
  char *text;
  check(hr_plan_dump(plan, true, &text, &error), &error, o);
  for (const char *c = text; *c; c++) hash = (hash ^ (unsigned char)*c) * 0x100000001B3u;
  (void)printf("{\"dump_bytes\":%llu,\"dump_hash\":\"%016llx\"}\n", (unsigned long long)strlen(text),
               (unsigned long long)hash);
  if (whole) (void)puts(text);
  hr_free(text);
}

int main(int argc, char **argv) {
  int only = argc > 1 ? atoi(argv[1]) : -1;
  static hr_job job;
  for (int i = 0; i < JOBS; i++) {
    hr_error error;
    hr_plan *plan;
    if (only >= 0 && i != only) continue;
    fill(&jobs[i], &job);
    check(hr_plan_create(&job, &plan, &error), &error, &jobs[i]);
    put_plan(&jobs[i], plan);
    put_dump(plan, only >= 0, &jobs[i]);
    hr_plan_destroy(plan);
  }
  return 0;
}
