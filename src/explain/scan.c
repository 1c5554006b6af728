/* Finding messages in a stream of any length with bounded memory.
 *
 * People's logs wrap a message over lines, put "[rank3]:", "# " or a time stamp before each, mark words as bold and
 * colour them. So the text is brought to one form first: a line at a time, prefix taken off (its rank kept as a mark),
 * letters lower, blanks and line ends to one blank, emphasis and terminal escapes dropped. What is left goes into a
 * window of
 * WINDOW bytes that slides over the stream; a message is read only once AHEAD bytes behind its start are there (or the
 * end), and BEHIND bytes before it stay for the traceback that names the framework. Lines of other ranks and progress
 * bars between the lines of one message are left out by the marks; a rank that begins to speak within a line, behind
 * another's bar, gets a mark there.
 *
 * Bounded time: a byte is normalised once, searched once; a head that turns out to be none costs a copy of
 * HRI_OOM_TEXT_BYTES, reading a message that many bytes times a constant, and after MAX_PARSED messages they are only
 * counted. */
#include <headroom/explain.h>

#include "base/mem.h"
#include "explain/line.h"
#include "explain/match.h"
#include "explain/message.h"
#include "explain/report.h"
#include "explain/source.h"
#include "explain/voice.h"
#include "explain/wording.h"

enum {
  WINDOW = 128 * 1024,
  BEHIND = 8 * 1024,
  AHEAD = 16 * 1024,
  LINE = 4096,
  MAX_PARSED = 20000,
  NEAR_LINES = 40,
  TRIES = 96,
  LINE_BEHIND = 320,
  BEFORE = 320,
  WIDTHS = 16,
  LINE_AHEAD = 400
};

/* Where the text of a line, or of a rank's part of one, starts in the window. */
typedef struct mark {
  uint32_t offset;
  int32_t rank;
  int64_t who;    /* whose it is: the rank, or past all ranks the process id of "(worker pid=917)"; -1: not told */
  bool bar;       /* a progress bar and nothing else */
  uint16_t shape; /* of the raw line: HRI_OOM_LEVEL, HRI_OOM_ROW, ... */
  hri_source_kind source;
  uint64_t line;
} mark;

/* What stood between back quotes: places in the window. */
typedef struct span {
  uint32_t from, to;
} span;

/* How a kept failure was known. */
typedef struct origin {
  hri_oom_kind kind;
  bool exact, general;
} origin;

struct hr_explainer {
  const char *framework;
  const hri_voice_ear *ear; /* who hears the places; NULL: the weights decide */
  char line[LINE];          /* the raw line so far */
  size_t line_count;
  bool continued;                /* the raw line is the rest of one that was too long: it has no prefix */
  uint16_t widths[WIDTHS];       /* of the last raw lines, in characters ... */
  bool opens[WIDTHS];            /* ... and whether the next could have gone on with their last word ... */
  unsigned width_count;          /* ... how many there were ... */
  char last_head[3], last_end;   /* ... and how the last one began and ended, */
  bool last_speaks;              /* ... whether it speaks of memory, */
  uint64_t last_line;            /* ... and its number */
  int32_t rank;                  /* of the current raw line */
  int64_t who;                   /* likewise */
  uint16_t shape;                /* likewise */
  bool fenced;                   /* between lines of three back quotes */
  hri_source_kind source;        /* likewise */
  unsigned literal_lines;        /* how many more may belong to a literal that is open ... */
  const char *literal_quote;     /* ... and what closes it */
  bool is_comment;               /* it is no statement's ... */
  uint64_t literal_start;        /* ... and began there ... */
  uint64_t comment_end;          /* ... and ended there, with nothing but blank lines since; 0: none */
  unsigned output_lines;         /* how many more may be elements of a notebook's printed output ... */
  unsigned output_type;          /* ... and for how many more lines a field "text" begins one */
  char *text;                    /* the window, normalised */
  size_t count, searched, muted; /* no head of known words is looked for before `muted` ... */
  size_t spoken;                 /* ... and no word of the general rule before `spoken` */
  size_t judged_line;            /* the line that words were last looked at in, plus one; 0: none ... */
  uint32_t tries;                /* ... and how many that were none */
  bool may_fail;                 /* ... and whether any word in it says that something failed */
  HRI_ARRAY(mark) marks;
  HRI_ARRAY(span) ticks;
  HRI_ARRAY(hr_oom_failure) failures;
  HRI_ARRAY(origin) origins; /* of the failures */
  hri_oom_message message;   /* scratch: large, so not on the stack */
  hr_oom_failure torn;       /* the last message that another one interrupted within its line ... */
  size_t torn_end;           /* ... and where in the window that line ends; 0: none */
  char one[HRI_OOM_TEXT_BYTES + BEFORE];
  uint64_t parsed, more, lines, bytes;
};

/* ---- one raw line into the window ---- */

static void add_blank(hr_explainer *e) {
  if (e->count > 0 && e->text[e->count - 1] != ' ') e->text[e->count++] = ' ';
}

/* Marks what comes next in the window, unless the place is marked. */
static bool push_mark(hr_explainer *e, bool bar) {
  mark here = {(uint32_t)e->count, e->rank, e->who, bar, e->shape, e->source, e->lines + 1};
  if (e->marks.count > 0 && e->marks.items[e->marks.count - 1].offset == here.offset) {
    e->marks.items[e->marks.count - 1] = here;
    return true;
  }
  return hri_array_push(&e->marks, here);
}

/* Back quotes at e->line[at], where the window has come to `e->count`: what they enclose is remembered. */
static bool see_tick(hr_explainer *e, size_t at, size_t *open) {
  span found = {(uint32_t)*open, (uint32_t)e->count};
  if (at > 0 && e->line[at - 1] == '`') return true; /* a run of them is one */
  if (*open == SIZE_MAX) {
    *open = e->count;
    return true;
  }
  *open = SIZE_MAX;
  return found.from == found.to || hri_array_push(&e->ticks, found);
}

/* What a character of three bytes, as documents set it, is on a keyboard: a quotation mark, an apostrophe, a hyphen, a blank;
 * 0 when it is none of these. */
static char plain_of(const char *c) {
  static const struct {
    unsigned char last;
    char plain;
  } marks[] = {{0x9c, '"'}, {0x9d, '"'}, {0x98, '\''}, {0x99, '\''}, {0x91, '-'}, {0x89, ' '}, {0xaf, ' '}};
  for (size_t i = 0; i < HRI_COUNT(marks) && c[1] == (char)0x80; i++)
    if (c[2] == (char)marks[i].last) return marks[i].plain;
  return 0;
}

