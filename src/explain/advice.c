/* What usually helps, per cause, cheapest first, in the words of the framework that the log names. All of this is
 * unproven advice; what replay proved or a plan showed is put in front by hr_oom_add_advice. */
#include <stdio.h>

#include "explain/message.h"

#define ON(name) (1u << HR_OOM_##name)
/* What the failure was explained from; a tip with none of them is for all. */
enum {
  FROM_TEXT = 1 << 28,
  FROM_SNAPSHOT = 1 << 29,
  FROM_RUN = 1 << 30,
  FROM_ANY = FROM_TEXT | FROM_SNAPSHOT | FROM_RUN,
  /* What the run was at; a tip with none of them is for all, and comes behind those that have. */
  IN_OPTIMIZER = 1 << 25,
  IN_LOSS = 1 << 26,
  IN_EVALUATION = 1 << 27,
  IN_ANY = IN_OPTIMIZER | IN_LOSS | IN_EVALUATION
};
enum { SETTINGS_TOPIC = 5 };
#define RECORDS "record a snapshot"

typedef struct tip {
  uint32_t causes;
  const char *framework; /* NULL: any; a tip for the named framework displaces the general one of its topic */
  unsigned topic;
  const char *cost, *text; /* NULL: nothing of this topic helps there */
} tip;

