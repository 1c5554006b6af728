/* Whose memory it was and what figures the words give. A report of no known speaker is given both here
 * (hri_oom_read_unknown); a message whose words are known, but are many programs', is given a name by its line and the lines
 * around (name_by_line) and the figures that words beside it call by name (read_by_words). speaker_names.c knows the names,
 * figures.c the figures; what is decided here is how far they may stand away and still belong to this one failure.
 *
 * The neighbours may rely on this: a request that a message's own wording gave stays, and what stands behind the head of
 * another failure or of a traceback is not read as this one's (report_end). */
#include "explain/figures.h"
#include "explain/match.h"
#include "explain/report_parts.h"
#include "explain/wording.h"

/* Where what belongs to the report ends: its line, or the next words where a line was wrapped, and items that follow;
 * no traceback and no other failure's figures. */
static size_t report_end(const hri_oom_place *p, const hri_oom_phrase *f, size_t reach) {
  static const char stops[] = "traceback (most recent|stack trace|file \"|current allocation summary|backtrace";
  static const char next[] = "tried to allocate|cuda out of memory|runtimeerror|buffer size|model buffer";
  size_t end = p->line_end > f->to + reach ? p->line_end : f->to + reach;
  if (hri_match_at(p->text, p->line_end, p->count, "- ")) end = p->line_end + 120;
  if (end > p->count) end = p->count;
  end = hri_match_first(p->text, f->to, end, stops);
  return p->line_end < end ? hri_match_first(p->text, p->line_end, end, next) : end;
}

uint32_t hri_oom_figure_count(const hri_oom_message *m) {
  uint32_t count = m->process_count;
  for (int i = 0; i < HR_OOM_FIGURE_COUNT; i++) count += m->failure.figures[i].state == HR_OOM_READ;
  return count;
}

/* Whether the line above ends with the exception's class, "cupy_backends.cuda.api.runtime.cudaruntimeerror:", which is `who`'s. */
static bool is_class_above(const hri_oom_place *p, const char *who) {
  size_t end = p->before_count, from;
  const char *named;
  while (end > 0 && p->before[end - 1] == ' ') end--;
  if (!hri_match_end(p->before, 0, end, "error:|exception:")) return false;
  for (from = end; from > 0 && p->before[from - 1] != ' ';) from--;
  named = hri_oom_framework_in(p->before, from, end);
  return named && strcmp(named, who) == 0;
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
        !hri_oom_is_own_line(p->text, p->line, p->line_end, p->at, p->at, who) && !is_class_above(p, who) &&
        !hri_oom_is_own_place(p->text, p->line_end, behind, who) &&
        !hri_oom_is_own_place(p->before, p->before_count > 200 ? p->before_count - 200 : 0, p->before_count, who);
    hri_oom_set_framework(m, who);
  } else if (m->kind == HRI_OOM_BARE && (who = hri_oom_library_in(p->text, p->line, p->line_end)) != NULL) {
    m->kind = HRI_OOM_LIBRARY;
    m->failure.source = who;
  }
}

/* PyTorch's words in another framework's exception, whose class the line above names. */
static void name_by_class(const hri_oom_place *p, hri_oom_message *m) {
  const size_t far = p->before_count, from = far > 160 ? far - 160 : 0;
  const size_t thrown = hri_oom_word(p->before, from, far, "instance of '");
  const char *who = hri_oom_framework_in(p->before, thrown, far);
  if (thrown < far && who &&
      hri_oom_word(p->text, p->line, p->line + 12 < p->at ? p->line + 12 : p->at, "what():") < p->at)
    hri_oom_set_framework(m, who);
}

/* Whether the next line is a server's hint or detail about it. */
static bool hints_behind(const hri_oom_place *p) {
  size_t from = p->line_end, end = from + 64 < p->count ? from + 64 : p->count; /* behind a log's prefix */
  return hri_match_any(p->text, from, end, "hint:|detail:");
}

/* The figures of text[from, end), those of the line first: where it has the request, the lines below are another message's, but of
 * frameworks, whose own go over several. */
static void read_lines(const hri_oom_place *p, size_t from, size_t bare, size_t end, hri_oom_message *m) {
  hr_oom_value *f = m->failure.figures;
  const size_t line = p->line_end < end ? p->line_end : end;
  hri_oom_read_labelled(p->text, from, bare < line ? bare : line, line, f);
  if (f[HR_OOM_REQUESTED].state == HR_OOM_ABSENT || m->kind == HRI_OOM_FOREIGN || m->kind == HRI_OOM_FOREIGN_LIKELY)
    hri_oom_read_labelled(p->text, from, bare, end, f);
}

