/* One message: its head, what the words around it say (wording.c), its figures (quantities.c), and where it ends. */
#include "explain/figures.h"
#include "explain/match.h"
#include "explain/wording.h"

/* ---- where a message ends ---- */

/* Words beside which the figures of a message of PyTorch's stand: from one to the next there is no more than the gap, wrapped lines and
 * what stands before each included. */
static const char caching_words[] =
    "total capac| total|of which| free|already allocated|reserved in total| cached| in use| allowed|of the allocated memory|"
    "is allocated by pytorch|private pools|is reserved by pytorch|but unallocated";
static const char async_words[] = "currently allocated|requested|device limit|(according to cuda)|memory fraction)";

/* How far the figures go on from `at`, by such words; text[at, end) as a whole where the last of them is close to the end. */
static size_t figures_reach(const char *text, size_t at, size_t end, const char *words) {
  enum { GAP = 240, FIGURE = 60 };
  for (size_t next = at; next < end; at = next) {
    const size_t near = end - at < GAP ? end : at + GAP;
    next = hri_match_first(text, at, near, words);
    if (next == near) break;
    next = hri_match_next(text, next, near, words);
  }
  return end - at < FIGURE ? end : at + FIGURE;
}

/* Behind the number and unit at text[at, end), with what blanks stand before. */
static size_t behind_size(const char *text, size_t at, size_t end) {
  while (at < end && strchr(" :=-", text[at])) at++;
  at = hri_match_next(text, at, end, "more than ");
  while (at < end && (hri_is_digit(text[at]) || strchr(".,'_", text[at]))) at++;
  while (at < end && text[at] == ' ') at++;
  while (at < end && hri_is_letter(text[at])) at++;
  return at;
}

/* Whether a message goes on behind its request, which ends at `at`: with its device, a figure, or what stands for parts that were left
 * out. Else the lines below are somebody else's, and their figures too. */
static bool goes_on(const char *text, size_t at, size_t end) {
  static const char devices[] = "gpu|npu|xpu|mlu|musa|dcu|hip|device|cuda|privateuse";
  static const char others[] = "rocm|total|of which|process|including|kib|mib|gib|tib|\xe2\x80\xa6";
  enum { SIGNS = 8, NEAR = 20, FAR = 200 };
  hr_oom_value value;
  const size_t far = end - at < FAR ? end : at + FAR;
  size_t first = at;
  if (end - at < SIGNS || hri_match_first(text, at, far, "total capac") < far) return true;
  for (; first < at + SIGNS && strchr(" .,;:#()[]<>\"'|-", text[first]); first++)
    if (hri_match_at(text, first, end, "...|\xe2\x80\xa6")) return true;
  if (hri_match_at(text, first, end,
                   devices)) { /* "(gpu 0; ...", "gpu has ...": not "gpu memory: ..." of another line */
    const size_t near = end - first < NEAR ? end : first + NEAR;
    return text[first - 1] == '(' || near == end ||
           hri_match_first(text, first, near, " has |...|\xe2\x80\xa6|rocm") < near;
  }
  return hri_match_at(text, first, end, others) || hri_oom_size_at(text, first, end, &value);
}

