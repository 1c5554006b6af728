/* Numbers with their units in a text, and which figure of a failure each one is: by the words that stand beside it,
 * whatever their order and whoever speaks. */
#include "explain/figures.h"

#include <assert.h>

#include "explain/match.h"

size_t hri_oom_word(const char *text, size_t from, size_t count, const char *word) {
  const size_t length = strlen(word);
  if (!text || from >= count || length > count - from || length == 0) return count;
  for (const char *at = text + from, *last = text + count - length; at <= last;
       at++) { /* ranges are short: no tables */
    at = memchr(at, word[0], (size_t)(last - at) + 1);
    if (!at) break;
    if (at[length - 1] == word[length - 1] && memcmp(at, word, length) == 0) return (size_t)(at - text);
  }
  return count;
}

static uint64_t unit_bytes(const char *unit, size_t length) {
  static const char *const names[] = {"pib",  "eib",    "pb",     "eb",     "b",         "kib",       "mib",
                                      "gib",  "tib",    "kb",     "mb",     "gb",        "tb",        "bytes",
                                      "byte", "kbytes", "mbytes", "gbytes", "megabytes", "gigabytes", "ki",
                                      "mi",   "gi",     "ti",     "ko",     "mo",        "go"};
  static const uint8_t shifts[] =
      {50, 60, 50, 60, 0,  10, 20, 30, 40, 10, 20, 30, 40, 0,
       0,  10, 20, 30, 20, 30, 10, 20, 30, 40, 10, 20, 30}; /* PyTorch's "GB" counts in 2^30 too */
  for (size_t i = 0; i < sizeof shifts; i++)
    if (strlen(names[i]) == length && memcmp(names[i], unit, length) == 0) return 1ull << shifts[i];
  return 0;
}

/* "2.20g" as TensorFlow and Slurm print it: the letter follows at once, and no word does. */
static uint64_t letter_bytes(char letter) {
  static const char letters[] = "kmgt";
  const char *found = letter ? strchr(letters, letter) : NULL;
  return found ? 1024ull << (10 * (found - letters)) : 0;
}

/* "max_model_len=128k", "at step 31k": thousands of what is no memory. */
static bool counts_no_bytes(const char *text, size_t start, size_t behind, size_t end) {
  enum { NEAR = 14 };
  const size_t from = start > NEAR ? start - NEAR : 0;
  return hri_match_part(text, from, start, "len|step|seq|ctx|context|token|iter|length") ||
         hri_match_at(text, behind, end, " token| context| step| iter| seq");
}

/* Whether exactly three digits stand at text[at, end): a group of thousands. */
static bool is_group(const char *text, size_t at, size_t end) {
  for (size_t i = at; i < at + 3; i++)
    if (i >= end || !hri_is_digit(text[i])) return false;
  return at + 3 == end || !hri_is_digit(text[at + 3]);
}

/* Behind the exponent at text[at, end), "e+09" or "e9", with ten to its power; `at` when there is none. */
static size_t read_exponent(const char *text, size_t at, size_t end, long double *power) {
  enum { DIGITS = 2 };
  const size_t sign = at + 1, first = sign + (sign < end && strchr("+-", text[sign]) != NULL);
  size_t last = first;
  unsigned exponent = 0;
  *power = 1;
  if (at >= end || text[at] != 'e') return at;
  while (last < end && hri_is_digit(text[last]) && last - first < DIGITS)
    exponent = exponent * 10 + (unsigned)(text[last++] - '0');
  if (last == first || (last < end && hri_is_name(text[last]))) return at;
  while (exponent-- > 0) *power *= 10;
  if (text[sign] == '-') *power = 1 / *power;
  return last;
}

/* A number at text[at, end), with commas and the like between thousands, "1,024", "1'024", "1_024"; the place behind it, or `at` when
 * there is none. *place: one of the last digit printed is 1 / *place. */
