/* What the lines before a message say of it: that such messages may come, that one of a kind is shown, that whoever reads will see it. A
 * line that foresees a message makes all of it a case, with its figures too; who tells of their own there has met it.
 *
 * The neighbours may rely on this: only the last line before the message, or before the block of output that holds it, is judged, with
 * what it goes on with; without a colon at its end it counts where its words alone announce the message. */
#include "explain/lexicon.h"
#include "explain/match.h"
#include "explain/report_parts.h"

/* Behind the words that introduce the message, without the mark of a block and the "+" of a difference. */
static size_t intro_end(const hri_oom_place *p) {
  static const char marks[] =
      " text| txt| console| log| bash| shell| sh| output| yml| yaml| python| py| json| sql| pytb| "
      "plaintext| ini| c";
  size_t end = p->intro_count;
  while (end > 0 && strchr(" `+", p->before[end - 1])) end--;
  end = hri_match_last(p->before, 0, end, marks);
  while (end > 0 && strchr(" `+", p->before[end - 1])) end--;
  return end;
}

/* "If you take more, you will get the below error. Files of output are called so.": what somebody will come to. */
static bool will_come(const char *text, size_t end, bool fenced) {
  enum { REACH = 320 };
  static const char will[] =
      "you will get|you'll get|you will see|you'll see|you will receive|you may get|you might get|you may see|you might see";
  static const char may[] =
      "you may meet|you may encounter|you may see an error|you may get an error|can stop with|may stop with|can fail with|"
      "may fail with|might fail with|could fail with";
  const size_t from = end > REACH ? end - REACH : 0;
  if (!fenced && !hri_match_any(text, from, end, "following error|following message|like following|message like"))
    return false;
  return (hri_match_any(text, from, end, may) || (fenced && hri_match_any(text, from, end, will))) &&
         hri_match_any(text, from, end, "error|errors|message") &&
         hri_match_any(text, from, end, "if you|if your|when you|below|following|like") &&
         !hri_match_any(text, from, end, HRI_OWN "|the reason");
}

/* "If you got this error while running a script", without a colon: the last words before the message. */
static bool sets_case(const char *text, size_t end) {
  enum { REACH = 200 };
  size_t at = end > REACH ? end - REACH : 0;
  for (size_t next = hri_oom_word(text, at, end, "if you "); next < end;
       next = hri_oom_word(text, at + 1, end, "if you "))
    at = next;
  const size_t last = hri_sentence_start(text, at, end);
  if (last > at && hri_count_words(text, last, end) <= 4)
    end = last - 1; /* "... an error message. Basically this one" */
  return hri_match_at(text, at, end, "if you ") && !hri_match_any(text, at, end, HRI_OWN "|if you need|if you want") &&
         hri_match_any(text, at, end, "error|errors|message|exception") &&
         !hri_match_part(text, at, end, ". |? |! |: ");
}

/* "... with error messages alike", as the last words, and nobody's own. */
static bool is_likened(const char *text, size_t end) {
  const size_t from = end > 80 ? end - 80 : 0;
  return !hri_match_any(text, from, end, HRI_OWN) &&
         hri_match_end(text, from, end, "messages alike|message alike|errors alike");
}

/* "The log looks like this:" of a page, whose author met nothing in the lines before it. */
static bool is_shown(const char *text, size_t from, size_t end) {
  enum { FAR = 300 };
  static const char shows[] =
      "looks like this|look like this|can appear in|may appear in|can take several forms|may take several forms|comes in several forms|come in several forms|is indicated as follows|are indicated as follows|looks as follows|look as follows";
  return hri_match_any(text, from, end, shows) &&
         !hri_match_any(text, end > FAR ? end - FAR : 0, end, HRI_OWN "|got|failed|crashed|tried");
}

