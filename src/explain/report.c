/* Failures reported by speakers that nobody has met. What makes a report is its structure:
 *
 *   a phrase   a verb of allocation that failed ("could not reserve 3 gib", "cudamalloc(...) failed", "error allocating"),
 *              memory that is lacking ("out of gpu memory", "not enough memory", "memory exhausted"), or the name of such
 *              an error ("cufft_alloc_failed", "outofmemoryerror")
 *   a shape    of a line that reports: an error's class or level before it, a place in a source file, a code behind it, a
 *              traceback above it, or nothing but the phrase on the line
 *   no talk    nothing in the same sentence that speaks of failures in general: conditions, advice, questions, source
 *              code, entries of a change log
 *
 * The words around the phrase then say whose it is (a framework, a library) and which resource ran out. */
#include "explain/report.h"

#include "explain/figures.h"
#include "explain/match.h"
#include "explain/voice.h"
#include "explain/wording.h"

/* ---- the phrase ---- */

typedef struct phrase {
  size_t from, to;
  bool is_code; /* the name of an error */
} phrase;

/* The last of some words within `reach` bytes before text[at], in the same sentence and with at most `most` words
 * between; `at` when there is none. */
static size_t find_back(const char *text, size_t line, size_t at, size_t reach, const char *const *words, size_t count,
                        unsigned most) {
  size_t start = at > line + reach ? at - reach : line, best = at;
  for (size_t i = start; i < at; i++)
    if (hri_ends_sentence(text, i, at)) start = i + 1;
  for (size_t w = 0; w < count; w++)
    for (size_t i = hri_match_whole(text, start, at, words[w]); i < at; i = hri_match_whole(text, i + 1, at, words[w]))
      if (best == at || i > best) best = i;
  if (best < at) {
    unsigned blanks = 0;
    for (size_t i = best; i < at; i++) blanks += text[i] == ' ';
    if (blanks > most + 3) return at; /* the words themselves have up to three */
  }
  return best;
}

static const char *const negations[] = {"failed to",     "fails to",        "fail to",      "failure to",   "unable to",
                                        "not able to",   "cannot",          "can not",      "can't",        "could not",
                                        "couldn't",      "refused to",      "cannot be",    "failed while", "failed in",
                                        "impossible to", "not possible to", "insufficient", "unsuccessful"};
static const char *const erring[] = {"error", "failed", "failure", "fatal"};
static const char *const failing[] = {"failed",       "failure",      "fails",         "fail",
                                      "refused",      "unsuccessful", "returned null", "returned nullptr",
                                      "not possible", "failing"};

static const char *const beyond[] = {"greater than", "larger than", "exceeds", "exceed ", "more than", "bigger than"};

/* What can be allocated that is memory; what comes first behind the verb and is none. */
static const char *const objects[] = {"memory",   "memory.", "buffer",  "buffers", "bytes", "byte",   "mb",
                                      "gb",       "kb",      "mib",     "gib",     "kib",   "tb",     "tib",
                                      "tensor",   "tensors", "array",   "vector",  "vram",  "ram",    "workspace",
                                      "cache",    "heap",    "storage", "page",    "pages", "region", "segment",
                                      "segments", "cuda",    "gpu",     "device",  "hip",   "matrix", "chunk",
                                      "tokens",   "scratch", "blocks",  "slab",    "arena", "pinned", "address space",
                                      "weights"};
static const char *const others[] = {" port",   " ip ",      " ip-",    " tty",    " pty",    " pseudo", " job",
                                     " node",   " resource", " gpus",   " slot",   " task",   " handle", " socket",
                                     " thread", " address ", " cpus",   " cores",  " a port", " inode",  " an id",
                                     " a pty",  " pod",      " subnet", " volume", " a gpu",  " quota"};
/* Functions whose very name is a request for memory. */
static const char *const functions[] = {"memoryalloc", "malloc",      "calloc",   "realloc",
                                        "memalign",    "cumemcreate", "memalloc", "allocatememory",
                                        "hostalloc",   "bad_alloc",   "mem_alloc"};

static bool speaks_of_memory(const char *text, size_t from, size_t verb, size_t verb_end, size_t to) {
  size_t end = verb_end + 120 < to ? verb_end + 120 : to;
  for (size_t i = 0; i < HRI_COUNT(others); i++)
    if (hri_match_at(text, verb_end, end, others[i])) return false;
  if (hri_match_part(text, verb, verb_end, functions, HRI_COUNT(functions))) return true;
  if (hri_match_at(text, verb_end, end, " of size ")) {
    size_t at = verb_end + 9;
    while (at < end && text[at] == ':') at++;
    if (at < end && hri_is_digit(text[at])) return true;
  }
  end = hri_sentence_end(text, verb_end, end);
  for (size_t i = verb_end; i + 3 < end; i++) /* "163840 KB", "12.5GB" */
    if (hri_is_digit(text[i]) && (text[i + 1] == 'm' || text[i + 1] == 'g' || text[i + 1] == 'k') && text[i + 2] == 'b')
      return true;
  return hri_match_any(text, from, end, objects, HRI_COUNT(objects));
}

/* A name whose end says that memory was lacking: "cl_mem_object_allocation_failure", "outofmemoryexception". */
static bool is_error_name(const char *text, size_t from, size_t to) {
  static const char *const ends[] = {"out_of_memory",
                                     "outofmemory",
                                     "outofmemoryerror",
                                     "outofmemoryexception",
                                     "out_of_memory_error",
                                     "alloc_failed",
                                     "allocation_failed",
                                     "allocation_failure",
                                     "allocationfailed",
                                     "allocationfailure",
                                     "out_of_device_memory",
                                     "out_of_host_memory",
                                     "outofdevicememory",
                                     "outofhostmemory",
                                     "out_of_resources",
                                     "memory_allocation",
                                     "memoryallocation",
                                     "memory_error",
                                     "enomem",
                                     "insufficient_memory",
                                     "no_memory",
                                     "not_enough_memory",
                                     "memoryexhausted",
                                     "malloc_fail",
                                     "malloc_failed",
                                     "alloc_fail",
                                     "outofmemoryerror'>"};
  for (size_t i = 0; i < HRI_COUNT(ends); i++) {
    size_t length = strlen(ends[i]);
    if (to - from >= length && memcmp(text + to - length, ends[i], length) == 0) return true;
  }
  return false;
}

/* What may stand between "out of" and "memory", or before "allocation failed": whose or which memory it is. */
static const char *const modifiers[] =
    {"gpu",       "device",  "device-",   "allocatable", "host",        "cuda",      "hip",       "system",
     "video",     "shared",  "physical",  "virtual",     "free",        "available", "more",      "enough",
     "cpu",       "pinned",  "heap",      "the",         "local",       "global",    "kv",        "cache",
     "graphics",  "main",    "dedicated", "contiguous",  "on-chip",     "unified",   "and",       "or",
     "of",        "ram",     "node",      "process",     "job",         "step",      "its",       "hbm",
     "npu",       "vulkan",  "metal",     "dram",        "all",         "memory",    "amount",    "requested",
     "remaining", "java",    "native",    "swap",        "workspace",   "tensor",    "temporary", "server",
     "gpu's",     "vram",    "allocated", "container",   "per-process", "opencl",    "sycl",      "xpu",
     "mps",       "xla",     "large",     "huge",        "a",           "buffer",    "runtime",   "usable",
     "worker",    "address", "space",     "maximum",     "max",         "limit",     "backend",   "direct",
     "os",        "stack",   "array",     "per-node",    "query",       "user",      "total"};

static bool is_modifier(const char *text, size_t from, size_t to) {
  while (from < to && strchr("(\"'[", text[from])) from++;
  while (to > from && strchr(")\"',]", text[to - 1])) to--;
  for (size_t i = 0; i < HRI_COUNT(modifiers); i++)
    if (strlen(modifiers[i]) == to - from && memcmp(text + from, modifiers[i], to - from) == 0) return true;
  for (size_t i = from; i < to; i++)
    if (!hri_is_digit(text[i]) && text[i] != '%') return from == to;
  return true; /* "gpu 0 memory" */
}

/* Whether all words in text[from, to) are modifiers. */
static bool are_modifiers(const char *text, size_t from, size_t to) {
  while (from < to) {
    size_t end = from;
    while (end < to && text[end] != ' ') end++;
    if (!is_modifier(text, from, end)) return false;
    from = end + 1;
  }
  return true;
}

/* Back over the modifiers that stand right before text[from]. */
static size_t with_modifiers(const char *text, size_t line, size_t from) {
  while (from > line + 1 && text[from - 1] == ' ') {
    size_t start = from - 1;
    while (start > line && text[start - 1] != ' ') start--;
    if (start == from - 1 || !is_modifier(text, start, from - 1)) break;
    from = start;
  }
  return from;
}

