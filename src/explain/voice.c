/* The weights of the signs. tests/explain/fit_voice.py fits them (a logistic regression in which what speaks for a report
 * may not count against it, nor the other way round) to labelled texts; docs/explain-measured.md says to which. A text is a report
 * where the best of its places is. */
#include "explain/voice.h"

enum { BIAS = 12 }; /* without any sign: the words stand by themselves */
static const int weights[HRI_SIGN_COUNT] =
    {[HRI_SIGN_GENERAL] = -21,  [HRI_SIGN_NAME] = -7,      [HRI_SIGN_KILL] = 0,        [HRI_SIGN_LOOSE] = 0,
     [HRI_SIGN_NAMED] = -31,    [HRI_SIGN_FIGURE] = 11,    [HRI_SIGN_LEVEL] = 21,      [HRI_SIGN_DATED] = 9,
     [HRI_SIGN_OPENS] = 19,     [HRI_SIGN_LABELLED] = 16,  [HRI_SIGN_FIELD] = 8,       [HRI_SIGN_PLACE] = 17,
     [HRI_SIGN_STACK] = 16,     [HRI_SIGN_CODE] = 7,       [HRI_SIGN_ALONE] = 15,      [HRI_SIGN_LAST] = 5,
     [HRI_SIGN_TOLD] = 18,      [HRI_SIGN_ENDED] = 6,      [HRI_SIGN_CONCRETE] = 25,   [HRI_SIGN_FENCED] = 14,
     [HRI_SIGN_TITLE] = 6,      [HRI_SIGN_MINE] = 8,       [HRI_SIGN_SOURCE] = -23,    [HRI_SIGN_LITERAL] = -14,
     [HRI_SIGN_AMONG] = -21,    [HRI_SIGN_COMMENT] = -27,  [HRI_SIGN_HEADING] = -23,   [HRI_SIGN_ROW] = -29,
     [HRI_SIGN_QUOTED] = -37,   [HRI_SIGN_TICKED] = -19,   [HRI_SIGN_CONDITION] = -42, [HRI_SIGN_PERSON] = -14,
     [HRI_SIGN_BEHIND] = -39,   [HRI_SIGN_TOPIC] = -19,    [HRI_SIGN_PATTERN] = -23,   [HRI_SIGN_ENTRY] = -39,
     [HRI_SIGN_PROSE] = 0,      [HRI_SIGN_TAIL] = -5,      [HRI_SIGN_ITEM] = -13,      [HRI_SIGN_KILL_TOLD] = -8,
     [HRI_SIGN_NAME_TOLD] = -3, [HRI_SIGN_PLAIN_TOLD] = -4};

/* Words that stand in a sentence count as such by what kind they are. */
uint64_t hri_voice_pairs(uint64_t signs) {
  const uint64_t sentence = HRI_SIGN_BIT(HRI_SIGN_PROSE) | HRI_SIGN_BIT(HRI_SIGN_TAIL);
  if (!(signs & sentence)) return signs;
  if (signs & HRI_SIGN_BIT(HRI_SIGN_KILL)) signs |= HRI_SIGN_BIT(HRI_SIGN_KILL_TOLD);
  if (signs & HRI_SIGN_BIT(HRI_SIGN_NAME)) signs |= HRI_SIGN_BIT(HRI_SIGN_NAME_TOLD);
  if (signs & HRI_SIGN_BIT(HRI_SIGN_GENERAL)) signs |= HRI_SIGN_BIT(HRI_SIGN_PLAIN_TOLD);
  return signs;
}

int hri_voice_weigh(uint64_t signs) {
  int sum = BIAS;
  signs = hri_voice_pairs(signs);
  for (int i = 0; i < HRI_SIGN_COUNT; i++)
    if (signs >> i & 1) sum += weights[i];
  return sum;
}

const char *hri_voice_sign_name(hri_sign sign) {
#define NAME(sign) [HRI_SIGN_##sign] = #sign
  static const char *const names[HRI_SIGN_COUNT] =
      {NAME(GENERAL), NAME(NAME),   NAME(KILL),      NAME(LOOSE),  NAME(NAMED),     NAME(FIGURE),    NAME(LEVEL),
       NAME(DATED),   NAME(OPENS),  NAME(LABELLED),  NAME(FIELD),  NAME(PLACE),     NAME(STACK),     NAME(CODE),
       NAME(ALONE),   NAME(LAST),   NAME(TOLD),      NAME(ENDED),  NAME(CONCRETE),  NAME(FENCED),    NAME(TITLE),
       NAME(MINE),    NAME(SOURCE), NAME(LITERAL),   NAME(AMONG),  NAME(COMMENT),   NAME(HEADING),   NAME(ROW),
       NAME(QUOTED),  NAME(TICKED), NAME(CONDITION), NAME(PERSON), NAME(BEHIND),    NAME(TOPIC),     NAME(PATTERN),
       NAME(ENTRY),   NAME(PROSE),  NAME(TAIL),      NAME(ITEM),   NAME(KILL_TOLD), NAME(NAME_TOLD), NAME(PLAIN_TOLD)};
#undef NAME
  return names[sign];
}
