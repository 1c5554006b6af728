/* Jobs by the names of their fields: set, get, and the options that make one job of another (headroom/field.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "job/fields.h"
#include "job/job.h"

static const hr_field *job_field(const char *name) {
  const hr_field *f = hr_field_find(name);
  return f && f->home == HR_HOME_JOB ? f : NULL;
}

static hr_status no_field(const char *name, hr_error *error) {
  const hr_field *other = hr_field_find(name);
  hri_near search;
  hri_fail(error, HR_ERROR_USAGE, "a job has no field '%.80s'", name);
  if (other && other->home == HR_HOME_RUN)
    return hri_hint(error, HR_ERROR_USAGE, "it belongs to a run: a member of hr_run_options (headroom/train.h)");
  hri_near_begin(&search, name);
  for (uint32_t k = 0; k < hr_field_count(); k++)
    if (hr_field_get(k)->home == HR_HOME_JOB) hri_near_offer(&search, hr_field_get(k)->name);
  if (hri_near_end(&search)) return hri_hint(error, HR_ERROR_USAGE, "%s", hri_near_end(&search));
  return hri_hint(error, HR_ERROR_USAGE,
                  "hr_field_get lists all fields (headroom/field.h); the options of headroom plan "
                  "have the same names");
}

hr_status hr_job_set(hr_job *job, const char *name, const char *text, hr_error *error) {
  const hr_field *f = job_field(name);
  hr_value value;
  if (!f) return no_field(name, error);
  HRI_TRY(hr_field_read(f, text ? text : "", NULL, &value, error));
  hr_field_store(f, &value, job);
  job->given |= f->given;
  return HR_OK;
}

bool hr_job_get(const hr_job *job, const char *name, char *out, uint64_t out_bytes) {
  const hr_field *f = job_field(name);
  hr_value value;
  if (!f) return false;
  hr_field_load(f, job, &value);
  hr_field_text(f, &value, out, out_bytes);
  return true;
}

/* ---- changes ---- */

/* A context or a chunk that nobody gave, and a chunk that was cut to fewer rows, follow from other fields: no change of
 * their own. */
static bool follows(const hr_field *f, const hr_job *before, const hr_job *after) {
  uint64_t rows = (uint64_t)after->micro_batch * after->sequence_length;
  if (f->home == HR_HOME_JOB && f->offset == offsetof(hr_job, context_length))
    return before->filled_context == before->context_length && after->filled_context == after->context_length;
  if (f->given != HR_GIVEN_LOSS_CHUNK) return false;
  return !((before->given | after->given) & f->given) || (after->loss_chunk == rows && before->loss_chunk > rows);
}

/* A chunk that was chosen where nobody gave one: as many tokens as it had may be another choice for other rows. */
static bool chosen_chunk(const hr_field *f, const hr_job *before, const hr_job *after) {
  hr_job left = *after;
  if (f->given != HR_GIVEN_LOSS_CHUNK || (before->given & f->given) || !(after->given & f->given)) return false;
  left.given &= ~f->given;
  left.loss_chunk = HR_LOSS_CHUNK_AUTO;
  return hri_loss_chunk(&left) != hri_loss_chunk(after);
}

/* Levels are compared and said for all layers, but one for all of them as briefly as it was given. */
static bool differs(const hr_field *f, const hr_job *before, const hr_job *after, char text[HR_FIELD_TEXT_BYTES]) {
  char old[HR_FIELD_TEXT_BYTES];
  hr_value value;
  if (f->home != HR_HOME_JOB || follows(f, before, after)) return false;
  hr_field_load(f, before, &value);
  hr_field_text(f, &value, old, sizeof old);
  hr_field_load(f, after, &value);
  if (strcmp(old, hr_field_text(f, &value, text, HR_FIELD_TEXT_BYTES)) == 0) return chosen_chunk(f, before, after);
  if (value.recompute.level_count == 1) value.layer_count = 0;
  hr_field_text(f, &value, text, HR_FIELD_TEXT_BYTES);
  return true;
}

