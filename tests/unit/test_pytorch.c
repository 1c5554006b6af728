/* What PyTorch would need (headroom/pytorch.h), held against recordings of PyTorch itself: tests/memory has, for jobs of
 * eight shapes and more settings, the allocated and reserved bytes that PyTorch's CUDA wheel counted in each phase on a
 * device without kernels. recorded.json.gz taught the rules; held_back.json.gz, drawn before, did not. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <zlib.h>

#include <headroom/field.h>
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

/* ---- the public interface ---- */

static hr_job job_on(const char *model, const char *device) {
  hr_job job;
  hr_error error;
  hr_job_init(&job);
  assert_int_equal(hr_model_open(model, &job.model, &error), HR_OK);
  assert_int_equal(hr_device_find(device, &job.device, &error), HR_OK);
  return job;
}

static void test_interface(void **state) {
  hr_job job = job_on("gpt2-124m", "rtx-3060");
  hr_pytorch *pytorch;
  hr_snapshot *snapshot;
  hr_error error;
  const hr_pytorch_info *info;
  (void)state;
  job.micro_batch = 4;
  assert_int_equal(hr_job_finish(&job, &error), HR_OK);
  assert_int_equal(hr_pytorch_create(&job, NULL, &pytorch, &error), HR_OK);
  info = hr_pytorch_get(pytorch);
  assert_true(info->reserved_bytes >= info->allocated_bytes);
  assert_int_equal(info->device_used_bytes, info->reserved_bytes + info->context_bytes);
  assert_int_equal(hr_pytorch_snapshot(pytorch, &snapshot, &error), HR_OK);
  assert_true(snapshot->event_count >= info->request_count);
  hr_snapshot_destroy(snapshot);
  hr_pytorch_destroy(pytorch);
}

/* What is told of the peak is what the allocator counts there: its phase is the one whose peak is the highest, and what is live adds up to it, with
 * the rests of blocks that are not split and with what a setting rounds up. By requests alone the first job's peak would be in the backward. */
static void test_peak_adds_up(void **state) {
  static const struct {
    const char *model, *device, *alloc_conf;
    uint32_t tokens, rows;
  } cases[] = {{"custom:layers=2,hidden=768,heads=8,family=qwen3,vocab=1000,positions=512,kv-heads=8,mlp=1024",
                "rtx-3060", "", 7, 3},
               {"llama-3.2-1b", "a100-80", "roundup_power2_divisions:2", 1500, 3},
               {"gpt2-124m", "rtx-3060", "expandable_segments:True", 512, 2}};
  (void)state;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    hr_job job = job_on(cases[k].model, cases[k].device);
    hr_pytorch_options options;
    hr_pytorch *pytorch;
    hr_pytorch_live live;
    hr_error error;
    uint64_t roles = 0, shown = 0;
    job.sequence_length = cases[k].tokens;
    job.micro_batch = cases[k].rows;
    assert_int_equal(hr_job_finish(&job, &error), HR_OK);
    hr_pytorch_options_init(&options);
    options.alloc_conf = cases[k].alloc_conf;
    assert_int_equal(hr_pytorch_create(&job, &options, &pytorch, &error), HR_OK);
    const hr_pytorch_info *info = hr_pytorch_get(pytorch);
    for (int role = 0; role < HR_ROLE_COUNT; role++) roles += info->at_peak_by_role[role];
    for (uint32_t i = 0; hr_pytorch_live_get(pytorch, i, &live); i++) shown += live.bytes;
    assert_int_equal(roles, info->allocated_bytes);
    assert_int_equal(shown, info->allocated_bytes);
    assert_int_equal(info->allocated_by_phase[info->peak_phase], info->allocated_bytes);
    hr_pytorch_destroy(pytorch);
  }
}

/* A budget that holds the peak but not the cache: PyTorch returns cached memory and goes on. One that does not hold the
 * peak: it fails. */
static void test_budget(void **state) {
  hr_job job = job_on("gpt2-124m", "rtx-3060");
  hr_pytorch *pytorch;
  hr_error error;
  uint64_t allocated, reserved, context;
  (void)state;
  job.micro_batch = 8;
  assert_int_equal(hr_job_finish(&job, &error), HR_OK);
  for (int round = 0; round < 3; round++) {
    assert_int_equal(hr_pytorch_create(&job, NULL, &pytorch, &error), HR_OK);
    const hr_pytorch_info info = *hr_pytorch_get(pytorch);
    hr_pytorch_destroy(pytorch);
    if (round == 0) allocated = info.allocated_bytes, reserved = info.reserved_bytes, context = info.context_bytes;
    if (round == 1) assert_true(info.fits && info.retries == 0);
    if (round == 2) assert_true(!info.fits && info.missing_bytes > 0);
    job.budget_bytes = round == 0 ? reserved + context : allocated + context - (1 << 20);
  }
}

static hr_pytorch_info info_on(hr_job job, uint64_t budget) {
  hr_pytorch *pytorch;
  hr_error error;
  hr_pytorch_info info;
  job.budget_bytes = budget;
  assert_int_equal(hr_pytorch_create(&job, NULL, &pytorch, &error), HR_OK);
  info = *hr_pytorch_get(pytorch);
  hr_pytorch_destroy(pytorch);
  return info;
}

