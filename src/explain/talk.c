/* In what the words stand: literals and quotations, back quotes, rows of tables, settings, entries of lists, places for
 * figures. A message that brings its figures is a report wherever it was pasted; one
 * with none, or a request alone, is judged by where it stands - and by the words before a quotation, which may say that it
 * happened (hri_voice_meets). */
#include "explain/lexicon.h"
#include "explain/match.h"
#include "explain/report_parts.h"

/* Back over what stands between a verb and an error's name: "got a weird cuda error:". */
static size_t skip_article(const char *text, size_t line, size_t end) {
  static const char small[] =
      "a|an|the|this|some|many|several|frequent|constant|random|another|following|same|error|exception|message|with|me|outright|torch|pytorch";
  for (size_t at = end;; end = at) {
    while (end > line && strchr(" :,(", text[end - 1])) end--;
    at = hri_match_last(text, line, end, small);
    if (at == end && end < line + 200 && text[end] == ' ') at = hri_oom_with_modifiers(text, line, end + 1);
    if (at < end) continue;
    for (at = end; at > line && hri_is_letter(text[at - 1]);) at--; /* an adjective behind an article */
    if (at == end || !hri_match_end(text, line, at, " a | an | the | some ")) return end;
  }
}

bool hri_voice_meets(const char *text, size_t line, size_t end) {
  const size_t from = hri_sentence_start(text, line, end), verb_end = skip_article(text, line, end);
  const size_t verb = hri_match_last(text, line, verb_end, HRI_MEETS "|" HRI_DIED "|" HRI_DIES);
  while (end > line && text[end - 1] == ' ') end--;
  if (hri_match_any(text, from, end, HRI_CASE "|" HRI_CAN)) return false;
  if (verb < verb_end && hri_match_end(text, line, verb, "seem to be |seems to be ")) return true;
  if (verb < verb_end) return !hri_match_any(text, verb > line + 24 ? verb - 24 : line, verb, HRI_ANYBODY "|when|to");
  if (hri_match_end(text, line, end, ":") && hri_match_any(text, from, end, HRI_DIED)) return true;
  return hri_match_end(text, line, end, " with| by| as| due to| because of") && /* "it crashed after an hour with" */
         hri_match_any(
             text, from, end,
             HRI_DIED
             "|ended|ends|stopped|stops|dying|crashing|shutdown|restarted|restarts|restarting|getting killed|got killed|arrived|surfaced|appeared|showed up");
}

/* Whether the words before a quoted message say that it happened: "failed with", "cuda failure", a key of a log record.
 * A call takes a literal in programs; in logs it is how an exception prints itself, at the line's beginning. */
static bool quotes_a_report(const char *text, size_t line, size_t quote, bool ticked, bool among, bool title) {
  static const char before[] =
      "failure|error with|error log:|panicked at|failure 2| msg=| error=| err=| message=| reason=|,message=|(message=| exception=|"
      " stderr=|by|err(|(error|last error:|value: |error_out_of_memory,|following error|instance of|throwing|search for|"
      "result|. stream";
  /* what somebody tells of one event; a document says these things in the present */
  static const char told[] =
      " with| then| reported| caused| repeated|\xe6\x8a\xa5|\xe6\x8a\xa5\xe9\x94\x99|symptom:| confirmed:|"
      " confirms:| reads:";
  /* of a record on one line, or of a notebook's output */
  static const char keys[] =
      "\"msg\":|\"message\":|\"error\":|\"exception\":|\"stderr\":|\"detail\":|\"reason\":|\"log\":|"
      "\"output\":|\"exc_info\":|\"err\":|\"status\":|\"errortype\":|\"event\":";
  /* of a record as pairs, the first of its line */
  static const char pairs[] = "err=|error=|msg=|message=|reason=|exception=|stderr=|error_message=";
  /* of an object on one line, as JavaScript, Python and Rust print it */
  static const char fields[] =
      " message: | error: | errmsg: | reason: | stderr: | err: |'message': |'error': |'errmsg': |"
      "'reason': |'stderr': |'msg': |'detail': ";
  size_t end = quote;
  if (hri_match_next(text, line, end, pairs) == end && end > line) return true;
  line = line > 40 ? line - 40 : 0; /* a line that was wrapped before the quotation */
  while (end > line && text[end - 1] == ' ') end--;
  if (among && end > line && text[end - 1] == '=') return false; /* an argument */
  if (hri_match_at(text, hri_sentence_start(text, line, end), end, "if ")) return false;
  if (hri_match_end(text, line, end, "&&") && hri_oom_word(text, line, end, "assert") < end) return true;
  if (title && hri_match_end(text, line, end, ":")) return true;
  if (hri_voice_meets(text, line, end)) return true;
  if (hri_match_end(text, line, end, before)) return true;
  if (ticked && hri_match_end(text, line, end, told)) /* "restarted with `...`", not "can fail with" */
    return !hri_match_any(text, end > line + 20 ? end - 20 : line, end, HRI_CASE "|" HRI_CAN);
  if (hri_match_end(text, line, end, "\"text\":|\"traceback\":|\"evalue\":|\"ename\":") ||
      (hri_match_end(text, line, end, keys) && memchr(text + line, '{', end - line)))
    return true;
  if (!among && hri_match_end(text, line, quote, fields) && memchr(text + line, '{', end - line)) return true;
  if (hri_match_end(text, line, end, "error(|exception(")) {
    size_t start = end - 1;
    while (start > line && (hri_is_name(text[start - 1]) || text[start - 1] == '.')) start--;
    return start == line || hri_match_end(text, line, start, ": |exception=");
  }
  return false;
}

