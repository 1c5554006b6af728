/* Advice: for each failure what helps there, in settings that exist there, and nothing that cannot help. The table is
 * src/explain/tips.c. */
#include "explain/cases.h"
#include "explain/tips.h"

#include <headroom/explain.h>

typedef struct advised {
  const char *text;
  const char *has, *lacks; /* each a list of words separated by "|"; NULL: none */
} advised;

static bool any_has(const hr_oom_failure *f, const char *word, size_t length) {
  char copy[HR_OOM_LINE_BYTES];
  (void)snprintf(copy, sizeof copy, "%.*s", (int)length, word);
  for (uint32_t k = 0; k < f->advice_count; k++)
    if (strstr(f->advice[k].text, copy)) return true;
  return false;
}

static bool holds(const hr_oom_failure *f, const char *list, bool wanted, const char *text) {
  for (const char *at = list; at && *at;) {
    const size_t length = strcspn(at, "|");
    if (any_has(f, at, length) != wanted) {
      print_error("%s \"%.*s\": %s\n", wanted ? "lacks" : "has", (int)length, at, text);
      for (uint32_t k = 0; k < f->advice_count; k++) print_error("  %s\n", f->advice[k].text);
      return false;
    }
    at += length + (at[length] == '|');
  }
  return true;
}

static void check(const advised *cases, size_t count) {
  for (size_t i = 0; i < count; i++) {
    hr_explanation *e = explain_text(cases[i].text);
    const hr_oom_failure *f;
    assert_true(e->failure_count > 0);
    f = &e->failures[e->primary];
    assert_true(holds(f, cases[i].has, true, cases[i].text));
    assert_true(holds(f, cases[i].lacks, false, cases[i].text));
    hr_explanation_destroy(e);
  }
}
#define CHECK(cases) check(cases, sizeof(cases) / sizeof *(cases))

#define NEW_TAIL                                                                                                       \
  " is allocated by PyTorch, and 3.00 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory " \
  "is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."

/* A setting is advised only to a PyTorch that has it. */
static void test_versions(void **state) {
  static const advised cases[] = {
      {"CUDA out of memory. Tried to allocate 2.72 GiB (GPU 0; 10.92 GiB total capacity; 7.12 GiB already allocated; "
       "2.03 GiB free; 8.36 GiB reserved in total by PyTorch)",
       "update PyTorch", "PYTORCH_CUDA_ALLOC_CONF=|set PYTORCH"},
      {"CUDA out of memory. Tried to allocate 2.72 GiB (GPU 0; 10.92 GiB total capacity; 7.12 GiB already allocated; "
       "2.03 GiB free; 8.36 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting "
       "max_split_size_mb to avoid fragmentation.",
       "max_split_size_mb:128", "before 2.9"},
      {"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 "
       "GiB of which 1.00 GiB is free. Including non-PyTorch memory, this process has 22.60 GiB memory in use. Of the "
       "allocated memory 19.10 GiB" NEW_TAIL,
       "expandable_segments:True", "before 2.1"},
      {"HIP out of memory. Tried to allocate 2.72 GiB (GPU 0; 10.92 GiB total capacity; 7.12 GiB already allocated; "
       "2.03 GiB free; 8.36 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting "
       "max_split_size_mb to avoid fragmentation.",
       "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"},
      {"RuntimeError: CUDA error: out of memory", "record a snapshot|2.1 and later", NULL},
      {"CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.92 GiB total capacity; 1.10 GiB already allocated; "
       "30.00 MiB free; 1.20 GiB reserved in total by PyTorch)",
       "nvidia-smi", "max_split_size"},
  };
  (void)state;
  CHECK(cases);
}