/* "<br>", "<br/>", "<br />" at line[at]. */
static bool is_line_break(const char *line, size_t at, size_t end) {
  return hri_match_at(line, at, end, "<br>|<br/>|<br />");
}

/* Whether a character is neither a blank nor the first of what is dressed or written otherwise. */
static inline bool is_plain(char c) {
  return (c > ' ' && c < 0x7f && c != '*' && c != '`' && c != '<' && c != '\\' && c != '&') ||
         ((unsigned char)c >= 0x80 && c != (char)0xc2 && c != (char)0xe2);
}

/* False when back quotes could not be kept. */
static bool add_part(hr_explainer *e, size_t at, size_t end, size_t open) {
  bool kept = true;
  while (at < end) {
    char c = e->line[at];
    size_t skip;
    if (is_plain(c)) { /* nearly all there is */
      e->text[e->count++] = hri_line_lower(c);
      at++;
      continue;
    }
    skip = hri_line_dressing(e->line, end, at);
    if (c == '`') kept = see_tick(e, at, &open) && kept;
    if (skip) {
      at += skip;
    } else if (c == '\\' && at + 1 < end && (e->line[at + 1] == 'n' || e->line[at + 1] == 't')) {
      add_blank(e); /* a line end inside a JSON string */
      at += 2;
    } else if (c == (char)0xc2 && at + 1 < end && e->line[at + 1] == (char)0xa0) {
      add_blank(e); /* the blank that does not break */
      at += 2;
    } else if (c == (char)0xe2 && at + 2 < end && plain_of(e->line + at)) {
      if (plain_of(e->line + at) == ' ') add_blank(e);
      else e->text[e->count++] = plain_of(e->line + at);
      at += 3;
    } else if (c == '&' && hri_match_at(e->line, at, end, "&nbsp;")) {
      add_blank(e);
      at += 6;
    } else if (c == '<' && is_line_break(e->line, at, end)) {
      add_blank(e);
      while (e->line[at++] != '>') continue;
    } else {
      if (hri_line_is_blank(c)) add_blank(e);
      else e->text[e->count++] = hri_line_lower(c);
      at++;
    }
  }
  return kept && (open == SIZE_MAX || see_tick(e, 0, &open)); /* or closed in the next line */
}

/* Where back quotes are open at the raw line's text, whose prefix ends at `at`: SIZE_MAX when none are. */
static size_t open_tick(const hr_explainer *e, size_t at) {
  bool open = false;
  for (size_t i = 0; i < at; i++)
    if (e->line[i] == '`' && (i == 0 || e->line[i - 1] != '`')) open = !open;
  return open ? e->count : SIZE_MAX;
}

/* Where the raw line goes on with a string literal that the line before left off, behind its quote; `at` when it does
 * not. */
static size_t literal_start(const hr_explainer *e, size_t at, size_t count) {
  size_t end = e->count, from = at;
  while (end > 0 && e->text[end - 1] == ' ') end--;
  while (from < count && hri_line_is_blank(e->line[from])) from++;
  if (end == 0 || e->count - end > 1 || e->text[end - 1] != '"' || from + 1 >= count) return at;
  if (e->continued || e->line[from] != '"' || e->line[from + 1] == ':' || e->line[from + 1] == ',') return at;
  return e->marks.count > 0 && end - 1 > e->marks.items[e->marks.count - 1].offset ? from + 1 : at;
}

/* What stands in the lines [first, last] is a program's after all. */
static void make_source(hr_explainer *e, uint64_t first, uint64_t last) {
  for (size_t i = e->marks.count; i-- > 0 && e->marks.items[i].line >= first;)
    if (e->marks.items[i].line <= last) e->marks.items[i].source = HRI_SOURCE_CODE;
}

/* Whether what stands in the window so far ends amid a statement: "setprompt(". */
static bool goes_on(const hr_explainer *e) {
  size_t end = e->count;
  while (end > 0 && e->text[end - 1] == ' ') end--;
  return end > 0 && strchr("([{=,+:?", e->text[end - 1]);
}

/* How often quotes over several lines stand in the raw line: `only` if one is given, else the first kind that does, which
 * *quote becomes. */
static unsigned count_quotes(const hr_explainer *e, size_t count, const char *only, const char **quote) {
  static const char *const kinds[] = {"\"\"\"", "'''", "`"};
  unsigned seen = 0;
  for (size_t i = 0; i < HRI_COUNT(kinds) && !seen; i++) {
    *quote = only ? only : kinds[i];
    for (size_t at = hri_oom_word(e->line, 0, count, *quote); at < count;
         at = hri_oom_word(e->line, at + strlen(*quote), count, *quote))
      seen++;
    if (only) break;
  }
  return seen;
}

/* A literal over several lines that a statement opens, `text = """` or "say(`": what stands in it is the program's. A text
 * that begins with the quotes is a comment on what follows: it speaks for itself unless a program follows. `before` is what
 * the line before is. */
static void see_long_literal(hr_explainer *e, size_t count, hri_source_kind before) {
  enum { LONGEST = 60 };
  const char *quote;
  const unsigned seen = count_quotes(e, count, e->literal_lines > 0 ? e->literal_quote : NULL, &quote);
  size_t first = 0;
  while (first < count && hri_line_is_blank(e->line[first])) first++;
  if (e->literal_lines > 0) {
    e->literal_lines--;
    if (!e->is_comment) e->source = HRI_SOURCE_CODE;
    if (seen % 2 == 0) return;
    e->literal_lines = 0;
    e->comment_end = e->is_comment ? e->lines + 1 : 0;
    return;
  }
  if (e->comment_end > 0 && first < count) { /* the first line behind a comment */
    if (e->source == HRI_SOURCE_CODE) make_source(e, e->literal_start, e->comment_end);
    e->comment_end = 0;
  }
  if (seen % 2 == 0) return;
  bool opens = quote[0] != '`'
                   ? hri_source_opens_literal(e->line, count)
                   : (before == HRI_SOURCE_CODE && e->line[first] == '`' && first + 3 < count && goes_on(e)) ||
                         hri_match_end(e->line, first, count, "= `|+ `|(`");
  e->is_comment = !opens && hri_match_at(e->line, first, count, "\"\"\"|'''");
  if (!opens && !e->is_comment) return;
  e->literal_lines = LONGEST;
  e->literal_quote = quote;
  e->literal_start = e->lines + 1;
}

