/* What PyTorch would need (headroom/pytorch.h), held against recordings of PyTorch itself: tests/memory has, for jobs of
 * eight shapes and more settings, the allocated and reserved bytes that PyTorch's CUDA wheel counted in each phase on a
 * device without kernels. recorded.json.gz taught the rules; held_back.json.gz, drawn before, did not. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zlib.h>

#include <headroom/pytorch.h>

#include "base/json.h"
#include "frameworks/pytorch/aten.h"
#include "frameworks/pytorch/checkpoint.h"
#include "frameworks/pytorch/device.h"
#include "frameworks/pytorch/loop.h"
#include "frameworks/pytorch/recorded.h"
#include "frameworks/pytorch/replay.h"
#include "frameworks/pytorch/stack.h"
#include "model/params.h"
#include "support/pytorch.h"

/* ---- a job of the table ---- */

static const struct {
  const char *name, *preset;
} models[] = {
    {"gpt2-124m", "gpt2-124m"},
    {"gpt2-774m", "gpt2-774m"},
    {"llama3-1b", "llama-3.2-1b"},
    {"llama3-8b", "llama-3-8b"},
    {"llama3.1-8b", "llama-3.1-8b"},
    {"llama2-7b", "llama-2-7b"},
    {"gemma-2b", "gemma-2b"},
    {"qwen2.5-7b", "qwen2.5-7b"},
    {"mistral-7b", "mistral-7b"},
    {"qwen2.5-0.5b", "qwen2.5-0.5b"},
    {"qwen3-4b", "qwen3-4b"},
    {"qwen3-0.6b", "qwen3-0.6b"},
    {"phi3-mini", "phi-3-mini"},
    {"gemma2-2b", "gemma-2-2b"},
    {"gemma3-1b", "gemma-3-1b"},
    {"smollm2-1.7b", "smollm2-1.7b"},
    {"tinyllama-1.1b", "custom:family=llama,layers=22,hidden=2048,heads=32,kv-heads=4,mlp=5632,vocab=32000"},
};

static const char *text_of(const hri_json *job, const char *key) {
  const char *text = "";
  hr_error error;
  assert_int_equal(hri_json_opt_string(job, key, &text, &error), HR_OK);
  return text;
}

static bool is(const hri_json *job, const char *key, const char *value) {
  return strcmp(text_of(job, key), value) == 0;
}

static uint64_t number_of(const hri_json *job, const char *key) {
  uint64_t value = 0;
  hr_error error;
  assert_int_equal(hri_json_opt_u64(job, key, 0, UINT64_MAX >> 1, &value, &error), HR_OK);
  return value;
}

static double real_of(const hri_json *job, const char *key, double usual) {
  hr_error error;
  assert_int_equal(hri_json_opt_double(job, key, &usual, &error), HR_OK);
  return usual;
}

static hri_transformers version_of(const hri_json *job) {
  static const char *const names[HRI_TRANSFORMERS_VERSIONS] = {"5.23.0", "4.57.3", "4.49.0", "4.46.3"};
  for (int v = 0; v < HRI_TRANSFORMERS_VERSIONS; v++)
    if (is(job, "transformers", names[v])) return (hri_transformers)v;
  fail_msg("no rules for transformers %s", text_of(job, "transformers"));
  return HRI_TRANSFORMERS_5;
}

static void force(const hri_json *job, hri_torch_job *out) {
  static const char *const names[] = {"flash", "efficient", "math"};
  out->kernel_forced = hri_json_has(job, "backend");
  for (int k = 0; k < 3; k++)
    if (is(job, "backend", names[k])) out->kernel = (hri_sdpa)k;
}

static hri_torch_optimizer optimizer_of(const hri_json *job) {
  bool trainer = is(job, "loop", "trainer") || is(job, "loop", "trl");
  trainer = trainer && is(job, "implementation", "default") && version_of(job) <= HRI_TRANSFORMERS_4_57;
  if (is(job, "optimizer", "adafactor")) return HRI_TORCH_ADAFACTOR;
  if (is(job, "optimizer", "adafactor-torch")) return HRI_TORCH_ADAFACTOR_TORCH;
  if (is(job, "optimizer", "sgd")) return HRI_TORCH_SGD;
  if (is(job, "optimizer", "adamw8bit") || is(job, "optimizer", "paged-adamw8bit")) return HRI_TORCH_ADAMW_8BIT;
  if (is(job, "optimizer", "sgd-momentum")) return HRI_TORCH_SGD_MOMENTUM;
  if (trainer || is(job, "implementation", "fused")) return HRI_TORCH_ADAMW_FUSED;
  return is(job, "implementation", "loop") ? HRI_TORCH_ADAMW_LOOP : HRI_TORCH_ADAMW;
}

/* Patterns of names as one list of words. */
static const char *frozen_of(const hri_json *job) {
  static char text[256];
  hri_json patterns;
  hr_error error;
  text[0] = 0;
  if (!hri_json_has(job, "frozen")) return NULL;
  assert_int_equal(hri_json_get_array(job, "frozen", &patterns, &error), HR_OK);
  for (uint64_t i = 0; i < hri_json_count(&patterns); i++)
    (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? "," : "",
                   json_string_value(hri_json_item(&patterns, i).value));
  return text;
}

static void adapt(const hri_json *job, hr_model *model) {
  static const char *const names[] = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
  hri_json lora, targets;
  hr_error error;
  uint8_t set = 0;
  if (!hri_json_has(job, "lora")) return;
  assert_int_equal(hri_json_get_object(job, "lora", &lora, &error), HR_OK);
  assert_int_equal(hri_json_get_array(&lora, "targets", &targets, &error), HR_OK);
  for (uint64_t i = 0; i < hri_json_count(&targets); i++) {
    const char *target = json_string_value(hri_json_item(&targets, i).value);
    if (strcmp(target, "c_attn") == 0 || strcmp(target, "qkv_proj") == 0) set |= 1u << HR_MODULE_Q;
    if (strcmp(target, "output_proj") == 0) set |= 1u << HR_MODULE_ATTENTION_OUTPUT; /* torchtune's names */
    if (strcmp(target, "mlp") == 0) set |= 1u << HR_MODULE_MLP_GATE | 1u << HR_MODULE_MLP_UP | 1u << HR_MODULE_MLP_DOWN;
    for (unsigned k = 0; k < sizeof names / sizeof *names; k++)
      if (strcmp(target, names[k]) == 0) set |= 1u << k;
  }
  model->lora.rank = (uint32_t)number_of(&lora, "rank");
  model->lora.dropout = real_of(&lora, "dropout", 0);
  assert_int_equal(hri_json_opt_bool(&lora, "use_dora", &model->lora.dora, &error), HR_OK);
  for (uint32_t i = 0; i < model->layer_count; i++) model->lora.modules[i] = set;
  if (!hri_json_has(&lora, "modules_to_save")) return;
  model->lora.saved = 1u << (model->tied_embeddings ? HRI_SLOT_TOKEN_EMBEDDING : HRI_SLOT_HEAD_WEIGHT);
}

