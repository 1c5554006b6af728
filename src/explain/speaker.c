/* Which memory a report is about, and whose message it is, by the words of its sentence and the lines around: the
 * machine's memory, a device's, a chip's, a limit that a program set itself; then the name that stands there
 * (speaker_names.c).
 *
 * The neighbours may rely on this: each report comes to one kind and one source, and what memory the words name goes
 * before who is named - a framework's own line about the machine's memory is the machine's. `anybodys` tells whether
 * the line is the speaker's own. */
#include "explain/match.h"
#include "explain/report_parts.h"

static const char host_words[] =
    "host|system memory|ram|main memory|physical memory|virtual memory|swap|paging|page file|pagefile|host memory|"
    "cpu memory|address space|overcommit|memory cgroup|cgroup|job memory|step memory|out_of_host_memory|outofhostmemory|"
    "cpu buffer|cpu_repack buffer|cpu_mapped buffer|host allocation of|os memory|cpu can't allocate";
/* The kernel's ENOMEM as a number. */
static const char enomem_words[] =
    "errno 12|errno: 12|error 12|error code 12|error code: 12|error code=12|error code is 12|cannot allocate memory";
/* The machine's memory as codes of errors name it, behind whoever's prefix. */
static const char host_names[] = "out_of_host_memory|outofhostmemory";
/* Lines that one speaker prints when the machine refuses: Slurm, YARN, Spark, Windows, R, the run times of Go and Rust,
 * V8, Python. */
static const char host_lines[] =
    "slurmstepd|yarn|vector of size|runtime: out of memory|runtime: cannot allocate memory|memory allocation of|"
    "call_and_retry_last|paging file is too small|exceeding memory limits|outofmemoryerror()|in memory context|"
    "failed on request of size|of memory (of type|virtualalloc of|system out of memory!|total sbrk() is|forrtl|"
    "out of process memory|process out of memory|modules/core/src/alloc.cpp|ggml_aligned_malloc|ggml_backend_cpu_buffer_type_alloc_buffer";
static const char soft_host[] =
    "pinned|page-locked|shm|/dev/shm|posix_memalign|malloc|realloc|calloc|mmap|shared memory segment|enomem|luajit|lua|"
    "heap|fork|bad_alloc|std::bad_alloc|numpy|jellyfish|pandas|memalign|openblas|duckdb|nomemoryerror|system.outofmemoryexception|"
    "insufficientmemoryexception|llvm error|exception out_of_memory|cpu|container|pod";
static const char device_words[] =
    "gpu|cuda|hip|device|vram|video memory|npu|xpu|hbm|mps|graphics memory|rocm|musa|cann|aclrtmalloc|tpu|hpu|"
    "cumemcreate|cumemalloc|cudamalloc|hipmalloc|gpus|gpu0|gpu1|cuda0|sycl|level zero|kv cache|cudamallocasync|"
    "cudaerror|cumemmap|cumemaddressreserve|rtmalloc|devicemem|tensor";

/* Of shared memory on the chip, not of what processes share. */
static const char chip_words[] = "per block|kernel|launch|smem|thread block|threadblock|sm|carveout|on the gpu";

static bool speaks_of_device(const char *text, size_t from, size_t to) {
  static const char parts[] = "cudamalloc|cumem|cuda_|hip_|hipmalloc|gpu|devicemem|outofdevicememory|curesult";
  return hri_match_any(text, from, to, device_words) || hri_match_part(text, from, to, parts);
}

/* Some names are those of interfaces, which programs of many kinds use. */
static bool is_interface(const char *name) {
  return hri_is_one_of(name, "vulkan|opencl|metal|directx|numba|managedcuda|opengl|webgl");
}

void hri_oom_set_framework(hri_oom_message *m, const char *name) {
  m->kind = is_interface(name) ? HRI_OOM_FOREIGN_LIKELY : HRI_OOM_FOREIGN;
  m->failure.source = name;
}

/* Who speaks of Metal, by the lines before: MLX, ggml; else an interface that many use. */
static const char *speaker_of_metal(const hri_oom_place *p) {
  enum { FAR = 800 };
  size_t from = p->before_count > FAR ? p->before_count - FAR : 0;
  const size_t close = p->before_count > 200 ? p->before_count - 200 : 0;
  if (hri_match_whole(p->before, close, p->before_count, "mlx") < p->before_count ||
      hri_oom_is_in_code(p->before, from, p->before_count, "mlx"))
    return "mlx";
  return hri_oom_word(p->before, from, p->before_count, "ggml_") < p->before_count ? "ggml" : "metal";
}

