/* Whether a message is reported or only spoken of. No single sign decides: each line has some that speak for a report
 * (a class of exceptions, a level, a place in a source, a code, a figure, words that tell of one event) and some
 * against it (source code around, a condition, a question, a row of a table, ...). They are weighed. */
#ifndef HRI_EXPLAIN_VOICE_H
#define HRI_EXPLAIN_VOICE_H

#include "explain/report.h"

/* The signs. Each is one bit of hri_voice_signs. */
typedef enum hri_sign {
  /* what kind of words they are */
  HRI_SIGN_GENERAL, /* of no known speaker */
  HRI_SIGN_NAME,    /* the name of an error, which any sentence may hold */
  HRI_SIGN_KILL,    /* of a process that was ended, for whatever reason */
  HRI_SIGN_LOOSE,   /* words that any sentence about memory may hold */
  HRI_SIGN_NAMED,   /* beside words that name or explain it (wording.c) */
  /* what speaks for a report */
  HRI_SIGN_FIGURE,   /* the message prints a figure */
  HRI_SIGN_LEVEL,    /* a level of a log before it */
  HRI_SIGN_DATED,    /* a time before it */
  HRI_SIGN_OPENS,    /* the line begins as an exception is printed */
  HRI_SIGN_LABELLED, /* an error's word and a colon or bracket before it */
  HRI_SIGN_FIELD,    /* the value of a field of that name */
  HRI_SIGN_PLACE,    /* a place in a source */
  HRI_SIGN_STACK,    /* frames right behind it */
  HRI_SIGN_CODE,     /* an error's code behind it */
  HRI_SIGN_ALONE,    /* nothing but labels before it */
  HRI_SIGN_LAST,     /* nothing behind it in its line */
  HRI_SIGN_TOLD,     /* "failed with", "got a" */
  HRI_SIGN_ENDED,    /* a verb that tells of an end: died, crashed, was killed */
  HRI_SIGN_CONCRETE, /* a process, a job, an address */
  HRI_SIGN_FENCED,   /* in a block of output */
  HRI_SIGN_TITLE,    /* in the first line, as the title of a thread or a page */
  HRI_SIGN_MINE,     /* somebody tells of it as their own: "I got a", "our run died with" */
  /* what speaks against it */
  HRI_SIGN_SOURCE,    /* a line of source */
  HRI_SIGN_LITERAL,   /* a string literal and nothing else */
  HRI_SIGN_AMONG,     /* source close by */
  HRI_SIGN_COMMENT,   /* behind a mark of comments or items */
  HRI_SIGN_HEADING,   /* behind two marks or more */
  HRI_SIGN_ROW,       /* in a row of a table */
  HRI_SIGN_QUOTED,    /* in a literal in its line */
  HRI_SIGN_TICKED,    /* between back quotes */
  HRI_SIGN_CONDITION, /* a condition or advice before it */
  HRI_SIGN_PERSON,    /* somebody who speaks of it */
  HRI_SIGN_BEHIND,    /* words behind it that make it a topic */
  HRI_SIGN_TOPIC,     /* a label of change logs, questions, tips; what such words mean is explained close by */
  HRI_SIGN_PATTERN,
  HRI_SIGN_ENTRY, /* an entry of a list of codes or errors, explained or mapped */
  HRI_SIGN_PROSE, /* a sentence that goes before it */
  HRI_SIGN_TAIL,  /* a sentence that goes on behind it */
  HRI_SIGN_ITEM,  /* between back quotes in an item or comment */
  /* signs that count together (voice.c) */
  HRI_SIGN_KILL_TOLD,  /* words of a kill in a sentence */
  HRI_SIGN_NAME_TOLD,  /* a name in a sentence */
  HRI_SIGN_PLAIN_TOLD, /* an unknown speaker's words in a sentence */
  HRI_SIGN_COUNT
} hri_sign;

#define HRI_SIGN_BIT(sign) (1ull << (sign))

/* What the signs come to: a report where it is above 0. */
int hri_voice_weigh(uint64_t signs);
/* The signs with those that count together, and what one is called: for who fits the weights. */
uint64_t hri_voice_pairs(uint64_t signs);
const char *hri_voice_sign_name(hri_sign sign);

/* What is weighed: the signs of a phrase text[from, to), whether it stands in a sentence, and whether the text around it counts
 * (prose.h). */
typedef struct hri_voice_heard {
  const hri_oom_place *place;
  size_t from, to;
  uint64_t signs;
  bool in_sentence, on_page;
} hri_voice_heard;

/* Who hears a text in place of hri_prose_weigh, and says whether a place is a report.
 * tests/explain/signs.c lists them so. */
typedef struct hri_voice_ear {
  bool (*hears)(void *context, const hri_voice_heard *heard);
  void *context;
} hri_voice_ear;
void hri_explainer_lend_ear(hr_explainer *explainer, const hri_voice_ear *ear);

/* The signs of the line's shape, and of what it says about text[from, to) (report_shape.c, talk.c). */
uint64_t hri_voice_shape(const hri_oom_place *place, size_t from, size_t to, bool is_code);
uint64_t hri_voice_talk(const hri_oom_place *place, const hri_oom_message *message, size_t from, size_t to);

/* Whether the words that end at text[end] say that somebody met what follows: "i got a", "gives the error", "we hit". */
bool hri_voice_meets(const char *text, size_t line, size_t end);
/* Whether what says that nothing failed, or that the program went on without it, stands there: no sign outweighs it. */
bool hri_voice_denies(const hri_oom_place *place);
/* Whether the line before, or before the block that holds it, makes it a case: "if you see messages like:", "you may
 * encounter errors such as:". */
bool hri_voice_foreseen(const hri_oom_place *place);
/* Whether the words behind text[to] say that it happened: "is reported at the second epoch", "came out". */
bool hri_voice_happened(const hri_oom_place *place, size_t to);
/* Whether a placeholder stands where a figure always does. */
bool hri_voice_placeholder(const hri_oom_place *place);

/* Whether its sentence speaks of whoever reads, "you run it, and then", before the place: in Russian. */
bool hri_voice_addresses(const hri_oom_place *place);

#endif
