/* The shape of the line that holds a phrase: what a program prints around an error - its class or level, a place in a
 * source, a code, frames below, fields that are filled in, numbers that happen once - and whether there
 * is anything else. These are signs of form; what the words say is read beside it (report_topic.c, report_told.c), and
 * hri_voice_shape puts the three together, since several signs of form count only where no event is told of.
 *
 * The neighbours may rely on this: no sign is dropped or weighed here. report.c drops those that say nothing where they
 * stand, voice.c weighs the rest. */
#include "explain/match.h"
#include "explain/report_parts.h"

/* Whether text[from, to) has a word that names an error and stands before a colon or bracket: "runtimeerror:",
 * "[error]", "what():", "error code 12". */
static bool names_error(const char *text, size_t from, size_t to) {
  static const char words[] =
      "error|exception|exceptions|err_msg|fatal|panic|panicked|failure|failed|fault|abort|aborted|critical|severe|what()|"
      "terminated|unexpected|crash|crashed|died|status|caused by|reason|check failed|assertion|killed|warn|warning|raised|"
      "detail";
  for (size_t end = from; end <= to; end++) {
    size_t at = end;
    if (end < to && !strchr(":]()!|=>-[", text[end]) && !hri_is_digit(text[end])) continue;
    while (at > from && strchr(" '\"", text[at - 1])) at--;
    if (end < to && hri_is_digit(text[end]) && at == end) continue; /* amid a name */
    if (hri_match_end(text, from, at, words) || hri_match_last(text, from, at, "err|wrn") < at) return true;
  }
  return hri_match_part(text, from, to, "[e]|[w]|[f]");
}

bool hri_oom_has_place(const char *text, size_t from, size_t to) {
  static const char names[] =
      ".c|.cc|.cpp|.cxx|.cu|.cuh|.h|.hpp|.py|.rs|.go|.jl|.java|.inl|.mm|.m|.cs|.lua|.js|.ts|.f90";
  for (size_t at = from; at + 1 < to; at++) {
    size_t end = at;
    if (text[at] == '.') end = hri_match_next(text, at, to - 1, names);
    else if (hri_is_digit(text[at + 1]) && hri_match_end(text, from, at + 1, "line ")) return true;
    if (end > at && strchr(":(@,[", text[end]) && (hri_is_digit(text[end + 1]) || strchr(": ", text[end + 1])))
      return true;
  }
  return false;
}

/* A code behind the phrase: "(error 2)", "errno 12", "0x887a0005", "(12)", "status = 2". */
static bool has_code(const char *text, size_t from, size_t to) {
  static const char words[] =
      "error code|errno|error 2|error 12|(error|code:|code=|status:|status=|status =|(2)|(12)|(-2)|(0x|error: 2|code 2|"
      "[os error|os error|result:|hr =|hresult|core dumped|return code|cudaerror|cuda error|cuda_error";
  if (hri_match_at(text, from, to, " (")) { /* "(00000008:kIO...OutOfMemory)": the name of an error */
    const char *close = memchr(text + from, ')', to - from);
    if (close && !memchr(text + from + 2, ' ', (size_t)(close - text) - from - 2) &&
        hri_oom_is_error_name(text, from + 2, (size_t)(close - text)))
      return true;
  }
  if (to > from && to - from > 120) to = from + 120; /* a phrase may end on the line behind: nothing is left then */
  return hri_match_part(text, from, to, words);
}

/* Whether only labels stand before the phrase: "foo:", "[gpu 0]", "module.function:", "src/x.cu:12", numbers. */
static bool is_label_only(const char *text, size_t from, size_t to) {
  enum { LABEL = 5 };
  unsigned words = 0;
  for (size_t at = from; at < to;) {
    size_t end = at;
    int depth = 0;
    bool name = false, label = false;
    while (end < to && (text[end] != ' ' || depth > 0) && end - at < 80) {
      if (strchr("([{<", text[end])) depth++;
      if (strchr(")]}>", text[end])) depth--;
      if (text[end] == ':' || text[end] == '(' || text[end] == '[' || text[end] == '/' || text[end] == '_')
        label = true;
      if (hri_is_letter(text[end])) name = true;
      end++;
    }
    if (end == at) {
      at++;
      continue;
    }
    if (text[end - 1] == ':' && (words <= LABEL || !hri_match_end(text, at, end, "error:|exception:")))
      words = 0; /* what came before is a label with blanks; before an exception's name it may be a sentence */
    else if (name && !label) words++;
    at = end + 1;
  }
  return words == 0;
}

/* What a program prints behind an error: frames of Java, .NET, Go, JavaScript, a debugger, Python, or advice. */
static bool has_stack(const hri_oom_place *p, size_t to) {
  static const char frames[] =
      "traceback|stack trace|backtrace|goroutine |frame #|#0 |[1] |0: 0x|runtime stack|stacktrace:|file \"";
  /* what PyTorch prints behind every error of CUDA or HIP, in the same line or the next ones */
  static const char behind[] =
      "kernel errors might be asynchronously|for debugging consider passing |to enable device-side assertions";
  size_t at = p->line_end, end;
  if (hri_match_part(p->text, to, at + 60 < p->count ? at + 60 : p->count, behind)) return true;
  while (at < p->count && strchr(" -=*", p->text[at]) && p->text[at]) at++;
  if (hri_match_at(p->text, at, p->count, frames)) return true;
  if (!hri_match_at(p->text, at, p->count, "at ")) return false; /* "at java.util.arrays.copyof(arrays.java:3332)" */
  for (at += 3, end = at; end < p->count && (hri_is_name(p->text[end]) || strchr(".$<>`:/", p->text[end]));) end++;
  return end > at && memchr(p->text + at, '.', end - at);
}