/* A verb of allocation at text[from, to) that failed, by the words before or behind it. */
static bool find_verb(const char *text, size_t line, size_t from, size_t to, size_t count, phrase *p) {
  size_t end = hri_sentence_end(text, to, to + 100 < count ? to + 100 : count), before, near;
  bool done = hri_match_at(text, to - (to - from < 2 ? 0 : 2), to, "ed"), agent = hri_match_at(text, to - 2, to, "or");
  before = find_back(text, line, from, 56, negations, HRI_COUNT(negations), 5);
  if (before < from && (!done || hri_oom_word(text, before, from, " be ") < from)) {
    *p = (phrase){before, to, false};
    if (done) /* "3 gib of memory could not be allocated": what it was stands before */
      return speaks_of_memory(text, before > line + 60 ? before - 60 : line, from, to, count);
    return !agent && speaks_of_memory(text, before, from, to, count);
  }
  near = find_back(text, line, from, 24, erring, HRI_COUNT(erring), 2);
  if (near < from && hri_oom_word(text, near, from, ":") == from && !done && !agent &&
      (hri_match_at(text, to - 3, to, "ing") || hri_oom_word(text, near, from, " in ") < from ||
       hri_oom_word(text, near, from, " of ") < from)) { /* "error allocating 3 gb", "failure in cudamalloc" */
    *p = (phrase){near, to, false};
    return speaks_of_memory(text, near, from, to, count);
  }
  if (agent || done) return false;
  for (size_t i = 0; i < HRI_COUNT(beyond); i++) { /* "attempting to allocate 3 gb which is greater than the maximum" */
    static const char *const bounds[] = {"maximum", "max",      "limit",     "available",
                                         "total",   "capacity", "remaining", "free"};
    size_t at = hri_oom_word(text, to, end, beyond[i]), near_end = at + 60 < count ? at + 60 : count;
    if (at == end || !hri_match_any(text, at, near_end, bounds, HRI_COUNT(bounds))) continue;
    *p = (phrase){with_modifiers(text, line, from), at + strlen(beyond[i]), false};
    return speaks_of_memory(text, from, from, to, count);
  }
  for (size_t i = 0; i < HRI_COUNT(failing); i++) {
    size_t at = hri_match_whole(text, to, end, failing[i]);
    if (at == end) continue;
    *p = (phrase){with_modifiers(text, line, from), at + strlen(failing[i]), false};
    if (at - to <= 8 && hri_match_end(text, line, from, "memory ")) return true; /* "memory allocation still failed" */
    return speaks_of_memory(text, at - to <= 4 ? p->from : from, from, to, count);
  }
  if (hri_match_at(text, to, count, " error") ||
      hri_match_at(text, to, count, ": error")) { /* "memory allocation error" */
    *p = (phrase){with_modifiers(text, line, from), to + 6, false};
    return speaks_of_memory(text, p->from, from, to, count);
  }
  return false;
}

/* Memory, at text[from, to), that is lacking. */
static bool find_lack(const char *text, size_t line, size_t from, size_t to, size_t count, phrase *p) {
  static const char *const before[] =
      {"out of",  "out-of",    "not enough",         "insufficient",    "no",
       "lack of", "exhausted", "too little",         "too much",        "exceeded",
       "exceeds", "exceeding", "not provide enough", "not have enough", "doesn't have enough"};
  static const char *const behind[] = {" exhausted",         " is exhausted",  " limit exceeded",  " exceeded",
                                       " is full",           " overflow",      " is insufficient", " insufficient",
                                       " isn't enough",      " is not enough", " not enough",      " not sufficient",
                                       " is not sufficient", " limit reached", " was exhausted",   " ran out",
                                       " has run out",       " depleted",      " space exhausted", " isn't sufficient"};
  static const char *const doing[] = {" while allocating", " when allocating", " trying to allocate",
                                      " while trying to allocate"};
  static const char *const after_no[] = {" available", " left", " for", " to ", " on ", " remaining", " could", " in "};
  bool shared = from > line + 7 && hri_match_at(text, from - 7, from, "shared ");
  if (hri_match_at(text, to, count, " (oom) killer") || hri_match_at(text, to, count, " killer")) return false;
  for (size_t i = 0; i < HRI_COUNT(before); i++) {
    size_t at = find_back(text, line, from, 48, &before[i], 1, 5), between = at + strlen(before[i]) + 1;
    bool limit = hri_match_at(text, to, count, " limit") || hri_match_at(text, to, count, " budget") ||
                 hri_match_at(text, to, count, " quota");
    if (at == from || between > from || !are_modifiers(text, between, from)) continue;
    *p = (phrase){at, to, false};
    if (strncmp(before[i], "exceed", 6) == 0) return limit; /* "exceeded job memory limit" */
    if (strcmp(before[i], "too much") == 0) return shared;
    for (size_t k = 0; k < HRI_COUNT(doing); k++) /* "out of memory while allocating": part of the words */
      if (hri_match_at(text, to, count, doing[k])) p->to = to + strlen(doing[k]);
    if (strcmp(before[i], "no") != 0) return true;
    if (to == count || strchr(".,:)(;!", text[to])) return true;
    for (size_t k = 0; k < HRI_COUNT(after_no); k++)
      if (hri_match_at(text, to, count, after_no[k])) return true;
    return false;
  }
  if (hri_match_at(text, to, count, " limit (")) { /* "memory limit (total) exceeded" */
    size_t close = hri_oom_word(text, to, to + 48 < count ? to + 48 : count, ") exceeded");
    *p = (phrase){with_modifiers(text, line, from), close + 10, false};
    if (close < (to + 48 < count ? to + 48 : count)) return true;
  }
  *p = (phrase){with_modifiers(text, line, from), to, false};
  for (size_t i = 0; i < HRI_COUNT(behind); i++)
    if (hri_match_at(text, to, count, behind[i])) {
      p->to += strlen(behind[i]);
      return true;
    }
  return shared && hri_oom_word(text, to, hri_sentence_end(text, to, to + 80 < count ? to + 80 : count), "exceed") <
                       hri_sentence_end(text, to, to + 80 < count ? to + 80 : count);
}

/* "oom" as a word: of somebody who met it, not a counter or the name of a setting. */
static bool find_oom(const char *text, size_t line, size_t from, size_t to, size_t count, phrase *p) {
  static const char *const behind[] = {":",       " error",  " when",      " while", "!",    " killed",
                                       " during", " on gpu", " on device", " in ",   " at ", " trying"};
  static const char *const before[] = {"due to", "by",   "hit",  "got",    "because of",  "reason:",
                                       "error:", "gpu",  "cuda", "host",   "encountered", "status:",
                                       "error",  "with", "into", "getting"};
  bool found = to == count || text[to] == '.' || text[to] == ')' || text[to] == ']';
  for (size_t i = 0; i < HRI_COUNT(behind) && !found; i++) found = hri_match_at(text, to, count, behind[i]);
  found = found || find_back(text, line, from, 16, before, HRI_COUNT(before), 0) < from;
  *p = (phrase){from, to, false};
  if (hri_match_at(text, to, count, ") killer") || hri_match_at(text, to, count, ": 0") ||
      hri_match_at(text, to, count, "s:") || hri_match_at(text, to, count, "="))
    return false;
  return found;
}

/* The phrase to which the word at text[at] belongs. */
static bool find_phrase(const char *text, size_t line, size_t at, size_t count, phrase *p) {
  size_t from = at + (text[at] == ' '), to = from;
  while (from > line && hri_is_name(text[from - 1])) from--;
  while (to < count && hri_is_name(text[to])) to++;
  *p = (phrase){from, to, true};
  if (from > line && text[from - 1] == '+') return false; /* an option of a virtual machine's */
  if (is_error_name(text, from, to)) {                    /* not an enumerator */
    bool set =
        hri_match_at(text, to, count, " = ") && to + 3 < count && (hri_is_digit(text[to + 3]) || text[to + 3] == '-');
    return !set && (to == count || text[to] != '=');
  }
  if (hri_match_at(text, from, to, "oomed") && to - from == 5) { /* "my run oomed after 300 steps" */
    p->is_code = false;
    return true;
  }
  if (to - from == 3 && hri_match_at(text, from, to, "oom") &&
      (hri_match_at(text, to, count, "'d ") || hri_match_at(text, to, count, "'ed "))) {
    *p = (phrase){from, to + 2, false};
    return true;
  }
  if (to - from == 3 && hri_match_at(text, from, to, "oom")) return find_oom(text, line, from, to, count, p);
  if (to + 1 < count && text[to] == '.' && hri_is_letter(text[to + 1])) return false; /* "alloc.h:48" */
  if (hri_oom_word(text, from, to, "alloc") < to || hri_oom_word(text, from, to, "mmap") < to ||
      hri_match_at(text, from, to, "reserve") || hri_oom_word(text, from, to, "create") < to ||
      hri_oom_word(text, from, to, "pin") == from)
    return find_verb(text, line, from, to, count, p);
  if (hri_match_at(text, from, to, "memory") || hri_match_at(text, from, to, "vram") ||
      hri_match_at(text, from, to, "ram") || hri_match_at(text, from, to, "hbm") ||
      hri_match_at(text, from, to, "heap") || hri_match_at(text, from, to, "address"))
    return to - from <= 7 && find_lack(text, line, from, to, count, p);
  if (hri_match_at(text, from, to, "resources")) { /* an OpenCL function's */
    *p = (phrase){from > line + 7 ? from - 7 : line, to, false};
    return from > line + 7 && hri_match_at(text, from - 7, from, "out of ") &&
           hri_oom_word(text, from > line + 80 ? from - 80 : line, from, "clenqueue") < from;
  }
  if (hri_match_at(text, from, to, "paging")) {
    *p = (phrase){from, to, false};
    return hri_match_at(text, to, count, " file is too small");
  }
  return false;
}

/* ---- the shape of the line ---- */

/* Whether text[from, to) has a word that names an error and stands before a colon or bracket: "runtimeerror:",
 * "[error]", "what():", "error code 12". */
