/* Finding messages in a stream of any length with bounded memory.
 *
 * People's logs wrap a message over lines, put "[rank3]:", "# " or a time stamp before each, mark words as bold and
 * colour them. So the text is brought to one form first, a line at a time: scan_intake.c takes the prefix off and keeps
 * what it says as a mark (scan_wrap.c and scan_block.c tell what a line is because of those before it), scan_window.c
 * normalises the rest into a window that slides over the stream. Messages are then looked for in the window alone. One
 * is read only once AHEAD bytes behind its start are there (or the end), and HRI_SCAN_BEHIND bytes before it stay. What
 * the lines around say of its line is gathered by scan_place.c; scan_excerpt.c leaves lines of other ranks out;
 * scan_kept.c keeps each failure once.
 *
 * Bounded time: a byte is normalised once, searched once; a head that turns out to be none costs a copy of
 * HRI_OOM_TEXT_BYTES, reading a message that many bytes times a constant; of a line, or a part of one that is too long, TRIES are read
 * (is_worth_it), and after MAX_PARSED messages they are only counted. */
#include <headroom/explain.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "explain/line.h"
#include "explain/match.h"
#include "explain/message.h"
#include "explain/report.h"
#include "explain/scan_excerpt.h"
#include "explain/scan_intake.h"
#include "explain/scan_kept.h"
#include "explain/scan_place.h"
#include "explain/scan_window.h"
#include "explain/voice.h"
#include "explain/wording.h"

enum { AHEAD = 16 * 1024, MAX_PARSED = 20000, TRIES = 96, SHORT = 64, SHORTS = 32, HEADS = 4, HEAD = 8, RESTS = 16 };

/* A message that others' lines interrupt: its own ones go on up to `end`. */
typedef struct rest {
  int64_t who;
  size_t end; /* in the window; 0: none */
} rest;

typedef enum encoding { BYTES = 0, UTF16_LITTLE, UTF16_BIG } encoding; /* UTF-8 and its like are bytes */

struct hr_explainer {
  const hri_voice_ear *ear; /* who hears the places; NULL: the weights decide */
  hri_scan_intake intake;
  hri_scan_window window;
  hri_scan_kept kept;
  size_t muted;                /* no head of known words is looked for before this place in the window ... */
  size_t spoken;               /* ... and no word of the general rule before this one */
  size_t judged_line;          /* the line that words were last looked at in, plus one; 0: none ... */
  uint32_t tries;              /* ... and what they cost: those that were none ... */
  uint32_t shorts;             /* ... and how many short messages it held ... */
  char heads[HEADS][HEAD];     /* ... and how the last of these began; ... */
  bool may_fail;               /* ... and whether any word in it says that something failed */
  hri_scan_excerpt excerpt;    /* scratch, as is ... */
  hri_oom_message message;     /* ... this: large, so not on the stack */
  hr_oom_failure torn;         /* the last message that another one interrupted within its line ... */
  size_t torn_end;             /* ... and where in the window that line ends; 0: none */
  rest rests[RESTS];           /* of the last messages that others' lines interrupted; ... */
  unsigned rest_count;         /* ... the oldest gives way */
  char printed[HRI_SCAN_LINE]; /* scratch: a line whose literal is read as lines, the rest of one that is parted */
  uint64_t parsed, bytes;
  unsigned char mark[3]; /* the first bytes */
  encoding encoding;
  uint32_t first, high; /* of UTF-16: a unit's first byte, the first of two units */
};

/* ---- messages in the window ---- */

/* Two processes that write into one line: a message that ends where another begins, with figures lacking, is
 * remembered; what the other one then shows of these figures is not taken for its own. */
static void untangle(hr_explainer *e, size_t at, size_t mark_index, size_t after) {
  const size_t line = hri_scan_mark_end(&e->window, mark_index);
  hri_oom_message *m = &e->message;
  const hr_oom_value *f = m->failure.figures;
  if (at < e->torn_end) hri_oom_untangle(&e->torn, m);
  e->torn_end = 0;
  if (m->kind == HRI_OOM_CACHING && !m->exact && after < line && f[HR_OOM_ALLOCATED].state == HR_OOM_ABSENT &&
      f[HR_OOM_REQUESTED].state == HR_OOM_READ && hri_oom_is_broken_off(e->window.text + at, after - at)) {
    e->torn = m->failure;
    e->torn_end = line;
  }
}