/* A notebook keeps what was printed as an array of literals, `"traceback": [` or, beside an "output_type", `"text": [`: an
 * element is a line of output, which is brought to the beginning of e->line; returns how long it is. */
static size_t open_output(hr_explainer *e, size_t count) {
  enum { LONGEST = 2000, BESIDE = 4 };
  size_t from = 0, to = count;
  while (from < to && hri_line_is_blank(e->line[from])) from++;
  while (to > from && (hri_line_is_blank(e->line[to - 1]) || e->line[to - 1] == ',')) to--;
  if (e->output_type > 0) e->output_type--;
  if (from == to) return count;
  if (hri_match_at(e->line, from, to, "\"output_type\": ")) e->output_type = BESIDE;
  if (e->output_lines > 0) {
    e->output_lines = e->line[from] == '"' ? e->output_lines - 1 : 0;
    if (e->output_lines == 0 || to - from < 2 || e->line[to - 1] != '"') return count;
    memmove(e->line, e->line + from + 1, to - from - 2);
    count = to - from - 2;
    return hri_match_end(e->line, 0, count, "\\n") ? count - 2 : count;
  }
  if ((hri_match_at(e->line, from, to, "\"traceback\": [") && to - from == 14) ||
      (e->output_type > 0 && hri_match_at(e->line, from, to, "\"text\": [") && to - from == 9))
    e->output_lines = LONGEST;
  return count;
}

/* A line of three back quotes opens a block of output or code, and another one closes it. */
static void see_fence(hr_explainer *e, size_t count) {
  size_t at = 0;
  while (at < count && (hri_line_is_blank(e->line[at]) || e->line[at] == '>')) at++;
  if (at == 0 && count > 1 && e->line[0] == '+') at++; /* of a difference */
  if (at + 2 < count && memcmp(e->line + at, "```", 3) == 0 && !memchr(e->line + at + 3, '`', count - at - 3))
    e->fenced = !e->fenced;
  else if (e->fenced) e->shape |= HRI_OOM_FENCED;
}

/* A line that stands between quotation marks as documents set them, whole: nobody's literal. Moves `at` behind the first and
 * returns where the last begins. */
static size_t skip_quotes(const hr_explainer *e, size_t *at, size_t count) {
  size_t from = *at, to = count;
  while (from < to && hri_line_is_blank(e->line[from])) from++;
  while (to > from && hri_line_is_blank(e->line[to - 1])) to--;
  if (to - from < 8 || !hri_match_at(e->line, from, to, "\xe2\x80\x9c") ||
      !hri_match_end(e->line, from, to, "\xe2\x80\x9d"))
    return count;
  *at = from + 3;
  return to - 3;
}

/* Whether the raw line begins as a record or an exception does, or tells of a kill: it is no rest of another. */
static bool begins_anew(const hr_explainer *e, size_t count) {
  size_t end = 0;
  while (end < count && !hri_line_is_blank(e->line[end])) end++;
  return hri_line_reports_kill(e->line, count, 0) || (end > 0 && e->line[end - 1] == ':') ||
         hri_line_shape(e->line, count, 0) & (HRI_OOM_LEVEL | HRI_OOM_DATED);
}

/* Whether the raw line goes on with the word that the one right before broke off: a terminal of a certain width did. That one
 * is as wide as any of the last lines are; so is one more that goes on, or this one where the one before speaks of memory;
 * and none that goes on is nearly as wide: words that prose is filled with end anywhere. Lines that begin alike are a
 * program's, each for itself. */
static bool is_cut_by_width(hr_explainer *e, size_t count) {
  enum { LEAST = 60, NEARLY = 10 };
  uint16_t width = 0, most = 0;
  unsigned widest = 0, nearly = 0;
  const unsigned last = e->width_count % WIDTHS;
  const uint16_t before = e->widths[(last + WIDTHS - 1) % WIDTHS];
  const bool joins = count > 3 && e->lines == e->last_line + 1 && hri_is_name(e->last_end) &&
                     hri_is_name(hri_line_lower(e->line[0])) &&
                     memcmp(e->line, e->last_head, sizeof e->last_head) != 0 && !begins_anew(e, count);
  for (size_t i = 0; i < count; i++) width = (uint16_t)(width + ((e->line[i] & 0xc0) != 0x80));
  e->widths[last] = width;
  e->width_count++;
  e->opens[(last + WIDTHS - 1) % WIDTHS] = joins;
  memcpy(e->last_head, e->line, count < sizeof e->last_head ? count : sizeof e->last_head);
  e->last_end = count > 0 ? hri_line_lower(e->line[count - 1]) : ' ';
  e->last_line = e->lines;
  e->opens[last] = false;
  for (unsigned i = 0; i < WIDTHS; i++) most = e->widths[i] > most ? e->widths[i] : most;
  for (unsigned i = 0; i < WIDTHS; i++) {
    widest += e->widths[i] == most && (e->opens[i] || (i == last && e->last_speaks));
    nearly += e->opens[i] && e->widths[i] < most && e->widths[i] + NEARLY > most;
  }
  e->last_speaks = hri_match_part(e->line, 0, count, "memory|alloc");
  return joins && before == most && most >= LEAST && widest >= 2 && nearly == 0;
}

/* Takes the blank off the end of the window, which a line that goes on has not. */
static void drop_blank(hr_explainer *e) {
  if (e->count == 0 || e->text[e->count - 1] != ' ') return;
  e->count--;
  if (e->searched > e->count) e->searched = e->count;
}