static size_t read_number(const char *text, size_t at, size_t end, long double *number, long double *place) {
  size_t start = at;
  bool point = false;
  long double power;
  *number = 0;
  *place = 1;
  for (; at < end && at - start < 40 && (hri_is_digit(text[at]) || (text[at] && strchr(".,'_", text[at]))); at++) {
    if (text[at] == ',') {
      size_t digits = at + 1;
      while (digits < end && hri_is_digit(text[digits])) digits++;
      if (digits == at + 1) break;
      if (digits == at + 4) continue; /* of thousands; else the comma is the point, as half of the world writes it */
      if (point) break;
      point = true;
      continue;
    }
    if (text[at] == '.') {
      if (point) return start;
      if (at + 1 >= end || !hri_is_digit(text[at + 1])) break;
      point = true;
      continue;
    }
    if (!hri_is_digit(text[at])) {
      if (at == start || point || !is_group(text, at + 1, end)) break;
      continue;
    }
    *number = *number * 10 + (text[at] - '0');
    if (point) *place *= 10;
  }
  if (at == start || !hri_is_digit(text[start])) return start;
  at = read_exponent(text, at, end, &power);
  *place /= power;
  return at;
}

static void set_size(hr_oom_value *value, long double number, long double place, uint64_t unit) {
  const long double most = 1ull << 60, half = (long double)unit / place / 2; /* sums of slacks stay below 2^64 */
  assert(place > 0 && unit > 0);
  number = number / place * (long double)unit;
  value->state = HR_OOM_READ;
  value->bytes = number >= 18446744073709551615.0L ? UINT64_MAX : (uint64_t)(number + 0.5L);
  value->slack_bytes = unit == 1 && place >= 1 ? 0 : (uint64_t)(half < most ? half : most) + 1;
}

/* The unit that stands in brackets before the number at text[at]: "total gpu memory (gib): 79.10". */
static uint64_t unit_of_label(const char *text, size_t at) {
  size_t end, start;
  while (at > 0 && strchr(" :=", text[at - 1])) at--;
  if (at == 0 || text[at - 1] != ')') return 0;
  for (end = start = at - 1; start > 0 && hri_is_letter(text[start - 1]);) start--;
  return start > 0 && text[start - 1] == '(' ? unit_bytes(text + start, end - start) : 0;
}

/* The groups of thousands between blanks with which a number begins, "1 073 741 824": several, or one that begins as no number does,
 * "1 024". Where the last of them begins, with the value of those before; `at` when there are none. */
static size_t skip_groups(const char *text, size_t at, size_t end, long double *groups) {
  size_t next = at, count = 0;
  bool padded = false;
  *groups = 0;
  while (next < end && next < at + 3 && hri_is_digit(text[next])) *groups = *groups * 10 + (text[next++] - '0');
  for (; next > at && next < end && text[next] == ' ' && is_group(text, next + 1, end); next += 4, count++)
    padded |= text[next + 1] == '0';
  if (count == 0 || (count == 1 && !padded)) return at;
  for (size_t i = next - 4 * count; i < next - 4; i++)
    if (hri_is_digit(text[i])) *groups = *groups * 10 + (text[i] - '0');
  return next - 3;
}

/* A number with its unit at text[at]; *behind is the place after it. */
static bool read_sized(const char *text, size_t at, size_t end, hr_oom_value *value, size_t *behind) {
  long double number, place, groups;
  const size_t start = at;
  const bool of_size = hri_match_end(text, 0, at, "of size "); /* "of size 31.99 g", Kokkos' */
  const size_t last = skip_groups(text, at, end, &groups);
  size_t after = read_number(text, last, end, &number, &place), unit_end;
  uint64_t unit;
  if (after == last) return false;
  if (last > at) number += groups * 1000 * place;
  if (end - after > 5 && memcmp(text + after, "-byte", 5) == 0) { /* "cannot allocate 4096-byte block" */
    set_size(value, number, place, 1);
    *behind = after + 5;
    return true;
  }
  if (after < end && text[after] == '.') after++; /* "77. gib", NumPy's */
  for (at = after; at < end && text[at] == ' ';) at++;
  for (unit_end = at; unit_end < end && hri_is_letter(text[unit_end]);) unit_end++;
  unit = unit_bytes(text + at, unit_end - at);
  if (unit == 1 && at == after && unit_end == at + 1 && number > 0 && number < 512) return false; /* "llama-3b" */
  if (unit == 0 && (at == after || of_size) && unit_end == at + 1) unit = letter_bytes(text[at]);
  if (unit == 1024 && unit_end == at + 1 && counts_no_bytes(text, start, unit_end, end)) unit = 0;
  if (unit == 0) {
    unit_end = after;
    unit = unit_of_label(text, start);
  }
  if (unit == 0) return false;
  set_size(value, number, place, unit);
  *behind = unit_end;
  return true;
}

