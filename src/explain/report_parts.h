/* What the parts of report.c pass to each other; report.h is what the rest of the explainer calls. Text and places are as
 * there. Each part opens with what it is for. */
#ifndef HRI_EXPLAIN_REPORT_PARTS_H
#define HRI_EXPLAIN_REPORT_PARTS_H

#include "explain/report.h"
#include "explain/voice.h"

/* What failed: text[from, to). */
typedef struct hri_oom_phrase {
  size_t from, to;
  bool is_code;  /* the name of an error */
  bool is_loose; /* words that any sentence may hold: "oom" wherever it stands, "the ram was full" */
} hri_oom_phrase;

/* The sentence around a phrase: text[from, end). It may begin in the line before, if that one was wrapped, and ends with the
 * phrase's line at the latest. */
typedef struct hri_oom_sentence {
  size_t from, end;
} hri_oom_sentence;

/* ---- report_phrase.c ---- */

hri_oom_sentence hri_oom_sentence_of(const hri_oom_place *place, size_t from, size_t to);

/* The phrase to which the word at the place belongs. False when there is none, or it tells of an error of another kind. */
bool hri_oom_find_phrase(const hri_oom_place *place, hri_oom_phrase *phrase);
/* Where the words of a known head stand, with what belongs to them. */
hri_oom_phrase hri_oom_head_phrase(const hri_oom_place *place);
/* Back over the modifiers that stand right before text[from]: whose or which memory it is, "gpu", "the requested". */
size_t hri_oom_with_modifiers(const char *text, size_t line, size_t from);
/* A name whose end says that memory was lacking: "cl_mem_object_allocation_failure", "outofmemoryexception". */
bool hri_oom_is_error_name(const char *text, size_t from, size_t to);

/* ---- report_shape.c, whose hri_voice_shape is in voice.h ---- */

/* A place in a source: "alloc.cu:123", "pool.cpp(45)", "line 12", "device_gpu.c line 3". */
bool hri_oom_has_place(const char *text, size_t from, size_t to);
/* A number of four digits, an address, a size with a fraction: so that it happened once. */
bool hri_oom_is_concrete(const char *text, size_t from, size_t to);

/* ---- talk.c, whose other calls are in voice.h ---- */

/* Whether the line, behind what marks a comment, is how an exception is printed. */
bool hri_voice_opens(const hri_oom_place *place);

/* ---- report_name.c ---- */

/* Whether text[from, to) is a name, or a part of one, that reports nothing: of a path, a property, a field that a program
 * fills in. */
bool hri_voice_is_name(const hri_oom_place *place, size_t from, size_t to);

/* ---- report_topic.c ---- */

/* What the words around the phrase text[from, to) say of it: a topic, a condition, somebody's opinion. */
uint64_t hri_voice_topic(const hri_oom_place *place, size_t from, size_t to);
/* Whether it is a case beside others, or the title of advice; counts where no event is told of. */
bool hri_voice_is_case(const hri_oom_place *place, size_t from, size_t to);
/* What a change does, in the imperative, as its title or a line of its description begins: "[core] handle x", "explain
 * x". */
bool hri_voice_is_change(const hri_oom_place *place);

/* ---- report_page.c ---- */

/* Whether a page explains it to whoever comes to it: a symptom of a list, a question that is asked often, one of several causes. */
bool hri_page_explains(const hri_oom_place *place);
/* Whether a label of symptoms stands right before `before[end]`, and causes or solutions follow the line. */
bool hri_page_shows_symptom(const hri_oom_place *place, size_t end);
/* Whether the lines around explain what such words mean: "137 means ...", "128 + 9". */
bool hri_voice_is_meant(const hri_oom_place *place);

/* ---- report_told.c, whose hri_voice_happened is in voice.h ---- */

/* Whether the words around the phrase text[from, to), whose signs of hri_voice_topic are given, tell of one event. */
bool hri_voice_tells(const hri_oom_place *place, size_t from, size_t to, uint64_t topic);
/* A verb, in the same clause, that tells of one end. */
bool hri_voice_tells_of_end(const hri_oom_place *place, size_t from, size_t to);
/* "My training gets killed": the words tell of it by themselves (kill.c). */
bool hri_voice_tells_of_kill(const hri_oom_place *place);
/* "Training process will killed by OS": of what was killed, as they say it who learn the language. */
bool hri_voice_lacks_be(const hri_oom_place *place, size_t from, size_t to);
/* "Ran out of memory, retrying with batch size 4", "skipping batch 17 because of x": a program says what it does about it. */
bool hri_voice_goes_on(const hri_oom_place *place, size_t from, size_t to);
/* A thread's title that begins with the error and goes on with how it came: "memoryerror when preprocessing the data",
 * "`xpu out of memory` error with two cards". */
bool hri_voice_titles_event(const hri_oom_place *place, size_t from, size_t to);

/* ---- report_abroad.c ---- */

/* Whether somebody tells, in another language than English, of one event: "bekomme ich", "me sale". */
bool hri_voice_tells_abroad(const hri_oom_place *place, size_t from);
/* Whether the phrase text[from, to) is what somebody asks, of another trouble: "is that because memory overflowed?". In Chinese and
 * Russian; what is asked in other languages the weights know. */
bool hri_voice_asks_whether(const hri_oom_place *place, size_t from, size_t to);

/* ---- report_reading.c ---- */

/* Kind, source and figures of a report of no known speaker; returns where what belongs to it ends. */
size_t hri_oom_read_unknown(const hri_oom_place *place, const hri_oom_phrase *phrase, hri_oom_message *message);
/* What the words beside a message whose own words are known add: its speaker where many programs print them, and
 * figures. */
void hri_oom_read_known(const hri_oom_place *place, hri_oom_message *message);
/* Whose memory it was, of a failure that is told in a sentence, where the phrase says nothing of it: the killer's whose name
 * stands in it, the machine's where nothing close by speaks of a device. After it was heard. */
void hri_oom_name_resource(const hri_oom_place *place, const hri_oom_phrase *phrase, hri_oom_message *message);
/* How many figures a message prints; a process counts as one. */
uint32_t hri_oom_figure_count(const hri_oom_message *message);

#endif