static bool names_error(const char *text, size_t from, size_t to) {
  static const char *const words[] = {"error",      "exception", "err",        "fatal",
                                      "panic",      "failure",   "fault",      "abort",
                                      "aborted",    "critical",  "severe",     "what()",
                                      "failed",     "panicked",  "terminated", "exceptions",
                                      "unexpected", "crash",     "crashed",    "died",
                                      "status",     "caused by", "reason",     "check failed",
                                      "assertion",  "killed",    "err_msg",    "warn",
                                      "warning",    "raised",    "detail",     "wrn",
                                      "e",          "w",         "f"};
  for (size_t i = 0; i < HRI_COUNT(words); i++) {
    size_t length = strlen(words[i]);
    for (size_t at = hri_oom_word(text, from, to, words[i]); at < to; at = hri_oom_word(text, at + 1, to, words[i])) {
      size_t end = at + length;
      bool whole = at == from || !hri_is_name(text[at - 1]);
      if (length < 4 && !whole) continue;
      if (end < to && hri_is_name(text[end])) continue;
      while (end < to && (text[end] == ' ' || text[end] == '\'' || text[end] == '"')) end++;
      if (length == 1) { /* a level of one letter: "[e]" */
        if (at > from && text[at - 1] == '[' && end < to && text[end] == ']') return true;
        continue;
      }
      if (end == to || strchr(":]()!|=>-[", text[end]) || hri_is_digit(text[end])) return true;
      if (length > 4 && at > from && text[at - 1] != ' ' && hri_match_at(text, end, to, "from")) return true;
    }
  }
  return false;
}

/* A place in a source: "alloc.cu:123", "pool.cpp(45)", "line 12", "device_gpu.c line 3". */
static bool has_place(const char *text, size_t from, size_t to) {
  static const char *const names[] = {".c",   ".cc", ".cpp", ".cxx", ".cu", ".cuh",  ".h",
                                      ".hpp", ".py", ".rs",  ".go",  ".jl", ".java", ".inl",
                                      ".mm",  ".m",  ".cs",  ".lua", ".js", ".ts",   ".f90"};
  for (size_t i = 0; i < HRI_COUNT(names); i++) {
    size_t length = strlen(names[i]);
    for (size_t at = hri_oom_word(text, from, to, names[i]); at < to; at = hri_oom_word(text, at + 1, to, names[i])) {
      size_t end = at + length;
      if (end + 1 >= to) continue;
      if (strchr(":(@,[", text[end]) && (hri_is_digit(text[end + 1]) || text[end + 1] == ':' || text[end + 1] == ' '))
        return true;
      if (hri_match_at(text, end, to, " line") || hri_match_at(text, end, to, "\", line")) return true;
    }
  }
  for (size_t at = hri_oom_word(text, from, to, "line "); at < to; at = hri_oom_word(text, at + 1, to, "line "))
    if (at + 5 < to && hri_is_digit(text[at + 5])) return true;
  return false;
}

/* A code behind the phrase: "(error 2)", "errno 12", "0x887a0005", "(12)", "status = 2". */
static bool has_code(const char *text, size_t from, size_t to) {
  static const char *const words[] = {"error code", "errno",     "error 2",  "error 12",    "(error",      "code:",
                                      "code=",      "status:",   "status=",  "status =",    "(2)",         "(12)",
                                      "(-2)",       "(0x",       "error: 2", "code 2",      "[os error",   "os error",
                                      "result:",    "hr =",      "hresult",  "core dumped", "return code", "cudaerror",
                                      "cuda error", "cuda_error"};
  if (hri_match_at(text, from, to, " (")) { /* "(00000008:kIO...OutOfMemory)": the name of an error */
    const char *close = memchr(text + from, ')', to - from);
    if (close && !memchr(text + from + 2, ' ', (size_t)(close - text) - from - 2) &&
        is_error_name(text, from + 2, (size_t)(close - text)))
      return true;
  }
  if (to > from && to - from > 120) to = from + 120; /* a phrase may end on the line behind: nothing is left then */
  return hri_match_part(text, from, to, words, HRI_COUNT(words));
}

/* Whether only labels stand before the phrase: "foo:", "[gpu 0]", "module.function:", "src/x.cu:12", numbers. */
static bool is_label_only(const char *text, size_t from, size_t to) {
  unsigned words = 0;
  for (size_t at = from; at < to;) {
    size_t end = at;
    int depth = 0;
    bool name = false, label = false;
    while (end < to && (text[end] != ' ' || depth > 0) && end - at < 80) {
      if (strchr("([{<", text[end])) depth++;
      if (strchr(")]}>", text[end])) depth--;
      if (text[end] == ':' || text[end] == '(' || text[end] == '[' || text[end] == '/' || text[end] == '_')
        label = true;
      if (hri_is_letter(text[end])) name = true;
      end++;
    }
    if (end == at) {
      at++;
      continue;
    }
    if (text[end - 1] == ':') words = 0; /* what came before is a label with blanks */
    else if (name && !label) words++;
    at = end + 1;
  }
  return words == 0;
}

/* How many words of a sentence stand in text[from, to): letters alone, between blanks. */
static unsigned count_words(const char *text, size_t from, size_t to) {
  unsigned words = 0;
  for (size_t at = from; at < to;) {
    size_t end = at;
    bool letters = true;
    size_t wide = 0; /* bytes of letters of which several are a word: Chinese, Japanese */
    for (; end < to && text[end] != ' '; end++) {
      wide += (text[end] & 0x80) != 0;
      letters = letters && (hri_is_letter(text[end]) || text[end] & 0x80);
    }
    words += wide >= 12 ? (unsigned)(wide / 6) : letters && end > at;
    at = end + 1;
  }
  return words;
}

/* ---- talk ---- */

static size_t clause_start(const char *text, size_t line, size_t at) {
  for (size_t i = at; i > line; i--)
    if (hri_ends_sentence(text, i - 1, at) || (text[i - 1] == ' ' && i >= line + 2 && text[i - 2] == ':')) return i;
  return line;
}

/* "out of memory is reported at the second epoch": it happened. */
bool hri_voice_happened(const hri_oom_place *p, size_t to) {
  static const char *const events[] = {" is reported at", " was reported", " was raised", " was thrown", " occurred",
                                       " happened",       " came out",     " came up",    " comes up",   " appeared",
                                       " popped up",      " pops up",      " showed up",  " shows up",   " came back"};
  static const char *const now[] = {" is raised ",   " is thrown ", " occurs ", " happens ",
                                    " is reported ", " appears ",   " arises ", " is encountered "};
  static const char *const then[] = {"when running ",  "when i ",       "when we ",        "when my ",
                                     "when trying ",   "when loading ", "when executing ", "when launching ",
                                     "when starting ", "after "};
  static const char *const nouns[] = {" error", " exception", " failure"};
  for (size_t i = 0; i < HRI_COUNT(nouns); i++)
    if (hri_match_at(p->text, to, p->line_end, nouns[i])) to += strlen(nouns[i]);
  for (size_t i = 0; i < HRI_COUNT(now);
       i++) /* "is raised when running x" tells of one run, "raised when full" of all */
    if (hri_match_at(p->text, to, p->line_end, now[i]) &&
        hri_match_at_any(p->text, to + strlen(now[i]), p->line_end, then, HRI_COUNT(then)))
      return true;
  for (size_t i = 0; i < HRI_COUNT(events); i++)
    if (hri_match_at(p->text, to, p->line_end, events[i])) return true;
  return false;
}