/* The figures of such a message: in its line; a framework's own words often go over several. */
static void read_by_words(const hri_oom_place *p, hri_oom_message *m) {
  bool foreign = m->kind == HRI_OOM_FOREIGN || m->kind == HRI_OOM_FOREIGN_LIKELY;
  size_t back = p->line > 100 ? p->line - 100 : 0, from = hri_sentence_start(p->text, p->line, p->at), end;
  const hri_oom_head *head = hri_oom_head_at(p->text, p->at, p->count);
  const size_t behind = p->at + (head && strlen(head->words) > 13 ? strlen(head->words) : 13);
  hri_oom_phrase f = {p->at, p->at, false, false};
  bool goes_on = hri_match_end(p->text, p->line, p->line_end, ": |:");
  if (from > p->line && hri_match_at(p->text, from, p->at, " result:")) /* "failed to alloc 4096 bytes; result: ..." */
    from = hri_sentence_start(p->text, p->line, from - 1);
  for (size_t at = hri_oom_word(p->text, back, p->line, "allocating "); foreign && at < p->line;
       at = hri_oom_word(p->text, at + 1, p->line, "allocating "))
    from = at; /* "allocating 4096 mib" on the line before */
  end = report_end(p, &f, hints_behind(p) ? 400 : foreign || goes_on ? 200 : 0);
  if (p->tick_from < p->tick_to && hri_count_words(p->text, p->tick_to, p->line_end) >
                                       0) { /* what is quoted; what is said of it has other figures */
    if (p->tick_from > from) from = p->tick_from;
    end = p->tick_to < end ? p->tick_to : end;
  }
  if (!foreign && behind < end) end = hri_oom_word(p->text, behind, end, "out of memory"); /* another message */
  read_lines(p, from, end, end, m);
}

/* How much was free, by what is printed close to a message that does not say it: "at free=0.40 gib", "avail mem=0.07 gb",
 * "free device mem: 0.5 gib". Only words that are about nothing else; statistics list other figures beside it. */
static void read_free_near(const hri_oom_place *p, hri_oom_message *m) {
  static const char words[] = "free=|avail mem=|free device mem:|free mem=|free_mem=|free gpu memory:";
  hr_oom_value *free = &m->failure.figures[HR_OOM_FREE];
  const size_t to = p->line_end + 240 < p->count ? p->line_end + 240 : p->count;
  for (size_t at = p->line > 240 ? p->line - 240 : 0; free->state == HR_OOM_ABSENT; at++) {
    at = hri_match_first(p->text, at, to, words);
    if (at >= to) return;
    (void)hri_oom_size_at(p->text, hri_match_next(p->text, at, to, words), to, free);
  }
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
  for (slash = at + 40 < to ? at + 40 : to; at < slash && !hri_match_at(p->text, at, slash, " (");) at++;
  if (at == slash || !hri_oom_size_at(p->text, at + 2, to, &other)) return;
  to = hri_oom_word(p->text, at + 2, to, ")");
  if (hri_oom_word(p->text, at, to, " reserved") < to) f[HR_OOM_RESERVED] = other;
  else if (hri_oom_word(p->text, at, to, " allocated") < to) f[HR_OOM_ALLOCATED] = other;
}

/* "(9.9 gib/10.0 gib used)": what the process has, and its limit. */
static void read_share_used(const hri_oom_place *p, size_t from, hr_oom_value *figures) {
  hr_oom_value *allowed = &figures[HR_OOM_ALLOWED], *has = &figures[HR_OOM_THIS_PROCESS];
  size_t used = hri_oom_word(p->text, from, p->line_end, " used)"), slash = used, open;
  if (used == p->line_end) return;
  while (slash > from && used - slash < 24 && p->text[slash] != '/') slash--;
  if (p->text[slash] != '/') return;
  for (open = slash; open > from && slash - open < 24 && p->text[open] != '(';) open--;
  if (allowed->state == HR_OOM_ABSENT && !hri_oom_size_at(p->text, slash + 1, used, allowed))
    (void)hri_oom_count_after(p->text + slash, used - slash, "/", allowed); /* in bytes, without a unit */
  if (has->state == HR_OOM_ABSENT && p->text[open] == '(' && !hri_oom_size_at(p->text, open + 1, slash, has))
    (void)hri_oom_count_after(p->text + open, slash - open, "(", has);
}

/* Words of TensorFlow's that stand without its name: neither a tag in the line, nor the class of its exceptions, nor a path
 * beside it. */
static bool is_untagged(const hri_oom_place *p, const hri_oom_message *m) {
  static const char names[] =
      "resourceexhausted|resource_exhausted|resource exhausted|_bfc|/job:|[[node|[[{{node|streamexecutor|"
      "bytes) from device: cuda_error";
  const size_t far = p->before_count, from = far > 400 ? far - 400 : 0;
  const size_t behind = p->line_end + 200 < p->count ? p->line_end + 200 : p->count;
  const char *who;
  if (strcmp(m->failure.source, "tensorflow") != 0) return false;
  if (hri_oom_is_own_line(p->text, p->line, p->line_end, p->at, p->at, "tensorflow")) return false;
  if (hri_match_part(p->text, p->line, p->line_end, names) || hri_oom_has_place(p->text, p->line, p->line_end))
    return false;
  who = hri_oom_framework_near(p->before, from, far);
  if (!who) who = hri_oom_framework_near(p->text, p->line_end, behind);
  return !who || strcmp(who, "tensorflow") != 0;
}