bool hri_oom_is_told(const hri_oom_place *p) {
  return p->tick_from < p->tick_to &&
         quotes_a_report(p->text, p->line, p->tick_from, true, false, p->shape & HRI_OOM_TITLE);
}

/* Whether the single quote before text[from] is closed before `to`: "'x' ended". */
static bool closes_before(const char *text, size_t from, size_t to) {
  for (size_t at = from + 1; at < to; at++)
    if (text[at] == '\'' && !hri_is_name(text[at + 1])) return true;
  return false;
}

/* Whether text[at] stands in a literal that is opened and closed in its line; *quote is where it is opened. */
static bool find_quote(const hri_oom_place *p, size_t *quote) {
  const char *text = p->text;
  const size_t least = p->at > 120 ? p->at - 120 : 0;
  unsigned closed = 0; /* double quotes that close one before the place: "the app \"x\" was killed" */
  for (size_t i = p->at; i > least; i--) {
    const char c = text[i - 1];
    if (c == '"' && i >= 2 && text[i - 2] == '\\') return false; /* inside a record of a log */
    if (c != '"' && c != '\'') continue;
    if (strchr(", ", text[i])) { /* closed there, where a name ends before it */
      closed += c == '"' && i >= 2 && hri_is_name(text[i - 2]);
      continue;
    }
    if (i >= 2 && (hri_is_name(text[i - 2]) || strchr(".)]", text[i - 2])) && !(i >= 3 && !hri_is_name(text[i - 3]))) {
      closed += c == '"';
      continue; /* "can't", or closed there; "f\"...\"" opens */
    }
    if (c == '"' && closed > 0) {
      closed--;
      continue;
    }
    if (c == '\'' && closes_before(text, i, p->at)) continue;
    *quote = i - 1;
    for (size_t k = p->at, end = c == '\''                ? p->line_end
                                 : p->at + 400 < p->count ? p->at + 400
                                                          : p->count;
         k < end; k++)
      if (text[k] == c && !(c == '\'' && k + 1 < end && hri_is_name(text[k + 1])))
        return !(k + 1 < end && text[k + 1] == ':'); /* the key of a record */
    return false;
  }
  return false;
}

/* Whether a word of three letters or more stands there, which is no figure left open: "xx", "size". */
static bool is_word_at(const hri_oom_place *p, size_t at) {
  size_t end = at;
  while (end < p->count && hri_is_letter(p->text[end])) end++;
  return end >= at + 3 && (end == p->count || strchr(" .,;:)", p->text[end])) &&
         !hri_match_at(p->text, at, end, "xx|nnn|size");
}

/* Where a figure always follows, something else does: "tried to allocate x gib", "tried to allocate \" + size". */
static bool has_placeholder(const hri_oom_place *p) {
  enum { BEFORE = 40, BACK = 72 };
  static const char asks[] =
      "tried to allocate|trying to allocate|(mps allocated:|oom allocating|memory allocating|total-vm:|"
      "dataloader worker (pid|would be [|than the limit of [|gpu memory utilization (|system memory (|system memory(|requested buffer of size|vector of size|"
      "is smaller than requested bytes of";
  static const char meant[] = "more than 1eb|more memory|a |memory|buffer|tensor|the ";
  static const char stand_ins[] =
      "to allocate xxx|to allocate nnn|to allocate yyy|unable to allocate xx|unable to allocate x |unable to allocate n |"
      "unable to allocate <|unable to allocate {|"
      "unable to allocate %|unable to allocate ...|allocating n mib|memory size of xxx|memory size of x |allocate string bytes|"
      "in step xxx|stepid=xxx|process nnn|process xxx|process [pid]|process <pid>";
  const size_t end = p->at + 120 < p->count ? p->at + 120 : p->count;
  if (hri_oom_word(p->text, p->line, p->at, "[enforce fail at ") < p->at)
    return false; /* some print a "%d" themselves */
  if (hri_match_part(p->text, p->at > p->line + BACK ? p->at - BACK : p->line, end, stand_ins)) return true;
  const size_t begin = p->at > p->line + BEFORE ? p->at - BEFORE : p->line;
  if (!hri_match_part(p->text, begin, end, asks)) return false;
  for (size_t from = begin; from < end; from++) {
    size_t at = hri_match_next(p->text, from, end, asks);
    if (at == from) continue;
    while (at < p->count && strchr(" :=[(", p->text[at])) at++;
    if (at < p->count && !hri_is_digit(p->text[at]) && p->text[at] != '-' && !is_word_at(p, at) &&
        !hri_match_at(p->text, at, p->count, meant))
      return true;
  }
  return false;
}

