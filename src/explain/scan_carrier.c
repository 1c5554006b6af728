/* Programs' output often comes through somebody who puts each line into a form of his own: syslog and the journal
 * ("May  1 10:11:12 host7 train[4242]: ..."), a container's runtime ("2024-05-01T10:11:12.1Z stderr F ...", an object
 * {"log":"...\n","stream":"stderr",...} a line), a launcher that names the stream, a box around a text, a page's source. That form is taken
 * off before anything else is asked of the line, so that it is read as it was printed.
 *
 * The neighbours may rely on this: a line without such a form stays as it is, and a tag by which somebody who ends
 * processes is known ("kernel:", "earlyoom[312]:") stays before the text. Sources: RFC 3164, RFC 5424's time,
 * systemd's journalctl -o short and short-iso, Docker's json-file driver, Kubernetes' CRI log format. */
#include "explain/scan_carrier.h"

#include <string.h>

#include "base/utf8.h"
#include "explain/figures.h"
#include "explain/line.h"
#include "explain/match.h"
#include "explain/report.h"

static size_t behind_word(const char *line, size_t at, size_t count) {
  while (at < count && !hri_line_is_blank(line[at])) at++;
  return at;
}

/* Whether line[from, to) names somebody whose lines are known by that name. */
static bool is_known_tag(const char *line, size_t from, size_t to) {
  static const char *const names[] = {"kernel",  "systemd", "earlyoom", "oomd",       "nohang",  "slurm", "kube",
                                      "dockerd", "k3s",     "crio",     "containerd", "pbs_mom", "monit", "lxd"};
  char tag[32];
  const size_t count = to - from < sizeof tag ? to - from : sizeof tag;
  for (size_t i = 0; i < count; i++) tag[i] = hri_line_lower(line[from + i]);
  for (size_t i = 0; i < HRI_COUNT(names); i++)
    if (hri_match_at(tag, 0, count, names[i])) return true;
  return hri_oom_names_speaker(tag, count);
}

/* Behind "host tag[pid]: ", or before a tag that is known; the pid may be missing where `bare`. `at` when that is not there. */
static size_t behind_host(const char *line, size_t at, size_t count, bool bare, bool *known) {
  const size_t host = behind_word(line, at, count);
  size_t tag = host + 1, end, name;
  bool pid = false;
  if (host == at || tag >= count || line[host - 1] == ':' || line[host - 1] == ']') return at;
  end = behind_word(line, tag, count);
  if (end >= count || end - tag < 2 || line[end - 1] != ':') return at;
  for (name = tag; name < end - 1 && line[name] != '[';) name++;
  if (name < end - 1) {
    pid = line[end - 2] == ']';
    for (size_t i = name + 1; i < end - 2; i++) pid = pid && hri_is_digit(line[i]);
    if (!pid) return at;
  }
  if (!pid && !bare) return at;
  *known = is_known_tag(line, tag, name);
  return *known ? tag : end + 1;
}

/* Behind what a system's log puts first; 0 when nothing of it is there. */
static size_t behind_system(const char *line, size_t count, bool *known) {
  const size_t dated = hri_line_behind_shape(line, 0, count, "aaa ?d dd:dd:dd ");
  size_t at = dated, text;
  if (dated == 0) {
    if (hri_line_behind_shape(line, 0, count, "dddd-dd-ddTdd:dd:dd") == 0) return 0;
    at = behind_word(line, 0, count) + 1;
    if (at >= count) return 0;
  }
  text = behind_host(line, at, count, dated > 0, known);
  return text == at ? 0 : text;
}

/* Behind the job and the step, "train\tRun training\t", by which a runner of jobs tells whose a line is; 0 when they are not there. */
static size_t behind_steps(const char *line, size_t count) {
  const char *job = memchr(line, '\t', count), *step;
  if (!job || job == line) return 0;
  step = memchr(job + 1, '\t', count - (size_t)(job + 1 - line));
  return step ? (size_t)(step + 1 - line) : 0;
}