/* The three answers and the borders between them: a budget with room for all that PyTorch ever needed more is sure, and just that is
 * missing below it; where the figure itself does not fit there is no reserve to speak of. */
static void test_verdict(void **state) {
  hr_job job = job_on("gpt2-124m", "rtx-3060");
  hr_error error;
  hr_pytorch_info own, below, at, less;
  uint64_t sure;
  (void)state;
  job.micro_batch = 8;
  assert_int_equal(hr_job_finish(&job, &error), HR_OK);
  own = info_on(job, 1ull << 40);
  assert_int_equal(own.verdict, HR_PYTORCH_FITS);
  assert_int_equal(own.reserve_missing_bytes, 0);
  /* Cached memory is returned where it runs out, so the least budget is looked for: below it the job fails. */
  uint64_t fails = own.allocated_bytes + own.context_bytes - 1, fits = own.device_used_bytes;
  while (fits - fails > 1 << 20) {
    uint64_t middle = fails + (fits - fails) / 2;
    if (info_on(job, middle).fits) fits = middle;
    else fails = middle;
  }
  below = info_on(job, fails);
  assert_int_equal(below.verdict, HR_PYTORCH_DOES_NOT_FIT);
  assert_false(below.fits);
  assert_int_equal(below.reserve_missing_bytes, 0);
  at = info_on(job, fits);
  assert_int_equal(at.verdict, HR_PYTORCH_FITS_WITHIN_ERROR);
  assert_true(at.fits && at.reserve_missing_bytes > 0);
  sure = fits + at.reserve_missing_bytes;
  assert_int_equal(info_on(job, sure).verdict, HR_PYTORCH_FITS);
  less = info_on(job, fits + at.reserve_missing_bytes / 4);
  assert_true(less.verdict == HR_PYTORCH_FITS || less.reserve_missing_bytes < at.reserve_missing_bytes);
  assert_string_equal(hr_pytorch_verdict_name(at.verdict), "fits_within_error");
}

static void test_refusals(void **state) {
  static const struct {
    const char *key, *value, *says;
  } cases[] = {{"optimizer", "lion", "optimizer"}, {"lora", "r=8,bias=all", "bias"}};
  hr_error error;
  hr_pytorch *pytorch;
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hr_job job = job_on("llama-3.2-1b", "rtx-4090");
    assert_int_equal(hr_job_set(&job, cases[i].key, cases[i].value, &error), HR_OK);
    assert_int_equal(hr_job_finish(&job, &error), HR_OK);
    assert_int_equal(hr_pytorch_create(&job, NULL, &pytorch, &error), HR_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.message, cases[i].says));
  }
}

/* Rows that nobody has chosen are not taken for one; once they are, whoever chose, the answer is that of those rows. */
static void test_open_rows(void **state) {
  hr_job job = job_on("gpt2-124m", "rtx-3060"), given;
  hr_error error;
  hr_pytorch *pytorch = (hr_pytorch *)&error;
  (void)state;
  job.micro_batch = HR_MICRO_BATCH_AUTO;
  assert_int_equal(hr_job_finish(&job, &error), HR_OK);
  assert_int_equal(job.rows_choice, HR_ROWS_OPEN);
  assert_int_equal(hr_pytorch_create(&job, NULL, &pytorch, &error), HR_ERROR_USAGE);
  assert_null(pytorch);
  assert_non_null(strstr(error.message, "--micro-batch auto"));
  assert_non_null(strstr(error.hint, "hr_plan_rows"));
  assert_int_equal(hr_plan_rows(&job, NULL, &error), HR_OK);
  assert_true(job.rows_choice == HR_ROWS_CHOSEN && job.micro_batch > 1);
  given = job_on("gpt2-124m", "rtx-3060");
  given.micro_batch = job.micro_batch;
  assert_int_equal(hr_job_finish(&given, &error), HR_OK);
  assert_int_equal(info_on(job, job.budget_bytes).allocated_bytes, info_on(given, job.budget_bytes).allocated_bytes);
  given.micro_batch = 1;
  assert_int_equal(hr_job_finish(&given, &error), HR_OK);
  assert_true(info_on(given, job.budget_bytes).allocated_bytes < info_on(job, job.budget_bytes).allocated_bytes);
}

/* QLoRA by the public interface is the recorded program: the same bytes as the job of the table with these settings. A setting that
 * there is not is told with those that there are. */
