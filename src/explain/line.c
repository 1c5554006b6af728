/* One raw line of a log: what a launcher, a logger or an editor put before its text, whose it is, and what of it is
 * dressing. */
#include "explain/line.h"

#include "explain/lexicon.h"
#include "explain/match.h"
#include "explain/report.h"

/* A number of at most five digits at line[*at]; -1 when there is none. */
static int32_t read_small(const char *line, size_t count, size_t *at) {
  int32_t value = 0;
  size_t start = *at;
  while (*at < count && hri_is_digit(line[*at]) && *at - start < 5) value = value * 10 + (line[(*at)++] - '0');
  return *at == start || (*at < count && hri_is_digit(line[*at])) ? -1 : value;
}

static bool starts_with(const char *line, size_t count, size_t at, const char *word) {
  size_t i = 0;
  for (; word[i]; i++)
    if (at + i >= count || hri_line_lower(line[at + i]) != word[i]) return false;
  return true;
}

/* A host's name: letters, digits and "-", with a letter and a digit. Names of source files have a dot. */
static bool is_host(const char *line, size_t from, size_t to) {
  bool letter = false, digit = false;
  for (size_t i = from; i < to; i++) {
    char c = hri_line_lower(line[i]);
    if (hri_is_digit(c)) digit = true;
    else if (c >= 'a' && c <= 'z') letter = true;
    else if (c != '-') return false;
  }
  return letter && digit;
}

/* The rank inside a bracket: "rank3", "rank: 3", "default3", "3", "1,3" of mpirun, "gpu187:2"; -1 when it holds something else. */
static int32_t rank_inside(const char *line, size_t from, size_t to) {
  static const char *const words[] = {"rank", "default"};
  size_t at = from;
  int32_t rank;
  for (size_t i = 0; i < 2; i++)
    for (at = from; at < to; at++) {
      size_t p = at + strlen(words[i]);
      if (!starts_with(line, to, at, words[i])) continue;
      while (p < to && (line[p] == ' ' || line[p] == ':' || line[p] == '=' || line[p] == '_')) p++;
      if (p < to && hri_is_digit(line[p])) return read_small(line, to, &p);
    }
  for (at = from; at < to && line[at] != ':';) at++;
  if (is_host(line, from, at) && at < to) { /* "gpu187:2" */
    at++;
    rank = read_small(line, to, &at);
    if (at == to && rank >= 0) return rank;
  }
  at = from;
  rank = read_small(line, to, &at);
  if (rank >= 0 && at < to && line[at] == ',') {
    at++;
    rank = read_small(line, to, &at);
  }
  return at == to ? rank : -1;
}

/* Whether a bracket holds the name of who speaks, "[TRT]", or says what a thread is, "[Feature Request]", which stays in the text. */
static bool is_tag(const char *line, size_t from, size_t to) {
  char text[64];
  size_t count = to - from < sizeof text - 2 ? to - from : sizeof text - 2;
  bool letter = false;
  text[0] = '['; /* an ordinary word is a name only as code has it */
  for (size_t i = 0; i < count; i++) {
    text[i + 1] = hri_line_lower(line[from + i]);
    letter = letter || hri_is_letter(text[i + 1]);
  }
  text[count + 1] = ']';
  return letter &&
         (hri_match_next(text, 0, count + 2, HRI_REQUEST_TAGS) == count + 2 || hri_oom_names_speaker(text, count + 2));
}

/* One more sign of whose a line is, line[from, to), beside those that are in `who`; past all ranks. */
static int64_t mix_who(int64_t who, const char *line, size_t from, size_t to) {
  uint64_t hash = who < 0 ? 14695981039346656037u : (uint64_t)who;
  for (size_t i = from; i < to; i++) hash = (hash ^ (uint8_t)hri_line_lower(line[i])) * 1099511628211u; /* FNV-1a */
  return (int64_t)(hash >> 31 | 1ull << 33);
}

/* Whether a bracket names one of several that do the same: "gpu 0", "pod/trainer-0/pytorch", "process 3". A step or a time
 * is none: it changes from line to line. */
