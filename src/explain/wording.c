/* What the words around a head say: whose message it is and of which kind, or that it is none - advice, a name that is
 * spoken of, part of a program. */
#include "explain/wording.h"

#include "explain/lexicon.h"
#include "explain/match.h"
#include "explain/voice.h"

static bool before_ends(const hri_oom_around *a, const char *words) {
  return hri_match_end(a->text, a->start, hri_skip_back(a->text, a->start, a->at), words);
}
static bool before_has(const hri_oom_around *a, const char *words) {
  return hri_match_part(a->text, a->start, a->at, words);
}
static bool after_starts(const hri_oom_around *a, const char *words) {
  return hri_match_at(a->text, a->after, a->count, words);
}
static bool after_has(const hri_oom_around *a, size_t within, const char *words) {
  return hri_match_part(a->text, a->after, a->count - a->after < within ? a->count : a->after + within, words);
}

/* Whether the head's words stand there once more before the words that go with the message: a title above it. */
static bool is_named_again(const hri_oom_around *a, const char *words) {
  const size_t end = hri_oom_word(a->text, a->after, a->count, words);
  return hri_match_part(a->text, a->after, end, "out of memory");
}

static const hri_oom_reading nothing = {HRI_OOM_NOTHING, ""};

/* `source` where the kind is told, else nothing. */
static hri_oom_reading when(bool told, hri_oom_kind kind, const char *source) {
  return told ? (hri_oom_reading){kind, source} : nothing;
}

/* Whether the name of an error code or exception is spoken of: code that compares it, prose that explains it. */
static bool is_named(const hri_oom_around *a) {
  static const char before[] =
      "raise|raises|raising|throw|throws|throwing|return|returning|case|when|if|as|a|the|of|via|with|using|use|send|sends|sending|"
      "due to|logic for|" HRI_AVOID "|" HRI_HANDLE;
  static const char behind[] = " = |;|&| &|():|();| as | is | when | if | means| occur|/|ed";
  size_t end = a->at;
  if (hri_match_end(a->text, a->start, end, "::")) /* of a space of names */
    for (end -= 2; end > a->start && hri_is_name(a->text[end - 1]);) end--;
  if (before_ends(a, "terminating due to|terminated by")) return false;
  if (hri_voice_meets(a->text, hri_sentence_start(a->text, a->start, end), end)) return false;
  while (end > a->start && strchr(" (", a->text[end - 1])) end--;
  return hri_match_last(a->text, a->start, end, before) < end ||
         hri_match_end(a->text, a->start, end, "error and|error or|error,|exception and|exception or") ||
         (end > a->start && a->text[end - 1] == '|') ||
         hri_match_end(a->text, a->start, end, "!=|==|== \"|== '|&&|kill -|signal.") || after_starts(a, behind);
}

/* Whether the same process had been told to have timed out: "worker timeout (pid:17)", "successfully killed ... pid 17". */
static bool had_timed_out(const hri_oom_around *a) {
  static const char ids[] = "pid |pid: |pid:|process ";
  enum { FAR = 900 };
  const size_t far = a->at > FAR ? a->at - FAR : 0, line = a->at > 60 ? a->at - 60 : 0;
  for (size_t at = line; at < a->at; at++) {
    const size_t id = hri_match_next(a->text, at, a->at, ids);
    size_t end = id, same = far;
    while (end < a->at && hri_is_digit(a->text[end])) end++;
    if (id == at || end < id + 2) continue;
    for (; same + (end - id) < at; same++)
      if (memcmp(a->text + same, a->text + id, end - id) == 0 && !hri_is_digit(a->text[same - (same > 0)]) &&
          hri_match_part(a->text, same > 60 ? same - 60 : 0, same, "timeout (|timed out|successfully killed|killing"))
        return true;
  }
  return false;
}

/* Whether a process was killed on purpose: when a run tears down its workers, by a scheduler. */
static bool is_intended_kill(const hri_oom_around *a) {
  static const char before[] =
      "during teardown|at teardown|during shutdown|at shutdown|on shutdown|exception ignored in|timed out. killing|timeout: sending signal|stop requested|kill requested";
  hri_oom_around far = *a;
  far.start = a->at > 320 ? a->at - 320 : 0;
  if (before_has(&far, before) || had_timed_out(a)) return true;
  return after_has(a, 60, "preempt|<pid>") || after_has(a, 120, "timeout '") || after_starts(a, " from the scheduler");
}

/* An extension's own check: "CUDA runtime error: out of memory", "cuda failed with error 2 out of memory". */
static bool is_check(const hri_oom_around *a) {
  hri_oom_around near = *a;
  near.start = a->at - a->start > 60 ? a->at - 60 : a->start;
  if (!before_has(&near, "cuda|hip")) return false;
  if (!before_has(&near, "error|fail")) return false;
  return before_ends(a, ":| 2|(2)|failed with error");
}

