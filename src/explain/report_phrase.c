/* What failed, found by structure: a verb of allocation with words that it failed (find_verb), memory that is lacking
 * (find_lack), "oom" as a word (find_oom), or a name that says so (hri_oom_is_error_name). Which words belong to the phrase
 * is decided here and nowhere else; the signs that its neighbours gather are about its two ends.
 *
 * The neighbours may rely on this: a phrase never begins before its line, and ends in it unless the line may have been
 * wrapped (phrase_end). What else the sentence says is not judged here, but for errors of another kind (is_other): "how to
 * avoid X" has the phrase X. */
#include "explain/match.h"
#include "explain/report_parts.h"
#include "explain/wording.h"

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

bool hri_oom_is_error_name(const char *text, size_t from, size_t to) {
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
     "os",        "stack",   "array",     "per-node",    "query",       "user",      "total",     "distributed",
     "allowed"};

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

size_t hri_oom_with_modifiers(const char *text, size_t line, size_t from) {
  while (from > line + 1 && text[from - 1] == ' ') {
    size_t start = from - 1;
    while (start > line && text[start - 1] != ' ') start--;
    if (start == from - 1 || !is_modifier(text, start, from - 1)) break;
    from = start;
  }
  return from;
}

/* A verb of allocation at text[from, to) that failed, by the words before or behind it. */
static bool find_verb(const char *text, size_t line, size_t from, size_t to, size_t count, hri_oom_phrase *p) {
  size_t end = hri_sentence_end(text, to, to + 100 < count ? to + 100 : count), before, near;
  bool done = hri_match_at(text, to - (to - from < 2 ? 0 : 2), to, "ed"), agent = hri_match_at(text, to - 2, to, "or");
  before = find_back(text, line, from, 56, negations, HRI_COUNT(negations), 5);
  if (before < from && hri_match_end(text, from, to, "ing") && !hri_match_at(text, before, from, "failed while") &&
      !hri_match_at(text, before, from, "failed in") && !hri_match_at(text, before, from, "insufficient"))
    before = from; /* "cannot find buffer, mallocing new one" */
  if (before < from && (!done || hri_oom_word(text, before, from, " be ") < from)) {
    *p = (hri_oom_phrase){before, to, false};
    if (done) /* "3 gib of memory could not be allocated": what it was stands before */
      return speaks_of_memory(text, before > line + 60 ? before - 60 : line, from, to, count);
    return !agent && speaks_of_memory(text, before, from, to, count);
  }
  near = find_back(text, line, from, 24, erring, HRI_COUNT(erring), 2);
  if (near < from && hri_oom_word(text, near, from, ":") == from && !done && !agent &&
      (hri_match_at(text, to - 3, to, "ing") || hri_oom_word(text, near, from, " in ") < from ||
       hri_oom_word(text, near, from, " of ") < from)) { /* "error allocating 3 gb", "failure in cudamalloc" */
    *p = (hri_oom_phrase){near, to, false};
    return speaks_of_memory(text, near, from, to, count);
  }
  if (agent || done) return false;
  for (size_t i = 0; i < HRI_COUNT(beyond); i++) { /* "attempting to allocate 3 gb which is greater than the maximum" */
    static const char *const bounds[] = {"maximum", "max",      "limit",     "available",
                                         "total",   "capacity", "remaining", "free"};
    size_t at = hri_oom_word(text, to, end, beyond[i]), near_end = at + 60 < count ? at + 60 : count;
    if (at == end || !hri_match_any(text, at, near_end, bounds, HRI_COUNT(bounds))) continue;
    *p = (hri_oom_phrase){hri_oom_with_modifiers(text, line, from), at + strlen(beyond[i]), false};
    return speaks_of_memory(text, from, from, to, count);
  }
  for (size_t i = 0; i < HRI_COUNT(failing); i++) {
    size_t at = hri_match_whole(text, to, end, failing[i]);
    if (at == end) continue;
    *p = (hri_oom_phrase){hri_oom_with_modifiers(text, line, from), at + strlen(failing[i]), false};
    if (at - to <= 8 && hri_match_end(text, line, from, "memory ")) return true; /* "memory allocation still failed" */
    return speaks_of_memory(text, at - to <= 4 ? p->from : from, from, to, count);
  }
  if (hri_match_at(text, to, count, " errors")) return false; /* many are a topic */
  if (hri_match_at(text, to, count, " error") ||
      hri_match_at(text, to, count, ": error")) { /* "memory allocation error" */
    *p = (hri_oom_phrase){hri_oom_with_modifiers(text, line, from), to + 6, false};
    return speaks_of_memory(text, p->from, from, to, count);
  }
  return false;
}

