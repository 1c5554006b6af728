/* Wordings. A message is known by a head ("out of memory", "cublas_status_alloc_failed", ...); the words around the
 * head decide what it is, and for the kinds with figures each figure is known by the words next to it, whatever their
 * order.
 * So one reader serves all versions: "5.20 gib already allocated" (1.0 to 2.0), "5.20 gib is allocated by pytorch" (2.1
 * on), "currently allocated : 5.20 gib" (cudaMallocAsync). Source of the wordings: c10/cuda/CUDACachingAllocator.cpp,
 * CUDAMallocAsyncAllocator.cpp, aten/src/ATen/mps/MPSAllocator.mm of several versions, and public reports. */
#include <stdio.h>

#include "base/mem.h"
#include "explain/figures.h"

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_letter(char c) { return c >= 'a' && c <= 'z'; }

/* ---- heads ---- */

typedef struct head {
  const char *words;
  const char *source;
  hri_oom_kind kind; /* NOTHING: read_memory_head decides */
} head;

static const char GENERAL[] = "?"; /* the source of a head that report.c judges */

static const head heads[] = {
    {"out of memory", "", HRI_OOM_NOTHING},
    {"tried to allocate", "pytorch-cuda", HRI_OOM_CACHING},
    {"memory allocation failed with oom on device", "pytorch-cuda", HRI_OOM_CACHING}, /* the allocator's own log line */
    {"already allocated", "pytorch-cuda", HRI_OOM_CACHING}, /* of messages whose beginning was cut off */
    {"is allocated by pytorch", "pytorch-cuda", HRI_OOM_CACHING},
    {"reserved in total by pytorch", "pytorch-cuda", HRI_OOM_CACHING},
    {"is reserved by pytorch but", "pytorch-cuda", HRI_OOM_CACHING},
    {"has a total capac", "pytorch-cuda", HRI_OOM_CACHING},
    {"including non-pytorch memory", "pytorch-cuda", HRI_OOM_CACHING},
    {"would exceed allowed memory", "pytorch-cuda-async", HRI_OOM_ASYNC},
    {"defaultcpuallocator", "pytorch-cpu", HRI_OOM_HOST},
    {"not enough memory: you tried to allocate", "pytorch-cpu", HRI_OOM_HOST},
    {"not enough gpu video memory", "pytorch-directml", HRI_OOM_BARE},
    {"unable to mmap", "", HRI_OOM_NOTHING},
    {"[errno 12] cannot allocate memory", "python", HRI_OOM_HOST},
    {"enforce fail at", "", HRI_OOM_NOTHING},
    {"bad_alloc", "c++", HRI_OOM_HOST_LIKELY},
    {"arraymemoryerror", "numpy", HRI_OOM_HOST},
    {"memoryerror", "", HRI_OOM_NOTHING},
    {"unable to allocate", "", HRI_OOM_NOTHING},
    {"cublas_status_alloc_failed", "cublas", HRI_OOM_LIBRARY},
    {"cublas_status_not_initialized", "cublas", HRI_OOM_LIBRARY}, /* mostly no room for its handle */
    {"cudnn_status_alloc_failed", "cudnn", HRI_OOM_LIBRARY},
    {"valid cudnn algorithm", "cudnn", HRI_OOM_LIBRARY},
    {"unable to find an engine to execute", "cudnn", HRI_OOM_LIBRARY},
    {"failed to cuda calloc", "nccl", HRI_OOM_LIBRARY},
    {"killed by signal: killed", "kill", HRI_OOM_HOST_LIKELY},
    {"killed by signal: bus error", "shared-memory", HRI_OOM_HOST_LIKELY},
    {"insufficient shared memory", "shared-memory", HRI_OOM_HOST_LIKELY},
    {"unable to write to file </torch_", "shared-memory", HRI_OOM_HOST_LIKELY}, /* storages that processes share */
    {"/dev/shm/", "", HRI_OOM_NOTHING},
    {"no space left on device", "", HRI_OOM_NOTHING},
    {"out of shared memory", "shared-memory", HRI_OOM_HOST_LIKELY},
    {"sigkill", "kill", HRI_OOM_HOST_LIKELY},
    {"exitcode", "", HRI_OOM_NOTHING},
    {"exit code", "", HRI_OOM_NOTHING},
    {"exited with code", "", HRI_OOM_NOTHING},
    {"exit status", "", HRI_OOM_NOTHING},
    {"return code", "", HRI_OOM_NOTHING},
    {"non-zero code", "", HRI_OOM_NOTHING},
    {"[winerror 1455]", "windows", HRI_OOM_HOST},
    {"oomkilled", "", HRI_OOM_NOTHING},
    {"srun: error:", "", HRI_OOM_NOTHING},
    {"killed process ", "", HRI_OOM_NOTHING},
    {"requires more system memory (", "ollama", HRI_OOM_HOST},
    {"bad allocation", "", HRI_OOM_NOTHING}, /* what bad_alloc says on Windows */
    {"oom-kill", "", HRI_OOM_NOTHING},
    {"oom_kill", "", HRI_OOM_NOTHING},
    {"of this unit has been killed by the oom killer", "systemd", HRI_OOM_HOST},
    {"session crashed after using all available ram", "notebook", HRI_OOM_HOST}, /* Colab's */
    {"notebook tried to allocate more memory than is available", "notebook", HRI_OOM_HOST}, /* Kaggle's */
    {"memory budget. restarting", "dask", HRI_OOM_HOST},
    {"node running low on memory", "ray", HRI_OOM_HOST},
    {"killed due to memory pressure (oom)", "ray", HRI_OOM_HOST},
    {"ray.exceptions.outofmemoryerror", "ray", HRI_OOM_HOST},
    {"java.lang.outofmemoryerror", "java", HRI_OOM_FOREIGN},
    {"cupy.cuda.memory.outofmemoryerror", "cupy", HRI_OOM_FOREIGN},
    {"out of resource: shared memory", "triton", HRI_OOM_CHIP},
    {"uses too much shared data", "ptxas", HRI_OOM_CHIP},
    {"too many resources requested for launch", "cuda", HRI_OOM_CHIP},
    {"resource_exhausted", "", HRI_OOM_NOTHING},
    {"resourceexhausted", "", HRI_OOM_NOTHING},
    {"resource exhausted", "", HRI_OOM_NOTHING},
    {"oom when allocating", "tensorflow", HRI_OOM_FOREIGN},
    {"no available memory for the cache blocks", "vllm", HRI_OOM_VLLM_CAP},
    {"not enough memory. please try to increase --mem-fraction", "sglang", HRI_OOM_VLLM_CAP},
    {"less than desired gpu memory utilization", "vllm", HRI_OOM_VLLM_BUSY},
    {"kv cache is needed, which is larger", "vllm", HRI_OOM_VLLM_CAP},
    {"number of tokens that can be stored in kv cache", "vllm", HRI_OOM_VLLM_CAP},
    {"cuda_error_out_of_memory", "cuda-driver", HRI_OOM_DRIVER},
    {"hip_error_outofmemory", "hip-driver", HRI_OOM_DRIVER},
    {"ur_result_error_out_of_device_memory", "pytorch-xpu", HRI_OOM_BARE},
    {"error_out_of_device_memory", "", HRI_OOM_NOTHING},
    {"erroroutofdevicememory", "", HRI_OOM_NOTHING},
    {"cudaerrormemoryallocation", "pytorch-cuda", HRI_OOM_BARE},
    {"hiperroroutofmemory", "pytorch-hip", HRI_OOM_BARE},
    {"failed to cudamalloc", "cuda-extension", HRI_OOM_LIBRARY},
    {"memory not available to allocate buffer", "miopen", HRI_OOM_LIBRARY},
    {"failed to allocate memory for requested buffer", "onnxruntime", HRI_OOM_FOREIGN},
    {"cudahostalloc", "", HRI_OOM_NOTHING},
    {"cudamallochost", "", HRI_OOM_NOTHING},
    {"hiphostmalloc", "", HRI_OOM_NOTHING},
    {"hsa_status_error_out_of_resources", "rocm-runtime", HRI_OOM_DRIVER},
    {"outofmemoryerror: allocation on device", "", HRI_OOM_NOTHING},
    {"invalid buffer size:", "pytorch-mps", HRI_OOM_BARE},
    {"jobstate=out_of_memory", "slurm", HRI_OOM_HOST},
    {"state: out_of_memory", "slurm", HRI_OOM_HOST},
    {"os::commit_memory(", "", HRI_OOM_NOTHING},
    {"out_of_me+", "slurm", HRI_OOM_HOST}, /* sacct's column */
    {"term_memlimit", "lsf", HRI_OOM_HOST},
    {"pbs: job killed: mem", "pbs", HRI_OOM_HOST},
    {"pbs: job killed: vmem", "pbs", HRI_OOM_HOST},
    {"killed signal terminated program", "kill", HRI_OOM_HOST_LIKELY}, /* a compiler's */
    {"due to memory pressure for", "systemd-oomd", HRI_OOM_HOST},
    {"signal 9", "", HRI_OOM_NOTHING},
    {"signal: killed", "kill", HRI_OOM_HOST_LIKELY},
    {"is smaller than requested bytes of", "onnxruntime", HRI_OOM_FOREIGN},
    {"exceeded max size of memory object allocation", "openvino", HRI_OOM_FOREIGN},
    {"launch_out_of_resources", "cuda", HRI_OOM_CHIP},
    {"launchoutofresources", "cuda", HRI_OOM_CHIP},
    {"out of resource: ", "triton", HRI_OOM_CHIP},
    /* words of which report.c tells whether they belong to a report; behind all others that begin alike */
    {"alloc", GENERAL, HRI_OOM_NOTHING},
    {"memory", GENERAL, HRI_OOM_NOTHING},
    {"oom", GENERAL, HRI_OOM_NOTHING},
    {"vram", GENERAL, HRI_OOM_NOTHING},
    {" ram", GENERAL, HRI_OOM_NOTHING},
    {"hbm", GENERAL, HRI_OOM_NOTHING},
    {"heap", GENERAL, HRI_OOM_NOTHING},
    {"enomem", GENERAL, HRI_OOM_NOTHING},
    {"mmap", GENERAL, HRI_OOM_NOTHING},
    {"reserve ", GENERAL, HRI_OOM_NOTHING},
    {"address space", GENERAL, HRI_OOM_NOTHING},
    {"paging file", GENERAL, HRI_OOM_NOTHING},
    {"out_of_resources", GENERAL, HRI_OOM_NOTHING},
    {"create buffer", GENERAL, HRI_OOM_NOTHING},
    {"create a buffer", GENERAL, HRI_OOM_NOTHING},
    {"createbuffer", GENERAL, HRI_OOM_NOTHING},
};
enum { HEADS = sizeof heads / sizeof *heads };