static void test_settings(void **state) {
  hr_job job = job_on("llama-3-8b", "h100");
  hr_pytorch_options options;
  hr_pytorch *pytorch;
  hr_error error;
  uint64_t states[2];
  (void)state;
  job.lora = "r=64,targets=q_proj,v_proj";
  job.recompute.kind = HR_RECOMPUTE_BLOCK;
  job.sequence_length = 512;
  job.precision = HR_PRECISION_BF16;
  job.quantize = HR_QUANTIZE_NF4_DQ;
  assert_int_equal(hr_job_finish(&job, &error), HR_OK);
  hr_pytorch_options_init(&options);
  for (int k = 0; k < 2; k++) {
    options.conf = k ? "optim=paged_adamw_8bit,use_reentrant=true" : "optim=adamw_bnb_8bit";
    assert_int_equal(hr_pytorch_create(&job, &options, &pytorch, &error), HR_OK);
    assert_non_null(strstr(hr_pytorch_get(pytorch)->settings, "nf4 with double quantization by bitsandbytes"));
    assert_true((strstr(hr_pytorch_get(pytorch)->settings, "paged AdamW 8-bit") != NULL) == (k == 1));
    assert_true((strstr(hr_pytorch_get(pytorch)->settings, "use_reentrant") != NULL) == (k == 1));
    states[k] = hr_pytorch_get(pytorch)->at_peak_by_role[HR_ROLE_OPTIMIZER_STATE];
    hr_pytorch_destroy(pytorch);
  }
  assert_true(states[1] < states[0] / 10);                       /* scales stay on the device */
  options.conf = " optim=paged_adamw_8bit , use_reentrant=True"; /* as people write them */
  assert_int_equal(hr_pytorch_create(&job, &options, &pytorch, &error), HR_OK);
  assert_int_equal(hr_pytorch_get(pytorch)->at_peak_by_role[HR_ROLE_OPTIMIZER_STATE], states[1]);
  assert_true(hr_pytorch_get(pytorch)->reentrant);
  hr_pytorch_destroy(pytorch);
  options.conf = "optim=Sgd";
  assert_int_equal(hr_pytorch_create(&job, &options, &pytorch, &error), HR_ERROR_USAGE);
  options.conf = "resume_from_checkpoint=true,optim=paged_adamw_8bit";
  assert_int_equal(hr_pytorch_create(&job, &options, &pytorch, &error), HR_ERROR_UNSUPPORTED);
  assert_non_null(strstr(error.message, "resume_from_checkpoint"));
  options.conf = "optim=paged_adam";
  assert_int_equal(hr_pytorch_create(&job, &options, &pytorch, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.message, "paged_adam"));
  assert_non_null(strstr(error.hint, "paged_adamw_8bit"));
  options.conf = "optimizer=sgd";
  assert_int_equal(hr_pytorch_create(&job, &options, &pytorch, &error), HR_ERROR_USAGE);
  assert_non_null(strstr(error.hint, "optim"));
}

static hr_pytorch_info info_with(const hr_job *job, const char *conf) {
  hr_pytorch_options options;
  hr_pytorch *pytorch;
  hr_error error;
  hr_pytorch_info info;
  hr_pytorch_options_init(&options);
  options.conf = conf;
  assert_int_equal(hr_pytorch_create(job, &options, &pytorch, &error), HR_OK);
  info = *hr_pytorch_get(pytorch);
  hr_pytorch_destroy(pytorch);
  return info;
}

/* One of a job's arguments has the text. */
static bool says(const hr_pytorch *pytorch, const char *text) {
  hr_pytorch_argument argument;
  for (uint32_t i = 0; hr_pytorch_argument_get(pytorch, i, &argument); i++)
    if (strstr(argument.text, text)) return true;
  return false;
}

