/* Words by which people and documents speak of a failure, in classes of one meaning each. A word stands here because of what
 * it means anywhere; what counts in one place only stands there. A list for match.h is one class or several with "|"
 * between: HRI_IF "|" HRI_MAY. */
#ifndef HRI_EXPLAIN_LEXICON_H
#define HRI_EXPLAIN_LEXICON_H

/* A case is set: what follows need not have happened. "When" is no such word: "when running x" tells of one run. */
#define HRI_IF "if|should you|unless|whenever|whether|in case|otherwise|when you|when your"
/* What may be, or should. */
#define HRI_MAY "may|might|would|should|probably|perhaps|maybe"
/* What it is able to do, or will do: said of all runs, and of one. */
#define HRI_CAN "can|could|will"
/* What becomes of something by a rule, before the word for it. */
#define HRI_TO_BE "will be|would be|can be|could be|may be|might be|should be|must be|shall be"
/* A question, or what answers it. */
#define HRI_ASK "why|how|what is|what does|what to|question|faq|help with"
/* One of several. */
#define HRI_SUCH "e.g.|for example|such as"
/* It shall not be. */
#define HRI_AVOID "avoid|avoids|avoided|avoiding|prevent|prevents|prevented|preventing"
/* What programs do about it. */
#define HRI_HANDLE                                                                                                     \
  "handle|handles|handling|dealing with|deal with|deals with|catch|catches|detect|detects|detecting|recover|simulate|simulates|protect|retry|assert|expect"
/* What a change to a program does, as its title begins; what lists of changes say of it. */
#define HRI_CHANGE                                                                                                     \
  "fix|add|improve|support|refactor|feature|docs|document|explain|make|allow|update|remove|implement|enable|disable|"  \
  "introduce|increase|reduce|expose|emit|check|proposal|inherit|encapsulate|tolerate|simplify|ensure|propagate|rework"
#define HRI_CHANGE_MORE                                                                                                \
  "throw|return|use|turn|ignore|log|clear|set|skip|only|wait|drop|move|rename|switch|bump|"                            \
  "lower|raise|show|print|treat|keep|limit|propagate|convert|replace|rework|free|release|bail|tell|mention|clarify|"   \
  "correct|mark|pass|apply|try|stub|kill"
#define HRI_CHANGED                                                                                                    \
  "fixes|fixed|adds|added|improved|enabled|disabled|feat|chore|changelog|test|tests|todo|fixme|workaround|skipped|"    \
  "troubleshooting"
/* How it is in general. */
#define HRI_RULE                                                                                                       \
  "usually|error indicates|error means|never|means|raises|common|potential|possible|risk|likely to|lead to|leads to|leading to"
/* Labels of threads that ask for something, or are about it. */
#define HRI_REQUEST_TAGS                                                                                               \
  "[feature request]|[feature]|[feature req]|[rfc]|[proposal]|[enhancement]|[docs]|[doc]|[documentation]|[roadmap]|"   \
  "[idea]|[request]|[question]|[discussion]"
/* That it is not so. */
#define HRI_NOT "don't|do not|doesn't|does not|not an"
/* Another thing was meant to be, or was there. */
#define HRI_INSTEAD "instead of|rather than|as opposed to"
/* Nothing that happened, but a case of it. */
#define HRI_CASE HRI_IF "|" HRI_MAY "|" HRI_ASK "|" HRI_SUCH "|" HRI_AVOID
/* Whoever it may happen to. */
#define HRI_ANYBODY                                                                                                    \
  "you|your|you'll|users|people|they|anyone|anybody|someone|others|developers|beginners|engineers|customers|players|"  \
  "practitioners|researchers"
/* Who tells of it as their own. */
#define HRI_OWN "i|i'm|we|my|our|me|us"
/* Who tells of it as their own, in other languages: their words stand between blanks. */
#define HRI_OWN_ABROAD                                                                                                 \
  "\xe6\x88\x91|\xe8\xaf\xb7\xe9\x97\xae|\xe6\xb1\x82\xe5\x8a\xa9|\xe7\xa7\x81\xe3\x81\xaf|"                           \
  "\xe7\xa7\x81\xe3\x81\xae|\xec\xa0\x80\xeb\x8a\x94|\xec\xa0\x9c\xea\xb0\x80|"                                        \
  "\xd1\x83 \xd0\xbc\xd0\xb5\xd0\xbd\xd1\x8f|\xd0\xbc\xd0\xbe\xd0\xb9 |\xd0\xbc\xd0\xbe\xd1\x8f |"                     \
  " \xd0\xbc\xd0\xbd\xd0\xb5 | mir | mein| ich | je | mon | ma |j'ai| mi |tengo| estoy| meu | minha |"                 \
  " eu "
/* Something came to its end by itself, once; or does so. */
#define HRI_DIED "died|crashed|failed|aborted"
#define HRI_DIES "dies|crashes|fails|aborts"
/* Somebody or something came to it: what they came to follows. */
#define HRI_MEETS                                                                                                                                           \
  "got|get|getting|gives|gave|hit|hits|encountered|encounter|received|saw|seeing|met|having|facing|faced|experiencing|"                                     \
  "ran into|runs into|run into|running into|threw|raised|returned|returns|produced|reproduced|ooms|oomed|"                                                  \
  "print|printed|showed|and show|and shows|it shows|i see|we see|still has|still have|noticing|told|says|said|logged|caught|error is|error was|message is|" \
  "message was|output is|with reason|reason called|reason is|reason was|resulted in"

#endif