/* Behind "2024-05-01T10:11:12.123456789Z stderr F ", a container's runtime's, or its time alone as who asked for it has it, nine digits
 * of a second long, or "2024-05-01T10:11:12.1234567Z ", a runner's of jobs, with its steps before it or without; 0 when it is not there. */
static size_t behind_runtime(const char *line, size_t count) {
  static const char *const times[] = {"dddd-dd-ddTdd:dd:dd.dddddddZ ", "dddd-dd-ddTdd:dd:dd.dddddddddZ "};
  const size_t steps = behind_steps(line, count);
  size_t at, text;
  if (hri_line_behind_shape(line, 0, count, "dddd-dd-ddTdd:dd:dd.d") > 0) {
    at = behind_word(line, 0, count);
    if (hri_match_at(line, at, count, " stderr F | stdout F | stderr P | stdout P ")) return at + 10;
  }
  for (size_t i = 0; i < HRI_COUNT(times); i++) {
    text = hri_line_behind_shape(line, 0, count, times[i]);
    if (text > 0) return text;
  }
  text = hri_line_behind_shape(line, steps, count, times[0]);
  return steps > 0 && text > steps ? text : 0;
}

/* Whether a size stands at line[at]: "12.00 GiB". */
static bool is_size(const char *line, size_t at, size_t count) {
  char text[40];
  hr_oom_value value = {0};
  size_t put = 0;
  for (; at < count && put < sizeof text; at++) text[put++] = hri_line_lower(line[at]);
  return hri_oom_size_at(text, 0, put, &value);
}

/* Behind the step and the seconds, "#12 45.123 ", with which a builder of images prints what a step prints; behind the step alone
 * where its end is told, "#12 ERROR: ...". 0 when it is not there. */
static size_t behind_builder(const char *line, size_t count) {
  size_t step = 1, at;
  if (count < 4 || line[0] != '#') return 0;
  while (step < count && hri_is_digit(line[step])) step++;
  if (step == 1 || step == count || line[step] != ' ') return 0;
  if (hri_match_at(line, ++step, count, "ERROR: ")) return step;
  for (at = step; at < count && hri_is_digit(line[at]);) at++;
  if (at == step || at + 1 >= count || line[at] != '.' || !hri_is_digit(line[at + 1])) return 0;
  for (at++; at < count && hri_is_digit(line[at]);) at++;
  if (at + 1 >= count || line[at] != ' ') return at + 1 == count && line[at] == ' ' ? count : 0;
  return !hri_line_is_blank(line[at + 1]) && is_size(line, step, count)
             ? 0
             : at + 1; /* "#3 12.00 GiB requested" has no seconds */
}

static size_t drop_front(char *line, size_t at, size_t count) {
  if (at > 0) memmove(line, line + at, count - at);
  return count - at;
}

/* Four hexadecimal digits behind "\u" at line[at]; -1 when that is not there. */
static int32_t escaped_unit(const char *line, size_t at, size_t count) {
  int32_t unit = 0;
  if (count - at < 6 || line[at] != '\\' || line[at + 1] != 'u') return -1;
  for (size_t i = at + 2; i < at + 6; i++) {
    const char c = hri_line_lower(line[i]);
    if (!hri_is_digit(c) && !(c >= 'a' && c <= 'f')) return -1;
    unit = unit * 16 + (hri_is_digit(c) ? c - '0' : c - 'a' + 10);
  }
  return unit;
}

/* The character that JSON writes as "\u4e2d", or as two of these, at line[at]; returns how long that is, 0 when it is none or
 * a sign that means something as it stands. */
