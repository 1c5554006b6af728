/* The figures of a message whose words are known, each by the words next to it, whatever their order. So one reader
 * serves all versions: "5.20 gib already allocated" (1.0 to 2.0), "5.20 gib is allocated by pytorch" (2.1 on), "currently
 * allocated : 5.20 gib" (cudaMallocAsync). Source of the wordings: c10/cuda/CUDACachingAllocator.cpp,
 * CUDAMallocAsyncAllocator.cpp, aten/src/ATen/mps/MPSAllocator.mm of several versions, and public reports. */
#include "explain/figures.h"
#include "explain/match.h"
#include "explain/wording.h"

int32_t hri_oom_read_index(const char *text, size_t at, size_t count) {
  enum { DIGITS = 6 }; /* no index has more: another kind of number, or a value that stands for none */
  int32_t value = 0;
  size_t start = at;
  while (at < count && hri_is_digit(text[at]) && at - start < DIGITS) value = value * 10 + (text[at++] - '0');
  return at == start || (at < count && hri_is_digit(text[at])) ? -1 : value;
}

static void read_device(const char *text, size_t count, hr_oom_failure *failure) {
  static const char *const words[] = {"gpu ", "npu ", "xpu ", "device "};
  for (size_t i = 0; i < sizeof words / sizeof *words && failure->device_index < 0; i++)
    for (size_t at = hri_oom_word(text, 0, count, words[i]); at < count && failure->device_index < 0;
         at = hri_oom_word(text, at + 1, count, words[i]))
      failure->device_index = hri_oom_read_index(text, at + strlen(words[i]), count);
}

/* "process 3392 has 15.73 gib memory in use", any number of times; in Chinese too. */
static void read_processes(const char *text, size_t count, hri_oom_message *message) {
  static const char words[] = "process |\xe8\xbf\x9b\xe7\xa8\x8b ";
  static const char verbs[] =
      " has | \xe6\xad\xa3\xe5\x9c\xa8\xe4\xbd\xbf\xe7\x94\xa8 | \xe5\x8d\xa0\xe7\x94\xa8 | \xe4\xbd\xbf\xe7\x94\xa8\xe4\xba\x86 ";
  for (size_t at = hri_match_first(text, 0, count, words); at < count;
       at = hri_match_first(text, at + 1, count, words)) {
    const size_t number = hri_match_next(text, at, count, words);
    size_t p = number, behind;
    hr_oom_value value = {0};
    while (p < count && hri_is_digit(text[p])) p++;
    behind = hri_match_next(text, p, count, verbs);
    if (p == number || behind == p) continue;
    if (!hri_oom_size_at(text, behind, count, &value) || message->process_count == HRI_OOM_MAX_PROCESSES) continue;
    if (value.bytes >= 1ull << 50) continue; /* "not known" */
    message->processes[message->process_count] = value.bytes;
    message->process_slack[message->process_count++] = value.slack_bytes;
  }
}

/* The figure before text[count), where the message ends within the words behind it: by as many of them as tell it from the others. */
static bool read_cut_at(const char *text, size_t count, hr_oom_value *f) {
  static const struct {
    const char *words;
    size_t least;
    hr_oom_figure figure;
  } ends[] = {{" total capacity", 4, HR_OOM_TOTAL},
              {" already allocated", 4, HR_OOM_ALLOCATED},
              {" free;", 3, HR_OOM_FREE},
              {" is free.", 5, HR_OOM_FREE},
              {" reserved in total", 4, HR_OOM_RESERVED},
              {" cached)", 3, HR_OOM_UNALLOCATED},
              {" is reserved by pytorch", 6, HR_OOM_UNALLOCATED}};
  while (count > 0 && strchr(" .])", text[count - 1])) count--; /* "...", "[...]" */
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
    if (f[ends[i].figure].state == HR_OOM_ABSENT &&
        hri_oom_size_before_cut(text, count, ends[i].words, ends[i].least, &f[ends[i].figure]))
      return true;
  return false;
}

/* The last figure of a message that was cut: the text ends there, or another line goes on. What is behind the request is not it. */
static void read_cut_end(const char *text, size_t count, hr_oom_value *f) {
  enum { BELOW = 100, REQUEST = 40 }; /* of the lines below that are read with it; words and figure */
  const size_t request = hri_oom_word(text, 0, count, "tried to allocate");
  const size_t from = request < count ? request + REQUEST : 0;
  for (size_t at = count > from + BELOW ? count - BELOW : from; at < count; at++)
    if (text[at] == ' ' && read_cut_at(text, at, f)) return;
  (void)read_cut_at(text, count, f);
}

/* From 2.4 on "allocated" counts what private pools hold free, and says behind it how much that is: whether the text lost
 * that place. */
static bool is_without_pools(const char *text, size_t count, const hr_oom_value *pools) {
  static const char *const passed[] = {"already allocated", "total capacty of", "allocated by pytorch, and"};
  bool known = pools->state != HR_OOM_ABSENT; /* or the wording is older, or there are none */
  for (size_t i = 0; i < HRI_COUNT(passed) && !known; i++) known = hri_oom_word(text, 0, count, passed[i]) < count;
  return !known;
}

/* Where a message's last figure ends: what follows may be the rest of another one, which this one broke in two. */
static size_t figures_end(const char *text, size_t count) {
  static const char *const lasts[] = {" reserved in total by pytorch)", " cached)", " but unallocated"};
  size_t end = count;
  for (size_t i = 0; i < HRI_COUNT(lasts); i++) {
    const size_t at = hri_oom_word(text, 0, end, lasts[i]);
    if (at < end) end = at + strlen(lasts[i]);
  }
  return end;
}

/* Words beside which a message prints a figure once: before it, or where `behind` says so after it. */
typedef struct anchor {
  const char *words;
  bool behind;
} anchor;

static bool reads_at(const char *text, size_t at, size_t count, const anchor *a, hr_oom_value *value) {
  const size_t before = at > 40 ? at - 40 : 0;
  return a->behind ? hri_oom_size_before(text + before, count - before, a->words, value)
                   : hri_oom_size_at(text, at + strlen(a->words), count, value);
}

/* Whether the lines of two messages alternate, whose prefixes nobody knows: words that a message has once stand twice before its end,
 * beside figures that differ. */
