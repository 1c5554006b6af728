/* Warnings about the course of a run; nothing here changes it. */
#include "train/doubt.h"

#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "train/schedule.h"

/* Rows go round: a step that takes more of them than there are learns from some of them twice. */
static void doubt_rows(const hri_session *session, const hr_job *job, uint64_t rows) {
  const uint64_t step = (uint64_t)job->micro_batch * job->accumulate;
  char text[240];
  if (rows == 0 || step <= rows) return;
  (void)
      hri_snprintf(text, sizeof text,
                   "a step takes %llu rows (micro-batch %u x accumulate %u) and the data make %llu: each is in a step "
                   "%.3g times; --micro-batch and --accumulate say how many a step takes",
                   (unsigned long long)step, job->micro_batch, job->accumulate, (unsigned long long)rows,
                   (double)step / (double)rows);
  hri_session_tell(session, HR_EVENT_WARNING, NULL, text);
}

/* The highest factor stands at the end of the warm-up, which such a run does not reach. */
static void doubt_warmup(const hri_session *session, const hr_job *job, uint64_t steps) {
  char text[240];
  if (steps == 0 || job->warmup < 1 || job->warmup < (double)steps) return;
  (void)hri_snprintf(text, sizeof text,
                     "the warm-up of %g steps does not end in the run's %llu: the learning rate reaches %.4g of %g; "
                     "--warmup 0.1 is a tenth of the steps",
                     job->warmup, (unsigned long long)steps,
                     job->learning_rate * hri_schedule_factor(job, steps - 1, steps), job->learning_rate);
  hri_session_tell(session, HR_EVENT_WARNING, NULL, text);
}

/* Weights that know pieces of text learn nothing of bytes: their tokenizer was left behind, most likely. */
void hri_doubt_words(const hri_session *session, const hri_dataset *data) {
  const hr_model *model = &session->plan->spec.model;
  char text[320];
  if (!model->has_weights || model->vocabulary_size <= HR_BYTE_VOCABULARY || !hri_dataset_is_bytes(data)) return;
  (void)snprintf(
      text, sizeof text,
      "%.100s has no tokenizer, so each byte of the data is a token, and its vocabulary of %u is not one of bytes; "
      "unless its weights were trained on bytes, name their tokenizer: --tokenizer DIR",
      model->name, model->vocabulary_size);
  hri_session_tell(session, HR_EVENT_WARNING, NULL, text);
}

/* A loss on what is trained on falls on and on, whether or not anything is learned for other texts. */
void hri_doubt_held(const hri_session *session, const hri_dataset *data, const hri_dataset *held) {
  const char *of_held, *of_data;
  char text[700], other[260] = "";
  if (!hri_dataset_shares(held, data, &of_held, &of_data)) return;
  if (strcmp(of_held, of_data) != 0) (void)snprintf(other, sizeof other, " as %.200s", of_data);
  (void)snprintf(
      text, sizeof text,
      "%.200s of --eval-data is trained on too, by --data%s: the loss on it says how well it is known by heart; "
      "name files that are not in --data, or hold back a share of it: --eval-split 1%%",
      of_held, other);
  hri_session_tell(session, HR_EVENT_WARNING, NULL, text);
}

void hri_doubt_course(const hri_session *session, const hr_job *job, uint64_t rows, uint64_t steps) {
  doubt_rows(session, job, rows);
  doubt_warmup(session, job, steps);
}
