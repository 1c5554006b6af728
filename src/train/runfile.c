/* run.json, written and read; and what others may ask of it (headroom/run.h). */
#include "train/runfile.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/file.h"
#include "base/json.h"
#include "train/checkpoint.h"
#include "train/manifest.h"

enum { PATH_BYTES = 4096 };

/* ---- the job ---- */

/* Scripts read these: names with underscores, numbers as numbers, words that stand for numbers as `plan --json` has them. */
static void put_field(hri_json_writer *w, const hr_field *f, const hr_job *job) {
  char key[64], text[HR_FIELD_TEXT_BYTES];
  hr_value v;
  (void)snprintf(key, sizeof key, "%s", f->name);
  for (char *c = key; *c; c++)
    if (*c == '-') *c = '_';
  hr_field_load(f, job, &v);
  if (hr_field_says_word(f, &v)) {
    hri_json_field_string(w, key, hr_field_text(f, &v, text, sizeof text));
    return;
  }
  switch (f->kind) {
  case HR_FIELD_U32:
  case HR_FIELD_U64:
  case HR_FIELD_SIZE: hri_json_field_u64(w, key, v.count); break;
  case HR_FIELD_SHARE:
  case HR_FIELD_NUMBER: hri_json_field_double(w, key, v.number[0]); break;
  case HR_FIELD_FLAG: hri_json_field_bool(w, key, v.flag); break;
  case HR_FIELD_PAIR: /* betas: beta1 and beta2 */
    key[strlen(key) - 1] = '1';
    hri_json_field_double(w, key, v.number[0]);
    key[strlen(key) - 1] = '2';
    hri_json_field_double(w, key, v.number[1]);
    break;
  default: hri_json_field_string(w, key, hr_field_text(f, &v, text, sizeof text));
  }
}

static void put_job(hri_json_writer *w, const hr_job *job) {
  hri_json_key(w, "job");
  hri_json_begin_object(w);
  for (uint32_t k = 0; k < hr_field_count(); k++)
    if (hri_field_filed(k)->home == HR_HOME_JOB && hri_field_filed(k)->keep != HR_KEEP_NEVER)
      put_field(w, hri_field_filed(k), job);
  hri_json_end_object(w);
}

/* ---- options ---- */

/* JSON cannot hold other bytes than UTF-8: a value that has them is not remembered, and must be given again. */
static bool all_utf8(const hr_field *f, const void *home) {
  bool all = true;
  for (uint32_t k = 0; all; k++) {
    hri_text text = {0};
    bool more = hri_field_text(f, home, k, &text);
    all = !more || hri_utf8_whole(hri_text_get(&text));
    hri_text_deinit(&text);
    if (!more) break;
  }
  return all;
}

static void put_value(hri_json_writer *w, const hr_field *f, const void *home) {
  hri_text text = {0};
  if (!all_utf8(f, home)) return;
  if (f->kind != HR_FIELD_PATHS) {
    if (hri_field_text(f, home, 0, &text)) hri_json_field_string(w, f->name, hri_text_get(&text));
  } else if (hri_field_text(f, home, 0, &text)) {
    hri_json_key(w, f->name);
    hri_json_begin_array(w);
    for (uint32_t k = 0;; k++) {
      hri_text_deinit(&text);
      text = (hri_text){0};
      if (!hri_field_text(f, home, k, &text)) break;
      hri_json_put_string(w, hri_text_get(&text));
    }
    hri_json_end_array(w);
  }
  if (text.failed) w->text->failed = true;
  hri_text_deinit(&text);
}

static const char *model_source(const hr_job *job, const hr_run_options *o) {
  return o->model_source ? o->model_source : job->model.directory[0] ? job->model.directory : job->model.name;
}

static void put_escaped(hri_json_writer *w, const char *key, const char *text) {
  hri_text escaped = {0};
  hri_field_escape(text, &escaped);
  hri_json_field_string(w, key, hri_text_get(&escaped));
  if (escaped.failed) w->text->failed = true;
  hri_text_deinit(&escaped);
}