static size_t head_at(const char *text, size_t at, size_t count) {
  for (size_t h = 0; h < HEADS; h++) {
    size_t length;
    if (heads[h].words[0] != text[at]) continue;
    length = strlen(heads[h].words);
    if (length <= count - at && memcmp(text + at, heads[h].words, length) == 0) return h;
  }
  return HEADS;
}

bool hri_oom_is_general(const char *text, size_t at, size_t count) {
  size_t h = head_at(text, at, count);
  return h < HEADS && heads[h].source == GENERAL;
}

static unsigned hash3(const char *p) {
  return ((unsigned)(unsigned char)p[0] * 961u + (unsigned)(unsigned char)p[1] * 31u + (unsigned)(unsigned char)p[2]) &
         4095u;
}

size_t hri_oom_find(const char *text, size_t from, size_t count) {
  unsigned char maybe[512] = {0}; /* a bit for each hash of three bytes that starts a head */
  for (size_t h = 0; h < HEADS; h++) {
    unsigned hash = hash3(heads[h].words);
    maybe[hash >> 3] = (unsigned char)(maybe[hash >> 3] | 1u << (hash & 7));
  }
  for (size_t at = from; at + 3 <= count; at++) {
    unsigned hash = hash3(text + at);
    if (maybe[hash >> 3] >> (hash & 7) & 1 && head_at(text, at, count) < HEADS) return at;
  }
  return count;
}

static int32_t read_index(const char *text, size_t at, size_t count) {
  int32_t value = 0;
  size_t start = at;
  while (at < count && is_digit(text[at]) && at - start < 6) value = value * 10 + (text[at++] - '0');
  return at == start ? -1 : value;
}

/* ---- messages with figures ---- */

static void read_device(const char *text, size_t count, hr_oom_failure *failure) {
  static const char *const words[] = {"gpu ", "npu ", "xpu ", "device "};
  for (size_t i = 0; i < sizeof words / sizeof *words && failure->device_index < 0; i++)
    for (size_t at = hri_oom_word(text, 0, count, words[i]); at < count && failure->device_index < 0;
         at = hri_oom_word(text, at + 1, count, words[i]))
      failure->device_index = read_index(text, at + strlen(words[i]), count);
}

/* "process 3392 has 15.73 gib memory in use", any number of times. */
static void read_processes(const char *text, size_t count, hri_oom_message *message) {
  size_t at = hri_oom_word(text, 0, count, "process ");
  for (; at < count; at = hri_oom_word(text, at + 8, count, "process ")) {
    size_t p = at + 8;
    hr_oom_value value = {0};
    while (p < count && is_digit(text[p])) p++;
    if (p == at + 8 || p + 5 > count || memcmp(text + p, " has ", 5) != 0) continue;
    if (!hri_oom_size_at(text, p + 5, count, &value) || message->process_count == HRI_OOM_MAX_PROCESSES) continue;
    if (value.bytes >= 1ull << 50) continue; /* "not known" */
    message->processes[message->process_count] = value.bytes;
    message->process_slack[message->process_count++] = value.slack_bytes;
  }
}

/* Where the text ends within the words behind a figure: by as many of them as tell it from the others. */
static void read_cut_end(const char *text, size_t count, hr_oom_value *f) {
  static const struct {
    const char *words;
    size_t least;
    hr_oom_figure figure;
  } ends[] = {{" total capacity", 4, HR_OOM_TOTAL},
              {" already allocated", 4, HR_OOM_ALLOCATED},
              {" free;", 3, HR_OOM_FREE},
              {" is free.", 5, HR_OOM_FREE},
              {" reserved in total", 4, HR_OOM_RESERVED},
              {" cached)", 3, HR_OOM_UNALLOCATED},
              {" is reserved by pytorch", 6, HR_OOM_UNALLOCATED}};
  while (count > 0 && strchr(" .])", text[count - 1])) count--; /* "...", "[...]" */
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
    if (f[ends[i].figure].state == HR_OOM_ABSENT &&
        hri_oom_size_before_cut(text, count, ends[i].words, ends[i].least, &f[ends[i].figure]))
      return;
}