/* One tensor that is larger than the device gets no smaller by keeping less of others. */
static void test_one_tensor(void **state) {
  static const advised cases[] = {
      {"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 93.89 GiB. GPU 0 has a total capacity of 79.21 "
       "GiB of which 60.00 GiB is free. Including non-PyTorch memory, this process has 19.10 GiB memory in use. Of "
       "the allocated memory 18.00 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.",
       "scaled_dot_product_attention|smaller micro-batch", "checkpointing|8-bit optimizer"},
      {"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 30.00 GiB. GPU 0 has a total capacity of 79.21 "
       "GiB of which 20.00 GiB is free. Including non-PyTorch memory, this process has 59.10 GiB memory in use. Of "
       "the allocated memory 58.00 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.",
       "scaled_dot_product_attention|checkpointing", NULL},
      {"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 300.00 MiB. GPU 0 has a total capacity of 79.21 "
       "GiB of which 200.00 MiB is free. Including non-PyTorch memory, this process has 79.00 GiB memory in use. Of "
       "the allocated memory 78.00 GiB is allocated by PyTorch, and 50.00 MiB is reserved by PyTorch but unallocated.",
       "checkpointing|8-bit optimizer", "one tensor"},
  };
  (void)state;
  CHECK(cases);
}

#define FULL                                                                                                           \
  "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 300.00 MiB. GPU 0 has a total capacity of 23.64 GiB " \
  "of which 200.00 MiB is free. Including non-PyTorch memory, this process has 23.40 GiB memory in use. Of the "       \
  "allocated memory 23.00 GiB is allocated by PyTorch, and 50.00 MiB is reserved by PyTorch but unallocated."

/* Where nothing is trained, nothing that training keeps is advised against. */
static void test_places(void **state) {
  static const advised cases[] = {
      {"Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n    model = "
       "AutoModel.from_pretrained(name)\n" FULL,
       "device_map", "micro-batch|checkpointing|8-bit optimizer"},
      {"Traceback (most recent call last):\n  File \"/x/torch/nn/modules/module.py\", line 1150, in convert\n    return "
       "t.to(device, dtype if t.is_floating_point() else None, non_blocking)\n" FULL,
       "16 bits", "micro-batch|checkpointing"},
      {"Traceback (most recent call last):\n  File \"/x/transformers/generation/utils.py\", line 1522, in generate\n    "
       "return self.greedy_search(\n" FULL,
       "fewer rows", "checkpointing|8-bit optimizer|gradient"},
      {"Traceback (most recent call last):\n  File \"/x/vllm/worker/model_runner.py\", line 9, in load\n    x()\n" FULL,
       "max-num-seqs", "checkpointing|adapters"},
      {"Traceback (most recent call last):\n  File \"/x/ComfyUI/comfy/ldm/model.py\", line 9, in f\n    x()\n" FULL,
       "--lowvram", "checkpointing|optimizer"},
  };
  (void)state;
  CHECK(cases);
}

