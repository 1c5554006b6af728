/* What the parts of the explainer pass to each other. scan.c finds messages in a stream, by heads (heads.c): its parts,
 * scan_*.c, bring lines (line.c) to one form, tell where a message stands and which are one failure; parse.c reads one
 * whose words are known (wording.c: whose it is; quantities.c: its figures), report.c one by its structure; report_*.c
 * and talk.c gather the signs that it is reported or only spoken of, voice.c weighs them; progress.c tells how far the
 * run had come; judge.c and cause.c judge it, advice.c adds what helps; snapshot.c and run.c judge what is no text. All
 * text here is lower case with single blanks (see scan_window.c). */
#ifndef HRI_EXPLAIN_MESSAGE_H
#define HRI_EXPLAIN_MESSAGE_H

#include <headroom/explain.h>

#include <string.h>

#include "base/text.h"

/* What kind of message it is, by its wording alone. */
typedef enum hri_oom_kind {
  HRI_OOM_NOTHING = 0,
  HRI_OOM_CACHING,     /* PyTorch's caching allocator, with or without figures */
  HRI_OOM_ASYNC,       /* PyTorch on cudaMallocAsync */
  HRI_OOM_REJECTED,    /* PyTorch's own refusal by throw_on_cudamalloc_oom, before the driver is asked */
  HRI_OOM_MPS,         /* PyTorch on Metal */
  HRI_OOM_BARE,        /* "CUDA error: out of memory", THC, Caffe2 on a GPU: no figures */
  HRI_OOM_DRIVER,      /* the driver API, past the allocator: modules, mappings */
  HRI_OOM_PINNED,      /* page-locked host memory */
  HRI_OOM_HOST,        /* certainly host memory */
  HRI_OOM_HOST_LIKELY, /* killed, or a C++ allocation failed */
  HRI_OOM_LIBRARY,     /* a library's own allocation */
  HRI_OOM_VLLM_CAP,    /* refused by a stated limit */
  HRI_OOM_VLLM_BUSY,   /* refused because too little was free at the start */
  HRI_OOM_HEAP,        /* a runtime's limit of its own heap: Node, Java, PHP */
  HRI_OOM_LIMIT,       /* a program's own limit of what it may take: a database's, a server's */
  HRI_OOM_CHIP,
  HRI_OOM_ENDED, /* a list of what may have ended a process, memory among it */
  HRI_OOM_FOREIGN,
  HRI_OOM_FOREIGN_LIKELY, /* an interface that others use: Vulkan, Metal, OpenCL */
  HRI_OOM_REPORT          /* a failed allocation, reported by a speaker that is not known (report.c) */
} hri_oom_kind;

enum { HRI_OOM_MAX_PROCESSES = 64, HRI_OOM_TEXT_BYTES = 4096 };

/* A message while it is worked on; `failure` is what the caller will see. */
typedef struct hri_oom_message {
  hri_oom_kind kind;
  uint64_t processes[HRI_OOM_MAX_PROCESSES], process_slack[HRI_OOM_MAX_PROCESSES]; /* "process N has X" */
  uint32_t process_count;
  hr_oom_value aside; /* MPS: what the process holds of the device past the allocator */
  bool expandable;    /* the text says that expandable segments are on */
  bool abridged;      /* an ellipsis stands between its figures: what was there is not known */
  bool pools_cut;     /* the place that says how much of what is allocated is in private pools is cut from the text */
  bool exact;         /* the allocator's log line, whose figures are whole bytes; what follows may still be served */
  bool cut;           /* known by words of its middle */
  bool general;       /* known by its structure alone (report.c) */
  bool anybodys;  /* no line of a speaker that is known: its words name one, or a memory, and anybody may write so */
  bool named;     /* the words beside it name or explain it */
  bool has_run;   /* steps were counted before it */
  bool counted;   /* what was needed and what there was are printed as numbers of tokens, the first is larger */
  bool capturing; /* a CUDA graph was captured or a user's MemPool was active: cached blocks are not returned then */
  hr_oom_failure failure;
} hri_oom_message;