static void read_caching(const char *text, size_t count, hri_oom_message *message) {
  hr_oom_value *f = message->failure.figures;
  if (!hri_oom_size_after(text, count, "tried to allocate", &f[HR_OOM_REQUESTED]) &&
      hri_oom_word(text, 0, count, "tried to allocate more than 1eb") < count)
    f[HR_OOM_REQUESTED] = (hr_oom_value){HR_OOM_READ, 1ull << 60, 0}; /* all that PyTorch prints of such a size */
  if (f[HR_OOM_REQUESTED].state == HR_OOM_ABSENT &&
      hri_oom_size_after(text, count, "tried to allocate -", &f[HR_OOM_REQUESTED])) /* as the size that it wraps to */
    f[HR_OOM_REQUESTED].bytes = UINT64_MAX - f[HR_OOM_REQUESTED].bytes + 1;
  if (!hri_oom_size_after(text, count, "total capacity of", &f[HR_OOM_TOTAL]) &&
      !hri_oom_size_after(text, count, "total capacty of", &f[HR_OOM_TOTAL]))
    if (!hri_oom_size_before(text, count, "total capacity", &f[HR_OOM_TOTAL]))
      (void)hri_oom_size_before(text, count, " total;", &f[HR_OOM_TOTAL]);
  if (!hri_oom_size_before(text, count, " is free", &f[HR_OOM_FREE]) &&
      !hri_oom_size_before(text, count, " free", &f[HR_OOM_FREE]))
    (void)hri_oom_size_after(text, count, " of which", &f[HR_OOM_FREE]);
  if (!hri_oom_size_before(text, count, "is allocated by pytorch", &f[HR_OOM_ALLOCATED]) &&
      !hri_oom_size_before(text, count, "already allocated", &f[HR_OOM_ALLOCATED]) && /* else cut within those words */
      !hri_oom_size_after(text, count, "of the allocated memory", &f[HR_OOM_ALLOCATED]))
    (void)hri_oom_size_after(text, count, "total capacity;", &f[HR_OOM_ALLOCATED]);
  (void)hri_oom_size_before(text, count, "reserved in total", &f[HR_OOM_RESERVED]);
  if (!hri_oom_size_before(text, count, "is reserved by pytorch but unallocated", &f[HR_OOM_UNALLOCATED]))
    (void)hri_oom_size_before(text, count, " cached", &f[HR_OOM_UNALLOCATED]);
  (void)hri_oom_size_before(text, count, "allocated in private pools", &f[HR_OOM_PRIVATE_POOLS]);
  (void)hri_oom_size_before(text, count, " allowed", &f[HR_OOM_ALLOWED]);
  if (!hri_oom_size_after(text, count, "this process has", &f[HR_OOM_THIS_PROCESS]) &&
      hri_oom_word(text, 0, count, "process ") == count) /* left out by who pasted it */
    (void)hri_oom_size_before(text, count, " memory in use", &f[HR_OOM_THIS_PROCESS]);
  read_cut_end(text, count, f);
  message->expandable = hri_oom_word(text, 0, count, "expandable_segments is enabled") < count;
  read_device(text, count, &message->failure);
  read_processes(text, count, message);
}

/* "... on device 0 while trying to allocate 3630170112 bytes (free: 202833920, total: 25250627584)": bytes, unrounded. */
static void read_exact(const char *text, size_t count, hri_oom_message *message) {
  static const struct {
    const char *words;
    hr_oom_figure figure;
  } places[] = {{"while trying to allocate", HR_OOM_REQUESTED}, {"free:", HR_OOM_FREE}, {"total:", HR_OOM_TOTAL}};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    size_t at = hri_oom_word(text, 0, count, places[i].words), digits = 0;
    uint64_t bytes = 0;
    if (at == count) continue;
    for (at += strlen(places[i].words); at < count && text[at] == ' ';) at++;
    for (; at < count && is_digit(text[at]) && digits < 19; digits++) bytes = bytes * 10 + (uint64_t)(text[at++] - '0');
    if (digits > 0) message->failure.figures[places[i].figure] = (hr_oom_value){HR_OOM_READ, bytes, 0};
  }
  message->exact = true;
  read_device(text, count, &message->failure);
}

static void read_async(const char *text, size_t count, hri_oom_message *message) {
  hr_oom_value *f = message->failure.figures;
  (void)hri_oom_size_after(text, count, "currently allocated", &f[HR_OOM_ALLOCATED]);
  (void)hri_oom_size_after(text, count, "requested", &f[HR_OOM_REQUESTED]);
  (void)hri_oom_size_after(text, count, "device limit", &f[HR_OOM_TOTAL]);
  (void)hri_oom_size_after(text, count, "free (according to cuda)", &f[HR_OOM_FREE]);
  (void)hri_oom_size_after(text, count, "user-supplied memory fraction)", &f[HR_OOM_ALLOWED]);
}

static void read_mps(const char *text, size_t count, hri_oom_message *message) {
  hr_oom_value *f = message->failure.figures;
  (void)hri_oom_size_after(text, count, "mps allocated:", &f[HR_OOM_ALLOCATED]);
  (void)hri_oom_size_after(text, count, "other allocations:", &message->aside);
  (void)hri_oom_size_after(text, count, "max allowed:", &f[HR_OOM_ALLOWED]);
  (void)hri_oom_size_after(text, count, "tried to allocate", &f[HR_OOM_REQUESTED]);
}

/* Values that stand for "not known", and what follows from two figures. */
static void settle(hri_oom_message *message) {
  hr_oom_value *f = message->failure.figures;
  for (int i = 0; i < HR_OOM_FIGURE_COUNT; i++)
    if (i != HR_OOM_REQUESTED && f[i].state == HR_OOM_READ && f[i].bytes >= 1ull << 50)
      f[i] = (hr_oom_value){.state = HR_OOM_NOT_KNOWN};
  if (f[HR_OOM_THIS_PROCESS].state == HR_OOM_READ && f[HR_OOM_THIS_PROCESS].bytes == 0)
    f[HR_OOM_THIS_PROCESS].state = HR_OOM_NOT_KNOWN;
  if (f[HR_OOM_ALLOCATED].state != HR_OOM_READ) return;
  if (f[HR_OOM_RESERVED].state == HR_OOM_ABSENT && f[HR_OOM_UNALLOCATED].state == HR_OOM_READ) {
    f[HR_OOM_RESERVED].state = HR_OOM_DERIVED;
    f[HR_OOM_RESERVED].bytes = f[HR_OOM_ALLOCATED].bytes + f[HR_OOM_UNALLOCATED].bytes;
    f[HR_OOM_RESERVED].slack_bytes = f[HR_OOM_ALLOCATED].slack_bytes + f[HR_OOM_UNALLOCATED].slack_bytes;
  } else if (f[HR_OOM_UNALLOCATED].state == HR_OOM_ABSENT && f[HR_OOM_RESERVED].state == HR_OOM_READ) {
    uint64_t reserved = f[HR_OOM_RESERVED].bytes, allocated = f[HR_OOM_ALLOCATED].bytes;
    f[HR_OOM_UNALLOCATED].state = HR_OOM_DERIVED;
    f[HR_OOM_UNALLOCATED].bytes = reserved > allocated ? reserved - allocated : 0;
    f[HR_OOM_UNALLOCATED].slack_bytes = f[HR_OOM_ALLOCATED].slack_bytes + f[HR_OOM_RESERVED].slack_bytes;
  }
}

static const char *wording_of(const char *text, size_t count) {
  static const struct {
    const char *words, *versions;
  } eras[] = {
      {"total capacty", "2.1"},          {"is allocated by pytorch", "2.2 and later"},
      {"max_split_size", "1.10 to 2.0"}, {"reserved in total", "1.4 to 1.9"},
      {" cached", "1.0 to 1.3"},
  };
  for (size_t i = 0; i < sizeof eras / sizeof *eras; i++)
    if (hri_oom_word(text, 0, count, eras[i].words) < count) return eras[i].versions;
  return "";
}

/* ---- what the words around a head say ---- */

typedef struct around {
  const char *text;
  size_t start, at, after, count; /* text[start, at) is before the head, text[after, count) behind it */
} around;

static bool before_ends(const around *a, const char *words) {
  size_t length = strlen(words), at = a->at;
  while (at > a->start && a->text[at - 1] == ' ') at--;
  return at - a->start >= length && memcmp(a->text + at - length, words, length) == 0;
}
static bool before_has(const around *a, const char *words) {
  return hri_oom_word(a->text, a->start, a->at, words) < a->at;
}
static bool after_starts(const around *a, const char *words) {
  size_t length = strlen(words);
  return a->count - a->after >= length && memcmp(a->text + a->after, words, length) == 0;
}
static bool after_has(const around *a, size_t within, const char *words) {
  size_t end = a->count - a->after < within ? a->count : a->after + within;
  return hri_oom_word(a->text, a->after, end, words) < end;
}