/* Arguments are all settings, to be copied: what would train something else where it is left out is among them, by the stack's own words. */
static void test_arguments(void **state) {
  static const struct {
    hr_pytorch_stack stack;
    const char *model, *options, *conf, *said[4];
  } cases[] = {
      {HR_PYTORCH_AXOLOTL, "llama-3.2-1b", "clip=0", "", {"max_grad_norm: 0"}},
      {HR_PYTORCH_LLAMA_FACTORY, "llama-3.2-1b", "clip=0.5", "", {"max_grad_norm: 0.5"}},
      {HR_PYTORCH_PLAIN, "llama-3.2-1b", "clip=0.5", "", {"clip_grad_norm_(model.parameters(), 0.5)"}},
      {HR_PYTORCH_TRL, "llama-3.2-1b", "seq=4096", "", {"max_length=4096"}},
      {HR_PYTORCH_LLAMA_FACTORY, "llama-3.2-1b", "precision=fp32", "", {"bf16: false", "\"torch_dtype\": \"float32\""}},
      {HR_PYTORCH_TRL,
       "llama-3.2-1b",
       "precision=fp32;recompute=none",
       "",
       {"bf16=False", "gradient_checkpointing=False"}},
      {HR_PYTORCH_TRL, "llama-3.2-1b", "precision=bf16", "", {"bf16=True, gradient_checkpointing=True"}},
      {HR_PYTORCH_AXOLOTL,
       "llama-3.2-1b",
       "precision=tf32",
       "resume_from_checkpoint=true",
       {"resume_from_checkpoint: PATH", "tf32: true"}},
      {HR_PYTORCH_PLAIN, "gpt2-124m", "optimizer=momentum", "", {"torch.optim.SGD(model.parameters(), momentum=0.9)"}},
      {HR_PYTORCH_TRAINER, "gpt2-124m", "optimizer=momentum", "", {"optim=\"sgd\", optim_args=\"momentum=0.9\""}},
      {HR_PYTORCH_TRAINER,
       "gpt2-124m",
       "optimizer=momentum",
       "transformers=4.57",
       {"create_optimizer() makes torch.optim.SGD(model.parameters(), momentum=0.9)"}},
      {HR_PYTORCH_AXOLOTL, "llama-3.2-1b", "optimizer=momentum", "", {"optimizer: sgd", "optim_args: momentum=0.9"}},
      {HR_PYTORCH_TRAINER,
       "gpt2-124m",
       "",
       "optim=adafactor_torch",
       {"create_optimizer() makes torch.optim.Adafactor(model.parameters())"}},
      {HR_PYTORCH_TRAINER,
       "gpt2-124m",
       "dropout=0.2",
       "eval_batches=2,eval_strategy=steps,compute_metrics=true",
       {"\"resid_pdrop\": 0.2", "eval_strategy=\"steps\"", "compute_metrics=...", "trainer.evaluate()"}},
      {HR_PYTORCH_LLAMA_FACTORY,
       "llama-3.2-1b",
       "",
       "eval_batches=2,eval_accumulation_steps=3",
       {"per_device_eval_batch_size: 8", "eval_accumulation_steps: 3", "eval_strategy: epoch"}},
      {HR_PYTORCH_TRAINER,
       "llama-3.2-1b",
       "lora=r=16,alpha=64,layers=0-1,rank_pattern=q_proj:64,rslora",
       "",
       {"lora_alpha=64", "layers_to_transform=[0, 1]", "rank_pattern={\"q_proj\": 64}", "use_rslora=True"}},
      {HR_PYTORCH_PLAIN,
       "llama-3.2-1b",
       "lora=r=16,targets=.*layers\\.0\\.self_attn\\.q_proj|.*layers\\.3\\.mlp\\.up_proj",
       "",
       {"target_modules=[\"model.layers.0.self_attn.q_proj\", \"model.layers.3.mlp.up_proj\"]"}},
      {HR_PYTORCH_AXOLOTL,
       "llama-3.2-1b",
       "lora=r=16,alpha=64,layers=0-1,rank_pattern=q_proj:64",
       "",
       {"lora_alpha: 64", "peft_layers_to_transform: [0, 1]", "lora_rank_pattern: {q_proj: 64}"}},
      {HR_PYTORCH_LLAMA_FACTORY,
       "llama-3.2-1b",
       "lora=r=16,alpha=64,targets=q_proj,layers=3",
       "",
       {"lora_alpha: 64", "lora_target: model.layers.3.self_attn.q_proj"}},
      {HR_PYTORCH_TORCHTUNE, "llama-3-8b", "lora=r=16;quantize=nf4+dq", "", {"model.quantize_base=True"}},
      {HR_PYTORCH_PLAIN,
       "llama-3.2-1b",
       "freeze=embed;train-only=embed,layers.3",
       "",
       {"requires_grad_(False) of embed", "all parameters but embed,layers.3"}},
  };
  (void)state;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    hr_job job = job_on(cases[k].model, "a100-80");
    hr_pytorch_options options;
    hr_pytorch *pytorch;
    hr_error error;
    char words[200], *option, *rest = words;
    (void)snprintf(words, sizeof words, "%s", cases[k].options);
    while ((option = strsep(&rest, ";")))
      if (*option) {
        char *value = strchr(option, '=');
        *value++ = 0;
        assert_int_equal(hr_job_set(&job, option, value, &error), HR_OK);
      }
    assert_int_equal(hr_job_finish(&job, &error), HR_OK);
    hr_pytorch_options_init(&options);
    options.stack = cases[k].stack;
    options.conf = cases[k].conf;
    assert_int_equal(hr_pytorch_create(&job, &options, &pytorch, &error), HR_OK);
    for (int i = 0; i < 4 && cases[k].said[i]; i++)
      if (!says(pytorch, cases[k].said[i])) fail_msg("case %zu does not say '%s'", k, cases[k].said[i]);
    assert_false(says(pytorch, "adafactor_torch"));
    hr_pytorch_destroy(pytorch);
  }
}

/* However many names are frozen, the rest of what is said of the job is not lost behind them, and the argument has them all. */
static void test_many_names(void **state) {
  hr_job job = job_on("llama-3.2-1b", "a100-80");
  hr_pytorch *pytorch;
  hr_error error;
  char names[4000] = "";
  (void)state;
  for (int i = 0; i < 16; i++)
    (void)snprintf(names + strlen(names), sizeof names - strlen(names),
                   "%smodel.layers.%d.mlp.gate_proj.weight,model.layers.%d.mlp.up_proj.weight", i ? "," : "", i, i);
  job.freeze = names;
  assert_int_equal(hr_job_finish(&job, &error), HR_OK);
  assert_int_equal(hr_pytorch_create(&job, NULL, &pytorch, &error), HR_OK);
  assert_non_null(strstr(hr_pytorch_get(pytorch)->settings, "... without gradient, autocast to bf16, fp32 weights"));
  assert_non_null(strstr(hr_pytorch_get(pytorch)->settings, "attention sdpa"));
  assert_true(says(pytorch, names));
  hr_pytorch_destroy(pytorch);
}

/* Frozen tensors are found by going through a model once: of 512 layers too, whose names by each other took ten seconds of processor time. */
static void test_many_layers(void **state) {
  hr_job job = job_on("custom:layers=512,hidden=64,heads=4,vocab=500,positions=64,family=llama", "h100");
  const clock_t begun = clock();
  hr_error error;
  uint64_t all, some;
  (void)state;
  job.sequence_length = 16;
  assert_int_equal(hr_job_finish(&job, &error), HR_OK);
  all = info_with(&job, "").trainable_parameter_count;
  job.freeze = "layers.1-511";
  assert_int_equal(hr_job_finish(&job, &error), HR_OK);
  some = info_with(&job, "").trainable_parameter_count;
  assert_true(some < all / 100 && some > 2ull * 500 * 64); /* a layer, the embedding, the head */
  assert_true((double)(clock() - begun) / CLOCKS_PER_SEC < 4);
}