/* The next place at or behind `from` where a message may start; `count` when there is none. Linear in what it skips. */
size_t hri_oom_find(const char *text, size_t from, size_t count);

/* Whether what hri_oom_find found is a word of which report.c tells whether it belongs to a report. */
bool hri_oom_is_general(const char *text, size_t at, size_t count);

/* Reads the message at text[at], whose line is text[line, line_end); NOTHING when the words there mean something else. `end` is how far it was read: the
 * search goes on there (always behind `at`). The text before `at` is only looked at, up to 160 bytes. */
hri_oom_kind hri_oom_parse(const char *text, size_t line, size_t line_end, size_t at, size_t count,
                           hri_oom_message *message, size_t *end);

/* Whether a progress bar that is closed behind the last figure of the message at `text` says that steps were done.
 * Before hri_oom_context. */
void hri_oom_closed_bar(const char *text, size_t count, hri_oom_message *message);

/* Framework, phase and capturing from the log lines before a message. */
void hri_oom_context(const char *text, size_t count, hri_oom_message *message);

/* What a judge writes: a line of arithmetic (dropped when there are HR_OOM_MAX_LINES), the cause with its verdict,
 * causes that remain, and a share of the device (none for 0 bytes). */
void hri_oom_line(hr_oom_failure *f, const char *format, ...) HRI_PRINTF(2, 3);
void hri_oom_say(hr_oom_failure *f, hr_oom_cause cause, hr_oom_certainty certainty, const char *format, ...)
    HRI_PRINTF(4, 5);
/* What a file brought along, for a terminal: control characters become '?', and a character that was cut at the end
 * goes. */
void hri_oom_tidy(char *text);
void hri_oom_undecided(hr_oom_failure *f, uint32_t candidates, const char *verdict);
void hri_oom_share(hr_oom_failure *f, const char *name, uint64_t bytes);
static inline uint64_t hri_oom_less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; } /* a - b, or 0 */
#define HRI_OOM_SIZE(bytes) hri_size_text((bytes), (char[32]){0})
#define HRI_OOM_COULD(name) (1u << HR_OOM_##name)

/* Fills cause, certainty, candidates, verdict, arithmetic and shares. Pure. */
void hri_oom_judge(hri_oom_message *message);
/* Whether the request cannot be meant: a size that wrapped around, or more than a thousand devices. */
bool hri_oom_is_wrong_size(const hr_oom_failure *failure);
/* Fills advice for a judged failure; where expandable segments are known to be on, none to set them. */
void hri_oom_advise(hr_oom_failure *failure, bool expandable);

/* Whether a message, which ends before the head of another one, broke off amid its figures: after its request it had
 * begun to speak of the device. One that only names its request was quoted. */
bool hri_oom_is_broken_off(const char *text, size_t count);

/* Takes from `message` the figures that `torn` lacks: two processes wrote into one line, and the rest of the one that
 * was interrupted stands somewhere behind the head of the other, so those may be of either. */
void hri_oom_untangle(const hr_oom_failure *torn, hri_oom_message *message);

/* True when the figures of two failures are the same. */
bool hri_oom_same_figures(const hr_oom_failure *a, const hr_oom_failure *b);
static inline bool hri_oom_known(const hr_oom_value *v) {
  return v->state == HR_OOM_READ || v->state == HR_OOM_DERIVED;
}

/* Whether a source tells of a process that was ended, a compiler's too, for whatever reason. */
static inline bool hri_oom_is_kill(const char *source) {
  return strcmp(source, "kill") == 0 || strcmp(source, "build") == 0;
}

/* First place of a word in text[from, count), or `count`. */
size_t hri_oom_word(const char *text, size_t from, size_t count, const char *word);

/* Whether this advice is to record a snapshot. */
bool hri_oom_asks_for_snapshot(const hr_oom_advice *advice);

#endif
