/* Regexes through PCRE2: compiled once, matched with limits and with all memory from hri_alloc (the code and stack of the
 * JIT compiler excepted, which PCRE2 takes from the system).
 *
 * A match may look far ahead and end early, as \d{1,3}(?=(\d{3})*\b) does in a long number: all matches together then
 * take the square of the text. PCRE2 does not tell what it looked at, so each match sees a window of the text first, and
 * backtracks a bounded number of times. Where it wants more (a partial match, or the limit was met) it is tried again
 * with twice as much, and all windows that are larger or were not enough are counted: what the matches of a text look at
 * is thereby known within a small factor, and beyond a limit it is an error. */
#include <stdio.h>
#include <string.h>

#include "tokenizer/split_internal.h"

enum {
  JIT_STACK_BYTES = 64 << 10,
  JIT_STACK_MAX_BYTES = 8 << 20,
  HEAP_MAX_KIB = 64 << 10, /* backtracking points of the interpreter */
  STEPS_MIN = 20000000,    /* backtracking steps of one match; 16 more for each byte of text */
  STEPS_EACH = 4,          /* ... but at first no more for each byte of the window */
  VAIN_EACH = 64 /* bytes of larger windows for each byte of a text, and VAIN_MIN for each text: some seconds */
};

#define VAIN_MIN ((uint64_t)1 << 31)

uint32_t hri_regex_window = 16384;

struct hri_split_memory {
  pcre2_general_context *general;
  pcre2_match_context *context;
  pcre2_match_data *data;
  pcre2_jit_stack *stack;
  uint32_t most_steps; /* of a match in the text at hand */
  uint64_t window;     /* that the last match of it was found in */
};

static void *allocate(size_t bytes, void *unused) {
  (void)unused;
  return hri_alloc(bytes);
}
static void release(void *memory, void *unused) {
  (void)unused;
  hri_free(memory);
}

pcre2_general_context *hri_regex_memory(void) { return pcre2_general_context_create(allocate, release, NULL); }

hr_status hri_regex_fail(const char *pattern, size_t bytes, size_t at, const char *what, hr_error *error) {
  int shown = bytes > 160 ? 160 : (int)bytes;
  hr_status status = hri_fail(error, HR_ERROR_INPUT, "regex '%.*s'%s: %s at byte %llu", shown, pattern,
                              bytes > 160 ? "..." : "", what, (unsigned long long)at);
  return hri_hint(error, status, "write the pattern so that Oniguruma (Ruby syntax) and PCRE2 both take it");
}

hr_status hri_regex_fail_vain(const hri_split *split, uint32_t at, hr_error *error) {
  (void)hri_fail(error, HR_ERROR_INPUT,
                 "matching a regex of the tokenizer at byte %u of a text of %u: it looks ahead in vain too often", at,
                 split->bytes);
  return hri_hint(error, HR_ERROR_INPUT,
                  "the pattern backtracks too much on this text; cut the text into shorter parts");
}

static hr_status compile(const char *pattern, size_t bytes, const hri_text *translated, hri_splitter *splitter,
                         hr_error *error) {
  pcre2_general_context *general = hri_regex_memory();
  pcre2_compile_context *context = general ? pcre2_compile_context_create(general) : NULL;
  hr_status status = HR_OK;
  int code = 0;
  size_t at = 0;
  if (context) {
    (void)pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    splitter->code = pcre2_compile((PCRE2_SPTR)hri_text_get(translated), translated->length,
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_DUPNAMES | PCRE2_NEVER_BACKSLASH_C,
                                   &code, &at, context);
  }
  if (!context || (!splitter->code && code == PCRE2_ERROR_HEAP_FAILED)) {
    status = hri_fail_memory(error, bytes, "a regex");
  } else if (!splitter->code) {
    char reason[160], what[256];
    (void)pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof reason);
    (void)snprintf(what, sizeof what, "PCRE2 says '%s' about its form of it,", reason);
    status = hri_regex_fail(pattern, bytes, at, what, error);
  } else {
    splitter->jit = pcre2_jit_compile(splitter->code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD) == 0;
  }
  pcre2_compile_context_free(context);
  pcre2_general_context_free(general);
  return status;
}

hr_status hri_regex_compile(const char *pattern, size_t bytes, hri_splitter *splitter, hr_error *error) {
  hri_text translated = {0};
  hr_status status = hri_regex_translate(pattern, bytes, &translated, error);
  if (status == HR_OK) status = compile(pattern, bytes, &translated, splitter, error);
  hri_text_deinit(&translated);
  return status;
}

void hri_regex_destroy(hri_splitter *splitter) {
  pcre2_code_free(splitter->code);
  splitter->code = NULL;
}

void hri_regex_end(hri_split *split) {
  if (!split->memory) return;
  pcre2_match_data_free(split->memory->data);
  pcre2_match_context_free(split->memory->context);
  pcre2_jit_stack_free(split->memory->stack);
  pcre2_general_context_free(split->memory->general);
  hri_free(split->memory);
  split->memory = NULL;
}

/* The pieces of memory, each NULL when it was refused; the JIT stack may be missing (matching then takes the 32 KiB
 * that
 * JIT code brings along, and the interpreter beyond). */