/* Normalises the raw line into the window, which has room for it. False when a mark could not be kept. */
static bool add_line(hr_explainer *e, bool complete) {
  size_t open;
  size_t count = hri_line_drop_escapes(e->line, e->line_count), at = 0, end, behind = 0;
  hri_source_kind before;
  if (!e->continued && complete) count = open_output(e, count);
  const bool cut = !e->continued && complete && is_cut_by_width(e, count) && e->marks.count > 0;
  bool kill = false, kept = true, first = true;
  if (cut) drop_blank(e);
  if (!e->continued && !cut) {
    e->rank = -1;
    e->who = -1;
    at = hri_line_skip_prefix(e->line, count, &e->rank, &e->who);
    e->shape = hri_line_shape(e->line, count, at);
    see_fence(e, count);
    before = e->source;
    e->source = hri_source_of(e->line, count);
    see_long_literal(e, count, before);
    kill = complete && hri_line_reports_kill(e->line, count, at);
    if (kill && e->line[0] == '*') e->shape &= (uint16_t)~(HRI_OOM_COMMENT | HRI_OOM_HEADING); /* no item, no heading */
  }
  count = skip_quotes(e, &at, count);
  open = literal_start(e, at, count);
  if (open > at) { /* "... has a total " goes on as "capacity of ..." */
    e->count -= e->text[e->count - 1] == ' ' ? 2 : 1;
    if (e->text[e->count - 1] != ' ') add_blank(e);
    at = open;
  }
  while (at < count && kept) {
    end = hri_line_part_end(e->line, count, at);
    kept = ((cut && first) || push_mark(e, hri_line_is_bar(e->line, at, end))) &&
           add_part(e, at, end, first ? open_tick(e, at) : SIZE_MAX);
    first = false;
    if (end < count) {
      e->rank = hri_line_rank_at(e->line, count, end, &behind);
      e->who = e->rank;
      end = behind;
      add_blank(e);
    }
    at = end;
  }
  if (kill) { /* in the words of a head */
    memcpy(e->text + e->count, " (sigkill)", 10);
    e->count += 10;
  }
  if (complete) add_blank(e);
  e->line_count = 0;
  if (!complete) e->last_end = ' ', e->last_line = UINT64_MAX - 1; /* its width is not known */
  e->continued = !complete;
  return kept;
}

/* ---- messages in the window ---- */

/* Copies up to BEFORE bytes that stand before `at` to the beginning of e->one, without the lines of other ranks; returns
 * how many. */
static size_t copy_before(hr_explainer *e, size_t at, size_t m) {
  int64_t who = e->marks.items[m].who;
  size_t left = BEFORE, first = m;
  for (size_t end = at; left > 0 && end > 0;) {
    size_t begin = e->marks.items[m].offset < end ? e->marks.items[m].offset : end;
    bool mine = m == first || ((e->marks.items[m].who == who || e->marks.items[m].who < 0) && !e->marks.items[m].bar);
    size_t take = mine ? (end - begin < left ? end - begin : left) : 0;
    left -= take;
    memcpy(e->one + left, e->text + end - take, take);
    end = begin;
    if (m == 0 || first - m > 40) break;
    m--;
  }
  memmove(e->one, e->one + left, BEFORE - left);
  return BEFORE - left;
}

/* Copies the text from `at` on into e->one, without the lines of other ranks; returns its length. What stands before
 * `at` comes first; *start is where `at` came to lie. */
static size_t one_message(hr_explainer *e, size_t at, size_t mark_index, size_t *start) {
  size_t count = copy_before(e, at, mark_index), m = mark_index;
  int64_t who = e->marks.items[m].who;
  *start = count;
  while (at < e->count && count < sizeof e->one) {
    size_t end = m + 1 < e->marks.count ? e->marks.items[m + 1].offset : e->count;
    int64_t here = e->marks.items[m].who;
    if ((here == who || here < 0) && (!e->marks.items[m].bar || m == mark_index)) {
      size_t take = end - at < sizeof e->one - count ? end - at : sizeof e->one - count;
      memcpy(e->one + count, e->text + at, take);
      count += take;
    }
    at = end;
    m++;
    if (m - mark_index > 400) break;
  }
  return count;
}

static bool ranks_agree(int32_t a, int32_t b) { return a == b || a < 0 || b < 0; }

static bool is_device_kind(hri_oom_kind kind) {
  return kind == HRI_OOM_CACHING || kind == HRI_OOM_ASYNC || kind == HRI_OOM_REJECTED || kind == HRI_OOM_MPS ||
         kind == HRI_OOM_BARE || kind == HRI_OOM_REPORT;
}

/* True when a message repeats a failure that is known: a wrapper's error after the first, a summary of all ranks. */
static bool is_repeat(const hr_explainer *e, size_t i, const hr_oom_failure *failure, hri_oom_kind kind) {
  const hr_oom_failure *old = &e->failures.items[i];
  bool figures = failure->figures[HR_OOM_REQUESTED].state != HR_OOM_ABSENT;
  if (!ranks_agree(old->rank, failure->rank)) return false;
  if (!figures && is_device_kind(kind) && is_device_kind(e->origins.items[i].kind)) return true;
  return kind == e->origins.items[i].kind && strcmp(old->source, failure->source) == 0 &&
         hri_oom_same_figures(old, failure) &&
         (old->device_index == failure->device_index || failure->device_index < 0 || old->device_index < 0);
}

/* The allocator's log line and the message that follows it are one failure: what the message has rounded is taken from
 * the line. False when they are two. */
static bool take_exact(const hr_oom_failure *line, hr_oom_failure *failure) {
  static const hr_oom_figure both[] = {HR_OOM_REQUESTED, HR_OOM_TOTAL};
  if (!ranks_agree(line->rank, failure->rank)) return false;
  if (line->device_index >= 0 && failure->device_index >= 0 && line->device_index != failure->device_index)
    return false;
  for (size_t i = 0; i < sizeof both / sizeof *both; i++) {
    const hr_oom_value *a = &line->figures[both[i]], *b = &failure->figures[both[i]];
    uint64_t apart = a->bytes > b->bytes ? a->bytes - b->bytes : b->bytes - a->bytes;
    if (!hri_oom_known(a) || !hri_oom_known(b) || apart > b->slack_bytes) return false;
  }
  for (size_t i = 0; i < sizeof both / sizeof *both; i++) failure->figures[both[i]] = line->figures[both[i]];
  return true;
}

/* Whether `part` shows the same failure as `whole` and less of it: a request that a title or another exception quotes. */
static bool is_part(const hr_oom_failure *part, const hr_oom_failure *whole) {
  uint32_t shown = 0;
  if (!ranks_agree(part->rank, whole->rank) || strcmp(part->source, whole->source) != 0) return false;
  if (whole->figures[HR_OOM_ALLOCATED].state != HR_OOM_READ || part->figures[HR_OOM_TOTAL].state != HR_OOM_ABSENT)
    return false;
  for (int i = 0; i < HR_OOM_FIGURE_COUNT; i++) {
    const hr_oom_value *a = &part->figures[i], *b = &whole->figures[i];
    if (a->state == HR_OOM_ABSENT) continue;
    if (a->state != b->state || a->bytes != b->bytes) return false;
    shown++;
  }
  return shown > 0;
}

/* The last failure that is such a line alone and belongs to the message; count: none. */
static size_t find_exact(const hr_explainer *e, hr_oom_failure *failure) {
  size_t i = e->failures.count;
  while (i > 0)
    if (e->origins.items[--i].exact && take_exact(&e->failures.items[i], failure)) return i;
  return e->failures.count;
}