static void put_options(hri_json_writer *w, const hr_job *job, const hr_run_options *o) {
  hri_json_key(w, "options");
  hri_json_begin_object(w);
  hri_json_field_string(w, "model", model_source(job, o));
  for (uint32_t k = 0; k < hr_field_count(); k++) {
    const hr_field *f = hri_field_filed(k);
    if (!hri_field_is_kept(f, job) || (strcmp(f->name, "steps") == 0 && job->steps == 0))
      continue; /* 0 steps: as many as --epochs makes */
    if (strcmp(f->name, "document-separator") != 0) put_value(w, f, hri_field_home(f, job, o));
    else if (o->data.document_separator)
      put_escaped(w, f->name, o->data.document_separator); /* the command line reads the escapes */
  }
  hri_json_end_object(w);
}

/* ---- absolute paths ---- */

static void put_absolute(hri_json_writer *w, const char *key, const char *path) {
  char full[PATH_MAX];
  if (path && realpath(path, full) && hri_utf8_whole(full)) hri_json_field_string(w, key, full);
}

static void put_absolute_list(hri_json_writer *w, const char *key, const char *const *paths, uint32_t count) {
  char full[PATH_MAX];
  if (count == 0) return;
  hri_json_key(w, key);
  hri_json_begin_array(w);
  for (uint32_t k = 0; k < count; k++)
    hri_json_put_string(w, realpath(paths[k], full) && hri_utf8_whole(full) ? full : paths[k]);
  hri_json_end_array(w);
}

static void put_absolutes(hri_json_writer *w, const hr_job *job, const hr_run_options *o) {
  hri_json_key(w, "absolute");
  hri_json_begin_object(w);
  put_absolute(w, "model",
               job->model.directory[0] || !hri_path_is_dir(model_source(job, o)) ? model_source(job, o)
                                                                                 : NULL); /* a preset is no path */
  put_absolute_list(w, "data", o->data_paths, o->data_path_count);
  put_absolute_list(w, "eval-data", o->eval_paths, o->eval_path_count);
  put_absolute(w, "chat-template", o->data.chat_template);
  put_absolute(w, "tokenizer", o->data.tokenizer);
  put_absolute(w, "data-cache", o->data.cache_directory);
  put_absolute(w, "adapter", job->adapter);
  hri_json_end_object(w);
}

/* ---- plan, machine, result ---- */

static void put_tier(hri_json_writer *w, const hr_tier_plan *t, uint32_t tier, const hr_run_result *result) {
  hri_json_key(w, hr_tier_name(tier));
  hri_json_begin_object(w);
  hri_json_field_u64(w, "planned_bytes", t->reserved_bytes);
  if (result) hri_json_field_u64(w, "reserved_bytes", result->reserved_bytes[tier]);
  hri_json_field_u64(w, "fixed_bytes", t->fixed_bytes);
  hri_json_field_u64(w, "peak_bytes", t->peak_bytes);
  hri_json_field_u64(w, "lower_bound_bytes", t->lower_bound_bytes);
  hri_json_key(w, "at_peak_by_role");
  hri_json_begin_object(w);
  for (uint32_t role = 0; role < HR_ROLE_COUNT; role++)
    hri_json_field_u64(w, hr_role_name(role), t->at_peak_by_role[role]);
  hri_json_end_object(w);
  hri_json_key(w, "peak_by_phase");
  hri_json_begin_object(w);
  for (uint32_t phase = 0; phase < HR_PHASE_COUNT; phase++)
    hri_json_field_u64(w, hr_phase_name(phase), t->peak_by_phase[phase]);
  hri_json_end_object(w);
  hri_json_end_object(w);
}

static void put_plan(hri_json_writer *w, const hri_session *s, const hr_run_result *result) {
  const hr_plan_info *info = &s->plan->info;
  hri_json_key(w, "plan");
  hri_json_begin_object(w);
  hri_json_field_u64(w, "budget_bytes", info->budget_bytes);
  hri_json_field_double(w, "step_seconds", info->step_seconds);
  hri_json_field_u64(w, "parameter_count", info->parameter_count);
  hri_json_key(w, "tiers");
  hri_json_begin_object(w);
  for (uint32_t tier = 0; tier < HR_TIER_COUNT; tier++) put_tier(w, &info->tiers[tier], tier, result);
  hri_json_end_object(w);
  hri_json_end_object(w);
}