/* Where the last sentence of the last line before the message begins; *end is moved before the colon or the full stop that ends it. */
static size_t last_sentence(const hri_oom_place *p, size_t *end) {
  enum { REACH = 240 };
  size_t from = *end > REACH ? *end - REACH : 0;
  while (*end > 0 && strchr(" :.`", p->before[*end - 1])) (*end)--;
  if (p->intro_from > from && p->intro_from < *end) from = p->intro_from;
  from = hri_sentence_start(p->before, from, *end);
  while (from < *end && strchr(" >*#-", p->before[from])) from++;
  return from;
}

/* "Running it as a test, you may eventually see": the last words before the message, said of whoever reads. */
static bool is_seen_by_you(const char *text, size_t from, size_t end) {
  enum { FAR = 300 };
  static const char what[] =
      "the following error|the following|this error|this message|an error|something like|errors like";
  static const char verbs[] = "see|get|meet|encounter|find|notice|run into|face|receive";
  static const char adverbs[] = "eventually|also|often|sometimes|then|still|even|occasionally|frequently";
  const size_t whole = end;
  end = hri_skip_back(text, from, hri_match_last(text, from, end, what));
  const size_t verb = hri_match_last(text, from, end, verbs);
  if (verb == end) return false;
  end = hri_match_last(text, from, hri_skip_back(text, from, verb), adverbs);
  end = hri_skip_back(text, from, end);
  return hri_match_last(text, from, end, "you may|you might") < end &&
         !hri_match_any(text, from, whole, HRI_OWN) && /* nor are they the steps to it */
         !hri_match_any(text, whole > FAR ? whole - FAR : 0, whole, "reproduce|reproduction|steps|attached");
}

/* "When the cache is not enough for one request, X will raise an error like this": whenever memory is short. Who names how much it was
 * tells of one run, and so does the present: "when the card is full it throws an error like this". */
static bool comes_whenever(const char *text, size_t from, size_t end) {
  static const char will[] =
      "will raise|will throw|will give|will print|will show|will report|will return|will produce|will emit";
  static const char short_of[] =
      "not enough|insufficient|is full|exceeds|exceed|runs out|is too small|is exhausted|not sufficient";
  if (!hri_match_at(text, from, end, "when |if |whenever |once ") ||
      !hri_match_end(text, from, end, "like this|like the following|like the one below"))
    return false;
  for (size_t at = from + 1; at < end; at++)
    if (hri_is_digit(text[at]) && text[at - 1] == ' ') return false;
  const size_t verb = hri_match_whole(text, from, end, will); /* which begins no line of a log */
  return verb < end && hri_match_any(text, from, verb, short_of) && !hri_match_any(text, from, end, HRI_OWN);
}

/* "Sooner or later every developer comes to this line of the log:": whoever reads it. */
static bool is_of_reader(const char *text, size_t from, size_t end) {
  const size_t reader = hri_match_whole(text, from, end, "every developer|every engineer");
  return reader < end && reader < from + 24 && hri_match_any(text, reader, end, "comes to|comes across") &&
         !hri_match_any(text, from, end, HRI_OWN "|" HRI_DIED "|got|now|today|since|still|but|were|was|here");
}

/* "An error like this one: x", and "tells you ..." behind it: of a kind, where nobody came to it. */
static bool is_of_kind(const hri_oom_place *p, size_t from, size_t end) {
  size_t behind = p->line_end;
  while (behind < p->count && strchr(" `", p->text[behind]) && p->text[behind]) behind++;
  const size_t clause = hri_sentence_end(p->text, behind, p->count);
  if (clause < p->count && p->text[clause] == '?') return false;
  return hri_match_end(
             p->before, from, end,
             "like this one:|errors like these:|messages like these:|errors like this:|messages like this:") &&
         hri_match_at(p->text, behind, p->count,
                      "tells |tell |means |mean |says that |indicates |indicate |shows that ") &&
         !hri_match_any(p->before, from, end, HRI_OWN "|" HRI_MEETS "|" HRI_DIED "|" HRI_DIES);
}