/* Whether a message that was met in its middle is one that was read from its beginning, some lines before: the same
 * rank's, and no figure differs. */
static bool is_rest(const hr_oom_failure *old, const hr_oom_failure *rest) {
  if (old->rank != rest->rank || rest->line - old->line > NEAR_LINES) return false;
  for (int i = 0; i < HR_OOM_FIGURE_COUNT; i++) {
    const hr_oom_value *a = &old->figures[i], *b = &rest->figures[i];
    if (b->state == HR_OOM_READ && (a->state != HR_OOM_READ || a->bytes != b->bytes)) return false;
  }
  return true;
}

/* Whether `failure`, known by its structure alone, says again in other words what was said some lines before. */
static bool is_echo(const hr_oom_failure *old, const hr_oom_failure *failure) {
  bool figures = failure->figures[HR_OOM_REQUESTED].state != HR_OOM_ABSENT;
  return ranks_agree(old->rank, failure->rank) && failure->line - old->line <= NEAR_LINES &&
         (!figures || old->figures[HR_OOM_REQUESTED].state != HR_OOM_ABSENT);
}

/* Whether the same speaker says some lines later how much was asked for. */
static bool says_more(const hr_oom_failure *old, const hr_oom_failure *failure) {
  return strcmp(old->source, failure->source) == 0 && ranks_agree(old->rank, failure->rank) &&
         failure->line - old->line <= NEAR_LINES && old->figures[HR_OOM_REQUESTED].state == HR_OOM_ABSENT &&
         failure->figures[HR_OOM_REQUESTED].state == HR_OOM_READ;
}

/* Whether another framework's failure some lines before was only named, or only by an interface. */
static bool is_guess(const hr_explainer *e, size_t i, const hr_oom_failure *failure) {
  const hr_oom_failure *old = &e->failures.items[i];
  const hri_oom_kind kind = e->origins.items[i].kind;
  return (kind == HRI_OOM_FOREIGN || kind == HRI_OOM_FOREIGN_LIKELY) && old->certainty != HR_OOM_CERTAIN &&
         ranks_agree(old->rank, failure->rank) && failure->line - old->line <= NEAR_LINES;
}

/* A failure known by its structure alone, without a request, some lines before one whose words are known: that one says
 * more about it. count: none. */
static size_t find_general(const hr_explainer *e, const hr_oom_failure *failure) {
  for (size_t i = e->failures.count; i-- > 0;) {
    const hr_oom_failure *old = &e->failures.items[i];
    if (hri_oom_is_kill(failure->source) && old->cause != HR_OOM_UNKNOWN) continue; /* it says less */
    if (e->origins.items[i].general && ranks_agree(old->rank, failure->rank) &&
        failure->line - old->line <= NEAR_LINES && old->figures[HR_OOM_REQUESTED].state == HR_OOM_ABSENT)
      return i;
  }
  return e->failures.count;
}

static hr_status keep(hr_explainer *e, size_t at, hr_error *error) {
  hri_oom_message *message = &e->message;
  hr_oom_failure *failure = &message->failure;
  size_t behind = at < BEHIND ? at : BEHIND, line = e->failures.count;
  for (size_t i = 0; i < e->failures.count; i++) {
    hr_oom_failure *old = &e->failures.items[i];
    if (message->kind == HRI_OOM_CACHING && is_part(old, failure)) {
      line = i;
      break;
    }
    if (message->kind == HRI_OOM_FOREIGN && !message->anybodys && is_guess(e, i, failure)) {
      line = i; /* who that was is told by a line of its own */
      break;
    }
    if (message->kind == HRI_OOM_FOREIGN && says_more(old, failure)) {
      line = i; /* the same speaker's next line has the request */
      break;
    }
    if (e->origins.items[i].general && !message->general && is_repeat(e, i, failure, message->kind)) {
      line = i; /* the one whose words are known says more */
      break;
    }
    if (!is_repeat(e, i, failure, message->kind) && !is_part(failure, old) &&
        !(message->general && is_echo(old, failure)) && !(message->cut && is_rest(old, failure)))
      continue;
    if (!message->cut) old->repeats++;
    if (old->rank < 0) old->rank = failure->rank;
    if (old->device_index < 0) old->device_index = failure->device_index;
    return HR_OK;
  }
  if (line == e->failures.count && message->kind == HRI_OOM_CACHING && !message->exact) line = find_exact(e, failure);
  if (line == e->failures.count && !message->general) line = find_general(e, failure);
  if (line == e->failures.count && e->failures.count == HR_OOM_MAX_FAILURES) {
    e->more++;
    return HR_OK;
  }
  message->has_run = false;
  hri_oom_closed_bar(e->text + at, e->count - at < HRI_OOM_TEXT_BYTES ? e->count - at : HRI_OOM_TEXT_BYTES, message);
  hri_oom_context(e->text + at - behind, behind, message);
  if (e->framework) failure->framework = e->framework;
  hri_oom_judge(message);
  hri_oom_advise(failure, message->expandable);
  if (line < e->failures.count) {
    failure->repeats = e->failures.items[line].repeats;
    e->failures.items[line] = *failure;
    e->origins.items[line] = (origin){message->kind, false, message->general};
    return HR_OK;
  }
  origin known = {message->kind, message->exact, message->general};
  if (!hri_array_push(&e->origins, known)) return hri_fail_memory(error, sizeof *failure, "an explanation");
  if (!hri_array_push(&e->failures, *failure)) return hri_fail_memory(error, sizeof *failure, "an explanation");
  return HR_OK;
}

/* Two processes that write into one line: a message that ends where another begins, with figures lacking, is
 * remembered; what the other one then shows of these figures is not taken for its own. */
static void untangle(hr_explainer *e, size_t at, size_t mark_index, size_t after) {
  size_t line = mark_index + 1 < e->marks.count ? e->marks.items[mark_index + 1].offset : e->count;
  hri_oom_message *m = &e->message;
  const hr_oom_value *f = m->failure.figures;
  if (at < e->torn_end) hri_oom_untangle(&e->torn, m);
  e->torn_end = 0;
  if (m->kind == HRI_OOM_CACHING && !m->exact && after < line && f[HR_OOM_ALLOCATED].state == HR_OOM_ABSENT &&
      f[HR_OOM_REQUESTED].state == HR_OOM_READ && hri_oom_is_broken_off(e->text + at, after - at)) {
    e->torn = m->failure;
    e->torn_end = line;
  }
}