/* Conditions in the languages that logs and documents about training are mostly written in: if, when, avoid. */
static bool is_foreign_condition(const char *text, size_t from, size_t to) {
  static const char whole[] =
      "wenn|falls|si|quand|lorsque|cuando|quando|caso|als|indien|evitar|\xc3\xa9viter|vermeiden|jika|nếu";
  static const char parts[] = "\xe8\x8b\xa5|"                                     /* Chinese: if */
                              "\xe5\xa6\x82\xe6\x9e\x9c|"                         /* if */
                              "\xe5\xa6\x82\xe9\x81\x87|"                         /* if one meets */
                              "\xe5\xbd\x93|"                                     /* when */
                              "\xe6\x97\xb6\xe7\x9a\x84\xe6\x8a\xa5\xe9\x94\x99|" /* of errors when */
                              "\xe9\x81\xbf\xe5\x85\x8d|"                         /* avoid */
                              "\xe9\x98\xb2\xe6\xad\xa2|"                         /* prevent */
                              "\xe5\xa0\xb4\xe5\x90\x88|"                         /* Japanese: in case */
                              "\xe3\x82\x82\xe3\x81\x97|"                         /* if */
                              "\xea\xb2\xbd\xec\x9a\xb0|"                         /* Korean: in case */
                              "\xd0\xb5\xd1\x81\xd0\xbb\xd0\xb8|"                 /* Russian: if */
                              "\xd0\x95\xd1\x81\xd0\xbb\xd0\xb8|"                 /* the same at a beginning */
                              "\xd0\xba\xd0\xbe\xd0\xb3\xd0\xb4\xd0\xb0|"         /* when */
                              "\xd0\x9a\xd0\xbe\xd0\xb3\xd0\xb4\xd0\xb0";         /* the same at a beginning */
  static const char phrases[] =
      "en cas de|en caso de|em caso de|bei einem|\xe5\xb8\xb8\xe8\xa7\x81\xe9\x94\x99\xe8\xaf\xaf|"
      "\xe5\xb8\xb8\xe8\xa7\x81\xe9\x97\xae\xe9\xa2\x98"; /* the last two
                                                                               are Chinese: common errors */
  static const char usual[] = /* what is common or usual: Russian, Korean, Japanese, Chinese */
      "\xd0\x9e\xd0\xb1\xd1\x8b\xd1\x87\xd0\xbd\xd0\xbe|\xd0\xbe\xd0\xb1\xd1\x8b\xd1\x87\xd0\xbd\xd0\xbe|"
      "\xd1\x80\xd0\xb0\xd1\x81\xd0\xbf\xd1\x80\xd0\xbe\xd1\x81\xd1\x82\xd1\x80\xd0\xb0\xd0\xbd\xd0\xb5\xd0\xbd\xd0\xbd|"
      "\xd1\x80\xd0\xb0\xd1\x81\xd0\xbf\xd1\x80\xd0\xbe\xd1\x81\xd1\x82\xd1\x80\xd0\xb0\xd0\xbd\xd1\x91\xd0\xbd\xd0\xbd|"
      "\xeb\xa7\x8e\xec\x9d\xb4 \xea\xb2\xaa\xeb\x8a\x94|\xec\x9e\x90\xec\xa3\xbc \xeb\xb0\x9c\xec\x83\x9d|\xed\x9d\x94\xed\x9e\x88|\xed\x9d\x94\xed\x95\x9c|"
      "\xe3\x82\x88\xe3\x81\x8f\xe3\x81\x82\xe3\x82\x8b|\xe3\x82\x88\xe3\x81\x8f\xe8\xa6\x8b\xe3\x82\x8b|"
      "\xe9\x81\xbf\xe3\x81\x91\xe3\x82\x89\xe3\x82\x8c\xe3\x81\xaa\xe3\x81\x84|\xe6\x9c\x80\xe5\xb8\xb8\xe8\xa7\x81|"
      "m\xc3\xa1s com\xc3\xban|m\xc3\xa1s frecuente|plus courant|plus fr\xc3\xa9quent|h\xc3\xa4ufigste|pi\xc3\xb9 comun|mais comum";
  /* where another part of the sentence begins: what was usual or meant before it is no condition of what came */
  static const char joints[] =
      ",|: | - | \xe2\x80\x94 | \xe2\x80\x93 |\xe3\x80\x82|\xe3\x80\x81|\xef\xbc\x8c|\xef\xbc\x9a|(";
  static const char purpose[] = "\xd1\x87\xd1\x82\xd0\xbe\xd0\xb1\xd1\x8b"; /* Russian: in order to */
  /* may or will lead to: Russian, Vietnamese (will meet), German, French, Spanish, Portuguese, Chinese */
  static const char leading[] =
      "\xd0\xbc\xd0\xbe\xd0\xb6\xd0\xb5\xd1\x82 \xd0\xbf\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x81\xd1\x82\xd0\xb8|"
      "\xd0\xbc\xd0\xbe\xd0\xb3\xd1\x83\xd1\x82 \xd0\xbf\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x81\xd1\x82\xd0\xb8|"
      "\xd0\xbc\xd0\xbe\xd0\xb6\xd0\xb5\xd1\x82 \xd0\xb2\xd0\xbe\xd0\xb7\xd0\xbd\xd0\xb8\xd0\xba|"
      "s\xe1\xba\xbd g\xe1\xba\xb7p|c\xc3\xb3 th\xe1\xbb\x83 g\xe1\xba\xb7p|kann zu |k\xc3\xb6nnen zu |peut entra\xc3\xaener|peut provoquer|"
      "peut causer|puede provocar|puede causar|puede generar|pode causar|pode gerar|pode levar|"
      "\xe5\x8f\xaf\xe8\x83\xbd\xe5\xaf\xbc\xe8\x87\xb4|\xe5\x8f\xaf\xe8\x83\xbd\xe4\xbc\x9a\xe5\xaf\xbc\xe8\x87\xb4|"
      "\xe5\xae\xb9\xe6\x98\x93\xe5\xaf\xbc\xe8\x87\xb4";
  size_t last = from;
  for (size_t at = hri_match_first(text, from, to, joints); at < to; at = hri_match_first(text, at + 1, to, joints))
    if (text[at] != ':' || !hri_match_end(text, from, at, "error|exception")) last = at + 1;
  const bool own = hri_match_part(text, from, to, HRI_OWN_ABROAD "| \xec\xa0\x9c "); /* Korean: my */
  size_t first = from;
  while (first < to && strchr(" *#>-", text[first])) first++;
  if (hri_match_at(text, first, to, "se ") || hri_match_part(text, from, to, ", se |: se |(se "))
    return true; /* Italian, Portuguese: if; Spanish has the word amid its sentences */
  return (!own && hri_match_part(text, last, to, usual)) || (!own && hri_match_part(text, last, to, leading)) ||
         hri_match_part(text, last, to, purpose) || hri_match_part(text, from, to, phrases) ||
         hri_match_any(text, from, to, whole) || hri_match_part(text, from, to, parts);
}

