/* One message: its head, what the words around it say (wording.c), its figures (quantities.c), and where it ends. */
#include "explain/figures.h"
#include "explain/wording.h"

/* Where the message that starts at `after` ends at the latest: before the next one's head. */
static size_t message_end(const char *text, size_t after, size_t count, hri_oom_kind kind) {
  static const char *const stops[] = {"traceback (most recent", "out of memory. tried",
                                      "cuda error:", "cuda out of memory"};
  size_t end = count - after < 3000 ? count : after + 3000, request;
  for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) end = hri_oom_word(text, after, end, stops[i]);
  if (kind == HRI_OOM_ASYNC) end = hri_oom_word(text, after, end, "would exceed allowed memory");
  request = hri_oom_word(text, after, end, "tried to allocate");
  if (request < end && kind != HRI_OOM_ASYNC) end = hri_oom_word(text, request + 1, end, "tried to allocate");
  return end;
}

/* Where the search for the next message goes on, of what was read up to `end`. */
static size_t search_end(const char *text, size_t after, size_t end, hri_oom_reading r) {
  if (r.kind == HRI_OOM_CACHING || r.kind == HRI_OOM_MPS || r.kind == HRI_OOM_ASYNC)
    return hri_oom_word(text, after, end, "(http"); /* what follows the help address is no longer the message */
  if (r.kind == HRI_OOM_FOREIGN_LIKELY || hri_oom_is_kill(r.source) || strcmp(r.source, "nccl") == 0 ||
      (strcmp(r.source, "kernel") == 0 && r.kind == HRI_OOM_HOST_LIKELY))
    return after; /* what follows may say more: the kernel, Slurm, how much NCCL asked for, who called an interface */
  return end > after + 200 ? after + 200 : end;
}

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

hri_oom_kind hri_oom_parse(const char *text, size_t line, size_t at, size_t count, hri_oom_message *message,
                           size_t *end) {
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
  *end = message_end(text, a.after, count, r.kind);
  hri_oom_read_figures(text, from, *end, message);
  if (message->cut) read_cut_request(text + from, *end - from, &message->failure.figures[HR_OOM_REQUESTED]);
  *end = search_end(text, a.after, *end, r);
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