/* Whether the digits from `start` on may be the rest of a number: nothing, a point, also one that ends a line, or an
 * ellipsis stands before them. */
static bool is_cut_number(const char *text, size_t start) {
  return start == 0 || text[start - 1] == '.' || (start >= 3 && memcmp(text + start - 3, "\xe2\x80\xa6", 3) == 0) ||
         (start >= 3 && text[start - 1] == ' ' && text[start - 2] == '.' && hri_is_digit(text[start - 3]));
}

static bool is_word_part(char c) { return hri_is_letter(c) || hri_is_digit(c); }

/* Whether the digits from `start` on are no number by themselves: the rest of one that is written otherwise, up to its "e+", "0x1f" or
 * "1'", or of a name, "a100-sxm4-" or "trainer-". */
static bool is_number_rest(const char *text, size_t start) {
  size_t at = start;
  if (at > 1 && text[at - 1] == '-' && is_word_part(text[at - 2])) return true;
  while (at > 0 && (is_word_part(text[at - 1]) || text[at - 1] == '\'' || text[at - 1] == '_' ||
                    (at > 1 && text[at - 1] == '+' && text[at - 2] == 'e')))
    if (hri_is_digit(text[--at])) return true;
  return false;
}

static bool is_number_part(char c) { return hri_is_digit(c) || c == '.'; }

/* A number that the end of a line broke at its point or behind it, "669. 64 mib": two decimals and a unit in 2^10, as
 * PyTorch prints sizes. text[gap] is the blank that stands for the line's end. */
static bool read_broken(const char *text, size_t gap, size_t count, hr_oom_value *value) {
  enum { DIGITS = 16, UNIT = 5 };
  char whole[DIGITS + UNIT + 1];
  size_t from = gap, to = gap + 1, point, length, behind;
  while (from > 0 && is_number_part(text[from - 1])) from--;
  if (to < count && text[to] == '.') to++;
  while (to < count && hri_is_digit(text[to])) to++;
  length = to - from - 1;
  if (text[gap] != ' ' || length > DIGITS || !hri_is_digit(text[from]) || is_cut_number(text, from)) return false;
  point = hri_oom_word(text, from, gap + 2 < to ? gap + 2 : to, ".");
  if (to - point != (point < gap ? 4 : 3)) return false; /* the point, two decimals and, where it is, the blank */
  memcpy(whole, text + from, gap - from);
  memcpy(whole + (gap - from), text + gap + 1, to - gap - 1);
  for (; to < count && length < sizeof whole - 1; to++) whole[length++] = text[to];
  return hri_oom_word(whole, 0, length, "ib") < length && read_sized(whole, 0, length, value, &behind);
}

bool hri_oom_size_at(const char *text, size_t at, size_t end, hr_oom_value *value) {
  size_t behind;
  while (at < end && (text[at] == ' ' || text[at] == ':' || text[at] == '=')) at++;
  if (at >= end) return false;
  if (read_sized(text, at, end, value, &behind)) return true;
  while (at < end && is_number_part(text[at])) at++;
  return at < end && read_broken(text, at, end, value);
}

bool hri_oom_size_after(const char *text, size_t count, const char *words, hr_oom_value *value) {
  size_t at = hri_oom_word(text, 0, count, words);
  return at < count && hri_oom_size_at(text, at + strlen(words), count, value);
}