static void share_fully(const hri_json *how, hri_torch_job *out) {
  hr_error error;
  bool policy = hri_json_has(how, "policy");
  bool reshards = true;
  bool older = is(how, "kind", "fsdp1");
  out->sharing = HRI_TORCH_FSDP2;
  out->fsdp.flat = older;
  out->fsdp.ranks = out->ranks;
  out->fsdp.by_accelerate = out->trainer;
  assert_int_equal(hri_json_opt_bool(how, "reshard", &reshards, &error), HR_OK);
  assert_int_equal(hri_json_opt_bool(how, "offload", &out->fsdp.offload, &error), HR_OK);
  assert_int_equal(hri_json_opt_bool(how, "wrapped", &out->wrapped, &error), HR_OK);
  out->checkpoint = out->checkpoint || out->wrapped;
  out->fsdp.keeps = !reshards;
  if (policy) {
    out->fsdp.mixed = true;
    out->fsdp.param = HRI_BF16;
    out->fsdp.reduce = is(how, "policy", "bf16-fp32") ? HRI_F32 : HRI_BF16;
  } else if (out->trainer && out->autocast != HRI_F32) {
    out->fsdp.mixed = true;
    out->fsdp.casts_output = !older;
    out->fsdp.param = out->fsdp.reduce = out->autocast;
    if (!older) out->autocast = HRI_F32; /* accelerate puts no autocast around such a model */
  }
}

/* How ranks share a job of sharded.json. */
static void share(const hri_json *job, hri_torch_job *out) {
  hri_json how;
  hr_error error;
  if (!hri_json_has(job, "sharding")) return;
  assert_int_equal(hri_json_get_object(job, "sharding", &how, &error), HR_OK);
  out->ranks = (uint32_t)number_of(job, "ranks");
  if (is(&how, "kind", "ddp")) {
    out->sharing = HRI_TORCH_DDP;
    assert_int_equal(hri_json_opt_bool(&how, "view", &out->ddp.bucket_view, &error), HR_OK);
    out->ddp.find_unused = !out->checkpoint || out->model->lora.rank; /* as the Trainer has it where nobody says */
    if (hri_json_has(&how, "unused"))
      assert_int_equal(hri_json_opt_bool(&how, "unused", &out->ddp.find_unused, &error), HR_OK);
    out->ddp.ranks = out->ranks;
    out->ddp.bucket_bytes = number_of(&how, "mb") << 20;
  } else if (is(&how, "kind", "fsdp1")) {
    share_fully(&how, out);
    out->fsdp.keeps =
        !out->trainer && is(&how, "strategy", "shard_grad_op"); /* accelerate takes FULL_SHARD in any case */
  } else if (is(&how, "kind", "fsdp2")) {
    share_fully(&how, out);
  } else if (is(&how, "kind", "zero") && number_of(&how, "stage") == 3) {
    out->sharing = HRI_TORCH_ZERO3;
    out->zero3.ranks = out->ranks;
    out->zero3.two_groups = out->trainer;
    out->zero3.bucket = number_of(&how, "bucket");
    out->zero3.prefetch = out->zero3.bucket / 10;
    out->zero3.offload = hri_json_has(&how, "offload");
    out->zero3.offload_parameters = is(&how, "offload", "all");
  } else if (is(&how, "kind", "zero")) {
    out->sharing = HRI_TORCH_ZERO;
    out->zero.ranks = out->ranks;
    out->zero.two_groups = out->trainer;
    out->zero.stage = (uint32_t)number_of(&how, "stage");
    out->zero.bucket = number_of(&how, "bucket");
    out->zero.offload = hri_json_has(&how, "offload");
  }
}

/* Names of the last blocks, as --train-only has them. */
static const char *last_blocks(const hr_model *model, uint64_t count) {
  static char text[256];
  text[0] = 0;
  for (uint64_t i = model->layer_count - count; i < model->layer_count; i++)
    (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s*.layers.%llu.*", *text ? "," : "",
                   (unsigned long long)i);
  return text;
}

/* A job of stacks.json: what the stack decides is taken from its table, as plans take it. */
static void by_stack(const hri_json *job, hri_torch_job *out) {
  const hri_torch_stack *stack =
      hri_torch_stack_of(is(job, "loop", "axolotl") ? HR_PYTORCH_AXOLOTL : HR_PYTORCH_LLAMA_FACTORY);
  bool half = out->autocast != HRI_F32, kernels = true;
  hr_error error;
  out->trainer = true;
  out->wide_embeddings = true;
  out->prepared = stack->prepared;
  out->loading = stack->loading;
  out->empties_cache = stack->empties_cache;
  out->adapted_input = stack->adapted_input;
  out->checkpoints_trained = stack->checkpoints_trained;
  out->counts_tokens = stack->counts_tokens;
  if (out->optimizer == HRI_TORCH_ADAMW) out->optimizer = HRI_TORCH_ADAMW_FUSED;
  if (half && (stack->half_weights || out->model->lora.rank)) out->weights = out->autocast;
  assert_int_equal(hri_json_opt_bool(job, "upcast_layernorm", &out->wide_norms, &error), HR_OK);
  if (hri_json_has(job, "frozen_but")) out->frozen.train_only = last_blocks(out->model, number_of(job, "frozen_but"));
  out->wide_trained = stack->wide_trained && half && out->model->lora.rank == 0;
  if (out->wide_trained) out->weights = out->autocast;
  assert_int_equal(hri_json_opt_bool(job, "kernels", &kernels, &error), HR_OK);
  assert_int_equal(hri_json_opt_bool(job, "sample_packing", &out->packed, &error), HR_OK);
  out->qkv_kernel = out->o_kernel = out->mlp_kernel =
      stack->lora_kernels && kernels && out->model->lora.rank && out->quantized != HRI_TORCH_INT8;
}