/* What an option asks for and the framework does not do is said, whichever way round. */
static void test_unlike(void **state) {
  static const struct {
    hr_pytorch_stack stack;
    hr_states_8bit states;
    hr_workspace workspace;
    const char *unlike; /* NULL: nothing of it */
  } cases[] = {{HR_PYTORCH_TRAINER, HR_STATES_8BIT_WEIGHTS, HR_WORKSPACE_AUTO, NULL},
               {HR_PYTORCH_TRAINER, HR_STATES_8BIT_ALL, HR_WORKSPACE_AUTO, "embeddings keep states of 32 bits"},
               {HR_PYTORCH_PLAIN, HR_STATES_8BIT_WEIGHTS, HR_WORKSPACE_AUTO, "embeddings have states of 8 bits too"},
               {HR_PYTORCH_TORCHTUNE, HR_STATES_8BIT_WEIGHTS, HR_WORKSPACE_AUTO,
                "embeddings have states of 8 bits too"},
               {HR_PYTORCH_PLAIN, HR_STATES_8BIT_ALL, HR_WORKSPACE_AUTO, NULL},
               {HR_PYTORCH_TRAINER, HR_STATES_8BIT_WEIGHTS, HR_WORKSPACE_NONE, "usual workspace"}};
  (void)state;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    hr_job job = job_on("llama-3.2-1b", "a100-80");
    hr_pytorch_options options;
    hr_pytorch *pytorch;
    hr_error error;
    job.optimizer = HR_OPTIMIZER_ADAMW8BIT;
    job.states_8bit = cases[k].states;
    job.workspace = cases[k].workspace;
    assert_int_equal(hr_job_finish(&job, &error), HR_OK);
    hr_pytorch_options_init(&options);
    options.stack = cases[k].stack;
    assert_int_equal(hr_pytorch_create(&job, &options, &pytorch, &error), HR_OK);
    const char *unlike = hr_pytorch_get(pytorch)->unlike;
    if (cases[k].unlike) assert_non_null(strstr(unlike, cases[k].unlike));
    else assert_true(!strstr(unlike, "states of") && !strstr(unlike, "usual workspace"));
    hr_pytorch_destroy(pytorch);
  }
}

#define SMALL "custom:layers=2,hidden=64,heads=4,kv-heads=2,vocab=500,positions=64,family="

/* Memory that is refused, whichever request for it: MEMORY, no answer, and nothing is left behind. */
static void test_refused_memory(void **state) {
  static const struct {
    hr_pytorch_stack stack;
    uint32_t ranks;
    const char *model, *lora, *conf;
    bool checkpoint;
  } cases[] = {
      {HR_PYTORCH_TRAINER, 1, SMALL "llama", NULL, "eval_batches=2,compute_metrics=true", false},
      {HR_PYTORCH_PLAIN, 1, SMALL "qwen3", NULL, "use_cache=true", true},
      {HR_PYTORCH_TRAINER, 1, SMALL "llama", NULL, "use_reentrant=true", true},
      {HR_PYTORCH_AXOLOTL, 1, SMALL "llama", "r=4,targets=all-linear", "", false},
      {HR_PYTORCH_TRAINER, 2, SMALL "llama", "r=4", "fsdp=true,fsdp_version=1", false},
      {HR_PYTORCH_PLAIN, 2, SMALL "llama", NULL, "fsdp=true,cpu_offload=true", false},
      {HR_PYTORCH_TRAINER, 2, SMALL "llama", NULL, "zero_stage=2,offload_optimizer=cpu", false},
      {HR_PYTORCH_TRAINER, 2, SMALL "llama", NULL, "zero_stage=3", true},
      {HR_PYTORCH_TORCHTUNE, 1, "llama-3.2-1b", "r=4,dora", "", false},
  };
  (void)state;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    hr_job job = job_on(cases[k].model, "a100-80");
    hr_pytorch_options options;
    hr_pytorch *pytorch;
    hr_error error;
    hr_status status = HR_ERROR_MEMORY;
    job.lora = cases[k].lora;
    job.sequence_length = 64;
    if (cases[k].checkpoint) job.recompute.kind = HR_RECOMPUTE_BLOCK;
    assert_int_equal(hr_job_finish(&job, &error), HR_OK);
    hr_pytorch_options_init(&options);
    options.stack = cases[k].stack;
    options.ranks = cases[k].ranks;
    options.conf = cases[k].conf;
    const uint64_t live = hri_mem_live_bytes();
    for (uint64_t nth = 1; status == HR_ERROR_MEMORY; nth++) {
      hri_mem_fail_after(nth);
      status = hr_pytorch_create(&job, &options, &pytorch, &error);
      hri_mem_fail_after(0);
      if (status == HR_OK) hr_pytorch_destroy(pytorch);
      else assert_null(pytorch);
      assert_int_equal(hri_mem_live_bytes(), live);
    }
    assert_int_equal(status, HR_OK);
  }
}