static bool is_of_two(const char *text, size_t count, const anchor *anchors, size_t anchor_count) {
  for (size_t i = 0; i < anchor_count; i++) {
    const size_t first = hri_oom_word(text, 0, count, anchors[i].words);
    const size_t second = hri_oom_word(text, first + 1, count, anchors[i].words);
    hr_oom_value a = {0}, b = {0};
    if (second < count && reads_at(text, first, count, &anchors[i], &a) &&
        reads_at(text, second, count, &anchors[i], &b) && a.bytes != b.bytes)
      return true;
  }
  return false;
}

/* Takes from a message all figures that may be another one's: those but the request, which stands in its own first line where
 * `has_request`. */
static void drop_shared(hri_oom_message *message, bool has_request) {
  for (int i = 0; i < HR_OOM_FIGURE_COUNT; i++)
    if (i != HR_OOM_REQUESTED || !has_request) message->failure.figures[i] = (hr_oom_value){.state = HR_OOM_ABSENT};
  message->failure.device_index = -1;
  message->process_count = 0;
  hri_oom_line(&message->failure, "the lines of two messages alternate: figures that may be the other's are left out");
}

/* The same figures as people translate the message into Chinese: each behind words of its own. */
static void read_translated(const char *text, size_t count, hr_oom_value *f) {
  static const struct {
    const char *words;
    hr_oom_figure figure;
  } places[] = {{"\xe5\xb0\x9d\xe8\xaf\x95\xe5\x88\x86\xe9\x85\x8d", HR_OOM_REQUESTED},
                {"\xe5\xae\xb9\xe9\x87\x8f\xe4\xb8\xba", HR_OOM_TOTAL},
                {"\xe6\x80\xbb\xe5\xae\xb9\xe9\x87\x8f", HR_OOM_TOTAL},
                {"\xe7\xa9\xba\xe9\x97\xb2\xe5\x86\x85\xe5\xad\x98\xe4\xb8\xba", HR_OOM_FREE},
                {"\xe7\xa9\xba\xe9\x97\xb2\xe4\xb8\xba", HR_OOM_FREE},
                {"\xe5\x85\xb6\xe4\xb8\xad", HR_OOM_FREE},
                {"\xe8\xaf\xa5\xe8\xbf\x9b\xe7\xa8\x8b\xe5\x8d\xa0\xe7\x94\xa8", HR_OOM_THIS_PROCESS},
                {"\xe8\xaf\xa5\xe8\xbf\x9b\xe7\xa8\x8b\xe4\xbd\xbf\xe7\x94\xa8\xe4\xba\x86", HR_OOM_THIS_PROCESS},
                {"\xe6\xad\xa4\xe8\xbf\x9b\xe7\xa8\x8b\xe4\xbd\xbf\xe7\x94\xa8\xe4\xba\x86", HR_OOM_THIS_PROCESS},
                {"\xe6\xad\xa4\xe8\xbf\x9b\xe7\xa8\x8b\xe5\x8d\xa0\xe7\x94\xa8", HR_OOM_THIS_PROCESS},
                {"\xe5\x9c\xa8\xe5\xb7\xb2\xe5\x88\x86\xe9\x85\x8d\xe7\x9a\x84\xe5\x86\x85\xe5\xad\x98\xe4\xb8\xad",
                 HR_OOM_ALLOCATED},
                {"\xe5\xb7\xb2\xe5\x88\x86\xe9\x85\x8d\xe7\x9a\x84\xe5\x86\x85\xe5\xad\x98\xe4\xb8\xad\xef\xbc\x8c",
                 HR_OOM_ALLOCATED}};
  for (size_t i = 0; i < HRI_COUNT(places); i++)
    if (f[places[i].figure].state == HR_OOM_ABSENT)
      (void)hri_oom_size_after(text, count, places[i].words, &f[places[i].figure]);
}