static hri_torch_job job_of(const hri_json *job, hr_model *model) {
  const char *precision = text_of(job, "precision"), *checkpointing = text_of(job, "checkpointing");
  hri_torch_job out = {.model = model, .steps = 2};
  hr_error error;
  for (unsigned k = 0; k < sizeof models / sizeof *models; k++)
    if (is(job, "model", models[k].name)) assert_int_equal(hr_model_open(models[k].preset, model, &error), HR_OK);
  if (hri_json_has(job, "layers")) model->layer_count = (uint32_t)number_of(job, "layers");
  out.version = version_of(job);
  assert_int_equal(hri_json_opt_bool(job, "liger", &out.liger, &error), HR_OK);
  force(job, &out);
  out.batch = number_of(job, "batch");
  out.tokens = number_of(job, "seq");
  out.accumulate = (uint32_t)number_of(job, "accumulation");
  out.capability = (uint32_t)lround(10 * atof(text_of(job, "capability")));
  if (strncmp(precision, "amp", 3) == 0) out.autocast = strcmp(precision, "amp-bf16") == 0 ? HRI_BF16 : HRI_F16;
  if (strcmp(precision, "bf16") == 0 || is(job, "base", "bf16")) out.weights = HRI_BF16;
  if (strcmp(precision, "fp16") == 0) out.weights = HRI_F16;
  if (is(job, "storage", "bf16")) out.storage = HRI_BF16;
  out.scaler = out.autocast == HRI_F16;
  if (hri_json_has(job, "quantized")) {
    out.quantized = is(job, "quantized", "int8")         ? HRI_TORCH_INT8
                    : is(job, "quantized", "nf4-double") ? HRI_TORCH_NF4_DOUBLE
                                                         : HRI_TORCH_NF4;
    out.weights = strstr(precision, "fp16") ? HRI_F16 : HRI_BF16;
  }
  if (hri_json_has(job, "evaluation")) {
    hri_json how;
    bool metrics;
    assert_int_equal(hri_json_get_object(job, "evaluation", &how, &error), HR_OK);
    assert_int_equal(hri_json_opt_bool(&how, "metrics", &metrics, &error), HR_OK);
    out.evaluation = (hri_torch_evaluation){number_of(&how, "batch"), (uint32_t)number_of(&how, "batches"), metrics,
                                            (uint32_t)number_of(&how, "to_host"), false};
    assert_int_equal(hri_json_opt_bool(&how, "middle", &out.evaluation.middle, &error), HR_OK);
    assert_int_equal(hri_json_opt_bool(&how, "predict", &metrics, &error), HR_OK);
    out.evaluation.metrics = out.evaluation.metrics || metrics; /* predict() keeps what it predicts */
  }
  out.frozen.freeze = frozen_of(job);
  assert_int_equal(hri_json_opt_bool(job, "use_cache", &out.use_cache, &error), HR_OK);
  out.resumed = is(job, "saving", "resume");
  out.paged = is(job, "optimizer", "paged-adamw8bit");
  out.optimizer = optimizer_of(job);
  out.fused_head = is(job, "loop", "trl");
  out.prepared = out.fused_head ? HRI_PREPARED_BY_TRL : out.storage ? HRI_PREPARED_BY_NOBODY : HRI_PREPARED_BY_PEFT;
  out.trainer = is(job, "loop", "trainer") || out.fused_head;
  out.wide_embeddings = out.trainer;
  out.attention = is(job, "attention", "eager") ? HRI_TORCH_EAGER : HRI_TORCH_SDPA;
  out.mask = !is(job, "mask", "none");
  out.padded = is(job, "mask", "padding");
  out.checkpoint = *checkpointing != 0;
  out.reentrant = strcmp(checkpointing, "reentrant") == 0;
  out.keeps_outputs = is(job, "loop", "plain");
  out.clip = hri_json_has(job, "clip");
  out.dropout = hri_model_dropout(model, model->family == HR_FAMILY_GPT2 ? real_of(job, "dropout", 0.1) : 0);
  if (is(job, "loop", "torchtune")) {
    out.recipe.runs = true;
    out.recipe.chunks = (uint32_t)number_of(job, "chunks");
    assert_int_equal(hri_json_opt_bool(job, "in_backward", &out.recipe.in_backward, &error), HR_OK);
    assert_int_equal(hri_json_opt_bool(job, "packed", &out.recipe.packed, &error), HR_OK);
  }
  adapt(job, model);
  share(job, &out);
  if (is(job, "loop", "axolotl") || is(job, "loop", "llama-factory")) by_stack(job, &out);
  return out;
}

/* ---- recordings ---- */

static void read_gzip(const char *name, hri_json *root) {
  char path[512];
  enum { MOST = 64 << 20 };
  char *text = malloc(MOST);
  gzFile file;
  hr_error error;
  int bytes;
  (void)snprintf(path, sizeof path, "%s/memory/%s", HR_TEST_DATA, name);
  file = gzopen(path, "rb");
  assert_non_null(file);
  bytes = gzread(file, text, MOST);
  assert_true(bytes > 0 && bytes < MOST);
  (void)gzclose(file);
  assert_int_equal(hri_json_parse(text, (uint64_t)bytes, name, root, &error), HR_OK);
  free(text);
}

/* The highest allocated and reserved bytes of loading, the first two steps, and evaluation, which stands behind the third and is told
 * apart too, and the phase in which most is allocated. Rows are as `columns` says: step, phase, allocated peak, reserved peak, ... */
static const char *recorded_peaks(const hri_json *result, uint64_t *allocated, uint64_t *reserved,
                                  uint64_t *evaluation) {
  const char *phase = "";
  hri_json rows;
  hr_error error;
  *allocated = *reserved = *evaluation = 0;
  assert_int_equal(hri_json_get_array(result, "phases", &rows, &error), HR_OK);
  for (uint64_t i = 0; i < hri_json_count(&rows); i++) {
    json_t *row = hri_json_item(&rows, i).value;
    uint64_t a = (uint64_t)json_integer_value(json_array_get(row, 2));
    uint64_t r = (uint64_t)json_integer_value(json_array_get(row, 3));
    bool evaluates = strcmp(json_string_value(json_array_get(row, 1)), "evaluate") == 0;
    if (evaluates) *evaluation = a;
    else if (json_integer_value(json_array_get(row, 0)) > 2) continue;
    if (a > *allocated) *allocated = a, phase = json_string_value(json_array_get(row, 1));
    if (r > *reserved) *reserved = r;
  }
  return phase;
}

enum { LARGEST = 5 };

static int down(const void *a, const void *b) {
  const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x < y) - (x > y);
}

