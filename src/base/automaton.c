/* A recursive descent over the expression builds fragments with one entry and one open end; a repeated piece is read
 * again for each copy, so nothing is kept but states. */
#include "base/automaton.h"

#include <assert.h>
#include <string.h>

enum { OPEN = -1, MOST_COPIES = 256, MOST_DEPTH = 32 };
typedef enum kind { STEP = 0, SET, SPLIT, BEGIN, END, EDGE, NO_EDGE, AHEAD, NOT_AHEAD, ACCEPT } kind;

/* ---- building ---- */

typedef struct fragment {
  int start, end; /* `end` is a STEP whose next is open */
} fragment;

typedef struct reader {
  hri_automaton *p;
  const char *at;
  const char *fault; /* the first one */
  int depth;
  bool looks; /* within a group that looks ahead */
} reader;

static void blame(reader *r, const char *what) {
  if (!r->fault) r->fault = what;
}

static int state(reader *r, kind k, int next, int other) {
  hri_automaton *p = r->p;
  if (p->count == HRI_AUTOMATON_STATES) {
    blame(r, "the expression is too large");
    return 0;
  }
  p->states[p->count] = (hri_automaton_state){.kind = (uint8_t)k, .next = (int16_t)next, .other = (int16_t)other};
  return p->count++;
}

static void join(reader *r, int from, int to) { r->p->states[from].next = (int16_t)to; }

static fragment single(reader *r, kind k) {
  int end = state(r, STEP, OPEN, OPEN), start = state(r, k, end, OPEN);
  return (fragment){start, end};
}