typedef struct reading {
  hri_oom_kind kind;
  const char *source;
} reading;

/* Whether "CUDA out of memory" is spoken of and not reported: advice, names of handlers and tests. With a request it is
 * reported, whatever stands around it. */
static bool is_talk(const around *a, const char *backend) {
  static const char *const before[] = {"avoid",
                                       "avoids",
                                       "avoiding",
                                       "prevent",
                                       "prevents",
                                       "preventing",
                                       "in case of",
                                       "against",
                                       "without",
                                       "handle",
                                       "handles",
                                       "handling",
                                       "catch",
                                       "catches",
                                       "catching",
                                       "simulate",
                                       "simulated",
                                       "possible",
                                       "potential",
                                       "may cause",
                                       "might cause",
                                       "can cause",
                                       "could cause",
                                       "lead to",
                                       "leads to",
                                       "risk of",
                                       "in the event of",
                                       "if you get",
                                       "if you see",
                                       "if you run into",
                                       "if you hit",
                                       "if you encounter",
                                       "to reduce",
                                       "chance of",
                                       "a",
                                       "any",
                                       "the",
                                       "on",
                                       "of",
                                       "if",
                                       "when",
                                       "upon",
                                       "or",
                                       "like",
                                       "about"};
  static const char *const behind[] = {" handler",   " handling", " hook",       " callback",   " detect",
                                       " guard",     " protect",  " recovery",   " prevent",    " fallback",
                                       " check",     " test",     " retry",      " retries",    " errors",
                                       " issues",    " problems", " exceptions", " situation",  " scenario",
                                       " condition", " issue",    " solution",   " (oom) error", " unless"};
  char words[64];
  if (after_has(a, 40, "tried to allocate")) return false;
  for (size_t at = a->after; at < a->count && at < a->after + 60 && !strchr(".:;(\n", a->text[at]); at++)
    if (a->text[at] == '?') return true; /* a question */
  for (size_t i = 0; i < sizeof behind / sizeof *behind; i++)
    if (after_starts(a, behind[i])) return true;
  for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
    (void)snprintf(words, sizeof words, " %s %s", before[i], backend);
    if (before_ends(a, words) || before_ends(a, words + 1)) return true;
  }
  return false;
}

/* Whether the name of an error code or exception is spoken of: code that compares it, prose that explains it. */
static bool is_named(const around *a) {
  static const char *const before[] = {"!=",     "&&",       "||",     "throw std::", "const std::", "throws std::",
                                       " raise", " return",  "==",     "== \"",       "== '",        " when",
                                       " if",    " as",      " case",  " a",          " using",      " use",
                                       " of",    " the",     "kill -",     "signal.",  " via",   " with",       " raises",     " sends",
                                       " send",  " sending", " due to"};
  static const char *const behind[] = {" = ",   ";",      "&",      " &",       "():",        "();", " as ", " is ",
                                       " was ", " when ", " if ", " means", " occur", " message", " exception", "/",   "ed"};
  static const char *const reports[] = {"failed with", "exited with", "died with", "ended with", "error with"};
  for (size_t i = 0; i < sizeof reports / sizeof *reports; i++)
    if (before_ends(a, reports[i])) return false;
  for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
    size_t length = strlen(before[i]);
    bool first = before[i][0] == ' ' && a->start == 0 && a->at == length &&
                 memcmp(a->text, before[i] + 1, length - 1) == 0; /* at the very start no blank stands before it */
    if (first || before_ends(a, before[i])) return true;
  }
  for (size_t i = 0; i < sizeof behind / sizeof *behind; i++)
    if (after_starts(a, behind[i])) return true;
  return false;
}

/* Whether the name of an error code is part of a program: an arm of a match, an enumerator, a definition. */
static bool is_in_program(const around *a) {
  static const char *const behind[] = {" =>", " = ", ": return", ") =>", "),", ", \""};
  for (size_t i = 0; i < sizeof behind / sizeof *behind; i++)
    if (after_starts(a, behind[i])) return true;
  return before_ends(a, "define") || before_ends(a, " case") || (before_ends(a, "::") && after_starts(a, ")"));
}

/* Whether a process was killed on purpose: when a run tears down its workers, by a scheduler. */
static bool is_intended_kill(const around *a) {
  static const char *const before[] = {"during teardown", "at teardown", "during shutdown",
                                       "at shutdown",     "on shutdown", "exception ignored in"};
  around far = *a;
  far.start = a->at > 320 ? a->at - 320 : 0;
  for (size_t i = 0; i < sizeof before / sizeof *before; i++)
    if (before_has(&far, before[i])) return true;
  return after_has(a, 60, "preempt") || after_has(a, 60, "<pid>") || after_starts(a, " from the scheduler");
}

/* An extension's own check: "CUDA runtime error: out of memory", "cuda failed with error 2 out of memory". */
static bool is_check(const around *a) {
  around near = *a;
  near.start = a->at - a->start > 60 ? a->at - 60 : a->start;
  if (!before_has(&near, "cuda") && !before_has(&near, "hip")) return false;
  if (!before_has(&near, "error") && !before_has(&near, "fail")) return false;
  return before_ends(a, ":") || before_ends(a, " 2") || before_ends(a, "(2)") || before_ends(a, "failed with error");
}