static size_t escaped_point(const char *line, size_t at, size_t count, uint32_t *point) {
  const int32_t unit = escaped_unit(line, at, count);
  const bool high = unit >= 0 && hri_utf16_is_high((uint32_t)unit);
  const int32_t low = high ? escaped_unit(line, at + 6, count) : -1;
  if (low >= 0 && hri_utf16_is_low((uint32_t)low)) {
    *point = hri_utf16_pair((uint32_t)unit, (uint32_t)low);
    return 12;
  }
  *point = (uint32_t)unit;
  return unit >= 0x80 && !high && !hri_utf16_is_low(*point) ? 6 : 0;
}

/* A character's number at line[at], "&#160;" or "&#x27;", as a page writes any of them: how long that is, 0 when it is none. What is no
 * sign is a blank. */
static size_t numeric_entity(const char *line, size_t at, size_t count, uint32_t *point) {
  enum { NO_BREAK = 0xa0, LAST = 0x10ffff };
  const bool hexadecimal = at + 2 < count && hri_line_lower(line[at + 2]) == 'x';
  const size_t first = at + 2 + hexadecimal;
  size_t end = first;
  if (!hri_match_at(line, at, count, "&#")) return 0;
  for (*point = 0; end < count && *point <= LAST; end++) {
    const char c = hri_line_lower(line[end]);
    if (!hri_is_digit(c) && !(hexadecimal && c >= 'a' && c <= 'f')) break;
    *point = *point * (hexadecimal ? 16 : 10) + (uint32_t)(hri_is_digit(c) ? c - '0' : c - 'a' + 10);
  }
  if (end == first || end >= count || line[end] != ';' || *point > LAST || hri_utf16_is_high(*point) ||
      hri_utf16_is_low(*point))
    return 0;
  if (*point < ' ' || *point == NO_BREAK) *point = ' ';
  return end + 1 - at;
}