/* The largest requests that live where most bytes of requests do, in units of 512, as recordings have them: with the rests of blocks the most
 * may be allocated elsewhere. */
static void largest_live(const hri_torch *torch, uint64_t largest[LARGEST]) {
  uint64_t *sizes = calloc(torch->storages.count, sizeof *sizes), live = 0, most = 0;
  size_t peak = 0;
  assert_non_null(sizes);
  for (int pass = 0; pass < 2; pass++) {
    memset(sizes, 0, torch->storages.count * sizeof *sizes);
    for (size_t i = 0; i < (pass ? peak + 1 : torch->requests.count); i++) {
      const hri_torch_request *r = &torch->requests.items[i];
      live += hri_round_up(r->bytes, 512) - hri_round_up(sizes[r->storage], 512);
      sizes[r->storage] = r->bytes;
      if (!pass && live > most) most = live, peak = i;
    }
  }
  qsort(sizes, torch->storages.count, sizeof *sizes, down);
  memcpy(largest, sizes, LARGEST * sizeof *largest);
  free(sizes);
}

/* Whether the phase of the peak, of whatever step, is the recorded one, and the sizes of the five largest tensors. */
static void compare_peaks(const hri_json *result, const hri_torch *torch, const hri_torch_replay *replay,
                          const char *phase, bool right[2]) {
  uint64_t ours[LARGEST];
  hri_json peak, largest;
  hr_error error;
  assert_int_equal(hri_json_get_object(result, "peak", &peak, &error), HR_OK);
  assert_int_equal(hri_json_get_array(&peak, "largest", &largest, &error), HR_OK);
  right[0] = strcmp(phase, hr_pytorch_phase_name((hr_pytorch_phase)replay->peak_phase)) == 0;
  largest_live(torch, ours);
  right[1] = true;
  for (uint64_t i = 0; i < hri_json_count(&largest) && i < LARGEST; i++) {
    hri_json one = hri_json_item(&largest, i);
    right[1] = right[1] && number_of(&one, "bytes") == ours[i];
  }
}

typedef struct score {
  uint32_t jobs, equal, close, near, under, outside, reserved_near; /* close: within 0.1 %, near: 3 % */
  uint32_t phase, largest;                                          /* of the peak, right */
  uint32_t evaluations, evaluations_near;                           /* of them, and whose evaluation is within 1 % */
  double worst;
} score;

static void compare(const hri_json *job, const hri_json *result, score *s) {
  hr_model model;
  hri_torch_job torch_job = job_of(job, &model);
  hri_aten_device device = hri_aten_device_of(torch_job.capability);
  hr_alloc_config config = hr_alloc_config_default();
  hri_torch_replay replay;
  hri_torch torch;
  hr_error error;
  uint64_t allocated, reserved, evaluation;
  double off, truth;
  bool right[2];
  const char *phase = recorded_peaks(result, &allocated, &reserved, &evaluation);
  if (is(job, "loop", "axolotl"))
    assert_int_equal(hr_alloc_config_parse(hr_pytorch_stack_alloc_conf(HR_PYTORCH_AXOLOTL), &config, &error), HR_OK);
  hri_torch_init(&torch);
  torch.device = &device;
  assert_true(hri_torch_run(&torch, &torch_job));
  assert_int_equal(hri_torch_replay_run(&torch, &config, 0, &replay, &error), HR_OK);
  compare_peaks(result, &torch, &replay, phase, right);
  hri_torch_deinit(&torch);
  s->phase += right[0];
  s->largest += right[1];
  off = (double)replay.whole.allocated_bytes / (double)allocated - 1;
  truth = (double)allocated / (double)replay.whole.allocated_bytes - 1;
  s->outside += truth < HRI_TORCH_ERROR_LOW || truth > HRI_TORCH_ERROR_HIGH;
  s->jobs++;
  s->equal += replay.whole.allocated_bytes == allocated;
  s->close += fabs(off) <= 0.001;
  s->near += fabs(off) <= 0.03;
  s->under += off < -0.01;
  s->reserved_near += fabs((double)replay.whole.reserved_bytes / (double)reserved - 1) <= 0.05;
  if (fabs(off) > fabs(s->worst)) s->worst = off;
  if (evaluation) {
    double apart = (double)replay.phases[1][HRI_TORCH_EVALUATE].allocated_bytes / (double)evaluation - 1;
    s->evaluations++;
    s->evaluations_near += fabs(apart) <= 0.01;
    if (fabs(apart) > 0.003) print_message("  %s: evaluation %+.2f %%\n", text_of(job, "name"), 100 * apart);
  }
  if (fabs(off) > 0.003) print_message("  %s: %+.2f %%\n", text_of(job, "name"), 100 * off);
}

/* "" for jobs of one rank with PyTorch's kernels. */
static const char *kind_of(const hri_json *job) {
  hri_json how;
  hr_error error;
  if (is(job, "loop", "torchtune")) return "tune";
  if (is(job, "loop", "axolotl") || is(job, "loop", "llama-factory")) return text_of(job, "loop");
  if (hri_json_has(job, "liger")) return "liger";
  if (!hri_json_has(job, "sharding")) return "";
  assert_int_equal(hri_json_get_object(job, "sharding", &how, &error), HR_OK);
  return text_of(&how, "kind");
}

/* Tables of jobs: of several ranks, of what stands beside ("beside:PART"), with Liger's kernels, of torchtune ("tune"),
 * of stacks; else of one rank. */
static const char *table_of(const char *kind) {
  if (strcmp(kind, "liger") == 0 || strcmp(kind, "tune") == 0) return kind;
  if (strncmp(kind, "beside:", 7) == 0) return "beside";
  if (strcmp(kind, "axolotl") == 0 || strcmp(kind, "llama-factory") == 0) return "stacks";
  return *kind ? "sharded" : "jobs";
}

static bool is_of_kind(const hri_json *job, const char *kind) {
  return strncmp(kind, "beside:", 7) == 0 ? is(job, "part", kind + 7) : strcmp(kind_of(job), kind) == 0;
}

