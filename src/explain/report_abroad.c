/* What people tell of their own in other languages than English, where no weight has learnt it: that they get the error, in the first
 * person, in German, the Romance languages and Russian. Other words of an event ("it crashes", "is killed") stand in explanations as
 * often and are left to the weights, and so are Chinese, Japanese and Korean.
 *
 * The neighbours may rely on this: the verb stands before the phrase in its sentence, and nothing in the sentence denies it or makes it a
 * condition. */
#include "explain/match.h"
#include "explain/report_parts.h"

bool hri_voice_tells_abroad(const hri_oom_place *p, size_t from) {
  enum { NEAR = 60, FAR = 160 };
  /* I get, it gives me */
  static const char gets[] =
      "bekomme ich|ich bekomme|kriege ich|ich kriege|erhalte ich|ich erhalte|bekam ich|j'obtiens|je re\xc3\xa7ois|me sale|"
      "me arroja|me salta|obtengo|estou recebendo|ottengo";
  /* Russian: it falls over at mine, I get the error, it falls over with */
  static const char parts[] =
      "\xd1\x83 \xd0\xbc\xd0\xb5\xd0\xbd\xd1\x8f \xd0\xb2\xd1\x8b\xd0\xbb\xd0\xb5\xd1\x82\xd0\xb0\xd0\xb5\xd1\x82|"
      "\xd1\x83 \xd0\xbc\xd0\xb5\xd0\xbd\xd1\x8f \xd0\xbf\xd0\xb0\xd0\xb4\xd0\xb0\xd0\xb5\xd1\x82|"
      "\xd1\x83 \xd0\xbc\xd0\xb5\xd0\xbd\xd1\x8f \xd0\xb2\xd1\x8b\xd0\xbb\xd0\xb5\xd1\x82\xd0\xb5\xd0\xbb|"
      "\xd1\x83 \xd0\xbc\xd0\xb5\xd0\xbd\xd1\x8f \xd1\x83\xd0\xbf\xd0\xb0\xd0\xbb|"
      "\xd0\xbf\xd0\xbe\xd0\xbb\xd1\x83\xd1\x87\xd0\xb0\xd1\x8e \xd0\xbe\xd1\x88\xd0\xb8\xd0\xb1\xd0\xba\xd1\x83|"
      "\xd0\xbf\xd0\xbe\xd0\xbb\xd1\x83\xd1\x87\xd0\xb0\xd1\x8e cuda|"
      "\xd0\xb2\xd1\x8b\xd0\xbb\xd0\xb5\xd1\x82\xd0\xb0\xd0\xb5\xd1\x82 \xd1\x81|"
      "\xd0\xb2\xd1\x8b\xd0\xbb\xd0\xb5\xd1\x82\xd0\xb0\xd0\xb5\xd1\x82 cuda|"
      "\xd0\xbf\xd0\xb0\xd0\xb4\xd0\xb0\xd0\xb5\xd1\x82 \xd1\x81 \xd0\xbe\xd1\x88\xd0\xb8\xd0\xb1\xd0\xba\xd0\xbe\xd0\xb9";
  static const char denies[] =
      "evito|evitar|\xc3\xa9vite|\xc3\xa9viter|vermeide|vermeiden|wenn|falls|si|quand|cuando|quando|nicht|kein|keine|ohne|no|sin|sans|pas|non|n\xc3\xa3o|sem|nie|jamais|nunca|mai|plus";
  /* Russian: if, when, so that, not, without, more */
  static const char denied[] =
      "\xd0\xb5\xd1\x81\xd0\xbb\xd0\xb8|\xd0\xba\xd0\xbe\xd0\xb3\xd0\xb4\xd0\xb0|\xd1\x87\xd1\x82\xd0\xbe\xd0\xb1\xd1\x8b|"
      "\xd0\xbd\xd0\xb5 |\xd0\xb1\xd0\xb5\xd0\xb7 |\xd0\xb1\xd0\xbe\xd0\xbb\xd1\x8c\xd1\x88\xd0\xb5";
  const size_t start = hri_sentence_start(p->text, p->line, from), near = start + NEAR < from ? from - NEAR : start;
  const size_t far = from + FAR < p->line_end ? from + FAR : p->line_end, end = hri_sentence_end(p->text, from, far);
  if (p->shape & (HRI_OOM_SOURCE | HRI_OOM_AMONG | HRI_OOM_LITERAL | HRI_OOM_ROW | HRI_OOM_REMARK)) return false;
  if (hri_match_any(p->text, start, end, denies) || hri_match_part(p->text, start, end, denied)) return false;
  return hri_match_any(p->text, near, from, gets) || hri_match_part(p->text, near, from, parts);
}
