/* What people say in other languages than English, where no weight has learnt it: that they get the error, in the first
 * person, in German, the Romance languages and Russian, or that what is theirs ends with it; and that they ask whether another trouble of
 * theirs is one of memory, in Chinese and Russian. Other words of an event ("it crashes", "is killed") stand in explanations as often and
 * are left to the weights, and so is what is told in Chinese, Japanese and Korean.
 *
 * The neighbours may rely on this: of what is told the verb stands before the phrase in its sentence, and nothing in the sentence denies it or makes
 * it a condition; what is asked is asked in the phrase's own clause. */
#include "explain/match.h"
#include "explain/report_parts.h"

/* Whose it is: my, our. */
static const char own[] =
    "mein|meine|meinen|unser|unsere|unseren|mi|mis|nuestro|nuestra|mon|ma|mes|notre|meu|minha|nosso|nossa|mio|mia|"
    "nostro|nostra|mijn|onze";

/* What runs. */
static const char runs[] =
    "training|trainer|job|lauf|prozess|skript|script|programm|container|pod|modell|server|notebook|kernel|proceso|trabajo|"
    "entrenamiento|programa|contenedor|processo|treino|trabalho|conteneur|programme|entra\xc3\xaenement|processus|"
    "addestramento|run|tarea|modelo|mod\xc3\xa8le";

/* Ended, of a process, beside a verb that makes a passive or a past of it. */
static const char ended[] =
    "beendet|get\xc3\xb6tet|abgebrochen|abgeschossen|terminado|terminada|matado|matada|cancelado|detenido|tu\xc3\xa9|tu\xc3\xa9"
    "e|arr\xc3\xaat\xc3\xa9|interrompu|"
    "encerrado|encerrada|morto|morta|terminato|terminata|ucciso|uccisa|afgebroken|gedood";

/* Where the clause begins in which text[from) stands: what an earlier one denies is another matter, "it does not load, I get x". */
static size_t clause_of(const hri_oom_place *p, size_t start, size_t from) {
  static const char joints[] = ", | : |: | - | \xe2\x80\x94 | \xe2\x80\x93 ";
  for (size_t at = hri_match_first(p->text, start, from, joints); at < from;) {
    const size_t behind = hri_match_next(p->text, at, from, joints);
    if (p->text[at] != ':' || !hri_match_end(p->text, start, at, "error|exception"))
      start = behind; /* what was printed goes on */
    at = hri_match_first(p->text, behind, from, joints);
  }
  return start;
}

/* "Mein Training endet jedes Mal mit x", "mon script plante avec x", "mein Container wurde mit x beendet": what is somebody's comes to its end so,
 * right before text[from); or what is definite came to it, "o job terminou com x": the present with an article explains as often, and the passive
 * is said of tests and texts, too. */
static bool ends_with_it(const hri_oom_place *p, size_t clause, size_t from, size_t to) {
  static const char definite[] = "der |die |das |el |la |los |las |le |les |l'|o |a |os |as |il |lo |gli |i |de |het ";
  static const char now[] =
      "endet|st\xc3\xbcrzt|bricht|stirbt|termina|muere|falla|se cae|plante|s'arr\xc3\xaate|meurt|morre|falha|muore|crasha|stopt";
  static const char past[] =
      "endete|st\xc3\xbcrzte|brach|starb|termin\xc3\xb3|muri\xc3\xb3|fall\xc3\xb3|se cay\xc3\xb3|se cerr\xc3\xb3|a plant\xc3\xa9|"
      "s'est arr\xc3\xaat\xc3\xa9|s'est termin\xc3\xa9|terminou|morreu|"
      "falhou|caiu|fechou|\xc3\xa8 terminato|\xc3\xa8 crashato|stopte";
  static const char passive[] = "wurde|wird|fue|a \xc3\xa9t\xc3\xa9|foi|\xc3\xa8 stato|\xc3\xa8 stata|is";
  size_t end = from, first = clause;
  while (end > clause && strchr(" \"'`", p->text[end - 1])) end--;
  const size_t with = hri_match_last(p->text, clause, end, "mit|con|avec|com|met");
  const size_t whose = hri_match_whole(p->text, clause, with, own);
  static const char others[] = "que|qui|che|chi|ob|dass|wenn"; /* "mi script detecta un contenedor que ..." */
  while (first < with && strchr(" *-", p->text[first])) first++;
  if (with == end || !hri_match_any(p->text, clause, with, runs) || hri_match_any(p->text, clause, with, others))
    return false;
  if (whose < with && (hri_match_any(p->text, whose, with, now) || hri_match_any(p->text, whose, with, past) ||
                       (hri_match_any(p->text, whose, with, passive) && hri_match_any(p->text, whose, to, ended))))
    return true;
  return hri_match_at(p->text, first, with, definite) && hri_match_any(p->text, first, with, past);
}