static bool is_one_of_many(const char *line, size_t from, size_t to) {
  static const char *const words[] = {"worker", "gpu",   "node",    "host",  "proc", "pod/",
                                      "actor",  "local", "trainer", "shard", "task", "replica"};
  bool digit = false, named = false;
  for (size_t i = from; i < to; i++) {
    const char c = hri_line_lower(line[i]);
    digit |= hri_is_digit(c);
    if (!hri_is_digit(c) && !hri_is_letter(c) && !strchr("-_/. ", c)) return false;
  }
  for (size_t i = 0; i < HRI_COUNT(words) && !named; i++) named = starts_with(line, to, from, words[i]);
  return named && digit;
}

/* "[...]:" or "(... pid=...)" at line[at]: the place behind it, or `at` when it is no prefix. */
static size_t skip_bracket(const char *line, size_t count, size_t at, int32_t *rank, int64_t *who) {
  char close = line[at] == '[' ? ']' : ')';
  size_t end = at + 1;
  int32_t found;
  if (end < count && line[end] == '[') return at; /* "[[node x]]", TensorFlow's */
  while (end < count && end - at < 64 && line[end] != close) end++;
  if (end >= count || line[end] != close) return at;
  if (close == ')') {
    size_t pid = hri_oom_word(line, at, end, "pid=");
    if (pid == end) return at;
    *who = mix_who(*who, line, at + 1, end); /* of processes on several machines the address is there too */
  }
  if (hri_oom_word(line, at, end, "enforce fail") < end) return at; /* part of the message */
  found = rank_inside(line, at + 1, end);
  if (found >= 0) *rank = found;
  else if (close == ']' && is_tag(line, at + 1, end)) return at;
  if (close == ']' && (found < 0 ? is_one_of_many(line, at + 1, end) : memchr(line + at, ':', end - at) != NULL))
    *who = mix_who(*who, line, at + 1, end); /* of "gpu187:2" the host too */
  end++;
  if (starts_with(line, count, end, "<stderr>") || starts_with(line, count, end, "<stdout>")) end += 8;
  if (end < count && line[end] == ':') end++;
  return end;
}

/* A host or task before a colon: "3: " (srun -l), "rank 3: ", "gpu-node01: ", "gpu0: "; a service of several before a bar,
 * "trainer-1  | ". */
static size_t skip_label(const char *line, size_t count, size_t at, int32_t *rank, int64_t *who) {
  size_t end = at, number;
  bool digit = false;
  if (starts_with(line, count, at, "rank ") || starts_with(line, count, at, "rank")) {
    number = at + (starts_with(line, count, at, "rank ") ? 5 : 4);
    int32_t found = read_small(line, count, &number);
    if (found >= 0 && number < count && line[number] == ':') {
      *rank = found;
      return number + 1;
    }
  }
  if (at > 0 && line[at - 1] == '\t') return at; /* a table's key in a program: srun fills up with blanks */
  number = at;
  int32_t task = read_small(line, count, &number);
  if (task >= 0 && number + 1 < count && line[number] == ':' && line[number + 1] == ' ') {
    *rank = task;
    return number + 1;
  }
  if (starts_with(line, count, at, "gpu")) end = at + 3;
  for (; end < count && end - at < 64; end++) {
    char c = line[end];
    if (hri_is_digit(c)) digit = true;
    if (!hri_is_digit(c) && !(c >= 'a' && c <= 'z') && !strchr("-._", c)) break;
  }
  number = end;
  while (number < count && line[number] == ' ') number++;
  if (!digit || end == at || number + 1 >= count) return at;
  if (line[end] == ':' && line[end + 1] == ' ') {
    if (memchr(line + at, '_', end - at)) return at; /* a function's name; hosts have none such */
    number = end;
  } else if (number == end || line[number] != '|' || line[number + 1] != ' ' ||
             memchr(line + number + 1, '|', count - number - 1))
    return at;
  *who = mix_who(*who, line, at, end);
  return number + 1;
}

size_t hri_line_behind_shape(const char *line, size_t at, size_t count, const char *shape) {
  const size_t length = strlen(shape);
  if (count - at < length) return at;
  for (size_t i = 0; i < length; i++) {
    const char c = line[at + i];
    const bool fits = shape[i] == 'd'   ? hri_is_digit(c)
                      : shape[i] == 'a' ? hri_is_letter(hri_line_lower(c))
                      : shape[i] == '?' ? hri_is_digit(c) || c == ' '
                                        : shape[i] == c;
    if (!fits) return at;
  }
  return at + length;
}