/* The jobs of a kind. */
static score score_of(const char *kind, bool held_back) {
  char path[512], file[64];
  const char *name = table_of(kind);
  hri_json table, jobs, results_root, results;
  hr_error error;
  score s = {0};
  bool others = strcmp(name, "jobs") != 0;
  (void)snprintf(path, sizeof path, "%s/memory/%s.json", HR_TEST_DATA, name);
  (void)snprintf(file, sizeof file, "%s%s%s.json.gz", others ? name : "", others ? "_" : "",
                 held_back ? "held_back" : "recorded");
  assert_int_equal(hri_json_read(path, 16 << 20, &table, &error), HR_OK);
  assert_int_equal(hri_json_get_array(&table, "jobs", &jobs, &error), HR_OK);
  read_gzip(file, &results_root);
  assert_int_equal(hri_json_get_array(&results_root, "results", &results, &error), HR_OK);
  for (uint64_t i = 0; i < hri_json_count(&jobs); i++) {
    hri_json job = hri_json_item(&jobs, i);
    bool held = false;
    assert_int_equal(hri_json_opt_bool(&job, "held_back", &held, &error), HR_OK);
    if (held != held_back || !is_of_kind(&job, kind)) continue;
    for (uint64_t k = 0; k < hri_json_count(&results); k++) {
      hri_json result = hri_json_item(&results, k);
      if (strcmp(text_of(&result, "name"), text_of(&job, "name")) == 0 && !hri_json_has(&result, "error"))
        compare(&job, &result, &s);
    }
  }
  hri_json_deinit(&results_root);
  hri_json_deinit(&table);
  print_message(
      "%s %s: %u jobs, allocated equal to the byte in %u, within 0.1 %% in %u, 3 %% in %u, more than 1 %% under in %u, worst %+.2f %%; "
      "reserved within 5 %% in %u; phase of the peak right in %u, its five largest in %u; evaluation within 1 %% in %u of %u\n",
      kind, file, s.jobs, s.equal, s.close, s.near, s.under, 100 * s.worst, s.reserved_near, s.phase, s.largest,
      s.evaluations_near, s.evaluations);
  return s;
}

/* The jobs that taught the rules: nearly all to the byte. */
static void test_recorded(void **state) {
  score s = score_of("", false);
  (void)state;
  assert_true(s.jobs >= 280);
  assert_int_equal(s.near, s.jobs);
  assert_int_equal(s.under, 0);
  assert_int_equal(s.outside, 0);
  assert_int_equal(s.reserved_near, s.jobs);
  assert_true(4 * s.equal >= 3 * s.jobs);
  assert_true(100 * s.phase >= 95 * s.jobs && 100 * s.largest >= 95 * s.jobs);
}

/* Those that did not: 95 of 100 within 3 %, 99 not more than 1 % under. */
static void test_held_back(void **state) {
  score s = score_of("", true);
  (void)state;
  assert_true(s.jobs >= 140);
  assert_int_equal(s.outside, 0);
  assert_true(100 * s.near >= 95 * s.jobs);
  assert_true(100 * s.under <= s.jobs);
  assert_true(100 * s.reserved_near >= 95 * s.jobs);
  assert_true(100 * s.phase >= 95 * s.jobs && 100 * s.largest >= 95 * s.jobs);
}

/* Several ranks, by how they share, and Liger's kernels: all jobs of a kind lie within the band, whether they taught the rules or not. */
static void check_kind(const char *kind, uint32_t seen, uint32_t held_back, score scores[2]) {
  for (int held = 0; held < 2; held++) {
    score s = scores[held] = score_of(kind, held != 0);
    assert_true(s.jobs >= (held ? held_back : seen));
    assert_int_equal(s.near, s.jobs);
    assert_int_equal(s.under, 0);
    assert_int_equal(s.outside, 0);
    assert_true(100 * s.reserved_near >= 95 * s.jobs);
  }
}

static void test_ddp(void **state) {
  score scores[2];
  (void)state;
  check_kind("ddp", 39, 20, scores);
}

static void test_fsdp2(void **state) {
  score scores[2];
  (void)state;
  check_kind("fsdp2", 46, 23, scores);
}

static void test_fsdp1(void **state) {
  score scores[2];
  (void)state;
  check_kind("fsdp1", 14, 8, scores);
}

static void test_zero(void **state) {
  score scores[2];
  (void)state;
  check_kind("zero", 60, 30, scores);
}

/* What stands beside ranks that share: adapters, quantized weights, fp16 and frozen tensors, evaluation. */
static void test_beside(void **state) {
  static const struct {
    const char *part;
    uint32_t seen, held_back;
  } parts[] = {{"beside:adapters", 42, 21},
               {"beside:quantized", 12, 7},
               {"beside:settings", 34, 17},
               {"beside:evaluations", 9, 5},
               {"beside:later", 14, 7}};
  (void)state;
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    score scores[2];
    check_kind(parts[i].part, parts[i].seen, parts[i].held_back, scores);
  }
}

/* Sizes of requests, in order. Those below LEAST are scalars and the like, of which not all are followed; flash attention of few rows splits its keys. */
enum { LEAST = 1 << 16, MOST_REQUESTS = 4096 };
typedef struct request_sizes {
  uint64_t items[MOST_REQUESTS];
  uint32_t count;
} request_sizes;

static void add_size(request_sizes *s, uint64_t bytes, const char *op) {
  if (bytes < LEAST || strncmp(op, "_flash_attention_forward", 24) == 0) return;
  assert_true(s->count < MOST_REQUESTS);
  s->items[s->count++] = bytes;
}

/* Those of the second step's forward or backward that a lesson has. */
static void lesson_sizes(const hri_json *lesson, const char *phase, request_sizes *out) {
  const json_t *requests = json_object_get(lesson->value, "requests"), *rows = json_object_get(requests, "rows");
  const json_t *labels = json_object_get(requests, "labels"), *phases = json_object_get(requests, "phases");
  out->count = 0;
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const json_t *row = json_array_get(rows, i);
    if (json_array_size(row) < 3) continue;
    size_t named = (size_t)json_integer_value(json_array_get(row, 2)),
           label = (size_t)json_integer_value(json_array_get(row, 1));
    if (strcmp(json_string_value(json_array_get(phases, named)), phase) == 0)
      add_size(out, (uint64_t)json_integer_value(json_array_get(row, 0)),
               json_string_value(json_array_get(labels, label)));
  }
}

static void our_sizes(const hri_torch *torch, hri_torch_phase phase, request_sizes *out) {
  out->count = 0;
  for (size_t m = 0; m < torch->marks.count; m++) {
    const hri_torch_mark *mark = &torch->marks.items[m];
    uint64_t end = m + 1 < torch->marks.count ? mark[1].request : torch->requests.count;
    for (uint64_t i = mark->request; i < end && mark->step == 2 && mark->phase == phase; i++) {
      const hri_torch_request *request = &torch->requests.items[i];
      if (request->bytes) add_size(out, request->bytes, torch->labels.items[request->label].op);
    }
  }
}