/* Of the table that checkpoints hold. */
static void put_ways(hri_json_writer *w, const hri_backend *backend) {
  hri_text text = {0};
  hri_json_writer table = hri_json_writer_init(&text, 0);
  char digest[HRI_DIGEST_TEXT_BYTES];
  if (!backend->put_ways) return;
  backend->put_ways(backend->self, &table);
  hri_file_digest_text(hri_file_digest_of(text.chars, text.length), digest);
  hri_json_field_string(w, "ways", digest);
  if (text.failed) w->text->failed = true;
  hri_text_deinit(&text);
}

static void put_machine(hri_json_writer *w, const hri_session *s) {
  struct utsname system;
  hri_json_key(w, "machine");
  hri_json_begin_object(w);
  hri_json_field_string(w, "device", s->plan->spec.device.title);
  if (uname(&system) == 0) hri_json_field_string(w, "system", system.machine);
  hri_json_field_string(w, "instruction_set", s->plan->job.instruction_set);
  hri_json_field_u64(w, "threads", s->plan->job.team);
  put_ways(w, s->plan->backend);
  hri_json_end_object(w);
  hri_json_key(w, "versions");
  hri_json_begin_object(w);
  hri_json_field_string(w, "headroom", hr_version());
  hri_json_field_string(w, "libraries", s->plan->job.libraries);
  hri_json_end_object(w);
}

static void put_result(hri_json_writer *w, const hr_run_result *result) {
  hri_json_key(w, "result");
  hri_json_begin_object(w);
  hri_json_field_double(w, "loss", result->last_loss);
  hri_json_field_double(w, "eval_loss", result->eval_loss);
  hri_json_field_double(w, "best_eval_loss", result->best_eval_loss);
  hri_json_field_double(w, "seconds", result->seconds);
  hri_json_field_double(w, "tokens_per_second", result->tokens_per_second);
  hri_json_field_double(w, "step_seconds", result->step_seconds);
  hri_json_field_double(w, "predicted_step_seconds", result->predicted_step_seconds);
  hri_json_field_bool(w, "prediction_measured", result->prediction_measured);
  hri_json_field_u64(w, "process_peak_bytes", result->process_peak_bytes);
  if (result->device_grown_known) hri_json_field_u64(w, "device_grown_bytes", result->device_grown_bytes);
  hri_json_end_object(w);
}

static void put_final(hri_json_writer *w, const hri_rundir *r) {
  const hri_file_list *stands = r->published ? &r->final_files : &r->final_before,
                      *next = r->published ? NULL : &r->final_files;
  if (stands->count == 0 && (!next || next->count == 0)) return;
  hri_json_key(w, "final");
  hri_json_begin_object(w);
  if (stands->count) hri_files_put(w, "files", stands);
  if (next && next->count) hri_files_put(w, "next", next); /* about to take its name: whichever stands there is ours */
  hri_json_end_object(w);
}

static void put_changes(hri_json_writer *w, const hri_rundir *r) {
  hri_json list = {0};
  char *text;
  if (r->changes.length == 0) return;
  text = hri_alloc(r->changes.length + 3);
  if (!text) {
    w->text->failed = true;
    return;
  }
  (void)snprintf(text, r->changes.length + 3, "[%s]", r->changes.chars);
  hri_json_key(w, "changes");
  if (hri_json_parse(text, strlen(text), "changes", &list, NULL) == HR_OK) hri_json_put_tree(w, list.value);
  else w->text->failed = true;
  hri_json_deinit(&list);
  hri_free(text);
}

