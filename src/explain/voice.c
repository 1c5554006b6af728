/* The weights of the signs. They were fitted (a logistic regression in which what speaks for a report may not count
 * against it, nor the other way round) to labelled texts: tests/explain's cases, some 850 excerpts of logs, threads and
 * documents, and lines of source with such words. A text is a report where the best of its places is. */
#include "explain/voice.h"

enum { BIAS = 7 }; /* without any sign: the words stand by themselves */
static const int weights[HRI_SIGN_COUNT] =
    {[HRI_SIGN_GENERAL] = -17,  [HRI_SIGN_NAME] = -5,       [HRI_SIGN_KILL] = 0,       [HRI_SIGN_NAMED] = -28,
     [HRI_SIGN_FIGURE] = 6,     [HRI_SIGN_LEVEL] = 20,      [HRI_SIGN_DATED] = 7,      [HRI_SIGN_OPENS] = 17,
     [HRI_SIGN_LABELLED] = 11,  [HRI_SIGN_FIELD] = 5,       [HRI_SIGN_PLACE] = 13,     [HRI_SIGN_TRACE] = 8,
     [HRI_SIGN_STACK] = 11,     [HRI_SIGN_CODE] = 4,        [HRI_SIGN_ALONE] = 15,     [HRI_SIGN_LAST] = 5,
     [HRI_SIGN_TOLD] = 22,      [HRI_SIGN_ENDED] = 6,       [HRI_SIGN_CONCRETE] = 22,  [HRI_SIGN_FENCED] = 15,
     [HRI_SIGN_SOURCE] = -50,   [HRI_SIGN_LITERAL] = -22,   [HRI_SIGN_AMONG] = -20,    [HRI_SIGN_COMMENT] = -24,
     [HRI_SIGN_HEADING] = -39,  [HRI_SIGN_ROW] = -28,       [HRI_SIGN_QUOTED] = -35,   [HRI_SIGN_TICKED] = -12,
     [HRI_SIGN_FORMAT] = -9,    [HRI_SIGN_CONDITION] = -36, [HRI_SIGN_PERSON] = -14,   [HRI_SIGN_BEHIND] = -37,
     [HRI_SIGN_TOPIC] = -13,    [HRI_SIGN_QUESTION] = -15,  [HRI_SIGN_ANSWERED] = -21, [HRI_SIGN_CHANGE] = -10,
     [HRI_SIGN_FOREIGN] = -14,  [HRI_SIGN_PATTERN] = -17,   [HRI_SIGN_ENTRY] = -36,    [HRI_SIGN_EXPLAINED] = -19,
     [HRI_SIGN_PROSE] = 0,      [HRI_SIGN_TAIL] = -3,       [HRI_SIGN_ITEM] = -15,     [HRI_SIGN_KILL_TOLD] = -4,
     [HRI_SIGN_NAME_TOLD] = -3, [HRI_SIGN_PLAIN_TOLD] = -1};

/* Words that stand in a sentence count as such by what kind they are. */
static uint64_t with_pairs(uint64_t signs) {
  const uint64_t sentence = HRI_SIGN_BIT(HRI_SIGN_PROSE) | HRI_SIGN_BIT(HRI_SIGN_TAIL);
  if (!(signs & sentence)) return signs;
  if (signs & HRI_SIGN_BIT(HRI_SIGN_KILL)) signs |= HRI_SIGN_BIT(HRI_SIGN_KILL_TOLD);
  if (signs & HRI_SIGN_BIT(HRI_SIGN_NAME)) signs |= HRI_SIGN_BIT(HRI_SIGN_NAME_TOLD);
  if (signs & HRI_SIGN_BIT(HRI_SIGN_GENERAL)) signs |= HRI_SIGN_BIT(HRI_SIGN_PLAIN_TOLD);
  return signs;
}

int hri_voice_weigh(uint64_t signs) {
  int sum = BIAS;
  signs = with_pairs(signs);
  for (int i = 0; i < HRI_SIGN_COUNT; i++)
    if (signs >> i & 1) sum += weights[i];
  return sum;
}