/* Behind a date or a time at line[at]; `at` when none stands there. */
static size_t behind_date(const char *line, size_t at, size_t count) {
  static const char *const shapes[] = {"dddd-dd-dd", "dd:dd:dd", "dddd/dd/dd"};
  size_t end = at;
  for (size_t i = 0; i < HRI_COUNT(shapes) && end == at && at < count && hri_is_digit(line[at]); i++)
    end = hri_line_behind_shape(line, at, count, shapes[i]);
  return end;
}

/* "2024-01-31T10:11:12,123" or "10:11:12". */
static size_t skip_time(const char *line, size_t count, size_t at) {
  size_t end = behind_date(line, at, count);
  if (end == at) return at;
  while (end < count && !hri_line_is_blank(line[end])) end++;
  return end + 2 < count && line[end + 1] == '-' && line[end + 2] == ' ' ? end + 3 : end;
}

static bool ends_blank(const char *line, size_t at, size_t count) {
  while (at < count && hri_line_is_blank(line[at])) at++;
  return at == count;
}

/* Whose a line is whose prefix names the rank and `who`. */
static int64_t with_rank(int32_t rank, int64_t who) {
  const char number[] = {(char)('0' + rank / 100 % 10), (char)('0' + rank / 10 % 10), (char)('0' + rank % 10)};
  if (rank < 0) return who;
  return who < 0 ? rank : mix_who(who, number, 0, sizeof number);
}

size_t hri_line_skip_prefix(const char *line, size_t count, int32_t *rank, int64_t *who) {
  size_t at = 0;
  for (int round = 0; round < 12; round++) {
    size_t before = at;
    while (at < count && (hri_line_is_blank(line[at]) || (line[at] && strchr("#>|*`", line[at])))) at++;
    if (at < count && (line[at] == '[' || line[at] == '(')) {
      const size_t open = at;
      at = skip_bracket(line, count, at, rank, who);
      if (ends_blank(line, at, count)) at = open; /* all of the line is in brackets: no prefix */
    }
    if (at == before || at < count) at = skip_time(line, count, at);
    at = skip_label(line, count, at, rank, who);
    if (at == before) break;
  }
  *who = with_rank(*rank, *who);
  return at;
}

/* Whether a time or a date stands near the beginning: "10:11:12", "2024-01-31". */
static bool is_dated(const char *line, size_t count) {
  for (size_t at = 0; at < 60 && at < count; at++)
    if (behind_date(line, at, count) > at) return true;
  return false;
}

/* "<jemalloc>: ..." */
static bool is_program_tag(const char *line, size_t at, size_t count) {
  for (at++; at < count && (hri_is_letter(hri_line_lower(line[at])) || hri_is_digit(line[at]) || line[at] == '_');)
    at++;
  return starts_with(line, count, at, ">: ");
}

/* What a page shows as it was printed: the row of a field of an error, "<tr><td>error_message</td>". */
static bool is_page_output(const char *line, size_t count, size_t at) {
  static const char fields[] =
      "error|message|exception|reason|error_message|exception_message|stderr|output|error message";
  char key[32];
  size_t from = at + 8, end = hri_oom_word(line, from, count, "</td><td>");
  if (!starts_with(line, count, at, "<tr><td>") || end == count || end - from >= sizeof key) return false;
  for (size_t i = from; i < end; i++) key[i - from] = hri_line_lower(line[i]);
  return hri_match_next(key, 0, end - from, fields) == end - from;
}

