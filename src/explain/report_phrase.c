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
static size_t find_back(const char *text, size_t line, size_t at, size_t reach, const char *words, unsigned most) {
  const size_t start = hri_sentence_start(text, at > line + reach ? at - reach : line, at);
  unsigned blanks = 0;
  for (size_t i = at, end; i-- > start && blanks <= most;) {
    blanks += text[i] == ' ';
    if (!hri_is_letter(text[i]) || (i > start && hri_is_name(text[i - 1]))) continue;
    end = hri_match_next(text, i, at, words);
    if (end > i && (end == at || !hri_is_name(text[end]))) return i;
  }
  return at;
}

static const char negations[] =
    "failed to|fails to|fail to|failure to|unable to|not able to|cannot be|cannot|can not|can't|"
    "could not|couldn't|refused to|failed while|failed in|impossible to|not possible to|"
    "insufficient|unsuccessful";
static const char failing[] =
    "failed|failedaborted|failure|failing|fails|fail|refused|unsuccessful|returned null|not possible";
static const char beyond[] = "greater than|larger than|exceeds|exceed |more than|bigger than";

/* What can be allocated that is memory; what comes first behind the verb and is none. */
static const char objects[] =
    "memory|memory.|buffer|buffers|bytes|byte|mb|gb|kb|mib|gib|kib|tb|tib|tensor|tensors|array|vector|vram|ram|"
    "workspace|cache|heap|storage|page|pages|region|segment|segments|cuda|gpu|device|hip|matrix|chunk|tokens|scratch|"
    "blocks|slab|arena|pinned|address space|weights";
static const char others[] =
    " port| ip | ip-| tty| pty| pseudo| job| node| resource| gpus| slot| task| handle| socket| thread|"
    " address | cpus| cores| a port| inode| an id| a pty| pod| subnet| volume| a gpu| quota";
/* Functions whose very name is a request for memory. */
static const char functions[] =
    "memoryalloc|malloc|calloc|realloc|memalign|cumemcreate|memalloc|allocatememory|hostalloc|bad_alloc|mem_alloc|alloc_gmem";

static bool speaks_of_memory(const char *text, size_t from, size_t verb, size_t verb_end, size_t to) {
  size_t end = verb_end + 120 < to ? verb_end + 120 : to;
  if (hri_match_at(text, verb_end, end, others)) return false;
  if (hri_match_part(text, verb, verb_end, functions)) return true;
  if (hri_match_at(text, verb_end, end, " of size ")) {
    size_t at = verb_end + 9;
    while (at < end && text[at] == ':') at++;
    if (at < end && hri_is_digit(text[at])) return true;
  }
  end = hri_sentence_end(text, verb_end, end);
  for (size_t i = verb_end; i + 3 < end; i++) /* "163840 KB", "12.5GB" */
    if (hri_is_digit(text[i]) && (text[i + 1] == 'm' || text[i + 1] == 'g' || text[i + 1] == 'k') && text[i + 2] == 'b')
      return true;
  return hri_match_any(text, from, end, objects);
}

bool hri_oom_is_error_name(const char *text, size_t from, size_t to) {
  return hri_match_end(
      text, from, to,
      "out_of_memory|outofmemory|outofmemoryerror|outofmemoryexception|out_of_memory_error|alloc_failed|"
      "allocation_failed|allocation_failure|allocationfailed|allocationfailure|out_of_device_memory|"
      "out_of_host_memory|outofdevicememory|outofhostmemory|out_of_resources|memory_allocation|"
      "memoryallocation|memory_error|enomem|insufficient_memory|no_memory|not_enough_memory|"
      "memoryexhausted|malloc_fail|malloc_failed|alloc_fail|outofmemoryerror'>");
}

/* What may stand between "out of" and "memory", or before "allocation failed": whose or which memory it is. */
static const char modifiers[] =
    "device-|allocatable|host|cuda|hip|system|video|shared|physical|virtual|free|available|more|enough|cpu|pinned|"
    "heap|the|local|global|kv|cache|graphics|main|dedicated|contiguous|on-chip|unified|and|or|of|ram|node|process|job|"
    "step|its|hbm|npu|vulkan|metal|dram|all|memory|amount|requested|remaining|java|native|swap|workspace|tensor|"
    "temporary|server|gpu's|vram|allocated|container|per-process|opencl|sycl|xpu|mps|xla|large|huge|buffer|runtime|"
    "usable|worker|address|space|maximum|limit|backend|direct|os|stack|array|per-node|query|user|total|gpu|device|max|"
    "distributed|allowed|a";