/* "The OOM killer has killed my script", "Slurm cancelled my job, in state OUT_OF_MEMORY", "my process was killed by the OOM killer": who watches over a
 * machine ended what is somebody's. */
static bool is_killed_by_it(const hri_oom_place *p, size_t clause, size_t from, size_t end) {
  static const char names[] = "oom killer|oom-killer|out_of_memory|oomkilled|oom-killed|oom killed";
  static const char watchers[] = "slurm|kernel|linux|kubernetes|noyau|systemd|docker";
  static const char killed[] = /* German has "hat mein ... beendet"; Russian: killed my, our */
      "a tu\xc3\xa9 mon |a tu\xc3\xa9 ma |a tu\xc3\xa9 mes |a tu\xc3\xa9 notre |a annul\xc3\xa9 mon |a annul\xc3\xa9 notre |"
      "mat\xc3\xb3 mi |mat\xc3\xb3 mis |mat\xc3\xb3 nuestr|ha matado mi |cancel\xc3\xb3 mi |"
      "cancel\xc3\xb3 nuestr|termin\xc3\xb3 mi |matou meu |matou minha |matou noss|cancelou meu |cancelou noss|encerrou meu |ha ucciso il mio |"
      "ha ucciso la mia |ha ucciso il nostro |\xd1\x83\xd0\xb1\xd0\xb8\xd0\xbb \xd0\xbc\xd0\xbe|"
      "\xd1\x83\xd0\xb1\xd0\xb8\xd0\xbb\xd0\xb0 \xd0\xbc\xd0\xbe|\xd1\x83\xd0\xb1\xd0\xb8\xd0\xbb \xd0\xbd\xd0\xb0\xd1\x88";
  static const char passive[] = "wurde|fue|a \xc3\xa9t\xc3\xa9|foi|\xc3\xa8 stato|\xc3\xa8 stata|is";
  const size_t own_clause = clause_of(p, clause, from); /* "..., and the state OUT_OF_MEMORY is another" */
  if (!hri_match_at(p->text, from, end, names)) return false;
  if (hri_match_at(p->text, own_clause, from, "y |e |et |und |pero |mais |mas |ma |aber |en |maar "))
    clause = own_clause;
  if (!hri_match_at(p->text, from, end, "oom killer|oom-killer") && !hri_match_any(p->text, clause, from, watchers))
    return false;
  if (hri_match_part(p->text, clause, end, killed)) return true;
  const size_t has = hri_match_first(p->text, clause, end, "hat mein|hat unser");
  const size_t whose = hri_match_whole(p->text, clause, from, own);
  if (!hri_match_any(p->text, clause, end, runs)) return false; /* "meu professor foi morto de curiosidade" */
  return (has < end && hri_match_any(p->text, has, end, ended)) ||
         (whose < from && hri_match_any(p->text, whose, from, passive) && hri_match_any(p->text, whose, from, ended));
}

/* "CUDA out of memory hatası alıyorum": Turkish has its verb behind, and the sentence ends with it where it is somebody's. */
static bool is_got_behind(const hri_oom_place *p, size_t from, size_t end) {
  enum { BEHIND = 40 };
  static const char got[] = /* I get, we get, I got the error */
      "hatas\xc4\xb1 al\xc4\xb1yorum|hatas\xc4\xb1 al\xc4\xb1yoruz|hatas\xc4\xb1 ald\xc4\xb1m";
  const size_t far = from + BEHIND < end ? from + BEHIND : end, at = hri_match_first(p->text, from, far, got);
  const size_t behind = hri_match_next(p->text, at, end, got);
  return at < far && behind > at && (behind >= end || strchr(".,;:!", p->text[behind]));
}