static void check_requests(const char *name, const hri_json *lesson, const hri_torch *torch, const char *step,
                           hri_torch_phase phase) {
  static request_sizes theirs, ours;
  uint32_t k = 0;
  lesson_sizes(lesson, step, &theirs);
  our_sizes(torch, phase, &ours);
  while (k < theirs.count && k < ours.count && theirs.items[k] == ours.items[k]) k++;
  if (k < theirs.count || k < ours.count)
    fail_msg("%s, %s: request %u of %u is of %llu bytes, here (%u) of %llu", name, step, k, theirs.count,
             (unsigned long long)theirs.items[k], ours.count, (unsigned long long)ours.items[k]);
  assert_true(theirs.count > (phase == HRI_TORCH_LOSS ? 1 : 30));
}

/* Request by request, also those that no peak shows: gradients that take a place that is there already, what is gathered when. */
static void check_lesson(const char *name) {
  char file[256];
  hri_json lesson, settings;
  hr_model model;
  hri_torch torch;
  hr_error error;
  (void)snprintf(file, sizeof file, "lessons/lesson-%s.json.gz", name);
  read_gzip(file, &lesson);
  assert_int_equal(hri_json_get_object(&lesson, "job", &settings, &error), HR_OK);
  hri_torch_job job = job_of(&settings, &model);
  hri_aten_device device = hri_aten_device_of(job.capability);
  hri_torch_init(&torch);
  torch.device = &device;
  assert_true(hri_torch_run(&torch, &job));
  check_requests(name, &lesson, &torch, "2 forward", HRI_TORCH_FORWARD);
  check_requests(name, &lesson, &torch, "2 backward", HRI_TORCH_BACKWARD);
  if (job.recipe.runs) check_requests(name, &lesson, &torch, "2 loss", HRI_TORCH_LOSS);
  hri_torch_deinit(&torch);
  hri_json_deinit(&lesson);
}

static void check_lessons(const char *before, const char *const *names, size_t count, const char *behind) {
  for (size_t i = 0; i < count; i++) {
    char name[160];
    (void)snprintf(name, sizeof name, "%s%s%s", before, names[i], behind);
    check_lesson(name);
  }
}

static void test_torchtune_lessons(void **state) {
  static const char *const names[] = {"llama3-1b-b2-s256-bf16",
                                      "llama3-1b-b2-s256-fp32-checkpointed",
                                      "llama3-8b-b2-s256-bf16-lora",
                                      "qwen2.5-0.5b-b2-s256-bf16-inbwd",
                                      "phi3-mini-b2-s256-bf16",
                                      "llama3-1b-b2-s256-bf16-nf4-lora-checkpointed",
                                      "gemma2-2b-b2-s256-bf16",
                                      "gemma2-2b-b2-s256-fp32",
                                      "llama3-1b-b2-s256-bf16-dora",
                                      "llama3-1b-b2-s256-bf16-packed",
                                      "qwen2.5-0.5b-b2-s256-bf16-packed-checkpointed",
                                      "gemma-2b-b2-s256-bf16-checkpointed"};
  (void)state;
  check_lessons("", names, sizeof names / sizeof *names, "-tune");
}

static void test_beside_lessons(void **state) {
  static const char *const names[] = {"bf16-lora8alldrop-fsdp2x4-reshard",
                                      "bf16-non-reentrant-lora8-fsdp2x4-reshard-policy-bf16",
                                      "bf16-lora8-fsdp2x4-reshard-policy-bf16-offload",
                                      "amp-bf16-trainer-lora8alldrop-bf16-base-fsdp2x4-reshard",
                                      "amp-bf16-acc2-trainer-lora8-bf16-base-fsdp2x4-reshard",
                                      "amp-bf16-trainer-fsdp1x4-strategy-full_shard",
                                      "fp32-acc2-fsdp1x4-strategy-full_shard-policy-bf16",
                                      "fp32-reentrant-fsdp2x4-reshard-policy-bf16",
                                      "fp32-reentrant-fsdp1x4-strategy-full_shard-policy-bf16",
                                      "amp-fp16-trainer-fsdp2x4-reshard",
                                      "fp32-frozen-.embed_tokens.-fsdp2x4-reshard-policy-bf16",
                                      "bf16-lora8alldrop-zerox4-stage-2",
                                      "bf16-lora8alldrop-zerox4-stage-3",
                                      "bf16-acc2-zerox4-offload-optimizer-stage-2",
                                      "fp16-zerox4-stage-3",
                                      "bf16-frozen-.embed_tokens.-zerox4-stage-3",
                                      "bf16-lora8-zerox4-offload-all-stage-3",
                                      "amp-bf16-trainer-lora8-nf4-double-ddpx4",
                                      "amp-bf16-trainer-lora8-nf4-double-fsdp2x4-reshard",
                                      "amp-bf16-trainer-lora8-nf4-double-bf16-storage-fsdp2x4-reshard",
                                      "amp-bf16-trainer-lora8-nf4-double-bf16-storage-fsdp1x4-strategy-full_shard"};
  (void)state;
  check_lessons("llama3-1b-b2-s256-", names, sizeof names / sizeof *names, "");
}

static void test_liger_lessons(void **state) {
  static const char *const names[] = {"llama3-1b-b2-s256-bf16-liger", "llama3-1b-b2-s256-amp-bf16-trainer-liger",
                                      "phi3-mini-b2-s256-fp32-liger", "gemma3-1b-b2-s256-amp-bf16-non-reentrant-liger"};
  (void)state;
  check_lessons("", names, sizeof names / sizeof *names, "");
}

static void test_stack_lessons(void **state) {
  static const char *const names[] = {"llama3-1b-b2-s256-amp-bf16-axolotl-lora8all-no-kernels",
                                      "llama3-1b-b2-s256-amp-bf16-axolotl-lora8all-packing",
                                      "llama3-1b-b2-s256-amp-bf16-axolotl-lora8all",
                                      "llama3-1b-b2-s256-amp-bf16-axolotl-lora8alldrop",
                                      "llama3-1b-b2-s256-amp-bf16-axolotl-packing",
                                      "llama3-1b-b2-s256-amp-bf16-llama-factory-lora8all-upcast",
                                      "llama3-1b-b2-s256-amp-bf16-reentrant-axolotl-lora8all-nf4-double",
                                      "llama3-1b-b2-s256-amp-bf16-reentrant-axolotl",
                                      "llama3-1b-b2-s256-amp-bf16-reentrant-llama-factory-lora8all-nf4-double",
                                      "llama3-1b-b2-s256-amp-bf16-reentrant-llama-factory-lora8all",
                                      "llama3-1b-b2-s256-amp-bf16-reentrant-llama-factory",
                                      "llama3-1b-b2-s256-bf16-llama-factory"};
  (void)state;
  check_lessons("", names, sizeof names / sizeof *names, "");
}