bool hri_voice_addresses(const hri_oom_place *p) {
  const size_t from = hri_sentence_start(p->text, p->sentence, p->at);
  if (hri_match_part(p->text, from, p->at, "\xd0\xb1\xd1\x8b \xd0\xb2\xd1\x8b|\xd0\xbb\xd0\xb8 \xd0\xb2\xd1\x8b"))
    return false; /* who asks for help */
  return hri_match_part(p->text, from, p->at, " \xd0\xb2\xd1\x8b ");
}

/* What follows in such languages: "in case of", "please". */
static bool is_foreign_advice(const char *text, size_t from, size_t to) {
  static const char parts[] =
      "\xe3\x81\xae\xe5\xa0\xb4\xe5\x90\x88|\xed\x95\x98\xeb\xa9\xb4|\xe8\xaf\xb7|\xe6\xb8\x9b\xe3\x82\x89\xe3\x81\x97|"
      "\xe4\xb8\x8b\xe3\x81\x92\xe3\x81\xa6|\xe5\xbb\xba\xe8\xae\xae|\xe5\x8f\xaf\xe4\xbb\xa5\xe9\x80\x9a\xe8\xbf\x87";
  return hri_match_part(text, from, to, parts);
}

/* What may come, said behind it, as languages do that end with the verb: Japanese may happen, there are cases of it happening, fear of it; Korean
 * may happen, may be seen, may be caused. Who says that it is now and then, or is their own, has met it. */
static bool is_foreign_possibility(const char *text, size_t start, size_t from, size_t to) {
  enum { NEAR = 60 };
  static const char may[] =
      "\xe7\x99\xba\xe7\x94\x9f\xe3\x81\x99\xe3\x82\x8b\xe3\x81\x93\xe3\x81\xa8\xe3\x81\x8c\xe3\x81\x82|"
      "\xe7\x99\xba\xe7\x94\x9f\xe3\x81\x99\xe3\x82\x8b\xe5\xa0\xb4\xe5\x90\x88\xe3\x81\x8c\xe3\x81\x82|"
      "\xe7\x99\xba\xe7\x94\x9f\xe3\x81\x99\xe3\x82\x8b\xe5\x8f\xaf\xe8\x83\xbd\xe6\x80\xa7\xe3\x81\x8c\xe3\x81\x82|"
      "\xe8\xb5\xb7\xe3\x81\x8d\xe3\x82\x8b\xe3\x81\x93\xe3\x81\xa8\xe3\x81\x8c\xe3\x81\x82|"
      "\xe8\xb5\xb7\xe3\x81\x93\xe3\x82\x8b\xe3\x81\x93\xe3\x81\xa8\xe3\x81\x8c\xe3\x81\x82|"
      "\xe8\xb5\xb7\xe3\x81\x8d\xe3\x82\x8b\xe5\x8f\xaf\xe8\x83\xbd\xe6\x80\xa7\xe3\x81\x8c\xe3\x81\x82|"
      "\xe6\x81\x90\xe3\x82\x8c\xe3\x81\x8c\xe3\x81\x82|"
      "\xeb\xb0\x9c\xec\x83\x9d\xed\x95\xa0 \xec\x88\x98 \xec\x9e\x88\xec\x8a\xb5|"
      "\xeb\xb0\x9c\xec\x83\x9d\xed\x95\xa0 \xec\x88\x98 \xec\x9e\x88\xeb\x8b\xa4|"
      "\xeb\xb0\x9c\xec\x83\x9d\xed\x95\xa0 \xec\x88\x98 \xec\x9e\x88\xec\x9c\xbc|"
      "\xec\x83\x9d\xea\xb8\xb8 \xec\x88\x98 \xec\x9e\x88\xec\x8a\xb5|\xec\x83\x9d\xea\xb8\xb8 \xec\x88\x98 \xec\x9e\x88\xeb\x8b\xa4|"
      "\xec\x9d\xbc\xec\x9c\xbc\xed\x82\xac \xec\x88\x98 \xec\x9e\x88|\xec\x9c\xa0\xeb\xb0\x9c\xed\x95\xa0 \xec\x88\x98 \xec\x9e\x88|"
      "\xec\xb4\x88\xeb\x9e\x98\xed\x95\xa0 \xec\x88\x98 \xec\x9e\x88";
  static const char met[] = HRI_OWN_ABROAD
      "|\xe6\xaf\x8e\xe5\x9b\x9e|\xeb\xa7\xa4\xeb\xb2\x88|\xe3\x81\x9f\xe3\x81\xbe\xe3\x81\xab|\xe6\x99\x82\xe3\x80\x85|\xe3\x81\xa8\xe3\x81\x8d\xe3\x81\xa9\xe3\x81\x8d|"
      "\xea\xb0\x80\xeb\x81\x94"; /* each time, now and then */
  return hri_match_part(text, from, from + NEAR < to ? from + NEAR : to, may) && !hri_match_part(text, start, to, met);
}