/* Settings of PyTorch for PyTorch, and each program's own for it. */
static void test_owners(void **state) {
  static const advised cases[] = {
      {"RuntimeError: MPS backend out of memory (MPS allocated: 17.00 GB, other allocations: 1.00 GB, max allowed: "
       "18.13 GB). Tried to allocate 1.00 GB on private pool.",
       "PYTORCH_MPS_HIGH_WATERMARK_RATIO", "torch.cuda|per_process"},
      {"DB::Exception: Memory limit (total) exceeded: would use 9.31 GiB (attempt to allocate chunk of 4 MiB), maximum: "
       "9.31 GiB",
       "that limit", "per_process|torch|PYTORCH"},
      {"FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory", "--max-old-space-size",
       "per_process"},
      {"jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1073741824 "
       "bytes.",
       "XLA_PYTHON_CLIENT_MEM_FRACTION|jax.checkpoint", "torch"},
      {"tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[64,1024]",
       "TF_FORCE_GPU_ALLOW_GROWTH|mixed_precision", "torch"},
      {"ggml_backend_cuda_buffer_type_alloc_buffer: allocating 5000.00 MiB on device 0: cudaMalloc failed: out of memory",
       "-ngl", "torch|micro-batch"},
      {"CUDA Error: out of memory: File exists\ndarknet: ./src/cuda.c:36: check_error: Assertion `0' failed.",
       "subdivisions", "torch"},
      {"c++: fatal error: Killed signal terminated program cc1plus\ncompilation terminated.", "MAX_JOBS",
       "data-loader|dataloader|prefetch"},
      {"numpy.core._exceptions._ArrayMemoryError: Unable to allocate 12.3 GiB for an array with shape (40000, 41000) and "
       "data type float64",
       "float32", "data-loader|num_workers"},
      {"OSError: [WinError 1455] The paging file is too small for this operation to complete. Error loading "
       "\"C:\\\\torch\\\\lib\\\\caffe2_detectron_ops.dll\"",
       "larger paging file", "docker"},
      {"slurmstepd: error: Detected 1 oom_kill event in StepId=9.batch. Some of the step tasks have been OOM Killed.",
       "sacct|--mem", "docker"},
      {"java.lang.OutOfMemoryError: unable to create new native thread", "ulimit -u", "data loader"},
      {"Error: cannot allocate vector of size 3.7 Gb", "gc()", "num_workers"},
      {"tasks were killed due to the node running low on memory: ray.exceptions.OutOfMemoryError", "num_cpus", NULL},
      {"RuntimeError: XPU out of memory, please use `empty_cache` to release all unoccupied cached memory.",
       "memory_reserved()", "nvidia-smi|torch.cuda"},
      {"nccl: ncclUnhandledCudaError: Call to CUDA function failed. Last error: Cuda failure 2 'out of memory'",
       "NCCL_BUFFSIZE", "CUDA_LAUNCH_BLOCKING"},
      {"EXC_RESOURCE RESOURCE_TYPE_MEMORY (limit=1400 MB, unused=0x0)", "increased-memory-limit", "docker|num_workers"},
      {"DynamicHeapAllocator out of memory - Could not get memory for large allocation 33554432!", "textures",
       "num_workers|docker"},
      {"ORA-04030: out of process memory when trying to allocate 16408 bytes (QERHJ hash-joi,QERHJ Bit vector)", "PGA",
       "num_workers|docker"},
      {"qemu-system-x86_64: unable to map backing store for guest RAM: Cannot allocate memory", "HugePages_Free",
       "num_workers|docker"},
      {"2025-01-02T00:51:32+00:00 heroku[web.1]: Error R14 (Memory quota exceeded)", "WEB_CONCURRENCY", "num_workers"},
      {"systemd-oomd[932]: Killed /user.slice/a.scope due to memory used (8055468032) / total (8056819712) and swap used "
       "(3865960448) / total (4294963200) being more than 90.00%",
       "systemd-cgtop", "num_workers|docker"},
      {"distributed.nanny - WARNING - Worker exceeded 95% memory budget. Restarting", "--memory-limit", "docker"},
      {"DatabaseError: out of shared memory\nHINT:  You might need to increase max_locks_per_transaction.",
       "max_locks_per_transaction", "that limit"},
      {"MongoServerError: PlanExecutor error during aggregation :: caused by :: Exceeded memory limit for $group, but "
       "didn't allow external sort.",
       "allowDiskUse", "that limit"},
      {"EXITING because of fatal ERROR: not enough memory for BAM sorting:\nSOLUTION: re-run STAR with at least "
       "--limitBAMsortRAM 45209053098",
       "--limitBAMsortRAM", "that limit"},
      {"simtk.openmm.OpenMMException: Error creating array posq: CUDA_ERROR_OUT_OF_MEMORY (2)", "fewer atoms", "batch"},
      {"ERROR: CudaCustomAllocator out of memory\n [requestedSpace: 340660736 B]\n [totalFreeSpace: 80307200 B]",
       "--maxsig", "batch"},
      {"NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from "
       "_memdescAllocInternal(pMemDesc) @ mem_desc.c:1353",
       "/proc/buddyinfo", "snapshot"},
      {"[drm:amdgpu_cs_ioctl [amdgpu]] *ERROR* Not enough memory for command submission!", "amd-smi", "snapshot"},
      {"jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 18.31G of "
       "15.48G hbm. Exceeded hbm capacity by 2.83G.",
       "jax.checkpoint", "torch"},
      {"lowmemorykiller: Killing 'com.example.trainer' (4021), adj 900, to free 412344kB on behalf of 'kswapd0' (61)",
       "onTrimMemory", "docker|num_workers"},
      {"07-02 11:20:31.013  4120  4177 W app.chat: Throwing OutOfMemoryError \"Failed to allocate a 25165836 byte "
       "allocation with 4194304 free bytes and 5MB until OOM\"",
       "largeHeap", "docker|num_workers"},
      {"Not enough memory in the system to start the virtual machine Ubuntu.", "startup memory", "docker|num_workers"},
      {"ERROR:  out of memory\nDETAIL:  Failed on request of size 524288 in memory context \"HashBatchContext\".",
       "work_mem", "docker|num_workers"},
      {"[ERROR] mysqld: Out of memory (Needed 128917504 bytes)", "innodb_buffer_pool_size", "docker|num_workers"},
      {"ERROR:  invalid memory alloc request size 18446744073709551613", "damaged", "traceback"},
      {"cc1plus: out of memory allocating 65536 bytes after a total of 1234567 bytes", "MAX_JOBS", "num_workers"},
      {"2019-05-04T18:05:45.011072877-05:00 container oom 29d72966e0beb17d9b0b9fbcbfc734e2df2eb5428690115f9b24430357de08e5 "
       "(image=train:1, name=job)",
       "docker inspect|--memory-swap", "Slurm"},
      {"[0]PETSC ERROR: Out of memory. This could be due to allocating\n[0]PETSC ERROR: too large an object or bleeding "
       "by not properly",
       "-malloc_view", "torch|PyTorch|snapshot"},
      {"Out of memory allocating 1073741824 bytes of device memory\nFailing in Thread:1\nAccelerator Fatal Error: call "
       "to cuMemAlloc returned error 2 (CUDA_ERROR_OUT_OF_MEMORY): Out of memory",
       "smaller arrays", "per_process|empty_cache"},
      {"Error: Worker exceeded memory limit.", "settings of that service", "PyTorch|num_workers"},
      {"rocBLAS error: rocblas_status_memory_error out of memory, failed to allocate workspace", "AMD_SERIALIZE_KERNEL",
       "CUDA_LAUNCH_BLOCKING"},
  };
  (void)state;
  CHECK(cases);
}