static bool read_before(const char *text, size_t at, size_t count, hr_oom_value *value) {
  size_t start = at;
  while (start > 0 && text[start - 1] == ' ') start--;
  while (start > 0 && hri_is_letter(text[start - 1]) && at - start < 12) start--;
  while (start > 0 && text[start - 1] == ' ') start--;
  at = start;
  while (start > 0 && at - start < 40 &&
         (hri_is_digit(text[start - 1]) || text[start - 1] == '.' || text[start - 1] == ','))
    start--;
  while (start < at && !hri_is_digit(text[start])) start++;
  if (start == at) return false;
  if (start > 3 && hri_match_at(text, start - 2, start, " .") && hri_is_digit(text[start - 3]))
    return read_broken(text, start - 2, count, value);
  if (start > 2 && text[start - 1] == ' ' &&
      (hri_is_digit(text[start - 2]) || (text[start - 2] == '.' && hri_is_digit(text[start - 3]))))
    return read_broken(text, start - 1, count, value); /* else two numbers, of which none is known */
  return !is_cut_number(text, start) && !is_number_rest(text, start) &&
         hri_oom_size_at(text, start, at + 16 < count ? at + 16 : count, value);
}

/* "0xc300", as an assembler prints sizes; false when there is none at text[at]. */
static bool read_hexadecimal(const char *text, size_t at, size_t end, hr_oom_value *value) {
  uint64_t number = 0;
  size_t start = at + 2;
  if (at + 2 >= end || text[at] != '0' || text[at + 1] != 'x') return false;
  for (at = start; at < end && at - start < 16; at++) {
    if (hri_is_digit(text[at])) number = number * 16 + (uint64_t)(text[at] - '0');
    else if (text[at] >= 'a' && text[at] <= 'f') number = number * 16 + (uint64_t)(text[at] - 'a') + 10;
    else break;
  }
  if (at == start) return false;
  set_size(value, (long double)number, 1, 1);
  return true;
}

bool hri_oom_count_after(const char *text, size_t count, const char *words, hr_oom_value *value) {
  size_t at = hri_oom_word(text, 0, count, words);
  long double number, place;
  size_t behind;
  if (at == count) return false;
  for (at += strlen(words); at < count && text[at] == ' ';) at++;
  if (read_hexadecimal(text, at, count, value)) return true;
  behind = read_number(text, at, count, &number, &place);
  if (behind == at || place != 1) return false;
  if (behind < count && text[behind] == 'x') return false; /* "1xxxxxxxxx": somebody hid the rest */
  set_size(value, number, 1, 1);
  return true;
}

bool hri_oom_size_in_unit_of(const char *text, size_t slash, size_t count, hr_oom_value *value) {
  long double number, place, second, second_place;
  size_t start = slash, behind = read_number(text, slash + 1, count, &second, &second_place), end;
  uint64_t unit;
  while (start > 0 && (hri_is_digit(text[start - 1]) || text[start - 1] == '.')) start--;
  if (read_number(text, start, slash, &number, &place) != slash) return false;
  while (behind < count && text[behind] == ' ') behind++;
  for (end = behind; end < count && hri_is_letter(text[end]);) end++;
  unit = unit_bytes(text + behind, end - behind);
  if (unit == 0) return false;
  set_size(value, number, place, unit);
  return true;
}

bool hri_oom_size_before(const char *text, size_t count, const char *words, hr_oom_value *value) {
  for (size_t at = hri_oom_word(text, 0, count, words); at < count; at = hri_oom_word(text, at + 1, count, words))
    if (read_before(text, at, count, value)) return true;
  return false;
}

bool hri_oom_size_before_cut(const char *text, size_t count, const char *words, size_t least, hr_oom_value *value) {
  for (size_t length = strlen(words) - 1; length >= least; length--)
    if (length < count && memcmp(text + count - length, words, length) == 0)
      return read_before(text, count - length, count, value);
  return false;
}

/* ---- whoever speaks ---- */

typedef struct label {
  const char *word;
  hr_oom_figure figure;
} label;