/* Whether the sentence text[start, end) says that somebody got what stands at text[from), or that what is theirs ended with it. */
static bool is_got(const hri_oom_place *p, size_t start, size_t clause, size_t from, size_t end) {
  enum { NEAR = 60 };
  /* I get, it gives me */
  static const char gets[] =
      "bekomme ich|ich bekomme|kriege ich|ich kriege|erhalte ich|ich erhalte|bekam ich|ich bekam|bei mir kommt|kommt bei mir|"
      "j'obtiens|je re\xc3\xa7ois|j'ai l'erreur|j'ai une erreur|me sale|me aparece|me arroja|me salta|me lanza|obtengo|"
      "estou recebendo|ottengo|mi esce|mi appare|mi compare|ik krijg|krijg ik|dostaj\xc4\x99|"
      "m\xc3\xacnh b\xe1\xbb\x8b l\xe1\xbb\x97i|t\xc3\xb4i b\xe1\xbb\x8b l\xe1\xbb\x97i|em b\xe1\xbb\x8b l\xe1\xbb\x97i|"
      "m\xc3\xacnh g\xe1\xba\xb7p l\xe1\xbb\x97i|t\xc3\xb4i g\xe1\xba\xb7p l\xe1\xbb\x97i|em g\xe1\xba\xb7p l\xe1\xbb\x97i";
  /* Russian: it falls over at mine, I get the error, it falls over with */
  static const char parts[] =
      "\xd1\x83 \xd0\xbc\xd0\xb5\xd0\xbd\xd1\x8f \xd0\xb2\xd1\x8b\xd0\xbb\xd0\xb5\xd1\x82\xd0\xb0\xd0\xb5\xd1\x82|"
      "\xd1\x83 \xd0\xbc\xd0\xb5\xd0\xbd\xd1\x8f \xd0\xbf\xd0\xb0\xd0\xb4\xd0\xb0\xd0\xb5\xd1\x82|"
      "\xd1\x83 \xd0\xbc\xd0\xb5\xd0\xbd\xd1\x8f \xd0\xb2\xd1\x8b\xd0\xbb\xd0\xb5\xd1\x82\xd0\xb5\xd0\xbb|"
      "\xd1\x83 \xd0\xbc\xd0\xb5\xd0\xbd\xd1\x8f \xd1\x83\xd0\xbf\xd0\xb0\xd0\xbb|"
      "\xd0\xbe\xd0\xbb\xd1\x83\xd1\x87\xd0\xb0\xd1\x8e \xd0\xbe\xd1\x88\xd0\xb8\xd0\xb1\xd0\xba\xd1\x83|"
      "\xd0\xbe\xd0\xbb\xd1\x83\xd1\x87\xd0\xb0\xd1\x8e cuda|\xd0\xb2\xd1\x8b\xd0\xbb\xd0\xb5\xd1\x82\xd0\xb0\xd0\xb5\xd1\x82 \xd1\x81|"
      "\xd0\xb2\xd1\x8b\xd0\xbb\xd0\xb5\xd1\x82\xd0\xb0\xd0\xb5\xd1\x82 cuda|"
      "\xd0\xbf\xd0\xb0\xd0\xb4\xd0\xb0\xd0\xb5\xd1\x82 \xd1\x81 \xd0\xbe\xd1\x88\xd0\xb8\xd0\xb1\xd0\xba\xd0\xbe\xd0\xb9";
  const size_t near = clause + NEAR < from ? from - NEAR : clause;
  /* "ich bekomme fragen zu x" */
  static const char of[] = "zu|\xc3\xbc"
                           "ber|mit|statt|sobre|sur|over|su|o|v\xe1\xbb\x81|como";
  size_t verb = near, verbs = 0;
  for (size_t at = hri_match_whole(p->text, near, from, gets); at < from;
       at = hri_match_whole(p->text, at + 1, from, gets)) {
    verb = at;
    verbs++;
  }
  if (verbs > 0 && !hri_match_any(p->text, verb, from, of)) return true;
  return hri_match_part(p->text, near, from, parts) || is_got_behind(p, from, end) ||
         ends_with_it(p, clause, from, end) || is_killed_by_it(p, start, from, end);
}

