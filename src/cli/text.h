/* Words for people: sizes, times, errors, colour, near misses. The library is quiet; only these files talk. */
#ifndef CLI_TEXT_H
#define CLI_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "base/text.h"

#define CLI_PRINTF(at, first) __attribute__((format(printf, at, first)))

/* ---- numbers as text: each writes into `out` and returns it ---- */
enum { TEXT_BYTES = 32 };
char *text_size(uint64_t bytes, char out[TEXT_BYTES]);    /* "1.50 GiB", "512 B" */
char *text_count(double count, char out[TEXT_BYTES]);     /* "124.4 M" */
char *text_seconds(double seconds, char out[TEXT_BYTES]); /* "3.10 ms", "12.4 s", "1:02:03" */
char *text_clock(double seconds, char out[TEXT_BYTES]);   /* "2:07", "1:02:03" */
char *text_number(double number, char out[TEXT_BYTES]);   /* the shortest decimal text that reads back as `number` */
/* Of a model: "6.74 B", "124.4 M"; "8192" where tenths of a million would say too little. */
char *text_parameters(uint64_t count, char out[TEXT_BYTES]);
#define PARAMETERS_TEXT(count) text_parameters((count), (char[TEXT_BYTES]){0})
#define SIZE_TEXT(bytes) text_size((bytes), (char[TEXT_BYTES]){0})
/* As the lines of inspections and explanations have it, beside which it stands: always two decimals. */
#define FIGURE_TEXT(bytes) hri_size_text((bytes), (char[32]){0})
#define COUNT_TEXT(count) text_count((double)(count), (char[TEXT_BYTES]){0})
#define SECONDS_TEXT(seconds) text_seconds((seconds), (char[TEXT_BYTES]){0})
/* How much longer than `base`, in whole percent for %+.0f: as good as equal is 0, never -0. Without a base 0. */
double percent_more(double seconds, double base);
#define CLOCK_TEXT(seconds) text_clock((seconds), (char[TEXT_BYTES]){0})

/* ---- text as numbers ---- */

/* Whole numbers in [low, high]. The whole text must be used. */
bool text_parse_count(const char *text, uint64_t low, uint64_t high, uint64_t *count);
/* "\n", "\t", "\r", "\\" and "\xHH" become the bytes they name; `out` needs strlen(text) + 1 bytes. False on another
 * escape. */
bool text_unescape(const char *text, char *out);

/* ---- memory: the program (not the library) may give up; exit code 4 says so ---- */
_Noreturn void text_refused(size_t bytes);
void *text_alloc(size_t bytes);
void *text_grow(void *memory, size_t bytes);
char *text_copy(const char *text, size_t bytes);
/* A copy in which nothing steers a terminal: control characters but for line feeds and tabs are '?'. */
char *text_plain(const char *text);

/* ---- files ---- */

/* Opens what a person named, to read it once from its start: a regular file, or a stream whose other end is the
 * caller's own: "-" (standard input), and pipes of the shell, as in <(command). FIFOs, devices and sockets are refused
 * and never waited for; of standard input devices that are no terminal. `what` is "the recipe", "the prompt". */
FILE *text_open(const char *path, const char *what, hr_error *error);
void text_close(FILE *file); /* standard input stays open; NULL is fine */
bool text_is_stream(FILE *file);

/* ---- errors ---- */
/* "headroom: MESSAGE" and, when there is a hint, "  try: HINT" on standard error. */
void text_print_error(const hr_error *error);

/* ---- the screen ---- */
typedef enum style { STYLE_PLAIN = 0, STYLE_BOLD, STYLE_GOOD, STYLE_BAD, STYLE_WARN, STYLE_DIM } style;
typedef enum color_mode { COLOR_AUTO = 0, COLOR_ALWAYS, COLOR_NEVER } color_mode;

/* Decides about colour per stream: `always` and `never` rule; else a terminal, TERM not "dumb", NO_COLOR empty or
 * unset. */
void screen_init(color_mode mode);
/* The escape sequence that starts a style on a stream, "" without colour. STYLE_PLAIN ends it. */
const char *screen_style(const FILE *stream, style wanted);
/* True when lines on this stream may be repainted. */
bool screen_live(const FILE *stream);
/* Columns of the terminal behind a stream, 80 when unknown. */
unsigned screen_width(FILE *stream);
/* Columns that text may fill: those of the terminal, from 60 to 160; 80 where there is none, so that what a file or a
 * pipe gets never depends on a window. */
enum { SCREEN_LEAST = 60, SCREEN_USUAL = 80, SCREEN_MOST = 160 };
unsigned screen_columns(FILE *stream);
/* Prints lines as they are; on a terminal, those that are longer than it is wide are wrapped between words, further lines
 * indented by two. Text without styles. */
void screen_fold(FILE *stream, const char *text);
/* Bytes that come from anywhere: pipes and files get them as they are, and on a terminal nothing in them steers it. */
void screen_put(FILE *stream, const char *bytes, size_t count);
/* Bytes as they are, and what is held of a stream: why standard output took them not is kept, for at the end nobody would know. */
void screen_write(FILE *stream, const char *bytes, size_t count);
void screen_flush(FILE *stream);
int screen_failure(void); /* of standard output, the first, as errno; 0: none is known */
/* The same of a name in a line of text, wherever that goes. */
void screen_name(FILE *stream, const char *name);
/* A line of a mark ("note:") and words, wrapped on a terminal alone. */
void screen_say(FILE *stream, style mark, const char *left, const char *text);
/* What follows `used` columns of a row of figures that are there: beside them, on a narrow terminal below them. */
void screen_beside(FILE *stream, unsigned used, const char *text);
/* Prints words, wrapped to these columns, each line behind `indent` spaces. */
void screen_wrap(FILE *stream, unsigned indent, const char *text);
/* Behind `used` columns that are there; lines behind the first behind `further` spaces. */
void screen_wrap_on(FILE *stream, unsigned used, unsigned further, const char *text);
/* Prints `left` and beside it, from `column` on, words wrapped likewise; below it when `left` is too long. */
void screen_hang(FILE *stream, unsigned column, const char *left, const char *text);

#endif