/* Where the last of some labels before a number ends; words that say nothing stand for HR_OOM_FIGURE_COUNT. */
static const label before_labels[] = {{"allocate", HR_OOM_REQUESTED},
                                      {"allocating", HR_OOM_REQUESTED},
                                      {"allocation of", HR_OOM_REQUESTED},
                                      {"allocation size", HR_OOM_REQUESTED},
                                      {"alloc size", HR_OOM_REQUESTED},
                                      {"alloc", HR_OOM_REQUESTED},
                                      {"malloc", HR_OOM_REQUESTED},
                                      {"calloc", HR_OOM_REQUESTED},
                                      {"mmap", HR_OOM_REQUESTED},
                                      {"request", HR_OOM_REQUESTED},
                                      {"requested", HR_OOM_REQUESTED},
                                      {"requesting", HR_OOM_REQUESTED},
                                      {"requires", HR_OOM_REQUESTED},
                                      {"required", HR_OOM_REQUESTED},
                                      {"reserve", HR_OOM_REQUESTED},
                                      {"acquire", HR_OOM_REQUESTED},
                                      {"object size is", HR_OOM_REQUESTED},
                                      {"needs", HR_OOM_REQUESTED},
                                      {"need", HR_OOM_REQUESTED},
                                      {"needed", HR_OOM_REQUESTED},
                                      {"size", HR_OOM_REQUESTED},
                                      {"hbm size", HR_OOM_TOTAL},
                                      {"moc size", HR_OOM_TOTAL},
                                      {"free size", HR_OOM_FREE},
                                      {"weight size", HR_OOM_FIGURE_COUNT},
                                      {"temporary buffer size", HR_OOM_FIGURE_COUNT},
                                      {"sized", HR_OOM_REQUESTED},
                                      {"buffer of", HR_OOM_REQUESTED},
                                      {"chunk of", HR_OOM_REQUESTED},
                                      {"create", HR_OOM_REQUESTED},
                                      {"upstream", HR_OOM_REQUESTED},
                                      {"would use", HR_OOM_FIGURE_COUNT},
                                      {"growth limit", HR_OOM_ALLOWED},
                                      {"free", HR_OOM_FREE},
                                      {"available", HR_OOM_FREE},
                                      {"remaining", HR_OOM_FREE},
                                      {"left", HR_OOM_FREE},
                                      {"total", HR_OOM_TOTAL},
                                      {"memory (size", HR_OOM_TOTAL},
                                      {"capacity", HR_OOM_TOTAL},
                                      {"capacity by", HR_OOM_FIGURE_COUNT},
                                      {"limit by", HR_OOM_FIGURE_COUNT},
                                      {"after a total of", HR_OOM_FIGURE_COUNT},
                                      {"total sbrk() is", HR_OOM_FIGURE_COUNT},
                                      {"limit", HR_OOM_ALLOWED},
                                      {"limit set to", HR_OOM_ALLOWED},
                                      {"allowed", HR_OOM_ALLOWED},
                                      {"maximum", HR_OOM_ALLOWED},
                                      {"max", HR_OOM_ALLOWED},
                                      {"requestedspace", HR_OOM_REQUESTED},
                                      {"wanted", HR_OOM_REQUESTED},
                                      {"asked:", HR_OOM_REQUESTED},
                                      {"error 12", HR_OOM_REQUESTED},
                                      {"expand heap by", HR_OOM_REQUESTED},
                                      {"totalfreespace", HR_OOM_FREE},
                                      {"allocated so far", HR_OOM_ALLOCATED},
                                      {"allocated", HR_OOM_ALLOCATED},
                                      {"used", HR_OOM_FIGURE_COUNT},
                                      {"current rss", HR_OOM_THIS_PROCESS},
                                      {"peak", HR_OOM_FIGURE_COUNT},
                                      {"in use", HR_OOM_FIGURE_COUNT}};
static const label behind_labels[] = {{" free", HR_OOM_FREE},
                                      {" available", HR_OOM_FREE},
                                      {" is free", HR_OOM_FREE},
                                      {" is available", HR_OOM_FREE},
                                      {" are free", HR_OOM_FREE},
                                      {" are available", HR_OOM_FREE},
                                      {" left", HR_OOM_FREE},
                                      {" total", HR_OOM_TOTAL},
                                      {" capacity", HR_OOM_TOTAL},
                                      {" allowed", HR_OOM_ALLOWED},
                                      {" limit", HR_OOM_ALLOWED},
                                      {" allocated in private pools", HR_OOM_PRIVATE_POOLS},
                                      {" allocated", HR_OOM_ALLOCATED},
                                      {" memory has been allocated", HR_OOM_ALLOCATED},
                                      {" have already been allocated", HR_OOM_ALLOCATED},
                                      {" have already been mmap", HR_OOM_ALLOCATED},
                                      {": no space left", HR_OOM_REQUESTED},
                                      {" currently allocated", HR_OOM_ALLOCATED},
                                      {" in budget", HR_OOM_ALLOWED},
                                      {" requested", HR_OOM_REQUESTED},
                                      {" were requested", HR_OOM_REQUESTED},
                                      {" was requested", HR_OOM_REQUESTED},
                                      {" required", HR_OOM_REQUESTED},
                                      {" needed", HR_OOM_REQUESTED},
                                      {" used", HR_OOM_FIGURE_COUNT},
                                      {" card", HR_OOM_FIGURE_COUNT},    /* what it has, "on a 24gb card" */
                                      {" in use)", HR_OOM_THIS_PROCESS}, /* Go's */
                                      {" in use", HR_OOM_FIGURE_COUNT}};

