/* Words in a normalised text. */
#include "explain/match.h"

size_t hri_match_whole(const char *text, size_t from, size_t to, const char *word) {
  size_t length = strlen(word);
  for (size_t at = hri_oom_word(text, from, to, word); at < to; at = hri_oom_word(text, at + 1, to, word)) {
    bool begins = at == from || !hri_is_name(text[at - 1]) || !hri_is_name(word[0]);
    bool ends = at + length == to || !hri_is_name(text[at + length]) || !hri_is_name(word[length - 1]);
    if (begins && ends) return at;
  }
  return to;
}

bool hri_match_any(const char *text, size_t from, size_t to, const char *const *words, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (hri_match_whole(text, from, to, words[i]) < to) return true;
  return false;
}

bool hri_match_part(const char *text, size_t from, size_t to, const char *const *parts, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (hri_oom_word(text, from, to, parts[i]) < to) return true;
  return false;
}

bool hri_match_at(const char *text, size_t at, size_t to, const char *words) {
  size_t length = strlen(words);
  return at <= to && to - at >= length && memcmp(text + at, words, length) == 0;
}

bool hri_match_at_any(const char *text, size_t at, size_t to, const char *const *words, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (hri_match_at(text, at, to, words[i])) return true;
  return false;
}

bool hri_match_end(const char *text, size_t from, size_t to, const char *words) {
  size_t length = strlen(words);
  return to >= from + length && memcmp(text + to - length, words, length) == 0;
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
