/* Changes of a job, as values, and their words. */
#include <stdio.h>
#include <string.h>

#include "search/search.h"

/* What each choice of levels is, and what --recompute calls it. */
static const struct {
  const char *word;
  hr_recompute value;
} levels[HRI_LEVELS_COUNT] = {
    [HRI_LEVELS_SELECTIVE] = {"selective", {.kind = HR_RECOMPUTE_SELECTIVE}},
    [HRI_LEVELS_MLP] = {"levels:mlp", {.kind = HR_RECOMPUTE_LEVELS, .levels = {HR_LEVEL_MLP}, .level_count = 1}},
    [HRI_LEVELS_ATTENTION] = {"levels:attention", {.kind = HR_RECOMPUTE_LEVELS, .levels = {HR_LEVEL_ATTENTION}, .level_count = 1}},
    [HRI_LEVELS_BLOCK] = {"block", {.kind = HR_RECOMPUTE_BLOCK}},
    [HRI_LEVELS_SQRT] = {"sqrt", {.kind = HR_RECOMPUTE_SQRT}},
    [HRI_LEVELS_AUTO] = {"auto", {.kind = HR_RECOMPUTE_AUTO}},
};

uint32_t hri_change_parts(const hri_change *c) {
  return (c->levels != HRI_LEVELS_KEPT) + (c->split > 1) + (c->chunk > 0) + (uint32_t)__builtin_popcount(c->algorithm);
}

/* ---- levels ---- */

static uint8_t level_at(const hr_recompute *r, uint32_t layer) {
  if (r->level_count == 0) return HR_LEVEL_KEEP;
  return r->levels[layer < r->level_count ? layer : r->level_count - 1]; /* the last repeats */
}

/* LEVELS that are the same everywhere may be a kind of their own. */
static hr_recompute_kind kind_of(const hr_recompute *r, uint32_t layers) {
  if (r->kind != HR_RECOMPUTE_LEVELS) return r->kind;
  for (uint32_t l = 1; l < layers; l++)
    if (level_at(r, l) != level_at(r, 0)) return r->kind;
  return level_at(r, 0) == HR_LEVEL_KEEP ? HR_RECOMPUTE_NONE : level_at(r, 0) == HR_LEVEL_BLOCK ? HR_RECOMPUTE_BLOCK : r->kind;
}

static bool same_levels(const hr_recompute *a, const hr_recompute *b, uint32_t layers) {
  if (kind_of(a, layers) != kind_of(b, layers)) return false;
  if (kind_of(a, layers) == HR_RECOMPUTE_EVERY) return a->every == b->every;
  for (uint32_t l = 0; kind_of(a, layers) == HR_RECOMPUTE_LEVELS && l < layers; l++)
    if (level_at(a, l) != level_at(b, l)) return false;
  return true;
}

/* ---- applying ---- */

static void free_chunk(hr_job *job) {
  if (!(job->given & HR_GIVEN_LOSS_CHUNK)) job->loss_chunk = HR_LOSS_CHUNK_AUTO;
}

static bool apply_algorithm(unsigned algorithm, hr_job *job) {
  if (algorithm & (HRI_CHANGE_SGD | HRI_CHANGE_MOMENTUM)) {
    hr_optimizer wanted = algorithm & HRI_CHANGE_SGD ? HR_OPTIMIZER_SGD : HR_OPTIMIZER_MOMENTUM;
    if (job->optimizer == HR_OPTIMIZER_SGD || job->optimizer == wanted) return false;
    job->optimizer = wanted;
  }
  if (algorithm & HRI_CHANGE_IN_BACKWARD) {
    if (job->update == HR_UPDATE_IN_BACKWARD || job->accumulate > 1) return false;
    job->update = HR_UPDATE_IN_BACKWARD;
    job->on_nonfinite = HR_ON_NONFINITE_STOP;
    job->clip = 0;
    job->given |= HR_GIVEN_CLIP;
  }
  if (algorithm & (HRI_CHANGE_BF16 | HRI_CHANGE_BF16_PURE)) {
    if (job->precision != HR_PRECISION_FP32 || (job->given & HR_GIVEN_PRECISION)) return false;
    job->precision = algorithm & HRI_CHANGE_BF16 ? HR_PRECISION_BF16 : HR_PRECISION_BF16_PURE;
  }
  if (algorithm & HRI_CHANGE_HALF_SEQUENCE) {
    if (job->sequence_length < 128) return false;
    job->sequence_length /= 2;
    free_chunk(job);
  }
  return true;
}

