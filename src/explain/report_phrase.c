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
  if (hri_match_at(text, verb_end, end, others) || hri_match_end(text, from, verb, "resource ")) return false;
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
      "memoryexhausted|malloc_fail|malloc_failed|alloc_fail|outofmemoryerror'>|outofmemoryexceptions|outofmemoryerrors|"
      "outofmemorygraphics");
}

/* What may stand between "out of" and "memory", or before "allocation failed": whose or which memory it is. */
static const char modifiers[] =
    "device-|allocatable|host|cuda|hip|system|video|shared|physical|virtual|free|available|more|enough|cpu|pinned|"
    "heap|the|local|global|kv|cache|graphics|main|dedicated|contiguous|on-chip|unified|and|or|of|ram|node|process|job|"
    "step|its|hbm|npu|vulkan|metal|dram|all|memory|amount|requested|remaining|java|native|swap|workspace|tensor|"
    "temporary|server|gpu's|vram|allocated|container|per-process|opencl|sycl|xpu|mps|xla|large|huge|buffer|runtime|"
    "usable|worker|address|space|maximum|limit|backend|direct|os|stack|array|per-node|query|user|total|gpu|device|max|"
    "distributed|allowed|graphic|a";

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
    *p = (hri_oom_phrase){at, to, false, false};
    if (done) /* "3 gib of memory could not be allocated": what it was stands before */
      return speaks_of_memory(text, at > line + 60 ? at - 60 : line, from, to, count);
    return !agent && speaks_of_memory(text, at, from, to, count);
  }
  at = find_back(text, line, from, 24, "error|failed|failure|fatal", 5);
  if (at < from && hri_oom_word(text, at, from, ":") == from && !done && !agent &&
      (hri_match_end(text, from, to, "ing") || hri_match_part(text, at, from, " in | of "))) {
    *p = (hri_oom_phrase){at, to, false, false}; /* "error allocating 3 gb", "failure in cudamalloc" */
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

/* "Reading the weights out of memory": what is moved stands before text[at], no error and no verb of its own. */
static bool is_moved(const char *text, size_t line, size_t at) {
  static const char moving[] =
      "reading|read|reads|streaming|streams|streamed|fetching|fetched|moving|moved|copying|copied|put|pushed|kicked|swapped|"
      "unloaded|evicted";
  static const char failing_too[] = "ran|run|runs|running|is|was|went|got|error|failed|fails|with|died|crashed|an|the";
  const size_t from = hri_sentence_start(text, at > line + 48 ? at - 48 : line, at);
  if (!hri_match_at(text, at, at + 6, "out of") || at < line + 2 || !hri_is_letter(text[at - 2])) return false;
  return hri_match_any(text, from, at, moving) && hri_match_last(text, from, at - 1, failing_too) == at - 1 &&
         !hri_match_any(text, from, at, "error|failed|fails|ran");
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
      " depleted| space exhausted| isn't sufficient|"
      /* Korean: lacks; Chinese and Japanese: lacking, not enough, overflowed, burst */
      "\xea\xb0\x80 \xeb\xb6\x80\xec\xa1\xb1| \xeb\xb6\x80\xec\xa1\xb1|\xeb\xb6\x80\xec\xa1\xb1|"
      "\xe4\xb8\x8d\xe8\xb6\xb3| \xe4\xb8\x8d\xe8\xb6\xb3|\xe4\xb8\x8d\xe5\xa4\x9f|\xe6\xba\xa2\xe5\x87\xba|\xe7\x88\x86";
  static const char doing[] = " while allocating| when allocating| trying to allocate| while trying to allocate";
  /* what took all of it, and what came of it: neither says that something was refused */
  static const char taking[] =
      "used up|uses up|using up|eats up|eat up|ate up|eats|eating|ate|fills|filled|filling|takes all|took all|consumes|consumed|"
      "used all|uses all|maxes out|maxed out|maxing out|exceed|exceeds|exceeded|lacks|blows up|blew up|lack of|exhaustion of";
  static const char ending[] =
      " runs out| run out| ran out| running out| is gone| was gone| full| is full| was full| gets full| got full| fills up| filled up|"
      " is used up| was used up| gets exhausted| got exhausted| blows up| blew up| explodes| exploded| explosion| is too small|"
      " is out| error| errors| overflows| overflowed| crash| exhaustion";
  const bool shared = hri_match_end(text, line, from, "shared ");
  const size_t near = hri_sentence_end(text, to, to + 80 < count ? to + 80 : count);
  size_t at = find_back(text, line, from, 48, before, 8), between = hri_match_next(text, at, from, before), close;
  if (hri_match_at(text, to, count, " (oom) killer| killer|?")) return false;
  if (hri_match_at(text, to, count, " overflow calc| overflow check| overflow polic| overflow to ")) return false;
  if (at < from && is_moved(text, line, at)) return false;
  if (at < from && between < from && are_modifiers(text, between + 1, from)) {
    *p = (hri_oom_phrase){at, hri_match_next(text, to, count, doing), false, false};
    if (hri_match_at(text, at, from, "exceed")) /* "exceeded job memory limit" */
      return hri_match_at(text, to, count, " limit| budget| quota");
    if (hri_match_at(text, at, from, "too much")) return shared;
    if (hri_match_at(text, at, from, "lack of")) /* alone it names a thing: "lack of memory for spikes" */
      return hri_match_end(text, line, at, "due to |because of |by |: ") || at == line;
    if (!hri_match_at(text, at, from, "no ")) return true;
    return to == count || strchr(".,:)(;!", text[to]) ||
           hri_match_at(text, to, count, " available| left| for| to | on | remaining| could| in ");
  }
  *p = (hri_oom_phrase){hri_oom_with_modifiers(text, line, from), to, false, false};
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
  if (p->to > to || (shared && hri_oom_word(text, to, near, "exceed") < near)) return true;
  p->is_loose = true;
  at = find_back(text, line, from, 48, taking, 8);
  between = hri_match_next(text, at, from, taking);
  if (at < from && between < from && are_modifiers(text, between + 1, from)) {
    p->from = at;
    return true;
  }
  p->to = hri_match_next(text, to, count, ending);
  return p->to > to;
}

/* Whether it is one of several causes that a program lists. */
static bool is_one_cause(const char *text, size_t line, size_t at) {
  enum { FAR = 300 };
  return hri_match_part(text, at > line + FAR ? at - FAR : line, at,
                        "root cause|common cause|possible cause|possible reason");
}

/* "Batch size 64 failed: oom" and nothing behind, or ", batch size 32 ok": what was tried stands before it. */
static bool is_end_of_try(const char *text, size_t line, size_t from, size_t to, size_t count) {
  static const char ends[] = " failed: | crashed: | died: ";
  size_t at = line, end = to;
  if (!hri_match_end(text, line, from, ends) || hri_match_any(text, line, from, "tests|test|tested|modes"))
    return false;
  while (end < count && text[end] == ' ') end++;
  if (end == count) return true;
  while (at < from && !hri_is_digit(text[at])) at++;
  return at < from && text[to] == ',';
}

/* "oom" as a word: of somebody who met it, not a counter or the name of a setting. */
static bool find_oom(const char *text, size_t line, size_t from, size_t to, size_t count, hri_oom_phrase *p) {
  static const char behind[] =
      ".|)|]|:|!| error| when| while| after | from | killed| during| on gpu| on device| in | at | trying";
  static const char before[] =
      "due to|by|hit|got|because of|reason:|error:|gpu|cuda|host|encountered|status:|error|with|into|"
      "getting|get an|get a|get|gets|cause|causes|caused";
  *p = (hri_oom_phrase){from, to, false, false};
  if (hri_match_at(text, to, count, ": 0|s:|=| score|_")) return false;
  p->to = hri_match_next(text, to, count, " killer|-killer|) killer");
  if (p->to > to)
    return p->is_loose =
               (p->to == count || (!hri_is_name(text[p->to]) && text[p->to] != '=')) && !is_one_cause(text, line, from);
  if (hri_match_at(text, to, count, " killed") &&
      hri_match_end(text, line, from, "that got |that get |that were |which got "))
    return false; /* of a kind */
  if (is_end_of_try(text, line, from, to, count)) return true;
  p->is_loose =
      to < count && !hri_match_at(text, to, count, behind) && find_back(text, line, from, 16, before, 3) == from;
  return true;
}

/* Behind a participle: what is of that kind, "oomed pods". */
static const char plurals[] = " pods| jobs| tasks| containers| processes| workers| stressors| instances| requests";

/* Memory in other languages, at text[at], that is lacking: the words that say so stand within some letters of it. */
static bool find_wide(const char *text, size_t line, size_t at, size_t count, hri_oom_phrase *p) {
  enum { BEFORE = 24, BEHIND = 32 };
  static const char behind[] =
      /* Chinese: burst, not enough, overflowed, exhausted, beyond, full, used up */
      "\xe7\x88\x86|\xe4\xb8\x8d\xe8\xb6\xb3|\xe4\xb8\x8d\xe5\xa4\x9f|\xe6\xba\xa2\xe5\x87\xba|"
      "\xe8\x80\x97\xe5\xb0\xbd|\xe7\x82\xb8|\xe8\xb6\x85\xe9\x99\x90|\xe8\xb6\x85\xe5\x87\xba|\xe6\xbb\xa1|"
      "\xe7\x94\xa8\xe5\xae\x8c|"
      /* Japanese: lacking, over, full */
      "\xe4\xb8\x8d\xe8\xb6\xb3|\xe8\xb6\xb3\xe3\x82\x8a|\xe3\x82\xaa\xe3\x83\xbc\xe3\x83\x90\xe3\x83\xbc|"
      "\xe3\x83\x91\xe3\x83\xb3\xe3\x83\x91\xe3\x83\xb3|"
      /* Korean */
      "\xeb\xb6\x80\xec\xa1\xb1|\xec\xb4\x88\xea\xb3\xbc|\xec\x9d\xb4 \xeb\xaa\xa8\xec\x9e\x90|\xea\xb0\x80\xeb\x93\x9d|"
      /* Russian: came to an end, is lacking */
      "\xd0\xba\xd0\xbe\xd0\xbd\xd1\x87\xd0\xb8\xd0\xbb|\xd0\xba\xd0\xbe\xd0\xbd\xd1\x87\xd0\xb0\xd0\xb5\xd1\x82|"
      "\xd0\xbd\xd0\xb5 \xd1\x85\xd0\xb2\xd0\xb0\xd1\x82|"
      /* German, French, Italian, Spanish, Portuguese */
      "voll|reicht nicht|nicht aus|insuffisante|pleine|insufficiente|insuficiente|agotada|esgotada|oom";
  static const char before[] =
      /* Chinese: burst, beyond, no free, overflowed */
      "\xe7\x88\x86|\xe8\xb6\x85|\xe6\xb2\xa1\xe6\x9c\x89\xe7\xa9\xba\xe9\x97\xb2|\xe6\xba\xa2\xe5\x87\xba|"
      /* Japanese: out of */
      "\xe3\x82\xa2\xe3\x82\xa6\xe3\x83\x88\xe3\x82\xaa\xe3\x83\x96|"
      /* Russian: lack of, is lacking */
      "\xd0\xbd\xd0\xb5\xd1\x85\xd0\xb2\xd0\xb0\xd1\x82\xd0\xba|\xd0\xbd\xd0\xb5 \xd1\x85\xd0\xb2\xd0\xb0\xd1\x82|"
      "\xd0\xbd\xd0\xb5\xd0\xb4\xd0\xbe\xd1\x81\xd1\x82\xd0\xb0\xd1\x82\xd0\xbe\xd1\x87\xd0\xbd\xd0\xbe|"
      "\xd0\xbd\xd0\xb5\xd0\xb4\xd0\xbe\xd1\x81\xd1\x82\xd0\xb0\xd1\x82\xd0\xba|"
      /* German, French, Spanish, Portuguese */
      "nicht genug|nicht gen\xc3\xbcgend|zu wenig|kein |plus de|manque de|court de|pas assez de|sin |falta de|no hay suficiente|sem |out of";
  size_t from = at > line + BEFORE ? at - BEFORE : line, to = at + BEHIND < count ? at + BEHIND : count, end = at, lack;
  from = hri_sentence_start(text, from, at);
  to = hri_sentence_end(text, at, to);
  while (end < to && (text[end] & 0x80 || hri_is_letter(text[end]))) end++;
  if (end > at + 12 && (text[at] & 0x80)) end = at + 6;
  *p = (hri_oom_phrase){at, end, false, true};
  lack = hri_match_first(text, at, to, behind);
  if (lack < to) {
    p->to = hri_match_next(text, lack, to, behind);
    return true;
  }
  lack = hri_match_first(text, from, at, before);
  if (lack < at) p->from = lack;
  return lack < at;
}

/* A process that was ended, where memory is spoken of close by: kill.c knows what is told of one whatever stands around. */
static bool find_kill(const char *text, size_t line, size_t from, size_t to, size_t count, hri_oom_phrase *p) {
  enum { NEAR = 160 };
  const size_t near = from > NEAR ? from - NEAR : 0, end = to + NEAR < count ? to + NEAR : count;
  static const char whole[] = "memory|oom|ram|swap|mem|oomd|jetsam|dmesg|cgroup";
  const hri_oom_around around = {.text = text, .start = line, .line = line, .at = from, .after = from, .count = count};
  *p = (hri_oom_phrase){from, to, false, true};
  if (hri_match_next(text, from, to, "kill|kills|killed|killing") != to || (from > line && text[from - 1] == '_') ||
      (from > line && text[from - 1] == '(') || hri_match_end(text, line, from, "successfully ") ||
      (from > line && hri_oom_is_to_be(text, hri_sentence_start(text, line, from), from - 1, from)) ||
      hri_match_at(text, to, count, " process | the | exceeded| for exceeding") || hri_oom_is_of_all(&around) ||
      hri_oom_is_by_other_signal(&around) || is_one_cause(text, line, from))
    return false;
  return hri_match_any(text, near, end, whole) ||
         /* memory: in Chinese, Japanese, Korean, Russian */
         hri_match_part(
             text, near, end,
             "\xe5\x86\x85\xe5\xad\x98|\xe3\x83\xa1\xe3\x83\xa2\xe3\x83\xaa|\xeb\xa9\x94\xeb\xaa\xa8\xeb\xa6\xac|"
             "\xd0\xbf\xd0\xb0\xd0\xbc\xd1\x8f\xd1\x82|137");
}

/* The phrase to which the word at text[at] belongs. */
static bool find_phrase(const char *text, size_t line, size_t at, size_t count, hri_oom_phrase *p) {
  size_t from = at + (text[at] == ' '), to = from;
  if (text[from] & 0x80 || hri_match_at(text, from, count, "memoria|speicher|m\xc3\xa9moire"))
    return find_wide(text, line, from, count, p);
  while (from > line && hri_is_name(text[from - 1])) from--;
  while (to < count && hri_is_name(text[to])) to++;
  *p = (hri_oom_phrase){from, to, true, false};
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
    p->is_loose = !hri_match_at(text, to, count, " after | when i | when running | at | on ") ||
                  !hri_match_end(text, line, from, "it |run |training |always |still |job |model |script |this ");
    return true;
  }
  if (to - from == 6 && hri_match_at(text, from, to, "ooming")) { /* "we were ooming when launching" */
    p->is_code = false;
    p->is_loose = !hri_match_end(text, line, from, "were |was |is |are |keeps |kept |been |started |be ");
    return true;
  }
  if (to - from == 3 && hri_match_at(text, from, to, "oom") && hri_match_at(text, to, count, "'d |'ed ")) {
    *p = (hri_oom_phrase){from, to + 2, false, false};
    return !hri_match_at(text, to + 2, count, plurals);
  }
  if (hri_match_at(text, from, to, "kill")) return find_kill(text, line, from, to, count, p);
  if (to - from == 4 && hri_match_at(text, from, to, "oome")) { /* java's, in short */
    p->is_code = false;
    return p->is_loose = true;
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
    *p = (hri_oom_phrase){from > line + 7 ? from - 7 : line, to, false, false};
    return from > line + 7 && hri_match_at(text, from - 7, from, "out of ") &&
           hri_oom_word(text, from > line + 80 ? from - 80 : line, from, "clenqueue") < from;
  }
  if (hri_match_at(text, from, to, "paging")) {
    *p = (hri_oom_phrase){from, to, false, false};
    return hri_match_at(text, to, count, " file is too small");
  }
  return false;
}