/* Where prose that was wrapped into the line of mark `m` begins: the line before it, when that one is long, has words
 * and is left open. */
static size_t wrapped_start(const hr_explainer *e, size_t m) {
  size_t line = e->marks.items[m].offset, from, end, blanks = 0, digits = 0;
  if (m == 0 || e->marks.items[m - 1].who != e->marks.items[m].who) return line;
  from = e->marks.items[m - 1].offset;
  for (end = line; end > from && e->text[end - 1] == ' ';) end--;
  if (end - from < 30 || end - from > 160 || e->marks.items[m - 1].bar) return line;
  for (size_t i = from; i < end; i++) {
    blanks += e->text[i] == ' ';
    digits += hri_is_digit(e->text[i]);
  }
  if (digits > (end - from) / 6) return line;                                 /* what a program counted is no prose */
  if (hri_match_at(e->text, line, e->count, "killed (sigkill)")) return line; /* a shell's line */
  return blanks >= 5 && (hri_is_letter(e->text[end - 1]) || e->text[end - 1] == ',') ? from : line;
}

/* Whether mark `m` stands in a comment of several lines, of which this one is no more than an example. */
static bool is_in_long_comment(const hr_explainer *e, size_t m) {
  enum { LONG = 5 };
  size_t from = m, to = m;
  while (from > 0 && m - from < LONG && e->marks.items[from - 1].shape & HRI_OOM_REMARK) from--;
  while (to + 1 < e->marks.count && to - m < LONG && e->marks.items[to + 1].shape & HRI_OOM_REMARK) to++;
  return e->marks.items[m].shape & HRI_OOM_REMARK && m - from >= 2 && to - from >= LONG;
}

/* Whether a program's source stands close to mark `m`; the line below a frame of a traceback is none. */
static bool is_among_source(const hr_explainer *e, size_t m) {
  enum { REACH = 6 };
  if (is_in_long_comment(e, m)) return true;
  size_t from = m < REACH ? 0 : m - REACH, to = m + REACH < e->marks.count ? m + REACH : e->marks.count - 1;
  for (size_t i = from; i <= to; i++)
    if (i != m && e->marks.items[i].source == HRI_SOURCE_CODE &&
        (i == 0 || e->marks.items[i - 1].source != HRI_SOURCE_FRAME))
      return true;
  return false;
}

/* Whether the literal in the line of mark `m` is an element of a program's: its neighbour is source too. */
static bool is_element(const hr_explainer *e, size_t m) {
  return (m > 0 && e->marks.items[m - 1].source != HRI_SOURCE_NONE) ||
         (m + 1 < e->marks.count && e->marks.items[m + 1].source != HRI_SOURCE_NONE);
}

/* Whether the line of mark `m` is a program's, or one that a traceback lists with its number: "111 else:". */
static bool is_listed(const hr_explainer *e, size_t m) {
  size_t at = e->marks.items[m].offset;
  if (e->marks.items[m].source == HRI_SOURCE_CODE) return true;
  while (at < e->count && hri_is_digit(e->text[at])) at++;
  return at > e->marks.items[m].offset && at < e->count && e->text[at] == ' ';
}

/* "torch.outofmemoryerror:" at the end of text[from, end). */
static bool ends_with_class(const char *text, size_t from, size_t end) {
  size_t word = end;
  while (word > from && text[word - 1] != ' ') word--;
  return word + 1 < end && hri_match_end(text, word + 1, end, "error:|exception:");
}

/* Whether the line of mark `m` ends with a colon that is no exception's. */
static bool is_intro(const hr_explainer *e, size_t m) {
  size_t from = e->marks.items[m].offset, end = e->marks.items[m + 1].offset;
  while (end > from && e->text[end - 1] == ' ') end--;
  return end > from && e->text[end - 1] == ':' && !ends_with_class(e->text, from, end);
}

/* How many bytes from `from` on stand before the block of output that holds mark `m`: before the fence above, or before its
 * first line, where no more than BLOCK lines stand between that follow each other. A line of source introduces nothing: 0. */
static size_t intro_of(const hr_explainer *e, size_t m, size_t from) {
  enum { BLOCK = 6 };
  const mark *marks = e->marks.items;
  size_t at = m;
  while (m > 0 && marks[m].shape & HRI_OOM_FENCED && marks[m - 1].shape & HRI_OOM_FENCED) m--;
  if (!(marks[m].shape & HRI_OOM_FENCED)) {
    while (at > 0 && m - at < BLOCK && marks[at].line - marks[at - 1].line <= 1 && !is_intro(e, at - 1)) at--;
    if (at > 0 && marks[at].line - marks[at - 1].line <= 2 && is_intro(e, at - 1)) m = at;
  }
  if (m > 0 && is_listed(e, m - 1)) return 0;
  return marks[m].offset > from ? marks[m].offset - from : 0;
}

/* The word at `at` in the window and its line, as far as the general rule looks. */
static hri_oom_place place_of(const hr_explainer *e, size_t at, size_t m) {
  hri_oom_place p = {.text = e->text, .line = e->marks.items[m].offset, .at = at, .count = e->count, .ear = e->ear};
  p.line_end = m + 1 < e->marks.count ? e->marks.items[m + 1].offset : e->count;
  p.shape = e->marks.items[m].shape;
  p.shape |= is_among_source(e, m) ? HRI_OOM_AMONG : 0;
  if (e->marks.items[m].line == 1 && m + 1 < e->marks.count && e->marks.items[m + 1].line > 2 &&
      !(p.shape & (HRI_OOM_HEADING | HRI_OOM_COMMENT)))
    p.shape |= HRI_OOM_TITLE;
  p.shape |= e->marks.items[m].source == HRI_SOURCE_LITERAL && is_element(e, m) ? HRI_OOM_LITERAL : 0;
  if (e->marks.items[m].source == HRI_SOURCE_CODE ||
      (e->marks.items[m].source == HRI_SOURCE_LITERAL && p.shape & HRI_OOM_AMONG && is_element(e, m)))
    p.shape |= HRI_OOM_SOURCE;
  for (size_t i = e->ticks.count; i-- > 0 && e->ticks.items[i].to > p.line;) {
    const span *s = &e->ticks.items[i];
    if (s->from >= p.line_end) continue;
    p.has_ticks = true;
    if (s->from > at || s->to <= at) continue;
    p.tick_from = s->from;
    p.tick_to = s->to;
  }
  p.sentence = e->marks.items[m].shape & HRI_OOM_LEVEL ? p.line : wrapped_start(e, m);
  p.before_count = p.line < BEHIND ? p.line : BEHIND;
  p.before = e->text + p.line - p.before_count;
  p.intro_count = intro_of(e, m, p.line - p.before_count);
  if (at - p.line > LINE_BEHIND) p.sentence = p.line = at - LINE_BEHIND;
  if (p.line_end - at > LINE_AHEAD) p.line_end = at + LINE_AHEAD;
  return p;
}

