/* Numbers with units in a normalised text, and which figure each is. */
#ifndef HRI_EXPLAIN_FIGURES_H
#define HRI_EXPLAIN_FIGURES_H

#include "explain/message.h"

/* "7.79 gib" or "1,234 bytes" at text[at], behind blanks, ":" and "=": its value with the slack of its last printed
 * digit. Without a unit that is whole it is no figure. */
bool hri_oom_size_at(const char *text, size_t at, size_t end, hr_oom_value *value);
/* A size behind, or before, some words. A number at the very beginning of the text may be cut and is not read. */
bool hri_oom_size_after(const char *text, size_t count, const char *words, hr_oom_value *value);
bool hri_oom_size_before(const char *text, size_t count, const char *words, hr_oom_value *value);
/* A size before words of which the end of the text left a part, `least` letters or more. */
bool hri_oom_size_before_cut(const char *text, size_t count, const char *words, size_t least, hr_oom_value *value);
/* A number without a unit, of bytes, behind some words. */
bool hri_oom_count_after(const char *text, size_t count, const char *words, hr_oom_value *value);
/* The number before a slash, "3.1/79.1 gib", in the unit behind the second. */
bool hri_oom_size_in_unit_of(const char *text, size_t slash, size_t count, hr_oom_value *value);

/* Every size in text[from, end) that the words beside it call requested, free, total, allowed or allocated; the first
 * of each. Before text[bare], or where they are
 * called a size, numbers without a unit count too. */
void hri_oom_read_labelled(const char *text, size_t from, size_t bare, size_t end, hr_oom_value *figures);

#endif
