/* The words around a phrase, as keys of the table: a letter for where they stand, and the words.
 *
 *   b, a   a word before or behind the phrase, among the nearest NEAREST of its sentence
 *   c, d   two that follow each other, close before or behind; "^" begins the sentence, "$" ends it
 *   l, r   the one right before, right behind
 *   s      the first, and the first two, of the sentence
 *   e      what ends the sentence
 *   t      who speaks and how, in the sentences around: of few words only
 *   w      of the text on both sides
 *   p      the phrase itself
 *
 * A word is letters of the Latin script with what an apostrophe joins to them, a number of whatever size ("0"), or one character of anything
 * else, of Chinese too. A key counts once, however often its words stand there. */
#include "explain/prose.h"

#include <pthread.h>

#include "explain/match.h"
#include "explain/report_parts.h"

enum {
  NEAREST = 14, /* words of the sentence on each side */
  AROUND = 40,  /* words of the sentences before and behind */
  FAR = 300,    /* bytes of those */
  PAGE = 700,   /* bytes on each side that tell what kind of text it is */
  LEAST = 4,    /* words of letters besides the phrase that make a sentence */
  KEY = 80,
  MOST_FOUND = 480
};

typedef struct word {
  size_t from, to;
} word;

static bool is_latin(const char *text, size_t at, size_t end) {
  return hri_is_letter(text[at]) || hri_latin_at(text, at, end) > 0;
}

/* The word at or behind text[at]; false when none begins before `end`. */
static bool next_word(const char *text, size_t at, size_t end, word *w) {
  while (at < end && (text[at] == ' ' || text[at] == '\n' || text[at] == '\t' || text[at] == '\r')) at++;
  if (at >= end) return false;
  w->from = at;
  if (is_latin(text, at, end))
    while (at < end && (is_latin(text, at, end) || text[at] == '\''))
      at += text[at] & 0x80 ? hri_latin_at(text, at, end) : 1;
  else if (hri_is_digit(text[at]))
    while (at < end && hri_is_digit(text[at])) at++;
  else
    for (at++; at < end && ((unsigned char)text[at] & 0xc0) == 0x80;) at++; /* one character, of UTF-8 */
  w->to = at;
  return true;
}

static bool is_letters(const char *text, word w) { return hri_is_letter(text[w.from]) || text[w.from] & 0x80; }

/* Words of text[from, end): the first `most`, or the last where `last`; returns how many. `words` has room for `most`. */
static size_t take_words(const char *text, size_t from, size_t end, bool last, word *words, size_t most) {
  size_t count = 0;
  for (word w; next_word(text, from, end, &w); from = w.to) {
    if (count == most && !last) break;
    if (count == most) memmove(words, words + 1, --count * sizeof *words);
    words[count++] = w;
  }
  return count;
}

typedef struct seen {
  void (*see)(void *context, const char *key);
  void *context;
  char key[KEY];
  size_t used;
} seen;

static void key_begin(seen *s, char where) {
  s->key[0] = where;
  s->used = 1;
}

static void key_add(seen *s, const char *text, word w) {
  size_t count = hri_is_digit(text[w.from]) ? 1 : w.to - w.from;
  if (s->used + 2 > KEY - 1) return; /* no row is as long */
  if (s->used + 1 + count > KEY - 1) count = KEY - 2 - s->used;
  s->key[s->used++] = ' ';
  memcpy(s->key + s->used, hri_is_digit(text[w.from]) ? "0" : text + w.from, count);
  s->used += count;
}

static void key_end(seen *s) {
  s->key[s->used] = 0;
  s->see(s->context, s->key);
}

static void see_one(seen *s, char where, const char *text, word w) {
  key_begin(s, where);
  key_add(s, text, w);
  key_end(s);
}

static void see_two(seen *s, char where, const char *a_text, word a, const char *b_text, word b) {
  key_begin(s, where);
  key_add(s, a_text, a);
  key_add(s, b_text, b);
  key_end(s);
}

static const char begins[] = "^", ends[] = "$";
static const word edge = {0, 1};

static void see_before(seen *s, const char *text, size_t begin, size_t from) {
  word near[NEAREST], first[2];
  const size_t count = take_words(text, begin, from, true, near, NEAREST),
               firsts = take_words(text, begin, from, false, first, 2);
  for (size_t i = 0; i < count; i++) see_one(s, 'b', text, near[i]);
  for (size_t k = 1; k <= 3 && k <= count; k++) {
    const bool at_edge = k == count;
    see_two(s, 'c', at_edge ? begins : text, at_edge ? edge : near[count - k - 1], text, near[count - k]);
  }
  see_one(s, 'l', count ? text : begins, count ? near[count - 1] : edge);
  see_one(s, 's', firsts ? text : begins, firsts ? first[0] : edge);
  if (firsts == 2) see_two(s, 's', text, first[0], text, first[1]);
}