/* Ordered by cost; within a topic the framework's own words come before the general ones. */
static const tip tips[] = {
    {ON(NOT_PYTORCH), NULL, 1, "none",
     "ask where the named framework's memory is explained: this message is not PyTorch's"},
    {ON(ON_CHIP), NULL, 2, "small",
     "use smaller blocks or fewer num_stages in the kernel's configuration, or another attention implementation"},
    {ON(OTHER_PROCESS), "vllm", 3, "none",
     "stop the other processes (nvidia-smi lists them), or lower --gpu-memory-utilization"},
    {ON(OTHER_PROCESS), NULL, 3, "none",
     "look at nvidia-smi on the host and end what is left over; or pick a free device with CUDA_VISIBLE_DEVICES"},
    {ON(OTHER_PROCESS), NULL, 4, "none",
     "with several ranks: call torch.cuda.set_device(local_rank) before the first CUDA call and load with map_location"},
    {ON(FRAGMENTED), NULL, SETTINGS_TOPIC, "none",
     "set PYTORCH_ALLOC_CONF=expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF before 2.9); before 2.1 max_split_size_mb:128"},
    {ON(FRAGMENTED), "transformers", 6, "small",
     "TrainingArguments: group_by_length=True or padding to a fixed length, so that sizes repeat"},
    {ON(FRAGMENTED), NULL, 6, "small", "keep sizes alike from step to step: bucket or pad sequences"},
    {ON(CAP), "vllm", 7, "none", "raise --gpu-memory-utilization, or lower --max-model-len"},
    {ON(CAP), "sglang", 7, "none", "raise --mem-fraction-static, or lower --context-length; or more GPUs (--tp)"},
    {ON(CAP), "node.js", 7, "none", "raise the heap's limit: NODE_OPTIONS=--max-old-space-size=MIB"},
    {ON(CAP), "java", 7, "none", "raise the heap's limit: -Xmx (Spark: spark.driver.memory, spark.executor.memory)"},
    {ON(CAP), "php", 7, "none", "raise memory_limit in php.ini, or php -d memory_limit=..."},
    {ON(CAP), NULL, 7, "none",
     "raise or remove the cap: set_per_process_memory_fraction, or per_process_memory_fraction in PYTORCH_ALLOC_CONF; on MPS PYTORCH_MPS_HIGH_WATERMARK_RATIO (0.0 can hang the machine)"},
    {ON(CACHED_NOT_RETURNED), NULL, 8, "small",
     "call torch.cuda.empty_cache() before capturing a graph or entering the MemPool"},
    {ON(PRIVATE_POOL), "vllm", 9, "some speed", "start with --enforce-eager, or capture fewer batch sizes"},
    {ON(PRIVATE_POOL), NULL, 9, "some speed",
     "capture fewer graphs or let them share one pool; torch.compile: mode other than reduce-overhead"},
    {ON(HOST_MEMORY), "headroom", 10, "small",
     "plan with a smaller --budget (headroom plan ... --fixes), or end what else holds the machine's memory; --resume RUN goes on"},
    {ON(GROWTH), "headroom", 20, "none",
     "a run that grows is a defect: please report it with run.json and metrics.jsonl; --resume RUN goes on meanwhile"},
    {ON(HOST_MEMORY), "transformers", 10, "small",
     "TrainingArguments: fewer dataloader_num_workers, dataloader_pin_memory=False; load with low_cpu_mem_usage=True"},
    {ON(HOST_MEMORY), "deepspeed", 10, "small",
     "deepspeed: offload_optimizer/offload_param with pin_memory false, or offload less; fewer data workers"},
    {ON(HOST_MEMORY), NULL, 10, "small",
     "fewer data-loader workers, less prefetch, pin_memory=False; a larger memory limit of the job (docker --memory, Slurm --mem, Kubernetes limits)"},
    {ON(OUTSIDE_ALLOCATOR), NULL, 11, "none",
     "leave room for libraries: set_per_process_memory_fraction below 1, empty_cache() before the first use of the library"},
    {ON(OUTSIDE_ALLOCATOR), NULL, 12, "none",
     "run once with CUDA_LAUNCH_BLOCKING=1 to rule out an earlier error (a bad index)"},
    {ON(OUTSIDE_ALLOCATOR), NULL, 13, "small",
     "fewer NCCL communicators or channels (NCCL_MAX_NCHANNELS); a smaller CUBLAS_WORKSPACE_CONFIG"},
    {ON(GROWTH), "transformers", 20, "none",
     "keep numbers, not tensors: total += loss.item(); TrainingArguments: eval_accumulation_steps, so that predictions leave the GPU"},
    {ON(GROWTH), NULL, 20, "none",
     "keep numbers, not tensors: total += loss.item(), outputs.append(x.detach().cpu()); the growing stack is named above"},
    {ON(GROWTH), NULL, 21, "none",
     "look for hooks, lists and caches that keep a graph alive; retain_graph=True; optimizer.zero_grad(set_to_none=True)"},
    {ON(OUTLIER_BATCH), "transformers", 22, "small",
     "cap the length (tokenizer: truncation, max_length); TrainingArguments: group_by_length=True makes the longest batch come first"},
    {ON(OUTLIER_BATCH), "axolotl", 22, "small",
     "axolotl: sequence_len lower, or sample_packing: true, so that every batch has the same length"},
    {ON(OUTLIER_BATCH), "llama-factory", 22, "small",
     "LLaMA-Factory: cutoff_len lower, or packing: true, so that every batch has the same length"},
    {ON(OUTLIER_BATCH), NULL, 22, "small",
     "cap the length of samples, or batch by tokens instead of by rows; run the longest batch first, so that it fails at once"},
    {ON(NO_FAILURE) | FROM_SNAPSHOT, NULL, 23, "none", "to have a failure explained, " RECORDS " at it, not later"},
    {ON(UNKNOWN) | FROM_TEXT, NULL, 14, "none",
     RECORDS ": torch.cuda.memory._record_memory_history(), then _dump_snapshot() at the failure"},
    {ON(UNKNOWN) | FROM_SNAPSHOT, NULL, 24, "none",
     "explain the text of the error too: it lists the processes on the device and a cap, which no snapshot has"},
    {ON(UNKNOWN) | FROM_TEXT | FROM_SNAPSHOT, NULL, 15, "none",
     "record nvidia-smi's process list at the failure, from the host and not from a container"},
    {ON(UNKNOWN) | FROM_TEXT, NULL, 16, "none",
     "record the step number and the batch's shape: a failure at the first step, at one batch or after many steps differ"},
    {ON(UNKNOWN) | FROM_RUN, NULL, 25, "none",
     "look into the kernel's log at the time of the last step: dmesg -T or journalctl -k, \"Out of memory\", \"oom-kill\""},
    {ON(TOO_BIG) | IN_LOSS, NULL, 26, "small",
     "where the loss is over a vocabulary: in chunks, so that logits are never whole (Liger's fused linear cross entropy: use_liger_kernel=True; torchtune: CEWithChunkedOutputLoss)"},
    {ON(TOO_BIG) | IN_OPTIMIZER, NULL, 17, "none",
     "AdamW(..., fused=True), or foreach=False: no lists of temporaries as large as the weights. The batch has no part in what the optimizer's step needs"},
    {ON(TOO_BIG) | IN_EVALUATION, NULL, 17, "small",
     "fewer rows or shorter ones at once in evaluation (TrainingArguments: per_device_eval_batch_size), logits of which only what is needed is kept"},
    {ON(TOO_BIG), "transformers", 17, "some speed",
     "TrainingArguments: per_device_train_batch_size=1 with gradient_accumulation_steps raised in turn"},
    {ON(TOO_BIG), "deepspeed", 17, "some speed",
     "deepspeed: train_micro_batch_size_per_gpu 1 with gradient_accumulation_steps raised in turn"},
    {ON(TOO_BIG), "axolotl", 17, "some speed",
     "axolotl: micro_batch_size: 1 with gradient_accumulation_steps raised in turn; sequence_len lower"},
    {ON(TOO_BIG), "llama-factory", 17, "some speed",
     "LLaMA-Factory: per_device_train_batch_size: 1 with gradient_accumulation_steps raised; cutoff_len lower"},
    {ON(TOO_BIG), "torchtune", 17, "some speed",
     "torchtune: batch_size=1 with gradient_accumulation_steps raised; tokenizer.max_seq_len lower"},
    {ON(TOO_BIG), "lightning", 17, "some speed",
     "Lightning: a smaller batch_size in the DataLoader with Trainer(accumulate_grad_batches=...) raised in turn"},
    {ON(TOO_BIG), "vllm", 17, "some speed",
     "vLLM: lower --max-num-seqs or --max-model-len, or --tensor-parallel-size over more GPUs"},
    {ON(TOO_BIG), "diffusers", 17, "some speed",
     "diffusers: enable_attention_slicing(), enable_vae_tiling(), or enable_model_cpu_offload()"},
    {ON(TOO_BIG), "comfyui", 17, "some speed", "ComfyUI: start with --lowvram, or a smaller image or batch"},
    {ON(TOO_BIG), NULL, 17, "some speed", "a smaller micro-batch with more gradient accumulation; shorter sequences"},
    {ON(TOO_BIG) | IN_OPTIMIZER, NULL, 18, "some speed",
     "weights in 16 bits; states and gradients over several GPUs (ZeRO, FSDP) or on the host"},
    {ON(TOO_BIG) | IN_EVALUATION, NULL, 18, NULL,
     NULL}, /* no backward: nothing is kept for it, and no states are made */
    {ON(TOO_BIG), "transformers", 18, "a quarter of the speed", "TrainingArguments: gradient_checkpointing=True"},
    {ON(TOO_BIG), "axolotl", 18, "a quarter of the speed", "axolotl: gradient_checkpointing: true"},
    {ON(TOO_BIG), "torchtune", 18, "a quarter of the speed", "torchtune: enable_activation_checkpointing=True"},
    {ON(TOO_BIG), "fsdp", 18, "a quarter of the speed",
     "FSDP: apply_activation_checkpointing, and FULL_SHARD instead of SHARD_GRAD_OP"},
    {ON(TOO_BIG), NULL, 18, "a quarter of the speed", "activation checkpointing (torch.utils.checkpoint)"},
    {ON(TOO_BIG) | IN_EVALUATION, NULL, 19, NULL, NULL},
    {ON(TOO_BIG), "transformers", 19, "other numerics",
     "TrainingArguments: optim=\"adamw_bnb_8bit\", or LoRA with PEFT"},
    {ON(TOO_BIG), "deepspeed", 19, "much speed",
     "deepspeed: zero_optimization stage 3, then offload_optimizer device cpu"},
    {ON(TOO_BIG), NULL, 19, "other numerics", "8-bit optimizer states, or adapters (LoRA) instead of all weights"},
};

