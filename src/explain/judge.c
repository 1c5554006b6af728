/* What the wording alone decides, and the one entry to all judges: by the kind of the message. */
#include "explain/cause.h"

static void judge_host(hri_oom_message *m, hr_oom_certainty certainty) {
  hr_oom_failure *f = &m->failure;
  const hr_oom_value *t = &f->figures[HR_OOM_REQUESTED];
  if (hri_oom_known(t)) hri_oom_line(f, "requested from the machine's memory: %s", HRI_OOM_SIZE(t->bytes));
  if (hri_oom_is_wrong_size(f)) {
    hri_oom_say(f, HR_OOM_TOO_BIG, HR_OOM_CERTAIN,
                "the request is absurd: no machine has this much; a size was computed wrongly");
    return;
  }
  if (t->bytes >= 1ull << 50) hri_oom_line(f, "that much is a wrongly computed size");
  if (strcmp(f->source, "shared-memory") == 0) {
    hri_oom_line(f, "/dev/shm, through which processes share tensors, has a limit of its own (64 MiB in a container "
                    "unless it is told otherwise): neither the GPU nor all of the machine's memory need be full");
    hri_oom_line(f, "a bus error also comes from a file that was cut off while it was mapped");
    hri_oom_say(f, HR_OOM_HOST_MEMORY, certainty, "shared memory (/dev/shm) ran out");
    return;
  }
  hri_oom_line(f, "this message is about the memory of the machine (RAM, a cgroup's limit), not about the GPU's");
  if (m->anybodys && !hri_oom_known(t))
    hri_oom_line(f, "it is no line of a speaker that is known, and has no figures; its words alone say so");
  else if (certainty == HR_OOM_LIKELY)
    hri_oom_line(f, "a kill has other possible reasons: look into the kernel log for \"Out of memory\"");
  hri_oom_say(f, HR_OOM_HOST_MEMORY, certainty,
              m->kind == HRI_OOM_PINNED ? "page-locked host memory ran out" : "host memory ran out");
}

static void judge_library(hr_oom_failure *f) {
  hri_oom_line(f, "%s allocates device memory by itself, past PyTorch's caching allocator", f->source);
  hri_oom_line(f,
               "the same error also follows from an earlier failure (a bad index, a device assert) or a wrong shape");
  hri_oom_say(f, HR_OOM_OUTSIDE_ALLOCATOR, HR_OOM_LIKELY, "an allocation by %s failed, outside PyTorch's allocator",
              f->source);
}

/* The limit that a runtime set for its own heap: neither the machine nor a device is full. */
static void judge_heap(hr_oom_failure *f) {
  const hr_oom_value *limit = &f->figures[HR_OOM_ALLOWED], *t = &f->figures[HR_OOM_REQUESTED];
  hri_oom_line(f, "%s keeps its heap below a limit of its own; the machine's memory and the GPU's are not involved",
               f->source);
  if (hri_oom_known(limit) && hri_oom_known(t))
    hri_oom_line(f, "requested %s, the heap's limit is %s", HRI_OOM_SIZE(t->bytes), HRI_OOM_SIZE(limit->bytes));
  hri_oom_say(f, HR_OOM_CAP, HR_OOM_CERTAIN, "the limit of %s's own heap refused it", f->source);
}

/* A limit that a program sets for what it may take. */
static void judge_limit(hr_oom_failure *f) {
  const hr_oom_value *limit = &f->figures[HR_OOM_ALLOWED];
  const hr_oom_value *t = &f->figures[HR_OOM_REQUESTED], *left = &f->figures[HR_OOM_FREE];
  const bool printed = hri_oom_known(limit) || (hri_oom_known(t) && hri_oom_known(left) && t->bytes > left->bytes);
  hri_oom_line(f, "the message says that a limit of the program's own was reached; the machine need not be full");
  if (hri_oom_known(limit)) hri_oom_line(f, "the limit is %s", HRI_OOM_SIZE(limit->bytes));
  hri_oom_say(f, HR_OOM_CAP, printed ? HR_OOM_CERTAIN : HR_OOM_LIKELY,
              "a memory limit of the program itself refused it");
}

