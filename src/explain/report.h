/* The general rule: what reports a failure of memory by its structure, whoever speaks. */
#ifndef HRI_EXPLAIN_REPORT_H
#define HRI_EXPLAIN_REPORT_H

#include "explain/message.h"

/* What the raw line showed before it was normalised. */
enum {
  HRI_OOM_LEVEL = 1,       /* its prefix names a level of errors or warnings */
  HRI_OOM_HEADING = 2,     /* it begins with "##" */
  HRI_OOM_ROW = 4,         /* it is a row of a table, between "|", or a code with its words beside others */
  HRI_OOM_COMMENT = 8,     /* with one "#", "//", or as an item of a list */
  HRI_OOM_SOURCE = 16,     /* it is a program's source, or a literal among such lines */
  HRI_OOM_AMONG = 32,      /* lines around it are a program's source */
  HRI_OOM_LITERAL = 64,    /* it is a string literal and nothing else */
  HRI_OOM_DATED = 128,     /* a time stands before it */
  HRI_OOM_TITLE = 512,     /* it is the first line, and an empty one follows */
  HRI_OOM_BOLD = 2048,     /* a heading because all of it is set in bold */
  HRI_OOM_REMARK = 1024,   /* with one "#", or "//": no item */
  HRI_OOM_PRINTED = 4096,  /* a field or an element of an object that a program printed */
  HRI_OOM_ENCLOSED = 8192, /* a remark, with statements right before and right behind those around it */
  HRI_OOM_HASHES = 16384,  /* a heading that begins with "##" */
  HRI_OOM_FENCED = 256     /* it is in a block of output or code, between lines of three back quotes */
};

/* A word at text[at] that may belong to a report, in the line text[line, line_end) of text[0, count). `before` is what
 * stands before the line. */
typedef struct hri_oom_place {
  const char *text;
  size_t line, at, line_end, count;
  size_t sentence; /* where the sentence may begin, if the line before was wrapped: at most `line` */
  const char *before;
  size_t before_count;
  size_t intro_count; /* the same without the lines of the block of output that holds it ... */
  size_t intro_from;  /* ... and where in it the last line begins, with the one that it goes on with */
  unsigned shape;
  size_t tick_from, tick_to;       /* the back quotes around it; equal: none are */
  bool has_ticks;                  /* the line has some */
  const struct hri_voice_ear *ear; /* who hears it (voice.h); NULL: the weights decide */
} hri_oom_place;

/* Whether a failure is reported there. Reads at most some hundred bytes on both sides. */
bool hri_oom_is_reported(const hri_oom_place *place);
/* The same, and fills the message; `end` is how far it was read. NOTHING when it is none. */
hri_oom_kind hri_oom_report(const hri_oom_place *place, hri_oom_message *message, size_t *end);

/* Whether it stands between back quotes behind words that tell of one event: "the run died with `...`". */
bool hri_oom_is_told(const hri_oom_place *place);

/* Whether a framework that is not PyTorch, or a library alone, is named: a tag that says who speaks. */
bool hri_oom_names_speaker(const char *text, size_t count);

/* A framework that is not PyTorch, or a library that takes device memory by itself, that is named in text[from, to);
 * NULL when none is. */
const char *hri_oom_framework_in(const char *text, size_t from, size_t to);
/* The same for lines around a message, where ordinary words are no names. */
const char *hri_oom_framework_near(const char *text, size_t from, size_t to);
const char *hri_oom_library_in(const char *text, size_t from, size_t to);
/* Whether the word stands in text[from, to) as code has it: beside "/", "_", "::" and the like. */
bool hri_oom_is_in_code(const char *text, size_t from, size_t to, const char *word);
/* Whether the line text[from, to) is one of that speaker's own: its name stands there as code has it - a label, a path, a
 * function -, or is words that nobody else prints, or is the phrase text[first, last) itself. Who is only named ("the X
 * server ran out of memory") may be spoken of by anybody. */
bool hri_oom_is_own_line(const char *text, size_t from, size_t to, size_t first, size_t last, const char *name);
/* Whether the lines text[from, to) around a message have its name in a place in a source: a failure tells its place on a
 * line of its own. */
bool hri_oom_is_own_place(const char *text, size_t from, size_t to, const char *name);
/* Whether words of that speaker's that nobody else prints stand in text[from, to): "wgpu error". */
bool hri_oom_has_own_words(const char *text, size_t from, size_t to, const char *name);
/* Makes the message that framework's. */
void hri_oom_set_framework(hri_oom_message *message, const char *name);
/* Kind and source of a report whose phrase is text[first, last). */
void hri_oom_name_speaker(const hri_oom_place *place, size_t first, size_t last, hri_oom_message *message);

/* For a message whose words are known: a framework that its line names, and the figures that words beside them call
 * by name. */
void hri_oom_add_words(const hri_oom_place *place, hri_oom_message *message);

#endif