/* A field of a test's data: what is expected of it is the next field. */
static bool is_expected(const hri_oom_place *p) {
  return p->shape & HRI_OOM_LITERAL && hri_match_at(p->text, p->line_end, p->count, "\"expected");
}

/* The name of a field whose value reports: "\"oomkilled\": true", "\"exitcode\": 137". */
static bool is_valued(const hri_oom_place *p) {
  size_t at = p->at;
  while (at < p->line_end && (hri_is_name(p->text[at]) || p->text[at] == '"' || p->text[at] == ' ')) at++;
  if (at == p->line_end || p->text[at] != ':') return false;
  for (at++; at < p->line_end && p->text[at] == ' ';) at++;
  return hri_match_at(p->text, at, p->line_end, "true|137");
}

/* An exit code in a list of what to do about each: "- exitcode: 137", and "action:" in the next line. */
static bool is_ruled(const hri_oom_place *p) {
  size_t at = p->line_end;
  while (at < p->count && p->text[at] == ' ') at++;
  return p->shape & HRI_OOM_COMMENT && hri_match_at(p->text, at, p->count, "action:|behavior:|then:|policy:|restart:");
}

/* The key of a table of texts: "\"cuda out of memory\": \"...\"". */
static bool is_key(const hri_oom_place *p) {
  const char *close;
  if (is_valued(p)) return false;
  return p->line < p->at && p->text[p->line] == '"' &&
         (close = memchr(p->text + p->at, '"', p->line_end - p->at)) != NULL && close + 1 < p->text + p->line_end &&
         close[1] == ':' && !memchr(p->text + p->line + 1, '"', p->at - p->line - 1);
}

/* Behind what marks an item, a comment or a heading: "- ", "1. ", "// ", "<li>". */
static size_t skip_marks(const hri_oom_place *p) {
  size_t at = p->line;
  if (hri_match_at(p->text, at, p->at, "0x")) { /* the code itself */
    while (at < p->at && p->text[at] != ' ') at++;
    while (at < p->at && p->text[at] == ' ') at++;
  }
  while (at < p->at && (strchr(" -+/.)", p->text[at]) || hri_is_digit(p->text[at]) || p->text[at] == '<')) {
    if (p->text[at] == '<') at = hri_oom_word(p->text, at, p->at, ">");
    if (at < p->at) at++;
  }
  return at;
}

/* Whether words follow the exit code that begins the line: what it stands for. */
static bool defines(const hri_oom_place *p) {
  size_t at = p->at, letters = 0;
  while (at < p->line_end && !hri_is_digit(p->text[at])) at++;
  while (at < p->line_end && hri_is_digit(p->text[at])) at++;
  for (; at < p->line_end; at++) letters += p->text[at] >= 'a' && p->text[at] <= 'z';
  return hri_match_at(p->text, p->at, p->line_end, "exit") && letters > 8;
}

/* Between the bars or slashes of a pattern: "(hiperror|out of memory|", "/out of memory/i". */
static bool is_pattern(const hri_oom_place *p) {
  size_t near = p->at + 20 < p->count ? p->at + 20 : p->count;
  size_t end = hri_oom_word(p->text, p->at, near, "memory/");
  if (end < near) return true;
  for (end = p->at; end < near && (hri_is_name(p->text[end]) || p->text[end] == '-');) end++;
  if (end + 1 < p->line_end && p->text[end] == '/' && !hri_is_name(p->text[end + 1])) return true;
  for (end = p->at; end > p->line && hri_is_name(p->text[end - 1]);) end--;
  return end > 0 && strchr("|/", p->text[end - 1]) && !(p->shape & HRI_OOM_LEVEL);
}

/* Whether the value belongs to a field of patterns, or to one that sets a signal: "pattern: ...", "default: sigkill". */
static bool is_setting(const hri_oom_place *p, size_t from) {
  static const char names[] =
      "pattern|patterns|regex|regexp|match|matches|default|keyword|keywords|query|stop_signal|signature|"
      "expected|name|id|rule|alert|terms|title|tags";
  size_t end = hri_oom_word(p->text, p->line, from, ":");
  if (end == from) return false;
  while (end > p->line && strchr("\"' ", p->text[end - 1])) end--;
  return hri_match_last(p->text, p->line, end, names) < end;
}

/* Whether the next line is a code and its text as well: "e_arg - bad argument". */
static bool is_code_too(const hri_oom_place *p) {
  size_t at = p->line_end, end;
  while (at < p->count && strchr(" -*", p->text[at]) && p->text[at]) at++;
  for (end = at; end < p->count && hri_is_name(p->text[end]);) end++;
  return memchr(p->text + at, '_', end - at) && hri_match_at(p->text, end, p->count, " - ");
}

/* "ENOMEM: not enough memory, read": how libuv prints the call that failed. */
static bool is_systems_call(const hri_oom_place *p, size_t first) {
  static const char words[] = "enomem: not enough memory, ";
  const size_t call = hri_match_next(p->text, first, p->line_end, words);
  size_t end = call;
  while (end < p->line_end && (hri_is_letter(p->text[end]) || p->text[end] == '_')) end++;
  return end > call &&
         (hri_match_at(p->text, end, p->line_end, " '") || hri_match_at(p->text, p->line_end, p->count, "at ") ||
          hri_match_at(p->text, end, p->count, " at "));
}