/* "batch size 32 on 12 gb": a size is the number that follows at once. */
static bool figure_needs_number_next(const char *word) {
  return strcmp(word, "size") == 0 || strcmp(word, "sized") == 0;
}
static bool is_apart(const char *text, size_t from, size_t to) {
  static const char *const links[] = {" of ", " is ", " was ", " = ", ": ", "=",     ":",   " ",
                                      "",     " (",   " =  ",  "(",   ",",  " is: ", "=\"", "["};
  for (size_t i = 0; i < sizeof links / sizeof *links; i++)
    if (strlen(links[i]) == to - from && memcmp(text + from, links[i], to - from) == 0) return false;
  return true;
}

/* What the words before text[at] call the number there: the label that ends last, within a few words and the same
 * part of the sentence. */
static hr_oom_figure label_before(const char *text, size_t from, size_t at, bool *found) {
  size_t start = at > from + 40 ? at - 40 : from, best = start, longest = 0;
  hr_oom_figure figure = HR_OOM_FIGURE_COUNT;
  for (size_t i = start; i < at; i++)
    if (text[i] == ';' || text[i] == ',' ||
        (text[i] == '.' && i + 1 < at && (text[i + 1] == ' ' || text[i + 1] == '.')) ||
        hri_match_at(text, i, at, "\xe2\x80\xa6")) /* behind an ellipsis stand words of something else */
      start = i + 1;
  *found = false;
  for (size_t l = 0; l < sizeof before_labels / sizeof *before_labels; l++) {
    size_t length = strlen(before_labels[l].word);
    for (size_t i = hri_oom_word(text, start, at, before_labels[l].word); i < at;
         i = hri_oom_word(text, i + 1, at, before_labels[l].word)) {
      size_t end = i + length;
      bool whole =
          (i == start || !hri_is_letter(text[i - 1]) || length >= 5) && (end == at || !hri_is_letter(text[end]));
      if (figure_needs_number_next(before_labels[l].word) && is_apart(text, end, at)) continue;
      if (!whole || (*found && (end < best || (end == best && length <= longest)))) continue;
      best = end;
      longest = length;
      figure = before_labels[l].figure;
      *found = true;
    }
  }
  if (figure == HR_OOM_REQUESTED && best - longest > start) { /* "the maximum allowed buffer size of" */
    static const char *const bounds[] = {"maximum", "max ", "allowed", "limit"};
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
      if (hri_oom_word(text, start, best - longest, bounds[i]) < best - longest) return HR_OOM_ALLOWED;
  }
  return figure;
}

static hr_oom_figure label_behind(const char *text, size_t at, size_t count, bool *found) {
  *found = true;
  for (size_t l = 0; l < sizeof behind_labels / sizeof *behind_labels; l++) {
    size_t length = strlen(behind_labels[l].word);
    if (hri_match_at(text, at, count, behind_labels[l].word) &&
        (at + length == count || !hri_is_letter(text[at + length])) &&
        !hri_match_at(text, at + length, count, " size")) /* of the next figure */
      return behind_labels[l].figure;
  }
  *found = false;
  return HR_OOM_FIGURE_COUNT;
}

/* Whether the word right before text[at] calls a number memory's: "limit: 31357083254". */
static bool is_named(const char *text, size_t from, size_t at) {
  return hri_match_end(text, from, at, "limit: |allocated: |wanted: |asked: |used: |malloc(|calloc(|mmap(");
}