/* Whose "cudaMalloc failed" it is. */
static reading read_malloc(const around *a) {
  static const char *const names[][2] = {{"pooled_storage_manager", "mxnet"},
                                         {"mxnet", "mxnet"},
                                         {"dmlc", "mxnet"},
                                         {"ggml", "ggml"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (before_has(a, names[i][0])) return (reading){HRI_OOM_FOREIGN, names[i][1]};
  return (reading){HRI_OOM_BARE, "cuda-extension"};
}

/* "out of memory" as other programs and extensions report it, by what stands right before. */
static reading read_macro(const around *a) {
  if (before_ends(a, "error=2 :") && before_has(a, "thcudacheck fail")) return (reading){HRI_OOM_BARE, "pytorch-cuda"};
  if (before_ends(a, "):") && before_has(a, "cuda error (")) return (reading){HRI_OOM_BARE, "cuda-extension"};
  if (before_ends(a, "gpuassert:")) return (reading){HRI_OOM_BARE, "cuda-extension"};
  if (before_ends(a, "(2 vs. 0)") && before_has(a, "check failed:")) return (reading){HRI_OOM_FOREIGN, "caffe"};
  if (after_starts(a, " allocating ") && after_has(a, 60, " bytes")) return (reading){HRI_OOM_FOREIGN, "cupy"};
  if (after_starts(a, " to allocate ") && after_has(a, 60, " bytes (total")) return (reading){HRI_OOM_FOREIGN, "cupy"};
  if (after_starts(a, " trying to allocate") && before_has(a, "bfc_allocator"))
    return (reading){HRI_OOM_FOREIGN, "tensorflow"};
  if (before_has(a, "cudamalloc fail") && before_ends(a, ":")) return read_malloc(a);
  if (before_ends(a, "c error:") && before_has(a, "tokenizing")) return (reading){HRI_OOM_HOST_LIKELY, "pandas"};
  if (is_check(a)) return (reading){HRI_OOM_BARE, "cuda-extension"};
  return (reading){HRI_OOM_NOTHING, ""};
}

static bool is_word_end(char c) { return !is_letter(c) && !is_digit(c) && c != '_'; }

/* "out of memory". */
static reading read_memory_head(const around *a) {
  static const struct {
    const char *words, *source;
    hri_oom_kind kind;
  } before[] = {
      {"mps backend", "pytorch-mps", HRI_OOM_MPS},
      {"cuda runtime error (2) :", "pytorch-cuda", HRI_OOM_BARE},
      {"cuda runtime error (2):", "pytorch-cuda", HRI_OOM_BARE},
      {"cuda driver error:", "pytorch-cuda", HRI_OOM_BARE}, /* its calls for expandable segments */
      {"cudamalloc retry failed:", "mxnet", HRI_OOM_FOREIGN},
  };
  static const char *const backends[] = {"cuda", "hip", "xpu", "npu", "musa", "mlu"};
  static const char *const sources[] = {"pytorch-cuda", "pytorch-hip",  "pytorch-xpu",
                                        "pytorch-npu",  "pytorch-musa", "pytorch-mlu"};
  for (size_t i = 0; i < sizeof before / sizeof *before; i++)
    if (before_ends(a, before[i].words)) return (reading){before[i].kind, before[i].source};
  if (after_starts(a, ": killed process") || after_starts(a, ": kill process") || before_ends(a, "memory cgroup"))
    return (reading){HRI_OOM_HOST, "kernel"};
  if (before_ends(a, "error") && after_starts(a, " at line")) return (reading){HRI_OOM_LIBRARY, "bitsandbytes"};
  if (after_starts(a, " error on gpu ")) return (reading){HRI_OOM_FOREIGN, "paddle"};
  for (size_t i = 0; i < sizeof backends / sizeof *backends; i++) {
    bool caching = before_ends(a, backends[i]);
    char with[16] = {0};
    memcpy(with, backends[i], strlen(backends[i]));
    memcpy(with + strlen(with), " error:", 8);
    if (before_ends(a, with) && (before_has(a, "llama runner") || before_has(a, "ggml")))
      return (reading){HRI_OOM_FOREIGN, "ggml"};
    if (before_ends(a, with))
      return (reading){before_has(a, "pin_memory") || after_has(a, 200, "pin_memory") ||
                               after_has(a, 60, "hostalloc") || after_has(a, 60, "mallochost")
                           ? HRI_OOM_PINNED : HRI_OOM_BARE,
                       sources[i]};
    if (caching && after_has(a, 60, "preemptively rejected")) return (reading){HRI_OOM_REJECTED, sources[i]};
    if (caching)
      return is_talk(a, backends[i]) ? (reading){HRI_OOM_NOTHING, ""} : (reading){HRI_OOM_CACHING, sources[i]};
  }
  if (after_has(a, 40, "tried to allocate") && !after_has(a, 40, "malloc"))
    return (reading){HRI_OOM_CACHING, "pytorch-cuda"};
  /* After the backends: "NCCL ..." may be the log line before PyTorch's own message. */
  if (before_has(a, "cuda failure") && after_has(a, 12, "; gpu=")) return (reading){HRI_OOM_FOREIGN, "onnxruntime"};
  if (before_has(a, "cuda failure") && before_ends(a, "'")) return (reading){HRI_OOM_LIBRARY, "nccl"};
  if (before_has(a, "nccl") && before_has(a, "cuda")) return (reading){HRI_OOM_LIBRARY, "nccl"};
  return read_macro(a);
}

/* "srun: error: gpu01: tasks 0-3: out of memory": of a task, not of what a task printed. */
static bool ends_task(const around *a) {
  static const char words[] = ": out of memory";
  size_t end = a->count - a->after < 100 ? a->count : a->after + 100;
  size_t at = hri_oom_word(a->text, a->after, end, words), task = hri_oom_word(a->text, a->after, end, "task");
  return at < end && task < at && (is_digit(a->text[at - 1]) || a->text[at - 1] == ']');
}

/* Reports of the kernel, Slurm, systemd, docker and Kubernetes; not names of settings, and not counters that stand at
 * 0. */
static reading read_kill_head(const char *words, const around *a) {
  static const char *const reports[] = {":constraint", " event", "' "};
  reading nothing = {HRI_OOM_NOTHING, ""}, certain = {HRI_OOM_HOST, "kernel"};
  size_t at = a->after;
  if (strcmp(words, "oomkilled") == 0) {
    bool no = after_has(a, 9, "false") || after_starts(a, "}}");
    return no || is_named(a) ? nothing : certain;
  }
  for (size_t i = 0; i < sizeof reports / sizeof *reports; i++)
    if (after_starts(a, reports[i]) && !before_ends(a, "detected 0")) return certain;
  if (after_starts(a, "er") && before_ends(a, "invoked")) return certain;
  if (before_ends(a, "result '") || before_ends(a, "result=")) return certain; /* systemd */
  while (at < a->count && strchr(" :=\"", a->text[at]) && a->text[at]) at++;
  if (words[3] == '_' && at > a->after && at < a->count && a->text[at] >= '1' && a->text[at] <= '9')
    return (reading){HRI_OOM_HOST_LIKELY, "kernel"};
  return after_starts(a, "er") ? (reading){HRI_OOM_HOST_LIKELY, "kernel"} : nothing;
}

/* "Exit code 137 means that ...": the digits from `at` on are followed by prose about them. */
static bool is_explained(const around *a, size_t at) {
  static const char *const prose[] = {" mean",    " indicates", " usually", " typically", " often",
                                      " is the ", " implies",   " stands ", " in docker", "?"};
  around behind = *a;
  while (at < a->count && is_digit(a->text[at])) at++;
  behind.after = at;
  for (size_t i = 0; i < sizeof prose / sizeof *prose; i++)
    if (after_starts(&behind, prose[i])) return true;
  return false;
}

/* "cudaErrorMemoryAllocation": thrust's when one of its functions failed, a checker's that reports every call. */
static reading read_allocation_code(const around *a, reading plain) {
  static const char *const functions[] = {"parallel_for failed:", "transform failed:", "reduce failed:",
                                          "for_each failed:",     "sort failed:",      "scan failed:",
                                          "after reduction step", "copy failed:",      "get_temporary_buffer failed"};
  if (before_ends(a, "program hit")) return (reading){HRI_OOM_FOREIGN_LIKELY, "compute-sanitizer"};
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
    if (before_has(a, functions[i])) return (reading){HRI_OOM_LIBRARY, "thrust"};
  return plain;
}

static reading read_other_head(const char *words, const around *a) {
  reading nothing = {HRI_OOM_NOTHING, ""};
  if (strcmp(words, "enforce fail at") == 0) {
    if (after_has(a, 60, "alloc_cpu") || after_has(a, 60, "cpuallocator"))
      return (reading){HRI_OOM_HOST, "pytorch-cpu"};
    if (after_has(a, 200, "out of memory")) return (reading){HRI_OOM_BARE, "caffe2"};
    return nothing;
  }
  if (strcmp(words, "memoryerror") == 0) {
    bool whole = a->at == 0 || is_word_end(a->text[a->at - 1]) || a->text[a->at - 1] == '_';
    if (a->at > 0 && a->text[a->at - 1] == '.') whole = false;
    if (after_has(a, 120, "device memory") || after_has(a, 120, "gpu") || after_has(a, 120, "cuda")) return nothing;
    if (!whole || after_starts(a, ": std::bad_alloc") || after_starts(a, ": unable to alloc") || is_named(a))
      return nothing;
    return after_starts(a, ":") || after_starts(a, " ") || a->after == a->count
               ? (reading){HRI_OOM_HOST_LIKELY, "python"}
               : nothing;
  }
  if (strcmp(words, "unable to allocate") == 0)
    return after_has(a, 60, "for an array") || after_has(a, 60, "array with") || after_has(a, 60, "array of shape")
               ? (reading){HRI_OOM_HOST, "numpy"}
               : nothing;
  if (strcmp(words, "unable to mmap") == 0) /* address space, a limit on mappings, or shared memory */
    return after_has(a, 400, "cannot allocate memory") ? (reading){HRI_OOM_HOST_LIKELY, "mmap"} : nothing;
  if (strcmp(words, "/dev/shm/") == 0)
    return before_has(a, "error while creating shared memory") || before_has(a, "failed to extend") ||
                   after_has(a, 200, "no space left")
               ? (reading){HRI_OOM_HOST_LIKELY, "shared-memory"}
               : nothing;
  if (strcmp(words, "no space left on device") == 0) /* of a disk, unless it is about what processes share */
    return after_has(a, 24, "/dev/shm/") || before_has(a, "semlock") || before_has(a, "shared memory") || before_has(a, "/dev/shm")
               ? (reading){HRI_OOM_HOST_LIKELY, "shared-memory"}
               : nothing;
  if (strncmp(words, "os::", 4) == 0)
    return after_has(a, 60, "failed; error=") ? (reading){HRI_OOM_HOST, "java"} : nothing;
  if (strcmp(words, "killed process ") == 0)
    return after_has(a, 100, "total-vm") ? (reading){HRI_OOM_HOST, "kernel"} : nothing;
  if (strcmp(words, "bad allocation") == 0)
    return before_ends(a, ":") ? (reading){HRI_OOM_HOST_LIKELY, "c++"} : nothing;
  if (strncmp(words, "error", 5) == 0) /* of a device, by Vulkan or Level Zero */
    return before_has(a, "vulkan") || before_has(a, "vk_") || words[5] == 'o'
               ? (reading){HRI_OOM_FOREIGN_LIKELY, "vulkan"}
               : (reading){HRI_OOM_BARE, "level-zero"};
  if (strncmp(words, "outofmemoryerror", 16) == 0) /* cudaMallocAsync's, of which the rest was left out */
    return after_has(a, 40, "would exceed") ? nothing : (reading){HRI_OOM_BARE, "pytorch-cuda-async"};
  if (strcmp(words, "signal 9") == 0) {
    bool whole = a->after == a->count || is_word_end(a->text[a->after]);
    bool ended = before_ends(a, "on") || before_ends(a, "by") || before_ends(a, "due to") || before_ends(a, "with") ||
                 after_starts(a, " (kill") || after_starts(a, " (sigkill");
    return whole && ended ? (reading){HRI_OOM_HOST_LIKELY, "kill"} : nothing;
  }
  if (strcmp(words, "srun: error:") == 0) return ends_task(a) ? (reading){HRI_OOM_HOST, "slurm"} : nothing;
  if (strncmp(words, "oom", 3) == 0) return read_kill_head(words, a);
  if (strstr(words, "host") && strstr(words, "alloc"))
    return after_has(a, 120, "out of memory") ? (reading){HRI_OOM_PINNED, "pytorch-cuda"} : nothing;
  if (strncmp(words, "resource", 8) == 0) { /* resource_exhausted also means quotas of other services */
    if (!after_has(a, 200, "out of memory") && !after_has(a, 200, "oom when") && !after_has(a, 200, "allocat") &&
        !after_has(a, 200, "attempting to reserve"))
      return nothing;
    if (after_has(a, 60, "error on gpu") || after_has(a, 200, "paddle")) return (reading){HRI_OOM_FOREIGN, "paddle"};
    return (reading){HRI_OOM_FOREIGN, after_has(a, 200, "oom when") || words[8] == 'e' ? "tensorflow" : "jax"};
  }
  for (size_t at = a->after; at < a->count && at - a->after < 12; at++) { /* exit codes */
    char c = a->text[at];
    if (c == ')' || (c == '=' && at + 1 < a->count && a->text[at + 1] == '='))
      return nothing; /* "getexitcode() == 137" */
    if (c == '-' || is_digit(c)) {
      bool minus = c == '-';
      if (is_explained(a, at + 1)) return nothing;
      int32_t code = read_index(a->text, at + (minus ? 1 : 0), a->count);
      bool signal = code == 9 && (minus || before_has(a, "bad termination")); /* mpirun prints the signal as a code */
      return signal || (!minus && code == 137) ? (reading){HRI_OOM_HOST_LIKELY, "kill"} : nothing;
    }
  }
  return nothing;
}

/* Where the message that starts at `after` ends at the latest: before the next one's head. */
static size_t message_end(const char *text, size_t after, size_t count, hri_oom_kind kind) {
  static const char *const stops[] = {"traceback (most recent", "out of memory. tried",
                                      "cuda error:", "cuda out of memory"};
  size_t end = count - after < 3000 ? count : after + 3000, request;
  for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) end = hri_oom_word(text, after, end, stops[i]);
  request = hri_oom_word(text, after, end, "tried to allocate");
  if (request < end && kind != HRI_OOM_ASYNC) end = hri_oom_word(text, request + 1, end, "tried to allocate");
  return end;
}

static void read_figures(const char *text, size_t from, size_t end, hri_oom_message *message) {
  hr_oom_failure *failure = &message->failure;
  hr_oom_value *f = failure->figures;
  const char *at = text + from;
  size_t count = end - from;
  switch (message->kind) {
  case HRI_OOM_CACHING:
    if (hri_oom_word(at, 0, 64 < count ? 64 : count, "memory allocation failed with oom") == 0) {
      read_exact(at, count < 300 ? count : 300, message);
      break;
    }
    read_caching(at, count, message);
    failure->wording = wording_of(at, count);
    break;
  case HRI_OOM_ASYNC: read_async(at, count, message); break;
  case HRI_OOM_REJECTED:
    (void)hri_oom_size_after(at, count < 400 ? count : 400, "requested size:", &f[HR_OOM_REQUESTED]);
    failure->wording = "2.12 and later";
    break;
  case HRI_OOM_MPS: read_mps(at, count, message); break;
  case HRI_OOM_BARE:
    if (strcmp(failure->source, "pytorch-directml") == 0)
      (void)hri_oom_size_after(at, count, "allocate tensor with", &f[HR_OOM_REQUESTED]);
    (void)hri_oom_size_after(at, count < 60 ? count : 60, "buffer size:", &f[HR_OOM_REQUESTED]);
    break;
  case HRI_OOM_HOST:
    if (!hri_oom_size_after(at, count < 400 ? count : 400, "tried to allocate", &f[HR_OOM_REQUESTED]) &&
        !hri_oom_size_after(at, count < 200 ? count : 200, "unable to allocate", &f[HR_OOM_REQUESTED]))
      (void)hri_oom_size_after(at, count < 100 ? count : 100, "system memory (", &f[HR_OOM_REQUESTED]);
    (void)hri_oom_size_after(at, count < 100 ? count : 100, "than is available (", &f[HR_OOM_FREE]);
    break;
  case HRI_OOM_LIBRARY:
    for (size_t i = 0; i < 3 && f[HR_OOM_REQUESTED].state == HR_OOM_ABSENT; i++)
      (void)hri_oom_size_after(at, count < 100 ? count : 100,
                               i == 0   ? "cuda calloc async"
                               : i == 1 ? "cuda calloc"
                                        : "cudamalloc",
                               &f[HR_OOM_REQUESTED]);
    break;
  case HRI_OOM_VLLM_CAP: /* "(8.00 gib kv cache is needed, which is larger than the available kv cache memory (5.25 gib)" */
    if (hri_oom_size_before(at, count, " kv cache is needed", &f[HR_OOM_REQUESTED]))
      (void)hri_oom_size_after(at, count, "available kv cache memory (", &f[HR_OOM_ALLOWED]);
    break;
  case HRI_OOM_VLLM_BUSY: {
    size_t slash = hri_oom_word(at, 0, count < 200 ? count : 200, "/");
    if (slash < count && hri_oom_size_at(at, slash + 1, count, &f[HR_OOM_TOTAL]))
      (void)hri_oom_size_in_unit_of(at, slash, count, &f[HR_OOM_FREE]); /* "(3.1/79.1 gib)" */
    slash = hri_oom_word(at, 0, count < 300 ? count : 300, "utilization (");
    slash = hri_oom_word(at, slash, count < slash + 24 ? count : slash + 24, ", "); /* "(0.9, 71.24 gib)" */
    if (slash < count) (void)hri_oom_size_at(at, slash + 2, count, &f[HR_OOM_REQUESTED]);
    break;
  }
  case HRI_OOM_CHIP:
    (void)hri_oom_count_after(at, count < 300 ? count : 300, "required:", &f[HR_OOM_REQUESTED]);
    (void)hri_oom_count_after(at, count < 300 ? count : 300, "hardware limit:", &f[HR_OOM_ALLOWED]);
    break;
  default: break;
  }
  if (message->kind == HRI_OOM_FOREIGN && hri_oom_word(at, 0, count < 300 ? count : 300, " hbm") < count) {
    size_t used = hri_oom_word(at, 0, count, "used "), of = hri_oom_word(at, used, count, " of "); /* a TPU's */
    if (of - used < 20) (void)hri_oom_size_at(at, of + 4, count, &f[HR_OOM_TOTAL]);
  }
  if (strcmp(failure->source, "ray") == 0) { /* "was 59.84gb / 62.51gb (0.95)", "memory used=49.21gb" */
    size_t near = count < 800 ? count : 800;
    (void)hri_oom_size_after(at, near, "gb / ", &f[HR_OOM_TOTAL]);
    (void)hri_oom_size_after(at, near, "memory used=", &f[HR_OOM_THIS_PROCESS]);
  }
  settle(message);
}

/* Whether a head is words of a message's middle, of which the beginning was cut off. */
static bool is_middle(const char *words) {
  return strstr(words, "allocated") || strstr(words, "reserved") || strstr(words, "capac") ||
         strstr(words, "non-pytorch");
}

hri_oom_kind hri_oom_parse(const char *text, size_t at, size_t count, hri_oom_message *message, size_t *end) {
  size_t h = head_at(text, at, count);
  around a = {text, at < 160 ? 0 : at - 160, at, 0, count};
  reading r;
  *end = at + 1;
  message->failure.device_index = -1;
  message->failure.wording = message->failure.framework = message->failure.phase = "";
  if (h == HEADS || heads[h].source == GENERAL) return HRI_OOM_NOTHING;
  a.after = at + strlen(heads[h].words);
  *end = a.after;
  r = (reading){heads[h].kind, heads[h].source};
  if (h == 0) r = read_memory_head(&a);
  else if (r.kind == HRI_OOM_NOTHING) r = read_other_head(heads[h].words, &a);
  if (h == 1 && before_has(&a, "malloc failed (")) r.kind = HRI_OOM_NOTHING; /* the host's */
  if (h == 1 && !after_has(&a, 24, "ib") && !after_has(&a, 30, "b")) r.kind = HRI_OOM_NOTHING;
  if ((r.kind == HRI_OOM_DRIVER || r.kind == HRI_OOM_LIBRARY) &&
      (before_has(&a, "tensorflow") || before_has(&a, "stream_executor") || before_ends(&a, "bytes) from device:") ||
       before_ends(&a, "bytes on host:") ||
       after_starts(&a, " in tensorflow/"))) /* its executor's words, also without its file's name */
    r = (reading){HRI_OOM_FOREIGN, "tensorflow"};
  if (r.source[0] == 'c' && r.source[1] == '+' &&
      (before_has(&a, "thrust") || after_has(&a, 40, "out_of_memory: ") ||
       after_has(&a, 80, "cudaerrormemoryallocation")))
    r = before_has(&a, "rmm") || after_has(&a, 80, "rmm")
            ? (reading){HRI_OOM_FOREIGN, "rmm"}
            : (reading){HRI_OOM_LIBRARY, "thrust"}; /* their bad_alloc is the device's */
  if (strcmp(r.source, "kill") == 0 && after_starts(&a, "_handler"))
    r.kind = HRI_OOM_NOTHING; /* a launcher's function */
  if ((strcmp(heads[h].words, "sigkill") == 0 || strstr(heads[h].words, "error") ||
       strcmp(heads[h].words, "bad_alloc") == 0) &&
      heads[h].kind != HRI_OOM_NOTHING && is_named(&a))
    r.kind = HRI_OOM_NOTHING;
  if (strcmp(heads[h].words, "sigkill") == 0 && before_has(&a, "root cause")) r.kind = HRI_OOM_ENDED;
  if (strcmp(r.source, "kill") == 0 && is_intended_kill(&a)) r.kind = HRI_OOM_NOTHING;
  if (strcmp(heads[h].words, "sigkill") == 0 && before_ends(&a, "died with <signals.") &&
      !before_has(&a, "calledprocesserror"))
    r.kind = HRI_OOM_NOTHING; /* what that exception says when it is printed without its name: it was caught */
  if ((strstr(heads[h].words, "alloc_failed") || strstr(heads[h].words, "not_initialized") ||
       strstr(heads[h].words, "out_of_memory") || strstr(heads[h].words, "out_of_device_memory") || strstr(heads[h].words, "exhausted")) &&
      is_in_program(&a))
    r.kind = HRI_OOM_NOTHING;
  if (strcmp(heads[h].words, "cudaerrormemoryallocation") == 0) r = read_allocation_code(&a, r);
  message->kind = r.kind;
  message->failure.source = r.source;
  message->exact = message->cut = false;
  if (r.kind == HRI_OOM_NOTHING) return r.kind;
  if (r.kind == HRI_OOM_VLLM_CAP || r.kind == HRI_OOM_VLLM_BUSY) message->failure.framework = r.source;
  message->cut = r.kind == HRI_OOM_CACHING && is_middle(heads[h].words);
  if (message->cut && before_has(&a, "tried to allocate"))
    return message->kind = HRI_OOM_NOTHING; /* it is being read */
  size_t from = r.kind == HRI_OOM_VLLM_BUSY || strstr(heads[h].words, "kv cache is needed") || message->cut || strcmp(r.source, "pytorch-directml") == 0 ? a.start : at;
  *end = message_end(text, a.after, count, r.kind);
  read_figures(text, from, *end, message);
  if (message->cut && !hri_oom_known(&message->failure.figures[HR_OOM_REQUESTED]) &&
      !hri_oom_size_before(text + from, *end - from, " (gpu ", &message->failure.figures[HR_OOM_REQUESTED]))
    (void)hri_oom_size_before(text + from, *end - from, ". gpu ", &message->failure.figures[HR_OOM_REQUESTED]);
  if (r.kind == HRI_OOM_CACHING || r.kind == HRI_OOM_MPS || r.kind == HRI_OOM_ASYNC) {
    size_t tail =
        hri_oom_word(text, a.after, *end, "(http"); /* what follows the help address is no longer the message */
    if (tail < *end) *end = tail;
  } else if (strcmp(r.source, "kill") == 0 || strcmp(r.source, "nccl") == 0) {
    *end = a.after; /* what follows may say more: the kernel, Slurm, how much NCCL asked for */
  } else if (*end > a.after + 200) {
    *end = a.after + 200;
  }
  if (message->cut && message->failure.figures[HR_OOM_ALLOCATED].state == HR_OOM_ABSENT &&
      message->failure.figures[HR_OOM_THIS_PROCESS].state == HR_OOM_ABSENT &&
      message->failure.figures[HR_OOM_REQUESTED].state == HR_OOM_ABSENT)
    return message->kind = HRI_OOM_NOTHING; /* the words without figures: code that prints them */
  if (r.kind == HRI_OOM_CACHING && message->failure.figures[HR_OOM_REQUESTED].state == HR_OOM_ABSENT &&
      message->failure.figures[HR_OOM_TOTAL].state == HR_OOM_ABSENT) {
    message->kind = HRI_OOM_BARE;
    *end = a.after;
  }
  return message->kind;
}

/* ---- how far the run had come ---- */

/* A number behind a word and blanks, ":", "=", "[", "#" or quotes; -1 when there is none. */
static int64_t count_behind(const char *text, size_t at, size_t count) {
  int64_t value = 0;
  size_t start;
  for (size_t skipped = 0; at < count && skipped < 4 && strchr(" :=[#'\"", text[at]); skipped++) at++;
  for (start = at; at < count && is_digit(text[at]) && at - start < 9;) value = value * 10 + (text[at++] - '0');
  return at == start || (at < count && is_letter(text[at])) ? -1 : value;
}

/* Whether a bar counts training: "  3%| | 12/400 [" without a label, or with one that says so. Bars of loading,
 * downloads and data count something else. */
static bool counts_training(const char *text, size_t percent) {
  size_t from = percent < 48 ? 0 : percent - 48, at = percent;
  bool letters = false;
  while (at > from && (is_digit(text[at - 1]) || text[at - 1] == ' ')) at--;
  if (at > from && text[at - 1] != ':') return true; /* what stands there is no label */
  if (at > from) {                                   /* columns of figures are none either: "0.04  0.61: 61%" */
    size_t word = at - 1, numbers = 0;
    while (word > from && (is_digit(text[word - 1]) || text[word - 1] == '.' || text[word - 1] == ' '))
      if (is_digit(text[--word]) && (word == from || text[word - 1] == ' ')) numbers++;
    if (numbers >= 2) return true;
  }
  for (size_t i = from; i < at; i++) letters = letters || is_letter(text[i]);
  return !letters || hri_oom_word(text, from, at, "epoch") < at || hri_oom_word(text, from, at, "train") < at ||
         hri_oom_word(text, from, at, "step") < at;
}

/* Whether a bar of training has come to `least`: "7%|7  | 71/1000 [00:51<", and without its picture "7% 71/1000 [". */
static bool has_bar(const char *text, size_t count, int64_t least) {
  for (size_t at = hri_oom_word(text, 0, count, "%"); at < count; at = hri_oom_word(text, at + 1, count, "%")) {
    size_t end = at + 200 < count ? at + 200 : count, bar = at + 1, slash;
    if (at == 0 || !is_digit(text[at - 1]) || bar >= count) continue;
    if (text[bar] == '|') {
      bar = hri_oom_word(text, bar + 1, end, "| ");
      if (bar == end) continue;
      bar++;
    }
    slash = hri_oom_word(text, bar, end, "/");
    if (slash < end && slash - bar < 12 && counts_training(text, at)) {
      size_t near = slash + 16 < end ? slash + 16 : end;
      if (count_behind(text, bar, count) >= least && hri_oom_word(text, slash, near, "[") < near) return true;
    }
  }
  return false;
}

/* Whether steps were done before: then the job did fit, and what fails is what grew, or a batch that is larger. */
static bool has_run(const char *text, size_t count) {
  static const struct {
    const char *word;
    int64_t least;
  } words[] = {{"epoch", 2}, {"global step", 10}, {"global_step", 10}, {"step", 10}, {"iteration", 10}, {"iter", 10}};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    size_t length = strlen(words[i].word);
    for (size_t at = hri_oom_word(text, 0, count, words[i].word); at < count;
         at = hri_oom_word(text, at + 1, count, words[i].word))
      if ((at == 0 || is_word_end(text[at - 1])) && count_behind(text, at + length, count) >= words[i].least)
        return true;
  }
  return has_bar(text, count, 10);
}