/* Where a message of the caching allocator ends that starts at `after`: with its last figure and PyTorch's hint, or with its request alone. */
static size_t caching_end(const char *text, size_t after, size_t end, bool cut) {
  enum { HINT = 700, EXACT = 300, TRANSLATED = 1000 };
  static const char last[] = "but unallocated|reserved in total by pytorch)| cached)";
  const size_t request = hri_oom_word(text, after, end, "tried to allocate");
  size_t at = after, hint;
  if (text[after - 1] & 0x80) return end - after < TRANSLATED ? end : after + TRANSLATED; /* in words of its own */
  if (hri_match_end(text, 0, after,
                    "with oom on device")) { /* "... (free: N, total: N).": behind it often comes the next one */
    end = hri_oom_word(text, after, end - after < EXACT ? end : after + EXACT,
                       "memory allocation failed with oom on device");
    at = hri_oom_word(text, hri_oom_word(text, after, end, "total"), end, ")");
    return at < end ? at + 1 : end;
  }
  if (!cut && request < end) {
    at = behind_size(text, request + strlen("tried to allocate"), end);
    if (!goes_on(text, at, end)) return at;
  }
  at = figures_reach(text, at, end, caching_words);
  hint = hri_match_first(text, after, at, last);
  if (hint == at) return at;
  at = hri_match_next(text, hint, end, last);
  end = end - at < HINT ? end : at + HINT;
  hint = hri_match_first(text, at, end, "(http|_alloc_conf|expandable_segments is enabled");
  if (hint == end) hint = hri_match_first(text, at, end, "max_split_size"); /* cut behind it */
  return hint < end ? hri_match_next(text, hint, end, "_alloc_conf|expandable_segments is enabled|max_split_size") : at;
}

/* Where another speaker's own words begin at or behind `after`, below the message's own line: what stands there is that one's, figures too. PyTorch's words of a request are
 * others' as well ("you tried to allocate"), and a library's or the driver's code is the reason that they print: neither is a sign of it. */
static size_t other_speaker(const char *text, size_t after, size_t end, const char *source) {
  for (size_t at = hri_oom_find(text, after, end); at < end; at = hri_oom_find(text, at + 1, end)) {
    const hri_oom_head *head = hri_oom_head_at(text, at, end);
    if (head->kind != HRI_OOM_NOTHING && head->kind != HRI_OOM_CACHING && head->kind != HRI_OOM_LIBRARY &&
        head->kind != HRI_OOM_DRIVER && *head->source && strcmp(head->source, source) != 0 &&
        !(strcmp(source, "python") == 0 && strcmp(head->source, "numpy") == 0) && !hri_oom_is_general(text, at, end))
      return at;
  }
  return end;
}

/* Where the message that starts at `after` ends at the latest: before the next one's head. */
static size_t message_end(const char *text, size_t after, size_t line_end, size_t count, hri_oom_reading r, bool cut) {
  const hri_oom_kind kind = r.kind;
  static const char *const stops[] = {"traceback (most recent", "out of memory. tried", "cuda error:",
                                      "cuda out of memory",     "npu out of memory",    "mps backend out of memory",
                                      "would exceed allow"};
  size_t end = count - after < 3000 ? count : after + 3000, request;
  for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) end = hri_oom_word(text, after, end, stops[i]);
  end = other_speaker(text, after > line_end ? after : line_end, end, r.source);
  request = hri_oom_word(text, after, end, "tried to allocate");
  if (request < end && kind != HRI_OOM_ASYNC) end = hri_oom_word(text, request + 1, end, "tried to allocate");
  if (kind == HRI_OOM_CACHING) return caching_end(text, after, end, cut);
  return kind == HRI_OOM_ASYNC ? figures_reach(text, after, end, async_words) : end;
}

/* Where the search for the next message goes on, of what was read up to `end`. */
static size_t search_end(size_t after, size_t end, hri_oom_reading r) {
  enum { MPS = 400 }; /* with its hint */
  if (r.kind == HRI_OOM_CACHING || r.kind == HRI_OOM_ASYNC) return end;
  if (r.kind == HRI_OOM_MPS) return end > after + MPS ? after + MPS : end;
  if (r.kind == HRI_OOM_FOREIGN_LIKELY || hri_oom_is_kill(r.source) || strcmp(r.source, "nccl") == 0 ||
      (strcmp(r.source, "kernel") == 0 && r.kind == HRI_OOM_HOST_LIKELY))
    return after; /* what follows may say more: the kernel, Slurm, how much NCCL asked for, who called an interface */
  return end > after + 200 ? after + 200 : end;
}

/* ---- how a message begins ---- */