/* Whether a message whose words are known begins behind `at` in its line: then that one is read. */
static bool is_known_later(hr_explainer *e, const hri_oom_place *p) {
  size_t end;
  const size_t to = p->line_end + 64 < p->count ? p->line_end + 64 : p->count; /* a head may be wrapped */
  for (size_t at = hri_oom_find(p->text, p->at + 1, to); at < p->line_end; at = hri_oom_find(p->text, at + 1, to)) {
    if (hri_oom_is_general(p->text, at, to)) continue;
    if (hri_oom_parse(p->text, p->line, p->line_end, at, p->count, &e->message, &end) != HRI_OOM_NOTHING &&
        !hri_oom_is_kill(e->message.failure.source)) /* which says less than words of memory */
      return true;
  }
  return false;
}

static void begin_message(hr_explainer *e, size_t m) {
  const hri_scan_mark *mark = &e->window.marks.items[m];
  memset(&e->message, 0, sizeof e->message); /* 10 KiB: what a head that was none has left there */
  e->message.failure.rank = mark->rank;
  e->message.failure.line = mark->line;
  e->message.failure.event = UINT64_MAX;
}

/* Whether what stands in the line of mark `m` is worth a look: a line, or a part of one that is too long, holds few of them, and a
 * word of the general rule needs another one that says that something failed. */
static bool is_worth_it(hr_explainer *e, size_t m, bool english) {
  static const char words[] =
      "fail|unable|cannot|can't|could|not |out of|out_of|outof|out-of|insuff|exhaust|exceed|error|no |oom|lack|"
      "than|too |full|overflow|enomem|refuse|ran out|run out|runs out|impossible|n't |paging|gone|eat|ate |maxe|blow|blew|used |"
      "using up|consum|crash|explo|takes|took|fill|sin |falta|plus de|manque|genug|wenig|voll|reicht";
  const hri_scan_window *w = &e->window;
  size_t line = w->marks.items[m].offset, end = hri_scan_mark_end(w, m);
  end = end + 120 < w->count ? end + 120 : w->count; /* or in the next line, where one was wrapped */
  if (e->judged_line != line + 1) {
    e->judged_line = line + 1;
    e->tries = e->shorts = 0;
    e->may_fail = hri_match_part(w->text, line, end, words);
  }
  return e->tries < TRIES && (e->may_fail || !english);
}

/* Whether `at`, in the line of mark `m`, is the head of one more short message, of which its line holds enough: "code 137" a hundred times
 * in a line is no hundred ends. A size behind such a head is a whole message's. */
static bool is_said_enough(const hr_explainer *e, size_t at, size_t m) {
  enum { NEAR = 240 };
  static const char sizes[] = "b|kb|mb|gb|kib|mib|gib|bytes|ki|mi|gi|m|g|k";
  const hri_scan_window *w = &e->window;
  const size_t end = hri_scan_mark_end(w, m), near = at + NEAR < end ? at + NEAR : end;
  if (e->shorts < SHORTS || at + HEAD > w->count) return false;
  for (unsigned i = 0; i < HEADS; i++)
    if (memcmp(w->text + at, e->heads[i], HEAD) == 0) return !hri_match_any(w->text, at, near, sizes);
  return false;
}

/* Counts a short message at `at`. */
static void count_short(hr_explainer *e, size_t at) {
  const hri_scan_window *w = &e->window;
  bool known = at + HEAD > w->count;
  for (unsigned i = 0; i < HEADS && !known; i++) known = i < e->shorts && memcmp(w->text + at, e->heads[i], HEAD) == 0;
  if (e->shorts >= SHORTS) e->tries += 3;
  if (!known) memcpy(e->heads[e->shorts % HEADS], w->text + at, HEAD);
  e->shorts++;
}

/* Reads the message whose words are known at the excerpt's start: *end is how far, *whole whether it is one of
 * PyTorch's from its beginning, even where add_words then finds that it reports nothing. False where the words are only
 * spoken of, of which the general rule is not asked. */
static bool read_known(hr_explainer *e, const hri_oom_place *place, size_t at, size_t *end, bool *whole) {
  const hri_scan_excerpt *x = &e->excerpt;
  e->message.kind = hri_oom_parse(x->text, place->line, place->line_end, x->start, x->count, &e->message, end);
  *whole = e->message.kind == HRI_OOM_CACHING && !e->message.cut;
  if (e->message.kind != HRI_OOM_NOTHING) {
    hri_oom_add_words(place, &e->message);
    return true;
  }
  if (strcmp(e->message.failure.source, HRI_OOM_TALK) != 0) return true;
  e->spoken = at + (*end - x->start);
  return false;
}