void hri_oom_closed_bar(const char *text, size_t count, hri_oom_message *message) {
  static const char *const last[] = {"unallocated", "in total by pytorch", " cached"};
  size_t from, end;
  if (count > 1400) count = 1400;
  from = count;
  for (size_t i = 0; i < sizeof last / sizeof *last && from == count; i++) from = hri_oom_word(text, 0, count, last[i]);
  end = count - from < 450 ? count : from + 450;
  end = hri_oom_word(text, from, end, "out of memory");
  end = hri_oom_word(text, from, end, "traceback (most recent");
  if (has_bar(text + from, end - from, 10)) message->has_run = true;
}

void hri_oom_context(const char *text, size_t count, hri_oom_message *message) {
  static const char *const frameworks[][2] = {{"deepspeed", "deepspeed"},
                                              {"fullyshardeddataparallel", "fsdp"},
                                              {"fsdp", "fsdp"},
                                              {"vllm/", "vllm"},
                                              {"sglang/", "sglang"},
                                              {"axolotl", "axolotl"},
                                              {"llamafactory", "llama-factory"},
                                              {"torchtune", "torchtune"},
                                              {"torchtitan", "torchtitan"},
                                              {"megatron", "megatron"},
                                              {"lightning", "lightning"},
                                              {"comfy", "comfyui"},
                                              {"transformers/trainer.py", "transformers"},
                                              {"transformers/", "transformers"},
                                              {"accelerate/", "accelerate"},
                                              {"diffusers/", "diffusers"}};
  static const char *const phases[][2] = {{"optimizer.step(", "optimizer"},  {"torch/optim/", "optimizer"},
                                          {".backward(", "backward"},        {"run_backward", "backward"},
                                          {"evaluation_loop", "evaluation"}, {"prediction_step", "evaluation"},
                                          {"cross_entropy", "loss"},         {"from_pretrained", "loading"},
                                          {"load_state_dict", "loading"}};
  /* Only the last traceback is this failure's. */
  size_t from = 0;
  for (size_t at = hri_oom_word(text, 0, count, "traceback (most recent"); at < count;
       at = hri_oom_word(text, at + 1, count, "traceback (most recent"))
    from = at;
  for (size_t i = 0; i < sizeof frameworks / sizeof *frameworks && !message->failure.framework[0]; i++)
    if (hri_oom_word(text, 0, count, frameworks[i][0]) < count) message->failure.framework = frameworks[i][1];
  for (size_t i = 0; i < sizeof phases / sizeof *phases && !message->failure.phase[0]; i++)
    if (hri_oom_word(text, from, count, phases[i][0]) < count) message->failure.phase = phases[i][1];
  message->has_run = message->has_run || has_run(text, count);
  message->capturing = hri_oom_word(text, from, count, "torch/cuda/graphs.py") < count ||
                       hri_oom_word(text, from, count, "use_mem_pool") < count ||
                       hri_oom_word(text, from, count, "capture_begin") < count ||
                       hri_oom_word(text, from, count, "capture cuda graph failed") < count;
  if (message->kind == HRI_OOM_BARE && hri_oom_word(text, from, count, "pin_memory") < count)
    message->kind = HRI_OOM_PINNED;
}