static void see_behind(seen *s, const char *text, size_t to, size_t end) {
  word near[NEAREST];
  const size_t count = take_words(text, to, end, false, near, NEAREST);
  for (size_t i = 0; i < count; i++) see_one(s, 'a', text, near[i]);
  see_one(s, 'r', count ? text : ends, count ? near[0] : edge);
  for (size_t k = 0; k < 2 && k < count; k++) {
    const bool at_edge = k + 1 == count;
    see_two(s, 'd', text, near[k], at_edge ? ends : text, at_edge ? edge : near[k + 1]);
  }
}

/* Who speaks and how. */
static const char speaking[] =
    "i|i'm|my|we|our|me|us|you|your|please|thanks|help|should|can|if|when|would|reduce|use|set|error|fix|memory|"
    "\xe6\x88\x91|\xe4\xbd\xa0|\xe6\x82\xa8|\xe8\xaf\xb7|\xe5\x8f\xaf|\xe5\xa6\x82"; /* Chinese: I, you, please, may, if */
static const char marks[] = "?-#`";

static void see_around(seen *s, const char *text, const word *words, size_t count) {
  for (size_t i = 0; i < count; i++) {
    const word w = words[i];
    const char c = text[w.from];
    if (hri_is_digit(c) || (w.to - w.from == 1 && strchr(marks, c)) ||
        hri_match_next(text, w.from, w.to, speaking) == w.to)
      see_one(s, 't', text, w);
  }
}

/* What kind of text it stands in, by its words on both sides: a page that explains to whoever comes to it speaks otherwise than
 * who has the trouble. Of scripts without blanks two characters are a word. */
static void see_page(seen *s, const char *text, size_t from, size_t end) {
  word last = {0, 0};
  for (word w; next_word(text, from, end, &w); from = w.to) {
    const bool latin = is_latin(text, w.from, end), wide = !latin && text[w.from] & 0x80;
    if (wide && last.to == w.from && last.to > last.from) see_two(s, 'w', text, last, text, w);
    else if (latin && w.to - w.from >= 2) see_one(s, 'w', text, w);
    last = wide ? w : (word){0, 0};
  }
}

static void see_sentence(seen *s, const hri_voice_heard *h, size_t begin, size_t end) {
  const hri_oom_place *p = h->place;
  word around[AROUND], phrase[3];
  const size_t far = end + FAR < p->count ? end + FAR : p->count;
  const size_t back = p->before_count > FAR ? p->before_count - FAR : 0;
  size_t count;
  see_before(s, p->text, begin, h->from);
  see_behind(s, p->text, h->to, end);
  count = take_words(p->text, end, far, false, around, AROUND);
  see_one(s, 'e', count ? p->text : ends, count ? around[0] : edge);
  if (count > 1) see_around(s, p->text, around + 1, count - 1);
  count = take_words(p->before, back, p->before_count, true, around, AROUND);
  see_around(s, p->before, around, count);
  if (p->line < begin) { /* the sentences before it in its line */
    count = take_words(p->text, p->line, begin, true, around, AROUND);
    see_around(s, p->text, around, count);
  }
  count = take_words(p->text, h->from, h->to, false, phrase, 3);
  key_begin(s, 'p');
  for (size_t i = 0; i < count; i++) key_add(s, p->text, phrase[i]);
  key_end(s);
}

void hri_prose_each(const hri_voice_heard *h, void (*see)(void *context, const char *key), void *context) {
  const hri_oom_place *p = h->place;
  seen s = {.see = see, .context = context};
  const hri_oom_sentence sentence = hri_oom_sentence_of(p, h->from, h->to);
  /* of a sentence its own words have their places; a line with no words beside the message says nothing else */
  const bool bare = !h->in_sentence && !(h->signs & (HRI_SIGN_BIT(HRI_SIGN_PROSE) | HRI_SIGN_BIT(HRI_SIGN_TAIL)));
  const size_t begin = h->in_sentence ? sentence.from
                       : bare         ? p->line
                                      : h->from,
               end = h->in_sentence                ? sentence.end
                     : bare && p->line_end > h->to ? p->line_end
                                                   : h->to;
  if (h->in_sentence) see_sentence(&s, h, begin, end);
  if (!h->on_page) return;
  see_page(&s, p->before, p->before_count > PAGE ? p->before_count - PAGE : 0, p->before_count);
  if (p->line < begin) see_page(&s, p->text, p->line, begin);
  see_page(&s, p->text, end, end + PAGE < p->count ? end + PAGE : p->count);
}

bool hri_prose_is_on_page(uint64_t signs, bool in_sentence) {
#define BIT(name) HRI_SIGN_BIT(HRI_SIGN_##name)
  if (!in_sentence && signs & (BIT(CONCRETE) | BIT(CODE))) return false;
  return !(signs &
           (BIT(FIGURE) | BIT(LEVEL) | BIT(DATED) | BIT(STACK) | BIT(PLACE) | BIT(SOURCE) | BIT(LITERAL) | BIT(AMONG)));
}