/* What the words around the phrase say of it: a topic, a condition, somebody's opinion. */
static uint64_t signs_of_topic(const hri_oom_place *p, size_t phrase_from, size_t phrase_to) {
  static const char *const anywhere[] = {"if",
                                         "in case",
                                         "whenever",
                                         "may",
                                         "might",
                                         "to avoid",
                                         "avoid",
                                         "avoids",
                                         "avoiding",
                                         "prevent",
                                         "prevents",
                                         "preventing",
                                         "how to",
                                         "why",
                                         "should",
                                         "would",
                                         "could cause",
                                         "can cause",
                                         "can happen",
                                         "can occur",
                                         "e.g.",
                                         "for example",
                                         "such as",
                                         "handle",
                                         "handles",
                                         "handling",
                                         "catch",
                                         "catches",
                                         "detect",
                                         "detects",
                                         "detecting",
                                         "recover",
                                         "simulate",
                                         "simulates",
                                         "potential",
                                         "possible",
                                         "risk",
                                         "likely to",
                                         "lead to",
                                         "leads to",
                                         "question",
                                         "faq",
                                         "unless",
                                         "until",
                                         "what does",
                                         "what is",
                                         "how do",
                                         "help with",
                                         "docs",
                                         "todo",
                                         "fixme",
                                         "feat",
                                         "fix",
                                         "fixes",
                                         "fixed",
                                         "chore",
                                         "changelog",
                                         "refactor",
                                         "improve",
                                         "improved",
                                         "support for",
                                         "added",
                                         "add",
                                         "adds",
                                         "tests",
                                         "test",
                                         "tip",
                                         "hint",
                                         "workaround",
                                         "reduce",
                                         "troubleshooting",
                                         "skipped",
                                         "common",
                                         "expect",
                                         "assert",
                                         "reports",
                                         "raises",
                                         "means",
                                         "protect",
                                         "never",
                                         "will",
                                         "can",
                                         "retry on",
                                         "retries on",
                                         "enable",
                                         "enabled",
                                         "disable",
                                         "disabled",
                                         "don't",
                                         "do not",
                                         "doesn't",
                                         "does not",
                                         "not an",
                                         "usually"};
  static const char *const here[] = {"i",       "we",      "you",       "my",       "your",      "our",
                                     "they",    "people",  "users",     "is there", "about",     "regarding",
                                     "without", "against", "yesterday", "often",    "sometimes", "typically",
                                     "always",  "when",    "issue",     "issues",   "bug",       "problem"};
  static const char *const asking[] = {"is ", "are ", "does ", "what ", "which "};
  static const char *const mine[] = {"i", "we", "my", "our"};
  static const char *const labels[] = {"known issues", "known issue", "fix",       "feat",     "docs",
                                       "test",         "tests",       "chore",     "refactor", "perf",
                                       "ci",           "build",       "revert",    "tip",      "tips",
                                       "note",         "hint",        "faq",       "q",        "a",
                                       "todo",         "fixme",       "re",        "subject",  "title",
                                       "issue",        "question",    "answer",    "solution", "symptom",
                                       "bug",          "feature",     "changelog", "example",  "usage",
                                       "help",         "summary",     "cause",     "check",    "root cause",
                                       "reason",       "symptom",     "symptoms"};
  static const char *const behind[] = {" errors",     " issue",      " problem",   " handler",
                                       " handling",   " hook",       " callback",  " guard",
                                       " protect",    " recovery",   " prevent",   " fallback",
                                       " check",      " test",       " retry",     " exceptions",
                                       " situation",  " scenario",   " condition", " solution",
                                       " can ",       " may ",       " might ",    " is a ",
                                       " usually",    " often",      " when you",  " if ",
                                       "?",           " killer:",    " score",     " kill disable",
                                       " warning",    " detection",  " error is ", " errors?",
                                       " killer is",  " events",     " killer",    " error occurs",
                                       " error can",  " error may",  " error? ",   " error will",
                                       " error?",     " means",      " will ",     " should ",
                                       ": class",     ": raised",    ": thrown",   ": exception class",
                                       " management", " manager",    " debugging", ": subclass",
                                       " is the ",    " are the ",   " faq",       " guide",
                                       " tips",       " mitigation", " or ",       ", usually",
                                       " error means"};
  static const char *const explained[] = {" error means", " error indicates", " error is raised", " error is caused"};
  static const char *const defined[] = {"raised when", "thrown when", "returned when", "occurs when", "happens when",
                                        "raised if",   "thrown if",   "returned if",   "occurs if",   "happens if"};
  size_t from = hri_sentence_start(p->text, p->sentence, phrase_from),
         near = clause_start(p->text, p->line, phrase_from);
  size_t end = hri_sentence_end(p->text, phrase_to, p->line_end), first = from;
  uint64_t signs = 0;
  size_t last = p->line_end, quote = phrase_from;
  while (quote > near && p->text[quote - 1] != '"') quote--;
  if (quote > near && hri_voice_meets(p->text, p->line, quote - 1))
    phrase_from = quote - 1; /* of what is quoted nothing */
  while (last > phrase_to && p->text[last - 1] == ' ') last--;
  while (first < near && !hri_is_name(p->text[first])) first++;
  for (size_t i = 0; i < HRI_COUNT(labels) && near > from; i++) { /* "fix(cuda): ...", "tip: ..." */
    size_t behind_label = first + strlen(labels[i]);
    if (hri_match_at(p->text, first, near, labels[i]) && behind_label < near && strchr(":(!", p->text[behind_label]))
      signs |= HRI_SIGN_BIT(HRI_SIGN_TOPIC);
  }
  if (end < p->count && p->text[end] == '?' && end < p->line_end && !hri_match_at(p->text, end, p->count, "?)"))
    signs |= HRI_SIGN_BIT(HRI_SIGN_QUESTION);
  if (signs & HRI_SIGN_BIT(HRI_SIGN_QUESTION) && hri_match_at_any(p->text, first, near, asking, HRI_COUNT(asking)))
    signs |= HRI_SIGN_BIT(HRI_SIGN_CONDITION);
  if (p->shape & (HRI_OOM_HEADING | HRI_OOM_COMMENT) && hri_match_end(p->text, p->line, last, "?"))
    signs |= HRI_SIGN_BIT(HRI_SIGN_QUESTION);
  if (!hri_voice_happened(p, phrase_to) && (hri_match_part(p->text, phrase_to, end, explained, HRI_COUNT(explained)) ||
                                            hri_match_part(p->text, from, end, defined, HRI_COUNT(defined))))
    signs |= HRI_SIGN_BIT(HRI_SIGN_BEHIND);
  for (size_t i = 0; i < HRI_COUNT(behind); i++)
    if (hri_match_at(p->text, phrase_to, p->line_end, behind[i])) signs |= HRI_SIGN_BIT(HRI_SIGN_BEHIND);
  if (hri_match_whole(p->text, phrase_to, end, "unless") < end ||
      hri_match_any(p->text, from, phrase_from, anywhere, 23) || /* also before a colon */
      hri_match_any(p->text, near, phrase_from, anywhere, HRI_COUNT(anywhere)))
    signs |= HRI_SIGN_BIT(HRI_SIGN_CONDITION);
  if (hri_match_any(p->text, near, phrase_from, here, HRI_COUNT(here))) signs |= HRI_SIGN_BIT(HRI_SIGN_PERSON);
  if (hri_match_any(p->text, near, phrase_from, mine, HRI_COUNT(mine))) signs |= HRI_SIGN_BIT(HRI_SIGN_MINE);
  return signs;
}

/* What a program prints by: a place for a figure stands where the figure would be. */
static bool is_format(const hri_oom_place *p, size_t phrase_to) {
  static const char *const places[] = {"%s", "%d", "%zu", "%lu", "%lld", "%llu", "%ld", "%u", "{}", "${", "{0}", "{e}"};
  size_t end = phrase_to + 160 < p->line_end ? phrase_to + 160 : p->line_end;
  return hri_match_part(p->text, phrase_to, end, places, HRI_COUNT(places));
}

/* The lines above are those of a traceback and this one is no source line of it. */
static bool is_below_trace(const hri_oom_place *p) {
  size_t from = p->before_count > 500 ? p->before_count - 500 : 0, frame = from, last = p->before_count;
  for (size_t at = hri_oom_word(p->before, from, last, "file \""); at < last;
       at = hri_oom_word(p->before, at + 1, last, "file \""))
    frame = at;
  return frame > from && hri_oom_word(p->before, frame, last, ", line ") < last;
}

/* What a program prints behind an error: frames of Java, .NET, Go, JavaScript, a debugger, Python, or advice. */
static bool has_stack(const hri_oom_place *p, size_t to) {
  static const char *const frames[] = {"traceback", "stack trace", "backtrace", "goroutine ",    "frame #",
                                       "#0 ",       "[1] ",        "0: 0x",     "runtime stack", "stacktrace:"};
  /* what PyTorch prints behind every error of CUDA or HIP, in the same line or the next ones */
  static const char *const behind[] = {"kernel errors might be asynchronously", "for debugging consider passing ",
                                       "to enable device-side assertions"};
  size_t at = to, end;
  while (at < p->line_end && p->text[at] == ' ') at++; /* a notebook prints the name and these words in one line */
  if (hri_match_at(p->text, at, p->count, "traceback (most recent")) return true;
  at = p->line_end;
  if (hri_match_part(p->text, to, at + 60 < p->count ? at + 60 : p->count, behind, HRI_COUNT(behind))) return true;
  while (at < p->count && strchr(" -=*", p->text[at]) && p->text[at]) at++;
  for (size_t i = 0; i < HRI_COUNT(frames); i++)
    if (hri_match_at(p->text, at, p->count, frames[i])) return true;
  if (hri_match_at(p->text, at, p->count, "file \"")) return true;
  if (!hri_match_at(p->text, at, p->count, "at ")) return false; /* "at java.util.arrays.copyof(arrays.java:3332)" */
  for (at += 3, end = at; end < p->count && (hri_is_name(p->text[end]) || strchr(".$<>`:/", p->text[end]));) end++;
  return end > at && memchr(p->text + at, '.', end - at);
}

/* The label that begins the line names an error: "exception type: x", "** error: x". */
static bool is_field(const hri_oom_place *p, size_t phrase_from) {
  static const char *const names[] = {"exception", "error", "reason", "fatal", "stderr", "message", "result", "status"};
  size_t end = p->line, blanks = 0;
  for (; end < phrase_from && p->text[end] != ':' && blanks < 5; end++) blanks += p->text[end] == ' ';
  return end < phrase_from && p->text[end] == ':' && hri_match_any(p->text, p->line, end, names, HRI_COUNT(names));
}

/* The label is one of a form that a program fills in: "- **exception type:** x". */
static bool is_exception_field(const hri_oom_place *p, size_t phrase_from) {
  static const char *const names[] = {"exception type:",
                                      "exception message:",
                                      "error type:",
                                      "error message:",
                                      "tipo de exce\xc3\xa7\xc3\xa3o:",
                                      "tipo de excepci\xc3\xb3n:",
                                      "exit reason:"};
  for (size_t i = 0; i < HRI_COUNT(names); i++) {
    size_t at = hri_oom_word(p->text, p->line, phrase_from, names[i]);
    if (at < phrase_from && at <= p->line + 4) return true;
  }
  return false;
}

/* A number of four digits, an address, a size with a fraction: so that it happened once. */
static bool is_concrete(const char *text, size_t from, size_t to) {
  unsigned digits = 0;
  for (size_t i = from; i < to; i++) {
    digits = hri_is_digit(text[i]) ? digits + 1 : 0;
    if (digits == 1 && i > from + 1 && (text[i - 1] == '#' || (text[i - 1] == '-' && hri_is_letter(text[i - 2])))) {
      while (i + 1 < to && hri_is_digit(text[i + 1])) i++; /* a ticket's */
      digits = 0;
      continue;
    }
    if (digits > 0 && i > from + 1 && text[i - 1] == '.' && hri_is_digit(text[i - 2])) { /* "17.5m" */
      size_t end = i;
      while (end < to && hri_is_digit(text[end])) end++;
      if (end < to && (strchr("kmg", text[end]) || (text[end] == ' ' && end + 1 < to && strchr("kmg", text[end + 1]))))
        return true;
    }
    if (digits == 4 || (text[i] == 'x' && i > from && i + 1 < to && text[i - 1] == '0' && hri_is_name(text[i + 1])))
      return true;
  }
  return false;
}