static void read_caching(const char *text, size_t whole, hri_oom_message *message) {
  static const anchor once[] = {{"total capacity of", false},    {" of which", false},
                                {"this process has", false},     {" total capacity;", true},
                                {" already allocated", true},    {" is allocated by pytorch", true},
                                {" reserved in total by", true}, {" total capacty of", false}};
  const size_t count = message->cut ? whole : figures_end(text, whole);
  hr_oom_value *f = message->failure.figures;
  if (!hri_oom_size_after(text, count, "tried to allocate", &f[HR_OOM_REQUESTED]) &&
      hri_oom_word(text, 0, count, "tried to allocate more than 1eb") < count)
    f[HR_OOM_REQUESTED] = (hr_oom_value){HR_OOM_READ, 1ull << 60, 0}; /* all that PyTorch prints of such a size */
  if (f[HR_OOM_REQUESTED].state == HR_OOM_ABSENT &&
      hri_oom_size_after(text, count, "tried to allocate -", &f[HR_OOM_REQUESTED])) /* as the size that it wraps to */
    f[HR_OOM_REQUESTED].bytes = UINT64_MAX - f[HR_OOM_REQUESTED].bytes + 1;
  if (!hri_oom_size_after(text, count, "total capacity of", &f[HR_OOM_TOTAL]) &&
      !hri_oom_size_after(text, count, "total capacty of", &f[HR_OOM_TOTAL]))
    if (!hri_oom_size_before(text, count, "total capacity", &f[HR_OOM_TOTAL]) &&
        !hri_oom_size_before(text, count, " total of which", &f[HR_OOM_TOTAL]) &&
        !hri_oom_size_before(text, count, " total;", &f[HR_OOM_TOTAL]))
      (void)hri_oom_size_before(text, count, " total,", &f[HR_OOM_TOTAL]); /* as people abridge it */
  if (!hri_oom_size_before(text, count, " is free", &f[HR_OOM_FREE]) &&
      !hri_oom_size_before(text, count, " free", &f[HR_OOM_FREE]))
    (void)hri_oom_size_after(text, count, " of which", &f[HR_OOM_FREE]);
  if (!hri_oom_size_before(text, count, "is allocated by pytorch", &f[HR_OOM_ALLOCATED]) &&
      !hri_oom_size_before(text, count, "already allocated", &f[HR_OOM_ALLOCATED]) && /* else cut within those words */
      !hri_oom_size_after(text, count, "of the allocated memory", &f[HR_OOM_ALLOCATED]))
    if (hri_oom_size_after(text, count, "total capacity;", &f[HR_OOM_ALLOCATED]) &&
        f[HR_OOM_FREE].state == HR_OOM_READ && f[HR_OOM_FREE].bytes == f[HR_OOM_ALLOCATED].bytes)
      f[HR_OOM_ALLOCATED] = (hr_oom_value){.state = HR_OOM_ABSENT}; /* what is free follows at once */
  (void)hri_oom_size_before(text, count, "reserved in total", &f[HR_OOM_RESERVED]);
  if (!hri_oom_size_before(text, count, "is reserved by pytorch but unallocated", &f[HR_OOM_UNALLOCATED]))
    (void)hri_oom_size_before(text, count, " cached", &f[HR_OOM_UNALLOCATED]);
  (void)hri_oom_size_before(text, count, "allocated in private pools", &f[HR_OOM_PRIVATE_POOLS]);
  if (!hri_oom_size_before(text, count, " allowed", &f[HR_OOM_ALLOWED]) &&
      hri_oom_word(text, 0, count, " allowed; ") < count)
    f[HR_OOM_ALLOWED].state = HR_OOM_NOT_KNOWN; /* a cap whose bytes are cut */
  if (!hri_oom_size_after(text, count, "this process has", &f[HR_OOM_THIS_PROCESS]))
    (void)hri_oom_size_before(text, count, " in use by this process",
                              &f[HR_OOM_THIS_PROCESS]); /* as people abridge it */
  if (count < whole) (void)read_cut_at(text, count, f);
  else read_cut_end(text, count, f);
  if (text[0] == 'c' &&
      hri_match_at(text, 0, count,
                   "cuda \xe5\x86\x85\xe5\xad\x98|cuda\xe5\x86\x85\xe5\xad\x98|cuda \xe6\x98\xbe\xe5\xad\x98"))
    read_translated(text, count, f);
  message->expandable = hri_oom_word(text, 0, whole, "expandable_segments is enabled") < whole;
  message->abridged =
      hri_oom_word(text, 0, count, "...") < count || hri_oom_word(text, 0, count, "\xe2\x80\xa6") < count;
  message->pools_cut = is_without_pools(text, count, &f[HR_OOM_PRIVATE_POOLS]);
  read_device(text, count, &message->failure);
  read_processes(text, count, message);
  if (is_of_two(text, count, once, HRI_COUNT(once))) drop_shared(message, true);
}

/* Whether the number behind `words` ends there as the line goes on: else it was cut. */
static bool is_whole_count(const char *text, size_t count, const char *words, const char *behind) {
  size_t at = hri_oom_word(text, 0, count, words) + strlen(words);
  while (at < count && text[at] == ' ') at++;
  while (at < count && (hri_is_digit(text[at]) ||
                        (text[at] == ',' && at + 1 < count && hri_is_digit(text[at + 1])))) /* groups of thousands */
    at++;
  return hri_match_at(text, at, count, behind);
}

/* "... on device 0 while trying to allocate 3630170112 bytes (free: 202833920, total: 25250627584)": bytes, unrounded. */
static void read_exact(const char *text, size_t count, hri_oom_message *message) {
  static const struct {
    const char *words, *behind;
    hr_oom_figure figure;
  } places[] = {{"while trying to allocate", " bytes", HR_OOM_REQUESTED},
                {"free:", ",", HR_OOM_FREE},
                {"total:", ")", HR_OOM_TOTAL}};
  for (size_t i = 0; i < HRI_COUNT(places); i++)
    if (is_whole_count(text, count, places[i].words, places[i].behind))
      (void)hri_oom_count_after(text, count, places[i].words, &message->failure.figures[places[i].figure]);
  message->exact = true;
  read_device(text, count, &message->failure);
}

static void read_async(const char *text, size_t count, hri_oom_message *message) {
  static const anchor once[] = {{"currently allocated", false},
                                {"requested", false},
                                {"device limit", false},
                                {"free (according to cuda)", false}};
  static const char last[] = "user-supplied memory fraction)";
  hr_oom_value *f = message->failure.figures;
  (void)hri_oom_size_after(text, count, "currently allocated", &f[HR_OOM_ALLOCATED]);
  (void)hri_oom_size_after(text, count, "requested", &f[HR_OOM_REQUESTED]);
  (void)hri_oom_size_after(text, count, "device limit", &f[HR_OOM_TOTAL]);
  (void)hri_oom_size_after(text, count, "free (according to cuda)", &f[HR_OOM_FREE]);
  (void)hri_oom_size_after(text, count, last, &f[HR_OOM_ALLOWED]);
  if (is_of_two(text, hri_oom_word(text, 0, count, last), once, HRI_COUNT(once))) drop_shared(message, false);
}

static void read_mps(const char *text, size_t count, hri_oom_message *message) {
  hr_oom_value *f = message->failure.figures;
  (void)hri_oom_size_after(text, count, "mps allocated:", &f[HR_OOM_ALLOCATED]);
  (void)hri_oom_size_after(text, count, "other allocations:", &message->aside);
  (void)hri_oom_size_after(text, count, "max allowed:", &f[HR_OOM_ALLOWED]);
  (void)hri_oom_size_after(text, count, "tried to allocate", &f[HR_OOM_REQUESTED]);
}