/* More than a band: 20 and 10 are equal to the byte. */
static void test_liger(void **state) {
  score scores[2];
  (void)state;
  check_kind("liger", 30, 16, scores);
  for (int held = 0; held < 2; held++)
    assert_true(scores[held].equal >= (held ? 10 : 20) && scores[held].close >= (held ? 16 : 26));
}

/* torchtune's recipes, whose models and loops are their own. */
static void test_torchtune(void **state) {
  score scores[2];
  (void)state;
  check_kind("tune", 80, 42, scores);
  for (int held = 0; held < 2; held++) {
    assert_true(scores[held].equal >= (held ? 37 : 76));
    assert_int_equal(scores[held].close, scores[held].jobs);
  }
}

/* axolotl and LLaMA-Factory by their own entry points; nearly all to the byte. Each phase and the five largest tensors at the peak are right. */
static void check_stack(const char *stack, uint32_t seen, uint32_t held_back, const uint32_t equal[2]) {
  score scores[2];
  check_kind(stack, seen, held_back, scores);
  for (int held = 0; held < 2; held++) {
    assert_true(scores[held].equal >= equal[held] && scores[held].close + 1 >= scores[held].jobs);
    assert_int_equal(scores[held].phase, scores[held].jobs);
    assert_int_equal(scores[held].largest, scores[held].jobs);
  }
}

static void test_axolotl(void **state) {
  static const uint32_t equal[2] = {18, 10};
  (void)state;
  check_stack("axolotl", 21, 10, equal);
}

static void test_llama_factory(void **state) {
  static const uint32_t equal[2] = {18, 11};
  (void)state;
  check_stack("llama-factory", 22, 11, equal);
}

/* ---- a card ---- */

/* What somebody measured on a Tesla T4 (fitcheck-llm 0.3.1, data/measurements; torch 2.10, transformers 5.0, peft 0.19): QLoRA in nf4, rank
 * 32 on q, k, v, o, fp16 products, checkpointing, AdamW in fp32. MiB allocated and reserved. No rule was made from them, and none of another
 * version of PyTorch: its allocator had the same settings. */
static const struct {
  const char *model;
  uint32_t batch, tokens;
  bool eager;
  double allocated, reserved;
} card[] = {
    {"tinyllama-1.1b", 2, 512, true, 1849, 2070},  {"tinyllama-1.1b", 2, 512, false, 1847, 2126},
    {"tinyllama-1.1b", 2, 1024, true, 2876, 3532}, {"tinyllama-1.1b", 2, 1024, false, 2528, 2892},
    {"tinyllama-1.1b", 2, 2048, true, 6655, 7640}, {"tinyllama-1.1b", 2, 2048, false, 3897, 4640},
    {"smollm2-1.7b", 4, 1024, true, 5297, 6932},   {"smollm2-1.7b", 4, 1024, false, 5281, 5908},
    {"qwen2.5-1.5b", 2, 1024, true, 6831, 7372},   {"qwen2.5-1.5b", 2, 1024, false, 6823, 7232},
};

static void open_named(const char *name, hr_model *model) {
  hr_error error;
  for (unsigned k = 0; k < sizeof models / sizeof *models; k++)
    if (strcmp(models[k].name, name) == 0) name = models[k].preset;
  assert_int_equal(hr_model_open(name, model, &error), HR_OK);
}

static double found_reserved[sizeof card / sizeof *card]; /* MiB; of test_card, for test_context */

static void test_card(void **state) {
  double worst[2] = {0};
  (void)state;
  for (unsigned i = 0; i < sizeof card / sizeof *card; i++) {
    hr_model model;
    hri_aten_device device = hri_aten_device_of(75);
    hr_alloc_config config = hr_alloc_config_default();
    hri_torch_job job = {.model = &model,
                         .steps = 2,
                         .batch = card[i].batch,
                         .tokens = card[i].tokens,
                         .accumulate = 1};
    hri_torch_replay replay;
    hri_torch torch;
    hr_error error;
    open_named(card[i].model, &model);
    model.lora.rank = 32;
    for (uint32_t l = 0; l < model.layer_count; l++)
      model.lora.modules[l] =
          1u << HR_MODULE_Q | 1u << HR_MODULE_K | 1u << HR_MODULE_V | 1u << HR_MODULE_ATTENTION_OUTPUT;
    job.quantized = HRI_TORCH_NF4;
    job.weights = HRI_F16;
    job.attention = card[i].eager ? HRI_TORCH_EAGER : HRI_TORCH_SDPA;
    job.checkpoint = job.reentrant = job.mask = job.clip = job.keeps_outputs = true;
    job.capability = 75;
    hri_torch_init(&torch);
    torch.device = &device;
    assert_true(hri_torch_run(&torch, &job));
    assert_int_equal(hri_torch_replay_run(&torch, &config, 0, &replay, &error), HR_OK);
    hri_torch_deinit(&torch);
    const double off[] = {(double)replay.whole.allocated_bytes / card[i].allocated / (1 << 20) - 1,
                          (double)replay.whole.reserved_bytes / card[i].reserved / (1 << 20) - 1};
    found_reserved[i] = (double)replay.whole.reserved_bytes / (1 << 20);
    print_message("  %s %u x %u%s: allocated %+.2f %%, reserved %+.2f %%\n", card[i].model, card[i].batch,
                  card[i].tokens, card[i].eager ? " eager" : "", 100 * off[0], 100 * off[1]);
    for (int k = 0; k < 2; k++)
      if (fabs(off[k]) > worst[k]) worst[k] = fabs(off[k]);
  }
  assert_true(worst[0] < 0.012 && worst[1] < 0.02);
}

/* ---- autograd, by small graphs ---- */

typedef struct bench {
  hri_torch torch;
  hri_aten_device device;
} bench;

static void begin(bench *b) {
  hri_torch_init(&b->torch);
  b->device = (hri_aten_device){.capability = 80};
  b->torch.device = &b->device;
}