/* Who end processes for memory, and print the sizes of others. */
#define KILLERS "kernel|kill|slurm|ray|nohang|earlyoom|systemd-oomd|android|ios|pbs|torque|kubernetes|yarn"

/* Whether the sentence tells that a killer ended a process: its figures are no message's. */
static bool ends_process(const hri_oom_place *p) {
  static const char killers[] = "oom killer|oom-killer|oomkiller|was evicted|been evicted|was killed for|oom-killed|"
                                "memorystatus: killing|killing largest compressed process";
  return hri_match_part(p->text, p->line, p->line_end, killers);
}

void hri_oom_read_known(const hri_oom_place *p, hri_oom_message *m) {
  bool bare = m->kind == HRI_OOM_BARE || m->kind == HRI_OOM_LIBRARY || m->kind == HRI_OOM_DRIVER;
  bool host = m->kind == HRI_OOM_HOST || m->kind == HRI_OOM_HOST_LIKELY || m->kind == HRI_OOM_PINNED;
  bool reads = m->failure.figures[HR_OOM_REQUESTED].state == HR_OOM_ABSENT &&
               !hri_is_one_of(m->failure.source, KILLERS) && !ends_process(p);
  if ((bare && !hri_is_one_of(m->failure.source, "rmm|pycuda")) || m->kind == HRI_OOM_FOREIGN_LIKELY)
    name_by_line(p, m);
  else if (m->kind == HRI_OOM_CACHING) name_by_class(p, m);
  else if (m->kind == HRI_OOM_FOREIGN && is_untagged(p, m)) m->anybodys = true;
  if (reads && (bare || host || m->kind == HRI_OOM_FOREIGN || m->kind == HRI_OOM_FOREIGN_LIKELY)) read_by_words(p, m);
  if (bare && hri_oom_figure_count(m) <= 1) read_free_near(p, m);
  if (m->kind == HRI_OOM_LIMIT) read_share_used(p, p->at, m->failure.figures);
}

/* "28 GB are allocated (which leads to CPU OOM in my case)": what stands before the bracket was allocated. */
static size_t from_bracket(const hri_oom_place *p, size_t from, size_t phrase) {
  size_t at = phrase;
  while (at > from && !strchr("()", p->text[at - 1])) at--;
  return at > from && p->text[at - 1] == '(' && hri_match_at(p->text, at, phrase, "which |that |and |so |it ") ? at
                                                                                                               : from;
}

size_t hri_oom_read_unknown(const hri_oom_place *p, const hri_oom_phrase *f, hri_oom_message *m) {
  size_t from = hri_sentence_start(p->text, p->line, f->from), end;
  if (from > p->line + 2 && p->text[from - 1] == ';') /* "8 bytes requested; not enough memory" */
    from = hri_sentence_start(p->text, p->line, from - 1);
  from = from_bracket(p, from, f->from);
  hri_oom_name_speaker(p, f->from, f->to, m);
  if (f->is_loose && hri_match_part(p->text, f->from, f->to, "kill")) {
    m->kind = HRI_OOM_HOST_LIKELY;
    m->failure.source = "kill";
  }
  end = report_end(p, f, m->kind == HRI_OOM_HOST ? 160 : 60);
  if (m->kind != HRI_OOM_HOST || !ends_process(p)) read_lines(p, from, p->line_end, end, m);
  if (m->kind == HRI_OOM_FOREIGN) read_usage(p, f->to, m);
  if (m->kind == HRI_OOM_LIMIT) read_share_used(p, f->to, m->failure.figures);
  return end;
}

/* What a sentence says of whose memory it was, where the phrase itself names nobody's: the sentence, and what stands close by. */
typedef struct nearby {
  const char *text, *before;
  size_t from, end;               /* the sentence */
  size_t far_from, far_end;       /* what is close by, of the same text */
  size_t before_from, before_end; /* and before it */
} nearby;

static nearby nearby_of(const hri_oom_place *p, const hri_oom_phrase *f) {
  enum { FAR = 240 };
  const hri_oom_sentence sentence = hri_oom_sentence_of(p, f->from, f->to);
  nearby n = {.text = p->text,
              .before = p->before,
              .before_end = p->before_count,
              .from = sentence.from,
              .end = sentence.end};
  n.far_from = p->line;
  n.far_end = n.end + FAR < p->count ? n.end + FAR : p->count;
  n.before_from = p->before_count > FAR ? p->before_count - FAR : 0;
  return n;
}

