/* What headroom/pytorch.h answers: figures that add up, the verdict, settings and arguments in the framework's words, refusals; and what each of a
 * job's settings does to them. The rules themselves are held against recordings in test_pytorch.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <headroom/field.h>
#include <headroom/pytorch.h>

#include "base/mem.h"
#include "support/cpu_seconds.h"
#include "support/pytorch.h"

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
  assert_true(states[1] < states[0] / 10);                            /* scales stay on the device */
  options.conf = "  optim = paged_adamw_8bit , use_reentrant =True "; /* as people write them */
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
  const double begun = cpu_seconds();
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
  assert_true(cpu_seconds() - begun < 4);
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

static hr_pytorch_info accumulated(hr_pytorch_stack stack, const char *device, uint32_t rows, uint32_t tokens,
                                   uint32_t accumulate) {
  hr_job job = job_on("llama-3.2-1b", device);
  hr_pytorch_options options;
  hr_pytorch *pytorch;
  hr_error error;
  hr_pytorch_info info;
  job.precision = rows > 1 ? HR_PRECISION_BF16 : HR_PRECISION_BF16_PURE;
  job.micro_batch = rows;
  job.sequence_length = tokens;
  job.accumulate = accumulate;
  assert_int_equal(hr_job_finish(&job, &error), HR_OK);
  hr_pytorch_options_init(&options);
  options.stack = stack;
  assert_int_equal(hr_pytorch_create(&job, &options, &pytorch, &error), HR_OK);
  info = *hr_pytorch_get(pytorch);
  hr_pytorch_destroy(pytorch);
  return info;
}

/* Of many micro-steps six or seven are run, whoever runs them: a million ask for what six do, and are answered at once. */
static void test_many_micro_steps(void **state) {
  static const hr_pytorch_stack stacks[] = {HR_PYTORCH_TRAINER, HR_PYTORCH_PLAIN, HR_PYTORCH_TORCHTUNE};
  (void)state;
  for (size_t k = 0; k < sizeof stacks / sizeof *stacks; k++)
    for (uint32_t odd = 0; odd < 2; odd++) {
      hr_pytorch_info few = accumulated(stacks[k], "a100-80", 1, 256, 6 + odd),
                      many = accumulated(stacks[k], "a100-80", 1, 256, (1u << 20) - odd);
      assert_int_equal(many.accumulate, (1u << 20) - odd);
      assert_int_equal(few.request_count, many.request_count);
      assert_int_equal(few.allocated_bytes, many.allocated_bytes);
      assert_int_equal(few.reserved_bytes, many.reserved_bytes);
    }
}

/* Every second micro-step finds what it asks for in the same place: an odd number of them reserves what another odd number does. */
static void test_odd_micro_steps(void **state) {
  uint64_t reserved[8];
  (void)state;
  for (uint32_t k = 0; k < 8; k++) reserved[k] = accumulated(HR_PYTORCH_PLAIN, "h100", 2, 1024, 6 + k).reserved_bytes;
  assert_int_not_equal(reserved[0], reserved[1]);
  for (uint32_t k = 2; k < 8; k++) assert_int_equal(reserved[k], reserved[k % 2]);
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
      cmocka_unit_test(test_interface),
      cmocka_unit_test(test_peak_adds_up),
      cmocka_unit_test(test_budget),
      cmocka_unit_test(test_verdict),
      cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_open_rows),
      cmocka_unit_test(test_settings),
      cmocka_unit_test(test_arguments),
      cmocka_unit_test(test_many_names),
      cmocka_unit_test(test_many_layers),
      cmocka_unit_test(test_unlike),
      cmocka_unit_test(test_refused_memory),
      cmocka_unit_test(test_evaluation_of_stacks),
      cmocka_unit_test(test_course),
      cmocka_unit_test(test_evaluation),
      cmocka_unit_test(test_many_micro_steps),
      cmocka_unit_test(test_odd_micro_steps),
      cmocka_unit_test(test_use_cache),
      cmocka_unit_test(test_sharing),
      cmocka_unit_test(test_kinds),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