/* ---- the table itself ---- */

typedef struct seen {
  char names[512][32];
  size_t count;
} seen;

static void remember(seen *s, const char *name) {
  for (size_t i = 0; i < s->count; i++)
    if (strcmp(s->names[i], name) == 0) return;
  assert_true(s->count < sizeof s->names / sizeof *s->names && strlen(name) < sizeof *s->names);
  (void)strcpy(s->names[s->count++], name);
}

static void collect(const explain_case *c, void *context) {
  hr_explanation *e = explain_text(c->text);
  for (uint32_t k = 0; k < e->failure_count; k++) {
    remember(context, e->failures[k].source);
    remember(context, e->failures[k].framework);
  }
  hr_explanation_destroy(e);
}

static bool is_seen(const seen *s, const char *name, size_t length) {
  const bool begins = name[length - 1] == '*';
  for (size_t i = 0; i < s->count; i++)
    if (strncmp(s->names[i], name, length - begins) == 0 && (begins || !s->names[i][length])) return true;
  return false;
}

/* Each line fits; and whoever the table names speaks in the project's cases by that name: a name with a slip would help
 * nobody. */
static void test_table(void **state) {
  static const char *const files[] = {"frameworks", "caps",   "parts",   "hosts",   "devices", "reports",
                                      "speakers",   "survey", "survey2", "survey3", "families"};
  /* of frameworks only around a message, of our own runs, and of speakers whose words are in unit tests alone */
  static const char *const elsewhere[] = {"headroom",  "transformers", "axolotl", "llama-factory", "torchtune",
                                          "lightning", "diffusers",    "comfyui", "fsdp",          "deepspeed"};
  static const char *const texts[] = {"rocm: HIP_ERROR_OutOfMemory returned by hipMalloc",
                                      "D3D12: out of memory: ID3D12Device::CreateCommittedResource failed"};
  static char buffer[EXPLAIN_CASE_BYTES];
  static seen s;
  size_t unseen = 0;
  (void)state;
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) (void)each_case(files[i], buffer, collect, &s);
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) collect(&(explain_case){"", texts[i]}, &s);
  for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) remember(&s, elsewhere[i]);
  for (size_t i = 0; i < hri_tip_count; i++) {
    const hri_tip *t = &hri_tips[i];
    assert_true(!t->text == !t->cost && (!t->text || strlen(t->text) < HR_OOM_LINE_BYTES));
    assert_true(t->when & HRI_TIP_CAUSES && t->topic != HRI_TOPIC_NONE);
    for (const char *at = t->who; at && *at;) {
      const size_t length = strcspn(at, " ");
      if (!is_seen(&s, at, length)) print_error("no case is of %.*s\n", (int)length, at);
      unseen += !is_seen(&s, at, length);
      at += length + (at[length] == ' ');
    }
  }
  assert_int_equal(unseen, 0);
}