static bool names_nearby(const nearby *n, const char *whole) {
  return hri_match_any(n->text, n->far_from, n->far_end, whole) ||
         hri_match_any(n->before, n->before_from, n->before_end, whole);
}

static bool says_nearby(const nearby *n, const char *whole, const char *parts) {
  return names_nearby(n, whole) || hri_match_part(n->text, n->far_from, n->far_end, parts) ||
         hri_match_part(n->before, n->before_from, n->before_end, parts);
}

void hri_oom_name_resource(const hri_oom_place *p, const hri_oom_phrase *f, hri_oom_message *m) {
  static const char killers[] =
      "oom killer|oom-killer|oomkiller|systemd-oomd|oom) killer|memory) killer|of memory killer|of-memory killer|earlyoom|oom-kill|"
      "oom_kill|oom kill|oom handler|by oom|by kernel|by the kernel|"
      "linux kernel|kernel killed|kernel kills|by slurm|slurm kill|slurm's|by kubernetes|out_of_memory|oomkilled";
  static const char killing[] = "kill|kills|killed|killing";
  static const char
      killing_abroad[] = /* Chinese (two), Russian, Korean; French, German, Spanish, Portuguese, Italian, Dutch */
      "\xe6\x9d\x80|\xe6\xae\xba|\xd1\x83\xd0\xb1\xd0\xb8\xd1\x82|\xd1\x83\xd0\xb1\xd0\xb8\xd0\xbb|\xec\xa3\xbd|tu\xc3\xa9|"
      "annul\xc3\xa9|get\xc3\xb6tet|beendet|abgebrochen|mat\xc3\xb3|cancel\xc3\xb3|matou|cancelou|encerr|ucciso|uccisa|afgebroken|"
      "gedood";
  static const char hosts[] =
      "machine|pod|pods|container|containers|ram|swap|notebook|colab|kaggle|docker|laptop|pc|computer|memoryerror|"
      "host memory|system memory|cpu memory|cpu ram|kernel restarting|kernel died|killed";
  static const char
      host_parts[] = /* Chinese: memory, host, computer, process; Russian: main memory; Japanese: out of memory */
      "\xe5\x86\x85\xe5\xad\x98|\xe4\xb8\xbb\xe6\x9c\xba|\xe7\x94\xb5\xe8\x84\x91|\xe8\xbf\x9b\xe7\xa8\x8b|"
      "\xd0\xbe\xd0\xbf\xd0\xb5\xd1\x80\xd0\xb0\xd1\x82\xd0\xb8\xd0\xb2|"
      "\xe3\x83\xa1\xe3\x83\xa2\xe3\x83\xaa\xe4\xb8\x8d\xe8\xb6\xb3";
  static const char devices[] = "gpu|gpus|cuda|vram|mps|hip|rocm|tpu|xpu|npu|device|graphics|graphic|video|heap|java";
  static const char device_parts[] = /* and Chinese: a card's memory, a card; Russian: video */
      "rtx|gtx|3090|4090|5090|2080|3060|3080|a100|h100|v100|geforce|tesla|\xe6\x98\xbe\xe5\xad\x98|"
      "\xe6\x98\xbe\xe5\x8d\xa1|\xd0\xb2\xd0\xb8\xd0\xb4\xd0\xb5\xd0\xbe";
  static const char absent[] =
      "no gpu|without gpu|without a gpu|without any gpu|don't have a gpu|cpu only|cpu-only|only by cpu|only on cpu|only cpu";
  const nearby n = nearby_of(p, f);
  const bool unnamed = m->kind == HRI_OOM_REPORT && strcmp(m->failure.source, "unknown speaker") == 0;
  const bool kill = m->kind == HRI_OOM_HOST_LIKELY && strcmp(m->failure.source, "kill") == 0;
  if (!unnamed && !kill) return;
  if (hri_match_part(p->text, n.from, n.end, killers) && (kill || hri_match_any(p->text, n.from, n.end, killing) ||
                                                          hri_match_part(p->text, n.from, n.end, killing_abroad))) {
    m->kind = HRI_OOM_HOST;
    m->failure.source = "kernel";
    m->anybodys = false;
  } else if (unnamed && hri_match_part(n.text, n.far_from, n.far_end, "/dev/shm|shm size|shm_size|shm-size")) {
    m->kind = HRI_OOM_HOST_LIKELY;
    m->failure.source = "shared-memory";
  } else if (unnamed && says_nearby(&n, hosts, host_parts) &&
             (!says_nearby(&n, devices, device_parts) || names_nearby(&n, absent))) {
    m->kind = HRI_OOM_HOST_LIKELY;
    m->failure.source = "host";
  }
}