/* What helps where /dev/shm ran out, instead of what helps the machine's memory. */
static const tip shared_tips[] = {
    {ON(HOST_MEMORY), NULL, 10, "none",
     "give /dev/shm more: docker run --shm-size=16g (or --ipc=host); Kubernetes: an emptyDir of medium Memory at /dev/shm; else mount -o remount,size=16G /dev/shm"},
    {ON(HOST_MEMORY), NULL, 10, "none", "df -h /dev/shm shows its limit and what runs that were killed left there"},
    {ON(HOST_MEMORY), NULL, 10, "small",
     "fewer data-loader workers or a lower prefetch_factor: every batch that waits lies in /dev/shm"},
};

void hr_oom_add_advice(hr_oom_failure *failure, hr_oom_basis basis, const char *text, const char *cost,
                       const char *proof, uint64_t need_bytes) {
  uint32_t place = 0;
  hr_oom_advice *to;
  /* a stronger basis first; equals in the order of the calls */
  while (place < failure->advice_count && failure->advice[place].basis != HR_OOM_ADVICE &&
         failure->advice[place].basis <= basis)
    place++;
  if (basis == HR_OOM_ADVICE) place = failure->advice_count;
  if (place == HR_OOM_MAX_ADVICE) return;
  if (failure->advice_count == HR_OOM_MAX_ADVICE) failure->advice_count--;
  memmove(&failure->advice[place + 1], &failure->advice[place], (failure->advice_count - place) * sizeof *to);
  failure->advice_count++;
  to = &failure->advice[place];
  *to = (hr_oom_advice){.cost = cost, .basis = basis, .need_bytes = need_bytes};
  (void)snprintf(to->text, sizeof to->text, "%s", text);
  (void)snprintf(to->proof, sizeof to->proof, "%s", proof);
}