/* What the text around may take at most from a line that is no sentence: what a program prints in full stays a report, more so where
 * nothing is beside it. */
static int most_of_page(uint64_t signs) {
  const uint64_t beside =
      BIT(PROSE) | BIT(TAIL) | BIT(TITLE) | BIT(HEADING) | BIT(COMMENT) | BIT(QUOTED) | BIT(TICKED) | BIT(GENERAL);
#undef BIT
  return signs & beside ? 30 : 12;
}

bool hri_prose_is_sentence(const hri_oom_place *p, size_t from, size_t to, uint64_t signs) {
#define BIT(name) HRI_SIGN_BIT(HRI_SIGN_##name)
  const uint64_t printed = BIT(LEVEL) | BIT(DATED) | BIT(OPENS) | BIT(PLACE) | BIT(STACK) | BIT(FIGURE) | BIT(FIELD) |
                           BIT(SOURCE) | BIT(LITERAL) | BIT(PATTERN) | BIT(FENCED) | BIT(ROW) | BIT(ENTRY);
  const hri_oom_sentence sentence = hri_oom_sentence_of(p, from, to);
  const size_t begin = sentence.from, end = sentence.end;
  /* what anybody may say; the rest are whole sentences of speakers */
  const bool anybodys = signs & (BIT(GENERAL) | BIT(NAME) | BIT(LOOSE)) ||
                        (signs & BIT(KILL) && !hri_match_part(p->text, from, to, ": |;"));
  size_t count = 0, named = 0;
  if (hri_match_at(p->text, to, p->line_end, ": kill process |: killed process ")) return false; /* the kernel's */
  if (hri_match_end(p->text, p->line, from, "result '|result=")) return false;                   /* systemd's */
  if (signs & BIT(AMONG) && signs & BIT(QUOTED)) return false; /* a literal of a program, whatever it says */
  for (word w = {begin, begin}; named < LEAST && next_word(p->text, w.to, from, &w);) named += is_letters(p->text, w);
  if (signs & printed || !(anybodys || (named == LEAST && !(signs & BIT(ALONE)))) ||
      (signs & BIT(ALONE) && hri_oom_word(p->text, begin, from, ":") < from))
    return false;
#undef BIT
  for (word w = {begin, begin}; count < LEAST && next_word(p->text, w.to, from, &w);) count += is_letters(p->text, w);
  for (word w = {to, to}; count < LEAST && next_word(p->text, w.to, end, &w);) count += is_letters(p->text, w);
  return count >= LEAST;
}

/* ---- the table ---- */

enum { SLOTS = 16384 };
static uint16_t slots[SLOTS]; /* numbers of rows from 1 on, by the hash of their keys; 0: none */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static uint32_t hash_of(const char *key) { /* FNV-1a */
  uint32_t hash = 2166136261u;
  for (; *key; key++) hash = (hash ^ (unsigned char)*key) * 16777619u;
  return hash ^ hash >> 15;
}

static void fill_slots(void) {
  for (size_t i = 0; i < hri_prose_word_count; i++) {
    uint32_t at = hash_of(hri_prose_words[i].key) % SLOTS;
    while (slots[at]) at = (at + 1) % SLOTS;
    slots[at] = (uint16_t)(i + 1);
  }
}

/* Rows that were found: each counts once. */
typedef struct found {
  uint16_t rows[MOST_FOUND];
  size_t count;
  int sum;
} found;

static void weigh_key(void *context, const char *key) {
  found *f = context;
  for (uint32_t at = hash_of(key) % SLOTS; slots[at]; at = (at + 1) % SLOTS) {
    const hri_prose_word *row = &hri_prose_words[slots[at] - 1];
    if (strcmp(row->key, key) != 0) continue;
    for (size_t i = 0; i < f->count; i++)
      if (f->rows[i] == slots[at]) return;
    if (f->count == MOST_FOUND) return;
    f->rows[f->count++] = slots[at];
    f->sum += row->weight;
    return;
  }
}

int hri_prose_weigh(const hri_voice_heard *h) {
  const uint64_t signs = hri_voice_pairs(h->signs);
  found f = {.sum = 0};
  (void)pthread_once(&once, fill_slots);
  if (h->in_sentence || h->on_page) hri_prose_each(h, weigh_key, &f);
  if (!h->in_sentence) {
    const int most = most_of_page(h->signs);
    return hri_voice_weigh(h->signs) + (f.sum < -most ? -most : f.sum);
  }
  f.sum += hri_prose_bias;
  for (int i = 0; i < HRI_SIGN_COUNT; i++)
    if (signs >> i & 1) f.sum += hri_prose_signs[i];
  return f.sum;
}