/* The row behind `last` in the order in which changes are said: those with a place of their own, then the rest of the
 * table. */
static const hr_field *next_said(const hr_field *last) {
  const hr_field *best = NULL;
  for (uint32_t k = 0; k < hr_field_count(); k++) {
    const hr_field *f = hr_field_get(k);
    uint32_t place = f->said ? f->said : UINT32_MAX, after = !last ? 0 : last->said ? last->said : UINT32_MAX;
    if (last && (place < after || (place == after && f <= last))) continue;
    if (!best || place < (best->said ? best->said : UINT32_MAX)) best = f;
  }
  return best;
}

char *hr_job_options(const hr_job *before, const hr_job *after, char *out, uint64_t out_bytes) {
  char text[HR_FIELD_TEXT_BYTES];
  size_t used = 0;
  if (out_bytes) out[0] = 0;
  for (const hr_field *f = next_said(NULL); f && used < out_bytes; f = next_said(f)) {
    if (!differs(f, before, after, text)) continue;
    if (f->kind == HR_FIELD_FLAG)
      used += (size_t)snprintf(out + used, (size_t)(out_bytes - used), "%s--%s%s", used ? " " : "",
                               strcmp(text, "true") == 0 ? "" : "no-", f->name);
    else if (text[0])
      used += (size_t)snprintf(out + used, (size_t)(out_bytes - used), "%s--%s %s", used ? " " : "", f->name, text);
  }
  return out;
}

/* Blocks that are kept have the values that are loaded without that. */
static bool same_weights(const hr_job *job) {
  return job->quantize == HR_QUANTIZE_NONE || job->quantize == HR_QUANTIZE_KEEP;
}

hr_effect hr_job_effect(const hr_job *before, const hr_job *after) {
  char text[HR_FIELD_TEXT_BYTES];
  hr_effect worst = HR_EFFECT_SAME_BITS;
  const hr_field *quantize = hr_field_find("quantize");
  for (uint32_t k = 0; k < hr_field_count(); k++) {
    const hr_field *f = hr_field_get(k);
    if (f == quantize && same_weights(before) && same_weights(after)) continue;
    if (f->effect > worst && differs(f, before, after, text)) worst = f->effect;
  }
  return worst;
}

/* The word at *text and what is behind it; false at the end. */
static bool take_word(const char **text, char out[HR_FIELD_TEXT_BYTES]) {
  size_t length;
  *text += strspn(*text, " ");
  length = strcspn(*text, " ");
  (void)snprintf(out, HR_FIELD_TEXT_BYTES, "%.*s",
                 (int)(length < HR_FIELD_TEXT_BYTES ? length : HR_FIELD_TEXT_BYTES - 1), *text);
  *text += length;
  return length > 0;
}

hr_status hr_job_set_options(hr_job *job, const char *options, hr_error *error) {
  char word[HR_FIELD_TEXT_BYTES], text[HR_FIELD_TEXT_BYTES];
  hr_job made = *job;
  while (take_word(&options, word)) {
    bool negated = strncmp(word, "--no-", 5) == 0;
    const char *name = word + (negated ? 5 : 2);
    const hr_field *f;
    if (strncmp(word, "--", 2) != 0) return hri_fail(error, HR_ERROR_USAGE, "'%.80s' is no option", word);
    f = job_field(name);
    if (!f) return no_field(name, error);
    if (f->kind == HR_FIELD_FLAG) (void)snprintf(text, sizeof text, "%s", negated ? "false" : "true");
    else if (negated || !take_word(&options, text))
      return hri_fail(error, HR_ERROR_USAGE, "--%s wants a value", f->name);
    if (f->kind == HR_FIELD_TEXT || f->kind == HR_FIELD_PATH) {
      hri_fail(error, HR_ERROR_USAGE, "--%s: a job borrows this text, and here it stands among others", f->name);
      return hri_hint(error, HR_ERROR_USAGE, "hr_job_set(job, \"%s\", text, error)", f->name);
    }
    HRI_TRY(hr_job_set(&made, name, text, error));
  }
  *job = made;
  return HR_OK;
}