/* Values that stand for "not known", and what follows from two figures. */
static void settle(hri_oom_message *message) {
  static const hr_oom_figure never_none[] = {HR_OOM_THIS_PROCESS, HR_OOM_TOTAL};
  hr_oom_value *f = message->failure.figures;
  for (int i = 0; i < HR_OOM_FIGURE_COUNT; i++)
    if (i != HR_OOM_REQUESTED && f[i].state == HR_OOM_READ && f[i].bytes >= 1ull << 50)
      f[i] = (hr_oom_value){.state = HR_OOM_NOT_KNOWN};
  if (message->aside.bytes >= 1ull << 50) message->aside = (hr_oom_value){.state = HR_OOM_NOT_KNOWN};
  for (size_t i = 0; i < HRI_COUNT(never_none); i++)
    if (f[never_none[i]].state == HR_OOM_READ && f[never_none[i]].bytes == 0)
      f[never_none[i]] = (hr_oom_value){.state = HR_OOM_NOT_KNOWN};
  if (f[HR_OOM_ALLOCATED].state != HR_OOM_READ) return;
  if (f[HR_OOM_RESERVED].state == HR_OOM_ABSENT && f[HR_OOM_UNALLOCATED].state == HR_OOM_READ) {
    f[HR_OOM_RESERVED].state = HR_OOM_DERIVED;
    f[HR_OOM_RESERVED].bytes = f[HR_OOM_ALLOCATED].bytes + f[HR_OOM_UNALLOCATED].bytes;
    f[HR_OOM_RESERVED].slack_bytes = f[HR_OOM_ALLOCATED].slack_bytes + f[HR_OOM_UNALLOCATED].slack_bytes;
  } else if (f[HR_OOM_UNALLOCATED].state == HR_OOM_ABSENT && f[HR_OOM_RESERVED].state == HR_OOM_READ) {
    uint64_t reserved = f[HR_OOM_RESERVED].bytes, allocated = f[HR_OOM_ALLOCATED].bytes;
    f[HR_OOM_UNALLOCATED].state = HR_OOM_DERIVED;
    f[HR_OOM_UNALLOCATED].bytes = reserved > allocated ? reserved - allocated : 0;
    f[HR_OOM_UNALLOCATED].slack_bytes = f[HR_OOM_ALLOCATED].slack_bytes + f[HR_OOM_RESERVED].slack_bytes;
  }
}

static const char *wording_of(const char *text, size_t count) {
  static const struct {
    const char *words, *versions;
  } eras[] = {
      {"total capacty", "2.1"},          {"is allocated by pytorch", "2.2 and later"},
      {"max_split_size", "1.10 to 2.0"}, {"reserved in total", "1.4 to 1.9"},
      {" cached", "1.0 to 1.3"},
  };
  for (size_t i = 0; i < sizeof eras / sizeof *eras; i++)
    if (hri_oom_word(text, 0, count, eras[i].words) < count) return eras[i].versions;
  return "";
}

/* What programs print of a limit of their own: "(74.5gb) array exceeds maximum array size preference (31.9gb)",
 * "... is larger than the limit of [986932838/941.2mb]", "object size is 2147483656 bytes". */
static void read_limit(const char *text, size_t count, hr_oom_value *f) {
  size_t array = hri_oom_word(text, 0, count, ") array exceeds"), open = array;
  while (open > 0 && text[open - 1] != '(') open--;
  if (array < count && open > 0) (void)hri_oom_size_at(text, open, count, &f[HR_OOM_REQUESTED]);
  (void)hri_oom_size_after(text, count, "size preference (", &f[HR_OOM_ALLOWED]);
  (void)hri_oom_count_after(text, count, " limit of [", &f[HR_OOM_ALLOWED]);
  (void)hri_oom_size_after(text, count, "object size is", &f[HR_OOM_REQUESTED]);
}

/* SBCL's "11960320 bytes available, 16777232 requested." */
static void read_sbcl(const char *text, size_t count, hr_oom_value *f) {
  if (!hri_oom_size_before(text, count, " available, ", &f[HR_OOM_FREE])) return;
  (void)hri_oom_count_after(text, count, " available, ", &f[HR_OOM_REQUESTED]);
}

/* ---- by speaker ---- */

/* How a number stands beside its words: behind them with its unit, behind them also without one, before them. */
typedef enum placing { SIZED, BARE, BEFORE } placing;