/* "cublas_status_alloc_failed: resource allocation failed inside the library.": a name and what it means. */
static bool is_entry_of_codes(const hri_oom_place *p, size_t first) {
  size_t end = first;
  unsigned blanks = 0;
  while (end < p->line_end && hri_is_name(p->text[end])) end++;
  bool code = memchr(p->text + first, '_', end - first) ||
              hri_match_at(p->text, first, end,
                           "cudaerror|hiperror");    /* classes of exceptions have words of their own behind them */
                                                     /* "llama_kv_cache_init: ..." is who speaks */
  if (hri_match_at(p->text, p->line, first, "0x") && /* the code itself stands before its name, or others do above */
      (code || hri_oom_is_error_name(p->text, first, end) ||
       hri_match_part(p->before, p->before_count > 64 ? p->before_count - 64 : 0, p->before_count, "0x")))
    return true;
  if (code && hri_match_at(p->text, end, p->line_end, " - ") && is_code_too(p)) return true;
  if (hri_oom_is_error_name(p->text, first, end) &&
      hri_match_at(p->text, end, p->line_end, " &mdash; | \xe2\x80\x94 | \xe2\x80\x93 | - "))
    return true;
  if (p->at >= end && !hri_match_part(p->text, first, end, "error|status|fail")) return false;
  if (end - first < 13 || !code) return false;
  if (hri_match_at(p->text, end, p->line_end, " = ") && end + 3 < p->line_end &&
      (hri_is_digit(p->text[end + 3]) || p->text[end + 3] == '-'))
    return true;
  if (end - first < 16) return false;
  if (!hri_match_at(p->text, end, p->line_end, ": ") &&
      !(end + 1 < p->line_end && p->text[end] == ' ' && hri_is_letter(p->text[end + 1]) && !hri_oom_is_told(p) &&
        !hri_match_at(p->text, end, p->line_end, " when calling")))
    return false;
  for (; end < p->line_end; end++) blanks += p->text[end] == ' ';
  return blanks >= 6;
}

/* What stands below a code's heading and begins with the words: "## 27", "## CURLSHE_NOMEM (4)". */
static bool is_described_code(const hri_oom_place *p) {
  size_t end = p->before_count, from;
  const bool closed = end > 2 && p->before[end - 1] == ' ' && p->before[end - 2] == ')';
  end -= end > 0 && p->before[end - 1] == ' ';
  end -= closed;
  for (from = end; from > 0 && hri_is_digit(p->before[from - 1]);) from--;
  if (from == end || end - from > 3 || p->at > p->line + 16) return false;
  if (!closed)
    return hri_match_end(p->before, 0, from, ". ") && hri_match_at(p->text, p->line, p->line_end, "out of memory. ");
  return hri_match_end(p->before, 0, from, " (") && from > 4 &&
         hri_match_end(p->before, 0, from - 2, "nomem|_memory|_alloc");
}

/* The text of a record in a list of codes, others of which stand on both sides: "- code: 137", "description: killed". */
static bool is_listed_code(const hri_oom_place *p) {
  enum { FAR = 300 };
  const size_t from = p->before_count > FAR ? p->before_count - FAR : 0;
  const size_t to = p->line_end + FAR < p->count ? p->line_end + FAR : p->count;
  return hri_match_at(p->text, p->line, p->at, "description: |reason: |message: |phrase: |text: ") &&
         hri_match_part(p->before, from, p->before_count, "- code: ") &&
         hri_match_part(p->text, p->line_end, to, "- code: ");
}

/* Whether a row of a table, which reports in its last cell what came of the first: there the name of an error code
 * stands, and nothing behind it explains or advises. */
static bool is_result_row(const hri_oom_place *p, const hri_oom_message *m) {
  size_t cells = 0, behind = 0;
  bool code = strchr(m->failure.source, '-') && p->at + 16 < p->line_end && memchr(p->text + p->at, '_', 12);
  for (size_t i = p->line; i < p->line_end; i++) {
    cells += p->text[i] == '|' && i < p->at;
    behind += p->text[i] == '|' && i > p->at;
  }
  return code && cells >= 1 && behind <= 1;
}

/* A branch of a tree of names: "+-- memoryerror". */
static bool is_branch(const hri_oom_place *p) {
  return hri_match_at(p->text, p->line, p->at, "+-- |+- |\xe2\x94\x9c\xe2\x94\x80|\xe2\x94\x94\xe2\x94\x80");
}

/* Between the sides of a drawing's boxes, of which there are others in the line. */
static bool is_drawn(const hri_oom_place *p) {
  static const char side[] = "\xe2\x94\x82";
  return hri_oom_word(p->text, p->line, p->at, side) < p->at &&
         hri_oom_word(p->text, p->at, p->line_end, side) < p->line_end;
}

/* An item that begins with an error and goes on to explain it: "- cuda error: out of memory: the gpu is full". */
static bool is_explained_item(const hri_oom_place *p, size_t first) {
  static const char joints[] = ": | - | -> | \xe2\x80\x94 | \xe2\x80\x93 | \xe2\x86\x92 ";
  const size_t at = hri_oom_word(p->text, first, p->line_end, "out of memory"), end = at + strlen("out of memory");
  size_t joint;
  if (p->at > end || at > first + 72 || (at > first && !hri_match_end(p->text, first, at, "error: |cuda ")))
    return false;
  joint = hri_match_next(p->text, end, p->line_end, joints);
  return joint > end && joint + 8 < p->line_end && !hri_oom_is_concrete(p->text, end, p->line_end);
}