/* Whether the sentence makes a case of it, or its clause denies it or asks for it. */
static bool is_no_event(const hri_oom_place *p, size_t start, size_t clause, size_t from, size_t end) {
  /* if, when, why, in order to avoid: of the whole sentence */
  static const char cases[] =
      "wenn|falls|warum|si|cuando|por qu\xc3\xa9|quand|pourquoi|quando|por que|perch\xc3\xa9|als ik|als je|waarom|n\xe1\xba\xbfu|th\xc3\xac|tr\xc3\xa1nh|"
      "evito|evitar|\xc3\xa9vite|\xc3\xa9viter|vermeide|vermeiden";
  static const char case_parts[] =
      "\xd0\xb5\xd1\x81\xd0\xbb\xd0\xb8|\xd0\xba\xd0\xbe\xd0\xb3\xd0\xb4\xd0\xb0|\xd1\x87\xd1\x82\xd0\xbe\xd0\xb1\xd1\x8b|"
      "\xd0\xbf\xd0\xbe\xd1\x87\xd0\xb5\xd0\xbc\xd1\x83|\xd0\x95\xd1\x81\xd0\xbb\xd0\xb8|\xd0\x9a\xd0\xbe\xd0\xb3\xd0\xb4\xd0\xb0|"
      "\xd0\xa7\xd1\x82\xd0\xbe\xd0\xb1\xd1\x8b|\xd0\x9f\xd0\xbe\xd1\x87\xd0\xb5\xd0\xbc\xd1\x83"; /* Russian */
  /* solutions, causes */
  static const char helps[] =
      "l\xc3\xb6sungen|l\xc3\xb6sung|ursachen|ursache|soluciones|solutions|causes|solu\xc3\xa7\xc3\xb5"
      "es|soluzioni|cause|causas";
  /* once, not, none, no more: of the clause */
  static const char denies[] =
      "fr\xc3\xbcher|nicht|kein|keine|keinen|ohne|sin|sans|pas|non|n\xc3\xa3o|sem|nie|jamais|nunca|mai|plus|kh\xc3\xb4ng|"
      "h\xe1\xba\xbft|\xc4\x91\xe1\xbb\xabng|geen|niet";
  static const char denied[] =
      "\xd0\xbd\xd0\xb5 |\xd0\xb1\xd0\xb5\xd0\xb7 |\xd0\xb1\xd0\xbe\xd0\xbb\xd1\x8c\xd1\x88\xd0\xb5"; /* Russian */
  if (hri_match_any(p->text, start, end, cases) || hri_match_part(p->text, start, end, case_parts) ||
      hri_match_at(p->text, start, end, "se | se "))
    return true;                                             /* "se o job terminou com x" */
  if (hri_match_any(p->text, from, end, helps)) return true; /* a title of them */
  if (end < p->line_end && p->text[end] == '?' && hri_match_first(p->text, from, end, ", | - ") == end)
    return true;                                       /* what the clause asks */
  return hri_match_any(p->text, clause, from, "no") || /* which is Portuguese behind it */
         hri_match_any(p->text, clause, end, denies) || hri_match_part(p->text, clause, end, denied);
}

bool hri_voice_tells_abroad(const hri_oom_place *p, size_t from) {
  enum { FAR = 160 };
  const size_t start = hri_sentence_start(p->text, p->line, from), clause = clause_of(p, start, from);
  const size_t far = from + FAR < p->line_end ? from + FAR : p->line_end, end = hri_sentence_end(p->text, from, far);
  if (p->shape & (HRI_OOM_SOURCE | HRI_OOM_AMONG | HRI_OOM_LITERAL | HRI_OOM_ROW | HRI_OOM_REMARK)) return false;
  return is_got(p, start, clause, from, end) && !is_no_event(p, start, clause, from, end);
}