/* What speakers print beside words of their own. Of several rows for one figure the first that is there counts. */
static const struct {
  const char *source, *words;
  hri_oom_kind kind;
  size_t within;
  hr_oom_figure figure;
  placing placing;
} spoken[] = {
    {"vllm", "swap space.", HRI_OOM_HOST, 60, HR_OOM_REQUESTED, SIZED},
    {"vllm", " out of the", HRI_OOM_HOST, 60, HR_OOM_TOTAL, SIZED},
    {"c++", "have enough ram", HRI_OOM_HOST_LIKELY, 160, HR_OOM_REQUESTED, SIZED}, /* STAR's */
    {"shared-memory", "write total of", HRI_OOM_HOST, 60, HR_OOM_REQUESTED, SIZED},
    {"shared-memory", "space requested:", HRI_OOM_HOST, 400, HR_OOM_REQUESTED, SIZED},
    {"shared-memory", "space available:", HRI_OOM_HOST, 400, HR_OOM_FREE, SIZED},
    {"shared-memory", "\" to", HRI_OOM_HOST, 160, HR_OOM_REQUESTED,
     SIZED}, /* "could not resize ... to 8388608 bytes" */
    {"nvgpu", "] size=", HRI_OOM_HOST_LIKELY, 60, HR_OOM_REQUESTED, BARE},
    {"unity", "large allocation", HRI_OOM_HOST, 80, HR_OOM_REQUESTED, BARE},
    {"unity", "trying to allocate:", HRI_OOM_HOST, 160, HR_OOM_REQUESTED, BARE},
    {"postgresql", "request of size", HRI_OOM_HOST, 300, HR_OOM_REQUESTED, BARE},
    {"kernel", "vmalloc error: size", HRI_OOM_HOST, 60, HR_OOM_REQUESTED, BARE},
    {"hermes", ", allocated =", HRI_OOM_HEAP, 160, HR_OOM_ALLOCATED, BARE},
    {"java", "totalbytes (", HRI_OOM_HEAP, 200, HR_OOM_ALLOCATED, SIZED}, /* JavaCPP's, as the next four */
    {"java", " + ", HRI_OOM_HEAP, 120, HR_OOM_REQUESTED, SIZED},
    {"java", "> maxbytes (", HRI_OOM_HEAP, 200, HR_OOM_ALLOWED, SIZED},
    {"java", " physicalbytes (", HRI_OOM_HEAP, 200, HR_OOM_THIS_PROCESS, SIZED},
    {"java", "> maxphysicalbytes (", HRI_OOM_HEAP, 200, HR_OOM_ALLOWED, SIZED},
    {"emscripten", "memory arrays to size", HRI_OOM_HEAP, 60, HR_OOM_REQUESTED, BARE},
    {"petsc", "memory requested", HRI_OOM_BARE, 400, HR_OOM_REQUESTED, BARE},
    {"web-ui", " need:", HRI_OOM_BARE, 160, HR_OOM_REQUESTED, SIZED},
    {"web-ui", " have:", HRI_OOM_BARE, 160, HR_OOM_FREE, SIZED},
    {"jax", "free memory/total memory:", HRI_OOM_FOREIGN, 400, HR_OOM_FREE, BARE},
    {"tensorrt", "total gpu memory (gib)", HRI_OOM_FOREIGN, 400, HR_OOM_TOTAL, SIZED},
    {"tensorrt", "creation attempt (gib)", HRI_OOM_FOREIGN, 400, HR_OOM_FREE, SIZED},
    {"kernel of the device", "memory size (requested", HRI_OOM_CHIP, 80, HR_OOM_REQUESTED, BARE},
    {"dxvk", "size:", HRI_OOM_FOREIGN, 100, HR_OOM_REQUESTED, BARE},
    {"sanitizer", "trying to allocate", HRI_OOM_HOST, 80, HR_OOM_REQUESTED, BARE},
    {"elasticsearch", "new bytes reserved: [", HRI_OOM_LIMIT, 320, HR_OOM_REQUESTED, BARE},
    {"elasticsearch", "real usage: [", HRI_OOM_LIMIT, 320, HR_OOM_THIS_PROCESS, BARE},
    {"solr", "and allocated threshold", HRI_OOM_LIMIT, 320, HR_OOM_ALLOWED, BARE},
    {"datafusion", "allocate additional", HRI_OOM_LIMIT, 60, HR_OOM_REQUESTED,
     SIZED}, /* "7340032 bytes", later "7.0 MB" */
    {"datafusion", " already allocated", HRI_OOM_LIMIT, 320, HR_OOM_ALLOCATED, BEFORE},
    {"datafusion", "maximum available is", HRI_OOM_LIMIT, 320, HR_OOM_ALLOWED, BARE},
    {"neo4j", "allocation of an extra", HRI_OOM_LIMIT, 320, HR_OOM_REQUESTED, SIZED},
    {"neo4j", "than the limit", HRI_OOM_LIMIT, 320, HR_OOM_ALLOWED, SIZED},
    {"neo4j", "currently using", HRI_OOM_LIMIT, 320, HR_OOM_THIS_PROCESS, SIZED},
    {"libfuzzer", "; limit:", HRI_OOM_LIMIT, 320, HR_OOM_ALLOWED, SIZED},
    {"tvm", "attempted to allocate", HRI_OOM_LIMIT, 320, HR_OOM_REQUESTED, BARE},
    {"tvm", "in region that is", HRI_OOM_LIMIT, 320, HR_OOM_ALLOWED, SIZED},
    {"starrocks", "try consume:", HRI_OOM_LIMIT, 160, HR_OOM_REQUESTED, BARE},
    {"starrocks", "used:", HRI_OOM_LIMIT, 320, HR_OOM_THIS_PROCESS, BARE},
    {"starrocks", ", limit:", HRI_OOM_LIMIT, 320, HR_OOM_ALLOWED, BARE},
    {"doris", "cannot alloc:", HRI_OOM_LIMIT, 60, HR_OOM_REQUESTED, BARE},
    {"doris", "cannot alloc", HRI_OOM_LIMIT, 60, HR_OOM_REQUESTED, BARE},
    {"doris", "failed alloc size", HRI_OOM_LIMIT, 400, HR_OOM_REQUESTED, SIZED},
    {"doris", "process memory used", HRI_OOM_LIMIT, 400, HR_OOM_THIS_PROCESS, SIZED},
    {"doris", "exceed limit", HRI_OOM_LIMIT, 400, HR_OOM_ALLOWED, SIZED},
    {"doris-group", "used:", HRI_OOM_LIMIT, 120, HR_OOM_THIS_PROCESS, SIZED}, /* of a workload group */
    {"doris-group", "limit:", HRI_OOM_LIMIT, 160, HR_OOM_ALLOWED, SIZED},
    {"doris-query", "failed alloc size", HRI_OOM_LIMIT, 400, HR_OOM_REQUESTED, SIZED},
    {"doris-query", "current used", HRI_OOM_LIMIT, 400, HR_OOM_THIS_PROCESS, SIZED},
    {"doris-query", ">, limit", HRI_OOM_LIMIT, 400, HR_OOM_ALLOWED, SIZED},
    {"trino", "memory limit of", HRI_OOM_LIMIT, 80, HR_OOM_ALLOWED, SIZED},
    {"trino", "[allocated:", HRI_OOM_LIMIT, 120, HR_OOM_ALLOCATED, SIZED},
    {"trino", ", delta:", HRI_OOM_LIMIT, 160, HR_OOM_REQUESTED, SIZED},
    {"cockroachdb", "budget exceeded:", HRI_OOM_LIMIT, 60, HR_OOM_REQUESTED, BARE},
    {"cockroachdb", " requested,", HRI_OOM_LIMIT, 120, HR_OOM_ALLOCATED, BARE},
    {"cockroachdb", " in budget", HRI_OOM_LIMIT, 160, HR_OOM_ALLOWED, BEFORE},
    {"mongodb", "memory limit of", HRI_OOM_LIMIT, 40, HR_OOM_ALLOWED, BARE},
    {"mongodb", "than the maximum", HRI_OOM_LIMIT, 60, HR_OOM_ALLOWED, BARE},
    {"mongodb", "data usage of", HRI_OOM_LIMIT, 60, HR_OOM_THIS_PROCESS, BARE},
    {"mongodb", "internal limit of", HRI_OOM_LIMIT, 120, HR_OOM_ALLOWED, BARE},
    {"pytorch-xpu", "size larger than", HRI_OOM_LIMIT, 80, HR_OOM_ALLOWED, SIZED}, /* one block of Level Zero's */
    {"pytorch-xpu", "tried to allocate", HRI_OOM_LIMIT, 120, HR_OOM_REQUESTED, SIZED},
    {"pytorch-xpu", " total capacity", HRI_OOM_LIMIT, 200, HR_OOM_TOTAL, BEFORE},
    {"pytorch-xpu", " already allocated", HRI_OOM_LIMIT, 240, HR_OOM_ALLOCATED, BEFORE},
    {"pytorch-xpu", " reserved in total", HRI_OOM_LIMIT, 300, HR_OOM_RESERVED, BEFORE},
    {"habana", "for size::", HRI_OOM_FOREIGN, 80, HR_OOM_REQUESTED, BARE},
    {"duckdb", "memory limit to", HRI_OOM_LIMIT, 80, HR_OOM_ALLOWED, BARE},
    {"duckdb", "block of size", HRI_OOM_LIMIT, 80, HR_OOM_REQUESTED, BARE},
    {"duckdb", "block of", HRI_OOM_LIMIT, 80, HR_OOM_REQUESTED, BARE},
    {"duckdb", "data of size", HRI_OOM_LIMIT, 80, HR_OOM_REQUESTED, BARE},
    {"oracle", "unable to allocate", HRI_OOM_LIMIT, 60, HR_OOM_REQUESTED, BARE},
    {"impala", "limit=", HRI_OOM_LIMIT, 60, HR_OOM_ALLOWED, SIZED},
    {"impala", " total=", HRI_OOM_LIMIT, 120, HR_OOM_THIS_PROCESS, SIZED},
    {"mysql", "memory limit", HRI_OOM_LIMIT, 60, HR_OOM_ALLOWED, SIZED},
    {"mysql", "consumed", HRI_OOM_LIMIT, 100, HR_OOM_THIS_PROCESS, SIZED},
    {"postgresql", "allowed length (", HRI_OOM_LIMIT, 80, HR_OOM_ALLOWED, SIZED},
    {"greenplum", " available", HRI_OOM_LIMIT, 120, HR_OOM_FREE, BEFORE},
    {"greenplum", "current limit is", HRI_OOM_LIMIT, 120, HR_OOM_ALLOWED, SIZED},
    {"greenplum", ", requested", HRI_OOM_LIMIT, 160, HR_OOM_REQUESTED, SIZED},
    {"greenplum", ", available", HRI_OOM_LIMIT, 200, HR_OOM_FREE, SIZED},
    {"greenplum", "failed to allocate", HRI_OOM_LIMIT, 80, HR_OOM_REQUESTED, SIZED},
    {"greenplum", "used:", HRI_OOM_LIMIT, 120, HR_OOM_THIS_PROCESS, SIZED},
    {"psi4", "core max size:", HRI_OOM_LIMIT, 40, HR_OOM_ALLOWED, SIZED},
    {"psi4", "core used:", HRI_OOM_LIMIT, 120, HR_OOM_THIS_PROCESS, SIZED},
    {"psi4", "core available:", HRI_OOM_LIMIT, 160, HR_OOM_FREE, SIZED},
    {"quantum package", "maximum memory (gb)", HRI_OOM_LIMIT, 60, HR_OOM_ALLOWED, SIZED},
    {"quantum package", " required", HRI_OOM_LIMIT, 400, HR_OOM_REQUESTED, BEFORE},
    {"lm-studio", "model requires approximately", HRI_OOM_LIMIT, 320, HR_OOM_REQUESTED, SIZED},
    {"star", "limitgenomegenerateram=", HRI_OOM_LIMIT, 320, HR_OOM_ALLOWED, BARE},
    {"star", "not less than", HRI_OOM_LIMIT, 320, HR_OOM_REQUESTED, BARE},
    {"star", "--limitbamsortram", HRI_OOM_LIMIT, 320, HR_OOM_REQUESTED, BARE},
    {"postgresql", "alloc request size", HRI_OOM_LIMIT, 320, HR_OOM_REQUESTED, BARE},
    {"sanitizer", "requested allocation size", HRI_OOM_LIMIT, 320, HR_OOM_REQUESTED, BARE},
    {"sanitizer", "supported size of", HRI_OOM_LIMIT, 320, HR_OOM_ALLOWED, BARE},
    {"ggml", "memory pool (needed", HRI_OOM_LIMIT, 320, HR_OOM_REQUESTED, BARE},
    {"ggml", ", available", HRI_OOM_LIMIT, 320, HR_OOM_ALLOWED, BARE}, /* all that the pool has */
    {"ggml-alloc", "(needed", HRI_OOM_LIMIT, 320, HR_OOM_REQUESTED, BARE},
    {"ggml-alloc", "buffer to allocate", HRI_OOM_LIMIT, 320, HR_OOM_REQUESTED, BARE},
    {"ggml-alloc", ", available", HRI_OOM_LIMIT, 320, HR_OOM_FREE, BARE}, /* what is left of the buffer */
    {"spades", "you need approx.", HRI_OOM_LIMIT, 320, HR_OOM_REQUESTED, SIZED},
    {"kraken2", "attempt to allocate", HRI_OOM_HOST, 100, HR_OOM_REQUESTED, BARE},
    {"tflite", "buffers. needed", HRI_OOM_LIMIT, 320, HR_OOM_REQUESTED, BARE},
    {"tflite", "but only", HRI_OOM_LIMIT, 320, HR_OOM_ALLOWED, BARE},
    {"tflite", "memory. requested:", HRI_OOM_LIMIT, 320, HR_OOM_REQUESTED, BARE},
    {"tflite", ", available", HRI_OOM_LIMIT, 320, HR_OOM_FREE, BARE}, /* what is left of it */
};