/* What a change does away with: "the message becomes x instead of:". */
static bool is_replaced(const hri_oom_place *p, size_t from, size_t end) {
  enum { FAR = 300 };
  const size_t words = hri_match_last(p->before, from, end, "instead of|rather than");
  return words < end && words == from && hri_count_words(p->before, end, p->before_count) == 0 &&
         hri_match_any(p->before, from > FAR ? from - FAR : 0, from, "becomes|become|is now|are now|changes to");
}

/* "Error: x", and "Solution:" as the next line: an entry of a page that helps. */
static bool is_answered(const hri_oom_place *p) {
  size_t at = p->line_end;
  while (at < p->count && p->text[at] == ' ') at++;
  if (hri_match_at(p->text, at, p->count, "-> ") && p->text[p->line] != ' ' && !(p->shape & HRI_OOM_LEVEL)) return true;
  return hri_match_at(
             p->text, p->line, p->at,
             "error: |issue: |problem: |issue 1|issue 2|issue 3|issue 4|issue 5|problem 1|problem 2|problem 3") &&
         hri_match_at(p->text, at, p->count, "solution:|solutions:|fix:|cause:|causes:|resolution:");
}

/* Chinese: if the following error, if there appears, if one meets, if it reports; Japanese: may come, there are cases of, possibly. */
#define IF_SUCH_WIDE                                                                                                   \
  "\xe5\xa6\x82\xe6\x9e\x9c\xe6\x9c\x89\xe4\xbb\xa5\xe4\xb8\x8b|"                                                      \
  "\xe5\xa6\x82\xe6\x9e\x9c\xe5\x87\xba\xe7\x8e\xb0|\xe5\xa6\x82\xe6\x9e\x9c\xe9\x81\x87\xe5\x88\xb0|"                 \
  "\xe5\xa6\x82\xe6\x9e\x9c\xe6\x8a\xa5|\xe3\x81\x93\xe3\x81\xa8\xe3\x81\x8c\xe3\x81\x82|"                             \
  "\xe5\xa0\xb4\xe5\x90\x88\xe3\x81\x8c\xe3\x81\x82|\xe5\x8f\xaf\xe8\x83\xbd\xe6\x80\xa7\xe3\x81\x8c"

/* What is supposed, or said of whoever reads: German, French, Spanish, Portuguese, Russian. */
#define IF_SUCH_ABROAD                                                                                                 \
  "message d'erreur de type|message d'erreur du type|mensaje de error del tipo|fehlermeldung der art|"                 \
  "nehmen wir an|erhalten sie|bekommen sie|vous obtenez|vous verrez|si recibe|puede aparecer|"                         \
  "se os seus logs|si sus registros|voc\xc3\xaa pode receber|"                                                         \
  "\xd1\x81\xd0\xbe\xd0\xbe\xd0\xb1\xd1\x89\xd0\xb5\xd0\xbd\xd0\xb8\xd0\xb5 \xd0\xb2\xd0\xb8\xd0\xb4\xd0\xb0|"         \
  "\xd0\xb5\xd1\x81\xd0\xbb\xd0\xb8 \xd0\xb2\xd1\x8b \xd0\xbf\xd0\xbe\xd0\xbb\xd1\x83\xd1\x87|"                        \
  "\xd0\xb5\xd1\x81\xd0\xbb\xd0\xb8 \xd0\xb2\xd1\x8b \xd1\x83\xd0\xb2\xd0\xb8\xd0\xb4|"                                \
  "\xd0\xb2\xd1\x8b \xd0\xbf\xd0\xbe\xd0\xbb\xd1\x83\xd1\x87\xd0\xb8\xd1\x82\xd0\xb5|"                                 \
  "\xd0\xb2\xd1\x8b \xd1\x83\xd0\xb2\xd0\xb8\xd0\xb4\xd0\xb8\xd1\x82\xd0\xb5"