hr_status hri_run_write(hri_rundir *r, const hri_progress *p, const char *state, const hr_run_result *result,
                        hr_error *error) {
  const hri_session *s = r->session;
  hri_text text = {0};
  hri_json_writer writer = hri_json_writer_init(&text, 2), *w = &writer;
  char path[PATH_BYTES];
  hr_status status;
  if (r->lost) return HR_OK; /* it is another process's file */
  hri_json_begin_object(w);
  hri_json_field_u64(w, "schema_version", HRI_RUN_SCHEMA);
  hri_json_field_string(w, "run_id", hri_lock_id(r->lock));
  hri_json_field_string(w, "state", state);
  if (r->ended[0]) hri_json_field_string(w, "message", r->ended);
  hri_json_field_string(w, "model", s->plan->spec.model.name);
  hri_json_field_u64(w, "step", p->step);
  hri_json_field_u64(w, "steps", p->steps);
  hri_json_field_u64(w, "broken_rows", p->broken_rows);
  if (p->skipped_steps) hri_json_field_u64(w, "skipped_steps", p->skipped_steps);
  put_job(w, &s->plan->spec);
  put_plan(w, s, result);
  put_machine(w, s);
  put_options(w, r->job, r->options);
  put_absolutes(w, r->job, r->options);
  hri_identity_put(w, r->job, r->options, &r->facts);
  put_changes(w, r);
  put_final(w, r);
  if (result) put_result(w, result);
  hri_seal(&text, HRI_RUN_SEAL);
  status = text.failed ? hri_fail_memory(error, text.length, "run.json")
                       : hri_path_at(path, r->directory, "run.json", error);
  if (status == HR_OK) status = hri_scratch_replace(r->scratch, path, text.chars, text.length, true, error);
  if (status == HR_OK) r->written = true;
  hri_text_deinit(&text);
  return status;
}

/* ---- reading ---- */

static hr_status read_run(const char *directory, hri_json *root, char path[PATH_BYTES], hr_error *error) {
  char *bytes;
  uint64_t schema, count;
  bool whole;
  hr_status status;
  HRI_TRY(hri_path_at(path, directory, "run.json", error));
  HRI_TRY(hri_file_read(path, HRI_RUN_FILE_BYTES, &bytes, &count, error));
  status = hri_json_parse(bytes, count, path, root, error);
  whole = hri_seal_holds(HRI_RUN_SEAL, bytes, count);
  hri_free(bytes);
  HRI_TRY(status);
  HRI_TRY(hri_json_get_u64(root, "schema_version", 0, INT64_MAX, &schema, error));
  if (schema == 1 || (schema == HRI_RUN_SCHEMA && whole)) return HR_OK;
  if (schema == HRI_RUN_SCHEMA) {
    status = hri_fail(error, HR_ERROR_INPUT, "%s is damaged: it does not have the digest that it states", path);
    return hri_hint(error, status,
                    "put it back as it was; or move it away, and give MODEL, --data and the options once more");
  }
  status = hri_fail(error, HR_ERROR_INPUT, "%s has schema version %llu, and this version of Headroom reads up to %d",
                    path, (unsigned long long)schema, HRI_RUN_SCHEMA);
  return hri_hint(error, status, "go on with the version of Headroom that made the run, or a newer one");
}

hr_status hri_run_ended(const char *directory, bool *ended, hr_error *error) {
  char path[PATH_BYTES];
  const char *state;
  hri_json root = {0};
  hr_status status = read_run(directory, &root, path, error);
  *ended =
      status == HR_OK && hri_json_get_string(&root, "state", &state, NULL) == HR_OK && strcmp(state, "finished") == 0;
  hri_json_deinit(&root);
  return status;
}

static void add_change(hri_text *to, uint64_t step, const char *kind, const char *text) {
  hri_json_writer w = hri_json_writer_init(to, 0);
  if (to->length) hri_text_add(to, ",");
  hri_json_begin_object(&w);
  hri_json_field_u64(&w, "from_step", step);
  hri_json_field_string(&w, kind, text);
  hri_json_end_object(&w);
}

void hri_run_changed(hri_rundir *r, uint64_t from_step, const char *kind, const char *text) {
  add_change(&r->changes, from_step, kind, text);
}

/* Those of a list that begin before `until`. */
static void take_changes(hri_rundir *r, const hri_json *list, uint64_t until) {
  for (uint64_t k = 0; k < hri_json_count(list); k++) {
    hri_json item = hri_json_item(list, k);
    const char *text;
    uint64_t step;
    if (hri_json_get_u64(&item, "from_step", 0, INT64_MAX, &step, NULL) != HR_OK || step >= until) continue;
    if (hri_json_get_string(&item, "machine", &text, NULL) == HR_OK) add_change(&r->changes, step, "machine", text);
    if (hri_json_get_string(&item, "allowed", &text, NULL) == HR_OK) add_change(&r->changes, step, "allowed", text);
  }
}

/* Only what was allowed at this very step: what began before it is in the checkpoint, and what began behind it is not
 * settled here. */