/* Whose "cudaMalloc failed" it is. */
static hri_oom_reading read_malloc(const hri_oom_around *a) {
  static const char *const names[][2] = {{"pooled_storage_manager", "mxnet"},
                                         {"mxnet", "mxnet"},
                                         {"dmlc", "mxnet"},
                                         {"ggml", "ggml"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (before_has(a, names[i][0])) return (hri_oom_reading){HRI_OOM_FOREIGN, names[i][1]};
  return (hri_oom_reading){HRI_OOM_BARE, "cuda-extension"};
}

/* PyTorch's error of the runtime, told by its place in a source: of pages that it locks, and of its ancestor in Lua, which
 * says the same. */
static hri_oom_reading read_runtime(const hri_oom_around *a, hri_oom_reading reading) {
  static const char lua[] = "cutorch|luarocks|luajit|/share/lua/";
  if (reading.kind != HRI_OOM_BARE) return reading;
  if (before_has(a, lua) || after_has(a, 200, lua)) return (hri_oom_reading){HRI_OOM_FOREIGN, "torch7"};
  if (after_has(a, 120, "cachinghostallocator")) reading.kind = HRI_OOM_PINNED;
  return reading;
}

/* "out of memory" as other programs and extensions report it, by what stands right before. */
static hri_oom_reading read_macro(const hri_oom_around *a) {
  if (before_ends(a, "error=2 :") && before_has(a, "thcudacheck fail"))
    return read_runtime(a, (hri_oom_reading){HRI_OOM_BARE, "pytorch-cuda"});
  if (before_ends(a, "):") && before_has(a, "cuda error (")) return (hri_oom_reading){HRI_OOM_BARE, "cuda-extension"};
  if (before_ends(a, "gpuassert:")) return (hri_oom_reading){HRI_OOM_BARE, "cuda-extension"};
  if (before_ends(a, "(2 vs. 0)") && before_has(a, "check failed:")) return (hri_oom_reading){HRI_OOM_FOREIGN, "caffe"};
  if (after_starts(a, " allocating ") && after_has(a, 60, "bytes with alignment"))
    return (hri_oom_reading){HRI_OOM_HOST, "unreal"};
  if (after_starts(a, " (requested ") && after_has(a, 40, " bytes)")) return (hri_oom_reading){HRI_OOM_HOST, "ghc"};
  if (after_starts(a, " (needed ") && after_has(a, 40, " bytes)")) return (hri_oom_reading){HRI_OOM_HOST, "mysql"};
  if (after_starts(a, " allocating ") && after_has(a, 80, "after a total of"))
    return (hri_oom_reading){HRI_OOM_HOST_LIKELY, "compiler"};
  if (before_ends(a, "libgomp:")) return (hri_oom_reading){HRI_OOM_HOST, "libgomp"};
  if (after_starts(a, " allocating ") && after_has(a, 120, "failing in thread:"))
    return (hri_oom_reading){HRI_OOM_LIBRARY, "openacc"};
  if (after_starts(a, " allocating ") && (after_has(a, 100, " bytes (allocated so far") || before_has(a, "cupy")))
    return (hri_oom_reading){HRI_OOM_FOREIGN, "cupy"};
  if (after_starts(a, " to allocate ") && after_has(a, 60, " bytes (total"))
    return (hri_oom_reading){HRI_OOM_FOREIGN, "cupy"};
  if (after_starts(a, " trying to allocate") && before_has(a, "bfc_allocator")) {
    const bool cut = a->count - a->after < 100 && !after_has(a, 100, "the caller"); /* of what all of them say */
    return when(!cut || !before_has(a, "performance gains"), HRI_OOM_FOREIGN, "tensorflow");
  }
  if (before_has(a, "cudamalloc fail") && before_ends(a, ":")) return read_malloc(a);
  if (before_ends(a, "c error:") && before_has(a, "tokenizing"))
    return (hri_oom_reading){HRI_OOM_HOST_LIKELY, "pandas"};
  if (is_check(a)) return (hri_oom_reading){HRI_OOM_BARE, "cuda-extension"};
  return nothing;
}

/* "out of memory". */
static hri_oom_reading read_memory_head(const hri_oom_around *a) {
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
    if (before_ends(a, before[i].words)) return read_runtime(a, (hri_oom_reading){before[i].kind, before[i].source});
  if (after_starts(a, ": killed process|: kill process") || before_ends(a, "memory cgroup"))
    return (hri_oom_reading){HRI_OOM_HOST, "kernel"};
  if (before_ends(a, "error") && after_starts(a, " at line")) return (hri_oom_reading){HRI_OOM_LIBRARY, "bitsandbytes"};
  if (after_starts(a, " error on gpu ")) return (hri_oom_reading){HRI_OOM_FOREIGN, "paddle"};
  for (size_t i = 0; i < sizeof backends / sizeof *backends; i++) {
    bool caching = before_ends(a, backends[i]);
    char with[16] = {0};
    memcpy(with, backends[i], strlen(backends[i]));
    memcpy(with + strlen(with), " error:", 8);
    if (before_ends(a, with) && before_has(a, "llama runner|ggml")) return (hri_oom_reading){HRI_OOM_FOREIGN, "ggml"};
    if (before_ends(a, with) && after_has(a, 80, "darknet: ")) return (hri_oom_reading){HRI_OOM_FOREIGN, "darknet"};
    if (before_ends(a, with))
      return (hri_oom_reading){before_has(a, "pin_memory") || after_has(a, 200, "pin_memory") ||
                                       after_has(a, 60, "hostalloc|mallochost")
                                   ? HRI_OOM_PINNED
                                   : HRI_OOM_BARE,
                               sources[i]};
    if (caching && after_has(a, 60, "preemptively rejected")) return (hri_oom_reading){HRI_OOM_REJECTED, sources[i]};
    if (caching) return (hri_oom_reading){HRI_OOM_CACHING, sources[i]};
  }
  if (after_starts(a, " (allocated ") && after_has(a, 60, ") (tried to allocate"))
    return (hri_oom_reading){HRI_OOM_HOST, "php"};
  if (after_has(a, 300, "failed on request of size") && !is_named_again(a, "failed on request of size"))
    return (hri_oom_reading){HRI_OOM_HOST, "postgresql"};
  if (after_has(a, 120, "cannot enlarge string buffer")) return (hri_oom_reading){HRI_OOM_LIMIT, "postgresql"};
  if (after_has(a, 40, "tried to allocate") && !after_has(a, 40, "malloc"))
    return (hri_oom_reading){HRI_OOM_CACHING, "pytorch-cuda"};
  /* After the backends: "NCCL ..." may be the log line before PyTorch's own message. */
  if (before_has(a, "cuda failure") && after_has(a, 12, "; gpu="))
    return (hri_oom_reading){HRI_OOM_FOREIGN, "onnxruntime"};
  if (before_has(a, "cuda failure") && before_ends(a, "'")) return (hri_oom_reading){HRI_OOM_LIBRARY, "nccl"};
  if (before_has(a, "nccl") && before_has(a, "cuda")) return (hri_oom_reading){HRI_OOM_LIBRARY, "nccl"};
  return read_macro(a);
}

/* "srun: error: gpu01: tasks 0-3: out of memory": of a task, not of what a task printed. */
static bool ends_task(const hri_oom_around *a, const char *words) {
  size_t end = a->count - a->after < 100 ? a->count : a->after + 100;
  size_t at = hri_oom_word(a->text, a->after, end, words), task = hri_oom_word(a->text, a->after, end, "task");
  return at < end && task < at && (hri_is_digit(a->text[at - 1]) || a->text[at - 1] == ']');
}

/* "detected 1 oom-kill event": not 0, and not events in general. */
static bool counts_events(const hri_oom_around *a) {
  size_t at = a->at;
  while (at > a->start && a->text[at - 1] == ' ') at--;
  return at > a->start && hri_is_digit(a->text[at - 1]) && !before_ends(a, "detected 0");
}

/* Whether the killer, "oom-kill" and "er", did something or had it done: alone it is the name of who may. */
static bool tells_of_killer(const hri_oom_around *a) {
  static const char deeds[] =
      "er kill|er has|er was|er is kill|er got|er invoked|er trigger|er terminat|er activ|er kick|er step|er fired|er struck|er took|"
      "er hit|er end|er stop|er did|er came|er reap|er sent|er to |er message|er log|er event|er start|er select|er chose";
  return after_starts(a, deeds) ||
         before_has(a,
                    "killed|kill |kills|invoke|trigger|terminated|due to|because of|hit|died|ended|sigkill|log|dmesg");
}

/* "app: oomkilled" and nothing before it in the line: what somebody called a thing of theirs. */
static bool is_named_so(const hri_oom_around *a) {
  static const char labels[] = "name: |app: |image: |- name: ";
  size_t at = a->line;
  while (at < a->at && a->text[at] == ' ') at++;
  return at < a->at && hri_match_next(a->text, at, a->at, labels) == a->at;
}

/* "So the kernel OOM-kills the build during the crawl": of one thing, as it happens. */
static bool kills_by_kernel(const hri_oom_around *a) {
  size_t from = hri_sentence_start(a->text, a->start, a->at);
  for (size_t at = from; at < a->at; at++)
    if (a->text[at] == ',') from = at; /* the last clause */
  return after_starts(a, "s the |s my |s our |s it|ed the |ed my |ed our |ed it") &&
         before_ends(a, "kernel|linux|system|node|kubelet|os") &&
         !hri_match_any(a->text, from, a->at, HRI_CASE "|" HRI_CAN "|when|until|before|to|each|any|every");
}

/* Reports of the kernel, Slurm, systemd, docker and Kubernetes; not names of settings, and not counters that stand at
 * 0. */
static hri_oom_reading read_kill_head(const char *words, const hri_oom_around *a) {
  static const char *const reports[] = {":constraint", " event", "' "};
  const bool step = before_has(a, "slurmstepd");
  const hri_oom_reading certain = {HRI_OOM_HOST, step ? "slurm" : "kernel"};
  size_t at = a->after;
  if (strcmp(words, "oom killed") == 0 || strcmp(words, "oom-killed") == 0) { /* in people's words, or as a reason */
    hri_oom_around killed = *a;
    killed.at += 4;
    if (hri_oom_is_killed_by(&killed)) return certain; /* "earlyoom killed it" */
    if (before_ends(a, "reason:|reason\": \"|message: \"|container init was")) return certain;
    if (before_ends(
            a,
            " that got| that get| that were| that are| that is| that was| that| which were| which got| which is| which"))
      return nothing; /* of a kind */
    if (before_ends(a, " being") && after_starts(a, " is | would | can | will | should "))
      return nothing; /* in general */
    if (!before_ends(a, " was| got| been| were| is| being| gets| getting| constantly| repeatedly| still| again") ||
        before_has(a, "oom_kill"))
      return nothing;
    return certain; /* by whom is in the word */
  }
  if (strcmp(words, "oomkilled") == 0) {
    if (before_ends(a, "_") && after_starts(a, "_")) return nothing; /* a part of a name */
    if (before_ends(a, "confirms|confirm|means|explains|identify|identifying|troubleshoot|prevent")) return nothing;
    if (is_named_so(a) || before_ends(a, "which have been in an|that have been in an|that are in an|which are in an"))
      return nothing;                                                      /* somebody calls it so; of a kind */
    if (before_ends(a, "failed or|error or|completed or")) return nothing; /* nobody knows which */
    if (before_ends(a, "for reason:")) return nothing;                     /* "look for Reason: OOMKilled" */
    if (before_ends(a, "reason:")) return (hri_oom_reading){HRI_OOM_HOST, "kubernetes"};
    bool no = after_has(a, 9, "false") || after_starts(a, "}}");
    const bool kind = after_starts(a, " pods| containers| processes| jobs| events"); /* "get oomkilled pods" */
    bool adjective =
        kind ||
        (after_starts(a, " ") && a->after + 1 < a->count && hri_is_letter(a->text[a->after + 1]) &&
         !after_starts(a, " due to| by | at | in | on | with | when | because | after | and | errors ") &&
         !before_ends(
             a, "is|are|was|were|got|gets|get|getting|been|being|with|mit|con|avec|com")); /* "with oomkilled status" */
    if (no) return nothing;
    return adjective ? (hri_oom_reading){HRI_OOM_HOST_LIKELY, "kernel"} : certain; /* "OOMKilled pods are" */
  }
  for (size_t i = 0; i < sizeof reports / sizeof *reports; i++)
    if (after_starts(a, reports[i]) && (reports[i][0] != ' ' || counts_events(a))) return certain;
  if (strcmp(words, "oom-kill") == 0 && kills_by_kernel(a)) return certain;
  if (after_starts(a, "er") && before_ends(a, "invoked")) return certain;
  if (before_ends(a, "result '|result=")) return certain; /* systemd */
  while (at < a->count && strchr(" :=\"", a->text[at]) && a->text[at]) at++;
  if (words[3] == '_' && at > a->after && at < a->count && a->text[at] >= '1' && a->text[at] <= '9')
    return (hri_oom_reading){HRI_OOM_HOST_LIKELY, "kernel"};
  return after_starts(a, "er") && tells_of_killer(a) ? (hri_oom_reading){HRI_OOM_HOST_LIKELY, "kernel"} : nothing;
}

/* "Exit code 137 means that ...": the digits from `at` on are followed by prose about them. */
static bool is_explained(const hri_oom_around *a, size_t at) {
  static const char prose[] =
      " mean| indicates| usually| typically| often| is the | implies| stands | in docker| is reserved|?";
  while (at < a->count && hri_is_digit(a->text[at])) at++;
  return hri_match_at(a->text, at, a->count, prose);
}

/* "cudaErrorMemoryAllocation": thrust's when one of its functions failed, a checker's that reports every call. */
static hri_oom_reading read_allocation_code(const hri_oom_around *a, hri_oom_reading plain) {
  static const char functions[] = "parallel_for failed:|transform failed:|reduce failed:|for_each failed:|sort failed:|"
                                  "scan failed:|after reduction step|copy failed:|get_temporary_buffer failed";
  if (before_ends(a, "program hit")) return (hri_oom_reading){HRI_OOM_FOREIGN_LIKELY, "compute-sanitizer"};
  return before_has(a, functions) ? (hri_oom_reading){HRI_OOM_LIBRARY, "thrust"} : plain;
}

/* Whether the words stand by themselves, behind a colon, a quote or a bracket: people use the same words in sentences. */
static bool is_set_off(const hri_oom_around *a) {
  size_t at = a->at;
  while (at > a->start && a->text[at - 1] == ' ') at--;
  return at <= a->line || at == a->start || strchr(":'\"([=>-", a->text[at - 1]);
}

/* "heap exhausted": a runtime's own, where its other words follow. */
static hri_oom_reading read_exhausted(const hri_oom_around *a) {
  static const char sbcl[] = " (no more space for allocation)|"
                             " during allocation: | during garbage collection: |, game over";
  if (hri_match_at(a->text, a->after, a->count, sbcl)) return (hri_oom_reading){HRI_OOM_HEAP, "sbcl"};
  if (after_has(a, 120, "current maximum heap size is")) return (hri_oom_reading){HRI_OOM_HEAP, "ghc"};
  return nothing;
}

/* Heads of which words before or behind them tell whose they are: the first row that holds; NULL: whatever stands there. */
static const struct {
  const char *words, *before, *after;
  size_t within; /* how far behind */
  hri_oom_kind kind;
  const char *source;
} told_beside[] = {
    {"unexpected error occurred during cuda execution", NULL, "cuda_error_out_of_memory", 60, HRI_OOM_FOREIGN,
     "matlab"},
    {"allocation failure", "nrt_", NULL, 0, HRI_OOM_FOREIGN, "neuron"},
    {"allocation failure", "message=", NULL, 0, HRI_OOM_BARE, "a run time"},
    {"could not reserve enough space for", NULL, "kb object heap", 24, HRI_OOM_HOST, "java"},
    {"could not reserve enough space for", NULL, " object heap", 12, HRI_OOM_HOST, "java"},
    {"could not reserve enough space for", NULL, NULL, 0, HRI_OOM_HOST_LIKELY, "java"},
    {"could not satisfy request for", "tdrv:", NULL, 0, HRI_OOM_FOREIGN, "neuron"},
    {"memory quota exceeded", "error r1", NULL, 0, HRI_OOM_HOST, "heroku"},
    {"memory quota exceeded", "heroku", NULL, 0, HRI_OOM_HOST, "heroku"},
    {"memory quota exceeded", NULL, NULL, 0, HRI_OOM_LIMIT, "server"},
    {", oom_score_adj ", "kill '|killing '", "to free ", 30, HRI_OOM_HOST, "android"},
    {", adj ", "kill '|killing '", "to free ", 30, HRI_OOM_HOST, "android"},
    {"kokkos failed to allocate memory for label", NULL, "named \"host\"", 100, HRI_OOM_HOST, "kokkos"},
    {"kokkos failed to allocate memory for label", NULL, NULL, 0, HRI_OOM_FOREIGN, "kokkos"},
    {"not enough memory to handle ", NULL, "prefill tokens", 30, HRI_OOM_LIMIT, "tgi"},
    {" exceed limit. ", "memory", "used: ", 160, HRI_OOM_LIMIT, "starrocks"},
    {"process memory used ", NULL, "exceed limit", 160, HRI_OOM_LIMIT, "doris"},
    {"connection memory limit ", NULL, " bytes exceeded", 40, HRI_OOM_LIMIT, "mysql"},
    {"query exceeded ", NULL, "memory limit of ", 40, HRI_OOM_LIMIT, "trino"},
    {"memory budget exceeded: ", NULL, " in budget", 120, HRI_OOM_LIMIT, "cockroachdb"},
    {"core max size: ", NULL, "no memory left", 400, HRI_OOM_LIMIT, "psi4"},
    {"target maximum memory (gb)", NULL, "not enough memory: aborting in", 400, HRI_OOM_LIMIT, "quantum package"},
    {"out of memory error: ", NULL,
     "could not allocate block of|failed to pin block|failed to allocate data of|failed to offload|could not free up enough memory",
     100, HRI_OOM_LIMIT, "duckdb"},
    {"\"per-process-limit\"", "\"reason\" :|\"reason\":", NULL, 0, HRI_OOM_HOST, "ios"},
    {"\"vm-pageshortage\"", "\"reason\" :|\"reason\":", NULL, 0, HRI_OOM_HOST, "ios"},
    {"\"highwater\"", "\"reason\" :|\"reason\":", NULL, 0, HRI_OOM_HOST, "ios"},
    {"oom killer terminated ", NULL, "process on this host|processes on this host", 30, HRI_OOM_HOST, "kernel"},
    {"error allocating ", "around line", "cannot allocate memory", 60, HRI_OOM_HOST, "gfortran"},
    {"error allocating ", "around line", " bytes", 24, HRI_OOM_HOST_LIKELY, "gfortran"},
    {"container '", NULL, "' exceeded memory limit", 40, HRI_OOM_HOST, "container"}, /* Bitbucket's */
    {"failed attempt to allocate", NULL, "may not have enough free memory", 60, HRI_OOM_HOST, "kraken2"},
    {"too many k-mers to fit into available memory", NULL, "you need approx", 24, HRI_OOM_LIMIT, "spades"},
    {"too many k-mers to fit into available memory", NULL, " limit. increase memory", 32, HRI_OOM_LIMIT, "spades"},
    {"out of memory allocating the", NULL, "for the bowtie index", 60, HRI_OOM_HOST, "bowtie"},
    {"container oom ", NULL, "image=", 4000, HRI_OOM_HOST, "docker"}, /* an event's attributes */
    {"unable to allocate", NULL, "for an array|array with|array of shape", 60, HRI_OOM_HOST, "numpy"},
    {"unable to mmap", NULL, "cannot allocate memory", 400, HRI_OOM_HOST, "mmap"}, /* or a limit on mappings */
    {"unable to write to file </torch_", NULL, "no space left", 120, HRI_OOM_HOST, "shared-memory"},
    {"unable to write to file </torch_", NULL, NULL, 0, HRI_OOM_HOST_LIKELY, "shared-memory"},
    {"/dev/shm/", NULL, "no space left", 200, HRI_OOM_HOST, "shared-memory"},
    {"/dev/shm/", "error while creating shared memory|failed to extend", NULL, 0, HRI_OOM_HOST_LIKELY, "shared-memory"},
    {"no space left on device", NULL, "/dev/shm/", 24, HRI_OOM_HOST, "shared-memory"}, /* else it is a disk's */
    {"no space left on device", NULL, "-> '/dev/shm/", 200, HRI_OOM_HOST, "shared-memory"},
    {"no space left on device", "semlock|shared memory|/dev/shm|posix_fallocate", NULL, 0, HRI_OOM_HOST,
     "shared-memory"},
    {"gpu blocks: 0,", NULL, "traceback|error:", 2000, HRI_OOM_VLLM_CAP, "vllm"}, /* of a start that then failed */
    {"os::commit_memory(", NULL, "failed; error=", 60, HRI_OOM_HOST, "java"},
    {"page allocation failure", NULL, "order:", 12, HRI_OOM_HOST, "kernel"},
    {"sending sigterm to process ", NULL, "vmrss|badness|oom_score", 160, HRI_OOM_HOST, "earlyoom"},
    {"sending sigkill to process ", NULL, "vmrss|badness|oom_score", 160, HRI_OOM_HOST, "earlyoom"},
    {"exceeds job hard limit", NULL, "_vmem|_rss|_data", 12, HRI_OOM_HOST, "grid-engine"},
    {"exceeded memory limit (", NULL, "being killed", 60, HRI_OOM_HOST,
     "slurm"},                                                                 /* "(4220000 > 4194304), being killed" */
    {"memory limit of", NULL, "exceeded with", 32, HRI_OOM_HOST, "container"}, /* Cloud Run's and App Engine's */
    {"memory limit of", "exceeded hard", " with ", 32, HRI_OOM_HOST, "container"},
    {"local memory (", NULL, ") exceeds limit (", 32, HRI_OOM_CHIP, "compiler"},
    {"threadgroup memory size (", NULL, ") exceeds the maximum", 40, HRI_OOM_CHIP, "metal"},
    {"cudahostalloc", NULL, "out of memory", 120, HRI_OOM_PINNED, "pytorch-cuda"},
    {"cudamallochost", NULL, "out of memory", 120, HRI_OOM_PINNED, "pytorch-cuda"},
    {"hiphostmalloc", NULL, "out of memory", 120, HRI_OOM_PINNED, "pytorch-cuda"},
};

static bool is_told_beside(const char *words, const hri_oom_around *a, hri_oom_reading *reading) {
  bool known = false;
  *reading = (hri_oom_reading){HRI_OOM_NOTHING, ""};
  for (size_t i = 0; i < HRI_COUNT(told_beside) && reading->kind == HRI_OOM_NOTHING; i++) {
    if (strcmp(words, told_beside[i].words) != 0) continue;
    known = true;
    if ((!told_beside[i].before || before_has(a, told_beside[i].before)) &&
        (!told_beside[i].after || after_has(a, told_beside[i].within, told_beside[i].after)))
      *reading = (hri_oom_reading){told_beside[i].kind, told_beside[i].source};
  }
  return known;
}

/* TensorFlow's "oom when allocating tensor with shape ... on /.../device:cpu:0 by allocator cpu". */
static bool is_by_host_allocator(const hri_oom_around *a) {
  return after_has(a, 260, "device:cpu:0 by allocator|by allocator cpu|by allocator mklcpu");
}

/* ---- heads of which a row is not enough ---- */

static bool ends_word(const hri_oom_around *a) { return a->after == a->count || !hri_is_name(a->text[a->after]); }

static hri_oom_reading read_enforce(const hri_oom_around *a) {
  if (after_has(a, 60, "alloc_cpu|cpuallocator")) return (hri_oom_reading){HRI_OOM_HOST, "pytorch-cpu"};
  return when(after_has(a, 200, "out of memory"), HRI_OOM_BARE, "caffe2");
}

/* Python's, unless the words are another one's or a device's. */
static hri_oom_reading read_memoryerror(const hri_oom_around *a) {
  const bool whole = a->at == 0 || !(hri_is_letter(a->text[a->at - 1]) || hri_is_digit(a->text[a->at - 1]) ||
                                     a->text[a->at - 1] == '.');
  const bool header =
      after_starts(a, " traceback (most"); /* the exception stands behind its frames, unless they are cut */
  if (whole && after_starts(a, ": cu") && after_has(a, 60, " failed: out of memory"))
    return (hri_oom_reading){HRI_OOM_LIBRARY, "pycuda"}; /* its exception, without its module */
  const bool repr = after_starts(a, "() |()\n") || (after_starts(a, "()") && a->after + 2 == a->count);
  if (after_has(a, 120, "device memory|gpu|cuda|cumemalloc|hipmalloc") || after_starts(a, ": metal ") ||
      after_has(a, 80, "no memory is available"))
    return nothing;
  if (!whole || after_starts(a, ": std::bad_alloc") || (header && after_has(a, a->count, "memoryerror")) ||
      (after_starts(a, ": unable to alloc|:unable to alloc| unable to alloc") && after_has(a, 100, "array")))
    return nothing;
  const bool met = a->after < a->count && strchr(".,;)!", a->text[a->after]) && /* "it dies with a memoryerror." */
                   hri_voice_meets(a->text, hri_sentence_start(a->text, a->start, a->at), a->at);
  return when(after_starts(a, ":| ") || a->after == a->count || repr || met, HRI_OOM_HOST_LIKELY, "python");
}

/* Whether a file's path stands right before the head and its colon: what could not be read has no device's memory, whatever its folders
 * are called. A path with a line behind it is a place in a source, and a device's file is the device. */
static bool is_of_file(const hri_oom_around *a, size_t line) {
  size_t end = hri_skip_back(a->text, line, a->at), from;
  if (end == line || a->text[end - 1] != ':') return false;
  while (end > line && strchr(":'\"", a->text[end - 1])) end--;
  for (from = end; from > line && !strchr(" '\"(:", a->text[from - 1]);) from--;
  if (!hri_match_at(a->text, from, end, "/|./|../") || hri_match_at(a->text, from, end, "/dev/|//")) return false;
  for (size_t at = line, word; at < from; at = word + 1) { /* nor is the device named beside it */
    for (word = at; word < from && !strchr(" '\"(:", a->text[word]); word++) {}
    if (!memchr(a->text + at, '/', word - at) && hri_match_part(a->text, at, word, "gpu|cuda|hip|vram|npu|xpu"))
      return false;
  }
  return true;
}

/* The kernel's ENOMEM, where it stands by itself. */
static hri_oom_reading read_enomem(const hri_oom_around *a) {
  static const char devices[] = "gpu|cuda|hip|device mem|vram|npu|xpu";
  const size_t from = a->line > a->start ? a->line : a->start; /* lines before tell of the machine's cards anyhow */
  if ((hri_match_part(a->text, from, a->at, devices) && !is_of_file(a, from)) || after_has(a, 40, devices))
    return nothing;
  if (a->at > a->start && !is_set_off(a) && !after_starts(a, " (12| (errno")) return nothing;
  if (before_has(a, "guest ram|guest memory|qemu")) return (hri_oom_reading){HRI_OOM_HOST, "qemu"};
  return (hri_oom_reading){after_starts(a, " in static tls") ? HRI_OOM_HOST_LIKELY : HRI_OOM_HOST, "host"};
}

static hri_oom_reading read_killed_process(const hri_oom_around *a) {
  return when(after_has(a, 100, "total-vm") || hri_oom_is_killed_by(a), HRI_OOM_HOST, "kernel");
}

static hri_oom_reading read_bad_allocation(const hri_oom_around *a) {
  return when(before_ends(a, ":"), HRI_OOM_HOST_LIKELY, "c++");
}

/* Of a device, by Vulkan or Level Zero. */
static hri_oom_reading read_device_code(const hri_oom_around *a) {
  return before_has(a, "vulkan|vk_|vk error|on an err value") ? (hri_oom_reading){HRI_OOM_FOREIGN_LIKELY, "vulkan"}
                                                              : (hri_oom_reading){HRI_OOM_BARE, "level-zero"};
}

static hri_oom_reading read_vulkan(const hri_oom_around *a) {
  (void)a;
  return (hri_oom_reading){HRI_OOM_FOREIGN_LIKELY, "vulkan"};
}

/* cudaMallocAsync's, of which the rest was left out. */
static hri_oom_reading read_async_class(const hri_oom_around *a) {
  return when(!after_has(a, 40, "would exceed"), HRI_OOM_BARE, "pytorch-cuda-async");
}

static hri_oom_reading read_signal(const hri_oom_around *a) {
  return when(ends_word(a) &&
                  (before_ends(a, "on|by|due to|with|***|killed (|of") || after_starts(a, " (kill| (sigkill")),
              HRI_OOM_HOST_LIKELY, "kill");
}

static hri_oom_reading read_memorystatus(const hri_oom_around *a) {
  return when(!after_starts(a, "_idle"), HRI_OOM_HOST, "macos");
}

/* "low swap: killing largest compressed process with pid 512 (java) and size 4301 MB". */
static hri_oom_reading read_compressed(const hri_oom_around *a) {
  size_t at = a->after;
  while (at < a->count && hri_is_digit(a->text[at])) at++;
  return when(at > a->after && hri_match_at(a->text, at, a->count, " ("), HRI_OOM_HOST, "macos");
}

/* "schwarz_init: insufficient memory 140344072": a function of NWChem's, what it says and a number of words. */
static hri_oom_reading read_errquit(const hri_oom_around *a) {
  size_t from = a->at > a->start + 2 ? a->at - 2 : a->start, to = a->after;
  while (from > a->start && hri_is_name(a->text[from - 1])) from--;
  while (to < a->count && hri_is_digit(a->text[to])) to++;
  return when(before_ends(a, ":") && memchr(a->text + from, '_', a->at - from) && to > a->after + 3 &&
                  (to == a->count || a->text[to] == ' '),
              HRI_OOM_LIMIT, "nwchem");
}

static hri_oom_reading read_resources(const hri_oom_around *a) { /* a device's, where a framework says so */
  if (after_has(a, 60, "(os error 8)")) return (hri_oom_reading){HRI_OOM_HOST, "windows"};
  return when(!before_has(a, "8007000e"), HRI_OOM_HOST_LIKELY, "windows");
}

static hri_oom_reading read_failed_with(const hri_oom_around *a) {
  return when(ends_word(a), HRI_OOM_HOST_LIKELY, "kill");
}

static hri_oom_reading read_killed(const hri_oom_around *a) {
  if (hri_oom_is_killed_by(a)) return (hri_oom_reading){HRI_OOM_HOST, "kernel"};
  if (after_starts(a, " by the oom killer| by the oom-killer| by oom killer| by oom-killer") && hri_oom_is_told_kill(a))
    return (hri_oom_reading){HRI_OOM_HOST, "kernel"};
  return when(hri_oom_is_told_kill(a), HRI_OOM_HOST_LIKELY, "kill");
}

static hri_oom_reading read_killed_in_chinese(const hri_oom_around *a) {
  return when(!hri_oom_is_by_other_signal(a), HRI_OOM_HOST_LIKELY, "kill");
}

static hri_oom_reading read_srun(const hri_oom_around *a) {
  if (ends_task(a, ": out of memory")) return (hri_oom_reading){HRI_OOM_HOST, "slurm"};
  return when(ends_task(a, ": killed"), HRI_OOM_HOST_LIKELY, "kill");
}

/* RESOURCE_EXHAUSTED, of TensorFlow, XLA and others: also the status of quotas of other services. */
static hri_oom_reading read_exhausted_status(const hri_oom_around *a) {
  if (after_starts(a, ": process \"")) return nothing; /* a builder of images, whose words go on with the kernel's */
  if (!after_has(a, 200, "out of memory|oom when|allocat|attempting to reserve|exceeding available bytes"))
    return nothing;
  if (before_has(a, "iree")) return (hri_oom_reading){HRI_OOM_FOREIGN, "iree"};
  if (after_has(a, 300, "/cpu_allocator.cc")) return (hri_oom_reading){HRI_OOM_HOST, "paddle"};
  if (after_has(a, 60, "error on gpu") || after_has(a, 200, "paddle"))
    return (hri_oom_reading){HRI_OOM_FOREIGN, "paddle"};
  if (is_by_host_allocator(a)) return (hri_oom_reading){HRI_OOM_HOST, "tensorflow"};
  return (hri_oom_reading){HRI_OOM_FOREIGN, after_has(a, 200, "oom when") ? "tensorflow" : "jax"};
}

/* The same as TensorFlow's class of exceptions. */
static hri_oom_reading read_exhausted_class(const hri_oom_around *a) {
  if (after_starts(a, ": cannot allocate memory")) return (hri_oom_reading){HRI_OOM_HOST, "host"}; /* gRPC's code */
  hri_oom_reading r = read_exhausted_status(a);
  if (strcmp(r.source, "jax") == 0) r.source = "tensorflow";
  return r;
}

/* An exit code: 137, or a signal's number with a minus. */
static hri_oom_reading read_exit_code(const hri_oom_around *a) {
  for (size_t at = a->after; at < a->count && at - a->after < 12; at++) {
    const char c = a->text[at];
    if (c == ')' || (c == '=' && at + 1 < a->count && a->text[at + 1] == '='))
      return nothing; /* "getexitcode() == 137" */
    if (c == '-' || hri_is_digit(c)) {
      const bool minus = c == '-';
      const int32_t code = hri_oom_read_index(a->text, at + (minus ? 1 : 0), a->count);
      const bool signal = code == 9 && (minus || before_has(a, "bad termination")); /* mpirun prints it as a code */
      return when(signal || (!minus && code == 137), HRI_OOM_HOST_LIKELY, "kill");
    }
  }
  return nothing;
}

static const struct {
  const char *words;
  hri_oom_reading (*read)(const hri_oom_around *around);
} readers[] = {
    {"enforce fail at", read_enforce},
    {"memoryerror", read_memoryerror},
    {"cannot allocate memory", read_enomem},
    {"killed process ", read_killed_process},
    {"bad allocation", read_bad_allocation},
    {"error_out_of_device_memory", read_device_code},
    {"erroroutofdevicememory", read_vulkan},
    {"outofmemoryerror: allocation on device", read_async_class},
    {"signal 9", read_signal},
    {"memorystatus: killing", read_memorystatus},
    {"killing largest compressed process with pid ", read_compressed},
    {"insufficient memory ", read_errquit},
    {"not enough memory resources are available", read_resources},
    {"failed with -9", read_failed_with},
    {"heap exhausted", read_exhausted},
    {"killed", read_killed},
    {"\xe8\xa2\xabkill", read_killed_in_chinese},
    {"srun: error:", read_srun},
    {"resource_exhausted", read_exhausted_status},
    {"resource exhausted", read_exhausted_status},
    {"resourceexhausted", read_exhausted_class},
};

static hri_oom_reading read_other_head(const char *words, const hri_oom_around *a) {
  hri_oom_reading beside;
  if (is_told_beside(words, a, &beside)) return beside;
  for (size_t i = 0; i < HRI_COUNT(readers); i++)
    if (strcmp(words, readers[i].words) == 0) return readers[i].read(a);
  return strncmp(words, "oom", 3) == 0 ? read_kill_head(words, a) : read_exit_code(a);
}

/* Their bad_alloc is the device's. */
static hri_oom_reading read_bad_alloc(const hri_oom_around *a, hri_oom_reading plain) {
  if (!before_has(a, "thrust") && !after_has(a, 40, "out_of_memory: ") &&
      !after_has(a, 160, "cudaerrormemoryallocation") && !after_has(a, 20, "rmm failure at"))
    return plain;
  if (after_has(a, 260, "maximum pool size exceeded") || before_has(a, "maximum pool size exceeded"))
    return (hri_oom_reading){HRI_OOM_LIBRARY, "rmm"};
  return before_has(a, "rmm") || after_has(a, 160, "rmm") ? (hri_oom_reading){HRI_OOM_FOREIGN, "rmm"}
                                                          : (hri_oom_reading){HRI_OOM_LIBRARY, "thrust"};
}

/* Words of the driver and of libraries that TensorFlow's executor prints, also without its file's name. */
static bool is_executor(const hri_oom_around *a) {
  return before_has(a, "tensorflow|stream_executor|streamexecutor") ||
         before_ends(a, "bytes) from device:|bytes on host:") || after_starts(a, " in tensorflow/");
}

/* The exit code behind the head; `count` when none follows at once. */
static size_t find_code(const hri_oom_around *a) {
  for (size_t at = a->after; at < a->count && at - a->after < 12; at++)
    if (a->text[at] == '-' || hri_is_digit(a->text[at])) return at;
  return a->count;
}

/* Whether the signal's name tells of a process that got it: its number beside it, a verb of an end before it, or nothing but a
 * label. Else it is an operand, a setting, or what somebody means to send. */
static bool is_signal_received(const hri_oom_around *a) {
  static const char behind[] = ": 9|(-9|(9|/9| (9|) received| received| (kill|'ing |'d |'ed |ed |ing ";
  static const char numbers[] = "9 (|9: |9, |9:|9(|137 (|137(|137: |-9 (|9, signal.|killed (|killed ( |128 + | + ";
  static const char ends[] =
      "killed|terminated|exited|died|received|receives|got|gets|getting|crashed|failed|ended|aborted|"
      "interrupted|caused|causes|was sent|raised|dies|crashes|fails";
  static const char labels[] = ":|=|: \"|:\"|=\"|: '|signal \"|signal '|[|***|signal";
  const size_t from = hri_sentence_start(a->text, a->start, a->at);
  size_t end = a->at;
  if (hri_match_end(a->text, a->start, end, "signals.|signal.|syscall.|unix.|linux.")) /* of a module's */
    while (end > a->start && a->text[end - 1] != '<' && a->text[end - 1] != ' ' && a->text[end - 1] != '(') end--;
  if (after_starts(a, behind) || hri_match_end(a->text, a->start, a->at, numbers)) return true;
  if (before_ends(a, " or| and| or a|including| to| `") && !before_ends(a, "signal to"))
    return false; /* one of several; what is sent */
  if (hri_match_end(a->text, a->start, a->at, " (") && after_starts(a, ")") &&
      !before_ends(a, "kill (|stop (|signal ("))
    return true;
  if (end == a->start || hri_match_any(a->text, from, end, ends)) return true;
  if (hri_match_part(a->text, a->at > a->start + 24 ? a->at - 24 : a->start, a->at,
                     "stopsignal|stop_signal|-signal|default|killsignal|kill_signal"))
    return false; /* a setting */
  return before_ends(a, labels) &&
         !(after_starts(a, " ") && a->after + 1 < a->count && hri_is_letter(a->text[a->after + 1]));
}

bool hri_oom_is_only_named(const hri_oom_head *head, const hri_oom_around *a, const char *source) {
  static const char signals[] = "sigterm|sigint|sigchld|sigstop|sighup|sigsegv|sigurg";
  const char *words = head->words;
  const bool signal = strcmp(words, "sigkill") == 0;
  if (signal && (before_has(a, signals) || after_has(a, 40, signals))) return true; /* one of several */
  if (hri_oom_is_kill(source) && find_code(a) < a->count && is_explained(a, find_code(a) + 1)) return true;
  if (signal && !is_signal_received(a)) return true;
  return (signal || strstr(words, "error") || strcmp(words, "bad_alloc") == 0 || strcmp(words, "oomkilled") == 0) &&
         is_named(a);
}

/* Whether the head's words are there and report nothing. */
static bool reports_nothing(const hri_oom_head *head, const hri_oom_around *a, const char *source) {
  const char *words = head->words;
  if (strcmp(words, "tried to allocate") == 0) /* the host's; or no size follows */
    return before_has(a, "malloc failed (") || (!after_has(a, 24, "ib") && !after_has(a, 30, "b"));
  if (hri_oom_is_kill(source) && hri_match_any(a->text, a->at > a->start + 48 ? a->at - 48 : a->start, a->at,
                                               "should terminate|should exit|should fail|should return"))
    return true; /* what a test expects */
  if (hri_oom_is_kill(source) && (after_starts(a, "_handler") || is_intended_kill(a))) return true;
  if (strcmp(words, "sigkill") == 0 && (after_starts(a, "_") || (a->at > a->start && a->text[a->at - 1] == '_' &&
                                                                 a->at > 1 && a->text[a->at - 2] != '_')))
    return true;                                                                  /* a part of a name */
  if (strcmp(words, "sigkill") == 0 && after_starts(a, " when mem")) return true; /* earlyoom says when it will */
  if (strcmp(words, "sigkill") == 0 && /* one of a list of signals; what a program goes on to */
      (after_starts(a, ", sigterm|, sigint|, sigstop|, sighup|, sigsegv| and sigterm| or sigterm|/sigterm") ||
       before_ends(a, "resorting to|escalating to|escalate to|fall back to|falling back to")))
    return true;
  if (strcmp(words, "sigkill") == 0 && before_ends(a, "died with <signals.") && !before_has(a, "calledprocesserror") &&
      !before_ends(a, "]' died with <signals.|]\'\' died with <signals.")) /* YAML doubles the quotes */
    return true; /* what that exception says when it is printed without its name: it was caught */
  return strstr(words, "exhausted") && after_starts(a, ", \""); /* a status that a program makes */
}

/* A runtime's heap: where it says that threads, the system or the machine refused, it is the machine's memory. */
static hri_oom_reading read_heap(const hri_oom_head *head, const hri_oom_around *a) {
  static const char native[] = "native thread|unable to create|map failed|out of swap";
  if (strcmp(head->source, "php") == 0 && !after_has(a, 60, "exhausted"))
    return (hri_oom_reading){HRI_OOM_NOTHING, HRI_OOM_TALK};
  if (strcmp(head->words, "java heap space") == 0 && !before_ends(a, ":") && !before_has(a, "error|exception|fail"))
    return (hri_oom_reading){HRI_OOM_NOTHING, HRI_OOM_TALK}; /* the space itself */
  return (hri_oom_reading){after_has(a, 60, native) ? HRI_OOM_HOST : HRI_OOM_HEAP, head->source};
}

/* Whether the shared memory that ran out is a block's on the chip, not what processes share. */
static bool is_on_chip(const hri_oom_around *a) {
  static const char words[] = "per block|per-block|thread block|threadblock|per sm|smem|on the gpu";
  return before_has(a, words) || after_has(a, 80, words);
}

hri_oom_reading hri_oom_read_around(const hri_oom_head *head, const hri_oom_around *a) {
  hri_oom_reading r = {head->kind, head->source};
  if (strcmp(head->words, "tried to allocate") == 0 && !before_has(a, "memory") &&
      after_has(a, 32, "b on cuda|b on device|b on the gpu"))
    r = (hri_oom_reading){HRI_OOM_REPORT, "device"}; /* how people say it */
  if (strcmp(head->words, "out of memory") == 0 || strcmp(head->words, "outof memory") == 0) r = read_memory_head(a);
  else if (strcmp(head->source, "enomem") == 0) {
    if (is_set_off(a) || before_ends(a, "]|\xef\xbc\x9a")) r = (hri_oom_reading){HRI_OOM_HOST, "host"};
  } else if (r.kind == HRI_OOM_NOTHING) r = read_other_head(head->words, a);
  else if (r.kind == HRI_OOM_HEAP) r = read_heap(head, a);
  if ((r.kind == HRI_OOM_DRIVER || r.kind == HRI_OOM_LIBRARY) && is_executor(a))
    r = (hri_oom_reading){before_ends(a, "bytes on host:") ? HRI_OOM_HOST : HRI_OOM_FOREIGN, "tensorflow"};
  if (strcmp(r.source, "shared-memory") == 0 && strstr(head->words, "shared memory") && is_on_chip(a))
    r = (hri_oom_reading){HRI_OOM_NOTHING, ""}; /* report.c tells whether it is reported */
  if (strcmp(head->words, "out of shared memory") == 0 && after_has(a, 60, "need to increase max_"))
    r = (hri_oom_reading){HRI_OOM_LIMIT, "postgresql-locks"};
  if (strcmp(r.source, "c++") == 0) r = read_bad_alloc(a, r);
  if (strcmp(head->words, "oom when allocating") == 0 && is_by_host_allocator(a)) r.kind = HRI_OOM_HOST;
  if (strcmp(head->words, "maximum pool size exceeded") == 0 && before_has(a, "[rmm]"))
    r.kind = HRI_OOM_FOREIGN; /* its log */
  if (strcmp(head->words, "cudaerrormemoryallocation") == 0) r = read_allocation_code(a, r);
  if (strcmp(head->words, "sigkill") == 0 && before_has(a, "root cause")) r.kind = HRI_OOM_ENDED;
  if (r.kind != HRI_OOM_NOTHING && reports_nothing(head, a, r.source))
    r = (hri_oom_reading){HRI_OOM_NOTHING, HRI_OOM_TALK};
  return r;
}