/* What such a sentence is about. */
#define ERROR_ABROAD                                                                                                   \
  "fehler|meldung|erreur|message|error|mensaje|erro|logs|\xd0\xbe\xd1\x88\xd0\xb8\xd0\xb1\xd0\xba|"                    \
  "\xd1\x81\xd0\xbe\xd0\xbe\xd0\xb1\xd1\x89\xd0\xb5\xd0\xbd\xd0\xb8"

/* What may come, or will: Chinese, Japanese, Korean, Russian, German, French, Spanish. People say "may" of what they guess, too. */
#define MAY_ABROAD                                                                                                     \
  "\xe5\x8f\xaf\xe8\x83\xbd\xe4\xbc\x9a|"                                                                              \
  "\xe5\x8f\xaf\xe8\x83\xbd\xe5\x87\xba\xe7\x8e\xb0\xe5\xa6\x82\xe4\xb8\x8b|"                                          \
  "\xe5\x8f\xaf\xe8\x83\xbd\xe5\x87\xba\xe7\x8e\xb0\xe4\xbb\xa5\xe4\xb8\x8b|"                                          \
  "\xe5\x8f\xaf\xe8\x83\xbd\xe9\x81\x87\xe5\x88\xb0|\xe5\x8f\xaf\xe8\x83\xbd\xe6\x8a\xa5|"                             \
  "\xe9\x80\x9a\xe5\xb8\xb8\xe4\xbc\x9a|\xe4\xbd\xa0\xe4\xbc\x9a\xe7\x9c\x8b\xe5\x88\xb0|"                             \
  "\xe4\xbd\xa0\xe4\xbc\x9a\xe9\x81\x87\xe5\x88\xb0|\xe6\x82\xa8\xe4\xbc\x9a\xe7\x9c\x8b\xe5\x88\xb0|"                 \
  "\xe3\x81\x93\xe3\x81\xa8\xe3\x81\x8c\xe3\x81\x82|\xec\x88\x98 \xec\x9e\x88\xec\x8a\xb5|"                            \
  "\xec\x88\x98 \xec\x9e\x88\xeb\x8b\xa4|\xea\xb2\x8c \xeb\x90\x9c\xeb\x8b\xa4|"                                       \
  "\xea\xb2\x8c \xeb\x90\xa8|\xd0\xbc\xd0\xbe\xd0\xb6\xd0\xb5\xd1\x82 \xd0\xbf\xd0\xbe\xd1\x8f\xd0\xb2|"               \
  "\xd0\xbc\xd0\xbe\xd0\xb6\xd0\xb5\xd1\x82 \xd0\xb2\xd0\xbe\xd0\xb7\xd0\xbd\xd0\xb8\xd0\xba|"                         \
  "\xd0\xbc\xd0\xbe\xd0\xb6\xd0\xb5\xd1\x82\xd0\xb5 \xd1\x83\xd0\xb2\xd0\xb8\xd0\xb4|"                                 \
  "\xd0\xbc\xd0\xbe\xd0\xb6\xd0\xb5\xd1\x82\xd0\xb5 \xd0\xbf\xd0\xbe\xd0\xbb\xd1\x83\xd1\x87|"                         \
  "kann folgende|k\xc3\xb6nnen folgende|peut appara\xc3\xaetre|pouvez obtenir|pouvez voir|"                            \
  "puede aparecer|puede ocurrir|puedes ver"

/* "The canonical message looks like this:", "you have hit something like this:": anybody's, in some languages. */
static bool is_typical(const char *text, size_t from, size_t end) {
  static const char typical[] =
      "typical error|typical message|typical failure|typical case|usual error|usual message|canonical|"
      "classic error|classic message|t\xc3\xadpico|typisch|typischer|typique";
  if (hri_match_any(text, from, end, HRI_OWN)) return false;
  return hri_match_any(text, from, end, typical) || hri_match_part(text, from, end, "\xe5\x85\xb8\xe5\x9e\x8b") ||
         (hri_match_any(text, from, end, "you have|you'll|you will|you may|you might|you see") &&
          hri_match_end(text, from, end, "like this:|like this|something like:"));
}