/* Too little was free at the start: whoever held more than a context of this process; else the setting asks for all. */
static void judge_busy(hr_oom_failure *f) {
  const uint64_t context = 3ull << 29;
  const hr_oom_value *total = &f->figures[HR_OOM_TOTAL], *free = &f->figures[HR_OOM_FREE];
  hri_oom_divide(f);
  if (hri_oom_known(total) && hri_oom_known(free) && total->bytes - free->bytes <= context) {
    hri_oom_line(f, "vLLM refuses when less is free at its start than gpu_memory_utilization asks for; what was in use "
                    "is no more than contexts take");
    hri_oom_say(f, HR_OOM_CAP, HR_OOM_LIKELY, "gpu_memory_utilization asks for more than any start leaves free");
    return;
  }
  hri_oom_line(f, "vLLM refuses when less is free at its start than gpu_memory_utilization asks for");
  hri_oom_say(f, HR_OOM_OTHER_PROCESS, HR_OOM_LIKELY, "too little of the device was free when vLLM started");
}

/* The setting by which a server takes its share of the device. */
static const char *share_of(const hr_oom_failure *f) {
  return strcmp(f->source, "sglang") == 0 ? "--mem-fraction-static" : "gpu_memory_utilization";
}

/* What one request needs of the cache and what it may have, where both are printed, leave nothing open. */
static void judge_share(hri_oom_message *m) {
  hr_oom_failure *f = &m->failure;
  const hr_oom_value *need = &f->figures[HR_OOM_REQUESTED], *room = &f->figures[HR_OOM_ALLOWED];
  if (!hri_oom_known(need) || !hri_oom_known(room)) {
    hri_oom_say(f, HR_OOM_CAP, m->counted ? HR_OOM_CERTAIN : HR_OOM_LIKELY, "refused by %s's own limit, %s", f->source,
                share_of(f));
    return;
  }
  hri_oom_line(f, "one request of full length needs %s of KV cache, %s are left for it", HRI_OOM_SIZE(need->bytes),
               HRI_OOM_SIZE(room->bytes));
  hri_oom_say(f, HR_OOM_CAP,
              need->bytes >= room->bytes ? HR_OOM_CERTAIN : HR_OOM_LIKELY, /* it says itself that it is larger */
              "refused by %s's own limit: %s of KV cache needed, %s left by %s", f->source, HRI_OOM_SIZE(need->bytes),
              HRI_OOM_SIZE(room->bytes), share_of(f));
}

/* Whether a pool's own limit refused it: what it had and the request are beyond it by the figures printed. */
static bool is_beyond_limit(const hr_oom_failure *f) {
  const hr_oom_value *limit = &f->figures[HR_OOM_ALLOWED], *t = &f->figures[HR_OOM_REQUESTED],
                     *had = &f->figures[HR_OOM_ALLOCATED];
  return hri_oom_known(limit) && hri_oom_known(t) && hri_oom_known(had) && limit->bytes > 0 &&
         t->bytes < limit->bytes && had->bytes <= limit->bytes && had->bytes > limit->bytes - t->bytes;
}

/* Whether more was asked for than the device has, by more than the rounding of what is printed. */
static bool is_beyond_device(const hr_oom_failure *f) {
  const hr_oom_value *total = &f->figures[HR_OOM_TOTAL], *t = &f->figures[HR_OOM_REQUESTED];
  return hri_oom_known(total) && hri_oom_known(t) && t->bytes > total->bytes + total->slack_bytes + t->slack_bytes;
}