/* What the beginning of a raw line, whose text starts at `start`, says about it. */
uint16_t hri_line_shape(const char *line, size_t count, size_t start) {
  static const char *const levels[] = {"error", "fatal", "critical", "severe", "warn",
                                       "[e]",   "[e ",   "[e:",      "[f]",    "[w]"};
  uint16_t shape = is_dated(line, count) ? HRI_OOM_DATED : 0;
  size_t at = 0, end = start < 200 ? start : 200;
  for (size_t i = 0; i < end && !(shape & HRI_OOM_LEVEL); i++)
    for (size_t l = 0; l < sizeof levels / sizeof *levels; l++)
      if (hri_line_lower(line[i]) == levels[l][0] && starts_with(line, end, i, levels[l])) shape |= HRI_OOM_LEVEL;
  while (at < count && (hri_line_is_blank(line[at]) || (line[at] == '>' && at + 1 < count && line[at + 1] == ' ')))
    at++; /* a quotation is what it quotes */
  if (at + 2 < count && (line[at] == '/' || (line[at] == '-' && line[at + 2] != '-')) && line[at + 1] == line[at])
    shape |= HRI_OOM_COMMENT;
  if (at + 1 < count && line[at] == '<' && hri_line_lower(line[at + 1]) >= 'a' && hri_line_lower(line[at + 1]) <= 'z' &&
      !is_program_tag(line, at, count) && /* "<jemalloc>: ..." is a program's name */
      !is_page_output(line, count, at))
    shape |= HRI_OOM_COMMENT;
  if (starts_with(line, count, at, "<table") && hri_oom_word(line, at, count, "</table>") < count)
    shape |= HRI_OOM_HEADING; /* a table of one line is a title */
  if (at + 1 < count && strchr("-*+", line[at]) && (line[at + 1] == ' ' || line[at + 1] == '*') &&
      !starts_with(line, count, at + 2, "device #"))                           /* how programs number devices */
    shape |= HRI_OOM_COMMENT;                                                  /* an item */
  if (starts_with(line, count, at, "\xe2\x80\xa2 ")) shape |= HRI_OOM_COMMENT; /* a page's sign of an item */
  if (at + 2 < count && hri_is_digit(line[at]) && strchr(".)", line[at + 1]) && line[at + 2] == ' ')
    shape |= HRI_OOM_COMMENT;
  if (at + 4 < count && starts_with(line, count, at, "**") && starts_with(line, count, count - 2, "**"))
    shape = (uint16_t)((shape & ~HRI_OOM_COMMENT) | HRI_OOM_HEADING | HRI_OOM_BOLD); /* nothing but bold words */
  if (count > at + 2 && memcmp(line + count - 2, "\xc2\xb6", 2) == 0)
    shape |= HRI_OOM_HEADING;                                       /* a page's mark of a heading */
  if (at == 0 && count > 1 && (line[0] == '+' || line[0] == '-')) { /* a difference; "- # x" is an item */
    size_t next = 1;
    while (next < count && hri_line_is_blank(line[next])) next++;
    if (next + 2 < count && ((line[next] == '#' && (next != 2 || line[1] != ' ')) || memcmp(line + next, "//", 2) == 0))
      at = next;
  }
  if (at + 2 < count && line[at] == '/' && line[at + 1] == '/') shape |= HRI_OOM_COMMENT | HRI_OOM_REMARK;
  if (at + 2 < count && line[at] == '#' &&
      line[at + 2] != '[') /* "##[error]" is how a runner of jobs marks its lines */
    shape |= line[at + 1] == '#' ? HRI_OOM_HEADING | HRI_OOM_HASHES : HRI_OOM_COMMENT | HRI_OOM_REMARK;
  while (at < count && strchr("/*# ", line[at]) && line[at]) at++; /* a table in a comment */
  if (at < count && line[at] == '|' && memchr(line + at + 1, '|', count - at - 1) &&
      hri_oom_word(line, at, count, "%|") == count) /* a bar of progress behind a label */
    shape |= HRI_OOM_ROW;
  return shape;
}

/* Whether the asterisk at line[at] multiplies, alone or as one of two: "1024*1024", "2**31". */
static bool multiplies(const char *line, size_t count, size_t at) {
  size_t from = at, to = at + 1;
  while (from > 0 && line[from - 1] == '*' && to - from <= 2) from--;
  while (to < count && line[to] == '*' && to - from <= 2) to++;
  return from > 0 && to < count && to - from <= 2 && hri_is_digit(line[from - 1]) && hri_is_digit(line[to]);
}

/* Whether it is one of some characters, of which a NUL is none. */
static bool is_of(char c, const char *characters) { return c && strchr(characters, c); }

static bool is_between(char c, char least, char most) { return c >= least && c <= most; }