/* A verb, in the same clause, that tells of one end. */
static bool tells_of_end(const hri_oom_place *p, size_t from, size_t to) {
  static const char *const verbs[] = {"died",    "crashed",   "failed",    "aborted", "terminated", "exited",
                                      "stopped", "returned",  "raised",    "threw",   "dies",       "crashes",
                                      "killed",  "did",       "completed", "ended",   "received",   "caused",
                                      "tested",  "lost",      "finished",  "hit",     "saw",        "observed",
                                      "tried",   "triggered", "reproduced"};
  size_t start = hri_sentence_start(p->text, p->line, from);
  size_t end = hri_sentence_end(p->text, to, to + 60 < p->line_end ? to + 60 : p->line_end);
  return hri_match_any(p->text, start, end, verbs, HRI_COUNT(verbs));
}

/* "error torch.serve - ...", "e tensorflow/...": a logger's level as the first word. */
static bool starts_with_level(const char *text, size_t line, size_t to) {
  static const char *const levels[] = {"error ", "fatal ", "critical ", "severe ", "e ", "f ", "w ", "warn ", "err "};
  for (size_t i = 0; i < HRI_COUNT(levels); i++)
    if (hri_match_at(text, line, to, levels[i])) return true;
  return false;
}

/* "is shutdown with exit code 137": one end, in the past, and no condition before it. */
static bool ended_with(const hri_oom_place *p, size_t from) {
  static const char *const verbs[] = {"exited",   "died",      "crashed", "terminated", "killed",
                                      "shutdown", "shut down", "stopped", "dying",      "aborted"};
  static const char *const cases[] = {"if",    "may",  "might",    "can",      "could",
                                      "would", "will", "whenever", "when you", "when your"};
  size_t start = hri_sentence_start(p->text, p->line, from), word = start + 5;
  while (word < from && hri_is_letter(p->text[word])) word++;
  if (hri_match_at(p->text, start, from, "symptom") ||
      (hri_match_at(p->text, start, from, "when ") && !hri_match_end(p->text, start, word, "ing")))
    return false; /* "when running x" is how it came about, "when it ends with" a case */
  return hri_match_end(p->text, start, from, " with ") &&
         hri_match_any(p->text, start, from, verbs, HRI_COUNT(verbs)) &&
         !hri_match_any(p->text, start, from, cases, HRI_COUNT(cases));
}

/* "I am getting this error: info - x": somebody met what the colon introduces. */
static bool is_introduced(const hri_oom_place *p, size_t from) {
  for (size_t at = hri_oom_word(p->text, p->line, from, " error:"); at < from;
       at = hri_oom_word(p->text, at + 1, from, " error:"))
    if (hri_voice_meets(p->text, p->line, at)) return true;
  return false;
}

/* "There appeared", "met", "reports an error" right before it. */
static bool is_told_in_chinese(const char *text, size_t line, size_t from) {
  static const char *const verbs[] = {"\xe5\x87\xba\xe7\x8e\xb0", "\xe9\x81\x87\xe5\x88\xb0",
                                      "\xe6\x8a\xa5\xe9\x94\x99"};
  return hri_match_part(text, from > line + 24 ? from - 24 : line, from, verbs, HRI_COUNT(verbs));
}

/* A thread's title tells of it in the present: "mnist.py throws x", "training gets x". */
static bool is_title_verb(const hri_oom_place *p, size_t from) {
  static const char *const verbs[] = {"throws ",  "gives ",   "gets ",       "causes ",     "shows ",     "hits ",
                                      "raises ",  "with ",    "results in ", "crashes in ", "runs into ", "ran into ",
                                      "reports ", "returns ", "getting ",    "goes "};
  static const char *const cases[] = {"if",   "when", "can",  "may", "might", "should",
                                      "will", "how",  "what", "why", "avoid", "handle"};
  if (hri_match_any(p->text, p->line, from, cases, HRI_COUNT(cases))) return false;
  for (size_t i = 0; i < HRI_COUNT(verbs); i++)
    if (hri_match_end(p->text, p->line, from, verbs[i])) return true;
  return false;
}

/* What a change does, in the imperative, as its title or a line of its description begins: "[core] handle x", "explain
 * x". */
static bool is_change(const hri_oom_place *p) {
  static const char *const verbs[] = {"explain", "add",     "fix",    "handle",   "support",   "improve",  "make",
                                      "allow",   "avoid",   "detect", "document", "update",    "remove",   "implement",
                                      "enable",  "disable", "catch",  "refactor", "introduce", "prevent",  "increase",
                                      "reduce",  "expose",  "emit",   "retry",    "docs",      "proposal", "feature"};
  size_t at = p->line, end;
  while (at < p->line_end && strchr("[-* ", p->text[at])) { /* "[spark-40781][core]" */
    if (p->text[at] == '[') at = hri_oom_word(p->text, at, p->line_end, "]");
    if (at < p->line_end) at++;
  }
  for (end = at; end < p->line_end && hri_is_letter(p->text[end]);) end++;
  if (end == p->line_end || p->text[end] != ' ') return false;
  for (size_t i = 0; i < HRI_COUNT(verbs); i++)
    if (strlen(verbs[i]) == end - at && memcmp(p->text + at, verbs[i], end - at) == 0) return true;
  return false;
}

/* Whether text[at] stands between the back quotes that the message stands in, and they enclose a part of the line alone. */
static bool is_within_ticks(const hri_oom_place *p, size_t at) {
  return p->tick_from < p->tick_to && p->tick_from > p->line && at >= p->tick_from;
}

/* "failed with x", "got x". */
static bool is_telling(const hri_oom_place *p, size_t line, size_t from) {
  static const char *const telling[] = {"failed with ", "fails with ", "exited with ", "died with ",    "returned ",
                                        "error ",       "got ",        "caught ",      "error is ",     "error was ",
                                        "message is ",  "reason: ",    "with reason ", "workers are {", "running into ",
                                        "ran into ",    "runs into "};
  bool labelled = hri_match_end(p->text, line, from, ": ");
  while (from > line && (p->text[from - 1] == '.' || p->text[from - 1] == ':') && from > line + 1 &&
         hri_is_name(p->text[from - 2])) {
    from--; /* "system.outofmemoryexception" */
    while (from > line && (hri_is_name(p->text[from - 1]) || p->text[from - 1] == ':')) from--;
  }
  if (hri_match_end(p->text, line, from, "): ")) { /* "error is cumemalloc(): x" */
    size_t label = from - 2;
    while (label > line && p->text[label - 1] != ' ') label--;
    from = label;
  }
  if (from > line && strchr("\"'", p->text[from - 1])) from--;
  for (size_t i = 0; i < HRI_COUNT(telling); i++)
    if (hri_match_end(p->text, line, from, telling[i]) && !is_within_ticks(p, from - strlen(telling[i])) &&
        (strcmp(telling[i], "reason: ") != 0 || count_words(p->text, line, from - 8) < 4))
      return true;
  if (is_introduced(p, from) || ended_with(p, from) || is_told_in_chinese(p->text, line, from)) return true;
  if (p->shape & HRI_OOM_TITLE && is_title_verb(p, from)) return true;
  if (p->shape & HRI_OOM_TITLE && from > line && !is_change(p)) { /* "loading fails with vulkan out-of-memory error" */
    static const char *const ends[] = {" fails with ", " crashes with ", " fails due to ", " crashes due to "};
    for (size_t i = 0; i < HRI_COUNT(ends); i++) {
      size_t at = hri_oom_word(p->text, from > line + 30 ? from - 30 : line, from, ends[i]);
      if (at < from && hri_sentence_start(p->text, at, from) <= at) return true;
    }
  }
  return !labelled && hri_voice_meets(p->text, hri_sentence_start(p->text, line, from), from);
}

/* "My training gets killed": the words tell of it by themselves (kill.c). */
static bool tells_of_kill(const hri_oom_place *p) {
  const hri_oom_head *head = hri_oom_head_at(p->text, p->at, p->count);
  return head && (strcmp(head->words, "killed") == 0 || head->words[0] == '\xe8');
}

/* "out of memory (oom) or excessive use of it": a case beside another. */
static bool is_one_of_several(const hri_oom_place *p, size_t to) {
  size_t at = hri_match_at(p->text, to, p->line_end, " (oom)") ? to + 6 : to;
  return hri_match_at(p->text, at, p->line_end, " or ") || hri_match_at(p->text, at, p->line_end, " / ");
}

/* "oom: reduce the batch", "a fallback for bad_alloc": a title that gives advice, or names what deals with it. */
static bool is_titled_advice(const hri_oom_place *p, size_t from, size_t to) {
  static const char *const dealing[] = {" logic for ",   " fallback for ",      " handling for ",   " handling of ",
                                        " support for ", " test for ",          " tests for ",      " check for ",
                                        " message for ", " detection of ",      " workaround for ", " recovery from ",
                                        " guard for ",   " protection against "};
  static const char *const joints[] = {" (oom): ", ": ", " - ", " \xe2\x80\x94 "};
  static const char *const advice[] = {"reduce ", "lower ", "use ",  "set ", "increase ", "decrease ",
                                       "try ",    "how ",   "what ", "why ", "when ",     "tips "};
  if (!(p->shape & HRI_OOM_TITLE)) return false;
  while (from > p->line && (hri_is_name(p->text[from - 1]) || p->text[from - 1] == ':')) from--; /* "std::" */
  for (size_t i = 0; i < HRI_COUNT(dealing); i++)
    if (hri_match_end(p->text, p->line, from, dealing[i])) return true;
  for (size_t i = 0; i < HRI_COUNT(joints); i++)
    for (size_t k = 0; k < HRI_COUNT(advice) && hri_match_at(p->text, to, p->line_end, joints[i]); k++)
      if (hri_match_at(p->text, to + strlen(joints[i]), p->line_end, advice[k])) return true;
  return false;
}