bool hri_oom_asks_for_snapshot(const hr_oom_advice *advice) { return strstr(advice->text, RECORDS) != NULL; }

static uint32_t place_of(const hr_oom_failure *failure) {
  static const struct {
    const char *phase;
    uint32_t place;
  } places[] = {{"optimizer", IN_OPTIMIZER},
                {"loss", IN_LOSS},
                {"evaluation", IN_EVALUATION},
                {"generation", IN_EVALUATION}};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++)
    if (strcmp(failure->phase, places[i].phase) == 0) return places[i].place;
  return 0;
}

void hri_oom_advise(hr_oom_failure *failure) {
  bool said = failure->cause == HR_OOM_GROWTH && failure->advice_count; /* what grows is known better */
  unsigned last = 0, from = FROM_TEXT;
  uint32_t late = failure->candidates & (ON(GROWTH) | ON(OUTLIER_BATCH)), causes = 1u << failure->cause | late;
  const uint32_t place = place_of(failure);
  if (strcmp(failure->source, "snapshot") == 0) from = FROM_SNAPSHOT;
  if (strcmp(failure->source, "run") == 0) from = FROM_RUN;
  if (failure->cause == HR_OOM_TOO_BIG && hri_oom_is_wrong_size(failure)) {
    hr_oom_add_advice(
        failure, HR_OOM_ADVICE,
        "find where the size is computed: print the shapes and lengths that the last lines of the traceback use",
        "none", "", 0);
    return;
  }
  if (strcmp(failure->source, "shared-memory") == 0) {
    for (size_t i = 0; i < sizeof shared_tips / sizeof *shared_tips; i++)
      hr_oom_add_advice(failure, HR_OOM_ADVICE, shared_tips[i].text, shared_tips[i].cost, "", 0);
    return;
  }
  for (size_t i = 0; i < sizeof tips / sizeof *tips; i++) {
    const tip *t = &tips[i];
    if (!(t->causes & causes) || t->topic == last || (said && t->causes & ON(GROWTH))) continue;
    if (t->framework && strcmp(t->framework, failure->framework) != 0) continue;
    if (t->causes & FROM_ANY && !(t->causes & from)) continue;
    if (t->causes & IN_ANY && !(t->causes & place)) continue;
    if (t->topic == SETTINGS_TOPIC && failure->advice_count && failure->advice[0].basis != HR_OOM_ADVICE)
      continue; /* replayed ones are there */
    last = t->topic;
    if (t->text) hr_oom_add_advice(failure, HR_OOM_ADVICE, t->text, t->cost, "", 0);
  }
}

/* ---- names ---- */

const char *hr_oom_cause_name(hr_oom_cause cause) {
  static const char *const names[HR_OOM_CAUSE_COUNT] = {"unknown",           "too_big",
                                                        "fragmented",        "cached_not_returned",
                                                        "other_process",     "cap",
                                                        "private_pool",      "host_memory",
                                                        "outside_allocator", "not_pytorch",
                                                        "on_chip",           "growth",
                                                        "outlier_batch",     "no_failure"};
  return (unsigned)cause < HR_OOM_CAUSE_COUNT ? names[cause] : "unknown";
}

const char *hr_oom_certainty_name(hr_oom_certainty certainty) {
  static const char *const names[] = {"undecidable", "likely", "certain"};
  return (unsigned)certainty <= HR_OOM_CERTAIN ? names[certainty] : "undecidable";
}

const char *hr_oom_basis_name(hr_oom_basis basis) {
  static const char *const names[] = {"advice", "proven", "planned", "replayed", "request"};
  return (unsigned)basis <= HR_OOM_REQUEST ? names[basis] : "advice";
}

const char *hr_oom_figure_name(hr_oom_figure figure) {
  static const char *const names[HR_OOM_FIGURE_COUNT] = {"requested_bytes",     "total_bytes",
                                                         "free_bytes",          "this_process_bytes",
                                                         "allocated_bytes",     "reserved_bytes",
                                                         "unallocated_bytes",   "allowed_bytes",
                                                         "private_pools_bytes", "other_processes_bytes"};
  return (unsigned)figure < HR_OOM_FIGURE_COUNT ? names[figure] : "unknown";
}