void hri_run_settled(const hri_rundir *r, uint64_t step, hri_settled *s) {
  hri_json list;
  bool here = false;
  uint64_t steps = 0;
  *s = (hri_settled){0};
  if (read_run(r->directory, &s->root, s->path, NULL) != HR_OK ||
      hri_json_get_array(&s->root, "changes", &list, NULL) != HR_OK)
    return;
  for (uint64_t k = 0; k < hri_json_count(&list); k++) {
    hri_json item = hri_json_item(&list, k);
    uint64_t from;
    if (!hri_json_has(&item, "allowed") || hri_json_get_u64(&item, "from_step", 0, INT64_MAX, &from, NULL) != HR_OK)
      continue;
    here = here || from == step;
    if (from > step && (s->later_step == 0 || from < s->later_step)) s->later_step = from;
  }
  if (!here || s->later_step || hri_json_get_u64(&s->root, "steps", 0, INT64_MAX, &steps, NULL) != HR_OK ||
      hri_json_get_object(&s->root, "identity", &s->identity, NULL) != HR_OK)
    return;
  s->steps = steps;
}

void hri_settled_deinit(hri_settled *settled) { hri_json_deinit(&settled->root); }

void hri_run_changes_cut(hri_rundir *r, uint64_t step) {
  hri_text all = {0};
  hri_json list = {0};
  if (!r->changes.length) return;
  hri_text_add(&all, "[%s]", hri_text_get(&r->changes));
  if (!all.failed && hri_json_parse(all.chars, all.length, "changes", &list, NULL) == HR_OK) {
    hri_text_deinit(&r->changes);
    r->changes = (hri_text){0};
    take_changes(r, &list, step);
  }
  hri_json_deinit(&list);
  hri_text_deinit(&all);
}

hr_status hri_run_take_over(hri_rundir *r, hr_error *error) {
  char path[PATH_BYTES];
  hri_json root = {0}, final, changes;
  hr_status status = HR_OK;
  HRI_TRY(hri_path_at(path, r->directory, "run.json", error));
  if (!hri_path_exists(path)) { /* its checkpoints say what the run is */
    hri_session_tell(r->session, HR_EVENT_WARNING, NULL, "run.json is missing; it is written anew");
    return HR_OK;
  }
  status = read_run(r->directory, &root, path, error);
  if (status == HR_ERROR_INPUT && !(error && error->hint[0]))
    hri_hint(error, status, "put it back as it was; or move it away, and give MODEL, --data and the options once more");
  if (status != HR_OK) goto out;
  if (hri_json_get_array(&root, "changes", &changes, NULL) == HR_OK) take_changes(r, &changes, UINT64_MAX);
  if (hri_json_get_object(&root, "final", &final, NULL) == HR_OK) {
    if (hri_json_has(&final, "files")) status = hri_files_get(&final, "files", &r->final_before, error);
    if (status == HR_OK && hri_json_has(&final, "next")) status = hri_files_get(&final, "next", &r->final_next, error);
    if (status == HR_OK) hri_final_settle(r);
  }
out:
  hri_json_deinit(&root);
  return status;
}

hr_status hri_run_same(hri_rundir *r, hr_error *error) {
  char path[PATH_BYTES];
  hri_json root = {0};
  hri_text allowed = {0};
  hr_status status = read_run(r->directory, &root, path, error);
  if (status == HR_OK) status = hri_identity_check(&root, NULL, r->job, r->options, &r->facts, NULL, &allowed, error);
  if (status == HR_ERROR_INPUT && !hri_json_has(&root, "identity"))
    status = hri_fail(error, HR_ERROR_USAGE, "%s holds a run that has no checkpoint and does not say what it was",
                      r->directory);
  if (status == HR_ERROR_USAGE)
    hri_hint(error, status, "%s has no checkpoint to go on from: name another --out, or remove it", r->directory);
  hri_json_deinit(&root);
  hri_text_deinit(&allowed);
  return status;
}

/* ---- for the public ---- */

struct hr_run_record {
  char directory[PATH_BYTES], path[PATH_BYTES], checkpoint[PATH_BYTES];
  hri_json root;
};

/* The checkpoint that stands for a model that is gone: the one that the run goes on from, or the newest that looks
 * whole. */