/* "137 means ...", "128 + 9": the lines around explain what such words mean. */
static bool is_meant(const hri_oom_place *p) {
  static const char *const words[] = {"137 means",         "137 mean ",       "137 mean?",
                                      "137 indicates",     "137 typically",   "137 usually",
                                      "137 is the",        "137) means",      "137** means",
                                      "137` means",        "oomkilled means", "oomkilled mean",
                                      "sigkill means",     "128 + 9",         "128+9",
                                      "128 + signal",      "oom stands for",  "stands for out of memory",
                                      "what is exit code", "killed mean"};
  size_t from = p->before_count > 300 ? p->before_count - 300 : 0;
  size_t end = p->line_end + 300 < p->count ? p->line_end + 300 : p->count;
  return hri_match_part(p->before, from, p->before_count, words, HRI_COUNT(words)) ||
         hri_match_part(p->text, p->line, end, words, HRI_COUNT(words));
}

uint64_t hri_voice_shape(const hri_oom_place *p, size_t from, size_t to, bool is_code) {
  size_t line = p->line, rest = to;
  uint64_t signs = signs_of_topic(p, from, to);
  const bool told =
      hri_oom_is_told(p) || is_telling(p, line, from) || hri_voice_happened(p, to) ||
      (tells_of_kill(p) && !(p->shape & HRI_OOM_HEADING) && !is_meant(p) && !(signs & HRI_SIGN_BIT(HRI_SIGN_TOPIC))) ||
      hri_match_at(p->text, from, to, "oomed") || hri_match_at(p->text, from, to, "oom'");
  while (line < from && p->text[line] == ' ') line++;
  while (rest < p->line_end && !hri_is_name(p->text[rest]) && !(p->text[rest] & 0x80)) rest++;
#define SIGN(name, when)                                                                                               \
  do {                                                                                                                 \
    if (when) signs |= HRI_SIGN_BIT(HRI_SIGN_##name);                                                                  \
  } while (0)
  SIGN(LEVEL,
       p->shape & HRI_OOM_LEVEL || starts_with_level(p->text, line, from) || hri_match_at(p->text, from, to, "fatal "));
  SIGN(DATED, p->shape & HRI_OOM_DATED);
  SIGN(FENCED, p->shape & HRI_OOM_FENCED);
  SIGN(TITLE, p->shape & HRI_OOM_TITLE && !is_change(p));
  SIGN(MEANT, is_meant(p));
  SIGN(CONDITION, is_change(p));
  SIGN(LABELLED, is_exception_field(p, from) || names_error(p->text, line, from) ||
                     (hri_match_end(p->text, from, to, "error") && hri_match_at(p->text, to, p->count, ": ")));
  SIGN(FIELD, is_field(p, from));
  SIGN(PLACE, has_place(p->text, line, p->line_end));
  SIGN(TRACE, is_below_trace(p));
  SIGN(STACK, has_stack(p, to));
  SIGN(CODE, has_code(p->text, to, p->line_end));
  SIGN(ALONE, is_label_only(p->text, line, from) &&
                  (!is_code || hri_oom_word(p->text, line, from, ":") < from ||
                   hri_match_at(p->text, to, p->count, ":") || hri_match_at(p->text, to, p->count, "()")));
  SIGN(LAST, rest >= p->line_end);
  SIGN(TOLD, told);
  SIGN(BEHIND, !told && hri_match_at(p->text, to, p->line_end, " error") && /* "the dreaded x error" */
                   hri_oom_word(p->text, from > line + 16 ? from - 16 : line, from, "the ") < from);
  SIGN(BEHIND, !told && (is_one_of_several(p, to) || is_titled_advice(p, from, to)));
  SIGN(ITEM, p->shape & HRI_OOM_COMMENT && p->tick_from < p->tick_to && !told);
  SIGN(ENDED, tells_of_end(p, from, to));
  SIGN(CONCRETE, is_concrete(p->text, line, p->line_end));
  SIGN(SOURCE, p->shape & HRI_OOM_SOURCE);
  SIGN(LITERAL, p->shape & HRI_OOM_LITERAL);
  SIGN(AMONG, p->shape & HRI_OOM_AMONG);
  SIGN(COMMENT, p->shape & HRI_OOM_COMMENT && !is_exception_field(p, from) && !told);
  SIGN(HEADING, p->shape & HRI_OOM_HEADING);
  SIGN(FORMAT, is_format(p, to));
  SIGN(PROSE, count_words(p->text, hri_sentence_start(p->text, p->sentence, from), from) >= 5);
  SIGN(TAIL, count_words(p->text, to, hri_sentence_end(p->text, to, p->line_end)) >= 4);
#undef SIGN
  return signs;
}

/* What the words around the phrase say: an error of another kind, or of something else that ran out. */
static bool is_other(const hri_oom_place *p, const phrase *f) {
  static const char *const other[] = {"driver version",        "no cuda-capable",  "invalid device",
                                      "permission denied",     "invalid argument", "device-side assert",
                                      "illegal memory",        "not supported",    "initialization error",
                                      "invalid configuration", "unauthorized",     "timed out",
                                      "pointer being freed",   "invalid pointer",  "corrupted"};
  static const char *const elsewhere[] = {"disk", "inodes", "license", "file system", "nodes are available", "skipped"};
  return hri_match_any(p->text, p->line, f->to, elsewhere, HRI_COUNT(elsewhere)) ||
         hri_match_part(p->text, f->to, hri_sentence_end(p->text, f->to, p->line_end), other, HRI_COUNT(other));
}

/* ---- the message ---- */

/* Where what belongs to the report ends: its line, or the next words where a line was wrapped, and items that follow;
 * no traceback and no other failure's figures. */
static size_t report_end(const hri_oom_place *p, const phrase *f, size_t reach) {
  static const char *const stops[] = {"traceback (most recent", "stack trace", "file \"", "current allocation summary",
                                      "backtrace"};
  static const char *const next[] = {"tried to allocate", "cuda out of memory", "runtimeerror", "buffer size",
                                     "model buffer"};
  size_t end = p->line_end > f->to + reach ? p->line_end : f->to + reach;
  if (hri_match_at(p->text, p->line_end, p->count, "- ")) end = p->line_end + 120;
  if (end > p->count) end = p->count;
  for (size_t i = 0; i < HRI_COUNT(stops); i++) end = hri_oom_word(p->text, f->to, end, stops[i]);
  for (size_t i = 0; i < HRI_COUNT(next) && p->line_end < end; i++)
    end = hri_oom_word(p->text, p->line_end, end, next[i]);
  return end;
}

static uint32_t figure_count(const hri_oom_message *m) {
  uint32_t count = m->process_count;
  for (int i = 0; i < HR_OOM_FIGURE_COUNT; i++) count += m->failure.figures[i].state == HR_OOM_READ;
  return count;
}

/* Whose a message is whose words are many programs': by the names in its line, and around one that is no exception of
 * Python. */
static void name_by_line(const hri_oom_place *p, hri_oom_message *m) {
  size_t behind = p->line_end + 160 < p->count ? p->line_end + 160 : p->count;
  bool python = hri_oom_word(p->text, p->line, p->line_end, "runtimeerror") < p->line_end;
  const char *who = hri_oom_framework_in(p->text, p->line, p->line_end);
  if (strcmp(m->failure.source, "pytorch-xpu") == 0) { /* SYCL's; PyTorch's own come as exceptions of Python */
    if (m->kind != HRI_OOM_BARE || python || hri_oom_word(p->text, p->line, p->line_end, "xpu") < p->line_end) return;
    m->kind = HRI_OOM_FOREIGN_LIKELY;
    m->failure.source = "sycl";
    return;
  }
  if (strcmp(m->failure.source, "caffe2") == 0) return;                            /* part of PyTorch */
  if (!who && hri_match_end(p->text, p->line, p->at, "cuda failed with error ")) { /* CTranslate2's own words */
    who = hri_oom_framework_near(p->before, p->before_count > 400 ? p->before_count - 400 : 0, p->before_count);
    if (who && strcmp(who, "ctranslate2") == 0) {
      hri_oom_set_framework(m, who);
      m->anybodys = false;
      return;
    }
    who = NULL;
  }
  if (!who && m->kind == HRI_OOM_BARE && !python)
    who = hri_oom_framework_near(p->before, p->before_count > 200 ? p->before_count - 200 : 0, p->before_count);
  if (!who && m->kind == HRI_OOM_BARE) who = hri_oom_framework_near(p->text, p->line_end, behind);
  if (who) {
    m->anybodys =
        !hri_oom_is_own_line(p->text, p->line, p->line_end, p->at, p->at, who) &&
        !hri_oom_is_own_place(p->text, p->line_end, behind, who) &&
        !hri_oom_is_own_place(p->before, p->before_count > 200 ? p->before_count - 200 : 0, p->before_count, who);
    hri_oom_set_framework(m, who);
  } else if (m->kind == HRI_OOM_BARE && (who = hri_oom_library_in(p->text, p->line, p->line_end)) != NULL) {
    m->kind = HRI_OOM_LIBRARY;
    m->failure.source = who;
  }
}

/* The figures of such a message: in its line; a framework's own words often go over several. */
static void read_by_words(const hri_oom_place *p, hri_oom_message *m) {
  bool foreign = m->kind == HRI_OOM_FOREIGN || m->kind == HRI_OOM_FOREIGN_LIKELY;
  size_t back = p->line > 100 ? p->line - 100 : 0, from = hri_sentence_start(p->text, p->line, p->at), end;
  phrase f = {p->at, p->at, false};
  bool goes_on =
      hri_match_end(p->text, p->line, p->line_end, ": ") || hri_match_end(p->text, p->line, p->line_end, ":");
  for (size_t at = hri_oom_word(p->text, back, p->line, "allocating "); foreign && at < p->line;
       at = hri_oom_word(p->text, at + 1, p->line, "allocating "))
    from = at; /* "allocating 4096 mib" on the line before */
  end = report_end(p, &f, foreign || goes_on ? 200 : 0);
  if (p->tick_from < p->tick_to &&
      count_words(p->text, p->tick_to, p->line_end) > 0) { /* what is quoted; what is said of it has other figures */
    if (p->tick_from > from) from = p->tick_from;
    end = p->tick_to < end ? p->tick_to : end;
  }
  if (!foreign && p->at + 13 < end) end = hri_oom_word(p->text, p->at + 13, end, "out of memory"); /* another message */
  hri_oom_read_labelled(p->text, from, end, end, m->failure.figures);
}

/* How much was free, by what is printed close to a message that does not say it: "at free=0.40 gib", "avail mem=0.07 gb",
 * "free device mem: 0.5 gib". Only words that are about nothing else; statistics list other figures beside it. */
static void read_free_near(const hri_oom_place *p, hri_oom_message *m) {
  static const char *const words[] = {"free=",     "avail mem=", "free device mem:",
                                      "free mem=", "free_mem=",  "free gpu memory:"};
  hr_oom_value *free = &m->failure.figures[HR_OOM_FREE];
  size_t from = p->line > 240 ? p->line - 240 : 0, to = p->line_end + 240 < p->count ? p->line_end + 240 : p->count;
  for (size_t i = 0; i < HRI_COUNT(words) && free->state == HR_OOM_ABSENT; i++)
    for (size_t at = hri_oom_word(p->text, from, to, words[i]); at < to && free->state == HR_OOM_ABSENT;
         at = hri_oom_word(p->text, at + 1, to, words[i]))
      (void)hri_oom_size_at(p->text, at + strlen(words[i]), to, free);
}

/* What stands on the lines behind a message of how much was in use: "effective gpu memory usage: 11.12% (1.311 gib/11.784
 * gib)", "memory pool usage: 980.317 mib (980.317 mib allocated, 0 bytes cached)". */
static void read_usage(const hri_oom_place *p, size_t from, hri_oom_message *m) {
  hr_oom_value *f = m->failure.figures, other = {0};
  size_t to = from + 320 < p->count ? from + 320 : p->count, at, slash;
  at = hri_oom_word(p->text, from, to, " memory usage: ");
  at = hri_oom_word(p->text, at, at + 32 < to ? at + 32 : to, "% (");
  slash = hri_oom_word(p->text, at, at + 24 < to ? at + 24 : to, "/");
  if (hri_match_at(p->text, at, to, "% (") && slash < at + 24 && f[HR_OOM_TOTAL].state == HR_OOM_ABSENT)
    (void)hri_oom_size_at(p->text, slash + 1, to, &f[HR_OOM_TOTAL]);
  at = hri_oom_word(p->text, from, to, "memory pool usage: ");
  if (at == to || f[HR_OOM_ALLOCATED].state != HR_OOM_ABSENT) return;
  (void)hri_oom_size_at(p->text, at + 19, to, &f[HR_OOM_ALLOCATED]);
  at = hri_oom_word(p->text, at, at + 40 < to ? at + 40 : to, " (");
  if (!hri_oom_size_at(p->text, at + 2, to, &other)) return;
  to = hri_oom_word(p->text, at + 2, to, ")");
  if (hri_oom_word(p->text, at, to, " reserved") < to) f[HR_OOM_RESERVED] = other;
  else if (hri_oom_word(p->text, at, to, " allocated") < to) f[HR_OOM_ALLOCATED] = other;
}

/* "(9.9 gib/10.0 gib used)": the second is the limit. */
static void read_share_used(const hri_oom_place *p, size_t from, hr_oom_value *allowed) {
  size_t used = hri_oom_word(p->text, from, p->line_end, " used)"), slash = used;
  while (slash > from && used - slash < 24 && p->text[slash] != '/') slash--;
  if (used < p->line_end && p->text[slash] == '/' && allowed->state == HR_OOM_ABSENT)
    (void)hri_oom_size_at(p->text, slash + 1, used, allowed);
}

/* Where the words of a known head stand, with what belongs to them. */
static phrase head_phrase(const hri_oom_place *p) {
  const hri_oom_head *head = hri_oom_head_at(p->text, p->at, p->count);
  phrase f = {with_modifiers(p->text, p->line, p->at), p->at + strlen(head->words), false};
  while (f.from > p->line && hri_is_name(p->text[f.from - 1])) f.from--;
  while (f.to < p->line_end && hri_is_name(p->text[f.to])) f.to++;
  if (hri_match_at(p->text, f.to, p->line_end, " event")) { /* the scheduler's whole sentence */
    f.to = hri_oom_word(p->text, f.to, p->line_end, ".");
    return f;
  }
  f.is_code = hri_oom_is_name(p->text, p->at, p->count) && !hri_match_end(p->text, p->line, p->at, "invoked ") &&
              !hri_match_at(p->text, f.to, p->count, ":constraint");
  return f;
}

/* A speaker whose own words are a guess or speak to somebody: "might be caused by", "your session". */
static bool speaks_to_user(const hri_oom_place *p, const hri_oom_message *m) {
  return strcmp(m->failure.source, "notebook") == 0 || strcmp(m->failure.source, "mpi") == 0 ||
         strcmp(m->failure.source, "macos") == 0 || strcmp(m->failure.source, "windows") == 0 ||
         (strcmp(m->failure.source, "shared-memory") == 0 && p->tick_from == p->tick_to &&
          (hri_match_end(p->text, p->line, p->at, "caused by ") ||
           hri_oom_word(p->text, p->line, p->line_end, "worker") < p->line_end));
}

/* What says nothing in a table, where every cell stands by itself, and in a line of source, where it is part of the
 * literal. */
#define SOURCE_SIGNS                                                                                                   \
  (HRI_SIGN_BIT(HRI_SIGN_OPENS) | HRI_SIGN_BIT(HRI_SIGN_ALONE) | HRI_SIGN_BIT(HRI_SIGN_LAST) |                         \
   HRI_SIGN_BIT(HRI_SIGN_LABELLED) | HRI_SIGN_BIT(HRI_SIGN_FIELD) | HRI_SIGN_BIT(HRI_SIGN_PLACE) |                     \
   HRI_SIGN_BIT(HRI_SIGN_CONCRETE) | HRI_SIGN_BIT(HRI_SIGN_DATED) | HRI_SIGN_BIT(HRI_SIGN_LEVEL) |                     \
   HRI_SIGN_BIT(HRI_SIGN_ENDED) | HRI_SIGN_BIT(HRI_SIGN_TOLD) | HRI_SIGN_BIT(HRI_SIGN_CODE))
#define CELL_SIGNS                                                                                                     \
  (HRI_SIGN_BIT(HRI_SIGN_OPENS) | HRI_SIGN_BIT(HRI_SIGN_ALONE) | HRI_SIGN_BIT(HRI_SIGN_LAST) |                         \
   HRI_SIGN_BIT(HRI_SIGN_LABELLED) | HRI_SIGN_BIT(HRI_SIGN_FIELD))

/* "torch.outofmemoryerror", "system.outofmemoryexception": a name that nobody else has. */
static bool is_known_class(const hri_oom_place *p, size_t from) {
  return hri_match_end(p->text, p->line, from, "torch.") || hri_match_end(p->text, p->line, from, "torch.cuda.") ||
         hri_match_end(p->text, p->line, from, "system.");
}

/* A comment among a program's lines: what its author met once, or expects. */
static bool is_noted_in_source(const hri_oom_place *p) {
  return p->shape & HRI_OOM_REMARK && p->shape & HRI_OOM_AMONG && !(p->shape & (HRI_OOM_LEVEL | HRI_OOM_FENCED));
}

/* What a test expects to be printed: "exhausted%s(tried to allocate 4096 bytes) in %s on line %d". */
static bool is_template(const hri_oom_place *p) {
  static const char *const places[] = {"%s", "%d", "%i", "%zu", "%lu", "%a"};
  for (size_t i = 0; i < HRI_COUNT(places); i++)
    for (size_t at = hri_oom_word(p->text, p->line, p->line_end, places[i]); at < p->line_end;
         at = hri_oom_word(p->text, at + 1, p->line_end, places[i])) {
      const size_t end = at + strlen(places[i]);
      if (at > p->line && hri_is_digit(p->text[at - 1])) continue; /* "97%in use" */
      if (end == p->line_end || !hri_is_name(p->text[end])) return true;
    }
  return false;
}

/* A thread's title that begins with the error and goes on with how it came: "memoryerror when preprocessing the data", "`xpu
 * out of memory` error with two cards". */
static bool is_title_of_event(const hri_oom_place *p, size_t from, size_t to) {
  static const char *const how[] = {" while ", " during ", " after ", " with ", " on ", " at ", " in "};
  size_t end;
  if (!(p->shape & HRI_OOM_TITLE)) return false;
  from = with_modifiers(p->text, p->line, from);
  while (from > p->line && (hri_is_name(p->text[from - 1]) || strchr(".:", p->text[from - 1]))) from--;
  if (from > p->line) return false;
  if (hri_match_at(p->text, to, p->line_end, " error")) to += 6;
  if (hri_match_at(p->text, to, p->line_end, " when ")) {
    for (end = to + 6; end < p->line_end && hri_is_letter(p->text[end]);) end++;
    return hri_match_end(p->text, to + 6, end, "ing");
  }
  return count_words(p->text, p->line, to) <= 5 && hri_match_at_any(p->text, to, p->line_end, how, HRI_COUNT(how));
}

/* "reason: oomkilled", "symptom: ...": labels of what happened. */
static bool is_described(const hri_oom_place *p) {
  static const char *const labels[] = {"reason", "symptom"};
  return hri_match_part(p->text, p->line, p->line + 24 < p->at ? p->line + 24 : p->at, labels, HRI_COUNT(labels));
}

/* Whether words before it in its sentence make it a case. */
static bool is_case_of(const hri_oom_place *p) {
  static const char *const cases[] = {"if",    "when",  "whenever", "may", "might", "can",
                                      "could", "would", "what",     "why", "how",   "avoid"};
  size_t from = hri_sentence_start(p->text, p->sentence, p->at);
  return hri_match_any(p->text, from, p->at, cases, HRI_COUNT(cases));
}

/* Whether the message at the place is reported there: by its figures alone, or by what the signs around it come to. */
static bool is_heard(const hri_oom_place *p, const hri_oom_message *m, phrase f) {
  const uint32_t figures = figure_count(m);
  uint64_t signs = 0;
  if (hri_voice_denies(p)) return false;
  if (!m->general && hri_voice_raised(p)) return true;
  if (figures > 0 && (is_noted_in_source(p) || is_template(p))) return false;
  if (hri_voice_foreseen(p)) return false;
  if (figures >= 2 && !(p->shape & HRI_OOM_SOURCE)) return true;
  if (figures == 0 && hri_voice_introduced(p)) return false;
  if (figures == 0 && hri_voice_placeholder(p)) return false;
  if (figures > 0 && !m->general && !(p->shape & (HRI_OOM_SOURCE | HRI_OOM_AMONG | HRI_OOM_LITERAL)) &&
      is_concrete(p->text, p->line, p->line_end))
    return true;
  if (m->general) signs |= HRI_SIGN_BIT(HRI_SIGN_GENERAL);
  if (f.is_code) signs |= HRI_SIGN_BIT(HRI_SIGN_NAME);
  if (m->named) signs |= HRI_SIGN_BIT(HRI_SIGN_NAMED);
  if (strcmp(m->failure.source, "kill") == 0 || (strcmp(m->failure.source, "kernel") == 0 && f.is_code))
    signs |= HRI_SIGN_BIT(HRI_SIGN_KILL);
  if (figures > 0) signs |= HRI_SIGN_BIT(HRI_SIGN_FIGURE);
  signs |= hri_voice_shape(p, f.from, f.to, f.is_code);
  signs |= hri_voice_talk(p, m, f.from, f.to, signs);
  if (tells_of_kill(p) && f.to < p->count && strchr("\"'", p->text[f.to])) signs &= ~HRI_SIGN_BIT(HRI_SIGN_QUOTED);
  if (f.is_code && is_known_class(p, f.from) &&
      (signs & HRI_SIGN_BIT(HRI_SIGN_TOLD) || (p->shape & HRI_OOM_TITLE && f.from <= p->line + 11)))
    signs &= ~HRI_SIGN_BIT(HRI_SIGN_GENERAL);
  if (is_title_of_event(p, f.from, f.to)) {
    signs |= HRI_SIGN_BIT(HRI_SIGN_TOLD);
    signs &= ~(HRI_SIGN_BIT(HRI_SIGN_NAMED) | HRI_SIGN_BIT(HRI_SIGN_TICKED));
  }
  if (!(signs & HRI_SIGN_BIT(HRI_SIGN_TOLD)) || signs & HRI_SIGN_BIT(HRI_SIGN_TOPIC))
    signs &= ~HRI_SIGN_BIT(HRI_SIGN_MINE);
  if (signs & HRI_SIGN_BIT(HRI_SIGN_TOLD)) /* whose event it was, and what else they say of it */
    signs &= ~HRI_SIGN_BIT(HRI_SIGN_PERSON);
  if (strcmp(m->failure.source, "java") == 0 && m->kind == HRI_OOM_HOST) /* each of its lines begins with "#" */
    signs &= ~HRI_SIGN_BIT(HRI_SIGN_COMMENT);
  if (speaks_to_user(p, m)) signs &= ~(HRI_SIGN_BIT(HRI_SIGN_CONDITION) | HRI_SIGN_BIT(HRI_SIGN_PERSON));
  if (strcmp(m->failure.source, "notebook") == 0 && !is_case_of(p)) /* whoever quotes it: it speaks to one person */
    signs &= ~(HRI_SIGN_BIT(HRI_SIGN_QUOTED) | HRI_SIGN_BIT(HRI_SIGN_COMMENT));
  if (signs & (HRI_SIGN_BIT(HRI_SIGN_TOPIC) | HRI_SIGN_BIT(HRI_SIGN_PATTERN)) &&
      !is_described(p)) /* what stands before it is no speaker */
    signs &= ~(HRI_SIGN_BIT(HRI_SIGN_ALONE) | HRI_SIGN_BIT(HRI_SIGN_FIELD));
  if (signs & (HRI_SIGN_BIT(HRI_SIGN_ROW) | HRI_SIGN_BIT(HRI_SIGN_ANSWERED))) signs &= ~CELL_SIGNS;
  if (signs & HRI_SIGN_BIT(HRI_SIGN_SOURCE)) signs &= ~SOURCE_SIGNS;
  if (p->shape & HRI_OOM_BOLD && signs & HRI_SIGN_BIT(HRI_SIGN_OPENS)) /* people set what was printed in bold, too */
    signs &= ~(HRI_SIGN_BIT(HRI_SIGN_ALONE) | HRI_SIGN_BIT(HRI_SIGN_LAST) | HRI_SIGN_BIT(HRI_SIGN_FIELD));
  else if (signs & HRI_SIGN_BIT(HRI_SIGN_HEADING)) signs &= ~CELL_SIGNS; /* it has nothing beside it either */
  return p->ear ? p->ear->hears(p->ear->context, signs) : hri_voice_weigh(signs) > 0;
}

/* Words of TensorFlow's that stand without its name: neither a tag in the line, nor the class of its exceptions, nor a path
 * beside it. */
static bool is_untagged(const hri_oom_place *p, const hri_oom_message *m) {
  static const char *const names[] = {"resourceexhausted",
                                      "resource_exhausted",
                                      "resource exhausted",
                                      "_bfc",
                                      "/job:",
                                      "[[node",
                                      "[[{{node",
                                      "streamexecutor",
                                      "bytes) from device: cuda_error"};
  const size_t far = p->before_count, from = far > 400 ? far - 400 : 0;
  const size_t behind = p->line_end + 200 < p->count ? p->line_end + 200 : p->count;
  const char *who;
  if (strcmp(m->failure.source, "tensorflow") != 0) return false;
  if (hri_oom_is_own_line(p->text, p->line, p->line_end, p->at, p->at, "tensorflow")) return false;
  if (hri_match_part(p->text, p->line, p->line_end, names, HRI_COUNT(names)) ||
      has_place(p->text, p->line, p->line_end))
    return false;
  who = hri_oom_framework_near(p->before, from, far);
  if (!who) who = hri_oom_framework_near(p->text, p->line_end, behind);
  return !who || strcmp(who, "tensorflow") != 0;
}

void hri_oom_add_words(const hri_oom_place *p, hri_oom_message *m) {
  static const char *const ends[] = {"kernel", "kill",   "slurm",
                                     "ray",    "nohang", "android"}; /* they print others' sizes */
  bool bare = m->kind == HRI_OOM_BARE || m->kind == HRI_OOM_LIBRARY || m->kind == HRI_OOM_DRIVER;
  bool host = m->kind == HRI_OOM_HOST || m->kind == HRI_OOM_HOST_LIKELY || m->kind == HRI_OOM_PINNED;
  bool reads = m->failure.figures[HR_OOM_REQUESTED].state == HR_OOM_ABSENT;
  if (bare || m->kind == HRI_OOM_FOREIGN_LIKELY) name_by_line(p, m);
  else if (m->kind == HRI_OOM_FOREIGN && is_untagged(p, m)) m->anybodys = true;
  for (size_t i = 0; i < HRI_COUNT(ends); i++) reads = reads && strcmp(m->failure.source, ends[i]) != 0;
  if (reads && (bare || host || m->kind == HRI_OOM_FOREIGN || m->kind == HRI_OOM_FOREIGN_LIKELY)) read_by_words(p, m);
  if (bare && figure_count(m) <= 1) read_free_near(p, m);
  if (!is_heard(p, m, head_phrase(p))) m->kind = HRI_OOM_NOTHING;
}

/* Where a phrase must end: a record of a log ends with its line, other text may have been wrapped. */
static size_t phrase_end(const hri_oom_place *p) {
  return p->shape & (HRI_OOM_DATED | HRI_OOM_ROW) ? p->line_end : p->count;
}

bool hri_oom_is_reported(const hri_oom_place *p) {
  phrase f;
  return find_phrase(p->text, p->line, p->at, phrase_end(p), &f) && !is_other(p, &f);
}

hri_oom_kind hri_oom_report(const hri_oom_place *p, hri_oom_message *m, size_t *end) {
  phrase f;
  size_t from;
  *end = p->at + 1;
  m->kind = HRI_OOM_NOTHING;
  if (!find_phrase(p->text, p->line, p->at, phrase_end(p), &f) || is_other(p, &f)) return HRI_OOM_NOTHING;
  m->failure.device_index = -1;
  m->failure.wording = m->failure.framework = m->failure.phase = "";
  m->exact = m->cut = false;
  hri_oom_name_speaker(p, f.from, f.to, m);
  from = hri_sentence_start(p->text, p->line, f.from);
  *end = report_end(p, &f, m->kind == HRI_OOM_HOST ? 160 : 60);
  hri_oom_read_labelled(p->text, from, p->line_end, *end, m->failure.figures);
  if (m->kind == HRI_OOM_FOREIGN) read_usage(p, f.to, m);
  if (m->kind == HRI_OOM_LIMIT) read_share_used(p, f.to, &m->failure.figures[HR_OOM_ALLOWED]);
  if (!is_heard(p, m, f)) m->kind = HRI_OOM_NOTHING;
  if (*end > p->line_end && p->line_end > p->at) *end = p->line_end;
  return m->kind;
}