static void judge_foreign(hr_oom_failure *f, bool anybodys) {
  if (is_beyond_limit(f)) {
    hri_oom_line(f, "allocated %s + requested %s > the limit of %s that is set for %s",
                 HRI_OOM_SIZE(f->figures[HR_OOM_ALLOCATED].bytes), HRI_OOM_SIZE(f->figures[HR_OOM_REQUESTED].bytes),
                 HRI_OOM_SIZE(f->figures[HR_OOM_ALLOWED].bytes), f->source);
    hri_oom_say(f, HR_OOM_CAP, HR_OOM_CERTAIN, "a limit of %s that is set for %s refused it",
                HRI_OOM_SIZE(f->figures[HR_OOM_ALLOWED].bytes), f->source);
    return;
  }
  if (is_beyond_device(f)) {
    hri_oom_line(f, "%s needs %s, the device has %s", f->source, HRI_OOM_SIZE(f->figures[HR_OOM_REQUESTED].bytes),
                 HRI_OOM_SIZE(f->figures[HR_OOM_TOTAL].bytes));
    hri_oom_say(f, HR_OOM_TOO_BIG, HR_OOM_CERTAIN, "too big by %s for the device's %s",
                HRI_OOM_SIZE(f->figures[HR_OOM_REQUESTED].bytes - f->figures[HR_OOM_TOTAL].bytes),
                HRI_OOM_SIZE(f->figures[HR_OOM_TOTAL].bytes));
    return;
  }
  if (anybodys) {
    hri_oom_line(f, "the text names %s, in a line that is none of its own", f->source);
    hri_oom_say(f, HR_OOM_NOT_PYTORCH, HR_OOM_LIKELY,
                "this is most likely not PyTorch's message: memory that %s asked for was refused", f->source);
    return;
  }
  hri_oom_line(f, "the message is %s's; its allocator and its settings are not PyTorch's", f->source);
  hri_oom_say(f, HR_OOM_NOT_PYTORCH, HR_OOM_CERTAIN,
              "this is %s's message, not PyTorch's: Headroom does not explain it", f->source);
}

/* What is said of a request that cannot be meant, before "a size was computed wrongly"; NULL of the kinds whose judges ask for that
 * themselves, in words of their own, or to which the size does not matter. */
static const char *words_of_absurdity(hri_oom_kind kind) {
  switch ((int)kind) {
  case HRI_OOM_BARE:
  case HRI_OOM_DRIVER:
  case HRI_OOM_LIBRARY:
  case HRI_OOM_FOREIGN:
  case HRI_OOM_FOREIGN_LIKELY: return "no device has this much; ";
  case HRI_OOM_REJECTED:
  case HRI_OOM_HEAP:
  case HRI_OOM_LIMIT: return "";
  default: return NULL;
  }
}

/* A size that was computed wrongly says nothing of any memory: no limit and no library had a part in it. */
static bool judge_wrong_size(hri_oom_message *m) {
  hr_oom_failure *f = &m->failure;
  const char *words = words_of_absurdity(m->kind);
  if (!words || !hri_oom_is_wrong_size(f)) return false;
  hri_oom_line(f, "%s was asked for %s", f->source, HRI_OOM_SIZE(f->figures[HR_OOM_REQUESTED].bytes));
  hri_oom_say(f, HR_OOM_TOO_BIG, HR_OOM_CERTAIN, "the request is absurd: %sa size was computed wrongly", words);
  return true;
}