/* Whether `at`, in the line of mark `m`, is within a message that was read already. */
static bool is_rest(const hr_explainer *e, size_t at, size_t m) {
  for (unsigned i = 0; i < RESTS; i++)
    if (at < e->rests[i].end && hri_scan_is_of(&e->window, m, e->rests[i].who)) return true;
  return false;
}

/* Where the search goes on behind the message at `at`, which is the excerpt up to text[end): behind it, or, with lines of
 * others between its own, behind its head. */
static size_t go_on(hr_explainer *e, size_t at, size_t m, size_t end) {
  const hri_scan_excerpt *x = &e->excerpt;
  rest *r = &e->rests[e->rest_count % RESTS];
  if (hri_scan_excerpt_is_whole(x, &e->window, at, end)) return at + (end - x->start);
  if (end > x->start + 16) {
    *r = (rest){e->window.marks.items[m].who, hri_scan_excerpt_end(x, &e->window, at, m, end)};
    e->rest_count++;
  }
  return at + 16;
}

/* Reads what stands at `at`, in the line of mark `m`, into e->message; returns where the search goes on. */
static size_t read_message(hr_explainer *e, size_t at, size_t m) {
  const hri_scan_excerpt *x = &e->excerpt;
  const bool general = hri_oom_is_general(e->window.text, at, e->window.count);
  hri_oom_place place;
  bool whole = false, open = true, known = !general; /* by its words, not by their structure */
  size_t end;
  e->message.kind = HRI_OOM_NOTHING;
  if (is_rest(e, at, m) || !is_worth_it(e, m, general && !(e->window.text[at] & 0x80)) || (!general && at < e->muted) ||
      is_said_enough(e, at, m))
    return at + 1;
  place = hri_scan_place_of(&e->window, at, m); /* what costs more than all before it */
  place.ear = e->ear;
  if (general && (at < e->spoken || !hri_oom_is_reported(&place))) {
    e->tries++;
    return at + 1;
  }
  hri_scan_excerpt_take(&e->excerpt, &e->window, at, m);
  hri_scan_excerpt_move(x, &place);
  begin_message(e, m);
  if (!general) open = read_known(e, &place, at, &end, &whole);
  if (general || (e->message.kind == HRI_OOM_NOTHING && open && hri_oom_is_reported(&place))) {
    const bool later = is_known_later(e, &place);
    begin_message(e, m);
    if (later) return at + 1;
    known = false;
    e->message.general = true;
    e->message.kind = hri_oom_report(&place, &e->message, &end);
  }
  if (e->message.kind == HRI_OOM_NOTHING) {
    e->tries += 4;
    if (known && end > x->start &&
        (end - x->start < 60 || (whole && hri_scan_excerpt_is_whole(x, &e->window, at, end))))
      e->muted = at + (end - x->start); /* the rest of the same words */
    return at + 1;
  }
  if (end - x->start < SHORT) count_short(e, at);
  return go_on(e, at, m, end);
}

/* Reads all messages that start before `limit`. */
static hr_status search(hr_explainer *e, size_t limit, hr_error *error) {
  hri_scan_window *w = &e->window;
  size_t m = 0;
  while (w->searched < limit) {
    size_t at = hri_oom_find(w->text, w->searched, w->count), after;
    if (at >= limit) break;
    while (m + 1 < w->marks.count && w->marks.items[m + 1].offset <= at) m++;
    if (e->parsed >= MAX_PARSED) {
      e->kept.more += !hri_oom_is_general(w->text, at, w->count);
      w->searched = at + 1;
      continue;
    }
    after = read_message(e, at, m);
    if (e->message.kind != HRI_OOM_NOTHING) {
      e->parsed += !e->message.exact; /* of those there may be any number before the message that ended the run */
      untangle(e, at, m, after);
      HRI_TRY(hri_scan_keep(&e->kept, &e->message, w, at, error));
    }
    w->searched = after;
  }
  if (w->searched < limit) w->searched = limit;
  return HR_OK;
}

/* ---- the stream ---- */

static size_t less(size_t place, size_t drop) { return place > drop ? place - drop : 0; }