/* Whether the message says itself that nothing failed. */
static bool denies_failure(const hri_oom_place *p) {
  static const char words[] =
      "this is not a failure|is not a failure|this is not an error|% of free system memory|not a fatal error|"
      "paged to system ram";
  size_t end = p->at + 200 < p->count ? p->at + 200 : p->count; /* it may be wrapped */
  return hri_match_part(p->text, p->at, end, words);
}

/* Whether the request was for something that a program does without: pages locked in memory, one of several ways to
 * compute a layer. */
static bool is_optional(const hri_oom_place *p) {
  const size_t near = p->at + 260 < p->count ? p->at + 260 : p->count;
  if (hri_match_part(p->text, p->at, near, "ignoring this choice")) return true;
  return hri_match_part(p->text, p->line, p->at,
                        "failed to mlock|failed to munlock|unable to lock|skipping tactic|could not lock|mlock failed|"
                        "warning: mlock|continuing anyway") ||
         hri_match_part(p->text, p->line, p->line_end,
                        "insufficient to use tactic|insufficient memory to use tactic|falling back to non-pinned");
}

/* Whether the line, behind what marks a comment, is how an exception is printed: "# runtimeerror: ...", "* terminate
 * called after". */
bool hri_voice_opens(const hri_oom_place *p) {
  size_t at = skip_marks(p), end = at;
  while (end < p->line_end && (hri_is_name(p->text[end]) || p->text[end] == '.')) end++;
  if (hri_match_at(p->text, at, p->line_end, "terminate called|what(): ")) return true;
  return hri_match_at(p->text, end, p->line_end, ": | traceback (most recent") &&
         hri_match_end(p->text, at, end, "error|exception");
}

/* What glibc says of a heap that was written over: nothing was refused. */
static bool is_corruption(const hri_oom_place *p) {
  if (hri_match_part(p->text, p->line, p->line_end, "out of memory|tried to allocate")) return false;
  return hri_match_part(
      p->text, p->line, p->line_end,
      "malloc(): invalid|malloc(): corrupted|malloc(): memory corruption|malloc(): unaligned|"
      "malloc(): unsorted|malloc(): mismatching|realloc(): invalid|free(): invalid|double free or corruption");
}

/* A counter that stands at zero: its name, 0, its rate, what it counts. */
static bool is_zero(const hri_oom_place *p) {
  size_t at = p->line;
  while (at < p->line_end && p->text[at] != ' ') at++;
  return at < p->line_end && memchr(p->text + p->line, '_', at - p->line) &&
         hri_match_at(p->text, at, p->line_end, " 0 0.0| 0 .| 0 -");
}

/* "Out of memory errors: 0", "oom kills since boot: 0": nothing was counted. */
static bool counts_none(const hri_oom_place *p) {
  static const char zero[] = ": 0| = 0|=0",
                    counted[] = " events| kills| errors| failures| occurrences| exceptions| count";
  for (size_t at = hri_match_first(p->text, p->at, p->line_end, zero); at < p->line_end;
       at = hri_match_first(p->text, at + 1, p->line_end, zero)) {
    const size_t end = hri_match_next(p->text, at, p->line_end, zero);
    if (hri_match_part(p->text, p->at, at, ",|;|=|)| - ")) return false;
    if ((end == p->line_end || strchr(" ,;", p->text[end])) && hri_match_part(p->text, p->at, at, counted)) return true;
  }
  return false;
}

/* What is prevented: "this will keep the database from getting oomkilled", "protects it from out-of-memory failures", "for a lower
 * probability of oom crashes". What stands behind a colon is another's. */
static bool is_prevented(const hri_oom_place *p) {
  enum { FAR = 140, NEAR = 48 };
  static const char keeps[] = "keep|keeps|keeping|stop|stops|stopping";
  static const char prevents[] = "prevent|prevents|preventing|protect|protects|protecting";
  static const char less[] =
      "reduce the|reduces the|reducing the|lower the|lowers the|lowering the|a lower|decrease the|decreases the|"
      "decreasing the|minimize the|minimizes the|minimizing the|minimise the|reduce|reduces|reducing";
  static const char odds[] = "probability of|risk of|likelihood of|chance of|chances of|possibility of|odds of";
  const size_t from = hri_sentence_start(p->text, p->at > p->line + FAR ? p->at - FAR : p->line, p->at);
  const size_t near = p->at > from + NEAR ? p->at - NEAR : from;
  const size_t keep = hri_match_whole(p->text, from, p->at, keeps),
               other = hri_match_whole(p->text, from, p->at, prevents);
  const size_t verb = other < p->at ? other : keep;
  const size_t joint = verb < p->at ? hri_match_whole(p->text, verb, p->at, "from") : p->at;
  const size_t odd = hri_match_whole(p->text, near, p->at, odds);
  if (p->shape & (HRI_OOM_DATED | HRI_OOM_LEVEL)) return false;
  if (odd < p->at && !memchr(p->text + odd, ':', p->at - odd) && hri_match_any(p->text, from, odd, less)) return true;
  return joint < p->at && p->at - joint <= NEAR && !hri_match_part(p->text, joint, p->at, ":|,|\"|(") &&
         (other < p->at ||
          hri_match_any(p->text, joint, p->at, "getting|being|going|running|throwing|raising|hitting"));
}

/* "Triggering the kernel's oom killer manually does not work": somebody calls it; or it is set. */
static bool is_called(const hri_oom_place *p) {
  const size_t near = p->at + 40 < p->count ? p->at + 40 : p->count;
  return hri_match_part(
      p->text, p->at, near,
      "killer manually|killer by hand|killer on purpose|killer deliberately|killer disabled|killer enabled|killer settings");
}