/* What an evaluation is by the stacks whose own defaults differ from the Trainer's. */
static void test_evaluation_of_stacks(void **state) {
  hr_job job = job_on("llama-3.2-1b", "a100-80");
  static const struct {
    hr_pytorch_stack stack;
    const char *conf, *says; /* in the settings, or the refusal */
    hr_status status;
  } cases[] = {
      {HR_PYTORCH_AXOLOTL, "eval_batches=3", "evaluation of 3 batches of 2, eval_accumulation_steps=5", HR_OK},
      {HR_PYTORCH_AXOLOTL, "eval_batches=3,per_device_eval_batch_size=4", "3 batches of 4, ", HR_OK},
      {HR_PYTORCH_LLAMA_FACTORY, "eval_batches=3", "evaluation of 3 batches of 8", HR_OK},
      {HR_PYTORCH_AXOLOTL, "eval_batches=3,compute_metrics=true", "compute_metrics", HR_ERROR_UNSUPPORTED},
      {HR_PYTORCH_AXOLOTL, "eval_batches=3,predict=true", "predict", HR_ERROR_UNSUPPORTED},
      {HR_PYTORCH_AXOLOTL, "eval_batches=3,eval_accumulation_steps=2", "gradient_accumulation_steps",
       HR_ERROR_UNSUPPORTED},
      {HR_PYTORCH_LLAMA_FACTORY, "eval_batches=3,compute_metrics=true", "token ids", HR_ERROR_UNSUPPORTED},
  };
  (void)state;
  job.micro_batch = 2;
  job.accumulate = 5;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    hr_pytorch_options options;
    hr_pytorch *pytorch;
    hr_error error;
    assert_int_equal(hr_job_finish(&job, &error), HR_OK);
    hr_pytorch_options_init(&options);
    options.stack = cases[k].stack;
    options.conf = cases[k].conf;
    assert_int_equal(hr_pytorch_create(&job, &options, &pytorch, &error), cases[k].status);
    assert_non_null(strstr(pytorch ? hr_pytorch_get(pytorch)->settings : error.message, cases[k].says));
    hr_pytorch_destroy(pytorch);
  }
}

/* The course has each request and free: its highest moments are the figures, and what a free takes away was there. */
static void test_course(void **state) {
  hr_job job = job_on("gpt2-124m", "a100-80");
  hr_pytorch *pytorch;
  hr_pytorch_moment *moments;
  hr_error error;
  hr_pytorch_options options;
  uint64_t count, allocated = 0, reserved = 0, frees = 0, emptied = 0;
  (void)state;
  assert_int_equal(hr_job_finish(&job, &error), HR_OK);
  assert_int_equal(hr_pytorch_create(&job, NULL, &pytorch, &error), HR_OK);
  assert_int_equal(hr_pytorch_course(pytorch, &moments, &count, &error), HR_OK);
  assert_int_equal(count, hr_pytorch_get(pytorch)->request_count);
  for (uint64_t i = 0; i < count; i++) {
    assert_true(moments[i].allocated_bytes <= moments[i].reserved_bytes && moments[i].op && moments[i].module);
    if (i) assert_true(moments[i].free == (moments[i].allocated_bytes < moments[i - 1].allocated_bytes));
    if (moments[i].allocated_bytes > allocated) allocated = moments[i].allocated_bytes;
    if (moments[i].reserved_bytes > reserved) reserved = moments[i].reserved_bytes;
    frees += moments[i].free;
  }
  assert_true(frees > count / 3 && frees < count / 2);
  assert_int_equal(allocated, hr_pytorch_get(pytorch)->allocated_bytes);
  assert_int_equal(reserved, hr_pytorch_get(pytorch)->reserved_bytes);
  hr_free(moments);
  hr_pytorch_destroy(pytorch);
  hr_pytorch_options_init(&options); /* DeepSpeed gives cached memory back, which is no tensor's end */
  options.ranks = 2;
  options.conf = "zero_stage=1";
  job.precision = HR_PRECISION_BF16;
  assert_int_equal(hr_job_finish(&job, &error), HR_OK);
  assert_int_equal(hr_pytorch_create(&job, &options, &pytorch, &error), HR_OK);
  assert_int_equal(hr_pytorch_course(pytorch, &moments, &count, &error), HR_OK);
  for (uint64_t i = 1; i < count; i++)
    if (strcmp(moments[i].op, "empty_cache") == 0) {
      emptied++;
      assert_true(!moments[i].free && moments[i].allocated_bytes == moments[i - 1].allocated_bytes &&
                  moments[i].reserved_bytes <= moments[i - 1].reserved_bytes);
    }
  assert_true(emptied > 0);
  hr_free(moments);
  hr_pytorch_destroy(pytorch);
}

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