/* I, we, our, in more languages than HRI_OWN_ABROAD has. */
static const char own_abroad[] = HRI_OWN_ABROAD
    "|\xeb\x82\xb4\xea\xb0\x80 |\xeb\x82\x98\xeb\x8a\x94 |\xec\x9a\xb0\xeb\xa6\xac |\xec\xa0\x80\xed\x9d\xac| \xec\xa0\x9c |\xe5\x83\x95|"
    "\xe3\x81\x86\xe3\x81\xa1|\xe5\xbd\x93\xe6\x96\xb9|\xe5\x92\xb1|\xd1\x83 \xd0\xbd\xd0\xb0\xd1\x81|\xd0\xbc\xd1\x8b |\xd0\xbd\xd0\xb0\xd1\x88|"
    "notre| nos |nuestr|noss|unser| wir |nostr";

/* "Example output:", "expected output", as a label or a heading, and the same in other languages: nobody's, unless somebody's run is spoken
 * of close by. */
static bool is_example(const hri_oom_place *p, size_t from, size_t end) {
  enum { FAR = 300, LONGEST = 80 };
  static const char labels[] =
      "example output|sample output|expected output|beispielausgabe|"
      "beispielmeldung|beispiel f\xc3\xbcr eine|exemple de sortie|exemple d'erreur|exemple de message|ejemplo de salida|ejemplo de error|"
      "ejemplo de mensaje|exemplo de sa\xc3\xad"
      "da|exemplo de erro|exemplo de mensagem|esempio di output|esempio di errore|esempio di messaggio|"
      /* Russian, Chinese, Japanese, Korean: example of output, of an error, of a message */
      "\xd0\x9f\xd1\x80\xd0\xb8\xd0\xbc\xd0\xb5\xd1\x80 \xd0\xb2\xd1\x8b\xd0\xb2\xd0\xbe\xd0\xb4\xd0\xb0|"
      "\xd0\xbf\xd1\x80\xd0\xb8\xd0\xbc\xd0\xb5\xd1\x80 \xd0\xb2\xd1\x8b\xd0\xb2\xd0\xbe\xd0\xb4\xd0\xb0|"
      "\xd0\x9f\xd1\x80\xd0\xb8\xd0\xbc\xd0\xb5\xd1\x80 \xd0\xbe\xd1\x88\xd0\xb8\xd0\xb1\xd0\xba\xd0\xb8|"
      "\xd0\xbf\xd1\x80\xd0\xb8\xd0\xbc\xd0\xb5\xd1\x80 \xd0\xbe\xd1\x88\xd0\xb8\xd0\xb1\xd0\xba\xd0\xb8|"
      "\xd0\x9f\xd1\x80\xd0\xb8\xd0\xbc\xd0\xb5\xd1\x80 \xd1\x81\xd0\xbe\xd0\xbe\xd0\xb1\xd1\x89\xd0\xb5\xd0\xbd\xd0\xb8\xd1\x8f|"
      "\xd0\xbf\xd1\x80\xd0\xb8\xd0\xbc\xd0\xb5\xd1\x80 \xd1\x81\xd0\xbe\xd0\xbe\xd0\xb1\xd1\x89\xd0\xb5\xd0\xbd\xd0\xb8\xd1\x8f|"
      "\xe7\xa4\xba\xe4\xbe\x8b\xe8\xbe\x93\xe5\x87\xba|\xe8\xbe\x93\xe5\x87\xba\xe7\xa4\xba\xe4\xbe\x8b|"
      "\xe6\x8a\xa5\xe9\x94\x99\xe7\xa4\xba\xe4\xbe\x8b|\xe9\x94\x99\xe8\xaf\xaf\xe7\xa4\xba\xe4\xbe\x8b|\xe5\x87\xba\xe5\x8a\x9b\xe4\xbe\x8b|"
      "\xe3\x82\xa8\xe3\x83\xa9\xe3\x83\xbc\xe4\xbe\x8b|\xe3\x82\xa8\xe3\x83\xa9\xe3\x83\xbc\xe3\x81\xae\xe4\xbe\x8b|"
      "\xec\xb6\x9c\xeb\xa0\xa5 \xec\x98\x88\xec\x8b\x9c|\xec\xb6\x9c\xeb\xa0\xa5 \xec\x98\x88|\xec\x97\x90\xeb\x9f\xac \xec\x98\x88\xec\x8b\x9c|"
      "\xec\x98\xa4\xeb\xa5\x98 \xec\x98\x88\xec\x8b\x9c|\xec\x98\x88\xec\x8b\x9c \xec\xb6\x9c\xeb\xa0\xa5";
  static const char alone[] =
      "beispiel|exemple|ejemplo|exemplo|esempio|\xd0\x9f\xd1\x80\xd0\xb8\xd0\xbc\xd0\xb5\xd1\x80|"
      "\xd0\xbf\xd1\x80\xd0\xb8\xd0\xbc\xd0\xb5\xd1\x80|\xe7\xa4\xba\xe4\xbe\x8b|\xe4\xbe\x8b|\xec\x98\x88\xec\x8b\x9c|\xec\x98\x88";
  static const char ran[] =
      HRI_OWN "|" HRI_DIED "|" HRI_DIES "|" HRI_MEETS "|run|runs|ran|stopped|killed|tried|now|again|still";
  const char *text = p->before;
  const size_t far = end > FAR ? end - FAR : 0, label = hri_match_next(text, from, end, labels);
  if (from >= end || end - from > LONGEST ||
      (label > from && label != end && !hri_match_at(text, label, end, "\xef\xbc\x9a| bei ")) ||
      (label == from && hri_match_next(text, from, end, alone) != end))
    return false;
  if (hri_oom_is_concrete(p->text, p->line, p->line_end)) return false; /* figures are of one run */
  return !hri_match_any(text, far, end, ran) && !hri_match_part(text, far, end, own_abroad);
}