/* Behind the string of a terminal's command at line[at], a window's title or the target of a link, which BEL or ESC "\" ends; `at`
 * when nothing does: then it is text. */
static size_t behind_string(const char *line, size_t count, size_t at) {
  for (size_t i = at; i < count; i++) {
    if (line[i] == '\a') return i + 1;
    if (line[i] == 0x1b) return i + 1 < count && line[i + 1] == '\\' ? i + 2 : at;
  }
  return at;
}

/* How long the terminal's escape at line[at] is (ECMA-48): of colours and the cursor, ESC "[1;36m"; a title or a link, ESC "]8;;..." ESC
 * "\"; a set of characters, ESC "(B"; the cursor kept, ESC "7". What is none of these is the escape's first byte and text. */
static size_t escape(const char *line, size_t count, size_t at) {
  size_t end = at + 1;
  if (end == count) return 1;
  if (is_of(line[end], "]P^_X")) {
    end = behind_string(line, count, at + 2);
    return end > at + 2 ? end - at : 1;
  }
  if (is_of(line[end], "78=>\\")) return 2;
  if (line[end] == '[')
    for (end++; end < count && is_between(line[end], '0', '?');) end++;
  else if (!is_between(line[end], '!', '/')) return 1;
  while (end < count && (is_between(line[end], '!', '/') || starts_with(line, count, end, " q"))) end++;
  return end < count && is_between(line[end], '0', '~') ? end + 1 - at : end - at;
}

/* How many bytes at line[at] are dressing: a terminal escape, an emphasis mark, a short HTML tag. */
size_t hri_line_dressing(const char *line, size_t count, size_t at) {
  static const char *const tags[] = {"<b>", "</b>", "<em>", "</em>", "<strong>", "</strong>", "<code>", "</code>"};
  if (line[at] == '*') return multiplies(line, count, at) ? 0 : 1;
  if (line[at] == '`') return 1;
  if (line[at] == '<')
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
      if (starts_with(line, count, at, tags[i])) return strlen(tags[i]);
  return line[at] == 0x1b ? escape(line, count, at) : 0;
}

/* How long a terminal escape is that was written out as text: "\\u001b[0;31m" of JSON, "\\x1b[31m", "\\033[0K", "^[[0;36m", and
 * "[1;36m", whose first byte was lost. Behind a caret, which begins patterns too, colours and what clears a line alone; without a first
 * byte colours alone. */
static size_t written_escape(const char *line, size_t count, size_t at) {
  static const char *const firsts[] = {"\\u001b", "\\x1b", "\\033", "\\e", "^["};
  enum { LONGEST = 24 }; /* "[38;2;255;255;255m" */
  size_t start = at, end;
  for (size_t i = 0; i < HRI_COUNT(firsts) && start == at; i++)
    if (starts_with(line, count, at, firsts[i])) start = at + strlen(firsts[i]);
  if (start >= count || line[start] != '[') return 0;
  for (end = start + 1; end < count && (hri_is_digit(line[end]) || is_of(line[end], ";:?"));) end++;
  if (end >= count || end - start > LONGEST ||
      !is_of(line[end], start == at       ? "m"
                        : line[at] == '^' ? "mK"
                                          : "mKJHABCDGhl"))
    return 0;
  if (start == at) { /* "x[5m]" and "[5m ago" are none */
    bool colour = memchr(line + start, ';', end - start) || (end == start + 2 && line[start + 1] == '0');
    if (!colour || (end + 1 < count && line[end + 1] == ']')) return 0;
  }
  return end + 1 - at;
}

/* How many bytes at line[at] nobody sees: a control character that is no blank, and a character without a width that pages and chats put
 * into text: U+200B, U+2060, U+00AD, and the mark of UTF-8 where two files were joined. */
static size_t unseen(const char *line, size_t count, size_t at) {
  static const char *const marks[] = {"\xe2\x80\x8b", "\xe2\x81\xa0", "\xc2\xad", "\xef\xbb\xbf"};
  if ((unsigned char)line[at] < ' ' || line[at] == 0x7f) return !hri_line_is_blank(line[at]);
  for (size_t i = 0; line[at] & 0x80 && i < HRI_COUNT(marks); i++) {
    const size_t length = strlen(marks[i]);
    if (count - at >= length && memcmp(line + at, marks[i], length) == 0) return length;
  }
  return 0;
}