bool hri_oom_is_broken_off(const char *text, size_t count) {
  size_t at = hri_oom_word(text, 0, count, "tried to allocate");
  return at < count &&
         (hri_oom_word(text, at, count, "ib. gpu") < count || hri_oom_word(text, at, count, "ib (gpu") < count ||
          hri_oom_word(text, at, count, "es. gpu") < count || hri_oom_word(text, at, count, "es (gpu") < count);
}

void hri_oom_untangle(const hr_oom_failure *torn, hri_oom_message *message) {
  hr_oom_value *f = message->failure.figures;
  bool dropped = false;
  for (int i = 0; i < HR_OOM_FIGURE_COUNT; i++) {
    if (i == HR_OOM_REQUESTED || torn->figures[i].state == HR_OOM_READ || f[i].state == HR_OOM_ABSENT) continue;
    f[i] = (hr_oom_value){.state = HR_OOM_ABSENT};
    dropped = true;
  }
  if (torn->figures[HR_OOM_FREE].state != HR_OOM_READ || torn->figures[HR_OOM_ALLOCATED].state != HR_OOM_READ)
    message->process_count = 0; /* processes are listed between those */
  if (dropped)
    hri_oom_line(&message->failure,
                 "two messages were written into one line: figures that may be the other's are left out");
}

bool hri_oom_same_figures(const hr_oom_failure *a, const hr_oom_failure *b) {
  for (int i = 0; i < HR_OOM_FIGURE_COUNT; i++)
    if (i != HR_OOM_OTHER_PROCESSES && i != HR_OOM_THIS_PROCESS &&
        (a->figures[i].state != b->figures[i].state || a->figures[i].bytes != b->figures[i].bytes))
      return false;
  return true;
}