/* The label that begins the line names an error: "exception type: x", "** error: x". */
static bool is_field(const hri_oom_place *p, size_t phrase_from) {
  size_t end = p->line, blanks = 0;
  for (; end < phrase_from && p->text[end] != ':' && blanks < 5; end++) blanks += p->text[end] == ' ';
  return end < phrase_from && p->text[end] == ':' &&
         hri_match_any(p->text, p->line, end, "exception|error|reason|fatal|stderr|message|result|status");
}

/* The label is one of a form that a program fills in: "- **exception type:** x". */
static bool is_exception_field(const hri_oom_place *p, size_t phrase_from) {
  static const char names[] = "exception type:|exception message:|error type:|error message:|exit reason:|"
                              "tipo de exce\xc3\xa7\xc3\xa3o:|tipo de excepci\xc3\xb3n:";
  return hri_match_any(p->text, p->line, phrase_from < p->line + 32 ? phrase_from : p->line + 32, names);
}

bool hri_oom_is_concrete(const char *text, size_t from, size_t to) {
  unsigned digits = 0;
  for (size_t i = from; i < to; i++) {
    digits = hri_is_digit(text[i]) ? digits + 1 : 0;
    if (digits == 1 && i > from + 1 && (text[i - 1] == '#' || (text[i - 1] == '-' && hri_is_letter(text[i - 2])))) {
      while (i + 1 < to && hri_is_digit(text[i + 1])) i++; /* a ticket's */
      digits = 0;
      continue;
    }
    if (digits > 0 && i > from + 1 && text[i - 1] == '.' && hri_is_digit(text[i - 2])) { /* "17.5m" */
      size_t end = i;
      while (end < to && hri_is_digit(text[end])) end++;
      if (end < to && (strchr("kmg", text[end]) || (text[end] == ' ' && end + 1 < to && strchr("kmg", text[end + 1]))))
        return true;
    }
    if (digits == 4 || (text[i] == 'x' && i > from && i + 1 < to && text[i - 1] == '0' && hri_is_name(text[i + 1])))
      return true;
  }
  return false;
}

/* "killed process 912 (python)": the number of one, with its name. */
static bool names_process(const char *text, size_t from, size_t to) {
  const size_t number = hri_match_whole(text, from, to, "process") + strlen("process ");
  size_t at = number;
  while (at < to && hri_is_digit(text[at])) at++;
  return at > number && hri_match_at(text, at, to, " (") && at + 2 < to && hri_is_letter(text[at + 2]);
}

/* "error torch.serve - ...", "e tensorflow/...": a logger's level as the first word; nccl names itself before its own. */
static bool starts_with_level(const char *text, size_t line, size_t to) {
  static const char levels[] = "error |fatal |critical |severe |e |f |w |warn |err |nccl warn ";
  return hri_match_at(text, line, to, levels);
}

uint64_t hri_voice_shape(const hri_oom_place *p, size_t from, size_t to, bool is_code) {
  size_t line = p->line, rest = to;
  uint64_t signs = hri_voice_topic(p, from, to);
  const bool told = hri_voice_tells(p, from, to, signs);
  const bool in_source = p->shape & HRI_OOM_REMARK && p->shape & HRI_OOM_AMONG;
  while (line < from && p->text[line] == ' ') line++;
  while (rest < p->line_end && !hri_is_name(p->text[rest]) && !(p->text[rest] & 0x80)) rest++;
#define SIGN(name, when)                                                                                               \
  do {                                                                                                                 \
    if (when) signs |= HRI_SIGN_BIT(HRI_SIGN_##name);                                                                  \
  } while (0)
  SIGN(LEVEL,
       p->shape & HRI_OOM_LEVEL || starts_with_level(p->text, line, from) || hri_match_at(p->text, from, to, "fatal "));
  SIGN(DATED, p->shape & HRI_OOM_DATED);
  SIGN(FENCED, p->shape & HRI_OOM_FENCED);
  SIGN(TITLE, p->shape & HRI_OOM_TITLE && !hri_voice_is_change(p));
  SIGN(LABELLED, is_exception_field(p, from) || names_error(p->text, line, from));
  SIGN(FIELD, is_field(p, from));
  SIGN(PLACE, hri_oom_has_place(p->text, line, p->line_end));
  SIGN(STACK, has_stack(p, to));
  SIGN(CODE, has_code(p->text, to, p->line_end));
  SIGN(ALONE, is_label_only(p->text, line, from) && (!is_code || hri_oom_word(p->text, line, from, ":") < from ||
                                                     hri_match_at(p->text, to, p->count, ":|()")));
  SIGN(LAST, rest >= p->line_end);
  SIGN(TOLD, told);
  SIGN(BEHIND, !told && hri_voice_is_case(p, from, to));
  SIGN(ITEM, p->shape & HRI_OOM_COMMENT && p->tick_from < p->tick_to && !told);
  SIGN(ENDED, hri_voice_tells_of_end(p, from, to));
  SIGN(CONCRETE, hri_oom_is_concrete(p->text, line, p->line_end) || names_process(p->text, from, p->line_end));
  SIGN(SOURCE, p->shape & HRI_OOM_SOURCE);
  SIGN(LITERAL, p->shape & HRI_OOM_LITERAL);
  SIGN(AMONG, p->shape & HRI_OOM_AMONG);
  SIGN(COMMENT, p->shape & HRI_OOM_COMMENT && !is_exception_field(p, from) && (!told || in_source));
  SIGN(HEADING, p->shape & HRI_OOM_HEADING);
  SIGN(PROSE, hri_count_words(p->text, hri_sentence_start(p->text, p->sentence, from), from) >= 5);
  SIGN(TAIL, hri_count_words(p->text, to, hri_sentence_end(p->text, to, p->line_end)) >= 4);
#undef SIGN
  return signs;
}