/* With metrics each further batch adds its fp32 logits; eval_accumulation_steps puts an end to that; without metrics nothing adds up. */
static void test_evaluation(void **state) {
  hr_job job = job_on("gpt2-124m", "h100");
  hr_error error;
  uint64_t logits, few, many, bounded, loss_only;
  (void)state;
  job.sequence_length = 512;
  assert_int_equal(hr_job_finish(&job, &error), HR_OK);
  logits = 4ull * 8 * 512 * job.model.vocabulary_size; /* of a batch of 8 rows */
  few = info_with(&job, "eval_batches=10,compute_metrics=true").allocated_by_phase[HR_PYTORCH_EVALUATE];
  many = info_with(&job, "eval_batches=20,compute_metrics=true").allocated_by_phase[HR_PYTORCH_EVALUATE];
  bounded = info_with(&job, "eval_batches=20,compute_metrics=true,eval_accumulation_steps=2")
                .allocated_by_phase[HR_PYTORCH_EVALUATE];
  loss_only = info_with(&job, "eval_batches=20").allocated_by_phase[HR_PYTORCH_EVALUATE];
  assert_true(many - few >= 18 * logits && many - few <= 22 * logits); /* cat has the old and the new one */
  assert_true(bounded < few && loss_only < bounded);
  assert_int_equal(info_with(&job, "eval_batches=20,compute_metrics=true").peak_phase, HR_PYTORCH_EVALUATE);
  assert_int_equal(info_with(&job, "").allocated_by_phase[HR_PYTORCH_EVALUATE], 0);
}

/* Of many micro-steps six are run, whoever runs them: a million ask for what six do, and are answered at once. */
static void test_many_micro_steps(void **state) {
  static const hr_pytorch_stack stacks[] = {HR_PYTORCH_TRAINER, HR_PYTORCH_PLAIN, HR_PYTORCH_TORCHTUNE};
  (void)state;
  for (size_t k = 0; k < sizeof stacks / sizeof *stacks; k++) {
    hr_pytorch_info infos[2];
    for (int many = 0; many < 2; many++) {
      hr_job job = job_on("llama-3.2-1b", "a100-80");
      hr_pytorch_options options;
      hr_pytorch *pytorch;
      hr_error error;
      job.precision = HR_PRECISION_BF16_PURE;
      job.sequence_length = 256;
      job.accumulate = many ? 1u << 20 : 6;
      assert_int_equal(hr_job_finish(&job, &error), HR_OK);
      hr_pytorch_options_init(&options);
      options.stack = stacks[k];
      assert_int_equal(hr_pytorch_create(&job, &options, &pytorch, &error), HR_OK);
      infos[many] = *hr_pytorch_get(pytorch);
      hr_pytorch_destroy(pytorch);
    }
    assert_int_equal(infos[1].accumulate, 1u << 20);
    assert_int_equal(infos[0].request_count, infos[1].request_count);
    assert_int_equal(infos[0].allocated_bytes, infos[1].allocated_bytes);
    assert_int_equal(infos[0].reserved_bytes, infos[1].reserved_bytes);
  }
}

static hr_pytorch_info info_of_ranks(const hr_job *job, uint32_t ranks, const char *conf) {
  hr_pytorch_options options;
  hr_pytorch *pytorch;
  hr_error error;
  hr_pytorch_info info;
  hr_pytorch_options_init(&options);
  options.stack = HR_PYTORCH_PLAIN;
  options.ranks = ranks;
  options.conf = conf;
  assert_int_equal(hr_pytorch_create(job, &options, &pytorch, &error), HR_OK);
  info = *hr_pytorch_get(pytorch);
  hr_pytorch_destroy(pytorch);
  return info;
}

/* use_cache is of a model that is not checkpointed: there it takes keys and values of all layers, else it is said that it does nothing. */
static void test_use_cache(void **state) {
  hr_job job = job_on("llama-3.2-1b", "a100-80");
  hr_error error;
  uint64_t bytes[2][2];
  (void)state;
  job.micro_batch = 4;
  for (int checkpoint = 0; checkpoint < 2; checkpoint++) {
    if (checkpoint) job.recompute.kind = HR_RECOMPUTE_BLOCK;
    assert_int_equal(hr_job_finish(&job, &error), HR_OK);
    for (int cache = 0; cache < 2; cache++) {
      hr_pytorch_info info = info_of_ranks(&job, 1, cache ? "use_cache=true" : "");
      bytes[checkpoint][cache] = info.allocated_bytes;
      assert_true((strstr(info.unlike, "use_cache off") != NULL) == (checkpoint && cache));
    }
  }
  assert_true(bytes[0][1] > bytes[0][0] && bytes[1][1] == bytes[1][0]);
}