/* How long the blank at line[at] is that does not break, as pages and word processors set it: U+00A0, U+202F; 0 when it is none. */
static size_t no_break(const char *line, size_t count, size_t at) {
  static const char *const blanks[] = {"\xc2\xa0", "\xe2\x80\xaf"};
  for (size_t i = 0; line[at] & 0x80 && i < HRI_COUNT(blanks); i++) {
    const size_t length = strlen(blanks[i]);
    if (count - at >= length && memcmp(line + at, blanks[i], length) == 0) return length;
  }
  return 0;
}

/* Drops terminal escapes and what nobody sees in place, and makes one blank of all blanks, so that a coloured "[rank3]:" is seen as a prefix. */
size_t hri_line_drop_escapes(char *line, size_t count) {
  size_t to = 0;
  for (size_t i = 0; i < count;) {
    size_t skip = 0;
    if (line[i] == 0x1b) skip = hri_line_dressing(line, count, i);
    else if (line[i] == '[' || line[i] == '\\' || line[i] == '^') skip = written_escape(line, count, i);
    else skip = unseen(line, count, i);
    if (skip) {
      i += skip;
    } else if (no_break(line, count, i)) {
      i += no_break(line, count, i);
      line[to++] = ' ';
    } else {
      line[to++] = line[i++];
    }
  }
  return to;
}

/* Where the tag of a page begins within which line[at] stands, or which it begins; `at` when it is in none. */
static size_t tag_around(const char *line, size_t at) {
  enum { LONGEST = 200 };
  for (size_t i = at; i > 0 && at - i <= LONGEST && (i == at || line[i] != '>'); i--)
    if (line[i] == '<' && (line[i + 1] == '/' || hri_is_letter(hri_line_lower(line[i + 1])))) return i;
  return at;
}

/* A tag, a word, an escape, a character: what of these is there is not cut in two. */
size_t hri_line_cut(const char *line, size_t count) {
  enum { WORD = 256, ESCAPE = 32, CHARACTER = 4 };
  for (size_t i = 1; i <= WORD && i < count; i++)
    if (hri_line_is_blank(line[count - i])) return tag_around(line, count - i);
  for (size_t i = ESCAPE; i > 0 && i < count; i--) /* the first of several: "\\u4e2d\\u6587" */
    if (is_of(line[count - i], "\x1b&\\^[<")) return count - i;
  for (size_t i = 1; i <= CHARACTER && i < count; i++)
    if ((line[count - i] & 0xc0) != 0x80) return count - i;
  return count;
}

/* "Killed" alone, as shells say it in other languages. */
static bool is_killed_abroad(const char *line, size_t from, size_t to) {
  static const char words[] =
      "\xe5\xb7\xb2\xe6\x9d\x80\xe6\xad\xbb|\xe5\xb7\xb2\xe6\xae\xba\xe6\xad\xbb|Get\xc3\xb6tet|"
      "Processus arr\xc3\xaat\xc3\xa9|\xd0\xa3\xd0\xb1\xd0\xb8\xd1\x82\xd0\xbe|"
      "\xe5\xbc\xb7\xe5\x88\xb6\xe7\xb5\x82\xe4\xba\x86|Matado|Morto|Ucciso|\xec\xa3\xbd\xec\x97\x88\xec\x9d\x8c";
  return to > from && hri_match_next(line, from, to, words) == to;
}

/* Whether the line is how a shell reports SIGKILL: "Killed" alone or behind a progress bar, "...: line 3: 4242 Killed
 * python",
 * "zsh: killed  python". `start` is where its text begins. */