static uint64_t live_bytes(const hri_torch *torch) {
  uint64_t live = 0, *sizes = calloc(torch->storages.count, sizeof *sizes);
  for (size_t i = 0; i < torch->requests.count; i++) {
    const hri_torch_request *r = &torch->requests.items[i];
    if (r->bytes) sizes[r->storage] = r->bytes, live += r->bytes;
    else live -= sizes[r->storage];
  }
  free(sizes);
  return live;
}

/* y = x x: both gradients of x are made, the second is added to the first in place, and nothing is left but x and its
 * gradient. */
static void test_gradients_meet(void **state) {
  bench b;
  hri_ten *x, *y;
  size_t before;
  (void)state;
  begin(&b);
  x = hri_ten_parameter(&b.torch, HRI_F32, hri_ten_shape_of(1, 1000, 0, 0, 0), true);
  y = hri_aten_mul(&b.torch, x, x);
  before = b.torch.requests.count;
  hri_torch_backward(&b.torch, y, NULL);
  assert_int_equal(b.torch.requests.count - before, 3 + 2); /* ones and two products begin; a product and ones end */
  hri_ten_drop(&b.torch, y);
  assert_int_equal(live_bytes(&b.torch), 2 * 4000);
  hri_ten_drop(&b.torch, x);
  assert_int_equal(live_bytes(&b.torch), 0);
  hri_torch_deinit(&b.torch);
}

/* Partial sums of a kernel are as many as the card's multiprocessors run blocks at once: those of the card itself where the table knows them. */
static void test_partial_sums(void **state) {
  static const struct {
    const char *device;
    uint32_t processors, threads;
  } cards[] = {{"a100-80", 108, 2048}, {"rtx-3060", 28, 1536}, {"rtx-3090", 82, 1536}, {"t4", 40, 1024}};
  uint64_t staged[4];
  (void)state;
  for (size_t k = 0; k < sizeof cards / sizeof *cards; k++) {
    hr_device device;
    hr_error error;
    bench b;
    hri_ten *sum;
    begin(&b);
    assert_int_equal(hr_device_find(cards[k].device, &device, &error), HR_OK);
    b.device = hri_aten_device_like(&device);
    assert_true(b.device.processors == cards[k].processors && b.device.threads == cards[k].threads);
    sum = hri_ten_sum(&b.torch, HRI_F32, hri_ten_shape_of(1, 5120, 0, 0, 0), 8192);
    staged[k] = b.torch.requests.items[1].bytes; /* behind the sum's own */
    hri_ten_drop(&b.torch, sum);
    assert_int_equal(live_bytes(&b.torch), 0);
    hri_torch_deinit(&b.torch);
  }
  assert_true(staged[0] > staged[2] && staged[2] > staged[3] && staged[2] > staged[1]);
}

static hri_ten *two_activations(hri_torch *t, hri_ten *input, void *context, uint32_t index) {
  hri_ten *once = hri_aten_activation(t, "silu", input), *twice = hri_aten_activation(t, "silu", once);
  (void)context, (void)index;
  hri_ten_drop(t, once);
  return twice;
}

/* Under checkpointing a region leaves its result alone, and runs again up to what was saved last, not to its end. */
static void checkpointed(bool reentrant, size_t again) {
  bench b;
  hri_ten *x, *y, *none[HRI_FN_HELD] = {0};
  size_t before;
  begin(&b);
  x = hri_ten_parameter(&b.torch, HRI_F32, hri_ten_shape_of(1, 1000, 0, 0, 0), true);
  y = hri_checkpoint(&b.torch, reentrant, two_activations, NULL, 0, x, none);
  assert_int_equal(live_bytes(&b.torch), 2 * 4000);
  before = b.torch.requests.count;
  hri_torch_backward(&b.torch, y, NULL);
  size_t begun = 0;
  for (size_t i = before; i < b.torch.requests.count; i++) begun += b.torch.requests.items[i].bytes != 0;
  assert_int_equal(begun, 1 + again + 2); /* ones; the region; two gradients */
  hri_ten_drop(&b.torch, y);
  assert_int_equal(live_bytes(&b.torch), 2 * 4000);
  hri_ten_drop(&b.torch, x);
  assert_int_equal(live_bytes(&b.torch), 0);
  hri_torch_deinit(&b.torch);
}

static void test_checkpointing(void **state) {
  (void)state;
  checkpointed(false, 1);
  checkpointed(true, 2);
}

/* ---- the public interface, on a card that somebody measured ---- */

/* Contexts that somebody measured: the four that taught the estimate, and the T4 of `card`, which did not. With it what the driver counts for
 * those ten jobs is held too: half of them within 5 %, all within 12 %. */
static void test_context(void **state) {
  static const struct {
    const char *device;
    double mib;
  } seen[] = {{"rtx-3090", 256}, {"rtx-6000-ada", 426}, {"a100-80", 481}, {"h200", 612}, {"t4", 141}};
  double context = 0;
  uint32_t near = 0;
  (void)state;
  for (unsigned i = 0; i < sizeof seen / sizeof *seen; i++) {
    hr_job job = job_on("gpt2-124m", seen[i].device);
    hr_error error;
    job.precision = HR_PRECISION_FP32;
    assert_int_equal(hr_job_finish(&job, &error), HR_OK);
    context = (double)info_with(&job, "").context_bytes / (1 << 20);
    assert_true(fabs(context / seen[i].mib - 1) < 0.05);
  }
  for (unsigned i = 0; i < sizeof card / sizeof *card; i++) {
    double off = (found_reserved[i] + context) / (card[i].reserved + 141) - 1;
    assert_true(found_reserved[i] > 0 && fabs(off) < 0.12);
    near += fabs(off) < 0.05;
  }
  assert_true(near >= sizeof card / sizeof *card / 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_recorded),
      cmocka_unit_test(test_card),
      cmocka_unit_test(test_held_back),
      cmocka_unit_test(test_gradients_meet),
      cmocka_unit_test(test_partial_sums),
      cmocka_unit_test(test_checkpointing),
      cmocka_unit_test(test_ddp),
      cmocka_unit_test(test_fsdp2),
      cmocka_unit_test(test_fsdp1),
      cmocka_unit_test(test_beside),
      cmocka_unit_test(test_beside_lessons),
      cmocka_unit_test(test_zero),
      cmocka_unit_test(test_context),
      cmocka_unit_test(test_liger),
      cmocka_unit_test(test_liger_lessons),
      cmocka_unit_test(test_axolotl),
      cmocka_unit_test(test_llama_factory),
      cmocka_unit_test(test_stack_lessons),
      cmocka_unit_test(test_torchtune),
      cmocka_unit_test(test_torchtune_lessons),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