/* The same as the last sentence before the message; who is asked for their output ("please paste") has met it. */
static bool sets_case_wide(const char *text, size_t end) {
  enum { REACH = 160, ABROAD = 320 };
  static const char stop[] = "\xe3\x80\x82", please[] = "\xe8\xaf\xb7";
  const size_t far = end > ABROAD ? end - ABROAD : 0;
  size_t from = end > REACH ? end - REACH : 0, to = end;
  if (hri_match_part(text, far, end, IF_SUCH_ABROAD) && hri_match_part(text, far, end, ERROR_ABROAD) &&
      !hri_match_part(text, far, end,
                      HRI_OWN_ABROAD "|s'arr\xc3\xaate|plante|depuis|termina |muere|desde|stirbt|bricht|seit "))
    return true;
  if (hri_match_end(text, from, to, stop)) to -= sizeof stop - 1; /* its own */
  for (size_t at = hri_oom_word(text, from, to, stop); at < to; at = hri_oom_word(text, from, to, stop))
    from = at + sizeof stop - 1;
  return hri_match_part(text, from, to, IF_SUCH_WIDE) && hri_oom_word(text, from, to, please) == to;
}

/* "If you get `...`, then reduce the batch": a case within its sentence. */
static bool is_quoted_case(const hri_oom_place *p) {
  const size_t from = hri_sentence_start(p->text, p->sentence, p->tick_from);
  if (p->tick_from >= p->tick_to || p->tick_from <= from) return false;
  return hri_match_any(p->text, from, p->tick_from, "if you|if your|should you") &&
         hri_match_at(p->text, p->tick_to, p->line_end, ", | you | then | try | reduce ") &&
         !hri_match_any(p->text, from, p->tick_from, HRI_OWN);
}