static void put(uint8_t set[32], unsigned c) { set[c / 8] |= (uint8_t)(1u << c % 8); }
static bool has(const uint8_t set[32], unsigned c) { return set[c / 8] >> c % 8 & 1; }
static bool is_word(unsigned c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
static bool is_space(unsigned c) { return c == ' ' || (c >= 9 && c <= 13); }

static uint8_t *fresh_set(reader *r, uint16_t *index) {
  if (r->p->set_count == HRI_AUTOMATON_SETS) {
    blame(r, "the expression is too large");
    r->p->set_count = 0;
  }
  *index = (uint16_t)r->p->set_count++;
  memset(r->p->sets[*index], 0, sizeof r->p->sets[*index]);
  return r->p->sets[*index];
}

/* \d, \W and so on: adds them to a set. False: c names no class. */
static bool put_class(uint8_t set[32], char c) {
  bool opposite = c == 'D' || c == 'W' || c == 'S';
  char low = (char)(opposite ? c + 'a' - 'A' : c);
  if (low != 'd' && low != 'w' && low != 's') return false;
  for (unsigned b = 0; b < 256; b++) {
    bool in = low == 'd' ? b >= '0' && b <= '9' : low == 'w' ? is_word(b) : is_space(b);
    if (in != opposite) put(set, b);
  }
  return true;
}

/* The character that \c stands for. */
static unsigned escaped(reader *r, char c) {
  static const char names[] = "ntrfva", values[] = "\n\t\r\f\v\a";
  const char *found = c ? strchr(names, c) : NULL;
  if (!c) blame(r, "it ends in a backslash");
  else if (found) return (unsigned char)values[found - names];
  else if (c >= '0' && c <= '9') blame(r, "backreferences and octal numbers are not understood");
  else if (is_word((unsigned char)c)) blame(r, "there is a backslash before a letter that it gives no meaning");
  return (unsigned char)c;
}

static unsigned class_member(reader *r, uint8_t set[32], bool *is_class) {
  char c = *r->at++;
  *is_class = false;
  if (c != '\\') return (unsigned char)c;
  c = *r->at;
  if (c) r->at++;
  *is_class = put_class(set, c);
  return *is_class ? 0 : c == 'b' ? '\b' : escaped(r, c);
}

/* Behind the bracket. */
static fragment bracket(reader *r) {
  fragment f = single(r, SET);
  uint8_t *set = fresh_set(r, &r->p->states[f.start].set);
  bool opposite = *r->at == '^', is_class;
  if (opposite) r->at++;
  for (bool first = true; *r->at && (first || *r->at != ']') && !r->fault; first = false) {
    unsigned low = class_member(r, set, &is_class), high = low;
    if (is_class) continue;
    if (r->at[0] == '-' && r->at[1] && r->at[1] != ']') {
      r->at++;
      high = class_member(r, set, &is_class);
      if (is_class || high < low) blame(r, "a range of a class runs backwards");
    }
    for (unsigned b = low; b <= high && b < 256; b++) put(set, b);
  }
  if (*r->at == ']') r->at++;
  else blame(r, "a class is not closed");
  for (int k = 0; opposite && k < 32; k++) set[k] = (uint8_t)~set[k];
  return f;
}

static fragment alternatives(reader *r);

static fragment group(reader *r) {
  kind look = STEP;
  fragment f, inner;
  bool looked;
  if (*r->at == '?') {
    r->at++;
    if (*r->at == '=') look = AHEAD;
    else if (*r->at == '!') look = NOT_AHEAD;
    else if (r->at[0] == 'P' && r->at[1] == '<') {
      while (*r->at && *r->at != '>') r->at++;
    } else if (*r->at != ':') blame(r, "of (?...) it may have (?:, (?=, (?! and (?P<name>");
    if (*r->at) r->at++;
  }
  if (++r->depth > MOST_DEPTH) blame(r, "its groups are too deep");
  if (look != STEP && r->looks) blame(r, "looking ahead within what looks ahead is not understood");
  looked = r->looks;
  r->looks = looked || look != STEP;
  inner = r->fault ? single(r, STEP) : alternatives(r);
  r->looks = looked;
  r->depth--;
  if (*r->at == ')') r->at++;
  else blame(r, "a group is not closed");
  if (look == STEP) return inner;
  f = single(r, look);
  r->p->states[f.start].other = (int16_t)inner.start;
  join(r, inner.end, state(r, ACCEPT, OPEN, OPEN));
  return f;
}

static fragment backslash(reader *r) {
  char c = *r->at;
  fragment f;
  uint8_t *set;
  if (c) r->at++;
  if (c == 'b') return single(r, EDGE);
  if (c == 'B') return single(r, NO_EDGE);
  if (c == 'A') return single(r, BEGIN);
  if (c == 'Z') return single(r, END);
  f = single(r, SET);
  set = fresh_set(r, &r->p->states[f.start].set);
  if (!put_class(set, c)) put(set, escaped(r, c));
  return f;
}

static fragment atom(reader *r) {
  char c = *r->at++;
  fragment f;
  uint8_t *set;
  if (c == '(') return group(r);
  if (c == '[') return bracket(r);
  if (c == '\\') return backslash(r);
  if (c == '^') return single(r, BEGIN);
  if (c == '$') return single(r, END);
  if (c == '*' || c == '+' || c == '?') blame(r, "there is nothing to repeat");
  f = single(r, SET);
  set = fresh_set(r, &r->p->states[f.start].set);
  if (c == '.') memset(set, 0xFF, 32), set['\n' / 8] &= (uint8_t)~(1u << '\n' % 8);
  else put(set, (unsigned char)c);
  return f;
}

/* Of Python: beginnings, ends and edges of words are not repeated. */
static bool is_place(char first, char second) {
  return first == '^' || first == '$' || (first == '\\' && second && strchr("bBAZ", second));
}

static bool number(const char **at, int *out) {
  const char *from = *at;
  for (*out = 0; **at >= '0' && **at <= '9' && *out < 10000; (*at)++) *out = *out * 10 + (**at - '0');
  return *at != from;
}

/* What stands behind an atom; *most -1: any number. False: nothing does. */
static bool repeats(reader *r, int *least, int *most) {
  const char *at = r->at;
  char c = *at++;
  *least = c == '+';
  *most = c == '?' ? 1 : -1;
  if (c == '{') { /* Python takes {m}, {m,}, {,n} and {m,n}, and anything else as it stands */
    bool any = number(&at, least);
    *most = *least;
    if (*at == ',') {
      at++;
      if (!number(&at, most)) *most = -1;
      any = true;
    }
    if (!any || *at++ != '}') return false;
    if (*most >= 0 && *most < *least) blame(r, "a repetition ends below its beginning");
    if (*least > MOST_COPIES || *most > MOST_COPIES) blame(r, "it repeats too often");
  } else if (c != '*' && c != '+' && c != '?') return false;
  if (*at == '+') blame(r, "possessive repetitions are not understood");
  else if (*at == '?') at++; /* lazy: what matches is the same */
  r->at = at;
  return true;
}

static fragment star(reader *r, fragment f) {
  int end = state(r, STEP, OPEN, OPEN), split = state(r, SPLIT, f.start, end);
  join(r, f.end, split);
  return (fragment){split, end};
}

static fragment maybe(reader *r, fragment f) { return (fragment){state(r, SPLIT, f.start, f.end), f.end}; }

static fragment append(reader *r, fragment a, fragment b) {
  join(r, a.end, b.start);
  return (fragment){a.start, b.end};
}

/* An atom with what repeats it: a copy for each time, the rest as alternatives of nothing. */
static fragment piece(reader *r) {
  const char *from = r->at, *end;
  fragment one = atom(r), all;
  int least, most, unused;
  if (r->fault || !repeats(r, &least, &most)) return one;
  end = r->at;
  if (is_place(from[0], from[1])) blame(r, "there is nothing to repeat");
  if (*end && repeats(r, &unused, &unused)) blame(r, "a repetition is repeated");
  all = single(r, STEP);
  for (int k = 0; k < (most > least ? most : least) && !r->fault; k++) {
    r->at = from;
    if (k > 0) one = atom(r);
    all = append(r, all, k < least ? one : maybe(r, one));
  }
  r->at = from;
  if (most < 0 && !r->fault) all = append(r, all, star(r, least ? atom(r) : one));
  if (!r->fault) r->at = end;
  return all;
}

static fragment sequence(reader *r) {
  fragment all = single(r, STEP);
  while (*r->at && *r->at != '|' && *r->at != ')' && !r->fault) all = append(r, all, piece(r));
  return all;
}

static fragment alternatives(reader *r) {
  fragment all = sequence(r);
  while (*r->at == '|' && !r->fault) {
    fragment other;
    r->at++;
    other = sequence(r);
    all.start = state(r, SPLIT, all.start, other.start);
    join(r, other.end, all.end);
  }
  return all;
}

const char *hri_automaton_compile(hri_automaton *p, const char *expression) {
  reader r = {.p = p, .at = expression};
  fragment all;
  memset(p, 0, sizeof *p);
  all = alternatives(&r);
  if (*r.at == ')') blame(&r, "a group is closed that was not opened");
  join(&r, all.end, state(&r, ACCEPT, OPEN, OPEN));
  p->start = all.start;
  return r.fault;
}

/* ---- matching ---- */

typedef struct walk {
  const hri_automaton *p;
  const char *text;
  size_t length;
} walk;

/* The states that a text may be in. */
typedef struct crowd {
  uint8_t in[HRI_AUTOMATON_STATES / 8];
  int16_t list[HRI_AUTOMATON_STATES];
  int count;
} crowd;

static bool runs(const walk *w, int start, size_t at, hri_automaton_end *may_end);

static bool anywhere(const char *text, size_t at) {
  (void)text;
  (void)at;
  return true;
}

static bool at_end(const char *text, size_t at) { return !text[at]; }

static bool holds(const walk *w, const hri_automaton_state *s, size_t at) {
  bool before = at > 0 && is_word((unsigned char)w->text[at - 1]),
       behind = at < w->length && is_word((unsigned char)w->text[at]);
  switch ((kind)s->kind) {
  case BEGIN: return at == 0;
  case END: return at == w->length;
  case EDGE: return before != behind;
  case NO_EDGE: return before == behind;
  case AHEAD: return runs(w, s->other, at, anywhere);
  case NOT_AHEAD: return !runs(w, s->other, at, anywhere);
  default: return true;
  }
}

/* Adds a state and all that is reached from it without a character; those are found in the order of the list. */
static void enter(const walk *w, crowd *c, int first, size_t at) {
  int from = c->count;
  const int begin[2] = {first, OPEN};
  for (int k = from - 1; k < c->count; k++) {
    const hri_automaton_state *s = k < from ? NULL : &w->p->states[c->list[k]];
    int ways[2] = {begin[0], begin[1]};
    if (s) {
      if (s->kind == SET || s->kind == ACCEPT || !holds(w, s, at)) continue;
      ways[0] = s->next;
      ways[1] = s->kind == SPLIT ? s->other : OPEN;
    }
    for (int i = 0; i < 2; i++) {
      if (ways[i] == OPEN || has(c->in, (unsigned)ways[i])) continue;
      put(c->in, (unsigned)ways[i]);
      assert(c->count < HRI_AUTOMATON_STATES);
      c->list[c->count++] = (int16_t)ways[i];
    }
  }
}

static bool accepts(const walk *w, const crowd *c) {
  for (int k = 0; k < c->count; k++)
    if (w->p->states[c->list[k]].kind == ACCEPT) return true;
  return false;
}

/* From a state at a place of the text up to one where it may end. */
static bool runs(const walk *w, int start, size_t at, hri_automaton_end *may_end) {
  crowd two[2] = {{{0}, {0}, 0}, {{0}, {0}, 0}};
  int now = 0;
  enter(w, &two[0], start, at);
  for (;; at++, now = !now) {
    crowd *c = &two[now], *then = &two[!now];
    if (may_end(w->text, at) && accepts(w, c)) return true;
    if (at == w->length || c->count == 0) return false;
    memset(then->in, 0, sizeof then->in);
    then->count = 0;
    for (int k = 0; k < c->count; k++) {
      const hri_automaton_state *s = &w->p->states[c->list[k]];
      if (s->kind == SET && has(w->p->sets[s->set], (unsigned char)w->text[at])) enter(w, then, s->next, at + 1);
    }
  }
}

bool hri_automaton_matches(const hri_automaton *p, const char *text) { return hri_automaton_begins(p, text, at_end); }

bool hri_automaton_begins(const hri_automaton *p, const char *text, hri_automaton_end *may_end) {
  walk w = {.p = p, .text = text, .length = strlen(text)};
  return runs(&w, p->start, 0, may_end);
}