/* Memory, at text[from, to), that is lacking. */
static bool find_lack(const char *text, size_t line, size_t from, size_t to, size_t count, hri_oom_phrase *p) {
  static const char *const before[] =
      {"out of",  "out-of",    "not enough",         "insufficient",    "no",
       "lack of", "exhausted", "too little",         "too much",        "exceeded",
       "exceeds", "exceeding", "not provide enough", "not have enough", "doesn't have enough"};
  static const char *const behind[] = {" exhausted",
                                       " is exhausted",
                                       " limit exceeded",
                                       " exceeded",
                                       " is full",
                                       " overflow",
                                       " is insufficient",
                                       " insufficient",
                                       " isn't enough",
                                       " is not enough",
                                       " not enough",
                                       " not sufficient",
                                       " is not sufficient",
                                       " limit reached",
                                       " was exhausted",
                                       " ran out",
                                       " usage limit reached",
                                       " allocation limit reached",
                                       " budget exceeded",
                                       " quota exceeded",
                                       " quota!",
                                       " has run out",
                                       " depleted",
                                       " space exhausted",
                                       " isn't sufficient"};
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
    *p = (hri_oom_phrase){at, to, false};
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
    *p = (hri_oom_phrase){hri_oom_with_modifiers(text, line, from), close + 10, false};
    if (close < (to + 48 < count ? to + 48 : count)) return true;
  }
  *p = (hri_oom_phrase){hri_oom_with_modifiers(text, line, from), to, false};
  for (size_t i = 0; i < HRI_COUNT(behind); i++)
    if (hri_match_at(text, to, count, behind[i])) {
      p->to += strlen(behind[i]);
      return true;
    }
  return shared && hri_oom_word(text, to, hri_sentence_end(text, to, to + 80 < count ? to + 80 : count), "exceed") <
                       hri_sentence_end(text, to, to + 80 < count ? to + 80 : count);
}

/* "oom" as a word: of somebody who met it, not a counter or the name of a setting. */
static bool find_oom(const char *text, size_t line, size_t from, size_t to, size_t count, hri_oom_phrase *p) {
  static const char *const behind[] = {":",       " error",  " when",      " while", "!",    " killed",
                                       " during", " on gpu", " on device", " in ",   " at ", " trying"};
  static const char *const before[] = {"due to", "by",   "hit",  "got",    "because of",  "reason:",
                                       "error:", "gpu",  "cuda", "host",   "encountered", "status:",
                                       "error",  "with", "into", "getting"};
  bool found = to == count || text[to] == '.' || text[to] == ')' || text[to] == ']';
  for (size_t i = 0; i < HRI_COUNT(behind) && !found; i++) found = hri_match_at(text, to, count, behind[i]);
  found = found || find_back(text, line, from, 16, before, HRI_COUNT(before), 0) < from;
  *p = (hri_oom_phrase){from, to, false};
  if (hri_match_at(text, to, count, ") killer") || hri_match_at(text, to, count, ": 0") ||
      hri_match_at(text, to, count, "s:") || hri_match_at(text, to, count, "="))
    return false;
  return found;
}

/* The phrase to which the word at text[at] belongs. */
static bool find_phrase(const char *text, size_t line, size_t at, size_t count, hri_oom_phrase *p) {
  size_t from = at + (text[at] == ' '), to = from;
  while (from > line && hri_is_name(text[from - 1])) from--;
  while (to < count && hri_is_name(text[to])) to++;
  *p = (hri_oom_phrase){from, to, true};
  if (from > line && text[from - 1] == '+') return false; /* an option of a virtual machine's */
  if (hri_oom_is_error_name(text, from, to)) {            /* not an enumerator */
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
    *p = (hri_oom_phrase){from, to + 2, false};
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
    *p = (hri_oom_phrase){from > line + 7 ? from - 7 : line, to, false};
    return from > line + 7 && hri_match_at(text, from - 7, from, "out of ") &&
           hri_oom_word(text, from > line + 80 ? from - 80 : line, from, "clenqueue") < from;
  }
  if (hri_match_at(text, from, to, "paging")) {
    *p = (hri_oom_phrase){from, to, false};
    return hri_match_at(text, to, count, " file is too small");
  }
  return false;
}

/* What the words around the phrase say: an error of another kind, or of something else that ran out. */
static bool is_other(const hri_oom_place *p, const hri_oom_phrase *f) {
  static const char *const other[] = {"driver version",       "no cuda-capable",
                                      "invalid device",       "permission denied",
                                      "invalid argument",     "device-side assert",
                                      "illegal memory",       "not supported",
                                      "initialization error", "invalid configuration",
                                      "unauthorized",         "timed out",
                                      "number of devices",    "pointer being freed",
                                      "invalid pointer",      "corrupted"};
  static const char *const elsewhere[] = {"disk", "inodes", "license", "file system", "nodes are available", "skipped"};
  return hri_match_any(p->text, p->line, f->to, elsewhere, HRI_COUNT(elsewhere)) ||
         hri_match_part(p->text, f->to, hri_sentence_end(p->text, f->to, p->line_end), other, HRI_COUNT(other));
}

/* Where a phrase must end: a record of a log ends with its line, other text may have been wrapped. */
static size_t phrase_end(const hri_oom_place *p) {
  return p->shape & (HRI_OOM_DATED | HRI_OOM_ROW) ? p->line_end : p->count;
}

bool hri_oom_find_phrase(const hri_oom_place *p, hri_oom_phrase *f) {
  return find_phrase(p->text, p->line, p->at, phrase_end(p), f) && !is_other(p, f);
}

hri_oom_phrase hri_oom_head_phrase(const hri_oom_place *p) {
  const hri_oom_head *head = hri_oom_head_at(p->text, p->at, p->count);
  hri_oom_phrase f = {hri_oom_with_modifiers(p->text, p->line, p->at), p->at + strlen(head->words), false};
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