/* Whether a head is words of a message's middle, of which the beginning was cut off. */
static bool is_middle(const char *words) {
  return strstr(words, "allocated") || strstr(words, "reserved") || strstr(words, "capac") ||
         strstr(words, "non-pytorch");
}

/* Whether figures stand before the head too. */
static bool reads_before(const hri_oom_head *head, hri_oom_reading r, bool cut) {
  return cut || r.kind == HRI_OOM_VLLM_BUSY || strstr(head->words, "array exceeds") ||
         strstr(head->words, "more than the limit") || strstr(head->words, "maximum supported size") ||
         strstr(head->words, "small for your genome") || strstr(head->words, "kv cache is needed") ||
         strcmp(r.source, "pytorch-directml") == 0;
}

/* A message's request where its beginning was cut off: "... gib (gpu 0; ...". */
static void read_cut_request(const char *text, size_t count, hr_oom_value *request) {
  if (!hri_oom_known(request) && !hri_oom_size_before(text, count, " (gpu ", request))
    (void)hri_oom_size_before(text, count, ". gpu ", request);
}

hri_oom_kind hri_oom_parse(const char *text, size_t line, size_t line_end, size_t at, size_t count,
                           hri_oom_message *message, size_t *end) {
  const hri_oom_head *head = hri_oom_head_at(text, at, count);
  const hr_oom_value *f = message->failure.figures;
  hri_oom_around a = {text, at < 160 ? 0 : at - 160, at, 0, count, line};
  hri_oom_reading r;
  size_t from;
  *end = at + 1;
  message->failure.device_index = -1;
  message->failure.source = message->failure.wording = message->failure.framework = message->failure.phase = "";
  if (!head || hri_oom_is_general(text, at, count)) return HRI_OOM_NOTHING;
  *end = a.after = at + strlen(head->words);
  r = hri_oom_read_around(head, &a);
  message->kind = r.kind;
  message->named = r.kind != HRI_OOM_NOTHING && hri_oom_is_only_named(head, &a, r.source);
  message->failure.source = r.source;
  message->exact = message->cut = false;
  if (r.kind == HRI_OOM_NOTHING) return r.kind;
  if (r.kind == HRI_OOM_VLLM_CAP || r.kind == HRI_OOM_VLLM_BUSY || r.kind == HRI_OOM_HEAP)
    message->failure.framework = r.source;
  message->cut = r.kind == HRI_OOM_CACHING && is_middle(head->words);
  if (message->cut && hri_oom_word(text, a.start, at, "tried to allocate") < at)
    return message->kind = HRI_OOM_NOTHING; /* it is being read */
  if (message->cut) { /* what is left of it may be long; another message's end is not part of it */
    size_t far = at < 320 ? 0 : at - 320;
    if (hri_oom_word(text, far, a.start, "tried to allocate") == a.start &&
        hri_oom_word(text, far, a.start, "unallocated") == a.start)
      a.start = far;
  }
  from = reads_before(head, r, message->cut) ? a.start : at;
  *end = message_end(text, a.after, line_end, count, r, message->cut);
  hri_oom_read_figures(text, from, *end, message);
  if (message->cut) read_cut_request(text + from, *end - from, &message->failure.figures[HR_OOM_REQUESTED]);
  *end = search_end(a.after, *end, r);
  if (message->cut && f[HR_OOM_ALLOCATED].state == HR_OOM_ABSENT && f[HR_OOM_THIS_PROCESS].state == HR_OOM_ABSENT &&
      f[HR_OOM_REQUESTED].state == HR_OOM_ABSENT && f[HR_OOM_RESERVED].state == HR_OOM_ABSENT)
    return message->kind = HRI_OOM_NOTHING; /* the words without figures: code that prints them */
  if (r.kind == HRI_OOM_CACHING && f[HR_OOM_REQUESTED].state == HR_OOM_ABSENT &&
      f[HR_OOM_TOTAL].state == HR_OOM_ABSENT) {
    message->kind = HRI_OOM_BARE;
    *end = a.after;
  }
  return message->kind;
}