static void read_spoken(const char *text, size_t count, hri_oom_message *message) {
  hr_oom_failure *failure = &message->failure;
  for (size_t i = 0; i < HRI_COUNT(spoken); i++) {
    const size_t within = count < spoken[i].within ? count : spoken[i].within;
    hr_oom_value *figure = &failure->figures[spoken[i].figure];
    if (message->kind != spoken[i].kind || strcmp(failure->source, spoken[i].source) != 0) continue;
    if (hri_oom_known(figure)) continue;
    if (spoken[i].placing == BEFORE) (void)hri_oom_size_before(text, within, spoken[i].words, figure);
    else if (!hri_oom_size_after(text, within, spoken[i].words, figure) && spoken[i].placing == BARE)
      (void)hri_oom_count_after(text, within, spoken[i].words, figure);
    if (spoken[i].figure == HR_OOM_REQUESTED && figure->bytes == 0) /* "new bytes reserved: [0/0b]" refused nothing */
      *figure = (hr_oom_value){.state = HR_OOM_ABSENT};
  }
}

/* ---- by kind ---- */

/* The message from its first word on, what of it has figures, and what is made of them. */
typedef struct reading {
  const char *at;
  size_t before, count; /* bytes of the text before it, and from there on */
  hri_oom_message *message;
  hr_oom_value *f;
} reading;