/* A bare number counts as bytes where the words before it speak of a size or of memory. */
static bool read_bare(const char *text, size_t from, size_t at, size_t end, hr_oom_value *value, size_t *behind) {
  long double number, place;
  size_t start = at > from + 24 ? at - 24 : from;
  const bool sized = hri_match_end(text, from, at, "of size "); /* whatever it is, it is a size */
  if (read_hexadecimal(text, at, end, value)) {                 /* no address: a size, or of bytes */
    for (*behind = at + 2; *behind < end && is_word_part(text[*behind]);) (*behind)++;
    return hri_match_at(text, *behind, end, " byte| (") || hri_oom_word(text, start, at, "size") < at;
  }
  *behind = read_number(text, at, end, &number, &place);
  if ((*behind - at < 5 && !sized && !is_named(text, start, at)) || *behind == at || place != 1 ||
      (*behind < end && (hri_is_letter(text[*behind]) || text[*behind] == '/')))
    return false;
  if (at > from + 1 && text[at - 1] == 'x') return false;
  if (hri_oom_word(text, at > from + 80 ? at - 80 : from, at, "descriptors") < at) return false; /* of open files */
  if (hri_match_at(text, *behind, end, " pages| next ")) return false; /* a chunk among others that TensorFlow lists */
  if (*behind + 1 < end && text[*behind] == ' ' && text[*behind + 1] == '>') return false; /* "(33715636 > 32757760)" */
  if (hri_oom_word(text, start, at, "size") == at && hri_oom_word(text, start, at, "memory") == at &&
      hri_oom_word(text, start, at, "buffer:") == at && hri_oom_word(text, start, at, "bytes") == at &&
      hri_oom_word(text, start, at, "-byte") == at && !is_named(text, start, at))
    return false;
  set_size(value, number, 1, 1);
  return true;
}

/* Whether a size is the other one in whole bytes. */
static bool is_same(const hr_oom_value *rounded, const hr_oom_value *exact) {
  const uint64_t apart = rounded->bytes > exact->bytes ? rounded->bytes - exact->bytes : exact->bytes - rounded->bytes;
  return exact->slack_bytes == 0 && apart <= 2 * rounded->slack_bytes + rounded->bytes / 20;
}

void hri_oom_read_labelled(const char *text, size_t from, size_t bare, size_t end, hr_oom_value *figures) {
  for (size_t at = from; at < end; at++) {
    hr_oom_value value = {0}, exact = {0};
    size_t behind, exact_behind;
    bool sized, found, named;
    hr_oom_figure figure, other;
    if (!hri_is_digit(text[at]) || (at > 0 && (is_word_part(text[at - 1]) || text[at - 1] == '_'))) continue;
    if (is_cut_number(text, at) || is_number_rest(text, at)) continue;
    sized = read_sized(text, at, end, &value, &behind);
    bool counts = at < bare || hri_oom_word(text, at > from + 8 ? at - 8 : from, at, "size") < at;
    if (!sized && (!counts || !read_bare(text, from, at, end, &value, &behind))) {
      while (at < end && (is_word_part(text[at]) || text[at] == '.')) at++;
      continue;
    }
    figure = label_before(text, from, at, &found);
    other = label_behind(text, behind, end, &named);
    if (named) figure = other; /* "free memory: 3 gib, 10 gib total": what follows at once is nearer */
    /* "512.00m (536870912 bytes)": the same in whole bytes */
    if (sized && behind + 2 < end && text[behind] == ' ' && text[behind + 1] == '(' &&
        read_sized(text, behind + 2, end, &exact, &exact_behind) && is_same(&value, &exact)) {
      value = exact;
      behind = exact_behind;
    }
    if (at >= from + 2 && text[at - 1] == '-' && text[at - 2] == ' ' && figure == HR_OOM_REQUESTED)
      value.bytes = UINT64_MAX - value.bytes + 1; /* as the size that it wraps to */
    if ((found || named) && figure < HR_OOM_FIGURE_COUNT && figures[figure].state == HR_OOM_ABSENT &&
        (figure != HR_OOM_TOTAL || value.bytes > 0)) /* no device has nothing */
      figures[figure] = value;
    at = behind > at ? behind - 1 : at;
  }
}