static void choose_checkpoint(hr_run_record *run, const char *from) {
  char parent[PATH_BYTES], name[64], asked[64] = "";
  hri_file_list files = {0};
  uint64_t *steps, step;
  size_t count;
  if (from) hri_checkpoint_asked(from, asked);
  if (hri_path_at(parent, run->directory, "checkpoints", NULL) != HR_OK ||
      hri_checkpoint_list(parent, &steps, &count, NULL) != HR_OK)
    return;
  for (size_t k = 0; k < count && !run->checkpoint[0]; k++) {
    char path[PATH_BYTES];
    bool whole;
    hri_checkpoint_name(steps[k], name);
    if (hri_path_at(path, parent, name, NULL) != HR_OK) continue;
    whole = from ? strcmp(asked, name) == 0
                 : hri_manifest_read(path, &step, &files, NULL) == HR_OK &&
                       hri_manifest_check(path, &files, 1 << 20, NULL) == HR_OK;
    if (whole) memcpy(run->checkpoint, path, sizeof path);
    hri_array_free(&files);
  }
  hri_free(steps);
  if (!run->checkpoint[0]) (void)hri_checkpoint_newest(run->directory, run->checkpoint);
}

hr_status hr_run_open(const char *directory, const char *from, hr_run_record **run, hr_error *error) {
  hr_run_record *made = hri_alloc_zero(1, sizeof *made);
  hr_status status;
  *run = NULL;
  if (!made) return hri_fail_memory(error, sizeof *made, "a run");
  status = hri_path_at(made->path, directory, "run.json", error);
  (void)snprintf(made->directory, sizeof made->directory, "%s", directory);
  if (status == HR_OK && !hri_path_exists(made->path)) {
    status = hri_fail(error, HR_ERROR_USAGE,
                      hri_path_exists(directory) ? "%s is no run directory: it holds no run.json"
                                                 : "%s is no run directory: there is nothing of that name",
                      directory);
    hri_hint(error, status, "--resume takes the directory that --out named");
  }
  if (status == HR_OK) status = read_run(directory, &made->root, made->path, error);
  if (status == HR_OK) choose_checkpoint(made, from);
  if (status == HR_OK) *run = made;
  else hr_run_close(made);
  return status;
}

void hr_run_close(hr_run_record *run) {
  if (!run) return;
  hri_json_deinit(&run->root);
  hri_free(run);
}

const char *hr_run_state(const hr_run_record *run) {
  const char *state;
  return hri_json_get_string(&run->root, "state", &state, NULL) == HR_OK ? state : "";
}

/* The index-th text of a member that is a text or a list of texts. */
static const char *text_at(const hri_json *root, const char *object, const char *name, uint32_t index) {
  hri_json parent = hri_json_member(root, object), member = hri_json_member(&parent, name);
  if (json_is_string(member.value)) return index == 0 ? json_string_value(member.value) : NULL;
  return json_string_value(json_array_get(member.value, index)); /* NULL for anything else */
}

static bool is_preset(const char *name) {
  hr_model *model;
  bool is;
  if (strncmp(name, "custom:", 7) == 0) return true;
  model = hri_alloc(sizeof *model);
  is = model && hr_model_preset(name, model, NULL) == HR_OK;
  hri_free(model);
  return is;
}

const char *hr_run_option(const hr_run_record *run, const char *name, uint32_t index) {
  const char *given = text_at(&run->root, "options", name, index),
             *absolute = text_at(&run->root, "absolute", name, index);
  /* A run that began with somebody's adapters goes on with its own, of which a checkpoint holds the settings too. */
  if (strcmp(name, "adapter") == 0 && given && *given && run->checkpoint[0]) return index == 0 ? run->checkpoint : NULL;
  /* A tokenizer that was named for the model lies in its checkpoints too; where model and tokenizer come from a
   * checkpoint they come from the same one. */
  if (strcmp(name, "tokenizer") == 0 && given && *given && run->checkpoint[0] && index == 0 &&
      ((!(absolute && hri_path_exists(absolute)) && !hri_path_exists(given)) ||
       hr_run_option(run, "model", 0) == run->checkpoint))
    return run->checkpoint;
  if (absolute && hri_path_exists(absolute)) return absolute;
  if (strcmp(name, "model") != 0 || index > 0 || !given || hri_path_exists(given) || is_preset(given)) return given;
  return run->checkpoint[0] ? run->checkpoint : given;
}