/* The value of a hexadecimal digit; -1: it is none. */
static int hex_of(char c) {
  const char low = hri_line_lower(c);
  return hri_is_digit(c) ? c - '0' : low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

/* Whether a field of a query ends at line[at], "?q=". */
static bool is_asked(const char *line, size_t at) {
  const size_t end = at;
  while (at > 0 && hri_is_letter(hri_line_lower(line[at - 1]))) at--;
  return at < end && at > 0 && line[at - 1] == '?';
}

/* Whether the line is a text that an address carries, "cuda%20out%20of%20memory": without a blank, whose blanks and other signs are written as
 * their bytes. A link is one where it holds a size, "2.00%20GiB": else it names what it leads to, which need not have happened. */
static bool is_address(const char *line, size_t count) {
  bool sized = false, blanks = false, asks = false;
  if (!memchr(line, '%', count) || memchr(line, ' ', count)) return false;
  for (size_t at = 0; at < count; at++) {
    if (line[at] == '=') asks |= is_asked(line, at);
    if (line[at] != '%') continue;
    if (at + 2 >= count || hex_of(line[at + 1]) < 0 || hex_of(line[at + 2]) < 0) return false; /* a share, "9%" */
    if (line[at + 1] != '2' || line[at + 2] != '0') continue;
    blanks = true;
    if (at == 0 || !hri_is_digit(line[at - 1]) || at + 4 >= count) continue;
    sized |= strchr("KMGTB", hri_line_lower(line[at + 3]) - 'a' + 'A') && strchr("ibBy", line[at + 4]);
  }
  return blanks && (sized || !(asks || hri_oom_word(line, 0, count, "://") < count));
}

/* Else "%20gib" would be a figure. */
static size_t decode_address(char *line, size_t count) {
  size_t put = 0;
  if (!is_address(line, count)) return count;
  for (size_t at = 0; at < count; put++) {
    const int high = at + 2 < count && line[at] == '%' ? hex_of(line[at + 1]) : -1;
    const int low = high >= 0 ? hex_of(line[at + 2]) : -1;
    const int sign = low >= 0 ? high << 4 | low : (unsigned char)line[at];
    line[put] = (char)(low >= 0 && sign < ' ' ? ' ' : sign); /* a line end, too */
    at += low >= 0 ? 3 : 1;
  }
  return put;
}

size_t hri_scan_decode_entities(char *line, size_t count) {
  static const char *const entities[] = {"&lt;", "&gt;", "&amp;", "&quot;", "&apos;", "&nbsp;"};
  static const char signs[] = "<>&\"' ";
  size_t put = 0;
  uint32_t point;
  if (!memchr(line, '&', count) && hri_oom_word(line, 0, count, "\\u") == count) return count;
  for (size_t at = 0, length; at < count; at += length) {
    length = line[at] == '\\'  ? escaped_point(line, at, count, &point)
             : line[at] == '&' ? numeric_entity(line, at, count, &point)
                               : 0;
    if (length > 0) {
      put += hri_utf8_encode(point, line + put); /* fewer bytes than are taken */
      continue;
    }
    line[put] = line[at];
    length = 1;
    for (size_t i = 0; line[at] == '&' && i < HRI_COUNT(entities) && length == 1; i++) {
      const size_t size = strlen(entities[i]);
      if (count - at < size || memcmp(line + at, entities[i], size) != 0) continue;
      line[put] = signs[i];
      length = size;
    }
    put++;
  }
  return put;
}

/* Behind the tags that open a block of output at the line's beginning, "<pre><code>", with or without a class. */
static size_t behind_tags(const char *line, size_t count) {
  size_t from = 0, end;
  while (from < count && line[from] == '<' && hri_match_at(line, from, count, "<pre|<code|<samp")) {
    end = hri_oom_word(line, from, count, ">");
    if (end == count || end - from > 80) break;
    from = end + 1;
  }
  return from;
}

/* A block of output in a page's source: "<pre><code>text", "text</code></pre>". */
static size_t open_page(char *line, size_t count) {
  static const char *const closing[] = {"</pre>", "</code>", "</samp>"};
  const size_t from = behind_tags(line, count);
  for (size_t i = 0; count > from && line[count - 1] == '>' && i < HRI_COUNT(closing);) {
    const size_t length = strlen(closing[i]);
    const bool closes = count - from >= length && memcmp(line + count - length, closing[i], length) == 0;
    if (closes) count -= length;
    i = closes ? 0 : i + 1;
  }
  return hri_scan_decode_entities(line, drop_front(line, from, count));
}

/* One character of a JSON string at line[*at], which moves behind it. */
static char unescape(const char *line, size_t *at) {
  static const char *const codes[] = {"\\u003c", "\\u003e", "\\u0026", "\\u0027", "\\u001b"};
  static const char characters[] = "<>&'\x1b";
  const char *from = line + *at;
  *at += 1;
  if (*from != '\\') return *from;
  for (size_t i = 0; i < HRI_COUNT(codes); i++)
    if (memcmp(from, codes[i], 6) == 0) {
      *at += 5;
      return characters[i];
    }
  if (!strchr("\"\\/tnr", from[1])) return *from;
  *at += 1;
  if (from[1] == 't') return '\t';
  return strchr("nr", from[1]) ? ' ' : from[1];
}

size_t hri_scan_open_object(char *line, size_t count) {
  static const char *const begins[] = {"{\"log\":\"",
                                       "{\"log\": \""}; /* as Docker writes it, and as tools that read it do */
  static const char *const behind[] = {"\",\"stream\":\"std", "\", \"stream\": \"std"};
  const bool spaced = count > 7 && line[7] == ' ';
  const size_t length = strlen(begins[spaced]);
  size_t end, put = 0;
  if (count < length || memcmp(line, begins[spaced], length) != 0) return count;
  end = hri_oom_word(line, length, count, behind[spaced]);
  if (end == count) return count;
  for (size_t at = length; at < end;) line[put++] = unescape(line, &at); /* text follows the string, past 6 bytes */
  while (put > 0 && hri_line_is_blank(line[put - 1])) put--;
  return put;
}

/* What stands on both sides of a box, and between the numbers of lines and these. */
static const char *const sides[] = {"|", "\xe2\x94\x82", "\xe2\x94\x83", "\xe2\x95\x91"};

/* The text in a row of a box, "| text |" with nothing but text between; `count` when it is none. A row of a table has more
 * bars. */
static size_t open_box(char *line, size_t count) {
  size_t from = 0, to = count;
  while (from < to && hri_line_is_blank(line[from])) from++;
  while (to > from && hri_line_is_blank(line[to - 1])) to--;
  for (size_t i = 0; i < HRI_COUNT(sides); i++) {
    const size_t side = strlen(sides[i]);
    if (to - from < 2 * side + 2 || memcmp(line + from, sides[i], side) != 0 ||
        memcmp(line + to - side, sides[i], side) != 0)
      continue;
    from += side;
    to -= side;
    if (hri_oom_word(line, from, to, sides[i]) < to || line[from] != ' ') return count;
    from++; /* the box's own blank; before its right side are more of them where a line ends early */
    while (to > from && line[to - 1] == ' ') to--;
    return drop_front(line, from, to);
  }
  return count;
}

/* Behind what stands between the number that ends at line[at] and the text: a tab, a colon as grep sets it, a bar, blanks; `at` when it is
 * none. "3: x" is what a rank's line looks like, too: so a colon with one blank parts only where one without any did in two lines before,
 * with more blanks, or a tab, in one. */
static size_t behind_number(const char *line, size_t at, size_t count, uint64_t colons) {
  size_t to = at;
  if (line[at] == '\t') return at + 1;
  if (line[at] == ':') {
    for (to = at + 1; to < count && hri_line_is_blank(line[to]);) to++;
    return to == at + 1 || colons >= (to > at + 2 || line[at + 1] == '\t' ? 1 : 2) ? at + 1 : at;
  }
  while (to < count && line[to] == ' ') to++;
  for (size_t i = 0; to > at && i < HRI_COUNT(sides); i++) {
    const size_t side = strlen(sides[i]);
    if (count - to < side || memcmp(line + to, sides[i], side) != 0) continue;
    to += side;
    return to + (to < count && line[to] == ' ');
  }
  return to >= at + 2 || to == count ? at + 2 : at;
}

size_t hri_scan_drop_number(hri_scan_numbers *numbers, char *line, size_t count, uint64_t number) {
  uint64_t value = 0;
  size_t at = 0, from, text;
  if (numbers->last + 1 < number) return count; /* a line before had none */
  while (at < count && hri_line_is_blank(line[at])) at++;
  for (from = at; at < count && hri_is_digit(line[at]) && at - from < 18; at++)
    value = value * 10 + (uint64_t)(line[at] - '0');
  if (at == from || value != number) return count;
  numbers->last = number;
  if (at == count) return 0;
  text = behind_number(line, at, count, numbers->colons);
  if (text == at) { /* a number that belongs to the text, or somebody's */
    numbers->last = 0;
    return count;
  }
  numbers->colons += line[at] == ':' && at + 1 < count;
  return drop_front(line, text < count ? text : count, count);
}

/* Whether line[at, count) is the literal of a field of somebody's object, with its line ends written out. */
static bool is_literal_field(const char *line, size_t at, size_t count) {
  return at < count && line[at] == '"' && hri_oom_word(line, at, count, "\\n") < count;
}

size_t hri_scan_take_from_carrier(char *line, size_t count, bool *dated) {
  bool known = false;
  size_t at;
  at = behind_system(line, count, &known);
  if (at == 0) {
    at = behind_runtime(line, count);
    if (at == 0) at = behind_builder(line, count);
    known = at > 0; /* a log's line, whoever printed it */
  }
  if (at == 0 && hri_match_at(line, 0, count, "stderr: |stdout: ") && !is_literal_field(line, 8, count)) at = 8;
  *dated = known;
  return open_page(line, open_box(line, decode_address(line, drop_front(line, at, count))));
}
