/* Regular expressions over short names, as Python's re.fullmatch and re.match read them, without a library: what plans must not need
 * one.
 *
 * An expression is compiled to a list of states, and all states that a text may be in are followed at once (Thompson
 * 1968), so time is states x length whatever the expression, and once more x length where it looks ahead: each time from
 * another place, which is why no expression does so within one that does. That gives whether a text matches, which is all that is
 * asked here, and not where its groups are. Understood are characters, ., classes, groups, |, ?, *, +, {m,n} and their
 * lazy forms, \d \w \s and their opposites, ^ $ \b \B \A \Z, and (?=...) (?!...). Refused are backreferences, looking
 * behind, looking ahead within what looks ahead, flags, and atomic and possessive forms. */
#ifndef HRI_BASE_AUTOMATON_H
#define HRI_BASE_AUTOMATON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HRI_AUTOMATON_STATES = 1024 };

typedef struct hri_automaton_state {
  uint8_t kind;
  int16_t next, other;
  uint16_t set; /* which of the sets */
} hri_automaton_state;

enum { HRI_AUTOMATON_SETS = 256 };

typedef struct hri_automaton {
  hri_automaton_state states[HRI_AUTOMATON_STATES];
  uint8_t sets[HRI_AUTOMATON_SETS][32]; /* of bytes, a bit each */
  int count, set_count, start;
} hri_automaton;

/* NULL, or what is wrong with the expression: a text that lives as long as the program. */
const char *hri_automaton_compile(hri_automaton *pattern, const char *expression);
/* Whether all of `text` matches. */
bool hri_automaton_matches(const hri_automaton *pattern, const char *text);

/* Whether a match may end before text[at], `at` <= the text's length. */
typedef bool hri_automaton_end(const char *text, size_t at);
/* Whether a beginning of `text` matches that ends where it may: Python's re.match of the expression and such an end. */
bool hri_automaton_begins(const hri_automaton *pattern, const char *text, hri_automaton_end *may_end);

#endif