/* Each way to share holds less than the one before it, by what it shares; parts are an N-th, what is on the host no byte of the device. */
static void test_sharing(void **state) {
  hr_job job = job_on("llama-3.2-1b", "h100");
  hr_error error;
  hr_pytorch_info alone, ddp, zero[4], two, eight, offload;
  uint64_t parameters = 1235814400;
  (void)state;
  job.precision = HR_PRECISION_FP32;
  job.sequence_length = 256;
  assert_int_equal(hr_job_finish(&job, &error), HR_OK);
  alone = info_of_ranks(&job, 1, "");
  ddp = info_of_ranks(&job, 8, "gradient_as_bucket_view=true");
  assert_true(alone.recorded && alone.ranks == 1 && ddp.ranks == 8);
  assert_true(ddp.at_peak_by_role[HR_ROLE_COMMUNICATION] >= 4 * parameters);
  two = info_of_ranks(&job, 2, "fsdp=true");
  eight = info_of_ranks(&job, 8, "fsdp=true");
  assert_true(two.at_peak_by_role[HR_ROLE_OPTIMIZER_STATE] / 4 >=
              eight.at_peak_by_role[HR_ROLE_OPTIMIZER_STATE] * 99 / 100);
  assert_true(two.allocated_bytes < alone.allocated_bytes && eight.allocated_bytes < two.allocated_bytes);
  offload = info_of_ranks(&job, 8, "fsdp=true,cpu_offload=true");
  assert_int_equal(eight.host_bytes, 0);
  assert_true(offload.host_bytes >= 2 * parameters &&
              offload.host_bytes < 2 * parameters * 101 / 100); /* 16 bytes each, by 8 */
  assert_int_equal(offload.at_peak_by_role[HR_ROLE_OPTIMIZER_STATE], 0);
  job.precision = HR_PRECISION_BF16;
  assert_int_equal(hr_job_finish(&job, &error), HR_OK);
  zero[1] = info_of_ranks(&job, 8, "zero_stage=1,reduce_bucket_size=1000000");
  zero[2] = info_of_ranks(&job, 8, "zero_stage=2,reduce_bucket_size=1000000");
  zero[3] = info_of_ranks(&job, 8, "zero_stage=3,reduce_bucket_size=1000000");
  assert_true(zero[1].allocated_bytes > zero[2].allocated_bytes && zero[2].allocated_bytes > zero[3].allocated_bytes);
  const double states[] = {(double)zero[1].at_peak_by_role[HR_ROLE_OPTIMIZER_STATE],
                           (double)zero[2].at_peak_by_role[HR_ROLE_OPTIMIZER_STATE]};
  assert_true(fabs(states[0] / states[1] - 1) < 0.01); /* but for rests of blocks */
  assert_true(info_of_ranks(&job, 8, "zero_stage=3,offload_optimizer=cpu,offload_param=cpu").host_bytes >=
              2 * parameters);
}

/* Settings reach the run: each changes the bytes as its rule says. */
static void test_kinds(void **state) {
  hr_job job = job_on("llama-3.2-1b", "a100-80");
  hr_error error;
  uint64_t own, older, oldest, math, two;
  (void)state;
  job.micro_batch = 2;
  assert_int_equal(hr_job_finish(&job, &error), HR_OK);
  own = info_with(&job, "").allocated_bytes;
  older = info_with(&job, "transformers=4.49").allocated_bytes;
  oldest = info_with(&job, "transformers=4.46.3").allocated_bytes;
  math = info_with(&job, "sdpa_kernel=math").allocated_bytes;
  two = info_with(&job, "attn_implementation=flash_attention_2").allocated_bytes;
  assert_true(own < older && older < oldest && oldest < math);
  assert_int_equal(two, own);
  assert_true(info_with(&job, "").recorded && !info_with(&job, "attn_implementation=flash_attention_2").recorded);
  assert_true(info_with(&job, "attn_implementation=flash_attention_2").error_high > info_with(&job, "").error_high);
  assert_true(info_with(&job, "optim=adafactor").at_peak_by_role[HR_ROLE_OPTIMIZER_STATE] <
              info_with(&job, "").at_peak_by_role[HR_ROLE_OPTIMIZER_STATE] / 100);
  job.freeze = "embed";
  assert_int_equal(hr_job_finish(&job, &error), HR_OK);
  assert_true(info_with(&job, "").at_peak_by_role[HR_ROLE_OPTIMIZER_STATE] <
              info_with(&job, "optim=adamw_torch").allocated_bytes);
  assert_true(info_with(&job, "").allocated_bytes + 8ull * 128256 * 2048 < own);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_recorded),
      cmocka_unit_test(test_card),
      cmocka_unit_test(test_held_back),
      cmocka_unit_test(test_gradients_meet),
      cmocka_unit_test(test_partial_sums),
      cmocka_unit_test(test_checkpointing),
      cmocka_unit_test(test_interface),
      cmocka_unit_test(test_peak_adds_up),
      cmocka_unit_test(test_budget),
      cmocka_unit_test(test_verdict),
      cmocka_unit_test(test_kinds),
      cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_settings),
      cmocka_unit_test(test_evaluation),
      cmocka_unit_test(test_many_micro_steps),
      cmocka_unit_test(test_ddp),
      cmocka_unit_test(test_fsdp2),
      cmocka_unit_test(test_fsdp1),
      cmocka_unit_test(test_beside),
      cmocka_unit_test(test_beside_lessons),
      cmocka_unit_test(test_zero),
      cmocka_unit_test(test_sharing),
      cmocka_unit_test(test_context),
      cmocka_unit_test(test_course),
      cmocka_unit_test(test_arguments),
      cmocka_unit_test(test_many_names),
      cmocka_unit_test(test_refused_memory),
      cmocka_unit_test(test_unlike),
      cmocka_unit_test(test_use_cache),
      cmocka_unit_test(test_many_layers),
      cmocka_unit_test(test_evaluation_of_stacks),
      cmocka_unit_test(test_liger),
      cmocka_unit_test(test_liger_lessons),
      cmocka_unit_test(test_open_rows),
      cmocka_unit_test(test_axolotl),
      cmocka_unit_test(test_llama_factory),
      cmocka_unit_test(test_stack_lessons),
      cmocka_unit_test(test_torchtune),
      cmocka_unit_test(test_torchtune_lessons),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