/* What the words around the phrase say: an error of another kind, or of something else that ran out. */
static bool is_other(const hri_oom_place *p, const hri_oom_phrase *f) {
  static const char other[] =
      "driver version|no cuda-capable|invalid device|permission denied|invalid argument|device-side assert|"
      "illegal memory|not supported|initialization error|invalid configuration|unauthorized|timed out|number of devices|"
      "pointer being freed|no such device|invalid pointer|corrupted|request for 'nvidia.com|request for 'amd.com";
  return hri_match_any(p->text, p->line, f->to,
                       "disk|inodes|license|file system|nodes are available|skipped|system call (socket|fishy") ||
         hri_match_part(p->text, f->to, hri_sentence_end(p->text, f->to, p->line_end), other);
}

/* Where a phrase must end: a record of a log ends with its line, other text may have been wrapped. */
static size_t phrase_end(const hri_oom_place *p) {
  return p->shape & (HRI_OOM_DATED | HRI_OOM_ROW) ? p->line_end : p->count;
}

hri_oom_sentence hri_oom_sentence_of(const hri_oom_place *p, size_t from, size_t to) {
  return (hri_oom_sentence){hri_sentence_start(p->text, p->sentence, from),
                            hri_sentence_end(p->text, to, p->line_end > to ? p->line_end : to)};
}

bool hri_oom_find_phrase(const hri_oom_place *p, hri_oom_phrase *f) {
  return find_phrase(p->text, p->line, p->at, phrase_end(p), f) && !is_other(p, f);
}

hri_oom_phrase hri_oom_head_phrase(const hri_oom_place *p) {
  const hri_oom_head *head = hri_oom_head_at(p->text, p->at, p->count);
  hri_oom_phrase f = {hri_oom_with_modifiers(p->text, p->line, p->at), p->at + strlen(head->words), false, false};
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