/* PyTorch's own words when a command buffer of its MPS backend fails. */
static bool is_mps(const hri_oom_place *p) {
  size_t from = p->before_count > 300 ? p->before_count - 300 : 0;
  return hri_oom_word(p->before, from, p->before_count, "metal performance shaders operations") < p->before_count;
}

/* Whether a function of the machine's memory is named there, by whatever prefix: "zmalloc", "failed to reallocate".
 * Devices reallocate nothing, and their functions say whose they are. */
static bool names_host_function(const char *text, size_t from, size_t to) {
  static const char endings[] = "malloc|calloc|realloc|reallocate";
  static const char devices[] = "cu|hip|rt|cn|acl|xpu|mu|dev|hal|gpu|metal|npu";
  for (size_t at = hri_match_first(text, from, to, endings); at < to; at = hri_match_first(text, at + 1, to, endings)) {
    size_t start = at, end = hri_match_next(text, at, to, endings);
    while (start > from && (hri_is_name(text[start - 1]) || text[start - 1] == ':')) start--;
    if ((end == to || !hri_is_name(text[end])) && !hri_match_part(text, start, at, devices)) return true;
  }
  return false;
}

/* The lines right behind the message that say who speaks: a database's detail, the stack of a run time. What stands behind the same
 * words once more is theirs. */
static bool is_continued_by_host(const hri_oom_place *p) {
  static const char lines[] =
      "failed on request of size|in memory context|runtime stack:|of memory (of type|memorylabel:|goroutine ";
  size_t end = p->line_end + 160 < p->count ? p->line_end + 160 : p->count;
  end = hri_oom_word(p->text, p->line_end, end, "out of memory");
  return hri_match_part(p->text, p->line_end, end, lines);
}

/* Whether a line beside the message says that a function of the machine's memory failed: "memalign returned 0". */
static bool is_beside_host_call(const hri_oom_place *p) {
  static const char *const functions[] = {"malloc", "calloc", "realloc", "memalign", "posix_memalign", "aligned_alloc",
                                          "mmap",   "sbrk",   "brk",     "shmget",   "virtualalloc",   "fork"};
  static const char outcomes[] = "returned 0|returned null|returned -1|returned nullptr|returns null|fail|= null|errno";
  const size_t near = 120, far = p->before_count, from = far > near ? far - near : 0;
  const size_t to = p->line_end + near < p->count ? p->line_end + near : p->count;
  for (size_t i = 0; i < HRI_COUNT(functions); i++) {
    size_t at = hri_match_whole(p->before, from, far, functions[i]);
    if (at < far && hri_match_part(p->before, at, at + 48 < far ? at + 48 : far, outcomes)) return true;
    at = hri_match_whole(p->text, p->line_end, to, functions[i]);
    if (at < to && hri_match_part(p->text, at, at + 48 < to ? at + 48 : to, outcomes)) return true;
  }
  return false;
}

/* "sort: memory exhausted": as programs of the system say it, their name before a colon and nothing else. */
static bool is_exhausted(const hri_oom_place *p, size_t first, size_t last) {
  size_t rest = last;
  while (rest < p->line_end && !hri_is_name(p->text[rest])) rest++;
  return hri_match_at(p->text, first, last, "memory exhausted") && rest == p->line_end &&
         hri_match_end(p->text, p->line, first, ": ");
}

/* The name of a program before the phrase, as code qualifies it: "simtk.openmm.openmmexception: ...", "amrex::abort::".
 * What the libraries of languages are called, and PyTorch, is no program's name. */
static bool is_qualified(const char *text, size_t from, size_t to) {
  static const char common[] = "std|torch|c10|at|java|javax|system|numpy|builtins|thrust|cuda|python|core|kotlin|scala|"
                               "runtime|__main__|errors|sys|concurrent|multiprocessing|microsoft|boost|caffe2";
  size_t at = from, end;
  if (to > from + 2 && text[to - 1] == ':' && text[to - 2] == ':') /* its names end at the phrase */
    for (at = to; at > from && text[at - 1] != ' ';) at--;
  while (at < to && !hri_is_letter(text[at])) at++;
  for (end = at; end < to && hri_is_name(text[end]);) end++;
  if (end == at || end + 2 >= to || !(text[end] == '.' || (text[end] == ':' && text[end + 1] == ':'))) return false;
  if (hri_match_next(text, at, end, common) == end) return false;
  if (text[end] == ':') return hri_is_letter(text[end + 2]);
  for (; end < to && (hri_is_name(text[end]) || text[end] == '.'); end++) continue;
  return end < to && text[end] == ':' && hri_match_end(text, at, end, "error|exception");
}