/* The clause around text[from, to), whose marks are those of Chinese, too; *asked: it is a question. */
static size_t clause_around(const hri_oom_place *p, size_t from, size_t to, size_t *end, bool *asked) {
  static const char marks[] =
      "\xef\xbc\x8c|\xe3\x80\x82|\xef\xbc\x9b|\xe3\x80\x81|\xef\xbc\x9f|\xef\xbc\x81|,|;|?|!|. |\xef\xbc\x9a|: ";
  static const char questions[] = "\xef\xbc\x9f|?";
  const size_t line_end = p->line_end > to ? p->line_end : to;
  size_t start = p->sentence;
  for (size_t at = hri_match_first(p->text, start, from, marks); at < from;
       at = hri_match_first(p->text, start, from, marks))
    start = hri_match_next(p->text, at, from, marks);
  *end = hri_match_first(p->text, to, line_end, marks);
  *asked = hri_match_at(p->text, *end, line_end, questions);
  return start;
}

/* "Is that because memory overflowed?", "is it that memory was not enough?", "is this an overflow of memory?": the clause asks whether and nothing
 * more. Who asks what led to it has met it, and so has who asks whether they are the only one. */
static bool asks_in_chinese(const hri_oom_place *p, size_t from, size_t to) {
  /* is it so that, whether, can it really be; because of, belongs to, counts as */
  static const char
      whether
          [] = "\xe6\x98\xaf\xe4\xb8\x8d\xe6\x98\xaf|\xe6\x98\xaf\xe5\x90\xa6|"
               "\xe9\x9a\xbe\xe9\x81\x93\xe6\x98\xaf",
   because[] =
       "\xe6\x98\xaf\xe5\x9b\xa0\xe4\xb8\xba|\xe6\x98\xaf\xe7\x94\xb1\xe4\xba\x8e|\xe5\x9b\xa0\xe4\xb8\xba|\xe7\x94\xb1\xe4\xba\x8e|"
       "\xe5\xb1\x9e\xe4\xba\x8e|\xe7\xae\x97\xe6\x98\xaf";
  /* that is by itself; still, always, just, but, and the like, which end with the same character */
  static const char is
      [] = "\xe6\x98\xaf",
    other[] =
        "\xe8\xbf\x98\xe6\x98\xaf|\xe6\x80\xbb\xe6\x98\xaf|\xe8\x80\x81\xe6\x98\xaf|\xe5\xb0\xb1\xe6\x98\xaf|\xe4\xbd\x86\xe6\x98\xaf|"
        "\xe8\x80\x8c\xe6\x98\xaf|\xe9\x83\xbd\xe6\x98\xaf|\xe5\x8f\x88\xe6\x98\xaf|\xe4\xb9\x9f\xe6\x98\xaf|\xe4\xba\x8e\xe6\x98\xaf|"
        "\xe5\x8f\xaf\xe6\x98\xaf|\xe5\x8f\xaa\xe6\x98\xaf";
  static const char particles[] = "\xe5\x90\x97|\xe4\xb9\x88|\xe5\x98\x9b";
  /* why, how, led to, caused, I, only, not before */
  static const char presupposes[] =
      "\xe4\xb8\xba\xe4\xbb\x80\xe4\xb9\x88|\xe4\xb8\xba\xe4\xbd\x95|\xe6\x80\x8e\xe4\xb9\x88|\xe5\xa6\x82\xe4\xbd\x95|\xe5\xaf\xbc\xe8\x87\xb4|"
      "\xe5\xbc\x95\xe8\xb5\xb7|\xe9\x80\xa0\xe6\x88\x90|\xe5\xbc\x95\xe5\x8f\x91|\xe6\x88\x91|\xe5\x8f\xaa\xe6\x9c\x89|\xe6\x89\x8d";
  /* what may stand behind it: marks of a past and of an adjective, caused by, cause, problem, error, this, the particles */
  static const char of_it[] =
      "\xe4\xba\x86|\xe7\x9a\x84|\xe9\x80\xa0\xe6\x88\x90|\xe5\xaf\xbc\xe8\x87\xb4|\xe5\xbc\x95\xe8\xb5\xb7|\xe5\xbc\x95\xe5\x8f\x91|"
      "\xe6\x89\x80\xe8\x87\xb4|\xe5\x8e\x9f\xe5\x9b\xa0|\xe9\x97\xae\xe9\xa2\x98|\xe9\x94\x99\xe8\xaf\xaf|\xe6\x8a\xa5\xe9\x94\x99|"
      "\xe5\xbc\x82\xe5\xb8\xb8|\xe8\xbf\x99|\xe7\xa7\x8d|\xe6\x83\x85\xe5\x86\xb5|\xe5\x90\x97|\xe4\xb9\x88|\xe5\x98\x9b";
  size_t end, behind = to;
  bool asked;
  const size_t start = clause_around(p, from, to, &end, &asked);
  const size_t word = hri_match_first(p->text, start, from, whether);
  const size_t why = hri_match_first(p->text, start, from, because);
  const size_t verb = word < from ? word : why;
  for (size_t next = hri_match_next(p->text, to, end, of_it); next > behind;
       next = hri_match_next(p->text, behind, end, of_it))
    behind = next;
  while (behind < end && p->text[behind] == ' ') behind++;
  if (behind < end || hri_match_part(p->text, verb < from ? verb : start, from, presupposes)) return false;
  const bool particle = hri_match_part(p->text, to, end, particles);
  if (word < from) return true;
  if (why < from) return particle || asked;
  return particle && hri_match_end(p->text, start, from, is) && !hri_match_end(p->text, start, from, other);
}