/* The same in the copy of one message, where `at` came to lie at `start`. */
static void move_place(hri_oom_place *p, const char *one, size_t start, size_t count) {
  size_t before = p->at - p->line, wrapped = p->at - p->sentence, behind = p->line_end - p->at;
  if (p->tick_from < p->tick_to) {
    p->tick_to = p->tick_to - p->at + start;
    p->tick_from = p->at - p->tick_from < start ? start - (p->at - p->tick_from) : 0;
  }
  p->text = one;
  p->line = before < start ? start - before : 0;
  p->sentence = wrapped < start ? start - wrapped : 0;
  p->line_end = start + behind < count ? start + behind : count;
  p->at = start;
  p->count = count;
}

/* Whether a message whose words are known begins behind `at` in its line: then that one is read. */
static bool is_known_later(hr_explainer *e, const hri_oom_place *p) {
  size_t end;
  const size_t to = p->line_end + 64 < p->count ? p->line_end + 64 : p->count; /* a head may be wrapped */
  for (size_t at = hri_oom_find(p->text, p->at + 1, to); at < p->line_end; at = hri_oom_find(p->text, at + 1, to)) {
    if (hri_oom_is_general(p->text, at, to)) continue;
    if (hri_oom_parse(p->text, at, p->count, &e->message, &end) != HRI_OOM_NOTHING &&
        !hri_oom_is_kill(e->message.failure.source)) /* which says less than words of memory */
      return true;
  }
  return false;
}

static void begin_message(hr_explainer *e, size_t m) {
  memset(&e->message, 0, sizeof e->message); /* 10 KiB: what a head that was none has left there */
  e->message.failure.rank = e->marks.items[m].rank;
  e->message.failure.line = e->marks.items[m].line;
  e->message.failure.event = UINT64_MAX;
}

/* Whether what stands at the place is worth a look: a line, or a part of one that is too long, holds few of them, and a
 * word of the general rule needs another one that says that something failed. */
static bool is_worth_it(hr_explainer *e, const hri_oom_place *p, size_t m, bool general) {
  static const char words[] =
      "fail|unable|cannot|can't|could|not |out of|out_of|outof|insuff|exhaust|exceed|error|no |oom|lack|"
      "than|too |full|overflow|enomem|refuse|ran out|impossible|n't |paging";
  size_t line = e->marks.items[m].offset, end = m + 1 < e->marks.count ? e->marks.items[m + 1].offset : p->count;
  end = end + 120 < p->count ? end + 120 : p->count; /* or in the next line, where one was wrapped */
  if (e->judged_line != line + 1) {
    e->judged_line = line + 1;
    e->tries = 0;
    e->may_fail = hri_match_part(p->text, line, end, words);
  }
  return e->tries < TRIES && (e->may_fail || !general);
}

/* Reads what stands at `at`, in the line of mark `m`, into e->message; returns where the search goes on. */
static size_t read_message(hr_explainer *e, size_t at, size_t m) {
  hri_oom_place place = place_of(e, at, m);
  bool general = hri_oom_is_general(e->text, at, e->count);
  size_t start, count, end;
  bool talk = false, whole = false;
  e->message.kind = HRI_OOM_NOTHING;
  if (!is_worth_it(e, &place, m, general)) return at + 1;
  if (general ? at < e->spoken || !hri_oom_is_reported(&place) : at < e->muted) {
    e->tries += general;
    return at + 1;
  }
  count = one_message(e, at, m, &start);
  begin_message(e, m);
  move_place(&place, e->one, start, count);
  if (!general) {
    e->message.kind = hri_oom_parse(e->one, start, count, &e->message, &end);
    whole = e->message.kind == HRI_OOM_CACHING && !e->message.cut;
    if (e->message.kind != HRI_OOM_NOTHING) hri_oom_add_words(&place, &e->message);
    else talk = strcmp(e->message.failure.source, HRI_OOM_TALK) == 0;
    if (talk) e->spoken = at + (end - start);
  }
  if (general || (e->message.kind == HRI_OOM_NOTHING && !talk && hri_oom_is_reported(&place))) {
    bool later = is_known_later(e, &place);
    begin_message(e, m);
    if (later) return at + 1;
    e->message.general = true;
    e->message.kind = hri_oom_report(&place, &e->message, &end);
  }
  if (e->message.kind == HRI_OOM_NOTHING) {
    e->tries += 4;
    if (!general && end > start &&
        (end - start < 60 ||
         (whole && end - start <= e->count - at && memcmp(e->one + start, e->text + at, end - start) == 0)))
      e->muted = at + (end - start); /* the rest of the same words */
    return at + 1;
  }
  /* With other lines left out between, an offset in the copy is no offset in the window: then only the head is
   * done. */
  if (end > start && count - start <= e->count - at && memcmp(e->one + start, e->text + at, end - start) == 0)
    return at + (end - start);
  return at + 16;
}

/* Reads all messages that start before `limit`. */
static hr_status search(hr_explainer *e, size_t limit, hr_error *error) {
  size_t m = 0;
  while (e->searched < limit) {
    size_t at = hri_oom_find(e->text, e->searched, e->count), after;
    if (at >= limit) break;
    while (m + 1 < e->marks.count && e->marks.items[m + 1].offset <= at) m++;
    if (e->parsed >= MAX_PARSED) {
      e->more += !hri_oom_is_general(e->text, at, e->count);
      e->searched = at + 1;
      continue;
    }
    after = read_message(e, at, m);
    if (e->message.kind != HRI_OOM_NOTHING) {
      e->parsed++;
      untangle(e, at, m, after);
      HRI_TRY(keep(e, at, error));
    }
    e->searched = after;
  }
  if (e->searched < limit) e->searched = limit;
  return HR_OK;
}

