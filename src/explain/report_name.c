/* Names that hold the words of an error and report none: of a path, a module, a property, a type, a function, a key, and the
 * field of a structure that gets its value from another name. What touches the words decides; a class of exceptions stands
 * behind its package, and a field may print a value: those report. */
#include "explain/match.h"
#include "explain/report_parts.h"

/* The run of text without blanks around text[from, to). */
static size_t token_start(const hri_oom_place *p, size_t from) {
  while (from > p->line && p->text[from - 1] != ' ') from--;
  return from;
}
static size_t token_end(const hri_oom_place *p, size_t to) {
  while (to < p->line_end && p->text[to] != ' ') to++;
  return to;
}

static bool is_exception(const hri_oom_place *p, size_t from, size_t to) {
  return hri_match_end(p->text, from, to, "error|exception|error'|errors");
}

/* "https://.../oom-killer-...", "a/b/oom_killer.png", "oom.py", "oom-rank0.pickle" as the lines of hr_oom_snippet write it. */
static bool is_path(const hri_oom_place *p, size_t from, size_t to) {
  static const char files[] =
      ".py|.png|.go|.rs|.sh|.md|.h|.c|.cc|.cpp|.js|.ts|.yml|.yaml|.json|.txt|.html|.java|.pickle|.pkl|.log|.csv";
  const size_t start = token_start(p, from), end = token_end(p, to);
  size_t slashes = 0, tail = to;
  if (hri_oom_word(p->text, start, from, "://") < from) return true;
  for (size_t i = start; i < end; i++) slashes += p->text[i] == '/';
  while (tail < end && (hri_is_name(p->text[tail]) || p->text[tail] == '-')) tail++;
  tail = hri_match_next(p->text, tail, end, files);
  if (tail == end || !hri_is_name(p->text[tail])) {
    if (tail > to && p->text[to] != ' ' && hri_match_last(p->text, to, tail, files + 1) < tail) return true;
  }
  return slashes >= 2 && from > start && strchr("/_-.", p->text[from - 1]);
}

/* Whether the value of a field that is named text[..., to) is one that a program printed: "oomkilled\": true". */
static bool is_printed_value(const hri_oom_place *p, size_t at) {
  while (at < p->line_end && strchr(" \"':=", p->text[at])) at++;
  return at < p->line_end && (hri_match_at(p->text, at, p->line_end, "true|yes") || hri_is_digit(p->text[at]));
}

/* A name whose parts are joined by what no sentence has: "memory.oom.group", "x.oomkilled", "opstatus::out_of_memory,". */
static bool is_member(const hri_oom_place *p, size_t from, size_t to) {
  const char before = from > p->line ? p->text[from - 1] : ' ', behind = to < p->line_end ? p->text[to] : ' ';
  const bool owned = before == '.' && from > p->line + 1 && hri_is_name(p->text[from - 2]);
  const bool owns = behind == '.' && to + 1 < p->line_end && hri_is_name(p->text[to + 1]);
  if (hri_match_end(p->text, p->line, from, "::") && strchr(",>", behind) &&
      !hri_match_any(p->text, p->line, from, "exception|type"))
    return true;
  return owned && (owns || !is_printed_value(p, to));
}

/* What a field gets from a program: "oomkilled: state.oomkilled,", "oomkilled = &x", "oomkilled bool". */
static bool is_filled_in(const hri_oom_place *p, size_t to) {
  size_t at = to, end;
  if (hri_match_at(p->text, to, p->line_end, " bool| string `|() bool|()")) return true;
  while (at < p->line_end && p->text[at] == ' ') at++;
  if (at >= p->line_end || !strchr(":=", p->text[at])) return false;
  for (at++; at < p->line_end && strchr(" =&*", p->text[at]) && p->text[at];) at++;
  if (at >= p->line_end || p->text[at - 1] == '&') return true; /* a key of a form, or an address */
  for (end = at; end < p->line_end && hri_is_name(p->text[end]);) end++;
  return end > at && end + 1 < p->line_end && strchr(".[(", p->text[end]) &&
         (hri_is_name(p->text[end + 1]) || p->text[end] != '.');
}

/* A part of the name of one of Java's options, "heapdumponoutofmemoryerror". */
static bool is_option(const hri_oom_place *p) {
  size_t start = p->at;
  while (start > p->line && hri_is_letter(p->text[start - 1])) start--;
  const size_t at = hri_oom_word(p->text, start, p->line_end, "onoutofmemory");
  return at > start && at <= p->at;
}

bool hri_voice_is_name(const hri_oom_place *p, size_t from, size_t to) {
  static const char heads[] = "oomkilled|oom-kill|oom_kill|oom killed|oom-killed";
  const bool killed = hri_match_at(p->text, p->at, p->line_end, heads);
  const bool word = !memchr(p->text + from, ' ', to - from);
  if (is_option(p)) return true;
  if (from > p->line + 1 && memchr(p->text + from, '-', to - from) && p->text[from - 1] == '-' &&
      hri_is_name(p->text[from - 2]) && to + 1 < p->line_end && p->text[to] == '-' && hri_is_name(p->text[to + 1]))
    return true; /* "fix-cuda-out-of-memory-in-loader", a branch */
  if (!word || is_exception(p, from, to)) return false;
  if (hri_match_at(p->text, p->at, p->line_end, "bad_alloc")) {
    const size_t end = p->at + strlen("bad_alloc");
    if (end < p->line_end && hri_is_name(p->text[end])) return true;
    const size_t start =
        from >= p->line + 5 && hri_match_end(p->text, p->line, from, "::") ? token_start(p, from) : from;
    return to < p->line_end && p->text[to] == '>' && memchr(p->text + start, '<', from - start) &&
           !hri_match_any(p->text, p->line, from, "exception|type|what");
  }
  if (killed && p->at > p->line && hri_is_name(p->text[p->at - 1])) return true; /* "pod_oom_killer", "podoomkilled" */
  if (killed && to + 1 < p->line_end && p->text[to] == '-' && hri_is_letter(p->text[to + 1])) return true;
  if (hri_match_at(p->text, p->at, p->line_end, "oomkilled")) {
    const size_t end = p->at + strlen("oomkilled");
    if (end < p->line_end && hri_is_name(p->text[end])) return true; /* "oomkilledtrigger" */
    if (is_member(p, from, end) || is_filled_in(p, end)) return true;
    return false;
  }
  if (is_path(p, from, to)) return true;
  if (hri_match_end(p->text, p->line, from, "]") && hri_match_at(p->text, from, to, "oomed")) return true;
  return !hri_match_end(p->text, p->line, from, "java.lang.") && is_member(p, from, to) && !(p->shape & HRI_OOM_LEVEL);
}