/* Makes room for a line: reads what has enough text behind it, and lets go of what lies far behind. */
static hr_status slide(hr_explainer *e, hr_error *error) {
  hri_scan_window *w = &e->window;
  size_t drop;
  if (w->count + 2 * HRI_SCAN_LINE < HRI_SCAN_BYTES) return HR_OK;
  HRI_TRY(search(e, w->count - AHEAD, error));
  drop = less(w->searched, HRI_SCAN_BEHIND);
  if (drop > w->count) drop = w->count;
  hri_scan_window_slide(w, drop);
  e->judged_line = 0;
  e->muted = less(e->muted, drop);
  e->spoken = less(e->spoken, drop);
  e->torn_end = less(e->torn_end, drop);
  for (unsigned i = 0; i < RESTS; i++) e->rests[i].end = less(e->rests[i].end, drop);
  return HR_OK;
}

static hr_status add_line(hr_explainer *e, bool complete, hr_error *error) {
  HRI_TRY(slide(e, error));
  if (!hri_scan_intake_add(&e->intake, &e->window, complete))
    return hri_fail_memory(error, sizeof(hri_scan_mark), "marks of lines");
  return HR_OK;
}

/* What was printed as bytes, in lines of its own: those that "\n" ends in e->printed[from, to). */
static hr_status add_printed(hr_explainer *e, size_t from, size_t to, hr_error *error) {
  hri_scan_intake *in = &e->intake;
  for (size_t at = from; at <= to; at++) {
    const bool escaped = at + 1 < to && e->printed[at] == '\\';
    const bool ends = at == to || (escaped && e->printed[at + 1] == 'n');
    if (ends) {
      if (in->count > 0) HRI_TRY(add_line(e, true, error));
      at++;
    } else if (escaped && strchr("'\"\\", e->printed[at + 1])) {
      in->line[in->count++] = e->printed[++at];
    } else {
      in->line[in->count++] = e->printed[at];
    }
  }
  return HR_OK;
}

static hr_status end_line(hr_explainer *e, bool complete, hr_error *error) {
  hri_scan_intake *in = &e->intake;
  size_t from, to;
  if (complete && !in->continued) hri_scan_intake_open(in);
  if (!complete || in->continued || !hri_scan_find_printed(in->line, in->count, &from, &to))
    return add_line(e, complete, error);
  memcpy(e->printed, in->line, in->count);
  in->count = from - 1;
  if (in->count > 1) HRI_TRY(add_line(e, true, error)); /* the label */
  in->count = 0;
  return add_printed(e, from, to, error);
}

/* A text that was cut amid the words by which it would be known is read to their end: "torch.outofmemoryerror: cuda
 * o". */
static void complete_cut(hri_scan_window *w) {
  static const struct {
    const char *words;
    size_t least; /* how many letters must be there */
  } known[] = {{"outofmemoryerror: cuda out of memory", 19},
               {"outofmemoryerror: hip out of memory", 19},
               {"runtimeerror: cuda out of memory", 19},
               {"[errno 12] cannot allocate memory", 12},
               {"defaultcpuallocator: can't allocate memory", 22}};
  const size_t end = hri_scan_text_end(w);
  for (size_t i = 0; i < HRI_COUNT(known) && w->count + 64 < HRI_SCAN_BYTES; i++)
    for (size_t length = strlen(known[i].words) - 1; length >= known[i].least; length--) {
      if (end < length || memcmp(w->text + end - length, known[i].words, length) != 0) continue;
      (void)strcpy(w->text + end, known[i].words + length);
      w->count = end + strlen(known[i].words) - length;
      if (w->searched > end - length) w->searched = end - length;
      return;
    }
}

/* ---- the public calls ---- */

void hr_explain_options_init(hr_explain_options *options) { *options = (hr_explain_options){0}; }

hr_status hr_explainer_create(const hr_explain_options *options, hr_explainer **explainer, hr_error *error) {
  hr_explainer *e = hri_alloc_zero(1, sizeof *e);
  *explainer = NULL;
  if (!e) return hri_fail_memory(error, sizeof *e, "an explainer");
  e->kept.framework = options ? options->framework : NULL;
  hr_status status = hri_scan_window_init(&e->window, error);
  if (status != HR_OK) {
    hri_free(e);
    return status;
  }
  *explainer = e;
  return HR_OK;
}

void hri_explainer_lend_ear(hr_explainer *e, const hri_voice_ear *ear) { e->ear = ear; }

/* Reads as a part what there is of a line that is too long; what that would cut in two stays for the next part. */
static hr_status part_line(hr_explainer *e, hr_error *error) {
  hri_scan_intake *in = &e->intake;
  const size_t cut = hri_line_cut(in->line, in->count), left = in->count - cut;
  memcpy(e->printed, in->line + cut, left);
  in->count = cut;
  HRI_TRY(end_line(e, false, error));
  memcpy(in->line, e->printed, left);
  in->count = left;
  return HR_OK;
}