/* A size, or a bare count of bytes, behind words that stand within so many bytes. */
static bool size_near(const reading *r, size_t within, const char *words, hr_oom_figure figure) {
  return hri_oom_size_after(r->at, r->count < within ? r->count : within, words, &r->f[figure]);
}

static bool count_near(const reading *r, size_t within, const char *words, hr_oom_figure figure) {
  return hri_oom_count_after(r->at, r->count < within ? r->count : within, words, &r->f[figure]);
}

static bool has_near(const reading *r, size_t within, const char *words) {
  const size_t end = r->count < within ? r->count : within;
  return hri_oom_word(r->at, 0, end, words) < end;
}

static bool is_of(const reading *r, const char *source) { return strcmp(r->message->failure.source, source) == 0; }

static void of_caching(const reading *r) {
  if (hri_oom_word(r->at, 0, r->count < 64 ? r->count : 64, "memory allocation failed with oom") == 0) {
    read_exact(r->at, r->count < 300 ? r->count : 300, r->message);
    return;
  }
  read_caching(r->at, r->count, r->message);
  r->message->failure.wording = wording_of(r->at, r->count);
}

static void of_async(const reading *r) { read_async(r->at, r->count, r->message); }

static void of_mps(const reading *r) { read_mps(r->at, r->count, r->message); }

static void of_rejected(const reading *r) {
  (void)size_near(r, 400, "requested size:", HR_OOM_REQUESTED);
  r->message->failure.wording = "2.12 and later";
}

static void of_bare(const reading *r) {
  if (is_of(r, "pytorch-directml")) (void)size_near(r, r->count, "allocate tensor with", HR_OOM_REQUESTED);
  (void)size_near(r, 60, "buffer size:", HR_OOM_REQUESTED);
}

/* R prints the size behind words of its language: the first number with a unit. */
static void of_r(const reading *r) {
  for (size_t i = 0; i < r->count && i < 80 && !hri_oom_known(&r->f[HR_OOM_REQUESTED]); i++)
    if (hri_is_digit(r->at[i]) && !hri_oom_size_at(r->at, i, r->count, &r->f[HR_OOM_REQUESTED]))
      while (i + 1 < r->count && (hri_is_digit(r->at[i + 1]) || r->at[i + 1] == '.')) i++;
}

static void of_host(const reading *r) {
  static const char *const calls[] = {"tried to allocate", "unable to allocate", "failed to map"};
  size_t next = r->count < 400 ? r->count : 400, call = HRI_COUNT(calls);
  for (size_t i = 0; i < HRI_COUNT(calls); i++) { /* what stands first is this message's */
    const size_t at = hri_oom_word(r->at, 0, next, calls[i]);
    if (at < next) next = at, call = i;
  }
  if (call == HRI_COUNT(calls) || !size_near(r, 400, calls[call], HR_OOM_REQUESTED))
    (void)size_near(r, 100, "system memory (", HR_OOM_REQUESTED);
  (void)size_near(r, 100, "than is available (", HR_OOM_FREE);
  if (is_of(r, "r")) of_r(r);
  if (is_of(r, "php")) (void)count_near(r, 60, "(allocated ", HR_OOM_ALLOCATED);
  (void)size_near(r, 100, "memory (used over", HR_OOM_ALLOWED);
}

static void of_library(const reading *r) {
  static const char *const calls[] = {"cuda calloc async", "cuda calloc", "cudamalloc"};
  for (size_t i = 0; i < HRI_COUNT(calls) && r->f[HR_OOM_REQUESTED].state == HR_OOM_ABSENT; i++)
    (void)size_near(r, 100, calls[i], HR_OOM_REQUESTED);
}

/* "(8.00 gib kv cache is needed, which is larger than the available kv cache memory (5.25 gib)" */
/* The number whose digits end at `at`; 0 when there is none, or no such number of tokens. */
static uint64_t number_before(const char *text, size_t at) {
  uint64_t number = 0;
  size_t from = at;
  while (from > 0 && hri_is_digit(text[from - 1])) from--;
  if (at - from > 15) return 0;
  for (; from < at; from++) number = 10 * number + (uint64_t)(text[from] - '0');
  return number;
}

/* "max seq len (4096) is larger than the maximum number of tokens that can be stored in kv cache (3664)" */
static bool is_counted(const reading *r) {
  enum { BACK = 160 };
  static const char larger[] = ") is larger than the maximum number of tokens", room[] = "stored in kv cache (";
  const size_t back = r->before < BACK ? r->before : BACK, count = back + r->count;
  const char *text = r->at - back; /* the message is known by words of its middle */
  const size_t need = hri_oom_word(text, 0, count, larger), have = hri_oom_word(text, need, count, room);
  size_t end = have + strlen(room);
  if (have >= count) return false;
  while (end < count && hri_is_digit(text[end])) end++;
  return number_before(text, need) > number_before(text, end) && number_before(text, end) > 0;
}

static void of_vllm_cap(const reading *r) {
  r->message->counted = is_counted(r);
  if (hri_oom_size_before(r->at, r->count, " kv cache is needed", &r->f[HR_OOM_REQUESTED]))
    (void)size_near(r, r->count, "available kv cache memory (", HR_OOM_ALLOWED);
}

/* "free memory on device (3.1/79.1 gib) on startup is less than desired gpu memory utilization (0.9, 71.24 gib)" */
static void of_vllm_busy(const reading *r) {
  const size_t count = r->count, start = hri_oom_word(r->at, 0, count, "on device");
  size_t slash = hri_oom_word(r->at, start < count ? start : 0, count < 200 ? count : 200, "/");
  if (slash < count && hri_oom_size_at(r->at, slash + 1, count, &r->f[HR_OOM_TOTAL]))
    (void)hri_oom_size_in_unit_of(r->at, slash, count, &r->f[HR_OOM_FREE]);
  slash = hri_oom_word(r->at, 0, count < 300 ? count : 300, "utilization (");
  slash = hri_oom_word(r->at, slash, count < slash + 24 ? count : slash + 24, ", ");
  if (slash < count) (void)hri_oom_size_at(r->at, slash + 2, count, &r->f[HR_OOM_REQUESTED]);
}