/* Makes room for a line: reads what has enough text behind it, and lets go of what lies far behind. */
static hr_status slide(hr_explainer *e, hr_error *error) {
  size_t drop, kept = 0;
  if (e->count + 2 * LINE < WINDOW) return HR_OK;
  HRI_TRY(search(e, e->count - AHEAD, error));
  drop = e->searched > BEHIND ? e->searched - BEHIND : 0;
  if (drop > e->count) drop = e->count;
  memmove(e->text, e->text + drop, e->count - drop);
  e->count -= drop;
  e->searched -= drop;
  e->judged_line = 0;
  e->muted = e->muted > drop ? e->muted - drop : 0;
  e->spoken = e->spoken > drop ? e->spoken - drop : 0;
  e->torn_end = e->torn_end > drop ? e->torn_end - drop : 0;
  for (size_t i = 0; i < e->ticks.count; i++)
    if (e->ticks.items[i].to > drop) {
      span moved = e->ticks.items[i];
      moved.from = moved.from > drop ? moved.from - (uint32_t)drop : 0;
      moved.to -= (uint32_t)drop;
      e->ticks.items[kept++] = moved;
    }
  e->ticks.count = kept;
  kept = 0;
  for (size_t i = 0; i < e->marks.count; i++) {
    mark moved = e->marks.items[i];
    bool covers = i + 1 == e->marks.count || e->marks.items[i + 1].offset > drop;
    if (!covers) continue;
    moved.offset = moved.offset > drop ? (uint32_t)(moved.offset - drop) : 0;
    e->marks.items[kept++] = moved;
  }
  e->marks.count = kept;
  return HR_OK;
}

static hr_status end_line(hr_explainer *e, bool complete, hr_error *error) {
  HRI_TRY(slide(e, error));
  if (!add_line(e, complete)) return hri_fail_memory(error, sizeof(mark), "marks of lines");
  return HR_OK;
}

/* ---- the public calls ---- */

void hr_explain_options_init(hr_explain_options *options) { *options = (hr_explain_options){0}; }

hr_status hr_explainer_create(const hr_explain_options *options, hr_explainer **explainer, hr_error *error) {
  hr_explainer *e = hri_alloc_zero(1, sizeof *e);
  *explainer = NULL;
  if (!e) return hri_fail_memory(error, sizeof *e, "an explainer");
  e->framework = options ? options->framework : NULL;
  e->text = hri_alloc(WINDOW + LINE);
  if (!e->text) {
    hri_free(e);
    return hri_fail_memory(error, WINDOW + LINE, "a window of the log");
  }
  *explainer = e;
  return HR_OK;
}

void hri_explainer_lend_ear(hr_explainer *e, const hri_voice_ear *ear) { e->ear = ear; }

hr_status hr_explainer_feed(hr_explainer *e, const void *bytes, size_t count, hr_error *error) {
  const char *next = bytes;
  e->bytes += count;
  for (size_t i = 0; i < count; i++) {
    if (next[i] == 0) continue; /* UTF-16, which PowerShell writes, has one beside each letter of a message */
    if (next[i] == '\n' || next[i] == '\r') {
      bool line_end = next[i] == '\n';
      if (e->line_count > 0 || e->continued) HRI_TRY(end_line(e, true, error));
      if (line_end) e->lines++;
      continue;
    }
    e->line[e->line_count++] = next[i];
    if (e->line_count == LINE) HRI_TRY(end_line(e, false, error));
  }
  return HR_OK;
}

/* Device failures with figures first; then other device failures and plain host failures; then what is another framework's,
 * its own line before one that may be anybody's; kills and library errors that may only follow from another failure last.
 * The first of the best wins. */
static int weight(const hr_oom_failure *failure, hri_oom_kind kind) {
  if (kind == HRI_OOM_ENDED) return 1;
  if (kind == HRI_OOM_FOREIGN || kind == HRI_OOM_FOREIGN_LIKELY) return failure->certainty == HR_OOM_CERTAIN ? 3 : 2;
  if (kind == HRI_OOM_REPORT) return 1; /* nobody knows who speaks */
  if (failure->figures[HR_OOM_REQUESTED].state != HR_OOM_ABSENT) return 5;
  return kind == HRI_OOM_HOST_LIKELY || kind == HRI_OOM_LIBRARY ? 1 : 4;
}

/* A text that was cut amid the words by which it would be known is read to their end: "torch.outofmemoryerror: cuda o". */
static void complete_cut(hr_explainer *e) {
  static const struct {
    const char *words;
    size_t least; /* how many letters must be there */
  } known[] = {{"outofmemoryerror: cuda out of memory", 19},
               {"outofmemoryerror: hip out of memory", 19},
               {"runtimeerror: cuda out of memory", 19},
               {"[errno 12] cannot allocate memory", 12},
               {"defaultcpuallocator: can't allocate memory", 22}};
  size_t end = e->count;
  while (end > 0 && e->text[end - 1] == ' ') end--;
  for (size_t i = 0; i < HRI_COUNT(known) && e->count + 64 < WINDOW; i++)
    for (size_t length = strlen(known[i].words) - 1; length >= known[i].least; length--) {
      if (end < length || memcmp(e->text + end - length, known[i].words, length) != 0) continue;
      (void)strcpy(e->text + end, known[i].words + length);
      e->count = end + strlen(known[i].words) - length;
      if (e->searched > end - length) e->searched = end - length;
      return;
    }
}

hr_status hr_explainer_end(hr_explainer *e, hr_explanation **explanation, hr_error *error) {
  hr_explanation *result;
  *explanation = NULL;
  if (e->line_count > 0) {
    HRI_TRY(end_line(e, true, error));
    e->lines++;
  }
  complete_cut(e);
  HRI_TRY(search(e, e->count, error));
  result = hri_alloc_zero(1, sizeof *result);
  if (!result) return hri_fail_memory(error, sizeof *result, "an explanation");
  for (size_t i = 1; i < e->failures.count; i++)
    if (weight(&e->failures.items[i], e->origins.items[i].kind) >
        weight(&e->failures.items[result->primary], e->origins.items[result->primary].kind))
      result->primary = (uint32_t)i;
  result->failures = e->failures.items;
  result->failure_count = (uint32_t)e->failures.count;
  memset(&e->failures, 0, sizeof e->failures);
  result->more = e->more;
  result->line_count = e->lines;
  result->byte_count = e->bytes;
  *explanation = result;
  return HR_OK;
}

void hr_explainer_destroy(hr_explainer *e) {
  if (!e) return;
  hri_free(e->text);
  hri_array_free(&e->marks);
  hri_array_free(&e->ticks);
  hri_array_free(&e->failures);
  hri_array_free(&e->origins);
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
