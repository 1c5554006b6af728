/* Regexes through PCRE2: compiled once, matched with limits and with all memory from hri_alloc (the code and stack of
 * the
 * JIT compiler excepted, which PCRE2 takes from the system). */
#include <stdio.h>
#include <string.h>

#include "tokenizer/split_internal.h"

enum {
  JIT_STACK_BYTES = 64 << 10,
  JIT_STACK_MAX_BYTES = 8 << 20,
  HEAP_MAX_KIB = 64 << 10, /* backtracking points of the interpreter */
  STEPS_MIN = 20000000     /* backtracking steps of one match; 16 more for each byte of text */
};

struct hri_split_memory {
  pcre2_general_context *general;
  pcre2_match_context *context;
  pcre2_match_data *data;
  pcre2_jit_stack *stack;
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
    splitter->jit = pcre2_jit_compile(splitter->code, PCRE2_JIT_COMPLETE) == 0;
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
  uint64_t steps = STEPS_MIN + (uint64_t)split->bytes * 16;
  uint32_t limit = steps > UINT32_MAX ? UINT32_MAX : (uint32_t)steps;
  if (!split->memory) {
    split->memory = hri_alloc_zero(1, sizeof *split->memory);
    if (!split->memory || !make_memory(split->memory)) {
      hri_regex_end(split);
      return hri_fail_memory(error, sizeof *split->memory, "matching a regex");
    }
  }
  (void)pcre2_set_match_limit(split->memory->context, limit);
  (void)pcre2_set_depth_limit(split->memory->context, limit);
  return HR_OK;
}

hr_status hri_regex_match(hri_split *split, uint32_t start, hri_split_piece *match, bool *found, hr_error *error) {
  const hri_split_memory *memory = split->memory;
  PCRE2_SPTR text = (PCRE2_SPTR)split->text;
  const size_t *vector = pcre2_get_ovector_pointer(memory->data);
  /* The compiled code is called at once: pcre2_match looks at options and at the text before each match. */
  int code = split->splitter->jit
                 ? pcre2_jit_match(split->splitter->code, text, split->bytes, start, 0, memory->data, memory->context)
                 : pcre2_match(split->splitter->code, text, split->bytes, start, PCRE2_NO_UTF_CHECK, memory->data,
                               memory->context);
  if (code == PCRE2_ERROR_JIT_STACKLIMIT)
    code = pcre2_match(split->splitter->code, text, split->bytes, start, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                       memory->data, memory->context);
  *found = code >= 0;
  if (code == PCRE2_ERROR_NOMEMORY) return hri_fail_memory(error, 0, "matching a regex");
  if (code < 0 && code != PCRE2_ERROR_NOMATCH) {
    char reason[160];
    (void)pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof reason);
    (void)hri_fail(error, HR_ERROR_INPUT, "matching a regex of the tokenizer at byte %u of a text of %u: %s", start,
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