/* "memory limit exceeded (16gi)": the unit is Kubernetes'. */
static bool is_pods_limit(const char *text, size_t from, size_t to) {
  size_t at = from;
  while (at < to && strchr(" (", text[at])) at++;
  size_t digits = at;
  while (at < to && hri_is_digit(text[at])) at++;
  return at > digits && at + 1 < to && strchr("kmgt", text[at]) && text[at + 1] == 'i';
}

/* A limit that the program itself sets: of a query, a server, a worker; not a batch system's, a container's. */
static bool is_own_limit(const hri_oom_place *p, size_t from, size_t to) {
  static const char outer[] =
      "job|step|container|cgroup|pod|slurmstepd|yarn|node|task|vmem|rss|mem|slurm|physical|hbm|vmem|tpu|shared|vram|gpu|"
      "device";
  size_t end = hri_sentence_end(p->text, to, p->line_end);
  if (is_pods_limit(p->text, to, end)) return false;
  if (hri_oom_word(p->text, to, end, " used)") < end && memchr(p->text + to, '/', end - to))
    return true; /* "(9.9 gib/10 gib used)" */
  return hri_match_part(
             p->text, from, end,
             "memory limit|memory budget|memory quota|memory usage limit|memory allocation limit|max. memory") &&
         hri_match_part(p->text, from, end, "exceed|reached|quota!") &&
         (hri_match_whole(p->text, from, end, "query") < end || !hri_match_any(p->text, from, to, outer));
}

/* ---- what is said, who is named, what that comes to ---- */

/* What the words around the phrase say of memory. */
typedef struct said {
  size_t first, last;   /* the phrase */
  size_t from, to;      /* its line, as far as names are looked for in it */
  size_t sentence, end; /* its sentence */
  bool host;            /* words of the machine's memory, */
  bool host_line;       /* or a line that one speaker prints when the machine refuses */
  bool soft;            /* words that mostly go with it */
  bool device;
  bool function; /* a function of the machine's memory, and no device's word */
} said;

static said said_of(const hri_oom_place *p, size_t first, size_t last) {
  said s = {.first = first, .last = last};
  s.from = first > p->line + 200 ? first - 200 : p->line;
  s.to = last + 200 < p->line_end ? last + 200 : p->line_end;
  s.sentence = hri_sentence_start(p->text, s.from, first);
  s.end = hri_sentence_end(p->text, last, s.to);
  s.host_line = hri_match_any(p->text, s.sentence, s.end, host_lines) || is_continued_by_host(p) ||
                is_pods_limit(p->text, last, s.end);
  s.host = s.host_line || hri_match_any(p->text, s.sentence, s.end, host_words) ||
           hri_match_any(p->text, s.sentence, s.to, enomem_words) || hri_match_part(p->text, first, last, host_names);
  s.soft = hri_match_any(p->text, s.sentence, s.end, soft_host);
  s.device = speaks_of_device(p->text, s.sentence, s.end);
  s.function = !s.device && names_host_function(p->text, s.sentence, s.end + 80 < s.to ? s.end + 80 : s.to);
  return s;
}

/* Who is named; NULL: nobody of that kind. */
typedef struct named {
  const char *who, *library;
  bool anybodys; /* as in hri_oom_message */
} named;

/* The library of an exception whose name stands in the line before, behind which "what():" goes on. */
static const char *thrown_library(const hri_oom_place *p) {
  const size_t far = p->before_count, thrown = hri_oom_word(p->before, far > 240 ? far - 240 : 0, far, "instance of '");
  return thrown < far ? hri_oom_library_in(p->before, thrown, far) : NULL;
}

/* The framework whose package is in the paths of a traceback before. */
static const char *framework_of_paths(const hri_oom_place *p) {
  const size_t far = p->before_count, back = hri_oom_word(p->before, far > 400 ? far - 400 : 0, far, "file \"");
  const char *who = NULL;
  for (size_t at = hri_oom_word(p->before, back, far, "site-packages/"); at < far && !who;
       at = hri_oom_word(p->before, at + 1, far, "site-packages/"))
    who = hri_oom_framework_in(p->before, at + 14, at + 40 < far ? at + 40 : far);
  return who;
}

