/* Words in a normalised text. */
#include "explain/match.h"

static inline size_t word_length(const char *word) {
  size_t length = 0;
  while (word[length] && word[length] != '|') length++;
  return length;
}

/* A list of words is one string, in which "|" parts them: the loop goes over them, each with its length. */
#define EACH_WORD(word, length, words)                                                                                 \
  for (const char *word = (words); ((length) = word_length(word)) > 0; word += (length) + (word[length] == '|'))

/* Where word[0, length) stands first in text[from, to); `to` when it does not. */
static size_t find(const char *text, size_t from, size_t to, const char *word, size_t length) {
  while (from < to && to - from >= length) {
    const char *at = memchr(text + from, word[0], to - from - length + 1);
    if (!at) return to;
    from = (size_t)(at - text);
    if (at[length - 1] == word[length - 1] && memcmp(at, word, length) == 0) return from;
    from++;
  }
  return to;
}

size_t hri_latin_at(const char *text, size_t at, size_t to) {
  const unsigned char *t = (const unsigned char *)text + at;
  if (at + 1 >= to || t[0] < 0xc3 || (t[1] & 0xc0) != 0x80) return 0;
  if (t[0] == 0xc3) return t[1] == 0x97 || t[1] == 0xb7 ? 0 : 2;
  if (t[0] <= 0xc9) return t[0] < 0xc9 || t[1] <= 0x8f ? 2 : 0;
  if (t[0] == 0xcc || t[0] == 0xcd) return t[0] == 0xcc || t[1] <= 0xaf ? 2 : 0;
  return t[0] == 0xe1 && t[1] >= 0xb8 && t[1] <= 0xbb && at + 2 < to && (t[2] & 0xc0) == 0x80 ? 3 : 0;
}

/* Whether such a letter ends at text[at]. */
static bool is_behind_latin(const char *text, size_t from, size_t at) {
  return (at >= from + 2 && hri_latin_at(text, at - 2, at) == 2) ||
         (at >= from + 3 && hri_latin_at(text, at - 3, at) == 3);
}

/* Whether no letter, digit or "_" of another word stands beside the word text[at, end). What is negated is another word:
 * "can't", "could not"; an option of a command, "-i", is none, nor is a folder, "/users/". */
static bool is_whole(const char *text, size_t from, size_t to, size_t at, size_t end) {
  if (hri_match_at(text, end, to, "'t| not ") || (at > from && hri_match_end(text, 0, at, " -"))) return false;
  if (at > from && text[at - 1] == '/' && end < to && text[end] == '/') return false;
  return (at == from || !hri_is_name(text[at]) || (!hri_is_name(text[at - 1]) && !is_behind_latin(text, from, at))) &&
         (end == to || !hri_is_name(text[end - 1]) || (!hri_is_name(text[end]) && !hri_latin_at(text, end, to)));
}

size_t hri_match_whole(const char *text, size_t from, size_t to, const char *words) {
  size_t length;
  EACH_WORD(word, length, words) {
    size_t at = find(text, from, to, word, length);
    while (at < to && !is_whole(text, from, to, at, at + length)) at = find(text, at + 1, to, word, length);
    if (at < to) return at;
  }
  return to;
}

bool hri_match_any(const char *text, size_t from, size_t to, const char *words) {
  return hri_match_whole(text, from, to, words) < to;
}

size_t hri_match_first(const char *text, size_t from, size_t to, const char *words) {
  size_t length;
  EACH_WORD(word, length, words)
  to = find(text, from, to, word, length);
  return to;
}

bool hri_match_part(const char *text, size_t from, size_t to, const char *words) {
  size_t length;
  EACH_WORD(word, length, words)
  if (find(text, from, to, word, length) < to) return true;
  return false;
}

bool hri_is_one_of(const char *word, const char *words) {
  return hri_match_next(word, 0, strlen(word), words) == strlen(word);
}

size_t hri_match_next(const char *text, size_t at, size_t to, const char *words) {
  size_t length, end = at;
  EACH_WORD(word, length, words)
  if (at + length > end && at + length <= to && text[at] == word[0] && memcmp(text + at, word, length) == 0)
    end = at + length;
  return end;
}

size_t hri_match_last(const char *text, size_t from, size_t to, const char *words) {
  size_t length, start = to;
  EACH_WORD(word, length, words)
  if (from + length <= to && to - length < start && text[to - length] == word[0] &&
      memcmp(text + to - length, word, length) == 0 && is_whole(text, from, to, to - length, to))
    start = to - length;
  return start;
}

size_t hri_skip_back(const char *text, size_t from, size_t at) {
  while (at > from && text[at - 1] == ' ') at--;
  return at;
}

bool hri_match_at(const char *text, size_t at, size_t to, const char *words) {
  size_t length;
  EACH_WORD(word, length, words)
  if (at + length <= to && text[at] == word[0] && memcmp(text + at, word, length) == 0) return true;
  return false;
}

bool hri_match_end(const char *text, size_t from, size_t to, const char *words) {
  size_t length;
  EACH_WORD(word, length, words)
  if (from + length <= to && text[to - length] == word[0] && memcmp(text + to - length, word, length) == 0) return true;
  return false;
}

bool hri_match_over(const char *text, size_t seam, size_t to, const char *words) {
  size_t length;
  EACH_WORD(word, length, words)
  for (size_t at = seam >= length ? seam - length + 1 : 0; at < seam && at + length <= to; at++)
    if (text[at] == word[0] && memcmp(text + at, word, length) == 0) return true;
  return false;
}

bool hri_ends_sentence(const char *text, size_t at, size_t to) {
  char c = text[at];
  if (c == ';' || c == '?' || c == '!') return true;
  return c == '.' && at + 1 < to && text[at + 1] == ' ';
}

size_t hri_sentence_start(const char *text, size_t from, size_t at) {
  for (size_t i = at; i > from; i--)
    if (hri_ends_sentence(text, i - 1, at)) return i;
  return from;
}

size_t hri_sentence_end(const char *text, size_t at, size_t to) {
  while (at < to && !hri_ends_sentence(text, at, to)) at++;
  return at;
}

unsigned hri_count_words(const char *text, size_t from, size_t to) {
  unsigned words = 0;
  for (size_t at = from; at < to;) {
    size_t end = at;
    bool letters = true;
    size_t wide = 0; /* bytes of letters of which several are a word: Chinese, Japanese */
    for (; end < to && text[end] != ' '; end++) {
      wide += (text[end] & 0x80) != 0;
      letters = letters && (hri_is_letter(text[end]) || text[end] & 0x80);
    }
    words += wide >= 12 ? (unsigned)(wide / 6) : letters && end > at;
    at = end + 1;
  }
  return words;
}