/* "allowed memory size of 134217728 bytes exhausted (tried to allocate 20480 bytes)" */
static void of_heap(const reading *r) {
  (void)size_near(r, 60, "memory size of", HR_OOM_ALLOWED);
  (void)size_near(r, 60, "vector memory limit of", HR_OOM_ALLOWED);
  (void)size_near(r, 120, "(tried to allocate", HR_OOM_REQUESTED);
  (void)size_near(r, 80, "cannot reserve", HR_OOM_REQUESTED); /* Java's buffers */
  if (hri_oom_known(&r->f[HR_OOM_REQUESTED])) {
    (void)count_near(r, 160, "(allocated:", HR_OOM_ALLOCATED);
    (void)count_near(r, 200, ", limit:", HR_OOM_ALLOWED);
  }
  (void)size_near(r, 100, "trying to allocate", HR_OOM_REQUESTED);  /* Dart's */
  (void)size_near(r, 60, "/ failed to allocate", HR_OOM_REQUESTED); /* Android's */
  if (is_of(r, "sbcl")) read_sbcl(r->at, r->count < 200 ? r->count : 200, r->f);
  if (is_of(r, "ghc")) (void)size_near(r, 200, "maximum heap size is", HR_OOM_ALLOWED); /* a prefix may stand between */
  if (has_near(r, 400, "until oom")) {                                                  /* Android's */
    (void)count_near(r, 120, "failed to allocate a", HR_OOM_REQUESTED);
    (void)count_near(r, 160, "allocation with", HR_OOM_FREE);
    (void)count_near(r, 400, "growth limit", HR_OOM_ALLOWED);
  }
}

static void of_limit(const reading *r) { read_limit(r->at, r->count < 320 ? r->count : 320, r->f); }

/* What Triton prints before the most that a block may have, in several versions and as people translate it. */
static void of_chip(const reading *r) {
  static const char *const limits[] = {"hardware limit:", "hardware limitation:", "hardware limit is", "hardware limit",
                                       "hardware limitation"};
  (void)count_near(r, 300, "required:", HR_OOM_REQUESTED);
  for (size_t i = 0; i < HRI_COUNT(limits) && !hri_oom_known(&r->f[HR_OOM_ALLOWED]); i++)
    (void)count_near(r, 300, limits[i], HR_OOM_ALLOWED);
  if (count_near(r, 60, "memory size (", HR_OOM_REQUESTED))
    (void)count_near(r, 160, "memory allowed (", HR_OOM_ALLOWED);
  if (count_near(r, 40, "local memory (", HR_OOM_REQUESTED)) (void)count_near(r, 80, "exceeds limit (", HR_OOM_ALLOWED);
  if (count_near(r, 80, "too much shared data (", HR_OOM_REQUESTED)) /* ptxas's */
    (void)count_near(r, 100, "bytes, ", HR_OOM_ALLOWED);
}

/* "used 24.1g of 15.5g hbm": what the program as a whole needs, of a TPU. */
static void of_hbm(const reading *r) {
  const size_t used = hri_oom_word(r->at, 0, r->count, "used "), of = hri_oom_word(r->at, used, r->count, " of ");
  if (of < r->count && of - used < 20 && hri_oom_size_at(r->at, of + 4, r->count, &r->f[HR_OOM_TOTAL]))
    (void)hri_oom_size_at(r->at, used + 5, of, &r->f[HR_OOM_REQUESTED]);
}

/* "enforce allocating <= available failed, 105 > 13" */
static void of_paddle(const reading *r) {
  if (count_near(r, 120, "received allocating:", HR_OOM_REQUESTED))
    (void)count_near(r, 120, "> available:", HR_OOM_FREE);
  else (void)count_near(r, 60, "<= available failed,", HR_OOM_REQUESTED);
  if (hri_oom_known(&r->f[HR_OOM_REQUESTED])) (void)count_near(r, 90, " > ", HR_OOM_FREE);
}

/* "was 59.84gb / 62.51gb (0.95)", "memory used=49.21gb", "is used (11.8 / 12.3 gb)" */
static void of_ray(const reading *r) {
  (void)size_near(r, 800, "gb / ", HR_OOM_TOTAL);
  (void)size_near(r, 800, "memory used=", HR_OOM_THIS_PROCESS);
  if (!hri_oom_known(&r->f[HR_OOM_TOTAL])) (void)size_near(r, 160, " / ", HR_OOM_TOTAL);
}

static void (*const by_kind[])(const reading *) = {
    [HRI_OOM_CACHING] = of_caching, [HRI_OOM_ASYNC] = of_async,       [HRI_OOM_REJECTED] = of_rejected,
    [HRI_OOM_MPS] = of_mps,         [HRI_OOM_BARE] = of_bare,         [HRI_OOM_HOST] = of_host,
    [HRI_OOM_LIBRARY] = of_library, [HRI_OOM_VLLM_CAP] = of_vllm_cap, [HRI_OOM_VLLM_BUSY] = of_vllm_busy,
    [HRI_OOM_HEAP] = of_heap,       [HRI_OOM_LIMIT] = of_limit,       [HRI_OOM_CHIP] = of_chip,
};

void hri_oom_read_figures(const char *text, size_t from, size_t end, hri_oom_message *message) {
  const reading r = {text + from, from, end - from, message, message->failure.figures};
  const size_t kind = (size_t)message->kind;
  if (kind < HRI_COUNT(by_kind) && by_kind[kind]) by_kind[kind](&r);
  if (message->kind == HRI_OOM_FOREIGN && has_near(&r, 300, " hbm")) of_hbm(&r);
  if (is_of(&r, "paddle")) of_paddle(&r);
  if (is_of(&r, "ray")) of_ray(&r);
  read_spoken(r.at, r.count, message);
  settle(message);
}