/* The framework that the lines around name, where the report's own names nobody. */
static void find_around(const hri_oom_place *p, const said *s, named *n) {
  const size_t wide = p->line_end + 100 < p->count ? p->line_end + 100 : p->count;
  const size_t far = p->before_count, back = far > 240 ? far - 240 : 0;
  n->who = hri_oom_framework_near(p->text, s->to, wide);
  if (n->who) { /* wrapped */
    const size_t end = hri_sentence_end(p->text, s->last, wide);
    n->anybodys = !hri_oom_is_own_line(p->text, s->from, end, s->first, s->last, n->who);
    return;
  }
  n->who = hri_oom_framework_near(p->before, back, far);
  if (n->who)
    n->anybodys =
        !hri_oom_is_own_place(p->before, back, far, n->who) && !hri_oom_has_own_words(p->before, back, far, n->who);
}

/* Whether a program tells where its own check of a call failed: that says no more of whose it is. */
static bool is_checked_call(const hri_oom_place *p) {
  return hri_match_part(p->text, p->line, p->line_end, "cuda error|hip error") &&
         hri_oom_has_place(p->text, p->line, p->line_end);
}

static named named_by(const hri_oom_place *p, const said *s) {
  named n = {.who = hri_oom_framework_in(p->text, s->from, s->to),
             .library = hri_oom_library_in(p->text, s->from, s->to)};
  if (!n.who && !n.library && hri_match_at(p->text, p->line, s->to, "what():")) n.library = thrown_library(p);
  n.anybodys = !n.who || !hri_oom_is_own_line(p->text, s->from, s->to, s->first, s->last, n.who);
  if (!n.who && !n.library) find_around(p, s, &n);
  if (n.who && strcmp(n.who, "metal") == 0) n.who = speaker_of_metal(p);
  if (!n.who) n.who = framework_of_paths(p);
  if (!n.who && !n.library && !s->host && !s->soft && s->device && is_qualified(p->text, p->line, s->first) &&
      !is_checked_call(p)) {
    n.who = "another program";
    n.anybodys = false;
  }
  return n;
}

static void set(hri_oom_message *m, hri_oom_kind kind, const char *source) {
  m->kind = kind;
  m->failure.source = source;
}

void hri_oom_name_speaker(const hri_oom_place *p, size_t first, size_t last, hri_oom_message *m) {
  const said s = said_of(p, first, last);
  const named n = named_by(p, &s);
  m->anybodys = n.anybodys;
  if (!s.device && is_own_limit(p, s.sentence, last)) {
    set(m, HRI_OOM_LIMIT, n.who ? n.who : "server");
    m->anybodys = false;
  } else if (hri_oom_word(p->text, s.sentence, s.end, "shared memory") < s.end &&
             hri_match_any(p->text, s.sentence, s.end, chip_words)) {
    set(m, HRI_OOM_CHIP, "kernel of the device");
  } else if (s.host && !s.device && hri_match_whole(p->text, s.sentence, s.end, "pinned") == s.end) {
    set(m, HRI_OOM_HOST, "host"); /* a framework's own line, of the host's memory, is no less its own */
    m->anybodys = (n.anybodys || (n.who && is_interface(n.who))) && !s.host_line;
  } else if (s.function ||
             hri_match_part(p->text, s.sentence, s.end, "cuda_host")) { /* ggml's name for pinned memory */
    set(m, HRI_OOM_HOST_LIKELY, "host");
  } else if (n.who && strcmp(n.who, "metal") == 0 && is_mps(p)) {
    set(m, HRI_OOM_BARE, "pytorch-mps");
  } else if (n.who) {
    hri_oom_set_framework(m, n.who);
    if (hri_match_part(p->text, first, last, "out_of_resources")) m->kind = HRI_OOM_FOREIGN_LIKELY; /* memory is one */
  } else if (n.library) {
    set(m, HRI_OOM_LIBRARY, n.library);
  } else if ((s.soft && !s.device) || (s.host && s.soft) || (!s.device && is_beside_host_call(p)) ||
             (!s.device && is_exhausted(p, first, last))) {
    set(m, HRI_OOM_HOST_LIKELY, "host");
  } else {
    set(m, HRI_OOM_REPORT, s.device ? "device" : "unknown speaker");
  }
}
