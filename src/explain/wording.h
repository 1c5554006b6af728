/* The wordings of messages: heads, what the words around them say, and the figures that each kind prints. */
#ifndef HRI_EXPLAIN_WORDING_H
#define HRI_EXPLAIN_WORDING_H

#include "explain/message.h"

typedef struct hri_oom_head {
  const char *words;
  const char *source;
  hri_oom_kind kind; /* NOTHING: the words around it decide */
} hri_oom_head;

/* A head in its text: text[start, at) is before it, text[after, count) behind it. */
typedef struct hri_oom_around {
  const char *text;
  size_t start, at, after, count;
  size_t line; /* where the head's own line begins; at most `at` */
} hri_oom_around;

/* The source of a reading, and of a message, whose words are known and only spoken of. */
#define HRI_OOM_TALK "talk"

typedef struct hri_oom_reading {
  hri_oom_kind kind;
  const char *source;
} hri_oom_reading;

/* The head at text[at]; NULL when there is none. The longest of those that begin alike comes first. */
const hri_oom_head *hri_oom_head_at(const char *text, size_t at, size_t count);

/* Whether the head there is the name of an error and no sentence: a name can be spoken of in any sentence. */
bool hri_oom_is_name(const char *text, size_t at, size_t count);

/* Kind and source by the head and the words around it; NOTHING when they report nothing. */
hri_oom_reading hri_oom_read_around(const hri_oom_head *head, const hri_oom_around *around);

/* Whether the words beside it name or explain it: code that compares it, prose about it, handlers of it. */
bool hri_oom_is_only_named(const hri_oom_head *head, const hri_oom_around *around, const char *source);

/* Whether "killed" there tells of a process that nobody meant to end; whether who ended it is who does so for memory
 * (kill.c). */
bool hri_oom_is_told_kill(const hri_oom_around *around);
bool hri_oom_is_killed_by(const hri_oom_around *around);
/* "Whatever takes more will be killed": whether the words of text[from, verb), which end before the word "killed" at text[at] and before
 * what stands between, say that nothing was killed yet, nor was it somebody's own process. */
bool hri_oom_is_to_be(const char *text, size_t from, size_t verb, size_t at);
/* "I wanted to know how jobs above their limit get killed", "in cases where they get killed": of what comes to all, not of one's own. */
bool hri_oom_is_of_all(const hri_oom_around *around);
/* The lines behind say by which signal, and it is not the one of memory. */
bool hri_oom_is_by_other_signal(const hri_oom_around *around);

/* The figures that a message of its kind and source prints in text[from, end). */
void hri_oom_read_figures(const char *text, size_t from, size_t end, hri_oom_message *message);

/* A number of at most six digits at text[at]; -1 when there is none. */
int32_t hri_oom_read_index(const char *text, size_t at, size_t count);

#endif