/* Whether what follows is one of several: "errors such as:", right before the colon. "4k video (e.g. x) results in:" is a case of x,
 * and so is "on ten nodes e.g., it crashes with:". */
static bool is_one_such(const char *text, size_t from, size_t end) {
  enum { JUST = 32 };
  const size_t near = from + JUST > end ? from : end - JUST, such = hri_match_whole(text, near, end, HRI_SUCH);
  return such < end && !(hri_match_at(text, such, end, "e.g., it |e.g. it ") &&
                         hri_match_any(text, such, end, "crashes|fails|dies|stops|exits|aborts|crashed|failed"));
}

bool hri_voice_foreseen(const hri_oom_place *p) {
  static const char cases[] =
      HRI_IF "|" HRI_MAY "|could|you'll|an example|example of|example:|this example|look for|"
             "one of these|one of the following|which results in|logs can show the following|"
             "log can show the following|logs can contain the following|log can contain the following";
  /* "here is the log, if you need it:", "in case it helps:", "if you read it you'll see the reason for the error:" */
  static const char own[] = HRI_OWN
      "|got|fix|fixes|fixed|would often|would always|used to|if you need|if you want|if it helps|in case that|in case it|in case this|"
      "in case you|in case anyone|below you will|below you'll|here you will|here you'll|you will find|you'll find|attached|the reason|"
      "if relevant|if applicable|if any|if available|if possible";
  /* "running it will produce the following error:" is what somebody did */
  static const char results[] =
      "will produce|will give|will yield|will raise|will throw|will trigger|will fail|will crash";
  const size_t end = intro_end(p);
  const bool colon = end > 0 && p->before[end - 1] == ':';
  const size_t far = end > 240 ? end - 240 : 0;
  const size_t from =
      colon ? hri_sentence_start(p->before, p->intro_from > far && p->intro_from < end ? p->intro_from : far, end - 1)
            : 0;
  if (is_quoted_case(p)) return true;
  if (end == 0) return false;
  size_t last_end = end;
  const size_t last = last_sentence(p, &last_end);
  const bool logged = p->shape & HRI_OOM_DATED && !(p->shape & HRI_OOM_FENCED); /* its own lines end with colons too */
  if (comes_whenever(p->before, last, last_end)) return true;
  if (!logged && is_example(p, last, last_end)) return true;
  if (!logged && (is_seen_by_you(p->before, last, last_end) || is_replaced(p, last, last_end) ||
                  (colon && is_shown(p->before, from, end))))
    return true;
  if (p->shape & HRI_OOM_DATED) return !logged && hri_page_shows_symptom(p, end);
  if (is_answered(p)) return true;
  if (sets_case_wide(p->before, end)) return true;
  if (will_come(p->before, end, p->shape & HRI_OOM_FENCED)) return true;
  if (!colon) return hri_page_shows_symptom(p, end) || sets_case(p->before, end) || is_likened(p->before, end);
  const bool will =
      hri_match_any(p->before, from, end, "will") &&
      (!hri_match_part(p->before, from, end, results) || hri_match_any(p->before, from, end, HRI_ANYBODY "|like"));
  if (is_typical(p->before, from, end) || is_of_reader(p->before, from, end) || is_of_kind(p, from, end) ||
      (hri_match_part(p->before, from, end, MAY_ABROAD) && !hri_match_part(p->before, from, end, HRI_OWN_ABROAD)))
    return true;
  return hri_page_shows_symptom(p, end) ||
         ((will || hri_match_any(p->before, from, end, cases) || is_one_such(p->before, from, end)) &&
          !hri_match_any(p->before, from, end, own));
}