static bool make_memory(hri_split_memory *memory) {
  memory->general = hri_regex_memory();
  if (!memory->general) return false;
  memory->context = pcre2_match_context_create(memory->general);
  memory->data = pcre2_match_data_create(1, memory->general);
  if (!memory->context || !memory->data) return false;
  memory->stack = pcre2_jit_stack_create(JIT_STACK_BYTES, JIT_STACK_MAX_BYTES, memory->general);
  if (memory->stack) pcre2_jit_stack_assign(memory->context, NULL, memory->stack);
  (void)pcre2_set_heap_limit(memory->context, HEAP_MAX_KIB);
  return true;
}

hr_status hri_regex_prepare(hri_split *split, hr_error *error) {
  const uint64_t steps = STEPS_MIN + (uint64_t)split->bytes * 16;
  if (!split->memory) {
    split->memory = hri_alloc_zero(1, sizeof *split->memory);
    if (!split->memory || !make_memory(split->memory)) {
      hri_regex_end(split);
      return hri_fail_memory(error, sizeof *split->memory, "matching a regex");
    }
  }
  split->memory->window = 0;
  split->memory->most_steps = steps > UINT32_MAX ? UINT32_MAX : (uint32_t)steps;
  return HR_OK;
}

/* The compiled code is called at once: pcre2_match looks at options and at the text before each match. */
static int match_once(const hri_split *split, uint32_t start, uint32_t end, uint32_t steps) {
  const hri_split_memory *memory = split->memory;
  const pcre2_code *code = split->splitter->code;
  const uint32_t partial = end < split->bytes ? PCRE2_PARTIAL_HARD : 0;
  PCRE2_SPTR text = (PCRE2_SPTR)split->text;
  int result = PCRE2_ERROR_JIT_STACKLIMIT;
  (void)pcre2_set_match_limit(memory->context, steps);
  (void)pcre2_set_depth_limit(memory->context, steps);
  if (split->splitter->jit) result = pcre2_jit_match(code, text, end, start, partial, memory->data, memory->context);
  if (result == PCRE2_ERROR_JIT_STACKLIMIT)
    result =
        pcre2_match(code, text, end, start, partial | PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, memory->data, memory->context);
  return result;
}

/* The end of a window of `bytes` from `start` on, behind a whole character. */
static uint32_t window_end(const hri_split *split, uint32_t start, uint64_t bytes) {
  uint64_t end = start + bytes;
  if (end >= split->bytes) return split->bytes;
  while (end < split->bytes && ((uint8_t)split->text[end] & 0xC0) == 0x80) end++;
  return (uint32_t)end;
}

/* Whether the result of a match within `end` bytes may be another where more of the text can be seen. */
static bool wants_more(const hri_split *split, int code, uint32_t end, uint32_t steps) {
  const size_t *vector = pcre2_get_ovector_pointer(split->memory->data);
  if (code == PCRE2_ERROR_MATCHLIMIT || code == PCRE2_ERROR_DEPTHLIMIT) return steps < split->memory->most_steps;
  return end < split->bytes && (code == PCRE2_ERROR_PARTIAL || (code >= 0 && vector[1] == end));
}

/* The search from *start on, in windows that grow; *start moves over what begins no match. The first window is half of
 * the one before it, so that of a long run each match is not tried a dozen times. PCRE2_ERROR_PARTIAL: too much was
 * looked at. */
static int match_in_windows(hri_split *split, uint32_t *start) {
  const uint64_t limit = VAIN_MIN + (uint64_t)split->bytes * VAIN_EACH;
  uint64_t bytes = split->memory->window / 2 > hri_regex_window ? split->memory->window / 2 : hri_regex_window;
  while (split->vain <= limit) {
    const uint32_t end = window_end(split, *start, bytes), most = split->memory->most_steps;
    const uint32_t steps = bytes * STEPS_EACH < most ? (uint32_t)(bytes * STEPS_EACH) : most;
    const int code = match_once(split, *start, end, steps);
    const bool more = wants_more(split, code, end, steps);
    split->memory->window = bytes;
    if (more || bytes > hri_regex_window) split->vain += bytes;
    if (more) bytes *= 2;
    else if (code != PCRE2_ERROR_NOMATCH || end == split->bytes) return code;
    else *start = end;
  }
  return PCRE2_ERROR_PARTIAL;
}

hr_status hri_regex_match(hri_split *split, uint32_t start, hri_split_piece *match, bool *found, hr_error *error) {
  const size_t *vector = pcre2_get_ovector_pointer(split->memory->data);
  uint32_t from = start;
  const int code = match_in_windows(split, &from);
  *found = code >= 0;
  if (code == PCRE2_ERROR_NOMEMORY) return hri_fail_memory(error, 0, "matching a regex");
  if (code == PCRE2_ERROR_PARTIAL) return hri_regex_fail_vain(split, from, error);
  if (code < 0 && code != PCRE2_ERROR_NOMATCH) {
    char reason[160];
    (void)pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof reason);
    (void)hri_fail(error, HR_ERROR_INPUT, "matching a regex of the tokenizer at byte %u of a text of %u: %s", from,
                   split->bytes, reason);
    return hri_hint(error, HR_ERROR_INPUT,
                    "the pattern backtracks too much on this text; cut the text into shorter parts");
  }
  if (!*found) return HR_OK;
  /* \K may move the begin, never to outside of what is searched */
  match->end = vector[1] < start ? start : (uint32_t)vector[1];
  match->begin = vector[0] < start ? start : vector[0] > match->end ? match->end : (uint32_t)vector[0];
  return HR_OK;
}