static hr_status take_byte(hr_explainer *e, char byte, hr_error *error) {
  hri_scan_intake *in = &e->intake;
  if (byte == 0) return HR_OK; /* UTF-16 without a mark has one beside each letter of a message */
  if (byte == '\n' || byte == '\r') {
    if (in->count > 0 || in->continued) HRI_TRY(end_line(e, true, error));
    in->lines += byte == '\n';
    return HR_OK;
  }
  in->line[in->count++] = byte;
  return in->count == HRI_SCAN_LINE ? part_line(e, error) : HR_OK;
}

/* One unit of UTF-16: what it stands for, alone or with the one before, in UTF-8. */
static hr_status take_unit(hr_explainer *e, uint32_t unit, hr_error *error) {
  char bytes[4];
  size_t count;
  uint32_t point = unit;
  if (hri_utf16_is_high(unit)) {
    e->high = unit;
    return HR_OK;
  }
  if (hri_utf16_is_low(unit)) point = e->high ? hri_utf16_pair(e->high, unit) : HRI_REPLACEMENT;
  e->high = 0;
  count = hri_utf8_encode(point, bytes);
  for (size_t i = 0; i < count; i++) HRI_TRY(take_byte(e, bytes[i], error));
  return HR_OK;
}

/* The first bytes of a text can say how it is encoded: PowerShell writes UTF-16 with such a mark. */
static void see_mark(hr_explainer *e) {
  const unsigned char *mark = e->mark;
  if (e->bytes == 2 && mark[0] == 0xff && mark[1] == 0xfe) e->encoding = UTF16_LITTLE;
  if (e->bytes == 2 && mark[0] == 0xfe && mark[1] == 0xff) e->encoding = UTF16_BIG;
  if (e->encoding != BYTES || (e->bytes == 3 && hri_utf8_mark((const char *)mark, 3))) e->intake.count = 0;
}

static hr_status take_encoded(hr_explainer *e, unsigned char byte, hr_error *error) {
  if (e->encoding == BYTES) return take_byte(e, (char)byte, error);
  if (e->bytes % 2 == 1) {
    e->first = byte;
    return HR_OK;
  }
  return take_unit(e, e->encoding == UTF16_BIG ? e->first << 8 | byte : (uint32_t)byte << 8 | e->first, error);
}

hr_status hr_explainer_feed(hr_explainer *e, const void *bytes, size_t count, hr_error *error) {
  const unsigned char *next = bytes;
  for (size_t i = 0; i < count; i++) {
    const bool begins = e->bytes < sizeof e->mark;
    if (begins) e->mark[e->bytes] = next[i];
    e->bytes++;
    HRI_TRY(take_encoded(e, next[i], error));
    if (begins) see_mark(e);
  }
  return HR_OK;
}

hr_status hr_explainer_end(hr_explainer *e, hr_explanation **explanation, hr_error *error) {
  hr_explanation *result;
  *explanation = NULL;
  if (e->intake.count > 0) {
    HRI_TRY(end_line(e, true, error));
    e->intake.lines++;
  }
  complete_cut(&e->window);
  HRI_TRY(search(e, e->window.count, error));
  result = hri_alloc_zero(1, sizeof *result);
  if (!result) return hri_fail_memory(error, sizeof *result, "an explanation");
  hri_scan_kept_give(&e->kept, result);
  result->line_count = e->intake.lines;
  result->byte_count = e->bytes;
  *explanation = result;
  return HR_OK;
}

void hr_explainer_destroy(hr_explainer *e) {
  if (!e) return;
  hri_scan_window_deinit(&e->window);
  hri_scan_kept_deinit(&e->kept);
  hri_free(e);
}

void hr_explanation_destroy(hr_explanation *explanation) {
  if (!explanation) return;
  hri_free(explanation->failures);
  hri_free(explanation);
}

hr_status hr_explain_text(const void *bytes, size_t count, const hr_explain_options *options,
                          hr_explanation **explanation, hr_error *error) {
  hr_explainer *e;
  hr_status status;
  *explanation = NULL;
  HRI_TRY(hr_explainer_create(options, &e, error));
  status = hr_explainer_feed(e, bytes, count, error);
  if (status == HR_OK) status = hr_explainer_end(e, explanation, error);
  hr_explainer_destroy(e);
  return status;
}