bool hri_voice_denies(const hri_oom_place *p) {
  return is_zero(p) || counts_none(p) || hri_match_part(p->text, p->line, p->at, "[it] ") || denies_failure(p) ||
         is_optional(p) || is_corruption(p) || is_prevented(p) || is_called(p);
}

/* "{{value}}", in a text that a program fills in; "out of memory kills = yes", a setting. */
static bool is_to_be_filled(const hri_oom_place *p) {
  size_t end = p->line_end;
  while (end > p->at && p->text[end - 1] == ' ') end--;
  return hri_match_part(p->text, p->at, p->line_end, "{{ |{{.|{{$|{{value") ||
         hri_match_end(p->text, p->at, end, " = yes| = no");
}

bool hri_voice_placeholder(const hri_oom_place *p) { return has_placeholder(p) || is_to_be_filled(p); }

/* Whether the line is a quotation as a whole, of somebody who is no program. */
static bool is_quotation(const hri_oom_place *p) {
  size_t from = p->line, to = p->line_end;
  while (from < to && p->text[from] == ' ') from++;
  while (to > from && p->text[to - 1] == ' ') to--;
  if (hri_match_at(p->text, p->line_end, p->count, "- ")) return false; /* explained below */
  return !(p->shape & (HRI_OOM_SOURCE | HRI_OOM_LITERAL)) && to > from + 20 && to - from < 160 &&
         p->text[from] == '"' && p->text[to - 1] == '"' && !memchr(p->text + from + 1, '"', to - from - 2);
}

/* Whether the line begins with an exception as it is printed, between quotation marks, and somebody goes on: "\"a.b.error: x\".
 * does anyone know why?". */
static bool is_quoted_exception(const hri_oom_place *p) {
  size_t from = p->line, end;
  const char *close;
  while (from < p->line_end && p->text[from] == ' ') from++;
  if (p->shape & (HRI_OOM_SOURCE | HRI_OOM_LITERAL | HRI_OOM_AMONG | HRI_OOM_COMMENT) || from == p->line_end ||
      p->text[from] != '"')
    return false;
  for (end = from + 1; end < p->line_end && (hri_is_name(p->text[end]) || p->text[end] == '.');) end++;
  close = memchr(p->text + from + 1, '"', p->line_end - from - 1);
  return hri_match_end(p->text, from + 1, end, "error|exception") && hri_match_at(p->text, end, p->line_end, ": ") &&
         close && hri_match_at(p->text, (size_t)(close - p->text) + 1, p->line_end, ". |? |! ");
}

/* Whether the back quotes around it enclose the line, and perhaps others: a block, as people make one. */
static bool spans_lines(const hri_oom_place *p) {
  size_t end = p->line_end;
  while (end > p->line && p->text[end - 1] == ' ') end--;
  return p->tick_from <= p->line && p->tick_to >= end && !(p->shape & HRI_OOM_HEADING);
}

uint64_t hri_voice_talk(const hri_oom_place *p, const hri_oom_message *m, size_t from, size_t to) {
  const size_t first = skip_marks(p), near = to < p->count ? to : p->count;
  const bool killed = hri_oom_is_kill(m->failure.source), row = p->shape & HRI_OOM_ROW || is_drawn(p);
  const bool result = row && is_result_row(p, m);
  size_t quote = 0;
  const bool quoted = p->tick_from == p->tick_to && find_quote(p, &quote);
  uint64_t signs = 0;
#define SIGN(name, when)                                                                                               \
  do {                                                                                                                 \
    if (when) signs |= HRI_SIGN_BIT(HRI_SIGN_##name);                                                                  \
  } while (0)
  SIGN(OPENS, hri_voice_opens(p));
  SIGN(TICKED, p->tick_from < p->tick_to && !hri_oom_is_told(p) && !hri_voice_happened(p, to) && !spans_lines(p));
  SIGN(FENCED, p->tick_from < p->tick_to && spans_lines(p));
  SIGN(QUOTED,
       quoted && !(p->shape & HRI_OOM_PRINTED) && !is_quotation(p) && !is_quoted_exception(p) &&
           !quotes_a_report(p->text, p->line, quote, false, p->shape & HRI_OOM_AMONG, p->shape & HRI_OOM_TITLE));
  SIGN(TOLD, (quoted && hri_voice_meets(p->text, p->line, quote)) || (row ? result : is_valued(p)));
  SIGN(ROW, row && !result);
  SIGN(PATTERN, is_pattern(p) || is_setting(p, from));
  SIGN(ENTRY, is_expected(p) || is_branch(p) || is_described_code(p) || is_listed_code(p) || (killed && is_ruled(p)) ||
                  is_entry_of_codes(p, first) || is_key(p) || is_explained_item(p, first) ||
                  (hri_match_at(p->text, first, p->line_end, "enomem") && !is_systems_call(p, first)) ||
                  (killed && p->at == first && defines(p)) ||
                  hri_match_part(p->text, p->at, p->line_end, " \xe2\x86\x92 "));
  SIGN(BEHIND, hri_match_part(p->text, p->at, p->line_end, ". solution:"));
  SIGN(CONDITION, is_foreign_condition(p->text, hri_sentence_start(p->text, p->sentence, from), from) ||
                      is_foreign_advice(p->text, near, p->line_end) ||
                      is_foreign_possibility(p->text, p->line, near, p->line_end));
#undef SIGN
  return signs;
}
