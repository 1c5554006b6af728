/* Two messages that were written into one line: which figures are whose. */
#include "explain/message.h"

bool hri_oom_is_broken_off(const char *text, size_t count) {
  size_t at = hri_oom_word(text, 0, count, "tried to allocate");
  return at < count &&
         (hri_oom_word(text, at, count, "ib. gpu") < count || hri_oom_word(text, at, count, "ib (gpu") < count ||
          hri_oom_word(text, at, count, "es. gpu") < count || hri_oom_word(text, at, count, "es (gpu") < count);
}

void hri_oom_untangle(const hr_oom_failure *torn, hri_oom_message *message) {
  hr_oom_value *f = message->failure.figures;
  bool dropped = false;
  for (int i = 0; i < HR_OOM_FIGURE_COUNT; i++) {
    if (i == HR_OOM_REQUESTED || torn->figures[i].state == HR_OOM_READ || f[i].state == HR_OOM_ABSENT) continue;
    f[i] = (hr_oom_value){.state = HR_OOM_ABSENT};
    dropped = true;
  }
  if (torn->figures[HR_OOM_FREE].state != HR_OOM_READ || torn->figures[HR_OOM_ALLOCATED].state != HR_OOM_READ)
    message->process_count = 0; /* processes are listed between those */
  if (dropped)
    hri_oom_line(&message->failure,
                 "two messages were written into one line: figures that may be the other's are left out");
}

bool hri_oom_same_figures(const hr_oom_failure *a, const hr_oom_failure *b) {
  for (int i = 0; i < HR_OOM_FIGURE_COUNT; i++)
    if (i != HR_OOM_OTHER_PROCESSES && i != HR_OOM_THIS_PROCESS &&
        (a->figures[i].state != b->figures[i].state || a->figures[i].bytes != b->figures[i].bytes))
      return false;
  return true;
}