/* "May this be because of a lack of memory, or is it another matter?": of what "this" is. Who asks why, or what to do, has met it. */
static bool asks_in_russian(const hri_oom_place *p, size_t from, size_t to) {
  /* this; connected with, because of, caused by, a consequence of; or; why, how to mend, what to do */
  static const char this
      [] = "\xd1\x8d\xd1\x82\xd0\xbe|\xd0\xad\xd1\x82\xd0\xbe",
  cause[] =
      "\xd1\x81\xd0\xb2\xd1\x8f\xd0\xb7\xd0\xb0\xd0\xbd\xd0\xbe \xd1\x81|\xd0\xb8\xd0\xb7-\xd0\xb7\xd0\xb0|"
      "\xd0\xb2\xd1\x8b\xd0\xb7\xd0\xb2\xd0\xb0\xd0\xbd\xd0\xbe|\xd1\x81\xd0\xbb\xd0\xb5\xd0\xb4\xd1\x81\xd1\x82\xd0\xb2\xd0\xb8\xd0\xb5",
  other[] = " \xd0\xb8\xd0\xbb\xd0\xb8";
  static const char presupposes[] =
      "\xd0\xbe\xd1\x87\xd0\xb5\xd0\xbc\xd1\x83|\xd0\xb0\xd0\xba \xd0\xb8\xd1\x81\xd0\xbf\xd1\x80\xd0\xb0\xd0\xb2|"
      "\xd1\x82\xd0\xbe \xd0\xb4\xd0\xb5\xd0\xbb\xd0\xb0\xd1\x82\xd1\x8c";
  size_t end, last;
  bool asked;
  const size_t start = clause_around(p, from, to, &end, &asked);
  if (!asked && end < p->line_end && p->text[end] == ',' && hri_match_at(p->text, end + 1, p->line_end, other)) {
    last = hri_sentence_end(p->text, end, p->line_end);
    asked = last < p->line_end && p->text[last] == '?';
  }
  const size_t subject = hri_match_first(p->text, start, from, this);
  return asked && subject < from && hri_match_part(p->text, subject, from, cause) &&
         !hri_match_part(p->text, start, end, presupposes);
}

bool hri_voice_asks_whether(const hri_oom_place *p, size_t from, size_t to) {
  bool wide = false;
  for (size_t i = p->sentence; i < from && !wide; i++) wide = (p->text[i] & 0x80) != 0;
  if (!wide) return false; /* nearly all lines */
  return asks_in_chinese(p, from, to) || asks_in_russian(p, from, to);
}