bool hri_change_apply(const hri_change *c, hr_job *job) {
  if (c->levels != HRI_LEVELS_KEPT) {
    if (same_levels(&job->recompute, &levels[c->levels].value, job->model.layer_count)) return false;
    job->recompute = levels[c->levels].value;
  }
  if (c->split > 1) {
    if (job->micro_batch % c->split || job->micro_batch / c->split == 0 || job->update == HR_UPDATE_IN_BACKWARD) return false;
    job->micro_batch /= c->split;
    job->accumulate *= c->split;
    free_chunk(job);
  }
  if (c->chunk) {
    if ((uint64_t)job->micro_batch * job->sequence_length <= c->chunk || job->loss_chunk == c->chunk) return false;
    job->loss_chunk = c->chunk;
  }
  return apply_algorithm(c->algorithm, job) && hr_job_finish(job, NULL) == HR_OK;
}

/* ---- words ---- */

static void append(char *out, const char *text) {
  size_t used = strlen(out);
  (void)snprintf(out + used, HR_FIX_TEXT_BYTES - used, "%s%s", used ? " " : "", text);
}

static void append_algorithm(unsigned algorithm, const hr_job *base, const hr_job *changed, char *out) {
  char text[64];
  if (algorithm & (HRI_CHANGE_SGD | HRI_CHANGE_MOMENTUM)) append(out, algorithm & HRI_CHANGE_SGD ? "--optimizer sgd" : "--optimizer momentum");
  if (algorithm & HRI_CHANGE_IN_BACKWARD) {
    append(out, base->clip > 0 ? "--update in-backward --clip 0" : "--update in-backward");
    if (base->on_nonfinite == HR_ON_NONFINITE_SKIP) append(out, "--on-nonfinite stop");
  }
  if (algorithm & (HRI_CHANGE_BF16 | HRI_CHANGE_BF16_PURE)) append(out, algorithm & HRI_CHANGE_BF16 ? "--precision bf16" : "--precision bf16-pure");
  if (algorithm & HRI_CHANGE_HALF_SEQUENCE) {
    (void)snprintf(text, sizeof text, "--seq %u", changed->sequence_length);
    append(out, text);
  }
}

/* `word`: of --recompute. */
static void write_options(const hri_change *c, const char *word, const hr_job *base, const hr_job *changed, char *out) {
  char text[300];
  out[0] = 0;
  if (c->levels != HRI_LEVELS_KEPT) {
    (void)snprintf(text, sizeof text, "--recompute %s", word);
    append(out, text);
  }
  if (c->split > 1) {
    (void)snprintf(text, sizeof text, "--micro-batch %u --accumulate %u", changed->micro_batch, changed->accumulate);
    append(out, text);
  }
  if (c->chunk) {
    (void)snprintf(text, sizeof text, "--loss-chunk %u", c->chunk);
    append(out, text);
  }
  append_algorithm(c->algorithm, base, changed, out);
}

void hri_change_text(const hri_change *c, const hr_job *base, const hr_job *changed, char out[HR_FIX_TEXT_BYTES]) {
  char chosen[256];
  size_t used;
  write_options(c, levels[c->levels].word, base, changed, out);
  if (c->levels != HRI_LEVELS_AUTO || changed->recompute.kind == HR_RECOMPUTE_AUTO) return;
  used = strlen(out) - strlen("auto");
  hr_recompute_text(&changed->recompute, changed->model.layer_count, chosen, sizeof chosen);
  if (used + strlen(chosen) < HR_FIX_TEXT_BYTES) write_options(c, chosen, base, changed, out); /* else auto says as much */
}