/* Lightning runs the model in a closure that the optimizer's step calls, and so does who uses L-BFGS: what fails there has to do with the
 * batch. What the step itself makes does not. */
static void test_closures(void **state) {
#define STEP                                                                                                           \
  "Traceback (most recent call last):\n  File \"train.py\", line 20, in <module>\n    trainer.fit(model, data)\n"      \
  "  File \"site-packages/lightning/pytorch/plugins/precision/precision.py\", line 123, in optimizer_step\n"           \
  "    return optimizer.step(closure=closure, **kwargs)\n"                                                             \
  "  File \"site-packages/torch/optim/optimizer.py\", line 549, in wrapper\n    out = func(*args, **kwargs)\n"
#define CLOSURE                                                                                                        \
  "  File \"site-packages/torch/optim/adamw.py\", line 189, in step\n    loss = closure()\n"                           \
  "  File \"site-packages/lightning/pytorch/plugins/precision/precision.py\", line 109, in _wrap_closure\n"            \
  "    closure_result = closure()\n"
#define ENDING                                                                                                          \
  "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB of " \
  "which 1.00 GiB is free. Including non-PyTorch memory, this process has 22.60 GiB memory in use. Of the allocated "   \
  "memory 22.10 GiB is allocated by PyTorch, and 20.00 MiB is reserved by PyTorch but unallocated.\n"
  static const struct {
    const char *phase;
    advised advice;
  } cases[] = {
      {"",
       {STEP CLOSURE "  File \"train.py\", line 9, in training_step\n    loss = self.net(x).mean()\n" ENDING,
        "batch_size in the DataLoader", "fused=True"}},
      {"backward",
       {STEP CLOSURE
        "  File \"site-packages/torch/_tensor.py\", line 623, in backward\n    torch.autograd.backward(\n" ENDING,
        NULL, "fused=True"}},
      {"",
       {"Traceback (most recent call last):\n  File \"fit.py\", line 30, in <module>\n    optimizer.step(closure)\n  File "
        "\"site-packages/torch/optim/lbfgs.py\", line 330, in step\n    orig_loss = float(closure())\n  File \"fit.py\", line 24, in "
        "closure\n    out = net(x)\n" ENDING,
        NULL, "fused=True"}},
      {"optimizer",
       {STEP
        "  File \"site-packages/torch/optim/adamw.py\", line 157, in _init_group\n    state[\"exp_avg\"] = torch.zeros_like(\n" ENDING,
        "fused=True", NULL}},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hr_explanation *e = explain_text(cases[i].advice.text);
    assert_true(e->failure_count > 0);
    assert_string_equal(e->failures[e->primary].phase, cases[i].phase);
    hr_explanation_destroy(e);
    check(&cases[i].advice, 1);
  }
#undef STEP
#undef CLOSURE
#undef ENDING
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_versions), cmocka_unit_test(test_one_tensor), cmocka_unit_test(test_places),
      cmocka_unit_test(test_owners),   cmocka_unit_test(test_table),      cmocka_unit_test(test_closures),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