static bool is_modifier(const char *text, size_t from, size_t to) {
  while (from < to && strchr("(\"'[", text[from])) from++;
  while (to > from && strchr(")\"',]", text[to - 1])) to--;
  if (hri_match_next(text, from, to, modifiers) == to) return true;
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
  static const char bounds[] = "maximum|max|limit|available|total|capacity|remaining|free";
  const size_t end = hri_sentence_end(text, to, to + 100 < count ? to + 100 : count);
  const bool done = hri_match_end(text, from, to, "ed"), agent = hri_match_end(text, from, to, "or");
  size_t at = find_back(text, line, from, 56, negations, 8), behind;
  if (at < from && hri_match_end(text, from, to, "ing") &&
      !hri_match_at(text, at, from, "failed while|failed in|insufficient"))
    at = from; /* "cannot find buffer, mallocing new one" */
  if (at < from && (!done || hri_oom_word(text, at, from, " be ") < from)) {
    *p = (hri_oom_phrase){at, to, false};
    if (done) /* "3 gib of memory could not be allocated": what it was stands before */
      return speaks_of_memory(text, at > line + 60 ? at - 60 : line, from, to, count);
    return !agent && speaks_of_memory(text, at, from, to, count);
  }
  at = find_back(text, line, from, 24, "error|failed|failure|fatal", 5);
  if (at < from && hri_oom_word(text, at, from, ":") == from && !done && !agent &&
      (hri_match_end(text, from, to, "ing") || hri_match_part(text, at, from, " in | of "))) {
    *p = (hri_oom_phrase){at, to, false}; /* "error allocating 3 gb", "failure in cudamalloc" */
    return speaks_of_memory(text, at, from, to, count);
  }
  if (agent || done) return false;
  p->from = hri_oom_with_modifiers(text, line, from);
  p->is_code = false;
  at = hri_match_whole(text, to, end, beyond); /* "attempting to allocate 3 gb which is greater than the maximum" */
  if (at < end && hri_match_any(text, at, at + 60 < count ? at + 60 : count, bounds)) {
    p->to = hri_match_next(text, at, end, beyond);
    return speaks_of_memory(text, from, from, to, count);
  }
  at = hri_match_whole(text, to, end, failing);
  if (at < end && (hri_match_any(text, to, at, "never") || hri_match_end(text, to, at, " to "))) return false;
  if (at < end) {
    p->to = hri_match_next(text, at, end, failing);
    if (at - to <= 8 && hri_match_end(text, line, from, "memory ")) return true; /* "memory allocation still failed" */
    return speaks_of_memory(text, at - to <= 4 ? p->from : from, from, to, count);
  }
  behind = hri_match_next(text, to, count, " error|: error"); /* "memory allocation error"; several are a topic */
  if (hri_match_at(text, behind, count, "s")) return false;
  p->to = behind;
  return behind > to && speaks_of_memory(text, p->from, from, to, count);
}

/* Memory, at text[from, to), that is lacking. */
static bool find_lack(const char *text, size_t line, size_t from, size_t to, size_t count, hri_oom_phrase *p) {
  static const char before[] =
      "out of|out-of|not enough|insufficient|no|lack of|exhausted|too little|too much|exceeded|exceeds|"
      "exceeding|not provide enough|not have enough|doesn't have enough";
  static const char behind[] =
      " exhausted| is exhausted| limit exceeded| exceeded| is full| overflow| is insufficient| insufficient| isn't enough|"
      " is not enough| not enough| not sufficient| is not sufficient| limit reached| was exhausted| ran out| has run out|"
      " usage limit reached| allocation limit reached| budget exceeded| quota exceeded| quota!|"
      " depleted| space exhausted| isn't sufficient";
  static const char doing[] = " while allocating| when allocating| trying to allocate| while trying to allocate";
  const bool shared = hri_match_end(text, line, from, "shared ");
  const size_t near = hri_sentence_end(text, to, to + 80 < count ? to + 80 : count);
  size_t at = find_back(text, line, from, 48, before, 8), between = hri_match_next(text, at, from, before), close;
  if (hri_match_at(text, to, count, " (oom) killer| killer|?")) return false;
  if (at < from && between < from && are_modifiers(text, between + 1, from)) {
    *p = (hri_oom_phrase){at, hri_match_next(text, to, count, doing), false};
    if (hri_match_at(text, at, from, "exceed")) /* "exceeded job memory limit" */
      return hri_match_at(text, to, count, " limit| budget| quota");
    if (hri_match_at(text, at, from, "too much")) return shared;
    if (hri_match_at(text, at, from, "lack of")) /* alone it names a thing: "lack of memory for spikes" */
      return hri_match_end(text, line, at, "due to |because of |by |: ") || at == line;
    if (!hri_match_at(text, at, from, "no ")) return true;
    return to == count || strchr(".,:)(;!", text[to]) ||
           hri_match_at(text, to, count, " available| left| for| to | on | remaining| could| in ");
  }
  *p = (hri_oom_phrase){hri_oom_with_modifiers(text, line, from), to, false};
  if (hri_match_at(text, to, count, " limit (")) { /* "memory limit (total) exceeded" */
    close = hri_oom_word(text, to, near, ") exceeded");
    p->to = close + strlen(") exceeded");
    if (close < near) return true;
  }
  if (hri_match_at(text, to, count, " usage ")) { /* "memory usage 419.6 mb exceeds limit 419.4 mb" */
    close = hri_match_first(text, to, near, " exceeds limit| exceeds the limit| exceeded limit| exceeded the limit");
    p->to = close;
    if (close < near) return true;
  }
  p->to = hri_match_next(text, to, count, behind);
  return p->to > to || (shared && hri_oom_word(text, to, near, "exceed") < near);
}