bool hri_line_reports_kill(const char *line, size_t count, size_t start) {
  static const char word[] = "killed";
  enum { LENGTH = sizeof word - 1 };
  while (count > start && (hri_line_is_blank(line[count - 1]) || line[count - 1] == '*' || line[count - 1] == '`'))
    count--;
  if (is_killed_abroad(line, start, count)) return true;
  if (starts_with(line, count, 0, "*** signal 9") && count == 12) return true; /* make's of the BSDs */
  for (size_t at = start; at < count; at++)                                    /* also behind a bar */
    if (line[at] == 'z' && starts_with(line, count, at, "zsh: killed") && (at == start || line[at - 1] == ']'))
      return true;
  if (starts_with(line, count, 0, "zsh: killed")) return true;
  if (count - start < LENGTH) return false;
  if (starts_with(line, count, count - LENGTH, word) &&
      ((count - start == LENGTH && line[start] == 'K') || (count > LENGTH && line[count - LENGTH - 1] == ']') ||
       (count - start > LENGTH + 4 && starts_with(line, count, count - LENGTH - 4, "... "))))
    return true; /* behind a bar, "running... killed" */
  if (starts_with(line, count, start, "make") && starts_with(line, count, count - LENGTH - 2, "] killed")) return true;
  for (size_t at = 1; at + LENGTH <= count; at++) {
    size_t back = at, digits;
    if (!hri_line_is_blank(line[at - 1]) ||
        (at + LENGTH < count && !hri_line_is_blank(line[at + LENGTH]) && line[at + LENGTH] != ':') ||
        !starts_with(line, count, at, word))
      continue;
    while (back > 0 && hri_line_is_blank(line[back - 1])) back--;
    for (digits = back; digits > 0 && hri_is_digit(line[digits - 1]);) digits--;
    if (digits == back) return false;
    while (digits > 0 && hri_line_is_blank(line[digits - 1])) digits--;
    return digits > 0 && strchr(":]+", line[digits - 1]) != NULL;
  }
  return false;
}

/* "12/400" in line[from, to). */
static bool has_count(const char *line, size_t from, size_t to) {
  for (size_t at = hri_oom_word(line, from, to, "/"); at < to; at = hri_oom_word(line, at + 1, to, "/"))
    if (at > from && at + 1 < to && hri_is_digit(line[at - 1]) && hri_is_digit(line[at + 1])) return true;
  return false;
}

/* Whether line[from, to) is a progress bar and nothing else: "Epoch 1:  3%|3 | 3/99 [00:03<01:36, 1.0s/it]", and Rich's, whose picture is
 * a heavy line, with its counts behind. */
bool hri_line_is_bar(const char *line, size_t from, size_t to) {
  static const char heavy[] = "\xe2\x94\x81\xe2\x94\x81";
  size_t picture = hri_oom_word(line, from, to, "%|");
  while (to > from && hri_line_is_blank(line[to - 1])) to--;
  if (picture < to && line[to - 1] == ']') return hri_oom_word(line, picture, to, "/") < to;
  picture = hri_oom_word(line, from, to, heavy);
  while (picture < to && !hri_is_digit(line[picture])) picture++;
  return has_count(line, picture, to) &&
         !hri_match_part(line, picture, to, "emory|rror|lloc"); /* that goes on behind it */
}

/* The rank whose prefix, "[rank3]:" or "[gpu187:2]:", stands at line[at]; -1 when none does. "x[3]:" is none. */
int32_t hri_line_rank_at(const char *line, size_t count, size_t at, size_t *behind, int64_t *who) {
  int32_t rank = -1;
  *who = -1;
  if (line[at] != '[' || at + 1 >= count || hri_line_lower(line[at + 1]) < 'a' || hri_line_lower(line[at + 1]) > 'z')
    return -1;
  *behind = skip_bracket(line, count, at, &rank, who);
  *who = with_rank(rank, *who);
  return *behind > at + 1 && line[*behind - 1] == ':' ? rank : -1;
}

/* Whether line[at] is the first of a literal that a call takes, `f("[rank1]: ...")`: nobody speaks there. */
static bool opens_literal(const char *line, size_t at) {
  return at >= 2 && (line[at - 1] == '"' || line[at - 1] == '\'') && strchr("(,", line[at - 2]);
}

/* Where the part of the raw line that starts at `from` ends: before the prefix of a rank that is not the first. */
size_t hri_line_part_end(const char *line, size_t count, size_t from) {
  size_t behind;
  int64_t who;
  for (size_t at = from + 1; at < count; at++)
    if (line[at] == '[' && !opens_literal(line, at) && hri_line_rank_at(line, count, at, &behind, &who) >= 0) return at;
  return count;
}