static void judge_by_kind(hri_oom_message *m) {
  hr_oom_failure *f = &m->failure;
  if (judge_wrong_size(m)) return;
  switch (m->kind) {
  case HRI_OOM_NOTHING: break;
  case HRI_OOM_CACHING: hri_oom_judge_caching(m); break;
  case HRI_OOM_ASYNC: hri_oom_judge_async(m); break;
  case HRI_OOM_REJECTED:
    hri_oom_line(
        f,
        "throw_on_cudamalloc_oom: PyTorch refuses what would pass per_process_memory_fraction, before it asks the driver");
    hri_oom_say(f, HR_OOM_CAP, HR_OOM_CERTAIN, "the cap of per_process_memory_fraction refused it");
    break;
  case HRI_OOM_MPS: hri_oom_judge_mps(m); break;
  case HRI_OOM_BARE:
    hri_oom_divide(f);
    if (f->share_total_bytes) hri_oom_line(f, "the message is cut: what was requested is not in it");
    else if (hri_oom_known(&f->figures[HR_OOM_REQUESTED]))
      hri_oom_line(f, "requested %s; the message has no other figure",
                   HRI_OOM_SIZE(f->figures[HR_OOM_REQUESTED].bytes));
    else hri_oom_line(f, "the message has no figures");
    hri_oom_undecided(f,
                      HRI_OOM_COULD(TOO_BIG) | HRI_OOM_COULD(OTHER_PROCESS) | HRI_OOM_COULD(OUTSIDE_ALLOCATOR) |
                          HRI_OOM_COULD(FRAGMENTED),
                      f->share_total_bytes ? "undecidable: what was requested is missing"
                                           : "undecidable: the message has no figures");
    break;
  case HRI_OOM_DRIVER: judge_library(f); break;
  case HRI_OOM_PINNED: judge_host(m, HR_OOM_LIKELY); break;
  case HRI_OOM_HOST: judge_host(m, HR_OOM_CERTAIN); break;
  case HRI_OOM_HOST_LIKELY: judge_host(m, HR_OOM_LIKELY); break;
  case HRI_OOM_LIBRARY: judge_library(f); break;
  case HRI_OOM_VLLM_CAP:
    hri_oom_line(f, "%s keeps to %s x total; what is left for the KV cache is too little. No allocation failed",
                 f->source, share_of(f));
    judge_share(m);
    break;
  case HRI_OOM_VLLM_BUSY: judge_busy(f); break;
  case HRI_OOM_HEAP: judge_heap(f); break;
  case HRI_OOM_LIMIT: judge_limit(f); break;
  case HRI_OOM_CHIP:
    hri_oom_line(
        f, "shared memory and registers belong to a kernel's block on the chip; the device's memory is not involved");
    hri_oom_say(f, HR_OOM_ON_CHIP, /* in others' words than a compiler's the figures decide */
                strcmp(f->source, "kernel of the device") != 0 ||
                        (hri_oom_known(&f->figures[HR_OOM_REQUESTED]) && hri_oom_known(&f->figures[HR_OOM_ALLOWED]))
                    ? HR_OOM_CERTAIN
                    : HR_OOM_LIKELY,
                "a kernel needs more on-chip memory than this GPU has: no allocation failed");
    break;
  case HRI_OOM_ENDED:
    hri_oom_line(f, "the text lists what may have ended the process; that it was memory is one of several");
    hri_oom_undecided(f, HRI_OOM_COULD(HOST_MEMORY) | HRI_OOM_COULD(NO_FAILURE),
                      "a process ended: killed for memory, stopped or crashed");
    break;
  case HRI_OOM_REPORT: hri_oom_judge_report(f); break;
  case HRI_OOM_FOREIGN_LIKELY:
    hri_oom_line(f, "%s is an interface that PyTorch does not use for this; who called it the text does not say",
                 f->source);
    hri_oom_say(f, HR_OOM_NOT_PYTORCH, HR_OOM_LIKELY, "this is most likely not PyTorch's message: %s refused memory",
                f->source);
    break;
  case HRI_OOM_FOREIGN: judge_foreign(f, m->anybodys); break;
  }
}

/* Whether the figures of a line leave no doubt, whoever wrote it: how much of a named memory was asked for; on a chip
 * also how much there is. */
static bool is_told_by_figures(const hri_oom_message *m) {
  const hr_oom_value *f = m->failure.figures;
  if (m->kind == HRI_OOM_REPORT || m->failure.cause == HR_OOM_TOO_BIG) return true; /* judged by them alone */
  return m->kind != HRI_OOM_FOREIGN && hri_oom_known(&f[HR_OOM_REQUESTED]) &&
         (m->kind != HRI_OOM_CHIP || hri_oom_known(&f[HR_OOM_ALLOWED]));
}

/* A line of a speaker that is not known may be anybody's words: without figures they only speak for a cause. */
void hri_oom_judge(hri_oom_message *m) {
  judge_by_kind(m);
  if (m->anybodys && m->failure.certainty == HR_OOM_CERTAIN && !is_told_by_figures(m))
    m->failure.certainty = HR_OOM_LIKELY;
}