/* "oom" as a word: of somebody who met it, not a counter or the name of a setting. */
static bool find_oom(const char *text, size_t line, size_t from, size_t to, size_t count, hri_oom_phrase *p) {
  static const char behind[] =
      ".|)|]|:|!| error| when| while| after | from | killed| during| on gpu| on device| in | at | trying";
  static const char before[] =
      "due to|by|hit|got|because of|reason:|error:|gpu|cuda|host|encountered|status:|error|with|into|"
      "getting|get an|get a|get|gets|cause|causes|caused";
  *p = (hri_oom_phrase){from, to, false};
  if (hri_match_at(text, to, count, ") killer|: 0|s:|=")) return false;
  if (hri_match_at(text, to, count, " killed") &&
      hri_match_end(text, line, from, "that got |that get |that were |which got "))
    return false; /* of a kind */
  return to == count || hri_match_at(text, to, count, behind) || find_back(text, line, from, 16, before, 3) < from;
}

/* Behind a participle: what is of that kind, "oomed pods". */
static const char plurals[] = " pods| jobs| tasks| containers| processes| workers| stressors| instances| requests";

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
    return !hri_match_at(text, to, count, plurals);
  }
  if (to - from == 4 && hri_match_at(text, from, to, "ooms")) { /* "my run always ooms after an epoch" */
    p->is_code = false;
    return hri_match_at(text, to, count, " after | when i | when running | at | on ") &&
           hri_match_end(text, line, from, "it |run |training |always |still |job |model |script |this ");
  }
  if (to - from == 6 && hri_match_at(text, from, to, "ooming")) { /* "we were ooming when launching" */
    p->is_code = false;
    return hri_match_end(text, line, from, "were |was |is |are |keeps |kept |been |started |be ");
  }
  if (to - from == 3 && hri_match_at(text, from, to, "oom") && hri_match_at(text, to, count, "'d |'ed ")) {
    *p = (hri_oom_phrase){from, to + 2, false};
    return !hri_match_at(text, to + 2, count, plurals);
  }
  if (to - from == 3 && hri_match_at(text, from, to, "oom")) return find_oom(text, line, from, to, count, p);
  if (to + 1 < count && text[to] == '.' && hri_is_letter(text[to + 1])) return false; /* "alloc.h:48" */
  if (hri_oom_word(text, from, to, "alloc") < to || hri_oom_word(text, from, to, "mmap") < to ||
      hri_match_at(text, from, to, "reserve") || hri_oom_word(text, from, to, "create") < to ||
      hri_oom_word(text, from, to, "pin") == from)
    return find_verb(text, line, from, to, count, p);
  if (hri_match_at(text, from, to, "memory|vram|ram|hbm|heap|address"))
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
  static const char other[] =
      "driver version|no cuda-capable|invalid device|permission denied|invalid argument|device-side assert|"
      "illegal memory|not supported|initialization error|invalid configuration|unauthorized|timed out|number of devices|"
      "pointer being freed|invalid pointer|corrupted";
  return hri_match_any(p->text, p->line, f->to,
                       "disk|inodes|license|file system|nodes are available|skipped|system call (socket|fishy") ||
         hri_match_part(p->text, f->to, hri_sentence_end(p->text, f->to, p->line_end), other);
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
